/* SPDX-License-Identifier: Apache-2.0
 * cm.c - librdmacm, loaded at run time. */
#include <config.h>

#include "engine/rdma/cm.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>

#include "common/err.h"
#include "engine/rdma/verbs.h"

static struct {
	__typeof__(rdma_create_event_channel) *create_event_channel;
	__typeof__(rdma_destroy_event_channel) *destroy_event_channel;
	__typeof__(rdma_create_id) *create_id;
	__typeof__(rdma_destroy_id) *destroy_id;
	__typeof__(rdma_bind_addr) *bind_addr;
	__typeof__(rdma_listen) *listen;
	__typeof__(rdma_resolve_addr) *resolve_addr;
	__typeof__(rdma_resolve_route) *resolve_route;
	__typeof__(rdma_connect) *connect;
	__typeof__(rdma_accept) *accept;
	__typeof__(rdma_reject) *reject;
	__typeof__(rdma_establish) *establish;
	__typeof__(rdma_init_qp_attr) *init_qp_attr;
	__typeof__(rdma_get_cm_event) *get_event;
	__typeof__(rdma_ack_cm_event) *ack_event;
} lib;

#define SYMBOL(field, name) { name, (void **)&lib.field }
static const struct {
	const char *name;
	void **to;
} symbols[] = {
	SYMBOL(create_event_channel, "rdma_create_event_channel"),
	SYMBOL(destroy_event_channel, "rdma_destroy_event_channel"),
	SYMBOL(create_id, "rdma_create_id"),
	SYMBOL(destroy_id, "rdma_destroy_id"),
	SYMBOL(bind_addr, "rdma_bind_addr"),
	SYMBOL(listen, "rdma_listen"),
	SYMBOL(resolve_addr, "rdma_resolve_addr"),
	SYMBOL(resolve_route, "rdma_resolve_route"),
	SYMBOL(connect, "rdma_connect"),
	SYMBOL(accept, "rdma_accept"),
	SYMBOL(reject, "rdma_reject"),
	SYMBOL(establish, "rdma_establish"),	/* rdma-core 23 */
	SYMBOL(init_qp_attr, "rdma_init_qp_attr"),	/* rdma-core 23 */
	SYMBOL(get_event, "rdma_get_cm_event"),
	SYMBOL(ack_event, "rdma_ack_cm_event"),
};

static int result_of(int r)
{
	return r == 0 ? 0 : errno > 0 ? -errno : -EIO;
}

static struct rdma_event_channel *lib_create_event_channel(void)
{
	struct rdma_event_channel *channel = lib.create_event_channel();

	if (channel)
		(void)fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
	return channel;
}

static int lib_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret)
{
	return result_of(lib.create_id(channel, ret, NULL, RDMA_PS_TCP));
}

static int lib_destroy_id(struct rdma_cm_id *id)
{
	return result_of(lib.destroy_id(id));
}

static int lib_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	return result_of(lib.bind_addr(id, addr));
}

static int lib_listen(struct rdma_cm_id *id, int backlog)
{
	return result_of(lib.listen(id, backlog));
}

static int lib_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	return result_of(lib.resolve_addr(id, src, dst, timeout_ms));
}

static int lib_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	return result_of(lib.resolve_route(id, timeout_ms));
}

static int lib_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return result_of(lib.connect(id, param));
}

static int lib_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	return result_of(lib.accept(id, param));
}

static int lib_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	return result_of(lib.reject(id, data, len));
}

static int lib_establish(struct rdma_cm_id *id)
{
	return result_of(lib.establish(id));
}

static int lib_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
	return result_of(lib.init_qp_attr(id, attr, mask));
}

static int lib_get_event(struct rdma_event_channel *channel, struct rdma_cm_event **ret)
{
	return result_of(lib.get_event(channel, ret));
}

static int lib_ack_event(struct rdma_cm_event *event)
{
	return result_of(lib.ack_event(event));
}

/* ---- addresses --------------------------------------------------------------------------------- */

/* How well peers on other hosts reach the address; 0: not at all. */
static int addr_rank(const struct ifaddrs *ifa)
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)ifa->ifa_addr;
	int family = ifa->ifa_addr ? ifa->ifa_addr->sa_family : AF_UNSPEC;

	if (family != AF_INET && (family != AF_INET6 || IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)))
		return 0;
	return ifa->ifa_flags & IFF_LOOPBACK ? 1 : family == AF_INET ? 3 : 2;
}

/* Is @addr an address of the device's port?  The connection manager knows, for every kind of device, once an identifier
 * is bound to the address. */
static bool addr_is_of(struct rdma_event_channel *channel, const char *name, unsigned port,
		       struct sockaddr *addr)
{
	struct rdma_cm_id *id;
	bool is;

	if (lib.create_id(channel, &id, NULL, RDMA_PS_TCP))
		return false;
	is = lib.bind_addr(id, addr) == 0 && id->verbs && id->port_num == port &&
		!strcmp(mce_verbs()->get_device_name(id->verbs->device), name);
	(void)lib.destroy_id(id);
	return is;
}

static int lib_device_addr(const char *name, unsigned port, struct sockaddr_storage *ret)
{
	struct rdma_event_channel *channel = lib.create_event_channel();
	struct ifaddrs *all = NULL;
	int best = 0, rank;

	if (!channel || getifaddrs(&all) < 0) {
		if (channel)
			lib.destroy_event_channel(channel);
		return errno > 0 ? -errno : -ENODEV;
	}
	for (const struct ifaddrs *ifa = all; ifa; ifa = ifa->ifa_next) {
		rank = addr_rank(ifa);
		if (rank <= best || !addr_is_of(channel, name, port, ifa->ifa_addr))
			continue;
		best = rank;
		memset(ret, 0, sizeof(*ret));
		memcpy(ret, ifa->ifa_addr, ifa->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) :
		       sizeof(struct sockaddr_in6));
	}
	freeifaddrs(all);
	lib.destroy_event_channel(channel);
	return best ? 0 : -ENODEV;
}

/* ---- the table --------------------------------------------------------------------------------- */

static struct mce_cm table = {
	.create_event_channel = lib_create_event_channel, .create_id = lib_create_id, .destroy_id = lib_destroy_id,
	.bind_addr = lib_bind_addr, .listen = lib_listen, .resolve_addr = lib_resolve_addr,
	.resolve_route = lib_resolve_route, .connect = lib_connect, .accept = lib_accept, .reject = lib_reject,
	.establish = lib_establish, .init_qp_attr = lib_init_qp_attr, .get_event = lib_get_event,
	.ack_event = lib_ack_event, .device_addr = lib_device_addr,
};

static const struct mce_cm *loaded, *replacement;
static char why[256];

static void library_load(void)
{
	void *so = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!so) {
		(void)strncpy(why, dlerror(), sizeof(why) - 1);
		return;
	}
	/* The library stays open: it has state of its own. */
	for (unsigned i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		*symbols[i].to = dlsym(so, symbols[i].name);
		if (!*symbols[i].to) {
			(void)strncpy(why, symbols[i].name, sizeof(why) - 1);
			return;
		}
	}
	table.destroy_event_channel = lib.destroy_event_channel;
	loaded = &table;
}

const struct mce_cm *mce_cm(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	if (replacement)
		return replacement;
	(void)pthread_once(&once, library_load);
	if (!loaded)
		(void)mc_fail(-MC_ENOTSUP, "librdmacm.so.1 cannot be used (Debian: apt install librdmacm1): %s", why);
	return loaded;
}

void mce_cm_replace(const struct mce_cm *cm)
{
	replacement = cm;
}
