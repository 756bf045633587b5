/* SPDX-License-Identifier: Apache-2.0
 * stage.c - staged bytes of a file. Behind the size, a slot contains bytes of its last user: whatever increases
 * the size clears the gap first. */
#include <config.h>
#include "mcfs/write/stage.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

/* smaller writes are copied, which is faster */
#define ADOPT_MIN ((size_t)64 << 10)

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

void mcfs_stage_init(struct mcfs_stage *s, struct mcfs_pool *pool)
{
	memset(s, 0, sizeof(*s));
	s->pool = pool;
}

/* Free the slots of [@first, @end). */
static void stage_drop_slots(struct mcfs_stage *s, size_t first, size_t end)
{
	size_t n = 0;

	for (size_t i = first; i < end; i++) {
		if (!s->slot[i])
			continue;
		mcfs_slot_put(s->pool, s->slot[i]);
		s->slot[i] = NULL;
		n++;
	}
	s->nheld -= n;
	mcfs_pool_uncharge(s->pool, n);
}

void mcfs_stage_clear(struct mcfs_stage *s)
{
	stage_drop_slots(s, 0, s->nslot);
	free(s->slot);
	mcfs_object_unref(s->base);
	mcfs_stage_init(s, s->pool);
}

void mcfs_stage_begin(struct mcfs_stage *s, struct mcfs_object *base)
{
	s->base = base;
	s->base_len = s->size = mcfs_object_info(base)->size;
}

/* Allocate entries for the slots up to byte @end. */
static int stage_reserve(struct mcfs_stage *s, uint64_t end)
{
	size_t need = (size_t)((end + MCFS_SLOT - 1) / MCFS_SLOT), n;
	void **slot;

	if (need <= s->nslot)
		return 0;
	n = s->nslot * 2 > need ? s->nslot * 2 : need;
	slot = realloc(s->slot, n * sizeof(*slot));
	if (!slot)
		return -ENOMEM;
	memset(slot + s->nslot, 0, (n - s->nslot) * sizeof(*slot));
	s->slot = slot;
	s->nslot = n;
	return 0;
}

/* Read [@from, @to) of slot @i from the base; zeros where the base has no bytes. */
static int fill_from_base(struct mcfs_stage *s, size_t i, char *slot, size_t from, size_t to,
			  uint64_t deadline)
{
	uint64_t start = (uint64_t)i * MCFS_SLOT;
	uint64_t have = s->base_len > start ? min_u64(s->base_len - start, MCFS_SLOT) : 0;

	if (from < have && from < to) {
		size_t n = (size_t)min_u64(have, to) - from;
		int r = mcfs_object_copy(s->base, start + from, slot + from, n, deadline);

		if (r < 0)
			return r;
	}
	if (to > have && to > from) {
		size_t zero = from > have ? from : (size_t)have;

		memset(slot + zero, 0, to - zero);
	}
	return 0;
}

/* Allocate slot @i and load it from the base, except [@from, @to), which the caller overwrites. */
static int stage_materialize(struct mcfs_stage *s, size_t i, size_t from, size_t to, uint64_t deadline)
{
	uint64_t start = (uint64_t)i * MCFS_SLOT;
	size_t valid = s->size > start ? (size_t)min_u64(s->size - start, MCFS_SLOT) : 0;
	char *slot;
	int r;

	if (s->slot[i])
		return 0;
	r = mcfs_pool_charge(s->pool, 1, deadline);
	if (r < 0)
		return r;
	slot = mcfs_slot_get(s->pool);
	if (!slot) {
		mcfs_pool_uncharge(s->pool, 1);
		return mc_fail(-ENOSPC, "no free staging slot");
	}
	r = fill_from_base(s, i, slot, 0, from < valid ? from : valid, deadline);
	if (r == 0 && to < valid)
		r = fill_from_base(s, i, slot, to, valid, deadline);
	if (r < 0) {
		mcfs_slot_put(s->pool, slot);
		mcfs_pool_uncharge(s->pool, 1);
		return r;
	}
	s->slot[i] = slot;
	s->nheld++;
	return 0;
}

/* Allocate the slots of [@from, @to), which the caller overwrites; a request covers at most two
 * slots. If one fails, free those allocated here: they contain bytes of their last user. */
static int stage_materialize_range(struct mcfs_stage *s, uint64_t from, uint64_t to, uint64_t deadline)
{
	size_t i = (size_t)(from / MCFS_SLOT);
	uint64_t start = (uint64_t)i * MCFS_SLOT, end = min_u64(to, start + MCFS_SLOT);
	bool held = s->slot[i];
	int r;

	r = stage_materialize(s, i, (size_t)(from - start), (size_t)(end - start), deadline);
	if (r == 0 && end < to) {
		r = stage_materialize_range(s, end, to, deadline);
		if (r < 0 && !held)
			stage_drop_slots(s, i, i + 1);
	}
	return r;
}

/* Clear the bytes from the size up to @to in the slots that exist. */
static void stage_clear_gap(struct mcfs_stage *s, uint64_t to)
{
	for (uint64_t at = s->size; at < to;) {
		size_t i = (size_t)(at / MCFS_SLOT), from = (size_t)(at % MCFS_SLOT);
		uint64_t next = min_u64(to, ((uint64_t)i + 1) * MCFS_SLOT);

		if (i >= s->nslot)
			break;
		if (s->slot[i])
			memset((char *)s->slot[i] + from, 0, (size_t)(next - at));
		at = next;
	}
}

int mcfs_stage_write(struct mcfs_stage *s, uint64_t offset, const void *data, size_t len, uint64_t deadline)
{
	uint64_t end = offset + len;
	const char *from = data;
	int r;

	if (!len)
		return 0;
	r = stage_reserve(s, end);
	if (r < 0)
		return r;
	r = stage_materialize_range(s, offset, end, deadline);
	if (r < 0)
		return r;
	stage_clear_gap(s, offset);
	for (uint64_t at = offset; at < end;) {
		size_t i = (size_t)(at / MCFS_SLOT), a = (size_t)(at % MCFS_SLOT);
		size_t n = (size_t)min_u64(end - at, MCFS_SLOT - a);

		memcpy((char *)s->slot[i] + a, from, n);
		from += n;
		at += n;
	}
	if (end > s->size)
		s->size = end;
	return 0;
}

bool mcfs_stage_adopts(const struct mcfs_stage *s, uint64_t offset, size_t len)
{
	return offset % MCFS_SLOT == 0 &&
		(len == MCFS_SLOT || (len >= ADOPT_MIN && len < MCFS_SLOT && offset + len >= s->size));
}

int mcfs_stage_adopt(struct mcfs_stage *s, uint64_t offset, size_t len, void **slot, uint64_t deadline)
{
	size_t i = (size_t)(offset / MCFS_SLOT);
	void *other;
	int r;

	r = stage_reserve(s, offset + MCFS_SLOT);
	if (r < 0)
		return r;
	other = s->slot[i];
	if (!other) {
		r = mcfs_pool_charge(s->pool, 1, deadline);
		if (r < 0)
			return r;
		other = mcfs_slot_get(s->pool);
		if (!other) {
			mcfs_pool_uncharge(s->pool, 1);
			return mc_fail(-ENOSPC, "no free staging slot");
		}
		s->nheld++;
	}
	stage_clear_gap(s, offset);
	s->slot[i] = *slot;
	*slot = other;
	if (offset + len > s->size)
		s->size = offset + len;
	return 0;
}

int mcfs_stage_truncate(struct mcfs_stage *s, uint64_t size)
{
	if (size > s->size) {
		stage_clear_gap(s, size);
	} else {
		stage_drop_slots(s, (size_t)((size + MCFS_SLOT - 1) / MCFS_SLOT), s->nslot);
		s->base_len = min_u64(s->base_len, size);
	}
	s->size = size;
	return 0;
}

int64_t mcfs_stage_read(struct mcfs_stage *s, uint64_t offset, void *buf, size_t len, uint64_t deadline)
{
	uint64_t end;
	char *to = buf;

	if (offset >= s->size)
		return 0;
	end = min_u64(s->size, offset + len);
	for (uint64_t at = offset; at < end;) {
		size_t i = (size_t)(at / MCFS_SLOT), a = (size_t)(at % MCFS_SLOT);
		size_t n = (size_t)min_u64(end - at, MCFS_SLOT - a), have;
		int r;

		if (i < s->nslot && s->slot[i]) {
			memcpy(to, (char *)s->slot[i] + a, n);
		} else {
			have = s->base_len > at ? (size_t)min_u64(s->base_len - at, n) : 0;
			r = have ? mcfs_object_copy(s->base, at, to, have, deadline) : 0;
			if (r < 0)
				return r;
			memset(to + have, 0, n - have);
		}
		to += n;
		at += n;
	}
	return (int64_t)(end - offset);
}

int mcfs_stage_vectors(struct mcfs_stage *s, uint64_t deadline, struct iovec **ret, int *ret_n)
{
	size_t n = (size_t)((s->size + MCFS_SLOT - 1) / MCFS_SLOT);
	struct iovec *iov;
	int r;

	r = stage_reserve(s, s->size);
	if (r < 0)
		return r;
	iov = calloc(n ? n : 1, sizeof(*iov));
	if (!iov)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		uint64_t start = (uint64_t)i * MCFS_SLOT;

		/* A hole needs no slot; bytes of the base must be copied. */
		if (!s->slot[i] && start < s->base_len) {
			r = stage_materialize(s, i, MCFS_SLOT, MCFS_SLOT, deadline);
			if (r < 0) {
				free(iov);
				return r;
			}
		}
		iov[i].iov_base = s->slot[i] ? s->slot[i] : (void *)(uintptr_t)mcfs_pool_zeros(s->pool);
		iov[i].iov_len = (size_t)min_u64(s->size - start, MCFS_SLOT);
	}
	*ret = iov;
	*ret_n = (int)n;
	return 0;
}
