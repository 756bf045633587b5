/* SPDX-License-Identifier: Apache-2.0
 * handshake.c - frames of the handshake protocol, and the listening socket of the daemon. */
#include <config.h>

#include "engine/upstream/handshake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/net/networks.h"
#include "common/net/socket.h"
#include "common/env.h"
#include "engine/upstream/handshake_i.h"
#include "engine/upstream/port.h"

#define LOG "handshake"
#define ACCEPT_MAX 64		/* connections accepted per event */
#define PAUSE_NS (100 * MC_NS_PER_MS)
#define TYPE_LAST MCE_HANDSHAKE_PROBE

size_t mce_handshake_max(void)
{
	return (size_t)mc_env_int("MC_HANDSHAKE_MAX_LENGTH", 1 << 20, 1, 128 << 20);
}

int mce_handshake_parse(const uint8_t *body, size_t len, unsigned *ret_type, size_t *ret_at)
{
	if (len == 0)
		return mc_fail(-MC_EPROTO, "handshake: empty frame");
	*ret_type = body[0] > TYPE_LAST ? MCE_HANDSHAKE_LEGACY : body[0];
	*ret_at = body[0] > TYPE_LAST ? 0 : 1;
	return 0;
}

int mce_handshake_frame(unsigned type, const char *text, uint8_t **ret, size_t *ret_len)
{
	size_t typed = type != MCE_HANDSHAKE_LEGACY, n = strlen(text);
	uint64_t length = typed + n;
	uint8_t *frame = malloc(MCE_HANDSHAKE_HEAD + typed + n);

	if (!frame)
		return mc_fail(-ENOMEM, "no memory for a handshake of %zu bytes", n);
	for (unsigned i = 0; i < MCE_HANDSHAKE_HEAD; i++)
		frame[i] = (uint8_t)(length >> 8 * i);
	if (typed)
		frame[MCE_HANDSHAKE_HEAD] = (uint8_t)type;
	memcpy(frame + MCE_HANDSHAKE_HEAD + typed, text, n);
	*ret = frame;
	*ret_len = MCE_HANDSHAKE_HEAD + typed + n;
	return 0;
}

static void listener_resume(struct mc_evtimer *t)
{
	struct mce_handshake *h = mc_container_of(t, struct mce_handshake, pause);

	if (mc_evloop_add(h->loop, &h->listener, EPOLLIN) < 0)
		mc_evtimer_arm(h->loop, t, mc_now_ns() + PAUSE_NS);
}

static void listener_ready(struct mc_evfd *e, uint32_t events)
{
	struct mce_handshake *h = mc_container_of(e, struct mce_handshake, listener);
	int fd;

	for (int i = 0; i < ACCEPT_MAX; i++) {
		fd = mc_socket_accept(e->fd);
		if (fd >= 0 && h->conf.networks && !mc_networks_admit_peer(h->conf.networks, fd)) {
			char name[MC_ADDR_MAX];

			mc_warn(LOG, "refusing a connection: its host is not in MC_UPSTREAM_PEERS peer=%s",
				mc_socket_peer(fd, name));
			close(fd);
			continue;
		}
		if (fd >= 0) {
			mce_handshake_accept(h, fd);
			continue;
		}
		if (fd == -EAGAIN)
			return;
		/* Out of descriptors or memory.  The connection stays in the backlog, so polling would
		 * report it again at once: pause instead. */
		mc_warn(LOG, "cannot accept, trying again in 100 ms: %s", mc_err_detail(fd));
		mc_evloop_del(h->loop, e);
		mc_evtimer_arm(h->loop, &h->pause, mc_now_ns() + PAUSE_NS);
		return;
	}
}

int mce_handshake_open(const struct mce_handshake_conf *conf, struct mce_handshake **ret)
{
	int backlog = (int)mc_env_int("MC_HANDSHAKE_LISTEN_BACKLOG", 128, 1, 65535);
	struct mce_handshake *h = calloc(1, sizeof(*h));
	int r;

	if (!h)
		return mc_fail(-ENOMEM, "no memory for the handshake daemon");
	h->conf = *conf;
	h->max_len = mce_handshake_max();
	h->listener.ready = listener_ready;
	h->pause.fire = listener_resume;
	mc_list_init(&h->conns);
	r = h->listener.fd = mce_port_listen(conf->host, conf->port, backlog, &h->port);
	if (r < 0)
		goto fail;
	/* The caller may free the string after open. */
	h->conf.host = NULL;
	r = mc_evloop_new("mce-handshake", 0, &h->loop);
	if (r < 0)
		goto fail;
	r = mc_evloop_add(h->loop, &h->listener, EPOLLIN);
	if (r == 0)
		r = mc_evloop_start(h->loop);
	if (r < 0)
		goto fail;
	*ret = h;
	return 0;
fail:
	mce_handshake_close(h);
	return r;
}

int mce_handshake_port(const struct mce_handshake *h)
{
	return h->port;
}

void mce_handshake_close(struct mce_handshake *h)
{
	if (!h)
		return;
	mc_evloop_free(h->loop);
	mce_handshake_drop_all(h);
	if (h->listener.fd >= 0)
		close(h->listener.fd);
	free(h);
}
