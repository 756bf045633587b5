/* SPDX-License-Identifier: Apache-2.0
 * blob_s3_list.c - decoder of S3's answer to ListObjectsV2, which is XML. */
#include <config.h>

#include <errno.h>
#include <expat.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "meta/blob_i.h"

#define DEPTH_KEY 3		/* ListBucketResult/Contents/Key */
#define DEPTH_NEXT 2		/* ListBucketResult/NextContinuationToken */

struct decoder {
	XML_Parser parser;
	mcd_blob_fn fn;
	void *arg;
	unsigned depth;
	bool root, in_contents;
	bool takes;		/* the text of this element is wanted */
	char text[1025];
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

static void on_start(void *arg, const char *name, const char **attributes)
{
	struct decoder *d = arg;

	(void)attributes;
	name = local_name(name);
	d->depth++;
	if (d->depth == 1)
		d->root = !strcmp(name, "ListBucketResult");
	if (d->depth == 2)
		d->in_contents = !strcmp(name, "Contents");
	d->takes = (d->depth == DEPTH_KEY && d->in_contents && !strcmp(name, "Key")) ||
		(d->depth == DEPTH_NEXT && !strcmp(name, "NextContinuationToken"));
	d->len = 0;
}

static void on_text(void *arg, const char *text, int len)
{
	struct decoder *d = arg;

	if (!d->takes)
		return;
	if (d->len + (size_t)len >= sizeof(d->text)) {
		d->r = -EBADMSG;
		XML_StopParser(d->parser, XML_FALSE);
		return;
	}
	memcpy(d->text + d->len, text, (size_t)len);
	d->len += (size_t)len;
}

static void on_end(void *arg, const char *name)
{
	struct decoder *d = arg;

	(void)name;
	if (d->takes && d->r == 0) {
		d->text[d->len] = '\0';
		if (d->depth == DEPTH_KEY) {
			d->r = d->fn(d->arg, d->text);
		} else if (d->len) {
			free(d->next);
			d->next = strdup(d->text);
			d->r = d->next ? 0 : -ENOMEM;
		}
		if (d->r)
			XML_StopParser(d->parser, XML_FALSE);
	}
	d->takes = false;
	d->depth--;
}

int mcd_s3_list_decode(const char *text, size_t len, mcd_blob_fn fn, void *arg, char **ret_next)
{
	struct decoder d = { .parser = XML_ParserCreate(NULL), .fn = fn, .arg = arg };

	*ret_next = NULL;
	if (!d.parser)
		return -ENOMEM;
	XML_SetUserData(d.parser, &d);
	XML_SetElementHandler(d.parser, on_start, on_end);
	XML_SetCharacterDataHandler(d.parser, on_text);
	if (XML_Parse(d.parser, text, (int)len, 1) != XML_STATUS_OK && d.r == 0)
		d.r = -EBADMSG;
	XML_ParserFree(d.parser);
	if (d.r == 0 && !d.root)
		d.r = -EBADMSG;
	if (d.r == 0)
		*ret_next = TAKE_PTR(d.next);
	free(d.next);
	return d.r;
}
