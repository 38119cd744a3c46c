/* chart: line, scatter and bar charts as inline SVG: readable without colour (shapes, dashes, direct labels), no script, no
 * outside asset. Every mark carries its class and its data, so that a test can count marks against the rows they show.
 */
#ifndef LAUNCHER_CHART_H
#define LAUNCHER_CHART_H

#include <stdint.h>

#include "base/str.h"

struct chart_axis { double lo, hi, step; }; /* lo and hi are multiples of step; hi > lo */

/* A range of round numbers that holds [lo, hi], with about n intervals. */
struct chart_axis chart_axis_round(double lo, double hi, int n);

struct chart {
    struct str *out;
    const char *x_title, *y_title;
    struct chart_axis x, y;
    double y_scale; /* printed numbers are values times this (100 for per cent) */
};
void chart_begin(struct chart *c); /* opens the svg, draws grid and axes */
void chart_end(struct chart *c);
double chart_x(const struct chart *c, double x); /* value to pixel */
double chart_y(const struct chart *c, double y);

enum chart_shape { CHART_DOT, CHART_RING, CHART_DIAMOND, CHART_CROSS };
/* data: attributes such as data-step="7"; title: what hovering shows. Both already escaped. */
void chart_mark(struct chart *c, enum chart_shape shape, double x, double y, const char *class_name, const char *data, const char *title);
/* A vertical line over the whole height with a label at its top; `row` moves labels apart. */
void chart_event(struct chart *c, double x, const char *label, int row, const char *data);

/* Text with & < > " escaped. */
void html_escape(struct str *out, const char *text);

#endif
