#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The REST service and its modules and settings.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
python_package
"$PYTHON" -c "import aiohttp" 2>/dev/null || skip "no aiohttp (apt-get install python3-aiohttp)"
start_master --default_kv_lease_ttl=2000
rest=
free_port rest
cat >"$tmp/conf.json" <<J
{"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "master_server_addr": "$MASTER",
 "global_segment_size": "64mb", "local_bufer_size": 5}
J
mkdir "$tmp/segments"
spawn service "$PYTHON" -m mooncake.mooncake_store_service --config "$tmp/conf.json" --port "$rest" -D bogus=1 \
	--segment_dir="$tmp/none" --segment_dir="$tmp/segments"
service=$SPAWNED
started "$service" service 20 connects "127.0.0.1:$rest"
grep -q 'unknown key "local_bufer_size" is ignored, did you mean "local_buffer_size"' "$tmp/service.log" ||
	fail "a mistyped setting is not reported"
grep -q 'the setting "bogus" is ignored' "$tmp/service.log" || fail "a wrong -D is not reported"
timeout 250 "$PYTHON" "$top_srcdir/tests/python/rest.py" "$rest" "$tmp/segments"
# the service has an answer for every request: its log has no unexpected exception
! grep -a -A20 "ERROR mooncake.service" "$tmp/service.log" || fail "a request caused an unexpected exception"
# an object that exists and cannot be read is not reported as a miss
fails "$PYTHON" - "$MASTER" <<-'P'
	import mooncake.store as ms, os, signal, sys
	s = ms.MooncakeDistributedStore()
	assert s.setup("127.0.0.1", "P2PHANDSHAKE", 1 << 24, 0, "tcp", "", sys.argv[1]) == 0
	assert s.put("of the dead", bytes(100000), ms.ReplicateConfig(preferred_segment=s.get_hostname())) == 0
	os.kill(os.getpid(), signal.SIGKILL)
P
equal "killed" "$(cat "$tmp/fails.out")" ""
equal "an object of a killed owner" "$(curl -s -o "$tmp/dead" -w '%{http_code}' "http://127.0.0.1:$rest/api/get/of%20the%20dead")" 500
grep -q error "$tmp/dead"
stop_pid "$service"
open_http=''
free_port open_http
# the flags of upstream's guide, without a file or variables
spawn flags env -u MOONCAKE_MASTER "$PYTHON" -m mooncake.mooncake_store_service --local_hostname=127.0.0.1 \
	--metadata_server=P2PHANDSHAKE --master_server="$MASTER" -D global_segment_size=32mb --port="$rest"
started "$SPAWNED" flags 20 connects "127.0.0.1:$rest"
equal "a key through the service of flags" "$(curl -s "http://127.0.0.1:$rest/api/exist/a")" '{"exists": false}'
stop_pid "$SPAWNED"
# other hosts reach it only with permission; the library of a program warns once, and not of a permission
open=(env -u MC_ALLOW_INSECURE "$PYTHON" -m mooncake.mooncake_store_service --local_hostname=127.0.0.1 --master_server="$MASTER"
	--metadata_server=P2PHANDSHAKE -D global_segment_size=32mb --port="$rest" -D enable_client_http_server=true
	-D client_http_port="$open_http")
fails timeout 60 "${open[@]}" --host=0.0.0.0
grep -q 'host=0.0.0.0: every host that reaches this address could.*--allow_insecure' "$tmp/fails.out"
for flags in --host=127.0.0.1 '--host=0.0.0.0 --allow_insecure'; do
	rm -f "$tmp/open.log"
	# shellcheck disable=SC2086  # words
	spawn open "${open[@]}" $flags
	started "$SPAWNED" open 20 connects "127.0.0.1:$rest"
	equal "warnings with $flags" "$(grep -c 'no security: every host' "$tmp/open.log")" 1
	stop_pid "$SPAWNED"
done

# the rest of this test depends on timing and on other programs
[ -z "${SANITIZER-}" ] || exit 0
# a service that starts before its master, limits bodies to one second, and loses its master
late='' late_http=''
free_port late
free_port late_http
late_service() {
	spawn late "$PYTHON" -c 'import mooncake.mooncake_store_service as m; m.READ_SECONDS = 1; m.sync_main()' \
		--config "$tmp/conf.json" --port "$late" -D enable_client_http_server=true -D client_http_port="$late_http"
	service=$SPAWNED
	wait_for 60 grep -q "$MASTER: connection refused" "$tmp/late.log"
}
kill_pid "$MASTER_PID"
late_service
restart_master
started "$service" late 60 connects "127.0.0.1:$late"
timeout 100 "$PYTHON" "$top_srcdir/tests/python/rest.py" "$late" --late "$MASTER_PID" "$late_http"
! grep -a -A20 "ERROR mooncake.service" "$tmp/late.log" || fail "a request caused an unexpected exception"
stop_pid "$service" 60
# a service that waits for a master ends when requested
rm "$tmp/late.log"
late_service
stop_pid "$service" 30

# configured by the environment, without a master: a clear error; a bare system resolves no name,
# not even localhost
export MOONCAKE_LOCAL_HOSTNAME=127.0.0.1
MOONCAKE_MASTER=127.0.0.1:1 fails timeout 60 "$PYTHON" -m mooncake.mooncake_store_service --port "$rest" --max-wait-time 0
grep -q "127.0.0.1:1: connection refused" "$tmp/fails.out" || fail "the cause is not reported: $(cat "$tmp/fails.out")"
fails timeout 60 "$PYTHON" -m mooncake.mooncake_store_service --port "$rest"
grep -q "Neither the environment variable MOONCAKE_CONFIG_PATH" "$tmp/fails.out"

# the metadata server, started as TorchSpec and SGLang do
export MOONCAKE_BIN_DIR=$top_builddir/tools:$top_builddir/master
meta=
free_port meta
spawn metadata "$PYTHON" -m mooncake.http_metadata_server --port "$meta" --host 127.0.0.1 --log-level warning
started "$SPAWNED" metadata 20 connects "127.0.0.1:$meta"
url="http://127.0.0.1:$meta/metadata?key=k"
equal "metadata that no engine stored" "$(curl -s -o "$tmp/none" -w '%{http_code}' "$url")" 404
curl -sf -X PUT -d '{"a": 1}' "$url" >"$tmp/put"
equal "metadata" "$(curl -sf "$url")" '{"a": 1}'
stop_pid "$SPAWNED"
# the console script executes the program
"$PYTHON" -c 'import sys; from mooncake.cli import main; sys.argv = ["/x/mooncake_master", "--help"]; main()' >"$tmp/help"
grep -q rpc_port "$tmp/help"
