/* SPDX-License-Identifier: Apache-2.0
 * codec.c - interpreters of field tables: an encoder and a decoder.  elem.c has code for the elements of lists.
 *
 * The encoder first measures, then writes without checks: it appends all or nothing.  The decoder
 * first checks, including lists and their elements, then loads without checks: a failure changes
 * nothing, and iterating over a list later cannot fail. */
#include <config.h>

#include "proto/codec.h"

#include <errno.h>
#include <stdlib.h>

#include "common/err.h"
#include "proto/codec_i.h"

#define BUF_MIN 512
/* A call of their own would cost small messages 4 % of their instructions. */
#define INLINED inline __attribute__((always_inline))

/* Bytes on the wire of a field; of the fixed part of MCP_F_BYTES and MCP_F_LIST. */
static const uint8_t width[] = {
	[MCP_F_U8] = 1, [MCP_F_U16] = 2, [MCP_F_U32] = 4, [MCP_F_U64] = 8, [MCP_F_I32] = 4,
	[MCP_F_ID] = 16, [MCP_F_BYTES] = 4, [MCP_F_LIST] = 8, [MCP_F_SINCE] = 0, [MCP_F_OPTIONAL] = 0,
};

const char *mcp_desc_str(const struct mcp_desc *d)
{
	return d->name;
}

/* ---- buffers ---- */

int mcp_buf_reserve(struct mcp_buf *b, size_t more)
{
	size_t want, cap;
	uint8_t *p;

	if (b->cap - b->len >= more)
		return 0;
	if (__builtin_add_overflow(b->len, more, &want) || want > SIZE_MAX / 2)
		return mc_fail(-ENOMEM, "message buffer too large: %zu + %zu bytes", b->len, more);
	cap = b->cap ? b->cap : BUF_MIN;
	while (cap < want)
		cap *= 2;
	p = realloc(b->data, cap);
	if (!p)
		return mc_fail(-ENOMEM, "no memory for a message buffer of %zu bytes", cap);
	b->data = p;
	b->cap = cap;
	return 0;
}

void mcp_buf_reset(struct mcp_buf *b)
{
	b->len = 0;
}

void mcp_buf_free(struct mcp_buf *b)
{
	free(b->data);
	*b = (struct mcp_buf){ 0 };
}

/* ---- encode ---- */

static int measure_fields(const struct mcp_desc *d, const void *msg, uint64_t *ret_size);

/* Are the elements byte strings?  Long lists are lists of keys, for which encoder and decoder have fast paths. */
static bool only_bytes(const struct mcp_desc *d)
{
	return d->fields[0].kind == MCP_F_BYTES && d->fields[1].kind == MCP_F_END;
}

static int measure_bytes(const struct mcp_desc *d, const struct mcp_field *f,
			 const struct mcp_bytes *bytes, uint64_t *size)
{
	if (bytes->len && !bytes->data)
		return mc_fail(-MC_EPARAM, "%s.%s: %u bytes without a data pointer", d->name, f->name, bytes->len);
	*size += bytes->len;
	return 0;
}

static INLINED int measure_list(const struct mcp_desc *d, const struct mcp_field *f,
			const struct mcp_seq *list, uint64_t *size)
{
	const char *item = list->items;
	int r = 0;

	if (list->count > MCP_BATCH_MAX)
		return mc_fail(-MC_EPARAM, "%s.%s: %u elements, %u allowed", d->name, f->name,
			       list->count, MCP_BATCH_MAX);
	if (!item) {
		/* A decoded list: its encoding is copied unchanged. */
		if (list->count && !list->raw)
			return mc_fail(-MC_EPARAM, "%s.%s: %u elements without a data pointer", d->name,
				       f->name, list->count);
		*size += list->count ? list->raw_len : 0;
		return 0;
	}
	if (only_bytes(f->elem)) {
		*size += 8ull * list->count;
		for (uint32_t i = 0; i < list->count && r == 0; i++, item += f->elem->size)
			r = measure_bytes(f->elem, f->elem->fields,
					  (const void *)(item + f->elem->fields[0].offset), size);
		return r;
	}
	for (uint32_t i = 0; i < list->count && r == 0; i++, item += f->elem->size) {
		*size += 4;
		if (!f->elem->elem || !f->elem->elem->measure(item, size))
			r = measure_fields(f->elem, item, size);
	}
	return r;
}

/* Is the field behind the marker @f, which is at @at, 0 or empty? */
static __attribute__((noinline)) bool ends_here(const struct mcp_field *f, const void *at)
{
	return f[1].kind == MCP_F_BYTES ? !((const struct mcp_bytes *)at)->len :
	       f[1].kind == MCP_F_U64 ? !*(const uint64_t *)at : !*(const uint32_t *)at;
}

static int measure_fields(const struct mcp_desc *d, const void *msg, uint64_t *size)
{
	const struct mcp_field *f;
	int r;

	for (f = d->fields; f->kind != MCP_F_END; f++) {
		const void *at = (const char *)msg + f->offset;

		*size += width[f->kind];
		if (f->kind < MCP_F_BYTES)
			continue;
		if (f->kind == MCP_F_BYTES) {
			r = measure_bytes(d, f, at, size);
			if (r < 0)
				return r;
		} else if (f->kind == MCP_F_LIST) {
			r = measure_list(d, f, at, size);
			if (r < 0)
				return r;
		} else if (ends_here(f, at)) {
			return 0;
		}
	}
	return 0;
}

static uint8_t *write_fields(const struct mcp_desc *d, const void *msg, uint8_t *p);

static uint8_t *write_bytes(const void *data, uint32_t len, uint8_t *p)
{
	if (len)
		memcpy(p, data, len);
	return p + len;
}

static INLINED uint8_t *write_list(const struct mcp_desc *elem, const struct mcp_seq *list, uint8_t *p)
{
	const char *item = list->items;
	uint8_t *begin = p + 8, *end = begin;

	if (!item && list->count)
		end = write_bytes(list->raw, list->raw_len, begin);
	if (item && only_bytes(elem)) {
		item += elem->fields[0].offset;
		for (uint32_t i = 0; i < list->count; i++, item += elem->size) {
			const struct mcp_bytes *bytes = (const void *)item;

			mcp_put_u32(end, bytes->len + 4);
			mcp_put_u32(end + 4, bytes->len);
			end = write_bytes(bytes->data, bytes->len, end + 8);
		}
		item = NULL;
	}
	for (uint32_t i = 0; item && i < list->count; i++, item += elem->size) {
		uint8_t *at = end;

		end = elem->elem ? elem->elem->write(item, at + 4) : write_fields(elem, item, at + 4);
		mcp_put_u32(at, (uint32_t)(end - at - 4));
	}
	mcp_put_u32(p, list->count);
	mcp_put_u32(p + 4, (uint32_t)(end - begin));
	return end;
}

static uint8_t *write_fields(const struct mcp_desc *d, const void *msg, uint8_t *p)
{
	const struct mcp_field *f;

	for (f = d->fields; f->kind != MCP_F_END; f++) {
		const void *at = (const char *)msg + f->offset;

		switch ((enum mcp_field_kind)f->kind) {
		case MCP_F_U8:
			*p = *(const uint8_t *)at;
			break;
		case MCP_F_U16:
			mcp_put_u16(p, *(const uint16_t *)at);
			break;
		case MCP_F_U32:
			mcp_put_u32(p, *(const uint32_t *)at);
			break;
		case MCP_F_I32:
			mcp_put_u32(p, (uint32_t)*(const int32_t *)at);
			break;
		case MCP_F_U64:
			mcp_put_u64(p, *(const uint64_t *)at);
			break;
		case MCP_F_ID:
			mcp_put_u64(p, ((const struct mcp_id *)at)->hi);
			mcp_put_u64(p + 8, ((const struct mcp_id *)at)->lo);
			break;
		case MCP_F_BYTES: {
			const struct mcp_bytes *bytes = at;

			mcp_put_u32(p, bytes->len);
			p = write_bytes(bytes->data, bytes->len, p + 4);
			continue;
		}
		case MCP_F_LIST:
			p = write_list(f->elem, at, p);
			continue;
		case MCP_F_OPTIONAL:
			if (ends_here(f, at))
				return p;
			continue;
		case MCP_F_SINCE:
		case MCP_F_END:
			break;
		}
		p += width[f->kind];
	}
	return p;
}

bool mcp_list_measure(const struct mcp_desc *elem, const struct mcp_seq *list, uint64_t *size)
{
	const struct mcp_field f = { .name = "", .elem = elem };

	return measure_list(elem, &f, list, size) == 0;
}

uint8_t *mcp_list_write(const struct mcp_desc *elem, const struct mcp_seq *list, uint8_t *p)
{
	return write_list(elem, list, p);
}

int mcp_encode(const struct mcp_desc *d, const void *msg, struct mcp_buf *b)
{
	uint64_t size = 0;
	int r;

	r = measure_fields(d, msg, &size);
	if (r < 0)
		return r;
	if (size > UINT32_MAX)
		return mc_fail(-MC_EPARAM, "%s: message too large: %llu bytes", d->name,
			       (unsigned long long)size);
	r = mcp_buf_reserve(b, size);
	if (r < 0)
		return r;
	b->len = (size_t)(write_fields(d, msg, b->data + b->len) - b->data);
	return 0;
}

/* ---- decode ---- */

/* Where and why a check failed. */
struct flaw {
	const struct mcp_desc *d;
	const struct mcp_field *f;
	const char *what;
};

static bool set_flaw(struct flaw *flaw, const struct mcp_desc *d, const struct mcp_field *f,
		   const char *what)
{
	*flaw = (struct flaw){ d, f, what };
	return false;
}

static bool check_fields(const struct mcp_desc *d, const uint8_t *p, const uint8_t *end, struct flaw *flaw);

/* Fast path of check_list() for lists of byte strings. */
static bool bytes_list_good(uint32_t count, const uint8_t *p, const uint8_t *end)
{
	for (; count; count--) {
		uint32_t len;

		if (end - p < 8)
			return false;
		len = mcp_get_u32(p);
		if (len < 4 || len > (size_t)(end - p) - 4 || mcp_get_u32(p + 4) > len - 4)
			return false;
		p += 4 + (size_t)len;
	}
	return p == end;
}

static INLINED bool check_list(const struct mcp_desc *d, const struct mcp_field *f, uint32_t count,
		       const uint8_t *p, const uint8_t *end, struct flaw *flaw)
{
	if (count > MCP_BATCH_MAX)
		return set_flaw(flaw, d, f, "too many elements");
	if (only_bytes(f->elem) && bytes_list_good(count, p, end))
		return true;
	for (; count; count--) {
		uint32_t len;

		if (end - p < 4)
			return set_flaw(flaw, d, f, "fewer elements than its count");
		len = mcp_get_u32(p);
		p += 4;
		if (len > (size_t)(end - p))
			return set_flaw(flaw, d, f, "an element ends outside the list");
		if (!(f->elem->elem && f->elem->elem->check(p, p + len)) && !check_fields(f->elem, p, p + len, flaw))
			return false;
		p += len;
	}
	return p == end || set_flaw(flaw, d, f, "bytes behind the last element");
}

bool mcp_list_check(const struct mcp_desc *elem, const uint8_t **p, const uint8_t *end)
{
	uint32_t count = mcp_get_u32(*p - 8), len = mcp_get_u32(*p - 4);
	const struct mcp_field f = { .elem = elem };
	const uint8_t *begin = *p;
	struct flaw flaw;

	if ((size_t)(end - begin) < len)
		return false;
	*p += len;
	return check_list(elem, &f, count, begin, *p, &flaw);
}

static bool check_fields(const struct mcp_desc *d, const uint8_t *p, const uint8_t *end, struct flaw *flaw)
{
	const struct mcp_field *f;

	for (f = d->fields; f->kind != MCP_F_END; f++) {
		size_t len = width[f->kind];

		if (f->kind == MCP_F_SINCE) {
			if (p == end)
				return true;
			continue;
		}
		if ((size_t)(end - p) < len)
			return set_flaw(flaw, d, f, p == end ? "missing" : "truncated");
		if (f->kind == MCP_F_BYTES)
			len += mcp_get_u32(p);
		else if (f->kind == MCP_F_LIST)
			len += mcp_get_u32(p + 4);
		if ((size_t)(end - p) < len)
			return set_flaw(flaw, d, f, "ends outside the message");
		if (f->kind == MCP_F_LIST && !check_list(d, f, mcp_get_u32(p), p + 8, p + len, flaw))
			return false;
		p += len;
	}
	return true;
}

/* Load one checked field; returns the address behind it. */
static const uint8_t *load_field(const struct mcp_field *f, const uint8_t *p, void *out)
{
	void *at = (char *)out + f->offset;
	uint32_t len;

	switch ((enum mcp_field_kind)f->kind) {
	case MCP_F_U8:
		*(uint8_t *)at = *p;
		return p + 1;
	case MCP_F_U16:
		*(uint16_t *)at = mcp_get_u16(p);
		return p + 2;
	case MCP_F_U32:
		*(uint32_t *)at = mcp_get_u32(p);
		return p + 4;
	case MCP_F_I32:
		*(int32_t *)at = (int32_t)mcp_get_u32(p);
		return p + 4;
	case MCP_F_U64:
		*(uint64_t *)at = mcp_get_u64(p);
		return p + 8;
	case MCP_F_ID:
		*(struct mcp_id *)at = (struct mcp_id){ mcp_get_u64(p), mcp_get_u64(p + 8) };
		return p + 16;
	case MCP_F_BYTES:
		len = mcp_get_u32(p);
		*(struct mcp_bytes *)at = (struct mcp_bytes){ p + 4, len };
		return p + 4 + len;
	case MCP_F_LIST:
		len = mcp_get_u32(p + 4);
		*(struct mcp_seq *)at = (struct mcp_seq){ mcp_get_u32(p), len, NULL, p + 8 };
		return p + 8 + len;
	case MCP_F_SINCE:
	case MCP_F_OPTIONAL:
	case MCP_F_END:
		break;
	}
	return p;
}

static void load_fields(const struct mcp_desc *d, const uint8_t *p, const uint8_t *end, void *out)
{
	const struct mcp_field *f;

	for (f = d->fields; f->kind != MCP_F_END; f++) {
		/* The body of an older peer ends here: clear the fields that it did not send. */
		if (f->kind == MCP_F_SINCE && p == end) {
			size_t from = f[1].kind == MCP_F_END ? d->size : f[1].offset;

			memset((char *)out + from, 0, d->size - from);
			return;
		}
		p = load_field(f, p, out);
	}
}

int mcp_decode(const struct mcp_desc *d, const void *data, size_t len, void *ret)
{
	static const uint8_t nothing[1];
	const uint8_t *p = len ? data : nothing;
	struct flaw flaw;

	if (!check_fields(d, p, p + len, &flaw))
		return mc_fail(-MC_EPROTO, "malformed %s: %s.%s: %s", d->name, flaw.d->name,
			       flaw.f->name, flaw.what);
	load_fields(d, p, p + len, ret);
	return 0;
}

void mcp_iter_init(struct mcp_iter *it, const struct mcp_seq *list, const struct mcp_desc *d)
{
	it->d = d;
	it->p = list->raw;
	it->end = list->raw ? list->raw + list->raw_len : NULL;
}

bool mcp_iter_next(struct mcp_iter *it, void *ret_elem)
{
	const uint8_t *p = it->p;

	if (p == it->end)
		return false;
	it->p = p + 4 + mcp_get_u32(p);
	if (only_bytes(it->d)) {
		struct mcp_bytes *bytes = (void *)((char *)ret_elem + it->d->fields[0].offset);

		*bytes = (struct mcp_bytes){ p + 8, mcp_get_u32(p + 4) };
		return true;
	}
	if (it->d->elem)
		it->d->elem->load(p + 4, it->p, ret_elem);
	else
		load_fields(it->d, p + 4, it->p, ret_elem);
	return true;
}
