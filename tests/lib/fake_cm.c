/* SPDX-License-Identifier: Apache-2.0
 * fake_cm.c - connections between queue pairs of the fake NICs, by identifiers and events as librdmacm has them. */
#include <config.h>

#include "tests/lib/fake_cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/lib/fake_verbs_i.h"

#define IDS_MAX 256
#define DATA_MAX 56

struct event {
	struct rdma_cm_event ib;
	struct mc_list node;
	uint8_t data[DATA_MAX];
};

struct channel {
	struct rdma_event_channel ib;
	struct mc_list events;
};

struct id {
	struct rdma_cm_id ib;
	struct id *other;	/* the end at the other side */
	bool listens;
	unsigned nic, port;
	uint32_t qpn;		/* 0: none yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct id *ids[IDS_MAX];
static struct ibv_context contexts[FAKE_NICS_MAX];
static unsigned next_port = 20000, refuse;
static bool silent;
static long live;

void fake_cm_refuse(unsigned n)
{
	pthread_mutex_lock(&lock);
	refuse = n;
	pthread_mutex_unlock(&lock);
}

void fake_cm_silent(bool is)
{
	pthread_mutex_lock(&lock);
	silent = is;
	pthread_mutex_unlock(&lock);
}

long fake_cm_live(void)
{
	return __atomic_load_n(&live, __ATOMIC_RELAXED);
}

static void live_add(long by)
{
	__atomic_fetch_add(&live, by, __ATOMIC_RELAXED);
}

/* ---- events; the lock is held ------------------------------------------------------------------- */

static struct event *event_push(struct id *id, enum rdma_cm_event_type type, int status)
{
	struct event *e = calloc(1, sizeof(*e));
	struct channel *ch = (struct channel *)id->ib.channel;

	e->ib.id = &id->ib;
	e->ib.event = type;
	e->ib.status = status;
	mc_list_push_back(&ch->events, &e->node);
	(void)!write(ch->ib.fd, &(uint64_t){ 1 }, 8);
	return e;
}

static int fake_get_event(struct rdma_event_channel *ib, struct rdma_cm_event **ret)
{
	struct channel *ch = (struct channel *)ib;
	int r = -EAGAIN;

	pthread_mutex_lock(&lock);
	if (!mc_list_empty(&ch->events)) {
		struct event *e = mc_list_first(&ch->events, struct event, node);

		mc_list_remove(&e->node);
		*ret = &e->ib;
		r = 0;
	} else {
		(void)!read(ib->fd, &(uint64_t){ 0 }, 8);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static int fake_ack_event(struct rdma_cm_event *ib)
{
	free(mc_container_of(ib, struct event, ib));
	return 0;
}

static struct rdma_event_channel *fake_create_event_channel(void)
{
	struct channel *ch = calloc(1, sizeof(*ch));

	ch->ib.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	mc_list_init(&ch->events);
	live_add(1);
	return &ch->ib;
}

static void fake_destroy_event_channel(struct rdma_event_channel *ib)
{
	close(ib->fd);
	free(ib);
	live_add(-1);
}

/* ---- identifiers ------------------------------------------------------------------------------- */

static struct id *id_new(struct rdma_event_channel *channel)
{
	struct id *id = calloc(1, sizeof(*id));
	unsigned i = 0;

	id->ib.channel = channel;
	while (ids[i])
		i++;
	ids[i] = id;
	live_add(1);
	return id;
}

static int fake_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **ret)
{
	pthread_mutex_lock(&lock);
	*ret = &id_new(channel)->ib;
	pthread_mutex_unlock(&lock);
	return 0;
}

static int fake_destroy_id(struct rdma_cm_id *ib)
{
	struct channel *ch = (struct channel *)ib->channel;
	struct mc_list *pos, *next;

	pthread_mutex_lock(&lock);
	mc_list_for_each_safe(pos, next, &ch->events) {
		struct event *e = mc_container_of(pos, struct event, node);

		if (e->ib.id != ib && e->ib.listen_id != ib)
			continue;
		mc_list_remove(pos);
		free(e);
	}
	for (unsigned i = 0; i < IDS_MAX; i++) {
		if (ids[i] && ids[i]->other == (struct id *)ib)
			ids[i]->other = NULL;
		if (ids[i] == (struct id *)ib)
			ids[i] = NULL;
	}
	pthread_mutex_unlock(&lock);
	free(ib);
	live_add(-1);
	return 0;
}

/* The NIC of an address; -1: there is none. */
static int nic_of(const struct sockaddr *addr)
{
	uint32_t ip = ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr);
	int nic = (int)(ip & 0xff) - 11;

	if (addr->sa_family != AF_INET || ip >> 8 != (10 << 16 | 77 << 8) || nic < 0 || nic >= (int)fake_nnics)
		return -1;
	return nic;
}

static int fake_bind_addr(struct rdma_cm_id *ib, struct sockaddr *addr)
{
	struct id *id = (struct id *)ib;
	struct sockaddr_in *to = &ib->route.addr.src_sin;
	int nic = nic_of(addr);

	if (nic < 0)
		return -ENODEV;
	pthread_mutex_lock(&lock);
	id->nic = (unsigned)nic;
	id->port = next_port++;
	memcpy(to, addr, sizeof(*to));
	to->sin_port = htons((uint16_t)id->port);
	contexts[nic].device = &fake_nics[nic].dev;
	ib->verbs = &contexts[nic];
	ib->port_num = 1;
	pthread_mutex_unlock(&lock);
	return 0;
}

static int fake_listen(struct rdma_cm_id *ib, int backlog)
{
	(void)backlog;
	pthread_mutex_lock(&lock);
	((struct id *)ib)->listens = true;
	pthread_mutex_unlock(&lock);
	return 0;
}

static int fake_resolve_addr(struct rdma_cm_id *ib, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	int r = ib->verbs ? 0 : fake_bind_addr(ib, src);

	(void)timeout_ms;
	if (r < 0)
		return r;
	pthread_mutex_lock(&lock);
	memcpy(&ib->route.addr.dst_sin, dst, sizeof(ib->route.addr.dst_sin));
	if (nic_of(dst) < 0)
		(void)event_push((struct id *)ib, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
	else
		(void)event_push((struct id *)ib, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int fake_resolve_route(struct rdma_cm_id *ib, int timeout_ms)
{
	(void)timeout_ms;
	pthread_mutex_lock(&lock);
	(void)event_push((struct id *)ib, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
	pthread_mutex_unlock(&lock);
	return 0;
}

/* ---- connections ------------------------------------------------------------------------------- */

static struct id *listener_find(const struct sockaddr_in *dst)
{
	int nic = nic_of((const struct sockaddr *)dst);

	for (unsigned i = 0; i < IDS_MAX; i++)
		if (ids[i] && ids[i]->listens && (int)ids[i]->nic == nic && ids[i]->port == ntohs(dst->sin_port))
			return ids[i];
	return NULL;
}

static int fake_connect(struct rdma_cm_id *ib, struct rdma_conn_param *param)
{
	struct id *id = (struct id *)ib, *listener, *child;
	struct event *e;

	pthread_mutex_lock(&lock);
	id->qpn = param->qp_num;
	listener = listener_find(&ib->route.addr.dst_sin);
	if (!listener || refuse) {
		refuse -= refuse > 0;
		(void)event_push(id, RDMA_CM_EVENT_REJECTED, 0);
	} else if (!silent) {
		child = id_new(listener->ib.channel);
		child->nic = listener->nic;
		child->ib.verbs = listener->ib.verbs;
		child->ib.port_num = 1;
		child->other = id;
		id->other = child;
		e = event_push(child, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
		e->ib.listen_id = &listener->ib;
		memcpy(e->data, param->private_data, param->private_data_len);
		e->ib.param.conn.private_data = e->data;
		e->ib.param.conn.private_data_len = DATA_MAX;
		e->ib.param.conn.responder_resources = param->initiator_depth;
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

static int fake_accept(struct rdma_cm_id *ib, struct rdma_conn_param *param)
{
	struct id *id = (struct id *)ib, *caller;
	bool iwarp = fake_nics[id->nic].dev.transport_type == IBV_TRANSPORT_IWARP;

	pthread_mutex_lock(&lock);
	id->qpn = param->qp_num;
	caller = id->other;
	if (caller && iwarp) {
		fake_qps_connect(caller->qpn, id->qpn);
		(void)event_push(caller, RDMA_CM_EVENT_ESTABLISHED, 0);
		(void)event_push(id, RDMA_CM_EVENT_ESTABLISHED, 0);
	} else if (caller) {
		(void)event_push(caller, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
	}
	pthread_mutex_unlock(&lock);
	return caller ? 0 : -ECONNRESET;
}

static int fake_reject(struct rdma_cm_id *ib, const void *data, uint8_t len)
{
	struct id *id = (struct id *)ib;

	(void)data;
	(void)len;
	pthread_mutex_lock(&lock);
	if (id->other)
		(void)event_push(id->other, RDMA_CM_EVENT_REJECTED, 0);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int fake_establish(struct rdma_cm_id *ib)
{
	struct id *id = (struct id *)ib;

	pthread_mutex_lock(&lock);
	if (id->other)
		(void)event_push(id->other, RDMA_CM_EVENT_ESTABLISHED, 0);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int fake_init_qp_attr(struct rdma_cm_id *ib, struct ibv_qp_attr *attr, int *mask)
{
	const struct id *other = ((struct id *)ib)->other;

	*mask = IBV_QP_STATE;
	if (!other)
		return -ECONNRESET;
	if (attr->qp_state != IBV_QPS_RTR)
		return 0;
	attr->dest_qp_num = other->qpn;
	attr->path_mtu = IBV_MTU_1024;
	attr->ah_attr.grh.dgid.raw[15] = (uint8_t)(11 + other->nic);
	*mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | 0xf << 21;
	return 0;
}

static int fake_device_addr(const char *name, unsigned port, struct sockaddr_storage *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;

	if (port != 1)
		return -ENODEV;
	memset(ret, 0, sizeof(*ret));
	v4->sin_family = AF_INET;
	v4->sin_addr.s_addr = htonl(10u << 24 | 77u << 16 | (11u + (unsigned)atoi(name + strlen("fake"))));
	return 0;
}

static const struct mce_cm table = {
	.create_event_channel = fake_create_event_channel, .destroy_event_channel = fake_destroy_event_channel,
	.create_id = fake_create_id, .destroy_id = fake_destroy_id, .bind_addr = fake_bind_addr, .listen = fake_listen,
	.resolve_addr = fake_resolve_addr, .resolve_route = fake_resolve_route, .connect = fake_connect,
	.accept = fake_accept, .reject = fake_reject, .establish = fake_establish, .init_qp_attr = fake_init_qp_attr,
	.get_event = fake_get_event, .ack_event = fake_ack_event, .device_addr = fake_device_addr,
};

const struct mce_cm *fake_cm(void)
{
	return &table;
}
