# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# nemesis_tiers.sh - for nemesis.sh: owners with near memory, far memory and a file in one shared directory, and one of
# them with a disk between these.  The seed chooses how the master copies objects down.
# shellcheck disable=SC2154,SC2034  # variables of nemesis.sh

far=2097152 disk=4194304 shared=4194304
# Memory has few values in all modes.  Where values must stay, the last rank has room for all.
[ "$mode" = tiers ] || shared=134217728

# Points of an owner between the ranks.
tiers_points=(client.offload.write client.offload.before_report tiers.ssd.write tiers.ssd.read client.heartbeat.fence
	client.confirm.ask engine.copy.chunk client.put.write)

# tiers_master - add the options of the master to $cmd
tiers_master() {
	# A copy is a put: it must not time out because its medium is slow, or its owner is stopped.
	[ "$mode" = tiers ] || cmd+=(--put_start_discard_timeout_sec=30 --put_start_release_timeout_sec=60)
	cmd+=(--root_fs_dir=/shared --promotion_on_hit --promotion_admission_threshold=1 --promotion_max_per_heartbeat=8)
	case $((seed % 5)) in
	1) cmd+=(--offload_on_evict) ;;
	2) [ "$mode" = tiers-keep ] || cmd+=(--offload_force_evict) ;;
	3) cmd+=(--allocation_strategy=cxl) ;;
	4) cmd+=(--eviction_policy=lru) ;;
	esac
}

# tiers_owner NAME - add the media of an owner to $cmd
tiers_owner() {
	local on_disk=(--disk="$ssd/o2" --disk_size="$disk")
	[ "$1" = o2 ] || on_disk=()
	case $1 in
	d3) cmd+=(--far_segment_size="$far" --far_segment_numa_node=0 --root_fs_dir="$ssd/shared"
		--global_file_segment_size="$shared") ;;
	o?) cmd+=(--far="$far" --shared="$ssd/shared" --shared_size="$shared" --tiers "${on_disk[@]}") ;;
	c? | f?) cmd+=(--tiers) ;;
	esac
}

# tiers_faults NAME LIFE - print faults that a process always has: its media are as the files $tmp/medium.NAME.* say
tiers_faults() {
	local at=$tmp/medium.$1
	case $1 in
	o? | d3) echo "tiers.ssd.read=delay:1500?$at.slow,tiers.ssd.write=delay:1500?$at.slow,tiers.ssd.write=error:ENOSPC?$at.full,tiers.ssd.read=error:EIO?$at.eio,tiers.ssd.write=error:EIO?$at.eio" ;;
	# Each second life reads shared objects only through their owners.
	c2) [ $(($2 % 2)) -ne 0 ] || echo "client.shared.open=error:EACCES" ;;
	esac
}

# As plan_action.
tiers_action() {
	plan_action
	[ $((RANDOM % 100)) -lt 35 ] || return 0
	pick 300 700 1500 3000 6000
	duration=$picked
	pick o1 o2 d3
	target=$picked
	if [ "$mode" != tiers-keep ] && [ $((RANDOM % 2)) -eq 0 ]; then
		kind="trap"
		pick "${tiers_points[@]}"
		arg=$picked=stop@$((RANDOM % 40 + 1))
		return
	fi
	kind=medium arg=slow
	# After many failed copies, objects leave memory without one; the copy of an object that gives EIO is dropped.
	[ "$mode" != tiers ] || pick slow full eio
	[ "$mode" != tiers ] || arg=$picked
}

# tiers_complete - all ranks of all owners are in service
tiers_complete() {
	[ "$(NS=$ns metric "$MASTER_HTTP" mooncake_master_far_capacity_bytes)" -ge $((far * segments)) ] &&
		[ "$(NS=$ns metric "$MASTER_HTTP" master_total_file_capacity_bytes)" -ge $((shared * 9 / 10 * segments)) ]
}

# tiers_exercised - objects were read from each rank, and went to each and back.  Which ranks few ones come back from in
# a short run is chance: history.sh looks at the sums.
tiers_exercised() {
	local way line
	# slow, so that there may be too few calls
	[ -z "${SANITIZER-}" ] || return 0
	line=" $(tail -n 1 "$tmp/check.log") "
	for way in read_near read_far read_disk read_shared to_far to_disk to_shared from_; do
		# With cxl, nearly all values begin in far memory.
		[ $((seed % 5)) -ne 3 ] || [ "$way" != to_far ] || continue
		[[ ! $line =~ \ ${way}[a-z]*=[1-9] ]] || continue
		echo "not exercised: $way"
		failed=1
	done
}
