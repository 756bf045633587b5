/* SPDX-License-Identifier: Apache-2.0
 * io.c - I/O threads: their ticks, and further turns for connections that had more work than their share. */
#include <config.h>

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "common/sys/clock.h"
#include "engine/engine_i.h"

static uint64_t stall_ms(const struct mce_io *io)
{
	uint64_t ms = io->e->conf.progress_timeout_ms / 2;

	return ms < MCE_STALL_MS ? ms : MCE_STALL_MS;
}

/* Often enough to tell a waiting thread from a stopped process. */
static uint64_t tick_ns(const struct mce_io *io)
{
	return (stall_ms(io) / 4 + 1) * MC_NS_PER_MS;
}

static void io_tick(struct mc_evtimer *t)
{
	struct mce_io *io = mc_container_of(t, struct mce_io, tick);
	struct mc_list *pos, *next;
	uint64_t now = mc_now_ms();

	mc_list_for_each_safe(pos, next, &io->watchers) {
		struct mce_watcher *w = mc_container_of(pos, struct mce_watcher, node);

		w->tick(w, now);
	}
	if (io == io->e->io)
		mce_peers_resolve_owed(io->e);
	io->last_ms = now;
	mc_evtimer_arm(io->loop, t, mc_now_ns() + tick_ns(io));
}

static void io_again(struct mc_evtimer *t)
{
	struct mce_io *io = mc_container_of(t, struct mce_io, again);
	struct mc_list turn;

	/* A watcher that asks again comes after this turn. */
	mc_list_init(&turn);
	if (!mc_list_empty(&io->resume)) {
		turn = io->resume;
		turn.next->prev = turn.prev->next = &turn;
		mc_list_init(&io->resume);
	}
	while (!mc_list_empty(&turn)) {
		struct mce_watcher *w = mc_list_first(&turn, struct mce_watcher, resume_node);

		mc_list_remove(&w->resume_node);
		w->resume(w);
	}
}

void mce_io_watch(struct mce_io *io, struct mce_watcher *w)
{
	mc_list_init(&w->resume_node);
	mc_list_push_back(&io->watchers, &w->node);
}

void mce_io_unwatch(struct mce_io *io, struct mce_watcher *w)
{
	mc_list_remove(&w->node);
	mc_list_remove(&w->resume_node);
}

void mce_io_resume_later(struct mce_io *io, struct mce_watcher *w)
{
	mc_list_remove(&w->resume_node);
	mc_list_push_back(&io->resume, &w->resume_node);
	if (!io->again.due_ns)
		mc_evtimer_arm(io->loop, &io->again, mc_now_ns());
}

bool mce_io_stalled(struct mce_io *io)
{
	uint64_t now = mc_now_ms();

	if (now - io->last_ms > stall_ms(io))
		return true;
	io->last_ms = now;
	return false;
}

void mce_io_call(struct mce_io *io, void (*fn)(void *arg), void *arg)
{
	/* The caller cannot continue without the call, so wait until there is memory. */
	while (mc_evloop_call(io->loop, fn, arg) == -ENOMEM)
		mc_sleep_ms(1);
}

int mce_cpus_parse(const char *list, cpu_set_t *ret)
{
	const char *p = list;
	cpu_set_t set;

	CPU_ZERO(&set);
	while (*p) {
		char *end;
		unsigned long from = strtoul(p, &end, 10), to = from;

		if (end == p)
			break;
		p = end;
		if (*p == '-') {
			to = strtoul(p + 1, &end, 10);
			if (end == p + 1)
				break;
			p = end;
		}
		if (from > to || to >= CPU_SETSIZE || (*p && *p != ','))
			break;
		for (; from <= to; from++)
			CPU_SET(from, &set);
		if (!*p || !*++p) {
			*ret = set;
			return 0;
		}
	}
	if (*list)
		return mc_fail(-EINVAL, "not a list of processors: %s", list);
	*ret = set;
	return 0;
}

/* Best effort: on other processors the thread is slower, not wrong.  The process's own affinity stays the limit. */
static void io_set_affinity(struct mce_io *io)
{
	cpu_set_t may;

	if (CPU_COUNT(&io->e->cpus[io->numa]) == 0 || sched_getaffinity(0, sizeof(may), &may))
		return;
	CPU_AND(&may, &may, &io->e->cpus[io->numa]);
	if (CPU_COUNT(&may) && sched_setaffinity(0, sizeof(may), &may))
		mc_info("engine", "cannot set the affinity of an I/O thread: %m");
}

static void io_begin(void *arg)
{
	struct mce_io *io = arg;

	io_set_affinity(io);
	io->last_ms = mc_now_ms();
	mc_evtimer_arm(io->loop, &io->tick, mc_now_ns() + tick_ns(io));
}

int mce_io_open(struct mce_io *io, struct mce_engine *e, const char *name)
{
	int r;

	io->e = e;
	io->bounce_fd = -1;
	mc_list_init(&io->watchers);
	mc_list_init(&io->resume);
	io->tick.fire = io_tick;
	io->again.fire = io_again;
	r = mc_evloop_new(name, e->conf.spin_us, &io->loop);
	if (r == 0)
		r = mc_evloop_start(io->loop);
	if (r == 0)
		r = mc_evloop_post(io->loop, io_begin, io);
	return r;
}

void mce_io_close(struct mce_io *io)
{
	mc_evloop_free(io->loop);
	io->loop = NULL;
	if (io->bounce_fd >= 0)
		close(io->bounce_fd);
	io->bounce_fd = -1;
}
