/* SPDX-License-Identifier: Apache-2.0
 * redis_reply.c - parsing of addresses and replies of redis. */
#include <config.h>

#include <ctype.h>
#include <errno.h>
#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/net/net.h"
#include "common/env.h"
#include "meta/credentials.h"
#include "meta/meta_i.h"
#include "meta/redis_i.h"

#define PORT 6379
#define DB_MAX 255
#define OVERHEAD 64		/* bytes of a reply besides its text */

/* ---- address ----------------------------------------------------------------------------------- */

/* Decode percent-encoding ("%41" to "A") of a user or password. */
static char *redis_unescape(const char *s, size_t len)
{
	char *text = malloc(len + 1), hex[3] = "";
	size_t n = 0;

	if (!text)
		return NULL;
	for (size_t i = 0; i < len; i++) {
		text[n++] = s[i];
		if (s[i] != '%' || i + 2 >= len || !isxdigit((unsigned char)s[i + 1]) ||
		    !isxdigit((unsigned char)s[i + 2]))
			continue;
		memcpy(hex, s + i + 1, 2);
		text[n - 1] = (char)strtoul(hex, NULL, 16);
		i += 2;
	}
	text[n] = '\0';
	return text;
}

static int where_user(const char *s, size_t len, struct mcd_redis_where *w)
{
	const char *colon = memchr(s, ':', len);
	size_t user = colon ? (size_t)(colon - s) : len;

	if (!colon)
		return mc_fail(-EINVAL, "redis: the part before the @ must be USER:PASSWORD or :PASSWORD");
	if (user)
		w->user = redis_unescape(s, user);
	mcd_password_seen(s, len);
	w->password = redis_unescape(colon + 1, len - user - 1);
	return (user && !w->user) || !w->password ? -ENOMEM : 0;
}

static int where_env(struct mcd_redis_where *w)
{
	const char *user = mc_env_str("MC_REDIS_USERNAME"), *password = mc_env_str("MC_REDIS_PASSWORD");

	/* AUTH needs a password, so ignore a user without one. */
	if (w->password || !password)
		return 0;
	w->password = strdup(password);
	w->user = user ? strdup(user) : NULL;
	return !w->password || (user && !w->user) ? -ENOMEM : 0;
}

static int where_db(const char *s, struct mcd_redis_where *w)
{
	char *end;
	long db;

	w->db = (int)mc_env_int("MC_REDIS_DB_INDEX", 0, 0, DB_MAX);
	if (!s || !*s)
		return 0;
	db = strtol(s, &end, 10);
	if (!isdigit((unsigned char)*s) || *end || db > DB_MAX)
		return mc_fail(-EINVAL, "redis: the database number must be 0 to %d: %.32s", DB_MAX, s);
	w->db = (int)db;
	return 0;
}

static int where_parse(const char *where, struct mcd_redis_where *w)
{
	const char *at = strrchr(where, '@'), *from = at ? at + 1 : where, *slash = strchr(from, '/');
	char addr[MC_ADDR_MAX], host[MC_ADDR_MAX];
	size_t len = slash ? (size_t)(slash - from) : strlen(from);
	int port, r = 0;

	if (at)
		r = where_user(where, (size_t)(at - where), w);
	if (r == 0)
		r = where_env(w);
	if (r == 0)
		r = where_db(slash ? slash + 1 : NULL, w);
	if (r < 0)
		return r;
	if (len >= sizeof(addr))
		return mc_fail(-EINVAL, "redis: the address is too long");
	memcpy(addr, from, len);
	addr[len] = '\0';
	r = mc_addr_split(addr, host, sizeof(host), PORT, &port);
	if (r < 0)
		return r;
	if (!*host || !port)
		return mc_fail(-EINVAL, "redis: invalid address, the form is redis://HOST:PORT: %s", addr);
	snprintf(w->addr, sizeof(w->addr), strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
	return 0;
}

int mcd_redis_where_parse(const char *where, struct mcd_redis_where *ret)
{
	struct mcd_redis_where w = { .db = 0 };
	int r = where_parse(where, &w);

	if (r < 0) {
		mcd_redis_where_done(&w);
		return r == -ENOMEM ? mc_fail(r, "no memory for a metadata client") : r;
	}
	*ret = w;
	return 0;
}

void mcd_redis_where_done(struct mcd_redis_where *w)
{
	free(w->user);
	free(w->password);
	w->user = w->password = NULL;
}

/* ---- replies ----------------------------------------------------------------------------------- */

int mcd_redis_feed(struct redisReader *reader, size_t *total, const char *p, size_t len,
		   struct redisReply **ret)
{
	void *reply = NULL;

	/* Refuse arrays: none of our commands has such a reply, and the reader allocates memory for as many
	 * elements as the reply announces. */
	if (*total == 0 && len && !strchr("+-:$", *p))
		return mc_fail(-EINVAL, "redis: invalid answer");
	if (len > MCD_TEXT_MAX + OVERHEAD - *total)
		return mc_fail(-EMSGSIZE, "redis: the answer is longer than %u bytes", MCD_TEXT_MAX);
	*total += len;
	if (redisReaderFeed(reader, p, len) != REDIS_OK || redisReaderGetReply(reader, &reply) != REDIS_OK)
		return mc_fail(-EINVAL, "redis: %s", reader->errstr);
	*ret = reply;
	return reply ? 1 : 0;
}

int mcd_redis_value(const struct redisReply *reply, const char *server, const char *key, char **ret_text)
{
	char *text;

	if (reply->type == REDIS_REPLY_NIL)
		return mc_fail(-ENOENT, "redis at %s: no %s", server, key);
	if (reply->type == REDIS_REPLY_ERROR)
		return mcd_redis_error(server, reply->str);
	if (reply->type != REDIS_REPLY_STRING || strlen(reply->str) != (size_t)reply->len)
		return mc_fail(-EINVAL, "redis at %s: %s is not text", server, key);
	text = strdup(reply->str);
	if (!text)
		return mc_fail(-ENOMEM, "no memory for %s", key);
	*ret_text = text;
	return 0;
}

int mcd_redis_error(const char *server, const char *said)
{
	static const struct {
		const char *word;
		int err;
	} words[] = {
		{ "NOAUTH", -EACCES }, { "WRONGPASS", -EACCES }, { "NOPERM", -EACCES },
		{ "OOM", -ENOSPC }, { "MISCONF", -ENOSPC }, { "READONLY", -EROFS },
		{ "LOADING", -EAGAIN }, { "BUSY", -EAGAIN }, { "MASTERDOWN", -EAGAIN },
		{ "ERR invalid password", -EACCES }, { "ERR AUTH", -EACCES },
		{ "ERR Client sent AUTH", -EACCES }, { "ERR DB index", -EINVAL },
		{ "ERR invalid DB index", -EINVAL }, { "WRONGTYPE", -EINVAL },
	};
	int r = -EIO;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strncmp(said, words[i].word, strlen(words[i].word)))
			r = words[i].err;
	return mc_fail(r, "redis at %s: %.200s", server, said);
}
