#include "profiles/field.h"

#include <stdio.h>
#include <string.h>

#include "base/id.h"

const char *field_path(char *buf, size_t size, const char *path, const char *key)
{
    snprintf(buf, size, "%s%s%s", path, *path ? "." : "", key);
    return buf;
}

int field_copy_text(char *dst, size_t size, const char *text, const struct json_doc *doc,
                    const char *path, const char *field, struct err *err)
{
    size_t n = strlen(text);
    if (n == 0 || n >= size)
        return err_set(err, ERR_INPUT, "%s: %s%s%s has %zu bytes: give a text of 1 to %zu",
                       doc->name, path, *path ? "." : "", field, n, size - 1);
    if (str_plain(text) < n)
        return err_set(err, ERR_INPUT, "%s: %s%s%s is '%.40s', with a control character as byte "
                       "%zu: give a text without line ends and such", doc->name, path,
                       *path ? "." : "", field, text, str_plain(text) + 1);
    memset(dst, 0, size);
    memcpy(dst, text, n);
    return 0;
}

int field_read_hash(const char *text, const struct json_doc *doc, const char *path,
                    const char *field, struct hash128 *out, struct err *err)
{
    struct id id;
    if (id_parse(text, &id, NULL) < 0)
        return err_set(err, ERR_INPUT, "%s: %s%s%s is '%.40s': give 32 lower-case hex digits",
                       doc->name, path, *path ? "." : "", field, text);
    *out = (struct hash128){id.hi, id.lo};
    return 0;
}

static void int_write(struct json_out *o, const struct json_field *f, int64_t value)
{
    if (f->names && value < 0)
        json_put_text(o, f->name, f->names[-1 - value]);
    else
        json_put_int(o, f->name, value);
}

static void field_write(struct json_out *o, const struct json_field *f, const void *at)
{
    switch (f->type) {
    case JSON_INT: int_write(o, f, *(const int64_t *)at); break;
    case JSON_NUM: json_put_num(o, f->name, *(const double *)at); break;
    case JSON_BOOL: json_put_bool(o, f->name, *(const bool *)at); break;
    case JSON_ENUM: json_put_text(o, f->name, f->names[*(const int *)at]); break;
    case JSON_U64TEXT: json_put_u64text(o, f->name, *(const uint64_t *)at); break;
    case JSON_TEXT:
        if (*(const char *const *)at)
            json_put_text(o, f->name, *(const char *const *)at);
        break;
    case JSON_ANY: break;
    }
}

void field_write_table(struct json_out *o, const struct json_field *fields, size_t n,
                       const void *from)
{
    for (size_t i = 0; i < n; i++)
        field_write(o, &fields[i], (const char *)from + fields[i].offset);
}

static bool is_as_before(const struct json_field *f, const void *at)
{
    return f->later && (f->type == JSON_ENUM ? *(const int *)at == 0 : *(const double *)at == 0);
}

void field_hash_table(struct json_out *o, const struct json_field *fields, size_t n,
                      const void *from)
{
    for (size_t i = 0; i < n; i++)
        if (!is_as_before(&fields[i], (const char *)from + fields[i].offset))
            field_write(o, &fields[i], (const char *)from + fields[i].offset);
}
