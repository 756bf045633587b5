/* SPDX-License-Identifier: Apache-2.0
 * open_pins.c - versions pinned between a lookup and the open that follows.
 * Objects are released without the lock, because that may send a request to the master. */
#include <config.h>
#include "mcfs/read/open_pins.h"

#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/metrics.h"
#include "common/sys/clock.h"

#define SCORE_MAX 3u
#define SCORE_OPENS 2u		/* an open is expected from this score on */

MC_COUNTER(kept, "mcfs_expected_opens_total", "", "versions that lookups pinned for an expected open")
MC_COUNTER(used, "mcfs_expected_opens_taken_total", "", "pinned versions that the expected open used")

void mcfs_open_pins_init(struct mcfs_open_pins *p)
{
	memset(p, 0, sizeof(*p));
	mc_mutex_init(&p->lock);
}

/* Lock held: end the retry and return the pinned version. */
static struct mcfs_object *pin_clear(struct mcfs_pin_thread *t)
{
	free(t->key);
	t->key = NULL;
	return TAKE_PTR(t->object);
}

void mcfs_open_pins_done(struct mcfs_open_pins *p)
{
	for (unsigned i = 0; i < p->n; i++)
		mcfs_object_unref(pin_clear(&p->thread[i]));
	mc_mutex_destroy(&p->lock);
}

/* Lock held. */
static struct mcfs_pin_thread *pin_find(struct mcfs_open_pins *p, pid_t tid)
{
	for (unsigned i = 0; i < p->n; i++)
		if (p->tid[i] == tid)
			return &p->thread[i];
	return NULL;
}

/* Lock held: find thread @tid, or add it. *ret_old: the pinned version of the thread that it replaces, or NULL. */
static struct mcfs_pin_thread *pin_get(struct mcfs_open_pins *p, pid_t tid, struct mcfs_object **ret_old)
{
	struct mcfs_pin_thread *t = pin_find(p, tid), *old = &p->thread[0];

	if (t)
		return t;
	if (p->n < MCFS_PIN_THREADS) {
		old = &p->thread[p->n++];
	} else {
		/* Forgetting a retry makes its open fail, forgetting another thread only costs a request. */
		for (unsigned i = 1; i < p->n; i++) {
			t = &p->thread[i];
			if (!t->key != !old->key ? !t->key : t->since_ms < old->since_ms)
				old = t;
		}
		*ret_old = pin_clear(old);
	}
	p->tid[old - p->thread] = tid;
	memset(old, 0, sizeof(*old));
	return old;
}

static bool is_retry(const struct mcfs_pin_thread *t, struct mcs_key key)
{
	return t->key && t->key_len == key.len && memcmp(t->key, key.data, key.len) == 0;
}

/* Lock held: there is something to sweep. True: the sweep was not running. */
static bool start_sweeping(struct mcfs_open_pins *p)
{
	bool start = !p->sweeping;

	p->sweeping = true;
	return start;
}

bool mcfs_open_pins_lookup(struct mcfs_open_pins *p, struct mcs_key key, pid_t tid, bool *ret_retry)
{
	struct mcfs_object *old = NULL;
	struct mcfs_pin_thread *t;
	bool pin;

	mc_mutex_lock(&p->lock);
	t = pin_get(p, tid, &old);
	if (t->looked_up && t->score)
		t->score--;
	t->looked_up = true;
	*ret_retry = is_retry(t, key) && t->lookups++ < MCFS_RETRY_LOOKUPS;
	if (!t->key || (is_retry(t, key) && !*ret_retry)) {
		if (!old)
			old = pin_clear(t);
		t->since_ms = mc_now_ms();
	}
	/* A retry must keep its pin while the thread looks up the directories of the path. */
	pin = t->key ? *ret_retry : t->score >= SCORE_OPENS;
	mc_mutex_unlock(&p->lock);
	mcfs_object_unref(old);
	return pin;
}

bool mcfs_open_pins_is_retry(struct mcfs_open_pins *p, struct mcs_key key, pid_t tid)
{
	struct mcfs_pin_thread *t;

	MC_LOCKED(&p->lock);
	t = pin_find(p, tid);
	return t && is_retry(t, key) && t->lookups++ < MCFS_RETRY_LOOKUPS;
}

void mcfs_open_pins_no_file(struct mcfs_open_pins *p, pid_t tid, bool missing)
{
	struct mcfs_pin_thread *t;

	MC_LOCKED(&p->lock);
	t = pin_find(p, tid);
	if (!t)
		return;
	t->looked_up = false;
	if (missing)
		t->score = 0;
}

bool mcfs_open_pins_keep(struct mcfs_open_pins *p, struct mcs_key key, pid_t tid, struct mcfs_object *o)
{
	struct mcfs_object *old = o;
	struct mcfs_pin_thread *t;
	bool start = false;

	mc_mutex_lock(&p->lock);
	t = pin_find(p, tid);
	if (t && (!t->key || is_retry(t, key))) {
		old = t->object;
		t->object = o;
		if (o && !t->key) {
			t->since_ms = mc_now_ms();
			mc_metric_add(&kept, 1);
		}
		start = o && start_sweeping(p);
	}
	mc_mutex_unlock(&p->lock);
	mcfs_object_unref(old);
	return start;
}

bool mcfs_open_pins_open(struct mcfs_open_pins *p, struct mcs_key key, pid_t tid, uint64_t generation, bool wanted,
			 struct mcfs_object **ret)
{
	struct mcfs_object *o = NULL;
	struct mcfs_pin_thread *t;
	bool retry = false, valid = false;

	mc_mutex_lock(&p->lock);
	t = pin_find(p, tid);
	if (t) {
		retry = is_retry(t, key);
		valid = retry || mc_now_ms() - t->since_ms <= MCFS_PIN_MS;
		if (!t->key || retry)
			o = pin_clear(t);
		if (wanted) {
			t->looked_up = false;
			t->score += t->score < SCORE_MAX;
		}
	}
	mc_mutex_unlock(&p->lock);
	*ret = NULL;
	if (o && wanted && valid && mcfs_object_info(o)->generation == generation)
		*ret = TAKE_PTR(o);
	if (*ret && !retry)
		mc_metric_add(&used, 1);
	mcfs_object_unref(o);
	return retry;
}

bool mcfs_open_pins_retry(struct mcfs_open_pins *p, struct mcs_key key, pid_t tid)
{
	char *copy = tid ? malloc(key.len + 1) : NULL;
	struct mcfs_object *old = NULL;
	struct mcfs_pin_thread *t;
	bool start;

	if (!copy)
		return false;
	memcpy(copy, key.data, key.len);
	mc_mutex_lock(&p->lock);
	t = pin_get(p, tid, &old);
	if (!old)
		old = pin_clear(t);
	t->key = copy;
	t->key_len = key.len;
	t->lookups = 0;
	t->since_ms = mc_now_ms();
	start = start_sweeping(p);
	mc_mutex_unlock(&p->lock);
	mcfs_object_unref(old);
	return start;
}

bool mcfs_open_pins_sweep(struct mcfs_open_pins *p)
{
	struct mcfs_object *late[MCFS_PIN_THREADS];
	unsigned n = 0;
	bool left = false;
	uint64_t now;

	mc_mutex_lock(&p->lock);
	/* Read under the lock: a time of before an entry was made would expire it at once. */
	now = mc_now_ms();
	for (unsigned i = 0; i < p->n; i++) {
		struct mcfs_pin_thread *t = &p->thread[i];

		if (!t->key && !t->object)
			continue;
		if (now - t->since_ms > (t->key ? MCFS_RETRY_MS : MCFS_PIN_MS))
			late[n++] = pin_clear(t);
		else
			left = true;
	}
	p->sweeping = left;
	mc_mutex_unlock(&p->lock);
	for (unsigned i = 0; i < n; i++)
		mcfs_object_unref(late[i]);
	return left;
}
