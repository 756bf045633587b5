/* SPDX-License-Identifier: Apache-2.0
 * test_node_upstream_memory.c - upstream's dummy clients and the memory that they share, also when they break the
 * rules. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/err.h"
#include "common/sys/clock.h"
#include "node/upstream/dummy.h"
#include "node/upstream/guard.h"
#include "tests/unit/node_fixture.h"

#define ROOT 0
#define PAGE 4096u

static int unsealed(size_t size)
{
	int fd = memfd_create("mooncake_shm", MFD_CLOEXEC);
	void *p;

	assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	assert_true(p != MAP_FAILED);
	munmap(p, size);
	assert_true(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0);
	return fd;
}

static void test_memory_that_vanishes_reads_as_zeros(void **state)
{
	struct mcn_up_mapping *m;
	unsigned char *p;
	int fd = unsealed(4 * PAGE);

	(void)state;
	assert_int_equal(mcn_up_map(fd, 4 * PAGE, &m, &p), 0);
	memset(p, 7, 4 * PAGE);
	assert_int_equal(ftruncate(fd, PAGE), 0);
	assert_false(mcn_up_broken(m));
	assert_int_equal(((volatile unsigned char *)p)[2 * PAGE], 0);
	assert_true(mcn_up_broken(m));
	/* before the end, and pages that were replaced */
	assert_int_equal(p[PAGE - 1], 7);
	p[4 * PAGE - 1] = 1;
	assert_int_equal(((volatile unsigned char *)p)[PAGE], 0);
	mcn_up_unmap(m);
	close(fd);
}

/* The process ends by a SIGBUS that was sent to it, as without the handler. */
static void test_a_signal_that_was_sent_ends_the_process(void **state)
{
	pid_t pid = fork();
	int status = 0;

	(void)state;
	if (!pid) {
		struct mcn_up_mapping *m;
		unsigned char *p;

		alarm(20);
		if (mcn_up_map(unsealed(PAGE), PAGE, &m, &p) == 0)
			(void)kill(getpid(), SIGBUS);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

static const struct mcn_up_uuid one = { 1, 2 }, two = { 3, 4 };
static struct mcn_up_dummies *all;

static int dummies_setup(void **state)
{
	(void)state;
	return mcn_up_dummies_new(&all);
}

static int dummies_teardown(void **state)
{
	(void)state;
	mcn_up_dummies_free(all);
	return 0;
}

static int share(struct mcn_up_uuid id, uint64_t base, uint64_t size, bool local, uid_t uid, int fd)
{
	struct mcn_up_share s = { .id = id, .base = base, .size = size, .local = local, .uid = uid };
	bool is_new;

	return mcn_up_dummy_share(all, &s, fd, &is_new);
}

static int hold(struct mcn_up_uuid id, uid_t uid, uint64_t addr, uint64_t len)
{
	struct mcn_up_shared *v[1];
	struct mcn_up_holds h = { .v = v, .max = 1 };
	void *p;
	int r = mcn_up_hold(all, id, uid, addr, len, &h, &p);

	(void)mcn_up_release(all, &h);
	return r;
}

static void test_only_shared_ranges_are_held(void **state)
{
	uint64_t base = 0x7f0000000000;
	int fd = unsealed(4 * PAGE);

	(void)state;
	assert_int_equal(share(one, base, 4 * PAGE, true, 1000, fd), 0);
	assert_int_equal(hold(one, 1000, base, 4 * PAGE), 0);
	assert_int_equal(hold(one, 1000, base + 4 * PAGE, 0), 0);
	assert_int_equal(hold(one, ROOT, base + 1, 1), 0);
	assert_int_equal(hold(one, 1000, base + 1, 4 * PAGE), -MCS_EPARAM);
	assert_int_equal(hold(one, 1000, base - 1, 1), -MCS_EPARAM);
	assert_int_equal(hold(one, 1000, base, UINT64_MAX), -MCS_EPARAM);
	assert_int_equal(hold(one, 1000, UINT64_MAX, 2), -MCS_EPARAM);
	/* another client's, and another user's */
	assert_int_equal(hold(two, 1000, base, 1), -MCS_EPARAM);
	assert_int_equal(hold(one, 1001, base, 1), -MCS_EPARAM);
	assert_int_equal(share(one, base + 0x10000, PAGE, false, 1001, fd), -EACCES);
	assert_int_equal(mcn_up_dummy_drop(all, one, 1001), -MCS_EPARAM);
	/* a hole: its pages would be charged to the daemon */
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE), 0);
	assert_int_equal(hold(one, 1000, base, 2 * PAGE), -EFAULT);
	assert_int_equal(hold(one, 1000, base, PAGE), 0);
	assert_int_equal(mcn_up_dummy_drop(all, one, 1000), 0);
	assert_int_equal(hold(one, 1000, base, 1), -MCS_EPARAM);
	close(fd);
}

static unsigned char first_byte(uint64_t addr)
{
	struct mcn_up_shared *v[1];
	struct mcn_up_holds h = { .v = v, .max = 1 };
	unsigned char got;
	void *p = NULL;

	assert_int_equal(mcn_up_hold(all, one, 1000, addr, 1, &h, &p), 0);
	got = *(unsigned char *)p;
	assert_true(mcn_up_release(all, &h));
	return got;
}

/* A client that has freed memory uses the same addresses for another file, and does not say so. */
static void test_other_memory_at_an_address_is_used_instead(void **state)
{
	int old = unsealed(4 * PAGE), fresh = unsealed(4 * PAGE);
	struct mcn_up_shared *v[1];
	struct mcn_up_holds h = { .v = v, .max = 1 };
	void *p = NULL;

	(void)state;
	assert_true(pwrite(old, "old", 1, 0) == 1 && pwrite(fresh, "fresh", 1, 0) == 1);
	assert_int_equal(share(one, 8 * PAGE, 4 * PAGE, false, 1000, old), 0);
	assert_int_equal(mcn_up_hold(all, one, 1000, 8 * PAGE, 1, &h, &p), 0);
	assert_int_equal(share(one, 8 * PAGE, 4 * PAGE, false, 1000, fresh), 0);
	assert_int_equal(first_byte(8 * PAGE), 'f');
	/* running operations keep the former memory */
	assert_int_equal(*(unsigned char *)p, 'o');
	assert_true(mcn_up_release(all, &h));
	/* another length, and addresses that overlap */
	assert_int_equal(share(one, 8 * PAGE, 2 * PAGE, false, 1000, fresh), 0);
	assert_int_equal(hold(one, 1000, 10 * PAGE, 1), -MCS_EPARAM);
	assert_int_equal(share(one, 9 * PAGE, 4 * PAGE, true, 1000, old), 0);
	assert_int_equal(hold(one, 1000, 8 * PAGE, 1), -MCS_EPARAM);
	assert_int_equal(first_byte(9 * PAGE), 'o');
	assert_int_equal(share(one, 13 * PAGE, PAGE, false, 1000, fresh), 0);
	assert_int_equal(first_byte(9 * PAGE), 'o');
	close(old);
	close(fresh);
}

static void test_unfit_memory_is_refused(void **state)
{
	char path[] = "/tmp/mc-unfit.XXXXXX";
	int fd = unsealed(PAGE), file = mkstemp(path), ends[2];

	(void)state;
	assert_int_equal(share(one, 4096, 2 * PAGE, true, 1000, fd), -EINVAL);
	assert_int_equal(share(one, 4096, 0, true, 1000, fd), -EINVAL);
	assert_int_equal(share(one, 0, PAGE, true, 1000, fd), -MCS_EPARAM);
	assert_int_equal(share(one, UINT64_MAX - 10, PAGE, true, 1000, fd), -MCS_EPARAM);
	assert_int_equal(share(one, 4096, PAGE, true, 1000, -1), -EINVAL);
	assert_int_equal(share(one, 4096, PAGE, true, 1000, file), -EINVAL);
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(share(one, 4096, PAGE, true, 1000, ends[0]), -EINVAL);
	assert_int_equal(mcn_up_dummies_count(all), 0);
	unlink(path);
	close(fd);
	close(file);
	close(ends[0]);
	close(ends[1]);
}

static void test_memories_of_a_client_have_a_limit(void **state)
{
	int fd = unsealed(PAGE);

	(void)state;
	for (unsigned i = 0; i < MCN_UP_DUMMY_MEMORIES; i++)
		assert_int_equal(share(one, (i + 1) * PAGE, PAGE, i == 3, 1000, fd), 0);
	assert_int_equal(share(one, (uint64_t)PAGE << 20, PAGE, false, 1000, fd), -ENOBUFS);
	/* the same again is no new memory; a second local one is refused */
	assert_int_equal(share(one, PAGE, PAGE, false, 1000, fd), 0);
	assert_int_equal(mcn_up_dummy_unshare(all, one, 1000, PAGE), 0);
	assert_int_equal(mcn_up_dummy_unshare(all, one, 1000, PAGE), -MCS_EPARAM);
	assert_int_equal(share(one, PAGE, PAGE, true, 1000, fd), -MCS_EEXISTS);
	assert_true(mcn_up_dummy_shares(all, one, 1000, 2 * PAGE));
	assert_false(mcn_up_dummy_shares(all, one, 1000, PAGE));
	close(fd);
}

static void test_clients_of_a_user_have_a_limit(void **state)
{
	int fd = unsealed(PAGE);
	unsigned i = 0;

	(void)state;
	while (share((struct mcn_up_uuid){ i, 9 }, PAGE, PAGE, true, 1000, fd) == 0)
		i++;
	assert_int_equal(i, MCN_UP_UID_DUMMIES);
	assert_int_equal(share(two, PAGE, PAGE, true, 1001, fd), 0);
	close(fd);
}

static void test_buffers_are_allocated_and_freed(void **state)
{
	struct mcn_up_buffer at[4], again = { 0 };
	int fd = unsealed(4 * PAGE);

	(void)state;
	assert_int_equal(mcn_up_buffer_alloc(all, one, 1000, 1, &again), -MCS_EPARAM);
	assert_int_equal(share(one, PAGE, 4 * PAGE, true, 1000, fd), 0);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(mcn_up_buffer_alloc(all, one, 1000, PAGE, &at[i]), 0);
	assert_true(at[0].addr >= PAGE && at[3].addr < 5 * PAGE);
	assert_int_equal(mcn_up_buffer_alloc(all, one, 1000, 0, &again), -MCS_ENOSPACE);
	assert_int_equal(mcn_up_buffer_free(all, one, 1000, at[2].addr), 0);
	/* twice, and unknown */
	assert_int_equal(mcn_up_buffer_free(all, one, 1000, at[2].addr), 0);
	assert_int_equal(mcn_up_buffer_free(all, one, 1000, 1), 0);
	assert_int_equal(mcn_up_buffer_alloc(all, one, 1000, 2 * PAGE, &again), -MCS_ENOSPACE);
	assert_int_equal(mcn_up_buffer_alloc(all, one, 1000, PAGE, &again), 0);
	assert_true(again.addr == at[2].addr);
	close(fd);
}

/* It still uses its buffers, and answers that come late are released by themselves. */
static void test_a_dropped_client_keeps_its_buffers(void **state)
{
	int fd = unsealed(2 * PAGE);
	struct mcn_up_buffer old, late, next;

	(void)state;
	mc_clock_fake(mc_now_ns());
	assert_int_equal(share(one, PAGE, 2 * PAGE, true, 1000, fd), 0);
	assert_int_equal(mcn_up_buffer_alloc(all, one, 1000, PAGE, &old), 0);
	assert_int_equal(mcn_up_buffer_alloc(all, one, 1000, PAGE, &late), 0);
	mc_clock_advance((MCN_UP_SILENCE_MS + 1) * MC_NS_PER_MS);
	mcn_up_dummies_sweep(all);
	mc_clock_real();
	assert_int_equal(mcn_up_dummies_count(all), 0);
	assert_int_equal(share(one, PAGE, 2 * PAGE, true, 1000, fd), 0);
	assert_int_equal(mcn_up_buffer_alloc(all, one, 1000, 1, &next), -MCS_ENOSPACE);
	mcn_up_buffer_cancel(all, &late);
	assert_int_equal(mcn_up_buffer_alloc(all, one, 1000, PAGE, &next), 0);
	assert_true(next.addr == late.addr);
	/* not a second time, although another buffer has the address now */
	mcn_up_buffer_cancel(all, &late);
	assert_int_equal(mcn_up_buffer_alloc(all, one, 1000, 1, &next), -MCS_ENOSPACE);
	assert_int_equal(mcn_up_buffer_free(all, one, 1000, old.addr), 0);
	assert_int_equal(mcn_up_buffer_alloc(all, one, 1000, PAGE, &next), 0);
	assert_true(next.addr == old.addr);
	close(fd);
}

/* A client that is stopped sends nothing; its memory is its own until its process has ended. */
static void test_a_silent_process_is_not_dropped(void **state)
{
	struct mcn_up_share s = { .id = one, .base = PAGE, .size = PAGE, .local = true, .uid = 1000, .pid = fork() };
	int fd = unsealed(PAGE);
	bool is_new;

	(void)state;
	if (!s.pid) {
		(void)pause();
		_exit(0);
	}
	mc_clock_fake(mc_now_ns());
	assert_int_equal(mcn_up_dummy_share(all, &s, fd, &is_new), 0);
	mc_clock_advance(100 * (uint64_t)MCN_UP_SILENCE_MS * MC_NS_PER_MS);
	mcn_up_dummies_sweep(all);
	mc_clock_real();
	assert_int_equal(mcn_up_dummies_count(all), 1);
	assert_int_equal(kill(s.pid, SIGKILL), 0);
	assert_int_equal(waitpid(s.pid, NULL, 0), s.pid);
	mcn_up_dummies_sweep(all);
	assert_int_equal(mcn_up_dummies_count(all), 0);
	close(fd);
}

static void test_a_silent_client_is_dropped_and_told(void **state)
{
	int fd = unsealed(PAGE);

	(void)state;
	mc_clock_fake(mc_now_ns());
	assert_int_equal(share(one, PAGE, PAGE, true, 1000, fd), 0);
	mc_clock_advance((MCN_UP_SILENCE_MS - 1) * MC_NS_PER_MS);
	assert_true(mcn_up_dummy_ping(all, one, 1000));
	mc_clock_advance((MCN_UP_SILENCE_MS - 1) * MC_NS_PER_MS);
	mcn_up_dummies_sweep(all);
	assert_int_equal(mcn_up_dummies_count(all), 1);
	mc_clock_advance(2 * MC_NS_PER_MS);
	mcn_up_dummies_sweep(all);
	assert_int_equal(mcn_up_dummies_count(all), 0);
	mc_clock_real();
	/* it shares its memory again; a client without memory is told once only */
	assert_false(mcn_up_dummy_ping(all, one, 1000));
	assert_true(mcn_up_dummy_ping(all, one, 1000));
	assert_int_equal(share(one, PAGE, PAGE, true, 1000, fd), 0);
	assert_true(mcn_up_dummy_ping(all, one, 1000));
	/* one that left by itself is not told */
	assert_int_equal(mcn_up_dummy_drop(all, one, 1000), 0);
	assert_true(mcn_up_dummy_ping(all, one, 1000));
	close(fd);
}

#define WITH_DUMMIES(t) cmocka_unit_test_setup_teardown(t, dummies_setup, dummies_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* first: the handler is set once, and cmocka sets its own for each test */
		cmocka_unit_test(test_a_signal_that_was_sent_ends_the_process),
		cmocka_unit_test(test_memory_that_vanishes_reads_as_zeros),
		WITH_DUMMIES(test_only_shared_ranges_are_held),
		WITH_DUMMIES(test_other_memory_at_an_address_is_used_instead),
		WITH_DUMMIES(test_unfit_memory_is_refused),
		WITH_DUMMIES(test_memories_of_a_client_have_a_limit),
		WITH_DUMMIES(test_clients_of_a_user_have_a_limit),
		WITH_DUMMIES(test_buffers_are_allocated_and_freed),
		WITH_DUMMIES(test_a_dropped_client_keeps_its_buffers),
		WITH_DUMMIES(test_a_silent_process_is_not_dropped),
		WITH_DUMMIES(test_a_silent_client_is_dropped_and_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
