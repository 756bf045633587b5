/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_ssd.c - the tier "ssd", by io_uring, by threads and by USRBIO on a fake of 3FS: bytes, identity,
 * locks, merged and failed transfers. */
#include <config.h>

#include "test_tiers_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"

/* The kind of the media of the group of tests that runs, NULL: the default. */
static const char *kind;

static void bytes_come_back(void **state)
{
	static char own[2 * MIB] __attribute__((aligned(MCT_BLOCK)));
	struct mct_medium *m = medium(kind, 16 * MIB);

	assert_int_equal(store(m, 0, MIB, 1), 0);
	assert_int_equal(store(m, MIB, 4096, 2), 0);
	assert_int_equal(load(m, 0, MIB, 1), 0);
	assert_int_equal(load(m, MIB - 3, 3, 1), 0);
	assert_int_equal(load(m, MIB, 1, 2), 0);
	assert_int_equal(load(m, 5000, 70000, 1), 0);
	assert_int_equal(load(m, 16 * MIB - 1, 2, 0), -ERANGE);
	assert_int_equal(store(m, 100, 4096, 2), -ERANGE);
	/* From memory that is no buffer of the medium. */
	memset(own, 7, sizeof(own));
	assert_int_equal(store_from(m, 4 * MIB, MIB, own), 0);
	assert_int_equal(store_from(m, 5 * MIB, 8192, own + MIB), 0);
	assert_int_equal(load(m, 4 * MIB + 1, MIB - 1, 7), 0);
	assert_int_equal(load(m, 5 * MIB, 8192, 7), 0);
	assert_int_equal(load(m, 5 * MIB + 8192, 4096, 0), 0);
	mct_medium_close(m);
	m = medium(kind, 0);
	assert_int_equal(load(m, MIB, 4096, 2), 0);
	mct_medium_close(m);
}

/* A reader that joined a read from before a write would get the old bytes. */
static void reads_before_a_write_are_not_joined_after_it(void **state)
{
	struct mct_medium *m = medium(kind, 0);
	struct wait_read old, same;

	assert_int_equal(store(m, 2 * MIB, 4096, 3), 0);
	read_begin(m, &old, 2 * MIB, 4096);
	sem_wait(&old.sem);
	read_begin(m, &same, 2 * MIB, 4096);
	sem_wait(&same.sem);
	assert_ptr_equal(old.r.at, same.r.at);
	assert_int_equal(store(m, 2 * MIB, 4096, 4), 0);
	assert_int_equal(load(m, 2 * MIB, 4096, 4), 0);
	assert_int_equal(*(const char *)old.r.at, 3);
	m->ops->read_end(m, &old.r);
	m->ops->read_end(m, &same.r);
	mct_medium_close(m);
}

static void reads_wait_for_buffers(void **state)
{
	static struct wait_read r[100];
	struct mct_medium *m = medium(kind, 0);

	for (unsigned i = 0; i < 100; i++)
		read_begin(m, &r[i], i * 4096, 4096);
	for (unsigned i = 0; i < 100; i++) {
		sem_wait(&r[i].sem);
		assert_int_equal(r[i].r.status, 0);
		m->ops->read_end(m, &r[i].r);
	}
	mct_medium_close(m);
}

static void writers_leave_buffers_for_reads(void **state)
{
	struct mct_medium *m = medium(kind, 0);
	void *buf[4], *more;

	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(m->ops->buffer_get(m, mc_deadline_ms(1000), &buf[i]), 0);
	assert_int_equal(m->ops->buffer_get(m, mc_deadline_ms(20), &more), -MC_ETIMEDOUT);
	assert_int_equal(load(m, 0, MIB, 1), 0);
	for (unsigned i = 0; i < 4; i++)
		m->ops->buffer_put(m, buf[i]);
	mct_medium_close(m);
}

/* test_tiers_health.c has those of reads. */
static void errors_end_one_transfer(void **state)
{
	struct mct_medium *m = medium(kind, 0);

	assert_int_equal(mc_fault_set("tiers.ssd.write=error:ENOSPC"), 0);
	assert_int_equal(store(m, 0, 4096, 9), -ENOSPC);
	assert_int_equal(mc_fault_set(NULL), 0);
	assert_int_equal(store(m, 0, MIB, 1), 0);
	assert_int_equal(load(m, 0, 4096, 1), 0);
	mct_medium_close(m);
}

static void identity_stays_with_the_file(void **state)
{
	const uint64_t words[MCT_IDENTITY] = { 1, 2, 3, 4, UINT64_MAX, 6, 7, 8, 9 };
	uint64_t found[MCT_IDENTITY], older[MCT_IDENTITY] = { 1, 2, 3, 4, UINT64_MAX };
	struct mct_medium *m = medium(kind, 0);
	char path[64], zero[64] = { 0 };
	int fd;

	assert_int_equal(m->ops->set_identity(m, words), 0);
	mct_medium_close(m);
	m = medium(kind, 32 * MIB);
	assert_int_equal(m->ops->identity(m, found), 0);
	assert_memory_equal(found, words, sizeof(words));
	mct_medium_close(m);
	/* The first versions wrote no further words. */
	snprintf(path, sizeof(path), "%s/mooncake-0.ssd", tiers_dir);
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, zero, sizeof(zero), 128), sizeof(zero));
	close(fd);
	m = medium(kind, 32 * MIB);
	assert_int_equal(m->ops->identity(m, found), 0);
	assert_memory_equal(found, older, sizeof(older));
	mct_medium_close(m);
}

static void holes_are_skipped(void **state)
{
	struct mct_medium *m = medium(kind, 32 * MIB);
	uint64_t at, end;

	assert_int_equal(store(m, 20 * MIB, 4096, 1), 0);
	/* Not every filesystem has holes. */
	at = m->ops->data_next(m, 19 * MIB, &end);
	assert_true(at == 19 * MIB || at == 20 * MIB);
	assert_int_equal(m->ops->data_next(m, 20 * MIB, &end), 20 * MIB);
	at = m->ops->data_next(m, 21 * MIB, &end);
	assert_true(at >= 21 * MIB && at <= 32 * MIB);
	assert_int_equal(end, 32 * MIB);
	assert_int_equal(m->ops->data_next(m, 32 * MIB, &end), 32 * MIB);
	mct_medium_close(m);
}

/* The second process gets a file of its own; the content stays with the first file. */
static void a_directory_has_a_file_for_each_owner(void **state)
{
	struct mct_medium *a = medium(kind, 0), *b = medium(kind, MIB);
	struct mct_status status;

	b->ops->status(b, &status);
	assert_int_equal(status.size, MIB);
	mct_medium_close(a);
	a = medium(kind, 0);
	a->ops->status(a, &status);
	assert_int_equal(status.size, 32 * MIB);
	mct_medium_close(a);
	mct_medium_close(b);
}

static void a_damaged_header_is_a_new_medium(void **state)
{
	uint64_t found[MCT_IDENTITY];
	struct mct_medium *m;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/mooncake-0.ssd", tiers_dir);
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "x", 1, 30), 1);
	close(fd);
	m = medium(kind, 4 * MIB);
	assert_int_equal(m->ops->identity(m, found), 0);
	assert_int_equal(found[0], 0);
	mct_medium_close(m);
}

static void wrong_paths_are_refused(void **state)
{
	struct mct_conf conf = { .size = MIB, .path = "/nonexistent" };
	struct mct_medium *m;

	assert_int_equal(mct_medium_open("ssd", &conf, &m), -ENOENT);
	conf.path = "/dev/null";
	assert_int_equal(mct_medium_open("ssd", &conf, &m), -ENOTDIR);
	conf.path = tiers_dir;
	conf.kind = "tape";
	assert_int_equal(mct_medium_open("ssd", &conf, &m), -EINVAL);
}

/* Does a medium use the I/O called @want? */
static int check_used(const char *want)
{
	struct mct_medium *m = medium(kind, MIB);
	struct mct_status status;
	bool same;

	m->ops->status(m, &status);
	same = !strcmp(status.kind, want);
	if (!same)
		fprintf(stderr, "%s is used instead of %s\n", status.kind, want);
	mct_medium_close(m);
	return same ? 0 : -1;
}

static int uring_make(void **state)
{
	/* The kernel may refuse it. */
	kind = NULL;
	return tiers_dir_make(state);
}

static int threads_make(void **state)
{
	kind = "threads";
	return tiers_dir_make(state) < 0 ? -1 : check_used("threads");
}

static int usrbio_make(void **state)
{
	kind = NULL;
	return tiers_3fs_make(state) < 0 ? -1 : check_used("usrbio");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_come_back),
		cmocka_unit_test(reads_before_a_write_are_not_joined_after_it),
		cmocka_unit_test(reads_wait_for_buffers),
		cmocka_unit_test(writers_leave_buffers_for_reads),
		cmocka_unit_test(errors_end_one_transfer),
		cmocka_unit_test(identity_stays_with_the_file),
		cmocka_unit_test(holes_are_skipped),
		cmocka_unit_test(a_directory_has_a_file_for_each_owner),
		cmocka_unit_test(a_damaged_header_is_a_new_medium),
		cmocka_unit_test(wrong_paths_are_refused),
	};

	return cmocka_run_group_tests_name("io_uring", tests, uring_make, tiers_dir_remove) +
	       cmocka_run_group_tests_name("threads", tests, threads_make, tiers_dir_remove) +
	       cmocka_run_group_tests_name("usrbio", tests, usrbio_make, tiers_3fs_remove);
}
