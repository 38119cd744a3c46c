/* reel plan: predicts every layout of a model on a cluster, and ranks those that fit. */
#include "launcher/cmd/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "launcher/cmd/cmd.h"
#include "profiles/run.h"

enum { TOP_MAX = 200 }; /* at most STREAM_PLACES */
static const char *const dtypes[] = {"bf16", "f32", "fp8", NULL};
static const char *const objectives[] = {"time", "gpu-hours", NULL};

static const struct opt opts[] = {
    CMD_OPT_JSON,
    {"cluster", 0, OPT_TEXT, "NAME[:N]",
     "cluster, of at most N nodes: a compiled-in name, or a file (reel.cluster/1)",
     .flags = OPT_REQUIRED},
    {"gpus", 0, OPT_TEXT, "N|least",
     "GPUs to train on: whole nodes, or a divisor of one; least: the fewest that fit",
     .flags = OPT_REQUIRED},
    {"seq", 0, OPT_TEXT, "S", "tokens of a sample, as 4096 or as frames x rows x columns",
     .flags = OPT_REQUIRED},
    {"gbs", 0, OPT_INT, "B", "samples of a step", .flags = OPT_REQUIRED, .min = 1, .max = 1 << 24},
    {"dtype", 0, OPT_ENUM, "NAME", "of activations; fp8: of products, and of "
     "what the stack then keeps and gathers so, all else in bf16",
     .fallback = "bf16", .choices = dtypes},
    {"stack", 0, OPT_TEXT, "NAME", "software that trains: a compiled-in name, or a file "
     "(reel.stack/1)", .fallback = "reel"},
    {"constants", 0, OPT_TEXT, "FILE",
     "constants to predict with (reel.constants/1; default: the compiled-in ones)"},
    {"layout", 0, OPT_TEXT, "TEXT", "show this layout beside the best: 'tp=2,dp=4', keys in any "
     "order; -o and --export then take it"},
    {"objective", 0, OPT_ENUM, "WHAT",
     "time: the shortest step on all these GPUs; gpu-hours: the fewest GPU-hours, on these or on "
     "a half, a quarter, ... of them", .fallback = "time", .choices = objectives},
    {"encoders", 0, OPT_BYTES, "SIZE",
     "memory of each GPU that frozen encoders take beside the model", .fallback = "0", .min = 0,
     .max = 0x1p50},
    {"ema", 0, OPT_BOOL, NULL,
     "an average of the weights is kept, as runs with adamw.ema_decay have it"},
    {"moments", 0, OPT_ENUM, "NAME", "a run's numerics.moments: bf16, or same, as the dtype; only "
     "of reel's own trainer, like the next", .fallback = "same", .choices = moments_names},
    {"residual", 0, OPT_ENUM, "NAME", "a run's numerics.residual", .fallback = "same",
     .choices = residual_names},
    {"fits", 0, OPT_NUM, "P", "rank the layouts that fit with this probability or a higher one; "
     "0.5: more likely than not", .fallback = "0.9", .min = 0.01, .max = 0.999},
    {"tokens", 0, OPT_NUM, "T", "say how long training on T tokens takes, as 1e12", .min = 1,
     .max = 1e18},
    {"top", 0, OPT_INT, "K", "layouts to show", .fallback = "5", .min = 1, .max = TOP_MAX},
    {"output", 'o', OPT_TEXT, "FILE", "write the best one as a plan, for reel launch --plan"},
    {"export", 0, OPT_TEXT, "ADAPTER",
     "print the best one that this trainer can run, as its own flags: megatron, megatron-bridge, "
     "torchtitan, torchtitan-0.2, generic, or a file (reel.adapter/1); the stack is then its"},
};
const struct opt_cmd cmd_plan = {
    "plan",
    "rank the layouts of a model on a cluster by predicted time, without running any",
    "MODEL", opts, ARRAY_LEN(opts), 1, 1,
    "All legal layouts are met; those that a faster one dominates are passed over and counted. A "
    "layout is ranked where it fits with the probability of --fits. The time is that of the "
    "pipeline's schedule, replayed; nine of ten steps are expected within its interval. Bytes are "
    "those of the fullest GPU; MFU is of the peak of the activations' type, which is bf16's "
    "with --dtype fp8. All weights are trained: a run with lora, or with frozen groups, needs "
    "less, which 'reel launch --dry-run' tells.\n\n"
    "What is predicted was fitted on published measurements, as docs/tune.md says. Beside the name "
    "of the constants stands their held-out error: how far off predictions were on rows that the "
    "fit had not seen. 'reel tune' measures where there is a machine."};

struct request {
    struct plan_ask ask;
    int64_t gpus;          /* 0: the fewest that fit */
    bool gpu_hours;        /* fewer are looked at too */
    struct layout layout;
    bool has_layout;
    size_t top;
    struct adapter *adapter; /* of --export; NULL: none */
};

/* ---- options ---- */

static int gpus_parse(const char *text, int64_t *out, struct err *err)
{
    struct err why;
    if (strcmp(text, "least") == 0) {
        *out = 0;
        return 0;
    }
    if (num_parse_i64(text, "--gpus", out, &why) < 0)
        return err_set(err, ERR_USAGE, "%s, or 'least'", why.text);
    if (*out < 1 || *out > LIMIT_RANKS)
        return err_set(err, ERR_USAGE, "--gpus is %s: give 1 to %d, or 'least'", text, LIMIT_RANKS);
    return 0;
}

/* Refuses a stack of another trainer than the one whose flags are asked for. An adapter whose own
 * stack does not list it, such as generic, is of no certain trainer and goes with any stack. */
static int stack_check(const struct adapter *a, const char *export, const char *name,
                       struct err *err)
{
    struct stack own, given;
    int rc;
    if ((rc = stack_load(a->stack, &own, err)) < 0 || (rc = stack_load(name, &given, err)) < 0)
        return rc;
    if (!stack_lists(&own, a->name) || stack_lists(&given, a->name) ||
        (!*given.frameworks && given.kind == own.kind))
        return 0;
    return err_set(err, ERR_USAGE,
                   "--stack %s is not the software whose flags --export %s prints: leave --stack "
                   "out, and it is %s, or give one whose frameworks list %s",
                   name, export, a->stack, a->name);
}

/* Loads the adapter of --export. Predictions are for the adapter's stack, unless --stack names
 * another one of its trainer. */
static int export_take(const struct opt_values *v, struct request *r, struct err *err)
{
    int rc;
    if (!opt_given(v, "export"))
        return 0;
    if ((rc = adapter_load(opt_text(v, "export"), &r->adapter, err)) < 0)
        return rc;
    r->ask.adapter = r->adapter;
    if (!opt_given(v, "stack"))
        r->ask.stack = r->adapter->stack;
    return opt_given(v, "stack") ? stack_check(r->adapter, opt_text(v, "export"),
                                               opt_text(v, "stack"), err)
                                 : 0;
}

/* Refuses what only reel's own trainer has for the stack of another one, and fp8 for its own. */
static int numerics_take(const struct opt_values *v, struct request *r, struct err *err)
{
    static const char *const names[] = {"moments", "residual"};
    struct stack stack;
    int rc = stack_load(r->ask.stack, &stack, err);
    if (rc < 0)
        return rc;
    if (r->ask.dtype == DTYPE_FP8 && stack.kind == STACK_REEL)
        return err_set(err, ERR_USAGE,
                       "--dtype fp8: reel's own trainer does not compute in fp8: give bf16, or "
                       "--stack for a trainer that does");
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(opt_text(v, names[i]), "same") != 0 && stack.kind != STACK_REEL)
            return err_set(err, ERR_USAGE,
                           "--%s %s is a setting of reel's own trainer, and the stack is %s: leave "
                           "it out, or give --stack reel",
                           names[i], opt_text(v, names[i]), stack.name);
    r->ask.moments_bf16 = strcmp(opt_text(v, "moments"), moments_names[MOMENTS_BF16]) == 0;
    r->ask.residual_wide = strcmp(opt_text(v, "residual"), residual_names[RESIDUAL_F32]) == 0;
    return 0;
}

static int layout_take(const struct opt_values *v, struct request *r, struct err *err)
{
    struct err why;
    const char *text = opt_text(v, "layout");
    r->has_layout = text != NULL;
    if (text && layout_parse(text, &r->layout, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    return text && r->adapter ? adapter_check_order(r->adapter, &r->layout, text, err) : 0;
}

static int request_read(const struct opt_values *v, struct request *r, struct err *err)
{
    const char *const *operands;
    struct err why;
    int rc;
    opt_operands(v, &operands);
    *r = (struct request){.ask = {.model = operands[0],
                                  .cluster = opt_text(v, "cluster"),
                                  .stack = opt_text(v, "stack"),
                                  .constants = opt_text(v, "constants"),
                                  .gbs = opt_int(v, "gbs"),
                                  .encoder_bytes = opt_int(v, "encoders"),
                                  .ema = opt_bool(v, "ema"),
                                  .fits = opt_num(v, "fits")},
                          .gpu_hours = strcmp(opt_text(v, "objective"), "gpu-hours") == 0,
                          .top = (size_t)opt_int(v, "top")};
    for (int d = 0; d < DTYPE_NUMBERS; d++)
        if (strcmp(dtype_names[d], opt_text(v, "dtype")) == 0)
            r->ask.dtype = (enum dtype)d;
    if (seq_parse(opt_text(v, "seq"), "--seq", &r->ask.seq, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    if ((rc = gpus_parse(opt_text(v, "gpus"), &r->gpus, err)) < 0)
        return rc;
    if ((rc = export_take(v, r, err)) < 0)
        return rc;
    if ((rc = numerics_take(v, r, err)) < 0)
        return rc;
    return layout_take(v, r, err);
}

/* ---- search ---- */

/* Returns the GPU-seconds that a step of the best layout found takes. */
static double gpu_seconds(const struct planner *p, const struct stream_found *f)
{ return f->items[0].seconds * (double)p->gpus; }

/* Looks on half of the GPUs, then on half of those and so on, while a layout fits, for a best
 * layout with fewer GPU-hours than `found` has. Then searches where it found the fewest. */
static int fewer_search(struct planner *p, size_t top, struct stream_found *found,
                        struct err *err)
{
    static const double ROUNDING = 1 + 1e-9;
    int64_t all = p->gpus, chosen = all;
    double least = gpu_seconds(p, found), s;
    int rc = 0;
    for (int64_t gpus = all; gpus % 2 == 0 && rc == 0;) {
        gpus /= 2;
        if (planner_gpus(p, gpus, err) < 0)
            break; /* this number is neither whole nodes nor a divisor of one */
        rc = planner_faster(p, ROUNDING * least / (double)gpus, &s, err);
        if (rc == 0 && s * (double)gpus < least)
            least = s * (double)gpus, chosen = gpus;
    }
    if (rc < 0 && rc != ERR_NO)
        return rc;
    if ((rc = planner_gpus(p, chosen, err)) < 0 || chosen == all)
        return rc;
    return planner_rank(p, top, found, err);
}

static int best_search(struct planner *p, const struct request *r, struct stream_found *found,
                       struct err *err)
{
    int rc = r->gpus ? planner_gpus(p, r->gpus, err) : planner_least(p, err);
    if (rc < 0)
        return rc;
    if ((rc = planner_rank(p, r->top, found, err)) < 0 || !r->gpu_hours)
        return rc;
    return fewer_search(p, r->top, found, err);
}

static int item_predict(const struct planner *p, const struct layout *l, struct planned *out,
                        struct err *err)
{
    int rc;
    if ((rc = planner_predict(p, l, out, err)) < 0)
        return rc;
    return planner_interval(p, out, err);
}

/* ---- the layout of --layout ---- */

/* Sets the GPUs to those of --layout where the best may be on another number than --gpus says, and
 * so this layout too. Elsewhere, and where it has more than LIMIT_RANKS, it is held against the
 * number that is set. */
static int given_gpus(struct planner *p, const struct request *r, struct err *err)
{
    int64_t own = layout_world(&r->layout);
    int rc;
    if (!r->has_layout || own < 1 || (r->gpus && !r->gpu_hours))
        return 0;
    if (r->gpus && own > r->gpus)
        return err_set(err, ERR_INPUT,
                       "--layout takes %lld GPUs, and --gpus is %lld: give a layout of no more "
                       "GPUs, or --gpus %lld", (long long)own, (long long)r->gpus, (long long)own);
    rc = planner_gpus(p, own, err);
    return rc < 0 ? err_context(err, "--layout") : 0;
}

static int given_predict(struct planner *p, const struct request *r, struct planned *out,
                         struct err *err)
{
    struct err ignored;
    int64_t best = p->gpus;
    int rc;
    if ((rc = given_gpus(p, r, err)) < 0)
        return rc;
    rc = item_predict(p, &r->layout, out, err);
    planner_gpus(p, best, &ignored); /* they were set before */
    return rc;
}

/* Predicts the layouts to show: the best, and that of --layout if it is not among them. */
static int items_predict(struct planner *p, const struct request *r, struct planned *items,
                         struct plan_answer *a, struct err *err)
{
    int rc;
    for (; a->n < a->found->n; a->n++) {
        const struct layout *l = &a->found->items[a->n].layout;
        if ((rc = item_predict(p, l, &items[a->n], err)) < 0)
            return rc;
        if (r->has_layout && layout_equal(l, &r->layout))
            a->given = true, a->given_at = a->n;
    }
    if (!r->has_layout || a->given)
        return 0;
    a->given = true, a->given_at = a->n;
    return given_predict(p, r, &items[a->n++], err);
}

/* Extends the error "no layout fits" by the memory and time that the layout of --layout takes, if
 * they can be predicted. */
static int given_say(struct planner *p, const struct request *r, struct err *err)
{
    char needs[32], has[32];
    struct err why;
    struct planned item;
    int rc = err->code;
    if (given_predict(p, r, &item, &why) < 0)
        return rc;
    why = *err;
    return err_set(err, rc,
                   "%s; --layout needs %s of %s (it fits with probability %.2g) and takes %.4g s",
                   why.text, num_format_bytes((int64_t)item.footprint.total, needs, sizeof needs),
                   num_format_bytes((int64_t)planner_limit_bytes(p), has, sizeof has), item.p_fits,
                   item.step.seconds);
}

/* ---- the command ---- */

/* Warns if the layout of --layout, which -o and --export hand out as it was given, fits with a
 * lower probability than --fits asks of the others. */
static void misfit_tell(const struct planner *p, const struct planned *chosen)
{
    char needs[32], has[32];
    if (chosen->p_fits >= p->ask.fits)
        return;
    log_msg(LOG_WARN,
            "the layout of --layout %s: it needs %s of the %s that a GPU can hold, and fits with "
            "probability %.2g (--fits %.3g)", chosen->p_fits < 0.5 ? "does not fit" : "may not fit",
            num_format_bytes((int64_t)chosen->footprint.total, needs, sizeof needs),
            num_format_bytes((int64_t)planner_limit_bytes(p), has, sizeof has), chosen->p_fits,
            p->ask.fits);
}

/* Makes the plan of a layout on its own number of GPUs. */
static int chosen_plan(struct planner *p, const struct planned *chosen, struct plan *out,
                       struct err *err)
{
    struct err ignored;
    int64_t best = p->gpus;
    int rc;
    if ((rc = planner_gpus(p, layout_world(&chosen->layout), err)) < 0)
        return rc;
    rc = planner_plan(p, chosen, out, err);
    planner_gpus(p, best, &ignored); /* they were set before */
    return rc;
}

/* Makes the plan for -o and --export, from the layout of --layout or else from the best one, and
 * saves it for -o. */
static int chosen_write(struct planner *p, const struct opt_values *v, const struct request *r,
                        struct plan_answer *a, struct err *err)
{
    const char *output = opt_text(v, "output");
    char place[LIMIT_PATH_BYTES];
    int rc;
    if (!output && !r->adapter)
        return 0;
    const struct planned *chosen = &a->items[a->given ? a->given_at : 0];
    misfit_tell(p, chosen);
    if ((rc = chosen_plan(p, chosen, &a->chosen, err)) < 0)
        return rc;
    if (r->adapter && (rc = adapter_plan(r->adapter, &p->model, &a->chosen, err)) < 0)
        return rc;
    return output ? plan_save(&a->chosen, cmd_output_place(output, place), err) : 0;
}

static int plan_make(const struct opt_values *v, const struct request *r, struct planner *p,
                     struct stream_found *found, struct planned *items, struct err *err)
{
    struct plan_answer a = {.planner = p, .found = found, .items = items,
                            .tokens = opt_given(v, "tokens") ? opt_num(v, "tokens") : 0};
    double began = clock_mono_s();
    struct str out = STR_INIT;
    struct json_out o;
    int rc;
    if ((rc = given_gpus(p, r, err)) < 0)
        return rc;
    if ((rc = best_search(p, r, found, err)) < 0)
        return rc == ERR_NO && r->has_layout ? given_say(p, r, err) : rc;
    a.seconds = clock_mono_s() - began;
    if ((rc = items_predict(p, r, items, &a, err)) < 0)
        return rc;
    if ((rc = chosen_write(p, v, r, &a, err)) < 0)
        return rc;
    if (opt_bool(v, "json")) {
        json_out_init(&o, &out, 2);
        plan_json(&a, &o);
        str_addc(&out, '\n');
    } else if (r->adapter) {
        str_addf(&out, "%s\n", a.chosen.flags);
        if (*a.chosen.environment)
            fprintf(stderr, "in the environment: env %s\n", a.chosen.environment);
    } else {
        plan_text(&a, &out);
    }
    rc = cmd_print(&out, err);
    str_release(&out);
    return rc;
}

/* Refuses an output that is the file of an input, or that cannot be written. */
static int output_check(const struct opt_values *v, const struct request *r, struct err *err)
{
    const char *inputs[] = {r->ask.model, r->ask.cluster, r->ask.stack, r->ask.constants,
                            opt_text(v, "export")};
    int rc;
    if ((rc = cmd_spare("-o", opt_text(v, "output"), inputs, ARRAY_LEN(inputs), err)) < 0)
        return rc;
    return cmd_output_check("--output", opt_text(v, "output"), err);
}

int cmd_plan_run(const struct opt_values *v, struct cmd_env *env, struct err *err)
{
    struct request r = {0};
    struct planner *p = NULL;
    struct stream_found *found = calloc(1, sizeof *found);
    struct planned *items = calloc(TOP_MAX + 1, sizeof *items);
    int rc;
    (void)env;
    if (!found || !items) {
        rc = err_set(err, ERR_NOMEM, "out of memory for a plan");
        goto out;
    }
    if ((rc = request_read(v, &r, err)) < 0)
        goto out;
    if ((rc = output_check(v, &r, err)) < 0)
        goto out;
    if (!(p = planner_new(&r.ask, err))) {
        rc = err->code;
        goto out;
    }
    rc = plan_make(v, &r, p, found, items, err);
out:
    planner_free(p);
    adapter_free(r.adapter);
    free(items);
    free(found);
    return rc;
}
