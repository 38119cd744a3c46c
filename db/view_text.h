/* view_text: reads the text of views: their names, their columns, and what is said of both.
 *
 * A view begins after an empty line with a line that creates it, and ends at an empty line or with
 * the line whose code ends in a semicolon. Lines with only a comment that follow the first one are
 * what is said of the view. A column ends a line, "expression AS name, -- sentence"; a line with
 * only a comment continues the sentence before it. A view is public if its name begins with "v_".
 *
 *     view_text_list(&names, views);           // v_run, v_step, …
 *     view_text_describe(&out, views, true);   // the public ones; false: the others
 */
#ifndef DB_VIEW_TEXT_H
#define DB_VIEW_TEXT_H

#include <stdbool.h>

#include "base/str.h"

/* Appends the names of the public views, with a comma between two. */
void view_text_list(struct str *out, const char *views);
/* Appends, for each view of the wanted kind, its name, what is said of it, and a line for each of
 * its columns that have a sentence. */
void view_text_describe(struct str *out, const char *views, bool is_public);

#endif
