/* SPDX-License-Identifier: Apache-2.0
 * list.h - intrusive doubly linked list with a sentinel head; no locking, no ownership. */
#ifndef MC_LIST_H
#define MC_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct mc_list {
	struct mc_list *prev, *next;
};

#define mc_container_of(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))

static inline void mc_list_init(struct mc_list *l)
{
	l->prev = l->next = l;
}

static inline bool mc_list_empty(const struct mc_list *head)
{
	return head->next == head;
}

static inline void mc_list_insert(struct mc_list *prev, struct mc_list *next, struct mc_list *e)
{
	e->prev = prev;
	e->next = next;
	prev->next = e;
	next->prev = e;
}

static inline void mc_list_push_back(struct mc_list *head, struct mc_list *e)
{
	mc_list_insert(head->prev, head, e);
}

static inline void mc_list_push_front(struct mc_list *head, struct mc_list *e)
{
	mc_list_insert(head, head->next, e);
}

/* Removing an initialised element that is not on a list is harmless. */
static inline void mc_list_remove(struct mc_list *e)
{
	e->prev->next = e->next;
	e->next->prev = e->prev;
	mc_list_init(e);
}

/* Move all elements of @from to the end of @head. */
static inline void mc_list_move(struct mc_list *head, struct mc_list *from)
{
	while (!mc_list_empty(from)) {
		struct mc_list *e = from->next;

		mc_list_remove(e);
		mc_list_push_back(head, e);
	}
}

#define mc_list_first(head, type, member) mc_container_of((head)->next, type, member)

#define mc_list_for_each(pos, head) \
	for (pos = (head)->next; pos != (head); pos = pos->next)

/* @pos may be removed inside the loop. */
#define mc_list_for_each_safe(pos, tmp, head) \
	for (pos = (head)->next, tmp = pos->next; pos != (head); pos = tmp, tmp = pos->next)

#endif
