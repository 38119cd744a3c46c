/* reel-train layouts: lists the layouts in which a number of ranks can train a model, and the rules
 * that exclude the others. */
#include <string.h>

#include "base/json.h"
#include "profiles/space.h"
#include "trainer/cmd/main.h"

static const struct opt opts[] = {
    {"model", 0, OPT_TEXT, "MODEL|FILE", "model", .flags = OPT_REQUIRED},
    {"ranks", 0, OPT_INT, "N", "number of ranks", .flags = OPT_REQUIRED, .min = 1, .max = 4096},
    {"gbs", 0, OPT_INT, "N", "samples of a step", .fallback = "8", .min = 1, .max = 1 << 20},
    {"seq", 0, OPT_TEXT, "TxHxW", "tokens of a sample", .fallback = "1x8x8"},
    {"all", 0, OPT_BOOL, NULL, "list every value of every axis"},
    {"layout", 0, OPT_TEXT, "TEXT", "only this one: print it, or the rule that it breaks"},
    {"json", 0, OPT_BOOL, NULL, "print one JSON object (reel.layouts/1)"},
};
const struct opt_cmd train_cmd_layouts = {
    "layouts", "list the layouts that a model can be trained in", "", opts, ARRAY_LEN(opts), 0, 0,
    "One layout a line, as --layout of reel-train train takes it. The list is short, for readers: "
    "without --all it has few numbers of virtual stages, sizes of micro-batches and recomputed "
    "layers, and one order of ranks. The space of 'reel tune' has all of them. Lines that begin "
    "with # tell how many of the layouts tried each rule left out, and how many legal ones are not "
    "listed without --all, by axis. Exit status 1 when none is left, or --layout is not legal. Of "
    "two names for one layout the simpler stands: fsdp=0 for fsdp=dp and under zero=0, "
    "recompute_layers=0 for all layers of a virtual stage, zero=0 over one rank, the first of the "
    "orders that place all ranks alike."};

static int64_t thinned(const struct space *s)
{
    int64_t n = 0;
    for (int i = 0; i < SPACE_THINNED; i++)
        n += s->thinned[i];
    return n;
}

static void text_write(const struct space *s, struct str *text)
{
    for (size_t i = 0; i < s->n; i++) {
        layout_format(&s->items[i], text);
        str_addc(text, '\n');
    }
    str_addf(text, "# %zu of %lld layouts tried; left out:\n", s->n, (long long)s->visited);
    for (size_t i = 0; i < s->n_excluded; i++)
        str_addf(text, "# %8lld  %-26s %s\n", (long long)s->excluded[i].count, s->excluded[i].rule,
                 s->excluded[i].sentence);
    if (thinned(s))
        str_addf(text, "# %lld more are legal, and listed with --all:\n", (long long)thinned(s));
    for (int i = 0; i < SPACE_THINNED; i++)
        if (s->thinned[i])
            str_addf(text, "# %8lld  %-26s %s\n", (long long)s->thinned[i], space_axis_names[i],
                     space_axis_sentences[i]);
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
    json_arr_begin(&o, "not_listed");
    for (int i = 0; i < SPACE_THINNED; i++) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "axis", space_axis_names[i]);
        json_put_int(&o, "count", s->thinned[i]);
        json_put_text(&o, "sentence", space_axis_sentences[i]);
        json_obj_end(&o);
    }
    json_arr_end(&o);
    json_obj_end(&o);
    str_addc(text, '\n');
}

/* Prints one layout in its canonical form. Fails with ERR_NO and the broken rule if the layout is
 * not legal: the user asked about its legality. */
static int one_write(const char *wanted, const struct space_spec *spec, struct str *text,
                     struct err *err)
{
    struct layout l;
    struct err why = {0};
    if (layout_parse(wanted, &l, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    if (layout_check(&l, spec->model, spec->seq, spec->gbs, spec->ranks[0], &why) < 0)
        return err_set(err, ERR_NO, "%s", why.text);
    layout_format(&l, text);
    str_addc(text, '\n');
    return train_print(text, err);
}

static int list_write(const struct space_spec *spec, bool json, struct str *text, struct err *err)
{
    struct space space = {0};
    int rc;
    if ((rc = space_build(spec, &space, err)) < 0)
        return rc;
    json ? json_write(spec, &space, text) : text_write(&space, text);
    if ((rc = train_print(text, err)) < 0)
        goto out;
    rc = space_check(spec, &space, err);
out:
    space_release(&space);
    return rc;
}

int train_cmd_layouts_run(const struct opt_values *v, int argc, char **argv, struct err *err)
{
    struct model model;
    int64_t ranks = opt_int(v, "ranks");
    const char *one = opt_text(v, "layout");
    struct space_spec spec = {
        &model, .gbs = opt_int(v, "gbs"),
        .ranks = &ranks, .n_ranks = 1,
        .all = opt_bool(v, "all")};
    struct str text = STR_INIT;
    struct err why = {0};
    int rc;
    (void)argc, (void)argv;
    if (one && (opt_bool(v, "all") || opt_bool(v, "json")))
        return err_set(err, ERR_USAGE,
                       "--layout asks about one layout, --all and --json are of the list: give one "
                       "of them");
    if (seq_parse(opt_text(v, "seq"), "--seq", &spec.seq, &why) < 0)
        return err_set(err, ERR_USAGE, "%s", why.text);
    if ((rc = model_load(opt_text(v, "model"), &model, err)) < 0)
        return rc;
    rc = one ? one_write(one, &spec, &text, err)
             : list_write(&spec, opt_bool(v, "json"), &text, err);
    str_release(&text);
    return rc;
}
