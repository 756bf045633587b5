/* SPDX-License-Identifier: Apache-2.0
 * fault.c - parsing and execution of the active fault points. */
#include <config.h>

#include "common/fault.h"
#include "common/sys/lock.h"
#include "common/sys/process.h"
#include "common/sys/random.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/err.h"
#include "common/process/fork.h"

#define SET_MAX 64		/* points in a set */
#define POINT_MAX 64		/* bytes of a name, with the NUL */
#define FILE_MAX 128
#define DELAY_MAX_MS 3600000

enum action { ACTION_KILL, ACTION_STOP, ACTION_DELAY, ACTION_ERROR };

struct entry {
	char point[POINT_MAX];
	enum action action;
	int arg;		/* milliseconds or negative error */
	long nth;		/* only at this hit; 0: not limited */
	int percent;		/* share of the hits; 0: not limited */
	char file[FILE_MAX];	/* only while it exists; "": not limited */
	long hits;
};

bool mc_faults_on;

static struct mc_mutex lock = MC_MUTEX_INIT;
MC_FORK_KEEP(lock, MC_FORK_LEAF)
static struct entry set[SET_MAX];	/* with the lock held */
static unsigned set_n;

static int parse_number(const char *s, long min, long max, long *ret)
{
	char *end;
	long v;

	if (*s < '0' || *s > '9')
		return -EINVAL;
	errno = 0;
	v = strtol(s, &end, 10);
	if (errno || *end || v < min || v > max)
		return -EINVAL;
	*ret = v;
	return 0;
}

/* "EIO", "MC_ENOSPACE", "5". */
static int parse_error(const char *s, int *ret)
{
	static const struct {
		const char *name;
		int value;
	} own[] = {
#define MC_ERR(name, value, upstream, err, text) { #name, value },
#include "common/errno.def"
#undef MC_ERR
	};
	long v;

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (!strcmp(own[i].name, s)) {
			*ret = -own[i].value;
			return 0;
		}
	for (int e = 1; e < 200; e++) {
		const char *name = strerrorname_np(e);

		if (name && !strcmp(name, s)) {
			*ret = -e;
			return 0;
		}
	}
	if (parse_number(s, 1, 4095, &v))
		return -EINVAL;
	*ret = (int)-v;
	return 0;
}

/* "@3", "%50", "?/tmp/file" */
static int parse_limit(const char *s, struct entry *e)
{
	bool nth = *s == '@';
	long v;

	if (*s == '?') {
		if (!s[1] || strlen(s + 1) >= FILE_MAX)
			return -EINVAL;
		strcpy(e->file, s + 1);
		return 0;
	}
	if (parse_number(s + 1, 1, nth ? INT32_MAX : 100, &v))
		return -EINVAL;
	if (nth)
		e->nth = v;
	else
		e->percent = (int)v;
	return 0;
}

static int parse_action(char *s, struct entry *e)
{
	char *limit = strpbrk(s, "@%?");
	long v;

	if (limit) {
		if (parse_limit(limit, e))
			return -EINVAL;
		*limit = '\0';
	}
	if (!strcmp(s, "kill")) {
		e->action = ACTION_KILL;
	} else if (!strcmp(s, "stop")) {
		e->action = ACTION_STOP;
	} else if (!strncmp(s, "delay:", 6)) {
		e->action = ACTION_DELAY;
		if (parse_number(s + 6, 0, DELAY_MAX_MS, &v))
			return -EINVAL;
		e->arg = (int)v;
	} else if (!strncmp(s, "error:", 6)) {
		e->action = ACTION_ERROR;
		return parse_error(s + 6, &e->arg);
	} else {
		return -EINVAL;
	}
	return 0;
}

static int parse_entry(const char *text, struct entry *e)
{
	auto_free char *copy = strdup(text);
	char *eq;

	if (!copy)
		return mc_fail(-ENOMEM, "no memory for fault points");
	memset(e, 0, sizeof(*e));
	eq = strchr(copy, '=');
	if (!eq || eq == copy || eq - copy >= POINT_MAX)
		return mc_fail(-EINVAL, "fault point \"%s\" is not point=action", text);
	*eq = '\0';
	strcpy(e->point, copy);
	if (parse_action(eq + 1, e))
		return mc_fail(-EINVAL, "fault point \"%s\": the action is kill, stop, delay:MS or "
			       "error:ERRNO, then @N, %%P or ?FILE", text);
	return 0;
}

int mc_fault_set(const char *spec)
{
	auto_free struct entry *parsed = calloc(SET_MAX, sizeof(*parsed));
	auto_free char *copy = strdup(spec ? spec : "");
	char *rest = copy, *part;
	unsigned n = 0;
	int r;

	if (!parsed || !copy)
		return mc_fail(-ENOMEM, "no memory for fault points");
	while (*copy && (part = strsep(&rest, ","))) {
		if (n == SET_MAX)
			return mc_fail(-EINVAL, "more than %d fault points", SET_MAX);
		r = parse_entry(part, &parsed[n]);
		if (r < 0)
			return r;
		n++;
	}

	MC_LOCKED(&lock);
	memcpy(set, parsed, n * sizeof(*parsed));
	set_n = n;
	__atomic_store_n(&mc_faults_on, n > 0, __ATOMIC_RELAXED);
	return 0;
}

long mc_fault_hits(const char *point)
{
	MC_LOCKED(&lock);
	for (unsigned i = 0; i < set_n; i++)
		if (!strcmp(set[i].point, point))
			return set[i].hits;
	return -ENOENT;
}

static bool entry_strikes(struct entry *e)
{
	e->hits++;
	if (*e->file && access(e->file, F_OK))
		return false;
	if (e->nth)
		return e->hits == e->nth;
	return !e->percent || mc_random_u64() % 100 < (uint64_t)e->percent;
}

int mc_fault_slow(const char *point)
{
	int delay = 0, err = 0, sig = 0;

	/* Decide with the lock, act without it: a delayed thread must not stop the others. */
	mc_mutex_lock(&lock);
	for (unsigned i = 0; i < set_n; i++) {
		struct entry *e = &set[i];

		if (strcmp(e->point, point) || !entry_strikes(e))
			continue;
		if (e->action == ACTION_DELAY)
			delay += e->arg;
		else if (e->action == ACTION_ERROR && !err)
			err = e->arg;
		else if (e->action == ACTION_KILL)
			sig = SIGKILL;
		else if (e->action == ACTION_STOP && !sig)
			sig = SIGSTOP;
	}
	mc_mutex_unlock(&lock);

	if (delay)
		mc_sleep_ms((uint64_t)delay);
	if (sig)
		kill(getpid(), sig);
	return err ? mc_fail(err, "fault point %s: %s", point, mc_strerror(err)) : 0;
}

/* End the process if MC_FAULTS is invalid: otherwise a test would pass without having tested anything. */
__attribute__((constructor)) static void faults_from_environment(void)
{
	const char *spec = getenv("MC_FAULTS");

	if (!spec || !mc_fault_set(spec))
		return;
	dprintf(STDERR_FILENO, "MC_FAULTS: %s\n", mc_err_detail(-EINVAL));
	mc_process_end(2);
}
