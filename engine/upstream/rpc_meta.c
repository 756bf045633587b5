/* SPDX-License-Identifier: Apache-2.0
 * rpc_meta.c - names of keys, and the records that say where a node's handshake daemon is. */
#include <config.h>

#include "engine/upstream/rpc_meta.h"

#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "common/env.h"
#include "engine/upstream/handshake.h"

#define LOG "metadata"
/* A daemon that lives answers at once. */
#define ALIVE_MS 2000

static int key_of(const char *kind, const char *name, char ret[MCD_KEY_MAX])
{
	const char *cluster = mc_env_str("MC_METADATA_CLUSTER_ID");
	int n;

	if (!*name)
		return mc_fail(-EINVAL, "a segment without a name");
	n = snprintf(ret, MCD_KEY_MAX, "mooncake/%s%s%s%s", cluster ? cluster : "",
		     cluster ? "/" : "", kind, name);
	return n < MCD_KEY_MAX ? 0 : mc_fail(-EINVAL, "segment name of %zu bytes", strlen(name));
}

int mce_key_segment(const char *name, char ret[MCD_KEY_MAX])
{
	int n;

	if (!strchr(name, '/'))
		return key_of("ram/", name, ret);
	n = snprintf(ret, MCD_KEY_MAX, "mooncake/%s", name);
	return n < MCD_KEY_MAX ? 0 : mc_fail(-EINVAL, "segment name of %zu bytes", strlen(name));
}

int mce_key_rpc(const char *name, char ret[MCD_KEY_MAX])
{
	return key_of("rpc_meta/", name, ret);
}

int mce_rpc_meta_decode(const char *text, size_t len, struct mce_rpc_meta *ret)
{
	json_t *o = json_loadb(text, len, 0, NULL), *port;
	const char *host = json_string_value(json_object_get(o, "ip_or_host_name"));
	int r = 0;

	port = json_object_get(o, "rpc_port");
	if (!host || !*host || strlen(host) >= sizeof(ret->host) || !json_is_integer(port) ||
	    json_integer_value(port) < 1 || json_integer_value(port) > 65535) {
		r = mc_fail(-EINVAL, "not a node's address: %.*s", len < 100 ? (int)len : 100, text);
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

/* Is the node that had the key gone from there?  That must be sure: one that is stopped, or that we cannot reach,
 * lives.  Upstream's answer may leave out which name it has. */
static bool is_gone(const char *key, const struct mce_rpc_meta *there, uint64_t deadline)
{
	uint64_t latest = mc_deadline_ms(ALIVE_MS);
	auto_free char *reply = NULL;
	char answers[MCD_KEY_MAX];
	const char *name;
	json_t *o;
	bool gone;
	int r;

	r = mce_handshake_call(there->host, there->port, MCE_HANDSHAKE_METADATA, "{}\n",
			       latest < deadline ? latest : deadline, &reply);
	if (r < 0)
		return r == -ECONNREFUSED;
	o = json_loads(reply, 0, NULL);
	name = json_string_value(json_object_get(o, "name"));
	gone = name && mce_key_rpc(name, answers) == 0 && strcmp(answers, key);
	json_decref(o);
	return gone;
}

/* The name is another node's.  When that is dead its record goes, and ours takes its place. */
static int claim(const char *key, const char *text, const char *theirs, uint64_t deadline)
{
	struct mce_rpc_meta old, own;

	if (mce_rpc_meta_decode(theirs, strlen(theirs), &old) < 0)
		return 0;
	/* Who had our address before us had the name before us. */
	if (mce_rpc_meta_decode(text, strlen(text), &own) == 0 && old.port == own.port &&
	    !strcmp(old.host, own.host))
		return 0;
	if (!is_gone(key, &old, deadline))
		return mc_fail(-EEXIST, "%s is the name of the node at %s:%d", key, old.host, old.port);
	mc_warn(LOG, "taking over the name of a node that is gone key=%s host=%s port=%d", key, old.host,
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
		return mc_fail(-EINVAL, "not a host name: %s", rpc->host);
	return mcd_publish_alone(m, key, text, claim, deadline);
}

int mce_rpc_meta_unpublish(struct mcd_client *m, const char *name, uint64_t deadline)
{
	char key[MCD_KEY_MAX];
	int r;

	r = mce_key_rpc(name, key);
	return r < 0 ? r : mcd_unpublish(m, key, deadline);
}
