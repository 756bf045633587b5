// SPDX-License-Identifier: Apache-2.0
// store_ffi.go - the store as upstream's Go package uses it: store_c.h through cgo.  store_ffi MASTER
package main

/*
#include <stdlib.h>
#include <store_c.h>
*/
import "C"

import (
	"bytes"
	"fmt"
	"os"
	"unsafe"
)

func check(ok bool, what string) {
	if !ok {
		fmt.Println("failed:", what)
		os.Exit(1)
	}
}

func main() {
	text := func(s string) *C.char { return C.CString(s) }
	s := C.mooncake_store_create()
	check(s != nil, "create")
	check(C.mooncake_store_setup(s, text("127.0.0.1"), text("P2PHANDSHAKE"), 64<<20, 16<<20, text("tcp"), text(""),
		text(os.Args[1])) == 0, "setup")
	check(C.mooncake_store_health_check(s) == 0, "health")

	value := []byte("from go")
	memory := C.malloc(1 << 20)
	check(C.mooncake_store_register_buffer(s, memory, 1<<20) == 0, "register")
	config := C.mooncake_replicate_config_t{replica_num: 1, with_soft_pin: 1}
	check(C.mooncake_store_put(s, text("go"), unsafe.Pointer(&value[0]), C.size_t(len(value)), &config) == 0, "put")
	check(C.mooncake_store_get_into(s, text("go"), memory, 1<<20) == C.int64_t(len(value)), "get")
	check(bytes.Equal(C.GoBytes(memory, C.int(len(value))), value), "bytes")
	check(C.mooncake_store_is_exist(s, text("go")) == 1 && C.mooncake_store_is_exist(s, text("no")) == 0, "exist")
	check(C.mooncake_store_get_size(s, text("no")) == -704, "size of nothing")

	keys := [2]*C.char{text("a"), text("b")}
	buffers := [2]unsafe.Pointer{memory, unsafe.Pointer(uintptr(memory) + 4096)}
	sizes := [2]C.size_t{4096, 8192}
	var put [2]C.int
	var got [2]C.int64_t
	// arrays of pointers to C memory, passed as upstream's package does
	check(C.mooncake_store_batch_put_from(s, &keys[0], &buffers[0], &sizes[0], 2, nil, &put[0]) == 0 &&
		put == [2]C.int{0, 0}, "batch put")
	check(C.mooncake_store_batch_get_into(s, &keys[0], &buffers[0], &sizes[0], 2, &got[0]) == 0 &&
		got == [2]C.int64_t{4096, 8192}, "batch get")
	check(C.mooncake_store_remove(s, text("go"), 1) == 0, "remove")
	check(C.mooncake_store_remove_all(s, 1) == 2, "remove all")
	check(C.mooncake_store_unregister_buffer(s, memory) == 0, "unregister")
	C.mooncake_store_destroy(s)
}
