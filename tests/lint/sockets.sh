#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Connections are streams (common/net/stream.h).  Only the files below make, wait for, send to or receive from
# descriptors, each for its reason; a row of a file that does not is stale.  No other file reads the descriptor of a
# stream or listener.
set -eu
cd "${top_srcdir:?}"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# file: reason
cat >"$tmp/table" <<'EOF'
common/net/net.c: sockets themselves
common/net/networks.c: addresses of upstream's peers
common/net/packet.c: packets with descriptors
common/net/poller.c: epoll
common/net/stream.c: streams of sockets
common/net/httpd.c: libmicrohttpd has its own connections
meta/redis_link.c: redis, through hiredis
engine/rdma/cm_connect.c: events of librdmacm
engine/upstream/handshake.c: upstream's handshake
engine/upstream/handshake_call.c: upstream's handshake
engine/upstream/handshake_conn.c: upstream's handshake
engine/upstream/port.c: upstream's ports
engine/shm/map_wire.c: messages with descriptors
engine/shm/mapped.c: messages with descriptors
engine/shm/mapserver.c: messages with descriptors, and a pidfd
node/conn.c: the client's packets, and its pidfd
node/host.c: the route to the master
node/upstream/dummy.c: a pidfd
node/upstream/hand.c: messages of upstream's clients with descriptors
node/upstream/peer.c: netlink
node/upstream/service.c: whether connections wait at a listener
client/daemon/daemon_conn.c: the daemon's packets
mcfs/life/fdstore.c: messages of systemd with descriptors
mcfs/life/mount.c: /dev/fuse
mcfs/life/mountpoint.c: a pidfd
mcfs/life/supervise.c: messages of systemd, and pidfds
mcfs/life/takeover.c: /dev/fuse
tools/bench/mcbench_pool.c: a pidfd
tools/bench/mcbench_reference.c: the reference of a benchmark is plain sockets
tools/ctl/mcctl_pool.c: a pipe of a child
EOF
cut -d: -f1 "$tmp/table" | sort >"$tmp/allowed"
files=$(find common proto meta tiers engine client master node mcfs tools python -name '*.[ch]' | sort)
# A call has arguments: "poll()" is a comment.
calls='socket|socketpair|connect|accept4?|listen|send|sendto|sendmsg|recv|recvfrom|recvmsg|p?poll|epoll_[a-z_0-9]+|select'
# shellcheck disable=SC2086
grep -lE "(^|[^_a-zA-Z0-9.>])($calls)\([^)]|\"common/net/socket\.h\"" $files | sort >"$tmp/found"
comm -13 "$tmp/allowed" "$tmp/found" | sed 's/$/: uses a socket, and has no row in tests\/lint\/sockets.sh/' >"$tmp/wrong"
comm -23 "$tmp/allowed" "$tmp/found" | sed 's/$/: uses no socket any more, remove its row/' >>"$tmp/wrong"
# shellcheck disable=SC2086
grep -nE '\b(stream|listener)(\.|->)fd\b' $files | grep -vFf "$tmp/allowed" >>"$tmp/wrong" || :
cat "$tmp/wrong"
[ ! -s "$tmp/wrong" ]
