#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A Go program (cgo) that uses the engine as upstream's P2P store does.
. "${top_srcdir:-.}/tests/lib/functions.sh"
unless_sanitized "the library of a sanitizer has to be loaded first"
requires go
lib=$top_builddir/engine/.libs
mkdir "$tmp/src"
cp "${top_srcdir:?}/tests/integ/te_ffi.go" "$tmp/src/main.go"
cd "$tmp/src"
GO111MODULE=off CGO_ENABLED=1 GOFLAGS='' GOCACHE=${XDG_CACHE_HOME:-$top_builddir/.go-cache}/go-build GOPATH=$tmp/path \
	CGO_CFLAGS="-I$top_srcdir/include/mooncake" CGO_LDFLAGS="-L$lib -ltransfer_engine" \
	go build -o "$tmp/te_ffi" main.go
LD_LIBRARY_PATH=$lib timeout 60 "$tmp/te_ffi"
