#include "trainer/cuda/gemm_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"

static const char first_line[] = "reel.gemm/1";
enum { FIELDS = 4, FILE_BYTES_MAX = 64 << 20 };

/* Parses the name of a type that products have. */
static bool type_parse(const char *name, int32_t *out)
{
    for (int32_t d = DTYPE_F64; d <= DTYPE_BF16; d++)
        if (strcmp(name, dtype_names[d]) == 0) {
            *out = d;
            return true;
        }
    return false;
}

static bool form_parse(const char *text, struct gemm_key *key)
{
    key->ta = text[0] == 't';
    key->tb = text[1] == 't';
    return strspn(text, "nt") == 2 && text[2] == '\0';
}

/* Returns whether a product can have these dimensions. */
static bool key_is_sound(const struct gemm_key *k)
{
    return k->m > 0 && k->n > 0 && k->k > 0 && k->lda >= (k->ta ? k->m : k->k) &&
           k->ldb >= (k->tb ? k->k : k->n) && k->ldd >= k->n;
}

bool gemm_product_parse(const char *text, struct gemm_key *key)
{
    char in[8], out[8], form[4];
    int end = 0;
    int got = sscanf(text, "%7s %7s %3s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
                     " %" SCNd64 "%n", in, out, form, &key->m, &key->n, &key->k, &key->lda,
                     &key->ldb, &key->ldd, &end);
    return got == 9 && text[end] == '\0' && type_parse(in, &key->in) &&
           type_parse(out, &key->out) && form_parse(form, key) && key_is_sound(key);
}

void gemm_product_print(const struct gemm_key *k, struct str *out)
{
    str_addf(out, "%s %s %c%c %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64,
             dtype_names[k->in], dtype_names[k->out], k->ta ? 't' : 'n', k->tb ? 't' : 'n', k->m,
             k->n, k->k, k->lda, k->ldb, k->ldd);
}

void gemm_entry_print(const struct gemm_entry *e, const char *device, int64_t version,
                      struct str *out)
{
    str_addf(out, "%s\t%" PRId64 "\t", device, version);
    gemm_product_print(&e->key, out);
    for (int i = 0; i < GEMM_ALGO_WORDS; i++)
        str_addf(out, "%c%016" PRIx64, i ? ' ' : '\t', e->algo[i]);
    str_addf(out, "\n");
}

static bool algo_parse(const char *text, uint64_t algo[GEMM_ALGO_WORDS])
{
    for (int i = 0; i < GEMM_ALGO_WORDS; i++, text += 16) {
        if (i > 0 && *text++ != ' ')
            return false;
        if (strspn(text, "0123456789abcdef") < 16)
            return false;
        char word[17] = {0};
        memcpy(word, text, 16);
        algo[i] = strtoull(word, NULL, 16);
    }
    return *text == '\0';
}

/* Splits a line at its tabs. Returns the number of fields; writes the first FIELDS of them. */
static int fields_cut(char *line, char *fields[FIELDS])
{
    int n = 0;
    for (char *at = line; at; n++) {
        char *field = strsep(&at, "\t");
        if (n < FIELDS)
            fields[n] = field;
    }
    return n;
}

static int damaged(const char *path, int line, const char *what, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: line %d: %s: write the table anew, or leave "
                   "REEL_GEMM_TABLE unset", path, line, what);
}

static int entry_add(struct gemm_table *t, const struct gemm_entry *e, const char *path,
                     struct err *err)
{
    if (gemm_table_find(t, &e->key))
        return damaged(path, e->line, "its product has a line already", err);
    if ((t->n & (t->n - 1)) == 0) { /* the array is full: double it */
        size_t room = t->n ? 2 * (size_t)t->n : 1;
        struct gemm_entry *more = realloc(t->entries, room * sizeof *more);
        if (!more)
            return err_set(err, ERR_NOMEM, "%s: no memory for the table", path);
        t->entries = more;
    }
    t->entries[t->n++] = *e;
    return 0;
}

/* Counts a line of another device or version, and records the first such line. */
static void foreign_note(struct gemm_foreign *f, int line, const char *device, int64_t version)
{
    if (f->n++ > 0)
        return;
    f->line = line;
    f->version = version;
    snprintf(f->device, sizeof f->device, "%s", device);
}

static int line_parse(struct gemm_table *t, char *line, int number, const char *path,
                      const char *device, int64_t version, struct err *err)
{
    struct gemm_entry e = {.line = number};
    char *fields[FIELDS];
    int64_t of;
    if (line[0] == '#')
        return 0;
    if (fields_cut(line, fields) != FIELDS)
        return damaged(path, number, "it has not four fields with tabs between them", err);
    if (num_parse_i64(fields[1], "the version", &of, NULL) < 0)
        return damaged(path, number, "the library's version is no number", err);
    if (!gemm_product_parse(fields[2], &e.key))
        return damaged(path, number, "the third field is no product", err);
    if (!algo_parse(fields[3], e.algo))
        return damaged(path, number, "the fourth field is not eight words of 16 hex digits", err);
    if (of != version || strcmp(fields[0], device) != 0) {
        foreign_note(&t->foreign, number, fields[0], of);
        return 0;
    }
    return entry_add(t, &e, path, err);
}

static int lines_parse(struct gemm_table *t, char *text, const char *path, const char *device,
                       int64_t version, struct err *err)
{
    int rc, number = 1;
    char *line = strsep(&text, "\n");
    if (strcmp(line, first_line) != 0)
        return err_set(err, ERR_INPUT, "%s: the first line is not \"%s\": this is no table of "
                       "products; give another file, or leave REEL_GEMM_TABLE unset", path,
                       first_line);
    for (; text && *text; number++)
        if ((line = strsep(&text, "\n")) &&
            (rc = line_parse(t, line, number + 1, path, device, version, err)) < 0)
            return rc;
    return 0;
}

int gemm_table_load(const char *path, const char *device, int64_t version, struct gemm_table *out,
                    struct err *err)
{
    struct gemm_table t = {0};
    struct str text = STR_INIT;
    int rc;
    if ((rc = file_read(path, FILE_BYTES_MAX, &text, err)) < 0)
        goto out;
    if (strlen(text.p) != text.len) {
        rc = damaged(path, 1, "the file holds bytes that no text has", err);
        goto out;
    }
    if ((rc = lines_parse(&t, text.p, path, device, version, err)) < 0)
        goto out;
    *out = t;
    t = (struct gemm_table){0};
out:
    gemm_table_release(&t);
    str_release(&text);
    return rc;
}

void gemm_table_release(struct gemm_table *t)
{
    free(t->entries);
    *t = (struct gemm_table){0};
}

const struct gemm_entry *gemm_table_find(const struct gemm_table *t, const struct gemm_key *key)
{
    for (int i = 0; i < t->n; i++)
        if (memcmp(&t->entries[i].key, key, sizeof *key) == 0)
            return &t->entries[i];
    return NULL;
}

bool gemm_entry_is_own(const struct gemm_entry *e)
{
    uint64_t all = 0;
    for (int i = 0; i < GEMM_ALGO_WORDS; i++)
        all |= e->algo[i];
    return all == 0;
}
