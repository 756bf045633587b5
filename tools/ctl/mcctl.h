/* SPDX-License-Identifier: Apache-2.0
 * mcctl.h - declarations shared by the commands of mcctl. */
#ifndef MCCTL_H
#define MCCTL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <mooncake/mcs.h>

#include "common/options/options.h"

/* Exit status; the higher one of several wins.  health has its own meaning of 1 and 2. */
enum mcctl_status {
	MCCTL_OK = 0,
	MCCTL_NO = 1,		/* the store refused: no such object, already exists, is being read */
	MCCTL_USAGE = 2,
	MCCTL_FAILED = 3,	/* failed: no master, time-out, transfer, local file */
};

struct mcctl_conf {
#define OPT(commands, ...) MC_OPT_FIELD(__VA_ARGS__)
#include "tools/ctl/mcctl.def"
#undef OPT
};

struct mcctl {
	const struct mcctl_conf *conf;
	mcs_t *store;		/* NULL for commands that do not connect */
	bool local;		/* the pool is that of "mcfs --standalone": its master has no HTTP server */
	int argc;		/* arguments after the command */
	const char **argv;
};

/* The commands.  They print, and return an exit status. */
int mcctl_ls(struct mcctl *c);
int mcctl_stat(struct mcctl *c);
int mcctl_get(struct mcctl *c);
int mcctl_put(struct mcctl *c);
int mcctl_rm(struct mcctl *c);
int mcctl_mv(struct mcctl *c);
int mcctl_df(struct mcctl *c);
int mcctl_health(struct mcctl *c);
int mcctl_drain(struct mcctl *c);
int mcctl_evict(struct mcctl *c);
int mcctl_copy(struct mcctl *c);
int mcctl_move(struct mcctl *c);
int mcctl_offload(struct mcctl *c);
int mcctl_promote(struct mcctl *c);
int mcctl_rebalance(struct mcctl *c);
int mcctl_tasks(struct mcctl *c);
int mcctl_tenants(struct mcctl *c);
int mcctl_whatif(struct mcctl *c);
int mcctl_quota(struct mcctl *c);
int mcctl_watch(struct mcctl *c);
int mcctl_top(struct mcctl *c);
int mcctl_doctor(struct mcctl *c);
int mcctl_quarantine(struct mcctl *c);
int mcctl_snapshot(struct mcctl *c);
int mcctl_nof(struct mcctl *c);
int mcctl_import(struct mcctl *c);
int mcctl_failover(struct mcctl *c);
int mcctl_credential(struct mcctl *c);

/* Connect to the pool, not through a daemon: the command may be used to diagnose that.  As mcs_open(). */
int mcctl_open(const struct mcctl_conf *conf, int64_t timeout_ms, mcs_t **ret);

/* ---- mcctl_error.c ---- */

/* Print "mcctl: <@fmt>: <reason>" and advice; returns the exit status. */
enum mcctl_status mcctl_error(int64_t err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The same for an error that is not the store's; returns @status, MCCTL_USAGE or MCCTL_FAILED. */
enum mcctl_status mcctl_complain(enum mcctl_status status, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- mcctl_key.c: keys as text ----
 *
 * A key is shown unchanged except for control bytes, which are shown as '%' and two hexadecimal digits.  If the
 * key itself contains such a sequence (or that of a byte from 80 to FF), a "25" is inserted after its '%';
 * if it contains "%25" before the digits, one more "25" is inserted.  So every text means exactly one key. */

/* Decode a key from an argument; free() *ret.  0, or the exit status after a message. */
enum mcctl_status mcctl_key_parse(const struct mcctl *c, const char *arg, struct mcs_key *ret);
/* The same for a prefix, which may be empty. */
enum mcctl_status mcctl_prefix_parse(const struct mcctl *c, const char *arg, struct mcs_key *ret);
void mcctl_key_free(struct mcs_key *key);

/* A key as NUL-terminated text, or its bytes with @raw; free() it.  NULL: out of memory. */
char *mcctl_key_text(bool raw, struct mcs_key key, size_t *ret_len);
/* Write it to @to. */
void mcctl_key_print(bool raw, struct mcs_key key, FILE *to);
/* As a JSON string.  JSON requires UTF-8, so other bytes are escaped even with --raw. */
json_t *mcctl_key_json(struct mcs_key key);

/* ---- mcctl_print.c ---- */

/* Print and free a JSON value.  MCCTL_OK, or MCCTL_FAILED when memory ran out. */
enum mcctl_status mcctl_json_print(json_t *j);
const char *mcctl_kind_name(enum mcs_kind kind);
/* Name of a set of MCS_IN_MEMORY, MCS_IN_FAR_MEMORY, MCS_ON_DISK and MCS_ON_SHARED; static. */
const char *mcctl_tier_name(unsigned media);
/* "2026-11-21 08:30:00" in local time; returns @buf. */
/* A serial number as in lists; returns @ret. */
const char *mcctl_serial_text(uint64_t serial, char ret[17]);
const char *mcctl_time_text(uint64_t ms, char *buf, size_t len);

/* ---- mcctl_progress.c: a bar on the terminal ---- */

struct mcctl_progress {
	const char *what;
	bool shown;		/* standard error is a terminal */
	uint64_t total;		/* 0: unknown */
	uint64_t begun_ns, next_ns;
	bool drawn;
	char more[64];		/* drawn behind the bar */
};
/* The time for @left at @rate per second, as "7 s" or "2 min"; returns @buf. */
const char *mcctl_left_text(uint64_t left, double rate, char *buf, size_t len);
void mcctl_progress_begin(struct mcctl_progress *p, const char *what, uint64_t total);
void mcctl_progress_step(struct mcctl_progress *p, uint64_t done);
void mcctl_progress_end(struct mcctl_progress *p);	/* erases the bar */

/* ---- mcctl_http.c ---- */

/* GET http://HOST:PORT/PATH, or https if the server has TLS.  The token of this process's credential
 * (mc_credential_path()) goes along, to other hosts over TLS only.  *ret_body is the body, NUL-terminated, at most
 * 4 MiB; free() it.  *ret_code is the status.  0 or -errno with a detail; -EACCES: the credential, or none. */
int mcctl_http_get(const char *host, int port, const char *path, int64_t timeout_ms, long *ret_code,
		   char **ret_body);
/* The same with any @method; @body may be NULL. */
int mcctl_http(const char *host, int port, const char *method, const char *path, const char *body,
	       int64_t timeout_ms, long *ret_code, char **ret_body);

/* The same of the first master of --master, at --metrics_port. */
int mcctl_ask_http(const struct mcctl *c, const char *path, long *ret_code, char **ret_body);
int mcctl_tell_http(const struct mcctl *c, const char *method, const char *path, const char *body,
		    long *ret_code, char **ret_body);
/* POST without a body, or, with @list, GET of an answer that has a list of this name.  @failed begins the message of an
 * error.  *ret is NULL after a failure, else the answer; json_decref() it. */
enum mcctl_status mcctl_http_json(struct mcctl *c, const char *path, const char *list, const char *failed,
				  json_t **ret);

#endif
