#include "autotune/probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/num.h"
#include "launcher/start/command.h"

enum { PROBE_DEADLINE_S = 120 };

extern char **environ;

static int number(const struct json_doc *doc, const char *key, bool zero_ok, double *out,
                  struct err *err)
{
    double v = json_num(doc->root, key, NAN);
    if (!isfinite(v) || v < 0 || (v == 0 && !zero_ok))
        return err_set(err, ERR_INPUT,
                       "%s: %s is missing or not a positive number: run 'reel-train probe --json' "
                       "by hand",
                       doc->name, key);
    *out = v;
    return 0;
}

static int probe_read(const struct json_doc *doc, struct probe *p, struct err *err)
{
    int rc;
    if ((rc = json_check_schema(doc, "reel.probe/1", err)) < 0)
        return rc;
    p->ranks = json_int(doc->root, "ranks", 0);
    if (p->ranks < 1)
        return err_set(err, ERR_INPUT, "%s: ranks is missing or below 1", doc->name);
    if ((rc = number(doc, "fma_flops", false, &p->fma_flops, err)) < 0)
        return rc;
    if ((rc = number(doc, "gemm_flops", false, &p->gemm_flops, err)) < 0)
        return rc;
    if ((rc = number(doc, "copy_bytes_per_s", false, &p->copy_bytes, err)) < 0)
        return rc;
    if ((rc = number(doc, "latency_s", p->ranks == 1, &p->latency_s, err)) < 0)
        return rc;
    return number(doc, "bus_bytes_per_s", p->ranks == 1, &p->bus_bytes, err);
}

int probe_parse(const char *text, size_t len, const char *name, struct probe *out, struct err *err)
{
    struct json_doc doc = {0};
    struct probe p = {0};
    int rc;
    if ((rc = json_parse(text, len, name, &doc, err)) < 0)
        return rc;
    if ((rc = probe_read(&doc, &p, err)) < 0)
        goto out;
    *out = p;
out:
    json_release(&doc);
    return rc;
}

/* Says of a probe that failed what the first line of its log does. */
static int failed(const struct sched_step_status *end, int64_t ranks, const char *log,
                  struct err *err)
{
    struct str text = STR_INIT;
    file_read(log, LIMIT_CAPTURE_BYTES, &text, NULL);
    int rc = err_set(err, ERR_CHILD, "the probe on %lld ranks failed with exit status %d: %.*s",
                     (long long)ranks, end->exit_signal ? 128 + end->exit_signal : end->exit_code,
                     text.len ? (int)strcspn(text.p, "\n") : 0, text.len ? text.p : "");
    str_release(&text);
    return rc;
}

static int step_run(struct sched *s, const struct command *command, int64_t ranks, const char *log,
                    struct err *err)
{
    struct sched_step_spec spec = SCHED_STEP_SPEC_INIT;
    struct sched_step_status end;
    struct sched_step *step = NULL;
    int rc;
    spec.argv = command->argv;
    spec.env = command->env;
    spec.log_path = log;
    spec.ranks = (int)ranks;
    spec.deadline_s = PROBE_DEADLINE_S;
    if ((rc = sched_step_start(s, &spec, &step, err)) < 0)
        return rc;
    rc = sched_step_poll(step, -1, &end, err);
    sched_step_free(step);
    if (rc < 0)
        return rc;
    if (end.timed_out)
        return err_set(err, ERR_TIMEOUT, "the probe on %lld ranks did not end within %d s",
                       (long long)ranks, PROBE_DEADLINE_S);
    return end.exit_code != 0 ? failed(&end, ranks, log, err) : 0;
}

/* Loads what the probe on so many ranks wrote. */
static int result_load(const char *path, int64_t ranks, struct probe *out, struct err *err)
{
    struct str text = STR_INIT;
    int rc;
    if ((rc = file_read(path, LIMIT_CAPTURE_BYTES, &text, err)) < 0)
        goto out;
    if ((rc = probe_parse(text.p, text.len, "reel-train probe", out, err)) < 0)
        goto out;
    if (out->ranks != ranks)
        rc = err_set(err, ERR_CHILD, "the probe was started on %lld ranks and ran on %lld",
                     (long long)ranks, (long long)out->ranks);
out:
    str_release(&text);
    return rc;
}

static int probe_in(struct sched *s, const char *dir, const char *bin_dir, int64_t ranks,
                    enum dtype dtype, const char *blas, struct probe *out, struct err *err)
{
    struct arena arena = {0};
    struct command command;
    const char *log = arena_printf(&arena, "%s/log", dir),
               *json = arena_printf(&arena, "%s/probe.json", dir);
    const char *args[] = {"probe", "--json", "--dtype", dtype_names[dtype], "--blas", blas,
                          "--out", json,     NULL};
    int rc;
    if (!log || !json) {
        rc = err_set(err, ERR_NOMEM, "out of memory");
        goto out;
    }
    if ((rc = command_trainer(bin_dir, ranks, s->ops->starts_ranks, args,
                              (const char *const *)environ, &arena, &command, err)) < 0)
        goto out;
    if ((rc = step_run(s, &command, ranks, log, err)) < 0)
        goto out;
    rc = result_load(json, ranks, out, err);
out:
    arena_release(&arena);
    return rc;
}

int probe_run(struct sched *s, const char *bin_dir, int64_t ranks, enum dtype dtype,
              const char *blas, struct probe *out, struct err *err)
{
    char dir[LIMIT_PATH_BYTES];
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/reel-probe.XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return err_set_errno(err, ERR_IO, "cannot make a folder for the probe: '%s'", dir);
    int rc = probe_in(s, dir, bin_dir, ranks, dtype, blas, out, err);
    file_remove_tree(dir, NULL);
    return rc;
}

void probe_rates(const struct probe *one, const struct probe *many, enum dtype dtype, int64_t cores,
                 struct device *device, struct cost_rates *out)
{
    struct device d = {.name = "cpu", .cpu = true, .memory_bytes_per_s = one->copy_bytes,
                       .gemm_efficiency = one->gemm_flops / one->fma_flops};
    d.peak_flops[dtype] = one->fma_flops;
    d.attn_fwd_efficiency = d.attn_bwd_efficiency = d.gemm_efficiency / 2;
    /* of a rank, and a rank computes on one core */
    snprintf(d.peak_source, sizeof d.peak_source, "measured FMA rate x 1 core");
    struct cost_rates r = cost_rates_prior(&d, dtype);
    if (many->ranks > 1) {
        /* cost prices this part as shared cores */
        double over = cores > 0 ? fmax(1, (double)many->ranks / (double)cores) : 1;
        r.rank_loss =
            fmax(0, (one->gemm_flops / many->gemm_flops - over) / (double)(many->ranks - 1));
        r.comm_latency_s = many->latency_s;
        r.comm_bytes = many->bus_bytes;
    }
    *device = d;
    *out = r;
}
