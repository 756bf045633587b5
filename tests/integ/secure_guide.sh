#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The commands of README.md, section "A secure pool", make a pool of two nodes: mcctl, mounts and Python use it with a
# credential file alone, and a role, a tenant, a revocation and a rotation have their effect.
. "${top_srcdir:-.}/tests/lib/functions.sh"
. "$top_srcdir/tests/lib/python.sh"
requires curl ss
requires_fuse
rpc='' http=''
free_port rpc
free_port http
MASTER=127.0.0.1:$rpc dir=$tmp/security
cd "$tmp"
mkdir mnt1 mnt2 far

# ---- the words of the README are these functions here
mooncake_master() {
	case "$*" in
	*--security=on*) set -- "$@" --rpc_port="$rpc" --metrics_port="$http" --metrics_host=127.0.0.1 --client_ttl=2 \
		--logtostderr ;;
	esac
	exec "$top_builddir/master/mooncake_master" "$@" --security_dir="$dir"
}
up() { curl -sf --max-time 2 "http://127.0.0.1:$http/health" | found '"service_ready":true'; }
mcctl() { timeout 20 "$top_builddir/tools/mcctl" --master="$MASTER" "$@"; }
mcfs() { timeout 20 "$top_builddir/mcfs/mcfs" -o port=0,umount_timeout=1s "$@"; }
scp() { cp "$1" far; }
ssh() { (cd far && "${@:2}"); }
unmount_both() {
	umount -l "$tmp/mnt1" "$tmp/mnt2" 2>/dev/null || :
	processes_left | awk '/mcfs/ { print $1 }' | xargs -r kill 2>/dev/null || :
}
cleanup_fn end_pid_of_master
cleanup_fn unmount_both
end_pid_of_master() { end_pid "$(cat "$tmp/master.pid")"; }
# each command of the block, with this test's addresses and directories
block=$(awk '/^## A secure pool/ { on = 1 } on && /^```$/ { if (inside) exit; inside = 1; next } inside' \
	"$top_srcdir/README.md" |
	sed "s|10\.0\.0\.1:50051|$MASTER|g; s|10\.0\.0\.|127.0.0.|g; s|/etc/mooncake/security|$dir|g; s|64gb|64mb|g")
block=$(sed 's|/mnt/mooncake|'"$tmp"'/mnt1|; /ssh/s|mnt1|mnt2|' <<<"$block")
equal "commands of the README" "$(grep -c . <<<"$block")" 5
while IFS= read -r line; do
	case $line in
	mooncake_master*)
		(mooncake_master --init_security) >init.log
		: >master.log
		(mooncake_master --security=on) >>master.log 2>&1 &
		echo $! >master.pid
		[[ $line == "mooncake_master --init_security && mooncake_master --security=on & "* ]] ||
			fail "the first line of the README is not the one of this test: $line"
		wait_for 20 up || fail "no master"
		;;
	*) eval "$line" >>block.log 2>&1 || fail "$line: $(cat block.log)" ;;
	esac
done <<<"$block"
listens=$(ss -Hltn "sport = :$rpc" | awk '{ print $4 }')
equal "address of the master" "$listens" "0.0.0.0:$rpc"
! grep 'no security\|listening on 127' master.log || fail "a warning of a secure pool"

# ---- one pool, three ways to it
echo one >file
mcctl put a file
equal "mcctl's value in the second node's mount" "$(cat mnt2/a)" one
echo two >mnt2/b
equal "the second node's value in the first one's mount" "$(cat mnt1/b)" two
equal "a mount's value" "$(mcctl get b -)" two

# ---- a reader reads
mcctl credential create reader --role=reader --name=r >out
equal "a reader" "$(MC_CREDENTIAL=reader mcctl get a -)" one
for words in 'put c file' 'rm a' 'credential list'; do
	# shellcheck disable=SC2086  # words
	MC_CREDENTIAL=reader fails mcctl $words
	grep -qi 'permission denied\|not allow\|role' fails.out || fail "a reader's $words: $(cat fails.out)"
done

# ---- wrong credentials: one line each, at once
refused() { # WORDS COMMAND...
	local began=${EPOCHREALTIME/./}
	fails timeout 20 "${@:2}"
	grep -q -- "$1" fails.out || fail "${*:2}: $(cat fails.out)"
	[ $((${EPOCHREALTIME/./} - began)) -lt 4000000 ] || fail "${*:2} waited before it ended"
}
mcctl credential create late --role=node --name=late --ttl=1s >out
mcctl credential create late2 --role=node --tenant=alice --name=late2 >out
"$top_builddir/master/mooncake_master" --init_security --security_dir="$tmp/other" >out
cp reader open
chmod 644 open
echo rubbish >rubbish
chmod 600 rubbish
expired() { [ "$(date +%s)" -ge "$(awk -F/ '$1 ~ /identity/ { print $NF }' late)" ]; }
wait_for 5 expired
for one in 'none:cannot read .*/none: no such file' 'open:chmod 600' 'rubbish:a line is not' 'late:has expired' \
	'other/admin.credential:refused the credential'; do
	cred=${one%%:*} why=${one#*:}
	refused "$why" "$top_builddir/tools/mcctl" --master="$MASTER" --credential="$cred" df
	[ "$cred" = none ] || [ "$cred" = other/admin.credential ] || continue
	refused "$why" "$top_builddir/tools/mcbench" --master="$MASTER" --credential="$cred" bench
	refused "$why" "$top_builddir/node/mooncake_client" --credential="$cred" --host=127.0.0.1 --port=0 \
		--master_server_address="$MASTER" --logtostderr
	refused "$why" "$top_builddir/mcfs/mcfs" -o "credential=$cred" "$MASTER" "$tmp/far"
done
MC_CREDENTIAL='' refused 'asks for a credential.*MC_CREDENTIAL' "$top_builddir/tools/mcctl" --master="$MASTER" df
refused 'has the role reader' \
	"$top_builddir/mcfs/mcfs" -o credential=reader,global_segment_size=64mb "$MASTER" "$tmp/far"
refused 'enable_multi_tenants' "$top_builddir/tools/mcctl" --master="$MASTER" --credential=late2 df

# ---- the master starts again, now with tenants; its clients come back
end_pid_of_master
(mooncake_master --security=on --enable_multi_tenants) >>master.log 2>&1 &
echo $! >master.pid
wait_for 20 up || fail "no master after the restart"
mcctl quota default 64mb >out
mcctl quota alice 64mb >out
mcctl quota bob 64mb >out
equal "a value after the restart" "$(mcctl get b -)" two
echo three >mnt1/c
equal "a new value, which is in the first node" "$(cat mnt2/c)" three

# ---- revoked: a mount that serves is cut within a heartbeat
mcctl credential revoke "$(mcctl credential list | awk '$0 ~ /node2/ { print $1 }')" >out
cut() { ! timeout 20 sh -c 'echo x >mnt2/late'; }
wait_for 10 cut || fail "a revoked node writes"
equal "the first node after the revocation" "$(cat mnt1/c)" three

# ---- two secrets: old credentials work after the first rotation and not after the second
serves() { mcctl get c - >out 2>&1; }
rotated() { # FILE OPTION... - make a credential, with secret number $want
	rm -f "$1"
	mcctl credential create "$1" "${@:2}" >out && grep -q "^identity mc$want/" "$1"
}
(mooncake_master --rotate_security) >out
want=2
wait_for 10 rotated admin2 --role=admin --tenant='*' --name=admin2 || fail "the master does not use the new secret"
rotated reader2 --role=reader --name=r2
rotated node1.new --role=node --name=node1
equal "an old credential after one rotation" "$(MC_CREDENTIAL=reader mcctl get c -)" three
mv node1.new node1
(mooncake_master --rotate_security) >out
export MC_CREDENTIAL=$tmp/admin2
old_is_cut() { ! MC_CREDENTIAL=reader serves && grep -q 'refused the credential' out; }
wait_for 10 old_is_cut || fail "an old credential after two rotations: $(cat out)"
equal "a new credential after two rotations" "$(MC_CREDENTIAL=reader2 mcctl get c -)" three
equal "a mount whose file was replaced" "$(cat mnt1/c)" three
echo four >mnt1/d || fail "a mount whose file was replaced does not write"

# ---- tenants, in Python
for who in alice bob; do
	mcctl credential create "$who" --role=node --tenant="$who" --name="$who" >out
done
python_package
cat >tenants.py <<-'P'
	import sys
	from mooncake.store import MooncakeDistributedStore as Store

	def setup(**more):
	    s = Store()
	    return s, s.setup({"local_hostname": "127.0.0.1", "metadata_server": "P2PHANDSHAKE", "global_segment_size": 0,
	                       "master_server_addr": sys.argv[1], **more})

	# MC_CREDENTIAL alone
	s, code = setup()
	assert code == 0 and s.get("c") == b"three\n" and s.put("python", b"five") == 0, code
	alice, code = setup(credential="alice", global_segment_size="16mb")
	assert code == 0, code
	bob, code = setup(credential="bob", global_segment_size="16mb", tenant_id="bob")
	assert code == 0, code
	assert alice.put("k", b"of alice") == 0 and alice.get("k") == b"of alice"
	assert bob.is_exist("k") == 0 and bob.get("k") == b"" and bob.is_exist("c") == 0
	assert bob.put("k", b"of bob") == 0 and alice.get("k") == b"of alice" and bob.get("k") == b"of bob"
	assert setup(credential="alice", tenant_id="bob")[1] == -1
	assert setup(credential="none")[1] == -1
P
timeout 60 "$PYTHON" tenants.py "$MASTER" >python.out 2>&1 || fail "Python: $(cat python.out)"
grep -q 'is of tenant "alice", and the configuration asks for "bob"' python.out || fail "$(cat python.out)"
equal "Python's value" "$(mcctl get python -)" five
