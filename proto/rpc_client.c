/* SPDX-License-Identifier: Apache-2.0
 * rpc_client.c - calls.
 *
 * There is no reader thread.  One of the callers that wait has the reader's role: it receives,
 * delivers every reply to the slot of its call, and wakes that caller.  After its own reply it
 * gives up the role and wakes another caller to take it. */
#include <config.h>

#include "proto/rpc_client_i.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/err.h"
#include "common/process/fork.h"
#include "common/metrics.h"
#include "common/sys/thread.h"

#define CONNECT_TIMEOUT_MS 5000
/* A slot's buffer is kept up to this size. */
#define TX_KEEP (512u << 10)

MC_COUNTER(late, "mooncake_rpc_client_late_replies_total", "", "Replies to calls that had timed out")

/* ---- open ---- */

static int client_split_addrs(struct mcp_client *c, const char *addrs)
{
	unsigned count = 1;
	char *save, *a;

	c->addrs = strdup(addrs);
	c->conf.addrs = strdup(addrs);
	if (!c->addrs || !c->conf.addrs)
		return -ENOMEM;
	for (const char *p = addrs; *p; p++)
		count += *p == ',';
	if (c->conf.find)
		return 0;
	c->addr = calloc(count, sizeof(*c->addr));
	if (!c->addr)
		return -ENOMEM;
	for (a = strtok_r(c->addrs, ",", &save); a; a = strtok_r(NULL, ",", &save)) {
		if (strlen(a) >= MC_ADDR_MAX)
			return -EINVAL;
		c->addr[c->addr_count++] = a;
	}
	return c->addr_count ? 0 : -EINVAL;
}

static void client_free(struct mcp_client *c)
{
	for (unsigned i = 0; i < c->slot_count; i++) {
		struct mcp_slot *slot = c->slots[i];

		mc_cond_destroy(&slot->cond);
		mcp_buf_free(&slot->tx);
		free(slot->body);
		free(slot);
	}
	mc_cond_destroy(&c->changed);
	mc_mutex_destroy(&c->lock);
	free(c->addr);
	free(c->addrs);
	free((char *)c->conf.addrs);
	free(c->software);
	free(c);
}

int mcp_client_open(const struct mcp_client_conf *conf, struct mcp_client **ret)
{
	struct mcp_client *c;
	int r;

	c = calloc(1, sizeof(*c));
	if (!c)
		return mc_fail(-ENOMEM, "no memory for an rpc client");
	mc_mutex_init(&c->lock);
	(void)mc_cond_init(&c->changed);
	c->fork_depth = mc_fork_depth;
	c->conf = *conf;
	c->conf.net = conf->net ? conf->net : mc_net_default();
	c->conf.addrs = NULL;
	c->software = strdup(conf->software ? conf->software : "");
	c->conf.software = c->software;
	if (!c->conf.max_frame)
		c->conf.max_frame = MCP_FRAME_MAX;
	if (!c->conf.connect_timeout_ms)
		c->conf.connect_timeout_ms = CONNECT_TIMEOUT_MS;
	/* With one processor the server runs only while this thread does not. */
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		c->spin_max_ns = conf->spin_us * 1000ull;
	r = c->software ? client_split_addrs(c, conf->addrs ? conf->addrs : "") : -ENOMEM;
	if (r < 0) {
		client_free(c);
		return r == -ENOMEM ? mc_fail(r, "no memory for an rpc client") :
				      mc_fail(r, "invalid addresses: %s", conf->addrs);
	}
	*ret = c;
	return 0;
}

/* ---- slots ---- */

static struct mcp_slot *slot_grow_locked(struct mcp_client *c)
{
	struct mcp_slot *slot;

	if (c->slot_count == MCP_SLOTS) {
		(void)mc_fail(-MC_ELIMIT, "%u calls are outstanding", MCP_SLOTS);
		return NULL;
	}
	slot = calloc(1, sizeof(*slot));
	if (!slot) {
		(void)mc_fail(-MC_ELIMIT, "no memory for a call");
		return NULL;
	}
	(void)mc_cond_init(&slot->cond);
	mc_list_init(&slot->waiter);
	slot->index = c->slot_count;
	c->slots[c->slot_count++] = slot;
	return slot;
}

/* Allocate a slot for a call over @l and take over the caller's reference of @l. */
static int slot_new_locked(struct mcp_client *c, struct mcp_link *l, uint16_t type, struct mcp_slot **ret)
{
	struct mcp_slot *slot = c->free_slots;

	if (slot)
		c->free_slots = slot->next_free;
	else
		slot = slot_grow_locked(c);
	if (!slot)
		return -MC_ELIMIT;
	/* One-way frames have id 0. */
	do {
		slot->id = slot->uses++ << MCP_SLOT_BITS | slot->index;
	} while (!slot->id);
	slot->state = MCP_SLOT_WAITING;
	slot->type = type;
	slot->link = l;
	slot->err = slot->status = 0;
	l->calls++;
	*ret = slot;
	return 0;
}

/* Free the slot.  Returns the link if that was its last reference. */
static struct mcp_link *slot_free_locked(struct mcp_client *c, struct mcp_slot *slot)
{
	struct mcp_link *l = slot->link;

	l->calls--;
	l->active_ms = mc_now_ms();
	free(TAKE_PTR(slot->body));
	slot->state = MCP_SLOT_FREE;
	slot->link = NULL;
	slot->next_free = c->free_slots;
	c->free_slots = slot;
	return mcp_link_unref_locked(l);
}

void mcp_slot_done_locked(struct mcp_slot *slot, int err)
{
	if (slot->state != MCP_SLOT_WAITING)
		return;
	slot->state = MCP_SLOT_DONE;
	slot->err = err;
	if (mc_list_empty(&slot->waiter))
		return;
	/* Off the list, so that the reader's role is offered only to callers that still wait. */
	mc_list_remove(&slot->waiter);
	mc_cond_signal(&slot->cond);
}

int mcp_client_reply(struct mcp_client *c, struct mcp_link *l, const struct mcp_frame *f, void *body)
{
	uint32_t index = f->id & (MCP_SLOTS - 1);
	struct mcp_slot *slot;
	int r = 0;

	mc_mutex_lock(&c->lock);
	slot = index < c->slot_count ? c->slots[index] : NULL;
	if (!slot || slot->state != MCP_SLOT_WAITING || slot->id != f->id || slot->link != l) {
		mc_metric_add(&late, 1);
	} else if (slot->type != f->type) {
		r = -MC_EPROTO;
	} else {
		slot->status = f->status;
		slot->len = f->length;
		slot->body = TAKE_PTR(body);
		mcp_slot_done_locked(slot, 0);
	}
	mc_mutex_unlock(&c->lock);
	free(body);
	return r;
}

/* ---- calling ---- */

static void client_leave_locked(struct mcp_client *c)
{
	if (--c->users == 0 && c->closing)
		mc_cond_broadcast(&c->changed);
}

static int call_encode(const struct mcp_slot *slot, struct mcp_buf *tx, const void *msg)
{
	struct mcp_frame f = { .type = slot->type, .id = slot->id };
	const struct mcp_desc *d = mcp_desc_of(slot->type, false);
	int r;

	mcp_buf_reset(tx);
	r = mcp_frame_append(tx, f, d, msg);
	if (r == 0 && tx->len - MCP_FRAME_HEADER > slot->link->max_frame)
		return mc_fail(-MC_EPARAM, "%s has %zu bytes, the limit of the server is %u", mcp_desc_str(d),
			       tx->len - MCP_FRAME_HEADER, slot->link->max_frame);
	return r;
}

/* Begin a call.  The lock is held, and dropped while the request is sent. */
static int call_start_locked(struct mcp_client *c, uint16_t type, const void *msg, uint64_t deadline,
			struct mcp_slot **ret)
{
	struct mcp_link *l, *last = NULL;
	struct mcp_slot *slot;
	bool ahead;
	int r;

	if (!mcp_desc_of(type, false) || !mcp_desc_of(type, true))
		return mc_fail(-MC_EPARAM, "message type %u is not a request", type);
	r = mcp_connect_locked(c, deadline, &l);
	if (r < 0)
		return r;
	r = slot_new_locked(c, l, type, &slot);
	ahead = l == c->link;
	mc_mutex_unlock(&c->lock);
	if (r < 0) {
		mcp_link_unref(l);
		mc_mutex_lock(&c->lock);
		return r;
	}
	r = call_encode(slot, &slot->tx, msg);
	if (r == 0)
		r = mcp_link_send(l, &slot->tx, ahead, deadline);
	if (slot->tx.cap > TX_KEEP)
		mcp_buf_free(&slot->tx);
	mc_mutex_lock(&c->lock);
	if (r == 0) {
		*ret = slot;
		return 0;
	}
	last = slot_free_locked(c, slot);
	mc_mutex_unlock(&c->lock);
	mcp_link_free(last);
	mc_mutex_lock(&c->lock);
	return r;
}

/* Sleep until the reply has arrived or the reader's role is free. */
static void call_sleep_locked(struct mcp_client *c, struct mcp_slot *slot, uint64_t deadline)
{
	mc_list_push_back(&slot->link->waiters, &slot->waiter);
	(void)mc_cond_wait_until(&slot->cond, &c->lock, deadline);
	mc_list_remove(&slot->waiter);
}

static int call_wait_locked(struct mcp_client *c, struct mcp_slot *slot, uint64_t deadline)
{
	struct mcp_link *l = slot->link;
	int r = 0;

	while (slot->state == MCP_SLOT_WAITING) {
		if (mc_now_ns() >= deadline) {
			r = mc_fail(-MC_ETIMEDOUT, "deadline exceeded, no reply from %s to %s",
				    l->peer, mcp_desc_str(mcp_desc_of(slot->type, false)));
			break;
		}
		if (l->reading) {
			call_sleep_locked(c, slot, deadline);
			continue;
		}
		l->reading = true;
		mc_mutex_unlock(&c->lock);
		mcp_link_read(l, POLLIN, deadline);
		mc_mutex_lock(&c->lock);
		l->reading = false;
	}
	/* Also when this caller never had the role: it may have been offered to it just now. */
	mcp_link_offer_locked(l);
	return r;
}

/* Result of a call. */
struct call_outcome {
	int err, status;
	void *body;
	uint32_t len;
	uint16_t type;
};

/* Wait for the slot's reply, free the slot, and end the caller's use of the client.  Unlocks. */
static void call_finish_locked(struct mcp_client *c, struct mcp_slot *slot, uint64_t deadline,
			  struct call_outcome *o)
{
	struct mcp_link *last;

	*o = (struct call_outcome){ .type = slot->type };
	o->err = call_wait_locked(c, slot, deadline);
	if (o->err == 0 && slot->err < 0)
		o->err = mc_fail(slot->err, "connection to %s lost: %s", slot->link->peer, slot->link->why);
	o->status = slot->status;
	o->len = slot->len;
	o->body = TAKE_PTR(slot->body);
	last = slot_free_locked(c, slot);
	if (last) {
		mc_mutex_unlock(&c->lock);
		mcp_link_free(last);
		mc_mutex_lock(&c->lock);
	}
	client_leave_locked(c);
	mc_mutex_unlock(&c->lock);
}

static int call_read_outcome(struct call_outcome *o, void *ret_msg, struct mcp_reply *ret_reply)
{
	auto_free void *body = o->body;
	const struct mcp_desc *d = mcp_desc_of(o->type, true);
	int r;

	if (o->err < 0)
		return o->err;
	if (o->status) {
		r = mc_err_from_wire(o->status);
		return mc_fail(r < 0 ? r : -MC_EINTERNAL, "%s: error from the server: %s",
			       mcp_desc_str(mcp_desc_of(o->type, false)), mc_strerror(r));
	}
	r = ret_msg ? mcp_decode(d, body, o->len, ret_msg) : 0;
	if (r == 0 && ret_reply)
		ret_reply->mem = TAKE_PTR(body);
	return r;
}

int mcp_call(struct mcp_client *c, uint16_t type, const void *msg, void *ret_msg,
	     struct mcp_reply *ret_reply, uint64_t deadline)
{
	struct mcp_slot *slot;
	struct call_outcome o;
	int r;

	r = mc_fork_check(c->fork_depth);
	if (r < 0)
		return r;
	mc_mutex_lock(&c->lock);
	c->users++;
	r = call_start_locked(c, type, msg, deadline, &slot);
	if (r < 0) {
		client_leave_locked(c);
		mc_mutex_unlock(&c->lock);
		return r;
	}
	call_finish_locked(c, slot, deadline, &o);
	return call_read_outcome(&o, ret_msg, ret_reply);
}

int mcp_call_start(struct mcp_client *c, uint16_t type, const void *msg, struct mcp_ticket *ret,
		   uint64_t deadline)
{
	struct mcp_slot *slot;
	int r;

	r = mc_fork_check(c->fork_depth);
	if (r < 0)
		return r;
	MC_LOCKED(&c->lock);
	c->users++;
	r = call_start_locked(c, type, msg, deadline, &slot);
	if (r == 0)
		*ret = (struct mcp_ticket){ slot->id, slot->index };
	client_leave_locked(c);
	return r;
}

int mcp_call_wait(struct mcp_client *c, struct mcp_ticket t, void *ret_msg,
		  struct mcp_reply *ret_reply, uint64_t deadline)
{
	struct mcp_slot *slot;
	struct call_outcome o;
	int r;

	r = mc_fork_check(c->fork_depth);
	if (r < 0)
		return r;
	mc_mutex_lock(&c->lock);
	slot = t.slot < c->slot_count ? c->slots[t.slot] : NULL;
	if (!slot || slot->state == MCP_SLOT_FREE || slot->id != t.id) {
		mc_mutex_unlock(&c->lock);
		return mc_fail(-MC_EPARAM, "invalid ticket");
	}
	c->users++;
	call_finish_locked(c, slot, deadline, &o);
	return call_read_outcome(&o, ret_msg, ret_reply);
}

int mcp_send(struct mcp_client *c, uint16_t type, const void *msg)
{
	struct mcp_frame f = { .type = type, .flags = MCP_FRAME_ONEWAY };
	uint64_t deadline = mc_deadline_ms(c->conf.connect_timeout_ms);
	struct mcp_link *l = NULL, *last = NULL;
	struct mcp_buf tx = { 0 };
	int r;

	if (!mcp_desc_of(type, false))
		return mc_fail(-MC_EPARAM, "message type %u is unknown", type);
	r = mc_fork_check(c->fork_depth);
	if (r == 0)
		r = mcp_frame_append(&tx, f, mcp_desc_of(type, false), msg);
	if (r < 0)
		return r;
	mc_mutex_lock(&c->lock);
	c->users++;
	if (c->greeting && mc_thread_equal(c->connector, mc_thread_self()))
		l = c->greeting;
	else if (c->link && !c->link->dead)
		l = c->link;
	if (l)
		l->refs++;
	mc_mutex_unlock(&c->lock);
	r = l ? mcp_link_send(l, &tx, false, deadline) : mc_fail(-MC_ERPC, "not connected");
	mcp_buf_free(&tx);

	mc_mutex_lock(&c->lock);
	last = l ? mcp_link_unref_locked(l) : NULL;
	mc_mutex_unlock(&c->lock);
	mcp_link_free(last);
	mc_mutex_lock(&c->lock);
	client_leave_locked(c);
	mc_mutex_unlock(&c->lock);
	return r;
}

void mcp_reply_done(struct mcp_reply *r)
{
	free(TAKE_PTR(r->mem));
}

/* ---- state and end ---- */

bool mcp_client_up(const struct mcp_client *c)
{
	if (mc_fork_check(c->fork_depth) < 0)
		return false;
	MC_LOCKED((struct mc_mutex *)&c->lock);
	return c->link && !c->link->dead && !mcp_link_is_over(c->link);
}

void mcp_client_prefer(struct mcp_client *c, const char *addr)
{
	MC_LOCKED(&c->lock);
	for (unsigned i = 0; i < c->addr_count; i++)
		if (!strcmp(c->addr[i], addr))
			c->addr_prefer = i + 1;
}

void mcp_client_reset(struct mcp_client *c)
{
	struct mcp_link *l, *last = NULL;

	if (mc_fork_check(c->fork_depth) < 0)
		return;
	mc_mutex_lock(&c->lock);
	l = TAKE_PTR(c->link);
	if (l) {
		mcp_link_fail_locked(l, "reset");
		last = mcp_link_unref_locked(l);
	}
	mc_mutex_unlock(&c->lock);
	mcp_link_free(last);
}

/* Free tickets that were not waited for. */
static void client_drop_tickets(struct mcp_client *c)
{
	struct mcp_link *last;

	for (unsigned i = 0; i < c->slot_count; i++) {
		if (c->slots[i]->state == MCP_SLOT_FREE)
			continue;
		mc_mutex_lock(&c->lock);
		last = slot_free_locked(c, c->slots[i]);
		mc_mutex_unlock(&c->lock);
		mcp_link_free(last);
	}
}

void mcp_client_close(struct mcp_client *c)
{
	if (!c || mc_fork_check(c->fork_depth) < 0)
		return;
	mc_mutex_lock(&c->lock);
	c->closing = true;
	if (c->link)
		mcp_link_fail_locked(c->link, "client closed");
	if (c->greeting)
		mcp_link_fail_locked(c->greeting, "client closed");
	mc_cond_broadcast(&c->changed);
	/* Each of them returns: its link has failed, or its attempt to connect times out. */
	while (c->users)
		mc_cond_wait(&c->changed, &c->lock);
	mc_mutex_unlock(&c->lock);
	client_drop_tickets(c);
	mcp_client_reset(c);
	client_free(c);
}
