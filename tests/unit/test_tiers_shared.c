/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_shared.c - files in a directory of several machines: the choice of an owner's file, the check of a
 * reader, and an owner whose lock was lost. */
#include <config.h>

#include <dirent.h>
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
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/sys/clock.h"
#include "tiers/tier.h"

#define MIB (1ull << 20)

static char dir[] = "/var/tmp/mc-shared.XXXXXX";

static int clean_dir(void **state)
{
	char cmd[96];

	snprintf(cmd, sizeof(cmd), "rm -rf %s/*", dir);
	return system(cmd);
}

static struct mct_medium *own(uint64_t pool)
{
	const struct mct_conf conf = {
		.size = 4 * MIB, .path = dir, .buffers = 8 * MIB, .share = MCT_SHARE_OWN,
		.expect = { 0, 0, 0, pool, pool },
	};
	struct mct_medium *m;

	assert_int_equal(mct_medium_open("ssd", &conf, &m), 0);
	return m;
}

static const char *path_of(const struct mct_medium *m)
{
	struct mct_status status;

	m->ops->status(m, &status);
	assert_non_null(status.path);
	return status.path;
}

/* The owner's words, in the pool. */
static void identify(struct mct_medium *m, uint64_t epoch, uint64_t pool, uint64_t ret[MCT_IDENTITY])
{
	assert_int_equal(m->ops->identity(m, ret), 0);
	ret[2] = epoch;
	ret[3] = ret[4] = pool;
	assert_int_equal(m->ops->set_identity(m, ret), 0);
}

static unsigned files(void)
{
	DIR *at = opendir(dir);
	unsigned n = 0;

	assert_non_null(at);
	for (struct dirent *e; (e = readdir(at));)
		n += e->d_name[0] != '.';
	closedir(at);
	return n;
}

static void each_owner_has_a_file(void **state)
{
	struct mct_medium *a = own(1), *b = own(1);
	uint64_t words[MCT_IDENTITY];
	char name[64], path[256];

	assert_int_equal(files(), 2);
	assert_string_not_equal(path_of(a), path_of(b));
	/* The file has the name of its segment. */
	assert_int_equal(a->ops->identity(a, words), 0);
	snprintf(name, sizeof(name), "%016llx%016llx.data", (unsigned long long)words[0], (unsigned long long)words[1]);
	assert_non_null(strstr(path_of(a), name));
	snprintf(path, sizeof(path), "%s", path_of(a));
	identify(a, 5, 1, words);
	mct_medium_close(a);
	/* The next owner of the pool continues with the free one. */
	a = own(1);
	assert_string_equal(path_of(a), path);
	assert_int_equal(a->ops->identity(a, words), 0);
	assert_int_equal(words[2], 5);
	assert_int_equal(files(), 2);
	mct_medium_close(a);
	mct_medium_close(b);
}

static void files_of_another_pool_are_left_alone(void **state)
{
	struct mct_medium *a = own(1), *b;
	uint64_t words[MCT_IDENTITY];
	char path[256];

	identify(a, 5, 1, words);
	snprintf(path, sizeof(path), "%s", path_of(a));
	mct_medium_close(a);
	b = own(2);
	assert_string_not_equal(path_of(b), path);
	identify(b, 7, 2, words);
	mct_medium_close(b);
	/* The pool is not known yet: the owner compares it before it offers the file. */
	a = own(0);
	mct_medium_close(a);
	a = own(1);
	assert_string_equal(path_of(a), path);
	assert_int_equal(a->ops->identity(a, words), 0);
	assert_int_equal(words[2], 5);
	mct_medium_close(a);
}

static void unfinished_and_damaged_files(void **state)
{
	struct mct_medium *m;
	uint64_t words[MCT_IDENTITY];
	char path[256];
	int fd;

	/* Its creator was killed before it wrote the header. */
	snprintf(path, sizeof(path), "%s/000000000000000a000000000000000b.data", dir);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	assert_true(fd >= 0);
	m = own(1);
	assert_string_equal(path_of(m), path);
	identify(m, 5, 1, words);
	assert_int_equal(words[0], 10);
	assert_int_equal(words[1], 11);
	mct_medium_close(m);
	assert_int_equal(pwrite(fd, "?", 1, 20), 1);
	close(fd);
	m = own(1);
	assert_string_not_equal(path_of(m), path);
	mct_medium_close(m);
}

/* As if the server had dropped it. */
static void lose_lock(const char *path)
{
	struct stat want, st;

	assert_int_equal(stat(path, &want), 0);
	for (int fd = 3; fd < 256; fd++)
		if (!fstat(fd, &st) && st.st_ino == want.st_ino && st.st_dev == want.st_dev)
			assert_int_equal(flock(fd, LOCK_UN), 0);
}

static void an_owner_that_lost_its_lock_writes_no_more(void **state)
{
	struct mct_medium *a = own(1), *b;
	uint64_t words[MCT_IDENTITY], other[MCT_IDENTITY];
	static char block[MCT_BLOCK] __attribute__((aligned(MCT_BLOCK)));

	identify(a, 5, 1, words);
	assert_int_equal(a->ops->hold(a), 0);
	lose_lock(path_of(a));
	assert_int_equal(a->ops->hold(a), 0);
	b = own(1);
	assert_string_equal(path_of(a), path_of(b));
	assert_int_equal(b->ops->hold(b), 0);
	assert_int_equal(a->ops->hold(a), -ESTALE);
	words[2] = 6;
	assert_int_equal(a->ops->set_identity(a, words), -ESTALE);
	assert_int_equal(a->ops->note(a, 0, block, true), -ESTALE);
	assert_int_equal(b->ops->identity(b, other), 0);
	assert_int_equal(other[2], 5);
	mct_medium_close(a);
	mct_medium_close(b);
}

static int adopt(const uint64_t words[MCT_IDENTITY], struct mct_medium **ret)
{
	struct mct_conf conf = { .path = dir, .buffers = 8 * MIB, .share = MCT_SHARE_OWN };

	memcpy(conf.expect, words, sizeof(conf.expect));
	return mct_medium_open("ssd", &conf, ret);
}

/* A header that is not whole does not say that another process has the file. */
static void a_damaged_header_is_no_takeover(void **state)
{
	uint64_t words[MCT_IDENTITY], end = mc_deadline_ms(20000);
	struct mct_medium *m = own(1);
	unsigned char good, bad;
	int fd, r;

	identify(m, 7, 1, words);
	fd = open(path_of(m), O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &good, 1, 16), 1);
	bad = (unsigned char)~good;
	assert_int_equal(pwrite(fd, &bad, 1, 16), 1);
	r = m->ops->hold(m);
	assert_true(r == -EIO || r == -MC_EUNAVAILABLE);
	assert_int_equal(pwrite(fd, &good, 1, 16), 1);
	while (m->ops->hold(m) != 0) {
		assert_true(mc_now_ns() < end);
		mc_sleep_ms(10);
	}
	close(fd);
	mct_medium_close(m);
}

static void only_the_expected_file_is_adopted(void **state)
{
	struct mct_medium *a = own(1), *b = own(1), *m;
	uint64_t words[MCT_IDENTITY], got[MCT_IDENTITY];
	char path[256];

	identify(a, 5, 1, words);
	snprintf(path, sizeof(path), "%s", path_of(a));
	assert_int_equal(adopt(words, &m), -EWOULDBLOCK);
	mct_medium_close(a);
	/* With another epoch or pool it has other objects.  Neither is the header changed, nor a file made. */
	for (unsigned i = 2; i < MCT_EXPECT; i++) {
		words[i]++;
		assert_int_equal(adopt(words, &m), -ESTALE);
		words[i]--;
	}
	words[0]++;
	assert_int_equal(adopt(words, &m), -ENOENT);
	words[0]--;
	assert_int_equal(files(), 2);
	assert_int_equal(adopt(words, &m), 0);
	assert_string_equal(path_of(m), path);
	assert_int_equal(m->ops->identity(m, got), 0);
	assert_memory_equal(got, words, sizeof(got));
	assert_int_equal(m->ops->hold(m), 0);
	/* The earlier owner comes back: it gets a new file. */
	a = own(1);
	assert_string_not_equal(path_of(a), path);
	assert_int_equal(files(), 3);
	mct_medium_close(a);
	mct_medium_close(b);
	mct_medium_close(m);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(adopt(words, &m), -ENOENT);
}

/* ---- readers ---- */

struct wait_read {
	struct mct_read r;
	sem_t sem;
};

static void read_done(struct mct_read *r)
{
	sem_post(&((struct wait_read *)r)->sem);
}

static int read_byte(struct mct_medium *m, uint64_t off, char *ret)
{
	struct wait_read w = { .r = { .off = off, .len = 1, .done = read_done } };

	sem_init(&w.sem, 0, 0);
	m->ops->read_start(m, &w.r);
	sem_wait(&w.sem);
	if (w.r.status < 0)
		return w.r.status;
	*ret = *(const char *)w.r.at;
	m->ops->read_end(m, &w.r);
	return 0;
}

static int reader(const char *path, const uint64_t words[MCT_IDENTITY], struct mct_medium **ret)
{
	struct mct_conf conf = { .path = path, .buffers = 8 * MIB, .share = MCT_SHARE_READ };

	memcpy(conf.expect, words, sizeof(conf.expect));
	return mct_medium_open("ssd", &conf, ret);
}

static void a_reader_accepts_the_expected_file_only(void **state)
{
	struct mct_medium *a = own(1), *m;
	uint64_t words[MCT_IDENTITY];
	char fifo[256], byte = 0;
	int fd = open(path_of(a), O_RDWR);

	identify(a, 5, 1, words);
	assert_int_equal(pwrite(fd, "x", 1, MIB + 100), 1);
	assert_int_equal(reader(path_of(a), words, &m), 0);
	assert_int_equal(read_byte(m, 100, &byte), 0);
	assert_int_equal(byte, 'x');
	/* Cut off under the reader. */
	assert_int_equal(ftruncate(fd, 2 * MIB), 0);
	assert_int_equal(read_byte(m, 100, &byte), 0);
	assert_int_equal(read_byte(m, 2 * MIB, &byte), -EIO);
	mct_medium_close(m);
	for (unsigned i = 0; i < MCT_EXPECT; i++) {
		words[i]++;
		assert_int_equal(reader(path_of(a), words, &m), -ESTALE);
		words[i]--;
	}
	assert_int_equal(pwrite(fd, "?", 1, 20), 1);
	assert_int_equal(reader(path_of(a), words, &m), -ESTALE);
	close(fd);
	mct_medium_close(a);
	snprintf(fifo, sizeof(fifo), "%s/000000000000000a000000000000000b.data", dir);
	assert_int_equal(reader(fifo, words, &m), -ENOENT);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(reader(fifo, words, &m), -EINVAL);
	assert_int_equal(reader("/dev/null", words, &m), -EINVAL);
}

static int remove_dir(void **state)
{
	clean_dir(state);
	return rmdir(dir);
}

static int make_dir(void **state)
{
	return mkdtemp(dir) ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(each_owner_has_a_file, clean_dir),
		cmocka_unit_test_teardown(files_of_another_pool_are_left_alone, clean_dir),
		cmocka_unit_test_teardown(unfinished_and_damaged_files, clean_dir),
		cmocka_unit_test_teardown(an_owner_that_lost_its_lock_writes_no_more, clean_dir),
		cmocka_unit_test_teardown(a_damaged_header_is_no_takeover, clean_dir),
		cmocka_unit_test_teardown(only_the_expected_file_is_adopted, clean_dir),
		cmocka_unit_test_teardown(a_reader_accepts_the_expected_file_only, clean_dir),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
