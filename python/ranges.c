/* SPDX-License-Identifier: Apache-2.0
 * ranges.c - ranged reads: get_into_ranges(), and the same with the places of objects from a snapshot. */
#include "python/mcpy.h"

#include <stdlib.h>

/* The four nested lists, by buffer. */
enum { KEYS, DST, SRC, SIZE, LISTS };
static const char *const list_names[LISTS] = { "all_keys", "all_dst_offsets", "all_src_offsets", "all_sizes" };

struct ranges {
	/* fragments to read, and for each where its result belongs: rows[i][at[i]] */
	struct mcs_get_item *item;
	struct iovec *iov;
	PyObject **row;			/* borrowed from the result */
	Py_ssize_t *at;
	Py_ssize_t n, cap;
	PyObject *held;			/* list of the tuples of keys */
};

struct snapshot {
	PyObject_HEAD
	uint64_t serial;		/* serial number of its store */
	mcs_places_t *places;
};

static void ranges_done(struct ranges *r)
{
	PyMem_RawFree(r->item);
	PyMem_RawFree(r->iov);
	PyMem_RawFree(r->row);
	PyMem_RawFree(r->at);
	Py_CLEAR(r->held);
}

static int ranges_grow(struct ranges *r)
{
	Py_ssize_t cap = r->cap ? 2 * r->cap : 64;
	struct mcs_get_item *item;
	struct iovec *iov;
	PyObject **row;
	Py_ssize_t *at;

	if (r->n < r->cap)
		return 0;
	if (cap > INT32_MAX) {
		PyErr_SetString(PyExc_ValueError, "too many fragments for one call");
		return -1;
	}
	item = PyMem_RawRealloc(r->item, (size_t)cap * sizeof(*item));
	r->item = item ? item : r->item;
	iov = PyMem_RawRealloc(r->iov, (size_t)cap * sizeof(*iov));
	r->iov = iov ? iov : r->iov;
	row = PyMem_RawRealloc(r->row, (size_t)cap * sizeof(PyObject *));
	r->row = row ? row : r->row;
	at = PyMem_RawRealloc(r->at, (size_t)cap * sizeof(*at));
	r->at = at ? at : r->at;
	if (!item || !iov || !row || !at) {
		PyErr_NoMemory();
		return -1;
	}
	r->cap = cap;
	return 0;
}

/* Append @value to @list and take its reference, also when it fails. */
static int ranges_append(PyObject *list, PyObject *value)
{
	int r = value ? PyList_Append(list, value) : -1;

	Py_XDECREF(value);
	return r;
}

static int ranges_fill(PyObject *row, Py_ssize_t n)
{
	int r = 0;

	while (n-- > 0 && r == 0)
		r = ranges_append(row, PyLong_FromLong(MCPY_INVALID_PARAMS));
	return r;
}

/* The tuple lists[@i] of a tuple of lists; None where there is none. */
static PyObject *ranges_inner(PyObject *lists, Py_ssize_t i, const char *arg)
{
	return lists != Py_None && i < PyTuple_GET_SIZE(lists) ? mcpy_tuple(PyTuple_GET_ITEM(lists, i), arg) :
		Py_NewRef(Py_None);
}

static bool ranges_equal(PyObject *const *t, int first)
{
	for (int i = first; i < LISTS; i++)
		if (t[i] == Py_None || PyTuple_GET_SIZE(t[i]) != PyTuple_GET_SIZE(t[first]))
			return false;
	return true;
}

/* The fragments of one key: @t has tuples of numbers.  Adds those that can be read, and -600 for the others to @row. */
static int ranges_of_key(struct ranges *r, struct mcs_key key, uint64_t base, uint64_t end, PyObject *const *t,
			 PyObject *row)
{
	uint64_t v[LISTS];
	bool good;

	for (Py_ssize_t f = 0; f < PyTuple_GET_SIZE(t[DST]); f++) {
		for (int i = DST; i < LISTS; i++)
			if (mcpy_u64(PyTuple_GET_ITEM(t[i], f), list_names[i], &v[i]) < 0)
				return -1;
		good = base && base + v[DST] >= base && base + v[DST] + v[SIZE] >= base + v[DST] &&
		       (!end || base + v[DST] + v[SIZE] <= end);
		if (ranges_append(row, PyLong_FromLong(MCPY_INVALID_PARAMS)) < 0 || (good && ranges_grow(r) < 0))
			return -1;
		if (!good)
			continue;
		r->iov[r->n] = (struct iovec){ (void *)(uintptr_t)(base + v[DST]), v[SIZE] };
		r->item[r->n] = (struct mcs_get_item){ .key = key, .offset = v[SRC], .iovcnt = 1 };
		r->row[r->n] = row;
		r->at[r->n++] = f;
	}
	return 0;
}

/* The keys of one buffer; @t has tuples of lists, @good: their lengths are equal.  As in upstream, a key without a list
 * of destinations gets one result. */
static int ranges_of_buffer(struct ranges *r, uint64_t base, uint64_t end, PyObject *const *t, bool good,
			    PyObject *rows)
{
	Py_ssize_t n = t[KEYS] == Py_None ? 1 : PyTuple_GET_SIZE(t[KEYS]);
	PyObject *list[LISTS] = { NULL }, *row;
	struct mcs_key key;
	int ret = 0;

	for (Py_ssize_t k = 0; k < n && ret == 0; k++) {
		row = PyList_New(0);
		ret = ranges_append(rows, Py_XNewRef(row));
		for (int i = DST; i < LISTS && ret == 0; i++) {
			list[i] = ranges_inner(t[i], k, list_names[i]);
			ret = list[i] ? 0 : -1;
		}
		if (ret == 0 && t[KEYS] != Py_None)
			ret = mcpy_key(PyTuple_GET_ITEM(t[KEYS], k), &key);
		if (ret == 0 && good && ranges_equal(list, DST))
			ret = ranges_of_key(r, key, base, end, list, row);
		else if (ret == 0)
			ret = ranges_fill(row, list[DST] == Py_None ? 1 : PyTuple_GET_SIZE(list[DST]));
		Py_XDECREF(row);
		for (int i = DST; i < LISTS; i++)
			Py_CLEAR(list[i]);
	}
	return ret;
}

/* Parse all lists; @ret is the result, with -600 for each fragment. */
static int ranges_parse(struct ranges *r, const struct mcpy_store *store, const struct mcpy_numbers *base,
			PyObject *const *a, PyObject *ret)
{
	PyObject *t[LISTS] = { NULL }, *inner[LISTS] = { NULL }, *rows;
	bool good = true;
	int status = 0;

	for (int i = 0; i < LISTS && status == 0; i++) {
		t[i] = mcpy_tuple(a[i], list_names[i]);
		status = t[i] ? 0 : -1;
		good = good && t[i] && PyTuple_GET_SIZE(t[i]) == base->n;
	}
	for (Py_ssize_t b = 0; b < base->n && status == 0; b++) {
		rows = PyList_New(0);
		status = ranges_append(ret, Py_XNewRef(rows));
		for (int i = 0; i < LISTS && status == 0; i++) {
			inner[i] = ranges_inner(t[i], b, list_names[i]);
			status = inner[i] ? PyList_Append(r->held, inner[i]) : -1;
		}
		if (status == 0)
			status = ranges_of_buffer(r, base->v[b], mcpy_registered_end(store, base->v[b]), inner,
						  good && ranges_equal(inner, KEYS), rows);
		Py_XDECREF(rows);
		for (int i = 0; i < LISTS; i++)
			Py_CLEAR(inner[i]);
	}
	for (int i = 0; i < LISTS; i++)
		Py_XDECREF(t[i]);
	return status;
}

/* Drop the fragments whose memory cannot be written. */
static void ranges_check(struct ranges *r)
{
	Py_ssize_t n = 0;

	if (mcpy_all_reach(r->iov, r->n, MCPY_WRITE))
		return;
	for (Py_ssize_t i = 0; i < r->n; i++) {
		if (!mcpy_all_reach(&r->iov[i], 1, MCPY_WRITE))
			continue;
		r->iov[n] = r->iov[i];
		r->item[n] = r->item[i];
		r->row[n] = r->row[i];
		r->at[n++] = r->at[i];
	}
	r->n = n;
}

/* A fragment of no bytes: is its offset inside the object? */
static int64_t range_of_nothing(struct mcpy_core *c, const struct mcs_get_item *item)
{
	struct mcs_info info;
	int r = mcs_stat(c->mcs, item->key, &info, -1);

	return r < 0 ? r : item->offset > info.size ? -MCS_EPARAM : 0;
}

/* Without the GIL.  Each item gets upstream's code as its result. */
static void ranges_run(struct ranges *r, struct mcpy_core *c, mcs_places_t *places)
{
	for (Py_ssize_t i = 0; i < r->n; i++) {
		r->item[i].iov = &r->iov[i];
		r->item[i].result = MCPY_INVALID_PARAMS;
	}
	if (!c || !r->n)
		return;
	if (places)
		(void)mcs_places_read(c->mcs, places, r->item, (unsigned)r->n, -1);
	else
		(void)mcs_get_batch(c->mcs, r->item, (unsigned)r->n, -1);
	for (Py_ssize_t i = 0; i < r->n; i++) {
		struct mcs_get_item *item = &r->item[i];

		if (!r->iov[i].iov_len && item->result >= 0)
			item->result = range_of_nothing(c, item);
		item->result = mcpy_get_code(item->result, item->key);
		/* A range that is only partly inside the object is an error. */
		if (item->result >= 0 && (uint64_t)item->result != r->iov[i].iov_len)
			item->result = MCPY_INVALID_PARAMS;
	}
}

/* @a: addresses, and the four lists. */
static PyObject *ranges_read(PyObject *self, struct mcpy_core *c, mcs_places_t *places, PyObject *const *a)
{
	struct ranges r = { .held = PyList_New(0) };
	PyObject *ret = PyList_New(0), *value;
	struct mcpy_numbers base = { 0 };
	int status = -1;

	if (r.held && ret && mcpy_numbers(a[0], "buffer_ptrs", &base) == 0)
		status = ranges_parse(&r, (struct mcpy_store *)self, &base, a + 1, ret);
	if (status == 0) {
		Py_BEGIN_ALLOW_THREADS
		ranges_check(&r);
		ranges_run(&r, c, places);
		Py_END_ALLOW_THREADS
	}
	for (Py_ssize_t i = 0; i < r.n && status == 0; i++) {
		value = PyLong_FromLongLong(r.item[i].result);
		status = value ? PyList_SetItem(r.row[i], r.at[i], value) : -1;
	}
	if (status < 0)
		Py_CLEAR(ret);
	PyMem_RawFree(base.v);
	ranges_done(&r);
	return ret;
}

static void ranges_leave(struct mcpy_core *c)
{
	if (!c)
		return;
	Py_BEGIN_ALLOW_THREADS
	mcpy_leave(c);
	Py_END_ALLOW_THREADS
}

MCPY_METHOD(store_get_ranges, "get_into_ranges", 5, "buffer_ptrs", "all_keys", "all_dst_offsets", "all_src_offsets",
	    "all_sizes")
{
	struct mcpy_core *c = mcpy_enter(self);
	PyObject *ret = ranges_read(self, c, NULL, a);

	ranges_leave(c);
	return ret;
}

/* ---- snapshots ---- */

MCPY_METHOD(store_prepare, "prepare_get_into_ranges_snapshot", 1, "keys")
{
	PyTypeObject *type = (PyTypeObject *)mcpy_types.snapshot;
	struct snapshot *o = NULL;
	mcs_places_t *places = NULL;
	struct mcpy_core *c;
	struct mcpy_keys keys;
	int r = -MCS_EUNAVAILABLE;

	if (mcpy_keys(a[0], &keys) < 0)
		return NULL;
	c = mcpy_enter(self);
	if (c) {
		Py_BEGIN_ALLOW_THREADS
		r = mcs_places_find(c->mcs, keys.key, (unsigned)keys.n, &places, -1);
		Py_END_ALLOW_THREADS
	}
	mcpy_keys_done(&keys);
	if (r < 0)
		PyErr_Format(PyExc_RuntimeError, "the objects cannot be looked up: %s",
			     c ? mcs_error_detail(r) : "the store is not set up");
	else
		o = (struct snapshot *)type->tp_alloc(type, 0);
	if (o) {
		o->serial = c->serial;
		o->places = places;
	} else {
		mcs_places_free(places);
	}
	ranges_leave(c);
	return (PyObject *)o;
}

MCPY_METHOD(store_from_snapshot, "get_into_ranges_from_snapshot", 6, "snapshot", "buffer_ptrs", "all_keys",
	    "all_dst_offsets", "all_src_offsets", "all_sizes")
{
	struct snapshot *o = (struct snapshot *)a[0];
	PyObject *ret = NULL;
	struct mcpy_core *c;

	if (a[0] != Py_None && !PyObject_TypeCheck(a[0], (PyTypeObject *)mcpy_types.snapshot))
		return PyErr_Format(PyExc_TypeError, "snapshot must be a RangedReadSnapshot, not %.100s",
				    Py_TYPE(a[0])->tp_name);
	c = mcpy_enter(self);
	if (a[0] == Py_None || !c || o->serial != c->serial)
		PyErr_SetString(PyExc_ValueError, "Ranged-read snapshot belongs to another Store");
	else
		ret = ranges_read(self, c, o->places, a + 1);
	ranges_leave(c);
	return ret;
}

static void snapshot_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	mcs_places_free(((struct snapshot *)self)->places);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyType_Slot slots[] = {
	{ Py_tp_dealloc, snapshot_dealloc },
	{ Py_tp_doc, (char *)"The places of objects, for get_into_ranges_from_snapshot()." },
	{ 0, NULL }
};

PyType_Spec mcpy_snapshot_spec = {
	.name = "mooncake._store.RangedReadSnapshot",
	.basicsize = sizeof(struct snapshot),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

#define LISTS_OF "buffer_ptrs: list[int], all_keys: list[list[str]], all_dst_offsets: list[list[list[int]]], " \
	"all_src_offsets: list[list[list[int]]], all_sizes: list[list[list[int]]]"

PyMethodDef mcpy_range_methods[] = {
	{ "get_into_ranges", MCPY_FAST(store_get_ranges),
	  "get_into_ranges(" LISTS_OF ") -> list[list[list[int]]]\n\n"
	  "Read fragments in one request: all_sizes[b][k][f] bytes of key all_keys[b][k] from offset "
	  "all_src_offsets[b][k][f]\nto address buffer_ptrs[b] + all_dst_offsets[b][k][f].  The result has the shape "
	  "of all_dst_offsets: bytes read, -704\nfor a miss, -600 for a fragment that is not inside the object, or not "
	  "inside the registered memory that has\nbuffer_ptrs[b].  Lists of unequal length: -600 for their fragments, "
	  "the others are read.  TypeError for negative\nnumbers, before anything is read." },
	{ "prepare_get_into_ranges_snapshot", MCPY_FAST(store_prepare),
	  "prepare_get_into_ranges_snapshot(keys: list[str]) -> RangedReadSnapshot\n\n"
	  "Look up and lease objects for get_into_ranges_from_snapshot().  RuntimeError if the master does not "
	  "answer." },
	{ "get_into_ranges_from_snapshot", MCPY_FAST(store_from_snapshot),
	  "get_into_ranges_from_snapshot(snapshot: RangedReadSnapshot, " LISTS_OF ") -> list[list[list[int]]]\n\n"
	  "As get_into_ranges() without a request to the master: the versions of the snapshot are read.  In the "
	  "second half\nof their lease, a call looks them up again first.  -600 also for keys that are not in the "
	  "snapshot.  ValueError for a\nsnapshot of another store." },
	{ NULL, NULL, 0, NULL }
};
