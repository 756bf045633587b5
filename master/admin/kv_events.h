/* SPDX-License-Identifier: Apache-2.0
 * kv_events.h - events for routers of inference engines, as upstream publishes them
 * (--enable_kv_events).
 *
 * A thread reads the ring of events (event.h) like any watcher and publishes the events on a ZeroMQ
 * PUB socket.  A message has three parts: an empty topic; the message's number (8 bytes, most
 * significant first, from 0); and, as MessagePack, [time in ms, [event, ...], 0].  The thread never
 * makes a put wait: when it falls behind, the oldest events are dropped and counted. */
#ifndef MCM_KV_EVENTS_H
#define MCM_KV_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

struct mcm;
struct mcm_conf;
struct mcm_kv_events;

/* Check the options.  0, or -EINVAL with a detail. */
int mcm_kv_events_check(const struct mcm_conf *conf);
/* May only subscribers whose keys the operator has listed read the events?  True too if nothing is published. */
bool mcm_kv_events_is_secured(const struct mcm_conf *conf);
/* Bind the socket and start publishing, if the options say so; call it before clients are served.
 * -ENOENT: libzmq is missing; -errno; both with a detail.  -ENOMEM. */
int mcm_kv_events_start(struct mcm *m);
/* Publish the pending events as far as that needs no waiting, then stop. */
void mcm_kv_events_stop(struct mcm *m);

struct mcm_kv_events_stats {
	bool enabled;
	uint64_t batches, events;	/* published */
	uint64_t dropped;		/* events that were overwritten before they could be published */
	uint64_t skipped;		/* events whose key is not a number while only such keys are published */
};
struct mcm_kv_events_stats mcm_kv_events_stats(const struct mcm *m);

#endif
