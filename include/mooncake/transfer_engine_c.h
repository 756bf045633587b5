/* SPDX-License-Identifier: Apache-2.0
 * transfer_engine_c.h - the transfer engine's C ABI under the names, layouts and results of
 * upstream's header of the same name: programs and bindings built for upstream link and run
 * unchanged.  mce_te.h has more functions for new programs (waiting, deadlines, cancelling, managed
 * memory); both may be used with one engine: a transfer_engine_t is a struct mce_te *.
 *
 * Results: 0, or one of ERR_*.  submitTransfer(), submitTransferWithNotify(), getTransferStatus() and
 * freeBatchID() give the positive number (1 invalid argument, 2 too many requests, 4 batch busy), the others
 * the negative one.  Strings and arrays are not used after the call.  Everything may be called from any thread,
 * but destroyTransferEngine() may not overlap with other uses of the engine.
 *
 * After fork() the engine belongs to the parent: in the child its functions fail, and destroying
 * it does nothing; the child can create its own engine. */
#ifndef TRANSFER_ENGINE_C
#define TRANSFER_ENGINE_C

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define segment_handle_t int32_t
#define segment_id_t int32_t
#define batch_id_t uint64_t
#define LOCAL_SEGMENT 0
#define INVALID_BATCH UINT64_MAX

#define OPCODE_READ 0	/* copy from the peer into source */
#define OPCODE_WRITE 1	/* copy from source to the peer */

#define STATUS_WAITING 0
#define STATUS_PENDING 1
#define STATUS_INVALID 2
#define STATUS_CANCELED 3
#define STATUS_COMPLETED 4
#define STATUS_TIMEOUT 5
#define STATUS_FAILED 6

struct transfer_request {
	int opcode;
	void *source;
	segment_id_t target_id;
	uint64_t target_offset;	/* the peer's virtual address */
	uint64_t length;
};
typedef struct transfer_request transfer_request_t;

struct transfer_status {
	int status;
	uint64_t transferred_bytes;
};
typedef struct transfer_status transfer_status_t;

struct notify_msg {
	char *name;
	char *msg;
};
typedef struct notify_msg notify_msg_t;

struct buffer_entry {
	void *addr;
	size_t length;
};
typedef struct buffer_entry buffer_entry_t;

struct nic_load_stat {
	char device_name[64];
	uint64_t inflight_bytes;
	double ewma_bandwidth_bps;
};
typedef struct nic_load_stat nic_load_stat_t;

#define SEGMENT_TYPE_RDMA 0
#define SEGMENT_TYPE_NVMEOF 1

/* Declared for source compatibility; no function uses it. */
struct segment_desc {
	int type;
	union {
		struct {
			void *addr;
			uint64_t size;
			const char *location;
		} rdma;
		struct {
			const char *file_path;
			const char *subsystem_name;
			const char *proto;
			const char *ip;
			uint64_t port;
		} nvmeof;
	} desc_;
};
typedef struct segment_desc segment_desc_t;

typedef void *transfer_engine_t;
typedef void *transport_t;

/* @metadata_conn_string: P2PHANDSHAKE, http://..., etcd://..., redis://...; @ip_or_host_name and
 * @rpc_port are used only with MC_LEGACY_RPC_PORT_BINDING.  With P2PHANDSHAKE the engine's name
 * becomes "host of local_server_name:port", see getLocalIpAndPort().  NULL on failure. */
transfer_engine_t createTransferEngine(const char *metadata_conn_string, const char *local_server_name,
				       const char *ip_or_host_name, uint64_t rpc_port,
				       int auto_discover);
int discoverTopology(transfer_engine_t engine);
/* "ip:port" and a NUL; ERR_INVALID_ARGUMENT when it does not fit. */
int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len);
/* For "tcp" and, with one warning in the log, for upstream's other transports, which tcp replaces; NULL for any other
 * name. */
transport_t installTransport(transfer_engine_t engine, const char *proto, void **args);
int uninstallTransport(transfer_engine_t engine, const char *proto);

/* An id of at least 1, LOCAL_SEGMENT for the engine's own name, or negative. */
segment_id_t openSegment(transfer_engine_t engine, const char *segment_name);
segment_id_t openSegmentNoCache(transfer_engine_t engine, const char *segment_name);
int closeSegment(transfer_engine_t engine, segment_id_t segment_id);
int warmupEfaSegment(transfer_engine_t engine, const char *segment_name);
int removeLocalSegment(transfer_engine_t engine, const char *segment_name);
void destroyTransferEngine(transfer_engine_t engine);

/* @location: "cpu:0", "cuda:1", "*", ...; length 0 is -1, also memory that this process cannot
 * access (not mapped, PROT_NONE, a device's); overlap with registered memory -7. */
int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length, const char *location,
			int remote_accessible);
/* After the return no peer can access the memory.  -3: nothing is registered at @addr. */
int unregisterLocalMemory(transfer_engine_t engine, void *addr);
/* All of the list or none, published once. */
int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t *buffer_list, size_t buffer_len,
			     const char *location);
int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list, size_t addr_len);

/* A batch for @batch_size tasks; INVALID_BATCH on failure.  All functions refuse an id that was freed. */
batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size);
/* All requests are accepted, or none (invalid batch, more than it has room for).  An invalid request fails its
 * own task only.  The engine uses the memory of source until the task has ended. */
int submitTransfer(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request *entries,
		   size_t count);
/* The notification is sent to the first entry's target when all tasks of the batch have
 * completed; until it is delivered they stay STATUS_WAITING. */
int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
			     struct transfer_request *entries, size_t count, notify_msg_t notify_msg);
/* The notifications received since the last call: an array of *size for freeNotifsMsgBuf(), NULL on failure. */
notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size);
int freeNotifsMsgBuf(notify_msg_t *msg, int size);
int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id, notify_msg_t notify_msg);
/* Tasks of a batch are numbered in the order of submission. */
int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
		      struct transfer_status *status);
/* 4 (batch busy): a task has not ended. */
int freeBatchID(transfer_engine_t engine, batch_id_t batch_id);

/* Fetch the descriptors of all known segments again. */
int syncSegmentCache(transfer_engine_t engine);
/* *count: in: elements of @stats; out: number of devices. */
int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats, size_t *count);
/* SIGINT, SIGTERM and exit() remove the engine's entries from the metadata server first. */
int enableGracefulShutdown(transfer_engine_t engine);
/* Devices, topology, peers and the paths that requests to them took, as text or JSON, cut to
 * @buf_len bytes including the NUL. */
int showLinks(transfer_engine_t engine, char *buf_out, size_t buf_len, int json_format);

#ifdef __cplusplus
}
#endif

#endif
