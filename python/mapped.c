/* SPDX-License-Identifier: Apache-2.0
 * mapped.c - addresses come from callers as numbers, and what is wrong or freed shall be an error rather
 * than a signal. */
#include "python/mcpy.h"

#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define MADV_POPULATE_WRITE_ 23

/* Spans with more of a hole than this are asked about piece by piece. */
#define SPAN_FACTOR 16

/* MS_ASYNC does nothing to the pages, but fails where nothing is mapped. */
static bool span_mapped(uint64_t from, uint64_t end)
{
	return msync((void *)(uintptr_t)from, end - from, MS_ASYNC) == 0;
}

uint64_t mcpy_mapped(uint64_t at, uint64_t size)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = at & ~(page - 1), end, good, step;

	if (!size)
		return 0;
	/* the last page of the address space is nobody's */
	if (at + size < at || at + size > UINT64_MAX - page)
		size = UINT64_MAX - 2 * page > at ? UINT64_MAX - 2 * page - at : 0;
	end = (at + size + page - 1) & ~(page - 1);
	if (!size || !span_mapped(from, from + page))
		return 0;
	if (span_mapped(from, end))
		return size;
	/* [from, good) is mapped, [from, end) is not */
	for (good = from + page; end - good > page; ) {
		step = good + (((end - good) / 2) & ~(page - 1));
		if (step == good)
			break;
		if (span_mapped(good, step))
			good = step;
		else
			end = step;
	}
	return good - at;
}

/* What the kernel's list of mappings says, which takes time. */
static bool listed_writable(uint64_t at)
{
	unsigned long long first, end;
	bool writable = true;
	char line[512], w;
	FILE *f = fopen("/proc/self/maps", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%llx-%llx %*c%c", &first, &end, &w) == 3 && first <= at && at < end) {
			writable = w == 'w';
			break;
		}
	if (f)
		fclose(f);
	return writable;
}

/* Populating a page that is there takes no time, and fails where writing would be a signal; it also fails for
 * memory of devices, and in kernels before 5.14. */
static bool page_writable(uint64_t at)
{
	static atomic_int known;	/* 1: the kernel has it, 2: it has not */
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	int here;

	if (!known)
		known = madvise((void *)((uintptr_t)&here & ~(page - 1)), page, MADV_POPULATE_WRITE_) == 0 ? 1 : 2;
	return known == 2 || madvise((void *)(uintptr_t)(at & ~(page - 1)), page, MADV_POPULATE_WRITE_) == 0 ||
	       listed_writable(at);
}

bool mcpy_all_writable(const struct iovec *iov, Py_ssize_t n)
{
	uint64_t from = UINT64_MAX, end = 0, at;

	if (!mcpy_all_mapped(iov, n))
		return false;
	for (Py_ssize_t i = 0; i < n; i++) {
		at = (uint64_t)(uintptr_t)iov[i].iov_base;
		if (!iov[i].iov_len)
			continue;
		from = at < from ? at : from;
		end = at + iov[i].iov_len > end ? at + iov[i].iov_len : end;
	}
	return !end || (page_writable(from) && page_writable(end - 1));
}

bool mcpy_all_mapped(const struct iovec *iov, Py_ssize_t n)
{
	uint64_t from = UINT64_MAX, end = 0, total = 0, at, page = (uint64_t)sysconf(_SC_PAGESIZE);

	for (Py_ssize_t i = 0; i < n; i++) {
		at = (uint64_t)(uintptr_t)iov[i].iov_base;
		if (!iov[i].iov_len)
			continue;
		if (at + iov[i].iov_len < at || at + iov[i].iov_len > UINT64_MAX - page ||
		    iov[i].iov_len > UINT64_MAX / SPAN_FACTOR - total)
			return false;
		from = at < from ? at : from;
		end = at + iov[i].iov_len > end ? at + iov[i].iov_len : end;
		total += iov[i].iov_len;
	}
	if (!total)
		return true;
	/* Of one buffer, as nearly always: one question for all. */
	if ((end - from) / SPAN_FACTOR <= total &&
	    span_mapped(from & ~(page - 1), (end + page - 1) & ~(page - 1)))
		return true;
	for (Py_ssize_t i = 0; i < n; i++)
		if (mcpy_mapped((uint64_t)(uintptr_t)iov[i].iov_base, iov[i].iov_len) < iov[i].iov_len)
			return false;
	return true;
}

static PyObject *asked(const struct mcpy_sig *sig, bool (*is)(const struct iovec *, Py_ssize_t), PyObject *const *args,
		       Py_ssize_t nargs, PyObject *kwnames)
{
	struct iovec iov;
	uint64_t at, size;
	PyObject *a[2];

	if (mcpy_args(sig, args, nargs, kwnames, a) < 0 || mcpy_u64(a[0], "ptr", &at) < 0 ||
	    mcpy_u64(a[1], "size", &size) < 0)
		return NULL;
	iov = (struct iovec){ (void *)(uintptr_t)at, size };
	return PyBool_FromLong(is(&iov, 1));
}

PyObject *mcpy_mapped_method(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct mcpy_sig sig = { "mapped", 2, { "ptr", "size" } };

	return asked(&sig, mcpy_all_mapped, args, nargs, kwnames);
}

PyObject *mcpy_writable_method(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
	static const struct mcpy_sig sig = { "writable", 2, { "ptr", "size" } };

	return asked(&sig, mcpy_all_writable, args, nargs, kwnames);
}
