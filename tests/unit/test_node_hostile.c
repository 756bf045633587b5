/* SPDX-License-Identifier: Apache-2.0
 * test_node_hostile.c - clients that break the rules of the socket and of the ring: only they get
 * an error, and another client keeps working. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/fault.h"
#include "common/futex.h"
#include "common/net/packet.h"
#include "node/node_i.h"
#include "tests/unit/node_fixture.h"

static struct node_hand h;
static mcs_t *good;

static int setup(void **state)
{
	(void)state;
	fixture_master(NULL);
	node_start(NODE_SEGMENT);
	good = node_client(MIB, 0);
	fixture_put_ok(good, "obj", 10000, 1);
	hand_open(&h);
	hand_ring(&h, 16, 8192);
	memcpy(h.arena, "obj", 3);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	/* whatever a client did, other clients are served */
	fixture_expect(good, "obj", 10000, 1);
	hand_close(&h);
	node_wait_counts(0, 1);
	mcs_close(good);
	node_stop();
	fixture_master_stop();
	return 0;
}

static int64_t result_of(struct mcfs_sqe e)
{
	struct mcfs_cqe c;

	e.tag = 0x1234567890abcdefull;
	hand_give(&h, &e);
	c = hand_take(&h);
	assert_true(c.tag == e.tag);
	return c.result;
}

static struct mcfs_sqe request(uint8_t op)
{
	return (struct mcfs_sqe){ .op = op, .key_len = 3, .put = ~0u };
}

static void test_entries(void **state)
{
	struct mcfs_sqe e = request(MCFS_RING_NOP);

	(void)state;
	assert_int_equal(result_of(e), 0);
	e = request(MCFS_RING_EXIST);
	assert_int_equal(result_of(e), 1);
	for (unsigned op = MCFS_RING_OPS; op < 256; op += 7) {
		e = request((uint8_t)op);
		assert_int_equal(result_of(e), -MCS_ENOTSUP);
	}
	for (unsigned bit = 0; bit < 8; bit++) {
		e = request(MCFS_RING_STAT);
		e.flags = (uint8_t)(1u << bit);
		assert_int_equal(result_of(e), e.flags == MCFS_SQE_DEADLINE ? -MCS_ETIMEDOUT :
				 -EINVAL);
	}
	/* keys: empty, too long, beyond the arena, at offsets that overflow */
	e = request(MCFS_RING_STAT);
	e.key_len = 0;
	assert_int_equal(result_of(e), -MCS_EKEY);
	e.key_len = 4097;
	assert_int_equal(result_of(e), -MCS_EKEY);
	e.key_len = 65535;
	assert_int_equal(result_of(e), -MCS_EKEY);
	e.key_len = 3;
	e.key = 8190;
	assert_int_equal(result_of(e), -EINVAL);
	e.key = UINT32_MAX;
	assert_int_equal(result_of(e), -EINVAL);
	e.key = UINT32_MAX - 2;
	assert_int_equal(result_of(e), -EINVAL);
	/* pins that do not exist */
	for (uint64_t pin = 1; pin; pin <<= 3) {
		e = request(MCFS_RING_UNPIN);
		e.pin = pin;
		assert_int_equal(result_of(e), -EINVAL);
		e.op = MCFS_RING_HELD;
		assert_int_equal(result_of(e), -EINVAL);
	}
}

static void test_memory(void **state)
{
	struct mcfs_ring_range *range = (void *)(h.arena + 1024);
	unsigned char *p;
	int fd = hand_memfd(65536, &p);
	struct mcfs_sqe e = request(MCFS_RING_GET);
	uint32_t id;

	(void)state;
	e.len = 10;
	e.buffer = 1;
	assert_int_equal(result_of(e), -ENOENT);
	assert_int_equal(hand_ask(&h, MCFS_MSG_BUFFER, 0, 65536, fd, NULL), 0);
	id = h.msg.id;
	e.buffer = id;
	assert_int_equal(result_of(e), 10);
	assert_true(fixture_same(p, 10, 1, 0));
	e.buffer = UINT32_MAX;
	assert_int_equal(result_of(e), -ENOENT);
	e.buffer = id;
	e.at = 65536;
	assert_int_equal(result_of(e), -ERANGE);
	e.at = UINT64_MAX;
	assert_int_equal(result_of(e), -ERANGE);
	e.at = 65530;
	e.len = UINT64_MAX - 5;
	assert_int_equal(result_of(e), -ERANGE);
	/* lists of ranges */
	e.len = 0;
	e.nranges = MCFS_RING_RANGES_MAX + 1;
	e.at = 1024;
	assert_int_equal(result_of(e), -EINVAL);
	e.nranges = 1000;
	assert_int_equal(result_of(e), -EINVAL);
	e.nranges = 2;
	e.at = UINT64_MAX - 8;
	assert_int_equal(result_of(e), -EINVAL);
	e.at = 1024;
	range[0] = (struct mcfs_ring_range){ id, 0, 0, 100 };
	range[1] = (struct mcfs_ring_range){ id, 0, 65500, 100 };
	assert_int_equal(result_of(e), -ERANGE);
	range[1].at = 100;
	assert_int_equal(result_of(e), 200);
	assert_true(fixture_same(p, 200, 1, 0));
	assert_int_equal(hand_ask(&h, MCFS_MSG_UNBUFFER, id, 0, -1, NULL), 0);
	assert_int_equal(result_of(e), -ENOENT);
	munmap(p, 65536);
	close(fd);
}

static void test_put_options(void **state)
{
	struct mcfs_ring_put *put = (void *)(h.arena + 4096);
	struct mcfs_sqe e = request(MCFS_RING_PUT);

	(void)state;
	memcpy(h.arena + 64, "new", 3);
	e.key = 64;
	e.put = 8180;
	assert_int_equal(result_of(e), -EINVAL);
	e.put = 4096;
	memset(put, 0xff, sizeof(*put));
	assert_int_equal(result_of(e), -EINVAL);
	*put = (struct mcfs_ring_put){ .kind = 200 };
	assert_int_equal(result_of(e), -MCS_EPARAM);
	*put = (struct mcfs_ring_put){ .flags = 0x80000000u };
	assert_int_equal(result_of(e), -MCS_EPARAM);
	*put = (struct mcfs_ring_put){ .group = 8000, .group_len = 1024 };
	assert_int_equal(result_of(e), -EINVAL);
	/* names without a terminating NUL */
	memset(h.arena + 5000, 'x', 100);
	*put = (struct mcfs_ring_put){ .preferred = 5000, .preferred_len = 100 };
	assert_int_equal(result_of(e), -EINVAL);
	/* the largest list of names */
	memset(h.arena, 0, 4096);
	memcpy(h.arena + 64, "new", 3);
	*put = (struct mcfs_ring_put){ .preferred = 0, .preferred_len = 4096 };
	put->replicas = 1;
	(void)result_of(e);
	memcpy(h.arena, "obj", 3);
}

/* An entry whose deadline has passed when the daemon takes it is answered, and has no effect. */
static void test_late(void **state)
{
	static const uint8_t ops[] = {
		MCFS_RING_GET, MCFS_RING_PUT, MCFS_RING_EXIST, MCFS_RING_STAT, MCFS_RING_PIN,
		MCFS_RING_REMOVE, MCFS_RING_PREFETCH,
	};
	struct mcfs_sqe e = request(MCFS_RING_NOP);

	(void)state;
	assert_true(h.hello_clock_ns && h.hello_clock_ns <= mc_now_ns());
	for (unsigned i = 0; i < sizeof(ops); i++) {
		e = request(ops[i]);
		e.flags = MCFS_SQE_DEADLINE;
		e.timeout_ms = 10000;
		e.pin = mc_now_ns();
		if (e.op == MCFS_RING_PUT)
			e.key_len = 2;
		assert_int_equal(result_of(e), -MCS_ETIMEDOUT);
	}
	/* an entry's deadline overrides its timeout, even if the deadline is later */
	e = request(MCFS_RING_EXIST);
	e.flags = MCFS_SQE_DEADLINE;
	e.timeout_ms = 1;
	e.pin = mc_deadline_ms(20000);
	assert_int_equal(result_of(e), 1);
	e.key_len = 2;
	assert_int_equal(result_of(e), 0);
	/* NOP accepts no deadline */
	e = request(MCFS_RING_NOP);
	e.flags = MCFS_SQE_DEADLINE;
	assert_int_equal(result_of(e), -EINVAL);
}

/* The daemon works until the deadline that the client names, so deadlines have an upper limit. */
static void test_longest(void **state)
{
	unsigned char memory[MCN_JOB_MAX];
	struct mcn_job job = { .e = request(MCFS_RING_EXIST), .seen_ns = mc_now_ns() };
	uint64_t longest = job.seen_ns + MCN_DEADLINE_MAX_MS * MC_NS_PER_MS;
	const uint64_t named[] = { longest - 1, longest, longest + 1, MC_NEVER };

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		struct mcn_scratch sc = { memory, sizeof(memory), 0 };

		job.e.flags = MCFS_SQE_DEADLINE;
		job.e.pin = named[i];
		mcn_job_take(NULL, h.arena, 8192, &sc, &job);
		assert_int_equal(job.c.result, 0);
		assert_true(job.deadline == (i ? longest : longest - 1));
		job.e.flags = 0;
		job.e.timeout_ms = i < 2 ? 1000 : UINT32_MAX;
		sc.used = 0;
		mcn_job_take(NULL, h.arena, 8192, &sc, &job);
		assert_true(job.deadline == (i < 2 ? job.seen_ns + MC_NS_PER_SEC : longest));
	}
}

/* A client disappears while one of its operations is in flight: its pins are released, and the
 * request queued behind that operation is not started. */
static void test_gone_at_work(void **state)
{
	unsigned char *p;
	int fd = hand_memfd(4096, &p);
	struct mcfs_sqe put = request(MCFS_RING_PUT);
	struct node_hand dead;

	(void)state;
	hand_open(&dead);
	hand_ring(&dead, 16, 4096);
	memcpy(dead.arena, "obj new", 7);
	hand_give(&dead, &(struct mcfs_sqe){ .op = MCFS_RING_PIN, .key_len = 3, .put = ~0u });
	assert_int_equal(hand_take(&dead).result, 0);
	assert_int_equal(hand_ask(&dead, MCFS_MSG_BUFFER, 0, 4096, fd, NULL), 0);
	put.key = 4;
	put.buffer = dead.msg.id;
	put.len = 4096;
	assert_int_equal(mc_fault_set("client.put.after_start=delay:4000"), 0);
	/* submit both at once */
	dead.sq[2] = request(MCFS_RING_REMOVE);
	dead.sq[2].flags = MCFS_SQE_FORCE;
	dead.sq[1] = put;
	__atomic_store_n(&dead.ring->sq_tail, 3, __ATOMIC_SEQ_CST);
	mc_futex_wake(&dead.ring->sq_tail);
	while (mc_fault_hits("client.put.after_start") < 1)
		usleep(1000);
	hand_close(&dead);
	/* the connection exists until its put has ended */
	node_wait_counts(0, 3);
	(void)mc_fault_set(NULL);
	node_wait_counts(0, 2);
	fixture_expect(good, "obj", 10000, 1);
	munmap(p, 4096);
	close(fd);
}

/* Invalid positions cost the client its ring, but not its connection. */
static void lose_ring(struct node_hand *c)
{
	uint64_t deadline = mc_deadline_ms(10000);

	while (!__atomic_load_n(&c->ring->closed, __ATOMIC_ACQUIRE)) {
		assert_true(mc_now_ns() < deadline);
		usleep(1000);
	}
	assert_int_equal(hand_ask(c, MCFS_MSG_SEGMENT, 0, 0, -1, NULL), 0);
}

static void test_positions(void **state)
{
	struct node_hand c;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		hand_open(&c);
		hand_ring(&c, 16, 4096);
		if (i == 0)
			c.ring->sq_tail = 17;
		else if (i == 1)
			c.ring->sq_tail = UINT32_MAX;
		else {
			c.ring->cq_head = 5;
			c.ring->sq_tail = 1;
		}
		lose_ring(&c);
		hand_close(&c);
	}
	/* the daemon does not rely on its own positions in the ring, which the client has
	 * overwritten */
	hand_open(&c);
	hand_ring(&c, 16, 4096);
	memset(c.ring, 0xff, 64);
	c.ring->sq_head = 12345;
	c.ring->cq_tail = 0;
	hand_give(&c, &(struct mcfs_sqe){ .op = MCFS_RING_NOP, .tag = 7 });
	while (__atomic_load_n(&c.ring->cq_tail, __ATOMIC_ACQUIRE) != 1)
		usleep(1000);
	assert_int_equal(c.cq[0].tag, 7);
	hand_close(&c);
}

/* A client that does not read its completions gets no more of them, and other clients do not wait. */
static void test_never_reads(void **state)
{
	struct mcfs_sqe e = request(MCFS_RING_EXIST);

	(void)state;
	for (unsigned i = 0; i < 16; i++) {
		h.sq[i] = e;
		h.sq[i].tag = i;
	}
	__atomic_store_n(&h.ring->sq_tail, 16, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&h.ring->cq_tail, __ATOMIC_ACQUIRE) != 16)
		usleep(1000);
	for (unsigned i = 0; i < 8; i++)
		h.sq[i].tag = 100 + i;
	__atomic_store_n(&h.ring->sq_tail, 24, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < 50; i++)
		fixture_expect(good, "obj", 10000, 1);
	assert_int_equal(__atomic_load_n(&h.ring->cq_tail, __ATOMIC_ACQUIRE), 16);
	/* the client starts to read */
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(hand_take(&h).tag, i);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(hand_take(&h).tag, 100 + i);
}

/* Entries, keys and lists change all the time while the daemon reads them: this data race is
 * intended. */
__attribute__((no_sanitize("thread")))
static void *scribble(void *arg)
{
	uint32_t *stop = arg;
	uint64_t x = 88172645463325252ull;

	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		((volatile unsigned char *)h.sq)[x % (16 * sizeof(*h.sq))] = (unsigned char)(x >> 40);
		((volatile unsigned char *)h.arena)[(x >> 20) % 8192] = (unsigned char)(x >> 48);
	}
	return NULL;
}

static void test_changing(void **state)
{
	uint64_t until;
	unsigned char *p;
	int fd = hand_memfd(65536, &p);
	uint32_t stop = 0;
	pthread_t t;

	(void)state;
	assert_int_equal(hand_ask(&h, MCFS_MSG_BUFFER, 0, 65536, fd, NULL), 0);
	assert_int_equal(pthread_create(&t, NULL, scribble, &stop), 0);
	until = mc_deadline_ms(700);
	for (unsigned i = 0; mc_now_ns() < until; i++) {
		struct mcfs_sqe e = request((uint8_t)(i % MCFS_RING_OPS));

		/* a forced removal would delete the object that the other checks use */
		if (e.op == MCFS_RING_REMOVE)
			e.op = MCFS_RING_PIN;
		e.buffer = h.msg.id;
		e.len = i % 5000;
		e.timeout_ms = 100;
		hand_give(&h, &e);
		(void)hand_take(&h);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	memcpy(h.arena, "obj", 3);
	(void)fixture_put(good, "obj", 10000, 1, MCS_PUT_UPSERT);
	munmap(p, 65536);
	close(fd);
}

static void test_socket(void **state)
{
	struct mcfs_msg msg = { .magic = MCFS_RING_MAGIC, .version = MCFS_RING_VERSION };
	uint64_t deadline = mc_deadline_ms(10000);
	unsigned char *p;
	int fd = hand_memfd(8192, &p), sock, got;

	(void)state;
	/* buffers whose mapping would crash the daemon */
	assert_int_equal(hand_ask(&h, MCFS_MSG_BUFFER, 0, 8193, fd, NULL), -EINVAL);
	assert_int_equal(hand_ask(&h, MCFS_MSG_BUFFER, 0, 0, fd, NULL), -EINVAL);
	assert_int_equal(hand_ask(&h, MCFS_MSG_BUFFER, 0, UINT64_MAX, fd, NULL), -EINVAL);
	assert_int_equal(hand_ask(&h, MCFS_MSG_BUFFER, 0, 8192, -1, NULL), -EINVAL);
	got = open("/dev/zero", O_RDWR | O_CLOEXEC);
	assert_int_equal(hand_ask(&h, MCFS_MSG_BUFFER, 0, 8192, got, NULL), -EINVAL);
	close(got);
	/* an accepted buffer is sealed */
	assert_int_equal(hand_ask(&h, MCFS_MSG_BUFFER, 0, 8192, fd, NULL), 0);
	assert_int_equal(ftruncate(fd, 0), -1);
	/* rings with invalid sizes */
	assert_int_equal(hand_ask(&h, MCFS_MSG_RING, 0, 0, -1, NULL), -EINVAL);
	assert_int_equal(hand_ask(&h, MCFS_MSG_RING, 3, 0, -1, NULL), -EINVAL);
	assert_int_equal(hand_ask(&h, MCFS_MSG_RING, 1u << 31, 0, -1, NULL), -EINVAL);
	assert_int_equal(hand_ask(&h, MCFS_MSG_RING, 16, UINT64_MAX, -1, NULL), -EINVAL);
	/* segments are read-only */
	assert_int_equal(hand_ask(&h, MCFS_MSG_SEGMENT, 77, 0, -1, NULL), -ENOENT);
	assert_int_equal(hand_ask(&h, MCFS_MSG_SEGMENT, 0, 0, -1, &got), 0);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, got, 0), MAP_FAILED);
	assert_int_equal(fcntl(got, F_GETFL) & O_ACCMODE, O_RDONLY);
	close(got);
	/* the maximum number of rings of a connection, and no more */
	for (unsigned i = 1; i < 64; i++)
		assert_int_equal(hand_ask(&h, MCFS_MSG_RING, 2, 0, -1, NULL), 0);
	assert_int_equal(hand_ask(&h, MCFS_MSG_RING, 2, 0, -1, NULL), -ENOBUFS);
	/* a client that sends without ever reading is disconnected */
	sock = mc_packet_connect(node_address(), deadline);
	msg.type = MCFS_MSG_HELLO;
	while (mc_packet_send(sock, &msg, sizeof(msg), -1, mc_deadline_ms(2000)) == 0)
		assert_true(mc_now_ns() < deadline);
	close(sock);
	munmap(p, 8192);
	close(fd);
}

/* The bytes of buffers are limited over all connections of a user, however little memory the
 * buffers occupy. */
static void test_buffer_bytes(void **state)
{
	int fd = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	uint64_t most = MCN_UID_BYTES - MIB;	/* the good client uses the rest */
	struct node_hand other;
	uint32_t id;

	(void)state;
#ifdef __SANITIZE_THREAD__
	/* ThreadSanitizer leaves too little address space for that much. */
	close(fd);
	skip();
#endif
	assert_int_equal(ftruncate(fd, (off_t)(MCN_UID_BYTES + 4096)), 0);
	assert_int_equal(hand_ask(&h, MCFS_MSG_BUFFER, 0, MCN_UID_BYTES + 4096, fd, NULL), -ENOBUFS);
	assert_int_equal(hand_ask(&h, MCFS_MSG_BUFFER, 0, most - 4096, fd, NULL), 0);
	id = h.msg.id;
	hand_open(&other);
	assert_int_equal(hand_ask(&other, MCFS_MSG_BUFFER, 0, 4097, fd, NULL), -ENOBUFS);
	assert_int_equal(hand_ask(&other, MCFS_MSG_BUFFER, 0, 4096, fd, NULL), 0);
	assert_int_equal(hand_ask(&other, MCFS_MSG_BUFFER, 0, 4096, fd, NULL), -ENOBUFS);
	assert_int_equal(hand_ask(&h, MCFS_MSG_UNBUFFER, id, 0, -1, NULL), 0);
	assert_int_equal(hand_ask(&other, MCFS_MSG_BUFFER, 0, 4096, fd, NULL), 0);
	hand_close(&other);
	node_wait_counts(0, 2);
	close(fd);
}

static uint64_t file_bytes(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* The kernel allocates a page of a memfd for the process that touches it first, and counts it there.  The daemon must
 * not pay for pages that its client has never written. */
static void test_sparse_buffer(void **state)
{
	struct mcfs_sqe e = request(MCFS_RING_PUT);
	uint64_t size = 64 * MIB;
	unsigned char *p;
	int fd = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	(void)state;
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(p != MAP_FAILED);
	assert_int_equal(hand_ask(&h, MCFS_MSG_BUFFER, 0, size, fd, NULL), 0);
	e.buffer = h.msg.id;
	memcpy(h.arena + 64, "new", 3);
	e.key = 64;
	e.len = 8 * MIB;
	for (e.at = 0; e.at + e.len <= size; e.at += e.len)
		assert_int_equal(result_of(e), -EFAULT);
	e.op = MCFS_RING_GET;
	e.key = 0;
	e.at = 4097;
	e.len = 10000;
	assert_int_equal(result_of(e), -EFAULT);
	assert_int_equal(file_bytes(fd), 0);
	/* With the client's pages both work, and a single missing page is noticed. */
	memset(p, 7, 4 * 4096);
	assert_int_equal(result_of(e), 10000);
	assert_true(fixture_same(p + e.at, 10000, 1, 0));
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * 4096, 4096), 0);
	assert_int_equal(result_of(e), -EFAULT);
	e.op = MCFS_RING_PUT;
	e.key = 64;
	assert_int_equal(result_of(e), -EFAULT);
	e.at = 3 * 4096;
	e.len = 4096;
	assert_int_equal(result_of(e), 1);
	assert_int_equal(file_bytes(fd), 3 * 4096);
	munmap(p, size);
	close(fd);
}

/* The memory of a ring is allocated when the client uses it. */
static void test_ring_memory(void **state)
{
	struct stat st;
	int fd;

	(void)state;
	assert_int_equal(hand_ask(&h, MCFS_MSG_RING, 16, MCFS_RING_ARENA_MAX, -1, &fd), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true((uint64_t)st.st_size > MCFS_RING_ARENA_MAX);
	assert_true(st.st_blocks * 512 < 65536);
	close(fd);
}

/* A socket whose last close blocks until @ret_peer reads, or for half a minute. */
static int lingering(int *ret_peer)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct linger linger = { 1, 30 };
	socklen_t len = sizeof(at);
	static char bytes[65536];

	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	*ret_peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(*ret_peer >= 0);
	close(listener);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	return fd;
}

/* A client may send a descriptor whose close blocks; the daemon does not wait for that close. */
static void test_strays(void **state)
{
	struct mcfs_msg msg = {
		.magic = MCFS_RING_MAGIC, .version = MCFS_RING_VERSION, .type = MCFS_MSG_HELLO,
	};
	uint64_t deadline = mc_deadline_ms(20000);
	int sock, fd[MCN_DEFERRED_MAX], peer[MCN_DEFERRED_MAX], got;
	struct node_hand other;
	unsigned char *p;

	(void)state;
	for (unsigned i = 0; i < MCN_DEFERRED_MAX; i++)
		fd[i] = lingering(&peer[i]);
	/* the daemon receives the descriptors after they are closed here, so that its close is the
	 * last one */
	assert_int_equal(mc_fault_set("node.accept=delay:2000"), 0);
	sock = mc_packet_connect(node_address(), deadline);
	for (unsigned i = 0; i < MCN_DEFERRED_MAX; i++) {
		assert_int_equal(mc_packet_send(sock, &msg, sizeof(msg), fd[i], deadline), 0);
		close(fd[i]);
	}
	(void)mc_fault_set(NULL);
	for (unsigned i = 0; i < MCN_DEFERRED_MAX; i++)
		assert_int_equal(mc_packet_recv(sock, &msg, sizeof(msg), &got, deadline), sizeof(msg));
	hand_open(&other);
	fd[0] = hand_memfd(4096, &p);
	assert_int_equal(hand_ask(&other, MCFS_MSG_BUFFER, 0, 4096, fd[0], NULL), -ENOBUFS);
	for (unsigned i = 0; i < MCN_DEFERRED_MAX; i++)
		close(peer[i]);
	while (hand_ask(&other, MCFS_MSG_BUFFER, 0, 4096, fd[0], NULL) == -ENOBUFS) {
		assert_true(mc_now_ns() < deadline);
		usleep(1000);
	}
	assert_int_equal(other.msg.status, 0);
	hand_close(&other);
	close(sock);
	munmap(p, 4096);
	close(fd[0]);
	node_wait_counts(0, 2);
}

/* Use up all free descriptors, and let a client connect. False: another thread freed one, and the
 * daemon accepted the client with it. */
static bool starve(int sock)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct mcn_counts before, now;
	struct rlimit was, low;
	int taken[64], n = 0;
	uint64_t began, ms;
	long hits = 0;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
	low = (struct rlimit){ (rlim_t)sock + 1, was.rlim_max };
	mcn_count(node_daemon(), &before);
	assert_int_equal(mc_fault_set("node.accept=delay:0"), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	while (n < 64 && (taken[n] = dup(sock)) >= 0)
		n++;
	began = mc_now_ns();
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", node_address() + 5);
	assert_int_equal(connect(sock, (struct sockaddr *)&sa, sizeof(sa)), 0);
	do {
		usleep(1000);
		hits = mc_fault_hits("node.accept");
		mcn_count(node_daemon(), &now);
	} while (hits < 3 && now.connections == before.connections);
	ms = (mc_now_ns() - began) / MC_NS_PER_MS;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
	while (n)
		close(taken[--n]);
	(void)mc_fault_set(NULL);
	assert_true(hits <= 3 + (long)ms / 100);
	return hits >= 3;
}

/* Without free descriptors the daemon waits, and does not retry in a busy loop. */
static void test_no_descriptors(void **state)
{
	struct mcfs_msg msg = {
		.magic = MCFS_RING_MAGIC, .version = MCFS_RING_VERSION, .type = MCFS_MSG_HELLO,
	};
	int sock, got, tries = 0;

	(void)state;
	for (;;) {
		sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		assert_true(sock >= 0);
		if (starve(sock))
			break;
		close(sock);
		assert_true(++tries < 20);
	}
	assert_int_equal(mc_packet_send(sock, &msg, sizeof(msg), -1, mc_deadline_ms(10000)), 0);
	assert_int_equal(mc_packet_recv(sock, &msg, sizeof(msg), &got, mc_deadline_ms(10000)),
			 sizeof(msg));
	assert_int_equal(msg.status, 0);
	close(sock);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_entries),
		TEST(test_memory),
		TEST(test_put_options),
		TEST(test_late),
		TEST(test_longest),
		TEST(test_gone_at_work),
		TEST(test_positions),
		TEST(test_never_reads),
		TEST(test_changing),
		TEST(test_socket),
		TEST(test_buffer_bytes),
		TEST(test_sparse_buffer),
		TEST(test_ring_memory),
		TEST(test_strays),
		TEST(test_no_descriptors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
