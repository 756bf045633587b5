/* SPDX-License-Identifier: Apache-2.0
 * tcp_idle.c - which incoming connections give way to new ones. */
#include <config.h>

#include <netinet/in.h>
#include <string.h>

#include "engine/tcp/tcp_server.h"

/* A request may be on its way, so only a connection that does nothing for this time gives way. */
#define IDLE_MIN_MS 1000
/* One address may always have this many connections. */
#define FROM_ONE_MIN 16u

void mce_idle_tick(struct mce_serve_conn *c, bool moved, uint64_t now_ms)
{
	uint64_t since = moved || mce_serve_busy(c) ? 0 : __atomic_load_n(&c->idle_ms, __ATOMIC_RELAXED);

	if (since == 0 && !moved && !mce_serve_busy(c))
		since = now_ms;
	__atomic_store_n(&c->idle_ms, since, __ATOMIC_RELAXED);
}

void mce_idle_address(int fd, struct in6_addr *ret)
{
	struct sockaddr_storage ss = { .ss_family = AF_UNSPEC };
	socklen_t len = sizeof(ss);

	memset(ret, 0, sizeof(*ret));
	(void)getpeername(fd, (struct sockaddr *)&ss, &len);
	if (ss.ss_family == AF_INET6) {
		*ret = ((const struct sockaddr_in6 *)&ss)->sin6_addr;
	} else if (ss.ss_family == AF_INET) {
		ret->s6_addr[10] = ret->s6_addr[11] = 0xff;
		memcpy(&ret->s6_addr[12], &((const struct sockaddr_in *)&ss)->sin_addr, 4);
	}
}

struct mce_serve_conn *mce_idle_pick_locked(const struct mc_list *conns, const struct in6_addr *from, uint64_t now_ms)
{
	struct mce_serve_conn *oldest = NULL;
	uint64_t since = now_ms > IDLE_MIN_MS ? now_ms - IDLE_MIN_MS : 0, idle;
	const struct mc_list *pos;

	mc_list_for_each(pos, conns) {
		struct mce_serve_conn *c = mc_container_of(pos, struct mce_serve_conn, node);

		idle = __atomic_load_n(&c->idle_ms, __ATOMIC_RELAXED);
		if (c->yields || !idle || idle > since || (from && memcmp(&c->from, from, sizeof(*from)) != 0))
			continue;
		oldest = c;
		since = idle - 1;
	}
	if (oldest)
		oldest->yields = true;
	return oldest;
}

int mce_idle_admit_locked(const struct mc_list *conns, unsigned max, const struct in6_addr *from, uint64_t now_ms,
			  struct mce_serve_conn **ret_yields)
{
	unsigned n = 0, same = 0, same_max = max / 2 > FROM_ONE_MIN ? max / 2 : FROM_ONE_MIN;
	const struct mc_list *pos;

	*ret_yields = NULL;
	mc_list_for_each(pos, conns) {
		const struct mce_serve_conn *c = mc_container_of(pos, struct mce_serve_conn, node);

		n += !c->yields;
		same += !c->yields && memcmp(&c->from, from, sizeof(*from)) == 0;
	}
	if (same >= same_max)
		*ret_yields = mce_idle_pick_locked(conns, from, now_ms);
	else if (n >= max - max / 4)
		*ret_yields = mce_idle_pick_locked(conns, NULL, now_ms);
	return !*ret_yields && (same >= same_max || n >= max) ? -MC_ELIMIT : 0;
}
