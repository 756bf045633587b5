/* SPDX-License-Identifier: Apache-2.0
 * hint.c - names of transports and NICs that a transfer prefers. */
#include <config.h>

#include "engine/te/te_i.h"

#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/sys/thread.h"

#define NICS_MAX 16u
/* Names that were logged; more are not. */
#define SAID_MAX 16u
#define SAID_BYTES 64u

static const struct {
	const char *name;
	enum mce_path path;
} transports[] = {
	{ "tcp", MCE_PATH_TCP }, { "rdma", MCE_PATH_RDMA }, { "shm", MCE_PATH_MAPPED },
};

static bool hint_is_new(const char *name)
{
	static struct mc_mutex lock = MC_MUTEX_INIT;
	static char said[SAID_MAX][SAID_BYTES];
	static unsigned n;

	MC_LOCKED(&lock);
	for (unsigned i = 0; i < n; i++)
		if (!strncmp(said[i], name, SAID_BYTES - 1))
			return false;
	if (n == SAID_MAX)
		return false;
	strncpy(said[n++], name, SAID_BYTES - 1);
	return true;
}

static enum mce_path hint_path(const char *name)
{
	for (size_t i = 0; i < sizeof(transports) / sizeof(transports[0]); i++)
		if (!strcmp(transports[i].name, name))
			return transports[i].path;
	if (hint_is_new(name))
		mc_warn("engine", "hint is not used: no such transport, there are tcp, rdma and shm: transport=%.63s",
			name);
	return MCE_PATH_NONE;
}

static uint16_t hint_nics(struct mce_te *te, const char *name)
{
	struct mce_nic_desc nic[NICS_MAX];
	unsigned n = mce_engine_nics(te->engine, nic, NICS_MAX);

	for (unsigned i = 0; i < n; i++)
		if (!strcmp(nic[i].name, name))
			return (uint16_t)(1u << i);
	if (hint_is_new(name))
		mc_warn("engine", "hint is not used: the engine does not use such a NIC: nic=%.63s", name);
	return 0;
}

void mce_te_hints(struct mce_te *te, const struct mce_te_submit_opts *opts, struct mce_te_hints *ret)
{
	ret->path = opts->transport && *opts->transport ? hint_path(opts->transport) : MCE_PATH_NONE;
	ret->nics = opts->nic && *opts->nic ? hint_nics(te, opts->nic) : 0;
}
