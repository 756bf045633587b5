/* SPDX-License-Identifier: Apache-2.0
 * record.h - one text in etcd that does not expire, and that several programs and persons change.
 *
 * Errors are those of meta.h.  Threads: any, but no call may overlap with mcd_record_close(). */
#ifndef MCD_RECORD_H
#define MCD_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct mcd_record;

/* @where: [USER:PASSWORD@]HOST:PORT[,HOST:PORT...], also behind "etcd://".  @credentials: file (credentials.h), "";
 * NULL: that of the environment.  The strings are copied.  No network traffic.  -EINVAL with a detail. */
int mcd_record_open(const char *where, const char *credentials, const char *key, struct mcd_record **ret);
/* NULL is fine. */
void mcd_record_close(struct mcd_record *rec);

/* *ret_text is NUL-terminated; free() it.  @cancel (NULL is fine): true ends the call within about a second. */
int mcd_record_get(struct mcd_record *rec, const atomic_bool *cancel, uint64_t deadline, char **ret_text);
/* Replace the text @seen (NULL: the key does not exist) by @text.  -EAGAIN: the key has another text, which stays. */
int mcd_record_swap(struct mcd_record *rec, const char *seen, const char *text, uint64_t deadline);

#endif
