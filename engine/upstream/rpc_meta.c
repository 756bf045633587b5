/* SPDX-License-Identifier: Apache-2.0
 * rpc_meta.c - keys at the metadata server, and the records with the addresses of handshake daemons. */
#include <config.h>

#include "engine/upstream/rpc_meta.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/sys/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/env.h"
#include "engine/upstream/handshake.h"

#define LOG "metadata"
/* Time limit of the check whether a daemon is alive. */
#define ALIVE_MS 2000

static int key_make(const char *kind, const char *name, char ret[MCD_KEY_MAX])
{
	const char *cluster = mc_env_str("MC_METADATA_CLUSTER_ID");
	int n;

	if (!*name)
		return mc_fail(-EINVAL, "the segment name is empty");
	n = snprintf(ret, MCD_KEY_MAX, "mooncake/%s%s%s%s", cluster ? cluster : "",
		     cluster ? "/" : "", kind, name);
	return n < MCD_KEY_MAX ? 0 : mc_fail(-EINVAL, "the segment name is too long: %zu bytes", strlen(name));
}

int mce_key_segment(const char *name, char ret[MCD_KEY_MAX])
{
	int n;

	if (!strchr(name, '/'))
		return key_make("ram/", name, ret);
	n = snprintf(ret, MCD_KEY_MAX, "mooncake/%s", name);
	return n < MCD_KEY_MAX ? 0 : mc_fail(-EINVAL, "the segment name is too long: %zu bytes", strlen(name));
}

int mce_key_rpc(const char *name, char ret[MCD_KEY_MAX])
{
	return key_make("rpc_meta/", name, ret);
}

int mce_rpc_meta_decode(const char *text, size_t len, struct mce_rpc_meta *ret)
{
	json_t *o = json_loadb(text, len, 0, NULL), *port;
	const char *host = json_string_value(json_object_get(o, "ip_or_host_name"));
	int r = 0;

	port = json_object_get(o, "rpc_port");
	if (!host || !*host || strlen(host) >= sizeof(ret->host) || !json_is_integer(port) ||
	    json_integer_value(port) < 1 || json_integer_value(port) > 65535) {
		r = mc_fail(-EINVAL, "invalid address record of a node: %.*s", len < 100 ? (int)len : 100, text);
	} else {
		strcpy(ret->host, host);
		ret->port = (int)json_integer_value(port);
	}
	json_decref(o);
	return r;
}

int mce_rpc_meta_get(struct mcd_client *m, const char *name, struct mce_rpc_meta *ret, uint64_t deadline)
{
	char key[MCD_KEY_MAX];
	auto_free char *text = NULL;
	int r;

	r = mce_key_rpc(name, key);
	if (r == 0)
		r = mcd_get(m, key, &text, deadline);
	return r < 0 ? r : mce_rpc_meta_decode(text, strlen(text), ret);
}

/* True if the node that published the key certainly no longer runs there.  A node that is stopped or
 * cannot be reached counts as alive, and so does a node of upstream's whose answer has no name. */
static bool rpc_node_is_dead(const char *key, const struct mce_rpc_meta *there, uint64_t deadline)
{
	uint64_t latest = mc_deadline_ms(ALIVE_MS);
	auto_free char *reply = NULL;
	char key_there[MCD_KEY_MAX];
	const char *name;
	json_t *o;
	bool dead;
	int r;

	r = mce_handshake_call(there->host, there->port, MCE_HANDSHAKE_METADATA, "{}\n",
			       latest < deadline ? latest : deadline, &reply);
	if (r < 0)
		return r == -ECONNREFUSED;
	o = json_loads(reply, 0, NULL);
	name = json_string_value(json_object_get(o, "name"));
	dead = name && mce_key_rpc(name, key_there) == 0 && strcmp(key_there, key);
	json_decref(o);
	return dead;
}

/* Another node has published the name: 0 if our record may replace its record, because that node is dead. */
static int rpc_claim(const char *key, const char *text, const char *theirs, uint64_t deadline)
{
	struct mce_rpc_meta old, own;

	if (mce_rpc_meta_decode(theirs, strlen(theirs), &old) < 0)
		return 0;
	/* The earlier node had our address, so it has ended. */
	if (mce_rpc_meta_decode(text, strlen(text), &own) == 0 && old.port == own.port &&
	    !strcmp(old.host, own.host))
		return 0;
	if (!rpc_node_is_dead(key, &old, deadline))
		return mc_fail(-EEXIST, "%s is the name of the node at %s:%d", key, old.host, old.port);
	mc_warn(LOG, "taking over the name of a dead node: key=%s host=%s port=%d", key, old.host,
		old.port);
	return 0;
}

int mce_rpc_meta_publish(struct mcd_client *m, const char *name, const struct mce_rpc_meta *rpc,
			 uint64_t deadline)
{
	char key[MCD_KEY_MAX];
	auto_free char *text = NULL;
	json_t *o;
	int r;

	r = mce_key_rpc(name, key);
	if (r < 0)
		return r;
	o = json_pack("{s:s, s:i}", "ip_or_host_name", rpc->host, "rpc_port", rpc->port);
	text = o ? json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	json_decref(o);
	if (!text)
		return mc_fail(-EINVAL, "invalid host name: %s", rpc->host);
	return mcd_publish_exclusive(m, key, text, rpc_claim, deadline);
}

int mce_rpc_meta_unpublish(struct mcd_client *m, const char *name, uint64_t deadline)
{
	char key[MCD_KEY_MAX];
	int r;

	r = mce_key_rpc(name, key);
	return r < 0 ? r : mcd_unpublish(m, key, deadline);
}
