#include "tests/gpu/cases_lab.h"

#include <string.h>

/* Lists every operation: an operation without a table of cases does not link. */
#define LISTED(op, args) &cases_##op,
static const struct case_list *const lists[] = {OPS_LIST(LISTED)};
enum { LISTS = sizeof lists / sizeof *lists };

enum { LOOKS = 2 }; /* each case runs on dense tensors and on views */

int case_count(void)
{
    int n = 0;
    for (int i = 0; i < LISTS; i++)
        n += LOOKS * lists[i]->n;
    return n;
}

int case_count_of(const char *op)
{
    int n = 0;
    for (int i = 0; i < LISTS; i++)
        n += strcmp(lists[i]->op, op) == 0 ? LOOKS * lists[i]->n : 0;
    return n;
}

struct op_case case_at(int i)
{
    int list = 0;
    while (i >= LOOKS * lists[list]->n)
        i -= LOOKS * lists[list++]->n;
    const struct case_list *l = lists[list];
    const char *row = (const char *)l->rows + i / LOOKS * l->row_bytes;
    return (struct op_case){.op = l->op, .name = *(const char *const *)row,
                            .seed = (uint64_t)(list * 1000 + i), .views = i % LOOKS == 1,
                            .make = l->make, .data = row};
}
