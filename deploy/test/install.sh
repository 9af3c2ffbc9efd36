#!/usr/bin/env bash
# Runs install.sh in a bare Debian 12, from a server on this machine: for root, for a user, with a wrong
# sum, and cut off on its way.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. deploy/test/lib.sh

root=$work/bare
port=$(free_port)

# fresh makes a system without Fila, with its network that of this machine.
fresh() {
	rm -rf "$root"
	cp -a "$work/base" "$root"
	chroot "$root" useradd --create-home --home-dir /srv/user user
	cp "$dist/install.sh" "$root/install.sh"
}

# served DIR is what the server has from now on.
served() {
	rm -rf "$work/served"
	cp -a "$1" "$work/served"
}

within() { chroot "$root" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

as_user() { chroot --userspec=user "$root" env -i PATH=/usr/bin:/bin HOME=/srv/user "$@"; }

# nothing_installed tells that no file of Fila is anywhere.
nothing_installed() {
	local found
	found=$(find "$root/usr/local" "$root/etc" "$root/srv" -name '*fila*')
	want "" "$found" "installed files"
}

root_gets_binary_unit_manual_and_user() {
	fresh
	served "$before"
	within sh /install.sh --from "http://127.0.0.1:$port"
	want "fila 0.1.0-rc.1" "$(within fila version | head -n 1)" "version"
	grep -q '^ExecStart=/usr/local/bin/fila ' "$root/usr/local/lib/systemd/system/fila.service" || fail "the unit starts another binary"
	want "fila /var/lib/fila" "$(chroot "$root" getent passwd fila | awk -F : '{print $1, $6}')" "user"
	within test -e /etc/fila/fila.toml
	within test -e /usr/local/share/man/man1/fila.1.gz
	within bash -n /usr/local/share/bash-completion/completions/fila
	within systemd-analyze verify --man=no /usr/local/lib/systemd/system/fila.service
}

a_newer_version_replaces_it_and_keeps_the_configuration() {
	echo '# mine' >>"$root/etc/fila/fila.toml"
	served "$dist"
	# The binary is in use meanwhile. Without a function in between, $! is the broker itself.
	chroot "$root" /usr/local/bin/fila --storage.engine memory --server.listen_addr 127.0.0.1:0 --admin.listen_addr 127.0.0.1:0 \
		--config /etc/fila/fila.toml 2>"$work/bare.log" &
	local broker=$!
	eventually grep '"ready"' "$work/bare.log"
	within sh /install.sh --from "http://127.0.0.1:$port" 0.1.0
	kill $broker
	wait $broker
	want "fila 0.1.0" "$(within fila version | head -n 1)" "version"
	want "# mine" "$(tail -n 1 "$root/etc/fila/fila.toml")" "configuration"
}

a_user_gets_it_at_home() {
	fresh
	served "$dist"
	as_user sh /install.sh --from "http://127.0.0.1:$port" v0.1.0
	want "fila 0.1.0" "$(as_user /srv/user/.local/bin/fila version | head -n 1)" "version"
	want "" "$(find "$root/usr/local" "$root/etc" -name '*fila*')" "files outside of the home directory"
	cp -a "$dist" "$root/release"
	as_user sh /install.sh --from /release --prefix /srv/user/here
	want "fila 0.1.0" "$(as_user /srv/user/here/bin/fila version | head -n 1)" "version of what is installed from a directory"
}

a_wrong_sum_is_refused() {
	fresh
	served "$dist"
	printf x >>"$work/served/fila_0.1.0_linux_$arch.tar.gz"
	local said
	said=$(within sh /install.sh --from "http://127.0.0.1:$port" 2>&1) && fail "it installs an archive with a wrong sum"
	grep -q 'has the sum .* nothing is installed' <<<"$said" || fail "it says: $said"
	nothing_installed
}

an_archive_that_no_sum_is_known_of_is_refused() {
	served "$dist"
	sed -i "/_linux_$arch.tar.gz/d" "$work/served/SHA256SUMS"
	! within sh /install.sh --from "http://127.0.0.1:$port" 2>/dev/null || fail "it installs an archive without a sum"
	rm "$work/served/SHA256SUMS"
	! within sh /install.sh --from "http://127.0.0.1:$port" 2>/dev/null || fail "it installs without any sums"
	served "$dist"
	! within sh /install.sh --from "http://127.0.0.1:$port" 0.9.9 2>/dev/null || fail "it installs another version than the one that was named"
	! within sh /install.sh --form x 2>/dev/null || fail "it takes an option that it does not know"
	nothing_installed
}

a_script_that_was_cut_off_does_nothing() {
	served "$dist"
	local bytes
	bytes=$(stat -c %s "$root/install.sh")
	# Without its last line, and at places before.
	for part in $((bytes - 10)) $((bytes * 3 / 4)) $((bytes / 2)); do
		head -c "$part" "$dist/install.sh" >"$root/part.sh"
		within sh /part.sh --from "http://127.0.0.1:$port" >/dev/null 2>&1 || true
		nothing_installed
	done
}

make_install_puts_the_same_files_below_a_prefix() {
	local to=$work/destdir
	rm -rf "$to" "$work/x"
	mkdir "$work/x"
	tar -xzf "$dist/fila_0.1.0_linux_$arch.tar.gz" -C "$work/x" --strip-components=1
	make -s install BIN="$work/x/bin/fila" DESTDIR="$to" PREFIX=/opt/fila
	want "$(cd "$work/x" && find . -type f | sort)" "$(cd "$to/opt/fila" && find . -type f | sort)" "files"
	grep -q '^ExecStart=/opt/fila/bin/fila ' "$to/opt/fila/lib/systemd/system/fila.service" || fail "the unit starts another binary"
}

base
mkdir -p "$work/served"
(cd "$work" && exec python3 -m http.server --bind 127.0.0.1 --directory served "$port" >"$work/http.log" 2>&1) &
server=$!
trap 'kill $server' EXIT
eventually curl -fs "http://127.0.0.1:$port/"
run root_gets_binary_unit_manual_and_user a_newer_version_replaces_it_and_keeps_the_configuration a_user_gets_it_at_home a_wrong_sum_is_refused \
	an_archive_that_no_sum_is_known_of_is_refused a_script_that_was_cut_off_does_nothing make_install_puts_the_same_files_below_a_prefix
