/* SPDX-License-Identifier: Apache-2.0
 * scratch.c - memory of a thread, freed when the thread ends. */
#include <config.h>

#include "master/memory/scratch.h"

#include "common/sys/world.h"

#include <pthread.h>
#include <stdlib.h>

struct scratch {
	void *mem[MCM_SCRATCH_USES];
	size_t cap[MCM_SCRATCH_USES];
	void *object;
	void (*object_free)(void *object);
	/* memory of another fiber of the same system thread, in a simulation */
	struct scratch *next;
};

/* The key frees the memory at the end of the thread; the variable is quicker to read, and one per fiber. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static __thread struct scratch *scratch_here;
MC_WORLD_LOCAL(scratch_here)

static void scratch_free(void *p)
{
	struct scratch *s = p, *next;
	unsigned i;

	for (; s; s = next) {
		next = s->next;
		for (i = 0; i < MCM_SCRATCH_USES; i++)
			free(s->mem[i]);
		if (s->object)
			s->object_free(s->object);
		free(s);
	}
	scratch_here = NULL;
}

static void scratch_make_key(void)
{
	pthread_key_create(&key, scratch_free);
}

static __attribute__((noinline)) struct scratch *scratch_new(void)
{
	struct scratch *s = calloc(1, sizeof(*s));

	pthread_once(&once, scratch_make_key);
	if (!s)
		return NULL;
	s->next = pthread_getspecific(key);
	if (pthread_setspecific(key, s)) {
		free(s);
		return NULL;
	}
	scratch_here = s;
	return s;
}

static inline struct scratch *scratch_of_thread(void)
{
	return scratch_here ? scratch_here : scratch_new();
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

void *mcm_scratch_object(size_t size, void (*object_free)(void *object))
{
	struct scratch *s = scratch_of_thread();

	if (s && !s->object) {
		s->object = calloc(1, size);
		s->object_free = object_free;
	}
	return s ? s->object : NULL;
}
