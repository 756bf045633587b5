/* SPDX-License-Identifier: Apache-2.0
 * audit_line.c - lines of the audit log: from requests to events, and from events to JSON. */
#include <config.h>

#include "master/security/audit_line.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/err.h"
#include "common/sys/clock.h"
#include "master/security/audit.h"

/* Longest text of a field, in bytes; a byte takes six at most in JSON, and an event has six texts. */
#define TEXT_MAX 192u

struct line {
	char *text;
	size_t len;
};

/* ---- JSON ---- */

static void line_add(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void line_add(struct line *l, const char *fmt, ...)
{
	size_t room = MCM_AUDIT_LINE - l->len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(l->text + l->len, room, fmt, ap);
	va_end(ap);
	l->len += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room - 1;
}

/* Bytes of peers are untrusted: no line may end in them, or a field begin. */
static void line_text(struct line *l, const char *field, const void *data, size_t len)
{
	const unsigned char *p = data;
	bool cut = len > TEXT_MAX;
	json_t *valid;

	if (!len)
		return;
	len = cut ? TEXT_MAX : len;
	/* It is NULL for bytes that are not UTF-8, as those of a cut character. */
	valid = json_stringn(data, len);
	line_add(l, ",\"%s\":\"", field);
	for (size_t i = 0; i < len; i++) {
		if (p[i] == '"' || p[i] == '\\')
			line_add(l, "\\%c", p[i]);
		else if (p[i] < 0x20 || p[i] == 0x7f)
			line_add(l, "\\u%04x", p[i]);
		else if (p[i] >= 0x80 && !valid)
			line_add(l, "\\ufffd");
		else
			l->text[l->len++] = (char)p[i];
	}
	line_add(l, "%s\"", cut ? "..." : "");
	json_decref(valid);
}

static void line_str(struct line *l, const char *field, const char *text)
{
	if (text)
		line_text(l, field, text, strlen(text));
}

static void line_begin(struct line *l, const char *event)
{
	uint64_t ns = mc_wall_ns();
	time_t sec = (time_t)(ns / MC_NS_PER_SEC);
	char date[32];
	struct tm tm;

	gmtime_r(&sec, &tm);
	strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	line_add(l, "{\"time\":\"%s.%06uZ\",\"event\":\"%s\"", date, (unsigned)(ns % MC_NS_PER_SEC / 1000), event);
}

static size_t line_end(struct line *l)
{
	line_add(l, "}\n");
	return l->len;
}

static void line_principal(struct line *l, const struct mc_principal *who)
{
	switch (who->source) {
	case MC_PRINCIPAL_CREDENTIAL:
		line_str(l, "role", mc_role_name(who->roles));
		line_str(l, "name", who->name);
		line_add(l, ",\"serial\":\"%016" PRIx64 "\"", who->serial);
		break;
	case MC_PRINCIPAL_USER:
		line_str(l, "role", who->roles == MC_ROLES_ALL ? "all" : mc_role_name(who->roles));
		line_add(l, ",\"uid\":%" PRIu32, who->uid);
		break;
	case MC_PRINCIPAL_LOCAL:
	case MC_PRINCIPAL_ANYONE:
		break;
	}
	line_str(l, "tenant", who->tenant);
}

size_t mcm_audit_line(char ret[MCM_AUDIT_LINE], const struct mcm_audit_event *e, unsigned suppressed)
{
	struct line l = { ret, 0 };

	_Static_assert(MCM_AUDIT_LINE > 6 * (6 * TEXT_MAX + 32) + 512, "longer lines");
	line_begin(&l, e->event);
	if (e->who)
		line_principal(&l, e->who);
	line_text(&l, "peer", e->peer.data, e->peer.len);
	line_str(&l, "channel", e->channel);
	line_str(&l, "call", e->call);
	line_text(&l, "subject", e->subject.data, e->subject.len);
	if (e->keys >= 0)
		line_add(&l, ",\"keys\":%" PRId64, e->keys);
	line_str(&l, "result", e->result < 0 ? mc_strerror(e->result) : "ok");
	if (suppressed)
		line_add(&l, ",\"suppressed\":%u", suppressed);
	return line_end(&l);
}

size_t mcm_audit_line_lost(char ret[MCM_AUDIT_LINE], uint64_t n)
{
	struct line l = { ret, 0 };

	line_begin(&l, "lost");
	line_add(&l, ",\"lines\":%" PRIu64, n);
	return line_end(&l);
}

/* ---- requests ---- */

const uint16_t mcm_audited[] = { MCP_MOUNT, MCP_UNMOUNT, MCP_JOIN, 0 };

/* The number of keys in the requests that have lists of them; -1: not known. */
static int64_t keys_of(uint16_t type, const void *body, size_t len)
{
	union {
		struct mcp_get get;
		struct mcp_exist exist;
		struct mcp_remove remove;
		struct mcp_put_start put_start;
		struct mcp_put_end put_end;
	} rq;
	static const uint16_t with_keys[] = { MCP_GET, MCP_EXIST, MCP_REMOVE, MCP_PUT_START, MCP_PUT_END };
	bool has = false;

	for (unsigned i = 0; i < sizeof(with_keys) / sizeof(*with_keys); i++)
		has = has || type == with_keys[i];
	if (!has || mcp_decode(mcp_desc_of(type, false), body, len, &rq) < 0)
		return -1;
	return type == MCP_GET ? rq.get.keys.count : type == MCP_EXIST ? rq.exist.keys.count :
		type == MCP_REMOVE ? rq.remove.keys.count : type == MCP_PUT_START ? rq.put_start.items.count :
		rq.put_end.items.count;
}

static const char *id_text(struct mcp_id id, char ret[40])
{
	snprintf(ret, 40, "%016" PRIx64 "-%016" PRIx64, id.hi, id.lo);
	return ret;
}

static struct mcp_bytes text_bytes(const char *text)
{
	return mcp_bytes(text, (uint32_t)strlen(text));
}

/* The thing that the request concerns; @text is for one that is made here. */
static struct mcp_bytes subject_of(uint16_t type, const void *body, size_t len, char text[40])
{
	union {
		struct mcp_mount mount;
		struct mcp_unmount unmount;
		struct mcp_join join;
		struct mcp_credential_create create;
		struct mcp_credential_revoke revoke;
		struct mcp_quota quota;
	} rq;
	struct mcp_bytes none = { 0 };

	switch (type) {
	case MCP_MOUNT:
		return mcp_decode(&mcp_desc_mount, body, len, &rq.mount) < 0 ? none :
			text_bytes(id_text(rq.mount.segment, text));
	case MCP_UNMOUNT:
		return mcp_decode(&mcp_desc_unmount, body, len, &rq.unmount) < 0 ? none :
			text_bytes(id_text(rq.unmount.segment, text));
	case MCP_JOIN:
		return mcp_decode(&mcp_desc_join, body, len, &rq.join) < 0 ? none : rq.join.name;
	case MCP_CREDENTIAL_CREATE:
		return mcp_decode(&mcp_desc_credential_create, body, len, &rq.create) < 0 ? none : rq.create.name;
	case MCP_CREDENTIAL_REVOKE:
		if (mcp_decode(&mcp_desc_credential_revoke, body, len, &rq.revoke) < 0)
			return none;
		snprintf(text, 40, "%016" PRIx64, rq.revoke.serial);
		return text_bytes(text);
	case MCP_QUOTA:
		return mcp_decode(&mcp_desc_quota, body, len, &rq.quota) < 0 ? none : rq.quota.tenant;
	default:
		return none;
	}
}

static const char *event_of(uint16_t type, int result)
{
	if (result == -EACCES)
		return "refused";
	switch (type) {
	case MCP_HELLO:
		return "refused";
	case MCP_MOUNT:
		return "mount";
	case MCP_UNMOUNT:
		return "unmount";
	case MCP_JOIN:
		return "join";
	case MCP_FEED:
		return "feed";
	case MCP_CREDENTIAL_CREATE:
		return "credential";
	case MCP_CREDENTIAL_REVOKE:
		return "revoked";
	default:
		return "call";
	}
}

static struct mcm_audit_event event_begin(struct mcp_session *s, uint16_t type, int result)
{
	const struct mcp_desc *desc = mcp_desc_of(type, false);
	struct mcp_bytes host = mcp_session_host(s);
	bool local = host.len == 5 && !memcmp(host.data, "local", 5);
	bool on_unix = host.len > 4 && !memcmp(host.data, "unix", 4);

	return (struct mcm_audit_event){
		.event = event_of(type, result), .who = mcp_session_principal(s), .peer = host,
		.channel = local ? "local" : on_unix ? "unix" : "rpc", .call = desc ? mcp_desc_str(desc) : NULL,
		.keys = -1, .result = result,
	};
}

void mcm_audit_request(struct mcm_audit *a, struct mcp_session *s, uint16_t type, const void *body, size_t len,
		       int result)
{
	struct mcm_audit_event e;
	char text[40];

	/* mcm_audit_credential() has the serial number of the new credential. */
	if (!a || (type == MCP_CREDENTIAL_CREATE && result >= 0))
		return;
	e = event_begin(s, type, result);
	e.keys = keys_of(type, body, len);
	e.subject = subject_of(type, body, len, text);
	mcm_audit_write(a, &e);
}

void mcm_audit_credential(struct mcm_audit *a, struct mcp_session *s, const char *identity)
{
	struct mcm_audit_event e;

	if (!a)
		return;
	e = event_begin(s, MCP_CREDENTIAL_CREATE, 0);
	e.subject = text_bytes(identity);
	mcm_audit_write(a, &e);
}

void mcm_audit_connect_refused(void *audit, const char *peer, const char *why)
{
	mcm_audit_write(audit, &(const struct mcm_audit_event){
		.event = "connect-refused", .peer = text_bytes(peer), .channel = "rpc", .keys = -1,
		.subject = text_bytes(why), .result = -EACCES,
	});
}

/* @why: empty: no subject. */
static void http_write(struct mcm_audit *a, const struct mc_http_request *rq, const char *why)
{
	bool refused = rq->status == 401 || rq->status == 403;
	char call[128];

	snprintf(call, sizeof(call), "%s %s", rq->method, rq->path);
	mcm_audit_write(a, &(const struct mcm_audit_event){
		.event = refused ? "refused" : "call", .who = &rq->principal, .peer = text_bytes(rq->peer),
		.channel = "http", .call = call, .keys = -1, .subject = text_bytes(why),
		.result = refused ? -EACCES : rq->status >= 500 ? -EIO : rq->status >= 400 ? -EINVAL : 0,
	});
}

void mcm_audit_http_refused(struct mcm_audit *a, const struct mc_http_request *rq, const char *why)
{
	if (a)
		http_write(a, rq, why);
}

void mcm_audit_http(struct mcm_audit *a, const struct mc_http_request *rq, uint32_t roles)
{
	if (a && (rq->status == 401 || rq->status == 403 || roles == MC_MAY_ADMINISTER))
		http_write(a, rq, "");
}
