/* SPDX-License-Identifier: Apache-2.0
 * mcbench_trace.c - read traces. */
#include <config.h>

#include "tools/bench/mcbench_trace.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

#define BLOCKS_MAX 1000000u	/* blocks of one request, at most */

static int make_room(void **array, size_t *room, size_t needed, size_t size)
{
	size_t n = *room ? *room : 1024;
	void *grown;

	if (needed <= *room)
		return 0;
	while (n < needed)
		n *= 2;
	grown = reallocarray(*array, n, size);
	if (!grown)
		return mc_fail(-ENOMEM, "no memory for the trace");
	*array = grown;
	*room = n;
	return 0;
}

static int add_ids(struct mcbench_trace *t, const json_t *ids)
{
	size_t n = json_array_size(ids);

	for (size_t i = 0; i < n; i++) {
		json_t *id = json_array_get(ids, i);

		if (!json_is_integer(id) || json_integer_value(id) < 0)
			return mc_fail(-EINVAL, "hash_ids[%zu] is not a whole number", i);
		t->ids[t->n_ids++] = (uint64_t)json_integer_value(id);
	}
	return 0;
}

static int add_request(struct mcbench_trace *t, const json_t *j, uint64_t *start)
{
	const json_t *time = json_object_get(j, "timestamp"), *ids = json_object_get(j, "hash_ids");
	struct mcbench_request *r;
	uint64_t ms;
	size_t n;

	if (!json_is_object(j))
		return mc_fail(-EINVAL, "not a JSON object");
	if (!json_is_number(time) || json_number_value(time) < 0 || json_number_value(time) > 1e15)
		return mc_fail(-EINVAL, "no timestamp in milliseconds");
	if (!json_is_array(ids))
		return mc_fail(-EINVAL, "no array hash_ids");
	n = json_array_size(ids);
	if (n > BLOCKS_MAX)
		return mc_fail(-EINVAL, "%zu blocks, the limit is %u", n, BLOCKS_MAX);
	ms = (uint64_t)json_number_value(time);
	if (t->n_requests == 0)
		*start = ms;
	if (ms < *start || (t->n_requests && ms - *start < t->requests[t->n_requests - 1].time_ms))
		return mc_fail(-EINVAL, "timestamp %llu is before that of the previous line",
			       (unsigned long long)ms);
	if (make_room((void **)&t->requests, &t->requests_room, t->n_requests + 1, sizeof(*r)) ||
	    make_room((void **)&t->ids, &t->ids_room, t->n_ids + n, sizeof(*t->ids)))
		return -ENOMEM;
	r = &t->requests[t->n_requests++];
	r->time_ms = ms - *start;
	r->first = t->n_ids;
	r->n = (uint32_t)n;
	if (r->n > t->max_blocks)
		t->max_blocks = r->n;
	return add_ids(t, ids);
}

static int add_line(struct mcbench_trace *t, const char *line, size_t len, uint64_t *start)
{
	json_error_t err;
	json_t *j;
	int r;

	if (strspn(line, " \t\r\n") == len)
		return 0;
	j = json_loadb(line, len, JSON_REJECT_DUPLICATES, &err);
	if (!j)
		return mc_fail(-EINVAL, "%s", err.text);
	r = add_request(t, j, start);
	json_decref(j);
	return r;
}

static int compare_ids(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static int count_distinct(struct mcbench_trace *t)
{
	uint64_t *sorted = malloc((t->n_ids + 1) * sizeof(*sorted));

	if (!sorted)
		return mc_fail(-ENOMEM, "no memory for the trace");
	if (t->n_ids) {
		memcpy(sorted, t->ids, t->n_ids * sizeof(*sorted));
		qsort(sorted, t->n_ids, sizeof(*sorted), compare_ids);
	}
	for (size_t i = 0; i < t->n_ids; i++)
		t->distinct += i == 0 || sorted[i] != sorted[i - 1];
	free(sorted);
	return 0;
}

static int read_lines(FILE *f, const char *path, uint64_t limit, struct mcbench_trace *t)
{
	uint64_t start = 0, number = 0;
	char *line = NULL;
	size_t room = 0;
	ssize_t n;
	int r = 0;

	while (r == 0 && (!limit || t->n_requests < limit) && (n = getline(&line, &room, f)) >= 0) {
		number++;
		r = add_line(t, line, (size_t)n, &start);
		if (r < 0)
			r = mc_fail(r, "%s:%llu: %s", path, (unsigned long long)number, mc_err_detail(r));
	}
	free(line);
	if (r == 0 && ferror(f))
		r = mc_fail(-EIO, "cannot read %s", path);
	if (r == 0 && t->n_ids == 0)
		r = mc_fail(-EINVAL, "%s: no request with blocks in it", path);
	return r;
}

int mcbench_trace_load(const char *path, uint64_t limit, struct mcbench_trace *ret)
{
	struct mcbench_trace t = { .requests = NULL };
	FILE *f;
	int r;

	memset(ret, 0, sizeof(*ret));
	f = fopen(path, "re");
	if (!f)
		return mc_fail(-errno, "cannot open %s: %s", path, strerror(errno));
	r = read_lines(f, path, limit, &t);
	fclose(f);
	if (r == 0)
		r = count_distinct(&t);
	if (r < 0)
		mcbench_trace_free(&t);
	else
		*ret = t;
	return r;
}

void mcbench_trace_free(struct mcbench_trace *t)
{
	free(t->requests);
	free(t->ids);
	memset(t, 0, sizeof(*t));
}
