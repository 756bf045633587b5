/* SPDX-License-Identifier: Apache-2.0
 * check.c - reading a journal without serving, and the faults that this finds. */
#include <config.h>

#include "master/journal/check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/hash.h"
#include "common/sys/file.h"
#include "master/journal/journal_i.h"
#include "master/mcm_i.h"
#include "proto/codec.h"

/* ---- faults ---- */

void mcm_check_fault(struct mcm_check *c, const char *file, uint64_t at, uint64_t record, const char *why)
{
	char place[128] = "", **more, *text;

	if (file && record)
		snprintf(place, sizeof(place), "%s offset=%" PRIu64 " record=%" PRIu64 ": ", file, at, record);
	else if (file)
		snprintf(place, sizeof(place), "%s offset=%" PRIu64 ": ", file, at);
	if (c->faults++ >= MCM_CHECK_KEPT)
		return;
	more = realloc(c->fault, c->faults * sizeof(*more));
	c->fault = more ? more : c->fault;
	if (!more || asprintf(&text, "%s%s", place, why) < 0)
		text = NULL;
	if (more)
		more[c->faults - 1] = text;
}

void mcm_check_done(struct mcm_check *c)
{
	for (uint64_t i = 0; c->fault && i < c->faults && i < MCM_CHECK_KEPT; i++)
		free(c->fault[i]);
	free(c->fault);
	*c = (struct mcm_check){ 0 };
}

/* ---- the files ---- */

int mcm_check_read(struct mcm *m, const char *dir, struct mcm_check *c)
{
	uint64_t next, server;
	bool again;
	int r = mcm_journal_new(m, dir, &m->journal);

	if (r < 0)
		return r;
	m->journal->check = c;
	m->journal->dirfd = mc_file_open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (m->journal->dirfd < 0)
		r = mc_fail(-errno, "cannot read the directory %s: %s", dir, mc_strerror(-errno));
	if (r == 0)
		r = mcm_origin_read(m->journal->dirfd, &m->journal->origin, &server);
	if (r == 0)
		r = mcm_restore(m, &next, &again);
	mcm_journal_free(m->journal);
	m->journal = NULL;
	return r;
}
