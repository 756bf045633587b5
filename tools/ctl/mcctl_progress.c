/* SPDX-License-Identifier: Apache-2.0
 * mcctl_progress.c - progress bar on the terminal for long operations. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <string.h>
#include <unistd.h>

#include "common/sys/clock.h"
#include "tools/bar.h"

#define FIRST_NS (500 * MC_NS_PER_MS)	/* quick work shows no bar */
#define EACH_NS (100 * MC_NS_PER_MS)

void mcctl_progress_begin(struct mcctl_progress *p, const char *what, uint64_t total)
{
	memset(p, 0, sizeof(*p));
	p->what = what;
	p->total = total;
	p->shown = isatty(STDERR_FILENO);
	p->begun_ns = mc_now_ns();
	p->next_ns = p->begun_ns + FIRST_NS;
}

void mcctl_progress_step(struct mcctl_progress *p, uint64_t done)
{
	uint64_t now;
	char buf[32], bar[MCCTL_BAR_LEN];
	double seconds;

	if (!p->shown)
		return;
	now = mc_now_ns();
	if (now < p->next_ns)
		return;
	p->next_ns = now + EACH_NS;
	p->drawn = true;
	seconds = (double)(now - p->begun_ns) / (double)MC_NS_PER_SEC;
	fprintf(stderr, "\r%s", p->what);
	if (p->total)
		fprintf(stderr, " %s of %s", mcctl_bar(done, p->total, bar),
			mc_format_size(p->total, buf, sizeof(buf)));
	else
		fprintf(stderr, " %s", mc_format_size(done, buf, sizeof(buf)));
	if (done)
		fprintf(stderr, ", %s/s", mc_format_size((uint64_t)((double)done / seconds), buf,
							 sizeof(buf)));
	fputs("\033[K", stderr);
	fflush(stderr);
}

void mcctl_progress_end(struct mcctl_progress *p)
{
	if (!p->drawn)
		return;
	fputs("\r\033[K", stderr);
	fflush(stderr);
	p->drawn = false;
}
