#include "db/view_text.h"

#include <ctype.h>
#include <string.h>

static const char view_begin[] = "\nCREATE VIEW ";

/* Holds a line of a view: the name of the column that ends in it, and its comment. Both are
 * borrowed from the text; a missing one has length 0. */
struct view_line {
    const char *name, *text;
    int name_bytes, text_bytes;
};
/* Walks through the lines of a view. */
struct view_lines {
    const char *at;
    bool ended;
};

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* Finds the last word of the code that ends before `end`. */
static void name_find(const char *begin, const char *end, struct view_line *out)
{
    while (end > begin && !is_word(end[-1]))
        end--;
    out->name = end;
    while (out->name > begin && is_word(out->name[-1]))
        out->name--;
    out->name_bytes = (int)(end - out->name);
}

/* Reads the next line of a view. Returns false at its end. */
static bool line_next(struct view_lines *v, struct view_line *out)
{
    size_t n = strcspn(v->at, "\n");
    const char *begin = v->at, *end = begin + n, *said = memmem(begin, n, "-- ", 3),
               *code = said ? said : end;
    if (v->ended || n == 0)
        return false;
    *out = (struct view_line){0};
    if (said) {
        out->text = said + 3;
        out->text_bytes = (int)(end - out->text);
        name_find(begin, said, out);
    }
    while (code > begin && code[-1] == ' ')
        code--;
    v->ended = (code > begin && code[-1] == ';') || *end == '\0';
    v->at = end + 1;
    return true;
}

static void view_describe(struct str *out, const char *name, size_t name_bytes)
{
    const char *body = strchr(name, '\n') + 1;
    struct view_line line;
    int width = 0;
    for (struct view_lines v = {.at = body}; line_next(&v, &line);)
        width = line.name_bytes > width ? line.name_bytes : width;
    str_addf(out, "\n%.*s\n", (int)name_bytes, name);
    bool in_columns = false;
    for (struct view_lines v = {.at = body}; line_next(&v, &line);) {
        in_columns = in_columns || !line.text || line.name_bytes;
        if (line.text && in_columns)
            str_addf(out, "  %-*.*s  %.*s\n", width, line.name_bytes,
                     line.name_bytes ? line.name : "", line.text_bytes, line.text);
        else if (line.text)
            str_addf(out, "%.*s\n", line.text_bytes, line.text);
    }
}

/* Returns the name of the next view and moves *at to it; NULL: there is none. */
static const char *view_next(const char **at, size_t *name_bytes, bool *is_public)
{
    const char *found = strstr(*at, view_begin);
    if (!found)
        return NULL;
    found += sizeof view_begin - 1;
    *name_bytes = strcspn(found, " ");
    *is_public = strncmp(found, "v_", 2) == 0;
    *at = found;
    return found;
}

void view_text_describe(struct str *out, const char *views, bool is_public)
{
    const char *at = views, *name;
    size_t n;
    bool public;
    while ((name = view_next(&at, &n, &public)))
        if (public == is_public)
            view_describe(out, name, n);
}

void view_text_list(struct str *out, const char *views)
{
    const char *at = views, *name;
    size_t n;
    bool is_public;
    while ((name = view_next(&at, &n, &is_public)))
        if (is_public)
            str_addf(out, "%s%.*s", out->len ? ", " : "", (int)n, name);
}
