#include "launcher/run/script.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/spawn.h"
#include "base/str.h"
#include "launcher/sched/proc.h"

enum { SCRIPT_BYTES = 1 << 20 };

/* ---- words of a line ---- */

static bool is_end(char c) /* tells whether a word ends before this character */
{
    return !c || strchr(" \t\n;&|(){}'\"`", c);
}

/* Tells whether the line, of n bytes, has this word. */
static bool has_word(const char *line, size_t n, const char *word)
{
    size_t len = strlen(word);
    for (size_t i = 0; i + len <= n; i++)
        if (strncasecmp(line + i, word, len) == 0 && (i == 0 || is_end(line[i - 1])) &&
            is_end(line[i + len]))
            return true;
    return false;
}

/* Returns the line without the blanks around it; *n is its length. */
static const char *trimmed(const char *line, size_t *n)
{
    while (*n && isspace((unsigned char)*line))
        line++, --*n;
    while (*n && isspace((unsigned char)line[*n - 1]))
        --*n;
    return line;
}

/* Tells whether a command of the line reads another file, or runs a text that is made. */
static bool reads_other(const char *line, size_t n)
{
    bool begins = true; /* a command begins here */
    if (has_word(line, n, "source") || has_word(line, n, "eval"))
        return true;
    for (size_t i = 0; i + 1 < n; i++) {
        if (begins && line[i] == '.' && strchr(" \t", line[i + 1]))
            return true;
        begins = strchr(";&|({", line[i]) || (begins && strchr(" \t", line[i]));
    }
    return false;
}

/* Tells whether the line may end the words of a trap: it has "trap", or begins with the quote that
 * ends a body of several lines. */
static bool is_trap(const char *line, size_t n)
{
    return has_word(line, n, "trap") || (n && strchr("'\"", *line));
}

static bool is_odd(const char *line, size_t n, char quote)
{
    bool odd = false;
    for (size_t i = 0; i < n; i++)
        odd ^= line[i] == quote;
    return odd;
}

/* Tells whether the last word of a trap's line is made of a variable or a command. It is none of
 * the signals' if the line begins a body of several lines. */
static bool ends_in_variable(const char *line, size_t n)
{
    size_t from = n;
    if (!strchr("'\"", *line) && (is_odd(line, n, '\'') || is_odd(line, n, '"')))
        return false;
    while (from > 0 && !strchr(" \t", line[from - 1]))
        from--;
    return memchr(line + from, '$', n - from) || memchr(line + from, '`', n - from);
}

/* ---- the script ---- */

struct names { /* of a signal */
    const char *full, *bare; /* "SIGUSR1", "USR1" */
    char number[16];
};

static enum script_trap line_trap(const char *line, size_t n, const struct names *names)
{
    line = trimmed(line, &n);
    if (n && *line == '#')
        return SCRIPT_NONE;
    bool named = has_word(line, n, names->full) || has_word(line, n, names->bare),
         trap = is_trap(line, n);
    if (trap && (named || has_word(line, n, names->number)))
        return SCRIPT_TRAPS;
    return named || (trap && ends_in_variable(line, n)) || reads_other(line, n) ? SCRIPT_UNSURE
                                                                               : SCRIPT_NONE;
}

enum script_trap script_trap_find(const char *text, int signo)
{
    char name[SIGNAL_NAME_BYTES];
    struct names names = {.full = signal_name(signo, name)};
    enum script_trap found = SCRIPT_NONE;
    names.bare = names.full + (str_starts(names.full, "SIG") ? strlen("SIG") : 0);
    snprintf(names.number, sizeof names.number, "%d", signo);
    for (size_t n; *text && found != SCRIPT_TRAPS; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        enum script_trap trap = line_trap(text, n, &names);
        found = trap == SCRIPT_NONE ? found : trap;
    }
    return found;
}

/* Returns the first of a shell's arguments that is no option, or NULL. *is_text: it is a script
 * itself (-c). */
static const char *operand_find(const struct str *arguments, bool *is_text)
{
    const char *end = arguments->p + arguments->len, *p = arguments->p + strlen(arguments->p) + 1;
    *is_text = false;
    for (; p < end && strchr("-+", *p) && *p; p += strlen(p) + 1) {
        char last = p[strlen(p) - 1];
        bool dashes = p[1] == '-';
        *is_text |= *p == '-' && !dashes && strchr(p, 'c');
        if (!dashes && strchr("oO", last)) /* the name of an option follows */
            p += strlen(p) + 1;
        if (strcmp(p, "-s") == 0 || p >= end)
            return NULL;
    }
    return p < end ? p : NULL;
}

/* Reads the script that a shell runs, as the shell sees it. */
static bool script_read(pid_t pid, struct str *out)
{
    struct str arguments = STR_INIT;
    char path[LIMIT_PATH_BYTES];
    bool is_text, read = false;
    const char *operand = proc_read(pid, "cmdline", &arguments) && arguments.len
                              ? operand_find(&arguments, &is_text)
                              : NULL;
    if (operand && is_text) {
        str_add(out, operand);
        read = !out->failed;
    } else if (operand) {
        snprintf(path, sizeof path, "/proc/%ld/%s/%s", (long)pid,
                 *operand == '/' ? "root" : "cwd", operand);
        read = file_read(path, SCRIPT_BYTES, out, NULL) == 0;
    }
    str_release(&arguments);
    return read;
}

enum script_trap script_trap_of(pid_t pid, int signo)
{
    struct str script = STR_INIT;
    enum script_trap found = SCRIPT_UNSURE;
    if (script_read(pid, &script))
        found = script_trap_find(script.p ? script.p : "", signo);
    str_release(&script);
    return found;
}
