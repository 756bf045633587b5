/* SPDX-License-Identifier: Apache-2.0
 * conn.c - one client at the socket: its requests and its registered buffers. */
#include <config.h>

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/net/packet.h"
#include "common/sys/clock.h"
#include "node/node_i.h"

static int send_msg(struct mcn_conn *c, struct mcfs_msg *out, int fd)
{
	out->magic = MCFS_RING_MAGIC;
	out->version = MCFS_RING_VERSION;
	out->token = c->token;
	/* Do not wait for a client that does not read. */
	return mc_packet_send(c->evfd.fd, out, sizeof(*out), fd, 0);
}

/* ---- buffers ---- */

static void buffer_free(struct mcn_conn *c, struct mcn_buffer *b)
{
	munmap(b->base, b->size);
	__atomic_fetch_sub(&c->n->nbuffers, 1, __ATOMIC_RELAXED);
	mc_mutex_lock(&c->lock);
	c->nbuffers--;
	c->buffer_bytes -= b->size;
	mc_mutex_unlock(&c->lock);
	free(b);
}

int mcn_buffer_get(struct mcn_conn *c, uint32_t id, uint64_t at, uint64_t len,
		   struct mcn_buffer **ret, void **ret_base)
{
	struct mcn_buffer *b;

	MC_LOCKED(&c->lock);
	b = id && id <= MCN_CONN_BUFFERS ? c->buffer[id - 1] : NULL;
	if (!b)
		return mc_fail(-ENOENT, "there is no buffer %u", id);
	if (at > b->size || len > b->size - at)
		return mc_fail(-ERANGE, "%llu bytes at %llu are not in a buffer of %llu",
			       (unsigned long long)len, (unsigned long long)at,
			       (unsigned long long)b->size);
	b->refs++;
	*ret = b;
	*ret_base = b->base + at;
	return 0;
}

void mcn_buffer_put(struct mcn_conn *c, struct mcn_buffer *b)
{
	struct mcfs_msg out = { .type = MCFS_MSG_UNBUFFER };
	bool last, tell;

	mc_mutex_lock(&c->lock);
	last = !--b->refs;
	mc_mutex_unlock(&c->lock);
	if (!last)
		return;
	tell = b->unbuffer;
	out.id = b->id;
	buffer_free(c, b);
	/* Not after the close: a closed socket already answers everything for the client. */
	mc_mutex_lock(&c->lock);
	if (tell && !c->over)
		(void)send_msg(c, &out, -1);
	mc_mutex_unlock(&c->lock);
}

static int map_buffer(int fd, uint64_t size, struct mcn_buffer **ret)
{
	struct mcn_buffer *b;
	int r;

	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	b->size = size;
	b->refs = 1;
	b->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (b->base == MAP_FAILED) {
		r = mc_fail(-errno, "a buffer cannot be mapped: %s", mc_strerror(errno));
		free(b);
		return r;
	}
	*ret = b;
	return 0;
}

static int check_buffers(struct mcn_conn *c, uint64_t size)
{
	struct mcn_use use;

	mcn_use_of(c->n, c->uid, &use);
	if (use.buffers >= MCN_UID_BUFFERS)
		return mc_fail(-ENOBUFS, "user %u has %u buffers", (unsigned)c->uid, use.buffers);
	if (size > MCN_UID_BYTES || use.bytes > MCN_UID_BYTES - size)
		return mc_fail(-ENOBUFS, "user %u has %llu bytes of buffers, the limit is %llu",
			       (unsigned)c->uid, (unsigned long long)use.bytes,
			       (unsigned long long)MCN_UID_BYTES);
	return 0;
}

static int serve_buffer(struct mcn_conn *c, const struct mcfs_msg *in, int fd, struct mcfs_msg *out)
{
	struct mcn_buffer *b = NULL;
	unsigned i = 0;
	int r;

	if (fd < 0 && mcn_deferred_full(c->n->deferred, c->uid))
		return mc_fail(-ENOBUFS, "%u descriptors that user %u has sent cannot be closed",
			       MCN_DEFERRED_MAX, (unsigned)c->uid);
	/* Only the loop adds buffers, so a free slot stays free. */
	while (i < MCN_CONN_BUFFERS && c->buffer[i])
		i++;
	if (i == MCN_CONN_BUFFERS)
		return mc_fail(-ENOBUFS, "a client has %u buffers", i);
	r = mcn_memory_check(fd, in->size, true);
	if (r == 0)
		r = check_buffers(c, in->size);
	if (r == 0)
		r = map_buffer(fd, in->size, &b);
	if (r < 0)
		return r;
	__atomic_fetch_add(&c->n->nbuffers, 1, __ATOMIC_RELAXED);
	b->id = out->id = i + 1;
	out->size = b->size;
	MC_LOCKED(&c->lock);
	c->buffer[i] = b;
	c->nbuffers++;
	c->buffer_bytes += b->size;
	return 0;
}

/* Returns 1: the answer is sent when the last operation on the buffer has ended. */
static int serve_unbuffer(struct mcn_conn *c, const struct mcfs_msg *in)
{
	struct mcn_buffer *b = NULL;

	mc_mutex_lock(&c->lock);
	if (in->id && in->id <= MCN_CONN_BUFFERS)
		b = c->buffer[in->id - 1];
	if (b) {
		c->buffer[in->id - 1] = NULL;
		b->unbuffer = true;
	}
	mc_mutex_unlock(&c->lock);
	if (!b)
		return mc_fail(-ENOENT, "there is no buffer %u", in->id);
	mcn_buffer_put(c, b);
	return 1;
}

/* ---- rings, segments, greeting ---- */

static int serve_ring(struct mcn_conn *c, const struct mcfs_msg *in, struct mcfs_msg *out, int *ret_fd)
{
	struct mcn_ring *ring;
	struct mcn_use use;
	unsigned now;
	int r;

	mc_mutex_lock(&c->lock);
	now = c->nrings;
	mc_mutex_unlock(&c->lock);
	if (now == MCN_CONN_RINGS)
		return mc_fail(-ENOBUFS, "a client has %u rings", now);
	mcn_use_of(c->n, c->uid, &use);
	if (use.rings >= MCN_UID_RINGS)
		return mc_fail(-ENOBUFS, "user %u has %u rings", (unsigned)c->uid, use.rings);
	r = mcn_ring_new(c, in->entries, in->size, &ring, ret_fd, &out->size);
	if (r < 0)
		return r;
	/* The ring's thread searches this table when it ends; it has no reason to end before the answer is sent. */
	mc_mutex_lock(&c->lock);
	c->ring[c->nrings++] = ring;
	mc_mutex_unlock(&c->lock);
	out->entries = in->entries;
	return 0;
}

static int serve_segment(struct mcn_conn *c, const struct mcfs_msg *in, struct mcfs_msg *out, int *ret_fd)
{
	int fd = in->id || mcn_may_map(&c->identity) ? mcn_segment(c->n, in->id, &out->size) :
		mc_fail(-EACCES, "the segment holds objects of other tenants than \"%s\", which user %u belongs to",
			c->identity.tenant, (unsigned)c->uid);

	if (fd < 0)
		return fd;
	*ret_fd = dup(fd);
	out->id = in->id;
	return *ret_fd < 0 ? mc_fail(-errno, "dup") : 0;
}

static int serve_hello(struct mcn_conn *c, struct mcfs_msg *out)
{
	int len = snprintf(out->text, sizeof(out->text), "%s%c%s%c%s", c->n->master, '\0',
			   mcs_hostname(c->n->conf.store), '\0', c->n->tenant);

	/* A truncated tenant name would name another tenant; truncated master or host names do no harm. */
	if (len >= (int)sizeof(out->text) && *c->n->tenant)
		return mc_fail(-MCS_EPARAM, "the names of master, host and tenant exceed %zu bytes",
			       sizeof(out->text) - 3);
	c->greeted = true;
	out->nsegments = MCN_SEGMENTS;
	out->clock_ns = mc_now_ns();
	return 0;
}

static int conn_serve(struct mcn_conn *c, const struct mcfs_msg *in, int fd, struct mcfs_msg *out,
		 int *ret_fd)
{
	if (in->type != MCFS_MSG_HELLO && !c->greeted)
		return mc_fail(-MCS_ENOTSUP, "request %u before the greeting", in->type);
	switch (in->type) {
	case MCFS_MSG_HELLO:
		return serve_hello(c, out);
	case MCFS_MSG_SEGMENT:
		return serve_segment(c, in, out, ret_fd);
	case MCFS_MSG_BUFFER:
		return serve_buffer(c, in, fd, out);
	case MCFS_MSG_UNBUFFER:
		return serve_unbuffer(c, in);
	case MCFS_MSG_RING:
		return serve_ring(c, in, out, ret_fd);
	default:
		return mc_fail(-MCS_ENOTSUP, "unknown request %u", in->type);
	}
}

int mcn_conn_serve(struct mcn_conn *c, const struct mcfs_msg *in, int fd)
{
	struct mcfs_msg out = { .type = in->type };
	auto_close int out_fd = -1;
	int r;

	if (in->magic != MCFS_RING_MAGIC || in->version < MCFS_RING_VERSION)
		return mc_fail(-EPROTO, "not a packet of this protocol");
	r = conn_serve(c, in, fd, &out, &out_fd);
	if (r > 0)
		return 0;
	if (r < 0) {
		mc_debug("node", "refused pid=%d request=%u: %s", (int)c->pid, in->type, mc_err_detail(r));
		(void)snprintf(out.text, sizeof(out.text), "%s", mc_err_detail(r));
	}
	out.status = r;
	return send_msg(c, &out, out_fd);
}

void mcn_conn_over(struct mcn_conn *c)
{
	mc_mutex_lock(&c->lock);
	c->over = true;
	for (unsigned i = 0; i < c->nrings; i++)
		mcn_ring_stop(c->ring[i]);
	mc_mutex_unlock(&c->lock);
	/* Running operations continue until their deadline and keep their buffers; pins are released now. */
	mcn_pins_end(c->pins);
}

bool mcn_conn_is_over(struct mcn_conn *c)
{
	MC_LOCKED(&c->lock);
	return c->over;
}

bool mcn_conn_left(const struct mcn_conn *c)
{
	struct pollfd p[2] = {
		{ .fd = c->evfd.fd, .events = POLLRDHUP }, { .fd = c->process.fd, .events = POLLIN },
	};

	return poll(p, 2, 0) > 0;
}

void mcn_conn_free(struct mcn_conn *c)
{
	for (unsigned i = 0; i < MCN_CONN_BUFFERS; i++)
		if (c->buffer[i])
			buffer_free(c, c->buffer[i]);
	mcn_pins_free(c->pins);
	if (c->process.fd >= 0)
		close(c->process.fd);
	if (c->evfd.fd >= 0)
		close(c->evfd.fd);
	mc_mutex_destroy(&c->lock);
	free(c);
}
