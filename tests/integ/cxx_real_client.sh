#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A C++ program that was written for upstream's client (the calls of LMCache's L2 adapter) compiles
# with our headers, as strict C++17 and as C++20, and works.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires c++
unless_sanitized "a sanitized library needs its runtime in the program"
lib=$top_builddir/client/.libs
[ -e "$lib/libmooncake_store.so" ] || skip "libmooncake_store.so is not in $lib"
printf 'version: 1\ntenants:\n  - name: default\n    quota: 50MB\n  - name: blue\n    quota: 10MB\n' >"$tmp/policy.yaml"
start_master --enable_multi_tenants --tenant_quota_connector_uri="$tmp/policy.yaml"
for std in c++17 c++20; do
	c++ -std=$std -Wall -Wextra -Werror -pedantic -O1 -pthread -I "$top_srcdir/include/mooncake/cxx" \
		"$top_srcdir/tests/integ/cxx_real_client.cpp" -o "$tmp/program" -L "$lib" -lmooncake_store \
		-Wl,-rpath,"$lib"
done
MC_MAX_MR_SIZE=4096 timeout 120 "$tmp/program" "$MASTER"
