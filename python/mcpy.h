/* SPDX-License-Identifier: Apache-2.0
 * mcpy.h - interfaces between the files of the extension mooncake._store.
 *
 * Every method parses its arguments into plain C arrays with the GIL held, releases the GIL for the call of
 * mcs.h, and builds its result with the GIL held.  Keys and buffers in the arrays stay referenced until then. */
#ifndef MCPY_H
#define MCPY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <mooncake/mcs.h>

/* Upstream's error codes. */
#define MCPY_INVALID_PARAMS (-600)
#define MCPY_NO_OBJECT (-704)
#define MCPY_NO_MASTER (-900)
#define MCPY_TIMEOUT (-901)

/* A row of a table of methods. */
#define MCPY_FAST(f) ((PyCFunction)(void (*)(void))(f)), METH_FASTCALL | METH_KEYWORDS

/* ---- args.c: arguments ---- */

#define MCPY_ARGS_MAX 16

struct mcpy_sig {
	const char *name;		/* the method's name */
	int required;			/* number of leading arguments that must be given */
	const char *args[MCPY_ARGS_MAX + 1];	/* NULL-ended */
};

/* Borrowed references in @ret[], one for each name, NULL where none was given.  -1: TypeError that names the
 * missing, unexpected or surplus argument. */
int mcpy_args(const struct mcpy_sig *sig, PyObject *const *args, Py_ssize_t nargs,
	      PyObject *kwnames, PyObject **ret);

/* Begins the definition of @f for MCPY_FAST(): the method @name with arguments of these names, of which the
 * first @n_required must be given.  The body that follows gets @self and the arguments in @a[]. */
#define MCPY_METHOD(f, name, n_required, ...) \
	static PyObject *f##_body(PyObject *self, PyObject *const *a); \
	static PyObject *f(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) \
	{ \
		static const struct mcpy_sig sig = { name, n_required, { __VA_ARGS__ } }; \
		PyObject *a[MCPY_ARGS_MAX]; \
		return mcpy_args(&sig, args, nargs, kwnames, a) < 0 ? NULL : f##_body(self, a); \
	} \
	static PyObject *f##_body(PyObject *self, PyObject *const *a)

/* str (as UTF-8) or bytes; points into @obj. */
int mcpy_key(PyObject *obj, struct mcs_key *ret);

/* The text of the str @obj, for functions that read up to a NUL.  ValueError that names @arg if the text
 * has a NUL, because such a function would use only the part before it.  NULL: *@ret stays unchanged. */
int mcpy_text(PyObject *obj, const char *arg, const char **ret);

struct mcpy_keys {
	PyObject *tuple;
	struct mcs_key *key;
	Py_ssize_t n, cap;
};
/* Needs the GIL.  TypeError unless @obj is a sequence of keys.  Release with mcpy_keys_done(). */
int mcpy_keys(PyObject *obj, struct mcpy_keys *ret);
void mcpy_keys_done(struct mcpy_keys *k);

/* An integer from 0 to 2^64 - 1; otherwise a TypeError that names @arg.  NULL: *@ret stays unchanged. */
int mcpy_u64(PyObject *obj, const char *arg, uint64_t *ret);

/* A tuple of the elements of a list or tuple; otherwise a TypeError that names @arg. */
PyObject *mcpy_tuple(PyObject *obj, const char *arg);

struct mcpy_numbers {
	uint64_t *v;
	Py_ssize_t n;
};
int mcpy_numbers(PyObject *obj, const char *arg, struct mcpy_numbers *ret);

/* Lists of lists of pointers and sizes, flattened: item i has iov[first[i]] up to iov[first[i + 1]], exclusive. */
struct mcpy_vectors {
	struct iovec *iov;
	Py_ssize_t *first;
	bool *bad;			/* invalid item: lists of unequal length, or marked by a caller */
	Py_ssize_t n;			/* -1: the outer lists differ in length */
};
int mcpy_vectors(PyObject *ptrs, PyObject *sizes, struct mcpy_vectors *ret);
/* The same from flat lists: each item has one piece. */
int mcpy_pieces(PyObject *ptrs, PyObject *sizes, struct mcpy_vectors *ret);
void mcpy_vectors_done(struct mcpy_vectors *v);

/* Truth value of @obj; @fallback for NULL. */
int mcpy_bool(PyObject *obj, bool fallback, bool *ret);

/* The bytes of an object with a buffer, in C order for any strides.  Release with PyBuffer_Release(). */
int mcpy_bytes(PyObject *obj, Py_buffer *ret);

/* ---- mapped.c: checks of addresses from callers ---- */

/* Access to check for; 0: the memory need only be mapped. */
#define MCPY_READ 1u
#define MCPY_WRITE 2u

/* Number of bytes from @at on, at most @size, that allow @access.  Costs a system call (about 1 us) per mapping.  Needs
 * no GIL.  On kernels before 6.11, checks protection of the first and last page only, and finds holes between them. */
uint64_t mcpy_reach(uint64_t at, uint64_t size, unsigned access);
/* mcs_gpu_of() or mce_te_gpu_of(), by the extension's own library. */
int mcpy_gpu_of(const void *p);
/* Whether all bytes of all pieces allow @access. */
bool mcpy_all_reach(const struct iovec *iov, Py_ssize_t n, unsigned access);

/* ---- results ---- */

/* Upstream's error code for a result of mcs.h. */
int64_t mcpy_code(int64_t r);
/* The same for a read of @key: an empty one is a miss. */
static inline int64_t mcpy_get_code(int64_t r, struct mcs_key key)
{
	return r < 0 && !key.len ? MCPY_NO_OBJECT : mcpy_code(r);
}
/* [@value] * n */
PyObject *mcpy_list_of(Py_ssize_t n, int64_t value);
/* The numbers as a list. */
PyObject *mcpy_list_ints(const int *v, Py_ssize_t n);

/* Store @v in the list and take its reference; if @v is NULL (exception set), release the list and clear *@list. */
static inline void mcpy_list_take(PyObject **list, Py_ssize_t i, PyObject *v)
{
	if (v)
		PyList_SET_ITEM(*list, i, v);
	else
		Py_CLEAR(*list);
}

/* ---- store.c: the handle ---- */

/* An open store.  Running calls keep it open; if close() timed out, the last call closes it. */
struct mcpy_core {
	mcs_t *mcs;
	pid_t pid;			/* process that opened it */
	uint64_t serial;		/* no other open store of this process has or had it */
	pthread_mutex_t lock;
	pthread_cond_t idle;
	/* under lock */
	unsigned users;			/* running calls */
	bool closed;
};

/* A successful register_buffer(). */
struct mcpy_registration {
	uint64_t at, end;
	bool noted;			/* it overlaps another one, so only this file knows it */
};

struct mcpy_store {
	PyObject_HEAD
	/* under the GIL */
	struct mcpy_core *core;		/* NULL: not set up, or closed */
	struct mcpy_registration *reg;	/* in the order of the calls */
	size_t n_reg, cap_reg;
};

PyType_Spec *mcpy_store_spec(void);

/* The store for one call; NULL (no exception): not set up, closed, or opened by a parent process.  Needs the GIL. */
struct mcpy_core *mcpy_enter(PyObject *self);
/* May be called with or without the GIL; does not take it. */
void mcpy_leave(struct mcpy_core *core);

/* ---- registered.c: registered memory; needs the GIL ---- */

/* End of the registered memory that contains @at; 0: none does. */
uint64_t mcpy_registered_end(const struct mcpy_store *store, uint64_t at);
/* Forget all, when the store is closed. */
void mcpy_registered_clear(struct mcpy_store *store);

/* ---- methods ---- */

extern PyMethodDef mcpy_put_methods[];
extern PyMethodDef mcpy_get_methods[];
extern PyMethodDef mcpy_range_methods[];
extern PyMethodDef mcpy_probe_methods[];
extern PyMethodDef mcpy_registered_methods[];
extern PyMethodDef mcpy_name_methods[];
extern PyMethodDef mcpy_object_methods[];
extern PyMethodDef mcpy_pool_methods[];

/* ---- config.c: ReplicateConfig ---- */

extern PyType_Spec mcpy_config_spec;

struct mcpy_opts {
	struct mcs_put_opts opts;
	const char **preferred, **preferred_nof;	/* NULL-ended */
	struct mcs_key *groups;		/* one for each key; NULL: none */
	PyObject *held;			/* tuple that keeps the strings alive */
};
/* @config: a ReplicateConfig, or NULL for defaults.  @n_keys: number of keys of the call, the required length of
 * per-key lists.  @same_node: the call supports prefer_alloc_in_same_node.  Returns 0, -1 with an exception, or
 * upstream's error code for values that no put accepts. */
int mcpy_opts(PyObject *config, Py_ssize_t n_keys, bool same_node, struct mcpy_opts *ret);
void mcpy_opts_done(struct mcpy_opts *o);

/* ---- handle.c: BufferHandle ---- */

extern PyType_Spec mcpy_handle_spec;
/* Takes ownership of @data, which malloc() returned. */
PyObject *mcpy_handle_new(void *data, Py_ssize_t size);

/* ---- ranges.c: ranged reads ---- */

extern PyType_Spec mcpy_snapshot_spec;

/* ---- object.c: open objects, for sessions ---- */

extern PyType_Spec mcpy_object_spec;

/* ---- memory.c: MooncakeHostMemAllocator, bind_to_numa_node ---- */

extern PyType_Spec mcpy_allocator_spec;
extern PyMethodDef mcpy_memory_functions[];

/* ---- module.c ---- */

struct mcpy_types {
	PyObject *store, *config, *handle, *object, *allocator, *snapshot;
};
/* The types are never freed, because instances may outlive the module at exit. */
extern struct mcpy_types mcpy_types;

#endif
