#!/usr/bin/env bash
# Lays out what an installed Fila consists of below ROOT/PREFIX: binary, manual, completions, unit,
# documents, and its configuration as an example. `make install`, the packages and the archives have
# the same, and differ in the prefix only. TOOL is a fila that runs on this machine.
bin=${1:?usage: layout.sh BINARY TOOL ROOT PREFIX}
tool=${2:?} root=${3-} prefix=${4:?}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
set -euo pipefail
umask 022
[ -x "$bin" ] || {
	echo "install: there is no $bin: run \`make build\` first" >&2
	exit 1
}

to=$root$prefix
put() { install -D -m "$1" "$2" "$to/$3"; }
put 755 "$bin" bin/fila
"$tool" man "$to/share/man/man1"
gzip -9nf "$to"/share/man/man1/fila*.1
for shell in bash zsh fish; do
	case $shell in
	bash) file=share/bash-completion/completions/fila ;;
	zsh) file=share/zsh/site-functions/_fila ;;
	fish) file=share/fish/vendor_completions.d/fila.fish ;;
	esac
	mkdir -p "$(dirname "$to/$file")"
	"$tool" completion $shell >"$to/$file"
done
mkdir -p "$to/lib/systemd/system"
sed "s|/usr/bin/fila|$prefix/bin/fila|" deploy/fila.service >"$to/lib/systemd/system/fila.service"
put 644 deploy/fila.sysusers lib/sysusers.d/fila.conf
put 644 deploy/fila.toml share/doc/fila/fila.toml
# The documents keep their paths, which is what links, --help and `fila doctor` name.
put 644 LICENSE share/doc/fila/LICENSE
find ./*.md docs adapters examples -name node_modules -prune -o -type f \( -path 'docs/*' -o -name '*.md' \) ! -name llms-full.txt -print0 |
	while IFS= read -r -d '' file; do put 644 "$file" "share/doc/fila/$file"; done
