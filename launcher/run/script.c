#include "launcher/run/script.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/process.h"
#include "base/spawn.h"
#include "base/str.h"
#include "launcher/sched/proc.h"

enum { SCRIPT_BYTES = 1 << 20 };

/* ---- words ---- */

enum token { TOKEN_WORD, TOKEN_BREAK, TOKEN_END }; /* BREAK: between two commands */

struct reader {
    const char *p;
    struct str word;  /* without its quotes */
    bool expands;     /* it has a variable or a command */
    struct str until; /* the line that ends a here-document which begins with the next line */
};

/* Appends what stands in quotes, and moves behind them. */
static void quoted_read(struct reader *r)
{
    char quote = *r->p++;
    for (; *r->p && *r->p != quote; r->p++) {
        if (quote == '"' && *r->p == '\\' && r->p[1])
            r->p++;
        else if (quote == '"' && (*r->p == '$' || *r->p == '`'))
            r->expands = true;
        str_addc(&r->word, *r->p);
    }
    r->p += *r->p == quote;
}

static bool is_break(char c) { return c && strchr("\n;&|()", c); }

static void word_read(struct reader *r)
{
    str_clear(&r->word);
    r->expands = false;
    while (*r->p && !is_break(*r->p) && !strchr(" \t", *r->p)) {
        if (*r->p == '\'' || *r->p == '"') {
            quoted_read(r);
            continue;
        }
        if (*r->p == '\\' && r->p[1])
            r->p++;
        else if (*r->p == '$' || *r->p == '`')
            r->expands = true;
        str_addc(&r->word, *r->p++);
    }
}

/* Moves behind the here-document that begins here. */
static void document_skip(struct reader *r)
{
    bool ended = false;
    while (*r->p && !ended) {
        const char *line = r->p + strspn(r->p, "\t");
        size_t n = strcspn(line, "\n");
        ended = n == r->until.len && memcmp(line, r->until.p, n) == 0;
        r->p = line + n + (line[n] == '\n');
    }
    str_clear(&r->until);
}

/* Reads the word that ends a here-document, behind "<<". */
static void document_read(struct reader *r)
{
    r->p += 2;
    r->p += *r->p == '-';
    r->p += strspn(r->p, " \t");
    word_read(r);
    str_clear(&r->until);
    str_addn(&r->until, r->word.p, r->word.len);
}

static void blanks_skip(struct reader *r)
{
    for (;;) {
        r->p += strspn(r->p, " \t");
        if (r->p[0] == '\\' && r->p[1] == '\n')
            r->p += 2;
        else if (*r->p == '#')
            r->p += strcspn(r->p, "\n");
        else if (strncmp(r->p, "<<", 2) == 0 && r->p[2] != '<')
            document_read(r);
        else
            return;
    }
}

static enum token next(struct reader *r)
{
    blanks_skip(r);
    if (!*r->p)
        return TOKEN_END;
    if (!is_break(*r->p)) {
        word_read(r);
        return TOKEN_WORD;
    }
    if (*r->p++ == '\n' && r->until.len)
        document_skip(r);
    return TOKEN_BREAK;
}

/* ---- commands ---- */

static bool is_word(const struct reader *r, const char *const *words)
{
    for (; r->word.len && *words; words++)
        if (strcmp(r->word.p, *words) == 0)
            return true;
    return false;
}

/* Tells whether a command may follow this word. */
static bool leads(const struct reader *r)
{
    static const char *const words[] = {"then",    "do",      "else", "elif", "if", "while",
                                        "until",   "!",       "{",    "time", "builtin",
                                        "command", NULL};
    return is_word(r, words);
}

static bool is_signal(const struct reader *r, int signo)
{
    char name[SIGNAL_NAME_BYTES], number[16];
    const char *full = signal_name(signo, name), *word = r->word.len ? r->word.p : "";
    snprintf(number, sizeof number, "%d", signo);
    return strcasecmp(word, full) == 0 || strcmp(word, number) == 0 ||
           (str_starts(full, "SIG") && strcasecmp(word, full + strlen("SIG")) == 0);
}

/* Reads the words of a trap. Returns the token behind them. */
static enum token trap_read(struct reader *r, int signo, struct script_says *out)
{
    static const char *const dashes[] = {"--", NULL}, *const reset[] = {"-", NULL};
    enum token t = next(r);
    if (t == TOKEN_WORD && is_word(r, dashes))
        t = next(r);
    if (t != TOKEN_WORD)
        return t;
    bool takes_back = is_word(r, reset), ignores = !r->word.len;
    while ((t = next(r)) == TOKEN_WORD) {
        bool ours = is_signal(r, signo);
        out->may_trap |= r->expands || (ours && takes_back);
        out->traps |= ours && !takes_back && !ignores;
    }
    return t;
}

struct script_says script_says_find(const char *text, int signo)
{
    static const char *const traps[] = {"trap", NULL}, *const waits[] = {"wait", NULL},
                             *const sources[] = {".", "source", "eval", NULL};
    struct reader r = {.p = text, .word = STR_INIT, .until = STR_INIT};
    struct script_says says = {.read = true};
    bool begins = true; /* the next word is a command */
    for (enum token t; (t = next(&r)) != TOKEN_END;) {
        if (t == TOKEN_WORD && begins && is_word(&r, traps))
            t = trap_read(&r, signo, &says);
        says.waits |= t == TOKEN_WORD && begins && is_word(&r, waits);
        says.sources |= t == TOKEN_WORD && begins && is_word(&r, sources);
        begins = t != TOKEN_WORD || (begins && leads(&r));
        if (t == TOKEN_END)
            break;
    }
    str_release(&r.word);
    str_release(&r.until);
    return says;
}

/* ---- the script of a process ---- */

/* Returns the first of a shell's arguments that is no option, or NULL. *is_text: it is a script
 * itself (-c). */
static const char *operand_find(const struct str *arguments, bool *is_text)
{
    const char *end = arguments->p + arguments->len, *p = arguments->p + strlen(arguments->p) + 1;
    *is_text = false;
    for (; p < end && *p && strchr("-+", *p); p += strlen(p) + 1) {
        char last = p[strlen(p) - 1];
        bool dashes = p[1] == '-';
        if (strcmp(p, "-s") == 0)
            return NULL;
        *is_text |= *p == '-' && !dashes && strchr(p, 'c');
        if (!dashes && strchr("oO", last)) /* the name of an option follows */
            p += strlen(p) + 1;
        if (p >= end)
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

struct script_says script_says_of(pid_t pid, int signo)
{
    struct str script = STR_INIT;
    struct script_says says = {.read = false};
    if (script_read(pid, &script))
        says = script_says_find(script.p ? script.p : "", signo);
    str_release(&script);
    return says;
}

bool script_is_part(pid_t pid)
{
    struct proc_stat stat;
    struct str own = STR_INIT, parents = STR_INIT;
    bool is = proc_stat_read(pid, &stat) && proc_read(pid, "cmdline", &own) &&
              proc_read(stat.parent, "cmdline", &parents) && own.len > 0 &&
              own.len == parents.len && memcmp(own.p, parents.p, own.len) == 0;
    str_release(&own);
    str_release(&parents);
    return is;
}
