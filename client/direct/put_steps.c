/* SPDX-License-Identifier: Apache-2.0
 * put_steps.c - reserve, write, commit: the three steps of a request of puts. */
#include <config.h>

#include "client/direct/put_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/direct/capability.h"
#include "client/layout.h"
#include "common/fault.h"
#include "common/metrics.h"

_Static_assert(MCS_PUT_UPSERT == MCP_PUT_UPSERT && MCS_PUT_HARD_PIN == MCP_PUT_HARD_PIN &&
	       MCS_PUT_SOFT_PIN == MCP_PUT_SOFT_PIN &&
	       MCS_PUT_ALL_REPLICAS == MCP_PUT_ALL_REPLICAS &&
	       MCS_PUT_SAME_NODE == MCP_PUT_SAME_NODE &&
	       MCS_PUT_NO_EVICT == MCP_PUT_NO_EVICT, "flags are sent unchanged");
_Static_assert((int)MCS_SOFT_PIN_ENABLE == (int)MCP_SOFT_PIN_ENABLE &&
	       (int)MCS_SOFT_PIN_DISABLE == (int)MCP_SOFT_PIN_DISABLE, "pins are sent unchanged");
_Static_assert((int)MCS_DIR == (int)MCP_KIND_DIR && (int)MCS_SYMLINK == (int)MCP_KIND_SYMLINK &&
	       (int)MCS_SPECIAL == (int)MCP_KIND_SPECIAL,
	       "kinds are sent unchanged");

#define WIRE_FLAGS (MCS_PUT_UPSERT | MCS_PUT_HARD_PIN | MCS_PUT_SOFT_PIN | MCS_PUT_ALL_REPLICAS | \
		    MCS_PUT_SAME_NODE | MCS_PUT_NO_EVICT)

/* Half of the default of put_start_release_timeout. */
#define WRITE_MAX_MS 300000ull

MC_COUNTER(write_bytes, "mooncake_client_transfer_bytes_total", "op=\"write\"",
	   "bytes moved between this process and segments")
MC_COUNTER(failed, "mooncake_client_transfer_failures_total", "op=\"write\"", "transfers that failed")

/* ---- reserve ---- */

static int put_names(struct mcs_put_request *b, const char *const *list, struct mcp_seq *ret)
{
	unsigned n = 0;
	struct mcp_name *names;

	while (list && list[n])
		n++;
	names = mcs_scratch_raw(b->sc, n, sizeof(*names));
	if (!names)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		names[i].name = mcp_bytes(list[i], strlen(list[i]));
	*ret = mcp_seq(names, n);
	return 0;
}

static struct mcp_bytes put_group_name(const struct mcs_put_request *b, const struct mcs_put_item *item)
{
	const struct mcs_key *group = item->group.len ? &item->group : &b->group;

	return mcp_bytes(group->data, group->len);
}

static int put_reserve_msg(struct mcs_put_request *b, struct mcp_put_start *ret)
{
	struct mcp_put_item *items = mcs_scratch_raw(b->sc, b->n, sizeof(*items));
	unsigned n = 0;

	if (!items)
		return -ENOMEM;
	*ret = (struct mcp_put_start){
		.flags = b->flags & WIRE_FLAGS,
		.replicas = (uint16_t)b->replicas,
		.soft_pin_ms = b->soft_pin_ms,
		.soft_pin = (uint8_t)b->soft_pin,
		.data_type = b->data_type,
		.tenant = b->s->base.tenant,
	};
	/* When the reply is lost, an exclusive put must find out whether the value is its own.
	 * Only the generation tells, so it commits in a separate step. */
	if (!(b->flags & MCS_PUT_EXCL))
		ret->flags |= MCP_PUT_COMMIT;
	for (unsigned i = 0; i < b->n; i++) {
		const struct mcs_put_op *op = &b->ops[i];

		if (op->state != MCS_STEP_RESERVE)
			continue;
		items[n++] = (struct mcp_put_item){
			.key = mcp_bytes(op->item->key.data, (uint32_t)op->item->key.len),
			.size = op->size,
			.kind = (uint8_t)b->kind,
			.group = put_group_name(b, op->item),
			.attrs = mcs_put_attrs(&b->attrs),
		};
	}
	ret->items = mcp_seq(items, n);
	return put_names(b, b->preferred, &ret->preferred);
}

static int put_take_replicas(struct mcs_put_request *b, struct mcs_put_op *op, const struct mcp_seq *list)
{
	struct mcp_replica *reps = mcs_scratch_raw(b->sc, list->count, sizeof(*reps));
	struct mcp_iter it;
	unsigned n = 0;

	if (!reps)
		return -ENOMEM;
	if (!list->count || list->count > b->replicas)
		return mc_fail(-MC_EPROTO, "protocol error: master granted %u replicas", list->count);
	mcp_iter_init(&it, list, &mcp_desc_replica);
	while (n < list->count && mcp_iter_next(&it, &reps[n]))
		n++;
	op->replica = reps;
	op->n_replicas = n;
	return 0;
}

/* @epoch: the connection before the request was sent. */
static void put_granted(struct mcs_put_request *b, struct mcs_put_op *op,
			const struct mcp_put_grant *grant, uint64_t epoch)
{
	int r = mc_err_from_wire(grant->status);

	if (r == -MC_EEXISTS) {
		mcs_put_lost(b, op);
		return;
	}
	if (r == -MC_ENOSPACE || r == -MC_EUNAVAILABLE || r == -MC_ENOTREADY) {
		/* If waiting for held memory does not help, the tenant's own objects fill its quota.  A key that may
		 * have a value (ENOTREADY) is waited for as well. */
		b->held |= r != -MC_ENOSPACE;
		op->refused = r == -MC_EUNAVAILABLE ? -MC_EQUOTA : r;
		return;
	}
	if (r < 0) {
		mcs_put_done(op, r);
		return;
	}
	op->generation = grant->generation;
	op->epoch = mcs_direct_epoch(b->s);
	op->fence = b->fence;
	if (op->size) {
		/* If the connection changed meanwhile, the range may belong to either: revoke it
		 * on the present one. */
		r = op->epoch == epoch ? put_take_replicas(b, op, &grant->replicas) :
			mc_fail(-MC_ESTALE_PUT, "the connection changed during the reservation");
		op->state = r < 0 ? MCS_STEP_BROKEN : MCS_STEP_WRITE;
		op->broken = r;
	} else if (b->flags & MCS_PUT_EXCL) {
		op->crc = 0;
		op->state = MCS_STEP_COMMIT;
	} else {
		mcs_put_done(op, 0);
	}
}

int mcs_put_reserve(struct mcs_put_request *b)
{
	struct mcp_put_start_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_put_grant grant;
	uint64_t epoch = mcs_direct_epoch(b->s);
	struct mcp_put_start msg;
	struct mcp_iter it;
	int r;

	r = put_reserve_msg(b, &msg);
	if (r < 0)
		return r;
	b->granted_ns = mc_now_ns();
	b->fence = mcs_session_terms(b->s->base.session).fence;
	r = mcs_call(b->s->base.session, MCP_PUT_START, &msg, &reply, &mem, b->deadline);
	/* If the master still grants the ranges, nothing here will free them. */
	if (r == -MC_ETIMEDOUT)
		mcs_session_taint(b->s->base.session, mcs_direct_epoch(b->s));
	if (r < 0)
		return r;
	MC_FAULT_POINT("client.put.granted");
	b->held = false;
	mcp_iter_init(&it, &reply.grants, &mcp_desc_put_grant);
	for (unsigned i = 0; i < b->n; i++) {
		struct mcs_put_op *op = &b->ops[i];

		if (op->state != MCS_STEP_RESERVE)
			continue;
		if (mcp_iter_next(&it, &grant)) {
			put_granted(b, op, &grant, epoch);
			continue;
		}
		mcs_session_taint(b->s->base.session, mcs_direct_epoch(b->s));
		mcs_put_done(op, mc_fail(-MC_EPROTO, "protocol error: reply has fewer grants than puts"));
	}
	mcp_reply_done(&mem);
	return 0;
}

/* ---- write ---- */

/* Build the requests of one object at @op->req. */
static int put_prepare(struct mcs_put_request *b, struct mcs_put_op *op)
{
	uint64_t chunks = mc_crc_chunks(op->size);

	op->seg = mcs_scratch_alloc(b->sc, op->n_replicas, sizeof(*op->seg));
	if (!op->seg)
		return -ENOMEM;
	for (unsigned i = 0; i < op->n_replicas; i++) {
		const struct mcp_replica *rep = &op->replica[i];
		int r = mcs_segmap_get(b->s->segmap, rep->segment, b->deadline, &op->seg[i]);

		if (r < 0)
			return r;
		if (rep->offset > op->seg[i]->size ||
		    mcs_stored_size(op->size) > op->seg[i]->size - rep->offset)
			return mc_fail(-MC_EPROTO, "replica lies outside of its segment");
		op->req[i] = (struct mce_req){
			.op = MCE_WRITE,
			.peer = op->seg[i]->peer,
			.addr = op->seg[i]->base + rep->offset,
			.rkey = op->seg[i]->rkey,
			.cap = mcs_capability_new(b->sc, rep, op->size, op->generation, MC_CAPABILITY_WRITE),
			.fence = op->fence,
			.iov = op->item->iov,
			.iovcnt = (unsigned)op->item->iovcnt,
			.crc = mcs_scratch_raw(b->sc, chunks, sizeof(uint32_t)),
			.crc_len = op->size,
			.crc_tail = chunks > 1,
		};
		if (!op->req[i].crc)
			return -ENOMEM;
	}
	return 0;
}

static void put_broken(struct mcs_put_op *op, int r)
{
	op->state = MCS_STEP_BROKEN;
	op->broken = r;
}

/* Are all replicas written, with the same bytes? */
static int put_check_written(struct mcs_put_request *b, struct mcs_put_op *op)
{
	int r = 0;

	for (unsigned i = 0; i < op->n_replicas; i++) {
		uint32_t crc;

		if (op->req[i].status < 0) {
			r = mcs_transfer_error(op->req[i].status);
			mc_metric_add(&failed, 1);
			mcs_segmap_forget(b->s->segmap, op->replica[i].segment);
			continue;
		}
		__atomic_store_n(&op->seg[i]->path, op->req[i].path, __ATOMIC_RELAXED);
		mc_metric_add(&write_bytes, (int64_t)op->size);
		crc = mcs_crc_of_chunks(op->req[i].crc, op->size);
		if (!i)
			op->crc = crc;
		else if (crc != op->crc && !r)
			r = mc_fail(-MC_ETRANSFER, "the bytes changed while they were stored");
	}
	return r;
}

static void put_release_segs(struct mcs_put_op *op)
{
	for (unsigned i = 0; i < op->n_replicas && op->seg; i++)
		mcs_seg_put(op->seg[i]);
	op->seg = NULL;
}

/* An attempt leaves time for the next one, if there may be one.  None lasts so long that the
 * master takes the writer for dead and frees its ranges. */
static uint64_t put_attempt_deadline(const struct mcs_put_request *b)
{
	uint64_t now = mc_now_ns(), most = b->granted_ns + WRITE_MAX_MS * MC_NS_PER_MS;
	unsigned tries = 0;

	for (unsigned i = 0; i < b->n; i++)
		if (b->ops[i].state == MCS_STEP_WRITE && b->ops[i].tries > tries)
			tries = b->ops[i].tries;
	if (b->deadline == MC_NEVER || now >= b->deadline || tries + 1 >= MCS_PUT_TRIES)
		return b->deadline < most ? b->deadline : most;
	now += (b->deadline - now) / 2;
	return now < most ? now : most;
}

/* Write to the granted ranges while they belong to the puts: all were granted at the same time. */
static int put_write_all(struct mcs_put_request *b, struct mce_req *reqs, unsigned n, uint64_t epoch)
{
	struct mce_batch batch;
	int r;

	if (!mcs_put_owned(b->s, epoch, b->granted_ns))
		return mc_fail(-MC_ESTALE_PUT, "the connection that the put belonged to is gone");
	mce_batch_init(&batch);
	mce_submit(b->s->engine, &batch, reqs, n);
	r = mcs_put_wait(b->s, &batch, reqs, n, epoch, put_attempt_deadline(b));
	/* Also after a timeout the engine has released the memory, and each request has its status. */
	return r == -MC_ESTALE_PUT ? r : 0;
}

void mcs_put_write(struct mcs_put_request *b)
{
	unsigned total = 0, n = 0;
	struct mce_req *reqs;
	uint64_t epoch = 0;
	int r, lost;

	for (unsigned i = 0; i < b->n; i++)
		if (b->ops[i].state == MCS_STEP_WRITE)
			total += b->ops[i].n_replicas;
	reqs = mcs_scratch_raw(b->sc, total, sizeof(*reqs));
	for (unsigned i = 0; i < b->n; i++) {
		struct mcs_put_op *op = &b->ops[i];

		if (op->state != MCS_STEP_WRITE)
			continue;
		op->req = reqs + n;
		r = reqs ? put_prepare(b, op) : -ENOMEM;
		if (r < 0) {
			put_release_segs(op);
			put_broken(op, r);
			continue;
		}
		n += op->n_replicas;
		epoch = op->epoch;
	}
	if (!n)
		return;
	lost = put_write_all(b, reqs, n, epoch);
	for (unsigned i = 0; i < b->n; i++) {
		struct mcs_put_op *op = &b->ops[i];

		if (op->state != MCS_STEP_WRITE)
			continue;
		r = mc_fault("client.put.write");
		r = r ? r : lost ? lost : put_check_written(b, op);
		if (r < 0) {
			/* Its writes may still be carried out there. */
			put_broken(op, r);
			continue;
		}
		put_release_segs(op);
		op->state = MCS_STEP_COMMIT;
	}
}

/* ---- commit ---- */

static int put_done_list(struct mcs_put_request *b, enum mcs_put_step state, struct mcp_seq *ret)
{
	struct mcp_put_done *items = mcs_scratch_raw(b->sc, b->n, sizeof(*items));
	unsigned n = 0;

	if (!items)
		return -ENOMEM;
	for (unsigned i = 0; i < b->n; i++) {
		const struct mcs_put_op *op = &b->ops[i];

		if (op->state != state || op->leaving)
			continue;
		items[n++] = (struct mcp_put_done){
			.key = mcp_bytes(op->item->key.data, (uint32_t)op->item->key.len),
			.generation = op->generation,
			.crc = op->crc,
			.attrs = mcs_put_attrs(&b->attrs),
		};
	}
	*ret = mcp_seq(items, n);
	return (int)n;
}

/* Takes over the op's segments. */
static void put_revoke_later(struct mcs_put_request *b, struct mcs_put_op *op)
{
	struct mcs_seg **seg = op->seg ? malloc(op->n_replicas * sizeof(struct mcs_seg *)) : NULL;

	if (op->seg && !seg) {
		/* The put ends with the connection. */
		mcs_session_taint(b->s->base.session, op->epoch);
		put_release_segs(op);
		return;
	}
	if (seg)
		memcpy(seg, op->seg, op->n_replicas * sizeof(struct mcs_seg *));
	mcs_background_revoke(b->s->background, op->item->key.data, op->item->key.len, op->generation, op->epoch,
			      seg, seg ? op->n_replicas : 0);
	op->seg = NULL;
}

/* The master frees the range of a revoked put at once: revoke it only when none of its writes can be carried out any
 * more.  The background thread waits for that. */
static void put_leave_unsettled(struct mcs_put_request *b)
{
	for (unsigned i = 0; i < b->n; i++) {
		struct mcs_put_op *op = &b->ops[i];

		op->leaving = op->state == MCS_STEP_BROKEN && !mcs_segs_settled(op->seg, op->n_replicas);
		if (op->leaving)
			put_revoke_later(b, op);
	}
}

static void put_committed(struct mcs_put_request *b, struct mcs_put_op *op, int r)
{
	if (r == -MC_EEXISTS && !(b->flags & MCS_PUT_UPSERT))
		mcs_put_lost(b, op);
	else if (r == -MC_ESTALE_PUT || r == -MC_EEXISTS)
		mcs_put_again(op, r);
	else
		mcs_put_done(op, r);
}

/* The connection was lost after the commit was sent: the master's index shows the outcome. */
static void put_found_out(struct mcs_put_request *b, struct mcs_put_op *op, const struct mcp_object *obj)
{
	int r = mc_err_from_wire(obj->status);

	if (!r && obj->generation == op->generation)
		mcs_put_done(op, 0);
	else if (!r && !(b->flags & MCS_PUT_UPSERT))
		mcs_put_lost(b, op);
	else if (!r && obj->generation > op->generation)
		/* A later upsert has replaced the value.  Either order of the two is correct, so
		 * ours counts as done. */
		mcs_put_done(op, 0);
	else if (!r || r == -MC_ENOOBJECT)
		mcs_put_again(op, -MC_ERPC);
	else if (r != -MC_ENOTREADY)
		mcs_put_done(op, r);
}

static void put_find_out_once(struct mcs_put_request *b)
{
	struct mcp_key *keys = mcs_scratch_raw(b->sc, b->n, sizeof(*keys));
	struct mcp_get_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_get msg = { .tenant = b->s->base.tenant };
	struct mcp_object obj;
	struct mcp_iter it;
	unsigned n = 0;
	int r = keys ? 0 : -ENOMEM;

	for (unsigned i = 0; i < b->n && keys; i++)
		if (b->ops[i].state == MCS_STEP_COMMIT)
			keys[n++].key = mcp_bytes(b->ops[i].item->key.data,
						  (uint32_t)b->ops[i].item->key.len);
	msg.keys = mcp_seq(keys, n);
	if (keys)
		r = mcs_call(b->s->base.session, MCP_GET, &msg, &reply, &mem, b->deadline);
	if (r >= 0)
		mcp_iter_init(&it, &reply.objects, &mcp_desc_object);
	for (unsigned i = 0; i < b->n; i++) {
		struct mcs_put_op *op = &b->ops[i];

		if (op->state != MCS_STEP_COMMIT)
			continue;
		if (r < 0)
			mcs_put_done(op, r);
		else if (mcp_iter_next(&it, &obj))
			put_found_out(b, op, &obj);
		else
			mcs_put_done(op, mc_fail(-MC_EPROTO, "protocol error: reply has fewer results than keys"));
	}
	mcp_reply_done(&mem);
}

static void put_find_out(struct mcs_put_request *b)
{
	struct mcs_patience owner = { 0 };

	/* Puts whose outcome the restarted master does not know yet stay in this step. */
	do
		put_find_out_once(b);
	while (mcs_put_any(b, MCS_STEP_COMMIT) &&
	       mcs_session_await_owner(b->s->base.session, &owner, b->deadline));
	for (unsigned i = 0; i < b->n; i++)
		if (b->ops[i].state == MCS_STEP_COMMIT)
			mcs_put_done(&b->ops[i], -MC_ENOTREADY);
}

static void put_end_all(struct mcs_put_request *b)
{
	struct mcp_put_end_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_put_end msg = { .tenant = b->s->base.tenant };
	struct mcp_status st;
	struct mcp_iter it;
	int r;

	r = put_done_list(b, MCS_STEP_COMMIT, &msg.items);
	if (r > 0 && b->nof_replicas) {
		int e = put_names(b, b->preferred_nof, &msg.preferred_nof);

		msg.nof = (uint8_t)b->nof_replicas;
		r = e < 0 ? e : r;
	}
	if (r > 0)
		r = mcs_call_once(b->s->base.session, MCP_PUT_END, &msg, &reply, &mem, b->deadline);
	else if (!r)
		return;
	if (r == -MC_ERPC) {
		put_find_out(b);
		return;
	}
	if (r >= 0)
		mcp_iter_init(&it, &reply.results, &mcp_desc_status);
	for (unsigned i = 0; i < b->n; i++) {
		struct mcs_put_op *op = &b->ops[i];

		if (op->state != MCS_STEP_COMMIT)
			continue;
		if (r < 0) {
			put_revoke_later(b, op);
			mcs_put_done(op, r);
		} else if (mcp_iter_next(&it, &st)) {
			put_committed(b, op, mc_err_from_wire(st.status));
		} else {
			mcs_put_done(op, mc_fail(-MC_EPROTO, "protocol error: reply has fewer results than puts"));
		}
	}
	mcp_reply_done(&mem);
}

/* Revoke broken puts, so that they can be repeated elsewhere. */
static void put_revoke_broken(struct mcs_put_request *b)
{
	struct mcp_put_revoke_reply reply;
	struct mcp_reply mem = { 0 };
	struct mcp_put_revoke msg = { .tenant = b->s->base.tenant };
	bool late = mc_now_ns() >= b->deadline;
	int r;

	put_leave_unsettled(b);
	r = put_done_list(b, MCS_STEP_BROKEN, &msg.items);
	if (r > 0 && !late)
		r = mcs_call_once(b->s->base.session, MCP_PUT_REVOKE, &msg, &reply, &mem, b->deadline);
	if (r >= 0 && !late)
		mcp_reply_done(&mem);
	for (unsigned i = 0; i < b->n; i++) {
		struct mcs_put_op *op = &b->ops[i];

		if (op->state != MCS_STEP_BROKEN)
			continue;
		if ((late || r < 0) && !op->leaving)
			put_revoke_later(b, op);
		put_release_segs(op);
		op->leaving = false;
		if (late)
			mcs_put_done(op, mc_fail(-MC_ETIMEDOUT, "put did not end in time"));
		else
			mcs_put_again(op, op->broken);
	}
}

void mcs_put_commit(struct mcs_put_request *b)
{
	int r = mc_fault("client.put.before_end");

	for (unsigned i = 0; i < b->n && r < 0; i++)
		if (b->ops[i].state == MCS_STEP_COMMIT)
			put_broken(&b->ops[i], r);
	put_end_all(b);
	MC_FAULT_POINT("client.put.after_end");
	put_revoke_broken(b);
}
