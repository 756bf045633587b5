/* SPDX-License-Identifier: Apache-2.0
 * test_master_model.h - a master and a simple model of it, run side by side.
 *
 * An operation is a kind and three numbers; what they mean (which key, which of the open puts) is
 * worked out when it runs, so that any part of a sequence is a sequence, too, and a failing one can be
 * made shorter by leaving operations out. */
#ifndef TEST_MASTER_MODEL_H
#define TEST_MASTER_MODEL_H

#include <stdint.h>
#include <stdio.h>

#include "test_master_fixture.h"

enum op_kind {
	OP_START, OP_END, OP_REVOKE, OP_GET, OP_RELEASE, OP_RENEW, OP_EXIST, OP_REMOVE, OP_REMOVE_MATCH,
	OP_RENAME, OP_LIST, OP_SESSION, OP_SEGMENT, OP_GROW, OP_ADVANCE, OP_KINDS
};

struct op {
	uint32_t kind, a, b, c;
};

/* What stays the same during one run; made from its seed. */
struct model_setup {
	const char *policy;
	unsigned keys, segments;
	uint64_t segment_size, size_max;
	uint64_t quarantine_ms;
	double watermark;
	bool soft_may_go;
	/* Some objects are in groups.  Whom the evictor takes with whom is then not foreseen as exactly. */
	bool groups;
	/* Half of the keys are another tenant's, by the same names; both have quotas, which bind. */
	bool tenants;
	/* For the test of the tests: the model believes that a rename onto itself makes a new version. */
	bool mistaken;
};

/* Where the run is; the parent process reads it when the child has failed. */
struct model_progress {
	unsigned at;		/* operation under way */
	char why[256];		/* it failed; or what was done */
};

/* Run @n operations.  Returns when everything agreed; otherwise writes why and ends the process with
 * status 1 (a failing assertion or a signal ends it, too). */
void model_run(const struct model_setup *setup, const struct op *op, unsigned n,
	       struct model_progress *pr);

const char *model_op_name(enum op_kind kind);

#endif
