/* format: prints pages about our file formats from the tables by which the files are read.
 *
 * Each owner of a format gives its tables (struct json_field, with `help`) as parts: one for each
 * object of the file. To each field's sentence the page adds type, allowed names, bounds and
 * default from the table. `reel format` prints the pages, and docs/formats.md holds them all.
 */
#ifndef PROFILES_FORMAT_H
#define PROFILES_FORMAT_H

#include "base/json.h"

struct format_part {
    const char *path; /* "" for the file's own object, "adamw", "stages[]" */
    const struct json_field *fields;
    size_t n_fields;
    const void *defaults; /* a struct that the table reads into, with its defaults; NULL: none */
};
enum { FORMAT_PARTS = 24 };

struct format {
    const char *name;    /* "run": its page is reel-run(5) */
    const char *title;   /* one clause */
    const char *example; /* a whole file */
    const char *text;    /* paragraphs printed with the fields */
    size_t (*parts)(struct format_part out[FORMAT_PARTS]);
};
extern const struct format *const formats[]; /* ended by NULL */

/* Append the page to `out`; the man page ends with its examples. */
void format_markdown(const struct format *f, struct str *out);
void format_man(const struct format *f, struct str *out);

/* Append text broken at blanks. format_line appends one text and indents its further lines by
 * `indent` blanks. format_paragraphs appends paragraphs, which empty lines separate. */
void format_line(struct str *out, const char *text, int indent);
void format_paragraphs(struct str *out, const char *text);

/* Write the parts that these files own to `out`, and return how many there are. */
size_t run_format(struct format_part *out);
size_t finetune_format(struct format_part *out);
size_t warm_format(struct format_part *out);
size_t plan_format(struct format_part *out);
size_t layout_format_part(struct format_part *out);
size_t model_format(struct format_part *out);
size_t device_format(struct format_part *out);
size_t cluster_format(struct format_part *out);
size_t stack_format(struct format_part *out);
size_t adapter_format(struct format_part *out);
size_t constants_format_parts(struct format_part *out);
void curves_format(struct format_part *out); /* one part of device_format's */

#endif
