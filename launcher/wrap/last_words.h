/* last_words: finds out from a trainer's exit status and output why it ended, and says it in one
 * clause for people. */
#ifndef LAUNCHER_WRAP_LAST_WORDS_H
#define LAUNCHER_WRAP_LAST_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Formats the exit status: "exited with 137 (128 + SIGKILL)", "died of SIGKILL (signal 9)", "exited
 * with 1". code, signo: as in a step's status. */
void last_words_exit(int code, int signo, char *out, size_t size);

/* One clause may hold this many bytes of a trainer's output. */
enum { LAST_WORDS_BYTES = 340 };

/* Finds in the end of a trainer's output the error line ("OutOfMemoryError: CUDA out of memory.
 * ...") of the rank that failed first, and adds the name of its task if srun or torchrun printed
 * it. A line which only says that another rank is gone counts if there is no better one. out is ""
 * if no line is an error or names a task. The text is changed. */
void last_words_find(char *text, size_t n, char *out, size_t size);
/* Does what last_words_find does, with the end of a log. */
void last_words_read(const char *path, char *out, size_t size);

/* Finds the last line of a log that begins with this name ("reel-train: "), and returns the line
 * without the name and a following "error: "; "" if there is none. */
void last_words_of(const char *path, const char *name, char *out, size_t size);

/* Finds in the end of the output of reel-train's ranks which rank ended without a word of its own,
 * and says so in the ranks' own words: those of the rank that first missed it ("rank 0 of the world
 * is gone: its process 41 has ended ..."). If no rank says anything, or only that MPI failed, it
 * says what mpirun or srun printed of the first task that was killed ("rank 0 of the world is gone:
 * it died of SIGKILL (signal 9), says srun"). out is "" if neither is there. The text is
 * changed. */
void last_words_gone_find(char *text, char *out, size_t size);
/* Does what last_words_gone_find does, with the end of a log. */
void last_words_gone(const char *path, char *out, size_t size);
/* Tells whether these words of a rank only say that MPI failed, which happens when another rank, of
 * another host, has ended. */
bool last_words_blame_mpi(const char *words);

/* Tells whether the end of a trainer's output says that a disk or a quota is full. A line about
 * shared memory does not count, because that is no disk. */
bool last_words_find_full(const char *text);
bool last_words_tell_full(const char *path); /* the same for a log */

#endif
