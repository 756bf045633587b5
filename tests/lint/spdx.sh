#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every source file begins with its licence line; that of a script follows the "#!" line.
set -eu
cd "${top_srcdir:?}"
status=0
for f in $(find common proto meta engine tiers client master node mcfs tools python include init tests \
		-name '*.[ch]' -o -name '*.def' -o -name '*.map' -o -name '*.sh' -o -name '*.py' -o -name '*.pyi') quickstart; do
	head -n 2 "$f" | grep -q 'SPDX-License-Identifier: Apache-2\.0' ||
		{ echo "$f: no SPDX-License-Identifier line at the top"; status=1; }
done
exit "$status"
