/* SPDX-License-Identifier: Apache-2.0
 * Random operations on a master and on a simple model of it, which have to agree after each.  Each run
 * is a process of its own.  When one fails, operations are removed from it as long as it still fails,
 * and the remaining ones are printed.
 *
 *	MASTER_MODEL_OPS=N	operations per run (a run for each eviction policy and size)
 *	MASTER_MODEL_SEED=N	first seed; each run prints its own
 *	MASTER_MODEL_RUNS=N	number of runs, default 12 */
#include <config.h>

#include "test_master_model.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/sys/clock.h"

#define OPS_DEFAULT 6000u
#define SHRINK_SECONDS 60

static struct model_progress *progress;

/* Frequency of an operation, relative to the sum of all. */
static const unsigned weight[OP_KINDS] = {
	[OP_START] = 300, [OP_END] = 290, [OP_REVOKE] = 15, [OP_GET] = 120, [OP_RELEASE] = 110,
	[OP_RENEW] = 10, [OP_EXIST] = 80, [OP_REMOVE] = 30, [OP_REMOVE_MATCH] = 1, [OP_RENAME] = 40,
	[OP_LIST] = 2, [OP_SESSION] = 3, [OP_CONFIRM] = 5, [OP_SEGMENT] = 1, [OP_GROW] = 1, [OP_ADVANCE] = 60,
};

static enum op_kind random_kind(void)
{
	unsigned sum = 0, i, at;

	for (i = 0; i < OP_KINDS; i++)
		sum += weight[i];
	at = (unsigned)(rnd() % sum);
	for (i = 0; at >= weight[i]; i++)
		at -= weight[i];
	return i;
}

static void make_ops(uint64_t seed, struct op *op, unsigned n)
{
	unsigned i;

	rnd_seed(seed);
	for (i = 0; i < n; i++)
		op[i] = (struct op){ random_kind(), (uint32_t)rnd(), (uint32_t)rnd(), (uint32_t)rnd() };
}

static void make_setup(uint64_t seed, struct model_setup *ret)
{
	static const char *const policy[] = { "lru", "fifo", "learn" };
	static const struct {
		unsigned keys;
		uint64_t segment, size;
	} scale[] = {
		{ 12, 64 << 10, 40 << 10 },
		{ 300, 256 << 10, 30 << 10 },
		{ 6000, 4 << 20, 2 << 10 },
	};

	rnd_seed(~seed);
	*ret = (struct model_setup){
		.policy = policy[seed / 3 % (sizeof(policy) / sizeof(policy[0]))],
		.keys = scale[seed % 3].keys, .segments = 1 + (unsigned)(rnd() % 3),
		.segment_size = scale[seed % 3].segment, .size_max = scale[seed % 3].size,
		.watermark = rnd() % 2 ? 1.0 : 0.8,
		.soft_may_go = rnd() % 4 != 0,
		.groups = seed % 9 >= 6 || seed % 5 == 4,
	};
	ret->tenants = seed % 12 >= 10 || seed % 12 == 0;
	if (ret->tenants) {
		ret->groups = false;
		/* An eviction examines only this many objects of a tenant. */
		if (ret->keys > 300)
			ret->keys = 300;
	}
}

/* Run in a child process; true if master and model agreed.  @quiet: do not print failing
 * assertions. */
static bool run(const struct model_setup *setup, const struct op *op, unsigned n, bool quiet)
{
	pid_t pid;
	int status;

	memset(progress, 0, sizeof(*progress));
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		if (quiet && (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout)))
			_exit(2);
		alarm(60 + n / 200);
		model_run(setup, op, n, progress);
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		perror("fork");
		exit(1);
	}
	if (status && !progress->why[0])
		snprintf(progress->why, sizeof(progress->why), WIFSIGNALED(status) ?
			 "signal %d" : "an assertion failed, status %d",
			 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return !status;
}

/* Remove all operations that the failure does not need; returns the number that remains. */
static unsigned shrink(const struct model_setup *setup, struct op *op, unsigned n)
{
	uint64_t end = mc_now_ms() + SHRINK_SECONDS * 1000;
	struct op *shorter = malloc(n * sizeof(*op));
	unsigned chunk = n, i, len;

	if (!shorter)
		return n;
	while (chunk && mc_now_ms() < end) {
		for (i = 0; i < n && mc_now_ms() < end;) {
			len = chunk < n - i ? chunk : n - i;
			memcpy(shorter, op, i * sizeof(*op));
			memcpy(shorter + i, op + i + len, (n - i - len) * sizeof(*op));
			if (run(setup, shorter, n - len, true)) {
				i += len;
				continue;
			}
			n -= len;
			/* Operations behind the failing one are not needed. */
			if (progress->at < n)
				n = progress->at + 1;
			memcpy(op, shorter, n * sizeof(*op));
		}
		chunk /= 2;
	}
	free(shorter);
	return n;
}

static void report(uint64_t seed, const struct model_setup *setup, struct op *op, unsigned n)
{
	unsigned at = progress->at, i;

	printf("seed %llu (%s, %u keys): operation %u: %s\n", (unsigned long long)seed, setup->policy,
	       setup->keys, at, progress->why);
	n = shrink(setup, op, at < n ? at + 1 : n);
	run(setup, op, n, true);
	printf("the same with %u operations: %s\n", n, progress->why);
	for (i = 0; i < n && i < 100; i++)
		printf("\t{ %s, %u, %u, %u }\n", model_op_name(op[i].kind), op[i].a, op[i].b, op[i].c);
}

/* A model with one known mistake is detected, and shrinking leaves a put or two calls of one, and
 * the rename. */
static int check_shrinking(struct op *op)
{
	struct model_setup setup;
	unsigned n = 3000;

	make_setup(0, &setup);
	setup.mistaken = true;
	make_ops(0, op, n);
	if (run(&setup, op, n, true) || strcmp(progress->why, "planted mistake") != 0) {
		printf("a mistake was not found: %s\n", progress->why);
		return 1;
	}
	n = shrink(&setup, op, progress->at + 1);
	printf("a planted mistake: shrunk to %u operations\n", n);
	return n > 3;
}

static unsigned number_of(const char *name, unsigned otherwise)
{
	const char *text = getenv(name);

	return text ? (unsigned)strtoul(text, NULL, 10) : otherwise;
}

int main(void)
{
	unsigned n = number_of("MASTER_MODEL_OPS", OPS_DEFAULT), i;
	unsigned runs = number_of("MASTER_MODEL_RUNS", 12);
	unsigned first = number_of("MASTER_MODEL_SEED", 1);
	struct op *op = calloc(n < 3000 ? 3000 : n, sizeof(*op));
	int failed = 0;

	progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
			-1, 0);
	if (!op || progress == MAP_FAILED)
		return 1;
	for (i = 0; i < runs && !failed; i++) {
		struct model_setup setup;

		make_setup(first + i, &setup);
		make_ops(first + i, op, n);
		printf("seed %u: %s, %u keys%s%s, %u segments of %llu KiB, %u operations\n", first + i,
		       setup.policy, setup.keys, setup.groups ? ", groups" : "",
		       setup.tenants ? ", two tenants" : "", setup.segments,
		       (unsigned long long)setup.segment_size >> 10, n);
		fflush(stdout);
		if (!run(&setup, op, n, false)) {
			report(first + i, &setup, op, n);
			failed = 1;
		} else {
			printf("\t%s\n", progress->why);
		}
	}
	if (!failed)
		failed = check_shrinking(op);
	free(op);
	return failed;
}
