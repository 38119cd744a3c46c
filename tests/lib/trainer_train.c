#include "tests/lib/trainer_train.h"

volatile sig_atomic_t stop;

const char *volatile phase;

int try_train(struct run *run, const struct job *j, struct train_report *report,
              struct err *err)
{
    struct plan plans[LIMIT_STAGES];
    for (int64_t i = 0; i < run->n_stages; i++) {
        plans[i] = j->plan ? *j->plan
                           : plan_make_text(run, j->layouts[i] ? j->layouts[i]
                                                 : j->layout   ? j->layout
                                                               : "dp=1");
        if (!j->plan)
            plans[i].gbs = run->stages[i].gbs;
    }
    int ranks = (int)layout_world(&plans[0].layout), rc = 0;
    struct comm *group = first_ranks(ranks < world->size ? ranks : world->size);
    char dir[512];
    snprintf(dir, sizeof dir, "%s", in_scratch(j->name));
    struct train_conf conf = {.run = run, .plans = plans, .run_dir = dir,
                              .attempt = j->attempt ? j->attempt : 1, .trial = j->trial,
                              .max_steps = j->max_steps, .verify = VERIFY_ALWAYS,
                              .memory_limit_bytes = j->memory_limit_bytes, .world = group,
                              .profile = j->profile, .coll = j->coll,
                              .stop = &stop, .phase = &phase};
    if (group) {
        rc = train_run(&conf, report, err);
        comm_close(group);
    }
    struct err none;
    comm_barrier(world, &none);
    return rc;
}

struct train_report train(struct run *run, const struct job *j)
{
    struct train_report report = {0};
    struct err err = {0};
    must(try_train(run, j, &report, &err), &err);
    /* Ranks that did not train get the report too. */
    must(comm_broadcast_bytes(world, &report, sizeof report, 0, &err), &err);
    return report;
}

void ckpt_open(const char *name, int64_t step, char dir[600], struct ckpt_manifest *m)
{
    struct err err = {0};
    snprintf(dir, 600, "%s/ckpt/step-%08lld", in_scratch(name), (long long)step);
    must(ckpt_manifest_load(dir, m, &err), &err);
    must(ckpt_verify(dir, m, 0, 1, &err), &err);
}

double difference(const char *name_a, const char *name_b, int64_t step)
{
    struct ckpt_manifest a, b;
    struct ckpt_diff d;
    struct err err = {0};
    char da[600], db[600];
    if (world->rank != 0)
        return 0;
    ckpt_open(name_a, step, da, &a);
    ckpt_open(name_b, step, db, &b);
    assert_int_equal(a.n_tensors, b.n_tensors);
    assert_true(a.meta.updates == b.meta.updates && a.meta.ordinal == b.meta.ordinal);
    must(ckpt_diff(da, db, 0, 1e-12, &d, &err), &err);
    double most = d.rows[0].difference;
    ckpt_diff_release(&d);
    ckpt_manifest_release(&a);
    ckpt_manifest_release(&b);
    return most;
}

void phases_check(const cJSON *e)
{
    static const char *const names[] = {"data_s", "forward_s", "backward_s",
                                        "comm_s", "optim_s",   "other_s"};
    double sum = 0, step = json_num(e, "step_s", NAN);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double s = json_num(e, names[i], NAN);
        if (!(s >= -1e-9)) /* allows for the rounding of clocks */
            fail_msg("step %lld of %g s: %s is %g", (long long)json_int(e, "step", -1), step,
                     names[i], s);
        sum += s;
    }
    assert_true(fabs(sum - step) <= 1e-9);
}

struct told_steps told(const char *name, int64_t attempt)
{
    struct told_steps t = {0};
    struct evlog_reader *r;
    struct err err = {0};
    const cJSON *e;
    char path[600];
    snprintf(path, sizeof path, "%s/events/rank0.a%lld.evlog", in_scratch(name),
             (long long)attempt);
    must(evlog_reader_open(path, &r, &err), &err);
    while (evlog_reader_next(r, &e, &err) == 1) {
        const char *ev = json_text(e, "ev", "");
        if (strcmp(ev, "step") == 0) {
            int64_t step = json_int(e, "step", -1);
            phases_check(e);
            if (step < STEPS_MAX) {
                t.loss[step] = json_num(e, "loss", NAN);
                t.loss_x0[step] = json_num(e, "loss_x0", NAN);
                t.norm[step] = json_num(e, "grad_norm", NAN);
                t.bad_rank[step] = json_int(e, "nonfinite_rank", -2);
                t.was_skipped[step] = cJSON_IsTrue(cJSON_GetObjectItem(e, "skipped"));
                snprintf(t.spike[step], sizeof t.spike[step], "%s", json_text(e, "spike", ""));
                snprintf(t.bad_in[step], sizeof t.bad_in[step], "%s",
                         json_text(e, "nonfinite_in", ""));
                snprintf(t.bad_op[step], sizeof t.bad_op[step], "%s",
                         json_text(e, "nonfinite_op", ""));
            }
            t.skipped += cJSON_IsTrue(cJSON_GetObjectItem(e, "skipped"));
            t.n++;
        }
        t.loaded += strcmp(ev, "ckpt_loaded") == 0;
        t.saved += strcmp(ev, "ckpt_saved") == 0;
        if (strcmp(ev, "train_ended") == 0)
            snprintf(t.end, sizeof t.end, "%s", json_text(e, "reason", ""));
    }
    evlog_reader_close(r);
    return t;
}

int train_setup(void **state)
{
    struct err err;
    if (shared_setup(state) < 0)
        return -1;
    if (world->rank == 0)
        dataset_make(3, 4);
    return comm_barrier(world, &err);
}
