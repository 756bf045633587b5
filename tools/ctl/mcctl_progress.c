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

const char *mcctl_left_text(uint64_t left, double rate, char *buf, size_t len)
{
	double s = rate > 0 ? (double)left / rate : 1e9;

	if (s < 100)
		snprintf(buf, len, "%.0f s", s);
	else if (s < 6000)
		snprintf(buf, len, "%.0f min", s / 60);
	else if (s < 100 * 3600.)
		snprintf(buf, len, "%.0f h", s / 3600);
	else
		snprintf(buf, len, "days");
	return buf;
}

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
	if (p->total && done)
		fprintf(stderr, ", %s left", mcctl_left_text(done < p->total ? p->total - done : 0,
							     (double)done / seconds, buf, sizeof(buf)));
	if (*p->more)
		fprintf(stderr, ", %s", p->more);
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
