/* SPDX-License-Identifier: Apache-2.0
 * test_common_reachable.c - memory that this process cannot access is recognised, with and without the kernel's query
 * for one mapping. */
#include <config.h>

#include "common/process/reachable.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"

#define PAGES 8u

static int old_kernel;

int __real_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg);
int __wrap_ioctl(int fd, unsigned long request, void *arg)
{
	if (!old_kernel)
		return __real_ioctl(fd, request, arg);
	errno = ENOTTY;
	return -1;
}

static size_t page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* PAGES pages between two that are not mapped. */
static char *pages_new(int prot)
{
	char *p = mmap(NULL, (PAGES + 2) * page(), prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(munmap(p, page()), 0);
	assert_int_equal(munmap(p + (PAGES + 1) * page(), page()), 0);
	return p + page();
}

/* The memory is refused, and the error names the address @at. */
static void refused(const char *base, size_t len, const char *at)
{
	char text[32];

	assert_int_equal(mc_reachable(base, len), -EFAULT);
	snprintf(text, sizeof(text), "0x%llx:", (unsigned long long)(uintptr_t)at);
	assert_non_null(strstr(mc_err_detail(-EFAULT), text));
}

static void memory_without_access_is_refused(void **state)
{
	size_t len = PAGES * page();
	char *p;

	for (old_kernel = 0; old_kernel <= 1; old_kernel++) {
		p = pages_new(PROT_READ | PROT_WRITE);
		assert_int_equal(mc_reachable(p, len), 0);
		assert_int_equal(mc_reachable(p + 1, 1), 0);
		refused(p - 1, len, p - 1);
		refused(p, len + 1, p + len);
		assert_int_equal(mprotect(p + 3 * page(), page(), PROT_NONE), 0);
		refused(p, len, p + 3 * page());
		assert_int_equal(mc_reachable(p, 3 * page()), 0);
		assert_int_equal(mprotect(p + 3 * page(), page(), PROT_READ), 0);
		assert_int_equal(mc_reachable(p, len), 0);
		assert_int_equal(munmap(p + 5 * page(), page()), 0);
		refused(p + 4 * page(), 2 * page(), p + 5 * page());
		assert_int_equal(munmap(p, len), 0);
		refused(p, 1, p);
	}
}

/* As the driver of a GPU reserves addresses for its own memory. */
static void a_reserved_range_is_refused(void **state)
{
	for (old_kernel = 0; old_kernel <= 1; old_kernel++) {
		char *p = pages_new(PROT_NONE);

		refused(p, PAGES * page(), p);
		refused(p + page(), 1, p + page());
		assert_int_equal(munmap(p, PAGES * page()), 0);
	}
}

static void the_end_of_the_address_space_is_refused(void **state)
{
	char *p = pages_new(PROT_READ);

	for (old_kernel = 0; old_kernel <= 1; old_kernel++) {
		assert_int_equal(mc_reachable(p, SIZE_MAX), -EFAULT);
		assert_int_equal(mc_reachable((void *)8, 8), -EFAULT);
		assert_int_equal(mc_reachable((void *)(UINTPTR_MAX - 4), 4), -EFAULT);
	}
	assert_int_equal(munmap(p, PAGES * page()), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_without_access_is_refused),
		cmocka_unit_test(a_reserved_range_is_refused),
		cmocka_unit_test(the_end_of_the_address_space_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
