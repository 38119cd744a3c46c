/* decode: shows generated latents as pictures, beside the clips of the dataset they are compared
 * with. */
#ifndef CURATOR_DECODE_H
#define CURATOR_DECODE_H

#include "base/opt.h"

extern const struct opt_cmd decode_command;
/* Runs the command; the text for stdout is appended to *out. */
int decode_run(const struct opt_values *v, struct str *out, struct err *err);

#endif
