/* fold_priv: declares what the three files of fold share. fold.c reads events and keeps the state
 * of attempts and writers, fold_clock.c stores the state of the hosts' clocks (fold/clock.h),
 * fold_span.c cuts the run's time by cause. */
#ifndef DB_FOLD_PRIV_H
#define DB_FOLD_PRIV_H

#include "base/arena.h"
#include "base/json.h"
#include "db/fold.h"
#include "fold/clock.h"

enum fold_kind {
    FOLD_OTHER,
    FOLD_STARTED,
    FOLD_STEP,
    FOLD_SAVED,
    FOLD_LOADED,
    FOLD_SUSPENDED,
    FOLD_ENDED
};
/* C_DOWN + i is the i-th reason for being down. */
enum fold_cause {
    C_SUSPENDED,
    C_TRAIN,
    C_REPLAY,
    C_SAVE,
    C_LOAD,
    C_START,
    C_QUEUE,
    C_DOWN,
    MAX_CAUSES = 64
};
enum { C_OTHER = MAX_CAUSES - 1 };

struct fold_event { /* texts are borrowed until the query's next row */
    enum fold_kind kind;
    int64_t attempt, seq;
    const char *writer, *cause; /* cause is set for FOLD_ENDED only */
    struct fold_reading clocks;
    /* set for activities such as steps and saves; NaN where unknown */
    double started_at, seconds, ended_ago_s;
    double ended_at; /* of FOLD_ENDED: UTC s; NaN: when the event was written */
    bool replayed;
    /* a step of which later executions are already folded; the first of them is of this attempt */
    bool overtakes;
    int64_t overtaken;
};

struct fold_attempt { /* times on the run's clock; +-infinity: not seen */
    int64_t number;
    /* begin: time of its first event, or of the beginning of its first step if that is earlier; it
     * is used if the agent has not recorded when it started the attempt */
    double begin, started, first_step, last, end;
    const char *end_writer, *down; /* writer and cause of the attempt's end */
    int64_t end_seq;
    /* All of its activities that are folded lie in [acts_from, acts_to]; +-infinity: it has none.
     * From -infinity to infinity: an older reel folded it, which did not keep them. */
    double acts_from, acts_to;
    bool again; /* its events are read again: a step is a replay now */
    bool dirty;
};
struct fold_writer {
    int64_t attempt, last_seq;
    const char *name;
    /* time of its last step's event, on the run's clock; -infinity: it has none */
    double step_at;
    bool dirty;
};
/* Is a time of waiting, starting or being down. It follows from the order of the attempts. */
struct fold_phase {
    double from, to;
    int cause;        /* C_QUEUE, C_START, C_DOWN */
    const char *down; /* the reason, if the cause is C_DOWN */
};
struct fold_phases {
    struct fold_phase *list;
    size_t n;
};
enum { Q_SPAN_FIRST, Q_SPAN_LAST, Q_SPAN_READ, Q_SPAN_DROP, Q_SPAN_ADD, N_SPAN_QUERIES };

struct fold {
    struct store *db;
    const char *run;
    struct arena arena;
    /* known: the run was folded before. is_run: it has attempts or a submission, and therefore
     * spans. */
    bool known, is_run;
    double from, until; /* beginning and end of all its spans */
    /* the `until` with which the rows in the database were made; -infinity: there are no rows */
    double done_to;
    struct fold_clocks clocks;
    struct fold_attempt *attempts; /* sorted by number */
    struct fold_writer *writers;
    size_t n_attempts, n_writers, cap_attempts, cap_writers;
    struct fold_interval *acts;    /* activities that are not yet in the rows */
    size_t n_acts;
    int64_t acts_attempt;
    struct fold_phases phases;     /* the phases with which the rows were made */
    struct store_query *q[N_SPAN_QUERIES];
};

int fold_no_memory(const struct fold *f, struct err *err);

/* ---- clocks ---- */
int fold_clocks_load(struct fold *f, struct err *err);
/* Saves run_clock and the state from which it follows. */
int fold_clocks_save(struct fold *f, struct err *err);

/* ---- spans ---- */
int fold_spans_open(struct fold *f, struct err *err);
void fold_spans_close(struct fold *f);
/* Updates the rows with the gathered activities and the present attempts. f->acts is empty
 * afterwards. */
int fold_spans_write(struct fold *f, struct err *err);
/* Takes the activities of an attempt out of the rows. The activities of all attempts that meet it
 * in time must be added afterwards. */
int fold_spans_strip(struct fold *f, const struct fold_attempt *a, struct err *err);
/* Lists the phases (queue, start and down) that follow from the present attempts. */
int fold_phases_make(const struct fold *f, double until, struct fold_phases *out, struct err *err);

#endif
