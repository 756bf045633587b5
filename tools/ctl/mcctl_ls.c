/* SPDX-License-Identifier: Apache-2.0
 * mcctl_ls.c - list keys. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

struct listing {
	struct mcctl *c;
	struct mcs_key dir;		/* names of entries are relative to this */
	struct mcs_entry *entries;	/* kept for sorting; the listing owns the names */
	size_t n, room;
	uint64_t printed;
};

/* The whole key of an entry; a directory's ends in '/'.  free() it. */
static struct mcs_key whole_key(const struct listing *l, const struct mcs_entry *e)
{
	struct mcs_key key = { NULL, 0 };
	char *p = malloc(l->dir.len + e->name.len + 1);

	if (!p)
		return key;
	if (l->dir.len)
		memcpy(p, l->dir.data, l->dir.len);
	memcpy(p + l->dir.len, e->name.data, e->name.len);
	key.data = p;
	key.len = l->dir.len + e->name.len;
	if (e->kind == MCS_DIR && (!key.len || p[key.len - 1] != '/'))
		p[key.len++] = '/';
	return key;
}

static void print_json(struct listing *l, const struct mcs_entry *e)
{
	struct mcs_key key = whole_key(l, e);
	json_t *j = json_pack("{s:o*, s:s}", "key", mcctl_key_json(key), "kind", mcctl_kind_name(e->kind));

	if (j && e->kind != MCS_DIR) {
		json_object_set_new(j, "size", json_integer((json_int_t)e->size));
		json_object_set_new(j, "mtime_ms", json_integer((json_int_t)e->mtime_ms));
		json_object_set_new(j, "generation", json_integer((json_int_t)e->generation));
		json_object_set_new(j, "tier", json_string(mcctl_tier_name(e->media)));
	}
	fputs(l->printed ? ",\n  " : "[\n  ", stdout);
	json_dumpf(j, stdout, JSON_COMPACT);
	json_decref(j);
	mcctl_key_free(&key);
}

static void print_entry(struct listing *l, const struct mcs_entry *e)
{
	const struct mcctl_conf *conf = l->c->conf;
	const char *name = e->name.data;
	char when[32];

	if (conf->json) {
		print_json(l, e);
		l->printed++;
		return;
	}
	if (conf->long_format && e->kind == MCS_DIR)
		printf("%14s  %-19s  %-11s  ", "-", "-", "-");
	else if (conf->long_format)
		printf("%14" PRIu64 "  %s  %-11s  ", e->size, mcctl_time_text(e->mtime_ms, when, sizeof(when)),
		       mcctl_tier_name(e->media));
	mcctl_key_print(conf->raw, e->name, stdout);
	if (e->kind == MCS_DIR && (!e->name.len || name[e->name.len - 1] != '/'))
		putchar('/');
	putchar(conf->null ? '\0' : '\n');
	l->printed++;
}

static int keep_entry(struct listing *l, const struct mcs_entry *e)
{
	size_t room = l->room ? 2 * l->room : 256;
	char *name;

	if (l->n == l->room) {
		struct mcs_entry *grown = reallocarray(l->entries, room, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		l->entries = grown;
		l->room = room;
	}
	name = malloc(e->name.len + 1);
	if (!name)
		return -ENOMEM;
	memcpy(name, e->name.data, e->name.len);
	l->entries[l->n] = *e;
	l->entries[l->n++].name.data = name;
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct mcs_key *x = &((const struct mcs_entry *)a)->name;
	const struct mcs_key *y = &((const struct mcs_entry *)b)->name;
	int d = memcmp(x->data, y->data, x->len < y->len ? x->len : y->len);

	return d ? d : (x->len > y->len) - (x->len < y->len);
}

static void print_kept(struct listing *l)
{
	if (l->n)
		qsort(l->entries, l->n, sizeof(*l->entries), by_name);
	for (size_t i = 0; i < l->n; i++) {
		print_entry(l, &l->entries[i]);
		mcctl_key_free(&l->entries[i].name);
	}
	free(l->entries);
	l->entries = NULL;
	l->n = l->room = 0;
}

/* Print all entries, after an error those received before it. */
static enum mcctl_status list_keys(struct listing *l, struct mcs_key prefix, int dir)
{
	struct mcs_entry e;
	mcs_list_t *ml;
	int r;

	r = mcs_list_open(l->c->store, prefix, dir, &ml);
	if (r < 0)
		return mcctl_error(r, "cannot list keys");
	while ((r = mcs_list_next(ml, &e, -1)) > 0) {
		if (l->c->conf->unsorted)
			print_entry(l, &e);
		else if ((r = keep_entry(l, &e)) < 0)
			break;
	}
	mcs_list_close(ml);
	print_kept(l);
	return r < 0 ? mcctl_error(r, "the list is not complete") : MCCTL_OK;
}

/* Print the object with exactly this name; @ret_found: it exists. */
static enum mcctl_status list_object(struct listing *l, struct mcs_key key, bool *ret_found)
{
	struct mcs_info info;
	struct mcs_entry e;
	int r;

	*ret_found = false;
	r = mcs_stat(l->c->store, key, &info, -1);
	if (r == -MCS_ENOOBJECT)
		return MCCTL_OK;
	if (r < 0)
		return mcctl_error(r, "cannot look up the key");
	*ret_found = true;
	e = (struct mcs_entry){
		.name = key, .size = info.size, .generation = info.generation,
		.mtime_ms = info.mtime_ms, .kind = info.kind, .media = info.flags,
	};
	print_entry(l, &e);
	return MCCTL_OK;
}

static enum mcctl_status list_directory(struct listing *l, struct mcs_key key)
{
	auto_free char *dir = malloc(key.len + 1);
	struct mcs_key path = { dir, key.len };
	enum mcctl_status status;

	if (!dir)
		return mcctl_complain(MCCTL_FAILED, "out of memory");
	memcpy(dir, key.data, key.len);
	if (key.len && dir[key.len - 1] != '/')
		dir[path.len++] = '/';
	l->dir = path;
	status = list_keys(l, path, 1);
	l->dir = (struct mcs_key){ NULL, 0 };
	if (status == MCCTL_OK && !l->printed && key.len)
		status = mcctl_complain(MCCTL_NO, "%s: no object and no directory of that name; "
					"-R lists by prefix", l->c->argv[0]);
	return status;
}

int mcctl_ls(struct mcctl *c)
{
	struct listing l = { .c = c };
	enum mcctl_status status;
	struct mcs_key key;
	const char *name;
	bool found = false;

	status = mcctl_prefix_parse(c, c->argc ? c->argv[0] : "", &key);
	if (status != MCCTL_OK)
		return status;
	name = key.data;
	if (c->conf->recursive && c->conf->dir) {
		status = mcctl_complain(MCCTL_USAGE, "-R and --dir exclude each other");
	} else if (c->conf->recursive) {
		status = list_keys(&l, key, 0);
	} else {
		if (key.len && name[key.len - 1] != '/' && !c->conf->dir)
			status = list_object(&l, key, &found);
		if (status == MCCTL_OK && !found)
			status = list_directory(&l, key);
	}
	if (c->conf->json && status != MCCTL_USAGE)
		puts(l.printed ? "\n]" : "[]");
	mcctl_key_free(&key);
	return status;
}
