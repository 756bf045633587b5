/* SPDX-License-Identifier: Apache-2.0
 * names.c - methods that query and remove keys. */
#include "python/mcpy.h"

#include <string.h>

/* ExistOptions: are objects that are on a disk only to be copied to memory? */
static int exist_prefetch(PyObject *options, bool *ret)
{
	PyObject *value;
	int on;

	*ret = false;
	if (!options || options == Py_None)
		return 0;
	value = PyObject_GetAttrString(options, "prefetch_to_memory");
	on = value ? PyObject_IsTrue(value) : -1;
	Py_XDECREF(value);
	if (!value)
		PyErr_Format(PyExc_TypeError, "options must be an ExistOptions, not %.100s", Py_TYPE(options)->tp_name);
	*ret = on > 0;
	return on < 0 ? -1 : 0;
}

/* Best effort: a copy that cannot be made changes no answer. */
static void exist_tier(struct mcpy_core *c, const struct mcs_key *keys, size_t n, const uint8_t *present)
{
	struct mcs_key *found = PyMem_RawCalloc(n + 1, sizeof(*found));
	unsigned k = 0;

	for (size_t i = 0; i < n && found; i++)
		if (present[i])
			found[k++] = keys[i];
	if (k)
		(void)mcs_tier(c->mcs, found, k, MCS_IN_MEMORY, NULL, -1);
	PyMem_RawFree(found);
}

MCPY_METHOD(store_is_exist, "is_exist", 1, "key", "options")
{
	bool prefetch;
	int r = MCPY_INVALID_PARAMS;
	struct mcpy_core *c;
	struct mcs_key key;
	uint8_t present;

	if (mcpy_key(a[0], &key) < 0 || exist_prefetch(a[1], &prefetch) < 0)
		return NULL;
	c = mcpy_enter(self);
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = key.len ? (int)mcpy_code(mcs_exist(c->mcs, &key, 1, &present, -1)) : 0;
		if (r == 1 && prefetch)
			exist_tier(c, &key, 1, &present);
		/* As in upstream, report 0: callers interpret any other number as "exists". */
		if (r == MCPY_NO_MASTER || r == MCPY_TIMEOUT)
			r = 0;
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLong(r);
}

MCPY_METHOD(store_batch_is_exist, "batch_is_exist", 1, "keys", "options")
{
	bool prefetch;
	int r = MCPY_INVALID_PARAMS;
	PyObject *list;
	struct mcpy_keys keys;
	struct mcpy_core *c;
	uint8_t *present;

	if (exist_prefetch(a[1], &prefetch) < 0 || mcpy_keys(a[0], &keys) < 0)
		return NULL;
	present = PyMem_RawCalloc((size_t)keys.n + 1, 1);
	c = present ? mcpy_enter(self) : NULL;
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = keys.n ? (int)mcpy_code(mcs_exist(c->mcs, keys.key, (unsigned)keys.n, present, -1)) : 0;
		if (r > 0 && prefetch)
			exist_tier(c, keys.key, (size_t)keys.n, present);
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	list = r < 0 ? mcpy_list_of(keys.n, r) : PyList_New(keys.n);
	for (Py_ssize_t i = 0; i < keys.n && list && r >= 0; i++)
		mcpy_list_take(&list, i, PyLong_FromLong(present[i]));
	PyMem_RawFree(present);
	mcpy_keys_done(&keys);
	return list;
}

MCPY_METHOD(store_get_size, "get_size", 1, "key")
{
	int64_t r = MCPY_INVALID_PARAMS;
	struct mcs_info info;
	struct mcpy_core *c;
	struct mcs_key key;
	uint8_t present;

	if (mcpy_key(a[0], &key) < 0)
		return NULL;
	c = mcpy_enter(self);
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = key.len ? mcs_stat(c->mcs, key, &info, -1) : -MCS_ENOOBJECT;
		/* As in upstream, also protect the object for the lease time. */
		if (!r)
			(void)mcs_exist(c->mcs, &key, 1, &present, -1);
		r = r < 0 ? mcpy_code(r) : (int64_t)info.size;
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLongLong(r);
}

MCPY_METHOD(store_stat, "_stat", 1, "key")
{
	int64_t r = MCPY_INVALID_PARAMS;
	struct mcs_info info = { 0 };
	struct mcpy_core *c;
	struct mcs_key key;

	if (mcpy_key(a[0], &key) < 0)
		return NULL;
	c = mcpy_enter(self);
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = key.len ? mcpy_code(mcs_stat(c->mcs, key, &info, -1)) : MCPY_NO_OBJECT;
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	if (r < 0)
		return PyLong_FromLongLong(r);
	return Py_BuildValue("(KKKII)", (unsigned long long)info.size, (unsigned long long)info.generation,
			     (unsigned long long)info.mtime_ms, info.crc32c, info.replicas);
}

/* ---- remove ---- */

MCPY_METHOD(store_remove, "remove", 1, "key", "force")
{
	int64_t r = MCPY_INVALID_PARAMS;
	struct mcpy_core *c;
	struct mcs_key key;
	bool force;

	if (mcpy_key(a[0], &key) < 0 || mcpy_bool(a[1], false, &force) < 0)
		return NULL;
	c = mcpy_enter(self);
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = key.len ? mcs_remove(c->mcs, key, force ? MCS_REMOVE_FORCE : 0, -1) : -MCS_ENOOBJECT;
		r = mcpy_code(r);
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLongLong(r);
}

/* The client rejects a batch that contains an empty key, so empty keys are left out. */
static void names_remove(struct mcpy_core *c, const struct mcpy_keys *keys, bool force,
			struct mcs_key *some, int *result)
{
	unsigned n = 0, k = 0;
	int r = 0;

	for (Py_ssize_t i = 0; i < keys->n; i++)
		if (keys->key[i].len)
			some[n++] = keys->key[i];
	if (n)
		r = mcs_remove_batch(c->mcs, some, n, force ? MCS_REMOVE_FORCE : 0, result, -1);
	/* Move the last result first, so that no result is overwritten before it is moved. */
	k = n;
	for (Py_ssize_t i = keys->n - 1; i >= 0; i--)
		result[i] = !keys->key[i].len ? MCPY_NO_OBJECT : (int)mcpy_code(r < 0 ? r : result[--k]);
}

MCPY_METHOD(store_batch_remove, "batch_remove", 1, "keys", "force")
{
	PyObject *list = NULL;
	struct mcpy_core *c = NULL;
	struct mcpy_keys keys;
	struct mcs_key *some;
	int *result;
	bool force;

	if (mcpy_bool(a[1], false, &force) < 0 || mcpy_keys(a[0], &keys) < 0)
		return NULL;
	result = PyMem_RawCalloc((size_t)keys.n + 1, sizeof(*result));
	some = PyMem_RawCalloc((size_t)keys.n + 1, sizeof(*some));
	if (!result || !some) {
		PyErr_NoMemory();
		goto out;
	}
	c = mcpy_enter(self);
	if (!c) {
		list = mcpy_list_of(keys.n, MCPY_INVALID_PARAMS);
		goto out;
	}
	Py_BEGIN_ALLOW_THREADS
	names_remove(c, &keys, force, some, result);
	mcpy_leave(c);
	Py_END_ALLOW_THREADS
	list = mcpy_list_ints(result, keys.n);
out:
	PyMem_RawFree(result);
	PyMem_RawFree(some);
	mcpy_keys_done(&keys);
	return list;
}

/* The keys of @tuple with result 0. */
static PyObject *names_cleared(PyObject *tuple, const int *result)
{
	PyObject *list = PyList_New(0);

	for (Py_ssize_t i = 0; list && i < PyTuple_GET_SIZE(tuple); i++)
		if (result[i] == 0 && PyList_Append(list, PyTuple_GET_ITEM(tuple, i)) < 0)
			Py_CLEAR(list);
	return list;
}

MCPY_METHOD(store_replica_clear, "batch_replica_clear", 1, "keys", "segment_name")
{
	const char *segment = "";
	PyObject *list = NULL;
	struct mcpy_core *c;
	struct mcpy_keys keys;
	int *result;

	if (mcpy_text(a[1], "segment_name", &segment) < 0 || mcpy_keys(a[0], &keys) < 0)
		return NULL;
	result = PyMem_RawMalloc(((size_t)keys.n + 1) * sizeof(*result));
	if (!result) {
		PyErr_NoMemory();
		goto out;
	}
	for (Py_ssize_t i = 0; i < keys.n; i++)
		result[i] = MCPY_INVALID_PARAMS;
	c = mcpy_enter(self);
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		(void)mcs_clear_batch(c->mcs, keys.key, (unsigned)keys.n, segment, result, -1);
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	list = names_cleared(keys.tuple, result);
out:
	PyMem_RawFree(result);
	mcpy_keys_done(&keys);
	return list;
}

static PyObject *names_remove_match(PyObject *self, const char *pattern, bool force)
{
	struct mcpy_core *c = mcpy_enter(self);
	int64_t r = MCPY_INVALID_PARAMS;

	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = mcpy_code(mcs_remove_match(c->mcs, (struct mcs_key){ NULL, 0 }, pattern,
					       force ? MCS_REMOVE_FORCE : 0, -1));
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLongLong(r);
}

MCPY_METHOD(store_remove_regex, "remove_by_regex", 1, "regex_pattern", "force")
{
	const char *pattern;
	Py_ssize_t len;
	bool force;

	if (mcpy_bool(a[1], false, &force) < 0)
		return NULL;
	if (!PyUnicode_Check(a[0]))
		return PyErr_Format(PyExc_TypeError, "regex_pattern must be str, not %.100s",
				    Py_TYPE(a[0])->tp_name);
	pattern = PyUnicode_AsUTF8AndSize(a[0], &len);
	if (!pattern)
		return NULL;
	/* mcs.h would read only the part before the NUL, which matches other keys. */
	if (strlen(pattern) != (size_t)len)
		return PyLong_FromLong(MCPY_INVALID_PARAMS);
	return names_remove_match(self, pattern, force);
}

MCPY_METHOD(store_remove_all, "remove_all", 0, "force")
{
	bool force;

	if (mcpy_bool(a[0], false, &force) < 0)
		return NULL;
	return names_remove_match(self, NULL, force);
}

PyMethodDef mcpy_name_methods[] = {
	{ "is_exist", MCPY_FAST(store_is_exist),
	  "is_exist(key: str, options: ExistOptions = None) -> int\n\n"
	  "1: the object exists, and is protected for the master's lease time; "
	  "0: it does not exist,\nor the master is not reachable; negative: another error." },
	{ "batch_is_exist", MCPY_FAST(store_batch_is_exist),
	  "batch_is_exist(keys: list, options: ExistOptions = None) -> list[int]\n\n"
	  "As is_exist(), one result for each key, in one "
	  "request; negative also if the master is not reachable." },
	{ "get_size", MCPY_FAST(store_get_size),
	  "get_size(key: str) -> int\n\nThe object's size in bytes, -704 for a miss, or another negative error code." },
	{ "_stat", MCPY_FAST(store_stat),
	  "_stat(key) -> (size, generation, mtime_ms, crc32c, replicas) or a negative code." },
	{ "remove", MCPY_FAST(store_remove),
	  "remove(key: str, force: bool = False) -> int\n\n0, -704 for a miss, -706 while a lease "
	  "(of a read or is_exist) protects the object and force is false." },
	{ "batch_remove", MCPY_FAST(store_batch_remove),
	  "batch_remove(keys: list, force: bool = False) -> list[int]\n\nAs remove(), one result for each "
	  "key." },
	{ "batch_replica_clear", MCPY_FAST(store_replica_clear),
	  "batch_replica_clear(keys: list, segment_name: str = '') -> list\n\n"
	  "Free the copies in the segment of that name, or all copies.  An object is removed with its last copy.\n"
	  "Returns the keys of which a copy was freed: no lease protected the object, and it had one there." },
	{ "remove_by_regex", MCPY_FAST(store_remove_regex),
	  "remove_by_regex(regex_pattern: str, force: bool = False) -> int\n\n"
	  "Remove all keys that match the pattern anywhere (PCRE2; \\0 for a NUL), leased ones only with force.\n"
	  "Number of keys removed, or a negative error code; -600 also for a pattern that contains NUL." },
	{ "remove_all", MCPY_FAST(store_remove_all),
	  "remove_all(force: bool = False) -> int\n\nRemove all keys, leased ones only with force.  "
	  "Number of keys removed, or a negative error code." },
	{ NULL, NULL, 0, NULL }
};
