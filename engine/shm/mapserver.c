/* SPDX-License-Identifier: Apache-2.0
 * mapserver.c - the service that passes descriptors of registered memory to engines on the same host.
 *
 * Stateless except for the greeting: every mapper is notified of every region's end, whether it fetched the region or
 * not.  Runs on the first I/O thread. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/principal.h"
#include "common/sys/clock.h"
#include "common/sys/lock.h"
#include "engine/engine_i.h"
#include "engine/shm/map_wire.h"

/* Time from the connection to the HELLO. */
#define HELLO_MS 10000
/* Messages of one mapper before the other descriptors have their turn. */
#define BUDGET 64
/* The epoch page's file, the guard included. */
#define FILE_BYTES (MCE_EPOCH_BYTES + MCE_GUARD_BYTES)

struct mce_mapserver {
	/* constant after open */
	struct mce_engine *e;
	struct mce_io *io;
	struct mc_evfd listener;
	int epoch_fd;
	uint64_t *epochs;		/* atomic elements */
	/* owned by the loop */
	uint64_t guard_off;	/* in the epoch page's file; 0: none */
	struct mc_list mappers;
	struct mc_list orphans;	/* mappers whose connection we closed, and that may still be copying */
	unsigned nmappers;	/* on both lists */
	struct mce_watcher watcher;
	bool paused;		/* no descriptors left: accept again at the next tick */
	/* guarded by lock */
	struct mc_mutex lock;
	unsigned next_slot, used;
};

struct mapper {
	struct mce_mapserver *s;
	struct mc_list node;
	struct mc_evfd evfd;
	bool greeted, stranger;
	struct mc_principal who;	/* identity that it has proved over TCP; constant after the greeting */
	uint64_t since_ms;
	const uint64_t *hazards;	/* its hazard page, which it writes; NULL: it has sent none */
	uint8_t nonce[16];	/* nonce of its engine */
	uint64_t fence;		/* its fence number, 0: none */
	bool read_only;		/* that number was fenced when it greeted, or its role may not write */
	int pidfd;		/* process of an orphan, -1: unknown */
};

/* The service's part of a region. */
struct map_region {
	unsigned slot;		/* on the epoch page */
	int fd;			/* own descriptor for mappers, -1: not to be mapped */
};

static struct mce_mapserver *map_server(struct mce_engine *e)
{
	return e->service[MCE_PATH_MAPPED];
}

/* ---- epoch page -------------------------------------------------------------------------------- */

/* Take a slot on the epoch page for a region; -ENOSPC when all are taken. */
static int epoch_slot_take(struct mce_mapserver *s, uint64_t rkey, unsigned *ret_slot)
{
	unsigned slot;
	int r = -ENOSPC;

	mc_mutex_lock(&s->lock);
	if (s->used < MCE_EPOCH_SLOTS) {
		while (s->epochs[s->next_slot % MCE_EPOCH_SLOTS])
			s->next_slot++;
		slot = s->next_slot++ % MCE_EPOCH_SLOTS;
		__atomic_store_n(&s->epochs[slot], rkey, __ATOMIC_SEQ_CST);
		s->used++;
		*ret_slot = slot;
		r = 0;
	}
	mc_mutex_unlock(&s->lock);
	return r;
}

static int epoch_page_open(struct mce_mapserver *s)
{
	char path[64];
	int fd, r;

	fd = memfd_create("mooncake-epochs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return mc_fail(-errno, "memfd: %m");
	if (ftruncate(fd, FILE_BYTES)) {
		r = mc_fail(-errno, "epoch page: %m");
		goto out;
	}
	s->epochs = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s->epochs == MAP_FAILED) {
		s->epochs = NULL;
		r = mc_fail(-errno, "epoch page: %m");
		goto out;
	}
	/* Mappers must not be able to truncate it (SIGBUS) or to revive regions. */
	(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	s->epoch_fd = open(path, O_RDONLY | O_CLOEXEC);
	r = s->epoch_fd < 0 ? mc_fail(-errno, "epoch page: %m") : 0;
out:
	close(fd);
	return r;
}

/* Loop: lock the guard, which is a robust mutex, until the thread ends. */
static void guard_take(struct mce_mapserver *s)
{
#ifdef __GLIBC__
	pthread_mutex_t *guard = (pthread_mutex_t *)(void *)((char *)s->epochs + MCE_EPOCH_BYTES);
	const int *word = &guard->__data.__lock;
	pthread_mutexattr_t attr;
	int r;

	if (mc_fault("engine.mapserver.guard") < 0 || pthread_mutexattr_init(&attr))
		return;
	/* The kernel may fail to access a swapped-out page for a thread that is being killed. */
	r = mlock(guard, sizeof(*guard)) ? errno : 0;
	if (r == 0)
		r = pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	if (r == 0)
		r = pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	if (r == 0)
		r = pthread_mutex_init(guard, &attr);
	if (r == 0)
		r = pthread_mutex_lock(guard);
	if (r == 0 && (*word & FUTEX_TID_MASK) == syscall(SYS_gettid))
		s->guard_off = (uint64_t)((const char *)word - (const char *)s->epochs);
	pthread_mutexattr_destroy(&attr);
#endif
}

/* ---- mappers ----------------------------------------------------------------------------------- */

static void mapper_free(struct mapper *m)
{
	mc_list_remove(&m->node);
	m->s->nmappers--;
	if (m->hazards)
		munmap((void *)(uintptr_t)m->hazards, MCE_HAZARD_BYTES);
	if (m->pidfd >= 0)
		close(m->pidfd);
	if (m->evfd.fd >= 0) {
		/* A forked child of the mapper may have the other end, and a child of ours this end. */
		shutdown(m->evfd.fd, SHUT_RDWR);
		close(m->evfd.fd);
	}
	free(m);
}

static bool mapper_is_copying(const struct mapper *m)
{
	for (unsigned i = 0; m->hazards && i < MCE_HAZARD_SLOTS; i++)
		if (__atomic_load_n(&m->hazards[i], __ATOMIC_SEQ_CST))
			return true;
	return false;
}

static bool mapper_process_ended(const struct mapper *m)
{
	struct pollfd pfd = { .fd = m->pidfd, .events = POLLIN };

	return poll(&pfd, 1, 0) > 0;
}

/* Has the mapper closed its direction, too?  Then it knows of our end, and begins no copy any more. */
static bool mapper_has_closed(struct mapper *m)
{
	struct pollfd pfd = { .fd = m->evfd.fd };

	if (poll(&pfd, 1, 0) > 0) {
		close(m->evfd.fd);
		m->evfd.fd = -1;
	}
	return m->evfd.fd < 0;
}

/* A stopped mapper stays an orphan, however long: it may copy when it continues. */
static bool orphan_is_done(struct mapper *m)
{
	return (mapper_has_closed(m) && !mapper_is_copying(m)) || mapper_process_ended(m);
}

static void orphans_drop(struct mce_mapserver *s)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &s->orphans) {
		struct mapper *m = mc_container_of(pos, struct mapper, node);

		if (orphan_is_done(m))
			mapper_free(m);
	}
}

/* Closing the connection does not end the mapper's copies, and it may begin others before it notices. */
static void mapper_close(struct mapper *m)
{
	struct ucred cred = { .pid = 0 };
	socklen_t len = sizeof(cred);
	bool ended = false;

	mc_evloop_del(m->s->io->loop, &m->evfd);
	mc_list_remove(&m->node);
	mc_list_push_back(&m->s->orphans, &m->node);
	if (m->hazards) {
		/* The end of the other direction shows that the mapper has noticed. */
		shutdown(m->evfd.fd, SHUT_WR);
		(void)getsockopt(m->evfd.fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
		if (cred.pid > 0)
			m->pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
		/* No process has this id any more. */
		ended = cred.pid > 0 && m->pidfd < 0 && errno == ESRCH;
	}
	if (!m->hazards || ended || orphan_is_done(m))
		mapper_free(m);
}

/* A page that the mapper could truncate would kill us. */
static void mapper_take_hazards(struct mapper *m, int fd)
{
	struct stat st;
	void *at;

	if (fd < 0 || !mce_map_is_sealed(fd) || fstat(fd, &st) || (uint64_t)st.st_size < MCE_HAZARD_BYTES)
		return;
	at = mmap(NULL, MCE_HAZARD_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED)
		m->hazards = at;
}

/* In a pool with security peers prove identities over TCP. */
static bool mapper_is_identified(const struct mapper *m)
{
	return m->who.source == MC_PRINCIPAL_CREDENTIAL;
}

/* As for the peer's TCP connections.  The tenant was compared when the peer showed its ticket there. */
static bool mapper_admitted(const struct mapper *m)
{
	const struct mce_conf *conf = &m->s->e->conf;

	return !mapper_is_identified(m) || !conf->peer_admitted || conf->peer_admitted(conf->peer_arg, &m->who);
}

static int mapper_serve_hello(struct mapper *m, const struct mce_map_msg *in, int fd)
{
	struct mce_map_msg out = { .version = MCE_MAP_VERSION, .type = MCE_MAP_WELCOME };

	if (!mce_services_know(m->s->e, in->rkey, m->nonce, &m->who) || !mapper_admitted(m))
		return -EACCES;
	m->greeted = true;
	m->fence = in->base;
	m->read_only = mce_writer_is_fenced(m->s->e, m->nonce, m->fence) || !(m->who.roles & MC_MAY_WRITE);
	mapper_take_hazards(m, fd);
	/* Withhold the address from a mapper without a hazard page, whose copies we could not see, and from one
	 * that may only read. */
	out.base = m->hazards && !m->read_only ? (uintptr_t)m->s->e->id.nonce : 0;
	out.fd_offset = m->s->guard_off;
	memcpy(out.nonce, m->s->e->id.nonce, sizeof(out.nonce));
	return mce_map_send(m->evfd.fd, &out, m->s->epoch_fd);
}

/* The region's descriptor that this mapper may have, -1: none; the caller closes *@ret_own. */
static int mapper_fd_for(const struct mapper *m, const struct map_region *region, int *ret_own)
{
	/* It may not write, or we could not see that it has ended its copies when it is fenced.  With security another
	 * user writes over TCP, where each range needs a capability. */
	bool blind = m->read_only || (m->fence && !m->hazards) || (m->stranger && mapper_is_identified(m));
	int fd = region ? region->fd : -1;
	char path[64];
	struct stat st;

	if (fd < 0 || (!blind && (!m->stranger || mce_map_is_sealed(fd))))
		return fd;
	/* A stranger with write permission could truncate the file, also by opening the received descriptor again.  A
	 * device or a file with a name is locked by our descriptor while a mapper has it (common/dax.h), but not by one
	 * that is opened again: after our end another owner would write there, below the mapper's mapping. */
	if (fstat(fd, &st) || st.st_mode & (S_IWGRP | S_IWOTH) || st.st_uid != geteuid() || !S_ISREG(st.st_mode) ||
	    st.st_nlink)
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	*ret_own = open(path, O_RDONLY | O_CLOEXEC);
	return *ret_own;
}

static int mapper_serve_fetch(struct mapper *m, const struct mce_map_msg *in)
{
	struct mce_map_msg out = {
		.version = MCE_MAP_VERSION, .type = MCE_MAP_REGION, .rkey = in->rkey,
	};
	const struct map_region *region;
	struct mce_mr *mr;
	int fd = -1, own = -1, r;

	r = mce_mr_find(m->s->e, in->rkey, &mr);
	if (r == 0) {
		region = mr->service[MCE_PATH_MAPPED];
		fd = mapper_fd_for(m, region, &own);
		r = mr->access == 0 ? -EACCES : fd < 0 ? -MC_ENOTSUP : 0;
		if (r == 0 || (r == -MC_ENOTSUP && region && m->hazards)) {
			out.base = mr->base;
			out.len = mr->len;
			out.fd_offset = mr->fd_offset;
			out.access = mr->access;
			out.slot = region->slot;
		}
	} else {
		mr = NULL;
	}
	out.status = r < 0 ? mc_err_to_wire(r) : 0;
	r = mce_map_send(m->evfd.fd, &out, r == 0 ? fd : -1);
	if (mr)
		mce_mr_unref(mr);
	if (own >= 0)
		close(own);
	return r;
}

static int mapper_serve(struct mapper *m)
{
	struct mce_map_msg in;
	int fd = -1, r;

	/* Take no descriptor from a stranger, which may not copy anyway: closing a file of a file system that the
	 * stranger serves could block for ever. */
	r = mce_map_recv(m->evfd.fd, &in, m->stranger ? NULL : &fd);
	if (r < 0)
		return r;
	r = -MC_EPROTO;
	if (in.type == MCE_MAP_HELLO && !m->greeted)
		r = mapper_serve_hello(m, &in, fd);
	else if (in.type == MCE_MAP_FETCH && m->greeted)
		r = mapper_serve_fetch(m, &in);
	if (fd >= 0)
		close(fd);
	return r;
}

static void mapper_ready(struct mc_evfd *e, uint32_t events)
{
	struct mapper *m = mc_container_of(e, struct mapper, evfd);
	int r = 0;

	for (unsigned i = 0; i < BUDGET && r == 0; i++)
		r = mapper_serve(m);
	/* A mapper that does not read its answers fills its socket: close its connection, too. */
	if (r < 0 && (r != -EAGAIN || (events & (EPOLLHUP | EPOLLERR))))
		mapper_close(m);
}

static int mapper_new(struct mce_mapserver *s, int fd)
{
	struct mapper *m;
	bool stranger;
	int r;

	if (s->nmappers >= s->e->conf.max_peers_in)
		return -ENOBUFS;
	r = mce_map_check_cred(fd, &stranger);
	if (r < 0)
		return r;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->s = s;
	m->pidfd = -1;
	m->stranger = stranger;
	m->evfd.fd = fd;
	m->evfd.ready = mapper_ready;
	m->since_ms = mc_now_ms();
	r = mc_evloop_add(s->io->loop, &m->evfd, EPOLLIN);
	if (r < 0) {
		free(m);
		return r;
	}
	mc_list_push_back(&s->mappers, &m->node);
	s->nmappers++;
	return 0;
}

static void server_accept_ready(struct mc_evfd *e, uint32_t events)
{
	struct mce_mapserver *s = mc_container_of(e, struct mce_mapserver, listener);
	int fd;

	for (unsigned i = 0; i < BUDGET; i++) {
		fd = accept4(e->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
			mc_warn("engine", "cannot accept a same-host peer, trying again soon: %m");
			s->paused = mc_evloop_mod(s->io->loop, e, 0) == 0;
		}
		if (fd < 0)
			return;
		if (mapper_new(s, fd) < 0)
			close(fd);
	}
}

static void server_tick(struct mce_watcher *w, uint64_t now_ms)
{
	struct mce_mapserver *s = mc_container_of(w, struct mce_mapserver, watcher);
	struct mc_list *pos, *next;

	if (s->paused)
		s->paused = mc_evloop_mod(s->io->loop, &s->listener, EPOLLIN) != 0;
	mc_list_for_each_safe(pos, next, &s->mappers) {
		struct mapper *m = mc_container_of(pos, struct mapper, node);

		if (m->greeted ? !mapper_admitted(m) : now_ms - m->since_ms > HELLO_MS)
			mapper_close(m);
	}
	orphans_drop(s);
}

/* ---- revocation -------------------------------------------------------------------------------- */

struct map_fence {
	struct mce_mapserver *s;
	const uint8_t *nonce;
	uint64_t upto;
	bool writing;		/* out: a mapper may still write */
};

static void fence_run(void *arg)
{
	struct map_fence *f = arg;
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &f->s->mappers) {
		struct mapper *m = mc_container_of(pos, struct mapper, node);

		if (m->greeted && !m->read_only && mce_fence_matches(f->nonce, f->upto, m->nonce, m->fence))
			mapper_close(m);
	}
	orphans_drop(f->s);
	mc_list_for_each(pos, &f->s->orphans) {
		struct mapper *m = mc_container_of(pos, struct mapper, node);

		f->writing |= !m->read_only && mce_fence_matches(f->nonce, f->upto, m->nonce, m->fence);
	}
}

static int map_fence(struct mce_engine *e, const uint8_t nonce[16], uint64_t upto)
{
	struct map_fence f = { .s = map_server(e), .nonce = nonce, .upto = upto };

	mce_io_call(f.s->io, fence_run, &f);
	return f.writing ? -EAGAIN : 0;
}

struct forget {
	struct mce_mapserver *s;
	uint64_t rkey;
	bool copying;		/* out: a mapper is copying */
};

static bool is_hazard(const struct mc_list *mappers, uint64_t rkey)
{
	struct mc_list *pos;

	mc_list_for_each(pos, mappers) {
		struct mapper *m = mc_container_of(pos, struct mapper, node);

		for (unsigned i = 0; m->hazards && i < MCE_HAZARD_SLOTS; i++)
			if (__atomic_load_n(&m->hazards[i], __ATOMIC_SEQ_CST) == rkey)
				return true;
	}
	return false;
}

static void hazard_run(void *arg)
{
	struct forget *f = arg;

	orphans_drop(f->s);
	f->copying = is_hazard(&f->s->mappers, f->rkey) || is_hazard(&f->s->orphans, f->rkey);
}

/* A mapper that dies no longer counts when its process has ended.  A stopped one delays us, but no longer than
 * MCE_HAZARD_WAIT_MS. */
static void hazard_wait(struct forget *f)
{
	uint64_t deadline = mc_deadline_ms(MCE_HAZARD_WAIT_MS);
	uint64_t pause_ns = 20000;

	for (;;) {
		mce_io_call(f->s->io, hazard_run, f);
		if (!f->copying)
			return;
		if (mc_now_ns() >= deadline) {
			mc_warn("engine", "a same-host peer does not end its copy, no longer waiting for it");
			return;
		}
		mc_sleep_ns(pause_ns);
		if (pause_ns < MC_NS_PER_MS)
			pause_ns *= 2;
	}
}

static void forget_run(void *arg)
{
	struct forget *f = arg;
	struct mce_map_msg out = {
		.version = MCE_MAP_VERSION, .type = MCE_MAP_FORGET, .rkey = f->rkey,
	};
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &f->s->mappers) {
		struct mapper *m = mc_container_of(pos, struct mapper, node);

		if (m->greeted &&
		    (mc_fault("engine.mapserver.forget") < 0 || mce_map_send(m->evfd.fd, &out, -1) < 0))
			mapper_close(m);
	}
}

/* A descriptor that permits no more than @access: the mapper is trusted with the memory, but not to respect the
 * access that it was told. */
static int region_fd(int fd, unsigned access)
{
	char path[64];

	if (access & MCE_ACCESS_WRITE)
		return fcntl(fd, F_DUPFD_CLOEXEC, 3);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Without a slot on the epoch page peers use TCP; without a descriptor they copy from process to process.
 * Nothing else changes. */
static void map_region_add(struct mce_mr *mr, const struct mce_mr_attr *attr)
{
	struct map_region *region = mr->access && !mr->medium && mr->gpu < 0 ? malloc(sizeof(*region)) : NULL;

	if (!region || epoch_slot_take(map_server(mr->e), mr->rkey, &region->slot) < 0) {
		free(region);
		return;
	}
	region->fd = attr->fd < 0 ? -1 : region_fd(attr->fd, attr->access);
	mr->service[MCE_PATH_MAPPED] = region;
}

/* Show every mapper that the region has ended, and tell it to unmap the region; wait for those that copy from or to
 * it. */
static void map_revoke_wait(struct mce_mr *mr)
{
	struct map_region *region = mr->service[MCE_PATH_MAPPED];
	struct mce_mapserver *s = map_server(mr->e);
	struct forget f = { .s = s, .rkey = mr->rkey };

	if (!region)
		return;
	mc_mutex_lock(&s->lock);
	/* Before the hazard pages are read: a mapper writes its own and then reads this. */
	__atomic_store_n(&s->epochs[region->slot], 0, __ATOMIC_SEQ_CST);
	s->used--;
	mc_mutex_unlock(&s->lock);
	mce_io_call(s->io, forget_run, &f);
	hazard_wait(&f);
	if (region->fd >= 0)
		close(region->fd);
	free(region);
}

/* ---- opening and closing ----------------------------------------------------------------------- */

static int listen_abstract(const struct mce_id *id)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char name[MC_ADDR_MAX];
	socklen_t len;
	int fd, r;

	mce_map_address(id->nonce, name);
	memcpy(sa.sun_path + 1, name, strlen(name));
	len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return mc_fail(-errno, "unix socket: %m");
	if (bind(fd, (struct sockaddr *)&sa, len) || listen(fd, 128)) {
		r = mc_fail(-errno, "unix socket: %m");
		close(fd);
		return r;
	}
	return fd;
}

static void server_begin(void *arg)
{
	struct mce_mapserver *s = arg;

	mce_io_watch(s->io, &s->watcher);
	guard_take(s);
}

static int map_open(struct mce_engine *e)
{
	struct mce_mapserver *s;
	int r;

	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	e->service[MCE_PATH_MAPPED] = s;
	s->e = e;
	s->io = &e->io[0];
	s->epoch_fd = -1;
	mc_list_init(&s->mappers);
	mc_list_init(&s->orphans);
	mc_mutex_init(&s->lock);
	s->watcher.tick = server_tick;
	s->listener.ready = server_accept_ready;
	s->listener.fd = listen_abstract(&e->id);
	r = s->listener.fd < 0 ? s->listener.fd : epoch_page_open(s);
	if (r == 0)
		r = mc_evloop_post(s->io->loop, server_begin, s);
	return r;
}

static int map_start(struct mce_engine *e, const struct mce_conf *conf)
{
	return mc_evloop_add(map_server(e)->io->loop, &map_server(e)->listener, EPOLLIN);
}

static void map_close(struct mce_engine *e)
{
	struct mce_mapserver *s = map_server(e);
	struct mc_list *pos, *next;

	if (!s)
		return;
	mc_list_for_each_safe(pos, next, &s->mappers)
		mapper_free(mc_container_of(pos, struct mapper, node));
	mc_list_for_each_safe(pos, next, &s->orphans)
		mapper_free(mc_container_of(pos, struct mapper, node));
	if (s->listener.fd >= 0)
		close(s->listener.fd);
	if (s->epoch_fd >= 0)
		close(s->epoch_fd);
	if (s->epochs)
		munmap(s->epochs, FILE_BYTES);
	mc_mutex_destroy(&s->lock);
	free(s);
}

const struct mce_service mce_map_service = {
	.open = map_open,
	.start = map_start,
	.close = map_close,
	.region_add = map_region_add,
	.revoke_begin = mce_no_revoke,
	.revoke_wait = map_revoke_wait,
	.knows_peer = mce_no_peer,
	.features = mce_no_features,
	.take_connection = mce_no_connection,
	.fence = map_fence,
};
