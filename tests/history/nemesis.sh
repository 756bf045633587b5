#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# nemesis.sh SEED [SECONDS] [MODE] - three nodes and a master under faults that SEED chooses; then hist_check reads
# the history of all calls.  Exit status 1: a violation, or a process that ended by itself.
#
#	cache	owners are killed too, and a pool of a few values is evicted and reused all the time
#	disk	as cache, and each owner has a disk of a few values, which is evicted as well
#	tiers	as cache, and below near memory are far memory, a disk and a shared directory of a few values each, whose media
#		fail, too (nemesis_tiers.sh); values must have been read from each rank, and gone to each and back
#	tiers-shared	as tiers, but the shared directory holds all values and does not fail: a value that has got there must stay
#	keep	the pool holds all values, with hard pins, and no owner is killed: nothing may be lost
#	tiers-keep	as tiers, but the shared directory holds all values, and no owner is killed: nothing may be lost
#	ha	as keep, with three masters and etcd or redis (nemesis_ha.sh); the faults hit these
#	secure-MODE	MODE with --security=on; credentials end and are replaced, too (nemesis_secure.sh)
#
# HIST_PLAN=FILE uses these actions instead of those of SEED; HIST_KEYS=N and HIST_PAUSE=US set the load; HIST_OUT=DIR is
# where the run is kept (plan, logs, histories); without it only a failed run is kept.  Each node is a network namespace
# on a bridge.  Without the right to make them all processes run on 127.0.0.1, and the actions on links are left out.
. "${top_srcdir:-.}/tests/lib/functions.sh"
bin=$top_builddir/tests/history

seed=${1:?usage: nemesis.sh SEED [SECONDS] [[secure-]cache|disk|tiers|tiers-shared|keep|tiers-keep|ha]} seconds=${2:-20}
whole_mode=${3:-cache} secure=no
mode=${whole_mode#secure-}
[ "$mode" = "$whole_mode" ] || secure=yes
out=${HIST_OUT:-$bin/failed.$seed} keys=24 hard=() longest=12000
case $mode in
cache | disk | tiers) segment=2mb bytes=2097152 size=1048576 ttl=2 rules=cache ;;
tiers-shared) segment=2mb bytes=2097152 size=524288 ttl=2 rules=shared ;;
tiers-keep) segment=2mb bytes=2097152 size=524288 ttl=60 rules=keep ;;
keep | ha) segment=64mb bytes=67108864 size=262144 ttl=60 rules=keep hard=(--hard) ;;
*) fail "unknown mode: $whole_mode" ;;
esac
# more values than memory holds
[[ $mode != tiers* ]] || keys=60
keys=${HIST_KEYS:-$keys}

[[ $mode != disk && $mode != tiers* ]] || . "$top_srcdir/tests/lib/ssd.sh"
[[ $mode != tiers* ]] || . "$top_srcdir/tests/history/nemesis_tiers.sh"
[ "$mode" != ha ] || . "$top_srcdir/tests/history/nemesis_ha.sh"
[ "$secure" = no ] || . "$top_srcdir/tests/history/nemesis_secure.sh"

# ---- the plan: lines "MS KIND TARGET ARGUMENT DURATION_MS" ------------------------------------------

pick() {
	shift $((RANDOM % $#))
	picked=$1
}

# Points of a client in which it has promised or done half of something.
points=(client.put.before_end client.put.after_end client.get.after_query client.get.before_read client.get.after_read
	client.object.after_open client.object.looked client.send engine.tcp.recv)
write_points=(client.put.granted client.put.write engine.copy.chunk engine.tcp.send)
master_points=(journal.write journal.written rpc.reply rpc.serve)

# plan_action - one action, without its time: kind, target, argument, duration
plan_action() {
	local owners=(o1 o2 d3) clients=(c1 c2 f3 c3) victims
	victims=("${clients[@]}" m)
	[ "$rules" = keep ] || victims+=("${owners[@]}")
	arg=- dice=$((RANDOM % 100))
	pick 100 300 700 1500 3000 "$longest"
	duration=$picked
	if [ "$dice" -lt 50 ]; then
		kind="trap"
		pick c1 c2 c1 c2 c1 c2 c1 c2 m "${victims[@]: -1}"
		target=$picked
		pick "${points[@]}"
		# most stops before or in the middle of writing bytes
		[ $((RANDOM % 3)) -eq 0 ] || pick "${write_points[@]}"
		[ "$target" != m ] || pick "${master_points[@]}"
		arg=$picked=stop@$((RANDOM % 60 + 1))
		pick 700 4000 4500 4500 5000
		duration=$picked
	elif [ "$dice" -lt 64 ]; then
		kind=stop
		pick "${owners[@]}" "${clients[@]}" m
		target=$picked
	elif [ "$dice" -lt 78 ]; then
		kind="kill"
		pick "${victims[@]}"
		target=$picked
	elif [ "$dice" -lt 84 ]; then
		kind="cut"
		pick n1 n2 n3
		target=$picked
	elif [ "$dice" -lt 92 ]; then
		kind=drop
		pick n1:m n2:m n3:m m:n1 m:n2 n1:n2 n2:n3 n3:n1
		target=$picked
	elif [ "$dice" -lt 97 ] || [ "$rules" != cache ]; then
		kind=netem
		pick n1 n2 n3
		target=$picked
		pick "delay 20ms 10ms" "loss 5%" "delay 5ms reorder 30%" "duplicate 5%" "corrupt 1%"
		arg=${picked// /,}
	else
		kind=fill target=m
	fi
}

plan() {
	local at=700 end=$((seconds * 1000 - 2500)) kind target arg duration dice picked alone='' other
	local -A busy
	RANDOM=$((seed % 32768))
	while [ "$at" -lt "$end" ]; do
		case $mode in
		ha) ha_action ;;
		tiers*) tiers_action ;;
		*) plan_action ;;
		esac
		[ "$secure" = no ] || secure_action
		if [ -n "$alone" ]; then
			# no other action from a while before its beginning to a while after its end
			for other in "${busy[@]}"; do [ "$at" -ge "$other" ] || at=$other; done
			at=$((at + 5000))
			[ $((at + duration)) -lt "$end" ] || break
			echo "$at $kind $target $arg $duration"
			at=$((at + duration + 6000))
			continue
		fi
		[ $((at + duration)) -le "$end" ] || duration=$((end - at + 100))
		if [ "${busy[$target]:-0}" -le "$at" ]; then
			echo "$at $kind $target $arg $duration"
			# a trap waits for a while until the point is reached
			busy[$target]=$((at + duration + 1600))
			# one third of the actions meet another one
			[ $((RANDOM % 3)) -eq 0 ] || at=$((at + 200 + RANDOM % 1400))
		fi
		at=$((at + 50))
	done
}

# ---- the nodes --------------------------------------------------------------------------------------

net=yes
[ "$(id -u)" -eq 0 ] && command -v nsenter ip >/dev/null && unshare -n ip link add type veth 2>/dev/null || net=no
[ "$net" = yes ] || echo "no right to create network namespaces: one host, and no actions on links"
fuse=yes
[ -w /dev/fuse ] && [ "$(id -u)" -eq 0 ] && may_mount || fuse=no
[ "$fuse" = yes ] || echo "no right to mount: no files"

nodes=(n1 n2 n3)
[ "$mode" != ha ] || nodes+=(m1 m2 m3)

make_net() {
	local n at
	[ "$secure" = yes ] || export MC_ALLOW_INSECURE=1
	for n in m "${nodes[@]}"; do
		ip netns add "mch-$$-$n"
		cleanup_fn ip netns del "mch-$$-$n"
		in_ns "mch-$$-$n" ip link set lo up
	done
	in_ns "mch-$$-m" ip link add switch type bridge
	in_ns "mch-$$-m" ip addr add 10.79.0.254/24 dev switch
	in_ns "mch-$$-m" ip link set switch up
	for n in "${nodes[@]}"; do
		at=10.79.0.${n#n}
		[ "${n#m}" = "$n" ] || at=10.79.0.1${n#m}
		in_ns "mch-$$-m" ip link add "$n" type veth peer name eth netns "mch-$$-$n"
		in_ns "mch-$$-m" ip link set "$n" master switch up
		in_ns "mch-$$-$n" ip addr add "$at/24" dev eth
		in_ns "mch-$$-$n" ip link set eth up
	done
}

# place NAME - set $ns and $host of a node or of a process, whose name ends in the node's number, and the address $admin
# of a master's HTTP server, which needs a certificate beyond the loopback in a secure pool
place() {
	place_host "$1"
	admin=$host
	[ "$secure" = no ] || admin=127.0.0.1
}

place_host() {
	ns='' host=127.0.0.1
	[ "$net" = yes ] || return 0
	case $1 in
	m | e?) ns=mch-$$-m host=10.79.0.254 ;;
	m?) ns=mch-$$-$1 host=10.79.0.1${1#m} ;;
	*) ns=mch-$$-n${1:1} host=10.79.0.${1:1} ;;
	esac
}

# command_of NAME LIFE - set $cmd
command_of() {
	local number masters=$MASTER
	case $1 in o1) number=1 ;; o2) number=2 ;; c1) number=3 ;; c2) number=4 ;; c3) number=5 ;; f3) number=6 ;; *) number=7 ;; esac
	# some clients of several masters ask their store for the leader
	[ "$mode" != ha ] || [ $((number % 2)) -eq 0 ] || masters=$STORE_URL
	cmd=("$bin/hist_actor" --log="$tmp/hist/$1.$2" --master="$masters" --hostname="$host" --keys="$keys" --size="$size"
		--pause="${HIST_PAUSE:-1000}" --writer=$((number * 10000 + $2)) "${hard[@]}")
	case $1 in
	m) cmd=("$top_builddir/master/mooncake_master" --rpc_address="$host" --rpc_port="${MASTER##*:}"
		--metrics_host="$admin" --metrics_port="${MASTER_HTTP##*:}" --journal_dir="$tmp/journal" --client_ttl="$ttl"
		--put_start_discard_timeout_sec=1 --put_start_release_timeout_sec=2 --default_kv_lease_ttl=500
		--journal_checkpoint_size=1mb)
		[ "$mode" != disk ] || cmd+=(--enable_offload --promotion_on_hit --promotion_admission_threshold=1)
		[[ $mode != tiers* ]] || tiers_master ;;
	m? | e?) ha_command "$1" ;;
	d3) cmd=("$top_builddir/mcfs/mcfs" -f --lazy "$masters" "$tmp/mnt" --host="$host" --global_segment_size="$segment"
		--socket="$tmp/d3.sock" --port=0 --timeout=3s --staging_max=64mb --hot_cache_size=8mb)
		[ "$mode" != disk ] || cmd+=(--enable_offload --ssd_offload_path="$ssd/d3" --ssd_offload_size=16mb) ;;
	o?)
		cmd+=(--segment="$bytes" --threads=2)
		[ "$mode" != disk ] || cmd+=(--disk="$ssd/$1" --disk_size=8388608)
		;;
	c2)
		cmd+=(--threads=3)
		[ $(($2 % 2)) -eq 0 ] || cmd+=(--tcp)
		;;
	c3) cmd+=(--threads=2)
		[ "$fuse" = no ] || cmd+=(--daemon="unix:$tmp/d3.sock") ;;
	f3) cmd+=(--threads=2 --dir="$tmp/mnt") ;;
	*) cmd+=(--threads=3) ;;
	esac
	[[ $mode != tiers* ]] || tiers_owner "$1"
	[[ $secure = no || $1 != m && $1 != m? ]] || secure_master
}

# launch NAME [FAULTS] - start a process, which replaces a killed one
launch() {
	local faults=${2-} life ns host admin cmd pre=()
	life=$(($(cat "$tmp/life.$1" 2>/dev/null || echo 0) + 1))
	echo "$life" >"$tmp/life.$1"
	place "$1"
	command_of "$1" "$life"
	[ -z "$ns" ] || pre=(nsenter --net="/run/netns/$ns")
	[[ $secure = no || $1 = [em]* ]] || mapfile -t -O "${#pre[@]}" pre < <(echo env; secure_environment "$1")
	[ "$1" != d3 ] || umount -l "$tmp/mnt" 2>/dev/null || :
	# a process that shall stop while it writes writes much
	[[ $1 != [oc]? || " ${write_points[*]} " != *" ${faults%%=*} "* ]] || cmd+=(--writes)
	[[ $mode != tiers* ]] || faults+=${faults:+,}$(tiers_faults "$1" "$life")
	MC_FAULTS=${faults%,} "${pre[@]}" "${cmd[@]}" >>"$tmp/$1.log" 2>&1 </dev/null &
	echo $! >"$tmp/pid.$1"
	disown
}

# end_now NAME - kill -9; its successor finds no lock, port or socket of it
end_now() {
	local pid
	pid=$(pid_of "$1")
	kill -KILL "$pid" 2>/dev/null || ended_by_itself "$1"
	wait_for 10 gone "$pid" || :
}

ended_by_itself() {
	echo "VIOLATION: $1 ended by itself: $(tail -n 3 "$tmp/$1.log")" | tee -a "$tmp/violations"
}

pid_of() {
	cat "$tmp/pid.$1"
}

# ---- the actions ------------------------------------------------------------------------------------

pause() {
	sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"
}

since_begin() {
	echo $(((${EPOCHREALTIME/./} - begun) / 1000))
}

say() {
	printf '%7d ms %s\n' "$(since_begin)" "$*" >>"$tmp/actions.log"
}

# halted PID - it stands at a fault point, or another action has killed it
halted() {
	gone "$1" || grep -q '^State:.*T' "/proc/$1/status"
}

# act KIND TARGET ARGUMENT DURATION_MS - do it and undo it
act() {
	local kind=$1 target=$2 arg=$3 duration=$4 ns host admin pid
	if [ "$mode" = ha ]; then
		ha_aim
		# the leader may be the target of another action already
		mkdir "$tmp/busy.$target" 2>/dev/null || return 0
	fi
	say "$kind $target $arg $duration"
	case $kind in
	kill)
		end_now "$target"
		pause "$duration"
		launch "$target"
		;;
	stop)
		pid=$(pid_of "$target")
		kill -STOP "$pid" 2>/dev/null || :
		pause "$duration"
		kill -CONT "$pid" 2>/dev/null || say "$target has ended"
		;;
	trap)
		end_now "$target"
		launch "$target" "$arg"
		pid=$(pid_of "$target")
		wait_for $((seconds - $(since_begin) / 1000)) halted "$pid" >/dev/null || :
		say "$target stands at $arg"
		pause "$duration"
		kill -CONT "$pid" 2>/dev/null || say "$target has ended"
		;;
	cut | drop | netem) [ "$net" = no ] || act_link "$kind" "$target" "$arg" "$duration" ;;
	stopstore | failover) ha_act ;;
	renew | revoke | rotate) secure_act ;;
	medium)
		: >"$tmp/medium.$target.$arg"
		pause "$duration"
		rm "$tmp/medium.$target.$arg"
		;;
	fill)
		[ "$mode" != ha ] || ha_act
		[ ! -e "$tmp/journal.tmpfs" ] || {
			dd if=/dev/zero of="$tmp/journal/fill" bs=64k 2>/dev/null || :
			pause "$duration"
			rm -f "$tmp/journal/fill"
		}
		;;
	esac
	say "end of $kind $target"
	[ "$mode" != ha ] || rmdir "$tmp/busy.$target"
}

act_link() {
	local kind=$1 target=$2 arg=${3//,/ } duration=$4 ns host to
	case $kind in
	cut)
		in_ns "mch-$$-m" ip link set "$target" down
		pause "$duration"
		in_ns "mch-$$-m" ip link set "$target" up
		;;
	drop)
		# the frames of one direction have a wrong destination
		place "${target#*:}"
		to=$host
		place "${target%:*}"
		local dev=eth
		[ "${target%:*}" != m ] || dev=switch
		in_ns "$ns" ip neigh replace "$to" lladdr 02:00:00:00:00:01 nud permanent dev "$dev"
		pause "$duration"
		in_ns "$ns" ip neigh del "$to" dev "$dev"
		;;
	netem)
		# shellcheck disable=SC2086  # several arguments; not every kernel has netem
		in_ns "mch-$$-m" tc qdisc add dev "$target" root netem $arg 2>/dev/null || return 0
		pause "$duration"
		in_ns "mch-$$-m" tc qdisc del dev "$target" root
		;;
	esac
}

# ---- a run --------------------------------------------------------------------------------------------

names=(m o1 o2 d3 c1 c2 f3 c3)
[ "$fuse" = yes ] || names=(m o1 o2 c1 c2 c3)
[ "$mode" != ha ] || names=("${stores[@]}" m1 m2 m3 "${names[@]:1}")

end_all() {
	local name
	for name in "${names[@]}"; do
		# the store does not know the signal that ends calls
		[ "$1" = TERM ] || [[ $name != e? ]] || continue
		[ ! -e "$tmp/pid.$name" ] || kill -CONT "$(pid_of "$name")" 2>/dev/null || :
		[ ! -e "$tmp/pid.$name" ] || kill -"$1" "$(pid_of "$name")" 2>/dev/null || :
	done
	for name in "${names[@]}"; do
		[ "$1" != TERM ] || [ ! -e "$tmp/pid.$name" ] || end_pid "$(pid_of "$name")"
	done
}

pool_complete() {
	[ "$mode" != ha ] || ha_leader || return 1
	[ "$(NS=$ns metric "$MASTER_HTTP" master_total_capacity_bytes)" -ge $((bytes * segments)) ] &&
		{ [[ $mode != tiers* ]] || tiers_complete; }
}

set_up() {
	local name rpc http
	mkdir "$tmp/hist" "$tmp/journal" "$tmp/mnt"
	[[ $mode != disk && $mode != tiers* ]] || mkdir "$ssd/o1" "$ssd/o2" "$ssd/d3" "$ssd/shared"
	[ "$net" = no ] || make_net
	free_port rpc
	free_port http
	place m
	MASTER=$host:$rpc MASTER_HTTP=$admin:$http
	[ "$secure" = no ] || secure_start
	[ "$mode" != ha ] || {
		ha_addresses
		for name in m1 m2 m3; do ha_disk "$name"; done
		name=(/usr/lib/*/faketime/libfaketimeMT.so.1)
		# identities expire, so a secure pool needs clocks that agree
		[ "$secure" = yes ] || [ ! -e "${name[0]}" ] || echo "${name[0]}" >"$tmp/faketime"
	}
	if [ "$(id -u)" -eq 0 ] && mount -t tmpfs -o size=16m none "$tmp/journal" 2>/dev/null; then
		cleanup_fn umount -l "$tmp/journal"
		: >"$tmp/journal.tmpfs"
	fi
	cleanup_fn unmount_any "$tmp/mnt"
	cleanup_fn end_all TERM
	for name in "${names[@]}"; do
		launch "$name"
		[ "$name" != m ] || wait_for 20 master_up || fail "the master does not start"
		[[ $secure = no || $name != m3 && $name != m ]] || secure_credentials || fail "no credentials"
		[ "$name" != m3 ] || wait_for 40 ha_in_sync 2 || fail "the masters do not start"
		[ "$name" != d3 ] || wait_for 20 is_mounted "$tmp/mnt" || fail "mcfs does not mount"
	done
	segments=2
	[ "$fuse" = no ] || segments=3
	wait_for 20 pool_complete || fail "the pool is not complete"
}

master_up() {
	NS=$ns master_serves "$MASTER_HTTP"
}

# The actions, each at its time and in a process of its own.
run_plan() {
	local at kind target arg duration now acts=() waker=
	if [ "$mode" = ha ]; then
		ha_wake &
		waker=$!
	fi
	while read -r at kind target arg duration; do
		[[ " ${names[*]} n1 n2 n3 leader store pool " == *" $target "* || $target == *:* ]] || continue
		now=$(since_begin)
		[ "$at" -le "$now" ] || pause $((at - now))
		act "$kind" "$target" "$arg" "$duration" </dev/null &
		acts+=($!)
	done <"$tmp/plan"
	[ "${#acts[@]}" -eq 0 ] || wait "${acts[@]}" || :
	[ -z "$waker" ] || kill "$waker"
	now=$(since_begin)
	[ $((seconds * 1000)) -le "$now" ] || pause $((seconds * 1000 - now))
}

# Every process must have survived, except those that the nemesis killed and started again.
check_alive() {
	local name
	for name in "${names[@]}"; do
		alive "$(pid_of "$name")" || ended_by_itself "$name"
	done
}

# In a build with sanitizers: some reports end no process, and those at the end of one come after check_alive.
check_reports() {
	local log
	for log in "$tmp"/*.log; do
		grep -E -q 'Sanitizer|runtime error:' "$log" || continue
		echo "VIOLATION: report in $(basename "$log"): $(grep -E -m 1 'SUMMARY|runtime error:' "$log")" >>"$tmp/violations"
	done
}

keep_evidence() {
	rm -rf "$out"
	mkdir -p "$out"
	cp "$tmp/plan" "$tmp"/*.log "$out"
	cp --sparse=always -r "$tmp/hist" "$out"
	cat "$tmp/actions.log"
	echo "kept in $out; again with: HIST_PLAN=$out/plan HIST_KEYS=$keys $0 $seed $seconds $whole_mode"
}

failed=0
: >"$tmp/actions.log"
begun=${EPOCHREALTIME/./}
if [ -n "${HIST_PLAN-}" ]; then
	cp "$HIST_PLAN" "$tmp/plan"
else
	plan >"$tmp/plan"
fi
set_up
begun=${EPOCHREALTIME/./}
run_plan
check_alive
place m
wait_for 40 pool_complete || { echo "VIOLATION: the pool does not come back"; failed=1; }
# since the master's last start
copies=
[[ $mode != disk && $mode != tiers* ]] || copies="copied_down=$(NS=$ns metric "$MASTER_HTTP" master_offload_completed_total) copied_up=$(NS=$ns metric \
	"$MASTER_HTTP" master_promotion_completed_total) "
end_all USR1
place n1
pre=() exercised=''
final=("$bin/hist_actor" --final --log="$tmp/hist/final.1" --master="$MASTER" --hostname="$host" --keys="$keys" --writer=99999)
[ "$secure" = no ] || mapfile -t pre < <(echo env; secure_environment final)
in_ns "$ns" timeout 60 "${pre[@]}" "${final[@]}" >>"$tmp/final.log" 2>&1 || { echo "the final reads failed"; failed=1; }
end_all TERM
check_reports
[ ! -s "$tmp/violations" ] || { cat "$tmp/violations"; failed=1; }
"$bin/hist_check" "$rules" "$tmp/hist"/* >"$tmp/check.log" || failed=1
[[ $mode != tiers* ]] || tiers_exercised
[ "$secure" = no ] || secure_exercised
[ "$failed" -eq 0 ] || cat "$tmp/check.log"
[ "$failed" -eq 0 ] && [ -z "${HIST_OUT-}" ] || keep_evidence
echo "seed=$seed mode=$whole_mode seconds=$seconds actions=$(grep -cv ' end of \| stands at \| has ended' "$tmp/actions.log" || :)" \
	"$(cut -d ' ' -f 2 "$tmp/plan" | sort | uniq -c | awk '{ printf "%s=%s ", $2, $1 }')$exercised$copies$(tail -n 1 "$tmp/check.log")"
exit "$failed"
