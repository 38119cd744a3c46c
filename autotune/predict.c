#include "autotune/predict.h"

#include "base/num.h"

int predict_open(const struct table_case *c, struct predict_room *room, struct err *err)
{
    return work_weights(&c->model, &room->weights, err);
}

int predict_layout(const struct table_case *c, const struct layout *l, const double v[CONSTANTS],
                   bool replay, struct predict_room *room, struct predicted *out, struct err *err)
{
    struct work_spec spec = {.model = &c->model, .stack = &c->stack, .weights = &room->weights,
                             .seq = c->seq, .gbs = c->gbs, .act = DTYPE_BF16, .fp8 = c->fp8,
                             .again = c->again, .frozen = c->frozen};
    struct predicted p = {.layout = *l};
    work_build(&spec, l, &room->work);
    price_machine(&c->cluster, v, DTYPE_BF16, c->fp8, &room->machine);
    price_parts(&room->machine, &room->work, &room->price);
    footprint_of(&room->work, l, v, &p.footprint);
    p.bytes = p.footprint.total;
    p.p_fits = footprint_fits(&p.footprint, v, (double)device_usable_bytes(&c->cluster.device));
    if (replay) {
        int rc = price_replay(&room->price, l, &p.step, err);
        if (rc < 0)
            return rc;
    } else {
        price_step(&room->price, l, &p.step);
    }
    p.seconds = p.step.seconds;
    *out = p;
    return 0;
}

/* Predicts with the least recomputation that fits. */
static int recompute_choose(const struct table_case *c, struct layout l, const double v[CONSTANTS],
                            bool replay, struct predict_room *room, struct predicted *out,
                            struct err *err)
{
    int rc = 0;
    if (!c->any_recompute)
        return predict_layout(c, &l, v, replay, room, out, err);
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL && rc == 0; r++) {
        l.recompute = (enum recompute)r;
        rc = predict_layout(c, &l, v, replay, room, out, err);
        if (rc == 0 && out->p_fits >= 0.5)
            break;
    }
    return rc;
}

/* Predicts with the fastest number of virtual stages that fits. */
static int vpp_choose(const struct table_case *c, struct layout l, const double v[CONSTANTS],
                      bool replay, struct predict_room *room, struct predicted *out,
                      struct err *err)
{
    int rc = recompute_choose(c, l, v, replay, room, out, err);
    int64_t most = c->any_vpp ? num_min_i64(8, c->model.layers / l.pp) : 1;
    for (l.vpp = 2; l.vpp <= most && rc == 0; l.vpp *= 2) {
        struct predicted p;
        rc = recompute_choose(c, l, v, replay, room, &p, err);
        if (rc == 0 && p.p_fits >= 0.5 && p.seconds < out->seconds)
            *out = p;
    }
    return rc;
}

int predict_case(const struct table_case *c, const double v[CONSTANTS], bool replay,
                 struct predict_room *room, struct predicted *out, struct err *err)
{
    struct layout l = c->layout;
    int64_t most = c->any_mbs ? num_min_i64(8, num_ceil_div(c->gbs, l.dp)) : 1;
    int rc = vpp_choose(c, l, v, replay, room, out, err);
    for (l.mbs = 2; l.mbs <= most && rc == 0; l.mbs *= 2) {
        struct predicted p;
        rc = vpp_choose(c, l, v, replay, room, &p, err);
        if (rc == 0 && p.p_fits >= 0.5 && p.seconds < out->seconds)
            *out = p;
    }
    return rc;
}
