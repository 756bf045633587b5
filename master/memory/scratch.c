/* SPDX-License-Identifier: Apache-2.0
 * scratch.c - memory of a thread, freed when the thread ends. */
#include <config.h>

#include "master/memory/scratch.h"

#include <pthread.h>
#include <stdlib.h>

#include "master/ops/ops.h"

struct scratch {
	void *mem[MCM_SCRATCH_USES];
	size_t cap[MCM_SCRATCH_USES];
	struct mcm_list_page page;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;

static void scratch_free(void *p)
{
	struct scratch *s = p;
	unsigned i;

	for (i = 0; i < MCM_SCRATCH_USES; i++)
		free(s->mem[i]);
	mcm_names_page_done(&s->page.names);
	free(s);
}

static void scratch_make_key(void)
{
	pthread_key_create(&key, scratch_free);
}

static struct scratch *scratch_of_thread(void)
{
	struct scratch *s;

	pthread_once(&once, scratch_make_key);
	s = pthread_getspecific(key);
	if (!s) {
		s = calloc(1, sizeof(*s));
		if (s && pthread_setspecific(key, s)) {
			free(s);
			s = NULL;
		}
	}
	return s;
}

void *mcm_scratch(enum mcm_scratch_use use, size_t count, size_t size)
{
	struct scratch *s = scratch_of_thread();
	size_t want;
	void *p;

	if (!s || __builtin_mul_overflow(count ? count : 1, size, &want))
		return NULL;
	if (s->cap[use] < want) {
		want += want / 2;
		p = realloc(s->mem[use], want);
		if (!p)
			return NULL;
		s->mem[use] = p;
		s->cap[use] = want;
	}
	return s->mem[use];
}

struct mcm_list_page *mcm_scratch_page(void)
{
	struct scratch *s = scratch_of_thread();

	return s ? &s->page : NULL;
}
