/* SPDX-License-Identifier: Apache-2.0
 * mcctl.c - the command line: which command, which options it takes, the connection. */
#include <config.h>

#include "tools/ctl/mcctl.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/env.h"
#include "common/err.h"
#include "common/process/stdfds.h"
#include "common/security/secret.h"
#include "tools/ctl/mcctl_pool.h"

#define SETUP_TIMEOUT_MS 5000

static const struct command {
	const char *name;
	const char *args;
	const char *help;
	int min_args, max_args;		/* max -1: any number */
	enum {
		CONNECTS,
		OFFLINE,		/* runs without a connection, or connects by itself */
	} kind;
	int (*run)(struct mcctl *c);
} commands[] = {
	{ "ls", "[PREFIX]", "list keys, one level or recursively", 0, 1, CONNECTS, mcctl_ls },
	{ "stat", "KEY...", "show the attributes of objects", 1, -1, CONNECTS, mcctl_stat },
	{ "get", "KEY [FILE|-]", "write an object's bytes to a file or to standard output", 1, 2,
	  CONNECTS, mcctl_get },
	{ "put", "KEY [FILE|-]", "store a file or standard input", 1, 2, CONNECTS, mcctl_put },
	{ "rm", "KEY...", "remove objects; --prefix and --match remove many", 0, -1, CONNECTS,
	  mcctl_rm },
	{ "mv", "FROM TO", "rename an object, or a directory, atomically", 2, 2, CONNECTS, mcctl_mv },
	{ "df", "", "show the pool and its segments", 0, 0, CONNECTS, mcctl_df },
	{ "segments", "", "the same as df", 0, 0, CONNECTS, mcctl_df },
	{ "drain", "SEGMENT...", "move all objects off segments, and allocate nothing new there", 1, -1,
	  CONNECTS, mcctl_drain },
	{ "evict", "SEGMENT...", "evict all evictable objects of segments", 1, -1, CONNECTS,
	  mcctl_evict },
	{ "rebalance", "", "move objects from full segments to empty ones", 0, 0, CONNECTS,
	  mcctl_rebalance },
	{ "copy", "KEY SEGMENT...", "give an object copies on segments", 2, -1, CONNECTS,
	  mcctl_copy },
	{ "move", "KEY FROM TO", "move an object's copy between segments", 3, 3, CONNECTS,
	  mcctl_move },
	{ "offload", "KEY...", "copy objects to the disks of their nodes soon", 1, -1, CONNECTS,
	  mcctl_offload },
	{ "promote", "KEY...", "copy objects that are on a disk only back to memory soon", 1, -1, CONNECTS,
	  mcctl_promote },
	{ "tasks", "[ID]", "show tasks; --cancel cancels one", 0, 1, CONNECTS, mcctl_tasks },
	{ "tenants", "", "show tenants, their use and their quotas", 0, 0, CONNECTS,
	  mcctl_tenants },
	{ "quota", "TENANT [SIZE]", "show or set a tenant's quota; 0 removes it", 1, 2,
	  CONNECTS, mcctl_quota },
	{ "watch", "[PREFIX]", "print changes of keys as they happen", 0, 1, CONNECTS,
	  mcctl_watch },
	{ "top", "", "print figures and rates every --interval", 0, 0, CONNECTS, mcctl_top },
	{ "doctor", "[DIR]...", "diagnose the pool and the given mounts (default: all), with advice", 0,
	  -1, CONNECTS, mcctl_doctor },
	{ "snapshot", "[create|list|verify [ID]|restore ID]", "write, list, check and choose snapshots of the index",
	  0, 2, OFFLINE, mcctl_snapshot },
	{ "quarantine", "[list|release CLIENT]", "show memory that writers of aborted puts keep, and take it back", 0,
	  2, OFFLINE, mcctl_quarantine },
	{ "nof", "[list|connect NQN ADDRESS[:PORT]|disconnect NQN]", "use disks of other hosts over NVMe-oF", 0, 3,
	  OFFLINE, mcctl_nof },
	{ "import", "s3://BUCKET/PREFIX", "put the objects of an S3 segment of another pool into this one", 1, 1,
	  CONNECTS, mcctl_import },
	{ "credential", "[create FILE|list|revoke SERIAL|token [FILE]]", "make, list and revoke credentials; make a "
	  "token for HTTP", 0, 2, OFFLINE, mcctl_credential },
	{ "failover", "", "make the master that leads several step down for a standby", 0, 0, OFFLINE, mcctl_failover },
	{ "whatif", "", "estimate the hit ratio with less or more memory", 0, 0, OFFLINE, mcctl_whatif },
	{ "health", "", "check the health of the master; exit status 0, 1 or 2", 0, 0, OFFLINE,
	  mcctl_health },
};

#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct mc_opt_row rows[] = {
#define OPT(commands, ...) MC_OPT_ROW(struct mcctl_conf, __VA_ARGS__)
#include "tools/ctl/mcctl.def"
#undef OPT
	{ .name = NULL },
};

/* The commands that take the option row of the same index. */
static const char *const rows_commands[] = {
#define OPT(commands, ...) commands,
#include "tools/ctl/mcctl.def"
#undef OPT
};

static const struct mc_opt_alias aliases[] = {
	{ "0", "null" },
	{ "R", "recursive" },
	{ "U", "unsorted" },
	{ "f", "force" },
	{ "l", "long_format" },
	{ "long", "long_format" },
	{ "y", "yes" },
	{ NULL, NULL },
};

static bool has_word(const char *words, const char *word)
{
	size_t n = strlen(word);

	for (const char *s = words; (s = strstr(s, word)); s += n)
		if ((s == words || s[-1] == ' ') && (!s[n] || s[n] == ' '))
			return true;
	return false;
}

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (!strcmp(commands[i].name, name))
			return &commands[i];
	return NULL;
}

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
		fprintf(f, "  %-20s  %s\n", usage, commands[i].help);
	}
	fclose(f);
	return text;
}

/* An option that the command does not use is a mistake, perhaps a dangerous one. */
static enum mcctl_status check_options(const struct mc_options *o, const struct command *cmd)
{
	for (size_t i = 0; rows[i].name; i++) {
		if (!*rows_commands[i] || has_word(rows_commands[i], cmd->name) ||
		    mc_options_origin(o, rows[i].name) != MC_ORIGIN_ARG)
			continue;
		return mcctl_complain(MCCTL_USAGE, "--%s is not an option of %s; it belongs to: %s",
				      rows[i].name, cmd->name, rows_commands[i]);
	}
	return MCCTL_OK;
}

static enum mcctl_status check_count(const struct command *cmd, int argc)
{
	if (argc >= cmd->min_args && (cmd->max_args < 0 || argc <= cmd->max_args))
		return MCCTL_OK;
	return mcctl_complain(MCCTL_USAGE, "%s arguments; usage: mcctl [OPTION]... %s %s",
			      argc < cmd->min_args ? "too few" : "too many", cmd->name, cmd->args);
}

int mcctl_open(const struct mcctl_conf *conf, int64_t timeout_ms, mcs_t **ret)
{
	struct mcs_conf mc;

	mcs_conf_init(&mc);
	mc.master = conf->master;
	mc.credential = conf->credential;
	mc.daemon = "off";
	mc.timeout_ms = timeout_ms;
	mc.setup_timeout_ms = timeout_ms < SETUP_TIMEOUT_MS ? timeout_ms : SETUP_TIMEOUT_MS;
	return mcs_open(&mc, ret);
}

static enum mcctl_status connect_store(struct mcctl *c)
{
	int r = mcctl_open(c->conf, (int64_t)c->conf->timeout, &c->store);

	return r < 0 ? mcctl_error(r, "cannot use the store at %s", c->conf->master) : MCCTL_OK;
}

/* Replace conf->master by that of --mount, in the buffer @addr. */
static enum mcctl_status choose_pool(struct mcctl *c, struct mcctl_conf *conf, const struct mc_options *o,
				     const struct command *cmd, char addr[MCCTL_POOL_ADDR])
{
	enum mc_opt_origin origin = mc_options_origin(o, "master");
	enum mcctl_status status = MCCTL_OK;

	addr[0] = '\0';
	if (*conf->mount && origin == MC_ORIGIN_ARG)
		return mcctl_complain(MCCTL_USAGE, "--mount and --master exclude each other");
	if (*conf->mount)
		status = mcctl_pool_of_mount(conf->mount, addr, &c->local);
	else if (origin == MC_ORIGIN_DEFAULT && cmd->kind != OFFLINE)
		status = mcctl_pool_check_default(conf->master);
	if (*addr)
		conf->master = addr;
	return status;
}

static enum mcctl_status run_command(const struct mc_options *o, struct mcctl_conf *conf)
{
	struct mcctl c = { .conf = conf };
	auto_free const char **argv = NULL;
	char addr[MCCTL_POOL_ADDR];
	const struct command *cmd;
	enum mcctl_status status;

	if (mc_options_argc(o) == 0)
		return mcctl_complain(MCCTL_USAGE, "no command given; --help lists them");
	cmd = find_command(mc_options_argv(o, 0));
	if (!cmd)
		return mcctl_complain(MCCTL_USAGE, "\"%s\" is not a command; --help lists them",
				      mc_options_argv(o, 0));
	c.argc = mc_options_argc(o) - 1;
	argv = calloc((size_t)c.argc + 1, sizeof(*argv));
	if (!argv)
		return mcctl_complain(MCCTL_FAILED, "out of memory");
	for (int i = 0; i < c.argc; i++)
		argv[i] = mc_options_argv(o, i + 1);
	c.argv = argv;

	status = check_options(o, cmd);
	if (status == MCCTL_OK)
		status = check_count(cmd, c.argc);
	if (status == MCCTL_OK)
		status = choose_pool(&c, conf, o, cmd, addr);
	if (status == MCCTL_OK && cmd->kind != OFFLINE)
		status = connect_store(&c);
	if (status == MCCTL_OK)
		status = (enum mcctl_status)cmd->run(&c);
	mcs_close(c.store);
	return status;
}

int main(int argc, char **argv)
{
	auto_free char *details = commands_text();
	const struct mc_program prog = {
		.name = "mcctl",
		.synopsis = "[OPTION]... COMMAND [ARG]...",
		.summary = "Inspect and change the object store",
		.details = details,
		.rows = rows,
		.aliases = aliases,
		.strict = true,
	};
	struct mcctl_conf conf;
	struct mc_options *o;
	int r;

	mc_stdfds_open();
	/* "mcctl ls | head" must end quietly; sockets report EPIPE themselves. */
	signal(SIGPIPE, SIG_DFL);
	r = mc_options_parse(&prog, argc, argv, &conf, &o);
	if (r > 0)
		return MCCTL_OK;
	if (r < 0)
		return (int)mcctl_complain(MCCTL_USAGE, "%s", mc_err_detail(r));
	mc_credential_use(conf.credential);
	mc_env_scrub();
	r = (int)run_command(o, &conf);
	mc_options_free(o);
	if (fflush(stdout) || ferror(stdout)) {
		mcctl_complain(MCCTL_FAILED, "cannot write to standard output: %s", mc_strerror(errno));
		r = r ? r : MCCTL_FAILED;
	}
	return r;
}
