/* SPDX-License-Identifier: Apache-2.0
 * engine.c - the extension mooncake._engine: the transfer engine, over mce_te.h. */
#include "python/mcpy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mooncake/mce_te.h>

#define FAILED (-1)
/* Time that a call waits after its transfers' deadline, so that they can be cancelled. */
#define GRACE_MS 5000

struct engine {
	PyObject_HEAD
	struct mce_te *te;	/* NULL: not initialized; set once, with the GIL held */
	pid_t pid;
};

/* The engine, or NULL if not initialized or opened by a parent process.  A method holds a reference to the object, so
 * the engine stays open while the method runs. */
static struct mce_te *engine_te(PyObject *self)
{
	struct engine *e = (struct engine *)self;

	return e->te && e->pid == getpid() ? e->te : NULL;
}

static void engine_dealloc(PyObject *self)
{
	struct mce_te *te = engine_te(self);
	PyTypeObject *type = Py_TYPE(self);
	PyObject *kind, *value, *trace;

	PyObject_GC_UnTrack(self);
	PyErr_Fetch(&kind, &value, &trace);
	if (te) {
		Py_BEGIN_ALLOW_THREADS
		mce_te_close(te);
		Py_END_ALLOW_THREADS
	}
	PyErr_Restore(kind, value, trace);
	type->tp_free(self);
	Py_DECREF(type);
}

static int engine_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	return 0;
}

MCPY_METHOD(engine_open, "_open", 3, "metadata", "name", "nic_filter", "protocol")
{
	struct mce_te_conf conf = { .size = sizeof(conf) };
	struct engine *e = (struct engine *)self;
	struct mce_te *te = NULL;
	const char *why = "";
	int r;

	if (mcpy_text(a[0], "metadata_server", &conf.metadata) < 0 ||
	    mcpy_text(a[1], "local_hostname", &conf.name) < 0 ||
	    mcpy_text(a[2], "device_name", &conf.nic_filter) < 0 ||
	    mcpy_text(a[3], "protocol", &conf.protocol) < 0)
		return NULL;
	if (e->te)
		return Py_BuildValue("(is)", FAILED, "the engine is initialized already");
	Py_BEGIN_ALLOW_THREADS
	r = mce_te_open(&conf, &te);
	if (r < 0)
		why = mce_te_error_detail(r);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return Py_BuildValue("(is)", FAILED, why);
	if (e->te) {
		Py_BEGIN_ALLOW_THREADS
		mce_te_close(te);
		Py_END_ALLOW_THREADS
		return Py_BuildValue("(is)", FAILED, "the engine is initialized already");
	}
	e->te = te;
	e->pid = getpid();
	return Py_BuildValue("(is)", 0, "");
}

static PyObject *engine_port(PyObject *self, PyObject *none)
{
	struct mce_te *te = engine_te(self);

	return PyLong_FromLong(te ? mce_te_rpc_port(te) : 0);
}

static PyObject *engine_name(PyObject *self, PyObject *none)
{
	struct mce_te *te = engine_te(self);

	return PyUnicode_FromString(te ? mce_te_name(te) : "");
}

static PyObject *engine_pointer(PyObject *self, PyObject *none)
{
	return PyLong_FromVoidPtr(engine_te(self));
}

MCPY_METHOD(engine_topology, "get_local_topology", 0, "device_name")
{
	struct mce_te *te = engine_te(self);
	const char *filter = NULL;
	char *json = NULL;
	PyObject *ret;
	int r = FAILED;

	if (a[0] != Py_None && mcpy_text(a[0], "device_name", &filter) < 0)
		return NULL;
	if (te) {
		Py_BEGIN_ALLOW_THREADS
		r = mce_te_topology(te, filter && *filter ? filter : NULL, &json);
		Py_END_ALLOW_THREADS
	}
	ret = PyUnicode_FromString(r < 0 ? "" : json);
	free(json);
	return ret;
}

/* ---- memory ---- */

/* Upstream's error codes. */
static int memory_code(int r)
{
	switch (r) {
	case -EEXIST:
		return -7;
	case -ENOENT:
		return -3;
	default:
		return r < 0 ? FAILED : 0;
	}
}

MCPY_METHOD(engine_register, "register_memory", 2, "buffer_addr", "capacity", "location")
{
	struct mce_te *te = engine_te(self);
	const char *location = "*";
	uint64_t at, len;
	int r = FAILED;

	if (mcpy_u64(a[0], "buffer_addr", &at) < 0 || mcpy_u64(a[1], "capacity", &len) < 0 ||
	    mcpy_text(a[2], "location", &location) < 0)
		return NULL;
	if (te) {
		Py_BEGIN_ALLOW_THREADS
		r = memory_code(mce_te_register(te, (void *)(uintptr_t)at, len, location, 1));
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLong(r);
}

MCPY_METHOD(engine_unregister, "unregister_memory", 1, "buffer_addr")
{
	struct mce_te *te = engine_te(self);
	int r = FAILED;
	uint64_t at;

	if (mcpy_u64(a[0], "buffer_addr", &at) < 0)
		return NULL;
	if (te) {
		Py_BEGIN_ALLOW_THREADS
		r = memory_code(mce_te_unregister(te, (void *)(uintptr_t)at));
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLong(r);
}

MCPY_METHOD(engine_register_batch, "batch_register_memory", 2, "buffer_addresses", "capacities", "location")
{
	struct mcpy_numbers at = { 0 }, len = { 0 };
	struct mce_te *te = engine_te(self);
	struct buffer_entry *list = NULL;
	const char *location = "*";
	int r = FAILED, bad;

	if (mcpy_text(a[2], "location", &location) < 0)
		return NULL;
	bad = mcpy_numbers(a[0], "buffer_addresses", &at) < 0 || mcpy_numbers(a[1], "capacities", &len) < 0;
	if (!bad && te && at.n == len.n) {
		list = PyMem_RawCalloc((size_t)at.n + 1, sizeof(*list));
		for (Py_ssize_t i = 0; i < at.n && list; i++)
			list[i] = (struct buffer_entry){ (void *)(uintptr_t)at.v[i], len.v[i] };
		Py_BEGIN_ALLOW_THREADS
		if (list)
			r = at.n ? memory_code(mce_te_register_batch(te, list, (size_t)at.n, location)) : 0;
		Py_END_ALLOW_THREADS
	}
	PyMem_RawFree(at.v);
	PyMem_RawFree(len.v);
	PyMem_RawFree(list);
	return bad ? NULL : PyLong_FromLong(r);
}

MCPY_METHOD(engine_unregister_batch, "batch_unregister_memory", 1, "buffer_addresses")
{
	struct mce_te *te = engine_te(self);
	struct mcpy_numbers at;
	int r = FAILED;

	if (mcpy_numbers(a[0], "buffer_addresses", &at) < 0)
		return NULL;
	_Static_assert(sizeof(void *) == sizeof(*at.v), "addresses are 64 bits");
	if (te) {
		Py_BEGIN_ALLOW_THREADS
		r = at.n ? memory_code(mce_te_unregister_batch(te, (void *const *)at.v, (size_t)at.n)) : 0;
		Py_END_ALLOW_THREADS
	}
	PyMem_RawFree(at.v);
	return PyLong_FromLong(r);
}

MCPY_METHOD(engine_manage, "allocate_managed_buffer", 1, "length")
{
	struct mce_te *te = engine_te(self);
	void *p = NULL;
	uint64_t len;

	if (mcpy_u64(a[0], "length", &len) < 0)
		return NULL;
	if (te && len) {
		Py_BEGIN_ALLOW_THREADS
		if (mce_te_manage(te, len, -1, &p) < 0)
			p = NULL;
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromVoidPtr(p);
}

MCPY_METHOD(engine_unmanage, "free_managed_buffer", 1, "buffer_addr", "length")
{
	struct mce_te *te = engine_te(self);
	int r = FAILED;
	uint64_t at;

	if (mcpy_u64(a[0], "buffer_addr", &at) < 0)
		return NULL;
	if (te) {
		Py_BEGIN_ALLOW_THREADS
		r = mce_te_unmanage(te, (void *)(uintptr_t)at) < 0 ? FAILED : 0;
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLong(r);
}

MCPY_METHOD(engine_write_bytes, "write_bytes_to_buffer", 2, "dest_address", "src_ptr", "length")
{
	struct iovec dest;
	Py_buffer buf;
	uint64_t at, len;
	int r;

	if (mcpy_u64(a[0], "dest_address", &at) < 0 || mcpy_bytes(a[1], &buf) < 0)
		return NULL;
	len = (uint64_t)buf.len;
	if (mcpy_u64(a[2], "length", &len) < 0) {
		PyBuffer_Release(&buf);
		return NULL;
	}
	dest = (struct iovec){ (void *)(uintptr_t)at, len };
	if (!at || len > (uint64_t)buf.len || !mcpy_all_reach(&dest, 1, MCPY_WRITE)) {
		PyBuffer_Release(&buf);
		return PyLong_FromLong(FAILED);
	}
	Py_BEGIN_ALLOW_THREADS
	r = mce_te_gpu_memcpy((void *)(uintptr_t)at, buf.buf, len);
	Py_END_ALLOW_THREADS
	PyBuffer_Release(&buf);
	return PyLong_FromLong(r < 0 ? FAILED : 0);
}

MCPY_METHOD(engine_read_bytes, "read_bytes_from_buffer", 2, "source_address", "length")
{
	uint64_t at, len;
	PyObject *ret;
	int r;

	if (mcpy_u64(a[0], "source_address", &at) < 0 || mcpy_u64(a[1], "length", &len) < 0)
		return NULL;
	if (len > PY_SSIZE_T_MAX)
		return PyErr_NoMemory();
	if (at && mcpy_reach(at, len, MCPY_READ) < len)
		return PyErr_Format(PyExc_ValueError, "%llu bytes at %llu cannot be read by this process",
				    (unsigned long long)len, (unsigned long long)at);
	ret = PyBytes_FromStringAndSize(NULL, at ? (Py_ssize_t)len : 0);
	if (!ret || !at)
		return ret;
	Py_BEGIN_ALLOW_THREADS
	r = mce_te_gpu_memcpy(PyBytes_AS_STRING(ret), (const void *)(uintptr_t)at, len);
	Py_END_ALLOW_THREADS
	if (r < 0) {
		Py_CLEAR(ret);
		PyErr_Format(PyExc_RuntimeError, "%s", mce_te_error_detail(r));
	}
	return ret;
}

int mcpy_gpu_of(const void *p)
{
	return mce_te_gpu_of(p);
}

/* ---- transfers ---- */

enum { A_TARGET, A_LOCAL, A_REMOTE, A_LENGTH, A_OPCODE, A_TIMEOUT, A_NAME, A_MSG, A_STREAM };
#define TRANSFER_ARGS "target", "buffers", "peer_buffer_addresses", "lengths", "opcode", "timeout_ms", \
	"notify_name", "notify_msg"

struct transfer {
	const char *target;
	struct transfer_request *req;
	size_t n;
	struct mce_te_submit_opts opts;
	uint64_t batch;
};

/* Requests of parallel lists.  *ret_good: the lists have equal lengths, and the local buffers allow the access. */
static int transfer_requests(PyObject *const *a, int opcode, struct transfer *t, bool *ret_good)
{
	struct mcpy_numbers local = { 0 }, remote = { 0 }, len = { 0 };
	struct iovec *iov;
	int r = -1;

	if (mcpy_numbers(a[A_LOCAL], "buffers", &local) < 0 ||
	    mcpy_numbers(a[A_REMOTE], "peer_buffer_addresses", &remote) < 0 ||
	    mcpy_numbers(a[A_LENGTH], "lengths", &len) < 0)
		goto out;
	r = 0;
	*ret_good = local.n == remote.n && local.n == len.n;
	if (!*ret_good)
		goto out;
	t->n = (size_t)local.n;
	t->req = PyMem_RawCalloc(t->n + 1, sizeof(*t->req));
	if (!t->req) {
		PyErr_NoMemory();
		r = -1;
		goto out;
	}
	iov = PyMem_RawCalloc(t->n + 1, sizeof(*iov));
	for (size_t i = 0; i < t->n && iov; i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)local.v[i], len.v[i] };
	if (iov)
		*ret_good = opcode == OPCODE_WRITE ? mcpy_all_reach(iov, local.n, MCPY_READ)
						   : mcpy_all_reach(iov, local.n, MCPY_WRITE);
	PyMem_RawFree(iov);
	for (size_t i = 0; i < t->n; i++)
		t->req[i] = (struct transfer_request){
			.opcode = opcode, .source = (void *)(uintptr_t)local.v[i],
			.target_offset = remote.v[i], .length = len.v[i],
		};
out:
	PyMem_RawFree(local.v);
	PyMem_RawFree(remote.v);
	PyMem_RawFree(len.v);
	return r;
}

/* 0, 1: invalid lists or buffers, -1: an exception. */
static int transfer_parse(PyObject *const *a, struct transfer *t)
{
	uint64_t opcode, ms;
	bool good = false;

	*t = (struct transfer){ .opts = { .size = sizeof(t->opts) } };
	if (mcpy_text(a[A_TARGET], "target_hostname", &t->target) < 0 ||
	    mcpy_u64(a[A_OPCODE], "opcode", &opcode) < 0 || mcpy_u64(a[A_TIMEOUT], "timeout_ms", &ms) < 0)
		return -1;
	if (a[A_NAME] && a[A_NAME] != Py_None) {
		t->opts.notify_msg = "";
		if (mcpy_text(a[A_NAME], "name", &t->opts.notify_name) < 0 ||
		    mcpy_text(a[A_MSG], "msg", &t->opts.notify_msg) < 0)
			return -1;
	}
	if (transfer_requests(a, opcode ? OPCODE_WRITE : OPCODE_READ, t, &good) < 0)
		return -1;
	t->opts.deadline_ms = (int64_t)(ms < INT32_MAX ? ms : INT32_MAX);
	/* As in upstream, add one nanosecond per byte. */
	for (size_t i = 0; i < t->n; i++)
		t->opts.deadline_ms += (int64_t)(t->req[i].length / 1000000 % INT32_MAX);
	return good ? 0 : 1;
}

/* Submit all requests to the target's segment.  Needs no GIL. */
static int transfer_submit(struct mce_te *te, struct transfer *t)
{
	segment_id_t segment;
	int r = mce_te_open_segment(te, t->target, 0, &segment);

	if (r < 0)
		return r;
	for (size_t i = 0; i < t->n; i++)
		t->req[i].target_id = segment;
	r = mce_te_batch_new(te, t->n, &t->batch);
	if (r < 0)
		return r;
	r = mce_te_submit(te, t->batch, t->req, t->n, &t->opts);
	if (r < 0)
		(void)mce_te_batch_free(te, t->batch);
	return r;
}

/* Wait for a batch and free it: STATUS_COMPLETED, or the status that says why it failed. */
static int batch_finish(struct mce_te *te, uint64_t batch, int64_t timeout_ms)
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

/* Send the notification of a call without transfers. */
static int transfer_notify(struct mce_te *te, const struct transfer *t)
{
	segment_id_t segment;

	if (!t->opts.notify_name)
		return STATUS_COMPLETED;
	if (mce_te_open_segment(te, t->target, 0, &segment) < 0 ||
	    mce_te_notify(te, segment, t->opts.notify_name, t->opts.notify_msg) < 0)
		return STATUS_FAILED;
	return STATUS_COMPLETED;
}

static int transfer_run(struct mce_te *te, struct transfer *t)
{
	if (!t->n)
		return transfer_notify(te, t);
	if (transfer_submit(te, t) < 0)
		return STATUS_FAILED;
	return batch_finish(te, t->batch, t->opts.deadline_ms + GRACE_MS);
}

MCPY_METHOD(engine_transfer, "transfer", 6, TRANSFER_ARGS)
{
	struct mce_te *te = engine_te(self);
	struct transfer t;
	int status = STATUS_FAILED, r = transfer_parse(a, &t);

	if (!r && te) {
		Py_BEGIN_ALLOW_THREADS
		status = transfer_run(te, &t);
		Py_END_ALLOW_THREADS
	}
	PyMem_RawFree(t.req);
	return r < 0 ? NULL : PyLong_FromLong(status == STATUS_COMPLETED ? 0 : FAILED);
}

/* 0; raises RuntimeError when the transfers cannot be queued. */
MCPY_METHOD(engine_on_stream, "transfer_on_cuda", 6, TRANSFER_ARGS, "stream")
{
	struct mce_te *te = engine_te(self);
	struct transfer t;
	uint64_t stream = 0;
	int r = a[A_STREAM] ? mcpy_u64(a[A_STREAM], "stream_ptr", &stream) : 0, done = 0;
	segment_id_t segment;

	if (r < 0)
		return NULL;
	r = transfer_parse(a, &t);
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

/* A batch id in Python is the engine's id plus 1, because 0 means failure. */
MCPY_METHOD(engine_submit, "transfer", 6, TRANSFER_ARGS)
{
	struct mce_te *te = engine_te(self);
	struct transfer t;
	int r = transfer_parse(a, &t), done = FAILED;

	if (!r && te && t.n) {
		Py_BEGIN_ALLOW_THREADS
		done = transfer_submit(te, &t);
		Py_END_ALLOW_THREADS
	}
	PyMem_RawFree(t.req);
	return r < 0 ? NULL : PyLong_FromUnsignedLongLong(done < 0 ? 0 : t.batch + 1);
}

MCPY_METHOD(engine_wait, "get_batch_transfer_status", 1, "batch_ids")
{
	struct mce_te *te = engine_te(self);
	struct mcpy_numbers ids;
	int r = te ? 0 : FAILED;

	if (mcpy_numbers(a[0], "batch_ids", &ids) < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	/* No timeout here: each transfer has a deadline. */
	for (Py_ssize_t i = 0; i < ids.n && te; i++)
		if (!ids.v[i] || batch_finish(te, ids.v[i] - 1, -1) != STATUS_COMPLETED)
			r = FAILED;
	Py_END_ALLOW_THREADS
	PyMem_RawFree(ids.v);
	return PyLong_FromLong(r);
}

MCPY_METHOD(engine_check, "transfer_check_status", 1, "batch_id")
{
	struct mce_te *te = engine_te(self);
	struct mce_te_batch_status st;
	uint64_t id;
	int r;

	if (mcpy_u64(a[0], "batch_id", &id) < 0)
		return NULL;
	if (!te || !id || mce_te_batch_status(te, id - 1, &st) < 0)
		return PyLong_FromLong(FAILED);
	if (st.status == STATUS_WAITING || st.status == STATUS_PENDING)
		return PyLong_FromLong(0);
	r = st.status == STATUS_COMPLETED ? 1 : st.status == STATUS_TIMEOUT ? -2 : FAILED;
	Py_BEGIN_ALLOW_THREADS
	(void)mce_te_batch_free(te, id - 1);
	Py_END_ALLOW_THREADS
	return PyLong_FromLong(r);
}

/* ---- peers ---- */

MCPY_METHOD(engine_probe, "send_probe", 1, "peer_server_name")
{
	struct mce_te *te = engine_te(self);
	const char *name;
	int r = FAILED;

	if (mcpy_text(a[0], "peer_server_name", &name) < 0)
		return NULL;
	if (te) {
		Py_BEGIN_ALLOW_THREADS
		r = mce_te_probe(te, name) < 0 ? -102 : 0;
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLong(r);
}

MCPY_METHOD(engine_first_buffer, "get_first_buffer_address", 1, "segment_name")
{
	struct mce_te *te = engine_te(self);
	uint64_t at = 0, len;
	segment_id_t segment;
	const char *name;

	if (mcpy_text(a[0], "segment_name", &name) < 0)
		return NULL;
	if (te) {
		Py_BEGIN_ALLOW_THREADS
		if (mce_te_open_segment(te, name, MCE_TE_FRESH, &segment) < 0 ||
		    mce_te_first_buffer(te, segment, &at, &len) < 0)
			at = 0;
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromUnsignedLongLong(at);
}

/* Peers may send invalid UTF-8, which is replaced. */
static PyObject *engine_notifies(PyObject *self, PyObject *none)
{
	struct mce_te *te = engine_te(self);
	notify_msg_t *list = NULL;
	PyObject *ret;
	int n = 0;

	if (te)
		list = getNotifsFromEngine(te, &n);
	n = list ? n : 0;
	ret = PyList_New(n);
	for (int i = 0; i < n && ret; i++)
		mcpy_list_take(&ret, i, Py_BuildValue("(NN)",
			PyUnicode_DecodeUTF8(list[i].name, (Py_ssize_t)strlen(list[i].name), "replace"),
			PyUnicode_DecodeUTF8(list[i].msg, (Py_ssize_t)strlen(list[i].msg), "replace")));
	if (list)
		freeNotifsMsgBuf(list, n);
	return ret;
}

static PyMethodDef methods[] = {
	{ "_open", MCPY_FAST(engine_open), "_open(metadata, name, nic_filter) -> (code, why)" },
	{ "_transfer", MCPY_FAST(engine_transfer), "Transfer and wait; 0 or -1." },
	{ "_submit", MCPY_FAST(engine_submit), "Start transfers; an id, 0 on failure." },
	{ "_on_cuda", MCPY_FAST(engine_on_stream), "Queue transfers on a stream of the GPU." },
	{ "_notifies", engine_notifies, METH_NOARGS, "[(name, msg)]" },
	{ "_name", engine_name, METH_NOARGS, "The name under which peers open this engine." },
	{ "get_rpc_port", engine_port, METH_NOARGS,
	  "get_rpc_port() -> int\n\nWith P2PHANDSHAKE, peers open this engine as \"host:port\"." },
	{ "get_engine_ptr", engine_pointer, METH_NOARGS,
	  "get_engine_ptr() -> int\n\nAddress of the engine: a transfer_engine_t.  0 before initialize()." },
	{ "get_local_topology", MCPY_FAST(engine_topology),
	  "get_local_topology(device_name: str = None) -> str\n\nThe priority matrix as JSON.  device_name: "
	  "comma-separated list of the devices to include." },
	{ "register_memory", MCPY_FAST(engine_register),
	  "register_memory(buffer_addr: int, capacity: int, location: str = '*') -> int\n\nAllow peers to "
	  "read and write capacity bytes of the caller's memory.\n0, -7 if they overlap registered memory, or -1, "
	  "also\nif this process cannot access them." },
	{ "unregister_memory", MCPY_FAST(engine_unregister),
	  "unregister_memory(buffer_addr: int) -> int\n\n0: peers can no longer access the memory; -3: "
	  "nothing is registered there." },
	{ "batch_register_memory", MCPY_FAST(engine_register_batch),
	  "batch_register_memory(buffer_addresses: list[int], capacities: list[int], "
	  "location: str = '*') -> int\n\nRegister all buffers or none." },
	{ "batch_unregister_memory", MCPY_FAST(engine_unregister_batch),
	  "batch_unregister_memory(buffer_addresses: list[int]) -> int" },
	{ "allocate_managed_buffer", MCPY_FAST(engine_manage),
	  "allocate_managed_buffer(length: int) -> int\n\nAddress of registered memory, which peers on "
	  "the same host can map; 0: not enough memory." },
	{ "free_managed_buffer", MCPY_FAST(engine_unmanage),
	  "free_managed_buffer(buffer_addr: int, length: int = 0) -> int\n\n0, or -1 for an address "
	  "that was not allocated." },
	{ "write_bytes_to_buffer", MCPY_FAST(engine_write_bytes),
	  "write_bytes_to_buffer(dest_address: int, src_ptr: bytes, length: int = None) -> int\n\n0, "
	  "or -1 if src_ptr has fewer bytes or the destination is not writable." },
	{ "read_bytes_from_buffer", MCPY_FAST(engine_read_bytes),
	  "read_bytes_from_buffer(source_address: int, length: int) -> bytes" },
	{ "get_batch_transfer_status", MCPY_FAST(engine_wait),
	  "get_batch_transfer_status(batch_ids: list[int]) -> int\n\nWait until all batches have ended, and "
	  "free them.  0: all succeeded; else -1." },
	{ "transfer_check_status", MCPY_FAST(engine_check),
	  "transfer_check_status(batch_id: int) -> int\n\n0: still running.  1: completed, -1: failed, -2: timed "
	  "out; the id is then invalid." },
	{ "send_probe", MCPY_FAST(engine_probe),
	  "send_probe(peer_server_name: str) -> int\n\n0: the peer answered; -102: it did not." },
	{ "get_first_buffer_address", MCPY_FAST(engine_first_buffer),
	  "get_first_buffer_address(segment_name: str) -> int\n\nAddress of the first memory that the peer registered; "
	  "0: none." },
	{ NULL, NULL, 0, NULL }
};

static PyType_Slot slots[] = {
	{ Py_tp_dealloc, engine_dealloc },
	{ Py_tp_traverse, engine_traverse },
	{ Py_tp_methods, methods },
	{ Py_tp_doc, (char *)"The base of mooncake.engine.TransferEngine." },
	{ 0, NULL }
};

static PyType_Spec spec = {
	.name = "mooncake._engine.Engine",
	.basicsize = sizeof(struct engine),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
	.slots = slots,
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "mooncake._engine",
	.m_doc = "C part of mooncake.engine.",
	.m_size = -1,
};

PyMODINIT_FUNC PyInit__engine(void);

PyMODINIT_FUNC PyInit__engine(void)
{
	PyObject *m = PyModule_Create(&definition);
	PyObject *type = m ? PyType_FromModuleAndSpec(m, &spec, NULL) : NULL;

	if (!type || PyModule_AddObjectRef(m, "Engine", type) < 0)
		Py_CLEAR(m);
	Py_XDECREF(type);
	return m;
}
