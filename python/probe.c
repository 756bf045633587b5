/* SPDX-License-Identifier: Apache-2.0
 * probe.c - existence without leases: probe_key(). */
#include "python/mcpy.h"

#include <string.h>

#define UNKNOWN_POLICY "Unknown batch_probe_key policy: %s (none, LastHitOnly)"

static int64_t probe_all(struct mcpy_core *c, const struct mcs_key *keys, size_t n, uint8_t *present)
{
	return n ? mcpy_code(mcs_probe(c->mcs, keys, (unsigned)n, present, -1)) : 0;
}

/* Lease the last group of @size keys that are all present.  One may be evicted meanwhile: then the group before it. */
static int64_t probe_last_hit(struct mcpy_core *c, const struct mcs_key *keys, size_t n, size_t size, uint8_t *present)
{
	int64_t r = probe_all(c, keys, n, present);

	for (size_t at = n; r >= 0 && at >= size; at -= size) {
		uint8_t *group = present + at - size;

		if (memchr(group, 0, size))
			continue;
		r = mcpy_code(mcs_exist(c->mcs, keys + at - size, (unsigned)size, group, -1));
		if (r == (int64_t)size)
			break;
	}
	return r;
}

MCPY_METHOD(store_probe_key, "probe_key", 1, "key")
{
	int64_t r = MCPY_INVALID_PARAMS;
	struct mcpy_core *c;
	struct mcs_key key;
	uint8_t present;

	if (mcpy_key(a[0], &key) < 0)
		return NULL;
	c = mcpy_enter(self);
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = probe_all(c, &key, 1, &present);
		mcpy_leave(c);
		Py_END_ALLOW_THREADS
	}
	return PyLong_FromLongLong(r);
}

MCPY_METHOD(store_batch_probe_key, "batch_probe_key", 1, "keys", "policy", "candidate_size")
{
	const char *policy = "none";
	int64_t r = MCPY_INVALID_PARAMS;
	uint64_t size = 1;
	struct mcpy_core *c = NULL;
	struct mcpy_keys keys;
	uint8_t *present;
	PyObject *list;
	bool last;

	if (mcpy_text(a[1], "policy", &policy) < 0 || mcpy_u64(a[2], "candidate_size", &size) < 0 ||
	    mcpy_keys(a[0], &keys) < 0)
		return NULL;
	last = !strcmp(policy, "LastHitOnly");
	if (!last && strcmp(policy, "none")) {
		mcpy_keys_done(&keys);
		return PyErr_Format(PyExc_ValueError, UNKNOWN_POLICY, policy);
	}
	present = PyMem_RawCalloc((size_t)keys.n + 1, 1);
	/* The keys are whole groups. */
	if (present && !(last && (!size || (uint64_t)keys.n % size)))
		c = mcpy_enter(self);
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = last ? probe_last_hit(c, keys.key, (size_t)keys.n, size, present) :
			probe_all(c, keys.key, (size_t)keys.n, present);
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

PyMethodDef mcpy_probe_methods[] = {
	{ "probe_key", MCPY_FAST(store_probe_key),
	  "probe_key(key: str) -> int\n\n1: the object exists now; 0: it does not; negative: an error.  Unlike "
	  "is_exist(), neither protects the object nor\ncounts as a use of it." },
	{ "batch_probe_key", MCPY_FAST(store_batch_probe_key),
	  "batch_probe_key(keys: list, policy: str = \"none\", candidate_size: int = 1) -> list[int]\n\n"
	  "As probe_key(), one result for each key.  policy \"LastHitOnly\": of the groups of candidate_size "
	  "keys, the last one that\nexists as a whole is protected for the master's lease time; -600 for each key "
	  "unless they are whole groups." },
	{ NULL, NULL, 0, NULL }
};
