/* SPDX-License-Identifier: Apache-2.0
 * test_master_look.h - all answers of a master as sorted lines of text, to compare two masters.
 *
 * A line is a subject, a tab and the answer.  Subjects of a key, where K is its name, with @ and its tenant's:
 *
 *	index K		all durable properties, then |, then its copies
 *	stat K		the answer to a look-up, or an error; without the copies
 *	copies K	the copies in that answer
 *	exist K		1, 0 or an error
 *	entry DIR K	its entry in the listing of its directory;	list DIR	ok, or an error
 *	all K		its entry in the listing of whole keys;		listall TENANT	ok, or an error
 *
 * Others: segment N (its number), count WHAT, tenant NAME, task ID.
 *
 * A restart changes the time left of leases, and the times of a directory that are not attributes of its marker
 * (names.h, mcm_names_restored()): lines leave these out. */
#ifndef TEST_MASTER_LOOK_H
#define TEST_MASTER_LOOK_H

#include "test_master_fixture.h"

#define LOOK_TENANTS 3u		/* "default" and two others */
extern const char *const look_tenants[LOOK_TENANTS];

struct look_key {
	char *name;
	unsigned tenant;	/* index in look_tenants */
};

struct look {
	char **line;
	size_t n, cap;
};

/* Ask for the @n keys, and for everything that has no key. */
void look_take(struct fixture *fx, const struct look_key *keys, size_t n, bool tenants, struct look *ret);
void look_free(struct look *l);
/* The answer about a subject, which is formatted; NULL: none. */
const char *look_at(const struct look *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A number of an answer: the digits after @name. */
uint64_t look_number(const char *answer, const char *name);
/* "DIR/" of a key, "" for the root; valid until the next call. */
const char *look_dir(const char *key);

#endif
