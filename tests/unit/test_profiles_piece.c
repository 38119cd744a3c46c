/* Pieces of units and lists of spans: every element of the model counts once over all owners, and
 * ranks that sum together list the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "profiles/buffers.h"
#include "profiles/piece.h"

static struct model model = {.name = "small", .family = MODEL_DIT, .layers = 4, .hidden = 16,
                             .heads = 8, .kv_heads = 2, .ffn = 24, .text_width = 6, .text_len = 3,
                             .adaln = ADALN_LORA_SINGLE, .adaln_rank = 3, .patch_t = 1,
                             .patch_h = 1, .patch_w = 1, .latent_channels = 3, .rope_theta = 100};
static const char *const layouts[] = {
    "dp=1",      "dp=3", "cp=2,dp=2,fsdp=4",     "tp=2,sp=1",      "tp=4,dp=2",
    "tp=8,sp=1", "pp=4", "tp=4,sp=1,pp=2,vpp=2", "tp=2,pp=2,dp=2", "dp=8"};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static struct param_list params;

static void shards_of(const char *text, int64_t rank, struct layout *l, struct shards *sh)
{
    struct err err = {0};
    assert_int_equal(layout_parse(text, l, &err), 0);
    assert_int_equal(shards_build(&model, &params, l, rank, sh, &err), 0);
}

/* Elements of a span that belong to a tensor. */
static int64_t span_elements(const struct shards *sh, const struct piece_span *span)
{
    const struct shard_unit *u = &sh->units[span->unit];
    int64_t first = piece_whole(sh, span->unit, span->at), n = 0;
    assert_true(first >= u->offset && first + span->n <= u->offset + u->elements);
    for (int64_t i = u->first_param; i < u->first_param + u->n_params; i++)
        for (int64_t e = first; e < first + span->n; e++)
            n += e >= sh->tensors[i].offset && e < sh->tensors[i].offset + sh->tensors[i].count;
    return n;
}

/* Elements that the owners of one replica count together. */
static int64_t counted_elements(const char *layout)
{
    struct layout l;
    int64_t counted = 0;
    for (int64_t rank = 0, world = 1; rank < world; rank++) {
        struct shards sh;
        struct piece_spans spans;
        struct err err = {0};
        shards_of(layout, rank, &l, &sh);
        world = layout_world(&l);
        assert_int_equal(piece_spans_build(&sh, &params, PIECE_ONCE, &spans, &err), 0);
        for (int64_t i = 0; i < spans.n && layout_data_rank(&l, sh.place) < sh.group; i++) {
            counted += span_elements(&sh, &spans.items[i]);
            assert_true(i == 0 ||
                        spans.items[i].at >= spans.items[i - 1].at + spans.items[i - 1].n);
        }
        piece_spans_release(&spans);
        shards_release(&sh);
    }
    return counted;
}

static void every_element_counts_once(void **state)
{
    (void)state;
    for (int k = 0; k < N_LAYOUTS; k++)
        assert_int_equal(counted_elements(layouts[k]), params.total);
}

/* Where copied k/v rows begin in the middle of a line of 16 elements: 6 rows of 12 of the one q
 * head, then the copies. */
static void counted_rows_end_anywhere(void **state)
{
    struct model wide = model;
    struct param_list list = params;
    struct err err = {0};
    (void)state;
    model.heads = 2, model.kv_heads = 1, model.hidden = 12;
    assert_int_equal(params_build(&model, &params, &err), 0);
    int64_t counted = counted_elements("tp=2,dp=2"), total = params.total;
    params_release(&params);
    model = wide, params = list;
    assert_int_equal(counted, total);
}

static void same_spans(const char *layout, int64_t a, int64_t b, enum piece_rule rule)
{
    struct layout l;
    struct shards sa, sb;
    struct piece_spans ra, rb;
    struct err err = {0};
    shards_of(layout, a, &l, &sa);
    shards_of(layout, b, &l, &sb);
    assert_int_equal(piece_spans_build(&sa, &params, rule, &ra, &err), 0);
    assert_int_equal(piece_spans_build(&sb, &params, rule, &rb, &err), 0);
    assert_true(ra.n > 0 && ra.n == rb.n && ra.elements == rb.elements);
    for (int64_t i = 0; i < ra.n; i++)
        assert_int_equal(ra.items[i].n, rb.items[i].n);
    piece_spans_release(&ra);
    piece_spans_release(&rb);
    shards_release(&sa);
    shards_release(&sb);
}

static void partners_have_equal_lists(void **state)
{
    (void)state;
    same_spans("tp=4,dp=2", 0, 3, PIECE_SUM_TP);
    same_spans("tp=4,dp=2", 4, 7, PIECE_SUM_TP);
    same_spans("tp=8,sp=1", 0, 3, PIECE_SUM_KV);
    same_spans("tp=4,sp=1,pp=2,vpp=2", 1, 5, PIECE_SUM_PP);
    same_spans("pp=4", 0, 3, PIECE_SUM_PP);
}

/* A row of own pieces: tensor by tensor they are what the whole has. */
static void a_piece_is_a_part_of_the_whole(void **state)
{
    struct layout l;
    struct shards sh;
    (void)state;
    for (int64_t rank = 0; rank < 3; rank++) {
        shards_of("dp=3", rank, &l, &sh);
        for (int64_t k = 0; k < sh.n_units; k++)
            for (int64_t i = sh.units[k].first_param;
                 i < sh.units[k].first_param + sh.units[k].n_params; i++) {
                struct piece p = piece_of(&sh, &sh.units[k], &sh.tensors[i], 0,
                                          sh.tensors[i].count);
                if (p.n)
                    assert_int_equal(piece_whole(&sh, k, p.at), sh.tensors[i].offset + p.local);
                assert_true(p.n >= 0 && p.at + p.n <= sh.total / sh.group);
            }
        shards_release(&sh);
    }
}

/* The packing buffer holds the longest of the lists; nothing is packed without tp and pp. */
static void packing(void **state)
{
    (void)state;
    for (int k = 0; k < N_LAYOUTS; k++) {
        struct layout l;
        struct shards sh;
        struct err err = {0};
        int64_t sums[PIECE_RULES], all = 0;
        shards_of(layouts[k], 0, &l, &sh);
        assert_int_equal(piece_sum_elements(&sh, &params, sums, &err), 0);
        for (enum piece_rule rule = PIECE_SUM_TP; rule < PIECE_RULES; rule++) {
            struct piece_spans spans;
            assert_int_equal(piece_spans_build(&sh, &params, rule, &spans, &err), 0);
            assert_int_equal(sums[rule], spans.elements);
            all += spans.elements;
            piece_spans_release(&spans);
        }
        assert_int_equal(all == 0, l.tp * l.pp == 1);
        shards_release(&sh);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_counts_once), cmocka_unit_test(counted_rows_end_anywhere),
        cmocka_unit_test(partners_have_equal_lists),
        cmocka_unit_test(a_piece_is_a_part_of_the_whole), cmocka_unit_test(packing)};
    struct err err = {0};
    if (params_build(&model, &params, &err) < 0)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    params_release(&params);
    return failed;
}
