/* SPDX-License-Identifier: Apache-2.0
 * pages.c - transfers whose addresses are in arrays (PEP 3118), and transfers of pages of several fields. */
#include "python/engine.h"

#include <string.h>

/* Requests that one batch of pages has at most, because a batch of the engine may have 2^24. */
#define BATCH_MAX (1u << 20)

/* The kind of integer that the elements are: 'Q', 'q', or 0. */
static char array_kind(const Py_buffer *b)
{
	const char *f = b->format ? b->format : "B";

	/* Native and little-endian are the same on the supported machines. */
	if (*f == '@' || *f == '=' || *f == '<')
		f++;
	if (b->itemsize != 8 || !*f || f[1])
		return 0;
	return strchr("QLN", *f) ? 'Q' : strchr("qln", *f) ? 'q' : 0;
}

static int array_get(PyObject *obj, const char *arg, Py_buffer *ret, char *ret_kind)
{
	if (!PyObject_CheckBuffer(obj)) {
		PyErr_Format(PyExc_TypeError, "%s must be an array of 8-byte integers, not %.100s", arg,
			     Py_TYPE(obj)->tp_name);
		return -1;
	}
	if (PyObject_GetBuffer(obj, ret, PyBUF_STRIDES | PyBUF_FORMAT) < 0)
		return -1;
	*ret_kind = array_kind(ret);
	if (*ret_kind)
		return 0;
	PyErr_Format(PyExc_TypeError, "%s must hold 8-byte integers (uint64/int64)", arg);
	PyBuffer_Release(ret);
	return -1;
}

int mcpy_array_numbers(PyObject *obj, const char *arg, struct mcpy_numbers *ret)
{
	Py_buffer b;
	uint64_t *v = NULL;
	char kind;

	if (array_get(obj, arg, &b, &kind) < 0)
		return -1;
	if (b.ndim != 1)
		PyErr_Format(PyExc_TypeError, "%s must be a one-dimensional array", arg);
	else if (!PyBuffer_IsContiguous(&b, 'C'))
		PyErr_Format(PyExc_TypeError, "%s must be contiguous", arg);
	else if (!(v = PyMem_RawMalloc((size_t)b.len + 1)))
		PyErr_NoMemory();
	if (v) {
		memcpy(v, b.buf, (size_t)b.len);
		ret->n = b.len / 8;
		for (Py_ssize_t i = 0; i < ret->n && kind == 'q'; i++) {
			if ((int64_t)v[i] >= 0)
				continue;
			PyErr_Format(PyExc_ValueError, "%s must not contain negative values", arg);
			PyMem_RawFree(v);
			v = NULL;
			break;
		}
	}
	PyBuffer_Release(&b);
	ret->v = v;
	return v ? 0 : -1;
}

/* ---- pages --------------------------------------------------------------------------------------- */

struct field {
	uint64_t src, src_stride, dst, dst_stride, length;
};

struct pages {
	struct mcpy_numbers src, dst;
	struct field *field;
	size_t n_fields;
};

static int pages_fields(PyObject *obj, struct pages *p)
{
	Py_buffer b;
	char kind;

	_Static_assert(sizeof(struct field) == 5 * 8, "a row of the array");
	if (array_get(obj, "fields", &b, &kind) < 0)
		return -1;
	if (b.ndim != 2 || b.shape[1] != 5)
		PyErr_SetString(PyExc_TypeError, "fields must be a [rows, 5] array");
	else if (!PyBuffer_IsContiguous(&b, 'C'))
		PyErr_SetString(PyExc_TypeError, "fields must be C-contiguous");
	else if (!(p->field = PyMem_RawMalloc((size_t)b.len + 1)))
		PyErr_NoMemory();
	if (p->field) {
		memcpy(p->field, b.buf, (size_t)b.len);
		p->n_fields = (size_t)b.shape[0];
	}
	PyBuffer_Release(&b);
	for (size_t i = 0; i < p->n_fields; i++) {
		const struct field *f = &p->field[i];

		if (f->length && !(kind == 'q' && ((int64_t)f->length < 0 || (int64_t)f->src_stride < 0 ||
						   (int64_t)f->dst_stride < 0)))
			continue;
		PyErr_SetString(PyExc_ValueError, "fields rows need a positive length and non-negative strides");
		return -1;
	}
	return p->field ? 0 : -1;
}

static bool page_address(uint64_t base, uint64_t page, uint64_t stride, uint64_t length, uint64_t *ret)
{
	uint64_t off, end;

	if (__builtin_mul_overflow(page, stride, &off) || __builtin_add_overflow(base, off, ret))
		return false;
	return !__builtin_add_overflow(*ret, length, &end);
}

static int pages_parse(PyObject *src, PyObject *dst, PyObject *fields, struct pages *p)
{
	uint64_t at;

	if (mcpy_array_numbers(src, "src_pages", &p->src) < 0 || mcpy_array_numbers(dst, "dst_pages", &p->dst) < 0)
		return -1;
	if (p->src.n != p->dst.n) {
		PyErr_SetString(PyExc_ValueError, "src_pages and dst_pages must have the same length");
		return -1;
	}
	if (pages_fields(fields, p) < 0)
		return -1;
	for (size_t k = 0; k < p->n_fields; k++) {
		const struct field *f = &p->field[k];

		for (Py_ssize_t i = 0; i < p->src.n; i++) {
			if (page_address(f->src, p->src.v[i], f->src_stride, f->length, &at) &&
			    page_address(f->dst, p->dst.v[i], f->dst_stride, f->length, &at))
				continue;
			PyErr_Format(PyExc_ValueError, "fields[%zu]: an address of the pages at index %zd is "
				     "beyond 2**64", k, i);
			return -1;
		}
	}
	return 0;
}

/* Requests [@first, @first + @n) of all pages of all fields. */
static void pages_fill(const struct pages *p, size_t first, size_t n, int opcode, struct transfer_request *req)
{
	size_t n_pages = (size_t)p->src.n;

	for (size_t i = 0; i < n; i++) {
		const struct field *f = &p->field[(first + i) / n_pages];
		size_t page = (first + i) % n_pages;

		req[i] = (struct transfer_request){
			.opcode = opcode,
			.source = (void *)(uintptr_t)(f->src + p->src.v[page] * f->src_stride),
			.target_offset = f->dst + p->dst.v[page] * f->dst_stride,
			.length = f->length,
		};
	}
}

/* Transfer in batches of at most @max.  Needs no GIL. */
static int pages_run(struct mce_te *te, const struct pages *p, size_t max, int opcode, uint64_t ms,
		     struct mcpy_transfer *t)
{
	size_t total = (size_t)p->src.n * p->n_fields;
	int status = STATUS_COMPLETED;

	max = max && max < BATCH_MAX ? max : BATCH_MAX;
	t->req = PyMem_RawCalloc((total < max ? total : max) + 1, sizeof(*t->req));
	if (!t->req)
		return STATUS_FAILED;
	for (size_t at = 0; at < total && status == STATUS_COMPLETED; at += t->n) {
		t->n = total - at < max ? total - at : max;
		pages_fill(p, at, t->n, opcode, t->req);
		mcpy_transfer_deadline(t, ms);
		status = mcpy_transfer_reaches(t->req, t->n) ? mcpy_transfer_run(te, t) : STATUS_FAILED;
	}
	PyMem_RawFree(t->req);
	return status;
}

MCPY_METHOD(pages_transfer, "transfer", 9, "target", "src_pages", "dst_pages", "fields", "max_batch_size", "opcode",
	    "timeout_ms", "transport_hint", "nic_hint")
{
	struct mcpy_transfer t = { .opts = { .size = sizeof(t.opts) } };
	struct mce_te *te = mcpy_engine_te(self);
	struct pages p = { .n_fields = 0 };
	int status = STATUS_FAILED, r = -1;
	uint64_t max, opcode, ms;

	if (mcpy_text(a[0], "target_hostname", &t.target) == 0 && mcpy_u64(a[4], "max_batch_size", &max) == 0 &&
	    mcpy_u64(a[5], "opcode", &opcode) == 0 && mcpy_u64(a[6], "timeout_ms", &ms) == 0 &&
	    mcpy_text(a[7], "transport_hint", &t.opts.transport) == 0 &&
	    mcpy_text(a[8], "nic_hint", &t.opts.nic) == 0)
		r = pages_parse(a[1], a[2], a[3], &p);
	if (r == 0 && te) {
		Py_BEGIN_ALLOW_THREADS
		status = pages_run(te, &p, max, opcode ? OPCODE_WRITE : OPCODE_READ, ms, &t);
		Py_END_ALLOW_THREADS
	}
	PyMem_RawFree(p.src.v);
	PyMem_RawFree(p.dst.v);
	PyMem_RawFree(p.field);
	return r < 0 ? NULL : PyLong_FromLong(status == STATUS_COMPLETED ? 0 : MCPY_FAILED);
}

PyMethodDef mcpy_pages_methods[] = {
	{ "_transfer_pages", MCPY_FAST(pages_transfer), "Transfer pages and wait; 0 or -1." },
	{ NULL, NULL, 0, NULL }
};
