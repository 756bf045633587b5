/* SPDX-License-Identifier: Apache-2.0
 * module.c - the extension mooncake._store. */
#include "python/mcpy.h"

struct mcpy_types mcpy_types;

static PyObject *version(PyObject *module, PyObject *none)
{
	return PyUnicode_FromString(mcs_version());
}

static PyMethodDef functions[] = {
	{ "mapped", MCPY_FAST(mcpy_mapped_method),
	  "mapped(ptr: int, size: int) -> bool: whether all of it is memory of this process." },
	{ "writable", MCPY_FAST(mcpy_writable_method),
	  "writable(ptr: int, size: int) -> bool: whether the process may write there." },
	{ "version", version, METH_NOARGS, "version() -> str: of libmooncake_store." },
	{ NULL, NULL, 0, NULL }
};

static int add(PyObject *m, const char *name, PyObject *type, PyObject **ret)
{
	*ret = type;
	return type ? PyModule_AddObjectRef(m, name, type) : -1;
}

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "mooncake._store",
	.m_doc = "The part of mooncake.store that is in C.",
	.m_size = -1,
	.m_methods = functions,
};

PyMODINIT_FUNC PyInit__store(void);

PyMODINIT_FUNC PyInit__store(void)
{
	PyObject *m = PyModule_Create(&definition);

	if (!m || add(m, "Store", mcpy_store_type(m), &mcpy_types.store) < 0 ||
	    add(m, "ReplicateConfig", mcpy_config_type(m), &mcpy_types.config) < 0 ||
	    add(m, "BufferHandle", mcpy_handle_type(m), &mcpy_types.handle) < 0 ||
	    add(m, "Object", mcpy_object_type(m), &mcpy_types.object) < 0 ||
	    add(m, "MooncakeHostMemAllocator", mcpy_allocator_type(m), &mcpy_types.allocator) < 0 ||
	    PyModule_AddFunctions(m, mcpy_memory_functions) < 0)
		Py_CLEAR(m);
	return m;
}
