/* SPDX-License-Identifier: Apache-2.0
 * cm_connect.c - queue pairs that the RDMA connection manager connects: the caller's end, and the owner's.
 *
 * iWARP NICs connect in no other way.  The owner listens on an address of each such NIC, which its answer to NICS has.
 * The answer to OPEN has the number of the endpoint and a token; each queue pair's connection brings both, and its
 * index, as private data.  So only the process at the other end of the control connection connects to the endpoint.
 *
 * The caller's end has an event channel of its own and waits on it, within the deadline of the resolver's round.  The
 * events of the owner arrive on the loop of mce_rdma.ctl. */
#include <config.h>

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/net/net.h"
#include "common/sys/clock.h"
#include "engine/rdma/rdma_i.h"

#define BACKLOG 64
/* Longest wait between two checks whether the engine is closing. */
#define CHECK_MS 100
#define RESOLVE_MS 200

/* ---- private data: 4 bytes of a mark, u32 id, u64 token, u32 index, little-endian ------------------ */

#define HELLO_SIZE 20u
static const uint8_t hello_mark[4] = { 'M', 'C', 'R', '1' };

struct hello {
	uint32_t id, index;
	uint64_t token;
};

static void hello_pack(uint8_t to[HELLO_SIZE], const struct hello *h)
{
	memcpy(to, hello_mark, sizeof(hello_mark));
	mce_put32(to + 4, h->id);
	mce_put32(to + 8, (uint32_t)h->token);
	mce_put32(to + 12, (uint32_t)(h->token >> 32));
	mce_put32(to + 16, h->index);
}

/* The connection manager may append zeros. */
static bool hello_unpack(const void *data, size_t len, struct hello *ret)
{
	const uint8_t *from = data;

	if (!data || len < HELLO_SIZE || memcmp(from, hello_mark, sizeof(hello_mark)) != 0)
		return false;
	ret->id = mce_get32(from + 4);
	ret->token = mce_get32(from + 8) | (uint64_t)mce_get32(from + 12) << 32;
	ret->index = mce_get32(from + 16);
	return true;
}

/* ---- addresses --------------------------------------------------------------------------------- */

static int addr_format(const struct sockaddr *addr, char ret[MCE_RDMA_CM_MAX])
{
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)addr;
	char host[INET6_ADDRSTRLEN], text[MC_ADDR_MAX];
	bool is6 = addr->sa_family == AF_INET6;
	int r;

	if (!inet_ntop(addr->sa_family, is6 ? (const void *)&v6->sin6_addr : &v4->sin_addr, host, sizeof(host)))
		return -errno;
	r = mc_addr_join(host, ntohs(is6 ? v6->sin6_port : v4->sin_port), text);
	if (r == 0)
		snprintf(ret, MCE_RDMA_CM_MAX, "%.*s", MCE_RDMA_CM_MAX - 1, text);
	return r;
}

static int addr_parse(const char *text, struct sockaddr_storage *ret)
{
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	char host[MC_ADDR_MAX];
	int port, r = mc_addr_split(text, host, sizeof(host), -1, &port);

	if (r < 0 || port < 1 || port > 65535)
		return -MC_EPROTO;
	memset(ret, 0, sizeof(*ret));
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
	} else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
	} else {
		return -MC_EPROTO;
	}
	return 0;
}

/* ---- both ends --------------------------------------------------------------------------------- */

/* Move the queue pair to a state with the attributes that the connection manager has negotiated.  An iWARP queue pair
 * moves by itself when it is connected. */
static int qp_move(struct mce_nic *nic, struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask = 0, r;

	if (nic->iwarp)
		return 0;
	r = nic->r->cm->init_qp_attr(id, &attr, &mask);
	if (r < 0)
		return r;
	if (attr.max_dest_rd_atomic > nic->rd_atomic)
		attr.max_dest_rd_atomic = (uint8_t)nic->rd_atomic;
	if (state == IBV_QPS_RTS) {
		attr.timeout = (uint8_t)nic->r->tune.timeout;
		attr.retry_cnt = (uint8_t)nic->r->tune.retry;
	}
	/* Kernels report bits here that verbs do not know: the source's link address of RoCE. */
	return nic->r->v->modify_qp(qp, &attr, mask & ~(0xf << 21));
}

static bool id_is_of(const struct mce_nic *nic, const struct rdma_cm_id *id)
{
	return id->verbs && !strcmp(nic->r->v->get_device_name(id->verbs->device), nic->addr.name) &&
		id->port_num == nic->r->tune.port;
}

static int qp_ready(struct mce_nic *nic, struct rdma_cm_id *id, struct ibv_qp *qp)
{
	int r = qp_move(nic, id, qp, IBV_QPS_RTR);

	return r < 0 ? r : qp_move(nic, id, qp, IBV_QPS_RTS);
}

static struct rdma_conn_param conn_param(const struct mce_nic *nic, const struct ibv_qp *qp)
{
	return (struct rdma_conn_param){
		.responder_resources = 1, .initiator_depth = 1, .retry_count = (uint8_t)nic->r->tune.retry,
		.rnr_retry_count = 6, .qp_num = qp->qp_num,
	};
}

void mce_rdma_cm_close(const struct mce_rdma *r, struct mce_rdma_cm *c)
{
	if (c->id)
		(void)r->cm->destroy_id(c->id);
	if (c->channel)
		r->cm->destroy_event_channel(c->channel);
	*c = (struct mce_rdma_cm){ 0 };
}

/* ---- the caller's end -------------------------------------------------------------------------- */

static int event_error(const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
		return -ECONNREFUSED;
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return event->status < 0 ? event->status : -EHOSTUNREACH;
	default:
		return event->status < 0 ? event->status : -ECONNRESET;
	}
}

/* Wait for the next event, which has to be one of two. */
static int event_wait(struct mce_nic *nic, const struct mce_rdma_cm *c, enum rdma_cm_event_type one,
		      enum rdma_cm_event_type other, uint64_t deadline, enum rdma_cm_event_type *ret)
{
	const struct mce_cm *cm = nic->r->cm;
	struct pollfd pfd = { .fd = c->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	int r;

	while ((r = cm->get_event(c->channel, &event)) == -EAGAIN) {
		if (mc_now_ns() >= deadline)
			return -ETIMEDOUT;
		if (mce_closing(nic->r->e))
			return -ECANCELED;
		(void)poll(&pfd, 1, CHECK_MS);
	}
	if (r < 0)
		return r;
	*ret = event->event;
	r = event->event == one || event->event == other ? 0 : event_error(event);
	(void)cm->ack_event(event);
	return r;
}

static int left_ms(uint64_t deadline)
{
	uint64_t now = mc_now_ns();

	return deadline > now ? (int)((deadline - now) / MC_NS_PER_MS) + 1 : 1;
}

/* The kernel may miss the moment at which the neighbour answers, and looks again only when a step's time ends, so the
 * steps are short. */
static int addr_resolve(struct mce_nic *nic, struct mce_rdma_cm *c, struct sockaddr_storage *dst, uint64_t deadline)
{
	struct sockaddr_storage src = nic->cm_addr;
	enum rdma_cm_event_type seen;
	int left, r;

	do {
		left = left_ms(deadline);
		r = nic->r->cm->resolve_addr(c->id, (struct sockaddr *)&src, (struct sockaddr *)dst,
					     left < RESOLVE_MS ? left : RESOLVE_MS);
		if (r == 0)
			r = event_wait(nic, c, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_RESOLVED, deadline,
				       &seen);
	} while (r == -ETIMEDOUT && mc_now_ns() < deadline);
	return r;
}

static int route_find(struct mce_nic *nic, struct mce_rdma_cm *c, const char *to, uint64_t deadline)
{
	enum rdma_cm_event_type seen;
	struct sockaddr_storage dst;
	int r = addr_parse(to, &dst);

	if (r == 0)
		r = addr_resolve(nic, c, &dst, deadline);
	/* Several devices may share an interface. */
	if (r == 0 && !id_is_of(nic, c->id))
		r = -EADDRNOTAVAIL;
	if (r == 0)
		r = nic->r->cm->resolve_route(c->id, left_ms(deadline));
	if (r == 0)
		r = event_wait(nic, c, RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED, deadline, &seen);
	return r;
}

static int qp_dial(struct mce_nic *nic, struct mce_rdma_cm *c, struct ibv_qp *qp, const struct hello *h,
		   uint64_t deadline)
{
	struct rdma_conn_param param = conn_param(nic, qp);
	enum rdma_cm_event_type seen;
	uint8_t data[HELLO_SIZE];
	int r;

	hello_pack(data, h);
	param.private_data = data;
	param.private_data_len = sizeof(data);
	param.initiator_depth = (uint8_t)nic->init_atomic;
	r = nic->r->cm->connect(c->id, &param);
	if (r == 0)
		r = event_wait(nic, c, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_CONNECT_RESPONSE, deadline, &seen);
	if (r < 0 || seen == RDMA_CM_EVENT_ESTABLISHED)
		return r;
	r = qp_ready(nic, c->id, qp);
	return r < 0 ? r : nic->r->cm->establish(c->id);
}

int mce_rdma_cm_dial(struct mce_nic *nic, struct mce_rdma_qp *qp, const struct mce_rdma_addr *to, uint32_t id,
		     uint64_t token, uint32_t index, uint64_t deadline)
{
	struct hello h = { .id = id, .token = token, .index = index };
	const char *step = "starting";
	int r = mc_fault("engine.rdma.connect");

	if (r == 0) {
		qp->cm.channel = nic->r->cm->create_event_channel();
		r = qp->cm.channel ? nic->r->cm->create_id(qp->cm.channel, &qp->cm.id) : -errno;
	}
	if (r == 0) {
		step = "finding the route";
		r = route_find(nic, &qp->cm, to->cm, deadline);
	}
	if (r == 0) {
		step = "connecting";
		r = qp_dial(nic, &qp->cm, qp->qp, &h, deadline);
	}
	return r < 0 ? mc_fail(r, "%s to %s at %s by rdma_cm, %s: %s", nic->addr.name, to->name, to->cm, step,
			       mc_strerror(r)) : 0;
}

/* ---- the owner's end, on the loop of ctl -------------------------------------------------------- */

static struct mce_nic *listener_nic(struct mce_rdma *r, const struct rdma_cm_id *listener)
{
	for (unsigned i = 0; i < r->nnics; i++)
		if (r->nic[i].cm_listener == listener)
			return &r->nic[i];
	return NULL;
}

/* Accept the connection of a queue pair that OPEN has made.  On failure the caller destroys @id. */
static int request_accept(struct mce_nic *nic, struct rdma_cm_id *id, const struct hello *h, uint8_t depth)
{
	struct rdma_conn_param param;
	struct mce_rdma_cm *c;
	struct ibv_qp *qp;
	int r = mce_rdma_guest_dialled(nic, h->id, h->token, h->index, &qp, &c);

	if (r == 0 && !id_is_of(nic, id))
		r = -EADDRNOTAVAIL;
	if (r == 0)
		r = qp_ready(nic, id, qp);
	if (r < 0)
		return r;
	param = conn_param(nic, qp);
	param.responder_resources = depth < nic->rd_atomic ? depth : (uint8_t)nic->rd_atomic;
	r = nic->r->cm->accept(id, &param);
	if (r == 0)
		c->id = id;
	return r;
}

static void request_take(struct mce_rdma *r, struct rdma_cm_event *event)
{
	struct mce_nic *nic = listener_nic(r, event->listen_id);
	struct rdma_cm_id *id = event->id;
	uint8_t depth = event->param.conn.responder_resources;
	struct hello h;
	bool valid = hello_unpack(event->param.conn.private_data, event->param.conn.private_data_len, &h);
	int err;

	(void)r->cm->ack_event(event);
	err = nic && valid ? request_accept(nic, id, &h, depth) : -MC_EPROTO;
	if (err == 0)
		return;
	mc_info("rdma", "a connection by rdma_cm is refused: %s nic=%s", mc_err_detail(err),
		nic ? nic->addr.name : "unknown");
	(void)r->cm->reject(id, NULL, 0);
	(void)r->cm->destroy_id(id);
}

/* Only requests matter here: the control connection shows when a peer ends. */
static void channel_ready(struct mc_evfd *evfd, uint32_t events)
{
	struct mce_rdma *r = mc_container_of(evfd, struct mce_rdma, cm_evfd);
	struct rdma_cm_event *event;

	(void)events;
	while (r->cm->get_event(r->cm_channel, &event) == 0) {
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
			request_take(r, event);
		else
			(void)r->cm->ack_event(event);
	}
}

static int channel_open(struct mce_rdma *r)
{
	if (r->cm_channel)
		return 0;
	r->cm_channel = r->cm->create_event_channel();
	return r->cm_channel ? 0 : -errno;
}

int mce_rdma_cm_start(struct mce_rdma *r)
{
	if (!r->cm_channel)
		return 0;
	r->cm_evfd = (struct mc_evfd){ .fd = r->cm_channel->fd, .ready = channel_ready };
	return mc_evloop_add(r->ctl.loop, &r->cm_evfd, EPOLLIN);
}

static int nic_listen(struct mce_nic *nic)
{
	const struct mce_cm *cm = nic->r->cm;
	struct sockaddr_storage addr;
	int r = cm->device_addr(nic->addr.name, nic->r->tune.port, &nic->cm_addr);

	if (r == 0)
		r = channel_open(nic->r);
	if (r == 0)
		r = cm->create_id(nic->r->cm_channel, &nic->cm_listener);
	addr = nic->cm_addr;
	if (r == 0)
		r = cm->bind_addr(nic->cm_listener, (struct sockaddr *)&addr);
	if (r == 0)
		r = cm->listen(nic->cm_listener, BACKLOG);
	if (r == 0)
		r = addr_format(&nic->cm_listener->route.addr.src_addr, nic->addr.cm);
	return r;
}

int mce_rdma_cm_open(struct mce_nic *nic)
{
	int r = mc_fault("engine.rdma.cm");

	if (r == 0 && !nic->r->cm)
		nic->r->cm = mce_cm();
	if (r == 0 && !nic->r->cm)
		r = -MC_ENOTSUP;
	else if (r == 0 && (r = nic_listen(nic)) < 0)
		r = r == -ENODEV ? mc_fail(r, "no interface of it has an IP address") :
			mc_fail(r, "cannot listen: %s", mc_strerror(r));
	if (r < 0)
		mce_rdma_cm_end(nic);
	return r;
}

void mce_rdma_cm_end(struct mce_nic *nic)
{
	if (nic->cm_listener)
		(void)nic->r->cm->destroy_id(nic->cm_listener);
	nic->cm_listener = NULL;
	nic->addr.cm[0] = 0;
}
