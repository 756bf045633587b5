/* SPDX-License-Identifier: Apache-2.0
 * get.c - methods that read: into new objects, into the caller's memory, ranges. */
#include "python/mcpy.h"

#include <stdlib.h>

static int64_t get_code(int64_t r, struct mcs_key key)
{
	return r < 0 && !key.len ? MCPY_NO_OBJECT : mcpy_code(r);
}

static PyObject *list_of_results(const int64_t *result, Py_ssize_t n)
{
	PyObject *list = PyList_New(n), *v;

	for (Py_ssize_t i = 0; i < n && list; i++) {
		v = PyLong_FromLongLong(result[i]);
		if (!v)
			Py_CLEAR(list);
		else
			PyList_SET_ITEM(list, i, v);
	}
	return list;
}

/* ---- get: bytes ---- */

/* The call runs without the GIL; its memory is Python's. */
struct bytes_arg {
	PyThreadState *thread;
	PyObject **ret;
};

static void *bytes_alloc(void *arg, unsigned i, uint64_t size)
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

/* bytes objects into ret[], NULL for what could not be read. */
static void get_bytes(PyObject *self, struct mcs_get_item *items, unsigned n, PyObject **ret)
{
	struct mcpy_core *c = mcpy_enter(self);
	struct bytes_arg arg = { .ret = ret };

	if (!c)
		return;
	arg.thread = PyEval_SaveThread();
	(void)mcs_get_batch_alloc(c->mcs, items, n, bytes_alloc, &arg, -1);
	mcpy_leave(c);
	PyEval_RestoreThread(arg.thread);
	/* What was not written is memory of before. */
	for (unsigned i = 0; i < n; i++)
		if (items[i].result < 0 || (ret[i] && items[i].result != PyBytes_GET_SIZE(ret[i])))
			Py_CLEAR(ret[i]);
}

static PyObject *store_get(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct mcpy_sig sig = { "get", 1, { "key" } };
	struct mcs_get_item item = { 0 };
	PyObject *a[1], *ret = NULL;

	if (mcpy_args(&sig, args, nargs, kwnames, a) < 0 || mcpy_key(a[0], &item.key) < 0)
		return NULL;
	get_bytes(self, &item, 1, &ret);
	return ret ? ret : PyBytes_FromStringAndSize(NULL, 0);
}

static struct mcs_get_item *items_of(const struct mcpy_keys *keys)
{
	struct mcs_get_item *items = PyMem_RawCalloc((size_t)keys->n + 1, sizeof(*items));

	for (Py_ssize_t i = 0; i < keys->n && items; i++)
		items[i].key = keys->key[i];
	if (!items)
		PyErr_NoMemory();
	return items;
}

static PyObject *store_get_batch(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct mcpy_sig sig = { "get_batch", 1, { "keys" } };
	struct mcs_get_item *items = NULL;
	PyObject *a[1], *list = NULL;
	PyObject **got = NULL;
	struct mcpy_keys keys;

	if (mcpy_args(&sig, args, nargs, kwnames, a) < 0 || mcpy_keys(a[0], &keys) < 0)
		return NULL;
	items = items_of(&keys);
	got = PyMem_Calloc((size_t)keys.n + 1, sizeof(PyObject *));
	if (items && got) {
		get_bytes(self, items, (unsigned)keys.n, got);
		list = PyList_New(keys.n);
	}
	for (Py_ssize_t i = 0; i < keys.n && got; i++) {
		if (list && !got[i])
			got[i] = PyBytes_FromStringAndSize(NULL, 0);
		if (list && got[i])
			PyList_SET_ITEM(list, i, Py_NewRef(got[i]));
		else
			Py_CLEAR(list);
		Py_CLEAR(got[i]);
	}
	PyMem_Free(got);
	PyMem_RawFree(items);
	mcpy_keys_done(&keys);
	return list;
}

/* ---- get_buffer: memory of its own ---- */

static void *malloc_item(void *arg, unsigned i, uint64_t size)
{
	void **data = arg;

	free(data[i]);
	/* Aligned as a page and a cache line are, for whoever computes on it. */
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
	(void)mcs_get_batch_alloc(c->mcs, items, n, malloc_item, data, -1);
	mcpy_leave(c);
	Py_END_ALLOW_THREADS
}

/* A handle, or None; takes the memory. */
static PyObject *handle_or_none(void *data, int64_t size)
{
	if (size >= 0)
		return mcpy_handle_new(data, (Py_ssize_t)size);
	free(data);
	return Py_NewRef(Py_None);
}

static PyObject *store_get_buffer(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
				  PyObject *kwnames)
{
	static const struct mcpy_sig sig = { "get_buffer", 1, { "key" } };
	struct mcs_get_item item = { 0 };
	void *data = NULL;
	PyObject *a[1];

	if (mcpy_args(&sig, args, nargs, kwnames, a) < 0 || mcpy_key(a[0], &item.key) < 0)
		return NULL;
	get_memory(self, &item, 1, &data);
	return handle_or_none(data, item.result);
}

static PyObject *store_batch_get_buffer(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
					PyObject *kwnames)
{
	static const struct mcpy_sig sig = { "batch_get_buffer", 1, { "keys" } };
	struct mcs_get_item *items;
	PyObject *a[1], *list = NULL, *one;
	struct mcpy_keys keys;
	void **data;

	if (mcpy_args(&sig, args, nargs, kwnames, a) < 0 || mcpy_keys(a[0], &keys) < 0)
		return NULL;
	items = items_of(&keys);
	data = PyMem_RawCalloc((size_t)keys.n + 1, sizeof(void *));
	if (items && data) {
		get_memory(self, items, (unsigned)keys.n, data);
		list = PyList_New(keys.n);
	}
	for (Py_ssize_t i = 0; i < keys.n && items && data; i++) {
		one = handle_or_none(data[i], list ? items[i].result : -1);
		if (list && one)
			PyList_SET_ITEM(list, i, one);
		else
			Py_CLEAR(list);
	}
	PyMem_RawFree(data);
	PyMem_RawFree(items);
	mcpy_keys_done(&keys);
	return list;
}

/* ---- get_into: the caller's memory ---- */

/* A buffer may be said to be larger than it is when the object fits: what is not mapped is cut off. */
static void cut_to_memory(struct iovec *iov, Py_ssize_t n)
{
	if (mcpy_all_reach(iov, n, MCPY_WRITE))
		return;
	for (Py_ssize_t i = 0; i < n; i++)
		iov[i].iov_len = mcpy_reach((uint64_t)(uintptr_t)iov[i].iov_base, iov[i].iov_len, MCPY_WRITE);
}

static PyObject *store_get_into(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct mcpy_sig sig = { "get_into", 3, { "key", "buffer_ptr", "size" } };
	int64_t r = MCPY_INVALID_PARAMS;
	struct mcpy_core *c;
	struct mcs_key key;
	struct iovec iov;
	uint64_t at, size;
	PyObject *a[3];

	if (mcpy_args(&sig, args, nargs, kwnames, a) < 0 || mcpy_key(a[0], &key) < 0 ||
	    mcpy_u64(a[1], "buffer_ptr", &at) < 0 || mcpy_u64(a[2], "size", &size) < 0)
		return NULL;
	c = mcpy_enter(self);
	if (c) {
		iov = (struct iovec){ (void *)(uintptr_t)at, at ? size : 0 };
		cut_to_memory(&iov, 1);
		Py_BEGIN_ALLOW_THREADS
		r = get_code(mcs_get(c->mcs, key, &iov, 1, -1), key);
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLongLong(r);
}

/* Run all items; results of mcs.h become upstream's, and @all when the store is not open. */
static void run_items(PyObject *self, struct mcs_get_item *items, Py_ssize_t n)
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
		items[i].result = c ? get_code(items[i].result, items[i].key) : MCPY_INVALID_PARAMS;
}

static PyObject *run_into(PyObject *self, const struct mcpy_keys *keys,
			  const struct mcpy_numbers *ptrs, const struct mcpy_numbers *sizes)
{
	struct iovec *iov = PyMem_RawCalloc((size_t)keys->n + 1, sizeof(*iov));
	struct mcs_get_item *items = items_of(keys);
	PyObject *list = NULL, *v;

	if (!iov || !items)
		goto out;
	for (Py_ssize_t i = 0; i < keys->n; i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)ptrs->v[i], ptrs->v[i] ? sizes->v[i] : 0 };
	cut_to_memory(iov, keys->n);
	for (Py_ssize_t i = 0; i < keys->n; i++) {
		items[i].whole = 1;
		items[i].iov = &iov[i];
		items[i].iovcnt = 1;
	}
	run_items(self, items, keys->n);
	list = PyList_New(keys->n);
	for (Py_ssize_t i = 0; i < keys->n && list; i++) {
		v = PyLong_FromLongLong(items[i].result);
		if (!v)
			Py_CLEAR(list);
		else
			PyList_SET_ITEM(list, i, v);
	}
out:
	PyMem_RawFree(iov);
	PyMem_RawFree(items);
	return list;
}

static PyObject *store_batch_get_into(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
				      PyObject *kwnames)
{
	static const struct mcpy_sig sig = {
		"batch_get_into", 3, { "keys", "buffer_ptrs", "sizes" },
	};
	struct mcpy_numbers ptrs = { 0 }, sizes = { 0 };
	PyObject *ret = NULL, *a[3];
	struct mcpy_keys keys;

	if (mcpy_args(&sig, args, nargs, kwnames, a) < 0 || mcpy_keys(a[0], &keys) < 0)
		return NULL;
	if (mcpy_numbers(a[1], "buffer_ptrs", &ptrs) < 0 || mcpy_numbers(a[2], "sizes", &sizes) < 0)
		goto out;
	if (ptrs.n != keys.n || sizes.n != keys.n)
		ret = mcpy_list_of(keys.n, MCPY_INVALID_PARAMS);
	else
		ret = run_into(self, &keys, &ptrs, &sizes);
out:
	PyMem_RawFree(ptrs.v);
	PyMem_RawFree(sizes.v);
	mcpy_keys_done(&keys);
	return ret;
}

static bool null_piece(const struct iovec *iov, Py_ssize_t n)
{
	for (Py_ssize_t i = 0; i < n; i++)
		if (iov[i].iov_len && !iov[i].iov_base)
			return true;
	return false;
}

static PyObject *run_multi(PyObject *self, const struct mcpy_keys *keys, const struct mcpy_vectors *v)
{
	int64_t *result = PyMem_RawCalloc((size_t)keys->n + 1, sizeof(*result));
	struct mcs_get_item *items = items_of(keys);
	PyObject *list = NULL;
	Py_ssize_t used = 0;
	bool whole;

	if (!result || !items)
		goto out;
	whole = mcpy_all_reach(v->iov, v->first[keys->n], MCPY_WRITE);
	for (Py_ssize_t i = 0; i < keys->n; i++) {
		const struct iovec *iov = v->iov + v->first[i];
		Py_ssize_t n = v->first[i + 1] - v->first[i];

		if (v->bad[i] || null_piece(iov, n) || (!whole && !mcpy_all_reach(iov, n, MCPY_WRITE))) {
			result[i] = MCPY_INVALID_PARAMS;
			continue;
		}
		items[used++] = (struct mcs_get_item){
			.key = keys->key[i], .whole = 1, .iov = iov, .iovcnt = (int)n,
		};
	}
	run_items(self, items, used);
	for (Py_ssize_t i = 0, k = 0; i < keys->n; i++)
		if (!result[i])
			result[i] = items[k++].result;
	list = list_of_results(result, keys->n);
out:
	PyMem_RawFree(result);
	PyMem_RawFree(items);
	return list;
}

static PyObject *store_batch_get_multi(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
				       PyObject *kwnames)
{
	static const struct mcpy_sig sig = {
		"batch_get_into_multi_buffers", 3,
		{ "keys", "all_buffer_ptrs", "all_sizes", "prefer_alloc_in_same_node" },
	};
	struct mcpy_vectors v = { 0 };
	PyObject *ret = NULL, *a[4];
	struct mcpy_keys keys;
	bool same_node;

	if (mcpy_args(&sig, args, nargs, kwnames, a) < 0 || mcpy_bool(a[3], false, &same_node) < 0 ||
	    mcpy_keys(a[0], &keys) < 0)
		return NULL;
	if (mcpy_vectors(a[1], a[2], &v) < 0)
		goto out;
	if (v.n != keys.n)
		ret = mcpy_list_of(keys.n, MCPY_INVALID_PARAMS);
	else
		ret = run_multi(self, &keys, &v);
out:
	mcpy_vectors_done(&v);
	mcpy_keys_done(&keys);
	return ret;
}

/* ---- ranges: what get_into_ranges and read sessions are made of ---- */

struct ranges {
	struct mcpy_keys keys;
	struct mcpy_numbers at, offset, size;
};

static PyObject *run_ranges(PyObject *self, const struct ranges *g)
{
	struct iovec *iov = PyMem_RawCalloc((size_t)g->keys.n + 1, sizeof(*iov));
	int64_t *result = PyMem_RawCalloc((size_t)g->keys.n + 1, sizeof(*result));
	struct mcs_get_item *items = items_of(&g->keys);
	PyObject *list = NULL;

	if (!iov || !items || !result)
		goto out;
	for (Py_ssize_t i = 0; i < g->keys.n; i++)
		iov[i] = (struct iovec){ (void *)(uintptr_t)g->at.v[i], g->at.v[i] ? g->size.v[i] : 0 };
	cut_to_memory(iov, g->keys.n);
	for (Py_ssize_t i = 0; i < g->keys.n; i++) {
		items[i].offset = g->offset.v[i];
		items[i].iov = &iov[i];
		items[i].iovcnt = 1;
	}
	run_items(self, items, g->keys.n);
	for (Py_ssize_t i = 0; i < g->keys.n; i++) {
		/* A range is there as a whole or not at all. */
		bool cut = items[i].result >= 0 && (uint64_t)items[i].result != g->size.v[i];

		result[i] = cut ? MCPY_INVALID_PARAMS : items[i].result;
	}
	list = list_of_results(result, g->keys.n);
out:
	PyMem_RawFree(iov);
	PyMem_RawFree(items);
	PyMem_RawFree(result);
	return list;
}

static PyObject *store_ranges(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct mcpy_sig sig = {
		"_get_ranges", 4, { "keys", "buffer_ptrs", "offsets", "sizes" },
	};
	PyObject *ret = NULL, *a[4];
	struct ranges g = { 0 };

	if (mcpy_args(&sig, args, nargs, kwnames, a) < 0 || mcpy_keys(a[0], &g.keys) < 0)
		return NULL;
	if (mcpy_numbers(a[1], "buffer_ptrs", &g.at) >= 0 &&
	    mcpy_numbers(a[2], "offsets", &g.offset) >= 0 &&
	    mcpy_numbers(a[3], "sizes", &g.size) >= 0) {
		if (g.at.n != g.keys.n || g.offset.n != g.keys.n || g.size.n != g.keys.n)
			ret = mcpy_list_of(g.keys.n, MCPY_INVALID_PARAMS);
		else
			ret = run_ranges(self, &g);
	}
	PyMem_RawFree(g.at.v);
	PyMem_RawFree(g.offset.v);
	PyMem_RawFree(g.size.v);
	mcpy_keys_done(&g.keys);
	return ret;
}

#define CODES "the object's size in bytes (more than 0), -704 for a miss, -600 when the memory is too " \
	"small\n(nothing is touched then), or another negative error code."

PyMethodDef mcpy_get_methods[] = {
	{ "get", MCPY_FAST(store_get),
	  "get(key: str) -> bytes\n\nThe object's bytes, checked; b\"\" for a miss or a failure." },
	{ "get_batch", MCPY_FAST(store_get_batch),
	  "get_batch(keys: list) -> list[bytes]\n\nAs get(), one for each key." },
	{ "get_buffer", MCPY_FAST(store_get_buffer),
	  "get_buffer(key: str) -> BufferHandle | None\n\nThe object in memory of its own, which lives "
	  "as long as the handle or a view of it,\nalso after close(); None for a miss or a failure." },
	{ "batch_get_buffer", MCPY_FAST(store_batch_get_buffer),
	  "batch_get_buffer(keys: list) -> list[BufferHandle | None]\n\nAs get_buffer(), one for each "
	  "key." },
	{ "get_into", MCPY_FAST(store_get_into),
	  "get_into(key: str, buffer_ptr: int, size: int) -> int\n\nRead the object to that address: "
	  CODES },
	{ "batch_get_into", MCPY_FAST(store_batch_get_into),
	  "batch_get_into(keys: list, buffer_ptrs: list[int], sizes: list[int]) -> list[int]\n\nOne "
	  "result for each key: " CODES },
	{ "batch_get_into_multi_buffers", MCPY_FAST(store_batch_get_multi),
	  "batch_get_into_multi_buffers(keys: list, all_buffer_ptrs: list[list[int]], "
	  "all_sizes: list[list[int]], prefer_alloc_in_same_node: bool = False) -> list[int]\n\nThe "
	  "object's bytes fill its buffers one after another.  One result for each key:\n" CODES },
	{ "_get_ranges", MCPY_FAST(store_ranges),
	  "_get_ranges(keys, buffer_ptrs, offsets, sizes) -> list[int]\n\nParts of objects; bytes, or "
	  "-600 for a range that does not lie inside the object." },
	{ NULL, NULL, 0, NULL }
};
