#!/usr/bin/env bash
# Builds the broker for one architecture, amd64 or arm64, as a file that needs no library of the
# system it runs on: DIST/linux_ARCH/fila, and beside it the gateway for clients of SQS, fila-sqs, and the outbox for
# PostgreSQL, fila-outbox. RocksDB and what it needs are Debian 12's own static libraries, taken from its packages without installing them, so that amd64 and arm64 are built
# in the same way. Beside the binary, packages.txt says which they were.
arch=${1:?usage: static.sh amd64|arm64}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. deploy/release/settings.sh

suite=bookworm
libraries=(librocksdb-dev libzstd-dev liblz4-dev libsnappy-dev libbz2-dev zlib1g-dev)

. /etc/os-release
[ "${VERSION_CODENAME:-}" = $suite ] || die "releases are linked with the libraries of Debian 12: build on that, not on ${PRETTY_NAME:-this system}"
case $arch in
amd64)
	triple=x86_64-linux-gnu
	wrap=" -Wl,--wrap=_ZN7rocksdb6crc32c6ExtendEjPKcm" # see storage/rocks/checksum.cc
	;;
arm64) triple=aarch64-linux-gnu wrap="" ;;
*) die "there are releases for amd64 and arm64, not for $arch" ;;
esac
command -v $triple-g++ >/dev/null || die "$triple-g++ is missing: apt-get install g++-${triple//_/-}"

# apt keeps lists and packages of that architecture here, and touches nothing of the system's.
root=$PWD/.cache/release/$arch
if [ ! -e "$root/complete" ]; then
	say "fetching libraries for $arch"
	rm -rf "$root"
	mkdir -p "$root"/{lists/partial,archives/partial,sysroot}
	touch "$root/status"
	apt() {
		apt-get -q -o APT::Architecture="$arch" -o APT::Architectures="$arch" -o Dir::State::Lists="$root/lists" -o Dir::State::Status="$root/status" \
			-o Dir::Cache::Archives="$root/archives" -o Dir::Cache::PkgCache= -o Dir::Cache::SrcPkgCache= -o APT::Sandbox::User=root \
			-o Acquire::Languages=none -o Debug::NoLocking=true "$@"
	}
	apt update >"$root/log" 2>&1 || die "apt-get update failed for $arch, see $root/log"
	(cd "$root/archives" && apt download "${libraries[@]/%//$suite}" >>"$root/log" 2>&1) || die "apt-get download failed, see $root/log"
	for deb in "$root"/archives/*.deb; do dpkg-deb -x "$deb" "$root/sysroot"; done
	touch "$root/complete"
fi

# -B and -buildid: both are made of the paths of this build. zlib and the others follow
# RocksDB in the order in which a static linker needs them.
say "building for $arch"
out=$DIST/linux_$arch
mkdir -p "$out"
CGO_ENABLED=1 GOOS=linux GOARCH=$arch CC=$triple-gcc CXX=$triple-g++ GOFLAGS=-mod=readonly GOTOOLCHAIN=local \
	CGO_CFLAGS="-O2 '-I$root/sysroot/usr/include'" CGO_CXXFLAGS="-O2 '-I$root/sysroot/usr/include'" CGO_LDFLAGS="'-L$root/sysroot/usr/lib/$triple'" \
	go build -buildvcs=true -trimpath -tags netgo,osusergo -ldflags '-s -w -buildid= -B none -linkmode external -extldflags "-static -lbz2'"$wrap"'"' -o "$out/fila" .

# The gateway and the outbox are modules of their own, and pure Go.
beside() {
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOWORK=off \
		go -C "adapters/$1" build -buildvcs=true -trimpath -ldflags '-s -w -buildid=' -o "$(cd "$out" && pwd)/$2" "./cmd/$2"
}
beside sqs fila-sqs
beside postgres fila-outbox

# Name and version of each package, and of its source: that is only said where it is another.
cross=$([ "$arch" = "$(dpkg --print-architecture)" ] || echo "-$arch-cross")
{
	for deb in "$root"/archives/*.deb; do
		dpkg-deb -f "$deb" Package Version Source | awk -F ': ' '{v[$1] = $2}
			END {n = split(v["Source"], s, /[ ()]+/); print v["Package"], v["Version"], n ? s[1] : v["Package"], s[2] != "" ? s[2] : v["Version"]}'
	done
	dpkg-query -W -f '${Package} ${Version} ${source:Package} ${source:Version}\n' "libc6-dev$cross" "libstdc++-12-dev$cross" "libgcc-12-dev$cross"
} | sort >"$out/packages.txt"
