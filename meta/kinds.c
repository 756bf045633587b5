/* SPDX-License-Identifier: Apache-2.0
 * kinds.c - the list of kinds of metadata servers, by which every connection string is read. */
#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/err.h"
#include "meta/leader.h"
#include "meta/meta_i.h"

#define KINDS_MAX 8

/* Only mcd_kind_add() changes it; NULL ends it. */
static const struct mcd_ops *kinds[KINDS_MAX + 1] = {
	&mcd_http, &mcd_https, &mcd_etcd, &mcd_redis, &mcd_rediss,
};

void mcd_kind_add(const struct mcd_ops *ops)
{
	for (unsigned i = 0; i < KINDS_MAX; i++) {
		if (kinds[i] && kinds[i] != ops)
			continue;
		kinds[i] = ops;
		return;
	}
}

static const struct mcd_ops *kind_named(const char *scheme, size_t len)
{
	for (unsigned i = 0; kinds[i]; i++)
		if (strlen(kinds[i]->scheme) == len && !memcmp(kinds[i]->scheme, scheme, len))
			return kinds[i];
	return NULL;
}

const struct mcd_ops *mcd_kind_of(const char *conn, const char **ret_where)
{
	const char *sep = strstr(conn, "://");
	const struct mcd_ops *ops;

	*ret_where = conn;
	/* At upstream a list of addresses without a scheme means etcd; the addresses may be URLs. */
	if (!sep || strcspn(conn, ",") < (size_t)(sep - conn))
		return strchr(conn, ':') ? &mcd_etcd : NULL;
	ops = kind_named(conn, (size_t)(sep - conn));
	if (ops && !ops->wants_url)
		*ret_where = sep + 3;
	return ops;
}

const struct mcd_ops *mcd_kind_leases(const char *scheme)
{
	const struct mcd_ops *ops = kind_named(scheme, strlen(scheme));

	return ops && ops->has_leases ? ops : NULL;
}

const char *mcd_kind_leases_names(char *buf, size_t len)
{
	size_t at = 0;

	*buf = 0;
	for (unsigned i = 0; kinds[i] && at < len; i++)
		if (kinds[i]->has_leases)
			at += (size_t)snprintf(buf + at, len - at, "%s%s", at ? " or " : "", kinds[i]->scheme);
	return buf;
}

bool mcd_leader_is_store(const char *addrs)
{
	const char *sep = strstr(addrs, "://");
	const struct mcd_ops *ops = sep ? kind_named(addrs, (size_t)(sep - addrs)) : NULL;

	return ops && ops->has_leases;
}

int mcd_backend_open(const char *conn, const struct mcd_open *o, struct mcd_backend **ret)
{
	const char *where;
	const struct mcd_ops *ops = mcd_kind_of(conn, &where);

	if (!ops)
		return mc_fail(-EINVAL, "unknown metadata server: %.100s; known are P2PHANDSHAKE, "
			       "http://HOST:PORT/metadata, etcd://HOST:PORT, redis://HOST:PORT and rediss://HOST:PORT",
			       *conn ? conn : "(empty)");
	return ops->open(where, o, ret);
}
