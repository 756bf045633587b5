/* SPDX-License-Identifier: Apache-2.0
 * transport.c - the list of transports and the slots that do nothing. */
#include <config.h>

#include "engine/transport.h"

#include <errno.h>
#include <stddef.h>

#include "common/err.h"

const struct mce_transport *const mce_transports[] = {
	&mce_local_transport,
	&mce_mapped_transport,
	&mce_process_vm_transport,
	&mce_tcp_transport,
	NULL,
};

const struct mce_transport *const mce_upstream_transports[] = {
	&mce_upstream_transport,
	NULL,
};

int mce_no_attach(struct mce_peer *p)
{
	return 0;
}

void mce_no_detach(struct mce_peer *p)
{
}

int mce_no_connect(struct mce_peer *p, uint64_t deadline)
{
	return 0;
}

int mce_no_prepare(struct mce_peer *p, uint64_t rkey, uint64_t deadline)
{
	return 0;
}

unsigned mce_no_run(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	return 0;
}

void mce_no_flush(struct mce_peer *p)
{
}

void mce_no_poll(struct mce_peer *p)
{
}

int mce_no_lead(struct mce_peer *p, const struct mce_batch *b, uint64_t deadline)
{
	return -EAGAIN;
}

void mce_no_cancel(struct mce_peer *p, struct mce_req *req, int status)
{
}

int mce_no_map(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len, const void **ret)
{
	return -MC_ENOTSUP;
}
