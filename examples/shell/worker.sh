#!/usr/bin/env bash
# worker.sh: does jobs until SIGTERM or Ctrl-C, with redis-cli. A job is one line.
set -uo pipefail

block_ms=2000 # how long it may take to see that it is to stop
queue=${FILA_QUEUE:-jobs}
lease_ms=${FILA_LEASE_MS:-30000}
fila() { redis-cli -h "${FILA_HOST:-127.0.0.1}" -p "${FILA_PORT:-5555}" -e "$@"; }

# Extends a lease for as long as it is let.
keep() {
	while sleep "$((lease_ms / 3000)).$(printf %03d $((lease_ms / 3 % 1000)))"; do
		fila FILA.EXTEND "$queue" "$1" "$lease_ms" >/dev/null 2>&1 || return
	done
}

# Does a job, or says on its standard error what is wrong.
work() {
	case $1 in
	say\ *) echo "${1#say }" >&3 ;;
	sleep\ *) sleep "${1#sleep }" ;;
	*) echo "${1#* }" >&2 && return 1 ;;
	esac
}

exec 3>&1 # the worker's own output
stopping=
trap 'stopping=yes' TERM INT
while [ -z "$stopping" ]; do
	if ! message=$(fila FILA.LEASE "$queue" BLOCK "$block_ms" VISIBILITY "$lease_ms"); then
		[ -n "$stopping" ] || sleep 1 # the broker is away or has no such queue yet, as redis-cli has said
		continue
	fi
	[ -n "$message" ] || continue
	{ read -r receipt && read -r job; } <<<"$message"
	keep "$receipt" &
	error=$(work "$job" 2>&1)
	failed=$?
	kill $! && wait $! 2>/dev/null
	if [ "$failed" -eq 0 ]; then
		fila FILA.ACK "$queue" "$receipt" >/dev/null
	else
		fila FILA.NACK "$queue" "$receipt" ERROR "$error" >/dev/null
	fi
done
exit 0
