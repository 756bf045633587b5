/* SPDX-License-Identifier: Apache-2.0
 * open_pins.h - versions pinned between the LOOKUP and the OPEN of one open(2), by thread.
 *
 * Expected opens: LOOKUP and OPEN would each send a request to the master. If the last lookups of a
 * thread were followed by opens, its next lookup pins the version that it finds, and the open uses
 * that version without a request. A thread that only looks up pins nothing. The thread's next
 * lookup drops an unused pin, as does the sweep after MCFS_PIN_MS.
 *
 * Retried opens: if the file was replaced between LOOKUP and OPEN, or a writer would share the inode (inode.h),
 * the open is answered with ESTALE. The kernel then repeats both requests, but only once. So that a file that
 * is replaced or written all the time can be opened nevertheless, the repeated lookup gets a new inode and pins
 * the version that it shows, and the repeated open uses both. The repeated lookup may be several requests: the
 * kernel checks whether the name is still the same file, looks it up, and does both again if this node replaces
 * the name. The last one counts. An open through /proc/self/fd is not preceded by a lookup, in neither attempt. */
#ifndef MCFS_OPEN_PINS_H
#define MCFS_OPEN_PINS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/sys/lock.h"

#include "mcfs/read/object.h"

#define MCFS_PIN_THREADS 256u	/* known threads; a new one replaces the least recently active one */
#define MCFS_PIN_MS 50u
#define MCFS_RETRY_MS 5000u	/* a thread that has not retried by then was killed */
#define MCFS_RETRY_LOOKUPS 100u	/* under contention a retried open may need many lookups */

struct mcfs_open_pins {
	struct mc_mutex lock;
	/* guarded by lock */
	bool sweeping;			/* mcfs_open_pins_sweep() will be called again */
	unsigned n;
	pid_t tid[MCFS_PIN_THREADS];
	struct mcfs_pin_thread {
		uint64_t since_ms;	/* start of the retry, else of the pin or last lookup */
		bool looked_up;		/* without an open since then */
		unsigned score;		/* how regularly opens follow lookups */
		unsigned lookups;	/* lookups by the retried open */
		char *key;		/* key of the retried open; NULL: none */
		size_t key_len;
		struct mcfs_object *object;	/* the pinned version, or NULL */
	} thread[MCFS_PIN_THREADS];
};

/* Any thread, except for init and done. */

void mcfs_open_pins_init(struct mcfs_open_pins *p);
void mcfs_open_pins_done(struct mcfs_open_pins *p);

/* Thread @tid looks up @key. True: pin the version, an open is likely to follow. *ret_retry: the
 * lookup belongs to a retried open, true for at most MCFS_RETRY_LOOKUPS lookups. */
bool mcfs_open_pins_lookup(struct mcfs_open_pins *p, struct mcs_key key, pid_t tid, bool *ret_retry);
/* The lookup has found that the file is opened by another key, @key (ops/link.c): does it belong to a retried open? As
 * *ret_retry above. */
bool mcfs_open_pins_is_retry(struct mcfs_open_pins *p, struct mcs_key key, pid_t tid);
/* The lookup found no file. @missing: the name does not exist. Such lookups are repeated when an
 * open is expected, so stop expecting opens of this thread for a while. */
void mcfs_open_pins_no_file(struct mcfs_open_pins *p, pid_t tid, bool missing);
/* Store the version that the lookup pinned, NULL: none; takes the reference. True: the caller must
 * have mcfs_open_pins_sweep() called periodically from now on. */
bool mcfs_open_pins_keep(struct mcfs_open_pins *p, struct mcs_key key, pid_t tid, struct mcfs_object *o);
/* Thread @tid opens @key; to be called for every open. @wanted: the open needs version @generation.
 * *ret: that version, pinned, with its reference, or NULL. True: the open is a retry. */
bool mcfs_open_pins_open(struct mcfs_open_pins *p, struct mcs_key key, pid_t tid, uint64_t generation, bool wanted,
			 struct mcfs_object **ret);
/* The open of @key is answered with ESTALE, so thread @tid will retry. Does nothing without memory,
 * or if @tid is 0: threads outside our pid namespace cannot be told apart. Returns as above. */
bool mcfs_open_pins_retry(struct mcfs_open_pins *p, struct mcs_key key, pid_t tid);
/* Drop pins and retries that have expired. False: none is left, no further call is needed. */
bool mcfs_open_pins_sweep(struct mcfs_open_pins *p);

#endif
