#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A file stored on another node, read through a mount without own memory, against a read of the same
# bytes by the engine alone; the nodes are network namespaces.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_fuse
requires_netns
requires_memory 1500
two_nodes
NS=$NS_A MASTER_HOST=$ADDR_A start_master >/dev/null
NS=$NS_A start_mcfs "$MASTER" "$tmp/a" --host="$ADDR_A" --global_segment_size=0 --log=err
NS=$NS_B start_mcfs "$MASTER" "$tmp/b" --host="$ADDR_B" --global_segment_size=512MiB --log=err
head -c 134217728 /dev/urandom >"$tmp/b/large"
in_ns "$NS_A" "$top_builddir/tests/perf/mcfs_remote" "$MASTER" "$ADDR_A" large "$tmp/a/large" "${1:-9}"
cmp "$tmp/a/large" "$tmp/b/large"
