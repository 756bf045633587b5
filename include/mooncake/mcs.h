/* SPDX-License-Identifier: Apache-2.0
 * mcs.h - the full C API of the object store.  See mcs(3).
 *
 * Keys are 1..4096 bytes of any value.  An object is a sequence of bytes (0 bytes are allowed) that never changes after
 * its put: a put of an existing key changes nothing and succeeds; an upsert publishes a complete new version.  A get
 * returns the bytes that were put under that key, checked by CRC32C, or an error; never other bytes.
 *
 * Results are 0 or a count on success and negative on failure: -errno or one of -MCS_E*; mcs_strerror() gives text,
 * mcs_errno() a plain errno, mcs_code() upstream's ErrorCode number. All functions may be called from any thread; one
 * handle serves all threads.  Timeouts are in milliseconds for the whole call, negative: the handle's default.
 *
 * After fork() the handle belongs to the parent.  In the child, all calls fail with
 * -MCS_EUNAVAILABLE (mcs_health() returns 2, mcs_pool_alloc() NULL), and closing the handle or
 * its objects does nothing; the child can open its own handle with mcs_open(). */
#ifndef MOONCAKE_MCS_H
#define MOONCAKE_MCS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	MCS_ENOSPACE = 1006,	/* no space, although everything evictable was evicted */
	MCS_EKEY = 1008,
	MCS_EPARAM = 1009,
	MCS_EREPLICA = 1012,	/* the object has no such copy */
	MCS_ENOTREADY = 1013,	/* the master restarted and does not know yet whether the object exists: try again */
	MCS_ENOOBJECT = 1014,	/* a miss */
	MCS_EEXISTS = 1015,
	MCS_ELEASED = 1016,
	MCS_EREPLICA_GONE = 1018, /* the version that was opened can no longer be read */
	MCS_ETRANSFER = 1019,
	MCS_ECHECKSUM = 1020,
	MCS_ERPC = 1021,	/* the master cannot be reached */
	MCS_ETIMEDOUT = 1022,
	MCS_EUNAVAILABLE = 1023, /* the handle belongs to the parent of this forked process */
	MCS_ENOTSUP = 1024,
	MCS_ETOOBIG = 1026,	/* larger than any segment */
	MCS_ELIMIT = 1030,	/* a limit of the master or of the engine is reached, such as pins of one client */
	MCS_EMODE = 1031,	/* the master does not run in the mode that this call needs */
	MCS_EQUOTA = 1032,	/* the tenant's quota is used up */
	MCS_ENOTENANT = 1033,	/* the tenant is not registered at the master */
	MCS_ETENANT_BUSY = 1034, /* the tenant still has objects */
	MCS_ENODFS = 1038	/* MCS_PUT_DFS without MOONCAKE_ENABLE_DFS */
};

const char *mcs_strerror(int err);	/* static text */
const char *mcs_error_detail(int err);	/* text about the last failed call of this thread */
int mcs_errno(int err);			/* positive errno for a negative result */
int mcs_code(int err);			/* upstream's number, 0 or negative */
const char *mcs_version(void);		/* "0.1.0" */

/* ---- the handle -------------------------------------------------------------------------------- */

typedef struct mcs mcs_t;

struct mcs_conf {
	size_t struct_size;		/* sizeof(struct mcs_conf); mcs_conf_init() sets it */
	/* "host:port[,host:port...]", "unix:PATH", or "local:NAME" for a master in this process; the store of
	 * several masters, "etcd://HOST:PORT[;HOST:PORT...]" or "redis://HOST:PORT"; default 127.0.0.1:50051 */
	const char *master;
	/* Name of this process, "host" or "host:port": the address for peers, and the name of its
	 * segments; default 127.0.0.1 */
	const char *hostname;
	/* "tcp" (shared memory on the same host is used automatically); "rdma": the same, and NICs between hosts that
	 * have them, or one warning in the log if this host has none; upstream's others are replaced by tcp, with one
	 * warning; "rpc_only": without a segment.  -MCS_EPARAM for any other name. */
	const char *protocol;
	uint64_t segment_size;		/* bytes of memory to contribute, 0: none */
	const char *segment_kind;	/* "auto", "tmpfs", "memfd", "hugetlb" */
	int64_t timeout_ms;		/* default deadline of calls, 30000 */
	/* How long mcs_open() tries to reach the master, and how long calls wait for a master that is down (never
	 * beyond their own deadline); 5000.  Where another master takes over, both wait for mcs_takeover_ms() if that
	 * is longer, unless this value is below 5000. */
	int64_t setup_timeout_ms;
	unsigned io_threads;		/* threads of the transfer engine, 0: its default */
	unsigned spin_us;		/* how long waits poll before they sleep, 0: never */
	int force_tcp;			/* do not use same-host paths */
	int verify;			/* check CRCs on every get; 1 */
	int lazy;			/* mcs_open() succeeds while the master is down; connects later */
	uint64_t segment_max;		/* bytes that mcs_segment_grow() may reach; 0: segment_size */
	const char *tenant;		/* whose keys are used; NULL, "", "default": the credential's, or "default" */
	/* Contribute segment_size bytes (rounded down to 2 MiB) of an existing file, which may be in /dev/shm,
	 * instead of new memory, from a page-aligned offset on; its contents are overwritten.  NULL: none */
	const char *segment_path;
	uint64_t segment_offset;
	/* The node's daemon (mcfs or mooncake_client) that does the work of this handle: "off", "HOST:PORT" or
	 * "PORT" (on this host, as for upstream's dummy clients), "unix:PATH", or "auto": the daemon at port
	 * 50052, if it runs, serves the same master and the default tenant, and neither a segment nor a tenant
	 * is configured here.  A handle with a configured daemon uses the keys of the daemon's tenant. NULL:
	 * "auto", or "off" with a segment. */
	const char *daemon;
	uint64_t daemon_buffer;		/* memory shared with the daemon, for values in unshared memory; 16 MiB */
	uint64_t daemon_pool;		/* memory shared with the daemon, for mcs_pool_alloc() */
	/* Take over the segment of a process that has died, with its objects: the descriptor of
	 * its file, which another process kept open; segment_size as it was; and segment_identity. 0: none */
	int segment_fd;
	/* MCS_SEGMENT_IDENTITY words of memory that outlive this process, for such a takeover: the handle keeps
	 * there how the master knows the segment, and reads it if there is a segment_fd.  NULL: no takeover */
	uint64_t *segment_identity;
	/* Protocol "rdma": the NICs to use, "mlx5_0,mlx5_1".  NULL or "": all with an active port, of those in
	 * MC_MS_FILTERS if that is set.  MC_MS_AUTO_DISC=1: as if it was NULL; 0: it must name a NIC */
	const char *rdma_devices;
	/* Disks for objects that leave memory: existing directories and block devices, separated by ':'; each becomes
	 * a segment that this process owns.  Its objects stay when the process ends, for the next one that uses the
	 * same directory.  NULL or "": none */
	const char *ssd_path;
	uint64_t ssd_size;		/* limit of bytes on each; 0: 90 % of the free space at the first start */
	uint64_t ssd_buffers;		/* bytes of the buffers through which each is read and written; 64 MiB */
	int ssd_threads;		/* use threads instead of io_uring or USRBIO */
	unsigned ssd_high, ssd_low;	/* percent of a disk at which eviction begins and ends; 0: the master's */
	const char *ssd_policy;		/* order of eviction: "lru" or "fifo"; NULL: the master's */
	/* "host:port": serve /health (200 or 503, as mcs_health()) and /metrics (of this process, for Prometheus) over
	 * HTTP until mcs_close().  An address that cannot be had is a warning in the log.  NULL or "": none */
	const char *http_addr;
	/* 1: initialise block devices of ssd_path that are blank; a device with other content is refused in any case.
	 * -1: no; 0: if MOONCAKE_SSD_FORMAT says so (mcs_conf_offload()), else no */
	int ssd_format;
	/* Far memory to contribute besides, as a segment of its own: memory of another NUMA node (a CXL expander, for
	 * example), or a DAX device.  Objects of this process's segment are copied there before they leave it, or are
	 * put there at once (the master's --allocation_strategy=cxl).  0: none, but all of far_path if that is set */
	uint64_t far_size;
	/* /dev/daxX.Y; the size is rounded down to its pages.  NULL or "": memory of far_node */
	const char *far_path;
	int far_node;			/* NUMA node of the memory; -1: any */
	/* An existing directory of a filesystem that several nodes mount, for copies of objects that leave memory: this
	 * process owns one file there, in the folder of the cluster.  Nodes that can open the file read it themselves,
	 * also when this process has ended, and any process with the same directory continues with it.  NULL or "":
	 * that of MOONCAKE_ENABLE_DFS and MOONCAKE_DFS_ROOT_DIR, else of the master's root_fs_dir, in a process with a
	 * segment; "none": none */
	const char *root_fs_dir;
	const char *root_fs_cluster;	/* name of the folder, as the master's cluster_id; NULL: "mooncake_cluster" */
	uint64_t root_fs_size;		/* limit of bytes of the file; 0: 90 % of the free space when it is created */
	/* A segment in a bucket of S3 for objects that leave memory and disks: s3://BUCKET/PREFIX, with the server and
	 * the keys in MOONCAKE_S3_*, or a /DIRECTORY that stands for a bucket.  Each owner needs a prefix of its own.
	 * Its objects stay when the process ends, for the next one that uses the prefix.  NULL or "": none */
	const char *s3_path;
	uint64_t s3_size;		/* limit of bytes there */
	int s3_import;			/* 1: bring the objects of another pool, which has ended, into this one */
	/* Are the disks of ssd_path NoF disks, reached over a network, which get copies of other owners' objects too
	 * (nof_replicas)?  "yes", "no", or "auto": those of which the kernel says so.  NULL or "": "auto" */
	const char *ssd_nof;
	const char *credential;		/* its file, for a pool with security; NULL, "": MC_CREDENTIAL */
	const char *encrypt;	/* with a credential: "all", or "control": not the bytes of objects; NULL: MC_ENCRYPT */
};
#define MCS_SEGMENT_IDENTITY 5
/* Fill in the defaults.  The caller may use an older, shorter version of the struct: at most
 * @size bytes are written. */
void mcs_conf_init_size(struct mcs_conf *conf, size_t size);
#define mcs_conf_init(conf) mcs_conf_init_size(conf, sizeof(*(conf)))
/* Switch the disks on: fill in the ssd_ fields that are not set yet from upstream's environment variables
 * (MOONCAKE_OFFLOAD_*, mooncake_client(1)), the path finally with upstream's default /data/file_storage.  Strings of
 * the environment are borrowed.  -EINVAL: a variable has an invalid value. */
int mcs_conf_offload(struct mcs_conf *conf);

/* Connect, contribute the segment, start heartbeats. */
int mcs_open(const struct mcs_conf *conf, mcs_t **ret);
/* Unmount the segment (its objects are lost) and free the memory.  Open objects and listings
 * must be closed before, and no other call may be running.  NULL is fine. */
void mcs_close(mcs_t *s);

/* Enlarge this process's segment to @size bytes (rounded up to 2 MiB; at most segment_max) and
 * offer them to the pool; its objects stay in place.  -EINVAL: smaller than now, too large, or
 * there is no segment; -ENOMEM: the machine has not enough memory.  A master that cannot be
 * reached learns the new size with the next connection. */
int mcs_segment_grow(mcs_t *s, uint64_t size, int64_t timeout_ms);

/* The descriptor of this process's segment (owned by the handle), and how many of its bytes can
 * be mapped. -EINVAL: there is no segment. */
int mcs_segment_fd(mcs_t *s, uint64_t *ret_size);
/* Keep the words of mcs_conf.segment_identity at @identity from now on, and no longer where they were. */
int mcs_segment_identity(mcs_t *s, uint64_t *identity);

/* Memory of GPUs may be used like memory of the process in every function that takes the caller's buffers, if the
 * program itself uses the CUDA driver.  Reads and writes of it begin after all work that the program has given to the
 * GPU's default stream and to the streams that are ordered with it; work on other streams has to be waited for first.
 * When a call has returned, or an asynchronous one has ended, the bytes are in place for work that is started then.
 *
 * The number of the GPU whose memory @p is; -1: it is none. */
int mcs_gpu_of(const void *p);
/* memcpy() between any two kinds of memory: 0, or negative. */
int mcs_gpu_memcpy(void *dst, const void *src, size_t n);

/* The address of the master that serves now, of @master as in struct mcs_conf, as "host:port" or in another form.
 * -MCS_ERPC: none does; -MCS_EPARAM: it does not fit. */
int mcs_find_master(const char *master, char *ret, size_t size, int64_t timeout_ms);
/* The same with the credential in a file (NULL or "": MC_CREDENTIAL), and the port of that master's HTTP server, as the
 * store of several masters names it; 0: unknown. */
int mcs_find_master_http(const char *master, const char *credential, char *ret, size_t size, int *port, int64_t ms);
/* 0: healthy; 1: not connected yet; 2: master not reachable. */
int mcs_health(mcs_t *s);
/* The time for which the master protects an object after a read or a query, from the last registration; ms. */
unsigned mcs_lease_ms(mcs_t *s);
/* The time for which a call must be able to wait so that a change of the master does not make it fail, ms; 0: no other
 * master takes over.  Any thread. */
unsigned mcs_takeover_ms(mcs_t *s);
const char *mcs_hostname(mcs_t *s);	/* "host:port" of this process's engine: the name of its segments */
const char *mcs_tenant(mcs_t *s);	/* configured, or that of the credential or the daemon */

/* Record memory for transfers.  Optional: no path of this version needs it.  -EEXIST: overlaps a registered
 * range.  -EFAULT: this process can access a part neither for reading nor for writing (not mapped, PROT_NONE, a
 * device's memory), so no transfer could. */
int mcs_register_buffer(mcs_t *s, void *buf, size_t len);
int mcs_unregister_buffer(mcs_t *s, void *buf);
/* The same for memory that is a shared mapping of the memfd @fd from @fd_offset (page-aligned) on: a daemon
 * moves bytes between it and the pool without another copy.  The memfd must not shrink from now on.  A call
 * ends with -MCS_ETIMEDOUT 8 s after its timeout if the daemon hangs.  If that was a get, the daemon may still
 * write to this memory when it continues (a put stores nothing any more). */
int mcs_register_memfd(mcs_t *s, void *buf, size_t len, int fd, uint64_t fd_offset);

/* The address of the daemon that this handle uses; NULL: none. */
const char *mcs_daemon(mcs_t *s);
/* Page-aligned memory that needs no registration, from conf.daemon_pool (without a daemon: from
 * the machine). NULL: none is left.  Memory that is not freed is freed with the handle. */
void *mcs_pool_alloc(mcs_t *s, size_t len);
void mcs_pool_free(mcs_t *s, void *p);		/* NULL is fine */

/* ---- put --------------------------------------------------------------------------------------- */

struct mcs_key {
	const void *data;
	size_t len;
};

/* MCS_SPECIAL: a fifo, socket or device node, which has no bytes.  The type is in its mode, which every put of one has
 * to give, else -MCS_EPARAM. */
enum mcs_kind { MCS_OBJECT, MCS_DIR, MCS_SYMLINK, MCS_SPECIAL };

/* Attributes of files; they do not belong to the bytes.  The pool keeps those in @set; mounts have defaults for the
 * others. */
#define MCS_ATTR_MODE		0x01u
#define MCS_ATTR_UID		0x02u
#define MCS_ATTR_GID		0x04u
#define MCS_ATTR_MTIME		0x08u
#define MCS_ATTR_CTIME		0x10u	/* set by the pool only */
#define MCS_ATTR_RDEV		0x20u	/* device of an MCS_SPECIAL; only in mcs_put_opts */
/* Conditions of a put: the object that it replaces, if there is one, has the uid @owner; has none.  Else -EPERM. */
#define MCS_ATTR_IF_OWNER	0x40u
#define MCS_ATTR_IF_NO_OWNER	0x80u
#define MCS_ATTR_INO		0x100u	/* inode number; only in mcs_put_opts, a replaced version's stays */
/* Filled in: the object has several names, or had (mcs_link()).  In a put, a condition: it replaces such an object,
 * else -MCS_ENOOBJECT. */
#define MCS_ATTR_LINKED		0x200u
struct mcs_attrs {
	unsigned set;			/* MCS_ATTR_* */
	uint32_t mode;			/* 07777; of MCS_SPECIAL also the type */
	uint32_t uid, gid;
	uint64_t mtime_ns, ctime_ns;	/* Unix epoch */
	uint32_t rdev;
	uint32_t owner;			/* with MCS_ATTR_IF_OWNER */
	uint32_t nlink;			/* filled in for a directory: 2 and its subdirectories; with LINKED: names */
	uint64_t ino;
};

#define MCS_IN_MEMORY		0x1000u
#define MCS_ON_DISK		0x2000u
#define MCS_IN_FAR_MEMORY	0x4000u
#define MCS_ON_SHARED		0x8000u	/* S3 */
#define MCS_PUT_UPSERT		0x1u	/* replace an existing value */
#define MCS_PUT_HARD_PIN	0x2u	/* never evict */
#define MCS_PUT_SOFT_PIN	0x4u	/* evict last */
#define MCS_PUT_EXCL		0x8u	/* an existing value is -MCS_EEXISTS instead of success */
#define MCS_PUT_ALL_REPLICAS	0x10u	/* fail unless there is space for all replicas */
#define MCS_PUT_SAME_NODE	0x20u	/* with one replica: on this host; keep the items of a batch together */
#define MCS_PUT_LAST		0x40u	/* store the last of several items with the same key, not the first */
#define MCS_PUT_NO_EVICT	0x80u	/* -MCS_ENOSPACE or -MCS_EQUOTA instead of evicting objects */
#define MCS_NOF_REPLICAS_MAX	255u
#define MCS_PUT_NOF		0x100u	/* nof_replicas and preferred_nof of the options are set */
/* As upstream's dfs_replica_num 1: the program wants a copy in the shared directory.  -MCS_ENODFS unless
 * MOONCAKE_ENABLE_DFS is set.  No further effect: each object is copied there, after the put */
#define MCS_PUT_DFS		0x200u

/* The soft pin of an upsert's new version: that of the replaced version, a new one, or none. */
enum mcs_soft_pin { MCS_SOFT_PIN_PRESERVE, MCS_SOFT_PIN_ENABLE, MCS_SOFT_PIN_DISABLE };

/* A tag that is stored with an object.  The numbers are upstream's. */
enum mcs_data_type {
	MCS_TYPE_UNKNOWN, MCS_TYPE_KVCACHE, MCS_TYPE_TENSOR, MCS_TYPE_WEIGHT, MCS_TYPE_SAMPLE,
	MCS_TYPE_ACTIVATION, MCS_TYPE_GRADIENT, MCS_TYPE_OPTIMIZER_STATE, MCS_TYPE_METADATA,
	MCS_TYPE_GENERAL
};

struct mcs_put_opts {
	unsigned flags;
	unsigned replicas;		/* copies on distinct segments, 0: 1; fewer when fewer exist */
	uint32_t soft_pin_ms;		/* 0: the master's default */
	const char *const *preferred;	/* segment names, NULL-ended, in order; NULL: local first */
	enum mcs_kind kind;
	enum mcs_soft_pin soft_pin;	/* the flag MCS_PUT_SOFT_PIN means ENABLE too */
	enum mcs_data_type data_type;
	/* Name of an eviction group, up to 1024 bytes: its objects are kept while one of them is
	 * read, and evicted together.  An upsert must not change it.  Empty: none. */
	struct mcs_key group;
	/* Attributes of the object, before those of a version that it replaces; NULL: none.  A new version keeps mode
	 * (without set-user-ID and set-group-ID), owner, group and extended attributes of the one that it replaces.
	 * -MCS_ENOTSUP through a daemon. */
	const struct mcs_attrs *attrs;
	/* With MCS_PUT_NOF: further copies on NoF disks (ssd_nof) of owners that neither send this nor have
	 * a copy, one for each owner.  They are made after the put has ended, which does not wait for them: a rename
	 * or the end of the master before that leaves them out.  Fewer when fewer such disks exist, also with
	 * MCS_PUT_ALL_REPLICAS.  An object with such a copy is not copied to its own node's disk any more. */
	unsigned nof_replicas;			/* MCS_NOF_REPLICAS_MAX at most; an object has up to 8 copies in all */
	const char *const *preferred_nof;	/* names of segments to use first, NULL-ended, in order; NULL: none */
};

/* Store the bytes of @iov.  Without UPSERT and EXCL, returns 0 also when the key exists (nothing
 * is written then).  Retries while the pool is briefly full.  @opts NULL: defaults.
 * If the connection to the master breaks during the commit and the key is absent afterwards, the call stores the bytes
 * again: until it returns, a value that others have read and removed may come back. */
int mcs_put(mcs_t *s, struct mcs_key key, const struct iovec *iov, int iovcnt,
	    const struct mcs_put_opts *opts, int64_t timeout_ms);

struct mcs_put_item {
	struct mcs_key key;
	const struct iovec *iov;
	int iovcnt;
	int result;			/* filled in: as returned by mcs_put() */
	int existed;			/* filled in: 1 when the key had a value, nothing was written */
	struct mcs_key group;		/* instead of that of the options; empty: that of the options */
	uint64_t generation;		/* filled in: of the stored version; 0: none was stored, or through a daemon */
};
/* Many at once: one request to the master per step, all transfers at the same time.  Number of
 * items that succeeded, or negative: nothing was attempted.  Of items with the same key the
 * first is stored (with MCS_PUT_LAST the last); the others get its result. */
int mcs_put_batch(mcs_t *s, struct mcs_put_item *items, unsigned n,
		  const struct mcs_put_opts *opts, int64_t timeout_ms);

/* The same with MCS_PUT_UPSERT. */
int mcs_upsert(mcs_t *s, struct mcs_key key, const struct iovec *iov, int iovcnt,
	       const struct mcs_put_opts *opts, int64_t timeout_ms);
int mcs_upsert_batch(mcs_t *s, struct mcs_put_item *items, unsigned n,
		     const struct mcs_put_opts *opts, int64_t timeout_ms);

/* ---- streams: puts whose bytes arrive one after another ------------------------------------------- */

typedef struct mcs_put_stream mcs_stream_t;

/* Begin a put of up to @room bytes, whose size need not be known yet; space in the pool is
 * allocated now. The object is not visible before mcs_stream_commit().  -MCS_ENOTSUP: through a
 * daemon, the master is too old, or with MCS_PUT_NOF.  The put is aborted 30 s after its begin, and when the
 * connection to the master is lost: mcs_errno() of later calls is ESTALE then. */
int mcs_stream_open(mcs_t *s, struct mcs_key key, uint64_t room, const struct mcs_put_opts *opts,
		    mcs_stream_t **ret, int64_t timeout_ms);
uint64_t mcs_stream_room(const mcs_stream_t *st);
/* The generation of the version that a commit publishes. */
uint64_t mcs_stream_generation(const mcs_stream_t *st);
/* Store bytes at @offset, a multiple of 64 KiB; their number is one too, except at the end.  In any order, also
 * over bytes that were stored before; several threads may write at a time, but not to the same bytes. */
int mcs_stream_write(mcs_stream_t *st, uint64_t offset, const struct iovec *iov, int iovcnt,
		     int64_t timeout_ms);
/* Publish the first @size bytes, all of which must have been stored.  0 or an error as of
 * mcs_put(), but a key that has a value is -MCS_EEXISTS unless this is an upsert.  mcs_errno()
 * ESTALE: the key has another value, or none; mcs_put() can store these bytes.  Frees the
 * stream, also on failure. */
int mcs_stream_commit(mcs_stream_t *st, uint64_t size, int64_t timeout_ms);
/* Free the space and the stream; nothing is published.  NULL is fine. */
void mcs_stream_drop(mcs_stream_t *st, int64_t timeout_ms);
/* Attributes instead of those of the options; before the commit. */
void mcs_stream_set_attrs(mcs_stream_t *st, const struct mcs_attrs *attrs);

/* ---- get --------------------------------------------------------------------------------------- */

struct mcs_info {
	uint64_t size;
	uint64_t generation;		/* version: differs between any two puts */
	uint64_t mtime_ms;		/* when it was committed, Unix epoch */
	uint32_t crc32c;		/* CRC32C of all bytes */
	enum mcs_kind kind;
	/* MCS_PUT_HARD_PIN, MCS_PUT_SOFT_PIN; MCS_IN_MEMORY, MCS_IN_FAR_MEMORY, MCS_ON_DISK, MCS_ON_SHARED: it has a
	 * readable replica there */
	unsigned flags;
	unsigned replicas;		/* readable ones */
	enum mcs_data_type data_type;
	uint32_t soft_pin_ms;		/* remaining time of the soft pin, 0: none */
	struct mcs_attrs attrs;		/* set: 0 if it has none, and through a daemon */
};

/* Read the whole object.  Returns its size; -ENOBUFS: @iov is smaller, and unchanged. */
int64_t mcs_get(mcs_t *s, struct mcs_key key, const struct iovec *iov, int iovcnt,
		int64_t timeout_ms);

/* Read the bytes from @offset on that fit into @iov; returns their number (less only at the end). */
int64_t mcs_get_range(mcs_t *s, struct mcs_key key, uint64_t offset, const struct iovec *iov,
		      int iovcnt, int64_t timeout_ms);

struct mcs_get_item {
	struct mcs_key key;
	uint64_t offset;		/* with whole = 0 */
	int whole;			/* 1: as mcs_get(), 0: as mcs_get_range() */
	const struct iovec *iov;
	int iovcnt;
	int64_t result;			/* filled in */
};
/* Number of items that succeeded, or negative: nothing was attempted. */
int mcs_get_batch(mcs_t *s, struct mcs_get_item *items, unsigned n, int64_t timeout_ms);

/* Read the whole object into new memory; free() it. */
int64_t mcs_get_alloc(mcs_t *s, struct mcs_key key, void **ret_data, int64_t timeout_ms);

/* Return memory for the @size bytes of item @index; NULL: none, the item fails with -ENOMEM. Called in the
 * caller's thread, without locks.  Called again when the object changed before it was read: the memory that was
 * returned for the item before is not used any more, but still belongs to the provider. */
typedef void *(*mcs_alloc_fn)(void *arg, unsigned index, uint64_t size);
/* As mcs_get_batch() of whole objects, into memory that @alloc returns when their sizes are
 * known; the items' iov are not used.  Memory of failed items has undefined contents. */
int mcs_get_batch_alloc(mcs_t *s, struct mcs_get_item *items, unsigned n, mcs_alloc_fn alloc,
			void *arg, int64_t timeout_ms);

int mcs_stat(mcs_t *s, struct mcs_key key, struct mcs_info *ret, int64_t timeout_ms);
/* Many at once, in one request: results[i] and infos[i] as of mcs_stat().  A key that ends in
 * '/' is also found if there is no such marker but keys begin with it: as MCS_DIR with
 * generation 0.  Number found, or negative: the request failed. */
int mcs_stat_batch(mcs_t *s, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
		   int *results, int64_t timeout_ms);

/* present[i] = 1 or 0.  A present object is kept for the master's lease time, so that a
 * following get finds it.  Number of present keys. */
int mcs_exist(mcs_t *s, const struct mcs_key *keys, unsigned n, uint8_t *present,
	      int64_t timeout_ms);

/* The same without keeping the objects, and without counting as a use of them. */
int mcs_probe(mcs_t *s, const struct mcs_key *keys, unsigned n, uint8_t *present, int64_t timeout_ms);

/* One copy of an object. */
struct mcs_replica {
	char segment_id[44];		/* as in struct mcs_segment */
	char segment[256];		/* its name */
	char endpoint[256];		/* host:port of the owner's transfer engine */
	char protocol[32];
	uint64_t address;		/* in the owner's address space */
	uint64_t size;
	int readable;			/* its owner is connected */
	const char *state;		/* the segment's, as in struct mcs_segment; static */
	int on_disk;			/* the segment is on a disk; @address cannot be mapped then */
	int rank;			/* as in struct mcs_segment */
	char path[256];			/* path of its file in a shared directory; "": it has none */
	int nof;			/* as in struct mcs_segment */
};

struct mcs_replicas {
	int result;			/* 0, or an error as of mcs_stat(); then the rest is empty */
	struct mcs_info info;
	unsigned n;
	struct mcs_replica *replica;	/* NULL: none (objects of 0 bytes) */
	struct mcs_key group;		/* empty: none */
};

#define MCS_PROMISE		0x1u	/* keep the objects as mcs_exist() does */

/* The locations of objects: all copies, also those that cannot be read now.  ret[i] is filled for each key and
 * must be passed to mcs_replicas_free().  Number of keys found, or negative: nothing is filled. */
int mcs_replicas(mcs_t *s, const struct mcs_key *keys, unsigned n, unsigned flags,
		 struct mcs_replicas *ret, int64_t timeout_ms);
void mcs_replicas_free(struct mcs_replicas *r, unsigned n);

/* ---- places: versions and locations of objects, for several reads ------------------------------------ */

typedef struct mcs_places mcs_places_t;

/* Look up @n keys, and keep the versions for the master's lease time, also when @ret is freed earlier.  An invalid
 * key is a miss.  Not to be used with another handle. */
int mcs_places_find(mcs_t *s, const struct mcs_key *keys, unsigned n, mcs_places_t **ret, int64_t timeout_ms);
/* As mcs_get_batch(), but reads the versions that were found, and asks the master only about those that cannot be
 * read.  In the second half of the lease time all are looked up again first.  Result -MCS_EPARAM: the key is not one of
 * those looked up.  Through a daemon the current versions are read.  Any thread. */
int mcs_places_read(mcs_t *s, mcs_places_t *p, struct mcs_get_item *items, unsigned n, int64_t timeout_ms);
void mcs_places_free(mcs_places_t *p);		/* NULL is fine; also after mcs_close() */

/* ---- open objects: one version, until it is closed ----------------------------------------------- */

typedef struct mcs_object mcs_object_t;

/* Pin the current version: it is not evicted, and stays readable when the key is removed,
 * renamed or replaced.  It is lost when its owner's memory is lost: then reads fail with
 * -MCS_EREPLICA_GONE. */
int mcs_object_open(mcs_t *s, struct mcs_key key, mcs_object_t **ret, int64_t timeout_ms);
/* As mcs_stat_batch() of up to MCS_STAT_OPEN_MAX keys, and open keys[0] with the same request,
 * for callers that would open it next.  *ret is NULL if it has no value that can be read now
 * (results[0] need not be negative then); through the node's daemon it is always NULL.  An
 * invalid key fails the call. */
#define MCS_STAT_OPEN_MAX 2u
int mcs_stat_open(mcs_t *s, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
		  int *results, mcs_object_t **ret, int64_t timeout_ms);
const struct mcs_info *mcs_object_info(const mcs_object_t *o);
int64_t mcs_object_read(mcs_object_t *o, uint64_t offset, const struct iovec *iov, int iovcnt,
			int64_t timeout_ms);
/* The same into one buffer, without waiting: @done is called once with the result of mcs_object_read(), on a
 * thread of the library, or before this returns if the bytes are available at once.  @done may call everything
 * except mcs_close(), and should not wait for long.  @buf must stay valid until then; the object may be closed
 * meanwhile.  0, or negative: nothing was started and @done is not called. */
typedef void (*mcs_read_done_fn)(void *arg, int64_t result);
int mcs_object_read_start(mcs_object_t *o, uint64_t offset, void *buf, size_t len,
			  int64_t timeout_ms, mcs_read_done_fn done, void *arg);
/* The object's bytes without a copy, if they are in memory that this process can map.  The pointer
 * is readable until mcs_object_close().  The bytes are not verified: mcs_object_verify() does
 * that.  -MCS_ENOTSUP: the memory is on another host.
 *
 * A pin needs the connection to the master: while that is lost, the memory may be reused for
 * another object. So proceed as with a sequence lock: use the bytes, then call
 * mcs_object_held(), and use results made from the bytes only if it returns 0. */
int mcs_object_map(mcs_object_t *o, const void **ret_data, int64_t timeout_ms);
/* 0: since mcs_object_open() the memory has always belonged to this version.
 * -MCS_EREPLICA_GONE: unknown; bytes that were read through the pointer since the last 0 may be
 * those of another object.  It can return 0 again after a new connection has found the version
 * in the same memory.  Sends no request, unless the master has been silent for long (then it
 * takes at most one second). */
int mcs_object_held(mcs_object_t *o);
/* The object's offset in the memory of mcs_segment_fd().  -MCS_ENOTSUP: it is not there. */
int mcs_object_offset(mcs_object_t *o, uint64_t *ret_offset);
int mcs_object_verify(mcs_object_t *o);		/* 0 or -MCS_ECHECKSUM */
void mcs_object_close(mcs_object_t *o);		/* NULL is fine */

/* ---- maps: objects as memory --------------------------------------------------------------------- */

struct mcs_map {
	const void *data;		/* `size` bytes, for reading; on a 64-byte boundary */
	uint64_t size, generation, mtime_ms;
	uint32_t crc32c;		/* CRC32C of all bytes; they are not compared with it */
	enum mcs_kind kind;
	void *hold;			/* private to the library */
};

/* Accept the version that the node knew at most a second ago; ask the master only if the node
 * knows none.  For keys whose value never changes. */
#define MCS_MAP_HOT		0x1u

/* Map the current version of an object, without a copy if it is on this host; a daemon fetches
 * an object of another node first.  The version is kept, and its memory not reused, until
 * mcs_unmap() or the end of the process.  -MCS_ENOTSUP: it cannot be mapped. */
int mcs_map(mcs_t *s, struct mcs_key key, unsigned flags, struct mcs_map *ret, int64_t timeout_ms);
/* results[i] as of mcs_map().  Number of mapped objects, or negative: none. */
int mcs_map_batch(mcs_t *s, const struct mcs_key *keys, unsigned n, unsigned flags,
		  struct mcs_map *ret, int *results, int64_t timeout_ms);
/* As mcs_object_held(): call it after using the bytes. */
int mcs_map_held(mcs_t *s, const struct mcs_map *map);
void mcs_unmap(mcs_t *s, struct mcs_map *map);	/* once; a zeroed map is fine */
/* Have the daemon copy an object to this node; does nothing without a daemon. */
int mcs_prefetch(mcs_t *s, struct mcs_key key, int64_t timeout_ms);

/* ---- names ------------------------------------------------------------------------------------- */

#define MCS_REMOVE_FORCE	0x1u	/* also while it is read; running reads complete */

/* -MCS_ELEASED while leased.  A key that ends in '/' is a directory marker: mcs_errno() of the
 * result is ENOTEMPTY while other keys begin with it. */
int mcs_remove(mcs_t *s, struct mcs_key key, unsigned flags, int64_t timeout_ms);
/* results[i] as of mcs_remove(); may be NULL.  Number removed. */
int mcs_remove_batch(mcs_t *s, const struct mcs_key *keys, unsigned n, unsigned flags, int *results,
		     int64_t timeout_ms);
/* Free the copies in the segments of @segment, a name or the endpoint of memory; NULL or "": all copies.  The other
 * copies stay.  results[i], which may be NULL, as of mcs_remove(); -MCS_EREPLICA: no copy is there.  Number of keys
 * with result 0; -MCS_ENOTSUP: the master has an earlier version. */
int mcs_clear_batch(mcs_t *s, const struct mcs_key *keys, unsigned n, const char *segment, int *results,
		    int64_t timeout_ms);
/* ---- attributes of files --------------------------------------------------------------------------- */

#define MCS_SET_NOW		0x01u	/* mtime_ns is the master's present time */
#define MCS_XATTR_CREATE	0x02u	/* -EEXIST if there is one of this name */
#define MCS_XATTR_REPLACE	0x04u	/* -ENODATA if there is none */
#define MCS_XATTR_REMOVE	0x08u	/* remove it; -ENODATA if there is none */
#define MCS_XATTR_NAME_MAX	250u
#define MCS_XATTRS_MAX		4072u	/* bytes of names and values, and 3 for each, of one object */

struct mcs_xattr {
	struct mcs_key name;		/* without "user."; no NUL; "mooncake." at its begin is reserved for mounts */
	struct mcs_key value;
};
/* Change attributes of an object, or of a directory's marker (a key that ends in '/'), in one request; its bytes and
 * its generation stay.  Those in attrs->set get new values (MODE, UID, GID, MTIME), @xattr is added, replaced or
 * removed; both may be NULL.  The time of change becomes the master's present time (of a directory, up to 1 ms later).
 * @generation: only if the key has this version, else -ESTALE; 0: any.  @seen: only if the owner is still the one that
 * the caller saw and for which it checked that the change is permitted, else -ESTALE: the attribute UID of the object
 * equals seen->uid or, without UID in seen->set, the object has no attribute UID; NULL: any.  *ret (NULL: not needed)
 * is as of mcs_stat_batch().  -MCS_ENOOBJECT; -EEXIST, -ENODATA; -ENOSPC: more than MCS_XATTRS_MAX; -ERANGE,
 * -MCS_EPARAM: the name is too long or empty, is reserved or contains NUL; -MCS_ENOTSUP: the master has an earlier
 * version.  If the connection to the master breaks, the request is repeated: its conditions may fail then because the
 * first attempt made the change. */
int mcs_set_attrs(mcs_t *s, struct mcs_key key, uint64_t generation, unsigned flags, const struct mcs_attrs *seen,
		  const struct mcs_attrs *attrs, const struct mcs_xattr *xattr, struct mcs_info *ret,
		  int64_t timeout_ms);
/* The extended attributes of an object: *ret is an array of *ret_n, to be freed with free().  *ret_info (NULL: not
 * needed) is as of mcs_stat_batch(). */
int mcs_get_xattrs(mcs_t *s, struct mcs_key key, struct mcs_xattr **ret, unsigned *ret_n, struct mcs_info *ret_info,
		   int64_t timeout_ms);

/* ---- import ---- */

struct mcs_import {
	uint64_t found, found_bytes;	/* objects of the segment, and their bytes there */
	uint64_t done_bytes;		/* those of objects that were handled */
	uint64_t imported;
	uint64_t existed;		/* the key had this value already */
	uint64_t differ;		/* the key has another value in this pool, which stays */
	uint64_t failed;
	uint64_t evicted;		/* imported ones that are not in the pool any more at the end */
};
/* One object was handled: 0 or an error, and then mcs_error_detail() has the reason.  @key is empty if its name is not
 * known.  Called by several threads, one at a time. */
typedef void (*mcs_import_fn)(void *arg, const struct mcs_import *so_far, const char *tenant, struct mcs_key key,
			      int result);
/* Put the objects of an S3 segment of another pool into this one.  @place is as mcs_conf.s3_path, and is only read, so
 * the other pool may go on.  An object keeps its tenant, group, kind, pins and attributes, and its bytes are compared
 * with its checksum.  Each object may wait @timeout_ms (-1: the default of the handle) for the server and for space.
 * @fn may be NULL.  0 if the walk ended, also with objects that failed; -ENOENT: there is no segment;
 * -MCS_EUNAVAILABLE: the server does not answer; -MCS_ENOTSUP: the master is too old; ... */
int mcs_import(mcs_t *s, const char *place, unsigned threads, int64_t timeout_ms, mcs_import_fn fn, void *arg,
	       struct mcs_import *ret);

/* Copy objects soon to @medium (MCS_IN_MEMORY, MCS_IN_FAR_MEMORY, MCS_ON_DISK or MCS_ON_SHARED) of the node that has
 * them; does not wait for the copies.  results[i], which may be NULL: 0 also when there is one, or one on a later rank
 * than that of a disk; -MCS_ENOOBJECT; -MCS_EUNAVAILABLE: the node has none, or too many objects wait there.  Returns
 * the number of keys with result 0. */
int mcs_tier(mcs_t *s, const struct mcs_key *keys, unsigned n, unsigned medium, int *results, int64_t timeout_ms);
/* Remove the disks of this process from the pool, with their objects, and use none from now on. */
int mcs_disks_remove(mcs_t *s, int64_t timeout_ms);
/* Remove all keys with @prefix (may be empty) in which the PCRE2 @pattern matches anywhere
 * (NULL: all).  Leased objects are skipped unless forced.  Number removed. */
int64_t mcs_remove_match(mcs_t *s, struct mcs_key prefix, const char *pattern, unsigned flags,
			 int64_t timeout_ms);

/* Remove all keys of @tenant (NULL: of every tenant).  Number removed. */
int64_t mcs_remove_tenant(mcs_t *s, const char *tenant, unsigned flags, int64_t timeout_ms);

#define MCS_RENAME_NOREPLACE	0x1u
/* Atomic: every reader sees the object under the old name or the new one.  Replaces @to. */
int mcs_rename(mcs_t *s, struct mcs_key from, struct mcs_key to, unsigned flags,
	       int64_t timeout_ms);
/* The same.  The object gets a new generation: *ret_was has the old one (0: the master has an earlier version and does
 * not tell), *ret_now the new one. */
int mcs_rename_version(mcs_t *s, struct mcs_key from, struct mcs_key to, unsigned flags, uint64_t *ret_was,
		       uint64_t *ret_now, int64_t timeout_ms);

/* Give the object of @from (no directory) a second name @to, atomically: reads of both give the same bytes, and the
 * attributes have MCS_ATTR_LINKED, ino (*ret_ino) and nlink, the number of names.  A put replaces one name only; a put
 * of the shared key, MCS_LINKS_DIR and ino as 16 hexadecimal digits, is seen under all names.  The object, which keeps
 * its generation (*ret_generation), is removed with its last name.  @ino: its number, also if it has none, 0: any.
 * -ESTALE: it has another; MCS_EEXISTS, MCS_ENOOBJECT; MCS_ENOTSUP: an earlier master or standby. */
#define MCS_LINKS_DIR ".mcfs-links/"
int mcs_link(mcs_t *s, struct mcs_key from, struct mcs_key to, uint64_t ino, uint64_t *ret_ino,
	     uint64_t *ret_generation, int64_t timeout_ms);

/* Give the directory @from the name @to, and everything below it keys that begin with @to; both end in '/'.  Atomic, as
 * above; the objects keep their generations.  An empty directory @to is replaced, of another the errno is ENOTEMPTY.
 * *ret_moved (NULL allowed): number of objects.  MCS_ELIMIT: too much is below it, MCS_ENOTSUP: an earlier master; then
 * copy and remove, or rename each object.  MCS_EPARAM: into itself; MCS_ENOOBJECT; MCS_EEXISTS. */
int mcs_rename_dir(mcs_t *s, struct mcs_key from, struct mcs_key to, unsigned flags, uint64_t *ret_moved,
		   int64_t timeout_ms);

struct mcs_entry {
	struct mcs_key name;		/* valid until the next mcs_list_next() */
	uint64_t size, generation, mtime_ms;
	enum mcs_kind kind;
	unsigned media;			/* MCS_IN_MEMORY, ...; 0: no bytes, or an older master */
	/* As mcs_info.attrs.  set: 0 if it has none, with an older master, and through a daemon. */
	struct mcs_attrs attrs;
	uint64_t asked_ns;		/* CLOCK_MONOTONIC, when the master was asked: it may be out of date since */
};
typedef struct mcs_list mcs_list_t;
/* List all keys with a prefix (dir 0), or the names directly below a directory (dir 1; @prefix
 * "" or ending in '/'; subdirectories once each, without the '/').  A subdirectory has the attributes of its marker,
 * the time of the last change among its children and nlink, also without a marker. */
int mcs_list_open(mcs_t *s, struct mcs_key prefix, int dir, mcs_list_t **ret);
/* 1 and the next entry, 0 at the end, negative on failure. */
int mcs_list_next(mcs_list_t *l, struct mcs_entry *ret, int64_t timeout_ms);
void mcs_list_close(mcs_list_t *l);

/* ---- the pool ---------------------------------------------------------------------------------- */

struct mcs_pool {
	uint64_t capacity, used, evictable, objects;	/* bytes, bytes, bytes, number */
	uint64_t evictions, evicted_bytes, puts_refused;
	uint64_t largest_put;				/* biggest object that could be stored */
	uint32_t segments, clients;
	uint64_t disk_capacity, disk_used;		/* the fields above are about memory */
};
int mcs_pool_stat(mcs_t *s, struct mcs_pool *ret, int64_t timeout_ms);

struct mcs_segment {
	char id[44];			/* upstream's form: two decimal numbers joined by '-' */
	char name[256];
	uint64_t size, used, largest_free, objects;
	const char *state;		/* "ok", "draining", "drained", "silent", "unmounting", "confirming", or
					 * "paused": the device of a disk does not work; static */
	int on_disk;
	int rank;			/* 0: near memory, 1: far memory, 2: a disk of the node, 3: shared */
	int nof;			/* a disk that its owner reaches over a network */
};
/* Array of all segments; free() it.  Number of them. */
int mcs_segments(mcs_t *s, struct mcs_segment **ret, int64_t timeout_ms);

struct mcs_tenant {
	char name[256];
	uint64_t requested;		/* quota of its policy in bytes, 0: none */
	uint64_t effective;		/* less if all quotas together exceed the capacity */
	uint64_t charged, objects;	/* bytes of objects times their copies; number */
	int explicit_policy;		/* listed in the policy: it may store objects */
	int admission_closed;		/* being removed: no new objects */
};
/* Array of all tenants, or of @tenant only; free() it.  Number of them.  -MCS_EMODE: the master
 * has no tenants; -MCS_ENOTENANT. */
int mcs_tenants(mcs_t *s, const char *tenant, struct mcs_tenant **ret, int64_t timeout_ms);
/* Write a quota into the policy; 0 removes the tenant from it: -MCS_ETENANT_BUSY while it has objects. */
int mcs_quota_set(mcs_t *s, const char *tenant, uint64_t bytes, int64_t timeout_ms);

/* ---- tasks: long-running work on objects -------------------------------------------------------- */

enum mcs_task_kind {
	MCS_TASK_COPY,		/* the object @key to each of @targets */
	MCS_TASK_MOVE,		/* the object @key from one segment to another */
	MCS_TASK_DRAIN,		/* move all objects out of @sources, which take no new objects from now on */
	MCS_TASK_EVICT,		/* evict all evictable objects in @sources */
	MCS_TASK_REBALANCE	/* move objects from full segments to empty ones */
};
#define MCS_TASK_ID 44		/* bytes of an id as text: two decimal numbers joined by '-' */

struct mcs_task_opts {
	enum mcs_task_kind kind;
	struct mcs_key key;
	const char *const *sources;	/* names of segments, NULL-ended; NULL: none */
	const char *const *targets;	/* NULL: any (a copy needs some) */
	unsigned max_active;		/* objects copied at a time, 0: 4 */
};

struct mcs_task {
	char id[MCS_TASK_ID];
	const char *kind;		/* "copy", "move", "drain", ...; static */
	const char *status;		/* "pending", "running", "succeeded", "failed", "canceled" */
	unsigned char key[4096];
	size_t key_len;
	char sources[1024], targets[1024];	/* joined by commas; long lists are cut */
	uint64_t created_ms, updated_ms;	/* Unix epoch */
	uint64_t succeeded, failed;	/* objects */
	uint64_t blocked;		/* ranges that wait for readers or for unfinished puts */
	uint64_t active;		/* running copies */
	uint64_t bytes;			/* moved, or evicted */
	uint64_t total, left;		/* bytes in the sources, or to be copied of one object: at first, and now */
	int error;			/* why it failed */
	char message[160];
	char tenant[256];		/* the tenant of the key */
	uint64_t given_up;		/* copies that a drain dropped: their objects have others, and no segment
					 * without one takes them */
	uint64_t total_objects, left_objects;	/* as total and left */
	uint64_t rate;			/* bytes of @left per second, lately; 0: not known */
};

/* The owners of the memory carry the task out for the master; objects stay readable all the
 * time.  A drain succeeds when the sources are empty.  The message of a running task is the reason why it waits, if it
 * does. */
int mcs_task_create(mcs_t *s, const struct mcs_task_opts *opts, char ret_id[MCS_TASK_ID],
		    int64_t timeout_ms);
/* Array of tasks, newest first, or of the one with @id; free() it.  Number of them. */
int mcs_tasks(mcs_t *s, const char *id, struct mcs_task **ret, int64_t timeout_ms);
/* End the task; objects that were moved stay where they are.  Segments of a drain, also of one
 * that has succeeded, take new objects again. */
int mcs_task_cancel(mcs_t *s, const char *id, int64_t timeout_ms);

/* ---- events: changes of keys ---------------------------------------------------------------------- */

enum mcs_event_type {
	MCS_EVENT_PUT,		/* has a new value */
	MCS_EVENT_REMOVE,	/* was removed */
	MCS_EVENT_EVICT,	/* was evicted, or lost with its memory */
	MCS_EVENT_RENAME,	/* is now called @to */
	MCS_EVENT_ATTRS,	/* its attributes changed, not its value */
	MCS_EVENT_GAP		/* @lost events were missed: read the state of the keys again */
};

struct mcs_event {
	enum mcs_event_type type;
	struct mcs_key key, to;		/* valid until the next mcs_watch_next() */
	uint64_t sequence;		/* grows */
	uint64_t time_ms;		/* Unix epoch */
	uint64_t size, generation;	/* the value that was put, renamed or is gone */
	enum mcs_kind kind;
	uint64_t lost;
};
typedef struct mcs_watch mcs_watch_t;
/* Report changes of keys with this prefix from now on (a rename counts for both names).  @types: bits 1u <<
 * MCS_EVENT_*, 0: all.  The master keeps a bounded number of events: a watch that reads too slowly, or from a
 * master that has restarted, gets MCS_EVENT_GAP.  One thread at a time per watch. */
int mcs_watch_open(mcs_t *s, struct mcs_key prefix, unsigned types, mcs_watch_t **ret,
		   int64_t timeout_ms);
/* 1 and the next event; 0: none within the timeout; negative: failed, the watch can be used
 * again.  The master has at least a second to answer. */
int mcs_watch_next(mcs_watch_t *w, struct mcs_event *ret, int64_t timeout_ms);
void mcs_watch_close(mcs_watch_t *w);		/* NULL is fine */

/* Prometheus text of this process's metrics; free() it.  NULL without memory. */
char *mcs_metrics_text(void);

#ifdef __cplusplus
}
#endif

#endif
