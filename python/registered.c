/* SPDX-License-Identifier: Apache-2.0
 * registered.c - memory that the program has registered for transfers. */
#include "python/mcpy.h"

#include <errno.h>

void mcpy_registered_clear(struct mcpy_store *store)
{
	store->n_reg = 0;
}

uint64_t mcpy_registered_end(const struct mcpy_store *store, uint64_t at)
{
	uint64_t end = 0;
	bool more = true;

	/* Ranges that overlap are one. */
	while (more) {
		more = false;
		for (size_t i = 0; i < store->n_reg; i++) {
			const struct mcpy_registration *r = &store->reg[i];

			if (r->at > (end ? end - 1 : at) || r->end <= at || r->end <= end)
				continue;
			end = r->end;
			more = true;
		}
	}
	return end;
}

static int registered_add(struct mcpy_store *store, uint64_t at, uint64_t size, bool noted)
{
	size_t cap = store->cap_reg ? 2 * store->cap_reg : 16;
	struct mcpy_registration *more;

	if (store->n_reg == store->cap_reg) {
		more = PyMem_Realloc(store->reg, cap * sizeof(*more));
		if (!more)
			return -1;
		store->reg = more;
		store->cap_reg = cap;
	}
	store->reg[store->n_reg++] = (struct mcpy_registration){ at, at + size, noted };
	return 0;
}

/* Remove the last registration at @at; with @noted, only one that the library does not know.  False: there is none. */
static bool registered_remove(struct mcpy_store *store, uint64_t at, bool noted)
{
	for (size_t i = store->n_reg; i-- > 0;) {
		if (store->reg[i].at != at || (noted && !store->reg[i].noted))
			continue;
		store->n_reg--;
		for (; i < store->n_reg; i++)
			store->reg[i] = store->reg[i + 1];
		return true;
	}
	return false;
}

/* 0, 1 if it overlaps a registration, or upstream's code. */
static int registered_tell(PyObject *self, uint64_t at, uint64_t size)
{
	struct mcpy_core *c = mcpy_enter(self);
	int r = MCPY_INVALID_PARAMS;

	if (!c)
		return r;
	Py_BEGIN_ALLOW_THREADS
	if (at && size && at + size >= at && mcpy_reach(at, size, 0) == size) {
		r = mcs_register_buffer(c->mcs, (void *)(uintptr_t)at, size);
		r = r == -EEXIST ? 1 : (int)mcpy_code(r);
	}
	mcpy_leave(c);
	Py_END_ALLOW_THREADS
	return r;
}

static int registered_forget(PyObject *self, uint64_t at)
{
	struct mcpy_core *c = mcpy_enter(self);
	int r = MCPY_INVALID_PARAMS;

	if (!c)
		return r;
	Py_BEGIN_ALLOW_THREADS
	r = (int)mcpy_code(mcs_unregister_buffer(c->mcs, (void *)(uintptr_t)at));
	mcpy_leave(c);
	Py_END_ALLOW_THREADS
	return r;
}

MCPY_METHOD(store_register, "register_buffer", 2, "buffer_ptr", "size")
{
	struct mcpy_store *store = (struct mcpy_store *)self;
	uint64_t at, size;
	int r;

	if (mcpy_u64(a[0], "buffer_ptr", &at) < 0 || mcpy_u64(a[1], "size", &size) < 0)
		return NULL;
	r = registered_tell(self, at, size);
	if (r < 0)
		return PyLong_FromLong(r);
	if (registered_add(store, at, size, r == 1) < 0) {
		if (r == 0)
			(void)registered_forget(self, at);
		return PyErr_NoMemory();
	}
	return PyLong_FromLong(0);
}

MCPY_METHOD(store_unregister, "unregister_buffer", 1, "buffer_ptr")
{
	struct mcpy_store *store = (struct mcpy_store *)self;
	uint64_t at;
	int r;

	if (mcpy_u64(a[0], "buffer_ptr", &at) < 0)
		return NULL;
	if (registered_remove(store, at, true))
		return PyLong_FromLong(0);
	r = registered_forget(self, at);
	if (r == 0)
		(void)registered_remove(store, at, false);
	return PyLong_FromLong(r);
}

PyMethodDef mcpy_registered_methods[] = {
	{ "register_buffer", MCPY_FAST(store_register),
	  "register_buffer(buffer_ptr: int, size: int) -> int\n\nRegister size bytes at buffer_ptr for transfers.  The "
	  "caller must unregister them before freeing them.\n0, or -600, also if this process cannot access them.  "
	  "Transfers over TCP and shared memory need no\nregistration; ranges may overlap." },
	{ "unregister_buffer", MCPY_FAST(store_unregister),
	  "unregister_buffer(buffer_ptr: int) -> int\n\n0, or -600 if nothing is registered at that address." },
	{ NULL, NULL, 0, NULL }
};
