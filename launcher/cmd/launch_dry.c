#include "launcher/cmd/launch_dry.h"

#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "autotune/memory.h"
#include "base/log.h"
#include "base/num.h"
#include "launcher/machine/driver.h"
#include "profiles/saved.h"
#include "profiles/stack.h"

/* Holds numbers of bytes; 0: unknown. */
struct budget {
    double rank, device;     /* predicted for a rank, on host and GPU together; on the GPU only */
    double node_ranks, node; /* predicted on the host for a node's ranks; memory of this machine */
    double ckpt, kept;       /* of one checkpoint; of all that are kept */
    double space;            /* free on the disk of the checkpoints */
    char unknown[256];       /* why memory cannot be predicted; "": it can */
};

/* Returns the free bytes on the disk of a folder. If the folder does not exist yet, uses the first
 * existing folder above it. */
static double space_free(const char *dir)
{
    char path[LIMIT_PATH_BYTES];
    struct statvfs fs;
    snprintf(path, sizeof path, "%s", dir);
    while (statvfs(path, &fs) != 0) {
        char *slash = strrchr(path, '/');
        if (!slash || !slash[1])
            return 0;
        slash[slash == path] = 0; /* the root folder keeps its slash */
    }
    return (double)fs.f_bavail * (double)fs.f_frsize;
}

static void budget_make(const struct launch_dry *d, struct budget *b)
{
    const struct run *run = d->run;
    struct seq seq = d->plan->seq;
    run_stage_seq(run, 0, NULL, &seq, NULL); /* the plan may be for other samples */
    struct held_spec spec = {.model = &run->model, .seq = seq, .gbs = d->plan->gbs,
                             .dtype = run->dtype, .ema = run->adamw.ema_decay > 0,
                             .finetune = &run->finetune,
                             .moments_bf16 = run->moments == MOMENTS_BF16,
                             .residual_wide = run->residual == RESIDUAL_F32,
                             .gpus = run->resources.gpus_per_node > 0,
                             .ckpt_async = run->ckpt_async};
    struct memory_bytes bytes;
    int64_t saved = 0;
    struct err why = {0};
    *b = (struct budget){.node = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE)};
    if (memory_predict(&spec, &d->plan->layout, &bytes, &why) == 0)
        b->rank = bytes.total, b->device = bytes.device;
    snprintf(b->unknown, sizeof b->unknown, "%.255s", why.text);
    b->node_ranks = (b->rank - b->device) * (double)run->resources.ranks_per_node;
    saved_bytes(run, &d->plan->layout, &saved, NULL);
    b->ckpt = (double)saved;
    b->kept = b->ckpt * (double)(run->ckpt_keep > 0 ? run->ckpt_keep : 1);
    b->space = space_free(d->run_dir);
}

static const char *size(double bytes, char buf[32])
{
    return num_format_bytes((int64_t)bytes, buf, 32);
}

static void text_job(const struct launch_dry *d, const struct sched_partition *p, const char *kind,
                     struct str *out)
{
    const struct run *run = d->run;
    int64_t cores = run->resources.ranks_per_node * run->resources.cores_per_rank;
    char limit[32];
    str_addf(
        out, "job: %s, %lld node%s x %lld rank%s x %lld core%s: %lld core%s a node", kind,
        (long long)run->resources.nodes, run->resources.nodes == 1 ? "" : "s",
        (long long)run->resources.ranks_per_node, run->resources.ranks_per_node == 1 ? "" : "s",
        (long long)run->resources.cores_per_rank, run->resources.cores_per_rank == 1 ? "" : "s",
        (long long)cores, cores == 1 ? "" : "s");
    str_addf(out, "; partition %s%s", p ? p->name : "none",
             run->resources.partition ? "" : " (the default)");
    if (run->resources.time_limit_s > 0)
        str_addf(out, ", time limit %s\n",
                 num_format_seconds(run->resources.time_limit_s, limit, sizeof limit));
    else if (p && p->max_time_s > 0)
        str_addf(out, ", time limit the partition's, at most %s\n",
                 num_format_seconds(p->max_time_s, limit, sizeof limit));
    else
        str_addf(out, ", no time limit\n");
}

/* ---- what the plan was predicted for ---- */

/* Says in a sentence each how the run differs from what its plan was predicted for; "": it does
 * not. */
enum differs {
    OF_DEVICE, OF_DTYPE, OF_SEQ, OF_STACK, OF_EMA, OF_MOMENTS, OF_RESIDUAL, OF_FINETUNE, DIFFERS
};
enum { DIFFERS_BYTES = 512 };
struct differences { char of[DIFFERS][DIFFERS_BYTES]; };
static const char *const differs_keys[DIFFERS] = {"device_differs", "dtype_differs", "seq_differs",
                                                  "stack_differs", "ema_differs",
                                                  "moments_differs", "residual_differs",
                                                  "finetune_differs"};

/* Tells whether a device is compiled in. Another may be one of these by a name of the user's. */
static bool device_known(const char *device)
{
    const char *const *names;
    for (device_names(&names); *names; names++)
        if (strcmp(*names, device) == 0)
            return true;
    return false;
}

/* Writes the name of the first GPU of this machine that is not the plan's, as its profile or else
 * its driver calls it; "": all are, or nothing is known of them. */
static void other_gpu(const char *planned, char *out, size_t size)
{
    struct driver d;
    struct device known;
    *out = '\0';
    if (!device_known(planned) || driver_read(&d, NULL) < 0)
        return;
    for (size_t i = 0; i < d.n && !*out; i++) {
        bool found = device_find("none", d.gpus[i].model, &known, NULL) == 0;
        if (found ? strcmp(known.name, planned) != 0 : *d.gpus[i].model)
            snprintf(out, size, "%s", found ? known.name : d.gpus[i].model);
    }
    driver_release(&d);
}

/* Tells CPUs from GPUs, and on this machine, if that runs the job, one GPU from another. */
static void device_differs(const struct run *run, const struct plan *plan, const struct sched *s,
                           char out[DIFFERS_BYTES])
{
    char here[LIMIT_NAME_BYTES] = "";
    bool cpus = strcmp(plan->device, "cpu") == 0, gpus = run->resources.gpus_per_node > 0;
    if (!*plan->device)
        return;
    if (gpus && !cpus && strcmp(s->ops->kind, "local") == 0)
        other_gpu(plan->device, here, sizeof here);
    if (cpus == gpus)
        snprintf(out, DIFFERS_BYTES, "the plan was predicted for %s, and the run trains on %s "
                 "(resources.gpus_per_node is %lld)", plan->device, gpus ? "GPUs" : "CPUs",
                 (long long)run->resources.gpus_per_node);
    else if (*here)
        snprintf(out, DIFFERS_BYTES, "the plan was predicted for %s, and this machine has %s",
                 plan->device, here);
}

/* Compares the tokens of the plan with those of the first stage, unless that has a plan of its
 * own. */
static void seq_differs(const struct run *run, const struct plan *plan, char out[DIFFERS_BYTES])
{
    struct seq seq;
    if (!run->stages[0].plan && run_stage_seq(run, 0, NULL, &seq, NULL) == 0 &&
        seq_tokens(seq) != seq_tokens(plan->seq))
        snprintf(out, DIFFERS_BYTES, "the plan is for samples of %lld tokens, and the run's have "
                 "%lld", (long long)seq_tokens(plan->seq), (long long)seq_tokens(seq));
}

/* Compares settings that a prediction for a described cluster knows, or does not know, as the
 * training of a part of the weights. A search on this machine takes all of them from its run. */
static void settings_differ(const struct run *run, const struct plan *plan, struct differences *d)
{
    bool average = run->adamw.ema_decay > 0, wide = run->residual == RESIDUAL_F32,
         narrow = run->moments == MOMENTS_BF16;
    if (!*plan->stack)
        return;
    if (average != plan->ema)
        snprintf(d->of[OF_EMA], DIFFERS_BYTES, "the plan is for a run with%s an average of the "
                 "weights, and the run's adamw.ema_decay is %g", plan->ema ? "" : "out",
                 run->adamw.ema_decay);
    if (narrow != plan->moments_bf16)
        snprintf(d->of[OF_MOMENTS], DIFFERS_BYTES, "the plan is for numerics.moments %s, and the "
                 "run's is %s", moments_names[plan->moments_bf16], moments_names[run->moments]);
    if (wide != plan->residual_wide)
        snprintf(d->of[OF_RESIDUAL], DIFFERS_BYTES, "the plan is for numerics.residual %s, and the "
                 "run's is %s", residual_names[plan->residual_wide],
                 residual_names[run->residual]);
    if (run->finetune.lora.rank > 0)
        snprintf(d->of[OF_FINETUNE], DIFFERS_BYTES, "the plan is for training all weights, and the "
                 "run trains adapters (lora.rank is %lld)", (long long)run->finetune.lora.rank);
    else if (finetune_freezes(&run->finetune))
        snprintf(d->of[OF_FINETUNE], DIFFERS_BYTES, "the plan is for training all weights, and the "
                 "run has frozen groups");
}

static void differences_find(const struct run *run, const struct plan *plan, const struct sched *s,
                             struct differences *d)
{
    struct stack stack;
    memset(d, 0, sizeof *d);
    device_differs(run, plan, s, d->of[OF_DEVICE]);
    if (plan->dtype != run->dtype)
        snprintf(d->of[OF_DTYPE], DIFFERS_BYTES, "the plan is for %s, and the run's "
                 "numerics.dtype is %s", dtype_names[plan->dtype],
                 dtype_names[run->dtype]);
    seq_differs(run, plan, d->of[OF_SEQ]);
    if (*plan->stack && stack_load(plan->stack, &stack, NULL) == 0 && stack.kind != STACK_REEL)
        snprintf(d->of[OF_STACK], DIFFERS_BYTES, "the plan was predicted for the stack %s, and "
                 "the run trains with reel's own", stack.name);
    settings_differ(run, plan, d);
}

void launch_differs_note(const struct run *run, const struct plan *plan, const struct sched *s)
{
    struct differences d;
    differences_find(run, plan, s, &d);
    for (int i = 0; i < DIFFERS; i++)
        if (*d.of[i])
            log_msg(LOG_WARN, "%s: its time and memory are not this run's", d.of[i]);
}

static void text_differs(const struct launch_dry *d, const struct differences *differs,
                         struct str *out)
{
    for (int i = 0; i < DIFFERS; i++)
        if (*differs->of[i])
            str_addf(out, "%.*s: %s: its time and memory are not this run's\n",
                     (int)strcspn(differs_keys[i], "_"), differs_keys[i], differs->of[i]);
    if (!*differs->of[OF_DEVICE] && *d->plan->device && d->plan->predicted_step_s > 0)
        str_addf(out, "device: the plan was predicted for %s\n", d->plan->device);
}

static void text_memory(const struct launch_dry *d, const struct budget *b, struct str *out)
{
    char rank[32], gpu[32], ranks[32], node[32], ckpt[32], kept[32], space[32];
    if (b->device > 0)
        str_addf(out, "memory of a GPU: %s a rank is planned\n", size(b->device, gpu));
    if (b->rank > 0)
        str_addf(out,
                 "memory%s: %s a rank is planned, %s for a node's ranks; this machine has %s%s\n",
                 b->device > 0 ? " of the host" : "", size(b->rank - b->device, rank),
                 size(b->node_ranks, ranks), size(b->node, node),
                 b->node_ranks > b->node ? ": TOO LITTLE, if the job's nodes have no more" : "");
    else
        str_addf(out, "memory: not known (%s)\n", b->unknown);
    str_addf(out, "checkpoints: %s each, %lld kept: %s; %s are free%s\n", size(b->ckpt, ckpt),
             (long long)(d->run->ckpt_keep > 0 ? d->run->ckpt_keep : 1), size(b->kept, kept),
             size(b->space, space), b->kept > b->space ? ": TOO LITTLE" : "");
}

static void dry_text(const struct launch_dry *d, const struct sched_partition *p,
                     const struct sched *s, const struct budget *b,
                     const struct differences *differs, struct str *out)
{
    struct str layout = STR_INIT;
    layout_format(&d->plan->layout, &layout);
    str_addf(out, "would %s run '%s'%s%s%s: %s\n", d->word, d->run->name, *d->state ? " (" : "",
             d->state, *d->state ? ")" : "", d->run_dir);
    if (d->told && d->told->lines.len)
        str_addf(out, "%s\n", d->told->lines.p);
    str_addf(out, "training: %s, %lld steps, layout %s\n", d->run->model.name,
             (long long)run_total_steps(d->run), layout.p ? layout.p : "");
    text_job(d, p, s->ops->kind, out);
    text_differs(d, differs, out);
    text_memory(d, b, out);
    str_addf(out, "script:\n%s", d->script->p ? d->script->p : "");
    str_release(&layout);
}

static void dry_json(const struct launch_dry *d, const struct sched_partition *p,
                     const struct sched *s, const struct budget *b,
                     const struct differences *differs, struct json_out *o)
{
    json_obj_begin(o, NULL);
    json_put_text(o, "schema", "reel.launch/1");
    json_put_bool(o, "dry_run", true);
    json_put_text(o, "name", d->run->name);
    json_put_text(o, "would", d->word);
    json_put_text(o, "run_dir", d->run_dir);
    json_put_int(o, "changes", d->told ? d->told->n : 0);
    json_put_int(o, "total_steps", run_total_steps(d->run));
    json_put_int(o, "ranks", layout_world(&d->plan->layout));
    layout_write(&d->plan->layout, o, "layout");
    json_put_text(o, "planned_device", *d->plan->device ? d->plan->device : NULL);
    for (int i = 0; i < DIFFERS; i++)
        json_put_text(o, differs_keys[i], *differs->of[i] ? differs->of[i] : NULL);
    json_put_text(o, "scheduler", s->ops->kind);
    json_put_text(o, "partition", p ? p->name : NULL);
    json_put_int(o, "nodes", d->run->resources.nodes);
    json_put_int(o, "ranks_per_node", d->run->resources.ranks_per_node);
    json_put_int(o, "cores_per_rank", d->run->resources.cores_per_rank);
    json_put_num(o, "time_limit_s", d->run->resources.time_limit_s);
    json_put_int(o, "planned_rank_bytes", (int64_t)b->rank);
    json_put_int(o, "planned_device_bytes", (int64_t)b->device);
    json_put_int(o, "checkpoint_bytes", (int64_t)b->ckpt);
    json_put_int(o, "checkpoints_kept", d->run->ckpt_keep > 0 ? d->run->ckpt_keep : 1);
    json_put_int(o, "free_bytes", (int64_t)b->space);
    json_put_text(o, "script", d->script->p ? d->script->p : "");
    json_obj_end(o);
}

int launch_dry_print(const struct launch_dry *d, struct sched *s, bool json, struct err *err)
{
    struct sched_site site;
    struct budget budget;
    struct differences differs;
    struct str text = STR_INIT;
    struct json_out o;
    int rc = sched_describe(s, &site, err);
    if (rc < 0)
        return rc;
    const struct sched_partition *p = sched_site_partition(&site, d->run->resources.partition);
    budget_make(d, &budget);
    differences_find(d->run, d->plan, s, &differs);
    json_out_init(&o, &text, 2);
    if (json) {
        dry_json(d, p, s, &budget, &differs, &o);
        str_addc(&text, '\n');
    } else {
        dry_text(d, p, s, &budget, &differs, &text);
    }
    rc = cmd_print(&text, err);
    str_release(&text);
    return rc;
}

int launch_room_check(const struct launch_dry *d, const struct sched *s, bool is_new,
                      struct err *err)
{
    struct budget b;
    char need[32], have[32];
    budget_make(d, &b);
    if (strcmp(s->ops->kind, "local") == 0 && b.node_ranks > b.node)
        return err_set(
            err, ERR_NO,
            "the run's ranks need %s of memory by plan, this machine has %s: give a layout that "
            "divides more (--layout, --plan), or a machine with more",
            size(b.node_ranks, need), size(b.node, have));
    double needed = b.ckpt + SAVED_BESIDE_BYTES; /* the trainer needs this much too */
    if (is_new && needed > b.space)
        return err_set(err, ERR_NO, "a checkpoint needs %s and the disk of '%s' has %s left: make "
                       "room, or set REEL_HOME to another disk", size(needed, need), d->run_dir,
                       size(b.space, have));
    return 0;
}
