/* SPDX-License-Identifier: Apache-2.0
 * log.c - levels, formatting of lines, log files and their rotation. */
#include <config.h>

#include "common/log.h"
#include "common/sys/lock.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/process/fork.h"
#include "common/sys/clock.h"

#define LINE_SIZE 2048
#define COMPONENTS_MAX 32

static const char *const level_names[] = { "err", "warn", "info", "debug", "trace" };

struct levels {
	int other;		/* level of components without a row */
	unsigned n;
	struct {
		char component[24];
		int level;
	} rows[COMPONENTS_MAX];
};

static struct {
	/* Read without the lock, to reject lines quickly. */
	atomic_int most;	/* the highest level of any component */
	atomic_int other;
	atomic_uint n_rows;
	/* guarded by lock */
	struct mc_mutex lock;
	struct levels levels;
	int fd;			/* -1: stderr, or syslog */
	bool syslog;
	int to_stderr;
	char dir[PATH_MAX], program[64];
	uint64_t size, max_size;
	unsigned max_files;
} the_log = {
	.most = MC_LOG_WARN, .other = MC_LOG_WARN, .lock = MC_MUTEX_INIT,
	.levels.other = MC_LOG_WARN, .fd = -1,
};
MC_FORK_KEEP(the_log.lock, MC_FORK_LOG)

int mc_log_parse_level(const char *name)
{
	for (int i = 0; i < (int)(sizeof(level_names) / sizeof(level_names[0])); i++)
		if (!strcasecmp(name, level_names[i]))
			return i;
	if (!strcasecmp(name, "error") || !strcasecmp(name, "fatal"))
		return MC_LOG_ERR;
	if (!strcasecmp(name, "warning"))
		return MC_LOG_WARN;
	return mc_fail(-EINVAL, "invalid log level \"%s\": not err, warn, info, debug or trace", name);
}

const char *mc_log_levels(int64_t minloglevel, int64_t v, const char *log)
{
	if (*log)
		return log;
	if (v > 0)
		return v == 1 ? "debug" : "trace";
	return minloglevel <= 0 ? "info" : minloglevel == 1 ? "warn" : "err";
}

int mc_log_to_stderr(bool alsologtostderr, int64_t stderrthreshold)
{
	if (alsologtostderr || stderrthreshold <= 0)
		return MC_LOG_TRACE + 1;
	return stderrthreshold > 2 ? 0 : stderrthreshold == 1 ? MC_LOG_WARN + 1 : MC_LOG_ERR + 1;
}

static int parse_level_part(char *part, struct levels *to)
{
	char *eq = strchr(part, '=');
	int level;

	if (eq)
		*eq = '\0';
	level = mc_log_parse_level(eq ? eq + 1 : part);
	if (level < 0)
		return level;
	if (!eq) {
		to->other = level;
		return 0;
	}
	if (to->n == COMPONENTS_MAX)
		return mc_fail(-EINVAL, "more than %d components in the log levels", COMPONENTS_MAX);
	if (!*part || strlen(part) >= sizeof(to->rows[0].component))
		return mc_fail(-EINVAL, "invalid component in the log levels: \"%s\"", part);
	strcpy(to->rows[to->n].component, part);
	to->rows[to->n++].level = level;
	return 0;
}

static int parse_levels(const char *s, struct levels *to)
{
	auto_free char *copy = strdup(s ? s : "");
	char *rest = copy, *part;
	int r;

	if (!copy)
		return mc_fail(-ENOMEM, "no memory for the log levels");
	memset(to, 0, sizeof(*to));
	to->other = MC_LOG_INFO;
	while (*copy && (part = strsep(&rest, ","))) {
		r = parse_level_part(part, to);
		if (r < 0)
			return r;
	}
	return 0;
}

static void install_levels(const struct levels *from)
{
	int most = from->other;

	for (unsigned i = 0; i < from->n; i++)
		if (from->rows[i].level > most)
			most = from->rows[i].level;
	the_log.levels = *from;
	atomic_store(&the_log.most, most);
	atomic_store(&the_log.other, from->other);
	atomic_store(&the_log.n_rows, from->n);
}

/* The level of the row for "engine.rdma", else for "engine", else that of other components. */
static int level_of(const char *component)
{
	const struct levels *l = &the_log.levels;
	int level = l->other;
	size_t best = 0;

	for (unsigned i = 0; i < l->n; i++) {
		size_t len = strlen(l->rows[i].component);

		if (len > best && !strncmp(component, l->rows[i].component, len) &&
		    (component[len] == '\0' || component[len] == '.')) {
			best = len;
			level = l->rows[i].level;
		}
	}
	return level;
}

bool mc_log_on(const char *component, enum mc_log_level level)
{
	if ((int)level > atomic_load_explicit(&the_log.most, memory_order_relaxed))
		return false;
	if (atomic_load_explicit(&the_log.n_rows, memory_order_relaxed) == 0)
		return (int)level <= atomic_load_explicit(&the_log.other, memory_order_relaxed);
	MC_LOCKED(&the_log.lock);
	return (int)level <= level_of(component);
}

static void log_utc(uint64_t wall_ns, struct tm *tm, unsigned *us)
{
	time_t sec = (time_t)(wall_ns / MC_NS_PER_SEC);

	gmtime_r(&sec, tm);
	*us = (unsigned)(wall_ns % MC_NS_PER_SEC / 1000);
}

/* ---- files ---- */

static bool is_ours(const char *name, const char *program)
{
	size_t p = strlen(program), n = strlen(name);

	return n > p + 10 && !strncmp(name, program, p) && !strncmp(name + p, ".INFO.", 6) &&
	       isdigit((unsigned char)name[p + 6]) && !strcmp(name + n - 4, ".log");
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Remove @name unless a process still writes to it: a writer has a shared lock on its file. */
static bool remove_if_idle(int dirfd, const char *name)
{
	auto_close int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd >= 0 && !flock(fd, LOCK_EX | LOCK_NB) && !unlinkat(dirfd, name, 0);
}

/* Names begin with the time, so the oldest file is the first in their order. */
static void log_prune(const char *dir, const char *program, unsigned keep)
{
	char **names = NULL, **more;
	struct dirent *de;
	size_t n = 0;
	DIR *d;

	d = opendir(dir);
	if (!d)
		return;
	while ((de = readdir(d))) {
		if (!is_ours(de->d_name, program))
			continue;
		more = realloc(names, (n + 1) * sizeof(*names));
		if (!more)
			break;
		names = more;
		names[n] = strdup(de->d_name);
		if (!names[n])
			break;
		n++;
	}
	if (n)
		qsort(names, n, sizeof(*names), by_name);
	for (size_t i = 0, left = n; i < n && left > keep; i++)
		if (remove_if_idle(dirfd(d), names[i]))
			left--;
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	free(names);
	closedir(d);
}

static void update_link(const char *dir, const char *program, const char *target)
{
	char tmp[PATH_MAX + 128], name[PATH_MAX + 128];

	snprintf(name, sizeof(name), "%s/%s.INFO", dir, program);
	snprintf(tmp, sizeof(tmp), "%s/.%s.INFO.%ld", dir, program, (long)getpid());
	unlink(tmp);
	if (symlink(target, tmp) < 0 || rename(tmp, name) < 0)
		unlink(tmp);
}

static int open_file(const char *dir, const char *program)
{
	char base[192], path[PATH_MAX + 256];
	uint64_t wall = mc_wall_ns();
	struct tm tm;
	unsigned us;
	int fd;

	/* If the name exists (a clock that does not advance), try the next microsecond. */
	for (int tries = 0; tries < 1000; tries++, wall += 1000) {
		log_utc(wall, &tm, &us);
		snprintf(base, sizeof(base), "%s.INFO.%04d%02d%02d-%02d%02d%02d.%06u-%ld.log",
			 program, tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
			 tm.tm_min, tm.tm_sec, us, (long)getpid());
		snprintf(path, sizeof(path), "%s/%s", dir, base);
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644);
		if (fd >= 0) {
			(void)flock(fd, LOCK_SH);
			update_link(dir, program, base);
			return fd;
		}
		if (errno != EEXIST)
			break;
	}
	return mc_fail(-errno, "cannot write the log %s: %s", path, mc_strerror(errno));
}

static void log_rotate(void)
{
	int fd = open_file(the_log.dir, the_log.program);

	/* If there is no new file, continue with the old one: better than losing lines. */
	the_log.size = 0;
	if (fd < 0)
		return;
	close(the_log.fd);
	the_log.fd = fd;
	if (the_log.max_files)
		log_prune(the_log.dir, the_log.program, the_log.max_files + 1);
}

/* Create the directory if only its last part is absent. */
static int make_dir(const char *dir)
{
	if (mkdir(dir, 0755) == 0 || errno == EEXIST)
		return 0;
	return mc_fail(-errno, "cannot create the directory of the log %s: %s", dir, mc_strerror(errno));
}

int mc_log_open(const struct mc_log_conf *conf)
{
	const char *program = conf->program ? conf->program : program_invocation_short_name;
	auto_free struct levels *levels = malloc(sizeof(*levels));
	bool to_file = conf->dir && *conf->dir;
	int r, fd = -1;

	if (!levels)
		return mc_fail(-ENOMEM, "no memory for the log");
	r = parse_levels(conf->levels, levels);
	if (r < 0)
		return r;
	if (to_file && (strlen(conf->dir) >= sizeof(the_log.dir) || strchr(program, '/') ||
			strlen(program) >= sizeof(the_log.program)))
		return mc_fail(-ENAMETOOLONG, "cannot write the log %s/%s.INFO: invalid name",
			       conf->dir, program);
	if (to_file) {
		r = make_dir(conf->dir);
		fd = r < 0 ? r : open_file(conf->dir, program);
		if (fd < 0)
			return fd;
	}

	MC_LOCKED(&the_log.lock);
	if (the_log.fd >= 0)
		close(the_log.fd);
	the_log.fd = fd;
	the_log.syslog = conf->syslog && !to_file;
	the_log.to_stderr = to_file ? conf->to_stderr : 0;
	the_log.size = 0;
	the_log.max_size = conf->max_file_size;
	the_log.max_files = conf->max_files;
	if (to_file) {
		strcpy(the_log.dir, conf->dir);
		strcpy(the_log.program, program);
		if (conf->max_files)
			log_prune(conf->dir, program, conf->max_files + 1);
	}
	install_levels(levels);
	return 0;
}

void mc_log_close(void)
{
	static const struct levels initial = { .other = MC_LOG_WARN };

	MC_LOCKED(&the_log.lock);
	if (the_log.fd >= 0)
		close(the_log.fd);
	the_log.fd = -1;
	the_log.syslog = false;
	install_levels(&initial);
}

/* ---- lines ---- */

/* May this call site write a line now?  *ret_suppressed: number of lines dropped since its last one. */
static bool site_speaks(struct mc_log_site *site, uint32_t *ret_suppressed)
{
	uint64_t now = mc_now_ns();
	uint64_t next = __atomic_load_n(&site->next_ns, __ATOMIC_RELAXED);

	if (now < next || !__atomic_compare_exchange_n(&site->next_ns, &next, now + MC_NS_PER_SEC, false,
					 __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
		__atomic_fetch_add(&site->suppressed, 1, __ATOMIC_RELAXED);
		return false;
	}
	*ret_suppressed = __atomic_exchange_n(&site->suppressed, 0, __ATOMIC_RELAXED);
	return true;
}

static bool write_all(int fd, const char *p, size_t len)
{
	while (len) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

/* @text: offset in the line behind its time and level, which syslog adds itself.  @shown: stderr has the text. */
static void log_emit(const char *line, size_t len, size_t text, enum mc_log_level level, bool shown)
{
	static const int priorities[] = { LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG, LOG_DEBUG };

	MC_LOCKED(&the_log.lock);
	if (the_log.syslog) {
		syslog(LOG_DAEMON | priorities[level], "%.*s", (int)(len - text - 1), line + text);
		return;
	}
	if (the_log.fd >= 0 && the_log.max_size && the_log.size && the_log.size + len > the_log.max_size)
		log_rotate();
	/* On a full disk use stderr. */
	if (the_log.fd < 0 || !write_all(the_log.fd, line, len) || ((int)level < the_log.to_stderr && !shown))
		(void)write_all(STDERR_FILENO, line, len);
	the_log.size += len;
}

static size_t line_append(char *line, size_t len, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static size_t line_clamp(size_t len, int added)
{
	if (added < 0)
		return len;
	return len + (size_t)added < LINE_SIZE ? len + (size_t)added : LINE_SIZE - 1;
}

static size_t line_append(char *line, size_t len, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line + len, LINE_SIZE - len, fmt, ap);
	va_end(ap);
	return line_clamp(len, n);
}

__attribute__((format(printf, 5, 0)))
static void log_line(struct mc_log_site *site, const char *component, enum mc_log_level level, bool shown,
		     const char *fmt, va_list ap)
{
	/* 48: space for the count and the newline behind a text of full length. */
	char line[LINE_SIZE + 48];
	int saved = errno;
	uint32_t suppressed;
	struct tm tm;
	size_t len, text;
	unsigned us;

	if (!site_speaks(site, &suppressed)) {
		errno = saved;
		return;
	}
	log_utc(mc_wall_ns(), &tm, &us);
	len = line_append(line, 0, "%04d-%02d-%02dT%02d:%02d:%02d.%06uZ %s %s: ", tm.tm_year + 1900,
		     tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, us,
		     level_names[level], component);
	text = len;
	errno = saved;
	len = line_clamp(len, vsnprintf(line + len, LINE_SIZE - len, fmt, ap));
	/* Names that a peer chose must neither forge lines nor send control codes to a terminal. */
	for (size_t i = text; i < len; i++)
		if (iscntrl((unsigned char)line[i]))
			line[i] = '?';
	if (suppressed)
		len += (size_t)sprintf(line + len, " suppressed=%u", suppressed);
	line[len++] = '\n';
	log_emit(line, len, (size_t)(strchr(strchr(line, ' ') + 1, ' ') + 1 - line), level, shown);
	errno = saved;
}

void mc_log_write(struct mc_log_site *site, const char *component, enum mc_log_level level,
		  const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	log_line(site, component, level, false, fmt, ap);
	va_end(ap);
}

void mc_log_fatal(const char *program, const char *component, const char *fmt, ...)
{
	struct mc_log_site site = { 0 };
	bool elsewhere;
	va_list ap;

	fprintf(stderr, "%s: ", program);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	mc_mutex_lock(&the_log.lock);
	elsewhere = the_log.fd >= 0 || the_log.syslog;
	mc_mutex_unlock(&the_log.lock);
	if (!elsewhere || !mc_log_on(component, MC_LOG_ERR))
		return;
	va_start(ap, fmt);
	log_line(&site, component, MC_LOG_ERR, true, fmt, ap);
	va_end(ap);
}
