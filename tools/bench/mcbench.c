/* SPDX-License-Identifier: Apache-2.0
 * mcbench.c - the command line, the connection. */
#include <config.h>

#include "tools/bench/mcbench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/process/stdfds.h"
#include "common/security/secret.h"

static const struct command {
	const char *name, *args, *help;
	int args_n;
	int (*run)(struct mcbench *b);
} commands[] = {
	{ "replay", "TRACE", "replay the requests of inference engines from a trace (JSON "
			     "lines)", 1, mcbench_replay },
	{ "bench", "", "measure put, get and exists, and compare with memcpy and a socket", 0,
	  mcbench_micro },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct mc_opt_row rows[] = {
#define OPT(commands, ...) MC_OPT_ROW(struct mcbench_conf, __VA_ARGS__)
#include "tools/bench/mcbench.def"
#undef OPT
	{ .name = NULL },
};

static const char *const rows_commands[] = {
#define OPT(commands, ...) commands,
#include "tools/bench/mcbench.def"
#undef OPT
};

static char *commands_text(void)
{
	char *text = NULL, usage[64];
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return NULL;
	fprintf(f, "Commands:\n");
	for (size_t i = 0; i < N_COMMANDS; i++) {
		snprintf(usage, sizeof(usage), "%s %s", commands[i].name, commands[i].args);
		fprintf(f, "  %-14s  %s\n", usage, commands[i].help);
	}
	fclose(f);
	return text;
}

static int connect_store(struct mcbench *b)
{
	int r = mcbench_open(b->conf, b->conf->master, b->conf->segment_size, &b->store);

	if (r < 0)
		return mcbench_complain(MCBENCH_FAILED, "cannot use the store at %s: %s\n"
			"         is the master running?  Give its address with --master=HOST:PORT or "
			"in $MOONCAKE_MASTER", b->conf->master, mcs_error_detail(r));
	return MCBENCH_OK;
}

/* Without memory in the pool every put would fail. */
static int check_pool(struct mcbench *b)
{
	struct mcs_pool pool;
	int r = mcs_pool_stat(b->store, &pool, -1);

	if (r < 0)
		return mcbench_complain(MCBENCH_FAILED, "cannot ask for the pool: %s", mcs_error_detail(r));
	if (pool.capacity == 0)
		return mcbench_complain(MCBENCH_FAILED, "the pool has no memory: start a node that "
					"contributes memory, or give --segment_size");
	return MCBENCH_OK;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

static int check_usage(const struct mc_options *o, const struct command *cmd)
{
	if (mc_options_argc(o) - 1 != cmd->args_n)
		return mcbench_complain(MCBENCH_USAGE, "usage: mcbench [OPTION]... %s %s",
					cmd->name, cmd->args);
	for (size_t i = 0; rows[i].name; i++)
		if (*rows_commands[i] && strcmp(rows_commands[i], cmd->name) &&
		    mc_options_origin(o, rows[i].name) == MC_ORIGIN_ARG)
			return mcbench_complain(MCBENCH_USAGE, "--%s is not an option of %s; it belongs to "
						"%s", rows[i].name, cmd->name, rows_commands[i]);
	return MCBENCH_OK;
}

/* With --pool_blocks, mcbench has masters of its own. */
static int check_sweep(const struct mc_options *o, const struct mcbench_conf *conf)
{
	static const char *const without[] = { "policies", "master_program", "csv", "plot" };
	static const char *const against[][2] = {
		{ "master", "each pool gets a master of its own" },
		{ "segment_size", "the number of blocks determines the memory" },
		{ "keep", "the objects disappear with their master" },
	};

	for (size_t i = 0; i < sizeof(without) / sizeof(without[0]) && !*conf->pool_blocks; i++)
		if (mc_options_origin(o, without[i]) == MC_ORIGIN_ARG)
			return mcbench_complain(MCBENCH_USAGE, "--%s needs --pool_blocks", without[i]);
	for (size_t i = 0; i < sizeof(against) / sizeof(against[0]) && *conf->pool_blocks; i++)
		if (mc_options_origin(o, against[i][0]) == MC_ORIGIN_ARG)
			return mcbench_complain(MCBENCH_USAGE, "--%s cannot be combined with --pool_blocks: %s",
						against[i][0], against[i][1]);
	return MCBENCH_OK;
}

static int run_command(const struct mc_options *o, const struct mcbench_conf *conf)
{
	struct mcbench b = { .conf = conf };
	const struct command *cmd = NULL;
	const char *arg;
	int status;

	if (mc_options_argc(o))
		cmd = find_command(mc_options_argv(o, 0));
	if (!cmd)
		return mcbench_complain(MCBENCH_USAGE, "give a command, replay or bench; --help "
					"tells more");
	status = check_usage(o, cmd);
	if (status == MCBENCH_OK)
		status = check_sweep(o, conf);
	if (status != MCBENCH_OK)
		return status;
	arg = mc_options_argv(o, 1);
	b.argv = &arg;
	b.argc = cmd->args_n;
	if (*conf->pool_blocks)
		return mcbench_sweep(&b);
	status = connect_store(&b);
	if (status == MCBENCH_OK)
		status = check_pool(&b);
	if (status == MCBENCH_OK)
		status = cmd->run(&b);
	mcs_close(b.store);
	return status;
}

int main(int argc, char **argv)
{
	auto_free char *details = commands_text();
	const struct mc_program prog = {
		.name = "mcbench",
		.synopsis = "[OPTION]... COMMAND [ARG]",
		.summary = "Load the object store and measure it",
		.details = details,
		.rows = rows,
		.strict = true,
	};
	struct mcbench_conf conf;
	struct mc_options *o;
	int r;

	mc_stdfds_open();
	r = mc_options_parse(&prog, argc, argv, &conf, &o);
	if (r > 0)
		return MCBENCH_OK;
	if (r < 0)
		return mcbench_complain(MCBENCH_USAGE, "%s", mc_err_detail(r));
	mc_credential_use(conf.credential);
	mc_env_scrub();
	mcbench_catch_signals();
	r = run_command(o, &conf);
	mc_options_free(o);
	if (fflush(stdout) || ferror(stdout)) {
		mcbench_complain(MCBENCH_FAILED, "cannot write to standard output: %s", mc_strerror(errno));
		r = r ? r : MCBENCH_FAILED;
	}
	return r;
}
