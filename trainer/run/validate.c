#include "trainer/run/validate.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/philox.h"
#include "trainer/data/objective.h"

enum { BIN_SHIFT = 40 }; /* the bit of an ordinal at which the bin begins */

int validate_open(struct validate *v, const struct run *run, struct datasets *set,
                  const struct layout *layout, struct layout_place place, int64_t most, bool verify,
                  const struct comm *world, struct err *err)
{
    const char *data = run->validation.data;
    const struct run_stage stage = {.data = data,
                                    .data_fingerprint = run_validation_generation(run),
                                    .gbs = run->validation.samples};
    *v = (struct validate){.run = run, .most = most, .layout = layout, .place = place};
    int rc = loader_open(run, &stage, set, layout->mbs, verify, world->rank, world->size,
                         &v->loader, err);
    if (rc < 0)
        return err_context(err, "validation");
    v->samples = calloc((size_t)layout->mbs, sizeof *v->samples);
    return v->samples ? 0 : err_set(err, ERR_NOMEM, "out of memory");
}

void validate_close(struct validate *v)
{
    loader_close(v->loader);
    free(v->samples);
    *v = (struct validate){0};
}

/* Returns the sample with the noise level of the current bin, for validation. */
static struct batch_sample fixed(const struct validate *v, const struct batch_sample *s)
{
    const struct run *r = v->run;
    double u = ((double)v->bin + philox_uniform_at(r->seed, PHILOX_LEVEL, s->ordinal, 0)) /
               (double)r->validation.bins;
    struct batch_sample out = *s;
    out.level = objective_level(&r->level, u,
                                (int64_t)s->t * s->h * s->w / model_patch_cells(&r->model));
    out.drop_text = false;
    out.loss_weight = 1 / (double)(r->model.latent_channels * s->valid_t * s->valid_h * s->valid_w);
    return out;
}

/* Returns the first draw and the number of draws of a micro-batch of this replica. */
static int64_t micro_first(const struct validate *v, int64_t micro, int64_t *n)
{
    *n = layout_micro_batch_samples(v->layout, v->n, v->place.dp, micro);
    return v->first + layout_replica_first(v->layout, v->n, v->place.dp) + micro * v->layout->mbs;
}

static int micro_batch(void *ctx, int64_t micro, struct batch *out, struct err *err)
{
    struct validate *v = ctx;
    int64_t n, first = micro_first(v, micro, &n);
    struct batch b = {0};
    struct err why = {0};
    (void)err;
    int rc = n ? loader_read(v->loader, first, n,
                             LOADER_FIXED_ORDINAL | (uint64_t)v->bin << BIN_SHIFT, &b, &why)
               : 0;
    if (rc < 0 && v->failed == 0)
        v->failed = rc, v->err = why;
    for (int64_t i = 0; i < b.n; i++)
        v->samples[i] = fixed(v, &b.samples[i]);
    *out = (struct batch){v->samples, b.n};
    return 0;
}

int validate_shapes(struct validate *v, batch_shapes_fn *tell, void *ctx, struct err *err)
{
    int64_t samples = v->run->validation.samples;
    int rc = 0;
    for (v->first = v->bin = 0; v->first < samples; v->first += v->n) {
        v->n = num_min_i64(v->most, samples - v->first);
        int64_t micros = layout_micro_batches(v->layout, v->n, v->place.dp);
        for (int64_t micro = 0; micro < micros && rc == 0; micro++) {
            struct batch b;
            int64_t n, first = micro_first(v, micro, &n);
            loader_describe(v->loader, first, n, LOADER_FIXED_ORDINAL, &b);
            for (int64_t i = 0; i < b.n; i++)
                v->samples[i] = fixed(v, &b.samples[i]);
            rc = tell(ctx, &(struct batch){v->samples, b.n}, err);
        }
    }
    return rc;
}

/* Runs draws first .. first+n-1 of the current bin, and adds this rank's share of their losses to
 * *sum. */
static int pass(struct validate *v, struct pipe *pipe, double *sum, struct err *err)
{
    /* Replica 0 has the most micro-batches, and the collectives of zero 3 need the same number of
     * them on all replicas. */
    int64_t micros = layout_micro_batches(v->layout, v->n, 0);
    struct pipe_task w = {.micros = num_max_i64(1, micros),
                          .inv_norm = 1,
                          .batch = micro_batch,
                          .ctx = v,
                          .forward_only = true};
    struct pipe_result r = {0};
    int rc;
    if ((rc = pipe_run(pipe, &w, err)) < 0)
        return rc;
    if ((rc = pipe_wait(pipe, &r, err)) < 0)
        return rc;
    *sum += r.loss_sum;
    return 0;
}

/* Exchanges the requests to stop. Returns 1 if a rank has one. */
static int stop_agree(struct comm *world, const volatile sig_atomic_t *stop, struct err *err)
{
    double asked = *stop ? 1 : 0;
    int rc = comm_max(world, &asked, 1, err);
    return rc < 0 ? rc : asked > 0;
}

/* Sums this rank's losses for each bin. Returns 1 if a rank was asked to stop. */
static int bins_sum(struct validate *v, struct pipe *pipe, struct comm *world,
                    const volatile sig_atomic_t *stop, double *sums, struct err *err)
{
    int64_t samples = v->run->validation.samples, bins = v->run->validation.bins;
    int rc;
    for (v->bin = 0; v->bin < bins; v->bin++)
        for (v->first = 0; v->first < samples; v->first += v->n) {
            v->n = num_min_i64(v->most, samples - v->first);
            if ((rc = stop_agree(world, stop, err)) != 0)
                return rc;
            if ((rc = pass(v, pipe, &sums[v->bin], err)) < 0)
                return rc;
        }
    return 0;
}

int validate_run(struct validate *v, struct pipe *pipe, struct comm *world, bool counted,
                 const volatile sig_atomic_t *stop, struct validate_loss *out, struct err *err)
{
    int64_t samples = v->run->validation.samples, bins = v->run->validation.bins;
    double sums[RUN_BINS_MAX + 1] = {0};
    int rc;
    v->failed = 0;
    if ((rc = bins_sum(v, pipe, world, stop, sums, err)) != 0)
        return rc;
    for (int64_t b = 0; b < bins; b++)
        sums[b] = counted ? sums[b] / (double)samples : 0;
    sums[bins] = v->failed < 0;
    if ((rc = comm_sum(world, sums, (int)bins + 1, err)) < 0)
        return rc;
    if (sums[bins] > 0) {
        *err = v->err;
        return comm_agree(world, v->failed, err);
    }
    *out = (struct validate_loss){0};
    for (int64_t b = 0; b < bins; b++) {
        out->bins[b] = sums[b];
        out->mean += sums[b] / (double)bins;
    }
    return 0;
}
