/* Pipeline schedules: a model checker that runs every rank's list by the protocol of schedule.h,
 * with sends that end only when the receiver asks. No choice is ever open in it (each wait is for
 * one event, each event has one cause), so one execution stands for all: what gets stuck in one
 * order of the ranks gets stuck in every order, and times follow from the lists alone. */
#include "tests/lib/test_profiles.h"

#include <math.h>

#include "base/num.h"
#include "profiles/schedule.h"

enum { MOST_STAGES = 8, MOST_MICROS = 16, MOST_VIRTUAL = 4 };

struct size { int64_t pp, vpp, m; };
struct message { double ready_s, asked_s, taken_s; }; /* negative: not yet */
struct rank {
    struct pipe_step *steps;
    int64_t n, at;
    double free_s;
    struct message *in_buffer[2]; /* by kind: the last message that left the send buffer */
};
struct checker {
    struct size z;
    const double *cost_s[2];
    double send_s;
    struct rank *ranks;
    struct message *messages; /* what a step sends: [kind][global chunk][micro] */
    double *end_s;            /* [kind][global chunk][micro]; negative: not done */
};

static int64_t event_index(const struct size *z, int kind, int64_t g, int64_t micro)
{
    return (kind * z->pp * z->vpp + g) * z->m + micro;
}

static void checker_open(struct checker *c, struct size z, const double *forward_s,
                         const double *backward_s, double send_s)
{
    int64_t events = 2 * z.pp * z.vpp * z.m;
    *c = (struct checker){.z = z, .cost_s = {forward_s, backward_s}, .send_s = send_s};
    c->ranks = calloc((size_t)z.pp, sizeof *c->ranks);
    c->messages = malloc((size_t)events * sizeof *c->messages);
    c->end_s = malloc((size_t)events * sizeof *c->end_s);
    for (int64_t i = 0; i < events; i++) {
        c->messages[i] = (struct message){-1, -1, -1};
        c->end_s[i] = -1;
    }
    for (int64_t r = 0; r < z.pp; r++) {
        struct rank *k = &c->ranks[r];
        k->n = schedule_length(z.pp, z.vpp, z.m);
        k->steps = malloc((size_t)k->n * sizeof *k->steps);
        schedule_build(z.pp, z.vpp, z.m, r, k->steps);
    }
}

static void checker_close(struct checker *c)
{
    for (int64_t r = 0; r < c->z.pp; r++)
        free(c->ranks[r].steps);
    free(c->ranks);
    free(c->messages);
    free(c->end_s);
}

static int64_t chunk_of(const struct checker *c, int64_t rank, const struct pipe_step *s)
{
    return s->chunk * c->z.pp + rank;
}

/* The message a step waits for; NULL for the first forward and the last chunk's backward. */
static struct message *input(const struct checker *c, const struct pipe_step *s, int64_t g)
{
    int64_t from = s->kind == PIPE_FORWARD ? g - 1 : g + 1;
    bool none = from < 0 || from == c->z.pp * c->z.vpp;
    return none ? NULL : &c->messages[event_index(&c->z, s->kind, from, s->micro)];
}

static struct message *output(const struct checker *c, const struct pipe_step *s, int64_t g)
{
    bool none = g == (s->kind == PIPE_FORWARD ? c->z.pp * c->z.vpp - 1 : 0);
    return none ? NULL : &c->messages[event_index(&c->z, s->kind, g, s->micro)];
}

/* A message goes when one side has it and the other asks for it. */
static bool settle(struct message *m, double send_s)
{
    if (m->ready_s < 0 || m->asked_s < 0)
        return false;
    m->taken_s = fmax(m->ready_s, m->asked_s) + send_s;
    return true;
}

/* Once done, and for backward: after its own forward. */
static void record(struct checker *c, const struct pipe_step *s, int64_t g, double end_s)
{
    double *end = &c->end_s[event_index(&c->z, s->kind, g, s->micro)];
    assert_true(*end < 0);
    if (s->kind == PIPE_BACKWARD)
        assert_true(c->end_s[event_index(&c->z, PIPE_FORWARD, g, s->micro)] >= 0);
    *end = end_s;
}

/* One step of a rank; false when it has to wait. */
static bool rank_advance(struct checker *c, int64_t rank)
{
    struct rank *k = &c->ranks[rank];
    if (k->at == k->n)
        return false;
    const struct pipe_step *s = &k->steps[k->at];
    int64_t g = chunk_of(c, rank, s);
    struct message *in = input(c, s, g), *out = output(c, s, g), *before = k->in_buffer[s->kind];
    double start_s = k->free_s;
    if (in && in->asked_s < 0)
        in->asked_s = k->free_s;
    if ((in && !settle(in, c->send_s)) || (out && before && !settle(before, c->send_s)))
        return false;
    if (in)
        start_s = fmax(start_s, in->taken_s);
    if (out && before)
        start_s = fmax(start_s, before->taken_s);
    k->free_s = start_s + c->cost_s[s->kind][g];
    record(c, s, g, k->free_s);
    if (out) {
        out->ready_s = k->free_s;
        k->in_buffer[s->kind] = out;
    }
    k->at++;
    return true;
}

/* Runs until nobody moves; the time of the last step, or -1 for a deadlock. */
static double checker_run(struct checker *c)
{
    double end_s = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int64_t r = c->z.pp - 1; r >= 0; r--)
            moved |= rank_advance(c, r);
    }
    for (int64_t r = 0; r < c->z.pp; r++) {
        if (c->ranks[r].at < c->ranks[r].n)
            return -1;
        end_s = fmax(end_s, c->ranks[r].free_s);
    }
    return end_s;
}

/* ---- costs ---- */

static double forward_s[MOST_STAGES * MOST_VIRTUAL * 16],
    backward_s[MOST_STAGES * MOST_VIRTUAL * 16];

static void costs_even(struct size z)
{
    for (int64_t g = 0; g < z.pp * z.vpp; g++) {
        forward_s[g] = 1;
        backward_s[g] = 2;
    }
}

static void costs_uneven(struct size z)
{
    for (int64_t g = 0; g < z.pp * z.vpp; g++) {
        forward_s[g] = 1 + (double)(g * 7 % 5) / 4;
        backward_s[g] = 2 + (double)(g * 3 % 7) / 8;
    }
}

/* ---- tests ---- */

static void each_size(void (*check)(struct size z))
{
    for (int64_t pp = 1; pp <= MOST_STAGES; pp++)
        for (int64_t vpp = 1; vpp <= (pp > 1 ? MOST_VIRTUAL : 1); vpp++)
            for (int64_t m = 1; m <= MOST_MICROS; m++)
                check((struct size){pp, vpp, m});
    check((struct size){16, 3, 37});
    check((struct size){24, 2, 24});
    check((struct size){32, 4, 70});
}

/* Every step once (record), none stuck; the replay gives the same time. */
static void check_runs(struct size z)
{
    static const double sends_s[] = {0, 0.25, 3};
    for (size_t i = 0; i < ARRAY_LEN(sends_s); i++) {
        struct checker c;
        costs_uneven(z);
        checker_open(&c, z, forward_s, backward_s, sends_s[i]);
        double end_s = checker_run(&c);
        if (end_s < 0)
            fail_msg("pp %lld vpp %lld m %lld: deadlock", (long long)z.pp, (long long)z.vpp,
                     (long long)z.m);
        for (int64_t k = 0; k < 2 * z.pp * z.vpp * z.m; k++)
            assert_true(c.end_s[k] >= 0);
        assert_close(schedule_replay(z.pp, z.vpp, z.m, forward_s, backward_s, sends_s[i]), end_s,
                     1e-12, "replay");
        checker_close(&c);
    }
}

static void nothing_stuck(void **state)
{
    (void)state;
    each_size(check_runs);
}

/* The checker sees a deadlock: rank 0 takes its first backward before its last warm-up forward,
 * which that backward needs. */
static void checker_can_fail(void **state)
{
    struct checker c;
    struct size z = {4, 2, 8};
    (void)state;
    costs_even(z);
    checker_open(&c, z, forward_s, backward_s, 0);
    struct pipe_step *steps = c.ranks[0].steps;
    int64_t b = 0;
    while (steps[b].kind == PIPE_FORWARD)
        b++;
    for (int64_t i = b; i > 4; i--) { /* behind F0.3 */
        struct pipe_step s = steps[i];
        steps[i] = steps[i - 1];
        steps[i - 1] = s;
    }
    assert_true(checker_run(&c) < 0);
    checker_close(&c);
}

static void check_in_flight(struct size z)
{
    for (int64_t r = 0; r < z.pp; r++) {
        int64_t bound = z.vpp == 1 ? z.pp - r : 2 * (z.pp - r - 1) + (z.vpp - 1) * z.pp + 1,
                now = 0, most = 0;
        int64_t n = schedule_length(z.pp, z.vpp, z.m);
        struct pipe_step *steps = malloc((size_t)n * sizeof *steps);
        schedule_build(z.pp, z.vpp, z.m, r, steps);
        for (int64_t i = 0; i < n; i++) {
            now += steps[i].kind == PIPE_FORWARD ? 1 : -1;
            most = num_max_i64(most, now);
        }
        assert_int_equal(now, 0);
        assert_int_equal(schedule_in_flight(z.pp, z.vpp, z.m, r), most);
        assert_true(most <= num_min_i64(bound, z.vpp * z.m));
        if (z.m >= 2 * z.pp && z.m % z.pp == 0)
            assert_int_equal(most, bound);
        free(steps);
    }
}

static void in_flight_bound(void **state)
{
    (void)state;
    each_size(check_in_flight);
}

/* Messages between a rank and a peer, sent or received, in the order of the rank's list: kind,
 * global chunk of the sender, micro. */
struct tag { int64_t kind, chunk, micro; };

static int64_t tags_of(struct size z, int64_t rank, bool sending, int64_t peer, struct tag *out)
{
    int64_t n = schedule_length(z.pp, z.vpp, z.m), count = 0, chunks = z.pp * z.vpp;
    struct pipe_step *steps = malloc((size_t)n * sizeof *steps);
    schedule_build(z.pp, z.vpp, z.m, rank, steps);
    for (int64_t i = 0; i < n; i++) {
        int64_t g = steps[i].chunk * z.pp + rank, step = steps[i].kind == PIPE_FORWARD ? 1 : -1;
        int64_t other = sending ? g + step : g - step;
        if (other >= 0 && other < chunks && other % z.pp == peer)
            out[count++] = (struct tag){steps[i].kind, sending ? g : other, steps[i].micro};
    }
    free(steps);
    return count;
}

/* With one channel from rank to rank: does each message meet the receive that wants it? */
static bool same_order(struct size z, int64_t from, int64_t to)
{
    size_t room = (size_t)schedule_length(z.pp, z.vpp, z.m) * sizeof(struct tag);
    struct tag *sent = malloc(room), *received = malloc(room);
    int64_t n = tags_of(z, from, true, to, sent);
    assert_int_equal(tags_of(z, to, false, from, received), n);
    bool same = memcmp(sent, received, (size_t)n * sizeof *sent) == 0;
    free(sent);
    free(received);
    return same;
}

static void check_tags(struct size z)
{
    for (int64_t a = 0; a < z.pp && z.pp > 1; a++) {
        int64_t b = (a + 1) % z.pp;
        assert_true(same_order(z, a, b));
        assert_true(same_order(z, b, a));
    }
}

static void tags_match(void **state)
{
    (void)state;
    each_size(check_tags);
}

static void check_bubble(struct size z)
{
    double ideal_s = 3 * (double)(z.vpp * z.m);
    costs_even(z);
    double got = schedule_replay(z.pp, z.vpp, z.m, forward_s, backward_s, 0) / ideal_s - 1;
    double want = schedule_bubble(z.pp, z.vpp, z.m), most = schedule_bubble(z.pp, 1, z.m);
    if (z.vpp == 1 || z.m % z.pp == 0)
        assert_close(1 + got, 1 + want, 1e-12, "bubble");
    else if (!(got > want && got <= most + 1e-12))
        fail_msg("pp %lld vpp %lld m %lld: bubble %.17g, want %.17g to %.17g", (long long)z.pp,
                 (long long)z.vpp, (long long)z.m, got, want, most);
}

static void bubble_formula(void **state)
{
    (void)state;
    each_size(check_bubble);
}

/* Lists written by hand from the papers' figures. */
static const struct {
    struct size z;
    int64_t rank;
    const char *list;
} rows[] = {
    {{1, 1, 3}, 0, "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2"},
    {{3, 1, 4}, 0, "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3"},
    {{3, 1, 4}, 2, "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3"},
    {{4, 1, 2}, 0, "F0.0 F0.1 B0.0 B0.1"},
    {{2, 2, 2}, 0, "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1"},
    {{2, 2, 2}, 1, "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 B0.0 B0.1"},
    {{2, 2, 4}, 1,
     "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3"},
    {{2, 2, 3}, 1, "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 B0.1 F1.2 B1.2 B0.2"},
};

static void lists_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct size z = rows[i].z;
        struct pipe_step steps[64];
        struct str s = STR_INIT;
        schedule_build(z.pp, z.vpp, z.m, rows[i].rank, steps);
        for (int64_t k = 0; k < schedule_length(z.pp, z.vpp, z.m); k++)
            str_addf(&s, "%s%c%lld.%lld", k ? " " : "", steps[k].kind == PIPE_FORWARD ? 'F' : 'B',
                     (long long)steps[k].chunk, (long long)steps[k].micro);
        assert_string_equal(s.p, rows[i].list);
        str_release(&s);
    }
}

/* Two stages, one micro-batch: a chain of two forwards, two messages, two backwards. */
static void replay_chain(void **state)
{
    const double f[] = {1, 2}, b[] = {4, 8};
    (void)state;
    assert_close(schedule_replay(2, 1, 1, f, b, 0.5), 1 + 0.5 + 2 + 8 + 0.5 + 4, 1e-12, "chain");
    assert_close(schedule_bubble(4, 2, 8), 3.0 / 16, 1e-12, "formula");
}

/* ---- messages in queues of a device ----
 *
 * Where messages are queued on streams of a device, as NCCL's are, a rank queues each step's
 * receive and send in the order of its list. A queue runs in its order, and a message lasts until
 * it is at the head of the sender's queue and of the receiver's, is made and is asked for. So what
 * waits at a head holds all that is behind it, and what can stand still depends on how many queues
 * there are: a communicator has one on each of its ranks. */
enum queues { ONE_A_GROUP, ONE_A_DIRECTION, ONE_AN_EDGE };
enum { RANK_QUEUES = 4, MOST_QUEUED = 4 * MOST_VIRTUAL * MOST_MICROS };

struct queue { int64_t messages[MOST_QUEUED], n, at; };
struct fifos {
    struct checker c;
    enum queues kind;
    struct queue queues[MOST_STAGES][RANK_QUEUES];
    struct queue *ends[2][2 * MOST_STAGES * MOST_VIRTUAL * MOST_MICROS]; /* of each message */
};

/* Queues a message, which goes up the stages or down, at one of its ends. A directed edge is between
 * two ranks: with two stages, what goes up from one and down from it to the other share one. */
static void queue_add(struct fifos *f, int64_t rank, const struct message *m, bool up, bool sends)
{
    bool next = f->c.z.pp == 2 || up == sends; /* is the peer the rank behind? */
    int which = f->kind == ONE_A_GROUP ? 0 : f->kind == ONE_A_DIRECTION ? up : 2 * next + sends;
    struct queue *q = &f->queues[rank][which];
    assert_true(q->n < MOST_QUEUED);
    f->ends[sends][m - f->c.messages] = q;
    q->messages[q->n++] = m - f->c.messages;
}

static void queues_fill(struct fifos *f)
{
    for (int64_t r = 0; r < f->c.z.pp; r++) {
        for (int64_t i = 0; i < f->c.ranks[r].n; i++) {
            const struct pipe_step *s = &f->c.ranks[r].steps[i];
            int64_t g = chunk_of(&f->c, r, s);
            if (input(&f->c, s, g))
                queue_add(f, r, input(&f->c, s, g), s->kind == PIPE_FORWARD, false);
            if (output(&f->c, s, g))
                queue_add(f, r, output(&f->c, s, g), s->kind == PIPE_FORWARD, true);
        }
    }
}

static bool is_head(const struct queue *q, int64_t m)
{
    return q->at < q->n && q->messages[q->at] == m;
}

/* Passes the messages at the heads of a queue. Returns whether one went. */
static bool queue_advance(struct fifos *f, const struct queue *q)
{
    int64_t before = q->at;
    while (q->at < q->n) {
        int64_t i = q->messages[q->at];
        struct message *m = &f->c.messages[i];
        if (!is_head(f->ends[0][i], i) || !is_head(f->ends[1][i], i) || !settle(m, 0))
            break;
        f->ends[0][i]->at++;
        f->ends[1][i]->at++;
    }
    return q->at > before;
}

/* Asks for the input of a rank's next step, and does the step when it has come and the output's
 * buffer is free. Returns whether anything is new. */
static bool queued_step(struct checker *c, int64_t rank)
{
    struct rank *k = &c->ranks[rank];
    if (k->at == k->n)
        return false;
    const struct pipe_step *s = &k->steps[k->at];
    int64_t g = chunk_of(c, rank, s);
    struct message *in = input(c, s, g), *out = output(c, s, g), *before = k->in_buffer[s->kind];
    bool asks = in && in->asked_s < 0;
    if (asks)
        in->asked_s = 0;
    if ((in && in->taken_s < 0) || (out && before && before->taken_s < 0))
        return asks;
    record(c, s, g, 0);
    if (out) {
        out->ready_s = 0;
        k->in_buffer[s->kind] = out;
    }
    k->at++;
    return true;
}

/* Does the schedule stand still with such queues? */
static bool stands_still(struct size z, enum queues kind)
{
    static struct fifos f;
    bool stuck = false;
    memset(&f, 0, sizeof f);
    f.kind = kind;
    costs_even(z);
    checker_open(&f.c, z, forward_s, backward_s, 0);
    queues_fill(&f);
    for (bool moved = true; moved;) {
        moved = false;
        for (int64_t r = 0; r < z.pp; r++) {
            for (int q = 0; q < RANK_QUEUES; q++)
                moved |= queue_advance(&f, &f.queues[r][q]);
            moved |= queued_step(&f.c, r);
        }
    }
    for (int64_t r = 0; r < z.pp; r++)
        stuck |= f.c.ranks[r].at < f.c.ranks[r].n;
    checker_close(&f.c);
    return stuck;
}

/* A pipeline on streams needs a communicator for each directed edge between two stages. With one
 * for the group most schedules stand still, with one a direction more than half of them. */
static void queues_of_messages(void **state)
{
    (void)state;
    int stuck[3] = {0}, all = 0;
    for (int64_t pp = 2; pp <= MOST_STAGES; pp++)
        for (int64_t vpp = 1; vpp <= MOST_VIRTUAL; vpp++)
            for (int64_t m = 1; m <= MOST_MICROS; m++, all++)
                for (int kind = ONE_A_GROUP; kind <= ONE_AN_EDGE; kind++)
                    stuck[kind] += stands_still((struct size){pp, vpp, m}, (enum queues)kind);
    assert_int_equal(all, 448);
    assert_int_equal(stuck[ONE_A_GROUP], 420);
    assert_int_equal(stuck[ONE_A_DIRECTION], 252);
    assert_int_equal(stuck[ONE_AN_EDGE], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_by_hand),    cmocka_unit_test(nothing_stuck),
        cmocka_unit_test(checker_can_fail), cmocka_unit_test(in_flight_bound),
        cmocka_unit_test(tags_match),       cmocka_unit_test(bubble_formula),
        cmocka_unit_test(replay_chain),     cmocka_unit_test(queues_of_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
