/* SPDX-License-Identifier: Apache-2.0
 * store.c - open, describe and close a handle; memory that the program shares with it. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/daemon/daemon.h"
#include "client/owner/owner.h"
#include "client/store_i.h"
#include "client/session/security.h"
#include "common/env.h"
#include "common/principal.h"
#include "common/net/httpd.h"
#include "common/net/protocol.h"
#include "common/gpu/gpu.h"
#include "engine/mce.h"

#define CXL_PATH_DEFAULT "/dev/dax0.0"	/* as in upstream */

void mcs_conf_init_size(struct mcs_conf *conf, size_t size)
{
	const struct mcs_conf c = {
		.struct_size = size,
		.master = "127.0.0.1:50051",
		.hostname = "127.0.0.1",
		.protocol = "tcp",
		.segment_kind = "auto",
		.timeout_ms = 30000,
		.setup_timeout_ms = MCS_SETUP_TIMEOUT_MS,
		.verify = 1,
		.far_node = -1,
	};

	memcpy(conf, &c, size < sizeof(c) ? size : sizeof(c));
	/* Fields of a newer header than ours. */
	if (size > sizeof(c))
		memset((char *)conf + sizeof(c), 0, size - sizeof(c));
}

static void conf_cxl(struct mcs_conf *c)
{
	const char *path = mc_env_str("MC_CXL_DEV_PATH");

	if (mcs_conf_far(c))
		return;
	c->far_path = path ? path : CXL_PATH_DEFAULT;
	c->far_size = mc_env_size("MC_CXL_DEV_SIZE", 0, 0, UINT64_MAX);
}

/* Upstream's variables; there they are of every client, here they are of those with memory. */
static int conf_shared(struct mcs_conf *c)
{
	const char *cluster;

	if (mcs_conf_asks_shared(c))
		c->root_fs_dir = mc_env_dfs();
	cluster = c->root_fs_cluster && *c->root_fs_cluster ? c->root_fs_cluster : "mooncake_cluster";
	c->root_fs_cluster = cluster;
	if (strchr(cluster, '/') || !strcmp(cluster, ".") || !strcmp(cluster, ".."))
		return mc_fail(-MC_EPARAM, "the name of a cluster must be that of a folder: '%s'", cluster);
	return 0;
}

static int conf_check_protocol(struct mcs_conf *c)
{
	int r = mc_protocol_parse_store(c->protocol);

	if (r < 0)
		return r;
	if (r == MC_PROTOCOL_RPC_ONLY && (c->segment_size || mcs_conf_far(c)))
		return mc_fail(-MC_EPARAM, "protocol rpc_only contributes no memory: the segment's size must be 0");
	if (r == MC_PROTOCOL_CXL)
		conf_cxl(c);
	c->protocol = r == MC_PROTOCOL_RDMA ? "rdma" : "tcp";
	return 0;
}

/* The caller's struct may be of an older, shorter version. */
static int conf_check(const struct mcs_conf *from, struct mcs_conf *ret)
{
	struct mcs_conf c;
	int r;

	mcs_conf_init(&c);
	if (from) {
		if (from->struct_size < offsetof(struct mcs_conf, hostname) || from->struct_size > 4096)
			return mc_fail(-MC_EPARAM, "mcs_conf was not set up by mcs_conf_init()");
		memcpy(&c, from, from->struct_size < sizeof(c) ? from->struct_size : sizeof(c));
	}
	c.master = c.master ? c.master : "127.0.0.1:50051";
	c.hostname = c.hostname ? c.hostname : "127.0.0.1";
	c.protocol = c.protocol ? c.protocol : "tcp";
	c.segment_kind = c.segment_kind ? c.segment_kind : "auto";
	c.tenant = c.tenant && strcmp(c.tenant, "default") ? c.tenant : "";
	c.daemon = c.daemon ? c.daemon : "";
	if (!*c.master || !*c.hostname)
		return mc_fail(-MC_EPARAM, "the %s is empty", *c.master ? "hostname" : "master's address");
	if (c.tenant && strlen(c.tenant) > MCP_TENANT_MAX)
		return mc_fail(-MC_EPARAM, "a tenant's name of %zu bytes, %u are allowed",
			       strlen(c.tenant), MCP_TENANT_MAX);
	if (c.segment_fd > 0 && !c.segment_identity)
		return mc_fail(-MC_EPARAM, "a segment_fd without a segment_identity");
	if (c.timeout_ms < 0 || c.setup_timeout_ms < 0)
		return mc_fail(-MC_EPARAM, "a default timeout must not be negative");
	r = conf_check_protocol(&c);
	if (r == 0)
		r = conf_shared(&c);
	if (r == 0)
		*ret = c;
	return r;
}

static int conf_copy_strings(struct mcs_conf *c)
{
	const char **field[] = { &c->master, &c->hostname, &c->protocol, &c->segment_kind,
				  &c->tenant, &c->segment_path, &c->daemon, &c->rdma_devices,
				  &c->ssd_path, &c->ssd_policy, &c->http_addr, &c->far_path,
				  &c->root_fs_dir, &c->root_fs_cluster, &c->s3_path, &c->ssd_nof, &c->credential,
				  &c->encrypt };
	int r = 0;

	for (size_t i = 0; i < sizeof(field) / sizeof(field[0]); i++) {
		if (!*field[i])
			continue;
		*field[i] = strdup(*field[i]);
		if (!*field[i])
			r = -ENOMEM;
	}
	return r;
}

static void conf_free_strings(struct mcs_conf *c)
{
	free((char *)c->master);
	free((char *)c->hostname);
	free((char *)c->protocol);
	free((char *)c->segment_kind);
	free((char *)c->tenant);
	free((char *)c->segment_path);
	free((char *)c->daemon);
	free((char *)c->rdma_devices);
	free((char *)c->ssd_path);
	free((char *)c->ssd_policy);
	free((char *)c->http_addr);
	free((char *)c->far_path);
	free((char *)c->root_fs_dir);
	free((char *)c->root_fs_cluster);
	free((char *)c->s3_path);
	free((char *)c->ssd_nof);
	free((char *)c->credential);
	free((char *)c->encrypt);
}

/* Requests that the credential's role and tenant do not allow end with one error here, rather than one in each call. */
static int conf_check_credential(const struct mcs_conf *c, struct mcs_security *security)
{
	const char *tenant = security ? mcs_security_tenant(security) : "";
	int r;

	if (!security)
		return 0;
	if (*tenant && *c->tenant && strcmp(c->tenant, tenant))
		return mc_fail(-EACCES, "the credential %s is of tenant \"%s\", and the configuration asks for \"%s\"",
			       mcs_security_path(security), tenant, c->tenant);
	if (mcs_conf_contributes(c) && !(mcs_security_role(security) & MC_MAY_OWN))
		return mc_fail(-EACCES, "the credential %s has the role %s, with which memory and disks cannot be "
			       "contributed: make one with mcctl credential create --role=node, or contribute nothing",
			       mcs_security_path(security), mc_role_name(mcs_security_role(security)));
	/* A lazy handle waits for a new file as it waits for the master. */
	r = c->lazy ? 0 : mcs_security_fresh(security);
	return r < 0 ? mc_fail(r, "%s: %s", mcs_security_path(security), strdupa(mc_err_detail(r))) : 0;
}

/* Also where a daemon moves the bytes: the handle would need RDMA when the daemon has ended. */
static int conf_check_rdma(const struct mcs_conf *c, const struct mcs_security *security)
{
	const struct mce_conf conf = { .has_credential = security, .rdma_wanted = true };
	int r = mce_rdma_permission();

	if (r >= 0 && !strcmp(c->protocol, "rdma") && !c->force_tcp)
		r = mce_rdma_check_permission(&conf);
	return r < 0 ? r : 0;
}

/* The tenant of the credential is now the handle's, also where tenants are compared. */
static int conf_take_tenant(struct mcs_conf *c, const struct mcs_security *security)
{
	const char *tenant = security ? mcs_security_tenant(security) : "";
	char *copy;

	if (!*tenant || !strcmp(tenant, "default"))
		return 0;
	copy = strdup(tenant);
	if (!copy)
		return -ENOMEM;
	free((char *)c->tenant);
	c->tenant = copy;
	return 0;
}

int mcs_open(const struct mcs_conf *conf, struct mcs **ret)
{
	struct mcs *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	mc_env_report_inert();
	s->fork_depth = mc_fork_depth;
	mc_mutex_init(&s->fallback_lock);
	mcs_scratch_pool_init(&s->scratch);
	r = conf_check(conf, &s->conf);
	if (r < 0) {
		s->conf = (struct mcs_conf){ 0 };
		goto fail;
	}
	r = conf_copy_strings(&s->conf);
	if (r == 0)
		r = mcs_security_open(s->conf.credential, s->conf.encrypt, &s->security);
	if (r == 0)
		r = conf_check_credential(&s->conf, s->security);
	if (r == 0)
		r = conf_check_rdma(&s->conf, s->security);
	if (r < 0)
		goto fail;
	r = mcs_daemon_backend_open(s, &s->backend);
	if (r >= 0 && conf_take_tenant(&s->conf, s->security) < 0)
		r = -ENOMEM;
	if (r == 0)
		r = mcs_owner_open(s, &s->backend);
	if (r < 0)
		goto fail;
	s->session = s->backend->session;
	s->tenant = s->backend->tenant;
	mcs_http_start(s);
	*ret = s;
	return 0;
fail:
	mcs_close(s);
	return r;
}

void mcs_close(struct mcs *s)
{
	/* A forked child has none of the threads, and everything else belongs to the parent. */
	if (!s || mcs_check_fork(s) < 0)
		return;
	mc_httpd_stop(s->httpd);
	if (s->fallback)
		s->fallback->ops->close(s->fallback);
	if (s->backend)
		s->backend->ops->close(s->backend);
	mcs_security_close(s->security);
	mcs_scratch_pool_done(&s->scratch);
	mc_mutex_destroy(&s->fallback_lock);
	conf_free_strings(&s->conf);
	free(s);
}

unsigned mcs_lease_ms(struct mcs *s)
{
	return mcs_session_terms(s->session).lease_ttl_ms;
}

unsigned mcs_takeover_ms(struct mcs *s)
{
	return (unsigned)mcs_session_takeover_ms(s->session);
}

int mcs_health(struct mcs *s)
{
	struct mcs_backend *b = s->backend;
	int health;

	if (mcs_check_fork(s) < 0)
		return 2;
	do
		health = b->ops->health(b);
	while (health == 2 && mcs_backend_replace(s, &b, -MC_ERPC));
	return health;
}

const char *mcs_daemon(struct mcs *s)
{
	return s->backend->daemon;
}

const char *mcs_hostname(struct mcs *s)
{
	return s->backend->hostname;
}

const char *mcs_tenant(struct mcs *s)
{
	return s->tenant.len ? s->tenant.data : "default";
}

/* ---- the segment and buffers: always of the back end that was configured ---- */

int mcs_segment_grow(struct mcs *s, uint64_t size, int64_t timeout_ms)
{
	int r = mcs_check_fork(s);

	return r < 0 ? r : s->backend->ops->segment_grow(s->backend, size, mcs_deadline(s, timeout_ms));
}

int mcs_segment_fd(struct mcs *s, uint64_t *ret_size)
{
	if (s->conf.segment_path && *s->conf.segment_path)
		return mc_fail(-MC_ENOTSUP, "the segment is part of the program's own file");
	return s->backend->ops->segment_fd(s->backend, ret_size);
}

int mcs_segment_identity(struct mcs *s, uint64_t *identity)
{
	int r = mcs_check_fork(s);

	return r < 0 ? r : s->backend->ops->segment_identity(s->backend, identity);
}

static int buffer_check(const struct mcs *s, const void *buf, size_t len)
{
	int r = mcs_check_fork(s);

	if (r < 0)
		return r;
	return buf && len ? mc_gpu_usable(buf, len) : mc_fail(-MC_EPARAM, "an empty buffer cannot be registered");
}

int mcs_register_buffer(struct mcs *s, void *buf, size_t len)
{
	int r = buffer_check(s, buf, len);

	return r < 0 ? r : s->backend->ops->register_buffer(s->backend, buf, len);
}

int mcs_register_memfd(struct mcs *s, void *buf, size_t len, int fd, uint64_t fd_offset)
{
	int r = buffer_check(s, buf, len);

	return r < 0 ? r : s->backend->ops->register_memfd(s->backend, buf, len, fd, fd_offset);
}

int mcs_unregister_buffer(struct mcs *s, void *buf)
{
	int r = mcs_check_fork(s);

	return r < 0 ? r : s->backend->ops->unregister_buffer(s->backend, buf);
}

void *mcs_pool_alloc(struct mcs *s, size_t len)
{
	return mcs_check_fork(s) < 0 ? NULL : s->backend->ops->pool_alloc(s->backend, len);
}

void mcs_pool_free(struct mcs *s, void *p)
{
	if (p && mcs_check_fork(s) == 0)
		s->backend->ops->pool_free(s->backend, p);
}
