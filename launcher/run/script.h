/* script: tells from a shell's script what the shell does with a signal.
 *
 * A bash with an EXIT trap, or one that reads a line, catches all signals that would end it, to
 * clean up, and then ends by them. /proc shows that like a trap (SigCgt, proc(5)), so the script is
 * read: the text behind -c, or the file. Its commands are found, not run: quotes, comments and
 * here-documents are known, functions and branches count wherever they stand.
 */
#ifndef LAUNCHER_RUN_SCRIPT_H
#define LAUNCHER_RUN_SCRIPT_H

#include <stdbool.h>
#include <sys/types.h>

struct script_says {
    bool read;     /* the script could be read */
    bool traps;    /* it sets a trap for the signal */
    bool may_trap; /* it sets one for a signal in a variable, or takes one back */
    bool sources;  /* it reads another file or runs a text that is made, which may set one */
    bool waits;    /* it has a `wait`, which a trap interrupts: other commands are waited for */
};

/* Reads what the script of this shell says. */
struct script_says script_says_of(pid_t pid, int signo);
/* Reads a script's text. */
struct script_says script_says_find(const char *text, int signo);

/* Tells whether the shell was forked by a shell that runs the same script, to run a part of it.
 * Such a one has no traps but those that its part sets. */
bool script_is_part(pid_t pid);

#endif
