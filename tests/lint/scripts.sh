#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The scripts pass shellcheck without errors and warnings.
set -eu
cd "${top_srcdir:?}"
command -v shellcheck >/dev/null || { echo "SKIP: shellcheck is not installed"; exit 77; }
scripts=$(find tests init -name '*.sh' -type f)
for f in quickstart .ci/run init/*; do
	[ -f "$f" ] && head -n 1 "$f" | grep -q '^#!.*sh' && scripts="$scripts $f"
done
# shellcheck disable=SC2086
shellcheck -S warning -x -P SCRIPTDIR -e SC1091 $scripts
