/* SPDX-License-Identifier: Apache-2.0
 * store.c - the store object: open, close, references of running calls, registered memory. */
#include "python/mcpy.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Time that close() waits for running calls; if it times out, the last call closes the store. */
#define CLOSE_WAIT_S 2

int64_t mcpy_code(int64_t r)
{
	if (r >= 0)
		return r;
	return r == -ENOBUFS || r == -EINVAL ? MCPY_INVALID_PARAMS : mcs_code((int)r);
}

static void core_free(struct mcpy_core *c)
{
	/* A forked child does not have the parent's threads, so it must not stop the client. */
	if (c->pid == getpid())
		mcs_close(c->mcs);
	pthread_cond_destroy(&c->idle);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

struct mcpy_core *mcpy_enter(PyObject *self)
{
	struct mcpy_core *c = ((struct mcpy_store *)self)->core;

	if (!c || c->pid != getpid())
		return NULL;
	pthread_mutex_lock(&c->lock);
	c->users++;
	pthread_mutex_unlock(&c->lock);
	return c;
}

void mcpy_leave(struct mcpy_core *c)
{
	bool last;

	pthread_mutex_lock(&c->lock);
	last = --c->users == 0 && c->closed;
	if (c->closed && !last)
		pthread_cond_broadcast(&c->idle);
	pthread_mutex_unlock(&c->lock);
	if (last)
		core_free(c);
}

/* Wait up to CLOSE_WAIT_S for running calls, then release the store.  Call without the GIL. */
static void core_close(struct mcpy_core *c)
{
	struct timespec until;

	if (c->pid != getpid()) {
		core_free(c);
		return;
	}
	pthread_mutex_lock(&c->lock);
	c->closed = true;
	/* Count this thread as a user, so that no call frees the core during the wait. */
	c->users++;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += CLOSE_WAIT_S;
	while (c->users > 1 && pthread_cond_timedwait(&c->idle, &c->lock, &until) == 0)
		;
	pthread_mutex_unlock(&c->lock);
	mcpy_leave(c);
}

static int core_new(struct mcpy_core **ret)
{
	struct mcpy_core *c = calloc(1, sizeof(*c));
	pthread_condattr_t attr;

	if (!c)
		return -ENOMEM;
	c->pid = getpid();
	pthread_mutex_init(&c->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->idle, &attr);
	pthread_condattr_destroy(&attr);
	*ret = c;
	return 0;
}

/* Remove the core from the object, and close it without the GIL. */
static void store_detach(struct mcpy_store *self)
{
	struct mcpy_core *c = self->core;

	self->core = NULL;
	if (self->noted)
		PyDict_Clear(self->noted);
	if (!c)
		return;
	Py_BEGIN_ALLOW_THREADS
	core_close(c);
	Py_END_ALLOW_THREADS
}

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	PyObject *self = type->tp_alloc(type, 0);

	if (!self)
		return NULL;
	((struct mcpy_store *)self)->noted = PyDict_New();
	if (!((struct mcpy_store *)self)->noted)
		Py_CLEAR(self);
	return self;
}

static void store_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	PyObject *kind, *value, *trace;

	PyObject_GC_UnTrack(self);
	PyErr_Fetch(&kind, &value, &trace);
	store_detach((struct mcpy_store *)self);
	PyErr_Restore(kind, value, trace);
	Py_CLEAR(((struct mcpy_store *)self)->noted);
	type->tp_free(self);
	Py_DECREF(type);
}

static int store_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((struct mcpy_store *)self)->noted);
	return 0;
}

/* ---- open and close ---- */

enum { A_HOSTNAME, A_SEGMENT, A_MASTER, A_FORCE_TCP, A_TENANT, A_TIMEOUT, A_PATH, A_OFFSET,
       A_DAEMON, A_BUFFER, A_POOL, A_PROTOCOL, A_NICS, A_SSD };

/* The file to contribute as the segment; the path points into @a. */
static int conf_path(PyObject *const *a, struct mcs_conf *conf)
{
	if (!a[A_PATH])
		return 0;
	if (!PyBytes_Check(a[A_PATH])) {
		PyErr_SetString(PyExc_TypeError, "path must be bytes");
		return -1;
	}
	conf->segment_path = PyBytes_AsString(a[A_PATH]);
	return mcpy_u64(a[A_OFFSET], "offset", &conf->segment_offset);
}

static int conf_parse(PyObject *const *a, struct mcs_conf *conf)
{
	uint64_t ms;
	bool on;

	mcs_conf_init(conf);
	ms = (uint64_t)conf->timeout_ms;
	if (mcpy_text(a[A_HOSTNAME], "hostname", &conf->hostname) < 0 ||
	    mcpy_text(a[A_MASTER], "master", &conf->master) < 0 ||
	    mcpy_u64(a[A_SEGMENT], "segment_size", &conf->segment_size) < 0 ||
	    mcpy_bool(a[A_FORCE_TCP], false, &on) < 0 ||
	    mcpy_text(a[A_TENANT], "tenant", &conf->tenant) < 0 ||
	    mcpy_u64(a[A_TIMEOUT], "timeout_ms", &ms) < 0 ||
	    mcpy_text(a[A_DAEMON], "daemon", &conf->daemon) < 0 ||
	    mcpy_u64(a[A_BUFFER], "daemon_buffer", &conf->daemon_buffer) < 0 ||
	    mcpy_u64(a[A_POOL], "daemon_pool", &conf->daemon_pool) < 0 ||
	    mcpy_text(a[A_PROTOCOL], "protocol", &conf->protocol) < 0 ||
	    mcpy_text(a[A_NICS], "rdma_devices", &conf->rdma_devices) < 0 ||
	    mcpy_text(a[A_SSD], "ssd_path", &conf->ssd_path) < 0)
		return -1;
	conf->force_tcp = on;
	conf->timeout_ms = (int64_t)(ms < INT32_MAX ? ms : INT32_MAX);
	return conf_path(a, conf);
}

MCPY_METHOD(store_open, "_open", 3, "hostname", "segment_size", "master", "force_tcp", "tenant",
	    "timeout_ms", "path", "offset", "daemon", "daemon_buffer", "daemon_pool", "protocol", "rdma_devices",
	    "ssd_path")
{
	struct mcpy_store *store = (struct mcpy_store *)self;
	struct mcpy_core *c, *old;
	struct mcs_conf conf;
	const char *why = "";
	int r;

	if (conf_parse(a, &conf) < 0)
		return NULL;
	store_detach(store);
	r = core_new(&c);
	if (r < 0)
		return PyErr_NoMemory();
	Py_BEGIN_ALLOW_THREADS
	/* "": the path of the environment, or upstream's default. */
	r = conf.ssd_path ? mcs_conf_offload(&conf) : 0;
	if (r == 0)
		r = mcs_open(&conf, &c->mcs);
	if (r < 0)
		why = mcs_error_detail(r);
	Py_END_ALLOW_THREADS
	if (r < 0) {
		c->mcs = NULL;
		core_free(c);
		return Py_BuildValue("(is)", mcs_code(r), why);
	}
	/* Another thread may have opened the store meanwhile. */
	old = store->core;
	store->core = c;
	if (old) {
		Py_BEGIN_ALLOW_THREADS
		core_close(old);
		Py_END_ALLOW_THREADS
	}
	return Py_BuildValue("(is)", 0, "");
}

static PyObject *store_close(PyObject *self, PyObject *none)
{
	store_detach((struct mcpy_store *)self);
	return PyLong_FromLong(0);
}

static PyObject *store_disks_remove(PyObject *self, PyObject *none)
{
	struct mcpy_core *c = mcpy_enter(self);
	int r = MCPY_INVALID_PARAMS;

	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = (int)mcpy_code(mcs_disks_remove(c->mcs, -1));
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLong(r);
}

static PyObject *store_health(PyObject *self, PyObject *none)
{
	struct mcpy_core *c = mcpy_enter(self);
	int r = 1;

	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = mcs_health(c->mcs);
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLong(r);
}

static PyObject *store_hostname(PyObject *self, PyObject *none)
{
	struct mcpy_core *c = mcpy_enter(self);
	PyObject *name;

	if (!c)
		return PyUnicode_FromString("");
	name = PyUnicode_FromString(mcs_hostname(c->mcs));
	Py_BEGIN_ALLOW_THREADS
	mcpy_leave(c);
	Py_END_ALLOW_THREADS
	return name;
}

/* ---- registered memory ---- */

/* Without RDMA, registration has no effect on transfers.  mcs.h rejects one that overlaps another, so count it here;
 * @add is 1 to register, -1 to unregister. */
static int store_note(struct mcpy_store *store, uint64_t at, long add, long *ret_before)
{
	PyObject *key = PyLong_FromUnsignedLongLong(at), *count, *after = NULL;
	int r = -1;

	if (!key)
		return -1;
	count = PyDict_GetItemWithError(store->noted, key);
	*ret_before = count ? PyLong_AsLong(count) : 0;
	if (*ret_before + add < 0)
		r = PyErr_Occurred() ? -1 : 0;
	else if (*ret_before + add == 0)
		r = count ? PyDict_DelItem(store->noted, key) : 0;
	else if ((after = PyLong_FromLong(*ret_before + add)))
		r = PyDict_SetItem(store->noted, key, after);
	Py_XDECREF(after);
	Py_DECREF(key);
	return r;
}

MCPY_METHOD(store_register, "register_buffer", 2, "buffer_ptr", "size")
{
	struct mcpy_core *c;
	uint64_t at, size;
	long before;
	int r;

	if (mcpy_u64(a[0], "buffer_ptr", &at) < 0 || mcpy_u64(a[1], "size", &size) < 0)
		return NULL;
	c = mcpy_enter(self);
	if (!c || !at || !size || at + size < at)
		r = MCPY_INVALID_PARAMS;
	else if (mcpy_reach(at, size, 0) < size)
		r = MCPY_INVALID_PARAMS;
	else {
		Py_BEGIN_ALLOW_THREADS
		r = mcs_register_buffer(c->mcs, (void *)(uintptr_t)at, size);
		Py_END_ALLOW_THREADS
		r = r == -EEXIST ? 1 : (int)mcpy_code(r);
	}
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	if (r == 1) {
		if (store_note((struct mcpy_store *)self, at, 1, &before) < 0)
			return NULL;
		r = 0;
	}
	return PyLong_FromLong(r);
}

MCPY_METHOD(store_unregister, "unregister_buffer", 1, "buffer_ptr")
{
	int r = MCPY_INVALID_PARAMS;
	struct mcpy_core *c;
	uint64_t at;
	long before;

	if (mcpy_u64(a[0], "buffer_ptr", &at) < 0 ||
	    store_note((struct mcpy_store *)self, at, -1, &before) < 0)
		return NULL;
	if (before > 0)
		return PyLong_FromLong(0);
	c = mcpy_enter(self);
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = (int)mcpy_code(mcs_unregister_buffer(c->mcs, (void *)(uintptr_t)at));
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLong(r);
}

static PyMethodDef store_methods[] = {
	{ "_open", MCPY_FAST(store_open), "Connect; (code, why)." },
	{ "close", store_close, METH_NOARGS,
	  "close() -> int\n\nLeave the pool: unmount this store's segment, which discards its objects.  Waits at most\n"
	  "2 seconds for running calls in other threads.  Returns 0, also if already closed." },
	{ "_disks_remove", store_disks_remove, METH_NOARGS, "_disks_remove() -> 0 or a negative code" },
	{ "health_check", store_health, METH_NOARGS,
	  "health_check() -> int\n\n0: healthy, 1: not set up or closed, 2: the master is not reachable." },
	{ "get_hostname", store_hostname, METH_NOARGS,
	  "get_hostname() -> str\n\n\"host:port\": the name of this store's segment." },
	{ "register_buffer", MCPY_FAST(store_register),
	  "register_buffer(buffer_ptr: int, size: int) -> int\n\nRegister size bytes at buffer_ptr for transfers.  The "
	  "caller must unregister them before freeing them.\n0, or -600, also if this process cannot access them.  "
	  "Transfers over TCP and shared memory need no\nregistration; ranges may overlap." },
	{ "unregister_buffer", MCPY_FAST(store_unregister),
	  "unregister_buffer(buffer_ptr: int) -> int\n\n0, or -600 if nothing is registered at that address." },
	{ NULL, NULL, 0, NULL }
};

static PyMethodDef all_methods[64];

static PyType_Slot slots[] = {
	{ Py_tp_new, store_new },
	{ Py_tp_dealloc, store_dealloc },
	{ Py_tp_traverse, store_traverse },
	{ Py_tp_methods, all_methods },
	{ Py_tp_doc, (char *)"Connection to a pool; the base of mooncake.store.MooncakeDistributedStore." },
	{ 0, NULL }
};

static PyType_Spec spec = {
	.name = "mooncake._store.Store",
	.basicsize = sizeof(struct mcpy_store),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
	.slots = slots,
};

PyType_Spec *mcpy_store_spec(void)
{
	PyMethodDef *const tables[] = {
		store_methods, mcpy_put_methods, mcpy_get_methods, mcpy_name_methods,
		mcpy_object_methods, mcpy_pool_methods,
	};
	size_t k = 0;

	/* Join the tables, because a type has one table. */
	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
		for (const PyMethodDef *m = tables[t]; m->ml_name; m++)
			all_methods[k++] = *m;
	return &spec;
}
