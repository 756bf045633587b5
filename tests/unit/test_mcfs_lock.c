/* SPDX-License-Identifier: Apache-2.0
 * test_mcfs_lock.c - locks by key against a model that knows each byte; waiting; locks restored
 * from the handoff table. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "mcfs/handle.h"
#include "mcfs/lock.h"

#define OWNERS 4
#define BYTES 32
#define ROUNDS 30000

/* ---- in place of reply.c ---- */

static int last, answers;
static bool nobody_takes;
static const struct mcfs_op *given_up;

int mcfs_reply_err(struct mcfs_op *op, int err)
{
	last = err;
	answers++;
	return nobody_takes ? -ECANCELED : 0;
}

bool mcfs_op_given_up(const struct mcfs_op *op)
{
	return op == given_up;
}

void mcfs_reply_attend(void)
{
}

/* ---- */

static const struct mcs_key key = { "k", 1 }, other_key = { "l", 1 };
static struct mcfs_locks locks;
static struct mcfs_handle handle[OWNERS];

static int up(void **state)
{
	(void)state;
	mcfs_locks_init(&locks, 4);
	last = 1;
	answers = 0;
	nobody_takes = false;
	given_up = NULL;
	return 0;
}

static int down(void **state)
{
	(void)state;
	assert_int_equal(locks.nwaiting, 0);
	for (unsigned i = 0; i < OWNERS; i++) {
		mcfs_lock_released(&locks, key, &handle[i]);
		mcfs_lock_released(&locks, other_key, &handle[i]);
	}
	assert_false(mcfs_locks_any(&locks));
	mcfs_locks_done(&locks);
	return 0;
}

static struct mcfs_lock_args args_of(bool flock, unsigned owner, int type, uint64_t start, uint64_t end)
{
	return (struct mcfs_lock_args){ .flock = flock, .owner = owner + 100, .type = type, .start = start,
					.end = end, .pid = getpid() };
}

/* The answer; 1: none yet. */
static int asks(struct mcs_key k, struct mcfs_lock_args a, bool waits, struct mcfs_op **ret)
{
	struct mcfs_lock_wait *w = calloc(1, sizeof(*w));

	w->args = a;
	w->op.handle = &handle[a.owner - 100];
	if (ret)
		*ret = &w->op;
	last = 1;
	mcfs_lock_set(&locks, k, w, waits);
	return last;
}

static int sets(unsigned owner, int type, uint64_t start, uint64_t end)
{
	return asks(key, args_of(false, owner, type, start, end), false, NULL);
}

static int flocks(unsigned owner, int type, bool waits)
{
	return asks(key, args_of(true, owner, type, 0, UINT64_MAX), waits, NULL);
}

/* ---- against the model ---- */

static char held[OWNERS][BYTES];	/* 0, 'r', 'w' */

static bool model_set(unsigned owner, int type, unsigned start, unsigned end)
{
	for (unsigned o = 0; o < OWNERS && type != F_UNLCK; o++)
		for (unsigned i = start; i <= end; i++)
			if (o != owner && (held[o][i] == 'w' || (held[o][i] && type == F_WRLCK)))
				return false;
	memset(&held[owner][start], type == F_UNLCK ? 0 : type == F_WRLCK ? 'w' : 'r', end - start + 1);
	return true;
}

static void same_as_the_model(void)
{
	for (unsigned o = 0; o < OWNERS; o++) {
		for (unsigned i = 0; i < BYTES; i++) {
			/* Would a lock of this owner conflict here with another owner's? */
			bool write = false, read = false;

			for (unsigned p = 0; p < OWNERS; p++) {
				write |= p != o && held[p][i];
				read |= p != o && held[p][i] == 'w';
			}
			struct mcfs_lock_args w = args_of(false, o, F_WRLCK, i, i),
				r = args_of(false, o, F_RDLCK, i, i);

			assert_int_equal(mcfs_lock_test(&locks, key, &w), write);
			assert_int_equal(mcfs_lock_test(&locks, key, &r), read);
		}
	}
}

static void random_ranges(unsigned rounds, unsigned *seed)
{
	static const int types[] = { F_RDLCK, F_WRLCK, F_UNLCK };

	for (unsigned i = 0; i < rounds; i++) {
		unsigned owner = (unsigned)rand_r(seed) % OWNERS, a = (unsigned)rand_r(seed) % BYTES,
			b = (unsigned)rand_r(seed) % BYTES, start = a < b ? a : b, end = a < b ? b : a;
		int type = types[(unsigned)rand_r(seed) % 3];

		assert_int_equal(sets(owner, type, start, end), model_set(owner, type, start, end) ? 0 : -EAGAIN);
		if (i % 16 == 0)
			same_as_the_model();
		if (i % 64 == 0) {
			mcfs_lock_flushed(&locks, key, owner + 100);
			memset(held[owner], 0, BYTES);
		}
	}
}

static void ranges_are_those_of_the_model(void **state)
{
	unsigned seed = 4711;

	(void)state;
	memset(held, 0, sizeof(held));
	random_ranges(ROUNDS, &seed);
	/* Adjacent locks are merged, however many were requested. */
	assert_true(locks.n <= OWNERS * BYTES);
}

static void byte_after_byte_is_one_lock(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(sets(0, F_WRLCK, i, i), 0);
	assert_int_equal(locks.n, 1);
	assert_int_equal(sets(0, F_UNLCK, 500, 500), 0);
	assert_int_equal(locks.n, 2);
	assert_int_equal(sets(1, F_RDLCK, 500, 500), 0);
	assert_int_equal(sets(1, F_RDLCK, 499, 500), -EAGAIN);
	assert_int_equal(sets(0, F_WRLCK, 1000, UINT64_MAX), 0);
	assert_int_equal(locks.n, 3);
	assert_int_equal(sets(1, F_RDLCK, UINT64_MAX, UINT64_MAX), -EAGAIN);
}

/* ---- the handoff table ---- */

static void a_book_gives_them_back(void **state)
{
	struct mcfs_handoff_entry e = { .type = MCFS_HANDOFF_HANDLE };
	unsigned seed = 99, n, found = 0;
	uint64_t number = 0;
	int fd;

	(void)state;
	assert_int_equal(mcfs_handoff_new(&fd), 0);
	for (unsigned i = 0; i < OWNERS; i++) {
		handle[i].number = mcfs_handoff_add(&e, &handle[i]);
		assert_true(handle[i].number);
	}
	memset(held, 0, sizeof(held));
	random_ranges(1000, &seed);
	assert_int_equal(flocks(0, F_WRLCK, false), 0);
	n = locks.n;
	/* The daemon dies here, and the next one loads the table. */
	mcfs_locks_done(&locks);
	mcfs_locks_init(&locks, 4);
	mcfs_handoff_close();
	assert_int_equal(mcfs_handoff_load(fd), 0);
	for (unsigned i = 0; i < OWNERS; i++)
		mcfs_handoff_bind(handle[i].number, &handle[i]);
	while ((number = mcfs_handoff_next(number, &e))) {
		if (e.type != MCFS_HANDOFF_LOCK)
			continue;
		found++;
		assert_int_equal(mcfs_lock_restore(&locks, key, mcfs_handoff_at(e.handle), number, &e.lock), 0);
	}
	assert_int_equal(found, n);
	same_as_the_model();
	assert_int_equal(flocks(1, F_RDLCK, false), -EAGAIN);
	random_ranges(1000, &seed);
	for (unsigned i = 0; i < OWNERS; i++)
		mcfs_lock_released(&locks, key, &handle[i]);
	for (number = found = 0; (number = mcfs_handoff_next(number, &e));)
		found += e.type == MCFS_HANDOFF_LOCK;
	assert_int_equal(found, 0);
	for (unsigned i = 0; i < OWNERS; i++)
		handle[i].number = 0;
	mcfs_handoff_close();
	close(fd);
}

/* ---- waiting ---- */

static void the_first_one_gets_it_first(void **state)
{
	(void)state;
	assert_int_equal(flocks(0, F_WRLCK, false), 0);
	assert_int_equal(flocks(1, F_WRLCK, true), 1);
	assert_int_equal(flocks(2, F_RDLCK, true), 1);
	assert_int_equal(flocks(3, F_RDLCK, true), 1);
	answers = 0;
	mcfs_lock_released(&locks, key, &handle[0]);
	assert_int_equal(answers, 1);
	assert_int_equal(last, 0);
	mcfs_lock_released(&locks, key, &handle[1]);
	assert_int_equal(answers, 3);
}

static void both_kinds_are_apart(void **state)
{
	(void)state;
	assert_int_equal(flocks(0, F_WRLCK, false), 0);
	assert_int_equal(sets(1, F_WRLCK, 0, UINT64_MAX), 0);
	mcfs_lock_flushed(&locks, key, 100);
	assert_int_equal(flocks(2, F_RDLCK, false), -EAGAIN);
	assert_int_equal(asks(other_key, args_of(true, 2, F_WRLCK, 0, UINT64_MAX), false, NULL), 0);
}

/* Two owners share a lock and both request it exclusively: they do not wait for each other. */
static void sharing_is_given_up_first(void **state)
{
	(void)state;
	assert_int_equal(flocks(0, F_RDLCK, false), 0);
	assert_int_equal(flocks(1, F_RDLCK, false), 0);
	assert_int_equal(flocks(0, F_WRLCK, true), 1);
	answers = 0;
	assert_int_equal(flocks(1, F_WRLCK, true), 0);
	assert_int_equal(answers, 1);
	mcfs_lock_released(&locks, key, &handle[1]);
	assert_int_equal(answers, 2);
	assert_int_equal(last, 0);
}

static void a_cancelled_waiter_holds_nothing(void **state)
{
	struct mcfs_op *op;

	(void)state;
	assert_int_equal(flocks(0, F_WRLCK, false), 0);
	assert_int_equal(asks(key, args_of(true, 1, F_WRLCK, 0, UINT64_MAX), true, &op), 1);
	given_up = op;
	mcfs_lock_released(&locks, key, &handle[0]);
	assert_int_equal(last, -EINTR);
	given_up = NULL;
	assert_int_equal(flocks(2, F_WRLCK, false), 0);
	/* A waiter whose caller is interrupted at the moment of the answer holds no lock, either. */
	assert_int_equal(flocks(1, F_WRLCK, true), 1);
	nobody_takes = true;
	mcfs_lock_released(&locks, key, &handle[2]);
	nobody_takes = false;
	assert_int_equal(flocks(3, F_WRLCK, false), 0);
}

static void a_deadlock_is_reported(void **state)
{
	(void)state;
	assert_int_equal(sets(0, F_WRLCK, 0, 0), 0);
	assert_int_equal(sets(1, F_WRLCK, 1, 1), 0);
	assert_int_equal(asks(other_key, args_of(false, 2, F_WRLCK, 5, 5), false, NULL), 0);
	assert_int_equal(asks(key, args_of(false, 0, F_WRLCK, 1, 1), true, NULL), 1);
	assert_int_equal(asks(other_key, args_of(false, 1, F_WRLCK, 0, 9), true, NULL), 1);
	assert_int_equal(asks(key, args_of(false, 2, F_WRLCK, 0, 0), true, NULL), -EDEADLK);
	/* Without the cycle the requests wait, and are granted in turn. */
	answers = 0;
	assert_int_equal(asks(other_key, args_of(false, 2, F_UNLCK, 0, 9), false, NULL), 0);
	assert_int_equal(answers, 2);
	mcfs_lock_released(&locks, key, &handle[1]);
	assert_int_equal(answers, 3);
}

static void not_too_many_wait(void **state)
{
	(void)state;
	assert_int_equal(flocks(0, F_WRLCK, false), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(flocks(1, F_WRLCK, true), 1);
	assert_int_equal(flocks(2, F_WRLCK, true), -ENOLCK);
	answers = 0;
	mcfs_locks_hang_up(&locks);
	assert_int_equal(answers, 4);
	assert_int_equal(last, -ENOLCK);
	assert_int_equal(flocks(2, F_WRLCK, true), -ENOLCK);
}

/* The sweep removes requests whose callers were interrupted, although no lock is released. */
static void a_cancelled_waiter_takes_no_slot(void **state)
{
	struct mcfs_op *op;

	(void)state;
	assert_int_equal(flocks(0, F_WRLCK, false), 0);
	assert_int_equal(asks(other_key, args_of(true, 0, F_WRLCK, 0, UINT64_MAX), false, NULL), 0);
	assert_int_equal(flocks(1, F_WRLCK, true), 1);
	assert_int_equal(asks(other_key, args_of(true, 1, F_WRLCK, 0, UINT64_MAX), true, &op), 1);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(flocks(2, F_WRLCK, true), 1);
	assert_int_equal(flocks(3, F_WRLCK, true), -ENOLCK);
	answers = 0;
	mcfs_locks_sweep(&locks);
	assert_int_equal(answers, 0);
	given_up = op;
	mcfs_locks_sweep(&locks);
	given_up = NULL;
	assert_int_equal(answers, 1);
	assert_int_equal(last, -EINTR);
	assert_int_equal(locks.nwaiting, 3);
	/* The lock is still held, and the other requests still wait. */
	assert_int_equal(flocks(3, F_WRLCK, true), 1);
	assert_int_equal(asks(other_key, args_of(true, 2, F_RDLCK, 0, UINT64_MAX), false, NULL), -EAGAIN);
	mcfs_locks_hang_up(&locks);
	assert_int_equal(answers, 6);
}

/* A request that was given up cannot be part of a deadlock, either. */
static void a_cancelled_waiter_waits_for_no_lock(void **state)
{
	struct mcfs_op *op;

	(void)state;
	assert_int_equal(sets(0, F_WRLCK, 0, 0), 0);
	assert_int_equal(sets(1, F_WRLCK, 1, 1), 0);
	assert_int_equal(asks(key, args_of(false, 0, F_WRLCK, 1, 1), true, &op), 1);
	assert_int_equal(asks(key, args_of(false, 1, F_WRLCK, 0, 0), true, NULL), -EDEADLK);
	given_up = op;
	answers = 0;
	/* This is the answer to the request that was given up. */
	assert_int_equal(asks(key, args_of(false, 1, F_WRLCK, 0, 0), true, NULL), -EINTR);
	given_up = NULL;
	assert_int_equal(answers, 1);
	assert_int_equal(locks.nwaiting, 1);
	mcfs_locks_hang_up(&locks);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, up, down)
	const struct CMUnitTest tests[] = {
		TEST(ranges_are_those_of_the_model),
		TEST(byte_after_byte_is_one_lock),
		TEST(a_book_gives_them_back),
		TEST(the_first_one_gets_it_first),
		TEST(both_kinds_are_apart),
		TEST(sharing_is_given_up_first),
		TEST(a_cancelled_waiter_holds_nothing),
		TEST(a_deadlock_is_reported),
		TEST(not_too_many_wait),
		TEST(a_cancelled_waiter_takes_no_slot),
		TEST(a_cancelled_waiter_waits_for_no_lock),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
