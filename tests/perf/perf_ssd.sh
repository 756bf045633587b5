#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The SSD tier and a shared directory beside fio on the same directory, block size and depth, in one run; the latency of
# puts with and without offload, alternating; the master's memory for each object on a disk.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/ssd.sh"
requires fio
requires jq
requires_memory 6000
DEPTH=32 BYTES=$((1 << 30))

row() {
	printf '%-46s %-12s %12.2f  %s\n' "$@"
}

# fio_rate read|write BLOCK - MB/s
fio_rate() {
	fio --name=x --filename="$ssd/fio" --rw="rand$1" --bs="$2" --iodepth=$DEPTH --ioengine=io_uring --direct=1 \
		--size=$BYTES --fallocate=none --end_fsync=0 --output-format=json | jq ".jobs[0].$1.bw_bytes / 1e6"
}

for block in 262144 1048576; do
	for ((i = 0; i < 3; i++)); do
		start_master --enable_offload --offload_on_evict --default_kv_lease_ttl=0 >/dev/null
		rm -f "$ssd"/*
		echo "fio_write $(fio_rate write $block)"
		echo "fio_read $(fio_rate read $block)"
		rm -f "$ssd"/*
		"$top_builddir/tests/perf/perf_ssd" "$MASTER" "$ssd" $block $((BYTES / block)) $DEPTH
		kill_pid "$MASTER_PID"
		rm -f "$ssd"/*
		start_master --enable_offload --offload_on_evict --default_kv_lease_ttl=0 >/dev/null
		"$top_builddir/tests/perf/perf_ssd" "$MASTER" "shared:$ssd" $block $((BYTES / block)) $DEPTH | sed 's/^/shared_/'
		kill_pid "$MASTER_PID"
		rm -rf "${ssd:?}"/*
	done >"$tmp/rates"
	# median NAME
	median() {
		grep "^$1 " "$tmp/rates" | cut -d ' ' -f 2 | sort -g | sed -n 2p
	}
	# rates_of TIER NAME FIO - beside the rate of fio
	rates_of() {
		row "$1, $((block / 1024)) KiB, depth $DEPTH" rate "$(median "$2")" MB/s
		row "$1, $((block / 1024)) KiB, depth $DEPTH" "x fio" \
			"$(jq -n "$(median "$2") / $(median "fio_$3")")" "fio $(median "fio_$3") MB/s"
	}
	for what in write read; do
		rates_of "ssd $what" $what $what
		rates_of "shared dir $what" shared_$what $what
	done
	rates_of "shared dir read elsewhere" shared_direct read
done

# Objects of 4 MiB on a plain and on an encrypted disk, alternating.
security=$tmp/security
"$top_builddir/master/mooncake_master" --init_security --security_dir="$security" >/dev/null
big() { # big NAME [FLAG...]
	local name=$1
	shift
	start_master --enable_offload --offload_on_evict --default_kv_lease_ttl=0 --journal_dir=none "$@" >/dev/null
	rm -f "$ssd"/*
	"$top_builddir/tests/perf/perf_ssd" "$MASTER" "$ssd" 4194304 256 8 | sed "s/^/${name}_/"
	kill_pid "$MASTER_PID"
}
for ((i = 0; i < 3; i++)); do
	big plain
	MC_CREDENTIAL=$security/admin.credential big encrypted --security=on --security_dir="$security"
done >"$tmp/rates"
for what in write read; do
	row "ssd $what, 4 MiB, encrypted" rate "$(median encrypted_$what)" MB/s
	row "ssd $what, 4 MiB, encrypted" "x plain" "$(jq -n "$(median encrypted_$what) / $(median plain_$what)")" \
		"plain $(median plain_$what) MB/s"
done
rm -f "$ssd"/*

# Puts as fast as possible, and one each ms.
for pause in 0 1000; do
	for ((i = 0; i < 5; i++)); do
		start_master --enable_offload --default_kv_lease_ttl=0 >/dev/null
		rm -f "$ssd"/*
		echo "on $("$top_builddir/tests/perf/perf_ssd" "$MASTER" "$ssd" 262144 3000 0 $pause)"
		kill_pid "$MASTER_PID"
		start_master --default_kv_lease_ttl=0 >/dev/null
		echo "off $("$top_builddir/tests/perf/perf_ssd" "$MASTER" "" 262144 3000 0 $pause)"
		kill_pid "$MASTER_PID"
	done >"$tmp/latency"
	for column in 3 4; do
		on=$(grep ^on "$tmp/latency" | cut -d ' ' -f $column | sort -g | sed -n 3p)
		off=$(grep ^off "$tmp/latency" | cut -d ' ' -f $column | sort -g | sed -n 3p)
		name=$([ $column = 3 ] && echo p50 || echo p99)
		row "ssd put 256 KiB, $pause us apart, with offload" "$name" "$on" us
		row "ssd put 256 KiB, $pause us apart, with offload" "x off" "$(jq -n "$on / $off")" "$name, off $off us"
	done
done

# The master's memory with many small objects, in memory and on the disk.
rss() {
	awk '/^VmRSS/ { print $2 * 1024 }' "/proc/$MASTER_PID/status"
}
N=20000
start_master --default_kv_lease_ttl=0 >/dev/null
before=$(rss)
"$top_builddir/tests/perf/perf_ssd" "$MASTER" "" 4096 $N 0 >/dev/null
memory=$(($(rss) - before))
kill_pid "$MASTER_PID"
start_master --enable_offload --offload_on_evict --default_kv_lease_ttl=0 >/dev/null
rm -f "$ssd"/*
before=$(rss)
"$top_builddir/tests/perf/perf_ssd" "$MASTER" "$ssd" 4096 $N $DEPTH >/dev/null
row "master, object of 4 KiB in memory" RSS "$(jq -n "$memory / $N")" B
row "master, the same on a disk" RSS "$(jq -n "$(($(rss) - before)) / $N")" B
