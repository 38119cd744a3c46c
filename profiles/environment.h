/* environment: the variables that reel-train heeds, as its own help and man pages tell them, and
 * reel-environment(7) beside those of reel.
 */
#ifndef PROFILES_ENVIRONMENT_H
#define PROFILES_ENVIRONMENT_H

#include "base/opt.h"

extern const struct opt_note train_environment[]; /* ended by a NULL name */

#endif
