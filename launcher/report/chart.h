/* chart: line and scatter charts as inline SVG: readable without colour (shapes, dashes, direct labels), no script, no
 * outside asset. Every mark carries its class, its data and the number of rows it stands for (data-rows), so that a test
 * can hold the marks against the rows they show.
 */
#ifndef LAUNCHER_REPORT_CHART_H
#define LAUNCHER_REPORT_CHART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct chart_axis { double lo, hi, step; }; /* lo and hi are multiples of step; hi > lo */

/* A range of round numbers that holds [lo, hi], with about n intervals. */
struct chart_axis chart_axis_round(double lo, double hi, int n);
/* The same for whole numbers: a tick at each multiple of a whole step, the range not widened. */
struct chart_axis chart_axis_count(double lo, double hi, int n);

enum { CHART_LABEL_ROWS = 3, CHART_LABELS = 256 };
struct chart_box { double x0, y0, x1, y1; };
struct chart {
    struct str *out;
    const char *x_title, *y_title, *label; /* label: what a screen reader says */
    struct chart_axis x, y;
    double y_scale;       /* printed numbers are values times this (100 for per cent) */
    int width, height;    /* px; 0: 860 and 300 */
    double row_end[CHART_LABEL_ROWS]; /* px where the last event label of each row ends */
    int n_labels;         /* labels placed beside marks, so that the next ones avoid them */
    struct chart_box labels[CHART_LABELS];
};
void chart_begin(struct chart *c); /* opens the svg, draws grid and axes */
void chart_end(struct chart *c);
double chart_x(const struct chart *c, double x); /* value to pixel */
double chart_y(const struct chart *c, double y);

enum chart_shape { CHART_DOT, CHART_RING, CHART_DIAMOND };
/* data: attributes such as data-step="7"; title: what hovering shows. Both already escaped. */
void chart_mark(struct chart *c, enum chart_shape shape, double x, double y, const char *class_name, const char *data, const char *title);
/* Text beside a mark, at the first of eight places around it where no other mark or label stands; chart_keep_clear says
 * where marks are. */
void chart_keep_clear(struct chart *c, double x, double y);
void chart_label(struct chart *c, double x, double y, const char *text);
/* A vertical line over the whole height with a label at its top, in the first row where it meets no other; where there is
 * none the label is left out and the line stays. */
void chart_event(struct chart *c, double x, const char *label, const char *data);

/* Text with & < > " escaped. */
void html_escape(struct str *out, const char *text);

#endif
