/* SPDX-License-Identifier: Apache-2.0
 * te_env.c - environment variables that no other test checks: each has a visible effect on an
 * engine. */
#include "te_pair.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#include <mooncake/mce_te.h>

#define BYTES (8u << 20)

static unsigned char here[BYTES];

static struct mce_te *open_with(const char *metadata, const char *name)
{
	struct mce_te_conf conf = { .size = sizeof(conf), .metadata = metadata, .name = name };
	struct mce_te *te;

	CHECK(mce_te_open(&conf, &te) == 0);
	return te;
}

static struct mce_te *open_engine(void)
{
	return open_with("P2PHANDSHAKE", "127.0.0.1");
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int move(struct mce_te *te, segment_id_t id, uint64_t there, uint64_t len)
{
	struct transfer_request r = { OPCODE_READ, here, id, there, len };
	struct mce_te_batch_status st;
	batch_id_t b;

	CHECK(mce_te_batch_new(te, 1, &b) == 0 && mce_te_submit(te, b, &r, 1, NULL) == 0);
	CHECK(mce_te_wait(te, b, 60000) == 0 && mce_te_batch_status(te, b, &st) == 0);
	CHECK(mce_te_batch_free(te, b) == 0);
	return st.status;
}

/* ---- a peer ------------------------------------------------------------------------------------ */

/* Commands of one byte: u unregister, q end. */
static void serve(int from, int to)
{
	struct te_note note = { .len = BYTES };
	struct mce_te *te = open_engine();
	char c;

	CHECK(mce_te_register(te, here, BYTES, "*", 1) == 0);
	snprintf(note.name, sizeof(note.name), "%s", mce_te_name(te));
	note.addr = (uint64_t)(uintptr_t)here;
	te_tell(to, &note, sizeof(note));
	for (te_hear(from, &c, 1); c != 'q'; te_hear(from, &c, 1)) {
		CHECK(mce_te_unregister(te, here) == 0);
		te_tell(to, &c, 1);
	}
	mce_te_close(te);
}

static void unregister(struct te_pair *p)
{
	char c = 'u';

	te_tell(p->to, &c, 1);
	te_hear(p->from, &c, 1);
}

/* The peer unregisters its memory: does an engine that has it open notice that within @seconds? */
static int sees_it_go(unsigned seconds)
{
	double end = now() + seconds;
	struct te_pair p;
	struct te_note note;
	struct mce_te *te;
	uint64_t addr, len;
	segment_id_t id;
	int gone;

	te_pair_start(&p, serve);
	te_hear(p.from, &note, sizeof(note));
	te = open_engine();
	CHECK(mce_te_open_segment(te, note.name, 0, &id) == 0);
	CHECK(mce_te_first_buffer(te, id, &addr, &len) == 0 && addr == note.addr);
	unregister(&p);
	do {
		gone = mce_te_first_buffer(te, id, &addr, &len) < 0;
		usleep(10000);
	} while (!gone && now() < end);
	te_pair_end(&p);
	mce_te_close(te);
	return gone;
}

static void descriptors(void)
{
	CHECK(!sees_it_go(0));
	setenv("MC_DISABLE_METACACHE", "1", 1);
	CHECK(sees_it_go(0));
	unsetenv("MC_DISABLE_METACACHE");
	setenv("MC_TE_METADATA_REFRESH_INTERVAL_SECONDS", "1", 1);
	CHECK(sees_it_go(20));
	unsetenv("MC_TE_METADATA_REFRESH_INTERVAL_SECONDS");
}

/* A name without a port. */
static void handshake_port(void)
{
	struct te_pair p;
	struct te_note note;
	struct mce_te *te;
	segment_id_t id;

	te_pair_start(&p, serve);
	te_hear(p.from, &note, sizeof(note));
	CHECK(strchr(note.name, ':'));
	setenv("MC_HANDSHAKE_PORT", strchr(note.name, ':') + 1, 1);
	te = open_engine();
	CHECK(mce_te_open_segment(te, "127.0.0.1", 0, &id) == 0);
	CHECK(move(te, id, note.addr, 64) == STATUS_COMPLETED);
	te_pair_end(&p);
	mce_te_close(te);
	unsetenv("MC_HANDSHAKE_PORT");
}

/* ---- resources of an engine --------------------------------------------------------------------- */

/* Number of threads with that name. */
static unsigned threads(const char *name)
{
	char path[300], comm[32];
	unsigned n = 0;
	struct dirent *d;
	DIR *dir = opendir("/proc/self/task");

	CHECK(dir);
	while ((d = readdir(dir))) {
		ssize_t got;
		int fd;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", d->d_name);
		fd = open(path, O_RDONLY);
		got = fd >= 0 ? read(fd, comm, sizeof(comm) - 1) : 0;
		n += got > 0 && !strncmp(comm, name, strlen(name));
		if (fd >= 0)
			close(fd);
	}
	closedir(dir);
	return n;
}

static int port_of(const struct sockaddr_storage *ss)
{
	if (ss->ss_family == AF_INET)
		return ntohs(((const struct sockaddr_in *)ss)->sin_port);
	return ss->ss_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)ss)->sin6_port) : 0;
}

/* Can a program connect to @port of @address, another address of this machine? */
static int answers_at(const char *address, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), r;

	CHECK(fd >= 0 && inet_pton(AF_INET, address, &at.sin_addr) == 1);
	r = connect(fd, (struct sockaddr *)&at, sizeof(at));
	close(fd);
	return r == 0;
}

/* Upstream's protocol has no key, so an engine that is named by a loopback address is reachable there only. */
static void loopback_name(void)
{
	struct mce_te *te = open_engine();
	struct sockaddr_storage ss;
	unsigned ports = 0;

	for (int fd = 3; fd < 1024; fd++) {
		socklen_t len = sizeof(ss), vlen = sizeof(int);
		int on = 0;

		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &vlen) || !on ||
		    getsockname(fd, (struct sockaddr *)&ss, &len) || !port_of(&ss))
			continue;
		ports++;
		CHECK(answers_at("127.0.0.1", port_of(&ss)));
		CHECK(!answers_at("127.0.0.2", port_of(&ss)));
	}
	/* handshake, our protocol, upstream's protocol */
	CHECK(ports == 3);
	mce_te_close(te);
}

/* Number of this process's connections to @port. */
static unsigned connections(int port)
{
	struct sockaddr_storage ss;
	unsigned n = 0;

	for (int fd = 3; fd < 1024; fd++) {
		socklen_t len = sizeof(ss);

		n += getpeername(fd, (struct sockaddr *)&ss, &len) == 0 && port_of(&ss) == port;
	}
	return n;
}

static int backlog_of(int port)
{
	struct sockaddr_storage ss;
	struct tcp_info info;

	for (int fd = 3; fd < 1024; fd++) {
		socklen_t len = sizeof(ss), ilen = sizeof(info);

		if (getsockname(fd, (struct sockaddr *)&ss, &len) || port_of(&ss) != port ||
		    getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &ilen))
			continue;
		if (info.tcpi_state == TCP_LISTEN)
			return (int)info.tcpi_sacked;
	}
	return -1;
}

/* Number of ports from @min to @max on which this process listens, and of other ports. */
static unsigned listening(int min, int max, unsigned *ret_outside)
{
	struct sockaddr_storage ss;
	unsigned in = 0, out = 0;

	for (int fd = 3; fd < 1024; fd++) {
		socklen_t len = sizeof(ss), vlen = sizeof(int);
		int on = 0, port;

		if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &vlen) || !on ||
		    getsockname(fd, (struct sockaddr *)&ss, &len) || !(port = port_of(&ss)))
			continue;
		if (port >= min && port <= max)
			in++;
		else
			out++;
	}
	*ret_outside = out;
	return in;
}

static void io_threads(void)
{
	double end = now() + 10;
	struct mce_te *te;

	setenv("MC_NUM_TCP_IO_THREADS", "3", 1);
	te = open_engine();
	/* the threads set their names when they run */
	while (threads("mce-io") < 3 && now() < end)
		usleep(1000);
	CHECK(threads("mce-io") == 3);
	mce_te_close(te);
	unsetenv("MC_NUM_TCP_IO_THREADS");
}

static void lanes_are(unsigned want)
{
	double end = now() + 20;
	struct te_pair p;
	struct te_note note;
	char *text, *at;
	struct mce_te *te;
	segment_id_t id;
	int port;

	te_pair_start(&p, serve);
	te_hear(p.from, &note, sizeof(note));
	te = open_engine();
	CHECK(mce_te_open_segment(te, note.name, 0, &id) == 0);
	CHECK(move(te, id, note.addr, BYTES) == STATUS_COMPLETED);
	/* the peer's endpoint of the segment with that name */
	CHECK(mce_te_links(te, 1, &text) == 0);
	at = strstr(text, "\"peers\"");
	while (at && (at = strstr(at, "\"endpoint\":\"127.0.0.1:"))) {
		at += strlen("\"endpoint\":\"127.0.0.1:");
		port = atoi(at);
		if (connections(port))
			break;
	}
	CHECK(at);
	while (connections(port) < want && now() < end)
		CHECK(move(te, id, note.addr, BYTES) == STATUS_COMPLETED);
	CHECK(connections(port) == want);
	free(text);
	te_pair_end(&p);
	mce_te_close(te);
}

static void lanes(void)
{
	setenv("MC_FORCE_TCP", "1", 1);
	setenv("MC_TCP_MAX_CONNECTIONS_PER_PEER", "3", 1);
	lanes_are(3);
	/* the newer name overrides the older one */
	setenv("MC_TCP_LANES_PER_PEER", "5", 1);
	lanes_are(5);
	unsetenv("MC_TCP_MAX_CONNECTIONS_PER_PEER");
	unsetenv("MC_TCP_LANES_PER_PEER");
	unsetenv("MC_FORCE_TCP");
}

/* RDMA is asked for where there may be no NIC: transfers work in any case. */
static void hca(void)
{
	setenv("MC_FORCE_HCA", "1", 1);
	setenv("MC_TE_FILTERS", "nosuch0", 1);
	mce_te_close(open_engine());
	unsetenv("MC_TE_FILTERS");
	unsetenv("MC_FORCE_HCA");
}

/* Without discovery the protocol "rdma" needs names. */
static void discovery(void)
{
	struct mce_te_conf conf = {
		.size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = "127.0.0.1", .protocol = "rdma",
	};
	struct mce_te *te;
	int r;

	setenv("MC_MS_AUTO_DISC", "0", 1);
	r = mce_te_open(&conf, &te);
	CHECK(r == -EINVAL && strstr(mce_te_error_detail(r), "MC_MS_AUTO_DISC=0"));
	conf.nic_filter = "nosuch0";
	CHECK(mce_te_open(&conf, &te) == 0);
	mce_te_close(te);
	/* without the protocol, none is used */
	mce_te_close(open_engine());
	setenv("MC_MS_AUTO_DISC", "1", 1);
	setenv("MC_MS_FILTERS", "nosuch1", 1);
	CHECK(mce_te_open(&conf, &te) == 0);
	mce_te_close(te);
	unsetenv("MC_MS_FILTERS");
	unsetenv("MC_MS_AUTO_DISC");
}

static void ports(void)
{
	struct mce_te_conf conf = { .size = sizeof(conf), .metadata = "P2PHANDSHAKE", .name = "127.0.0.1" };
	struct mce_te *te;
	unsigned outside;

	setenv("MC_MIN_PRC_PORT", "21000", 1);
	setenv("MC_MAX_PRC_PORT", "21400", 1);
	setenv("MC_HANDSHAKE_LISTEN_BACKLOG", "77", 1);
	te = open_engine();
	CHECK(mce_te_rpc_port(te) >= 21000 && mce_te_rpc_port(te) <= 21400);
	CHECK(backlog_of(mce_te_rpc_port(te)) == 77);
	CHECK(listening(21000, 21400, &outside) == 3 && outside == 0);
	mce_te_close(te);
	/* The range has no room for the third port, which upstream's nodes do not need. */
	setenv("MC_MIN_PRC_PORT", "21402", 1);
	setenv("MC_MAX_PRC_PORT", "21403", 1);
	te = open_engine();
	CHECK(listening(21402, 21403, &outside) == 2 && outside == 1);
	mce_te_close(te);
	/* Two ports are needed, and the range has one. */
	setenv("MC_MIN_PRC_PORT", "21401", 1);
	setenv("MC_MAX_PRC_PORT", "21401", 1);
	CHECK(mce_te_open(&conf, &te) == -EADDRINUSE);
	CHECK(strstr(mce_te_error_detail(-EADDRINUSE), "no free port found between 21401 and 21401"));
	unsetenv("MC_MIN_PRC_PORT");
	unsetenv("MC_MAX_PRC_PORT");
	unsetenv("MC_HANDSHAKE_LISTEN_BACKLOG");
}

/* An invalid range, or one bound that does not fit the other bound's default: the default range is
 * used for all ports of an engine. */
static void no_range(const char *min, const char *max)
{
	struct mce_te *te;

	if (min)
		setenv("MC_MIN_RPC_PORT", min, 1);
	if (max)
		setenv("MC_MAX_RPC_PORT", max, 1);
	te = open_engine();
	CHECK(mce_te_rpc_port(te) >= 15000 && mce_te_rpc_port(te) <= 17000);
	mce_te_close(te);
	unsetenv("MC_MIN_RPC_PORT");
	unsetenv("MC_MAX_RPC_PORT");
}

static void no_ranges(void)
{
	no_range("33000", NULL);
	no_range("33099", "33000");
	no_range("500", "600");
	no_range(NULL, "1500");
	no_range("much", "more");
	no_range("16000", NULL);
}

/* The address that an engine with this name and these legacy arguments has. */
static void legacy_is(const char *metadata, const char *name, const char *host, uint16_t port, const char *want)
{
	struct mce_te_conf conf = {
		.size = sizeof(conf), .metadata = metadata, .name = name, .legacy_host = host, .legacy_port = port,
	};
	struct mce_te *te;

	CHECK(mce_te_open(&conf, &te) == 0);
	if (strcmp(mce_te_address(te), want))
		fprintf(stderr, "%s %s %u: %s\n", name, host, port, mce_te_address(te));
	CHECK(!strcmp(mce_te_address(te), want));
	mce_te_close(te);
}

static void legacy(void)
{
	static const char away[] = "http://127.0.0.1:9/metadata";

	setenv("MC_LEGACY_RPC_PORT_BINDING", "1", 1);
	setenv("MC_HANDSHAKE_PORT", "21412", 1);
	for (unsigned i = 0; i < 2; i++) {
		const char *metadata = i ? "P2PHANDSHAKE" : away;

		legacy_is(metadata, "127.0.0.1:21410", NULL, 0, "127.0.0.1:21410");
		legacy_is(metadata, "127.0.0.1:21410", "127.0.0.1", 0, "127.0.0.1:21410");
		legacy_is(metadata, "localhost:21410", "127.0.0.1", 21411, "127.0.0.1:21410");
		legacy_is(metadata, "127.0.0.1", "", 21411, "127.0.0.1:21411");
	}
	legacy_is(away, "127.0.0.1", "127.0.0.1", 0, "127.0.0.1:21412");
	unsetenv("MC_HANDSHAKE_PORT");
	unsetenv("MC_LEGACY_RPC_PORT_BINDING");
}

/* Only engines with a metadata server publish addresses; the server need not be reachable. */
static void ipv6(void)
{
	struct mce_te *te;

	if (access("/proc/net/if_inet6", F_OK))
		return;
	setenv("MC_USE_IPV6", "1", 1);
	te = open_with("http://127.0.0.1:9/metadata", "six");
	CHECK(*mce_te_address(te) == '[');
	mce_te_close(te);
	unsetenv("MC_USE_IPV6");
}

static void topology(void)
{
	char path[] = "/tmp/te_env.XXXXXX", *json;
	static const char text[] = "{\"cpu:0\":[[\"rail7\"],[\"rail8\"]]}";
	struct mce_te *te;
	int fd = mkstemp(path);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	setenv("MC_CUSTOM_TOPO_JSON", path, 1);
	te = open_engine();
	CHECK(mce_te_topology(te, NULL, &json) == 0 && strstr(json, "rail7") && strstr(json, "rail8"));
	free(json);
	mce_te_close(te);
	/* discovery overrides it */
	setenv("MC_MS_AUTO_DISC", "1", 1);
	te = open_engine();
	CHECK(mce_te_topology(te, NULL, &json) == 0 && !strstr(json, "rail7") && strstr(json, "cpu:0"));
	free(json);
	mce_te_close(te);
	unsetenv("MC_MS_AUTO_DISC");
	CHECK(ftruncate(fd, 5) == 0);
	te = open_engine();
	CHECK(mce_te_topology(te, NULL, &json) < 0 && discoverTopology(te) == -1);
	mce_te_close(te);
	close(fd);
	unlink(path);
	unsetenv("MC_CUSTOM_TOPO_JSON");
}

/* ---- peers that do not answer ------------------------------------------------------------------ */

static int listen_any(int backlog, int *ret_port)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&sa, len) == 0 && listen(fd, backlog) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&sa, &len) == 0);
	*ret_port = ntohs(sa.sin_port);
	return fd;
}

/* A full backlog drops connection attempts. */
static void connect_timeout(const char *seconds, double least, double most)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int port, fd = listen_any(0, &port), fill[8];
	char name[64];
	struct mce_te *te;
	segment_id_t id;
	double began;

	sa.sin_port = htons((uint16_t)port);
	for (unsigned i = 0; i < 8; i++) {
		fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		CHECK(fill[i] >= 0);
		(void)!connect(fill[i], (struct sockaddr *)&sa, sizeof(sa));
	}
	setenv("MC_HANDSHAKE_CONNECT_TIMEOUT", seconds, 1);
	te = open_engine();
	snprintf(name, sizeof(name), "127.0.0.1:%d", port);
	began = now();
	CHECK(mce_te_open_segment(te, name, 0, &id) < 0);
	CHECK(now() - began > least && now() - began < most);
	mce_te_close(te);
	for (unsigned i = 0; i < 8; i++)
		close(fill[i]);
	close(fd);
	unsetenv("MC_HANDSHAKE_CONNECT_TIMEOUT");
}

struct mute {
	int handshake, data_port;
};

/* An upstream node whose handshake service answers once, and whose data port never answers. */
static void *mute_main(void *arg)
{
	struct mute *m = arg;
	unsigned char junk[65536], head[9] = { 0 };
	char text[512];
	uint64_t n;
	int fd = accept(m->handshake, NULL, NULL);

	CHECK(fd >= 0 && read(fd, junk, sizeof(junk)) > 9);
	snprintf(text, sizeof(text), "{\"name\":\"mute\",\"protocol\":\"tcp\",\"tcp_data_port\":%d,"
		 "\"tcp_proto_version\":2,\"tcp_data_host\":\"127.0.0.1\","
		 "\"buffers\":[{\"name\":\"mute\",\"addr\":65536,\"length\":65536}]}\n", m->data_port);
	n = strlen(text) + 1;
	memcpy(head, &n, 8);
	head[8] = 1;
	te_tell(fd, head, sizeof(head));
	te_tell(fd, text, strlen(text));
	shutdown(fd, SHUT_WR);
	while (read(fd, junk, sizeof(junk)) > 0)
		;
	close(fd);
	return NULL;
}

static void status_timeout(void)
{
	struct mute m;
	int port, data = listen_any(16, &m.data_port);
	pthread_t thread;
	char name[64];
	struct mce_te *te;
	segment_id_t id;
	double began;

	m.handshake = listen_any(16, &port);
	CHECK(pthread_create(&thread, NULL, mute_main, &m) == 0);
	setenv("MC_TCP_STATUS_TIMEOUT_SEC", "1", 1);
	te = open_engine();
	snprintf(name, sizeof(name), "127.0.0.1:%d", port);
	CHECK(mce_te_open_segment(te, name, 0, &id) == 0);
	pthread_join(thread, NULL);
	/* the handshake service does not answer a second time either */
	close(m.handshake);
	began = now();
	CHECK(move(te, id, 65536, 64) == STATUS_FAILED);
	CHECK(now() - began > 0.9 && now() - began < 15);
	mce_te_close(te);
	close(data);
	unsetenv("MC_TCP_STATUS_TIMEOUT_SEC");
}

int main(void)
{
	/* The first tests fork children: do that before there are threads. */
	descriptors();
	handshake_port();
	hca();
	discovery();
	lanes();
	io_threads();
	loopback_name();
	ports();
	no_ranges();
	legacy();
	ipv6();
	topology();
	connect_timeout("1", 0.9, 3);
	/* longer than the client waits for an answer */
	connect_timeout("6", 5.9, 60);
	status_timeout();
	return 0;
}
