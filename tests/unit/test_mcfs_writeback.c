/* SPDX-License-Identifier: Apache-2.0
 * test_mcfs_writeback.c - large files, whose bytes are copied to the pool while they are written. */
#include <config.h>

#include "test_mcfs_version_fixture.h"

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"

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

		assert_int_equal(mcfs_writer_write(w, at, data + at, n, NULL, getpid(), DEADLINE, NULL), 0);
	}
}

static void stored_bytes(struct vx *f, const char *key, const char *want, size_t len)
{
	void *data;

	assert_int_equal(mcs_get_alloc(f->store, (struct mcs_key){ key, strlen(key) }, &data, 0), len);
	assert_memory_equal(data, want, len);
	free(data);
}

/* Wait until at least this many bytes have been written to streams before the close. */
static void carried(struct vx *f, uint64_t bytes)
{
	for (int i = 0; i < 2000 && fake_mcs_stream_bytes(f->store) < bytes; i++)
		usleep(5000);
	assert_true(fake_mcs_stream_bytes(f->store) >= bytes);
}

/* Copy all but the end, which is less than a slot. Writeback begins with the last write, when the
 * size is known, so that the stream has space for the end, too; in a stream of exactly 12 slots it
 * would not fit, and the commit would put the whole file. */
static void write_carried(struct vx *f, struct mcfs_writer *w, const char *data)
{
	write_some(w, data, 0, 12 * MCFS_SLOT);
	mcfs_writeback_pool_set_capacity(f->env.writeback_pool, 1ull << 34);
	write_some(w, data, 12 * MCFS_SLOT, CARRIED);
	carried(f, 12 * MCFS_SLOT);
}

static void large_files_are_carried_before_the_close(void **state)
{
	struct vx *f = *state;
	char *data = large_file();
	struct mcfs_writer *w = vx_create(f, "k");

	write_carried(f, w, data);
	vx_stored(f, "k", NULL);
	assert_int_equal(vx_flush(w), 0);
	stored_bytes(f, "k", data, CARRIED);
	assert_int_equal(fake_mcs_streamed(f->store), 1);
	/* The next write makes another version, which is put as a whole. */
	memset(data, 1, MCFS_SLOT);
	write_some(w, data, 0, MCFS_SLOT);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	stored_bytes(f, "k", data, CARRIED);
	assert_int_equal(fake_mcs_open_streams(f->store), 0);
	free(data);
}

static void a_slot_changed_after_writeback_is_copied_again(void **state)
{
	struct vx *f = *state;
	char *data = large_file();
	struct mcfs_writer *w = vx_create(f, "k");
	const size_t cut = 9 * MCFS_SLOT + 100;

	write_carried(f, w, data);
	memset(data + MCFS_SLOT - 10, 0x33, 20);
	assert_int_equal(mcfs_writer_write(w, MCFS_SLOT - 10, data + MCFS_SLOT - 10, 20, NULL, getpid(),
					   DEADLINE, NULL), 0);
	/* Shorter, and longer again: zeros in between. */
	assert_int_equal(mcfs_writer_truncate(w, cut, getpid(), NULL), 0);
	assert_int_equal(mcfs_writer_truncate(w, CARRIED, getpid(), NULL), 0);
	memset(data + cut, 0, CARRIED - cut);
	assert_int_equal(vx_flush(w), 0);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	stored_bytes(f, "k", data, CARRIED);
	assert_int_equal(fake_mcs_streamed(f->store), 1);
	free(data);
}

static void a_file_without_writeback_is_put(void **state)
{
	struct vx *f = *state;
	char *data = large_file();
	struct mcfs_writer *w = vx_create(f, "k");

	mcfs_writeback_pool_set_capacity(f->env.writeback_pool, 1ull << 34);
	fake_mcs_fail_streams(f->store, 1, -EIO);
	write_some(w, data, 0, CARRIED);
	assert_int_equal(vx_flush(w), 0);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	stored_bytes(f, "k", data, CARRIED);
	assert_int_equal(fake_mcs_streamed(f->store), 0);
	assert_int_equal(fake_mcs_open_streams(f->store), 0);
	/* After a rename, the stream of the old name cannot be used. */
	w = vx_create(f, "a");
	write_some(w, data, 0, CARRIED);
	assert_int_equal(mcfs_writer_rename(w, "b", 1, 0), 0);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	vx_stored(f, "a", NULL);
	stored_bytes(f, "b", data, CARRIED);
	/* A writer that was killed publishes nothing. */
	w = vx_create(f, "c");
	write_some(w, data, 0, CARRIED);
	assert_int_equal(mcfs_writer_flush(w, getpid(), MCFS_DIED, DEADLINE), 0);
	assert_int_equal(vx_release(w, MCFS_DIED), 0);
	vx_stored(f, "c", NULL);
	assert_int_equal(fake_mcs_open_streams(f->store), 0);
	free(data);
}

/* The connection was lost, and another client has put the key meanwhile. */
static void a_commit_that_comes_to_nothing_is_put(void **state)
{
	struct vx *f = *state;
	char *data = large_file();
	struct mcfs_writer *w = vx_create(f, "k");

	write_carried(f, w, data);
	vx_put(f, "k", "before the close");
	fake_mcs_fail_puts(f->store, 1, -MC_ESTALE_PUT);
	assert_int_equal(vx_flush(w), 0);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	stored_bytes(f, "k", data, CARRIED);
	assert_int_equal(fake_mcs_streamed(f->store), 0);
	assert_int_equal(fake_mcs_open_streams(f->store), 0);
	free(data);
}

/* A stream whose writes are slow once the close has begun. */
struct slow {
	uint64_t each_ms;
	/* atomic */
	bool closing;
	unsigned writes;
};

static void write_slowly(void *arg)
{
	struct slow *slow = arg;
	uint64_t until = mc_deadline_ms(60000);

	__atomic_add_fetch(&slow->writes, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&slow->closing, __ATOMIC_SEQ_CST) && mc_now_ns() < until)
		usleep(1000);
	usleep((useconds_t)slow->each_ms * 1000);
}

/* The first slot is being copied when the close begins, and all others wait. */
static struct mcfs_writer *written_slowly(struct vx *f, const char *data, struct slow *slow)
{
	struct mcfs_writer *w = vx_create(f, "k");

	fake_mcs_on_stream(f->store, write_slowly, slow);
	write_some(w, data, 0, 12 * MCFS_SLOT);
	mcfs_writeback_pool_set_capacity(f->env.writeback_pool, 1ull << 34);
	write_some(w, data, 12 * MCFS_SLOT, CARRIED);
	for (int i = 0; i < 12000 && !__atomic_load_n(&slow->writes, __ATOMIC_SEQ_CST); i++)
		usleep(5000);
	assert_int_equal(__atomic_load_n(&slow->writes, __ATOMIC_SEQ_CST), 1);
	__atomic_store_n(&slow->closing, true, __ATOMIC_SEQ_CST);
	return w;
}

static void a_close_waits_for_one_slot_only(void **state)
{
	struct vx *f = *state;
	struct slow slow = { .each_ms = 200 };
	char *data = large_file();
	struct mcfs_writer *w = written_slowly(f, data, &slow);

	assert_int_equal(mcfs_writer_flush(w, getpid(), MCFS_ALIVE, mc_deadline_ms(60000)), 0);
	/* The commit writes the rest at once, not slot by slot. */
	assert_true(__atomic_load_n(&slow.writes, __ATOMIC_SEQ_CST) < 6);
	assert_int_equal(fake_mcs_streamed(f->store), 1);
	stored_bytes(f, "k", data, CARRIED);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	free(data);
}

static void a_close_ends_in_its_time(void **state)
{
	struct vx *f = *state;
	struct slow slow = { .each_ms = 8000 };
	char *data = large_file();
	struct mcfs_writer *w = written_slowly(f, data, &slow);
	uint64_t began = mc_now_ns();

	assert_int_equal(mcs_errno(mcfs_writer_flush(w, getpid(), MCFS_ALIVE, mc_deadline_ms(1000))), ETIMEDOUT);
	assert_true(mc_now_ns() - began < 6 * MC_NS_PER_SEC);
	/* The release does not free bytes that a thread still reads. */
	(void)vx_release(w, MCFS_ALIVE);
	vx_stored(f, "k", NULL);
	assert_int_equal(fake_mcs_open_streams(f->store), 0);
	free(data);
}

static void room_ahead_is_given_up_for_a_put(void **state)
{
	struct vx *f = *state;
	char *data = large_file();
	struct mcfs_writer *w = vx_create(f, "k"), *other = vx_create(f, "other");

	write_carried(f, w, data);
	fake_mcs_fail_puts(f->store, 1, -ENOSPC);
	vx_write(other, 0, "small");
	assert_int_equal(vx_flush(other), 0);
	assert_int_equal(vx_release(other, MCFS_ALIVE), 0);
	vx_stored(f, "other", "small");
	assert_int_equal(fake_mcs_open_streams(f->store), 0);
	assert_int_equal(vx_flush(w), 0);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	stored_bytes(f, "k", data, CARRIED);
	free(data);
}

/* For a size that is only guessed, no object may be evicted: the file may become too large for the pool. */
static void only_an_announced_size_evicts(void **state)
{
	struct vx *f = *state;
	char *data = large_file();
	struct mcfs_writer *w = vx_create(f, "k");

	write_carried(f, w, data);
	assert_true(fake_mcs_stream_flags(f->store) & MCS_PUT_NO_EVICT);
	assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
	for (unsigned by = 0; by < 2; by++) {
		uint64_t before = fake_mcs_stream_bytes(f->store);

		w = vx_create(f, by ? "truncated" : "allocated");
		assert_int_equal(by ? mcfs_writer_truncate(w, CARRIED, getpid(), NULL) :
				 mcfs_writer_allocate(w, CARRIED, true, getpid(), NULL), 0);
		write_some(w, data, 0, CARRIED);
		carried(f, before + 12 * MCFS_SLOT);
		assert_false(fake_mcs_stream_flags(f->store) & MCS_PUT_NO_EVICT);
		assert_int_equal(vx_flush(w), 0);
		assert_int_equal(vx_release(w, MCFS_ALIVE), 0);
		stored_bytes(f, by ? "truncated" : "allocated", data, CARRIED);
	}
	assert_int_equal(fake_mcs_streamed(f->store), 3);
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		VX_TEST(large_files_are_carried_before_the_close),
		VX_TEST(a_slot_changed_after_writeback_is_copied_again),
		VX_TEST(a_file_without_writeback_is_put),
		VX_TEST(a_commit_that_comes_to_nothing_is_put),
		VX_TEST(a_close_waits_for_one_slot_only),
		VX_TEST(a_close_ends_in_its_time),
		VX_TEST(room_ahead_is_given_up_for_a_put),
		VX_TEST(only_an_announced_size_evicts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
