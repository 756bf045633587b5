/* SPDX-License-Identifier: Apache-2.0
 * te.c - opening and closing an upstream-compatible engine.
 *
 * With P2PHANDSHAKE the engine's name is the address of its handshake service.  With a metadata server the user
 * chooses the name, and the server has the address. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/process/fork.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/net/guard.h"
#include "common/net/networks.h"
#include "engine/topo/topo.h"

MC_GAUGE(upstream_peers, "mooncake_transfer_upstream_peers_allowed", "",
	 "1: other hosts may use transfer engines of this process without a credential (MC_UPSTREAM_PEERS)")

/* Time of polling before sleep: about a round trip on loopback. */
#define SPIN_US 20

const char *mce_te_strerror(int err)
{
	return mc_strerror(err);
}

const char *mce_te_error_detail(int err)
{
	return mc_err_detail(err);
}

/* ---- requests of peers ------------------------------------------------------------------------- */

static int te_on_metadata(void *arg, const char *peer_text, size_t len, char **ret_text)
{
	struct mce_te *te = arg;

	if (!__atomic_load_n(&te->ready, __ATOMIC_ACQUIRE))
		return -EAGAIN;
	return mce_te_mem_describe(te, ret_text);
}

static int te_on_notify(void *arg, const char *name, const char *msg)
{
	struct mce_te *te = arg;
	int r;

	r = mce_te_inbox_add(&te->inbox, name, msg);
	if (r == -ENOBUFS)
		mc_warn("engine", "the notification inbox is full, refusing notifications");
	return r;
}

/* ---- opening ----------------------------------------------------------------------------------- */

/* Each peer needs descriptors; upstream raises the limit too. */
static void te_raise_nofile(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur < lim.rlim_max) {
		lim.rlim_cur = lim.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &lim);
	}
}

/* The port with MC_LEGACY_RPC_PORT_BINDING: that of the name, or the legacy or handshake port.  0: any
 * free port, for a name that will contain the port. */
static int te_legacy_port(const struct mce_te *te, const struct mce_te_conf *conf, int named)
{
	if (named)
		return named;
	if (conf->legacy_port)
		return conf->legacy_port;
	return te->meta ? te->env.handshake_port : 0;
}

/* Set te->host and the port for the handshake service, 0: any free port. */
static int te_choose_host(struct mce_te *te, const struct mce_te_conf *conf, int *ret_port)
{
	const char *host = conf->legacy_host;
	int port, r;

	*ret_port = 0;
	if (te->meta && !te->env.legacy_binding) {
		if (*te->env.bind_address)
			strcpy(te->host, te->env.bind_address);
		else
			mce_te_own_address(te->env.ipv6, te->host);
		return 0;
	}
	r = mc_addr_split(conf->name, te->host, sizeof(te->host), 0, &port);
	if (r < 0 || !te->env.legacy_binding)
		return r;
	if (host && strlen(host) >= sizeof(te->host))
		return mc_fail(-EINVAL, "the host name is too long");
	if (host && *host)
		strcpy(te->host, host);
	*ret_port = te_legacy_port(te, conf, port);
	return 0;
}

/* In a process with a credential, hosts must be named: neither protocol of a transfer engine proves an identity. */
static int te_open_networks(struct mce_te *te)
{
	const char *peers = mc_env_str("MC_UPSTREAM_PEERS");

	if (!mc_env_str("MC_CREDENTIAL") && !peers)
		return 0;
	if (peers)
		mc_warn("engine", "hosts in MC_UPSTREAM_PEERS can read and write the memory of this transfer engine "
			"without a credential, and their traffic is not encrypted networks=%s", peers);
	else
		mc_info("engine", "the transfer engine admits only this host: it has no credentials; name other "
			"hosts in MC_UPSTREAM_PEERS");
	upstream_peers.value = peers ? 1 : 0;
	return mc_networks_parse("MC_UPSTREAM_PEERS", peers ? peers : "", &te->networks);
}

static int te_open_handshake(struct mce_te *te, const struct mce_te_conf *conf)
{
	struct mce_handshake_conf h = {
		.host = mc_host_is_loopback(te->host) ? te->host : NULL,
		.arg = te, .metadata = te_on_metadata, .notify = te_on_notify, .connection = mce_te_on_connection,
	};
	int r;

	r = te_choose_host(te, conf, &h.port);
	if (r < 0)
		return r;
	/* Other hosts cannot use a loopback name, so listen on the loopback only. */
	h.host = mc_host_is_loopback(te->host) ? te->host : NULL;
	r = te_open_networks(te);
	if (r < 0)
		return r;
	h.networks = te->networks;
	mc_guard_library("read and write the memory of this transfer engine", te->host, mc_env_on("MC_ALLOW_INSECURE"));
	r = mce_handshake_open(&h, &te->handshake);
	if (r < 0)
		return r;
	te->rpc_port = mce_handshake_port(te->handshake);
	r = mc_addr_join(te->host, te->rpc_port, te->address);
	if (r < 0)
		return r;
	if (!te->meta)
		strcpy(te->name, te->address);
	else if (strlen(conf->name) >= sizeof(te->name))
		r = mc_fail(-EINVAL, "the segment name is too long");
	else
		strcpy(te->name, conf->name);
	return r;
}

/* Load the user's topology. */
static int matrix_load(const char *text_or_file, struct mce_topo **ret)
{
	text_or_file += strspn(text_or_file, " \t\n");
	return *text_or_file == '{' ? mce_topo_parse(text_or_file, strlen(text_or_file), ret) :
		mce_topo_load(text_or_file, ret);
}

int mce_te_set_matrix(struct mce_te *te, const char *text_or_file)
{
	struct mce_topo *t, *old;
	int r = matrix_load(text_or_file, &t);

	if (r < 0)
		return r;
	MC_LOCKED(&te->topo_lock);
	/* Other threads may be reading it. */
	old = te->topo;
	if (old) {
		mce_topo_free(t);
		return mc_fail(-EBUSY, "the topology is in use already: give it before the first use");
	}
	te->topo = t;
	te->matrix = true;
	return 0;
}

/* The devices of the user's topology are the NICs. */
static int te_open_matrix(struct mce_te *te, const struct mce_te_conf *conf)
{
	const char *custom = mc_env_str("MC_CUSTOM_TOPO_JSON");
	size_t len = 1;
	int r;

	if (conf->nic_priority_matrix && *conf->nic_priority_matrix)
		custom = conf->nic_priority_matrix;
	if (!custom || !*custom)
		return 0;
	if (te->discovers) {
		mc_warn("engine", "MC_MS_AUTO_DISC=1: the topology is discovered, the given one is ignored topology=%s",
			custom);
		return 0;
	}
	r = mce_te_set_matrix(te, custom);
	/* Without it the engine works; mce_te_topo() returns the error. */
	if (r < 0 && (!conf->nic_priority_matrix || custom != conf->nic_priority_matrix)) {
		mc_warn("engine", "MC_CUSTOM_TOPO_JSON is not used: %s", mc_err_detail(r));
		return 0;
	}
	if (r < 0)
		return r;
	for (unsigned i = 0; i < mce_topo_nics(te->topo); i++)
		len += strlen(mce_topo_nic(te->topo, i)->name) + 1;
	te->matrix_nics = calloc(1, len);
	for (unsigned i = 0; te->matrix_nics && i < mce_topo_nics(te->topo); i++) {
		strcat(te->matrix_nics, i ? "," : "");
		strcat(te->matrix_nics, mce_topo_nic(te->topo, i)->name);
	}
	return te->matrix_nics ? 0 : -ENOMEM;
}

/* Choose the NICs, and restrict the topology to those that are discovered. */
static int te_choose_nics(struct mce_te *te, const struct mce_te_conf *conf, struct mce_conf *c)
{
	const char *filters = mc_env_str("MC_TE_FILTERS");
	const char *named = te->nic_filter ? te->nic_filter : te->matrix_nics ? te->matrix_nics :
		te->discovers ? NULL : filters;
	char *copy;
	int r;

	if (te->env.force_tcp || (conf->protocol && !strcmp(conf->protocol, "tcp")))
		return 0;
	r = mce_nics_choose(named, c);
	if (r < 0)
		return r;
	if (te->discovers && !c->rdma_filter)
		c->rdma_filter = filters;
	if (!te->discovers && !c->rdma_filter)
		return 0;
	copy = c->rdma_filter ? strdup(c->rdma_filter) : NULL;
	if (c->rdma_filter && !copy)
		return -ENOMEM;
	free(te->nic_filter);
	te->nic_filter = copy;
	return 0;
}

static int te_setup(const char *host, int port, const char *text, uint64_t deadline, char **ret_reply)
{
	return mce_handshake_call(host, port, MCE_HANDSHAKE_CONNECTION, text, deadline, ret_reply);
}

static int te_open_engine(struct mce_te *te, const struct mce_te_conf *conf)
{
	bool loopback = mc_host_is_loopback(te->host);
	char interface[IF_NAMESIZE], cpus[1024];
	struct mce_conf c = {
		.host = te->host,
		/* Upstream's protocol has no key, so on a loopback name only local programs may use it. */
		.bind_host = loopback ? te->host : strchr(te->host, ':') ? "::" : "0.0.0.0",
		.port_min = te->env.port_min, .port_max = te->env.port_max,
		.io_threads = te->env.io_threads, .conns = te->env.conns,
		.force_tcp = te->env.force_tcp, .spin_us = SPIN_US,
		.progress_timeout_ms = te->env.progress_ms,
		.status_timeout_ms = te->env.status_ms,
		.upstream = true, .networks = te->networks,
		.upstream_port_min = te->env.port_min, .upstream_port_max = te->env.port_max,
		.io_cpus = cpus,
		.upstream_name = te->name, .upstream_setup = te_setup,
		.has_credential = mc_env_str("MC_CREDENTIAL"),
		.rdma_wanted = te->env.force_hca || (conf->protocol && !strcmp(conf->protocol, "rdma")),
	};
	int r = te_choose_nics(te, conf, &c);

	if (r < 0)
		return r;
	mce_te_interface_of(te->host, interface);
	mce_topo_cpus_near(NULL, interface, cpus, sizeof(cpus));
	r = mce_te_numa_open(cpus, &te->numa);
	if (r < 0)
		return r;
	mce_te_numa_conf(te->numa, &c);
	r = mce_engine_open(&c, &te->engine);
	if (r == 0)
		te->rdma = c.rdma_wanted && mce_engine_has_upstream_rdma(te->engine);
	return r;
}

int mce_te_address_publish(struct mce_te *te)
{
	struct mce_rpc_meta rpc = { .port = te->rpc_port };
	int r;

	if (strlen(te->host) >= sizeof(rpc.host))
		return mc_fail(-EINVAL, "the host name is too long");
	strcpy(rpc.host, te->host);
	r = mce_rpc_meta_publish(te->meta, te->name, &rpc, mce_te_publish_deadline(te));
	return mce_te_publish_result(te, r);
}

static int te_publish(struct mce_te *te)
{
	int r;

	if (!te->meta)
		return 0;
	r = mce_te_address_publish(te);
	return r < 0 ? r : mce_te_mem_publish(te, false);
}

static void te_init_locks(struct mce_te *te)
{
	mc_mutex_init(&te->publish_lock);
	mc_mutex_init(&te->mem_lock);
	mc_mutex_init(&te->arena_lock);
	mc_rwlock_init(&te->seg_lock);
	mc_mutex_init(&te->slot_lock);
	mc_mutex_init(&te->inbox.lock);
	mc_mutex_init(&te->topo_lock);
	mce_te_work_init(te);
	mce_te_streams_init(&te->streams);
	mc_list_init(&te->live_node);
}

static int te_open_all(struct mce_te *te, const struct mce_te_conf *conf)
{
	int r = 0;

	if (conf->nic_filter && *conf->nic_filter && !(te->nic_filter = strdup(conf->nic_filter)))
		return -ENOMEM;
	te->discovers = mce_nics_discovery() == MCE_DISCOVERY_ON;
	r = te_open_matrix(te, conf);
	if (r == 0 && !mcd_is_p2p(conf->metadata))
		r = mcd_open(conf->metadata, &te->meta);
	if (r == 0)
		r = te_open_handshake(te, conf);
	if (r == 0)
		r = te_open_engine(te, conf);
	if (r < 0)
		return r;
	__atomic_store_n(&te->ready, true, __ATOMIC_RELEASE);
	r = mce_peer_get(te->engine, mce_engine_endpoint(te->engine), &te->self);
	if (r == 0)
		r = te_publish(te);
	if (r == 0 && te->env.refresh_ms)
		r = mce_te_refresh_start(te);
	if (r == 0)
		r = mce_te_metric_open(te, &te->metric);
	return r;
}

int mce_te_open(const struct mce_te_conf *conf, struct mce_te **ret)
{
	struct mce_te_conf c = { 0 };
	struct mce_te *te;
	int r;

	/* The caller's struct may be of an older, shorter version. */
	if (conf && conf->size >= offsetof(struct mce_te_conf, protocol))
		memcpy(&c, conf, conf->size < sizeof(c) ? conf->size : sizeof(c));
	if (!c.metadata || !c.name || !*c.name)
		return mc_fail(-EINVAL, "an engine needs a metadata server and a name");
	te = calloc(1, sizeof(*te));
	if (!te)
		return -ENOMEM;
	te->fork_depth = mc_fork_depth;
	mce_te_log_open();
	mc_env_report_inert();
	te_raise_nofile();
	te_init_locks(te);
	mce_te_env_load(&te->env);
	r = te_open_all(te, &c);
	if (r < 0) {
		mce_te_close(te);
		return r;
	}
	*ret = te;
	return 0;
}

/* ---- closing ----------------------------------------------------------------------------------- */

void mce_te_close(struct mce_te *te)
{
	if (!te || mc_fork_check(te->fork_depth) < 0)
		return;
	mce_te_shutdown_forget(te);
	if (!mce_te_streams_stop(&te->streams))
		return;
	mce_te_work_stop(te);
	if (te->meta)
		mce_te_withdraw(te);
	mce_te_batches_stop(te);
	mce_handshake_close(te->handshake);
	/* Release all references to peers before the engine that owns the peers is closed. */
	mce_te_batches_done(te);
	mce_te_metric_close(te->metric);
	mce_te_segments_done(te);
	mce_peer_put(te->self);
	mce_te_mem_done(te);
	mce_te_arenas_done(te);
	mce_engine_close(te->engine);
	mc_networks_free(te->networks);
	mce_te_batches_free(te);
	mce_te_numa_close(te->numa);
	mcd_close(te->meta);
	mce_te_work_done(&te->work);
	mce_te_streams_done(&te->streams);
	mce_te_inbox_done(&te->inbox);
	mce_topo_free(te->topo);
	mc_mutex_destroy(&te->topo_lock);
	mc_mutex_destroy(&te->publish_lock);
	free(te->nic_filter);
	free(te->matrix_nics);
	free(te);
}

/* ---- information ------------------------------------------------------------------------------- */

const char *mce_te_name(const struct mce_te *te)
{
	return te->name;
}

const char *mce_te_address(const struct mce_te *te)
{
	return te->address;
}

int mce_te_rpc_port(const struct mce_te *te)
{
	return te->rpc_port;
}

int mce_te_topo(struct mce_te *te, struct mce_topo **ret)
{
	const char *file = mc_env_str("MC_CUSTOM_TOPO_JSON");
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	MC_LOCKED(&te->topo_lock);
	if (!te->topo && file && *file && !te->discovers)
		r = matrix_load(file, &te->topo);
	else if (!te->topo)
		r = mce_topo_discover(NULL, te->nic_filter, &te->topo);
	if (r < 0)
		return r;
	*ret = te->topo;
	return 0;
}

int mce_te_topology(struct mce_te *te, const char *filter, char **ret_json)
{
	struct mce_topo *t;
	int r;

	r = mce_te_topo(te, &t);
	return r < 0 ? r : mce_topo_json(t, filter, ret_json);
}

int mce_te_metrics(char **ret_text)
{
	auto_free char *text = NULL;
	size_t len;
	FILE *f;
	int r;

	f = open_memstream(&text, &len);
	if (!f)
		return -ENOMEM;
	r = mc_metrics_print(f);
	if (fclose(f) && r == 0)
		r = -ENOMEM;
	if (r < 0)
		return r;
	*ret_text = TAKE_PTR(text);
	return 0;
}
