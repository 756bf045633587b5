/* SPDX-License-Identifier: Apache-2.0
 * test_mcfs_handoff.c - the next daemon finds each entry of the previous one complete, or not at
 * all. */
#include <config.h>

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/fault.h"
#include "mcfs/life/handoff.h"

static char long_key[4096];

static uint64_t add_inode(const char *key, size_t len, uint64_t generation, void *object)
{
	const struct mcfs_handoff_entry e = {
		.type = MCFS_HANDOFF_INODE, .info = { .size = 10 * generation, .generation = generation },
		.nlookup = 1, .hashed = true, .key = key, .key_len = len,
	};

	return mcfs_handoff_add(&e, object);
}

/* The daemon dies, and the next one loads the table from the descriptor. */
static void die(int fd)
{
	mcfs_handoff_close();
	assert_null(mcfs_handoff());
	assert_int_equal(mcfs_handoff_load(fd), 0);
}

static void test_entries(void **state)
{
	struct mcfs_handoff_entry e;
	uint64_t a, b, c, h, n;
	int fd, here, there;

	memset(long_key, 'k', sizeof(long_key));
	assert_int_equal(mcfs_handoff_new(&fd), 0);
	assert_false(mcfs_handoff_is_number((uintptr_t)&here));
	a = add_inode("a", 1, 1, &here);
	b = add_inode(long_key, sizeof(long_key), 2, &there);
	c = add_inode(long_key, 200, 3, &here);
	assert_true(a && b && c && mcfs_handoff_is_number(a));
	h = mcfs_handoff_add(&(struct mcfs_handoff_entry){
		.type = MCFS_HANDOFF_HANDLE, .inode = b, .handle_type = 1, .unsaved = true, .unique = 77,
	}, &there);
	assert_ptr_equal(mcfs_handoff_at(b), &there);
	mcfs_handoff_set_nlookup(a, 5);
	mcfs_handoff_remove(c);
	assert_null(mcfs_handoff_at(c));
	/* A directory is renamed to a longer key. */
	assert_int_equal(mcfs_handoff_set_key(a, long_key, 1000), 0);

	die(fd);
	assert_null(mcfs_handoff_at(a));
	n = mcfs_handoff_next(0, &e);
	assert_int_equal(n, a);
	assert_int_equal(e.type, MCFS_HANDOFF_INODE);
	assert_int_equal(e.nlookup, 5);
	assert_int_equal(e.info.size, 10);
	assert_int_equal(e.key_len, 1000);
	assert_memory_equal(e.key, long_key, 1000);
	mcfs_handoff_bind(n, &here);
	assert_ptr_equal(mcfs_handoff_at(a), &here);
	n = mcfs_handoff_next(n, &e);
	assert_int_equal(n, b);
	assert_int_equal(e.key_len, sizeof(long_key));
	assert_memory_equal(e.key, long_key, sizeof(long_key));
	n = mcfs_handoff_next(n, &e);
	assert_int_equal(n, h);
	assert_int_equal(e.type, MCFS_HANDOFF_HANDLE);
	assert_int_equal(e.inode, b);
	assert_true(e.unsaved);
	assert_int_equal(e.unique, 77);
	assert_int_equal(mcfs_handoff_next(n, &e), 0);
	mcfs_handoff_close();
	close(fd);
}

/* A daemon dies while it renames a directory, or has no memory for the new key: the entry is gone,
 * but its number is not reused for another file, since the kernel still knows it. */
static void test_half_a_name(void **state)
{
	static const char *const faults[] = { "mcfs.handoff.set_key=kill", "mcfs.handoff.set_key=error:ENOMEM" };
	struct mcfs_handoff_entry e;
	uint64_t a;
	pid_t pid;
	int fd, here;

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(mcfs_handoff_new(&fd), 0);
		a = add_inode("a/", 2, 0, &here);
		pid = fork();
		if (pid == 0) {
			(void)mc_fault_set(faults[i]);
			_exit(mcfs_handoff_set_key(a, long_key, 1000) != -ENOMEM);
		}
		assert_int_equal(waitpid(pid, NULL, 0), pid);
		die(fd);
		assert_int_equal(mcfs_handoff_next(0, &e), 0);
		assert_null(mcfs_handoff_at(a));
		assert_int_not_equal(add_inode("b", 1, 1, &here), a);
		mcfs_handoff_close();
		close(fd);
	}
}

/* Cells are reused, also by the next daemon: adding and removing entries does not make the table
 * grow. */
static void test_reuse(void **state)
{
	uint32_t high;
	int fd;

	assert_int_equal(mcfs_handoff_new(&fd), 0);
	for (int i = 0; i < 100; i++)
		mcfs_handoff_remove(add_inode(long_key, sizeof(long_key), 1, &fd));
	high = mcfs_handoff()->high;
	assert_true(high < 100);
	die(fd);
	for (int i = 0; i < 100; i++)
		mcfs_handoff_remove(add_inode(long_key, sizeof(long_key), 1, &fd));
	assert_int_equal(mcfs_handoff()->high, high);
	mcfs_handoff_close();
	close(fd);
}

/* The kernel resends the close of a file whose close was in progress when the daemon died: another
 * file that was opened in the same cell stays open. */
static void test_late_close(void **state)
{
	const struct mcfs_handoff_entry handle = { .type = MCFS_HANDOFF_HANDLE, .unique = 1 };
	struct mcfs_handoff_entry e;
	uint64_t closed, open;
	int fd, here, there;

	assert_int_equal(mcfs_handoff_new(&fd), 0);
	closed = mcfs_handoff_add(&handle, &here);
	mcfs_handoff_remove(closed);
	open = mcfs_handoff_add(&handle, &there);
	assert_int_not_equal(open, closed);
	assert_null(mcfs_handoff_at(closed));
	assert_ptr_equal(mcfs_handoff_at(open), &there);
	/* A late note about the closed file, from an operation that was given up, does not change
	 * the open one. */
	mcfs_handoff_note_unsaved(closed, &(bool){ true });

	die(fd);
	assert_int_equal(mcfs_handoff_next(0, &e), open);
	assert_false(e.unsaved);
	mcfs_handoff_bind(open, &there);
	assert_null(mcfs_handoff_at(closed));
	assert_ptr_equal(mcfs_handoff_at(open), &there);
	mcfs_handoff_remove(open);
	assert_int_not_equal(mcfs_handoff_add(&handle, &here), closed);
	mcfs_handoff_close();
	close(fd);
}

static void test_others(void **state)
{
	int fd = memfd_create("book", MFD_CLOEXEC);

	/* Without a table there are no numbers. */
	assert_int_equal(add_inode("a", 1, 1, &fd), 0);
	assert_null(mcfs_handoff_at(5000));
	assert_int_equal(mcfs_handoff_load(fd), -EINVAL);
	assert_null(mcfs_handoff());
	close(fd);
	assert_int_equal(mcfs_handoff_new(&fd), 0);
	mcfs_handoff()->version++;
	mcfs_handoff_close();
	assert_int_equal(mcfs_handoff_load(fd), -EINVAL);
	assert_null(mcfs_handoff());
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_entries), cmocka_unit_test(test_reuse),
		cmocka_unit_test(test_half_a_name),
		cmocka_unit_test(test_late_close), cmocka_unit_test(test_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
