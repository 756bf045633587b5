/* SPDX-License-Identifier: Apache-2.0
 * pool.c - methods for segments, replicas and tasks of the pool. */
#include "python/mcpy.h"

#include <errno.h>
#include <stdlib.h>

static PyObject *store_segments(PyObject *self, PyObject *none)
{
	struct mcpy_core *c = mcpy_enter(self);
	struct mcs_segment *seg = NULL;
	PyObject *list, *one;
	int n;

	if (!c)
		return PyLong_FromLong(MCPY_INVALID_PARAMS);
	Py_BEGIN_ALLOW_THREADS
	n = mcs_segments(c->mcs, &seg, -1);
	mcpy_leave(c);
	Py_END_ALLOW_THREADS
	if (n < 0)
		return PyLong_FromLongLong(mcpy_code(n));
	list = PyList_New(n);
	for (int i = 0; i < n && list; i++) {
		one = Py_BuildValue("(ssKKs)", seg[i].id, seg[i].name, (unsigned long long)seg[i].size,
				    (unsigned long long)seg[i].used, seg[i].state);
		mcpy_list_take(&list, i, one);
	}
	free(seg);
	return list;
}

MCPY_METHOD(store_pool_alloc, "alloc_from_mem_pool", 1, "size")
{
	struct mcpy_core *c;
	void *p = NULL;
	uint64_t size;

	if (mcpy_u64(a[0], "size", &size) < 0)
		return NULL;
	c = mcpy_enter(self);
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		p = size ? mcs_pool_alloc(c->mcs, size) : NULL;
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromUnsignedLongLong((uintptr_t)p);
}

/* ---- replicas ---- */

static PyObject *replica_list(const struct mcs_replicas *r)
{
	PyObject *list = PyList_New(r->n), *one;

	for (unsigned i = 0; i < r->n && list; i++) {
		one = Py_BuildValue("(ssKKOOsO)", r->replica[i].segment, r->replica[i].endpoint,
				    (unsigned long long)r->replica[i].address,
				    (unsigned long long)r->replica[i].size,
				    r->replica[i].readable ? Py_True : Py_False,
				    r->replica[i].on_disk ? Py_True : Py_False, r->replica[i].path,
				    r->replica[i].nof ? Py_True : Py_False);
		mcpy_list_take(&list, i, one);
	}
	return list;
}

/* One list for each key, None for a miss; or one negative code. */
MCPY_METHOD(store_replicas, "_replicas", 1, "keys", "promise")
{
	struct mcs_replicas *got = NULL;
	PyObject *list = NULL;
	int64_t r = MCPY_INVALID_PARAMS;
	struct mcpy_keys keys;
	struct mcpy_core *c;
	bool promise;

	if (mcpy_bool(a[1], true, &promise) < 0 || mcpy_keys(a[0], &keys) < 0)
		return NULL;
	got = PyMem_RawCalloc((size_t)keys.n + 1, sizeof(*got));
	c = got ? mcpy_enter(self) : NULL;
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = keys.n ? mcs_replicas(c->mcs, keys.key, (unsigned)keys.n, promise ? MCS_PROMISE : 0, got,
					  -1) : 0;
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	if (r >= 0)
		list = PyList_New(keys.n);
	for (Py_ssize_t i = 0; i < keys.n && list; i++)
		mcpy_list_take(&list, i, got[i].result < 0 ? Py_NewRef(Py_None) : replica_list(&got[i]));
	if (r >= 0 && keys.n)
		mcs_replicas_free(got, (unsigned)keys.n);
	PyMem_RawFree(got);
	mcpy_keys_done(&keys);
	return r < 0 ? PyLong_FromLongLong(mcpy_code(r)) : list;
}

/* ---- tasks ---- */

/* A NULL-ended array of the strings of a tuple; the tuple owns them. */
static const char **task_names(PyObject *tuple)
{
	Py_ssize_t n = PyTuple_GET_SIZE(tuple);
	const char **names = PyMem_Calloc((size_t)n + 1, sizeof(*names));

	if (!names)
		PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < n && names; i++)
		if (mcpy_text(PyTuple_GET_ITEM(tuple, i), "a segment's name", &names[i]) < 0) {
			PyMem_Free(names);
			names = NULL;
		}
	return names;
}

MCPY_METHOD(store_task_create, "_task_create", 4, "move", "key", "sources", "targets")
{
	const char **sources = NULL, **targets = NULL;
	struct mcs_task_opts opts = { 0 };
	int64_t r = MCPY_INVALID_PARAMS;
	struct mcpy_core *c = NULL;
	char id[MCS_TASK_ID];
	bool move;

	if (mcpy_bool(a[0], false, &move) < 0 || mcpy_key(a[1], &opts.key) < 0)
		return NULL;
	if (!PyTuple_Check(a[2]) || !PyTuple_Check(a[3])) {
		PyErr_SetString(PyExc_TypeError, "sources and targets must be tuples");
		return NULL;
	}
	sources = task_names(a[2]);
	targets = sources ? task_names(a[3]) : NULL;
	if (targets)
		c = mcpy_enter(self);
	if (c) {
		opts.kind = move ? MCS_TASK_MOVE : MCS_TASK_COPY;
		opts.sources = *sources ? sources : NULL;
		opts.targets = *targets ? targets : NULL;
		Py_BEGIN_ALLOW_THREADS
		r = mcpy_code(mcs_task_create(c->mcs, &opts, id, -1));
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	PyMem_Free(sources);
	PyMem_Free(targets);
	if (PyErr_Occurred())
		return NULL;
	return r < 0 ? PyLong_FromLongLong(r) : PyUnicode_FromString(id);
}

MCPY_METHOD(store_task, "_task", 1, "id")
{
	struct mcs_task *task = NULL;
	struct mcpy_core *c;
	PyObject *ret;
	const char *id;
	int64_t n;

	if (mcpy_text(a[0], "id", &id) < 0)
		return NULL;
	c = mcpy_enter(self);
	if (!c)
		return PyLong_FromLong(MCPY_INVALID_PARAMS);
	Py_BEGIN_ALLOW_THREADS
	n = mcs_tasks(c->mcs, id, &task, -1);
	mcpy_leave(c);
	Py_END_ALLOW_THREADS
	if (n < 0)
		return n == -MCS_ENOOBJECT || n == -ENOENT ? Py_NewRef(Py_None) :
			PyLong_FromLongLong(mcpy_code(n));
	if (!n)
		ret = Py_NewRef(Py_None);
	else
		ret = Py_BuildValue("(ssKKs)", task->kind, task->status,
				    (unsigned long long)task->created_ms,
				    (unsigned long long)task->updated_ms, task->message);
	free(task);
	return ret;
}

PyMethodDef mcpy_pool_methods[] = {
	{ "_segments", store_segments, METH_NOARGS,
	  "_segments() -> [(id, name, size, used, state)] or a negative code." },
	{ "alloc_from_mem_pool", MCPY_FAST(store_pool_alloc),
	  "alloc_from_mem_pool(size: int) -> int\n\n"
	  "Address of size bytes of the memory shared with the daemon of setup_dummy(), which need no registration;\n"
	  "0 when that memory is used up.  close() frees them." },
	{ "_replicas", MCPY_FAST(store_replicas),
	  "_replicas(keys, promise=True)\n"
	  "  -> [[(segment, endpoint, address, size, readable, on_disk, path, nof)] or None] or a negative code." },
	{ "_task_create", MCPY_FAST(store_task_create),
	  "_task_create(move, key, sources, targets) -> id or a negative code." },
	{ "_task", MCPY_FAST(store_task),
	  "_task(id) -> (kind, status, created_ms, updated_ms, message), None or a negative code." },
	{ NULL, NULL, 0, NULL }
};
