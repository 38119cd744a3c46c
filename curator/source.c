#include "curator/source.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/npy.h"
#include "base/num.h"
#include "base/wds.h"
#include "curator/clip.h"
#include "curator/frames.h"

enum { CAPTION_BYTES = 8192, CAPTION_FILE_BYTES = 1 << 20 };

char *source_key(const struct source_conf *c, const struct source *s, char out[HASH_TEXT_BYTES])
{
    struct { struct hash128 options, content; } all = {c->options, s->hash};
    return hash_format(hash_128(&all, sizeof all), out);
}

void source_release(struct source *s)
{
    free(s->path);
    free(s->name);
    free(s->caption);
    *s = (struct source){0};
}

/* ---- captions ---- */

enum { SIDECAR_BYTES = LIMIT_PATH_BYTES + 8 };

/* Finds the file with the video's name and another ending, which may be a dangling link. */
static bool sidecar_find(const char *video, const char *ending, char path[SIDECAR_BYTES])
{
    struct stat st;
    const char *slash = strrchr(video, '/'), *dot = strrchr(video, '.');
    int stem = dot && dot > (slash ? slash : video) ? (int)(dot - video) : (int)strlen(video);
    snprintf(path, SIDECAR_BYTES, "%.*s%s", stem, video, ending);
    return lstat(path, &st) == 0 || (errno != ENOENT && errno != ENAMETOOLONG);
}

/* Reads the file with the video's name and another ending. Returns 1: there is one; 0: there is
 * none. If it exists and cannot be read, like a dangling link, that is an error. */
static int sidecar_read(const char *video, const char *ending, struct str *out, struct err *err)
{
    char path[SIDECAR_BYTES];
    if (!sidecar_find(video, ending, path))
        return 0;
    int rc = file_read(path, CAPTION_FILE_BYTES, out, err);
    return rc < 0 ? rc : 1;
}

/* Returns the text after the byte order mark that some editors write at the beginning of UTF-8
 * files. */
static const char *mark_skip(const struct str *text)
{
    static const char mark[] = "\xef\xbb\xbf";
    return text->p + (strncmp(text->p, mark, strlen(mark)) == 0 ? strlen(mark) : 0);
}

/* Stores the caption. It must be valid UTF-8 and not too long. */
static int caption_take(struct source *s, const char *text, size_t n, struct err *err)
{
    if (n >= CAPTION_BYTES)
        return err_set(err, ERR_INPUT, "caption of %s: %zu bytes: at most %d are kept, shorten it",
                       s->name, n, CAPTION_BYTES - 1);
    for (size_t i = 0, step; i < n; i += step)
        if ((step = text[i] ? json_utf8_len(text + i, n - i) : 0) == 0)
            return err_set(err, ERR_INPUT, "caption of %s: byte %zu is not valid UTF-8: save the "
                                           "file as UTF-8", s->name, i + 1);
    s->caption = strndup(n ? text : "", n);
    return s->caption ? 0 : err_set(err, ERR_NOMEM, "out of memory for the caption of %s", s->name);
}

/* Removes all keys other than "caption", and a caption of null. Returns the number of other
 * keys. */
static int64_t other_keys_drop(cJSON *root)
{
    int64_t n = 0;
    if (!cJSON_IsObject(root))
        return 0;
    for (cJSON *at = root->child, *next; at; at = next) {
        bool caption = strcmp(at->string, "caption") == 0;
        next = at->next;
        if (!caption || cJSON_IsNull(at))
            cJSON_Delete(cJSON_DetachItemViaPointer(root, at)), n += !caption;
    }
    return n;
}

static int json_caption(const struct source *s, bool strict, struct json_doc *doc,
                        const char **out, int64_t *unused_keys, bool *missing, struct err *err)
{
    static const struct json_field fields[] = {{"caption", JSON_TEXT, 0}};
    char name[LIMIT_PATH_BYTES + 32];
    struct str text = STR_INIT;
    int rc;
    if ((rc = sidecar_read(s->path, ".json", &text, err)) <= 0)
        goto out;
    const char *json = mark_skip(&text);
    snprintf(name, sizeof name, "caption of %s", s->name);
    if ((rc = json_parse(json, text.len - (size_t)(json - text.p), name, doc, err)) < 0)
        goto out;
    *unused_keys = strict ? 0 : other_keys_drop(doc->root);
    *missing = !strict && cJSON_IsObject(doc->root) && !doc->root->child;
    if (!*missing)
        rc = json_read(doc, doc->root, "", fields, ARRAY_LEN(fields), NULL, out, err);
out:
    str_release(&text);
    return rc;
}

int source_caption_read(struct source *s, bool strict, int64_t *unused_keys, bool *missing,
                        struct err *err)
{
    struct str text = STR_INIT;
    struct json_doc doc = {0};
    const char *caption = "";
    size_t n = 0;
    int rc;
    if ((rc = sidecar_read(s->path, ".txt", &text, err)) < 0)
        goto out;
    if (rc == 1) {
        caption = mark_skip(&text);
        while (caption + n < text.p + text.len && caption[n] != '\r' && caption[n] != '\n')
            n++;
    } else {
        if ((rc = json_caption(s, strict, &doc, &caption, unused_keys, missing, err)) < 0)
            goto out;
        n = strlen(caption);
    }
    rc = caption_take(s, caption, n, err);
out:
    json_release(&doc);
    str_release(&text);
    return rc;
}

enum captioned source_captioned(const struct source *s)
{
    struct source look = {.path = s->path, .name = s->name};
    int64_t keys = 0;
    bool missing = false;
    int rc = source_caption_read(&look, false, &keys, &missing, NULL);
    enum captioned found = rc < 0 ? CAPTIONED_BADLY : *look.caption ? CAPTIONED : CAPTIONED_NOT;
    free(look.caption);
    return found;
}

/* ---- clips ---- */

struct clip_buffers { uint8_t *rgb, *back; float *latent; };

/* Holds the clips of one source while they are planned and made. */
struct clips {
    const struct frames *f;
    const struct source *s;
    struct source_result *r;
    int64_t *first, *shot; /* of each clip: its first kept frame, its shot */
    struct wds_writer *writer;
    struct clip_buffers b;
};

/* Returns the mean absolute Laplacian of green in the middle frame, in 8-bit units. */
static double sharpness_of(const struct source_conf *c, const uint8_t *rgb)
{
    const uint8_t *f = rgb + (c->frames / 2) * c->height * c->width * 3 + 1;
    double sum = 0;
    for (int y = 1; y < c->height - 1; y++)
        for (int x = 1; x < c->width - 1; x++) {
            const uint8_t *p = f + (y * c->width + x) * 3;
            sum += abs(4 * p[0] - p[-3] - p[3] - p[-3 * c->width] - p[3 * c->width]);
        }
    return sum / ((double)(c->height - 2) * (c->width - 2));
}

/* Returns how much successive frames differ in the clip that begins at kept frame `first`. */
static double motion_of(const struct frames *f, int64_t first)
{
    int64_t from = f->index[first] + 1, to = f->index[first + f->c->frames - 1];
    double sum = 0;
    for (int64_t i = from; i <= to; i++)
        sum += shots_difference(f->shots, i);
    return to >= from ? sum / (double)(to - from + 1) : 0;
}

static int clip_write(struct clips *w, int64_t ordinal, const struct clip *k, struct err *err)
{
    const struct source_conf *c = w->f->c;
    struct str latent = STR_INIT, facts = STR_INIT;
    char key[64], hash[HASH_TEXT_BYTES];
    const int64_t shape[] = {c->tokenizer->channels, tokenizer_latent_frames(c->frames),
                             c->height / 8, c->width / 8};
    int rc;
    npy_format(w->b.latent, shape, 4, &latent);
    clip_facts_format(k, &facts);
    snprintf(key, sizeof key, "%.16s-%05lld", hash_format(w->s->hash, hash), (long long)ordinal);
    struct wds_part parts[] = {{"json", facts.p, (int64_t)facts.len},
                               {"latent.npy", latent.p, (int64_t)latent.len}};
    if (latent.failed || facts.failed)
        rc = err_set(err, ERR_NOMEM, "out of memory for a clip");
    else
        rc = wds_writer_add(w->writer, key, parts, ARRAY_LEN(parts), err);
    str_release(&latent);
    str_release(&facts);
    return rc;
}

/* Describes, tokenises and writes one clip, whose pictures are in w->b.rgb. */
static int clip_make(void *ctx, int64_t i, struct err *err)
{
    struct clips *w = ctx;
    const struct frames *f = w->f;
    const struct source_conf *c = f->c;
    const struct clip_buffers *b = &w->b;
    int64_t first = w->first[i], last = first + c->frames - 1;
    struct clip k = {.shot = w->shot[i], .start_s = f->time_s[first], .end_s = f->time_s[last],
                     .hdr = w->r->hdr};
    int rc;
    k.fps = c->fps > 0            ? c->fps
            : k.end_s > k.start_s ? (double)(c->frames - 1) / (k.end_s - k.start_s)
                                  : 24;
    k.motion = motion_of(f, first);
    k.sharpness = sharpness_of(c, b->rgb);
    if ((rc = c->tokenizer->encode(b->rgb, c->frames, c->height, c->width, b->latent, err)) < 0 ||
        (rc = c->tokenizer->decode(b->latent, c->frames, c->height, c->width, b->back, err)) < 0)
        return rc;
    k.psnr_db = psnr(b->rgb, b->back, c->frames * f->frame_bytes);
    w->r->psnr_sum += k.psnr_db;
    return clip_write(w, i, &k, err);
}

/* Plans clips in every shot, one directly after the other, and counts the frames that do not fill a
 * clip. */
static int clips_plan(struct clips *w, struct err *err)
{
    const struct frames *f = w->f;
    const int64_t *bounds;
    int64_t n = shots_end(f->shots, &bounds, err);
    size_t most = (size_t)(f->n / f->c->frames + 1);
    if (n < 0)
        return (int)n;
    if (!(w->first = calloc(most, sizeof *w->first)) || !(w->shot = calloc(most, sizeof *w->shot)))
        return err_set(err, ERR_NOMEM, "out of memory for %zu clips", most);
    w->r->shots = n;
    for (int64_t i = 0; i < n; i++) {
        int64_t first = frames_at(f, bounds[i]), at = first,
                end = i + 1 < n ? frames_at(f, bounds[i + 1]) : f->n;
        for (; at + f->c->frames <= end; at += f->c->frames) {
            w->first[w->r->clips] = at;
            w->shot[w->r->clips++] = i;
        }
        w->r->rejected += at == first;
        w->r->unused_frames += end - at;
    }
    return 0;
}

static int buffers_take(const struct source_conf *c, struct clip_buffers *b, struct err *err)
{
    size_t rgb = (size_t)(c->frames * c->height * c->width * 3);
    *b = (struct clip_buffers){malloc(rgb), malloc(rgb),
                               malloc((size_t)tokenizer_elements(c->tokenizer, c->frames, c->height,
                                                                 c->width) * sizeof(float))};
    return b->rgb && b->back && b->latent ? 0
        : err_set(err, ERR_NOMEM, "out of memory for clips of %dx%d", c->height, c->width);
}

/* Writes the planned clips as a shard. Returns 1 when the source is bad, with the reason in *why;
 * then there is no shard. */
static int shard_write(struct clips *w, struct frames *f, struct err *why, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    int rc;
    source_shard_path(f->c, w->s, path);
    if ((rc = buffers_take(f->c, &w->b, err)) < 0)
        return rc;
    if ((rc = wds_writer_open(path, &w->writer, err)) < 0)
        return rc;
    if ((rc = frames_clips(f, w->s, w->first, w->r->clips, w->b.rgb, clip_make, w, why, err)) != 0)
        return rc;
    rc = wds_writer_close(w->writer, NULL, err);
    w->writer = NULL;
    return rc;
}

/* Makes the shard, if there is a clip. Returns the same as shard_write. */
static int clips_publish(struct frames *f, const struct source *s, struct source_result *r,
                         struct err *why, struct err *err)
{
    struct clips w = {.f = f, .s = s, .r = r};
    int rc;
    if ((rc = clips_plan(&w, err)) < 0)
        goto out;
    if (r->clips > 0)
        rc = shard_write(&w, f, why, err);
out:
    wds_writer_abort(w.writer);
    free(w.b.rgb);
    free(w.b.back);
    free(w.b.latent);
    free(w.first);
    free(w.shot);
    return rc;
}

/* ---- the result's file ---- */

static void record_path(const struct source_conf *c, const struct source *s,
                        char out[LIMIT_PATH_BYTES])
{
    char key[HASH_TEXT_BYTES];
    snprintf(out, LIMIT_PATH_BYTES, "%s/%s.json", c->work_dir, source_key(c, s, key));
}

void source_shard_path(const struct source_conf *c, const struct source *s,
                       char out[LIMIT_PATH_BYTES])
{
    char key[HASH_TEXT_BYTES];
    snprintf(out, LIMIT_PATH_BYTES, "%s/%s.tar", c->work_dir, source_key(c, s, key));
}

struct result_row { struct source_result r; const char *reason, *note; };
#define AT(field) offsetof(struct result_row, r.field)
static const struct json_field result_fields[] = {
    {"ok", JSON_BOOL, AT(ok)},
    {"frames", JSON_INT, AT(frames)},
    {"shots", JSON_INT, AT(shots)},
    {"clips", JSON_INT, AT(clips)},
    {"rejected", JSON_INT, AT(rejected)},
    {"unused_frames", JSON_INT, AT(unused_frames)},
    {"seconds", JSON_NUM, AT(seconds)},
    {"psnr_sum", JSON_NUM, AT(psnr_sum)},
    {"cropped", JSON_NUM, AT(cropped)},
    {"hdr", JSON_BOOL, AT(hdr)},
    {"reason", JSON_TEXT, offsetof(struct result_row, reason)},
    {"note", JSON_TEXT, offsetof(struct result_row, note)},
};

int source_result_load(const struct source_conf *c, const struct source *s,
                       struct source_result *out, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct json_doc doc = {0};
    struct result_row row = {0};
    int rc;
    record_path(c, s, path);
    if (!file_exists(path))
        return err_set(err, ERR_NOT_FOUND, "'%s' is not there", path);
    if ((rc = json_load(path, &doc, err)) < 0)
        return rc;
    if ((rc = json_read(&doc, doc.root, "", result_fields, ARRAY_LEN(result_fields), NULL, &row,
                        err)) < 0)
        goto out;
    *out = row.r;
    snprintf(out->reason, sizeof out->reason, "%s", row.reason);
    snprintf(out->note, sizeof out->note, "%s", row.note);
out:
    json_release(&doc);
    return rc;
}

static int result_save(const struct source_conf *c, const struct source *s,
                       const struct source_result *r, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    struct str text = STR_INIT;
    struct json_out o;
    int rc;
    json_out_init(&o, &text, 0);
    json_obj_begin(&o, NULL);
    json_put_bool(&o, "ok", r->ok);
    json_put_int(&o, "frames", r->frames);
    json_put_int(&o, "shots", r->shots);
    json_put_int(&o, "clips", r->clips);
    json_put_int(&o, "rejected", r->rejected);
    json_put_int(&o, "unused_frames", r->unused_frames);
    json_put_num(&o, "seconds", r->seconds);
    json_put_num(&o, "psnr_sum", r->psnr_sum);
    json_put_num(&o, "cropped", r->cropped);
    json_put_bool(&o, "hdr", r->hdr);
    json_put_text(&o, "reason", r->reason);
    json_put_text(&o, "note", r->note);
    json_obj_end(&o);
    record_path(c, s, path);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    rc = file_publish(path, text.p, text.len, err);
out:
    str_release(&text);
    return rc;
}

/* Says whether the work is done. A source that was bad counts as not done, because it may be better
 * now. The shard must exist too: a process that was removing the work folder may have removed it
 * and not yet the file of the result. */
static bool is_done(const struct source_conf *c, const struct source *s, struct source_result *out)
{
    char path[LIMIT_PATH_BYTES];
    source_shard_path(c, s, path);
    return source_result_load(c, s, out, NULL) == 0 && out->ok &&
           (out->clips == 0 || file_exists(path));
}

/* Saves that the source gave no clip, and why. `frames` is how many of its frames were decoded. */
static int bad_save(const struct source_conf *c, const struct source *s, int64_t frames,
                    const char *why, struct source_result *out,
                    struct err *err)
{
    *out = (struct source_result){.frames = frames};
    snprintf(out->reason, sizeof out->reason, "%.250s", why);
    return result_save(c, s, out, err);
}

/* Makes the clips of a source that was decoded, and saves the result. Returns 1 when the source is
 * bad after all, with the reason in *why. */
static int source_finish(struct frames *f, const struct source *s, const struct video_info *info,
                         struct source_result *out, struct err *why, struct err *err)
{
    int rc;
    *out = (struct source_result){.ok = true,
                                  .frames = info->frames, .seconds = info->seconds,
                                  .cropped = info->cropped, .hdr = info->hdr};
    snprintf(out->reason, sizeof out->reason, "%s", info->damage);
    snprintf(out->note, sizeof out->note, "%s", info->note);
    if ((rc = clips_publish(f, s, out, why, err)) != 0)
        return rc;
    if (out->clips == 0 && !out->reason[0])
        snprintf(out->reason, sizeof out->reason, "no shot is long enough for a clip of %lld "
                                                  "frames", (long long)f->c->frames);
    return result_save(f->c, s, out, err);
}

int source_process(const struct source_conf *c, const struct source *s, struct source_result *out,
                   struct err *err)
{
    struct frames f = {.c = c};
    struct video_info info = {0};
    struct err why = {0};
    int rc;
    if (is_done(c, s, out))
        return 0;
    *out = (struct source_result){0};
    if ((rc = frames_take(&f, s, &info, &why, err)) < 0)
        goto out;
    if (rc == 0) /* 1: the source is bad */
        rc = source_finish(&f, s, &info, out, &why, err);
    if (rc == 1)
        rc = bad_save(c, s, info.frames, why.text, out, err);
out:
    frames_release(&f);
    return rc;
}
