#!/usr/bin/env bash
# Boots a Debian 12 in systemd-nspawn, installs the package before this one, and goes through what
# happens to a broker under its unit: kills, a stuck loop, a wrong setting, an upgrade, removal. The
# system shares the network of this machine, on ports of its own.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. deploy/test/lib.sh

root=$work/system
port=$(free_port)
admin=$(free_port)

# inside COMMAND... runs it in the booted system.
inside() { nsenter -a -t "$(cat "$work/leader")" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive "$@"; }

shown() { inside systemctl show -p "$1" --value fila; }

active() { [ "$(shown ActiveState)/$(shown SubState)" = active/running ]; }

ready() { inside env FILA_URL="fila://default:$password@127.0.0.1:$port" fila health --ready; }

# restarted N tells whether systemd has started the broker anew so many times.
restarted() { [ "$(shown NRestarts)" -ge "$1" ] && active && ready; }

boot() {
	base
	rm -rf "$root"
	cp -a "$work/base" "$root"
	cp "$before"/fila_*_"$arch".deb "$root/before.deb"
	cp "$dist"/fila_*_"$arch".deb "$root/new.deb"
	printf 'FILA_SERVER__LISTEN_ADDR=127.0.0.1:%s\nFILA_ADMIN__LISTEN_ADDR=127.0.0.1:%s\nFILA_AUTH__PASSWORD=%s\n' "$port" "$admin" "$password" >"$root/etc/default/fila"
	chmod 600 "$root/etc/default/fila"
	systemd-nspawn --quiet --register=no --keep-unit --boot --directory="$root" --machine=fila-test --console=pipe \
		>"$work/boot.log" 2>&1 </dev/null &
	echo $! >"$work/nspawn"
	eventually leader
	eventually booted
}

booted() {
	case $(inside systemctl is-system-running) in
	running | degraded) ;; # there are units that a container cannot start
	*) return 1 ;;
	esac
}

# leader finds init of the booted system: the child of systemd-nspawn.
leader() {
	pgrep -P "$(cat "$work/nspawn")" | head -n 1 >"$work/leader"
	[ -s "$work/leader" ] && inside true
}

shut() {
	[ -s "$work/leader" ] && inside systemctl poweroff >/dev/null 2>&1 || true
	[ ! -s "$work/nspawn" ] || tail --pid="$(cat "$work/nspawn")" -f /dev/null
	rm -f "$work/leader" "$work/nspawn"
}

the_package_installs_and_its_unit_becomes_ready() {
	inside dpkg -i /before.deb >"$work/dpkg.log" 2>&1 || fail "dpkg failed, see $work/dpkg.log"
	eventually active
	eventually ready
	want enabled "$(inside systemctl is-enabled fila)" "is-enabled"
	want "serving 127.0.0.1:$port" "$(shown StatusText)" "status"
	want "fila 0.1.0-rc.1" "$(inside fila version | head -n 1)" "version"
}

the_broker_has_no_rights_that_it_does_not_need() {
	local pid status
	pid=$(shown MainPID)
	want fila "$(inside stat -c %U "/proc/$pid")" "user"
	status=$(inside cat "/proc/$pid/status")
	want 0000000000000000 "$(sed -n 's/^CapEff:\t//p' <<<"$status")" "capabilities"
	want 1 "$(sed -n 's/^NoNewPrivs:\t//p' <<<"$status")" "NoNewPrivs"
	want 2 "$(sed -n 's/^Seccomp:\t//p' <<<"$status")" "seccomp"
	want "fila 700" "$(inside stat -c '%U %a' /var/lib/fila)" "the state directory"
	# In its view of the file system only its own directory can be written to.
	! inside nsenter -m -t "$pid" touch /etc/fila/x 2>/dev/null || fail "/etc can be written to"
	inside nsenter -m -t "$pid" touch /var/lib/fila/x
	inside rm /var/lib/fila/x
}

messages_survive_a_kill() {
	fill 1000
	want 1000 "$(depth)" "messages"
	inside systemctl kill -s KILL fila
	eventually restarted 1
	want 1000 "$(depth)" "messages after the kill"
}

a_panic_is_followed_by_a_restart() {
	inside systemctl kill -s ABRT fila # as a panic ends with GOTRACEBACK=crash
	eventually restarted 2
	want 1000 "$(depth)" "messages after the panic"
}

a_broker_that_is_stuck_is_restarted_by_the_watchdog() {
	inside mkdir -p /run/systemd/system/fila.service.d
	printf '[Service]\nWatchdogSec=2\nTimeoutAbortSec=1\n' | inside tee /run/systemd/system/fila.service.d/fast.conf >/dev/null
	inside systemctl daemon-reload
	inside systemctl restart fila
	eventually ready
	# It is fed: several times its time later the same process runs.
	local pid
	pid=$(shown MainPID)
	sleep 6
	want "$pid" "$(shown MainPID)" "the process, with its watchdog fed"
	inside systemctl kill -s STOP fila
	eventually restarted 1
	inside journalctl -q -u fila | grep >/dev/null 'Watchdog timeout' || fail "the journal has no watchdog timeout"
	want 1000 "$(depth)" "messages after the watchdog"
	inside rm -r /run/systemd/system/fila.service.d
	inside systemctl daemon-reload
	inside systemctl restart fila
	eventually ready
}

a_wrong_setting_stops_the_start_and_is_not_tried_again() {
	inside sed -i '$aFILA_LOG__LEVEL=loud' /etc/default/fila
	! inside systemctl restart fila 2>/dev/null || fail "it starts with a wrong setting"
	sleep 3
	want "failed 0 2" "$(shown ActiveState) $(shown NRestarts) $(shown ExecMainStatus)" "state, restarts, exit code"
	inside journalctl -q -u fila | grep >/dev/null 'FILA_LOG__LEVEL' || fail "the journal does not name the setting"
	inside sed -i '$d' /etc/default/fila
	inside systemctl restart fila
	eventually ready
}

a_reload_reads_the_configuration_in_the_same_process() {
	local pid
	pid=$(shown MainPID)
	inside cp -p /etc/fila/fila.toml /etc/fila/kept
	inside sed -i '$alevel = "debug"' /etc/fila/fila.toml
	inside systemctl reload fila
	eventually reloaded
	want "$pid" "$(shown MainPID)" "the process"
	inside mv /etc/fila/kept /etc/fila/fila.toml
	inside systemctl reload fila
}

reloaded() { inside journalctl -q -u fila | grep 'configuration in force' | grep 'log.level'; }

a_backup_can_be_made() {
	cli BGSAVE >/dev/null
	eventually inside sh -c 'ls /var/lib/fila/data-backups/*/CURRENT || ls /var/lib/fila/data-backups/*'
}

an_upgrade_keeps_messages_and_configuration() {
	inside sed -i '$a# mine' /etc/fila/fila.toml
	local lease
	lease=$(cli FILA.LEASE orders COUNT 10 VISIBILITY 600000 | grep -c '^message ')
	want 10 "$lease" "leased messages"
	inside dpkg -i --force-confold /new.deb >"$work/dpkg.log" 2>&1 || fail "dpkg failed, see $work/dpkg.log"
	eventually ready
	want "fila 0.1.0" "$(inside fila version | head -n 1)" "version"
	want "0.1.0" "$(cli INFO server | sed -n 's/^fila_version:\([^\r]*\).*/\1/p')" "version of the running broker"
	want 990 "$(depth)" "ready messages after the upgrade"
	want 10 "$(in_queue leased)" "leased messages after the upgrade"
	want "# mine" "$(inside tail -n 1 /etc/fila/fila.toml)" "the configuration"
	inside journalctl -q -u fila | grep >/dev/null '"stopped"' || fail "the old broker was not stopped in order"
}

manual_and_completions_are_installed() {
	inside man fila-serve | grep >/dev/null 'Start the broker' || fail "there is no manual page"
	inside bash -n /usr/share/bash-completion/completions/fila
}

messages_survive_a_reboot_of_the_system() {
	local pid
	pid=$(cat "$work/leader")
	shut
	systemd-nspawn --quiet --register=no --keep-unit --boot --directory="$root" --machine=fila-test --console=pipe \
		>>"$work/boot.log" 2>&1 </dev/null &
	echo $! >"$work/nspawn"
	eventually leader
	eventually ready
	want 990 "$(depth)" "messages after the reboot"
}

a_removal_stops_the_broker_and_a_purge_keeps_the_messages() {
	inside dpkg -r fila >"$work/dpkg.log" 2>&1
	! inside systemctl is-active -q fila || fail "it is still active"
	inside test -e /etc/fila/fila.toml
	inside dpkg -P fila >"$work/dpkg.log" 2>&1
	grep -q 'messages in /var/lib/fila are kept' "$work/dpkg.log" || fail "the purge does not say that messages are kept"
	! inside test -e /etc/fila/fila.toml || fail "the configuration is still there"
	inside test -d /var/lib/fila/data
	inside dpkg -i /new.deb >"$work/dpkg.log" 2>&1
	eventually ready
	want 990 "$(depth)" "messages in a package that is installed again"
}

trap shut EXIT
boot
run the_package_installs_and_its_unit_becomes_ready the_broker_has_no_rights_that_it_does_not_need messages_survive_a_kill \
	a_panic_is_followed_by_a_restart a_broker_that_is_stuck_is_restarted_by_the_watchdog a_wrong_setting_stops_the_start_and_is_not_tried_again \
	a_reload_reads_the_configuration_in_the_same_process a_backup_can_be_made an_upgrade_keeps_messages_and_configuration manual_and_completions_are_installed messages_survive_a_reboot_of_the_system \
	a_removal_stops_the_broker_and_a_purge_keeps_the_messages
