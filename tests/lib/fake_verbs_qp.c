/* SPDX-License-Identifier: Apache-2.0
 * fake_verbs_qp.c - a thread per NIC executes the work requests of its queue pairs in order and copies the bytes, after
 * the checks that a real responder makes. */
#include <config.h>

#include "tests/lib/fake_verbs_i.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/sys/clock.h"

#define RETRY_MS 30			/* until a responder that does not answer is an error */
#define LATE_MS 50

/* ---- the work of a NIC ---- */

static struct fake_qp *qp_find(uint32_t qpn)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &fake_all_qps)
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
	return __atomic_load_n(&fake_nics[nic].up, __ATOMIC_ACQUIRE);
}

/* fake_all_lock.  The answer of the responder, which is *ret_qp with the memory *ret_mr. */
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
	*ret_mr = fake_mr_find(to->ib.pd, w->rkey, true, w->remote, w->len, access);
	return *ret_mr ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
}

/* fake_all_lock.  The local regions are held as well. */
static bool hold_local(const struct fake_nic *nic, const struct ibv_pd *pd, const struct work *w,
		       struct fake_mr *mr[SGE_MAX])
{
	unsigned sink = IBV_ACCESS_LOCAL_WRITE | (fake_is_iwarp(nic) ? IBV_ACCESS_REMOTE_WRITE : 0);

	for (unsigned i = 0; i < w->nsge; i++) {
		mr[i] = fake_mr_find(pd, w->sge[i].lkey, false, w->sge[i].addr, w->sge[i].length,
				     w->read ? sink : 0);
		if (!mr[i])
			return false;
	}
	return true;
}

static void copy(const struct work *w, struct fake_mr *const mr[], const struct fake_mr *remote_mr)
{
	char *remote = fake_mr_at(remote_mr, w->remote);

	if (w->nsge == 0)
		memcpy(remote, w->data, w->len);
	for (unsigned i = 0; i < w->nsge; i++) {
		char *local = fake_mr_at(mr[i], w->sge[i].addr);

		memcpy(w->read ? local : remote, w->read ? remote : local, w->sge[i].length);
		remote += w->sge[i].length;
	}
}

/* Keep the bytes of a WRITE. */
static struct late *late_new(const struct fake_qp *qp, const struct work *w)
{
	struct late *l = malloc(sizeof(*l));
	char *at = malloc(w->len);

	*l = (struct late){ .due_ns = mc_now_ns() + LATE_MS * MC_NS_PER_MS, .qpn = qp->dest_qpn, .rkey = w->rkey,
			    .len = w->len, .remote = w->remote, .bytes = at };
	if (w->nsge == 0)
		memcpy(at, w->data, w->len);
	pthread_mutex_lock(&fake_all_lock);
	for (unsigned i = 0; i < w->nsge; i++) {
		const struct fake_mr *mr = fake_mr_find(qp->ib.pd, w->sge[i].lkey, false, w->sge[i].addr,
							w->sge[i].length, 0);

		if (mr)
			memcpy(at, fake_mr_at(mr, w->sge[i].addr), w->sge[i].length);
		at += w->sge[i].length;
	}
	pthread_mutex_unlock(&fake_all_lock);
	return l;
}

static void late_add(struct fake_nic *nic, const struct fake_qp *qp, const struct work *w)
{
	struct late *l = late_new(qp, w);

	pthread_mutex_lock(&nic->lock);
	mc_list_push_back(&nic->lates, &l->node);
	pthread_mutex_unlock(&nic->lock);
}

/* Store the bytes, if the peer's queue pair still takes them, and free them. */
static void late_end(struct late *l, bool store)
{
	struct fake_mr *mr;
	struct fake_qp *to;

	mc_list_remove(&l->node);
	pthread_mutex_lock(&fake_all_lock);
	to = store ? qp_find(l->qpn) : NULL;
	mr = to ? fake_mr_find(to->ib.pd, l->rkey, true, l->remote, l->len, IBV_ACCESS_REMOTE_WRITE) : NULL;
	if (mr && qp_answers(to))
		memcpy(fake_mr_at(mr, l->remote), l->bytes, l->len);
	pthread_mutex_unlock(&fake_all_lock);
	free(l->bytes);
	free(l);
}

static void unstored_drop(struct fake_qp *qp)
{
	while (!mc_list_empty(&qp->unstored))
		late_end(mc_list_first(&qp->unstored, struct late, node), false);
}

/* fake_all_lock.  The peer has just accepted a READ that follows them. */
static void unstored_store(struct fake_qp *qp, const struct fake_qp *to)
{
	while (!mc_list_empty(&qp->unstored)) {
		struct late *l = mc_list_first(&qp->unstored, struct late, node);
		struct fake_mr *mr = fake_mr_find(to->ib.pd, l->rkey, true, l->remote, l->len,
						  IBV_ACCESS_REMOTE_WRITE);

		if (mr)
			memcpy(fake_mr_at(mr, l->remote), l->bytes, l->len);
		mc_list_remove(&l->node);
		free(l->bytes);
		free(l);
	}
}

static void lates_deliver(struct fake_nic *nic, bool all)
{
	struct mc_list *pos, *next;

	mc_list_for_each_safe(pos, next, &nic->lates) {
		struct late *l = mc_container_of(pos, struct late, node);

		if (all || mc_now_ns() >= l->due_ns)
			late_end(l, !all);
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

	pthread_mutex_lock(&fake_all_lock);
	if (status == IBV_WC_SUCCESS && !hold_local(nic, qp->ib.pd, w, local))
		status = IBV_WC_LOC_PROT_ERR;
	if (status == IBV_WC_SUCCESS)
		status = respond(qp, w, &to, &remote);
	if (status == IBV_WC_SUCCESS) {
		to->busy++;
		remote->busy++;
		for (unsigned i = 0; i < w->nsge; i++)
			local[i]->busy++;
		if (w->read)
			unstored_store(qp, to);
	}
	pthread_mutex_unlock(&fake_all_lock);
	if (status == IBV_WC_SUCCESS) {
		if (fake_is_iwarp(nic) && !w->read)
			mc_list_push_back(&qp->unstored, &late_new(qp, w)->node);
		else
			copy(w, local, remote);
		fake_count(&nic->bytes, w->len);
		pthread_mutex_lock(&fake_all_lock);
		to->busy--;
		remote->busy--;
		for (unsigned i = 0; i < w->nsge; i++)
			local[i]->busy--;
		pthread_cond_broadcast(&fake_all_idle);
		pthread_mutex_unlock(&fake_all_lock);
	} else if (status == IBV_WC_RETRY_EXC_ERR) {
		pthread_mutex_lock(&nic->lock);
		late = nic->late;
		pthread_mutex_unlock(&nic->lock);
		if (late && !w->read)
			late_add(nic, qp, w);
		nap(RETRY_MS * MC_NS_PER_MS);
	}
	fake_count(&nic->wrs, 1);
	return status;
}

/* The same on iWARP: the sender of a WRITE does not see its fate, and an error ends the connection. */
static enum ibv_wc_status execute_iwarp(struct fake_nic *nic, struct fake_qp *qp, const struct work *w, bool *ret_ended)
{
	enum ibv_wc_status status = execute(nic, qp, w);
	bool remote = status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_REM_ACCESS_ERR;

	*ret_ended = status != IBV_WC_SUCCESS;
	return remote ? w->read ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS : status;
}

/* One work request of the queue pair: true if there was one. */
static bool qp_step(struct fake_nic *nic, struct fake_qp *qp)
{
	enum ibv_wc_status status = IBV_WC_WR_FLUSH_ERR;
	const struct work *w;
	bool flush, repeats, ended = false;

	pthread_mutex_lock(&nic->lock);
	repeats = nic->repeats;
	pthread_mutex_unlock(&nic->lock);
	pthread_mutex_lock(&qp->lock);
	if (qp->head == qp->tail || (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR) ||
	    (repeats && qp->state == IBV_QPS_RTS)) {
		pthread_mutex_unlock(&qp->lock);
		return false;
	}
	w = &qp->ring[qp->tail % qp->cap];
	flush = qp->state == IBV_QPS_ERR;
	pthread_mutex_unlock(&qp->lock);
	if (!flush)
		status = fake_is_iwarp(nic) ? execute_iwarp(nic, qp, w, &ended) : execute(nic, qp, w);
	if (ended)
		unstored_drop(qp);
	pthread_mutex_lock(&qp->lock);
	if (status != IBV_WC_SUCCESS || ended)
		qp->state = IBV_QPS_ERR;
	/* before its slot is free */
	fake_cq_push(nic, qp, w, status);
	qp->tail++;
	pthread_mutex_unlock(&qp->lock);
	return true;
}

/* The next queue pair of the NIC after the last one, held. */
static struct fake_qp *qp_next(unsigned nic, uint32_t *last)
{
	struct fake_qp *first = NULL, *next = NULL;
	struct mc_list *pos;

	pthread_mutex_lock(&fake_all_lock);
	mc_list_for_each(pos, &fake_all_qps) {
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
	pthread_mutex_unlock(&fake_all_lock);
	return next;
}

static void qp_release(struct fake_qp *qp)
{
	pthread_mutex_lock(&fake_all_lock);
	qp->busy--;
	pthread_cond_broadcast(&fake_all_idle);
	pthread_mutex_unlock(&fake_all_lock);
}

/* All queue pairs have their turn: true if any had work. */
static bool nic_turn(struct fake_nic *nic)
{
	unsigned index = (unsigned)(nic - fake_nics);
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

void *fake_nic_main(void *arg)
{
	struct fake_nic *nic = arg;
	uint64_t seen = 0;

	pthread_mutex_lock(&nic->lock);
	while (!nic->ending) {
		struct timespec until;
		bool idle;

		if (nic->stopped) {
			idle = true;
		} else {
			nic->turning = true;
			pthread_mutex_unlock(&nic->lock);
			idle = !nic_turn(nic);
			pthread_mutex_lock(&nic->lock);
			nic->turning = false;
			pthread_cond_broadcast(&nic->turned);
		}
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

void fake_nic_poke(struct fake_nic *nic)
{
	pthread_mutex_lock(&nic->lock);
	nic->pokes++;
	pthread_cond_signal(&nic->work);
	pthread_mutex_unlock(&nic->lock);
}

/* ---- queue pairs ---- */

struct ibv_qp *fake_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fake_qp *qp = calloc(1, sizeof(*qp));

	if (attr->cap.max_inline_data > INLINE_MAX || attr->cap.max_send_sge > SGE_MAX) {
		free(qp);
		errno = EINVAL;
		return NULL;
	}
	qp->ib.context = pd->context;
	qp->ib.pd = pd;
	qp->nic = (unsigned)(fake_nic_of(pd->context) - fake_nics);
	qp->cq = (struct fake_cq *)attr->send_cq;
	qp->cap = attr->cap.max_send_wr;
	qp->ring = calloc(qp->cap, sizeof(*qp->ring));
	mc_list_init(&qp->unstored);
	pthread_mutex_init(&qp->lock, NULL);
	pthread_mutex_lock(&fake_all_lock);
	qp->ib.qp_num = fake_next_number++;
	mc_list_push_back(&fake_all_qps, &qp->node);
	pthread_mutex_unlock(&fake_all_lock);
	fake_object(1);
	return &qp->ib;
}

static int qp_to_rtr(struct fake_qp *qp, const struct ibv_qp_attr *attr)
{
	const union ibv_gid *gid = &attr->ah_attr.grh.dgid;
	unsigned to = gid->raw[15] - 11u;

	if (to >= fake_nnics || attr->path_mtu > fake_nics[qp->nic].mtu || attr->path_mtu > fake_nics[to].mtu)
		return -EINVAL;
	if (!nic_is_up(qp->nic))
		return -ENETUNREACH;
	qp->dest_qpn = attr->dest_qp_num;
	qp->dest = *gid;
	return 0;
}

int fake_modify_qp(struct ibv_qp *ib, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)ib;
	int r = 0;

	pthread_mutex_lock(&fake_all_lock);
	pthread_mutex_lock(&qp->lock);
	if (fake_is_iwarp(&fake_nics[qp->nic]) &&
	    ((attr->qp_state != IBV_QPS_INIT && attr->qp_state != IBV_QPS_ERR) || mask & IBV_QP_PKEY_INDEX))
		r = -EINVAL;
	else if (!(mask & IBV_QP_STATE) || (attr->qp_state != IBV_QPS_ERR && attr->qp_state != qp->state + 1))
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
	pthread_mutex_unlock(&fake_all_lock);
	fake_nic_poke(&fake_nics[qp->nic]);
	return r;
}

int fake_destroy_qp(struct ibv_qp *ib)
{
	struct fake_qp *qp = (struct fake_qp *)ib;

	pthread_mutex_lock(&fake_all_lock);
	mc_list_remove(&qp->node);
	while (qp->busy)
		pthread_cond_wait(&fake_all_idle, &fake_all_lock);
	pthread_mutex_unlock(&fake_all_lock);
	unstored_drop(qp);
	pthread_mutex_destroy(&qp->lock);
	free(qp->ring);
	free(qp);
	fake_object(-1);
	return 0;
}

void fake_qps_connect(uint32_t one, uint32_t other)
{
	pthread_mutex_lock(&fake_all_lock);
	for (unsigned i = 0; i < 2; i++) {
		struct fake_qp *qp = qp_find(i ? one : other);

		if (!qp)
			continue;
		pthread_mutex_lock(&qp->lock);
		if (qp->state == IBV_QPS_INIT) {
			qp->dest_qpn = i ? other : one;
			qp->state = IBV_QPS_RTS;
		}
		pthread_mutex_unlock(&qp->lock);
	}
	pthread_mutex_unlock(&fake_all_lock);
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

int fake_post_send(struct ibv_qp *ib, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
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
	fake_count(&fake_nics[qp->nic].doorbells, 1);
	fake_nic_poke(&fake_nics[qp->nic]);
	return r;
}
