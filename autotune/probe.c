#include "autotune/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "autotune/command.h"
#include "base/num.h"
#include "base/spawn.h"

enum { PROBE_DEADLINE_S = 120 };

extern char **environ;

static int number(const struct json_doc *doc, const char *key, bool zero_ok, double *out, struct err *err)
{
    double v = json_num(doc->root, key, NAN);
    if (!isfinite(v) || v < 0 || (v == 0 && !zero_ok))
        return err_set(err, ERR_INPUT, "%s: %s is missing or not a positive number: run 'reel-train probe --json' by hand",
                       doc->name, key);
    *out = v;
    return 0;
}

int probe_parse(const char *text, size_t len, const char *name, struct probe *out, struct err *err)
{
    struct json_doc doc = {0};
    struct probe p = {0};
    int rc = json_parse(text, len, name, &doc, err);
    if (rc < 0)
        return rc;
    p.ranks = json_int(doc.root, "ranks", 0);
    rc = json_check_schema(&doc, "reel.probe/1", err);
    if (rc == 0 && p.ranks < 1)
        rc = err_set(err, ERR_INPUT, "%s: ranks is missing or below 1", name);
    if (rc == 0)
        rc = number(&doc, "fma_flops", false, &p.fma_flops, err);
    if (rc == 0)
        rc = number(&doc, "gemm_flops", false, &p.gemm_flops, err);
    if (rc == 0)
        rc = number(&doc, "copy_bytes_per_s", false, &p.copy_bytes, err);
    if (rc == 0)
        rc = number(&doc, "latency_s", p.ranks == 1, &p.latency_s, err);
    if (rc == 0)
        rc = number(&doc, "bus_bytes_per_s", p.ranks == 1, &p.bus_bytes, err);
    json_release(&doc);
    if (rc == 0)
        *out = p;
    return rc;
}

int probe_run(const char *bin_dir, int64_t ranks, enum dtype dtype, const char *blas, struct probe *out, struct err *err)
{
    const char *args[] = {"probe", "--json", "--dtype", dtype_names[dtype], "--blas", blas, NULL};
    struct arena arena = {0};
    struct command command;
    struct str text = STR_INIT, errors = STR_INIT;
    struct spawn_exit end;
    int rc = command_trainer(bin_dir, ranks, false, args, (const char *const *)environ, &arena, &command, err);
    if (rc == 0) {
        struct spawn spawn = SPAWN_INIT;
        spawn.argv = command.argv;
        spawn.env = command.env;
        rc = spawn_run(&spawn, NULL, PROBE_DEADLINE_S, &text, &errors, &end, err);
    }
    if (rc == 0 && end.timed_out)
        rc = err_set(err, ERR_TIMEOUT, "the probe on %lld ranks did not end within %d s", (long long)ranks, PROBE_DEADLINE_S);
    else if (rc == 0 && spawn_status(&end) != 0)
        rc = err_set(err, ERR_CHILD, "the probe on %lld ranks failed with exit status %d: %.*s", (long long)ranks,
                     spawn_status(&end), (int)strcspn(errors.p, "\n"), errors.p);
    if (rc == 0)
        rc = probe_parse(text.p, text.len, "reel-train probe", out, err);
    if (rc == 0 && out->ranks != ranks)
        rc = err_set(err, ERR_CHILD, "the probe was started on %lld ranks and ran on %lld", (long long)ranks,
                     (long long)out->ranks);
    str_release(&text);
    str_release(&errors);
    arena_release(&arena);
    return rc;
}

void probe_rates(const struct probe *one, const struct probe *many, enum dtype dtype, int64_t cores, struct device *device,
                 struct cost_rates *out)
{
    struct device d = {.name = "cpu", .cpu = true, .memory_bytes_per_s = one->copy_bytes,
                       .gemm_efficiency = one->gemm_flops / one->fma_flops};
    d.peak_flops[dtype] = one->fma_flops;
    d.attn_fwd_efficiency = d.attn_bwd_efficiency = d.gemm_efficiency / 2;
    snprintf(d.peak_source, sizeof d.peak_source, "measured FMA rate x %lld core%s", (long long)cores, cores == 1 ? "" : "s");
    struct cost_rates r = cost_rates_prior(&d, dtype);
    if (many->ranks > 1) {
        double over = cores > 0 ? fmax(1, (double)many->ranks / (double)cores) : 1; /* priced by cost as shared cores */
        r.rank_loss = fmax(0, (one->gemm_flops / many->gemm_flops - over) / (double)(many->ranks - 1));
        r.comm_latency_s = many->latency_s;
        r.comm_bytes = many->bus_bytes;
    }
    *device = d;
    *out = r;
}
