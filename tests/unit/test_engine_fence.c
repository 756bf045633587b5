/* SPDX-License-Identifier: Apache-2.0
 * test_engine_fence.c - the owner fences a writer: no byte of an ended session is stored afterwards, over any path,
 * whether it waits in the writer, is on its way, or is being copied. */
#include <config.h>

#include "test_engine_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "engine/engine_i.h"

#define REGION (4u << 20)
#define LEN (256u << 10)

struct pair {
	struct side owner, user;
	struct side *from;		/* the writer */
	struct mce_peer *peer;
	uint8_t nonce[16];
	enum mce_path path;
};

static void pair_open(struct pair *p, enum mce_path path)
{
	struct mce_conf conf = { .force_tcp = path == MCE_PATH_TCP };

	memset(p, 0, sizeof(*p));
	p->path = path;
	side_open(&p->owner, &conf, REGION, MCE_ACCESS_READ | MCE_ACCESS_WRITE, 1);
	p->from = &p->owner;
	if (path != MCE_PATH_LOCAL) {
		side_open(&p->user, &conf, 0, 0, 0);
		p->from = &p->user;
	}
	mce_engine_nonce(p->from->e, p->nonce);
	assert_int_equal(mce_peer_get(p->from->e, mce_engine_endpoint(p->owner.e), &p->peer), 0);
}

static void pair_close(struct pair *p)
{
	mce_peer_put(p->peer);
	if (p->from == &p->user)
		side_close(&p->user);
	side_close(&p->owner);
}

/* Write @byte to the region with a fence number; the status. */
static int write_bytes(struct pair *p, uint64_t fence, char byte)
{
	char *mem = malloc(LEN);
	struct iovec iov = { mem, LEN };
	struct mce_req req = {
		.op = MCE_WRITE, .peer = p->peer, .addr = (uintptr_t)p->owner.mem,
		.rkey = mce_mr_rkey(p->owner.mr), .fence = fence, .iov = &iov, .iovcnt = 1,
	};

	memset(mem, byte, LEN);
	(void)mce_transfer(p->from->e, &req, SECONDS(20));
	free(mem);
	return req.status == 0 && req.path != p->path ? -EDOM : req.status;
}

/* The same, and look at the region. */
static int write_as(struct pair *p, uint64_t fence, char byte)
{
	int r = write_bytes(p, fence, byte);

	for (size_t i = 0; i < LEN && r == 0; i++)
		assert_int_equal(p->owner.mem[i], byte);
	return r;
}

static int fence(struct pair *p, const uint8_t nonce[16], uint64_t upto)
{
	uint64_t until = SECONDS(20);
	int r;

	while ((r = mce_engine_fence(p->owner.e, nonce, upto)) == -EAGAIN && mc_now_ns() < until)
		usleep(1000);
	return r;
}

static void a_fenced_session_writes_no_more(void **state)
{
	static const enum mce_path paths[] = { MCE_PATH_LOCAL, MCE_PATH_MAPPED, MCE_PATH_TCP };
	static const uint8_t other[16] = { 1 };

	for (unsigned i = 0; i < 3; i++) {
		struct pair p;
		int r;

		pair_open(&p, paths[i]);
		mce_engine_set_fence(p.from->e, 5);
		assert_int_equal(write_as(&p, 5, 'a'), 0);
		/* orders about others, and about sessions before this one */
		assert_int_equal(fence(&p, other, 100), 0);
		assert_int_equal(fence(&p, p.nonce, 4), 0);
		assert_int_equal(fence(&p, NULL, 4), 0);
		assert_int_equal(write_as(&p, 5, 'b'), 0);
		assert_int_equal(fence(&p, p.nonce, 5), 0);
		assert_true(write_as(&p, 5, 'c') < 0);
		assert_int_equal(p.owner.mem[0], 'b');
		assert_true(p.path == MCE_PATH_LOCAL || mce_engine_is_fenced(p.from->e));
		/* Reads go on. */
		r = transfer(p.from->e, p.peer, MCE_READ, (uintptr_t)p.owner.mem, mce_mr_rkey(p.owner.mr),
			     (char [1]){ 0 }, 1, NULL);
		assert_int_equal(r, 0);
		/* A new session does both, and its old writes fail in the writer. */
		mce_engine_set_fence(p.from->e, 6);
		assert_false(mce_engine_is_fenced(p.from->e));
		assert_int_equal(write_as(&p, 6, 'd'), 0);
		if (p.path != MCE_PATH_LOCAL)
			assert_int_equal(write_as(&p, 5, 'e'), -ESTALE);
		assert_int_equal(p.owner.mem[0], 'd');
		/* all engines */
		assert_int_equal(fence(&p, NULL, 6), 0);
		assert_true(write_as(&p, 6, 'f') < 0);
		assert_int_equal(p.owner.mem[0], 'd');
		mce_engine_set_fence(p.from->e, 7);
		assert_int_equal(write_as(&p, 7, 'g'), 0);
		pair_close(&p);
	}
}

/* ---- writes that are under way ---- */

struct writer {
	struct pair *p;
	pthread_t thread;
	int status;
};

static void *writer_main(void *arg)
{
	struct writer *w = arg;

	w->status = write_bytes(w->p, 5, 'w');	/* not cmocka's thread */
	return NULL;
}

static void writer_start(struct writer *w, struct pair *p, const char *faults, const char *point)
{
	uint64_t until = SECONDS(20);

	w->p = p;
	assert_int_equal(mc_fault_set(faults), 0);
	assert_int_equal(pthread_create(&w->thread, NULL, writer_main, w), 0);
	while (mc_fault_hits(point) < 1 && mc_now_ns() < until)
		usleep(1000);
	assert_true(mc_fault_hits(point) > 0);
}

/* A copy has begun: the owner does not confirm before it has ended. */
static void a_copy_is_waited_for(void **state)
{
	static const enum mce_path paths[] = { MCE_PATH_LOCAL, MCE_PATH_MAPPED };

	for (unsigned i = 0; i < 2; i++) {
		struct writer w = { 0 };
		struct pair p;

		pair_open(&p, paths[i]);
		mce_engine_set_fence(p.from->e, 5);
		assert_int_equal(write_as(&p, 5, 'a'), 0);
		writer_start(&w, &p, "engine.copy.chunk=delay:300", "engine.copy.chunk");
		assert_int_equal(mce_engine_fence(p.owner.e, p.nonce, 5), -EAGAIN);
		/* also when it is asked for another session that includes this one */
		assert_int_equal(mce_engine_fence(p.owner.e, NULL, 7), -EAGAIN);
		assert_int_equal(fence(&p, p.nonce, 5), 0);
		memset(p.owner.mem, 'o', LEN);
		pthread_join(w.thread, NULL);
		assert_int_equal(mc_fault_set(NULL), 0);
		for (size_t k = 0; k < LEN; k++)
			assert_int_equal(p.owner.mem[k], 'o');
		pair_close(&p);
	}
}

/* Over TCP the owner's end of the connection is closed, whatever the writer still sends. */
static void bytes_on_their_way_are_dropped(void **state)
{
	struct writer w = { 0 };
	struct pair p;

	pair_open(&p, MCE_PATH_TCP);
	mce_engine_set_fence(p.from->e, 5);
	assert_int_equal(write_as(&p, 5, 'a'), 0);
	/* The owner has begun to receive. */
	writer_start(&w, &p, "engine.tcp.serve=delay:100", "engine.tcp.serve");
	assert_int_equal(mce_engine_fence(p.owner.e, p.nonce, 5), 0);
	memset(p.owner.mem, 'o', LEN);
	assert_int_equal(mc_fault_set(NULL), 0);
	pthread_join(w.thread, NULL);
	for (size_t k = 0; k < LEN; k++)
		assert_int_equal(p.owner.mem[k], 'o');
	pair_close(&p);
}

/* A write that waits for its connection when the session changes is not sent under the new number. */
static void a_waiting_write_ends_with_its_session(void **state)
{
	struct writer w = { 0 };
	struct pair p;

	pair_open(&p, MCE_PATH_TCP);
	mce_engine_set_fence(p.from->e, 5);
	assert_int_equal(write_as(&p, 5, 'a'), 0);
	writer_start(&w, &p, "engine.tcp.send=error:EAGAIN", "engine.tcp.send");
	mce_engine_set_fence(p.from->e, 6);
	assert_int_equal(mc_fault_set(NULL), 0);
	pthread_join(w.thread, NULL);
	assert_true(w.status < 0);
	assert_int_equal(p.owner.mem[0], 'a');
	assert_int_equal(write_as(&p, 6, 'b'), 0);
	pair_close(&p);
}

/* More engines are fenced than the owner remembers: the forgotten ones stay fenced. */
static void the_table_of_writers_is_bounded(void **state)
{
	struct pair p;

	pair_open(&p, MCE_PATH_TCP);
	for (uint64_t i = 1; i <= 3 * MCE_WRITERS_MAX; i++) {
		uint64_t nonce[2] = { i, i };

		assert_int_equal(mce_engine_fence(p.owner.e, (uint8_t *)nonce, i), 0);
	}
	for (uint64_t i = 1; i <= 3 * MCE_WRITERS_MAX; i++) {
		uint64_t nonce[2] = { i, i };

		assert_true(mce_writer_is_fenced(p.owner.e, (uint8_t *)nonce, i));
	}
	assert_false(mce_writer_is_fenced(p.owner.e, p.nonce, 3 * MCE_WRITERS_MAX));
	assert_int_equal(mce_engine_largest_fence(p.owner.e), 3 * MCE_WRITERS_MAX);
	pair_close(&p);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fenced_session_writes_no_more),
		cmocka_unit_test(a_copy_is_waited_for),
		cmocka_unit_test(bytes_on_their_way_are_dropped),
		cmocka_unit_test(a_waiting_write_ends_with_its_session),
		cmocka_unit_test(the_table_of_writers_is_bounded),
	};

	owner_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
