/* SPDX-License-Identifier: Apache-2.0
 * mce_te.h - the transfer engine's own API, for what upstream's C ABI (transfer_engine_c.h) lacks:
 * waiting without polling, deadlines, cancelling, prepared lists, managed memory.  Requests,
 * statuses and batch ids are those of transfer_engine_c.h, and a transfer_engine_t is a struct
 * mce_te *: one engine may be used through both.
 *
 * Functions return 0 or a count, or negative: -errno or -MC_E*; mce_te_strerror() and, for the
 * calling thread's last failure, mce_te_error_detail() say what it means.  Outputs come last and
 * are untouched on failure.  Everything may be called from any thread, but mce_te_close() may
 * not overlap with other uses of the engine. */
#ifndef MOONCAKE_MCE_TE_H
#define MOONCAKE_MCE_TE_H

#include <stddef.h>
#include <stdint.h>

#include <mooncake/transfer_engine_c.h>

#ifdef __cplusplus
extern "C" {
#endif

struct mce_te;

const char *mce_te_strerror(int err);
const char *mce_te_error_detail(int err);

/* ---- engine
 * ------------------------------------------------------------------------------------ */

struct mce_te_conf {
	size_t size;			/* sizeof(struct mce_te_conf) */
	const char *metadata;		/* P2PHANDSHAKE, http(s)://, etcd://, redis:// */
	const char *name;		/* "host" or "host:port" */
	const char *nic_filter;		/* comma list of devices to use; NULL or "": all */
	/* With MC_LEGACY_RPC_PORT_BINDING, else ignored: in place of the name's host, unless
	 * NULL or "", and of a port that the name has not, unless 0. */
	const char *legacy_host;
	uint16_t legacy_port;
};
/* A metadata server that cannot be reached is no error: it is told of the engine, and of the
 * memory that is registered, when it can be.  When another node that lives turns out to have the
 * name then, registering fails with -MC_EOWNER until that node is gone, and nobody finds this
 * engine. */
int mce_te_open(const struct mce_te_conf *conf, struct mce_te **ret);
/* Waits for notifications on their way (5 s at most), fails what else is under way, takes the
 * engine's entries out of the metadata server, frees managed memory.  NULL is fine. */
void mce_te_close(struct mce_te *te);
const char *mce_te_name(const struct mce_te *te);	/* what peers open */
const char *mce_te_address(const struct mce_te *te);	/* "ip:port" of the handshake service */
int mce_te_rpc_port(const struct mce_te *te);
/* Upstream's priority matrix, {"cpu:0": [["nic"], ["other"]], ...}; @filter: comma list of
 * devices that may appear, NULL: those of the engine.  free() it. */
int mce_te_topology(struct mce_te *te, const char *filter, char **ret_json);
/* showLinks() without its limit; free() it. */
int mce_te_links(struct mce_te *te, int json, char **ret_text);
/* enableGracefulShutdown(). */
int mce_te_graceful_shutdown(struct mce_te *te);
/* This process's metrics in Prometheus text; free() it. */
int mce_te_metrics(char **ret_text);

/* ---- memory
 * ------------------------------------------------------------------------------------ */

/* -EEXIST for overlap, -EINVAL for nonsense. */
int mce_te_register(struct mce_te *te, void *addr, size_t len, const char *location,
		    int remote_accessible);
int mce_te_register_batch(struct mce_te *te, const struct buffer_entry *list, size_t n,
			  const char *location);
/* -ENOENT: not registered.  Peers' transfers are waited for or fail; own tasks that read or
 * write the memory are waited for, 5 s at the most, and then their batches are cancelled. */
int mce_te_unregister(struct mce_te *te, void *addr);
int mce_te_unregister_batch(struct mce_te *te, void *const *addrs, size_t n);
/* Memory in huge pages where there are any, registered, and mapped by peers of the same host
 * instead of copied through the kernel.  @numa_node -1: the caller's.  mce_te_unmanage() gives
 * it back, by its first address; no transfer may be using it. */
int mce_te_manage(struct mce_te *te, size_t len, int numa_node, void **ret);
int mce_te_unmanage(struct mce_te *te, void *addr);

/* ---- segments
 * ---------------------------------------------------------------------------------- */

#define MCE_TE_FRESH 0x1	/* fetch the descriptor, also when it is known */

int mce_te_open_segment(struct mce_te *te, const char *name, unsigned flags, segment_id_t *ret);
/* The first buffer that the peer registered; -ENOENT when it has none. */
int mce_te_first_buffer(struct mce_te *te, segment_id_t segment, uint64_t *ret_addr, uint64_t *ret_len);
int mce_te_sync(struct mce_te *te);
/* 0: the peer's handshake service answers. */
int mce_te_probe(struct mce_te *te, const char *name);
int mce_te_notify(struct mce_te *te, segment_id_t segment, const char *name, const char *msg);
int mce_te_notify_name(struct mce_te *te, const char *segment, const char *name, const char *msg);

/* ---- batches
 * ----------------------------------------------------------------------------------- */

struct mce_te_submit_opts {
	size_t size;			/* sizeof(struct mce_te_submit_opts) */
	int64_t deadline_ms;		/* from now; what has not ended by then is STATUS_TIMEOUT; 0: none */
	const char *notify_name;	/* with notify_msg: as submitTransferWithNotify(); not without requests */
	const char *notify_msg;
};

struct mce_te_batch_status {
	int status;		/* WAITING, COMPLETED when all have; else that of a task that has not */
	size_t tasks, ended;
	size_t failed;		/* 0 while it is WAITING */
	uint64_t bytes;		/* of completed tasks; 0 while it is WAITING */
};

/* -MC_ELIMIT: too many batches, or too many tasks for one (2^24). */
int mce_te_batch_new(struct mce_te *te, size_t capacity, batch_id_t *ret);
/* @opts may be NULL.  -EINVAL: no such batch; -ENOBUFS: no room for all.  What is wrong with a
 * single request is its task's status. */
int mce_te_submit(struct mce_te *te, batch_id_t batch, const struct transfer_request *reqs, size_t n,
		  const struct mce_te_submit_opts *opts);
/* Prepared lists: _prepare looks everything up and starts nothing (it takes all or none, with
 * the reason for the first that cannot be found); a batch has either prepared or submitted
 * tasks.  Each _post starts all tasks of the batch, again and again, once those of the last post
 * have ended (else -EBUSY). */
int mce_te_prepare(struct mce_te *te, batch_id_t batch, const struct transfer_request *reqs, size_t n);
int mce_te_post(struct mce_te *te, batch_id_t batch, const struct mce_te_submit_opts *opts);
int mce_te_task_status(struct mce_te *te, batch_id_t batch, size_t task, struct transfer_status *ret);
int mce_te_batch_status(struct mce_te *te, batch_id_t batch, struct mce_te_batch_status *ret);
/* Until all tasks have ended: 0 whatever they ended with; -MC_ETIMEDOUT after @timeout_ms (< 0: no
 * limit), which ends nothing. */
int mce_te_wait(struct mce_te *te, batch_id_t batch, int64_t timeout_ms);
/* What has not ended ends as STATUS_CANCELED; its memory is the caller's again when this
 * returns, which is at once, or, when peers are just being asked for their descriptors, within 5
 * s.  Where a WRITE was to go that did not complete, anything may lie until a later one to the
 * same place has completed. */
int mce_te_cancel(struct mce_te *te, batch_id_t batch);
/* A descriptor that becomes readable (eventfd) each time all submitted tasks have ended; the
 * batch's, closed by mce_te_batch_free(). */
int mce_te_batch_eventfd(struct mce_te *te, batch_id_t batch);
int mce_te_batch_free(struct mce_te *te, batch_id_t batch);	/* -EBUSY: tasks have not ended */

#ifdef __cplusplus
}
#endif

#endif
