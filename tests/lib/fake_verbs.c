/* SPDX-License-Identifier: Apache-2.0
 * fake_verbs.c - NICs without a network: a thread per NIC executes the work requests of its queue pairs in order and
 * copies the bytes, after the checks that a real responder makes. */
#include <config.h>

#include "tests/lib/fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/list.h"

#define RETRY_MS 30			/* until a responder that does not answer is an error */
#define LATE_MS 50
#define SGE_MAX 16
#define INLINE_MAX 256
#define EVENTS_MAX 64
#define CONTEXTS_MAX 8

struct fake_qp;

struct work {
	uint64_t wr_id, remote;
	uint32_t rkey, len;
	bool read, signalled;
	unsigned nsge;
	struct ibv_sge sge[SGE_MAX];
	char data[INLINE_MAX];	/* inline: nsge is 0 */
};

struct fake_cq {
	struct ibv_cq ib;
	pthread_mutex_t lock;
	struct ibv_wc *ring;
	uint32_t head, tail, cap;
	bool armed;
};

struct fake_qp {
	struct ibv_qp ib;
	struct mc_list node;	/* all_qps */
	unsigned nic;
	struct fake_cq *cq;
	pthread_mutex_t lock;	/* guards the ring's ends and the state */
	struct work *ring;
	uint32_t cap, head, tail;
	enum ibv_qp_state state;
	unsigned access;
	uint32_t dest_qpn;
	union ibv_gid dest;
	unsigned busy;		/* all_lock: work that uses it, on either side */
};

struct fake_mr {
	struct ibv_mr ib;
	struct mc_list node;	/* all_mrs */
	unsigned access, nic;
	unsigned busy;		/* all_lock */
};

struct fake_channel {
	struct ibv_comp_channel ib;
	pthread_mutex_t lock;
	struct fake_cq *event[EVENTS_MAX];
	unsigned n;
};

struct late {
	struct mc_list node;
	uint64_t due_ns;
	uint32_t qpn, rkey, len;
	uint64_t remote;
	char *bytes;
};

static struct fake_nic {
	struct ibv_device dev;
	char name[16];
	pthread_t thread;
	pthread_mutex_t lock;	/* of the fields below */
	pthread_cond_t work;
	bool ending, event_up, up, stopped, late;
	unsigned delay_us, error_after;
	enum ibv_wc_status error;
	int reg_err;
	unsigned reg_times;
	enum ibv_mtu mtu;
	uint64_t max_mr;
	struct mc_list lates;
	struct ibv_context *ctx[CONTEXTS_MAX];	/* open ones, one for each engine */
	uint64_t pokes;
	/* atomic */
	uint64_t wrs, doorbells, cqes, bytes;
} nics[FAKE_NICS_MAX];
static unsigned nnics;

/* Queue pairs and regions of all NICs. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_idle = PTHREAD_COND_INITIALIZER;
static struct mc_list all_qps = { &all_qps, &all_qps }, all_mrs = { &all_mrs, &all_mrs };
static uint32_t next_number = 0x100;
static long live;

static void count(uint64_t *n, uint64_t by)
{
	__atomic_fetch_add(n, by, __ATOMIC_RELAXED);
}

static void object(long by)
{
	__atomic_fetch_add(&live, by, __ATOMIC_RELAXED);
}

static struct fake_nic *nic_of(const struct ibv_context *ctx)
{
	return mc_container_of(ctx->device, struct fake_nic, dev);
}

/* ---- completions ---- */

static void cq_push(struct fake_nic *nic, struct fake_qp *qp, const struct work *w, enum ibv_wc_status status)
{
	struct fake_cq *cq = qp->cq;
	struct fake_channel *ch = (struct fake_channel *)cq->ib.channel;
	bool event;

	if (status == IBV_WC_SUCCESS && !w->signalled)
		return;
	pthread_mutex_lock(&cq->lock);
	if (cq->head - cq->tail == cq->cap) {
		fprintf(stderr, "fake_verbs: the completion queue overflows\n");
		abort();
	}
	cq->ring[cq->head++ % cq->cap] = (struct ibv_wc){
		.wr_id = w->wr_id, .status = status, .qp_num = qp->ib.qp_num, .byte_len = w->len,
		.opcode = w->read ? IBV_WC_RDMA_READ : IBV_WC_RDMA_WRITE,
	};
	event = cq->armed && ch;
	if (event)
		cq->armed = false;
	pthread_mutex_unlock(&cq->lock);
	count(&nic->cqes, 1);
	if (!event)
		return;
	pthread_mutex_lock(&ch->lock);
	ch->event[ch->n++ % EVENTS_MAX] = cq;
	pthread_mutex_unlock(&ch->lock);
	(void)!write(ch->ib.fd, &(uint64_t){ 1 }, 8);
}

static int fake_poll_cq(struct ibv_cq *ib, int n, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)ib;
	int i = 0;

	pthread_mutex_lock(&cq->lock);
	while (i < n && cq->tail != cq->head)
		wc[i++] = cq->ring[cq->tail++ % cq->cap];
	pthread_mutex_unlock(&cq->lock);
	return i;
}

static int fake_req_notify_cq(struct ibv_cq *ib, int solicited_only)
{
	struct fake_cq *cq = (struct fake_cq *)ib;

	(void)solicited_only;
	pthread_mutex_lock(&cq->lock);
	cq->armed = true;
	pthread_mutex_unlock(&cq->lock);
	return 0;
}

static struct ibv_comp_channel *fake_create_comp_channel(struct ibv_context *ctx)
{
	struct fake_channel *ch = calloc(1, sizeof(*ch));

	ch->ib.context = ctx;
	ch->ib.fd = eventfd(0, EFD_CLOEXEC);
	pthread_mutex_init(&ch->lock, NULL);
	object(1);
	return &ch->ib;
}

static int fake_destroy_comp_channel(struct ibv_comp_channel *ib)
{
	struct fake_channel *ch = (struct fake_channel *)ib;

	close(ch->ib.fd);
	pthread_mutex_destroy(&ch->lock);
	free(ch);
	object(-1);
	return 0;
}

static struct ibv_cq *fake_create_cq(struct ibv_context *ctx, int cqe, void *context, struct ibv_comp_channel *channel,
				     int vector)
{
	struct fake_cq *cq = calloc(1, sizeof(*cq));

	(void)vector;
	cq->ib.context = ctx;
	cq->ib.channel = channel;
	cq->ib.cq_context = context;
	cq->cap = (uint32_t)cqe;
	cq->ring = calloc(cq->cap, sizeof(*cq->ring));
	pthread_mutex_init(&cq->lock, NULL);
	object(1);
	return &cq->ib;
}

static int fake_destroy_cq(struct ibv_cq *ib)
{
	struct fake_cq *cq = (struct fake_cq *)ib;

	pthread_mutex_destroy(&cq->lock);
	free(cq->ring);
	free(cq);
	object(-1);
	return 0;
}

static int fake_get_cq_event(struct ibv_comp_channel *ib, struct ibv_cq **ret, void **ret_context)
{
	struct fake_channel *ch = (struct fake_channel *)ib;
	int r = -EAGAIN;

	pthread_mutex_lock(&ch->lock);
	if (ch->n) {
		*ret = &ch->event[0]->ib;
		*ret_context = (*ret)->cq_context;
		memmove(ch->event, ch->event + 1, --ch->n * sizeof(ch->event[0]));
		r = 0;
	} else {
		(void)!read(ch->ib.fd, &(uint64_t){ 0 }, 8);
	}
	pthread_mutex_unlock(&ch->lock);
	return r;
}

static void fake_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	(void)cq;
	(void)n;
}

/* ---- the work of a NIC ---- */

/* all_lock.  NULL, or the region that permits the access. */
static struct fake_mr *mr_find(uint32_t key, bool remote, uint64_t addr, uint64_t len, unsigned access)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &all_mrs) {
		struct fake_mr *mr = mc_container_of(pos, struct fake_mr, node);

		if ((remote ? mr->ib.rkey : mr->ib.lkey) != key)
			continue;
		return addr >= (uintptr_t)mr->ib.addr && len <= mr->ib.length &&
		       addr - (uintptr_t)mr->ib.addr <= mr->ib.length - len && (mr->access & access) == access ? mr : NULL;
	}
	return NULL;
}

static struct fake_qp *qp_find(uint32_t qpn)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &all_qps)
		if (mc_container_of(pos, struct fake_qp, node)->ib.qp_num == qpn)
			return mc_container_of(pos, struct fake_qp, node);
	return NULL;
}

static bool qp_answers(struct fake_qp *qp)
{
	bool r;

	pthread_mutex_lock(&qp->lock);
	r = qp->state == IBV_QPS_RTR || qp->state == IBV_QPS_RTS;
	pthread_mutex_unlock(&qp->lock);
	return r;
}

static bool nic_is_up(unsigned nic)
{
	return __atomic_load_n(&nics[nic].up, __ATOMIC_ACQUIRE);
}

/* all_lock.  What the responder answers; *ret_qp and *ret_mr: it and its memory. */
static enum ibv_wc_status respond(const struct fake_qp *from, const struct work *w, struct fake_qp **ret_qp,
				  struct fake_mr **ret_mr)
{
	struct fake_qp *to = qp_find(from->dest_qpn);
	unsigned access = w->read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;

	*ret_qp = NULL;
	if (!to || !nic_is_up(from->nic) || !nic_is_up(to->nic))
		return IBV_WC_RETRY_EXC_ERR;
	pthread_mutex_lock(&to->lock);
	if ((to->state == IBV_QPS_RTR || to->state == IBV_QPS_RTS) && to->dest_qpn == from->ib.qp_num)
		*ret_qp = to;
	if (*ret_qp && !(to->access & access)) {
		to->state = IBV_QPS_ERR;
		pthread_mutex_unlock(&to->lock);
		return IBV_WC_REM_ACCESS_ERR;
	}
	pthread_mutex_unlock(&to->lock);
	if (!*ret_qp)
		return IBV_WC_RETRY_EXC_ERR;
	*ret_mr = mr_find(w->rkey, true, w->remote, w->len, access);
	return *ret_mr ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
}

/* all_lock.  The local regions are held as well. */
static bool hold_local(const struct work *w, struct fake_mr *mr[SGE_MAX])
{
	for (unsigned i = 0; i < w->nsge; i++) {
		mr[i] = mr_find(w->sge[i].lkey, false, w->sge[i].addr, w->sge[i].length,
				w->read ? IBV_ACCESS_LOCAL_WRITE : 0);
		if (!mr[i])
			return false;
	}
	return true;
}

static void copy(const struct work *w)
{
	char *remote = (char *)(uintptr_t)w->remote;

	if (w->nsge == 0)
		memcpy(remote, w->data, w->len);
	for (unsigned i = 0; i < w->nsge; i++) {
		char *local = (char *)(uintptr_t)w->sge[i].addr;

		memcpy(w->read ? local : remote, w->read ? remote : local, w->sge[i].length);
		remote += w->sge[i].length;
	}
}

/* Keep the bytes of a WRITE that failed. */
static void late_add(struct fake_nic *nic, const struct fake_qp *qp, const struct work *w)
{
	struct late *l = malloc(sizeof(*l));
	char *at = malloc(w->len);

	*l = (struct late){ .due_ns = mc_now_ns() + LATE_MS * MC_NS_PER_MS, .qpn = qp->dest_qpn, .rkey = w->rkey,
			    .len = w->len, .remote = w->remote, .bytes = at };
	if (w->nsge == 0)
		memcpy(at, w->data, w->len);
	for (unsigned i = 0; i < w->nsge; i++) {
		memcpy(at, (void *)(uintptr_t)w->sge[i].addr, w->sge[i].length);
		at += w->sge[i].length;
	}
	pthread_mutex_lock(&nic->lock);
	mc_list_push_back(&nic->lates, &l->node);
	pthread_mutex_unlock(&nic->lock);
}

static void lates_deliver(struct fake_nic *nic, bool all)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &nic->lates) {
		struct late *l = mc_container_of(pos, struct late, node);
		struct fake_qp *to;

		if (!all && mc_now_ns() < l->due_ns)
			continue;
		mc_list_remove(pos);
		pthread_mutex_lock(&all_lock);
		to = all ? NULL : qp_find(l->qpn);
		if (to && qp_answers(to) && mr_find(l->rkey, true, l->remote, l->len, IBV_ACCESS_REMOTE_WRITE))
			memcpy((void *)(uintptr_t)l->remote, l->bytes, l->len);
		pthread_mutex_unlock(&all_lock);
		free(l->bytes);
		free(l);
	}
}

static void nap(uint64_t ns)
{
	struct timespec ts = { .tv_sec = (time_t)(ns / MC_NS_PER_SEC), .tv_nsec = (long)(ns % MC_NS_PER_SEC) };

	nanosleep(&ts, NULL);
}

/* The fault that this work request meets, or success; and the pause before it. */
static enum ibv_wc_status nic_fault(struct fake_nic *nic)
{
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	unsigned us;

	pthread_mutex_lock(&nic->lock);
	us = nic->delay_us;
	if (nic->error_after && --nic->error_after == 0)
		status = nic->error;
	pthread_mutex_unlock(&nic->lock);
	if (us)
		nap(us * 1000ull);
	return status;
}

static enum ibv_wc_status execute(struct fake_nic *nic, struct fake_qp *qp, const struct work *w)
{
	enum ibv_wc_status status = nic_fault(nic);
	struct fake_mr *local[SGE_MAX], *remote = NULL;
	struct fake_qp *to = NULL;
	bool late;

	pthread_mutex_lock(&all_lock);
	if (status == IBV_WC_SUCCESS && !hold_local(w, local))
		status = IBV_WC_LOC_PROT_ERR;
	if (status == IBV_WC_SUCCESS)
		status = respond(qp, w, &to, &remote);
	if (status == IBV_WC_SUCCESS) {
		to->busy++;
		remote->busy++;
		for (unsigned i = 0; i < w->nsge; i++)
			local[i]->busy++;
	}
	pthread_mutex_unlock(&all_lock);
	if (status == IBV_WC_SUCCESS) {
		copy(w);
		count(&nic->bytes, w->len);
		pthread_mutex_lock(&all_lock);
		to->busy--;
		remote->busy--;
		for (unsigned i = 0; i < w->nsge; i++)
			local[i]->busy--;
		pthread_cond_broadcast(&all_idle);
		pthread_mutex_unlock(&all_lock);
	} else if (status == IBV_WC_RETRY_EXC_ERR) {
		pthread_mutex_lock(&nic->lock);
		late = nic->late;
		pthread_mutex_unlock(&nic->lock);
		if (late && !w->read)
			late_add(nic, qp, w);
		nap(RETRY_MS * MC_NS_PER_MS);
	}
	count(&nic->wrs, 1);
	return status;
}

/* One work request of the queue pair: true if there was one. */
static bool qp_step(struct fake_nic *nic, struct fake_qp *qp)
{
	enum ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;
	const struct work *w;
	bool flush;

	pthread_mutex_lock(&qp->lock);
	if (qp->head == qp->tail || (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR)) {
		pthread_mutex_unlock(&qp->lock);
		return false;
	}
	w = &qp->ring[qp->tail % qp->cap];
	flush = qp->state == IBV_QPS_ERR;
	pthread_mutex_unlock(&qp->lock);
	if (!flush)
		status = execute(nic, qp, w);
	pthread_mutex_lock(&qp->lock);
	if (status != IBV_WC_SUCCESS)
		qp->state = IBV_QPS_ERR;
	/* before its slot is free */
	cq_push(nic, qp, w, status);
	qp->tail++;
	pthread_mutex_unlock(&qp->lock);
	return true;
}

/* The next queue pair of the NIC after the last one, held. */
static struct fake_qp *qp_next(unsigned nic, uint32_t *last)
{
	struct fake_qp *first = NULL, *next = NULL;
	struct mc_list *pos;

	pthread_mutex_lock(&all_lock);
	mc_list_for_each(pos, &all_qps) {
		struct fake_qp *qp = mc_container_of(pos, struct fake_qp, node);

		if (qp->nic != nic)
			continue;
		first = first ? first : qp;
		if (!next && qp->ib.qp_num > *last)
			next = qp;
	}
	next = next ? next : first;
	if (next) {
		next->busy++;
		*last = next->ib.qp_num;
	}
	pthread_mutex_unlock(&all_lock);
	return next;
}

static void qp_release(struct fake_qp *qp)
{
	pthread_mutex_lock(&all_lock);
	qp->busy--;
	pthread_cond_broadcast(&all_idle);
	pthread_mutex_unlock(&all_lock);
}

/* All queue pairs have their turn: true if any had work. */
static bool nic_turn(struct fake_nic *nic)
{
	unsigned index = (unsigned)(nic - nics);
	uint32_t last = 0, begin = 0;
	struct fake_qp *qp;
	bool any = false;

	while ((qp = qp_next(index, &last))) {
		for (unsigned i = 0; i < 16 && qp_step(nic, qp); i++)
			any = true;
		qp_release(qp);
		if (last <= begin)
			break;
		begin = last;
	}
	return any;
}

static void *nic_main(void *arg)
{
	struct fake_nic *nic = arg;
	uint64_t seen = 0;

	pthread_mutex_lock(&nic->lock);
	while (!nic->ending) {
		struct timespec until;
		bool idle;

		pthread_mutex_unlock(&nic->lock);
		idle = __atomic_load_n(&nic->stopped, __ATOMIC_ACQUIRE) || !nic_turn(nic);
		pthread_mutex_lock(&nic->lock);
		lates_deliver(nic, false);
		if (!idle || seen != nic->pokes) {
			seen = nic->pokes;
			continue;
		}
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 5000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&nic->work, &nic->lock, &until);
	}
	lates_deliver(nic, true);
	pthread_mutex_unlock(&nic->lock);
	return NULL;
}

static void nic_poke(struct fake_nic *nic)
{
	pthread_mutex_lock(&nic->lock);
	nic->pokes++;
	pthread_cond_signal(&nic->work);
	pthread_mutex_unlock(&nic->lock);
}

/* ---- queue pairs ---- */

static struct ibv_qp *fake_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fake_qp *qp = calloc(1, sizeof(*qp));

	if (attr->cap.max_inline_data > INLINE_MAX || attr->cap.max_send_sge > SGE_MAX) {
		free(qp);
		errno = EINVAL;
		return NULL;
	}
	qp->ib.context = pd->context;
	qp->ib.pd = pd;
	qp->nic = (unsigned)(nic_of(pd->context) - nics);
	qp->cq = (struct fake_cq *)attr->send_cq;
	qp->cap = attr->cap.max_send_wr;
	qp->ring = calloc(qp->cap, sizeof(*qp->ring));
	pthread_mutex_init(&qp->lock, NULL);
	pthread_mutex_lock(&all_lock);
	qp->ib.qp_num = next_number++;
	mc_list_push_back(&all_qps, &qp->node);
	pthread_mutex_unlock(&all_lock);
	object(1);
	return &qp->ib;
}

static int qp_to_rtr(struct fake_qp *qp, const struct ibv_qp_attr *attr)
{
	const union ibv_gid *gid = &attr->ah_attr.grh.dgid;
	unsigned to = gid->raw[15] - 11u;

	if (to >= nnics || attr->path_mtu > nics[qp->nic].mtu || attr->path_mtu > nics[to].mtu)
		return -EINVAL;
	if (!nic_is_up(qp->nic))
		return -ENETUNREACH;
	qp->dest_qpn = attr->dest_qp_num;
	qp->dest = *gid;
	return 0;
}

static int fake_modify_qp(struct ibv_qp *ib, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)ib;
	int r = 0;

	pthread_mutex_lock(&all_lock);
	pthread_mutex_lock(&qp->lock);
	if (!(mask & IBV_QP_STATE) || (attr->qp_state != IBV_QPS_ERR && attr->qp_state != qp->state + 1))
		r = -EINVAL;
	else if (attr->qp_state == IBV_QPS_INIT)
		qp->access = attr->qp_access_flags;
	else if (attr->qp_state == IBV_QPS_RTR)
		r = qp_to_rtr(qp, attr);
	else if (attr->qp_state == IBV_QPS_RTS && attr->retry_cnt == 7)
		r = -EINVAL;	/* endless on some devices */
	if (r == 0)
		qp->state = attr->qp_state;
	pthread_mutex_unlock(&qp->lock);
	pthread_mutex_unlock(&all_lock);
	nic_poke(&nics[qp->nic]);
	return r;
}

static int fake_destroy_qp(struct ibv_qp *ib)
{
	struct fake_qp *qp = (struct fake_qp *)ib;

	pthread_mutex_lock(&all_lock);
	mc_list_remove(&qp->node);
	while (qp->busy)
		pthread_cond_wait(&all_idle, &all_lock);
	pthread_mutex_unlock(&all_lock);
	pthread_mutex_destroy(&qp->lock);
	free(qp->ring);
	free(qp);
	object(-1);
	return 0;
}

static bool work_make(struct work *w, const struct ibv_send_wr *wr)
{
	bool is_inline = wr->send_flags & IBV_SEND_INLINE;

	if ((wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_READ) || wr->num_sge > SGE_MAX)
		return false;
	w->wr_id = wr->wr_id;
	w->remote = wr->wr.rdma.remote_addr;
	w->rkey = wr->wr.rdma.rkey;
	w->read = wr->opcode == IBV_WR_RDMA_READ;
	w->signalled = wr->send_flags & IBV_SEND_SIGNALED;
	w->len = 0;
	w->nsge = is_inline ? 0 : (unsigned)wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++) {
		if (is_inline && w->len + wr->sg_list[i].length > INLINE_MAX)
			return false;
		if (is_inline)
			memcpy(w->data + w->len, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
		else
			w->sge[i] = wr->sg_list[i];
		w->len += wr->sg_list[i].length;
	}
	return true;
}

static int fake_post_send(struct ibv_qp *ib, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)ib;
	int r = 0;

	pthread_mutex_lock(&qp->lock);
	for (; wr && r == 0; wr = r == 0 ? wr->next : wr) {
		if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR)
			r = -EINVAL;
		else if (qp->head - qp->tail == qp->cap)
			r = -ENOMEM;
		else if (!work_make(&qp->ring[qp->head % qp->cap], wr))
			r = -EINVAL;
		else
			qp->head++;
	}
	pthread_mutex_unlock(&qp->lock);
	*bad = wr;
	count(&nics[qp->nic].doorbells, 1);
	nic_poke(&nics[qp->nic]);
	return r;
}

/* ---- memory ---- */

static struct ibv_pd *fake_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = ctx;
	object(1);
	return pd;
}

static int fake_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	object(-1);
	return 0;
}

static struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *addr, size_t len, unsigned access)
{
	struct fake_nic *nic = nic_of(pd->context);
	struct fake_mr *mr;
	int err = len > nic->max_mr ? EINVAL : 0;

	pthread_mutex_lock(&nic->lock);
	if (nic->reg_times && nic->reg_times--)
		err = nic->reg_err;
	pthread_mutex_unlock(&nic->lock);
	if (err) {
		errno = err;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	mr->ib.context = pd->context;
	mr->ib.pd = pd;
	mr->ib.addr = addr;
	mr->ib.length = len;
	mr->access = access;
	pthread_mutex_lock(&all_lock);
	mr->ib.lkey = next_number++;
	mr->ib.rkey = next_number++;
	mc_list_push_back(&all_mrs, &mr->node);
	pthread_mutex_unlock(&all_lock);
	object(1);
	return &mr->ib;
}

static int fake_dereg_mr(struct ibv_mr *ib)
{
	struct fake_mr *mr = mc_container_of(ib, struct fake_mr, ib);

	pthread_mutex_lock(&all_lock);
	mc_list_remove(&mr->node);
	while (mr->busy)
		pthread_cond_wait(&all_idle, &all_lock);
	pthread_mutex_unlock(&all_lock);
	free(mr);
	object(-1);
	return 0;
}

/* ---- devices ---- */

static struct ibv_device **fake_get_device_list(int *ret_n)
{
	struct ibv_device **list = calloc(nnics + 1, sizeof(*list));

	for (unsigned i = 0; i < nnics; i++)
		list[i] = &nics[i].dev;
	*ret_n = (int)nnics;
	return list;
}

static void fake_free_device_list(struct ibv_device **list)
{
	free(list);
}

static const char *fake_get_device_name(struct ibv_device *dev)
{
	return mc_container_of(dev, struct fake_nic, dev)->name;
}

static struct ibv_context *fake_open_device(struct ibv_device *dev)
{
	struct fake_nic *nic = mc_container_of(dev, struct fake_nic, dev);
	struct ibv_context *ctx = calloc(1, sizeof(*ctx));
	unsigned i = 0;

	ctx->device = dev;
	ctx->async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_lock(&nic->lock);
	while (nic->ctx[i])
		i++;
	nic->ctx[i] = ctx;
	pthread_mutex_unlock(&nic->lock);
	object(1);
	return ctx;
}

static int fake_close_device(struct ibv_context *ctx)
{
	struct fake_nic *nic = nic_of(ctx);

	pthread_mutex_lock(&nic->lock);
	for (unsigned i = 0; i < CONTEXTS_MAX; i++)
		if (nic->ctx[i] == ctx)
			nic->ctx[i] = NULL;
	pthread_mutex_unlock(&nic->lock);
	close(ctx->async_fd);
	free(ctx);
	object(-1);
	return 0;
}

static int fake_query_device(struct ibv_context *ctx, struct ibv_device_attr *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->max_qp_wr = 1024;
	ret->max_sge = SGE_MAX;
	ret->max_cqe = 65536;
	ret->max_qp_rd_atom = 16;
	ret->max_mr_size = nic_of(ctx)->max_mr;
	return 0;
}

static int fake_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *ret)
{
	struct fake_nic *nic = nic_of(ctx);

	if (port != 1)
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	pthread_mutex_lock(&nic->lock);
	ret->state = nic->event_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	ret->active_mtu = ret->max_mtu = nic->mtu;
	pthread_mutex_unlock(&nic->lock);
	ret->gid_tbl_len = 2;
	ret->link_layer = IBV_LINK_LAYER_ETHERNET;
	return 0;
}

static int fake_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *ret)
{
	unsigned nic = (unsigned)(nic_of(ctx) - nics);

	memset(ret, 0, sizeof(*ret));
	if (port != 1 || index > 1)
		return -EINVAL;
	if (index == 0) {
		ret->raw[0] = 0xfe;
		ret->raw[1] = 0x80;
	} else {
		memcpy(ret->raw + 10, (uint8_t [6]){ 0xff, 0xff, 10, 77, 0, (uint8_t)(11 + nic) }, 6);
	}
	ret->raw[15] = (uint8_t)(11 + nic);
	return 0;
}

static int fake_query_gid_type(struct ibv_context *ctx, uint8_t port, int index, uint32_t *ret)
{
	(void)ctx;
	(void)port;
	(void)index;
	*ret = IBV_GID_TYPE_ROCE_V2;
	return 0;
}

static int fake_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ret)
{
	struct fake_nic *nic = nic_of(ctx);
	int r = -EAGAIN;

	pthread_mutex_lock(&nic->lock);
	if (read(ctx->async_fd, &(uint64_t){ 0 }, 8) == 8) {
		memset(ret, 0, sizeof(*ret));
		ret->event_type = nic->event_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
		ret->element.port_num = 1;
		r = 0;
	}
	pthread_mutex_unlock(&nic->lock);
	return r;
}

static void fake_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

static const char *fake_wc_status_str(enum ibv_wc_status status)
{
	static __thread char text[32];

	snprintf(text, sizeof(text), "fake status %d", (int)status);
	return text;
}

static const struct mce_verbs table = {
	.get_device_list = fake_get_device_list, .free_device_list = fake_free_device_list,
	.get_device_name = fake_get_device_name, .open_device = fake_open_device, .close_device = fake_close_device,
	.query_device = fake_query_device, .query_port = fake_query_port, .query_gid = fake_query_gid,
	.query_gid_type = fake_query_gid_type, .get_async_event = fake_get_async_event,
	.ack_async_event = fake_ack_async_event, .alloc_pd = fake_alloc_pd, .dealloc_pd = fake_dealloc_pd,
	.reg_mr = fake_reg_mr, .dereg_mr = fake_dereg_mr, .create_comp_channel = fake_create_comp_channel,
	.destroy_comp_channel = fake_destroy_comp_channel, .create_cq = fake_create_cq, .destroy_cq = fake_destroy_cq,
	.get_cq_event = fake_get_cq_event, .ack_cq_events = fake_ack_cq_events, .req_notify_cq = fake_req_notify_cq,
	.poll_cq = fake_poll_cq, .wc_status_str = fake_wc_status_str, .create_qp = fake_create_qp,
	.modify_qp = fake_modify_qp, .destroy_qp = fake_destroy_qp, .post_send = fake_post_send,
};

const struct mce_verbs *fake_verbs(void)
{
	return &table;
}

/* ---- controls ---- */

static void nic_end(struct fake_nic *nic)
{
	pthread_mutex_lock(&nic->lock);
	nic->ending = true;
	pthread_cond_signal(&nic->work);
	pthread_mutex_unlock(&nic->lock);
	pthread_join(nic->thread, NULL);
	pthread_mutex_destroy(&nic->lock);
	pthread_cond_destroy(&nic->work);
}

void fake_reset(unsigned n)
{
	while (nnics)
		nic_end(&nics[--nnics]);
	for (; nnics < n; nnics++) {
		struct fake_nic *nic = &nics[nnics];

		memset(nic, 0, sizeof(*nic));
		snprintf(nic->name, sizeof(nic->name), "fake%u", nnics);
		nic->event_up = nic->up = true;
		nic->mtu = IBV_MTU_4096;
		nic->max_mr = 1ull << 40;
		mc_list_init(&nic->lates);
		pthread_mutex_init(&nic->lock, NULL);
		pthread_cond_init(&nic->work, NULL);
		if (pthread_create(&nic->thread, NULL, nic_main, nic))
			abort();
	}
}

void fake_port_silent(unsigned nic, bool up)
{
	__atomic_store_n(&nics[nic].up, up, __ATOMIC_RELEASE);
}

void fake_port(unsigned nic, bool up)
{
	fake_port_silent(nic, up);
	pthread_mutex_lock(&nics[nic].lock);
	nics[nic].event_up = up;
	for (unsigned i = 0; i < CONTEXTS_MAX; i++)
		if (nics[nic].ctx[i])
			(void)!write(nics[nic].ctx[i]->async_fd, &(uint64_t){ 1 }, 8);
	pthread_mutex_unlock(&nics[nic].lock);
}

#define SET(nic, field, value) do { \
	pthread_mutex_lock(&nics[nic].lock); \
	nics[nic].field = value; \
	pthread_mutex_unlock(&nics[nic].lock); \
} while (0)

void fake_delay(unsigned nic, unsigned us)
{
	SET(nic, delay_us, us);
}

void fake_stop(unsigned nic, bool stop)
{
	__atomic_store_n(&nics[nic].stopped, stop, __ATOMIC_RELEASE);
	nic_poke(&nics[nic]);
}

void fake_wc_error(unsigned nic, enum ibv_wc_status status, unsigned n)
{
	SET(nic, error, status);
	SET(nic, error_after, n);
}

void fake_reg_error(unsigned nic, int err, unsigned times)
{
	SET(nic, reg_err, err);
	SET(nic, reg_times, times);
}

void fake_late_writes(unsigned nic, bool on)
{
	SET(nic, late, on);
}

void fake_mtu(unsigned nic, enum ibv_mtu mtu)
{
	SET(nic, mtu, mtu);
}

void fake_max_mr(unsigned nic, uint64_t bytes)
{
	SET(nic, max_mr, bytes);
}

uint64_t fake_wrs(unsigned nic)
{
	return __atomic_load_n(&nics[nic].wrs, __ATOMIC_RELAXED);
}

uint64_t fake_doorbells(unsigned nic)
{
	return __atomic_load_n(&nics[nic].doorbells, __ATOMIC_RELAXED);
}

uint64_t fake_cqes(unsigned nic)
{
	return __atomic_load_n(&nics[nic].cqes, __ATOMIC_RELAXED);
}

uint64_t fake_bytes(unsigned nic)
{
	return __atomic_load_n(&nics[nic].bytes, __ATOMIC_RELAXED);
}

long fake_live_objects(void)
{
	return __atomic_load_n(&live, __ATOMIC_RELAXED);
}
