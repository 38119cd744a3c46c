/* chart: draws line and scatter charts as inline SVG. They are readable without colour (shapes,
 * dashes, direct labels) and need no script and no outside asset. Every mark has the class and the
 * data attributes that its caller gives, so that a test can compare the marks with the rows that
 * they show. */
#ifndef LAUNCHER_REPORT_CHART_H
#define LAUNCHER_REPORT_CHART_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

struct chart_axis { double lo, hi, step; }; /* hi > lo; ticks are at multiples of step */

/* Returns the smallest range that contains [lo, hi] and ends at multiples of a round step; about n
 * steps long. */
struct chart_axis chart_axis_round(double lo, double hi, int n);
/* Returns [lo - 0.5, hi + 0.5] for whole numbers, with a tick at each multiple of a whole step. */
struct chart_axis chart_axis_count(double lo, double hi, int n);

enum { CHART_LABEL_ROWS = 3, CHART_LABELS = 256 };
struct chart_box { double x0, y0, x1, y1; };
struct chart {
    struct str *out;
    const char *x_title, *y_title, *label; /* label is the text for screen readers */
    struct chart_axis x, y;
    double y_scale;    /* numbers are printed times this (100 for per cent) */
    int width, height; /* px; 0: 860 and 300 */
    double row_end[CHART_LABEL_ROWS]; /* px where the last event label of each row ends */
    int n_labels; /* labels that were placed beside marks, so that the next ones avoid them */
    struct chart_box labels[CHART_LABELS];
};
void chart_begin(struct chart *c); /* Opens the svg and draws grid and axes. */
void chart_end(struct chart *c);
/* Convert a value to a pixel. */
double chart_x(const struct chart *c, double x);
double chart_y(const struct chart *c, double y);

enum chart_shape { CHART_DOT, CHART_RING, CHART_DIAMOND };
/* Draws a mark. `data` holds attributes such as data-step="7", and `title` is what hovering shows.
 * Both are escaped already. */
void chart_mark(struct chart *c, enum chart_shape shape, double x, double y, const char *class_name,
                const char *data, const char *title);
/* Keeps labels away from a mark at this point. */
void chart_keep_clear(struct chart *c, double x, double y);
/* Writes a text beside a mark, at the first of eight positions around it that no other mark or
 * label covers. Writes nothing if all are covered. */
void chart_label(struct chart *c, double x, double y, const char *text);
/* Returns an upper bound of a label's width, in px, for a wide and bold font. */
double chart_text_width(const char *text);
/* Draws a vertical line over the whole height. Its label is at its top, in the first row where it
 * overlaps no other. If there is no such row, only the line is drawn. */
void chart_event(struct chart *c, double x, const char *label, const char *data);

/* Adds a text with & < > " escaped. */
void html_escape(struct str *out, const char *text);

#endif
