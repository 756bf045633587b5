#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# With reserved huge pages, segments and managed buffers use them, and mcctl doctor and the daemon
# report it. The machine's reservation is restored afterwards.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires_root
requires_fuse
requires_memory 3072
reserved=/proc/sys/vm/nr_hugepages
[ -w "$reserved" ] || skip "the machine's huge pages cannot be reserved here"
before=$(cat "$reserved")
[ "$before" -eq 0 ] || skip "this machine's huge pages are reserved for other programs"
# shellcheck disable=SC2317  # called by the harness
give_back() { echo "$before" >"$reserved"; }
cleanup_fn give_back
# 256 MiB for the blocks, 300 MiB for the large one, less than 300 MiB beyond
pages=290
echo "$pages" >"$reserved"
[ "$(cat "$reserved")" -eq "$pages" ] || skip "only $(cat "$reserved") of $pages huge pages can be had"
free_pages() { awk '/^HugePages_Free:/ { print $2 }' /proc/meminfo; }

top_srcdir=$top_srcdir "$top_builddir/tests/unit/test_tiers_dram" >"$tmp/dram" 2>&1 || fail "$(cat "$tmp/dram")"
"$top_builddir/tests/integ/te_memory" huge || fail "managed buffers"
all_free() { [ "$(free_pages)" -eq "$pages" ]; }
wait_for 10 all_free

# a mount with memory of huge pages: files are stored and read back
start_standalone "$tmp/mnt" --global_segment_size=256MiB --segment_kind=hugetlb
seq 3000000 >"$tmp/data"
cp "$tmp/data" "$tmp/mnt/data"
cmp "$tmp/data" "$tmp/mnt/data"
[ "$(free_pages)" -le $((pages - 11)) ] || fail "$(free_pages) of $pages huge pages are free: the file is stored elsewhere"
unmount "$tmp/mnt"
wait_for 15 gone "$MCFS_PID"
wait_for 10 all_free
