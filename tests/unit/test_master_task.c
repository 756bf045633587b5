/* SPDX-License-Identifier: Apache-2.0
 * test_master_task.c - tasks on a master whose clock only the test moves; the test is also the
 * owner that copies. */
#include <config.h>

#include "common/sys/lock.h"
#include "test_master_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define MIB (1ull << 20)
#define CRC 42		/* the checksum that fx_put() reports */

struct fetched {
	struct mcp_copy copy[MCM_FETCH_MAX];
	struct mcp_replica from[MCM_FETCH_MAX], to[MCM_FETCH_MAX];
	unsigned n;
	bool more;
};

static unsigned fetch(struct fixture *fx, struct mcm_session *s, struct fetched *f)
{
	f->n = mcm_task_fetch(fx->m, s, MCM_FETCH_MAX, f->copy, f->from, f->to, &f->more);
	return f->n;
}

static int copied(struct fixture *fx, const struct mcm_session *s, const struct mcp_copy *c,
		  int status, uint32_t crc)
{
	struct mcp_copied done = { .put = c->put, .status = status, .crc = crc };

	return mcm_task_copied(fx->m, s, &done);
}

static int create(struct fixture *fx, uint8_t type, const char *key, const char *source,
		  const char *target, struct mcp_id *ret)
{
	struct mcp_bytes src = source ? fx_bytes(source) : mcp_bytes(NULL, 0);
	struct mcp_bytes dst = target ? fx_bytes(target) : mcp_bytes(NULL, 0);
	struct mcm_task_request rq = {
		.type = type, .key = key ? fx_bytes(key) : mcp_bytes(NULL, 0), .source = &src,
		.target = &dst, .n_sources = source != NULL, .n_targets = target != NULL,
	};
	struct mcp_id id;

	return mcm_task_create(fx->m, &rq, ret ? ret : &id);
}

static int keep_task(void *arg, const struct mcm_task *t)
{
	*(struct mcm_task *)arg = *t;
	return 0;
}

static struct mcm_task look(struct fixture *fx, struct mcp_id id)
{
	struct mcm_task t;

	assert_int_equal(mcm_task_each(fx->m, id, keep_task, &t), 0);
	return t;
}

static struct mcm_segment *seg(struct fixture *fx, uint64_t id)
{
	struct mcm_segment *s = mcm_segments_find(&fx->m->segments, (struct mcp_id){ 7, id });

	assert_non_null(s);
	return s;
}

/* Advance the clock while the owner sends heartbeats. */
static void later(struct fixture *fx, uint64_t ms)
{
	for (uint64_t step; ms; ms -= step) {
		step = ms < 5000 ? ms : 5000;
		fx_advance(fx, step);
		fx_beat(fx, fx->s->client);
	}
	mcm_tasks_tick(fx->m);
}

/* Make all copies that the master requests of @s; returns their number. */
static unsigned work(struct fixture *fx, struct mcm_session *s)
{
	unsigned n = 0, i;
	struct fetched f;

	while (fetch(fx, s, &f)) {
		for (i = 0; i < f.n; i++)
			assert_int_equal(copied(fx, s, &f.copy[i], 0, f.copy[i].crc), 0);
		n += f.n;
	}
	mcm_tasks_tick(fx->m);
	return n;
}

/* Put "k0", "k1", ... on the mounted segments. */
static void put_many(struct fixture *fx, unsigned n, uint64_t size)
{
	char key[16];

	for (unsigned i = 0; i < n; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_put(fx, key, size, 0), 0);
	}
}

static void check_many(struct fixture *fx, unsigned n)
{
	char key[16];

	for (unsigned i = 0; i < n; i++) {
		sprintf(key, "k%u", i);
		assert_int_equal(fx_stat(fx, key, NULL), 0);
	}
}

static unsigned copies_of(struct fixture *fx, const char *key)
{
	struct mcp_replica r[MCM_REPLICA_MAX];
	struct mcp_object o;
	unsigned n;

	assert_int_equal(mcm_get(fx->m, NULL, 0, fx_bytes(key), &o, r, &n), 0);
	return n;
}

static void a_drain_empties_a_segment_and_loses_nothing(void **state)
{
	struct mcm_session *other;
	struct fixture fx;
	struct mcp_id id;
	struct mcm_task t;
	uint64_t before;

	fx_up(&fx, 1, 8 * MIB, NULL);
	put_many(&fx, 300, 10000);
	other = fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 2, 1, 16 * MIB, NULL), 0);
	before = seg(&fx, 1)->objects;
	assert_int_equal(before, 300);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, &id), 0);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_DRAINING);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, NULL), -MC_EUNAVAILABLE);

	/* No new object is placed on the segment, and only its owner gets copies to make. */
	assert_int_equal(fx_put(&fx, "new", 5000, 0), 0);
	assert_int_equal(seg(&fx, 2)->objects, 1);
	assert_int_equal(work(&fx, other), 0);
	assert_int_equal(work(&fx, fx.s), 300);

	assert_int_equal(seg(&fx, 1)->objects, 0);
	assert_int_equal(seg(&fx, 1)->used, 0);
	assert_int_equal(seg(&fx, 2)->objects, 301);
	check_many(&fx, 300);
	t = look(&fx, id);
	assert_int_equal(t.status, MCP_TASK_SUCCEEDED);
	assert_int_equal(t.succeeded, 300);
	assert_int_equal(t.bytes, 300 * 10000);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_DRAINED);
	assert_int_equal(fx_put(&fx, "newer", 5000, 0), 0);
	assert_int_equal(seg(&fx, 1)->objects, 0);
	/* Cancelling the finished drain makes the segment usable again. */
	assert_int_equal(mcm_task_cancel(fx.m, id, &t.status), 0);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_OK);
	fx_down(&fx);
}

static void the_number_of_running_copies_is_limited(void **state)
{
	struct fixture fx;
	struct fetched f;

	fx_up(&fx, 2, 8 * MIB, NULL);
	put_many(&fx, 100, 1000);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, NULL), 0);
	assert_int_equal(fetch(&fx, fx.s, &f), 4);
	assert_int_equal(fetch(&fx, fx.s, &(struct fetched){ .n = 0 }), 0);
	for (unsigned i = 0; i < f.n; i++)
		assert_int_equal(copied(&fx, fx.s, &f.copy[i], 0, CRC), 0);
	assert_int_equal(copied(&fx, fx.s, &f.copy[0], 0, CRC), -MC_ESTALE_PUT);
	work(&fx, fx.s);
	check_many(&fx, 100);
	fx_down(&fx);
}

static void readers_keep_their_copies(void **state)
{
	struct mcm_session *reader;
	struct mcp_replica where, now;
	struct mcp_object o, again;
	struct fixture fx;
	struct mcp_id id;

	fx_up(&fx, 1, 8 * MIB, NULL);
	assert_int_equal(fx_put(&fx, "k", 100000, 0), 0);
	assert_int_equal(fx_mount(&fx, 1, 2, 1, 8 * MIB, NULL), 0);
	reader = fx_session(&fx, 3);
	assert_int_equal(fx_pin(&fx, reader, "k", MCP_GET_HOLD, &o, &where), 0);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, &id), 0);
	assert_int_equal(work(&fx, fx.s), 1);
	/* The old replica stays for its reader; new readers may use either. */
	assert_true(seg(&fx, 1)->used > 0);
	assert_int_equal(look(&fx, id).status, MCP_TASK_RUNNING);
	assert_int_equal(work(&fx, fx.s), 0);
	assert_int_equal(copies_of(&fx, "k"), 2);
	fx_release(&fx, reader, o.pin);
	assert_int_equal(seg(&fx, 1)->used, 0);
	mcm_tasks_tick(fx.m);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_int_equal(fx_pin(&fx, reader, "k", MCP_GET_LEASE, &again, &now), 0);
	assert_int_equal(again.generation, o.generation);
	assert_int_equal(again.mtime_ms, o.mtime_ms);
	assert_int_equal(now.segment.lo, 2);
	fx_down(&fx);
}

/* A source, and thus its group, is pinned only while it is copied. */
static void a_group_is_not_held_by_copies_that_are_done(void **state)
{
	struct mcm_put_request rq = { .copies = 1 };
	struct mcp_put_item item = { .size = 10000, .group = fx_bytes("g") };
	struct mcm_put_granted g;
	struct fixture fx;
	struct fetched f;

	fx_up(&fx, 1, 8 * MIB, NULL);
	for (unsigned i = 0; i < 3; i++) {
		const char *key = i == 0 ? "a" : i == 1 ? "b" : "c";

		item.key = fx_bytes(key);
		assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
		assert_int_equal(fx_end(&fx, key, g.generation), 0);
	}
	assert_int_equal(fx_mount(&fx, 1, 2, 1, 8 * MIB, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, NULL), 0);
	assert_int_equal(fetch(&fx, fx.s, &f), 3);
	fx_check(&fx);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(copied(&fx, fx.s, &f.copy[i], 0, CRC), 0);
	fx_check(&fx);
	assert_int_equal(seg(&fx, 2)->objects, 3);
	assert_int_equal(create(&fx, MCP_TASK_EVICT, NULL, "seg-2", NULL, NULL), 0);
	mcm_tasks_tick(fx.m);
	assert_int_equal(seg(&fx, 2)->objects, 0);
	fx_down(&fx);
}

static void wrong_bytes_are_not_kept(void **state)
{
	struct fixture fx;
	struct fetched f;
	struct mcp_id id;
	unsigned i;

	fx_up(&fx, 1, 8 * MIB, NULL);
	assert_int_equal(fx_put(&fx, "k", 100000, 0), 0);
	assert_int_equal(fx_mount(&fx, 1, 2, 1, 8 * MIB, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, &id), 0);
	for (i = 0; i < MCM_UNIT_TRIES; i++) {
		assert_int_equal(fetch(&fx, fx.s, &f), 1);
		assert_int_equal(copied(&fx, fx.s, &f.copy[0], 0, CRC + 1), -MC_ECHECKSUM);
		assert_int_equal(fetch(&fx, fx.s, &f), 0);
		later(&fx, 5000);
	}
	assert_int_equal(fetch(&fx, fx.s, &f), 0);
	assert_int_equal(look(&fx, id).status, MCP_TASK_FAILED);
	assert_int_equal(look(&fx, id).failed, 1);
	assert_int_equal(copies_of(&fx, "k"), 1);
	assert_int_equal(seg(&fx, 2)->used, 0);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_OK);
	fx_down(&fx);
}

static void a_worker_that_goes_takes_its_copies_along(void **state)
{
	struct mcm_session *worker;
	struct fixture fx;
	struct fetched f, g;
	struct mcp_id id;

	fx_up(&fx, 2, 8 * MIB, NULL);
	put_many(&fx, 40, 20000);
	worker = fx_session(&fx, 1);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, &id), 0);
	assert_int_equal(fetch(&fx, worker, &f), 4);
	fx_session_end(&fx, worker);
	assert_int_equal(look(&fx, id).active, 0);
	assert_int_equal(copied(&fx, fx.s, &f.copy[0], 0, CRC), -MC_ESTALE_PUT);
	later(&fx, 5000);
	/* A worker that takes too long loses its copies, too. */
	assert_int_equal(fetch(&fx, fx.s, &g), 4);
	later(&fx, fx.conf.processing_task_timeout_sec + 1000);
	later(&fx, 1000);
	assert_int_equal(look(&fx, id).active, 0);
	assert_int_equal(copied(&fx, fx.s, &g.copy[3], 0, CRC), -MC_ESTALE_PUT);
	assert_int_equal(copied(&fx, fx.s, &g.copy[3], 0, CRC), -MC_ESTALE_PUT);
	later(&fx, 5000);
	work(&fx, fx.s);
	check_many(&fx, 40);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	fx_down(&fx);
}

/* Only the session that fetched a copy has pinned its source, so only it may end the copy. */
static void a_copy_is_ended_by_its_fetcher(void **state)
{
	struct mcm_session *other;
	struct fixture fx;
	struct fetched f;
	struct mcp_id id;

	fx_up(&fx, 1, 8 * MIB, NULL);
	assert_int_equal(fx_put(&fx, "k", 100000, 0), 0);
	assert_int_equal(fx_mount(&fx, 1, 2, 1, 8 * MIB, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, &id), 0);
	assert_int_equal(fetch(&fx, fx.s, &f), 1);
	/* another session of the same client */
	other = fx_session(&fx, 1);
	assert_int_equal(copied(&fx, other, &f.copy[0], 0, CRC), -MC_ESTALE_PUT);
	assert_int_equal(copies_of(&fx, "k"), 1);
	assert_int_equal(look(&fx, id).active, 1);
	/* The copy still belongs to the first session. */
	assert_int_equal(copied(&fx, fx.s, &f.copy[0], 0, CRC), 0);
	work(&fx, fx.s);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	fx_down(&fx);
}

static void cancel_takes_everything_back(void **state)
{
	struct fixture fx;
	struct fetched f;
	struct mcp_id id;
	uint8_t status;

	fx_up(&fx, 1, 8 * MIB, NULL);
	put_many(&fx, 40, 20000);
	assert_int_equal(fx_mount(&fx, 1, 2, 1, 8 * MIB, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, &id), 0);
	assert_int_equal(fetch(&fx, fx.s, &f), 4);
	assert_int_equal(mcm_task_cancel(fx.m, id, &status), 0);
	assert_int_equal(status, MCP_TASK_CANCELED);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_OK);
	for (unsigned i = 0; i < f.n; i++)
		assert_int_equal(copied(&fx, fx.s, &f.copy[i], 0, CRC), -MC_ESTALE_PUT);
	later(&fx, 5000);
	assert_int_equal(seg(&fx, 2)->used, 0);
	assert_int_equal(work(&fx, fx.s), 0);
	check_many(&fx, 40);
	id.lo++;
	assert_int_equal(mcm_task_cancel(fx.m, id, &status), -MC_ENOTASK);
	fx_down(&fx);
}

/* A mover is not told to stop, so the range that it may write to stays allocated until it reports,
 * or its session ends. */
static void room_of_a_copy_is_not_given_away_under_its_writer(void **state)
{
	struct mcm_session *worker;
	struct mcp_put_done done;
	struct fixture fx;
	struct fetched f;
	struct mcp_id id;
	uint64_t room;
	uint8_t status;

	fx_up(&fx, 1, 8 * MIB, NULL);
	put_many(&fx, 40, 20000);
	worker = fx_session(&fx, 1);
	assert_int_equal(fx_mount(&fx, 1, 2, 1, 8 * MIB, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, &id), 0);
	assert_int_equal(fetch(&fx, fx.s, &f), 4);
	room = seg(&fx, 2)->used;
	assert_int_equal(mcm_task_cancel(fx.m, id, &status), 0);
	assert_int_equal(look(&fx, id).active, 0);
	later(&fx, 5000);
	fx_confirm(&fx);
	assert_int_equal(seg(&fx, 2)->used, room);
	/* Time does not free the range, nor does a revoke with the generation of the copy. */
	later(&fx, 3 * fx.conf.put_start_release_timeout_sec);
	assert_int_equal(seg(&fx, 2)->used, room);
	done = (struct mcp_put_done){ .key = fx_bytes("copy"), .generation = f.copy[0].put };
	assert_int_equal(mcm_put_revoke(fx.m, fx.s, &done), -MC_ESTALE_PUT);
	fx_check(&fx);
	for (unsigned i = 0; i < f.n; i++)
		assert_int_equal(copied(&fx, fx.s, &f.copy[i], -5, 0), -MC_ESTALE_PUT);
	/* A mover reports a copy when its write has ended. */
	assert_int_equal(seg(&fx, 2)->used, 0);
	/* The same for a copy that takes too long, until its session ends. */
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, &id), 0);
	assert_int_equal(fetch(&fx, worker, &f), 4);
	later(&fx, fx.conf.processing_task_timeout_sec + 1000);
	later(&fx, 3 * fx.conf.put_start_release_timeout_sec);
	assert_int_equal(look(&fx, id).active, 0);
	assert_int_equal(seg(&fx, 2)->used, room);
	fx_session_end(&fx, worker);
	later(&fx, 5000);
	fx_stays_aside(&fx, 600000);
	assert_int_equal(seg(&fx, 2)->used, room);
	fx_confirm(&fx);
	assert_int_equal(seg(&fx, 2)->used, 0);
	check_many(&fx, 40);
	fx_down(&fx);
}

static void objects_that_change_during_a_copy(void **state)
{
	struct fixture fx;
	struct fetched f;
	struct mcp_id id;
	unsigned i;

	fx_up(&fx, 1, 8 * MIB, NULL);
	assert_int_equal(fx_put(&fx, "removed", 1000, 0), 0);
	assert_int_equal(fx_put(&fx, "renamed", 2000, 0), 0);
	assert_int_equal(fx_put(&fx, "replaced", 3000, 0), 0);
	assert_int_equal(fx_mount(&fx, 1, 2, 1, 8 * MIB, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, &id), 0);
	assert_int_equal(fetch(&fx, fx.s, &f), 3);
	assert_int_equal(fx_remove(&fx, "removed", MCP_REMOVE_FORCE), 0);
	assert_int_equal(fx_rename(&fx, "renamed", "to", 0), 0);
	assert_int_equal(fx_put(&fx, "replaced", 50, MCP_PUT_UPSERT), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(copied(&fx, fx.s, &f.copy[i], 0, CRC),
				 f.copy[i].size == 2000 ? 0 : -MC_ENOOBJECT);
	work(&fx, fx.s);
	assert_int_equal(seg(&fx, 1)->used, 0);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_int_equal(look(&fx, id).failed, 0);
	assert_int_equal(fx_stat(&fx, "removed", NULL), -MC_ENOOBJECT);
	assert_int_equal(copies_of(&fx, "to"), 1);
	assert_int_equal(copies_of(&fx, "replaced"), 1);
	fx_down(&fx);
}

static uint8_t flags_of(struct fixture *fx, uint64_t id, uint32_t range)
{
	return mcm_range(&seg(fx, id)->alloc, range)->flags;
}

/* A replica is lost with its segment, pinned or not, and another segment gets the segment's number:
 * the end of a copy of that replica must not affect the range that is there now. */
static void a_copy_that_ends_meets_no_other_range(void **state)
{
	struct mcm_session *reader;
	struct mcm_object *o;
	struct mcp_object got;
	uint32_t slot, range;
	struct fetched f, g;
	struct fixture fx;
	uint16_t number;

	fx_up(&fx, 1, 8 * MIB, NULL);
	number = seg(&fx, 1)->index;
	assert_int_equal(fx_put(&fx, "k", 12288, 0), 0);
	range = seg(&fx, 1)->alloc.first;
	slot = mcm_range(&seg(&fx, 1)->alloc, range)->owner;
	o = mcm_object(&fx.m->index, slot);
	assert_int_equal(o->range, range);
	for (unsigned i = 2; i <= 3; i++)
		assert_int_equal(fx_mount(&fx, 1, i, 1, 8 * MIB, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_COPY, "k", NULL, "seg-2", NULL), 0);
	assert_int_equal(work(&fx, fx.s), 1);
	assert_int_equal(create(&fx, MCP_TASK_MOVE, "k", "seg-1", "seg-3", NULL), 0);
	assert_int_equal(fetch(&fx, fx.s, &f), 1);
	assert_true(flags_of(&fx, 1, range) & MCM_RANGE_MOVING);
	reader = fx_session(&fx, 3);
	assert_int_equal(fx_pin(&fx, reader, "k", MCP_GET_HOLD, &got, NULL), 0);

	assert_int_equal(mcm_unmount(fx.m, fx.s->client, seg(&fx, 1)->id, &(uint64_t){ 0 }), 0);
	fx_advance(&fx, 1);
	assert_int_equal(mcm_segment_state(mcm_segment(&fx.m->segments, number)), MCM_SEG_NONE);
	assert_int_equal(fx_mount(&fx, 1, 4, 1, 8 * MIB, NULL), 0);
	assert_int_equal(seg(&fx, 4)->index, number);
	for (unsigned i = 2; i <= 3; i++)
		seg(&fx, i)->connected = false;
	assert_int_equal(fx_put(&fx, "stranger", 12288, 0), 0);
	for (unsigned i = 2; i <= 3; i++)
		seg(&fx, i)->connected = true;
	assert_true(mcm_range(&seg(&fx, 4)->alloc, range)->owner);
	assert_int_equal(create(&fx, MCP_TASK_MOVE, "stranger", "seg-4", "seg-2", NULL), 0);
	assert_int_equal(fetch(&fx, fx.s, &g), 1);
	assert_true(flags_of(&fx, 4, range) & MCM_RANGE_MOVING);

	assert_int_equal(copied(&fx, fx.s, &f.copy[0], 0, CRC), 0);
	assert_true(flags_of(&fx, 4, range) & MCM_RANGE_MOVING);
	/* No range waits for the reader to release its pin. */
	assert_false(o->marks & MCM_MARK_RETIRING);
	assert_int_equal(copies_of(&fx, "k"), 2);
	assert_int_equal(copied(&fx, fx.s, &g.copy[0], 0, CRC), 0);
	assert_int_equal(copies_of(&fx, "stranger"), 1);
	fx_release(&fx, reader, got.pin);
	fx_down(&fx);
}

static void copies_and_moves_of_one_object(void **state)
{
	struct mcp_bytes two[] = { fx_bytes("seg-2"), fx_bytes("seg-3") };
	struct mcm_task_request rq = {
		.type = MCP_TASK_COPY, .key = fx_bytes("k"), .target = two, .n_targets = 2,
	};
	struct fixture fx;
	struct mcp_id id;

	fx_up(&fx, 1, 8 * MIB, NULL);
	assert_int_equal(fx_put(&fx, "k", 100000, 0), 0);
	for (unsigned i = 2; i <= 4; i++)
		assert_int_equal(fx_mount(&fx, 1, i, 1, 8 * MIB, NULL), 0);
	assert_int_equal(mcm_task_create(fx.m, &rq, &id), 0);
	assert_int_equal(work(&fx, fx.s), 2);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_int_equal(copies_of(&fx, "k"), 3);
	/* Again: the replicas exist already. */
	assert_int_equal(mcm_task_create(fx.m, &rq, &id), 0);
	assert_int_equal(work(&fx, fx.s), 0);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);

	assert_int_equal(create(&fx, MCP_TASK_MOVE, "k", "seg-2", "seg-4", &id), 0);
	assert_int_equal(work(&fx, fx.s), 1);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_int_equal(copies_of(&fx, "k"), 3);
	assert_int_equal(seg(&fx, 2)->used, 0);
	assert_true(seg(&fx, 4)->used > 0);
	/* If the target has a replica already, only the source is freed. */
	assert_int_equal(create(&fx, MCP_TASK_MOVE, "k", "seg-4", "seg-3", &id), 0);
	assert_int_equal(work(&fx, fx.s), 0);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_int_equal(copies_of(&fx, "k"), 2);

	assert_int_equal(create(&fx, MCP_TASK_MOVE, "k", "seg-4", "seg-2", NULL), -MC_EREPLICA);
	assert_int_equal(create(&fx, MCP_TASK_MOVE, "k", "seg-1", "seg-1", NULL), -MC_EPARAM);
	assert_int_equal(create(&fx, MCP_TASK_MOVE, "none", "seg-1", "seg-2", NULL), -MC_ENOOBJECT);
	assert_int_equal(create(&fx, MCP_TASK_MOVE, "k", "seg-1", "seg-9", NULL), -MC_ENOSEGMENT);
	assert_int_equal(create(&fx, MCP_TASK_COPY, "k", NULL, NULL, NULL), -MC_EPARAM);
	assert_int_equal(create(&fx, MCP_TASK_COPY, NULL, NULL, "seg-1", NULL), -MC_EPARAM);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-9", NULL, NULL), -MC_ENOSEGMENT);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, NULL, NULL, NULL), -MC_EPARAM);
	/* There is no target; the segment continues to accept objects. */
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", "seg-1", NULL), -MC_EPARAM);
	assert_int_equal(seg(&fx, 1)->draining, 0);
	assert_int_equal(create(&fx, MCP_TASK_TYPES, NULL, NULL, NULL, NULL), -MC_EPARAM);
	fx_down(&fx);
}

static void few_tasks(struct mcm_conf *conf)
{
	conf->max_total_pending_tasks = 2;
	conf->max_total_finished_tasks = 1;
	conf->pending_task_timeout_sec = 10000;
	conf->max_retry_attempts = 3;
}

static void limits_and_time_outs(void **state)
{
	struct mcp_id first, second, third;
	struct mcm_task t;
	struct fixture fx;

	fx_up(&fx, 1, MIB, few_tasks);
	assert_int_equal(fx_put(&fx, "k", 500000, 0), 0);
	assert_int_equal(fx_mount(&fx, 1, 2, 1, MIB / 4, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_COPY, "k", NULL, "seg-1", &first), 0);
	assert_int_equal(create(&fx, MCP_TASK_COPY, "k", NULL, "seg-1", &second), 0);
	assert_int_equal(create(&fx, MCP_TASK_COPY, "k", NULL, "seg-1", &third), -MC_ELIMIT);
	later(&fx, 11000);
	/* No client fetched them; only one finished task is remembered. */
	assert_int_equal(mcm_task_each(fx.m, first, keep_task, &t), -MC_ENOTASK);
	t = look(&fx, second);
	assert_int_equal(t.status, MCP_TASK_FAILED);
	assert_int_equal(t.error, -MC_ETIMEDOUT);
	/* No room: after this many attempts the task fails. */
	assert_int_equal(create(&fx, MCP_TASK_COPY, "k", NULL, "seg-2", &third), 0);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(look(&fx, third).status, i ? MCP_TASK_RUNNING : MCP_TASK_PENDING);
		assert_int_equal(work(&fx, fx.s), 0);
		fx_advance(&fx, 1000);
	}
	assert_int_equal(look(&fx, third).status, MCP_TASK_FAILED);
	assert_int_equal(look(&fx, third).error, -MC_ENOSPACE);
	fx_down(&fx);
}

/* Number of copies so far that could not begin. */
static int64_t in_vain(void)
{
	return fx_metric("master_move_start_failures_total");
}

/* A fetch visits a limited number of objects, so that others do not wait; the next one continues
 * where it ended. */
static void a_fetch_looks_at_some_at_a_time(void **state)
{
	struct mcm_put_request rq = { .copies = 2 };
	struct mcp_put_item item = { .size = 128 };
	unsigned many = 4 * MCM_FETCH_RANGES, fetches;
	struct mcm_put_granted g;
	struct fixture fx;
	struct fetched f;
	char key[16];
	int64_t before;

	fx_up(&fx, 1, 8 * MIB, NULL);
	fx_held_reset(MCM_HOLD_TASKS);
	put_many(&fx, many, 128);
	assert_int_equal(fx_put(&fx, "small", 64, 0), 0);
	assert_int_equal(fx_mount(&fx, 1, 2, 1, 64, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, NULL), 0);
	before = in_vain();
	for (fetches = 1; !fetch(&fx, fx.s, &f) && fetches < 10; fetches++)
		assert_true(f.more);
	assert_in_range(fetches, 4, 6);
	assert_in_range(fx_held_most(MCM_HOLD_TASKS), 1, MCM_FETCH_RANGES);
	/* If one object found no room, others of its size are not tried in that fetch. */
	assert_in_range(in_vain() - before, 1, fetches);
	assert_int_equal(f.copy[0].size, 64);
	assert_int_equal(copied(&fx, fx.s, &f.copy[0], 0, CRC), 0);
	fx_down(&fx);

	/* These objects have a replica on the only target: others may still find room there. */
	fx_up(&fx, 2, 8 * MIB, NULL);
	for (unsigned i = 0; i < 100; i++) {
		sprintf(key, "two%u", i);
		item.key = fx_bytes(key);
		assert_int_equal(mcm_put_start(fx.m, fx.s, &rq, &item, &g), 0);
		assert_int_equal(fx_end(&fx, key, g.generation), 0);
	}
	seg(&fx, 2)->connected = false;
	assert_int_equal(fx_put(&fx, "one", 128, 0), 0);
	seg(&fx, 2)->connected = true;
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, NULL), 0);
	for (fetches = 1; fetches < 100; fetches++) {
		before = in_vain();
		if (fetch(&fx, fx.s, &f))
			break;
		assert_true(f.more);
		assert_in_range(in_vain() - before, 1, 8);
	}
	assert_int_equal(f.n, 1);
	assert_int_equal(copied(&fx, fx.s, &f.copy[0], 0, CRC), 0);
	assert_int_equal(copies_of(&fx, "one"), 1);
	assert_int_equal(seg(&fx, 2)->objects, 101);
	fx_down(&fx);
}

static void *tick(void *arg)
{
	struct fixture *fx = arg;

	mcm_tasks_tick(fx->m);
	return NULL;
}

static void join(pthread_t thread)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 60;
	assert_int_equal(pthread_timedjoin_np(thread, NULL, &end), 0);
}

static unsigned listed(struct mcm_segment *s)
{
	const struct mcm_alloc *a = &s->alloc;
	unsigned both = MCM_RANGE_USED | MCM_RANGE_LISTED, n = 0;

	mc_mutex_lock(&s->lock);
	for (uint32_t id = a->first; id != a->end; id = mcm_range_next(mcm_range(a, id)))
		n += (mcm_range(a, id)->flags & both) == both;
	mc_mutex_unlock(&s->lock);
	return n;
}

/* One thread serves all heartbeats, and also ends the sessions of clients that leave. */
static void a_session_without_copies_waits_for_no_task(void **state)
{
	struct mcm_shard *sh;
	struct fx_ending e;
	struct fixture fx;
	pthread_t thread;
	struct mcp_id id;

	fx_up(&fx, 1, 8 * MIB, NULL);
	put_many(&fx, 40, 10000);
	e = (struct fx_ending){ &fx, fx_session(&fx, 2) };
	mc_mutex_lock(&fx.m->tasks.lock);
	assert_int_equal(pthread_create(&thread, NULL, fx_session_ends, &e), 0);
	join(thread);
	mc_mutex_unlock(&fx.m->tasks.lock);

	/* An eviction task does not hold the tasks' lock while it evicts: this one is stopped in
	 * the middle. */
	assert_int_equal(create(&fx, MCP_TASK_EVICT, NULL, "seg-1", NULL, &id), 0);
	assert_int_equal(seg(&fx, 1)->objects, 40);
	sh = mcm_index_shard(&fx.m->index, mcm_index_hash(&fx.m->index, "k0", 2));
	mc_mutex_lock(&sh->lock);
	assert_int_equal(pthread_create(&thread, NULL, tick, &fx), 0);
	while (listed(seg(&fx, 1)) == 40)
		sched_yield();
	assert_int_equal(mc_mutex_trylock(&fx.m->tasks.lock), 0);
	mc_mutex_unlock(&fx.m->tasks.lock);
	mc_mutex_unlock(&sh->lock);
	join(thread);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_int_equal(look(&fx, id).succeeded, 40);
	fx_down(&fx);
}

static void evict_and_rebalance(void **state)
{
	struct mcm_session *holder;
	struct mcp_object o;
	struct fixture fx;
	struct mcp_id id;

	fx_up(&fx, 1, 8 * MIB, NULL);
	put_many(&fx, 60, 100000);
	assert_int_equal(fx_mount(&fx, 1, 2, 1, 8 * MIB, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_REBALANCE, NULL, NULL, NULL, &id), 0);
	work(&fx, fx.s);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_in_range(seg(&fx, 1)->objects, 20, 40);
	assert_int_equal(seg(&fx, 1)->objects + seg(&fx, 2)->objects, 60);
	check_many(&fx, 60);

	assert_int_equal(fx_put(&fx, "hard", 1000, MCP_PUT_HARD_PIN), 0);
	holder = fx_session(&fx, 5);
	assert_int_equal(fx_pin(&fx, holder, "k0", MCP_GET_HOLD, &o, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_EVICT, NULL, "seg-1", NULL, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_EVICT, NULL, "seg-2", NULL, &id), 0);
	mcm_tasks_tick(fx.m);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	assert_int_equal(seg(&fx, 1)->objects + seg(&fx, 2)->objects, 2);
	assert_int_equal(fx_stat(&fx, "hard", NULL), 0);
	assert_int_equal(fx_stat(&fx, "k0", NULL), 0);
	fx_down(&fx);
}

static void a_segment_that_comes_back_is_drained_on(void **state)
{
	struct mcp_mount_reply reply;
	struct fixture fx;
	struct mcp_id id;

	fx_up(&fx, 1, 8 * MIB, NULL);
	put_many(&fx, 50, 10000);
	fx_session(&fx, 2);
	assert_int_equal(fx_mount(&fx, 2, 2, 1, 8 * MIB, NULL), 0);
	assert_int_equal(create(&fx, MCP_TASK_DRAIN, NULL, "seg-1", NULL, &id), 0);
	fx_advance(&fx, 20000);
	mcm_tasks_tick(fx.m);
	assert_int_equal(mcm_segment_shown(seg(&fx, 1)), MCP_SEG_SILENT);
	assert_int_equal(fx_mount(&fx, 2, 2, 1, 8 * MIB, NULL), 0);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, 8 * MIB, &reply), 0);
	assert_int_equal(reply.reattached, 1);
	assert_int_equal(work(&fx, fx.s), 50);
	assert_int_equal(look(&fx, id).status, MCP_TASK_SUCCEEDED);
	check_many(&fx, 50);
	fx_down(&fx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_drain_empties_a_segment_and_loses_nothing),
		cmocka_unit_test(the_number_of_running_copies_is_limited),
		cmocka_unit_test(readers_keep_their_copies),
		cmocka_unit_test(a_group_is_not_held_by_copies_that_are_done),
		cmocka_unit_test(wrong_bytes_are_not_kept),
		cmocka_unit_test(a_worker_that_goes_takes_its_copies_along),
		cmocka_unit_test(a_copy_is_ended_by_its_fetcher),
		cmocka_unit_test(cancel_takes_everything_back),
		cmocka_unit_test(room_of_a_copy_is_not_given_away_under_its_writer),
		cmocka_unit_test(objects_that_change_during_a_copy),
		cmocka_unit_test(a_copy_that_ends_meets_no_other_range),
		cmocka_unit_test(copies_and_moves_of_one_object),
		cmocka_unit_test(limits_and_time_outs),
		cmocka_unit_test(a_fetch_looks_at_some_at_a_time),
		cmocka_unit_test(a_session_without_copies_waits_for_no_task),
		cmocka_unit_test(evict_and_rebalance),
		cmocka_unit_test(a_segment_that_comes_back_is_drained_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
