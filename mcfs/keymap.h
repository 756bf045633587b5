/* SPDX-License-Identifier: Apache-2.0
 * keymap.h - conversion of keys to paths and back.
 *
 * A key is a path: '/' separates directory levels, all other bytes are kept, so that the names that
 * programs create equal the keys that other clients see. Only bytes and components that a file name
 * cannot contain are escaped, together with names that look like an escape. Every file name
 * corresponds to exactly one key component and vice versa:
 *
 *	NUL in a component		%00
 *	an empty component		%_		(keys "a//b", "/a")
 *	"."  ".."			%2E  %2E%2E
 *	".mcfs" at the top		%2Emcfs
 *	a literal %00, anywhere		%2500		and so on: %2500 is %252500
 *	a whole name %_, %2E, ...	%25_, %252E, ... */
#ifndef MCFS_KEYMAP_H
#define MCFS_KEYMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define MCFS_KEY_MAX 4096		/* bytes of a key, as the store allows */
#define MCFS_NAME_MAX 4095		/* bytes of a displayed name, without the NUL */
#define MCFS_CONTROL_NAME ".mcfs"	/* the reserved directory at the top level */
#define MCFS_SHARED_NAME ".mcfs-links"	/* directory of the keys of files with several names, which is not shown */
#define MCFS_SHARED_LEN (sizeof(MCFS_SHARED_NAME "/") - 1 + 16)

/* Is it the name of that directory?  Most names do not even begin so. */
static inline bool mcfs_name_is_control(const char *name)
{
	return name[0] == MCFS_CONTROL_NAME[0] && strcmp(name, MCFS_CONTROL_NAME) == 0;
}

/* Is it the name of the directory of shared keys; is it such a key? */
static inline bool mcfs_name_is_shared(const char *name, size_t len)
{
	return len == sizeof(MCFS_SHARED_NAME) - 1 && memcmp(name, MCFS_SHARED_NAME, len) == 0;
}
static inline bool mcfs_key_is_shared(const char *key, size_t len)
{
	return len == MCFS_SHARED_LEN && memcmp(key, MCFS_SHARED_NAME "/", sizeof(MCFS_SHARED_NAME)) == 0;
}

/* File name of the key component @comp; @top: the component is at the top level of the mount. @ret
 * is NUL-terminated. Returns its length, or -ENAMETOOLONG if it does not fit into @size. */
int mcfs_name_encode(const void *comp, size_t len, bool top, char *ret, size_t size);

/* Key component of a file name. Returns its length; @ret is not NUL-terminated. Fails only with
 * -ENAMETOOLONG. */
int mcfs_name_decode(const char *name, bool top, void *ret, size_t size);

/* A whole key as one name, for keymap=flat and .mcfs/by-key: '/', '%' and NUL become %2F, %25 and %00; the dots
 * of ".", ".." and, with @top, of ".mcfs" become %2E. Results as above; -ENOENT for a name that no key maps to. */
int mcfs_flat_encode(const void *key, size_t len, bool top, char *ret, size_t size);
int mcfs_flat_decode(const char *name, bool top, void *ret, size_t size);

/* The whole key as a path below the mount point, without a leading '/'; for messages. */
int mcfs_key_to_path(const void *key, size_t len, char *ret, size_t size);

#endif
