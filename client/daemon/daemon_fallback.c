/* SPDX-License-Identifier: Apache-2.0
 * node_alone.c - a handle that has found a daemon by itself goes on without it when it dies. */
#include <config.h>

#include "client/daemon/daemon_i.h"
#include "common/cleanup.h"
#include "common/log.h"

/* So long nobody looks whether there is a daemon again. */
#define AGAIN_NS (1000 * MC_NS_PER_MS)

static struct mcs *open_locked(struct mcs *s)
{
	struct mcs_conf conf = s->conf;
	int r;

	if (s->alone)
		return s->alone;
	conf.struct_size = sizeof(conf);
	conf.daemon = "off";
	r = mcs_open(&conf, &s->alone);
	if (r < 0) {
		s->alone = NULL;
		return NULL;
	}
	mc_warn("client", "the node's daemon has died, going on without it address=%s",
		mcs_daemon_address(s->node));
	return s->alone;
}

struct mcs *mcs_daemon_bypass(struct mcs *s)
{
	uint64_t until = __atomic_load_n(&s->alone_until_ns, __ATOMIC_ACQUIRE);

	if (!until || mc_now_ns() >= until)
		return NULL;
	MC_LOCKED(&s->alone_lock);
	return s->alone;
}

struct mcs *mcs_daemon_alone(struct mcs *s, int err)
{
	struct mcs *alone;

	/* One that was named is the only way that is wanted; a daemon that answers may say what it likes. */
	if (err != -MC_ERPC || !mcs_daemon_found(s->node) || mcs_daemon_up(s->node))
		return NULL;
	MC_LOCKED(&s->alone_lock);
	alone = open_locked(s);
	if (alone)
		__atomic_store_n(&s->alone_until_ns, mc_now_ns() + AGAIN_NS, __ATOMIC_RELEASE);
	return alone;
}
