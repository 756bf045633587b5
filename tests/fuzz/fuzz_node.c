/* SPDX-License-Identifier: Apache-2.0
 * fuzz_node.c - input from local clients of the daemon: entries of a ring with the arena to which
 * they point, and packets of the socket.  Pointers in a decoded entry must point into the daemon's
 * copy only. */
#include <config.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "node/node_i.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct mcn node = { .segment_fd = -1, .master = (char *)(uintptr_t)"m" };

static struct mcn_conn *connect_one(void)
{
	struct mcn_conn *c = calloc(1, sizeof(*c));

	if (!node.mapped) {
		mc_mutex_init(&node.lock);
		mc_cond_init(&node.changed);
		mc_list_init(&node.conns);
		if (mcn_mapped_new(NULL, 65536, 0, &node.mapped) < 0 || mcn_deferred_new(&node.deferred) < 0)
			abort();
	}
	if (!c || mcn_pins_new(&node, false, &c->pins) < 0)
		abort();
	c->n = &node;
	c->refs = 1;
	c->greeted = true;
	c->evfd.fd = c->process.fd = -1;
	mc_mutex_init(&c->lock);
	mc_list_push_back(&node.conns, &c->link);
	node.nconns++;
	return c;
}

/* A ring has threads: wait until they have ended before the next input. */
static void disconnect(struct mcn_conn *c)
{
	mcn_conn_over(c);
	mcn_conn_unref(c);
	mc_mutex_lock(&node.lock);
	while (node.nconns)
		mc_cond_wait(&node.changed, &node.lock);
	mc_mutex_unlock(&node.lock);
}

static bool within(const struct mcn_scratch *sc, const void *p, size_t len)
{
	const unsigned char *at = p;

	return at >= sc->base && len <= sc->used && at + len <= sc->base + sc->used;
}

static void check_job(const struct mcn_scratch *sc, const struct mcn_job *j)
{
	if (j->done != (j->c.result < 0) || j->c.tag != j->e.tag)
		abort();
	if (j->key.len && !within(sc, j->key.data, j->key.len))
		abort();
	if (j->done || !j->put)
		return;
	if (j->put->group.len && !within(sc, j->put->group.data, j->put->group.len))
		abort();
	for (unsigned i = 0; j->put->preferred && j->put->preferred[i]; i++)
		if (!within(sc, j->put->preferred[i], strlen(j->put->preferred[i]) + 1))
			abort();
	for (int i = 0; i < j->iovcnt; i++)
		if (j->iov[i].iov_len > 65536)
			abort();
}

static void take_entries(struct mcn_conn *c, const uint8_t *data, size_t size)
{
	struct mcn_scratch sc = { .base = malloc(MCN_SCRATCH_SIZE), .size = MCN_SCRATCH_SIZE };
	unsigned char *arena = malloc(size + 1);
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct mcfs_msg in = {
		.magic = MCFS_RING_MAGIC, .version = 1, .type = MCFS_MSG_BUFFER, .size = 65536,
	};

	if (!sc.base || !arena || fd < 0 || ftruncate(fd, 65536) < 0)
		abort();
	memcpy(arena, data, size);
	/* The caller, not this function, handles an answer that finds no socket. */
	(void)mcn_conn_serve(c, &in, fd);
	for (size_t at = 0; at + sizeof(struct mcfs_sqe) <= size; at += sizeof(struct mcfs_sqe)) {
		struct mcn_job j = { .done = false };

		memcpy(&j.e, data + at, sizeof(j.e));
		sc.used = 0;
		mcn_job_take(c, arena, size, &sc, &j);
		if (sc.used > MCN_JOB_MAX)
			abort();
		check_job(&sc, &j);
		mcn_job_release(c, &j);
	}
	close(fd);
	free(arena);
	free(sc.base);
}

static void take_packets(struct mcn_conn *c, const uint8_t *data, size_t size)
{
	int pair[2], fd;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
		abort();
	c->evfd.fd = pair[0];
	for (size_t at = 0; at < size; at += sizeof(struct mcfs_msg)) {
		struct mcfs_msg in = { 0 };
		size_t n = size - at < sizeof(in) ? size - at : sizeof(in);
		char drop[512];

		memcpy(&in, data + at, n);
		/* HELLO names the store, and this test has none. */
		if (in.type == MCFS_MSG_HELLO)
			continue;
		fd = in.reserved[0] & 1 ? memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING) : -1;
		if (fd >= 0 && ftruncate(fd, (off_t)(in.reserved[1] & 0xffff)) < 0)
			abort();
		(void)mcn_conn_serve(c, &in, fd);
		if (fd >= 0)
			close(fd);
		while (recv(pair[1], drop, sizeof(drop), MSG_DONTWAIT) > 0)
			;
	}
	mcn_conn_over(c);
	close(pair[0]);
	close(pair[1]);
	c->evfd.fd = -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct mcn_conn *c;

	if (!size)
		return 0;
	c = connect_one();
	if (data[0] & 1)
		take_packets(c, data + 1, size - 1);
	else
		take_entries(c, data + 1, size - 1);
	disconnect(c);
	return 0;
}
