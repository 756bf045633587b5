/* SPDX-License-Identifier: Apache-2.0
 * mcctl_error.c - error messages: the failure, its reason, and advice. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <errno.h>
#include <stdarg.h>

/* Advice for the user; @status is the exit status. */
static const struct advice {
	int err;
	enum mcctl_status status;
	const char *text;
} advices[] = {
	{ MCS_ERPC, MCCTL_FAILED, "is the master running?  Give its address with --master=HOST:PORT "
				  "or in $MOONCAKE_MASTER, or its mount with --mount=DIR" },
	{ MCS_ETIMEDOUT, MCCTL_FAILED, "allow more time with --timeout=SECONDS" },
	{ ETIMEDOUT, MCCTL_FAILED, "allow more time with --timeout=SECONDS" },
	{ MCS_ENOSPACE, MCCTL_NO, "\"mcctl df\" shows the pool; pinned objects and objects being read cannot "
				  "be evicted" },
	{ MCS_ETOOBIG, MCCTL_NO, "\"mcctl df\" shows the largest object that fits" },
	{ MCS_ELEASED, MCCTL_NO, "it is being read or was looked up recently; try again, or use "
				 "--force" },
	{ MCS_ENOTENANT, MCCTL_NO, "\"mcctl tenants\" shows them, \"mcctl quota TENANT SIZE\" makes "
				   "one" },
	{ MCS_ETENANT_BUSY, MCCTL_NO, "remove its objects first" },
	{ MCS_EQUOTA, MCCTL_NO, "\"mcctl quota TENANT\" shows its quota and use" },
	{ MCS_ELIMIT, MCCTL_NO, "the limits of a connection or identity are options of the master, --max_session_..." },
	{ MCS_EMODE, MCCTL_NO, "tenants need a master with --enable_multi_tenants" },
	{ MCS_ENOOBJECT, MCCTL_NO, NULL },
	{ MCS_EREPLICA, MCCTL_NO, "the object has no copy on that segment; \"mcctl df\" shows the segments" },
	{ ENOENT, MCCTL_NO, NULL },
	{ MCS_EEXISTS, MCCTL_NO, NULL },
	{ EEXIST, MCCTL_NO, NULL },
	{ EHOSTDOWN, MCCTL_NO, "\"mcctl df\" shows the segments and their names" },
	{ EAGAIN, MCCTL_NO, "\"mcctl tasks\" shows the running tasks" },
	{ ENOTEMPTY, MCCTL_NO, "remove the keys below it first, see --prefix" },
	{ MCS_EREPLICA_GONE, MCCTL_FAILED, "its owner has left the pool; read it again" },
	{ MCS_ECHECKSUM, MCCTL_FAILED, "the bytes in memory are corrupted and were not used" },
	{ 0, MCCTL_FAILED, NULL },
};

static const struct advice *find_advice(int64_t err)
{
	const struct advice *a;
	int plain = mcs_errno((int)err);

	for (a = advices; a->err; a++)
		if (a->err == -err)
			return a;
	/* A number that mcs.h does not define is an errno. */
	for (a = advices; a->err; a++)
		if (a->err == plain)
			return a;
	return a;
}

enum mcctl_status mcctl_error(int64_t err, const char *fmt, ...)
{
	const struct advice *a = find_advice(err);
	va_list ap;

	fflush(stdout);
	fputs("mcctl: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, ": %s", mcs_error_detail((int)err));
	if (a->text)
		fprintf(stderr, "\n       %s", a->text);
	putc('\n', stderr);
	return a->status;
}

enum mcctl_status mcctl_complain(enum mcctl_status status, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fputs("mcctl: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	putc('\n', stderr);
	return status;
}
