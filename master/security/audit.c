/* SPDX-License-Identifier: Apache-2.0
 * audit.c - the audit log: the queue, its thread, and the limit of failures per identity. */
#include <config.h>

#include "master/security/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/file.h"
#include "common/sys/thread.h"
#include "master/security/audit_line.h"

#define LOG "audit"
#define FILE_NAME "audit.log"
#define QUEUE (512u << 10)
/* Failures per second: of one identity, and of all together, so that many addresses cannot fill a disk. */
#define BURST 10u
#define BURST_ALL 1000u
#define IDENTITIES 1024u		/* with a count of their own; a multiple of WAYS */
#define WAYS 4u
#define CLOSE_MS 2000u

MC_COUNTER(lost_lines, "mooncake_master_audit_lost_total", "", "Lines of the audit log that could not be written")
MC_COUNTER(held_back, "mooncake_master_audit_suppressed_total", "",
	   "Failures that the audit log only counted, because their identity had many")

enum target { TO_FILE, TO_STDERR, TO_SYSLOG, TO_LOG };

struct window {
	uint64_t key, begin_ms;
	unsigned count, suppressed;
};

struct mcm_audit {
	/* constant */
	enum target target;
	char *path;
	struct mc_thread thread;
	struct mc_mutex lock;
	struct mc_cond wake, end;	/* there is work; the thread has ended */
	/* guarded by lock */
	char *queue;			/* whole lines */
	size_t len;
	uint64_t lost;			/* lines since the last line about that */
	bool stopping, reopen, ended;
	bool abandoned;			/* the thread frees the log at its end */
	uint64_t written;		/* lines; atomic */
	struct window all, windows[IDENTITIES];
	/* owned by the thread */
	char *batch;
	int fd;
	bool torn;			/* the file ends within a line */
};

/* ---- the thread ---- */

static int file_open(struct mcm_audit *a)
{
	int fd = mc_file_open(a->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0600);

	if (fd < 0)
		return mc_fail(-errno, "cannot open the audit log %s: %s; name another file with --audit_log", a->path,
			       mc_strerror(errno));
	if (a->fd >= 0)
		(void)mc_file_close(a->fd);
	a->fd = fd;
	a->torn = false;
	return 0;
}

/* Has the file been renamed or removed? */
static bool file_moved(const struct mcm_audit *a)
{
	struct stat now, ours;

	if (mc_file_fstat(a->fd, &ours) < 0 || mc_file_stat(a->path, &now) < 0)
		return true;
	return now.st_ino != ours.st_ino || now.st_dev != ours.st_dev;
}

static void file_check(struct mcm_audit *a, bool asked)
{
	int r;

	if (a->target != TO_FILE || (!asked && !file_moved(a)))
		return;
	r = file_open(a);
	if (r < 0)
		mc_err(LOG, "the audit log goes on in the old file: %s", mc_err_detail(r));
}

static bool file_write(struct mcm_audit *a, const char *line, size_t len)
{
	ssize_t n;

	/* Lines of their own behind a part of one, so that readers lose only that. */
	if (a->torn && mc_file_write(a->fd, "\n", 1) != 1)
		return false;
	a->torn = false;
	n = mc_file_write(a->fd, line, len);
	if (n == (ssize_t)len)
		return true;
	a->torn = n > 0;
	mc_err(LOG, "cannot write the audit log, its lines are lost: %s file=%s",
	       n < 0 ? mc_strerror(errno) : "the disk is full", a->path);
	return false;
}

/* @line ends with a newline. */
static bool line_write(struct mcm_audit *a, const char *line, size_t len)
{
	struct mc_log_site site = { 0 };	/* a new one each time: every line counts */

	switch (a->target) {
	case TO_FILE:
		return file_write(a, line, len);
	case TO_STDERR:
		return mc_file_write(STDERR_FILENO, line, len) == (ssize_t)len;
	case TO_SYSLOG:
		syslog(LOG_AUTHPRIV | LOG_NOTICE, "%.*s", (int)len - 1, line);
		return true;
	case TO_LOG:
		if (mc_log_on(LOG, MC_LOG_INFO))
			mc_log_write(&site, LOG, MC_LOG_INFO, "%.*s", (int)len - 1, line);
		return true;
	}
	return false;
}

/* The number of lines that were lost. */
static unsigned batch_write(struct mcm_audit *a, size_t len)
{
	unsigned lost = 0;

	for (const char *at = a->batch, *end; at < a->batch + len; at = end) {
		end = (const char *)memchr(at, '\n', (size_t)(a->batch + len - at)) + 1;
		lost += !line_write(a, at, (size_t)(end - at));
		__atomic_add_fetch(&a->written, 1, __ATOMIC_RELAXED);
	}
	mc_metric_add(&lost_lines, lost);
	return lost;
}

static bool lost_write(struct mcm_audit *a, uint64_t n)
{
	char line[MCM_AUDIT_LINE];
	size_t len = mcm_audit_line_lost(line, n);

	return line_write(a, line, len);
}

static void audit_free(struct mcm_audit *a)
{
	if (a->fd >= 0)
		(void)mc_file_close(a->fd);
	mc_cond_destroy(&a->wake);
	mc_cond_destroy(&a->end);
	mc_mutex_destroy(&a->lock);
	free(a->path);
	free(a->queue);
	free(a->batch);
	free(a);
}

static void *audit_run(void *arg)
{
	struct mcm_audit *a = arg;
	uint64_t lost;
	char *full;
	bool reopen, abandoned;
	size_t len;

	mc_mutex_lock(&a->lock);
	for (;;) {
		while (!a->len && !a->reopen && !a->stopping)
			mc_cond_wait(&a->wake, &a->lock);
		if (!a->len && !a->reopen)
			break;
		len = a->len;
		a->len = 0;
		reopen = a->reopen;
		a->reopen = false;
		full = a->queue;
		a->queue = a->batch;
		a->batch = full;
		lost = a->lost;
		a->lost = 0;
		mc_mutex_unlock(&a->lock);
		file_check(a, reopen);
		lost += batch_write(a, len);
		if (lost && lost_write(a, lost))
			lost = 0;
		mc_mutex_lock(&a->lock);
		a->lost += lost;
	}
	a->ended = true;
	abandoned = a->abandoned;
	mc_cond_signal(&a->end);
	mc_mutex_unlock(&a->lock);
	if (abandoned)
		audit_free(a);
	return NULL;
}

/* ---- the queue ---- */

/* Is the failure one too many in its window? */
static bool window_full(struct window *w, uint64_t now_ms, unsigned most)
{
	if (now_ms - w->begin_ms >= 1000) {
		w->begin_ms = now_ms;
		w->count = 0;
	}
	return w->count >= most;
}

/* The window of an identity; when it is new, that of the identity that has failed least recently is used. */
static struct window *window_of_locked(struct mcm_audit *a, uint64_t key)
{
	struct window *set = &a->windows[key % (IDENTITIES / WAYS) * WAYS], *old = set;

	for (unsigned i = 0; i < WAYS; i++) {
		if (set[i].key == key)
			return &set[i];
		if (set[i].begin_ms < old->begin_ms)
			old = &set[i];
	}
	*old = (struct window){ .key = key };
	return old;
}

/* May the failure have a line?  *ret_suppressed: failures of the identity that had none. */
static bool failure_allowed_locked(struct mcm_audit *a, uint64_t key, unsigned *ret_suppressed)
{
	uint64_t now = mc_now_ms();
	struct window *w = window_of_locked(a, key);
	bool full = window_full(w, now, BURST), all_full = window_full(&a->all, now, BURST_ALL);

	if (full || all_full) {
		w->suppressed++;
		mc_metric_add(&held_back, 1);
		return false;
	}
	w->count++;
	a->all.count++;
	*ret_suppressed = w->suppressed;
	w->suppressed = 0;
	return true;
}

static uint64_t identity_key(const struct mcm_audit_event *e)
{
	const char *host = (const char *)e->peer.data;
	size_t len = e->peer.len;

	if (e->who && e->who->source == MC_PRINCIPAL_CREDENTIAL)
		return e->who->serial;
	/* Without the port, which only TLS has here; an address of IPv6 ends with a bracket before it. */
	if (len && memchr(host, ':', len) && (len < 4 || memcmp(host, "unix", 4) != 0) && host[len - 1] != ']') {
		while (len && host[len - 1] != ':')
			len--;
		len -= len > 0;
	}
	return 1 | (uint64_t)mc_hash(host, (uint32_t)len, 1) << 32 | (uint64_t)mc_hash(host, (uint32_t)len, 2);
}

void mcm_audit_write(struct mcm_audit *a, const struct mcm_audit_event *e)
{
	char line[MCM_AUDIT_LINE];
	unsigned suppressed = 0;
	bool may = true;
	size_t len;

	if (!a)
		return;
	if (e->result < 0) {
		uint64_t key = identity_key(e);

		mc_mutex_lock(&a->lock);
		may = failure_allowed_locked(a, key, &suppressed);
		mc_mutex_unlock(&a->lock);
	}
	if (!may)
		return;
	len = mcm_audit_line(line, e, suppressed);
	mc_mutex_lock(&a->lock);
	may = QUEUE - a->len >= len;
	if (may) {
		memcpy(a->queue + a->len, line, len);
		a->len += len;
	} else {
		a->lost++;
	}
	mc_cond_signal(&a->wake);
	mc_mutex_unlock(&a->lock);
	if (!may)
		mc_metric_add(&lost_lines, 1);
}

/* ---- start and end ---- */

/* Where the lines go.  False: nowhere. */
static bool audit_target(const struct mcm_conf *conf, enum target *ret, const char **ret_dir, const char **ret_file)
{
	const char *to = conf->audit_log;

	*ret_dir = "";
	*ret_file = to;
	if (!*to) {
		bool has_dir = *conf->log_dir && !conf->logtostderr;

		*ret = has_dir ? TO_FILE : TO_LOG;
		*ret_dir = conf->log_dir;
		*ret_file = FILE_NAME;
		return !strcmp(conf->security, "on");
	}
	*ret = !strcmp(to, "stderr") ? TO_STDERR : !strcmp(to, "syslog") ? TO_SYSLOG : TO_FILE;
	return strcmp(to, "off") != 0;
}

static int audit_start(struct mcm_audit *a, const char *dir, const char *file)
{
	int r;

	a->queue = malloc(QUEUE);
	a->batch = malloc(QUEUE);
	if (!a->queue || !a->batch || asprintf(&a->path, "%s%s%s", dir, *dir ? "/" : "", file) < 0) {
		a->path = NULL;
		return mc_fail(-ENOMEM, "no memory for the audit log");
	}
	r = a->target == TO_FILE ? file_open(a) : 0;
	return r < 0 ? r : mc_thread_start(&a->thread, "mc-audit", audit_run, a);
}

int mcm_audit_open(const struct mcm_conf *conf, struct mcm_audit **ret)
{
	const char *dir, *file;
	struct mcm_audit *a;
	enum target target;
	int r;

	*ret = NULL;
	if (!audit_target(conf, &target, &dir, &file))
		return 0;
	a = calloc(1, sizeof(*a));
	if (!a)
		return mc_fail(-ENOMEM, "no memory for the audit log");
	a->target = target;
	a->fd = -1;
	mc_mutex_init(&a->lock);
	mc_cond_init(&a->wake);
	mc_cond_init(&a->end);
	r = audit_start(a, dir, file);
	if (r < 0) {
		audit_free(a);
		return r;
	}
	*ret = a;
	return 0;
}

void mcm_audit_reopen(struct mcm_audit *a)
{
	if (!a)
		return;
	mc_mutex_lock(&a->lock);
	a->reopen = true;
	mc_cond_signal(&a->wake);
	mc_mutex_unlock(&a->lock);
}

/* False: the thread has written nothing for that time. */
static bool audit_await_end_locked(struct mcm_audit *a)
{
	uint64_t written = __atomic_load_n(&a->written, __ATOMIC_RELAXED), now;

	while (!a->ended) {
		if (mc_cond_wait_until(&a->end, &a->lock, mc_deadline_ms(CLOSE_MS)) == 0)
			continue;
		now = __atomic_load_n(&a->written, __ATOMIC_RELAXED);
		if (now == written)
			return a->ended;
		written = now;
	}
	return true;
}

void mcm_audit_close(struct mcm_audit *a)
{
	struct mc_thread thread;
	bool ended;

	if (!a)
		return;
	mc_mutex_lock(&a->lock);
	thread = a->thread;
	a->stopping = true;
	mc_cond_signal(&a->wake);
	ended = audit_await_end_locked(a);
	a->abandoned = !ended;
	mc_mutex_unlock(&a->lock);
	if (ended) {
		mc_thread_join(thread);
		audit_free(a);
		return;
	}
	mc_thread_detach(thread);
	mc_err(LOG, "the audit log takes no lines: the last ones are lost at the end of this process");
}
