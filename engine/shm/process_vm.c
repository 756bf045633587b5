/* SPDX-License-Identifier: Apache-2.0
 * process_vm.c - the path to memory of a peer on this host that cannot be mapped:
 * the kernel copies between the two processes, in the caller's thread.
 *
 * The kernel knows no regions, so everything is checked here, and the hazard page shows the owner our copies
 * (map_wire.h) so that it can wait for them.  The socket on which the owner accepted us identifies the process, and
 * the nonce in its memory proves that the memory is the owner's.  Both can change: process ids are reused, and a
 * process that executes another program keeps its id, its descriptors and its shared pages, but not its
 * memory.  So every call checks before and after that the memory is still the owner's (see copy_call()). */
#include <config.h>

#include "engine/shm/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"

/* Bytes and iovec entries of one system call: between calls, check whether the region has ended. */
#define CALL_BYTES (4ull << 20)
#define CALL_PARTS 64u
/* After this many consecutive copies that found memory inaccessible, the region's requests use another path. */
#define MISSES_MAX 8u

struct mce_vm {
	uint32_t refs;		/* atomic */
	pid_t pid;
	uint64_t addr;		/* where the nonce is */
	uint8_t nonce[16];
	void *page;		/* MCE_GUARD_BYTES of the owner, NULL: it has none */
	const uint32_t *guard;	/* in it */
	struct mce_hazards *hazards;
	bool refused;		/* atomic: the kernel denies us access (any more) */
};

/* ---- the process ------------------------------------------------------------------------------- */

void mce_vm_unref(struct mce_vm *vm)
{
	if (!vm || __atomic_sub_fetch(&vm->refs, 1, __ATOMIC_ACQ_REL))
		return;
	if (vm->page)
		munmap(vm->page, MCE_GUARD_BYTES);
	mce_hazards_unref(vm->hazards);
	free(vm);
}

static bool vm_has_nonce(const struct mce_vm *vm)
{
	uint8_t got[sizeof(vm->nonce)];
	struct iovec local = { got, sizeof(got) }, remote = { (void *)(uintptr_t)vm->addr, sizeof(got) };

	return process_vm_readv(vm->pid, &local, 1, &remote, 1, 0) == (ssize_t)sizeof(got) &&
	       !memcmp(got, vm->nonce, sizeof(got));
}

/* Is the process's memory still the owner's?  The guard shows it with one load.  Of an owner without a guard the
 * nonce is read, which takes a system call. */
static bool vm_owner_lives(const struct mce_vm *vm)
{
	uint32_t word;

	if (mc_fault("engine.process_vm.ended") < 0)
		return false;
	if (!vm->guard)
		return vm_has_nonce(vm);
	word = __atomic_load_n(vm->guard, __ATOMIC_SEQ_CST);
	return word & FUTEX_TID_MASK && !(word & FUTEX_OWNER_DIED);
}

static void vm_map_guard(struct mce_vm *vm, uint64_t off, int fd)
{
	struct stat st;
	void *at;

	if (off % MCE_GUARD_BYTES + sizeof(*vm->guard) > MCE_GUARD_BYTES || off % sizeof(*vm->guard) ||
	    off < MCE_EPOCH_BYTES || !mce_map_is_sealed(fd) || fstat(fd, &st) ||
	    mce_range_check(0, (uint64_t)st.st_size, off, sizeof(*vm->guard)))
		return;
	at = mmap(NULL, MCE_GUARD_BYTES, PROT_READ, MAP_SHARED, fd, (off_t)(off - off % MCE_GUARD_BYTES));
	if (at == MAP_FAILED)
		return;
	vm->page = at;
	vm->guard = (const uint32_t *)((const char *)at + off % MCE_GUARD_BYTES);
}

struct mce_vm *mce_vm_open(int sock, const struct mce_map_msg *welcome, int fd, struct mce_hazards *hazards)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	struct mce_vm *vm;

	/* A process of another pid namespace has no id here. */
	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) || cred.pid <= 0)
		return NULL;
	vm = calloc(1, sizeof(*vm));
	if (!vm)
		return NULL;
	vm->refs = 1;
	vm->pid = cred.pid;
	vm->addr = welcome->base;
	memcpy(vm->nonce, welcome->nonce, sizeof(vm->nonce));
	vm_map_guard(vm, welcome->fd_offset, fd);
	if (mc_fault("engine.process_vm.probe") == 0 && vm_has_nonce(vm) && vm_owner_lives(vm)) {
		vm->hazards = mce_hazards_ref(hazards);
		return vm;
	}
	mc_info("engine", "same host but the peer's memory is inaccessible, using tcp for regions that cannot be "
		"mapped: %m pid=%d", cred.pid);
	mce_vm_unref(vm);
	return NULL;
}

struct mce_hazards *mce_hazards_new(void)
{
	auto_close int fd = memfd_create("mooncake-hazards", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct mce_hazards *h;
	void *at;

	if (fd < 0 || ftruncate(fd, MCE_HAZARD_BYTES) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW))
		return NULL;
	at = mmap(NULL, MCE_HAZARD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return NULL;
	h = malloc(sizeof(*h));
	if (!h) {
		munmap(at, MCE_HAZARD_BYTES);
		return NULL;
	}
	*h = (struct mce_hazards){ .refs = 1, .slots = at, .fd = TAKE_FD(fd) };
	return h;
}

struct mce_hazards *mce_hazards_ref(struct mce_hazards *h)
{
	__atomic_add_fetch(&h->refs, 1, __ATOMIC_RELAXED);
	return h;
}

void mce_hazards_unref(struct mce_hazards *h)
{
	if (!h || __atomic_sub_fetch(&h->refs, 1, __ATOMIC_ACQ_REL))
		return;
	munmap(h->slots, MCE_HAZARD_BYTES);
	if (h->fd >= 0)
		close(h->fd);
	free(h);
}

/* ---- one transfer ------------------------------------------------------------------------------ */

struct copy {
	struct mce_mapped *m;
	struct mce_vm *vm;
	struct mce_req *req;
	struct mce_mapping *mp;		/* referenced */
	unsigned slot;			/* on the hazard page */
};

static int copy_check(const struct copy *c)
{
	MC_LOCKED(&c->m->p->lock);
	return mce_mapping_check_locked(c->m, c->mp);
}

/* Announce a copy in one of the first @n slots of the hazard page; -EBUSY when other threads' copies occupy all. */
static int hazard_take(struct mce_hazards *h, unsigned n, uint64_t rkey, unsigned *ret)
{
	return mc_fault("engine.process_vm.slot") < 0 ? -EBUSY : mce_slot_take(h->slots, n, rkey, ret);
}

/* The next iovec entries from (*idx, *off) on, at most CALL_BYTES. */
static unsigned copy_next_parts(const struct iovec *iov, unsigned iovcnt, unsigned *idx, uint64_t *off,
			   struct iovec part[CALL_PARTS], uint64_t *ret_bytes)
{
	uint64_t bytes = 0;
	unsigned n = 0;

	while (*idx < iovcnt && n < CALL_PARTS && bytes < CALL_BYTES) {
		uint64_t take = iov[*idx].iov_len - *off;

		if (take > CALL_BYTES - bytes)
			take = CALL_BYTES - bytes;
		if (take) {
			part[n].iov_base = (char *)iov[*idx].iov_base + *off;
			part[n++].iov_len = take;
		}
		bytes += take;
		*off += take;
		if (*off == iov[*idx].iov_len) {
			*off = 0;
			(*idx)++;
		}
	}
	*ret_bytes = bytes;
	return n;
}

static int copy_owner_ended(void)
{
	return mc_fail(-MC_ETRANSFER, "the peer's process has ended");
}

/* Can the kernel access the request's own memory?  A READ's memory is overwritten with zeros. */
static bool copy_reaches_own(enum mce_op op, const struct iovec *part, unsigned n, uint64_t bytes)
{
	static uint8_t other[CALL_BYTES / CALL_PARTS];
	struct iovec remote[CALL_PARTS];
	uint64_t left = bytes;
	unsigned parts = 0;
	ssize_t got;

	while (left) {
		remote[parts].iov_base = other;
		remote[parts].iov_len = left < sizeof(other) ? left : sizeof(other);
		left -= remote[parts++].iov_len;
	}
	if (op == MCE_WRITE)
		got = process_vm_writev(getpid(), part, n, remote, parts, 0);
	else
		got = process_vm_readv(getpid(), part, n, remote, parts, 0);
	return got == (ssize_t)bytes;
}

/* The kernel cannot access some pages that their owner can use nevertheless (secret memory, memory of a driver).  Over
 * TCP the owner accesses them itself, and reports when it cannot either. */
static int copy_out_of_reach(struct copy *c, const struct iovec *part, unsigned n, uint64_t bytes)
{
	if (!copy_reaches_own(c->req->op, part, n, bytes))
		return mc_fail(-MC_ETRANSFER, "copy between processes: the request's own memory is inaccessible");
	if (__atomic_add_fetch(&c->mp->missed, 1, __ATOMIC_RELAXED) == MISSES_MAX)
		mc_info("engine", "the kernel cannot access a same-host peer's memory, using tcp bytes=%llu",
			(unsigned long long)c->mp->len);
	return -MC_ENOTSUP;
}

static bool mapping_is_missed(const struct mce_mapping *mp)
{
	return __atomic_load_n(&mp->missed, __ATOMIC_RELAXED) >= MISSES_MAX;
}

/* The process may execute another program at any time, and one system call uses one address space.  So if the
 * owner's memory still exists after the call, the call has used it.  Bytes that were read from another program are
 * discarded. Bytes that were written to another program cannot be taken back, and no system call writes on the
 * condition that the address space is the right one.  The check before the call leaves a window of a few
 * instructions until the kernel takes a reference to the address space.  In that window the owner's threads would
 * have to end, and the other program to start and to map memory at the same addresses: possible only if this
 * thread is stopped just there.  The same holds for the check of the region, because its owner waits for us, but
 * not forever. */
static int copy_call(struct copy *c, const struct iovec *part, unsigned n, uint64_t addr, uint64_t bytes)
{
	struct iovec remote = { (void *)(uintptr_t)addr, bytes };
	ssize_t got;
	int r;

	r = copy_check(c);
	if (r < 0)
		return r;
	if (!vm_owner_lives(c->vm))
		return -MC_ENOTSUP;
	got = mc_fault("engine.process_vm.copy");
	if (got < 0)
		errno = (int)-got;
	else if (c->req->op == MCE_WRITE)
		got = process_vm_writev(c->vm->pid, part, n, &remote, 1, 0);
	else
		got = process_vm_readv(c->vm->pid, part, n, &remote, 1, 0);
	if (got == (ssize_t)bytes) {
		if (__atomic_load_n(&c->mp->missed, __ATOMIC_RELAXED))
			__atomic_store_n(&c->mp->missed, 0, __ATOMIC_RELAXED);
		return vm_owner_lives(c->vm) ? 0 : copy_owner_ended();
	}
	if (got < 0 && (errno == EPERM || errno == ESRCH || errno == ENOSYS)) {
		__atomic_store_n(&c->vm->refused, true, __ATOMIC_RELAXED);
		return -MC_ENOTSUP;
	}
	if (got >= 0 || errno == EFAULT)
		return copy_out_of_reach(c, part, n, bytes);
	return mc_fail(-MC_ETRANSFER, "copy between processes: %s", strerror(errno));
}

static void copy_feed(struct mce_req *req, uint64_t pos, const struct iovec *part, unsigned n)
{
	if (!req->crc)
		return;
	MC_FAULT_POINT("engine.process_vm.feed");
	for (unsigned i = 0; i < n; i++) {
		mce_crc_feed(req, pos, part[i].iov_base, part[i].iov_len);
		pos += part[i].iov_len;
	}
}

static int copy_all(struct copy *c)
{
	struct mce_req *req = c->req;
	uint64_t pos = 0, off = 0, bytes;
	struct iovec part[CALL_PARTS];
	unsigned idx = 0, n;
	int r;

	while ((n = copy_next_parts(req->iov, req->iovcnt, &idx, &off, part, &bytes))) {
		if (req->op == MCE_WRITE)
			copy_feed(req, pos, part, n);
		r = copy_call(c, part, n, req->addr + pos, bytes);
		if (r < 0)
			return r;
		if (req->op == MCE_READ)
			copy_feed(req, pos, part, n);
		pos += bytes;
	}
	bytes = mce_tail_len(req);
	if (bytes == 0)
		return 0;
	part[0].iov_base = req->crc;
	part[0].iov_len = bytes;
	return copy_call(c, part, 1, req->addr + mce_tail_off(req), bytes);
}

/* 0 with all references and the hazard slot taken, else as submit. */
static int copy_begin_locked(struct copy *c, uint64_t len)
{
	struct mce_mapping *mp = NULL;
	struct mce_mapped *m = c->m;
	int r;

	r = mce_mapped_find_locked(m, c->req, len, &mp);
	if (r == -EAGAIN || r == -MC_ENOTSUP)
		return r;
	if (!m->vm || __atomic_load_n(&m->vm->refused, __ATOMIC_RELAXED))
		return -MC_ENOTSUP;
	if (r < 0)
		return r;
	if (mapping_is_missed(mp))
		return -MC_ENOTSUP;
	if (hazard_take(m->vm->hazards, MCE_HAZARD_SLOTS, c->req->rkey, &c->slot) < 0)
		return -MC_ENOTSUP;
	/* The owner ends a region before it reads the hazard page, so one of us sees the other. */
	if (!mce_mapping_alive_locked(m, mp)) {
		mce_slot_clear(m->vm->hazards->slots, c->slot);
		return -ESTALE;
	}
	mp->refs++;
	c->mp = mp;
	c->vm = m->vm;
	__atomic_add_fetch(&c->vm->refs, 1, __ATOMIC_RELAXED);
	return 0;
}

static int copy_run(struct copy *c)
{
	struct mce_mapping *mp = c->mp;
	struct mce_mapped *m = c->m;
	int r;

	r = copy_all(c);
	mce_slot_clear(c->vm->hazards->slots, c->slot);
	mc_mutex_lock(&m->p->lock);
	if (r == 0)
		r = mce_mapping_check_locked(m, mp);
	mce_mapping_unref_locked(mp);
	mc_mutex_unlock(&m->p->lock);
	mce_vm_unref(c->vm);
	return r;
}

static int vm_submit(struct mce_peer *p, struct mce_req *req)
{
	struct copy c = { .m = mce_mapped_of(p), .req = req };
	int r;

	mc_mutex_lock(&p->lock);
	r = copy_begin_locked(&c, mce_req_span(req));
	mc_mutex_unlock(&p->lock);
	if (r == 0)
		r = copy_run(&c);
	if (r == -EAGAIN || r == -MC_ENOTSUP)
		return r;
	mce_complete(req, MCE_PATH_PROCESS_VM, r);
	return 0;
}

/* ---- many transfers in one call ---------------------------------------------------------------- */

#define RUN_PARTS 1024u			/* iovec entries: the kernel's limit */
#define RUN_REGIONS 16u			/* hazard slots that one caller may take */
#define RUN_REQ_BYTES (256u << 10)	/* longer requests are copied singly */

struct run {
	struct mce_mapped *m;
	struct mce_vm *vm;
	struct mce_req *reqs;
	unsigned n;		/* requests taken, from the first on */
	uint64_t bytes;
	struct {
		struct mce_mapping *mp;	/* referenced */
		unsigned slot;
		bool over;
	} region[RUN_REGIONS];
	unsigned nregions, nhere, nthere;
	struct iovec here[RUN_PARTS], there[RUN_PARTS];
	uint8_t region_of[RUN_PARTS];
};

/* Index of @mp among the run's regions; -EBUSY when it cannot be added. */
static int run_region_locked(struct run *run, struct mce_mapping *mp)
{
	unsigned i, slot, room;

	for (i = 0; i < run->nregions; i++)
		if (run->region[i].mp == mp)
			return (int)i;
	/* A run of several regions must leave hazard slots for other callers. */
	room = i == 0 ? MCE_HAZARD_SLOTS : MCE_HAZARD_SLOTS / 2;
	if (i == RUN_REGIONS || hazard_take(run->vm->hazards, room, mp->rkey, &slot) < 0)
		return -EBUSY;
	/* As for one transfer: the owner must see our hazard, or we see the region's end. */
	if (!mce_mapping_alive_locked(run->m, mp)) {
		mce_slot_clear(run->vm->hazards->slots, slot);
		return -EBUSY;
	}
	mp->refs++;
	run->region[i].mp = mp;
	run->region[i].slot = slot;
	run->region[i].over = false;
	run->nregions++;
	return (int)i;
}

static void run_add(struct run *run, const struct mce_req *req, uint64_t total, int region)
{
	struct iovec *last = run->nthere ? &run->there[run->nthere - 1] : NULL;

	/* Merge adjacent ranges of one region into one iovec entry. */
	if (last && (uintptr_t)last->iov_base + last->iov_len == req->addr &&
	    run->region_of[run->n - 1] == region) {
		last->iov_len += total;
	} else {
		run->there[run->nthere].iov_base = (void *)(uintptr_t)req->addr;
		run->there[run->nthere++].iov_len = total;
	}
	memcpy(&run->here[run->nhere], req->iov, req->iovcnt * sizeof(*req->iov));
	run->nhere += req->iovcnt;
	run->region_of[run->n++] = (uint8_t)region;
	run->bytes += total;
}

/* Add the next request if it fits.  An invalid request gets its status when it is offered singly. */
static bool run_take_locked(struct run *run, const struct mce_req *req, uint64_t total)
{
	struct mce_mapping *mp = NULL;
	int region;

	if (req->op != run->reqs->op || req->crc || total == 0 || total > RUN_REQ_BYTES ||
	    req->iovcnt > RUN_PARTS - run->nhere || run->bytes + total > CALL_BYTES)
		return false;
	if (mce_mapped_find_locked(run->m, req, total, &mp) ||
	    mp->at || mapping_is_missed(mp))
		return false;
	region = run_region_locked(run, mp);
	if (region >= 0)
		run_add(run, req, total, region);
	return region >= 0;
}

static void run_begin(struct run *run, struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	run->m = mce_mapped_of(p);
	run->reqs = reqs;
	run->n = run->nregions = run->nhere = run->nthere = 0;
	run->bytes = 0;
	MC_LOCKED(&p->lock);
	run->vm = run->m->vm;
	if (!run->vm || __atomic_load_n(&run->vm->refused, __ATOMIC_RELAXED))
		return;
	while (run->n < n && run->n < RUN_PARTS && mce_reqx(&reqs[run->n])->status == 0 &&
	       run_take_locked(run, &reqs[run->n], mce_reqx(&reqs[run->n])->total))
		;
	if (run->n)
		__atomic_add_fetch(&run->vm->refs, 1, __ATOMIC_RELAXED);
}

/* Copy one by one after the call for all has failed, so that each request gets its own status.  Repeating the
 * copies is harmless: they store the same bytes as the failed call. */
static void run_singly(struct run *run, int status[RUN_PARTS])
{
	for (unsigned i = 0; i < run->n; i++) {
		struct copy c = {
			.m = run->m, .vm = run->vm, .req = &run->reqs[i],
			.mp = run->region[run->region_of[i]].mp,
		};

		status[i] = copy_all(&c);
		/* The remaining requests must be offered again. */
		if (status[i] == -MC_ENOTSUP || status[i] == -EAGAIN)
			run->n = i;
	}
}

/* Reduces run->n to the requests whose status is final. */
static void run_copy(struct run *run, int status[RUN_PARTS])
{
	ssize_t got;

	if (!vm_owner_lives(run->vm)) {
		run->n = 0;
		return;
	}
	memset(status, 0, run->n * sizeof(*status));
	got = mc_fault("engine.process_vm.run");
	if (got == 0 && run->reqs->op == MCE_WRITE)
		got = process_vm_writev(run->vm->pid, run->here, run->nhere, run->there, run->nthere, 0);
	else if (got == 0)
		got = process_vm_readv(run->vm->pid, run->here, run->nhere, run->there, run->nthere, 0);
	if (got != (ssize_t)run->bytes)
		run_singly(run, status);
	else if (!vm_owner_lives(run->vm))
		for (unsigned i = 0; i < run->n; i++)
			status[i] = copy_owner_ended();
}

static void run_end(struct run *run)
{
	for (unsigned i = 0; i < run->nregions; i++)
		mce_slot_clear(run->vm->hazards->slots, run->region[i].slot);
	mc_mutex_lock(&run->m->p->lock);
	for (unsigned i = 0; i < run->nregions; i++) {
		struct mce_mapping *mp = run->region[i].mp;
		int r = mce_mapping_check_locked(run->m, mp);

		run->region[i].over = r == -ESTALE;
		/* All requests may be repeated. */
		if (r == -EAGAIN)
			run->n = 0;
		mce_mapping_unref_locked(mp);
	}
	mc_mutex_unlock(&run->m->p->lock);
	mce_vm_unref(run->vm);
}

static unsigned vm_run(struct mce_peer *p, struct mce_req *reqs, unsigned n)
{
	int status[RUN_PARTS];
	struct run run;

	if (!__atomic_load_n(&mce_mapped_of(p)->vm, __ATOMIC_RELAXED))
		return 0;
	run_begin(&run, p, reqs, n);
	if (run.n == 0)
		return 0;
	run_copy(&run, status);
	run_end(&run);
	for (unsigned i = 0; i < run.n; i++)
		mce_complete(&reqs[i], MCE_PATH_PROCESS_VM,
			     status[i] == 0 && run.region[run.region_of[i]].over ? -ESTALE : status[i]);
	return run.n;
}

const struct mce_transport mce_process_vm_transport = {
	.name = "process_vm",
	.path = MCE_PATH_PROCESS_VM,
	.distance = MCE_DISTANCE_HOST,
	.attach = mce_no_attach,
	.detach = mce_no_detach,
	.connect = mce_no_connect,
	.prepare = mce_no_prepare,
	.submit = vm_submit,
	.submit_run = vm_run,
	.flush = mce_no_flush,
	.poll = mce_no_poll,
	.lead = mce_no_lead,
	.cancel = mce_no_cancel,
	.writes_in_doubt = mce_no_doubt,
	.note_doubts = mce_no_doubts,
	.keep_doubts = mce_no_doubts,
	.new_fence = mce_no_fence,
	.map = mce_no_map,
};
