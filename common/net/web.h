/* SPDX-License-Identifier: Apache-2.0
 * web.h - HTTP calls over libcurl, for servers whose answers are small texts or blobs.  In a library of its own
 * (libmcweb.la), because few programs need libcurl.  Any thread. */
#ifndef MC_WEB_H
#define MC_WEB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MC_WEB_TEXT_MAX (64u << 20)	/* bytes of an answer */
#define MC_WEB_TAG_MAX 200u

struct mc_web;

struct mc_web_call {
	const char *method, *url;
	const char *body;	/* NULL: none */
	size_t body_len;	/* 0: that of the string */
	const char *type;	/* content type of the body; NULL: application/json */
	const char *header;	/* additional header line, NULL: none */
	const char *condition;	/* another one */
	const char *range;	/* "FIRST-LAST": only these bytes, if the server knows ranges; NULL: all */
	const char *sign, *keys;	/* NULL, or libcurl's text for the AWS signature, and ID:SECRET */
	unsigned connect_ms, stall_ms;	/* limits to connect, and without progress; 0: the deadline alone */
	bool keep;		/* leave the connection open for the next call */
	uint64_t deadline;
	const atomic_bool *cancel;	/* true ends the call within about a second; NULL: not used */
	size_t room;			/* private: bytes allocated for the text */
	uint64_t stall_at, moved;	/* private, for stall_ms: the end of the call; bytes sent and received */
	/* the answer */
	long status;
	char tag[MC_WEB_TAG_MAX];	/* its ETag, "": none, or a longer one */
	char *text;		/* malloc'ed, NUL-terminated, at most MC_WEB_TEXT_MAX bytes; NULL: empty */
	size_t len;
};

int mc_web_open(struct mc_web **ret);
/* For https: the files of the only authority that may have signed a server's certificate, and of the client's
 * certificate and its key; NULL: the system's authorities, no certificate.  They are read for each connection.  Call it
 * before the first call.  -ENOMEM. */
int mc_web_set_tls(struct mc_web *web, const char *ca, const char *cert, const char *key);
void mc_web_close(struct mc_web *web);		/* NULL is fine */
/* 0 for any HTTP status of the answer.  The caller frees c->text in any case.  -ECANCELED, -ETIMEDOUT, ... */
int mc_web_run(struct mc_web *web, struct mc_web_call *c);
/* Status and first line of an answer, for an error's detail, cut to @len. */
const char *mc_web_status_line(const struct mc_web_call *c, char *buf, size_t len);

#endif
