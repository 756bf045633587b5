/* SPDX-License-Identifier: Apache-2.0
 * segdesc_decode.c - decoding of a segment descriptor from JSON, of any release of upstream and from
 * untrusted peers. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/net/net.h"
#include "engine/upstream/segdesc.h"

static int decode_fail(const char *what, const char *member)
{
	return mc_fail(-EINVAL, "segment descriptor: %s: %s", member, what);
}

/* Copy a member to *ret; "" for an absent or null member, unless @needed. */
static int decode_string(const json_t *o, const char *member, bool needed, char **ret)
{
	const json_t *v = json_object_get(o, member);
	const char *s = json_string_value(v);

	if (!v || json_is_null(v))
		s = needed ? NULL : "";
	if (!s || (needed && !*s))
		return decode_fail(v ? "is not a string" : "is missing", member);
	if (strlen(s) >= MCE_SEGDESC_NAME_MAX)
		return decode_fail("is too long", member);
	*ret = strdup(s);
	return *ret ? 0 : -ENOMEM;
}

static int decode_number(const json_t *o, const char *member, uint64_t max, uint64_t absent, uint64_t *ret)
{
	const json_t *v = json_object_get(o, member);
	json_int_t n;

	if (!v) {
		*ret = absent;
		return 0;
	}
	n = json_integer_value(v);
	if (!json_is_integer(v) || n < 0 || (uint64_t)n > max)
		return decode_fail("is not a number in its range", member);
	*ret = (uint64_t)n;
	return 0;
}

/* A string, or an array of strings (builds of upstream's with several protocols). */
static int decode_protocol(const json_t *o, struct mce_segdesc *d)
{
	const json_t *v = json_object_get(o, "protocol"), *item;
	size_t i, len = 1;

	if (!json_is_array(v)) {
		if (json_string_value(v) && strchr(json_string_value(v), ','))
			return decode_fail("is not a name", "protocol");
		return decode_string(o, "protocol", true, &d->protocol);
	}
	json_array_foreach(v, i, item) {
		if (!json_string_length(item) || strchr(json_string_value(item), ','))
			return decode_fail("is not an array of names", "protocol");
		len += json_string_length(item) + 1;
		if (len > MCE_SEGDESC_NAME_MAX)
			return decode_fail("is too long", "protocol");
	}
	if (len == 1)
		return decode_fail("is empty", "protocol");
	d->protocol = calloc(1, len);
	if (!d->protocol)
		return -ENOMEM;
	json_array_foreach(v, i, item) {
		if (i)
			strcat(d->protocol, ",");
		strcat(d->protocol, json_string_value(item));
	}
	return 0;
}

static int decode_devices(const json_t *o, struct mce_segdesc *d)
{
	const json_t *list = json_object_get(o, "devices"), *item;
	uint64_t lid;
	size_t i;
	int r = 0;

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list) || json_array_size(list) > MCE_SEGDESC_DEVICES_MAX)
		return decode_fail("is not an array of at most 256 devices", "devices");
	d->devices = calloc(json_array_size(list) + 1, sizeof(*d->devices));
	if (!d->devices)
		return -ENOMEM;
	json_array_foreach(list, i, item) {
		d->ndevices = i + 1;
		r = decode_string(item, "name", true, &d->devices[i].name);
		if (r == 0)
			r = decode_string(item, "gid", false, &d->devices[i].gid);
		if (r == 0)
			r = decode_number(item, "lid", UINT16_MAX, 0, &lid);
		if (r < 0)
			return r;
		d->devices[i].lid = (unsigned)lid;
	}
	return 0;
}

static int decode_keys(const json_t *o, const char *member, size_t n, uint32_t **ret)
{
	const json_t *list = json_object_get(o, member), *item;
	json_int_t key;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) != n)
		return decode_fail("must have one key for each device", member);
	*ret = calloc(n + 1, sizeof(**ret));
	if (!*ret)
		return -ENOMEM;
	json_array_foreach(list, i, item) {
		key = json_integer_value(item);
		if (!json_is_integer(item) || key < 0 || key > UINT32_MAX)
			return decode_fail("is not a key", member);
		(*ret)[i] = (uint32_t)key;
	}
	return 0;
}

static int decode_rkey(const json_t *o, struct mce_segdesc_buffer *b)
{
	const json_t *v = json_object_get(o, "mc_rkey");
	const char *s = json_string_value(v);
	char *end;

	if (!v)
		return 0;
	if (!s || strncmp(s, "0x", 2) || strlen(s) > 18 || strspn(s + 2, "0123456789abcdef") == 0)
		return decode_fail("is not a key in hexadecimal", "mc_rkey");
	b->rkey = strtoull(s + 2, &end, 16);
	return *end ? decode_fail("is not a key in hexadecimal", "mc_rkey") : 0;
}

/* @keys: a buffer must have RDMA keys. */
static int decode_buffer(const json_t *o, const struct mce_segdesc *d, bool keys,
			 struct mce_segdesc_buffer *b)
{
	int r;

	if (!json_is_object(o))
		return decode_fail("has an element that is not an object", "buffers");
	r = decode_string(o, "name", true, &b->name);
	if (r == 0)
		r = decode_number(o, "addr", INT64_MAX, 0, &b->addr);
	if (r == 0)
		r = decode_number(o, "length", INT64_MAX, 0, &b->length);
	if (r < 0)
		return r;
	if (b->addr == 0 || b->length == 0 || b->addr + (b->length - 1) < b->addr)
		return decode_fail("has an empty range, or one that wraps around", "buffers");
	if (keys || json_object_get(o, "rkey"))
		r = decode_keys(o, "rkey", d->ndevices, &b->rkeys);
	if (r == 0 && b->rkeys)
		r = decode_keys(o, "lkey", d->ndevices, &b->lkeys);
	return r < 0 ? r : decode_rkey(o, b);
}

static int buffer_compare(const void *a, const void *b)
{
	const struct mce_segdesc_buffer *x = a, *y = b;

	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static bool rdma_like(const char *protocol)
{
	return !strcmp(protocol, "rdma") || !strcmp(protocol, "barex") ||
	       !strcmp(protocol, "efa") || !strcmp(protocol, "cxi");
}

static bool has_memory(const struct mce_segdesc *d)
{
	static const char *const names[] = { "tcp", "rdma", "barex", "efa", "cxi", "flagcx" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (mce_segdesc_speaks(d, names[i]))
			return true;
	return false;
}

static int decode_buffers(const json_t *o, struct mce_segdesc *d)
{
	const json_t *list = json_object_get(o, "buffers"), *item;
	bool keys = rdma_like(d->protocol);
	size_t i;
	int r;

	d->opaque = !has_memory(d);
	if (d->opaque || !list || json_is_null(list))
		return 0;
	if (!json_is_array(list) || json_array_size(list) > MCE_SEGDESC_BUFFERS_MAX)
		return decode_fail("is not an array of at most 1048576 buffers", "buffers");
	d->buffers = calloc(json_array_size(list) + 1, sizeof(*d->buffers));
	if (!d->buffers)
		return -ENOMEM;
	json_array_foreach(list, i, item) {
		d->nbuffers = i + 1;
		r = decode_buffer(item, d, keys, &d->buffers[i]);
		if (r < 0)
			return r;
	}
	d->first = d->nbuffers ? d->buffers[0].addr : 0;
	qsort(d->buffers, d->nbuffers, sizeof(*d->buffers), buffer_compare);
	return 0;
}

static int decode_matrix(const json_t *o, struct mce_segdesc *d)
{
	const json_t *v = json_object_get(o, "priority_matrix");

	if (!v || json_is_null(v)) {
		d->priority_matrix = strdup("");
		return d->priority_matrix ? 0 : -ENOMEM;
	}
	if (!json_is_object(v))
		return decode_fail("is not an object", "priority_matrix");
	d->priority_matrix = json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS);
	return d->priority_matrix ? 0 : -ENOMEM;
}

static int decode_endpoint(const json_t *o, struct mce_segdesc *d)
{
	char host[MC_ADDR_MAX];
	int port, r;

	r = decode_string(o, "mc_endpoint", false, &d->endpoint);
	if (r < 0 || !*d->endpoint)
		return r;
	if (strlen(d->endpoint) >= MC_ADDR_MAX ||
	    mc_addr_split(d->endpoint, host, sizeof(host), -1, &port) < 0 || !*host || !port)
		return decode_fail("is not an address", "mc_endpoint");
	return 0;
}

static int decode_all(const json_t *o, struct mce_segdesc *d)
{
	uint64_t port = 0, version = 0;
	int r;

	if (!json_is_object(o))
		return decode_fail("is not an object", "the text");
	r = decode_string(o, "name", true, &d->name);
	if (r == 0)
		r = decode_protocol(o, d);
	if (r == 0)
		r = decode_string(o, "timestamp", false, &d->timestamp);
	if (r == 0)
		r = decode_string(o, "rdma_server_name", false, &d->rdma_server_name);
	if (r == 0)
		r = decode_string(o, "tcp_data_host", false, &d->tcp_data_host);
	if (r == 0)
		r = decode_number(o, "tcp_data_port", UINT16_MAX, 0, &port);
	if (r == 0)
		r = decode_number(o, "tcp_proto_version", INT32_MAX, 0, &version);
	if (r == 0)
		r = decode_devices(o, d);
	if (r == 0)
		r = decode_buffers(o, d);
	if (r == 0)
		r = decode_matrix(o, d);
	if (r == 0)
		r = decode_endpoint(o, d);
	d->tcp_data_port = (int)port;
	d->tcp_proto_version = (unsigned)version;
	return r;
}

int mce_segdesc_decode(const char *text, size_t len, struct mce_segdesc **ret)
{
	struct mce_segdesc *d = NULL;
	json_error_t err;
	json_t *o;
	int r;

	if (len > MCE_SEGDESC_TEXT_MAX)
		return mc_fail(-EINVAL, "segment descriptor: %zu bytes are too long", len);
	o = json_loadb(text, len, 0, &err);
	if (!o)
		return mc_fail(-EINVAL, "segment descriptor: %s at byte %d", err.text, err.position);
	d = calloc(1, sizeof(*d));
	r = d ? decode_all(o, d) : -ENOMEM;
	json_decref(o);
	if (r == 0) {
		*ret = d;
		return 0;
	}
	mce_segdesc_free(d);
	return r == -ENOMEM ? mc_fail(r, "no memory for a segment descriptor") : r;
}
