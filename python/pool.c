/* SPDX-License-Identifier: Apache-2.0
 * pool.c - methods about the pool as a whole. */
#include "python/mcpy.h"

#include <stdlib.h>

/* [(id, name, size, used, state), ...] of all segments, or a negative code. */
static PyObject *store_segments(PyObject *self, PyObject *none)
{
	struct mcpy_core *c = mcpy_enter(self);
	struct mcs_segment *seg = NULL;
	PyObject *list, *one;
	int n;

	if (!c)
		return PyLong_FromLong(MCPY_INVALID_PARAMS);
	Py_BEGIN_ALLOW_THREADS
	n = mcs_segments(c->mcs, &seg, -1);
	mcpy_leave(c);
	Py_END_ALLOW_THREADS
	if (n < 0)
		return PyLong_FromLongLong(mcpy_code(n));
	list = PyList_New(n);
	for (int i = 0; i < n && list; i++) {
		one = Py_BuildValue("(ssKKs)", seg[i].id, seg[i].name,
				    (unsigned long long)seg[i].size,
				    (unsigned long long)seg[i].used, seg[i].state);
		if (one)
			PyList_SET_ITEM(list, i, one);
		else
			Py_CLEAR(list);
	}
	free(seg);
	return list;
}

PyMethodDef mcpy_pool_methods[] = {
	{ "_segments", store_segments, METH_NOARGS,
	  "_segments() -> [(id, name, size, used, state)] or a negative code." },
	{ NULL, NULL, 0, NULL }
};
