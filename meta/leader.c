/* SPDX-License-Identifier: Apache-2.0
 * leader.c - the address of the master that leads. */
#include <config.h>

#include "meta/leader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "meta/meta.h"
#include "meta/meta_i.h"
#include "meta/seat.h"

#define CLUSTER "mooncake_cluster"

struct mcd_leader {
	struct mcd_client *meta;
	char cluster[MCD_SEAT_CLUSTER_MAX + 1];
	char key[MCD_KEY_MAX];
};

int mcd_leader_open(const char *conn, struct mcd_leader **ret)
{
	const char *cluster = mc_env_str("MC_STORE_CLUSTER_ID");
	struct mcd_leader *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return mc_fail(-ENOMEM, "no memory for the address of a master");
	cluster = cluster && *cluster ? cluster : CLUSTER;
	if (strlen(cluster) > MCD_SEAT_CLUSTER_MAX)
		r = mc_fail(-EINVAL, "MC_STORE_CLUSTER_ID is longer than %u bytes", MCD_SEAT_CLUSTER_MAX);
	else
		r = mcd_open(conn, &l->meta);
	if (r < 0) {
		mcd_leader_close(l);
		return r;
	}
	strcpy(l->cluster, cluster);
	mcd_seat_leader_key(cluster, l->key);
	*ret = l;
	return 0;
}

void mcd_leader_close(struct mcd_leader *l)
{
	if (!l)
		return;
	mcd_close(l->meta);
	free(l);
}

int mcd_leader_find(struct mcd_leader *l, char *ret, size_t size, int *ret_http_port, uint64_t deadline)
{
	char name[MCD_SEAT_NAME_MAX], addr[MCD_SEAT_NAME_MAX];
	auto_free char *text = NULL;
	int r = mcd_get(l->meta, l->key, &text, deadline), port = 0;

	if (r == -ENOENT)
		return mc_fail(r, "no master leads cluster %s", l->cluster);
	if (r == 0)
		r = mcd_seat_leader_decode(text, name, &port);
	if (r < 0)
		return r == -EINVAL ? mc_fail(r, "key %s has an unknown content", l->key) : r;
	mcd_seat_address(name, addr);
	if (strlen(addr) >= size)
		return mc_fail(-EINVAL, "the leader's address is too long: %.100s", addr);
	strcpy(ret, addr);
	*ret_http_port = port;
	return 0;
}
