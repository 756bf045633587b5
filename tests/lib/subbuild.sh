#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# subbuild.sh DIR "MAKE-TARGETS" CONFIGURE-ARG... - configure the tree in DIR (below the current
# build directory) and make the targets there.  Used by check-asan, check-tsan and check-clang.
set -eu
dir=$1
targets=$2
shift 2
src=$(cd "${top_srcdir:?}" && pwd)
mkdir -p "$dir"
# A tree that was configured in place cannot be configured again in another directory: use a copy.
if [ -e "$src/config.status" ]; then
	chmod -R u+w "$dir/src" 2>/dev/null || :
	"$MAKE" -s distdir distdir="$dir/src" am__remove_distdir="rm -rf $dir/src"
	src=$(cd "$dir/src" && pwd)
	dir=$dir/build
	mkdir -p "$dir"
fi
cd "$dir"
conf="$src/configure -q $*"
if [ ! -e Makefile ] || [ "$(cat .configured 2>/dev/null)" != "$conf" ]; then
	rm -f .configured
	"$src/configure" -q "$@" CFLAGS='-O1 -g'
	echo "$conf" >.configured
fi
# Word splitting is intended: $targets has several words.
# shellcheck disable=SC2086
exec "$MAKE" $targets
