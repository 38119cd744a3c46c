#include "autotune/trial_other.h"

#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "launcher/sched/hosts.h"
#include "launcher/sched/slurm.h"
#include "profiles/flops.h"
#include "profiles/step_lines.h"

extern char **environ;

#define MOST_PEAK_BYTES 1e18
#define MOST_MFU 2 /* devices boost, and FLOPs of attention with a mask are counted in two ways */
enum { RECORDED = 2, LINE_BYTES = 1 << 16, STEPS_MAX = 1024, RANKS_FILES = 4096 };

/* ---- the command ---- */

int other_trial(struct trial_other *o, const struct model *m, const struct plan *plan,
                struct sched *sched, struct trial_conf *conf, struct err *err)
{
    struct flops flops;
    int rc;
    if ((rc = flops_reel_sample(m, plan->seq, m->text_len, &flops, err)) < 0)
        return rc;
    o->model = m;
    o->model_flops = flops.total * (double)plan->gbs;
    if (plan->layout.recompute != RECOMPUTE_SELECTIVE)
        o->hardware_flops = o->model_flops * (1 + flops_again(&flops, m, &plan->layout));
    o->peak_flops = plan->peak_flops;
    snprintf(o->recorder, sizeof o->recorder, "%s/libreel-cupti.so", conf->bin_dir);
    if (!file_exists(o->recorder))
        o->recorder[0] = '\0';
    conf->other = o;
    conf->sched = sched;
    conf->start_s = o->adapter->start_s;
    return 0;
}

static int64_t steps_run(const struct trial_other *o, int64_t steps)
{ return *o->recorder ? steps + RECORDED : steps; }

static size_t count(const char *const *list)
{
    size_t n = 0;
    while (list[n])
        n++;
    return n;
}

/* Holds a name in braces that an argument of the user's command may contain, and its value. */
struct hole { const char *name; int64_t value; };
enum { HOLES = 3 };

/* Returns the argument with the names in braces replaced by their numbers. */
static const char *word_of(const char *word, const struct hole holes[HOLES], struct arena *arena)
{
    for (int i = 0; i < HOLES && word; i++)
        for (const char *at; word && (at = strstr(word, holes[i].name));)
            word = arena_printf(arena, "%.*s%lld%s", (int)(at - word), word,
                                (long long)holes[i].value, at + strlen(holes[i].name));
    return word;
}

/* Copies those of our variables that the adapter leaves as they are, and then those that it sets.
 * Returns their number. */
static size_t environment_join(const char *const *ours, const char *const *own, const char **out)
{
    size_t n = 0;
    for (size_t i = 0, k; ours[i]; i++) {
        for (k = 0; own[k] && !adapter_same_variable(own[k], ours[i]);)
            k++;
        if (!own[k])
            out[n++] = ours[i];
    }
    for (size_t k = 0; own[k]; k++)
        if (strchr(own[k], '='))
            out[n++] = own[k];
    return n;
}

/* Makes the environment: ours, as the scheduler prepares it for a process that starts steps; the
 * variables that the adapter sets for this layout; and those that the recorder reads. */
static int environment_make(const struct trial_conf *c, const struct adapter_facts *facts,
                            struct arena *arena, const char ***out, struct err *err)
{
    const struct trial_other *o = c->other;
    const char **ours, **own;
    int rc;
    if ((rc = adapter_environment(o->adapter, facts, arena, &own, err)) < 0)
        return rc;
    rc = slurm_allocation_env((const char *const *)environ, c->exclude ? c->exclude : "",
                                  arena, &ours, err);
    if (rc < 0)
        return rc;
    const char **env = arena_array(arena, count(ours) + count(own) + 4, sizeof *env);
    if (!env)
        return err_set(err, ERR_NOMEM, "out of memory for a trial's environment");
    size_t n = environment_join(ours, own, env);
    if (*o->recorder && !getenv("CUDA_INJECTION64_PATH")) {
        env[n++] = arena_printf(arena, "CUDA_INJECTION64_PATH=%s", o->recorder);
        env[n++] = arena_printf(arena, "REEL_CUPTI_DIR=%s", c->dir);
        env[n++] = arena_printf(arena, "REEL_CUPTI_WHILE=%s/record", c->dir);
    }
    *out = env;
    return 0;
}

int other_command(const struct trial_conf *c, const struct plan *plan, struct arena *arena,
                  struct command *out, struct err *err)
{
    const struct trial_other *o = c->other;
    struct adapter_facts facts = {&plan->layout, o->model, plan->seq, plan->gbs,
                                  steps_run(o, c->steps), c->dir};
    const char **flags;
    int rc;
    if ((rc = adapter_words(o->adapter, &facts, true, arena, &flags, err)) < 0)
        return rc;
    int64_t ranks = layout_world(&plan->layout),
            node = num_max_i64(1, num_min_i64(o->node_ranks, ranks));
    const struct hole holes[HOLES] = {
        {"{ranks}", ranks}, {"{nodes}", num_ceil_div(ranks, node)}, {"{ranks_per_node}", node}};
    size_t own = count(o->argv), more = count(flags);
    const char **argv = arena_array(arena, own + more + 1, sizeof *argv);
    for (size_t i = 0; argv && i < own; i++)
        if (!(argv[i] = word_of(o->argv[i], holes, arena)))
            argv = NULL;
    if (!argv)
        return err_set(err, ERR_NOMEM, "out of memory for a trial's command");
    memcpy(argv + own, flags, more * sizeof *argv);
    if ((rc = environment_make(c, &facts, arena, &out->env, err)) < 0)
        return rc;
    out->argv = argv;
    return 0;
}

/* Says whether the text is a list of nodes that contains one of `nodes`. */
static bool lists_any(const char *text, const char *nodes, struct arena *arena)
{
    const char **names;
    struct err err = {0};
    size_t n;
    if (hosts_expand(text, arena, &names, &n, &err) < 0)
        return false;
    size_t left = n;
    return hosts_remove(names, &left, nodes, arena, &err) == 0 && left < n;
}

/* Says whether a list with one of these nodes stands in an argument, between blanks or behind an
 * equals sign or -w. The argument may be a shell's whole command. */
static bool word_names(const char *word, const char *nodes, struct arena *arena)
{
    static const char ends[] = " \t\n=";
    char *at = arena_strdup(arena, word), *rest = NULL;
    for (char *s = at ? strtok_r(at, ends, &rest) : NULL; s; s = strtok_r(NULL, ends, &rest))
        if (lists_any(strncmp(s, "-w", 2) == 0 ? s + 2 : s, nodes, arena))
            return true;
    return false;
}

const char *other_names_node(const char *const *argv, const char *nodes)
{
    struct arena arena;
    const char *found = NULL;
    arena_init(&arena, 0);
    for (; *argv && !found; argv++)
        if (word_names(*argv, nodes, &arena))
            found = *argv;
    arena_release(&arena);
    return found;
}

/* Says whether the argument names a file that may be a program. Larger files are taken for data. */
static bool may_be_program(const char *word)
{
    enum { MOST_BYTES = 16 << 20 };
    struct stat st;
    return stat(word, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= MOST_BYTES;
}

int other_hash(const struct adapter *a, const char *const *argv, struct hash128 *out,
               struct err *err)
{
    char hex[HASH_TEXT_BYTES];
    struct str key = STR_INIT;
    struct hash128 file;
    int rc;
    str_add(&key, hash_format(a->hash, hex));
    for (size_t i = 0; argv[i]; i++) {
        str_addf(&key, " %s", argv[i]);
        if (!may_be_program(argv[i]))
            continue;
        if ((rc = hash_file(argv[i], &file, err)) < 0)
            goto out;
        str_addf(&key, " %s", hash_format(file, hex));
    }
    if ((rc = str_check(&key, err)) < 0)
        goto out;
    *out = hash_128(key.p, key.len);
out:
    str_release(&key);
    return rc;
}

/* ---- the log ---- */

struct other_log {
    const struct trial_other *other;
    char dir[LIMIT_PATH_BYTES];
    double tokens; /* of a step */
    int64_t ranks, steps;
    FILE *file;
    struct str line;
    int64_t bytes;
    struct step_reader *reader;
    regex_t memory, timers[ADAPTER_TIMERS], oom_device[ADAPTER_PATTERNS],
        oom_host[ADAPTER_PATTERNS];
    int64_t n_memory, n_timers, n_oom_device, n_oom_host; /* how many are compiled */
    /* The following members hold what was read from the log so far. */
    int64_t n_steps, last_done;
    double step_s[STEPS_MAX], last_at, peak_bytes;
    double timer_s[ADAPTER_TIMERS];
    int64_t timer_n[ADAPTER_TIMERS];
    bool nonfinite, recording;
    enum trial_state oom;   /* TRIAL_UNTRIED: no line says that memory was short */
    char cause[256];        /* the line that says so, or else the first error */
    char node[SCHED_ID_BYTES];
    char odd[96];           /* the first number that no run can have, with its name; "": none */
    char told[STEP_TOLD_BYTES]; /* the newest time or rate; "": the log tells none */
};

/* Compiles expressions that the adapter's reader has checked. Returns how many it compiled: fewer
 * than n only when memory runs out. */
static int64_t compile(regex_t *out, const char *const *patterns, int64_t n, int flags)
{
    for (int64_t i = 0; i < n; i++)
        if (regcomp(&out[i], patterns[i], REG_EXTENDED | flags) != 0)
            return i;
    return n;
}

static int patterns_compile(struct other_log *l, struct err *err)
{
    const struct adapter *a = l->other->adapter;
    const char *timers[ADAPTER_TIMERS];
    for (int64_t i = 0; i < a->n_timers; i++)
        timers[i] = a->timers[i].pattern;
    int64_t memory = a->memory_pattern ? 1 : 0;
    l->n_memory = compile(&l->memory, &a->memory_pattern, memory, 0);
    l->n_timers = compile(l->timers, timers, a->n_timers, 0);
    l->n_oom_device = compile(l->oom_device, a->oom_device, a->n_oom_device, REG_NOSUB);
    l->n_oom_host = compile(l->oom_host, a->oom_host, a->n_oom_host, REG_NOSUB);
    bool all = l->n_memory == memory && l->n_timers == a->n_timers &&
               l->n_oom_device == a->n_oom_device && l->n_oom_host == a->n_oom_host;
    return all ? 0 : err_set(err, ERR_NOMEM, "out of memory for an adapter's expressions");
}

int other_log_new(const struct trial_other *o, const struct plan *plan, int64_t steps,
                  const char *dir, struct other_log **out, struct err *err)
{
    struct other_log *l = calloc(1, sizeof *l);
    int rc;
    if (!l)
        return err_set(err, ERR_NOMEM, "out of memory for a trial's log");
    l->other = o;
    l->tokens = (double)plan->gbs * (double)seq_tokens(plan->seq);
    l->ranks = layout_world(&plan->layout);
    l->steps = steps;
    l->last_done = -1;
    l->last_at = NAN;
    snprintf(l->dir, sizeof l->dir, "%s", dir);
    if ((rc = step_reader_new(o->adapter->step_pattern, o->adapter->format, steps_run(o, steps),
                              &l->reader, err)) < 0)
        goto out;
    if ((rc = patterns_compile(l, err)) < 0)
        goto out;
    *out = l;
    l = NULL;
out:
    other_log_free(l);
    return rc;
}

static void free_all(regex_t *list, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        regfree(&list[i]);
}

void other_log_free(struct other_log *l)
{
    if (!l)
        return;
    if (l->file)
        fclose(l->file);
    free_all(&l->memory, l->n_memory);
    free_all(l->timers, l->n_timers);
    free_all(l->oom_device, l->n_oom_device);
    free_all(l->oom_host, l->n_oom_host);
    step_reader_free(l->reader);
    str_release(&l->line);
    free(l);
}

/* ---- a line ---- */

static void odd_keep(struct other_log *l, const char *text, size_t n)
{
    if (!l->odd[0])
        snprintf(l->odd, sizeof l->odd, "%.*s", (int)n, text);
}

/* Reads the number in the expression's first group, in this unit. Returns false where the line has
 * none, or one outside of 0 to `most`, which it keeps with what was matched before it. */
static bool group_read(struct other_log *l, const regex_t *pattern, double unit, double most,
                       double *out)
{
    enum { BEFORE = 40 };
    const char *line = l->line.p;
    regmatch_t m[2];
    char *end;
    if (regexec(pattern, line, 2, m, 0) != 0 || m[1].rm_so < 0)
        return false;
    double value = unit * strtod(line + m[1].rm_so, &end);
    if (end == line + m[1].rm_so)
        return false;
    bool good = value >= 0 && value <= most;
    regoff_t from = m[1].rm_so - m[0].rm_so > BEFORE ? m[1].rm_so - BEFORE : m[0].rm_so;
    if (good)
        *out = value;
    else
        odd_keep(l, line + from, (size_t)(m[1].rm_eo - from));
    return good;
}

static bool any_matches(const regex_t *patterns, int64_t n, const char *line)
{
    for (int64_t i = 0; i < n; i++)
        if (regexec(&patterns[i], line, 0, NULL, 0) == 0)
            return true;
    return false;
}

/* Returns the seconds of a step: from the line, from its rate, or else from the time since the line
 * before. */
static double line_seconds(const struct other_log *l, const struct step_line *line, double now)
{
    if (line->time_s > 0)
        return line->time_s;
    if (line->tps > 0)
        return l->tokens / line->tps / (double)l->ranks;
    return (now - l->last_at) / (double)num_max_i64(1, line->done - l->last_done);
}

static void step_take(struct other_log *l, const struct step_line *line, double now)
{
    l->nonfinite = l->nonfinite || line->loss_nonfinite;
    if (line->done < 0 || line->done <= l->last_done)
        return;
    double step_s = line_seconds(l, line, now);
    if (line->odd || step_s > PLAN_STEP_S) {
        odd_keep(l, line->told, strlen(line->told));
        return;
    }
    if (l->n_steps < STEPS_MAX)
        l->step_s[l->n_steps++] = step_s;
    snprintf(l->told, sizeof l->told, "%s", line->time_s > 0 || line->tps > 0 ? line->told : "");
    l->last_done = line->done, l->last_at = now;
}

/* Returns the place in srun's line that names a lost node: the controller reported it, or its
 * daemon could not be reached to start tasks. NULL: the line names none. */
static const char *lost_find(const char *line)
{
    static const char failure[] = "Node failure on ", launch[] = " failed on node ";
    const char *at = strstr(line, failure);
    if (at)
        return at + strlen(failure);
    at = strstr(line, "Task launch for ") ? strstr(line, launch) : NULL;
    return at && strstr(at, ": Communication connection failure") ? at + strlen(launch) : NULL;
}

/* Keeps the first line that reports an error; a line that reports short memory replaces it. Keeps
 * the first lost node. */
static void cause_take(struct other_log *l, const char *line)
{
    const char *lost = lost_find(line);
    enum trial_state oom =
        trial_goes_on(line)                                 ? TRIAL_UNTRIED
        : any_matches(l->oom_device, l->n_oom_device, line) ? TRIAL_OOM_DEVICE
        : any_matches(l->oom_host, l->n_oom_host, line)     ? TRIAL_OOM_HOST
                                                            : TRIAL_UNTRIED;
    if (lost && !l->node[0])
        snprintf(l->node, sizeof l->node, "%.*s", (int)strcspn(lost, " ,.:"), lost);
    if (oom != TRIAL_UNTRIED && l->oom == TRIAL_UNTRIED) {
        l->oom = oom;
        snprintf(l->cause, sizeof l->cause, "%s", line);
    } else if (!l->cause[0] && (strstr(line, "Error:") || strstr(line, "error:"))) {
        snprintf(l->cause, sizeof l->cause, "%s", line);
    }
}

/* Takes what the line says of memory. No rank holds a thousand times the memory of its device. */
static void memory_take(struct other_log *l)
{
    double device = (double)l->other->memory_bytes, bytes;
    double most = device > 0 ? fmin(MOST_PEAK_BYTES, 1000 * device) : MOST_PEAK_BYTES;
    double unit = l->other->adapter->memory_unit_bytes;
    if (l->n_memory && group_read(l, &l->memory, unit, most, &bytes))
        l->peak_bytes = fmax(l->peak_bytes, bytes);
}

static void timers_take(struct other_log *l)
{
    double t;
    for (int64_t i = 0; i < l->n_timers; i++) {
        double unit_s = l->other->adapter->timers[i].unit_s;
        if (!group_read(l, &l->timers[i], unit_s, PLAN_STEP_S, &t) || l->n_steps < 2)
            continue; /* the first step is not counted */
        l->timer_s[i] += t;
        l->timer_n[i]++;
    }
}

static void line_take(struct other_log *l, double now)
{
    struct step_line step;
    size_t n = l->line.len;
    if (n == 0 || l->line.failed)
        return;
    if (step_reader_take(l->reader, l->line.p, &n, &step))
        step_take(l, &step, now);
    memory_take(l);
    timers_take(l);
    cause_take(l, l->line.p);
}

/* Makes the recorder record from the end of the last measured step to the last step. */
static void recorder_lead(struct other_log *l)
{
    char path[LIMIT_PATH_BYTES + 16];
    bool wanted = *l->other->recorder && l->last_done >= l->steps &&
                  l->last_done < steps_run(l->other, l->steps);
    if (wanted == l->recording)
        return;
    snprintf(path, sizeof path, "%s/record", l->dir);
    if (wanted)
        file_publish(path, "", 0, NULL);
    else
        unlink(path);
    l->recording = wanted;
}

void other_log_look(struct other_log *l, double now)
{
    char path[LIMIT_PATH_BYTES + 16], block[8192];
    size_t n;
    snprintf(path, sizeof path, "%s/log", l->dir);
    if (!l->file && !(l->file = fopen(path, "re")))
        return;
    while ((n = fread(block, 1, sizeof block, l->file)) > 0) {
        l->bytes += (int64_t)n;
        for (size_t i = 0; i < n; i++) {
            bool ends = block[i] == '\n' || block[i] == '\r';
            if (ends)
                line_take(l, now);
            if (ends)
                str_clear(&l->line);
            else if (l->line.len < LINE_BYTES && block[i])
                str_addc(&l->line, block[i]);
        }
    }
    clearerr(l->file);
    recorder_lead(l);
}

/* ---- results ---- */

int64_t other_log_bytes(const struct other_log *l) { return l->bytes; }
int64_t other_log_steps(const struct other_log *l) { return l->n_steps; }
const char *other_log_node(const struct other_log *l) { return l->node; }

/* Returns how many steps are measured: all except the first and those that were recorded. */
static int64_t counted(const struct other_log *l)
{
    return num_max_i64(0, num_min_i64(l->n_steps, l->steps) - 1);
}

bool other_log_slower(const struct other_log *l, double than_s)
{
    int64_t n = counted(l);
    for (int64_t i = 1; i <= n; i++)
        if (l->step_s[i] <= than_s)
            return false;
    return n >= 2;
}

void other_log_judge(const struct other_log *l, struct trial_result *r)
{
    if (l->node[0]) {
        r->state = TRIAL_NODE;
        snprintf(r->node, sizeof r->node, "%s", l->node);
        snprintf(r->cause, sizeof r->cause, "node %s was lost", l->node);
    } else if (l->oom != TRIAL_UNTRIED) {
        r->state = l->oom;
        snprintf(r->cause, sizeof r->cause, "%s", l->cause);
        snprintf(r->evidence, sizeof r->evidence, "%s", l->cause);
    } else if (r->state == TRIAL_FAILED && l->cause[0]) {
        snprintf(r->cause, sizeof r->cause, "%s", l->cause);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sets the parts of a step from the trainer's own timers; sets nothing where it printed none. */
static void timers_read(const struct other_log *l, struct trial_result *r)
{
    double sum = 0;
    for (int64_t i = 0; i < l->n_timers; i++) {
        if (l->timer_n[i] == 0)
            continue;
        double s = l->timer_s[i] / (double)l->timer_n[i];
        r->class_s[l->other->adapter->timers[i].class] += s;
        sum += s;
    }
    if (sum > 0) {
        r->recorded_step_s = fmax(r->step_s, sum);
        r->idle_s = r->recorded_step_s - sum;
        r->exposed_s = r->class_s[KERNEL_COMMUNICATION];
    }
}

/* Adds the shares of the classes in a rank's recording. Returns whether there is a good file. */
static bool activity_add(const struct other_log *l, int64_t rank, struct trial_result *r)
{
    char path[LIMIT_PATH_BYTES + 48];
    struct json_doc doc = {0};
    snprintf(path, sizeof path, "%s/activity-%lld.json", l->dir, (long long)rank);
    if (json_load(path, &doc, NULL) < 0)
        return false;
    const cJSON *classes = json_member(doc.root, "class_s");
    double whole_s = json_num(doc.root, "step_s", 0);
    bool good = whole_s > 0;
    for (int c = 0; good && c < KERNEL_CLASSES; c++)
        r->class_s[c] += json_num(classes, kernel_class_names[c], 0) / whole_s;
    if (good) {
        r->idle_s += json_num(classes, KERNEL_NONE_NAME, 0) / whole_s;
        r->exposed_s += json_num(doc.root, "exposed_s", 0) / whole_s;
        r->hidden_s += json_num(doc.root, "hidden_s", 0) / whole_s;
        r->dropped += json_int(doc.root, "dropped", 0);
    }
    json_release(&doc);
    return good;
}

/* Sets the parts of a step from the recorder's files: their mean shares over ranks, applied to the
 * time of a step that was not recorded. */
static void activity_read(const struct other_log *l, struct trial_result *r)
{
    int64_t n = 0;
    for (int64_t rank = 0; rank < l->ranks && rank < RANKS_FILES; rank++)
        n += activity_add(l, rank, r);
    if (n == 0)
        return;
    double scale = r->step_s / (double)n;
    for (int c = 0; c < KERNEL_CLASSES; c++)
        r->class_s[c] *= scale;
    r->idle_s *= scale, r->exposed_s *= scale, r->hidden_s *= scale;
    r->recorded_step_s = r->step_s;
}

/* Returns the share of the devices' peak that this many FLOPs in a step reach; NaN: not known. */
static double utilization(const struct other_log *l, double flops, double step_s)
{
    double peak = l->other->peak_flops * (double)l->ranks;
    return peak > 0 && flops > 0 && step_s > 0 ? flops / step_s / peak : NAN;
}

/* Says whether the log reports all steps that were asked for. Their numbers may begin at 0, and
 * lines before the last may be missing. */
static bool all_told(const struct other_log *l)
{
    return counted(l) > 0 && (l->n_steps >= l->steps || l->last_done >= l->steps);
}

/* Refuses steps that took no time, or in which twice the devices' peak could not do their FLOPs. */
static void times_check(const struct other_log *l, struct trial_result *r)
{
    double mfu = utilization(l, l->other->model_flops, r->step_s);
    if (r->step_s > 0 && !(mfu > MOST_MFU))
        return;
    r->state = TRIAL_FAILED;
    if (l->told[0] && r->step_s > 0)
        snprintf(r->cause, sizeof r->cause, "its log's '%s' is an MFU of %.0f %%, which no device "
                 "reaches: check the unit by which the adapter %s reads it", l->told, 100 * mfu,
                 l->other->adapter->name);
    else
        snprintf(r->cause, sizeof r->cause,
                 "its log tells no times, and its steps all at once: have it print each when it is "
                 "done (PYTHONUNBUFFERED=1)");
}

/* Sets the median and the fastest of the counted steps. */
static void times_read(const struct other_log *l, struct trial_result *r)
{
    double sorted[STEPS_MAX];
    int64_t n = counted(l);
    memcpy(sorted, l->step_s + 1, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    r->step_s = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    r->min_step_s = sorted[0];
    times_check(l, r);
}

/* Adds which number of the log was left out to what is said of the trial. */
static void odd_say(const struct other_log *l, struct trial_result *r)
{
    size_t n = strlen(r->cause);
    if (l->odd[0])
        snprintf(r->cause + n, sizeof r->cause - n, "%sits log's '%s' was left out: no run can "
                 "have it", n ? "; " : "", l->odd);
}

void other_log_report(const struct other_log *l, bool early, struct trial_result *r)
{
    r->steps = counted(l) + 1;
    if (l->nonfinite) {
        r->state = TRIAL_NONFINITE;
        snprintf(r->cause, sizeof r->cause, "its loss was not finite");
    } else if (!early && !all_told(l)) {
        r->state = TRIAL_FAILED;
        snprintf(r->cause, sizeof r->cause, "its log tells %lld of %lld steps by the adapter %s",
                 (long long)l->n_steps, (long long)l->steps, l->other->adapter->name);
        other_log_judge(l, r);
    }
    if (r->state == TRIAL_OK)
        times_read(l, r);
    odd_say(l, r);
    if (r->state != TRIAL_OK)
        return;
    r->tokens = l->tokens;
    r->model_flops = l->other->model_flops;
    r->mfu = utilization(l, r->model_flops, r->step_s);
    r->peak_bytes = (int64_t)l->peak_bytes;
    if (*l->other->recorder)
        activity_read(l, r);
    if (!(r->recorded_step_s > 0))
        timers_read(l, r);
    r->hfu = utilization(l, l->other->hardware_flops, r->recorded_step_s);
}
