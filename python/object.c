/* SPDX-License-Identifier: Apache-2.0
 * object.c - open objects for read sessions: a version of a key that stays readable until closed. */
#include "python/mcpy.h"

/* An open object counts as a running call, so the store is freed only after it is closed. */
struct object {
	PyObject_HEAD
	struct mcpy_core *core;
	mcs_object_t *object;
};

static void close_object(struct mcpy_core *core, mcs_object_t *object)
{
	Py_BEGIN_ALLOW_THREADS
	mcs_object_close(object);
	mcpy_leave(core);
	Py_END_ALLOW_THREADS
}

static void object_dealloc(PyObject *self)
{
	struct object *o = (struct object *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject *kind, *value, *trace;

	PyErr_Fetch(&kind, &value, &trace);
	if (o->core)
		close_object(o->core, o->object);
	PyErr_Restore(kind, value, trace);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyObject *object_size(PyObject *self, void *closure)
{
	return PyLong_FromUnsignedLongLong(mcs_object_info(((struct object *)self)->object)->size);
}

/* Read the pieces in order; number of bytes read, or the first failure. */
static int64_t read_pieces(mcs_object_t *object, const struct iovec *iov, const uint64_t *offset,
			   Py_ssize_t n)
{
	uint64_t size = mcs_object_info(object)->size;
	int64_t r, sum = 0;

	if (!mcpy_all_reach(iov, n, MCPY_WRITE))
		return MCPY_INVALID_PARAMS;
	for (Py_ssize_t i = 0; i < n; i++) {
		if (!iov[i].iov_len)
			continue;
		if (!iov[i].iov_base || offset[i] > size || iov[i].iov_len > size - offset[i])
			return MCPY_INVALID_PARAMS;
		r = mcs_object_read(object, offset[i], &iov[i], 1, -1);
		if (r < 0)
			return mcpy_code(r);
		sum += r;
	}
	return sum;
}

MCPY_METHOD(object_read, "read", 3, "buffer_ptrs", "sizes", "offsets")
{
	struct object *o = (struct object *)self;
	int64_t r = MCPY_INVALID_PARAMS;
	struct mcpy_numbers offset = { 0 };
	struct mcpy_vectors v;
	bool ok;

	ok = mcpy_pieces(a[0], a[1], &v) >= 0 && mcpy_numbers(a[2], "offsets", &offset) >= 0;
	if (ok && v.n == offset.n) {
		Py_BEGIN_ALLOW_THREADS
		r = read_pieces(o->object, v.iov, offset.v, v.n);
		Py_END_ALLOW_THREADS
	}
	PyMem_RawFree(offset.v);
	mcpy_vectors_done(&v);
	return ok ? PyLong_FromLongLong(r) : NULL;
}

static PyMethodDef methods[] = {
	{ "read", MCPY_FAST(object_read),
	  "read(buffer_ptrs, sizes, offsets) -> int\n\nRead pieces to addresses.  Bytes read, or a negative code." },
	{ NULL, NULL, 0, NULL }
};

static PyGetSetDef getset[] = {
	{ "size", object_size, NULL, "bytes", NULL },
	{ NULL, NULL, NULL, NULL, NULL }
};

static PyType_Slot slots[] = {
	{ Py_tp_dealloc, object_dealloc },
	{ Py_tp_methods, methods },
	{ Py_tp_getset, getset },
	{ Py_tp_doc, (char *)"An open object; freeing it closes it." },
	{ 0, NULL }
};

PyType_Spec mcpy_object_spec = {
	.name = "mooncake._store.Object",
	.basicsize = sizeof(struct object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

MCPY_METHOD(store_open_object, "_open_object", 1, "key")
{
	PyTypeObject *type = (PyTypeObject *)mcpy_types.object;
	mcs_object_t *object = NULL;
	struct mcpy_core *c;
	struct mcs_key key;
	struct object *o;
	int64_t r;

	if (mcpy_key(a[0], &key) < 0)
		return NULL;
	c = mcpy_enter(self);
	if (!c)
		return PyLong_FromLong(MCPY_INVALID_PARAMS);
	Py_BEGIN_ALLOW_THREADS
	r = key.len ? mcpy_code(mcs_object_open(c->mcs, key, &object, -1)) : MCPY_NO_OBJECT;
	if (r < 0)
		mcpy_leave(c);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return PyLong_FromLongLong(r);
	o = (struct object *)type->tp_alloc(type, 0);
	if (!o) {
		close_object(c, object);
		return NULL;
	}
	o->core = c;
	o->object = object;
	return (PyObject *)o;
}

PyMethodDef mcpy_object_methods[] = {
	{ "_open_object", MCPY_FAST(store_open_object),
	  "_open_object(key) -> Object or a negative code." },
	{ NULL, NULL, 0, NULL }
};
