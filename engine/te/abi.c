/* SPDX-License-Identifier: Apache-2.0
 * abi.c - upstream's C functions as calls of our own API, with results as upstream's error numbers. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/process/fork.h"
#include "common/log.h"
#include "common/net/protocol.h"
#include "engine/topo/topo.h"

/* Upstream's error numbers. */
#define ERR_INVALID_ARGUMENT (-1)
#define ERR_TOO_MANY_REQUESTS (-2)
#define ERR_ADDRESS_NOT_REGISTERED (-3)
#define ERR_BATCH_BUSY (-4)
#define ERR_ADDRESS_OVERLAPPED (-7)
#define ERR_SOCKET (-102)
#define ERR_METADATA (-200)
#define ERR_MEMORY (-302)

static int abi_result(int r)
{
	switch (r) {
	case -ENOBUFS:
	case -MC_ELIMIT:
		return ERR_TOO_MANY_REQUESTS;
	case -EBUSY:
		return ERR_BATCH_BUSY;
	case -EEXIST:
		return ERR_ADDRESS_OVERLAPPED;
	case -ENOMEM:
		return ERR_MEMORY;
	case -MC_EOWNER:
		return ERR_METADATA;
	case -ECONNREFUSED:
	case -ETIMEDOUT:
	case -MC_ETIMEDOUT:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
	case -ECONNRESET:
		return ERR_SOCKET;
	default:
		return r < 0 ? ERR_INVALID_ARGUMENT : 0;
	}
}

/* The same number without its sign, for the functions whose abi_result type differs at upstream. */
static int abi_code(int r)
{
	return -abi_result(r);
}

/* ---- engine ------------------------------------------------------------------------------------ */

transfer_engine_t createTransferEngine(const char *metadata_conn_string, const char *local_server_name,
				       const char *ip_or_host_name, uint64_t rpc_port,
				       int auto_discover)
{
	struct mce_te_conf conf = {
		.size = sizeof(conf), .metadata = metadata_conn_string, .name = local_server_name,
		.legacy_host = ip_or_host_name,
		.legacy_port = rpc_port <= UINT16_MAX ? (uint16_t)rpc_port : 0,
	};
	struct mce_te *te;
	int r;

	r = mce_te_open(&conf, &te);
	if (r < 0) {
		/* The caller sees only NULL, so the reason goes to the log. */
		mc_err("engine", "cannot create a transfer engine: %s", mc_err_detail(r));
		return NULL;
	}
	/* Upstream installs the transport by itself then. */
	if (auto_discover)
		(void)mce_te_publish_rdma(te, true);
	return te;
}

void destroyTransferEngine(transfer_engine_t engine)
{
	mce_te_close(engine);
}

int discoverTopology(transfer_engine_t engine)
{
	struct mce_topo *t;

	return engine ? abi_result(mce_te_topo(engine, &t)) : ERR_INVALID_ARGUMENT;
}

int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len)
{
	const char *at = engine ? mce_te_address(engine) : NULL;

	if (!at || !buf_out || strlen(at) >= buf_len)
		return ERR_INVALID_ARGUMENT;
	strcpy(buf_out, at);
	return 0;
}

transport_t installTransport(transfer_engine_t engine, const char *proto, void **args)
{
	int r;

	if (!engine || !proto)
		return NULL;
	r = mc_protocol_parse(proto);
	if (r != MC_PROTOCOL_TCP && r != MC_PROTOCOL_RDMA) {
		mc_err("engine", "unknown transport, use tcp or rdma: name=%s", proto);
		return NULL;
	}
	if (args && args[0] && *(const char *)args[0]) {
		r = mce_te_set_matrix(engine, args[0]);
		if (r < 0)
			mc_warn("engine", "the priority matrix is not used: %s", mc_err_detail(r));
		r = mc_protocol_parse(proto);
	}
	/* The NICs are open already, if there are any.  Upstream's nodes use the descriptor's protocol. */
	if (mce_te_publish_rdma(engine, r == MC_PROTOCOL_RDMA) < 0)
		return NULL;
	if (r == MC_PROTOCOL_RDMA && !mce_engine_has_rdma(((struct mce_te *)engine)->engine))
		mc_warn("engine", "this host has no usable NIC, continuing with tcp and shared memory");
	/* Also for upstream's other transports: the engine chooses a path for each transfer by itself. */
	return (transport_t)(uintptr_t)&mce_tcp_transport;
}

int uninstallTransport(transfer_engine_t engine, const char *proto)
{
	return engine && proto ? 0 : ERR_INVALID_ARGUMENT;
}

/* ---- segments ---------------------------------------------------------------------------------- */

static segment_id_t abi_open_segment(struct mce_te *te, const char *name, unsigned flags)
{
	segment_id_t id;
	int r;

	if (!te || !name)
		return ERR_INVALID_ARGUMENT;
	r = mce_te_open_segment(te, name, flags, &id);
	if (r == 0)
		return id;
	mc_warn("engine", "cannot open a segment: %s segment=%s", mc_err_detail(r), name);
	return r == -ENOENT ? ERR_METADATA : abi_result(r);
}

segment_id_t openSegment(transfer_engine_t engine, const char *segment_name)
{
	return abi_open_segment(engine, segment_name, 0);
}

segment_id_t openSegmentNoCache(transfer_engine_t engine, const char *segment_name)
{
	return abi_open_segment(engine, segment_name, MCE_TE_FRESH);
}

int closeSegment(transfer_engine_t engine, segment_id_t segment_id)
{
	return engine ? 0 : ERR_INVALID_ARGUMENT;
}

int warmupEfaSegment(transfer_engine_t engine, const char *segment_name)
{
	return engine ? 0 : ERR_INVALID_ARGUMENT;
}

int removeLocalSegment(transfer_engine_t engine, const char *segment_name)
{
	struct mce_te *te = engine;

	if (!te || !segment_name || strcmp(segment_name, te->name))
		return ERR_INVALID_ARGUMENT;
	mce_te_remove(te);
	return 0;
}

int syncSegmentCache(transfer_engine_t engine)
{
	return engine ? abi_result(mce_te_sync(engine)) : ERR_INVALID_ARGUMENT;
}

/* ---- memory ------------------------------------------------------------------------------------ */

int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length, const char *location,
			int remote_accessible)
{
	return engine ? abi_result(mce_te_register(engine, addr, length, location, remote_accessible)) :
			ERR_INVALID_ARGUMENT;
}

static int abi_unregister_result(int r)
{
	return r == -ENOENT ? ERR_ADDRESS_NOT_REGISTERED : abi_result(r);
}

int unregisterLocalMemory(transfer_engine_t engine, void *addr)
{
	return engine ? abi_unregister_result(mce_te_unregister(engine, addr)) : ERR_INVALID_ARGUMENT;
}

int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t *buffer_list, size_t buffer_len,
			     const char *location)
{
	return engine ? abi_result(mce_te_register_batch(engine, buffer_list, buffer_len, location)) :
			ERR_INVALID_ARGUMENT;
}

int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list, size_t addr_len)
{
	return engine ? abi_unregister_result(mce_te_unregister_batch(engine, addr_list, addr_len)) :
			ERR_INVALID_ARGUMENT;
}

/* ---- batches ----------------------------------------------------------------------------------- */

batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size)
{
	batch_id_t id;

	return engine && mce_te_batch_new(engine, batch_size, &id) == 0 ? id : INVALID_BATCH;
}

int submitTransfer(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request *entries,
		   size_t count)
{
	return engine ? abi_code(mce_te_submit(engine, batch_id, entries, count, NULL)) :
			-ERR_INVALID_ARGUMENT;
}

int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
			     struct transfer_request *entries, size_t count, notify_msg_t notify_msg)
{
	struct mce_te_submit_opts opts = {
		.size = sizeof(opts), .notify_name = notify_msg.name, .notify_msg = notify_msg.msg,
	};

	if (!engine || !opts.notify_name || !opts.notify_msg)
		return -ERR_INVALID_ARGUMENT;
	return abi_code(mce_te_submit(engine, batch_id, entries, count, &opts));
}

int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
		      struct transfer_status *status)
{
	return engine && status ? abi_code(mce_te_task_status(engine, batch_id, task_id, status)) :
				  -ERR_INVALID_ARGUMENT;
}

int freeBatchID(transfer_engine_t engine, batch_id_t batch_id)
{
	return engine ? abi_code(mce_te_batch_free(engine, batch_id)) : -ERR_INVALID_ARGUMENT;
}

/* ---- notifications ----------------------------------------------------------------------------- */

notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size)
{
	struct mce_te *te = engine;
	notify_msg_t *list;
	int n;

	if (!te || !size || mc_fork_check(te->fork_depth) < 0)
		return NULL;
	n = mce_te_inbox_take(&te->inbox, &list);
	if (n < 0)
		return NULL;
	*size = n;
	return list;
}

int freeNotifsMsgBuf(notify_msg_t *msg, int size)
{
	mce_te_inbox_free(msg, size);
	return 0;
}

int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id, notify_msg_t notify_msg)
{
	if (!engine || target_id > INT32_MAX)
		return ERR_INVALID_ARGUMENT;
	return abi_result(mce_te_notify(engine, (segment_id_t)target_id, notify_msg.name, notify_msg.msg));
}

int enableGracefulShutdown(transfer_engine_t engine)
{
	return engine ? abi_result(mce_te_graceful_shutdown(engine)) : ERR_INVALID_ARGUMENT;
}

/* ---- links and load ---------------------------------------------------------------------------- */

int showLinks(transfer_engine_t engine, char *buf_out, size_t buf_len, int json_format)
{
	auto_free char *text = NULL;
	int r;

	if (!engine || !buf_out || buf_len == 0)
		return ERR_INVALID_ARGUMENT;
	r = mce_te_links(engine, json_format, &text);
	if (r < 0)
		return abi_result(r);
	snprintf(buf_out, buf_len, "%s", text);
	return 0;
}

int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats, size_t *count)
{
	int n;

	if (!engine || !count || (*count && !stats))
		return ERR_INVALID_ARGUMENT;
	n = mce_te_loads(engine, stats, *count);
	if (n < 0)
		return abi_result(n);
	*count = (size_t)n;
	return 0;
}
