/* SPDX-License-Identifier: Apache-2.0
 * record.c - a text in etcd that does not expire, and is only replaced by a writer that has seen it. */
#include <config.h>

#include "meta/record.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "meta/meta_i.h"
#include "meta/seat_i.h"

#define SCHEME "etcd://"
#define TTL_SEC 30	/* duration of leases; a record has none */

struct mcd_record {
	struct mcd_backend *backend;
	char key[MCD_KEY_MAX];
};

int mcd_record_open(const char *where, const char *credentials, const char *key, struct mcd_record **ret)
{
	struct mcd_record *rec;
	int r;

	if (!strncmp(where, SCHEME, strlen(SCHEME)))
		where += strlen(SCHEME);
	if (strlen(key) >= MCD_KEY_MAX)
		return mc_fail(-EINVAL, "etcd: the key is too long: %.100s", key);
	rec = calloc(1, sizeof(*rec));
	if (!rec)
		return mc_fail(-ENOMEM, "no memory for a metadata client");
	strcpy(rec->key, key);
	r = mcd_etcd.open(where, &(const struct mcd_open){ TTL_SEC, credentials }, &rec->backend);
	if (r < 0)
		free(rec);
	else
		*ret = rec;
	return r;
}

void mcd_record_close(struct mcd_record *rec)
{
	if (!rec)
		return;
	rec->backend->ops->close(rec->backend);
	free(rec);
}

int mcd_record_get(struct mcd_record *rec, const atomic_bool *cancel, uint64_t deadline, char **ret_text)
{
	const struct mcd_wait w = { deadline, cancel };

	return rec->backend->ops->get(rec->backend, rec->key, &w, ret_text);
}

int mcd_etcd_swap_decode(const char *text, size_t len, const char *text64)
{
	json_t *o = json_loadb(text, len, 0, NULL), *range;
	const char *is;
	int r = -EAGAIN;

	range = json_object_get(json_array_get(json_object_get(o, "responses"), 0), "response_range");
	is = json_string_value(json_object_get(json_array_get(json_object_get(range, "kvs"), 0), "value"));
	if (!json_is_object(json_object_get(o, "header")))
		r = mc_fail(-EINVAL, "etcd: invalid answer to txn");
	/* A repeated request has done it the first time. */
	else if (json_is_true(json_object_get(o, "succeeded")) || (is && !strcmp(is, text64)))
		r = 0;
	json_decref(o);
	return r;
}

int mcd_record_swap(struct mcd_record *rec, const char *seen, const char *text, uint64_t deadline)
{
	auto_free char *key64 = mcd_base64_encode(rec->key, strlen(rec->key));
	auto_free char *text64 = mcd_base64_encode(text, strlen(text));
	auto_free char *seen64 = seen ? mcd_base64_encode(seen, strlen(seen)) : NULL;
	const struct mcd_wait w = { deadline, NULL };
	struct mc_web_call c = { .text = NULL };
	json_t *o = NULL;
	int r;

	/* mcd_etcd_call() reports that there is no memory. */
	if (key64 && text64 && (!seen || seen64))
		o = json_pack("{s:[{s:s, s:s, s:s, s:s}], s:[{s:{s:s, s:s}}], s:[{s:{s:s}}]}", "compare", "target",
			      seen ? "VALUE" : "VERSION", "result", "EQUAL", "key", key64, seen ? "value" : "version",
			      seen ? seen64 : "0", "success", "requestPut", "key", key64, "value", text64, "failure",
			      "requestRange", "key", key64);
	r = mcd_etcd_call(rec->backend, "/v3/kv/txn", o, &w, &c);
	if (r == 0)
		r = mcd_etcd_swap_decode(c.text ? c.text : "", c.len, text64);
	if (r == -EAGAIN)
		mc_fail(r, "etcd: %s has changed", rec->key);
	free(c.text);
	return r;
}
