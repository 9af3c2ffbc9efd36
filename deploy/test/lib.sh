# shellcheck shell=bash
# Sourced by the tests beside it, from the root of the repository. A test is a function whose
# name is what holds; `run` runs it and says how it went.
set -euo pipefail

work=$PWD/.cache/test-packages
dist=${RELEASE:-$work/dist} # the release that is tested
before=${BEFORE:-$work/before} # the one before, to upgrade from
password=s3cret
arch=$(dpkg --print-architecture)
mkdir -p "$work"

fail() {
	echo "    $*" >&2
	return 1
}

# run TEST... runs each in a shell of its own, where the first command that fails ends it.
run() {
	local test code
	for test in "$@"; do
		# Not as a condition: there, bash would go on after a command that fails.
		set +e
		(
			set -euo pipefail
			"$test"
		)
		code=$?
		set -e
		if [ $code -eq 0 ]; then
			echo "ok      ${test//_/ }"
			echo "$test" >>"$work/passed"
		else
			echo "FAILED  ${test//_/ }"
			echo "$test" >>"$work/failed"
			[ -z "${KEEP_GOING-}" ] || continue
			return 1
		fi
	done
}

# eventually COMMAND... tries until it succeeds, for a minute at most.
eventually() {
	local tries
	for tries in $(seq 300); do
		if "$@" >/dev/null 2>&1; then return 0; fi
		sleep 0.2
	done
	"$@" || fail "not within a minute, after $tries tries: $*"
}

want() { # WANT GOT ABOUT
	[ "$1" = "$2" ] || fail "$3: want \"$1\", got \"$2\""
}

free_port() {
	python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# cli COMMAND... asks the broker at $port.
cli() { redis-cli -h 127.0.0.1 -p "$port" -a "$password" --no-auth-warning -e "$@"; }

# fill N enqueues so many messages, on connections that wait for each reply.
fill() {
	cli FILA.QUEUE CREATE orders >/dev/null
	seq -f 'FILA.ENQUEUE orders "message %.0f" KEY acme' "$1" | cli >/dev/null
}

# in_queue FIELD is what FILA.QUEUE INFO has there.
in_queue() { cli FILA.QUEUE INFO orders | grep -A 1 "^$1\$" | tail -n 1; }

depth() { in_queue ready; }

# base makes a bare Debian 12, once.
base() {
	[ -e "$work/base/complete" ] && return
	rm -rf "$work/base"
	debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,adduser,init-system-helpers,man-db,curl bookworm "$work/base" >"$work/debootstrap.log" 2>&1 ||
		fail "debootstrap failed, see $work/debootstrap.log"
	touch "$work/base/complete"
}
