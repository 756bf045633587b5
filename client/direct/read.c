/* SPDX-License-Identifier: Apache-2.0
 * read.c - read parts of objects and check them. */
#include <config.h>

#include "client/direct/read.h"

#include <errno.h>
#include <string.h>

#include "client/attrs.h"
#include "client/direct/capability.h"
#include "client/layout.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"

/* Maximum of memory that one call uses in addition to the callers' buffers. */
#define SIDE_MAX ((uint64_t)16 << 20)
/* How long a transfer may take if another replica could be tried instead. */
#define PATIENCE_MS 1000
#define PATIENCE_BYTES_PER_MS 20000

MC_COUNTER(read_bytes, "mooncake_client_transfer_bytes_total", "op=\"read\"",
	   "bytes moved between this process and segments")
MC_COUNTER(failed, "mooncake_client_transfer_failures_total", "op=\"read\"", "transfers that failed")
MC_COUNTER(checksum_errors, "mooncake_checksum_errors_total", "",
	   "replicas whose bytes did not match their checksum, twice")

/* The bytes of the object that are transferred for a part. */
struct span {
	uint64_t start, end;
	bool verify, whole, fetch_trailer;
};

static struct span read_span(const struct mcs_part *p)
{
	uint64_t size = p->v->info.size, end = p->offset + p->len;
	struct span sp = { .start = p->offset, .end = end };

	if (p->unverified)
		return sp;
	sp.verify = true;
	sp.start -= sp.start % MC_CRC_CHUNK;
	sp.end = mc_crc_chunks(end) * MC_CRC_CHUNK;
	if (sp.end > size)
		sp.end = size;
	sp.whole = !sp.start && sp.end == size;
	sp.fetch_trailer = !sp.whole && !p->trailer;
	return sp;
}

/* Bytes that a part needs in addition to the caller's buffers. */
static uint64_t read_side_bytes(const struct mcs_part *p)
{
	struct span sp = read_span(p);
	uint64_t n = p->offset - sp.start + (sp.end - p->offset - p->len);

	if (sp.fetch_trailer)
		n += mcs_trailer_size(p->v->info.size);
	return (n + 63) & ~(uint64_t)63;
}

int mcs_version_decode(const struct mcp_object *obj, uint64_t epoch, uint64_t asked_ns,
		       struct mcs_version *ret)
{
	int r = mc_err_from_wire(obj->status);
	struct mcp_iter it;

	if (r == -MC_ELIMIT)
		return mc_fail(r, "the master refuses more pins of this client: it holds too many objects or bytes "
			       "(--max_session_pins, --max_session_pinned_ratio)");
	if (r < 0)
		return r;
	if (obj->size > MCS_SIZE_MAX)
		return mc_fail(-MC_EPROTO, "master gave an object of %llu bytes",
			       (unsigned long long)obj->size);
	*ret = (struct mcs_version){
		.info = {
			.size = obj->size, .generation = obj->generation,
			.mtime_ms = obj->mtime_ms, .crc32c = obj->crc,
			.kind = (enum mcs_kind)obj->kind,
			.flags = (obj->flags & MCP_OBJ_HARD_PIN ? MCS_PUT_HARD_PIN : 0) |
				 (obj->flags & MCP_OBJ_SOFT_PIN ? MCS_PUT_SOFT_PIN : 0),
			.replicas = obj->replicas.count,
			.data_type = (enum mcs_data_type)obj->data_type,
			.soft_pin_ms = obj->soft_pin_ms, .attrs = mcs_attrs_decode(&obj->attrs),
		},
		.pin = { .id = obj->pin, .epoch = epoch },
		.asked_ns = asked_ns,
		.lease_ms = obj->lease_ms,
	};
	mcp_iter_init(&it, &obj->replicas, &mcp_desc_replica);
	while (ret->n < MCS_REPLICAS_MAX && mcp_iter_next(&it, &ret->replica[ret->n]))
		ret->info.flags |= mcs_medium_flag(ret->replica[ret->n++].medium);
	return 0;
}

bool mcs_version_same(const struct mcs_version *a, const struct mcs_version *b)
{
	if (a->info.generation != b->info.generation || a->n != b->n)
		return false;
	for (unsigned i = 0; i < a->n; i++)
		if (!mcp_id_eq(a->replica[i].segment, b->replica[i].segment) ||
		    a->replica[i].offset != b->replica[i].offset)
			return false;
	return true;
}

bool mcs_version_pinned(const struct mcs_direct *s, const struct mcs_version *v)
{
	if (!v->pin.id || v->pin.epoch != mcs_direct_epoch(s))
		return false;
	return !v->lease_ms || mc_now_ns() - v->asked_ns < v->lease_ms * MC_NS_PER_MS;
}

int mcs_transfer_error(int err)
{
	if (err == -MC_ETIMEDOUT || err == -ENOMEM)
		return err;
	if (err == -MC_EUNAVAILABLE)
		return mc_fail(-MC_ETRANSFER, "the disk of the object's owner does not work now; the object stays, and "
			       "can be read when the disk works again");
	/* The paths have different errors; callers of the store get one. */
	return mc_fail(-MC_ETRANSFER, "transfer failed: %s", mc_strerror(err));
}

static bool part_usable(const struct mcs_part *p, unsigned i, unsigned limit)
{
	return p->unreachable[i] + p->mismatched[i] < limit;
}

bool mcs_part_left(const struct mcs_part *p, bool twice)
{
	for (unsigned i = 0; i < p->v->n; i++)
		if (part_usable(p, i, twice ? 2 : 1))
			return true;
	return false;
}

int mcs_part_verdict(const struct mcs_part *p)
{
	for (unsigned i = 0; i < p->v->n; i++)
		if (p->mismatched[i] > 1)
			return -MC_ECHECKSUM;
	return p->status < 0 ? p->status : -MC_ETRANSFER;
}

/* Order of preference: own memory, mapped memory, a path not known yet, a network; then media that are slower. */
static unsigned read_distance(struct mcs_direct *s, const struct mcp_replica *rep)
{
	unsigned d = mcp_medium(rep->medium)->distance;
	struct mcs_seg *seg;

	if (d)
		return d;
	seg = mcs_segmap_peek(s->segmap, rep->segment);
	d = mce_path_distance(MCE_PATH_NONE);
	if (seg)
		d = seg->own ? MCE_DISTANCE_OWN : mce_path_distance(__atomic_load_n(&seg->path, __ATOMIC_RELAXED));
	mcs_seg_put(seg);
	return d;
}

static int read_choose(struct mcs_direct *s, struct mcs_part *p)
{
	unsigned best = ~0u;

	for (unsigned i = 0; i < p->v->n; i++) {
		unsigned score;

		if (!part_usable(p, i, 2))
			continue;
		score = (p->unreachable[i] + p->mismatched[i]) * 16;
		if (p->v->n > 1)
			score += read_distance(s, &p->v->replica[i]);
		if (score < best) {
			best = score;
			p->replica = i;
		}
	}
	return best == ~0u ? mc_fail(-MC_EREPLICA_GONE, "no replica can be read") : 0;
}

/* The caller's buffers, with memory for the rest of the first and last chunk around them. */
static int read_build_iov(struct mcs_scratch *sc, const struct mcs_part *p, const struct span *sp,
			  unsigned char **side, struct mce_req *req)
{
	uint64_t head = p->offset - sp->start, tail = sp->end - p->offset - p->len;
	struct iovec *iov = mcs_scratch_raw(sc, (size_t)p->iovcnt + 2, sizeof(*iov));
	unsigned n = 0;

	if (!iov)
		return -ENOMEM;
	if (head)
		iov[n++] = (struct iovec){ *side, head };
	n += mcs_iov_head(iov + n, p->iov, p->iovcnt, p->len);
	if (tail)
		iov[n++] = (struct iovec){ *side + head, tail };
	*side += head + tail;
	req->iov = iov;
	req->iovcnt = n;
	return 0;
}

static struct mce_req part_request(struct mcs_scratch *sc, const struct mcs_part *p, uint64_t offset)
{
	const struct mcp_replica *rep = &p->v->replica[p->replica];

	return (struct mce_req){
		.op = MCE_READ, .peer = p->file ? p->file->peer : p->seg->peer,
		.rkey = p->file ? p->file->rkey : p->seg->rkey,
		.addr = (p->file ? p->file->base : p->seg->base) + rep->offset + offset,
		.cap = mcs_capability_new(sc, rep, p->v->info.size, p->v->info.generation, MC_CAPABILITY_READ),
	};
}

static int read_fetch_trailer(struct mcs_scratch *sc, struct mcs_part *p, unsigned char *side)
{
	uint64_t size = p->v->info.size;
	struct iovec *iov = mcs_scratch_raw(sc, 1, sizeof(*iov));

	if (!iov)
		return -ENOMEM;
	/* The bytes before it have any length, but an array of u32 must be aligned. */
	side = (unsigned char *)(((uintptr_t)side + 3) & ~(uintptr_t)3);
	*iov = (struct iovec){ side, mcs_trailer_size(size) };
	p->req[1] = part_request(sc, p, mcs_trailer_offset(size));
	p->req[1].iov = iov;
	p->req[1].iovcnt = 1;
	p->n_req = 2;
	return 0;
}

/* Read the replica from its segment's file, if this process can open it.  Always with checks: between machines a
 * filesystem may have old bytes, and a former owner of the file may write late, which the present one reads too. */
static int part_file(struct mcs_direct *s, struct mcs_part *p, uint64_t deadline)
{
	uint64_t end = p->v->replica[p->replica].offset + mcs_stored_size(p->v->info.size);
	int r;

	if (p->seg->place)
		p->unverified = false;
	if (!p->seg->place || p->seg->own || p->by_owner)
		return 0;
	r = mcs_shared_get(s->shared, p->seg->id, p->seg->place, deadline, &p->file);
	if (p->file && end > p->file->size) {
		mcs_shared_put(s->shared, p->file);
		p->file = NULL;
	}
	return r;
}

static void part_release(struct mcs_direct *s, struct mcs_part *p)
{
	if (p->file)
		mcs_shared_put(s->shared, p->file);
	p->file = NULL;
	mcs_seg_put(p->seg);
	p->seg = NULL;
}

/* Choose a replica and find its segment. */
static int read_locate(struct mcs_direct *s, struct mcs_part *p, uint64_t deadline)
{
	const struct mcp_replica *rep;
	int r;

	p->seg = NULL;
	p->file = NULL;
	p->n_req = 0;
	p->fetched = NULL;
	r = read_choose(s, p);
	if (r < 0)
		return r;
	rep = &p->v->replica[p->replica];
	if (rep->offset > UINT64_MAX - mcs_stored_size(p->v->info.size))
		return mc_fail(-MC_EPROTO, "a replica lies outside of its segment");
	r = mcs_segmap_reach(s->segmap, rep->segment, rep->offset + mcs_stored_size(p->v->info.size), deadline,
			     &p->seg);
	return r < 0 ? r : part_file(s, p, deadline);
}

/* Build the requests of one part, at most two, at @p->req. */
static int read_prepare(struct mcs_scratch *sc, struct mcs_part *p, unsigned char *side)
{
	struct span sp = read_span(p);
	int r;

	p->req[0] = part_request(sc, p, sp.start);
	p->n_req = 1;
	r = read_build_iov(sc, p, &sp, &side, &p->req[0]);
	if (r < 0 || !sp.verify)
		return r;
	p->req[0].crc_len = sp.end - sp.start;
	p->req[0].crc = mcs_scratch_raw(sc, mc_crc_chunks(sp.end - sp.start), sizeof(uint32_t));
	if (!p->req[0].crc)
		return -ENOMEM;
	return sp.fetch_trailer ? read_fetch_trailer(sc, p, side) : 0;
}

/* Do the bytes that arrived match the checksums of this version? */
static bool part_matches(struct mcs_part *p)
{
	const struct mcs_info *info = &p->v->info;
	struct span sp = read_span(p);
	const uint32_t *crc = p->req[0].crc, *trailer = p->trailer;

	if (!sp.verify)
		return true;
	if (sp.whole)
		return mcs_crc_of_chunks(crc, info->size) == info->crc32c;
	if (!trailer) {
		trailer = p->req[1].iov->iov_base;
		if (mcs_crc_of_chunks(trailer, info->size) != info->crc32c)
			return false;
		p->fetched = trailer;
	}
	return !memcmp(crc, trailer + sp.start / MC_CRC_CHUNK,
		       mc_crc_chunks(sp.end - sp.start) * sizeof(*crc));
}

/* The chosen replica was bad twice: if it is on a disk, the master drops it. */
static void part_bad(struct mcs_direct *s, const struct mcs_part *p)
{
	const struct mcp_replica *rep = &p->v->replica[p->replica];
	const struct mcp_bad_copy msg = { .pin = p->v->pin.id, .segment = rep->segment };

	if (mcp_medium_is(rep->medium, MCP_TRAIT_VOLATILE) || !mcs_version_pinned(s, p->v))
		return;
	mc_warn("client", "the copy of an object on a disk is bad, dropping it: %s",
		p->mismatched[p->replica] > 1 ? "checksum mismatch" : "it cannot be read");
	(void)mcs_send(s->base.session, MCP_BAD_COPY, &msg);
}

/* The file of the replica's segment gave an error, or other bytes.  The next attempt asks the owner, whose answer
 * decides whether the copy is bad.  A timeout may be the fault of the deadline. */
static void part_file_failed(struct mcs_direct *s, struct mcs_part *p, int err)
{
	if (err != -MC_ETIMEDOUT)
		mcs_shared_failed(s->shared, p->file, err);
	p->by_owner = true;
	p->fetched = NULL;
	p->status = mcs_transfer_error(err);
	mc_metric_add(&failed, 1);
}

/* Set the status of a part whose requests are complete. */
static void part_finish(struct mcs_direct *s, struct mcs_part *p)
{
	int err = 0;

	for (unsigned i = 0; i < p->n_req; i++)
		if (p->req[i].status < 0)
			err = p->req[i].status;
	if (p->file && (err < 0 || !part_matches(p))) {
		part_file_failed(s, p, err < 0 ? err : -MC_ECHECKSUM);
		return;
	}
	if (err < 0) {
		p->status = mcs_transfer_error(err);
		/* The owner's device works, and has refused it. */
		if (++p->unreachable[p->replica] == 2 && err == -EIO)
			part_bad(s, p);
		mc_metric_add(&failed, 1);
		mcs_segmap_forget(s->segmap, p->v->replica[p->replica].segment);
		return;
	}
	p->status = 0;
	p->path = p->req[0].path;
	mc_metric_add(&read_bytes, (int64_t)p->len);
	if (p->file)
		return;
	__atomic_store_n(&p->seg->path, p->path, __ATOMIC_RELAXED);
	if (!part_matches(p)) {
		if (++p->mismatched[p->replica] == 2) {
			mc_metric_add(&checksum_errors, 1);
			part_bad(s, p);
		}
		p->fetched = NULL;
		p->status = mc_fail(-MC_ECHECKSUM, "checksum mismatch at %llu, %llu bytes",
				    (unsigned long long)p->offset, (unsigned long long)p->len);
	} else if (p->unverified && !mcs_version_pinned(s, p->v)) {
		p->unverified = false;
		p->status = -EAGAIN;
	}
}

static bool part_has_other(const struct mcs_part *p)
{
	for (unsigned k = 0; k < p->v->n; k++)
		if (k != p->replica && part_usable(p, k, 1))
			return true;
	return false;
}

/* Earlier than @deadline if all parts have another replica to try after that. */
static uint64_t read_attempt_deadline(struct mcs_part **parts, unsigned n, uint64_t deadline)
{
	uint64_t bytes = 0, now = mc_now_ns(), limit;

	for (unsigned i = 0; i < n; i++) {
		if (parts[i]->n_req && !part_has_other(parts[i]))
			return deadline;
		bytes += parts[i]->len;
	}
	limit = now + (PATIENCE_MS + bytes / PATIENCE_BYTES_PER_MS) * MC_NS_PER_MS;
	if (now < deadline && deadline != MC_NEVER && limit > now + (deadline - now) / 2)
		limit = now + (deadline - now) / 2;
	return limit < deadline ? limit : deadline;
}

/* Transfer the bytes of parts whose @n_req requests are in @reqs. */
static void read_run(struct mcs_direct *s, struct mcs_part **parts, unsigned n, struct mce_req *reqs,
		     unsigned n_req, uint64_t deadline)
{
	struct mce_batch batch;
	int r = mc_fault("client.get.before_read");

	if (n_req && !r) {
		mce_batch_init(&batch);
		mce_submit(s->engine, &batch, reqs, n_req);
		/* Also after a timeout the engine has released the memory, and each request has its status. */
		(void)mce_batch_wait(s->engine, &batch, reqs, n_req,
				     read_attempt_deadline(parts, n, deadline));
		r = mc_fault("client.get.after_read");
	}
	for (unsigned i = 0; i < n; i++) {
		struct mcs_part *p = parts[i];

		if (r < 0 && p->n_req)
			p->req[0].status = r;
		if (p->n_req)
			part_finish(s, p);
		part_release(s, p);
	}
}

/* A part that cannot be tried counts as tried, so that the caller's loop ends. */
static void part_fail(struct mcs_direct *s, struct mcs_part *p, int r)
{
	part_release(s, p);
	p->status = r;
	p->n_req = 0;
	if (p->replica < p->v->n)
		p->unreachable[p->replica]++;
}

/* Choose the replicas of all parts; how much additional memory to allocate for them. */
static uint64_t read_locate_all(struct mcs_direct *s, struct mcs_part **parts, unsigned n, uint64_t deadline)
{
	uint64_t sum = 0, largest = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t need;
		int r = read_locate(s, parts[i], deadline);

		if (r < 0) {
			part_fail(s, parts[i], r);
			continue;
		}
		need = read_side_bytes(parts[i]);
		sum += need;
		largest = need > largest ? need : largest;
	}
	sum = sum < SIDE_MAX ? sum : SIDE_MAX;
	return sum > largest ? sum : largest;
}

void mcs_read(struct mcs_direct *s, struct mcs_scratch *sc, struct mcs_part **parts, unsigned n,
	      uint64_t deadline)
{
	struct mce_req *reqs = mcs_scratch_raw(sc, 2 * (size_t)n, sizeof(*reqs));
	uint64_t used = 0, cap = read_locate_all(s, parts, n, deadline);
	unsigned char *side = cap ? mcs_scratch_raw(sc, 1, cap + 64) : NULL;
	unsigned first = 0, n_req = 0;

	for (unsigned i = 0; i < n; i++) {
		struct mcs_part *p = parts[i];
		uint64_t need;
		int r;

		if (!p->seg)
			continue;
		need = read_side_bytes(p);
		if (used + need > cap) {
			read_run(s, parts + first, i - first, reqs, n_req, deadline);
			first = i;
			n_req = 0;
			used = 0;
		}
		p->req = reqs + n_req;
		r = !reqs || (cap && !side) ? -ENOMEM : read_prepare(sc, p, side + used);
		if (r < 0) {
			part_fail(s, p, r);
			continue;
		}
		used += need;
		n_req += p->n_req;
	}
	read_run(s, parts + first, n - first, reqs, n_req, deadline);
}

/* ---- the same in steps ---- */

/* -EAGAIN: the master, or the filesystem, must be asked first. */
static int read_locate_now(struct mcs_direct *s, struct mcs_part *p)
{
	uint64_t stored = mcs_stored_size(p->v->info.size), end = p->v->replica[p->replica].offset + stored;

	p->seg = mcs_segmap_peek(s->segmap, p->v->replica[p->replica].segment);
	if (!p->seg || end > p->seg->size || end < stored)
		return -EAGAIN;
	return part_file(s, p, 0);
}

int mcs_read_prepare(struct mcs_direct *s, struct mcs_scratch *sc, struct mcs_part *p)
{
	int r = read_choose(s, p);
	unsigned char *side;
	uint64_t need;

	p->n_req = 0;
	p->fetched = NULL;
	if (r < 0)
		return r;
	r = read_locate_now(s, p);
	need = read_side_bytes(p);
	side = need ? mcs_scratch_raw(sc, 1, need + 64) : NULL;
	p->req = mcs_scratch_raw(sc, 2, sizeof(*p->req));
	if (r == 0)
		r = !p->req || (need && !side) ? -ENOMEM : read_prepare(sc, p, side);
	if (r < 0) {
		part_release(s, p);
		p->n_req = 0;
	}
	return r;
}

uint64_t mcs_read_patience(struct mcs_part *p, uint64_t deadline)
{
	return read_attempt_deadline(&p, 1, deadline);
}

void mcs_read_finish(struct mcs_direct *s, struct mcs_part *p)
{
	part_finish(s, p);
	part_release(s, p);
}
