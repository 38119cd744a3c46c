/* opt: one table per command defines parsing, --help, the man page, completion and the settings
 * keys.
 *
 * Long names are lower case with dashes; every boolean also has --no-NAME; `--` ends options; a
 * value is given as NAME=VALUE or NAME VALUE. An option that is given twice must have the same
 * value both times. A value comes from the first of these that gives one: the flag; for options
 * marked OPT_SETTING the environment REEL_NAME, the user file, the site file (base/settings.h); the
 * table's default. Every command also has --help, unless it passes its options to another program.
 *
 *     static const struct opt opts[] = {
 *         {"steps", 0, OPT_INT, "N", "optimizer steps to run", .fallback = "100",
 *          .min = 1, .max = 1e12},
 *         {"json", 0, OPT_BOOL, NULL, "print one JSON object"},
 *     };
 *     static const struct opt_cmd cmd = {"tune", "find the fastest layout", "MODEL",
 *                                        opts, ARRAY_LEN(opts), 1, 1};
 */
#ifndef BASE_OPT_H
#define BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/settings.h"
#include "base/str.h"

enum opt_type { OPT_BOOL, OPT_INT, OPT_NUM, OPT_TEXT, OPT_BYTES, OPT_SECONDS, OPT_ENUM };
enum { OPT_REQUIRED = 1, OPT_SETTING = 2, OPT_HIDDEN = 4 };

struct opt {
    const char *name;   /* "mbs" */
    char letter;        /* 'n' or 0 */
    enum opt_type type;
    const char *arg;    /* "N", "DIR"; NULL for booleans */
    const char *help;   /* one clause, no full stop */
    const char *fallback;
    double min, max;            /* both 0: no bounds (OPT_INT, OPT_NUM, OPT_BYTES, OPT_SECONDS) */
    const char *const *choices; /* OPT_ENUM: ended by NULL */
    unsigned flags;
};

struct opt_cmd {
    const char *name;     /* "tune" */
    const char *summary;  /* one line for the list of commands */
    const char *operands; /* "MODEL [FILE...]" for the usage line; "" if none */
    const struct opt *opts;
    size_t n_opts;
    int min_operands, max_operands; /* max -1: any number. Operands after `--` count too */
    const char *description;        /* paragraphs for --help and the man page; may be NULL */
    /* The command passes its operands to another program, so options that are not in this table
     * (--help too), and `--` with everything after it, are operands, in their order. Only a `--` at
     * the very beginning is dropped. */
    bool pass;
};

struct opt_values; /* the parsed values; owns its memory */

/* Parses a command line; argv[0] is the command's name. Errors are ERR_USAGE with the option and
 * what is allowed, and suggest the nearest name for an unknown option. On --help (or -h) it sets
 * *help, sets *out to NULL and returns opt_check's result. settings may be NULL. A bad value in a
 * settings layer is ERR_INPUT. */
int opt_parse(const struct opt_cmd *cmd, int argc, char **argv, const struct settings *settings,
              struct opt_values **out, bool *help, struct err *err);
void opt_free(struct opt_values *v);

/* Checks that `text`, the value of a setting that comes from `origin`, is a valid value of this
 * option. The error has the same form as opt_parse's. */
int opt_setting_check(const struct opt *o, const char *text, const char *origin, struct err *err);

/* Return the value of an option. A name that is not in the table, or an option of another type, is
 * a bug and aborts. */
bool opt_bool(const struct opt_values *v, const char *name);
int64_t opt_int(const struct opt_values *v, const char *name); /* OPT_INT, OPT_BYTES */
double opt_num(const struct opt_values *v, const char *name);  /* OPT_NUM, OPT_SECONDS */
/* Returns the text of an OPT_TEXT or OPT_ENUM, NULL if it is not given. */
const char *opt_text(const struct opt_values *v, const char *name);
/* Returns the index of the choice, -1 if it is not given. */
int opt_enum(const struct opt_values *v, const char *name);
/* Tells whether the value comes from the command line or a setting, and not from the default. */
bool opt_given(const struct opt_values *v, const char *name);
/* Tells whether the value comes from the command line. */
bool opt_typed(const struct opt_values *v, const char *name);
size_t opt_operands(const struct opt_values *v, const char *const **items);

/* Checks a table and reports its first mistake (a duplicate name, a fallback that does not parse,
 * bounds on a text, …); for the tests of commands. */
int opt_check(const struct opt_cmd *cmd, struct err *err);

/* Holds one entry in a section of a page: a file, a variable or a command line, with its
 * explanation. */
struct opt_note {
    const char *name;
    const char *text; /* one clause, no full stop */
    /* the commands and pages to which it applies, as in "tune plan(5)"; NULL: all */
    const char *of;
};

/* These tables hold the text of a program's pages beside its options. Each ends with an entry
 * without a name. */
struct opt_page {
    const char *program; /* "reel" */
    const struct opt_note *examples, *files, *environment;
    const char *exit_status; /* NULL: the text that reel's programs share */
};

/* Append help, examples and completion from the table to *out. `program` is "reel", or NULL if the
 * command is a program of its own. */
void opt_help(const struct opt_cmd *cmd, const char *program, struct str *out);
void opt_help_examples(const struct opt_cmd *cmd, const struct opt_page *page, struct str *out);
void opt_complete(const struct opt_cmd *cmd, struct str *out); /* lines "--name<TAB>help" */
/* Adds the command's whole page in roff, man(7). A command with the program's own name is that
 * program. */
void opt_man(const struct opt_cmd *cmd, const struct opt_page *page, struct str *out);

/* Write parts of a program's own pages. opt_help_end writes the end of its overview. opt_man_head
 * writes the head of a page, for section 1 up to the heading SYNOPSIS. opt_man_end writes the
 * sections after the options (cmd NULL: those of the whole program). */
void opt_help_end(const struct opt_page *page, struct str *out);
void opt_man_head(const char *title, int section, const char *summary, struct str *out);
void opt_man_end(const struct opt_cmd *cmd, const struct opt_page *page, struct str *out);
/* Adds a section with the notes that apply to `of`, a command or page (NULL: with all notes). */
void opt_man_notes(const char *heading, const char *of, const struct opt_note *notes,
                   struct str *out);
void opt_roff(struct str *out, const char *text);
/* Adds {"steps":{"value":…,"origin":"flag"},…}. */
void opt_json(const struct opt_values *v, struct str *out);

#endif
