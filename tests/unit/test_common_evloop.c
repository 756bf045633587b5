/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "common/net/evloop.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/sys/clock.h"
#include "common/list.h"
#include "common/sys/thread.h"

static struct mc_evloop *loop;

static int start(unsigned spin_us)
{
	if (mc_evloop_new("test-loop", spin_us, &loop))
		return -1;
	return mc_evloop_start(loop);
}

static int start_sleeping(void **state)
{
	return start(0);
}

static int start_spinning(void **state)
{
	return start(200);
}

static int end(void **state)
{
	mc_evloop_free(loop);
	loop = NULL;
	return 0;
}

static void nothing(void *arg)
{
}

/* Counts the callbacks of the loop; the test waits for a value. */
struct flag {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int n;
};

#define FLAG { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 }

static void flag_raise(struct flag *f)
{
	pthread_mutex_lock(&f->lock);
	f->n++;
	pthread_cond_signal(&f->cond);
	pthread_mutex_unlock(&f->lock);
}

/* Returns false when the count does not reach @n within ten seconds. */
static bool flag_wait(struct flag *f, int n)
{
	struct timespec due;
	bool ok;

	clock_gettime(CLOCK_REALTIME, &due);
	due.tv_sec += 10;
	pthread_mutex_lock(&f->lock);
	while (f->n < n)
		if (pthread_cond_timedwait(&f->cond, &f->lock, &due))
			break;
	ok = f->n >= n;
	pthread_mutex_unlock(&f->lock);
	return ok;
}

/* ---- posted work ---- */

static void see_loop(void *arg)
{
	*(bool *)arg = mc_evloop_here(loop);
}

static void call_runs_on_the_loop(void **state)
{
	bool here = false;

	assert_false(mc_evloop_here(loop));
	assert_int_equal(mc_evloop_call(loop, see_loop, &here), 0);
	assert_true(here);
}

static void call_self(void *arg)
{
	*(int *)arg = mc_evloop_call(loop, nothing, NULL);
}

static void call_from_the_loop_is_refused(void **state)
{
	int r = 0;

	assert_int_equal(mc_evloop_call(loop, call_self, &r), 0);
	assert_int_equal(r, -EDEADLK);
}

#define POSTERS 4
#define POSTS 5000

static struct {
	int next[POSTERS];
	int out_of_order;
} order;

struct ticket {
	int poster, number;
};

static void take_ticket(void *arg)
{
	struct ticket *t = arg;

	order.out_of_order += order.next[t->poster]++ != t->number;
	free(t);
}

static void *post_many(void *arg)
{
	for (int i = 0; i < POSTS; i++) {
		struct ticket *t = malloc(sizeof(*t));

		t->poster = (int)(intptr_t)arg;
		t->number = i;
		if (mc_evloop_post(loop, take_ticket, t))
			abort();
	}
	return NULL;
}

static void posts_run_once_and_in_order(void **state)
{
	pthread_t t[POSTERS];

	order.out_of_order = 0;
	for (int i = 0; i < POSTERS; i++) {
		order.next[i] = 0;
		assert_int_equal(pthread_create(&t[i], NULL, post_many, (void *)(intptr_t)i), 0);
	}
	for (int i = 0; i < POSTERS; i++)
		pthread_join(t[i], NULL);
	assert_int_equal(mc_evloop_call(loop, nothing, NULL), 0);
	for (int i = 0; i < POSTERS; i++)
		assert_int_equal(order.next[i], POSTS);
	assert_int_equal(order.out_of_order, 0);
}

static void count_up(void *arg)
{
	(*(int *)arg)++;
}

static void post_another(void *arg)
{
	(*(int *)arg)++;
	if (*(int *)arg < 10)
		mc_evloop_post(loop, post_another, arg);
}

static void free_runs_posted_functions(void **state)
{
	int n = 0, chain = 0;

	for (int i = 0; i < 100; i++)
		assert_int_equal(mc_evloop_post(loop, count_up, &n), 0);
	assert_int_equal(mc_evloop_post(loop, post_another, &chain), 0);
	mc_evloop_free(loop);
	loop = NULL;
	assert_int_equal(n, 100);
	assert_int_equal(chain, 10);
}

static void a_loop_that_never_ran(void **state)
{
	int n = 0;

	assert_int_equal(mc_evloop_new("idle", 0, &loop), 0);
	assert_int_equal(mc_evloop_post(loop, count_up, &n), 0);
	mc_evloop_free(loop);
	loop = NULL;
	assert_int_equal(n, 0);
	mc_evloop_free(NULL);
}

/* ---- descriptors ---- */

struct echo {
	struct mc_evfd ev;
	struct flag got;
	uint64_t sum;
};

static void echo_ready(struct mc_evfd *e, uint32_t events)
{
	struct echo *x = mc_container_of(e, struct echo, ev);
	eventfd_t v;

	if (events & EPOLLIN && !eventfd_read(e->fd, &v))
		x->sum += v;
	flag_raise(&x->got);
}

static void drop_watch(void *arg)
{
	mc_evloop_del(loop, arg);
}

static void a_ready_descriptor_is_served(void **state)
{
	struct echo x = { .ev.ready = echo_ready, .got = FLAG };

	x.ev.fd = eventfd(0, EFD_NONBLOCK);
	assert_int_equal(mc_evloop_add(loop, &x.ev, EPOLLIN), 0);
	assert_int_equal(x.ev.events, EPOLLIN);
	for (int i = 1; i <= 5; i++) {
		eventfd_write(x.ev.fd, 3);
		assert_true(flag_wait(&x.got, i));
	}
	assert_int_equal(x.sum, 15);
	assert_int_equal(mc_evloop_call(loop, drop_watch, &x.ev), 0);
	eventfd_write(x.ev.fd, 1);
	assert_int_equal(mc_evloop_call(loop, nothing, NULL), 0);
	assert_int_equal(x.got.n, 5);
	close(x.ev.fd);
}

static void want_output_too(void *arg)
{
	struct mc_evfd *e = arg;

	mc_evloop_mod(loop, e, EPOLLOUT | EPOLLONESHOT);
}

static void watched_events_change(void **state)
{
	struct echo x = { .ev.ready = echo_ready, .got = FLAG };

	x.ev.fd = eventfd(0, EFD_NONBLOCK);
	assert_int_equal(mc_evloop_add(loop, &x.ev, EPOLLIN), 0);
	assert_int_equal(mc_evloop_call(loop, want_output_too, &x.ev), 0);
	assert_true(flag_wait(&x.got, 1));
	assert_int_equal(mc_evloop_call(loop, drop_watch, &x.ev), 0);
	assert_int_equal(x.sum, 0);
	close(x.ev.fd);
}

static void a_regular_file_is_refused(void **state)
{
	struct mc_evfd e = { .fd = -1 };

	assert_int_equal(mc_evloop_add(loop, &e, EPOLLIN), -EBADF);
}

/* Two descriptors become ready together; the first one that is served deletes and frees the
 * other. */
struct twin {
	struct mc_evfd ev;
	struct twin *other;
	int *told;
};

static void twin_ready(struct mc_evfd *e, uint32_t events)
{
	struct twin *t = mc_container_of(e, struct twin, ev);

	(*t->told)++;
	mc_evloop_del(loop, e);
	mc_evloop_del(loop, &t->other->ev);
	close(t->other->ev.fd);
	free(t->other);
	close(e->fd);
	free(t);
}

static void make_twins(void *arg)
{
	struct twin *a = calloc(1, sizeof(*a)), *b = calloc(1, sizeof(*b));

	a->other = b;
	b->other = a;
	a->told = b->told = arg;
	a->ev.ready = b->ev.ready = twin_ready;
	a->ev.fd = eventfd(1, EFD_NONBLOCK);
	b->ev.fd = eventfd(1, EFD_NONBLOCK);
	mc_evloop_add(loop, &a->ev, EPOLLIN);
	mc_evloop_add(loop, &b->ev, EPOLLIN);
}

static void no_event_after_deletion(void **state)
{
	int told = 0;

	for (int i = 1; i <= 200; i++) {
		assert_int_equal(mc_evloop_call(loop, make_twins, &told), 0);
		/* A whole turn of the loop is between the two calls. */
		assert_int_equal(mc_evloop_call(loop, nothing, NULL), 0);
		assert_int_equal(mc_evloop_call(loop, nothing, NULL), 0);
		assert_int_equal(told, i);
	}
}

/* Threads add descriptors that are ready at once, while the loop deletes them. */
struct guest {
	struct mc_evfd ev;
	int peer;
};

#define GUESTS_AT_A_TIME 100	/* two descriptors each, and the descriptor limit may be low */
static atomic_int guests_invited, guests_served;

static void guest_ready(struct mc_evfd *e, uint32_t events)
{
	struct guest *g = mc_container_of(e, struct guest, ev);

	mc_evloop_del(loop, e);
	close(e->fd);
	close(g->peer);
	free(g);
	atomic_fetch_add(&guests_served, 1);
}

static void *invite(void *arg)
{
	uint64_t deadline = mc_deadline_ms(20000);

	for (int i = 0; i < 1000; i++) {
		struct guest *g = calloc(1, sizeof(*g));
		int fds[2];

		while (atomic_load(&guests_invited) - atomic_load(&guests_served) >= GUESTS_AT_A_TIME) {
			if (!mc_deadline_left_ms(deadline))
				abort();
			sched_yield();
		}
		atomic_fetch_add(&guests_invited, 1);
		if (!g || socketpair(AF_UNIX, SOCK_STREAM, 0, fds) || write(fds[1], "x", 1) != 1)
			abort();
		g->ev.fd = fds[0];
		g->peer = fds[1];
		g->ev.ready = guest_ready;
		if (mc_evloop_add(loop, &g->ev, EPOLLIN))
			abort();
	}
	return NULL;
}

static void adding_races_with_serving(void **state)
{
	uint64_t deadline = mc_deadline_ms(20000);
	pthread_t t[3];

	atomic_store(&guests_invited, 0);
	atomic_store(&guests_served, 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&t[i], NULL, invite, NULL), 0);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	while (atomic_load(&guests_served) < 3000 && mc_deadline_left_ms(deadline))
		mc_evloop_call(loop, nothing, NULL);
	assert_int_equal(atomic_load(&guests_served), 3000);
}

/* ---- timers ---- */

#define TIMERS 2000

struct alarm {
	struct mc_evtimer t;
	int fired;
};

static struct {
	struct alarm alarms[TIMERS];
	uint64_t last;
	int fired, early, unordered;
} clockwork;

static void alarm_fire(struct mc_evtimer *t)
{
	struct alarm *a = mc_container_of(t, struct alarm, t);
	uint64_t due = (uint64_t)(a - clockwork.alarms) * 7919 % TIMERS + 1;

	/* due_ns was a function of the index and is freed by now. */
	clockwork.early += mc_now_ns() < due * MC_NS_PER_MS;
	clockwork.unordered += due < clockwork.last;
	clockwork.last = due;
	clockwork.fired++;
	a->fired++;
	if (t->due_ns)
		abort();
}

static void arm_all(void *arg)
{
	for (int i = 0; i < TIMERS; i++) {
		clockwork.alarms[i].t.fire = alarm_fire;
		/* First at another time, so that rearming moves it. */
		mc_evtimer_arm(loop, &clockwork.alarms[i].t, (uint64_t)(TIMERS - i) * 100);
	}
	for (int i = 0; i < TIMERS; i++)
		mc_evtimer_arm(loop, &clockwork.alarms[i].t,
			       ((uint64_t)i * 7919 % TIMERS + 1) * MC_NS_PER_MS);
	for (int i = 0; i < TIMERS; i += 5)
		mc_evtimer_disarm(loop, &clockwork.alarms[i].t);
	/* Once more is harmless. */
	mc_evtimer_disarm(loop, &clockwork.alarms[0].t);
}

static void timers_fire_in_order(void **state)
{
	mc_clock_fake(0);
	/* Armed while the clock stood still. */
	assert_int_equal(start(0), 0);
	assert_int_equal(mc_evloop_call(loop, arm_all, NULL), 0);
	for (int i = 0; i < TIMERS; i += 20) {
		mc_clock_advance(20 * MC_NS_PER_MS);
		/* The second call waits for the timers of the first one's turn. */
		assert_int_equal(mc_evloop_call(loop, nothing, NULL), 0);
		assert_int_equal(mc_evloop_call(loop, nothing, NULL), 0);
	}
	assert_int_equal(clockwork.fired, TIMERS - TIMERS / 5);
	assert_int_equal(clockwork.early, 0);
	assert_int_equal(clockwork.unordered, 0);
	for (int i = 0; i < TIMERS; i++)
		assert_int_equal(clockwork.alarms[i].fired, i % 5 != 0);
	end(NULL);
	mc_clock_real();
}

struct pulse {
	struct mc_evtimer t;
	struct flag *beat;
	int left;
};

static void pulse_fire(struct mc_evtimer *t)
{
	struct pulse *p = mc_container_of(t, struct pulse, t);

	flag_raise(p->beat);
	if (--p->left)
		mc_evtimer_arm(loop, t, mc_now_ns() + MC_NS_PER_MS);
	else
		free(p);
}

static void arm_pulse(void *arg)
{
	struct pulse *p = arg;

	mc_evtimer_arm(loop, &p->t, mc_now_ns() + MC_NS_PER_MS);
}

static void a_timer_rearms_and_frees_itself(void **state)
{
	struct pulse *p = calloc(1, sizeof(*p));
	struct flag beat = FLAG;

	assert_non_null(p);
	p->t.fire = pulse_fire;
	p->beat = &beat;
	p->left = 5;
	assert_int_equal(mc_evloop_call(loop, arm_pulse, p), 0);
	assert_true(flag_wait(&beat, 5));
}

struct eager {
	struct mc_evtimer t;
	struct mc_evfd ev;
	atomic_int fired, served;
};

static void eager_fire(struct mc_evtimer *t)
{
	struct eager *x = mc_container_of(t, struct eager, t);

	atomic_fetch_add(&x->fired, 1);
	mc_evtimer_arm(loop, t, 1);
}

static void eager_ready(struct mc_evfd *e, uint32_t events)
{
	struct eager *x = mc_container_of(e, struct eager, ev);

	atomic_fetch_add(&x->served, 1);
	mc_evtimer_disarm(loop, &x->t);
	mc_evloop_del(loop, e);
}

static void eager_arm(void *arg)
{
	struct eager *x = arg;

	mc_evtimer_arm(loop, &x->t, 0);
	mc_evloop_add(loop, &x->ev, EPOLLIN);
}

static void an_eager_timer_starves_no_descriptor(void **state)
{
	struct eager x = { .t.fire = eager_fire, .ev.ready = eager_ready };

	x.ev.fd = eventfd(1, EFD_NONBLOCK);
	assert_int_equal(mc_evloop_call(loop, eager_arm, &x), 0);
	assert_int_equal(mc_evloop_call(loop, nothing, NULL), 0);
	assert_int_equal(mc_evloop_call(loop, nothing, NULL), 0);
	assert_int_equal(atomic_load(&x.served), 1);
	assert_true(atomic_load(&x.fired) > 0);
	close(x.ev.fd);
}

static void never_is_disarmed(void *arg)
{
	struct mc_evtimer *t = arg;

	mc_evtimer_arm(loop, t, mc_now_ns() + 1000 * MC_NS_PER_SEC);
	mc_evtimer_arm(loop, t, MC_NEVER);
}

static void arming_for_never(void **state)
{
	struct mc_evtimer t = { .fire = pulse_fire };

	assert_int_equal(mc_evloop_call(loop, never_is_disarmed, &t), 0);
	assert_int_equal(t.due_ns, 0);
}

#define BOTH(f) \
	cmocka_unit_test_setup_teardown(f, start_sleeping, end), \
	cmocka_unit_test_setup_teardown(f, start_spinning, end)

/* As in linux/sched/types.h. */
struct sched_wish {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static void slice_here(void *arg)
{
	struct sched_wish w = { 0 };

	if (syscall(SYS_sched_getattr, 0, &w, sizeof(w), 0) == 0 && w.policy == SCHED_OTHER)
		*(uint64_t *)arg = w.runtime;
}

/* The loop's thread gets short time slices; the slices of the process's other threads do not
 * change. */
static void its_thread_is_prompt(void **state)
{
	uint64_t before = 0, after = 0, its = 0;

	slice_here(&before);
	if (!before)
		skip();		/* the kernel does not report it */
	assert_int_equal(mc_evloop_call(loop, slice_here, &its), 0);
	slice_here(&after);
	assert_int_equal(after, before);
	assert_true(its <= before);
	assert_int_equal(its, 100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		BOTH(call_runs_on_the_loop),
		BOTH(call_from_the_loop_is_refused),
		BOTH(posts_run_once_and_in_order),
		BOTH(free_runs_posted_functions),
		BOTH(its_thread_is_prompt),
		cmocka_unit_test(a_loop_that_never_ran),
		BOTH(a_ready_descriptor_is_served),
		BOTH(watched_events_change),
		BOTH(a_regular_file_is_refused),
		BOTH(no_event_after_deletion),
		BOTH(adding_races_with_serving),
		cmocka_unit_test(timers_fire_in_order),
		BOTH(a_timer_rearms_and_frees_itself),
		BOTH(an_eager_timer_starves_no_descriptor),
		BOTH(arming_for_never),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
