/* SPDX-License-Identifier: Apache-2.0
 * test_master_copy.c - a standby's copy of the journal of a master that runs on. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"
#include "master/journal/copy.h"
#include "master/journal/journal_i.h"

#define MIB (1u << 20)
#define PART 700	/* bytes: less than the files have */

struct pair {
	struct mcm_feed *feed;
	struct mcm_copy *copy;
	uint64_t lsn;
	unsigned parts;
};

static int copy_open(struct fixture *fx, uint64_t max_bytes, struct mcm_copy **ret)
{
	const struct mcm_copy_conf conf = {
		.dir = jx_copy, .cluster = fx->m->conf.cluster_id, .max_bytes = max_bytes,
	};

	return mcm_copy_open(&conf, ret);
}

static void pair_open(struct fixture *fx, struct pair *p)
{
	*p = (struct pair){ .lsn = 0 };
	snprintf(jx_copy, sizeof(jx_copy), "%s.copy", jx_dir);
	mkdir(jx_copy, 0700);
	assert_int_equal(copy_open(fx, 0, &p->copy), 0);
	assert_int_equal(mcm_copy_begin(p->copy), 0);
	assert_int_equal(mcm_feed_open(fx->m, &p->feed), 0);
}

static void pair_close(struct pair *p)
{
	mcm_feed_close(p->feed);
	mcm_copy_close(p->copy);
}

/* Copy at most @most parts; returns the result of the last read. */
static int pump(struct pair *p, unsigned most)
{
	struct mcm_feed_part part;
	char buf[PART];
	int r = 1;

	while (most-- && (r = mcm_feed_read(p->feed, buf, sizeof(buf), &part)) > 0) {
		assert_int_equal(mcm_copy_add(p->copy, &part, buf), 0);
		p->lsn = part.lsn ? part.lsn : p->lsn;
		p->parts++;
	}
	return r;
}

/* Read without copying. */
static int read_all(struct pair *p)
{
	struct mcm_feed_part part;
	char buf[PART];
	int r;

	do
		r = mcm_feed_read(p->feed, buf, sizeof(buf), &part);
	while (r > 0);
	return r;
}

static void put(struct fixture *fx, unsigned from, unsigned to)
{
	char key[16];

	for (unsigned i = from; i < to; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(fx_put(fx, key, 1000 + i, 0), 0);
	}
	jx_answer(fx);
}

/* A master that starts with the copy has the same objects. */
static void same_as(struct fixture *fx, struct pair *p)
{
	struct jx_dump is = jx_dump(fx->m), was;
	struct mcm *m;

	mcm_copy_close(p->copy);
	p->copy = NULL;
	m = jx_open_copy(fx, 0);
	was = jx_dump(m);
	jx_same(&is, &was);
	jx_dump_free(&is);
	jx_dump_free(&was);
	mcm_core_free(m);
}

static void a_copy_follows_changes_and_checkpoints(void **state)
{
	struct fixture fx;
	struct pair p;
	char first[512];

	(void)state;
	jx_up(&fx, 1, 4 * MIB);
	put(&fx, 0, 50);
	pair_open(&fx, &p);
	assert_int_equal(pump(&p, UINT32_MAX), 0);
	assert_true(mcm_copy_complete(p.copy) && p.parts > 5);
	assert_int_equal(p.lsn, __atomic_load_n(&fx.m->journal->written, __ATOMIC_RELAXED));
	put(&fx, 50, 80);
	assert_int_equal(fx_remove(&fx, "k3", 0), 0);
	jx_answer(&fx);
	assert_int_equal(pump(&p, UINT32_MAX), 0);
	snprintf(first, sizeof(first), "%s", jx_file(jx_copy, "checkpoint-"));
	for (unsigned i = 1; i < 4; i++) {
		assert_int_equal(mcm_checkpoint(fx.m), 0);
		put(&fx, 100 * i, 100 * i + 20);
		assert_int_equal(pump(&p, UINT32_MAX), 0);
	}
	assert_int_equal(p.lsn, __atomic_load_n(&fx.m->journal->written, __ATOMIC_RELAXED));
	/* It does not keep all files. */
	assert_int_not_equal(access(first, F_OK), 0);
	same_as(&fx, &p);
	/* Two checkpoints behind: the files between are removed. */
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	assert_int_equal(read_all(&p), -ESTALE);
	pair_close(&p);
	fx_down(&fx);
}

/* Wherever the copy ends: it is no state, or an earlier one. */
static void a_copy_that_ends_early_is_an_earlier_state_or_none(void **state)
{
	struct fixture fx;
	struct jx_dump is, was;
	struct mcm *m;
	struct pair p;
	bool more = true;

	(void)state;
	for (unsigned parts = 0; more; parts++) {
		jx_up(&fx, 1, 4 * MIB);
		put(&fx, 0, 10);
		pair_open(&fx, &p);
		more = pump(&p, parts) > 0;
		put(&fx, 10, 20);
		assert_int_equal(mcm_checkpoint(fx.m), 0);
		put(&fx, 20, 30);
		more |= pump(&p, parts > 8 ? parts - 8 : 0) > 0;
		is = jx_dump(fx.m);
		more |= !mcm_copy_complete(p.copy);
		pair_close(&p);
		m = jx_open_copy(&fx, 0);
		was = jx_dump(m);
		jx_part_of(&was, &is);
		if (!more)
			jx_same(&is, &was);
		jx_dump_free(&is);
		jx_dump_free(&was);
		mcm_core_free(m);
		fx_down(&fx);
	}
}

static void a_lost_state_ends_the_copy(void **state)
{
	struct mcm_feed_part part;
	struct fixture fx;
	char buf[PART];
	struct pair p;

	(void)state;
	jx_up(&fx, 1, 4 * MIB);
	put(&fx, 0, 10);
	pair_open(&fx, &p);
	assert_int_equal(pump(&p, UINT32_MAX), 0);
	mcm_journal_lose(fx.m, -ENOSPC);
	assert_int_equal(mcm_feed_read(p.feed, buf, sizeof(buf), &part), -ESTALE);
	mcm_feed_close(p.feed);
	assert_int_equal(mcm_feed_open(fx.m, &p.feed), -ENOENT);
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	put(&fx, 10, 20);
	/* A new copy of the new state, in the same directory. */
	assert_int_equal(mcm_feed_open(fx.m, &p.feed), 0);
	assert_int_equal(mcm_copy_begin(p.copy), 0);
	assert_false(mcm_copy_complete(p.copy));
	assert_int_equal(pump(&p, UINT32_MAX), 0);
	same_as(&fx, &p);
	pair_close(&p);
	fx_down(&fx);
}

static void a_part_that_does_not_fit_is_refused(void **state)
{
	struct mcm_feed_part part = { .sequence = 9, .offset = 5, .len = 3 };
	struct fixture fx;
	struct pair p;

	(void)state;
	jx_up(&fx, 1, 4 * MIB);
	pair_open(&fx, &p);
	assert_int_equal(mcm_copy_add(p.copy, &part, "abc"), -EINVAL);
	part.offset = 0;
	assert_int_equal(mcm_copy_add(p.copy, &part, "abc"), 0);
	part.offset = 2;
	assert_int_equal(mcm_copy_add(p.copy, &part, "abc"), -EINVAL);
	part.offset = 3;
	assert_int_equal(mcm_copy_add(p.copy, &part, "abc"), 0);
	/* Another process has the directory. */
	assert_int_equal(copy_open(&fx, 0, &(struct mcm_copy *){ NULL }), -EBUSY);
	pair_close(&p);
	fx_down(&fx);
}

/* Copy all there is; the result of the first part that was refused. */
static int pump_until_refused(struct pair *p)
{
	struct mcm_feed_part part;
	char buf[PART];
	int r = 0;

	while (r == 0 && mcm_feed_read(p->feed, buf, sizeof(buf), &part) > 0)
		r = mcm_copy_add(p->copy, &part, buf);
	return r;
}

static void a_checkpoint_of_another_cluster_is_no_state(void **state)
{
	struct mcm_copy_conf conf = { .dir = jx_copy, .cluster = "other" };
	struct fixture fx;
	struct pair p;

	(void)state;
	jx_up(&fx, 1, 4 * MIB);
	put(&fx, 0, 10);
	pair_open(&fx, &p);
	mcm_copy_close(p.copy);
	assert_int_equal(mcm_copy_open(&conf, &p.copy), 0);
	assert_int_equal(pump_until_refused(&p), -EINVAL);
	assert_non_null(strstr(mc_err_detail(-EINVAL), "but this master's is other"));
	assert_false(mcm_copy_complete(p.copy));
	/* One that an earlier life has left: known before the master is a standby. */
	pair_close(&p);
	pair_open(&fx, &p);
	assert_int_equal(pump(&p, UINT32_MAX), 0);
	mcm_copy_close(p.copy);
	p.copy = NULL;
	assert_int_equal(mcm_copy_open(&conf, &p.copy), -EINVAL);
	assert_int_equal(copy_open(&fx, 0, &p.copy), 0);
	assert_true(mcm_copy_complete(p.copy));
	pair_close(&p);
	fx_down(&fx);
}

/* Both headers of the only checkpoint are unreadable: a standby must not lead with that. */
static void a_damaged_checkpoint_is_no_state(void **state)
{
	static const char zeros[600];
	struct fixture fx;
	struct pair p;
	FILE *f;

	(void)state;
	jx_up(&fx, 1, 4 * MIB);
	put(&fx, 0, 10);
	pair_open(&fx, &p);
	assert_int_equal(pump(&p, UINT32_MAX), 0);
	mcm_copy_close(p.copy);
	p.copy = NULL;
	f = fopen(jx_file(jx_copy, "checkpoint-"), "r+");
	assert_non_null(f);
	assert_int_equal(fwrite(zeros, 1, sizeof(zeros), f), sizeof(zeros));
	fclose(f);
	assert_int_equal(copy_open(&fx, 0, &p.copy), 0);
	assert_false(mcm_copy_complete(p.copy));
	pair_close(&p);
	fx_down(&fx);
}

static void a_copy_has_a_limit(void **state)
{
	struct mcm_feed_part part = { .sequence = 1, .len = 1000 };
	char buf[1000] = "";
	struct fixture fx;
	struct pair p;

	(void)state;
	jx_up(&fx, 1, 4 * MIB);
	pair_open(&fx, &p);
	mcm_copy_close(p.copy);
	p.copy = NULL;
	assert_int_equal(copy_open(&fx, 10 * 1000, &p.copy), 0);
	for (; part.offset < 10 * 1000; part.offset += 1000)
		assert_int_equal(mcm_copy_add(p.copy, &part, buf), 0);
	assert_int_equal(mcm_copy_add(p.copy, &part, buf), -ENOSPC);
	/* Another file is of the same copy; another copy begins anew. */
	part = (struct mcm_feed_part){ .sequence = 2, .len = 1000 };
	assert_int_equal(mcm_copy_add(p.copy, &part, buf), -ENOSPC);
	assert_int_equal(mcm_copy_begin(p.copy), 0);
	assert_int_equal(mcm_copy_add(p.copy, &part, buf), 0);
	pair_close(&p);
	fx_down(&fx);
}

/* The limit is of the present files: those before a checkpoint are removed. */
static void removed_files_do_not_count(void **state)
{
	struct fixture fx;
	struct pair p;

	(void)state;
	jx_up(&fx, 1, 4 * MIB);
	pair_open(&fx, &p);
	mcm_copy_close(p.copy);
	p.copy = NULL;
	assert_int_equal(copy_open(&fx, 64 * 1024, &p.copy), 0);
	for (unsigned i = 0; i < 20; i++) {
		put(&fx, 50 * i, 50 * i + 50);
		for (unsigned k = 50 * i; k < 50 * i + 50; k++) {
			char key[16];

			snprintf(key, sizeof(key), "k%u", k);
			assert_int_equal(fx_remove(&fx, key, 0), 0);
		}
		jx_answer(&fx);
		assert_int_equal(pump_until_refused(&p), 0);
		assert_int_equal(mcm_checkpoint(fx.m), 0);
		assert_int_equal(pump_until_refused(&p), 0);
	}
	pair_close(&p);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_copy_follows_changes_and_checkpoints),
		cmocka_unit_test(a_copy_that_ends_early_is_an_earlier_state_or_none),
		cmocka_unit_test(a_lost_state_ends_the_copy),
		cmocka_unit_test(a_part_that_does_not_fit_is_refused),
		cmocka_unit_test(a_checkpoint_of_another_cluster_is_no_state),
		cmocka_unit_test(a_damaged_checkpoint_is_no_state),
		cmocka_unit_test(a_copy_has_a_limit),
		cmocka_unit_test(removed_files_do_not_count),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
