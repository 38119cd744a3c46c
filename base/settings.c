#include "base/settings.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/str.h"

enum { FILE_BYTES = 1 << 20, ENV_NAME_BYTES = 160 };

/* The sources are listed in their order, strongest first. */
enum rank { RANK_ENV, RANK_USER, RANK_SITE };

struct entry {
    struct entry *next;
    enum rank rank;
    const char *key, *value, *origin;
};

struct settings {
    struct arena arena;
    const char **known; /* ended by NULL */
    struct entry *entries;
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while reading settings");
}

static int add_entry(struct settings *s, enum rank rank, const char *key, const char *value,
                     const char *origin, struct err *err)
{
    struct entry *e = arena_alloc(&s->arena, sizeof *e, 0);
    if (e == NULL || origin == NULL)
        return no_memory(err);
    *e = (struct entry){s->entries, rank, arena_strdup(&s->arena, key),
                        arena_strdup(&s->arena, value), origin};
    if (e->key == NULL || e->value == NULL)
        return no_memory(err);
    s->entries = e;
    return 0;
}

static bool is_known(const struct settings *s, const char *key)
{
    for (size_t i = 0; s->known[i] != NULL; i++)
        if (strcmp(s->known[i], key) == 0)
            return true;
    return false;
}

static int unknown_key(const struct settings *s, const char *place, const char *key,
                       struct err *err)
{
    const char *near = str_nearest(key, s->known);
    if (near != NULL)
        return err_set(err, ERR_INPUT, "%s: '%.64s' is not a setting: did you mean '%s'?", place,
                       key, near);
    return err_set(err, ERR_INPUT, "%s: '%.64s' is not a setting: `reel config` lists them", place,
                   key);
}

/* ---- environment ---- */

static const char *env_get(const char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; env != NULL && *env != NULL; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return (*env)[n + 1] != '\0' ? *env + n + 1 : NULL; /* empty counts as unset */
    return NULL;
}

/* Converts "min-gain" to "REEL_MIN_GAIN". Returns false if the name does not fit. */
static bool env_name(const char *key, char name[ENV_NAME_BYTES])
{
    int n = snprintf(name, ENV_NAME_BYTES, "REEL_%s", key);
    for (char *p = name; *p != '\0'; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
    return n > 0 && n < ENV_NAME_BYTES;
}

static int load_env(struct settings *s, const char *const *env, struct err *err)
{
    for (size_t i = 0; s->known[i] != NULL; i++) {
        char name[ENV_NAME_BYTES];
        const char *value = env_name(s->known[i], name) ? env_get(env, name) : NULL;
        if (value == NULL)
            continue;
        int rc = add_entry(s, RANK_ENV, s->known[i], value, arena_printf(&s->arena, "env %s", name),
                           err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- files ---- */

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    text[n] = '\0';
    return text;
}

/* Cuts off a comment, which starts with a '#' at the start of a line or after white space. */
static void cut_comment(char *line)
{
    for (char *p = line; *p != '\0'; p++)
        if (*p == '#' && (p == line || isspace((unsigned char)p[-1]))) {
            *p = '\0';
            return;
        }
}

static const struct entry *find(const struct settings *s, enum rank rank, const char *key)
{
    for (const struct entry *e = s->entries; e != NULL; e = e->next)
        if (e->rank == rank && strcmp(e->key, key) == 0)
            return e;
    return NULL;
}

/* Reads one line of a file and modifies it; `place` is "FILE:LINE". */
static int read_line(struct settings *s, enum rank rank, char *line, const char *place,
                     struct err *err)
{
    cut_comment(line);
    char *key = trim(line), *equals = strchr(key, '=');
    if (*key == '\0')
        return 0;
    if (equals == NULL || equals == key)
        return err_set(err, ERR_INPUT, "%s: '%.64s' is not a setting: write `key = value`", place,
                       key);
    *equals = '\0';
    char *value = trim(equals + 1);
    key = trim(key);
    if (!is_known(s, key))
        return unknown_key(s, place, key, err);
    if (*value == '\0')
        return err_set(err, ERR_INPUT, "%s: '%s' has no value: give one or remove the line", place,
                       key);
    const struct entry *before = find(s, rank, key);
    if (before != NULL)
        return err_set(err, ERR_INPUT, "%s: '%s' was set before at %s: keep one", place, key,
                       before->origin);
    return add_entry(s, rank, key, value, place, err);
}

static int read_lines(struct settings *s, enum rank rank, char *text, const char *path,
                      struct err *err)
{
    int rc, number = 1;
    for (char *line = text, *next; line != NULL; line = next, number++) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        const char *place = arena_printf(&s->arena, "%s:%d", path, number);
        if (place == NULL)
            return no_memory(err);
        if ((rc = read_line(s, rank, line, place, err)) < 0)
            return rc;
    }
    return 0;
}

static int load_file(struct settings *s, enum rank rank, const char *path, struct err *err)
{
    struct str text = STR_INIT;
    int rc;
    if (!file_exists(path))
        return 0;
    if ((rc = file_read(path, FILE_BYTES, &text, err)) < 0 || text.len == 0)
        goto out;
    if (strlen(text.p) != text.len) {
        rc = err_set(err, ERR_INPUT, "%s: holds a zero byte: settings are text lines `key = value`",
                     path);
        goto out;
    }
    rc = read_lines(s, rank, text.p, path, err);
out:
    str_release(&text);
    return rc;
}

static int load_user_file(struct settings *s, const char *const *env, struct err *err)
{
    const char *xdg = env_get(env, "XDG_CONFIG_HOME"), *home = env_get(env, "HOME");
    if (xdg == NULL && home == NULL)
        return 0;
    const char *path = xdg != NULL ? arena_printf(&s->arena, "%s/reel/config", xdg)
                                   : arena_printf(&s->arena, "%s/.config/reel/config", home);
    return path != NULL ? load_file(s, RANK_USER, path, err) : no_memory(err);
}

static int load_site_file(struct settings *s, const char *const *env, struct err *err)
{
    const char *path = env_get(env, "REEL_SITE_CONFIG");
    return load_file(s, RANK_SITE, path != NULL ? path : "/etc/reel/config", err);
}

/* ---- public ---- */

static int copy_known(struct settings *s, const char *const *known, struct err *err)
{
    size_t n = 0;
    while (known[n] != NULL)
        n++;
    s->known = arena_array(&s->arena, n + 1, sizeof *s->known);
    for (size_t i = 0; s->known != NULL && i < n; i++)
        if ((s->known[i] = arena_strdup(&s->arena, known[i])) == NULL)
            return no_memory(err);
    return s->known != NULL ? 0 : no_memory(err);
}

int settings_load(const char *const *known, const char *const *env, struct settings **out,
                  struct err *err)
{
    struct settings *s = calloc(1, sizeof *s);
    int rc;
    if (s == NULL)
        return no_memory(err);
    if ((rc = copy_known(s, known, err)) < 0)
        goto out;
    if ((rc = load_env(s, env, err)) < 0)
        goto out;
    if ((rc = load_user_file(s, env, err)) < 0)
        goto out;
    if ((rc = load_site_file(s, env, err)) < 0)
        goto out;
    *out = s;
    s = NULL; /* the caller owns it now */
out:
    settings_free(s);
    return rc;
}

void settings_free(struct settings *s)
{
    if (s == NULL)
        return;
    arena_release(&s->arena);
    free(s);
}

const char *settings_get(const struct settings *s, const char *key, const char **origin)
{
    for (enum rank rank = RANK_ENV; rank <= RANK_SITE; rank++) {
        const struct entry *e = find(s, rank, key);
        if (e == NULL)
            continue;
        if (origin != NULL)
            *origin = e->origin;
        return e->value;
    }
    return NULL;
}
