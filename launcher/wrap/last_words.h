/* last_words: finds out why a trainer ended, as far as its exit status and its output show, in one
 * clause for people. */
#ifndef LAUNCHER_WRAP_LAST_WORDS_H
#define LAUNCHER_WRAP_LAST_WORDS_H

#include <stdbool.h>
#include <stddef.h>

/* Formats the exit: "exited with 137 (128 + SIGKILL)", "died of SIGKILL (signal 9)", "exited with
 * 1". code, signo: as in a step's status. */
void last_words_exit(int code, int signo, char *out, size_t size);

/* One clause holds so many bytes of a trainer's output. */
enum { LAST_WORDS_BYTES = 340 };

/* Finds in the end of a trainer's output the line about an error ("OutOfMemoryError: CUDA out of
 * memory. ...") of the rank that failed first, and adds which task that was, if srun or torchrun
 * says so. A line which only says that another rank is gone counts if there is no better one. "":
 * no line looks like either. Pure; the text is changed. */
void last_words_find(char *text, size_t n, char *out, size_t size);
/* Finds the same in a log. */
void last_words_read(const char *path, char *out, size_t size);

/* Finds the last line in a log that begins with this name ("reel-train: "), and gives it without
 * the name and an "error: " after it; "" when there is none. */
void last_words_of(const char *path, const char *name, char *out, size_t size);

/* Does the end of a trainer's output say that a disk or a quota is full? A line that speaks of
 * shared memory does not count, because that is no disk. */
bool last_words_find_full(const char *text);
bool last_words_tell_full(const char *path); /* the same of a log */

#endif
