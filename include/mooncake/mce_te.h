/* SPDX-License-Identifier: Apache-2.0
 * mce_te.h - the transfer engine's own API, with functions that upstream's C ABI
 * (transfer_engine_c.h) lacks: waiting without polling, deadlines, cancelling, prepared lists,
 * managed memory.  Requests, statuses and batch ids are those of transfer_engine_c.h, and a
 * transfer_engine_t is a struct mce_te *: one engine may be used through both.
 *
 * Functions return 0 or a count, or negative: -errno or -MC_E*; mce_te_strerror() and, for the calling thread's
 * last failure, mce_te_error_detail() return text.  Outputs come last and are untouched on failure.  Everything
 * may be called from any thread, but mce_te_close() may not overlap with other uses of the engine. */
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

/* ---- engine ------------------------------------------------------------------------------------ */

struct mce_te_conf {
	size_t size;			/* sizeof(struct mce_te_conf) */
	const char *metadata;		/* P2PHANDSHAKE, http(s)://, etcd://, redis:// */
	const char *name;		/* "host" or "host:port" */
	const char *nic_filter;		/* comma list of devices to use; NULL or "": all */
	/* Used with MC_LEGACY_RPC_PORT_BINDING only: instead of the name's host, unless NULL or
	 * "", and as the port of a name without one, unless 0. */
	const char *legacy_host;
	uint16_t legacy_port;
	/* "tcp": no NICs; "rdma": the NICs of nic_filter, with a warning if this host has none; NULL or "": NICs if
	 * there are any.  With "rdma" the descriptor says so, and upstream's nodes use RDMA too (not TCP any more). */
	const char *protocol;
	/* A topology as JSON text, or the name of a file with it; NULL or "": MC_CUSTOM_TOPO_JSON, else the machine's.
	 * Without nic_filter its devices are the NICs that are used. */
	const char *nic_priority_matrix;
};
/* A metadata server that cannot be reached is no error: the engine and its registered memory are published as
 * soon as it can be reached.  If a live node turns out to have the same name then, registering fails with
 * -MC_EOWNER until that node has ended, and peers cannot find this engine. */
int mce_te_open(const struct mce_te_conf *conf, struct mce_te **ret);
/* Waits for notifications that are being sent (at most 5 s), fails all other running work, removes the engine's
 * entries from the metadata server, and frees managed memory.  NULL is fine. */
void mce_te_close(struct mce_te *te);
const char *mce_te_name(const struct mce_te *te);	/* the name that peers open */
const char *mce_te_address(const struct mce_te *te);	/* "ip:port" of the handshake service */
int mce_te_rpc_port(const struct mce_te *te);
/* Use another topology from now on: memory that is registered later uses the NICs that it prefers for its location.
 * -EINVAL for a text that is none. */
int mce_te_set_matrix(struct mce_te *te, const char *text_or_file);
/* Upstream's priority matrix, {"cpu:0": [["nic"], ["other"]], ...}; @filter: comma list of
 * devices that may appear, NULL: those of the engine.  free() it. */
int mce_te_topology(struct mce_te *te, const char *filter, char **ret_json);
/* showLinks() without its limit; free() it. */
int mce_te_links(struct mce_te *te, int json, char **ret_text);
/* enableGracefulShutdown(). */
int mce_te_graceful_shutdown(struct mce_te *te);
/* This process's metrics in Prometheus text; free() it. */
int mce_te_metrics(char **ret_text);

/* ---- memory ------------------------------------------------------------------------------------ */

/* -EEXIST: overlaps registered memory; -EINVAL: invalid arguments; -EFAULT: this process can access a part neither for
 * reading nor for writing (not mapped, PROT_NONE), so no transfer could.  GPU memory is accepted. */
int mce_te_register(struct mce_te *te, void *addr, size_t len, const char *location,
		    int remote_accessible);
int mce_te_register_batch(struct mce_te *te, const struct buffer_entry *list, size_t n,
			  const char *location);
/* -ENOENT: not registered.  Transfers of peers complete or fail before this returns.  It waits
 * at most 5 s for this engine's tasks that use the memory, then cancels their batches. */
int mce_te_unregister(struct mce_te *te, void *addr);
int mce_te_unregister_batch(struct mce_te *te, void *const *addrs, size_t n);
/* Allocate and register memory, in huge pages if available; peers on the same host map it
 * instead of copying through the kernel.  @numa_node -1: the caller's.  mce_te_unmanage() frees
 * it, by its first address; no transfer may be using it. */
int mce_te_manage(struct mce_te *te, size_t len, int numa_node, void **ret);
int mce_te_unmanage(struct mce_te *te, void *addr);

/* The number of the GPU whose memory @p is, -1: none; and memcpy() between any two kinds of memory: 0, or negative. */
int mce_te_gpu_of(const void *p);
int mce_te_gpu_memcpy(void *dst, const void *src, size_t n);

/* ---- segments ---------------------------------------------------------------------------------- */

#define MCE_TE_FRESH 0x1	/* fetch the descriptor, even if it is cached */

int mce_te_open_segment(struct mce_te *te, const char *name, unsigned flags, segment_id_t *ret);
/* The first buffer that the peer registered; -ENOENT: none. */
int mce_te_first_buffer(struct mce_te *te, segment_id_t segment, uint64_t *ret_addr, uint64_t *ret_len);
int mce_te_sync(struct mce_te *te);
/* 0: the peer's handshake service answered. */
int mce_te_probe(struct mce_te *te, const char *name);
int mce_te_notify(struct mce_te *te, segment_id_t segment, const char *name, const char *msg);
int mce_te_notify_name(struct mce_te *te, const char *segment, const char *name, const char *msg);

/* ---- batches ----------------------------------------------------------------------------------- */

struct mce_te_submit_opts {
	size_t size;			/* sizeof(struct mce_te_submit_opts) */
	int64_t deadline_ms;		/* ms after now; tasks not ended by then get STATUS_TIMEOUT; 0: none */
	const char *notify_name;	/* with notify_msg: as submitTransferWithNotify(); not without requests */
	const char *notify_msg;
	/* For GPU memory: not 0 if the program has waited for its own work on it.  Otherwise the transfers begin after
	 * all work that it has given to the GPU's default stream and to the streams that are ordered with it.  When a
	 * transfer has ended, its bytes are in place for work that is started then. */
	int ordered;
	/* Hints, NULL or "": none.  transport: the way that is taken where the peer and this engine have it: "tcp",
	 * "rdma", or "shm" (memory of this host).  nic: the NIC of this engine that transfers over RDMA use if it can
	 * carry them.  A hint that is not such a name, or cannot be followed, changes nothing; names that this engine
	 * does not have are logged once each. */
	const char *transport;
	const char *nic;
};

struct mce_te_batch_status {
	int status;		/* WAITING; COMPLETED if all have; else the status of a task that did not complete */
	size_t tasks, ended;
	size_t failed;		/* 0 while it is WAITING */
	uint64_t bytes;		/* bytes of completed tasks; 0 while it is WAITING */
};

/* -MC_ELIMIT: too many batches, or too many tasks for one (2^24). */
int mce_te_batch_new(struct mce_te *te, size_t capacity, batch_id_t *ret);
/* @opts may be NULL.  -EINVAL: no such batch; -ENOBUFS: more requests than the batch has room
 * for.  An invalid request fails its own task only. */
int mce_te_submit(struct mce_te *te, batch_id_t batch, const struct transfer_request *reqs, size_t n,
		  const struct mce_te_submit_opts *opts);
/* Start the requests when @stream, a handle of the GPU driver's (0: the default stream of the current context), gets to
 * this place; later work of the stream begins when all have completed.  Returns when that is arranged.  If a transfer
 * fails then, the process ends with an error in the log, as in upstream: nothing else would keep the work that follows
 * from using wrong bytes.  -MC_ENOTSUP: no driver is loaded. */
int mce_te_submit_on_stream(struct mce_te *te, uintptr_t stream, const struct transfer_request *reqs, size_t n);
/* Prepared lists: _prepare looks up all targets and starts nothing (it accepts all requests or none; the error
 * is that of the first one not found).  A batch has either prepared or submitted tasks.  Each _post starts all
 * tasks of the batch again, after those of the last post have ended (else -EBUSY). */
int mce_te_prepare(struct mce_te *te, batch_id_t batch, const struct transfer_request *reqs, size_t n);
int mce_te_post(struct mce_te *te, batch_id_t batch, const struct mce_te_submit_opts *opts);
int mce_te_task_status(struct mce_te *te, batch_id_t batch, size_t task, struct transfer_status *ret);
int mce_te_batch_status(struct mce_te *te, batch_id_t batch, struct mce_te_batch_status *ret);
/* Wait until all tasks have ended: 0, with any status of the tasks; -MC_ETIMEDOUT after
 * @timeout_ms (< 0: no limit), and the tasks continue. */
int mce_te_wait(struct mce_te *te, batch_id_t batch, int64_t timeout_ms);
/* Tasks that have not ended get STATUS_CANCELED, and the caller may reuse their memory when this returns: at
 * once or, while descriptors are being fetched from peers, within 5 s.  The target of a WRITE that did not
 * complete has undefined contents until a later WRITE to the same address has completed. */
int mce_te_cancel(struct mce_te *te, batch_id_t batch);
/* A descriptor (eventfd) that becomes readable each time all submitted tasks have ended; owned
 * by the batch, closed by mce_te_batch_free(). */
int mce_te_batch_eventfd(struct mce_te *te, batch_id_t batch);
int mce_te_batch_free(struct mce_te *te, batch_id_t batch);	/* -EBUSY: tasks have not ended */

#ifdef __cplusplus
}
#endif

#endif
