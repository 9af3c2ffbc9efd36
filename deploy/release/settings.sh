# shellcheck shell=bash
# Sourced by the scripts beside it, from the root of the repository.
set -euo pipefail

: "${DIST:=dist}" # where everything goes that is made

# Everything in a release has the time of its commit, so that who builds the same commit
# again gets the same bytes.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
	SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null) || {
		echo "release: this is no git checkout: set SOURCE_DATE_EPOCH to the time of the release" >&2
		exit 1
	}
fi
export SOURCE_DATE_EPOCH TZ=UTC LC_ALL=C
umask 022

# version asks the binary, which has it from the tag of its commit.
version() { "$DIST/linux_$(go env GOHOSTARCH)/fila" version | sed -n 's/^fila //p'; }

say() { echo "release: $*" >&2; }
die() {
	say "$*"
	exit 1
}
