/* This file reads the format reel.adapter/1. The tables below say what each field means; `reel
 * format adapter` is made from them. Each compiled-in adapter names in `source` the version of the
 * trainer that has these flags and log lines.
 */
#include "profiles/adapter.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/adapter_text.h"
#include "profiles/catalog.h"
#include "profiles/field.h"
#include "profiles/format.h"
#include "profiles/stack.h"
#include "profiles/step_lines.h"

static const char *const class_names[] = {
#define CLASS_NAME(id, name, what) name,
    KERNEL_CLASS_LIST(CLASS_NAME)
#undef CLASS_NAME
    NULL};

/* ---- tables ---- */

struct head_text { const char *name, *source, *stack, *format, *step_pattern; double start_s; };
static const struct head_text head_defaults = {.start_s = 600};
#define AT(field) offsetof(struct head_text, field)
static const struct json_field head_fields[] = {
    {"schema", JSON_ANY, 0, .help = "\"reel.adapter/1\""},
    {"name", JSON_TEXT, AT(name), .help = "of the adapter"},
    {"source", JSON_TEXT, AT(source),
     .help = "of which version of the trainer these flags and lines are"},
    {"stack", JSON_TEXT, AT(stack),
     .help = "a stack, by name or as a file: by which the trainer is predicted"},
    {"format", JSON_TEXT, AT(format), .optional = true,
     .help = "how it prints its steps: megatron, torchtitan, nemo, lightning or hf, as for 'reel "
             "wrap'; left out: step_pattern says it"},
    {"step_pattern", JSON_TEXT, AT(step_pattern), .optional = true,
     .help = "a POSIX extended expression with names, as for 'reel wrap'; left out: format says "
             "it"},
    {"start_s", JSON_NUM, AT(start_s), .optional = true, .min = 1, .max = 86400,
     .help = "seconds without a printed byte, before its first step, that are a hang"},
    {"arguments", JSON_ANY, 0, .help = "a list of what is added to its command, in order"},
    {"environment", JSON_ANY, 0, .optional = true,
     .help = "a list of variables that it needs, or must not have, in its environment"},
    {"excludes", JSON_ANY, 0, .optional = true, .help = "a list of the layouts that it cannot run"},
    {"memory", JSON_ANY, 0, .optional = true,
     .help = "an object: how its log tells the peak of a device's memory"},
    {"oom_device", JSON_ANY, 0, .optional = true,
     .help = "a list of expressions: a device's memory was short"},
    {"oom_host", JSON_ANY, 0, .optional = true,
     .help = "a list of expressions: the host's was"},
    {"timers", JSON_ANY, 0, .optional = true,
     .help = "a list of its own timers, where its log has them"},
};
#undef AT
struct argument_text { const char *when; bool trial; };
static const struct argument_text argument_defaults = {.when = ""};
static const struct json_field argument_fields[] = {
    {"words", JSON_ANY, 0, .help = "a list of 1 to 8 texts, each one argument, with expressions "
                                   "in braces"},
    {"when", JSON_TEXT, offsetof(struct argument_text, when), .optional = true,
     .help = "a condition; left out: always"},
    {"trial", JSON_BOOL, offsetof(struct argument_text, trial), .optional = true,
     .help = "in trials alone, and not among the flags of the winner"},
};
struct variable_text { const char *name, *value, *when; };
static const struct variable_text variable_defaults = {.when = ""};
static const struct json_field variable_fields[] = {
    {"name", JSON_TEXT, offsetof(struct variable_text, name),
     .help = "of letters, digits and _; of two entries of one name that hold, the last one counts"},
    {"value", JSON_TEXT, offsetof(struct variable_text, value), .optional = true,
     .help = "with expressions in braces; left out: the variable is taken out of the environment"},
    {"when", JSON_TEXT, offsetof(struct variable_text, when), .optional = true,
     .help = "a condition; left out: always"},
};
struct rule_text { const char *rule, *when, *because; };
static const struct json_field rule_fields[] = {
    {"rule", JSON_TEXT, offsetof(struct rule_text, rule), .help = "a name for it"},
    {"when", JSON_TEXT, offsetof(struct rule_text, when), .help = "a condition"},
    {"because", JSON_TEXT, offsetof(struct rule_text, because),
     .help = "what the trainer lacks, as a sentence"},
};
struct memory_text { const char *pattern; double unit_bytes; };
static const struct json_field memory_fields[] = {
    {"pattern", JSON_TEXT, offsetof(struct memory_text, pattern),
     .help = "a POSIX extended expression, whose first group is the number"},
    {"unit_bytes", JSON_NUM, offsetof(struct memory_text, unit_bytes), .min = 1, .max = 1e15,
     .help = "bytes of its unit"},
};
struct timer_text { const char *pattern; double unit_s; int class; };
static const struct json_field timer_fields[] = {
    {"pattern", JSON_TEXT, offsetof(struct timer_text, pattern),
     .help = "a POSIX extended expression, whose first group is the number"},
    {"unit_s", JSON_NUM, offsetof(struct timer_text, unit_s), .min = 1e-12, .max = 1e6,
     .help = "seconds of its unit"},
    {"class", JSON_ENUM, offsetof(struct timer_text, class), .names = class_names,
     .help = "what the time is counted as; other: computation that it does not tell apart"},
};

size_t adapter_format(struct format_part *out)
{
    size_t n = 0;
#define PART(path, fields, defaults)                                                               \
    out[n++] = (struct format_part){path, fields, ARRAY_LEN(fields), defaults}
    PART("", head_fields, &head_defaults);
    PART("arguments[]", argument_fields, &argument_defaults);
    PART("environment[]", variable_fields, &variable_defaults);
    PART("excludes[]", rule_fields, NULL);
    PART("memory", memory_fields, NULL);
    PART("timers[]", timer_fields, NULL);
#undef PART
    return n;
}

/* ---- reading ---- */

struct place { const struct json_doc *doc; char path[96]; };

static int text_fail(const struct place *p, const char *field, const char *text,
                     const struct err *why, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: %s%s%s is '%s': %s", p->doc->name, p->path,
                   *p->path && *field ? "." : "", field, text, why->text);
}

/* Checks that a text is a regular expression with a group. */
static int pattern_check(const struct place *p, const char *field, const char *pattern,
                         struct err *err)
{
    regex_t compiled;
    char text[128];
    struct err why = {0};
    int status = regcomp(&compiled, pattern, REG_EXTENDED);
    if (status != 0) {
        regerror(status, &compiled, text, sizeof text);
        err_set(&why, ERR_INPUT, "it is no POSIX extended regular expression: %s", text);
        return text_fail(p, field, pattern, &why, err);
    }
    size_t groups = compiled.re_nsub;
    regfree(&compiled);
    if (groups > 0)
        return 0;
    err_set(&why, ERR_INPUT, "it has no group: put the number in parentheses, like ([0-9.]+)");
    return text_fail(p, field, pattern, &why, err);
}

static int condition_read(const struct place *p, const char *text, struct adapter_condition *out,
                          struct err *err)
{
    struct err why;
    return adapter_condition_parse(text, out, &why) < 0 ? text_fail(p, "when", text, &why, err) : 0;
}

/* Reads a list of texts. A list that is left out is empty. */
static int texts_read(const struct place *p, const char *field, const cJSON *list, int64_t most,
                      struct arena *arena, const char **out, int64_t *n, struct err *err)
{
    const cJSON *item;
    *n = 0;
    if (!list)
        return 0;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < 1 || cJSON_GetArraySize(list) > most)
        return err_set(err, ERR_INPUT, "%s: %s%s%s is no list of 1 to %lld texts: give one",
                       p->doc->name, p->path, *p->path ? "." : "", field, (long long)most);
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsString(item) || !*item->valuestring)
            return err_set(err, ERR_INPUT, "%s: %s%s%s[%lld] is no text: give one that is not "
                           "empty", p->doc->name, p->path, *p->path ? "." : "", field,
                           (long long)*n);
        if (!(out[*n] = arena_strdup(arena, item->valuestring)))
            return err_set(err, ERR_NOMEM, "out of memory for an adapter");
        ++*n;
    }
    return 0;
}

/* Checks a word's expressions. {dir}, the folder of a trial, is allowed in trials only. */
static int word_check(const struct place *p, const char *field, const char *word, bool trial,
                      struct err *err)
{
    struct err why;
    if (adapter_word_check(word, &why) < 0)
        return text_fail(p, field, word, &why, err);
    if (trial || !strstr(word, "{dir}"))
        return 0;
    err_set(&why, ERR_INPUT, "only a trial has a folder: %sleave {dir} out",
            strcmp(field, "words") == 0 ? "give \"trial\": true, or " : "");
    return text_fail(p, field, word, &why, err);
}

static int argument_read(struct adapter *a, const struct place *p, const cJSON *obj,
                         struct err *err)
{
    struct argument_text t = argument_defaults;
    struct adapter_argument *out = &a->arguments[a->n_arguments++];
    int rc;
    if ((rc = json_read(p->doc, obj, p->path, argument_fields, ARRAY_LEN(argument_fields),
                        &a->arena, &t, err)) < 0)
        return rc;
    if ((rc = condition_read(p, t.when, &out->when, err)) < 0)
        return rc;
    if ((rc = texts_read(p, "words", json_member(obj, "words"), ADAPTER_WORDS, &a->arena,
                         out->words, &out->n, err)) < 0)
        return rc;
    out->trial = t.trial;
    for (int64_t i = 0; i < out->n; i++)
        if ((rc = word_check(p, "words", out->words[i], t.trial, err)) < 0)
            return rc;
    return 0;
}

static int variable_read(struct adapter *a, const struct place *p, const cJSON *obj,
                         struct err *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_",
                      digits[] = "0123456789";
    struct variable_text t = variable_defaults;
    struct adapter_variable *out = &a->variables[a->n_variables++];
    struct err why;
    int rc;
    if ((rc = json_read(p->doc, obj, p->path, variable_fields, ARRAY_LEN(variable_fields),
                        &a->arena, &t, err)) < 0)
        return rc;
    const char *rest = t.name + strspn(t.name, letters);
    if (rest == t.name || rest[strspn(rest, digits)]) {
        err_set(&why, ERR_INPUT, "it is no name of a variable: give letters, digits and _, no "
                "digit first");
        return text_fail(p, "name", t.name, &why, err);
    }
    if (t.value && (rc = word_check(p, "value", t.value, false, err)) < 0)
        return rc;
    out->text = t.value ? arena_printf(&a->arena, "%s=%s", t.name, t.value) : t.name;
    if (!out->text)
        return err_set(err, ERR_NOMEM, "out of memory for an adapter");
    return condition_read(p, t.when, &out->when, err);
}

static int rule_read(struct adapter *a, const struct place *p, const cJSON *obj, struct err *err)
{
    struct rule_text t = {0};
    struct adapter_rule *out = &a->rules[a->n_rules++];
    int rc;
    if ((rc = json_read(p->doc, obj, p->path, rule_fields, ARRAY_LEN(rule_fields), &a->arena, &t,
                        err)) < 0)
        return rc;
    out->rule = t.rule, out->because = t.because;
    return condition_read(p, t.when, &out->when, err);
}

static int timer_read(struct adapter *a, const struct place *p, const cJSON *obj, struct err *err)
{
    struct timer_text t = {0};
    struct adapter_timer *out = &a->timers[a->n_timers++];
    int rc;
    if ((rc = json_read(p->doc, obj, p->path, timer_fields, ARRAY_LEN(timer_fields), &a->arena, &t,
                        err)) < 0)
        return rc;
    *out = (struct adapter_timer){t.pattern, t.unit_s, (enum kernel_class)t.class};
    return pattern_check(p, "pattern", t.pattern, err);
}

typedef int read_fn(struct adapter *a, const struct place *p, const cJSON *obj, struct err *err);

/* Reads the objects of a list. A list that is left out is empty. */
static int list_read(struct adapter *a, const struct json_doc *doc, const char *name, int most,
                     read_fn *read, struct err *err)
{
    const cJSON *list = json_member(doc->root, name), *item;
    struct place p = {.doc = doc};
    int rc, i = 0;
    if (!list)
        return 0;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > most)
        return err_set(err, ERR_INPUT, "%s: %s is no list of up to %d objects: give one", doc->name,
                       name, most);
    cJSON_ArrayForEach(item, list)
    {
        snprintf(p.path, sizeof p.path, "%s[%d]", name, i++);
        if ((rc = read(a, &p, item, err)) < 0)
            return rc;
    }
    return 0;
}

static int memory_read(struct adapter *a, const struct json_doc *doc, struct err *err)
{
    struct memory_text t = {0};
    struct place p = {doc, "memory"};
    const cJSON *obj = json_member(doc->root, "memory");
    int rc;
    if (!obj)
        return 0;
    if ((rc = json_read(doc, obj, p.path, memory_fields, ARRAY_LEN(memory_fields), &a->arena, &t,
                        err)) < 0)
        return rc;
    a->memory_pattern = t.pattern, a->memory_unit_bytes = t.unit_bytes;
    return pattern_check(&p, "pattern", t.pattern, err);
}

/* Reads a list of regular expressions, which need no group. */
static int oom_read(struct adapter *a, const struct json_doc *doc, const char *field,
                    const char **out, int64_t *n, struct err *err)
{
    struct place p = {.doc = doc};
    regex_t compiled;
    int rc;
    if ((rc = texts_read(&p, field, json_member(doc->root, field), ADAPTER_PATTERNS, &a->arena,
                         out, n, err)) < 0)
        return rc;
    for (int64_t i = 0; i < *n; i++) {
        if (regcomp(&compiled, out[i], REG_EXTENDED | REG_NOSUB) != 0)
            return err_set(err, ERR_INPUT, "%s: %s[%lld] is '%s': it is no POSIX extended regular "
                           "expression: give one", doc->name, field, (long long)i, out[i]);
        regfree(&compiled);
    }
    return 0;
}

/* Reads how the log reports steps: exactly one of format and step_pattern. */
static int steps_read(struct adapter *a, const struct json_doc *doc, const struct head_text *t,
                      struct err *err)
{
    struct step_reader *reader = NULL;
    struct place p = {.doc = doc};
    struct err why;
    if (!t->format == !t->step_pattern)
        return err_set(err, ERR_INPUT, "%s: give format or step_pattern, one of them", doc->name);
    if (step_reader_new(t->step_pattern, t->format, 0, &reader, &why) < 0)
        return text_fail(&p, t->format ? "format" : "step_pattern",
                         t->format ? t->format : t->step_pattern, &why, err);
    step_reader_free(reader);
    a->format = t->format, a->step_pattern = t->step_pattern;
    return 0;
}

static int head_read(struct adapter *a, const struct json_doc *doc, struct err *err)
{
    struct head_text t = head_defaults;
    struct place p = {.doc = doc};
    struct stack stack;
    struct err why;
    int rc;
    if ((rc = json_read(doc, doc->root, "", head_fields, ARRAY_LEN(head_fields), &a->arena, &t,
                        err)) < 0)
        return rc;
    if ((rc = field_copy_text(a->name, sizeof a->name, t.name, doc, "", "name", err)) < 0)
        return rc;
    if ((rc = field_copy_text(a->stack, sizeof a->stack, t.stack, doc, "", "stack", err)) < 0)
        return rc;
    if (stack_load(t.stack, &stack, &why) < 0)
        return text_fail(&p, "stack", t.stack, &why, err);
    a->start_s = t.start_s;
    return steps_read(a, doc, &t, err);
}

static int adapter_read(struct adapter *a, const struct json_doc *doc, struct err *err)
{
    int rc;
    if ((rc = head_read(a, doc, err)) < 0)
        return rc;
    if ((rc = list_read(a, doc, "arguments", ADAPTER_ARGUMENTS, argument_read, err)) < 0)
        return rc;
    if ((rc = list_read(a, doc, "environment", ADAPTER_VARIABLES, variable_read, err)) < 0)
        return rc;
    if ((rc = list_read(a, doc, "excludes", ADAPTER_RULES, rule_read, err)) < 0)
        return rc;
    if ((rc = list_read(a, doc, "timers", ADAPTER_TIMERS, timer_read, err)) < 0)
        return rc;
    if ((rc = memory_read(a, doc, err)) < 0)
        return rc;
    if ((rc = oom_read(a, doc, "oom_device", a->oom_device, &a->n_oom_device, err)) < 0)
        return rc;
    return oom_read(a, doc, "oom_host", a->oom_host, &a->n_oom_host, err);
}

/* Hashes the content of the file, independent of its white space. */
static int hash_make(struct adapter *a, const struct json_doc *doc, struct err *err)
{
    char *text = cJSON_PrintUnformatted(doc->root);
    if (!text)
        return err_set(err, ERR_NOMEM, "out of memory for an adapter");
    a->hash = hash_128(text, strlen(text));
    cJSON_free(text);
    return 0;
}

int adapter_load(const char *name_or_path, struct adapter **out, struct err *err)
{
    struct json_doc doc = {0};
    struct adapter *a = calloc(1, sizeof *a);
    int rc;
    if (!a)
        return err_set(err, ERR_NOMEM, "out of memory for an adapter");
    if ((rc = catalog_open(&catalog_adapters, name_or_path, &doc, err)) < 0)
        goto out;
    if ((rc = adapter_read(a, &doc, err)) < 0)
        goto out;
    if ((rc = hash_make(a, &doc, err)) < 0)
        goto out;
    *out = a;
    a = NULL;
out:
    adapter_free(a);
    json_release(&doc);
    return rc;
}

void adapter_free(struct adapter *a)
{
    if (a)
        arena_release(&a->arena);
    free(a);
}

/* ---- command lines ---- */

int adapter_broken_rule_without(const struct adapter *a, const struct adapter_facts *f,
                                uint32_t keys)
{
    struct adapter_values v = adapter_values(f);
    for (int64_t i = 0; i < a->n_rules; i++)
        if (adapter_condition_holds(&a->rules[i].when, &v) &&
            !adapter_condition_names(&a->rules[i].when, keys))
            return (int)i;
    return -1;
}

int adapter_broken_rule(const struct adapter *a, const struct adapter_facts *f)
{ return adapter_broken_rule_without(a, f, 0); }

/* Computes the expressions of a word, or of a variable. *out is allocated in the arena. */
static int word_make(const struct adapter *a, const char *word, const struct adapter_facts *f,
                     struct arena *arena, const char **out, struct err *err)
{
    struct adapter_values v = adapter_values(f);
    struct err why;
    struct str text = STR_INIT;
    int rc = 0;
    if (adapter_word_add(word, &v, f->dir, &text, &why) < 0)
        rc = err_set(err, ERR_INPUT, "adapter %s: '%s': %s", a->name, word, why.text);
    else if (!(*out = arena_strdup(arena, text.p ? text.p : "")))
        rc = err_set(err, ERR_NOMEM, "out of memory for a command line");
    str_release(&text);
    return rc;
}

/* Returns where the text of a layout names its order; NULL: it names none. */
static const char *order_in(const char *text)
{
    static const char key[] = "order=";
    for (; text; text = strchr(text, ',')) {
        text += *text == ',';
        if (str_starts(text, key))
            return text + strlen(key);
    }
    return NULL;
}

int adapter_check_order(const struct adapter *a, const struct layout *l, const char *text,
                        struct err *err)
{
    const char *given = order_in(text);
    if (!l->order)
        return 0;
    if (!given)
        given = layout_order_names[l->order];
    return err_set(err, ERR_INPUT,
                   "adapter %s cannot have order=%.*s, as other trainers place ranks by "
                   "themselves: leave the order out",
                   a->name, (int)strcspn(given, ","), given);
}

int adapter_words(const struct adapter *a, const struct adapter_facts *f, bool trial,
                  struct arena *arena, const char ***out, struct err *err)
{
    int broken = adapter_broken_rule(a, f), rc;
    if (broken >= 0)
        return err_set(err, ERR_INPUT, "adapter %s cannot have this layout: %s: %s", a->name,
                       a->rules[broken].rule, a->rules[broken].because);
    if ((rc = adapter_check_order(a, f->layout, NULL, err)) < 0)
        return rc;
    struct adapter_values v = adapter_values(f);
    const char **words = arena_array(arena, ADAPTER_ARGUMENTS * ADAPTER_WORDS + 1, sizeof *words);
    if (!words)
        return err_set(err, ERR_NOMEM, "out of memory for a command line");
    int64_t n = 0;
    for (int64_t i = 0; i < a->n_arguments; i++) {
        const struct adapter_argument *g = &a->arguments[i];
        if ((g->trial && !trial) || !adapter_condition_holds(&g->when, &v))
            continue;
        for (int64_t k = 0; k < g->n; k++)
            if ((rc = word_make(a, g->words[k], f, arena, &words[n++], err)) < 0)
                return rc;
    }
    *out = words;
    return 0;
}

bool adapter_same_variable(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return n == strcspn(b, "=") && strncmp(a, b, n) == 0;
}

int adapter_environment(const struct adapter *a, const struct adapter_facts *f,
                        struct arena *arena, const char ***out, struct err *err)
{
    struct adapter_values v = adapter_values(f);
    const char **list = arena_array(arena, ADAPTER_VARIABLES + 1, sizeof *list);
    int64_t n = 0;
    int rc;
    if (!list)
        return err_set(err, ERR_NOMEM, "out of memory for an environment");
    for (int64_t i = 0; i < a->n_variables; i++) {
        int64_t at = 0;
        if (!adapter_condition_holds(&a->variables[i].when, &v))
            continue;
        while (at < n && !adapter_same_variable(list[at], a->variables[i].text))
            at++;
        if ((rc = word_make(a, a->variables[i].text, f, arena, &list[at], err)) < 0)
            return rc;
        n += at == n;
    }
    *out = list;
    return 0;
}

/* Appends a word, quoted for a shell where needed. */
static void word_quote(const char *word, struct str *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=.,/:@%";
    if (*word && word[strspn(word, plain)] == '\0') {
        str_add(out, word);
        return;
    }
    str_addc(out, '\'');
    for (; *word; word++)
        str_add(out, *word == '\'' ? "'\\''" : (char[]){*word, '\0'});
    str_addc(out, '\'');
}

/* Appends words, quoted for a shell and separated by blanks, each with `before` in front. */
static void words_quote(const char *before, const char *const *words, struct str *out)
{
    for (size_t i = 0; words[i]; i++) {
        str_addf(out, "%s%s", out->len ? " " : "", before);
        word_quote(words[i], out);
    }
}

/* Writes the environment as arguments of env(1): -u options first, then settings, as env(1)
 * requires. */
static void environment_quote(const char *const *list, struct str *out)
{
    const char *one[2] = {NULL};
    for (int set = 0; set < 2; set++)
        for (size_t i = 0; (one[0] = list[i]); i++)
            if ((strchr(list[i], '=') != NULL) == set)
                words_quote(set ? "" : "-u ", one, out);
}

/* Copies a text into a plan. */
static int plan_take(const struct adapter *a, const char *what, struct str *text, char *out,
                     size_t size, struct err *err)
{
    int rc = str_check(text, err);
    if (rc < 0)
        return rc;
    if (text->len >= size)
        return err_set(err, ERR_LIMIT, "adapter %s: the %s %zu bytes, and a plan holds %zu",
                       a->name, what, text->len, size - 1);
    snprintf(out, size, "%s", text->len ? text->p : "");
    return 0;
}

int adapter_plan(const struct adapter *a, const struct model *m, struct plan *p, struct err *err)
{
    struct adapter_facts facts = {&p->layout, m, p->seq, p->gbs, 0, NULL};
    struct arena arena = {0};
    struct str text = STR_INIT;
    const char **words, **environment;
    int rc;
    if ((rc = adapter_words(a, &facts, false, &arena, &words, err)) < 0)
        goto out;
    if ((rc = adapter_environment(a, &facts, &arena, &environment, err)) < 0)
        goto out;
    words_quote("", words, &text);
    if ((rc = plan_take(a, "flags have", &text, p->flags, sizeof p->flags, err)) < 0)
        goto out;
    str_clear(&text);
    environment_quote(environment, &text);
    if ((rc = plan_take(a, "environment has", &text, p->environment, sizeof p->environment, err)) <
        0)
        goto out;
    snprintf(p->adapter, sizeof p->adapter, "%s", a->name);
out:
    str_release(&text);
    arena_release(&arena);
    return rc;
}
