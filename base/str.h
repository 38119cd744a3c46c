/* str: builds byte strings that grow.
 *
 * Invariant: s->p is always a terminated string (never NULL after STR_INIT), and s->len is its
 * length. When memory runs out, the string keeps its content, s->failed becomes 1, and further
 * additions do nothing. So a caller may build the whole string and call str_check once at the end.
 *
 *     struct str s = STR_INIT;
 *     str_addf(&s, "%d rows", n);
 *     if (str_check(&s, err) < 0) goto out;
 */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct str {
    char *p;
    size_t len, cap;
    int failed;
};
extern char str_empty[1];
#define STR_INIT {.p = str_empty}

void str_add(struct str *s, const char *text);
void str_addn(struct str *s, const void *bytes, size_t n);
void str_addc(struct str *s, char c);
void str_addf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_clear(struct str *s);              /* sets length 0, keeps the memory, resets failed */
void str_release(struct str *s);
/* Returns the text, which the caller owns; NULL if failed is set. s is empty afterwards. */
char *str_detach(struct str *s);
int str_check(const struct str *s, struct err *err);

bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
/* Copies the text. If it does not fit, cuts it at the end of a word and appends "...". size is at
 * least 4. */
void str_cut(char *out, size_t size, const char *text);
/* Replaces in place each of the n bytes that a terminal would obey and not print: control
 * characters by a blank, what is no UTF-8 by '?'. Those of `keep`, such as "\r\n", stay. */
void str_disarm(char *text, size_t n, const char *keep);
/* Returns how many bytes stand before the first control character, or before the end. */
size_t str_plain(const char *text);
/* Returns the entry of `names` (ended by NULL) that the user probably meant by `word`, for "did you
 * mean": the shortest that begins with the word, if the word has 3 letters or more; else the
 * nearest by edit distance, or NULL if none is near. */
const char *str_nearest(const char *word, const char *const *names);

#endif
