#include "curator/clip.h"

#include "base/json.h"

void clip_facts_format(const struct clip *k, struct str *out)
{
    struct json_out o;
    json_out_init(&o, out, 0);
    json_obj_begin(&o, NULL);
    json_put_num(&o, "start_s", k->start_s);
    json_put_num(&o, "end_s", k->end_s);
    json_put_int(&o, "shot", k->shot);
    json_put_num(&o, "fps", k->fps);
    json_put_num(&o, "motion", k->motion);
    json_put_num(&o, "sharpness", k->sharpness);
    json_put_num(&o, "psnr_db", k->psnr_db);
    json_put_bool(&o, "hdr", k->hdr);
    json_obj_end(&o);
}

int clip_facts_parse(const char *text, size_t n, const char *name, struct clip *out,
                     struct err *err)
{
    static const struct json_field fields[] = {
        {"start_s", JSON_NUM, offsetof(struct clip, start_s)},
        {"end_s", JSON_NUM, offsetof(struct clip, end_s)},
        {"shot", JSON_INT, offsetof(struct clip, shot)},
        {"fps", JSON_NUM, offsetof(struct clip, fps)},
        {"motion", JSON_NUM, offsetof(struct clip, motion)},
        {"sharpness", JSON_NUM, offsetof(struct clip, sharpness)},
        {"psnr_db", JSON_NUM, offsetof(struct clip, psnr_db)},
        {"hdr", JSON_BOOL, offsetof(struct clip, hdr)},
    };
    struct json_doc doc = {0};
    int rc;
    if ((rc = json_parse(text, n, name, &doc, err)) < 0)
        return rc;
    rc = json_read(&doc, doc.root, "", fields, ARRAY_LEN(fields), NULL, out, err);
    json_release(&doc);
    return rc;
}

void clip_format(const struct source_conf *c, const struct source *s, const struct clip *k,
                 int64_t text_len, struct str *out)
{
    struct json_out o;
    char hash[HASH_TEXT_BYTES];
    json_out_init(&o, out, 0);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "source", s->name);
    json_put_text(&o, "source_hash", hash_format(s->hash, hash));
    json_put_num(&o, "start_s", k->start_s);
    json_put_num(&o, "end_s", k->end_s);
    json_put_int(&o, "shot", k->shot);
    json_put_num(&o, "fps", k->fps);
    json_put_int(&o, "frames", c->frames);
    json_put_int(&o, "height", c->height);
    json_put_int(&o, "width", c->width);
    json_put_num(&o, "motion", k->motion);
    json_put_num(&o, "sharpness", k->sharpness);
    json_put_num(&o, "psnr_db", k->psnr_db);
    json_put_text(&o, "tokenizer", c->tokenizer->name);
    json_put_text(&o, "text_encoder", c->encoder->name);
    json_put_int(&o, "text_len", text_len);
    if (k->hdr)
        json_put_bool(&o, "hdr", true);
    if (*s->caption)
        json_put_text(&o, "caption", s->caption);
    json_obj_end(&o);
}
