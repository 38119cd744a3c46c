#include "launcher/chart.h"

#include <math.h>

enum { WIDTH = 860, HEIGHT = 300, LEFT = 64, RIGHT = 16, TOP = 44, BOTTOM = 44 };

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

double chart_x(const struct chart *c, double x)
{
    return LEFT + (x - c->x.lo) / (c->x.hi - c->x.lo) * (WIDTH - LEFT - RIGHT);
}

double chart_y(const struct chart *c, double y)
{
    return HEIGHT - BOTTOM - (y - c->y.lo) / (c->y.hi - c->y.lo) * (HEIGHT - TOP - BOTTOM);
}

static void y_axis(struct chart *c)
{
    int ticks = (int)lround((c->y.hi - c->y.lo) / c->y.step);
    for (int i = 0; i <= ticks; i++) {
        double v = c->y.lo + i * c->y.step, y = chart_y(c, v);
        str_addf(c->out, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>"
                         "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                 LEFT, y, WIDTH - RIGHT, y, LEFT - 8, y + 4, fabs(v) < c->y.step * 1e-6 ? 0 : v * c->y_scale);
    }
    str_addf(c->out, "<text class=\"title\" x=\"%d\" y=\"16\">%s</text>\n", 8, c->y_title);
}

static void x_axis(struct chart *c)
{
    int ticks = (int)lround((c->x.hi - c->x.lo) / c->x.step);
    for (int i = 0; i <= ticks; i++) {
        double v = c->x.lo + i * c->x.step, x = chart_x(c, v);
        str_addf(c->out, "<line class=\"axis\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>"
                         "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n",
                 x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 5, x, HEIGHT - BOTTOM + 19, fabs(v) < c->x.step * 1e-6 ? 0 : v);
    }
    str_addf(c->out, "<line class=\"axis\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>"
                     "<text class=\"title\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n",
             LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - 8, c->x_title);
}

void chart_begin(struct chart *c)
{
    str_addf(c->out, "<svg viewBox=\"0 0 %d %d\" role=\"img\">\n", WIDTH, HEIGHT);
    y_axis(c);
    x_axis(c);
}

void chart_end(struct chart *c)
{
    str_add(c->out, "</svg>\n");
}

void chart_mark(struct chart *c, enum chart_shape shape, double x, double y, const char *class_name, const char *data, const char *title)
{
    double px = chart_x(c, x), py = chart_y(c, y);
    const char *paths[] = {"M%.1f %.1fm-2.6 0a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0 -5.2 0z", "M%.1f %.1fm-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z",
                           "M%.1f %.1fm0 -6.5l6.5 6.5l-6.5 6.5l-6.5 -6.5z", "M%.1f %.1fm-4.5 -4.5l9 9m0 -9l-9 9"};
    str_addf(c->out, "<path class=\"%s\" %s d=\"", class_name, data);
    str_addf(c->out, paths[shape], px, py);
    str_addf(c->out, "\"><title>%s</title></path>\n", title);
}

void chart_event(struct chart *c, double x, const char *label, int row, const char *data)
{
    double px = chart_x(c, x);
    int y = 30 + 13 * (row % 2);
    const char *anchor = px > WIDTH * 0.75 ? "end" : "start";
    str_addf(c->out, "<line class=\"event\" %s x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>"
                     "<text class=\"note\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", data, px, y - 8, px, HEIGHT - BOTTOM, px + (px > WIDTH * 0.75 ? -4 : 4), y, anchor);
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
