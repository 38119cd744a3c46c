#include "fold/end.h"

#include <string.h>

bool fold_end_counts(const struct fold_end *end, const struct fold_end *other)
{
    int by_name = strcmp(end->writer, other->writer);
    if (end->seq != other->seq)
        return end->seq < other->seq;
    return by_name ? by_name < 0 : end->wall > other->wall;
}
