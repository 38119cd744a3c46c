#include "base/secret.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

enum { TOKEN_BYTES = 16, HEX_BYTES = 32 }; /* shorter runs of known beginnings, or of hexadecimal
                                            * digits, are no tokens */

static bool is_one_of(const char *p, size_t n, const char *const *words)
{
    for (; *words; words++)
        if (strlen(*words) == n && strncasecmp(*words, p, n) == 0)
            return true;
    return false;
}

/* Tells whether a part of a name ends in such a word: "token", "accesstoken". */
static bool part_tells(const char *p, size_t n)
{
    static const char *const whole[] = {"pass", "auth", "authorization", "bearer", "cookie", "jwt",
                                        NULL};
    static const char *const ends[] = {"token",      "secret",      "secrets", "password", "passwd",
                                       "passphrase", "credentials", "credential", "apikey", NULL};
    for (const char *const *e = ends; *e; e++)
        if (n >= strlen(*e) && strncasecmp(p + n - strlen(*e), *e, strlen(*e)) == 0)
            return true;
    return is_one_of(p, n, whole);
}

bool secret_is_name(const char *name, size_t n)
{
    static const char *const last[] = {"key", "keys", NULL};
    size_t from = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && isalnum((unsigned char)name[i]))
            continue;
        if (i > from && (part_tells(name + from, i - from) ||
                         (i == n && from > 0 && is_one_of(name + from, i - from, last))))
            return true;
        from = i + 1;
    }
    return false;
}

static size_t name_length(const char *p)
{
    size_t n = 0;
    while (isalnum((unsigned char)p[n]) || (p[n] && strchr("_-.", p[n])))
        n++;
    return n;
}

/* Tells whether this run of letters and digits is a token by itself. */
static bool is_token(const char *p, size_t n)
{
    static const char *const begins[] = {"hf_",  "sk-",  "ghp_", "gho_", "github_pat_",
                                         "AKIA", "xoxb-", "xoxp-", "eyJ",  NULL};
    for (const char *const *b = begins; *b && n >= TOKEN_BYTES; b++)
        if (strncmp(p, *b, strlen(*b)) == 0)
            return true;
    return n >= HEX_BYTES && strspn(p, "0123456789abcdefABCDEF") >= n;
}

/* Hides the value at p, which ends with its quote, or before a blank or a character that ends a
 * shell's word; with to_end only before a quote. Returns what is behind it. */
static const char *value_hide(const char *p, bool to_end, struct str *out)
{
    char quote = *p == '\'' || *p == '"' ? *p : 0;
    if (quote)
        str_addc(out, *p++);
    char ends[] = {quote, 0};
    size_t n = strcspn(p, quote ? ends : to_end ? "'\"\n" : " \t\n'\";&|()");
    if (*p == '$')
        str_addn(out, p, n);
    else if (n)
        str_add(out, SECRET_HIDDEN);
    return p + n;
}

/* Copies the name at p, and hides the value beside it. Returns what is behind. */
static const char *named_hide(const char *p, size_t n, struct str *out)
{
    const char *at = p + n;
    at += *at == '"' || *at == '\'';
    bool gives = *at == '=' || *at == ':';
    bool option = *p == '-' && (p[n] == ' ' || p[n] == '\t');
    at = gives ? at + 1 : p + n;
    bool header = gives && at[-1] == ':';
    if (header || option)
        at += strspn(at, " \t");
    str_addn(out, p, (size_t)(at - p));
    return gives || (option && *at != '-') ? value_hide(at, header, out) : at;
}

/* Hides the password at p, which is behind "://", if there is one. Returns what is behind it. */
static const char *password_hide(const char *p, struct str *out)
{
    size_t n = strcspn(p, "/ \t\n'\"@"), user = strcspn(p, ":");
    if (p[n] != '@' || user >= n)
        return p;
    str_addn(out, p, user + 1);
    str_add(out, SECRET_HIDDEN);
    return p + n;
}

void secret_hide(const char *word, const char *before, struct str *out)
{
    bool follows = before && *before == '-' && !strchr(before, '=') &&
                   secret_is_name(before, strlen(before));
    if (follows && *word && !strchr("-$", *word)) {
        str_add(out, SECRET_HIDDEN);
        return;
    }
    for (const char *p = word; *p;) {
        size_t n = name_length(p);
        if (n && is_token(p, n)) {
            str_add(out, SECRET_HIDDEN);
            p += n;
        } else if (n && secret_is_name(p, n)) {
            p = named_hide(p, n, out);
        } else if (n) {
            str_addn(out, p, n);
            p += n;
        } else if (strncmp(p, "://", 3) == 0) {
            str_add(out, "://");
            p = password_hide(p + 3, out);
        } else {
            str_addc(out, *p++);
        }
    }
}
