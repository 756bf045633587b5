/* SPDX-License-Identifier: Apache-2.0
 * backend.h - the interface between the public calls and the two ways to carry them out.
 *
 * The direct back end (client/direct/) has an engine and a session of its own.  The daemon back end
 * (client/daemon/) lets the node's daemon do the work.  The public functions check their arguments
 * and call a slot of the table.  They do not know which back end they call.
 *
 * All slots may be called from any thread.  @deadline is absolute (mc_now_ns()).  The caller has
 * checked keys, flags and fork() unless a slot says otherwise. */
#ifndef MCS_BACKEND_H
#define MCS_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "client/batch_dedup.h"
#include "client/scratch.h"
#include "client/session/session.h"
#include <mooncake/mcs.h>

struct mcs_backend {
	/* constant after open */
	const struct mcs_backend_ops *ops;
	const struct mcs *store;		/* the handle */
	struct mcs_scratch_pool *scratch;	/* the handle's */
	struct mcs_session *session;	/* to the master; this back end owns it */
	struct mcp_bytes tenant;	/* in each message that names keys; "": the default tenant */
	const char *hostname;		/* for mcs_hostname() */
	const char *daemon;		/* for mcs_daemon(): the daemon's address, NULL: direct */
};

/* An open object; a map holds one too.  Each back end's own struct begins with it. */
struct mcs_object {
	/* constant after open */
	struct mcs_backend *backend;
	const struct mcs_info *info;	/* points into the back end's struct */
};

/* The versions of keys at one time, and their locations.  Freed with free(). */
struct mcs_found {
	uint64_t until_ns;		/* look them up again from this time on */
	struct mcs_backend *backend;
};

struct mcs_backend_ops {
	bool has_attrs;			/* stat tells the attributes of files; so do listings then */

	/* Free the back end.  No call is running, and all objects are closed. */
	void (*close)(struct mcs_backend *b);
	/* May the direct back end replace this one now?  Asked after a call failed with
	 * -MC_ERPC.  True only for a daemon that the client found itself and that does not run
	 * any more. */
	bool (*replaceable)(struct mcs_backend *b);
	/* As mcs_health(). */
	int (*health)(struct mcs_backend *b);

	/* The segment of this process: as mcs_segment_*().  -EINVAL: there is none. */
	int (*segment_grow)(struct mcs_backend *b, uint64_t size, uint64_t deadline);
	int (*segment_fd)(struct mcs_backend *b, uint64_t *ret_size);
	int (*segment_identity)(struct mcs_backend *b, uint64_t *identity);
	/* As mcs_disks_remove(); 0 without disks. */
	int (*disks_remove)(struct mcs_backend *b, uint64_t deadline);

	/* Memory of the program; @buf and @len are not 0.  As the functions of the same name. */
	int (*register_buffer)(struct mcs_backend *b, void *buf, size_t len);
	int (*register_memfd)(struct mcs_backend *b, void *buf, size_t len, int fd, uint64_t fd_offset);
	int (*unregister_buffer)(struct mcs_backend *b, void *buf);
	void *(*pool_alloc)(struct mcs_backend *b, size_t len);
	void (*pool_free)(struct mcs_backend *b, void *p);

	/* Store the items that @dedup does not skip, then give the skipped items the results of
	 * the stored ones.  Keys are not checked yet.  Each item gets its result; a negative
	 * return value is the last failure that was not one item's own. */
	int (*put_batch)(struct mcs_backend *b, struct mcs_put_item *items, unsigned n,
			 const struct mcs_dedup *dedup, const struct mcs_put_opts *opts, uint64_t deadline);
	/* As mcs_stream_open(); @opts is not NULL.  The stream's other functions belong to the
	 * direct back end, which is the only one that has put streams. */
	int (*put_stream_open)(struct mcs_backend *b, struct mcs_key key, uint64_t room,
			       const struct mcs_put_opts *opts, struct mcs_put_stream **ret, uint64_t deadline);
	/* Read the items whose result is -MC_ERPC; the others were read before.  @alloc NULL:
	 * into the items' iov.  Keys are not checked yet.  Results as for put_batch. */
	int (*get_batch)(struct mcs_backend *b, struct mcs_get_item *items, unsigned n, mcs_alloc_fn alloc,
			 void *arg, uint64_t deadline);
	/* Look up and lease @n keys, whose number may be 0.  get_found: read item i of the key @which[i] of those;
	 * results as for get_batch. */
	int (*find)(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_found **ret,
		    uint64_t deadline);
	int (*get_found)(struct mcs_found *f, const unsigned *which, struct mcs_get_item *items, unsigned n,
			 uint64_t deadline);
	/* As the functions of the same name; the keys of batches are not checked yet. */
	int (*stat)(struct mcs_backend *b, struct mcs_key key, struct mcs_info *ret, uint64_t deadline);
	int (*stat_batch)(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
			  int *results, uint64_t deadline);
	int (*exist)(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, uint8_t *present,
		     uint64_t deadline);
	int (*remove_batch)(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, unsigned flags,
			    int *results, uint64_t deadline);
	/* Bring an object to this node. */
	int (*prefetch)(struct mcs_backend *b, struct mcs_key key, uint64_t deadline);

	/* As mcs_object_*() and mcs_stat_open().  An object is closed by the back end that opened it. */
	int (*object_open)(struct mcs_backend *b, struct mcs_key key, struct mcs_object **ret, uint64_t deadline);
	int (*stat_open)(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, struct mcs_info *infos,
			 int *results, struct mcs_object **ret, uint64_t deadline);
	int64_t (*object_read)(struct mcs_object *o, uint64_t offset, const struct iovec *iov, int iovcnt,
			       uint64_t deadline);
	int (*object_read_start)(struct mcs_object *o, uint64_t offset, void *buf, size_t len, uint64_t deadline,
				 mcs_read_done_fn done, void *arg);
	int (*object_map)(struct mcs_object *o, const void **ret_data, uint64_t deadline);
	int (*object_held)(struct mcs_object *o);
	int (*object_offset)(struct mcs_object *o, uint64_t *ret_offset);
	int (*object_verify)(struct mcs_object *o);
	void (*object_close)(struct mcs_object *o);
	/* As mcs_map_batch(); ret[i] is 0 before.  A map holds an open object. */
	int (*map_batch)(struct mcs_backend *b, const struct mcs_key *keys, unsigned n, unsigned flags,
			 struct mcs_map *ret, int *results, uint64_t deadline);
};

/* The back end that a call of @s uses now.  It stays valid until mcs_close(), also when it is
 * replaced meanwhile. */
struct mcs_backend *mcs_backend_get(struct mcs *s);
/* A call to *b ended with @err.  True: another back end replaces *b, repeat the call with that
 * one.  The first time this opens the direct back end. */
bool mcs_backend_replace(struct mcs *s, struct mcs_backend **b, int err);

/* The map of an open object whose bytes are at @data. */
static inline struct mcs_map mcs_map_of(struct mcs_object *o, const void *data)
{
	return (struct mcs_map){
		.data = data, .size = o->info->size, .generation = o->info->generation,
		.mtime_ms = o->info->mtime_ms, .crc32c = o->info->crc32c, .kind = o->info->kind, .hold = o,
	};
}

#endif
