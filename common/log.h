/* SPDX-License-Identifier: Apache-2.0
 * log.h - the log.  A line is lower case: the failed action and its exact cause, then key=value pairs:
 *
 *	mc_warn("segment", "owner is silent, keeping its objects segment=%s silent_ms=%llu", ...)
 *
 * err: an operator must act; warn: degraded, the text says what continues; info: lifecycle, a few a
 * minute; debug: per object; trace: per I/O.  Keys of users appear only at debug.  A call site
 * writes at most one line a second: the others are counted, and the next line has their number.
 *
 *	2026-11-21T08:30:00.123456Z warn segment: owner is silent silent_ms=90 suppressed=3 */
#ifndef MC_LOG_H
#define MC_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum mc_log_level { MC_LOG_ERR, MC_LOG_WARN, MC_LOG_INFO, MC_LOG_DEBUG, MC_LOG_TRACE };

struct mc_log_conf {
	const char *program;	/* name in file names; NULL: the process's */
	const char *dir;	/* NULL or "": stderr; else <dir>/<program>.INFO.<date>-<pid>.log
				 * and a link <dir>/<program>.INFO to the newest; created if absent */
	bool syslog;		/* instead of stderr, when there is no @dir */
	int to_stderr;		/* with @dir: lines of this many levels, from err on, are also written to stderr;
				 * 0: none.  mc_log_to_stderr() */
	uint64_t max_file_size;	/* rotate at this many bytes, 0: never */
	unsigned max_files;	/* rotated files of this program to keep, 0: all */
	const char *levels;	/* "info", or "info,engine=debug,master=trace"; a row for "engine"
				 * also applies to "engine.rdma" */
};

/* Open the log; may be called again to change it.  Before the first call lines of level warn and
 * above are written to stderr.  -errno when @dir cannot be written, -EINVAL for invalid @levels;
 * then the old log stays open. */
int mc_log_open(const struct mc_log_conf *conf);
void mc_log_close(void);

/* Are lines of @level of @component written?  For callers whose arguments are expensive to compute. */
bool mc_log_on(const char *component, enum mc_log_level level);

/* The flags of glog as fields of mc_log_conf.  @minloglevel, @stderrthreshold: 0 info, 1 warning, 2 error, 3 fatal
 * (only mc_log_fatal()); @v: 1 debug, 2 or more trace; other numbers are those next to them.  @log: "", or instead of
 * minloglevel and v. */
const char *mc_log_levels(int64_t minloglevel, int64_t v, const char *log);
int mc_log_to_stderr(bool alsologtostderr, int64_t stderrthreshold);

/* Level names: "err","warn","info","debug","trace" and upstream's "ERROR","WARNING","INFO" in any
 * case.  Negative for anything else. */
int mc_log_parse_level(const char *name);

struct mc_log_site {	/* one per call site, static: rate limit */
	uint64_t next_ns;
	uint32_t suppressed;
};
void mc_log_write(struct mc_log_site *site, const char *component, enum mc_log_level level,
		  const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* For the end of a program after a failure: "@program: TEXT" on stderr, and a line of level err in the log
 * if the log is not stderr. */
void mc_log_fatal(const char *program, const char *component, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define mc_log(component, level, ...) do { \
	static struct mc_log_site mc_log_here; \
	if (mc_log_on(component, level)) \
		mc_log_write(&mc_log_here, component, level, __VA_ARGS__); \
} while (0)
#define mc_err(component, ...) mc_log(component, MC_LOG_ERR, __VA_ARGS__)
#define mc_warn(component, ...) mc_log(component, MC_LOG_WARN, __VA_ARGS__)
#define mc_info(component, ...) mc_log(component, MC_LOG_INFO, __VA_ARGS__)
#define mc_debug(component, ...) mc_log(component, MC_LOG_DEBUG, __VA_ARGS__)
#define mc_trace(component, ...) mc_log(component, MC_LOG_TRACE, __VA_ARGS__)

#endif
