/* adapter_text: parses and evaluates the small language of words and conditions in adapters. Its
 * errors say what is wrong with the text; the caller, who read it from a file, adds the place. */
#ifndef PROFILES_ADAPTER_TEXT_H
#define PROFILES_ADAPTER_TEXT_H

#include "base/str.h"
#include "profiles/adapter.h"

/* Holds the values of the keys for one layout. */
struct adapter_values { int64_t v[ADAPTER_KEYS]; };
struct adapter_values adapter_values(const struct adapter_facts *f);

/* Reads "zero=1 & dp>1"; "" always holds. */
int adapter_condition_parse(const char *text, struct adapter_condition *out, struct err *err);
bool adapter_condition_holds(const struct adapter_condition *c, const struct adapter_values *v);
/* Says whether the condition names one of these keys, bits 1 << enum adapter_key. */
bool adapter_condition_names(const struct adapter_condition *c, uint32_t keys);
/* Checks the expressions in the braces of a word. */
int adapter_word_check(const char *word, struct err *err);
/* Appends the word with its expressions replaced by their values. dir may be NULL if the word has
 * no {dir}. */
int adapter_word_add(const char *word, const struct adapter_values *v, const char *dir,
                     struct str *out, struct err *err);

#endif
