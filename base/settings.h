/* settings: reads `key = value` pairs from several sources, and stores each with its origin.
 *
 * The sources are, strongest first: environment (REEL_<KEY>, dashes as underscores) > user file
 * ($XDG_CONFIG_HOME/reel/config, else ~/.config/reel/config) > site file (/etc/reel/config, or
 * $REEL_SITE_CONFIG). Files are lines `key = value`; `#` at the start of a line or after white
 * space starts a comment. The caller gives the known keys, from the option tables. An unknown key,
 * a key given twice and a missing value are errors that name file and line. Other variables REEL_X
 * are ignored; an empty variable counts as unset. Command line flags are stronger than all
 * settings; base/opt.h applies them.
 */
#ifndef BASE_SETTINGS_H
#define BASE_SETTINGS_H

#include <stddef.h>

#include "base/err.h"

struct settings;

/* Loads the settings. `known` is ended by NULL and copied. env is a NULL-terminated "K=V" list
 * (normally environ), from which HOME and similar variables are read too, or NULL for none. Missing
 * files are no error. */
int settings_load(const char *const *known, const char *const *env, struct settings **out,
                  struct err *err);
void settings_free(struct settings *s);

/* Returns the strongest value of key, borrowed, or NULL if there is none; *origin (may be NULL) is
 * "env REEL_X" or "FILE:LINE". */
const char *settings_get(const struct settings *s, const char *key, const char **origin);

#endif
