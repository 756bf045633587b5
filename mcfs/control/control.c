/* SPDX-License-Identifier: Apache-2.0
 * control.c - files below .mcfs, whose text is generated on open. Their size is 0, as in /proc, and
 * programs read them until the end. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/metrics.h"
#include "mcfs/control/control.h"
#include "mcfs/life/handoff.h"
#include "mcfs/control/account.h"
#include "mcfs/handle.h"
#include "mcfs/control/local_service.h"
#include "mcfs/reply.h"
#include "mcfs/control/feed.h"

static void say_version(struct mcfs *fs, FILE *to)
{
	fprintf(to, "mcfs %s\nlibfuse %s\n", mcs_version(), fuse_pkgversion());
}

static void print_line(FILE *to, const char *name, uint64_t value)
{
	fprintf(to, "%-24s %" PRIu64 "\n", name, value);
}

static void yes_or_no(FILE *to, const char *name, bool is)
{
	fprintf(to, "%-24s %s\n", name, is ? "yes" : "no");
}

/* Features that kernel, libfuse and privileges give this mount. */
static void say_features(struct mcfs *fs, FILE *to)
{
	fprintf(to, "%-24s 7.%u\n%-24s %s\n", "fuse_protocol", fs->fuse_minor, "libfuse", fuse_pkgversion());
	yes_or_no(to, "direct_io", fs->conf.direct_io);
	yes_or_no(to, "shared_mmap", mcfs_compat_shared_mmap());
	yes_or_no(to, "passthrough", mcfs_compat_passthrough());
	fprintf(to, "%-24s %s\n", "negotiated_by", mcfs_compat_way());
	yes_or_no(to, "custom_io", mcfs_compat_hooked());
	yes_or_no(to, "requests_sent_again", mcfs_compat_resends());
	yes_or_no(to, "supervised", mcfs_handoff() != NULL);
	yes_or_no(to, "all_processes_seen", mcfs_caller_all_seen());
	yes_or_no(to, "all_ends_seen", mcfs_caller_all_ends_seen());
	print_line(to, "name_max", fs->new_name_max);
}

static void say_master(struct mcfs *fs, FILE *to)
{
	struct mcs_pool pool;

	fprintf(to, "%s %s\n", fs->socket_addr ? fs->socket_addr : fs->master,
		mcs_pool_stat(fs->store, &pool, 1000) < 0 ? "unreachable" : "ok");
}

static void say_config(struct mcfs *fs, FILE *to)
{
	(void)mc_options_print(fs->options, &fs->conf, to);
}

static void say_metrics(struct mcfs *fs, FILE *to)
{
	(void)mc_metrics_print(to);
}

static void say_health(struct mcfs *fs, FILE *to)
{
	int code;
	const char *status = mcfs_health(fs, &code);

	fprintf(to, "{\"status\":\"%s\",\"code\":%d}\n", status, code);
}

static void say_errors(struct mcfs *fs, FILE *to)
{
	mcfs_errors_print(&fs->errors, to);
}

static void say_pool(struct mcfs *fs, FILE *to)
{
	struct mcs_pool pool;

	/* Short timeout: the file must also be readable while the master is unreachable. */
	if (mcs_pool_stat(fs->store, &pool, 1000) < 0) {
		fprintf(to, "%-24s %s\n", "pool", "unreachable");
		return;
	}
	print_line(to, "pool_capacity_bytes", pool.capacity);
	print_line(to, "pool_used_bytes", pool.used);
	print_line(to, "pool_evictable_bytes", pool.evictable);
	print_line(to, "pool_disk_capacity_bytes", pool.disk_capacity);
	print_line(to, "pool_disk_used_bytes", pool.disk_used);
	print_line(to, "pool_objects", pool.objects);
	print_line(to, "pool_evictions", pool.evictions);
	print_line(to, "pool_puts_refused", pool.puts_refused);
	print_line(to, "pool_largest_put_bytes", pool.largest_put);
	print_line(to, "pool_segments", pool.segments);
	print_line(to, "pool_clients", pool.clients);
}

static void say_stats(struct mcfs *fs, FILE *to)
{
	uint64_t now_ms = mc_wall_ns() / MC_NS_PER_MS;
	uint64_t nhandles;

	mc_mutex_lock(&fs->handles_lock);
	nhandles = fs->nhandles;
	mc_mutex_unlock(&fs->handles_lock);
	fprintf(to, "%-24s %s\n", "master", fs->master);
	fprintf(to, "%-24s %s\n", "node", mcs_hostname(fs->store));
	fprintf(to, "%-24s %s\n", "health", mcfs_health(fs, &(int){ 0 }));
	print_line(to, "uptime_s", (now_ms - fs->start_wall_ms) / 1000);
	print_line(to, "open_handles", nhandles);
	print_line(to, "known_inodes", mcfs_inodes_count(&fs->inodes));
	print_line(to, "operations_under_way", mcfs_reply_inflight());
	print_line(to, "staged_bytes", mcfs_pool_staged(fs->pool));
	print_line(to, "staging_max_bytes", mcfs_pool_limit(fs->pool));
	fprintf(to, "%-24s %s\n", "shared_mmap", mcfs_compat_shared_mmap() ? "yes" : "no");
	if (mcfs_handoff())
		print_line(to, "takeovers", mcfs_handoff()->takeovers);
	say_pool(fs, to);
}

static void say_top(struct mcfs *fs, FILE *to)
{
	mcfs_account_print(to);
}

static void say_nodes(struct mcfs *fs, FILE *to)
{
	auto_free struct mcs_segment *segments = NULL;
	int n = mcs_segments(fs->store, &segments, 1000);

	if (n < 0)
		fprintf(to, "# %s\n", mcs_error_detail(n));
	for (int i = 0; i < n; i++)
		fprintf(to, "%s id=%s state=%s size=%" PRIu64 " used=%" PRIu64 " objects=%" PRIu64 "\n",
			segments[i].name, segments[i].id, segments[i].state, segments[i].size,
			segments[i].used, segments[i].objects);
}

static const struct control {
	const char *name;
	void (*say)(struct mcfs *fs, FILE *to);		/* NULL: a feed */
	enum mcfs_feed_kind feed;
	bool names;		/* contains names of files */
} files[] = {
	{ "version", say_version, 0, false },
	{ "config", say_config, 0, false },
	{ "stats", say_stats, 0, false },
	{ "metrics", say_metrics, 0, false },
	{ "health", say_health, 0, false },
	{ "errors", say_errors, 0, true },
	{ "top", say_top, 0, true },
	{ "nodes", say_nodes, 0, false },
	{ "trace", NULL, MCFS_TRACE, true },
	{ "events", NULL, MCFS_EVENTS, true },
	/* A file's inode number is its index here. Append only: the kernel may know the numbers
	 * from a previous daemon. */
	{ "features", say_features, 0, false },
	{ "master", say_master, 0, false },
};
#define NFILES (sizeof(files) / sizeof(files[0]))
#define FIRST_FILE (MCFS_CONTROL_DIR + 1)

/* Listed behind the files. */
static const struct {
	const char *name;
	fuse_ino_t ino;
} others[] = {
	{ "by-key", MCFS_CONTROL_BY_KEY }, { "local", MCFS_CONTROL_LOCAL },
	{ "prefix", MCFS_CONTROL_PREFIX }, { "ctl", MCFS_CONTROL_CTL },
	{ "segments", MCFS_CONTROL_SEGMENTS }, { "sock", MCFS_CONTROL_SOCK },
};
#define NOTHERS (sizeof(others) / sizeof(others[0]))

static bool is_dir(fuse_ino_t ino)
{
	return ino == MCFS_CONTROL_DIR || ino == MCFS_CONTROL_BY_KEY || ino == MCFS_CONTROL_LOCAL ||
		ino == MCFS_CONTROL_PREFIX;
}

/* Does it show names or contents of files, which may be in directories that other users cannot search? */
static bool shows_names(fuse_ino_t ino)
{
	if (ino >= FIRST_FILE && ino < FIRST_FILE + NFILES)
		return files[ino - FIRST_FILE].names;
	return ino == MCFS_CONTROL_BY_KEY || ino == MCFS_CONTROL_LOCAL || ino == MCFS_CONTROL_PREFIX;
}

int mcfs_control_stat(const struct mcfs *fs, fuse_ino_t ino, struct stat *ret)
{
	bool dir = is_dir(ino);

	if (mcfs_is_segment(ino) || ino == MCFS_CONTROL_SEGMENTS || ino == MCFS_CONTROL_CTL)
		return mcfs_service_stat(fs, ino, ret);
	if (ino == MCFS_CONTROL_SOCK && mcfs_control_socket(fs)) {
		mcfs_stat_entry(fs, ino, MCS_SYMLINK, strlen(fs->conf.socket),
				mc_wall_ns() / MC_NS_PER_MS, ret);
		return 0;
	}
	if (!dir && (ino < FIRST_FILE || ino >= FIRST_FILE + NFILES))
		return -ENOENT;
	mcfs_stat_entry(fs, ino, dir ? MCS_DIR : MCS_OBJECT, 0, mc_wall_ns() / MC_NS_PER_MS, ret);
	/* The files are read-only. */
	ret->st_mode &= ~(mode_t)0222;
	if (fs->conf.attrs && shows_names(ino))
		ret->st_mode &= ~(mode_t)0077;
	return 0;
}

int mcfs_control_lookup(const struct mcfs *fs, const char *name, struct stat *ret)
{
	if (strcmp(name, MCFS_CONTROL_NAME) == 0)
		return mcfs_control_stat(fs, MCFS_CONTROL_DIR, ret);
	for (size_t i = 0; i < NOTHERS; i++)
		if (strcmp(others[i].name, name) == 0)
			return mcfs_control_stat(fs, others[i].ino, ret);
	for (size_t i = 0; i < NFILES; i++)
		if (strcmp(files[i].name, name) == 0)
			return mcfs_control_stat(fs, FIRST_FILE + i, ret);
	return -ENOENT;
}

const char *mcfs_control_socket(const struct mcfs *fs)
{
	/* A relative path would be wrong in the working directory of the program that follows the link. */
	return fs->conf.socket[0] == '/' ? fs->conf.socket : NULL;
}

const char *mcfs_control_name(const struct mcfs *fs, unsigned i, uint64_t *ret_ino)
{
	if (i < NFILES) {
		*ret_ino = FIRST_FILE + i;
		return files[i].name;
	}
	i -= (unsigned)NFILES;
	/* The last one exists only with a socket file. */
	if (i >= NOTHERS || (others[i].ino == MCFS_CONTROL_SOCK && !mcfs_control_socket(fs)))
		return NULL;
	*ret_ino = others[i].ino;
	return others[i].name;
}

int mcfs_control_feed(fuse_ino_t ino)
{
	if (ino < FIRST_FILE || ino >= FIRST_FILE + NFILES || files[ino - FIRST_FILE].say)
		return -1;
	return (int)files[ino - FIRST_FILE].feed;
}

int mcfs_control_read(struct mcfs *fs, fuse_ino_t ino, char **ret, size_t *ret_len)
{
	char *text = NULL;
	size_t len = 0;
	FILE *to;

	if (ino == MCFS_CONTROL_CTL) {
		*ret = strdup("");
		*ret_len = 0;
		return *ret ? 0 : -ENOMEM;
	}
	if (is_dir(ino) || ino == MCFS_CONTROL_SEGMENTS)
		return -EISDIR;
	if (ino < FIRST_FILE || ino >= FIRST_FILE + NFILES)
		return -ENOENT;
	to = open_memstream(&text, &len);
	if (!to)
		return -ENOMEM;
	files[ino - FIRST_FILE].say(fs, to);
	if (fclose(to)) {
		free(text);
		return -ENOMEM;
	}
	*ret = text;
	*ret_len = len;
	return 0;
}
