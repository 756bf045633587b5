/* SPDX-License-Identifier: Apache-2.0
 * test_master_journal.c - a master that is killed at any time and restarted from its journal. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fault.h"
#include "master/admin/admin.h"
#include "master/journal/journal_i.h"

#define MIB (1u << 20)

/* ---- tests ---- */

static void t_comes_back(void **state)
{
	struct mcm_put_request two = { .copies = 2, .flags = MCP_PUT_SOFT_PIN, .soft_ms = 60000 };
	struct mcp_put_item item = { .key = fx_bytes("two"), .size = 70000 };
	struct mcp_put_done done = { .key = fx_bytes("two"), .crc = 7 };
	struct mcm_put_granted g;
	struct mcp_object o;
	struct jx_dump a, b;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 2, MIB);
	assert_int_equal(fx_put(&fx, "a/b", 5000, 0), 0);
	assert_int_equal(fx_put(&fx, "a/gone", 5000, 0), 0);
	assert_int_equal(fx_put(&fx, "hard", 100, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(fx_put(&fx, "empty", 0, MCP_PUT_COMMIT), 0);
	assert_int_equal(fx_put(&fx, "old", 300, 0), 0);
	assert_int_equal(mcm_put_start(fx.m, fx.s, &two, &item, &g), 0);
	assert_int_equal(g.copies, 2);
	done.generation = g.generation;
	assert_int_equal(mcm_put_end(fx.m, fx.s, &done), 0);
	assert_int_equal(fx_rename(&fx, "old", "new", 0), 0);
	assert_int_equal(fx_put(&fx, "a/b", 6000, MCP_PUT_UPSERT), 0);
	assert_int_equal(fx_remove(&fx, "a/gone", MCP_REMOVE_FORCE), 0);
	a = jx_dump(fx.m);
	assert_int_equal(a.n, 5);
	jx_again(&fx);
	b = jx_dump(fx.m);
	jx_same(&a, &b);
	jx_dump_free(&b);
	/* not known to be missing, but not readable, until the owner mounts its segments again */
	assert_int_equal(fx_stat(&fx, "a/b", NULL), -MC_ENOTREADY);
	assert_int_equal(fx_stat(&fx, "a/gone", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_stat(&fx, "empty", NULL), 0);
	assert_int_equal(fx_mount(&fx, 1, 1, 101, MIB, NULL), 0);
	assert_int_equal(fx_mount(&fx, 1, 2, 102, MIB, NULL), 0);
	assert_int_equal(fx_stat(&fx, "a/b", &o), 0);
	assert_int_equal(o.size, 6000);
	assert_int_equal(fx_stat(&fx, "two", &o), 0);
	assert_int_equal(o.flags, MCP_OBJ_SOFT_PIN);
	assert_int_equal(fx_stat(&fx, "hard", &o), 0);
	assert_int_equal(o.flags, MCP_OBJ_HARD_PIN);
	assert_int_equal(fx_stat(&fx, "old", NULL), -MC_ENOOBJECT);
	/* once more, from the files that the second master wrote */
	jx_again(&fx);
	b = jx_dump(fx.m);
	jx_same(&a, &b);
	jx_dump_free(&a);
	jx_dump_free(&b);
	fx_down(&fx);
}

/* A put that commits fewer bytes than it began with. */
static void put_less(struct fixture *fx, const char *key, uint64_t room, uint64_t size)
{
	struct mcp_put_done done = { .key = fx_bytes(key), .size = size };
	struct mcm_put_granted g;

	if (fx_start(fx, fx->s, key, room, MCP_PUT_UPSERT, &g) < 0)
		return;
	done.generation = g.generation;
	assert_int_equal(mcm_put_end(fx->m, fx->s, &done), 0);
}

/* A random operation of a client; puts may evict objects. */
static void random_step(struct fixture *fx)
{
	char key[32], to[32];
	struct mcm_put_granted g;
	uint64_t size = rnd() % 8 ? rnd() % 6000 : rnd() % 150000;

	snprintf(key, sizeof(key), "d%u/k%u", (unsigned)(rnd() % 4), (unsigned)(rnd() % 60));
	snprintf(to, sizeof(to), "d%u/k%u", (unsigned)(rnd() % 4), (unsigned)(rnd() % 60));
	switch (rnd() % 10) {
	case 0:
		fx_remove(fx, key, MCP_REMOVE_FORCE);
		break;
	case 1:
		fx_rename(fx, key, to, 0);
		break;
	case 2:
		/* the put stays unfinished, or is revoked */
		if (fx_start(fx, fx->s, key, size + 1, MCP_PUT_UPSERT, &g) == 0 && rnd() % 2)
			fx_revoke(fx, key, g.generation);
		break;
	case 3:
		fx_put(fx, key, size, rnd() % 2 ? MCP_PUT_SOFT_PIN : 0);
		break;
	case 4:
		put_less(fx, key, size + 1 + rnd() % 150000, size + 1);
		break;
	default:
		fx_put(fx, key, size + 1, MCP_PUT_UPSERT);
	}
}

static void t_random(void **state)
{
	struct fixture fx;
	struct jx_dump a, b;

	(void)state;
	rnd_seed(11);
	jx_up(&fx, 3, MIB);
	for (int round = 0; round < 60; round++) {
		for (int i = 0; i < 200; i++) {
			random_step(&fx);
			if (rnd() % 100 == 0)
				assert_int_equal(mcm_checkpoint(fx.m), 0);
			if (rnd() % 20 == 0)
				fx_advance(&fx, rnd() % 500);
		}
		fx_check(&fx);
		a = jx_dump(fx.m);
		jx_again(&fx);
		b = jx_dump(fx.m);
		jx_same(&a, &b);
		jx_dump_free(&a);
		jx_dump_free(&b);
		fx_check(&fx);
		jx_attach(&fx, 3, MIB);
		fx_advance(&fx, 4000);
		fx_check(&fx);
	}
	fx_down(&fx);
}

/* ---- checkpoints while everything changes ---- */

static bool enough;

static void *checkpoints(void *arg)
{
	struct mcm *m = arg;

	while (!__atomic_load_n(&enough, __ATOMIC_RELAXED))
		if (mcm_checkpoint(m) < 0)
			return (void *)mc_err_detail(-EIO);
	return NULL;
}

static void t_fuzzy(void **state)
{
	struct fixture fx;
	struct jx_dump a, b;
	pthread_t thread;
	void *wrong;

	(void)state;
	rnd_seed(12);
	jx_up(&fx, 3, MIB);
	for (int round = 0; round < 12; round++) {
		enough = false;
		assert_int_equal(pthread_create(&thread, NULL, checkpoints, fx.m), 0);
		for (int i = 0; i < 4000; i++)
			random_step(&fx);
		__atomic_store_n(&enough, true, __ATOMIC_RELAXED);
		pthread_join(thread, &wrong);
		if (wrong)
			fail_msg("%s", (const char *)wrong);
		for (int i = 0; i < 20; i++)
			random_step(&fx);
		a = jx_dump(fx.m);
		jx_again(&fx);
		b = jx_dump(fx.m);
		jx_same(&a, &b);
		jx_dump_free(&a);
		jx_dump_free(&b);
		fx_check(&fx);
		jx_attach(&fx, 3, MIB);
		fx_advance(&fx, 40000);
	}
	fx_down(&fx);
}

/* ---- damage ---- */

/* Number of starts that reported damage. */
static unsigned complaints;

/* Each restored version existed at some time, and no memory has two owners. Damage is counted, and
 * a checkpoint is due at once. */
static void check_copy(struct fixture *fx, struct jx_dump *ever, size_t least)
{
	int64_t damaged = fx_metric("mooncake_master_journal_damaged_total");
	struct fixture other = *fx;
	struct jx_dump b;

	other.m = jx_open_copy(fx, 0);
	if (fx_metric("mooncake_master_journal_damaged_total") > damaged) {
		complaints++;
		assert_true(other.m->journal->wanted);
	}
	fx_check(&other);
	b = jx_dump(other.m);
	jx_part_of(&b, ever);
	assert_true(b.n >= least);
	jx_dump_free(&b);
	mcm_core_free(other.m);
}

/* Add the present objects to @ever, the lines of all objects that ever existed. */
static void remember(struct jx_dump *ever, struct mcm *m)
{
	struct jx_dump now = jx_dump(m);

	for (size_t i = 0; i < now.n; i++) {
		if (ever->n && bsearch(&now.line[i], ever->line, ever->n, sizeof(*ever->line), jx_by_text)) {
			free(now.line[i]);
			continue;
		}
		if (ever->n == ever->cap) {
			ever->cap = ever->cap ? 2 * ever->cap : 64;
			ever->line = realloc(ever->line, ever->cap * sizeof(*ever->line));
		}
		ever->line[ever->n++] = now.line[i];
	}
	free(now.line);
	qsort(ever->line, ever->n, sizeof(*ever->line), jx_by_text);
}

static off_t size_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_size;
}

/* Each offset needs a start of a master, which is slow under ThreadSanitizer. */
#ifdef __SANITIZE_THREAD__
#define SPARSE 7
#else
#define SPARSE 1
#endif

static void t_torn(void **state)
{
	struct jx_dump ever = { 0 };
	struct fixture fx;
	off_t size, cut;

	(void)state;
	complaints = 0;
	rnd_seed(13);
	jx_up(&fx, 1, MIB);
	for (int i = 0; i < 40; i++) {
		random_step(&fx);
		remember(&ever, fx.m);
	}
	jx_answer(&fx);
	jx_copy_dir();
	size = size_of(jx_file(jx_copy, "journal-"));
	for (cut = 1; cut < size; cut += 3 * SPARSE) {
		jx_copy_dir();
		assert_int_equal(truncate(jx_file(jx_copy, "journal-"), size - cut), 0);
		check_copy(&fx, &ever, 0);
	}
	/* A kill leaves at most an incomplete record at the end, which does not count as damage. */
	assert_int_equal(complaints, 0);
	jx_dump_free(&ever);
	fx_down(&fx);
}

static void flip(const char *path, off_t at)
{
	int fd = open(path, O_RDWR);
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= (uint8_t)(1u << rnd() % 8);
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
	close(fd);
}

static void t_flipped(void **state)
{
	struct jx_dump ever = { 0 }, now;
	struct fixture fx;
	off_t size, head = 2 * 88, segment = 112;
	unsigned flips = 0;

	(void)state;
	complaints = 0;
	rnd_seed(14);
	jx_up(&fx, 1, MIB);
	for (int i = 0; i < 60; i++) {
		random_step(&fx);
		remember(&ever, fx.m);
		if (i == 30)
			assert_int_equal(mcm_checkpoint(fx.m), 0);
	}
	jx_answer(&fx);
	now = jx_dump(fx.m);
	jx_copy_dir();
	size = size_of(jx_file(jx_copy, "journal-"));
	for (off_t at = 0; at < size; at += 5 * SPARSE) {
		jx_copy_dir();
		flip(jx_file(jx_copy, "journal-"), at);
		/* one record is lost, and perhaps another object whose memory that record had
		 * freed */
		check_copy(&fx, &ever, now.n - 2);
		flips++;
	}
	/* Some bits are padding between records and have no meaning. */
	assert_in_range(complaints, flips * 3 / 4, flips);
	size = size_of(jx_file(jx_copy, "checkpoint-"));
	for (off_t at = head + segment; at < size; at += 5 * SPARSE) {
		jx_copy_dir();
		flip(jx_file(jx_copy, "checkpoint-"), at);
		check_copy(&fx, &ever, now.n - 2);
	}
	/* without its segment's record an object is lost; without one of the two headers,
	 * nothing */
	for (off_t at = 0; at < head + segment; at += 7) {
		jx_copy_dir();
		flip(jx_file(jx_copy, "checkpoint-"), at);
		check_copy(&fx, &ever, at < head ? now.n - 2 : 0);
	}
	jx_dump_free(&now);
	jx_dump_free(&ever);
	fx_down(&fx);
}

/* ---- which masters may use a directory ---- */

static void refused_with(struct fixture *fx, uint8_t *header, size_t len, const char *why)
{
	int fd = open(jx_file(jx_copy, "checkpoint-"), O_RDWR);

	*(uint32_t *)(void *)(header + 4) = mc_crc32c(header + 8, 4 + (*(uint32_t *)(void *)(header + 8) >> 8));
	assert_int_equal(pwrite(fd, header, len, 0), (ssize_t)len);
	close(fd);
	jx_open_copy(fx, -MC_EVERSION);
	assert_non_null(strstr(mc_err_detail(-MC_EVERSION), why));
	assert_non_null(jx_file(jx_copy, "journal-"));
}

static void t_not_ours(void **state)
{
	struct mcm_header_record h = { .sequence = 1, .cluster = fx_bytes("mooncake_cluster") };
	uint8_t mem[256];
	struct mcm_packer p = { .bytes = mem, .cap = sizeof(mem) };
	struct mcm *other = NULL;
	struct mcm_conf conf;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "k", 5000, 0), 0);
	jx_answer(&fx);
	conf = fx.conf;
	assert_int_equal(mcm_core_new(&conf, &other), -EBUSY);
	assert_non_null(strstr(mc_err_detail(-EBUSY), "in use by another master"));
	jx_killed(&fx);
	conf.cluster_id = (char *)"elsewhere";
	assert_int_equal(mcm_core_new(&conf, &other), -EINVAL);
	assert_non_null(strstr(mc_err_detail(-EINVAL), "cluster_id=mooncake_cluster"));
	conf.cluster_id = (char *)"not good";
	assert_int_equal(mcm_core_new(&conf, &other), -EINVAL);
	/* the refused masters have not changed it */
	jx_started(&fx);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_stat(&fx, "k", NULL), 0);
	jx_answer(&fx);
	jx_copy_dir();
	/* a file of a later format is refused and not changed */
	mcm_pack_header(&p, &h);
	mem[MCM_RECORD_HEAD] = MCM_RECORD_VERSION + 1;
	refused_with(&fx, mem, p.len, "format version 2");
	/* and of the format before version 1, whose header has no seed */
	p = (struct mcm_packer){ .bytes = mem, .cap = sizeof(mem) };
	mcm_pack_header(&p, &h);
	*(uint32_t *)(void *)(mem + 8) -= 8 << 8;
	refused_with(&fx, mem, p.len - 8, "older than version 1");
	fx_down(&fx);
}

/* ---- puts, generations, owners ---- */

static void t_put_under_way(void **state)
{
	struct mcp_fence order[MCP_FENCES_MAX];
	struct mcm_put_granted g, later;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_start(&fx, fx.s, "half", 600 << 10, 0, &g), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	/* the put is refused, and its memory is not granted to others */
	assert_int_equal(fx_end(&fx, "half", g.generation), -MC_ESTALE_PUT);
	assert_int_equal(fx_stat(&fx, "half", NULL), -MC_ENOOBJECT);
	assert_int_equal(fx_start(&fx, fx.s, "big", 600 << 10, 0, &later), -MC_ENOSPACE);
	assert_int_equal(fx_start(&fx, fx.s, "small", 300 << 10, 0, &later), 0);
	assert_true(later.generation > g.generation);
	fx_revoke(&fx, "small", later.generation);
	fx_stays_aside(&fx, 600000);
	assert_int_equal(fx_start(&fx, fx.s, "big", 600 << 10, 0, &later), -MC_ENOSPACE);
	/* also if the master restarts meanwhile */
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	fx_stays_aside(&fx, 600000);
	assert_int_equal(fx_start(&fx, fx.s, "big", 600 << 10, 0, &later), -MC_ENOSPACE);
	/* until the owner has fenced all engines up to a number between those of the two masters' sessions */
	assert_int_equal(fx_orders(&fx, fx.s->client, NULL, 0, order), 1);
	assert_true(mcp_id_zero(order[0].engine));
	assert_true(order[0].upto > g.generation && order[0].upto < fx.s->number);
	assert_int_equal(order[0].upto, fx.m->puts.quarantine.restored_upto);
	fx_confirm(&fx);
	assert_int_equal(fx_start(&fx, fx.s, "big", 600 << 10, 0, &later), 0);
	/* after that it stays free */
	assert_int_equal(fx_revoke(&fx, "big", later.generation), 0);
	jx_again(&fx);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_start(&fx, fx.s, "big", 600 << 10, 0, &later), 0);
	fx_down(&fx);
}

static void t_generations(void **state)
{
	struct mcm_put_granted g;
	struct fixture fx;
	uint64_t last;

	(void)state;
	jx_up(&fx, 1, MIB);
	fx_advance(&fx, 600 * 1000);
	assert_int_equal(fx_start(&fx, fx.s, "k", 100, 0, &g), 0);
	last = g.generation;
	mcm_journal_wait(fx.m);
	jx_killed(&fx);
	/* the clock went back */
	mc_clock_fake(10 * MC_NS_PER_SEC);
	jx_started(&fx);
	jx_attach(&fx, 1, MIB);
	assert_int_equal(fx_start(&fx, fx.s, "k", 100, 0, &g), 0);
	assert_true(g.generation > last);
	fx_down(&fx);
}

static void t_owners(void **state)
{
	struct mcp_mount_reply reply;
	struct fixture fx;

	(void)state;
	jx_up(&fx, 2, MIB);
	for (int i = 0; i < 20; i++) {
		char key[16];

		snprintf(key, sizeof(key), "k%d", i);
		assert_int_equal(fx_put(&fx, key, 5000, 0), 0);
	}
	jx_again(&fx);
	assert_int_equal(mcm_index_count(&fx.m->index), 20);
	/* a new epoch: other memory */
	assert_int_equal(fx_mount(&fx, 1, 1, 999, MIB, &reply), 0);
	assert_int_equal(reply.reattached, 0);
	assert_int_equal(fx_mount(&fx, 1, 2, 102, MIB, &reply), 0);
	assert_int_equal(reply.reattached, 1);
	fx_advance(&fx, 100);
	assert_int_equal(mcm_index_count(&fx.m->index), reply.objects);
	/* the owner of the second segment never returns */
	jx_again(&fx);
	assert_int_equal(fx_mount(&fx, 1, 1, 999, MIB, &reply), 0);
	fx_advance(&fx, (uint64_t)fx.conf.client_forget_ttl - 4000);
	assert_true(mcm_index_count(&fx.m->index) > 0);
	fx_advance(&fx, 5000);
	assert_int_equal(mcm_index_count(&fx.m->index), 0);
	jx_again(&fx);
	assert_int_equal(mcm_index_count(&fx.m->index), 0);
	assert_int_equal(fx.m->segments.n_live, 1);
	fx_down(&fx);
}

/* ---- a full disk ---- */

static void t_full(void **state)
{
	struct mcm_journal_stats st;
	struct fixture fx;
	struct jx_dump a, b;

	(void)state;
	jx_up(&fx, 1, MIB);
	assert_int_equal(fx_put(&fx, "before", 5000, 0), 0);
	jx_answer(&fx);
	assert_int_equal(mc_fault_set("journal.write=error:ENOSPC"), 0);
	assert_int_equal(fx_put(&fx, "during", 5000, 0), 0);
	jx_answer(&fx);
	mcm_journal_stats(fx.m, &st);
	assert_true(st.on && st.lost);
	/* no old state may be found */
	assert_null(jx_file(jx_dir, "journal-"));
	assert_null(jx_file(jx_dir, "checkpoint-"));
	assert_int_equal(fx_put(&fx, "later", 5000, 0), 0);
	jx_answer(&fx);
	assert_int_equal(mc_fault_set("journal.create=error:ENOSPC"), 0);
	assert_int_equal(mcm_checkpoint(fx.m), -ENOSPC);
	assert_int_equal(mc_fault_set("checkpoint.write=error:ENOSPC"), 0);
	assert_int_equal(mcm_checkpoint(fx.m), -ENOSPC);
	assert_null(jx_file(jx_dir, "checkpoint-"));
	mcm_journal_stats(fx.m, &st);
	assert_true(st.lost);
	assert_int_equal(mc_fault_set(NULL), 0);
	assert_int_equal(fx_put(&fx, "between", 5000, 0), 0);
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	mcm_journal_stats(fx.m, &st);
	assert_false(st.lost);
	assert_int_equal(fx_put(&fx, "after", 5000, 0), 0);
	a = jx_dump(fx.m);
	jx_again(&fx);
	b = jx_dump(fx.m);
	assert_int_equal(b.n, 5);
	jx_same(&a, &b);
	jx_dump_free(&a);
	jx_dump_free(&b);
	/* the disk is full at the start */
	mcm_journal_wait(fx.m);
	jx_killed(&fx);
	assert_int_equal(mc_fault_set("journal.create=error:ENOSPC"), 0);
	jx_started(&fx);
	assert_int_equal(mcm_index_count(&fx.m->index), 5);
	assert_null(jx_file(jx_dir, "checkpoint-"));
	assert_int_equal(mc_fault_set(NULL), 0);
	assert_int_equal(mcm_checkpoint(fx.m), 0);
	jx_again(&fx);
	assert_int_equal(mcm_index_count(&fx.m->index), 5);
	fx_down(&fx);
}

/* ---- requests over HTTP ---- */

static char *ask(struct fixture *fx, const char *method, const char *path)
{
	const struct mc_http_route *r = mcm_http_routes;
	struct mc_http_request rq = { .method = method, .path = path, .body = "", .status = 200 };
	char *text = NULL;
	size_t len;

	while (strcmp(r->path, path) != 0 || !r->method || strcmp(r->method, method) != 0)
		r++;
	rq.out = open_memstream(&text, &len);
	r->handle(&rq, fx->m);
	fclose(rq.out);
	assert_int_equal(rq.status, 200);
	return text;
}

/* Changes over HTTP, too, are in the journal before the reply is sent. */
static void t_http(void **state)
{
	struct fixture fx;
	char *answer;

	(void)state;
	jx_up(&fx, 1, MIB);
	fx.m->ready = true;
	assert_int_equal(fx_put(&fx, "a", 5000, 0), 0);
	assert_int_equal(fx_put(&fx, "b", 5000, 0), 0);
	jx_answer(&fx);
	answer = ask(&fx, "POST", "/api/v1/remove_all");
	assert_non_null(strstr(answer, "\"removed_count\":2"));
	free(answer);
	jx_killed(&fx);
	jx_started(&fx);
	assert_int_equal(mcm_index_count(&fx.m->index), 0);
	fx_down(&fx);
}

/* ---- files of released versions ---- */

static void golden_of(char path[512], const char *name)
{
	const char *top = getenv("top_srcdir");

	snprintf(path, 512, "%s/tests/golden/journal-v1/%s", top ? top : "..", name);
}

/* A directory as a killed master of format 1 left it: every later version reads all of it. */
static void t_golden(void **state)
{
	static const char *const files[] = { "checkpoint-0000000000000003", "journal-0000000000000003" };
	char path[512], to[512], line[512];
	struct fixture fx;
	struct jx_dump d;
	size_t n = 0;
	FILE *f;

	(void)state;
	jx_up(&fx, 0, MIB);
	jx_copy_dir();
	unlink(jx_file(jx_copy, "checkpoint-"));
	unlink(jx_file(jx_copy, "journal-"));
	for (int i = 0; i < 2; i++) {
		golden_of(path, files[i]);
		snprintf(to, sizeof(to), "%s/%s", jx_copy, files[i]);
		jx_copy_file(path, to);
	}
	jx_killed(&fx);
	fx.conf.journal_dir = jx_copy;
	jx_started(&fx);
	d = jx_dump(fx.m);
	golden_of(path, "objects");
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		assert_true(n < d.n);
		assert_string_equal(line, d.line[n++]);
	}
	fclose(f);
	assert_int_equal(n, d.n);
	jx_dump_free(&d);
	assert_int_equal(fx.m->segments.n_live, 2);
	assert_int_equal(fx.m->puts.quarantine.pending, 1);
	fx_check(&fx);
	fx_down(&fx);
}

/* ---- durable values ---- */

static unsigned values;

static void count_value(void *arg, const struct mcm_durable_record *d)
{
	assert_int_equal(d->name.len, 3);
	assert_int_equal(d->value.len, *(unsigned *)arg);
	values++;
}

static void t_durable_values(void **state)
{
	char name[8], value[2000] = "";
	struct fixture fx;
	unsigned len = 1000;

	(void)state;
	jx_up(&fx, 0, MIB);
	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "%03d", i);
		assert_int_equal(mcm_durable_set(fx.m, MCM_DURABLE_TASK, fx_bytes(name),
					      mcp_bytes(value, 7)), 0);
		assert_int_equal(mcm_durable_set(fx.m, MCM_DURABLE_TASK, fx_bytes(name),
					      mcp_bytes(value, len)), 0);
		if (i % 2)
			mcm_durable_drop(fx.m, MCM_DURABLE_TASK, fx_bytes(name));
		if (i == 250)
			assert_int_equal(mcm_checkpoint(fx.m), 0);
	}
	assert_int_equal(mcm_durable_set(fx.m, MCM_DURABLE_TENANT, fx_bytes("abc"), mcp_bytes(NULL, 0)), 0);
	jx_again(&fx);
	values = 0;
	mcm_durables_each(fx.m, MCM_DURABLE_TASK, count_value, &len);
	assert_int_equal(values, 250);
	assert_int_equal(mcm_durable_set(fx.m, MCM_DURABLE_TASK, fx_bytes("x"),
				      mcp_bytes(value, MCM_DURABLE_VALUE_MAX + 1)), -MC_EPARAM);
	fx_down(&fx);
}

/* Write a checkpoint, then records of most kinds to the new journal. */
static void each_of_kind(struct fixture *fx)
{
	assert_int_equal(mcm_checkpoint(fx->m), 0);
	assert_int_equal(fx_put(fx, "late/\xc3\xa4", 6000, 0), 0);
	assert_int_equal(fx_put(fx, "empty", 0, MCP_PUT_COMMIT), 0);
	assert_int_equal(fx_rename(fx, "a/b", "c/d", 0), 0);
	assert_int_equal(fx_remove(fx, "gone", MCP_REMOVE_FORCE), 0);
	assert_int_equal(fx_start(fx, fx->s, "under way", 8000, 0, NULL), 0);
	assert_int_equal(mcm_durable_set(fx->m, MCM_DURABLE_TASK, fx_bytes("note"), fx_bytes("value")), 0);
	mcm_durable_drop(fx->m, MCM_DURABLE_TASK, fx_bytes("note"));
}

/* Write the files that t_golden reads, for a new version: test_master_journal write DIR. */
static int write_golden(const char *to)
{
	struct mcm_put_request two = { .copies = 2, .flags = MCP_PUT_SOFT_PIN, .soft_ms = 60000 };
	struct mcp_put_item item = { .key = fx_bytes("two"), .size = 70000 };
	struct mcp_put_done done = { .key = fx_bytes("two"), .crc = 7 };
	struct mcm_put_granted g;
	struct fixture fx;
	struct jx_dump d;
	char path[512];
	FILE *f;

	jx_want.journal_sync = (char *)"fdatasync";
	jx_up(&fx, 2, MIB);
	assert_int_equal(fx_put(&fx, "a/b", 5000, 0), 0);
	assert_int_equal(fx_put(&fx, "hard", 100, MCP_PUT_HARD_PIN), 0);
	assert_int_equal(fx_put(&fx, "gone", 300, 0), 0);
	assert_int_equal(mcm_put_start(fx.m, fx.s, &two, &item, &g), 0);
	done.generation = g.generation;
	assert_int_equal(mcm_put_end(fx.m, fx.s, &done), 0);
	each_of_kind(&fx);
	d = jx_dump(fx.m);
	jx_answer(&fx);
	snprintf(path, sizeof(path), "%s/objects", to);
	f = fopen(path, "w");
	for (size_t i = 0; f && i < d.n; i++)
		fprintf(f, "%s\n", d.line[i]);
	assert_true(f && fclose(f) == 0);
	snprintf(path, sizeof(path), "%s/checkpoint-0000000000000003", to);
	jx_copy_file(jx_file(jx_dir, "checkpoint-"), path);
	snprintf(path, sizeof(path), "%s/journal-0000000000000003", to);
	jx_copy_file(jx_file(jx_dir, "journal-"), path);
	jx_dump_free(&d);
	fx_down(&fx);
	return 0;
}

#define CREDENTIALS 64u

static uint64_t serial_of(unsigned i)
{
	return (i + 1) * 0x9e3779b97f4a7c15ull | 1;
}

/* A restart knows each revoked number, and expired credentials leave the list. */
static void t_credentials(void **state)
{
	struct mc_identity id = { .secret = 1, .role = MC_ROLE_CLIENT, .cluster = "pool", .tenant = "*", .name = "a" };
	struct mcm_credential_entry list[CREDENTIALS + 1];
	char text[MC_IDENTITY_MAX + 1];
	struct fixture fx;
	unsigned n;

	(void)state;
	jx_up(&fx, 1, MIB);
	for (unsigned i = 0; i < CREDENTIALS; i++) {
		id.serial = serial_of(i);
		id.expires_s = i % 2 ? UINT32_MAX : 1;
		assert_true(mc_identity_format(&id, text) > 0);
		assert_int_equal(mcm_credentials_add(fx.m, &id, text), 0);
		if (i % 3 == 0)
			assert_int_equal(mcm_credentials_revoke(fx.m, id.serial), 0);
	}
	jx_again(&fx);
	for (unsigned i = 0; i < CREDENTIALS; i++)
		assert_int_equal(mcm_credentials_revoked(fx.m, serial_of(i)), i % 3 == 0);
	n = mcm_credentials_list(fx.m, 0, list, CREDENTIALS + 1);
	assert_int_equal(n, CREDENTIALS);
	for (unsigned i = 1; i < n; i++)
		assert_true(list[i - 1].serial < list[i].serial);
	mc_clock_advance(200000 * MC_NS_PER_SEC);
	mcm_credentials_tick(fx.m);
	jx_again(&fx);
	assert_int_equal(mcm_credentials_list(fx.m, 0, list, CREDENTIALS + 1), CREDENTIALS / 2);
	for (unsigned i = 0; i < CREDENTIALS; i++)
		assert_int_equal(mcm_credentials_revoked(fx.m, serial_of(i)), i % 3 == 0 && i % 2);
	fx_down(&fx);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(t_comes_back), cmocka_unit_test(t_random),
		cmocka_unit_test(t_fuzzy), cmocka_unit_test(t_torn), cmocka_unit_test(t_flipped),
		cmocka_unit_test(t_not_ours),
		cmocka_unit_test(t_put_under_way), cmocka_unit_test(t_generations),
		cmocka_unit_test(t_owners), cmocka_unit_test(t_full),
		cmocka_unit_test(t_http),
		cmocka_unit_test(t_durable_values), cmocka_unit_test(t_golden), cmocka_unit_test(t_credentials),
	};

	if (argc == 3 && !strcmp(argv[1], "write"))
		return jx_setup(NULL) || write_golden(argv[2]) || jx_teardown(NULL);
	return cmocka_run_group_tests(tests, jx_setup, jx_teardown);
}
