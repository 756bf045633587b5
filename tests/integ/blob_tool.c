/* SPDX-License-Identifier: Apache-2.0
 * blob_tool.c - a store of snapshots from the command line, for blob_store.sh.
 *
 *	blob_tool local:DIR|s3 put NAME FILE | get NAME FILE | delete NAME | list PREFIX | fill PREFIX COUNT
 *		| swap NAME WAS|- TEXT */
#include <config.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "tiers/keyed.h"

static int print(void *arg, const char *name)
{
	(void)arg;
	return puts(name) < 0 ? -EIO : 0;
}

static int put(struct mct_keyed *b, const char *name, const char *path)
{
	char *data = malloc(MCT_KEYED_MAX);
	FILE *f = fopen(path, "r");
	size_t len = data && f ? fread(data, 1, MCT_KEYED_MAX, f) : 0;
	int r = data && f ? mct_keyed_put(b, name, data, len) : -EIO;

	if (f)
		fclose(f);
	free(data);
	return r;
}

static int get(struct mct_keyed *b, const char *name, const char *path)
{
	void *data = NULL;
	size_t len = 0;
	int r = mct_keyed_get(b, name, &data, &len);
	FILE *f = r == 0 ? fopen(path, "w") : NULL;

	if (r == 0 && (!f || fwrite(data, 1, len, f) != len))
		r = -EIO;
	if (f && fclose(f) < 0)
		r = -EIO;
	free(data);
	return r;
}

static int fill(struct mct_keyed *b, const char *prefix, int count)
{
	char name[128];
	int r = 0;

	for (int i = 0; i < count && r == 0; i++) {
		snprintf(name, sizeof(name), "%s%04d", prefix, i);
		r = mct_keyed_put(b, name, name, strlen(name));
	}
	return r;
}

int main(int argc, char **argv)
{
	bool local = argc > 1 && !strncmp(argv[1], "local:", 6);
	struct mct_keyed *b = NULL;
	int r = argc > 3 ? mct_keyed_open(local ? "local" : "s3", local ? argv[1] + 6 : NULL, &b) : -EINVAL;

	if (r == 0 && !strcmp(argv[2], "put") && argc == 5)
		r = put(b, argv[3], argv[4]);
	else if (r == 0 && !strcmp(argv[2], "get") && argc == 5)
		r = get(b, argv[3], argv[4]);
	else if (r == 0 && !strcmp(argv[2], "swap") && argc == 6)
		r = mct_keyed_swap(b, argv[3], strcmp(argv[4], "-") ? argv[4] : NULL, strlen(argv[4]), argv[5],
				   strlen(argv[5]));
	else if (r == 0 && !strcmp(argv[2], "delete"))
		r = mct_keyed_delete(b, argv[3]);
	else if (r == 0 && !strcmp(argv[2], "list"))
		r = mct_keyed_list(b, argv[3], print, NULL);
	else if (r == 0 && !strcmp(argv[2], "fill") && argc == 5)
		r = fill(b, argv[3], atoi(argv[4]));
	if (r < 0)
		fprintf(stderr, "blob_tool: %d %s\n", r, mc_err_detail(r));
	mct_keyed_close(b);
	return r < 0;
}
