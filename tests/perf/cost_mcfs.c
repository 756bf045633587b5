/* SPDX-License-Identifier: Apache-2.0
 * cost_mcfs.c - fixed work of the mount's handlers, whose instructions tests/perf/cost.sh counts (see cost.c).
 *
 * The handlers get requests from this program instead of libfuse, and objects from the store in memory of
 * tests/lib/fake_mcs.c, so that a row has the work of mcfs/ops and its tables, and neither libfuse nor the client. */
#include <config.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "mcfs/mcfs.h"
#include "mcfs/ops/ops.h"
#include "mcfs/reply.h"
#include "tests/lib/fake_mcs.h"

#define ROOT 1u
#define COUNTED 10000u
#define WARM 100u
#define FILE_SIZE 4096u
#define NAME "0123456789abcdef0123456789abcdef"

#define ROW __attribute__((noinline)) void

/* ---- requests ---- */

/* The one request, and its answer. */
struct fuse_req {
	struct mcfs *fs;
	struct fuse_ctx ctx;
	int err;
	struct fuse_entry_param entry;
	struct fuse_file_info fi;
	size_t bytes;
};

void *fuse_req_userdata(fuse_req_t req)
{
	return req->fs;
}

const struct fuse_ctx *fuse_req_ctx(fuse_req_t req)
{
	return &req->ctx;
}

void fuse_req_interrupt_func(fuse_req_t req, fuse_interrupt_func_t fn, void *arg)
{
}

int fuse_reply_err(fuse_req_t req, int err)
{
	req->err = err;
	return 0;
}

int fuse_reply_entry(fuse_req_t req, const struct fuse_entry_param *e)
{
	req->entry = *e;
	return 0;
}

int fuse_reply_open(fuse_req_t req, const struct fuse_file_info *fi)
{
	req->fi = *fi;
	return 0;
}

int fuse_reply_iov(fuse_req_t req, const struct iovec *iov, int n)
{
	for (int i = 0; i < n; i++)
		req->bytes += iov[i].iov_len;
	return 0;
}

void fuse_reply_none(fuse_req_t req)
{
}

/* The store in memory has no batches. */
int mcs_stat_batch(mcs_t *s, const struct mcs_key *keys, unsigned n, struct mcs_info *infos, int *results,
		   int64_t timeout_ms)
{
	for (unsigned i = 0; i < n; i++)
		results[i] = mcs_stat(s, keys[i], &infos[i], timeout_ms);
	return 0;
}

/* ---- the mount ---- */

static void die(const char *what, int err)
{
	fprintf(stderr, "cost_mcfs: %s: %s\n", what, err ? mc_err_detail(err) : "unexpected result");
	exit(1);
}

static const struct mc_opt_row rows[] = {
#define OPT(...) MC_OPT_ROW(struct mcfs_conf, __VA_ARGS__)
#include "mcfs/options.def"
#undef OPT
	{ 0 },
};

static void mount_up(struct mcfs *fs)
{
	static const struct mc_opt_alias none[] = { { NULL, NULL } };
	static const struct mc_program program = {
		.name = "cost_mcfs", .synopsis = "", .summary = "", .rows = rows, .aliases = none,
	};
	static char name[] = "cost_mcfs", *argv[] = { name, NULL };
	int r;

	memset(fs, 0, sizeof(*fs));
	r = mc_options_parse(&program, 1, argv, &fs->conf, &fs->options);
	fs->store = fake_mcs_new();
	fs->name_max = fs->new_name_max = 1024;
	fs->file_mode = 0644;
	fs->dir_mode = 0755;
	mc_mutex_init(&fs->handles_lock);
	mc_list_init(&fs->handles);
	mc_list_init(&fs->kept);
	if (r == 0)
		r = mcfs_pool_new(64 * MCFS_SLOT, 16, &fs->pool);
	if (r == 0)
		r = mcfs_version_env_init(&fs->versions, fs->store, fs->pool);
	if (r == 0)
		r = mcfs_inodes_init(&fs->inodes);
	if (r < 0)
		die("mount", r);
	mcfs_tree_init(&fs->tree);
	mcfs_open_pins_init(&fs->open_pins);
	mcfs_locks_init(&fs->locks, 16);
	r = mcfs_reply_init(fs);
	if (r < 0)
		die("mount", r);
}

static void mount_down(struct mcfs *fs)
{
	mcfs_reply_done(fs);
	mcfs_open_pins_done(&fs->open_pins);
	mcfs_locks_done(&fs->locks);
	mcfs_tree_done(&fs->tree);
	mcfs_inodes_done(&fs->inodes);
	mcfs_version_env_done(&fs->versions);
	mcfs_pool_free(fs->pool);
	fake_mcs_free(fs->store);
	mc_options_free(fs->options);
}

static void file_put(struct mcfs *fs)
{
	static char data[FILE_SIZE];
	struct iovec iov = { data, sizeof(data) };
	int r = mcs_put(fs->store, (struct mcs_key){ NAME, strlen(NAME) }, &iov, 1, NULL, 0);

	if (r < 0)
		die("put", r);
}

/* ---- rows ---- */

static void lookup_all(struct fuse_req *rq, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++)
		mcfs_do_lookup(rq, ROOT, NAME);
}

static void read_all(struct fuse_req *rq, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++)
		mcfs_do_read(rq, rq->entry.ino, FILE_SIZE, 0, &rq->fi);
}

ROW row_fuse_lookup(struct fuse_req *rq);
ROW row_fuse_lookup(struct fuse_req *rq)
{
	lookup_all(rq, COUNTED);
}

ROW row_fuse_read(struct fuse_req *rq);
ROW row_fuse_read(struct fuse_req *rq)
{
	read_all(rq, COUNTED);
}

int main(void)
{
	static struct mcfs fs;
	struct fuse_req rq = { .fs = &fs, .ctx = { .pid = 1 } };
	struct fuse_file_info fi = { .flags = O_RDONLY };

	mc_clock_fake(1000 * MC_NS_PER_SEC);
	mount_up(&fs);
	file_put(&fs);
	lookup_all(&rq, WARM);
	row_fuse_lookup(&rq);
	if (rq.err || !rq.entry.ino || rq.entry.attr.st_size != FILE_SIZE)
		die("lookup", 0);
	printf("fuse_lookup %u\n", COUNTED);
	mcfs_do_open(&rq, rq.entry.ino, &fi);
	read_all(&rq, WARM);
	rq.bytes = 0;
	row_fuse_read(&rq);
	if (rq.err || rq.bytes != (uint64_t)COUNTED * FILE_SIZE)
		die("read", 0);
	printf("fuse_read %u\n", COUNTED);
	mcfs_do_release(&rq, rq.entry.ino, &rq.fi);
	mcfs_do_forget(&rq, rq.entry.ino, WARM + COUNTED);
	mount_down(&fs);
	return 0;
}
