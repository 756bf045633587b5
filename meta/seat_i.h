/* SPDX-License-Identifier: Apache-2.0
 * seat_i.h - leases of leaders: the slots of etcd and redis in mcd_ops, and functions of these clients for
 * them. */
#ifndef MCD_SEAT_I_H
#define MCD_SEAT_I_H

#include "meta/meta_i.h"

struct json_t;

/* etcd.c: POST @o, which this takes over, to @path.  The caller frees c->text in any case. */
int mcd_etcd_call(struct mcd_backend *b, const char *path, struct json_t *o, const struct mcd_wait *w,
		  struct mc_web_call *c);
/* The answer to a transaction: 0, -EAGAIN. */
int mcd_etcd_turn_decode(const char *text, size_t len, const char *mine64, const char *state64);
/* record.c: the same for a record, whose new text is @text64. */
int mcd_etcd_swap_decode(const char *text, size_t len, const char *text64);
/* redis.c: a command whose reply is a number or OK.  *ret is the number, 1 for OK. */
int mcd_redis_do(struct mcd_backend *b, int argc, const char **argv, const struct mcd_wait *w, long long *ret);

int mcd_etcd_turn(struct mcd_backend *b, const struct mcd_turn *t, const struct mcd_wait *w);
int mcd_etcd_prolong(struct mcd_backend *b, const char *leader_key, const char *mine, unsigned ttl_ms,
		     const struct mcd_wait *w);
int mcd_etcd_leave(struct mcd_backend *b, const char *leader_key, const char *mine, const struct mcd_wait *w);

int mcd_redis_turn(struct mcd_backend *b, const struct mcd_turn *t, const struct mcd_wait *w);
int mcd_redis_prolong(struct mcd_backend *b, const char *leader_key, const char *mine, unsigned ttl_ms,
		      const struct mcd_wait *w);
int mcd_redis_leave(struct mcd_backend *b, const char *leader_key, const char *mine, const struct mcd_wait *w);

#endif
