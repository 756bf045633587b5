/* SPDX-License-Identifier: Apache-2.0
 * rdma.c - the RDMA transport and its service: opening, closing, and the two tables. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "engine/rdma/rdma_i.h"

static void watch_run(void *arg)
{
	struct mce_rdma *r = arg;

	mce_io_watch(&r->io, &r->watcher);
}

static int rdma_open(struct mce_engine *e)
{
	/* The NICs are opened in start, which has the configuration. */
	(void)e;
	return 0;
}

static int rdma_new(struct mce_engine *e, const struct mce_conf *conf, struct mce_rdma **ret)
{
	struct mce_rdma *r = calloc(1, sizeof(*r));

	if (r && conf->upstream_name && !(r->name = strdup(conf->upstream_name))) {
		free(r);
		r = NULL;
	}
	if (!r)
		return -ENOMEM;
	r->setup = conf->upstream_setup;
	if (mc_env_on("MC_ENABLE_HCA_PEER_AFFINITY") && mc_env_str("MC_NIC_PEER_AFFINITY"))
		r->affinity = strdup(mc_env_str("MC_NIC_PEER_AFFINITY"));
	r->e = e;
	r->v = mce_verbs();
	mc_list_init(&r->guests);
	mc_list_init(&r->strangers);
	mc_list_init(&r->peers);
	mc_mutex_init(&r->lock);
	mc_mutex_init(&r->stage.lock);
	r->watcher.tick = mce_rdma_tick;
	r->look.fire = mce_rdma_look;
	mce_rdma_tune_read(&r->tune);
	*ret = r;
	return 0;
}

/* Without a usable NIC the engine works over the other paths, and has no threads for this one. */
static int rdma_start(struct mce_engine *e, const struct mce_conf *conf)
{
	struct mce_rdma *r;
	int err;

	if (!conf->rdma_devices || !mce_nics_exist(conf->rdma_wanted))
		return 0;
	err = rdma_new(e, conf, &r);
	if (err < 0)
		return err;
	e->service[MCE_PATH_RDMA] = r;
	err = mce_io_open(&r->io, e, "mce-rdma");
	if (err == 0)
		err = mce_io_open(&r->ctl, e, "mce-rdma-ctl");
	if (err == 0)
		err = mce_nics_open(r, conf);
	if (err == 0)
		err = mc_evloop_post(r->io.loop, watch_run, r);
	if (conf->has_credential && r->nnics)
		mce_rdma_warn_permitted();
	if (r->tune.same_host && r->nnics)
		e->conf.force_rdma = e->conf.force_tcp = true;
	return err;
}

static void rdma_close(struct mce_engine *e)
{
	struct mce_rdma *r = mce_rdma_of(e);

	if (!r)
		return;
	if (r->ctl.loop)
		mce_rdma_guests_close(r);
	mce_io_close(&r->ctl);
	mce_io_close(&r->io);
	mce_rdma_stage_close(r);
	mce_nics_close(r);
	mc_mutex_destroy(&r->lock);
	free(r->name);
	free(r->affinity);
	free(r);
	e->service[MCE_PATH_RDMA] = NULL;
}

unsigned mce_engine_nics(const struct mce_engine *e, struct mce_nic_desc *ret, unsigned max)
{
	struct mce_rdma *r = mce_rdma_of(e);
	unsigned n = r ? r->nnics : 0;
	struct mce_rdma_addr addr;

	if (n > max)
		n = max;
	for (unsigned i = 0; i < n; i++) {
		mce_nic_addr(&r->nic[i], &addr, &ret[i].gid_index);
		ret[i].up = mce_nic_up(&r->nic[i]);
		ret[i].iwarp = r->nic[i].iwarp;
		memcpy(ret[i].name, addr.name, sizeof(ret[i].name));
		memcpy(ret[i].gid, addr.gid.raw, sizeof(ret[i].gid));
		ret[i].lid = addr.lid;
	}
	return n;
}

unsigned mce_peer_nic_pairs(const struct mce_peer *p, struct mce_nic_pair *ret, unsigned max)
{
	struct mce_rdma_peer *rp = mce_rdma_peer_of(p);
	struct mc_list *pos;
	unsigned n = 0;

	if (!rp)
		return 0;
	MC_LOCKED(&rp->p->lock);
	mc_list_for_each(pos, &rp->eps) {
		const struct mce_rdma_ep *ep = mc_container_of(pos, struct mce_rdma_ep, node);

		if (ep->state != MCE_RDMA_EP_UP || n == max)
			continue;
		memcpy(ret[n].nic, ep->nic->addr.name, sizeof(ret[n].nic));
		memcpy(ret[n].peer_nic, rp->remote[ep->remote].name, sizeof(ret[n].peer_nic));
		ret[n++].bytes = ep->moved;
	}
	return n;
}

static uint64_t rdma_features(const struct mce_engine *e)
{
	const struct mce_rdma *r = mce_rdma_of(e);

	return r && r->nnics ? MCE_FEATURE_RDMA : 0;
}

bool mce_engine_has_rdma(const struct mce_engine *e)
{
	return rdma_features(e) != 0;
}

bool mce_engine_has_upstream_rdma(const struct mce_engine *e)
{
	const struct mce_rdma *r = mce_rdma_of(e);

	for (unsigned i = 0; r && i < r->nnics; i++)
		if (!r->nic[i].iwarp)
			return true;
	return false;
}

const struct mce_service mce_rdma_service = {
	.open = rdma_open,
	.start = rdma_start,
	.close = rdma_close,
	.region_add = mce_rdma_region_add,
	.revoke_begin = mce_no_revoke,
	.revoke_wait = mce_rdma_region_free,
	.knows_peer = mce_no_peer,
	.features = rdma_features,
	.take_connection = mce_rdma_take_connection,
	.fence = mce_rdma_fence,
};

const struct mce_transport mce_rdma_transport = {
	.name = "rdma",
	.path = MCE_PATH_RDMA,
	.distance = MCE_DISTANCE_NETWORK,
	.gpu = true,
	.attach = mce_rdma_attach,
	.detach = mce_rdma_detach,
	.connect = mce_rdma_connect,
	.prepare = mce_rdma_prepare,
	.submit = mce_rdma_submit,
	.submit_run = mce_rdma_submit_run,
	.flush = mce_rdma_flush,
	.poll = mce_rdma_poll,
	.lead = mce_rdma_lead,
	.cancel = mce_rdma_cancel,
	.writes_in_doubt = mce_rdma_writes_in_doubt,
	.note_doubts = mce_no_doubts,
	.keep_doubts = mce_no_doubts,
	.new_fence = mce_rdma_new_fence,
	.map = mce_no_map,
};
