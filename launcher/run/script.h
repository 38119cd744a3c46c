/* script: tells from a shell's script whether the shell handles a signal.
 *
 * A bash with an EXIT trap, or one that reads a line, catches all signals that would end it, to
 * clean up, and then ends by them. /proc shows that like a trap (SigCgt, proc(5)), so the script is
 * read: the text behind -c, or the file.
 */
#ifndef LAUNCHER_RUN_SCRIPT_H
#define LAUNCHER_RUN_SCRIPT_H

#include <sys/types.h>

/* SCRIPT_UNSURE: the script cannot be read, or it names the signal otherwise than in a trap, sets a
 * trap for a signal in a variable, or reads another file, which may set one. */
enum script_trap { SCRIPT_NONE, SCRIPT_TRAPS, SCRIPT_UNSURE };

/* Looks whether the script of this shell has a trap for the signal. */
enum script_trap script_trap_of(pid_t pid, int signo);
/* Looks in a script's text. */
enum script_trap script_trap_find(const char *text, int signo);

#endif
