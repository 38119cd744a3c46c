/* err: defines how functions report what went wrong.
 *
 * A function that can fail returns int: 0, or one of the negative codes below. Its last parameter
 * is `struct err *err` (may be NULL), which on failure takes a full sentence: what failed, on which
 * object, which value, and what to do. Callers put context in front of the sentence; they never
 * replace it. A failing function leaves its out-parameters as they were.
 *
 *     if (n < 1)
 *         return err_set(err, ERR_INPUT, "%s: field 'layers' is %d: give 1 or more", path, n);
 *
 * Libraries never print and never exit; `main` prints err->text and exits with err_exit_code(code).
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#ifdef __cplusplus
extern "C" {
#endif

/* Each entry gives name, value, exit code of a process, and a short description. */
#define ERR_LIST(X)                                                   \
    X(ERR_NO, -1, 1, "the answer is no")                              \
    X(ERR_USAGE, -2, 2, "wrong usage")                                \
    X(ERR_INPUT, -3, 3, "invalid input")                              \
    X(ERR_CORRUPT, -4, 3, "damaged data")                             \
    X(ERR_NOT_FOUND, -5, 3, "no such object")                         \
    X(ERR_LIMIT, -6, 3, "a limit is exceeded")                        \
    X(ERR_ENV, -7, 4, "something is missing in the environment")      \
    X(ERR_IO, -8, 5, "an operation on a file or device failed")       \
    X(ERR_FULL, -17, 5, "no space is left for a file")                \
    X(ERR_NOMEM, -9, 5, "out of memory")                              \
    X(ERR_EXISTS, -10, 5, "the object exists already")                \
    X(ERR_STATE, -11, 5, "not possible in this state")                \
    X(ERR_CHILD, -12, 5, "a child process failed")                    \
    X(ERR_DIVERGED, -16, 6, "training diverged")                      \
    X(ERR_TIMEOUT, -13, 75, "the deadline passed")                    \
    X(ERR_BUSY, -14, 75, "somebody else holds it")                    \
    X(ERR_TEMP, -15, 75, "temporary, safe to run again")

enum err_code {
    ERR_OK = 0,
#define ERR_ENUM(name, value, exit_code, text) name = value,
    ERR_LIST(ERR_ENUM)
#undef ERR_ENUM
};

enum { ERR_TEXT_BYTES = 1024 };

struct err {
    int code;
    char text[ERR_TEXT_BYTES]; /* terminated; one line, with '?' for control characters; text that
                                * is too long ends in "..." */
};

/* Fills *err (if not NULL) and returns `code`, so that reporting and returning is one statement. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Does what err_set does, with ": <strerror(errno)>" appended. If errno is ENOMEM, the code becomes
 * ERR_NOMEM. If it is ENOSPC, EDQUOT or EROFS, the code becomes ERR_FULL: a read-only file system,
 * too, has no room until somebody remounts it. */
int err_set_errno(struct err *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "<context>: " in front of the present text and returns the present code. If err is NULL, it
 * returns ERR_STATE, because the code is kept in *err only. So a caller that needs the code passes
 * a struct. */
int err_context(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Return the exit code of a process for an error code (0 for ERR_OK), and the error code's name,
 * such as "ERR_INPUT". */
int err_exit_code(int code);
const char *err_name(int code);

/* Prints the file, the line and the text of a broken invariant to stderr and aborts. No build
 * leaves this check out. */
void err_bug(const char *file, int line, const char *fmt, ...)
    __attribute__((noreturn, format(printf, 3, 4)));
#define BUG_ON(cond)                                          \
    do {                                                      \
        if (cond)                                             \
            err_bug(__FILE__, __LINE__, "broken: %s", #cond); \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
