/* SPDX-License-Identifier: Apache-2.0
 * meta_node.c - a client of a metadata server that executes one command per line of input and prints one line for
 * each: the result, or the error.
 *
 *	publish KEY TEXT	get KEY		unpublish KEY
 *	rpc NAME HOST PORT	rpc_get NAME	rpc_unpublish NAME
 *	long KEY LENGTH		publish a text of that length; "check KEY LENGTH" checks that it is there
 *	fds			print the number of open descriptors
 *	end */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "engine/upstream/rpc_meta.h"
#include "meta/meta.h"

static uint64_t limit(void)
{
	const char *ms = getenv("NODE_MS");

	return mc_deadline_ms(ms ? atoi(ms) : 10000);
}

static void answer(int r)
{
	if (r < 0)
		printf("%d %s: %s\n", r, mc_strerror(r), mc_err_detail(r));
	else
		printf("ok\n");
}

/* A text without repeated parts at regular distances. */
static char *long_text(size_t len)
{
	char *text = malloc(len + 1);

	for (size_t i = 0; text && i < len; i++)
		text[i] = (char)('a' + (i * 7 + i / 1000) % 26);
	if (text)
		text[len] = '\0';
	return text;
}

static void check(struct mcd_client *m, const char *key, size_t len)
{
	char *text = NULL, *expected = long_text(len);
	int r = mcd_get(m, key, &text, limit());

	if (r < 0)
		answer(r);
	else
		printf("%s\n", expected && !strcmp(text, expected) ? "same" : "different");
	free(text);
	free(expected);
}

static void get(struct mcd_client *m, const char *key)
{
	char *text = NULL;
	int r = mcd_get(m, key, &text, limit());

	if (r < 0)
		answer(r);
	else
		printf("%s\n", text);
	free(text);
}

static void rpc_get(struct mcd_client *m, const char *name)
{
	struct mce_rpc_meta rpc;
	int r = mce_rpc_meta_get(m, name, &rpc, limit());

	if (r < 0)
		answer(r);
	else
		printf("%s %d\n", rpc.host, rpc.port);
}

static void rpc_publish(struct mcd_client *m, const char *name, const char *host, int port)
{
	struct mce_rpc_meta rpc = { .port = port };

	snprintf(rpc.host, sizeof(rpc.host), "%s", host);
	answer(mce_rpc_meta_publish(m, name, &rpc, limit()));
}

static int count_fds(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void obey(struct mcd_client *m, char *line)
{
	char none[] = "", *word[4] = { none, none, none, none }, *text;
	int n = 0;

	for (char *p = strtok(line, " \n"); p && n < 4; p = strtok(NULL, n < 2 ? " \n" : "\n"))
		word[n++] = p;
	if (!strcmp(word[0], "publish")) {
		answer(mcd_publish(m, word[1], word[2], limit()));
	} else if (!strcmp(word[0], "unpublish")) {
		answer(mcd_unpublish(m, word[1], limit()));
	} else if (!strcmp(word[0], "get")) {
		get(m, word[1]);
	} else if (!strcmp(word[0], "long")) {
		text = long_text((size_t)atol(word[2]));
		answer(text ? mcd_publish(m, word[1], text, limit()) : -ENOMEM);
		free(text);
	} else if (!strcmp(word[0], "check")) {
		check(m, word[1], (size_t)atol(word[2]));
	} else if (!strcmp(word[0], "rpc")) {
		text = strchr(word[2], ' ');
		if (text)
			*text++ = '\0';
		rpc_publish(m, word[1], word[2], text ? atoi(text) : 0);
	} else if (!strcmp(word[0], "rpc_get")) {
		rpc_get(m, word[1]);
	} else if (!strcmp(word[0], "rpc_unpublish")) {
		answer(mce_rpc_meta_unpublish(m, word[1], limit()));
	} else if (!strcmp(word[0], "fds")) {
		printf("%d\n", count_fds());
	} else {
		printf("what is %s?\n", word[0]);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const struct mc_log_conf log = { .levels = "info" };
	struct mcd_client *m;
	char line[4096];
	int r;

	mc_log_open(&log);
	r = argc == 2 ? mcd_open(argv[1], &m) : -EINVAL;
	if (r < 0) {
		answer(r);
		return 1;
	}
	while (fgets(line, sizeof(line), stdin) && strcmp(line, "end\n"))
		obey(m, line);
	mcd_close(m);
	return 0;
}
