/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_usrbio.c - USRBIO on a fake of 3FS: its choice, errors, short reads, holes, a full ring, a slow and
 * an ended daemon, many threads. */
#include <config.h>

#include "test_tiers_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "tiers/ssd/hf3fs.h"

#define DATA_AT MIB	/* of the medium's bytes in its file */
#define THREADS 6
#define ROUNDS 40

static struct fake_hf3fs *fake;
static char own[MIB] __attribute__((aligned(MCT_BLOCK)));

/* ---- the kernel -------------------------------------------------------------------------------- */

int __wrap_fstatfs(int fd, struct statfs *ret);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __real_fstatfs(int fd, struct statfs *ret);

/* Answers of the kernel for each file: error and kind of its file system, and the magic number of its daemon. */
static _Atomic int fs_error;
static long fs_type;
static uint32_t daemon_magic;
static int daemon_asked;

int __wrap_fstatfs(int fd, struct statfs *ret)
{
	int error = fs_error, r = __real_fstatfs(fd, ret);

	if (fs_type)
		ret->f_type = fs_type;
	errno = error;
	return error ? -1 : r;
}

/* Only the question for 3FS is expected. */
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list args;

	va_start(args, request);
	assert_int_equal(request, _IOR('h', 2, uint32_t));
	daemon_asked++;
	*va_arg(args, uint32_t *) = daemon_magic;
	va_end(args);
	return 0;
}

static const char *kind_of(struct mct_medium *m)
{
	struct mct_status status;

	m->ops->status(m, &status);
	return status.kind;
}

static struct mct_medium *usrbio(void)
{
	struct mct_medium *m = medium(NULL, 32 * MIB);

	assert_string_equal(kind_of(m), "usrbio");
	return m;
}

/* The medium opens and keeps bytes, but not by USRBIO. */
static void works_without(void)
{
	struct mct_medium *m = medium(NULL, 32 * MIB);

	assert_string_not_equal(kind_of(m), "usrbio");
	assert_int_equal(store(m, 0, 8192, 1), 0);
	assert_int_equal(load(m, 0, 8192, 1), 0);
	mct_medium_close(m);
}

static int file_open(void)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/mooncake-0.ssd", tiers_dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	return fd;
}

/* ---- the choice -------------------------------------------------------------------------------- */

/* mct_hf3fs_open() with this library; @ret_detail: why not. */
static int library_open(const char *library, char ret_detail[256])
{
	char path[64], mount_point[MCT_HF3FS_PATH] = "";
	struct mct_hf3fs lib;
	int fd = file_open(), r;

	snprintf(path, sizeof(path), "%s/mooncake-0.ssd", tiers_dir);
	if (library)
		setenv("MC_HF3FS_LIBRARY", library, 1);
	else
		unsetenv("MC_HF3FS_LIBRARY");
	r = mct_hf3fs_open(fd, path, &lib, mount_point);
	snprintf(ret_detail, 256, "%s", r < 0 ? mc_err_detail(r) : mount_point);
	close(fd);
	return r;
}

static void a_file_that_is_not_on_3fs_needs_no_library(void **state)
{
	char detail[256];

	assert_int_equal(library_open(NULL, detail), 1);
	works_without();
	fake->mount[0] = 0;
	assert_int_equal(library_open(FAKE_HF3FS, detail), 1);
	works_without();
	/* The beginning of a name is no directory above it. */
	snprintf(fake->mount, sizeof(fake->mount), "%.*s", (int)strlen(tiers_dir) - 1, tiers_dir);
	assert_int_equal(library_open(FAKE_HF3FS, detail), 1);
	strcpy(fake->mount, tiers_dir);
	assert_int_equal(library_open(FAKE_HF3FS, detail), 0);
	assert_string_equal(detail, tiers_dir);
}

/* Without the variable, the kernel says what is on 3FS, and only a FUSE daemon is asked. */
static void the_daemon_says_whether_a_file_is_on_3fs(void **state)
{
	char detail[256];

	daemon_magic = 0x8f3f5fff;
	assert_int_equal(library_open(NULL, detail), 1);
	assert_int_equal(daemon_asked, 0);
	fs_type = FUSE_SUPER_MAGIC;
	/* No machine of the tests has the library. */
	assert_int_equal(library_open(NULL, detail), -MC_ENOTSUP);
	assert_non_null(strstr(detail, "libhf3fs_api_shared.so cannot be loaded"));
	assert_int_equal(daemon_asked, 1);
	works_without();
	daemon_magic = 0x65735546;
	assert_int_equal(library_open(NULL, detail), 1);
	fs_type = 0;
	daemon_magic = 0;
	assert_int_equal(library_open(FAKE_HF3FS, detail), 0);
}

static void a_library_that_cannot_be_used_is_named(void **state)
{
	char detail[256];

	assert_int_equal(library_open("/nonexistent/libhf3fs.so", detail), -MC_ENOTSUP);
	assert_non_null(strstr(detail, "/nonexistent/libhf3fs.so cannot be loaded"));
	assert_non_null(strstr(detail, "MC_HF3FS_LIBRARY"));
	works_without();
	/* A library that lacks the functions. */
	assert_int_equal(library_open("libm.so.6", detail), -MC_ENOTSUP);
	assert_non_null(strstr(detail, "libm.so.6 has no function hf3fs_extract_mount_point"));
	works_without();
	assert_int_equal(library_open(FAKE_HF3FS, detail), 0);
}

/* Bytes written without USRBIO are read with it, and the reason is in the log. */
static void refusals_of_3fs_lead_to_another_way(void **state)
{
	_Atomic int *refusal[] = { &fake->no_memory, &fake->no_file, &fake->no_ring };
	struct mc_log_conf conf = { .program = "usrbio", .levels = "info" };
	char dir[64], path[96], line[512];
	struct mct_medium *m;
	bool found = false;
	FILE *log;

	snprintf(dir, sizeof(dir), "%s/log", tiers_dir);
	conf.dir = dir;
	assert_int_equal(mc_log_open(&conf), 0);
	for (unsigned i = 0; i < 3; i++) {
		*refusal[i] = EMFILE;
		works_without();
		*refusal[i] = 0;
		assert_int_equal(fake->iovs + fake->rings + fake->fds, 0);
	}
	mc_log_close();
	snprintf(path, sizeof(path), "%s/usrbio.INFO", dir);
	log = fopen(path, "r");
	assert_non_null(log);
	while (fgets(line, sizeof(line), log))
		found |= strstr(line, "no USRBIO for ") && strstr(line, "mooncake-0.ssd") &&
			 strstr(line, "3FS gives no");
	fclose(log);
	assert_true(found);
	m = usrbio();
	assert_int_equal(load(m, 0, 8192, 1), 0);
	mct_medium_close(m);
}

/* ---- transfers that fail ----------------------------------------------------------------------- */

/* The transfer ends with its own error, or, once the disk is paused (health.c), with that of all transfers. */
static void fails(int r, int error)
{
	if (r != error)
		assert_int_equal(r, -MC_EUNAVAILABLE);
}

/* The disk is tried every 250 ms. */
static void works_again(struct mct_medium *m, uint32_t len, unsigned char byte)
{
	int r = -1;

	for (unsigned i = 0; i < 500 && r < 0; i++) {
		r = load(m, 0, len, byte);
		if (r < 0)
			mc_sleep_ms(10);
	}
	assert_int_equal(r, 0);
}

/* A failed read is examined, and read once more. */
static void an_error_ends_one_transfer(void **state)
{
	struct mct_medium *m = usrbio();

	assert_int_equal(store(m, 0, MIB, 1), 0);
	fake->error = EIO;
	fake->errors = 1;
	assert_int_equal(load(m, 0, 4096, 1), 0);
	assert_int_equal(fake->errors, 0);
	fake->error = ENOSPC;
	fake->errors = 1;
	assert_int_equal(store(m, 0, 4096, 9), -ENOSPC);
	assert_int_equal(load(m, 0, MIB, 1), 0);
	fake->error = EIO;
	fake->errors = -1;
	for (unsigned i = 0; i < 50; i++) {
		fails(load(m, i * 4096, 4096, 1), -EIO);
		fails(store_from(m, i * 4096, 4096, own), -EIO);
	}
	fake->errors = 0;
	works_again(m, MIB, 1);
	/* Not an errno value. */
	fake->error = 1 << 20;
	fake->errors = 1;
	assert_int_equal(store(m, 0, 4096, 1), -EIO);
	mct_medium_close(m);
}

static void the_rest_of_a_short_transfer_follows(void **state)
{
	struct mct_medium *m = usrbio();
	int ios = fake->ios;

	for (unsigned i = 0; i < sizeof(own); i++)
		own[i] = (char)(i / MCT_BLOCK + 1);
	fake->shorts = 5;
	assert_int_equal(store_from(m, 0, MIB, own), 0);
	assert_int_equal(fake->ios - ios, 6);
	fake->shorts = 5;
	for (unsigned i = 0; i < MIB / MCT_BLOCK; i += 50)
		assert_int_equal(load(m, i * MCT_BLOCK, MCT_BLOCK, (unsigned char)(i + 1)), 0);
	assert_int_equal(store(m, 2 * MIB, MIB, 3), 0);
	fake->shorts = 5;
	assert_int_equal(load(m, 2 * MIB, MIB, 3), 0);
	assert_int_equal(fake->shorts, 0);
	mct_medium_close(m);
}

/* 3FS ends a read at a hole, the last one of which may be anywhere before the end of the file. */
static void a_hole_is_zeros_and_a_cut_file_an_error(void **state)
{
	struct mct_medium *m = usrbio();
	struct wait_read r;
	int fd = file_open();

	assert_int_equal(store(m, 8 * MIB, 8192, 5), 0);
	fake->hole = DATA_AT + 8 * MIB + 8192;
	read_begin(m, &r, 8 * MIB, 65536);
	sem_wait(&r.sem);
	assert_int_equal(r.r.status, 0);
	for (unsigned i = 0; i < 65536; i++)
		assert_int_equal(((const char *)r.r.at)[i], i < 8192 ? 5 : 0);
	m->ops->read_end(m, &r.r);
	assert_int_equal(load(m, 9 * MIB, MIB, 0), 0);
	fake->hole = 0;
	assert_int_equal(ftruncate(fd, DATA_AT + 8 * MIB + 8192), 0);
	close(fd);
	assert_int_equal(load(m, 8 * MIB, 65536, 5), -EIO);
	assert_int_equal(load(m, 9 * MIB, 4096, 5), -EIO);
	assert_int_equal(load(m, 8 * MIB, 8192, 5), 0);
	mct_medium_close(m);
}

static void count_write(struct mct_write *w)
{
	sem_post((sem_t *)(uintptr_t)w->priv[11]);
}

#define WRITE_LEN (2 * MCT_BLOCK)

/* @n writes from memory of this test. */
static void writes_begin(struct mct_medium *m, struct mct_write *w, unsigned n, sem_t *ended)
{
	for (unsigned i = 0; i < n; i++) {
		w[i] = (struct mct_write){ .off = i * WRITE_LEN, .len = WRITE_LEN, .buf = own + i * WRITE_LEN,
					   .done = count_write };
		w[i].priv[11] = (uintptr_t)ended;
		m->ops->write_start(m, &w[i]);
	}
}

static void a_full_ring_delays_and_a_dead_one_fails(void **state)
{
	struct mct_medium *m = usrbio();
	struct mct_write w[3];
	int begun = fake->begun;
	sem_t sem;

	sem_init(&sem, 0, 0);
	fake->full = 2;
	assert_int_equal(store(m, 0, MIB, 1), 0);
	/* The next one waits until the first one has ended. */
	fake->stuck = 1;
	writes_begin(m, w, 1, &sem);
	while (fake->begun < begun + 2)
		mc_sleep_ms(1);
	fake->full = 1;
	writes_begin(m, w + 1, 2, &sem);
	while (fake->full)
		mc_sleep_ms(1);
	assert_int_equal(fake->begun, begun + 2);
	fake->stuck = 0;
	for (unsigned i = 0; i < 3; i++)
		sem_wait(&sem);
	assert_int_equal(store(m, 0, MIB, 1), 0);
	assert_int_equal(load(m, 0, MIB, 1), 0);
	fake->full = -1;
	fails(load(m, 0, 4096, 1), -EIO);
	fails(store_from(m, 0, 4096, own), -EIO);
	fake->full = 0;
	works_again(m, MIB, 1);
	mct_medium_close(m);
}

/* ---- a slow and an ended daemon ---------------------------------------------------------------- */

static void calls_that_fail_are_made_again(void **state)
{
	struct mct_medium *m = usrbio();

	fake->unwoken = 1;
	assert_int_equal(store(m, 0, 4096, 1), 0);
	fake->deaf = 1;
	assert_int_equal(load(m, 0, 4096, 1), 0);
	assert_int_equal(fake->unwoken + fake->deaf, 0);
	mct_medium_close(m);
}

static void a_slow_daemon_is_waited_for(void **state)
{
	struct mct_medium *m = usrbio();
	struct wait_read r;
	struct timespec ts;

	assert_int_equal(store(m, 0, 4096, 1), 0);
	fake->stuck = 1;
	read_begin(m, &r, 0, 4096);
	/* An error that does not prove the daemon's end. */
	fs_error = EIO;
	ts = mc_timespec(mc_wall_ns() + 400 * MC_NS_PER_MS);
	assert_int_equal(sem_timedwait(&r.sem, &ts), -1);
	fake->stuck = 0;
	/* The fake did not carry it out while it was stuck. */
	sem_wait(&r.sem);
	assert_int_equal(r.r.status, 0);
	m->ops->read_end(m, &r.r);
	mct_medium_close(m);
}

static void closing_waits_for_transfers(void **state)
{
	static struct mct_write w[100];
	struct mct_medium *m = usrbio();
	int ended;
	sem_t sem;

	sem_init(&sem, 0, 0);
	memset(own, 6, sizeof(own));
	fake->delay_us = 1000;
	/* Also for the second half of each. */
	fake->shorts = -1;
	writes_begin(m, w, 100, &sem);
	mct_medium_close(m);
	sem_getvalue(&sem, &ended);
	assert_int_equal(ended, 100);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(w[i].status, 0);
	fake->delay_us = 0;
	fake->shorts = 0;
	m = usrbio();
	assert_int_equal(load(m, 0, 100 * WRITE_LEN, 6), 0);
	mct_medium_close(m);
}

/* Also those that are in no ring yet; afterwards none waits. */
static void an_ended_daemon_fails_all_transfers(void **state)
{
	static struct mct_write w[100];
	struct mct_medium *m = usrbio();
	struct wait_read r[3];
	sem_t sem;

	sem_init(&sem, 0, 0);
	fake->stuck = 1;
	writes_begin(m, w, 100, &sem);
	for (unsigned i = 0; i < 3; i++)
		read_begin(m, &r[i], i * MIB, 4096);
	fs_error = ENOTCONN;
	for (unsigned i = 0; i < 100; i++)
		sem_wait(&sem);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(w[i].status, -ENOTCONN);
	for (unsigned i = 0; i < 3; i++) {
		sem_wait(&r[i].sem);
		fails(r[i].r.status, -ENOTCONN);
	}
	fs_error = 0;
	fails(store_from(m, 0, 4096, own), -ENOTCONN);
	fails(load(m, 0, 4096, 2), -ENOTCONN);
	mct_medium_close(m);
	fake->stuck = 0;
	m = usrbio();
	assert_int_equal(store(m, 0, 4096, 2), 0);
	assert_int_equal(load(m, 0, 4096, 2), 0);
	mct_medium_close(m);
}

/* ---- threads ----------------------------------------------------------------------------------- */

struct worker {
	struct mct_medium *m;
	struct mc_thread thread;
	unsigned nth;
	unsigned failed, wrong;
};

static bool worker_reads(struct worker *w, uint64_t off, uint32_t len, char byte)
{
	struct wait_read r;
	bool wrong = false;

	read_begin(w->m, &r, off, len);
	sem_wait(&r.sem);
	if (r.r.status < 0)
		return false;
	for (uint32_t i = 0; i < len; i++)
		wrong |= ((const char *)r.r.at)[i] != byte;
	w->m->ops->read_end(w->m, &r.r);
	w->wrong += wrong;
	return true;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	uint64_t begin = w->nth * 4 * MIB;
	char *mem = aligned_alloc(MCT_BLOCK, MIB);

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t len = (i % 7 + 1) * 8 * MCT_BLOCK;
		uint64_t off = begin + i % 11 * 65536;
		char byte = (char)(w->nth * ROUNDS + i);

		memset(mem, byte, len);
		/* The bytes of a failed write are not read. */
		if (store_from(w->m, off, len, mem) < 0 || !worker_reads(w, off, len, byte)) {
			w->failed++;
			/* The disk may be paused for 250 ms. */
			mc_sleep_ms(50);
		}
	}
	free(mem);
	return NULL;
}

static void many_threads_get_their_own_bytes(void **state)
{
	struct worker w[THREADS] = { 0 };
	struct mct_medium *m = usrbio();
	unsigned failed = 0;

	fake->error = EIO;
	fake->errors = 8;
	fake->shorts = 200;
	fake->full = 6;
	fake->delay_us = 50;
	for (unsigned i = 0; i < THREADS; i++) {
		w[i].m = m;
		w[i].nth = i;
		assert_int_equal(mc_thread_start(&w[i].thread, "worker", worker_main, &w[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		mc_thread_join(w[i].thread);
		assert_int_equal(w[i].wrong, 0);
		failed += w[i].failed;
	}
	assert_in_range(failed, 1, THREADS * ROUNDS * 3 / 4);
	assert_int_equal(fake->errors, 0);
	mct_medium_close(m);
}

/* Settings of the last test; counters stay. */
static int fake_clear(void **state)
{
	fake->errors = fake->shorts = fake->full = fake->unwoken = fake->deaf = fake->delay_us = fake->stuck = 0;
	fake->hole = 0;
	fs_error = 0;
	return 0;
}

static int setup(void **state)
{
	fake = tiers_3fs();
	return tiers_3fs_make(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* The first one, because the log has the same line once in a second. */
		cmocka_unit_test(refusals_of_3fs_lead_to_another_way),
		cmocka_unit_test(a_file_that_is_not_on_3fs_needs_no_library),
		cmocka_unit_test(the_daemon_says_whether_a_file_is_on_3fs),
		cmocka_unit_test(a_library_that_cannot_be_used_is_named),
		cmocka_unit_test_teardown(an_error_ends_one_transfer, fake_clear),
		cmocka_unit_test_teardown(the_rest_of_a_short_transfer_follows, fake_clear),
		cmocka_unit_test_teardown(a_full_ring_delays_and_a_dead_one_fails, fake_clear),
		cmocka_unit_test_teardown(calls_that_fail_are_made_again, fake_clear),
		cmocka_unit_test_teardown(a_slow_daemon_is_waited_for, fake_clear),
		cmocka_unit_test_teardown(closing_waits_for_transfers, fake_clear),
		cmocka_unit_test_teardown(an_ended_daemon_fails_all_transfers, fake_clear),
		cmocka_unit_test_teardown(many_threads_get_their_own_bytes, fake_clear),
		cmocka_unit_test_teardown(a_hole_is_zeros_and_a_cut_file_an_error, fake_clear),
	};

	return cmocka_run_group_tests(tests, setup, tiers_3fs_remove);
}
