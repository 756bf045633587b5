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

#include "common/sys/clock.h"
#include "common/err.h"
#include "tiers/dram/dram.h"
#include "tiers/dram/memlimit.h"

#define MIB (1ull << 20)

static struct mct_status status_of(const struct mct_medium *m)
{
	struct mct_status status;

	m->ops->status(m, &status);
	return status;
}

static struct mct_memory memory_of(const struct mct_medium *m)
{
	struct mct_memory memory;

	assert_int_equal(m->ops->memory(m, &memory), 0);
	assert_int_equal(memory.len, status_of(m).limit);
	return memory;
}

static int open_kind(const char *kind, uint64_t size, int prefault, struct mct_medium **ret)
{
	struct mct_conf conf = {
		.size = size, .kind = kind, .numa_node = -1, .prefault = prefault,
	};

	return mct_medium_open("dram", &conf, ret);
}

/* The file is the memory: a byte stored in the mapping is read from the file. */
static void check_memory(struct mct_medium *d, uint64_t size)
{
	char *mem = memory_of(d).base, *other;
	char byte;

	assert_int_equal(status_of(d).size, size);
	assert_int_equal((uintptr_t)mem % (2 * MIB), 0);
	assert_int_equal(mem[0], 0);
	assert_int_equal(mem[size - 1], 0);
	mem[0] = 1;
	mem[size - 1] = 2;
	other = mmap(NULL, size, PROT_READ, MAP_SHARED, memory_of(d).fd, 0);
	assert_true(other != MAP_FAILED);
	assert_int_equal(other[0], 1);
	assert_int_equal(other[size - 1], 2);
	munmap(other, size);
	/* hugetlbfs cannot be read with pread in old kernels; the other kinds can. */
	if (strcmp(status_of(d).kind, "hugetlb")) {
		assert_int_equal(pread(memory_of(d).fd, &byte, 1, 0), 1);
		assert_int_equal(byte, 1);
	}
	assert_true(fcntl(memory_of(d).fd, F_GETFD) & FD_CLOEXEC);
}

static void auto_kind(void **state)
{
	struct mct_medium *d;

	assert_int_equal(open_kind("auto", 5 * MIB, 0, &d), 0);
	check_memory(d, 6 * MIB);
	assert_true(!strcmp(status_of(d).kind, "tmpfs") || !strcmp(status_of(d).kind, "memfd"));
	mct_medium_close(d);
	assert_int_equal(open_kind(NULL, 1, 0, &d), 0);
	check_memory(d, 2 * MIB);
	mct_medium_close(d);
}

static void grow_keeps_base_and_content(void **state)
{
	struct mct_conf conf = {
		.size = 2 * MIB, .reserve = 7 * MIB, .kind = "auto", .numa_node = -1, .prefault = 1,
	};
	struct mct_medium *d;
	char *base;

	assert_int_equal(mct_medium_open("dram", &conf, &d), 0);
	base = memory_of(d).base;
	assert_int_equal(status_of(d).size, 2 * MIB);
	assert_int_equal(status_of(d).limit, 8 * MIB);
	base[0] = 7;
	assert_int_equal(d->ops->grow(d, 1 * MIB), 0);
	assert_int_equal(status_of(d).size, 2 * MIB);
	assert_int_equal(d->ops->grow(d, 5 * MIB), 0);
	assert_int_equal(status_of(d).size, 6 * MIB);
	assert_ptr_equal(memory_of(d).base, base);
	assert_int_equal(base[0], 7);
	base[6 * MIB - 1] = 8;
	assert_int_equal(d->ops->grow(d, 4 * MIB), -EINVAL);
	assert_int_equal(d->ops->grow(d, 8 * MIB + 1), -EINVAL);
	assert_int_equal(d->ops->grow(d, UINT64_MAX), -EINVAL);
	assert_int_equal(status_of(d).size, 6 * MIB);
	assert_int_equal(d->ops->grow(d, 8 * MIB), 0);
	/* The pages of the new part are allocated in advance too. */
	while (status_of(d).ready < 8 * MIB)
		usleep(1000);
	base[8 * MIB - 1] = 9;
	mct_medium_close(d);
	/* A medium without a reserve cannot grow. */
	assert_int_equal(open_kind("memfd", 2 * MIB, 0, &d), 0);
	assert_int_equal(d->ops->grow(d, 4 * MIB), -EINVAL);
	mct_medium_close(d);
}

/* A process that shares the file cannot truncate it, and one of another user cannot reopen it for writing. */
static void check_sealed(struct mct_medium *d)
{
	struct stat st;

	assert_int_equal(ftruncate(memory_of(d).fd, 2 * MIB), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(fstat(memory_of(d).fd, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void tmpfs(void **state)
{
	struct mct_medium *d;
	struct stat st;
	int r = open_kind("tmpfs", 4 * MIB, 0, &d);

	if (r == -EPERM || r == -EINVAL || r == -ENOSYS) {
		printf("SKIP: %s\n", mc_err_detail(r));
		skip();
	}
	assert_int_equal(r, 0);
	check_memory(d, 4 * MIB);
	assert_string_equal(status_of(d).kind, "tmpfs");
	/* The file has no name. */
	assert_int_equal(fstat(memory_of(d).fd, &st), 0);
	assert_int_equal(st.st_nlink, 0);
	/* The file cannot grow beyond the requested size. */
	assert_int_equal(fallocate(memory_of(d).fd, 0, 0, 64 * MIB), -1);
	assert_int_equal(errno, ENOSPC);
	mct_medium_close(d);
}

static void memfd(void **state)
{
	struct mct_medium *d;

	assert_int_equal(open_kind("memfd", 4 * MIB, 0, &d), 0);
	check_memory(d, 4 * MIB);
	assert_string_equal(status_of(d).kind, "memfd");
	check_sealed(d);
	mct_medium_close(d);
}

static void hugetlb(void **state)
{
	struct mct_medium *d;
	int r;

	if (mct_hugetlb_free() < 4 * MIB) {
		/* The error says how many huge pages are free. */
		r = open_kind("hugetlb", 4 * MIB, 0, &d);
		assert_int_equal(r, -ENOMEM);
		assert_non_null(strstr(mc_err_detail(r), "huge pages"));
		return;
	}
	assert_int_equal(open_kind("hugetlb", 4 * MIB, 0, &d), 0);
	check_memory(d, 4 * MIB);
	check_sealed(d);
	mct_medium_close(d);
}

static void without_privileges_auto_means_memfd(void **state)
{
	struct mct_medium *d;
	int status, r;
	pid_t pid;

	if (geteuid() != 0)
		skip();		/* auto_kind has tested this already */
	pid = fork();
	if (pid == 0) {
		if (setgid(65534) || setuid(65534))
			_exit(9);
		/* ENOSYS: the kernel, or valgrind, does not have the call */
		r = open_kind("tmpfs", MIB, 0, &d);
		if (r != -EPERM && r != -ENOSYS)
			_exit(1);
		if (open_kind("auto", MIB, 1, &d) || strcmp(status_of(d).kind, "memfd"))
			_exit(2);
		memset(memory_of(d).base, 1, status_of(d).size);
		mct_medium_close(d);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void bad_settings_are_refused(void **state)
{
	struct mct_conf conf = { .size = 2 * MIB, .kind = "auto", .numa_node = 5000 };
	struct mct_medium *d = NULL;
	const char *by;
	char number[32];
	int r;

	assert_int_equal(mct_medium_open("dram", &conf, &d), -EINVAL);
	conf.numa_node = 900;
	assert_true(mct_medium_open("dram", &conf, &d) < 0);
	assert_int_equal(open_kind("paper", MIB, 0, &d), -EINVAL);
	assert_int_equal(open_kind("memfd", 0, 0, &d), -EINVAL);
	assert_int_equal(open_kind("memfd", UINT64_MAX, 0, &d), -EINVAL);
	r = open_kind("memfd", 1ull << 50, 0, &d);
	assert_int_equal(r, -ENOMEM);
	/* The text tells the operator the amount; other processes may have changed it meanwhile. */
	snprintf(number, sizeof(number), "%llu", 1ull << 50);
	assert_non_null(strstr(mc_err_detail(r), number));
	assert_non_null(strstr(mc_err_detail(r), "are available"));
	assert_true(mct_mem_available(&by) < 1ull << 50);
	assert_null(d);
	mct_medium_close(NULL);
}

static void prefault_keeps_content(void **state)
{
	uint64_t end = mc_deadline_ms(60000);
	struct mct_medium *d;
	struct stat st;
	char *mem;

	assert_int_equal(open_kind("auto", 64 * MIB, 1, &d), 0);
	mem = memory_of(d).base;
	memset(mem, 0x5a, 64 * MIB);	/* usable while pages are being allocated */
	while (status_of(d).ready < 64 * MIB && mc_now_ns() < end)
		usleep(1000);
	assert_int_equal(status_of(d).ready, 64 * MIB);
	assert_int_equal(fstat(memory_of(d).fd, &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 >= 64 * MIB);
	for (uint64_t i = 0; i < 64 * MIB; i += 4096)
		assert_int_equal(mem[i], 0x5a);
	mct_medium_close(d);
}

/* grow does not wait for the prefault thread, which continues up to the new size. */
static void grow_during_prefault(void **state)
{
	struct mct_conf conf = {
		.size = 1024 * MIB, .reserve = 1280 * MIB, .kind = "memfd", .numa_node = -1, .prefault = 1,
	};
	uint64_t end = mc_deadline_ms(60000);
	struct mct_medium *d;
	const char *by;

	if (mct_mem_available(&by) < 2048 * MIB)
		skip();
	assert_int_equal(mct_medium_open("dram", &conf, &d), 0);
	assert_int_equal(d->ops->grow(d, 1152 * MIB), 0);
	assert_true(status_of(d).ready < 1024 * MIB);
	while (status_of(d).ready < 1152 * MIB && mc_now_ns() < end)
		usleep(1000);
	assert_int_equal(status_of(d).ready, 1152 * MIB);
	/* the same after the thread has ended */
	assert_int_equal(d->ops->grow(d, 1280 * MIB), 0);
	while (status_of(d).ready < 1280 * MIB && mc_now_ns() < end)
		usleep(1000);
	assert_int_equal(status_of(d).ready, 1280 * MIB);
	mct_medium_close(d);
}

/* close does not wait until gigabytes are allocated. */
static void close_during_prefault(void **state)
{
	struct mct_medium *d;
	const char *by;
	uint64_t size = 4096 * MIB, began;

	if (mct_mem_available(&by) < size)
		skip();
	assert_int_equal(open_kind("memfd", size, 1, &d), 0);
	began = mc_now_ns();
	mct_medium_close(d);
	assert_true(mc_now_ns() - began < MC_NS_PER_SEC);
}

/* A part of the caller's file is the segment. */
static int open_part(const char *path, uint64_t size, uint64_t offset, struct mct_medium **ret)
{
	struct mct_conf conf = {
		.size = size, .path = path, .path_offset = offset, .numa_node = -1, .prefault = 1,
	};

	return mct_medium_open("dram", &conf, ret);
}

static void part_of_a_file(void **state)
{
	char path[] = "/tmp/mc-dram.XXXXXX", byte;
	int fd = mkstemp(path);
	struct mct_medium *d;
	struct stat st;
	char *mem;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 8 * MIB), 0);
	assert_int_equal(open_part(path, 5 * MIB, 4096, &d), 0);
	assert_string_equal(status_of(d).kind, "file");
	assert_int_equal(status_of(d).size, 4 * MIB);
	assert_int_equal(status_of(d).limit, 4 * MIB);
	assert_int_equal(memory_of(d).fd_offset, 4096);
	mem = memory_of(d).base;
	mem[0] = 1;
	mem[4 * MIB - 1] = 2;
	assert_int_equal(pread(fd, &byte, 1, 4096), 1);
	assert_int_equal(byte, 1);
	assert_int_equal(pread(fd, &byte, 1, 4 * MIB + 4095), 1);
	assert_int_equal(byte, 2);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true((uint64_t)st.st_blocks * 512 >= 4 * MIB);
	mct_medium_close(d);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, 8 * MIB);
	/* beyond the end of the file; not page aligned; shorter than 2 MiB; no such file; not a regular file */
	assert_int_equal(open_part(path, 8 * MIB, 4096, &d), -EINVAL);
	assert_int_equal(open_part(path, 2 * MIB, 1ull << 60, &d), -EINVAL);
	assert_int_equal(open_part(path, 2 * MIB, 100, &d), -EINVAL);
	assert_int_equal(open_part(path, MIB, 0, &d), -EINVAL);
	/* no size: all that the file has */
	assert_int_equal(open_part(path, 0, 4096, &d), 0);
	assert_int_equal(status_of(d).size, 6 * MIB);
	mct_medium_close(d);
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
		cmocka_unit_test(grow_keeps_base_and_content),
		cmocka_unit_test(tmpfs),
		cmocka_unit_test(memfd),
		cmocka_unit_test(hugetlb),
		cmocka_unit_test(without_privileges_auto_means_memfd),
		cmocka_unit_test(bad_settings_are_refused),
		cmocka_unit_test(prefault_keeps_content),
		cmocka_unit_test(grow_during_prefault),
		cmocka_unit_test(close_during_prefault),
		cmocka_unit_test(part_of_a_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
