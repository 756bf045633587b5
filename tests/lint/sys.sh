#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Only common/sys/ calls the kernel for time, sleep, locks, threads, random numbers, the end of the process and files, so
# that a test can put a simulated process in its place.  tests/lint/sys.allowed lists the calls that other files may
# have, with a reason for each group; counts may only go down.
#	sys.sh		check
#	sys.sh -l	print the list as it is now
set -eu
cd "${top_srcdir:?}"
command -v perl >/dev/null || { echo "SKIP: perl is not installed"; exit 77; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

find common proto meta tiers engine client master node mcfs tools -name '*.[ch]' | grep -v '^common/sys/' | sort |
xargs perl -e '
my %kind = (
	time => "clock_gettime|gettimeofday|time|nanosleep|clock_nanosleep|usleep|sleep|timespec_get",
	lock => "pthread_(?:mutex|cond|rwlock|spin|barrier)_\\w+",
	thread => "pthread_(?:create|join|detach)|sched_yield|thrd_create",
	random => "getrandom|getentropy|rand|random|rand_r|drand48|lrand48",
	process => "_exit|exit|quick_exit|exec[lv]p?e?",
	file => "open|openat|creat|fopen|freopen|mkstemp|mkostemp|fdatasync|fsync|sync_file_range|rename|renameat|renameat2|"
		. "unlink|unlinkat|remove|opendir|fdopendir|readdir|flock|pread|pwrite|preadv|pwritev|preadv2|pwritev2|"
		. "mkdir|mkdirat|rmdir|truncate|ftruncate|fallocate|posix_fallocate|link|linkat|symlink|symlinkat",
);
my %n;
for my $file (@ARGV) {
	open my $in, "<", $file or die "$file: $!";
	local $/;
	my $text = <$in>;
	# Neither comments nor strings call anything.
	$text =~ s{/\*.*?\*/|"(?:\\.|[^"\\\n])*"}{}gs;
	for my $k (keys %kind) {
		# Not a member, a declaration or the end of a longer name.
		my $found = () = $text =~ /(?<![\w.>])(?<!\bint )(?<!\*)(?:$kind{$k})\s*\(/g;
		$n{"$file $k"} = $found if $found;
	}
}
print "$_ $n{$_}\n" for sort keys %n;
' >"$tmp/now"
[ "${1-}" != -l ] || { cat "$tmp/now"; exit 0; }
grep -v '^#' tests/lint/sys.allowed | grep . | sort >"$tmp/allowed"
awk -v allowed="$tmp/allowed" '
BEGIN { while ((getline line < allowed) > 0) { split(line, f, " "); may[f[1] " " f[2]] = f[3] } }
{ key = $1 " " $2; seen[key] = $3
  if ($3 > may[key] + 0) { print $1 ": " $3 " direct calls of kind \"" $2 "\", " may[key] + 0 " are allowed: use common/sys/"; bad = 1 } }
END { for (key in may) if (seen[key] + 0 < may[key]) {
		print "tests/lint/sys.allowed: " key " is " seen[key] + 0 " now, lower the count"; bad = 1 }
      exit bad }' "$tmp/now"
