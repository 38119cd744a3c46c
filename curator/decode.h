/* decode: latents that were generated, as pictures beside the clips they are compared with. */
#ifndef CURATOR_DECODE_H
#define CURATOR_DECODE_H

#include "base/opt.h"

extern const struct opt_cmd decode_command;
/* out: what goes to stdout. */
int decode_run(const struct opt_values *v, struct str *out, struct err *err);

#endif
