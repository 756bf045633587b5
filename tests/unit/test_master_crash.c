/* SPDX-License-Identifier: Apache-2.0
 * test_master_crash.c - a master with a journal is killed at each pass of each of its fault points,
 * and each fault point that can fail fails once at each pass. The next master has the state after
 * the last answered request; each object of the request in progress has its old or its new state.
 * The names of the fault points are read from the sources: a point that the script below never
 * passes fails the test.
 *
 *	MC_CRASH_ALL=1	test every pass (default: of checkpoint.step only each 41st)
 *	MC_CRASH_STEPS=N	requests in the script, default 70 */
#include <config.h>

#include "test_master_journal_fixture.h"

#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/fault.h"
#include "common/log.h"

#define KIB 1024u
#define SEGMENT (256u * KIB)
#define TEXT_MAX 65536u
#define POINTS_MAX 48u
#define POINT_LEN 48u
/* A kind of durable value that no part of the master reads after a restart. */
#define VALUE_KIND ((enum mcm_durable_kind)99)

/* The victim's report in shared memory, for the parent process. */
static struct told {
	char before[TEXT_MAX];		/* the state after the last answered request */
	char after[TEXT_MAX];		/* the state after the request in progress */
	bool ended, lost;
	long hits[POINTS_MAX];
} *told;

static char point[POINTS_MAX][POINT_LEN];
static unsigned points;
static unsigned steps = 70;

/* Linked instead of the real function, so that each run of the script is the same. */
uint64_t __wrap_mc_random_u64(void);
uint64_t __wrap_mc_random_u64(void)
{
	static uint64_t n;

	return ++n * 0x9e3779b97f4a7c15ull;
}

/* ---- the fault points ---- */

static void note_point(const char *name, size_t len)
{
	unsigned i;

	assert_true(len < POINT_LEN);
	/* tests/integ/master_snapshot.sh; points that delay a reader between two locks */
	if (!strncmp(name, "snapshot.", 9) || !strncmp(name, "pause.", 6))
		return;
	for (i = 0; i < points; i++)
		if (strlen(point[i]) == len && !memcmp(point[i], name, len))
			return;
	assert_true(points < POINTS_MAX);
	memcpy(point[points++], name, len);
}

static int read_source(const char *path, const struct stat *st, int type, struct FTW *where)
{
	static const char *const begin[] = { "mc_fault(\"", "MC_FAULT_POINT(\"" };
	char line[512];
	size_t len = strlen(path);
	unsigned i;
	FILE *f;

	(void)st;
	(void)where;
	if (type != FTW_F || len < 2 || strcmp(path + len - 2, ".c") != 0)
		return 0;
	f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		for (i = 0; i < 2; i++) {
			const char *at = strstr(line, begin[i]);

			if (at) {
				at += strlen(begin[i]);
				note_point(at, strcspn(at, "\""));
			}
		}
	fclose(f);
	return 0;
}

static void read_points(void)
{
	const char *top = getenv("top_srcdir");
	char path[512];

	snprintf(path, sizeof(path), "%s/master", top ? top : "..");
	assert_int_equal(nftw(path, read_source, 8, FTW_PHYS), 0);
	assert_true(points >= 10);
}

/* ---- the state as text ---- */

struct text {
	char *to;
	size_t len;
};

static void add(struct text *t, const char *line)
{
	size_t n = strlen(line);

	assert_true(t->len + n + 2 < TEXT_MAX);
	memcpy(t->to + t->len, line, n);
	t->len += n;
	t->to[t->len++] = '\n';
	t->to[t->len] = 0;
}

static void add_value(void *arg, const struct mcm_durable_record *d)
{
	char line[128];

	snprintf(line, sizeof(line), "value %.*s %.*s", (int)d->name.len,
		 (const char *)d->name.data, (int)d->value.len, (const char *)d->value.data);
	add(arg, line);
}

static void describe(struct mcm *m, char *to)
{
	struct jx_dump d = jx_dump(m);
	struct text t = { .to = to };
	char line[512];
	unsigned i;

	*to = 0;
	for (i = 0; i < d.n; i++)
		add(&t, d.line[i]);
	jx_dump_free(&d);
	mcm_durables_each(m, VALUE_KIND, add_value, &t);
	for (i = 0; i < m->segments.n_live; i++) {
		const struct mcm_segment *s = m->segments.at[m->segments.live[i]];

		snprintf(line, sizeof(line), "segment %s epoch %llu", s->name,
			 (unsigned long long)s->epoch);
		add(&t, line);
	}
}

static bool has_line(const char *text, const char *line, size_t len)
{
	const char *at = text;

	while ((at = memmem(at, strlen(at), line, len))) {
		if ((at == text || at[-1] == '\n') && at[len] == '\n')
			return true;
		at++;
	}
	return false;
}

/* Each line of @a is one of @b or of @c (NULL: only of @b). */
static void lines_of(const char *a, const char *b, const char *c, const char *what)
{
	size_t len;

	for (; *a; a += len + 1) {
		len = strcspn(a, "\n");
		if (!has_line(b, a, len) && !(c && has_line(c, a, len)))
			fail_msg("%s: %.*s", what, (int)len, a);
	}
}

/* ---- the victim ---- */

/* The request is done: record the state, then wait for the journal as a reply does. */
static void answer(struct fixture *fx)
{
	describe(fx->m, told->after);
	mcm_journal_wait(fx->m);
	strcpy(told->before, told->after);
}

static uint64_t last_epoch;

static void attach(struct fixture *fx, bool again)
{
	unsigned i;

	for (i = 1; i <= 2; i++) {
		assert_int_equal(fx_mount(fx, 1, i, 100 + i + (i == 2 ? last_epoch : 0), SEGMENT, NULL), 0);
		if (again)
			answer(fx);
	}
}

static void put(struct fixture *fx, const char *key, uint64_t size, uint32_t flags)
{
	struct mcm_put_granted g;
	int r = fx_start(fx, fx->s, key, size, flags, &g);

	answer(fx);
	if (r < 0 || rnd() % 8 == 0)
		return;
	if (rnd() % 8)
		fx_end(fx, key, g.generation);
	else
		fx_revoke(fx, key, g.generation);
	answer(fx);
}

static void lose_segment(struct fixture *fx)
{
	uint64_t lost;

	assert_int_equal(mcm_unmount(fx->m, fx->s->client, (struct mcp_id){ 7, 2 }, &lost), 0);
	while (mcm_evict_background(fx->m))
		;
	answer(fx);
	last_epoch++;
	assert_int_equal(fx_mount(fx, 1, 2, 102 + last_epoch, SEGMENT, NULL), 0);
	answer(fx);
}

static void step(struct fixture *fx, unsigned n)
{
	struct mcp_remove_match some = { .flags = MCP_REMOVE_FORCE, .prefix = { "d2/", 3 } };
	char key[32], to[32];
	uint64_t removed;

	snprintf(key, sizeof(key), "d%u/k%u", (unsigned)(rnd() % 4), (unsigned)(rnd() % 12));
	snprintf(to, sizeof(to), "d%u/k%u", (unsigned)(rnd() % 4), (unsigned)(rnd() % 12));
	switch (n % 23 == 11 ? 20 : rnd() % 12) {
	case 0:
		fx_remove(fx, key, MCP_REMOVE_FORCE);
		break;
	case 1:
	case 2:
		fx_rename(fx, key, to, 0);
		break;
	case 3:
		mcm_durable_set(fx->m, VALUE_KIND, fx_bytes(key), fx_bytes(to));
		break;
	case 4:
		mcm_durable_drop(fx->m, VALUE_KIND, fx_bytes(key));
		break;
	case 5:
		mcm_remove_match(fx->m, &some, &removed);
		break;
	case 6:
		fx_advance(fx, 500);
		break;
	case 20:
		lose_segment(fx);
		break;
	default:
		put(fx, key, 1 + rnd() % (60 * KIB), rnd() % 3 ? MCP_PUT_UPSERT : 0);
	}
	answer(fx);
}

static void script(void)
{
	struct mcm_journal_stats st;
	struct fixture fx;
	unsigned i;

	rnd_seed(21);
	jx_up(&fx, 2, SEGMENT);
	answer(&fx);
	for (i = 0; i < steps; i++) {
		step(&fx, i);
		/* A checkpoint changes nothing: a master killed in it leaves the state from
		 * before. */
		if (i % 17 == 5)
			(void)mcm_checkpoint(fx.m);
		mcm_journal_stats(fx.m, &st);
		/* A master that lost its journal leaves nothing to restore: it is not restarted. */
		if (i % 29 == 19 && !st.lost) {
			jx_killed(&fx);
			jx_started(&fx);
			attach(&fx, true);
		}
	}
	mcm_journal_stats(fx.m, &st);
	told->lost = st.lost;
}

/* ---- killing the victim ---- */

static int in_child(void (*fn)(void *arg), void *arg)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		alarm(120);
		fn(arg);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

/* Injected errors are expected: write their log lines to a file. */
static void quiet_log(void)
{
	struct mc_log_conf lc = { .program = "test", .dir = jx_dir, .levels = "err" };

	assert_int_equal(mc_log_open(&lc), 0);
}

static void victim(void *arg)
{
	unsigned i;

	if (strstr(arg, "error:"))
		quiet_log();
	assert_int_equal(mc_fault_set(arg), 0);
	script();
	for (i = 0; i < points; i++)
		told->hits[i] = mc_fault_hits(point[i]);
	told->ended = true;
}

/* Check the state that the next master restores. */
static void verify(void *arg)
{
	static char found[TEXT_MAX];
	struct fixture fx;

	memset(&fx, 0, sizeof(fx));
	mc_clock_fake(5000 * MC_NS_PER_SEC);
	assert_int_equal(mcm_conf_defaults(&fx.conf, &fx.options), 0);
	fx.conf.journal_dir = jx_dir;
	fx.conf.client_ttl = 1000000;
	jx_started(&fx);
	describe(fx.m, found);
	/* A master that could not write its journal has removed all files. */
	if (told->lost) {
		assert_string_equal(found, "");
		return;
	}
	lines_of(found, told->before, told->after, "this is neither what was nor what was meant");
	for (const char *line = told->before; *line; line += strcspn(line, "\n") + 1) {
		size_t len = strcspn(line, "\n");

		if (has_line(told->after, line, len) && !has_line(found, line, len))
			fail_msg("%s: this is missing: %.*s", (char *)arg, (int)len, line);
	}
	fx_check(&fx);
	attach(&fx, false);
	fx_check(&fx);
}

static void crash(const char *name, const char *action, long nth)
{
	bool kills = !strcmp(action, "kill");
	char spec[128];
	int status;

	memset(told, 0, sizeof(*told));
	assert_in_range(snprintf(spec, sizeof(spec), "%s=%s@%ld", name, action, nth), 1,
			sizeof(spec) - 1);
	status = in_child(victim, spec);
	if (kills ? !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL : status != 0)
		fail_msg("%s: status %x", spec, status);
	if (in_child(verify, spec))
		fail_msg("%s: what the next master has is wrong", spec);
}

/* Count how often the script passes each point, with this value of --journal_sync. */
static void count_hits(const char *sync)
{
	char spec[POINTS_MAX * (POINT_LEN + 16)] = "";
	unsigned i;

	jx_want.journal_sync = (char *)sync;
	for (i = 0; i < points; i++)
		snprintf(spec + strlen(spec), sizeof(spec) - strlen(spec), "%s%s=kill@1000000000",
			 i ? "," : "", point[i]);
	memset(told, 0, sizeof(*told));
	assert_int_equal(in_child(victim, spec), 0);
	assert_true(told->ended);
	assert_int_equal(in_child(verify, spec), 0);
}

static long stride_of(const char *name)
{
	return !strcmp(name, "checkpoint.step") && !getenv("MC_CRASH_ALL") ? 41 : 1;
}

static void each_passage(const char *sync, const char *action, bool (*wanted)(const char *name))
{
	long hits[POINTS_MAX], n;
	unsigned i, runs = 0;

	count_hits(sync);
	memcpy(hits, told->hits, sizeof(hits));
	for (i = 0; i < points; i++)
		for (n = 1; wanted(point[i]) && n <= hits[i]; n += stride_of(point[i])) {
			crash(point[i], action, n);
			runs++;
		}
	printf("%s, %s: %u runs\n", sync, action, runs);
}

static bool any(const char *name)
{
	(void)name;
	return true;
}

static bool of_sync(const char *name)
{
	return strstr(name, "sync") != NULL;
}

/* Fault points whose function returns a status, so that an error can be injected. */
static bool can_fail(const char *name)
{
	static const char *const fallible[] = {
		"checkpoint.write", "journal.write", "journal.sync", "journal.create",
	};

	for (unsigned i = 0; i < sizeof(fallible) / sizeof(fallible[0]); i++)
		if (!strcmp(name, fallible[i]))
			return true;
	return false;
}

/* ---- the tests ---- */

static void no_point_is_left_out(void)
{
	long hits[POINTS_MAX] = { 0 };
	unsigned i, k;

	for (k = 0; k < 2; k++) {
		count_hits(k ? "fdatasync" : "write");
		for (i = 0; i < points; i++)
			hits[i] += told->hits[i];
	}
	for (i = 0; i < points; i++) {
		printf("%-24s %ld\n", point[i], hits[i]);
		if (!hits[i])
			fail_msg("%s is never passed: let the script do it", point[i]);
	}
}

/* Not cmocka's runner: after a failed assertion in a child process, it would continue there with
 * the next test. */
int main(void)
{
	if (getenv("MC_CRASH_STEPS"))
		steps = (unsigned)atoi(getenv("MC_CRASH_STEPS"));
	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (told == MAP_FAILED || jx_setup(NULL))
		return 1;
	read_points();
	no_point_is_left_out();
	each_passage("write", "kill", any);
	each_passage("fdatasync", "kill", of_sync);
	each_passage("write", "error:ENOSPC", can_fail);
	each_passage("fdatasync", "error:EIO", of_sync);
	return jx_teardown(NULL);
}
