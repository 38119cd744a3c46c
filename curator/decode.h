/* decode: latents that were generated, as pictures beside the clips they are compared with. */
#ifndef CURATOR_DECODE_H
#define CURATOR_DECODE_H

#include "base/opt.h"

extern const struct opt_cmd decode_command;
int decode_run(const struct opt_values *v, struct err *err);

#endif
