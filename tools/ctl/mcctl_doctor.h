/* SPDX-License-Identifier: Apache-2.0
 * mcctl_doctor.h - findings of the doctor. */
#ifndef MCCTL_DOCTOR_H
#define MCCTL_DOCTOR_H

#include "tools/ctl/mcctl.h"

enum mcctl_level { MCCTL_GOOD, MCCTL_WARNING, MCCTL_BAD };

struct mcctl_report {
	enum mcctl_level worst;
	json_t *findings;	/* NULL: as text */
};

/* Report a finding; @advice is "" when nothing needs to be done. */
void mcctl_doctor_find(struct mcctl_report *rp, enum mcctl_level level, const char *advice,
		       const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* mcctl_doctor_mount.c: mounts of this machine, and the kernel features for them.  A problem of a mount
 * named on the command line is an error; other mounts may belong to other users. */
void mcctl_doctor_mounts(struct mcctl *c, struct mcctl_report *rp);
/* mcctl_doctor_rdma.c: the NICs of this machine, if it has any, and the requirements of RDMA. */
void mcctl_doctor_rdma(struct mcctl_report *rp);

#endif
