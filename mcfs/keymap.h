/* SPDX-License-Identifier: Apache-2.0
 * keymap.h - how keys are shown as paths.
 *
 * A key is a path: '/' is a directory level, everything else stands for itself, so that the names
 * that programs create and the keys that other clients see are the same bytes.  Only what a file
 * name cannot be is escaped, and only names that would be taken for an escape are escaped too; every
 * file name is the name of exactly one key component and the other way round:
 *
 *	NUL in a component		%00
 *	an empty component		%_		(keys "a//b", "/a")
 *	"."  ".."			%2E  %2E%2E
 *	".mcfs" at the top		%2Emcfs
 *	a literal %00, anywhere		%2500		and so on: %2500 is %252500
 *	a whole name %_, %2E, ...	%25_, %252E, ...
 */
#ifndef MCFS_KEYMAP_H
#define MCFS_KEYMAP_H

#include <stdbool.h>
#include <stddef.h>

#define MCFS_KEY_MAX 4096		/* bytes of a key, as the store allows */
#define MCFS_NAME_MAX 4095		/* bytes of a shown name, without the NUL */
#define MCFS_CONTROL_NAME ".mcfs"	/* the reserved directory at the top */

/* The file name of the key component @comp; @top: it stands directly below the mount point.  @ret gets
 * a NUL-ended string.  Its length, or -ENAMETOOLONG when it does not fit into @size. */
int mcfs_name_encode(const void *comp, size_t len, bool top, char *ret, size_t size);

/* The key component of a file name (never fails for a name that can exist, but for its size).  Length
 * of what is in @ret, not NUL-ended; -ENAMETOOLONG. */
int mcfs_name_decode(const char *name, bool top, void *ret, size_t size);

/* A whole key as one name, for keymap=flat and .mcfs/by-key: '/', '%' and NUL are %2F, %25 and %00, and the dots
 * of ".", ".." and, at the @top, ".mcfs" are %2E.  As mcfs_name_encode() and mcfs_name_decode(); -ENOENT for what
 * no key is shown as. */
int mcfs_flat_encode(const void *key, size_t len, bool top, char *ret, size_t size);
int mcfs_flat_decode(const char *name, bool top, void *ret, size_t size);

/* The whole key as a path below the mount point, without a leading '/'; for messages and tests. */
int mcfs_key_to_path(const void *key, size_t len, char *ret, size_t size);
int mcfs_path_to_key(const char *path, void *ret, size_t size);

#endif
