/* SPDX-License-Identifier: Apache-2.0
 * fake_verbs.h - RDMA NICs for tests: they move real bytes between registered memory of this process, asynchronously,
 * and fail as they are told.  Every control may be used by any thread while transfers run. */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include "engine/rdma/verbs.h"

#define FAKE_NICS_MAX 8u

const struct mce_verbs *fake_verbs(void);
/* NICs "fake0", ... without faults; those of before end.  No engine may be open. */
void fake_reset(unsigned nics);

void fake_port(unsigned nic, bool up);		/* with an event, as when a cable is pulled */
void fake_port_silent(unsigned nic, bool up);	/* without one: a cut behind a switch */
void fake_port_late(unsigned nic, bool up);	/* fake_port(), whose event arrives with the next fake_port() */
void fake_delay(unsigned nic, unsigned us);	/* before each work request */
void fake_stop(unsigned nic, bool stop);	/* after the call, work requests stay in the queue */
/* As if the peer were gone, and the NIC repeated its packets for ever: work requests wait until their queue pair is in
 * the error state. */
void fake_repeat(unsigned nic, bool repeat);
/* Completions of all NICs are not seen, and make no event; when this ends they make none either. */
void fake_hold(bool hold);
/* The @n-th next work request of this NIC fails with @status; 0: none. */
void fake_wc_error(unsigned nic, enum ibv_wc_status status, unsigned n);
void fake_reg_error(unsigned nic, int err, unsigned times);	/* the next registrations fail */
/* Registrations of dma-bufs: the @n-th next one fails with @err, 0: all.  @err 0: none.  A dma-buf is a memfd, and
 * begins at the position of its descriptor. */
void fake_dmabuf_error(unsigned nic, int err, unsigned n);
/* Memory that this process cannot access is not registered by its address (EFAULT), except with peer memory: @alias
 * returns the address at which the process can access it.  NULL: there is none, as after fake_reset(). */
void fake_peer_memory(void *(*alias)(unsigned long long addr));
/* The bytes of a WRITE that failed with IBV_WC_RETRY_EXC_ERR arrive 50 ms later, if the peer's queue pair exists. */
void fake_late_writes(unsigned nic, bool on);
void fake_mtu(unsigned nic, enum ibv_mtu mtu);
void fake_max_mr(unsigned nic, uint64_t bytes);
/* The NIC is an iWARP NIC: it connects by fake_cm.h only; a WRITE completes at once and its bytes are stored when a
 * READ follows on the same queue pair; an error at the peer ends the connection, and the sender sees no more than that.
 * Before an engine opens it. */
void fake_iwarp(unsigned nic);
/* The rate that the port reports, as in struct ibv_port_attr; 0 and 0 after fake_reset().  It slows nothing down. */
void fake_rate(unsigned nic, uint8_t active_speed, uint8_t active_width);

/* Since fake_reset(): work requests executed, calls of post_send, completions, bytes moved. */
uint64_t fake_wrs(unsigned nic);
uint64_t fake_doorbells(unsigned nic);
uint64_t fake_cqes(unsigned nic);
uint64_t fake_bytes(unsigned nic);
/* Since fake_reset(): dma-bufs registered, the longest of them, and the largest offset in one. */
uint64_t fake_dmabufs(unsigned nic);
uint64_t fake_dmabuf_longest(void);
uint64_t fake_dmabuf_offset(void);
long fake_live_objects(void);	/* that exist: contexts, queue pairs, regions, completion queues, ... */

#endif
