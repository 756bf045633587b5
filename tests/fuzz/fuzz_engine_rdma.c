/* SPDX-License-Identifier: Apache-2.0
 * fuzz_engine_rdma.c - messages of RDMA control connections, and those of upstream's nodes: a message that is accepted
 * survives encoding. */
#include <config.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/rdma/rdma_i.h"
#include "engine/upstream/setup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void setup_check(const uint8_t *data, size_t size)
{
	struct mce_setup s, again;
	char *text;

	if (mce_setup_decode((const char *)data, size, &s) < 0)
		return;
	if (mce_setup_encode(&s, &text) < 0 || mce_setup_decode(text, strlen(text), &again) < 0)
		abort();
	again.ready_ack = s.ready_ack;
	if (memcmp(&s, &again, sizeof(s)) != 0)
		abort();
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mce_rdma_msg msg, again;
	char *frame;
	size_t len;

	setup_check(data, size);
	if (mce_rdma_decode((const char *)data, size, &msg) < 0)
		return 0;
	if (mce_rdma_encode(&msg, &frame, &len) < 0 || mce_rdma_decode(frame + 4, len - 4, &again) < 0 ||
	    again.op != msg.op || again.status != msg.status || again.rkey != msg.rkey || again.naddrs != msg.naddrs ||
	    again.far.nqps != msg.far.nqps || memcmp(again.far.qpn, msg.far.qpn, sizeof(msg.far.qpn)) != 0 ||
	    !again.remote != !msg.remote)
		abort();
	if (msg.remote && (again.remote->base != msg.remote->base || again.remote->len != msg.remote->len ||
			   memcmp(again.remote->key, msg.remote->key,
				  msg.remote->nnics * msg.remote->nparts * sizeof(msg.remote->key[0])) != 0))
		abort();
	free(frame);
	free(msg.remote);
	free(again.remote);
	return 0;
}
