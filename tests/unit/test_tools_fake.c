/* SPDX-License-Identifier: Apache-2.0
 * test_tools_fake.c - an in-memory store. */
#include <config.h>

#include "tests/unit/test_tools_fake.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <mooncake/mcs.h>

#include "common/err.h"

#define SLOTS 65536u

struct object {
	char *key;
	size_t key_len;
	char *data;
	size_t len;
	uint64_t age;
};

struct fake fake;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object objects[SLOTS];
static unsigned count;
static uint64_t clock_;

static struct object *find(struct mcs_key key)
{
	for (unsigned i = 0; i < count; i++)
		if (objects[i].key_len == key.len && !memcmp(objects[i].key, key.data, key.len))
			return &objects[i];
	return NULL;
}

static void drop(struct object *o)
{
	free(o->key);
	free(o->data);
	*o = objects[--count];
}

void fake_reset(unsigned objects_max)
{
	while (count)
		drop(&objects[count - 1]);
	memset(&fake, 0, sizeof(fake));
	fake.objects_max = objects_max;
}

unsigned fake_objects(void)
{
	return count;
}

static void make_room(void)
{
	struct object *oldest = objects;

	if (count < fake.objects_max)
		return;
	for (unsigned i = 1; i < count; i++)
		if (objects[i].age < oldest->age)
			oldest = &objects[i];
	drop(oldest);
}

static void put(struct mcs_put_item *item)
{
	struct object *o = find(item->key);
	char *p;

	fake.puts++;
	item->existed = o != NULL;
	item->result = fake.put_error;
	if (o || item->result)
		return;
	make_room();
	o = &objects[count++];
	memset(o, 0, sizeof(*o));
	o->key = malloc(item->key.len + 1);
	memcpy(o->key, item->key.data, item->key.len);
	o->key_len = item->key.len;
	for (int i = 0; i < item->iovcnt; i++)
		o->len += item->iov[i].iov_len;
	p = o->data = malloc(o->len + 1);
	for (int i = 0; i < item->iovcnt; i++) {
		memcpy(p, item->iov[i].iov_base, item->iov[i].iov_len);
		p += item->iov[i].iov_len;
	}
	o->age = clock_++;
}

static int is_turn(unsigned every)
{
	return every && fake.gets % every == 0;
}

static void get(struct mcs_get_item *item)
{
	struct object *o = find(item->key);
	char *to = item->iov->iov_base;

	fake.gets++;
	item->result = -MCS_ENOOBJECT;
	if (!o || is_turn(fake.gone_every))
		return;
	item->result = -ENOBUFS;
	if (o->len > item->iov->iov_len)
		return;
	o->age = clock_++;
	item->result = (int64_t)o->len;
	if (is_turn(fake.untouched_every))
		return;
	if (is_turn(fake.swap_every))
		o = o == objects ? o + 1 : o - 1;
	memcpy(to, o->data, o->len);
	if (is_turn(fake.wrong_every))
		to[o->len / 2] ^= 0x10;
}

int mcs_put_batch(mcs_t *s, struct mcs_put_item *items, unsigned n,
		  const struct mcs_put_opts *opts, int64_t timeout_ms)
{
	int done = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < n; i++) {
		put(&items[i]);
		done += items[i].result == 0;
	}
	pthread_mutex_unlock(&lock);
	return done;
}

int mcs_get_batch(mcs_t *s, struct mcs_get_item *items, unsigned n, int64_t timeout_ms)
{
	int done = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < n; i++) {
		get(&items[i]);
		done += items[i].result >= 0;
	}
	pthread_mutex_unlock(&lock);
	return done;
}

int mcs_exist(mcs_t *s, const struct mcs_key *keys, unsigned n, uint8_t *present,
	      int64_t timeout_ms)
{
	int found = 0;

	if (fake.exist_error)
		return fake.exist_error;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < n; i++) {
		present[i] = find(keys[i]) != NULL;
		found += present[i];
	}
	pthread_mutex_unlock(&lock);
	return found;
}

int mcs_remove_batch(mcs_t *s, const struct mcs_key *keys, unsigned n, unsigned flags, int *results,
		     int64_t timeout_ms)
{
	int removed = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < n; i++) {
		struct object *o = find(keys[i]);

		if (o)
			drop(o);
		removed += o != NULL;
		if (results)
			results[i] = o ? 0 : -MCS_ENOOBJECT;
	}
	pthread_mutex_unlock(&lock);
	return removed;
}

int64_t mcs_remove_match(mcs_t *s, struct mcs_key prefix, const char *pattern, unsigned flags,
			 int64_t timeout_ms)
{
	int64_t removed = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = count; i-- > 0;) {
		if (objects[i].key_len < prefix.len ||
		    memcmp(objects[i].key, prefix.data, prefix.len))
			continue;
		drop(&objects[i]);
		removed++;
	}
	pthread_mutex_unlock(&lock);
	return removed;
}

int mcs_pool_stat(mcs_t *s, struct mcs_pool *ret, int64_t timeout_ms)
{
	memset(ret, 0, sizeof(*ret));
	ret->capacity = 1ull << 40;
	return 0;
}

int mcs_register_buffer(mcs_t *s, void *buf, size_t len)
{
	return 0;
}

int mcs_unregister_buffer(mcs_t *s, void *buf)
{
	return 0;
}

const char *mcs_strerror(int err)
{
	return mc_strerror(err);
}

const char *mcs_error_detail(int err)
{
	return mc_err_detail(err);
}

int mcs_errno(int err)
{
	return mc_err_to_errno(err);
}

int mcs_code(int err)
{
	return mc_err_to_upstream(err);
}
