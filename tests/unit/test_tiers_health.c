/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_health.c - the tier "ssd" on a device that fails: as a whole, in one range, for a moment, for ever; and
 * the medium that comes back. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/fault.h"
#include "common/sys/clock.h"
#include "tiers/tier.h"

#define MIB (1ull << 20)
#define DATA_AT MIB

static char dir[] = "/var/tmp/mc-health.XXXXXX";
static char path[64], saved[64], foreign[64];

struct wait_read {
	struct mct_read r;
	sem_t sem;
};

struct wait_write {
	struct mct_write w;
	sem_t sem;
};

static void read_done(struct mct_read *r)
{
	sem_post(&((struct wait_read *)r)->sem);
}

static void write_done(struct mct_write *w)
{
	sem_post(&((struct wait_write *)w)->sem);
}

static int store(struct mct_medium *m, uint64_t off, unsigned char byte)
{
	static char buf[MCT_PIECE_MAX] __attribute__((aligned(MCT_BLOCK)));
	struct wait_write w = { .w = { .off = off, .len = MIB, .buf = buf, .done = write_done } };

	sem_init(&w.sem, 0, 0);
	memset(buf, byte, sizeof(buf));
	m->ops->write_start(m, &w.w);
	sem_wait(&w.sem);
	return w.w.status;
}

static void read_begin(struct mct_medium *m, struct wait_read *r, uint64_t off)
{
	*r = (struct wait_read){ .r = { .off = off, .len = 4096, .done = read_done } };
	sem_init(&r->sem, 0, 0);
	m->ops->read_start(m, &r->r);
}

static int read_end(struct mct_medium *m, struct wait_read *r, unsigned char byte)
{
	sem_wait(&r->sem);
	if (r->r.status < 0)
		return r->r.status;
	for (uint32_t i = 0; i < r->r.len; i++)
		assert_int_equal(((const unsigned char *)r->r.at)[i], byte);
	m->ops->read_end(m, &r->r);
	return 0;
}

static int load(struct mct_medium *m, uint64_t off, unsigned char byte)
{
	struct wait_read r;

	read_begin(m, &r, off);
	return read_end(m, &r, byte);
}

/* A new medium with the bytes 1 in its first MiB and 2 in its second. */
static struct mct_medium *medium(const char *kind)
{
	const struct mct_conf conf = { .size = 4 * MIB, .kind = kind, .path = dir, .buffers = 8 * MIB };
	const uint64_t words[MCT_IDENTITY] = { 11, 12, 13 };
	struct mct_medium *m;

	unlink(path);
	assert_int_equal(mct_medium_open("ssd", &conf, &m), 0);
	assert_int_equal(m->ops->set_identity(m, words), 0);
	assert_int_equal(store(m, 0, 1), 0);
	assert_int_equal(store(m, MIB, 2), 0);
	return m;
}

/* The disk is in use again, and has all bytes. */
static void returns(struct mct_medium *m)
{
	uint64_t deadline = mc_deadline_ms(10000);
	int r;

	while ((r = load(m, 0, 1)) == -MC_EUNAVAILABLE && mc_now_ns() < deadline)
		mc_sleep_ms(5);
	assert_int_equal(r, 0);
	assert_int_equal(load(m, MIB, 2), 0);
	assert_int_equal(store(m, 2 * MIB, 3), 0);
}

static void faults(const char *spec)
{
	assert_int_equal(mc_fault_set(spec), 0);
}

/* Wait until a medium at the path was examined twice more. */
static void examined_twice(void)
{
	uint64_t deadline = mc_deadline_ms(10000);

	faults("tiers.ssd.again=delay:0");
	while (mc_fault_hits("tiers.ssd.again") < 3 && mc_now_ns() < deadline)
		mc_sleep_ms(5);
	assert_true(mc_fault_hits("tiers.ssd.again") >= 3);
	faults(NULL);
}

static void copy(const char *from, const char *to)
{
	char cmd[256];

	snprintf(cmd, sizeof(cmd), "cp --sparse=always %s %s", from, to);
	assert_int_equal(system(cmd), 0);
}

/* ---- the tests --------------------------------------------------------------------------------- */

static void a_device_that_is_gone_pauses_the_disk(const char *kind, const char *spec)
{
	struct mct_medium *m = medium(kind);
	uint64_t words[MCT_IDENTITY] = { 21 }, deadline = mc_deadline_ms(10000);
	struct wait_read r[8];
	char note[MCT_BLOCK];
	void *buf;

	faults(spec);
	/* several at one time */
	for (unsigned i = 0; i < 8; i++)
		read_begin(m, &r[i], i * 8192);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(read_end(m, &r[i], 1), -MC_EUNAVAILABLE);
	assert_int_equal(load(m, MIB, 2), -MC_EUNAVAILABLE);
	assert_int_equal(store(m, 2 * MIB, 3), -MC_EUNAVAILABLE);
	assert_int_equal(m->ops->buffer_get(m, deadline, &buf), -MC_EUNAVAILABLE);
	assert_int_equal(m->ops->note(m, 0, note, true), -MC_EUNAVAILABLE);
	assert_int_equal(m->ops->set_identity(m, words), -MC_EUNAVAILABLE);
	faults(NULL);
	returns(m);
	assert_int_equal(m->ops->identity(m, words), 0);
	assert_int_equal(words[0], 11);
	mct_medium_close(m);
}

static void a_disk_without_device_pauses_and_returns(void **state)
{
	a_device_that_is_gone_pauses_the_disk(NULL, "tiers.ssd.read=error:ENODEV");
	a_device_that_is_gone_pauses_the_disk("threads", "tiers.ssd.read=error:ENXIO");
	a_device_that_is_gone_pauses_the_disk(NULL, "tiers.ssd.read=error:EIO,tiers.ssd.write=error:EIO");
}

static void a_write_to_a_device_that_is_gone_pauses_the_disk(void **state)
{
	struct mct_medium *m = medium(NULL);
	uint64_t deadline = mc_deadline_ms(10000);
	int r;

	faults("tiers.ssd.read=error:ENODEV,tiers.ssd.write=error:ENODEV");
	assert_int_equal(store(m, 2 * MIB, 3), -ENODEV);
	while ((r = store(m, 2 * MIB, 3)) == -ENODEV && mc_now_ns() < deadline)
		mc_sleep_ms(1);
	assert_int_equal(r, -MC_EUNAVAILABLE);
	faults(NULL);
	returns(m);
	mct_medium_close(m);
}

static void a_write_error_alone_pauses_nothing(void **state)
{
	struct mct_medium *m = medium(NULL);

	faults("tiers.ssd.write=error:ENOSPC");
	for (unsigned i = 0; i < 50; i++) {
		assert_int_equal(store(m, 2 * MIB, 3), -ENOSPC);
		assert_int_equal(load(m, MIB, 2), 0);
	}
	faults(NULL);
	mct_medium_close(m);
}

static void a_bad_range_is_an_error_of_its_readers_only(void **state)
{
	struct mct_medium *m = medium(NULL);

	/* Of a file that was cut, the end cannot be read. */
	assert_int_equal(truncate(path, DATA_AT + MIB), 0);
	for (unsigned i = 0; i < 20; i++) {
		assert_int_equal(load(m, MIB + i * 4096, 2), -EIO);
		assert_int_equal(load(m, i * 4096, 1), 0);
	}
	mct_medium_close(m);
}

static void a_read_that_fails_once_is_repeated(void **state)
{
	struct mct_medium *m = medium(NULL);

	faults("tiers.ssd.read=error:EIO@1");
	assert_int_equal(load(m, 0, 1), 0);
	faults("tiers.ssd.read=error:ENODEV@1");
	assert_int_equal(load(m, MIB, 2), 0);
	faults(NULL);
	mct_medium_close(m);
}

/* Empty the file that is open, and put another one in its place. */
static void only_the_same_medium_is_used_again(void **state)
{
	const uint64_t other[MCT_IDENTITY] = { 11, 99, 13 };
	struct mct_medium *m = medium(NULL);
	uint64_t one = 1;
	int fd;

	assert_int_equal(m->ops->set_identity(m, other), 0);
	mct_medium_close(m);
	assert_int_equal(rename(path, foreign), 0);
	m = medium("threads");
	copy(path, saved);
	assert_int_equal(truncate(path, 0), 0);
	assert_int_equal(load(m, 0, 1), -MC_EUNAVAILABLE);
	assert_int_equal(unlink(path), 0);
	examined_twice();
	/* blank */
	fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0600);
	assert_int_equal(ftruncate(fd, (off_t)(DATA_AT + 4 * MIB)), 0);
	examined_twice();
	assert_int_equal(load(m, 0, 1), -MC_EUNAVAILABLE);
	assert_int_equal(store(m, 0, 9), -MC_EUNAVAILABLE);
	for (uint64_t off = 0; off < 8192; off += 8) {
		assert_int_equal(pread(fd, &one, 8, (off_t)off), 8);
		assert_int_equal(one, 0);
	}
	close(fd);
	assert_int_equal(rename(foreign, path), 0);
	examined_twice();
	assert_int_equal(load(m, 0, 1), -MC_EUNAVAILABLE);
	/* ours */
	assert_int_equal(rename(saved, path), 0);
	returns(m);
	mct_medium_close(m);
}

/* Before its threads wait. */
static struct mct_medium *medium_with_fake_clock(void)
{
	mc_clock_fake(mc_now_ns());
	return medium(NULL);
}

static bool came(struct wait_read *r)
{
	int n;

	return sem_getvalue(&r->sem, &n) == 0 && n > 0;
}

/* Let time pass until the read has an answer, at most @s seconds.  True: it has. */
static bool seconds_until(struct wait_read *r, unsigned s)
{
	for (unsigned i = 0; i < 4 * s && !came(r); i++) {
		mc_clock_advance(MC_NS_PER_SEC / 4);
		usleep(2000);
	}
	return came(r);
}

static void a_transfer_that_does_not_end_pauses_the_disk(void **state)
{
	struct mct_medium *m = medium_with_fake_clock();
	struct wait_read r, slow;

	faults("tiers.ssd.read=delay:60000@1");
	read_begin(m, &slow, 0);
	assert_false(seconds_until(&slow, 8));
	assert_true(seconds_until(&slow, 8));
	assert_int_equal(read_end(m, &slow, 1), -MC_EUNAVAILABLE);
	read_begin(m, &r, MIB);
	assert_int_equal(read_end(m, &r, 2), -MC_EUNAVAILABLE);
	/* It ends after all. */
	for (unsigned i = 0; i < 70; i++) {
		mc_clock_advance(MC_NS_PER_SEC);
		usleep(2000);
	}
	mc_clock_real();
	faults(NULL);
	returns(m);
	mct_medium_close(m);
}

static void a_slow_device_is_used(void **state)
{
	struct mct_medium *m = medium_with_fake_clock();
	struct wait_read r;

	faults("tiers.ssd.read=delay:1500");
	for (unsigned i = 0; i < 10; i++) {
		read_begin(m, &r, i * 4096);
		assert_true(seconds_until(&r, 4));
		assert_int_equal(read_end(m, &r, 1), 0);
	}
	mc_clock_real();
	faults(NULL);
	mct_medium_close(m);
}

static int remove_dir(void **state)
{
	char cmd[80];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

static int make_dir(void **state)
{
	if (!mkdtemp(dir))
		return -1;
	snprintf(path, sizeof(path), "%s/mooncake-0.ssd", dir);
	snprintf(saved, sizeof(saved), "%s/saved", dir);
	snprintf(foreign, sizeof(foreign), "%s/foreign", dir);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_disk_without_device_pauses_and_returns),
		cmocka_unit_test(a_write_to_a_device_that_is_gone_pauses_the_disk),
		cmocka_unit_test(a_write_error_alone_pauses_nothing),
		cmocka_unit_test(a_bad_range_is_an_error_of_its_readers_only),
		cmocka_unit_test(a_read_that_fails_once_is_repeated),
		cmocka_unit_test(only_the_same_medium_is_used_again),
		cmocka_unit_test(a_transfer_that_does_not_end_pauses_the_disk),
		cmocka_unit_test(a_slow_device_is_used),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
