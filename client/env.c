/* SPDX-License-Identifier: Apache-2.0
 * env.c - reads the variables MC_STORE_*, and writes the report of metrics that some of them ask for. */
#include <config.h>

#include "client/env.h"

#include <string.h>
#include <strings.h>

#include "common/env.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/sys/clock.h"

/* Upstream's range and limits: the ports between 32768 and 60999 are those that Linux gives to outgoing connections. */
#define PORT_MIN 12300
#define PORT_MAX 14300
#define PORT_FIRST 1024
#define EPHEMERAL_FIRST 32768
#define EPHEMERAL_END 61000

#define INTERVAL_MAX_S 86400

static bool port_valid(int port)
{
	return port >= PORT_FIRST && port <= 65535 && (port < EPHEMERAL_FIRST || port >= EPHEMERAL_END);
}

void mcs_env_ports(int *ret_min, int *ret_max)
{
	int min = (int)mc_env_int("MC_STORE_CLIENT_MIN_PORT", PORT_MIN, 0, 65535);
	int max = (int)mc_env_int("MC_STORE_CLIENT_MAX_PORT", PORT_MAX, 0, 65535);

	if (!port_valid(min) || !port_valid(max) || min > max) {
		mc_warn("client", "MC_STORE_CLIENT_MIN_PORT=%d and MC_STORE_CLIENT_MAX_PORT=%d are no range of ports "
			"from 1024 to 32767 or from 61000 on, using %d to %d", min, max, PORT_MIN, PORT_MAX);
		min = PORT_MIN;
		max = PORT_MAX;
	}
	*ret_min = min;
	*ret_max = max;
}

bool mcs_env_no_memcpy(void)
{
	return mc_env_str("MC_STORE_MEMCPY") && !mc_env_on("MC_STORE_MEMCPY");
}

bool mcs_env_huge_pages(void)
{
	const char *size = mc_env_str("MC_STORE_HUGEPAGE_SIZE");

	if (!mc_env_on("MC_STORE_USE_HUGEPAGE"))
		return false;
	if (size && strcasecmp(size, "2MB") && strcasecmp(size, "2M"))
		mc_warn("client", "huge pages of another size than 2MB are not supported, using 2MB: "
			"MC_STORE_HUGEPAGE_SIZE=%s", size);
	return true;
}

/* ---- the report ---- */

/* The counters of all handles of the process at the last report. */
struct totals {
	int64_t gets, hits, get_errors, get_bytes, puts, put_errors, put_bytes;
};

static int64_t report_value(const char *name)
{
	int64_t v = 0;

	(void)mc_metrics_lookup(name, "", &v);
	return v;
}

static void report_read(struct totals *t)
{
	*t = (struct totals){
		.gets = report_value("mooncake_client_gets_total"),
		.hits = report_value("mooncake_client_get_hits_total"),
		.get_errors = report_value("mooncake_client_get_errors_total"),
		.get_bytes = report_value("mooncake_client_get_bytes_total"),
		.puts = report_value("mooncake_client_puts_total"),
		.put_errors = report_value("mooncake_client_put_errors_total"),
		.put_bytes = report_value("mooncake_client_put_bytes_total"),
	};
}

/* Seconds between reports; 0: none. */
static uint64_t report_interval(void)
{
	const char *on = mc_env_str("MC_STORE_CLIENT_METRIC");

	return on && !mc_env_on("MC_STORE_CLIENT_METRIC") ? 0 :
		(uint64_t)mc_env_int("MC_STORE_CLIENT_METRIC_INTERVAL", 0, 0, INTERVAL_MAX_S);
}

static void report_write(const char *hostname, const struct totals *before, double seconds)
{
	static struct mc_log_site site;
	const char *cluster = mc_env_str("MC_STORE_CLUSTER_ID");
	const char *bandwidth = mc_env_str("MC_STORE_CLIENT_METRIC_BANDWIDTH");
	char rates[96] = "";
	struct totals t;

	report_read(&t);
	if (!bandwidth || mc_env_on("MC_STORE_CLIENT_METRIC_BANDWIDTH"))
		snprintf(rates, sizeof(rates), " get_mb_per_s=%.1f put_mb_per_s=%.1f",
			 (double)(t.get_bytes - before->get_bytes) / 1e6 / seconds,
			 (double)(t.put_bytes - before->put_bytes) / 1e6 / seconds);
	/* The user has asked for the line, so the level of the log does not matter. */
	mc_log_write(&site, "client", MC_LOG_INFO, "metrics of this process hostname=%s cluster=%s seconds=%.0f "
		     "gets=%lld hits=%lld get_errors=%lld get_bytes=%lld puts=%lld put_errors=%lld put_bytes=%lld%s",
		     hostname, cluster ? cluster : "-", seconds, (long long)(t.gets - before->gets),
		     (long long)(t.hits - before->hits), (long long)(t.get_errors - before->get_errors),
		     (long long)(t.get_bytes - before->get_bytes), (long long)(t.puts - before->puts),
		     (long long)(t.put_errors - before->put_errors), (long long)(t.put_bytes - before->put_bytes),
		     rates);
}

void mcs_report(const char *hostname)
{
	static struct totals before;	/* totals at the last report; owned by the thread that holds @busy */
	static uint64_t last_ns;	/* atomic */
	static uint64_t interval_ns;	/* constant after the first call that holds @busy */
	static bool busy, ready;	/* atomic */
	uint64_t now = mc_now_ns();

	if (__atomic_load_n(&ready, __ATOMIC_ACQUIRE) &&
	    (!interval_ns || now - __atomic_load_n(&last_ns, __ATOMIC_RELAXED) < interval_ns))
		return;
	if (__atomic_exchange_n(&busy, true, __ATOMIC_ACQUIRE))
		return;
	if (!ready) {
		interval_ns = report_interval() * 1000 * MC_NS_PER_MS;
		__atomic_store_n(&last_ns, now, __ATOMIC_RELAXED);
		__atomic_store_n(&ready, true, __ATOMIC_RELEASE);
	} else if (interval_ns && now - last_ns >= interval_ns) {
		report_write(hostname, &before, (double)(now - last_ns) / 1e9);
		report_read(&before);
		__atomic_store_n(&last_ns, now, __ATOMIC_RELAXED);
	}
	__atomic_store_n(&busy, false, __ATOMIC_RELEASE);
}
