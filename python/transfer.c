/* SPDX-License-Identifier: Apache-2.0
 * transfer.c - transfers of lists of buffers: synchronous, started, and on streams of a GPU. */
#include "python/engine.h"

#include <string.h>

/* Time that a call waits after its transfers' deadline, so that they can be cancelled. */
#define GRACE_MS 5000

enum { A_TARGET, A_LOCAL, A_REMOTE, A_LENGTH, A_OPCODE, A_TIMEOUT, A_NAME, A_MSG, A_TRANSPORT, A_NIC, A_STREAM };
#define TRANSFER_ARGS "target", "buffers", "peer_buffer_addresses", "lengths", "opcode", "timeout_ms", \
	"notify_name", "notify_msg", "transport_hint", "nic_hint"

bool mcpy_transfer_reaches(const struct transfer_request *req, size_t n)
{
	struct iovec *iov = PyMem_RawCalloc(n + 1, sizeof(*iov));
	unsigned access = n && req->opcode == OPCODE_WRITE ? MCPY_READ : MCPY_WRITE;
	bool good = iov != NULL;

	for (size_t i = 0; i < n && iov; i++)
		iov[i] = (struct iovec){ req[i].source, req[i].length };
	good = good && mcpy_all_reach(iov, (Py_ssize_t)n, access);
	PyMem_RawFree(iov);
	return good;
}

/* Requests of parallel lists or arrays.  *ret_good: the lists have equal lengths, and the local buffers allow the
 * access. */
static int transfer_requests(PyObject *const *a, int opcode, bool arrays, struct mcpy_transfer *t, bool *ret_good)
{
	int (*read)(PyObject *, const char *, struct mcpy_numbers *) = arrays ? mcpy_array_numbers : mcpy_numbers;
	struct mcpy_numbers local = { 0 }, remote = { 0 }, len = { 0 };
	int r = -1;

	if (read(a[A_LOCAL], "buffers", &local) < 0 || read(a[A_REMOTE], "peer_buffer_addresses", &remote) < 0 ||
	    read(a[A_LENGTH], "lengths", &len) < 0)
		goto out;
	*ret_good = local.n == remote.n && local.n == len.n;
	if (!*ret_good && arrays) {
		PyErr_SetString(PyExc_ValueError, "buffers, peer_buffer_addresses and lengths must have the same "
				"length");
		goto out;
	}
	r = 0;
	if (!*ret_good)
		goto out;
	t->n = (size_t)local.n;
	t->req = PyMem_RawCalloc(t->n + 1, sizeof(*t->req));
	if (!t->req) {
		PyErr_NoMemory();
		r = -1;
		goto out;
	}
	for (size_t i = 0; i < t->n; i++)
		t->req[i] = (struct transfer_request){
			.opcode = opcode, .source = (void *)(uintptr_t)local.v[i],
			.target_offset = remote.v[i], .length = len.v[i],
		};
	*ret_good = mcpy_transfer_reaches(t->req, t->n);
out:
	PyMem_RawFree(local.v);
	PyMem_RawFree(remote.v);
	PyMem_RawFree(len.v);
	return r;
}

void mcpy_transfer_deadline(struct mcpy_transfer *t, uint64_t ms)
{
	t->opts.deadline_ms = (int64_t)(ms < INT32_MAX ? ms : INT32_MAX);
	for (size_t i = 0; i < t->n; i++)
		t->opts.deadline_ms += (int64_t)(t->req[i].length / 1000000 % INT32_MAX);
}

int64_t mcpy_transfer_limit_ms(const struct mcpy_transfer *t)
{
	return t->opts.deadline_ms + GRACE_MS;
}

/* 0, 1: invalid lists or buffers, -1: an exception. */
static int transfer_parse(PyObject *const *a, bool arrays, struct mcpy_transfer *t)
{
	uint64_t opcode, ms;
	bool good = false;

	*t = (struct mcpy_transfer){ .opts = { .size = sizeof(t->opts) } };
	if (mcpy_text(a[A_TARGET], "target_hostname", &t->target) < 0 ||
	    mcpy_u64(a[A_OPCODE], "opcode", &opcode) < 0 || mcpy_u64(a[A_TIMEOUT], "timeout_ms", &ms) < 0 ||
	    mcpy_text(a[A_TRANSPORT], "transport_hint", &t->opts.transport) < 0 ||
	    mcpy_text(a[A_NIC], "nic_hint", &t->opts.nic) < 0)
		return -1;
	if (a[A_NAME] && a[A_NAME] != Py_None) {
		t->opts.notify_msg = "";
		if (mcpy_text(a[A_NAME], "name", &t->opts.notify_name) < 0 ||
		    mcpy_text(a[A_MSG], "msg", &t->opts.notify_msg) < 0)
			return -1;
	}
	if (transfer_requests(a, opcode ? OPCODE_WRITE : OPCODE_READ, arrays, t, &good) < 0)
		return -1;
	mcpy_transfer_deadline(t, ms);
	return good ? 0 : 1;
}

int mcpy_transfer_submit(struct mce_te *te, struct mcpy_transfer *t)
{
	struct mce_te_submit_opts opts = t->opts;
	segment_id_t segment;
	int r = mce_te_open_segment(te, t->target, 0, &segment);

	if (r < 0)
		return r;
	for (size_t i = 0; i < t->n; i++)
		t->req[i].target_id = segment;
	r = mce_te_batch_new(te, t->n, &t->batch);
	if (r < 0)
		return r;
	r = mce_te_submit(te, t->batch, t->req, t->n, &opts);
	if (r < 0)
		(void)mce_te_batch_free(te, t->batch);
	return r;
}

int mcpy_batch_finish(struct mce_te *te, uint64_t batch, int64_t timeout_ms)
{
	struct mce_te_batch_status st;
	int r = mce_te_wait(te, batch, timeout_ms), status = STATUS_TIMEOUT;

	if (r < 0)
		(void)mce_te_cancel(te, batch);
	else
		status = mce_te_batch_status(te, batch, &st) < 0 ? STATUS_FAILED : st.status;
	(void)mce_te_batch_free(te, batch);
	return status;
}

/* A call without transfers: does the peer exist, and send it the notification. */
static int transfer_notify(struct mce_te *te, const struct mcpy_transfer *t)
{
	segment_id_t segment;

	if (mce_te_open_segment(te, t->target, 0, &segment) < 0)
		return STATUS_FAILED;
	if (t->opts.notify_name && mce_te_notify(te, segment, t->opts.notify_name, t->opts.notify_msg) < 0)
		return STATUS_FAILED;
	return STATUS_COMPLETED;
}

int mcpy_transfer_run(struct mce_te *te, struct mcpy_transfer *t)
{
	if (!t->n)
		return transfer_notify(te, t);
	if (mcpy_transfer_submit(te, t) < 0)
		return STATUS_FAILED;
	return mcpy_batch_finish(te, t->batch, mcpy_transfer_limit_ms(t));
}

static PyObject *transfer_call(PyObject *self, PyObject *const *a, bool arrays)
{
	struct mce_te *te = mcpy_engine_te(self);
	struct mcpy_transfer t;
	int status = STATUS_FAILED, r = transfer_parse(a, arrays, &t);

	if (!r && te) {
		Py_BEGIN_ALLOW_THREADS
		status = mcpy_transfer_run(te, &t);
		Py_END_ALLOW_THREADS
	}
	PyMem_RawFree(t.req);
	return r < 0 ? NULL : PyLong_FromLong(status == STATUS_COMPLETED ? 0 : MCPY_FAILED);
}

MCPY_METHOD(transfer_lists, "transfer", 6, TRANSFER_ARGS)
{
	return transfer_call(self, a, false);
}

MCPY_METHOD(transfer_arrays, "transfer", 6, TRANSFER_ARGS)
{
	return transfer_call(self, a, true);
}

/* A batch id in Python is the engine's id plus 1, because 0 means failure. */
static PyObject *transfer_start(PyObject *self, PyObject *const *a, bool arrays)
{
	struct mce_te *te = mcpy_engine_te(self);
	struct mcpy_transfer t;
	int r = transfer_parse(a, arrays, &t), done = MCPY_FAILED;

	if (!r && te) {
		Py_BEGIN_ALLOW_THREADS
		done = mcpy_transfer_submit(te, &t);
		Py_END_ALLOW_THREADS
	}
	PyMem_RawFree(t.req);
	return r < 0 ? NULL : PyLong_FromUnsignedLongLong(done < 0 ? 0 : t.batch + 1);
}

MCPY_METHOD(transfer_submit, "transfer", 6, TRANSFER_ARGS)
{
	return transfer_start(self, a, false);
}

MCPY_METHOD(transfer_submit_arrays, "transfer", 6, TRANSFER_ARGS)
{
	return transfer_start(self, a, true);
}

/* 0; raises RuntimeError when the transfers cannot be queued. */
MCPY_METHOD(transfer_on_stream, "transfer_on_cuda", 6, TRANSFER_ARGS, "stream")
{
	struct mce_te *te = mcpy_engine_te(self);
	struct mcpy_transfer t;
	uint64_t stream = 0;
	int r = a[A_STREAM] ? mcpy_u64(a[A_STREAM], "stream_ptr", &stream) : 0, done = 0;
	segment_id_t segment;

	if (r < 0)
		return NULL;
	r = transfer_parse(a, false, &t);
	if (!r && te && t.n) {
		Py_BEGIN_ALLOW_THREADS
		done = mce_te_open_segment(te, t.target, 0, &segment);
		for (size_t i = 0; i < t.n && done == 0; i++)
			t.req[i].target_id = segment;
		if (done == 0)
			done = mce_te_submit_on_stream(te, stream, t.req, t.n);
		Py_END_ALLOW_THREADS
	}
	PyMem_RawFree(t.req);
	if (r < 0)
		return NULL;
	if (r > 0 || !te)
		return PyErr_Format(PyExc_RuntimeError, "%s", te ? "unequal lengths of lists, or inaccessible memory" :
				    "the engine is not initialized");
	if (done < 0)
		return PyErr_Format(PyExc_RuntimeError, "%s", mce_te_error_detail(done));
	Py_RETURN_NONE;
}

MCPY_METHOD(transfer_wait, "get_batch_transfer_status", 1, "batch_ids")
{
	struct mce_te *te = mcpy_engine_te(self);
	struct mcpy_numbers ids;
	int r = te ? 0 : MCPY_FAILED;

	if (mcpy_numbers(a[0], "batch_ids", &ids) < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	/* No timeout here: each transfer has a deadline. */
	for (Py_ssize_t i = 0; i < ids.n && te; i++)
		if (!ids.v[i] || mcpy_batch_finish(te, ids.v[i] - 1, -1) != STATUS_COMPLETED)
			r = MCPY_FAILED;
	Py_END_ALLOW_THREADS
	PyMem_RawFree(ids.v);
	return PyLong_FromLong(r);
}

MCPY_METHOD(transfer_check, "transfer_check_status", 1, "batch_id")
{
	struct mce_te *te = mcpy_engine_te(self);
	struct mce_te_batch_status st;
	uint64_t id;
	int r;

	if (mcpy_u64(a[0], "batch_id", &id) < 0)
		return NULL;
	if (!te || !id || mce_te_batch_status(te, id - 1, &st) < 0)
		return PyLong_FromLong(MCPY_FAILED);
	if (st.status == STATUS_WAITING || st.status == STATUS_PENDING)
		return PyLong_FromLong(0);
	r = st.status == STATUS_COMPLETED ? 1 : st.status == STATUS_TIMEOUT ? -2 : MCPY_FAILED;
	Py_BEGIN_ALLOW_THREADS
	(void)mce_te_batch_free(te, id - 1);
	Py_END_ALLOW_THREADS
	return PyLong_FromLong(r);
}

PyMethodDef mcpy_transfer_methods[] = {
	{ "_transfer", MCPY_FAST(transfer_lists), "Transfer and wait; 0 or -1." },
	{ "_transfer_arrays", MCPY_FAST(transfer_arrays), "The same, with arrays of 64-bit integers." },
	{ "_submit", MCPY_FAST(transfer_submit), "Start transfers; an id, 0 on failure." },
	{ "_submit_arrays", MCPY_FAST(transfer_submit_arrays), "The same, with arrays of 64-bit integers." },
	{ "_on_cuda", MCPY_FAST(transfer_on_stream), "Queue transfers on a stream of the GPU." },
	{ "get_batch_transfer_status", MCPY_FAST(transfer_wait),
	  "get_batch_transfer_status(batch_ids: list[int]) -> int\n\nWait until all batches have ended, and "
	  "free them.  0: all succeeded; else -1." },
	{ "transfer_check_status", MCPY_FAST(transfer_check),
	  "transfer_check_status(batch_id: int) -> int\n\n0: still running.  1: completed, -1: failed, -2: timed "
	  "out; the id is then invalid." },
	{ NULL, NULL, 0, NULL }
};
