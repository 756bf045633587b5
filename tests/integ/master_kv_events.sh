#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# KV events over ZeroMQ, received by a subscriber made with libzmq and msgpack: keys that are put,
# removed, renamed and evicted, their tenant, and the effect of the options.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl jq python3
# Debian's packages belong to Debian's python, which need not be the first one in PATH.
python=''
for candidate in python3 /usr/bin/python3; do
	[ -n "$python" ] || ! "$candidate" -c 'import zmq, msgpack' 2>/dev/null || python=$candidate
done
[ -n "$python" ] || skip "python3-zmq and python3-msgpack are not there"
unless_sanitized "libzmq's threads are not instrumented"
mcctl=$top_builddir/tools/mcctl
master=$top_builddir/master/mooncake_master

fails timeout 20 "$master" --enable_kv_events
grep -q 'kv_events_bind_endpoint' "$tmp/fails.out"
kv_port='' curve=()
free_port kv_port

status() { curl -sf "http://$MASTER_HTTP/kv_events/status" | jq -c "$1"; }

# up [FLAG...] - start a master, an owner and a subscriber, and wait until the subscriber has
# received its first event
up() {
	start_master --enable_kv_events --kv_events_bind_endpoint="tcp://127.0.0.1:$kv_port" \
		--kv_events_backend_id=pool-7 "$@"
	mkfifo "$tmp/stays"
	exec 9<>"$tmp/stays"
	spawn owner bash -c "exec '$top_builddir/tests/fault/client_actor' $MASTER 20000 own 16 <'$tmp/stays'"
	owner=$SPAWNED
	wait_for 20 has_segment
	: >"$tmp/events"
	spawn subscriber "$python" "$top_srcdir/tests/integ/kv_subscriber.py" "tcp://127.0.0.1:$kv_port" \
		"${curve[@]}"
	subscriber=$SPAWNED
	wait_for 20 subscribed
}
has_segment() { [ -n "$(curl -sf "http://$MASTER_HTTP/get_all_segments")" ]; }
# A subscription becomes active after a moment; earlier events are lost.
subscribed() {
	"$mcctl" --master="$MASTER" put 1 /dev/null
	"$mcctl" --master="$MASTER" rm 1
	grep -q '"event_id"' "$tmp/subscriber.log"
}
down() {
	stop_pid "$MASTER_PID"
	kill_pid "$owner"
	kill_pid "$subscriber"
	rm "$tmp/stays"
}
# of KEY FILTER - the events of a key, one per line
of() { grep '^{' "$tmp/subscriber.log" | jq -c "select(.object_key==\"$1\")|$2"; }
told() { [ "$(of "$1" .event_type | tr -d '\n')" = "$2" ]; }

up --kv_events_model_name=m --kv_events_dp_rank=3
"$mcctl" --master="$MASTER" put 0xfedcba9876543210 "$0"
"$mcctl" --master="$MASTER" put 12345 "$0"
"$mcctl" --master="$MASTER" put 'no number' "$0"
"$mcctl" --master="$MASTER" mv 12345 67890
"$mcctl" --master="$MASTER" rm 67890
wait_for 10 told 67890 '"stored""removed"'
wait_for 10 told 12345 '"stored""removed"'
wait_for 10 told 'no number' '"stored"'
# compare as text: jq's numbers have 53 bits
grep -q '"seq_hashes": \[18364758544493064720\], "block_hashes": \[18364758544493064720\]' "$tmp/subscriber.log"
equal "hash of a decimal key" "$(of 12345 .seq_hashes | head -n 1)" '[12345]'
equal "no hash" "$(of 'no number' .seq_hashes)" '[]'
equal members "$(of 'no number' '[.type,.tenant_id,.backend_id,.group_id,.medium,.model_name,.dp_rank,.block_size,.base_block_idx,.parent_hash]')" \
	'["BlockStored","default","pool-7",null,"cpu","m",3,null,0,null]'
equal names "$(of 'no number' 'keys|join(",")')" \
	'"additional_salt,backend_id,base_block_idx,block_hashes,block_size,dp_rank,event_id,event_type,group_id,lora_name,medium,model_name,number,object_key,parent_block_hash,parent_hash,seq_hashes,tenant_id,timestamp,token_ids,type"'
now=$(date +%s%3N)
of 'no number' .timestamp | awk -v now="$now" '{ exit !($1 <= now && $1 > now - 60000) }'

# more evictions than one message holds: no event is lost, and they are in order
for i in $(seq 40); do
	head -c 1000000 /dev/urandom | "$mcctl" --master="$MASTER" put "$((1000 + i))" -
done
count_of() { [ "$(grep -c "\"event_type\": \"$1\"" "$tmp/subscriber.log")" -ge "$2" ]; }
wait_for 20 told 1040 '"stored"'
wait_for 20 told 1001 '"stored""removed"'
equal enabled "$(status .enabled)" true
published() { [ "$(status .published_events)" -ge "$(grep -c '^{' "$tmp/subscriber.log")" ]; }
published || fail "fewer events were counted than received"
equal dropped "$(status .dropped_events)" 0
equal "events out of order" "$(grep '^{' "$tmp/subscriber.log" | jq .event_id | sort -nc 2>&1)" ''
equal "messages out of order" "$(grep '^{' "$tmp/subscriber.log" | jq .number | sort -nc 2>&1)" ''
# the port is in use: one line of error, and no other effect
fails timeout 20 "$master" --enable_kv_events --kv_events_bind_endpoint="tcp://127.0.0.1:$kv_port" \
	--kv_events_backend_id=x --rpc_port=1 --metrics_host=127.0.0.1 --metrics_port=0
grep -q 'publish KV events at' "$tmp/fails.out"
down

# only keys that are hashes, and no legacy members
up --nokv_events_emit_object_key --nokv_events_emit_legacy_compat
"$mcctl" --master="$MASTER" put 'no number' "$0"
"$mcctl" --master="$MASTER" put 77 "$0"
heard() { grep '^{' "$tmp/subscriber.log" | jq -c 'select(.seq_hashes==[77])' | found .; }
wait_for 10 heard
equal skipped "$(status .skipped_unparsed_keys)" 1
equal names "$(grep '^{' "$tmp/subscriber.log" | jq -c 'select(.seq_hashes==[77])|keys|join(",")')" \
	'"additional_salt,backend_id,base_block_idx,block_size,dp_rank,event_id,event_type,group_id,lora_name,medium,model_name,number,parent_hash,seq_hashes,tenant_id,timestamp,token_ids"'
down

# CURVE: only a subscriber that has the master's public key, and whose own key is in the file, receives anything
key() { "$master" --kv_events_curve_keygen="$tmp/$1.key"; }
server=$(key server) router=$(key router) stranger=$(key stranger)
equal mode "$(stat -c %a "$tmp/server.key")" 600
fails key server
grep -q 'cannot create .*server.key' "$tmp/fails.out"
# both forms of a key
hex=$("$python" -c 'import sys; from zmq.utils import z85; print(z85.decode(sys.argv[1].encode()).hex())' "$router")
printf '# subscribers\n%s router\n' "$hex" >"$tmp/clients"
flags=(--kv_events_curve_secret_key_file="$tmp/server.key" --kv_events_curve_clients="$tmp/clients")
refused() {
	fails timeout 20 "$master" --enable_kv_events --kv_events_bind_endpoint="tcp://127.0.0.1:$kv_port" \
		--kv_events_backend_id=x "${@:2}"
	grep -q "$1" "$tmp/fails.out" || fail "no '$1' in $(cat "$tmp/fails.out")"
}
refused 'belong together' "${flags[0]}"
chmod 640 "$tmp/server.key"
refused 'only its owner can read' "${flags[@]}"
chmod 600 "$tmp/server.key"
chmod 666 "$tmp/clients"
refused 'only its owner can write' "${flags[@]}"
chmod 644 "$tmp/clients"
echo "${router%?}" >"$tmp/bad"
refused 'a line without a public key' "${flags[0]}" --kv_events_curve_clients="$tmp/bad"

curve=("$server" "$tmp/router.key")
listen() { spawn "$1" "$python" "$top_srcdir/tests/integ/kv_subscriber.py" "tcp://127.0.0.1:$kv_port" "${@:2}"; }
listen plain
listen stranger "$server" "$tmp/stranger.key"
listen misled "$stranger" "$tmp/router.key"
up "${flags[@]}"
wait_for 10 grep -q 'its key is not in the file peer=127.0.0.1' "$tmp/master.log"
grep -qF "public_key=$server" "$tmp/master.log" || fail 'no public key in the log'
"$mcctl" --master="$MASTER" put secret-1 "$0"
wait_for 10 told secret-1 '"stored"'
for name in plain stranger misled; do
	equal "$name" "$(cat "$tmp/$name.log")" ''
done
# the file may change while the master serves
echo "$stranger" >>"$tmp/clients"
listen late "$server" "$tmp/stranger.key"
admitted() { subscribed && grep -q '"event_id"' "$tmp/late.log"; }
wait_for 20 admitted
# with a file that cannot be read, all are refused
rm "$tmp/clients"
listen nobody "$server" "$tmp/router.key"
wait_for 10 grep -q 'refusing a subscriber: cannot read' "$tmp/master.log"
equal nobody "$(cat "$tmp/nobody.log")" ''
secret=$(sed -n 2p "$tmp/server.key")
grep -qF "$secret" "$tmp/master.log" && fail 'the secret key is in the log'
down
