/* SPDX-License-Identifier: Apache-2.0
 * security.c - the pool's secret in a master's process, TLS of its RPC port, the files of --init_security. */
#include <config.h>

#include "master/security/security.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/log.h"
#include "common/security/tls.h"
#include "common/sys/clock.h"
#include "common/sys/file.h"
#include "common/sys/lock.h"
#include "common/sys/random.h"
#include "master/mcm_i.h"
#include "master/security/audit.h"
#include "proto/rpc_server.h"

#define LOG "security"
#define PATH_LEN 4096
/* Life of the credentials that a master makes for itself, one for each connection. */
#define OWN_S 3600u
#define ADMIN_S (365u * 86400u)
/* Life of a ticket.  A node that has not heard of a revocation accepts a ticket at most this long. */
#define TICKET_S 3600u
/* The file of the secret is looked at this often. */
#define RELOAD_MS 1000u

struct mcm_security {
	struct mcm_audit *audit;	/* NULL: none */
	char path[PATH_LEN];
	char cluster[MC_CLUSTER_NAME_MAX + 1];
	char host[MC_PRINCIPAL_NAME_MAX + 1];
	struct mc_tls *tls;
	struct mc_mutex lock;
	/* guarded by lock */
	struct mc_secrets *secrets;
	struct stat seen;		/* the file when it was read */
	uint64_t reload_ms;
	uint64_t changes;		/* revocations that mcm_security_changed() has reported */
	/* atomic */
	struct mcm *leader;
};

/* ---- files ------------------------------------------------------------------------------------- */

static int security_path(const struct mcm_conf *conf, const char *name, char ret[PATH_LEN])
{
	int n = snprintf(ret, PATH_LEN, "%s/%s", conf->security_dir, name);

	return n < PATH_LEN ? 0 : mc_fail(-ENAMETOOLONG, "security_dir is too long: %s", conf->security_dir);
}

static int security_serial(uint64_t *ret)
{
	int r = mc_random_bytes(ret, sizeof(*ret));

	*ret |= 1;	/* 0 is none */
	return r;
}

/* Fill the identity's fields that the master chooses, and derive the key. */
static int credential_make(const struct mc_secrets *secrets, struct mc_identity *id, struct mc_credential *ret)
{
	int r = security_serial(&id->serial);

	if (r < 0)
		return r;
	id->secret = mc_secrets_newest(secrets);
	strcpy(id->cluster, mc_secrets_cluster(secrets));
	ret->id = *id;
	r = mc_identity_format(id, ret->text);
	if (r > 0)
		r = mc_secrets_key(secrets, id, ret->text, ret->key);
	if (r == 0 && id->role == MC_ROLE_NODE) {
		ret->has_node_key = true;
		r = mc_secrets_node_key(secrets, id->secret, id->name, ret->node_key);
	}
	return r;
}

/* Make the directory, and the one above it. */
static int security_mkdir(const char *dir)
{
	auto_free char *above = strdup(dir);
	char *slash = above ? strrchr(above, '/') : NULL;

	if (slash && slash != above) {
		*slash = '\0';
		(void)mc_file_mkdirat(AT_FDCWD, above, 0755);
	}
	if (mc_file_mkdirat(AT_FDCWD, dir, 0700) < 0 && errno != EEXIST)
		return mc_fail(-errno, "cannot make the directory %s: %s", dir, mc_strerror(errno));
	return 0;
}

int mcm_security_init(const struct mcm_conf *conf)
{
	struct mc_identity id = { .role = MC_ROLE_ADMIN, .tenant = "*", .name = "admin" };
	struct mc_secrets *secrets = NULL;
	struct mc_credential *admin;
	char secret_path[PATH_LEN], admin_path[PATH_LEN];
	int r = security_path(conf, MCM_SECRET_FILE, secret_path);

	if (r == 0)
		r = security_path(conf, MCM_ADMIN_FILE, admin_path);
	if (r == 0)
		r = security_mkdir(conf->security_dir);
	if (r == 0)
		r = mc_secrets_init(secret_path, conf->cluster_id);
	if (r == 0)
		r = mc_secrets_load(secret_path, &secrets);
	admin = mc_credential_new();
	if (r == 0 && !admin)
		r = -ENOMEM;
	id.expires_s = mc_wall_ms() / 1000 + ADMIN_S;
	if (r == 0)
		r = credential_make(secrets, &id, admin);
	if (r == 0)
		r = mc_credential_save(admin, admin_path);
	mc_secrets_free(secrets);
	mc_credential_free(admin);
	if (r < 0)
		return r;
	printf("%s: the secret of pool %s, for its masters only\n%s: a credential of role admin, for mcctl; it expires "
	       "in %u days\n", secret_path, conf->cluster_id, admin_path, ADMIN_S / 86400);
	return 0;
}

int mcm_security_rotate(const struct mcm_conf *conf)
{
	char path[PATH_LEN];
	int r = security_path(conf, MCM_SECRET_FILE, path);

	if (r == 0)
		r = mc_secrets_rotate(path);
	if (r < 0)
		return r;
	printf("%s: has a new secret, and still accepts the one before it; masters read it within a second\n"
	       "Copy it to the other masters, then replace all credentials (mcctl credential create), before the next "
	       "rotation drops the older secret.\n", path);
	return 0;
}

/* ---- keys of peers ----------------------------------------------------------------------------- */

/* The key and the rights of a parsed identity.  -EACCES with a detail. */
static int peer_key(struct mcm_security *s, const struct mc_identity *id, const char *text, uint8_t key[MC_KEY_LEN])
{
	struct mcm *m = __atomic_load_n(&s->leader, __ATOMIC_ACQUIRE);
	int r = mc_identity_check_time(id, mc_wall_ms() / 1000);

	if (r == 0 && m && mcm_credentials_revoked(m, id->serial))
		r = mc_fail(-EACCES, "the credential of %s was revoked serial=%016" PRIx64, id->name, id->serial);
	if (r < 0)
		return r;
	MC_LOCKED(&s->lock);
	return mc_secrets_key(s->secrets, id, text, key);
}

static int tls_identify(void *arg, const char *text, size_t len, uint8_t key[MC_KEY_LEN], struct mc_principal *ret)
{
	char copy[MC_IDENTITY_MAX + 1];
	struct mc_identity id;
	int r = mc_identity_parse(text, len, &id);

	if (r < 0)
		return r;
	memcpy(copy, text, len);
	copy[len] = '\0';
	r = peer_key(arg, &id, copy, key);
	if (r == 0)
		mc_identity_principal(&id, ret);
	return r;
}

/* A connection to another master. */
static int tls_present(void *arg, const char *addr, uint64_t deadline, struct mc_credential *ret)
{
	struct mcm_security *s = arg;
	struct mc_identity id = { .role = MC_ROLE_MASTER, .tenant = "*", .expires_s = mc_wall_ms() / 1000 + OWN_S };

	strcpy(id.name, s->host);
	return mcm_security_make(s, &id, ret);
}

int mcm_security_identify(const struct mc_stream_peer *peer, struct mc_principal *ret, void *arg)
{
	if (peer->principal)
		*ret = *peer->principal;
	else if (!peer->local)
		return mc_fail(-EACCES, "this peer has no credential");
	else if (peer->uid && peer->uid != geteuid())
		return mc_fail(-EACCES, "user %u is not in rpc_socket_uids", (unsigned)peer->uid);
	return mcm_security_valid(arg, ret) ? 0 :
		mc_fail(-EACCES, "the credential of %s is not valid any more", ret->name);
}

int mcm_security_bearer(void *arg, const char *token, struct mc_principal *ret)
{
	struct mcm_security *s = arg;
	struct mcm *m = __atomic_load_n(&s->leader, __ATOMIC_ACQUIRE);
	struct mc_identity id;
	int r;

	mc_mutex_lock(&s->lock);
	r = mc_bearer_check(s->secrets, token, mc_wall_ms() / 1000, &id);
	mc_mutex_unlock(&s->lock);
	if (r < 0)
		return r;
	mc_identity_principal(&id, ret);
	if (m && mcm_credentials_revoked(m, id.serial))
		return mc_fail(-EACCES, "the credential of %s was revoked serial=%016" PRIx64, id.name, id.serial);
	return 0;
}

static void http_refused(void *arg, const struct mc_http_request *rq, const char *why)
{
	if (arg)
		mcm_audit_http_refused(((const struct mcm_security *)arg)->audit, rq, why);
}

struct mc_httpd_security mcm_security_http(struct mcm_security *s, const struct mcm_conf *conf)
{
	return (struct mc_httpd_security){
		.tokens = s != NULL, .identify = s ? mcm_security_bearer : NULL, .arg = s,
		.cert = conf->http_tls_cert, .key = conf->http_tls_key, .refused = http_refused,
	};
}

bool mcm_security_valid(struct mcm_security *s, const struct mc_principal *p)
{
	struct mcm *m = __atomic_load_n(&s->leader, __ATOMIC_ACQUIRE);

	if (p->source != MC_PRINCIPAL_CREDENTIAL)
		return true;
	if (mc_wall_ms() / 1000 >= p->expires_s || (m && mcm_credentials_revoked(m, p->serial)))
		return false;
	/* A certificate is not made with a secret of the pool. */
	if (!p->secret)
		return true;
	MC_LOCKED(&s->lock);
	return mc_secrets_accepts(s->secrets, p->secret);
}

/* ---- keys of bytes at rest --------------------------------------------------------------------- */

uint32_t mcm_security_newest(struct mcm_security *s)
{
	MC_LOCKED(&s->lock);
	return mc_secrets_newest(s->secrets);
}

int mcm_security_key(struct mcm_security *s, uint32_t number, const char *purpose, const void *info, size_t len,
		     uint8_t ret[MC_KEY_LEN])
{
	MC_LOCKED(&s->lock);
	return mc_secrets_derive(s->secrets, number, purpose, info, len, ret);
}

/* ---- making credentials ------------------------------------------------------------------------ */

int mcm_security_make(struct mcm_security *s, struct mc_identity *id, struct mc_credential *ret)
{
	MC_LOCKED(&s->lock);
	return credential_make(s->secrets, id, ret);
}

int mcm_security_ticket(struct mcm_security *s, uint32_t secret, const char *node, const struct mc_principal *holder,
			struct mc_credential *ret)
{
	struct mc_identity id = { .ticket = true, .secret = secret, .role = holder->roles, .serial = holder->serial };
	uint8_t node_key[MC_KEY_LEN];
	int r;

	id.expires_s = mc_wall_ms() / 1000 + TICKET_S;
	if (holder->expires_s < id.expires_s)
		id.expires_s = holder->expires_s;
	strcpy(id.cluster, s->cluster);
	strcpy(id.node, node);
	strcpy(id.tenant, holder->tenant[0] ? holder->tenant : "*");
	strcpy(id.name, holder->name);
	ret->id = id;
	r = mc_identity_format(&id, ret->text);
	if (r < 0)
		return r;
	mc_mutex_lock(&s->lock);
	r = mc_secrets_node_key(s->secrets, secret, node, node_key);
	mc_mutex_unlock(&s->lock);
	if (r == 0)
		mc_key_ticket(node_key, ret->text, ret->key);
	OPENSSL_cleanse(node_key, sizeof(node_key));
	return r;
}

/* ---- start, changes, end ----------------------------------------------------------------------- */

static int secrets_read(struct mcm_security *s, struct mc_secrets **ret, struct stat *ret_seen)
{
	if (mc_file_stat(s->path, ret_seen) < 0)
		return mc_fail(-errno, "cannot read %s: %s; mooncake_master --init_security makes it", s->path,
			       mc_strerror(errno));
	return mc_secrets_load(s->path, ret);
}

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_size == b->st_size;
}

/* Read the file again.  A file that cannot be read, or is of another pool, changes nothing.  True: it was replaced. */
static bool secrets_reload(struct mcm_security *s)
{
	struct mc_secrets *old, *now;
	struct stat seen;
	int r;

	if (mc_file_stat(s->path, &seen) < 0)
		return false;
	mc_mutex_lock(&s->lock);
	r = same_file(&seen, &s->seen);
	s->seen = seen;
	mc_mutex_unlock(&s->lock);
	if (r)
		return false;
	r = mc_secrets_load(s->path, &now);
	if (r == 0 && strcmp(mc_secrets_cluster(now), s->cluster)) {
		mc_secrets_free(now);
		r = mc_fail(-EINVAL, "%s is of another pool", s->path);
	}
	if (r < 0) {
		mc_warn(LOG, "the secret was not read again, the old one stays: %s", mc_err_detail(r));
		return false;
	}
	mc_mutex_lock(&s->lock);
	old = s->secrets;
	s->secrets = now;
	mc_mutex_unlock(&s->lock);
	mc_info(LOG, "the secret was read again newest=%u", mc_secrets_newest(now));
	mc_secrets_free(old);
	return true;
}

bool mcm_security_changed(struct mcm_security *s)
{
	struct mcm *m = __atomic_load_n(&s->leader, __ATOMIC_ACQUIRE);
	uint64_t changes = m ? mcm_credentials_changes(m) : 0, now = mc_now_ms();
	bool changed, due;

	mc_mutex_lock(&s->lock);
	changed = changes != s->changes;
	s->changes = changes;
	due = now >= s->reload_ms;
	if (due)
		s->reload_ms = now + RELOAD_MS;
	mc_mutex_unlock(&s->lock);
	return (due && secrets_reload(s)) || changed;
}

void mcm_security_attach(struct mcm_security *s, struct mcm *m)
{
	if (s)
		__atomic_store_n(&s->leader, m, __ATOMIC_RELEASE);
}

const struct mc_net *mcm_security_net(const struct mcm_security *s)
{
	return s ? mc_tls_net(s->tls) : NULL;
}

static void tls_refused(void *arg, const char *peer, const char *why)
{
	mcm_audit_connect_refused(((const struct mcm_security *)arg)->audit, peer, why);
}

int mcm_security_open(const struct mcm_conf *conf, struct mcm_audit *audit, struct mcm_security **ret)
{
	struct mc_tls_conf tls = {
		.refused = tls_refused, .identify = tls_identify, .present = tls_present,
		.service = "the master's RPC port",
		.answer_plain = mcp_refuse_plain,
	};
	struct mcm_security *s;
	int r;

	*ret = NULL;
	if (strcmp(conf->security, "on"))
		return 0;
	s = calloc(1, sizeof(*s));
	if (!s)
		return mc_fail(-ENOMEM, "no memory for the master's security");
	mc_mutex_init(&s->lock);
	if (gethostname(s->host, MC_PRINCIPAL_NAME_MAX) < 0 || !mc_identity_component(s->host, MC_PRINCIPAL_NAME_MAX))
		strcpy(s->host, "master");
	r = security_path(conf, MCM_SECRET_FILE, s->path);
	if (r == 0)
		r = secrets_read(s, &s->secrets, &s->seen);
	if (r == 0) {
		strcpy(s->cluster, mc_secrets_cluster(s->secrets));
		if (strcmp(s->cluster, conf->cluster_id))
			r = mc_fail(-EINVAL, "%s is the secret of pool %s, and cluster_id is %s", s->path, s->cluster,
				    conf->cluster_id);
	}
	tls.arg = s;
	if (*conf->tls_cert) {
		tls.cert = conf->tls_cert;
		tls.key = conf->tls_key;
		tls.ca = conf->tls_ca;
		tls.map = conf->tls_map;
	}
	s->audit = audit;
	if (r == 0)
		r = mc_tls_new(&tls, &s->tls);
	if (r < 0) {
		mcm_security_close(s);
		return r;
	}
	/* Keys of peers are in the memory of OpenSSL too: no core dump may have them. */
	(void)prctl(PR_SET_DUMPABLE, 0);
	*ret = s;
	return 0;
}

void mcm_security_close(struct mcm_security *s)
{
	if (!s)
		return;
	mc_tls_free(s->tls);
	mc_secrets_free(s->secrets);
	mc_mutex_destroy(&s->lock);
	free(s);
}
