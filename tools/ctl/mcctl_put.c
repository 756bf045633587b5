/* SPDX-License-Identifier: Apache-2.0
 * mcctl_put.c - store a file or standard input. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOM_MIN (1u << 20)

struct input {
	const char *name;
	int fd;
	char *data;
	size_t len, room;
};

static enum mcctl_status complain_file(const char *what, const struct input *in)
{
	return mcctl_complain(MCCTL_FAILED, "cannot %s %s: %s", what, in->name, strerror(errno));
}

static enum mcctl_status input_grow(struct input *in)
{
	size_t room = in->room + in->room / 2;
	char *data = realloc(in->data, room);

	if (!data)
		return mcctl_complain(MCCTL_FAILED, "%s: out of memory after %zu bytes", in->name, in->len);
	in->data = data;
	in->room = room;
	return MCCTL_OK;
}

/* Read everything into memory: a put needs all bytes at once, and a mapped file could be truncated meanwhile. */
static enum mcctl_status input_read_all(struct input *in, uint64_t expected)
{
	enum mcctl_status status = MCCTL_OK;
	struct mcctl_progress progress;
	ssize_t n = 1;

	/* One more than expected, to see the end of file without growing. */
	in->room = expected + 1 < ROOM_MIN ? ROOM_MIN : (size_t)expected + 1;
	in->data = malloc(in->room);
	if (!in->data)
		return mcctl_complain(MCCTL_FAILED, "%s: out of memory for %llu bytes", in->name,
				      (unsigned long long)expected);
	mcctl_progress_begin(&progress, in->name, expected);
	while (n > 0 && status == MCCTL_OK) {
		if (in->len == in->room)
			status = input_grow(in);
		if (status != MCCTL_OK)
			break;
		n = read(in->fd, in->data + in->len, in->room - in->len < (8u << 20) ?
			 in->room - in->len : (8u << 20));
		if (n < 0 && errno == EINTR)
			n = 1;
		else if (n < 0)
			status = complain_file("read", in);
		else
			in->len += (size_t)n;
		mcctl_progress_step(&progress, in->len);
	}
	mcctl_progress_end(&progress);
	return status;
}

static enum mcctl_status input_read(struct input *in, const char *name)
{
	enum mcctl_status status;
	struct stat st;

	in->name = strcmp(name, "-") ? name : "standard input";
	in->fd = strcmp(name, "-") ? open(name, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	if (in->fd < 0)
		return complain_file("open", in);
	if (fstat(in->fd, &st) < 0)
		status = complain_file("read", in);
	else if (S_ISDIR(st.st_mode))
		status = mcctl_complain(MCCTL_FAILED, "%s is a directory", in->name);
	else
		status = input_read_all(in, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
	if (in->fd != STDIN_FILENO)
		close(in->fd);
	return status;
}

static void set_opts(const struct mcctl_conf *conf, struct mcs_put_opts *opts)
{
	memset(opts, 0, sizeof(*opts));
	opts->flags = (conf->upsert ? MCS_PUT_UPSERT : 0) | (conf->excl ? MCS_PUT_EXCL : 0) |
		      (conf->hard_pin ? MCS_PUT_HARD_PIN : 0) |
		      (conf->soft_pin ? MCS_PUT_SOFT_PIN : 0);
	opts->replicas = (unsigned)conf->replicas;
}

static enum mcctl_status store_input(struct mcctl *c, struct mcs_key key, const struct input *in)
{
	struct iovec iov = { in->data, in->len };
	/* A batch of one, because its result tells whether the key existed. */
	struct mcs_put_item item = { .key = key, .iov = &iov, .iovcnt = 1 };
	struct mcs_put_opts opts;
	int r;

	set_opts(c->conf, &opts);
	r = mcs_put_batch(c->store, &item, 1, &opts, -1);
	if (r >= 0)
		r = item.result;
	if (r < 0)
		return mcctl_error(r, "cannot store %s", c->argv[0]);
	if (c->conf->json)
		return mcctl_json_print(json_pack("{s:o*, s:I, s:b}", "key", mcctl_key_json(key),
						  "size", (json_int_t)in->len, "existed",
						  item.existed));
	if (item.existed)
		fprintf(stderr, "mcctl: %s already exists and was not changed; --upsert "
			"replaces it\n", c->argv[0]);
	return MCCTL_OK;
}

int mcctl_put(struct mcctl *c)
{
	struct input in = { .fd = -1 };
	enum mcctl_status status;
	struct mcs_key key;

	if (c->conf->upsert && c->conf->excl)
		return mcctl_complain(MCCTL_USAGE, "--upsert and --excl exclude each other");
	if (c->conf->hard_pin && c->conf->soft_pin)
		return mcctl_complain(MCCTL_USAGE, "--hard_pin and --soft_pin exclude each other");
	status = mcctl_key_parse(c, c->argv[0], &key);
	if (status != MCCTL_OK)
		return status;
	status = input_read(&in, c->argc > 1 ? c->argv[1] : "-");
	if (status == MCCTL_OK)
		status = store_input(c, key, &in);
	free(in.data);
	mcctl_key_free(&key);
	return status;
}
