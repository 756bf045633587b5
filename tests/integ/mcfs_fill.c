/* SPDX-License-Identifier: Apache-2.0
 * mcfs_fill.c - many small objects, faster than a mount makes files.
 *
 *	mcfs_fill MASTER PREFIX N	PREFIXk00000 ... get their number in 5 digits as value;
 *					N 0: remove all with that prefix */
#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mooncake/mcs.h>

#define BATCH 500
#define DIGITS 5

static mcs_t *store;

static int fill(const char *prefix, unsigned from, unsigned n)
{
	static char key[BATCH][256], value[BATCH][16];
	static struct mcs_put_item items[BATCH];
	static struct iovec iov[BATCH];

	for (unsigned i = 0; i < n; i++) {
		snprintf(value[i], sizeof(value[i]), "%0*u", DIGITS, from + i);
		snprintf(key[i], sizeof(key[i]), "%sk%s", prefix, value[i]);
		iov[i] = (struct iovec){ value[i], strlen(value[i]) };
		items[i] = (struct mcs_put_item){
			.key = { key[i], strlen(key[i]) }, .iov = &iov[i], .iovcnt = 1,
		};
	}
	return mcs_put_batch(store, items, n, NULL, -1) == (int)n ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct mcs_conf conf;
	unsigned n;
	int r = 0;

	if (argc != 4)
		return 2;
	n = (unsigned)atoi(argv[3]);
	mcs_conf_init(&conf);
	conf.master = argv[1];
	r = mcs_open(&conf, &store);
	if (r < 0) {
		fprintf(stderr, "mcfs_fill: %s\n", mcs_error_detail(r));
		return 1;
	}
	for (unsigned i = 0; i < n && r == 0; i += BATCH)
		r = fill(argv[2], i, n - i < BATCH ? n - i : BATCH);
	if (!n && mcs_remove_match(store, (struct mcs_key){ argv[2], strlen(argv[2]) }, NULL,
				   MCS_REMOVE_FORCE, -1) < 0)
		r = -1;
	mcs_close(store);
	return r < 0;
}
