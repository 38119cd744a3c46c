/* This file makes the cases of the matrix product: sizes around the registers, panels and blocks of
 * the CPU and the tiles of a GPU, all transpositions, empty sums, no rows, and all activations. */
#include "tests/gpu/cases_lab.h"

struct gemm_case {
    const char *name;
    int64_t m, n, k;
    bool ta, tb;
    double alpha, beta;
    enum lab_class a, b, c;
    enum ops_act_kind act;
    bool aux;
};

static const struct gemm_case gemm_cases[] = {
    {"one number", 1, 1, 1, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"one row", 1, 33, 5, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"one column", 33, 1, 70, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"odd, x Wt", 13, 33, 257, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"odd, dx += dy W", 13, 31, 257, false, false, 1, 1, LAB_ACT, LAB_ACT, LAB_ACT},
    {"odd, dW", 29, 65, 130, true, false, 1, 0, LAB_ACT, LAB_ACT, LAB_STAT},
    {"odd, dW added", 29, 65, 130, true, false, 1, 1, LAB_ACT, LAB_ACT, LAB_STAT},
    {"both turned", 45, 17, 61, true, true, -0.5, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"both turned, half added", 17, 45, 61, true, true, 0.25, 0.5, LAB_ACT, LAB_ACT, LAB_ACT},
    {"even, x Wt", 64, 128, 64, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"even, x W", 128, 64, 72, false, false, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"even, xt W", 64, 72, 128, true, false, 0.125, 1, LAB_ACT, LAB_ACT, LAB_STAT},
    {"even, xt Wt", 72, 64, 128, true, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"past a block of rows", 145, 17, 40, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"past a block of columns", 7, 515, 21, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"past the tallest block", 790, 5, 9, false, true, 1, 1, LAB_ACT, LAB_ACT, LAB_ACT},
    {"past the widest block", 5, 801, 9, false, false, 0.5, 0.5, LAB_ACT, LAB_ACT, LAB_ACT},
    {"past a block of sums", 11, 19, 530, false, true, 0.1, -1, LAB_ACT, LAB_ACT, LAB_ACT},
    {"no sums", 3, 5, 0, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"no sums, added to", 3, 5, 0, true, false, 1, 0.5, LAB_ACT, LAB_ACT, LAB_STAT},
    {"no rows", 0, 4, 3, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"no rows in the sum", 9, 6, 0, true, false, 2, 1, LAB_ACT, LAB_ACT, LAB_STAT},
    {"few rows, x Wt", 16, 72, 520, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"few rows, dx += dy W", 9, 72, 1032, false, false, 1, 1, LAB_WIDE, LAB_ACT, LAB_WIDE},
    {"more than few, x Wt", 17, 72, 136, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT},
    {"conditioning", 3, 40, 37, false, false, 1, 1, LAB_WIDE, LAB_ACT, LAB_WIDE},
    {"conditioning, dW", 37, 40, 3, true, false, 1, 0, LAB_WIDE, LAB_ACT, LAB_WIDE},
    {"all wide", 21, 22, 23, false, true, 1, 0, LAB_WIDE, LAB_WIDE, LAB_WIDE},
    {"wide weights", 21, 22, 23, false, true, 1, 0.5, LAB_ACT, LAB_WIDE, LAB_ACT},
    {"silu", 15, 37, 20, false, true, 0.3, 0, LAB_ACT, LAB_ACT, LAB_ACT, OPS_ACT_SILU, false},
    {"gelu", 15, 37, 20, false, true, 0.3, 0, LAB_ACT, LAB_ACT, LAB_ACT, OPS_ACT_GELU_ERF, false},
    {"gelu, tanh", 15, 37, 20, false, false, 0.3, 0,
     LAB_ACT, LAB_ACT, LAB_ACT, OPS_ACT_GELU_TANH, false},
    {"silu and aux", 67, 39, 20, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT, OPS_ACT_SILU, true},
    {"gelu and aux", 67, 64, 64, false, true, 0.2, 0,
     LAB_ACT, LAB_ACT, LAB_ACT, OPS_ACT_GELU_ERF, true},
    {"gelu, tanh, and aux", 5, 130, 31, true, false, 0.2, 0,
     LAB_ACT, LAB_ACT, LAB_ACT, OPS_ACT_GELU_TANH, true},
    {"aux past the tallest block", 790, 3, 9, false, true, 1, 0, LAB_ACT, LAB_ACT, LAB_ACT,
     OPS_ACT_SILU, true},
    {"aux alone", 5, 13, 31, false, true, 0.2, 0, LAB_ACT, LAB_ACT, LAB_ACT, OPS_ACT_NONE, true},
};

static void gemm_make(struct lab *l, const void *data)
{
    const struct gemm_case *c = data;
    struct ops_gemm g = {
        .a = lab_in(l, "a", c->a, c->ta ? c->k : c->m, c->ta ? c->m : c->k),
        .b = lab_in(l, "b", c->b, c->tb ? c->n : c->k, c->tb ? c->k : c->n),
        .c = (c->beta == 0 ? lab_new : lab_in)(l, "c", c->c, c->m, c->n),
        .ta = c->ta, .tb = c->tb, .alpha = c->alpha, .beta = c->beta, .act = c->act,
    };
    struct case_output *made = lab_out(l, "c", 0, g.c);
    if (!c->aux) {
        LAB_CALL(l, gemm, g);
        return;
    }
    g.aux = lab_new(l, "aux", c->c, c->m, c->n);
    lab_out(l, "aux", 0, g.aux);
    struct tensor again = lab_new(l, "act of aux", c->c, c->m, c->n);
    lab_out(l, "act of aux", 0, again)->rounds_itself = true;
    lab_twin(l, "c");
    made->rounds_itself = true;
    LAB_CALL(l, gemm, g);
    LAB_CALL(l, act_fwd, (struct ops_act){.kind = c->act, .x = g.aux, .y = again});
}
LAB_CASES(gemm, gemm_cases, gemm_make)
