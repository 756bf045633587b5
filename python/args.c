/* SPDX-License-Identifier: Apache-2.0
 * args.c - conversion of Python arguments to plain C, and of results to lists. */
#include "python/mcpy.h"

#include <string.h>

static int args_index(const struct mcpy_sig *sig, PyObject *name)
{
	for (int i = 0; sig->args[i]; i++)
		if (PyUnicode_CompareWithASCIIString(name, sig->args[i]) == 0)
			return i;
	return -1;
}

int mcpy_args(const struct mcpy_sig *sig, PyObject *const *args, Py_ssize_t nargs,
	      PyObject *kwnames, PyObject **ret)
{
	Py_ssize_t n = 0, n_kw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;

	while (sig->args[n])
		n++;
	if (nargs > n) {
		PyErr_Format(PyExc_TypeError, "%s() takes at most %zd arguments (%zd given)",
			     sig->name, n, nargs);
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++)
		ret[i] = i < nargs ? args[i] : NULL;
	for (Py_ssize_t k = 0; k < n_kw; k++) {
		PyObject *name = PyTuple_GET_ITEM(kwnames, k);
		int i = args_index(sig, name);

		if (i < 0) {
			PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'",
				     sig->name, name);
			return -1;
		}
		if (ret[i]) {
			PyErr_Format(PyExc_TypeError, "%s() got multiple values for argument '%U'",
				     sig->name, name);
			return -1;
		}
		ret[i] = args[nargs + k];
	}
	for (int i = 0; i < sig->required; i++) {
		if (ret[i])
			continue;
		PyErr_Format(PyExc_TypeError, "%s() missing required argument '%s'", sig->name,
			     sig->args[i]);
		return -1;
	}
	return 0;
}

int mcpy_key(PyObject *obj, struct mcs_key *ret)
{
	Py_ssize_t len;

	if (PyUnicode_Check(obj) && PyUnicode_IS_COMPACT_ASCII(obj)) {
		ret->data = (const char *)PyUnicode_1BYTE_DATA(obj);
		len = PyUnicode_GET_LENGTH(obj);
	} else if (PyUnicode_Check(obj)) {
		ret->data = PyUnicode_AsUTF8AndSize(obj, &len);
		if (!ret->data)
			return -1;
	} else if (PyBytes_Check(obj)) {
		ret->data = PyBytes_AS_STRING(obj);
		len = PyBytes_GET_SIZE(obj);
	} else {
		PyErr_Format(PyExc_TypeError, "a key must be str or bytes, not %.100s",
			     Py_TYPE(obj)->tp_name);
		return -1;
	}
	ret->len = (size_t)len;
	return 0;
}

int mcpy_text(PyObject *obj, const char *arg, const char **ret)
{
	Py_ssize_t len;
	const char *text;

	if (!obj)
		return 0;
	text = PyUnicode_AsUTF8AndSize(obj, &len);
	if (text && strlen(text) != (size_t)len)
		PyErr_Format(PyExc_ValueError, "%s must not contain NUL", arg);
	else if (text)
		*ret = text;
	return PyErr_Occurred() ? -1 : 0;
}

/* A tuple of the elements.  Rejects str and bytes: they are sequences, but a caller that passes one made a mistake. */
PyObject *mcpy_tuple(PyObject *obj, const char *arg)
{
	if (!PyUnicode_Check(obj) && !PyBytes_Check(obj) &&
	    (PyList_Check(obj) || PyTuple_Check(obj) || PySequence_Check(obj)))
		return PySequence_Tuple(obj);
	return PyErr_Format(PyExc_TypeError, "%s must be a list, not %.100s", arg, Py_TYPE(obj)->tp_name);
}

static void *args_array(Py_ssize_t n, size_t size)
{
	void *p = (size_t)n < PY_SSIZE_T_MAX / size ? PyMem_RawMalloc(((size_t)n + 1) * size) : NULL;

	if (!p)
		PyErr_NoMemory();
	return p;
}

/* Cache of one array for the next large call, under the GIL: the kernel would zero newly allocated pages again. */
#define KEPT_KEYS (1 << 16)
static struct mcs_key *kept;
static Py_ssize_t kept_cap;

static struct mcs_key *key_array(Py_ssize_t n, Py_ssize_t *ret_cap)
{
	struct mcs_key *keys = kept;

	*ret_cap = n;
	if (!keys || n > kept_cap)
		return args_array(n, sizeof(*keys));
	*ret_cap = kept_cap;
	kept = NULL;
	return keys;
}

static void key_array_done(struct mcs_key *keys, Py_ssize_t cap)
{
	if (keys && cap <= KEPT_KEYS && (!kept || cap > kept_cap)) {
		struct mcs_key *smaller = kept;

		kept = keys;
		kept_cap = cap;
		keys = smaller;
	}
	PyMem_RawFree(keys);
}

int mcpy_keys(PyObject *obj, struct mcpy_keys *ret)
{
	*ret = (struct mcpy_keys){ 0 };
	ret->tuple = mcpy_tuple(obj, "keys");
	if (!ret->tuple)
		return -1;
	ret->n = PyTuple_GET_SIZE(ret->tuple);
	if (ret->n > INT32_MAX) {
		PyErr_SetString(PyExc_ValueError, "too many keys for one call");
		goto fail;
	}
	ret->key = key_array(ret->n, &ret->cap);
	if (!ret->key)
		goto fail;
	for (Py_ssize_t i = 0; i < ret->n; i++)
		if (mcpy_key(PyTuple_GET_ITEM(ret->tuple, i), &ret->key[i]) < 0)
			goto fail;
	return 0;
fail:
	mcpy_keys_done(ret);
	return -1;
}

void mcpy_keys_done(struct mcpy_keys *k)
{
	Py_CLEAR(k->tuple);
	key_array_done(k->key, k->cap);
	k->key = NULL;
	k->n = 0;
}

int mcpy_u64(PyObject *obj, const char *arg, uint64_t *ret)
{
	PyObject *number = NULL;
	unsigned long long v;

	if (!obj)
		return 0;
	if (!PyLong_CheckExact(obj)) {
		number = PyNumber_Index(obj);
		if (!number) {
			PyErr_Format(PyExc_TypeError, "%s must be an int, not %.100s", arg,
				     Py_TYPE(obj)->tp_name);
			return -1;
		}
		obj = number;
	}
	v = PyLong_AsUnsignedLongLong(obj);
	Py_XDECREF(number);
	if (v == (unsigned long long)-1 && PyErr_Occurred()) {
		PyErr_Format(PyExc_TypeError, "%s must be from 0 to 2**64 - 1", arg);
		return -1;
	}
	*ret = v;
	return 0;
}

int mcpy_numbers(PyObject *obj, const char *arg, struct mcpy_numbers *ret)
{
	PyObject *tuple = mcpy_tuple(obj, arg);
	uint64_t *v;

	if (!tuple)
		return -1;
	ret->n = PyTuple_GET_SIZE(tuple);
	v = args_array(ret->n, sizeof(*v));
	for (Py_ssize_t i = 0; i < ret->n && v; i++)
		if (mcpy_u64(PyTuple_GET_ITEM(tuple, i), arg, &v[i]) < 0) {
			PyMem_RawFree(v);
			v = NULL;
		}
	Py_DECREF(tuple);
	ret->v = v;
	return v ? 0 : -1;
}

static PyObject *vectors_inner(PyObject *outer, Py_ssize_t i, const char *arg)
{
	return mcpy_tuple(PyTuple_GET_ITEM(outer, i), arg);
}

/* Allocate the iovecs of all items; their number, or -1. */
static Py_ssize_t vectors_reserve(PyObject *ptrs, struct mcpy_vectors *ret)
{
	Py_ssize_t sum = 0, len;

	for (Py_ssize_t i = 0; i < ret->n; i++) {
		len = PyObject_Size(PyTuple_GET_ITEM(ptrs, i));
		if (len < 0) {
			PyErr_SetString(PyExc_TypeError, "all_buffer_ptrs must be a list of lists");
			return -1;
		}
		sum += len;
		if (sum > INT32_MAX) {
			PyErr_SetString(PyExc_ValueError, "too many buffers for one call");
			return -1;
		}
	}
	ret->iov = args_array(sum, sizeof(*ret->iov));
	return ret->iov ? sum : -1;
}

/* Store the pieces of one item in at most @room elements: __index__() of a piece may have changed the lists since
 * they were counted. */
static int vectors_fill(PyObject *ptrs, PyObject *sizes, Py_ssize_t i, struct mcpy_vectors *ret,
		       Py_ssize_t room)
{
	PyObject *p = vectors_inner(ptrs, i, "all_buffer_ptrs[i]");
	PyObject *s = p ? vectors_inner(sizes, i, "all_sizes[i]") : NULL;
	Py_ssize_t n = p ? PyTuple_GET_SIZE(p) : 0;
	uint64_t at = 0, len = 0;
	int r = p && s ? 0 : -1;

	ret->first[i + 1] = ret->first[i];
	ret->bad[i] = r < 0 || n != PyTuple_GET_SIZE(s) || n > room;
	for (Py_ssize_t k = 0; k < n && r >= 0 && !ret->bad[i]; k++) {
		r = mcpy_u64(PyTuple_GET_ITEM(p, k), "a buffer pointer", &at);
		if (r >= 0)
			r = mcpy_u64(PyTuple_GET_ITEM(s, k), "a size", &len);
		if (r >= 0)
			ret->iov[ret->first[i + 1]++] = (struct iovec){ (void *)(uintptr_t)at, len };
	}
	Py_XDECREF(p);
	Py_XDECREF(s);
	return r;
}

/* Arrays for the items of outer lists of these lengths, without the pieces. */
static int vectors_init(struct mcpy_vectors *ret, Py_ssize_t n_ptrs, Py_ssize_t n_sizes)
{
	/* The caller compares n with the number of keys, which -1 never equals. */
	ret->n = n_ptrs == n_sizes ? n_ptrs : -1;
	if (ret->n < 0)
		return 0;
	ret->first = args_array(ret->n, sizeof(*ret->first));
	ret->bad = args_array(ret->n, sizeof(*ret->bad));
	return ret->first && ret->bad ? 0 : -1;
}

int mcpy_pieces(PyObject *ptrs, PyObject *sizes, struct mcpy_vectors *ret)
{
	struct mcpy_numbers at = { 0 }, len = { 0 };
	int r = -1;

	*ret = (struct mcpy_vectors){ 0 };
	if (mcpy_numbers(ptrs, "buffer_ptrs", &at) < 0 || mcpy_numbers(sizes, "sizes", &len) < 0 ||
	    vectors_init(ret, at.n, len.n) < 0)
		goto out;
	ret->iov = args_array(at.n, sizeof(*ret->iov));
	r = ret->iov ? 0 : -1;
	for (Py_ssize_t i = 0; i <= ret->n && ret->iov; i++) {
		ret->first[i] = i;
		ret->bad[i] = false;
		if (i < ret->n)
			ret->iov[i] = (struct iovec){ (void *)(uintptr_t)at.v[i], len.v[i] };
	}
out:
	PyMem_RawFree(at.v);
	PyMem_RawFree(len.v);
	if (r < 0)
		mcpy_vectors_done(ret);
	return r;
}

int mcpy_vectors(PyObject *ptrs, PyObject *sizes, struct mcpy_vectors *ret)
{
	PyObject *p, *s = NULL;
	Py_ssize_t room;
	int r = -1;

	*ret = (struct mcpy_vectors){ 0 };
	p = mcpy_tuple(ptrs, "all_buffer_ptrs");
	s = p ? mcpy_tuple(sizes, "all_sizes") : NULL;
	if (!p || !s || vectors_init(ret, PyTuple_GET_SIZE(p), PyTuple_GET_SIZE(s)) < 0)
		goto out;
	if (ret->n < 0) {
		r = 0;
		goto out;
	}
	room = vectors_reserve(p, ret);
	if (room < 0)
		goto out;
	ret->first[0] = 0;
	r = 0;
	for (Py_ssize_t i = 0; i < ret->n && r >= 0; i++)
		r = vectors_fill(p, s, i, ret, room - ret->first[i]);
out:
	Py_XDECREF(p);
	Py_XDECREF(s);
	if (r < 0)
		mcpy_vectors_done(ret);
	return r;
}

void mcpy_vectors_done(struct mcpy_vectors *v)
{
	PyMem_RawFree(v->iov);
	PyMem_RawFree(v->first);
	PyMem_RawFree(v->bad);
	*v = (struct mcpy_vectors){ 0 };
}

int mcpy_bool(PyObject *obj, bool fallback, bool *ret)
{
	int r = obj ? PyObject_IsTrue(obj) : fallback;

	*ret = r > 0;
	return r < 0 ? -1 : 0;
}

int mcpy_bytes(PyObject *obj, Py_buffer *ret)
{
	PyObject *copy;
	int r;

	if (!PyObject_CheckBuffer(obj)) {
		PyErr_Format(PyExc_TypeError, "a bytes-like object is required, not '%.100s'",
			     Py_TYPE(obj)->tp_name);
		return -1;
	}
	if (PyObject_GetBuffer(obj, ret, PyBUF_C_CONTIGUOUS) == 0)
		return 0;
	PyErr_Clear();
	/* The object has strides: copy its elements in C order. */
	copy = PyMemoryView_GetContiguous(obj, PyBUF_READ, 'C');
	if (!copy)
		return -1;
	r = PyObject_GetBuffer(copy, ret, PyBUF_C_CONTIGUOUS);
	Py_DECREF(copy);
	return r;
}

PyObject *mcpy_list_of(Py_ssize_t n, int64_t value)
{
	PyObject *list = PyList_New(n);

	for (Py_ssize_t i = 0; i < n && list; i++)
		mcpy_list_take(&list, i, PyLong_FromLongLong(value));
	return list;
}

PyObject *mcpy_list_ints(const int *v, Py_ssize_t n)
{
	PyObject *list = PyList_New(n);

	for (Py_ssize_t i = 0; i < n && list; i++)
		mcpy_list_take(&list, i, PyLong_FromLong(v[i]));
	return list;
}
