/* SPDX-License-Identifier: Apache-2.0
 * mapserver.c - hands the descriptors of registered memory to engines of the same host.
 *
 * Stateless but for the greeting: mappers are told of every region's end, whether they fetched it or
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

#include "common/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "engine/engine_i.h"
#include "engine/shm/map_wire.h"

#define HELLO_MS 10000
/* Messages served of one mapper before the next one's turn. */
#define BUDGET 64
/* The life page's file, the guard included. */
#define FILE_BYTES (MCE_LIFE_BYTES + MCE_GUARD_BYTES)

struct mce_mapserver {
	/* constant after open */
	struct mce_engine *e;
	struct mce_io *io;
	struct mc_evfd listener;
	int life_fd;
	uint64_t *life;		/* atomic elements */
	/* owned by the loop */
	uint64_t guard_off;	/* in the life page's file; 0: none */
	struct mc_list mappers;
	struct mc_list orphans;	/* mappers that we have closed to, and that may be copying nevertheless */
	unsigned nmappers;	/* on both lists */
	struct mce_watcher watcher;
	bool paused;		/* no descriptors left: accept again at the next tick */
	/* guarded by lock */
	pthread_mutex_t lock;
	unsigned next_slot, used;
};

struct mapper {
	struct mce_mapserver *s;
	struct mc_list node;
	struct mc_evfd evfd;
	bool greeted, stranger;
	uint64_t since_ms;
	const uint64_t *busy;	/* its busy page, written by it; NULL: it has given none */
	int pidfd;		/* of an orphan: its process, -1: not to be had */
};

void mce_mapserver_address(const struct mce_id *id, char ret[MC_ADDR_MAX])
{
	int n = snprintf(ret, MC_ADDR_MAX, "mooncake-engine-");

	for (unsigned i = 0; i < sizeof(id->nonce); i++)
		n += snprintf(ret + n, MC_ADDR_MAX - (size_t)n, "%02x", id->nonce[i]);
}

/* ---- life page --------------------------------------------------------------------------------- */

int mce_mapserver_enter(struct mce_mapserver *s, uint64_t rkey, unsigned *ret_slot)
{
	unsigned slot;
	int r = -ENOSPC;

	pthread_mutex_lock(&s->lock);
	if (s->used < MCE_LIFE_SLOTS) {
		while (s->life[s->next_slot % MCE_LIFE_SLOTS])
			s->next_slot++;
		slot = s->next_slot++ % MCE_LIFE_SLOTS;
		__atomic_store_n(&s->life[slot], rkey, __ATOMIC_SEQ_CST);
		s->used++;
		*ret_slot = slot;
		r = 0;
	}
	pthread_mutex_unlock(&s->lock);
	return r;
}

static int life_open(struct mce_mapserver *s)
{
	char path[64];
	int fd, r;

	fd = memfd_create("mooncake-life", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return mc_fail(-errno, "memfd: %m");
	if (ftruncate(fd, FILE_BYTES)) {
		r = mc_fail(-errno, "life page: %m");
		goto out;
	}
	s->life = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s->life == MAP_FAILED) {
		s->life = NULL;
		r = mc_fail(-errno, "life page: %m");
		goto out;
	}
	/* Mappers must not be able to cut it short (SIGBUS) nor to bring regions back to life. */
	(void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	s->life_fd = open(path, O_RDONLY | O_CLOEXEC);
	r = s->life_fd < 0 ? mc_fail(-errno, "life page: %m") : 0;
out:
	close(fd);
	return r;
}

/* Loop: take the guard, which is a robust mutex, until the thread's end. */
static void guard_take(struct mce_mapserver *s)
{
#ifdef __GLIBC__
	pthread_mutex_t *guard = (pthread_mutex_t *)(void *)((char *)s->life + MCE_LIFE_BYTES);
	const int *word = &guard->__data.__lock;
	pthread_mutexattr_t attr;
	int r;

	if (mc_fault("engine.mapserver.guard") < 0 || pthread_mutexattr_init(&attr))
		return;
	/* A thread that is being killed may be refused what is swapped out. */
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
		s->guard_off = (uint64_t)((const char *)word - (const char *)s->life);
	pthread_mutexattr_destroy(&attr);
#endif
}

/* ---- mappers ----------------------------------------------------------------------------------- */

static void mapper_free(struct mapper *m)
{
	mc_list_remove(&m->node);
	m->s->nmappers--;
	if (m->busy)
		munmap((void *)(uintptr_t)m->busy, MCE_BUSY_BYTES);
	if (m->pidfd >= 0)
		close(m->pidfd);
	if (m->evfd.fd >= 0) {
		/* A child that it has forked may have the other end, and one of ours this one. */
		shutdown(m->evfd.fd, SHUT_RDWR);
		close(m->evfd.fd);
	}
	free(m);
}

static bool is_copying(const struct mapper *m)
{
	for (unsigned i = 0; m->busy && i < MCE_BUSY_SLOTS; i++)
		if (__atomic_load_n(&m->busy[i], __ATOMIC_SEQ_CST))
			return true;
	return false;
}

static bool process_has_ended(const struct mapper *m)
{
	struct pollfd pfd = { .fd = m->pidfd, .events = POLLIN };

	return poll(&pfd, 1, 0) > 0;
}

/* Has it ended its direction, too?  Then it has heard of our end, and begins no copy any more. */
static bool has_let_go(struct mapper *m)
{
	struct pollfd pfd = { .fd = m->evfd.fd };

	if (poll(&pfd, 1, 0) > 0) {
		close(m->evfd.fd);
		m->evfd.fd = -1;
	}
	return m->evfd.fd < 0;
}

/* However long it is stopped: what it does when it goes on must not be missed. */
static bool orphan_is_over(struct mapper *m)
{
	return (has_let_go(m) && !is_copying(m)) || process_has_ended(m);
}

static void drop_orphans(struct mce_mapserver *s)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &s->orphans) {
		struct mapper *m = mc_container_of(pos, struct mapper, node);

		if (orphan_is_over(m))
			mapper_free(m);
	}
}

/* The connection's end does not end its copies, and before the mapper hears of it, it may begin others. */
static void mapper_close(struct mapper *m)
{
	struct ucred cred = { .pid = 0 };
	socklen_t len = sizeof(cred);
	bool ended = false;

	mc_evloop_del(m->s->io->loop, &m->evfd);
	mc_list_remove(&m->node);
	mc_list_push_back(&m->s->orphans, &m->node);
	if (m->busy) {
		/* The other direction tells when it ends. */
		shutdown(m->evfd.fd, SHUT_WR);
		(void)getsockopt(m->evfd.fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
		if (cred.pid > 0)
			m->pidfd = (int)syscall(SYS_pidfd_open, cred.pid, 0);
		/* Nobody has this number any more. */
		ended = cred.pid > 0 && m->pidfd < 0 && errno == ESRCH;
	}
	if (!m->busy || ended || orphan_is_over(m))
		mapper_free(m);
}

/* A page that its owner could cut short would kill us. */
static void take_busy(struct mapper *m, int fd)
{
	struct stat st;
	void *at;

	if (fd < 0 || !mce_map_is_sealed(fd) || fstat(fd, &st) ||
	    (uint64_t)st.st_size < MCE_BUSY_BYTES)
		return;
	at = mmap(NULL, MCE_BUSY_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED)
		m->busy = at;
}

static int serve_hello(struct mapper *m, const struct mce_map_msg *in, int fd)
{
	struct mce_map_msg out = { .version = MCE_MAP_VERSION, .type = MCE_MAP_WELCOME };

	if (!mce_tcp_server_knows(m->s->e->server, in->rkey))
		return -EACCES;
	m->greeted = true;
	take_busy(m, fd);
	/* Whose copies would not be seen is not told where to begin. */
	out.base = m->busy ? (uintptr_t)m->s->e->id.nonce : 0;
	out.fd_offset = m->s->guard_off;
	memcpy(out.nonce, m->s->e->id.nonce, sizeof(out.nonce));
	return mce_map_send(m->evfd.fd, &out, m->s->life_fd);
}

/* The region's descriptor as this mapper may have it, -1: not at all; @ret_own is to be closed. */
static int fd_for(const struct mapper *m, const struct mce_mr *mr, int *ret_own)
{
	char path[64];
	struct stat st;

	if (mr->fd < 0 || !m->stranger || mce_map_is_sealed(mr->fd))
		return mr->fd;
	/* Who may write to the file may cut it short, also by opening what he got once more. */
	if (fstat(mr->fd, &st) || st.st_mode & (S_IWGRP | S_IWOTH) || st.st_uid != geteuid())
		return -1;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", mr->fd);
	*ret_own = open(path, O_RDONLY | O_CLOEXEC);
	return *ret_own;
}

static int serve_fetch(struct mapper *m, const struct mce_map_msg *in)
{
	struct mce_map_msg out = {
		.version = MCE_MAP_VERSION, .type = MCE_MAP_REGION, .rkey = in->rkey,
	};
	struct mce_mr *mr;
	int fd = -1, own = -1, r;

	r = mce_mr_find(m->s->e, in->rkey, &mr);
	if (r == 0) {
		fd = fd_for(m, mr, &own);
		r = mr->access == 0 ? -EACCES : fd < 0 ? -MC_ENOTSUP : 0;
		if (r == 0 || (r == -MC_ENOTSUP && mr->listed && m->busy)) {
			out.base = mr->base;
			out.len = mr->len;
			out.fd_offset = mr->fd_offset;
			out.access = mr->access;
			out.slot = mr->slot;
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

static int serve(struct mapper *m)
{
	struct mce_map_msg in;
	int fd = -1, r;

	/* Closing one of a file system of his could wait for him for ever, and he may not copy anyhow. */
	r = mce_map_recv(m->evfd.fd, &in, m->stranger ? NULL : &fd);
	if (r < 0)
		return r;
	r = -MC_EPROTO;
	if (in.type == MCE_MAP_HELLO && !m->greeted)
		r = serve_hello(m, &in, fd);
	else if (in.type == MCE_MAP_FETCH && m->greeted)
		r = serve_fetch(m, &in);
	if (fd >= 0)
		close(fd);
	return r;
}

static void mapper_ready(struct mc_evfd *e, uint32_t events)
{
	struct mapper *m = mc_container_of(e, struct mapper, evfd);
	int r = 0;

	for (unsigned i = 0; i < BUDGET && r == 0; i++)
		r = serve(m);
	/* A mapper that does not read what it asked for fills its socket: that is its end too. */
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

static void accept_ready(struct mc_evfd *e, uint32_t events)
{
	struct mce_mapserver *s = mc_container_of(e, struct mce_mapserver, listener);
	int fd;

	for (unsigned i = 0; i < BUDGET; i++) {
		fd = accept4(e->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
			mc_warn("engine", "cannot accept a mapper, trying again soon: %m");
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

		if (!m->greeted && now_ms - m->since_ms > HELLO_MS)
			mapper_close(m);
	}
	drop_orphans(s);
}

/* ---- revocation -------------------------------------------------------------------------------- */

struct forget {
	struct mce_mapserver *s;
	uint64_t rkey;
	bool busy;		/* out: somebody is copying */
};

static bool is_busy(const struct mc_list *mappers, uint64_t rkey)
{
	struct mc_list *pos;

	mc_list_for_each(pos, mappers) {
		struct mapper *m = mc_container_of(pos, struct mapper, node);

		for (unsigned i = 0; m->busy && i < MCE_BUSY_SLOTS; i++)
			if (__atomic_load_n(&m->busy[i], __ATOMIC_SEQ_CST) == rkey)
				return true;
	}
	return false;
}

static void busy_run(void *arg)
{
	struct forget *f = arg;

	drop_orphans(f->s);
	f->busy = is_busy(&f->s->mappers, f->rkey) || is_busy(&f->s->orphans, f->rkey);
}

/* A mapper that dies lets go by the end of its process.  One that is stopped may keep us waiting, but not
 * for ever. */
static void wait_copies(struct forget *f)
{
	uint64_t deadline = mc_deadline_ms(MCE_BUSY_WAIT_MS);
	struct timespec pause = { .tv_nsec = 20000 };

	for (;;) {
		mce_io_call(f->s->io, busy_run, f);
		if (!f->busy)
			return;
		if (mc_now_ns() >= deadline) {
			mc_warn("engine", "a same-host peer does not end its copy, giving up on it");
			return;
		}
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < 1000000)
			pause.tv_nsec *= 2;
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

void mce_mapserver_revoke(struct mce_mapserver *s, unsigned slot, uint64_t rkey)
{
	struct forget f = { .s = s, .rkey = rkey };

	pthread_mutex_lock(&s->lock);
	/* Before the busy pages are read: a mapper writes its own and then reads this. */
	__atomic_store_n(&s->life[slot], 0, __ATOMIC_SEQ_CST);
	s->used--;
	pthread_mutex_unlock(&s->lock);
	mce_io_call(s->io, forget_run, &f);
	wait_copies(&f);
}

/* ---- life -------------------------------------------------------------------------------------- */

static int listen_abstract(const struct mce_id *id)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	char name[MC_ADDR_MAX];
	socklen_t len;
	int fd, r;

	mce_mapserver_address(id, name);
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

int mce_mapserver_open(struct mce_engine *e, struct mce_mapserver **ret)
{
	struct mce_mapserver *s;
	int r;

	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->e = e;
	s->io = &e->io[0];
	s->life_fd = -1;
	mc_list_init(&s->mappers);
	mc_list_init(&s->orphans);
	pthread_mutex_init(&s->lock, NULL);
	s->watcher.tick = server_tick;
	s->listener.ready = accept_ready;
	s->listener.fd = listen_abstract(&e->id);
	r = s->listener.fd < 0 ? s->listener.fd : life_open(s);
	if (r == 0)
		r = mc_evloop_post(s->io->loop, server_begin, s);
	*ret = s;	/* also when it failed: the engine's close takes it down */
	return r;
}

int mce_mapserver_start(struct mce_mapserver *s)
{
	return mc_evloop_add(s->io->loop, &s->listener, EPOLLIN);
}

void mce_mapserver_close(struct mce_mapserver *s)
{
	struct mc_list *pos, *next;

	if (!s)
		return;
	mc_list_for_each_safe(pos, next, &s->mappers)
		mapper_free(mc_container_of(pos, struct mapper, node));
	mc_list_for_each_safe(pos, next, &s->orphans)
		mapper_free(mc_container_of(pos, struct mapper, node));
	if (s->listener.fd >= 0)
		close(s->listener.fd);
	if (s->life_fd >= 0)
		close(s->life_fd);
	if (s->life)
		munmap(s->life, FILE_BYTES);
	pthread_mutex_destroy(&s->lock);
	free(s);
}
