/* SPDX-License-Identifier: Apache-2.0
 * test_master_journal_fixture.c - implementation of test_master_journal_fixture.h. */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (1u << 20)

char jx_dir[] = "/tmp/mc-journal.XXXXXX", jx_copy[64];
struct mcm_conf jx_want;

/* ---- the directory ---- */

static void each_name(const char *where, void (*fn)(const char *path))
{
	char path[512];
	struct dirent *e;
	DIR *d = opendir(where);

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", where, e->d_name);
		if (e->d_name[0] != '.')
			fn(path);
	}
	if (d)
		closedir(d);
}

static void remove_one(const char *path)
{
	unlink(path);
}

void jx_copy_file(const char *from, const char *to)
{
	static char mem[MIB];
	int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ssize_t n;

	assert_true(in >= 0 && out >= 0);
	while ((n = read(in, mem, sizeof(mem))) > 0)
		assert_int_equal(write(out, mem, (size_t)n), n);
	close(in);
	close(out);
}

static void copy_one(const char *path)
{
	char to[512];

	snprintf(to, sizeof(to), "%s%s", jx_copy, strrchr(path, '/'));
	jx_copy_file(path, to);
}

/* Copy the present files of jx_dir to jx_copy. */
void jx_copy_dir(void)
{
	snprintf(jx_copy, sizeof(jx_copy), "%s.copy", jx_dir);
	mkdir(jx_copy, 0700);
	each_name(jx_copy, remove_one);
	each_name(jx_dir, copy_one);
}

static char found[512];

static void find_one(const char *path)
{
	if (strstr(path, found) && !strstr(path, ".tmp"))
		snprintf(found, sizeof(found), "%s", path);
}

/* The path of the file in @where that has @part in its name, NULL if there is none. */
const char *jx_file(const char *where, const char *part)
{
	snprintf(found, sizeof(found), "%s", part);
	each_name(where, find_one);
	return found[0] == '/' && strchr(found + 1, '/') ? found : NULL;
}

int jx_setup(void **state)
{
	(void)state;
	return mkdtemp(jx_dir) ? 0 : -1;
}

int jx_teardown(void **state)
{
	(void)state;
	each_name(jx_dir, remove_one);
	rmdir(jx_dir);
	if (*jx_copy) {
		each_name(jx_copy, remove_one);
		rmdir(jx_copy);
	}
	return 0;
}

/* ---- masters ---- */

static void tune(struct mcm_conf *conf)
{
	conf->journal_dir = jx_dir;
	/* no client sends heartbeats in these tests */
	conf->client_ttl = 1000000;
	conf->journal_sync = jx_want.journal_sync ? jx_want.journal_sync : conf->journal_sync;
	conf->enable_multi_tenants = jx_want.enable_multi_tenants;
}

void jx_up(struct fixture *fx, unsigned n, uint64_t size)
{
	each_name(jx_dir, remove_one);
	fx_up(fx, n, size, tune);
}

/* End the master as a kill does: records that were not written are lost. */
void jx_killed(struct fixture *fx)
{
	struct mc_list *pos, *tmp;

	mc_list_for_each_safe(pos, tmp, &fx->m->sessions)
		fx_session_end(fx, mc_container_of(pos, struct mcm_session, link));
	mcm_core_free(fx->m);
	fx->m = NULL;
}

void jx_started(struct fixture *fx)
{
	assert_int_equal(mcm_core_new(&fx->conf, &fx->m), 0);
	fx->s = fx_session(fx, 1);
}

void jx_again(struct fixture *fx)
{
	mcm_journal_wait(fx->m);
	jx_killed(fx);
	jx_started(fx);
}

struct mcm *jx_open_copy(struct fixture *fx, int want_r)
{
	struct mcm_conf conf = fx->conf;
	struct mcm *m = NULL;

	conf.journal_dir = jx_copy;
	assert_int_equal(mcm_core_new(&conf, &m), want_r);
	return m;
}

void jx_attach(struct fixture *fx, unsigned n, uint64_t size)
{
	for (unsigned i = 1; i <= n; i++)
		assert_int_equal(fx_mount(fx, 1, i, 100 + i, size, NULL), 0);
}

void jx_answer(struct fixture *fx)
{
	mcm_journal_wait(fx->m);
}

/* ---- the state as text ---- */

static void dump_one(void *arg, uint32_t slot)
{
	struct mcm_object_record r;
	struct jx_dump *d = arg;
	char text[512];
	int len;

	mcm_object_describe(d->m, slot, &r);
	len = snprintf(text, sizeof(text), "%.*s %llx %llu %x %llu %x", (int)r.key_len, r.key,
		       (unsigned long long)r.generation, (unsigned long long)r.size, r.crc,
		       (unsigned long long)r.mtime_ms, r.flags);
	for (unsigned i = 0; i < r.copies; i++)
		len += snprintf(text + len, sizeof(text) - (size_t)len, " %u:%llu+%llu",
				r.extent[i].segment, (unsigned long long)r.extent[i].at,
				(unsigned long long)r.extent[i].len);
	if (d->n == d->cap) {
		d->cap = d->cap ? 2 * d->cap : 64;
		d->line = realloc(d->line, d->cap * sizeof(*d->line));
	}
	d->line[d->n++] = strdup(text);
}

int jx_by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

struct jx_dump jx_dump(struct mcm *m)
{
	struct jx_dump d = { .m = m };
	uint64_t pos = 0;

	while (pos < MCM_TABLE_END)
		mcm_index_scan(&m->index, &pos, 1000, dump_one, &d);
	if (d.n)
		qsort(d.line, d.n, sizeof(*d.line), jx_by_text);
	return d;
}

void jx_dump_free(struct jx_dump *d)
{
	for (size_t i = 0; i < d->n; i++)
		free(d->line[i]);
	free(d->line);
}

void jx_same(struct jx_dump *a, struct jx_dump *b)
{
	for (size_t i = 0; i < a->n && i < b->n; i++)
		assert_string_equal(a->line[i], b->line[i]);
	assert_int_equal(a->n, b->n);
}

/* Fail if a line of @b is not one of @a's. */
void jx_part_of(struct jx_dump *b, struct jx_dump *a)
{
	for (size_t i = 0; i < b->n; i++)
		if (!bsearch(&b->line[i], a->line, a->n, sizeof(*a->line), jx_by_text))
			fail_msg("not as it was: %s", b->line[i]);
}
