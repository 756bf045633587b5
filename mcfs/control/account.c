/* SPDX-License-Identifier: Apache-2.0
 * account.c - operations per caller. The table has a fixed size. If two threads share a slot, the newer one
 * replaces the older, so that the table shows active callers. */
#include <config.h>
#include "mcfs/control/account.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "mcfs/handle.h"
#include "mcfs/control/feed.h"

#define CALLERS 512u

struct caller {
	pid_t tid;		/* 0: free */
	uid_t uid;
	uint64_t ops, errors, read, written, busy_ns, last_ms;
};

static struct {
	struct mc_mutex lock;
	struct caller caller[CALLERS];
} table = { .lock = MC_MUTEX_INIT };

static void account_count(const struct mcfs_op *op, int err, uint64_t ns)
{
	struct caller *c = &table.caller[(unsigned)op->ctx.pid % CALLERS];

	mc_mutex_lock(&table.lock);
	if (c->tid != op->ctx.pid) {
		memset(c, 0, sizeof(*c));
		c->tid = op->ctx.pid;
		c->uid = op->ctx.uid;
	}
	c->ops++;
	c->errors += err != 0;
	if (op->code == MCFS_OP_read)
		c->read += op->bytes;
	else
		c->written += op->bytes;
	c->busy_ns += ns;
	c->last_ms = op->start_ns / MC_NS_PER_MS;
	mc_mutex_unlock(&table.lock);
}

static void account_trace(const struct mcfs_op *op, const char *name, int err, uint64_t ns)
{
	char when[40], path[1024], line[1400];
	struct mcfs_key key;
	int n;

	/* Do not trace reads of the trace: each would cause another line. */
	if (op->handle && op->handle->type == MCFS_LINES)
		return;
	mcfs_format_time(mc_wall_ns() / MC_NS_PER_MS, when, sizeof(when));
	key.len = 0;
	if (op->in)
		mcfs_inode_key(&op->fs->inodes, op->in, &key);
	mcfs_key_print(mcfs_key_of(&key), path, sizeof(path));
	n = snprintf(line, sizeof(line), "%s %s /%s pid=%d uid=%u bytes=%zu errno=%d us=%" PRIu64 "\n",
		     when, name, path, (int)op->ctx.pid, (unsigned)op->ctx.uid, op->bytes, err, ns / 1000);
	if (n > 0 && (size_t)n < sizeof(line))
		mcfs_trace_line(line, (size_t)n);
}

void mcfs_account(const struct mcfs_op *op, const char *name, int err)
{
	uint64_t ns = mc_now_ns() - op->start_ns;

	/* Requests that the kernel sends on its own behalf have no caller. */
	if (op->ctx.pid)
		account_count(op, err, ns);
	if (mcfs_trace_on())
		account_trace(op, name, err, ns);
}

static int account_busier(const void *a, const void *b)
{
	const struct caller *x = a, *y = b;

	if (!x->tid != !y->tid)
		return !x->tid ? 1 : -1;
	return x->ops < y->ops ? 1 : x->ops > y->ops ? -1 : 0;
}

static void command_of(pid_t tid, char *ret, size_t size)
{
	char path[64];
	FILE *f;

	(void)snprintf(ret, size, "-");
	(void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)tid);
	f = fopen(path, "re");
	if (!f)
		return;
	if (fgets(ret, (int)size, f))
		ret[strcspn(ret, "\n")] = '\0';
	fclose(f);
}

void mcfs_account_print(FILE *to)
{
	struct caller *c = malloc(sizeof(table.caller));
	uint64_t now = mc_now_ms();

	if (!c)
		return;
	mc_mutex_lock(&table.lock);
	memcpy(c, table.caller, sizeof(table.caller));
	mc_mutex_unlock(&table.lock);
	qsort(c, CALLERS, sizeof(*c), account_busier);
	fprintf(to, "%8s %6s %-16s %10s %8s %14s %14s %10s %6s\n", "pid", "uid", "command", "ops",
		"errors", "read", "written", "busy_ms", "idle_s");
	for (unsigned i = 0; i < CALLERS && c[i].tid; i++) {
		char command[32];

		command_of(c[i].tid, command, sizeof(command));
		fprintf(to, "%8d %6u %-16s %10" PRIu64 " %8" PRIu64 " %14" PRIu64 " %14" PRIu64
			" %10" PRIu64 " %6" PRIu64 "\n", (int)c[i].tid, (unsigned)c[i].uid, command,
			c[i].ops, c[i].errors, c[i].read, c[i].written,
			(uint64_t)(c[i].busy_ns / MC_NS_PER_MS), (now - c[i].last_ms) / 1000);
	}
	free(c);
}
