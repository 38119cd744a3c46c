/* report_terms: draws the predicted terms of steps as bars, and speed against free memory, for
 * trials and for planned layouts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/report/chart.h"
#include "launcher/report/queries.h"
#include "launcher/report/report_priv.h"

/* ---- stacked terms ---- */

enum { WIDTH = 620, LEFT = 34, RIGHT = 16, ROW = 26, BAR = 18, AXIS = 26, NAMES = 64 };

/* Holds a chart of stacked bars, one in each row. */
struct stack {
    struct str *out;
    double hi;             /* seconds at the right end */
    const char *names[NAMES];
    double sums[NAMES];    /* of each term over all bars, by which names are ordered */
    int n;
};

static double stack_x(const struct stack *s, double seconds)
{ return LEFT + seconds / s->hi * (WIDTH - LEFT - RIGHT); }

static void name_add(struct stack *s, const struct report_term *t)
{
    int i = 0;
    while (i < s->n && strcmp(s->names[i], t->name) != 0)
        i++;
    if (i == NAMES || !(t->seconds > 0))
        return;
    s->n += i == s->n;
    s->names[i] = t->name;
    s->sums[i] += t->seconds;
}

/* Sorts the names by descending sum, and those with equal sums alphabetically. */
static void names_sort(struct stack *s)
{
    for (int i = 1; i < s->n; i++)
        for (int k = i; k > 0; k--) {
            double a = s->sums[k - 1], b = s->sums[k];
            const char *name = s->names[k - 1];
            if (a > b || (a == b && strcmp(name, s->names[k]) <= 0))
                break;
            s->names[k - 1] = s->names[k], s->names[k] = name;
            s->sums[k - 1] = b, s->sums[k] = a;
        }
}

static void stack_open(struct stack *s, const struct report_bar *bars, int n)
{
    for (int i = 0; i < n; i++) {
        s->hi = fmax(s->hi, bars[i].predicted_s);
        if (isfinite(bars[i].measured_s))
            s->hi = fmax(s->hi, bars[i].measured_s);
        if (isfinite(bars[i].hi_s))
            s->hi = fmax(s->hi, bars[i].hi_s);
        for (int t = 0; t < bars[i].n_terms; t++)
            name_add(s, &bars[i].terms[t]);
    }
    names_sort(s);
}

/* Draws a term that begins at `at` seconds, and returns where it ends. */
static double term_draw(const struct stack *s, int64_t k, int name, const struct report_term *t,
                        int y, double at)
{
    static const double shade[] = {0.5, 0.26, 0.4, 0.16};
    double x = stack_x(s, at), w = stack_x(s, at + t->seconds) - x;
    str_addf(s->out,
             "<rect class=\"term\" data-k=\"%lld\" fill-opacity=\"%g\" x=\"%.1f\" y=\"%d\""
             " width=\"%.1f\" height=\"%d\"><title>", (long long)k, shade[name % 4], x, y, w, BAR);
    html_escape(s->out, t->name);
    str_addf(s->out, ": predicted %.4g s", t->seconds);
    if (isfinite(t->recorded_s) && isfinite(t->priced_s))
        str_addf(s->out, "; CPU time with recomputation: %.4g s by the probe, %.4g s recorded",
                 t->priced_s, t->recorded_s);
    else if (isfinite(t->recorded_s))
        str_addf(s->out, ", recorded %.4g s", t->recorded_s);
    str_add(s->out, "</title></rect>\n");
    if (w >= chart_text_width(t->name) + 4) {
        str_addf(s->out, "<text class=\"within\" x=\"%.1f\" y=\"%d\">", x + 5, y + 13);
        html_escape(s->out, t->name);
        str_add(s->out, "</text>\n");
    }
    return at + t->seconds;
}

/* Draws a bar with its number, a line across it at the measured time, and a line below it that
 * marks the interval. */
static void bar_draw(const struct stack *s, const struct report_bar *b, int y)
{
    double at = 0;
    str_addf(s->out, "<text class=\"note\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%lld</text>\n",
             LEFT - 8, y + 14, (long long)b->k);
    for (int i = 0; i < s->n; i++)
        for (int t = 0; t < b->n_terms; t++)
            if (b->terms[t].seconds > 0 && strcmp(s->names[i], b->terms[t].name) == 0)
                at = term_draw(s, b->k, i, &b->terms[t], y, at);
    if (isfinite(b->lo_s) && isfinite(b->hi_s))
        str_addf(s->out,
                 "<path class=\"between\" d=\"M%.1f %dH%.1fM%.1f %dv6M%.1f %dv6\"/>\n",
                 stack_x(s, b->lo_s), y + BAR + 2, stack_x(s, b->hi_s), stack_x(s, b->lo_s),
                 y + BAR - 1, stack_x(s, b->hi_s), y + BAR - 1);
    if (isfinite(b->measured_s))
        str_addf(s->out,
                 "<line class=\"measured\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n",
                 stack_x(s, b->measured_s), y - 2, stack_x(s, b->measured_s), y + BAR + 2);
}

/* Writes the axis of seconds under the bars. */
static void axis_draw(const struct stack *s, int height)
{
    struct chart_axis a = chart_axis_round(0, s->hi, 5);
    for (int i = 0; i * a.step <= s->hi; i++)
        str_addf(s->out, "<line class=\"grid\" x1=\"%.1f\" y1=\"0\" x2=\"%.1f\" y2=\"%d\"/>"
                 "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%g%s</text>\n",
                 stack_x(s, i * a.step), stack_x(s, i * a.step), height - AXIS + 4,
                 stack_x(s, i * a.step), height - 6, i ? "middle" : "start", i * a.step,
                 i ? "" : " s");
}

/* Writes a text that explains the bars. It mentions measurements and intervals only if some bar has
 * one. */
static void bars_explain(const struct stack *s, const struct report_bar *bars, int n)
{
    bool measured = false, expected = false;
    for (int i = 0; i < n; i++) {
        measured = measured || isfinite(bars[i].measured_s);
        expected = expected || (isfinite(bars[i].lo_s) && isfinite(bars[i].hi_s));
    }
    str_add(s->out, "<p class=\"why\">The bars have the table's numbers.");
    if (measured)
        str_add(s->out, " An upright line is what was measured.");
    if (expected)
        str_add(s->out, " Nine of ten steps are expected along the line below a bar.");
    str_add(s->out, " From the left: ");
    for (int i = 0; i < s->n; i++) {
        str_add(s->out, i ? ", " : "");
        html_escape(s->out, s->names[i]);
    }
    str_add(s->out, ".</p>\n");
}

void report_bars(struct str *out, const char *label, const struct report_bar *bars, int n)
{
    struct stack s = {.out = out};
    int height = n * ROW + AXIS;
    stack_open(&s, bars, n);
    if (!(s.hi > 0) || s.n == 0)
        return;
    str_addf(out, "<h3>What steps %s predicted to be made of</h3>\n<div class=\"wide\"><svg "
             "class=\"terms\" style=\"max-width:%dpx\" viewBox=\"0 -4 %d %d\" role=\"img\" "
             "aria-label=\"predicted terms of steps\">\n", label, WIDTH, WIDTH, height + 4);
    axis_draw(&s, height);
    for (int i = 0; i < n; i++)
        bar_draw(&s, &bars[i], i * ROW);
    str_add(out, "</svg></div>\n");
    bars_explain(&s, bars, n);
}

/* ---- speed against memory headroom ---- */

static void room_draw(struct chart *c, const struct report_room *r)
{
    struct str data = STR_INIT;
    char title[96];
    str_add(&data, "data-room=\"");
    html_escape(&data, r->id);
    str_add(&data, "\" data-rows=\"1\"");
    snprintf(title, sizeof title, "%lld: %.3g tokens/s, %.1f %% of the memory free",
             (long long)r->k, r->speed, 100 * r->free);
    chart_mark(c, CHART_RING, r->free, r->speed, "room", data.p, title);
    chart_keep_clear(c, r->free, r->speed);
    str_release(&data);
}

void report_rooms(struct str *out, const char *speed, const struct report_room *rooms, int n)
{
    double least = INFINITY, most = -INFINITY, fastest = 0;
    char text[24];
    for (int i = 0; i < n; i++) {
        least = fmin(least, rooms[i].free), most = fmax(most, rooms[i].free);
        fastest = fmax(fastest, rooms[i].speed);
    }
    if (n < 2)
        return;
    struct chart c = {.out = out,
                      .x_title = "share of its memory that the fullest rank leaves free",
                      .y_title = speed,
                      .label = "speed against the memory that is left free",
                      .y_scale = 1,
                      .width = 620,
                      .x = chart_axis_round(least, most, 6),
                      .y = chart_axis_round(0, fastest, 5)};
    str_add(out, "<h3>Speed against memory headroom</h3>\n");
    chart_begin(&c);
    for (int i = 0; i < n; i++)
        room_draw(&c, &rooms[i]);
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%lld", (long long)rooms[i].k);
        chart_label(&c, rooms[i].free, rooms[i].speed, text);
    }
    chart_end(&c);
}

/* ---- bars of trials ---- */

/* Names the columns of sql_trial_terms. */
enum { S_K, S_PREDICTED, S_MEASURED, S_TERM, S_SECONDS, S_RECORDED, S_LO, S_HI, S_PRICED };

struct bars { struct report_bar *bars; int n; };

static void term_row(struct store_query *q, void *ctx)
{
    struct bars *b = ctx;
    int64_t k = store_int(q, S_K);
    if (b->n == 0 || b->bars[b->n - 1].k != k)
        b->bars[b->n++] = (struct report_bar){.k = k, .predicted_s = store_num(q, S_PREDICTED),
                                              .measured_s = store_num(q, S_MEASURED),
                                              .lo_s = store_num(q, S_LO),
                                              .hi_s = store_num(q, S_HI)};
    struct report_bar *bar = &b->bars[b->n - 1];
    if (bar->n_terms == REPORT_TERMS)
        return;
    struct report_term *t = &bar->terms[bar->n_terms++];
    report_copy(t->name, sizeof t->name, q, S_TERM);
    t->seconds = store_num(q, S_SECONDS);
    t->recorded_s = store_num(q, S_RECORDED), t->priced_s = store_num(q, S_PRICED);
}

int report_terms(struct report *r, struct err *err)
{
    struct bars b = {.bars = calloc(REPORT_BARS, sizeof *b.bars)};
    int rc;
    if (!b.bars)
        return err_set(err, ERR_NOMEM, "out of memory for the trials' terms");
    if ((rc = store_each(r->db, sql_trial_terms, r->scope->tune, term_row, &b, err)) == 0)
        report_bars(r->out, "of the fastest trials were", b.bars, b.n);
    free(b.bars);
    return rc;
}

/* Names the columns of sql_trial_rooms. */
enum { H_K, H_FREE, H_SPEED, H_TRIAL };

struct rooms { struct report_room *rooms; int n; };

static void room_row(struct store_query *q, void *ctx)
{
    struct rooms *r = ctx;
    struct report_room *room = &r->rooms[r->n++];
    room->k = store_int(q, H_K);
    room->free = store_num(q, H_FREE), room->speed = store_num(q, H_SPEED);
    report_copy(room->id, sizeof room->id, q, H_TRIAL);
}

int report_headroom(struct report *r, struct err *err)
{
    struct rooms rooms = {.rooms = calloc(REPORT_ROOMS, sizeof *rooms.rooms)};
    int rc;
    if (!rooms.rooms)
        return err_set(err, ERR_NOMEM, "out of memory for the trials' speeds");
    if ((rc = store_each(r->db, sql_trial_rooms, r->scope->tune, room_row, &rooms, err)) == 0)
        report_rooms(r->out, "tokens/s", rooms.rooms, rooms.n);
    free(rooms.rooms);
    return rc;
}
