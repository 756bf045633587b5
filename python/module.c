/* SPDX-License-Identifier: Apache-2.0
 * module.c - the extension mooncake._store. */
#include "python/mcpy.h"

struct mcpy_types mcpy_types;

int mcpy_gpu_of(const void *p)
{
	return mcs_gpu_of(p);
}

static PyObject *module_version(PyObject *module, PyObject *none)
{
	return PyUnicode_FromString(mcs_version());
}

static PyObject *module_reach(PyObject *const *a, unsigned access)
{
	struct iovec iov;
	uint64_t at, size;

	if (mcpy_u64(a[0], "ptr", &at) < 0 || mcpy_u64(a[1], "size", &size) < 0)
		return NULL;
	iov = (struct iovec){ (void *)(uintptr_t)at, size };
	return PyBool_FromLong(mcpy_all_reach(&iov, 1, access));
}

MCPY_METHOD(module_mapped, "mapped", 2, "ptr", "size")
{
	return module_reach(a, MCPY_READ);
}

MCPY_METHOD(module_writable, "writable", 2, "ptr", "size")
{
	return module_reach(a, MCPY_WRITE);
}

static PyMethodDef module_functions[] = {
	{ "mapped", MCPY_FAST(module_mapped),
	  "mapped(ptr: int, size: int) -> bool: whether this process can read all of these bytes." },
	{ "writable", MCPY_FAST(module_writable),
	  "writable(ptr: int, size: int) -> bool: whether this process can write all of these bytes." },
	{ "version", module_version, METH_NOARGS, "version() -> str: version of libmooncake_store." },
	{ NULL, NULL, 0, NULL }
};

static int module_add(PyObject *m, PyType_Spec *spec, PyObject **ret)
{
	*ret = PyType_FromModuleAndSpec(m, spec, NULL);
	return *ret ? PyModule_AddType(m, (PyTypeObject *)*ret) : -1;
}

static struct PyModuleDef module_definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "mooncake._store",
	.m_doc = "C part of mooncake.store.",
	.m_size = -1,
	.m_methods = module_functions,
};

PyMODINIT_FUNC PyInit__store(void);

PyMODINIT_FUNC PyInit__store(void)
{
	PyObject *m = PyModule_Create(&module_definition);

	if (!m || module_add(m, mcpy_store_spec(), &mcpy_types.store) < 0 ||
	    module_add(m, &mcpy_config_spec, &mcpy_types.config) < 0 ||
	    module_add(m, &mcpy_handle_spec, &mcpy_types.handle) < 0 ||
	    module_add(m, &mcpy_object_spec, &mcpy_types.object) < 0 ||
	    module_add(m, &mcpy_allocator_spec, &mcpy_types.allocator) < 0 ||
	    PyModule_AddFunctions(m, mcpy_memory_functions) < 0)
		Py_CLEAR(m);
	return m;
}
