/* SPDX-License-Identifier: Apache-2.0
 * reply.c - answers to requests, each exactly once.
 *
 * A signal to a waiting caller makes the kernel send a single INTERRUPT, for any signal. If the
 * caller is being killed, the request is answered at once. For other signals the operation gets a
 * grace period, since programs do not expect file operations to be interrupted and programs with
 * periodic timers would make no progress. During it a thread watches whether the caller is killed.
 * An operation that has claimed its answer keeps a living caller waiting until it ends. */
#include <config.h>
#include "mcfs/reply.h"

#include <errno.h>

#include "common/fault.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"
#include "mcfs/control/account.h"
#include "mcfs/control/control.h"
#include "mcfs/handle.h"
#include "mcfs/mcfs.h"

#define GRACE_MS 250
#define LAST_GRACE_MS 50
#define WATCH_MS 10
/* Interval for a claimed answer: only a kill ends that wait. */
#define CLAIMED_WATCH_MS 100
#define SWEEP_MS 100
#define LOCKS_MS 500
#define LONG_MS (3600 * 1000)
/* Threads that remain free to read interrupts and requests that are never refused, while all others are busy. */
#define RESERVED_THREADS 8

static const char *const op_names[] = {
#define NAME(name) #name,
	MCFS_OPS(NAME)
#undef NAME
};

/* Fault points, passed when an operation has begun and can be interrupted. */
static const char *const point_names[] = {
#define POINT(name) "mcfs.op." #name,
	MCFS_OPS(POINT)
#undef POINT
};

static struct mc_hist latency_hist[MCFS_NOPS];
static struct mc_metric ops_metric[MCFS_NOPS] = {
#define ROW(name) { "mcfs_ops_total", "op=\"" #name "\"", "operations answered", \
	MC_COUNTER_TYPE, 0, NULL, 1, NULL },
	MCFS_OPS(ROW)
#undef ROW
};
static struct mc_metric failed_metric[MCFS_NOPS] = {
#define ROW(name) { "mcfs_op_errors_total", "op=\"" #name "\"", "operations answered with an error", \
	MC_COUNTER_TYPE, 0, NULL, 1, NULL },
	MCFS_OPS(ROW)
#undef ROW
};
static struct mc_metric latency_metric[MCFS_NOPS] = {
#define ROW(name) { "mcfs_op_seconds", "op=\"" #name "\"", "time from request to answer", \
	MC_HISTOGRAM_TYPE, 0, &latency_hist[MCFS_OP_##name], 1e-9, NULL },
	MCFS_OPS(ROW)
#undef ROW
};

#define ERRNOS(E) \
	E(ENOENT) E(EEXIST) E(ENOTDIR) E(EISDIR) E(ENOTEMPTY) E(EXDEV) E(EINVAL) E(EPERM) E(EACCES) \
	E(EROFS) E(EBUSY) E(ESTALE) E(EFBIG) E(ENOSPC) E(ENOMEM) E(EIO) E(ETIMEDOUT) E(EINTR) \
	E(EAGAIN) E(ENOTTY) E(EOPNOTSUPP) E(ENODATA) E(ERANGE) E(ENAMETOOLONG) E(EDQUOT) \
	E(EHOSTDOWN)
static const int errno_numbers[] = {
#define NUMBER(e) e,
	ERRNOS(NUMBER)
#undef NUMBER
};
#define NERRNOS (sizeof(errno_numbers) / sizeof(errno_numbers[0]))
static struct mc_metric errno_metric[NERRNOS + 1] = {
#define ROW(e) { "mcfs_errors_total", "errno=\"" #e "\"", "error answers", \
	MC_COUNTER_TYPE, 0, NULL, 1, NULL },
	ERRNOS(ROW)
#undef ROW
	{ "mcfs_errors_total", "errno=\"other\"", "error answers", MC_COUNTER_TYPE, 0, NULL, 1, NULL },
};

MC_GAUGE(inflight, "mcfs_inflight", "", "operations in progress")
MC_COUNTER(bytes_read, "mcfs_read_bytes_total", "", "bytes given to readers")
MC_COUNTER(interrupted, "mcfs_interrupted_total", "",
	   "operations whose caller received EINTR before they ended")
MC_COUNTER(refused, "mcfs_refused_total", "", "operations refused because max_threads were busy")

/* ---- interrupted callers ---- */

static struct {
	struct mc_mutex lock;
	struct mc_list ops;	/* guarded by lock */
	struct mc_stop stop;
	struct mc_thread thread;
	bool lock_wait_ended;		/* atomic; a caller stopped waiting for a lock */
} interrupts = { .lock = MC_MUTEX_INIT };

/* After the answer, @op may be freed at any moment. */
static void interrupt_now(struct mcfs_op *op, fuse_req_t req, bool killed)
{
	const bool waits = op->code == MCFS_OP_setlk || op->code == MCFS_OP_flock;
	int now = __atomic_load_n(&op->claim, __ATOMIC_ACQUIRE);

	do {
		if (now > (killed ? MCFS_UNLESS_KILLED : MCFS_UNCLAIMED))
			return;
	} while (!__atomic_compare_exchange_n(&op->claim, &now, MCFS_ANSWERED, false,
					      __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	mc_metric_add(&interrupted, 1);
	(void)fuse_reply_err(req, EINTR);
	if (waits)
		__atomic_store_n(&interrupts.lock_wait_ended, true, __ATOMIC_RELEASE);
}

/* Is it time to answer @op? If not, lower *ms to the time until the next check. */
static bool is_due(struct mcfs_op *op, uint64_t now, int64_t *ms)
{
	const int claim = __atomic_load_n(&op->claim, __ATOMIC_ACQUIRE);
	const bool late = now >= op->due_ns;
	const int64_t again = late ? CLAIMED_WATCH_MS : WATCH_MS;

	if (claim > MCFS_UNLESS_KILLED)
		return false;
	if (!__atomic_load_n(&op->beginning, __ATOMIC_ACQUIRE)) {
		op->killed |= mcfs_caller_killed(op->ctx.pid);
		if (late ? op->killed || claim == MCFS_UNCLAIMED : op->killed && op->code != MCFS_OP_flush)
			return true;
	}
	*ms = again < *ms ? again : *ms;
	return false;
}

/* Returns the time until the next check. */
static int64_t reply_watch_once(void)
{
	struct mc_list *pos, *tmp;
	uint64_t now = mc_now_ns();
	int64_t ms = LONG_MS;

	mc_mutex_lock(&interrupts.lock);
	mc_list_for_each_safe(pos, tmp, &interrupts.ops) {
		struct mcfs_op *op = mc_container_of(pos, struct mcfs_op, link);

		if (!is_due(op, now, &ms))
			continue;
		mc_list_remove(pos);
		op->watched = false;
		interrupt_now(op, op->req, op->killed);
	}
	mc_mutex_unlock(&interrupts.lock);
	return ms;
}

static void *reply_watch(void *arg)
{
	struct mcfs *fs = arg;
	int64_t ms = 0, sweep_ms;
	uint64_t locks_ms = 0;

	while (!mc_stop_wait(&interrupts.stop, ms)) {
		ms = reply_watch_once();
		if (__atomic_exchange_n(&interrupts.lock_wait_ended, false, __ATOMIC_ACQ_REL) ||
		    (mcfs_locks_waited_for(&fs->locks) && mc_now_ms() - locks_ms >= LOCKS_MS)) {
			mcfs_locks_sweep(&fs->locks);
			locks_ms = mc_now_ms();
		}
		sweep_ms = mcfs_open_pins_sweep(&fs->open_pins) ? SWEEP_MS :
			mcfs_locks_waited_for(&fs->locks) ? LOCKS_MS : LONG_MS;
		ms = sweep_ms < ms ? sweep_ms : ms;
	}
	return NULL;
}

void mcfs_reply_attend(void)
{
	mc_stop_kick(&interrupts.stop);
}

/* How long an interrupted caller still waits. A dying process closes its files: wait briefly for
 * that flush to decide what becomes of the file, before another process learns of the death. */
static uint64_t due_ms(const struct mcfs_op *op, bool killed)
{
	if (!killed)
		return GRACE_MS;
	return op->code == MCFS_OP_flush ? LAST_GRACE_MS : 0;
}

/* The request cannot be freed while this runs. Exception: libfuse calls it inside mcfs_op_begin() when the
 * signal arrived before the request; an answer would then free memory that libfuse still uses. */
static void on_interrupt(fuse_req_t req, void *arg)
{
	struct mcfs_op *op = arg;
	bool killed = mcfs_caller_killed(op->ctx.pid);

	if (killed && op->code != MCFS_OP_flush && !__atomic_load_n(&op->beginning, __ATOMIC_ACQUIRE)) {
		interrupt_now(op, req, true);
		/* The thread removes the request from the queue of its lock. */
		mc_stop_kick(&interrupts.stop);
		return;
	}
	mc_mutex_lock(&interrupts.lock);
	op->watched = true;
	op->killed = killed;
	op->due_ns = mc_now_ns() + due_ms(op, killed) * MC_NS_PER_MS;
	mc_list_push_back(&interrupts.ops, &op->link);
	mc_mutex_unlock(&interrupts.lock);
	mc_stop_kick(&interrupts.stop);
}

int mcfs_reply_init(struct mcfs *fs)
{
	static bool registered;
	int r;

	for (size_t i = 0; i < MCFS_NOPS && !registered; i++) {
		mc_metric_register(&ops_metric[i]);
		mc_metric_register(&failed_metric[i]);
		mc_metric_register(&latency_metric[i]);
	}
	for (size_t i = 0; i <= NERRNOS && !registered; i++)
		mc_metric_register(&errno_metric[i]);
	registered = true;
	mc_list_init(&interrupts.ops);
	r = mc_stop_init(&interrupts.stop);
	if (r < 0)
		return r;
	r = mc_thread_start(&interrupts.thread, "mcfs-interrupts", reply_watch, fs);
	if (r < 0)
		mc_stop_done(&interrupts.stop);
	return r;
}

void mcfs_reply_done(struct mcfs *fs)
{
	mc_stop_set(&interrupts.stop);
	mc_thread_join(interrupts.thread);
	mc_stop_done(&interrupts.stop);
}

uint64_t mcfs_reply_inflight(void)
{
	return (uint64_t)__atomic_load_n(&inflight.value, __ATOMIC_ACQUIRE);
}

/* ---- operations ---- */

static void op_count(const struct mcfs_op *op, int err)
{
	size_t i = 0;

	mc_metric_add(&ops_metric[op->code], 1);
	mc_metric_observe(&latency_metric[op->code], mc_now_ns() - op->start_ns);
	mcfs_account(op, op_names[op->code], err);
	if (!err)
		return;
	mc_metric_add(&failed_metric[op->code], 1);
	while (i < NERRNOS && errno_numbers[i] != err)
		i++;
	mc_metric_add(&errno_metric[i], 1);
}

/* Operations whose effect happens at an unknown time within the store or a commit. A caller that received EINTR
 * early could create a new file under a name that is about to be removed, renamed or published. */
static bool always_claims(enum mcfs_opcode code)
{
	return code == MCFS_OP_symlink || code == MCFS_OP_mkdir || code == MCFS_OP_unlink ||
		code == MCFS_OP_rmdir || code == MCFS_OP_rename || code == MCFS_OP_flush ||
		code == MCFS_OP_fsync;
}

/* Requests that release resources, and writes from the page cache: the kernel reports their refusal
 * to no program, and a file would be published without the refused bytes. */
static bool is_never_refused(const struct mcfs_op *op, const struct fuse_file_info *fi)
{
	return op->code == MCFS_OP_release || op->code == MCFS_OP_releasedir || op->code == MCFS_OP_flush ||
		(fi && fi->writepage);
}

static bool op_start(struct mcfs_op *op, const struct fuse_file_info *fi)
{
	int64_t busy = __atomic_add_fetch(&inflight.value, 1, __ATOMIC_RELAXED);

	op->start_ns = mc_now_ns();
	op->deadline = op->start_ns + mcfs_timeout_ms(op->fs) * MC_NS_PER_MS;
	op->claim = always_claims(op->code) ? MCFS_UNLESS_KILLED : MCFS_UNCLAIMED;
	op->bytes = 0;
	op->tree = MCFS_TREE_FREE;
	op->watched = false;
	/* The previous daemon died while changing the inode's key: the key is unknown. */
	if (op->in == &op->fs->inodes.lost || op->other == &op->fs->inodes.lost) {
		(void)mcfs_reply_err(op, -ESTALE);
		return false;
	}
	if (busy > op->fs->conf.max_threads - RESERVED_THREADS && !is_never_refused(op, fi)) {
		mc_metric_add(&refused, 1);
		(void)mcfs_reply_err(op, -EAGAIN);
		return false;
	}
	/* An interrupt may now answer the request. */
	op->beginning = true;
	fuse_req_interrupt_func(op->req, on_interrupt, op);
	__atomic_store_n(&op->beginning, false, __ATOMIC_RELEASE);
	mc_trace("mcfs", "%s pid=%d", op_names[op->code], (int)op->ctx.pid);
	MC_FAULT_POINT(point_names[op->code]);
	return true;
}

static struct mcfs_inode *keep_inode(struct mcfs *fs, fuse_ino_t ino)
{
	struct mcfs_inode *in;

	if (!ino || mcfs_is_control(ino))
		return NULL;
	in = mcfs_inode_at(&fs->inodes, ino);
	mcfs_inode_ref(&fs->inodes, in);
	return in;
}

bool mcfs_op_begin(struct mcfs_op *op, fuse_req_t req, enum mcfs_opcode code, fuse_ino_t ino,
		   const struct fuse_file_info *fi)
{
	op->req = req;
	op->ctx = *fuse_req_ctx(req);
	op->fs = mcfs_of(req);
	op->code = code;
	if (code == MCFS_OP_open || code == MCFS_OP_create || code == MCFS_OP_opendir)
		mcfs_handle_drop_unanswered(op->fs);
	op->handle = fi ? mcfs_handle_of(fi) : NULL;
	/* Closed already: the previous daemon died before its answer arrived. */
	if (fi && !op->handle) {
		op->in = op->other = NULL;
		if (op_start(op, fi))
			(void)mcfs_reply_err(op, code == MCFS_OP_release ||
					     code == MCFS_OP_releasedir ? 0 : -ESTALE);
		return false;
	}
	if (op->handle)
		mcfs_handle_ref(op->handle);
	/* An open file references its inode. */
	op->in = op->handle ? op->handle->inode : keep_inode(op->fs, ino);
	op->other = NULL;
	return op_start(op, fi);
}

bool mcfs_op_begin_two(struct mcfs_op *op, fuse_req_t req, enum mcfs_opcode code, fuse_ino_t ino,
		       fuse_ino_t other)
{
	op->req = req;
	op->ctx = *fuse_req_ctx(req);
	op->fs = mcfs_of(req);
	op->code = code;
	op->handle = NULL;
	op->in = keep_inode(op->fs, ino);
	op->other = keep_inode(op->fs, other);
	return op_start(op, NULL);
}

bool mcfs_op_given_up(const struct mcfs_op *op)
{
	return __atomic_load_n(&op->claim, __ATOMIC_ACQUIRE) == MCFS_ANSWERED;
}

int64_t mcfs_op_left_ms(const struct mcfs_op *op)
{
	return mc_deadline_left_ms(op->deadline);
}

int mcfs_op_share_tree(struct mcfs_op *op)
{
	int r = mcfs_tree_share(&op->fs->tree, op->deadline);

	if (r == 0)
		op->tree = MCFS_TREE_SHARED;
	return r;
}

int mcfs_op_take_tree(struct mcfs_op *op)
{
	int r = mcfs_tree_take(&op->fs->tree, op->deadline);

	if (r == 0)
		op->tree = MCFS_TREE_ALONE;
	return r;
}

void mcfs_op_leave_tree(struct mcfs_op *op)
{
	if (op->tree)
		mcfs_tree_leave(&op->fs->tree, op->tree);
	op->tree = MCFS_TREE_FREE;
}

/* Take the right to answer. Afterwards no other thread uses @op. */
static bool op_take(struct mcfs_op *op)
{
	bool ours = __atomic_exchange_n(&op->claim, MCFS_ANSWERED, __ATOMIC_ACQ_REL) != MCFS_ANSWERED;

	/* Waits for a running interrupt handler, which is safe while the request is unanswered. */
	if (ours)
		fuse_req_interrupt_func(op->req, NULL, NULL);
	mc_mutex_lock(&interrupts.lock);
	if (op->watched)
		mc_list_remove(&op->link);
	op->watched = false;
	mc_mutex_unlock(&interrupts.lock);
	return ours;
}

/* End the operation; @err is the errno that the caller received. */
static void op_end(struct mcfs_op *op, int err)
{
	op_count(op, err);
	if (op->tree)
		mcfs_op_leave_tree(op);
	if (op->handle)
		mcfs_handle_unref(op->fs, op->handle);
	else if (op->in)
		mcfs_inode_unref(&op->fs->inodes, op->in);
	if (op->other)
		mcfs_inode_unref(&op->fs->inodes, op->other);
	/* Last access: the end of the session waits for this before it frees the mount. */
	__atomic_sub_fetch(&inflight.value, 1, __ATOMIC_RELEASE);
}

/* @r: libfuse's result; negative if the kernel did not accept the answer because the caller is gone. */
static int reply_sent(struct mcfs_op *op, int r)
{
	op_end(op, r < 0 ? EINTR : 0);
	return r < 0 ? -ECANCELED : 0;
}

static int reply_missed(struct mcfs_op *op)
{
	op_end(op, EINTR);
	return -ECANCELED;
}

static int to_errno(int err)
{
	int e = mcs_errno(err);

	/* The kernel would remember ENOSYS for the whole mount. */
	return e <= 0 || e == ENOSYS ? EIO : e;
}

int mcfs_reply_err(struct mcfs_op *op, int err)
{
	int e = err < 0 ? to_errno(err) : 0, r;

	if (!op_take(op))
		return reply_missed(op);
	/* Most errors are normal results; these indicate a fault. */
	if (e == EIO || e == ETIMEDOUT || e == ENOMEM || e == EPROTO || e == EHOSTDOWN)
		mc_warn("mcfs", "%s failed: %s", op_names[op->code], mcs_error_detail(err));
	else if (e)
		mc_debug("mcfs", "%s failed: %s", op_names[op->code], mcs_error_detail(err));
	r = fuse_reply_err(op->req, e);
	op_end(op, r < 0 ? EINTR : e);
	return r < 0 ? -ECANCELED : 0;
}

int mcfs_reply_entry(struct mcfs_op *op, const struct fuse_entry_param *e)
{
	return op_take(op) ? reply_sent(op, fuse_reply_entry(op->req, e)) : reply_missed(op);
}

int mcfs_reply_create(struct mcfs_op *op, const struct fuse_entry_param *e,
		      struct fuse_file_info *fi, bool parallel)
{
	if (!op_take(op))
		return reply_missed(op);
	mcfs_compat_open_flags(fi, parallel);
	return reply_sent(op, fuse_reply_create(op->req, e, fi));
}

int mcfs_reply_open(struct mcfs_op *op, struct fuse_file_info *fi, bool parallel)
{
	if (!op_take(op))
		return reply_missed(op);
	mcfs_compat_open_flags(fi, parallel);
	return reply_sent(op, fuse_reply_open(op->req, fi));
}

int mcfs_reply_open_backing(struct mcfs_op *op, struct fuse_file_info *fi, int id)
{
	if (!op_take(op))
		return reply_missed(op);
	mcfs_compat_open_backing(fi, id);
	return reply_sent(op, fuse_reply_open(op->req, fi));
}

int mcfs_reply_attr(struct mcfs_op *op, const struct stat *st, uint64_t timeout_ms)
{
	if (!op_take(op))
		return reply_missed(op);
	return reply_sent(op, fuse_reply_attr(op->req, st, (double)timeout_ms / 1000));
}

int mcfs_reply_buf(struct mcfs_op *op, const void *buf, size_t len)
{
	return op_take(op) ? reply_sent(op, fuse_reply_buf(op->req, buf, len)) : reply_missed(op);
}

int mcfs_reply_lock(struct mcfs_op *op, const struct flock *fl)
{
	return op_take(op) ? reply_sent(op, fuse_reply_lock(op->req, fl)) : reply_missed(op);
}

int mcfs_reply_read(struct mcfs_op *op, const struct iovec *iov, int n, size_t len)
{
	mc_metric_add(&bytes_read, (int64_t)len);
	op->bytes = len;
	return op_take(op) ? reply_sent(op, fuse_reply_iov(op->req, iov, n)) : reply_missed(op);
}

int mcfs_reply_write(struct mcfs_op *op, size_t len)
{
	op->bytes = len;
	return op_take(op) ? reply_sent(op, fuse_reply_write(op->req, len)) : reply_missed(op);
}

int mcfs_reply_text(struct mcfs_op *op, const char *text)
{
	return op_take(op) ? reply_sent(op, fuse_reply_readlink(op->req, text)) : reply_missed(op);
}

int mcfs_reply_statfs(struct mcfs_op *op, const struct statvfs *st)
{
	return op_take(op) ? reply_sent(op, fuse_reply_statfs(op->req, st)) : reply_missed(op);
}

int mcfs_reply_ioctl(struct mcfs_op *op, int result, const void *buf, size_t len)
{
	return op_take(op) ? reply_sent(op, fuse_reply_ioctl(op->req, result, buf, len)) : reply_missed(op);
}

int mcfs_reply_xattr(struct mcfs_op *op, const void *value, size_t len, size_t size)
{
	if (size && size < len)
		return mcfs_reply_err(op, -ERANGE);
	if (!op_take(op))
		return reply_missed(op);
	if (!size)
		return reply_sent(op, fuse_reply_xattr(op->req, len));
	return reply_sent(op, fuse_reply_buf(op->req, value, len));
}
