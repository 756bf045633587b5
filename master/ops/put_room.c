/* SPDX-License-Identifier: Apache-2.0
 * put_room.c - limits that a put meets before it gets memory: its session's unfinished puts, its tenant's quota. */
#include <config.h>

#include "master/ops/put.h"

#include "common/cleanup.h"
#include "common/err.h"
#include "master/mcm_i.h"
#include "master/session.h"

/* Average length of the keys of a session that begins as many puts as it may. */
#define KEY_BYTES 256u

static uint64_t room_keys_max(const struct mcm *m)
{
	uint64_t max = (uint64_t)m->conf.max_session_puts * KEY_BYTES;

	return max < MCM_KEY_MAX ? MCM_KEY_MAX : max;
}

static struct mcm_put_room room_of(const struct mcm *m, uint64_t n, uint64_t key_bytes)
{
	uint64_t puts = (uint64_t)m->conf.max_session_puts, keys = room_keys_max(m);

	return (struct mcm_put_room){
		.puts = n < puts ? (unsigned)(puts - n) : 0, .keys = key_bytes < keys ? keys - key_bytes : 0,
	};
}

struct mcm_put_room mcm_put_room(struct mcm *m, struct mcm_session *s)
{
	uint64_t quarantined = mcm_load_relaxed(&m->puts.quarantine.bytes) ?
		mcm_quarantine_over(m, s->client, mcm_account_key(s)) : 0;

	if (quarantined)
		return (struct mcm_put_room){ .quarantined = quarantined };
	if (s->share)
		return room_of(m, mcm_load_relaxed(&s->share->account->puts),
			       mcm_load_relaxed(&s->share->account->put_keys));
	MC_LOCKED(&m->puts.shard[s->put_shard].lock);
	return room_of(m, s->n_puts, s->put_keys);
}

int mcm_put_room_check(const struct mcm *m, const struct mcm_put_room *room, uint32_t key_len)
{
	if (room->quarantined)
		return mc_fail(-MC_ELIMIT, "quarantine limit reached: %llu bytes of this client's aborted puts wait "
			       "until it is certain that it writes there no more, the limit is %llu "
			       "(--max_client_quarantine_ratio); mcctl quarantine shows them",
			       (unsigned long long)room->quarantined, (unsigned long long)mcm_quarantine_limit(m));
	if (!room->puts)
		return mc_fail(-MC_ELIMIT, "put limit reached: one connection or identity has %ld unfinished puts "
			       "(--max_session_puts)", m->conf.max_session_puts);
	if (room->keys < key_len)
		return mc_fail(-MC_ELIMIT, "put limit reached: the keys of the unfinished puts of one connection or "
			       "identity have %llu bytes (%u times --max_session_puts)",
			       (unsigned long long)(room_keys_max(m) - room->keys), KEY_BYTES);
	return 0;
}

int mcm_put_charge_full(struct mcm *m, struct mcm_put_request *rq, const struct mcp_put_item *item, uint64_t bytes,
			struct mcm_put *put)
{
	bool charged = put->charged || !bytes;
	int r = 0;

	if (rq->flags & MCP_PUT_NO_EVICT)
		return mc_fail(charged ? -MC_ENOSPACE : -MC_EQUOTA, "%s without eviction",
			       charged ? "the object limit admits no put" : "the tenant's quota has no space");
	if (item->size)
		r = mcm_allocate_check(m, rq, mcm_object_reserve(item->size));
	if (r < 0 || charged)
		return r;
	r = mcm_tenant_charge(m, put->tenant, bytes, &rq->slice);
	put->charged = r < 0 ? 0 : bytes;
	return r;
}
