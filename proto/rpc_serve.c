/* SPDX-License-Identifier: Apache-2.0
 * rpc_serve.c - one request: hello, handler, frame of the reply, counters. */
#include <config.h>

#include "proto/rpc_i.h"

#include <errno.h>
#include <string.h>

#include "common/err.h"
#include "common/fault.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "proto/codec_i.h"

#define PROTOCOL_ERRORS "mooncake_rpc_protocol_errors_total"
#define PROTOCOL_HELP "Malformed input from clients"
MC_COUNTER(bad_header, PROTOCOL_ERRORS, "kind=\"header\"", PROTOCOL_HELP)
MC_COUNTER(bad_hello, PROTOCOL_ERRORS, "kind=\"hello\"", PROTOCOL_HELP)
MC_COUNTER(bad_type, PROTOCOL_ERRORS, "kind=\"type\"", PROTOCOL_HELP)
MC_COUNTER(bad_role, "mooncake_rpc_refused_total", "", "Requests that the role of the peer does not allow")
MC_COUNTER(bad_body, PROTOCOL_ERRORS, "kind=\"body\"", PROTOCOL_HELP)
MC_HISTOGRAM(latency, "mooncake_rpc_request_seconds", "", "Time a request took inside the server", 1e-9)

#define MCP_MESSAGE(NAME, name, num, roles) \
	MC_COUNTER(requests_##name, "mooncake_rpc_requests_total", "type=\"" #name "\"", \
		   "Requests handled")
#include "proto/msg_each.h"

static struct mc_metric *const requests[] = {
#define MCP_MESSAGE(NAME, name, num, roles) [num] = &requests_##name,
#include "proto/msg_each.h"
};

struct mcp_answer {
	struct mcp_buf *out;
	size_t begin;		/* start of the body in @out */
	uint32_t max_frame;
	bool oneway, given;
};

int mcp_answer(struct mcp_answer *a, const struct mcp_desc *d, const void *msg)
{
	int r;

	if (a->oneway)
		return 0;
	if (a->given)
		return mc_fail(-MC_EPARAM, "second reply to one request: %s", mcp_desc_str(d));
	r = mcp_encode(d, msg, a->out);
	if (r < 0)
		return r;
	if (a->out->len - a->begin > a->max_frame) {
		r = mc_fail(-MC_EBUFFER_OVERFLOW, "%s has %zu bytes, the limit of a frame is %u",
			    mcp_desc_str(d), a->out->len - a->begin, a->max_frame);
		a->out->len = a->begin;
		return r;
	}
	a->given = true;
	return 0;
}

/* Write the header in front of the body at @begin; an error has no body. */
static void serve_frame_reply(struct mcp_buf *out, size_t begin, uint16_t type, uint32_t id, int err)
{
	struct mcp_frame f = { .type = type, .flags = MCP_FRAME_REPLY, .id = id };

	if (err < 0) {
		out->len = begin;
		f.status = mc_err_to_wire(err);
	}
	f.length = (uint32_t)(out->len - begin);
	mcp_frame_pack(&f, out->data + begin - MCP_FRAME_HEADER);
}

static int serve_refuse(struct mc_metric *count, int err)
{
	mc_metric_add(count, 1);
	return err;
}

void mcp_serve_bad_header(const struct mcp_session *s)
{
	mc_metric_add(&bad_header, 1);
	mc_warn("rpc", "closing a connection: %s peer=%s", mc_err_detail(-MC_EPROTO), s->peer);
}

bool mcp_serve_refuse_tls(const struct mcp_session *s, const uint8_t first[MCP_FRAME_HEADER], struct mcp_buf *out)
{
	/* RFC 8446: a handshake record begins with 22 and a version 3.x; alert "protocol_version", fatal. */
	static const uint8_t alert[] = { 21, 3, 3, 0, 2, 2, 70 };

	if (first[0] != 22 || first[1] != 3 || mcp_buf_reserve(out, sizeof(alert)) < 0)
		return false;
	memcpy(out->data + out->len, alert, sizeof(alert));
	out->len += sizeof(alert);
	mc_metric_add(&bad_header, 1);
	mc_warn("rpc", "refused: the peer has a credential, and this server no security (--security=on) peer=%s",
		s->peer);
	return true;
}

int mcp_serve_hello(struct mcp_session *s, const struct mcp_frame *f, const void *body)
{
	struct mcp_hello hello;

	if (f->type != MCP_HELLO || f->flags & MCP_FRAME_ONEWAY)
		return serve_refuse(&bad_hello, mc_fail(-MC_EPROTO, "first message is not a hello"));
	if (mcp_decode(&mcp_desc_hello, body, f->length, &hello) < 0)
		return serve_refuse(&bad_hello, -MC_EPROTO);
	if (hello.magic != MCP_MAGIC)
		return serve_refuse(&bad_hello, mc_fail(-MC_EPROTO, "hello of another protocol"));
	if (hello.version < MCP_MIN_VERSION || hello.min_version > MCP_VERSION ||
	    hello.min_version > hello.version)
		return serve_refuse(&bad_hello, mc_fail(-MC_EVERSION,
			"peer supports versions %u to %u, this server %u to %u", hello.min_version,
			hello.version, MCP_MIN_VERSION, MCP_VERSION));
	if (s->excess)
		return serve_refuse(&bad_hello, mc_fail(-MC_ELIMIT, "too many connections"));
	if (hello.lane != MCP_CHANNEL_CONTROL && hello.lane != MCP_CHANNEL_HEARTBEAT)
		return serve_refuse(&bad_hello, mc_fail(-MC_ENOTSUP, "unknown channel %u", hello.lane));
	s->client = hello.client;
	s->channel = hello.lane;
	s->version = hello.version < MCP_VERSION ? hello.version : MCP_VERSION;
	return 0;
}

int mcp_serve_welcome(struct mcp_session *s, uint32_t id, int err, struct mcp_buf *out)
{
	const struct mcp_server_conf *conf = &s->server->conf;
	struct mcp_hello_reply hello = {
		.version = s->version, .server = conf->server_id, .max_frame = conf->max_frame,
		.max_outstanding = conf->max_outstanding, .pool = conf->pool,
		.software = mcp_bytes(conf->software, strlen(conf->software)),
	};
	size_t begin;
	int r;

	r = mcp_buf_reserve(out, MCP_FRAME_HEADER);
	if (r < 0)
		return r;
	out->len += MCP_FRAME_HEADER;
	begin = out->len;
	if (!err) {
		mc_metric_add(&requests_hello, 1);
		err = mcp_encode(&mcp_desc_hello_reply, &hello, out);
	}
	serve_frame_reply(out, begin, MCP_HELLO, id, err);
	return 0;
}

size_t mcp_refuse_plain(const uint8_t *first, size_t len, uint8_t ret[64])
{
	/* Offset of the field version in a hello. */
	const size_t version = MCP_FRAME_HEADER + sizeof(uint32_t);
	struct mcp_frame f;
	int why = -EACCES;

	_Static_assert(MCP_FRAME_HEADER <= 64, "the answer has no other bytes");
	if (len < MCP_FRAME_HEADER || mcp_frame_unpack(first, MCP_FRAME_MAX, &f) < 0 || f.type != MCP_HELLO)
		return 0;
	if (len >= version + sizeof(uint16_t) && mcp_get_u16(first + version) < MCP_CREDENTIAL_VERSION)
		why = -MC_EVERSION;
	f = (struct mcp_frame){
		.type = MCP_HELLO, .flags = MCP_FRAME_REPLY, .id = f.id, .status = mc_err_to_wire(why),
	};
	mcp_frame_pack(&f, ret);
	return MCP_FRAME_HEADER;
}

static void serve_audit(struct mcp_session *s, uint16_t type, const void *body, size_t len, int result)
{
	const struct mcp_server_conf *conf = &s->server->conf;

	if (conf->audit)
		conf->audit(s, type, body, len, result, conf->arg);
}

void mcp_serve_refused(struct mcp_session *s, int err)
{
	if (err == -EACCES)
		serve_audit(s, MCP_HELLO, NULL, 0, err);
}

static int serve_run_handler(struct mcp_session *s, const struct mcp_frame *f, const void *body,
		       struct mcp_answer *answer)
{
	const struct mcp_server *server = s->server;
	const struct mcp_serves *h;
	int r;

	if (f->type >= server->types || !server->by_type[f->type].fn)
		return serve_refuse(&bad_type, mc_fail(-MC_ENOTSUP, "unknown request type %u", f->type));
	h = &server->by_type[f->type];
	if (s->channel != MCP_CHANNEL_CONTROL && !h->any_channel)
		return serve_refuse(&bad_type, mc_fail(-MC_ENOTSUP, "%s is not for channel %u",
						 mcp_desc_str(mcp_desc_of(f->type, false)), s->channel));
	r = mc_principal_check(&s->principal, h->roles);
	if (r < 0) {
		serve_audit(s, f->type, body, f->length, r);
		return serve_refuse(&bad_role, r);
	}
	r = mc_fault("rpc.serve");
	if (r < 0)
		return mc_fail(r, "fault rpc.serve");
	r = h->fn(s, body, f->length, answer, server->conf.arg);
	if (r == MCP_AGAIN)
		return r;
	mc_metric_add(requests[f->type], 1);
	if (r == -MC_EPROTO) {
		mc_metric_add(&bad_body, 1);
		mc_debug("rpc", "%s peer=%s", mc_err_detail(r), s->peer);
	}
	if (r >= 0 && !answer->given && !answer->oneway && mcp_desc_of(f->type, true))
		r = mc_fail(-MC_EINTERNAL, "request %s was not answered",
			    mcp_desc_str(mcp_desc_of(f->type, false)));
	if (__builtin_expect(h->audited || r == -EACCES, 0))
		serve_audit(s, f->type, body, f->length, r);
	return r;
}

int mcp_serve_request(struct mcp_session *s, const struct mcp_frame *f, const void *body,
		      struct mcp_buf *out, uint64_t *now)
{
	struct mcp_answer answer = {
		.out = out, .max_frame = s->server->conf.max_frame,
		.oneway = f->flags & MCP_FRAME_ONEWAY,
	};
	uint64_t came = *now;
	int r;

	if (!answer.oneway) {
		r = mcp_buf_reserve(out, MCP_FRAME_HEADER);
		if (r < 0)
			return r;
		out->len += MCP_FRAME_HEADER;
		answer.begin = out->len;
	}
	r = serve_run_handler(s, f, body, &answer);
	if (r == MCP_AGAIN) {
		if (!answer.oneway)
			out->len = answer.begin - MCP_FRAME_HEADER;
		return r;
	}
	MC_FAULT_POINT("rpc.reply");
	if (!answer.oneway)
		serve_frame_reply(out, answer.begin, f->type, f->id, r);
	*now = mc_now_ns();
	mc_metric_observe(&latency, *now - came);
	return 0;
}
