#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A thread that opens the files that it looks up sends one request to the master per open(2). Nevertheless it sees
# each version that another node stored before, and an unused pin does not stay.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires python3

start_master
start_mcfs "$MASTER" "$tmp/a" --global_segment_size=64MiB
start_mcfs "$MASTER" "$tmp/b" --global_segment_size=64MiB
gets() {
	echo $(($(metric "$MASTER_HTTP" master_get_replica_list_requests_total) +
		$(metric "$MASTER_HTTP" master_batch_get_replica_list_requests_total)))
}
of_a() { metric_sum "$1" <"$tmp/a/.mcfs/metrics"; }
cat >"$tmp/opens.py" <<'PY'
import errno, os, sys
what, own, other = sys.argv[1:4]
def put(d, name, text):
    with open(d + "/" + name, "wb", buffering=0) as f:
        f.write(text)
def get(name):
    fd = os.open(own + "/" + name, os.O_RDONLY)
    text = os.read(fd, 100)
    os.close(fd)
    return text
if what == "same":
    for i in range(200):
        assert get("f") == b"first"
elif what == "new":		# each version, immediately after it is stored
    for i in range(200):
        put(other, "g", b"%d" % i)
        assert get("g") == b"%d" % i
        if i % 10 == 9:	# a pin without an open is not used later
            os.stat(own + "/g")
            put(other, "g", b"after")
            assert get("g") == b"after"
        if i % 20 == 19:
            os.unlink(other + "/g")
            try:
                sys.exit("opened what was removed: %r" % get("g"))
            except FileNotFoundError:
                pass
            put(other, "g", b"again")
            assert get("g") == b"again"
else:				# a lookup without an open
    for i in range(3):
        get("f")
    os.stat(own + "/f")
PY
printf first >"$tmp/a/f"
before=$(gets)
python3 "$tmp/opens.py" same "$tmp/a" "$tmp/b"
asked=$(($(gets) - before))
[ "$(of_a mcfs_expected_opens_taken_total)" -ge 10 ] || fail "no open used the pin of its lookup"
# one request per open instead of two; the first opens, and opens delayed by load, may need two
[ "$asked" -ge 200 ] || fail "200 opens were only $asked requests"
[ -n "${SANITIZER-}" ] || [ "$asked" -le 380 ] || fail "200 opens were $asked requests"
python3 "$tmp/opens.py" new "$tmp/a" "$tmp/b" || fail "another version than the last"
# An unused pin is released while the mount is idle.
kept=$(of_a mcfs_expected_opens_total)
python3 "$tmp/opens.py" look "$tmp/a" "$tmp/b"
[ "$(of_a mcfs_expected_opens_total)" -gt "$kept" ] || fail "no lookup pinned an object in advance"
# ask the master: a lookup on the mount would release the pin as well
let_go() { [ "$(metric "$MASTER_HTTP" mooncake_master_pins)" = 0 ]; }
wait_for 20 let_go || fail "pins are left: $(metric "$MASTER_HTTP" mooncake_master_pins)"
