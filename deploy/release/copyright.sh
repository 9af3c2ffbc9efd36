#!/usr/bin/env bash
# Writes the copyright file of a package: Fila's licence, and for each library in the binary where its
# licence can be read. BUILD is the directory of static.sh.
build=${1:?usage: copyright.sh BUILD}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
set -euo pipefail
cat <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Fila
Source: https://github.com/faisca/fila

Files: *
Copyright: The Fila developers
License: AGPL-3
END
sed 's/^$/./; s/^/ /' LICENSE
cat <<END

Files: usr/bin/fila
Copyright: The Fila developers, and those of the libraries that are linked into it
License: various
 The binary contains Go's standard library, the C and C++ libraries of Debian, and:
END
awk '{print " " $1 " " $2}' "$build/packages.txt"
go version -m "$build/fila" | awk '$1 == "dep" {print " " $2 " " $3}'
awk '/^npm: / {print " npm:" $2 " " $3 " (" $4 ")"}' internal/ops/admin/ui/NOTICE.txt
