/* SPDX-License-Identifier: Apache-2.0
 * upstream_serve.c - serving requests in upstream's protocol; tcp_serve.c does the rest.
 *
 * A version 1 WRITE has no answer, so its sender considers it complete when its last byte is in
 * a socket: a READ over another connection may see it partly stored.  That is upstream's protocol, and the
 * reason for its version 2. */
#include <config.h>

#include "common/metrics.h"
#include "engine/tcp/tcp_server.h"

MC_COUNTER(refused, "mooncake_transfer_upstream_refused_total", "",
	   "Requests of upstream's nodes refused: not wholly inside one region that allows it")

static void upstream_answer(struct mce_serve_conn *c, uint32_t code, const uint8_t *at, uint64_t len,
		   struct mce_mr *mr)
{
	struct mce_answer *a = mce_serve_answer(c);

	a->id = 0;
	a->at = at;
	a->len = len;
	a->mr = mr;
	a->hlen = c->up.v2 ? MCE_UP_STATUS_SIZE : 0;
	mce_up_status_pack(a->hdr, code);
}

/* The status, if the version has one, and the end of the connection tell the client. */
void mce_upstream_refuse(struct mce_serve_conn *c)
{
	mc_metric_add(&refused, 1);
	c->closing = true;
	if (c->up.v2)
		upstream_answer(c, MCE_UP_REFUSED, NULL, 0, NULL);
}

void mce_upstream_begin(struct mce_serve_conn *c)
{
	struct mce_up_req *q = &c->up;
	bool write = q->op == MCE_UP_WRITE;
	struct mce_mr *mr;

	if (mce_mr_get_at(c->io->e, q->addr, q->size, write ? MCE_ACCESS_WRITE : MCE_ACCESS_READ,
			  &mr) < 0) {
		mce_upstream_refuse(c);
	} else if (!write && mr->gpu >= 0) {
		mce_gpu_upstream_read(c, mr);
	} else if (write) {
		c->mr = mr;
		c->dst = (uint8_t *)(uintptr_t)q->addr;
		c->left = q->size;
		c->rx.small = q->size <= MCE_RX_SMALL;
		c->writing = true;
		if (mr->gpu >= 0 && mce_gpu_write_begin(c, q->addr, q->size) < 0) {
			mce_mr_unref(mr);
			c->mr = NULL;
			c->writing = false;
			c->left = 0;
			mce_upstream_refuse(c);
		}
	} else {
		upstream_answer(c, MCE_UP_OK, (const uint8_t *)(uintptr_t)q->addr, q->size, mr);
	}
}

void mce_upstream_end_write(struct mce_serve_conn *c)
{
	int r = c->gpu_dst ? mce_gpu_inbox_flush(c->inbox) : 0;

	mce_mr_unref(c->mr);
	c->mr = NULL;
	c->gpu_dst = NULL;
	c->writing = false;
	if (r < 0)
		mce_upstream_refuse(c);
	else if (c->up.v2)
		upstream_answer(c, MCE_UP_OK, NULL, 0, NULL);
}
