/* SPDX-License-Identifier: Apache-2.0
 * tcp_idle.c - which incoming connections give way to new ones. */
#include <config.h>

#include <arpa/inet.h>
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

void mce_idle_address(const struct mc_stream *s, struct in6_addr *ret)
{
	struct mc_stream_peer peer;
	char host[MC_ADDR_MAX];
	struct in_addr v4;
	int port;

	memset(ret, 0, sizeof(*ret));
	mc_stream_peer(s, &peer);
	if (mc_addr_split(peer.name, host, sizeof(host), 0, &port) < 0)
		return;
	/* Without the interface of a link-local address. */
	host[strcspn(host, "%")] = '\0';
	if (inet_pton(AF_INET, host, &v4) == 1) {
		ret->s6_addr[10] = ret->s6_addr[11] = 0xff;
		memcpy(&ret->s6_addr[12], &v4, 4);
	} else {
		(void)inet_pton(AF_INET6, host, ret);
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
