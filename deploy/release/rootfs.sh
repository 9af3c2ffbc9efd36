#!/usr/bin/env bash
# Makes the files of the image. Those of root are in DIR/rootfs: the binary, the gateway for clients of SQS and the outbox
# for PostgreSQL that are beside it, the user that it runs as, and the certificates of public authorities, for commands that go to a broker over TLS. The
# directory of the volume, which is the user's, is in DIR/volume.
bin=${1:?usage: rootfs.sh BINARY DIR}
dir=${2:?}
root=$dir/rootfs
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. deploy/release/settings.sh

install -D -m 755 "$bin" "$root/usr/bin/fila"
install -D -m 755 "$(dirname "$bin")/fila-sqs" "$root/usr/bin/fila-sqs"
install -D -m 755 "$(dirname "$bin")/fila-outbox" "$root/usr/bin/fila-outbox"
install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
install -D -m 644 LICENSE "$root/usr/share/doc/fila/LICENSE"
echo 'fila:x:65532:65532:Fila:/data:/usr/bin/fila' >"$root/etc/passwd"
echo 'fila:x:65532:' >"$root/etc/group"
mkdir -p "$dir/volume/data"
chmod 700 "$dir/volume/data"
find "$dir" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
