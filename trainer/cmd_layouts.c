/* reel-train layouts: which layouts a number of ranks can train a model in, and what rules out the others. */
#include <string.h>

#include "base/json.h"
#include "profiles/space.h"
#include "trainer/main.h"

static const struct opt opts[] = {
    {"model", 0, OPT_TEXT, "NAME|FILE", "model", .flags = OPT_REQUIRED},
    {"ranks", 0, OPT_INT, "N", "number of ranks", .flags = OPT_REQUIRED, .min = 1, .max = 4096},
    {"gbs", 0, OPT_INT, "N", "samples of a step", .fallback = "8", .min = 1, .max = 1 << 20},
    {"seq", 0, OPT_TEXT, "TxHxW", "tokens of a sample", .fallback = "1x8x8"},
    {"json", 0, OPT_BOOL, NULL, "print one JSON object (reel.layouts/1)"},
};
const struct opt_cmd train_cmd_layouts = {
    "layouts", "list the layouts that a model can be trained in", "", opts, ARRAY_LEN(opts), 0, 0,
    "One layout a line, as --layout of reel-train train takes it; lines that begin with # tell how many of the layouts tried each rule "
    "left out. Exit status 1 when none is left. Micro-batches beyond 8 samples: powers of two and divisors of a replica's share. Virtual "
    "stages: 1, 2 and 4."};

static void text_write(const struct space *s, struct str *text)
{
    for (size_t i = 0; i < s->n; i++) {
        layout_format(&s->items[i], text);
        str_addc(text, '\n');
    }
    str_addf(text, "# %zu of %lld layouts tried; left out:\n", s->n, (long long)s->visited);
    for (size_t i = 0; i < s->n_excluded; i++)
        str_addf(text, "# %8lld  %-26s %s\n", (long long)s->excluded[i].count, s->excluded[i].rule, s->excluded[i].sentence);
}

static void json_write(const struct space_spec *spec, const struct space *s, struct str *text)
{
    struct json_out o;
    json_out_init(&o, text, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.layouts/1");
    json_put_text(&o, "model", spec->model->name);
    json_put_int(&o, "ranks", spec->ranks[0]);
    json_put_int(&o, "gbs", spec->gbs);
    json_put_int(&o, "tokens", seq_tokens(spec->seq));
    json_put_int(&o, "tried", s->visited);
    json_arr_begin(&o, "layouts");
    for (size_t i = 0; i < s->n; i++)
        layout_write(&s->items[i], &o, NULL);
    json_arr_end(&o);
    json_arr_begin(&o, "left_out");
    for (size_t i = 0; i < s->n_excluded; i++) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "rule", s->excluded[i].rule);
        json_put_int(&o, "count", s->excluded[i].count);
        json_put_text(&o, "sentence", s->excluded[i].sentence);
        json_obj_end(&o);
    }
    json_arr_end(&o);
    json_obj_end(&o);
    str_addc(text, '\n');
}

int train_cmd_layouts_run(const struct opt_values *v, int argc, char **argv, struct err *err)
{
    struct model model;
    int64_t ranks = opt_int(v, "ranks");
    struct space_spec spec = {&model, .gbs = opt_int(v, "gbs"), .ranks = &ranks, .n_ranks = 1};
    struct space space = {0};
    struct str text = STR_INIT;
    struct err why = {0};
    (void)argc, (void)argv;
    if (seq_parse(opt_text(v, "seq"), "--seq", &spec.seq, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    int rc = model_load(opt_text(v, "model"), &model, err);
    if (rc == 0)
        rc = space_build(&spec, &space, err);
    if (rc == 0) {
        opt_bool(v, "json") ? json_write(&spec, &space, &text) : text_write(&space, &text);
        rc = train_print(&text, err);
    }
    if (rc == 0)
        rc = space_check(&spec, &space, err);
    str_release(&text);
    space_release(&space);
    return rc;
}
