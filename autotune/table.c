/* This file reads comma-separated lines (RFC 4180): a field in quotes may hold commas, line ends,
 * and doubled quotes. Columns are found by the names in the first line, where each stands once;
 * unknown columns are ignored.
 */
#include "autotune/table.h"

#include <stdlib.h>
#include <string.h>

#include "autotune/table_priv.h"
#include "base/file.h"
#include "base/str.h"

#define COLUMN_NAME(name) #name,
static const char *const column_names[] = {TABLE_COLUMN_LIST(COLUMN_NAME) NULL};
enum { TABLE_BYTES = 64 << 20, TABLE_FIELDS = 256 };

const char *const table_no_run = "no run can have its values";

#define BYTE_ORDER_MARK "\xEF\xBB\xBF" /* some spreadsheets write it first */

/* Points into a text that is cut into fields in place. */
struct cursor {
    char *at;
    int64_t line;
    bool end_of_line;
    bool open;   /* the text ended inside quotes */
    bool stray; /* a quote stands inside a field, or text behind the one that closes it */
};

/* Goes past what ends a field: a comma, a line end of one or two bytes, or the end of the text. */
static void field_end(struct cursor *c)
{
    char ended = *c->at;
    c->stray |= ended && !strchr(",\r\n", ended);
    c->end_of_line = ended != ',';
    c->line += ended == '\r' || ended == '\n';
    if (ended == '\r' && c->at[1] == '\n')
        c->at++;
    if (ended)
        c->at++;
}

/* Returns the next field, terminated in place. */
static char *field_next(struct cursor *c)
{
    char *begin = c->at, *to = c->at;
    bool quoted = *c->at == '"';
    if (quoted)
        begin = to = ++c->at;
    for (;; c->at++) {
        c->open = quoted && !*c->at;
        if (!*c->at || (!quoted && strchr(",\r\n", *c->at)))
            break;
        c->stray = c->stray || (!quoted && *c->at == '"');
        if (quoted && *c->at == '"') {
            if (c->at[1] != '"') {
                c->at++;
                break;
            }
            c->at++;
        }
        c->line += *c->at == '\n';
        *to++ = *c->at;
    }
    field_end(c);
    *to = '\0';
    return begin;
}

/* Returns how many fields the next line has. Those beyond TABLE_FIELDS are counted only. */
static size_t fields_next(struct cursor *c, char *fields[TABLE_FIELDS])
{
    size_t n = 0;
    do {
        char *f = field_next(c);
        if (n < TABLE_FIELDS)
            fields[n] = f;
        n++;
    } while (!c->end_of_line);
    return n;
}

/* Returns the place of the first column with this name from `from` on; n: there is none. */
static size_t column_find(char **names, size_t n, size_t from, const char *name)
{
    while (from < n && strcmp(names[from], name) != 0)
        from++;
    return from;
}

static int columns_find(const char *file, char **names, size_t n, size_t at[TABLE_COLUMNS],
                        struct err *err)
{
    if (n > TABLE_FIELDS)
        return err_set(err, ERR_INPUT, "%s:1: has %zu columns: give at most %d", file, n,
                       TABLE_FIELDS);
    for (int c = 0; c < TABLE_COLUMNS; c++) {
        at[c] = column_find(names, n, 0, column_names[c]);
        if (at[c] == n)
            return err_set(err, ERR_INPUT,
                           "%s:1: there is no column '%s': give the 43 columns that 'reel score "
                           "--help' names",
                           file, column_names[c]);
        size_t again = column_find(names, n, at[c] + 1, column_names[c]);
        if (again < n)
            return err_set(err, ERR_INPUT,
                           "%s:1: column '%s' stands twice, as field %zu and field %zu: keep the "
                           "one that holds", file, column_names[c], at[c] + 1, again + 1);
    }
    return 0;
}

/* Holds what is needed while a table is read. */
struct reading {
    struct table_profiles profiles;
    struct table_index words;
    size_t room; /* for this many cases */
    size_t refused_room;
};

static int case_add(struct table *t, struct reading *r, const struct table_case *c, struct err *err)
{
    if (t->n == r->room) {
        r->room = r->room ? 2 * r->room : 64;
        struct table_case *cases = realloc(t->cases, r->room * sizeof *cases);
        if (!cases)
            return err_set(err, ERR_NOMEM, "out of memory for %zu rows of %s", r->room, t->name);
        t->cases = cases;
    }
    t->cases[t->n++] = *c;
    return 0;
}

/* Adds a case that is skipped, and why its row is refused to the table's list. */
static int refused_add(struct table *t, struct reading *r, const char *says, struct err *err)
{
    struct table_case c = {.row = (int64_t)t->n + 1, .skipped = table_no_run};
    if (t->n_refused == r->refused_room) {
        r->refused_room = r->refused_room ? 2 * r->refused_room : 16;
        struct table_refused *more = realloc(t->refused, r->refused_room * sizeof *more);
        if (!more)
            return err_set(err, ERR_NOMEM, "out of memory for the rows of %s", t->name);
        t->refused = more;
    }
    t->refused[t->n_refused] = (struct table_refused){c.row, strdup(says)};
    if (!t->refused[t->n_refused++].says)
        return err_set(err, ERR_NOMEM, "out of memory for the rows of %s", t->name);
    return case_add(t, r, &c, err);
}

static int line_read(struct table *t, struct reading *r, const struct table_line *line,
                     struct err *err)
{
    struct table_case c = {0};
    struct err why;
    int rc = table_case_read(line, &r->profiles, &c, &why);
    if (rc == ERR_INPUT)
        return refused_add(t, r, why.text, err);
    if (rc < 0) {
        *err = why;
        return rc;
    }
    if ((rc = table_words_note(t, &r->words, &r->profiles, line, &c, err)) < 0)
        return rc;
    c.row = (int64_t)t->n + 1;
    return case_add(t, r, &c, err);
}

/* Refuses a line whose quotes do not stand around whole fields. */
static int quotes_check(const char *file, int64_t line, const struct cursor *c, struct err *err)
{
    if (c->open)
        return err_set(err, ERR_INPUT, "%s:%lld: has a quote that is not closed: close it", file,
                       (long long)line);
    if (c->stray)
        return err_set(err, ERR_INPUT, "%s:%lld: has a quote that does not stand around a whole "
                       "field: put all of it in quotes, and double each quote in it", file,
                       (long long)line);
    return 0;
}

static int lines_read(struct table *t, struct reading *r, char *text, struct err *err)
{
    struct cursor c = {.at = text, .line = 1};
    char *fields[TABLE_FIELDS];
    size_t at[TABLE_COLUMNS], n = fields_next(&c, fields);
    int rc;
    if ((rc = quotes_check(t->name, 1, &c, err)) < 0)
        return rc;
    rc = columns_find(t->name, fields, n, at, err);
    while (rc == 0 && *c.at) {
        struct table_line line = {.file = t->name, .number = c.line};
        size_t got = fields_next(&c, fields);
        if ((rc = quotes_check(t->name, line.number, &c, err)) < 0)
            return rc;
        if (got == 1 && !*fields[0])
            continue; /* an empty line */
        if (got != n)
            return err_set(err, ERR_INPUT,
                           "%s:%lld: %zu fields, the header has %zu: is the line whole, and each "
                           "quote closed?",
                           t->name, (long long)line.number, got, n);
        for (int i = 0; i < TABLE_COLUMNS; i++)
            line.field[i] = fields[at[i]];
        rc = line_read(t, r, &line, err);
    }
    if (rc == 0 && t->n == 0)
        return err_set(err, ERR_INPUT, "%s: has no row below its header: give a table with one",
                       t->name);
    return rc;
}

/* Refuses bytes of value 0, which a full disk or a power loss leaves in a file: the rows after them
 * would be lost without an error. */
static int nul_check(const char *path, const struct str *text, struct err *err)
{
    long long line = 1;
    size_t whole = strlen(text->p);
    if (whole == text->len)
        return 0;
    for (size_t i = 0; i < whole; i++)
        line += text->p[i] == '\n';
    return err_set(err, ERR_INPUT, "%s:%lld: has a byte of value 0: write the table anew", path,
                   line);
}

int table_load(const char *path, struct table *out, struct err *err)
{
    struct str text = STR_INIT;
    struct table t = {.name = strdup(path)};
    struct reading reading = {0};
    int rc;
    if (!t.name) {
        rc = err_set(err, ERR_NOMEM, "out of memory for %s", path);
        goto out;
    }
    if ((rc = file_read(path, TABLE_BYTES, &text, err)) < 0)
        goto out;
    if ((rc = nul_check(path, &text, err)) < 0)
        goto out;
    char *begin = text.p + (str_starts(text.p, BYTE_ORDER_MARK) ? strlen(BYTE_ORDER_MARK) : 0);
    if ((rc = table_profiles_load(&reading.profiles, err)) < 0)
        goto out;
    if ((rc = lines_read(&t, &reading, begin, err)) < 0)
        goto out;
    *out = t;
    t = (struct table){0}; /* the caller owns it now */
out:
    table_release(&t);
    table_profiles_release(&reading.profiles);
    free(reading.words.slots);
    str_release(&text);
    return rc;
}

int table_refused_check(const struct table *t, struct err *err)
{
    return t->n_refused ? err_set(err, ERR_INPUT, "%s", t->refused[0].says) : 0;
}

void table_release(struct table *t)
{
    for (size_t i = 0; i < t->n_refused; i++)
        free(t->refused[i].says);
    free(t->refused);
    free(t->name);
    free(t->cases);
    free(t->words);
    *t = (struct table){0};
}
