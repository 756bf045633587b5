/* SPDX-License-Identifier: Apache-2.0
 * test_client_pool.c - masters of two pools under one list of addresses, and masters that lost their
 * state: no client and no owner ever uses two pools. */
#include <config.h>

#include "tests/unit/test_client_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"

#define TTL_MS 500
#define PATIENCE_MS (3 * TTL_MS)	/* MCS_POOL_TTLS */
#define BYTES (300u << 10)

static char dir[] = "/tmp/mc-pool-XXXXXX";

struct place {
	char addr[64], journal[64];
	struct mcm *m;
	struct mc_options *options;
};

static void place_up(struct place *p, bool journal)
{
	const char *addrs[] = { p->addr, NULL };
	const struct mcm_listen where = { .addrs = addrs };
	struct mcm_conf conf;

	assert_int_equal(mcm_conf_defaults(&conf, &p->options), 0);
	conf.client_ttl = TTL_MS;
	if (journal)
		conf.journal_dir = p->journal;
	assert_int_equal(mcm_start(&conf, &where, &p->m), 0);
}

static void place_down(struct place *p)
{
	mcm_stop(p->m);
	mc_options_free(p->options);
	p->m = NULL;
}

static struct place place(const char *name)
{
	struct place p = { .m = NULL };

	snprintf(p.addr, sizeof(p.addr), "unix:%s/%s", dir, name);
	snprintf(p.journal, sizeof(p.journal), "%s/%s.journal", dir, name);
	return p;
}

/* of the segment of the last store that open_at() opened */
static uint64_t identity[MCS_SEGMENT_IDENTITY];

static mcs_t *open_at(const char *masters, uint64_t segment)
{
	struct mcs_conf conf;
	mcs_t *s = NULL;
	int r;

	mcs_conf_init(&conf);
	conf.master = masters;
	conf.segment_size = segment;
	conf.segment_kind = "memfd";
	conf.timeout_ms = 10000;
	conf.setup_timeout_ms = 300;
	conf.segment_identity = segment ? identity : NULL;
	r = mcs_open(&conf, &s);
	if (r < 0)
		fail_msg("mcs_open: %s", mcs_error_detail(r));
	return s;
}

static int get(mcs_t *s, const char *key)
{
	static char mem[BYTES];
	struct iovec iov = { mem, sizeof(mem) };
	int64_t r = mcs_get(s, fixture_key(key), &iov, 1, 2000);

	/* whatever happens: no bytes of another object */
	if (r >= 0) {
		assert_int_equal(r, BYTES);
		assert_true(fixture_same(mem, BYTES, (unsigned char)*key, 0));
	}
	return r < 0 ? (int)r : 0;
}

static int put(mcs_t *s, const char *key)
{
	return fixture_put(s, key, BYTES, (unsigned char)*key, 0);
}

/* Repeat until the result is @want. */
static void get_becomes(mcs_t *s, const char *key, int want, uint64_t ms)
{
	uint64_t end = mc_now_ms() + ms;
	int r;

	while ((r = get(s, key)) != want)
		if (mc_now_ms() > end)
			fail_msg("get %s: %d instead of %d: %s", key, r, want, mcs_error_detail(r));
}

static void put_becomes_possible(mcs_t *s, const char *key, uint64_t ms)
{
	uint64_t end = mc_now_ms() + ms;
	int r;

	while ((r = put(s, key)) < 0)
		if (mc_now_ms() > end)
			fail_msg("put %s: %d: %s", key, r, mcs_error_detail(r));
}

static void two_pools_in_one_list_are_refused(void **state)
{
	struct place a = place("a"), b = place("b");
	struct mcs_conf conf;
	char list[256];
	mcs_t *s = NULL;
	int r;

	(void)state;
	place_up(&a, false);
	place_up(&b, false);
	snprintf(list, sizeof(list), "%s,%s", a.addr, b.addr);
	for (int segment = 0; segment < 2; segment++) {
		mcs_conf_init(&conf);
		conf.master = list;
		conf.segment_size = segment * 4 * MIB;
		r = mcs_open(&conf, &s);
		assert_int_equal(r, -MCS_EPARAM);
		assert_non_null(strstr(mcs_error_detail(r), a.addr));
		assert_non_null(strstr(mcs_error_detail(r), b.addr));
	}
	place_down(&b);
	/* one address twice, or a master that does not answer, is not a second pool */
	snprintf(list, sizeof(list), "%s,%s,%s", a.addr, b.addr, a.addr);
	s = open_at(list, 0);
	mcs_close(s);
	place_down(&a);
}

static void another_pool_is_refused_while_the_old_master_may_return(void **state)
{
	struct place a = place("c"), b = place("d");
	uint64_t began;
	char list[160];
	mcs_t *s;
	int r;

	(void)state;
	place_up(&a, true);
	snprintf(list, sizeof(list), "%s,%s", a.addr, b.addr);
	s = open_at(list, 4 * MIB);
	assert_int_equal(put(s, "k"), 0);
	place_down(&a);
	place_up(&b, false);
	began = mc_now_ms();
	r = get(s, "k");
	/* Only if this thread was late the patience may have ended already. */
	if (mc_now_ms() - began < PATIENCE_MS / 2) {
		assert_int_equal(r, -MCS_ERPC);
		assert_non_null(strstr(mcs_error_detail(r), a.addr));
		assert_non_null(strstr(mcs_error_detail(r), b.addr));
	}
	place_up(&a, true);
	get_becomes(s, "k", 0, 5000);
	mcs_close(s);
	place_down(&a);
	place_down(&b);
}

/* The pool changes when the old master is really gone.  If it returns nevertheless, its objects, whose memory the
 * other master has given to others, are not found there any more. */
static void the_objects_of_a_pool_that_was_left_do_not_return(void **state)
{
	struct place a = place("e"), b = place("f");
	uint64_t before[MCS_SEGMENT_IDENTITY];
	char list[160];
	mcs_t *s;

	(void)state;
	place_up(&a, true);
	snprintf(list, sizeof(list), "%s,%s", a.addr, b.addr);
	s = open_at(list, 1 * MIB);
	assert_int_equal(put(s, "k"), 0);
	memcpy(before, identity, sizeof(before));
	place_down(&a);
	place_up(&b, false);
	put_becomes_possible(s, "x", PATIENCE_MS + 10000);
	/* a successor of this process, too, knows that it is the same memory with other contents */
	assert_memory_equal(before, identity, 2 * sizeof(identity[0]));
	assert_true(before[2] != identity[2]);
	assert_true(before[3] != identity[3] && before[4] != identity[4]);
	assert_int_equal(get(s, "x"), 0);
	assert_int_equal(get(s, "k"), -MCS_ENOOBJECT);
	put_becomes_possible(s, "y", 1000);
	place_down(&b);
	place_up(&a, true);
	get_becomes(s, "k", -MCS_ENOOBJECT, PATIENCE_MS + 10000);
	mcs_close(s);
	place_down(&a);
}

/* At one address there is one master: the pool may be another one at once. */
static void one_address_accepts_a_master_that_lost_its_state(void **state)
{
	struct place a = place("g");
	mcs_t *s;

	(void)state;
	place_up(&a, false);
	s = open_at(a.addr, 1 * MIB);
	assert_int_equal(put(s, "k"), 0);
	place_down(&a);
	place_up(&a, false);
	put_becomes_possible(s, "x", 5000);
	assert_int_equal(get(s, "x"), 0);
	assert_int_equal(get(s, "k"), -MCS_ENOOBJECT);
	mcs_close(s);
	place_down(&a);
}

/* The journal of a master, then no journal, then the first journal again. */
static void an_old_journal_does_not_revive_overwritten_objects(void **state)
{
	struct place a = place("h");
	mcs_t *s;

	(void)state;
	place_up(&a, true);
	s = open_at(a.addr, 1 * MIB);
	assert_int_equal(put(s, "k"), 0);
	place_down(&a);
	place_up(&a, false);
	put_becomes_possible(s, "x", 5000);
	put_becomes_possible(s, "y", 5000);
	place_down(&a);
	place_up(&a, true);
	get_becomes(s, "k", -MCS_ENOOBJECT, 5000);
	mcs_close(s);
	place_down(&a);
}

/* A process that takes over the segment of a dead one belongs to the pool of the dead one. */
static void a_successor_does_not_take_a_segment_to_another_pool(void **state)
{
	uint64_t words[MCS_SEGMENT_IDENTITY] = { 1, 2, 3, 4, 5 };
	struct place a = place("j"), b = place("l");
	int fd = memfd_create("segment", MFD_CLOEXEC);
	struct mcs_conf conf;
	char list[160];
	mcs_t *s = NULL;
	int r;

	(void)state;
	assert_true(fd > 0 && ftruncate(fd, 2 * MIB) == 0);
	place_up(&a, false);
	snprintf(list, sizeof(list), "%s,%s", a.addr, b.addr);
	mcs_conf_init(&conf);
	conf.master = list;
	conf.segment_size = 2 * MIB;
	conf.segment_kind = "memfd";
	conf.segment_fd = fd;
	conf.setup_timeout_ms = 300;
	assert_int_equal(mcs_open(&conf, &s), -MCS_EPARAM);	/* no identity */
	conf.segment_identity = words;
	r = mcs_open(&conf, &s);
	assert_int_equal(r, -MCS_ERPC);
	assert_non_null(strstr(mcs_error_detail(r), a.addr));
	assert_int_equal(words[2], 3);
	/* the only master there is: the memory is new to it */
	conf.master = a.addr;
	assert_int_equal(mcs_open(&conf, &s), 0);
	assert_int_equal(words[0], 1);
	assert_true(words[2] != 3 && words[3] != 4);
	mcs_close(s);
	place_down(&a);
	close(fd);
}

/* A restarted master with its journal is the same pool, and no object is missing for a moment. */
static void a_restart_with_the_journal_loses_nothing(void **state)
{
	struct place a = place("i");
	mcs_t *s, *reader;

	(void)state;
	place_up(&a, true);
	s = open_at(a.addr, 4 * MIB);
	reader = open_at(a.addr, 0);
	assert_int_equal(put(s, "k"), 0);
	for (int i = 0; i < 10; i++) {
		struct mcs_key key = fixture_key("k");
		uint8_t present = 0;

		place_down(&a);
		place_up(&a, true);
		assert_int_equal(mcs_exist(reader, &key, 1, &present, 5000), 1);
		assert_int_equal(get(reader, "k"), 0);
		assert_int_equal(get(reader, "none"), -MCS_ENOOBJECT);
		assert_int_equal(fixture_put(reader, "k", 10, 7, MCS_PUT_EXCL), -MCS_EEXISTS);
	}
	mcs_close(reader);
	mcs_close(s);
	place_down(&a);
}

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_pools_in_one_list_are_refused),
		cmocka_unit_test(another_pool_is_refused_while_the_old_master_may_return),
		cmocka_unit_test(the_objects_of_a_pool_that_was_left_do_not_return),
		cmocka_unit_test(one_address_accepts_a_master_that_lost_its_state),
		cmocka_unit_test(an_old_journal_does_not_revive_overwritten_objects),
		cmocka_unit_test(a_successor_does_not_take_a_segment_to_another_pool),
		cmocka_unit_test(a_restart_with_the_journal_loses_nothing),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
