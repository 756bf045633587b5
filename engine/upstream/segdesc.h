/* SPDX-License-Identifier: Apache-2.0
 * segdesc.h - what a node tells others about its memory: upstream's segment JSON, and our own members,
 * which upstream ignores, beside it. */
#ifndef MCE_SEGDESC_H
#define MCE_SEGDESC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MCE_SEGDESC_TEXT_MAX (64u << 20)
#define MCE_SEGDESC_BUFFERS_MAX (1u << 20)
#define MCE_SEGDESC_DEVICES_MAX 256u
#define MCE_SEGDESC_NAME_MAX 4096u	/* bytes of any name in it */

struct mce_segdesc_buffer {
	char *name;		/* "cpu:0"; upstream's TCP writes the segment's name here */
	uint64_t addr, length;
	uint64_t rkey;		/* mce_mr_rkey(); 0: none, a node of upstream's */
	uint32_t *rkeys, *lkeys;	/* RDMA: one per device, or NULL */
};

struct mce_segdesc_device {
	char *name, *gid;
	unsigned lid;
};

/* A string that is absent is "" in both directions; NULL encodes as "". */
struct mce_segdesc {
	char *name;
	char *protocol;			/* "tcp"; several: "rdma,tcp" */
	char *timestamp;		/* NULL or "": the time of encoding */
	char *rdma_server_name;
	char *tcp_data_host;		/* "": 0.3.12 and older; the host of rpc_meta then */
	int tcp_data_port;		/* 0: none */
	unsigned tcp_proto_version;	/* 2: with status frames; less: without */
	struct mce_segdesc_buffer *buffers;
	size_t nbuffers;
	uint64_t first;			/* decoded: the address of the first buffer in the text's order, 0: none */
	struct mce_segdesc_device *devices;
	size_t ndevices;
	char *priority_matrix;		/* JSON text, or "" */
	char *endpoint;			/* mce_engine_endpoint() of the same engine; "": upstream's node */
	bool opaque;			/* a protocol whose buffers are no plain memory (nvmeof, cxl, ...):
					 * they were left out */
};

/* Malloc'ed JSON text, compact, ending in a newline as upstream's does.  -EINVAL for what cannot be told
 * (no name, key counts that differ from the devices'), -EMSGSIZE. */
int mce_segdesc_encode(const struct mce_segdesc *d, char **ret_text);
/* -EINVAL with a detail for everything but a complete descriptor: empty names, lengths of 0, ranges that wrap
 * around, key counts that differ from the number of devices. */
int mce_segdesc_decode(const char *text, size_t len, struct mce_segdesc **ret);
void mce_segdesc_free(struct mce_segdesc *d);	/* NULL is fine */

bool mce_segdesc_speaks(const struct mce_segdesc *d, const char *protocol);
/* The buffer that holds all of [addr, addr + len), len > 0; NULL when there is none.  Logarithmic for a
 * decoded descriptor, whose buffers are sorted by address. */
const struct mce_segdesc_buffer *mce_segdesc_find(const struct mce_segdesc *d, uint64_t addr,
						  uint64_t len);

#endif
