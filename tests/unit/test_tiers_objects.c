/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_objects.c - the tier "s3" on a directory: bytes of ranges, names that are not in use, stores that fail. */
#include <config.h>

#include <errno.h>
#include <ftw.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/sys/clock.h"
#include "tiers/keyed.h"
#include "tiers/objects/objects.h"
#include "tiers/objects/objects_i.h"

#define MIB (1ull << 20)
#define SIZE (256 * MIB)

static char dir[] = "/tmp/mc-objects.XXXXXX";
static const uint64_t words[MCT_IDENTITY] = { 1, 2, 3, 4, 5, 6, 7, 8, 0 };

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

static struct mct_medium *reopen(struct mct_medium *m)
{
	const struct mct_conf conf = { .size = SIZE, .path = dir };

	if (m)
		m->ops->close(m);
	assert_int_equal(mct_objects_tier.open(&conf, &m), 0);
	return m;
}

/* The master: all places below this one are in use; or it does not answer. */
struct used {
	uint64_t below;
	int error;
	unsigned asked;
};

static int used(void *arg, const uint64_t *off, size_t n, bool *ret)
{
	struct used *u = arg;

	u->asked += n > 0;
	for (size_t i = 0; i < n; i++) {
		assert_true(!i || off[i] > off[i - 1]);
		ret[i] = off[i] < u->below;
	}
	return u->error;
}

static struct mct_medium *fresh(void)
{
	struct mct_medium *m = reopen(NULL);
	struct used u = { .below = SIZE };

	assert_int_equal(m->ops->set_identity(m, words), 0);
	assert_int_equal(m->ops->sweep(m, NULL, 0, used, &u), 0);
	return m;
}

static unsigned char byte_at(uint64_t order, uint64_t pos)
{
	return (unsigned char)((order * 0x9e3779b97f4a7c15ull + pos * 0xff51afd7ed558ccdull) >> 56);
}

/* @tail of the @len bytes come from another place of memory. */
static int store(struct mct_medium *m, uint64_t off, uint64_t len, uint64_t tail, uint64_t order)
{
	unsigned char *p = malloc(len);
	struct wait_write w = { .w = {
		.off = off, .len = len - tail, .buf = p, .tail_len = tail, .generation = 9, .order = order,
		.done = write_done,
	} };

	for (uint64_t i = 0; i < len; i++)
		p[i] = byte_at(order, i);
	w.w.tail = memcpy(malloc(tail + 1), p + len - tail, tail);
	memset(p + len - tail, 0xee, tail);
	sem_init(&w.sem, 0, 0);
	m->ops->write_start(m, &w.w);
	sem_wait(&w.sem);
	free((void *)(uintptr_t)w.w.tail);
	free(p);
	return w.w.status;
}

/* Read bytes of the range that begins at @begin; they are those of @order. */
static int look(struct mct_medium *m, uint64_t begin, uint64_t pos, uint32_t len, uint64_t order)
{
	struct wait_read r = { .r = { .off = begin + pos, .len = len, .done = read_done } };

	sem_init(&r.sem, 0, 0);
	m->ops->read_start(m, &r.r);
	sem_wait(&r.sem);
	if (r.r.status < 0)
		return r.r.status;
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(((const unsigned char *)r.r.at)[i], byte_at(order, pos + i));
	m->ops->read_end(m, &r.r);
	return 0;
}

static unsigned files;

static int count_file(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)at;
	files += type == FTW_F && !strstr(path, "/identity");
	return 0;
}

/* The store has that many ranges, soon. */
static void has_files(unsigned n)
{
	for (unsigned i = 0; i < 500; i++) {
		files = 0;
		nftw(dir, count_file, 8, FTW_PHYS);
		if (files == n)
			return;
		mc_sleep_ms(10);
	}
	assert_int_equal(files, n);
}

/* Put a name with the bytes of @order, as a process would whose put ends late. */
static void put_late(const char *in, uint64_t off, uint64_t len, uint64_t order, unsigned part)
{
	unsigned char *p = malloc(len);
	struct mct_keyed *k;
	char name[300];

	for (uint64_t i = 0; i < len; i++)
		p[i] = byte_at(order, i);
	snprintf(name, sizeof(name), "%s/%012llx-%llx-9-%llx.%x", in, (unsigned long long)off,
		 (unsigned long long)len, (unsigned long long)order, part);
	assert_int_equal(mct_keyed_open("local", dir, &k), 0);
	assert_int_equal(mct_keyed_put(k, name, p, len), 0);
	mct_keyed_close(k);
	free(p);
}

static char folder[32];		/* that has a range */

static int take_folder(void *arg, const char *name)
{
	(void)arg;
	if (strchr(name, '/'))
		snprintf(folder, sizeof(folder), "%.16s", name);
	return 0;
}

static void find_folder(void)
{
	struct mct_keyed *k;

	assert_int_equal(mct_keyed_open("local", dir, &k), 0);
	assert_int_equal(mct_keyed_list(k, "", take_folder, NULL), 0);
	mct_keyed_close(k);
}

static void a_range_has_its_bytes_also_after_a_restart(void **state)
{
	struct mct_medium *m = fresh();
	uint64_t found[MCT_IDENTITY], end;
	struct used u = { .below = SIZE };

	(void)state;
	assert_true(m->ops->named);
	assert_int_equal(store(m, 8192, 12288, 4096, 10), 0);
	assert_int_equal(store(m, 64 * MIB, 33 * MIB, 8192, 11), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(look(m, 8192, 0, 12288, 10), 0);
		assert_int_equal(look(m, 8192, 8191, 2, 10), 0);
		/* from one part to the next one, and the end */
		assert_int_equal(look(m, 64 * MIB, 16 * MIB - 100, 1 << 20, 11), 0);
		assert_int_equal(look(m, 64 * MIB, 33 * MIB - 9000, 9000, 11), 0);
		/* nothing there, or only a part; after a restart a sweep has to confirm that */
		if (i)
			assert_int_equal(look(m, 0, 0, 8192, 10), -MC_EUNAVAILABLE);
		assert_int_equal(m->ops->sweep(m, NULL, 0, used, &u), 0);
		assert_int_equal(look(m, 0, 0, 8192, 10), -EIO);
		assert_int_equal(look(m, 8192, 4096, 12288, 10), -EIO);
		assert_int_equal(m->ops->data_next(m, 0, &end), 8192 + 8192);
		assert_int_equal(end, 8192 + 12288);
		assert_int_equal(m->ops->data_next(m, end, &end), 97 * MIB - 4096);
		assert_int_equal(m->ops->data_next(m, end, &end), SIZE);
		assert_int_equal(m->ops->identity(m, found), 0);
		assert_memory_equal(found, words, sizeof(words));
		m = reopen(m);
	}
	m->ops->close(m);
	has_files(4);
}

static void a_newer_range_replaces_older_ones(void **state)
{
	struct mct_medium *m = fresh();

	(void)state;
	assert_int_equal(store(m, 0, 8192, 0, 20), 0);
	assert_int_equal(store(m, 8192, 8192, 0, 21), 0);
	assert_int_equal(store(m, 16384, 8192, 0, 22), 0);
	assert_int_equal(store(m, 4096, 8192, 0, 23), 0);
	assert_int_equal(look(m, 4096, 0, 8192, 23), 0);
	assert_int_equal(look(m, 16384, 0, 8192, 22), 0);
	assert_int_equal(look(m, 0, 0, 4096, 20), -EIO);
	has_files(2);
	/* An older range does not replace a newer one. */
	assert_int_equal(store(m, 8192, 4096, 0, 21), -EEXIST);
	m = reopen(m);
	assert_int_equal(look(m, 4096, 0, 8192, 23), 0);
	has_files(2);
	m->ops->close(m);
}

static void a_failed_write_leaves_no_bytes(void **state)
{
	struct mct_medium *m = fresh();

	(void)state;
	assert_int_equal(store(m, 0, 8192, 0, 30), 0);
	mc_fault_set("tiers.objects.write=error:EIO");
	assert_true(store(m, 0, 8192, 0, 31) < 0);
	mc_fault_set("blob.rename=error:ENOSPC");
	assert_int_equal(store(m, 8192, 8192, 0, 32), -ENOSPC);
	mc_fault_set(NULL);
	assert_int_equal(look(m, 0, 0, 8192, 30), 0);
	assert_int_equal(look(m, 8192, 0, 8192, 32), -EIO);
	has_files(1);
	assert_int_equal(store(m, 0, 4096, 0, 33), 0);
	assert_int_equal(store(m, SIZE - 4096, 8192, 0, 34), -ERANGE);
	assert_int_equal(store(m, 100, 4096, 0, 35), -ERANGE);
	m->ops->close(m);
}

static void a_store_that_does_not_answer_has_not_lost_the_bytes(void **state)
{
	struct mct_medium *m = fresh();

	(void)state;
	assert_int_equal(store(m, 0, 8192, 0, 40), 0);
	mc_fault_set("tiers.objects.read=error:EACCES");
	assert_int_equal(look(m, 0, 0, 100, 40), -MC_EUNAVAILABLE);
	mc_fault_set("tiers.objects.read=error:ENOMEM");
	assert_int_equal(look(m, 0, 0, 100, 40), -MC_EUNAVAILABLE);
	mc_fault_set("tiers.objects.read=error:ENOENT");
	assert_int_equal(look(m, 0, 0, 100, 40), -EIO);
	mc_fault_set("tiers.objects.read=error:ETIMEDOUT@1,tiers.objects.write=error:EIO");
	assert_int_equal(look(m, 0, 0, 100, 40), -MC_EUNAVAILABLE);
	/* For a short time transfers do not even try. */
	assert_int_equal(look(m, 0, 0, 100, 40), -MC_EUNAVAILABLE);
	assert_int_equal(store(m, 8192, 8192, 0, 41), -MC_EUNAVAILABLE);
	assert_int_equal(mc_fault_hits("tiers.objects.read"), 1);
	mc_fault_set(NULL);
	for (unsigned i = 0; i < 500 && look(m, 0, 0, 100, 40) == -MC_EUNAVAILABLE; i++)
		mc_sleep_ms(10);
	assert_int_equal(look(m, 0, 0, 100, 40), 0);
	m->ops->close(m);
}

static void a_sweep_deletes_ranges_that_the_master_does_not_know(void **state)
{
	struct mct_medium *m = fresh();
	struct used u = { .below = 16384, .error = -MC_ENOTREADY };
	const uint64_t some[] = { 16384, 0, 16384, 999 };

	(void)state;
	for (unsigned i = 0; i < 6; i++)
		assert_int_equal(store(m, 8192 * i, 8192, 4096, 50 + i), 0);
	/* An error of the master deletes nothing. */
	assert_int_equal(m->ops->sweep(m, NULL, 0, used, &u), -MC_ENOTREADY);
	assert_int_equal(m->ops->sweep(m, some, 4, used, &u), -MC_ENOTREADY);
	has_files(6);
	u.error = 0;
	assert_int_equal(m->ops->sweep(m, some, 4, used, &u), 0);
	has_files(5);
	assert_int_equal(look(m, 16384, 0, 8192, 52), -EIO);
	assert_int_equal(look(m, 8192, 0, 8192, 51), 0);
	assert_int_equal(m->ops->sweep(m, NULL, 0, used, &u), 0);
	has_files(2);
	assert_int_equal(look(m, 0, 0, 8192, 50), 0);
	assert_int_equal(look(m, 8192, 0, 8192, 51), 0);
	m->ops->close(m);
}

/* As a process does that ends during a sweep. */
static int used_and_stop(void *arg, const uint64_t *off, size_t n, bool *ret)
{
	struct mct_medium *m = arg;

	(void)off;
	for (size_t i = 0; i < n; i++)
		ret[i] = false;
	m->ops->sweep_stop(m);
	return 0;
}

static void a_sweep_that_is_stopped_ends(void **state)
{
	struct mct_medium *m = fresh();
	struct used u = { .below = 0 };
	const uint64_t some[] = { 0 };

	(void)state;
	assert_int_equal(store(m, 0, 8192, 0, 57), 0);
	/* The list of names ends at its first one. */
	assert_int_equal(m->ops->sweep(m, NULL, 0, used_and_stop, m), -ECANCELED);
	assert_int_equal(m->ops->sweep(m, NULL, 0, used, &u), -ECANCELED);
	assert_int_equal(m->ops->sweep(m, some, 1, used, &u), -ECANCELED);
	assert_int_equal(u.asked, 0);
	assert_int_equal(store(m, 8192, 8192, 0, 58), 0);
	assert_int_equal(look(m, 0, 0, 8192, 57), 0);
	m->ops->close(m);
	has_files(2);
}

static void a_sweep_finds_the_rest_of_failed_writes(void **state)
{
	struct mct_medium *m = fresh();
	struct used u = { .below = 8192 };

	(void)state;
	assert_int_equal(store(m, 0, 8192, 4096, 60), 0);
	find_folder();
	put_late(folder, 4096, 8192, 59, 0);			/* older than the range that it overlaps */
	put_late(folder, 64 * MIB, 17 * MIB, 61, 0);		/* a part is missing */
	put_late(folder, 16384, 8192, 62, 0);		/* whole, and not in use */
	put_late("0123456789abcdef", 0, 8192, 63, 0);	/* of an earlier secret */
	put_late(folder, 0, 1000, 64, 0);			/* no name of a range */
	has_files(6);
	assert_int_equal(m->ops->sweep(m, NULL, 0, used, &u), 0);
	has_files(2);
	assert_int_equal(look(m, 0, 0, 8192, 60), 0);
	m->ops->close(m);
}

/* With the same identity, as after a restart. */
static void a_process_that_the_master_refuses_deletes_nothing(void **state)
{
	struct mct_medium *m = fresh(), *other = reopen(NULL);
	struct used u = { .error = -MC_ENOSEGMENT };

	(void)state;
	assert_int_equal(store(m, 0, 8192, 0, 64), 0);
	find_folder();
	assert_int_equal(m->ops->sweep(m, (uint64_t[]){ 0 }, 1, used, &(struct used){ 0 }), 0);
	has_files(0);
	put_late(folder, 64 * MIB, 17 * MIB, 65, 0);	/* another part follows */
	put_late("0123456789abcdef", 0, 8192, 63, 0);
	assert_int_equal(other->ops->sweep(other, NULL, 0, used, &u), -MC_ENOSEGMENT);
	other->ops->close(other);
	has_files(2);
	m->ops->close(m);
}

static void a_range_of_another_process_in_use_is_found(void **state)
{
	struct mct_medium *m = fresh();
	struct used u = { .below = SIZE };

	(void)state;
	assert_int_equal(store(m, 0, 8192, 0, 70), 0);
	find_folder();
	put_late(folder, 8192, 4096, 71, 0);
	assert_int_equal(look(m, 8192, 0, 4096, 71), -EIO);
	assert_int_equal(m->ops->sweep(m, NULL, 0, used, &u), 0);
	assert_int_equal(look(m, 8192, 0, 4096, 71), 0);
	has_files(2);
	m->ops->close(m);
}

static void a_process_that_is_replaced_deletes_nothing(void **state)
{
	uint64_t other[MCT_IDENTITY];
	struct mct_medium *m = fresh(), *next;
	struct used u = { .below = 0 };

	(void)state;
	memcpy(other, words, sizeof(other));
	other[5] = 77;		/* another secret */
	assert_int_equal(store(m, 0, 8192, 0, 80), 0);
	next = reopen(NULL);
	assert_int_equal(next->ops->set_identity(next, other), 0);
	has_files(0);		/* the old objects do not count any more */
	assert_int_equal(store(next, 0, 8192, 0, 81), 0);
	assert_int_equal(m->ops->sweep(m, NULL, 0, used, &u), -ESTALE);
	assert_int_equal(u.asked, 0);
	has_files(1);
	assert_int_equal(look(next, 0, 0, 8192, 81), 0);
	next->ops->close(next);
	m->ops->close(m);
}

static void put_identity(const uint64_t *to)
{
	struct mct_medium *m = reopen(NULL);

	assert_int_equal(m->ops->set_identity(m, to), 0);
	m->ops->close(m);
}

static void queue_is_empty(struct mct_medium *m)
{
	struct mct_objects *o = mct_objects_of(m);
	unsigned left = 1;

	for (unsigned i = 0; i < 500 && left; i++, mc_sleep_ms(10)) {
		MC_LOCKED(&o->lock);
		left = o->n_queued;
	}
	assert_int_equal(left, 0);
}

/* The identity with another word. */
static const uint64_t *with(unsigned nth, uint64_t value)
{
	static uint64_t other[MCT_IDENTITY];

	memcpy(other, words, sizeof(other));
	other[nth] = value;
	return other;
}

static void of_two_processes_that_begin_one_is_refused(void **state)
{
	struct mct_medium *a = reopen(NULL), *b = reopen(NULL);
	uint64_t found[MCT_IDENTITY];

	(void)state;
	assert_int_equal(a->ops->set_identity(a, words), 0);
	assert_int_equal(b->ops->set_identity(b, with(0, 99)), -ESTALE);
	assert_non_null(strstr(mc_err_detail(-ESTALE), "another process has taken over"));
	assert_int_equal(b->ops->hold(b), -ESTALE);
	assert_int_equal(store(b, 0, 8192, 0, 90), -ESTALE);
	assert_int_equal(a->ops->hold(a), 0);
	assert_int_equal(store(a, 0, 8192, 0, 91), 0);
	/* The answer of a change was lost: it is made again. */
	assert_int_equal(a->ops->set_identity(a, with(8, 1)), 0);
	assert_int_equal(a->ops->set_identity(a, with(8, 1)), 0);
	b->ops->close(b);
	b = reopen(NULL);
	assert_int_equal(b->ops->identity(b, found), 0);
	assert_memory_equal(found, with(8, 1), sizeof(found));
	/* Another state of the same segment is no other owner. */
	assert_int_equal(b->ops->set_identity(b, with(2, 33)), 0);
	assert_int_equal(a->ops->set_identity(a, words), 0);
	b->ops->close(b);
	a->ops->close(a);
	has_files(1);
}

static void a_process_whose_place_another_pool_takes_writes_no_more(void **state)
{
	struct mct_medium *a = fresh(), *b;
	struct used none = { .below = 0 };
	const uint64_t some[] = { 0 };

	(void)state;
	assert_int_equal(store(a, 0, 8192, 0, 95), 0);
	b = reopen(NULL);
	assert_int_equal(b->ops->set_identity(b, with(3, 44)), 0);
	assert_int_equal(a->ops->sweep(a, some, 1, used, &none), -ESTALE);
	assert_int_equal(a->ops->sweep(a, NULL, 0, used, &none), -ESTALE);
	assert_int_equal(none.asked, 0);
	assert_int_equal(store(a, 8192, 8192, 0, 96), -ESTALE);
	assert_int_equal(a->ops->set_identity(a, words), -ESTALE);
	assert_int_equal(look(b, 0, 0, 8192, 95), 0);
	a->ops->close(a);
	b->ops->close(b);
	has_files(1);
}

static void a_process_that_does_not_know_its_successor_deletes_nothing(void **state)
{
	struct mct_medium *a = fresh(), *b;

	(void)state;
	assert_int_equal(store(a, 0, 8192, 0, 95), 0);
	b = reopen(NULL);
	assert_int_equal(b->ops->set_identity(b, with(3, 44)), 0);
	/* The write is begun before it knows. */
	assert_int_equal(store(a, 0, 8192, 0, 96), 0);
	queue_is_empty(a);
	has_files(2);
	assert_int_equal(look(b, 0, 0, 8192, 95), 0);
	a->ops->close(a);
	b->ops->close(b);
}

static void a_deleted_identity_is_written_again(void **state)
{
	struct mct_medium *m = fresh();
	struct used u = { .below = SIZE };
	uint64_t found[MCT_IDENTITY];
	struct mct_keyed *k;

	(void)state;
	assert_int_equal(store(m, 0, 8192, 0, 97), 0);
	assert_int_equal(mct_keyed_open("local", dir, &k), 0);
	assert_int_equal(mct_keyed_delete(k, "identity"), 0);
	mct_keyed_close(k);
	assert_int_equal(m->ops->sweep(m, NULL, 0, used, &u), 0);
	m = reopen(m);
	assert_int_equal(m->ops->identity(m, found), 0);
	assert_memory_equal(found, words, sizeof(found));
	assert_int_equal(look(m, 0, 0, 8192, 97), 0);
	m->ops->close(m);
}

/* Many ranges that do not exist wait for their deletion: the first @n after those of @from. */
static unsigned queue_deletes(struct mct_objects *o, unsigned from, unsigned n)
{
	unsigned queued = 0;

	for (unsigned i = from; i < from + n; i++) {
		const struct mct_objects_range r = { 4096 * i, 4096, 9, i };

		queued += mct_objects_delete_locked(o, o->folder, &r);
	}
	return queued;
}

static unsigned deleting(struct mct_objects *o)
{
	MC_LOCKED(&o->lock);
	return o->deleting;
}

static void the_queue_of_deletes_is_limited(void **state)
{
	struct mct_medium *m = fresh();
	struct mct_objects *o = mct_objects_of(m);
	struct mct_objects_range r = { 4096, 4096, 9, 1 };

	(void)state;
	mc_mutex_lock(&o->lock);
	assert_int_equal(queue_deletes(o, 0, 10), 10);
	/* Not twice. */
	assert_int_equal(queue_deletes(o, 5, 10), 5);
	assert_true(mct_objects_is_deleted_locked(o, o->folder, &r));
	assert_false(mct_objects_is_deleted_locked(o, o->folder + 1, &r));
	r.order = 2;
	assert_false(mct_objects_is_deleted_locked(o, o->folder, &r));
	assert_int_equal(queue_deletes(o, 15, MCT_OBJECTS_DELETES_MAX), MCT_OBJECTS_DELETES_MAX - 15);
	assert_int_equal(o->n_queued, MCT_OBJECTS_DELETES_MAX);
	mc_mutex_unlock(&o->lock);
	m->ops->close(m);
}

static void many_deletes_get_idle_threads(void **state)
{
	struct mct_medium *m = fresh();
	struct mct_objects *o = mct_objects_of(m);
	unsigned most = 0;

	(void)state;
	assert_int_equal(store(m, 0, 8192, 0, 5000), 0);
	mc_fault_set("tiers.objects.delete=delay:5");
	mc_mutex_lock(&o->lock);
	assert_int_equal(queue_deletes(o, 0, 1500), 1500);
	mc_mutex_unlock(&o->lock);
	for (unsigned i = 0; i < 500 && most < 10; i++, mc_sleep_ms(1))
		most = deleting(o) > most ? deleting(o) : most;
	assert_int_equal(most, 10);
	/* The other threads read. */
	assert_int_equal(look(m, 0, 0, 100, 5000), 0);
	mc_fault_set(NULL);
	queue_is_empty(m);
	mc_mutex_lock(&o->lock);
	for (unsigned i = 0; i < MCT_OBJECTS_BUCKETS; i++)
		assert_null(o->queued[i]);
	mc_mutex_unlock(&o->lock);
	m->ops->close(m);
}

static void a_sweep_does_not_queue_a_range_again(void **state)
{
	struct mct_medium *m = fresh();
	struct mct_objects *o = mct_objects_of(m);
	struct used u = { .below = 0 };

	(void)state;
	assert_int_equal(store(m, 0, 8192, 0, 130), 0);
	assert_int_equal(store(m, 8192, 8192, 0, 131), 0);
	find_folder();
	put_late(folder, 64 * MIB, 17 * MIB, 132, 0);
	mc_fault_set("tiers.objects.delete=delay:500");
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(m->ops->sweep(m, NULL, 0, used, &u), 0);
		mc_mutex_lock(&o->lock);
		assert_int_equal(o->n_queued, 3);
		assert_int_equal(o->index.n, 0);
		mc_mutex_unlock(&o->lock);
	}
	mc_fault_set(NULL);
	has_files(0);
	m->ops->close(m);
}

static void an_absurd_name_is_not_ours(void **state)
{
	static const char *const name[] = {
		"0123456789abcdef/000000000000-1000000000000000-9-1.0",
		"0123456789abcdef/000000000000-10000001000-9-1.0",
		"0123456789abcdef/fffffffffffff000-2000-9-1.0", "0123456789abcdef/000000000000-2000-9-1.1",
		"0123456789abcdef/000000000000-0-9-1.0", "0123456789abcdef/000000000000-02000-9-1.0",
		"0123456789abcdef/000000000000-2000-9-1.0.0", "0123456789abcdef/000000000001-2000-9-1.0",
	};
	struct mct_medium *m = fresh();
	struct mct_objects_range r;
	uint64_t in, part;

	(void)state;
	for (unsigned i = 0; i < sizeof(name) / sizeof(*name); i++)
		assert_false(mct_objects_name_parse(mct_objects_of(m), name[i], &in, &r, &part));
	assert_true(mct_objects_name_parse(mct_objects_of(m), "0123456789abcdef/000000000000-10000000000-9-1.ffff",
					   &in, &r, &part));
	assert_int_equal(r.len, 1ull << 40);
	m->ops->close(m);
}

static int move_names(const char *from, const char *to, const char *first, const char *second)
{
	char a[2][300], b[2][300];

	snprintf(a[0], sizeof(a[0]), "%s/%s", from, first);
	snprintf(b[0], sizeof(b[0]), "%s/%s", to, first);
	snprintf(a[1], sizeof(a[1]), "%s/%s", from, second);
	snprintf(b[1], sizeof(b[1]), "%s/%s", to, second);
	return rename(a[0], b[0]) < 0 || rename(a[1], b[1]) < 0;
}

static void an_empty_store_has_not_lost_the_bytes(void **state)
{
	struct mct_medium *m = fresh();
	struct used u = { .below = SIZE };
	char away[300], name[300];

	(void)state;
	assert_int_equal(store(m, 0, 8192, 0, 140), 0);
	assert_int_equal(store(m, 8192, 8192, 0, 141), 0);
	find_folder();
	/* As a directory whose file system is not mounted now. */
	snprintf(away, sizeof(away), "%s.away", dir);
	assert_int_equal(mkdir(away, 0700), 0);
	assert_int_equal(move_names(dir, away, "identity", folder), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(look(m, 0, 0, 100, 140), -MC_EUNAVAILABLE);
		assert_int_equal(m->ops->sweep(m, NULL, 0, used, &u), -MC_EUNAVAILABLE);
		assert_int_equal(m->ops->hold(m), -MC_EUNAVAILABLE);
	}
	/* Nothing is written there that would make it look like the right one. */
	assert_int_equal(store(m, 16384, 8192, 0, 142), -MC_EUNAVAILABLE);
	snprintf(name, sizeof(name), "%s/identity", dir);
	assert_int_equal(access(name, F_OK), -1);
	has_files(0);
	assert_int_equal(move_names(away, dir, "identity", folder), 0);
	assert_int_equal(look(m, 0, 0, 100, 140), 0);
	assert_int_equal(m->ops->sweep(m, NULL, 0, used, &u), 0);
	assert_int_equal(m->ops->hold(m), 0);
	assert_int_equal(store(m, 16384, 8192, 0, 143), 0);
	/* With the identity a name that is gone is lost, without a limit of the checks. */
	snprintf(name, sizeof(name), "%s/%s/000000000000-2000-9-8c.0", dir, folder);
	assert_int_equal(unlink(name), 0);
	mc_sleep_ms(1100);
	assert_int_equal(look(m, 0, 0, 100, 140), -EIO);
	assert_int_equal(look(m, 0, 0, 100, 140), -EIO);
	assert_int_equal(look(m, 8192, 0, 100, 141), 0);
	/* Another process has the prefix: its store says nothing about our ranges. */
	put_identity(with(3, 44));
	assert_int_equal(look(m, 0, 0, 100, 140), -MC_EUNAVAILABLE);
	assert_int_equal(m->ops->hold(m), -ESTALE);
	m->ops->close(m);
	assert_int_equal(rmdir(away), 0);
}

static void a_wrong_place_is_refused(void **state)
{
	struct mct_conf conf = { .size = SIZE, .path = dir };
	struct mct_medium *m;
	struct mct_keyed *k;

	(void)state;
	assert_int_equal(mct_keyed_open("local", dir, &k), 0);
	assert_int_equal(mct_keyed_put(k, "identity", "something else", 14), 0);
	mct_keyed_close(k);
	assert_int_equal(mct_objects_tier.open(&conf, &m), -EINVAL);
	assert_non_null(strstr(mc_err_detail(-EINVAL), "is not the identity of a segment"));
	conf.path = "bucket/prefix";
	assert_int_equal(mct_objects_tier.open(&conf, &m), -EINVAL);
	conf.path = "s3://";
	assert_int_equal(mct_objects_tier.open(&conf, &m), -EINVAL);
	conf = (struct mct_conf){ .size = 4096, .path = dir };
	assert_int_equal(mct_objects_tier.open(&conf, &m), -EINVAL);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	return at->level ? remove(path) : 0;
}

static int empty(void **state)
{
	(void)state;
	mc_fault_set(NULL);
	return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_range_has_its_bytes_also_after_a_restart, empty),
		cmocka_unit_test_setup(a_newer_range_replaces_older_ones, empty),
		cmocka_unit_test_setup(a_failed_write_leaves_no_bytes, empty),
		cmocka_unit_test_setup(a_store_that_does_not_answer_has_not_lost_the_bytes, empty),
		cmocka_unit_test_setup(a_sweep_deletes_ranges_that_the_master_does_not_know, empty),
		cmocka_unit_test_setup(a_sweep_that_is_stopped_ends, empty),
		cmocka_unit_test_setup(a_sweep_finds_the_rest_of_failed_writes, empty),
		cmocka_unit_test_setup(a_process_that_the_master_refuses_deletes_nothing, empty),
		cmocka_unit_test_setup(a_range_of_another_process_in_use_is_found, empty),
		cmocka_unit_test_setup(a_process_that_is_replaced_deletes_nothing, empty),
		cmocka_unit_test_setup(of_two_processes_that_begin_one_is_refused, empty),
		cmocka_unit_test_setup(a_process_whose_place_another_pool_takes_writes_no_more, empty),
		cmocka_unit_test_setup(a_process_that_does_not_know_its_successor_deletes_nothing, empty),
		cmocka_unit_test_setup(a_deleted_identity_is_written_again, empty),
		cmocka_unit_test_setup(the_queue_of_deletes_is_limited, empty),
		cmocka_unit_test_setup(many_deletes_get_idle_threads, empty),
		cmocka_unit_test_setup(a_sweep_does_not_queue_a_range_again, empty),
		cmocka_unit_test_setup(an_absurd_name_is_not_ours, empty),
		cmocka_unit_test_setup(an_empty_store_has_not_lost_the_bytes, empty),
		cmocka_unit_test_setup(a_wrong_place_is_refused, empty),
	};
	int r;

	if (!mkdtemp(dir))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)empty(NULL);
	remove(dir);
	return r;
}
