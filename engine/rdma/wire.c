/* SPDX-License-Identifier: Apache-2.0
 * wire.c - messages of a control connection: a length and a JSON object. */
#include <config.h>

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/sys/clock.h"
#include "engine/rdma/rdma_i.h"
#include "engine/tcp/tcp_wire.h"

static const char *const op_name[MCE_RDMA_OPS] = { "nics", "open", "close", "region" };

/* ---- encoding ---------------------------------------------------------------------------------- */

static json_t *u64_json(uint64_t v)
{
	return json_integer((json_int_t)v);	/* keeps the bits: JSON's integers are signed here */
}

static json_t *addr_json(const struct mce_rdma_addr *a)
{
	char gid[33];
	json_t *o;

	for (unsigned i = 0; i < 16; i++)
		snprintf(gid + 2 * i, 3, "%02x", a->gid.raw[i]);
	o = json_pack("{s:s, s:s, s:i, s:i}", "name", a->name, "gid", gid, "lid", (int)a->lid, "mtu", (int)a->mtu);
	/* Peers of older versions ignore these. */
	if (o && a->iwarp)
		json_object_set_new(o, "iwarp", json_true());
	if (o && a->cm[0])
		json_object_set_new(o, "cm", json_string(a->cm));
	if (o && a->rate)
		json_object_set_new(o, "rate", json_integer(a->rate));
	return o;
}

static json_t *far_json(const struct mce_rdma_far *far)
{
	json_t *qpn = json_array(), *o;

	for (unsigned i = 0; i < far->nqps; i++)
		json_array_append_new(qpn, json_integer(far->qpn[i]));
	o = json_pack("{s:o, s:o, s:I}", "addr", addr_json(&far->addr), "qp_num", qpn, "psn", (json_int_t)far->psn);
	return o;
}

static json_t *remote_json(const struct mce_rdma_remote *rem)
{
	json_t *keys = json_array();

	for (unsigned i = 0; i < rem->nnics * rem->nparts; i++)
		json_array_append_new(keys, json_integer(rem->key[i]));
	return json_pack("{s:o, s:o, s:o, s:i, s:i, s:i, s:o}", "base", u64_json(rem->base), "len", u64_json(rem->len),
			 "part", u64_json(rem->part), "access", (int)rem->access, "nics", (int)rem->nnics,
			 "parts", (int)rem->nparts, "keys", keys);
}

int mce_rdma_encode(const struct mce_rdma_msg *msg, char **ret, size_t *ret_len)
{
	json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:b, s:o}", "op", op_name[msg->op], "status", msg->status,
			      "nic", (int)msg->nic, "id", (int)msg->id, "read_only", msg->read_only,
			      "rkey", u64_json(msg->rkey));
	json_t *addrs;
	auto_free char *text = NULL;
	size_t len;
	int r = -ENOMEM;

	if (o && msg->cm)
		json_object_set_new(o, "cm", json_true());
	if (o && msg->token)
		json_object_set_new(o, "token", u64_json(msg->token));
	if (o && msg->far.nqps)
		json_object_set_new(o, "far", far_json(&msg->far));
	if (o && msg->naddrs) {
		addrs = json_array();
		for (unsigned i = 0; i < msg->naddrs; i++)
			json_array_append_new(addrs, addr_json(&msg->addr[i]));
		json_object_set_new(o, "addrs", addrs);
	}
	if (o && msg->remote)
		json_object_set_new(o, "region", remote_json(msg->remote));
	text = o ? json_dumps(o, JSON_COMPACT) : NULL;
	json_decref(o);
	if (!text)
		return r;
	len = strlen(text);
	*ret = malloc(4 + len);
	if (!*ret)
		return r;
	mce_put32((uint8_t *)*ret, (uint32_t)len);
	memcpy(*ret + 4, text, len);
	*ret_len = 4 + len;
	return 0;
}

/* ---- decoding ---------------------------------------------------------------------------------- */

static int number_decode(const json_t *o, const char *name, uint64_t max, uint64_t *ret)
{
	const json_t *v = json_object_get(o, name);

	if (!json_is_integer(v) || (uint64_t)json_integer_value(v) > max)
		return -MC_EPROTO;
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int addr_decode(const json_t *o, struct mce_rdma_addr *ret)
{
	const char *name = json_string_value(json_object_get(o, "name"));
	const char *gid = json_string_value(json_object_get(o, "gid"));
	const char *cm = json_string_value(json_object_get(o, "cm"));
	uint64_t lid, mtu, rate = 0;

	if (!name || strlen(name) >= sizeof(ret->name) || !gid || strlen(gid) != 32 ||
	    number_decode(o, "lid", 0xffff, &lid) < 0 || number_decode(o, "mtu", 4096, &mtu) < 0 || mtu < 256)
		return -MC_EPROTO;
	strcpy(ret->name, name);
	for (unsigned i = 0; i < 16; i++) {
		int hi = hex_digit(gid[2 * i]), lo = hex_digit(gid[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return -MC_EPROTO;
		ret->gid.raw[i] = (uint8_t)(hi << 4 | lo);
	}
	/* Peers of older versions do not send it. */
	if (json_object_get(o, "rate") && number_decode(o, "rate", INT32_MAX, &rate) < 0)
		return -MC_EPROTO;
	ret->rate = (unsigned)rate;
	ret->lid = (uint16_t)lid;
	ret->mtu = (unsigned)mtu;
	ret->iwarp = json_is_true(json_object_get(o, "iwarp"));
	if (cm && strlen(cm) < sizeof(ret->cm))
		strcpy(ret->cm, cm);
	return 0;
}

static int far_decode(const json_t *o, struct mce_rdma_far *ret)
{
	const json_t *qpn = json_object_get(o, "qp_num");
	uint64_t psn;
	int r = addr_decode(json_object_get(o, "addr"), &ret->addr);

	if (r < 0 || number_decode(o, "psn", 0xffffff, &psn) < 0)
		return -MC_EPROTO;
	if (!json_is_array(qpn) || json_array_size(qpn) == 0 || json_array_size(qpn) > MCE_RDMA_QPS_MAX)
		return -MC_EPROTO;
	ret->psn = (uint32_t)psn;
	ret->nqps = (unsigned)json_array_size(qpn);
	for (unsigned i = 0; i < ret->nqps; i++) {
		json_int_t v = json_integer_value(json_array_get(qpn, i));

		if (v < 0 || v > 0xffffff)
			return -MC_EPROTO;
		ret->qpn[i] = (uint32_t)v;
	}
	return 0;
}

static int remote_decode(const json_t *o, uint64_t rkey, struct mce_rdma_remote **ret)
{
	const json_t *keys = json_object_get(o, "keys");
	uint64_t base, len, part, access, nics, parts;
	struct mce_rdma_remote *rem;

	if (number_decode(o, "base", UINT64_MAX, &base) < 0 || number_decode(o, "len", UINT64_MAX, &len) < 0 ||
	    number_decode(o, "part", UINT64_MAX, &part) < 0 || number_decode(o, "access", 3, &access) < 0 ||
	    number_decode(o, "nics", MCE_NICS_MAX, &nics) < 0 ||
	    number_decode(o, "parts", MCE_RDMA_PARTS_MAX, &parts) < 0)
		return -MC_EPROTO;
	if (!len || base + len < base || !part || !parts || (len - 1) / part >= parts || !json_is_array(keys) ||
	    json_array_size(keys) != nics * parts)
		return -MC_EPROTO;
	rem = calloc(1, sizeof(*rem) + (size_t)(nics * parts) * sizeof(rem->key[0]));
	if (!rem)
		return -ENOMEM;
	rem->rkey = rkey;
	rem->base = base;
	rem->len = len;
	rem->part = part;
	rem->access = (unsigned)access;
	rem->nnics = (unsigned)nics;
	rem->nparts = (unsigned)parts;
	for (unsigned i = 0; i < nics * parts; i++)
		rem->key[i] = (uint32_t)json_integer_value(json_array_get(keys, i));
	*ret = rem;
	return 0;
}

static int msg_decode(const json_t *o, struct mce_rdma_msg *ret)
{
	const char *op = json_string_value(json_object_get(o, "op"));
	const json_t *addrs = json_object_get(o, "addrs"), *far = json_object_get(o, "far"),
		     *region = json_object_get(o, "region");
	uint64_t nic, id;
	int r = 0;

	for (ret->op = 0; ret->op < MCE_RDMA_OPS && (!op || strcmp(op, op_name[ret->op])); ret->op++)
		;
	if (ret->op == MCE_RDMA_OPS || number_decode(o, "nic", INT32_MAX, &nic) < 0 ||
	    number_decode(o, "id", INT32_MAX, &id) < 0 ||
	    number_decode(o, "rkey", UINT64_MAX, &ret->rkey) < 0)
		return -MC_EPROTO;
	ret->status = (int)json_integer_value(json_object_get(o, "status"));
	ret->nic = (uint32_t)nic;
	ret->id = (uint32_t)id;
	ret->read_only = json_is_true(json_object_get(o, "read_only"));
	ret->cm = json_is_true(json_object_get(o, "cm"));
	ret->token = (uint64_t)json_integer_value(json_object_get(o, "token"));
	if (json_array_size(addrs) > MCE_NICS_MAX)
		return -MC_EPROTO;
	ret->naddrs = (unsigned)json_array_size(addrs);
	for (unsigned i = 0; i < ret->naddrs && r == 0; i++)
		r = addr_decode(json_array_get(addrs, i), &ret->addr[i]);
	if (r == 0 && far)
		r = far_decode(far, &ret->far);
	if (r == 0 && region)
		r = remote_decode(region, ret->rkey, &ret->remote);
	return r;
}

int mce_rdma_decode(const char *text, size_t len, struct mce_rdma_msg *ret)
{
	json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	int r;

	memset(ret, 0, sizeof(*ret));
	r = json_is_object(o) ? msg_decode(o, ret) : -MC_EPROTO;
	json_decref(o);
	if (r < 0) {
		free(ret->remote);
		ret->remote = NULL;
	}
	return r;
}

/* ---- calls ------------------------------------------------------------------------------------- */

int mce_rdma_call(struct mce_engine *e, struct mc_stream *stream, struct mce_rdma_msg *msg, uint64_t deadline,
		  struct mce_rdma_msg *ret)
{
	auto_free char *frame = NULL, *text = NULL;
	uint8_t head[4];
	size_t len;
	int r;

	r = mce_rdma_encode(msg, &frame, &len);
	if (r == 0)
		r = mce_move_all(e, stream, frame, len, true, deadline);
	if (r == 0)
		r = mce_move_all(e, stream, head, sizeof(head), false, deadline);
	if (r < 0)
		return r;
	len = mce_get32(head);
	if (len == 0 || len > MCE_RDMA_MSG_MAX)
		return -MC_EPROTO;
	text = malloc(len);
	if (!text)
		return -ENOMEM;
	r = mce_move_all(e, stream, text, len, false, deadline);
	if (r == 0)
		r = mce_rdma_decode(text, len, ret);
	if (r < 0)
		return r;
	if (ret->op != msg->op || ret->rkey != msg->rkey)
		r = -MC_EPROTO;
	/* Not asked for. */
	if (r < 0 || ret->status || ret->op != MCE_RDMA_REGION) {
		free(ret->remote);
		ret->remote = NULL;
	}
	return r;
}
