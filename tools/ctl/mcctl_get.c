/* SPDX-License-Identifier: Apache-2.0
 * mcctl_get.c - write an object to a file or to standard output.
 *
 * A file gets its name only when it is complete: it is written under a temporary name first, which a signal removes. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fault.h"
#include "common/sys/random.h"

#define PIECE (8u << 20)

struct output {
	const char *name;	/* "-": standard output */
	char *tmp;		/* NULL: written in place (a device, a pipe) */
	int fd;
};

/* The temporary file that a signal must remove; NULL: none. */
static char *volatile unfinished;

/* End as if the signal had no handler, so that a shell sees it. */
static void on_end(int sig)
{
	char *name = unfinished;

	if (name)
		(void)unlink(name);
	(void)raise(sig);
}

static void ends_set(bool on)
{
	static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ };
	struct sigaction sa = { .sa_handler = on_end, .sa_flags = (int)SA_RESETHAND }, old;
	size_t i;

	for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		sigaddset(&sa.sa_mask, ends[i]);
	for (i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		/* A signal that nohup(1) or a shell ignores stays ignored. */
		if (sigaction(ends[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			(void)sigaction(ends[i], on ? &sa : &(const struct sigaction){ .sa_handler = SIG_DFL }, NULL);
}

static enum mcctl_status complain_file(const char *what, const char *name)
{
	return mcctl_complain(MCCTL_FAILED, "cannot %s %s: %s", what, name, strerror(errno));
}

static enum mcctl_status output_open(struct output *out, const char *name)
{
	mode_t mask = umask(0);
	struct stat st;

	umask(mask);
	out->name = name;
	out->tmp = NULL;
	out->fd = -1;
	if (!strcmp(name, "-")) {
		out->fd = STDOUT_FILENO;
		return MCCTL_OK;
	}
	if (stat(name, &st) == 0 && !S_ISREG(st.st_mode)) {
		out->fd = open(name, O_WRONLY | O_CLOEXEC);
		return out->fd < 0 ? complain_file("open", name) : MCCTL_OK;
	}
	if (asprintf(&out->tmp, "%s.%016" PRIx64, name, mc_random_u64()) < 0) {
		out->tmp = NULL;
		return mcctl_complain(MCCTL_FAILED, "out of memory");
	}
	/* Before the file exists: a signal may come at any time, on any thread. */
	unfinished = out->tmp;
	ends_set(true);
	out->fd = open(out->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (out->fd < 0) {
		ends_set(false);
		unfinished = NULL;
		free(TAKE_PTR(out->tmp));
		return complain_file("create", name);
	}
	/* A replaced file keeps its mode. */
	if (fchmod(out->fd, stat(name, &st) == 0 ? st.st_mode & 0777 : 0666 & ~mask) < 0)
		return complain_file("set the mode of", out->tmp);
	return MCCTL_OK;
}

/* Rename the file to its name on success, else remove it. */
static enum mcctl_status output_close(struct output *out, enum mcctl_status status)
{
	if (out->fd >= 0 && out->fd != STDOUT_FILENO && close(out->fd) < 0 && status == MCCTL_OK)
		status = complain_file("write", out->name);
	if (out->tmp) {
		if (status == MCCTL_OK && rename(out->tmp, out->name) < 0)
			status = complain_file("write", out->name);
		if (status != MCCTL_OK)
			unlink(out->tmp);
		ends_set(false);
		unfinished = NULL;
	}
	free(TAKE_PTR(out->tmp));
	return status;
}

static enum mcctl_status output_write(struct output *out, const char *p, size_t len)
{
	MC_FAULT_POINT("mcctl.get.write");
	while (len) {
		ssize_t n = write(out->fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return complain_file("write", strcmp(out->name, "-") ? out->name :
					     "to standard output");
		p += n;
		len -= (size_t)n;
	}
	return MCCTL_OK;
}

static enum mcctl_status copy_out(const char *key, mcs_object_t *o, struct output *out)
{
	uint64_t size = mcs_object_info(o)->size, done = 0;
	auto_free char *buf = malloc(size < PIECE ? size + 1 : PIECE);
	struct mcctl_progress progress;
	enum mcctl_status status = MCCTL_OK;
	struct iovec iov;
	int64_t r;

	if (!buf)
		return mcctl_complain(MCCTL_FAILED, "out of memory");
	mcctl_progress_begin(&progress, key, size);
	while (done < size && status == MCCTL_OK) {
		iov.iov_base = buf;
		iov.iov_len = size - done < PIECE ? (size_t)(size - done) : PIECE;
		r = mcs_object_read(o, done, &iov, 1, -1);
		if (r <= 0) {
			mcctl_progress_end(&progress);
			return mcctl_error(r < 0 ? r : -EIO, "cannot read %s at %" PRIu64, key, done);
		}
		done += (uint64_t)r;
		mcctl_progress_step(&progress, done);
		status = output_write(out, buf, (size_t)r);
	}
	mcctl_progress_end(&progress);
	return status;
}

static enum mcctl_status print_result(const struct mcctl *c, struct mcs_key key,
				      const struct mcs_info *info)
{
	char crc[16];

	if (!c->conf->json)
		return MCCTL_OK;
	snprintf(crc, sizeof(crc), "%08" PRIx32, info->crc32c);
	return mcctl_json_print(json_pack("{s:o*, s:s, s:I, s:s}", "key", mcctl_key_json(key),
					  "file", c->argv[1], "size", (json_int_t)info->size,
					  "crc32c", crc));
}

int mcctl_get(struct mcctl *c)
{
	const char *file = c->argc > 1 ? c->argv[1] : "-";
	enum mcctl_status status;
	struct output out;
	struct mcs_key key;
	mcs_object_t *o;
	int r;

	if (c->conf->json && !strcmp(file, "-"))
		return mcctl_complain(MCCTL_USAGE, "get --json needs a FILE: standard output is "
				      "for the bytes");
	status = mcctl_key_parse(c, c->argv[0], &key);
	if (status != MCCTL_OK)
		return status;
	r = mcs_object_open(c->store, key, &o, -1);
	if (r < 0) {
		status = mcctl_error(r, "%s", c->argv[0]);
	} else {
		status = output_open(&out, file);
		if (status == MCCTL_OK)
			status = copy_out(c->argv[0], o, &out);
		status = output_close(&out, status);
		if (status == MCCTL_OK)
			status = print_result(c, key, mcs_object_info(o));
		mcs_object_close(o);
	}
	mcctl_key_free(&key);
	return status;
}
