/* SPDX-License-Identifier: Apache-2.0
 * gate.c - which standbys may join the leader, and which are too slow to stay. */
#include <config.h>

#include "master/ha/gate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/err.h"
#include "common/net/net.h"
#include "common/sys/clock.h"

#define PAUSE_MS 1000u
#define PAUSE_DOUBLES 5u	/* the pause doubles this often, up to 32 s */
#define FORGET_MS 300000u
#define PERIOD_MS 10000u
#define PERIOD_PARTS 8u
#define SLOW_PARTS 4u
#define SLOW_SHARE 10u
#define SLOW_TIME_SHARE 4u

static bool gate_lists(const char *members, const char *addr)
{
	size_t len = strlen(addr), n;

	for (const char *at = members; *at; at += n + (at[n] == ',')) {
		n = strcspn(at, ",");
		if (n == len && !memcmp(at, addr, len))
			return true;
	}
	return false;
}

int mcm_gate_address(const char *members, const char *addr, const char *peer, uint64_t deadline)
{
	int r;

	if (*members)
		return gate_lists(members, addr) ? 0 : mc_fail(-MC_EJOIN, "%s is not in ha_members", addr);
	r = mc_addr_is_of(addr, peer, deadline);
	if (r == 0)
		return mc_fail(-MC_EJOIN, "a process at %s asks for a standby at %s, which is another host; if that is "
			       "right, name the addresses of all masters in --ha_members", peer, addr);
	return r < 0 ? r : 0;
}

static struct mcm_gate_host *gate_find(struct mcm_gate *g, const char *peer)
{
	for (unsigned i = 0; i < MCM_GATE_HOSTS; i++)
		if (!strcmp(g->host[i].host, peer))
			return &g->host[i];
	return NULL;
}

int mcm_gate_wait(struct mcm_gate *g, const char *peer, uint64_t now)
{
	const struct mcm_gate_host *h = gate_find(g, peer);

	if (!h || now >= h->until)
		return 0;
	return mc_fail(-MC_EUNAVAILABLE, "answers had to wait for a standby of %s: it may join again in %llu ms", peer,
		       (unsigned long long)((h->until - now) / MC_NS_PER_MS));
}

void mcm_gate_late(struct mcm_gate *g, const char *peer, uint64_t now)
{
	struct mcm_gate_host *h = gate_find(g, peer);
	unsigned doubles;

	/* A new host replaces the one whose pause ends, or has ended, first. */
	for (unsigned i = 0, known = h != NULL; i < MCM_GATE_HOSTS && !known; i++)
		if (!h || g->host[i].until < h->until)
			h = &g->host[i];
	if (strcmp(h->host, peer) != 0 || now > h->until + FORGET_MS * MC_NS_PER_MS)
		h->late = 0;
	snprintf(h->host, sizeof(h->host), "%s", peer);
	doubles = h->late < PAUSE_DOUBLES ? h->late : PAUSE_DOUBLES;
	h->late++;
	h->until = now + ((uint64_t)PAUSE_MS << doubles) * MC_NS_PER_MS;
}

int mcm_pace_add(struct mcm_pace *p, uint64_t sent, uint64_t now)
{
	struct mcm_pace was;

	p->from = p->from ? p->from : sent;
	p->parts++;
	if (now - sent > p->limit_ms * MC_NS_PER_MS) {
		p->slow++;
		p->slow_ns += now - sent;
	}
	if (now - p->from < PERIOD_MS * MC_NS_PER_MS || p->parts < PERIOD_PARTS)
		return 0;
	was = *p;
	*p = (struct mcm_pace){ .limit_ms = p->limit_ms, .from = now };
	if (was.slow < SLOW_PARTS ||
	    (was.slow * SLOW_SHARE <= was.parts && was.slow_ns * SLOW_TIME_SHARE <= now - was.from))
		return 0;
	return mc_fail(-ETIMEDOUT, "%u of %u confirmations of records took longer than %u ms", was.slow, was.parts,
		       was.limit_ms);
}

bool mcm_pace_slow(const struct mcm_pace *p)
{
	return p->slow * 2 > p->parts;
}
