#include "launcher/wrap/wrap.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"
#include "base/num.h"
#include "base/secret.h"

#define SCHEMA "reel.wrap/1"

struct wrap_text {
    const char *name;
    struct wrap w;
};
#define AT(field) offsetof(struct wrap_text, w.field)
static const struct json_field fields[] = {
    {"schema", JSON_ANY, 0},
    {"name", JSON_TEXT, offsetof(struct wrap_text, name)},
    {"argv", JSON_ANY, 0},
    {"cwd", JSON_TEXT, AT(cwd)},
    {"notice", JSON_INT, AT(notice), .max = 64},
    {"step_pattern", JSON_TEXT, AT(step_pattern), .optional = true},
    {"format", JSON_TEXT, AT(format), .optional = true},
    {"saves", JSON_TEXT, AT(saves), .optional = true},
    {"done_file", JSON_TEXT, AT(done_file), .optional = true},
    {"total_steps", JSON_INT, AT(total_steps), .max = 1e12},
    {"node_agents", JSON_BOOL, AT(node_agents)},
    {"crash", JSON_INT, AT(budget.crash), .max = 1e6},
    {"node_fail", JSON_INT, AT(budget.node_fail), .max = 1e6},
    {"preempt", JSON_INT, AT(budget.preempt), .max = 1e6},
    {"time_limit", JSON_INT, AT(budget.time_limit), .max = 1e6},
    {"wall_s", JSON_NUM, AT(budget.wall_s), .max = 1e12},
    {"hang_s", JSON_NUM, AT(budget.hang_s), .max = 1e9},
    {"model", JSON_TEXT, AT(model), .optional = true},
    {"device", JSON_TEXT, AT(device), .optional = true},
    {"gpus", JSON_INT, AT(gpus), .optional = true, .max = 1e9},
    {"flops_per_step", JSON_NUM, AT(flops_per_step), .optional = true},
    {"flops_formula", JSON_TEXT, AT(flops_formula), .optional = true},
    {"tokens_per_step", JSON_NUM, AT(tokens_per_step), .optional = true},
    {"peak_flops", JSON_NUM, AT(peak_flops), .optional = true},
    {"peak_source", JSON_TEXT, AT(peak_source), .optional = true},
    {"no_mfu", JSON_TEXT, AT(no_mfu), .optional = true},
};

void wrap_init(struct wrap *w)
{
    *w = (struct wrap){.notice = SIGTERM, .node_agents = true, .budget = RUN_BUDGET_INIT};
    arena_init(&w->arena, 0);
}

void wrap_release(struct wrap *w)
{
    arena_release(&w->arena);
    *w = (struct wrap){0};
}

static void path_of(const char *run_dir, char buf[LIMIT_PATH_BYTES])
{
    snprintf(buf, LIMIT_PATH_BYTES, "%s/wrap.json", run_dir);
}

bool wrap_is(const char *run_dir)
{
    char path[LIMIT_PATH_BYTES];
    path_of(run_dir, path);
    return file_exists(path);
}

static int argv_read(const struct json_doc *doc, struct wrap *w, struct err *err)
{
    const cJSON *list = json_member(doc->root, "argv"), *item;
    int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0, k = 0;
    const char **argv = arena_array(&w->arena, (size_t)n + 1, sizeof *argv);
    if (!argv)
        return err_set(err, ERR_NOMEM, "out of memory");
    cJSON_ArrayForEach(item, list)
        if (cJSON_IsString(item) && !(argv[k++] = arena_strdup(&w->arena, item->valuestring)))
            return err_set(err, ERR_NOMEM, "out of memory");
    w->argv = argv;
    return n > 0 && k == n
               ? 0
               : err_set(err, ERR_INPUT,
                         "%s: argv is no list of texts: give the command and its arguments",
                         doc->name);
}

int wrap_load(const char *run_dir, struct wrap *out, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct json_doc doc = {0};
    struct wrap_text t = {0};
    int rc;
    path_of(run_dir, path);
    wrap_init(&t.w);
    if ((rc = json_load(path, &doc, err)) < 0)
        goto out;
    if ((rc = json_check_schema(&doc, SCHEMA, err)) < 0)
        goto out;
    if ((rc = json_read(&doc, doc.root, "", fields, ARRAY_LEN(fields), &t.w.arena, &t, err)) < 0)
        goto out;
    if ((rc = argv_read(&doc, &t.w, err)) < 0)
        goto out;
    snprintf(t.w.name, sizeof t.w.name, "%s", t.name);
    *out = t.w;
    t.w = (struct wrap){0};
out:
    wrap_release(&t.w);
    json_release(&doc);
    return rc;
}

static void text_put(struct json_out *o, const char *key, const char *value)
{
    if (value)
        json_put_text(o, key, value);
}

static void budget_format(const struct run_budget *b, struct json_out *o)
{
    json_put_int(o, "crash", b->crash);
    json_put_int(o, "node_fail", b->node_fail);
    json_put_int(o, "preempt", b->preempt);
    json_put_int(o, "time_limit", b->time_limit);
    json_put_num(o, "wall_s", b->wall_s);
    json_put_num(o, "hang_s", b->hang_s);
}

/* Writes the command without what may be secrets in it. */
static void argv_format(const char *const *argv, struct json_out *o)
{
    for (const char *const *a = argv; *a; a++) {
        struct str word = STR_INIT;
        secret_hide(*a, a > argv ? a[-1] : NULL, &word);
        json_put_text(o, NULL, word.len ? word.p : "");
        o->s->failed |= word.failed;
        str_release(&word);
    }
}

int wrap_command_check(const struct wrap *w, struct err *err)
{
    for (const char *const *a = w->argv; a && *a; a++)
        if (strstr(*a, SECRET_HIDDEN))
            return err_set(err, ERR_INPUT,
                           "the command of run '%s' has what may be a secret, which wrap.json does "
                           "not hold: start it by its 'reel wrap' command",
                           w->name);
    return 0;
}

static void wrap_format(const struct wrap *w, struct str *text)
{
    struct json_out o;
    json_out_init(&o, text, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", SCHEMA);
    json_put_text(&o, "name", w->name);
    json_arr_begin(&o, "argv");
    argv_format(w->argv, &o);
    json_arr_end(&o);
    json_put_text(&o, "cwd", w->cwd);
    json_put_int(&o, "notice", w->notice);
    text_put(&o, "step_pattern", w->step_pattern);
    text_put(&o, "format", w->format);
    text_put(&o, "saves", w->saves);
    text_put(&o, "done_file", w->done_file);
    json_put_int(&o, "total_steps", w->total_steps);
    json_put_bool(&o, "node_agents", w->node_agents);
    budget_format(&w->budget, &o);
    text_put(&o, "model", w->model);
    text_put(&o, "device", w->device);
    json_put_int(&o, "gpus", w->gpus);
    json_put_num(&o, "flops_per_step", w->flops_per_step);
    text_put(&o, "flops_formula", w->flops_formula);
    json_put_num(&o, "tokens_per_step", w->tokens_per_step);
    json_put_num(&o, "peak_flops", w->peak_flops);
    text_put(&o, "peak_source", w->peak_source);
    text_put(&o, "no_mfu", w->no_mfu);
    json_obj_end(&o);
    str_addc(text, '\n');
}

int wrap_save(const struct wrap *w, const char *run_dir, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT, old = STR_INIT;
    int rc;
    wrap_format(w, &text);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    path_of(run_dir, path);
    bool same = file_read(path, (int64_t)text.len, &old, NULL) == 0 && old.len == text.len &&
                memcmp(old.p, text.p, text.len) == 0;
    if (!same) /* a requeued job needs no disk space for a file that exists already */
        rc = file_publish_private(path, text.p, text.len, err); /* a secret may have passed for
                                                                 * none */
out:
    str_release(&old);
    str_release(&text);
    return rc;
}

/* ---- its checkpoint folder ---- */

typedef void save_fn(const char *name, double at, void *ctx);

static void saves_each(const struct wrap *w, save_fn *fn, void *ctx)
{
    DIR *dir = w->saves ? opendir(w->saves) : NULL;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        struct stat st;
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0 &&
            fstatat(dirfd(dir), d->d_name, &st, 0) == 0)
            fn(d->d_name, (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec, ctx);
    }
    if (dir)
        closedir(dir);
}

static void newest_take(const char *name, double at, void *newest)
{
    (void)name;
    *(double *)newest = fmax(*(double *)newest, at);
}

double wrap_newest_save(const struct wrap *w)
{
    double newest = 0;
    saves_each(w, newest_take, &newest);
    return newest;
}

enum wrap_saves wrap_saves_look(const struct wrap *w, bool in_order)
{
    if (w->saves && !file_exists(w->saves))
        return WRAP_SAVES_MISSING;
    return w->saves && in_order && wrap_newest_save(w) <= 0 ? WRAP_SAVES_EMPTY : WRAP_SAVES_GOOD;
}

const char *wrap_saves_say(enum wrap_saves saves)
{
    return saves == WRAP_SAVES_EMPTY ? "there is nothing in the folder" : "there is no folder";
}

struct largest {
    const char *dir;
    int64_t bytes;
};

static void largest_take(const char *name, double at, void *ctx)
{
    struct largest *l = ctx;
    char *path = file_join(l->dir, name);
    (void)at;
    l->bytes = path ? num_max_i64(l->bytes, file_tree_bytes(path)) : l->bytes;
    free(path);
}

int64_t wrap_save_bytes(const struct wrap *w)
{
    struct largest l = {w->saves, 0};
    saves_each(w, largest_take, &l);
    return l.bytes;
}

/* Tells whether the text before the number ends in one of these words, followed by punctuation
 * only. */
static bool is_counter(const char *name, size_t n)
{
    static const char *const words[] = {"step", "steps", "iter", "iteration", "checkpoint", "ckpt",
                                        NULL};
    while (n > 0 && strchr("_-=. ", name[n - 1]))
        n--;
    for (const char *const *word = words; *word; word++)
        if (n >= strlen(*word) && strncasecmp(name + n - strlen(*word), *word, strlen(*word)) == 0)
            return true;
    return false;
}

int64_t wrap_name_steps(const char *name)
{
    static const char digits[] = "0123456789";
    int64_t steps = -1, number;
    for (const char *p = name; *(p += strcspn(p, digits)); p += strspn(p, digits)) {
        char text[24];
        int n = (int)strspn(p, digits);
        if (n < (int)sizeof text && snprintf(text, sizeof text, "%.*s", n, p) == n &&
            is_counter(name, (size_t)(p - name)) &&
            num_parse_i64(text, "step", &number, NULL) == 0)
            steps = number;
    }
    return steps;
}

struct saved {
    double at;
    int64_t steps;
};

static void saved_take(const char *name, double at, void *ctx)
{
    struct saved *s = ctx;
    int64_t steps = name[0] == '.' ? -1 : wrap_name_steps(name);
    if (steps >= 0 && at >= s->at)
        *s = (struct saved){at, steps};
}

/* Reads the number of steps that the trainer wrote after its save was complete: "400" or
 * "global_step400"; "release" has none. */
static int64_t tracker_steps(const struct wrap *w, const char *name)
{
    char *path = file_join(w->saves, name);
    struct str text = STR_INIT;
    int64_t steps = -1;
    if (path && file_read(path, 4096, &text, NULL) == 0 && text.len) {
        text.p[strcspn(text.p, " \r\n")] = '\0';
        if (num_parse_i64(text.p, "step", &steps, NULL) < 0)
            steps = wrap_name_steps(text.p);
    }
    str_release(&text);
    free(path);
    return steps;
}

int64_t wrap_saved_steps(const struct wrap *w)
{
    static const char *const trackers[] = {"latest_checkpointed_iteration.txt", "latest", NULL};
    struct saved newest = {0, -1};
    int64_t steps = -1;
    for (const char *const *name = trackers; w->saves && steps < 0 && *name; name++)
        steps = tracker_steps(w, *name);
    if (steps >= 0)
        return steps;
    saves_each(w, saved_take, &newest);
    return newest.steps;
}
