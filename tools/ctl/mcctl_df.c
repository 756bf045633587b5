/* SPDX-License-Identifier: Apache-2.0
 * mcctl_df.c - the pool and its segments. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

static int by_name(const void *a, const void *b)
{
	const struct mcs_segment *x = a, *y = b;
	int d = strcmp(x->name, y->name);

	return d ? d : strcmp(x->id, y->id);
}

static void print_row(const char *name, int width, uint64_t size, uint64_t used, const char *free_,
		      uint64_t objects, const char *state)
{
	char a[32], b[32];

	printf("%-*s  %10s  %10s  ", width, name, mc_format_size(size, a, sizeof(a)),
	       mc_format_size(used, b, sizeof(b)));
	if (size)
		printf("%3.0f%%", 100.0 * (double)used / (double)size);
	else
		printf("%4s", "-");
	printf("  %12s  %10" PRIu64 "  %s\n", free_, objects, state);
}

static const char *const rank_names[] = { "memory", "far", "disk", "shared" };

/* The sums over the segments of a rank, if there are some. */
static void print_rank(const char *name, int rank, int width, const struct mcs_segment *s, int n)
{
	uint64_t size = 0, used = 0, objects = 0;

	for (int i = 0; i < n; i++) {
		if (s[i].rank != rank)
			continue;
		size += s[i].size;
		used += s[i].used;
		objects += s[i].objects;
	}
	if (size)
		print_row(name, width, size, used, "", objects, "");
}

static void print_text(const struct mcs_pool *p, const struct mcs_segment *s, int n)
{
	int width = (int)strlen("SEGMENT");
	char a[32], b[32];

	for (int i = 0; i < n; i++)
		if ((int)strlen(s[i].name) > width)
			width = (int)strlen(s[i].name);
	printf("%-*s  %10s  %10s  %4s  %12s  %10s  %s\n", width, "SEGMENT", "SIZE", "USED", "USE%",
	       "LARGEST FREE", "OBJECTS", "STATE");
	for (int i = 0; i < n; i++)
		print_row(s[i].name, width, s[i].size, s[i].used,
			  mc_format_size(s[i].largest_free, a, sizeof(a)), s[i].objects,
			  s[i].state);
	print_row("pool", width, p->capacity, p->used, "", p->objects, "");
	print_rank("far memory", 1, width, s, n);
	print_rank("disks", 2, width, s, n);
	print_rank("shared", 3, width, s, n);
	printf("\nevictable %s, largest object that fits %s, %" PRIu32 " clients\n",
	       mc_format_size(p->evictable, a, sizeof(a)),
	       mc_format_size(p->largest_put, b, sizeof(b)), p->clients);
	printf("since the master started: %" PRIu64 " objects (%s) evicted, %" PRIu64
	       " puts refused\n", p->evictions, mc_format_size(p->evicted_bytes, a, sizeof(a)),
	       p->puts_refused);
}

static json_t *pool_json(const struct mcs_pool *p)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
			 "capacity", (json_int_t)p->capacity, "used", (json_int_t)p->used,
			 "evictable", (json_int_t)p->evictable, "objects", (json_int_t)p->objects,
			 "largest_put", (json_int_t)p->largest_put,
			 "evictions", (json_int_t)p->evictions,
			 "evicted_bytes", (json_int_t)p->evicted_bytes,
			 "puts_refused", (json_int_t)p->puts_refused,
			 "segments", (json_int_t)p->segments, "clients", (json_int_t)p->clients,
			 "disk_capacity", (json_int_t)p->disk_capacity, "disk_used", (json_int_t)p->disk_used);
}

static json_t *segments_json(const struct mcs_segment *s, int n)
{
	json_t *all = json_array();

	for (int i = 0; i < n; i++) {
		struct mcs_key name = { s[i].name, strlen(s[i].name) };

		json_array_append_new(all, json_pack("{s:s, s:o*, s:I, s:I, s:I, s:I, s:s, s:s}",
			"id", s[i].id, "name", mcctl_key_json(name),
			"size", (json_int_t)s[i].size, "used", (json_int_t)s[i].used,
			"largest_free", (json_int_t)s[i].largest_free,
			"objects", (json_int_t)s[i].objects, "state", s[i].state,
			"medium", s[i].nof ? "nof" : rank_names[s[i].rank]));
	}
	return all;
}

int mcctl_df(struct mcctl *c)
{
	auto_free struct mcs_segment *segments = NULL;
	struct mcs_pool pool;
	int n, r;

	r = mcs_pool_stat(c->store, &pool, -1);
	if (r < 0)
		return mcctl_error(r, "cannot ask for the pool");
	n = mcs_segments(c->store, &segments, -1);
	if (n < 0)
		return mcctl_error(n, "cannot ask for the segments");
	if (n)
		qsort(segments, (size_t)n, sizeof(*segments), by_name);
	if (c->conf->json)
		return mcctl_json_print(json_pack("{s:o*, s:o*}", "pool", pool_json(&pool),
						  "segments", segments_json(segments, n)));
	print_text(&pool, segments, n);
	return MCCTL_OK;
}
