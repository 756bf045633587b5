/* SPDX-License-Identifier: Apache-2.0
 * config.c - ReplicateConfig: options for storing objects.  Setters check values; every call reads the current ones. */
#include "python/mcpy.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DATA_TYPES 10
#define GROUP_MAX 1024
/* Upstream's code for a replica in a DFS that is not configured. */
#define NO_DFS (-1601)

struct config {
	PyObject_HEAD
	uint64_t replica_num, nof_replica_num, dfs_replica_num;
	uint64_t soft_pin_action, data_type;
	char hard_pin, same_node;
	PyObject *soft_pin_ttl_ms;	/* None or int */
	PyObject *preferred, *preferred_nof;	/* tuples of str */
	PyObject *preferred_one;	/* str */
	PyObject *group_ids;		/* None or tuple of str */
	/* hints without effect; a number of ids other than that of the keys is an error */
	PyObject *affinity_ids, *session_ids;	/* None or tuple of str */
	PyObject *nics;			/* None or tuple of str */
	PyObject *key_nics;		/* None or tuple of tuples of str */
};

enum kind { NUMBER, MAYBE_NUMBER, BOOL, STRING, STRINGS, MAYBE_STRINGS, MAYBE_LISTS };

struct field {
	const char *name;
	enum kind kind;
	size_t at;
};

/* Lists of the tuples of a tuple. */
static PyObject *config_lists(PyObject *v)
{
	PyObject *list = PyList_New(PyTuple_GET_SIZE(v));

	for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(v) && list; i++)
		mcpy_list_take(&list, i, PySequence_List(PyTuple_GET_ITEM(v, i)));
	return list;
}

static PyObject *config_get(PyObject *self, void *closure)
{
	const struct field *f = closure;
	void *at = (char *)self + f->at;

	switch (f->kind) {
	case NUMBER:
		return PyLong_FromUnsignedLongLong(*(uint64_t *)at);
	case BOOL:
		return PyBool_FromLong(*(char *)at);
	case STRINGS:
	case MAYBE_STRINGS:
		if (*(PyObject **)at != Py_None)
			return PySequence_List(*(PyObject **)at);
		return Py_NewRef(Py_None);
	case MAYBE_LISTS:
		return *(PyObject **)at == Py_None ? Py_NewRef(Py_None) : config_lists(*(PyObject **)at);
	default:
		return Py_NewRef(*(PyObject **)at);
	}
}

static PyObject *config_type_error(const struct field *f, const char *wanted, PyObject *v)
{
	return PyErr_Format(PyExc_TypeError, "ReplicateConfig.%s must be %s, not %.100s", f->name,
			    wanted, Py_TYPE(v)->tp_name);
}

static PyObject *config_strings(const struct field *f, PyObject *v)
{
	PyObject *tuple = NULL;

	if (f->kind == MAYBE_STRINGS && v == Py_None)
		return Py_NewRef(v);
	if (PyList_Check(v) || PyTuple_Check(v))
		tuple = PySequence_Tuple(v);
	else
		config_type_error(f, "a list of str", v);
	for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(tuple); i++)
		if (!PyUnicode_Check(PyTuple_GET_ITEM(tuple, i))) {
			config_type_error(f, "a list of str", PyTuple_GET_ITEM(tuple, i));
			Py_CLEAR(tuple);
		}
	return tuple;
}

static PyObject *config_string_lists(const struct field *f, PyObject *v)
{
	const struct field inner = { f->name, STRINGS, 0 };
	PyObject *list, *ret;

	if (v == Py_None)
		return Py_NewRef(v);
	if (!PyList_Check(v) && !PyTuple_Check(v))
		return config_type_error(f, "a list of lists of str", v);
	list = PySequence_List(v);
	for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
		PyObject *one = config_strings(&inner, PyList_GET_ITEM(list, i));

		if (!one || PyList_SetItem(list, i, one) < 0)
			Py_CLEAR(list);
	}
	ret = list ? PyList_AsTuple(list) : NULL;
	Py_XDECREF(list);
	return ret;
}

static PyObject *config_object(const struct field *f, PyObject *v)
{
	uint64_t number;

	if (f->kind == STRINGS || f->kind == MAYBE_STRINGS)
		return config_strings(f, v);
	if (f->kind == MAYBE_LISTS)
		return config_string_lists(f, v);
	if (f->kind == STRING)
		return PyUnicode_Check(v) ? Py_NewRef(v) : config_type_error(f, "str", v);
	if (v == Py_None)
		return Py_NewRef(v);
	return mcpy_u64(v, f->name, &number) < 0 ? NULL : PyLong_FromUnsignedLongLong(number);
}

static int config_set(PyObject *self, PyObject *v, void *closure)
{
	const struct field *f = closure;
	void *at = (char *)self + f->at;
	PyObject *object;
	bool on;

	if (!v) {
		PyErr_Format(PyExc_AttributeError, "%s cannot be deleted", f->name);
		return -1;
	}
	if (f->kind == NUMBER)
		return mcpy_u64(v, f->name, at);
	if (f->kind == BOOL) {
		if (mcpy_bool(v, false, &on) < 0)
			return -1;
		*(char *)at = on;
		return 0;
	}
	object = config_object(f, v);
	if (!object)
		return -1;
	Py_XSETREF(*(PyObject **)at, object);
	return 0;
}

static PyObject *config_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct config *c = (struct config *)type->tp_alloc(type, 0);

	if (!c)
		return NULL;
	c->replica_num = 1;
	c->soft_pin_ttl_ms = Py_NewRef(Py_None);
	c->group_ids = Py_NewRef(Py_None);
	c->affinity_ids = Py_NewRef(Py_None);
	c->session_ids = Py_NewRef(Py_None);
	c->nics = Py_NewRef(Py_None);
	c->key_nics = Py_NewRef(Py_None);
	c->preferred = PyTuple_New(0);
	c->preferred_nof = PyTuple_New(0);
	c->preferred_one = PyUnicode_FromString("");
	if (!c->preferred || !c->preferred_nof || !c->preferred_one)
		Py_CLEAR(c);
	return (PyObject *)c;
}

static int config_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	PyObject *name, *value;
	Py_ssize_t at = 0;

	if (PyTuple_GET_SIZE(args)) {
		PyErr_SetString(PyExc_TypeError, "ReplicateConfig() takes keyword arguments only");
		return -1;
	}
	while (kwargs && PyDict_Next(kwargs, &at, &name, &value))
		if (PyObject_SetAttr(self, name, value) < 0) {
			if (PyErr_ExceptionMatches(PyExc_AttributeError))
				PyErr_Format(PyExc_TypeError, "ReplicateConfig() got an "
					     "unexpected keyword argument '%U'", name);
			return -1;
		}
	return 0;
}

static void config_dealloc(PyObject *self)
{
	struct config *c = (struct config *)self;
	PyTypeObject *type = Py_TYPE(self);

	Py_CLEAR(c->soft_pin_ttl_ms);
	Py_CLEAR(c->preferred);
	Py_CLEAR(c->preferred_nof);
	Py_CLEAR(c->preferred_one);
	Py_CLEAR(c->group_ids);
	Py_CLEAR(c->affinity_ids);
	Py_CLEAR(c->session_ids);
	Py_CLEAR(c->nics);
	Py_CLEAR(c->key_nics);
	type->tp_free(self);
	Py_DECREF(type);
}

/* ---- options of a put ---- */

/* The names @first (NULL: none) and of the tuple @more, NULL-ended, which belong to these objects. */
static int opts_names(PyObject *first, PyObject *more, const char ***ret)
{
	Py_ssize_t n = PyTuple_GET_SIZE(more), k = 0, len;
	const char **list = PyMem_Calloc((size_t)n + 2, sizeof(*list));

	if (!list) {
		PyErr_NoMemory();
		return -1;
	}
	*ret = list;
	for (Py_ssize_t i = first ? -1 : 0; i < n; i++) {
		PyObject *name = i < 0 ? first : PyTuple_GET_ITEM(more, i);
		const char *text = PyUnicode_AsUTF8AndSize(name, &len);

		if (!text)
			return -1;
		/* No segment has a name that contains a NUL. */
		if (len && strlen(text) == (size_t)len)
			list[k++] = text;
	}
	return 0;
}

static int opts_preferred(const struct config *c, struct mcpy_opts *ret)
{
	int r = 0;

	if (PyTuple_GET_SIZE(c->preferred) || PyUnicode_GET_LENGTH(c->preferred_one))
		r = opts_names(c->preferred_one, c->preferred, &ret->preferred);
	ret->opts.preferred = ret->preferred;
	if (r || !c->nof_replica_num)
		return r;
	ret->opts.flags |= MCS_PUT_NOF;
	ret->opts.nof_replicas = (unsigned)c->nof_replica_num;
	if (PyTuple_GET_SIZE(c->preferred_nof))
		r = opts_names(NULL, c->preferred_nof, &ret->preferred_nof);
	ret->opts.preferred_nof = ret->preferred_nof;
	return r;
}

static int opts_groups(const struct config *c, Py_ssize_t n, struct mcpy_opts *ret)
{
	if (c->group_ids == Py_None)
		return 0;
	if (PyTuple_GET_SIZE(c->group_ids) != n)
		return MCPY_INVALID_PARAMS;
	ret->groups = PyMem_Calloc((size_t)n + 1, sizeof(*ret->groups));
	if (!ret->groups) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		if (mcpy_key(PyTuple_GET_ITEM(c->group_ids, i), &ret->groups[i]) < 0)
			return -1;
		if (ret->groups[i].len > GROUP_MAX)
			return MCPY_INVALID_PARAMS;
	}
	if (n == 1)
		ret->opts.group = ret->groups[0];
	return 0;
}

/* Upstream's rule: soft_pin_ttl_ms is valid with ENABLE only. */
static int opts_pins(const struct config *c, struct mcpy_opts *ret)
{
	uint64_t ttl = 0;

	if (c->hard_pin)
		ret->opts.flags |= MCS_PUT_HARD_PIN;
	if (c->soft_pin_ttl_ms != Py_None) {
		if (mcpy_u64(c->soft_pin_ttl_ms, "soft_pin_ttl_ms", &ttl) < 0)
			return -1;
		if (c->soft_pin_action != MCS_SOFT_PIN_ENABLE || ttl > UINT32_MAX)
			return MCPY_INVALID_PARAMS;
	}
	if (c->soft_pin_action > MCS_SOFT_PIN_DISABLE || c->data_type >= DATA_TYPES)
		return MCPY_INVALID_PARAMS;
	ret->opts.soft_pin = (enum mcs_soft_pin)c->soft_pin_action;
	ret->opts.soft_pin_ms = (uint32_t)ttl;
	ret->opts.data_type = (enum mcs_data_type)c->data_type;
	if (c->same_node)
		ret->opts.flags |= MCS_PUT_SAME_NODE;
	return 0;
}

/* As in upstream, there is one hint for each key; the names of NICs are not counted for a single key. */
static bool opts_hints(const struct config *c, Py_ssize_t n)
{
	return (c->affinity_ids == Py_None || PyTuple_GET_SIZE(c->affinity_ids) == n) &&
	       (c->session_ids == Py_None || PyTuple_GET_SIZE(c->session_ids) == n) &&
	       (c->key_nics == Py_None || n == 1 || PyTuple_GET_SIZE(c->key_nics) == n);
}

/* Upstream's switch of its DFS, of which all processes of a pool have the same value. */
static bool dfs_is_on(void)
{
	static const char *const off[] = { "", "0", "false", "no", "off" };
	const char *v = getenv("MOONCAKE_ENABLE_DFS");

	for (size_t i = 0; v && i < sizeof(off) / sizeof(off[0]); i++)
		if (!strcasecmp(v, off[i]))
			v = NULL;
	return v;
}

/* Upstream's codes for replicas in tiers that cannot be had; upstream allows at most one in a DFS.  The copy in the
 * shared directory is made after the put, of each object. */
static int opts_tiers(const struct config *c)
{
	if (c->nof_replica_num > MCS_NOF_REPLICAS_MAX || c->dfs_replica_num > 1)
		return MCPY_INVALID_PARAMS;
	return c->dfs_replica_num && !dfs_is_on() ? NO_DFS : 0;
}

int mcpy_opts(PyObject *config, Py_ssize_t n_keys, bool same_node, struct mcpy_opts *ret)
{
	const struct config *c = (const struct config *)config;
	int r;

	*ret = (struct mcpy_opts){ .opts = { .replicas = 1 } };
	if (!config)
		return 0;
	if (!PyObject_TypeCheck(config, (PyTypeObject *)mcpy_types.config)) {
		PyErr_Format(PyExc_TypeError, "config must be a ReplicateConfig, not %.100s",
			     Py_TYPE(config)->tp_name);
		return -1;
	}
	if (!c->replica_num || c->replica_num > UINT16_MAX || (c->same_node && !same_node) ||
	    !opts_hints(c, n_keys))
		return MCPY_INVALID_PARAMS;
	r = opts_tiers(c);
	if (r)
		return r;
	/* Keep the current lists: another thread may set new ones during the call. */
	ret->held = PyTuple_Pack(4, c->preferred, c->preferred_one, c->preferred_nof, c->group_ids);
	if (!ret->held)
		return -1;
	ret->opts.replicas = (unsigned)c->replica_num;
	r = opts_pins(c, ret);
	if (!r)
		r = opts_preferred(c, ret);
	if (!r)
		r = opts_groups(c, n_keys, ret);
	if (r)
		mcpy_opts_done(ret);
	return r;
}

void mcpy_opts_done(struct mcpy_opts *o)
{
	PyMem_Free(o->preferred);
	PyMem_Free(o->preferred_nof);
	PyMem_Free(o->groups);
	Py_CLEAR(o->held);
	o->preferred = o->preferred_nof = NULL;
	o->groups = NULL;
}

/* ---- the type ---- */

static PyObject *config_tier_error(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyLong_FromLong(opts_tiers((const struct config *)self));
}

#define F(name, kind, member) { name, config_get, config_set, NULL, \
	(void *)&(const struct field){ name, kind, offsetof(struct config, member) } }
static PyGetSetDef getset[] = {
	F("replica_num", NUMBER, replica_num),
	F("nof_replica_num", NUMBER, nof_replica_num),
	F("dfs_replica_num", NUMBER, dfs_replica_num),
	F("_soft_pin_action", NUMBER, soft_pin_action),
	F("soft_pin_ttl_ms", MAYBE_NUMBER, soft_pin_ttl_ms),
	F("with_hard_pin", BOOL, hard_pin),
	F("preferred_segments", STRINGS, preferred),
	F("preferred_nof_segments", STRINGS, preferred_nof),
	F("preferred_segment", STRING, preferred_one),
	F("prefer_alloc_in_same_node", BOOL, same_node),
	F("_data_type", NUMBER, data_type),
	F("group_ids", MAYBE_STRINGS, group_ids),
	F("_residency_affinity_ids", MAYBE_STRINGS, affinity_ids),
	F("_session_ids", MAYBE_STRINGS, session_ids),
	F("_preferred_hca_names", MAYBE_STRINGS, nics),
	F("_per_key_preferred_hca_names", MAYBE_LISTS, key_nics),
	{ NULL, NULL, NULL, NULL, NULL }
};

static PyMethodDef config_methods[] = {
	{ "_tier_error", config_tier_error, METH_NOARGS, "0, or the code of a put with these numbers of replicas" },
	{ NULL, NULL, 0, NULL }
};

static PyType_Slot slots[] = {
	{ Py_tp_new, config_new },
	{ Py_tp_init, config_init },
	{ Py_tp_dealloc, config_dealloc },
	{ Py_tp_getset, getset },
	{ Py_tp_methods, config_methods },
	{ Py_tp_doc, (char *)"Options for storing objects; the base of mooncake.store.ReplicateConfig." },
	{ 0, NULL }
};

PyType_Spec mcpy_config_spec = {
	.name = "mooncake._store.ReplicateConfig",
	.basicsize = sizeof(struct config),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = slots,
};
