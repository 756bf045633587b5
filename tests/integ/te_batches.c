/* SPDX-License-Identifier: Apache-2.0
 * te_batches.c - calls that mce_te.h adds to upstream's, with a peer in another process over each
 * path: 100,000 scattered requests in one batch, waiting, eventfd, prepared lists, deadlines and
 * cancelling while the peer is stopped, managed memory, memory that is registered again at the same
 * address. */
#include "te_pair.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include <mooncake/mce_te.h>

#define N 100000u
#define PIECE 64u
#define BYTES (N * PIECE * 2ul)

static struct mce_te *open_engine(void)
{
	struct mce_te_conf conf = { .size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = "127.0.0.1" };
	struct mce_te *te;

	CHECK(mce_te_open(&conf, &te) == 0);
	return te;
}

/* Commands of one byte: q end, u unregister, r register again, m check that the memory has the
 * peers' bytes. */
static void serve(int from, int to, int managed)
{
	struct te_note note = { .len = BYTES };
	struct mce_te *te = open_engine();
	void *mem;
	char c;

	if (managed) {
		CHECK(mce_te_manage(te, BYTES, -1, &mem) == 0);
	} else {
		mem = malloc(BYTES);
		CHECK(mem && mce_te_register(te, mem, BYTES, "*", 1) == 0);
	}
	te_fill(mem, BYTES, 5);
	snprintf(note.name, sizeof(note.name), "%s", mce_te_name(te));
	note.addr = (uint64_t)(uintptr_t)mem;
	te_tell(to, &note, sizeof(note));
	for (te_hear(from, &c, 1); c != 'q'; te_hear(from, &c, 1)) {
		if (c == 'u')
			CHECK(mce_te_unregister(te, mem) == 0);
		else if (c == 'r')
			CHECK(mce_te_register(te, mem, BYTES, "*", 1) == 0);
		else if (c == 'm')
			for (size_t i = 0; i < N; i++)
				CHECK(((unsigned char *)mem)[i * 2 * PIECE] == (unsigned char)(i * 3));
		te_tell(to, &c, 1);
	}
	if (managed)
		CHECK(mce_te_unmanage(te, mem) == 0);
	else
		CHECK(mce_te_unregister(te, mem) == 0);
	mce_te_close(te);
	if (!managed)
		free(mem);
}

static void serve_user(int from, int to)
{
	serve(from, to, 0);
}

static void serve_managed(int from, int to)
{
	serve(from, to, 1);
}

static void tell(struct te_pair *p, char c)
{
	char back;

	te_tell(p->to, &c, 1);
	te_hear(p->from, &back, 1);
	CHECK(back == c);
}

/* Every second piece of the peer's memory, from or to a contiguous buffer here. */
static struct transfer_request *scatter(int opcode, unsigned char *here, segment_id_t id, uint64_t there)
{
	struct transfer_request *r = calloc(N, sizeof(*r));

	CHECK(r);
	for (size_t i = 0; i < N; i++) {
		r[i].opcode = opcode;
		r[i].source = here + i * PIECE;
		r[i].target_id = id;
		r[i].target_offset = there + i * 2 * PIECE;
		r[i].length = PIECE;
	}
	return r;
}

static void expect(struct mce_te *te, batch_id_t b, int status, size_t failed)
{
	struct mce_te_batch_status st;

	CHECK(mce_te_batch_status(te, b, &st) == 0);
	CHECK(st.status == status && st.failed == failed && st.ended == st.tasks);
}

static void many(struct mce_te *te, struct te_pair *p, segment_id_t id, uint64_t there)
{
	unsigned char *here = malloc(N * PIECE);
	struct mce_te_batch_status st;
	struct transfer_request *r;
	struct pollfd pfd = { .events = POLLIN };
	batch_id_t b;
	uint64_t n;

	CHECK(here && mce_te_batch_new(te, N, &b) == 0);
	pfd.fd = mce_te_batch_eventfd(te, b);
	CHECK(pfd.fd >= 0 && mce_te_batch_eventfd(te, b) == pfd.fd && poll(&pfd, 1, 0) == 0);
	r = scatter(OPCODE_READ, here, id, there);
	CHECK(mce_te_submit(te, b, r, N, NULL) == 0);
	CHECK(poll(&pfd, 1, 60000) == 1 && read(pfd.fd, &n, sizeof(n)) == sizeof(n) && n == 1);
	CHECK(mce_te_batch_status(te, b, &st) == 0);
	CHECK(st.status == STATUS_COMPLETED && st.ended == N && st.bytes == (uint64_t)N * PIECE);
	for (size_t i = 0; i < N * PIECE; i++) {
		size_t at = i / PIECE * 2 * PIECE + i % PIECE;

		CHECK(here[i] == (unsigned char)(at * 31 + (at >> 8) * 7 + 5));
	}
	CHECK(mce_te_batch_free(te, b) == 0);
	free(r);

	r = scatter(OPCODE_WRITE, here, id, there);
	for (size_t i = 0; i < N; i++)
		here[i * PIECE] = (unsigned char)(i * 3);
	CHECK(mce_te_batch_new(te, N, &b) == 0 && mce_te_submit(te, b, r, N, NULL) == 0);
	CHECK(mce_te_wait(te, b, 60000) == 0);
	expect(te, b, STATUS_COMPLETED, 0);
	tell(p, 'm');
	CHECK(mce_te_batch_free(te, b) == 0);
	free(r);
	free(here);
}

static void prepared(struct mce_te *te, segment_id_t id, uint64_t there)
{
	unsigned char here[4][PIECE];
	struct transfer_request r[4], bad;
	batch_id_t b;

	for (unsigned i = 0; i < 4; i++)
		r[i] = (struct transfer_request){ OPCODE_READ, here[i], id, there + 640 * i, PIECE };
	bad = r[0];
	bad.target_offset = 4096;
	CHECK(mce_te_batch_new(te, 4, &b) == 0);
	CHECK(mce_te_prepare(te, b, &bad, 1) < 0);
	CHECK(mce_te_prepare(te, b, r, 4) == 0 && mce_te_prepare(te, b, r, 1) < 0);
	CHECK(mce_te_submit(te, b, r, 1, NULL) < 0);
	for (unsigned round = 0; round < 100; round++) {
		memset(here, 0, sizeof(here));
		CHECK(mce_te_post(te, b, NULL) == 0 && mce_te_wait(te, b, 20000) == 0);
		expect(te, b, STATUS_COMPLETED, 0);
		CHECK(here[3][1] == (unsigned char)(1921 * 31 + (1921 >> 8) * 7 + 5));
	}
	CHECK(mce_te_batch_free(te, b) == 0);
}

/* An empty list can be posted as it can be submitted.  An eventfd requested after the end reports it too. */
static void prepared_ends(struct mce_te *te, segment_id_t id, uint64_t there)
{
	struct mce_te_submit_opts note = { .size = sizeof(note), .notify_name = "me", .notify_msg = "nothing" };
	struct pollfd pfd = { .events = POLLIN };
	unsigned char here[PIECE];
	struct transfer_request r = { OPCODE_READ, here, id, there, PIECE };
	batch_id_t b;
	uint64_t n;

	CHECK(mce_te_batch_new(te, 0, &b) == 0 && mce_te_prepare(te, b, NULL, 0) == 0);
	CHECK(mce_te_post(te, b, NULL) == 0 && mce_te_wait(te, b, 0) == 0 && mce_te_post(te, b, &note) < 0);
	expect(te, b, STATUS_COMPLETED, 0);
	CHECK(mce_te_batch_free(te, b) == 0);
	CHECK(mce_te_batch_new(te, 1, &b) == 0 && mce_te_prepare(te, b, &r, 1) == 0);
	CHECK(mce_te_post(te, b, NULL) == 0 && mce_te_wait(te, b, 20000) == 0);
	pfd.fd = mce_te_batch_eventfd(te, b);
	CHECK(pfd.fd >= 0 && poll(&pfd, 1, 0) == 1 && read(pfd.fd, &n, sizeof(n)) == sizeof(n) && n == 1);
	CHECK(mce_te_post(te, b, NULL) == 0 && poll(&pfd, 1, 20000) == 1);
	CHECK(mce_te_batch_free(te, b) == 0);
	/* no notification: the batch was only prepared */
	CHECK(mce_te_batch_new(te, 1, &b) == 0 && mce_te_prepare(te, b, &r, 1) == 0);
	pfd.fd = mce_te_batch_eventfd(te, b);
	CHECK(pfd.fd >= 0 && poll(&pfd, 1, 0) == 0);
	CHECK(mce_te_batch_free(te, b) == 0);
}

/* One byte too far at each end, and requests that wrap around: each is refused separately, without
 * writing here; the valid requests in the same batch are carried out. */
static void edges(struct mce_te *te, segment_id_t id, uint64_t there)
{
	enum { GOOD = 3 };
	unsigned char here[10][PIECE];
	const struct { uint64_t at, len; } where[] = {
		{ there, PIECE }, { there + BYTES - PIECE, PIECE }, { there + BYTES - 1, 1 },
		{ there - 1, PIECE }, { there - 1, 1 }, { there + BYTES - PIECE + 1, PIECE }, { there + BYTES, 1 },
		{ UINT64_MAX - PIECE + 1, PIECE }, { UINT64_MAX, 1 }, { there, UINT64_MAX - there + 1 },
	};
	struct transfer_request r[10];
	struct transfer_status st;
	batch_id_t b;

	for (int op = OPCODE_READ; op <= OPCODE_WRITE; op++) {
		memset(here, 0xa5, sizeof(here));
		/* a write sends the bytes that are there already */
		for (unsigned i = 0; op == OPCODE_WRITE && i < GOOD; i++)
			for (size_t j = 0; j < where[i].len; j++) {
				size_t at = (size_t)(where[i].at - there) + j;

				here[i][j] = (unsigned char)(at * 31 + (at >> 8) * 7 + 5);
			}
		/* the last valid request after the invalid ones */
		for (unsigned i = 0; i < 10; i++)
			r[(i + 2) % 10] = (struct transfer_request){ op, here[i], id, where[i].at, where[i].len };
		CHECK(mce_te_batch_new(te, 10, &b) == 0 && mce_te_submit(te, b, r, 10, NULL) == 0);
		CHECK(mce_te_wait(te, b, 60000) == 0);
		for (unsigned i = 0; i < 10; i++) {
			CHECK(mce_te_task_status(te, b, (i + 2) % 10, &st) == 0);
			CHECK(st.status == (i < GOOD ? STATUS_COMPLETED : STATUS_FAILED));
			CHECK(st.transferred_bytes == (i < GOOD ? where[i].len : 0));
			for (size_t j = 0; i >= GOOD && j < PIECE; j++)
				CHECK(here[i][j] == 0xa5);
		}
		for (size_t i = 0; i < GOOD; i++)
			for (size_t j = 0; j < where[i].len; j++) {
				size_t at = (size_t)(where[i].at - there) + j;

				CHECK(here[i][j] == (unsigned char)(at * 31 + (at >> 8) * 7 + 5));
			}
		CHECK(mce_te_batch_free(te, b) == 0);
	}
}

/* The peer's memory gets another key: the old key is looked up again, also for a prepared list. */
static void registered_anew(struct mce_te *te, struct te_pair *p, segment_id_t id, uint64_t there)
{
	unsigned char here[PIECE];
	struct transfer_request r = { OPCODE_READ, here, id, there, PIECE };
	batch_id_t b, c;

	CHECK(mce_te_batch_new(te, 1, &b) == 0 && mce_te_prepare(te, b, &r, 1) == 0);
	tell(p, 'u');
	CHECK(mce_te_post(te, b, NULL) == 0 && mce_te_wait(te, b, 20000) == 0);
	expect(te, b, STATUS_FAILED, 1);
	CHECK(mce_te_batch_new(te, 1, &c) == 0 && mce_te_submit(te, c, &r, 1, NULL) == 0);
	CHECK(mce_te_wait(te, c, 20000) == 0);
	expect(te, c, STATUS_FAILED, 1);
	CHECK(mce_te_batch_free(te, c) == 0);
	tell(p, 'r');
	CHECK(mce_te_post(te, b, NULL) == 0 && mce_te_wait(te, b, 20000) == 0);
	expect(te, b, STATUS_COMPLETED, 0);
	CHECK(mce_te_batch_free(te, b) == 0);
}

/* The peer is stopped: over TCP no transfer ends then without a deadline or cancelling. */
static void stopped(struct mce_te *te, struct te_pair *p, segment_id_t id, uint64_t there)
{
	struct mce_te_submit_opts opts = { .size = sizeof(opts), .deadline_ms = 200 };
	unsigned char *here = malloc(BYTES);
	struct transfer_request r = { OPCODE_READ, here, id, there, BYTES };
	struct transfer_status st;
	batch_id_t b;

	CHECK(here);
	te_pair_stop(p);
	CHECK(mce_te_batch_new(te, 2, &b) == 0 && mce_te_submit(te, b, &r, 1, &opts) == 0);
	CHECK(freeBatchID(te, b) == 4);
	CHECK(mce_te_wait(te, b, 20000) == 0);
	expect(te, b, STATUS_TIMEOUT, 1);
	CHECK(mce_te_batch_free(te, b) == 0);
	CHECK(mce_te_batch_new(te, 2, &b) == 0 && mce_te_submit(te, b, &r, 1, NULL) == 0);
	CHECK(mce_te_wait(te, b, 50) < 0);
	CHECK(getTransferStatus(te, b, 0, &st) == 0 && st.status == STATUS_WAITING);
	CHECK(freeBatchID(te, b) == 4);
	CHECK(mce_te_cancel(te, b) == 0);
	CHECK(getTransferStatus(te, b, 0, &st) == 0 && st.status == STATUS_CANCELED);
	CHECK(freeBatchID(te, b) == 0);
	CHECK(kill(p->pid, SIGCONT) == 0);
	/* and works afterwards as before */
	r.length = PIECE;
	CHECK(mce_te_batch_new(te, 1, &b) == 0 && mce_te_submit(te, b, &r, 1, NULL) == 0);
	CHECK(mce_te_wait(te, b, 20000) == 0);
	expect(te, b, STATUS_COMPLETED, 0);
	CHECK(mce_te_batch_free(te, b) == 0);
	free(here);
}

static bool sleeps(pid_t thread)
{
	char path[64], state = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread);
	f = fopen(path, "re");
	CHECK(f && fscanf(f, "%*d %*s %c", &state) == 1);
	fclose(f);
	return state == 'S';
}

struct cancelling {
	struct mce_te *te;
	batch_id_t b;
	pid_t waiter;
};

static void *cancel_main(void *arg)
{
	const struct cancelling *c = arg;
	struct mce_te_batch_status st;

	/* cancel only after the batch was submitted and its waiter sleeps */
	do {
		CHECK(mce_te_batch_status(c->te, c->b, &st) == 0);
		usleep(1000);
	} while (st.tasks == 0 || !sleeps(c->waiter));
	CHECK(mce_te_cancel(c->te, c->b) == 0);
	return NULL;
}

/* The waiting thread itself receives a small transfer: it also ends at the deadline and when cancelled. */
static void stopped_little(struct mce_te *te, struct te_pair *p, segment_id_t id, uint64_t there)
{
	struct mce_te_submit_opts opts = { .size = sizeof(opts), .deadline_ms = 100 };
	unsigned char here[PIECE];
	struct transfer_request r = { OPCODE_READ, here, id, there, PIECE };
	struct cancelling c = { .te = te, .waiter = gettid() };
	pthread_t thread;
	time_t began;
	batch_id_t b;

	te_pair_stop(p);
	CHECK(mce_te_batch_new(te, 1, &b) == 0 && mce_te_submit(te, b, &r, 1, &opts) == 0);
	CHECK(mce_te_wait(te, b, 60000) == 0);
	expect(te, b, STATUS_TIMEOUT, 1);
	CHECK(mce_te_batch_free(te, b) == 0);
	CHECK(mce_te_batch_new(te, 1, &b) == 0);
	c.b = b;
	CHECK(pthread_create(&thread, NULL, cancel_main, &c) == 0);
	CHECK(mce_te_submit(te, b, &r, 1, NULL) == 0 && mce_te_wait(te, b, 60000) == 0);
	CHECK(pthread_join(thread, NULL) == 0);
	expect(te, b, STATUS_CANCELED, 1);
	CHECK(mce_te_batch_free(te, b) == 0);
	CHECK(mce_te_batch_new(te, 1, &b) == 0 && mce_te_submit(te, b, &r, 1, NULL) == 0);
	began = time(NULL);
	CHECK(mce_te_wait(te, b, 20) < 0 && time(NULL) < began + 15);
	CHECK(kill(p->pid, SIGCONT) == 0 && mce_te_wait(te, b, 60000) == 0);
	expect(te, b, STATUS_COMPLETED, 0);
	CHECK(mce_te_batch_free(te, b) == 0);
}

struct preparing {
	struct mce_te *te;
	batch_id_t b;
	struct transfer_request r;
	pid_t thread;
};

static void *prepare_main(void *arg)
{
	struct preparing *p = arg;

	__atomic_store_n(&p->thread, gettid(), __ATOMIC_RELEASE);
	/* the peer may have registered the memory meanwhile, so prepare asks the peer */
	CHECK(mce_te_prepare(p->te, p->b, &p->r, 1) < 0);
	return NULL;
}

/* While a list is being prepared, its batch accepts no other requests; after a failed prepare it does. */
static void prepared_beside(struct mce_te *te, struct te_pair *p, segment_id_t id, uint64_t there)
{
	unsigned char here[PIECE];
	struct transfer_request r = { OPCODE_READ, here, id, there, PIECE };
	struct preparing c = { .te = te, .r = { OPCODE_READ, here, id, 4096, PIECE } };
	pthread_t thread;
	pid_t tid;

	te_pair_stop(p);
	CHECK(mce_te_batch_new(te, 1, &c.b) == 0);
	CHECK(pthread_create(&thread, NULL, prepare_main, &c) == 0);
	do
		tid = __atomic_load_n(&c.thread, __ATOMIC_ACQUIRE);
	while (!tid || !sleeps(tid));
	CHECK(mce_te_submit(te, c.b, &r, 1, NULL) == -EINVAL);
	CHECK(freeBatchID(te, c.b) == 4);
	CHECK(kill(p->pid, SIGCONT) == 0 && pthread_join(thread, NULL) == 0);
	CHECK(mce_te_submit(te, c.b, &r, 1, NULL) == 0 && mce_te_wait(te, c.b, 60000) == 0);
	expect(te, c.b, STATUS_COMPLETED, 0);
	CHECK(mce_te_batch_free(te, c.b) == 0);
}

static void took(struct mce_te *te, const char *path)
{
	char *text, want[64];

	CHECK(mce_te_links(te, 1, &text) == 0);
	snprintf(want, sizeof(want), "\"%s\":{\"requests\":", path);
	if (!strstr(text, want)) {
		fprintf(stderr, "no request took the path %s: %s\n", path, text);
		exit(1);
	}
	free(text);
}

/* Yama and containers may forbid access between processes. */
static const char *user_path(struct mce_te *te)
{
	char *text;
	int vm;

	CHECK(mce_te_links(te, 1, &text) == 0);
	vm = strstr(text, "\"process_vm\":{\"requests\":") != NULL;
	free(text);
	return vm || access("/proc/sys/kernel/yama/ptrace_scope", F_OK) ? "process_vm" : "tcp";
}

static void with(int managed, int tcp)
{
	struct te_pair p;
	struct te_note note;
	struct mce_te *te;
	uint64_t addr, len;
	segment_id_t id;

	if (tcp)
		setenv("MC_FORCE_TCP", "1", 1);
	te_pair_start(&p, managed ? serve_managed : serve_user);
	te = open_engine();
	te_hear(p.from, &note, sizeof(note));
	CHECK(mce_te_open_segment(te, note.name, 0, &id) == 0);
	CHECK(mce_te_first_buffer(te, id, &addr, &len) == 0 && addr == note.addr && len >= note.len);
	if (!managed)
		edges(te, id, note.addr);
	prepared(te, id, note.addr);
	prepared_ends(te, id, note.addr);
	many(te, &p, id, note.addr);
	if (!managed)
		registered_anew(te, &p, id, note.addr);
	if (tcp) {
		stopped(te, &p, id, note.addr);
		stopped_little(te, &p, id, note.addr);
		prepared_beside(te, &p, id, note.addr);
	}
	took(te, tcp ? "tcp" : managed ? "mapped" : user_path(te));
	te_pair_end(&p);
	mce_te_close(te);
	unsetenv("MC_FORCE_TCP");
}

int main(void)
{
	with(1, 0);
	with(0, 0);
	with(0, 1);
	return 0;
}
