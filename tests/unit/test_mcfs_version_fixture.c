/* SPDX-License-Identifier: Apache-2.0
 * test_mcfs_version_fixture.c - implementation of test_mcfs_version_fixture.h. */
#include <config.h>

#include "test_mcfs_version_fixture.h"

#include <stdlib.h>

#include "common/cleanup.h"

static struct vx *current;

static void on_failed(struct mcfs_version_env *env, const void *key, size_t len, int err,
		      const char *when, pid_t pid)
{
	current->told++;
	current->told_err = err;
}

int vx_up(void **state)
{
	struct vx *f = calloc(1, sizeof(*f));

	f->store = fake_mcs_new();
	assert_int_equal(mcfs_pool_new(16 * MCFS_SLOT, 4, &f->pool), 0);
	assert_int_equal(mcfs_version_env_init(&f->env, f->store, f->pool), 0);
	f->env.failed = on_failed;
	current = f;
	*state = f;
	return 0;
}

static bool no_writers(struct vx *f)
{
	MC_LOCKED(&f->env.names);
	return mc_list_empty(&f->env.writers);
}

int vx_down(void **state)
{
	struct vx *f = *state;

	/* A writeback thread may be about to release a writer. */
	for (int i = 0; i < 1000 && !no_writers(f); i++)
		usleep(5000);
	assert_true(no_writers(f));
	assert_int_equal(mcfs_pool_staged(f->pool), 0);
	assert_int_equal(fake_mcs_open_objects(f->store), 0);
	mcfs_version_env_done(&f->env);
	mcfs_pool_free(f->pool);
	fake_mcs_free(f->store);
	free(f);
	return 0;
}

struct mcfs_writer *vx_open(struct vx *f, const char *key, unsigned flags)
{
	struct mcs_key k = { key, strlen(key) };
	struct mcfs_writer_args args = {
		.key = key, .len = strlen(key), .flags = flags, .tid = getpid(),
	};
	struct mcfs_writer *w;
	struct mcs_info info;

	if (mcs_stat(f->store, k, &info, 0) == 0) {
		args.generation = info.generation;
		if (!(flags & MCFS_WRITER_FRESH))
			assert_int_equal(mcfs_object_open(f->store, k, DEADLINE, &args.base), 0);
	}
	assert_int_equal(mcfs_writer_new(&f->env, &args, &w), 0);
	mcfs_object_unref(args.base);
	return w;
}

void vx_write(struct mcfs_writer *w, uint64_t at, const char *text)
{
	assert_int_equal(mcfs_writer_write(w, at, text, strlen(text), NULL, getpid(), DEADLINE, NULL), 0);
}

int vx_flush(struct mcfs_writer *w)
{
	return mcfs_writer_flush(w, getpid(), MCFS_ALIVE, DEADLINE);
}

int vx_release(struct mcfs_writer *w, enum mcfs_fate fate)
{
	int r = mcfs_writer_release(w, fate, DEADLINE);

	mcfs_writer_unref(w);
	return r;
}

void vx_stored(struct vx *f, const char *key, const char *text)
{
	struct mcs_key k = { key, strlen(key) };
	void *data;
	int64_t n = mcs_get_alloc(f->store, k, &data, 0);

	if (!text) {
		assert_int_equal(n, -MCS_ENOOBJECT);
		return;
	}
	assert_int_equal(n, strlen(text));
	assert_memory_equal(data, text, strlen(text));
	free(data);
}

void vx_put(struct vx *f, const char *key, const char *text)
{
	struct iovec iov = { (void *)(uintptr_t)text, strlen(text) };
	struct mcs_put_opts opts = { .flags = MCS_PUT_UPSERT };

	assert_int_equal(mcs_put(f->store, (struct mcs_key){ key, strlen(key) }, &iov, 1, &opts, 0), 0);
}
