#!/usr/bin/env bash
# Shows with nothing but redis-cli how a noisy tenant and a quiet one share a
# worker, and what Fila says when one of them is held back:
#
#   examples/fairness/run.sh [port [host]]
#
# The broker must be running (make run). The queue it makes is removed at the end.
set -euo pipefail

port=${1:-5555}
host=${2:-127.0.0.1}
queue=example:fairness
throttle=example:tenant:noisy

# Before 7.0, redis-cli prints errors as it does replies, and has no -e.
options=(-h "$host" -p "$port")
if redis-cli -e --version >/dev/null 2>&1; then options+=(-e); fi
fila() { redis-cli "${options[@]}" "$@"; }

# clean removes what an earlier run may have left, and what this one has made.
clean() {
	fila FILA.QUEUE DELETE $queue FORCE
	fila FILA.THROTTLE DEL $throttle
} >/dev/null 2>&1

# enqueue TENANT FIRST LAST: over one connection, as a client library would.
enqueue() {
	for i in $(seq "$2" "$3"); do
		echo "FILA.ENQUEUE $queue \"$1 $i\" KEY $1 THROTTLE example:tenant:$1"
	done | fila >/dev/null
}

# work N: a worker asks N times for a message, shows and acks it. Without a terminal
# redis-cli prints one value a line: the receipt, then the payload.
work() {
	local got=() message
	for ((i = 0; i < $1; i++)); do
		mapfile -t message < <(fila FILA.LEASE $queue CONSUMER worker-1)
		if [ ${#message[@]} -lt 2 ]; then
			got+=("(nothing)")
			continue
		fi
		fila FILA.ACK $queue "${message[0]}" >/dev/null
		got+=("${message[1]}")
	done
	printf '  %s\n' "$(printf '%s, ' "${got[@]}" | sed 's/, $//')" | fold -s -w 96 | sed '2,$s/^/  /; s/ *$//'
}

clean || true
trap 'clean || true' EXIT
fila FILA.QUEUE CREATE $queue NODLQ >/dev/null

echo "noisy enqueues 1000 messages, then quiet enqueues 10. A worker gets:"
enqueue noisy 1 1000
enqueue quiet 1 10
work 24

echo "noisy may have one message in a thousand seconds from now on; quiet enqueues 3 more. The worker gets:"
fila FILA.THROTTLE SET $throttle RATE 0.001 >/dev/null
enqueue quiet 11 13
work 6

echo "Why does nothing of noisy move? FILA.EXPLAIN $queue KEY noisy:"
fila FILA.EXPLAIN $queue KEY noisy | sed -n 1,8p | paste -d ' ' - - | sed 's/^/  /'
