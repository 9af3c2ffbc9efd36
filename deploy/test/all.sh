#!/usr/bin/env bash
# Makes the releases and tests each thing in them. It takes root, and some minutes; ARCHES=amd64
# leaves out what is for arm64.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. deploy/test/lib.sh
[ "$(id -u)" = 0 ] || {
	echo "test-packages needs root: it boots systems and runs containers" >&2
	exit 1
}
rm -f "$work/passed" "$work/failed"
touch "$work/passed" "$work/failed"
export KEEP_GOING=yes
tests=(reproducible install deb image)
[[ " ${ARCHES:=amd64 arm64} " != *" arm64 "* ]] || tests+=(arm64)
for each in "${tests[@]}"; do
	echo "$each:"
	bash "deploy/test/$each.sh" || echo "$each.sh" >>"$work/failed"
done
echo "$(wc -l <"$work/passed") passed, $(wc -l <"$work/failed") failed"
[ ! -s "$work/failed" ]
