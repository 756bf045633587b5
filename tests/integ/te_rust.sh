#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A Rust program with the declarations of upstream's crate.
. "${top_srcdir:-.}/tests/lib/functions.sh"
unless_sanitized "the library of a sanitizer has to be loaded first"
requires rustc
lib=$top_builddir/engine/.libs
rustc --edition 2021 -O -L "$lib" -o "$tmp/te_ffi" "${top_srcdir:?}/tests/integ/te_ffi.rs" ||
	fail "it does not compile"
LD_LIBRARY_PATH=$lib timeout 60 "$tmp/te_ffi"
