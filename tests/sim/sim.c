/* SPDX-License-Identifier: Apache-2.0
 * sim.c - fibers, their scheduler and the virtual clock. */
#include <config.h>

#include "tests/sim/sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "common/hash.h"
#include "common/list.h"
#include "common/sys/clock.h"
#include "common/sys/file.h"
#include "common/sys/world.h"

#define STACK (256u << 10)
#define GUARD 4096u
/* Virtual time that one look at a clock takes: loops that wait by looking at a clock end. */
#define LOOK_NS 50
#define SWITCH_NS 500
/* Time since the Unix epoch at the beginning. */
#define EPOCH_NS 1700000000000000000ull

#ifdef __SANITIZE_ADDRESS__
void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *save, const void **bottom_old, size_t *size_old);
#endif
#ifdef __SANITIZE_THREAD__
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#endif

struct process {
	struct mc_world world;
	struct sim *sim;
	const char *name;
	struct process *next;
	uint64_t random;
	bool ended;
};

enum fiber_state { READY, WAITS, YIELDS, ENDED };

struct fiber {
	struct mc_list node;		/* sim's fibers, in the order of their start */
	struct process *process;
	char name[16];
	void *(*fn)(void *arg);
	void *arg;
	enum fiber_state state;
	const void *key;		/* WAITS */
	uint64_t deadline;		/* WAITS, YIELDS */
	uint64_t progress;		/* YIELDS: the sim's at that time */
	bool detached;
	ucontext_t context;
	char *stack;
	void *locals;			/* values of mc_world_locals while it does not run */
	int err;			/* errno while it does not run */
	void *asan, *tsan;
};

struct sim {
	struct mc_list fibers;
	struct process *processes;
	struct fiber *current;
	ucontext_t context;		/* of sim_run() */
	void *locals;
	size_t locals_size;
	int (*poller_new)(void *arg, struct mc_poller **ret);
	void *poller_arg;
	uint64_t now, random, trace, switches;
	uint64_t progress;		/* switches to fibers that did not just yield again */
	unsigned serial;
	void *asan, *tsan;
	const void *stack;
	size_t stack_size;
};

static struct sim *sim_running;

static uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

void sim_event(struct sim *s, uint64_t event)
{
	uint64_t v[2] = { s->now, event };

	s->trace = mc_hash(v, sizeof(v), s->trace);
}

/* ---- switching ---- */

static void locals_save(void *to)
{
	char *at = to;

	for (struct mc_world_local *l = mc_world_locals; l; at += l->size, l = l->next)
		memcpy(at, l->at(), l->size);
}

static void locals_load(const void *from)
{
	const char *at = from;

	for (struct mc_world_local *l = mc_world_locals; l; at += l->size, l = l->next)
		memcpy(l->at(), at, l->size);
}

/* Run @f until it waits or ends. */
static void sim_switch_to(struct sim *s, struct fiber *f)
{
	s->current = f;
	s->switches++;
	s->now += SWITCH_NS;
	sim_event(s, (uintptr_t)f->name[0] + f->process->name[0] * 256u);
	locals_save(s->locals);
	locals_load(f->locals);
	mc_world_enter(&f->process->world);
	errno = f->err;
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_start_switch_fiber(&s->asan, f->stack + GUARD, STACK);
#endif
#ifdef __SANITIZE_THREAD__
	s->tsan = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(f->tsan, 0);
#endif
	swapcontext(&s->context, &f->context);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(s->asan, NULL, NULL);
#endif
	f->err = errno;
	mc_world_enter(NULL);
	locals_save(f->locals);
	locals_load(s->locals);
	s->current = NULL;
	s->progress += f->state != YIELDS;
}

/* Fiber: let the scheduler choose another one. */
static void fiber_leave(struct fiber *f)
{
	struct sim *s = f->process->sim;

#ifdef __SANITIZE_ADDRESS__
	__sanitizer_start_switch_fiber(f->state == ENDED ? NULL : &f->asan, s->stack, s->stack_size);
#endif
#ifdef __SANITIZE_THREAD__
	__tsan_switch_to_fiber(s->tsan, 0);
#endif
	swapcontext(&f->context, &s->context);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(f->asan, NULL, NULL);
#endif
}

static void fiber_main(unsigned high, unsigned low)
{
	struct fiber *f = (struct fiber *)((uintptr_t)high << 32 | low);

#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(NULL, &f->process->sim->stack, &f->process->sim->stack_size);
#endif
	f->fn(f->arg);
	f->state = ENDED;
	f->process->world.ops->wake(&f->process->world, f);
	fiber_leave(f);
}

/* ---- the world of a process ---- */

static struct process *process_of(struct mc_world *w)
{
	return mc_container_of(w, struct process, world);
}

static uint64_t world_now_ns(struct mc_world *w)
{
	return process_of(w)->sim->now += LOOK_NS;
}

static uint64_t world_wall_ns(struct mc_world *w)
{
	return EPOCH_NS + world_now_ns(w);
}

static void world_random(struct mc_world *w, void *buf, size_t len)
{
	uint64_t v;

	for (size_t at = 0, n; at < len; at += n) {
		v = random_next(&process_of(w)->random);
		n = len - at < sizeof(v) ? len - at : sizeof(v);
		memcpy((char *)buf + at, &v, n);
	}
}

static int world_thread_start(struct mc_world *w, const char *name, void *(*fn)(void *arg), void *arg, void **ret)
{
	struct process *p = process_of(w);
	struct fiber *f = calloc(1, sizeof(*f));
	uintptr_t at = (uintptr_t)f;

	if (!f)
		abort();
	f->stack = mmap(NULL, GUARD + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			-1, 0);
	f->locals = calloc(1, p->sim->locals_size + 1);
	if (f->stack == MAP_FAILED || !f->locals || mprotect(f->stack, GUARD, PROT_NONE) < 0)
		abort();
	f->process = p;
	snprintf(f->name, sizeof(f->name), "%s", name);
	f->fn = fn;
	f->arg = arg;
	getcontext(&f->context);
	f->context.uc_stack.ss_sp = f->stack + GUARD;
	f->context.uc_stack.ss_size = STACK;
	makecontext(&f->context, (void (*)(void))fiber_main, 2, (unsigned)(at >> 32), (unsigned)at);
#ifdef __SANITIZE_THREAD__
	f->tsan = __tsan_create_fiber(0);
#endif
	mc_list_push_back(&p->sim->fibers, &f->node);
	*ret = f;
	return 0;
}

static void fiber_free(struct fiber *f)
{
#ifdef __SANITIZE_THREAD__
	__tsan_destroy_fiber(f->tsan);
#endif
	mc_list_remove(&f->node);
	munmap(f->stack, GUARD + STACK);
	free(f->locals);
	free(f);
}

void sim_block(struct sim *s, const void *key, uint64_t deadline)
{
	struct fiber *f = s->current;

	f->state = key ? WAITS : YIELDS;
	f->key = key;
	f->deadline = deadline;
	f->progress = s->progress;
	fiber_leave(f);
	f->state = READY;
}

static void world_block(struct mc_world *w, const void *key, uint64_t deadline)
{
	sim_block(process_of(w)->sim, key, deadline);
}

void sim_wake(struct sim *s, const void *key)
{
	struct mc_list *pos;

	mc_list_for_each(pos, &s->fibers) {
		struct fiber *f = mc_container_of(pos, struct fiber, node);

		if (f->state == WAITS && f->key == key)
			f->state = READY;
	}
}

static void world_wake(struct mc_world *w, const void *key)
{
	sim_wake(process_of(w)->sim, key);
}

static int world_poller_new(struct mc_world *w, struct mc_poller **ret)
{
	struct sim *s = process_of(w)->sim;

	if (!s->poller_new)
		abort();
	return s->poller_new(s->poller_arg, ret);
}

static void world_thread_join(struct mc_world *w, void *thread)
{
	struct fiber *f = thread;

	while (f->state != ENDED)
		world_block(w, f, MC_NEVER);
	fiber_free(f);
}

static void world_thread_detach(struct mc_world *w, void *thread)
{
	struct fiber *f = thread;

	(void)w;
	f->detached = true;
}

static void *world_thread_self(struct mc_world *w)
{
	return process_of(w)->sim->current;
}

__attribute__((noreturn)) static void world_end(struct mc_world *w, int status)
{
	(void)status;
	sim_kill(w);
	fiber_leave(process_of(w)->sim->current);
	abort();
}

static const struct mc_world_ops world_ops = {
	.now_ns = world_now_ns,
	.wall_ns = world_wall_ns,
	.random = world_random,
	.thread_start = world_thread_start,
	.thread_join = world_thread_join,
	.thread_detach = world_thread_detach,
	.thread_self = world_thread_self,
	.block = world_block,
	.wake = world_wake,
	.poller_new = world_poller_new,
	.end = world_end,
};

/* ---- the simulation ---- */

struct sim *sim_new(uint64_t seed)
{
	struct sim *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	mc_list_init(&s->fibers);
	s->random = seed;
	for (struct mc_world_local *l = mc_world_locals; l; l = l->next)
		s->locals_size += l->size;
	s->locals = calloc(1, s->locals_size + 1);
	if (!s->locals)
		abort();
	mc_world_simulate(true);
	return s;
}

void sim_free(struct sim *s)
{
	struct mc_list *pos, *next;
	struct process *p;

	for (pos = s->fibers.next; pos != &s->fibers; pos = next) {
		struct fiber *f = mc_container_of(pos, struct fiber, node);

		next = pos->next;
		if (f->state != ENDED && !f->process->ended) {
			fprintf(stderr, "sim: %s/%s has not ended\n", f->process->name, f->name);
			abort();
		}
		fiber_free(f);
	}
	while ((p = s->processes)) {
		s->processes = p->next;
		free(p);
	}
	mc_world_simulate(false);
	free(s->locals);
	free(s);
}

void sim_set_pollers(struct sim *s, int (*fn)(void *arg, struct mc_poller **ret), void *arg)
{
	s->poller_new = fn;
	s->poller_arg = arg;
}

struct mc_world *sim_process(struct sim *s, const char *name, const struct mc_net *net)
{
	struct process *p = calloc(1, sizeof(*p));

	if (!p)
		abort();
	*p = (struct process){
		.world = { &world_ops, &mc_file_kernel, net }, .sim = s, .name = name, .next = s->processes,
		.random = sim_random(s),
	};
	s->processes = p;
	return &p->world;
}

void sim_thread(struct mc_world *w, const char *name, void *(*fn)(void *arg), void *arg)
{
	void *f;

	world_thread_start(w, name, fn, arg, &f);
	world_thread_detach(w, f);
}

void sim_kill(struct mc_world *w)
{
	process_of(w)->ended = true;
}

bool sim_has_ended(const struct mc_world *w)
{
	return mc_container_of(w, struct process, world)->ended;
}

/* May @f run now? */
static bool fiber_is_ready(const struct sim *s, const struct fiber *f)
{
	if (f->process->ended || f->state == ENDED)
		return false;
	return f->state == READY || f->deadline <= s->now || (f->state == YIELDS && f->progress != s->progress);
}

static void sim_report_deadlock(struct sim *s)
{
	struct mc_list *pos;

	fprintf(stderr, "sim: no fiber can run at %llu ns:\n", (unsigned long long)s->now);
	mc_list_for_each(pos, &s->fibers) {
		struct fiber *f = mc_container_of(pos, struct fiber, node);

		if (f->state != ENDED)
			fprintf(stderr, "  %s/%s %s %p\n", f->process->name, f->name,
				f->state == YIELDS ? "yields" : "waits for", f->key);
	}
	abort();
}

/* A random ready fiber.  NULL: none; *ret_next is the first deadline then. */
static struct fiber *sim_choose(struct sim *s, unsigned *ret_alive, uint64_t *ret_next)
{
	struct fiber *chosen = NULL;
	unsigned ready = 0;
	struct mc_list *pos;

	*ret_alive = 0;
	*ret_next = MC_NEVER;
	mc_list_for_each(pos, &s->fibers) {
		struct fiber *f = mc_container_of(pos, struct fiber, node);

		if (f->state == ENDED || f->process->ended)
			continue;
		++*ret_alive;
		if (fiber_is_ready(s, f)) {
			if (sim_random(s) % ++ready == 0)
				chosen = f;
		} else if (f->deadline < *ret_next) {
			*ret_next = f->deadline;
		}
	}
	return chosen;
}

void sim_run(struct sim *s, uint64_t until)
{
	struct fiber *f;
	unsigned alive;
	uint64_t next;

	sim_running = s;
	while (s->now < until) {
		f = sim_choose(s, &alive, &next);
		if (!alive)
			break;
		if (f) {
			sim_switch_to(s, f);
			if (f->state == ENDED && f->detached)
				fiber_free(f);
			continue;
		}
		if (next == MC_NEVER)
			sim_report_deadlock(s);
		s->now = next < until ? next : until;
	}
	sim_running = NULL;
}

uint64_t sim_now(const struct sim *s)
{
	return s->now;
}

uint64_t sim_random(struct sim *s)
{
	return random_next(&s->random);
}

uint64_t sim_trace(const struct sim *s)
{
	return s->trace;
}

uint64_t sim_switches(const struct sim *s)
{
	return s->switches;
}

struct sim *sim_here(void)
{
	return sim_running;
}
