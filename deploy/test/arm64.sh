#!/usr/bin/env bash
# Runs the binary for arm64 on a processor that qemu emulates: what it does, not how fast.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. deploy/test/lib.sh

port=$(free_port)
dir=$work/arm64
rm -rf "$dir"
mkdir -p "$dir"
tar -xzf "$dist"/fila_*_linux_arm64.tar.gz -C "$dir" --strip-components=1

start() {
	FILA_AUTH__PASSWORD=$password qemu-aarch64-static "$dir/bin/fila" serve --server.listen_addr "127.0.0.1:$port" --storage.path "$dir/data" >>"$dir/log" 2>&1 &
	pid=$!
	trap 'kill -9 $pid 2>/dev/null || true' EXIT
	eventually cli PING
}

it_serves_and_keeps_messages_when_it_is_killed() {
	start
	fill 200
	want 3 "$(cli FILA.LEASE orders COUNT 3 VISIBILITY 600000 | grep -c '^message ')" "leased messages"
	kill -9 "$pid"
	wait "$pid" || true
	start
	# A lease of the last moment may be gone: then its message is ready again.
	want 200 $(($(depth) + $(in_queue leased))) "messages after the kill"
	want "arm64" "$(qemu-aarch64-static "$dir/bin/fila" version | sed -n 's/^go .*\///p')" "architecture"
	kill "$pid"
	wait "$pid" || fail "it did not stop in order, see $dir/log"
}

run it_serves_and_keeps_messages_when_it_is_killed
