/* SPDX-License-Identifier: Apache-2.0
 * calls_control.c - calls about clients and their memory, which ask the master nothing. */
#include <config.h>

#include <errno.h>

#include "common/err.h"
#include "node/upstream/calls.h"

/* Upstream's ClientStatus. */
#define STATUS_OK 1u
#define STATUS_NEED_REMOUNT 2u

static void control_answer(struct mcn_up_run *r, int err)
{
	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	mcn_up_put_result(r->answer, err);
}

void mcn_up_run_ready(struct mcn_up_run *r)
{
	control_answer(r, 0);
}

/* A client shares its memory again at any status but STATUS_OK.  A master that cannot be reached does not change the
 * status: calls wait for it, or for the next one, within their deadlines; the client would fail them at once. */
void mcn_up_run_ping(struct mcn_up_run *r)
{
	bool known = mcn_up_dummy_ping(r->dummies, r->arg[0].id, r->uid);

	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	mcn_up_put_ok(r->answer);
	mcn_up_put64(r->answer, 0);
	mcn_up_put32(r->answer, known ? STATUS_OK : STATUS_NEED_REMOUNT);
}

void mcn_up_run_is_mapped(struct mcn_up_run *r)
{
	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	mcn_up_put_ok(r->answer);
	mcn_up_put8(r->answer, mcn_up_dummy_shares(r->dummies, r->arg[1].id, r->uid, r->arg[0].number));
}

void mcn_up_run_unmap(struct mcn_up_run *r)
{
	control_answer(r, mcn_up_dummy_drop(r->dummies, r->arg[0].id, r->uid));
}

void mcn_up_run_unregister(struct mcn_up_run *r)
{
	control_answer(r, mcn_up_dummy_unshare(r->dummies, r->arg[1].id, r->uid, r->arg[0].number));
}

void mcn_up_run_release(struct mcn_up_run *r)
{
	control_answer(r, mcn_up_buffer_free(r->dummies, r->arg[1].id, r->uid, r->arg[0].number));
}

void mcn_up_run_allocate(struct mcn_up_run *r)
{
	struct mcn_up_buffer b = { 0 };
	int err = mcn_up_buffer_alloc(r->dummies, r->arg[1].id, r->uid, r->arg[0].number, &b);

	mcn_up_answer_begin(r->answer, r->call->answers, 0);
	if (err < 0) {
		mcn_up_put_error(r->answer, err);
		return;
	}
	mcn_up_put_ok(r->answer);
	mcn_up_put64(r->answer, b.addr);
	mcn_up_put64(r->answer, r->arg[0].number);
}
