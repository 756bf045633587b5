/* SPDX-License-Identifier: Apache-2.0
 * perf_te.c - libtransfer_engine between two processes of one host, over its public API: the engine's memory
 * against memcpy, the user's against process_vm_readv and _writev, measured in turns. */
#include <config.h>

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "tests/integ/te_pair.h"
#include "tests/perf/row.h"

#include <mooncake/mce_te.h>

#define WORKING perf_n(128 << 20, 32 << 20)
#define ROUNDS_MAX 7
#define ROUNDS (unsigned)perf_n(ROUNDS_MAX, 1)
#define SMALL 4096u
#define SMALLS_MAX 20000u
#define SMALLS (unsigned)perf_n(SMALLS_MAX, 200)

static int managed;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct mce_te *side(unsigned char **ret)
{
	struct mce_te_conf conf = { .size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = "127.0.0.1" };
	struct mce_te *te;
	void *mem;

	CHECK(mce_te_open(&conf, &te) == 0);
	if (managed) {
		CHECK(mce_te_manage(te, WORKING, -1, &mem) == 0);
	} else {
		mem = malloc(WORKING);
		CHECK(mem && mce_te_register(te, mem, WORKING, "*", 1) == 0);
	}
	memset(mem, 3, WORKING);
	*ret = mem;
	return te;
}

static void target(int from, int to)
{
	struct te_note note = { .len = WORKING };
	unsigned char *mem;
	struct mce_te *te = side(&mem);
	char c;

	snprintf(note.name, sizeof(note.name), "%s", mce_te_name(te));
	note.addr = (uint64_t)(uintptr_t)mem;
	te_tell(to, &note, sizeof(note));
	te_hear(from, &c, 1);
	mce_te_close(te);
	if (!managed)
		free(mem);
}

struct pair {
	struct te_pair p;
	struct mce_te *te;
	unsigned char *mem;
	segment_id_t id;
	uint64_t there;
};

/* As programs do: one batch per transfer. */
static void engine_move(struct pair *x, int opcode, uint64_t at, uint64_t len)
{
	struct transfer_request r = { opcode, x->mem + at, x->id, x->there + at, len };
	batch_id_t b = allocateBatchID(x->te, 1);
	struct transfer_status st;

	CHECK(submitTransfer(x->te, b, &r, 1) == 0);
	do
		CHECK(getTransferStatus(x->te, b, 0, &st) == 0);
	while (st.status == STATUS_WAITING);
	CHECK(st.status == STATUS_COMPLETED && freeBatchID(x->te, b) == 0);
}

/* The comparison: only the copy. */
static void bare_move(struct pair *x, int opcode, uint64_t at, uint64_t len)
{
	struct iovec here = { x->mem + at, len }, there = { (void *)(uintptr_t)(x->there + at), len };

	if (managed)
		memcpy(x->mem + at, x->mem + (at + WORKING / 2) % WORKING, len);
	else if (opcode == OPCODE_READ)
		CHECK(process_vm_readv(x->p.pid, &here, 1, &there, 1, 0) == (ssize_t)len);
	else
		CHECK(process_vm_writev(x->p.pid, &here, 1, &there, 1, 0) == (ssize_t)len);
}

typedef void move_fn(struct pair *x, int opcode, uint64_t at, uint64_t len);

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double latency(struct pair *x, int opcode, move_fn *move)
{
	static double t[SMALLS_MAX];
	const unsigned n = SMALLS;

	for (unsigned i = 0; i < n; i++) {
		double begin = now();

		move(x, opcode, (uint64_t)(i * 37 % 1024) * SMALL, SMALL);
		t[i] = now() - begin;
	}
	qsort(t, n, sizeof(t[0]), by_value);
	return t[n / 2] * 1e6;
}

static double bandwidth(struct pair *x, int opcode, uint64_t len, move_fn *move)
{
	uint64_t set = WORKING;
	double begin = now();

	for (uint64_t at = 0; at + len <= set; at += len)
		move(x, opcode, at, len);
	return (double)(set / len * len) / (now() - begin) / 1e9;
}

static void median(double *v, unsigned n, double *ret)
{
	qsort(v, n, sizeof(*v), by_value);
	*ret = v[n / 2];
}

#define BATCH 1024u

/* BATCH scattered requests of 4 KiB in one batch; microseconds per request. */
static double together(struct pair *x, int opcode)
{
	static struct transfer_request r[BATCH];
	struct mce_te_batch_status st;
	double begin = now();
	batch_id_t b;

	for (unsigned i = 0; i < BATCH; i++) {
		uint64_t at = (uint64_t)(i * 37 % BATCH) * 2 * SMALL;

		r[i] = (struct transfer_request){ opcode, x->mem + at, x->id, x->there + at, SMALL };
	}
	CHECK(mce_te_batch_new(x->te, BATCH, &b) == 0 && mce_te_submit(x->te, b, r, BATCH, NULL) == 0);
	CHECK(mce_te_wait(x->te, b, 60000) == 0 && mce_te_batch_status(x->te, b, &st) == 0);
	CHECK(st.status == STATUS_COMPLETED && mce_te_batch_free(x->te, b) == 0);
	return (now() - begin) / BATCH * 1e6;
}

/* The same ranges one after the other, only the copy. */
static double apart(struct pair *x, int opcode)
{
	double begin = now();

	for (unsigned i = 0; i < BATCH; i++)
		bare_move(x, opcode, (uint64_t)(i * 37 % BATCH) * 2 * SMALL, SMALL);
	return (now() - begin) / BATCH * 1e6;
}

static void batches(struct pair *x, int opcode, const char *what)
{
	double ours[4 * ROUNDS_MAX], theirs[4 * ROUNDS_MAX], us, bare;
	char name[64];

	for (unsigned i = 0; i < 4 * ROUNDS; i++) {
		ours[i] = together(x, opcode);
		theirs[i] = apart(x, opcode);
	}
	median(ours, 4 * ROUNDS, &us);
	median(theirs, 4 * ROUNDS, &bare);
	snprintf(name, sizeof(name), "same host, %s memory, %s 4 KiB x %u", managed ? "managed" : "user",
		 what, BATCH);
	perf_row(name, "each", us, "us");
	perf_row(name, managed ? "each memcpy" : "each call", bare, "us");
}

static void measure(struct pair *x, int opcode, const char *what)
{
	const char *memory = managed ? "managed" : "user", *rival = managed ? "x memcpy" : "x process_vm";
	static const uint64_t sizes[] = { 64 << 10, 1 << 20, 16 << 20 };
	char name[64];
	double ours, theirs;

	ours = latency(x, opcode, engine_move);
	theirs = latency(x, opcode, bare_move);
	snprintf(name, sizeof(name), "same host, %s memory, %s 4 KiB", memory, what);
	perf_row(name, "p50", ours, "us");
	perf_row(name, managed ? "memcpy p50" : "bare p50", theirs, "us");
	batches(x, opcode, what);
	for (unsigned s = 0; s < 3; s++) {
		double rate[ROUNDS_MAX], ratio[ROUNDS_MAX];

		for (unsigned i = 0; i < ROUNDS; i++) {
			rate[i] = bandwidth(x, opcode, sizes[s], engine_move);
			ratio[i] = rate[i] / bandwidth(x, opcode, sizes[s], bare_move);
		}
		median(rate, ROUNDS, &ours);
		median(ratio, ROUNDS, &theirs);
		snprintf(name, sizeof(name), "same host, %s memory, %s %u KiB", memory, what,
			 (unsigned)(sizes[s] >> 10));
		perf_row(name, "rate", ours, "GB/s");
		perf_row(name, rival, theirs, "");
	}
}

int main(void)
{
	for (managed = 1; managed >= 0; managed--) {
		struct te_note note;
		struct pair x;

		te_pair_start(&x.p, target);
		x.te = side(&x.mem);
		te_hear(x.p.from, &note, sizeof(note));
		CHECK(mce_te_open_segment(x.te, note.name, 0, &x.id) == 0);
		x.there = note.addr;
		engine_move(&x, OPCODE_READ, 0, 1);
		measure(&x, OPCODE_READ, "read");
		measure(&x, OPCODE_WRITE, "write");
		te_pair_end(&x.p);
		mce_te_close(x.te);
		if (!managed)
			free(x.mem);
	}
	return 0;
}
