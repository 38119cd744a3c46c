/* settings: key = value from several places, each remembered with its origin.
 *
 * Order, strongest first: environment (REEL_<KEY>, dashes as underscores) > user file
 * ($XDG_CONFIG_HOME/reel/config, else ~/.config/reel/config) > site file (/etc/reel/config, or $REEL_SITE_CONFIG).
 * Files are lines `key = value`; `#` at the start of a line or behind white space starts a comment. An unknown key
 * (the known ones are given by the caller, from the option tables), a key given twice and a missing value are errors
 * naming file and line. REEL_ variables that are not known keys are not ours to judge; an empty one counts as unset.
 * Flags stand above all of this and are opt's business.
 */
#ifndef BASE_SETTINGS_H
#define BASE_SETTINGS_H

#include <stddef.h>

#include "base/err.h"

struct settings;

/* known: ended by NULL, copied. env: NULL-ended "K=V" list (normally environ), also asked for HOME and the like; NULL
 * for none. Missing files are fine. */
int settings_load(const char *const *known, const char *const *env, struct settings **out, struct err *err);
void settings_free(struct settings *s);

/* Strongest value of key, NULL if none; *origin (may be NULL) is "env REEL_X" or "FILE:LINE". Borrowed. */
const char *settings_get(const struct settings *s, const char *key, const char **origin);

#endif
