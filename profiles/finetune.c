/* This file reads two optional members of reel.run/1 and reel.ckpt/1: groups and lora. The tables
 * below say what each field means; `reel format run` is made from them.
 *
 * The first group that matches a tensor decides all of its settings; later groups have no effect on
 * it. A group that decides nothing, and a pattern of lora that matches no matrix, are errors,
 * because they are misspelt or never reached.
 *
 * The adapters of X.weight [out, in] are X.lora_a [rank, in], whose first values are N(0, 1/in),
 * and X.lora_b [out, rank], which is zero at first. So a run begins with exactly the model from
 * which it starts (Hu et al., "LoRA: low-rank adaptation of large language models"). Adapters
 * follow their base in the list and belong to its layer. Position tables are looked up, not
 * multiplied, and get no adapters.
 *
 * A frozen tensor is not updated. It has no gradient, no moments and no average, and its gradient
 * is not computed; gradients pass through it to the tensors before it.
 */
#include "profiles/finetune.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "profiles/field.h"
#include "profiles/format.h"

/* ---- reading ---- */

struct group_row {
    const char *match;
    double lr_scale;
    bool decay, trainable;
};
static const struct json_field group_fields[] = {
    {"match", JSON_TEXT, offsetof(struct group_row, match),
     .help = "shell pattern on whole names of parameters; * matches dots too. The first group "
             "that matches decides"},
    {"lr_scale", JSON_NUM, offsetof(struct group_row, lr_scale), .optional = true, .min = 0,
     .max = 1e6,
     .help = "learning rate of these, relative; left out: 1"},
    {"decay", JSON_BOOL, offsetof(struct group_row, decay), .optional = true,
     .help = "whether they decay; left out: matrices do, the rest does not"},
    {"trainable", JSON_BOOL, offsetof(struct group_row, trainable), .optional = true,
     .help = "left out: true; with lora: true for adapters only"},
};
static const struct json_field lora_fields[] = {
    {"rank", JSON_INT, offsetof(struct finetune, lora.rank), .min = 1, .max = 1 << 16,
     .help = "of the adapters"},
    {"alpha", JSON_NUM, offsetof(struct finetune, lora.alpha), .min = 1e-6, .max = 1e6,
     .help = "y = x W^T + (alpha / rank) (x A^T) B^T"},
    {"match", JSON_ANY, .help = "array of patterns: matrices that get an adapter"},
};

/* Checks that a list is an array of 1 to `most` items. */
static int list_check(const struct json_doc *doc, const cJSON *list, const char *path, int most,
                      struct err *err)
{
    int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    if (n >= 1 && n <= most)
        return 0;
    return err_set(err, ERR_INPUT, "%s: %s %s: give an array of 1 to %d", doc->name, path,
                   !cJSON_IsArray(list) ? "is no array" : n ? "is too long" : "is empty", most);
}

static enum finetune_switch switch_of(const cJSON *obj, const char *key, bool value)
{
    return !json_member(obj, key) ? FINETUNE_DEFAULT : value ? FINETUNE_ON : FINETUNE_OFF;
}

static int group_read(const struct json_doc *doc, const cJSON *obj, struct finetune *t,
                      struct err *err)
{
    struct finetune_group *g = &t->groups[t->n_groups];
    struct group_row row = {.lr_scale = 1};
    char path[32];
    int rc;
    snprintf(path, sizeof path, "groups[%lld]", (long long)t->n_groups);
    if ((rc = json_read(doc, obj, path, group_fields, ARRAY_LEN(group_fields), NULL, &row,
                        err)) < 0)
        return rc;
    if ((rc = field_copy_text(g->match, sizeof g->match, row.match, doc, path, "match", err)) < 0)
        return rc;
    g->lr_scale = row.lr_scale;
    g->decay = switch_of(obj, "decay", row.decay);
    g->trainable = switch_of(obj, "trainable", row.trainable);
    t->n_groups++;
    return 0;
}

static int groups_read(const struct json_doc *doc, const cJSON *list, struct finetune *t,
                       struct err *err)
{
    int rc = list_check(doc, list, "groups", FINETUNE_GROUPS, err);
    const cJSON *item;
    if (rc < 0)
        return rc;
    cJSON_ArrayForEach(item, list)
        if ((rc = group_read(doc, item, t, err)) < 0)
            return rc;
    return 0;
}

static int lora_read(const struct json_doc *doc, const cJSON *obj, struct finetune *t,
                     struct err *err)
{
    const cJSON *list = json_member(obj, "match"), *item;
    int rc;
    if ((rc = json_read(doc, obj, "lora", lora_fields, ARRAY_LEN(lora_fields), NULL, t, err)) < 0)
        return rc;
    if ((rc = list_check(doc, list, "lora.match", FINETUNE_MATCHES, err)) < 0)
        return rc;
    cJSON_ArrayForEach(item, list) {
        char field[32];
        snprintf(field, sizeof field, "match[%lld]", (long long)t->lora.n_matches);
        if (!cJSON_IsString(item))
            return err_set(err, ERR_INPUT,
                           "%s: lora.%s is no text: give a pattern on tensors' names", doc->name,
                           field);
        char *match = t->lora.match[t->lora.n_matches++];
        if ((rc = field_copy_text(match, LIMIT_NAME_BYTES, item->valuestring, doc, "lora", field,
                                  err)) < 0)
            return rc;
    }
    return 0;
}

int finetune_read(const struct json_doc *doc, const cJSON *root, struct finetune *out,
                  struct err *err)
{
    const cJSON *groups = json_member(root, "groups"), *lora = json_member(root, "lora");
    int rc;
    *out = (struct finetune){0};
    if (groups && (rc = groups_read(doc, groups, out, err)) < 0)
        return rc;
    return lora ? lora_read(doc, lora, out, err) : 0;
}

/* ---- writing ---- */

static void switch_put(struct json_out *o, const char *key, enum finetune_switch s)
{
    if (s != FINETUNE_DEFAULT)
        json_put_bool(o, key, s == FINETUNE_ON);
}

static void groups_write(const struct finetune *t, struct json_out *o)
{
    json_arr_begin(o, "groups");
    for (int64_t i = 0; i < t->n_groups; i++) {
        const struct finetune_group *g = &t->groups[i];
        json_obj_begin(o, NULL);
        json_put_text(o, "match", g->match);
        json_put_num(o, "lr_scale", g->lr_scale);
        switch_put(o, "decay", g->decay);
        switch_put(o, "trainable", g->trainable);
        json_obj_end(o);
    }
    json_arr_end(o);
}

static void lora_write(const struct finetune *t, struct json_out *o)
{
    json_obj_begin(o, "lora");
    json_put_int(o, "rank", t->lora.rank);
    json_put_num(o, "alpha", t->lora.alpha);
    json_arr_begin(o, "match");
    for (int64_t i = 0; i < t->lora.n_matches; i++)
        json_put_text(o, NULL, t->lora.match[i]);
    json_arr_end(o);
    json_obj_end(o);
}

void finetune_write(const struct finetune *t, struct json_out *o)
{
    if (t->n_groups)
        groups_write(t, o);
    if (t->lora.rank)
        lora_write(t, o);
}

/* ---- adapters ---- */

bool finetune_freezes(const struct finetune *t)
{
    for (int64_t i = 0; i < t->n_groups; i++)
        if (t->groups[i].trainable == FINETUNE_OFF)
            return true;
    return false;
}

double finetune_lora_scale(const struct finetune *t)
{ return t->lora.rank ? t->lora.alpha / (double)t->lora.rank : 0; }

static bool takes_adapter(const struct param *p)
{ return p->nd == 2 && strncmp(p->name, "pos_", 4) != 0 && str_ends(p->name, ".weight"); }

/* Returns one of the two adapters of X.weight. */
static struct param adapter(const struct param *base, enum param_lora kind, int64_t rank)
{
    struct param p = *base;
    bool a = kind == PARAM_LORA_A, cut = a ? base->tp == PARAM_TP_COL
                                           : base->tp == PARAM_TP_ROW || base->tp == PARAM_TP_HEADS;
    snprintf(p.name, sizeof p.name, "%.*s.%s", (int)(strlen(base->name) - strlen(".weight")),
             base->name, a ? "lora_a" : "lora_b");
    p.lora = kind;
    p.dim[a ? 0 : 1] = rank;
    p.count = p.dim[0] * p.dim[1];
    p.init = a ? PARAM_NORMAL : PARAM_ZERO;
    p.init_std = a ? 1 / sqrt((double)base->dim[1]) : 0;
    p.tp = cut ? base->tp : PARAM_TP_NONE;
    return p;
}

static bool lora_matches(const struct finetune *t, const struct param *p, bool *met)
{
    bool any = false;
    for (int64_t k = 0; k < t->lora.n_matches && takes_adapter(p); k++)
        if (fnmatch(t->lora.match[k], p->name, 0) == 0)
            any = met[k] = true;
    return any;
}

/* Freezes every tensor of the model, and inserts adapters after each tensor that a pattern of lora
 * matches. */
static int lora_add(const struct finetune *t, struct param_list *list, struct err *err)
{
    struct param_list out = {.items = calloc((size_t)list->n, 3 * sizeof *out.items),
                             .total = list->total};
    bool met[FINETUNE_MATCHES] = {false};
    if (!out.items)
        return err_set(err, ERR_NOMEM, "no memory for the adapters of %lld tensors",
                       (long long)list->n);
    for (int64_t i = 0; i < list->n; i++) {
        const struct param *base = &list->items[i];
        out.items[out.n] = *base;
        out.items[out.n++].flags &= ~(unsigned)PARAM_TRAINABLE;
        for (enum param_lora kind = PARAM_LORA_A;
             kind <= PARAM_LORA_B && lora_matches(t, base, met); kind++) {
            out.items[out.n] = adapter(base, kind, t->lora.rank);
            out.total += out.items[out.n++].count;
        }
    }
    params_release(list);
    *list = out;
    for (int64_t k = 0; k < t->lora.n_matches; k++)
        if (!met[k])
            return err_set(err, ERR_INPUT,
                           "lora.match '%s' matches no matrix of the model: `reel-train ckpt show` "
                           "and params.c list the names",
                           t->lora.match[k]);
    return 0;
}

/* ---- groups ---- */

static void flag_set(struct param *p, unsigned flag, enum finetune_switch s)
{
    if (s == FINETUNE_ON)
        p->flags |= flag;
    if (s == FINETUNE_OFF)
        p->flags &= ~flag;
}

/* Returns the first group that matches; -1: none. */
static int64_t group_of(const struct finetune *t, const struct param *p)
{
    for (int64_t k = 0; k < t->n_groups; k++)
        if (fnmatch(t->groups[k].match, p->name, 0) == 0)
            return k;
    return -1;
}

static int groups_apply(const struct finetune *t, struct param_list *list, struct err *err)
{
    bool met[FINETUNE_GROUPS] = {false};
    for (int64_t i = 0; i < list->n; i++) {
        int64_t k = group_of(t, &list->items[i]);
        if (k < 0)
            continue;
        met[k] = true;
        list->items[i].lr_scale = t->groups[k].lr_scale;
        flag_set(&list->items[i], PARAM_DECAY, t->groups[k].decay);
        flag_set(&list->items[i], PARAM_TRAINABLE, t->groups[k].trainable);
    }
    for (int64_t k = 0; k < t->n_groups; k++)
        if (!met[k])
            return err_set(err, ERR_INPUT,
                           "groups[%lld].match '%s' matches no tensor that an earlier group has "
                           "not: correct it, move it up, or take it out",
                           (long long)k, t->groups[k].match);
    return 0;
}

static int something_trained(const struct param_list *list, struct err *err)
{
    for (int64_t i = 0; i < list->n; i++)
        if (list->items[i].flags & PARAM_TRAINABLE)
            return 0;
    return err_set(err, ERR_INPUT, "the groups leave no tensor trainable: there is nothing to do");
}

int finetune_params(const struct model *m, const struct finetune *t, struct param_list *out,
                    struct err *err)
{
    struct param_list list;
    int rc;
    if ((rc = params_build(m, &list, err)) < 0)
        return rc;
    if (t->lora.rank && (rc = lora_add(t, &list, err)) < 0)
        goto out;
    if ((rc = groups_apply(t, &list, err)) < 0)
        goto out;
    if ((rc = something_trained(&list, err)) < 0)
        goto out;
    *out = list;
    list = (struct param_list){0}; /* the caller owns it now */
out:
    params_release(&list);
    return rc;
}

size_t finetune_format(struct format_part *out)
{
    out[0] = (struct format_part){"groups[]", group_fields, ARRAY_LEN(group_fields), NULL};
    out[1] = (struct format_part){"lora", lora_fields, ARRAY_LEN(lora_fields), NULL};
    return 2;
}
