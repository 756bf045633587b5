/* SPDX-License-Identifier: Apache-2.0
 * kv_events_pack.c - encoding of events in MessagePack, in upstream's form. */
#include <config.h>

#include "master/admin/kv_events_pack.h"

#include <string.h>

#include "master/mcm_i.h"
#include "proto/codec.h"

/* ---- MessagePack ---- */

static void put_raw(struct mcm_kv_pack *p, const void *data, size_t len)
{
	if (p->cap - p->len < len) {
		p->overflow = true;
		return;
	}
	memcpy(p->bytes + p->len, data, len);
	p->len += len;
}

/* A tag, then @len bytes of a number. */
static void put_tagged(struct mcm_kv_pack *p, uint8_t tag, uint64_t v, unsigned len)
{
	uint8_t b[9] = { tag };

	for (unsigned i = 0; i < len; i++)
		b[1 + i] = (uint8_t)(v >> 8 * (len - 1 - i));
	put_raw(p, b, 1 + len);
}

static void put_uint(struct mcm_kv_pack *p, uint64_t v)
{
	if (v < 0x80)
		put_tagged(p, (uint8_t)v, 0, 0);
	else if (v <= UINT8_MAX)
		put_tagged(p, 0xcc, v, 1);
	else if (v <= UINT16_MAX)
		put_tagged(p, 0xcd, v, 2);
	else if (v <= UINT32_MAX)
		put_tagged(p, 0xce, v, 4);
	else
		put_tagged(p, 0xcf, v, 8);
}

static void put_nil(struct mcm_kv_pack *p)
{
	put_tagged(p, 0xc0, 0, 0);
}

static void put_array(struct mcm_kv_pack *p, unsigned n)
{
	if (n < 16)
		put_tagged(p, (uint8_t)(0x90 | n), 0, 0);
	else
		put_tagged(p, 0xdc, n, 2);
}

static bool is_text(const unsigned char *s, size_t len)
{
	uint32_t n;

	for (size_t i = 0; i < len; i += n) {
		n = mcm_utf8_len(s + i, (uint32_t)(len - i));
		if (!n)
			return false;
	}
	return true;
}

/* A text.  One that is not UTF-8 is sent as bytes, because subscribers refuse a message with invalid text. */
static void put_text(struct mcm_kv_pack *p, const void *s, size_t len)
{
	if (!is_text(s, len))
		put_tagged(p, len <= UINT8_MAX ? 0xc4 : 0xc5, len, len <= UINT8_MAX ? 1 : 2);
	else if (len < 32)
		put_tagged(p, (uint8_t)(0xa0 | len), 0, 0);
	else
		put_tagged(p, len <= UINT8_MAX ? 0xd9 : 0xda, len, len <= UINT8_MAX ? 1 : 2);
	put_raw(p, s, len);
}

static void put_name(struct mcm_kv_pack *p, const char *s)
{
	put_text(p, s, strlen(s));
}

/* An option without a value is nil. */
static void put_option(struct mcm_kv_pack *p, const char *name, const char *value)
{
	put_name(p, name);
	if (*value)
		put_name(p, value);
	else
		put_nil(p);
}

static void put_number_option(struct mcm_kv_pack *p, const char *name, uint64_t value)
{
	put_name(p, name);
	if (value)
		put_uint(p, value);
	else
		put_nil(p);
}

/* ---- events ---- */

bool mcm_kv_key_hash(const void *key, size_t len, uint64_t *ret)
{
	const char *s = key;
	bool hex = len > 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X');
	unsigned base = hex ? 16 : 10, digit;
	uint64_t v = 0;
	size_t i = hex ? 2 : 0;

	if (!len)
		return false;
	for (; i < len; i++) {
		if (s[i] >= '0' && s[i] <= '9')
			digit = (unsigned)(s[i] - '0');
		else if (hex && (s[i] | 0x20) >= 'a' && (s[i] | 0x20) <= 'f')
			digit = (unsigned)((s[i] | 0x20) - 'a') + 10;
		else
			return false;
		if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, digit, &v))
			return false;
	}
	*ret = v;
	return true;
}

static bool is_published(const struct mcm *m, struct mcp_bytes key)
{
	uint64_t hash;

	return m->conf.kv_events_emit_object_key || mcm_kv_key_hash(key.data, key.len, &hash);
}

unsigned mcm_kv_event_count(const struct mcm *m, const struct mcm_event_entry *e, uint64_t *skipped)
{
	bool renamed = e->event.type == MCP_EVENT_RENAME;
	unsigned n, all = renamed ? 2 : 1;

	/* Directories and links contain no KV cache, attributes do not change it. */
	if (e->event.kind != MCP_KIND_OBJECT || e->event.type == MCP_EVENT_ATTRS)
		return 0;
	n = is_published(m, e->event.key);
	if (renamed)
		n += is_published(m, e->event.to);
	*skipped += all - n;
	return n;
}

static void put_hashes(struct mcm_kv_pack *p, const char *name, struct mcp_bytes key)
{
	uint64_t hash;

	put_name(p, name);
	if (mcm_kv_key_hash(key.data, key.len, &hash)) {
		put_array(p, 1);
		put_uint(p, hash);
	} else {
		put_array(p, 0);
	}
}

static void pack_one(struct mcm_kv_pack *p, const struct mcm *m, const struct mcm_event_entry *e,
		     const char *tenant, struct mcp_bytes key, bool stored)
{
	const struct mcm_conf *c = &m->conf;
	unsigned members = 16 + (c->kv_events_emit_legacy_compat ? 3 : 0) +
		(c->kv_events_emit_object_key ? 1 : 0);

	if (!is_published(m, key))
		return;
	put_tagged(p, 0xde, members, 2);
	put_name(p, "event_id");
	put_uint(p, e->event.sequence);
	put_name(p, "timestamp");
	put_uint(p, e->event.time_ms);
	put_name(p, "event_type");
	put_name(p, stored ? "stored" : "removed");
	if (c->kv_events_emit_legacy_compat) {
		put_name(p, "type");
		put_name(p, stored ? "BlockStored" : "BlockRemoved");
	}
	put_option(p, "model_name", c->kv_events_model_name);
	put_number_option(p, "block_size", (uint64_t)c->kv_events_block_size);
	put_option(p, "additional_salt", c->kv_events_additional_salt);
	put_option(p, "lora_name", c->kv_events_lora_name);
	put_option(p, "tenant_id", tenant);
	put_option(p, "backend_id", c->kv_events_backend_id);
	put_name(p, "group_id");
	if (e->group.len)
		put_text(p, e->group.data, e->group.len);
	else
		put_nil(p);
	put_option(p, "medium", "cpu");
	put_number_option(p, "dp_rank", (uint64_t)c->kv_events_dp_rank);
	if (c->kv_events_emit_object_key) {
		put_name(p, "object_key");
		put_text(p, key.data, key.len);
	}
	put_hashes(p, "seq_hashes", key);
	if (c->kv_events_emit_legacy_compat)
		put_hashes(p, "block_hashes", key);
	put_name(p, "base_block_idx");
	put_uint(p, 0);
	put_option(p, "parent_hash", "");
	put_option(p, "token_ids", "");
	if (c->kv_events_emit_legacy_compat)
		put_option(p, "parent_block_hash", "");
}

void mcm_kv_pack_head(struct mcm_kv_pack *p, uint64_t time_ms, unsigned events)
{
	put_array(p, 3);
	put_uint(p, time_ms);
	put_array(p, events);
}

void mcm_kv_pack_tail(struct mcm_kv_pack *p)
{
	put_uint(p, 0);
}

void mcm_kv_pack_event(struct mcm_kv_pack *p, const struct mcm *m, const struct mcm_event_entry *e,
		       const char *tenant)
{
	uint8_t type = e->event.type;

	pack_one(p, m, e, tenant, e->event.key, type == MCP_EVENT_PUT);
	if (type == MCP_EVENT_RENAME)
		pack_one(p, m, e, tenant, e->event.to, true);
}
