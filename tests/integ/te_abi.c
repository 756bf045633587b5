/* SPDX-License-Identifier: Apache-2.0
 * te_abi.c - the binary interface of upstream's C functions, without our header: names looked up in
 * the library, and structs, constants and results as in programs that were compiled elsewhere. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
			exit(1); \
		} \
	} while (0)

/* Written by hand: the memory layout on a machine with 8-byte pointers. */
struct their_request {
	int32_t opcode, pad;
	void *source;
	int32_t target_id, pad2;
	uint64_t target_offset, length;
};
struct their_status {
	int32_t status, pad;
	uint64_t bytes;
};
struct their_note {
	char *name, *msg;
};
struct their_buffer {
	void *addr;
	uint64_t length;
};
struct their_load {
	char name[64];
	uint64_t inflight;
	double rate;
};

static const char *const names[] = {
	"createTransferEngine", "discoverTopology", "getLocalIpAndPort", "installTransport", "uninstallTransport",
	"openSegment", "openSegmentNoCache", "closeSegment", "warmupEfaSegment", "removeLocalSegment",
	"destroyTransferEngine", "registerLocalMemory", "unregisterLocalMemory", "registerLocalMemoryBatch",
	"unregisterLocalMemoryBatch", "allocateBatchID", "submitTransfer", "submitTransferWithNotify",
	"getNotifsFromEngine", "freeNotifsMsgBuf", "genNotifyInEngine", "getTransferStatus", "freeBatchID",
	"syncSegmentCache", "getNicLoadStats", "enableGracefulShutdown", "showLinks",
};

/* ISO C cannot cast an object pointer to a function pointer. */
static void *library;
static void find(const char *name, void *ret_fn)
{
	void *at = dlsym(library, name);

	CHECK(at);
	memcpy(ret_fn, &at, sizeof(at));
}

static void *(*create)(const char *, const char *, const char *, uint64_t, int);
static void (*destroy)(void *);
static int (*reg)(void *, void *, size_t, const char *, int), (*unreg)(void *, void *);
static int (*reg_many)(void *, struct their_buffer *, size_t, const char *);
static int (*unreg_many)(void *, void **, size_t);
static uint64_t (*allocate)(void *, size_t);
static int (*submit)(void *, uint64_t, struct their_request *, size_t);
static int (*submit_note)(void *, uint64_t, struct their_request *, size_t, struct their_note);
static int (*status_of)(void *, uint64_t, size_t, struct their_status *);
static int (*free_batch)(void *, uint64_t);
static struct their_note *(*notes)(void *, int *);
static int (*free_notes)(struct their_note *, int);
static int (*loads)(void *, struct their_load *, size_t *);

static void find_all(void)
{
	CHECK(sizeof(names) / sizeof(names[0]) == 27);
	for (size_t i = 0; i < 27; i++)
		CHECK(dlsym(library, names[i]));
	find("createTransferEngine", &create);
	find("destroyTransferEngine", &destroy);
	find("registerLocalMemory", &reg);
	find("unregisterLocalMemory", &unreg);
	find("registerLocalMemoryBatch", &reg_many);
	find("unregisterLocalMemoryBatch", &unreg_many);
	find("allocateBatchID", &allocate);
	find("submitTransfer", &submit);
	find("submitTransferWithNotify", &submit_note);
	find("getTransferStatus", &status_of);
	find("freeBatchID", &free_batch);
	find("getNotifsFromEngine", &notes);
	find("freeNotifsMsgBuf", &free_notes);
	find("getNicLoadStats", &loads);
}

/* Wait until it has status 4, completed. */
static void completes(void *e, uint64_t batch, size_t task, uint64_t bytes)
{
	struct their_status st[2];

	memset(st, 0x5a, sizeof(st));
	do
		CHECK(status_of(e, batch, task, &st[0]) == 0);
	while (st[0].status == 0 || st[0].status == 1);
	CHECK(st[0].status == 4 && st[0].bytes == bytes);
	/* the calls write nothing beyond the space that was passed */
	CHECK(st[1].bytes == 0x5a5a5a5a5a5a5a5aull);
}

static void transfers(void *e)
{
	static unsigned char mem[2][4096];
	struct their_note note = { (char *)"who", (char *)"what" }, *got;
	struct their_request r[2];
	uint64_t batch = allocate(e, 4);
	int n = 0;

	memset(mem[0], 0x11, sizeof(mem[0]));
	CHECK(batch != UINT64_MAX && reg(e, mem, sizeof(mem), "cpu:0", 1) == 0);
	memset(r, 0xee, sizeof(r));	/* the padding may have any value */
	for (unsigned i = 0; i < 2; i++) {
		r[i].opcode = (int32_t)i;
		r[i].source = mem[i];
		r[i].target_id = 0;
		r[i].target_offset = (uint64_t)(uintptr_t)mem[1 - i] + 100;
		r[i].length = 1000;
	}
	/* 1: from source to the peer; 0: from the peer to source */
	CHECK(submit(e, batch, &r[1], 1) == 0);
	completes(e, batch, 0, 1000);
	CHECK(mem[0][99] == 0x11 && mem[0][100] == 0 && mem[0][1099] == 0 && mem[0][1100] == 0x11);
	memset(mem[1], 0x22, sizeof(mem[1]));
	CHECK(submit_note(e, batch, r, 2, note) == 0);
	completes(e, batch, 1, 1000);
	completes(e, batch, 2, 1000);
	CHECK(mem[0][0] == 0x22 && mem[0][999] == 0x22);
	got = notes(e, &n);
	CHECK(got && n == 1 && !strcmp(got[0].name, "who") && !strcmp(got[0].msg, "what"));
	CHECK(free_notes(got, n) == 0);
	CHECK(free_batch(e, batch) == 0 && free_batch(e, batch) != 0);
	CHECK(unreg(e, mem) == 0);
}

static void lists(void *e)
{
	static unsigned char mem[2][4096];
	struct their_buffer list[2] = { { mem[0], 4096 }, { mem[1], 4096 } };
	void *at[2] = { mem[0], mem[1] };
	struct their_load load[2];
	size_t n = 2;

	CHECK(reg_many(e, list, 2, "*") == 0 && unreg_many(e, at, 2) == 0);
	memset(load, 0x5a, sizeof(load));
	CHECK(loads(e, load, &n) == 0 && n == 1 && !strcmp(load[0].name, "tcp") && load[0].inflight == 0);
	CHECK(load[1].inflight == 0x5a5a5a5a5a5a5a5aull);
}

int main(void)
{
	void *e;

	/* the libraries that this program is linked with */
	library = dlopen(NULL, RTLD_NOW);
	CHECK(library);
	find_all();
	e = create("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
	CHECK(e);
	transfers(e);
	lists(e);
	destroy(e);
	return 0;
}
