/* SPDX-License-Identifier: Apache-2.0
 * cache.c - copies of object versions that were read over a network. */
#include <config.h>

#include "client/direct/cache.h"

#include <stdlib.h>
#include <string.h>

#include "client/layout.h"
#include "common/cleanup.h"
#include "common/env.h"
#include "common/fault.h"
#include "common/gpu/gpu.h"
#include "common/hash.h"
#include "common/list.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/lock.h"

#define OBJECT_MAX ((int64_t)16 << 20)
#define THRESHOLD 2
/* One list per this many bytes. */
#define BYTES_PER_LIST 65536u
#define LISTS_MIN 64u
#define LISTS_MAX (1u << 20)
/* The counts of reads: a key has one in each row, which other keys may share; the least one is nearest to the truth. */
#define ROWS 4u
#define COLUMNS 4096u

MC_COUNTER(hits, "mooncake_client_hot_cache_hits_total", "", "reads that the hot cache of this process answered")
MC_COUNTER(hit_bytes, "mooncake_client_hot_cache_hit_bytes_total", "", "their bytes")
MC_GAUGE(cached, "mooncake_client_hot_cache_bytes", "", "memory of the hot cache")
MC_GAUGE(cached_objects, "mooncake_client_hot_cache_objects", "", "objects in the hot cache")

struct copy {
	/* constant */
	uint64_t hash, generation, size;
	uint64_t memory;		/* bytes of this allocation */
	uint32_t crc, key_len;
	uint32_t *chunk_crc;
	unsigned char *data, *key;

	/* guarded by the lock */
	struct copy *next;		/* in its list */
	struct mc_list link;		/* in used_last: the copies that can be found, last used first */
	unsigned refs;			/* threads that read it */
	bool gone;			/* it cannot be found any more; the last reader frees it */
};

struct mcs_cache {
	/* constant */
	struct mcs_cache_conf conf;
	size_t n_lists;			/* a power of two */

	struct mc_mutex lock;
	/* guarded by the lock */
	struct copy **lists;
	struct mc_list used_last;
	uint64_t memory;		/* bytes of copies, also of those that are being filled or are gone */
	unsigned counted;		/* since the counts were halved */
	uint8_t counts[ROWS][COLUMNS];
};

bool mcs_cache_wanted(struct mcs_cache_conf *ret)
{
	const char *threshold = mc_env_str("MC_STORE_LOCAL_HOT_ADMISSION_THRESHOLD") ?
		"MC_STORE_LOCAL_HOT_ADMISSION_THRESHOLD" : "MC_STORE_LOCAL_HOT_ADMISSION_THR";

	ret->size = mc_env_size("MC_STORE_LOCAL_HOT_CACHE_SIZE", 0, 0, INT64_MAX);
	if (!ret->size) {
		if (mc_env_str("MC_STORE_LOCAL_HOT_BLOCK_SIZE") || mc_env_str(threshold))
			mc_info("client", "no hot cache: MC_STORE_LOCAL_HOT_CACHE_SIZE is not set");
		return false;
	}
	ret->object_max = mc_env_size("MC_STORE_LOCAL_HOT_BLOCK_SIZE", OBJECT_MAX, 1, INT64_MAX);
	ret->threshold = (unsigned)mc_env_int(threshold, THRESHOLD, 1, 255);
	return true;
}

struct mcs_cache *mcs_cache_new(const struct mcs_cache_conf *conf)
{
	struct mcs_cache *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->conf = *conf;
	c->n_lists = LISTS_MIN;
	while (c->n_lists < LISTS_MAX && c->n_lists < conf->size / BYTES_PER_LIST)
		c->n_lists *= 2;
	c->lists = calloc(c->n_lists, sizeof(struct copy *));
	if (!c->lists) {
		free(c);
		return NULL;
	}
	mc_list_init(&c->used_last);
	mc_mutex_init(&c->lock);
	return c;
}

/* ---- with the lock held ---- */

static struct copy **cache_find(struct mcs_cache *c, uint64_t hash, struct mcs_key key)
{
	struct copy **p = &c->lists[hash & (c->n_lists - 1)];

	while (*p && ((*p)->hash != hash || (*p)->key_len != key.len || memcmp((*p)->key, key.data, key.len)))
		p = &(*p)->next;
	return p;
}

/* Give back the memory of a copy that the caller frees, or filled in vain. */
static void cache_uncharge(struct mcs_cache *c, uint64_t memory)
{
	c->memory -= memory;
	mc_metric_add(&cached, -(int64_t)memory);
}

/* Take the copy at @at out.  Returns the copy if the caller has to free it; NULL: a reader frees it. */
static struct copy *cache_take_out(struct mcs_cache *c, struct copy **at)
{
	struct copy *e = *at;

	*at = e->next;
	mc_list_remove(&e->link);
	mc_metric_add(&cached_objects, -1);
	e->gone = true;
	if (e->refs)
		return NULL;
	cache_uncharge(c, e->memory);
	return e;
}

/* Count a read of the key.  Has it been read often enough? */
static bool cache_count(struct mcs_cache *c, uint64_t hash)
{
	uint32_t step = (uint32_t)(hash >> 32) | 1;
	unsigned least = UINT8_MAX;

	if (++c->counted == ROWS * COLUMNS) {
		c->counted = 0;
		for (unsigned i = 0; i < ROWS * COLUMNS; i++)
			c->counts[i / COLUMNS][i % COLUMNS] /= 2;
	}
	for (unsigned row = 0; row < ROWS; row++) {
		uint8_t *n = &c->counts[row][((uint32_t)hash + row * step) % COLUMNS];

		*n += *n < UINT8_MAX;
		least = *n < least ? *n : least;
	}
	return least >= c->conf.threshold;
}

/* Make room for @memory bytes, and charge them.  *@ret_victims: copies that the caller frees.  False: copies that
 * threads read now need the room. */
static bool cache_reserve(struct mcs_cache *c, uint64_t memory, struct copy **ret_victims)
{
	struct mc_list *pos = c->used_last.prev;

	while (c->memory > c->conf.size - memory && pos != &c->used_last) {
		struct copy *e = mc_container_of(pos, struct copy, link);

		pos = pos->prev;
		if (e->refs)
			continue;
		(void)cache_take_out(c, cache_find(c, e->hash, (struct mcs_key){ e->key, e->key_len }));
		e->next = *ret_victims;
		*ret_victims = e;
	}
	if (c->memory > c->conf.size - memory)
		return false;
	c->memory += memory;
	mc_metric_add(&cached, (int64_t)memory);
	return true;
}

/* ---- reading ---- */

/* The copy of this version, referenced; NULL: there is none. */
static struct copy *cache_get(struct mcs_cache *c, struct mcs_key key, const struct mcs_info *info)
{
	uint64_t hash = mc_hash(key.data, key.len, 0);
	struct copy *e;

	MC_LOCKED(&c->lock);
	e = *cache_find(c, hash, key);
	if (!e || e->generation != info->generation || e->size != info->size || e->crc != info->crc32c)
		return NULL;
	e->refs++;
	mc_list_remove(&e->link);
	mc_list_push_front(&c->used_last, &e->link);
	return e;
}

/* @bad: its bytes changed, so no read may find it again. */
static void cache_put(struct mcs_cache *c, struct copy *e, bool bad)
{
	struct copy *dead = NULL;

	mc_mutex_lock(&c->lock);
	e->refs--;
	if (bad && !e->gone) {
		dead = cache_take_out(c, cache_find(c, e->hash, (struct mcs_key){ e->key, e->key_len }));
	} else if (e->gone && !e->refs) {
		cache_uncharge(c, e->memory);
		dead = e;
	}
	mc_mutex_unlock(&c->lock);
	free(dead);
}

static uint64_t chunk_len(const struct copy *e, uint64_t chunk)
{
	uint64_t left = e->size - chunk * MC_CRC_CHUNK;

	return left < MC_CRC_CHUNK ? left : MC_CRC_CHUNK;
}

static bool copy_good(const struct copy *e, uint64_t offset, uint64_t len)
{
	for (uint64_t i = offset / MC_CRC_CHUNK; i * MC_CRC_CHUNK < offset + len; i++)
		if (mc_crc32c(e->data + i * MC_CRC_CHUNK, chunk_len(e, i)) != e->chunk_crc[i])
			return false;
	return true;
}

bool mcs_cache_read(struct mcs_cache *c, struct mcs_key key, const struct mcs_info *info, uint64_t offset,
		    const struct iovec *iov, int iovcnt, uint64_t len)
{
	struct copy *e = cache_get(c, key, info);
	uint64_t done = 0;
	bool good;

	if (!e)
		return false;
	if (mc_gpu_of_iov(iov, (unsigned)iovcnt) >= 0) {
		cache_put(c, e, false);
		return false;
	}
	good = copy_good(e, offset, len);
	for (int i = 0; good && done < len && i < iovcnt; i++) {
		uint64_t n = iov[i].iov_len < len - done ? iov[i].iov_len : len - done;

		if (n)
			memcpy(iov[i].iov_base, e->data + offset + done, n);
		done += n;
	}
	cache_put(c, e, !good);
	if (good) {
		mc_metric_add(&hits, 1);
		mc_metric_add(&hit_bytes, (int64_t)len);
	}
	return good;
}

/* ---- filling ---- */

/* Copy and check the bytes: the caller's program can change its buffers at any time. */
static bool copy_fill(struct copy *e, const struct iovec *iov, int iovcnt)
{
	uint64_t done = 0, chunk, n;

	for (int i = 0; i < iovcnt && done < e->size; i++) {
		const unsigned char *from = iov[i].iov_base;

		for (uint64_t left = iov[i].iov_len; left && done < e->size; left -= n, from += n, done += n) {
			chunk = done / MC_CRC_CHUNK;
			n = chunk * MC_CRC_CHUNK + chunk_len(e, chunk) - done;
			n = n < left ? n : left;
			e->chunk_crc[chunk] = mc_crc32c_copy(e->chunk_crc[chunk], e->data + done, from, n);
		}
	}
	return done == e->size && mcs_crc_of_chunks(e->chunk_crc, e->size) == e->crc;
}

static struct copy *copy_new(struct mcs_key key, uint64_t hash, const struct mcs_info *info, uint64_t memory)
{
	uint64_t crcs = mc_crc_chunks(info->size) * sizeof(uint32_t);
	struct copy *e = mc_fault("client.cache.alloc") ? NULL : malloc(memory);

	if (!e)
		return NULL;
	*e = (struct copy){
		.hash = hash, .generation = info->generation, .size = info->size, .memory = memory,
		.crc = info->crc32c, .key_len = (uint32_t)key.len,
	};
	e->chunk_crc = (uint32_t *)(e + 1);
	e->data = (unsigned char *)e->chunk_crc + crcs;
	e->key = e->data + info->size;
	memset(e->chunk_crc, 0, crcs);
	memcpy(e->key, key.data, key.len);
	return e;
}

/* Make the copy findable, in place of an older version.  Returns a copy that the caller has to free; NULL: none. */
static struct copy *cache_insert(struct mcs_cache *c, struct mcs_key key, struct copy *e)
{
	struct copy **at, *dead = NULL;

	MC_LOCKED(&c->lock);
	at = cache_find(c, e->hash, key);
	/* Another thread stored this version, or a newer one, in the meantime. */
	if (*at && (*at)->generation >= e->generation) {
		cache_uncharge(c, e->memory);
		return e;
	}
	if (*at)
		dead = cache_take_out(c, at);
	at = &c->lists[e->hash & (c->n_lists - 1)];
	e->next = *at;
	*at = e;
	mc_list_push_front(&c->used_last, &e->link);
	mc_metric_add(&cached_objects, 1);
	return dead;
}

static void copies_free(struct copy *e)
{
	for (struct copy *next; e; e = next) {
		next = e->next;
		free(e);
	}
}

void mcs_cache_offer(struct mcs_cache *c, struct mcs_key key, const struct mcs_info *info, const struct iovec *iov,
		     int iovcnt)
{
	uint64_t hash = mc_hash(key.data, key.len, 0);
	uint64_t memory = sizeof(struct copy) + info->size + key.len + mc_crc_chunks(info->size) * sizeof(uint32_t);
	struct copy *victims = NULL, *e;
	bool room = false;

	if (info->size > c->conf.object_max || memory > c->conf.size || mc_gpu_of_iov(iov, (unsigned)iovcnt) >= 0)
		return;
	mc_mutex_lock(&c->lock);
	if (cache_count(c, hash)) {
		struct copy *known = *cache_find(c, hash, key);

		room = (!known || known->generation < info->generation) && cache_reserve(c, memory, &victims);
	}
	mc_mutex_unlock(&c->lock);
	copies_free(victims);
	if (!room)
		return;
	e = copy_new(key, hash, info, memory);
	if (e && copy_fill(e, iov, iovcnt)) {
		free(cache_insert(c, key, e));
		return;
	}
	mc_mutex_lock(&c->lock);
	cache_uncharge(c, memory);
	mc_mutex_unlock(&c->lock);
	free(e);
}

void mcs_cache_free(struct mcs_cache *c)
{
	if (!c)
		return;
	while (!mc_list_empty(&c->used_last)) {
		struct copy *e = mc_list_first(&c->used_last, struct copy, link);

		free(cache_take_out(c, cache_find(c, e->hash, (struct mcs_key){ e->key, e->key_len })));
	}
	mc_mutex_destroy(&c->lock);
	free(c->lists);
	free(c);
}
