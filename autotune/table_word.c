/* This file knows the words of a table's columns framework, precision, recompute, attn and family.
 * A word that it does not know is taken by a rule, which the table's list of such words tells.
 *
 *     framework    what reel.stack/1 lists as prefixes, each up to the end of a word. Any other is
 *                  megatron, or fsdp where zero is 3
 *     precision    bf16, fp16, fp16/bf16, fp8, mxfp8, and the recipes fp8-cs, -ds, -mx, -subch;
 *                  each may be followed by fp32-grad-acc. Any other is fp8 if it begins so, else
 *                  bf16
 *     recompute    none, selective, full, unstated; behind each, a remark in brackets. "full block
 *                  K of L layers" and "full on P% of layers" are known too. Any other is the least
 *                  that fits, but for "selective" and "full" in front of words that are not known
 *     attn         torch, megatron-fused, flash1, flash2; flash, TE and flash/TE are the stack's,
 *                  and so is any other
 *     family       gpt, llama, dit, st-dit, moviegen, moe. The rows of any other are skipped
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autotune/table_priv.h"
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

bool table_recompute(const char *text, struct table_recompute *out)
{
    const char *rest = text + word_of(text);
    double number;
    *out = (struct table_recompute){.share = 1};
    out->known = !*text || !*rest || str_starts(rest, " (");
    if (is_first_word(text, "none"))
        out->kind = RECOMPUTE_NONE;
    else if (is_first_word(text, "selective"))
        out->kind = RECOMPUTE_SELECTIVE;
    else if (is_first_word(text, "full"))
        out->kind = RECOMPUTE_FULL;
    else
        return out->known &= !*text || is_first_word(text, "unstated"), false;
    if (out->kind != RECOMPUTE_FULL)
        return true;
    if (sscanf(rest, " block %lf of", &number) == 1 && number > 0)
        out->layers = number, out->known = true;
    else if (sscanf(rest, " on %lf%%", &number) == 1 && number > 0 && number <= 100)
        out->share = number / 100, out->known = true;
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

static bool is_known(enum table_column c, const char *text)
{
    struct table_recompute r;
    switch (c) {
    case COLUMN_framework: return stack_of_framework(text, -1) != NULL;
    case COLUMN_precision: return precision_known(text);
    case COLUMN_recompute: table_recompute(text, &r); return r.known;
    case COLUMN_attn: return is_listed(text, attentions);
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
    else
        snprintf(out, size, "a shape that was not published");
}

static void nearest_find(enum table_column c, const char *text, char *out, size_t size)
{
    const char *const *names = c == COLUMN_precision   ? precisions
                               : c == COLUMN_recompute ? recomputes
                               : c == COLUMN_attn      ? attentions
                                                       : families;
    const char *near = c == COLUMN_framework ? NULL : str_nearest(text, names);
    if (c == COLUMN_framework)
        stack_nearest_framework(text, out, size);
    else
        snprintf(out, size, "%s", near ? near : "");
}

/* ---- the list ---- */

static const struct { enum table_column column; const char *name; } columns[] = {
    {COLUMN_framework, "framework"}, {COLUMN_precision, "precision"},
    {COLUMN_recompute, "recompute"}, {COLUMN_attn, "attn"}, {COLUMN_family, "family"}};

/* Finds a word among those that were noted, by all that is said of it. */
static struct table_word *word_find(struct table *t, const struct table_word *w)
{
    for (size_t i = 0; i < t->n_words; i++)
        if (strcmp(t->words[i].column, w->column) == 0 && strcmp(t->words[i].word, w->word) == 0 &&
            strcmp(t->words[i].taken, w->taken) == 0)
            return &t->words[i];
    return NULL;
}

static int word_add(struct table *t, const struct table_word *w, struct err *err)
{
    struct table_word *old = word_find(t, w), *words;
    if (old) {
        old->rows++;
        return 0;
    }
    if (!(words = realloc(t->words, (t->n_words + 1) * sizeof *words)))
        return err_set(err, ERR_NOMEM, "out of memory for the words of %s", t->name);
    t->words = words;
    t->words[t->n_words++] = *w;
    return 0;
}

/* Tells whether a column of this case is looked at: of a case that is skipped only its family,
 * which may be why. */
static bool counts(const struct table_case *k, enum table_column c)
{ return (!k->skipped) == (c != COLUMN_family); }

int table_words_note(struct table *t, const struct table_line *l, struct table_case *k,
                     struct err *err)
{
    int rc;
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        enum table_column c = columns[i].column;
        struct table_word w = {.column = columns[i].name, .line = l->number, .rows = 1};
        if (!*l->field[c] || !counts(k, c) || is_known(c, l->field[c]))
            continue;
        k->assumed |= !k->skipped;
        str_cut(w.word, sizeof w.word, l->field[c]);
        taken_say(c, k, w.taken, sizeof w.taken);
        nearest_find(c, l->field[c], w.nearest, sizeof w.nearest);
        if ((rc = word_add(t, &w, err)) < 0)
            return rc;
    }
    return 0;
}
