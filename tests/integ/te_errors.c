/* SPDX-License-Identifier: Apache-2.0
 * te_errors.c - results of upstream's functions for wrong arguments; one engine with itself and
 * without peers. */
#include "te_pair.h"

#include <errno.h>
#include <sys/mman.h>

#include <mooncake/mce_te.h>

#define MEM (1u << 20)

static transfer_engine_t engine;
static unsigned char *mem;

static int one(int opcode, void *source, segment_id_t id, uint64_t at, uint64_t len)
{
	struct transfer_request r = { opcode, source, id, at, len };
	batch_id_t batch = allocateBatchID(engine, 1);
	struct transfer_status st;

	CHECK(submitTransfer(engine, batch, &r, 1) == 0);
	do
		CHECK(getTransferStatus(engine, batch, 0, &st) == 0);
	while (st.status == STATUS_WAITING);
	CHECK(freeBatchID(engine, batch) == 0);
	CHECK(st.transferred_bytes == (st.status == STATUS_COMPLETED ? len : 0));
	return st.status;
}

static void engines(void)
{
	char small[4], name[64];
	transfer_engine_t away;
	nic_load_stat_t load[4];
	size_t n = 4;

	CHECK(!createTransferEngine(NULL, "127.0.0.1", "", 0, 1));
	CHECK(!createTransferEngine("P2PHANDSHAKE", NULL, "", 0, 1));
	CHECK(!createTransferEngine("P2PHANDSHAKE", "", "", 0, 1));
	CHECK(!createTransferEngine("gopher://127.0.0.1:1", "x", "", 0, 1));
	/* the metadata server does not run (yet): the engine works, and reports the error when it
	 * opens another segment */
	away = createTransferEngine("http://127.0.0.1:9/metadata", "x", "", 0, 1);
	CHECK(away && registerLocalMemory(away, small, sizeof(small), "*", 1) == 0);
	CHECK(openSegment(away, "x") == LOCAL_SEGMENT && openSegment(away, "y") == -102);
	CHECK(unregisterLocalMemory(away, small) == 0);
	destroyTransferEngine(away);
	CHECK(discoverTopology(engine) == 0 && discoverTopology(NULL) == -1);
	CHECK(getLocalIpAndPort(engine, small, sizeof(small)) == -1);
	CHECK(getLocalIpAndPort(engine, NULL, 64) == -1);
	CHECK(getLocalIpAndPort(NULL, name, sizeof(name)) == -1);
	CHECK(installTransport(engine, "tcp", NULL) && !installTransport(engine, "rmda", NULL));
	CHECK(installTransport(engine, "rdma", NULL) == installTransport(engine, "tcp", NULL));
	CHECK(installTransport(engine, "cxl", NULL) && !installTransport(engine, "rpc_only", NULL));
	CHECK(!installTransport(engine, NULL, NULL) && !installTransport(NULL, "tcp", NULL));
	CHECK(uninstallTransport(engine, "tcp") == 0 && uninstallTransport(NULL, "tcp") == -1);
	CHECK(getNicLoadStats(engine, load, &n) == 0 && n == 1);
	n = 0;
	CHECK(getNicLoadStats(engine, NULL, &n) == 0 && n == 0);
	n = 1;
	CHECK(getNicLoadStats(engine, NULL, &n) == -1 && getNicLoadStats(NULL, load, &n) == -1);
	destroyTransferEngine(NULL);
}

static void segments(void)
{
	static const char *const odd[] = {
		":", ":1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:-1", "127.0.0.1:1x", "127.0.0.1:65536", "[::1",
		"::1", "[]:5", "a b:1", "\n", "%s%n", "../../etc/passwd", "\xff\xfe:1", "127.0.0.1:1:1", "/", "@:1",
	};
	static char large[70000];
	char name[64];

	CHECK(getLocalIpAndPort(engine, name, sizeof(name)) == 0);
	CHECK(openSegment(engine, name) == LOCAL_SEGMENT);
	CHECK(openSegmentNoCache(engine, name) == LOCAL_SEGMENT);
	CHECK(openSegment(engine, "127.0.0.1:1") < 0 && openSegment(engine, "") < 0);
	CHECK(openSegment(engine, "127.0.0.1:99999") < 0 && openSegment(engine, "no host at all") < 0);
	CHECK(openSegment(engine, NULL) < 0 && openSegment(NULL, name) < 0);
	memset(large, 'a', sizeof(large) - 1);
	CHECK(openSegment(engine, large) < 0 && mce_te_probe(engine, large) < 0);
	for (unsigned i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		CHECK(openSegment(engine, odd[i]) < 0 && openSegmentNoCache(engine, odd[i]) < 0);
	CHECK(closeSegment(engine, 5) == 0 && closeSegment(NULL, 0) == -1);
	CHECK(warmupEfaSegment(engine, name) == 0 && warmupEfaSegment(NULL, name) == -1);
	CHECK(removeLocalSegment(engine, "other") == -1 && removeLocalSegment(NULL, name) == -1);
	CHECK(syncSegmentCache(engine) == 0 && syncSegmentCache(NULL) == -1);
	CHECK(mce_te_probe(engine, name) == 0 && mce_te_probe(engine, "127.0.0.1:1") < 0);
}

static void memory(void)
{
	buffer_entry_t list[2] = { { mem, 4096 }, { mem + 2048, 4096 } };
	void *both[2] = { mem, mem + 8192 };
	uint64_t at, len;
	void *vast;

	CHECK(registerLocalMemory(engine, mem, 0, "cpu:0", 1) == -1);
	CHECK(registerLocalMemory(engine, NULL, 5, "cpu:0", 1) == -1);
	CHECK(registerLocalMemory(engine, mem, SIZE_MAX, "cpu:0", 1) == -1);
	CHECK(registerLocalMemory(NULL, mem, 5, "cpu:0", 1) == -1);
	CHECK(unregisterLocalMemory(engine, mem) == -3 && unregisterLocalMemory(NULL, mem) == -1);
	CHECK(registerLocalMemory(engine, mem, 8192, NULL, 1) == 0);
	CHECK(registerLocalMemory(engine, mem, 8192, "*", 1) == -7);
	CHECK(registerLocalMemory(engine, mem + 8191, 1, "*", 0) == -7);
	CHECK(registerLocalMemory(engine, mem - 1, 2, "*", 1) == -7);
	CHECK(unregisterLocalMemory(engine, mem + 1) == -3);
	CHECK(unregisterLocalMemory(engine, mem) == 0 && unregisterLocalMemory(engine, mem) == -3);
	/* all buffers or none */
	CHECK(registerLocalMemoryBatch(engine, list, 2, "*") == -7);
	CHECK(mce_te_first_buffer(engine, LOCAL_SEGMENT, &at, &len) < 0);
	list[1].addr = mem + 8192;
	CHECK(registerLocalMemoryBatch(engine, list, 2, "*") == 0);
	CHECK(mce_te_first_buffer(engine, LOCAL_SEGMENT, &at, &len) == 0 &&
	      at == (uint64_t)(uintptr_t)mem && len == 4096);
	CHECK(registerLocalMemoryBatch(engine, NULL, 2, "*") == -1);
	CHECK(unregisterLocalMemoryBatch(engine, both, 2) == 0);
	CHECK(unregisterLocalMemoryBatch(engine, both, 2) == -3);
	CHECK(registerLocalMemoryBatch(engine, NULL, 0, "*") == 0);
	/* 3 TiB of addresses: the size is not limited */
	vast = mmap(NULL, 3ull << 40, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (vast != MAP_FAILED) {
		CHECK(registerLocalMemory(engine, vast, 3ull << 40, "*", 1) == 0);
		CHECK(unregisterLocalMemory(engine, vast) == 0);
		munmap(vast, 3ull << 40);
	}
}

/* Addresses of a GPU's memory look like this: each part of a range is checked, and a batch registers all or none. */
static void memory_without_access(void)
{
	char *at = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	buffer_entry_t list[2] = { { at, 4096 }, { at + 4096, 4096 } };

	CHECK(at != MAP_FAILED && mprotect(at, 4096, PROT_READ | PROT_WRITE) == 0);
	CHECK(registerLocalMemory(engine, at + 4096, 4096, "*", 1) == -1);
	CHECK(registerLocalMemory(engine, at, 8192, "*", 1) == -1);
	CHECK(mce_te_register(engine, at, 8192, "*", 1) == -EFAULT);
	CHECK(registerLocalMemoryBatch(engine, list, 2, "*") == -1 && unregisterLocalMemory(engine, at) == -3);
	CHECK(registerLocalMemory(engine, at, 4096, "*", 1) == 0 && unregisterLocalMemory(engine, at) == 0);
	munmap(at, 8192);
}

/* The first half of the memory is registered. */
static void ranges(void)
{
	unsigned char *mine = mem + MEM / 2, *local = mine + 100;
	uint64_t base = (uint64_t)(uintptr_t)mem, end = base + MEM / 2;

	CHECK(registerLocalMemory(engine, mem, MEM / 2, "*", 1) == 0);
	mine[99] = mine[164] = 7;
	CHECK(one(OPCODE_WRITE, local, 0, base, 64) == STATUS_COMPLETED);
	CHECK(one(OPCODE_READ, local, 0, end - 64, 64) == STATUS_COMPLETED);
	CHECK(one(OPCODE_WRITE, local, 0, base - 1, 64) == STATUS_FAILED);
	CHECK(one(OPCODE_WRITE, local, 0, end - 63, 64) == STATUS_FAILED);
	CHECK(one(OPCODE_READ, local, 0, base - 64, 64) == STATUS_FAILED);
	CHECK(one(OPCODE_READ, local, 0, end, 1) == STATUS_FAILED);
	CHECK(one(OPCODE_READ, local, 0, base, MEM / 2 + 1) == STATUS_FAILED);
	CHECK(one(OPCODE_WRITE, local, 0, UINT64_MAX - 10, 64) == STATUS_FAILED);
	CHECK(one(OPCODE_WRITE, local, 0, base, UINT64_MAX) == STATUS_FAILED);
	CHECK(one(OPCODE_WRITE, local, 0, base, UINT64_MAX - base + 1) == STATUS_FAILED);
	CHECK(one(OPCODE_WRITE, NULL, 0, base, 64) == STATUS_FAILED);
	CHECK(one(OPCODE_WRITE, local, 17, base, 64) == STATUS_FAILED);
	CHECK(one(OPCODE_WRITE, local, -1, base, 64) == STATUS_FAILED);
	CHECK(one(7, local, 0, base, 64) == STATUS_FAILED);
	CHECK(one(OPCODE_WRITE, NULL, 0, 0, 0) == STATUS_COMPLETED);
	CHECK(mine[99] == 7 && mine[164] == 7);
	CHECK(unregisterLocalMemory(engine, mem) == 0);
	CHECK(one(OPCODE_WRITE, local, 0, base, 64) == STATUS_FAILED);
	/* registered for local use only */
	CHECK(registerLocalMemory(engine, mem, 4096, "*", 0) == 0);
	CHECK(unregisterLocalMemory(engine, mem) == 0);
}

static void batches(void)
{
	struct transfer_request r[3] = { { OPCODE_WRITE, mem, 0, 0, 0 }, { OPCODE_WRITE, mem, 0, 0, 0 },
					 { OPCODE_WRITE, mem, 0, 0, 0 } };
	notify_msg_t bare = { NULL, NULL }, note = { (char *)"me", (char *)"of nothing" };
	struct transfer_status st;
	batch_id_t a, b;

	CHECK(allocateBatchID(NULL, 1) == INVALID_BATCH);
	CHECK(allocateBatchID(engine, (size_t)1 << 40) == INVALID_BATCH);
	a = allocateBatchID(engine, 2);
	CHECK(a != INVALID_BATCH && a != 0);
	CHECK(submitTransfer(engine, a, r, 3) == 2);		/* too many requests: none is accepted */
	CHECK(getTransferStatus(engine, a, 0, &st) == 1);
	CHECK(submitTransfer(engine, a, r, SIZE_MAX) == 2);
	CHECK(allocateBatchID(engine, (size_t)1 << 32) == INVALID_BATCH);
	CHECK(submitTransfer(engine, a, r, (size_t)1 << 32) == 2 &&
	      submitTransfer(engine, a, r, ((size_t)1 << 32) + 1) == 2);
	CHECK(submitTransfer(engine, a, NULL, 1) == 1 && submitTransfer(NULL, a, r, 1) == 1);
	CHECK(submitTransfer(engine, a, r, 0) == 0 && submitTransferWithNotify(engine, a, r, 0, note) == 1);
	CHECK(submitTransfer(engine, a, r, 1) == 0 && submitTransfer(engine, a, r, 1) == 0);
	CHECK(submitTransfer(engine, a, r, 1) == 2);
	CHECK(submitTransferWithNotify(engine, a, r, 1, bare) == 1);
	CHECK(getTransferStatus(engine, a, 1, &st) == 0 && st.status == STATUS_COMPLETED);
	CHECK(getTransferStatus(engine, a, 2, &st) == 1);
	CHECK(getTransferStatus(engine, a, SIZE_MAX, &st) == 1);
	CHECK(getTransferStatus(engine, a, 0, NULL) == 1);
	CHECK(freeBatchID(engine, a) == 0);
	/* use after free, also when the batch's slot is reused */
	CHECK(freeBatchID(engine, a) == 1 && submitTransfer(engine, a, r, 1) == 1);
	CHECK(getTransferStatus(engine, a, 0, &st) == 1);
	b = allocateBatchID(engine, 2);
	CHECK(b != INVALID_BATCH && a != b);
	CHECK(freeBatchID(engine, a) == 1 && submitTransfer(engine, a, r, 1) == 1);
	CHECK(freeBatchID(engine, 0) == 1 && freeBatchID(engine, INVALID_BATCH) == 1);
	CHECK(freeBatchID(engine, 12345) == 1 && freeBatchID(engine, b ^ (1ull << 40)) == 1);
	CHECK(freeBatchID(engine, b ^ (1u << 19)) == 1 && freeBatchID(NULL, b) == 1);
	CHECK(mce_te_wait(engine, a, 0) < 0 && mce_te_cancel(engine, a) < 0);
	CHECK(mce_te_batch_eventfd(engine, a) < 0 && mce_te_post(engine, b, NULL) < 0);
	CHECK(freeBatchID(engine, b) == 0);
	b = allocateBatchID(engine, 0);
	CHECK(b != INVALID_BATCH && submitTransfer(engine, b, r, 1) == 2 && freeBatchID(engine, b) == 0);
}

static void notifications(void)
{
	notify_msg_t msg = { (char *)"me", (char *)"hello" }, *got;
	int n = -1;

	CHECK(genNotifyInEngine(engine, 0, msg) == 0 && genNotifyInEngine(engine, 0, msg) == 0);
	CHECK(genNotifyInEngine(engine, 99, msg) == -1 && genNotifyInEngine(engine, 1ull << 40, msg) == -1);
	CHECK(genNotifyInEngine(NULL, 0, msg) == -1);
	got = getNotifsFromEngine(engine, &n);
	CHECK(got && n == 2 && !strcmp(got[1].name, "me") && !strcmp(got[1].msg, "hello"));
	CHECK(freeNotifsMsgBuf(got, n) == 0 && freeNotifsMsgBuf(NULL, 0) == 0);
	got = getNotifsFromEngine(engine, &n);
	CHECK(got && n == 0 && freeNotifsMsgBuf(got, n) == 0);
	CHECK(!getNotifsFromEngine(NULL, &n) && !getNotifsFromEngine(engine, NULL));
}

static void links(void)
{
	char text[4096], small[8];

	CHECK(showLinks(engine, text, sizeof(text), 0) == 0 && strstr(text, "cpu:0"));
	CHECK(showLinks(engine, text, sizeof(text), 1) == 0);
	CHECK(text[0] == '{' && strstr(text, "\"local_nics\"") && strstr(text, "\"topology\""));
	CHECK(strstr(text, "\"local\":{\"requests\":"));
	CHECK(showLinks(engine, small, sizeof(small), 1) == 0 && strlen(small) == sizeof(small) - 1);
	CHECK(showLinks(engine, NULL, 5, 1) == -1 && showLinks(engine, text, 0, 1) == -1);
	CHECK(showLinks(NULL, text, sizeof(text), 1) == -1);
}

int main(void)
{
	unsigned char *all;

	all = malloc(MEM + 4096);
	CHECK(all);
	mem = all + 2048;
	engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1:7", "", 0, 1);
	CHECK(engine);
	engines();
	segments();
	memory();
	memory_without_access();
	ranges();
	batches();
	notifications();
	links();
	destroyTransferEngine(engine);
	free(all);
	return 0;
}
