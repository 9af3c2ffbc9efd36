#!/usr/bin/env bash
# Makes the Debian package of one architecture with dpkg-deb, which gives the same bytes for the
# same files and SOURCE_DATE_EPOCH. The binary is static, so it installs on any Debian or Ubuntu
# with systemd.
arch=${1:?usage: deb.sh amd64|arm64}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. deploy/release/settings.sh

version=$(version)
maintainer=${MAINTAINER:-Fila <faisca@users.noreply.github.com>}
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
bash deploy/release/layout.sh "$DIST/linux_$arch/fila" "$DIST/linux_$(go env GOHOSTARCH)/fila" "$tree" /usr

# Where Debian wants things.
doc=$tree/usr/share/doc/fila
install -D -m 644 deploy/fila.toml "$tree/etc/fila/fila.toml"
mkdir -p "$tree/usr/share/zsh/vendor-completions" "$tree/lib/systemd"
mv "$tree/usr/share/zsh/site-functions/_fila" "$tree/usr/share/zsh/vendor-completions/_fila"
rmdir "$tree/usr/share/zsh/site-functions"
mv "$tree/usr/lib/systemd/system" "$tree/lib/systemd/system"
# postinst makes the user, and the licence is in the copyright file.
rm -r "$tree/usr/lib" "$doc/fila.toml" "$doc/LICENSE"
gzip -9nf "$doc/CHANGELOG.md"
gzip -9n >"$doc/changelog.gz" <<END
fila (${version//-/\~}) stable; urgency=medium

  * CHANGELOG.md.gz says what is new.

 -- $maintainer  $(date -R -u -d "@$SOURCE_DATE_EPOCH")
END
# The binary needs no library of the system, which is what lintian is told here.
mkdir -p "$tree/usr/share/lintian/overrides"
printf 'fila: %s\n' statically-linked-binary embedded-library >"$tree/usr/share/lintian/overrides/fila"
bash deploy/release/copyright.sh "$DIST/linux_$arch" >"$doc/copyright"

mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<END
Package: fila
Version: ${version//-/\~}
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -k -s --apparent-size --exclude=DEBIAN "$tree" | cut -f 1)
Depends: adduser, init-system-helpers (>= 1.51)
Section: net
Priority: optional
Homepage: https://github.com/faisca/fila
Built-Using: $(awk '{print $3 " (= " $4 ")"}' "$DIST/linux_$arch/packages.txt" | sort -u | paste -s -d , | sed 's/,/, /g')
Description: message broker with fair scheduling that speaks the Redis protocol
 Fila shares the work of many tenants among workers: messages carry a fairness
 key, deliveries are shared among keys by weight, and throttles limit rate and
 concurrency across queues. A script in Lua may decide key, weight and retries.
 .
 An acknowledged message is on disk. Clients are Redis clients.
END
echo /etc/fila/fila.toml >"$tree/DEBIAN/conffiles"
for script in postinst prerm postrm; do install -m 755 deploy/debian/$script "$tree/DEBIAN/$script"; done
(cd "$tree" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
chmod 644 "$tree"/DEBIAN/{control,conffiles,md5sums}

find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zxz --build "$tree" "$DIST/fila_${version}_$arch.deb" >/dev/null
