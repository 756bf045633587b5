/* SPDX-License-Identifier: Apache-2.0
 * test_client_pressure.c - eight writers put forty times the capacity of the pool, in objects of
 * all sizes: no put fails, and an object that was just put can be read, whether other clients
 * hold leases on all objects or not.
 *
 *	MC_PRESSURE_MIB=N	bytes put per test, 640 unless said otherwise; 10240 is the whole of it */
#include <config.h>

#include "tests/unit/test_client_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sys/thread.h"

#define WRITERS 8u
#define POOL (256 * MIB)
#define SIZE_MAX_OF_ONE (4 * MIB)

/* A writer that did not run while the others made this many puts does not read a recent object.
 * Counted from the begin of its put: the writer may be descheduled after the master has committed
 * and before it gets the reply. */
#define MOMENT 64u

static mcs_t *owner;
static unsigned all_puts;

struct writer {
	struct mc_thread thread;
	unsigned number;
	size_t bytes;		/* to put */
	int read_once;
	unsigned puts, failed, unreadable, late;
	char why[256];
};

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state >> 8;
}

/* As many small objects as large ones, and all sizes between. */
static size_t size_of(uint64_t *state)
{
	size_t top = (size_t)1024 << next(state) % 13;

	return top / 2 + next(state) % (top / 2 + 1);
}

static void note(struct writer *w, unsigned *count, const char *what, int err)
{
	if (!(*count)++)
		snprintf(w->why, sizeof(w->why), "%s: %s", what, mcs_error_detail(err));
}

static void write_one(struct writer *w, mcs_t *s, char *data, char *back, size_t size, uint64_t seed)
{
	struct iovec iov = { data, size };
	struct mcs_key id;
	uint8_t present;
	unsigned before = __atomic_load_n(&all_puts, __ATOMIC_RELAXED);
	char key[64];
	int64_t n;
	int r;

	snprintf(key, sizeof(key), "writer-%u/%u", w->number, w->puts++);
	id = fixture_key(key);
	memcpy(data, &seed, sizeof(seed) < size ? sizeof(seed) : size);
	r = mcs_put(s, id, &iov, 1, NULL, -1);
	__atomic_fetch_add(&all_puts, 1, __ATOMIC_RELAXED);
	if (r < 0) {
		note(w, &w->failed, "put", r);
		return;
	}
	/* The existence query gives the object a promise lease, for a reader that may never
	 * come. */
	if (w->read_once)
		(void)mcs_exist(s, &id, 1, &present, -1);
	else if (w->puts % 16)
		return;
	n = mcs_get(s, id, &(struct iovec){ back, size }, 1, -1);
	if (n < 0 && __atomic_load_n(&all_puts, __ATOMIC_RELAXED) - before > MOMENT)
		w->late++;
	else if (n != (int64_t)size || memcmp(data, back, size) != 0)
		note(w, &w->unreadable, "get", n < 0 ? (int)n : -1);
}

static void *writer_run(void *arg)
{
	char *data = malloc(SIZE_MAX_OF_ONE), *back = malloc(SIZE_MAX_OF_ONE);
	mcs_t *s = fixture_store_with(0, 0, fixture_master_addr());
	struct writer *w = arg;
	uint64_t state = 0x9e3779b97f4a7c15ull * (w->number + 1);
	size_t done, size;

	memset(data, (int)w->number, SIZE_MAX_OF_ONE);
	for (done = 0; done < w->bytes; done += size) {
		size = size_of(&state);
		write_one(w, s, data, back, size, next(&state));
	}
	mcs_close(s);
	free(data);
	free(back);
	return NULL;
}

static void press(int read_once)
{
	const char *mib = getenv("MC_PRESSURE_MIB");
	size_t bytes = (mib ? strtoull(mib, NULL, 10) : 640) * MIB;
	unsigned i, puts = 0, failed = 0, unreadable = 0, late = 0;
	struct writer w[WRITERS];
	struct mcs_pool pool;

	for (i = 0; i < WRITERS; i++) {
		w[i] = (struct writer){ .number = i, .bytes = bytes / WRITERS, .read_once = read_once };
		assert_int_equal(mc_thread_start(&w[i].thread, "writer", writer_run, &w[i]), 0);
	}
	for (i = 0; i < WRITERS; i++) {
		mc_thread_join(w[i].thread);
		puts += w[i].puts;
		failed += w[i].failed;
		unreadable += w[i].unreadable;
		late += w[i].late;
		if (w[i].why[0])
			printf("writer %u: %s\n", i, w[i].why);
	}
	assert_int_equal(mcs_pool_stat(owner, &pool, -1), 0);
	printf("%u puts of together %zu MiB: %u failed, %u not readable, %u not any more, %llu evictions\n",
	       puts, bytes / MIB, failed, unreadable, late, (unsigned long long)pool.evictions);
	assert_int_equal(failed, 0);
	assert_int_equal(unreadable, 0);
	assert_in_range(late, 0, puts / 50);
	assert_true(pool.evictions > 0 || bytes < POOL);
	assert_int_equal(pool.puts_refused, 0);
}

static void every_put_goes_in(void **state)
{
	press(0);
}

static void leases_on_everything(void **state)
{
	press(1);
}

static int setup(void **state)
{
	fixture_master(NULL);
	owner = fixture_store_with(POOL, 0, FIXTURE_LOCAL);
	return 0;
}

static int teardown(void **state)
{
	mcs_close(owner);
	fixture_master_stop();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_put_goes_in, setup, teardown),
		cmocka_unit_test_setup_teardown(leases_on_everything, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
