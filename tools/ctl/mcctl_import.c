/* SPDX-License-Identifier: Apache-2.0
 * mcctl_import.c - put the objects of an S3 segment of another pool into this one. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <string.h>

#include "common/options/options.h"

#define MESSAGES_MAX 20u	/* lines about objects that failed */

struct import {
	struct mcctl *c;
	struct mcctl_progress bar;
	struct mcs_import sum;
	unsigned messages;
};

static void import_step(void *arg, const struct mcs_import *so_far, const char *tenant, struct mcs_key key, int result)
{
	struct import *im = arg;

	if (!im->bar.what)
		mcctl_progress_begin(&im->bar, "importing", so_far->found_bytes);
	if (result < 0 && im->messages++ < MESSAGES_MAX) {
		mcctl_progress_end(&im->bar);
		fputs("mcctl: ", stderr);
		if (*tenant && strcmp(tenant, "default"))
			fprintf(stderr, "tenant %s: ", tenant);
		if (key.len)
			mcctl_key_print(im->c->conf->raw, key, stderr);
		else
			fputs("an object", stderr);
		fprintf(stderr, " is not imported: %s\n", mcs_error_detail(result));
	}
	mcctl_progress_step(&im->bar, so_far->done_bytes);
}

static void import_print(const struct mcs_import *s)
{
	char bytes[32];

	printf("found %llu objects (%s): %llu imported, %llu were here already, %llu failed\n",
	       (unsigned long long)s->found, mc_format_size(s->found_bytes, bytes, sizeof(bytes)),
	       (unsigned long long)s->imported, (unsigned long long)s->existed, (unsigned long long)s->failed);
	if (s->differ)
		printf("%llu keys have another value in this pool, which stays\n", (unsigned long long)s->differ);
}

static enum mcctl_status import_end(const struct import *im, int r)
{
	const struct mcs_import *s = &im->sum;
	enum mcctl_status status = MCCTL_OK;

	if (im->c->conf->json)
		status = mcctl_json_print(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}",
						    "found", (json_int_t)s->found, "bytes", (json_int_t)s->found_bytes,
						    "imported", (json_int_t)s->imported,
						    "existed", (json_int_t)s->existed,
						    "differ", (json_int_t)s->differ, "failed", (json_int_t)s->failed,
						    "evicted", (json_int_t)s->evicted));
	else if (r == 0 || s->found)
		import_print(s);
	if (im->messages > MESSAGES_MAX)
		mcctl_complain(MCCTL_FAILED, "and %u more", im->messages - MESSAGES_MAX);
	if (r < 0)
		status = mcctl_error(r, "the import of %s has ended early; repeat it, it continues", im->c->argv[0]);
	else if (s->failed)
		status = mcctl_complain(MCCTL_FAILED, "%llu objects are not imported; the bucket still has them",
					(unsigned long long)s->failed);
	else if (s->evicted)
		status = mcctl_complain(MCCTL_FAILED, "%llu imported objects were evicted again: this pool is too "
					"small; add memory, disks or a larger --s3_segment_size, and repeat the import",
					(unsigned long long)s->evicted);
	return status;
}

int mcctl_import(struct mcctl *c)
{
	struct import im = { .c = c };
	int r = mcs_import(c->store, c->argv[0], (unsigned)c->conf->concurrency, -1, import_step, &im, &im.sum);

	mcctl_progress_end(&im.bar);
	return (int)import_end(&im, r);
}
