/* SPDX-License-Identifier: Apache-2.0
 * setup.c - text and structure of the messages that connect RDMA NICs with those of upstream's nodes. */
#include <config.h>

#include "engine/upstream/setup.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"

void mce_gid_print(const uint8_t gid[16], char ret[MCE_GID_TEXT_MAX])
{
	for (unsigned i = 0; i < 16; i++)
		snprintf(ret + 3 * i, 4, i < 15 ? "%02x:" : "%02x", gid[i]);
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ?
		c - 'A' + 10 : -1;
}

int mce_gid_parse(const char *text, uint8_t ret[16])
{
	for (unsigned i = 0; i < 16; i++) {
		int hi = hex_digit(text[0]), lo = hi < 0 ? -1 : hex_digit(text[1]);

		if (lo < 0 || text[2] != (i < 15 ? ':' : '\0'))
			return -EINVAL;
		ret[i] = (uint8_t)(hi << 4 | lo);
		text += 3;
	}
	return 0;
}

int mce_setup_encode(const struct mce_setup *s, char **ret_text)
{
	char gid[MCE_GID_TEXT_MAX] = "";
	json_t *qpn = json_array(), *o;
	char *text;

	if (s->has_gid)
		mce_gid_print(s->gid, gid);
	for (unsigned i = 0; i < s->nqps; i++)
		(void)json_array_append_new(qpn, json_integer(s->qpn[i]));
	o = json_pack("{s:s, s:s, s:s, s:i, s:s, s:o, s:s}", "local_nic_path", s->local, "peer_nic_path", s->peer,
		      "local_gid", gid, "local_lid", (int)s->lid, "payload", "", "qp_num", qpn, "reply_msg", s->reply);
	if (o && s->mtu)
		(void)json_object_set_new(o, "mtu", json_integer(s->mtu));
	if (o && s->has_ready_ack)
		(void)json_object_set_new(o, "ready_ack", json_boolean(s->ready_ack));
	text = o ? json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	json_decref(o);
	if (!text)
		return mc_fail(-ENOMEM, "no memory for an RDMA handshake");
	*ret_text = text;
	return 0;
}

/* ---- decoding ---------------------------------------------------------------------------------- */

static int text_member(const json_t *o, const char *name, char *ret, size_t size, bool cut)
{
	const json_t *v = json_object_get(o, name);
	const char *s = json_string_value(v);

	ret[0] = '\0';
	if (!v || json_is_null(v))
		return 0;
	if (!s || (!cut && strlen(s) >= size))
		return -MC_EPROTO;
	snprintf(ret, size, "%s", s);
	return 0;
}

static int number_member(const json_t *o, const char *name, uint64_t max, uint64_t *ret)
{
	const json_t *v = json_object_get(o, name);

	*ret = 0;
	if (!v)
		return 0;
	if (!json_is_integer(v) || json_integer_value(v) < 0 || (uint64_t)json_integer_value(v) > max)
		return -MC_EPROTO;
	*ret = (uint64_t)json_integer_value(v);
	return 0;
}

static int qps_member(const json_t *o, struct mce_setup *ret)
{
	const json_t *list = json_object_get(o, "qp_num"), *v;
	size_t i;

	if (json_array_size(list) > MCE_SETUP_QPS_MAX)
		return -MC_EPROTO;
	json_array_foreach(list, i, v) {
		if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 0xffffff)
			return -MC_EPROTO;
		ret->qpn[ret->nqps++] = (uint32_t)json_integer_value(v);
	}
	return 0;
}

static int setup_members(const json_t *o, struct mce_setup *ret)
{
	uint64_t lid = 0, mtu = 0;
	char gid[MCE_GID_TEXT_MAX];
	int r = json_is_object(o) ? 0 : -MC_EPROTO;

	if (r == 0)
		r = text_member(o, "local_nic_path", ret->local, sizeof(ret->local), false);
	if (r == 0)
		r = text_member(o, "peer_nic_path", ret->peer, sizeof(ret->peer), false);
	if (r == 0)
		r = text_member(o, "reply_msg", ret->reply, sizeof(ret->reply), true);
	if (r == 0)
		r = text_member(o, "local_gid", gid, sizeof(gid), false);
	if (r == 0 && *gid) {
		ret->has_gid = true;
		r = mce_gid_parse(gid, ret->gid) < 0 ? -MC_EPROTO : 0;
	}
	if (r == 0)
		r = number_member(o, "local_lid", UINT16_MAX, &lid);
	if (r == 0)
		r = number_member(o, "mtu", 4096, &mtu);
	ret->lid = (uint16_t)lid;
	ret->mtu = (unsigned)mtu;
	ret->has_ready_ack = json_object_get(o, "ready_ack");
	ret->ready_ack = json_is_true(json_object_get(o, "ready_ack"));
	return r == 0 ? qps_member(o, ret) : r;
}

int mce_setup_decode(const char *text, size_t len, struct mce_setup *ret)
{
	json_t *o = json_loadb(text, len, 0, NULL);
	int r;

	memset(ret, 0, sizeof(*ret));
	r = setup_members(o, ret);
	json_decref(o);
	return r < 0 ? mc_fail(r, "not an RDMA handshake") : 0;
}
