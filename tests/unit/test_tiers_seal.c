/* SPDX-License-Identifier: Apache-2.0
 * test_tiers_seal.c - encrypted media, a disk and a store of objects: bytes, keys, rotation, erase, the other form. */
#include <config.h>

#include "test_tiers_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"
#include "common/sys/clock.h"
#include "tiers/objects/objects_i.h"

#define WRITES 40u		/* more than the buffers of an encrypted medium */
#define PART_OF_KEY 1234567890123456789ull

/* The kind of the media of the group of tests that runs. */
static const char *kind;

/* ---- masters ------------------------------------------------------------------------------------ */

struct pool {
	uint32_t oldest, newest;	/* numbers of the secrets that are accepted */
	uint8_t salt;
	unsigned asked;
	int error;
};

static void pool_key(const struct pool *p, uint32_t secret, uint8_t ret[MC_KEY_LEN])
{
	memset(ret, p->salt, MC_KEY_LEN);
	memcpy(ret, &secret, sizeof(secret));
}

static int pool_keys(void *arg, uint32_t secret, struct mct_keys *ret)
{
	struct pool *p = arg;

	p->asked++;
	ret->known = secret >= p->oldest && secret <= p->newest;
	if (ret->known)
		pool_key(p, secret, ret->key);
	ret->newest = p->newest;
	pool_key(p, p->newest, ret->newest_key);
	return p->error;
}

static int unlock(struct mct_medium *m, struct pool *p)
{
	return m->ops->unlock(m, pool_keys, p);
}

/* ---- a disk ------------------------------------------------------------------------------------- */

static int disk_open(bool seal, enum mct_share share, struct mct_medium **ret)
{
	const struct mct_conf conf = {
		.size = 64 * MIB, .kind = kind, .path = tiers_dir, .buffers = 8 * MIB, .seal = seal, .share = share,
	};

	return mct_medium_open("ssd", &conf, ret);
}

static struct mct_medium *disk(void)
{
	struct mct_medium *m;

	assert_int_equal(disk_open(true, MCT_SHARE_NONE, &m), 0);
	return m;
}

/* @secret: of the records. */
static void identify(struct mct_medium *m, uint64_t secret)
{
	const uint64_t words[MCT_IDENTITY] = { 1, 2, 3, 4, 5, secret, 7, 8, 0 };

	assert_int_equal(m->ops->set_identity(m, words), 0);
}

/* The bytes of the file. */
static char *file_bytes(const char *name, size_t *ret_len)
{
	char path[256], *p;
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", tiers_dir, name);
	fd = open(path, O_RDONLY);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	*ret_len = (size_t)st.st_size;
	p = malloc(*ret_len);
	assert_non_null(p);
	assert_int_equal(read(fd, p, *ret_len), *ret_len);
	close(fd);
	return p;
}

static bool file_has(const char *name, unsigned char byte)
{
	unsigned char run[16];
	size_t len;
	char *p = file_bytes(name, &len);
	bool has;

	memset(run, byte, sizeof(run));
	has = memmem(p, len, run, sizeof(run));
	free(p);
	return has;
}

static void a_disk_needs_its_key(void **state)
{
	struct pool pool = { .oldest = 1, .newest = 1, .salt = 7 };
	struct mct_medium *m = disk();

	assert_int_equal(m->ops->unlock(m, NULL, NULL), -EAGAIN);
	assert_int_equal(load(m, 0, 4096, 0), -MC_EUNAVAILABLE);
	assert_int_equal(store(m, 0, 4096, 1), -MC_EUNAVAILABLE);
	pool.error = -EIO;
	assert_int_equal(unlock(m, &pool), -EIO);
	assert_int_equal(load(m, 0, 4096, 0), -MC_EUNAVAILABLE);
	pool.error = 0;
	assert_int_equal(unlock(m, &pool), 0);
	identify(m, 6);
	assert_int_equal(store(m, 0, 4096, 1), 0);
	assert_int_equal(load(m, 100, 200, 1), 0);
	mct_medium_close(m);
	m = disk();
	assert_int_equal(load(m, 0, 4096, 1), -MC_EUNAVAILABLE);
	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(load(m, 0, 4096, 1), 0);
	mct_medium_close(m);
}

static void done(struct mct_write *w)
{
	sem_post(&((struct wait_write *)w)->sem);
}

static void many_writes_wait_for_buffers(void **state)
{
	static struct wait_write w[WRITES];
	struct pool pool = { .oldest = 1, .newest = 1, .salt = 7 };
	struct mct_medium *m = disk();
	void *mem = NULL;

	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(posix_memalign(&mem, MCT_BLOCK, MIB), 0);
	memset(mem, 0x5a, MIB);
	for (unsigned i = 0; i < WRITES; i++) {
		w[i] = (struct wait_write){ .w = { .off = i * MIB, .len = MIB, .buf = mem, .done = done } };
		sem_init(&w[i].sem, 0, 0);
		m->ops->write_start(m, &w[i].w);
	}
	for (unsigned i = 0; i < WRITES; i++) {
		sem_wait(&w[i].sem);
		assert_int_equal(w[i].w.status, 0);
		assert_int_equal(load(m, i * MIB, MIB, 0x5a), 0);
	}
	/* The bytes of the caller stay as they were. */
	for (unsigned i = 0; i < MIB; i++)
		assert_int_equal(((unsigned char *)mem)[i], 0x5a);
	free(mem);
	mct_medium_close(m);
	assert_false(file_has("mooncake-0.ssd", 0x5a));
}

/* A file as it was before a rotation, or before an erase. */
static void a_rotation_keeps_the_bytes(void **state)
{
	struct pool pool = { .oldest = 1, .newest = 1, .salt = 7 };
	struct mct_medium *m = disk();

	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(store(m, 0, 4096, 9), 0);
	pool.newest = 2;
	/* The owner runs: it wraps its key again when it is connected again. */
	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(load(m, 0, 4096, 9), 0);
	mct_medium_close(m);
	pool.oldest = 2;
	pool.newest = 3;
	m = disk();
	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(load(m, 0, 4096, 9), 0);
	mct_medium_close(m);
	/* It does not run during two rotations. */
	pool.oldest = pool.newest = 5;
	m = disk();
	assert_int_equal(unlock(m, &pool), -EBADMSG);
	assert_int_equal(load(m, 0, 4096, 9), -MC_EUNAVAILABLE);
	identify(m, 60);
	assert_int_equal(unlock(m, &pool), 0);
	mct_medium_close(m);
}

/* Another process may have the file. */
static void a_strange_header_is_not_overwritten(void **state)
{
	struct pool pool = { .oldest = 1, .newest = 1, .salt = 7 };
	char path[256], *before, *after;
	struct mct_medium *m;
	size_t len;
	FILE *f;
	int fd;

	assert_int_equal(disk_open(true, MCT_SHARE_OWN, &m), 0);
	identify(m, 6);
	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(store(m, 0, 4096, 9), 0);
	snprintf(path, sizeof(path), "ls %s/*.data", tiers_dir);
	f = popen(path, "r");
	assert_non_null(fgets(path, sizeof(path), f));
	pclose(f);
	path[strcspn(path, "\n")] = '\0';
	/* Without a valid header it has no holder either. */
	fd = open(path, O_WRONLY);
	assert_int_equal(pwrite(fd, "x", 1, 9), 1);
	close(fd);
	before = file_bytes(strrchr(path, '/') + 1, &len);
	pool.newest = 2;
	assert_int_equal(unlock(m, &pool), 0);
	after = file_bytes(strrchr(path, '/') + 1, &len);
	assert_memory_equal(before, after, 4096);
	free(before);
	free(after);
	mct_medium_close(m);
	unlink(path);
}

/* True: no 16 bytes of the read are @byte. */
static bool shows_none(struct mct_medium *m, unsigned char byte)
{
	unsigned char run[16];
	struct wait_read r;
	bool none;

	memset(run, byte, sizeof(run));
	read_begin(m, &r, 0, 4096);
	sem_wait(&r.sem);
	assert_int_equal(r.r.status, 0);
	none = !memmem(r.r.at, 4096, run, sizeof(run));
	m->ops->read_end(m, &r.r);
	return none;
}

static void another_pool_gets_no_bytes(void **state)
{
	struct pool pool = { .oldest = 1, .newest = 1, .salt = 7 }, other = { .oldest = 1, .newest = 1, .salt = 8 };
	struct mct_medium *m = disk();

	/* The test before has left bytes without a key. */
	identify(m, 6);
	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(store(m, 0, 4096, 9), 0);
	mct_medium_close(m);
	m = disk();
	assert_int_equal(unlock(m, &other), -EKEYREJECTED);
	/* Nothing has changed. */
	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(load(m, 0, 4096, 9), 0);
	mct_medium_close(m);
	m = disk();
	/* A master that does not have the newest secret. */
	other = (struct pool){ .oldest = 0, .newest = 0, .salt = 7 };
	assert_int_equal(unlock(m, &other), -ENOKEY);
	other = (struct pool){ .oldest = 1, .newest = 1, .salt = 8 };
	identify(m, 61);
	assert_int_equal(unlock(m, &other), 0);
	assert_true(shows_none(m, 9));
	mct_medium_close(m);
	/* The first pool has lost them, too. */
	m = disk();
	assert_int_equal(unlock(m, &pool), -EKEYREJECTED);
	mct_medium_close(m);
}

static void a_new_secret_of_the_records_erases(void **state)
{
	struct pool pool = { .oldest = 1, .newest = 1, .salt = 7 };
	struct mct_medium *m = disk();
	char *before, *after;
	size_t len;

	identify(m, 6);
	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(store(m, 0, 4096, 9), 0);
	before = file_bytes("mooncake-0.ssd", &len);
	identify(m, PART_OF_KEY);
	assert_true(shows_none(m, 9));
	assert_int_equal(store(m, 4096, 4096, 8), 0);
	mct_medium_close(m);
	m = disk();
	assert_int_equal(unlock(m, &pool), 0);
	assert_true(shows_none(m, 9));
	assert_int_equal(load(m, 4096, 4096, 8), 0);
	/* No block has the old wrapped key any more. */
	after = file_bytes("mooncake-0.ssd", &len);
	assert_null(memmem(after, len, before + 176 + 16, MCT_WRAP_KEY));
	/* The same words change nothing. */
	identify(m, PART_OF_KEY);
	assert_int_equal(load(m, 4096, 4096, 8), 0);
	free(before);
	free(after);
	mct_medium_close(m);
}

static void the_other_form_is_refused(void **state)
{
	struct mct_medium *m;

	assert_int_equal(disk_open(false, MCT_SHARE_NONE, &m), -EACCES);
	assert_int_equal(unlink(strcat(strcpy((char[128]){ "" }, tiers_dir), "/mooncake-0.ssd")), 0);
	assert_int_equal(disk_open(false, MCT_SHARE_NONE, &m), 0);
	assert_int_equal(unlock(m, NULL), 0);
	mct_medium_close(m);
	/* No pool has used it. */
	assert_int_equal(disk_open(true, MCT_SHARE_NONE, &m), 0);
	mct_medium_close(m);
	assert_int_equal(disk_open(false, MCT_SHARE_NONE, &m), -EACCES);
	assert_int_equal(unlink(strcat(strcpy((char[128]){ "" }, tiers_dir), "/mooncake-0.ssd")), 0);
	assert_int_equal(disk_open(false, MCT_SHARE_NONE, &m), 0);
	identify(m, 6);
	mct_medium_close(m);
	assert_int_equal(disk_open(true, MCT_SHARE_NONE, &m), -EACCES);
	assert_int_equal(unlink(strcat(strcpy((char[128]){ "" }, tiers_dir), "/mooncake-0.ssd")), 0);
}

/* Readers of a shared directory have no key: they are not told its place, and cannot open it. */
static void a_shared_file_has_no_other_readers(void **state)
{
	struct mct_conf reader = { .share = MCT_SHARE_READ, .expect = { 1, 2, 3, 4, 5 } };
	struct mct_medium *m, *other;
	struct mct_status status;
	char path[256];

	assert_int_equal(disk_open(true, MCT_SHARE_OWN, &m), 0);
	m->ops->status(m, &status);
	assert_null(status.path);
	identify(m, 6);
	snprintf(path, sizeof(path), "ls %s/*.data", tiers_dir);
	{
		FILE *f = popen(path, "r");

		assert_non_null(fgets(path, sizeof(path), f));
		pclose(f);
		path[strcspn(path, "\n")] = '\0';
	}
	reader.path = path;
	assert_int_equal(mct_medium_open("ssd", &reader, &other), -EACCES);
	/* An owner without security leaves it alone, and makes a file of its own. */
	mct_medium_close(m);
	assert_int_equal(disk_open(false, MCT_SHARE_OWN, &m), 0);
	m->ops->status(m, &status);
	assert_non_null(status.path);
	assert_string_not_equal(status.path, path);
	unlink(status.path);
	unlink(path);
	mct_medium_close(m);
}

/* ---- objects ------------------------------------------------------------------------------------ */

#define LEN (300u << 10)
#define SIZE (256 * MIB)

static int store_open(bool seal, struct mct_medium **ret)
{
	const struct mct_conf conf = { .size = SIZE, .path = tiers_dir, .seal = seal };

	return mct_objects_tier.open(&conf, ret);
}

static struct mct_medium *objects(void)
{
	struct mct_medium *m;

	assert_int_equal(store_open(true, &m), 0);
	return m;
}

static unsigned char byte_at(uint64_t pos)
{
	return (unsigned char)((pos * 0x9e3779b97f4a7c15ull) >> 56);
}

static int objects_put(struct mct_medium *m, uint64_t off, uint64_t order)
{
	unsigned char *p = malloc(LEN);
	struct wait_write w = {
		.w = { .off = off, .len = LEN, .buf = p, .generation = 9, .order = order, .done = done },
	};

	for (unsigned i = 0; i < LEN; i++)
		p[i] = byte_at(i);
	sem_init(&w.sem, 0, 0);
	m->ops->write_start(m, &w.w);
	sem_wait(&w.sem);
	free(p);
	return w.w.status;
}

static int objects_look(struct mct_medium *m, uint64_t begin, uint64_t pos, uint32_t len)
{
	struct wait_read r;

	read_begin(m, &r, begin + pos, len);
	sem_wait(&r.sem);
	if (r.r.status < 0)
		return r.r.status;
	for (uint64_t i = 0; i < len; i++)
		assert_int_equal(((const unsigned char *)r.r.at)[i], byte_at(pos + i));
	m->ops->read_end(m, &r.r);
	return 0;
}

static void shell(const char *command)
{
	char line[512];

	snprintf(line, sizeof(line), "cd %s && %s", tiers_dir, command);
	assert_int_equal(system(line), 0);
}

/* ---- a store with failures ---- */

static const struct mct_keyed_ops *keyed;
static int put_error, swap_error, part_error;
static bool puts_are_stored;		/* although they fail */

static bool is_key(const char *name)
{
	return strlen(name) > 4 && !strcmp(name + strlen(name) - 4, "/key");
}

static int keyed_swap(struct mct_keyed *k, const char *name, const void *was, size_t was_len, const void *data,
		      size_t len)
{
	int error = is_key(name) ? put_error : swap_error, r = 0;

	if (!error || puts_are_stored)
		r = keyed->swap(k, name, was, was_len, data, len);
	return error ? mc_fail(error, "as the test wants it") : r;
}

static int keyed_get_part(struct mct_keyed *k, const char *name, uint64_t off, void *buf, size_t len)
{
	return part_error ? mc_fail(part_error, "as the test wants it") : keyed->get_part(k, name, off, buf, len);
}

static void fail_calls(struct mct_medium *m)
{
	static struct mct_keyed_ops ops;
	struct mct_objects *o = mct_objects_of(m);

	keyed = o->keyed->ops;
	ops = *keyed;
	ops.swap = keyed_swap;
	ops.get_part = keyed_get_part;
	o->keyed->ops = &ops;
}

/* The end of the process. */
static struct mct_medium *again(struct mct_medium *m, struct pool *pool)
{
	put_error = swap_error = part_error = 0;
	puts_are_stored = false;
	mct_medium_close(m);
	m = objects();
	assert_int_equal(unlock(m, pool), 0);
	return m;
}

/* Two processes with one prefix, until the master refuses the other one. */
static void the_first_key_stays(void **state)
{
	struct pool pool = { .oldest = 1, .newest = 1, .salt = 7 }, rotated = { .oldest = 1, .newest = 2, .salt = 7 };
	const uint64_t no_pool[MCT_IDENTITY] = { 1, 2, 3, 0, 0, 6, 7, 0, 0 };
	struct mct_medium *m = objects(), *other, *late;

	assert_int_equal(m->ops->set_identity(m, no_pool), 0);
	other = objects();
	late = objects();
	assert_int_equal(unlock(m, &pool), 0);
	identify(m, 6);
	assert_int_equal(objects_put(m, 0, 1), 0);
	assert_int_equal(unlock(other, &pool), 0);
	mct_medium_close(other);
	/* It asks the master for the other secret then, and is not the owner. */
	assert_int_equal(unlock(late, &rotated), -MC_EUNAVAILABLE);
	assert_int_equal(unlock(late, &rotated), -ESTALE);
	mct_medium_close(late);
	m = again(m, &rotated);
	assert_int_equal(objects_look(m, 0, 0, LEN), 0);
	/* A process that is not the owner any more leaves the key alone. */
	pool = (struct pool){ .oldest = 1, .newest = 3, .salt = 7 };
	shell("cp $(find . -name key) was && cp identity id && printf x | dd of=identity bs=1 seek=9 conv=notrunc "
	      "status=none");
	assert_int_equal(unlock(m, &pool), 0);
	shell("cmp was $(find . -name key) && cp id identity");
	assert_int_equal(unlock(m, &pool), 0);
	shell("! cmp -s was $(find . -name key)");
	mct_medium_close(m);
	shell("rm -r *");
}

/* The answer to the put of an identity gets lost, or the identity is deleted with the key. */
static void an_identity_has_its_key(void **state)
{
	struct pool pool = { .oldest = 1, .newest = 1, .salt = 7 };
	const uint64_t words[MCT_IDENTITY] = { 1, 2, 3, 4, 5, 60, 7, 8, 0 };
	struct mct_medium *m = objects();

	identify(m, 6);
	assert_int_equal(unlock(m, &pool), 0);
	fail_calls(m);
	swap_error = -ETIMEDOUT;
	puts_are_stored = true;
	assert_int_equal(m->ops->set_identity(m, words), -ETIMEDOUT);
	m = again(m, &pool);
	assert_int_equal(objects_put(m, 0, 1), 0);
	shell("rm identity $(find . -name key)");
	assert_int_equal(mct_objects_identity_check(mct_objects_of(m), 1), 0);
	m = again(m, &pool);
	assert_int_equal(objects_look(m, 0, 0, LEN), 0);
	/* The key of an identity that was not stored is deleted later. */
	fail_calls(m);
	swap_error = -ETIMEDOUT;
	assert_int_equal(m->ops->set_identity(m, (const uint64_t[MCT_IDENTITY]){ 1, 2, 3, 4, 5, 61, 7 }), -ETIMEDOUT);
	shell("[ $(find . -name key | wc -l) = 2 ]");
	swap_error = 0;
	identify(m, 62);
	shell("[ $(find . -name key | wc -l) = 1 ]");
	mct_medium_close(m);
	shell("rm -r *");
}

/* The first time, and at a rotation; the store may have the key nevertheless. */
static void a_key_that_is_not_stored_is_not_used(void **state)
{
	struct pool pool = { .oldest = 1, .newest = 1, .salt = 7 };

	for (unsigned i = 0; i < 4; i++) {
		struct mct_medium *m = objects();

		pool.newest = pool.oldest = 1;
		identify(m, 6);
		if (i >= 2)
			assert_int_equal(unlock(m, &pool), 0);
		pool.newest = i < 2 ? 1 : 2;
		fail_calls(m);
		put_error = -EIO;
		puts_are_stored = i % 2;
		assert_int_equal(unlock(m, &pool), i < 2 ? -EIO : 0);
		put_error = 0;
		assert_int_equal(unlock(m, &pool), 0);
		assert_int_equal(objects_put(m, 0, i + 1), 0);
		pool.oldest = pool.newest;
		m = again(m, &pool);
		assert_int_equal(objects_look(m, 0, 0, LEN), 0);
		/* Only the bytes of the store say that an object is lost, and not its error. */
		fail_calls(m);
		part_error = -EBADMSG;
		assert_int_equal(objects_look(m, 0, 0, LEN), -MC_EUNAVAILABLE);
		part_error = 0;
		mct_medium_close(m);
		shell("rm -r *");
	}
}

static void any_part_of_an_object_is_read(void **state)
{
	static const uint32_t places[] = { 0, 1, 65535, 65536, 65537, 131072, 200000, LEN - 1 };
	struct pool pool = { .oldest = 1, .newest = 1, .salt = 7 };
	struct mct_medium *m = objects();

	identify(m, 6);
	assert_int_equal(objects_put(m, 0, 1), -MC_EUNAVAILABLE);
	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(objects_put(m, 0, 2), 0);
	for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		for (unsigned k = 0; k < sizeof(places) / sizeof(places[0]); k++)
			if (places[i] < places[k])
				assert_int_equal(objects_look(m, 0, places[i], places[k] - places[i]), 0);
	assert_int_equal(objects_look(m, 0, LEN - 1, 1), 0);
	mct_medium_close(m);
	m = objects();
	assert_int_equal(objects_look(m, 0, 0, 100), -MC_EUNAVAILABLE);
	/* The owner runs while the secret is rotated, and not during the next two rotations. */
	pool.newest = 2;
	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(objects_look(m, 0, 0, LEN), 0);
	mct_medium_close(m);
	pool.oldest = 2;
	pool.newest = 3;
	m = objects();
	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(objects_look(m, 0, 5, LEN - 5), 0);
	mct_medium_close(m);
	pool.oldest = pool.newest = 5;
	m = objects();
	assert_int_equal(unlock(m, &pool), -EBADMSG);
	mct_medium_close(m);
}

/* Two objects of the same bytes. */
static void parts_cannot_be_exchanged(void **state)
{
	struct pool pool = { .oldest = 2, .newest = 3, .salt = 7 };
	struct mct_medium *m = objects();

	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(objects_put(m, MIB, 3), 0);
	assert_int_equal(objects_look(m, MIB, 0, LEN), 0);
	shell("a=$(find . -name '000000000000-*'); b=$(find . -name '000000100000-*'); cp $a a; cp $b b; cp a $b");
	assert_int_equal(objects_look(m, MIB, 0, LEN), -EIO);
	/* a chunk at the place of another one, the end cut off, a changed bit */
	shell("b=$(find . -name '000000100000-*'); cp b $b; "
	      "dd if=b of=$b bs=65568 count=1 seek=1 conv=notrunc status=none");
	assert_int_equal(objects_look(m, MIB, 0, 65536), 0);
	assert_int_equal(objects_look(m, MIB, 65536, 1), -EIO);
	shell("b=$(find . -name '000000100000-*'); cp b $b; truncate -s 65568 $b");
	assert_int_equal(objects_look(m, MIB, 65536, 1), -EIO);
	shell("b=$(find . -name '000000100000-*'); cp b $b; printf x | dd of=$b bs=1 seek=50 conv=notrunc status=none");
	assert_int_equal(objects_look(m, MIB, 65535, 1), -EIO);
	assert_int_equal(objects_look(m, MIB, 65536, 1), 0);
	mct_medium_close(m);
}

static void a_new_secret_erases_objects(void **state)
{
	struct pool pool = { .oldest = 2, .newest = 3, .salt = 7 };
	struct mct_medium *m = objects();

	assert_int_equal(unlock(m, &pool), 0);
	shell("[ $(find . -name key | wc -l) = 1 ]");
	shell("cp $(find . -name key) was");
	identify(m, PART_OF_KEY);
	shell("[ $(find . -name key | wc -l) = 1 ] && ! cmp -s was $(find . -name key)");
	assert_int_equal(objects_put(m, 0, 4), 0);
	mct_medium_close(m);
	m = objects();
	assert_int_equal(unlock(m, &pool), 0);
	assert_int_equal(objects_look(m, 0, 0, LEN), 0);
	mct_medium_close(m);
}

static void a_store_of_the_other_form_is_refused(void **state)
{
	struct mct_medium *m;

	assert_int_equal(store_open(false, &m), -EACCES);
	shell("rm -r *");
	assert_int_equal(store_open(false, &m), 0);
	identify(m, 6);
	assert_int_equal(objects_put(m, 0, 4), 0);
	mct_medium_close(m);
	assert_int_equal(store_open(true, &m), -EACCES);
	shell("rm -r *");
}

int main(void)
{
	const struct CMUnitTest disks[] = {
		cmocka_unit_test(a_disk_needs_its_key),
		cmocka_unit_test(many_writes_wait_for_buffers),
		cmocka_unit_test(a_rotation_keeps_the_bytes),
		cmocka_unit_test(another_pool_gets_no_bytes),
		cmocka_unit_test(a_strange_header_is_not_overwritten),
		cmocka_unit_test(a_new_secret_of_the_records_erases),
		cmocka_unit_test(the_other_form_is_refused),
		cmocka_unit_test(a_shared_file_has_no_other_readers),
	};
	const struct CMUnitTest stores[] = {
		cmocka_unit_test(the_first_key_stays),
		cmocka_unit_test(a_key_that_is_not_stored_is_not_used),
		cmocka_unit_test(an_identity_has_its_key),
		cmocka_unit_test(any_part_of_an_object_is_read),
		cmocka_unit_test(parts_cannot_be_exchanged),
		cmocka_unit_test(a_new_secret_erases_objects),
		cmocka_unit_test(a_store_of_the_other_form_is_refused),
	};
	int failed = cmocka_run_group_tests_name("disk", disks, tiers_dir_make, tiers_dir_remove);

	failed += cmocka_run_group_tests_name("disk on 3FS", disks, tiers_3fs_make, tiers_3fs_remove);
	kind = "threads";
	failed += cmocka_run_group_tests_name("disk by threads", disks, tiers_dir_make, tiers_dir_remove);
	return failed + cmocka_run_group_tests_name("objects", stores, tiers_dir_make, tiers_dir_remove);
}
