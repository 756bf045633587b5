/* SPDX-License-Identifier: Apache-2.0
 * transfer.h - one request of the engine, waited for. */
#ifndef TESTS_LIB_TRANSFER_H
#define TESTS_LIB_TRANSFER_H

#include "engine/mce.h"

static inline int mce_transfer(struct mce_engine *e, struct mce_req *req, uint64_t deadline)
{
	struct mce_batch b;
	int r;

	mce_batch_init(&b);
	mce_submit(e, &b, req, 1);
	r = mce_batch_wait(e, &b, req, 1, deadline);
	return r < 0 ? r : req->status;
}

#endif
