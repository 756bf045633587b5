/* SPDX-License-Identifier: Apache-2.0
 * ssd_actor.c - a client that puts and gets blocks of known bytes.
 *
 *	ssd_actor MASTER put|get FIRST N BYTES [PAUSE_US]
 *
 * "put" stores the blocks FIRST..FIRST+N-1, with $NOF copies of each on NoF disks; "get" reads and compares them; both
 * pause after each one.  Prints "equal E miss M error X"; "get" ends with status 3 when a block has other bytes. */
#include <config.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <mooncake/mcs.h>

static void fill(unsigned char *p, size_t n, uint64_t seed)
{
	uint64_t x = seed * 0x9e3779b97f4a7c15ull + 1;

	for (size_t i = 0; i < n; i++) {
		if (i % 8 == 0) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
		}
		p[i] = (unsigned char)(x >> 8 * (i % 8));
	}
}

int main(int argc, char **argv)
{
	unsigned equal = 0, miss = 0, error = 0, wrong = 0, first, n;
	unsigned char *want, *got;
	struct mcs_put_opts opts = { .flags = 0 };
	struct mcs_conf conf;
	size_t bytes;
	bool put;
	mcs_t *s;

	if (argc < 6)
		return 2;
	put = !strcmp(argv[2], "put");
	if (getenv("NOF")) {
		opts.flags = MCS_PUT_NOF;
		opts.nof_replicas = (unsigned)atoi(getenv("NOF"));
	}
	first = (unsigned)atoi(argv[3]);
	n = (unsigned)atoi(argv[4]);
	bytes = (size_t)atol(argv[5]);
	want = malloc(bytes);
	got = malloc(bytes);
	mcs_conf_init(&conf);
	conf.master = argv[1];
	conf.daemon = "off";
	if (!want || !got || mcs_open(&conf, &s) < 0)
		return 1;
	for (unsigned i = first; i < first + n; i++) {
		char name[32];
		struct mcs_key key = { name, (size_t)snprintf(name, sizeof(name), "block/%u", i) };
		struct iovec iov = { put ? want : got, bytes };
		int64_t r;

		fill(want, bytes, i);
		r = put ? mcs_put(s, key, &iov, 1, &opts, -1) : mcs_get(s, key, &iov, 1, 10000);
		if (argc > 6)
			usleep((useconds_t)atoi(argv[6]));
		if (r == -MCS_ENOOBJECT) {
			miss++;
		} else if (r < 0) {
			if (!error++)
				fprintf(stderr, "block %u: %s\n", i, mcs_error_detail((int)r));
		} else if (!put && ((size_t)r != bytes || memcmp(want, got, bytes))) {
			wrong++;
		} else {
			equal++;
		}
	}
	printf("equal %u miss %u error %u\n", equal, miss, error);
	mcs_close(s);
	free(want);
	free(got);
	return wrong ? 3 : put && equal < n ? 1 : 0;
}
