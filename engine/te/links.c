/* SPDX-License-Identifier: Apache-2.0
 * links.c - report of an engine's devices, topology, peers, and the paths of requests to the peers; load of the
 * devices. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/process/fork.h"
#include "common/sys/clock.h"
#include "engine/topo/topo.h"

/* ---- as JSON ----------------------------------------------------------------------------------- */

#define NICS_MAX 16u

/* The NIC of the engine with this name; NULL: the engine does not use it. */
static const struct mce_nic_desc *nic_used(const struct mce_nic_desc *nic, unsigned n, const char *name)
{
	while (n > 0 && strcmp(nic[n - 1].name, name) != 0)
		n--;
	return n ? &nic[n - 1] : NULL;
}

static json_t *nics_json(const struct mce_te *te, const struct mce_topo *t)
{
	struct mce_nic_desc used[NICS_MAX];
	unsigned n = mce_engine_nics(te->engine, used, NICS_MAX);
	json_t *list = json_array();

	for (unsigned i = 0; i < mce_topo_nics(t); i++) {
		const struct mce_topo_nic *nic = mce_topo_nic(t, i);
		const struct mce_nic_desc *own = nic_used(used, n, nic->name);

		(void)json_array_append_new(list, json_pack("{s:s, s:i, s:s, s:i, s:i, s:f, s:s, s:b, s:b}",
			"device", nic->name, "numa", nic->numa, "gid", nic->gid, "gid_index", own ? own->gid_index : 0,
			"port", nic->port, "speed_gbps", nic->speed_gbps, "source", "sysfs", "used", own != NULL,
			"up", own && own->up));
	}
	return list;
}

static json_t *paths_json(const struct mce_peer *p)
{
	struct mce_path_stats stats[MCE_PATHS];
	json_t *paths = json_object();

	mce_peer_paths(p, stats);
	for (unsigned i = 1; i < MCE_PATHS; i++)
		if (stats[i].requests || stats[i].errors)
			(void)json_object_set_new(paths, mce_path_name((enum mce_path)i),
				json_pack("{s:I, s:I, s:I}", "requests", (json_int_t)stats[i].requests,
					  "bytes", (json_int_t)stats[i].bytes,
					  "errors", (json_int_t)stats[i].errors));
	return paths;
}

/* Pairs of NICs, when the peer is connected over RDMA. */
static json_t *pairs_json(const struct mce_peer *p)
{
	struct mce_nic_pair pair[NICS_MAX];
	unsigned n = mce_peer_nic_pairs(p, pair, NICS_MAX);
	json_t *list = json_array();

	for (unsigned i = 0; i < n; i++)
		(void)json_array_append_new(list, json_pack("{s:s, s:s, s:I}", "nic", pair[i].nic, "peer_nic",
			pair[i].peer_nic, "bytes", (json_int_t)pair[i].bytes));
	return list;
}

/* Needs the peers' locks, which cannot be taken while all peers are visited. */
static json_t *all_pairs_json(const struct mce_te *te)
{
	json_t *o = json_object();

	if (mce_engine_has_rdma(te->engine))
		for (struct mce_peer *p = NULL; (p = mce_peer_next(te->engine, p)); )
			(void)json_object_set_new(o, mce_peer_endpoint(p), pairs_json(p));
	return o;
}

struct peer_list {
	struct mce_te *te;
	json_t *list;
	json_t *pairs;		/* NIC pairs, by the peer's endpoint */
};

/* Bytes over the connections of each NUMA node, if there are several nodes. */
static json_t *nodes_json(const struct mce_te *te, const struct mce_peer *p)
{
	json_t *nodes = json_object();
	char name[32];
	int node;

	for (unsigned i = 0; (node = mce_te_numa_node(te->numa, i)) >= 0; i++) {
		snprintf(name, sizeof(name), "cpu:%d", node);
		(void)json_object_set_new(nodes, name, json_integer((json_int_t)mce_peer_on_numa_node(p, i)));
	}
	return nodes;
}

static void peer_json(const struct mce_peer *p, void *arg)
{
	struct peer_list *g = arg;
	const char *name;
	json_t *o;

	name = mce_te_name_of_locked(g->te, p);
	o = json_pack("{s:s, s:o}", "endpoint", mce_peer_endpoint(p), "paths", paths_json(p));
	if (name)
		(void)json_object_set_new(o, "segment", json_string(name));
	if (json_object_get(g->pairs, mce_peer_endpoint(p)))
		(void)json_object_set(o, "nic_pairs", json_object_get(g->pairs, mce_peer_endpoint(p)));
	if (mce_te_numa_node(g->te->numa, 0) >= 0)
		(void)json_object_set_new(o, "lane_bytes", nodes_json(g->te, p));
	(void)json_array_append_new(g->list, o);
}

static json_t *peers_json(struct mce_te *te)
{
	struct peer_list g = { .te = te, .list = json_array(), .pairs = all_pairs_json(te) };

	mc_rwlock_rdlock(&te->seg_lock);
	mce_peers_each(te->engine, peer_json, &g);
	mc_rwlock_unlock(&te->seg_lock);
	json_decref(g.pairs);
	return g.list;
}

static int links_json(struct mce_te *te, json_t **ret)
{
	auto_free char *matrix = NULL;
	struct mce_topo *t;
	json_t *root;
	int r;

	r = mce_te_topo(te, &t);
	if (r == 0)
		r = mce_topo_json(t, NULL, &matrix);
	if (r < 0)
		return r;
	root = json_pack("{s:s, s:s, s:o, s:o, s:o}", "segment", te->name, "endpoint",
			 mce_engine_endpoint(te->engine), "local_nics", nics_json(te, t), "topology",
			 json_loads(matrix, 0, NULL), "peers", peers_json(te));
	if (!root)
		return -ENOMEM;
	*ret = root;
	return 0;
}

/* ---- as text ----------------------------------------------------------------------------------- */

static const char *json_text(const json_t *o, const char *name)
{
	const char *s = json_string_value(json_object_get(o, name));

	return s ? s : "-";
}

static void print_text(FILE *f, json_t *root)
{
	json_t *nics = json_object_get(root, "local_nics"), *v, *stats, *pair;
	const char *name;
	size_t i, k;

	fprintf(f, "segment %s at %s\n", json_text(root, "segment"), json_text(root, "endpoint"));
	fprintf(f, "network devices: %s\n", json_array_size(nics) ? "" : "none for RDMA, using TCP");
	json_array_foreach(nics, i, v)
		fprintf(f, "  %s port %lld numa %lld %.0f Gb/s gid %s\n", json_text(v, "device"),
			json_integer_value(json_object_get(v, "port")),
			json_integer_value(json_object_get(v, "numa")),
			json_real_value(json_object_get(v, "speed_gbps")), json_text(v, "gid"));
	fprintf(f, "topology:\n");
	json_object_foreach(json_object_get(root, "topology"), name, v) {
		auto_free char *lists = json_dumps(v, JSON_COMPACT);

		fprintf(f, "  %s %s\n", name, lists ? lists : "");
	}
	fprintf(f, "peers:\n");
	json_array_foreach(json_object_get(root, "peers"), i, v) {
		fprintf(f, "  %s at %s\n", json_text(v, "segment"), json_text(v, "endpoint"));
		json_object_foreach(json_object_get(v, "paths"), name, stats)
			fprintf(f, "    %s: %lld requests, %lld bytes, %lld errors\n", name,
				json_integer_value(json_object_get(stats, "requests")),
				json_integer_value(json_object_get(stats, "bytes")),
				json_integer_value(json_object_get(stats, "errors")));
		json_array_foreach(json_object_get(v, "nic_pairs"), k, pair)
			fprintf(f, "    %s to %s: %lld bytes\n", json_text(pair, "nic"), json_text(pair, "peer_nic"),
				json_integer_value(json_object_get(pair, "bytes")));
		json_object_foreach(json_object_get(v, "lane_bytes"), name, stats)
			fprintf(f, "    lanes at %s: %lld bytes\n", name, json_integer_value(stats));
	}
}

static char *links_text(json_t *root)
{
	char *text = NULL;
	size_t len;
	FILE *f;

	f = open_memstream(&text, &len);
	if (!f)
		return NULL;
	print_text(f, root);
	if (fclose(f)) {
		free(text);
		return NULL;
	}
	return text;
}

int mce_te_links(struct mce_te *te, int json, char **ret_text)
{
	json_t *root;
	char *text;
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	r = links_json(te, &root);
	if (r < 0)
		return r;
	text = json ? json_dumps(root, JSON_COMPACT) : links_text(root);
	json_decref(root);
	if (!text)
		return -ENOMEM;
	*ret_text = text;
	return 0;
}

/* ---- load -------------------------------------------------------------------------------------- */

struct load {
	uint64_t bytes, inflight;
};

static void load_add_peer(const struct mce_peer *p, void *arg)
{
	struct mce_path_stats stats[MCE_PATHS];
	struct load *l = arg;

	l->inflight += mce_peer_paths(p, stats);
	for (unsigned i = 0; i < MCE_PATHS; i++)
		if (mce_path_distance((enum mce_path)i) == MCE_DISTANCE_NETWORK)
			l->bytes += stats[i].bytes;
}

/* The sum shrinks when a peer is freed; the rate must not become negative then. */
static double load_rate_locked(struct mce_te_rate *rate, uint64_t bytes)
{
	uint64_t now = mc_now_ns(), span = now - rate->at_ns;
	double bps;

	if (rate->at_ns && span < MC_NS_PER_MS)
		return rate->ewma_bps;
	if (rate->at_ns) {
		bps = bytes > rate->bytes ? (double)(bytes - rate->bytes) * 1e9 / (double)span : 0;
		rate->ewma_bps += (bps - rate->ewma_bps) / 4;
	}
	rate->at_ns = now;
	rate->bytes = bytes;
	return rate->ewma_bps;
}

/* With TCP, IP routing chooses the device, so all devices are reported as one. */
int mce_te_loads(struct mce_te *te, struct nic_load_stat *stats, size_t max)
{
	struct load l = { .bytes = 0 };
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0 || max == 0)
		return r;
	mce_peers_each(te->engine, load_add_peer, &l);
	memset(stats, 0, sizeof(*stats));
	strcpy(stats->device_name, "tcp");
	stats->inflight_bytes = l.inflight;
	MC_LOCKED(&te->topo_lock);
	stats->ewma_bandwidth_bps = load_rate_locked(&te->rate, l.bytes);
	return 1;
}
