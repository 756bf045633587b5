/* SPDX-License-Identifier: Apache-2.0
 * lease.c - release pins and keep them alive. */
#include <config.h>

#include "client/session/lease.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/metrics.h"
#include "common/sys/clock.h"

#define QUEUE_MIN 1024
/* Maximum of pins in one message. */
#define MESSAGE_MAX 16384

MC_GAUGE(pins_held, "mooncake_client_pins", "", "pins held on objects")
MC_COUNTER(renewals, "mooncake_client_lease_renewals_total", "", "leases of long reads renewed")
MC_COUNTER(dropped, "mooncake_client_releases_dropped_total", "",
	   "pins held until the connection ends, because memory to queue their release ran out")

int mcs_leases_init(struct mcs_leases *l, void (*wake)(void *arg), void *arg)
{
	memset(l, 0, sizeof(*l));
	mc_mutex_init(&l->lock);
	mc_list_init(&l->readings);
	l->wake = wake;
	l->arg = arg;
	l->queue = malloc(QUEUE_MIN * sizeof(*l->queue));
	l->cap_queue = QUEUE_MIN;
	l->message = malloc(MESSAGE_MAX * sizeof(*l->message));
	return l->queue && l->message ? 0 : -ENOMEM;
}

void mcs_leases_done(struct mcs_leases *l)
{
	free(l->queue);
	free(l->message);
	mc_mutex_destroy(&l->lock);
}

void mcs_leases_epoch(struct mcs_leases *l, uint64_t epoch)
{
	MC_LOCKED(&l->lock);
	l->epoch = epoch;
	l->n_queue = 0;
}

void mcs_leases_granted(int n)
{
	mc_metric_add(&pins_held, n);
}

/* The queue grows as needed: a pin that is not released stays held until the connection ends. */
static bool lease_queue_room(struct mcs_leases *l)
{
	unsigned cap = 2 * l->cap_queue;
	uint64_t *queue;

	if (l->n_queue < l->cap_queue)
		return true;
	queue = realloc(l->queue, cap * sizeof(*queue));
	if (!queue)
		return false;
	l->queue = queue;
	l->cap_queue = cap;
	return true;
}

/* True: the queue was empty before. */
static bool lease_queue_pin(struct mcs_leases *l, struct mcs_pin pin)
{
	if (!pin.id)
		return false;
	mc_metric_add(&pins_held, -1);
	if (pin.epoch != l->epoch)
		return false;
	if (!lease_queue_room(l)) {
		mc_metric_add(&dropped, 1);
		return false;
	}
	l->queue[l->n_queue++] = pin.id;
	if (l->n_queue > 1)
		return false;
	l->flushed_ns = mc_now_ns();
	return true;
}

void mcs_leases_begin(struct mcs_leases *l, struct mcs_reading *rd, const struct mcs_pin *pins,
		      unsigned n, uint64_t granted_ns)
{
	rd->pins = pins;
	rd->n = n;
	rd->renewed_ns = granted_ns;
	MC_LOCKED(&l->lock);
	mc_list_push_back(&l->readings, &rd->link);
}

void mcs_leases_end(struct mcs_leases *l, struct mcs_reading *rd)
{
	bool wake = false;

	mc_mutex_lock(&l->lock);
	mc_list_remove(&rd->link);
	for (unsigned i = 0; i < rd->n; i++)
		wake |= lease_queue_pin(l, rd->pins[i]);
	mc_mutex_unlock(&l->lock);
	if (wake)
		l->wake(l->arg);
}

void mcs_leases_release(struct mcs_leases *l, struct mcs_pin pin)
{
	bool wake;

	mc_mutex_lock(&l->lock);
	wake = lease_queue_pin(l, pin);
	mc_mutex_unlock(&l->lock);
	if (wake)
		l->wake(l->arg);
}

void mcs_leases_piggyback(struct mcs_leases *l, struct mcp_buf *b)
{
	const struct mcp_frame f = { .type = MCP_RELEASE, .flags = MCP_FRAME_ONEWAY };
	struct mcp_release msg;
	unsigned n;

	MC_LOCKED(&l->lock);
	n = l->n_queue < MESSAGE_MAX ? l->n_queue : MESSAGE_MAX;
	if (!n)
		return;
	msg.pins = mcp_seq(l->queue + l->n_queue - n, n);
	/* The element struct is one u64, so the queue already is an array of elements. */
	_Static_assert(sizeof(struct mcp_pin) == sizeof(uint64_t), "struct mcp_pin");
	if (!mcp_frame_append(b, f, &mcp_desc_release, &msg))
		l->n_queue -= n;
}

/* Take as many pins out of the queue as fit into a message.  Only the background thread uses
 * @message. */
static unsigned lease_take_message(struct mcs_leases *l, uint64_t *ret_epoch)
{
	unsigned n;

	MC_LOCKED(&l->lock);
	n = l->n_queue < MESSAGE_MAX ? l->n_queue : MESSAGE_MAX;
	l->n_queue -= n;
	memcpy(l->message, l->queue + l->n_queue, n * sizeof(*l->message));
	*ret_epoch = l->epoch;
	return n;
}

/* The pins were not sent, or perhaps not: queue them again.  The master ignores pins that it has
 * released already. */
static void lease_requeue(struct mcs_leases *l, unsigned n, uint64_t epoch)
{
	MC_LOCKED(&l->lock);
	l->flushed_ns = mc_now_ns();
	for (unsigned i = 0; i < n && l->epoch == epoch; i++) {
		if (lease_queue_room(l))
			l->queue[l->n_queue++] = l->message[i];
		else
			mc_metric_add(&dropped, 1);
	}
}

bool mcs_leases_flush(struct mcs_leases *l, struct mcs_session *s)
{
	struct mcp_release msg;
	uint64_t epoch;
	bool wait;
	unsigned n;

	mc_mutex_lock(&l->lock);
	n = l->n_queue;
	wait = mc_now_ns() - l->flushed_ns < MCS_RELEASE_MS * MC_NS_PER_MS / 2;
	mc_mutex_unlock(&l->lock);
	if (!n || wait)
		return n > 0;
	while ((n = lease_take_message(l, &epoch)) > 0) {
		/* Pins of an earlier connection are void. */
		if (epoch != mcs_session_epoch(s))
			continue;
		msg.pins = mcp_seq(l->message, n);
		if (mcs_send(s, MCP_RELEASE, &msg) < 0) {
			lease_requeue(l, n, epoch);
			break;
		}
	}
	return true;
}

void mcs_leases_renew(struct mcs_leases *l, struct mcs_session *s, uint32_t lease_ms)
{
	uint64_t now = mc_now_ns(), half = (uint64_t)lease_ms * MC_NS_PER_MS / 2;
	uint64_t *pins = l->message;
	struct mcp_renew msg;
	struct mc_list *pos;
	unsigned n = 0;

	mc_mutex_lock(&l->lock);
	mc_list_for_each(pos, &l->readings) {
		struct mcs_reading *rd = mc_container_of(pos, struct mcs_reading, link);

		/* The next check comes after a quarter of the lease. */
		if (now - rd->renewed_ns < half / 2 || rd->n > MESSAGE_MAX - n)
			continue;
		for (unsigned i = 0; i < rd->n; i++)
			if (rd->pins[i].id && rd->pins[i].epoch == l->epoch)
				pins[n++] = rd->pins[i].id;
		rd->renewed_ns = now;
	}
	mc_mutex_unlock(&l->lock);
	if (!n)
		return;
	msg.pins = mcp_seq(pins, n);
	if (!mcs_send(s, MCP_RENEW, &msg))
		mc_metric_add(&renewals, n);
}
