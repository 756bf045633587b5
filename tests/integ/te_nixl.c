/* SPDX-License-Identifier: Apache-2.0
 * te_nixl.c - the sequence of calls of NIXL's plugin: an address of 64 bytes, location "*", a batch
 * of 1,024 per handle, a status per task, a batch freed after success, notifications with and after
 * transfers, never before the data. */
#include "te_pair.h"

#include <time.h>

#define AGENT_BYTES (8u << 20)
#define BLOCKS 1000u
#define BLOCK 4096u
#define LATE_BYTES (64u << 20)

struct agent {
	transfer_engine_t engine;
	unsigned char *mem;
	char name[64];
};

static void agent_open(struct agent *a, unsigned seed)
{
	a->engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
	CHECK(a->engine);
	CHECK(getLocalIpAndPort(a->engine, a->name, sizeof(a->name)) == 0);
	a->mem = malloc(AGENT_BYTES);
	CHECK(a->mem);
	te_fill(a->mem, AGENT_BYTES, seed);
	CHECK(registerLocalMemory(a->engine, a->mem, AGENT_BYTES, "*", 1) == 0);
}

static void agent_close(struct agent *a)
{
	CHECK(unregisterLocalMemory(a->engine, a->mem) == 0);
	free(a->mem);
	destroyTransferEngine(a->engine);
}

/* Wait for a notification as NIXL's progress thread does; at most 20 s. */
static void wait_notif(transfer_engine_t engine, const char *name, const char *msg)
{
	time_t end = time(NULL) + 20;
	notify_msg_t *got;
	int n = 0;

	do {
		got = getNotifsFromEngine(engine, &n);
		CHECK(got);
		if (n == 0)
			freeNotifsMsgBuf(got, 0);
	} while (n == 0 && time(NULL) < end);
	CHECK(n == 1);
	CHECK(!strcmp(got[0].name, name) && !strcmp(got[0].msg, msg));
	CHECK(freeNotifsMsgBuf(got, n) == 0);
}

static void target(int from, int to)
{
	struct te_note note = { .len = AGENT_BYTES };
	struct agent a;
	char c;

	agent_open(&a, 1);
	snprintf(note.name, sizeof(note.name), "%s", a.name);
	note.addr = (uint64_t)(uintptr_t)a.mem;
	te_tell(to, &note, sizeof(note));
	wait_notif(a.engine, "initiator", "written");
	/* The data arrives before the notification. */
	CHECK(te_filled(a.mem, BLOCKS * BLOCK, 2));
	te_tell(to, "w", 1);
	wait_notif(a.engine, "initiator", "bare");
	te_hear(from, &c, 1);
	agent_close(&a);
}

static void wait_tasks(transfer_engine_t engine, batch_id_t batch, size_t n)
{
	struct transfer_status st;

	for (size_t i = 0; i < n; i++) {
		do
			CHECK(getTransferStatus(engine, batch, i, &st) == 0);
		while (st.status == STATUS_WAITING || st.status == STATUS_PENDING);
		CHECK(st.status == STATUS_COMPLETED);
		CHECK(st.transferred_bytes == BLOCK);
	}
}

static void fill_requests(struct transfer_request *r, int opcode, struct agent *a, segment_id_t id,
			  uint64_t remote)
{
	for (unsigned i = 0; i < BLOCKS; i++) {
		r[i].opcode = opcode;
		r[i].source = a->mem + i * BLOCK;
		r[i].target_id = id;
		r[i].target_offset = remote + i * BLOCK;
		r[i].length = BLOCK;
	}
}

/* ---- a notification never arrives before the data, nor when the data is incomplete ----------------- */

static void late_target(int from, int to)
{
	struct te_note note = { .len = LATE_BYTES };
	transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
	unsigned char *mem = calloc(1, LATE_BYTES);
	char c;

	CHECK(engine && mem && getLocalIpAndPort(engine, note.name, sizeof(note.name)) == 0);
	CHECK(registerLocalMemory(engine, mem, LATE_BYTES, "*", 1) == 0);
	note.addr = (uint64_t)(uintptr_t)mem;
	te_tell(to, &note, sizeof(note));
	/* Check the part first that arrives last. */
	wait_notif(engine, "initiator", "all");
	CHECK(te_filled(mem + LATE_BYTES - 4096, 4096, 3) && te_filled(mem, 4096, 3));
	te_hear(from, &c, 1);
	CHECK(unregisterLocalMemory(engine, mem) == 0);
	destroyTransferEngine(engine);
	free(mem);
}

static void late_submit(transfer_engine_t engine, struct transfer_request *r, const char *text, int status)
{
	notify_msg_t msg = { (char *)"initiator", (char *)text };
	batch_id_t batch = allocateBatchID(engine, 2);
	struct transfer_status st;

	CHECK(batch != INVALID_BATCH && submitTransferWithNotify(engine, batch, r, 2, msg) == 0);
	for (unsigned i = 0; i < 2; i++) {
		do
			CHECK(getTransferStatus(engine, batch, i, &st) == 0);
		while (st.status == STATUS_WAITING || st.status == STATUS_PENDING);
		CHECK(st.status == (i ? STATUS_COMPLETED : status));
	}
	CHECK(freeBatchID(engine, batch) == 0);
}

/* These bytes take longer over TCP than the notification. */
static void late(void)
{
	unsigned char *mem = malloc(LATE_BYTES);
	struct transfer_request r[2];
	transfer_engine_t engine;
	struct te_pair pair;
	struct te_note note;
	segment_id_t id;

	setenv("MC_FORCE_TCP", "1", 1);
	te_pair_start(&pair, late_target);
	engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
	te_hear(pair.from, &note, sizeof(note));
	id = openSegment(engine, note.name);
	CHECK(engine && mem && id > 0);
	te_fill(mem, LATE_BYTES, 0);
	te_fill(mem, 4096, 3);
	te_fill(mem + LATE_BYTES - 4096, 4096, 3);
	r[0] = (struct transfer_request){ OPCODE_WRITE, mem, id, note.addr + LATE_BYTES, 8 };
	r[1] = (struct transfer_request){ OPCODE_WRITE, mem, id, note.addr + 4096, 8 };
	late_submit(engine, r, "not all", STATUS_FAILED);
	r[0] = (struct transfer_request){ OPCODE_WRITE, mem, id, note.addr, LATE_BYTES / 2 };
	r[1] = (struct transfer_request){
		OPCODE_WRITE, mem + LATE_BYTES / 2, id, note.addr + LATE_BYTES / 2, LATE_BYTES / 2,
	};
	late_submit(engine, r, "all", STATUS_COMPLETED);
	te_pair_end(&pair);
	destroyTransferEngine(engine);
	free(mem);
	unsetenv("MC_FORCE_TCP");
}

int main(void)
{
	static struct transfer_request r[BLOCKS];
	notify_msg_t msg = { (char *)"initiator", (char *)"written" };
	struct te_pair pair;
	struct te_note note;
	struct agent a;
	segment_id_t id;
	batch_id_t batch;
	char c;

	te_pair_start(&pair, target);
	agent_open(&a, 2);
	te_hear(pair.from, &note, sizeof(note));
	CHECK(strcmp(note.name, a.name));
	id = openSegment(a.engine, note.name);
	CHECK(id > 0);
	CHECK(openSegment(a.engine, note.name) == id);
	CHECK(openSegment(a.engine, a.name) == LOCAL_SEGMENT);

	/* read the target's bytes into the second half */
	fill_requests(r, OPCODE_READ, &a, id, note.addr);
	for (unsigned i = 0; i < BLOCKS; i++)
		r[i].source = (unsigned char *)r[i].source + AGENT_BYTES / 2;
	batch = allocateBatchID(a.engine, 1024);
	CHECK(batch != INVALID_BATCH);
	CHECK(submitTransfer(a.engine, batch, r, BLOCKS) == 0);
	wait_tasks(a.engine, batch, BLOCKS);
	CHECK(te_filled(a.mem + AGENT_BYTES / 2, BLOCKS * BLOCK, 1));
	CHECK(freeBatchID(a.engine, batch) == 0);

	/* write, with a notification */
	fill_requests(r, OPCODE_WRITE, &a, id, note.addr);
	batch = allocateBatchID(a.engine, 1024);
	CHECK(batch != INVALID_BATCH);
	CHECK(submitTransferWithNotify(a.engine, batch, r, BLOCKS, msg) == 0);
	wait_tasks(a.engine, batch, BLOCKS);
	CHECK(freeBatchID(a.engine, batch) == 0);
	te_hear(pair.from, &c, 1);
	msg.msg = (char *)"bare";
	CHECK(genNotifyInEngine(a.engine, (uint64_t)id, msg) == 0);

	CHECK(closeSegment(a.engine, id) == 0);
	te_pair_end(&pair);
	agent_close(&a);
	late();
	return 0;
}
