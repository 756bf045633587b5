/* SPDX-License-Identifier: Apache-2.0
 * rdma.c - RDMA with upstream's nodes: the NICs and keys in our descriptor, and those in theirs.
 *
 * Upstream's nodes choose NICs by the location in a buffer's name and the matrix, so every buffer gets a location that
 * the matrix has. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "engine/topo/topo.h"
#include "engine/upstream/setup.h"

#define NICS_MAX 16u
#define FIRST_LOCATION "cpu:0"

struct device_text {
	char name[MCE_NIC_NAME_MAX], gid[MCE_GID_TEXT_MAX];
};

/* ---- our descriptor ---------------------------------------------------------------------------- */

static json_t *names_json(const struct mce_nic_desc *nic, unsigned n)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < n; i++)
		(void)json_array_append_new(list, json_string(nic[i].name));
	return list;
}

static bool names_nic(const json_t *lists, const struct mce_nic_desc *nic, unsigned n)
{
	const json_t *list, *v;
	size_t i, k;

	json_array_foreach(lists, i, list)
		json_array_foreach(list, k, v)
			for (unsigned at = 0; at < n; at++)
				if (!strcmp(json_string_value(v), nic[at].name))
					return true;
	return false;
}

/* The topology's matrix with the engine's NICs only; locations without one get all, so that each can be reached. */
static int matrix_make(struct mce_te *te, const struct mce_nic_desc *nic, unsigned n, char **ret)
{
	char filter[NICS_MAX * (MCE_NIC_NAME_MAX + 1)] = "", *text = NULL;
	const char *location;
	struct mce_topo *t;
	json_t *o, *lists;
	void *next;
	int r = mce_te_topo(te, &t);

	for (unsigned i = 0; i < n; i++) {
		strcat(filter, nic[i].name);
		strcat(filter, ",");
	}
	if (r == 0)
		r = mce_topo_json(t, filter, &text);
	o = r == 0 ? json_loads(text, 0, NULL) : NULL;
	free(text);
	if (!o)
		o = json_object();
	if (!json_object_get(o, FIRST_LOCATION))
		(void)json_object_set_new(o, FIRST_LOCATION, json_pack("[[]]"));
	json_object_foreach_safe(o, next, location, lists)
		if (!names_nic(lists, nic, n))
			(void)json_object_set_new(o, location, json_pack("[[],o]", names_json(nic, n)));
	*ret = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	return *ret ? 0 : -ENOMEM;
}

/* The location in the name of a published buffer; it is in the matrix. */
static const char *location_of(const struct mce_te_mem *m, const char *matrix)
{
	char quoted[128];

	if (strlen(m->location) >= sizeof(quoted) - 3)
		return FIRST_LOCATION;
	snprintf(quoted, sizeof(quoted), "\"%s\":", m->location);
	return strstr(matrix, quoted) ? m->location : FIRST_LOCATION;
}

uint32_t mce_te_location_nics(struct mce_te *te, const char *location)
{
	struct mce_nic_desc nic[NICS_MAX];
	unsigned n = mce_engine_nics(te->engine, nic, NICS_MAX);
	uint32_t nics = 0;

	MC_LOCKED(&te->topo_lock);
	for (unsigned i = 0; i < n && te->matrix; i++)
		nics |= mce_topo_prefers(te->topo, location, nic[i].name) ? 1u << i : 0;
	return nics;
}

static void buffers_fill(struct mce_te *te, struct mce_segdesc *d, struct mce_te_rdma_desc *desc, unsigned nnics)
{
	struct mce_segdesc_buffer *b = d->buffers;

	for (unsigned i = 0; i < te->nmem; i++) {
		const struct mce_te_mem *m = &te->mem[i];

		for (; b < d->buffers + d->nbuffers && mce_range_check(m->addr, m->len, b->addr, b->length) == 0; b++) {
			b->name = (char *)(uintptr_t)location_of(m, desc->matrix);
			b->rkeys = desc->keys + (b - d->buffers) * 2 * nnics;
			b->lkeys = b->rkeys + nnics;
			mce_mr_nic_keys(m->mr, b->addr - m->addr, b->rkeys, b->lkeys);
		}
	}
}

/* The NICs that upstream's nodes can use, in the order of mce_mr_nic_keys(). */
static unsigned upstream_nics(struct mce_engine *e, struct mce_nic_desc ret[NICS_MAX])
{
	unsigned all = mce_engine_nics(e, ret, NICS_MAX), n = 0;

	for (unsigned i = 0; i < all; i++)
		if (!ret[i].iwarp)
			ret[n++] = ret[i];
	return n;
}

int mce_te_rdma_describe(struct mce_te *te, struct mce_segdesc *d, struct mce_te_rdma_desc *ret)
{
	struct mce_nic_desc nic[NICS_MAX];
	unsigned n = upstream_nics(te->engine, nic);
	struct device_text *text;

	ret->devices = calloc(n + 1, sizeof(*ret->devices));
	ret->texts = calloc(n + 1, sizeof(*text));
	ret->keys = calloc(d->nbuffers + 1, 2 * n * sizeof(*ret->keys));
	text = (struct device_text *)(void *)ret->texts;
	if (!ret->devices || !ret->texts || !ret->keys || matrix_make(te, nic, n, &ret->matrix) < 0)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		strcpy(text[i].name, nic[i].name);
		mce_gid_print(nic[i].gid, text[i].gid);
		ret->devices[i] = (struct mce_segdesc_device){ text[i].name, text[i].gid, nic[i].lid };
	}
	d->protocol = (char *)"rdma";
	d->devices = ret->devices;
	d->ndevices = n;
	d->priority_matrix = ret->matrix;
	buffers_fill(te, d, ret, n);
	return 0;
}

void mce_te_rdma_undescribe(struct mce_te_rdma_desc *r)
{
	free(r->devices);
	free(r->texts);
	free(r->matrix);
	free(r->keys);
}

int mce_te_on_connection(void *arg, const char *text, size_t len, char **ret_text)
{
	struct mce_te *te = arg;

	if (!__atomic_load_n(&te->ready, __ATOMIC_ACQUIRE))
		return -EAGAIN;
	return mce_engine_upstream_setup(te->engine, text, len, ret_text);
}

/* ---- their descriptors ------------------------------------------------------------------------- */

static int nics_parse(const struct mce_segdesc *d, struct mce_nic_desc *nic, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		const struct mce_segdesc_device *dev = &d->devices[i];

		if (strlen(dev->name) >= sizeof(nic[i].name))
			return mc_fail(-EINVAL, "segment %s: the name of an RDMA device is too long", d->name);
		strcpy(nic[i].name, dev->name);
		if (mce_gid_parse(dev->gid, nic[i].gid) < 0)
			return mc_fail(-EINVAL, "segment %s: RDMA device %s has no GID", d->name, dev->name);
		nic[i].lid = (uint16_t)dev->lid;
	}
	return 0;
}

int mce_te_rdma_peer(struct mce_te *te, const struct mce_segdesc *d, const char *host, int port, struct mce_te_view *v)
{
	unsigned n = d->ndevices < NICS_MAX ? (unsigned)d->ndevices : NICS_MAX;
	struct mce_upstream_region *regions = calloc(d->nbuffers + 1, sizeof(*regions));
	struct mce_nic_desc nic[NICS_MAX];
	struct mce_upstream_node node = {
		.name = *d->rdma_server_name ? d->rdma_server_name : d->name, .host = host, .port = port,
		.nics = nic, .nnics = n, .regions = regions, .nregions = d->nbuffers,
	};
	int r = regions ? nics_parse(d, nic, n) : -ENOMEM;

	for (size_t i = 0; r == 0 && i < d->nbuffers; i++) {
		regions[i].addr = d->buffers[i].addr;
		regions[i].len = d->buffers[i].length;
		regions[i].rkeys = d->buffers[i].rkeys;
		if (!d->buffers[i].rkeys)
			r = mc_fail(-EINVAL, "segment %s: a buffer has no RDMA keys", d->name);
	}
	if (r == 0)
		r = mce_peer_get_upstream_rdma(te->engine, &node, &v->peer);
	v->rdma = r == 0;
	free(regions);
	return r;
}
