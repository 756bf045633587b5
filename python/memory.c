/* SPDX-License-Identifier: Apache-2.0
 * memory.c - MooncakeHostMemAllocator, and the NUMA node of a thread's new memory. */
#include "python/mcpy.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES_MAX 1024
#define MPOL_PREFERRED_ 1

struct allocator {
	PyObject_HEAD
	PyObject *sizes;	/* allocated address -> bytes; free() unmaps only these */
};

static PyObject *allocator_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct allocator *a = (struct allocator *)type->tp_alloc(type, 0);

	if (!a)
		return NULL;
	a->sizes = PyDict_New();
	if (!a->sizes)
		Py_CLEAR(a);
	return (PyObject *)a;
}

/* Inference engines drop the allocator while tensors still use its memory, so the memory stays mapped. */
static void allocator_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	Py_CLEAR(((struct allocator *)self)->sizes);
	type->tp_free(self);
	Py_DECREF(type);
}

MCPY_METHOD(allocator_alloc, "alloc", 1, "size")
{
	PyObject *address, *bytes;
	uint64_t size;
	void *p;
	int r = -1;

	if (mcpy_u64(a[0], "size", &size) < 0)
		return NULL;
	if (!size || size > PY_SSIZE_T_MAX)
		return PyLong_FromLong(0);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return PyLong_FromLong(0);
	(void)madvise(p, size, MADV_HUGEPAGE);
	address = PyLong_FromVoidPtr(p);
	bytes = PyLong_FromUnsignedLongLong(size);
	if (address && bytes)
		r = PyDict_SetItem(((struct allocator *)self)->sizes, address, bytes);
	Py_XDECREF(bytes);
	if (r < 0) {
		munmap(p, size);
		Py_CLEAR(address);
	}
	return address;
}

MCPY_METHOD(allocator_free, "free", 1, "ptr")
{
	PyObject *sizes = ((struct allocator *)self)->sizes;
	PyObject *size;
	uint64_t at, bytes;

	if (mcpy_u64(a[0], "ptr", &at) < 0)
		return NULL;
	size = PyDict_GetItemWithError(sizes, a[0]);
	if (!size)
		return PyErr_Occurred() ? NULL : PyLong_FromLong(-1);
	if (mcpy_u64(size, "size", &bytes) < 0 || PyDict_DelItem(sizes, a[0]) < 0)
		return NULL;
	munmap((void *)(uintptr_t)at, bytes);
	return PyLong_FromLong(0);
}

static PyMethodDef methods[] = {
	{ "alloc", MCPY_FAST(allocator_alloc),
	  "alloc(size: int) -> int\n\n"
	  "Address of size zeroed, page-aligned bytes, valid until free(); 0: not enough memory." },
	{ "free", MCPY_FAST(allocator_free),
	  "free(ptr: int) -> int\n\n0, or -1 for an address that alloc() did not return." },
	{ NULL, NULL, 0, NULL }
};

static PyType_Slot slots[] = {
	{ Py_tp_new, allocator_new },
	{ Py_tp_dealloc, allocator_dealloc },
	{ Py_tp_methods, methods },
	{ Py_tp_doc, (char *)"Host memory for the pools of an inference engine, in huge pages where possible." },
	{ 0, NULL }
};

PyType_Spec mcpy_allocator_spec = {
	.name = "mooncake.store.MooncakeHostMemAllocator",
	.basicsize = sizeof(struct allocator),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = slots,
};

MCPY_METHOD(bind_to_numa_node, "bind_to_numa_node", 1, "node")
{
	unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long))] = { 0 };
	long node;

	node = PyLong_AsLong(a[0]);
	if (node == -1 && PyErr_Occurred())
		return NULL;
	/* As in upstream, ignore a node that the machine does not have. */
	if (node >= 0 && node < NODES_MAX) {
		mask[(size_t)node / (8 * sizeof(mask[0]))] |= 1ul << ((size_t)node % (8 * sizeof(mask[0])));
		(void)syscall(SYS_set_mempolicy, MPOL_PREFERRED_, mask, NODES_MAX);
	}
	Py_RETURN_NONE;
}

PyMethodDef mcpy_memory_functions[] = {
	{ "bind_to_numa_node", MCPY_FAST(bind_to_numa_node),
	  "bind_to_numa_node(node: int) -> None\n\nPrefer that NUMA node for new memory of this thread.  "
	  "A missing node is ignored." },
	{ NULL, NULL, 0, NULL }
};
