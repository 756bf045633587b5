/* SPDX-License-Identifier: Apache-2.0
 * hf3fs.c - the search for 3FS under a file, and the loading of its library. */
#include <config.h>

#include "tiers/ssd/hf3fs.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

#include "common/env.h"
#include "common/err.h"
#include "common/log.h"

#define LIBRARY "libhf3fs_api_shared.so"
#define LIBRARY_ENV "MC_HF3FS_LIBRARY"
/* The question of 3FS's FUSE daemon and its answer (src/lib/api/fuse.h there). */
#define IOC_GET_MAGIC _IOR('h', 2, uint32_t)
#define MAGIC 0x8f3f5fffu

#define SYMBOL(field) { "hf3fs_" #field, offsetof(struct mct_hf3fs, field) }
static const struct {
	const char *name;
	size_t at;
} symbols[] = {
	SYMBOL(extract_mount_point), SYMBOL(iovcreate), SYMBOL(iovdestroy), SYMBOL(iorcreate4), SYMBOL(iordestroy),
	SYMBOL(reg_fd), SYMBOL(dereg_fd), SYMBOL(prep_io), SYMBOL(submit_ios), SYMBOL(wait_for_ios),
};

/* Only a FUSE daemon is asked: other file systems may give the ioctl's number another meaning. */
static bool kernel_says_3fs(int fd)
{
	uint32_t magic = 0;
	struct statfs fs;

	if (fstatfs(fd, &fs) || fs.f_type != FUSE_SUPER_MAGIC)
		return false;
	return !ioctl(fd, IOC_GET_MAGIC, &magic) && magic == MAGIC;
}

static int library_load(const char *name, struct mct_hf3fs *ret)
{
	struct mct_hf3fs lib;
	/* Stays loaded: it may have threads of its own. */
	void *so = dlopen(name, RTLD_NOW | RTLD_LOCAL);

	if (!so)
		return mc_fail(-MC_ENOTSUP, "%s cannot be loaded: %s (it is part of 3FS; %s names its path)", name,
			       dlerror(), LIBRARY_ENV);
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *at = dlsym(so, symbols[i].name);

		*(void **)((char *)&lib + symbols[i].at) = at;
		if (!at)
			return mc_fail(-MC_ENOTSUP, "%s has no function %s: install a version of 3FS that has it", name,
				       symbols[i].name);
	}
	*ret = lib;
	return 0;
}

int mct_hf3fs_open(int fd, const char *path, struct mct_hf3fs *ret, char ret_mount_point[MCT_HF3FS_PATH])
{
	const char *name = mc_env_str(LIBRARY_ENV);
	int r;

	if (!name && !kernel_says_3fs(fd))
		return 1;
	r = library_load(name ? name : LIBRARY, ret);
	if (r < 0)
		return r;
	r = ret->extract_mount_point(ret_mount_point, MCT_HF3FS_PATH, path);
	if (r > 0 && r <= MCT_HF3FS_PATH)
		return 0;
	if (r > MCT_HF3FS_PATH)
		return mc_fail(-ENAMETOOLONG, "the path of the mount point of 3FS has more than %d bytes",
			       MCT_HF3FS_PATH - 1);
	if (!name)
		return mc_fail(-MC_ENOTSUP, "the library finds no mount point of 3FS above the file");
	mc_info("ssd", "%s has no effect on %s, which is not on 3FS", LIBRARY_ENV, path);
	return 1;
}
