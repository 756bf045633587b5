/* SPDX-License-Identifier: Apache-2.0
 * store.c - the store object: open, close, references of running calls. */
#include "python/mcpy.h"

#include <errno.h>
#include <mooncake/mcs_credential.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Time that close() waits for running calls; if it times out, the last call closes the store. */
#define CLOSE_WAIT_S 2
#define CHECK_MS 2000	/* time limit for the master's answer about a token */

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
	static uint64_t serials;	/* atomic */
	struct mcpy_core *c = calloc(1, sizeof(*c));
	pthread_condattr_t attr;

	if (!c)
		return -ENOMEM;
	c->pid = getpid();
	c->serial = __atomic_add_fetch(&serials, 1, __ATOMIC_RELAXED);
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
	mcpy_registered_clear(self);
	if (!c)
		return;
	Py_BEGIN_ALLOW_THREADS
	core_close(c);
	Py_END_ALLOW_THREADS
}

static PyObject *store_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	return type->tp_alloc(type, 0);
}

static void store_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	PyObject *kind, *value, *trace;

	PyObject_GC_UnTrack(self);
	PyErr_Fetch(&kind, &value, &trace);
	store_detach((struct mcpy_store *)self);
	PyErr_Restore(kind, value, trace);
	PyMem_Free(((struct mcpy_store *)self)->reg);
	type->tp_free(self);
	Py_DECREF(type);
}

static int store_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	return 0;
}

/* ---- open and close ---- */

enum { A_HOSTNAME, A_SEGMENT, A_MASTER, A_FORCE_TCP, A_TENANT, A_TIMEOUT, A_PATH, A_OFFSET,
       A_DAEMON, A_BUFFER, A_POOL, A_PROTOCOL, A_NICS, A_SSD, A_HTTP, A_CREDENTIAL };

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
	    mcpy_text(a[A_SSD], "ssd_path", &conf->ssd_path) < 0 ||
	    mcpy_text(a[A_HTTP], "http_addr", &conf->http_addr) < 0 ||
	    mcpy_text(a[A_CREDENTIAL], "credential", &conf->credential) < 0)
		return -1;
	conf->force_tcp = on;
	conf->timeout_ms = (int64_t)(ms < INT32_MAX ? ms : INT32_MAX);
	return conf_path(a, conf);
}

MCPY_METHOD(store_open, "_open", 3, "hostname", "segment_size", "master", "force_tcp", "tenant",
	    "timeout_ms", "path", "offset", "daemon", "daemon_buffer", "daemon_pool", "protocol", "rdma_devices",
	    "ssd_path", "http_addr", "credential")
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

/* The role and the tenant of a token's holder, or None: it is not valid, or the master does not answer. */
static PyObject *store_credential_check(PyObject *self, PyObject *token)
{
	const char *text = PyUnicode_Check(token) ? PyUnicode_AsUTF8(token) : NULL;
	struct mcpy_core *c = text ? mcpy_enter(self) : NULL;
	struct mcs_holder holder;
	int r = -EACCES;

	/* A text that is no UTF-8 is no token. */
	PyErr_Clear();
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = mcs_credential_check(c->mcs, text, &holder, CHECK_MS);
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	if (r < 0)
		Py_RETURN_NONE;
	return Py_BuildValue("(ss)", holder.role, strcmp(holder.tenant, "*") ? holder.tenant : "");
}

static PyMethodDef store_methods[] = {
	{ "_open", MCPY_FAST(store_open), "Connect; (code, why)." },
	{ "close", store_close, METH_NOARGS,
	  "close() -> int\n\nLeave the pool: unmount this store's segment, which discards its objects.  Waits at most\n"
	  "2 seconds for running calls in other threads.  Returns 0, also if already closed." },
	{ "_disks_remove", store_disks_remove, METH_NOARGS, "_disks_remove() -> 0 or a negative code" },
	{ "_credential_check", store_credential_check, METH_O, "_credential_check(token) -> (role, tenant) or None" },
	{ "health_check", store_health, METH_NOARGS,
	  "health_check() -> int\n\n0: healthy, 1: not set up or closed, 2: the master is not reachable." },
	{ "get_hostname", store_hostname, METH_NOARGS,
	  "get_hostname() -> str\n\n\"host:port\": the name of this store's segment." },
	{ NULL, NULL, 0, NULL }
};

static PyMethodDef all_methods[80];

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
		store_methods, mcpy_registered_methods, mcpy_put_methods, mcpy_get_methods, mcpy_range_methods,
		mcpy_name_methods, mcpy_probe_methods, mcpy_object_methods, mcpy_pool_methods,
	};
	size_t k = 0;

	/* Join the tables, because a type has one table. */
	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
		for (const PyMethodDef *m = tables[t]; m->ml_name; m++)
			all_methods[k++] = *m;
	return &spec;
}
