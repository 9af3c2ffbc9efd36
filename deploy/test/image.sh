#!/usr/bin/env bash
# Runs the image with podman and runc: read-only, without capabilities, as its own user. Where no
# systemd runs podman has no timer for health checks, so they are run by hand.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. deploy/test/lib.sh

port=$(free_port)
admin=$(free_port)
store=$work/podman
export TMPDIR=$work/tmp
mkdir -p "$TMPDIR"

pod() {
	podman --root "$store/graph" --runroot "$store/run" --storage-driver vfs --runtime runc --cgroup-manager cgroupfs --events-backend file "$@" 2> >(grep -v systemd >&2)
}

# contained ARGUMENT...: runs a container with no more files and processes than any system allows it. podman asks for a million.
contained() {
	pod run --read-only --cap-drop all --security-opt no-new-privileges --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 "$@"
}

# started NAME IMAGE [ARGUMENT]...
started() {
	local name=$1 image=$2
	shift 2
	contained -d --name "$name" \
		--network host -v fila-test:/data -e FILA_AUTH__PASSWORD=$password -e "FILA_SERVER__LISTEN_ADDR=127.0.0.1:$port" \
		-e "FILA_ADMIN__LISTEN_ADDR=127.0.0.1:$admin" -e "FILA_URL=fila://127.0.0.1:$port" "$image" "$@" >/dev/null
}

clean() {
	pod rm -fa >/dev/null 2>&1 || true
	pod rmi -fa >/dev/null 2>&1 || true
	pod volume rm -fa >/dev/null 2>&1 || true
	rm -rf "$store"
}

load() { pod load -qi "$1"/fila_*_image_"$arch".tar | sed -n 's/^Loaded image: \(docker.io.*\)/\1/p'; }

the_image_runs_read_only_as_a_user_of_its_own() {
	started one "$(load "$before")"
	eventually pod exec one /usr/bin/fila health --ready
	local pid
	pid=$(pod inspect -f '{{.State.Pid}}' one)
	want "65532 65532" "$(stat -c '%u %g' "/proc/$pid")" "user and group"
	want 0000000000000000 "$(sed -n 's/^CapEff:\t//p' "/proc/$pid/status")" "capabilities"
	want true "$(pod inspect -f '{{.HostConfig.ReadonlyRootfs}}' one)" "read-only"
	want running "$(curl -s "127.0.0.1:$admin/readyz")" "the admin listener"
	fill 1000
}

its_health_check_tells_alive_from_stuck() {
	local pid
	pid=$(pod inspect -f '{{.State.Pid}}' one)
	pod healthcheck run one || fail "a broker that serves is not healthy"
	kill -STOP "$pid"
	! pod healthcheck run one >/dev/null || fail "a broker that is stopped is healthy"
	kill -CONT "$pid"
	eventually pod healthcheck run one
}

messages_survive_a_kill_of_the_container() {
	pod kill one >/dev/null
	eventually stopped one
	pod start one >/dev/null
	eventually pod exec one /usr/bin/fila health --ready
	want 1000 "$(depth)" "messages after the kill"
}

stopped() { [ "$(pod inspect -f '{{.State.Running}}' "$1")" = false ]; }

it_stops_in_order() {
	pod stop -t 30 one >/dev/null
	want 0 "$(pod inspect -f '{{.State.ExitCode}}' one)" "exit code"
	pod logs one 2>&1 | grep >/dev/null '"stopped"' || fail "its log does not say that it has stopped"
}

a_newer_image_goes_on_with_the_volume() {
	pod rm one >/dev/null
	started two "$(load "$dist")"
	eventually pod exec two /usr/bin/fila health --ready
	want 1000 "$(depth)" "messages in the newer image"
	want "fila 0.1.0" "$(pod exec two /usr/bin/fila version | head -n 1)" "version"
	cli BGSAVE >/dev/null
	eventually backed_up
	pod stop -t 30 two >/dev/null
}

the_gateway_of_sqs_serves_a_queue() {
	local at answer
	at=$(free_port)
	started three "$(load "$dist")"
	eventually pod exec three /usr/bin/fila health --ready
	contained -d --name gateway --network host --no-healthcheck --entrypoint /usr/bin/fila-sqs \
		-e "FILA_URL=redis://:$password@127.0.0.1:$port" -e "FILA_SQS_LISTEN_ADDR=127.0.0.1:$at" "$(load "$dist")" >/dev/null
	sqs() { curl -sf -H 'Content-Type: application/x-amz-json-1.0' -H "X-Amz-Target: AmazonSQS.$1" -d "$2" "127.0.0.1:$at/"; }
	eventually sqs CreateQueue '{"QueueName":"texts"}'
	sqs SendMessage "{\"QueueUrl\":\"http://127.0.0.1:$at/000000000000/texts\",\"MessageBody\":\"hello\"}" >/dev/null
	answer=$(sqs ReceiveMessage "{\"QueueUrl\":\"http://127.0.0.1:$at/000000000000/texts\"}")
	grep -q '"Body":"hello"' <<<"$answer" || fail "it answers $answer"
	pod rm -f gateway three >/dev/null
}

the_list_of_components_has_all_programs() {
	local part list=("$dist"/fila_*_image_"$arch".cdx.json)
	for part in github.com/linxGnu/grocksdb@ github.com/jackc/pgx github.com/aws/smithy-go@ deb/debian/librocksdb-dev@; do
		grep -qi "pkg:$part\|pkg:golang/$part" "${list[0]}" || fail "${list[0]} has no $part"
	done
}

the_outbox_is_inside() {
	contained --rm --entrypoint /usr/bin/fila-outbox "$(load "$dist")" sql | grep -q 'CREATE OR REPLACE FUNCTION fila_enqueue' ||
		fail "fila-outbox prints no statements"
}

backed_up() { [ -n "$(ls "$store/graph/volumes/fila-test/_data/store-backups")" ]; }

without_a_password_it_refuses_an_open_address() {
	local said
	said=$(contained --rm --network host "$(load "$dist")" 2>&1) && fail "it starts"
	grep -q 'set auth.password (FILA_AUTH__PASSWORD)' <<<"$said" || fail "it says: $said"
}

certificates_and_user_are_inside() {
	local list
	list=$(tar -xOf "$dist"/fila_*_image_"$arch".tar --wildcards '*.tar' | tar -tf -)
	want "data/ etc/ etc/group etc/passwd etc/ssl/ etc/ssl/certs/ etc/ssl/certs/ca-certificates.crt usr/ usr/bin/ usr/bin/fila usr/bin/fila-outbox usr/bin/fila-sqs usr/share/ usr/share/doc/ usr/share/doc/fila/ usr/share/doc/fila/LICENSE" \
		"$(tr '\n' ' ' <<<"$list" | sed 's/ $//')" "files of the image"
}

trap clean EXIT
clean
run the_image_runs_read_only_as_a_user_of_its_own its_health_check_tells_alive_from_stuck messages_survive_a_kill_of_the_container it_stops_in_order \
	a_newer_image_goes_on_with_the_volume the_gateway_of_sqs_serves_a_queue the_outbox_is_inside the_list_of_components_has_all_programs without_a_password_it_refuses_an_open_address certificates_and_user_are_inside
