/* SPDX-License-Identifier: Apache-2.0
 * errors.c - ring of recent failures. */
#include <config.h>
#include "mcfs/control/errors.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "mcfs/keymap.h"

int mcfs_errors_init(struct mcfs_errors *e)
{
	memset(e, 0, sizeof(*e));
	return -mc_mutex_init(&e->lock);
}

static void error_clear(struct mcfs_error *one)
{
	free(one->path);
	free(one->what);
	memset(one, 0, sizeof(*one));
}

void mcfs_errors_done(struct mcfs_errors *e)
{
	for (size_t i = 0; i < MCFS_ERRORS_KEPT; i++)
		error_clear(&e->ring[i]);
	mc_mutex_destroy(&e->lock);
}

void mcfs_errors_add(struct mcfs_errors *e, const void *key, size_t len, int err, const char *when,
		     pid_t pid)
{
	char path[3 * MCFS_KEY_MAX + 1];
	struct mcfs_error *one;

	if (mcfs_key_to_path(key, len, path, sizeof(path)) < 0)
		path[0] = '\0';
	MC_LOCKED(&e->lock);
	one = &e->ring[e->count++ % MCFS_ERRORS_KEPT];
	error_clear(one);
	one->wall_ms = mc_wall_ns() / MC_NS_PER_MS;
	one->pid = pid;
	one->path = strdup(path);
	if (asprintf(&one->what, "%s: %s", when, mcs_error_detail(err)) < 0)
		one->what = NULL;
}

/* A path may contain any byte: print control characters and backslashes as octal escapes. */
static void print_path(const char *path, FILE *to)
{
	for (const unsigned char *p = (const unsigned char *)path; *p; p++) {
		if (*p < 0x20 || *p == 0x7f || *p == '\\')
			fprintf(to, "\\%03o", *p);
		else
			fputc(*p, to);
	}
}

void mcfs_key_print(struct mcs_key key, char *ret, size_t size)
{
	char path[3 * MCFS_KEY_MAX + 1];
	size_t n = 0;

	if (!key.len || mcfs_key_to_path(key.data, key.len, path, sizeof(path)) < 0)
		path[0] = '\0';
	for (const unsigned char *p = (const unsigned char *)path; *p && n + 5 < size; p++) {
		if (*p <= 0x20 || *p == 0x7f || *p == '\\')
			n += (size_t)snprintf(ret + n, size - n, "\\%03o", *p);
		else
			ret[n++] = (char)*p;
	}
	ret[n] = '\0';
}

void mcfs_format_time(uint64_t wall_ms, char *ret, size_t size)
{
	time_t sec = (time_t)(wall_ms / 1000);
	char when[32];
	struct tm tm;

	gmtime_r(&sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(ret, size, "%s.%03uZ", when, (unsigned)(wall_ms % 1000));
}

void mcfs_errors_print(struct mcfs_errors *e, FILE *to)
{
	uint64_t first;

	MC_LOCKED(&e->lock);
	first = e->count > MCFS_ERRORS_KEPT ? e->count - MCFS_ERRORS_KEPT : 0;
	for (uint64_t i = first; i < e->count; i++) {
		const struct mcfs_error *one = &e->ring[i % MCFS_ERRORS_KEPT];
		char when[40];

		mcfs_format_time(one->wall_ms, when, sizeof(when));
		fprintf(to, "%s pid=%d ", when, (int)one->pid);
		print_path(one->path ? one->path : "?", to);
		fprintf(to, " %s\n", one->what ? one->what : "?");
	}
}
