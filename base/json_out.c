#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_priv.h"

static const int64_t exact_max = ((int64_t)1 << 53) - 1;

char *json_format_num(double value, char buf[JSON_NUM_BYTES])
{
    if (!isfinite(value)) {
        memcpy(buf, "null", sizeof "null");
        return buf;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, JSON_NUM_BYTES, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    return buf;
}

void json_out_init(struct json_out *o, struct str *s, int indent)
{
    *o = (struct json_out){.s = s, .indent = indent};
}

static void new_line(struct json_out *o, int depth)
{
    if (o->indent <= 0)
        return;
    str_addc(o->s, '\n');
    for (int i = 0; i < depth * o->indent; i++)
        str_addc(o->s, ' ');
}

/* Adds a text in quotes. Bytes that are not UTF-8 (file names, a child's output) become U+FFFD, so
 * that the text stays JSON. */
static void add_quoted(struct str *s, const char *text)
{
    /* Each pair is a character and the letter that follows the backslash in its escape. */
    static const char named[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    str_addc(s, '"');
    for (size_t left = strlen(text); left > 0;) {
        size_t n = json_utf8_len(text, left);
        const char *hit = NULL;
        for (const char *q = named; *q != '\0' && hit == NULL; q += 2)
            hit = *q == *text ? q : NULL;
        if (hit != NULL)
            str_addf(s, "\\%c", hit[1]);
        else if (n == 1 && (unsigned char)*text < 0x20)
            str_addf(s, "\\u%04x", (unsigned)*text);
        else if (n == 0)
            str_add(s, "\xef\xbf\xbd");
        else
            str_addn(s, text, n);
        n += n == 0;
        text += n;
        left -= n;
    }
    str_addc(s, '"');
}

/* Adds what precedes a value: comma, line break, key. */
static void begin_value(struct json_out *o, const char *key)
{
    if (o->depth == 0) {
        BUG_ON(key != NULL || o->done);
        o->done = true;
        return;
    }
    BUG_ON((key == NULL) != o->array[o->depth - 1]);
    if (!o->first[o->depth - 1])
        str_add(o->s, o->indent > 0 ? "," : ", ");
    o->first[o->depth - 1] = false;
    new_line(o, o->depth);
    if (key != NULL) {
        add_quoted(o->s, key);
        str_add(o->s, ": ");
    }
}

static void container_begin(struct json_out *o, const char *key, bool array)
{
    BUG_ON(o->depth >= LIMIT_JSON_DEPTH);
    begin_value(o, key);
    o->first[o->depth] = true;
    o->array[o->depth] = array;
    o->depth++;
    str_addc(o->s, array ? '[' : '{');
}

static void container_end(struct json_out *o, bool array)
{
    BUG_ON(o->depth < 1 || o->array[o->depth - 1] != array);
    o->depth--;
    if (!o->first[o->depth])
        new_line(o, o->depth);
    str_addc(o->s, array ? ']' : '}');
}

void json_obj_begin(struct json_out *o, const char *key)
{
    container_begin(o, key, false);
}

void json_obj_end(struct json_out *o)
{
    container_end(o, false);
}

void json_arr_begin(struct json_out *o, const char *key)
{
    container_begin(o, key, true);
}

void json_arr_end(struct json_out *o)
{
    container_end(o, true);
}

void json_put_text(struct json_out *o, const char *key, const char *value)
{
    begin_value(o, key);
    if (value != NULL)
        add_quoted(o->s, value);
    else
        str_add(o->s, "null");
}

void json_put_int(struct json_out *o, const char *key, int64_t value)
{
    begin_value(o, key);
    bool exact = value >= -exact_max && value <= exact_max;
    str_addf(o->s, exact ? "%" PRId64 : "\"%" PRId64 "\"", value);
}

void json_put_num(struct json_out *o, const char *key, double value)
{
    char buf[JSON_NUM_BYTES];
    begin_value(o, key);
    str_add(o->s, json_format_num(value, buf));
}

void json_put_bool(struct json_out *o, const char *key, bool value)
{
    begin_value(o, key);
    str_add(o->s, value ? "true" : "false");
}

void json_put_u64text(struct json_out *o, const char *key, uint64_t value)
{
    begin_value(o, key);
    str_addf(o->s, "\"%" PRIu64 "\"", value);
}

void json_put_null(struct json_out *o, const char *key)
{
    begin_value(o, key);
    str_add(o->s, "null");
}

void json_put_tree(struct json_out *o, const char *key, const cJSON *tree)
{
    bool object = cJSON_IsObject(tree);
    if (object || cJSON_IsArray(tree)) {
        container_begin(o, key, !object);
        for (const cJSON *c = tree->child; c != NULL; c = c->next)
            json_put_tree(o, object ? c->string : NULL, c);
        container_end(o, !object);
    } else if (cJSON_IsString(tree)) {
        json_put_text(o, key, tree->valuestring);
    } else if (cJSON_IsNumber(tree)) {
        json_put_num(o, key, tree->valuedouble);
    } else if (cJSON_IsBool(tree)) {
        json_put_bool(o, key, cJSON_IsTrue(tree));
    } else {
        json_put_null(o, key);
    }
}
