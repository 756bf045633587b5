/* SPDX-License-Identifier: Apache-2.0
 * options_file.c - config files in JSON (jansson) and YAML (libyaml), read as a flat map. */
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yaml.h>

#include "common/cleanup.h"
#include "common/err.h"
#include "common/options/options_i.h"

#define FILE_MAX (1u << 20)
#define DEPTH_MAX 8
#define KEY_MAX 256
#define LIST_MAX 65536		/* bytes of a joined list */
/* YAML's aliases let a small file describe a huge tree. */
#define NODES_MAX 20000

struct walk {
	mc_conf_pair_fn fn;
	void *arg;
	unsigned depth, nodes;
	char key[KEY_MAX];	/* key of the current map, including the keys of the maps around it */
	yaml_document_t *doc;
};

static int walk_enter(struct walk *w, const char *key, size_t key_len, size_t *ret_old_len)
{
	size_t len = strlen(w->key);

	*ret_old_len = len;
	if (++w->nodes > NODES_MAX)
		return mc_fail(-EINVAL, "more than %d values", NODES_MAX);
	if (memchr(key, '\0', key_len) || key_len == 0)
		return mc_fail(-EINVAL, "an invalid key below \"%s\"", w->key);
	if (len + key_len + 2 > KEY_MAX)
		return mc_fail(-EINVAL, "key \"%.40s...\" is too long", len ? w->key : key);
	if (len)
		w->key[len++] = '_';
	memcpy(w->key + len, key, key_len);
	w->key[len + key_len] = '\0';
	return 0;
}

static int walk_deeper(struct walk *w)
{
	if (++w->depth > DEPTH_MAX)
		return mc_fail(-EINVAL, "key \"%s\" is nested too deeply", w->key);
	return 0;
}

/* Values of a list, joined to one comma-separated text. */
struct joined {
	char *text;
	size_t len;
};

static int list_join(struct walk *w, struct joined *to, const char *value)
{
	size_t n = strlen(value);
	char *text;

	if (++w->nodes > NODES_MAX || to->len + n + 2 > LIST_MAX)
		return mc_fail(-EINVAL, "the list of \"%s\" is too long", w->key);
	text = realloc(to->text, to->len + n + 2);
	if (!text)
		return mc_fail(-ENOMEM, "no memory for the config file");
	to->text = text;
	if (to->len)
		text[to->len++] = ',';
	memcpy(text + to->len, value, n + 1);
	to->len += n;
	return 0;
}

static int finish_list(struct walk *w, struct joined *list, int r)
{
	if (r == 0)
		r = w->fn(w->arg, w->key, list->text ? list->text : "", MC_CONF_LIST);
	free(list->text);
	return r;
}

/* The map below w->key begins. */
static int walk_begin_map(struct walk *w)
{
	return w->fn(w->arg, w->key, NULL, MC_CONF_MAP);
}

/* ---- JSON ---- */

/* Text of a scalar; NULL for a map, a list or null. */
static const char *json_text(const json_t *v, char *buf, size_t len)
{
	switch (json_typeof(v)) {
	case JSON_STRING:
		return json_string_value(v);
	case JSON_INTEGER:
		snprintf(buf, len, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
		return buf;
	case JSON_REAL:
		snprintf(buf, len, "%.15g", json_real_value(v));
		return buf;
	case JSON_TRUE:
		return "true";
	case JSON_FALSE:
		return "false";
	default:
		return NULL;
	}
}

static int json_list(struct walk *w, json_t *list)
{
	struct joined to = { NULL, 0 };
	const char *text;
	char buf[40];
	size_t i;
	json_t *v;
	int r = 0;

	json_array_foreach(list, i, v) {
		text = json_text(v, buf, sizeof(buf));
		r = text ? list_join(w, &to, text) :
			mc_fail(-EINVAL, "the list of \"%s\" holds more than plain values", w->key);
		if (r < 0)
			break;
	}
	return finish_list(w, &to, r);
}

static int json_map(struct walk *w, json_t *map)
{
	const char *key;
	char buf[40];
	size_t old;
	json_t *v;
	int r;

	r = walk_deeper(w);
	if (r < 0)
		return r;
	json_object_foreach(map, key, v) {
		r = walk_enter(w, key, strlen(key), &old);
		if (r < 0)
			return r;
		if (json_is_object(v))
			r = walk_begin_map(w);
		if (r == 0 && json_is_object(v))
			r = json_map(w, v);
		else if (json_is_array(v))
			r = json_list(w, v);
		else if (json_is_boolean(v) || json_is_number(v) || json_is_string(v))
			r = w->fn(w->arg, w->key, json_text(v, buf, sizeof(buf)), MC_CONF_SCALAR);
		if (r < 0)
			return r;
		w->key[old] = '\0';
	}
	w->depth--;
	return 0;
}

static int parse_json(struct walk *w, const char *text, size_t len)
{
	json_error_t err;
	json_t *root;
	int r;

	root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &err);
	if (!root)
		return mc_fail(-EINVAL, "line %d: %s", err.line, err.text);
	r = json_is_object(root) ? json_map(w, root) :
		mc_fail(-EINVAL, "it is not a map of names to values");
	json_decref(root);
	return r;
}

/* ---- YAML ---- */

static bool yaml_is_null(const yaml_node_t *n)
{
	const char *s = (const char *)n->data.scalar.value;

	return n->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
	       (!*s || !strcmp(s, "~") || !strcmp(s, "null") || !strcmp(s, "Null") || !strcmp(s, "NULL"));
}

/* Text of a scalar; NULL for anything else and for a text with a NUL inside. */
static const char *yaml_text(const yaml_node_t *n)
{
	if (n->type != YAML_SCALAR_NODE || memchr(n->data.scalar.value, '\0', n->data.scalar.length))
		return NULL;
	return (const char *)n->data.scalar.value;
}

static int yaml_list(struct walk *w, const yaml_node_t *list)
{
	struct joined to = { NULL, 0 };
	const yaml_node_item_t *i;
	const char *text;
	int r = 0;

	for (i = list->data.sequence.items.start; i < list->data.sequence.items.top; i++) {
		text = yaml_text(yaml_document_get_node(w->doc, *i));
		r = text ? list_join(w, &to, text) :
			mc_fail(-EINVAL, "the list of \"%s\" holds more than plain values", w->key);
		if (r < 0)
			break;
	}
	return finish_list(w, &to, r);
}

static int yaml_map(struct walk *w, const yaml_node_t *map);

static int yaml_value(struct walk *w, const yaml_node_t *v)
{
	const char *text;
	int r;

	if (v->type == YAML_MAPPING_NODE) {
		r = walk_begin_map(w);
		return r < 0 ? r : yaml_map(w, v);
	}
	if (v->type == YAML_SEQUENCE_NODE)
		return yaml_list(w, v);
	text = yaml_text(v);
	if (!text)
		return mc_fail(-EINVAL, "the value of \"%s\" is not text", w->key);
	return yaml_is_null(v) ? 0 : w->fn(w->arg, w->key, text, MC_CONF_SCALAR);
}

static int yaml_map(struct walk *w, const yaml_node_t *map)
{
	const yaml_node_pair_t *p;
	const yaml_node_t *k;
	size_t old;
	int r;

	r = walk_deeper(w);
	if (r < 0)
		return r;
	for (p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
		k = yaml_document_get_node(w->doc, p->key);
		if (k->type != YAML_SCALAR_NODE)
			return mc_fail(-EINVAL, "line %zu: a key is not plain text",
				       k->start_mark.line + 1);
		r = walk_enter(w, (const char *)k->data.scalar.value, k->data.scalar.length, &old);
		if (r < 0)
			return r;
		r = yaml_value(w, yaml_document_get_node(w->doc, p->value));
		if (r < 0)
			return r;
		w->key[old] = '\0';
	}
	w->depth--;
	return 0;
}

static int parse_yaml(struct walk *w, const char *text, size_t len)
{
	yaml_document_t doc;
	yaml_parser_t parser;
	yaml_node_t *root;
	int r = 0;

	if (!yaml_parser_initialize(&parser))
		return mc_fail(-ENOMEM, "no memory for the config file");
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	if (!yaml_parser_load(&parser, &doc)) {
		r = mc_fail(-EINVAL, "line %zu: %s", parser.problem_mark.line + 1,
			    parser.problem ? parser.problem : "not YAML");
		yaml_parser_delete(&parser);
		return r;
	}
	root = yaml_document_get_root_node(&doc);
	w->doc = &doc;
	/* A file that has only comments has no root. */
	if (root && root->type == YAML_MAPPING_NODE)
		r = yaml_map(w, root);
	else if (root && !(root->type == YAML_SCALAR_NODE && yaml_is_null(root)))
		r = mc_fail(-EINVAL, "it is not a map of names to values");
	yaml_document_delete(&doc);
	yaml_parser_delete(&parser);
	return r;
}

int mc_conf_parse(const char *text, size_t len, enum mc_conf_format format, mc_conf_pair_fn fn, void *arg)
{
	struct walk w = { .fn = fn, .arg = arg };

	return format == MC_CONF_JSON ? parse_json(&w, text, len) : parse_yaml(&w, text, len);
}

/* ---- files ---- */

static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), t = strlen(tail);

	return n >= t && !strcmp(s + n - t, tail);
}

static enum mc_conf_format format_of(const char *path, const char *text, size_t len)
{
	size_t i = 0;

	if (ends_with(path, ".json"))
		return MC_CONF_JSON;
	if (ends_with(path, ".yaml") || ends_with(path, ".yml"))
		return MC_CONF_YAML;
	while (i < len && strchr(" \t\r\n", text[i]))
		i++;
	return i < len && text[i] == '{' ? MC_CONF_JSON : MC_CONF_YAML;
}

/* Read FILE_MAX bytes and one more, which shows that the file is too large. */
static int read_whole(int fd, char *buf, size_t *ret_len)
{
	size_t len = 0;
	ssize_t n;

	while (len <= FILE_MAX) {
		n = read(fd, buf + len, FILE_MAX + 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return mc_fail(-errno, "%s", mc_strerror(errno));
		if (n == 0)
			break;
		len += (size_t)n;
	}
	if (len > FILE_MAX)
		return mc_fail(-EFBIG, "it is larger than 1 MiB");
	*ret_len = len;
	return 0;
}

int mc_conf_read(const char *path, mc_conf_pair_fn fn, void *arg)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC);
	auto_free char *buf = malloc(FILE_MAX + 1);
	size_t len = 0;
	int r;

	if (!buf)
		return mc_fail(-ENOMEM, "no memory for config file %s", path);
	if (fd < 0)
		return mc_fail(-errno, "cannot read config file %s: %s", path, mc_strerror(errno));
	r = read_whole(fd, buf, &len);
	if (r == 0)
		r = mc_conf_parse(buf, len, format_of(path, buf, len), fn, arg);
	return r < 0 ? mc_fail(r, "config file %s: %s", path, mc_err_detail(r)) : 0;
}
