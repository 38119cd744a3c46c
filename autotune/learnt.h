/* learnt: what earlier tunings measured, for a later one to begin from.
 *
 * The records of a home's tunings (<home>/tunes/<id>/events) have for each trial the terms of its
 * price, as the machine's rates and the account of its work give them, and what was measured. How
 * far the two lie apart is a matter of the host, the stack and the trainer's binary, and less of
 * the model. So tunings whose three are the same, by the key in tune_started, teach each other.
 * There is no file beside the records that could say something else than they do.
 *
 *     struct fit *earlier = calloc(1, sizeof *earlier);
 *     learnt_read(home, id, key, earlier, err);     // of other tunings than `id`
 *     fit_begin(&fit, earlier);                     // earlier->n measurements
 *
 * The newest LEARNT_MOST measurements count.
 */
#ifndef AUTOTUNE_LEARNT_H
#define AUTOTUNE_LEARNT_H

#include "autotune/fit.h"

enum { LEARNT_MOST = 80 };
/* Fits what the others measured. A home without tunings teaches nothing; a damaged log teaches what
 * can be read of it. */
int learnt_read(const char *home, const char *own_id, const char *key, struct fit *out,
                struct err *err);
/* Writes seconds by their terms as a member of an event. */
void learnt_terms_write(const char *name, const double terms[PRICE_TERMS], struct json_out *o);

#endif
