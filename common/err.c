/* SPDX-License-Identifier: Apache-2.0
 * err.c - error texts, details per thread, and conversion to errno, wire and upstream numbers. */
#include <config.h>

#include "common/err.h"
#include "common/sys/world.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define WIRE_OWN 10000
#define WIRE_ERRNO 20000
#define ERRNO_LIMIT 200		/* Linux numbers end at 133 */

struct err_row {
	int value, upstream, err;
	const char *text;
};

static const struct err_row rows[] = {
#define MC_ERR(name, value, upstream, err, text) { name, upstream, err, text },
#include "common/errno.def"
#undef MC_ERR
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))
#define ROW_FIRST 1001

/* The upstream number for an errno of the kernel or of a library. */
static const struct {
	int err, upstream;
} errno_rows[] = {
	{ EINVAL, -600 }, { EFBIG, -600 }, { ENOTDIR, -600 }, { EISDIR, -600 },
	{ ENOTEMPTY, -600 }, { ERANGE, -600 }, { EFAULT, -600 },
	{ ENAMETOOLONG, -400 }, { EILSEQ, -400 },
	{ EPERM, -601 }, { EACCES, -601 },
	{ ENOENT, -704 }, { EEXIST, -705 },
	{ ENOSPC, -200 }, { EDQUOT, -200 },
	{ ENOBUFS, -10 }, { EOVERFLOW, -10 },
	{ ETIMEDOUT, -901 },
	{ ECONNREFUSED, -900 }, { ECONNRESET, -900 }, { ECONNABORTED, -900 },
	{ ENOTCONN, -900 }, { EPIPE, -900 }, { ESHUTDOWN, -900 },
	{ EHOSTUNREACH, -900 }, { EHOSTDOWN, -900 }, { ENETUNREACH, -900 }, { ENETDOWN, -900 },
	{ EAGAIN, -1010 }, { EBUSY, -1010 },
	{ EOPNOTSUPP, -1012 }, { ENOSYS, -1012 },
	{ EPROTO, -1502 }, { EBADMSG, -1502 },
	{ ESTALE, -712 },
};

#define N_ERRNO_ROWS (sizeof(errno_rows) / sizeof(errno_rows[0]))

static __thread int detail_err;
static __thread char detail_text[512];
MC_WORLD_LOCAL(detail_err)
MC_WORLD_LOCAL(detail_text)

static pthread_once_t texts_once = PTHREAD_ONCE_INIT;
static char texts[ERRNO_LIMIT][64];

/* errno.def numbers its rows without a gap; test_common_err.c compares. */
static const struct err_row *row_of(int value)
{
	size_t i = (size_t)value - ROW_FIRST;

	return i < N_ROWS ? &rows[i] : NULL;
}

/* The row of an upstream number: the first that has it. */
static const struct err_row *row_of_upstream(int upstream)
{
	for (size_t i = 0; i < N_ROWS; i++)
		if (rows[i].upstream == upstream)
			return &rows[i];
	return NULL;
}

int mc_fail(int err, const char *fmt, ...)
{
	char text[sizeof(detail_text)];
	int saved = errno;
	va_list ap;

	/* Not formatted in place: the old text may be among the arguments. */
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	memcpy(detail_text, text, sizeof(text));
	detail_err = err;
	errno = saved;
	return err;
}

const char *mc_err_detail(int err)
{
	return err && err == detail_err ? detail_text : mc_strerror(err);
}

static void texts_init(void)
{
	for (int e = 0; e < ERRNO_LIMIT; e++) {
		const char *s = strerrordesc_np(e);

		if (!s) {
			snprintf(texts[e], sizeof(texts[e]), "error %d", e);
			continue;
		}
		snprintf(texts[e], sizeof(texts[e]), "%s", s);
		/* Our messages continue in lower case; "I/O" and "RFS" stay. */
		if (islower((unsigned char)s[1]) || s[1] == ' ')
			texts[e][0] = (char)tolower((unsigned char)s[0]);
	}
}

const char *mc_strerror(int err)
{
	unsigned value = err < 0 ? 0u - (unsigned)err : (unsigned)err;
	const struct err_row *row;

	if (value < ERRNO_LIMIT) {
		pthread_once(&texts_once, texts_init);
		return texts[value];
	}
	row = row_of((int)value);
	return row ? row->text : "unknown error";
}

int mc_err_to_errno(int err)
{
	const struct err_row *row;

	if (err == 0)
		return 0;
	if (err > -ERRNO_LIMIT && err < 0)
		return -err;
	row = err < 0 && err != INT32_MIN ? row_of(-err) : NULL;
	return row ? row->err : EIO;
}

int mc_err_to_upstream(int err)
{
	const struct err_row *row;

	if (err >= 0)
		return 0;
	for (size_t i = 0; i < N_ERRNO_ROWS; i++)
		if (errno_rows[i].err == -(long)err)
			return errno_rows[i].upstream;
	row = err != INT32_MIN ? row_of(-err) : NULL;
	return row ? row->upstream : rows[0].upstream;
}

int mc_err_to_wire(int err)
{
	const struct err_row *row;

	if (err >= 0)
		return 0;
	if (err > -ERRNO_LIMIT)
		return -WIRE_ERRNO + err;
	row = err != INT32_MIN ? row_of(-err) : NULL;
	if (!row)
		return rows[0].upstream;
	return row_of_upstream(row->upstream) == row ? row->upstream : -WIRE_OWN - row->value;
}

int mc_err_from_wire(int status)
{
	const struct err_row *row;

	if (status == 0)
		return 0;
	/* EINPROGRESS is not a final result: the caller would wait forever. */
	if (status == -WIRE_ERRNO - EINPROGRESS)
		return -MC_EINTERNAL;
	if (status < -WIRE_ERRNO && status > -WIRE_ERRNO - ERRNO_LIMIT)
		return status + WIRE_ERRNO;
	if (status < -WIRE_OWN && status > -WIRE_ERRNO)
		row = row_of(-(status + WIRE_OWN));
	else
		row = row_of_upstream(status);
	return row ? -row->value : -MC_EINTERNAL;
}
