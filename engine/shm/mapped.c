/* SPDX-License-Identifier: Apache-2.0
 * mapped.c - the path to regions with a descriptor of a peer on this host: map once, then memcpy.
 *
 * The resolver asks over the unix socket, the I/O thread receives; both use the peer's lock.  A
 * mapping is removed when its region ends, unless a pointer into it was given out: then it stays until the
 * last handle is put, because a reader must see stale bytes rather than fault. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/dax.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "engine/gpu/gpu_i.h"
#include "engine/shm/mapped.h"

/* Regions of one peer that are remembered; requests to others use TCP. */
#define MAPPINGS_MAX 65536u
#define HUGE_SIZE (2ull << 20)
/* A wait for the owner checks for the engine's end this often. */
#define CLOSE_LOOK_NS (50 * MC_NS_PER_MS)
/* A connection that the owner has closed is replaced, unless SHORT_MAX in a row have lasted less than SHORT_MS. */
#define SHORT_MS 1000
#define SHORT_MAX 8u

MC_GAUGE(mapped_bytes, "mooncake_transfer_mapped_bytes", "", "Peer memory mapped by this process")

/* ---- mappings ---------------------------------------------------------------------------------- */

static struct mce_mapping **mapping_find_locked(struct mce_mapped *m, uint64_t rkey)
{
	struct mce_mapping **pp;

	pp = &m->bucket[rkey % MCE_MAPPING_BUCKETS];
	while (*pp && (*pp)->rkey != rkey)
		pp = &(*pp)->next;
	return pp;
}

static void mapping_free(struct mce_mapping *mp)
{
	mce_pins_free(mp->pins);
	if (mp->at) {
		munmap(mp->at, mp->len);
		mc_metric_add(&mapped_bytes, -(int64_t)mp->len);
	}
	free(mp);
}

/* Remove from the table; the last user frees it. */
static void mapping_drop_locked(struct mce_mapped *m, struct mce_mapping **pp)
{
	struct mce_mapping *mp = *pp;

	*pp = mp->next;
	m->n--;
	mp->dead = true;
	if (mp->given) {
		mp->next = m->kept;
		m->kept = mp;
	} else if (mp->refs == 0) {
		mapping_free(mp);
	}
}

static void mappings_drop_locked(struct mce_mapped *m)
{
	for (unsigned i = 0; i < MCE_MAPPING_BUCKETS; i++)
		while (m->bucket[i])
			mapping_drop_locked(m, &m->bucket[i]);
}

bool mce_mapping_alive_locked(const struct mce_mapped *m, const struct mce_mapping *mp)
{
	if (mp->dead)
		return false;
	return !mp->listed || __atomic_load_n(&m->epochs[mp->slot], __ATOMIC_SEQ_CST) == mp->rkey;
}

int mce_mapping_check_locked(const struct mce_mapped *m, const struct mce_mapping *mp)
{
	if (mp->dead)
		return -EAGAIN;
	return mce_mapping_alive_locked(m, mp) ? 0 : -ESTALE;
}

void mce_mapping_unref_locked(struct mce_mapping *mp)
{
	if (--mp->refs == 0 && mp->dead && !mp->given)
		mapping_free(mp);
}

/* Address and file offset must be equal modulo 2 MiB, or huge pages would be mapped 4 KiB at a time. */
static void *mapping_map_aligned(int fd, uint64_t offset, uint64_t len, int prot)
{
	uint64_t skew = offset & (HUGE_SIZE - 1), room = len + 2 * HUGE_SIZE, head, tail;
	char *start, *at;
	void *got;

	if (len < HUGE_SIZE)
		return mmap(NULL, len, prot, MAP_SHARED, fd, (off_t)offset);
	start = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (start == MAP_FAILED)
		return start;
	at = (char *)(((uintptr_t)start + HUGE_SIZE - 1) & ~(HUGE_SIZE - 1)) + skew;
	got = mmap(at, len, prot, MAP_SHARED | MAP_FIXED, fd, (off_t)offset);
	if (got == MAP_FAILED) {
		munmap(start, room);
		return got;
	}
	head = (uint64_t)(at - start);
	len = (len + 4095) & ~4095ull;
	tail = room - head - len;
	if (head)
		munmap(start, head);
	if (tail)
		munmap(at + len, tail);
	(void)madvise(at, len, MADV_HUGEPAGE);
	(void)madvise(at, len, MADV_DONTDUMP);
	return at;
}

static void mapping_map(struct mce_mapping *mp, const struct mce_map_msg *msg, int fd)
{
	int prot = PROT_READ | (msg->access & MCE_ACCESS_WRITE ? PROT_WRITE : 0);
	void *at;

	at = mapping_map_aligned(fd, msg->fd_offset, msg->len, prot);
	if (at == MAP_FAILED && errno == EACCES && prot & PROT_WRITE) {
		/* The descriptor is read-only: the owner does not trust our user to write. */
		mp->read_only = true;
		at = mapping_map_aligned(fd, msg->fd_offset, msg->len, PROT_READ);
	}
	if (at == MAP_FAILED) {
		mc_warn("engine", "cannot map a peer's memory, continuing over tcp: %m bytes=%llu",
			(unsigned long long)msg->len);
		return;
	}
	mp->at = at;
	mc_metric_add(&mapped_bytes, (int64_t)msg->len);
}

/* A mapping from the owner's answer; without a descriptor it only records the region's range. */
static int mapping_new(const struct mce_map_msg *msg, int fd, struct mce_mapping **ret)
{
	struct mce_mapping *mp;
	int64_t size;

	mp = calloc(1, sizeof(*mp));
	if (!mp)
		return -ENOMEM;
	mp->rkey = msg->rkey;
	mp->listed = msg->len != 0;
	mp->base = msg->base;
	mp->len = msg->len;
	mp->access = msg->access;
	mp->slot = msg->slot;
	size = fd >= 0 && mc_fault("engine.mapped.map") == 0 ? mc_dax_mappable(fd) : -1;
	if (size >= 0 && mce_range_check(0, (uint64_t)size, msg->fd_offset, msg->len) == 0)
		mapping_map(mp, msg, fd);
	*ret = mp;
	return 0;
}

/* ---- the I/O thread's side --------------------------------------------------------------------- */

static void mapped_down_locked(struct mce_mapped *m)
{
	mce_vm_unref(m->vm);
	__atomic_store_n(&m->vm, NULL, __ATOMIC_RELAXED);
	mce_hazards_unref(m->hazards);
	m->hazards = NULL;
	if (m->evfd.fd >= 0) {
		mc_evloop_del(m->io->loop, &m->evfd);
		shutdown(m->evfd.fd, SHUT_RDWR);
		close(m->evfd.fd);
		m->evfd.fd = -1;
	}
	m->state = MCE_MAPPED_DOWN;
	mappings_drop_locked(m);
	if (m->epochs)
		munmap((void *)(uintptr_t)m->epochs, MCE_EPOCH_BYTES);
	m->epochs = NULL;
	mc_cond_broadcast(&m->news);
}

/* An answer may arrive after its wait has ended, or while another one is awaited. */
static bool reply_is_awaited_locked(const struct mce_mapped *m, const struct mce_map_msg *msg)
{
	if (!m->asked || m->replied)
		return false;
	return m->question.type == MCE_MAP_HELLO ? msg->type == MCE_MAP_WELCOME :
		msg->type == MCE_MAP_REGION && msg->rkey == m->question.rkey;
}

/* The fd becomes this function's. */
static int mapped_take_locked(struct mce_mapped *m, const struct mce_map_msg *msg, int fd)
{
	struct mce_mapping **pp;
	int r = 0;

	switch (msg->type) {
	case MCE_MAP_FORGET:
		pp = mapping_find_locked(m, msg->rkey);
		if (*pp)
			mapping_drop_locked(m, pp);
		break;
	case MCE_MAP_WELCOME:
	case MCE_MAP_REGION:
		if (!reply_is_awaited_locked(m, msg))
			break;
		m->reply = *msg;
		m->reply_fd = fd;
		m->replied = true;
		mc_cond_broadcast(&m->news);
		return 0;
	default:
		r = -MC_EPROTO;
		break;
	}
	if (fd >= 0)
		close(fd);
	return r;
}

/* The owner has closed the connection.  It may still run: it closes when a mapper does not read for a while. */
static void mapped_lost_locked(struct mce_mapped *m)
{
	bool was_up = m->state == MCE_MAPPED_UP;

	mapped_down_locked(m);
	m->short_lived = mc_now_ms() - m->up_ms < SHORT_MS ? m->short_lived + 1 : 0;
	if (was_up && m->short_lived < SHORT_MAX)
		memset(m->tried, 0, sizeof(m->tried));
}

static void mapped_ready(struct mc_evfd *e, uint32_t events)
{
	struct mce_mapped *m = mc_container_of(e, struct mce_mapped, evfd);
	struct mce_map_msg msg;
	int fd, r;

	MC_LOCKED(&m->p->lock);
	do {
		r = mce_map_recv(e->fd, &msg, &fd);
		if (r == 0)
			r = mapped_take_locked(m, &msg, fd);
	} while (r == 0);
	if (r != -EAGAIN)
		mapped_lost_locked(m);
}

/* ---- the resolver's side ----------------------------------------------------------------------- */

static void reply_forget_locked(struct mce_mapped *m)
{
	if (m->replied && m->reply_fd >= 0)
		close(m->reply_fd);
	m->reply_fd = -1;
	m->replied = false;
}

static int reply_wait_locked(struct mce_mapped *m, uint64_t deadline)
{
	uint64_t next;

	while (!m->replied) {
		if (m->state == MCE_MAPPED_DOWN)
			return -ECONNRESET;
		if (mce_closing(m->p->e))
			return -ECANCELED;
		next = mc_now_ns();
		if (next >= deadline)
			return -ETIMEDOUT;
		next += CLOSE_LOOK_NS;
		if (next > deadline)
			next = deadline;
		(void)mc_cond_wait_until(&m->news, &m->p->lock, next);
	}
	return 0;
}

/* Send a message and wait for the answer.  0 with the reply and its descriptor, which is the caller's.  Only the
 * resolver asks, one question at a time. */
static int mapped_ask_locked(struct mce_mapped *m, const struct mce_map_msg *msg, uint64_t deadline,
		      struct mce_map_msg *ret, int *ret_fd)
{
	int r;

	reply_forget_locked(m);
	if (m->evfd.fd < 0)
		return -ECONNRESET;
	r = mce_map_send(m->evfd.fd, msg, msg->type == MCE_MAP_HELLO && m->hazards ? m->hazards->fd : -1);
	if (r < 0)
		return r;
	m->question = *msg;
	m->asked = true;
	r = reply_wait_locked(m, deadline);
	m->asked = false;
	if (r < 0)
		return r;
	*ret = m->reply;
	*ret_fd = m->reply_fd;
	m->replied = false;
	m->reply_fd = -1;
	return 0;
}

static int owner_connect(const struct mce_id *id, bool *ret_stranger)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char name[MC_ADDR_MAX];
	auto_close int fd = -1;
	socklen_t len;

	mce_map_address(id->nonce, name);
	memcpy(sa.sun_path + 1, name, strlen(name));
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* When the owner's backlog is full, use TCP. */
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, len))
		return -errno;
	if (mce_map_check_cred(fd, ret_stranger) < 0)
		return -EACCES;
	return TAKE_FD(fd);
}

static int mapped_greet_locked(struct mce_mapped *m, uint64_t deadline)
{
	struct mce_map_msg out = {
		.version = MCE_MAP_VERSION, .type = MCE_MAP_HELLO, .rkey = m->p->token, .base = m->fence,
	}, in;
	auto_close int fd = -1;
	struct mce_vm *vm = NULL;
	struct stat st;
	void *epochs;
	int r;

	r = mapped_ask_locked(m, &out, deadline, &in, &fd);
	if (r < 0)
		return r;
	if (m->state != MCE_MAPPED_GREETING)
		return -ECONNRESET;
	if (in.type != MCE_MAP_WELCOME || fd < 0 || memcmp(in.nonce, m->tried, sizeof(in.nonce)) ||
	    fstat(fd, &st) || (uint64_t)st.st_size < MCE_EPOCH_BYTES ||
	    (m->stranger && !mce_map_is_sealed(fd)))
		return -MC_EPROTO;
	epochs = mmap(NULL, MCE_EPOCH_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (epochs == MAP_FAILED)
		return -errno;
	m->epochs = epochs;
	if (m->hazards && in.base && !m->stranger)
		vm = mce_vm_open(m->evfd.fd, &in, fd, m->hazards);
	__atomic_store_n(&m->vm, vm, __ATOMIC_RELAXED);
	return 0;
}

static void mapped_down_run(void *arg)
{
	struct mce_mapped *m = arg;

	MC_LOCKED(&m->p->lock);
	mapped_down_locked(m);
}

/* Try once per life of the engine at the other end, again after a connection, and again when the TCP connections were
 * all lost and made again: the owner admits the peer by these, and may have refused it because their ticket had
 * expired, or was one of a credential that was revoked and replaced since then. */
static bool mapped_is_tried_locked(const struct mce_mapped *m)
{
	return !memcmp(m->tried, m->p->id.nonce, sizeof(m->tried)) &&
	       (m->state == MCE_MAPPED_UP || m->tried_at == m->p->introductions);
}

static bool mapped_worth_trying(struct mce_mapped *m)
{
	struct mce_peer *p = m->p;

	MC_LOCKED(&p->lock);
	if (!p->introduced || p->e->conf.force_tcp || p->local ||
	    !mce_id_same_host(&p->id, &p->e->id) || mapped_is_tried_locked(m))
		return false;
	return true;
}

static void mapped_try_connect(struct mce_mapped *m, const struct mce_id *id, uint64_t deadline)
{
	struct mce_peer *p = m->p;
	bool stranger = true;
	int fd, r;

	fd = owner_connect(id, &stranger);
	if (fd < 0) {
		mc_info("engine", "same host but memory is not shared, using tcp: %s peer=%s",
			mc_strerror(fd), p->endpoint);
		return;
	}
	mc_mutex_lock(&p->lock);
	m->evfd.fd = fd;
	m->stranger = stranger;
	m->state = MCE_MAPPED_GREETING;
	m->hazards = mce_hazards_new();
	m->fence = __atomic_load_n(&p->e->fence, __ATOMIC_SEQ_CST);
	r = mc_evloop_add(m->io->loop, &m->evfd, EPOLLIN);
	if (r == 0)
		r = mapped_greet_locked(m, deadline);
	if (r == 0 && m->state == MCE_MAPPED_GREETING) {
		m->state = MCE_MAPPED_UP;
		m->up_ms = mc_now_ms();
	}
	if (m->hazards && m->hazards->fd >= 0) {
		/* The owner has a descriptor of its own. */
		close(m->hazards->fd);
		m->hazards->fd = -1;
	}
	mc_mutex_unlock(&p->lock);
	if (r < 0)
		mce_io_call(m->io, mapped_down_run, m);
}

static int mapped_connect(struct mce_peer *p, uint64_t deadline)
{
	struct mce_mapped *m = mce_mapped_of(p);
	struct mce_id id;

	if (!mapped_worth_trying(m))
		return 0;
	/* The end of the previous engine at the same address may not have been noticed. */
	mce_io_call(m->io, mapped_down_run, m);
	mc_mutex_lock(&p->lock);
	id = p->id;
	memcpy(m->tried, id.nonce, sizeof(m->tried));
	m->tried_at = p->introductions;
	m->connecting = true;
	mc_mutex_unlock(&p->lock);
	mapped_try_connect(m, &id, deadline);
	mc_mutex_lock(&p->lock);
	m->connecting = false;
	mc_mutex_unlock(&p->lock);
	return 0;
}

static int mapped_prepare(struct mce_peer *p, uint64_t rkey, uint64_t deadline)
{
	struct mce_map_msg out = {
		.version = MCE_MAP_VERSION, .type = MCE_MAP_FETCH, .rkey = rkey,
	}, in;
	struct mce_mapped *m = mce_mapped_of(p);
	auto_close int fd = -1;
	struct mce_mapping *mp;
	int r;

	MC_LOCKED(&p->lock);
	if (m->state != MCE_MAPPED_UP || *mapping_find_locked(m, rkey) || m->n >= MAPPINGS_MAX)
		return 0;
	r = mapped_ask_locked(m, &out, deadline, &in, &fd);
	if (r < 0)
		return r == -ECONNRESET ? 0 : r;
	if (in.type != MCE_MAP_REGION || in.rkey != rkey)
		return -MC_EPROTO;
	r = in.status == 0 ? 0 : mc_err_from_wire(in.status);
	if (r < 0 && r != -MC_ENOTSUP)
		return r;
	if (r == 0 && fd >= 0 && m->stranger && !mce_map_is_sealed(fd))
		r = -MC_ENOTSUP;
	r = mapping_new(&in, r == 0 ? fd : -1, &mp);
	if (r < 0)
		return r;
	/* The lock was released while waiting for the answer: the region may have ended. */
	if (m->state != MCE_MAPPED_UP || !mce_mapping_alive_locked(m, mp)) {
		mapping_free(mp);
		return m->state != MCE_MAPPED_UP ? 0 : -ESTALE;
	}
	mp->next = m->bucket[rkey % MCE_MAPPING_BUCKETS];
	m->bucket[rkey % MCE_MAPPING_BUCKETS] = mp;
	m->n++;
	return 0;
}

/* ---- transfers --------------------------------------------------------------------------------- */

/* A WRITE of another session than that of the connection.  -ESTALE: of an earlier one.  -EAGAIN: connect again. */
static int mapped_check_session_locked(struct mce_mapped *m, const struct mce_req *req)
{
	if (req->op != MCE_WRITE || !req->fence || req->fence == m->fence)
		return 0;
	if (req->fence < __atomic_load_n(&m->p->e->fence, __ATOMIC_SEQ_CST))
		return -ESTALE;
	memset(m->tried, 0, sizeof(m->tried));
	return -EAGAIN;
}

int mce_mapped_find_locked(struct mce_mapped *m, const struct mce_req *req, uint64_t len, struct mce_mapping **ret)
{
	unsigned access = mce_req_access(req);
	struct mce_peer *p = m->p;
	struct mce_mapping **pp, *mp;
	int r;

	if (p->e->conf.force_tcp)
		return -MC_ENOTSUP;
	/* An older, cancelled WRITE could overwrite this one. */
	if (access & MCE_ACCESS_WRITE && mce_peer_in_doubt_locked(p, MCE_PATH_MAPPED))
		return -MC_ENOTSUP;
	if (m->state != MCE_MAPPED_UP) {
		/* While it is unknown whether the peer is on this host, wait rather than use TCP. */
		if (!p->introduced || m->connecting)
			return -EAGAIN;
		return mce_id_same_host(&p->id, &p->e->id) && !mapped_is_tried_locked(m) ? -EAGAIN : -MC_ENOTSUP;
	}
	r = mapped_check_session_locked(m, req);
	if (r < 0)
		return r;
	pp = mapping_find_locked(m, req->rkey);
	mp = *pp;
	if (!mp)
		return m->n < MAPPINGS_MAX ? -EAGAIN : -MC_ENOTSUP;
	if (!mp->listed)
		return -MC_ENOTSUP;
	if (!mce_mapping_alive_locked(m, mp)) {
		mapping_drop_locked(m, pp);
		return -ESTALE;
	}
	r = mce_range_check(mp->base, mp->len, req->addr, len);
	if (r == 0 && (mp->access & access) != access)
		r = -EACCES;
	*ret = mp;
	return r;
}

/* The same for regions that can be mapped. */
static int mapped_lookup_locked(struct mce_mapped *m, const struct mce_req *req, uint64_t len,
				struct mce_mapping **ret)
{
	struct mce_mapping *mp = NULL;
	int r;

	r = mce_mapped_find_locked(m, req, len, &mp);
	if (mp && (!mp->at || (req->op == MCE_WRITE && mp->read_only)))
		return -MC_ENOTSUP;
	*ret = mp;
	return r;
}

/* Announce a WRITE that the owner may have to fence.  *@ret: the page with the slot, referenced; NULL: there is nothing
 * to announce.  -MC_ENOTSUP: without an announcement it must take another path. */
static int mapped_announce_locked(struct mce_mapped *m, const struct mce_req *req, struct mce_hazards **ret,
				  unsigned *ret_slot)
{
	*ret = NULL;
	if (req->op != MCE_WRITE || !req->fence)
		return 0;
	if (!m->hazards || mce_slot_take(m->hazards->slots, MCE_HAZARD_SLOTS, req->rkey, ret_slot) < 0)
		return -MC_ENOTSUP;
	*ret = mce_hazards_ref(m->hazards);
	return 0;
}

static void flat_fill(struct mce_flat *f, struct mce_req *req, struct mce_mapping *mp)
{
	*f = (struct mce_flat){
		.req = req, .remote = mp->at + (req->addr - mp->base), .gpu = -1, .pins = &mp->pins, .base = mp->at,
		.len = mp->len, .read_only = mp->read_only,
	};
}

static int mapped_copy(struct mce_req *req, struct mce_mapping *mp)
{
	struct mce_flat f;

	if (!mce_reqx(req)->gpu) {
		mce_copy(req, mp->at + (req->addr - mp->base));
		return 0;
	}
	flat_fill(&f, req, mp);
	mce_gpu_copy(req->peer->e, &f, 1);
	return f.status;
}

static int mapped_submit(struct mce_peer *p, struct mce_req *req)
{
	struct mce_mapped *m = mce_mapped_of(p);
	struct mce_hazards *hazards = NULL;
	struct mce_mapping *mp;
	unsigned slot = 0;
	int r, copied;

	mc_mutex_lock(&p->lock);
	r = mapped_lookup_locked(m, req, mce_req_span(req), &mp);
	if (r == 0)
		r = mapped_announce_locked(m, req, &hazards, &slot);
	if (r == 0)
		mp->refs++;
	mc_mutex_unlock(&p->lock);
	if (r == -EAGAIN || r == -MC_ENOTSUP)
		return r;
	if (r == 0) {
		copied = mapped_copy(req, mp);
		if (hazards)
			mce_slot_clear(hazards->slots, slot);
		mce_hazards_unref(hazards);
		mc_mutex_lock(&p->lock);
		r = mce_mapping_check_locked(m, mp);
		mce_mapping_unref_locked(mp);
		mc_mutex_unlock(&p->lock);
		if (r == -EAGAIN)
			return r;
		r = r < 0 ? r : copied;
	}
	mce_complete(req, MCE_PATH_MAPPED, r);
	return 0;
}

/* The first requests with device memory that go to one mapping, with one announcement for all. */
static unsigned run_take_locked(struct mce_mapped *m, struct mce_req *reqs, unsigned n, struct mce_flat *flat,
				struct mce_mapping **ret)
{
	struct mce_mapping *mp = NULL;
	unsigned k = 0;

	while (k < n && k < MCE_GPU_RUN && mce_gpu_alike(reqs, &reqs[k]) &&
	       mapped_lookup_locked(m, &reqs[k], mce_req_span(&reqs[k]), &mp) == 0) {
		flat_fill(&flat[k], &reqs[k], mp);
		*ret = mp;
		k++;
	}
	return k;
}

static unsigned mapped_run(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	struct mce_mapped *m = mce_mapped_of(p);
	struct mce_flat flat[MCE_GPU_RUN];
	struct mce_hazards *hazards = NULL;
	struct mce_mapping *mp = NULL;
	unsigned slot = 0, k;
	int r = 0;

	if (!mce_reqx(reqs)->gpu)
		return 0;
	mc_mutex_lock(&p->lock);
	k = run_take_locked(m, reqs, n, flat, &mp);
	if (k && mapped_announce_locked(m, reqs, &hazards, &slot) < 0)
		k = 0;
	if (k)
		mp->refs++;
	mc_mutex_unlock(&p->lock);
	if (k == 0)
		return 0;
	mce_gpu_copy(p->e, flat, k);
	if (hazards)
		mce_slot_clear(hazards->slots, slot);
	mce_hazards_unref(hazards);
	mc_mutex_lock(&p->lock);
	r = mce_mapping_check_locked(m, mp);
	mce_mapping_unref_locked(mp);
	mc_mutex_unlock(&p->lock);
	/* All may be repeated. */
	if (r == -EAGAIN)
		return 0;
	for (unsigned i = 0; i < k; i++)
		mce_complete(&reqs[i], MCE_PATH_MAPPED, r < 0 ? r : flat[i].status);
	return k;
}

static int mapped_map(struct mce_peer *p, uint64_t addr, uint64_t rkey, uint64_t len, const void **ret)
{
	const struct mce_req req = { .op = MCE_READ, .addr = addr, .rkey = rkey };
	struct mce_mapping *mp;
	int r;

	MC_LOCKED(&p->lock);
	r = mapped_lookup_locked(mce_mapped_of(p), &req, len, &mp);
	if (r < 0)
		return r;
	mp->given = true;
	*ret = mp->at + (addr - mp->base);
	return 0;
}

/* ---- attaching and detaching ------------------------------------------------------------------- */

static int mapped_attach(struct mce_peer *p)
{
	struct mce_mapped *m;

	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->p = p;
	m->io = &p->e->io[0];
	m->evfd.fd = m->reply_fd = -1;
	m->evfd.ready = mapped_ready;
	(void)mc_cond_init(&m->news);
	p->tp[MCE_PATH_MAPPED] = m;
	return 0;
}

static void mapped_detach(struct mce_peer *p)
{
	struct mce_mapped *m = mce_mapped_of(p);
	bool talked;

	if (!m)
		return;
	mc_mutex_lock(&p->lock);
	talked = m->state != MCE_MAPPED_NONE;
	mc_mutex_unlock(&p->lock);
	if (talked)
		mce_io_call(m->io, mapped_down_run, m);
	reply_forget_locked(m);
	while (m->kept) {
		struct mce_mapping *mp = m->kept;

		m->kept = mp->next;
		mapping_free(mp);
	}
	mc_cond_destroy(&m->news);
	free(m);
	p->tp[MCE_PATH_MAPPED] = NULL;
}

/* The present connection carries no WRITE of the new session, and a refused one may be tried again. */
static void mapped_new_fence(struct mce_peer *p)
{
	MC_LOCKED(&p->lock);
	memset(mce_mapped_of(p)->tried, 0, sizeof(mce_mapped_of(p)->tried));
}

const struct mce_transport mce_mapped_transport = {
	.name = "mapped",
	.path = MCE_PATH_MAPPED,
	.distance = MCE_DISTANCE_MAPPED,
	.gpu = true,
	.attach = mapped_attach,
	.detach = mapped_detach,
	.connect = mapped_connect,
	.prepare = mapped_prepare,
	.submit = mapped_submit,
	.submit_run = mapped_run,
	.flush = mce_no_flush,
	.poll = mce_no_poll,
	.lead = mce_no_lead,
	.cancel = mce_no_cancel,
	.writes_in_doubt = mce_no_doubt,
	.note_doubts = mce_no_doubts,
	.keep_doubts = mce_no_doubts,
	.new_fence = mapped_new_fence,
	.map = mapped_map,
};
