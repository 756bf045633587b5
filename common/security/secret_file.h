/* SPDX-License-Identifier: Apache-2.0
 * secret_file.h - small files that only their owner may read, and public ones. */
#ifndef MC_SECRET_FILE_H
#define MC_SECRET_FILE_H

#include <stddef.h>

/* Read a small file whose mode keeps it from group and others, into @buf with a NUL: its length.  The buffer is the
 * caller's to erase.  -EACCES: the mode; -EFBIG; -errno; each with a detail that names the file. */
int mc_secret_file_read(const char *path, char *buf, size_t size);
/* The same for a file of any mode, such as a certificate. */
int mc_public_file_read(const char *path, char *buf, size_t size);
/* The same for a file that everyone may read, but neither group nor others may write: a list of peers to trust. */
int mc_trusted_file_read(const char *path, char *buf, size_t size);

#endif
