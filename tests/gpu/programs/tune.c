/* Searches the fastest algorithm of each product of a file, and makes a table of them.
 *
 *     tune SECONDS PRODUCTS TABLE
 *
 * PRODUCTS is the file that REEL_GEMM_PRODUCTS named in one training or several; TABLE is written
 * for REEL_GEMM_TABLE (trainer/cuda/gemm_table.h). A proposal is timed in five rounds of about
 * SECONDS each. The program prints one JSON object for each finished product: the product, its
 * number of proposals, and its FLOP/s without a table, with the library's fastest proposal and with
 * the fastest of all. Exit status: 0, 2 usage, 4 no device, 5 a failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/str.h"
#include "tests/gpu/desk.h"
#include "trainer/ops/cuda_load.h"

enum { PRODUCTS_BYTES_MAX = 1 << 24 };

static void product_tune(struct desk *d, const struct cuda_backend *cuda, double round_s,
                         const char *product, struct str *table)
{
    struct gemm_found found;
    desk_must(d, cuda->gemm_search(d->c.ops, d->c.stream, product, round_s, &found, &d->err));
    str_add(table, found.line);
    printf("{\"product\": \"%s\", \"proposals\": %d, \"flops\": %.6g, \"first\": %.6g, "
           "\"library\": %.6g, \"best\": %.6g}\n", product, found.proposals, found.flops,
           found.flops / found.first_s, found.flops / found.lt_s, found.flops / found.best_s);
    fflush(stdout);
}

/* Tells whether a line occurs in the text before it. */
static bool is_again(const char *text, const char *line)
{
    for (const char *at = text; at < line; at += strlen(at) + 1)
        if (strcmp(at, line) == 0)
            return true;
    return false;
}

static void products_tune(struct desk *d, double round_s, char *text, struct str *table)
{
    const struct cuda_backend *cuda;
    char *rest = text, *line;
    desk_must(d, cuda_load(&cuda, &d->err));
    while ((line = strsep(&rest, "\n")))
        if (*line && !is_again(text, line))
            product_tune(d, cuda, round_s, line, table);
}

int main(int argc, char **argv)
{
    struct desk d = {0};
    struct str products = STR_INIT, table = STR_INIT;
    double round_s = argc == 4 ? strtod(argv[1], NULL) : 0;
    if (!(round_s > 0)) {
        fputs("usage: tune SECONDS PRODUCTS TABLE\n", stderr);
        return 2;
    }
    desk_must(&d, file_read(argv[2], PRODUCTS_BYTES_MAX, &products, &d.err));
    desk_open(&d, DTYPE_BF16);
    str_add(&table, "reel.gemm/1\n");
    products_tune(&d, round_s, products.p, &table);
    desk_must(&d, file_publish(argv[3], table.p, table.len, &d.err));
    desk_close(&d);
    str_release(&products), str_release(&table);
    return 0;
}
