/* SPDX-License-Identifier: Apache-2.0
 * verbs.c - libibverbs, loaded at run time.  Some verbs are inline functions of its header, which call through the
 * device's own table; the others are looked up by name. */
#include <config.h>

#include "engine/rdma/verbs.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "common/err.h"

static struct {
	__typeof__(ibv_get_device_list) *get_device_list;
	__typeof__(ibv_free_device_list) *free_device_list;
	__typeof__(ibv_get_device_name) *get_device_name;
	__typeof__(ibv_open_device) *open_device;
	__typeof__(ibv_close_device) *close_device;
	__typeof__(ibv_query_device) *query_device;
	int (*query_port)(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *ret);
	__typeof__(ibv_query_gid) *query_gid;
	__typeof__(_ibv_query_gid_ex) *query_gid_ex;
	__typeof__(ibv_get_async_event) *get_async_event;
	__typeof__(ibv_ack_async_event) *ack_async_event;
	__typeof__(ibv_alloc_pd) *alloc_pd;
	__typeof__(ibv_dealloc_pd) *dealloc_pd;
	struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *addr, size_t len, int access);
	__typeof__(ibv_reg_mr_iova2) *reg_mr_iova2;
	/* Older headers do not declare it. */
	struct ibv_mr *(*reg_dmabuf_mr)(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd,
					int access);
	__typeof__(ibv_dereg_mr) *dereg_mr;
	__typeof__(ibv_create_comp_channel) *create_comp_channel;
	__typeof__(ibv_destroy_comp_channel) *destroy_comp_channel;
	__typeof__(ibv_create_cq) *create_cq;
	__typeof__(ibv_destroy_cq) *destroy_cq;
	__typeof__(ibv_get_cq_event) *get_cq_event;
	__typeof__(ibv_ack_cq_events) *ack_cq_events;
	__typeof__(ibv_wc_status_str) *wc_status_str;
	__typeof__(ibv_create_qp) *create_qp;
	__typeof__(ibv_modify_qp) *modify_qp;
	__typeof__(ibv_destroy_qp) *destroy_qp;
} lib;

#define SYMBOL(field, name, needed) { name, (void **)&lib.field, needed }
static const struct {
	const char *name;
	void **to;
	bool needed;
} symbols[] = {
	SYMBOL(get_device_list, "ibv_get_device_list", true),
	SYMBOL(free_device_list, "ibv_free_device_list", true),
	SYMBOL(get_device_name, "ibv_get_device_name", true),
	SYMBOL(open_device, "ibv_open_device", true),
	SYMBOL(close_device, "ibv_close_device", true),
	SYMBOL(query_device, "ibv_query_device", true),
	SYMBOL(query_port, "ibv_query_port", true),
	SYMBOL(query_gid, "ibv_query_gid", true),
	SYMBOL(query_gid_ex, "_ibv_query_gid_ex", false),	/* rdma-core 33 */
	SYMBOL(get_async_event, "ibv_get_async_event", true),
	SYMBOL(ack_async_event, "ibv_ack_async_event", true),
	SYMBOL(alloc_pd, "ibv_alloc_pd", true),
	SYMBOL(dealloc_pd, "ibv_dealloc_pd", true),
	SYMBOL(reg_mr, "ibv_reg_mr", true),
	SYMBOL(reg_mr_iova2, "ibv_reg_mr_iova2", false),	/* rdma-core 28 */
	SYMBOL(reg_dmabuf_mr, "ibv_reg_dmabuf_mr", false),	/* rdma-core 34 */
	SYMBOL(dereg_mr, "ibv_dereg_mr", true),
	SYMBOL(create_comp_channel, "ibv_create_comp_channel", true),
	SYMBOL(destroy_comp_channel, "ibv_destroy_comp_channel", true),
	SYMBOL(create_cq, "ibv_create_cq", true),
	SYMBOL(destroy_cq, "ibv_destroy_cq", true),
	SYMBOL(get_cq_event, "ibv_get_cq_event", true),
	SYMBOL(ack_cq_events, "ibv_ack_cq_events", true),
	SYMBOL(wc_status_str, "ibv_wc_status_str", true),
	SYMBOL(create_qp, "ibv_create_qp", true),
	SYMBOL(modify_qp, "ibv_modify_qp", true),
	SYMBOL(destroy_qp, "ibv_destroy_qp", true),
};

/* Verbs return an errno value, or -1 and set errno. */
static int result_of(int r)
{
	return r == 0 ? 0 : r > 0 ? -r : errno > 0 ? -errno : -EIO;
}

static int lib_close_device(struct ibv_context *ctx)
{
	return result_of(lib.close_device(ctx));
}

static int lib_query_device(struct ibv_context *ctx, struct ibv_device_attr *ret)
{
	return result_of(lib.query_device(ctx, ret));
}

/* The same as ibv_query_port() of the header, which would need the library at link time. */
static int lib_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *ret)
{
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, query_port);

	memset(ret, 0, sizeof(*ret));
	if (vctx)
		return result_of(vctx->query_port(ctx, port, ret, sizeof(*ret)));
	return result_of(lib.query_port(ctx, port, (struct _compat_ibv_port_attr *)ret));
}

static int lib_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *ret)
{
	return result_of(lib.query_gid(ctx, port, index, ret));
}

static int lib_query_gid_type(struct ibv_context *ctx, uint8_t port, int index, uint32_t *ret)
{
	struct ibv_gid_entry entry;
	int r;

	if (!lib.query_gid_ex)
		return -ENOTSUP;
	r = lib.query_gid_ex(ctx, port, (uint32_t)index, &entry, 0, sizeof(entry));
	if (r == 0)
		*ret = entry.gid_type;
	return result_of(r);
}

static int lib_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ret)
{
	return result_of(lib.get_async_event(ctx, ret));
}

static int lib_dealloc_pd(struct ibv_pd *pd)
{
	return result_of(lib.dealloc_pd(pd));
}

static struct ibv_mr *lib_reg_mr(struct ibv_pd *pd, void *addr, size_t len, unsigned access)
{
	struct ibv_mr *mr = NULL;

	if (access & IBV_ACCESS_OPTIONAL_RANGE && lib.reg_mr_iova2)
		mr = lib.reg_mr_iova2(pd, addr, len, (uintptr_t)addr, access);
	if (!mr)
		mr = lib.reg_mr(pd, addr, len, (int)(access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE));
	return mr;
}

static struct ibv_mr *lib_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd,
					unsigned access)
{
	struct ibv_mr *mr;

	if (!lib.reg_dmabuf_mr) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	mr = lib.reg_dmabuf_mr(pd, offset, len, iova, fd, (int)access);
	if (!mr && access & IBV_ACCESS_OPTIONAL_RANGE)
		mr = lib.reg_dmabuf_mr(pd, offset, len, iova, fd, (int)(access & ~(unsigned)IBV_ACCESS_OPTIONAL_RANGE));
	return mr;
}

static int lib_dereg_mr(struct ibv_mr *mr)
{
	return result_of(lib.dereg_mr(mr));
}

static int lib_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	return result_of(lib.destroy_comp_channel(channel));
}

static int lib_destroy_cq(struct ibv_cq *cq)
{
	return result_of(lib.destroy_cq(cq));
}

static int lib_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret, void **ret_context)
{
	return result_of(lib.get_cq_event(channel, ret, ret_context));
}

static int lib_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return result_of(ibv_req_notify_cq(cq, solicited_only));
}

static int lib_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	int r = ibv_poll_cq(cq, n, wc);

	return r < 0 ? -EIO : r;
}

static int lib_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return result_of(lib.modify_qp(qp, attr, mask));
}

static int lib_destroy_qp(struct ibv_qp *qp)
{
	return result_of(lib.destroy_qp(qp));
}

static int lib_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return result_of(ibv_post_send(qp, wr, bad));
}

static struct mce_verbs table = {
	.close_device = lib_close_device, .query_device = lib_query_device, .query_port = lib_query_port,
	.query_gid = lib_query_gid, .query_gid_type = lib_query_gid_type, .get_async_event = lib_get_async_event,
	.dealloc_pd = lib_dealloc_pd, .reg_mr = lib_reg_mr, .reg_dmabuf_mr = lib_reg_dmabuf_mr,
	.dereg_mr = lib_dereg_mr, .destroy_comp_channel = lib_destroy_comp_channel, .destroy_cq = lib_destroy_cq,
	.get_cq_event = lib_get_cq_event, .req_notify_cq = lib_req_notify_cq, .poll_cq = lib_poll_cq,
	.modify_qp = lib_modify_qp, .destroy_qp = lib_destroy_qp, .post_send = lib_post_send,
};

static const struct mce_verbs *loaded;
static char why[256];

static void library_load(void)
{
	void *so = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!so) {
		(void)strncpy(why, dlerror(), sizeof(why) - 1);
		return;
	}
	/* The library stays open: its providers have state of their own. */
	for (unsigned i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].to = dlsym(so, symbols[i].name);
		if (!*symbols[i].to && symbols[i].needed) {
			(void)strncpy(why, symbols[i].name, sizeof(why) - 1);
			return;
		}
	}
	table.get_device_list = lib.get_device_list;
	table.free_device_list = lib.free_device_list;
	table.get_device_name = lib.get_device_name;
	table.open_device = lib.open_device;
	table.ack_async_event = lib.ack_async_event;
	table.alloc_pd = lib.alloc_pd;
	table.create_comp_channel = lib.create_comp_channel;
	table.create_cq = lib.create_cq;
	table.ack_cq_events = lib.ack_cq_events;
	table.wc_status_str = lib.wc_status_str;
	table.create_qp = lib.create_qp;
	loaded = &table;
}

static const struct mce_verbs *replacement;

const struct mce_verbs *mce_verbs(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (replacement)
		return replacement;
	(void)pthread_once(&once, library_load);
	if (!loaded)
		(void)mc_fail(-MC_ENOTSUP, "libibverbs.so.1 cannot be used (Debian: apt install libibverbs1): %s", why);
	return loaded;
}

void mce_verbs_replace(const struct mce_verbs *v)
{
	replacement = v;
}
