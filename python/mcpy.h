/* SPDX-License-Identifier: Apache-2.0
 * mcpy.h - what the files of the extension mooncake._store share.
 *
 * Every method takes its arguments apart under the GIL into plain C arrays, gives the GIL back for the
 * call of mcs.h, and makes its result with the GIL again.  What the arrays point to (keys, buffers) is
 * referenced until then. */
#ifndef MCPY_H
#define MCPY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <mooncake/mcs.h>

/* Upstream's numbers. */
#define MCPY_INVALID_PARAMS (-600)
#define MCPY_NO_OBJECT (-704)
#define MCPY_NO_MASTER (-900)
#define MCPY_TIMEOUT (-901)

/* A row of a table of methods. */
#define MCPY_FAST(f) ((PyCFunction)(void (*)(void))(f)), METH_FASTCALL | METH_KEYWORDS

/* ---- args.c: arguments ---- */

#define MCPY_ARGS_MAX 16

struct mcpy_sig {
	const char *name;		/* of the method */
	int required;			/* the first so many must be given */
	const char *args[MCPY_ARGS_MAX + 1];	/* NULL-ended */
};

/* Borrowed references to @ret[], one for each name, NULL where none was given.  -1: TypeError that names
 * what is missing, unexpected or too much. */
int mcpy_args(const struct mcpy_sig *sig, PyObject *const *args, Py_ssize_t nargs,
	      PyObject *kwnames, PyObject **ret);

/* str (as UTF-8) or bytes; points into @obj. */
int mcpy_key(PyObject *obj, struct mcs_key *ret);

/* A str for what takes texts that end at a NUL, in @obj; ValueError that names @what for one that has a NUL inside, of
 * which only the beginning would be seen. */
const char *mcpy_text(PyObject *obj, const char *what);

struct mcpy_keys {
	PyObject *tuple;
	struct mcs_key *key;
	Py_ssize_t n, cap;
};
/* With the GIL held.  A sequence of keys.  TypeError when it is none.  Released by mcpy_keys_done(). */
int mcpy_keys(PyObject *obj, struct mcpy_keys *ret);
void mcpy_keys_done(struct mcpy_keys *k);

/* A whole number from 0 to 2^64 - 1; TypeError otherwise, which names @what. */
int mcpy_u64(PyObject *obj, const char *what, uint64_t *ret);

struct mcpy_numbers {
	uint64_t *v;
	Py_ssize_t n;
};
int mcpy_numbers(PyObject *obj, const char *what, struct mcpy_numbers *ret);

/* Lists of lists of pointers and sizes, flat: those of item i begin at first[i], first[n] is the end. */
struct mcpy_vectors {
	struct iovec *iov;
	Py_ssize_t *first;
	bool *bad;			/* lists of unequal length */
	Py_ssize_t n;
};
int mcpy_vectors(PyObject *ptrs, PyObject *sizes, struct mcpy_vectors *ret);
void mcpy_vectors_done(struct mcpy_vectors *v);

/* A truth value; NULL is @fallback. */
int mcpy_bool(PyObject *obj, bool fallback, bool *ret);

/* The bytes of an object with a buffer, in C order whatever its strides.  Released by PyBuffer_Release(). */
int mcpy_bytes(PyObject *obj, Py_buffer *ret);

/* ---- mapped.c: addresses that callers give ---- */

/* What is to be done with memory; nothing of it: that it is mapped. */
#define MCPY_READ 1u
#define MCPY_WRITE 2u

/* How many of the bytes from @at on, @size at most, can be used so.  A system call of a microsecond for each mapping
 * that they lie in.  Needs no GIL.  Kernels before 6.11 say it of the first and the last page only, and where holes
 * are. */
uint64_t mcpy_reach(uint64_t at, uint64_t size, unsigned access);
/* Whether all bytes of all pieces can. */
bool mcpy_all_reach(const struct iovec *iov, Py_ssize_t n, unsigned access);
/* mapped(ptr, size) and writable(ptr, size) -> bool. */
PyObject *mcpy_writable_method(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);
PyObject *mcpy_mapped_method(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames);

/* ---- results ---- */

/* Upstream's number for a result of mcs.h. */
int64_t mcpy_code(int64_t r);
/* [@value] * n */
PyObject *mcpy_list_of(Py_ssize_t n, int64_t value);

/* ---- store.c: the handle ---- */

/* A store that is open.  Calls that are under way keep it; the last one closes it when close() could not wait. */
struct mcpy_core {
	mcs_t *mcs;
	pid_t pid;			/* of the process that opened it */
	pthread_mutex_t lock;
	pthread_cond_t idle;
	/* with the lock held */
	unsigned users;
	bool closed;
};

struct mcpy_store {
	PyObject_HEAD
	/* with the GIL held */
	struct mcpy_core *core;		/* NULL: not set up, or closed */
	PyObject *noted;		/* address -> how many more registrations than the first */
};

PyObject *mcpy_store_type(PyObject *module);

/* The store for one call; NULL (no exception): not set up, closed, or of a parent process.  With the GIL held. */
struct mcpy_core *mcpy_enter(PyObject *self);
/* With or without the GIL, as the GIL is not taken. */
void mcpy_leave(struct mcpy_core *core);

/* Methods; the tables end with an empty row. */
extern PyMethodDef mcpy_put_methods[];
extern PyMethodDef mcpy_get_methods[];
extern PyMethodDef mcpy_name_methods[];
extern PyMethodDef mcpy_object_methods[];
extern PyMethodDef mcpy_pool_methods[];

/* ---- config.c: ReplicateConfig ---- */

PyObject *mcpy_config_type(PyObject *module);

struct mcpy_opts {
	struct mcs_put_opts opts;
	const char **preferred;		/* NULL-ended */
	struct mcs_key *groups;		/* of the keys; NULL: none */
	PyObject *held;			/* keeps the strings */
};
/* @config: a ReplicateConfig, NULL: defaults.  @n_keys: of the call, for lists that go with the keys.
 * @same_node: prefer_alloc_in_same_node makes sense for this call.  0, -1 with an exception, or
 * upstream's number for values that no put takes. */
int mcpy_opts(PyObject *config, Py_ssize_t n_keys, bool same_node, struct mcpy_opts *ret);
void mcpy_opts_done(struct mcpy_opts *o);

/* ---- handle.c: BufferHandle ---- */

PyObject *mcpy_handle_type(PyObject *module);
/* Takes @data (of malloc). */
PyObject *mcpy_handle_new(void *data, Py_ssize_t size);

/* ---- object.c: open objects, for sessions ---- */

PyObject *mcpy_object_type(PyObject *module);

/* ---- memory.c: MooncakeHostMemAllocator, bind_to_numa_node ---- */

PyObject *mcpy_allocator_type(PyObject *module);
extern PyMethodDef mcpy_memory_functions[];

/* ---- module.c ---- */

struct mcpy_types {
	PyObject *store, *config, *handle, *object, *allocator;
};
/* The types live as long as the process: instances may outlive the module at exit. */
extern struct mcpy_types mcpy_types;

#endif
