/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "mcfs/version.h"
#include "tests/lib/fake_mcs.h"

#define DEADLINE mc_deadline_ms(1000)

struct fixture {
	mcs_t *store;
	struct mcfs_pool *pool;
	struct mcfs_version_env env;
	unsigned told;
	int told_err;
};

static struct fixture *current;

static void on_failed(struct mcfs_version_env *env, const void *key, size_t len, int err,
		      const char *when, pid_t pid)
{
	current->told++;
	current->told_err = err;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	f->store = fake_mcs_new();
	assert_int_equal(mcfs_pool_new(16 * MCFS_SLOT, 4, &f->pool), 0);
	assert_int_equal(mcfs_version_env_init(&f->env, f->store, f->pool), 0);
	f->env.failed = on_failed;
	current = f;
	*state = f;
	return 0;
}

static bool no_writers(struct fixture *f)
{
	MC_LOCKED(&f->env.names);
	return mc_list_empty(&f->env.writers);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	/* A thread of the carrier may be about to let go of one. */
	for (int i = 0; i < 1000 && !no_writers(f); i++)
		usleep(5000);
	assert_true(no_writers(f));
	assert_int_equal(mcfs_pool_staged(f->pool), 0);
	assert_int_equal(fake_mcs_open_objects(f->store), 0);
	mcfs_version_env_done(&f->env);
	mcfs_pool_free(f->pool);
	fake_mcs_free(f->store);
	free(f);
	return 0;
}

static struct mcfs_writer *opened(struct fixture *f, const char *key, unsigned flags)
{
	struct mcs_key k = { key, strlen(key) };
	struct mcfs_writer_args args = {
		.key = key, .len = strlen(key), .flags = flags, .tid = getpid(), .uid = getuid(),
	};
	struct mcfs_writer *w;
	struct mcs_info info;

	if (mcs_stat(f->store, k, &info, 0) == 0) {
		args.generation = info.generation;
		if (!(flags & MCFS_WRITER_FRESH))
			assert_int_equal(mcfs_object_open(f->store, k, DEADLINE, &args.base), 0);
	}
	assert_int_equal(mcfs_writer_new(&f->env, &args, &w), 0);
	mcfs_object_unref(args.base);
	return w;
}

#define created(f, key) opened(f, key, MCFS_WRITER_FRESH)

static void writes(struct mcfs_writer *w, uint64_t at, const char *text)
{
	assert_int_equal(mcfs_writer_write(w, at, text, strlen(text), NULL, getpid(), DEADLINE), 0);
}

static int flushes(struct mcfs_writer *w)
{
	return mcfs_writer_flush(w, getpid(), MCFS_ALIVE, DEADLINE);
}

static int releases(struct mcfs_writer *w, enum mcfs_fate fate)
{
	int r = mcfs_writer_release(w, fate, DEADLINE);

	mcfs_writer_unref(w);
	return r;
}

/* @text NULL: the key does not exist. */
static void stored(struct fixture *f, const char *key, const char *text)
{
	struct mcs_key k = { key, strlen(key) };
	void *data;
	int64_t n = mcs_get_alloc(f->store, k, &data, 0);

	if (!text) {
		assert_int_equal(n, -MCS_ENOOBJECT);
		return;
	}
	assert_int_equal(n, strlen(text));
	assert_memory_equal(data, text, strlen(text));
	free(data);
}

static void put(struct fixture *f, const char *key, const char *text)
{
	struct iovec iov = { (void *)(uintptr_t)text, strlen(text) };
	struct mcs_put_opts opts = { .flags = MCS_PUT_UPSERT };

	assert_int_equal(mcs_put(f->store, (struct mcs_key){ key, strlen(key) }, &iov, 1, &opts, 0), 0);
}

static void a_close_publishes_once(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	/* dup2 and close, as shells do before the program runs */
	assert_int_equal(flushes(w), 0);
	stored(f, "k", NULL);
	assert_true(mcfs_writer_pending(w));
	writes(w, 0, "hello");
	stored(f, "k", NULL);
	assert_int_equal(flushes(w), 0);
	stored(f, "k", "hello");
	assert_false(mcfs_writer_pending(w));
	assert_int_equal(flushes(w), 0);
	assert_int_equal(releases(w, MCFS_GONE), 0);
	assert_int_equal(fake_mcs_puts(f->store), 1);
}

static void other_processes_do_not_commit(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	writes(w, 0, "one ");
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_EXITED, DEADLINE), 0);
	stored(f, "k", NULL);
	writes(w, 4, "two");
	assert_int_equal(mcfs_writer_flush(w, getpid(), MCFS_EXITED, DEADLINE), 0);
	stored(f, "k", "one two");
	assert_int_equal(releases(w, MCFS_EXITED), 0);
	assert_int_equal(fake_mcs_puts(f->store), 1);
}

static void a_killed_writer_is_revoked(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	writes(w, 0, "half");
	assert_int_equal(mcfs_writer_flush(w, getpid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(mcfs_pool_staged(f->pool), 0);
	assert_int_equal(mcfs_writer_write(w, 4, "x", 1, NULL, getpid(), DEADLINE), -EIO);
	assert_int_equal(releases(w, MCFS_DIED), 0);
	stored(f, "k", NULL);
}

static void a_killed_rewriter_leaves_the_old_version(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w;

	put(f, "k", "old");
	w = opened(f, "k", MCFS_WRITER_FRESH);
	writes(w, 0, "new and lon");
	assert_int_equal(mcfs_writer_flush(w, getpid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(releases(w, MCFS_GONE), 0);
	stored(f, "k", "old");
}

static void what_is_written_after_a_close_is_the_next_version(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	writes(w, 0, "first");
	assert_int_equal(flushes(w), 0);
	writes(w, 5, " second");
	stored(f, "k", "first");
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored(f, "k", "first second");
}

static void stores_of_a_killed_mapper_are_dropped(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	writes(w, 0, "first");
	assert_int_equal(flushes(w), 0);
	assert_int_equal(mcfs_writer_write(w, 0, "F", 1, NULL, 0, DEADLINE), 0);
	assert_int_equal(releases(w, MCFS_GONE), 0);
	stored(f, "k", "first");

	w = opened(f, "k", 0);
	assert_int_equal(mcfs_writer_write(w, 0, "F", 1, NULL, 0, DEADLINE), 0);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored(f, "k", "First");
}

static void a_killed_heir_is_not_trusted(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	assert_int_equal(mcfs_writer_write(w, 0, "half", 4, NULL, getppid(), DEADLINE), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(releases(w, MCFS_GONE), 0);
	stored(f, "k", NULL);

	/* Nor when the opener, a wrapper of the command, closes the file properly. */
	w = created(f, "k");
	assert_int_equal(mcfs_writer_write(w, 0, "half", 4, NULL, getppid(), DEADLINE), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(flushes(w), -EIO);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored(f, "k", NULL);

	/* A bystander that is killed has nothing to do with it, and who goes on writing answers for it. */
	w = created(f, "k");
	writes(w, 0, "whole");
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(flushes(w), 0);
	stored(f, "k", "whole");
	assert_int_equal(mcfs_writer_write(w, 5, "!", 1, NULL, getppid(), DEADLINE), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
	writes(w, 6, "?");
	assert_int_equal(flushes(w), 0);
	stored(f, "k", "whole!?");
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
}

static void an_untouched_file_is_empty(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	assert_int_equal(flushes(w), 0);
	assert_int_equal(releases(w, MCFS_GONE), 0);
	stored(f, "k", "");

	/* One that was given a value meanwhile keeps it. */
	w = created(f, "j");
	put(f, "j", "value");
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored(f, "j", "value");
}

static void a_truncated_file_is_empty_unless_replaced(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w;

	put(f, "k", "old");
	w = opened(f, "k", MCFS_WRITER_FRESH);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored(f, "k", "");

	put(f, "k", "old");
	w = opened(f, "k", MCFS_WRITER_FRESH);
	put(f, "k", "newer");
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored(f, "k", "newer");
}

static bool ends(struct mcfs_writer *w, enum mcfs_fate fate)
{
	bool dropped = mcfs_writer_end(w, fate, DEADLINE);

	mcfs_writer_unref(w);
	return dropped;
}

static void what_may_be_open_at_the_end_is_dropped(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	writes(w, 0, "half");
	assert_true(ends(w, MCFS_GONE));
	stored(f, "k", NULL);
	/* flushed, and written on */
	w = created(f, "k");
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_ALIVE, DEADLINE), 0);
	assert_int_equal(mcfs_writer_write(w, 0, "half", 4, NULL, getppid(), DEADLINE), 0);
	assert_true(ends(w, MCFS_GONE));
	stored(f, "k", NULL);
	/* a part of it closed by a child, before the next child begins */
	w = created(f, "k");
	assert_int_equal(mcfs_writer_write(w, 0, "half", 4, NULL, getppid(), DEADLINE), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_EXITED, DEADLINE), 0);
	assert_true(ends(w, MCFS_ALIVE));
	stored(f, "k", NULL);
	/* truncated, and the program has not begun */
	put(f, "old", "old");
	w = created(f, "old");
	assert_int_equal(flushes(w), 0);
	assert_true(ends(w, MCFS_ALIVE));
	stored(f, "old", "old");
	/* never closed but by a child */
	w = created(f, "k");
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_EXITED, DEADLINE), 0);
	assert_true(ends(w, MCFS_ALIVE));
	stored(f, "k", NULL);
}

static void what_is_closed_at_the_end_is_published(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "empty");

	assert_int_equal(flushes(w), 0);
	assert_false(ends(w, MCFS_ALIVE));
	stored(f, "empty", "");
	w = created(f, "k");
	assert_int_equal(flushes(w), 0);
	assert_int_equal(mcfs_writer_write(w, 0, "whole", 5, NULL, getppid(), DEADLINE), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_EXITED, DEADLINE), 0);
	assert_false(ends(w, MCFS_GONE));
	stored(f, "k", "whole");
}

static void appends_go_to_the_end(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w;

	put(f, "k", "abc");
	w = opened(f, "k", 0);
	writes(w, MCFS_AT_THE_END, "def");
	writes(w, MCFS_AT_THE_END, "ghi");
	/* One that is sent again, because it was answered EINTR, is there once. */
	writes(w, 9, "jkl");
	writes(w, 9, "jkl");
	assert_int_equal(flushes(w), 0);
	stored(f, "k", "abcdefghijkl");
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
}

static void two_writers_do_not_mix(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *a = created(f, "k"), *b = created(f, "k");

	writes(a, 0, "aaaa");
	writes(b, 0, "bb");
	assert_int_equal(flushes(a), 0);
	stored(f, "k", "aaaa");
	assert_int_equal(flushes(b), 0);
	stored(f, "k", "bb");
	assert_int_equal(releases(a, MCFS_ALIVE), 0);
	assert_int_equal(releases(b, MCFS_ALIVE), 0);
	stored(f, "k", "bb");
}

static void exclusive_creation_holds_until_the_commit(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = opened(f, "k", MCFS_WRITER_FRESH | MCFS_WRITER_EXCL);

	writes(w, 0, "mine");
	put(f, "k", "theirs");
	assert_int_equal(flushes(w), -MCS_EEXISTS);
	assert_int_equal(f->told, 1);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored(f, "k", "theirs");

	w = opened(f, "j", MCFS_WRITER_FRESH | MCFS_WRITER_EXCL);
	writes(w, 0, "1");
	assert_int_equal(flushes(w), 0);
	writes(w, 1, "2");
	assert_int_equal(flushes(w), 0);
	stored(f, "j", "12");
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
}

static void a_failed_write_is_never_published(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	f->env.max_size = 10;
	writes(w, 0, "123456789");
	assert_int_equal(mcfs_writer_write(w, 9, "ab", 2, NULL, getpid(), DEADLINE), -EFBIG);
	assert_int_equal(mcfs_writer_write(w, 9, "a", 1, NULL, getpid(), DEADLINE), -EIO);
	assert_int_equal(flushes(w), -EFBIG);
	assert_int_equal(flushes(w), -EFBIG);
	stored(f, "k", NULL);
	/* Beginning anew is allowed. */
	assert_int_equal(mcfs_writer_truncate(w, 0), 0);
	writes(w, 0, "short");
	assert_int_equal(flushes(w), 0);
	stored(f, "k", "short");
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
}

static void a_truncation_after_a_failed_close_is_published(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w;
	char buf[8];

	put(f, "k", "old");
	w = opened(f, "k", 0);
	writes(w, 0, "new");
	assert_int_equal(mcfs_writer_read(w, 0, buf, sizeof(buf), DEADLINE), 3);
	f->env.max_size = 10;
	assert_int_equal(mcfs_writer_write(w, 9, "ab", 2, NULL, getpid(), DEADLINE), -EFBIG);
	/* It is not shorter than it was. */
	assert_int_equal(mcfs_writer_read(w, 0, buf, sizeof(buf), DEADLINE), -EIO);
	assert_int_equal(flushes(w), -EFBIG);
	assert_int_equal(mcfs_writer_read(w, 0, buf, sizeof(buf), DEADLINE), -EIO);
	assert_int_equal(mcfs_writer_truncate(w, 5), -EFBIG);
	assert_int_equal(mcfs_writer_truncate(w, 0), 0);
	assert_int_equal(mcfs_writer_read(w, 0, buf, sizeof(buf), DEADLINE), 0);
	assert_int_equal(flushes(w), 0);
	stored(f, "k", "");
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
}

static void a_failed_commit_is_told_and_final(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	writes(w, 0, "x");
	fake_mcs_fail_puts(f->store, 1, -MCS_ENOSPACE);
	assert_int_equal(flushes(w), -MCS_ENOSPACE);
	assert_int_equal(f->told, 1);
	assert_int_equal(f->told_err, -MCS_ENOSPACE);
	assert_int_equal(mcfs_writer_sync(w, DEADLINE), -MCS_ENOSPACE);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored(f, "k", NULL);
	assert_int_equal(f->told, 1);
}

static void a_failed_release_is_told(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	fake_mcs_fail_puts(f->store, 1, -MCS_ERPC);
	assert_int_equal(releases(w, MCFS_ALIVE), -MCS_ERPC);
	assert_int_equal(f->told, 1);
	stored(f, "k", NULL);
}

static void fsync_commits(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	writes(w, 0, "one");
	assert_int_equal(mcfs_writer_sync(w, DEADLINE), 0);
	stored(f, "k", "one");
	writes(w, 3, "two");
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored(f, "k", "onetwo");
}

static void an_unlinked_file_publishes_nothing(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");
	char buf[8];

	writes(w, 0, "x");
	assert_true(mcfs_writer_unlink(w));
	assert_false(mcfs_writer_pending(w));
	assert_int_equal(flushes(w), 0);
	writes(w, 1, "y");
	assert_int_equal(mcfs_writer_read(w, 0, buf, sizeof(buf), DEADLINE), 2);
	assert_int_equal(mcfs_writer_sync(w, DEADLINE), 0);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored(f, "k", NULL);
}

static void a_name_that_was_not_removed_is_published(void **state)
{
	struct mcfs_writer *w = created(*state, "k");

	assert_true(mcfs_writer_unlink(w));
	assert_false(mcfs_writer_unlink(w));
	mcfs_writer_relink(w);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored(*state, "k", "");
}

static void a_rename_publishes_under_the_new_name(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "tmp");

	put(f, "final", "old");
	writes(w, 0, "new");
	assert_int_equal(mcfs_writer_rename(w, "final", 5, true, true, DEADLINE), -MCS_EEXISTS);
	assert_int_equal(mcfs_writer_rename(w, "final", 5, true, false, DEADLINE), 1);
	stored(f, "final", "new");
	stored(f, "tmp", NULL);
	assert_int_equal(flushes(w), 0);
	assert_int_equal(fake_mcs_puts(f->store), 2);
	/* And goes on there. */
	writes(w, 3, "er");
	assert_int_equal(flushes(w), 0);
	stored(f, "final", "newer");
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
}

static void a_rename_behind_a_commit_changes_nothing(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "tmp"), *found[2];

	writes(w, 0, "new");
	assert_int_equal(mcfs_writer_sync(w, DEADLINE), 0);
	assert_int_equal(mcfs_writer_rename(w, "final", 5, true, false, DEADLINE), 0);
	stored(f, "tmp", "new");
	stored(f, "final", NULL);
	assert_int_equal(mcfs_writers_of(&f->env, "final", 5, found, 2), 0);
	assert_int_equal(mcfs_writers_of(&f->env, "tmp", 3, found, 2), 1);
	mcfs_writer_unref(found[0]);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
}

static void a_carried_writer_publishes_later(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "log"), *found[2];

	writes(w, 0, "line");
	assert_int_equal(mcfs_writer_rename(w, "log.1", 5, false, false, DEADLINE), 0);
	stored(f, "log.1", NULL);
	assert_int_equal(mcfs_writers_of(&f->env, "log", 3, found, 2), 0);
	assert_int_equal(mcfs_writers_of(&f->env, "log.1", 5, found, 2), 1);
	assert_ptr_equal(found[0], w);
	mcfs_writer_unref(found[0]);
	assert_true(mcfs_writers_below(&f->env, "log", 3));
	assert_false(mcfs_writers_below(&f->env, "dir/", 4));
	assert_int_equal(flushes(w), 0);
	stored(f, "log.1", "line");
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
}

static void sizes_are_limited(void **state)
{
	struct fixture *f = *state;
	struct mcfs_writer *w = created(f, "k");

	f->env.max_size = 100;
	assert_int_equal(mcfs_writer_truncate(w, 101), -EFBIG);
	assert_int_equal(mcfs_writer_allocate(w, 101, true), -EFBIG);
	assert_int_equal(mcfs_writer_allocate(w, 50, true), 0);
	assert_int_equal(w->stage.size, 0);
	assert_int_equal(mcfs_writer_allocate(w, 50, false), 0);
	assert_int_equal(w->stage.size, 50);
	assert_int_equal(mcfs_writer_write(w, UINT64_MAX - 1, "ab", 2, NULL, getpid(), DEADLINE), -EFBIG);
	mcfs_writer_revoke(w);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
}

struct race {
	struct mcfs_pool *pool;
	int charged;
};

static void *charge(void *arg)
{
	struct race *r = arg;

	r->charged = mcfs_pool_charge(r->pool, 16, mc_deadline_ms(10000));
	return NULL;
}

/* Memory of a put under way is waited for; without one there is nothing to wait for. */
static void staging_waits_for_puts(void **state)
{
	struct fixture *f = *state;
	struct race race = { f->pool, 1 };
	pthread_t thread;

	assert_int_equal(mcfs_pool_charge(f->pool, 16, DEADLINE), 0);
	assert_int_equal(mcfs_pool_charge(f->pool, 1, mc_deadline_ms(60000)), -ENOSPC);
	mcfs_pool_put_begin(f->pool);
	assert_int_equal(pthread_create(&thread, NULL, charge, &race), 0);
	mcfs_pool_uncharge(f->pool, 16);
	pthread_join(thread, NULL);
	assert_int_equal(race.charged, 0);
	mcfs_pool_put_end(f->pool);
	mcfs_pool_uncharge(f->pool, 16);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

/* ---- files that are carried while they are written ---- */

#define CARRIED (12 * MCFS_SLOT + 12345)

/* Bytes of a file that differ from slot to slot. */
static char *large_file(void)
{
	char *data = malloc(CARRIED);

	for (size_t i = 0; i < CARRIED; i++)
		data[i] = (char)(i * 7 + i / MCFS_SLOT);
	return data;
}

static void write_some(struct mcfs_writer *w, const char *data, size_t from, size_t to)
{
	for (size_t at = from; at < to; at += MCFS_SLOT / 2) {
		size_t n = to - at < MCFS_SLOT / 2 ? to - at : MCFS_SLOT / 2;

		assert_int_equal(mcfs_writer_write(w, at, data + at, n, NULL, getpid(), DEADLINE), 0);
	}
}

static void stored_bytes(struct fixture *f, const char *key, const char *want, size_t len)
{
	void *data;

	assert_int_equal(mcs_get_alloc(f->store, (struct mcs_key){ key, strlen(key) }, &data, 0), len);
	assert_memory_equal(data, want, len);
	free(data);
}

/* So much has gone to streams by itself. */
static void carried(struct fixture *f, uint64_t bytes)
{
	for (int i = 0; i < 2000 && fake_mcs_stream_bytes(f->store) < bytes; i++)
		usleep(5000);
	assert_true(fake_mcs_stream_bytes(f->store) >= bytes);
}

/* All of it is carried but its end, which is no whole slot.  What begins with the last write knows the size and has
 * room for that end, too; with room for 12 slots, no more and no less, the file is put as a whole. */
static void write_carried(struct fixture *f, struct mcfs_writer *w, const char *data)
{
	write_some(w, data, 0, 12 * MCFS_SLOT);
	mcfs_carrier_set_capacity(f->env.carrier, 1ull << 34);
	write_some(w, data, 12 * MCFS_SLOT, CARRIED);
	carried(f, 12 * MCFS_SLOT);
}

static void large_files_are_carried_before_the_close(void **state)
{
	struct fixture *f = *state;
	char *data = large_file();
	struct mcfs_writer *w = created(f, "k");

	write_carried(f, w, data);
	stored(f, "k", NULL);
	assert_int_equal(flushes(w), 0);
	stored_bytes(f, "k", data, CARRIED);
	assert_int_equal(fake_mcs_streamed(f->store), 1);
	/* What follows is another version, put as a whole. */
	memset(data, 1, MCFS_SLOT);
	write_some(w, data, 0, MCFS_SLOT);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored_bytes(f, "k", data, CARRIED);
	assert_int_equal(fake_mcs_open_streams(f->store), 0);
	free(data);
}

static void what_changes_after_it_was_carried_goes_again(void **state)
{
	struct fixture *f = *state;
	char *data = large_file();
	struct mcfs_writer *w = created(f, "k");
	const size_t cut = 9 * MCFS_SLOT + 100;

	write_carried(f, w, data);
	memset(data + MCFS_SLOT - 10, 0x33, 20);
	assert_int_equal(mcfs_writer_write(w, MCFS_SLOT - 10, data + MCFS_SLOT - 10, 20, NULL, getpid(),
					   DEADLINE), 0);
	/* Shorter, and longer again: zeros in between. */
	assert_int_equal(mcfs_writer_truncate(w, cut), 0);
	assert_int_equal(mcfs_writer_truncate(w, CARRIED), 0);
	memset(data + cut, 0, CARRIED - cut);
	assert_int_equal(flushes(w), 0);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored_bytes(f, "k", data, CARRIED);
	assert_int_equal(fake_mcs_streamed(f->store), 1);
	free(data);
}

static void what_cannot_be_carried_is_put(void **state)
{
	struct fixture *f = *state;
	char *data = large_file();
	struct mcfs_writer *w = created(f, "k");

	mcfs_carrier_set_capacity(f->env.carrier, 1ull << 34);
	fake_mcs_fail_streams(f->store, 1, -EIO);
	write_some(w, data, 0, CARRIED);
	assert_int_equal(flushes(w), 0);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored_bytes(f, "k", data, CARRIED);
	assert_int_equal(fake_mcs_streamed(f->store), 0);
	assert_int_equal(fake_mcs_open_streams(f->store), 0);
	/* Under another name, the stream of the old one is of no use. */
	w = created(f, "a");
	write_some(w, data, 0, CARRIED);
	assert_int_equal(mcfs_writer_rename(w, "b", 1, true, false, DEADLINE), 1);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored(f, "a", NULL);
	stored_bytes(f, "b", data, CARRIED);
	/* And a writer that was killed leaves nothing. */
	w = created(f, "c");
	write_some(w, data, 0, CARRIED);
	assert_int_equal(mcfs_writer_flush(w, getpid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(releases(w, MCFS_DIED), 0);
	stored(f, "c", NULL);
	assert_int_equal(fake_mcs_open_streams(f->store), 0);
	free(data);
}

static void room_ahead_is_given_up_for_a_put(void **state)
{
	struct fixture *f = *state;
	char *data = large_file();
	struct mcfs_writer *w = created(f, "k"), *other = created(f, "other");

	write_carried(f, w, data);
	fake_mcs_fail_puts(f->store, 1, -ENOSPC);
	writes(other, 0, "small");
	assert_int_equal(flushes(other), 0);
	assert_int_equal(releases(other, MCFS_ALIVE), 0);
	stored(f, "other", "small");
	assert_int_equal(fake_mcs_open_streams(f->store), 0);
	assert_int_equal(flushes(w), 0);
	assert_int_equal(releases(w, MCFS_ALIVE), 0);
	stored_bytes(f, "k", data, CARRIED);
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_close_publishes_once),
		TEST(other_processes_do_not_commit),
		TEST(a_killed_writer_is_revoked),
		TEST(a_killed_rewriter_leaves_the_old_version),
		TEST(what_is_written_after_a_close_is_the_next_version),
		TEST(stores_of_a_killed_mapper_are_dropped),
		TEST(a_killed_heir_is_not_trusted),
		TEST(an_untouched_file_is_empty),
		TEST(a_truncated_file_is_empty_unless_replaced),
		TEST(what_may_be_open_at_the_end_is_dropped),
		TEST(what_is_closed_at_the_end_is_published),
		TEST(appends_go_to_the_end),
		TEST(two_writers_do_not_mix),
		TEST(exclusive_creation_holds_until_the_commit),
		TEST(a_failed_write_is_never_published),
		TEST(a_truncation_after_a_failed_close_is_published),
		TEST(a_failed_commit_is_told_and_final),
		TEST(a_failed_release_is_told),
		TEST(fsync_commits),
		TEST(an_unlinked_file_publishes_nothing),
		TEST(a_name_that_was_not_removed_is_published),
		TEST(a_rename_publishes_under_the_new_name),
		TEST(a_rename_behind_a_commit_changes_nothing),
		TEST(a_carried_writer_publishes_later),
		TEST(sizes_are_limited),
		TEST(staging_waits_for_puts),
		TEST(large_files_are_carried_before_the_close),
		TEST(what_changes_after_it_was_carried_goes_again),
		TEST(what_cannot_be_carried_is_put),
		TEST(room_ahead_is_given_up_for_a_put),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
