/* SPDX-License-Identifier: Apache-2.0
 * kv_events.h - events for routers of inference engines, as upstream publishes them (--enable_kv_events).
 *
 * A thread reads the ring of events (event.h) as any watcher does and publishes what it finds on a ZeroMQ
 * PUB socket, in messages of three parts: an empty topic, the message's number (8 bytes, most significant
 * first, from 0) and, as MessagePack, [time in ms, [event, ...], 0].  It never makes a put wait: when it
 * falls behind, the oldest events are dropped and counted.
 *
 * libzmq is loaded when it is wanted; nothing else needs it. */
#ifndef MCM_KV_EVENTS_H
#define MCM_KV_EVENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mcm;
struct mcm_conf;
struct mcm_kv_events;
struct mcm_zmq;

/* 0, or -EINVAL with a detail. */
int mcm_kv_events_check(const struct mcm_conf *conf);
/* Bind and publish from now on, when the options say so; before clients are served.  -ENOENT: there is no
 * libzmq; -errno; both with a detail.  -ENOMEM. */
int mcm_kv_events_start(struct mcm *m);
/* What has happened is published first, as far as that takes no time. */
void mcm_kv_events_stop(struct mcm *m);

struct mcm_kv_events_stats {
	bool enabled;
	uint64_t batches, events;	/* published */
	uint64_t dropped;		/* events that came too fast */
	uint64_t skipped;		/* whose keys are no hashes, when only such are published */
};
struct mcm_kv_events_stats mcm_kv_events_stats(const struct mcm *m);

/* ---- one message (kv_events_pack.c) ---- */

struct mcm_kv_pack {
	uint8_t *bytes;
	size_t len, cap;
	bool overflow;			/* what did not fit is missing */
};

struct mcm_event_entry;

/* The head of a message of @events events; they follow, one mcm_kv_pack_event() each. */
void mcm_kv_pack_head(struct mcm_kv_pack *p, uint64_t time_ms, unsigned events);
void mcm_kv_pack_tail(struct mcm_kv_pack *p);
/* How often an event of the ring is packed: twice when it is a renaming, 0 when it is not wanted. */
unsigned mcm_kv_event_count(const struct mcm *m, const struct mcm_event_entry *e, uint64_t *skipped);
/* All of them. */
void mcm_kv_pack_event(struct mcm_kv_pack *p, const struct mcm *m, const struct mcm_event_entry *e,
		       const char *tenant);
/* The number that a key is: decimal, or hexadecimal behind 0x.  False: none. */
bool mcm_kv_key_hash(const void *key, size_t len, uint64_t *ret);

/* ---- the socket (kv_events_zmq.c) ---- */

/* A PUB socket bound to @endpoint (zmq_tcp(7), zmq_ipc(7)).  For the thread that opens and one other after
 * it; not for several at a time. */
int mcm_zmq_open(const char *endpoint, struct mcm_zmq **ret);
/* What was sent goes out within @linger_ms.  NULL is fine. */
void mcm_zmq_close(struct mcm_zmq *z, int linger_ms);
/* Where it is bound to: the real port of one that was given as *. */
const char *mcm_zmq_endpoint(const struct mcm_zmq *z);
/* Never waits: a subscriber that does not keep up misses what its queue cannot hold.  -errno. */
int mcm_zmq_send(struct mcm_zmq *z, const void *part, size_t len, bool more);

#endif
