/* explain_print: prints what a plan's step time and memory are made of, as JSON
 * (reel.explanation/1) or as text. It computes no prices: whoever fills the struct does. */
#ifndef LAUNCHER_CMD_EXPLAIN_PRINT_H
#define LAUNCHER_CMD_EXPLAIN_PRINT_H

#include "autotune/price_work.h"
#include "profiles/constants.h"

enum { EXPLAIN_HELD = 16 };
/* Holds a layout with its price. All texts are borrowed. */
struct explain_side {
    struct layout layout;
    int64_t stage;               /* the busiest, which the terms are of */
    double step_s, lo_s, hi_s;   /* lo_s, hi_s NAN: no interval is known */
    double mfu, p_fits;          /* NAN: not known */
    double seconds[PRICE_TERMS], hidden_s[PRICE_TERMS];
    double work[PRICE_TERMS];    /* in price_work_units */
    double bytes;                /* of the fullest rank */
    int n_held;
    struct { const char *name; double bytes; } held[EXPLAIN_HELD]; /* add up to bytes */
};
/* Holds the constant or the measured rate of a term, with its interval of nine of ten. */
struct explain_constant { const char *name, *source; double value, lo, hi; };
struct explain_told {
    const char *model, *ranks, *place; /* "dit-7b", "GPU", "dgx-h100:4" */
    double limit_bytes;          /* of a rank; 0: not known */
    struct explain_side one, other;
    bool has_other;
    struct explain_constant constant[PRICE_TERMS];
    /* whose measurements the curve is that says the term's rate at each size, and that the constant
     * multiplies; NULL: the rate follows from constants alone */
    const char *curve[PRICE_TERMS];
    double planned_step_s; /* s, by the plan's own prediction; NAN: it has none */
    bool tuned;            /* trials corrected that prediction */
    double measured_step_s; /* s, of a step in the plan's own trial; NAN: not measured */
    double measured_s[PRICE_TERMS]; /* s, in the plan's own trial, on CPUs of CPU time; NAN: not
                                     * recorded */
    const char *constants;
    const struct held_out *held_out; /* of these; NULL: there are none of a probed machine */
    const struct device *device;     /* for which held_out_say() looks */
};
void explain_json(const struct explain_told *x, struct str *out);
void explain_text(const struct explain_told *x, struct str *out);

#endif
