/* SPDX-License-Identifier: Apache-2.0
 * client.c - the table of clients. */
#include <config.h>

#include "master/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

void mcm_clients_init(struct mcm_clients *cs)
{
	memset(cs, 0, sizeof(*cs));
	mc_mutex_init(&cs->lock);
}

void mcm_clients_done(struct mcm_clients *cs)
{
	struct mcm_client *c;
	unsigned i;

	for (i = 0; i < MCM_CLIENT_BUCKETS; i++) {
		while ((c = cs->bucket[i])) {
			cs->bucket[i] = c->next;
			free(c);
		}
	}
	mc_mutex_destroy(&cs->lock);
}

/* ---- lock held ---- */

static struct mcm_client **client_link(struct mcm_clients *cs, struct mcp_id id)
{
	struct mcm_client **c = &cs->bucket[(id.hi ^ id.lo ^ id.lo >> 32) % MCM_CLIENT_BUCKETS];

	while (*c && !mcp_id_eq((*c)->id, id))
		c = &(*c)->next;
	return c;
}

struct mcm_client *mcm_client_find(struct mcm_clients *cs, struct mcp_id id)
{
	return *client_link(cs, id);
}

struct mcm_client *mcm_client_get(struct mcm *m, struct mcp_id id)
{
	struct mcm_client **at = client_link(&m->clients, id), *c = *at;

	if (c)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	c->id = id;
	c->seen_ms = mcm_now_ms(m);
	mc_list_init(&c->segments);
	*at = c;
	m->clients.count++;
	return c;
}

void mcm_client_own(struct mcm_clients *cs, struct mcm_client *c, struct mcm_segment *s)
{
	if (mc_list_empty(&c->segments))
		cs->owners++;
	mc_list_push_back(&c->segments, &s->link);
}

void mcm_client_disowned(struct mcm_clients *cs, const struct mcm_client *c)
{
	if (mc_list_empty(&c->segments))
		cs->owners--;
}

void mcm_client_unneeded(struct mcm_clients *cs, struct mcm_client *c)
{
	if (c->sessions || !mc_list_empty(&c->segments))
		return;
	*client_link(cs, c->id) = c->next;
	cs->count--;
	free(c);
}

/* New objects are stored only in segments of connected clients. */
static void set_connected(struct mcm *m, const struct mcm_client *c)
{
	struct mc_list *at;

	mc_list_for_each(at, &c->segments) {
		struct mcm_segment *s = mc_container_of(at, struct mcm_segment, link);

		__atomic_store_n(&s->connected, c->sessions > 0, __ATOMIC_RELAXED);
		if (c->sessions)
			mcm_segment_usable(&m->segments, s);
	}
}

/* ---- connections ---- */

int mcm_client_opened(struct mcm *m, struct mcp_id id)
{
	struct mcm_client *c;

	if (mcp_id_zero(id))
		return 0;
	MC_LOCKED(&m->clients.lock);
	c = mcm_client_get(m, id);
	if (!c)
		return mc_fail(-ENOMEM, "out of memory for a client");
	if (c->sessions++ == 0)
		set_connected(m, c);
	return 0;
}

void mcm_client_identified(struct mcm *m, struct mcp_id id, const struct mc_principal *identity)
{
	struct mcm_client *c;
	struct mc_list *at;

	if (!(identity->roles & MC_MAY_OWN))
		return;
	MC_LOCKED(&m->clients.lock);
	c = mcm_client_find(&m->clients, id);
	if (!c)
		return;
	mc_list_for_each(at, &c->segments) {
		struct mcm_segment *s = mc_container_of(at, struct mcm_segment, link);

		if (identity->secret > mcm_load_relaxed(&s->node_secret) && !strcmp(identity->name, s->node))
			mcm_store_relaxed(&s->node_secret, identity->secret);
	}
}

void mcm_client_closed(struct mcm *m, struct mcp_id id)
{
	struct mcm_client *c;

	if (mcp_id_zero(id))
		return;
	MC_LOCKED(&m->clients.lock);
	c = mcm_client_find(&m->clients, id);
	if (!c || --c->sessions)
		return;
	set_connected(m, c);
	mcm_client_unneeded(&m->clients, c);
}

int mcm_client_check_text(const char *name, struct mcp_bytes text)
{
	const unsigned char *p = text.data;
	uint32_t i;

	if (text.len > MCM_NAME_MAX)
		return mc_fail(-MC_EPARAM, "%s is too long: bytes=%u maximum=%u", name, text.len,
			       MCM_NAME_MAX);
	for (i = 0; i < text.len; i++)
		if (p[i] <= ' ' || p[i] >= 0x7f || p[i] == '"' || p[i] == '\\')
			return mc_fail(-MC_EPARAM, "%s contains an invalid byte %#x", name, p[i]);
	return 0;
}

static bool text_is(const char *text, struct mcp_bytes bytes)
{
	return strlen(text) == bytes.len && !memcmp(text, bytes.data, bytes.len);
}

static void text_set(char text[MCM_NAME_MAX + 1], struct mcp_bytes bytes)
{
	memset(text, 0, MCM_NAME_MAX + 1);
	memcpy(text, bytes.data, bytes.len < MCM_NAME_MAX ? bytes.len : MCM_NAME_MAX);
}

/* While the first client of an id is connected, no other may use the id. */
static int client_check_owner(const struct mcm_client *c, struct mcp_bytes name, struct mcp_bytes host)
{
	if (!c->registered || c->sessions <= 1)
		return 0;
	if (!text_is(c->name, name))
		return mc_fail(-MC_EOWNER, "the client id is in use by the connected client %s", c->name);
	if (!text_is(c->host, host))
		return mc_fail(-MC_EOWNER, "the client id is in use by a client that is connected from another "
			       "address; if this client has moved, wait until its old connections have ended");
	return 0;
}

int mcm_client_register(struct mcm *m, const struct mcp_register *rq, struct mcp_bytes host)
{
	struct mcm_client *c;
	int r;

	r = mcm_client_check_text("the client's name", rq->name);
	if (r < 0)
		return r;
	MC_LOCKED(&m->clients.lock);
	c = mcm_client_find(&m->clients, rq->client);
	if (!c)
		return mc_fail(-MC_ENOCLIENT, "no connection has this client id");
	r = client_check_owner(c, rq->name, host);
	if (r < 0)
		return r;
	text_set(c->name, rq->name);
	text_set(c->host, host);
	c->registered = true;
	c->seen_ms = mcm_now_ms(m);
	return 0;
}

bool mcm_client_registered(struct mcm *m, struct mcp_id id)
{
	const struct mcm_client *c;

	MC_LOCKED(&m->clients.lock);
	c = mcm_client_find(&m->clients, id);
	return c && c->registered;
}

unsigned mcm_client_count(struct mcm *m)
{
	MC_LOCKED(&m->clients.lock);
	return m->clients.count;
}
