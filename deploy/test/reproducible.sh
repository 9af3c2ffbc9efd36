#!/usr/bin/env bash
# Makes a release of this commit twice, and the release that is upgraded from. Their versions are
# those of tags, which are made in clones and not in this repository.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. deploy/test/lib.sh

commit=$(git rev-parse HEAD)

# make_release TAG DIR DIST ARCHES [VARIABLE=VALUE]...
make_release() {
	local tag=$1 dir=$work/$2 to=$work/$3 arches=$4
	shift 4
	rm -rf "$dir" "$to"
	git clone -q --no-tags . "$dir"
	git -C "$dir" checkout -q "$commit"
	git -C "$dir" tag "$tag"
	mkdir -p "$dir/.cache"
	[ ! -d .cache/release ] || cp -a .cache/release "$dir/.cache/release"
	if ! env DIST="$to" ARCHES="$arches" "$@" bash "$dir/deploy/release/release.sh" >"$to.log" 2>&1; then
		tail -n 20 "$to.log" >&2
		fail "the release failed, see $to.log"
	fi
	rm -rf "$dir"
}

the_version_of_a_release_is_its_tag() {
	make_release v0.1.0 a dist "$ARCHES"
	mkdir -p "$work/x"
	tar -xzf "$work/dist/fila_0.1.0_linux_$arch.tar.gz" -C "$work/x" --strip-components=1
	want "fila 0.1.0" "$("$work/x/bin/fila" version | head -n 1)" "version of the archive"
	want "commit $commit" "$("$work/x/bin/fila" version | sed -n 2p)" "commit of the archive"
	want "0.1.0" "$(dpkg-deb -f "$work/dist/fila_0.1.0_$arch.deb" Version)" "version of the package"
	(cd "$work/dist" && sha256sum --quiet -c SHA256SUMS)
}

another_directory_and_an_empty_cache_give_the_same_bytes() {
	make_release v0.1.0 "another place/b" again "$ARCHES" GOCACHE="$work/gocache"
	diff "$work/dist/SHA256SUMS" "$work/again/SHA256SUMS"
	rm -rf "$work/again" "$work/gocache" "$work/another place"
}

binaries_need_no_library() {
	local each
	for each in $ARCHES; do
		rm -rf "$work/x"
		mkdir "$work/x"
		tar -xzf "$work/dist/fila_0.1.0_linux_$each.tar.gz" -C "$work/x" --strip-components=1
		LC_ALL=C readelf -d "$work/x/bin/fila" | grep >/dev/null 'no dynamic section' || fail "the binary for $each is not static"
		! grep -qF "$work" "$work/x/bin/fila" || fail "the binary for $each names the directory that it was built in"
	done
}

documents_that_are_named_are_there() {
	local doc=$work/x/share/doc/fila name
	{
		grep -o ']([^)#]*' "$doc/README.md" | cut -c 3- | grep -v '://'
		strings "$work/x/bin/fila" | grep -o 'docs/[a-z-]*/[a-z-]*\.md'
	} | sort -u >"$work/named"
	grep -qx docs/how-to/backup.md "$work/named" || fail "fila doctor does not name docs/how-to/backup.md"
	while read -r name; do [ -e "$doc/$name" ] || fail "the archive has no $name, which is named"; done <"$work/named"
}

the_sbom_lists_modules_and_libraries() {
	local sbom=$work/dist/fila_0.1.0_linux_$arch.cdx.json part
	for part in '"bomFormat": "CycloneDX"' pkg:golang/github.com/lin[xX] pkg:golang/std@ pkg:deb/debian/librocksdb-dev@7.8 pkg:deb/debian/libc6-dev@; do
		grep -q "$part" "$sbom" || fail "$sbom has no $part"
	done
	want "$(go version -m "$work/x/bin/fila" | grep -c $'^\tdep\t')" "$(grep '^      "bom-ref": "pkg:golang/' "$sbom" | grep -c -v -e golang/std@ -e github.com/faisca/fila@)" "modules"
}

lintian_has_no_complaint() {
	local said
	said=$(lintian --allow-root "$work/dist"/*.deb 2>/dev/null) || true
	want "" "$said" "lintian"
}

the_release_before_can_be_made() { make_release v0.1.0-rc.1 c before "$arch"; }

: "${ARCHES:=amd64 arm64}"
run the_version_of_a_release_is_its_tag another_directory_and_an_empty_cache_give_the_same_bytes binaries_need_no_library \
	documents_that_are_named_are_there the_sbom_lists_modules_and_libraries lintian_has_no_complaint the_release_before_can_be_made
