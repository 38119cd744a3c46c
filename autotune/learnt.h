/* learnt: reads what earlier tunings measured, so that a later one begins from it.
 *
 * The event logs of a home's tunings (<home>/tunes/<id>/events) hold for each trial the terms of
 * its price, computed from the machine's rates and the trial's work (profiles/work.h), and the
 * measured times. The ratio of the two depends on the host, the stack and the trainer's binary, and
 * less on the model. So tunings learn from each other if they agree in these three, the BLAS and
 * the data type: then tune_started has the same key `learns`. Nothing is stored besides the logs,
 * so nothing can contradict them.
 *
 *     struct fit *earlier = calloc(1, sizeof *earlier);
 *     learnt_read(home, id, key, earlier, err);     // of other tunings than `id`
 *     fit_begin(&fit, earlier);                     // earlier->n measurements
 *
 * Only the newest LEARNT_MOST measurements are fitted.
 */
#ifndef AUTOTUNE_LEARNT_H
#define AUTOTUNE_LEARNT_H

#include "autotune/fit.h"

enum { LEARNT_MOST = 80 };
/* Fits the measurements of all tunings but own_id that have this key. A home without tunings gives
 * no measurements. Of a damaged log, the readable records are used. */
int learnt_read(const char *home, const char *own_id, const char *key, struct fit *out,
                struct err *err);
/* Writes the seconds of each term as an object in an event; terms of 0 are left out. */
void learnt_terms_write(const char *name, const double terms[PRICE_TERMS], struct json_out *o);

#endif
