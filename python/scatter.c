/* SPDX-License-Identifier: Apache-2.0
 * scatter.c - transfers of fragments of several ranges, and their tickets. */
#include "python/engine.h"

#include <stdio.h>
#include <string.h>

/* The numbers of mooncake.engine.ScatterTransferCompletionStatus. */
enum { COMPLETED = 0, FAILED_DRAINED = -1, COMPLETION_UNKNOWN = -2 };

/* ---- tickets ------------------------------------------------------------------------------------- */

/* It keeps the engine open, and the batch until all its transfers have ended. */
struct ticket {
	PyObject_HEAD
	PyObject *engine;
	/* under the GIL */
	int status;		/* COMPLETION_UNKNOWN: no drain() has seen the end of @batch, which exists */
	uint64_t batch;
	int64_t limit_ms;	/* wait of the destructor */
};

PyObject *mcpy_ticket_type;

/* Needs no GIL. */
static int ticket_wait(struct mce_te *te, uint64_t batch, int64_t ms)
{
	struct mce_te_batch_status st;

	if (mce_te_wait(te, batch, ms) < 0 || mce_te_batch_status(te, batch, &st) < 0)
		return COMPLETION_UNKNOWN;
	return st.status == STATUS_COMPLETED ? COMPLETED : FAILED_DRAINED;
}

static void ticket_settle(struct ticket *t, int64_t ms)
{
	struct mce_te *te = mcpy_engine_te(t->engine);
	uint64_t batch = t->batch;
	int status;

	if (t->status != COMPLETION_UNKNOWN || !te)
		return;
	Py_BEGIN_ALLOW_THREADS
	status = ticket_wait(te, batch, ms);
	Py_END_ALLOW_THREADS
	/* Another thread may have settled it and freed the batch meanwhile. */
	if (t->status != COMPLETION_UNKNOWN || status == COMPLETION_UNKNOWN)
		return;
	t->status = status;
	Py_BEGIN_ALLOW_THREADS
	(void)mce_te_batch_free(te, batch);
	Py_END_ALLOW_THREADS
}

static PyObject *ticket_drain(PyObject *self, PyObject *arg)
{
	struct ticket *t = (struct ticket *)self;
	uint64_t ms;

	if (mcpy_u64(arg, "timeout_ms", &ms) < 0)
		return NULL;
	ticket_settle(t, ms < INT32_MAX ? (int64_t)ms : INT32_MAX);
	return PyLong_FromLong(t->status);
}

static PyObject *ticket_status(PyObject *self, PyObject *none)
{
	return PyLong_FromLong(((struct ticket *)self)->status);
}

/* The transfers use the caller's memory, so wait for their end. */
static void ticket_dealloc(PyObject *self)
{
	struct ticket *t = (struct ticket *)self;
	struct mce_te *te = t->status == COMPLETION_UNKNOWN ? mcpy_engine_te(t->engine) : NULL;
	PyTypeObject *type = Py_TYPE(self);
	PyObject *kind, *value, *trace;

	PyObject_GC_UnTrack(self);
	PyErr_Fetch(&kind, &value, &trace);
	if (te) {
		Py_BEGIN_ALLOW_THREADS
		(void)mcpy_batch_finish(te, t->batch, t->limit_ms);
		Py_END_ALLOW_THREADS
	}
	Py_DECREF(t->engine);
	PyErr_Restore(kind, value, trace);
	type->tp_free(self);
	Py_DECREF(type);
}

static int ticket_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((struct ticket *)self)->engine);
	return 0;
}

static PyObject *ticket_new(PyObject *engine)
{
	PyTypeObject *type = (PyTypeObject *)mcpy_ticket_type;
	struct ticket *t = PyObject_GC_New(struct ticket, type);

	if (!t)
		return NULL;
	Py_INCREF(engine);
	t->engine = engine;
	t->status = FAILED_DRAINED;
	t->batch = 0;
	t->limit_ms = 0;
	PyObject_GC_Track((PyObject *)t);
	return (PyObject *)t;
}

static PyMethodDef ticket_methods[] = {
	{ "drain", ticket_drain, METH_O, "drain(timeout_ms) -> int" },
	{ "status", ticket_status, METH_NOARGS, "status() -> int" },
	{ NULL, NULL, 0, NULL }
};

static PyType_Slot ticket_slots[] = {
	{ Py_tp_dealloc, ticket_dealloc },
	{ Py_tp_traverse, ticket_traverse },
	{ Py_tp_methods, ticket_methods },
	{ Py_tp_doc, (char *)"The base of mooncake.engine.ScatterTransferTicket." },
	{ 0, NULL }
};

PyType_Spec mcpy_ticket_spec = {
	.name = "mooncake._engine.Ticket",
	.basicsize = sizeof(struct ticket),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
	.slots = ticket_slots,
};

/* ---- ranges and fragments ------------------------------------------------------------------------ */

enum { LOCAL_BASE, LOCAL_ROOM, REMOTE_BASE, REMOTE_ROOM, RANGE_LISTS };
enum { LOCAL_OFFSET, REMOTE_OFFSET, LENGTH, FRAGMENT_LISTS };
static const char *const range_arg[RANGE_LISTS] = {
	"local_base_addresses", "local_capacities", "remote_base_addresses", "remote_capacities",
};
static const char *const fragment_arg[FRAGMENT_LISTS] = { "local_offsets", "remote_offsets", "lengths" };

struct nested {
	struct mcpy_numbers *v;
	Py_ssize_t n;
};

struct scatter {
	struct mcpy_numbers range[RANGE_LISTS];
	struct nested fragment[FRAGMENT_LISTS];
};

static int nested_parse(PyObject *obj, const char *arg, struct nested *ret)
{
	bool text = PyUnicode_Check(obj) || PyBytes_Check(obj);
	PyObject *outer = text || !PySequence_Check(obj) ? NULL : PySequence_Tuple(obj);
	int r = outer ? 0 : -1;

	if (!outer && !PyErr_Occurred())
		PyErr_Format(PyExc_TypeError, "%s must be a list of lists, not %.100s", arg, Py_TYPE(obj)->tp_name);
	if (outer)
		ret->v = PyMem_RawCalloc((size_t)PyTuple_GET_SIZE(outer) + 1, sizeof(*ret->v));
	if (outer && !ret->v) {
		PyErr_NoMemory();
		r = -1;
	}
	for (Py_ssize_t i = 0; r == 0 && i < PyTuple_GET_SIZE(outer); i++, ret->n++)
		r = mcpy_numbers(PyTuple_GET_ITEM(outer, i), arg, &ret->v[i]);
	Py_XDECREF(outer);
	return r < 0 ? -1 : 0;
}

static int scatter_parse(PyObject *const *a, struct scatter *s)
{
	for (int i = 0; i < RANGE_LISTS; i++)
		if (mcpy_numbers(a[i], range_arg[i], &s->range[i]) < 0)
			return -1;
	for (int i = 0; i < FRAGMENT_LISTS; i++)
		if (nested_parse(a[RANGE_LISTS + i], fragment_arg[i], &s->fragment[i]) < 0)
			return -1;
	return 0;
}

static void scatter_done(struct scatter *s)
{
	for (int i = 0; i < RANGE_LISTS; i++)
		PyMem_RawFree(s->range[i].v);
	for (int i = 0; i < FRAGMENT_LISTS; i++) {
		for (Py_ssize_t k = 0; k < s->fragment[i].n; k++)
			PyMem_RawFree(s->fragment[i].v[k].v);
		PyMem_RawFree(s->fragment[i].v);
	}
}

/* The number of fragments, or -1 with the reason in @why. */
static Py_ssize_t scatter_count(const struct scatter *s, char why[128])
{
	Py_ssize_t n = s->range[0].n, sum = 0;

	for (int i = 0; i < RANGE_LISTS + FRAGMENT_LISTS; i++) {
		if ((i < RANGE_LISTS ? s->range[i].n : s->fragment[i - RANGE_LISTS].n) == n)
			continue;
		snprintf(why, 128, "%s has another number of ranges than %s",
			 i < RANGE_LISTS ? range_arg[i] : fragment_arg[i - RANGE_LISTS], range_arg[0]);
		return -1;
	}
	for (Py_ssize_t k = 0; k < n; k++) {
		const Py_ssize_t count = s->fragment[0].v[k].n;

		if (s->fragment[1].v[k].n != count || s->fragment[2].v[k].n != count) {
			snprintf(why, 128, "range %zd: offsets and lengths have different numbers of fragments", k);
			return -1;
		}
		sum += count;
	}
	return sum;
}

static bool fragment_fits(uint64_t base, uint64_t room, uint64_t off, uint64_t len)
{
	uint64_t end;

	return !__builtin_add_overflow(base, room, &end) && !__builtin_add_overflow(off, len, &end) && end <= room;
}

/* Requests of all fragments that have bytes; false: one is outside of its range. */
static bool scatter_fill(const struct scatter *s, int opcode, struct mcpy_transfer *t, char why[128])
{
	for (Py_ssize_t k = 0; k < s->range[0].n; k++) {
		uint64_t from = s->range[LOCAL_BASE].v[k], to = s->range[REMOTE_BASE].v[k];

		for (Py_ssize_t i = 0; i < s->fragment[0].v[k].n; i++) {
			uint64_t lo = s->fragment[LOCAL_OFFSET].v[k].v[i], ro = s->fragment[REMOTE_OFFSET].v[k].v[i];
			uint64_t len = s->fragment[LENGTH].v[k].v[i];
			bool near = fragment_fits(from, s->range[LOCAL_ROOM].v[k], lo, len);

			if (!near || !fragment_fits(to, s->range[REMOTE_ROOM].v[k], ro, len)) {
				snprintf(why, 128, "range %zd: fragment %zd is outside of the %s range", k, i,
					 near ? "remote" : "local");
				return false;
			}
			if (len)
				t->req[t->n++] = (struct transfer_request){
					.opcode = opcode, .source = (void *)(uintptr_t)(from + lo),
					.target_offset = to + ro, .length = len,
				};
		}
	}
	return true;
}

/* ---- the method ---------------------------------------------------------------------------------- */

/* Submit the transfers and put the batch into the ticket; else the ticket stays FAILED_DRAINED, with a reason. */
static void scatter_submit(struct mce_te *te, const struct scatter *s, int opcode, uint64_t ms,
			   struct mcpy_transfer *t, struct ticket *ticket, char why[128])
{
	Py_ssize_t n = scatter_count(s, why);
	int r = MCPY_FAILED;

	if (n < 0)
		return;
	t->req = PyMem_RawCalloc((size_t)n + 1, sizeof(*t->req));
	if (!t->req) {
		snprintf(why, 128, "not enough memory");
		return;
	}
	if (!scatter_fill(s, opcode, t, why))
		return;
	if (!t->n) {
		ticket->status = COMPLETED;
		return;
	}
	mcpy_transfer_deadline(t, ms);
	Py_BEGIN_ALLOW_THREADS
	if (!mcpy_transfer_reaches(t->req, t->n)) {
		snprintf(why, 128, "this process cannot access all of the local memory");
	} else {
		r = mcpy_transfer_submit(te, t);
		if (r < 0)
			snprintf(why, 128, "%s", mce_te_error_detail(r));
	}
	Py_END_ALLOW_THREADS
	if (r < 0)
		return;
	ticket->batch = t->batch;
	ticket->limit_ms = mcpy_transfer_limit_ms(t);
	ticket->status = COMPLETION_UNKNOWN;
}

MCPY_METHOD(scatter_start, "scatter", 11, "endpoint", "local_base_addresses", "local_capacities",
	    "remote_base_addresses", "remote_capacities", "local_offsets", "remote_offsets", "lengths", "opcode",
	    "timeout_ms", "wait")
{
	struct mcpy_transfer t = { .opts = { .size = sizeof(t.opts) } };
	struct mce_te *te = mcpy_engine_te(self);
	struct scatter s = { 0 };
	PyObject *ret = NULL;
	struct ticket *ticket;
	uint64_t opcode, ms;
	char why[128] = "";
	bool wait;

	if (mcpy_text(a[0], "endpoint", &t.target) < 0 || mcpy_u64(a[8], "opcode", &opcode) < 0 ||
	    mcpy_u64(a[9], "timeout_ms", &ms) < 0 || mcpy_bool(a[10], false, &wait) < 0 || scatter_parse(a + 1, &s) < 0)
		goto out;
	ticket = (struct ticket *)ticket_new(self);
	if (!ticket)
		goto out;
	if (te)
		scatter_submit(te, &s, opcode ? OPCODE_WRITE : OPCODE_READ, ms, &t, ticket, why);
	else
		snprintf(why, sizeof(why), "the engine is not initialized");
	if (wait)
		ticket_settle(ticket, ticket->limit_ms);
	ret = Py_BuildValue("(NN)", ticket, PyUnicode_DecodeUTF8(why, (Py_ssize_t)strlen(why), "replace"));
out:
	PyMem_RawFree(t.req);
	scatter_done(&s);
	return ret;
}

PyMethodDef mcpy_scatter_methods[] = {
	{ "_scatter", MCPY_FAST(scatter_start), "Start transfers of fragments: (ticket, why it failed or \"\")." },
	{ NULL, NULL, 0, NULL }
};
