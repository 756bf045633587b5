/* SPDX-License-Identifier: Apache-2.0
 * rpc_place.c - places of connections. */
#include <config.h>

#include "proto/rpc_place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"

void mcp_places_init(struct mcp_places *ps, uint32_t max, uint32_t max_peer)
{
	memset(ps, 0, sizeof(*ps));
	ps->max = max;
	ps->max_peer = max_peer;
	mc_mutex_init(&ps->lock);
	mc_list_init(&ps->spare);
}

void mcp_places_done(struct mcp_places *ps)
{
	mc_mutex_destroy(&ps->lock);
}

size_t mcp_peer_host(const char *peer)
{
	const char *port = strncmp(peer, "unix", 4) ? strrchr(peer, ':') : NULL;

	return port ? (size_t)(port - peer) : strlen(peer);
}

/* ---- peers; lock held ---- */

static struct mcp_peer **peer_link(struct mcp_places *ps, const char *peer, size_t len)
{
	struct mcp_peer **at = &ps->bucket[mc_hash(peer, (uint32_t)len, 0) % MCP_PEER_BUCKETS];

	while (*at && (strlen((*at)->host) != len || memcmp((*at)->host, peer, len) != 0))
		at = &(*at)->next;
	return at;
}

static struct mcp_peer *peer_get(struct mcp_places *ps, const char *peer)
{
	size_t len = mcp_peer_host(peer);
	struct mcp_peer **at = peer_link(ps, peer, len), *p = *at;

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	memcpy(p->host, peer, len);
	mc_list_init(&p->spare);
	return *at = p;
}

static void peer_unneeded(struct mcp_places *ps, struct mcp_peer *p)
{
	if (p->used)
		return;
	*peer_link(ps, p->host, strlen(p->host)) = p->next;
	free(p);
}

/* ---- places; lock held ---- */

static void place_unlist(struct mcp_place *p)
{
	mc_list_remove(&p->link);
	mc_list_remove(&p->peer_link);
}

void mcp_place_leave_locked(struct mcp_places *ps, struct mcp_place *p)
{
	struct mcp_peer *peer = p->peer;

	if (p->state == MCP_PLACE_NONE)
		return;
	place_unlist(p);
	p->state = MCP_PLACE_NONE;
	p->peer = NULL;
	ps->used--;
	peer->used--;
	peer_unneeded(ps, peer);
}

/* The place that has to be given up for a new connection of @peer.  NULL: none has to.  -MC_ELIMIT: none can. */
static int place_in_the_way(struct mcp_places *ps, const struct mcp_peer *peer, struct mcp_place **ret)
{
	*ret = NULL;
	if (peer->used >= ps->max_peer && ps->max_peer < ps->max) {
		if (mc_list_empty(&peer->spare))
			return mc_fail(-MC_ELIMIT, "too many connections from %s: %u, the limit is "
				       "max_peer_connections", peer->host, peer->used);
		*ret = mc_list_first(&peer->spare, struct mcp_place, peer_link);
	} else if (ps->used >= ps->max) {
		if (mc_list_empty(&ps->spare))
			return mc_fail(-MC_ELIMIT, "too many connections: %u, the limit is max_connections", ps->used);
		*ret = mc_list_first(&ps->spare, struct mcp_place, link);
	}
	return 0;
}

int mcp_place_take_locked(struct mcp_places *ps, const char *peer, struct mcp_place *p, struct mcp_place **ret_gone)
{
	struct mcp_peer *who = peer_get(ps, peer);
	int r;

	mc_list_init(&p->link);
	mc_list_init(&p->peer_link);
	p->state = MCP_PLACE_NONE;
	if (!who)
		return mc_fail(-ENOMEM, "no memory for a connection");
	r = place_in_the_way(ps, who, ret_gone);
	if (r < 0) {
		peer_unneeded(ps, who);
		return r;
	}
	/* Count the new one first, so that its peer stays. */
	who->used++;
	ps->used++;
	p->peer = who;
	p->state = MCP_PLACE_KEPT;
	if (*ret_gone)
		mcp_place_leave_locked(ps, *ret_gone);
	return 0;
}

int mcp_place_move_locked(struct mcp_places *ps, const char *peer, struct mcp_place *p, struct mcp_place **ret_gone)
{
	struct mcp_peer *old = p->peer, *now;
	int r = 0;

	*ret_gone = NULL;
	if (p->state != MCP_PLACE_KEPT)
		return 0;
	now = peer_get(ps, peer);
	if (!now)
		return mc_fail(-ENOMEM, "no memory for a connection");
	if (now == old)
		return 0;
	/* The place exists already, so only the limit of the peer matters. */
	if (now->used >= ps->max_peer)
		r = place_in_the_way(ps, now, ret_gone);
	if (r < 0) {
		peer_unneeded(ps, now);
		return r;
	}
	now->used++;
	p->peer = now;
	old->used--;
	peer_unneeded(ps, old);
	if (*ret_gone)
		mcp_place_leave_locked(ps, *ret_gone);
	return 0;
}

void mcp_place_keep(struct mcp_places *ps, struct mcp_place *p, bool keep)
{
	MC_LOCKED(&ps->lock);
	if (p->state == MCP_PLACE_NONE || (p->state == MCP_PLACE_KEPT) == keep)
		return;
	if (keep) {
		place_unlist(p);
		p->state = MCP_PLACE_KEPT;
		return;
	}
	mc_list_push_back(&ps->spare, &p->link);
	mc_list_push_back(&p->peer->spare, &p->peer_link);
	p->state = MCP_PLACE_SPARE;
}
