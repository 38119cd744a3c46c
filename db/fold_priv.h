/* fold, inside: what its three files share. fold.c reads events and keeps what is known of attempts
 * and writers, fold_clock.c stores what fold/clock.h knows of the hosts' clocks, fold_span.c cuts
 * the run's time by cause. */
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

struct fold_event { /* its texts are borrowed until the query's next row */
    enum fold_kind kind;
    int64_t attempt, seq;
    const char *writer, *cause; /* cause is set for FOLD_ENDED only */
    struct fold_reading clocks;
    /* set for what took a time, such as steps and saves; NaN where unknown */
    double started_at, seconds, ended_ago_s;
    bool replayed;
    bool overtakes; /* a step whose later execution is folded already */
};

struct fold_attempt { /* on the run's clock; +-infinity where nothing was seen */
    int64_t number;
    /* begin: of its first event; it counts where the agent has not told when it started it */
    double begin, started, first_step, last, end;
    const char *end_writer, *down; /* of the end that counts: who told it, and its cause */
    int64_t end_seq;
    bool dirty;
};
struct fold_writer {
    int64_t attempt, last_seq;
    const char *name;
    /* when its last step was told, on the run's clock; -infinity: it told none */
    double step_at;
    bool dirty;
};
/* A time of waiting, starting or being down, as an attempt's place among the others tells it */
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
    /* The run was folded before; it has attempts or a submission, and therefore spans. */
    bool known, is_run;
    double from, until; /* of all its spans */
    /* the `until` that the rows in the database were made with; -infinity: there are no rows */
    double done_to;
    struct fold_clocks clocks;
    struct fold_attempt *attempts; /* sorted by number */
    struct fold_writer *writers;
    size_t n_attempts, n_writers, cap_attempts, cap_writers;
    struct fold_interval *acts;    /* activities that are not in the rows yet */
    size_t n_acts;
    int64_t acts_attempt;
    struct fold_phases phases;     /* the phases that the rows were made with */
    struct store_query *q[N_SPAN_QUERIES];
};

int fold_no_memory(const struct fold *f, struct err *err);

/* ---- clocks ---- */
int fold_clocks_load(struct fold *f, struct err *err);
/* Saves run_clock and what it follows from. */
int fold_clocks_save(struct fold *f, struct err *err);

/* ---- spans ---- */
int fold_spans_open(struct fold *f, struct err *err);
void fold_spans_close(struct fold *f);
/* Brings the rows up to date with the gathered activities and with the attempts as they are now.
 * f->acts is empty afterwards. */
int fold_spans_write(struct fold *f, struct err *err);
/* Lists the phases (queue, start and down) that follow from the attempts as they are now. */
int fold_phases_make(const struct fold *f, double until, struct fold_phases *out, struct err *err);

#endif
