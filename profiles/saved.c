#include "profiles/saved.h"

#include "profiles/shard.h"

/* Computes the elements that all ranks of the first replica hold together: of the weights, and of
 * the trained weights. */
static int elements_count(const struct run *run, const struct param_list *params,
                          const struct layout *l, int64_t *all, int64_t *trained, struct err *err)
{
    int64_t ranks = layout_world(l);
    int rc;
    *all = *trained = 0;
    for (int64_t rank = 0; rank < ranks; rank++) {
        struct shards sh = {0};
        if (layout_data_rank(l, layout_place(l, rank)) != 0)
            continue;
        if ((rc = shards_build(&run->model, params, l, rank, &sh, err)) < 0)
            return rc;
        *all += sh.total;
        *trained += sh.trained;
        shards_release(&sh);
    }
    return 0;
}

int saved_bytes(const struct run *run, const struct layout *l, int64_t *out, struct err *err)
{
    struct param_list params = {0};
    int64_t all, trained, number = dtype_bytes(dtype_stat(run->dtype));
    int64_t moment = run->moments == MOMENTS_BF16 ? dtype_bytes(DTYPE_BF16) : number;
    int64_t average = run->adamw.ema_decay > 0 ? number : 0;
    int rc;
    if ((rc = finetune_params(&run->model, &run->finetune, &params, err)) < 0)
        return rc;
    if ((rc = elements_count(run, &params, l, &all, &trained, err)) < 0)
        goto out;
    *out = all * number + trained * (2 * moment + average);
out:
    params_release(&params);
    return rc;
}
