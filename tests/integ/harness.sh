#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The test functions themselves: cleanups run in reverse order, a test that leaves something behind
# fails, waits end, and a skip gives the reason.
. "${top_srcdir:-.}/tests/lib/functions.sh"

# run SCRIPT-TEXT - run the text as a separate test; output in $tmp/out, status in $status
run() {
	printf '#!/bin/bash\n. "%s/tests/lib/functions.sh"\n%s\n' "$top_srcdir" "$1" >"$tmp/inner.sh"
	status=0
	env -u MC_TEST_ID TMPDIR="$tmp" bash "$tmp/inner.sh" >"$tmp/out" 2>&1 || status=$?
}

says() {
	grep -q -- "$1" "$tmp/out" || { cat "$tmp/out"; fail "output lacks: $1"; }
}

run 'cleanup_fn echo first; cleanup_fn false; cleanup_fn echo "second  one"'
equal "status with a failing cleanup" "$status" 0
equal "order of cleanups" "$(grep -nE '^(second  one|first)$' "$tmp/out" | tr '\n' ' ')" \
	"1:second  one 3:first "
says 'cleanup failed: false'

run 'cleanup_fn echo ran; false; echo not reached'
equal "status of a failing test" "$status" 1
says '^ran$'
fails grep -q "not reached" "$tmp/out"

# The reader of the output has ended: cleanups run nevertheless.
printf '#!/bin/bash\n. "%s/tests/lib/functions.sh"\ncleanup_fn touch "%s/ran"; cleanup_fn echo x; fail y\n' \
	"$top_srcdir" "$tmp" >"$tmp/inner.sh"
env -u MC_TEST_ID TMPDIR="$tmp" bash "$tmp/inner.sh" | exec true || :
wait_for 10 test -e "$tmp/ran"
rm "$tmp/ran"

run 'skip "no such thing here"'
equal "status of a skip" "$status" 77
says '^SKIP: no such thing here$'
run 'requires sh no-such-program'
equal "status without a program" "$status" 77

run 'wait_for 1 false'
equal "status of a wait that ends" "$status" 1
says 'not within 1 s: false'
run 'n=0; thrice() { n=$((n + 1)); [ $n -ge 3 ]; }; wait_for 5 thrice; equal n $n 3'
equal "status of a wait that succeeds" "$status" 0

run 'spawn sleeper sleep 100; alive $SPAWNED; (setsid sleep 101 >/dev/null 2>&1 &); echo pid $SPAWNED'
equal "status with a process left" "$status" 1
says 'processes are left: .*sleep 101'
pid=$(sed -n 's/^pid //p' "$tmp/out")
gone "$pid" || fail "a spawned process outlived its test"

run 'spawn quick sh -c "trap \"exit 3\" TERM; echo up; while :; do sleep 0.1; done"
wait_for 5 grep -q up $tmp/quick.log; stop_pid $SPAWNED'
equal "status when a program ends badly" "$status" 1
says 'ended with status 3 after SIGTERM'

run 'free_port a; free_port b; [ $a != $b ]; equal x 1 1; fails false; echo all'
says '^all$'
run 'fails true'
equal "status when a failure is missing" "$status" 1
run 'equal x 1 2'
equal "status of an inequality" "$status" 1

run 'printf "a_total 2\na_total{x=\"1\"} 3\na_totals 9\nb 1e3\n" >$tmp/m
equal sum "$(metric_sum a_total <$tmp/m)" 5; equal one "$(metric_sum a_total x=\"1\" <$tmp/m)" 3
equal b "$(metric_sum b <$tmp/m)" 1000; equal none "$(metric_sum c <$tmp/m)" 0'
equal "sums of metrics" "$status" 0

if [ "$(id -u)" -eq 0 ] && may_mount; then
	run 'mkdir $tmp/m; mount -t tmpfs none $tmp/m'
	equal "status with a mount left" "$status" 1
	says 'mounts are left: .*/m$'
	if unshare -n ip link add type veth 2>/dev/null; then
		# A port without a listener on the other node refuses connections at once when the
		# node is reached.
		run 'two_nodes; echo "ns $NS_A"
		in_ns "$NS_A" timeout 5 bash -c "exec 3<>/dev/tcp/$ADDR_B/9" 2>&1 || :'
		equal "status of two namespaces" "$status" 0
		says 'Connection refused'
		ns=$(sed -n 's/^ns //p' "$tmp/out")
		[ ! -e "/run/netns/$ns" ] || fail "namespace $ns is left"
	fi
fi
rm -f "$tmp/fails.out"
equal "left in the directory" "$(find "$tmp" -mindepth 1 | sort | tr '\n' ' ')" \
	"$tmp/inner.sh $tmp/out "
