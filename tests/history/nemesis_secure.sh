# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# nemesis_secure.sh - for nemesis.sh: masters with --security=on.  Each owner has a credential of role node, each client
# one of role client, the final reader one of role reader; the seed chooses --encrypt.  More actions: a credential is
# replaced, revoked and later replaced, and the secret of the pool is rotated.
# shellcheck disable=SC2154,SC2034  # variables of nemesis.sh

# Encrypted files of a shared directory are served by their owner only, so their values are missed while it is down.
[ "$mode" != tiers-shared ] || rules=cache

# Rotations that are nearer to each other end credentials that no process has read yet.
rotate_every=8000

mcctl() {
	local ns host admin
	place m
	MC_CREDENTIAL=$tmp/cred/admin in_ns "$ns" timeout 20 "$top_builddir/tools/mcctl" --master="$MASTER" --timeout=3 "$@"
}

# secure_start - the secret of the pool; before any process is started
secure_start() {
	mkdir "$tmp/cred"
	"$top_builddir/master/mooncake_master" --init_security --security_dir="$tmp/security" >"$tmp/init.log" ||
		fail "no secret"
	cp "$tmp/security/admin.credential" "$tmp/cred/admin"
}

# secure_master - add the options of a master to $cmd
secure_master() {
	cmd+=(--security=on --security_dir="$tmp/security" --audit_log=off)
}

# secure_environment NAME - print the variables of a process
secure_environment() {
	local encrypt=(all control)
	# In every third run some processes ask for encryption of all bytes, which then holds for their connections.
	[ $((seed % 3)) -ne 2 ] || encrypt=("${encrypt[$((RANDOM % 2))]}")
	echo "MC_CREDENTIAL=$tmp/cred/$1"
	echo "MC_ENCRYPT=${encrypt[$((seed % ${#encrypt[@]}))]}"
}

# secure_number FILE - number of the pool's secret that made a credential; of the secret itself without FILE
secure_number() {
	[ $# -eq 1 ] || set -- "$tmp/security/secret"
	sed -n 's/^identity mc\([0-9]*\).*/\1/p; s/^secret \([0-9]*\) .*/\1/p' "$1" | head -n 1
}

# secure_serial NAME
secure_serial() {
	sed -n 's,^identity mc.*/\([0-9a-f]*\)/[0-9]*$,\1,p' "$tmp/cred/$1"
}

# secure_new NAME - replace the credential of a process with a new one of the newest secret
secure_new() {
	local role=client tenant=default new=$tmp/cred/.$1.$BASHPID
	case $1 in
	o? | d3) role=node ;;
	final) role=reader ;;
	admin) role=admin tenant='*' ;;
	esac
	rm -f "$new"
	mcctl credential create "$new" --role="$role" --name="$1" --tenant="$tenant" &&
		[ "$(secure_number "$new")" = "$(secure_number)" ] && mv "$new" "$tmp/cred/$1"
}

# secure_credentials - all of them; no master may answer for a while
secure_credentials() {
	local name
	for name in admin "${names[@]}" final; do
		[[ $name != [em] && $name != [em]? ]] || continue
		wait_for 60 secure_new "$name" || return 1
	done >>"$tmp/credentials.log" 2>&1
	mcctl credential token >"$tmp/token.new" && mv "$tmp/token.new" "$tmp/token"
}

# As plan_action: a quarter of the actions are about credentials.
secure_action() {
	[ $((RANDOM % 4)) -eq 0 ] || return 0
	arg=- alone=
	pick 300 700 1500 3000 6000
	duration=$picked
	pick o1 o2 d3 c1 c2 c3 c1 c2
	target=$picked
	pick renew revoke revoke rotate
	kind=$picked
	[ "$kind" != rotate ] || target=pool duration=$rotate_every
	# Values on disks only are lost when the owners of these disks are down during two rotations.
	[[ $mode != tiers* || $kind != rotate ]] || alone=yes
}

secure_act() {
	case $kind in
	renew) wait_for 30 secure_new "$target" >>"$tmp/credentials.log" 2>&1 || say "no new credential of $target" ;;
	revoke)
		wait_for 30 mcctl credential revoke "$(secure_serial "$target")" >>"$tmp/credentials.log" 2>&1 ||
			say "no revocation of $target"
		pause "$duration"
		wait_for 60 secure_new "$target" >>"$tmp/credentials.log" 2>&1 || say "no new credential of $target"
		;;
	rotate)
		mkdir "$tmp/rotating" 2>/dev/null || return 0
		"$top_builddir/master/mooncake_master" --rotate_security --security_dir="$tmp/security" >>"$tmp/credentials.log"
		secure_credentials || say "no new credentials"
		pause "$duration"
		rmdir "$tmp/rotating"
		;;
	esac
}

# As in functions.sh, with a token.
metric() {
	in_ns "${NS-}" curl -sf --max-time 5 -H "Authorization: Bearer $(cat "$tmp/token")" "http://$1/metrics" |
		metric_sum "$2" "${3-}"
}

# secure_exercised - objects were read and written with capabilities, and within hosts without
secure_exercised() {
	local path op sum line=''
	[ -z "${SANITIZER-}" ] || return 0
	for path in tcp:read tcp:write mapped:; do
		op=${path#*:}
		sum=$(cat "$tmp"/[oc]?.log | metric_sum mooncake_transfer_requests_total "path=\"${path%:*}\",op=\"$op")
		line+="${path%:*}${op:+_}$op=$sum "
		[ "$sum" -gt 0 ] || [ "$net" = no ] || { echo "not exercised: $path"; failed=1; }
	done
	[ "$(grep -c ' end of \(renew\|revoke\|rotate\)' "$tmp/actions.log")" -gt 0 ] ||
		{ echo "not exercised: credentials"; failed=1; }
	sum=$(secure_environment c1 | sed -n 's/MC_ENCRYPT=//p')
	[ $((seed % 3)) -ne 2 ] || sum=mixed
	exercised="encrypt=$sum secrets=$(secure_number) $line"
}
