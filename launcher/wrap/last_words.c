#include "launcher/wrap/last_words.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/spawn.h"
#include "base/str.h"

enum { END_BYTES = 64 << 10, TASK_BYTES = 80 };

void last_words_exit(int code, int signo, char *out, size_t size)
{
    char name[SIGNAL_NAME_BYTES];
    if (signo)
        snprintf(out, size, "died of %s (signal %d)", signal_name(signo, name), signo);
    else if (code > 128 && code <= 128 + 64)
        snprintf(out, size, "exited with %d (128 + %s)", code, signal_name(code - 128, name));
    else if (code < 0)
        snprintf(out, size, "ended, and how is not known");
    else
        snprintf(out, size, "exited with %d", code);
}

/* Tells whether srun names in this line a task that ended, or torchrun the worker that failed
 * first. */
static bool names_task(const char *line)
{
    return (str_starts(line, "srun: error: ") && strstr(line, "task")) ||
           strstr(line, "exitcode  :") ||
           strstr(line, "failed (exitcode:");
}

static bool tells_error(const char *line)
{
    static const char *const words[] = {
        "Error:", "Error(", "error:", "Exception:", "out of memory", "No space left",
        "Address already in use", "Killed", "Segmentation fault", "Bus error", "oom-kill",
        "OOM Killed"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strstr(line, words[i]))
            return true;
    return false;
}

/* Tells whether a rank prints this line when another rank, whose own output may say more, has
 * ended. */
static bool tells_of_another(const char *line)
{
    static const char *const words[] = {
        "of the world is gone", "of the world has failed", "hangs or is gone", "onnection reset",
        "onnection closed", "onnection refused", "ConnectionError", "roken pipe",
        "remote process exited", "DistBackendError"};
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strstr(line, words[i]))
            return true;
    return false;
}

/* Tells whether this line says more about the cause than the one found so far. Errors after the
 * line about the task that failed first are consequences of that failure. */
static bool tells_more(const char *line, const char *error, const char *task)
{
    if (!tells_error(line) || str_starts(line, "srun: ") || str_starts(line, "slurmstepd"))
        return false;
    if (!error || tells_of_another(line))
        return !error;
    return !task || tells_of_another(error);
}

/* Joins the error line and the line about the task. The task's line is short and comes whole; the
 * error gets the rest of the room. */
static void words_put(const char *error, const char *task, char *out, size_t size)
{
    char who[TASK_BYTES] = "";
    if (task)
        str_cut(who, sizeof who, task);
    str_cut(out, error && task ? size - strlen(who) - strlen("; ") : size, error ? error : who);
    if (error && task)
        snprintf(out + strlen(out), size - strlen(out), "; %s", who);
}

void last_words_find(char *text, size_t n, char *out, size_t size)
{
    const char *task = NULL, *error = NULL;
    char *save = NULL;
    str_disarm(text, n, "\r\n");
    for (char *line = strtok_r(text, "\r\n", &save); line; line = strtok_r(NULL, "\r\n", &save)) {
        line += strspn(line, " ");
        if (names_task(line))
            task = task ? task : line;
        else if (tells_more(line, error, task))
            error = line;
    }
    words_put(error, task, out, size);
}

/* Reads the last END_BYTES of a log; "" if there is no log. Returns new; NULL when out of
 * memory. */
static char *end_read(const char *path)
{
    char *text = calloc(1, END_BYTES + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t bytes = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n = text && fd >= 0
                    ? pread(fd, text, END_BYTES, bytes > END_BYTES ? bytes - END_BYTES : 0)
                    : 0;
    for (ssize_t i = 0; i < n; i++)
        text[i] = text[i] ? text[i] : ' ';
    if (fd >= 0)
        close(fd);
    return text;
}

void last_words_read(const char *path, char *out, size_t size)
{
    char *text = end_read(path);
    out[0] = 0;
    if (text)
        last_words_find(text, strlen(text), out, size);
    free(text);
}

void last_words_of(const char *path, const char *name, char *out, size_t size)
{
    static const char error[] = "error: ";
    char *text = end_read(path), *save = NULL;
    out[0] = 0;
    for (char *line = text ? strtok_r(text, "\r\n", &save) : NULL; line;
         line = strtok_r(NULL, "\r\n", &save))
        if (str_starts(line, name)) {
            line += strlen(name);
            snprintf(out, size, "%s", str_starts(line, error) ? line + strlen(error) : line);
        }
    free(text);
}

/* ---- a rank of reel-train that is gone ---- */

static const char gone_words[] = " of the world is gone: ";

/* Returns the number of the signal with this description, as srun prints it ("Killed", "Aborted
 * (core dumped)"); 0: none has it. */
static int signal_described(const char *words)
{
    for (int s = 1; s < NSIG; s++)
        if (str_starts(words, strsignal(s)))
            return s;
    return 0;
}

/* Says what mpirun prints of the rank that it saw die first. Returns whether it is that line. */
static bool mpirun_says(const char *line, char *out, size_t size)
{
    const char *at = strstr(line, " noticed that process rank ");
    char how[64];
    int rank, signo;
    if (!at || sscanf(at, " noticed that process rank %d with PID %*s on node %*s exited on signal "
                          "%d", &rank, &signo) != 2)
        return false;
    last_words_exit(-1, signo, how, sizeof how);
    snprintf(out, size, "rank %d%sit %s, says mpirun", rank, gone_words, how);
    return true;
}

/* Says what srun prints of tasks that ended in error. Tasks that ended with 75 are passed over,
 * since they ended because of another. Returns whether the line is about other ones; out stays as
 * it is if they exited by themselves. */
static bool srun_says(const char *line, char *out, size_t size)
{
    const char *task = str_starts(line, "srun: error: ") ? strstr(line, ": task") : NULL;
    char which[32], how[64];
    int at = 0;
    if (!task || sscanf(task, ": task%*[s ]%31[0-9,-]: %n", which, &at) != 1 || !at ||
        strcmp(task + at, "Exited with exit code 75") == 0)
        return false;
    int signo = signal_described(task + at);
    if (signo)
        last_words_exit(-1, signo, how, sizeof how);
    else
        str_cut(how, sizeof how, task + at);
    bool one = strspn(which, "0123456789") == strlen(which);
    if (!str_starts(task + at, "Exited with"))
        snprintf(out, size, "rank%s %s%s%s%s, says srun", one ? "" : "s", which,
                 one ? gone_words : " of the world are gone: ", !signo ? "" : one ? "it " : "they ",
                 how);
    return true;
}

bool last_words_blame_mpi(const char *words)
{
    const char *at = strstr(words, "MPI ");
    return at && strstr(at, " failed on rank ") && !strstr(words, gone_words);
}

void last_words_gone_find(char *text, char *out, size_t size)
{
    static const char ours[] = "reel-train: error: ";
    bool told = false, speaks = false;
    char *save = NULL;
    out[0] = 0;
    str_disarm(text, strlen(text), "\r\n");
    for (char *line = strtok_r(text, "\r\n", &save); line;
         line = strtok_r(NULL, "\r\n", &save)) {
        const char *own = strstr(line, ours), *gone = own ? strstr(own, gone_words) : NULL;
        while (gone && gone > own && !str_starts(gone, "rank "))
            gone--;
        if (gone && gone > own) {
            str_cut(out, size, gone);
            return;
        }
        speaks |= own && !last_words_blame_mpi(own);
        told = told || mpirun_says(line, out, size) || srun_says(line, out, size);
    }
    if (speaks)
        out[0] = 0;
}

void last_words_gone(const char *path, char *out, size_t size)
{
    char *text = end_read(path);
    out[0] = 0;
    if (text)
        last_words_gone_find(text, out, size);
    free(text);
}

bool last_words_find_full(const char *text)
{
    static const char *const full[] = {"No space left on device", "Disk quota exceeded"};
    static const char *const memory[] = {"/dev/shm", "</torch_", "shared memory"};
    bool found = false;
    while (*text && !found) {
        size_t n = strcspn(text, "\r\n");
        for (size_t i = 0; i < ARRAY_LEN(full); i++)
            found |= memmem(text, n, full[i], strlen(full[i])) != NULL;
        for (size_t i = 0; i < ARRAY_LEN(memory); i++)
            found &= memmem(text, n, memory[i], strlen(memory[i])) == NULL;
        text += n + strspn(text + n, "\r\n");
    }
    return found;
}

bool last_words_tell_full(const char *path)
{
    char *text = end_read(path);
    bool full = text && last_words_find_full(text);
    free(text);
    return full;
}
