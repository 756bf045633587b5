/* SPDX-License-Identifier: Apache-2.0
 * segdesc.h - segment descriptor, by which a node publishes its memory: upstream's JSON, with
 * additional members that upstream ignores. */
#ifndef MCE_SEGDESC_H
#define MCE_SEGDESC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCE_SEGDESC_TEXT_MAX (64u << 20)
#define MCE_SEGDESC_BUFFERS_MAX (1u << 20)
#define MCE_SEGDESC_DEVICES_MAX 256u
#define MCE_SEGDESC_NAME_MAX 4096u	/* bytes of any name in a descriptor */

struct mce_segdesc_buffer {
	char *name;		/* "cpu:0"; upstream's TCP writes the segment name here */
	uint64_t addr, length;
	uint64_t rkey;		/* mce_mr_rkey(); 0: none, the node is upstream's */
	uint32_t *rkeys, *lkeys;	/* RDMA: one per device, or NULL */
};

struct mce_segdesc_device {
	char *name, *gid;
	unsigned lid;
};

/* An absent string is "" when encoding and decoding; NULL is encoded as "". */
struct mce_segdesc {
	char *name;
	char *protocol;			/* "tcp"; several: "rdma,tcp" */
	char *timestamp;		/* NULL or "": the time of encoding */
	char *rdma_server_name;
	char *tcp_data_host;		/* "": 0.3.12 or older, use the host of rpc_meta */
	int tcp_data_port;		/* 0: none */
	unsigned tcp_proto_version;	/* 2: with status frames; lower: without */
	struct mce_segdesc_buffer *buffers;
	size_t nbuffers;
	uint64_t first;			/* decoded: address of the first buffer in the text, 0: none */
	struct mce_segdesc_device *devices;
	size_t ndevices;
	char *priority_matrix;		/* JSON text, or "" */
	char *endpoint;			/* mce_engine_endpoint() of the engine; "": the node is upstream's */
	bool opaque;			/* the protocol's buffers are not plain memory (nvmeof, cxl, ...)
					 * and were not decoded */
};

/* Malloc'ed JSON text, compact, with a final newline like upstream's.  -EINVAL for an invalid
 * descriptor (without a name, or with key counts that differ from the number of devices), -EMSGSIZE. */
int mce_segdesc_encode(const struct mce_segdesc *d, char **ret_text);
/* -EINVAL with a detail for an incomplete or invalid descriptor: empty names, lengths of 0, ranges that wrap
 * around, key counts that differ from the number of devices. */
int mce_segdesc_decode(const char *text, size_t len, struct mce_segdesc **ret);
void mce_segdesc_free(struct mce_segdesc *d);	/* NULL is fine */

bool mce_segdesc_speaks(const struct mce_segdesc *d, const char *protocol);

#endif
