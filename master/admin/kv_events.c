/* SPDX-License-Identifier: Apache-2.0
 * kv_events.c - the thread that publishes KV events. */
#include <config.h>

#include "master/admin/kv_events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/thread.h"
#include "master/admin/kv_events_curve.h"
#include "master/admin/kv_events_pack.h"
#include "master/admin/kv_events_zmq.h"
#include "master/mcm_i.h"

#define LOG "kv-events"
#define PERIOD_MS 10
#define LINGER_MS 200
#define BATCH 256u		/* most events of the ring in a message */
#define TEXT (1u << 20)		/* bytes of their keys */
/* Bytes of a message: keys and hashes twice, values of options, names of members. */
#define MESSAGE (4u << 20)

struct mcm_kv_events {
	/* constant */
	struct mcm_zmq *zmq;
	/* owned by the thread */
	uint64_t since, number;
	struct mcm_event_entry *entry;
	char *text;
	struct mcm_kv_pack pack;
	/* atomic */
	uint64_t batches, events, dropped, skipped;
	/* start and stop */
	struct mc_thread thread;
	bool runs;
	struct mc_stop stop;
};

static void counter_add(uint64_t *counter, uint64_t n)
{
	__atomic_fetch_add(counter, n, __ATOMIC_RELAXED);
}

bool mcm_kv_events_is_secured(const struct mcm_conf *c)
{
	return !c->enable_kv_events || (*c->kv_events_curve_secret_key_file && *c->kv_events_curve_clients);
}

/* Read the files, so that a mistake in them is an error at the start. */
static int curve_read(const struct mcm_conf *c, struct mcm_kv_curve *ret)
{
	int r = mcm_kv_curve_secret(c->kv_events_curve_secret_key_file, ret->secret);

	ret->clients = c->kv_events_curve_clients;
	return r < 0 ? r : mcm_kv_curve_allows(ret->clients, NULL);
}

static int curve_check(const struct mcm_conf *c)
{
	struct mcm_kv_curve curve;
	int r;

	if (!*c->kv_events_curve_secret_key_file != !*c->kv_events_curve_clients)
		return mc_fail(-EINVAL, "kv_events_curve_secret_key_file and kv_events_curve_clients belong together");
	if (!*c->kv_events_curve_secret_key_file)
		return 0;
	r = curve_read(c, &curve);
	explicit_bzero(&curve, sizeof(curve));
	return r;
}

int mcm_kv_events_check(const struct mcm_conf *c)
{
	const char *option[] = {
		c->kv_events_backend_id, c->kv_events_model_name, c->kv_events_additional_salt,
		c->kv_events_lora_name, c->kv_events_tenant_id,
	};

	if (!c->enable_kv_events)
		return 0;
	if (!*c->kv_events_bind_endpoint || !*c->kv_events_backend_id)
		return mc_fail(-EINVAL, "enable_kv_events needs kv_events_bind_endpoint and "
			       "kv_events_backend_id");
	for (unsigned i = 0; i < sizeof(option) / sizeof(option[0]); i++)
		if (strlen(option[i]) > MCM_NAME_MAX)
			return mc_fail(-EINVAL, "a kv_events option is too long: bytes=%zu maximum=%u",
				       strlen(option[i]), MCM_NAME_MAX);
	return curve_check(c);
}

/* ---- publishing ---- */

static const char *tenant_of(const struct mcm *m, uint32_t number)
{
	/* While tenants are off, all events have the tenant_id of the options. */
	if (!m->tenants.on)
		return m->conf.kv_events_tenant_id;
	return __atomic_load_n(&m->tenants.at[number], __ATOMIC_ACQUIRE)->name;
}

static void send_batch(struct mcm_kv_events *k)
{
	uint8_t number[8];
	int r;

	for (unsigned i = 0; i < sizeof(number); i++)
		number[i] = (uint8_t)(k->number >> 8 * (7 - i));
	r = mcm_zmq_send(k->zmq, "", 0, true);
	if (r == 0)
		r = mcm_zmq_send(k->zmq, number, sizeof(number), true);
	if (r == 0)
		r = mcm_zmq_send(k->zmq, k->pack.bytes, k->pack.len, false);
	if (r < 0)
		mc_warn(LOG, "lost a message of KV events: %s", mc_err_detail(r));
	k->number++;
}

/* True: there may be more events. */
static bool publish_some(struct mcm *m, struct mcm_kv_events *k)
{
	uint64_t lost = 0, skipped = 0;
	unsigned events = 0;
	int n, i;

	n = mcm_events_read_all(m, k->since, (uint64_t)m->conf.kv_events_queue_capacity, k->entry,
				BATCH, k->text, TEXT, &k->since, &lost);
	if (n < 0)
		return false;
	counter_add(&k->dropped, lost);
	for (i = 0; i < n; i++)
		events += mcm_kv_event_count(m, &k->entry[i], &skipped);
	counter_add(&k->skipped, skipped);
	if (!events)
		return n == (int)BATCH;
	k->pack.len = 0;
	k->pack.overflow = false;
	mcm_kv_pack_head(&k->pack, mc_wall_ns() / MC_NS_PER_MS, events);
	for (i = 0; i < n; i++)
		if (k->entry[i].event.kind == MCP_KIND_OBJECT && k->entry[i].event.type != MCP_EVENT_ATTRS)
			mcm_kv_pack_event(&k->pack, m, &k->entry[i], tenant_of(m, k->entry[i].tenant));
	mcm_kv_pack_tail(&k->pack);
	if (k->pack.overflow) {
		counter_add(&k->dropped, events);
		return true;
	}
	send_batch(k);
	counter_add(&k->batches, 1);
	counter_add(&k->events, events);
	return true;
}

static void *kv_events_run(void *arg)
{
	struct mcm *m = arg;
	struct mcm_kv_events *k = m->kv_events;

	while (!mc_stop_wait(&k->stop, PERIOD_MS))
		while (publish_some(m, k))
			;
	while (publish_some(m, k))
		;
	return NULL;
}

/* ---- start and stop ---- */

static void kv_events_free(struct mcm_kv_events *k)
{
	if (!k)
		return;
	mcm_zmq_close(k->zmq, k->runs ? LINGER_MS : 0);
	mc_stop_done(&k->stop);
	free(k->pack.bytes);
	free(k->text);
	free(k->entry);
	free(k);
}

static int kv_events_open(const struct mcm_conf *c, struct mcm_zmq **ret)
{
	struct mcm_kv_curve curve;
	int r;

	if (!*c->kv_events_curve_secret_key_file)
		return mcm_zmq_open(c->kv_events_bind_endpoint, NULL, ret);
	r = curve_read(c, &curve);
	if (r == 0)
		r = mcm_zmq_open(c->kv_events_bind_endpoint, &curve, ret);
	explicit_bzero(&curve, sizeof(curve));
	return r;
}

int mcm_kv_events_start(struct mcm *m)
{
	struct mcm_kv_events *k;
	uint64_t lost;
	int r;

	if (!m->conf.enable_kv_events)
		return 0;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	mc_stop_init(&k->stop);
	k->entry = calloc(BATCH, sizeof(*k->entry));
	k->text = malloc(TEXT);
	k->pack = (struct mcm_kv_pack){ .bytes = malloc(MESSAGE), .cap = MESSAGE };
	r = k->entry && k->text && k->pack.bytes ? 0 : -ENOMEM;
	if (r == 0)
		r = kv_events_open(&m->conf, &k->zmq);
	/* The ring records every event from here on, with its group. */
	m->events.groups = r == 0;
	if (r == 0)
		r = mcm_events_read_all(m, UINT64_MAX, 0, k->entry, BATCH, k->text, TEXT, &k->since, &lost);
	m->kv_events = k;
	if (r >= 0)
		r = mc_thread_start(&k->thread, "mc-kv-events", kv_events_run, m);
	if (r < 0) {
		m->kv_events = NULL;
		kv_events_free(k);
		return r;
	}
	k->runs = true;
	mc_info(LOG, "publishing KV events endpoint=%s public_key=%s", mcm_zmq_endpoint(k->zmq),
		*mcm_zmq_public(k->zmq) ? mcm_zmq_public(k->zmq) : "none");
	return 0;
}

void mcm_kv_events_stop(struct mcm *m)
{
	struct mcm_kv_events *k = m->kv_events;

	if (!k)
		return;
	mc_stop_set(&k->stop);
	mc_thread_join(k->thread);
	m->kv_events = NULL;
	kv_events_free(k);
}

struct mcm_kv_events_stats mcm_kv_events_stats(const struct mcm *m)
{
	const struct mcm_kv_events *k = m->kv_events;

	if (!k)
		return (struct mcm_kv_events_stats){ 0 };
	return (struct mcm_kv_events_stats){
		true, mcm_load_relaxed(&k->batches), mcm_load_relaxed(&k->events), mcm_load_relaxed(&k->dropped),
		mcm_load_relaxed(&k->skipped),
	};
}
