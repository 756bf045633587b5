/* SPDX-License-Identifier: Apache-2.0
 * job.c - decoding of requests.  The client can change the shared memory at any time, so everything is copied
 * first, and only the copy is checked and used. */
#include <config.h>

#include <errno.h>
#include <string.h>

#include "common/err.h"
#include "common/sys/clock.h"
#include "node/node_i.h"

#define GROUP_MAX 1024u

static void *scratch_take(struct mcn_scratch *sc, size_t len)
{
	void *p = sc->base + sc->used;

	sc->used += (len + 15) & ~(size_t)15;
	return p;
}

/* Copy @len bytes at @at of the arena.  The barrier keeps the compiler from rereading the original. */
static int job_copy(const unsigned char *arena, uint64_t arena_size, uint32_t at, uint64_t len,
		struct mcn_scratch *sc, void **ret)
{
	if (at > arena_size || len > arena_size - at)
		return mc_fail(-EINVAL, "an entry points outside of its arena");
	*ret = scratch_take(sc, len);
	memcpy(*ret, arena + at, len);
	__asm__ volatile("" ::: "memory");
	return 0;
}

/* ---- options of a put ---- */

static int take_preferred(const unsigned char *arena, uint64_t size, const struct mcfs_ring_put *w,
			  struct mcn_scratch *sc, struct mcs_put_opts *ret)
{
	const char **list, *text, *end;
	unsigned n = 0;
	void *copy = NULL;
	int r;

	if (!w->preferred_len)
		return 0;
	if (w->preferred_len > MCFS_RING_PREFERRED_MAX)
		return mc_fail(-EINVAL, "too many preferred segments");
	r = job_copy(arena, size, w->preferred, w->preferred_len, sc, &copy);
	if (r < 0)
		return r;
	text = copy;
	end = text + w->preferred_len;
	if (end[-1])
		return mc_fail(-EINVAL, "names of segments without a final NUL");
	for (const char *p = text; p < end; p += strlen(p) + 1)
		n++;
	list = scratch_take(sc, (n + 1) * sizeof(*list));
	n = 0;
	for (const char *p = text; p < end; p += strlen(p) + 1) {
		bool nof = w->nof_replicas && !*p && !ret->preferred_nof;

		list[n++] = nof ? NULL : p;
		if (nof)
			ret->preferred_nof = &list[n];
	}
	list[n] = NULL;
	if (ret->preferred_nof && !*ret->preferred_nof)
		ret->preferred_nof = NULL;
	/* Without names of its own the put prefers the daemon's segment. */
	ret->preferred = *list ? list : NULL;
	return 0;
}

static int take_put(const unsigned char *arena, uint64_t size, struct mcn_scratch *sc, struct mcn_job *job)
{
	struct mcfs_ring_put *w;
	struct mcs_put_opts *o;
	void *copy = NULL;
	int r;

	if (job->e.put == ~0u)
		return 0;
	r = job_copy(arena, size, job->e.put, sizeof(*w), sc, &copy);
	if (r < 0)
		return r;
	w = copy;
	if (w->group_len > GROUP_MAX)
		return mc_fail(-EINVAL, "a group's name of %u bytes", w->group_len);
	o = scratch_take(sc, sizeof(*o));
	*o = (struct mcs_put_opts){
		.flags = w->flags, .replicas = w->replicas, .soft_pin_ms = w->soft_pin_ms,
		.kind = (enum mcs_kind)w->kind, .soft_pin = (enum mcs_soft_pin)w->soft_pin,
		.data_type = (enum mcs_data_type)w->data_type, .nof_replicas = w->nof_replicas,
	};
	job->put = o;
	if (w->group_len) {
		r = job_copy(arena, size, w->group, w->group_len, sc, &copy);
		if (r < 0)
			return r;
		o->group = (struct mcs_key){ copy, w->group_len };
	}
	return take_preferred(arena, size, w, sc, o);
}

/* ---- memory of the transfer ---- */

static int job_hold(struct mcn_conn *c, struct mcn_job *job, const struct mcfs_ring_range *range)
{
	struct iovec *iov = &job->iov[job->iovcnt];
	int r = mcn_buffer_get(c, range->buffer, range->at, range->len, &job->held[job->iovcnt],
			       &iov->iov_base);

	if (r < 0)
		return r;
	iov->iov_len = range->len;
	job->iovcnt++;
	if (!mcn_memory_is_present(iov->iov_base, range->len))
		return mc_fail(-EFAULT, "a buffer has pages that the client has never touched");
	return 0;
}

static int take_memory(struct mcn_conn *c, const unsigned char *arena, uint64_t size,
		       struct mcn_scratch *sc, struct mcn_job *job)
{
	struct mcfs_ring_range one = { job->e.buffer, 0, job->e.at, job->e.len };
	const struct mcfs_ring_range *range = &one;
	unsigned n = job->e.nranges;
	void *copy = NULL;
	int r = 0;

	if (n > MCFS_RING_RANGES_MAX || (n && job->e.at > UINT32_MAX))
		return mc_fail(-EINVAL, "a list of %u ranges", n);
	if (n) {
		r = job_copy(arena, size, (uint32_t)job->e.at, n * sizeof(one), sc, &copy);
		range = copy;
	} else {
		/* Zero bytes need no buffer. */
		n = job->e.len ? 1 : 0;
	}
	job->iov = scratch_take(sc, (n + 1) * sizeof(*job->iov));
	job->held = scratch_take(sc, (n + 1) * sizeof(struct mcn_buffer *));
	for (unsigned i = 0; i < n && r == 0; i++)
		r = job_hold(c, job, &range[i]);
	return r;
}

static unsigned flags_of(uint8_t op)
{
	switch (op) {
	case MCFS_RING_GET:
		return MCFS_SQE_DEADLINE | MCFS_SQE_WHOLE;
	case MCFS_RING_PIN:
		return MCFS_SQE_DEADLINE | MCFS_SQE_HOT;
	case MCFS_RING_REMOVE:
		return MCFS_SQE_DEADLINE | MCFS_SQE_FORCE;
	case MCFS_RING_NOP:
	case MCFS_RING_UNPIN:
	case MCFS_RING_HELD:
		return 0;
	default:
		return MCFS_SQE_DEADLINE;
	}
}

static uint64_t deadline_of(const struct mcn_job *job)
{
	uint64_t last = job->seen_ns + MCN_DEADLINE_MAX_MS * MC_NS_PER_MS;
	uint64_t due = job->seen_ns + job->e.timeout_ms * MC_NS_PER_MS;

	if (job->e.flags & MCFS_SQE_DEADLINE)
		due = job->e.pin;
	else if (!job->e.timeout_ms)
		return MC_NEVER;
	return due < last ? due : last;
}

static int take_all(struct mcn_conn *c, const unsigned char *arena, uint64_t size,
		    struct mcn_scratch *sc, struct mcn_job *job)
{
	const struct mcfs_sqe *e = &job->e;
	void *key = NULL;
	int r;

	if (e->op >= MCFS_RING_OPS)
		return mc_fail(-MCS_ENOTSUP, "unknown operation %u", e->op);
	if (e->flags & ~flags_of(e->op))
		return mc_fail(-EINVAL, "operation %u does not support flags 0x%x", e->op, e->flags);
	if (!(flags_of(e->op) & MCFS_SQE_DEADLINE))
		return 0;
	job->deadline = deadline_of(job);
	if (!e->key_len || e->key_len > MCFS_RING_KEY_MAX)
		return mc_fail(-MCS_EKEY, "a key of %u bytes", e->key_len);
	r = job_copy(arena, size, e->key, e->key_len, sc, &key);
	if (r < 0)
		return r;
	job->key = (struct mcs_key){ key, e->key_len };
	if (e->op == MCFS_RING_GET || e->op == MCFS_RING_PUT)
		r = take_memory(c, arena, size, sc, job);
	return r < 0 || e->op != MCFS_RING_PUT ? r : take_put(arena, size, sc, job);
}

void mcn_job_take(struct mcn_conn *c, const unsigned char *arena, uint64_t arena_size,
		  struct mcn_scratch *sc, struct mcn_job *job)
{
	int r;

	job->deadline = MC_NEVER;
	r = take_all(c, arena, arena_size, sc, job);

	job->c.tag = job->e.tag;
	job->c.result = r;
	job->done = r < 0;
}

void mcn_job_release(struct mcn_conn *c, struct mcn_job *job)
{
	for (int i = 0; i < job->iovcnt; i++)
		mcn_buffer_put(c, job->held[i]);
	job->iovcnt = 0;
}
