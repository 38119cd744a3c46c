/* decode: saves generated latents as pictures, together with the clips of the dataset with which
 * they are compared. */
#ifndef CURATOR_DECODE_H
#define CURATOR_DECODE_H

#include "base/opt.h"

extern const struct opt_cmd decode_command;
/* Runs the command. Appends the text for standard output to *out. */
int decode_run(const struct opt_values *v, struct str *out, struct err *err);

#endif
