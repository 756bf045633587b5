#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# transfer_engine_bench, ours and upstream's, each between two processes of this host, in turn: the
# default path, and ours forced to TCP.  Upstream's runs with its connection pool and its maximum
# queue length.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/upstream.sh"
requires jq
UPSTREAM_PYTHON=''
upstream_python 0.3.13.post1
# the program itself: the script of that name starts it as a child, which would not get the signal
theirs=$("$UPSTREAM_PYTHON" -c 'import mooncake.engine as e, os; print(os.path.dirname(e.__file__))')/transfer_engine_bench
chmod +x "$theirs"
ours=$top_builddir/tools/transfer_engine_bench
export MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER=65535 MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER=65535
export MC_TCP_ENABLE_CONNECTION_POOL=1 MC_FORCE_TCP
base=(--metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1 --protocol=tcp)
size=268435456

# target PROGRAM FORCE_TCP - start a target; sets SEGMENT; its pid stays in SPAWNED
target() {
	MC_FORCE_TCP=$2
	rm -f "$tmp/target.log"
	spawn target "$1" "${base[@]}" --mode=target --buffer_size=$size
	started "$SPAWNED" target 60 grep -q 'listening on [^ ]*:[0-9]' "$tmp/target.log"
	SEGMENT=$(sed -n 's/.*listening on \([^ ]*:[0-9]*\).*/\1/p' "$tmp/target.log" | head -n 1)
	wait_for 20 connects "$SEGMENT"
}

# rate PROGRAM FORCE_TCP SEGMENT BLOCK BATCH OPERATION - print bytes per second with $threads
# threads, computed from the count, since the printed rate has only two decimals
rate() {
	MC_FORCE_TCP=$2 timeout 120 "$1" "${base[@]}" --segment_id="$3" --buffer_size=$size --block_size="$4" \
		--batch_size="$5" --operation="$6" --duration=2 --threads="$threads" >"$tmp/run.log" 2>&1 || :
	sed -n 's/.*duration \([0-9.]*\), batch count \([0-9]*\),.*/\1 \2/p' "$tmp/run.log" | tail -n 1 |
		awk -v bytes="$(($4 * $5))" '{ rate = $1 > 0 ? $2 * bytes / $1 : 0 } END { printf "%.0f\n", rate }'
}

row() {
	printf '%-46s %-12s %12.3f  %s\n' "$1" "$2" "$3" "$4"
}

SEGMENT=''
target "$theirs" 1
their_segment=$SEGMENT
target "$ours" 0
our_segment=$SEGMENT
for shape in "4096 1 1" "65536 1 1" "1048576 1 1" "4096 4096 2" "65536 128 2" "1048576 32 2" "16777216 4 2"; do
	read -r block batch threads <<<"$shape"
	for operation in read write; do
		what="$operation $((block / 1024)) KiB x $batch, $threads threads"
		for _ in 1 2 3; do
			t=$(rate "$theirs" 1 "$their_segment" "$block" "$batch" "$operation")
			h=$(rate "$ours" 0 "$our_segment" "$block" "$batch" "$operation")
			c=$(rate "$ours" 1 "$our_segment" "$block" "$batch" "$operation")
			echo "$t $h $c"
		done >"$tmp/rates"
		# print the median of each
		for i in 1 2 3; do
			cut -d ' ' -f $i "$tmp/rates" | sort -g | sed -n 2p
		done >"$tmp/medians"
		{ read -r t; read -r h; read -r c; } <"$tmp/medians"
		for pair in "upstream $t" "same-host $h" "tcp $c"; do
			row "bench $what" "${pair% *}" "$(jq -n "${pair#* } / 1e9")" GB/s
		done
		[ "$batch" != 1 ] || for pair in "upstream $t" "same-host $h" "tcp $c"; do
			row "bench $what" "${pair% *} mean" \
				"$(jq -n "if ${pair#* } > 0 then $block / ${pair#* } * 1e6 else 0 end")" us
		done
		row "bench $what" "x upstream" "$(jq -n "if $t > 0 then $h / $t else 0 end")" "same host"
		row "bench $what" "x upstream" "$(jq -n "if $t > 0 then $c / $t else 0 end")" "tcp"
	done
done
