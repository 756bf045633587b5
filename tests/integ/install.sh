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
# Programs are in an ordinary user's PATH, and mount(8)'s helper is also where mount(8) searches it.
bin=$(dirname "$(find "$tmp/root" -path '*/bin/mcfs')")
libdir=$(dirname "$(find "$tmp/root" -name libmooncake_store.so)")
for program in mooncake_master mcfs mooncake_client mcctl mount.mcfs; do
	got=$(PATH=$bin:/usr/bin:/bin command -v "$program" || :)
	equal "path of $program" "$got" "$bin/$program"
done
[ -x "${bin%/bin}/sbin/mount.mcfs" ] || fail "mount(8) does not find mount.mcfs"
[ ! -e "${bin%/bin}/sbin/mooncake_master" ] || fail "a second mooncake_master is in sbin"
LD_LIBRARY_PATH=$libdir "$bin/mooncake_master" --version >/dev/null || fail "the installed master does not run"
# The start scripts start the installed programs.
for file in init.d/mooncake-master system/mooncake-master.service init.d/mcfs system/mcfs@.service sbin/mount.mcfs; do
	file=$(find "$tmp/root" -path "*/$file")
	program=$(sed -nE 's/^(DAEMON|ExecStart|mcfs)=([^ ]*).*/\2/p' "$file")
	[ -n "$program" ] && [ -x "$tmp/root$program" ] || fail "$file starts '$program', which is not installed"
done

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
