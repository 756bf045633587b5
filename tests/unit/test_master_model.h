/* SPDX-License-Identifier: Apache-2.0
 * test_master_model.h - a master and a simple model of it, run side by side.
 *
 * An operation is a kind and three numbers, whose meaning (which key, which of the open puts) is
 * determined when it runs.  So any part of a sequence is a valid sequence, and a failing one can be
 * shortened by removing operations. */
#ifndef TEST_MASTER_MODEL_H
#define TEST_MASTER_MODEL_H

#include <stdint.h>
#include <stdio.h>

#include "test_master_fixture.h"

enum op_kind {
	OP_START, OP_END, OP_REVOKE, OP_GET, OP_RELEASE, OP_RENEW, OP_EXIST, OP_REMOVE, OP_REMOVE_MATCH,
	OP_RENAME, OP_LIST, OP_SESSION, OP_CONFIRM, OP_SEGMENT, OP_GROW, OP_ADVANCE, OP_KINDS
};

struct op {
	uint32_t kind, a, b, c;
};

/* Constants of one run, derived from its seed. */
struct model_setup {
	const char *policy;
	unsigned keys, segments;
	uint64_t segment_size, size_max;
	double watermark;
	bool soft_may_go;
	/* Some objects are in groups.  The set of objects that the evictor evicts together is then
	 * not predicted as exactly. */
	bool groups;
	/* Half of the keys belong to a second tenant with the same names; both have quotas that are
	 * reached. */
	bool tenants;
	/* For the test of this test: the model assumes that a rename onto itself makes a new
	 * version. */
	bool mistaken;
};

/* State of the run; the parent process reads it when the child has failed. */
struct model_progress {
	unsigned at;		/* the operation that is running */
	char why[256];		/* the failure, or the last operation */
};

/* Run @n operations.  Returns if master and model agreed; else writes the reason and ends the
 * process with status 1 (so does a failing assertion or a signal). */
void model_run(const struct model_setup *setup, const struct op *op, unsigned n,
	       struct model_progress *pr);

const char *model_op_name(enum op_kind kind);

#endif
