/* SPDX-License-Identifier: Apache-2.0
 * redis_i.h - addresses and replies of redis, without sockets. */
#ifndef MCD_REDIS_I_H
#define MCD_REDIS_I_H

#include <stddef.h>

struct redisReader;
struct redisReply;

struct mcd_redis_where {
	char addr[300];		/* "host:port" */
	char *user, *password;	/* malloc'ed, or NULL */
	int db;
};
/* Parse "[[USER]:PASSWORD@]HOST[:PORT][/DB]"; defaults are MC_REDIS_USERNAME, MC_REDIS_PASSWORD and
 * MC_REDIS_DB_INDEX. */
int mcd_redis_where_parse(const char *where, struct mcd_redis_where *ret);
void mcd_redis_where_done(struct mcd_redis_where *w);

/* Feed received bytes of one reply; *total counts them and starts at 0.  1: *ret is complete; 0: more bytes are
 * needed; -EINVAL, -EMSGSIZE. */
int mcd_redis_feed(struct redisReader *reader, size_t *total, const char *p, size_t len,
		   struct redisReply **ret);
/* Text of a reply to GET; -ENOENT for nil. */
int mcd_redis_value(const struct redisReply *reply, const char *server, const char *key, char **ret_text);
/* The error number for an error reply of redis. */
int mcd_redis_error(const char *server, const char *said);

#endif
