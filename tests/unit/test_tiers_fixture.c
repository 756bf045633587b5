/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_fixture.c - see test_tiers_fixture.h. */
#include <config.h>

#include "test_tiers_fixture.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sys/clock.h"

#define TEMPLATE "/var/tmp/mc-ssd.XXXXXX"

char tiers_dir[] = TEMPLATE;

int tiers_dir_make(void **state)
{
	strcpy(tiers_dir, TEMPLATE);
	return mkdtemp(tiers_dir) ? 0 : -1;
}

int tiers_dir_remove(void **state)
{
	char cmd[80];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", tiers_dir);
	return system(cmd);
}

struct fake_hf3fs *tiers_3fs(void)
{
	void *so = dlopen(FAKE_HF3FS, RTLD_NOW | RTLD_LOCAL);
	fake_hf3fs_state_fn *fn = NULL;

	if (so)
		*(void **)&fn = dlsym(so, "fake_hf3fs_state");
	if (fn)
		return fn();
	fprintf(stderr, "%s\n", dlerror());
	abort();
}

int tiers_3fs_make(void **state)
{
	if (tiers_dir_make(state) < 0)
		return -1;
	strcpy(tiers_3fs()->mount, tiers_dir);
	return setenv("MC_HF3FS_LIBRARY", FAKE_HF3FS, 1);
}

int tiers_3fs_remove(void **state)
{
	struct fake_hf3fs *f = tiers_3fs();

	unsetenv("MC_HF3FS_LIBRARY");
	f->mount[0] = 0;
	if (f->iovs || f->rings || f->fds || f->rejected) {
		fprintf(stderr, "3FS: left iovs=%d rings=%d files=%d, rejected=%d calls\n", f->iovs, f->rings, f->fds,
			f->rejected);
		return -1;
	}
	return tiers_dir_remove(state);
}

static void read_done(struct mct_read *r)
{
	sem_post(&((struct wait_read *)r)->sem);
}

static void write_done(struct mct_write *w)
{
	sem_post(&((struct wait_write *)w)->sem);
}

struct mct_medium *medium(const char *kind, uint64_t size)
{
	const struct mct_conf conf = { .size = size, .kind = kind, .path = tiers_dir, .buffers = 8 * MIB };
	struct mct_medium *m;

	assert_int_equal(mct_medium_open("ssd", &conf, &m), 0);
	return m;
}

int store_from(struct mct_medium *m, uint64_t off, uint32_t len, const void *buf)
{
	struct wait_write w = { .w = { .off = off, .len = len, .buf = buf, .done = write_done } };

	sem_init(&w.sem, 0, 0);
	m->ops->write_start(m, &w.w);
	sem_wait(&w.sem);
	return w.w.status;
}

int store(struct mct_medium *m, uint64_t off, uint32_t len, unsigned char byte)
{
	void *buf;
	int r;

	assert_int_equal(m->ops->buffer_get(m, mc_deadline_ms(5000), &buf), 0);
	memset(buf, byte, len);
	r = store_from(m, off, len, buf);
	m->ops->buffer_put(m, buf);
	return r;
}

void read_begin(struct mct_medium *m, struct wait_read *r, uint64_t off, uint32_t len)
{
	*r = (struct wait_read){ .r = { .off = off, .len = len, .done = read_done } };
	sem_init(&r->sem, 0, 0);
	m->ops->read_start(m, &r->r);
}

int load(struct mct_medium *m, uint64_t off, uint32_t len, unsigned char byte)
{
	struct wait_read r;

	read_begin(m, &r, off, len);
	sem_wait(&r.sem);
	if (r.r.status < 0)
		return r.r.status;
	for (uint32_t i = 0; i < len; i++)
		if (((const unsigned char *)r.r.at)[i] != byte)
			fail_msg("byte %u of %u is %u", i, len, ((const unsigned char *)r.r.at)[i]);
	m->ops->read_end(m, &r.r);
	return 0;
}

