/* SPDX-License-Identifier: Apache-2.0
 * handoff.c - the handoff table: shared memory that outlives the daemon. */
#include <config.h>
#include "mcfs/life/handoff.h"

#include <errno.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/fault.h"
#include "common/sys/lock.h"

#define MAGIC "mcfsbook"
#define TABLE_VERSION 4u
/* Smaller numbers belong to the root and the control files. */
#define FIRST 4096u
#define CELLS (8u << 20)
#define INLINE_KEY 56
#define REST_KEY 120
/* The attributes are at the end of struct mcs_info, and are looked up again. */
#define INFO_KEPT offsetof(struct mcs_info, attrs)

/* Memory is allocated on first use, so the table may have many cells. */
struct cell {
	uint32_t type;			/* atomic; enum mcfs_handoff_type */
	uint32_t next;			/* next cell of a long key, 0: none */
	union {
		struct {
			uint64_t nlookup;	/* atomic */
			uint64_t info[INFO_KEPT / 8];
			uint32_t key_len;
			uint8_t implied;
			uint8_t hashed;		/* atomic */
			unsigned char key[INLINE_KEY];
		} inode;
		struct {
			uint64_t inode, unique;
			int32_t type;
			uint32_t serial;	/* atomic */
			uint8_t unsaved;
		} handle;
		struct {
			uint64_t handle;
			struct mcfs_lock_args args;
		} lock;
		unsigned char rest[REST_KEY];
	};
};
_Static_assert(sizeof(struct cell) <= 128, "an entry of a short key is two cache lines");

#define HEAD_SIZE ((sizeof(struct mcfs_handoff_head) + 4095) & ~(size_t)4095)
#define TABLE_SIZE (HEAD_SIZE + (size_t)CELLS * sizeof(struct cell))

static struct {
	struct mcfs_handoff_head *head;	/* NULL: there is no table */
	struct cell *cell;
	void **object;			/* atomic elements */
	struct mc_mutex lock;
	/* guarded by lock */
	uint32_t *free;			/* free cells */
	size_t nfree, free_cap;
	unsigned char key[65536];
} table = { .lock = MC_MUTEX_INIT };

static int table_map(int fd)
{
	size_t objects = (size_t)CELLS * sizeof(*table.object);
	void *p = mmap(NULL, TABLE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), *o;

	if (p == MAP_FAILED)
		return mc_fail(-errno, "cannot map the handoff table: %s", mc_strerror(errno));
	o = mmap(NULL, objects, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (o == MAP_FAILED) {
		munmap(p, TABLE_SIZE);
		return mc_fail(-ENOMEM, "no address space for the handoff table");
	}
	table.head = p;
	table.cell = (void *)((char *)p + HEAD_SIZE);
	table.object = o;
	return 0;
}

int mcfs_handoff_new(int *ret_fd)
{
	int fd = memfd_create("mcfs-book", MFD_CLOEXEC), r;

	if (fd < 0 || ftruncate(fd, (off_t)TABLE_SIZE) < 0) {
		r = mc_fail(-errno, "cannot create the handoff table: %s", mc_strerror(errno));
	} else {
		r = table_map(fd);
	}
	if (r < 0) {
		if (fd >= 0)
			close(fd);
		return r;
	}
	table.head->version = TABLE_VERSION;
	table.head->cell_size = sizeof(struct cell);
	table.head->high = 1;
	memcpy(table.head->magic, MAGIC, sizeof(table.head->magic));
	*ret_fd = fd;
	return 0;
}

static void cell_free_locked(uint32_t i)
{
	uint32_t *more;

	if (table.nfree == table.free_cap) {
		size_t cap = table.free_cap ? table.free_cap * 2 : 1024;

		/* If the index cannot be stored, the cell stays unused until the next daemon loads the table. */
		more = realloc(table.free, cap * sizeof(*more));
		if (!more)
			return;
		table.free = more;
		table.free_cap = cap;
	}
	table.free[table.nfree++] = i;
}

/* Mark the cells of an entry's key in @used; false: the entry is damaged. */
static bool cell_mark_key(const struct cell *c, uint8_t *used)
{
	size_t len = c->inode.key_len, have = INLINE_KEY;
	uint32_t i = c->next;

	if (len > sizeof(table.key))
		return false;
	for (; have < len; have += REST_KEY, i = table.cell[i].next) {
		if (!i || i >= table.head->high || used[i] || table.cell[i].type != MCFS_HANDOFF_REST)
			return false;
		used[i] = 1;
	}
	return true;
}

/* A cell that no entry uses is free, even if the dead daemon was about to use it. */
static int table_find_free(void)
{
	uint32_t high = table.head->high;
	auto_free uint8_t *used = NULL;

	if (!high || high > CELLS)
		return mc_fail(-EINVAL, "the handoff table is damaged");
	used = calloc(1, high);
	if (!used)
		return -ENOMEM;
	for (uint32_t i = 1; i < high; i++) {
		struct cell *c = &table.cell[i];

		if (c->type == MCFS_HANDOFF_HANDLE || c->type == MCFS_HANDOFF_MOVING ||
		    c->type == MCFS_HANDOFF_LOCK ||
		    (c->type == MCFS_HANDOFF_INODE && cell_mark_key(c, used)))
			used[i] = 1;
	}
	for (uint32_t i = high - 1; i > 0; i--) {
		if (used[i])
			continue;
		table.cell[i].type = MCFS_HANDOFF_FREE;
		cell_free_locked(i);
	}
	return 0;
}

int mcfs_handoff_load(int fd)
{
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0 || st.st_size != (off_t)TABLE_SIZE)
		return mc_fail(-EINVAL, "the handoff table has another format version");
	r = table_map(fd);
	if (r < 0)
		return r;
	if (memcmp(table.head->magic, MAGIC, sizeof(table.head->magic)) != 0 ||
	    table.head->version != TABLE_VERSION || table.head->cell_size != sizeof(struct cell))
		r = mc_fail(-EINVAL, "the handoff table has another format version");
	else
		r = table_find_free();
	if (r < 0)
		mcfs_handoff_close();
	return r;
}

void mcfs_handoff_close(void)
{
	if (!table.head)
		return;
	munmap(table.object, (size_t)CELLS * sizeof(*table.object));
	munmap(table.head, TABLE_SIZE);
	free(table.free);
	table.head = NULL;
	table.free = NULL;
	table.nfree = table.free_cap = 0;
}

struct mcfs_handoff_head *mcfs_handoff(void)
{
	return table.head;
}

/* ---- entries ---- */

static uint32_t cell_alloc_locked(void)
{
	uint32_t i;

	if (table.nfree)
		return table.free[--table.nfree];
	i = table.head->high;
	if (i >= CELLS)
		return 0;
	__atomic_store_n(&table.head->high, i + 1, __ATOMIC_RELEASE);
	return i;
}

static void cell_free_rest_locked(struct cell *c)
{
	while (c->next) {
		uint32_t i = c->next;

		c->next = table.cell[i].next;
		table.cell[i].type = MCFS_HANDOFF_FREE;
		cell_free_locked(i);
	}
}

/* Store the key of an entry that is not valid at the moment. */
static int cell_write_key_locked(struct cell *c, const unsigned char *key, size_t len)
{
	size_t n = len < INLINE_KEY ? len : INLINE_KEY;
	struct cell *last = c;

	c->inode.key_len = (uint32_t)len;
	c->next = 0;
	memcpy(c->inode.key, key, n);
	while (n < len) {
		size_t piece = len - n < REST_KEY ? len - n : REST_KEY;
		uint32_t i = cell_alloc_locked();

		if (!i) {
			cell_free_rest_locked(c);
			return -ENOMEM;
		}
		table.cell[i].type = MCFS_HANDOFF_REST;
		table.cell[i].next = 0;
		memcpy(table.cell[i].rest, key + n, piece);
		last->next = i;
		last = &table.cell[i];
		n += piece;
	}
	return 0;
}

static void cell_set_type(struct cell *c, enum mcfs_handoff_type type)
{
	__atomic_store_n(&c->type, type, __ATOMIC_SEQ_CST);
}

static uint32_t cell_index(uint64_t number)
{
	return (uint32_t)number - FIRST;
}

/* The upper half of a handle's number is a serial, so that handles in a reused cell have different
 * numbers. Inodes have serial 0: the kernel sends no request for an inode that it has forgotten. */
static uint32_t number_serial(uint64_t number)
{
	return (uint32_t)(number >> 32);
}

static uint64_t number_of(uint32_t i)
{
	const struct cell *c = &table.cell[i];
	uint64_t serial = c->type == MCFS_HANDOFF_HANDLE ? c->handle.serial : 0;

	return serial << 32 | (FIRST + i);
}

/* Never 0. */
static uint32_t next_serial_locked(void)
{
	if (!++table.head->serial)
		table.head->serial = 1;
	return table.head->serial;
}

uint64_t mcfs_handoff_add(const struct mcfs_handoff_entry *e, void *object)
{
	struct cell *c;
	uint32_t i;

	if (!table.head || e->key_len > sizeof(table.key))
		return 0;
	MC_LOCKED(&table.lock);
	i = cell_alloc_locked();
	if (!i)
		return 0;
	c = &table.cell[i];
	c->next = 0;
	if (e->type == MCFS_HANDOFF_INODE) {
		c->inode.nlookup = e->nlookup;
		memcpy(c->inode.info, &e->info, INFO_KEPT);
		c->inode.implied = e->implied;
		c->inode.hashed = e->hashed;
		if (cell_write_key_locked(c, e->key, e->key_len) < 0) {
			cell_free_locked(i);
			return 0;
		}
	} else if (e->type == MCFS_HANDOFF_LOCK) {
		c->lock.handle = e->handle;
		c->lock.args = e->lock;
	} else {
		c->handle.inode = e->inode;
		c->handle.unique = e->unique;
		c->handle.type = e->handle_type;
		c->handle.unsaved = e->unsaved;
		__atomic_store_n(&c->handle.serial, next_serial_locked(), __ATOMIC_RELAXED);
	}
	__atomic_store_n(&table.object[i], object, __ATOMIC_RELEASE);
	cell_set_type(c, e->type);
	return number_of(i);
}

static struct cell *cell_of(uint64_t number)
{
	return &table.cell[cell_index(number)];
}

void mcfs_handoff_remove(uint64_t number)
{
	struct cell *c;

	if (!number)
		return;
	c = cell_of(number);
	MC_LOCKED(&table.lock);
	cell_set_type(c, MCFS_HANDOFF_FREE);
	__atomic_store_n(&table.object[cell_index(number)], NULL, __ATOMIC_RELEASE);
	cell_free_rest_locked(c);
	cell_free_locked(cell_index(number));
}

void mcfs_handoff_set_nlookup(uint64_t number, uint64_t n)
{
	if (number)
		__atomic_store_n(&cell_of(number)->inode.nlookup, n, __ATOMIC_RELAXED);
}

void mcfs_handoff_set_hashed(uint64_t number, bool hashed)
{
	if (number)
		__atomic_store_n(&cell_of(number)->inode.hashed, hashed, __ATOMIC_RELAXED);
}

void mcfs_handoff_note_unsaved(uint64_t number, const bool *unsaved)
{
	MC_LOCKED(&table.lock);
	if (mcfs_handoff_at(number))
		cell_of(number)->handle.unsaved = __atomic_load_n(unsaved, __ATOMIC_RELAXED);
}

int mcfs_handoff_set_key(uint64_t number, const void *key, size_t len)
{
	struct cell *c;
	int r;

	if (!number)
		return 0;
	c = cell_of(number);
	MC_LOCKED(&table.lock);
	cell_set_type(c, MCFS_HANDOFF_MOVING);
	cell_free_rest_locked(c);
	r = mc_fault("mcfs.handoff.set_key");
	if (r == 0)
		r = cell_write_key_locked(c, key, len);
	if (r == 0)
		cell_set_type(c, MCFS_HANDOFF_INODE);
	return r;
}

bool mcfs_handoff_is_number(uint64_t number)
{
	return number >= FIRST && number < FIRST + CELLS;
}

void *mcfs_handoff_at(uint64_t number)
{
	uint32_t i = cell_index(number), serial = number_serial(number);
	const struct cell *c;
	void *object;

	if (!table.head || i >= CELLS)
		return NULL;
	c = &table.cell[i];
	object = __atomic_load_n(&table.object[i], __ATOMIC_ACQUIRE);
	if (serial && object && (__atomic_load_n(&c->type, __ATOMIC_RELAXED) != MCFS_HANDOFF_HANDLE ||
	     __atomic_load_n(&c->handle.serial, __ATOMIC_RELAXED) != serial))
		return NULL;
	return object;
}

void mcfs_handoff_bind(uint64_t number, void *object)
{
	__atomic_store_n(&table.object[cell_index(number)], object, __ATOMIC_RELEASE);
}

static void cell_read_inode(const struct cell *c, struct mcfs_handoff_entry *ret)
{
	size_t len = c->inode.key_len, n = len < INLINE_KEY ? len : INLINE_KEY;

	memcpy(&ret->info, c->inode.info, INFO_KEPT);
	ret->nlookup = c->inode.nlookup;
	ret->implied = c->inode.implied;
	ret->hashed = c->inode.hashed;
	ret->key = table.key;
	ret->key_len = len;
	memcpy(table.key, c->inode.key, n);
	for (uint32_t i = c->next; n < len; i = table.cell[i].next) {
		size_t piece = len - n < REST_KEY ? len - n : REST_KEY;

		memcpy(table.key + n, table.cell[i].rest, piece);
		n += piece;
	}
}

uint64_t mcfs_handoff_next(uint64_t number, struct mcfs_handoff_entry *ret)
{
	uint32_t i = number ? cell_index(number) + 1 : 1;

	for (; i < table.head->high; i++) {
		const struct cell *c = &table.cell[i];

		if (c->type != MCFS_HANDOFF_INODE && c->type != MCFS_HANDOFF_HANDLE &&
		    c->type != MCFS_HANDOFF_LOCK)
			continue;
		memset(ret, 0, sizeof(*ret));
		ret->type = (enum mcfs_handoff_type)c->type;
		if (c->type == MCFS_HANDOFF_INODE) {
			cell_read_inode(c, ret);
		} else if (c->type == MCFS_HANDOFF_LOCK) {
			ret->handle = c->lock.handle;
			ret->lock = c->lock.args;
		} else {
			ret->inode = c->handle.inode;
			ret->unique = c->handle.unique;
			ret->handle_type = c->handle.type;
			ret->unsaved = c->handle.unsaved;
		}
		return number_of(i);
	}
	return 0;
}
