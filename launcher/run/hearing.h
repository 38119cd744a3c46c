/* hearing: tells whether a process would handle a signal, and which kind of program it runs. Both
 * are read from /proc, proc(5). */
#ifndef LAUNCHER_RUN_HEARING_H
#define LAUNCHER_RUN_HEARING_H

#include <stdbool.h>
#include <sys/types.h>

enum hearing {
    DEAF, HANDLES, DEFERS, FORWARDS, UNSURE, OPAQUE, HOLDS_BACK, STANDS_STILL, GONE
};

/* Returns HANDLES if the process handles the signal, or blocks it and waits for it (sigwait in
 * another thread, signalfd); else DEAF or GONE. STANDS_STILL: it blocks the signal and does
 * nothing, as one that was stopped does, so that it is not known. Of a shell the script is read:
 * DEFERS if it has a trap and no `wait`, so that the trap runs when a command ends; FORWARDS if it
 * has a trap and a `wait`, which the signal interrupts, unless a command runs in front; UNSURE if
 * it may have a trap, OPAQUE if nothing says so, and in both cases it may end by the signal
 * instead. Takes up to 0.3 s for one that blocks it. */
enum hearing hearing_of(pid_t pid, int signo);

/* Tells whether the process's program has one of these names, each with a newline behind it; NULL
 * ends them. */
bool is_program(pid_t pid, const char *const *names);

/* Tells whether this is a program that starts ranks, and ends at a signal or keeps it for itself:
 * srun, an mpirun, xargs, parallel. */
bool is_starter(pid_t pid);

/* Tells whether the process runs a program that starts ranks, as its own or as a script's or
 * module's name: "python -m torch.distributed.run", "python /usr/bin/torchrun". */
bool is_launcher(pid_t pid);

/* Tells whether this process cleans up for others: Python's multiprocessing starts one beside the
 * processes that it spawns, with the environment of one of them. */
bool is_tracker(pid_t pid);

/* Tells whether this process is a shell; one that runs a script has the script's name. */
bool is_shell(pid_t pid);

/* Tells whether the shell runs this child of it in front, so that it waits for the child's end
 * whatever traps it has. A shell without job control lets what it starts in the background ignore
 * SIGINT (POSIX, Shell Command Language, 2.11), and one with it gives that a process group of its
 * own. Returns false where the shell itself ignores SIGINT, since then it does not
 * show. */
bool is_in_front(pid_t shell, pid_t child);

#endif
