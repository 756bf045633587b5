/* SPDX-License-Identifier: Apache-2.0
 * put.c - methods that store objects, from Python objects with a buffer or from addresses. */
#include "python/mcpy.h"

#include <errno.h>

static int put_code(int r, struct mcs_key key)
{
	if (r < 0 && !key.len)
		return MCPY_INVALID_PARAMS;
	/* Upstream has no code of its own for an object larger than any segment: report that there is no space. */
	return (int)mcpy_code(r == -MCS_ETOOBIG ? -MCS_ENOSPACE : r);
}

/* As mcpy_opts(), plus the method's @flags. */
static int put_opts(PyObject *config, Py_ssize_t n, bool same_node, unsigned flags, struct mcpy_opts *ret)
{
	int r = mcpy_opts(config, n, same_node, ret);

	if (!r)
		ret->opts.flags |= flags;
	return r;
}

/* Put one object, with the GIL released. */
static int put_one(PyObject *self, struct mcs_key key, const struct iovec *iov, int n,
		   const struct mcpy_opts *o)
{
	struct mcpy_core *c = mcpy_enter(self);
	int r;

	if (!c)
		return MCPY_INVALID_PARAMS;
	Py_BEGIN_ALLOW_THREADS
	r = !mcpy_all_reach(iov, n, MCPY_READ) ? -EINVAL : mcs_put(c->mcs, key, iov, n, &o->opts, -1);
	mcpy_leave(c);
	Py_END_ALLOW_THREADS
	return put_code(r, key);
}

/* ---- put, upsert: one value ---- */

static PyObject *put_value(PyObject *self, PyObject *const *a, unsigned flags)
{
	struct mcpy_opts o;
	struct mcs_key key;
	struct iovec iov;
	Py_buffer buf;
	int r;

	if (mcpy_key(a[0], &key) < 0 || mcpy_bytes(a[1], &buf) < 0)
		return NULL;
	r = put_opts(a[2], 1, false, flags, &o);
	if (!r) {
		iov = (struct iovec){ buf.buf, (size_t)buf.len };
		r = buf.len ? put_one(self, key, &iov, 1, &o) : MCPY_INVALID_PARAMS;
		mcpy_opts_done(&o);
	}
	PyBuffer_Release(&buf);
	return r == -1 && PyErr_Occurred() ? NULL : PyLong_FromLongLong(r);
}

MCPY_METHOD(store_put, "put", 2, "key", "value", "config")
{
	return put_value(self, a, 0);
}

MCPY_METHOD(store_upsert, "upsert", 2, "key", "value", "config")
{
	return put_value(self, a, MCS_PUT_UPSERT);
}

/* ---- put_parts ---- */

static void parts_release(Py_buffer *buf, Py_ssize_t n)
{
	while (n-- > 0)
		PyBuffer_Release(&buf[n]);
	PyMem_Free(buf);
}

/* Get the buffers of all parts.  *ret_iov lists the parts that are not empty; returns their number, or -1. */
static int parts_take(PyObject *const *parts, Py_ssize_t n, Py_buffer **ret_buf, struct iovec **ret_iov)
{
	Py_buffer *buf = PyMem_Calloc((size_t)n + 1, sizeof(*buf));
	struct iovec *iov = PyMem_Calloc((size_t)n + 1, sizeof(*iov));
	Py_ssize_t k = 0;
	int used = 0;

	if (!buf || !iov) {
		PyErr_NoMemory();
		goto fail;
	}
	for (; k < n; k++) {
		if (mcpy_bytes(parts[k], &buf[k]) < 0)
			goto fail;
		if (buf[k].len)
			iov[used++] = (struct iovec){ buf[k].buf, (size_t)buf[k].len };
	}
	*ret_buf = buf;
	*ret_iov = iov;
	return used;
fail:
	parts_release(buf, k);
	PyMem_Free(iov);
	return -1;
}

static PyObject *put_parts(PyObject *self, const char *name, unsigned flags,
			   PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	struct mcpy_sig sig = { name, 0, { "config" } };
	struct iovec *iov = NULL;
	struct mcpy_opts o;
	struct mcs_key key;
	Py_buffer *buf;
	PyObject *a[1];
	int r, n;

	if (nargs < 1)
		return PyErr_Format(PyExc_TypeError, "%s() missing required argument 'key'", name);
	if (mcpy_args(&sig, args + nargs, 0, kwnames, a) < 0 || mcpy_key(args[0], &key) < 0)
		return NULL;
	n = parts_take(args + 1, nargs - 1, &buf, &iov);
	if (n < 0)
		return NULL;
	r = put_opts(a[0], 1, false, flags, &o);
	if (!r) {
		/* As in upstream, storing no bytes succeeds without effect. */
		r = n ? put_one(self, key, iov, n, &o) : 0;
		mcpy_opts_done(&o);
	}
	parts_release(buf, nargs - 1);
	PyMem_Free(iov);
	return r == -1 && PyErr_Occurred() ? NULL : PyLong_FromLongLong(r);
}

static PyObject *store_put_parts(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	return put_parts(self, "put_parts", 0, args, nargs, kwnames);
}

static PyObject *store_upsert_parts(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
				    PyObject *kwnames)
{
	return put_parts(self, "upsert_parts", MCS_PUT_UPSERT, args, nargs, kwnames);
}

/* ---- put_from: addresses ---- */

static PyObject *put_from(PyObject *self, PyObject *const *a, unsigned flags)
{
	struct mcpy_opts o;
	struct mcs_key key;
	struct iovec iov;
	uint64_t at, size;
	int r;

	if (mcpy_key(a[0], &key) < 0 ||
	    mcpy_u64(a[1], "buffer_ptr", &at) < 0 || mcpy_u64(a[2], "size", &size) < 0)
		return NULL;
	r = put_opts(a[3], 1, false, flags, &o);
	if (!r) {
		iov = (struct iovec){ (void *)(uintptr_t)at, size };
		if (!size)
			r = key.len ? 0 : MCPY_INVALID_PARAMS;
		else
			r = at ? put_one(self, key, &iov, 1, &o) : MCPY_INVALID_PARAMS;
		mcpy_opts_done(&o);
	}
	return r == -1 && PyErr_Occurred() ? NULL : PyLong_FromLongLong(r);
}

MCPY_METHOD(store_put_from, "put_from", 3, "key", "buffer_ptr", "size", "config")
{
	return put_from(self, a, 0);
}

MCPY_METHOD(store_put_new_from, "_put_new_from", 3, "key", "buffer_ptr", "size", "config")
{
	return put_from(self, a, MCS_PUT_EXCL);
}

MCPY_METHOD(store_upsert_from, "upsert_from", 3, "key", "buffer_ptr", "size", "config")
{
	return put_from(self, a, MCS_PUT_UPSERT);
}

MCPY_METHOD(store_put_with_metadata, "put_from_with_metadata", 5, "key", "buffer_ptr",
	    "metadata_buffer_ptr", "size", "metadata_size", "config")
{
	uint64_t at, meta, size, meta_size;
	struct mcpy_opts o;
	struct iovec iov[2];
	struct mcs_key key;
	int r;

	if (mcpy_key(a[0], &key) < 0 || mcpy_u64(a[1], "buffer_ptr", &at) < 0 ||
	    mcpy_u64(a[2], "metadata_buffer_ptr", &meta) < 0 ||
	    mcpy_u64(a[3], "size", &size) < 0 || mcpy_u64(a[4], "metadata_size", &meta_size) < 0)
		return NULL;
	r = put_opts(a[5], 1, false, 0, &o);
	if (!r) {
		iov[0] = (struct iovec){ (void *)(uintptr_t)meta, meta_size };
		iov[1] = (struct iovec){ (void *)(uintptr_t)at, size };
		if ((size && !at) || (meta_size && !meta) || !key.len)
			r = MCPY_INVALID_PARAMS;
		else if (size || meta_size)
			r = put_one(self, key, iov, 2, &o);
		mcpy_opts_done(&o);
	}
	return r == -1 && PyErr_Occurred() ? NULL : PyLong_FromLongLong(r);
}

/* ---- batches ---- */

struct batch {
	struct mcpy_keys keys;
	int *result;			/* not 0 before the call: skip this key */
	struct mcs_put_item *item;
};

static int batch_init(struct batch *b)
{
	size_t n = (size_t)b->keys.n + 1;

	b->result = PyMem_RawCalloc(n, sizeof(*b->result));
	b->item = PyMem_RawCalloc(n, sizeof(*b->item));
	if (b->result && b->item)
		return 0;
	PyErr_NoMemory();
	return -1;
}

static void batch_done(struct batch *b)
{
	mcpy_keys_done(&b->keys);
	PyMem_RawFree(b->result);
	PyMem_RawFree(b->item);
}

/* Add key @i with @n pieces, unless it has a result already. */
static void batch_add(struct batch *b, Py_ssize_t i, unsigned *used, const struct iovec *iov, int n,
		      const struct mcpy_opts *o)
{
	if (b->result[i])
		return;
	b->item[*used] = (struct mcs_put_item){ .key = b->keys.key[i], .iov = iov, .iovcnt = n };
	if (o->groups)
		b->item[*used].group = o->groups[i];
	(*used)++;
}

static void batch_run(PyObject *self, struct batch *b, unsigned used, const struct mcpy_opts *o)
{
	struct mcpy_core *c = mcpy_enter(self);
	unsigned k = 0;

	if (c) {
		Py_BEGIN_ALLOW_THREADS
		if (used)
			(void)mcs_put_batch(c->mcs, b->item, used, &o->opts, -1);
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	for (Py_ssize_t i = 0; i < b->keys.n; i++)
		if (!c)
			b->result[i] = MCPY_INVALID_PARAMS;
		else if (!b->result[i])
			b->result[i] = put_code(b->item[k].result, b->keys.key[i]), k++;
}

static bool put_empty_pieces(const struct iovec *iov, Py_ssize_t n)
{
	bool empty = true;

	for (Py_ssize_t i = 0; i < n; i++) {
		if (iov[i].iov_len && !iov[i].iov_base)
			return true;
		empty = empty && !iov[i].iov_len;
	}
	return empty;
}

static PyObject *batch_run_from(PyObject *self, struct batch *b, const struct mcpy_vectors *v,
				const struct mcpy_opts *o)
{
	bool whole = mcpy_all_reach(v->iov, v->first[b->keys.n], MCPY_READ);
	unsigned used = 0;

	for (Py_ssize_t i = 0; i < b->keys.n; i++) {
		const struct iovec *iov = v->iov + v->first[i];
		Py_ssize_t n = v->first[i + 1] - v->first[i];

		if (v->bad[i] || put_empty_pieces(iov, n) || (!whole && !mcpy_all_reach(iov, n, MCPY_READ)))
			b->result[i] = MCPY_INVALID_PARAMS;
		batch_add(b, i, &used, iov, (int)n, o);
	}
	batch_run(self, b, used, o);
	return mcpy_list_ints(b->result, b->keys.n);
}

/* @multi: the lists of addresses and sizes contain lists. */
static PyObject *batch_from(PyObject *self, PyObject *const *a, bool multi, unsigned flags)
{
	struct mcpy_vectors v = { 0 };
	struct batch b = { 0 };
	PyObject *ret = NULL;
	struct mcpy_opts o;
	int r;

	if (mcpy_keys(a[0], &b.keys) < 0)
		return NULL;
	if ((multi ? mcpy_vectors(a[1], a[2], &v) : mcpy_pieces(a[1], a[2], &v)) < 0 || batch_init(&b) < 0)
		goto out;
	r = put_opts(a[3], b.keys.n, multi, flags, &o);
	if (r == -1 && PyErr_Occurred())
		goto out;
	if (!r && v.n != b.keys.n)
		ret = mcpy_list_of(b.keys.n, MCPY_INVALID_PARAMS);
	else
		ret = r ? mcpy_list_of(b.keys.n, r) : batch_run_from(self, &b, &v, &o);
	if (!r)
		mcpy_opts_done(&o);
out:
	mcpy_vectors_done(&v);
	batch_done(&b);
	return ret;
}

/* As in upstream, if a key occurs twice, the last value is stored; other batch calls differ. */
MCPY_METHOD(store_batch_put_from, "batch_put_from", 3, "keys", "buffer_ptrs", "sizes", "config")
{
	return batch_from(self, a, false, MCS_PUT_LAST);
}

MCPY_METHOD(store_batch_upsert_from, "batch_upsert_from", 3, "keys", "buffer_ptrs", "sizes", "config")
{
	return batch_from(self, a, false, MCS_PUT_LAST | MCS_PUT_UPSERT);
}

MCPY_METHOD(store_batch_put_multi, "batch_put_from_multi_buffers", 3, "keys", "all_buffer_ptrs",
	    "all_sizes", "config")
{
	return batch_from(self, a, true, 0);
}

/* As in upstream, an empty value fails the whole call, but an empty key fails only itself.  Returns the first failure,
 * or 0. */
static int batch_run_values(PyObject *self, struct batch *b, const Py_buffer *buf, const struct mcpy_opts *o)
{
	struct iovec *iov = PyMem_RawCalloc((size_t)b->keys.n + 1, sizeof(*iov));
	unsigned used = 0;
	int r = 0;

	if (!iov) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < b->keys.n && !r; i++) {
		iov[i] = (struct iovec){ buf[i].buf, (size_t)buf[i].len };
		batch_add(b, i, &used, &iov[i], 1, o);
		if (!buf[i].len)
			r = MCPY_INVALID_PARAMS;
	}
	if (!r) {
		batch_run(self, b, used, o);
		for (Py_ssize_t i = 0; i < b->keys.n && !r; i++)
			r = b->result[i] < 0 ? b->result[i] : 0;
	}
	PyMem_RawFree(iov);
	return r;
}

static PyObject *put_values(PyObject *self, PyObject *const *a, unsigned flags)
{
	struct batch b = { 0 };
	PyObject *values;
	struct iovec *iov = NULL;
	Py_buffer *buf = NULL;
	struct mcpy_opts o;
	int r = -1;

	if (mcpy_keys(a[0], &b.keys) < 0)
		return NULL;
	values = PySequence_Fast(a[1], "values must be a list");
	/* Getting a value's buffer can run Python code, which may change the caller's list. */
	if (values)
		Py_SETREF(values, PySequence_Tuple(values));
	if (!values || batch_init(&b) < 0)
		goto out;
	r = MCPY_INVALID_PARAMS;
	if (PySequence_Fast_GET_SIZE(values) != b.keys.n)
		goto out;
	r = parts_take(PySequence_Fast_ITEMS(values), b.keys.n, &buf, &iov);
	if (r >= 0)
		r = put_opts(a[2], b.keys.n, false, flags, &o);
	if (!r) {
		r = batch_run_values(self, &b, buf, &o);
		mcpy_opts_done(&o);
	}
	PyMem_Free(iov);
	if (buf)
		parts_release(buf, b.keys.n);
out:
	Py_XDECREF(values);
	batch_done(&b);
	return r == -1 && PyErr_Occurred() ? NULL : PyLong_FromLongLong(r);
}

MCPY_METHOD(store_put_batch, "put_batch", 2, "keys", "values", "config")
{
	return put_values(self, a, 0);
}

MCPY_METHOD(store_upsert_batch, "upsert_batch", 2, "keys", "values", "config")
{
	return put_values(self, a, MCS_PUT_UPSERT);
}

#define RESULT "\n\n0: stored, or the key already has a value, which is kept; negative: upstream's error " \
	"code, -200 for no space.\n"
#define RESULTS "\n\nOne result for each key: 0, also if the key already has a value, which is kept, or " \
	"upstream's negative error code.\n"
#define OWNED "The caller keeps the memory and must not change it during the call."

PyMethodDef mcpy_put_methods[] = {
	{ "put", MCPY_FAST(store_put),
	  "put(key: str, value: buffer, config: ReplicateConfig = None) -> int" RESULT
	  "Stores all bytes of the value, in C order, for any item size and strides." },
	{ "upsert", MCPY_FAST(store_upsert),
	  "upsert(key: str, value: buffer, config: ReplicateConfig = None) -> int\n\n"
	  "Store, and replace the key's value if it has one: readers get the whole old or the whole new value.\n"
	  "0 or a negative error code." },
	{ "put_parts", MCPY_FAST(store_put_parts),
	  "put_parts(key: str, *parts: buffer, config: ReplicateConfig = None) -> int" RESULT
	  "The object is the concatenation of the parts." },
	{ "upsert_parts", MCPY_FAST(store_upsert_parts),
	  "upsert_parts(key: str, *parts: buffer, config: ReplicateConfig = None) -> int\n\n"
	  "As put_parts(), but replaces an existing value.  0 or a negative error code." },
	{ "put_from", MCPY_FAST(store_put_from),
	  "put_from(key: str, buffer_ptr: int, size: int, config: ReplicateConfig = None) -> int"
	  RESULT "size is in bytes; size 0 stores nothing and returns 0.  " OWNED },
	{ "upsert_from", MCPY_FAST(store_upsert_from),
	  "upsert_from(key: str, buffer_ptr: int, size: int, config: ReplicateConfig = None) -> int"
	  "\n\nAs put_from(), but replaces an existing value.  0 or a negative error code.  " OWNED },
	{ "_put_new_from", MCPY_FAST(store_put_new_from),
	  "_put_new_from(key, buffer_ptr, size, config=None) -> int\n\n"
	  "As put_from(), but -705 if the key has a value." },
	{ "put_from_with_metadata", MCPY_FAST(store_put_with_metadata),
	  "put_from_with_metadata(key: str, buffer_ptr: int, metadata_buffer_ptr: int, size: int, "
	  "metadata_size: int, config: ReplicateConfig = None) -> int" RESULT
	  "The object is the metadata followed by the data.  " OWNED },
	{ "batch_put_from", MCPY_FAST(store_batch_put_from),
	  "batch_put_from(keys: list, buffer_ptrs: list[int], sizes: list[int], "
	  "config: ReplicateConfig = None) -> list[int]" RESULTS
	  "Lists of unequal length: -600 for every key.  " OWNED },
	{ "batch_upsert_from", MCPY_FAST(store_batch_upsert_from),
	  "batch_upsert_from(keys: list, buffer_ptrs: list[int], sizes: list[int], "
	  "config: ReplicateConfig = None) -> list[int]\n\nAs batch_put_from(), but replaces existing values." },
	{ "batch_put_from_multi_buffers", MCPY_FAST(store_batch_put_multi),
	  "batch_put_from_multi_buffers(keys: list, all_buffer_ptrs: list[list[int]], "
	  "all_sizes: list[list[int]], config: ReplicateConfig = None) -> list[int]" RESULTS
	  "An object is the concatenation of its buffers.  " OWNED },
	{ "put_batch", MCPY_FAST(store_put_batch),
	  "put_batch(keys: list, values: list, config: ReplicateConfig = None) -> int\n\n"
	  "0, or the first failure's negative code.  An empty value fails the whole call." },
	{ "upsert_batch", MCPY_FAST(store_upsert_batch),
	  "upsert_batch(keys: list, values: list, config: ReplicateConfig = None) -> int\n\n"
	  "As put_batch(), but replaces existing values." },
	{ NULL, NULL, 0, NULL }
};
