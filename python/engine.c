/* SPDX-License-Identifier: Apache-2.0
 * engine.c - the extension mooncake._engine: the engine, its memory and its peers, over mce_te.h. */
#include "python/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAILED MCPY_FAILED

struct engine {
	PyObject_HEAD
	struct mce_te *te;	/* NULL: not initialized; set once, with the GIL held */
	pid_t pid;
};

struct mce_te *mcpy_engine_te(PyObject *self)
{
	struct engine *e = (struct engine *)self;

	return e->te && e->pid == getpid() ? e->te : NULL;
}

static void engine_dealloc(PyObject *self)
{
	struct mce_te *te = mcpy_engine_te(self);
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
	struct mce_te *te = mcpy_engine_te(self);

	return PyLong_FromLong(te ? mce_te_rpc_port(te) : 0);
}

static PyObject *engine_name(PyObject *self, PyObject *none)
{
	struct mce_te *te = mcpy_engine_te(self);

	return PyUnicode_FromString(te ? mce_te_name(te) : "");
}

static PyObject *engine_pointer(PyObject *self, PyObject *none)
{
	return PyLong_FromVoidPtr(mcpy_engine_te(self));
}

MCPY_METHOD(engine_topology, "get_local_topology", 0, "device_name")
{
	struct mce_te *te = mcpy_engine_te(self);
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

MCPY_METHOD(engine_register, "register_memory", 2, "buffer_addr", "capacity", "location", "remote_accessible")
{
	struct mce_te *te = mcpy_engine_te(self);
	const char *location = "*";
	uint64_t at, len;
	bool remote;
	int r = FAILED;

	if (mcpy_u64(a[0], "buffer_addr", &at) < 0 || mcpy_u64(a[1], "capacity", &len) < 0 ||
	    mcpy_text(a[2], "location", &location) < 0 || mcpy_bool(a[3], true, &remote) < 0)
		return NULL;
	if (te) {
		Py_BEGIN_ALLOW_THREADS
		r = memory_code(mce_te_register(te, (void *)(uintptr_t)at, len, location, remote));
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLong(r);
}

MCPY_METHOD(engine_unregister, "unregister_memory", 1, "buffer_addr")
{
	struct mce_te *te = mcpy_engine_te(self);
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
	struct mce_te *te = mcpy_engine_te(self);
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
	struct mce_te *te = mcpy_engine_te(self);
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
	struct mce_te *te = mcpy_engine_te(self);
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
	struct mce_te *te = mcpy_engine_te(self);
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

/* ---- peers ---- */

MCPY_METHOD(engine_probe, "send_probe", 1, "peer_server_name")
{
	struct mce_te *te = mcpy_engine_te(self);
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
	struct mce_te *te = mcpy_engine_te(self);
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
	struct mce_te *te = mcpy_engine_te(self);
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

static PyMethodDef engine_methods[] = {
	{ "_open", MCPY_FAST(engine_open), "_open(metadata, name, nic_filter) -> (code, why)" },
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
	  "register_memory(buffer_addr: int, capacity: int, location: str = '*', remote_accessible: bool = True) "
	  "-> int\n\nAllow peers to read and write capacity bytes of the caller's memory; with "
	  "remote_accessible=False\nonly this engine's own transfers use them.  0, -7 if they overlap registered "
	  "memory, or -1, also\nif this process cannot access them." },
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
	{ "send_probe", MCPY_FAST(engine_probe),
	  "send_probe(peer_server_name: str) -> int\n\n0: the peer answered; -102: it did not." },
	{ "get_first_buffer_address", MCPY_FAST(engine_first_buffer),
	  "get_first_buffer_address(segment_name: str) -> int\n\nAddress of the first memory that the peer registered; "
	  "0: none." },
	{ NULL, NULL, 0, NULL }
};

static PyMethodDef all_methods[64];

static PyType_Slot slots[] = {
	{ Py_tp_dealloc, engine_dealloc },
	{ Py_tp_traverse, engine_traverse },
	{ Py_tp_methods, all_methods },
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

/* Join the tables, because a type has one table. */
static void methods_join(void)
{
	PyMethodDef *const tables[] = {
		engine_methods, mcpy_transfer_methods, mcpy_pages_methods, mcpy_scatter_methods,
	};
	size_t k = 0;

	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
		for (const PyMethodDef *m = tables[t]; m->ml_name; m++)
			all_methods[k++] = *m;
}

PyMODINIT_FUNC PyInit__engine(void)
{
	PyObject *m = PyModule_Create(&definition), *type;

	methods_join();
	type = m ? PyType_FromModuleAndSpec(m, &spec, NULL) : NULL;
	mcpy_ticket_type = type ? PyType_FromModuleAndSpec(m, &mcpy_ticket_spec, NULL) : NULL;
	if (!mcpy_ticket_type || PyModule_AddObjectRef(m, "Engine", type) < 0 ||
	    PyModule_AddObjectRef(m, "Ticket", mcpy_ticket_type) < 0)
		Py_CLEAR(m);
	Py_XDECREF(type);
	return m;
}
