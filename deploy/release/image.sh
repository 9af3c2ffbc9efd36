#!/usr/bin/env bash
# Makes the image of one architecture as an archive for `docker load` and `podman load`, with
# buildah: the last stage of the Dockerfile, and in it the binary that was built here. Its
# format is Docker's because that of OCI has no place for a health check; every runtime
# of OCI's reads both.
arch=${1:?usage: image.sh amd64|arm64}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. deploy/release/settings.sh
command -v buildah >/dev/null || die "buildah is missing: apt-get install buildah"
[ "$(id -u)" = 0 ] || die "buildah needs root here, for the owner of /data in the image"

version=$(version)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
storage=(--root "$work/storage" --runroot "$work/run" --storage-driver vfs)
bash deploy/release/rootfs.sh "$DIST/linux_$arch/fila" "$work/context"
sed -n '/^FROM scratch/,$p' deploy/Dockerfile | sed -E 's/--from=build //; s|/out/|/|' >"$work/Dockerfile"
say "making the image for $arch"
buildah "${storage[@]}" bud --quiet --isolation chroot --format docker --timestamp "$SOURCE_DATE_EPOCH" --arch "$arch" --os linux \
	--label "org.opencontainers.image.version=$version" --tag "fila:$version" -f "$work/Dockerfile" "$work/context" >/dev/null
buildah "${storage[@]}" push --quiet "fila:$version" "docker-archive:$work/image.tar:fila:$version" >/dev/null

# The configuration names the container that the image was made in, and so differs each time.
# Without that it has another sum, by which the manifest knows it. What only old versions
# of Docker read is left out.
mkdir "$work/image"
tar -C "$work/image" -xf "$work/image.tar"
cd "$work/image"
old=$(sed -E 's/.*"Config":"([0-9a-f]{64})\.json".*/\1/' manifest.json)
sed -E 's/"container":"[0-9a-f]{64}",//; s/"Hostname":"[0-9a-f]+"/"Hostname":""/g' "$old.json" >config
new=$(sha256sum config | cut -d ' ' -f 1)
rm "$old.json"
mv config "$new.json"
sed -i "s/$old/$new/" manifest.json
find . -mindepth 1 -maxdepth 1 \( -type d -o -name repositories \) -exec rm -r {} +
chmod 644 ./*
tar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -cf "$work/archive.tar" ./*.json ./*.tar --transform 's|^\./||'
cd - >/dev/null
mv "$work/archive.tar" "$DIST/fila_${version}_image_$arch.tar"
