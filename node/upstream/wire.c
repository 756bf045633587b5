/* SPDX-License-Identifier: Apache-2.0
 * wire.c - decoding of requests and encoding of answers. */
#include <config.h>

#include "node/upstream/wire.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

#define WIRE_MAGIC 21u
#define WIRE_VERSION 0u
#define TRAIT_OPTIONAL 0x3u
#define TRAIT_TEXT 0x4u
#define TEXT_MAX 4096u
#define TRAIT_WIDTH(t) (1u << ((t) >> 3 & 3))
#define HASH_OF_STRING 0x9dcffa76u	/* hash of an error's text */
#define CHUNK ((size_t)64 << 10)
#define CHUNK_ALIGN ((size_t)16)
#define ANSWER_FIRST 256u

struct reader {
	const uint8_t *at, *end;
	unsigned width;
	bool optional;		/* optional fields are behind the values */
	struct mcn_up_memory *m;
	size_t chunk_left;
	uint8_t *chunk_at;
	int err;		/* the first error; later reads return zeros */
};

static uint32_t read_le32(const uint8_t *b)
{
	uint32_t v;

	memcpy(&v, b, sizeof(v));
	return le32toh(v);
}

int mcn_up_head_unpack(const uint8_t b[MCN_UP_REQUEST_HEAD], struct mcn_up_head *ret)
{
	/* The third byte names the serialization, of which there is one; the fourth is not used. */
	if (b[0] != WIRE_MAGIC || b[1] > WIRE_VERSION || b[2])
		return mc_fail(-MC_EPROTO, "not a request of coro_rpc, it begins with %02x %02x %02x", b[0], b[1],
			       b[2]);
	ret->sequence = read_le32(b + 4);
	ret->function = read_le32(b + 8);
	ret->length = read_le32(b + 12);
	ret->attached = read_le32(b + 16);
	return 0;
}

/* ---- memory ---- */

void mcn_up_memory_done(struct mcn_up_memory *m)
{
	while (m->chunks) {
		void **chunk = m->chunks;

		m->chunks = *chunk;
		free(chunk);
	}
}

/* A range that does not fit into the current chunk gets another one. */
static void *read_alloc(struct reader *r, size_t len)
{
	size_t want;
	void **chunk;
	uint8_t *p;

	len = (len + CHUNK_ALIGN - 1) & ~(CHUNK_ALIGN - 1);
	if (r->err)
		return NULL;
	if (len > r->chunk_left) {
		want = len < CHUNK / 4 ? CHUNK : len;
		chunk = calloc(1, CHUNK_ALIGN + want);
		if (!chunk) {
			r->err = -ENOMEM;
			return NULL;
		}
		*chunk = r->m->chunks;
		r->m->chunks = chunk;
		p = (uint8_t *)chunk + CHUNK_ALIGN;
		if (want > CHUNK)
			return p;
		r->chunk_at = p;
		r->chunk_left = want;
	}
	p = r->chunk_at;
	r->chunk_at += len;
	r->chunk_left -= len;
	return p;
}

/* ---- values ---- */

static const uint8_t *read_bytes(struct reader *r, uint64_t len)
{
	const uint8_t *p = r->at;

	if (!r->err && len > (uint64_t)(r->end - r->at))
		r->err = mc_fail(-MC_EPROTO, "a message that is too short");
	if (r->err)
		return NULL;
	r->at += len;
	return p;
}

static uint64_t read_number(struct reader *r, unsigned size)
{
	const uint8_t *p = read_bytes(r, size);
	uint64_t v = 0;

	if (p)
		memcpy(&v, p, size);
	return le64toh(v);
}

/* Upstream's programs read any byte but 0 as true. */
static bool read_bool(struct reader *r)
{
	return read_number(r, 1) != 0;
}

static struct mcs_key read_string(struct reader *r)
{
	uint64_t len = read_number(r, r->width);
	const uint8_t *p = read_bytes(r, len);

	return (struct mcs_key){ p ? (const void *)p : "", p ? len : 0 };
}

/* A number of elements with at least @least bytes each.  It is checked before memory is allocated. */
static uint64_t read_count(struct reader *r, unsigned least)
{
	uint64_t n = read_number(r, r->width);

	if (!r->err && n > (uint64_t)(r->end - r->at) / least)
		r->err = mc_fail(-MC_EPROTO, "a list that is longer than its message");
	if (!r->err && n > MCN_UP_ELEMENTS_MAX - r->m->elements)
		r->err = mc_fail(-MC_ELIMIT, "a request with more than %u elements", MCN_UP_ELEMENTS_MAX);
	if (r->err)
		return 0;
	r->m->elements += n;
	return n;
}

static struct mcn_up_strings read_strings(struct reader *r)
{
	struct mcn_up_strings s = { .n = read_count(r, r->width) };

	s.v = s.n ? read_alloc(r, s.n * sizeof(*s.v)) : NULL;
	if (!s.v)
		s.n = 0;
	for (uint64_t i = 0; i < s.n; i++)
		s.v[i] = read_string(r);
	return s;
}

static struct mcn_up_config *read_config(struct reader *r)
{
	struct mcn_up_config *c = read_alloc(r, sizeof(*c));

	if (!c)
		return NULL;
	c->replicas = read_number(r, 8);
	c->nof_replicas = read_number(r, 8);
	c->dfs_replicas = read_number(r, 8);
	c->soft_pin = (uint8_t)read_number(r, 1);
	c->has_soft_pin_ms = read_bool(r);
	c->soft_pin_ms = c->has_soft_pin_ms ? read_number(r, 8) : 0;
	c->hard_pin = read_bool(r);
	c->preferred = read_strings(r);
	c->preferred_one = read_string(r);
	c->preferred_nof = read_strings(r);
	c->same_node = read_bool(r);
	c->data_type = (uint8_t)read_number(r, 1);
	c->host_id = read_string(r);
	c->has_groups = read_bool(r);
	if (c->has_groups)
		c->groups = read_strings(r);
	return c;
}

static void read_numbers(struct reader *r, struct mcn_up_arg *ret)
{
	uint64_t n = read_count(r, 8);
	uint64_t *v = n ? read_alloc(r, n * sizeof(*v)) : NULL;

	ret->numbers.v = v;
	ret->numbers.n = v ? n : 0;
	for (uint64_t i = 0; i < ret->numbers.n; i++)
		v[i] = read_number(r, 8);
}

/* @types after its first "[": the depth is that of the table of calls. */
static void read_rows(struct reader *r, const char *types, struct mcn_up_arg *ret)
{
	uint64_t n = read_count(r, r->width);
	struct mcn_up_arg *v = n ? read_alloc(r, n * sizeof(*v)) : NULL;

	ret->rows.v = v;
	ret->rows.n = v ? n : 0;
	for (uint64_t i = 0; i < ret->rows.n && !r->err; i++) {
		if (types[1] == '[')
			read_rows(r, types + 1, &v[i]);
		else if (types[1] == 's')
			v[i].strings = read_strings(r);
		else
			read_numbers(r, &v[i]);
	}
}

/* Returns the next type. */
static const char *read_arg(struct reader *r, const char *types, struct mcn_up_arg *ret)
{
	switch (*types) {
	case 's':
		ret->text = read_string(r);
		break;
	case 'u':
		ret->number = read_number(r, 8);
		break;
	case 'i':
		ret->number = read_number(r, 4);
		break;
	case 'b':
		ret->number = read_bool(r);
		break;
	case 'I':
		ret->id.first = read_number(r, 8);
		ret->id.second = read_number(r, 8);
		break;
	case 'C':
		ret->config = read_config(r);
		break;
	case 'M':
		if (read_number(r, r->width) && !r->err)
			r->err = mc_fail(-MC_EPROTO, "cached results of a query, which this daemon gives to no client");
		break;
	default:
		if (types[1] == 's')
			ret->strings = read_strings(r);
		else if (types[1] == 'u')
			read_numbers(r, ret);
		else
			read_rows(r, types + 1, ret);
		types += strspn(types, "[");
	}
	return types + 1;
}

/* The text is short, so a long one costs no time. */
static void read_text_of_types(struct reader *r)
{
	for (unsigned n = 0; !r->err && read_number(r, 1); n++)
		if (n == TEXT_MAX)
			r->err = mc_fail(-MC_EPROTO, "a text of types that is longer than %u", TEXT_MAX);
}

static void read_begin(struct reader *r, uint32_t hash)
{
	uint32_t found = (uint32_t)read_number(r, 4);
	uint8_t traits = 0;

	if (!r->err && (found & ~1u) != hash)
		r->err = mc_fail(-MC_EPROTO, "arguments of other types (hash %08x, not %08x)", found & ~1u, hash);
	if (found & 1)
		traits = (uint8_t)read_number(r, 1);
	r->optional = traits & TRAIT_OPTIONAL;
	if (r->optional)
		(void)read_number(r, 1u << (traits & TRAIT_OPTIONAL));
	r->width = TRAIT_WIDTH(traits);
	if (traits & TRAIT_TEXT)
		read_text_of_types(r);
}

/* The optional fields: each begins with u8 0 if it has no value. */
static int read_has_values(const struct reader *r)
{
	for (const uint8_t *p = r->at; p < r->end; p++)
		if (*p)
			return 1;
	return 0;
}

int mcn_up_decode(const void *data, size_t len, uint32_t hash, const char *types, struct mcn_up_memory *m,
		  struct mcn_up_arg ret[MCN_UP_ARGS])
{
	struct reader r = { .at = data, .end = (const uint8_t *)data + len, .width = 1, .m = m };

	memset(ret, 0, MCN_UP_ARGS * sizeof(*ret));
	if (!*types)
		return len ? mc_fail(-MC_EPROTO, "arguments of a function that has none") : 0;
	read_begin(&r, hash);
	for (unsigned i = 0; *types && !r.err; i++)
		types = read_arg(&r, types, &ret[i]);
	if (!r.err && r.at != r.end && !r.optional)
		r.err = mc_fail(-MC_EPROTO, "a message with %zu bytes too many", (size_t)(r.end - r.at));
	return r.err ? r.err : read_has_values(&r);
}

/* ---- answers ---- */

static uint8_t *answer_room(struct mcn_up_answer *a, size_t len)
{
	size_t size = a->size;
	uint8_t *more;

	if (len > size - a->len) {
		while (len > size - a->len)
			size = size ? size * 2 : ANSWER_FIRST;
		more = realloc(a->data, size);
		if (!more) {
			a->failed = true;
			return NULL;
		}
		a->data = more;
		a->size = size;
	}
	a->len += len;
	return a->data + a->len - len;
}

static void answer_number(struct mcn_up_answer *a, uint64_t v, unsigned size)
{
	uint8_t *p = answer_room(a, size);

	v = htole64(v);
	if (p)
		memcpy(p, &v, size);
}

void mcn_up_answer_begin(struct mcn_up_answer *a, uint32_t hash, uint64_t most)
{
	unsigned log = most <= UINT8_MAX ? 0 : most <= UINT16_MAX ? 1 : most <= UINT32_MAX ? 2 : 3;

	a->len = 0;
	a->width = 1u << log;
	if (answer_room(a, MCN_UP_ANSWER_HEAD))
		memset(a->data, 0, MCN_UP_ANSWER_HEAD);
	answer_number(a, log ? hash | 1 : hash, 4);
	if (log)
		answer_number(a, log << 3, 1);
}

void mcn_up_put8(struct mcn_up_answer *a, uint8_t v)
{
	answer_number(a, v, 1);
}

void mcn_up_put32(struct mcn_up_answer *a, uint32_t v)
{
	answer_number(a, v, 4);
}

void mcn_up_put64(struct mcn_up_answer *a, uint64_t v)
{
	answer_number(a, v, 8);
}

void mcn_up_put_count(struct mcn_up_answer *a, uint64_t n)
{
	answer_number(a, n, a->width);
}

void mcn_up_put_string(struct mcn_up_answer *a, const void *data, size_t len)
{
	uint8_t *p;

	mcn_up_put_count(a, len);
	p = answer_room(a, len);
	if (p && len)
		memcpy(p, data, len);
}

void mcn_up_put_ok(struct mcn_up_answer *a)
{
	mcn_up_put8(a, 1);
}

void mcn_up_put_error(struct mcn_up_answer *a, int err)
{
	mcn_up_put8(a, 0);
	mcn_up_put32(a, (uint32_t)mc_err_to_upstream(err));
}

void mcn_up_put_result(struct mcn_up_answer *a, int r)
{
	if (r < 0)
		mcn_up_put_error(a, r);
	else
		mcn_up_put_ok(a);
}

void mcn_up_put_size(struct mcn_up_answer *a, int64_t r)
{
	if (r < 0) {
		mcn_up_put_error(a, (int)r);
		return;
	}
	mcn_up_put_ok(a);
	mcn_up_put64(a, (uint64_t)r);
}

void mcn_up_answer_fail(struct mcn_up_answer *a, enum mcn_up_errc err, const char *text)
{
	if (!text)
		text = err == MCN_UP_NO_FUNCTION ? "the rpc function not registered" : "invalid rpc arg";
	mcn_up_answer_begin(a, HASH_OF_STRING & ~1u, strlen(text));
	mcn_up_put_string(a, text, strlen(text));
	if (!a->failed)
		a->data[2] = (uint8_t)err;
}

int mcn_up_answer_end(struct mcn_up_answer *a, uint32_t sequence)
{
	uint32_t v[3] = { htole32(sequence), htole32((uint32_t)(a->len - MCN_UP_ANSWER_HEAD)), 0 };

	if (a->failed)
		return -ENOMEM;
	a->data[0] = WIRE_MAGIC;
	a->data[1] = WIRE_VERSION;
	memcpy(a->data + 4, v, sizeof(v));
	return 0;
}

void mcn_up_answer_done(struct mcn_up_answer *a)
{
	free(a->data);
	*a = (struct mcn_up_answer){ 0 };
}
