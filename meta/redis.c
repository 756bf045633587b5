/* SPDX-License-Identifier: Apache-2.0
 * redis.c - client of redis: one key per text, whose expiry is prolonged.
 *
 * hiredis encodes commands and decodes replies; redis_link.h carries the bytes. */
#include <config.h>

#include <errno.h>
#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/lock.h"
#include "meta/credentials.h"
#include "meta/meta_i.h"
#include "meta/redis_i.h"
#include "meta/redis_link.h"
#include "meta/seat_i.h"

#define IDLE_MAX 4
#define TLS_ALERT 0x15	/* first byte of a record */

struct session {
	struct mcd_link *link;
	redisReader *reader;
	bool fresh;		/* not an idle connection, which the server may have closed */
	bool answered;		/* bytes were received */
};

struct redis {
	struct mcd_backend base;
	struct mcd_redis_where where;
	struct mcd_credentials credentials;
	bool tls;
	char ttl[16];
	/* guarded by lock */
	struct mc_mutex lock;
	struct session *idle[IDLE_MAX];
	unsigned nidle;
	bool lost;		/* a connection failed: the server may have restarted without our keys */
};

static struct redis *redis_of(struct mcd_backend *b)
{
	return (struct redis *)b;
}

static void session_free(struct session *s)
{
	if (!s)
		return;
	mcd_link_close(s->link);
	if (s->reader)
		redisReaderFree(s->reader);
	free(s);
}

static void redis_close(struct mcd_backend *b)
{
	struct redis *rd = redis_of(b);

	while (rd->nidle)
		session_free(rd->idle[--rd->nidle]);
	mcd_redis_where_done(&rd->where);
	mcd_credentials_done(&rd->credentials);
	mc_mutex_destroy(&rd->lock);
	free(rd);
}

/* The file is the source of the password unless the connection string has one; the environment comes last. */
static int redis_use_file(struct redis *rd, bool has_password)
{
	const struct mcd_credentials *c = &rd->credentials;

	if (mcd_credentials_tls(c) && !rd->tls)
		return mc_fail(-EINVAL, "redis: %s has a ca or a cert, but redis://%s is without TLS: write rediss://",
			       c->path, rd->where.addr);
	if (!c->password || has_password)
		return 0;
	free(rd->where.user);
	free(rd->where.password);
	rd->where.user = c->user ? strdup(c->user) : NULL;
	rd->where.password = strdup(c->password);
	return (c->user && !rd->where.user) || !rd->where.password ?
		mc_fail(-ENOMEM, "no memory for a metadata client") : 0;
}

static int redis_open_as(const struct mcd_ops *ops, const char *where, const struct mcd_open *o,
			 struct mcd_backend **ret)
{
	struct redis *rd = calloc(1, sizeof(*rd));
	int r;

	if (!rd)
		return mc_fail(-ENOMEM, "no memory for a metadata client");
	rd->base.ops = ops;
	rd->tls = ops == &mcd_rediss;
	mc_mutex_init(&rd->lock);
	snprintf(rd->ttl, sizeof(rd->ttl), "%u", o->ttl_s);
	r = mcd_redis_where_parse(where, &rd->where);
	if (r == 0)
		r = mcd_credentials_read(o->credentials, &rd->credentials);
	if (r == 0)
		r = redis_use_file(rd, strchr(where, '@'));
	if (r < 0) {
		redis_close(&rd->base);
		return r;
	}
	*ret = &rd->base;
	return 0;
}

static int redis_open(const char *where, const struct mcd_open *o, struct mcd_backend **ret)
{
	return redis_open_as(&mcd_redis, where, o, ret);
}

static int rediss_open(const char *where, const struct mcd_open *o, struct mcd_backend **ret)
{
	return redis_open_as(&mcd_rediss, where, o, ret);
}

/* ---- one connection ---------------------------------------------------------------------------- */

/* Add advice to the detail of @r, for a connection without any reply yet: redis closes one without TLS where it wants
 * TLS, and one without a certificate. */
static int session_lost_early(struct redis *rd, struct session *s, int r)
{
	if (!s->fresh || s->answered || (r != -ECONNRESET && r != -EPIPE))
		return r;
	if (rd->tls)
		return mcd_tls_advise(r, &rd->credentials, true, "redis://", "rediss://");
	return mc_fail(r, "%s: does the server want TLS? Then write rediss://", strdupa(mc_err_detail(r)));
}

static int session_recv(struct redis *rd, struct session *s, const struct mcd_wait *w, redisReply **ret)
{
	size_t total = 0;
	char buf[16384];
	ssize_t n;
	int r = 0;

	while (r == 0) {
		n = mcd_link_recv(s->link, buf, sizeof(buf), w);
		if (n < 0)
			return session_lost_early(rd, s, (int)n);
		if (!s->answered && *buf == TLS_ALERT)
			return mc_fail(-EIO, "redis at %s: the server answers with TLS: write rediss://",
				       rd->where.addr);
		s->answered = true;
		r = mcd_redis_feed(s->reader, &total, buf, (size_t)n, ret);
	}
	return r < 0 ? r : 0;
}

static int session_run(struct redis *rd, struct session *s, int argc, const char **argv,
		       const struct mcd_wait *w, redisReply **ret)
{
	char *command = NULL;
	int len, r;

	len = redisFormatCommandArgv(&command, argc, argv, NULL);
	if (len < 0)
		return mc_fail(-ENOMEM, "no memory for a redis command");
	r = mcd_link_send(s->link, command, (size_t)len, w);
	explicit_bzero(command, (size_t)len);
	free(command);
	return r < 0 ? session_lost_early(rd, s, r) : session_recv(rd, s, w, ret);
}

/* Run a command whose reply is only success or an error. */
static int session_run_plain(struct redis *rd, struct session *s, int argc, const char **argv,
			     const struct mcd_wait *w)
{
	redisReply *reply = NULL;
	int r;

	r = session_run(rd, s, argc, argv, w, &reply);
	if (r == 0 && reply->type == REDIS_REPLY_ERROR)
		r = mcd_redis_error(rd->where.addr, reply->str);
	freeReplyObject(reply);
	return r;
}

static int session_greet(struct redis *rd, struct session *s, const struct mcd_wait *w)
{
	const struct mcd_redis_where *where = &rd->where;
	const char *argv[3] = { "AUTH" };
	char db[16];
	int argc = 1, r = 0;

	if (where->user)
		argv[argc++] = where->user;
	argv[argc++] = where->password;
	if (where->password)
		r = session_run_plain(rd, s, argc, argv, w);
	/* The texts for a wrong password, an unexpected password and an unknown user differ. */
	if (r == -EIO || r == -EINVAL)
		r = mc_fail(-EACCES, "%s", mc_err_detail(r));
	if (r < 0 || !where->db)
		return r;
	snprintf(db, sizeof(db), "%d", where->db);
	argv[0] = "SELECT";
	argv[1] = db;
	return session_run_plain(rd, s, 2, argv, w);
}

static int session_open(struct redis *rd, const struct mcd_wait *w, struct session **ret)
{
	struct session *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return mc_fail(-ENOMEM, "no memory for a redis connection");
	s->fresh = true;
	r = mcd_link_open(rd->where.addr, rd->tls ? &rd->credentials : NULL, w, &s->link);
	if (r == 0) {
		s->reader = redisReaderCreate();
		r = s->reader ? session_greet(rd, s, w) :
				mc_fail(-ENOMEM, "no memory for a redis connection");
	}
	if (r < 0) {
		session_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

static int session_get(struct redis *rd, const struct mcd_wait *w, struct session **ret)
{
	struct session *s = NULL;

	mc_mutex_lock(&rd->lock);
	if (rd->nidle)
		s = rd->idle[--rd->nidle];
	mc_mutex_unlock(&rd->lock);
	if (!s)
		return session_open(rd, w, ret);
	s->fresh = false;
	*ret = s;
	return 0;
}

static void session_put(struct redis *rd, struct session *s)
{
	mc_mutex_lock(&rd->lock);
	if (rd->nidle < IDLE_MAX) {
		rd->idle[rd->nidle++] = s;
		s = NULL;
	}
	mc_mutex_unlock(&rd->lock);
	session_free(s);
}

/* A connection failed.  Close the other idle connections too: they are as old. */
static void session_lost(struct redis *rd, struct session *s)
{
	session_free(s);
	mc_mutex_lock(&rd->lock);
	rd->lost = true;
	while (rd->nidle)
		session_free(rd->idle[--rd->nidle]);
	mc_mutex_unlock(&rd->lock);
}

/* 0 with a reply, which may be an error. */
static int redis_run(struct redis *rd, int argc, const char **argv, const struct mcd_wait *w,
		     redisReply **ret)
{
	struct session *s = NULL;
	bool old;
	int r;

	do {
		r = session_get(rd, w, &s);
		if (r < 0) {
			mc_mutex_lock(&rd->lock);
			rd->lost = true;
			mc_mutex_unlock(&rd->lock);
			return r;
		}
		old = !s->fresh;
		r = session_run(rd, s, argc, argv, w, ret);
		if (r == 0)
			session_put(rd, s);
		else
			session_lost(rd, s);
		/* The server may have closed an idle connection: retry with another one.  All our
		 * commands may be repeated. */
	} while (old && r < 0 && r != -ETIMEDOUT && r != -ECANCELED && r != -ENOMEM);
	return r;
}

/* Run a command whose reply is a number or OK.  *ret is the number, 1 for OK. */
static int redis_do(struct redis *rd, int argc, const char **argv, const struct mcd_wait *w, long long *ret)
{
	redisReply *reply = NULL;
	int r;

	r = redis_run(rd, argc, argv, w, &reply);
	if (r < 0)
		return r;
	if (reply->type == REDIS_REPLY_ERROR)
		r = mcd_redis_error(rd->where.addr, reply->str);
	else if (reply->type != REDIS_REPLY_INTEGER && reply->type != REDIS_REPLY_STATUS)
		r = mc_fail(-EINVAL, "redis at %s: invalid answer to %s", rd->where.addr, argv[0]);
	else
		*ret = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 1;
	freeReplyObject(reply);
	return r;
}

int mcd_redis_do(struct mcd_backend *b, int argc, const char **argv, const struct mcd_wait *w, long long *ret)
{
	return redis_do(redis_of(b), argc, argv, w, ret);
}

/* ---- keys -------------------------------------------------------------------------------------- */

static int redis_get(struct mcd_backend *b, const char *key, const struct mcd_wait *w, char **ret_text)
{
	const char *argv[] = { "GET", key };
	struct redis *rd = redis_of(b);
	redisReply *reply = NULL;
	int r;

	r = redis_run(rd, 2, argv, w, &reply);
	if (r == 0)
		r = mcd_redis_value(reply, rd->where.addr, key, ret_text);
	freeReplyObject(reply);
	return r;
}

static int redis_put(struct mcd_backend *b, const char *key, const char *text, const struct mcd_wait *w)
{
	struct redis *rd = redis_of(b);
	const char *argv[] = { "SET", key, text, "EX", rd->ttl };
	long long n;

	return redis_do(rd, 5, argv, w, &n);
}

static int redis_del(struct mcd_backend *b, const char *key, const struct mcd_wait *w)
{
	const char *argv[] = { "DEL", key };
	long long n;

	return redis_do(redis_of(b), 2, argv, w, &n);
}

static int redis_beat(struct mcd_backend *b, const struct mcd_wait *w)
{
	struct redis *rd = redis_of(b);
	bool lost;

	mc_mutex_lock(&rd->lock);
	lost = rd->lost;
	rd->lost = false;
	mc_mutex_unlock(&rd->lock);
	return lost;
}

/* Prolong only our own text.  Another node's text expires when that node ends; then ours is put again. */
static int redis_refresh(struct mcd_backend *b, const char *key, const char *text, const struct mcd_wait *w)
{
	struct redis *rd = redis_of(b);
	const char *argv[] = { "EXPIRE", key, rd->ttl };
	auto_free char *there = NULL;
	bool lost;
	long long n = 0;
	int r;

	r = redis_get(b, key, w, &there);
	if (r < 0)
		return r == -ENOENT ? redis_put(b, key, text, w) : r;
	if (!strcmp(there, text)) {
		r = redis_do(rd, 3, argv, w, &n);
		return r == 0 && n == 0 ? redis_put(b, key, text, w) : r;
	}
	mc_mutex_lock(&rd->lock);
	lost = rd->lost;
	mc_mutex_unlock(&rd->lock);
	/* After a restart the server may have an older text of ours from a snapshot. */
	return lost ? redis_put(b, key, text, w) : 0;
}

const struct mcd_ops mcd_redis = {
	.scheme = "redis",
	.has_leases = true,
	.open = redis_open,
	.close = redis_close,
	.get = redis_get,
	.put = redis_put,
	.del = redis_del,
	.del_own = mcd_del_own_text,
	.beat = redis_beat,
	.refresh = redis_refresh,
	.turn = mcd_redis_turn,
	.prolong = mcd_redis_prolong,
	.leave = mcd_redis_leave,
};

const struct mcd_ops mcd_rediss = {
	.scheme = "rediss",
	.has_leases = true,
	.open = rediss_open,
	.close = redis_close,
	.get = redis_get,
	.put = redis_put,
	.del = redis_del,
	.del_own = mcd_del_own_text,
	.beat = redis_beat,
	.refresh = redis_refresh,
	.turn = mcd_redis_turn,
	.prolong = mcd_redis_prolong,
	.leave = mcd_redis_leave,
};
