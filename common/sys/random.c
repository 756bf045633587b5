/* SPDX-License-Identifier: Apache-2.0
 * random.c - random numbers of the kernel. */
#include <config.h>

#include "common/sys/random.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/err.h"
#include "common/sys/clock.h"
#include "common/sys/world.h"

int mc_random_bytes(void *buf, size_t len)
{
	struct mc_world *w = mc_world();

	if (w) {
		w->ops->random(w, buf, len);
		return 0;
	}
	/* Up to 256 bytes are returned whole once the kernel's pool is seeded. */
	if (getrandom(buf, len, 0) == (ssize_t)len)
		return 0;
	return mc_fail(-errno, "no random numbers: %s", mc_strerror(errno));
}

uint64_t mc_random_u64(void)
{
	static _Atomic uint64_t serial;
	uint64_t v;

	/* A seccomp filter may refuse the call: then ids must still be distinct; nonces only guard against mistakes. */
	if (mc_random_bytes(&v, sizeof(v)) == 0)
		return v;
	uint64_t mix[4] = {
		mc_now_ns(), mc_wall_ns(), (uint64_t)getpid(), atomic_fetch_add(&serial, 1)
	};

	return XXH3_64bits(mix, sizeof(mix));
}
