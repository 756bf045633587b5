/* SPDX-License-Identifier: Apache-2.0
 * store_c.c - upstream's C ABI on top of mcs.h: upstream's argument checks and error numbers. */
#include <config.h>

#include <mooncake/store_c.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/log.h"
#include "common/net/net.h"
#include "common/net/protocol.h"
#include "common/options/options.h"
#include "common/process/fork.h"
#include "common/sys/lock.h"
#include "meta/leader.h"
#include <mooncake/mcs.h>

#define FAILED (-1)
#define INVALID_PARAMS (-600)
#define NO_OBJECT (-704)

/* Minimum of upstream's allocator. */
#define SEGMENT_MIN ((uint64_t)16 << 20)
#define DEFAULT_MASTER "127.0.0.1:50051"
#define DEFAULT_PORT 50051
#define DEFAULT_DAEMON "127.0.0.1:50052"

struct handle {
	struct mc_rwlock lock;	/* held for writing during setup and destroy */
	mcs_t *mcs;		/* NULL: not set up */
	unsigned fork_depth;	/* fork depth of the process that set it up */
};

static mcs_t *handle_lock(struct handle *h)
{
	if (mc_fork_check(h->fork_depth) < 0)
		return NULL;
	mc_rwlock_rdlock(&h->lock);
	return h->mcs;
}

static void handle_unlock(struct handle *h)
{
	if (mc_fork_check(h->fork_depth) == 0)
		mc_rwlock_unlock(&h->lock);
}

/* Unlock and return @result, or the error that the store is not set up. */
static int64_t handle_leave(struct handle *h, int64_t result)
{
	bool ready = h->mcs && mc_fork_check(h->fork_depth) == 0;

	handle_unlock(h);
	return ready ? result : INVALID_PARAMS;
}

static int store_code(int64_t r)
{
	return r < 0 ? mcs_code((int)r) : (int)r;
}

static struct mcs_key store_key(const char *key)
{
	return (struct mcs_key){ key, strlen(key) };
}

mooncake_store_t mooncake_store_create(void)
{
	struct handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	mc_rwlock_init(&h->lock);
	h->fork_depth = mc_fork_depth;
	return h;
}

void mooncake_store_destroy(mooncake_store_t store)
{
	struct handle *h = store;

	if (!h)
		return;
	mcs_close(h->mcs);
	mc_rwlock_destroy(&h->lock);
	free(h);
}

/* Add the default port to "host"; copy a list unchanged. */
static int setup_master_addr(const char *addr, char *out, size_t size)
{
	bool store = mcd_leader_is_store(addr);
	char host[MC_ADDR_MAX];
	int port;

	if (!strcmp(addr, "") || (strstr(addr, "://") && !store))
		return mc_fail(-MC_EPARAM, "\"%s\" is no address of a master (host:port, etcd://..., redis://...)",
			       addr);
	if (store || strchr(addr, ',') || !strncmp(addr, "unix:", 5) || !strncmp(addr, "local:", 6))
		port = -1;
	else if (mc_addr_split(addr, host, sizeof(host), DEFAULT_PORT, &port) < 0)
		return -MC_EPARAM;
	if (port < 0)
		port = snprintf(out, size, "%s", addr);
	else
		port = snprintf(out, size, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
	return port < (int)size ? 0 : mc_fail(-MC_EPARAM, "the master's address is too long");
}

/* The variable as upstream's engine interprets it. */
static int setup_force_tcp(void)
{
	const char *v = getenv("MC_FORCE_TCP");
	bool on = false;

	return v && (!*v || mc_parse_bool(v, &on) < 0 || on);
}

/* In a forked child: the store belongs to the parent, where a thread may hold the lock. */
static void handle_after_fork(struct handle *h)
{
	mc_rwlock_init(&h->lock);
	h->mcs = NULL;
	h->fork_depth = mc_fork_depth;
}

/* Close the previous store, if there is one, and open a new one. */
static int handle_reopen(struct handle *h, const struct mcs_conf *conf)
{
	mcs_t *s;
	int r;

	if (mc_fork_check(h->fork_depth) < 0)
		handle_after_fork(h);
	mc_rwlock_wrlock(&h->lock);
	mcs_close(h->mcs);
	h->mcs = NULL;
	r = mcs_open(conf, &s);
	if (!r)
		h->mcs = s;
	mc_rwlock_unlock(&h->lock);
	return r;
}

static int store_setup(struct handle *h, const char *hostname, uint64_t segment_size,
		       const char *protocol, const char *devices, const char *master)
{
	char addr[4096];
	struct mcs_conf conf;
	int r;

	mcs_conf_init(&conf);
	conf.hostname = hostname;
	conf.segment_size = segment_size;
	conf.protocol = protocol ? protocol : "tcp";
	conf.rdma_devices = devices;
	conf.force_tcp = setup_force_tcp();
	conf.master = addr;
	r = setup_master_addr(master ? master : DEFAULT_MASTER, addr, sizeof(addr));
	if (!r && segment_size && segment_size < SEGMENT_MIN)
		r = mc_fail(-MC_EPARAM, "a segment of %llu bytes is smaller than 16 MiB",
			    (unsigned long long)segment_size);
	/* A wrong protocol must not close the store that is open. */
	if (!r)
		r = mc_protocol_parse_store(conf.protocol);
	if (r >= 0)
		r = handle_reopen(h, &conf);
	/* Log the reason: the caller only gets a number, and -600 has many causes. */
	if (r < 0)
		mc_err("store", "setup failed error=\"%s\"", mc_err_detail(r));
	return store_code(r);
}

int mooncake_store_setup(mooncake_store_t store, const char *local_hostname,
			 const char *metadata_server, uint64_t global_segment_size,
			 uint64_t local_buffer_size, const char *protocol, const char *device_name,
			 const char *master_server_addr)
{
	if (!store || !local_hostname)
		return FAILED;
	return store_setup(store, local_hostname, global_segment_size, protocol, device_name, master_server_addr);
}

int mooncake_store_init_all(mooncake_store_t store, const char *protocol, const char *device_name,
			    uint64_t mount_segment_size)
{
	if (!store)
		return FAILED;
	return store_setup(store, "127.0.0.1", mount_segment_size, protocol, device_name, NULL);
}

int mooncake_store_setup_dummy(mooncake_store_t store, size_t mem_pool_size,
			       size_t local_buffer_size, const char *server_address)
{
	struct handle *h = store;
	struct mcs_conf conf;
	int r;

	if (!h)
		return FAILED;
	mcs_conf_init(&conf);
	conf.daemon = server_address ? server_address : DEFAULT_DAEMON;
	conf.daemon_pool = mem_pool_size;
	conf.daemon_buffer = local_buffer_size;
	r = handle_reopen(h, &conf);
	if (r < 0)
		mc_err("store", "setup of a dummy client failed error=\"%s\"", mc_err_detail(r));
	/* As upstream: one number for all errors. */
	return r < 0 ? FAILED : 0;
}

void *mooncake_store_alloc_from_mem_pool(mooncake_store_t store, size_t size)
{
	struct handle *h = store;
	void *p = NULL;
	mcs_t *s;

	if (!h)
		return NULL;
	s = handle_lock(h);
	if (s)
		p = mcs_pool_alloc(s, size);
	handle_unlock(h);
	return p;
}

int mooncake_store_health_check(mooncake_store_t store)
{
	struct handle *h = store;
	mcs_t *s;
	int health;

	if (!h)
		return FAILED;
	s = handle_lock(h);
	health = s ? mcs_health(s) : 1;
	handle_unlock(h);
	return health;
}

/* ---- put ---- */

struct put_opts {
	struct mcs_put_opts opts;
	const char **preferred;		/* NULL-ended copy of the list */
};

static int put_take_config(const mooncake_replicate_config_t *c, struct put_opts *ret)
{
	*ret = (struct put_opts){ { .replicas = 1 }, NULL };
	if (!c)
		return 0;
	if (!c->replica_num || c->replica_num > UINT16_MAX)
		return INVALID_PARAMS;
	ret->opts.replicas = (unsigned)c->replica_num;
	ret->opts.flags = (c->with_soft_pin ? MCS_PUT_SOFT_PIN : 0) |
		(c->with_hard_pin ? MCS_PUT_HARD_PIN : 0);
	if (!c->preferred_segments_count)
		return 0;
	if (!c->preferred_segments)
		return FAILED;
	for (size_t i = 0; i < c->preferred_segments_count; i++)
		if (!c->preferred_segments[i])
			return FAILED;
	ret->preferred = calloc(c->preferred_segments_count + 1, sizeof(*ret->preferred));
	if (!ret->preferred)
		return FAILED;
	memcpy(ret->preferred, c->preferred_segments,
	       c->preferred_segments_count * sizeof(*ret->preferred));
	ret->opts.preferred = ret->preferred;
	return 0;
}

/* As upstream: an empty key is an invalid parameter of a put; for other calls it is a miss. */
static int put_code(int r, const char *key)
{
	return r < 0 && !*key ? INVALID_PARAMS : store_code(r);
}

static int put_one(struct handle *h, const char *key, const void *value, size_t size,
		   const mooncake_replicate_config_t *config)
{
	struct iovec iov = { (void *)value, size };
	struct put_opts po;
	mcs_t *s;
	int r;

	r = put_take_config(config, &po);
	if (r < 0)
		return r;
	s = handle_lock(h);
	if (s)
		r = put_code(mcs_put(s, store_key(key), &iov, 1, &po.opts, -1), key);
	free(po.preferred);
	return (int)handle_leave(h, r);
}

int mooncake_store_put(mooncake_store_t store, const char *key, const void *value, size_t size,
		       const mooncake_replicate_config_t *config)
{
	if (!store || !key || !value)
		return FAILED;
	if (!size)
		return INVALID_PARAMS;
	return put_one(store, key, value, size, config);
}

int mooncake_store_put_from(mooncake_store_t store, const char *key, void *buffer, size_t size,
			    const mooncake_replicate_config_t *config)
{
	if (!store || !key || !buffer)
		return FAILED;
	/* As upstream: size 0 is not an error here, and nothing is stored. */
	if (!size) {
		(void)handle_lock(store);
		return (int)handle_leave(store, *key ? 0 : INVALID_PARAMS);
	}
	return put_one(store, key, buffer, size, config);
}

/* Set the results of a batch that could not be tried. */
static int store_fail_all(int *results, size_t count, int result)
{
	for (size_t i = 0; i < count; i++)
		results[i] = result;
	return result;
}

static int put_items(mcs_t *s, struct mcs_put_item *items, size_t count,
		     const struct mcs_put_opts *opts, const char **keys, const size_t *sizes,
		     int *results)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		if (keys[i] && results[i] >= 0)
			n++;
	if (n)
		(void)mcs_put_batch(s, items, (unsigned)n, opts, -1);
	for (size_t i = 0, k = 0; i < count; i++)
		if (results[i] >= 0)
			results[i] = put_code(items[k++].result, keys[i]);
	return 0;
}

int mooncake_store_batch_put_from(mooncake_store_t store, const char **keys, void **buffers,
				  const size_t *sizes, size_t count,
				  const mooncake_replicate_config_t *config, int *results_out)
{
	struct mcs_put_item *items;
	struct handle *h = store;
	struct put_opts po;
	struct iovec *iov;
	size_t k = 0;
	mcs_t *s;
	int r;

	if (!h || !keys || !buffers || !sizes || !results_out)
		return FAILED;
	r = put_take_config(config, &po);
	if (r < 0)
		return store_fail_all(results_out, count, r);
	items = calloc(count + 1, sizeof(*items));
	iov = calloc(count + 1, sizeof(*iov));
	for (size_t i = 0; i < count && items && iov; i++) {
		results_out[i] = !keys[i] || !buffers[i] ? FAILED : !sizes[i] ? INVALID_PARAMS : 0;
		if (results_out[i] < 0)
			continue;
		iov[k] = (struct iovec){ buffers[i], sizes[i] };
		items[k] = (struct mcs_put_item){
			.key = store_key(keys[i]), .iov = &iov[k], .iovcnt = 1,
		};
		k++;
	}
	po.opts.flags |= MCS_PUT_LAST;
	s = handle_lock(h);
	if (!s)
		r = store_fail_all(results_out, count, INVALID_PARAMS);
	else if (!items || !iov || count > INT32_MAX)
		r = store_fail_all(results_out, count, FAILED);
	else
		r = put_items(s, items, count, &po.opts, keys, sizes, results_out);
	handle_unlock(h);
	free(items);
	free(iov);
	free(po.preferred);
	return r;
}

/* ---- get ---- */

static int64_t get_code(int64_t r, const char *key)
{
	if (r >= 0)
		return r;
	if (!*key)
		return NO_OBJECT;
	return r == -ENOBUFS ? INVALID_PARAMS : mcs_code((int)r);
}

int64_t mooncake_store_get_into(mooncake_store_t store, const char *key, void *buffer, size_t size)
{
	struct iovec iov = { buffer, size };
	struct handle *h = store;
	int64_t r = 0;
	mcs_t *s;

	if (!h || !key || !buffer)
		return FAILED;
	s = handle_lock(h);
	if (s)
		r = get_code(mcs_get(s, store_key(key), &iov, 1, -1), key);
	return handle_leave(h, r);
}

static void get_items(mcs_t *s, struct mcs_get_item *items, size_t count, const char **keys,
		      int64_t *results)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		n += results[i] >= 0;
	if (n)
		(void)mcs_get_batch(s, items, (unsigned)n, -1);
	for (size_t i = 0, k = 0; i < count; i++)
		if (results[i] >= 0)
			results[i] = get_code(items[k++].result, keys[i]);
}

int mooncake_store_batch_get_into(mooncake_store_t store, const char **keys, void **buffers,
				  const size_t *sizes, size_t count, int64_t *results_out)
{
	struct mcs_get_item *items;
	struct handle *h = store;
	struct iovec *iov;
	size_t k = 0;
	int r = 0;
	mcs_t *s;

	if (!h || !keys || !buffers || !sizes || !results_out)
		return FAILED;
	items = calloc(count + 1, sizeof(*items));
	iov = calloc(count + 1, sizeof(*iov));
	for (size_t i = 0; i < count && items && iov; i++) {
		results_out[i] = !keys[i] || !buffers[i] ? FAILED : 0;
		if (results_out[i] < 0)
			continue;
		iov[k] = (struct iovec){ buffers[i], sizes[i] };
		items[k] = (struct mcs_get_item){
			.key = store_key(keys[i]), .whole = 1, .iov = &iov[k], .iovcnt = 1,
		};
		k++;
	}
	s = handle_lock(h);
	if (!s)
		r = INVALID_PARAMS;
	else if (!items || !iov || count > INT32_MAX)
		r = FAILED;
	else
		get_items(s, items, count, keys, results_out);
	handle_unlock(h);
	for (size_t i = 0; i < count && r < 0; i++)
		results_out[i] = r;
	free(items);
	free(iov);
	return r;
}

/* ---- names ---- */

int mooncake_store_is_exist(mooncake_store_t store, const char *key)
{
	struct handle *h = store;
	struct mcs_key k;
	uint8_t present;
	int64_t r = 0;
	mcs_t *s;

	if (!h || !key)
		return FAILED;
	k = store_key(key);
	s = handle_lock(h);
	if (s)
		r = store_code(mcs_exist(s, &k, 1, &present, -1));
	return (int)handle_leave(h, r);
}

static int store_exist_all(mcs_t *s, const char **keys, size_t count, int *results)
{
	struct mcs_key *k = calloc(count + 1, sizeof(*k));
	uint8_t *present = calloc(1, count + 1);
	int r = FAILED;

	/* A NULL key becomes an empty key, which cannot exist. */
	for (size_t i = 0; i < count && k; i++)
		k[i] = store_key(keys[i] ? keys[i] : "");
	if (k && present && count <= INT32_MAX)
		r = store_code(mcs_exist(s, k, (unsigned)count, present, -1));
	for (size_t i = 0; i < count; i++)
		results[i] = !keys[i] ? FAILED : r < 0 ? r : present[i];
	free(k);
	free(present);
	return r < 0 ? r : 0;
}

int mooncake_store_batch_is_exist(mooncake_store_t store, const char **keys, size_t count, int *results_out)
{
	struct handle *h = store;
	mcs_t *s;
	int r;

	if (!h || !keys || !results_out)
		return FAILED;
	s = handle_lock(h);
	r = s ? store_exist_all(s, keys, count, results_out) :
		store_fail_all(results_out, count, INVALID_PARAMS);
	handle_unlock(h);
	return r;
}

int64_t mooncake_store_get_size(mooncake_store_t store, const char *key)
{
	struct handle *h = store;
	struct mcs_info info;
	int64_t r = 0;
	mcs_t *s;

	if (!h || !key)
		return FAILED;
	s = handle_lock(h);
	if (s) {
		r = get_code(mcs_stat(s, store_key(key), &info, -1), key);
		r = r < 0 ? r : (int64_t)info.size;
	}
	return handle_leave(h, r);
}

int mooncake_store_get_hostname(mooncake_store_t store, char *buf_out, size_t buf_len)
{
	struct handle *h = store;
	const char *name;
	int r = INVALID_PARAMS;
	mcs_t *s;

	if (!h || !buf_out)
		return FAILED;
	s = handle_lock(h);
	if (s) {
		name = mcs_hostname(s);
		r = strlen(name) < buf_len ? 0 : FAILED;
		if (!r)
			memcpy(buf_out, name, strlen(name) + 1);
	}
	return (int)handle_leave(h, r);
}

int mooncake_store_remove(mooncake_store_t store, const char *key, int force)
{
	struct handle *h = store;
	int64_t r = 0;
	mcs_t *s;

	if (!h || !key)
		return FAILED;
	s = handle_lock(h);
	if (s)
		r = get_code(mcs_remove(s, store_key(key), force ? MCS_REMOVE_FORCE : 0, -1), key);
	return (int)handle_leave(h, r);
}

static int64_t store_remove_match(struct handle *h, const char *pattern, int force)
{
	const struct mcs_key all = { NULL, 0 };
	mcs_t *s = handle_lock(h);
	int64_t r = 0;

	if (s) {
		r = mcs_remove_match(s, all, pattern, force ? MCS_REMOVE_FORCE : 0, -1);
		r = r < 0 ? mcs_code((int)r) : r;
	}
	return handle_leave(h, r);
}

int64_t mooncake_store_remove_by_regex(mooncake_store_t store, const char *pattern, int force)
{
	if (!store || !pattern)
		return FAILED;
	return store_remove_match(store, pattern, force);
}

int64_t mooncake_store_remove_all(mooncake_store_t store, int force)
{
	if (!store)
		return FAILED;
	return store_remove_match(store, NULL, force);
}

/* ---- buffers ---- */

int mooncake_store_register_buffer(mooncake_store_t store, void *buffer, size_t size)
{
	struct handle *h = store;
	mcs_t *s;
	int r = 0;

	if (!h || !buffer)
		return FAILED;
	s = handle_lock(h);
	if (s)
		r = mcs_register_buffer(s, buffer, size) < 0 ? INVALID_PARAMS : 0;
	return (int)handle_leave(h, r);
}

int mooncake_store_unregister_buffer(mooncake_store_t store, void *buffer)
{
	struct handle *h = store;
	mcs_t *s;
	int r = 0;

	if (!h || !buffer)
		return FAILED;
	s = handle_lock(h);
	if (s)
		r = mcs_unregister_buffer(s, buffer) < 0 ? INVALID_PARAMS : 0;
	return (int)handle_leave(h, r);
}
