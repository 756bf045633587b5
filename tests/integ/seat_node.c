/* SPDX-License-Identifier: Apache-2.0
 * seat_node.c CONN CLUSTER NAME TTL_MS - a process that may lead a cluster; it executes one command per line of input
 * and prints one line for each: the result, or the error.
 *
 *	look			"term=N leader=NAME members=A,B"
 *	take [TERM]		"term=N"
 *	replace			"term=N"
 *	renew | leave
 *	members A,B
 *	leads			"yes" or "no": by its own clock
 *	end */
#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/sys/clock.h"
#include "common/err.h"
#include "common/log.h"
#include "meta/seat.h"

#define CALL_MS 3000

static void answer(int r)
{
	if (r < 0)
		printf("%d %s: %s\n", r, mc_strerror(r), mc_err_detail(r));
	else
		printf("ok\n");
}

static void look(struct mcd_seat *s)
{
	struct mcd_seat_view v;
	int r = mcd_seat_look(s, &v, mc_deadline_ms(CALL_MS));

	if (r < 0) {
		answer(r);
		return;
	}
	printf("term=%" PRIu64 " leader=%s members=", v.term, v.leader);
	for (unsigned i = 0; i < v.n; i++)
		printf("%s%s", i ? "," : "", v.member[i]);
	printf("\n");
}

static void lead(struct mcd_seat *s, const char *least, bool replace)
{
	uint64_t term = 0, end = mc_deadline_ms(CALL_MS);
	int r = replace ? mcd_seat_replace(s, end, &term) :
		mcd_seat_take(s, least ? strtoull(least, NULL, 10) : 0, end, &term);

	if (r < 0)
		answer(r);
	else
		printf("term=%" PRIu64 "\n", term);
}

static void members(struct mcd_seat *s, char *list)
{
	const char *member[MCD_SEAT_MEMBERS_MAX];
	unsigned n = 0;

	for (char *at = strtok(list, ","); at && n < MCD_SEAT_MEMBERS_MAX; at = strtok(NULL, ","))
		member[n++] = at;
	answer(mcd_seat_set_members(s, member, n, mc_deadline_ms(CALL_MS)));
}

int main(int argc, char **argv)
{
	struct mcd_seat_conf conf;
	char line[1024];
	struct mcd_seat *s;
	int r;

	if (argc != 5)
		return 2;
	conf = (struct mcd_seat_conf){
		.conn = argv[1], .cluster = argv[2], .name = argv[3], .ttl_ms = (unsigned)atoi(argv[4]),
	};
	setvbuf(stdout, NULL, _IOLBF, 0);
	r = mcd_seat_open(&conf, &s);
	if (r < 0) {
		fprintf(stderr, "%s\n", mc_err_detail(r));
		return 1;
	}
	while (fgets(line, sizeof(line), stdin)) {
		char *command = strtok(line, " \n"), *arg = strtok(NULL, " \n");

		if (!command || !strcmp(command, "end"))
			break;
		if (!strcmp(command, "look"))
			look(s);
		else if (!strcmp(command, "take") || !strcmp(command, "replace"))
			lead(s, arg, *command == 'r');
		else if (!strcmp(command, "renew"))
			answer(mcd_seat_renew(s, mc_deadline_ms(CALL_MS)));
		else if (!strcmp(command, "leave"))
			answer(mcd_seat_leave(s, mc_deadline_ms(CALL_MS)));
		else if (!strcmp(command, "members") && arg)
			members(s, arg);
		else if (!strcmp(command, "leads"))
			printf("%s\n", mc_now_ns() < mcd_seat_until(s) ? "yes" : "no");
		else
			printf("unknown command\n");
	}
	mcd_seat_close(s);
	return 0;
}
