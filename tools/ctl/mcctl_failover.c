/* SPDX-License-Identifier: Apache-2.0
 * mcctl_failover.c - a planned change of the master that leads. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <string.h>
#include <time.h>

#include "common/net/net.h"
#include "common/sys/clock.h"

#define LOOK_MS 500	/* time limit of a look for the next leader */
#define PAUSE_NS 50000000

/* The address of the next leader; false: there was none in time. */
static bool next_leader(struct mcctl *c, const char *previous, char ret[MC_ADDR_MAX])
{
	uint64_t deadline = mc_deadline_ms((int64_t)c->conf->timeout);
	int port;

	while (mc_now_ns() < deadline) {
		if (mcs_find_master_http(c->conf->master, c->conf->credential, ret, MC_ADDR_MAX, &port, LOOK_MS) == 0 &&
		    strcmp(ret, previous) != 0)
			return true;
		mc_sleep_ns(PAUSE_NS);
	}
	return false;
}

int mcctl_failover(struct mcctl *c)
{
	const char *previous = "";
	char now[MC_ADDR_MAX];
	enum mcctl_status status;
	json_t *j;

	status = mcctl_http_json(c, "/api/v1/failover", NULL, "the master goes on leading", &j);
	if (status != MCCTL_OK)
		return (int)status;
	json_unpack(j, "{s?s}", "previous_leader", &previous);
	if (!next_leader(c, previous, now))
		status = mcctl_complain(MCCTL_FAILED, "%s stepped down, but no other of %s leads yet", previous,
					c->conf->master);
	else if (c->conf->json)
		status = mcctl_json_print(json_pack("{s:s, s:s}", "previous_leader", previous, "leader", now));
	else
		printf("%s leads instead of %s\n", now, previous);
	json_decref(j);
	return (int)status;
}
