#include "launcher/state/wish_name.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/str.h"
#include "launcher/state/name_file.h"

static const char prefix[] = "wish.";

bool wish_name_is(const char *name) { return str_starts(name, prefix); }

/* Lists the words that stand for a request in the file's name. */
static const struct {
    const char *word;
    enum run_wish wish;
    bool at_scheduler;
} kinds[] = {{"cancel", WISH_CANCEL, false}, {"pause", WISH_PAUSE, false},
             {"scancel", WISH_CANCEL, true}};

static const char *word_of(const struct wish_name *m)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (kinds[i].wish == m->wish && kinds[i].at_scheduler == m->at_scheduler)
            return kinds[i].word;
    BUG_ON(true);
    return "";
}

bool wish_name_parse(const char *name, struct wish_name *out)
{
    char word[16];
    long long turn, met, at_ms;
    if (sscanf(name, "wish.%15[a-z].%lld.%lld.%lld", word, &turn, &met, &at_ms) != 4)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].word, word) == 0) {
            *out = (struct wish_name){kinds[i].wish, kinds[i].at_scheduler, turn, met,
                                 (double)at_ms / 1e3};
            return true;
        }
    return false;
}

struct wish_name wish_name_make(const struct run_state *s, enum run_wish wish, bool at_scheduler)
{
    int64_t met = s->n_attempts ? s->attempts[s->n_attempts - 1].number : 0;
    return (struct wish_name){wish, at_scheduler, s->wish_turn + 1, met, clock_wall_s()};
}

void wish_name_apply(const struct wish_name *m, struct run_state *s)
{
    const char *by = m->at_scheduler ? "its job was cancelled at the scheduler" : "";
    run_state_wish(s, m->wish, m->turn, m->met_attempt, m->at, by);
    s->last_event_at = fmax(s->last_event_at, m->at);
}

void wish_name_reserve(const char *events_dir) { name_file_reserve(events_dir, prefix); }

static bool is_older(const char *name, const void *wish)
{
    const struct wish_name *m = wish;
    struct wish_name kept;
    return !wish_name_parse(name, &kept) || kept.turn < m->turn;
}

int wish_name_put(const char *run_dir, const struct wish_name *m, struct err *err)
{
    char name[LIMIT_NAME_BYTES];
    snprintf(name, sizeof name, "%s%s.%lld.%lld.%lld", prefix, word_of(m), (long long)m->turn,
             (long long)m->met_attempt, (long long)(m->at * 1e3));
    int rc = name_file_put(run_dir, prefix, name, is_older, m, err);
    if (rc == ERR_BUSY)
        return err_set(err, rc, "somebody else has just said what is to become of the run: give "
                                "the command again");
    return rc;
}
