/* SPDX-License-Identifier: Apache-2.0
 * test_master_journal_fixture.h - masters with a journal that are killed and started again, the files
 * that they leave, and their state as text. */
#ifndef TEST_MASTER_JOURNAL_FIXTURE_H
#define TEST_MASTER_JOURNAL_FIXTURE_H

#include "test_master_fixture.h"

/* The journal's directory; a copy of it that jx_copy_dir() makes; options to be changed. */
extern char jx_dir[], jx_copy[64];
extern struct mcm_conf jx_want;

int jx_setup(void **state);
int jx_teardown(void **state);

/* The directory as it is now, into another one. */
void jx_copy_dir(void);
void jx_copy_file(const char *from, const char *to);
/* The path of the one file that has @part in its name, NULL when there is none; good until the next. */
const char *jx_file(const char *where, const char *part);

/* A first master, as fx_up(). */
void jx_up(struct fixture *fx, unsigned n, uint64_t size);
/* What leaves before an answer. */
void jx_answer(struct fixture *fx);
/* As if killed: what was not written is lost. */
void jx_killed(struct fixture *fx);
/* The next one; client 1 is there, its segments are not. */
void jx_started(struct fixture *fx);
void jx_again(struct fixture *fx);
/* One in the copied directory: its start ends with @want_r. */
struct mcm *jx_open_copy(struct fixture *fx, int want_r);
/* Segments 1 to @n are back, as jx_up() mounted them. */
void jx_attach(struct fixture *fx, unsigned n, uint64_t size);

/* The index: a line for each object, sorted. */
struct jx_dump {
	struct mcm *m;
	char **line;
	size_t n, cap;
};
struct jx_dump jx_dump(struct mcm *m);
void jx_dump_free(struct jx_dump *d);
int jx_by_text(const void *a, const void *b);
void jx_same(struct jx_dump *a, struct jx_dump *b);
/* Each line of @b is one of @a's. */
void jx_part_of(struct jx_dump *b, struct jx_dump *a);

#endif
