#!/usr/bin/env bash
# Makes a release in DIST, for the architectures in ARCHES: archives, Debian packages, images, lists of
# what is in them (SBOM), and SHA256SUMS over all of it. The same commit gives the same bytes,
# given the same Go, Debian packages and buildah. Images are left out where IMAGES is empty.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. deploy/release/settings.sh
read -ra arches <<<"${ARCHES:-amd64 arm64}"

rm -rf "$DIST"
mkdir -p "$DIST"
DIST=$(cd "$DIST" && pwd)
export DIST
host=$(go env GOHOSTARCH)
[[ " ${arches[*]} " = *" $host "* ]] || bash deploy/release/static.sh "$host" # it writes the manual
for arch in "${arches[@]}"; do bash deploy/release/static.sh "$arch"; done
version=$(version)
go -C tools/sbom build -buildvcs=false -trimpath -o "$DIST/sbom" .

for arch in "${arches[@]}"; do
	say "packing for $arch"
	name=fila_${version}_linux_$arch
	bash deploy/release/layout.sh "$DIST/linux_$arch/fila" "$DIST/linux_$host/fila" "$DIST/tree/$name" /usr/local
	mv "$DIST/tree/$name/usr/local"/* "$DIST/tree/$name"
	rm -r "$DIST/tree/$name/usr"
	tar -C "$DIST/tree" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -cf - "$name" |
		gzip -9n >"$DIST/$name.tar.gz"
	bash deploy/release/deb.sh "$arch"
	listing=("$DIST/sbom" "$version" "$DIST/linux_$arch/packages.txt" internal/ops/admin/ui/NOTICE.txt "$DIST/linux_$arch/fila")
	"${listing[@]}" >"$DIST/$name.cdx.json"
	[ -n "${IMAGES-yes}" ] || continue
	bash deploy/release/image.sh "$arch"
	"${listing[@]}" "$DIST/linux_$arch"/fila-{sqs,outbox} >"$DIST/fila_${version}_image_$arch.cdx.json"
done
cp deploy/install.sh "$DIST/install.sh"
rm -r "$DIST/tree" "$DIST/sbom" "$DIST"/linux_*
(cd "$DIST" && sha256sum -- * >SHA256SUMS)
say "$version is in $DIST:"
(cd "$DIST" && ls -sh1)
