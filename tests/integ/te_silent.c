/* SPDX-License-Identifier: Apache-2.0
 * te_silent.c - stopped peers: a request to one waits for its answer, but not once for each batch,
 * nor once for each peer when the engine is closed, and no other request misses its deadline
 * because of it. */
#include "te_pair.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>

#include <mooncake/mce_te.h>

#define BYTES 4096u
#define PEERS 8u
#define BATCHES 40u
/* One after the other they would take 40 and 50 s: the client waits 5 s for each answer. */
#define LIMIT_S 25
#define ROUNDS 5u
/* Whether a woken worker has already taken the second batch is chance, so repeat. */
#define ROWS 10u

static struct mce_te *open_engine(void)
{
	struct mce_te_conf conf = { .size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = "127.0.0.1" };
	struct mce_te *te;

	CHECK(mce_te_open(&conf, &te) == 0);
	return te;
}

static time_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

static void serve(int from, int to)
{
	struct te_note note = { .len = BYTES };
	struct mce_te *te = open_engine();
	static unsigned char mem[BYTES];
	char c;

	CHECK(mce_te_register(te, mem, BYTES, "*", 1) == 0);
	snprintf(note.name, sizeof(note.name), "%s", mce_te_name(te));
	note.addr = (uint64_t)(uintptr_t)mem;
	te_tell(to, &note, sizeof(note));
	te_hear(from, &c, 1);
	mce_te_close(te);
}

static segment_id_t open_peer(struct mce_te *te, struct te_pair *p, struct te_note *note)
{
	segment_id_t id;

	te_hear(p->from, note, sizeof(*note));
	CHECK(mce_te_open_segment(te, note->name, 0, &id) == 0);
	return id;
}

static void go_on(struct te_pair *p)
{
	CHECK(kill(p->pid, SIGCONT) == 0);
	te_pair_end(p);
}

/* Each of many batches fails, and would ask the peer whether it was replaced. */
static void batches(void)
{
	static unsigned char here[BATCHES][64];
	struct mce_te_batch_status st;
	struct te_note note;
	batch_id_t b[BATCHES];
	struct te_pair p;
	struct mce_te *te;
	segment_id_t id;
	time_t began;

	te_pair_start(&p, serve);
	setenv("MC_TCP_PROGRESS_TIMEOUT_SEC", "1", 1);
	te = open_engine();
	id = open_peer(te, &p, &note);
	te_pair_stop(&p);
	began = now();
	for (unsigned i = 0; i < BATCHES; i++) {
		struct transfer_request r = { OPCODE_READ, here[i], id, note.addr, 64 };

		CHECK(mce_te_batch_new(te, 1, &b[i]) == 0 && mce_te_submit(te, b[i], &r, 1, NULL) == 0);
	}
	for (unsigned i = 0; i < BATCHES; i++) {
		CHECK(mce_te_wait(te, b[i], 300000) == 0 && mce_te_batch_status(te, b[i], &st) == 0);
		CHECK(st.status == STATUS_FAILED && mce_te_batch_free(te, b[i]) == 0);
	}
	printf("%u batches: %d s\n", BATCHES, (int)(now() - began));
	CHECK(now() - began < LIMIT_S);
	go_on(&p);
	mce_te_close(te);
	unsetenv("MC_TCP_PROGRESS_TIMEOUT_SEC");
}

/* Number of connections to @name's port that the peer has not accepted yet. */
static unsigned unaccepted(const char *name)
{
	unsigned port, at, state, queue, n = 0;
	char line[512];
	FILE *f = fopen("/proc/net/tcp", "re");

	CHECK(f && sscanf(name, "127.0.0.1:%u", &port) == 1);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%*d: %*x:%x %*x:%*x %x %*x:%x", &at, &state, &queue) == 3 &&
		    at == port && state == 10)
			n = queue;
	fclose(f);
	return n;
}

/* Close the engine while its refresher asks one peer after the other. */
static void closing(void)
{
	struct te_pair p[PEERS];
	struct te_note note[PEERS];
	struct mce_te *te;
	time_t began, end;

	for (unsigned i = 0; i < PEERS; i++)
		te_pair_start(&p[i], serve);
	setenv("MC_TE_METADATA_REFRESH_INTERVAL_SECONDS", "1", 1);
	te = open_engine();
	for (unsigned i = 0; i < PEERS; i++)
		(void)open_peer(te, &p[i], &note[i]);
	for (unsigned i = PEERS; i-- > 0;)
		te_pair_stop(&p[i]);
	end = now() + 60;
	while (!unaccepted(note[0].name) && now() < end)
		usleep(1000);
	began = now();
	mce_te_close(te);
	printf("closed: %d s\n", (int)(now() - began));
	CHECK(now() - began < LIMIT_S);
	for (unsigned i = 0; i < PEERS; i++)
		go_on(&p[i]);
	unsetenv("MC_TE_METADATA_REFRESH_INTERVAL_SECONDS");
}

/* One task for each of several peers, whose addresses are unknown, or that do not answer at known
 * addresses. */
static void read_all(struct mce_te *te, batch_id_t b, const segment_id_t *id, const struct te_note *note,
		     bool unknown, const struct mce_te_submit_opts *opts)
{
	static unsigned char here[PEERS][64];
	struct transfer_request r[PEERS];

	for (unsigned i = 0; i < PEERS; i++)
		r[i] = (struct transfer_request){ OPCODE_READ, here[i], id[i], unknown ? 4096 : note[i].addr, 64 };
	CHECK(mce_te_submit(te, b, r, PEERS, opts) == 0);
}

static void all_are(struct mce_te *te, batch_id_t b, int status)
{
	struct transfer_status st;

	for (unsigned i = 0; i < PEERS; i++)
		CHECK(mce_te_task_status(te, b, i, &st) == 0 && st.status == status);
	CHECK(mce_te_batch_free(te, b) == 0);
}

/* A batch that asks several peers ends: by its deadline, by cancelling, or because the peers are
 * asked in parallel. */
static void several(struct te_pair *p, const struct te_note *note, char what)
{
	struct mce_te_submit_opts opts = { .size = sizeof(opts), .deadline_ms = 3000 };
	bool unknown = what == 'u' || what == 's';
	struct mce_te *te = open_engine();
	segment_id_t id[PEERS];
	time_t began, end;
	batch_id_t b;

	for (unsigned i = 0; i < PEERS; i++)
		CHECK(mce_te_open_segment(te, note[i].name, 0, &id[i]) == 0);
	for (unsigned i = 0; i < PEERS; i++)
		te_pair_stop(&p[i]);
	CHECK(mce_te_batch_new(te, PEERS, &b) == 0);
	began = now();
	read_all(te, b, id, note, unknown, what == 'u' || what == 'r' ? &opts : NULL);
	/* the retry asks; the number of concurrent requests does not matter here */
	end = now() + 60;
	while (what == 'c' && !unaccepted(note[0].name) && now() < end)
		usleep(1000);
	if (what == 'c')
		CHECK(mce_te_cancel(te, b) == 0);
	CHECK(mce_te_wait(te, b, 300000) == 0);
	printf("several %c: %d s\n", what, (int)(now() - began));
	CHECK(now() - began < LIMIT_S);
	all_are(te, b, what == 's' ? STATUS_FAILED : what == 'c' ? STATUS_CANCELED : STATUS_TIMEOUT);
	for (unsigned i = 0; i < PEERS; i++)
		CHECK(kill(p[i].pid, SIGCONT) == 0 && mce_te_probe(te, note[i].name) == 0);
	mce_te_close(te);
}

static int state(struct mce_te *te, batch_id_t b)
{
	struct mce_te_batch_status st;

	CHECK(mce_te_batch_status(te, b, &st) == 0);
	return st.status;
}

/* Batches whose retries ask silent peers keep all workers busy, and more batches wait for them.  A
 * batch with only a notification does not wait behind them, and a waiting batch ends at its
 * deadline. */
static void crowd(struct te_pair *p, const struct te_note *note)
{
	struct mce_te_submit_opts opts = { .size = sizeof(opts), .notify_name = "me", .notify_msg = "done" };
	struct mce_te_submit_opts late = { .size = sizeof(late), .deadline_ms = 3000 };
	struct transfer_request nothing = { .opcode = OPCODE_WRITE, .target_id = LOCAL_SEGMENT };
	static unsigned char here[PEERS + 1][64];
	struct mce_te *te = open_engine();
	batch_id_t b[PEERS], queued, told, untold;
	segment_id_t id[PEERS];
	struct transfer_request r;
	time_t end = now() + 60;
	unsigned busy = 0;

	for (unsigned i = 0; i < PEERS; i++)
		CHECK(mce_te_open_segment(te, note[i].name, 0, &id[i]) == 0);
	for (unsigned i = 0; i < PEERS; i++)
		te_pair_stop(&p[i]);
	for (unsigned i = 0; i < PEERS; i++) {
		r = (struct transfer_request){ OPCODE_READ, here[i], id[i], note[i].addr, 64 };
		CHECK(mce_te_batch_new(te, 1, &b[i]) == 0 && mce_te_submit(te, b[i], &r, 1, NULL) == 0);
	}
	r.source = here[PEERS];
	CHECK(mce_te_batch_new(te, 1, &queued) == 0 && mce_te_submit(te, queued, &r, 1, &late) == 0);
	for (unsigned asked = 0; asked < 4 && now() < end; usleep(1000)) {
		asked = 0;
		for (unsigned i = 0; i < PEERS; i++)
			asked += unaccepted(note[i].name) > 0;
	}
	CHECK(mce_te_batch_new(te, 1, &told) == 0 && mce_te_submit(te, told, &nothing, 1, &opts) == 0);
	CHECK(mce_te_wait(te, told, 300000) == 0 && state(te, told) == STATUS_COMPLETED);
	CHECK(mce_te_wait(te, queued, 300000) == 0 && state(te, queued) == STATUS_TIMEOUT);
	/* not only when a worker was free: then the last batches before them would be about to end too */
	for (unsigned i = 0; i < PEERS; i++)
		busy += state(te, b[i]) == STATUS_WAITING;
	CHECK(busy >= PEERS / 2);
	/* the receiver of the notification does not answer either */
	nothing.target_id = id[0];
	opts.deadline_ms = 500;
	CHECK(mce_te_batch_new(te, 1, &untold) == 0 && mce_te_submit(te, untold, &nothing, 1, &opts) == 0);
	CHECK(mce_te_wait(te, untold, 300000) == 0 && state(te, untold) == STATUS_TIMEOUT);
	for (unsigned i = 0; i < PEERS; i++)
		CHECK(mce_te_wait(te, b[i], 300000) == 0 && state(te, b[i]) == STATUS_FAILED);
	for (unsigned i = 0; i < PEERS; i++)
		CHECK(kill(p[i].pid, SIGCONT) == 0 && mce_te_probe(te, note[i].name) == 0);
	mce_te_close(te);
}

/* Two batches end one right after the other, and one worker is idle.  The second notification does
 * not wait for the first one, which is for a stopped peer. */
static void in_a_row(const struct te_pair *p, const struct te_note *note)
{
	struct mce_te_submit_opts opts = { .size = sizeof(opts), .notify_name = "me", .notify_msg = "done" };
	struct transfer_request own = { .opcode = OPCODE_WRITE, .target_id = LOCAL_SEGMENT }, silent = own;
	struct mce_te *te = open_engine();
	batch_id_t b[3];

	CHECK(mce_te_open_segment(te, note[0].name, 0, &silent.target_id) == 0);
	for (unsigned i = 0; i < 3; i++)
		CHECK(mce_te_batch_new(te, 1, &b[i]) == 0);
	CHECK(mce_te_submit(te, b[0], &own, 1, &opts) == 0 && mce_te_wait(te, b[0], 300000) == 0);
	/* also to give the worker time to become idle */
	CHECK(mce_te_probe(te, note[1].name) == 0);
	te_pair_stop(p);
	CHECK(mce_te_submit(te, b[1], &silent, 1, &opts) == 0 && mce_te_submit(te, b[2], &own, 1, &opts) == 0);
	CHECK(mce_te_wait(te, b[2], 300000) == 0 && state(te, b[1]) == STATUS_WAITING);
	CHECK(kill(p->pid, SIGCONT) == 0 && mce_te_wait(te, b[1], 300000) == 0);
	for (unsigned i = 0; i < 3; i++)
		CHECK(state(te, b[i]) == STATUS_COMPLETED && mce_te_batch_free(te, b[i]) == 0);
	mce_te_close(te);
}

static void all_right(struct mce_te *te, batch_id_t b, unsigned char (*here)[64], bool first)
{
	struct transfer_status st;

	CHECK(mce_te_wait(te, b, 300000) == 0);
	for (unsigned i = 0; i < 2 * PEERS; i++) {
		bool completed = i % 2 || first;

		CHECK(mce_te_task_status(te, b, i, &st) == 0);
		CHECK(st.status == (completed ? STATUS_COMPLETED : STATUS_FAILED));
		for (unsigned k = 0; k < 64; k++)
			CHECK(here[i][k] == (completed ? 0 : 'M'));
	}
	CHECK(mce_te_batch_free(te, b) == 0);
}

/* Without a cache of descriptors, they are fetched once for all requests of a submission or of a
 * prepared list.  The requests alternate between two peers: one is stopped, and later continues,
 * the other one answers. */
static void anew(struct te_pair *p, const struct te_note *note)
{
	static unsigned char here[2 * PEERS][64];
	struct transfer_request r[2 * PEERS];
	struct mce_te *te;
	segment_id_t id[2];
	time_t began;
	batch_id_t b;

	setenv("MC_DISABLE_METACACHE", "1", 1);
	te = open_engine();
	unsetenv("MC_DISABLE_METACACHE");
	for (unsigned i = 0; i < 2; i++)
		CHECK(mce_te_open_segment(te, note[i].name, 0, &id[i]) == 0);
	for (unsigned i = 0; i < 2 * PEERS; i++)
		r[i] = (struct transfer_request){ OPCODE_READ, here[i], id[i % 2], note[i % 2].addr, 64 };
	memset(here, 'M', sizeof(here));
	te_pair_stop(&p[0]);
	began = now();
	CHECK(mce_te_batch_new(te, 2 * PEERS, &b) == 0 && mce_te_submit(te, b, r, 2 * PEERS, NULL) == 0);
	printf("anew: %d s\n", (int)(now() - began));
	CHECK(now() - began < LIMIT_S);
	all_right(te, b, here, false);
	began = now();
	CHECK(mce_te_batch_new(te, 2 * PEERS, &b) == 0 && mce_te_prepare(te, b, r, 2 * PEERS) == -ETIMEDOUT);
	CHECK(now() - began < LIMIT_S);
	CHECK(kill(p[0].pid, SIGCONT) == 0 && mce_te_prepare(te, b, r, 2 * PEERS) == 0);
	CHECK(mce_te_post(te, b, NULL) == 0);
	all_right(te, b, here, true);
	mce_te_close(te);
}

/* The peers are asked by the submission (u with a deadline, s without), and by retries (r with a
 * deadline, c cancelled). */
static void side_by_side(void)
{
	struct te_note note[PEERS];
	struct te_pair p[PEERS];

	for (unsigned i = 0; i < PEERS; i++) {
		te_pair_start(&p[i], serve);
		te_hear(p[i].from, &note[i], sizeof(note[i]));
	}
	setenv("MC_TCP_PROGRESS_TIMEOUT_SEC", "1", 1);
	for (const char *what = "usrc"; *what; what++)
		several(p, note, *what);
	crowd(p, note);
	anew(p, note);
	for (unsigned i = 0; i < ROWS; i++)
		in_a_row(&p[0], note);
	unsetenv("MC_TCP_PROGRESS_TIMEOUT_SEC");
	for (unsigned i = 0; i < PEERS; i++)
		te_pair_end(&p[i]);
}

struct asking {
	struct mce_te *te;
	batch_id_t b;
	struct transfer_request r;
	bool over;
};

static void *ask_main(void *arg)
{
	struct asking *a = arg;

	CHECK(mce_te_submit(a->te, a->b, &a->r, 1, NULL) == 0);
	__atomic_store_n(&a->over, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Submitting to a batch lasts as long as the peer is asked, and its deadline passes meanwhile;
 * another batch ends at its own deadline: returns true if that was before the engine gave up the
 * peer. */
static bool beside(struct mce_te *te, struct te_pair *p, segment_id_t id, const struct te_note *note)
{
	struct mce_te_submit_opts opts = { .size = sizeof(opts), .deadline_ms = 100 };
	unsigned char here[3][64];
	struct asking a = { .te = te, .r = { OPCODE_READ, here[0], id, 4096, 64 } };
	struct transfer_request r = { OPCODE_READ, here[1], id, note->addr, 64 };
	struct transfer_status st;
	pthread_t thread;
	batch_id_t other;
	bool before;

	te_pair_stop(p);
	CHECK(mce_te_batch_new(te, 2, &a.b) == 0 && mce_te_batch_new(te, 1, &other) == 0);
	CHECK(pthread_create(&thread, NULL, ask_main, &a) == 0);
	/* the batch has its task, and the submission asks the peer */
	while (getTransferStatus(te, a.b, 0, &st))
		usleep(1000);
	CHECK(mce_te_submit(te, a.b, &r, 1, &opts) == 0);
	r.source = here[2];
	opts.deadline_ms = 300;
	CHECK(mce_te_submit(te, other, &r, 1, &opts) == 0 && mce_te_wait(te, other, 60000) == 0);
	before = !__atomic_load_n(&a.over, __ATOMIC_ACQUIRE);
	CHECK(mce_te_task_status(te, other, 0, &st) == 0 && (!before || st.status == STATUS_TIMEOUT));
	CHECK(pthread_join(thread, NULL) == 0 && mce_te_wait(te, a.b, 60000) == 0);
	CHECK(mce_te_task_status(te, a.b, 0, &st) == 0 && st.status != STATUS_COMPLETED);
	CHECK(mce_te_task_status(te, a.b, 1, &st) == 0 && st.status != STATUS_COMPLETED);
	CHECK(mce_te_batch_free(te, a.b) == 0 && mce_te_batch_free(te, other) == 0);
	CHECK(kill(p->pid, SIGCONT) == 0 && mce_te_probe(te, note->name) == 0);
	return before;
}

static void deadlines(void)
{
	struct te_note note;
	struct te_pair p;
	struct mce_te *te;
	segment_id_t id;
	unsigned n = 0;

	te_pair_start(&p, serve);
	te = open_engine();
	id = open_peer(te, &p, &note);
	/* on a busy machine the engine may have given up the peer first */
	while (!beside(te, &p, id, &note)) {
		CHECK(++n < ROUNDS);
		CHECK(mce_te_open_segment(te, note.name, MCE_TE_FRESH, &id) == 0);
	}
	te_pair_end(&p);
	mce_te_close(te);
}

int main(void)
{
	setenv("MC_FORCE_TCP", "1", 1);
	deadlines();
	side_by_side();
	batches();
	closing();
	return 0;
}
