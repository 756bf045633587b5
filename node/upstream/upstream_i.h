/* SPDX-License-Identifier: Apache-2.0
 * upstream_i.h - structures and functions shared by the files of node/upstream/. */
#ifndef MCN_UP_UPSTREAM_I_H
#define MCN_UP_UPSTREAM_I_H

#include "common/list.h"
#include "common/net/evloop.h"
#include "common/sys/lock.h"
#include "common/sys/thread.h"
#include "node/node_i.h"
#include "node/upstream/calls.h"
#include "node/upstream/dummy.h"
#include "node/upstream/upstream.h"
#include "node/upstream/wire.h"

#define MCN_UP_CONNS_MAX 1024u
#define MCN_UP_HANDS_MAX 64u		/* connections of the unix socket; each is short */
/* Limits per user, so that other users always get a share. */
#define MCN_UP_UID_CONNS (MCN_UP_CONNS_MAX - 64)
#define MCN_UP_UID_HANDS (MCN_UP_HANDS_MAX - 16)
#define MCN_UP_FRAME_MAX ((uint64_t)1 << 30)		/* a request, with the values that it carries */
/* Requests of all clients that are received or carried out, and answers that they have not read. */
#define MCN_UP_BYTES_MAX ((uint64_t)4 << 30)
#define MCN_UP_UID_BYTES_HELD ((uint64_t)3 << 30)
#define MCN_UP_OUT_MAX ((size_t)64 << 20)		/* answers that a client has not read; beyond, it is closed */
#define MCN_UP_OUT_PAUSE ((size_t)1 << 20)		/* beyond, no further requests are taken */
#define MCN_UP_CONN_JOBS 64u
#define MCN_UP_WORKERS_MAX 32u
#define MCN_UP_UID_WORKERS 24u
/* Upstream's clients give up after 30 s: the call must have ended before, because it may write to their memory.  This
 * time begins before the client sends the request: when its connection was last seen empty, a tick before at most. */
#define MCN_UP_CALL_MS 25000
#define MCN_UP_HAND_MS 5000
#define MCN_UP_IN 4096u
#define MCN_UP_LISTENERS 2u

/* A user that has connections. */
struct mcn_up_user {
	uid_t uid;
	unsigned conns, hands;
	uint64_t bytes;
	struct mc_list jobs;		/* that wait */
	unsigned running;
};

struct mcn_up_listener {
	struct mc_evfd ev;
	struct mc_listener listener;
	struct mcn_up *up;
	uint64_t empty;			/* ns; when no connection waited there */
};

struct mcn_up {
	/* constant after start */
	struct mcn *node;
	mcs_t *store;
	struct mc_evloop *loop;
	bool started;
	struct mcn_up_dummies *dummies;
	struct mcn_up_listener listener[MCN_UP_LISTENERS];
	unsigned nlisteners;
	struct mc_evfd hand_listener;	/* listener of the unix socket; fd -1: none */

	/* owned by the loop */
	struct mc_list conns, hands;
	struct mc_evtimer sweep, retry;
	uint8_t waste[65536];		/* bytes of requests that are too long */

	struct mc_mutex lock;
	struct mc_cond work, changed;
	/* with the lock held */
	struct mcn_up_user user[MCN_USERS_MAX];
	unsigned nconns, nhands;
	uint64_t bytes;
	unsigned waiting;		/* connections that wait until bytes become less */
	unsigned queued;		/* jobs that wait */
	unsigned turn;			/* user whose jobs are looked at first */
	struct mc_thread worker[MCN_UP_WORKERS_MAX];
	unsigned nworkers, idle;
	bool stopping;
};

struct mcn_up_conn {
	/* constant */
	struct mcn_up *up;
	uid_t uid;
	struct mc_principal identity;
	struct mcn_up_user *user;
	/* owned by the loop */
	struct mc_list link;
	struct mc_stream stream;
	struct mc_evfd ev;
	uint8_t in[MCN_UP_IN];
	size_t have;			/* bytes in it */
	bool in_body;			/* the head is complete */
	struct mcn_up_head head;
	uint8_t *body;			/* NULL: the memory for it has to be waited for */
	size_t body_len, body_have;
	bool skips;			/* the request is too long */
	uint64_t skip;			/* bytes of it that have not been received */
	uint64_t empty;			/* ns; when it had no bytes last */
	uint64_t sent;			/* ns; before the client has sent the bytes in @in */
	uint64_t due;			/* the end of the call whose request has begun; MC_NEVER: none has */
	/* with the service's lock held */
	unsigned refs;			/* the loop's, one per job, one per posted function */
	unsigned jobs;
	bool waits;			/* counted in the service's waiting */
	bool over;

	struct mc_mutex send_lock;
	/* with this lock held */
	struct mc_list out;		/* answers */
	size_t out_len;			/* bytes of them that were not sent */
};

/* An answer that has not been sent completely. */
struct mcn_up_out {
	struct mc_list link;
	uint8_t *data;
	size_t len, at;			/* charged to the user; sent */
	uint64_t since;			/* ns */
};

struct mcn_up_job {
	struct mc_list link;
	struct mcn_up_conn *conn;
	const struct mcn_up_call *call;
	uint32_t sequence;
	uint8_t *body;
	size_t len, charged;		/* bytes of the arguments, and of the whole request */
	uint64_t deadline;
};

/* service.c */
/* A place for a user's connection; NULL, with a detail: there are too many. */
struct mcn_up_user *mcn_up_user_enter(struct mcn_up *up, uid_t uid, bool hand);
void mcn_up_user_leave(struct mcn_up *up, struct mcn_up_user *u, bool hand);
/* While the process is out of descriptors, the pending connection would wake the loop continuously. */
void mcn_up_pause(struct mcn_up *up);

/* tcp_conn.c; all in the loop, except where noted */
/* The stream is the connection's on success.  @empty: ns; before the client has connected. */
int mcn_up_conn_new(struct mcn_up *up, struct mc_stream *stream, uint64_t empty);
void mcn_up_conn_close(struct mcn_up_conn *c);
/* Close it if its peer is late. */
void mcn_up_conn_tick(struct mcn_up_conn *c, uint64_t now);
/* @arg is the service: continue the connections that wait for memory, as far as there is some. */
void mcn_up_conns_retry(void *arg);
void mcn_up_conn_unref(struct mcn_up_conn *c);				/* any thread */
/* Send the answer and free it, any thread.  @err: there is none, so the connection ends. */
void mcn_up_conn_answer(struct mcn_up_conn *c, struct mcn_up_answer *a, int err);
/* A job has ended: receive again, where that waited.  Any thread; takes the job's reference. */
void mcn_up_conn_job_done(struct mcn_up_conn *c, uint64_t bytes);

/* work.c */
void mcn_up_work_add(struct mcn_up *up, struct mcn_up_job *job);	/* loop; the job is freed after it */
void mcn_up_work_stop(struct mcn_up *up);
void mcn_up_work_run(struct mcn_up_conn *c, const struct mcn_up_call *call, uint64_t deadline, const void *body,
		     size_t len, struct mcn_up_answer *a);

/* hand.c: the unix socket, on the loop */
int mcn_up_hand_listen(struct mcn_up *up, int port);
void mcn_up_hand_tick(struct mcn_up *up, uint64_t now);
void mcn_up_hand_close_all(struct mcn_up *up);

#endif
