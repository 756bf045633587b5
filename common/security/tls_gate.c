/* SPDX-License-Identifier: Apache-2.0
 * tls_gate.c - limits for peers that have not proved an identity yet. */
#include <config.h>

#include "common/security/tls_gate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/err.h"
#include "common/hash.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "common/sys/random.h"

#define UNPROVEN_MIN 16u
#define STEP_NS (MC_NS_PER_SEC / MC_TLS_RATE)

MC_GAUGE(unproven, "mooncake_tls_unproven", "", "Incoming TLS connections whose peer has not proved its identity yet")
MC_COUNTER(gave_way, "mooncake_tls_unproven_closed_total", "",
	   "Incoming TLS connections closed in the handshake for newer ones, at a limit")
MC_COUNTER(limited, "mooncake_tls_rate_refused_total", "",
	   "Incoming TLS connections closed at once, because their address began too many handshakes that failed")

struct mc_tls_gate {
	/* constant */
	const char *service;
	unsigned max, max_same;
	uint64_t seed;
	struct mc_mutex lock;
	/* guarded by lock; a slot is initialised when it gets its first connection */
	unsigned n;
	struct mc_list all;
	uint16_t used[MC_TLS_SLOTS];
	struct {
		struct mc_list same;
		uint64_t full_ns;	/* when all of its burst is available again */
	} slot[MC_TLS_SLOTS];
};

static unsigned gate_max(void)
{
	struct rlimit lim;
	rlim_t n = getrlimit(RLIMIT_NOFILE, &lim) == 0 ? lim.rlim_cur / 4 : MC_TLS_UNPROVEN_MAX;

	return n > MC_TLS_UNPROVEN_MAX ? MC_TLS_UNPROVEN_MAX : n < UNPROVEN_MIN ? UNPROVEN_MIN : (unsigned)n;
}

int mc_tls_gate_new(const char *service, uint64_t seed, struct mc_tls_gate **ret)
{
	/* Its pages get memory when they are used. */
	struct mc_tls_gate *g = calloc(1, sizeof(*g));

	if (!g)
		return mc_fail(-ENOMEM, "no memory for TLS");
	g->service = service ? service : "-";
	g->max = gate_max();
	g->max_same = g->max / 2;
	g->seed = seed ? seed : mc_random_u64();
	(void)mc_mutex_init(&g->lock);
	mc_list_init(&g->all);
	*ret = g;
	return 0;
}

void mc_tls_gate_free(struct mc_tls_gate *g)
{
	if (!g)
		return;
	mc_mutex_destroy(&g->lock);
	free(g);
}

/* *ret_network: the name is the address of a host. */
static uint16_t gate_slot(const struct mc_tls_gate *g, const char *peer, bool *ret_network)
{
	char host[MC_ADDR_MAX];
	struct in6_addr six;
	struct in_addr four;
	int port;

	if (mc_addr_split(peer, host, sizeof(host), 0, &port) < 0)
		strcpy(host, peer);
	/* Without the interface of a link-local address. */
	host[strcspn(host, "%")] = '\0';
	*ret_network = true;
	if (inet_pton(AF_INET6, host, &six) == 1 && !IN6_IS_ADDR_V4MAPPED(&six))
		return (uint16_t)(mc_hash(&six, 8, g->seed) % MC_TLS_SLOTS);
	*ret_network = strchr(host, ':') || inet_pton(AF_INET, host, &four) == 1;
	return (uint16_t)(mc_hash(host, strlen(host), g->seed) % MC_TLS_SLOTS);
}

bool mc_tls_gate_admit(struct mc_tls_gate *g, const struct mc_stream *s, uint16_t *ret_slot)
{
	uint64_t now = mc_now_ns(), *full;
	struct mc_stream_peer peer;
	bool network, admit;

	mc_stream_peer(s, &peer);
	/* It was reset before it was accepted, and cost its address nothing. */
	if (!strcmp(peer.name, "unknown"))
		return false;
	*ret_slot = gate_slot(g, peer.name, &network);
	if (!network)
		return true;
	mc_mutex_lock(&g->lock);
	full = &g->slot[*ret_slot].full_ns;
	if (*full < now)
		*full = now;
	admit = *full - now <= (MC_TLS_BURST - 1) * STEP_NS;
	if (admit)
		*full += STEP_NS;
	mc_mutex_unlock(&g->lock);
	if (admit)
		return true;
	mc_metric_add(&limited, 1);
	mc_warn("tls", "refused: too many handshakes of its address fail service=%s peer=%s per_second=%u", g->service,
		peer.name, MC_TLS_RATE);
	return false;
}

static void gate_unlist_locked(struct mc_tls_gate *g, struct mc_tls_unproven *u)
{
	mc_list_remove(&u->all);
	mc_list_remove(&u->same);
	u->stream = NULL;
	g->n--;
	g->used[u->slot]--;
	mc_metric_add(&unproven, -1);
}

/* The oldest connection of the slot, or of the slot that has the most. */
static struct mc_tls_unproven *gate_oldest_locked(struct mc_tls_gate *g, uint16_t slot)
{
	unsigned most = 1;

	if (g->used[slot] > g->max_same)
		return mc_list_first(&g->slot[slot].same, struct mc_tls_unproven, same);
	for (unsigned i = 0; i < MC_TLS_SLOTS; i++) {
		if (g->used[i] > most) {
			most = g->used[i];
			slot = (uint16_t)i;
		}
	}
	return most > 1 ? mc_list_first(&g->slot[slot].same, struct mc_tls_unproven, same) :
	       mc_list_first(&g->all, struct mc_tls_unproven, all);
}

void mc_tls_gate_enter(struct mc_tls_gate *g, struct mc_tls_unproven *u, uint16_t slot, struct mc_stream *s)
{
	struct mc_tls_unproven *old = NULL;

	mc_mutex_lock(&g->lock);
	if (!g->used[slot]++)
		mc_list_init(&g->slot[slot].same);
	g->n++;
	*u = (struct mc_tls_unproven){ .stream = s, .slot = slot, .counted = true };
	mc_list_push_back(&g->all, &u->all);
	mc_list_push_back(&g->slot[slot].same, &u->same);
	if (g->used[slot] > g->max_same || g->n > g->max) {
		old = gate_oldest_locked(g, slot);
		/* Under the lock, because its owner may be about to close it. */
		mc_stream_shutdown(old->stream, SHUT_RDWR);
		gate_unlist_locked(g, old);
	}
	mc_mutex_unlock(&g->lock);
	mc_metric_add(&unproven, 1);
	if (!old)
		return;
	mc_metric_add(&gave_way, 1);
	mc_warn("tls", "closing the oldest connections in a handshake for new ones service=%s limit=%u per_address=%u",
		g->service, g->max, g->max_same);
}

void mc_tls_gate_leave(struct mc_tls_gate *g, struct mc_tls_unproven *u, bool proved)
{
	uint64_t *full;

	/* Only its own thread enters a connection, and lets it leave. */
	if (!u->counted)
		return;
	mc_mutex_lock(&g->lock);
	full = &g->slot[u->slot].full_ns;
	if (proved && *full > STEP_NS)
		*full -= STEP_NS;
	u->counted = false;
	if (u->stream)
		gate_unlist_locked(g, u);
	mc_mutex_unlock(&g->lock);
}
