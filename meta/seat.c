/* SPDX-License-Identifier: Apache-2.0
 * seat.c - leases of leaders, for all kinds of server that have transactions. */
#include <config.h>

#include "meta/seat.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/clock.h"
#include "common/sys/random.h"
#include "meta/leader.h"
#include "meta/meta_i.h"

#define KEYS "mooncake-store/"
#define TTL_MIN_MS 100u
/* Clocks of two machines do not differ more over one lease: a part of the TTL is not used. */
#define DRIFT_SHARE 20u
/* Bits of random numbers in the text of the leader's key, so that a process knows its own lease. */
#define NONCE_BYTES 17

struct mcd_seat {
	/* constant after open */
	struct mcd_backend *backend;
	char name[MCD_SEAT_NAME_MAX];
	char leader_key[MCD_KEY_MAX], state_key[MCD_KEY_MAX];
	unsigned ttl_ms;
	int http_port;
	/* the thread that calls */
	struct mcd_seat_view view;
	char *seen;		/* text of the state, NULL: there is none */
	char *seen_leader;	/* text of the leader's key at the last look, NULL: there was none */
	char *mine;		/* text of the leader's key while this process leads */
	/* atomic */
	uint64_t until;
};

/* ---- texts ------------------------------------------------------------------------------------- */

bool mcd_seat_name_valid(const char *name)
{
	size_t len = strlen(name);

	for (size_t i = 0; i < len; i++)
		if (name[i] <= ' ' || name[i] > '~' || strchr("\",\\", name[i]))
			return false;
	return len && len < MCD_SEAT_NAME_MAX;
}

static int bad_text(const struct mcd_seat *s, const char *key)
{
	return mc_fail(-EINVAL, "%s has an unknown content; is the key used for anything else? key=%s", s->name, key);
}

static bool name_of(const json_t *o, char ret[MCD_SEAT_NAME_MAX])
{
	const char *text = json_string_value(o);

	if (!text || !mcd_seat_name_valid(text))
		return false;
	strcpy(ret, text);
	return true;
}

void mcd_seat_address(const char *name, char ret[MCD_SEAT_NAME_MAX])
{
	snprintf(ret, MCD_SEAT_NAME_MAX, "%.*s", (int)strcspn(name, "#"), name);
}

void mcd_seat_leader_key(const char *cluster, char ret[MCD_KEY_MAX])
{
	snprintf(ret, MCD_KEY_MAX, KEYS "%s/master_view", cluster);
}

int mcd_seat_leader_decode(const char *text, char *ret, int *ret_http_port)
{
	json_t *o = json_loads(text, 0, NULL);
	json_int_t port = json_integer_value(json_object_get(o, "http_port"));
	bool ok = name_of(json_object_get(o, "address"), ret);

	/* Leaders of older versions name no port. */
	if (ok && ret_http_port)
		*ret_http_port = port > 0 && port <= 65535 ? (int)port : 0;
	json_decref(o);
	return ok ? 0 : -EINVAL;
}

int mcd_seat_state_decode(const struct mcd_seat *s, const char *text, struct mcd_seat_view *ret)
{
	json_t *o = json_loads(text, 0, NULL), *list = json_object_get(o, "members");
	json_int_t term = json_integer_value(json_object_get(o, "term"));
	size_t n = json_array_size(list);
	int r = 0;

	if (term <= 0 || !json_is_array(list) || n > MCD_SEAT_MEMBERS_MAX)
		r = bad_text(s, s->state_key);
	for (size_t i = 0; i < n && r == 0; i++)
		r = name_of(json_array_get(list, i), ret->member[i]) ? 0 : bad_text(s, s->state_key);
	ret->term = (uint64_t)term;
	ret->n = (unsigned)n;
	ret->exists = true;
	json_decref(o);
	return r;
}

static char *state_encode(uint64_t term, const char *const *member, unsigned n)
{
	json_t *list = json_array(), *o;
	char *text;

	for (unsigned i = 0; i < n && list; i++)
		(void)json_array_append_new(list, json_string(member[i]));
	o = list ? json_pack("{s:I, s:o}", "term", (json_int_t)term, "members", list) : NULL;
	text = o && json_array_size(list) == n ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}

/* The text of the leader's key: the name, and a number that no other lease has. */
static char *leader_encode(const struct mcd_seat *s, uint64_t term)
{
	char nonce[NONCE_BYTES], *text = NULL;
	json_t *o;

	snprintf(nonce, sizeof(nonce), "%016" PRIx64, mc_random_u64());
	o = json_pack("{s:s, s:I, s:s, s:i}", "address", s->name, "term", (json_int_t)term, "lease", nonce,
		      "http_port", s->http_port);
	text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	return text;
}

/* ---- open and close ---------------------------------------------------------------------------- */

int mcd_seat_conn(const char *type, const char *where, char **ret)
{
	char kinds[64];

	if (!mcd_kind_leases(type))
		return mc_fail(-EINVAL, "%s is not built into this version, use %s", type,
			       mcd_kind_leases_names(kinds, sizeof(kinds)));
	/* etcd's own documents write endpoints as http://HOST:PORT, which would name a metadata server of HTTP. */
	return (mcd_leader_is_store(where) ? asprintf(ret, "%s", where) : asprintf(ret, "%s://%s", type, where)) < 0 ?
		-ENOMEM : 0;
}

int mcd_seat_open(const struct mcd_seat_conf *conf, struct mcd_seat **ret)
{
	struct mcd_seat *s = calloc(1, sizeof(*s));
	const struct mcd_open o = { (conf->ttl_ms + 999) / 1000, conf->credentials };
	char kinds[64];
	int r = 0;

	if (!s)
		return mc_fail(-ENOMEM, "no memory for a lease");
	if (!mcd_seat_name_valid(conf->name))
		r = mc_fail(-EINVAL, "invalid name of a master: %.100s", conf->name);
	else if (!*conf->cluster || strlen(conf->cluster) > MCD_SEAT_CLUSTER_MAX)
		r = mc_fail(-EINVAL, "the cluster's name must have 1 to %u bytes", MCD_SEAT_CLUSTER_MAX);
	else if (conf->ttl_ms < TTL_MIN_MS)
		r = mc_fail(-EINVAL, "a lease of %u ms is too short", conf->ttl_ms);
	if (r == 0)
		r = mcd_backend_open(conf->conn, &o, &s->backend);
	if (r == 0 && !s->backend->ops->has_leases)
		r = mc_fail(-EINVAL, "%s servers have no leases: use %s", s->backend->ops->scheme,
			    mcd_kind_leases_names(kinds, sizeof(kinds)));
	if (r < 0) {
		mcd_seat_close(s);
		return r;
	}
	strcpy(s->name, conf->name);
	s->ttl_ms = conf->ttl_ms;
	s->http_port = conf->http_port;
	mcd_seat_leader_key(conf->cluster, s->leader_key);
	snprintf(s->state_key, sizeof(s->state_key), KEYS "%s/master_state", conf->cluster);
	*ret = s;
	return 0;
}

void mcd_seat_close(struct mcd_seat *s)
{
	if (!s)
		return;
	if (s->backend)
		s->backend->ops->close(s->backend);
	free(s->seen);
	free(s->seen_leader);
	free(s->mine);
	free(s);
}

/* ---- the lease --------------------------------------------------------------------------------- */

/* @begin: a time before the request that began or prolonged the lease was sent. */
static void lease_holds(struct mcd_seat *s, uint64_t begin)
{
	uint64_t ns = (uint64_t)(s->ttl_ms - s->ttl_ms / DRIFT_SHARE) * MC_NS_PER_MS;

	__atomic_store_n(&s->until, begin + ns, __ATOMIC_RELEASE);
}

static void lease_ends(struct mcd_seat *s)
{
	__atomic_store_n(&s->until, 0, __ATOMIC_RELEASE);
	free(s->mine);
	s->mine = NULL;
}

uint64_t mcd_seat_until(const struct mcd_seat *s)
{
	return __atomic_load_n(&s->until, __ATOMIC_ACQUIRE);
}

int mcd_seat_look(struct mcd_seat *s, struct mcd_seat_view *ret, uint64_t deadline)
{
	const struct mcd_wait w = { .deadline = deadline };
	auto_free char *leader = NULL, *state = NULL;
	struct mcd_seat_view v = { .exists = false };
	int r;

	/* The state is read last: a leader that is seen without its state would look like a new cluster. */
	r = s->backend->ops->get(s->backend, s->leader_key, &w, &leader);
	if (r < 0 && r != -ENOENT)
		return r;
	r = s->backend->ops->get(s->backend, s->state_key, &w, &state);
	if (r < 0 && r != -ENOENT)
		return r;
	r = 0;
	if (leader && mcd_seat_leader_decode(leader, v.leader, NULL) < 0)
		r = bad_text(s, s->leader_key);
	if (r == 0 && state)
		r = mcd_seat_state_decode(s, state, &v);
	if (r < 0)
		return r;
	free(s->seen);
	s->seen = TAKE_PTR(state);
	free(s->seen_leader);
	s->seen_leader = TAKE_PTR(leader);
	s->view = *ret = v;
	return 0;
}

/* Change the state from the one that was seen to @state, which this takes over. */
static int seat_turn(struct mcd_seat *s, const char *mine, bool take, const char *instead, char *state,
		     uint64_t deadline)
{
	const struct mcd_wait w = { .deadline = deadline };
	const struct mcd_turn t = {
		.leader_key = s->leader_key, .state_key = s->state_key, .mine = mine, .take = take,
		.instead = instead, .seen = s->seen, .state = state, .ttl_ms = s->ttl_ms,
	};
	int r = s->backend->ops->turn(s->backend, &t, &w);

	if (r < 0) {
		free(state);
		return r;
	}
	free(s->seen);
	s->seen = state;
	return mcd_seat_state_decode(s, state, &s->view);
}

/* @instead: text of the leader's key that is replaced, NULL: there is none. */
static int seat_take(struct mcd_seat *s, uint64_t term, const char *instead, uint64_t deadline, uint64_t *ret_term)
{
	const char *member[MCD_SEAT_MEMBERS_MAX] = { s->name };
	unsigned n = s->view.exists ? s->view.n : 1;
	uint64_t begin = mc_now_ns();
	char *mine, *state;
	int r;

	for (unsigned i = 0; s->view.exists && i < n; i++)
		member[i] = s->view.member[i];
	term = term > s->view.term ? term : s->view.term + 1;
	lease_ends(s);
	mine = leader_encode(s, term);
	state = state_encode(term, member, n);
	if (!mine || !state) {
		free(mine);
		free(state);
		return mc_fail(-ENOMEM, "no memory for a lease");
	}
	r = seat_turn(s, mine, true, instead, state, deadline);
	if (r < 0) {
		free(mine);
		return r;
	}
	s->mine = mine;
	lease_holds(s, begin);
	*ret_term = term;
	return 0;
}

int mcd_seat_take(struct mcd_seat *s, uint64_t term, uint64_t deadline, uint64_t *ret_term)
{
	return seat_take(s, term, NULL, deadline, ret_term);
}

int mcd_seat_replace(struct mcd_seat *s, uint64_t deadline, uint64_t *ret_term)
{
	if (!s->seen_leader || !s->view.exists)
		return mc_fail(-EAGAIN, "no master leads that could be replaced");
	return seat_take(s, 0, s->seen_leader, deadline, ret_term);
}

static int not_leader(const struct mcd_seat *s)
{
	return mc_fail(-MC_EOWNER, "%s does not lead", s->name);
}

int mcd_seat_renew(struct mcd_seat *s, uint64_t deadline)
{
	const struct mcd_wait w = { .deadline = deadline };
	uint64_t begin = mc_now_ns();
	int r;

	if (!s->mine)
		return not_leader(s);
	r = s->backend->ops->prolong(s->backend, s->leader_key, s->mine, s->ttl_ms, &w);
	if (r == 0)
		lease_holds(s, begin);
	else if (r == -MC_EOWNER)
		lease_ends(s);
	return r;
}

int mcd_seat_set_members(struct mcd_seat *s, const char *const *member, unsigned n, uint64_t deadline)
{
	char *state;
	int r;

	if (!s->mine)
		return not_leader(s);
	for (unsigned i = 0; i < n; i++)
		if (!mcd_seat_name_valid(member[i]))
			return mc_fail(-EINVAL, "invalid name of a master: %.100s", member[i]);
	if (n > MCD_SEAT_MEMBERS_MAX)
		return mc_fail(-EINVAL, "more than %u masters", MCD_SEAT_MEMBERS_MAX);
	state = state_encode(s->view.term, member, n);
	if (!state)
		return mc_fail(-ENOMEM, "no memory for a lease");
	r = seat_turn(s, s->mine, false, NULL, state, deadline);
	if (r == -EAGAIN) {
		lease_ends(s);
		return mc_fail(-MC_EOWNER, "%s: another master leads", s->name);
	}
	return r;
}

int mcd_seat_leave(struct mcd_seat *s, uint64_t deadline)
{
	const struct mcd_wait w = { .deadline = deadline };
	auto_free char *mine = NULL;

	if (!s->mine)
		return 0;
	mine = TAKE_PTR(s->mine);
	/* First here, then on the server. */
	lease_ends(s);
	return s->backend->ops->leave(s->backend, s->leader_key, mine, &w);
}
