/* SPDX-License-Identifier: Apache-2.0
 * test_master_journal_fixture.h - masters with a journal that are killed and restarted, their
 * files, and their state as text. */
#ifndef TEST_MASTER_JOURNAL_FIXTURE_H
#define TEST_MASTER_JOURNAL_FIXTURE_H

#include "test_master_fixture.h"

/* The journal's directory; the copy of it that jx_copy_dir() makes; options for jx_up(), which uses
 * only journal_sync and enable_multi_tenants. */
extern char jx_dir[], jx_copy[64];
extern struct mcm_conf jx_want;

int jx_setup(void **state);
int jx_teardown(void **state);

/* Copy the present files of jx_dir to jx_copy. */
void jx_copy_dir(void);
void jx_copy_file(const char *from, const char *to);
/* The path of the file in @where that has @part in its name, NULL if there is none; valid until the
 * next call. */
const char *jx_file(const char *where, const char *part);

/* Start the first master, like fx_up(). */
void jx_up(struct fixture *fx, unsigned n, uint64_t size);
/* Wait for the journal, as each reply does. */
void jx_answer(struct fixture *fx);
/* End the master as a kill does: records that were not written are lost. */
void jx_killed(struct fixture *fx);
/* Start the next master; client 1 has a session, but no mounted segments. jx_again() waits for the
 * journal and kills the old master before. */
void jx_started(struct fixture *fx);
void jx_again(struct fixture *fx);
/* Start a master in the copied directory; its start must return @want_r. */
struct mcm *jx_open_copy(struct fixture *fx, int want_r);
/* Mount segments 1 to @n again, as jx_up() did. */
void jx_attach(struct fixture *fx, unsigned n, uint64_t size);

/* The index: one line per object, sorted. */
struct jx_dump {
	struct mcm *m;
	char **line;
	size_t n, cap;
};
struct jx_dump jx_dump(struct mcm *m);
void jx_dump_free(struct jx_dump *d);
int jx_by_text(const void *a, const void *b);
void jx_same(struct jx_dump *a, struct jx_dump *b);
/* Fail if a line of @b is not one of @a's. */
void jx_part_of(struct jx_dump *b, struct jx_dump *a);

#endif
