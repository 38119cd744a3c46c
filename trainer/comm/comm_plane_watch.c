/* Detects what goes wrong in a plane, because its calls themselves do not wait.
 *
 * Every rank that waits polls. A poll sees which operations are over. 50 times a second it also
 * asks every communicator for its error, and the system for ranks of this host that have ended. The
 * deadline counts for the oldest operation that is not over, from the later of two moments: when it
 * was queued, and when another operation was last seen to be over. After a pause of more than a
 * second in this rank's polls it begins anew, because no peer is at fault for that.
 *
 * A library does not say which rank is missing. But an operation of a communicator has the same
 * number on all its ranks, so the ranks are asked how many operations they have queued. Ranks that
 * have not come to the operation are behind; ranks that do not answer hang or are gone. Only ranks
 * that poll answer.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/num.h"
#include "trainer/comm/comm_mpi_peers.h"
#include "trainer/comm/comm_plane_priv.h"

static const double look_s = 0.02; /* between two checks of every communicator and rank */
static const double away_s = 1;    /* after a longer time without a poll, deadlines begin anew */
static const double answer_s = 1;  /* for the answers to a question */
/* A rank that was asked waits this long before it fails by itself, so that the asker can say why
 * the run ends, and end it. */
static const double asked_s = 3;
/* A rank that sees another one gone waits this long before it says so. A rank that fails with an
 * error of its own ends the other ranks, too, and then only its error is to be reported. */
static const double ending_s = 0.3;
static const double settle_nap_s = 50e-6;
/* A peer's connections may end this long before its process does. */
enum { GONE_WAIT_MS = 1000, NAMED_RANKS = 8 };

int plane_break(struct comm_plane *p, struct err *err)
{
    struct err *why = &p->failure;
    if (why->code == 0) {
        *why = *err;
        for (struct plane_link *l = p->links; l; l = l->next) {
            if (l->coll)
                p->coll->abort(l->coll);
            l->coll = NULL;
            comm_break(l->c);
        }
        comm_break(p->world);
        p->world->world->failure = *why;
    }
    return err->code;
}

void comm_plane_fail(struct comm_plane *p, const struct err *why)
{
    struct err err = *why;
    if (p)
        plane_break(p, &err);
}

/* Fails with the sentence that a rank is gone, if one is. It waits up to wait_ms for that, because
 * a library may see the end of a connection before the process ends. */
static int gone_check(struct comm_plane *p, int wait_ms, struct err *err)
{
    struct comm_gone gone;
    if (!comm_peers_gone(p->world->world->peers, wait_ms, &gone))
        return 0;
    return err_set(err, ERR_TEMP,
                   COMM_GONE "rank %d exchanged data with it by %s: run it again from what was "
                             "saved",
                   COMM_GONE_ARGS(gone), p->world->world->rank, p->coll->name);
}

/* Asks a communicator whether it has passed on to the device what was queued. */
static int link_ready(struct comm_plane *p, struct plane_link *l, bool *ready, struct err *err)
{
    struct err gone = {0};
    int rc = p->coll->ready(l->coll, ready, err);
    if (rc == ERR_TEMP && gone_check(p, GONE_WAIT_MS, &gone) < 0)
        return err_set(err, ERR_TEMP, "%s", gone.text);
    return rc;
}

/* ---- who is late ---- */

/* Writes "1 (11), 2 (10)" for the ranks that are behind, with how many operations they have queued,
 * or "3" for those that are silent. Returns how many there are. */
static int ranks_text(const struct comm_ask *ask, int64_t wanted, bool silent, char *text,
                      size_t size)
{
    int n = 0;
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < ask->n; i++) {
        long long told = ask->answers[i];
        if (silent != (told == COMM_NO_ANSWER) || (!silent && told >= wanted) || ++n > NAMED_RANKS)
            continue;
        at += (size_t)snprintf(text + at, size - at, "%s%d", n > 1 ? ", " : "", ask->ranks[i]);
        if (!silent)
            at += (size_t)snprintf(text + at, size - at, " (%lld)",
                                   told < 0 ? 0 : told);
    }
    if (n > NAMED_RANKS)
        snprintf(text + at, size - at, " and %d more", n - NAMED_RANKS);
    return n;
}

/* Writes which ranks keep an operation waiting, according to the answers. */
static void blame_text(const struct plane_issued *i, const struct comm_ask *ask, char *text,
                       size_t size)
{
    char behind[NAMED_RANKS * 32 + 32], silent[sizeof behind];
    int n = ranks_text(ask, i->number, false, behind, sizeof behind),
        mute = ranks_text(ask, i->number, true, silent, sizeof silent);
    snprintf(text, size, "%s%s%s%s%s%s%s", n ? "behind is rank " : "", behind,
             n ? ", by the operations that each has queued" : "", n && mute ? "; " : "",
             mute ? "no answer from rank " : "", silent,
             n || mute ? "" : "all its ranks have queued it, so a GPU or the network hangs");
}

/* Asks the other ranks of an operation's communicator, and writes which ranks are behind. */
static void blame(struct comm_plane *p, const struct plane_issued *i, char *text, size_t size)
{
    const struct plane_link *l = i->link;
    const int *all = l->c->world_ranks, ends[2] = {all[l->from < 0 ? 0 : l->from],
                                                   all[l->from < 0 ? 0 : l->to]};
    const int *ranks = l->from < 0 ? all : ends;
    int *others = calloc((size_t)l->size, sizeof *others);
    int64_t *answers = calloc((size_t)l->size, sizeof *answers);
    struct comm_ask ask = {
        .id = l->id, .ranks = others, .answers = answers, .seconds = answer_s};
    snprintf(text, size, "who is behind is not known");
    for (int r = 0; others && r < l->size; r++)
        if (r != l->rank)
            others[ask.n++] = ranks[r];
    if (others && answers && p->world->backend->ask(p->world, &ask) == 0)
        blame_text(i, &ask, text, size);
    free(others);
    free(answers);
}

/* Writes "group pp of 4 ranks", or for an edge "group pp from rank 0 to rank 1 of the world". */
static void link_text(const struct plane_link *l, char *text, size_t size)
{
    const int *ranks = l->c->world_ranks;
    if (l->from < 0)
        snprintf(text, size, "group %s of %d ranks", l->c->axis, l->size);
    else
        snprintf(text, size, "group %s from rank %d to rank %d of the world", l->c->axis,
                 ranks[l->from], ranks[l->to]);
}

static int late(struct comm_plane *p, const struct plane_issued *i, double waited_s,
                struct err *err)
{
    char who[600], group[96], bytes[32];
    link_text(i->link, group, sizeof group);
    blame(p, i, who, sizeof who);
    return err_set(err, ERR_TEMP,
                   "%s '%s' of %s, operation %lld by %s in %s, seen from rank %d of the world, is "
                   "not done after %.3g s: %s: end all ranks and start the run again",
                   comm_kind_names[i->kind], i->what,
                   num_format_bytes(i->bytes, bytes, sizeof bytes), (long long)i->number,
                   p->coll->name, group, p->world->world->rank, waited_s, who);
}

/* ---- polls ---- */

/* Counts the operations of each stream that are over. */
static void queues_advance(struct comm_plane *p, double now)
{
    for (struct plane_queue *queue = p->queues; queue; queue = queue->next)
        while (queue->over < queue->queued &&
               p->dev->event_done(p->dev, queue->issued[queue->over % PLANE_DEPTH].over)) {
            queue->over++;
            p->moved_s = now;
        }
}

/* Returns the operation that was queued first of those that are not over; NULL: all are over. */
static const struct plane_issued *oldest(const struct comm_plane *p)
{
    const struct plane_issued *first = NULL;
    for (const struct plane_queue *queue = p->queues; queue; queue = queue->next) {
        const struct plane_issued *i = &queue->issued[queue->over % PLANE_DEPTH];
        if (queue->over < queue->queued && (!first || i->order < first->order))
            first = i;
    }
    return first;
}

/* Notes when a rank was first seen to be gone, and fails some time after that. */
static int gone_look(struct comm_plane *p, double now, struct err *err)
{
    struct err gone = {0};
    int rc = gone_check(p, 0, &gone);
    if (rc == 0)
        return 0;
    if (p->gone_s == 0)
        p->gone_s = now;
    return now - p->gone_s < ending_s || now - p->asked_s < asked_s
               ? 0
               : err_set(err, rc, "%s", gone.text);
}

static int links_look(struct comm_plane *p, double now, struct err *err)
{
    int rc;
    if (p->world->backend->answer(p->world))
        p->asked_s = now;
    if ((rc = gone_look(p, now, err)) < 0)
        return rc;
    for (struct plane_link *l = p->links; l; l = l->next) {
        bool ready;
        if (l->coll && (rc = link_ready(p, l, &ready, err)) < 0)
            return rc;
    }
    return 0;
}

static int deadline_check(struct comm_plane *p, double now, struct err *err)
{
    const struct plane_issued *i = oldest(p);
    double deadline_s = p->world->conf->deadline_s;
    double waited_s = i ? now - (i->at_s > p->moved_s ? i->at_s : p->moved_s) : 0;
    if (deadline_s == 0 || waited_s <= deadline_s || now - p->asked_s < asked_s)
        return 0;
    return late(p, i, waited_s, err);
}

static int look(struct comm_plane *p, struct err *err)
{
    double now = clock_mono_s();
    int rc;
    if (now - p->polled_s > away_s)
        p->moved_s = now;
    queues_advance(p, now);
    p->polled_s = now;
    if (now - p->looked_s < look_s)
        return 0;
    p->looked_s = now;
    if ((rc = links_look(p, now, err)) < 0)
        return rc;
    return deadline_check(p, now, err);
}

int comm_plane_poll(struct comm_plane *p, struct err *err)
{
    struct err why = {0};
    if (!p)
        return 0;
    if (p->failure.code == 0 && look(p, &why) < 0)
        plane_break(p, &why);
    return p->failure.code == 0 ? 0 : err_set(err, p->failure.code, "%s", p->failure.text);
}

int plane_watch(void *plane, struct err *err) { return comm_plane_poll(plane, err); }

int plane_room(struct comm_plane *p, struct plane_queue *queue, struct err *err)
{
    int rc;
    while (queue->queued - queue->over == PLANE_DEPTH) {
        if ((rc = comm_plane_poll(p, err)) < 0)
            return rc;
        if (queue->queued - queue->over == PLANE_DEPTH)
            clock_sleep_s(settle_nap_s);
    }
    return 0;
}

int plane_settle(struct comm_plane *p, struct plane_link *l, const char *doing, struct err *err)
{
    double since = clock_mono_s(), deadline_s = p->world->conf->deadline_s, waited_s = 0;
    char group[96];
    bool ready = false;
    int rc;
    while ((rc = link_ready(p, l, &ready, err)) == 0 && !ready) {
        if ((rc = comm_plane_poll(p, err)) < 0)
            return rc;
        waited_s = clock_mono_s() - since;
        if (deadline_s > 0 && waited_s > deadline_s)
            break;
        clock_sleep_s(settle_nap_s);
    }
    if (rc < 0 || ready)
        return rc;
    link_text(l, group, sizeof group);
    return err_set(err, ERR_TEMP,
                   "%s, %s: it still %s after %.3g s, seen from rank %d of the world: a rank or "
                   "the network hangs: end all ranks and start the run again",
                   p->coll->name, group, doing, waited_s, p->world->world->rank);
}
