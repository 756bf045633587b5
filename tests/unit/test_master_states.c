/* SPDX-License-Identifier: Apache-2.0
 * test_master_states.c - a master starts in every state, and gives the same answers as before.
 *
 * Each run makes a state (test_master_states.h), ends the master in an orderly way, kills it, or lets a standby take
 * over with its copy of the journal, and compares the answers of the next master at several times: before the owners
 * return, after that, after the grace period, after all durations have passed.  It does so twice or three times.
 *
 * STATES_SEED=N runs only the state of this seed; STATES_RUNS=N runs that many random states. */
#include <config.h>

#include "test_master_states.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "master/journal/check.h"
#include "master/journal/copy.h"

#define RUNS 240u		/* random states, besides those of one part each */

struct run;
static char dirs[2][32];
static struct run *running;	/* NULL: the last run succeeded */

/* ---- repeatable and fast runs ---- */

int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);
uint64_t __wrap_mc_random_u64(void);

int __wrap_fsync(int fd)
{
	(void)fd;
	return 0;
}

int __wrap_fdatasync(int fd)
{
	(void)fd;
	return 0;
}

uint64_t __wrap_mc_random_u64(void)
{
	return rnd() << 32 ^ rnd();
}

/* ---- one run ---- */

enum stop { ORDERLY, KILLED, FAILOVER, STOPS };
static const char *const stops[STOPS] = { "orderly", "killed", "failover" };

struct run {
	struct state st;
	unsigned dir;			/* of the current master */
	struct mcm_feed *feed;		/* to the other directory */
	struct mcm_copy *copy;
	enum stop stop;			/* of the last master */
	unsigned starts;
	const char *when;
	/* of the last master */
	struct look was;
	bool pressed;			/* a segment was above its watermark: the evictor may have more to do */
	bool sweeping;			/* objects of an unmounted segment were still being removed */
	/* rules in force now */
	bool awaits;			/* owners that have not returned are awaited */
	bool moves;			/* time has passed since the start: tasks go on */
	bool forgotten;			/* segments without an owner were dropped */
};

static void __attribute__((format(printf, 2, 3), noreturn)) run_fail(struct run *t, const char *fmt, ...)
{
	char text[4096];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fail_msg("%s", text);
	abort();
}

/* Name the state of a failure. */
static int run_report(void **state)
{
	const struct run *t = running;

	(void)state;
	if (t)
		print_error("FAILED: STATES_SEED=%llu; %s; start %u, after: %s; %s\n", (unsigned long long)t->st.seed,
			    state_name(&t->st), t->starts, stops[t->stop], t->when);
	return 0;
}

static void dir_clear(const char *dir)
{
	char path[512];
	struct dirent *e;
	DIR *d = opendir(dir);

	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (e->d_name[0] != '.')
			unlink(path);
	}
	if (d)
		closedir(d);
}

/* ---- stop and start ---- */

static void feed_open(struct run *t)
{
	const struct mcm_copy_conf conf = { .dir = dirs[!t->dir], .cluster = t->st.fx.m->conf.cluster_id };

	assert_int_equal(mcm_copy_open(&conf, &t->copy), 0);
	assert_int_equal(mcm_copy_begin(t->copy), 0);
	assert_int_equal(mcm_feed_open(t->st.fx.m, &t->feed), 0);
}

/* The standby receives all that was written. */
static void feed_pump(struct run *t)
{
	struct mcm_feed_part part;
	static char buf[4000];
	int r;

	while ((r = mcm_feed_read(t->feed, buf, sizeof(buf), &part)) > 0)
		assert_int_equal(mcm_copy_add(t->copy, &part, buf), 0);
	if (r < 0)
		run_fail(t, "the standby cannot follow: %s", mc_err_detail(r));
}

static void sessions_end(struct run *t)
{
	struct mc_list *pos, *tmp;

	mc_list_for_each_safe(pos, tmp, &t->st.fx.m->sessions)
		fx_session_end(&t->st.fx, mc_container_of(pos, struct mcm_session, link));
	t->st.owner[0] = t->st.owner[1] = t->st.writer = t->st.reader = NULL;
}

static void master_stop(struct run *t)
{
	/* As before an answer: all changes so far are written. */
	mcm_journal_wait(t->st.fx.m);
	if (t->stop == FAILOVER)
		feed_pump(t);
	sessions_end(t);
	if (t->stop == ORDERLY)
		mcm_journal_close(t->st.fx.m, true);
	mcm_core_free(t->st.fx.m);
	mcm_feed_close(t->feed);
	mcm_copy_close(t->copy);
	t->feed = NULL;
	t->copy = NULL;
	if (t->stop == FAILOVER)
		t->dir = !t->dir;
}

/* The files say what the next master will find. */
static void files_check(struct run *t)
{
	struct mcm_check c;
	int r = mcm_journal_check(&t->st.fx.conf, dirs[t->dir], &c);

	t->when = "check of the files";
	if (r < 0)
		run_fail(t, "%s", mc_err_detail(r));
	if (c.faults)
		run_fail(t, "%s", c.fault[0]);
	if (!t->pressed && !t->sweeping &&
	    c.objects != (uint64_t)atoll(look_at(&t->was, "count objects")))
		run_fail(t, "the files have %llu objects, the master had %s", (unsigned long long)c.objects,
			 look_at(&t->was, "count objects"));
	mcm_check_done(&c);
}

static void master_start(struct run *t)
{
	struct fixture *fx = &t->st.fx;
	int r;

	files_check(t);
	t->starts++;
	t->when = "start";
	fx->conf.journal_dir = dirs[t->dir];
	r = mcm_core_new(&fx->conf, &fx->m);
	if (r < 0)
		run_fail(t, "%s", mc_err_detail(r));
	t->awaits = true;
	t->moves = t->forgotten = false;
	fx_check(fx);
	feed_open(t);
}

/* ---- rules ---- */

enum answer { READABLE, AWAITED, MISSING };

/* The segment's state in a look; 0: there is no such segment. */
static unsigned segment_state(const struct look *l, unsigned number)
{
	const char *s = look_at(l, "segment %u", number);

	return s ? (unsigned)look_number(s, "state=") : 0;
}

/* How the master must answer for an object, given its copies ("NUMBER:AT+LEN ..."): without bytes, or with a copy in a
 * segment whose owner is there, it is readable; while a master awaits owners, an object in silent memory may come
 * back; else it is missing. */
static enum answer expected(const struct run *t, const struct look *l, const char *copies)
{
	bool silent = false;

	if (!*copies)
		return READABLE;
	for (; copies; copies = strchr(copies + 1, ' ')) {
		unsigned state = segment_state(l, (unsigned)strtoul(copies + 1, NULL, 10));

		if (state == MCP_SEG_OK)
			return READABLE;
		silent |= state == MCP_SEG_SILENT;
	}
	return silent && t->awaits ? AWAITED : MISSING;
}

static const char *copies_of(const char *index)
{
	return strchr(index, '|') + 1;
}

/* Of copies, those whose segment @now still has.  Static memory. */
static const char *copies_left(const struct look *now, const char *copies)
{
	static char left[512];
	size_t n = 0;

	*left = '\0';
	while (*copies) {
		size_t len = 1 + strcspn(copies + 1, " ");

		if (segment_state(now, (unsigned)strtoul(copies + 1, NULL, 10)))
			n += (size_t)snprintf(left + n, sizeof(left) - n, "%.*s", (int)len, copies);
		copies += len;
	}
	return left;
}

/* The same copies in any order: a lost one gives its place to the last one. */
static bool same_copies(const char *a, const char *b)
{
	char one[64];

	if (strlen(a) != strlen(b))
		return false;
	for (size_t len; *a; a += len) {
		const char *at;

		len = 1 + strcspn(a + 1, " ");
		snprintf(one, sizeof(one), "%.*s", (int)len, a);
		at = strstr(b, one);
		if (!at || (at[len] && at[len] != ' '))
			return false;
	}
	return true;
}

/* The durable properties of a key.  Allowed differences: copies in segments that were dropped are gone, and the
 * object with its last one; the evictor may go on below a watermark, except with hard pins. */
static void compare_index(struct run *t, const struct look *now, const char *was, const char *key)
{
	const char *is = look_at(now, "index %s", key), *copies = copies_of(was), *left = copies_left(now, copies);

	if (!is) {
		if (*copies && !*left)
			return;
		if (t->pressed && !strstr(was, " hard=1"))
			return;
		run_fail(t, "%.300s is lost; it was: %.600s", key, was);
	}
	if (copies_of(is) - is != copies - was || strncmp(is, was, (size_t)(copies - was)) != 0)
		run_fail(t, "%.300s is: %.600s; it was: %.600s", key, is, was);
	if (!same_copies(copies_of(is), left) && !t->pressed)
		run_fail(t, "%.300s has copies%s; it had%s", key, copies_of(is), left);
}

/* The listing of a key's directory: an error exactly while an object in it is awaited. */
static bool is_listed(struct run *t, const struct look *now, const char *list, const char *dir, const char *tenant)
{
	const char *r = look_at(now, "%s %s%s", list, dir, tenant);

	if (r && strcmp(r, "0") != 0 && (atoi(r) != -MC_ENOTREADY || !t->awaits))
		run_fail(t, "%s %s%s: error %s", list, dir, tenant, r);
	return r && !strcmp(r, "0");
}

static void compare_entries(struct run *t, const struct look *now, const char *key, enum answer want)
{
	static const char *const list[] = { "list", "listall" }, *const entry[] = { "entry", "all" };
	const char *tenant = strrchr(key, '@');
	char name[MCP_KEY_MAX + 16];

	snprintf(name, sizeof(name), "%.*s", (int)(tenant - key), key);
	for (unsigned i = 0; i < 2; i++) {
		const char *was, *is;

		if (!is_listed(t, now, list[i], i ? "" : look_dir(name), tenant))
			continue;
		if (want == AWAITED)
			run_fail(t, "%s leaves out %.300s, whose owner is awaited", list[i], key);
		/* Directories are listed without their slash in that of their parent. */
		if (!i && name[strlen(name) - 1] == '/')
			continue;
		was = look_at(&t->was, "%s %s", entry[i], key);
		is = look_at(now, "%s %s", entry[i], key);
		if (!is != (want == MISSING))
			run_fail(t, "%s of %.300s: %s", list[i], key, is ? is : "none");
		if (is && was && strcmp(is, was) != 0 && !strstr(is, "media"))
			run_fail(t, "%s of %.300s is: %s; it was: %s", list[i], key, is, was);
	}
}

/* The answers about one key that the master remembers. */
static void compare_answers(struct run *t, const struct look *now, const char *index, const char *key)
{
	const char *stat = look_at(now, "stat %s", key), *exist = look_at(now, "exist %s", key), *was;
	enum answer want = expected(t, now, copies_of(index));
	int r, e;

	if (!stat)
		run_fail(t, "%.300s is in the index, but the test did not put it", key);
	r = strncmp(stat, "error=", 6) ? 0 : atoi(stat + 6);
	e = atoi(exist);
	if (r != (want == READABLE ? 0 : want == AWAITED ? -MC_ENOTREADY : -MC_ENOOBJECT) ||
	    e != (want == READABLE ? 1 : want == AWAITED ? -MC_ENOTREADY : 0))
		run_fail(t, "%.300s: stat %.200s, exist %d, but its copies are%s", key, stat, e, copies_of(index));
	was = look_at(&t->was, "stat %s", key);
	if (!r && strncmp(was, "error=", 6) != 0 && strcmp(stat, was) != 0)
		run_fail(t, "stat of %.300s is: %.300s; it was: %.300s", key, stat, was);
	compare_entries(t, now, key, want);
}

/* Segments of memory and disks keep their size, their identity and the bytes of objects.  Ranges of unfinished puts
 * stay set aside; ranges that only a reader's pin kept are free after a restart. */
static void compare_segment(struct run *t, const struct look *now, const char *was, unsigned number)
{
	const char *is = look_at(now, "segment %u", number);
	size_t same = (size_t)(strstr(was, " state=") - was);
	uint64_t bytes = 0;

	if (!is) {
		if (!t->forgotten)
			run_fail(t, "segment %u is gone: %s", number, was);
		return;
	}
	if (strncmp(is, was, same) != 0 ||
	    (!t->moves && look_number(is, "draining=") != look_number(was, "draining=")))
		run_fail(t, "segment %u is: %s; it was: %s", number, is, was);
	for (size_t i = 0; i < now->n; i++) {
		if (strncmp(now->line[i], "index ", 6) != 0)
			continue;
		for (const char *c = copies_of(now->line[i]); c && *c; c = strchr(c + 1, ' '))
			if ((unsigned)strtoul(c + 1, NULL, 10) == number)
				bytes += strtoull(strchr(c, '+') + 1, NULL, 10) << MCM_GRANULE_SHIFT;
	}
	if (look_number(is, "used=") < bytes || look_number(is, "used=") > look_number(was, "used="))
		run_fail(t, "segment %u is: %s; it was: %s; objects have %llu bytes", number, is, was,
			 (unsigned long long)bytes);
	if (t->forgotten && look_number(is, "used=") != bytes)
		run_fail(t, "segment %u is: %s, but its objects have %llu bytes, and all writers are fenced", number,
			 is, (unsigned long long)bytes);
}

/* Tenants keep their numbers and quotas; unfinished puts are charged no more after a restart. */
static void compare_tenant(struct run *t, const struct look *now, const char *was, const char *name)
{
	const char *is = look_at(now, "tenant %s", name);

	if (!is)
		run_fail(t, "tenant %s is gone", name);
	if (look_number(is, "number=") != look_number(was, "number=") ||
	    look_number(is, "requested=") != look_number(was, "requested=") ||
	    look_number(is, "objects=") > look_number(was, "objects=") ||
	    look_number(is, "charged=") > look_number(was, "charged="))
		run_fail(t, "tenant %s is: %s; it was: %s", name, is, was);
	if (!t->pressed && !t->sweeping && !t->forgotten && look_number(is, "objects=") != look_number(was, "objects="))
		run_fail(t, "tenant %s is: %s; it was: %s", name, is, was);
}

static void compare_line(struct run *t, const struct look *now, const char *line)
{
	static char subject[MCP_KEY_MAX + 64];
	size_t len = strcspn(line, "\t");
	const char *was = line + len + 1, *is;

	snprintf(subject, sizeof(subject), "%.*s", (int)len, line);
	if (!strncmp(subject, "index ", 6))
		compare_index(t, now, was, subject + 6);
	else if (!strncmp(subject, "segment ", 8))
		compare_segment(t, now, was, (unsigned)atoi(subject + 8));
	else if (!strncmp(subject, "tenant ", 7))
		compare_tenant(t, now, was, subject + 7);
	/* Tasks that have ended are not kept; the effect of a drain is in its segment's line. */
	else if (!strncmp(subject, "task ", 5) && look_number(was, "status=") <= MCP_TASK_RUNNING &&
		 !look_at(now, "%s", subject))
		run_fail(t, "%s is gone: %s", subject, was);
	else if (!strncmp(subject, "count ", 6)) {
		is = look_at(now, "%s", subject);
		/* Objects and segments may be dropped by the rules above. */
		if (strcmp(is, was) != 0 && !((t->forgotten || t->pressed || t->sweeping) &&
					      strcmp(subject, "count pool") != 0) &&
		    /* A drain that goes on leaves less room. */
		    !(t->moves && !strcmp(subject, "count largest_put")))
			run_fail(t, "%s is %s, it was %s", subject, is, was);
	}
}

/* Keys that had no value must have none. */
static void compare_missing(struct run *t, const struct look *now)
{
	for (size_t i = 0; i < now->n; i++) {
		static char key[MCP_KEY_MAX + 64];
		const char *line = now->line[i];

		if (!strncmp(line, "index ", 6)) {
			snprintf(key, sizeof(key), "%.*s", (int)(strcspn(line, "\t") - 6), line + 6);
			if (!look_at(&t->was, "index %s", key))
				run_fail(t, "a key without a value has one: %.600s", line);
			compare_answers(t, now, line, key);
		} else if (!strncmp(line, "exist ", 6) && !strstr(line, "\t0")) {
			snprintf(key, sizeof(key), "%.*s", (int)(strcspn(line, "\t") - 6), line + 6);
			if (!look_at(now, "index %s", key))
				run_fail(t, "a key that is not in the index exists: %.300s", line);
		}
	}
}

static void compare(struct run *t, const char *when)
{
	struct look now;

	t->when = when;
	fx_check(&t->st.fx);
	look_take(&t->st.fx, t->st.key, t->st.keys, HAS(&t->st, TENANTS), &now);
	compare_missing(t, &now);
	for (size_t i = t->was.n; i--;)
		compare_line(t, &now, t->was.line[i]);
	look_free(&now);
}

/* ---- the life of a master ---- */

static bool returns(enum fate f)
{
	return f == BACK || f == SILENT_BACK || f == OTHER_MEMORY;
}

/* The answers to compare with. */
static void remember(struct run *t)
{
	look_free(&t->was);
	look_take(&t->st.fx, t->st.key, t->st.keys, HAS(&t->st, TENANTS), &t->was);
	t->pressed = false;
	for (unsigned i = 0; i < t->st.fx.m->segments.n_live; i++) {
		const struct mcm_segment *s = t->st.fx.m->segments.at[t->st.fx.m->segments.live[i]];

		t->pressed |= (double)s->used > 0.90 * (double)s->size;
	}
	t->sweeping = false;
	for (size_t i = 0; i < t->was.n; i++) {
		const char *copies = strncmp(t->was.line[i], "index ", 6) ? "" : copies_of(t->was.line[i]);

		t->sweeping |= *copies && !*copies_left(&t->was, copies);
	}
}

/* Objects in memory that an owner has lost are gone at once: compare with the others. */
static void owners_lose(struct run *t)
{
	bool lost = false;

	for (unsigned i = 0; i < OWNERS; i++) {
		if (t->st.fate[i] != OTHER_MEMORY)
			continue;
		t->st.epoch[i]++;
		state_mount(&t->st, i);
		t->st.fate[i] = BACK;
		lost = true;
	}
	while (lost && mcm_evict_background(t->st.fx.m))
		;
	if (lost)
		remember(t);
}

static void owners_return(struct run *t)
{
	struct state *st = &t->st;

	st->writer = fx_session(&st->fx, 3);
	st->reader = fx_session(&st->fx, 4);
	for (unsigned i = 0; i < OWNERS; i++) {
		if (!returns(st->fate[i]))
			continue;
		st->owner[i] = fx_session(&st->fx, i + 1);
		if (st->fate[i] != OTHER_MEMORY)
			state_mount(st, i);
	}
}

/* Let time pass; a failure names it. */
static void pass(struct run *t, uint64_t ms, const char *until)
{
	t->when = until;
	state_advance(&t->st, ms);
}

/* One master from its start to its end.  @brief: it ends before any owner returns. */
static void life(struct run *t, bool brief)
{
	struct state *st = &t->st;

	master_start(t);
	compare(t, "before the owners return");
	if (brief)
		return;
	owners_return(t);
	compare(t, "when the owners have returned");
	owners_lose(t);
	feed_pump(t);
	t->moves = true;
	pass(t, 5000, "grace period");
	compare(t, "after the grace period");
	pass(t, st->fx.conf.client_ttl + 1000, "client_ttl");
	t->awaits = false;
	compare(t, "after client_ttl");
	if (t->starts < 2)
		return;
	/* Leases, unfinished puts and soft pins end, owners that do not return are forgotten, writers are fenced. */
	pass(t, st->fx.conf.client_forget_ttl + 60000, "all durations");
	fx_confirm(&st->fx);
	state_advance(st, 1000);
	t->forgotten = true;
	compare(t, "after all durations");
}

/* The master works. */
static void lives(struct run *t)
{
	struct state *st = &t->st;
	char name[24];
	int r;

	snprintf(name, sizeof(name), "later%u/", t->starts);
	st->key[st->keys++].name = strdup(name);
	r = state_put(st, name, 0, MCP_KIND_DIR, MCP_PUT_COMMIT);
	t->when = "new put";
	/* The share of a tenant's quota shrinks with the pool. */
	if (r < 0 && !(r == -MC_ENOSPACE && HAS(st, LIMIT)) && !(r == -MC_EQUOTA && HAS(st, TENANTS)))
		run_fail(t, "%s", mc_err_detail(r));
}

static void run_state(struct run *t)
{
	struct state *st = &t->st;

	rnd_seed(st->seed * 7 + 1);
	mc_clock_fake(1000 * MC_NS_PER_SEC);
	memset(&st->fx, 0, sizeof(st->fx));
	assert_int_equal(mcm_conf_defaults(&st->fx.conf, &st->fx.options), 0);
	state_tune(st, &st->fx.conf);
	dir_clear(dirs[0]);
	dir_clear(dirs[1]);
	t->dir = 0;
	st->fx.conf.journal_dir = dirs[0];
	assert_int_equal(mcm_core_new(&st->fx.conf, &st->fx.m), 0);
	st->fx.s = fx_session(&st->fx, 1);
	feed_open(t);
	t->when = "first master";
	state_make(st);
	fx_check(&st->fx);
	remember(t);
	master_stop(t);
	for (unsigned i = 0; i < 3; i++) {
		bool brief = rnd() % 4 == 0 && t->starts != 1;

		life(t, brief);
		if (!brief && t->starts >= 2)
			lives(t);
		if (!brief)
			remember(t);
		t->stop = t->stop == FAILOVER ? FAILOVER : (enum stop)(rnd() % STOPS);
		master_stop(t);
	}
	mc_options_free(st->fx.options);
	state_free_keys(st);
	look_free(&t->was);
	mc_clock_real();
}

/* A seed below PARTS * STOPS: one part; then random sets. */
static void run_seed(uint64_t seed)
{
	static struct run t;

	t = (struct run){ .st.seed = seed };
	running = &t;
	rnd_seed(seed + 1);
	for (unsigned i = 0; i < 10; i++)
		(void)rnd();
	t.stop = (enum stop)(seed % STOPS);
	if (seed < PARTS * STOPS) {
		t.st.parts = 1u << seed / STOPS;
	} else {
		t.st.parts = (uint32_t)(rnd() & rnd()) & ((1u << PARTS) - 1);
		for (unsigned i = 0; i < OWNERS; i++)
			t.st.fate[i] = (enum fate)(rnd() % 2 ? BACK : rnd() % (UNMOUNTED + 1));
		t.st.defaults = rnd() % 16 == 0;
	}
	run_state(&t);
	running = NULL;
}

static void a_master_starts_in_every_state(void **state)
{
	const char *seed = getenv("STATES_SEED"), *runs = getenv("STATES_RUNS");
	uint64_t n = PARTS * STOPS + (runs ? strtoull(runs, NULL, 10) : RUNS);

	(void)state;
	if (seed) {
		/* Some memory of the process is initialized by its first master, with random numbers. */
		run_seed(0);
		run_seed(strtoull(seed, NULL, 10));
		return;
	}
	for (uint64_t i = 0; i < n; i++)
		run_seed(i);
	print_message("%llu states\n", (unsigned long long)n);
}

static int dirs_make(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		strcpy(dirs[i], "/tmp/mc-states.XXXXXX");
		if (!mkdtemp(dirs[i]))
			return -1;
	}
	return 0;
}

static int dirs_remove(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		dir_clear(dirs[i]);
		rmdir(dirs[i]);
	}
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_master_starts_in_every_state, run_report),
	};

	return cmocka_run_group_tests(tests, dirs_make, dirs_remove);
}
