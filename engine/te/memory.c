/* SPDX-License-Identifier: Apache-2.0
 * memory.c - registered memory, and its publication at the metadata server. */
#include <config.h>

#include "engine/te/te_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/gpu/gpu.h"
#include "common/process/fork.h"
#include "common/log.h"

/* ---- publication ------------------------------------------------------------------------------- */

/* Largest published piece: MC_MAX_MR_SIZE, or the part that has one key on a NIC. */
static uint64_t mem_piece(const struct mce_te *te, const struct mce_te_mem *m)
{
	uint64_t part = mce_mr_nic_part(m->mr);

	return part < te->env.max_mr ? part : te->env.max_mr;
}

static uint64_t mem_pieces(const struct mce_te *te, const struct mce_te_mem *m)
{
	return m->remote ? (m->len - 1) / mem_piece(te, m) + 1 : 0;
}

/* Publish a longer buffer in pieces, as upstream does: a reader of upstream's may rely on the limit.  Our readers join
 * the pieces again, which have the same rkey.  Returns their number. */
static uint64_t mem_describe_pieces(struct mce_te *te, const struct mce_te_mem *m, struct mce_segdesc_buffer *b)
{
	uint64_t n = mem_pieces(te, m), piece = mem_piece(te, m), at = 0;

	for (uint64_t i = 0; i < n; i++, at += piece) {
		b[i].name = te->name;
		b[i].addr = m->addr + at;
		b[i].length = i + 1 < n ? piece : m->len - at;
		b[i].rkey = mce_mr_rkey(m->mr);
	}
	return n;
}

/* Upstream's TCP transport puts the segment's name into the field of the location; do the same, in case
 * its readers use it. */
static int mem_encode_locked(struct mce_te *te, char **ret)
{
	int port = mce_engine_upstream_port(te->engine);
	struct mce_segdesc d = {
		.name = te->name, .protocol = (char *)"tcp", .tcp_data_host = te->host,
		.tcp_data_port = port > 0 ? port : 0, .tcp_proto_version = te->env.proto_v1 ? 1 : 2,
		.endpoint = (char *)(uintptr_t)mce_engine_endpoint(te->engine),
	};
	auto_free struct mce_segdesc_buffer *buf = NULL;
	struct mce_te_rdma_desc rdma = { .devices = NULL };
	int r = 0;

	buf = calloc(te->npieces + 1, sizeof(*buf));
	if (!buf)
		return -ENOMEM;
	for (unsigned i = 0; i < te->nmem; i++)
		d.nbuffers += mem_describe_pieces(te, &te->mem[i], buf + d.nbuffers);
	d.buffers = buf;
	if (te->rdma)
		r = mce_te_rdma_describe(te, &d, &rdma);
	if (r == 0)
		r = mce_segdesc_encode(&d, ret);
	mce_te_rdma_undescribe(&rdma);
	return r;
}

static int mem_text_locked(struct mce_te *te)
{
	return te->text ? 0 : mem_encode_locked(te, &te->text);
}

int mce_te_mem_describe(struct mce_te *te, char **ret_text)
{
	char *copy;
	int r;

	MC_LOCKED(&te->mem_lock);
	r = mem_text_locked(te);
	if (r < 0)
		return r;
	copy = strdup(te->text);
	if (!copy)
		return -ENOMEM;
	*ret_text = copy;
	return 0;
}

uint64_t mce_te_publish_deadline(struct mce_te *te)
{
	/* Do not wait again for a server that the last request could not reach. */
	return mcd_unreachable(te->meta) ? mc_now_ns() : mc_deadline_ms(MCE_TE_ASK_MS);
}

int mce_te_publish_result(struct mce_te *te, int r)
{
	if (!mcd_will_retry(r))
		return r;
	mc_warn("engine", "the metadata server is out of reach, publishing later: %s segment=%s",
		mc_err_detail(r), te->name);
	return 0;
}

int mce_te_mem_publish(struct mce_te *te, bool more)
{
	auto_free char *text = NULL;
	char key[MCD_KEY_MAX];
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0 || !te->meta)
		return r;
	r = mce_key_segment(te->name, key);
	if (r < 0)
		return r;
	/* An older state must not arrive after a newer one. */
	MC_LOCKED(&te->publish_lock);
	if (te->withdrawn || (te->removed && !more))
		return 0;
	r = te->removed ? mce_te_address_publish(te) : 0;
	if (r == 0)
		r = mce_te_mem_describe(te, &text);
	if (r < 0)
		return r;
	te->removed = false;
	return mce_te_publish_result(te, mcd_publish(te->meta, key, text, mce_te_publish_deadline(te)));
}

static void mem_unpublish_locked(struct mce_te *te, uint64_t deadline)
{
	char key[MCD_KEY_MAX];

	if (mce_key_segment(te->name, key) == 0)
		(void)mcd_unpublish(te->meta, key, deadline);
	(void)mce_rpc_meta_unpublish(te->meta, te->name, deadline);
}

/* Unpublish, and set *@flag, which prevents later publication. */
static void mem_unpublish(struct mce_te *te, bool *flag)
{
	uint64_t deadline = mc_deadline_ms(MCE_TE_ASK_MS);

	if (mc_fork_check(te->fork_depth) < 0)
		return;
	MC_LOCKED(&te->publish_lock);
	if (te->meta && !te->withdrawn && !te->removed)
		mem_unpublish_locked(te, deadline);
	*flag = true;
}

void mce_te_withdraw(struct mce_te *te)
{
	mem_unpublish(te, &te->withdrawn);
}

void mce_te_remove(struct mce_te *te)
{
	mem_unpublish(te, &te->removed);
}

/* ---- the list ---------------------------------------------------------------------------------- */

static void mem_changed_locked(struct mce_te *te)
{
	free(te->text);
	te->text = NULL;
}

int mce_te_publish_rdma(struct mce_te *te, bool rdma)
{
	bool changed;

	mc_mutex_lock(&te->mem_lock);
	changed = rdma != te->rdma && mce_engine_has_upstream_rdma(te->engine);
	if (changed) {
		te->rdma = rdma;
		mem_changed_locked(te);
	}
	mc_mutex_unlock(&te->mem_lock);
	return changed ? mce_te_mem_publish(te, false) : 0;
}

static int mem_grow_locked(struct mce_te *te, uint64_t pieces)
{
	unsigned cap = te->mem_cap ? te->mem_cap * 2 : 16;
	struct mce_te_mem *more;

	if (te->nmem >= MCE_SEGDESC_BUFFERS_MAX || pieces > MCE_SEGDESC_BUFFERS_MAX - te->npieces)
		return mc_fail(-MC_ELIMIT, "too many buffers are registered");
	if (te->nmem < te->mem_cap)
		return 0;
	more = realloc(te->mem, cap * sizeof(*more));
	if (!more)
		return -ENOMEM;
	te->mem = more;
	te->mem_cap = cap;
	return 0;
}

/* "*" of device memory is the GPU's location.  NULL: no memory. */
static char *location_new(const void *base, const char *location)
{
	char name[32];
	int gpu = !location || !strcmp(location, "*") ? mc_gpu_of(base) : -1;

	if (gpu < 0)
		return strdup(location ? location : "*");
	snprintf(name, sizeof(name), "%s:%d", mc_gpu()->name, gpu);
	return strdup(name);
}

int mce_te_mem_add(struct mce_te *te, const struct mce_mr_attr *attr, const char *location)
{
	struct mce_mr_attr with_nics = *attr;
	struct mce_te_mem m = {
		.addr = (uintptr_t)attr->base, .len = attr->len, .remote = attr->access != 0,
	};
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	m.location = location_new(attr->base, location);
	if (!m.location)
		return -ENOMEM;
	with_nics.nics = mce_te_location_nics(te, m.location);
	mc_mutex_lock(&te->mem_lock);
	r = mce_mr_register(te->engine, &with_nics, &m.mr);
	/* The number of pieces depends on how the NICs have registered it. */
	if (r == 0)
		r = mem_grow_locked(te, mem_pieces(te, &m));
	if (r == 0) {
		te->mem[te->nmem++] = m;
		te->npieces += mem_pieces(te, &m);
		mem_changed_locked(te);
	}
	mc_mutex_unlock(&te->mem_lock);
	if (r < 0) {
		mce_mr_unregister(m.mr);
		free(m.location);
	} else {
		mce_te_own_view_drop(te);
	}
	return r;
}

int mce_te_mem_remove(struct mce_te *te, uint64_t addr, uint64_t *ret_len)
{
	struct mce_te_mem m;
	unsigned i;
	int r;

	r = mc_fork_check(te->fork_depth);
	if (r < 0)
		return r;
	mc_mutex_lock(&te->mem_lock);
	for (i = 0; i < te->nmem && te->mem[i].addr != addr; i++)
		;
	if (i == te->nmem) {
		mc_mutex_unlock(&te->mem_lock);
		return mc_fail(-ENOENT, "no memory is registered at 0x%llx", (unsigned long long)addr);
	}
	m = te->mem[i];
	memmove(te->mem + i, te->mem + i + 1, (te->nmem - i - 1) * sizeof(m));
	te->nmem--;
	te->npieces -= mem_pieces(te, &m);
	mem_changed_locked(te);
	mc_mutex_unlock(&te->mem_lock);
	mce_te_own_view_drop(te);
	mce_mr_unregister(m.mr);
	free(m.location);
	if (ret_len)
		*ret_len = m.len;
	return 0;
}

void mce_te_mem_done(struct mce_te *te)
{
	for (unsigned i = 0; i < te->nmem; i++) {
		mce_mr_unregister(te->mem[i].mr);
		free(te->mem[i].location);
	}
	free(te->mem);
	free(te->text);
	te->mem = NULL;
	te->text = NULL;
	te->nmem = 0;
	mc_mutex_destroy(&te->mem_lock);
}

/* ---- public ------------------------------------------------------------------------------------ */

static int mem_add_user(struct mce_te *te, void *addr, size_t len, const char *location, int remote)
{
	struct mce_mr_attr attr = {
		.base = addr, .len = len, .fd = -1,
		.access = remote ? MCE_ACCESS_READ | MCE_ACCESS_WRITE : 0,
		.numa = mce_te_location_numa_index(te->numa, location),
	};
	int r;

	if (len == 0 || len > UINTPTR_MAX - (uintptr_t)addr)
		return mc_fail(-EINVAL, "cannot register memory of %zu bytes at %p", len, addr);
	r = mc_gpu_usable(addr, len);
	return r < 0 ? r : mce_te_mem_add(te, &attr, location);
}

int mce_te_register(struct mce_te *te, void *addr, size_t len, const char *location, int remote_accessible)
{
	int r;

	r = mem_add_user(te, addr, len, location, remote_accessible);
	if (r < 0)
		return r;
	r = mce_te_mem_publish(te, true);
	if (r < 0) {
		(void)mce_te_mem_remove(te, (uintptr_t)addr, NULL);
		(void)mce_te_mem_publish(te, false);
	}
	return r;
}

int mce_te_register_batch(struct mce_te *te, const struct buffer_entry *list, size_t n,
			  const char *location)
{
	size_t i;
	int r = 0;

	if (n && !list)
		return mc_fail(-EINVAL, "no list of buffers");
	for (i = 0; i < n && r == 0; i++)
		r = mem_add_user(te, list[i].addr, list[i].length, location, 1);
	if (r < 0)
		i--;
	else if (n)
		r = mce_te_mem_publish(te, true);
	if (r < 0 && i) {
		while (i-- > 0)
			(void)mce_te_mem_remove(te, (uintptr_t)list[i].addr, NULL);
		/* Publish without the refused memory, or a later refresh would send it again. */
		(void)mce_te_mem_publish(te, false);
	}
	return r;
}

int mce_te_unregister(struct mce_te *te, void *addr)
{
	return mce_te_unregister_batch(te, &addr, 1);
}

/* Peers cannot reach the memory even if publishing fails; the refresher of the metadata client repeats that. */
int mce_te_unregister_batch(struct mce_te *te, void *const *addrs, size_t n)
{
	bool wait = mc_fault("te.memory.leave") == 0;
	uint64_t deadline = mc_deadline_ms(wait ? MCE_TE_ASK_MS : 0), len;
	int r, err = 0;

	if (n && !addrs)
		return mc_fail(-EINVAL, "no list of addresses");
	for (size_t i = 0; i < n; i++) {
		r = mce_te_mem_remove(te, (uintptr_t)addrs[i], &len);
		if (r == 0)
			mce_te_batches_wait_range(te, (uintptr_t)addrs[i], len, deadline);
		else if (err == 0)
			err = r;
	}
	r = n ? mce_te_mem_publish(te, false) : 0;
	if (r < 0)
		mc_warn("engine", "cannot unpublish unregistered memory at the metadata server: %s",
			mc_err_detail(r));
	return err;
}
