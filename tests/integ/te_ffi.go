// SPDX-License-Identifier: Apache-2.0
// te_ffi.go - the sequence of calls of upstream's Go P2P store: an engine without discovery, a transport installed,
// memory registered, one batch of one request, a busy poll.
package main

/*
#include <stdlib.h>
#include <transfer_engine_c.h>
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"
)

func check(ok bool, what string) {
	if !ok {
		fmt.Fprintln(os.Stderr, "not so:", what)
		os.Exit(1)
	}
}

func engine() (C.transfer_engine_t, string) {
	meta, name, host := C.CString("P2PHANDSHAKE"), C.CString("127.0.0.1:12345"), C.CString("127.0.0.1")
	defer C.free(unsafe.Pointer(meta))
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(host))
	e := C.createTransferEngine(meta, name, host, 12345, 0)
	check(e != nil, "createTransferEngine")
	proto := C.CString("tcp")
	defer C.free(unsafe.Pointer(proto))
	check(C.discoverTopology(e) == 0, "discoverTopology")
	check(C.installTransport(e, proto, nil) != nil, "installTransport")
	var buf [64]C.char
	check(C.getLocalIpAndPort(e, &buf[0], 64) == 0, "getLocalIpAndPort")
	return e, C.GoString(&buf[0])
}

func main() {
	const size = 1 << 20
	target, name := engine()
	user, _ := engine()
	theirs, mine := C.malloc(size), C.malloc(size)
	location := C.CString("cpu:0")
	defer C.free(unsafe.Pointer(location))
	check(C.registerLocalMemory(target, theirs, size, location, 1) == 0, "registerLocalMemory")
	check(C.registerLocalMemory(user, mine, size, location, 1) == 0, "registerLocalMemory")
	b := unsafe.Slice((*byte)(mine), size)
	for i := range b {
		b[i] = byte(i * 7)
	}
	segment := C.CString(name)
	defer C.free(unsafe.Pointer(segment))
	id := C.openSegment(user, segment)
	check(id > 0, "openSegment")
	for _, opcode := range []C.int{C.OPCODE_WRITE, C.OPCODE_READ} {
		batch := C.allocateBatchID(user, 1)
		check(batch != C.INVALID_BATCH, "allocateBatchID")
		r := (*C.struct_transfer_request)(C.calloc(1, C.sizeof_struct_transfer_request))
		r.opcode, r.source, r.target_id = opcode, mine, id
		r.target_offset, r.length = C.uint64_t(uintptr(theirs)), size
		check(C.submitTransfer(user, batch, r, 1) == 0, "submitTransfer")
		var st C.struct_transfer_status
		for st.status == C.STATUS_WAITING {
			check(C.getTransferStatus(user, batch, 0, &st) == 0, "getTransferStatus")
		}
		check(st.status == C.STATUS_COMPLETED && st.transferred_bytes == size, "status")
		check(C.freeBatchID(user, batch) == 0, "freeBatchID")
		C.free(unsafe.Pointer(r))
		if opcode == C.OPCODE_WRITE {
			for i := range b {
				b[i] = 0
			}
		}
	}
	for i := range b {
		check(b[i] == byte(i*7), "bytes")
	}
	check(C.closeSegment(user, id) == 0, "closeSegment")
	check(C.unregisterLocalMemory(user, mine) == 0, "unregisterLocalMemory")
	check(C.unregisterLocalMemory(target, theirs) == 0, "unregisterLocalMemory")
	C.destroyTransferEngine(user)
	C.destroyTransferEngine(target)
	C.free(mine)
	C.free(theirs)
}
