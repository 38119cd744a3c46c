/* environment: lists the environment variables that reel-train reads. Its help and man pages, and
 * reel-environment(7), are made from this list.
 */
#ifndef PROFILES_ENVIRONMENT_H
#define PROFILES_ENVIRONMENT_H

#include "base/opt.h"

extern const struct opt_note train_environment[]; /* ended by a NULL name */

#endif
