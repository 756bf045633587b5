/* SPDX-License-Identifier: Apache-2.0
 * s3_list.c - decoder of S3's answer to ListObjectsV2, which is XML. */
#include <config.h>

#include <errno.h>
#include <expat.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "tiers/blob/blob_i.h"

#define DEPTH_KEY 3		/* ListBucketResult/Contents/Key */
#define DEPTH_PAGE 2		/* ListBucketResult/NextContinuationToken, IsTruncated */
#define DEPTH_MAX 16		/* an answer has 4 */
#define LEN_MAX (16u << 20)	/* 1000 keys, the owner of each among others */

struct decoder {
	XML_Parser parser;
	mct_keyed_fn fn;
	void *arg;
	unsigned depth;
	bool root, in_contents;
	enum { TAKES_NOTHING, TAKES_KEY, TAKES_NEXT, TAKES_TRUNCATED } takes;	/* the text of this element */
	bool truncated;
	char text[MCT_S3_TOKEN_MAX + 1];
	size_t len;
	char *next;
	int r;
};

/* Without the namespace's prefix. */
static const char *local_name(const char *name)
{
	const char *colon = strrchr(name, ':');

	return colon ? colon + 1 : name;
}

static void decoder_stop(struct decoder *d, int r)
{
	d->r = r;
	XML_StopParser(d->parser, XML_FALSE);
}

static void on_start(void *arg, const char *name, const char **attributes)
{
	struct decoder *d = arg;

	(void)attributes;
	name = local_name(name);
	d->takes = TAKES_NOTHING;
	d->len = 0;
	if (++d->depth == 1)
		d->root = !strcmp(name, "ListBucketResult");
	if (!d->root || d->depth > DEPTH_MAX) {
		decoder_stop(d, -EBADMSG);
		return;
	}
	if (d->depth == DEPTH_PAGE) {
		d->in_contents = !strcmp(name, "Contents");
		if (!strcmp(name, "NextContinuationToken"))
			d->takes = TAKES_NEXT;
		else if (!strcmp(name, "IsTruncated"))
			d->takes = TAKES_TRUNCATED;
	} else if (d->depth == DEPTH_KEY && d->in_contents && !strcmp(name, "Key")) {
		d->takes = TAKES_KEY;
	}
}

static void on_text(void *arg, const char *text, int len)
{
	struct decoder *d = arg;

	if (d->takes == TAKES_NOTHING || d->r)
		return;
	if (d->len + (size_t)len >= sizeof(d->text)) {
		decoder_stop(d, -EBADMSG);
		return;
	}
	memcpy(d->text + d->len, text, (size_t)len);
	d->len += (size_t)len;
}

static void on_end(void *arg, const char *name)
{
	struct decoder *d = arg;
	int r = 0;

	(void)name;
	d->text[d->len] = '\0';
	/* libexpat may call this once more after it was stopped. */
	if (d->r)
		return;
	if (d->takes == TAKES_KEY) {
		r = d->fn(d->arg, d->text);
	} else if (d->takes == TAKES_TRUNCATED) {
		d->truncated = !strcmp(d->text, "true");
	} else if (d->takes == TAKES_NEXT && d->len) {
		free(d->next);
		d->next = strdup(d->text);
		r = d->next ? 0 : -ENOMEM;
	}
	d->takes = TAKES_NOTHING;
	d->depth--;
	if (r)
		decoder_stop(d, r);
}

/* S3 declares no document type; one could define entities that grow. */
static void on_doctype(void *arg, const char *name, const char *system_id, const char *public_id, int internal)
{
	(void)name;
	(void)system_id;
	(void)public_id;
	(void)internal;
	decoder_stop(arg, -EBADMSG);
}

int mct_s3_list_decode(const char *text, size_t len, mct_keyed_fn fn, void *arg, char **ret_next)
{
	struct decoder d = { .parser = XML_ParserCreate(NULL), .fn = fn, .arg = arg };

	*ret_next = NULL;
	if (!d.parser)
		return -ENOMEM;
	if (len > LEN_MAX) {
		XML_ParserFree(d.parser);
		return -EBADMSG;
	}
	XML_SetUserData(d.parser, &d);
	XML_SetElementHandler(d.parser, on_start, on_end);
	XML_SetStartDoctypeDeclHandler(d.parser, on_doctype);
	XML_SetCharacterDataHandler(d.parser, on_text);
	if (XML_Parse(d.parser, text, (int)len, 1) != XML_STATUS_OK && d.r == 0)
		d.r = -EBADMSG;
	XML_ParserFree(d.parser);
	if (d.r == 0 && d.truncated && !d.next)
		d.r = -EBADMSG;
	if (d.r == 0 && d.truncated)
		*ret_next = TAKE_PTR(d.next);
	free(d.next);
	return d.r;
}
