#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Upstream's transfer_engine_bench against our target, and ours against upstream's; their output in
# all units, and their flags.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "${top_srcdir:?}/tests/lib/upstream.sh"
UPSTREAM_PYTHON=''
upstream_python 0.3.13.post1
# the program itself: the script of that name starts it as a child, which would not get the signal
theirs=$("$UPSTREAM_PYTHON" -c 'import mooncake.engine as e, os; print(os.path.dirname(e.__file__))')/transfer_engine_bench
chmod +x "$theirs"
ours=$top_builddir/tools/transfer_engine_bench
base=(--metadata_server=P2PHANDSHAKE --local_server_name=127.0.0.1 --protocol=tcp --buffer_size=33554432)
export MC_FORCE_TCP=1

# target PROGRAM - start a target; sets SEGMENT
target() {
	rm -f "$tmp/target.log"
	spawn target "$1" "${base[@]}" --mode=target
	started "$SPAWNED" target 60 grep -q 'listening on [^ ]*:[0-9]' "$tmp/target.log"
	SEGMENT=$(sed -n 's/.*listening on \([^ ]*:[0-9]*\).*/\1/p' "$tmp/target.log" | head -n 1)
	wait_for 20 connects "$SEGMENT"
}

# run PROGRAM OPERATION BLOCK [FLAG...]
run() {
	timeout 120 "$1" "${base[@]}" --segment_id="$SEGMENT" --operation="$2" --block_size="$3" --batch_size=16 \
		--duration=1 --threads=2 "${@:4}" >"$tmp/run.log" 2>&1 || fail "$1 $2 $3: $(tail -n 5 "$tmp/run.log")"
	grep -qE 'Test completed: duration [0-9.]+, batch count [1-9]' "$tmp/run.log" ||
		fail "$1 $2 $3: $(tail -n 5 "$tmp/run.log")"
}

SEGMENT=''
for pair in "$ours $theirs" "$theirs $ours"; do
	target "${pair% *}"
	for operation in read write; do
		run "${pair#* }" "$operation" 4096
		run "${pair#* }" "$operation" 1048576
	done
done

# adds_up - the throughput is the number of bytes divided by the time, in the given unit
adds_up() {
	sed -nE 's#.*duration ([0-9.]+), batch count ([0-9]+), throughput ([0-9.]+) ([A-Za-z]+)/s.*#\1 \2 \3 \4#p' \
		"$tmp/run.log" | awk '
		BEGIN { split("GB 1e9 GiB 1073741824 Gb 125e6 MB 1e6 MiB 1048576 Mb 125e3 KB 1e3 KiB 1024 Kb 125", u)
			for (i = 1; i in u; i += 2) size[u[i]] = u[i + 1] }
		{ places = index($3, ".") ? length($3) - index($3, ".") : 0
			want = $2 * 16 * 65536 / $1 / size[$4]; off = $3 - want; found = 1 }
		END { exit !(found && off * off <= (0.03 * want + 10 ^ -places) ^ 2) }' || fail "the numbers are not consistent: $(tail -n 3 "$tmp/run.log")"
}

# shape PROGRAM FLAG... - the result line with digits replaced: one n for the digits before the
# point, one n per decimal place
shape() {
	local program=$1
	shift
	run "$program" read 65536 "$@"
	adds_up
	sed -n 's/.*\(Test completed: .*\)/\1/p' "$tmp/run.log" | sed -E 's/[0-9]/n/g; s/(^|[^.n])n+/\1n/g'
}
for flags in '' --report_unit=GiB --report_unit=Gb '--report_unit=MB --report_precision=0' --report_unit=MiB \
	'--report_unit=Mb --report_precision=5' --report_unit=KB --report_unit=KiB --report_unit=Kb; do
	# shellcheck disable=SC2086
	want=$(shape "$theirs" $flags)
	grep -q '^Test completed: duration n.*throughput n' <<<"$want" || fail "upstream's line has changed: $want"
	# shellcheck disable=SC2086
	equal "the line with '$flags'" "$(shape "$ours" $flags)" "$want"
done

# Our program accepts every flag of upstream's program with upstream's default, and has the same
# default except for addresses and devices.
"$theirs" --help >"$tmp/help" 2>&1 || :
sed -n '/Flags from .*transfer_engine_bench.cpp/,/Flags from [^t]*gflags/p' "$tmp/help" | tr -s ' \n' '  ' |
	grep -oE ' -[a-z_]+ \([^()]*(\([^()]*\)[^()]*)*\) type: [a-z0-9]+ default: [^ ]*' |
	sed -E 's/^ -([a-z_]+) .* default: "?([^"]*)"?$/\1 \2/' >"$tmp/flags"
[ "$(wc -l <"$tmp/flags")" -ge 15 ] || fail "upstream's flags are not found: $(cat "$tmp/help")"
"$ours" --print_config >"$tmp/config" 2>&1 || fail "$(cat "$tmp/config")"
while read -r flag default; do
	grep -qE "^$flag *=" "$tmp/config" || fail "$flag is upstream's and not ours"
	case $flag in
	local_server_name | metadata_server | segment_id | device_name | protocol | auto_discovery) continue ;;
	esac
	"$ours" "-$flag=$default" --print_config >"$tmp/with" 2>&1 || fail "-$flag=$default: $(cat "$tmp/with")"
	value=$(sed -nE "s/^$flag *= *([^ ]*).*/\1/p" "$tmp/config")
	equal "$flag" "$(sed -nE "s/^$flag *= *([^ ]*).*/\1/p" "$tmp/with")" "$value"
done <"$tmp/flags"
