#include "launcher/state/end_name.h"

#include <stdio.h>
#include <string.h>

#include "base/limits.h"
#include "base/str.h"
#include "launcher/state/name_file.h"

static const char prefix[] = "end.";

bool end_name_is(const char *name) { return str_starts(name, prefix); }

void end_name_reserve(const char *events_dir) { name_file_reserve(events_dir, prefix); }

/* Returns the place of this word in the list; -1: it is not there. */
static int place_of(const char *word, const char *const *list)
{
    for (int i = 0; list[i]; i++)
        if (strcmp(list[i], word) == 0)
            return i;
    return -1;
}

bool end_name_parse(const char *name, struct run_named *out)
{
    struct fold_named n;
    if (!fold_named_parse(name, &n))
        return false;
    int cause = place_of(n.cause, attempt_cause_names);
    if (n.end != NAMED_OPEN && cause < 0)
        return false;
    *out = (struct run_named){
        .attempt = n.attempt,
        .signo = n.signo, .at_node = n.at_node, .notice_at = n.notice_at,
        .end = n.end, .cause = cause < 0 ? CAUSE_NONE : (enum attempt_cause)cause,
        .exit_code = n.exit_code, .exit_signal = n.exit_signal,
        .at = n.at};
    return true;
}

static bool is_older(const char *name, const void *named)
{
    const struct run_named *n = named;
    struct run_named kept;
    return !end_name_parse(name, &kept) || kept.attempt <= n->attempt;
}

int end_name_put(const char *run_dir, const struct run_named *n, struct err *err)
{
    char name[LIMIT_NAME_BYTES];
    snprintf(name, sizeof name, "%s%lld.%d.%d.%lld.%s.%s.%d.%d.%lld", prefix, (long long)n->attempt,
             n->signo, n->at_node, (long long)(n->notice_at * 1e3), fold_named_word(n->end),
             n->end == NAMED_OPEN ? "none" : attempt_cause_names[n->cause], n->exit_code,
             n->exit_signal, (long long)(n->at * 1e3));
    return name_file_put(run_dir, prefix, name, is_older, n, err);
}
