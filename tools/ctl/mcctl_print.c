/* SPDX-License-Identifier: Apache-2.0
 * mcctl_print.c - output formats shared by several commands. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <time.h>

enum mcctl_status mcctl_json_print(json_t *j)
{
	int r = j ? json_dumpf(j, stdout, JSON_INDENT(2)) : -1;

	json_decref(j);
	putchar('\n');
	return r < 0 ? mcctl_complain(MCCTL_FAILED, "cannot print JSON") : MCCTL_OK;
}

const char *mcctl_kind_name(enum mcs_kind kind)
{
	switch (kind) {
	case MCS_DIR:
		return "directory";
	case MCS_SYMLINK:
		return "symlink";
	case MCS_SPECIAL:
		return "special";
	case MCS_OBJECT:
		break;
	}
	return "object";
}

const char *mcctl_time_text(uint64_t ms, char *buf, size_t len)
{
	time_t t = (time_t)(ms / 1000);
	struct tm tm;

	if (!localtime_r(&t, &tm) || !strftime(buf, len, "%Y-%m-%d %H:%M:%S", &tm))
		snprintf(buf, len, "%llu", (unsigned long long)ms);
	return buf;
}
