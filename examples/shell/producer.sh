#!/usr/bin/env bash
# producer.sh KEY JOB...: enqueues jobs for a tenant, with redis-cli.
set -euo pipefail

queue=${FILA_QUEUE:-jobs}
fila() { redis-cli -h "${FILA_HOST:-127.0.0.1}" -p "${FILA_PORT:-5555}" -e "$@"; } # -e: an error is exit code 1

fila FILA.QUEUE CREATE "$queue" IFNOTEXISTS >/dev/null
key=$1
shift
for job in "$@"; do
	fila FILA.ENQUEUE "$queue" "$job" KEY "$key" HEADER from shell
done
