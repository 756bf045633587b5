/* SPDX-License-Identifier: Apache-2.0
 * seat_redis.c - leases of leaders on redis: each change is a script, which redis runs alone. */
#include <config.h>

#include <errno.h>
#include <stdio.h>

#include "common/err.h"
#include "meta/seat_i.h"

/* A repeated request succeeds if the first one did. */
static const char turn_script[] =
	"local leader = redis.call('GET', KEYS[1])\n"
	"local state = redis.call('GET', KEYS[2])\n"
	"local mine = leader == ARGV[1]\n"
	"if mine and state == ARGV[4] then return 1 end\n"
	"if ARGV[2] == '0' and not mine then return 0 end\n"
	"if ARGV[2] ~= '0' and (leader or '') ~= ARGV[6] then return 0 end\n"
	"if (ARGV[5] == '1') ~= (state and true or false) then return 0 end\n"
	"if state and state ~= ARGV[3] then return 0 end\n"
	"if ARGV[2] ~= '0' then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end\n"
	"redis.call('SET', KEYS[2], ARGV[4])\n"
	"return 1\n";
static const char prolong_script[] =
	"if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
	"return redis.call('PEXPIRE', KEYS[1], ARGV[2])\n";
static const char leave_script[] =
	"if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end\n"
	"return redis.call('DEL', KEYS[1])\n";

int mcd_redis_turn(struct mcd_backend *b, const struct mcd_turn *t, const struct mcd_wait *w)
{
	char ttl[16] = "0";
	const char *argv[] = {
		"EVAL", turn_script, "2", t->leader_key, t->state_key, t->mine, ttl, t->seen ? t->seen : "", t->state,
		t->seen ? "1" : "0", t->instead ? t->instead : "",
	};
	long long done = 0;
	int r;

	if (t->take)
		snprintf(ttl, sizeof(ttl), "%u", t->ttl_ms);
	r = mcd_redis_do(b, sizeof(argv) / sizeof(argv[0]), argv, w, &done);
	return r < 0 ? r : done ? 0 : mc_fail(-EAGAIN, "another master leads, or the state has changed");
}

int mcd_redis_prolong(struct mcd_backend *b, const char *leader_key, const char *mine, unsigned ttl_ms,
		      const struct mcd_wait *w)
{
	char ttl[16];
	const char *argv[] = { "EVAL", prolong_script, "1", leader_key, mine, ttl };
	long long done = 0;
	int r;

	snprintf(ttl, sizeof(ttl), "%u", ttl_ms);
	r = mcd_redis_do(b, sizeof(argv) / sizeof(argv[0]), argv, w, &done);
	return r < 0 ? r : done ? 0 : mc_fail(-MC_EOWNER, "the lease is lost");
}

int mcd_redis_leave(struct mcd_backend *b, const char *leader_key, const char *mine, const struct mcd_wait *w)
{
	const char *argv[] = { "EVAL", leave_script, "1", leader_key, mine };
	long long done;

	return mcd_redis_do(b, sizeof(argv) / sizeof(argv[0]), argv, w, &done);
}
