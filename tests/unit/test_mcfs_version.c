/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/sys/lock.h"
#include "test_mcfs_version_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "mcfs/write/hold.h"
#include "mcfs/reply.h"

static void a_close_publishes_once(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	/* dup2 and close, as shells do before the program runs */
	assert_int_equal(vx_flush(w), 0);
	vx_stored(f, "k", NULL);
	assert_true(mcfs_writer_pending(w));
	vx_write(w, 0, "hello");
	vx_stored(f, "k", NULL);
	assert_int_equal(vx_flush(w), 0);
	vx_stored(f, "k", "hello");
	assert_false(mcfs_writer_pending(w));
	assert_int_equal(vx_flush(w), 0);
	assert_int_equal(vx_release(w, MCFS_GONE), 0);
	assert_int_equal(fake_mcs_puts(f->store), 1);
}

static void other_processes_do_not_commit(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	vx_write(w, 0, "one ");
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_EXITED, DEADLINE), 0);
	vx_stored(f, "k", NULL);
	vx_write(w, 4, "two");
	assert_int_equal(mcfs_writer_flush(w, getpid(), MCFS_EXITED, DEADLINE), 0);
	vx_stored(f, "k", "one two");
	assert_int_equal(vx_release(w, MCFS_EXITED), 0);
	assert_int_equal(fake_mcs_puts(f->store), 1);
}

static void a_killed_writer_is_revoked(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	vx_write(w, 0, "half");
	assert_int_equal(mcfs_writer_flush(w, getpid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(mcfs_pool_staged(f->pool), 0);
	assert_int_equal(mcfs_writer_write(w, 4, "x", 1, NULL, getpid(), DEADLINE, NULL), -EIO);
	assert_int_equal(vx_release(w, MCFS_DIED), 0);
	vx_stored(f, "k", NULL);
}

static void a_killed_rewriter_leaves_the_old_version(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w;

	vx_put(f, "k", "old");
	w = vx_open(f, "k", MCFS_WRITER_FRESH);
	vx_write(w, 0, "new and lon");
	assert_int_equal(mcfs_writer_flush(w, getpid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(vx_release(w, MCFS_GONE), 0);
	vx_stored(f, "k", "old");
}

static void writes_after_a_close_are_the_next_version(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	vx_write(w, 0, "first");
	assert_int_equal(vx_flush(w), 0);
	vx_write(w, 5, " second");
	vx_stored(f, "k", "first");
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "k", "first second");
}

static void stores_of_a_killed_mapper_are_dropped(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	vx_write(w, 0, "first");
	assert_int_equal(vx_flush(w), 0);
	assert_int_equal(mcfs_writer_write(w, 0, "F", 1, NULL, 0, DEADLINE, NULL), 0);
	assert_int_equal(vx_release(w, MCFS_GONE), 0);
	vx_stored(f, "k", "first");

	w = vx_open(f, "k", 0);
	assert_int_equal(mcfs_writer_write(w, 0, "F", 1, NULL, 0, DEADLINE, NULL), 0);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "k", "First");
}

static void a_killed_heir_is_not_trusted(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	assert_int_equal(mcfs_writer_write(w, 0, "half", 4, NULL, getppid(), DEADLINE, NULL), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(vx_release(w, MCFS_GONE), 0);
	vx_stored(f, "k", NULL);

	/* The bytes are not published either when the opener, a wrapper of the command, closes the
	 * file properly. */
	w = vx_create(f, "k");
	assert_int_equal(mcfs_writer_write(w, 0, "half", 4, NULL, getppid(), DEADLINE, NULL), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(vx_flush(w), -EIO);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "k", NULL);

	/* They are not published when the opener calls fsync(), either. */
	w = vx_create(f, "k");
	assert_int_equal(mcfs_writer_write(w, 0, "half", 4, NULL, getppid(), DEADLINE, NULL), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(mcfs_writer_sync(w, DEADLINE), -EIO);
	assert_int_equal(vx_flush(w), -EIO);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "k", NULL);

	/* The end of a process that wrote nothing does not matter, and an opener that continues to
	 * write accepts the killed process's bytes. */
	w = vx_create(f, "k");
	vx_write(w, 0, "whole");
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(vx_flush(w), 0);
	vx_stored(f, "k", "whole");
	assert_int_equal(mcfs_writer_write(w, 5, "!", 1, NULL, getppid(), DEADLINE, NULL), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
	vx_write(w, 6, "?");
	assert_int_equal(vx_flush(w), 0);
	vx_stored(f, "k", "whole!?");
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
}

/* A child is killed after it has truncated a file that it would rewrite in place. */
static void a_killed_heir_that_set_the_size_is_not_trusted(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w;

	vx_put(f, "k", "whole");
	for (int i = 0; i < 3; i++) {
		w = vx_open(f, "k", 0);
		if (i < 2)
			assert_int_equal(mcfs_writer_truncate(w, i ? 2 : 0, getppid(), NULL), 0);
		else
			assert_int_equal(mcfs_writer_allocate(w, 9, false, getppid(), NULL), 0);
		assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
		assert_int_equal(i ? mcfs_writer_sync(w, DEADLINE) : vx_flush(w), -EIO);
		assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
		vx_stored(f, "k", "whole");
	}
	/* Neither reserving space nor setting the current size is a change. */
	w = vx_open(f, "k", 0);
	vx_write(w, 0, "WH");
	assert_int_equal(mcfs_writer_allocate(w, 9, true, getppid(), NULL), 0);
	assert_int_equal(mcfs_writer_truncate(w, 5, getppid(), NULL), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(vx_flush(w), 0);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "k", "WHole");
}

static void an_opener_begins_anew_after_a_killed_heir(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w;

	for (int i = 0; i < 2; i++) {
		vx_put(f, "k", "whole");
		w = vx_open(f, "k", 0);
		if (i)
			assert_int_equal(mcfs_writer_write(w, 0, "half", 4, NULL, getppid(), DEADLINE, NULL), 0);
		else
			assert_int_equal(mcfs_writer_truncate(w, 0, getppid(), NULL), 0);
		assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
		assert_int_equal(mcfs_writer_truncate(w, 0, getpid(), NULL), 0);
		assert_int_equal(vx_flush(w), 0);
		assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
		vx_stored(f, "k", "");
	}
	/* Setting the current size does not replace the killed child's bytes. */
	vx_put(f, "k", "whole");
	w = vx_open(f, "k", 0);
	assert_int_equal(mcfs_writer_write(w, 0, "half", 4, NULL, getppid(), DEADLINE, NULL), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(mcfs_writer_truncate(w, 5, getpid(), NULL), 0);
	assert_int_equal(vx_flush(w), -EIO);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "k", "whole");
}

static void an_untouched_file_is_empty(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	assert_int_equal(vx_flush(w), 0);
	assert_int_equal(vx_release(w, MCFS_GONE), 0);
	vx_stored(f, "k", "");

	/* A key that got a value meanwhile keeps it. */
	w = vx_create(f, "j");
	vx_put(f, "j", "value");
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "j", "value");
}

static void a_truncated_file_is_empty_unless_replaced(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w;

	vx_put(f, "k", "old");
	w = vx_open(f, "k", MCFS_WRITER_FRESH);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "k", "");

	vx_put(f, "k", "old");
	w = vx_open(f, "k", MCFS_WRITER_FRESH);
	vx_put(f, "k", "newer");
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "k", "newer");
}

static bool ends(struct mcfs_writer *w, enum mcfs_fate fate)
{
	bool dropped = mcfs_writer_end(w, fate, DEADLINE);

	mcfs_writer_unref(w);
	return dropped;
}

static void possibly_open_files_are_dropped_at_the_end(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	vx_write(w, 0, "half");
	assert_true(ends(w, MCFS_GONE));
	vx_stored(f, "k", NULL);
	/* closed by another process, and written after that */
	w = vx_create(f, "k");
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_ALIVE, DEADLINE), 0);
	assert_int_equal(mcfs_writer_write(w, 0, "half", 4, NULL, getppid(), DEADLINE, NULL), 0);
	assert_true(ends(w, MCFS_GONE));
	vx_stored(f, "k", NULL);
	/* a child has closed a part, and the next child has not started */
	w = vx_create(f, "k");
	assert_int_equal(mcfs_writer_write(w, 0, "half", 4, NULL, getppid(), DEADLINE, NULL), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_EXITED, DEADLINE), 0);
	assert_true(ends(w, MCFS_ALIVE));
	vx_stored(f, "k", NULL);
	/* truncated by a shell, and the program has not started */
	vx_put(f, "old", "old");
	w = vx_create(f, "old");
	assert_int_equal(vx_flush(w), 0);
	assert_true(ends(w, MCFS_ALIVE));
	vx_stored(f, "old", "old");
	/* closed only by a child */
	w = vx_create(f, "k");
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_EXITED, DEADLINE), 0);
	assert_true(ends(w, MCFS_ALIVE));
	vx_stored(f, "k", NULL);
}

static void closed_files_are_published_at_the_end(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "empty");

	assert_int_equal(vx_flush(w), 0);
	assert_false(ends(w, MCFS_ALIVE));
	vx_stored(f, "empty", "");
	w = vx_create(f, "k");
	assert_int_equal(vx_flush(w), 0);
	assert_int_equal(mcfs_writer_write(w, 0, "whole", 5, NULL, getppid(), DEADLINE, NULL), 0);
	assert_int_equal(mcfs_writer_flush(w, getppid(), MCFS_EXITED, DEADLINE), 0);
	assert_false(ends(w, MCFS_GONE));
	vx_stored(f, "k", "whole");
}

static void appends_go_to_the_end(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w;

	vx_put(f, "k", "abc");
	w = vx_open(f, "k", 0);
	vx_write(w, MCFS_AT_THE_END, "def");
	vx_write(w, MCFS_AT_THE_END, "ghi");
	/* A write that is resent after the answer EINTR is stored once. */
	vx_write(w, 9, "jkl");
	vx_write(w, 9, "jkl");
	assert_int_equal(vx_flush(w), 0);
	vx_stored(f, "k", "abcdefghijkl");
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
}

static void two_writers_do_not_mix(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *a = vx_create(f, "k"), *b = vx_create(f, "k");

	vx_write(a, 0, "aaaa");
	vx_write(b, 0, "bb");
	assert_int_equal(vx_flush(a), 0);
	vx_stored(f, "k", "aaaa");
	assert_int_equal(vx_flush(b), 0);
	vx_stored(f, "k", "bb");
	assert_int_equal(vx_release(a, MCFS_ALIVE), 0);
	assert_int_equal(vx_release(b, MCFS_ALIVE), 0);
	vx_stored(f, "k", "bb");
}

static void exclusive_creation_holds_until_the_commit(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_open(f, "k", MCFS_WRITER_FRESH | MCFS_WRITER_EXCL);

	vx_write(w, 0, "mine");
	vx_put(f, "k", "theirs");
	assert_int_equal(vx_flush(w), -MCS_EEXISTS);
	assert_int_equal(f->told, 1);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "k", "theirs");

	w = vx_open(f, "j", MCFS_WRITER_FRESH | MCFS_WRITER_EXCL);
	vx_write(w, 0, "1");
	assert_int_equal(vx_flush(w), 0);
	vx_write(w, 1, "2");
	assert_int_equal(vx_flush(w), 0);
	vx_stored(f, "j", "12");
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
}

static void a_failed_write_is_never_published(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	f->env.max_size = 10;
	vx_write(w, 0, "123456789");
	assert_int_equal(mcfs_writer_write(w, 9, "ab", 2, NULL, getpid(), DEADLINE, NULL), -EFBIG);
	assert_int_equal(mcfs_writer_write(w, 9, "a", 1, NULL, getpid(), DEADLINE, NULL), -EIO);
	assert_int_equal(vx_flush(w), -EFBIG);
	assert_int_equal(vx_flush(w), -EFBIG);
	vx_stored(f, "k", NULL);
	/* Truncating the file to nothing makes it writable again. */
	assert_int_equal(mcfs_writer_truncate(w, 0, getpid(), NULL), 0);
	vx_write(w, 0, "short");
	assert_int_equal(vx_flush(w), 0);
	vx_stored(f, "k", "short");
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
}

static void a_truncation_after_a_failed_close_is_published(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w;
	char buf[8];

	vx_put(f, "k", "old");
	w = vx_open(f, "k", 0);
	vx_write(w, 0, "new");
	assert_int_equal(mcfs_writer_read(w, 0, buf, sizeof(buf), DEADLINE), 3);
	f->env.max_size = 10;
	assert_int_equal(mcfs_writer_write(w, 9, "ab", 2, NULL, getpid(), DEADLINE, NULL), -EFBIG);
	/* After the failed write, reads fail: the file must not look shorter than it was. */
	assert_int_equal(mcfs_writer_read(w, 0, buf, sizeof(buf), DEADLINE), -EIO);
	assert_int_equal(vx_flush(w), -EFBIG);
	assert_int_equal(mcfs_writer_read(w, 0, buf, sizeof(buf), DEADLINE), -EIO);
	assert_int_equal(mcfs_writer_truncate(w, 5, getpid(), NULL), -EFBIG);
	assert_int_equal(mcfs_writer_truncate(w, 0, getpid(), NULL), 0);
	assert_int_equal(mcfs_writer_read(w, 0, buf, sizeof(buf), DEADLINE), 0);
	assert_int_equal(vx_flush(w), 0);
	vx_stored(f, "k", "");
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
}

static void a_failed_commit_is_told_and_final(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	vx_write(w, 0, "x");
	fake_mcs_fail_puts(f->store, 1, -MCS_ENOSPACE);
	assert_int_equal(vx_flush(w), -MCS_ENOSPACE);
	assert_int_equal(f->told, 1);
	assert_int_equal(f->told_err, -MCS_ENOSPACE);
	assert_int_equal(mcfs_writer_sync(w, DEADLINE), -MCS_ENOSPACE);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "k", NULL);
	assert_int_equal(f->told, 1);
}

static void a_failed_release_is_told(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	fake_mcs_fail_puts(f->store, 1, -MCS_ERPC);
	assert_int_equal(vx_release(w, MCFS_ALIVE), -MCS_ERPC);
	assert_int_equal(f->told, 1);
	vx_stored(f, "k", NULL);
}

static void fsync_commits(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	vx_write(w, 0, "one");
	assert_int_equal(mcfs_writer_sync(w, DEADLINE), 0);
	vx_stored(f, "k", "one");
	vx_write(w, 3, "two");
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "k", "onetwo");
}

static void an_unlinked_file_publishes_nothing(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");
	char buf[8];

	vx_write(w, 0, "x");
	mcfs_writer_unlink(w);
	assert_false(mcfs_writer_pending(w));
	assert_int_equal(vx_flush(w), 0);
	vx_write(w, 1, "y");
	assert_int_equal(mcfs_writer_read(w, 0, buf, sizeof(buf), DEADLINE), 2);
	assert_int_equal(mcfs_writer_sync(w, DEADLINE), 0);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "k", NULL);
}

struct slow_put {
	struct mcfs_writer *w;
	sem_t begun, go_on;
};

static void slow_put(void *arg)
{
	struct slow_put *s = arg;

	sem_post(&s->begun);
	sem_wait(&s->go_on);
}

static void *flush_slowly(void *arg)
{
	struct slow_put *s = arg;

	assert_int_equal(mcfs_writer_flush(s->w, getpid(), MCFS_ALIVE, DEADLINE), 0);
	return NULL;
}

/* A hold cannot begin while a commit of one of its names is in flight; after it has timed out, the
 * other name can commit. */
static void a_name_is_held_between_commits(void **state)
{
	const struct mcs_key names[] = { { "other", 5 }, { "k", 1 } };
	struct vx *f = *state;
	struct slow_put s = { .w = vx_create(f, "k") };
	struct mcfs_writer *other = vx_create(f, "other");
	struct mcfs_hold h;
	pthread_t thread;

	sem_init(&s.begun, 0, 0);
	sem_init(&s.go_on, 0, 0);
	vx_write(s.w, 0, "text");
	fake_mcs_on_put(f->store, slow_put, &s);
	assert_int_equal(pthread_create(&thread, NULL, flush_slowly, &s), 0);
	sem_wait(&s.begun);
	fake_mcs_on_put(f->store, NULL, NULL);
	assert_int_equal(mcs_errno(mcfs_hold_begin(&h, &f->env, names, 2, mc_deadline_ms(50))), ETIMEDOUT);
	assert_int_equal(vx_release(other, MCFS_ALIVE), 0);
	sem_post(&s.go_on);
	assert_int_equal(mcfs_hold_begin(&h, &f->env, names, 2, DEADLINE), 0);
	vx_stored(f, "k", "text");
	assert_false(mcfs_hold_pending(&h, names[1], false));
	mcfs_hold_end(&h);
	pthread_join(thread, NULL);
	assert_int_equal(vx_release(s.w, MCFS_ALIVE), 0);
	sem_destroy(&s.begun);
	sem_destroy(&s.go_on);
}

/* The number of writers is not limited. */
static void all_writers_of_a_name_lose_it(void **state)
{
	const struct mcs_key name = { "k", 1 };
	struct mcfs_writer *w[100], *late;
	struct vx *f = *state;
	struct mcfs_hold h;

	for (unsigned i = 0; i < 100; i++)
		w[i] = vx_create(f, "k");
	assert_int_equal(mcfs_hold_begin(&h, &f->env, &name, 1, DEADLINE), 0);
	assert_true(mcfs_hold_pending(&h, name, true));
	late = vx_create(f, "k");
	mcfs_hold_unlink(&h, name);
	assert_false(mcfs_hold_pending(&h, name, false));
	mcfs_hold_end(&h);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(vx_release(w[i], MCFS_ALIVE), 0);
	vx_stored(f, "k", NULL);
	assert_int_equal(vx_release(late, MCFS_ALIVE), 0);
	vx_stored(f, "k", "");
}

/* Two writers have the same name; a rename concerns the version of the later writer, which has
 * closed. */
static void a_later_writer_overtakes(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *first = vx_create(f, "tmp"), *second, *elsewhere = vx_create(f, "other");

	vx_write(first, 0, "half");
	second = vx_create(f, "tmp");
	vx_write(second, 0, "whole");
	assert_false(mcfs_writer_overtaken(first));
	assert_int_equal(vx_flush(second), 0);
	assert_true(mcfs_writer_overtaken(first) && mcfs_writer_is_apart(first));
	assert_true(mcfs_writer_pending(first));
	assert_false(mcfs_writer_is_apart(second) || mcfs_writer_is_apart(elsewhere));
	/* Its next bytes make its version the newest again, without bytes of the other writer. */
	vx_write(first, 4, "more");
	assert_true(!mcfs_writer_overtaken(first) && mcfs_writer_is_apart(first));
	assert_int_equal(mcfs_writer_sync(first, DEADLINE), 0);
	vx_stored(f, "tmp", "halfmore");
	assert_false(mcfs_writer_is_apart(first));
	assert_true(mcfs_writer_is_apart(second) && !mcfs_writer_overtaken(second));
	assert_int_equal(vx_release(first, MCFS_ALIVE), 0);
	assert_int_equal(vx_release(second, MCFS_ALIVE), 0);
	assert_int_equal(vx_release(elsewhere, MCFS_ALIVE), 0);
	vx_stored(f, "tmp", "halfmore");
}

/* Like mkstemp(3), with another program that opens the name and fills the file. */
static void an_empty_created_file_is_filled_by_another_writer(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *made = vx_open(f, "tmp", MCFS_WRITER_FRESH | MCFS_WRITER_EXCL), *w;

	assert_true(mcfs_writer_pending(made));
	w = vx_create(f, "tmp");
	vx_write(w, 0, "text");
	assert_int_equal(vx_flush(w), 0);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	assert_false(mcfs_writer_pending(made));
	assert_int_equal(mcfs_writer_sync(made, DEADLINE), 0);
	vx_write(made, 0, "TEXT");
	assert_int_equal(vx_flush(made), 0);
	vx_stored(f, "tmp", "TEXT");
	assert_int_equal(vx_release(made, MCFS_ALIVE), 0);

	/* A value of another client is a conflict. */
	made = vx_open(f, "mine", MCFS_WRITER_FRESH | MCFS_WRITER_EXCL);
	vx_put(f, "mine", "theirs");
	vx_write(made, 0, "mine");
	assert_int_equal(vx_flush(made), -MCS_EEXISTS);
	assert_int_equal(vx_release(made, MCFS_ALIVE), 0);
	vx_stored(f, "mine", "theirs");

	/* Also if another writer had opened the name, but published nothing. */
	made = vx_open(f, "two", MCFS_WRITER_FRESH | MCFS_WRITER_EXCL);
	w = vx_create(f, "two");
	vx_put(f, "two", "theirs");
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_write(made, 0, "mine");
	assert_int_equal(vx_flush(made), -MCS_EEXISTS);
	assert_int_equal(vx_release(made, MCFS_ALIVE), 0);
	vx_stored(f, "two", "theirs");
}

static void a_carried_writer_publishes_later(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "log"), *found;

	vx_write(w, 0, "line");
	assert_int_equal(mcfs_writer_rename(w, "log.1", 5, 0), 0);
	vx_stored(f, "log.1", NULL);
	assert_null(mcfs_writer_next(&f->env, NULL, (struct mcs_key){ "log", 3 }));
	found = mcfs_writer_next(&f->env, NULL, (struct mcs_key){ "log.1", 5 });
	assert_ptr_equal(found, w);
	assert_null(mcfs_writer_next(&f->env, found, (struct mcs_key){ "log.1", 5 }));
	assert_true(mcfs_writers_below(&f->env, "log", 3));
	assert_false(mcfs_writers_below(&f->env, "dir/", 4));
	assert_int_equal(vx_flush(w), 0);
	vx_stored(f, "log.1", "line");
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
}

static void sizes_are_limited(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	f->env.max_size = 100;
	assert_int_equal(mcfs_writer_truncate(w, 101, getpid(), NULL), -EFBIG);
	assert_int_equal(mcfs_writer_allocate(w, 101, true, getpid(), NULL), -EFBIG);
	assert_int_equal(mcfs_writer_allocate(w, 50, true, getpid(), NULL), 0);
	assert_int_equal(w->stage.size, 0);
	assert_int_equal(mcfs_writer_allocate(w, 50, false, getpid(), NULL), 0);
	assert_int_equal(w->stage.size, 50);
	assert_int_equal(mcfs_writer_write(w, UINT64_MAX - 1, "ab", 2, NULL, getpid(), DEADLINE, NULL), -EFBIG);
	mcfs_writer_revoke(w);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
}

/* All operations that change a writer by a call of their own, as @op. */
static void all_answer(struct mcfs_writer *w, struct mcfs_op *op, int want)
{
	assert_int_equal(mcfs_writer_write(w, 0, "new", 3, NULL, getpid(), DEADLINE, op), want);
	assert_int_equal(mcfs_writer_write(w, MCFS_AT_THE_END, "end", 3, NULL, getpid(), DEADLINE,
					   op), want);
	assert_int_equal(mcfs_writer_truncate(w, 5, getpid(), op), want);
	assert_int_equal(mcfs_writer_allocate(w, 50, false, getpid(), op), want);
	assert_int_equal(mcfs_writer_set_pin(w, MCS_PUT_HARD_PIN, op), want);
	assert_int_equal(mcfs_writer_set_replicas(w, 2, op), want);
}

static void an_answered_operation_changes_nothing(void **state)
{
	struct mcfs_op op = { .claim = MCFS_ANSWERED };
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	f->env.max_size = 100;
	vx_write(w, 0, "old bytes that stay");
	all_answer(w, &op, -EINTR);
	/* A write that is too large, which would otherwise make the file fail. */
	assert_int_equal(mcfs_writer_write(w, 99, "ab", 2, NULL, getpid(), DEADLINE, &op), -EINTR);
	assert_int_equal(op.claim, MCFS_ANSWERED);
	assert_int_equal(w->put_flags | w->replicas, 0);
	assert_int_equal(vx_flush(w), 0);
	vx_stored(f, "k", "old bytes that stay");
	/* An answered operation does not clear a failure, either. */
	assert_int_equal(mcfs_writer_write(w, 99, "ab", 2, NULL, getpid(), DEADLINE, NULL), -EFBIG);
	assert_int_equal(mcfs_writer_truncate(w, 0, getpid(), &op), -EINTR);
	assert_int_equal(mcfs_writer_write(w, 0, "a", 1, NULL, getpid(), DEADLINE, NULL), -EIO);
	assert_int_equal(vx_flush(w), -EFBIG);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
}

static void the_operation_that_changes_something_answers(void **state)
{
	struct mcfs_op op = { .claim = MCFS_UNCLAIMED };
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");

	/* These operations change nothing. */
	assert_int_equal(mcfs_writer_sync(w, DEADLINE), 0);
	assert_int_equal(mcfs_writer_truncate(w, 0, getpid(), &op), 0);
	assert_int_equal(op.claim, MCFS_UNCLAIMED);
	all_answer(w, &op, 0);
	assert_int_equal(op.claim, MCFS_UNLESS_KILLED);
	/* A claim for good is not replaced by a weaker one. */
	op.claim = MCFS_FOR_GOOD;
	all_answer(w, &op, 0);
	assert_int_equal(op.claim, MCFS_FOR_GOOD);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
}

static void *truncate_others(void *arg)
{
	struct mcfs_op op = { .deadline = mc_deadline_ms(1) };
	struct mcfs_writer *w = arg;

	assert_int_equal(mcfs_writer_truncate(w, 0, getpid(), &op), -ETIMEDOUT);
	assert_int_equal(mcfs_writer_allocate(w, 50, false, getpid(), &op), -ETIMEDOUT);
	assert_int_equal(mcfs_writer_set_pin(w, MCS_PUT_HARD_PIN, &op), -ETIMEDOUT);
	assert_int_equal(mcfs_writer_set_replicas(w, 2, &op), -ETIMEDOUT);
	assert_int_equal(op.claim, MCFS_UNCLAIMED);
	return NULL;
}

/* A commit can take as long as its own deadline allows; other operations wait until theirs. */
static void a_commit_is_waited_for_until_the_deadline(void **state)
{
	struct vx *f = *state;
	struct mcfs_writer *w = vx_create(f, "k");
	pthread_t thread;

	vx_write(w, 0, "old bytes that stay");
	assert_int_equal(mcfs_writer_lock(w, DEADLINE), 0);
	assert_int_equal(pthread_create(&thread, NULL, truncate_others, w), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	mc_mutex_unlock(&w->lock);
	assert_int_equal(w->put_flags | w->replicas, 0);
	assert_int_equal(vx_flush(w), 0);
	vx_stored(f, "k", "old bytes that stay");
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
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

/* Staging waits for the memory of a put that is in flight; without such a put it fails at once. */
static void staging_waits_for_puts(void **state)
{
	struct vx *f = *state;
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		VX_TEST(a_close_publishes_once),
		VX_TEST(other_processes_do_not_commit),
		VX_TEST(a_killed_writer_is_revoked),
		VX_TEST(a_killed_rewriter_leaves_the_old_version),
		VX_TEST(writes_after_a_close_are_the_next_version),
		VX_TEST(stores_of_a_killed_mapper_are_dropped),
		VX_TEST(a_killed_heir_is_not_trusted),
		VX_TEST(a_killed_heir_that_set_the_size_is_not_trusted),
		VX_TEST(an_opener_begins_anew_after_a_killed_heir),
		VX_TEST(an_untouched_file_is_empty),
		VX_TEST(a_truncated_file_is_empty_unless_replaced),
		VX_TEST(possibly_open_files_are_dropped_at_the_end),
		VX_TEST(closed_files_are_published_at_the_end),
		VX_TEST(appends_go_to_the_end),
		VX_TEST(two_writers_do_not_mix),
		VX_TEST(exclusive_creation_holds_until_the_commit),
		VX_TEST(a_failed_write_is_never_published),
		VX_TEST(a_truncation_after_a_failed_close_is_published),
		VX_TEST(a_failed_commit_is_told_and_final),
		VX_TEST(a_failed_release_is_told),
		VX_TEST(fsync_commits),
		VX_TEST(an_unlinked_file_publishes_nothing),
		VX_TEST(a_name_is_held_between_commits),
		VX_TEST(all_writers_of_a_name_lose_it),
		VX_TEST(a_later_writer_overtakes),
		VX_TEST(an_empty_created_file_is_filled_by_another_writer),
		VX_TEST(a_carried_writer_publishes_later),
		VX_TEST(sizes_are_limited),
		VX_TEST(an_answered_operation_changes_nothing),
		VX_TEST(the_operation_that_changes_something_answers),
		VX_TEST(a_commit_is_waited_for_until_the_deadline),
		VX_TEST(staging_waits_for_puts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
