/* This file reads and writes the format reel.stack/1. The table below says what each field means;
 * `reel format stack` is made from it. Each compiled-in stack names in `source` where its facts are
 * from.
 */
#include "profiles/stack.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "profiles/catalog.h"
#include "profiles/field.h"
#include "profiles/format.h"

const char *const stack_kind_names[] = {"megatron", "fsdp", "reel", NULL};
const char *const stack_attention_names[] = {"scores", "fused-scores", "flash1", "flash2", "flash",
                                            NULL};

struct stack_text {
    const char *name, *frameworks, *source, *like;
    struct stack s;
};
static const struct stack_text stack_defaults = {.frameworks = "", .like = "",
                                                 .s = {.reduce_bytes = 4}};

#define AT(field) offsetof(struct stack_text, s.field)
#define FLAG(field, text) {#field, JSON_BOOL, AT(field), .optional = true, .help = text}
static const struct json_field stack_fields[] = {
    {"schema", JSON_ANY, 0, .optional = true, .help = "\"reel.stack/1\""},
    {"name", JSON_TEXT, offsetof(struct stack_text, name), .help = "of the stack"},
    {"source", JSON_TEXT, offsetof(struct stack_text, source),
     .help = "where these facts are from"},
    {"frameworks", JSON_TEXT, offsetof(struct stack_text, frameworks), .optional = true,
     .help = "beginnings of what published tables call it, parted by commas"},
    {"like", JSON_TEXT, offsetof(struct stack_text, like), .optional = true,
     .help = "a stack that this one is built on, whose constants hold for it too"},
    {"kind", JSON_ENUM, AT(kind), .names = stack_kind_names, .help = "whose account it has"},
    {"attention", JSON_ENUM, AT(attention), .names = stack_attention_names,
     .help = "how attention is computed: with the matrix of scores, whose softmax is several "
             "operations or one, or without it"},
    FLAG(fused_norm, "a norm is one operation and keeps its input alone"),
    FLAG(fused_gate, "so is a gated MLP's activation"),
    FLAG(keeps_gathered, "sequence parallelism keeps what it gathered for products, whole"),
    FLAG(dropout, "masks of dropout are kept"),
    FLAG(eager, "each operation of a video model's layer is done alone, norms and gates in f32"),
    FLAG(gathers_heads, "norms of its queries and keys go over all heads, which tensor-parallel "
                        "ranks gather for that"),
    FLAG(ring_text, "its captions are cut over context-parallel ranks and go round the ring"),
    FLAG(ring_merges, "its ring adds results and gradients of steps by operations of their own"),
    FLAG(parallel_block, "self-attention and MLP share a norm, its result, and the sum behind them "
                         "over tensor-parallel ranks"),
    FLAG(early_cublas, "its cuBLAS is of CUDA before 11.7, whose products of heads in bf16 are "
                       "slow where 8 does not divide the head's size"),
    FLAG(sums_apart, "gradients of weights are added up by operations of their own"),
    {"weight_bytes", JSON_INT, AT(weight_bytes), .optional = true, .min = 0, .max = 8,
     .help = "of a weight that is kept; 0: as activations"},
    {"gradient_bytes", JSON_INT, AT(gradient_bytes), .min = 1, .max = 8,
     .help = "of a gradient in which micro-batches are summed"},
    {"reduce_bytes", JSON_INT, AT(reduce_bytes), .optional = true, .min = 1, .max = 8,
     .help = "of a gradient that travels"},
    {"optimizer_bytes", JSON_INT, AT(optimizer_bytes), .min = 0, .max = 32,
     .help = "of a weight: its moments, and its master if that is another one"},
    {"fp8_copy_bytes", JSON_INT, AT(fp8_copy_bytes), .optional = true, .min = 0, .max = 8,
     .help = "with products in fp8: of the copies that are kept beside a layer's weight"},
    {"fp8_input_bytes", JSON_INT, AT(fp8_input_bytes), .optional = true, .min = 0, .max = 8,
     .help = "likewise: of a product's input that a layer keeps; 0: as activations"},
    {"fp8_gather_bytes", JSON_INT, AT(fp8_gather_bytes), .optional = true, .min = 0, .max = 8,
     .help = "likewise: of a layer's weight that is gathered; 0: as activations"},
    {"logit_bytes", JSON_INT, AT(logit_bytes), .min = 1, .max = 32,
     .help = "of a logit in all its copies at the peak"},
    {"layer_stays", JSON_NUM, AT(layer_stays), .optional = true, .min = 0, .max = 1,
     .help = "share of the bytes of a layer's backward that stays reserved while there are logits"},
    FLAG(logits_whole, "each tensor-parallel rank has logits of the whole vocabulary"),
    FLAG(gradients_overlap, "gradients are reduced while the last backward goes on"),
    FLAG(gathers_overlap, "weights are gathered ahead of their use"),
    FLAG(sums_overlap, "sums of tensor-parallel ranks go on beside products"),
    FLAG(sends_overlap, "stages send beside computing"),
    FLAG(sends_divided, "each tensor-parallel rank sends its part of what a stage sends"),
    FLAG(regather, "zero 3: weights are dropped after the forward and gathered once more"),
    FLAG(reduce_each, "zero 2 and 3: gradients are scattered after each micro-batch"),
    FLAG(scatter, "zero 1: gradients are scattered, not all summed"),
    {"zero", JSON_INT, AT(zero), .optional = true, .min = 0, .max = 3,
     .help = "where a table does not say it"},
    {"units_gathered", JSON_INT, AT(units_gathered), .optional = true, .min = 0, .max = 16,
     .help = "zero 3: units whose whole weights are held at a time"},
};
#undef FLAG
#undef AT

/* Refuses a stack to be like that is not a compiled-in one. */
static int like_check(const struct json_doc *doc, const char *like, struct err *err)
{
    const char *const *name = catalog_stack_names;
    while (*name && strcmp(*name, like) != 0)
        name++;
    if (*name || !*like)
        return 0;
    const char *near = str_nearest(like, catalog_stack_names);
    return err_set(err, ERR_INPUT, "%s: like is '%.64s': there is no such stack%s%s%s", doc->name,
                   like, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

static int stack_read(const struct json_doc *doc, struct stack *out, struct err *err)
{
    struct stack_text t = stack_defaults;
    int rc;
    if ((rc = json_read(doc, doc->root, "", stack_fields, ARRAY_LEN(stack_fields), NULL, &t,
                        err)) < 0)
        return rc;
    if ((rc = field_copy_text(t.s.name, sizeof t.s.name, t.name, doc, "", "name", err)) < 0)
        return rc;
    if (*t.frameworks && (rc = field_copy_text(t.s.frameworks, sizeof t.s.frameworks, t.frameworks,
                                               doc, "", "frameworks", err)) < 0)
        return rc;
    if ((rc = like_check(doc, t.like, err)) < 0)
        return rc;
    if (*t.like &&
        (rc = field_copy_text(t.s.like, sizeof t.s.like, t.like, doc, "", "like", err)) < 0)
        return rc;
    *out = t.s;
    return 0;
}

int stack_load(const char *name_or_path, struct stack *out, struct err *err)
{
    struct json_doc doc = {0};
    int rc;
    if ((rc = catalog_open(&catalog_stacks, name_or_path, &doc, err)) < 0)
        return rc;
    rc = stack_read(&doc, out, err);
    json_release(&doc);
    return rc;
}

void stack_write(const struct stack *s, struct json_out *o)
{
    const struct stack_text t = {.name = s->name, .frameworks = s->frameworks, .like = s->like,
                                 .s = *s};
    json_obj_begin(o, NULL);
    field_write_table(o, stack_fields, ARRAY_LEN(stack_fields), &t);
    json_obj_end(o);
}

/* Returns the length of the longest item of a list, separated by ", ", that is a prefix of the
 * text, in letters of any case, and does not end inside a word of it. */
static size_t beginning(const char *list, const char *text)
{
    size_t longest = 0;
    while (*list) {
        size_t n = strcspn(list, ",");
        if (n > longest && strncasecmp(list, text, n) == 0 && !isalnum((unsigned char)text[n]))
            longest = n;
        list += n;
        list += strspn(list, ", ");
    }
    return longest;
}

bool stack_lists(const struct stack *s, const char *framework)
{
    const char *list = s->frameworks;
    size_t n = strlen(framework);
    while (*list) {
        size_t item = strcspn(list, ",");
        if (item == n && strncasecmp(list, framework, n) == 0)
            return true;
        list += item;
        list += strspn(list, ", ");
    }
    return false;
}

int stacks_load(struct stacks *out, struct err *err)
{
    size_t n = catalog_count(&catalog_stacks);
    struct stacks all = {calloc(n, sizeof *all.items), n};
    int rc = all.items ? 0 : err_set(err, ERR_NOMEM, "out of memory for %zu stacks", n);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = stack_load(catalog_stack_names[i], &all.items[i], err);
    if (rc == 0)
        *out = all;
    else
        stacks_release(&all);
    return rc;
}

void stacks_release(struct stacks *all)
{
    free(all->items);
    *all = (struct stacks){0};
}

const struct stack *stacks_find(const struct stacks *all, const char *name)
{
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(all->items[i].name, name) == 0)
            return &all->items[i];
    return NULL;
}

const struct stack *stack_of_framework(const struct stacks *all, const char *framework,
                                       int attention)
{
    const struct stack *best = NULL;
    size_t longest = 0;
    for (size_t i = 0; i < all->n; i++) {
        const struct stack *s = &all->items[i];
        bool named = strcasecmp(s->name, framework) == 0;
        size_t n = 2 * (named ? strlen(framework) : beginning(s->frameworks, framework));
        n += n > 0 && (int)s->attention == (attention < 0 ? ATTENTION_FLASH : attention);
        if (n > longest) {
            longest = n;
            best = s;
        }
    }
    return best;
}

enum { FRAMEWORKS = 64 };
/* Holds all items of the stacks' frameworks, and the stacks' names: as they are, and in small
 * letters as names for str_nearest(). */
struct frameworks {
    char text[FRAMEWORKS][LIMIT_NAME_BYTES], small[FRAMEWORKS][LIMIT_NAME_BYTES];
    const char *names[FRAMEWORKS + 1];
    size_t n;
};

static void small_copy(char *out, size_t size, const char *text, size_t n)
{
    snprintf(out, size, "%.*s", (int)n, text);
    for (; *out; out++)
        *out = (char)tolower((unsigned char)*out);
}

static void frameworks_add(const char *list, struct frameworks *f)
{
    while (*list && f->n < FRAMEWORKS) {
        size_t n = strcspn(list, ",");
        snprintf(f->text[f->n], sizeof f->text[f->n], "%.*s", (int)n, list);
        small_copy(f->small[f->n], sizeof f->small[f->n], list, n);
        f->names[f->n] = f->small[f->n];
        f->n++;
        list += n;
        list += strspn(list, ", ");
    }
}

void stack_nearest_framework(const struct stacks *all, const char *framework, char *out,
                             size_t size)
{
    struct frameworks f = {.n = 0};
    char word[LIMIT_NAME_BYTES];
    for (size_t i = 0; i < all->n; i++)
        frameworks_add(all->items[i].frameworks, &f);
    for (size_t i = 0; i < all->n; i++)
        frameworks_add(all->items[i].name, &f);
    small_copy(word, sizeof word, framework, strlen(framework));
    const char *near = str_nearest(word, f.names);
    word[strcspn(word, " ")] = '\0';
    if (!near)
        near = str_nearest(word, f.names);
    size_t i = 0;
    while (near && f.names[i] != near)
        i++;
    snprintf(out, size, "%s", near ? f.text[i] : "");
}

size_t stack_format(struct format_part *out)
{
    out[0] = (struct format_part){"", stack_fields, ARRAY_LEN(stack_fields), &stack_defaults};
    return 1;
}
