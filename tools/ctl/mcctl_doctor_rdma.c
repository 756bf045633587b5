/* SPDX-License-Identifier: Apache-2.0
 * mcctl_doctor_rdma.c - diagnosis of RDMA on this host: NICs, their ports and addresses, the library, and the right to
 * lock memory.  There is no line on a host without RDMA NICs. */
#include <config.h>

#include "tools/ctl/mcctl_doctor.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/env.h"

#define NICS "/sys/class/infiniband"
/* Less than a small segment. */
#define LOCKED_MIN (64ull << 20)

/* The first line of a file below the NICs' directory; false: it cannot be read. */
static bool read_line(const char *nic, const char *file, char *ret, size_t size)
{
	char path[512];
	FILE *f;
	bool ok;

	snprintf(path, sizeof(path), NICS "/%s/%s", nic, file);
	f = fopen(path, "re");
	if (!f)
		return false;
	ok = fgets(ret, (int)size, f);
	fclose(f);
	if (ok)
		ret[strcspn(ret, "\n")] = 0;
	return ok;
}

static bool has_address(const char *nic)
{
	char file[64], gid[64];

	for (unsigned i = 0; i < 16; i++) {
		snprintf(file, sizeof(file), "ports/1/gids/%u", i);
		if (read_line(nic, file, gid, sizeof(gid)) && strspn(gid, "0:") < strlen(gid))
			return true;
	}
	return false;
}

static bool is_iwarp(const char *nic)
{
	char type[64];

	return read_line(nic, "node_type", type, sizeof(type)) && strstr(type, "RNIC");
}

static const char *kind_of(const char *nic)
{
	char layer[64];

	if (is_iwarp(nic))
		return "iWARP, connected by rdma_cm";
	return read_line(nic, "ports/1/link_layer", layer, sizeof(layer)) && !strcmp(layer, "Ethernet") ? "RoCE" :
		"InfiniBand";
}

static void check_nic(const char *nic, struct mcctl_report *rp)
{
	char state[64] = "", rate[64] = "?";

	(void)read_line(nic, "ports/1/rate", rate, sizeof(rate));
	if (!read_line(nic, "ports/1/state", state, sizeof(state)) || !strstr(state, "ACTIVE"))
		mcctl_doctor_find(rp, MCCTL_WARNING, "check cable, switch and \"ip link\"",
				  "port 1 of RDMA NIC %s is not active: %s", nic, state);
	else if (!has_address(nic))
		mcctl_doctor_find(rp, MCCTL_WARNING, "give its network interface an IP address",
				  "RDMA NIC %s has no address (GID)", nic);
	else
		mcctl_doctor_find(rp, MCCTL_GOOD, "", "RDMA NIC %s is active, %s, %s", nic, kind_of(nic), rate);
}

/* Connections by the connection manager need a library and a device. */
static void check_cm(struct mcctl_report *rp)
{
	if (!dlopen("librdmacm.so.1", RTLD_LAZY | RTLD_LOCAL))
		mcctl_doctor_find(rp, MCCTL_WARNING, "Debian: apt install librdmacm1",
				  "librdmacm.so.1 cannot be loaded: %s", dlerror());
	if (access("/dev/infiniband/rdma_cm", R_OK | W_OK) != 0)
		mcctl_doctor_find(rp, MCCTL_WARNING, "load rdma_ucm; give a container the device",
				  "no access to /dev/infiniband/rdma_cm, by which iWARP NICs connect");
}

static unsigned check_nics(struct mcctl_report *rp)
{
	const struct dirent *ent;
	DIR *d = opendir(NICS);
	bool cm = mc_env_on("MC_RDMA_CM");
	unsigned n = 0;

	while (d && (ent = readdir(d))) {
		if (ent->d_name[0] == '.')
			continue;
		check_nic(ent->d_name, rp);
		cm |= is_iwarp(ent->d_name);
		n++;
	}
	if (cm)
		check_cm(rp);
	if (d)
		closedir(d);
	return n;
}

static void check_devices(struct mcctl_report *rp)
{
	const struct dirent *ent;
	DIR *d = opendir("/dev/infiniband");
	unsigned n = 0, denied = 0;
	char path[512];

	while (d && (ent = readdir(d))) {
		if (strncmp(ent->d_name, "uverbs", 6) != 0)
			continue;
		snprintf(path, sizeof(path), "/dev/infiniband/%s", ent->d_name);
		n++;
		denied += access(path, R_OK | W_OK) != 0;
	}
	if (d)
		closedir(d);
	if (n == 0)
		mcctl_doctor_find(rp, MCCTL_WARNING, "load ib_uverbs; give a container the devices",
				  "there is no /dev/infiniband/uverbs*: programs cannot use RDMA");
	else if (denied)
		mcctl_doctor_find(rp, MCCTL_WARNING, "check their modes and groups",
				  "no access to %u of %u devices /dev/infiniband/uverbs*", denied, n);
}

static void check_library(struct mcctl_report *rp)
{
	void *so = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);

	if (!so)
		mcctl_doctor_find(rp, MCCTL_WARNING, "Debian: apt install libibverbs1 ibverbs-providers",
				  "libibverbs.so.1 cannot be loaded: %s", dlerror());
	/* It stays loaded: its providers have state of their own. */
}

static void check_locked(struct mcctl_report *rp)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_MEMLOCK, &lim) == 0 && lim.rlim_cur < LOCKED_MIN && geteuid() != 0)
		mcctl_doctor_find(rp, MCCTL_WARNING, "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit",
				  "this user may lock only %llu KiB of memory, and RDMA locks all that it uses",
				  (unsigned long long)lim.rlim_cur / 1024);
}

void mcctl_doctor_rdma(struct mcctl_report *rp)
{
	if (check_nics(rp) == 0)
		return;
	check_devices(rp);
	check_library(rp);
	check_locked(rp);
}
