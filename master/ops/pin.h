/* SPDX-License-Identifier: Apache-2.0
 * pin.h - pins and read leases of a session. */
#ifndef MCM_PIN_H
#define MCM_PIN_H

#include <stdbool.h>
#include <stdint.h>

struct mcm;
struct mcm_session;

/* One reader's hold on one object.  Its id is the place in the session's array and a tag. */
struct mcm_pin {
	uint32_t slot;		/* the object; 0: free */
	uint32_t tag;
	uint32_t prev, next;	/* leases, in the order they end; free ones: next only */
	uint64_t until_ms;	/* 0: until released */
};

/* ---- pins; the session's lock held ---- */

/* Make room for one more, so that mcm_pin_add() cannot fail.  -MC_ELIMIT, -ENOMEM. */
int mcm_pin_reserve(struct mcm *m, struct mcm_session *s);
/* Note a pin that the caller has counted in the object.  @until_ms 0: until released. */
uint64_t mcm_pin_add(struct mcm_session *s, uint32_t slot, uint64_t until_ms);
/* Unknown pins are ignored: their lease has run out. */
void mcm_pin_release(struct mcm *m, struct mcm_session *s, uint64_t pin);
void mcm_pin_renew(struct mcm *m, struct mcm_session *s, uint64_t pin);

/* Remove all pins; the session ends. */
void mcm_pins_remove_all(struct mcm *m, struct mcm_session *s);

/* ---- no lock held ---- */

/* For the monitor: drop pins whose lease has run out, some of each session.  True: there may be more of them. */
bool mcm_pins_tick(struct mcm *m);

#endif
