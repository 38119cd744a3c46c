/* json: reads JSON strictly through tables of fields, and writes it by appending.
 *
 * cJSON does the parsing. The functions below add the checks that our formats need: no duplicate or
 * unknown key, no trailing text, no number that is not finite, valid UTF-8, bounded depth. Errors
 * name the file, the key, the value and what is allowed: `run.json: stages[1].gbs is 0: give an
 * integer from 1 to 1048576`.
 *
 * A struct is read by a table of fields:
 *
 *     static const struct json_field fields[] = {
 *         {"layers", JSON_INT, offsetof(struct model, layers), .min = 1, .max = 1024},
 *         {"adaln", JSON_ENUM, offsetof(struct model, adaln), .names = adaln_names,
 *          .optional = true},
 *     };
 *     json_read(&doc, doc.root, "", fields, ARRAY_LEN(fields), &arena, &model, err);
 *
 * Fields that are objects or arrays are declared JSON_ANY, so that they count as known, and are
 * read by a second json_read on json_member(). 64-bit ids, seeds and hashes are strings in JSON:
 * JSON_U64TEXT. A JSON_INT beyond +-(2^53 - 1), where a double loses digits, must be a string: as a
 * number it is refused, and it is written as a string.
 *
 * A syntax error reads `run.json:3:14: expected ',' or '}' after a member, found '"'`; the scanner
 * is json_scan.c.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/str.h"

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

struct json_doc {
    char *name;  /* file name, or another name of the text, for errors */
    cJSON *root;
};

int json_parse(const char *text, size_t len, const char *name, struct json_doc *out,
               struct err *err);
int json_load(const char *path, struct json_doc *out, struct err *err);
void json_release(struct json_doc *doc); /* safe on a zeroed struct */

enum json_type {
    JSON_INT,     /* int64_t, in [min, max] when max > min */
    JSON_NUM,     /* double, in [min, max] when max > min */
    JSON_BOOL,    /* bool */
    JSON_TEXT,    /* const char *, copied into the arena; see json_read */
    JSON_ENUM,    /* int: index into names */
    JSON_U64TEXT, /* uint64_t written as a string, decimal or 0x hex */
    JSON_ANY,     /* accepted, not stored: object, array or value read separately */
};

struct json_field {
    const char *name;
    enum json_type type;
    size_t offset;
    /* if the field is absent, the target keeps its value, so the caller sets defaults first */
    bool optional;
    double min, max;          /* both 0: unbounded */
    /* The words of a JSON_ENUM, ended by NULL. For a JSON_INT, words that stand for -1, -2, ..., or
     * NULL for none. */
    const char *const *names;
    /* The field was added after hashes of the format were published. With the value 0 it is left
     * out of a hash, as if it did not exist. For JSON_ENUM and JSON_NUM. */
    bool later;
    /* the field's meaning, as a clause, for the printed pages (profiles/format.h) */
    const char *help;
};

/* Reads the object `obj`, found at `path` ("" at the root, "stages[1]"), into *out. Texts are
 * copied into `arena`, or borrowed from the tree when arena is NULL. Unknown keys, wrong types,
 * missing fields and values outside the bounds are ERR_INPUT, and so is an obj of NULL (json_member
 * found none). All is checked before anything is stored. */
int json_read(const struct json_doc *doc, const cJSON *obj, const char *path,
              const struct json_field *fields, size_t n_fields, struct arena *arena, void *out,
              struct err *err);

/* Checks that root is an object whose "schema" is exactly `schema` ("reel.plan/1"). */
int json_check_schema(const struct json_doc *doc, const char *schema, struct err *err);

/* Returns a member of an object, NULL if there is none. The three functions below return its value,
 * or `fallback` if it is missing or has another type; they are for records that were checked
 * before. */
const cJSON *json_member(const cJSON *obj, const char *key);
/* Returns a text that is borrowed from the tree. */
const char *json_text(const cJSON *obj, const char *key, const char *fallback);
double json_num(const cJSON *obj, const char *key, double fallback);
int64_t json_int(const cJSON *obj, const char *key, int64_t fallback);

/* ---- writing: a json_out appends to a str and tracks commas and nesting ---- */
struct json_out {
    struct str *s;
    int depth;
    int indent;                   /* spaces a level; 0 = one line */
    bool done;                    /* the root value was begun */
    bool first[LIMIT_JSON_DEPTH]; /* whether the next member is the first of its container */
    bool array[LIMIT_JSON_DEPTH]; /* whether the container is an array: its members have no keys */
};
void json_out_init(struct json_out *o, struct str *s, int indent);
/* Write a value. key is NULL inside arrays and at the root; unbalanced nesting or a missing key is
 * a bug and aborts. Bytes that are not UTF-8 become U+FFFD. A number is written with the fewest
 * digits that read back as the same value; one that is not finite becomes null. */
void json_obj_begin(struct json_out *o, const char *key);
void json_obj_end(struct json_out *o);
void json_arr_begin(struct json_out *o, const char *key);
void json_arr_end(struct json_out *o);
void json_put_text(struct json_out *o, const char *key, const char *value); /* NULL value: null */
void json_put_int(struct json_out *o, const char *key, int64_t value);
void json_put_num(struct json_out *o, const char *key, double value);
void json_put_bool(struct json_out *o, const char *key, bool value);
void json_put_u64text(struct json_out *o, const char *key, uint64_t value);
void json_put_null(struct json_out *o, const char *key);
/* Writes a parsed value as it is. */
void json_put_tree(struct json_out *o, const char *key, const cJSON *tree);

/* Search a text that a json_out wrote, without parsing it, and return a pointer into it, or NULL.
 * json_written_key finds a key, given with its quotes (`"token"`), in the object at the beginning
 * of the text. json_written_twice finds a key that its object has twice. */
const char *json_written_key(const char *object, const char *quoted);
const char *json_written_twice(const char *text);

/* Writes the fewest of 15 to 17 digits that read back as `value`, or "null" when it is not finite.
 * Returns buf. */
enum { JSON_NUM_BYTES = 32 };
char *json_format_num(double value, char buf[JSON_NUM_BYTES]);

/* Returns the length in bytes (1 to 4) of the UTF-8 sequence at p, of which n > 0 bytes may be
 * read, or 0 if there is no valid one. */
size_t json_utf8_len(const char *p, size_t n);

#endif
