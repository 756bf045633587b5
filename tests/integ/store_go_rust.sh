#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Programs in Go and in Rust that use the store's C functions as upstream's packages for these languages do.
. "${top_srcdir:-.}/tests/lib/functions.sh"
unless_sanitized "the library of a sanitizer has to be loaded first"
lib=$top_builddir/client/.libs
[ -e "$lib/libmooncake_store.so" ] || skip "libmooncake_store.so is not in $lib"
export LD_LIBRARY_PATH=$lib
ran=0
start_master
if command -v go >/dev/null; then
	mkdir "$tmp/src"
	cp "${top_srcdir:?}/tests/integ/store_ffi.go" "$tmp/src/main.go"
	(cd "$tmp/src" && GO111MODULE=off CGO_ENABLED=1 GOFLAGS='' GOPATH=$tmp/path \
		GOCACHE=${XDG_CACHE_HOME:-$top_builddir/.go-cache}/go-build \
		CGO_CFLAGS="-I$top_srcdir/include/mooncake" CGO_LDFLAGS="-L$lib -lmooncake_store" \
		go build -o "$tmp/go" main.go) || fail "the program in Go does not compile"
	timeout 60 "$tmp/go" "$MASTER"
	ran=1
fi
if command -v rustc >/dev/null; then
	rustc --edition 2021 -L "$lib" -o "$tmp/rust" "$top_srcdir/tests/integ/store_ffi.rs" ||
		fail "the program in Rust does not compile"
	timeout 60 "$tmp/rust" "$MASTER"
	ran=1
fi
[ "$ran" = 1 ] || skip "neither go nor rustc is installed"
