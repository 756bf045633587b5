/* SPDX-License-Identifier: Apache-2.0
 * segdesc_encode.c - encoding of a segment descriptor as upstream's JSON.
 *
 * As in upstream's texts, members are sorted and there is no white space, so that equal descriptors have equal
 * texts, whichever program wrote them. */
#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/err.h"
#include "common/sys/clock.h"
#include "engine/upstream/segdesc.h"

static const char *text_of(const char *s)
{
	return s ? s : "";
}

/* json_object_set_new() consumes the value also on failure, and fails for NULL. */
static int member_set(json_t *o, const char *name, json_t *value)
{
	return json_object_set_new(o, name, value) < 0 ? -ENOMEM : 0;
}

static int encode_number(json_t *o, const char *name, uint64_t n)
{
	if (n > INT64_MAX)
		return mc_fail(-EINVAL, "descriptor: %s is too large: 0x%" PRIx64, name, n);
	return member_set(o, name, json_integer((json_int_t)n));
}

/* Strings come from callers and must be UTF-8 to be JSON. */
static int encode_string(json_t *o, const char *name, const char *s)
{
	json_t *value = json_string(text_of(s));

	if (!value)
		return mc_fail(-EINVAL, "descriptor: %s is not UTF-8", name);
	return member_set(o, name, value);
}

static int encode_keys(json_t *o, const char *name, const uint32_t *keys, size_t n)
{
	json_t *array = json_array();

	for (size_t i = 0; array && i < n; i++)
		if (json_array_append_new(array, json_integer(keys[i])) < 0) {
			json_decref(array);
			return -ENOMEM;
		}
	return member_set(o, name, array);
}

static void timestamp_now(char *buf, size_t len)
{
	uint64_t now = mc_wall_ns();
	time_t seconds = (time_t)(now / MC_NS_PER_SEC);
	struct tm tm;
	size_t n;

	localtime_r(&seconds, &tm);
	n = strftime(buf, len, "%Y-%m-%d %H:%M:%S", &tm);
	snprintf(buf + n, len - n, ".%06u", (unsigned)(now % MC_NS_PER_SEC / 1000));
}

static int encode_protocol(json_t *o, const struct mce_segdesc *d)
{
	const char *p = text_of(d->protocol);
	json_t *array;

	if (!*p)
		return mc_fail(-EINVAL, "descriptor of %s: no protocol", d->name);
	if (!strchr(p, ','))
		return encode_string(o, "protocol", p);
	array = json_array();
	for (; array && *p; p += strcspn(p, ","), p += *p == ',')
		if (json_array_append_new(array, json_stringn(p, strcspn(p, ","))) < 0) {
			json_decref(array);
			return mc_fail(-EINVAL, "descriptor of %s: invalid protocol", d->name);
		}
	return member_set(o, "protocol", array);
}

static int encode_buffer(json_t *o, const struct mce_segdesc *d, const struct mce_segdesc_buffer *b)
{
	char hex[24];
	int r;

	if (b->length == 0 || b->addr + (b->length - 1) < b->addr)
		return mc_fail(-EINVAL, "descriptor of %s: invalid range: 0x%" PRIx64 "+0x%" PRIx64,
			       d->name, b->addr, b->length);
	if (!b->rkeys != !b->lkeys || (b->rkeys && !d->ndevices))
		return mc_fail(-EINVAL, "descriptor of %s: keys without devices", d->name);
	r = encode_string(o, "name", b->name && *b->name ? b->name : d->name);
	if (r == 0)
		r = encode_number(o, "addr", b->addr);
	if (r == 0)
		r = encode_number(o, "length", b->length);
	if (r == 0 && b->rkeys)
		r = encode_keys(o, "rkey", b->rkeys, d->ndevices);
	if (r == 0 && b->lkeys)
		r = encode_keys(o, "lkey", b->lkeys, d->ndevices);
	if (r == 0 && b->rkey) {
		snprintf(hex, sizeof(hex), "0x%016" PRIx64, b->rkey);
		r = encode_string(o, "mc_rkey", hex);
	}
	return r;
}

static int encode_buffers(json_t *o, const struct mce_segdesc *d)
{
	json_t *array = json_array(), *item;
	int r = member_set(o, "buffers", array);

	if (d->nbuffers > MCE_SEGDESC_BUFFERS_MAX)
		return mc_fail(-EMSGSIZE, "descriptor of %s: too many buffers: %zu", d->name, d->nbuffers);
	for (size_t i = 0; r == 0 && i < d->nbuffers; i++) {
		item = json_object();
		if (json_array_append_new(array, item) < 0)
			return -ENOMEM;
		r = encode_buffer(item, d, &d->buffers[i]);
	}
	return r;
}

static int encode_devices(json_t *o, const struct mce_segdesc *d)
{
	json_t *array = json_array(), *item;
	int r = member_set(o, "devices", array);

	for (size_t i = 0; r == 0 && i < d->ndevices; i++) {
		item = json_object();
		if (json_array_append_new(array, item) < 0)
			return -ENOMEM;
		r = encode_string(item, "name", d->devices[i].name);
		if (r == 0)
			r = encode_string(item, "gid", d->devices[i].gid);
		if (r == 0)
			r = encode_number(item, "lid", d->devices[i].lid);
	}
	return r;
}

static int encode_matrix(json_t *o, const struct mce_segdesc *d)
{
	json_t *matrix = json_loads(d->priority_matrix, 0, NULL);

	if (!matrix)
		return mc_fail(-EINVAL, "descriptor of %s: the priority matrix is not JSON", d->name);
	return member_set(o, "priority_matrix", matrix);
}

static int encode_tcp(json_t *o, const struct mce_segdesc *d)
{
	int r = 0;

	if (*text_of(d->tcp_data_host))
		r = encode_string(o, "tcp_data_host", d->tcp_data_host);
	if (r == 0 && d->tcp_data_port)
		r = encode_number(o, "tcp_data_port", (uint64_t)d->tcp_data_port);
	if (r == 0 && d->tcp_proto_version)
		r = encode_number(o, "tcp_proto_version", d->tcp_proto_version);
	return r;
}

static int encode_all(json_t *o, const struct mce_segdesc *d)
{
	const char *when = text_of(d->timestamp);
	char now[64];
	int r;

	if (!*text_of(d->name))
		return mc_fail(-EINVAL, "descriptor without a name");
	if (!*when) {
		timestamp_now(now, sizeof(now));
		when = now;
	}
	r = encode_string(o, "name", d->name);
	if (r == 0)
		r = encode_protocol(o, d);
	if (r == 0)
		r = encode_string(o, "timestamp", when);
	if (r == 0)
		r = encode_string(o, "rdma_server_name", d->rdma_server_name);
	if (r == 0)
		r = encode_tcp(o, d);
	if (r == 0)
		r = encode_buffers(o, d);
	if (r == 0 && d->ndevices)
		r = encode_devices(o, d);
	if (r == 0 && *text_of(d->priority_matrix))
		r = encode_matrix(o, d);
	if (r == 0 && *text_of(d->endpoint))
		r = encode_string(o, "mc_endpoint", d->endpoint);
	return r;
}

/* The JSON text with a final newline, as upstream writes it. */
static int encode_text(const json_t *o, const char *name, char **ret_text)
{
	size_t len = json_dumpb(o, NULL, 0, JSON_COMPACT | JSON_SORT_KEYS);
	char *text;

	if (len > MCE_SEGDESC_TEXT_MAX)
		return mc_fail(-EMSGSIZE, "descriptor of %s: too long: %zu bytes", name, len);
	text = len ? malloc(len + 2) : NULL;
	if (!text || json_dumpb(o, text, len, JSON_COMPACT | JSON_SORT_KEYS) != len) {
		free(text);
		return -ENOMEM;
	}
	text[len] = '\n';
	text[len + 1] = '\0';
	*ret_text = text;
	return 0;
}

int mce_segdesc_encode(const struct mce_segdesc *d, char **ret_text)
{
	json_t *o = json_object();
	int r = o ? encode_all(o, d) : -ENOMEM;

	if (r == 0)
		r = encode_text(o, d->name, ret_text);
	json_decref(o);
	return r == -ENOMEM ? mc_fail(r, "no memory for the descriptor of %s", d->name) : r;
}
