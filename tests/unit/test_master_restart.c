/* SPDX-License-Identifier: Apache-2.0
 * test_master_restart.c - the state that a master keeps for clients that have not reconnected since
 * its restart. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/fault.h"

#define MIB (1u << 20)

/* Restored objects have grace pins, so that clients can repeat the pins that they had.  A put that needs their memory
 * waits for the end of the grace period. */
static void t_held(void **state)
{
	struct mcp_object o;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "a", 500 << 10, 0), 0);
	assert_int_equal(fx_put(&fx, "b", 400 << 10, 0), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "c", 500 << 10, 0), -MC_ENOTREADY);
	/* a grace pin does not prevent a removal, but the memory stays allocated */
	assert_int_equal(fx_remove(&fx, "b", 0), 0);
	assert_int_equal(fx_put(&fx, "c", 450 << 10, 0), -MC_ENOTREADY);
	assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_HOLD, &o, NULL), 0);
	fx_advance(&fx, 4000);
	assert_int_equal(fx_put(&fx, "c", 450 << 10, 0), 0);
	assert_int_equal(fx_put(&fx, "d", 600 << 10, 0), -MC_ENOSPACE);
	fx_release(&fx, fx.s, o.pin);
	assert_int_equal(fx_put(&fx, "d", 600 << 10, 0), 0);
	fx_down(&fx);
}

/* A checkpoint says which objects were read, so that the next master does not evict these first. */
static void t_reads_kept(void **state)
{
	struct mcp_object o;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "a", 400 << 10, 0), 0);
	assert_int_equal(fx_put(&fx, "b", 400 << 10, 0), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_HOLD, &o, NULL), 0);
	fx_release(&fx, fx.s, o.pin);
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	fx_advance(&fx, 20000);
	assert_int_equal(fx_put(&fx, "c", 400 << 10, 0), 0);
	assert_int_equal(fx_pin(&fx, fx.s, "b", MCP_GET_HOLD, &o, NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_pin(&fx, fx.s, "a", MCP_GET_HOLD, &o, NULL), 0);
	fx_release(&fx, fx.s, o.pin);
	fx_down(&fx);
}

static int mount_twin(struct fixture *fx, uint64_t client, uint64_t id)
{
	struct mcp_mount rq = {
		.segment = { 7, id }, .client = { 7, client }, .epoch = id, .size = MIB, .name = fx_bytes("host:1"),
		.endpoint = fx_bytes("host:1"), .protocol = fx_bytes("tcp"),
	};
	struct mcp_mount_reply reply;

	return mcm_mount(fx->m, rq.client, NULL, &rq, &reply);
}

/* An owner was killed while its master was down, and another process has its name now: the old
 * segment is dropped, unless (@comes) the old owner is alive and reconnects. */
static void replaced(bool comes)
{
	struct fixture fx;

	jx_up(&fx, 0, 0);
	assert_int_equal(mount_twin(&fx, 1, 1), 0);
	assert_int_equal(fx_put(&fx, "a", 5000, 0), 0);
	jx_again(&fx);
	fx_session_end(&fx, fx.s);
	fx_session(&fx, 2);
	assert_int_equal(mount_twin(&fx, 2, 2), 0);
	fx_advance(&fx, 1000);
	assert_int_equal(fx.m->segments.n_live, 2);
	if (comes)
		fx.s = fx_session(&fx, 1);
	fx_advance(&fx, 5000);
	assert_int_equal(fx.m->segments.n_live, 1 + comes);
	assert_int_equal(mcm_index_count(&fx.m->index), comes);
	jx_again(&fx);
	assert_int_equal(fx.m->segments.n_live, 1 + comes);
	fx_down(&fx);
}

static void t_replaced(void **state)
{
	(void)state;
	replaced(false);
	replaced(true);
}

/* If there are very many clients, their heartbeat interval is long: readers find the new master
 * later than the few owners do, and the grace period lasts longer. */
static void t_held_for_many(void **state)
{
	static struct mcm_session *crowd[10000];
	struct fixture fx;
	unsigned i, n = 0;

	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "a", 500 << 10, 0), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	fx.m->conf.client_ttl = 10000;
	/* Their interval is 33 1/3 seconds; after a failed heartbeat a client retries twice, each
	 * time after 4 seconds. */
	for (i = 1; i <= 43; i++) {
		for (; n < i * 300 && n < 10000; n++)
			crowd[n] = fx_session(&fx, 1000 + n);
		fx_advance(&fx, 1000);
		fx_beat(&fx, fx.s->client);
		assert_int_equal(fx_put(&fx, "c", 600 << 10, 0), i < 42 ? -MC_ENOTREADY : i == 42 ? 0 : -MC_EEXISTS);
	}
	while (n)
		fx_session_end(&fx, crowd[--n]);
	fx_down(&fx);
}

/* A stall of the master does not shorten the grace period, whichever of its threads runs first. */
static void t_held_over_a_stall(void **state)
{
	struct fixture fx;

	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "a", 500 << 10, 0), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	mc_clock_advance(60 * MC_NS_PER_SEC);
	while (mcm_evict_background(fx.m))
		;
	assert_int_equal(fx_put(&fx, "c", 600 << 10, 0), -MC_ENOTREADY);
	fx_advance(&fx, 1000);
	assert_int_equal(fx_put(&fx, "c", 600 << 10, 0), -MC_ENOTREADY);
	fx_advance(&fx, 3000);
	assert_int_equal(fx_put(&fx, "c", 600 << 10, 0), 0);
	fx_down(&fx);
}

static int put_in_group(struct fixture *fx, const char *key, uint64_t size)
{
	struct mcm_put_request rq = { .copies = 1 };
	struct mcp_put_item item = { .key = fx_bytes(key), .size = size, .group = fx_bytes("g") };
	struct mcm_put_granted g;
	int r = mcm_put_start(fx->m, fx->s, &rq, &item, &g);

	return r < 0 ? r : fx_end(fx, key, g.generation);
}

static uint64_t evict_all(struct fixture *fx)
{
	struct mcp_bytes source = fx_bytes("seg-1");
	struct mcm_task_request rq = { .type = MCP_TASK_EVICT, .source = &source, .n_sources = 1 };
	struct mcp_id id;

	assert_int_equal(mcm_task_create(fx->m, &rq, &id), 0);
	mcm_tasks_tick(fx->m);
	return mcm_index_count(&fx->m->index);
}

/* Grace pins of members also count for the group, and end with the members' pins. */
static void t_group_held(void **state)
{
	struct fixture fx;

	jx_up(&fx, 1, MIB);
	assert_int_equal(put_in_group(&fx, "a", 5000), 0);
	assert_int_equal(put_in_group(&fx, "b", 5000), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	fx_check(&fx);
	assert_int_equal(evict_all(&fx), 2);
	fx_advance(&fx, 4000);
	fx_check(&fx);
	assert_int_equal(evict_all(&fx), 0);
	fx_down(&fx);
}

/* ---- replies that depend on changes by another thread ---- */

static struct fixture fx_seen;
static uint64_t seen_generation;

static void *ends_a_put(void *arg)
{
	(void)arg;
	assert_int_equal(fx_end(&fx_seen, "new", seen_generation), 0);
	return NULL;
}

static void *puts_nothing(void *arg)
{
	(void)arg;
	assert_int_equal(fx_put(&fx_seen, "new", 0, MCP_PUT_COMMIT), 0);
	return NULL;
}

static void *removes(void *arg)
{
	(void)arg;
	assert_int_equal(fx_remove(&fx_seen, "old", MCP_REMOVE_FORCE), 0);
	return NULL;
}

static void *renames(void *arg)
{
	(void)arg;
	assert_int_equal(fx_rename(&fx_seen, "old", "new", 0), 0);
	return NULL;
}

static void sees_new(void)
{
	assert_int_equal(fx_put(&fx_seen, "new", 4096, 0), -MC_EEXISTS);
}

static void ends_too_late(void)
{
	struct mcp_put_done done = { .key = fx_bytes("new"), .generation = seen_generation };

	assert_int_equal(mcm_put_end(fx_seen.m, fx_seen.s, &done), -MC_EEXISTS);
}

static void must_not_replace(void)
{
	assert_int_equal(fx_rename(&fx_seen, "old", "new", MCP_RENAME_NOREPLACE), -MC_EEXISTS);
}

static void sees_no_old(void)
{
	assert_int_equal(fx_remove(&fx_seen, "old", 0), -MC_ENOOBJECT);
}

static void renames_no_old(void)
{
	assert_int_equal(fx_rename(&fx_seen, "old", "elsewhere", 0), -MC_ENOOBJECT);
}

static void removes_no_old(void)
{
	struct mcp_remove_match rq = { .prefix = fx_bytes("old") };
	uint64_t removed;

	assert_int_equal(mcm_remove_match(fx_seen.m, &rq, &removed), 0);
	assert_int_equal(removed, 0);
}

/* Another thread makes the change @first, which is not written yet; then this thread answers
 * @second, and the master is killed. The next master must have the change. */
static void answered(void *(*first)(void *arg), void (*second)(void))
{
	struct fixture after = { 0 };
	struct mcm_put_granted g;
	pthread_t thread;

	jx_up(&fx_seen, 1, MIB);
	assert_int_equal(fx_put(&fx_seen, "old", 4096, 0), 0);
	if (first == ends_a_put || second == ends_too_late) {
		assert_int_equal(fx_start(&fx_seen, fx_seen.s, "new", 4096 * (first == ends_a_put), 0, &g), 0);
		seen_generation = g.generation;
	}
	jx_answer(&fx_seen);
	assert_int_equal(pthread_create(&thread, NULL, first, NULL), 0);
	pthread_join(thread, NULL);
	second();
	jx_answer(&fx_seen);
	jx_copy_dir();
	after.conf = fx_seen.conf;
	after.m = jx_open_copy(&fx_seen, 0);
	after.s = fx_session(&after, 1);
	jx_attach(&after, 1, MIB);
	assert_int_equal(fx_stat(&after, "old", NULL), first == removes || first == renames ? -MC_ENOOBJECT : 0);
	assert_int_equal(fx_stat(&after, "new", NULL), first == removes ? -MC_ENOOBJECT : 0);
	fx_session_end(&after, after.s);
	mcm_core_free(after.m);
	fx_down(&fx_seen);
}

static void t_relied_on(void **state)
{
	(void)state;
	answered(ends_a_put, sees_new);
	answered(ends_a_put, must_not_replace);
	answered(puts_nothing, ends_too_late);
	answered(removes, sees_no_old);
	answered(removes, renames_no_old);
	answered(removes, removes_no_old);
	answered(renames, sees_no_old);
}

/* ---- records that must be written before other requests can depend on the change ---- */

int __real_mcm_segments_grow(struct mcm_segments *ss, struct mcm_segment *s, uint64_t size);
int __wrap_mcm_segments_grow(struct mcm_segments *ss, struct mcm_segment *s, uint64_t size);

void __real_mcm_extent_free(struct mcm *m, const struct mcm_extent *p);
void __wrap_mcm_extent_free(struct mcm *m, const struct mcm_extent *p);

/* The fixture of a master that is killed at the moment when memory becomes available to another
 * put, which is then answered. */
static struct fixture *fx_gives;

static void killed_here(void)
{
	if (!fx_gives)
		return;
	jx_answer(fx_gives);
	jx_copy_dir();
	fx_gives = NULL;
}

int __wrap_mcm_segments_grow(struct mcm_segments *ss, struct mcm_segment *s, uint64_t size)
{
	killed_here();
	return __real_mcm_segments_grow(ss, s, size);
}

void __wrap_mcm_extent_free(struct mcm *m, const struct mcm_extent *p)
{
	killed_here();
	__real_mcm_extent_free(m, p);
}

static void t_grows(void **state)
{
	struct fixture fx;
	struct mcm *after;

	(void)state;
	jx_up(&fx, 1, MIB);
	jx_answer(&fx);
	fx_gives = &fx;
	assert_int_equal(fx_mount(&fx, 1, 1, 101, 2 * MIB, NULL), 0);
	assert_null(fx_gives);
	after = jx_open_copy(&fx, 0);
	assert_int_equal(after->segments.at[0]->size, 2 * MIB);
	mcm_core_free(after);
	fx_down(&fx);
}

static void t_commit_fails(void **state)
{
	struct mcm_put_granted g;
	struct fixture fx;
	struct mcm *after;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_start(&fx, fx.s, "k", 900 << 10, 0, &g), 0);
	jx_answer(&fx);
	assert_int_equal(mc_fault_set("master.commit=error:ENOMEM@1"), 0);
	fx_gives = &fx;
	assert_int_equal(fx_end(&fx, "k", g.generation), -ENOMEM);
	assert_int_equal(mc_fault_set(NULL), 0);
	assert_null(fx_gives);
	after = jx_open_copy(&fx, 0);
	assert_int_equal(after->puts.quarantine.pending, 0);
	mcm_core_free(after);
	fx_down(&fx);
}

unsigned __real_mcm_index_scan(struct mcm_index *ix, uint64_t *pos, unsigned max,
			       void (*fn)(void *arg, uint32_t slot), void *arg);
unsigned __wrap_mcm_index_scan(struct mcm_index *ix, uint64_t *pos, unsigned max,
			       void (*fn)(void *arg, uint32_t slot), void *arg);

/* During the next checkpoint, rename an object that it has written already to a key that it has not
 * reached yet. */
static struct {
	struct fixture *fx;
	char from[16], to[16];
} renamed;

unsigned __wrap_mcm_index_scan(struct mcm_index *ix, uint64_t *pos, unsigned max,
			       void (*fn)(void *arg, uint32_t slot), void *arg)
{
	unsigned n = __real_mcm_index_scan(ix, pos, max, fn, arg);

	if (renamed.fx && *pos >= 1ull << 31) {
		assert_int_equal(fx_rename(renamed.fx, renamed.from, renamed.to, 0), 0);
		renamed.fx = NULL;
	}
	return n;
}

/* A key that begins with @prefix, and whose hash is in the first or the second half of the
 * index. */
static void key_in(const struct mcm_index *ix, const char *prefix, bool second, char ret[16])
{
	unsigned i = 0;

	do
		snprintf(ret, 16, "%s%u", prefix, i++);
	while (mcm_index_hash(ix, ret, (uint32_t)strlen(ret)) >> 31 != second);
}

/* The checkpoint contains the object under both keys, so the record of the rename must be written
 * before it is published. An object without memory has no extent that would show that the two are
 * the same object. */
static void t_renamed_meanwhile(void **state)
{
	struct jx_dump before, after;
	struct fixture fx;
	char key[16];

	(void)state;
	jx_up(&fx, 1, MIB);
	key_in(&fx.m->index, "from", false, renamed.from);
	key_in(&fx.m->index, "to", true, renamed.to);
	assert_int_equal(fx_put(&fx, renamed.from, 0, MCP_PUT_COMMIT), 0);
	for (unsigned i = 0; i < 500; i++) {
		sprintf(key, "other%u", i);
		assert_int_equal(fx_put(&fx, key, 64, 0), 0);
	}
	jx_answer(&fx);
	renamed.fx = &fx;
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	assert_null(renamed.fx);
	jx_copy_dir();
	before = jx_dump(fx.m);
	after = jx_dump(jx_open_copy(&fx, 0));
	jx_same(&before, &after);
	mcm_core_free(after.m);
	jx_dump_free(&before);
	jx_dump_free(&after);
	fx_down(&fx);
}

/* ---- two owners of one range ---- */

static void put_on(struct fixture *fx, const char *key, const char *segment, uint64_t size)
{
	uint64_t name = mc_hash(segment, strlen(segment), 0);
	struct mcm_put_request rq = { .copies = 1, .preferred = &name, .n_preferred = 1 };
	struct mcp_put_item item = { .key = fx_bytes(key), .size = size };
	struct mcm_put_granted g;

	assert_int_equal(mcm_put_start(fx->m, fx->s, &rq, &item, &g), 0);
	assert_int_equal(fx_end(fx, key, g.generation), 0);
}

/* Give an object another replica on the second segment. */
static void copy(struct fixture *fx, const char *key, uint64_t size)
{
	struct mcm_index *ix = &fx->m->index;
	uint32_t hash = mcm_index_hash(ix, key, (uint32_t)strlen(key));
	struct mcm_shard *sh = mcm_index_shard(ix, hash);
	struct mcm_extent p = { .segment = 1 };

	assert_int_equal(mcm_segment_take(mcm_segment(&fx->m->segments, 1), mcm_object_reserve(size), &p.range), 0);
	mc_mutex_lock(&sh->lock);
	assert_int_equal(mcm_object_add_copy(fx->m, mcm_shard_find(ix, sh, hash, key, (uint32_t)strlen(key)), p), 0);
	mc_mutex_unlock(&sh->lock);
}

/* Damage the last record of type @type in the file. */
static void spoil(const char *path, enum mcm_record_type type)
{
	static uint8_t mem[1 << 16];
	int fd = open(path, O_RDWR);
	size_t len = (size_t)pread(fd, mem, sizeof(mem), 0), at, n, last = 0;
	struct mcm_record rec;

	assert_in_range(len, 1, sizeof(mem));
	for (at = 0; at < len && (n = mcm_record_next(mem + at, len - at, &rec)); at += n)
		last = rec.type == type ? at : last;
	assert_true(last);
	mem[last + MCM_RECORD_HEAD] ^= 4;
	assert_int_equal(pwrite(fd, mem, len, 0), (ssize_t)len);
	close(fd);
}

/* The record of a removal is damaged: the memory belongs to the object with the latest record, here
 * one whose version is older than the removed one. */
static void t_two_owners(void **state)
{
	struct jx_dump before, after;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 2, MIB);
	put_on(&fx, "copied", "seg-1", 500 << 10);
	put_on(&fx, "removed", "seg-2", 900 << 10);
	assert_int_equal(fx_remove(&fx, "removed", MCP_REMOVE_FORCE), 0);
	copy(&fx, "copied", 500 << 10);
	jx_answer(&fx);
	jx_copy_dir();
	spoil(jx_file(jx_copy, "journal-"), MCM_REC_OBJECT_GONE);
	before = jx_dump(fx.m);
	assert_int_equal(before.n, 1);
	after = jx_dump(jx_open_copy(&fx, 0));
	jx_same(&before, &after);
	mcm_core_free(after.m);
	jx_dump_free(&before);
	jx_dump_free(&after);
	fx_down(&fx);
}

#define GIB (1ull << 30)

/* An object, and a put in progress, of more than 2^32 granules each. */
static void t_very_large(void **state)
{
	struct mcm_put_granted g;
	struct fixture fx;
	uint64_t used;

	(void)state;
	jx_up(&fx, 1, 1024 * GIB);
	assert_int_equal(fx_put(&fx, "object", 300 * GIB, 0), 0);
	assert_int_equal(fx_start(&fx, fx.s, "under way", 400 * GIB, 0, NULL), 0);
	used = fx_used(&fx);
	jx_again(&fx);
	jx_attach(&fx, 1, 1024 * GIB);
	assert_int_equal(fx_stat(&fx, "object", NULL), 0);
	assert_int_equal(fx_used(&fx), used);
	/* 324 GiB are left, less the space of checksums */
	assert_int_equal(fx_start(&fx, fx.s, "other", 325 * GIB, 0, &g), -MC_ENOTREADY);
	assert_int_equal(fx_start(&fx, fx.s, "other", 200 * GIB, 0, &g), 0);
	fx_down(&fx);
}

/* ---- journals with damaged headers ---- */

static void damage(const char *path, off_t at, size_t len)
{
	int fd = open(path, O_RDWR);
	uint8_t mem[256];

	memset(mem, 0xa5, sizeof(mem));
	assert_int_equal(pwrite(fd, mem, len, at), (ssize_t)len);
	close(fd);
}

/* Restore the copy, in which a journal is damaged or missing: it has the objects @want (NULL:
 * none), and counts @damages. */
static void comes_back(struct fixture *fx, const struct jx_dump *want, unsigned damages)
{
	int64_t before = fx_metric("mooncake_master_journal_damaged_total");
	struct jx_dump now = jx_dump(jx_open_copy(fx, 0));

	if (want)
		jx_same((struct jx_dump *)want, &now);
	else
		assert_int_equal(now.n, 0);
	assert_int_equal(fx_metric("mooncake_master_journal_damaged_total") - before, damages);
	mcm_core_free(now.m);
	jx_dump_free(&now);
}

#define HEADER 88
#define LAST "journal-0000000000000003"

/* The records of the last journal are used even if its first header is damaged: otherwise an object
 * that they remove would be restored, in memory that they give to another object. */
static void t_headless(void **state)
{
	struct jx_dump want;
	struct fixture fx;
	char next[512];

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "a", 900 << 10, 0), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	fx_advance(&fx, 5000);
	jx_copy_dir();
	damage(jx_file(jx_copy, LAST), 30, 1);
	assert_int_equal(truncate(jx_file(jx_copy, LAST), HEADER), 0);
	want = jx_dump(fx.m);
	/* a journal that has only been created */
	comes_back(&fx, &want, 0);
	jx_dump_free(&want);
	assert_int_equal(fx_remove(&fx, "a", MCP_REMOVE_FORCE), 0);
	assert_int_equal(fx_put(&fx, "b", 900 << 10, 0), 0);
	want = jx_dump(fx.m);
	jx_answer(&fx);
	jx_copy_dir();
	damage(jx_file(jx_copy, LAST), 30, 1);
	comes_back(&fx, &want, 1);
	/* Without both headers it is unknown whether the machine has restarted since. */
	jx_copy_dir();
	damage(jx_file(jx_copy, LAST), 30, HEADER);
	comes_back(&fx, NULL, 1);
	/* The header of a later journal shows that it has not. */
	jx_again(&fx);
	jx_copy_dir();
	damage(jx_file(jx_copy, LAST), 30, HEADER);
	comes_back(&fx, &want, 1);
	/* a file with the contents of another one */
	jx_copy_dir();
	snprintf(next, sizeof(next), "%s", jx_file(jx_copy, "journal-0000000000000004"));
	jx_copy_file(jx_file(jx_copy, LAST), next);
	comes_back(&fx, &want, 1);
	/* The journal with a checkpoint's number is created before the checkpoint, so its absence
	 * is damage. */
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	jx_copy_dir();
	comes_back(&fx, &want, 0);
	jx_copy_dir();
	assert_int_equal(unlink(jx_file(jx_copy, "journal-")), 0);
	comes_back(&fx, NULL, 1);
	jx_dump_free(&want);
	fx_down(&fx);
}

/* While grace pins keep a tenant's objects, a full quota is a temporary error. */
static void t_quota_held(void **state)
{
	struct fixture fx;
	uint64_t effective;

	jx_want.enable_multi_tenants = true;
	jx_up(&fx, 1, MIB);
	assert_int_equal(mcm_tenant_set_quota(fx.m, fx_bytes("default"), 500 << 10, &effective), 0);
	assert_int_equal(fx_put(&fx, "a", 300 << 10, 0), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "b", 300 << 10, 0), -MC_EUNAVAILABLE);
	assert_int_equal(fx_put(&fx, "b", 600 << 10, 0), -MC_EQUOTA);
	assert_int_equal(fx_put(&fx, "b", 200 << 10, 0), 0);
	fx_advance(&fx, 4000);
	assert_int_equal(fx_put(&fx, "c", 400 << 10, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(fx_put(&fx, "d", 300 << 10, 0), -MC_EQUOTA);
	fx_check(&fx);
	fx_down(&fx);
	jx_want.enable_multi_tenants = false;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(t_held), cmocka_unit_test(t_reads_kept), cmocka_unit_test(t_replaced),
		cmocka_unit_test(t_held_for_many),
		cmocka_unit_test(t_held_over_a_stall), cmocka_unit_test(t_group_held),
		cmocka_unit_test(t_relied_on), cmocka_unit_test(t_grows),
		cmocka_unit_test(t_commit_fails), cmocka_unit_test(t_renamed_meanwhile),
		cmocka_unit_test(t_two_owners), cmocka_unit_test(t_very_large),
		cmocka_unit_test(t_headless), cmocka_unit_test(t_quota_held),
	};

	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
