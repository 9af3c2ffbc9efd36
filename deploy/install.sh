#!/bin/sh
# Installs Fila for this machine from its archive: binary, manual, completions and, for root, the systemd
# unit, the user "fila" and /etc/fila/fila.toml, unless that is there. It starts nothing.
#
#   sh install.sh [--from WHERE] [--prefix DIR] [VERSION]
#
# WHERE is an address or a directory that has archives and SHA256SUMS; else it is the release of that
# version, or the latest, at GitHub. DIR is /usr/local for root and ~/.local for others.
#
# All of it is in a function that is called last, so that a script that was cut off on its way
# does nothing.
set -eu

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

# get FILE TO
get() {
	case $from in
	*://*)
		if command -v curl >/dev/null; then
			curl -fsSL --proto '=https,http' --retry 3 -o "$2" "$from/$1"
		elif command -v wget >/dev/null; then
			wget -q -O "$2" "$from/$1"
		else
			fail "curl or wget is needed"
		fi
		;;
	*) cp "$from/$1" "$2" ;;
	esac || fail "cannot get $from/$1"
}

main() {
	from='' prefix='' version=''
	while [ $# -gt 0 ]; do
		case $1 in
		--from | --prefix)
			[ $# -gt 1 ] || fail "$1 needs a value"
			[ "$1" = --from ] && from=$2 || prefix=$2
			shift
			;;
		-*) fail "there is no option $1: use [--from WHERE] [--prefix DIR] [VERSION]" ;;
		*) version=${1#v} ;;
		esac
		shift
	done
	releases=https://github.com/faisca/fila/releases
	if [ -z "$from" ] && [ -n "$version" ]; then
		from=$releases/download/v$version
	elif [ -z "$from" ]; then
		from=$releases/latest/download
	fi
	[ "$(uname -s)" = Linux ] || fail "there are binaries for Linux only, not for $(uname -s): build it with make"
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) fail "there are binaries for amd64 and arm64, not for $(uname -m): build it with make" ;;
	esac
	root=false
	[ "$(id -u)" -ne 0 ] || root=true
	if [ -z "$prefix" ] && $root; then
		prefix=/usr/local
	elif [ -z "$prefix" ]; then
		prefix=$HOME/.local
	fi

	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	get SHA256SUMS "$work/SHA256SUMS"
	archive=$(sed -n "s/^[0-9a-f]\{64\} [ *]\(fila_${version:-[0-9][^ ]*}_linux_$arch\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS")
	case $archive in
	'') fail "$from has no archive of ${version:-any version} for $arch" ;;
	*[![:print:]]*) fail "$from has more than one version: name the one to install" ;;
	esac
	get "$archive" "$work/$archive"
	want=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$archive\$/\1/p" "$work/SHA256SUMS")
	got=$(sha256sum "$work/$archive" | cut -d ' ' -f 1)
	[ "$got" = "$want" ] || fail "$archive has the sum $got, and SHA256SUMS says $want: nothing is installed"

	mkdir "$work/tree"
	tar -xzf "$work/$archive" -C "$work/tree" --strip-components=1 --no-same-owner
	if $root; then
		sed -i "s|/usr/local/bin/fila|$prefix/bin/fila|" "$work/tree/lib/systemd/system/fila.service"
	else
		rm -r "$work/tree/lib"
	fi
	mkdir -p "$prefix"
	# A broker that runs from there keeps its file: each is put in place by a rename.
	(cd "$work/tree" && find . -type f) | while read -r file; do
		mkdir -p "$prefix/$(dirname "$file")"
		cp "$work/tree/$file" "$prefix/$file.new"
		mv "$prefix/$file.new" "$prefix/$file"
	done
	echo "$("$prefix/bin/fila" version | head -n 1) is installed in $prefix/bin."
	if ! $root; then
		echo "Start it with: $prefix/bin/fila"
		return
	fi
	if [ ! -e /etc/fila/fila.toml ]; then
		mkdir -p /etc/fila
		cp "$prefix/share/doc/fila/fila.toml" /etc/fila/fila.toml
	fi
	if ! getent passwd fila >/dev/null; then
		useradd --system --user-group --home-dir /var/lib/fila --no-create-home --shell /usr/sbin/nologin fila
	fi
	if [ -d /run/systemd/system ]; then
		systemctl daemon-reload
		echo "Start it with: systemctl enable --now fila; after an upgrade: systemctl restart fila"
	fi
}

main "$@"
