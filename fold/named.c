#include "fold/named.h"

#include <stdio.h>
#include <string.h>

static const char *const words[] = {[NAMED_OPEN] = "open", [NAMED_GIVEN_BACK] = "given",
                                    [NAMED_ENDED] = "ended", [NAMED_AGENT_DIED] = "died"};
enum { N_WORDS = sizeof words / sizeof words[0] };

const char *fold_named_word(enum named_end end) { return words[end]; }

bool fold_named_parse(const char *name, struct fold_named *out)
{
    long long attempt, noticed_ms, at_ms;
    char how[16], why[16];
    int signo, at_node, code, killed_by, end = 0;
    if (sscanf(name, "end.%lld.%d.%d.%lld.%15[a-z].%15[a-z_].%d.%d.%lld", &attempt, &signo,
               &at_node, &noticed_ms, how, why, &code, &killed_by, &at_ms) != 9)
        return false;
    while (end < N_WORDS && strcmp(words[end], how) != 0)
        end++;
    if (attempt < 1 || end == N_WORDS)
        return false;
    *out = (struct fold_named){
        .attempt = attempt,
        .signo = signo, .at_node = at_node != 0, .notice_at = (double)noticed_ms / 1e3,
        .end = (enum named_end)end,
        .exit_code = code, .exit_signal = killed_by,
        .at = (double)at_ms / 1e3};
    snprintf(out->cause, sizeof out->cause, "%s", why);
    return true;
}
