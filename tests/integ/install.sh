#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The steps of a user of the installed library: make install into a directory, run pkg-config,
# compile, link, run.
. "${top_srcdir:-.}/tests/lib/functions.sh"
requires pkg-config
unless_sanitized "a sanitized library needs its runtime in the program"
unset MAKEFLAGS MFLAGS MAKELEVEL
make -C "$top_builddir" install DESTDIR="$tmp/root" >"$tmp/install.log" 2>&1 ||
	fail "make install: $(tail -n 5 "$tmp/install.log")"
pc=$(find "$tmp/root" -name mooncake-store.pc)
[ -n "$pc" ] || fail "mooncake-store.pc is not installed"
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$tmp/root
cat >"$tmp/user.c" <<'C'
#include <mooncake/mcs.h>
#include <mooncake/store_c.h>
#include <stdio.h>

int main(void)
{
	mooncake_store_t s = mooncake_store_create();
	struct mcs_conf conf;

	mcs_conf_init(&conf);
	printf("%s %d\n", mcs_version(), mooncake_store_health_check(s));
	mooncake_store_destroy(s);
	return conf.struct_size != sizeof(conf);
}
C
# shellcheck disable=SC2046
${CC:-cc} -Wall -Werror "$tmp/user.c" -o "$tmp/user" $(pkg-config --cflags --libs mooncake-store) ||
	fail "a program cannot be built against the installed library"
lib=$(find "$tmp/root" -name libmooncake_store.so)
got=$(LD_LIBRARY_PATH=${lib%/*} "$tmp/user") || fail "the program fails: $got"
[ "$got" = "$(pkg-config --modversion mooncake-store) 1" ] || fail "unexpected: $got"
