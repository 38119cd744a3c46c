#include "launcher/report/chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = 860, HEIGHT = 300, LEFT = 64, RIGHT = 16, TOP = 60, BOTTOM = 44, LABEL_PX = 14 };
static const double CHAR_PX = 7.6; /* width of a character in DejaVu Sans Bold of 12 px, rounded
                                    * up */

double chart_text_width(const char *text)
{
    return CHAR_PX * (double)strlen(text);
}

static int width(const struct chart *c) { return c->width ? c->width : WIDTH; }
static int height(const struct chart *c) { return c->height ? c->height : HEIGHT; }

struct chart_axis chart_axis_round(double lo, double hi, int n)
{
    if (!(hi > lo)) {
        double pad = lo == 0 ? 1 : fabs(lo) * 0.1;
        lo -= pad;
        hi += pad;
    }
    double raw = (hi - lo) / n, ten = pow(10, floor(log10(raw))), f = raw / ten;
    double step = ten * (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10);
    return (struct chart_axis){floor(lo / step + 1e-9) * step, ceil(hi / step - 1e-9) * step, step};
}

struct chart_axis chart_axis_count(double lo, double hi, int n)
{
    struct chart_axis a = chart_axis_round(lo, fmax(hi, lo + 1), n);
    a.step = fmax(1, round(a.step));
    return (struct chart_axis){lo - 0.5, hi + 0.5, a.step};
}

double chart_x(const struct chart *c, double x)
{
    return LEFT + (x - c->x.lo) / (c->x.hi - c->x.lo) * (width(c) - LEFT - RIGHT);
}

double chart_y(const struct chart *c, double y)
{
    return height(c) - BOTTOM - (y - c->y.lo) / (c->y.hi - c->y.lo) * (height(c) - TOP - BOTTOM);
}

/* Returns the i-th multiple of the step inside the axis. Zero is zero, not 1e-17. */
static double tick(const struct chart_axis *a, int i)
{
    double v = (ceil(a->lo / a->step - 1e-9) + i) * a->step;
    return fabs(v) < a->step * 1e-6 ? 0 : v;
}

static void y_axis(struct chart *c)
{
    double v;
    for (int i = 0; (v = tick(&c->y, i)) <= c->y.hi + 1e-9 * c->y.step; i++) {
        double y = chart_y(c, v);
        str_addf(c->out,
                 "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>"
                 "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
                 LEFT, y, width(c) - RIGHT, y, LEFT - 8, y + 4, v * c->y_scale);
    }
    str_addf(c->out, "<text class=\"title\" x=\"%d\" y=\"14\">%s</text>\n", 8, c->y_title);
}

/* Writes a tick's number centred below it, or flush with the picture's right edge if it would
 * extend past that. */
static void x_number(struct chart *c, double x, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    bool last = x + chart_text_width(text) / 2 > width(c);
    str_addf(c->out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n",
             last ? width(c) - 1.0 : x, height(c) - BOTTOM + 19, last ? "end" : "middle", text);
}

static void x_axis(struct chart *c)
{
    int bottom = height(c) - BOTTOM;
    double v;
    for (int i = 0; (v = tick(&c->x, i)) <= c->x.hi + 1e-9 * c->x.step; i++) {
        double x = chart_x(c, v);
        str_addf(c->out, "<line class=\"axis\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>", x,
                 bottom, x, bottom + 5);
        x_number(c, x, v);
    }
    str_addf(c->out, "<line class=\"axis\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>"
                     "<text class=\"title\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
             LEFT, bottom, width(c) - RIGHT, bottom, width(c) - RIGHT, height(c) - 8, c->x_title);
}

void chart_begin(struct chart *c)
{
    str_addf(
        c->out,
        "<div class=\"wide\"><svg viewBox=\"0 0 %d %d\" style=\"max-width:%dpx\" role=\"img\" "
        "aria-label=\"%s\">\n",
        width(c), height(c), width(c), c->label);
    for (int i = 0; i < CHART_LABEL_ROWS; i++)
        c->row_end[i] = 0;
    c->n_labels = 0;
    y_axis(c);
    x_axis(c);
}

void chart_end(struct chart *c)
{
    str_add(c->out, "</svg></div>\n");
}

void chart_mark(struct chart *c, enum chart_shape shape, double x, double y, const char *class_name,
                const char *data, const char *title)
{
    static const char *const paths[] = {
        "M%.1f %.1fm-2.6 0a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0 -5.2 0z",
        "M%.1f %.1fm-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
        "M%.1f %.1fm0 -6.5l6.5 6.5l-6.5 6.5l-6.5 -6.5z"};
    str_addf(c->out, "<path class=\"%s\" %s d=\"", class_name, data);
    str_addf(c->out, paths[shape], chart_x(c, x), chart_y(c, y));
    str_addf(c->out, "\"><title>%s</title></path>\n", title);
}

/* ---- labels that do not overlap ---- */

static bool box_free(const struct chart *c, struct chart_box b)
{
    if (b.x0 < LEFT || b.x1 > width(c) - 2 || b.y0 < TOP - LABEL_PX || b.y1 > height(c) - BOTTOM)
        return false;
    for (int i = 0; i < c->n_labels; i++)
        if (b.x0 < c->labels[i].x1 && c->labels[i].x0 < b.x1 && b.y0 < c->labels[i].y1 &&
            c->labels[i].y0 < b.y1)
            return false;
    return true;
}

static void box_take(struct chart *c, struct chart_box b)
{
    if (c->n_labels < CHART_LABELS)
        c->labels[c->n_labels++] = b;
}

void chart_keep_clear(struct chart *c, double x, double y)
{
    double px = chart_x(c, x), py = chart_y(c, y);
    box_take(c, (struct chart_box){px - 5, py - 5, px + 5, py + 5});
}

void chart_label(struct chart *c, double x, double y, const char *text)
{
    static const double around[8][2] = {{1, 0},  {-1, 0}, {0, -1},  {0, 1},
                                        {1, -1}, {1, 1},  {-1, -1}, {-1, 1}};
    double w = chart_text_width(text), px = chart_x(c, x), py = chart_y(c, y);
    for (int i = 0; i < 8; i++) {
        double cx = px + around[i][0] * (w / 2 + 11), cy = py + around[i][1] * 13;
        struct chart_box b = {cx - w / 2, cy - LABEL_PX / 2.0, cx + w / 2, cy + LABEL_PX / 2.0};
        if (!box_free(c, b))
            continue;
        box_take(c, b);
        str_addf(c->out, "<text class=\"note\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", cx,
                 cy + 4);
        html_escape(c->out, text);
        str_add(c->out, "</text>\n");
        return;
    }
}

void chart_event(struct chart *c, double x, const char *label, const char *data)
{
    double px = chart_x(c, x), w = chart_text_width(label);
    bool left = px + 4 + w > width(c);
    double from = left ? px - 4 - w : px + 4;
    int row = 0;
    while (row < CHART_LABEL_ROWS && c->row_end[row] > from)
        row++;
    int top = TOP - 32 + LABEL_PX * row; /* a row is two dashes high, so lines at one place stay
                                          * dashed */
    str_addf(c->out, "<line class=\"event\" %s x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>\n",
             data, px, top - 9, px, height(c) - BOTTOM);
    if (row == CHART_LABEL_ROWS)
        return;
    c->row_end[row] = from + w + 8;
    str_addf(c->out, "<text class=\"note\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">",
             left ? px - 4 : px + 4, top, left ? "end" : "start");
    html_escape(c->out, label);
    str_add(c->out, "</text>\n");
}

void html_escape(struct str *out, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '&': str_add(out, "&amp;"); break;
        case '<': str_add(out, "&lt;"); break;
        case '>': str_add(out, "&gt;"); break;
        case '"': str_add(out, "&quot;"); break;
        default: str_addc(out, *text);
        }
    }
}
