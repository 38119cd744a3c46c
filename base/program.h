/* program: does what the main functions of reel's programs have in common: it finds the command,
 * and prints help, --version, pages and completions.
 *
 *     reel-x COMMAND [OPTION...]                runs it; for a wrong name, suggests the nearest
 *     reel-x | help | --help | -h               prints the overview; `help COMMAND`: its help
 *     reel-x --version | -V | version           version, commit, compiler, libraries, SIMD
 *     reel-x help --man|--complete [COMMAND]    roff, or lines "word<TAB>meaning", for packagers
 *     reel-x help --words [WORD...]             completions of the last word, for shells
 *
 * A program with an `alone` command runs it if the first argument is no command's name, unless that
 * argument is more likely a misspelt one.
 */
#ifndef BASE_PROGRAM_H
#define BASE_PROGRAM_H

#include "base/opt.h"

/* Tells the source and the libraries that a program was built from; the Makefile writes one for
 * each program. */
struct build {
    const char *commit;    /* "d171db7", "d171db7-changed", "unknown" */
    const char *libraries; /* "hwloc 2.9.0, sqlite3 3.40.1" */
};
extern const struct build build;

/* Holds the arguments of a command, which borrows them. */
struct program_call {
    const struct opt_cmd *cmd;
    const struct opt_values *values;
    const struct settings *settings; /* NULL in a program without any */
    int argc; /* the command's name and its arguments, unparsed */
    char **argv;
};

struct program {
    struct opt_page page;
    const char *summary; /* one line, for NAME in its man page */
    const struct opt_cmd *const *commands;
    size_t n_commands;
    const struct opt_cmd *const *hidden; /* commands that are not listed; may be NULL */
    size_t n_hidden;
    const struct opt_cmd *alone; /* may be NULL */
    /* Loads the settings for options marked OPT_SETTING; *out is new. NULL: the program has
     * none. */
    int (*settings)(struct settings **out, struct err *err);
    /* Runs a command. It is not called when the user asked for help, which is printed instead. */
    int (*run)(const struct program_call *call, struct err *err);
    void (*about)(struct str *out); /* adds lines to --version; may be NULL */
    /* Adds the SIMD kind that the program uses here, and the kinds it is compiled for; NULL: it is
     * compiled once. */
    void (*simd)(struct str *out);
    /* Adds the possible values of an argument such as RUN or MODEL, one per line; may be NULL. */
    void (*words)(const char *kind, struct str *out);
};

/* Runs the program and returns its exit status. Logs and the error of the command go to stderr. */
int program_main(const struct program *p, const struct build *b, int argc, char **argv);

/* Prints text to stdout; a failed write (full disk, closed pipe) is ERR_IO. */
int program_print(const struct str *text, struct err *err);

#endif
