/* SPDX-License-Identifier: Apache-2.0
 * policy_file.c - the quota policy in a file.  It is read at the start, which fails if the file is invalid, and again
 * after changes; an invalid file then leaves the policy unchanged. */
#include <config.h>

#include "master/tenant/policy_store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/sys/file.h"
#include "master/mcm_i.h"

#define LOG "tenant"
#define CHECK_MS 1000

static uint64_t stamp_of(const struct stat *st)
{
	return (uint64_t)st->st_mtim.tv_sec * 1000000007u + (uint64_t)st->st_mtim.tv_nsec +
		((uint64_t)st->st_size << 40) + st->st_ino;
}

static int file_open(struct mcm *m)
{
	(void)m;
	return 0;
}

static void file_none(struct mcm *m)
{
	(void)m;
}

/* policy_lock held. */
static int file_load(struct mcm *m)
{
	const char *path = m->conf.tenant_quota_connector_uri;
	FILE *from = fopen(path, "re");
	struct stat st;
	int r = 0;

	if (!from)
		return mc_fail(-errno, "%s: %m", path);
	if (fstat(fileno(from), &st) < 0)
		r = mc_fail(-errno, "%s: %m", path);
	else if (!S_ISREG(st.st_mode) || st.st_size > (off_t)MCM_POLICY_MAX)
		r = mc_fail(-MC_EPARAM, "%s is not a regular file of at most %u bytes", path, MCM_POLICY_MAX);
	m->tenants.file_stamp = r < 0 ? 0 : stamp_of(&st);
	if (r == 0)
		r = mcm_policy_take(m, from, path);
	fclose(from);
	return r;
}

static void file_tick(struct mcm *m)
{
	struct mcm_tenants *ts = &m->tenants;
	struct stat st;
	int r;

	if (mcm_now_ms(m) < ts->checked_ms + CHECK_MS)
		return;
	MC_LOCKED(&ts->policy_lock);
	ts->checked_ms = mcm_now_ms(m);
	if (stat(m->conf.tenant_quota_connector_uri, &st) < 0 || stamp_of(&st) == ts->file_stamp)
		return;
	r = file_load(m);
	if (r < 0)
		mc_err(LOG, "cannot reload the tenant policy, keeping the old one: %s", mc_err_detail(r));
}

static int file_write(const char *path, const char *text, size_t len)
{
	FILE *to = fopen(path, "we");
	int r = 0;

	if (!to)
		return mc_fail(-errno, "%s: %m", path);
	if (fwrite(text, 1, len, to) != len || fflush(to) || fsync(fileno(to)) < 0)
		r = -errno;
	if (fclose(to) && r == 0)
		r = -errno;
	return r < 0 ? mc_fail(r, "%s: %s", path, strerror(-r)) : 0;
}

/* Replace the file atomically. */
static int file_save(struct mcm *m, const char *text, size_t len)
{
	const char *path = m->conf.tenant_quota_connector_uri;
	struct stat st;
	char tmp[4200];
	int r;

	if ((size_t)snprintf(tmp, sizeof(tmp), "%s.new", path) >= sizeof(tmp))
		return mc_fail(-ENAMETOOLONG, "%s: %s", path, strerror(ENAMETOOLONG));
	r = file_write(tmp, text, len);
	if (r == 0 && rename(tmp, path) < 0)
		r = mc_fail(-errno, "%s: %m", path);
	if (r < 0) {
		(void)unlink(tmp);
		return r;
	}
	r = mc_file_sync_entry(path);
	if (r < 0)
		return r;
	if (stat(path, &st) == 0)
		m->tenants.file_stamp = stamp_of(&st);
	return 0;
}

const struct mcm_policy_ops mcm_policy_file = {
	.type = "file",
	.open = file_open,
	.close = file_none,
	.load = file_load,
	.start = file_open,
	.stop = file_none,
	.tick = file_tick,
	.save = file_save,
};
