/* This file knows the words of a table's columns framework, precision, recompute, attn, family and
 * gpu. A word that it does not know is taken by a rule, which the table's list of such words tells;
 * docs/predictions.md has the words and the rules.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/table_priv.h"
#include "base/hash.h"
#include "base/str.h"

static const char *const precisions[] = {"bf16", "fp16", "fp16/bf16", "fp8", "mxfp8", "fp8-cs",
                                         "fp8-ds", "fp8-mx", "fp8-subch", NULL};
static const char *const recomputes[] = {"none", "selective", "full", "unstated", NULL};
static const char *const attentions[] = {"torch", "megatron-fused", "flash1", "flash2", "flash",
                                         "TE", "flash/TE", NULL};
static const char *const families[] = {"gpt", "llama", "dit", "st-dit", "moviegen", "moe", NULL};

static bool is_listed(const char *word, const char *const *names)
{
    while (*names && strcasecmp(word, *names) != 0)
        names++;
    return *names != NULL;
}

/* ---- recomputation ---- */

/* Returns the length of the first word: letters. */
static size_t word_of(const char *text)
{
    size_t n = 0;
    while (isalpha((unsigned char)text[n]))
        n++;
    return n;
}

static bool is_first_word(const char *text, const char *word)
{ return word_of(text) == strlen(word) && strncasecmp(text, word, strlen(word)) == 0; }

/* Tells whether a text ends there, but for a remark in brackets. */
static bool is_end(const char *rest)
{ return !*rest || (str_starts(rest, " (") && str_ends(rest, ")")); }

/* Reads which layers full recomputation repeats, if that is what the whole text says. */
static bool layers_read(const char *rest, int64_t layers, struct table_recompute *out)
{
    double some, all;
    int end = 0;
    if (sscanf(rest, " block %lf of %lf layers%n", &some, &all, &end) == 2 && end &&
        is_end(rest + end) && some >= 1 && some <= all && some == floor(some) &&
        all == (double)layers) {
        out->layers = some;
        return true;
    }
    end = 0;
    if (sscanf(rest, " on %lf%% of layers%n", &some, &end) == 1 && end && is_end(rest + end) &&
        some > 0 && some <= 100) {
        out->share = some / 100;
        return true;
    }
    return false;
}

/* Reads which modules selective recomputation repeats, ":mlp,core_attn", if that is what the whole
 * text says. */
static bool modules_read(const char *rest, struct table_recompute *out)
{
    static const struct { const char *name; unsigned again; } modules[] = {
        {"core_attn", WORK_AGAIN_ATTENTION}, {"mlp", WORK_AGAIN_MLP}};
    unsigned again = 0;
    while (*rest == (again ? ',' : ':')) {
        size_t n = strcspn(++rest, ","), i = 0;
        while (i < ARRAY_LEN(modules) && (strlen(modules[i].name) != n ||
                                          strncasecmp(rest, modules[i].name, n) != 0))
            i++;
        if (i == ARRAY_LEN(modules))
            return false;
        again |= modules[i].again;
        rest += n;
    }
    out->again = again;
    return again && !*rest;
}

bool table_recompute(const char *text, int64_t layers, struct table_recompute *out)
{
    const char *rest = text + word_of(text);
    *out = (struct table_recompute){.share = 1};
    out->known = !*text || is_end(rest);
    if (is_first_word(text, "none"))
        out->kind = RECOMPUTE_NONE;
    else if (is_first_word(text, "selective"))
        out->kind = RECOMPUTE_SELECTIVE;
    else if (is_first_word(text, "full"))
        out->kind = RECOMPUTE_FULL;
    else
        return out->known &= !*text || is_first_word(text, "unstated"), false;
    if (out->kind == RECOMPUTE_SELECTIVE)
        out->known |= modules_read(rest, out);
    if (out->kind != RECOMPUTE_FULL)
        return true;
    out->known |= layers_read(rest, layers, out);
    return true;
}

/* ---- what is known ---- */

static bool precision_known(const char *text)
{
    static const char GRADIENTS[] = " fp32-grad-acc";
    char word[LIMIT_NAME_BYTES];
    size_t n = strlen(text), g = strlen(GRADIENTS);
    if (n >= sizeof word)
        return false;
    memcpy(word, text, n + 1);
    if (n > g && strcasecmp(word + n - g, GRADIENTS) == 0)
        word[n - g] = '\0';
    return is_listed(word, precisions);
}

static bool is_known(const struct table_profiles *p, enum table_column c, const char *text,
                     const struct table_case *k)
{
    struct table_recompute r;
    switch (c) {
    case COLUMN_framework: return stack_of_framework(&p->stacks, text, -1) != NULL;
    case COLUMN_precision: return precision_known(text);
    case COLUMN_recompute: table_recompute(text, k->model.layers, &r); return r.known;
    case COLUMN_attn: return is_listed(text, attentions);
    case COLUMN_gpu: return k->skipped != table_no_gpu;
    default: return is_listed(text, families);
    }
}

/* Says what a case has in place of a word. */
static void taken_say(enum table_column c, const struct table_case *k, char *out, size_t size)
{
    static const char *const kinds[] = {[RECOMPUTE_NONE] = "none",
                                        [RECOMPUTE_SELECTIVE] = "selective",
                                        [RECOMPUTE_FULL] = "full"};
    if (c == COLUMN_framework || c == COLUMN_attn)
        snprintf(out, size, "that of stack %.*s", LIMIT_NAME_BYTES - 16, k->stack.name);
    else if (c == COLUMN_precision)
        snprintf(out, size, "%s", k->fp8 ? "fp8" : "bf16");
    else if (c == COLUMN_recompute)
        snprintf(out, size, "%s", k->any_recompute ? "the least that fits"
                                                   : kinds[k->layout.recompute]);
    else if (c == COLUMN_gpu)
        snprintf(out, size, "a GPU without a profile");
    else
        snprintf(out, size, "a shape that was not published");
}

/* Finds the device whose name is near to the text, or to its first word, in small letters. */
static const char *gpu_near(const char *text)
{
    const char *const *names;
    char word[LIMIT_NAME_BYTES];
    device_names(&names);
    snprintf(word, sizeof word, "%s", table_gpu(text));
    for (char *c = word; *c; c++)
        *c = *c == ' ' ? '-' : (char)tolower((unsigned char)*c);
    const char *near = str_nearest(word, names);
    word[strcspn(word, "-")] = '\0';
    return near ? near : str_nearest(word, names);
}

static void nearest_find(const struct table_profiles *p, enum table_column c, const char *text,
                         char *out, size_t size)
{
    const char *const *names = c == COLUMN_precision   ? precisions
                               : c == COLUMN_recompute ? recomputes
                               : c == COLUMN_attn      ? attentions
                                                       : families;
    const char *near = c == COLUMN_framework ? NULL
                       : c == COLUMN_gpu     ? gpu_near(text)
                                             : str_nearest(text, names);
    if (c == COLUMN_framework)
        stack_nearest_framework(&p->stacks, text, out, size);
    else
        snprintf(out, size, "%s", near ? near : "");
}

/* ---- the list ---- */

static const struct { enum table_column column; const char *name; } columns[] = {
    {COLUMN_framework, "framework"}, {COLUMN_precision, "precision"},
    {COLUMN_recompute, "recompute"}, {COLUMN_attn, "attn"}, {COLUMN_family, "family"},
    {COLUMN_gpu, "gpu"}};

static bool is_same(const struct table_word *a, const struct table_word *b)
{
    return strcmp(a->column, b->column) == 0 && strcmp(a->word, b->word) == 0 &&
           strcmp(a->taken, b->taken) == 0;
}

/* Returns the slot of a word, by all that is said of it: its own, or a free one. */
static size_t *slot_find(const struct table *t, const struct table_index *index,
                         const struct table_word *w)
{
    uint64_t at = hash_64(w->word, strlen(w->word)) + hash_64(w->taken, strlen(w->taken)) +
                  hash_64(w->column, strlen(w->column));
    for (;; at++) {
        size_t *slot = &index->slots[at % index->n];
        if (!*slot || is_same(&t->words[*slot - 1], w))
            return slot;
    }
}

/* Makes room for one more word: half of the slots stay free. */
static int room_make(struct table *t, struct table_index *index, struct err *err)
{
    size_t n = index->n ? 2 * index->n : 64;
    if (2 * (t->n_words + 1) <= index->n)
        return 0;
    struct table_index more = {calloc(n, sizeof *more.slots), n};
    struct table_word *words = realloc(t->words, n / 2 * sizeof *words);
    t->words = words ? words : t->words;
    if (!more.slots || !words) {
        free(more.slots);
        return err_set(err, ERR_NOMEM, "out of memory for the words of %s", t->name);
    }
    for (size_t i = 0; i < t->n_words; i++)
        *slot_find(t, &more, &t->words[i]) = i + 1;
    free(index->slots);
    *index = more;
    return 0;
}

/* Counts a word, and adds it if it is new. */
static int word_note(struct table *t, struct table_index *index, const struct table_profiles *p,
                     enum table_column c, const char *text, struct table_word *w, struct err *err)
{
    int rc = room_make(t, index, err);
    if (rc < 0)
        return rc;
    size_t *slot = slot_find(t, index, w);
    if (*slot) {
        t->words[*slot - 1].rows++;
        return 0;
    }
    nearest_find(p, c, text, w->nearest, sizeof w->nearest);
    t->words[t->n_words++] = *w;
    *slot = t->n_words;
    return 0;
}

/* Tells whether a column of this case is looked at: of a case that is skipped only its family and
 * its GPU, which may be why. */
static bool counts(const struct table_case *k, enum table_column c)
{ return (!k->skipped) == (c != COLUMN_family && c != COLUMN_gpu); }

int table_words_note(struct table *t, struct table_index *index, const struct table_profiles *p,
                     const struct table_line *l, struct table_case *k, struct err *err)
{
    int rc;
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        enum table_column c = columns[i].column;
        struct table_word w = {.column = columns[i].name, .line = l->number, .rows = 1};
        if (!*l->field[c] || !counts(k, c) || is_known(p, c, l->field[c], k))
            continue;
        k->assumed |= !k->skipped;
        str_cut(w.word, sizeof w.word, l->field[c]);
        taken_say(c, k, w.taken, sizeof w.taken);
        if ((rc = word_note(t, index, p, c, l->field[c], &w, err)) < 0)
            return rc;
    }
    return 0;
}
