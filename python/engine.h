/* SPDX-License-Identifier: Apache-2.0
 * engine.h - interfaces between the files of the extension mooncake._engine. */
#ifndef MCPY_ENGINE_H
#define MCPY_ENGINE_H

#include "python/mcpy.h"

#include <mooncake/mce_te.h>

/* The result of a failed call. */
#define MCPY_FAILED (-1)

/* ---- engine.c ---- */

/* The engine, or NULL if not initialized or opened by a parent process.  A method holds a reference to the object, so
 * the engine stays open while the method runs. */
struct mce_te *mcpy_engine_te(PyObject *self);

/* ---- transfer.c: transfers of lists ---- */

struct mcpy_transfer {
	const char *target;
	struct transfer_request *req;	/* the caller's, for PyMem_RawFree() */
	size_t n;
	struct mce_te_submit_opts opts;
	uint64_t batch;
};

/* Whether this process can access the local memory of all @n requests as they need it.  Needs no GIL. */
bool mcpy_transfer_reaches(const struct transfer_request *req, size_t n);
/* Set the deadline @ms from now plus, as in upstream, a nanosecond per byte. */
void mcpy_transfer_deadline(struct mcpy_transfer *t, uint64_t ms);
/* Submit all requests to the target's segment as the batch @t->batch.  Needs no GIL. */
int mcpy_transfer_submit(struct mce_te *te, struct mcpy_transfer *t);
/* Submit, wait and free: STATUS_COMPLETED, or the status that says why it failed.  Needs no GIL. */
int mcpy_transfer_run(struct mce_te *te, struct mcpy_transfer *t);
/* Wait for a batch and free it, with the same results.  When @timeout_ms (< 0: none) have passed, it is cancelled. */
int mcpy_batch_finish(struct mce_te *te, uint64_t batch, int64_t timeout_ms);
/* mcpy_batch_finish()'s limit for a batch that was submitted now. */
int64_t mcpy_transfer_limit_ms(const struct mcpy_transfer *t);

extern PyMethodDef mcpy_transfer_methods[];

/* ---- pages.c: addresses in arrays ---- */

/* The numbers of a one-dimensional, contiguous array of 64-bit integers (PEP 3118), copied.  TypeError or ValueError
 * that names @arg. */
int mcpy_array_numbers(PyObject *obj, const char *arg, struct mcpy_numbers *ret);

extern PyMethodDef mcpy_pages_methods[];

/* ---- scatter.c: tickets ---- */

extern PyMethodDef mcpy_scatter_methods[];
extern PyType_Spec mcpy_ticket_spec;
/* The type of @mcpy_ticket_spec, never freed. */
extern PyObject *mcpy_ticket_type;

#endif
