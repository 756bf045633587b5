#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every program answers a setting that this version lacks in the same way: an unavailable protocol with one warning, and
# it continues; a name that is no protocol with an error; variables without effect with one line that names them.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires curl

# warned NAME COUNT WORDS - $tmp/NAME.log has that many lines with the words
warned() {
	equal "lines about $3 in $1.log" "$(grep -cF -- "$3" "$tmp/$1.log" || :)" "$2"
}
# refused WORDS COMMAND... - the command fails, and says why
refused() {
	local words=$1
	shift
	fails timeout 20 "$@"
	grep -qF -- "$words" "$tmp/fails.out" || fail "no \"$words\" in: $(cat "$tmp/fails.out")"
}
names='MC_STORE_REPLICA_SCORING MOONCAKE_OFFLOAD_FSDIR MC_RETRY_CNT'
line='warn env: these variables are set and have no effect in this version:'
export MC_STORE_REPLICA_SCORING=1 MOONCAKE_OFFLOAD_FSDIR=x MC_RETRY_CNT=3
# names_all NAME - the log names all variables, in one line
names_all() {
	warned "$1" 1 "$line"
	local name
	for name in $names; do
		grep -F "$line" "$tmp/$1.log" | found -w "$name" || fail "$1.log does not name $name"
	done
}

start_master
names_all master
meta=
free_port meta
spawn metadata "$top_builddir/tools/mooncake_http_metadata_server" --host=127.0.0.1 --port="$meta"
started "$SPAWNED" metadata 20 connects "127.0.0.1:$meta"
names_all metadata

# start_client NAME FLAG...
start_client() {
	local http=
	free_port http
	spawn "$1" "$top_builddir/node/mooncake_client" --master_server_address="$MASTER" --host=127.0.0.1 --port=0 \
		--global_segment_size=32MiB --segment_kind=memfd --enable_http_server --http_port="$http" "${@:2}"
	started "$SPAWNED" "$1" 20 curl -sf "http://127.0.0.1:$http/health"
}
start_client client --protocol=ub
names_all client
warned client 1 '"ub" is not available, continuing with tcp'
# RDMA without a NIC
start_client without --protocol=rdma --device_names=nosuch0
warned without 1 'using tcp and shared memory'
# discovery overrides the names, and without it names are needed
MC_MS_AUTO_DISC=1 MC_MS_FILTERS=nosuch1 start_client discovered --protocol=rdma --device_names=nosuch0,mlx5_7
warned discovered 1 'the named ones are ignored names=nosuch0,mlx5_7 filter=nosuch1'
warned discovered 1 'using tcp and shared memory'
start_client named --protocol=rpc_only --global_segment_size=0
warned named 0 'is not available'
client=("$top_builddir/node/mooncake_client" --master_server_address="$MASTER" --host=127.0.0.1 --port=0)
refused 'MC_MS_AUTO_DISC=0 and no NIC is named' env MC_MS_AUTO_DISC=0 "${client[@]}" --protocol=rdma
refused 'unknown protocol "rmda", use tcp' "${client[@]}" --protocol=rmda
refused 'rpc_only contributes no memory: the segment' "${client[@]}" --protocol=rpc_only --global_segment_size=32MiB

# a mount: in the foreground, as a daemon without a log (on the caller's terminal), and with one
[ -r /dev/fuse ] && [ -w /dev/fuse ] || exit 0
requires_fuse
start_mcfs "$MASTER" "$tmp/front" --protocol=efa --global_segment_size=32MiB --segment_kind=memfd --port=0
names_all mcfs-front
warned mcfs-front 1 '"efa" is not available, continuing with tcp'
# daemon NAME FLAG... - mount as a daemon, with its output in $tmp/NAME.log
daemon() {
	mkdir "$tmp/$1"
	cleanup_fn unmount_any "$tmp/$1"
	timeout 30 "$top_builddir/mcfs/mcfs" "$MASTER" "$tmp/$1" --protocol=efa --global_segment_size=32MiB \
		--segment_kind=memfd --port=0 "${@:2}" >"$tmp/$1.log" 2>&1 || fail "mcfs: $(cat "$tmp/$1.log")"
	is_mounted "$tmp/$1" || fail "$1 is not mounted"
}
daemon silent
names_all silent
warned silent 1 '"efa" is not available, continuing with tcp'
mkdir "$tmp/logs"
daemon logging --log_dir="$tmp/logs"
equal "the terminal of a daemon with a log" "$(cat "$tmp/logging.log")" ""
cp "$tmp/logs/mcfs.INFO" "$tmp/written.log"
names_all written
warned written 1 '"efa" is not available, continuing with tcp'
