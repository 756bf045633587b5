/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include <mooncake/mcs.h>

static int fail(const char *what, int64_t err)
{
	fprintf(stderr, "%s: %s\n", what, mcs_error_detail((int)err));
	return EXIT_FAILURE;
}

int main(void)
{
	static char text[] = "hello, pool";
	const struct mcs_key key = { "greetings/1", 11 };
	struct iovec iov = { text, sizeof(text) };
	struct mcs_conf conf;
	void *data;
	int64_t n;
	mcs_t *s;

	mcs_conf_init(&conf);
	if (getenv("MOONCAKE_MASTER"))
		conf.master = getenv("MOONCAKE_MASTER");
	conf.segment_size = 64 << 20;
	n = mcs_open(&conf, &s);
	if (n < 0)
		return fail("cannot join the pool", n);

	n = mcs_put(s, key, &iov, 1, NULL, -1);
	if (n < 0)
		return fail("cannot store", n);
	n = mcs_get_alloc(s, key, &data, -1);
	if (n == -MCS_ENOOBJECT)
		return fail("evicted meanwhile", n);
	if (n < 0)
		return fail("cannot read", n);
	printf("%lld bytes: %s\n", (long long)n, (char *)data);
	free(data);

	n = mcs_remove(s, key, MCS_REMOVE_FORCE, -1);
	mcs_close(s);
	return n < 0 ? fail("cannot remove", n) : EXIT_SUCCESS;
}
