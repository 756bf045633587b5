/* SPDX-License-Identifier: Apache-2.0
 * get.c - methods that read objects: into new memory and into the caller's memory. */
#include "python/mcpy.h"

#include <stdlib.h>

static PyObject *get_results(const struct mcs_get_item *items, Py_ssize_t n)
{
	PyObject *list = PyList_New(n);

	for (Py_ssize_t i = 0; i < n && list; i++)
		mcpy_list_take(&list, i, PyLong_FromLongLong(items[i].result));
	return list;
}

/* ---- get: bytes ---- */

/* The call runs without the GIL, but allocates Python objects. */
struct bytes_arg {
	PyThreadState *thread;
	PyObject **ret;
};

static void *get_bytes_alloc(void *arg, unsigned i, uint64_t size)
{
	struct bytes_arg *b = arg;
	void *data = NULL;

	PyEval_RestoreThread(b->thread);
	Py_CLEAR(b->ret[i]);
	if (size < PY_SSIZE_T_MAX)
		b->ret[i] = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
	if (b->ret[i])
		data = PyBytes_AS_STRING(b->ret[i]);
	else
		PyErr_Clear();
	b->thread = PyEval_SaveThread();
	return data;
}

/* Store bytes objects in ret[], NULL for each failed item. */
static void get_bytes(PyObject *self, struct mcs_get_item *items, unsigned n, PyObject **ret)
{
	struct mcpy_core *c = mcpy_enter(self);
	struct bytes_arg arg = { .ret = ret };

	if (!c)
		return;
	arg.thread = PyEval_SaveThread();
	(void)mcs_get_batch_alloc(c->mcs, items, n, get_bytes_alloc, &arg, -1);
	mcpy_leave(c);
	PyEval_RestoreThread(arg.thread);
	/* A partly filled object would expose uninitialized memory. */
	for (unsigned i = 0; i < n; i++)
		if (items[i].result < 0 || (ret[i] && items[i].result != PyBytes_GET_SIZE(ret[i])))
			Py_CLEAR(ret[i]);
}

MCPY_METHOD(store_get, "get", 1, "key")
{
	struct mcs_get_item item = { 0 };
	PyObject *ret = NULL;

	if (mcpy_key(a[0], &item.key) < 0)
		return NULL;
	get_bytes(self, &item, 1, &ret);
	return ret ? ret : PyBytes_FromStringAndSize(NULL, 0);
}

static struct mcs_get_item *get_items(const struct mcpy_keys *keys)
{
	struct mcs_get_item *items = PyMem_RawCalloc((size_t)keys->n + 1, sizeof(*items));

	for (Py_ssize_t i = 0; i < keys->n && items; i++)
		items[i].key = keys->key[i];
	if (!items)
		PyErr_NoMemory();
	return items;
}

MCPY_METHOD(store_get_batch, "get_batch", 1, "keys")
{
	struct mcs_get_item *items = NULL;
	PyObject *list = NULL;
	PyObject **got = NULL;
	struct mcpy_keys keys;

	if (mcpy_keys(a[0], &keys) < 0)
		return NULL;
	items = get_items(&keys);
	got = PyMem_Calloc((size_t)keys.n + 1, sizeof(PyObject *));
	if (items && got) {
		get_bytes(self, items, (unsigned)keys.n, got);
		list = PyList_New(keys.n);
	}
	for (Py_ssize_t i = 0; i < keys.n && got; i++) {
		if (list && !got[i])
			got[i] = PyBytes_FromStringAndSize(NULL, 0);
		if (list)
			mcpy_list_take(&list, i, Py_XNewRef(got[i]));
		Py_CLEAR(got[i]);
	}
	PyMem_Free(got);
	PyMem_RawFree(items);
	mcpy_keys_done(&keys);
	return list;
}

/* ---- get_buffer: new memory ---- */

static void *get_malloc(void *arg, unsigned i, uint64_t size)
{
	void **data = arg;

	free(data[i]);
	/* Align to a page, small objects to a cache line, for vector code. */
	data[i] = NULL;
	if (posix_memalign(&data[i], size >= 65536 ? 4096 : 64, size ? size : 1))
		data[i] = NULL;
	return data[i];
}

static void get_memory(PyObject *self, struct mcs_get_item *items, unsigned n, void **data)
{
	struct mcpy_core *c = mcpy_enter(self);

	for (unsigned i = 0; i < n; i++)
		items[i].result = -1;
	if (!c)
		return;
	Py_BEGIN_ALLOW_THREADS
	(void)mcs_get_batch_alloc(c->mcs, items, n, get_malloc, data, -1);
	mcpy_leave(c);
	Py_END_ALLOW_THREADS
}

/* A handle that owns @data; on failure (negative @size), free @data and return None. */
static PyObject *get_handle(void *data, int64_t size)
{
	if (size >= 0)
		return mcpy_handle_new(data, (Py_ssize_t)size);
	free(data);
	return Py_NewRef(Py_None);
}

MCPY_METHOD(store_get_buffer, "get_buffer", 1, "key")
{
	struct mcs_get_item item = { 0 };
	void *data = NULL;

	if (mcpy_key(a[0], &item.key) < 0)
		return NULL;
	get_memory(self, &item, 1, &data);
	return get_handle(data, item.result);
}

MCPY_METHOD(store_batch_get_buffer, "batch_get_buffer", 1, "keys")
{
	struct mcs_get_item *items;
	PyObject *list = NULL, *one;
	struct mcpy_keys keys;
	void **data;

	if (mcpy_keys(a[0], &keys) < 0)
		return NULL;
	items = get_items(&keys);
	data = PyMem_RawCalloc((size_t)keys.n + 1, sizeof(void *));
	if (items && data) {
		get_memory(self, items, (unsigned)keys.n, data);
		list = PyList_New(keys.n);
	}
	for (Py_ssize_t i = 0; i < keys.n && items && data; i++) {
		one = get_handle(data[i], list ? items[i].result : -1);
		if (list)
			mcpy_list_take(&list, i, one);
		else
			Py_XDECREF(one);
	}
	PyMem_RawFree(data);
	PyMem_RawFree(items);
	mcpy_keys_done(&keys);
	return list;
}

/* ---- get_into: the caller's memory ---- */

/* A caller may give a size larger than its buffer if the object fits: cut off bytes that are not writable. */
static void get_cut_iov(struct iovec *iov, Py_ssize_t n)
{
	if (mcpy_all_reach(iov, n, MCPY_WRITE))
		return;
	for (Py_ssize_t i = 0; i < n; i++)
		iov[i].iov_len = mcpy_reach((uint64_t)(uintptr_t)iov[i].iov_base, iov[i].iov_len, MCPY_WRITE);
}

MCPY_METHOD(store_get_into, "get_into", 3, "key", "buffer_ptr", "size")
{
	int64_t r = MCPY_INVALID_PARAMS;
	struct mcpy_core *c;
	struct mcs_key key;
	struct iovec iov;
	uint64_t at, size;

	if (mcpy_key(a[0], &key) < 0 ||
	    mcpy_u64(a[1], "buffer_ptr", &at) < 0 || mcpy_u64(a[2], "size", &size) < 0)
		return NULL;
	c = mcpy_enter(self);
	if (c) {
		iov = (struct iovec){ (void *)(uintptr_t)at, at ? size : 0 };
		get_cut_iov(&iov, 1);
		Py_BEGIN_ALLOW_THREADS
		r = mcpy_get_code(mcs_get(c->mcs, key, &iov, 1, -1), key);
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLongLong(r);
}

/* Read all items, with upstream's codes as results: MCPY_INVALID_PARAMS if the store is not open. */
static void get_run(PyObject *self, struct mcs_get_item *items, Py_ssize_t n)
{
	struct mcpy_core *c = mcpy_enter(self);

	if (c) {
		Py_BEGIN_ALLOW_THREADS
		if (n)
			(void)mcs_get_batch(c->mcs, items, (unsigned)n, -1);
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	for (Py_ssize_t i = 0; i < n; i++)
		items[i].result = c ? mcpy_get_code(items[i].result, items[i].key) : MCPY_INVALID_PARAMS;
}

/* Read whole objects, into one buffer each. */
MCPY_METHOD(store_batch_get_into, "batch_get_into", 3, "keys", "buffer_ptrs", "sizes")
{
	struct mcpy_numbers at = { 0 }, size = { 0 };
	struct mcs_get_item *items = NULL;
	struct iovec *iov = NULL;
	PyObject *list = NULL;
	struct mcpy_keys keys;

	if (mcpy_keys(a[0], &keys) < 0)
		return NULL;
	if (mcpy_numbers(a[1], "buffer_ptrs", &at) < 0 || mcpy_numbers(a[2], "sizes", &size) < 0)
		goto out;
	if (at.n != keys.n || size.n != keys.n) {
		list = mcpy_list_of(keys.n, MCPY_INVALID_PARAMS);
		goto out;
	}
	iov = PyMem_RawCalloc((size_t)keys.n + 1, sizeof(*iov));
	items = get_items(&keys);
	if (!iov || !items) {
		PyErr_NoMemory();
		goto out;
	}
	for (Py_ssize_t i = 0; i < keys.n; i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)at.v[i], at.v[i] ? size.v[i] : 0 };
	get_cut_iov(iov, keys.n);
	for (Py_ssize_t i = 0; i < keys.n; i++) {
		items[i].whole = 1;
		items[i].iov = &iov[i];
		items[i].iovcnt = 1;
	}
	get_run(self, items, keys.n);
	list = get_results(items, keys.n);
out:
	PyMem_RawFree(iov);
	PyMem_RawFree(items);
	PyMem_RawFree(at.v);
	PyMem_RawFree(size.v);
	mcpy_keys_done(&keys);
	return list;
}

static bool get_null_piece(const struct iovec *iov, Py_ssize_t n)
{
	for (Py_ssize_t i = 0; i < n; i++)
		if (iov[i].iov_len && !iov[i].iov_base)
			return true;
	return false;
}

static PyObject *get_run_multi(PyObject *self, const struct mcpy_keys *keys, const struct mcpy_vectors *v)
{
	struct mcs_get_item *items = get_items(keys);
	Py_ssize_t used = 0;
	PyObject *list;
	bool whole;

	if (!items)
		return NULL;
	whole = mcpy_all_reach(v->iov, v->first[keys->n], MCPY_WRITE);
	for (Py_ssize_t i = 0; i < keys->n; i++) {
		const struct iovec *iov = v->iov + v->first[i];
		Py_ssize_t n = v->first[i + 1] - v->first[i];

		if (v->bad[i] || get_null_piece(iov, n) || (!whole && !mcpy_all_reach(iov, n, MCPY_WRITE))) {
			v->bad[i] = true;
			continue;
		}
		items[used++] = (struct mcs_get_item){
			.key = keys->key[i], .whole = 1, .iov = iov, .iovcnt = (int)n,
		};
	}
	get_run(self, items, used);
	/* Move the results of the valid items to their keys, from the end, so that none is overwritten. */
	for (Py_ssize_t i = keys->n - 1; i >= 0; i--)
		items[i].result = v->bad[i] ? MCPY_INVALID_PARAMS : items[--used].result;
	list = get_results(items, keys->n);
	PyMem_RawFree(items);
	return list;
}

MCPY_METHOD(store_batch_get_multi, "batch_get_into_multi_buffers", 3, "keys", "all_buffer_ptrs",
	    "all_sizes", "prefer_alloc_in_same_node")
{
	struct mcpy_vectors v = { 0 };
	PyObject *ret = NULL;
	struct mcpy_keys keys;
	bool same_node;

	if (mcpy_bool(a[3], false, &same_node) < 0 || mcpy_keys(a[0], &keys) < 0)
		return NULL;
	if (mcpy_vectors(a[1], a[2], &v) < 0)
		goto out;
	if (v.n != keys.n)
		ret = mcpy_list_of(keys.n, MCPY_INVALID_PARAMS);
	else
		ret = get_run_multi(self, &keys, &v);
out:
	mcpy_vectors_done(&v);
	mcpy_keys_done(&keys);
	return ret;
}

#define CODES "the object's size in bytes (more than 0), -704 for a miss, -600 if the buffer is too " \
	"small\n(and unchanged), or another negative error code."

PyMethodDef mcpy_get_methods[] = {
	{ "get", MCPY_FAST(store_get),
	  "get(key: str) -> bytes\n\nThe object's bytes, with the checksum verified; b\"\" for a miss or a failure." },
	{ "get_batch", MCPY_FAST(store_get_batch),
	  "get_batch(keys: list) -> list[bytes]\n\nAs get(), one for each key." },
	{ "get_buffer", MCPY_FAST(store_get_buffer),
	  "get_buffer(key: str) -> BufferHandle | None\n\nA copy of the object; None for a miss or a failure.\n"
	  "It is freed with the handle and its last view, which may be after close()." },
	{ "batch_get_buffer", MCPY_FAST(store_batch_get_buffer),
	  "batch_get_buffer(keys: list) -> list[BufferHandle | None]\n\nAs get_buffer(), one for each "
	  "key." },
	{ "get_into", MCPY_FAST(store_get_into),
	  "get_into(key: str, buffer_ptr: int, size: int) -> int\n\n"
	  "Read the object into size bytes at buffer_ptr.  Returns "
	  CODES },
	{ "batch_get_into", MCPY_FAST(store_batch_get_into),
	  "batch_get_into(keys: list, buffer_ptrs: list[int], sizes: list[int]) -> list[int]\n\nAs get_into(), "
	  "one result for each key: " CODES },
	{ "batch_get_into_multi_buffers", MCPY_FAST(store_batch_get_multi),
	  "batch_get_into_multi_buffers(keys: list, all_buffer_ptrs: list[list[int]], "
	  "all_sizes: list[list[int]], prefer_alloc_in_same_node: bool = False) -> list[int]\n\n"
	  "Each object fills its buffers in order.  One result for each key:\n" CODES },
	{ NULL, NULL, 0, NULL }
};
