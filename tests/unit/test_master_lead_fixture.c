/* SPDX-License-Identifier: Apache-2.0
 * test_master_lead_fixture.c - implementation of test_master_lead_fixture.h. */
#include <config.h>

#include "tests/unit/test_master_lead_fixture.h"

#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "master/journal/journal_i.h"

#define SLOW_MS 400
#define SET_MS 100

static int set_members(void *arg, const char *const *member, unsigned n)
{
	struct lead *l = arg;
	int r;

	MC_LOCKED(&l->lock);
	r = mcd_seat_set_members(l->seat, member, n, mc_deadline_ms(SET_MS));
	if (r == -MC_EOWNER)
		__atomic_store_n(&l->until, 0, __ATOMIC_RELEASE);
	__atomic_add_fetch(&l->changes, 1, __ATOMIC_RELEASE);
	return r;
}

static struct mcd_seat *seat_open(const char *conn, const char *name)
{
	const struct mcd_seat_conf conf = { .conn = conn, .cluster = "c", .name = name, .ttl_ms = LEAD_TTL_MS };
	struct mcd_seat_view v;
	struct mcd_seat *s;

	assert_int_equal(mcd_seat_open(&conf, &s), 0);
	assert_int_equal(mcd_seat_look(s, &v, MC_NEVER), 0);
	return s;
}

void lead_up(struct lead *l, unsigned segments)
{
	const char *self = LEAD_NAME;
	const struct mcm_feeders_conf conf = {
		.term = 1, .self = LEAD_NAME, .timeout_ms = LEAD_TIMEOUT_MS, .slow_ms = SLOW_MS,
		.members = LEAD_MEMBERS, .until = &l->until, .set_ms = SET_MS, .set_members = set_members, .arg = l,
	};
	uint64_t term;

	memset(l, 0, sizeof(*l));
	mc_mutex_init(&l->lock);
	jx_up(&l->fx, segments, 4 * MIB);
	jx_answer(&l->fx);
	l->store = fake_store_new("s");
	l->seat = seat_open("fake://s/a", LEAD_NAME);
	l->other = seat_open("fake://s/b", "local:1#1111111111111111");
	assert_int_equal(mcd_seat_take(l->seat, 0, MC_NEVER, &term), 0);
	assert_int_equal(mcd_seat_set_members(l->seat, &self, 1, MC_NEVER), 0);
	l->until = mcd_seat_until(l->seat);
	assert_int_equal(mcm_feeders_new(&conf, &l->f), 0);
	mcm_feeders_attach(l->f, l->fx.m);
}

void lead_stop(struct lead *l)
{
	if (!l->stopped)
		mcm_feeders_stop(l->f);
	l->stopped = true;
}

void lead_down(struct lead *l)
{
	lead_stop(l);
	l->fx.m->feeders = NULL;
	mcm_feeders_free(l->f);
	mcd_seat_close(l->seat);
	mcd_seat_close(l->other);
	fake_store_free(l->store);
	mc_mutex_destroy(&l->lock);
	fx_down(&l->fx);
}

int lead_join(struct lead *l, const char *name, struct mcp_id nonce)
{
	const struct mcp_join rq = { .name = fx_bytes(name), .nonce = nonce };
	uint64_t term = 0;
	int r = mcm_feeders_join(l->f, &rq, fx_bytes("local"), &term);

	assert_int_equal(term, r == -MC_EPARAM ? 0 : 1);
	return r;
}

uint64_t lead_put(struct lead *l, const char *prefix, unsigned n)
{
	char key[32];
	uint64_t mark;

	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%s%u", prefix, i);
		assert_int_equal(fx_put(&l->fx, key, 1000 + i, 0), 0);
	}
	/* As an RPC thread does before it sends the replies; it has no mark if all standbys have the records. */
	mark = mcm_journal_pending_lsn(l->fx.m);
	return mark ? mark - 1 : __atomic_load_n(&l->fx.m->journal->appended, __ATOMIC_RELAXED);
}

unsigned lead_members(struct lead *l)
{
	struct mcd_seat_view v;

	assert_int_equal(mcd_seat_look(l->other, &v, MC_NEVER), 0);
	assert_string_equal(v.member[0], LEAD_NAME);
	return v.n - 1;
}
