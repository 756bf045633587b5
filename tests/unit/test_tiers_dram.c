/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_dram.c - segment memory of every kind. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/clock.h"
#include "common/err.h"
#include "tiers/dram.h"
#include "tiers/memlimit.h"

#define MIB (1ull << 20)

static int open_kind(const char *kind, uint64_t size, int prefault, struct mct_dram **ret)
{
	struct mct_dram_conf conf = {
		.size = size, .kind = kind, .numa_node = -1, .prefault = prefault,
	};

	return mct_dram_open(&conf, ret);
}

/* The file is the memory: what is written through one is read through the other. */
static void check_memory(struct mct_dram *d, uint64_t size)
{
	char *mem = mct_dram_base(d), *other;
	char byte;

	assert_int_equal(mct_dram_size(d), size);
	assert_int_equal((uintptr_t)mem % (2 * MIB), 0);
	assert_int_equal(mem[0], 0);
	assert_int_equal(mem[size - 1], 0);
	mem[0] = 1;
	mem[size - 1] = 2;
	other = mmap(NULL, size, PROT_READ, MAP_SHARED, mct_dram_fd(d), 0);
	assert_true(other != MAP_FAILED);
	assert_int_equal(other[0], 1);
	assert_int_equal(other[size - 1], 2);
	munmap(other, size);
	/* hugetlbfs has no pread of its own in old kernels, the others have. */
	if (strcmp(mct_dram_kind(d), "hugetlb")) {
		assert_int_equal(pread(mct_dram_fd(d), &byte, 1, 0), 1);
		assert_int_equal(byte, 1);
	}
	assert_true(fcntl(mct_dram_fd(d), F_GETFD) & FD_CLOEXEC);
}

static void auto_kind(void **state)
{
	struct mct_dram *d;

	assert_int_equal(open_kind("auto", 5 * MIB, 0, &d), 0);
	check_memory(d, 6 * MIB);
	assert_true(!strcmp(mct_dram_kind(d), "tmpfs") || !strcmp(mct_dram_kind(d), "memfd"));
	mct_dram_close(d);
	assert_int_equal(open_kind(NULL, 1, 0, &d), 0);
	check_memory(d, 2 * MIB);
	mct_dram_close(d);
}

static void growing(void **state)
{
	struct mct_dram_conf conf = {
		.size = 2 * MIB, .reserve = 7 * MIB, .kind = "auto", .numa_node = -1, .prefault = 1,
	};
	struct mct_dram *d;
	char *base;

	assert_int_equal(mct_dram_open(&conf, &d), 0);
	base = mct_dram_base(d);
	assert_int_equal(mct_dram_size(d), 2 * MIB);
	assert_int_equal(mct_dram_reserved(d), 8 * MIB);
	base[0] = 7;
	assert_int_equal(mct_dram_grow(d, 1 * MIB), 0);
	assert_int_equal(mct_dram_size(d), 2 * MIB);
	assert_int_equal(mct_dram_grow(d, 5 * MIB), 0);
	assert_int_equal(mct_dram_size(d), 6 * MIB);
	assert_ptr_equal(mct_dram_base(d), base);
	assert_int_equal(base[0], 7);
	base[6 * MIB - 1] = 8;
	assert_int_equal(mct_dram_grow(d, 4 * MIB), -EINVAL);
	assert_int_equal(mct_dram_grow(d, 8 * MIB + 1), -EINVAL);
	assert_int_equal(mct_dram_grow(d, UINT64_MAX), -EINVAL);
	assert_int_equal(mct_dram_size(d), 6 * MIB);
	assert_int_equal(mct_dram_grow(d, 8 * MIB), 0);
	/* The new part is touched beforehand, too. */
	while (mct_dram_prefaulted(d) < 8 * MIB)
		usleep(1000);
	base[8 * MIB - 1] = 9;
	mct_dram_close(d);
	/* Without a reserve there is nothing to grow into. */
	assert_int_equal(open_kind("memfd", 2 * MIB, 0, &d), 0);
	assert_int_equal(mct_dram_grow(d, 4 * MIB), -EINVAL);
	mct_dram_close(d);
}

/* By whom it is shared with, nor opened for writing by others to whom it was given for reading. */
static void cannot_be_cut(struct mct_dram *d)
{
	struct stat st;

	assert_int_equal(ftruncate(mct_dram_fd(d), 2 * MIB), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(fstat(mct_dram_fd(d), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void tmpfs(void **state)
{
	struct mct_dram *d;
	struct stat st;
	int r = open_kind("tmpfs", 4 * MIB, 0, &d);

	if (r == -EPERM || r == -EINVAL || r == -ENOSYS) {
		printf("SKIP: %s\n", mc_err_detail(r));
		skip();
	}
	assert_int_equal(r, 0);
	check_memory(d, 4 * MIB);
	assert_string_equal(mct_dram_kind(d), "tmpfs");
	/* No name leads to it. */
	assert_int_equal(fstat(mct_dram_fd(d), &st), 0);
	assert_int_equal(st.st_nlink, 0);
	/* The file cannot grow behind the size that was asked for. */
	assert_int_equal(fallocate(mct_dram_fd(d), 0, 0, 64 * MIB), -1);
	assert_int_equal(errno, ENOSPC);
	mct_dram_close(d);
}

static void memfd(void **state)
{
	struct mct_dram *d;

	assert_int_equal(open_kind("memfd", 4 * MIB, 0, &d), 0);
	check_memory(d, 4 * MIB);
	assert_string_equal(mct_dram_kind(d), "memfd");
	cannot_be_cut(d);
	mct_dram_close(d);
}

static void hugetlb(void **state)
{
	struct mct_dram *d;
	int r;

	if (mct_hugetlb_free() < 4 * MIB) {
		/* Not asked for by "auto", and refused with what there is. */
		r = open_kind("hugetlb", 4 * MIB, 0, &d);
		assert_int_equal(r, -ENOMEM);
		assert_non_null(strstr(mc_err_detail(r), "huge pages"));
		return;
	}
	assert_int_equal(open_kind("hugetlb", 4 * MIB, 0, &d), 0);
	check_memory(d, 4 * MIB);
	cannot_be_cut(d);
	mct_dram_close(d);
}

static void unprivileged(void **state)
{
	struct mct_dram *d;
	int status, r;
	pid_t pid;

	if (geteuid() != 0)
		skip();		/* then auto_kind has shown it */
	pid = fork();
	if (pid == 0) {
		if (setgid(65534) || setuid(65534))
			_exit(9);
		/* ENOSYS: a system, or valgrind, that has not the call at all */
		r = open_kind("tmpfs", MIB, 0, &d);
		if (r != -EPERM && r != -ENOSYS)
			_exit(1);
		if (open_kind("auto", MIB, 1, &d) || strcmp(mct_dram_kind(d), "memfd"))
			_exit(2);
		memset(mct_dram_base(d), 1, mct_dram_size(d));
		mct_dram_close(d);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void refused(void **state)
{
	struct mct_dram_conf conf = { .size = 2 * MIB, .kind = "auto", .numa_node = 5000 };
	struct mct_dram *d = NULL;
	const char *by;
	char number[32];
	int r;

	assert_int_equal(mct_dram_open(&conf, &d), -EINVAL);
	conf.numa_node = 900;
	assert_true(mct_dram_open(&conf, &d) < 0);
	assert_int_equal(open_kind("paper", MIB, 0, &d), -EINVAL);
	assert_int_equal(open_kind("memfd", 0, 0, &d), -EINVAL);
	assert_int_equal(open_kind("memfd", UINT64_MAX, 0, &d), -EINVAL);
	r = open_kind("memfd", 1ull << 50, 0, &d);
	assert_int_equal(r, -ENOMEM);
	/* The text tells the amount to the operator, give or take what others just used. */
	snprintf(number, sizeof(number), "%llu", 1ull << 50);
	assert_non_null(strstr(mc_err_detail(r), number));
	assert_non_null(strstr(mc_err_detail(r), "can be had"));
	assert_true(mct_mem_available(&by) < 1ull << 50);
	assert_null(d);
	mct_dram_close(NULL);
}

static void prefault(void **state)
{
	uint64_t end = mc_deadline_ms(60000);
	struct mct_dram *d;
	struct stat st;
	char *mem;

	assert_int_equal(open_kind("auto", 64 * MIB, 1, &d), 0);
	mem = mct_dram_base(d);
	memset(mem, 0x5a, 64 * MIB);	/* served while it grows */
	while (mct_dram_prefaulted(d) < 64 * MIB && mc_now_ns() < end)
		usleep(1000);
	assert_int_equal(mct_dram_prefaulted(d), 64 * MIB);
	assert_int_equal(fstat(mct_dram_fd(d), &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 >= 64 * MIB);
	for (uint64_t i = 0; i < 64 * MIB; i += 4096)
		assert_int_equal(mem[i], 0x5a);
	mct_dram_close(d);
}

/* Growing does not wait for what is being touched, which goes on to the new end. */
static void grown_meanwhile(void **state)
{
	struct mct_dram_conf conf = {
		.size = 1024 * MIB, .reserve = 1280 * MIB, .kind = "memfd", .numa_node = -1, .prefault = 1,
	};
	uint64_t end = mc_deadline_ms(60000);
	struct mct_dram *d;
	const char *by;

	if (mct_mem_available(&by) < 2048 * MIB)
		skip();
	assert_int_equal(mct_dram_open(&conf, &d), 0);
	assert_int_equal(mct_dram_grow(d, 1152 * MIB), 0);
	assert_true(mct_dram_prefaulted(d) < 1024 * MIB);
	while (mct_dram_prefaulted(d) < 1152 * MIB && mc_now_ns() < end)
		usleep(1000);
	assert_int_equal(mct_dram_prefaulted(d), 1152 * MIB);
	/* and when the thread has ended */
	assert_int_equal(mct_dram_grow(d, 1280 * MIB), 0);
	while (mct_dram_prefaulted(d) < 1280 * MIB && mc_now_ns() < end)
		usleep(1000);
	assert_int_equal(mct_dram_prefaulted(d), 1280 * MIB);
	mct_dram_close(d);
}

/* Closing does not wait for gigabytes to be cleared. */
static void prefault_ends_early(void **state)
{
	struct mct_dram *d;
	const char *by;
	uint64_t size = 4096 * MIB, began;

	if (mct_mem_available(&by) < size)
		skip();
	assert_int_equal(open_kind("memfd", size, 1, &d), 0);
	began = mc_now_ns();
	mct_dram_close(d);
	assert_true(mc_now_ns() - began < MC_NS_PER_SEC);
}

/* A caller's file, of which a part is the segment. */
static int open_part(const char *path, uint64_t size, uint64_t offset, struct mct_dram **ret)
{
	struct mct_dram_conf conf = {
		.size = size, .path = path, .path_offset = offset, .numa_node = -1, .prefault = 1,
	};

	return mct_dram_open(&conf, ret);
}

static void test_path(void **state)
{
	char path[] = "/tmp/mc-dram.XXXXXX", byte;
	int fd = mkstemp(path);
	struct mct_dram *d;
	struct stat st;
	char *mem;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 8 * MIB), 0);
	assert_int_equal(open_part(path, 5 * MIB, 4096, &d), 0);
	assert_string_equal(mct_dram_kind(d), "file");
	assert_int_equal(mct_dram_size(d), 4 * MIB);
	assert_int_equal(mct_dram_reserved(d), 4 * MIB);
	assert_int_equal(mct_dram_fd_offset(d), 4096);
	mem = mct_dram_base(d);
	mem[0] = 1;
	mem[4 * MIB - 1] = 2;
	assert_int_equal(pread(fd, &byte, 1, 4096), 1);
	assert_int_equal(byte, 1);
	assert_int_equal(pread(fd, &byte, 1, 4 * MIB + 4095), 1);
	assert_int_equal(byte, 2);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 >= 4 * MIB);
	mct_dram_close(d);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 8 * MIB);
	/* beyond its end, not a page's beginning, too little, no file, no memory behind it */
	assert_int_equal(open_part(path, 8 * MIB, 4096, &d), -EINVAL);
	assert_int_equal(open_part(path, 2 * MIB, 1ull << 60, &d), -EINVAL);
	assert_int_equal(open_part(path, 2 * MIB, 100, &d), -EINVAL);
	assert_int_equal(open_part(path, MIB, 0, &d), -EINVAL);
	assert_int_equal(open_part("/nowhere/at/all", 2 * MIB, 0, &d), -ENOENT);
	assert_int_equal(open_part("/tmp", 2 * MIB, 0, &d), -EISDIR);
	assert_int_equal(open_part("/dev/null", 2 * MIB, 0, &d), -EINVAL);
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(auto_kind),
		cmocka_unit_test(growing),
		cmocka_unit_test(tmpfs),
		cmocka_unit_test(memfd),
		cmocka_unit_test(hugetlb),
		cmocka_unit_test(unprivileged),
		cmocka_unit_test(refused),
		cmocka_unit_test(prefault),
		cmocka_unit_test(grown_meanwhile),
		cmocka_unit_test(prefault_ends_early),
		cmocka_unit_test(test_path),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
