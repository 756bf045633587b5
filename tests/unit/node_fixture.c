/* SPDX-License-Identifier: Apache-2.0
 * node_fixture.c - implementation of node_fixture.h. */
#include <config.h>

#include "tests/unit/node_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/futex.h"
#include "common/net/packet.h"

const char *node_uids;

static mcs_t *store;
static struct mcn *daemon_node;
static char dir[64], path[96], addr[112];

static void node_up_with(mcs_t *s);

static void dir_make(void)
{
	snprintf(dir, sizeof(dir), "/tmp/mc-node.XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/sock", dir);
	snprintf(addr, sizeof(addr), "unix:%s", path);
}

void node_start(uint64_t segment)
{
	dir_make();
	node_up(segment);
}

void node_start_with(mcs_t *s)
{
	dir_make();
	node_up_with(s);
}

void node_up(uint64_t segment)
{
	node_up_with(fixture_store(segment));
}

static void node_up_with(mcs_t *s)
{
	struct mcn_conf conf = {
		.master = fixture_master_addr(), .path = path, .hot_size = NODE_HOT,
		.hot_ms = 60000, .spin_us = 20, .uids = node_uids,
	};
	int r;

	store = s;
	conf.store = store;
	r = mcn_start(&conf, &daemon_node);
	if (r < 0)
		fail_msg("mcn_start: %s", mcs_error_detail(r));
}

void node_stop(void)
{
	node_down();
	assert_int_equal(rmdir(dir), 0);
}

void node_down(void)
{
	mcn_stop(daemon_node);
	daemon_node = NULL;
	mcs_close(store);
	store = NULL;
}

mcs_t *node_store(void)
{
	return store;
}

struct mcn *node_daemon(void)
{
	return daemon_node;
}

const char *node_address(void)
{
	return addr;
}

mcs_t *node_client(uint64_t buffer, uint64_t pool)
{
	struct mcs_conf conf;
	mcs_t *s = NULL;
	int r;

	mcs_conf_init(&conf);
	conf.daemon = addr;
	conf.daemon_buffer = buffer;
	conf.daemon_pool = pool;
	conf.timeout_ms = 20000;
	r = mcs_open(&conf, &s);
	if (r < 0)
		fail_msg("mcs_open: %s", mcs_error_detail(r));
	assert_string_equal(mcs_daemon(s), addr);
	return s;
}

void node_wait_counts(uint64_t pins, uint64_t connections)
{
	const struct timespec tick = { .tv_nsec = 2000000 };
	struct mcn_counts c = { 0 };

	for (int i = 0; i < 2500; i++) {
		mcn_count(daemon_node, &c);
		if (c.pins == pins && c.connections == connections)
			return;
		nanosleep(&tick, NULL);
	}
	fail_msg("%llu pins, %llu connections", (unsigned long long)c.pins,
		 (unsigned long long)c.connections);
}

mcs_t *node_setup(void)
{
	fixture_master(NULL);
	node_start(NODE_SEGMENT);
	return node_client(MIB, 4 * MIB);
}

void node_teardown(mcs_t *c)
{
	mcs_close(c);
	node_wait_counts(0, 0);
	node_stop();
	fixture_master_stop();
}

/* ---- by hand ---- */

int hand_ask(struct node_hand *h, uint16_t type, uint32_t id, uint64_t size, int fd, int *ret_fd)
{
	uint64_t deadline = mc_deadline_ms(10000);
	int got;

	h->msg = (struct mcfs_msg){
		.magic = MCFS_RING_MAGIC, .version = MCFS_RING_VERSION, .type = type, .id = id,
		.size = size, .entries = id,
	};
	assert_int_equal(mc_packet_send(h->sock, &h->msg, sizeof(h->msg), fd, deadline), 0);
	assert_int_equal(mc_packet_recv(h->sock, &h->msg, sizeof(h->msg), &got, deadline),
			 sizeof(h->msg));
	assert_int_equal(h->msg.type, type);
	if (ret_fd)
		*ret_fd = got;
	else if (got >= 0)
		close(got);
	return h->msg.status;
}

void hand_open(struct node_hand *h)
{
	memset(h, 0, sizeof(*h));
	h->sock = mc_packet_connect(addr, mc_deadline_ms(5000));
	assert_true(h->sock >= 0);
	assert_int_equal(hand_ask(h, MCFS_MSG_HELLO, 0, 0, -1, NULL), 0);
	h->hello_clock_ns = h->msg.clock_ns;
}

void hand_close(struct node_hand *h)
{
	if (h->ring)
		munmap(h->ring, h->ring_len);
	close(h->sock);
}

void hand_ring(struct node_hand *h, uint32_t entries, uint64_t arena)
{
	int fd;

	assert_int_equal(hand_ask(h, MCFS_MSG_RING, entries, arena, -1, &fd), 0);
	h->ring_len = h->msg.size;
	h->ring = mmap(NULL, h->ring_len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(h->ring != MAP_FAILED);
	close(fd);
	assert_int_equal(h->ring->entries, entries);
	h->sq = (void *)((char *)h->ring + h->ring->sq_offset);
	h->cq = (void *)((char *)h->ring + h->ring->cq_offset);
	h->arena = (unsigned char *)h->ring + h->ring->arena_offset;
}

void hand_give(struct node_hand *h, const struct mcfs_sqe *e)
{
	uint32_t tail = h->ring->sq_tail;

	h->sq[tail & (h->ring->entries - 1)] = *e;
	__atomic_store_n(&h->ring->sq_tail, tail + 1, __ATOMIC_SEQ_CST);
	mc_futex_wake(&h->ring->sq_tail);
}

struct mcfs_cqe hand_take(struct node_hand *h)
{
	uint64_t deadline = mc_deadline_ms(10000);
	uint32_t head = h->ring->cq_head;
	struct mcfs_cqe e;

	while (__atomic_load_n(&h->ring->cq_tail, __ATOMIC_ACQUIRE) == head) {
		if (mc_now_ns() > deadline)
			fail_msg("no answer");
		usleep(100);
	}
	e = h->cq[head & (h->ring->entries - 1)];
	__atomic_store_n(&h->ring->cq_head, head + 1, __ATOMIC_RELEASE);
	return e;
}

int hand_memfd(size_t size, unsigned char **ret)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	*ret = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(*ret != MAP_FAILED);
	/* The daemon uses only memory that the client has written. */
	memset(*ret, 0, size);
	return fd;
}
