/* SPDX-License-Identifier: Apache-2.0
 * handle.c - BufferHandle: a copy of an object's bytes, freed with the handle and its last view. */
#include "python/mcpy.h"

#include <stdlib.h>

struct handle {
	PyObject_HEAD
	void *data;
	Py_ssize_t size;
};

PyObject *mcpy_handle_new(void *data, Py_ssize_t size)
{
	PyTypeObject *type = (PyTypeObject *)mcpy_types.handle;
	struct handle *h = (struct handle *)type->tp_alloc(type, 0);

	if (!h) {
		free(data);
		return NULL;
	}
	h->data = data;
	h->size = size;
	return (PyObject *)h;
}

static void handle_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	free(((struct handle *)self)->data);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyObject *handle_ptr(PyObject *self, PyObject *none)
{
	return PyLong_FromVoidPtr(((struct handle *)self)->data);
}

static PyObject *handle_size(PyObject *self, PyObject *none)
{
	return PyLong_FromSsize_t(((struct handle *)self)->size);
}

static Py_ssize_t handle_len(PyObject *self)
{
	return ((struct handle *)self)->size;
}

/* As in upstream: a writable array of signed bytes. */
static int handle_view(PyObject *self, Py_buffer *view, int flags)
{
	struct handle *h = (struct handle *)self;

	if (PyBuffer_FillInfo(view, self, h->data, h->size, 0, flags) < 0)
		return -1;
	if (flags & PyBUF_FORMAT)
		view->format = (char *)"b";
	return 0;
}

static PyMethodDef methods[] = {
	{ "ptr", handle_ptr, METH_NOARGS,
	  "ptr() -> int\n\nAddress of the bytes, valid until the handle is freed." },
	{ "size", handle_size, METH_NOARGS, "size() -> int\n\nNumber of bytes." },
	{ NULL, NULL, 0, NULL }
};

static PyType_Slot slots[] = {
	{ Py_tp_dealloc, handle_dealloc },
	{ Py_tp_methods, methods },
	{ Py_sq_length, handle_len },
	{ Py_bf_getbuffer, handle_view },
	{ Py_tp_doc, (char *)"A private copy of an object's bytes.\n\nSupports the writable buffer protocol "
		"(memoryview, numpy.frombuffer, torch.frombuffer) without another copy.\n"
		"The memory is freed with the handle and its last view, which may be after close()." },
	{ 0, NULL }
};

PyType_Spec mcpy_handle_spec = {
	.name = "mooncake.store.BufferHandle",
	.basicsize = sizeof(struct handle),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};
