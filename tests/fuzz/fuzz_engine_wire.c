/* SPDX-License-Identifier: Apache-2.0
 * fuzz_engine_wire.c - decoders of the engine's frames: they read no byte beyond the input, and
 * accepted frames respect the limits. */
#include <config.h>

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "engine/shm/map_wire.h"
#include "engine/upstream/upstream_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		abort();
}

static void greeting(const uint8_t *data, size_t size)
{
	struct mce_greeting g = { .size = 0 }, back = { .size = 0 };
	uint8_t packed[MCE_GREETING_SIZE];
	int r = mce_greeting_unpack(data, size, &g);

	if (r <= 0)
		return;
	check((size_t)r <= size && (uint32_t)r == g.size && g.size <= MCE_GREETING_MAX);
	mce_greeting_pack(packed, &g);
	check(mce_greeting_unpack(packed, sizeof(packed), &back) == MCE_GREETING_SIZE);
	check(back.token == g.token && back.epoch == g.epoch && back.window == g.window &&
	      !memcmp(&back.id, &g.id, sizeof(g.id)));
	/* A greeting never begins like a message of upstream's protocol. */
	check(mce_get64(data) > UINT64_MAX / 2);
}

/* The decoder of a capability reads no byte behind the header, and its result is packed to the same fields again.  A
 * signed capability with any fields admits nothing outside of its range. */
static void capability(const uint8_t *data, uint16_t hlen, const struct mce_wire_req *q)
{
	static const uint8_t key[MC_CAPABILITY_KEY] = "fuzz";
	struct mc_capability c, back;
	uint8_t packed[MCE_REQ_CAP_SIZE];
	int r;

	if (!mce_req_unpack_cap(data, hlen, &c)) {
		check(hlen < MCE_REQ_CAP_MIN);
		return;
	}
	mce_req_pack(packed, q);
	mce_req_pack_cap(packed, &c);
	check(mce_get16(packed + 2) == MCE_REQ_CAP_SIZE && mce_req_unpack_cap(packed, MCE_REQ_CAP_SIZE, &back));
	check(back.offset == c.offset && back.len == c.len && back.generation == c.generation &&
	      back.expires_s == c.expires_s && back.rights == c.rights && !memcmp(back.mac, c.mac, sizeof(c.mac)));
	check(mc_capability_check(key, q->id, &c, MC_CAPABILITY_READ, q->whole, q->whole_len, q->seq) == -EACCES);
	mc_capability_sign(key, q->id, &c);
	r = mc_capability_check(key, q->id, &c, MC_CAPABILITY_READ, q->whole, q->whole_len, q->seq);
	if (r == -EACCES)
		return;
	check(c.rights & MC_CAPABILITY_READ && q->whole >= c.offset && q->whole_len <= c.len &&
	      q->whole - c.offset <= c.len - q->whole_len);
	check((r == 0) == (q->seq / 1000 < c.expires_s));
}

static void requests(const uint8_t *data, size_t size)
{
	struct mce_wire_req q = { .type = 0 };
	int r;

	while ((r = mce_req_unpack(data, size, &q)) > 0) {
		check((size_t)r <= size && r == q.hlen && q.hlen <= MCE_HDR_MAX);
		check(q.len <= MCE_WIRE_LEN_MAX);
		check(q.type == MCE_FRAME_READ || q.type == MCE_FRAME_WRITE);
		capability(data, q.hlen, &q);
		data += r;
		size -= (size_t)r;
	}
}

static void responses(const uint8_t *data, size_t size)
{
	struct mce_wire_resp q = { .type = 0 };
	int r;

	while ((r = mce_resp_unpack(data, size, &q)) > 0) {
		check((size_t)r <= size && r == q.hlen && q.hlen <= MCE_HDR_MAX);
		check(q.len <= MCE_WIRE_LEN_MAX && (q.len == 0 || q.status == 0));
		check(q.type == MCE_FRAME_DATA || q.len == 0);
		data += r;
		size -= (size_t)r;
	}
}

static void upstreams(const uint8_t *data, size_t size)
{
	uint8_t packed[MCE_UP_REQ_SIZE];
	struct mce_up_req q, back;
	uint32_t code;
	int r = mce_up_req_unpack(data, size, &q);

	if (r > 0) {
		check((size_t)r <= size && q.op <= MCE_UP_WRITE);
		mce_up_req_pack(packed, &q);
		check(mce_up_req_unpack(packed, sizeof(packed), &back) == r && back.size == q.size &&
		      back.addr == q.addr && back.op == q.op && back.v2 == q.v2);
	}
	r = mce_up_status_unpack(data, size, &code);
	check(r <= 0 || (size_t)r <= size);
}

static void map_message(const uint8_t *data, size_t size)
{
	struct mce_map_msg m;

	if (mce_map_msg_unpack(data, size, &m) == 0 && m.type == MCE_MAP_REGION && m.status == 0)
		check(m.len && m.base + m.len > m.base && m.slot < MCE_EPOCH_SLOTS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	greeting(data, size);
	requests(data, size);
	responses(data, size);
	upstreams(data, size);
	map_message(data, size);
	return 0;
}
