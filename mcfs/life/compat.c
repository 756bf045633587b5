/* SPDX-License-Identifier: Apache-2.0
 * compat.c - hook between libfuse and /dev/fuse. */
#include <config.h>
#include "mcfs/life/compat.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "mcfs/life/handoff.h"
#include "mcfs/write/slot.h"

/* The kernel's FUSE protocol; the numbers are ABI. */
#define OPCODE_WRITE 16u
#define OPCODE_INIT 26u

struct in_header {
	uint32_t len, opcode;
	uint64_t unique, nodeid;
	uint32_t uid, gid, pid, padding;
};
#define WRITE_IN_SIZE 40u
/* Size of the headers in front of a WRITE's data. */
#define HEAD (sizeof(struct in_header) + WRITE_IN_SIZE)

#define NOTIFY_RESEND 7
#define UNIQUE_RESEND (1ull << 63)
/* Id of the INIT that only libfuse receives; the kernel's ids start at 2. */
#define RESUME_UNIQUE UINT64_MAX

struct out_header {
	uint32_t len;
	int32_t error;
	uint64_t unique;
};

static struct {
	bool attached, hooked;
	struct fuse_session *session;
	struct mcfs_pool *pool;
	pthread_key_t slot_key;
	int slots;		/* atomic: number of threads that hold a slot */
	/* set by INIT, which is the first request and runs alone */
	bool shared_mmap, passthrough;
} hook;

static __thread void *slot;		/* this thread's slot: the next WRITE's data are read into it */
static __thread bool slot_filled;	/* the current request has its data in the slot */
static __thread uint64_t unique;	/* id of the current request */

static void thread_ends(void *p)
{
	mcfs_slot_put(hook.pool, slot);
	slot = NULL;
	__atomic_sub_fetch(&hook.slots, 1, __ATOMIC_RELEASE);
}

static void *thread_slot(void)
{
	if (!slot) {
		slot = mcfs_slot_get(hook.pool);
		if (!slot)
			return NULL;
		/* Any non-NULL value makes the key's destructor run. */
		(void)pthread_setspecific(hook.slot_key, &hook);
		__atomic_add_fetch(&hook.slots, 1, __ATOMIC_RELAXED);
	}
	return slot;
}

void *mcfs_compat_buffer(void)
{
	slot_filled = false;
	return thread_slot();
}

void **mcfs_compat_payload(void)
{
	return slot_filled ? &slot : NULL;
}

bool mcfs_compat_shared_mmap(void)
{
	return hook.shared_mmap;
}

bool mcfs_compat_hooked(void)
{
	return hook.hooked;
}

/* ---- features requested from the kernel ---- */

struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define DEV_IOC_BACKING_OPEN _IOW(229, 1, struct backing_map)
#define DEV_IOC_BACKING_CLOSE _IOW(229, 2, uint32_t)

/* Do not use libfuse's own call: it needs a request, which an interrupt may already have answered. */
int mcfs_compat_backing(int fd)
{
	struct backing_map map = { .fd = fd };
	int id;

	if (!hook.passthrough)
		return mc_fail(-EOPNOTSUPP, "this kernel or libfuse has no passthrough");
	id = ioctl(fuse_session_fd(hook.session), DEV_IOC_BACKING_OPEN, &map);
	return id > 0 ? id : mc_fail(id < 0 ? -errno : -EIO, "the kernel refuses passthrough of the "
				     "file: %s", mc_strerror(errno));
}

/* The kernel offers passthrough to every daemon, but refuses it to most: try it. */
static bool may_pass_through(void)
{
	int fd = memfd_create("mcfs", MFD_CLOEXEC), id = fd < 0 ? fd : mcfs_compat_backing(fd);
	uint32_t number = (uint32_t)id;

	if (id > 0)
		(void)ioctl(fuse_session_fd(hook.session), DEV_IOC_BACKING_CLOSE, &number);
	if (fd >= 0)
		close(fd);
	return id > 0;
}

bool mcfs_compat_passthrough(void)
{
	enum { UNKNOWN, NO, YES };
	static int known;	/* atomic; concurrent callers find the same result */
	int is = __atomic_load_n(&known, __ATOMIC_RELAXED);

	if (is == UNKNOWN) {
		is = may_pass_through() ? YES : NO;
		__atomic_store_n(&known, is, __ATOMIC_RELAXED);
	}
	return is == YES;
}

static ssize_t hook_read(int fd, void *buf, size_t len, void *userdata);
static ssize_t hook_writev(int fd, struct iovec *iov, int count, void *userdata);

/* libfuse 3.17 and later have their own functions for the flags that the hook adds for older versions. */
#if FUSE_USE_VERSION >= FUSE_MAKE_VERSION(3, 17)

#define DEV_IOC_CLONE _IOR(229, 0, uint32_t)

const char *mcfs_compat_way(void)
{
	return "libfuse";
}

void mcfs_compat_want(struct fuse_conn_info *conn, uint64_t wanted, uint64_t unwanted)
{
	conn->want_ext |= conn->capable_ext & wanted;
	conn->want_ext &= ~unwanted;
	hook.shared_mmap = fuse_set_feature_flag(conn, FUSE_CAP_DIRECT_IO_ALLOW_MMAP);
	hook.passthrough = fuse_set_feature_flag(conn, FUSE_CAP_PASSTHROUGH);
	/* Files are passed through to memory, not to another file system. */
	conn->max_backing_stack_depth = FUSE_BACKING_STACKED_UNDER;
}

void mcfs_compat_open_flags(struct fuse_file_info *fi, bool parallel_writes)
{
	fi->parallel_direct_writes = parallel_writes;
	fi->backing_id = 0;
}

void mcfs_compat_open_backing(struct fuse_file_info *fi, int id)
{
	/* With these flags the kernel would send reads to us. */
	fi->direct_io = fi->keep_cache = 0;
	fi->backing_id = id;
}

static void see_flags(const struct in_header *in)
{
}

static void reply_amend(const struct out_header *out, struct iovec *iov, int count)
{
}

/* Without a clone function of its own, a session with a hook makes all threads of libfuse share one descriptor. */
static int hook_clone(int fd)
{
	uint32_t of = (uint32_t)fd;
	int clone = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (clone >= 0 && ioctl(clone, DEV_IOC_CLONE, &of) < 0) {
		close(clone);
		return -1;
	}
	return clone;
}

static int custom_io(struct fuse_session *se)
{
	static const struct fuse_custom_io io = {
		.writev = hook_writev, .read = hook_read, .clone_fd = hook_clone,
	};

	return fuse_session_custom_io(se, &io, sizeof(io), fuse_session_fd(se));
}

#else

/* The kernel's FUSE protocol, of which Debian 12's <linux/fuse.h> lacks the newer half; the numbers are ABI. */
#define INIT_PARALLEL_DIROPS (1u << 18)
#define INIT_EXT (1u << 30)
#define INIT2_DIRECT_IO_ALLOW_MMAP (1u << (36 - 32))
#define INIT2_PASSTHROUGH (1u << (37 - 32))
#define FOPEN_PARALLEL_DIRECT_WRITES (1u << 6)
#define FOPEN_DIRECT_IO (1u << 0)
#define FOPEN_KEEP_CACHE (1u << 1)
#define FOPEN_PASSTHROUGH (1u << 7)
#define OPEN_OUT_SIZE 16u	/* fh, flags, padding or backing id */
#define INIT_OUT_SIZE 64u

struct init_in {
	uint32_t major, minor, max_readahead, flags, flags2;
};

struct init_out {
	uint32_t major, minor, max_readahead, flags;
	uint16_t max_background, congestion_threshold;
	uint32_t max_write, time_gran;
	uint16_t max_pages, map_alignment;
	uint32_t flags2, max_stack_depth, unused[6];
};
_Static_assert(sizeof(struct init_out) == INIT_OUT_SIZE, "layout is the kernel's");

/* the kernel's INIT request, which is the first one and runs alone */
static struct {
	uint64_t unique;
	uint32_t flags, flags2;
} offered;

/* flags of this thread's next open reply that libfuse does not know */
static __thread uint32_t open_flags, backing_id;

const char *mcfs_compat_way(void)
{
	return "hook";
}

void mcfs_compat_want(struct fuse_conn_info *conn, uint64_t wanted, uint64_t unwanted)
{
	conn->want |= conn->capable & (unsigned)wanted;
	conn->want &= ~(unsigned)unwanted;
}

void mcfs_compat_open_flags(struct fuse_file_info *fi, bool parallel_writes)
{
	open_flags = parallel_writes ? FOPEN_PARALLEL_DIRECT_WRITES : 0;
	backing_id = 0;
}

void mcfs_compat_open_backing(struct fuse_file_info *fi, int id)
{
	open_flags = FOPEN_PASSTHROUGH;
	backing_id = (uint32_t)id;
}

static void see_flags(const struct in_header *in)
{
	const struct init_in *arg = (const void *)(in + 1);

	if (in->len < sizeof(*in) + sizeof(*arg))
		return;
	offered.unique = in->unique;
	offered.flags = arg->flags;
	offered.flags2 = arg->flags & INIT_EXT ? arg->flags2 : 0;
}

static void amend_init(struct init_out *out)
{
	uint32_t flags2 = offered.flags2 & (INIT2_DIRECT_IO_ALLOW_MMAP | INIT2_PASSTHROUGH);

	offered.unique = 0;
	/* libfuse 3.14 knows this flag but does not request it. Without it, callers of one
	 * directory queue up in the kernel, where no signal can interrupt them. */
	out->flags |= offered.flags & INIT_PARALLEL_DIROPS;
	if (!flags2)
		return;
	out->flags |= INIT_EXT;
	out->flags2 |= flags2;
	hook.shared_mmap = flags2 & INIT2_DIRECT_IO_ALLOW_MMAP;
	if (!(flags2 & INIT2_PASSTHROUGH))
		return;
	/* Number of stacked file systems: this one, on memory. */
	out->max_stack_depth = 1;
	hook.passthrough = true;
}

static void amend_open(char *end)
{
	uint32_t *flags = (uint32_t *)(void *)(end - 8), *padding = (uint32_t *)(void *)(end - 4);

	*flags |= open_flags;
	if (open_flags & FOPEN_PASSTHROUGH) {
		/* With these flags the kernel would send reads to us. */
		*flags &= ~(FOPEN_DIRECT_IO | FOPEN_KEEP_CACHE);
		*padding = backing_id;
	}
}

static void reply_amend(const struct out_header *out, struct iovec *iov, int count)
{
	if (offered.unique && out->unique == offered.unique) {
		if (!out->error && count == 2 && iov[1].iov_len == INIT_OUT_SIZE)
			amend_init(iov[1].iov_base);
	} else if (open_flags) {
		/* An open reply ends with its flags and the padding. */
		if (!out->error && count == 2 && iov[1].iov_len >= OPEN_OUT_SIZE)
			amend_open((char *)iov[1].iov_base + iov[1].iov_len);
		open_flags = 0;
	}
}

static int custom_io(struct fuse_session *se)
{
	static const struct fuse_custom_io io = { .writev = hook_writev, .read = hook_read };

	return fuse_session_custom_io(se, &io, fuse_session_fd(se));
}

#endif

/* ---- the hook ---- */

static void see_init(const struct in_header *in, size_t len)
{
	see_flags(in);
	if (mcfs_handoff() && !mcfs_handoff()->init_len && len <= MCFS_HANDOFF_INIT_MAX) {
		memcpy(mcfs_handoff()->init, in, len);
		mcfs_handoff()->init_len = (uint32_t)len;
	}
}

/* Read one request: its header into @buf, the rest into a slot. Only a WRITE's data stay in the slot. */
static ssize_t hook_read(int fd, void *buf, size_t len, void *userdata)
{
	char *payload = thread_slot();
	struct iovec iov[2] = { { buf, HEAD }, { payload, MCFS_SLOT } };
	const struct in_header *in = buf;
	bool apart = payload && len >= HEAD + MCFS_SLOT;
	ssize_t n;

	slot_filled = false;
	unique = 0;
	n = apart ? readv(fd, iov, 2) : read(fd, buf, len);
	if (n < (ssize_t)sizeof(*in))
		return n;
	unique = in->unique;
	if (apart && in->opcode == OPCODE_WRITE)
		slot_filled = true;
	else if (apart && (size_t)n > HEAD)
		memcpy((char *)buf + HEAD, payload, (size_t)n - HEAD);
	if (in->opcode == OPCODE_INIT)
		see_init(in, (size_t)n);
	return n;
}

static ssize_t hook_writev(int fd, struct iovec *iov, int count, void *userdata)
{
	const struct out_header *out = iov[0].iov_base;

	reply_amend(out, iov, count);
	/* The previous daemon already answered the kernel's INIT. */
	if (out->unique == RESUME_UNIQUE)
		return (ssize_t)out->len;
	return writev(fd, iov, count);
}

uint64_t mcfs_compat_unique(bool *ret_again)
{
	*ret_again = unique & UNIQUE_RESEND;
	return unique & ~UNIQUE_RESEND;
}

bool mcfs_compat_resends(void)
{
	unsigned major, minor;
	struct utsname u;

	return uname(&u) == 0 && sscanf(u.release, "%u.%u", &major, &minor) == 2 &&
		(major > 6 || (major == 6 && minor >= 9));
}

int mcfs_compat_resume(struct fuse_session *se)
{
	union {
		struct in_header head;
		unsigned char bytes[MCFS_HANDOFF_INIT_MAX];
	} init;
	const struct out_header resend = { .len = sizeof(resend), .error = NOTIFY_RESEND };
	struct fuse_buf buf = { .mem = &init };

	if (mcfs_handoff()->init_len < sizeof(init.head) || mcfs_handoff()->init_len > sizeof(init))
		return mc_fail(-EINVAL, "the previous daemon has not served the mount");
	memcpy(init.bytes, mcfs_handoff()->init, mcfs_handoff()->init_len);
	buf.size = mcfs_handoff()->init_len;
	init.head.len = (uint32_t)buf.size;
	init.head.unique = RESUME_UNIQUE;
	see_init(&init.head, buf.size);
	fuse_session_process_buf(se, &buf);
	if (write(fuse_session_fd(se), &resend, sizeof(resend)) < 0 && mcfs_compat_resends())
		return mc_fail(-errno, "the kernel does not resend requests: %s", mc_strerror(errno));
	return 0;
}

int mcfs_compat_attach(struct fuse_session *se, struct mcfs_pool *pool)
{
	int r;

	memset(&hook, 0, sizeof(hook));
	hook.session = se;
	hook.pool = pool;
	r = pthread_key_create(&hook.slot_key, thread_ends);
	if (r)
		return -r;
	hook.attached = true;
	r = custom_io(se);
	hook.hooked = r == 0;
	if (r != -ENOTSUP)
		return r;
	if (mcfs_handoff())
		mc_warn("mcfs", "this libfuse has no fuse_session_custom_io(): if the daemon dies, the "
			"next one must create a new mount");
	return 0;
}

void mcfs_compat_detach(void)
{
	uint64_t deadline = mc_deadline_ms(1000);

	if (!hook.attached)
		return;
	hook.attached = false;
	/* Surplus threads of libfuse end detached, so wait until they have returned their slots. */
	while (__atomic_load_n(&hook.slots, __ATOMIC_ACQUIRE) > 0 && mc_now_ns() < deadline)
		mc_sleep_ms(1);
	pthread_key_delete(hook.slot_key);
}
