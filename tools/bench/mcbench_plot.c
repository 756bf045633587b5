/* SPDX-License-Identifier: Apache-2.0
 * mcbench_plot.c - draw hit ratios over pool sizes, by a program that can draw. */
#include <config.h>

#include "tools/bench/mcbench_sweep.h"

#include <errno.h>
#include <inttypes.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"

#define ABSENT 77	/* exit status of the Python program without matplotlib */

extern char **environ;

/* Reads "POLICY POOL RATIO" lines. */
static char python_program[] =
	"import sys\n"
	"try:\n"
	"    import matplotlib\n"
	"    matplotlib.use('Agg')\n"
	"    import matplotlib.pyplot as plt\n"
	"except ImportError:\n"
	"    sys.exit(77)\n"
	"curves = {}\n"
	"for line in sys.stdin:\n"
	"    policy, pool, ratio = line.rsplit(None, 2)\n"
	"    curves.setdefault(policy, []).append((int(pool), float(ratio)))\n"
	"fig, ax = plt.subplots(figsize=(9, 6))\n"
	"for policy, points in curves.items():\n"
	"    ax.plot(*zip(*points), marker='o', label=policy)\n"
	"ax.set(xscale='log', xlabel='pool size (blocks)', ylabel='usable hits (% of blocks)')\n"
	"ax.grid(True)\n"
	"ax.legend()\n"
	"try:\n"
	"    fig.savefig(sys.argv[1])\n"
	"except OSError as e:\n"
	"    sys.exit(str(e))\n";

static const char *path_extension(const char *path)
{
	const char *dot = strrchr(path, '.');

	return dot ? dot + 1 : "";
}

bool mcbench_plot_name(const char *path)
{
	return !strcmp(path_extension(path), "png") || !strcmp(path_extension(path), "svg");
}

/* A policy's points, in the order of the pools' sizes. */
static void write_points(const struct mcbench_grid *g, unsigned policy, const char *prefix, FILE *to)
{
	uint64_t done = 0;

	for (unsigned i = 0; i < g->n_pools; i++) {
		unsigned least = g->n_pools;

		for (unsigned k = 0; k < g->n_pools; k++)
			if (g->pools[k] > done && (least == g->n_pools || g->pools[k] < g->pools[least]))
				least = k;
		if (least == g->n_pools)
			return;
		done = g->pools[least];
		if (g->results[least * g->n_policies + policy].complete)
			fprintf(to, "%s%" PRIu64 " %.4f\n", prefix, done,
				g->results[least * g->n_policies + policy].hit_ratio);
	}
}

/* In gnuplot's single quotes, only a quote is special. */
static void write_quoted(const char *s, FILE *to)
{
	putc('\'', to);
	for (; *s; s++) {
		if (*s == '\'')
			putc('\'', to);
		putc(*s, to);
	}
	putc('\'', to);
}

static void write_gnuplot(const struct mcbench_grid *g, const char *path, FILE *to)
{
	bool svg = !strcmp(path_extension(path), "svg");

	for (unsigned j = 0; j < g->n_policies; j++) {
		fprintf(to, "$p%u << END\n", j);
		write_points(g, j, "", to);
		fprintf(to, "END\n");
	}
	/* Not every gnuplot was built with cairo. */
	fprintf(to, svg ? "set terminal svg size 900,600 background rgb 'white' noenhanced\n" :
		"if (strstrt(GPVAL_TERMINALS, 'pngcairo')) { set terminal pngcairo size 900,600 noenhanced } "
		"else { set terminal png size 900,600 noenhanced }\n");
	fprintf(to, "set output ");
	write_quoted(path, to);
	fprintf(to, "\nset logscale x\nset grid\nset key left top\nset yrange [0:]\n"
		"set xlabel 'pool size (blocks)'\nset ylabel 'usable hits (%% of blocks)'\nplot ");
	for (unsigned j = 0; j < g->n_policies; j++) {
		fprintf(to, "%s$p%u with linespoints linewidth 2 title ", j ? ", " : "", j);
		write_quoted(g->policies[j], to);
	}
	fprintf(to, "\n");
}

static void write_python(const struct mcbench_grid *g, const char *path, FILE *to)
{
	char prefix[300];

	(void)path;
	for (unsigned j = 0; j < g->n_policies; j++) {
		snprintf(prefix, sizeof(prefix), "%s ", g->policies[j]);
		write_points(g, j, prefix, to);
	}
}

/* Run argv[0] with the written text as its input: its exit status; -ENOENT: there is no such program. */
static int draw_plot(const struct mcbench_grid *g, const char *path, char **argv,
		     void (*write)(const struct mcbench_grid *g, const char *path, FILE *to))
{
	int fd = memfd_create("plot", MFD_CLOEXEC), err, status = 0;
	posix_spawn_file_actions_t actions;
	auto_free char **env = mc_env_public();
	FILE *f = fd < 0 ? NULL : fdopen(dup(fd), "w");
	pid_t pid;

	if (f) {
		write(g, path, f);
		err = fclose(f) || lseek(fd, 0, SEEK_SET) < 0 ? errno : 0;
	} else {
		err = errno;
	}
	if (!err && !env)
		err = ENOMEM;
	if (!err) {
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_adddup2(&actions, fd, STDIN_FILENO);
		err = posix_spawnp(&pid, argv[0], &actions, NULL, argv, env);
		posix_spawn_file_actions_destroy(&actions);
	}
	if (fd >= 0)
		close(fd);
	if (err)
		return -err;
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

static bool any_complete(const struct mcbench_grid *g)
{
	for (unsigned i = 0; i < g->n_pools * g->n_policies; i++)
		if (g->results[i].complete)
			return true;
	return false;
}

int mcbench_plot(const struct mcbench_grid *g, const char *path)
{
	char gnuplot[] = "gnuplot", from_stdin[] = "-", python[] = "python3", command[] = "-c";
	char *gnuplot_argv[] = { gnuplot, from_stdin, NULL };
	char *python_argv[] = { python, command, python_program, strdup(path), NULL };
	const char *program = gnuplot;
	int r;

	if (!any_complete(g) || !python_argv[3]) {
		free(python_argv[3]);
		return MCBENCH_OK;
	}
	r = draw_plot(g, path, gnuplot_argv, write_gnuplot);
	if (r == -ENOENT) {
		program = python;
		r = draw_plot(g, path, python_argv, write_python);
	}
	free(python_argv[3]);
	if (r == 0)
		return MCBENCH_OK;
	if (r == -ENOENT || (r == ABSENT && program == python))
		return mcbench_complain(MCBENCH_OK, "%s is not drawn: there is neither gnuplot nor python3 with "
					"matplotlib", path);
	if (r < 0)
		return mcbench_complain(MCBENCH_FAILED, "cannot run %s to draw %s: %s", program, path, mc_strerror(r));
	return mcbench_complain(MCBENCH_FAILED, "%s cannot draw %s: it ended with status %d", program, path, r);
}
