/* SPDX-License-Identifier: Apache-2.0
 * work.c - threads that carry out the calls that may wait for the master or for data. */
#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"
#include "node/upstream/upstream_i.h"

MC_COUNTER(calls, "mooncake_node_upstream_calls_total", "", "calls of upstream's clients")

void mcn_up_work_run(struct mcn_up_conn *c, const struct mcn_up_call *call, uint64_t deadline, const void *body,
		     size_t len, struct mcn_up_answer *a)
{
	struct mcn_up_run r = { .store = c->up->store, .dummies = c->up->dummies, .uid = c->uid,
				.identity = &c->identity, .deadline = deadline, .call = call, .answer = a };

	mc_metric_add(&calls, 1);
	mcn_up_call_run(&r, body, len);
}

static void work_do(struct mcn_up_job *job)
{
	struct mcn_up_conn *c = job->conn;
	struct mcn_up *up = c->up;
	struct mcn_up_answer a = { 0 };
	uint64_t held = job->charged;

	mcn_up_work_run(c, job->call, job->deadline, job->body, job->len, &a);
	free(job->body);
	mcn_up_conn_answer(c, &a, mcn_up_answer_end(&a, job->sequence));
	free(job);
	mc_mutex_lock(&up->lock);
	c->user->running--;
	mc_mutex_unlock(&up->lock);
	mcn_up_conn_job_done(c, held);
}

/* A job of the next user that has one and may have another one running; NULL: there is none. */
static struct mcn_up_job *work_take_locked(struct mcn_up *up)
{
	const unsigned n = sizeof(up->user) / sizeof(up->user[0]);

	for (unsigned i = 0; i < n && up->queued; i++) {
		struct mcn_up_user *u = &up->user[(up->turn + i) % n];
		struct mcn_up_job *job;

		if (!u->conns || mc_list_empty(&u->jobs) || u->running == MCN_UP_UID_WORKERS)
			continue;
		job = mc_list_first(&u->jobs, struct mcn_up_job, link);
		mc_list_remove(&job->link);
		u->running++;
		up->queued--;
		up->turn = (up->turn + i + 1) % n;
		return job;
	}
	return NULL;
}

static struct mcn_up_job *work_take(struct mcn_up *up)
{
	MC_LOCKED(&up->lock);
	return work_take_locked(up);
}

static void *work_main(void *arg)
{
	struct mcn_up *up = arg;

	mc_mutex_lock(&up->lock);
	for (;;) {
		struct mcn_up_job *job;

		while (!(job = work_take_locked(up)) && !up->stopping) {
			up->idle++;
			mc_cond_wait(&up->work, &up->lock);
			up->idle--;
		}
		if (!job)
			break;
		mc_mutex_unlock(&up->lock);
		work_do(job);
		mc_mutex_lock(&up->lock);
	}
	mc_mutex_unlock(&up->lock);
	return NULL;
}

/* The loop adds jobs, so it alone starts threads. */
void mcn_up_work_add(struct mcn_up *up, struct mcn_up_job *job)
{
	bool more;
	int r = 0;

	mc_mutex_lock(&up->lock);
	mc_list_push_back(&job->conn->user->jobs, &job->link);
	up->queued++;
	more = up->idle < up->queued && up->nworkers < MCN_UP_WORKERS_MAX;
	mc_cond_signal(&up->work);
	mc_mutex_unlock(&up->lock);
	if (more)
		r = mc_thread_start(&up->worker[up->nworkers], "mcn-upstream", work_main, up);
	if (more && r == 0)
		up->nworkers++;
	if (r < 0)
		mc_warn("node", "no thread for calls of upstream's clients: %s", mc_strerror(r));
	/* Without any worker the loop waits rather than leave the client without an answer. */
	if (!up->nworkers)
		work_do(work_take(up));
}

void mcn_up_work_stop(struct mcn_up *up)
{
	mc_mutex_lock(&up->lock);
	up->stopping = true;
	mc_cond_broadcast(&up->work);
	mc_mutex_unlock(&up->lock);
	for (unsigned i = 0; i < up->nworkers; i++)
		mc_thread_join(up->worker[i]);
	up->nworkers = 0;
}
