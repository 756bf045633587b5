/* SPDX-License-Identifier: Apache-2.0
 * fake_verbs.c - NICs without a network: devices, memory, completions, and the controls of the tests. */
#include <config.h>

#include "tests/lib/fake_verbs_i.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/process/reachable.h"

struct fake_nic fake_nics[FAKE_NICS_MAX];
unsigned fake_nnics;
pthread_mutex_t fake_all_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_all_idle = PTHREAD_COND_INITIALIZER;
struct mc_list fake_all_qps = { &fake_all_qps, &fake_all_qps }, fake_all_mrs = { &fake_all_mrs, &fake_all_mrs };
uint32_t fake_next_number = 0x100;
static long live;

void fake_object(long by)
{
	__atomic_fetch_add(&live, by, __ATOMIC_RELAXED);
}

/* ---- completions ---- */

static bool held;

void fake_hold(bool hold)
{
	__atomic_store_n(&held, hold, __ATOMIC_RELEASE);
}

void fake_cq_push(struct fake_nic *nic, struct fake_qp *qp, const struct work *w, enum ibv_wc_status status)
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
	event = cq->armed && ch && !__atomic_load_n(&held, __ATOMIC_ACQUIRE);
	if (event)
		cq->armed = false;
	pthread_mutex_unlock(&cq->lock);
	fake_count(&nic->cqes, 1);
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
	while (i < n && cq->tail != cq->head && !__atomic_load_n(&held, __ATOMIC_ACQUIRE))
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
	fake_object(1);
	return &ch->ib;
}

static int fake_destroy_comp_channel(struct ibv_comp_channel *ib)
{
	struct fake_channel *ch = (struct fake_channel *)ib;

	close(ch->ib.fd);
	pthread_mutex_destroy(&ch->lock);
	free(ch);
	fake_object(-1);
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
	fake_object(1);
	return &cq->ib;
}

static int fake_destroy_cq(struct ibv_cq *ib)
{
	struct fake_cq *cq = (struct fake_cq *)ib;

	pthread_mutex_destroy(&cq->lock);
	free(cq->ring);
	free(cq);
	fake_object(-1);
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

/* ---- memory ---- */

struct fake_mr *fake_mr_find(const struct ibv_pd *pd, uint32_t key, bool remote, uint64_t addr, uint64_t len,
			     unsigned access)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &fake_all_mrs) {
		struct fake_mr *mr = mc_container_of(pos, struct fake_mr, node);

		if ((remote ? mr->ib.rkey : mr->ib.lkey) != key)
			continue;
		if (mr->ib.pd != pd)
			return NULL;
		return addr >= (uintptr_t)mr->ib.addr && len <= mr->ib.length &&
		       addr - (uintptr_t)mr->ib.addr <= mr->ib.length - len &&
		       (mr->access & access) == access ? mr : NULL;
	}
	return NULL;
}

static struct ibv_pd *fake_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = ctx;
	fake_object(1);
	return pd;
}

static int fake_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	fake_object(-1);
	return 0;
}

static struct fake_mr *mr_new(struct ibv_pd *pd, void *addr, size_t len, unsigned access, char *bytes)
{
	struct fake_mr *mr = calloc(1, sizeof(*mr));

	mr->ib.context = pd->context;
	mr->ib.pd = pd;
	mr->ib.addr = addr;
	mr->ib.length = len;
	mr->access = access;
	mr->bytes = bytes;
	pthread_mutex_lock(&fake_all_lock);
	mr->ib.lkey = fake_next_number++;
	mr->ib.rkey = fake_next_number++;
	mc_list_push_back(&fake_all_mrs, &mr->node);
	pthread_mutex_unlock(&fake_all_lock);
	fake_object(1);
	return mr;
}

static void *(*peer_memory)(unsigned long long addr);

static struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *addr, size_t len, unsigned access)
{
	struct fake_nic *nic = fake_nic_of(pd->context);
	char *bytes = addr;
	int err = len > nic->max_mr ? EINVAL : 0;

	pthread_mutex_lock(&nic->lock);
	if (nic->reg_times && nic->reg_times--)
		err = nic->reg_err;
	pthread_mutex_unlock(&nic->lock);
	if (err == 0 && mc_reachable(addr, len) < 0) {
		bytes = peer_memory ? peer_memory((uintptr_t)addr) : NULL;
		err = bytes ? 0 : EFAULT;
	}
	if (err) {
		errno = err;
		return NULL;
	}
	return &mr_new(pd, addr, len, access, bytes)->ib;
}

static uint64_t dmabuf_longest, dmabuf_offset;	/* atomic */

static void raise_to(uint64_t *max, uint64_t value)
{
	uint64_t was = __atomic_load_n(max, __ATOMIC_RELAXED);

	while (was < value &&
	       !__atomic_compare_exchange_n(max, &was, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

/* Map the bytes of a registration; a dma-buf that ends before them is refused. */
static int dmabuf_map(int fd, uint64_t offset, size_t len, void **ret_map, size_t *ret_len, char **ret_bytes)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), begin = (uint64_t)lseek(fd, 0, SEEK_CUR) + offset;
	uint64_t first = begin & ~(page - 1);
	struct stat st;

	if (fstat(fd, &st) || begin > (uint64_t)st.st_size || len > (uint64_t)st.st_size - begin)
		return EINVAL;
	*ret_len = begin - first + len;
	*ret_map = mmap(NULL, *ret_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)first);
	if (*ret_map == MAP_FAILED)
		return errno;
	*ret_bytes = (char *)*ret_map + (begin - first);
	return 0;
}

static struct ibv_mr *fake_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t len, uint64_t iova, int fd,
					 unsigned access)
{
	struct fake_nic *nic = fake_nic_of(pd->context);
	struct fake_mr *mr;
	char *bytes = NULL;
	size_t map_len;
	void *map;
	/* Both begin at the same place of a page. */
	int err = len > nic->max_mr || (offset ^ iova) & 4095 ? EINVAL : 0;

	pthread_mutex_lock(&nic->lock);
	if (nic->dmabuf_err && (nic->dmabuf_at == 0 || --nic->dmabuf_at == 0)) {
		err = nic->dmabuf_err;
		if (nic->dmabuf_once)
			nic->dmabuf_err = 0;
	}
	pthread_mutex_unlock(&nic->lock);
	if (err == 0)
		err = dmabuf_map(fd, offset, len, &map, &map_len, &bytes);
	if (err) {
		errno = err;
		return NULL;
	}
	mr = mr_new(pd, (void *)(uintptr_t)iova, len, access, bytes);
	mr->map = map;
	mr->map_len = map_len;
	fake_count(&nic->dmabufs, 1);
	raise_to(&dmabuf_longest, len);
	raise_to(&dmabuf_offset, offset);
	return &mr->ib;
}

static int fake_dereg_mr(struct ibv_mr *ib)
{
	struct fake_mr *mr = mc_container_of(ib, struct fake_mr, ib);

	pthread_mutex_lock(&fake_all_lock);
	mc_list_remove(&mr->node);
	while (mr->busy)
		pthread_cond_wait(&fake_all_idle, &fake_all_lock);
	pthread_mutex_unlock(&fake_all_lock);
	if (mr->map)
		munmap(mr->map, mr->map_len);
	free(mr);
	fake_object(-1);
	return 0;
}

/* ---- devices ---- */

static struct ibv_device **fake_get_device_list(int *ret_n)
{
	struct ibv_device **list = calloc(fake_nnics + 1, sizeof(*list));

	for (unsigned i = 0; i < fake_nnics; i++)
		list[i] = &fake_nics[i].dev;
	*ret_n = (int)fake_nnics;
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
	fake_object(1);
	return ctx;
}

static int fake_close_device(struct ibv_context *ctx)
{
	struct fake_nic *nic = fake_nic_of(ctx);

	pthread_mutex_lock(&nic->lock);
	for (unsigned i = 0; i < CONTEXTS_MAX; i++)
		if (nic->ctx[i] == ctx)
			nic->ctx[i] = NULL;
	pthread_mutex_unlock(&nic->lock);
	close(ctx->async_fd);
	free(ctx);
	fake_object(-1);
	return 0;
}

static int fake_query_device(struct ibv_context *ctx, struct ibv_device_attr *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->max_qp_wr = 1024;
	ret->max_sge = SGE_MAX;
	ret->max_cqe = 65536;
	ret->max_qp_rd_atom = 16;
	ret->max_sge_rd = fake_is_iwarp(fake_nic_of(ctx)) ? 1 : 0;
	ret->max_mr_size = fake_nic_of(ctx)->max_mr;
	return 0;
}

static int fake_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *ret)
{
	struct fake_nic *nic = fake_nic_of(ctx);

	if (port != 1)
		return -EINVAL;
	memset(ret, 0, sizeof(*ret));
	pthread_mutex_lock(&nic->lock);
	ret->state = nic->event_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
	ret->active_mtu = ret->max_mtu = nic->mtu;
	ret->active_speed = nic->active_speed;
	ret->active_width = nic->active_width;
	pthread_mutex_unlock(&nic->lock);
	ret->gid_tbl_len = 2;
	ret->link_layer = IBV_LINK_LAYER_ETHERNET;
	return 0;
}

static int fake_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *ret)
{
	unsigned nic = (unsigned)(fake_nic_of(ctx) - fake_nics);

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
	struct fake_nic *nic = fake_nic_of(ctx);
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
	.reg_mr = fake_reg_mr, .reg_dmabuf_mr = fake_reg_dmabuf_mr, .dereg_mr = fake_dereg_mr,
	.create_comp_channel = fake_create_comp_channel,
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
	pthread_cond_destroy(&nic->turned);
}

void fake_reset(unsigned n)
{
	peer_memory = NULL;
	dmabuf_longest = dmabuf_offset = 0;
	while (fake_nnics)
		nic_end(&fake_nics[--fake_nnics]);
	for (; fake_nnics < n; fake_nnics++) {
		struct fake_nic *nic = &fake_nics[fake_nnics];

		memset(nic, 0, sizeof(*nic));
		snprintf(nic->name, sizeof(nic->name), "fake%u", fake_nnics);
		nic->event_up = nic->up = true;
		nic->mtu = IBV_MTU_4096;
		nic->max_mr = 1ull << 40;
		mc_list_init(&nic->lates);
		pthread_mutex_init(&nic->lock, NULL);
		pthread_cond_init(&nic->work, NULL);
		pthread_cond_init(&nic->turned, NULL);
		if (pthread_create(&nic->thread, NULL, fake_nic_main, nic))
			abort();
		(void)pthread_setname_np(nic->thread, "fake-nic");
	}
}

void fake_iwarp(unsigned nic)
{
	fake_nics[nic].dev.transport_type = IBV_TRANSPORT_IWARP;
}

void fake_rate(unsigned nic, uint8_t active_speed, uint8_t active_width)
{
	pthread_mutex_lock(&fake_nics[nic].lock);
	fake_nics[nic].active_speed = active_speed;
	fake_nics[nic].active_width = active_width;
	pthread_mutex_unlock(&fake_nics[nic].lock);
}

void fake_port_silent(unsigned nic, bool up)
{
	__atomic_store_n(&fake_nics[nic].up, up, __ATOMIC_RELEASE);
}

void fake_port_late(unsigned nic, bool up)
{
	fake_port_silent(nic, up);
	pthread_mutex_lock(&fake_nics[nic].lock);
	fake_nics[nic].event_up = up;
	pthread_mutex_unlock(&fake_nics[nic].lock);
}

void fake_port(unsigned nic, bool up)
{
	fake_port_late(nic, up);
	pthread_mutex_lock(&fake_nics[nic].lock);
	for (unsigned i = 0; i < CONTEXTS_MAX; i++)
		if (fake_nics[nic].ctx[i])
			(void)!write(fake_nics[nic].ctx[i]->async_fd, &(uint64_t){ 1 }, 8);
	pthread_mutex_unlock(&fake_nics[nic].lock);
}

#define SET(nic, field, value) do { \
	pthread_mutex_lock(&fake_nics[nic].lock); \
	fake_nics[nic].field = value; \
	pthread_mutex_unlock(&fake_nics[nic].lock); \
} while (0)

void fake_delay(unsigned nic, unsigned us)
{
	SET(nic, delay_us, us);
}

void fake_repeat(unsigned nic, bool repeat)
{
	SET(nic, repeats, repeat);
	fake_nic_poke(&fake_nics[nic]);
}

void fake_stop(unsigned nic, bool stop)
{
	struct fake_nic *n = &fake_nics[nic];

	pthread_mutex_lock(&n->lock);
	n->stopped = stop;
	while (stop && n->turning)
		pthread_cond_wait(&n->turned, &n->lock);
	pthread_mutex_unlock(&n->lock);
	fake_nic_poke(n);
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

void fake_dmabuf_error(unsigned nic, int err, unsigned n)
{
	SET(nic, dmabuf_err, err);
	SET(nic, dmabuf_at, n);
	SET(nic, dmabuf_once, n > 0);
}

void fake_peer_memory(void *(*alias)(unsigned long long addr))
{
	peer_memory = alias;
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
	return __atomic_load_n(&fake_nics[nic].wrs, __ATOMIC_RELAXED);
}

uint64_t fake_doorbells(unsigned nic)
{
	return __atomic_load_n(&fake_nics[nic].doorbells, __ATOMIC_RELAXED);
}

uint64_t fake_cqes(unsigned nic)
{
	return __atomic_load_n(&fake_nics[nic].cqes, __ATOMIC_RELAXED);
}

uint64_t fake_bytes(unsigned nic)
{
	return __atomic_load_n(&fake_nics[nic].bytes, __ATOMIC_RELAXED);
}

uint64_t fake_dmabufs(unsigned nic)
{
	return __atomic_load_n(&fake_nics[nic].dmabufs, __ATOMIC_RELAXED);
}

uint64_t fake_dmabuf_longest(void)
{
	return __atomic_load_n(&dmabuf_longest, __ATOMIC_RELAXED);
}

uint64_t fake_dmabuf_offset(void)
{
	return __atomic_load_n(&dmabuf_offset, __ATOMIC_RELAXED);
}

long fake_live_objects(void)
{
	return __atomic_load_n(&live, __ATOMIC_RELAXED);
}
