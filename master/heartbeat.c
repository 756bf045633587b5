/* SPDX-License-Identifier: Apache-2.0
 * heartbeat.c - how often clients send heartbeats. */
#include <config.h>

#include "master/heartbeat.h"

#include "master/mcm_i.h"

/* Target heartbeat rates, summed over all clients: segment owners, and clients without segments.
 * The latter cannot be timed out; their heartbeats only detect a new master while they are idle. */
#define OWNERS_PER_SEC 2500
#define OTHERS_PER_SEC 300

static uint64_t heartbeat_interval(const struct mcm *m, unsigned clients, unsigned per_sec, uint64_t most)
{
	uint64_t beat = m->conf.client_ttl / 10, crowd = clients * 1000ull / per_sec;
	/* Idle connections are closed after this time. */
	uint64_t timeout = m->conf.rpc_conn_timeout_seconds, idle = timeout * 2 / 5;

	beat = beat > 1000 ? 1000 : beat < 10 ? 10 : beat;
	if (timeout && most > idle)
		most = idle > beat ? idle : beat;
	crowd = crowd < most ? crowd : most;
	return crowd > beat ? crowd : beat;
}

uint64_t mcm_heartbeat_of(const struct mcm *m, unsigned owners)
{
	/* Several heartbeats may get lost before the owner counts as silent; two when there are
	 * very many owners. */
	return heartbeat_interval(m, owners, OWNERS_PER_SEC, m->conf.client_ttl * 2 / 5);
}

uint64_t mcm_heartbeat_idle_of(const struct mcm *m, unsigned clients)
{
	return heartbeat_interval(m, clients, OTHERS_PER_SEC, m->conf.client_ttl * 7 / 2);
}

uint64_t mcm_heartbeat_ms(const struct mcm *m)
{
	uint64_t ms = __atomic_load_n(&m->heartbeat_ms, __ATOMIC_RELAXED);

	return ms ? ms : mcm_heartbeat_of(m, 0);
}

uint64_t mcm_heartbeat_idle_ms(const struct mcm *m)
{
	uint64_t ms = __atomic_load_n(&m->heartbeat_idle_ms, __ATOMIC_RELAXED);

	return ms ? ms : mcm_heartbeat_idle_of(m, 0);
}
