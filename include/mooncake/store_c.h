/* SPDX-License-Identifier: Apache-2.0
 * store_c.h - the store's C ABI under the names, layouts and results of upstream's header of the same name:
 * programs and bindings built for upstream link and run unchanged.  mcs.h has more functions for new programs.
 *
 * Results: 0, a count, or upstream's ErrorCode (negative); -1 for NULL arguments.  A put of an
 * existing key returns 0.  Strings and arrays are not used after the call. */
#ifndef MOONCAKE_STORE_C_H
#define MOONCAKE_STORE_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void *mooncake_store_t;

struct mooncake_replicate_config {
	size_t replica_num;
	int with_soft_pin;
	int with_hard_pin;
	const char **preferred_segments;
	size_t preferred_segments_count;
};
typedef struct mooncake_replicate_config mooncake_replicate_config_t;

mooncake_store_t mooncake_store_create(void);	/* NULL without memory */
void mooncake_store_destroy(mooncake_store_t store);

/* NULL protocol is "tcp", NULL master_server_addr "127.0.0.1:50051".  "rdma" uses the NICs of
 * device_name ("mlx5_0,mlx5_1"; NULL or "": all).  Upstream's other protocols ("efa", ...) are replaced by "tcp", with
 * one warning in the log; -600 for a name that is none.  metadata_server is ignored: the master knows all segments. */
int mooncake_store_setup(mooncake_store_t store, const char *local_hostname,
			 const char *metadata_server, uint64_t global_segment_size,
			 uint64_t local_buffer_size, const char *protocol, const char *device_name,
			 const char *master_server_addr);
int mooncake_store_init_all(mooncake_store_t store, const char *protocol, const char *device_name,
			    uint64_t mount_segment_size);
/* A store without memory and connections of its own: the node's daemon (mooncake_client or mcfs,
 * started by the same user or root) does the work.  server_address is "host:port" with the
 * daemon's port; NULL: 127.0.0.1:50052.  mem_pool_size is for
 * mooncake_store_alloc_from_mem_pool(), local_buffer_size for values in other memory. */
int mooncake_store_setup_dummy(mooncake_store_t store, size_t mem_pool_size,
			       size_t local_buffer_size, const char *server_address);
/* Memory that is transferred without a copy and needs no registration; NULL: none is left.  It
 * is freed with the store. */
void *mooncake_store_alloc_from_mem_pool(mooncake_store_t store, size_t size);
/* 0 healthy, 1 not set up, 2 master not reachable. */
int mooncake_store_health_check(mooncake_store_t store);

int mooncake_store_put(mooncake_store_t store, const char *key, const void *value, size_t size,
		       const mooncake_replicate_config_t *config);
int mooncake_store_put_from(mooncake_store_t store, const char *key, void *buffer, size_t size,
			    const mooncake_replicate_config_t *config);
int mooncake_store_batch_put_from(mooncake_store_t store, const char **keys, void **buffers,
				  const size_t *sizes, size_t count,
				  const mooncake_replicate_config_t *config, int *results_out);

/* Number of bytes, or negative; a buffer that is too small is unchanged. */
int64_t mooncake_store_get_into(mooncake_store_t store, const char *key, void *buffer, size_t size);
int mooncake_store_batch_get_into(mooncake_store_t store, const char **keys, void **buffers,
				  const size_t *sizes, size_t count, int64_t *results_out);

int mooncake_store_is_exist(mooncake_store_t store, const char *key);
int mooncake_store_batch_is_exist(mooncake_store_t store, const char **keys, size_t count,
				  int *results_out);
int64_t mooncake_store_get_size(mooncake_store_t store, const char *key);
int mooncake_store_get_hostname(mooncake_store_t store, char *buf_out, size_t buf_len);

int mooncake_store_remove(mooncake_store_t store, const char *key, int force);
int64_t mooncake_store_remove_by_regex(mooncake_store_t store, const char *pattern, int force);
int64_t mooncake_store_remove_all(mooncake_store_t store, int force);

/* -600 for memory that this process cannot access (not mapped, protected, a GPU's), or that overlaps registered
 * memory. */
int mooncake_store_register_buffer(mooncake_store_t store, void *buffer, size_t size);
int mooncake_store_unregister_buffer(mooncake_store_t store, void *buffer);

#ifdef __cplusplus
}
#endif

#endif
