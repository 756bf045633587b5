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

MCPY_METHOD(module_gpu_of, "gpu_of", 1, "ptr")
{
	uint64_t at;

	if (mcpy_u64(a[0], "ptr", &at) < 0)
		return NULL;
	return PyLong_FromLong(mcs_gpu_of((const void *)(uintptr_t)at));
}

MCPY_METHOD(module_peek, "peek", 2, "ptr", "size")
{
	uint64_t at, size;
	PyObject *ret;
	int r;

	if (mcpy_u64(a[0], "ptr", &at) < 0 || mcpy_u64(a[1], "size", &size) < 0)
		return NULL;
	if (size > PY_SSIZE_T_MAX || mcpy_reach(at, size, MCPY_READ) < size)
		return PyErr_Format(PyExc_ValueError, "%llu bytes at %llu cannot be read by this process",
				    (unsigned long long)size, (unsigned long long)at);
	ret = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
	if (!ret)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = mcs_gpu_memcpy(PyBytes_AS_STRING(ret), (const void *)(uintptr_t)at, size);
	Py_END_ALLOW_THREADS
	if (r < 0) {
		Py_CLEAR(ret);
		PyErr_Format(PyExc_RuntimeError, "%s", mcs_error_detail(r));
	}
	return ret;
}

MCPY_METHOD(module_poke, "poke", 2, "ptr", "data")
{
	Py_buffer buf;
	uint64_t at;
	int r = -1;

	if (mcpy_u64(a[0], "ptr", &at) < 0 || mcpy_bytes(a[1], &buf) < 0)
		return NULL;
	if (mcpy_reach(at, (uint64_t)buf.len, MCPY_WRITE) == (uint64_t)buf.len) {
		Py_BEGIN_ALLOW_THREADS
		r = mcs_gpu_memcpy((void *)(uintptr_t)at, buf.buf, (size_t)buf.len);
		Py_END_ALLOW_THREADS
	}
	PyBuffer_Release(&buf);
	return PyBool_FromLong(r == 0);
}

MCPY_METHOD(module_copy, "copy", 3, "to", "ptr", "size")
{
	uint64_t to, at, size;
	int r;

	if (mcpy_u64(a[0], "to", &to) < 0 || mcpy_u64(a[1], "ptr", &at) < 0 || mcpy_u64(a[2], "size", &size) < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = mcs_gpu_memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)at, size);
	Py_END_ALLOW_THREADS
	return PyBool_FromLong(r == 0);
}

static PyMethodDef module_functions[] = {
	{ "gpu_of", MCPY_FAST(module_gpu_of),
	  "gpu_of(ptr: int) -> int: number of the GPU whose memory it is; -1: host memory." },
	{ "copy", MCPY_FAST(module_copy),
	  "copy(to: int, ptr: int, size: int) -> bool: copy between host or GPU memory that was checked; False: the "
	  "GPU refuses it." },
	{ "peek", MCPY_FAST(module_peek), "peek(ptr: int, size: int) -> bytes: bytes of host or GPU memory." },
	{ "poke", MCPY_FAST(module_poke),
	  "poke(ptr: int, data: bytes) -> bool: store bytes in host or GPU memory; False: it cannot be written." },
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
	    module_add(m, &mcpy_snapshot_spec, &mcpy_types.snapshot) < 0 ||
	    PyModule_AddFunctions(m, mcpy_memory_functions) < 0)
		Py_CLEAR(m);
	return m;
}
