#include "base/opt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/num.h"

struct opt_value {
    bool given;
    const char *origin;
    const char *flag;  /* the text on the command line; NULL if it is not given there */
    int64_t i;         /* OPT_INT, OPT_BYTES */
    double d;          /* OPT_NUM, OPT_SECONDS */
    bool b;            /* OPT_BOOL */
    const char *text;  /* OPT_TEXT, OPT_ENUM */
    int e;             /* OPT_ENUM: index of the choice */
};

struct opt_values {
    const struct opt_cmd *cmd;
    struct arena arena;
    struct opt_value *values; /* one for each option of the table */
    const char **operands;
    size_t n_operands;
};

static int no_memory(struct err *err)
{
    return err_set(err, ERR_NOMEM, "out of memory while reading options");
}

/* ---- text to value ---- */

static int check_bounds(const struct opt *o, const char *what, double value, const char *text,
                        struct err *err)
{
    if (!(o->max > o->min) || (value >= o->min && value <= o->max))
        return 0;
    char low[JSON_NUM_BYTES], high[JSON_NUM_BYTES];
    return err_set(err, ERR_INPUT, "%s is %.100s: give a value from %s to %s", what, text,
                   json_format_num(o->min, low), json_format_num(o->max, high));
}

static int parse_bool(const char *text, const char *what, bool *out, struct err *err)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return 0;
        }
    return err_set(err, ERR_INPUT, "%s is '%.100s': give true or false", what, text);
}

static int parse_choice(const struct opt *o, const char *text, const char *what, int *out,
                        struct err *err)
{
    struct str all = STR_INIT;
    for (int i = 0; o->choices[i] != NULL; i++) {
        if (strcmp(o->choices[i], text) == 0) {
            *out = i;
            str_release(&all);
            return 0;
        }
        str_addf(&all, "%s%s", i == 0 ? "" : ", ", o->choices[i]);
    }
    const char *near = str_nearest(text, o->choices);
    int rc = near != NULL
                 ? err_set(err, ERR_INPUT, "%s is '%.100s': did you mean %s? (one of %s)", what,
                           text, near, all.p)
                 : err_set(err, ERR_INPUT, "%s is '%.100s': give one of %s", what, text, all.p);
    str_release(&all);
    return rc;
}

/* Converts `text` to the value of o. The value borrows the text. `what` names the option in
 * errors. */
static int convert(const struct opt *o, const char *text, const char *what,
                   struct opt_value *value, struct err *err)
{
    int rc = 0;
    switch (o->type) {
    case OPT_BOOL: return parse_bool(text, what, &value->b, err);
    case OPT_TEXT: value->text = text; return 0;
    case OPT_ENUM:
        rc = parse_choice(o, text, what, &value->e, err);
        value->text = rc == 0 ? o->choices[value->e] : NULL;
        return rc;
    case OPT_INT: rc = num_parse_i64(text, what, &value->i, err); break;
    case OPT_BYTES: rc = num_parse_bytes(text, what, &value->i, err); break;
    case OPT_NUM: rc = num_parse_f64(text, what, &value->d, err); break;
    case OPT_SECONDS: rc = num_parse_seconds(text, what, &value->d, err); break;
    }
    bool whole = o->type == OPT_INT || o->type == OPT_BYTES;
    if (rc < 0)
        return rc;
    return check_bounds(o, what, whole ? (double)value->i : value->d, text, err);
}

/* Does what convert() does, for a setting that comes from `origin`. */
static int convert_setting(const struct opt *o, const char *text, const char *origin,
                           struct opt_value *value, struct err *err)
{
    char what[LIMIT_PATH_BYTES];
    snprintf(what, sizeof what, "%s: setting '%s'", origin, o->name);
    return convert(o, text, what, value, err);
}

int opt_setting_check(const struct opt *o, const char *text, const char *origin, struct err *err)
{
    struct opt_value ignored;
    return convert_setting(o, text, origin, &ignored, err);
}

/* ---- the command line ---- */

struct parser {
    const struct opt_cmd *cmd;
    int argc, next;
    char **argv;
    struct opt_values *v;
    struct err *err;
};

static const struct opt *find_name(const struct opt_cmd *cmd, const char *name, size_t n)
{
    for (size_t i = 0; i < cmd->n_opts; i++)
        if (strlen(cmd->opts[i].name) == n && memcmp(cmd->opts[i].name, name, n) == 0)
            return &cmd->opts[i];
    return NULL;
}

static const struct opt *find_letter(const struct opt_cmd *cmd, char letter)
{
    for (size_t i = 0; i < cmd->n_opts; i++)
        if (cmd->opts[i].letter == letter && letter != '\0')
            return &cmd->opts[i];
    return NULL;
}

static struct opt_value *value_of(const struct opt_values *v, const struct opt *o)
{
    return &v->values[o - v->cmd->opts];
}

static void mark(struct opt_value *value, const char *origin)
{
    value->given = true;
    value->origin = origin;
}

/* Remembers `text` as the option's value on the command line. Refuses it if the command line has
 * given another value before, because it is not clear which one the user wants. */
static int say_once(struct parser *p, const struct opt *o, const char *what, const char *text)
{
    struct opt_value *value = value_of(p->v, o);
    if (value->flag != NULL && strcmp(value->flag, text) != 0)
        return err_set(p->err, ERR_USAGE, "%s: %s is given twice, as '%.100s' and as '%.100s': "
                       "give it once", p->cmd->name, what, value->flag, text);
    value->flag = text;
    return 0;
}

static int flag_convert(struct parser *p, const struct opt *o, const char *what, const char *text)
{
    char *copy = arena_strdup(&p->v->arena, text);
    int rc;
    if (copy == NULL)
        return no_memory(p->err);
    if ((rc = convert(o, copy, what, value_of(p->v, o), p->err)) < 0)
        return rc;
    return say_once(p, o, what, copy);
}

/* Sets an option from the command line. A bad value there is ERR_USAGE, not ERR_INPUT. */
static int set_flag(struct parser *p, const struct opt *o, const char *what, const char *text)
{
    int rc = flag_convert(p, o, what, text);
    if (rc == ERR_INPUT) {
        rc = ERR_USAGE;
        if (p->err != NULL)
            p->err->code = rc;
    }
    if (rc < 0)
        return rc;
    mark(value_of(p->v, o), "flag");
    return 0;
}

static int set_bool(struct parser *p, const struct opt *o, bool on)
{
    struct opt_value *value = value_of(p->v, o);
    if (value->flag != NULL && value->b != on)
        return err_set(p->err, ERR_USAGE, "%s: --%s and --no-%s are both given: give one of them",
                       p->cmd->name, o->name, o->name);
    value->b = on;
    value->flag = o->name;
    mark(value, "flag");
    return 0;
}

/* Takes the value from the next argument. If that looks like an option, the user has more likely
 * forgotten the value, so it is an error. */
static int set_from_next(struct parser *p, const struct opt *o, const char *what)
{
    const char *text = p->next < p->argc ? p->argv[p->next] : NULL;
    if (text == NULL || (text[0] == '-' && text[1] == '-'))
        return err_set(p->err, ERR_USAGE, "%s: %s needs a value: give %s%c%s", p->cmd->name, what,
                       what, what[1] == '-' ? '=' : ' ', o->arg);
    p->next++;
    return set_flag(p, o, what, text);
}

/* Reports an unknown option, and suggests the nearest of all names and their --no- forms. */
static int unknown_option(struct parser *p, const char *name, size_t n)
{
    char *wrong = arena_strndup(&p->v->arena, name, n);
    const char **names = arena_array(&p->v->arena, 2 * p->cmd->n_opts + 2, sizeof *names);
    if (wrong == NULL || names == NULL)
        return no_memory(p->err);
    size_t k = 0;
    names[k++] = "help";
    for (size_t i = 0; i < p->cmd->n_opts; i++) {
        const struct opt *o = &p->cmd->opts[i];
        if (o->flags & OPT_HIDDEN)
            continue;
        names[k++] = o->name;
        if (o->type == OPT_BOOL &&
            (names[k] = arena_printf(&p->v->arena, "no-%s", o->name)) != NULL)
            k++;
    }
    const char *near = str_nearest(wrong, names);
    if (near != NULL)
        return err_set(p->err, ERR_USAGE, "%s: unknown option --%s: did you mean --%s?",
                       p->cmd->name, wrong, near);
    return err_set(p->err, ERR_USAGE, "%s: unknown option --%s: --help lists the options",
                   p->cmd->name, wrong);
}

/* Parses the text after "--". */
static int parse_long(struct parser *p, const char *text)
{
    size_t n = strcspn(text, "=");
    const char *value = text[n] == '=' ? text + n + 1 : NULL;
    const struct opt *o = find_name(p->cmd, text, n);
    bool on = true;
    if (o == NULL && n > 3 && str_starts(text, "no-")) {
        o = find_name(p->cmd, text + 3, n - 3);
        on = false;
    }
    if (o == NULL || (!on && o->type != OPT_BOOL))
        return unknown_option(p, text, n);
    if (o->type == OPT_BOOL) {
        if (value != NULL)
            return err_set(p->err, ERR_USAGE, "%s: --%.*s takes no value: give --%s or --no-%s",
                           p->cmd->name, (int)n, text, o->name, o->name);
        return set_bool(p, o, on);
    }
    char *what = arena_printf(&p->v->arena, "--%s", o->name);
    if (what == NULL)
        return no_memory(p->err);
    return value != NULL ? set_flag(p, o, what, value) : set_from_next(p, o, what);
}

/* Parses the text after "-": letters of booleans. The last letter may be of an option with a value,
 * which may follow without a space. */
static int parse_letters(struct parser *p, const char *text)
{
    for (; *text != '\0'; text++) {
        const struct opt *o = find_letter(p->cmd, *text);
        const char what[] = {'-', *text, '\0'};
        if (o == NULL)
            return err_set(p->err, ERR_USAGE, "%s: unknown option %s: --help lists the options",
                           p->cmd->name, what);
        if (o->type != OPT_BOOL)
            return text[1] != '\0' ? set_flag(p, o, what, text + 1) : set_from_next(p, o, what);
        int rc = set_bool(p, o, true);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int add_operand(struct parser *p, const char *text)
{
    char *copy = arena_strdup(&p->v->arena, text);
    if (copy == NULL)
        return no_memory(p->err);
    p->v->operands[p->v->n_operands++] = copy;
    return 0;
}

/* Tells whether the argument, which begins with '-', is an option of this table. */
static bool is_ours(const struct parser *p, const char *arg)
{
    if (arg[1] != '-')
        return find_letter(p->cmd, arg[1]) != NULL;
    size_t n = strcspn(arg + 2, "=");
    return find_name(p->cmd, arg + 2, n) != NULL ||
           (n > 3 && str_starts(arg + 2, "no-") && find_name(p->cmd, arg + 5, n - 3) != NULL);
}

static int parse_args(struct parser *p)
{
    if (p->cmd->pass && p->argc > 1 && strcmp(p->argv[1], "--") == 0)
        p->next++;
    bool options = true;
    for (int rc = 0; p->next < p->argc;) {
        const char *arg = p->argv[p->next++];
        if (!options || arg[0] != '-' || arg[1] == '\0')
            rc = add_operand(p, arg);
        else if (strcmp(arg, "--") == 0)
            rc = (options = false, p->cmd->pass) ? add_operand(p, arg) : 0;
        else if (p->cmd->pass && !is_ours(p, arg))
            rc = add_operand(p, arg);
        else
            rc = arg[1] == '-' ? parse_long(p, arg + 2) : parse_letters(p, arg + 1);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static bool wants_help(const struct opt_cmd *cmd, int argc, char **argv)
{
    bool letter = find_letter(cmd, 'h') == NULL;
    for (int i = 1; i < argc && !cmd->pass && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || (letter && strcmp(argv[i], "-h") == 0))
            return true;
    return false;
}

/* ---- the layers below the flags ---- */

static int fill_from_settings(struct opt_values *v, const struct opt *o,
                              const struct settings *settings, struct err *err)
{
    const char *origin = NULL, *text = settings_get(settings, o->name, &origin);
    int rc;
    if (text == NULL)
        return 0;
    char *copy = arena_strdup(&v->arena, text), *kept = arena_strdup(&v->arena, origin);
    if (copy == NULL || kept == NULL)
        return no_memory(err);
    if ((rc = convert_setting(o, copy, kept, value_of(v, o), err)) < 0)
        return rc;
    mark(value_of(v, o), kept);
    return 0;
}

static int fill_layers(struct opt_values *v, const struct settings *settings, struct err *err)
{
    for (size_t i = 0; i < v->cmd->n_opts; i++) {
        const struct opt *o = &v->cmd->opts[i];
        struct opt_value *value = &v->values[i];
        int rc;
        if (!value->given && settings != NULL && (o->flags & OPT_SETTING) &&
            (rc = fill_from_settings(v, o, settings, err)) < 0)
            return rc;
        if (!value->given && o->fallback != NULL &&
            (rc = convert(o, o->fallback, o->name, value, err)) < 0)
            return rc;
        if (!value->given && (o->flags & OPT_REQUIRED))
            return err_set(err, ERR_USAGE, "%s: --%s is required: give --%s=%s", v->cmd->name,
                           o->name, o->name, o->arg);
    }
    return 0;
}

static int check_operands(const struct opt_values *v, struct err *err)
{
    const struct opt_cmd *cmd = v->cmd;
    if (v->n_operands < (size_t)cmd->min_operands)
        return err_set(err, ERR_USAGE, "%s: %zu operand%s given, %d needed: %s %s", cmd->name,
                       v->n_operands, v->n_operands == 1 ? "" : "s", cmd->min_operands, cmd->name,
                       cmd->operands);
    if (cmd->max_operands >= 0 && v->n_operands > (size_t)cmd->max_operands)
        return err_set(err, ERR_USAGE, "%s: '%.100s' is one operand too many: %s %s", cmd->name,
                       v->operands[cmd->max_operands], cmd->name, cmd->operands);
    return 0;
}

static struct opt_values *values_new(const struct opt_cmd *cmd, int argc)
{
    struct opt_values *v = calloc(1, sizeof *v);
    if (v == NULL)
        return NULL;
    arena_init(&v->arena, 4096);
    v->cmd = cmd;
    v->values = arena_array(&v->arena, cmd->n_opts, sizeof *v->values);
    v->operands = arena_array(&v->arena, (size_t)argc + 1, sizeof *v->operands);
    if (v->values == NULL || v->operands == NULL) {
        opt_free(v);
        return NULL;
    }
    for (size_t i = 0; i < cmd->n_opts; i++)
        v->values[i] = (struct opt_value){.origin = "default", .e = -1};
    return v;
}

int opt_parse(const struct opt_cmd *cmd, int argc, char **argv, const struct settings *settings,
              struct opt_values **out, bool *help, struct err *err)
{
    int rc;
    *help = wants_help(cmd, argc, argv);
    if (*help) {
        *out = NULL;
        return opt_check(cmd, err);
    }
    struct opt_values *v = values_new(cmd, argc);
    if (v == NULL)
        return no_memory(err);
    struct parser p = {.cmd = cmd, .argc = argc, .next = 1, .argv = argv, .v = v, .err = err};
    if ((rc = parse_args(&p)) < 0)
        goto out;
    if ((rc = fill_layers(v, settings, err)) < 0)
        goto out;
    if ((rc = check_operands(v, err)) < 0)
        goto out;
    *out = v;
    v = NULL; /* the caller owns it now */
out:
    opt_free(v);
    return rc;
}

void opt_free(struct opt_values *v)
{
    if (v == NULL)
        return;
    arena_release(&v->arena);
    free(v);
}

/* ---- access ---- */

static const struct opt_value *get(const struct opt_values *v, const char *name, unsigned types)
{
    const struct opt *o = find_name(v->cmd, name, strlen(name));
    if (o == NULL || (types >> o->type & 1) == 0)
        err_bug(__FILE__, __LINE__, "command %s has no option '%s' of the type asked for",
                v->cmd->name, name);
    return value_of(v, o);
}

enum { ANY_TYPE = ~0 };
#define IS(type) (1u << (type))

bool opt_bool(const struct opt_values *v, const char *name)
{
    return get(v, name, IS(OPT_BOOL))->b;
}

int64_t opt_int(const struct opt_values *v, const char *name)
{
    return get(v, name, IS(OPT_INT) | IS(OPT_BYTES))->i;
}

double opt_num(const struct opt_values *v, const char *name)
{
    return get(v, name, IS(OPT_NUM) | IS(OPT_SECONDS))->d;
}

const char *opt_text(const struct opt_values *v, const char *name)
{
    return get(v, name, IS(OPT_TEXT) | IS(OPT_ENUM))->text;
}

int opt_enum(const struct opt_values *v, const char *name)
{
    return get(v, name, IS(OPT_ENUM))->e;
}

bool opt_given(const struct opt_values *v, const char *name)
{
    return get(v, name, (unsigned)ANY_TYPE)->given;
}

bool opt_typed(const struct opt_values *v, const char *name)
{
    return get(v, name, (unsigned)ANY_TYPE)->flag != NULL;
}

size_t opt_operands(const struct opt_values *v, const char *const **items)
{
    *items = (const char *const *)v->operands;
    return v->n_operands;
}

static void put_value(struct json_out *o, const struct opt *opt, const struct opt_value *value)
{
    bool have = value->given || opt->fallback != NULL;
    switch (opt->type) {
    case OPT_BOOL: json_put_bool(o, "value", value->b); return;
    case OPT_TEXT:
    case OPT_ENUM: json_put_text(o, "value", value->text); return;
    case OPT_INT:
    case OPT_BYTES:
        if (have)
            json_put_int(o, "value", value->i);
        break;
    case OPT_NUM:
    case OPT_SECONDS:
        if (have)
            json_put_num(o, "value", value->d);
        break;
    }
    if (!have)
        json_put_null(o, "value");
}

void opt_json(const struct opt_values *v, struct str *out)
{
    struct json_out o;
    json_out_init(&o, out, 0);
    json_obj_begin(&o, NULL);
    for (size_t i = 0; i < v->cmd->n_opts; i++) {
        json_obj_begin(&o, v->cmd->opts[i].name);
        put_value(&o, &v->cmd->opts[i], &v->values[i]);
        json_put_text(&o, "origin", v->values[i].origin);
        json_obj_end(&o);
    }
    json_obj_end(&o);
}

/* ---- mistakes in a table ---- */

static int check_opt(struct opt_values *v, const struct opt *o, struct err *err)
{
    const struct opt_cmd *cmd = v->cmd;
    bool number = o->type == OPT_INT || o->type == OPT_NUM || o->type == OPT_BYTES ||
                  o->type == OPT_SECONDS;
    const char *wrong = NULL;
    if (o->name[0] == '\0' ||
        strspn(o->name, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(o->name))
        wrong = "the name is not lower case letters, digits and dashes";
    else if (find_name(cmd, o->name, strlen(o->name)) != o || strcmp(o->name, "help") == 0)
        wrong = "the name is taken";
    else if (o->letter != '\0' && find_letter(cmd, o->letter) != o)
        wrong = "the letter is taken";
    else if ((o->arg == NULL) != (o->type == OPT_BOOL))
        wrong = "booleans have no arg, all others have one";
    else if ((o->choices == NULL) != (o->type != OPT_ENUM))
        wrong = "enums have choices, all others have none";
    else if (!number && (o->min != 0 || o->max != 0))
        wrong = "bounds on something that is no number";
    else if (o->help == NULL || o->help[0] == '\0' || str_ends(o->help, "."))
        wrong = "the help is not one clause without a full stop";
    else if (o->fallback != NULL && (o->flags & OPT_REQUIRED))
        wrong = "required, yet it has a fallback";
    if (wrong != NULL)
        return err_set(err, ERR_STATE, "%s: option '%s': %s", cmd->name, o->name, wrong);
    return o->fallback != NULL ? convert(o, o->fallback, o->name, value_of(v, o), err) : 0;
}

int opt_check(const struct opt_cmd *cmd, struct err *err)
{
    struct opt_values *v = values_new(cmd, 0);
    int rc = 0;
    if (v == NULL)
        return no_memory(err);
    for (size_t i = 0; i < cmd->n_opts; i++)
        if ((rc = check_opt(v, &cmd->opts[i], err)) < 0)
            break;
    opt_free(v);
    return rc;
}
