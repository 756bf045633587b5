#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every case of pjdfstest passes, or a pool refuses it by design and pjdfstest.expected lists it
# with the reason.
. "${top_srcdir:-.}/tests/lib/functions.sh"
PATH=$PATH:/opt/mc-suites/bin:$HOME/.cargo/bin
requires_fuse
requires_root
requires_memory 6144
requires pjdfstest
expected=$top_srcdir/tests/suites/pjdfstest.expected

start_standalone "$tmp/mnt" --global_segment_size=3GiB -o allow_other
mkdir "$tmp/mnt/t"
cat >"$tmp/conf.toml" <<'TOML'
[features]
[settings]
naptime = 0.05
allow_remount = false
[dummy_auth]
entries = [ ["nobody", "nogroup"], ["daemon", "daemon"] ]
TOML
chmod 755 "$tmp"
RUST_BACKTRACE=0 timeout 600 pjdfstest -c "$tmp/conf.toml" -p "$tmp/mnt/t" >"$tmp/out" 2>&1 || :
# The result of a case is a line of its own: name and result.
awk '$2 == "ok" && NF == 2 { print $1 }' "$tmp/out" >"$tmp/passed"
awk '$2 == "FAILED" && NF == 2 { print $1 }' "$tmp/out" >"$tmp/failed"
awk '$2 == "skipped" && NF == 2 { print $1 }' "$tmp/out" >"$tmp/skipped"
[ "$(wc -l <"$tmp/passed")" -ge 345 ] || { tail "$tmp/out"; fail "only $(wc -l <"$tmp/passed") cases passed"; }

unexpected=0
while read -r name; do
	found=
	while IFS=$'\t' read -r pattern _; do
		# shellcheck disable=SC2053
		[[ $name == $pattern ]] || continue
		found=$pattern
		echo "$pattern" >>"$tmp/used"
	done < <(grep -v '^#' "$expected")
	[ -n "$found" ] && continue
	echo "not expected: $name"
	grep -A3 "^$name " "$tmp/out" | sed 1d
	unexpected=$((unexpected + 1))
done <"$tmp/failed"
stale=$(grep -v '^#' "$expected" | cut -f1 | grep -vxFf <(sort -u "$tmp/used") || :)
echo "$(wc -l <"$tmp/passed") passed, $(wc -l <"$tmp/failed") refused by design, $(wc -l <"$tmp/skipped") not for this system"
equal "cases that failed and are not expected to" "$unexpected" 0
equal "lines of pjdfstest.expected that nothing needs" "$stale" ""
