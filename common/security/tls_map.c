/* SPDX-License-Identifier: Apache-2.0
 * tls_map.c - the file that maps names of certificates to identities. */
#include <config.h>

#include "common/security/tls_map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/security/identity.h"

#define WORDS 4u

struct row {
	char *uri;		/* without the '*' of a prefix */
	bool prefix;
	struct mc_principal p;
};

struct mc_tls_map {
	size_t n;
	struct row row[];
};

/* The words of a line: their number, which may be above WORDS. */
static unsigned line_split(char *line, char *word[WORDS])
{
	unsigned n = 0;
	char *w;

	while ((w = strsep(&line, " \t\r")))
		if (*w && n++ < WORDS)
			word[n - 1] = w;
	return n;
}

static int row_parse(char *word[WORDS], unsigned line, const char *path, struct row *ret)
{
	size_t len = strlen(word[0]);
	bool all = !strcmp(word[2], "*");

	ret->p = (struct mc_principal){ .source = MC_PRINCIPAL_CREDENTIAL, .roles = mc_role_parse(word[1]) };
	ret->prefix = word[0][len - 1] == '*';
	len -= ret->prefix;
	if (!strstr(word[0], "://") || memchr(word[0], '*', len))
		return mc_fail(-EINVAL, "%s, line %u: a URI has \"://\", and '*' only at its end", path, line);
	if (ret->p.roles == MC_ROLE_NODE)
		return mc_fail(-EINVAL, "%s, line %u: nodes need a credential (mcctl credential create), because "
			       "their data ports need its key", path, line);
	if (!ret->p.roles)
		return mc_fail(-EINVAL, "%s, line %u: the role is not reader, client, admin, master or metrics", path,
			       line);
	if ((!all && !mc_identity_component(word[2], MC_PRINCIPAL_TENANT_MAX)) ||
	    !mc_identity_component(word[3], MC_PRINCIPAL_NAME_MAX))
		return mc_fail(-EINVAL, "%s, line %u: a tenant (or *) and a name have letters, digits and ._:@+-, at "
			       "most %u and %u", path, line, MC_PRINCIPAL_TENANT_MAX, MC_PRINCIPAL_NAME_MAX);
	if (!all)
		strcpy(ret->p.tenant, word[2]);
	strcpy(ret->p.name, word[3]);
	ret->uri = strndup(word[0], len);
	return ret->uri ? 0 : mc_fail(-ENOMEM, "no memory for %s", path);
}

int mc_tls_map_parse(char *text, const char *path, struct mc_tls_map **ret)
{
	size_t lines = 1;
	struct mc_tls_map *m;
	unsigned number = 0;
	char *line;
	int r = 0;

	for (const char *c = text; *c; c++)
		lines += *c == '\n';
	m = calloc(1, sizeof(*m) + lines * sizeof(m->row[0]));
	if (!m)
		return mc_fail(-ENOMEM, "no memory for %s", path);
	while (r == 0 && (line = strsep(&text, "\n"))) {
		char *word[WORDS];
		unsigned n;

		number++;
		n = *line == '#' ? 0 : line_split(line, word);
		if (!n)
			continue;
		r = n == WORDS ? row_parse(word, number, path, &m->row[m->n]) :
			mc_fail(-EINVAL, "%s, line %u: not \"URI role tenant name\"", path, number);
		m->n += r == 0;
	}
	if (r < 0) {
		mc_tls_map_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

int mc_tls_map_find(const struct mc_tls_map *m, const char *uri, struct mc_principal *ret)
{
	for (size_t i = 0; i < m->n; i++) {
		const struct row *row = &m->row[i];

		if (row->prefix ? strncmp(uri, row->uri, strlen(row->uri)) : strcmp(uri, row->uri))
			continue;
		*ret = row->p;
		return 0;
	}
	return mc_fail(-EACCES, "no line of the map of certificates has %s", uri);
}

void mc_tls_map_free(struct mc_tls_map *m)
{
	for (size_t i = 0; m && i < m->n; i++)
		free(m->row[i].uri);
	free(m);
}
