#include "curator/decode.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/npy.h"
#include "base/num.h"
#include "curator/picture.h"
#include "curator/tokenizer.h"
#include "profiles/dataset.h"

enum { SHOWN = 6 /* frames of a clip */, GAP = 4 /* pixels between them */ };

static const struct opt opts[] = {
    {"data", 0, OPT_TEXT, "DIR", "dataset whose sample <number> each <number>.npy belongs to",
     .flags = OPT_REQUIRED},
    {"output", 'o', OPT_TEXT, "DIR", "where the pictures go (default: beside the latents)"},
    {"force", 0, OPT_BOOL, NULL, "write over pictures that are there already"},
    {"json", 0, OPT_BOOL, NULL, "print one JSON object"},
};
const struct opt_cmd decode_command = {
    "decode", "make pictures of latents", "DIR", opts, ARRAY_LEN(opts), 1, 1,
    "DIR holds <number>.npy, float32 [C, t, h, w], as 'reel-train generate' writes them. Each "
    "becomes <number>.png: above, frames of the dataset's own clip as its latent decodes; below, "
    "those of the latent. PSNR is between the two, over all frames; `nearest` is the sample of "
    "the dataset of the same shape whose frames are closest."};

struct clip { uint8_t *rgb; int64_t frames, height, width, bytes; };

/* ---- reading ---- */

static int clip_of(const struct dataset *d, const struct dataset_sample *s, const float *latent,
                   struct clip *out, struct err *err)
{
    struct clip c = {.frames = 1 + 8 * (s->t - 1), .height = 8 * s->h, .width = 8 * s->w};
    int rc;
    if (strcmp(d->tokenizer, tokenizer_wavelet.name) != 0 ||
        d->channels != tokenizer_wavelet.channels)
        return err_set(err, ERR_INPUT, "the dataset's latents were made by '%s': this decoder is "
                                       "of '%s'", d->tokenizer, tokenizer_wavelet.name);
    c.bytes = c.frames * c.height * c.width * 3;
    if (!(c.rgb = malloc((size_t)c.bytes)))
        return err_set(err, ERR_NOMEM, "out of memory for a clip");
    if ((rc = tokenizer_wavelet.decode(latent, c.frames, c.height, c.width, c.rgb, err)) < 0)
        goto out;
    *out = c;
    c.rgb = NULL;
out:
    free(c.rgb);
    return rc;
}

static int bytes_read(const char *path, int64_t offset, int64_t bytes, char **out, struct err *err)
{
    char *data = malloc((size_t)bytes + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
    if (!data)
        rc = err_set(err, ERR_NOMEM, "out of memory for '%s'", path);
    else if (fd < 0)
        rc = err_set_errno(err, ERR_INPUT, "cannot open '%s'", path);
    else if (pread(fd, data, (size_t)bytes, offset) != bytes)
        rc = err_set(err, ERR_CORRUPT, "'%s' ends before byte %lld", path,
                     (long long)(offset + bytes));
    if (fd >= 0)
        close(fd);
    if (rc < 0)
        free(data);
    else
        *out = data;
    return rc;
}

/* Reads a sample's latent, `bytes` bytes of a file at `offset`, and decodes it. */
static int clip_read(const struct dataset *d, const struct dataset_sample *s, const char *path,
                     int64_t offset, int64_t bytes, struct clip *out, struct err *err)
{
    const int64_t shape[] = {d->channels, s->t, s->h, s->w};
    float *latent = malloc((size_t)(shape[0] * shape[1] * shape[2] * shape[3]) * sizeof *latent);
    char *data = NULL;
    int rc;
    if (!latent)
        return err_set(err, ERR_NOMEM, "out of memory for a latent");
    if ((rc = bytes_read(path, offset, bytes, &data, err)) < 0)
        goto out;
    if ((rc = npy_parse(data, bytes, shape, 4, "latent", latent, err)) < 0) {
        err_context(err, "%s", path);
        goto out;
    }
    rc = clip_of(d, s, latent, out, err);
out:
    free(data);
    free(latent);
    return rc;
}

static int stored_clip(const struct dataset *d, const char *root, int64_t number, struct clip *out,
                       struct err *err)
{
    const struct dataset_sample *s = &d->samples[number];
    char path[2 * LIMIT_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", root, d->shards[s->shard].path);
    return clip_read(d, s, path, s->latent_offset, s->latent_bytes, out, err);
}

/* ---- comparing ---- */

static int nearest_find(const struct dataset *d, const char *root,
                        const struct dataset_sample *like, const struct clip *c, int64_t *number,
                        double *best, struct err *err)
{
    int rc;
    *best = -1;
    for (int64_t i = 0; i < d->n_samples; i++) {
        const struct dataset_sample *s = &d->samples[i];
        struct clip other;
        if (s->t != like->t || s->h != like->h || s->w != like->w)
            continue;
        if ((rc = stored_clip(d, root, i, &other, err)) < 0)
            return rc;
        double db = psnr(c->rgb, other.rgb, c->bytes);
        if (db > *best)
            *best = db, *number = i;
        free(other.rgb);
    }
    return 0;
}

/* Copies frame `from` of a clip into a picture, at column x and row y. */
static void paste(uint8_t *to, int64_t width, const struct clip *c, int64_t from, int64_t x,
                  int64_t y)
{
    for (int64_t r = 0; r < c->height; r++)
        memcpy(to + ((y + r) * width + x) * 3, c->rgb + (from * c->height + r) * c->width * 3,
               (size_t)c->width * 3);
}

static int sheet_save(const char *path, const struct clip *want, const struct clip *got,
                      struct err *err)
{
    int64_t n = num_min_i64(SHOWN, got->frames), width = n * (got->width + GAP) - GAP,
            height = 2 * got->height + GAP;
    uint8_t *rgb = malloc((size_t)(width * height * 3));
    if (!rgb)
        return err_set(err, ERR_NOMEM, "out of memory for a picture");
    memset(rgb, 255, (size_t)(width * height * 3));
    for (int64_t i = 0; i < n; i++) {
        int64_t frame = n > 1 ? i * (got->frames - 1) / (n - 1) : 0;
        paste(rgb, width, want, frame, i * (got->width + GAP), 0);
        paste(rgb, width, got, frame, i * (got->width + GAP), got->height + GAP);
    }
    int rc = picture_png_save(path, rgb, (int)height, (int)width, err);
    free(rgb);
    return rc;
}

/* ---- the command ---- */

struct decoding {
    const char *root, *out;
    bool json, force;
    struct dataset data;
    struct str text;
    struct json_out o;
    double sum;
    int64_t n;
};

static void row_put(struct decoding *k, int64_t number, double db, int64_t nearest,
                    double nearest_db)
{
    if (!k->json) {
        str_addf(&k->text, "%06lld  psnr %6.2f dB  nearest %06lld (%.2f dB)\n", (long long)number,
                 db, (long long)nearest, nearest_db);
        return;
    }
    json_obj_begin(&k->o, NULL);
    json_put_int(&k->o, "sample", number);
    json_put_num(&k->o, "psnr_db", db);
    json_put_int(&k->o, "nearest", nearest);
    json_put_num(&k->o, "nearest_psnr_db", nearest_db);
    json_obj_end(&k->o);
}

/* Writes the path of the picture of <number>.npy, which is <number>.png. */
static void picture_path(const struct decoding *k, const char *name, char path[LIMIT_PATH_BYTES])
{
    snprintf(path, LIMIT_PATH_BYTES, "%s/%.*s.png", k->out, (int)strcspn(name, "."), name);
}

/* Refuses to overwrite pictures without --force. */
static int pictures_check(const struct decoding *k, struct dirent *const *found, int n,
                          struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    for (int i = 0; i < n && !k->force; i++) {
        picture_path(k, found[i]->d_name, path);
        if (file_exists(path))
            return err_set(err, ERR_EXISTS, "'%s' exists already: give another --output, or "
                           "--force to write over what is there", path);
    }
    return 0;
}

static int latent_decode(struct decoding *k, const char *path, struct err *err)
{
    const char *name = strrchr(path, '/') + 1;
    char digits[32], picture[LIMIT_PATH_BYTES];
    struct clip want = {0}, got = {0};
    int64_t number = 0, nearest = 0;
    double nearest_db = 0;
    struct stat st;
    int rc;
    snprintf(digits, sizeof digits, "%.*s", (int)strcspn(name, "."), name);
    if (num_parse_i64(digits, "number", &number, NULL) < 0 || number < 0 ||
        number >= k->data.n_samples)
        return err_set(err, ERR_INPUT, "'%s' is not <number>.npy of a sample of '%s', which has "
                                       "%lld", path, k->root, (long long)k->data.n_samples);
    if (stat(path, &st) < 0)
        return err_set_errno(err, ERR_INPUT, "cannot look at '%s'", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INPUT, "'%s' is a pipe or a device: give a file", path);
    picture_path(k, name, picture);
    const struct dataset_sample *like = &k->data.samples[number];
    if ((rc = clip_read(&k->data, like, path, 0, st.st_size, &got, err)) < 0)
        goto out;
    if ((rc = stored_clip(&k->data, k->root, number, &want, err)) < 0)
        goto out;
    if ((rc = sheet_save(picture, &want, &got, err)) < 0)
        goto out;
    if ((rc = nearest_find(&k->data, k->root, like, &got, &nearest, &nearest_db, err)) < 0)
        goto out;
    double db = psnr(want.rgb, got.rgb, got.bytes);
    row_put(k, number, db, nearest, nearest_db);
    k->sum += db;
    k->n++;
out:
    free(want.rgb);
    free(got.rgb);
    return rc;
}

static int is_latent(const struct dirent *e)
{
    size_t digits = strspn(e->d_name, "0123456789");
    return digits > 0 && strcmp(e->d_name + digits, ".npy") == 0;
}

static int folder_decode(struct decoding *k, const char *dir, struct err *err)
{
    struct dirent **found = NULL;
    int rc, n = scandir(dir, &found, is_latent, alphasort);
    if (n <= 0) {
        free(found);
        return err_set(err, ERR_INPUT, "no <number>.npy in '%s': give a folder that 'reel-train "
                                       "generate' wrote", dir);
    }
    if ((rc = pictures_check(k, found, n, err)) < 0)
        goto out;
    if ((rc = file_mkdirs(k->out, err)) < 0)
        goto out;
    for (int i = 0; i < n; i++) {
        char path[LIMIT_PATH_BYTES + sizeof found[i]->d_name + 1];
        snprintf(path, sizeof path, "%s/%s", dir, found[i]->d_name);
        if ((rc = latent_decode(k, path, err)) < 0)
            goto out;
    }
out:
    for (int i = 0; i < n; i++)
        free(found[i]);
    free(found);
    return rc;
}

static void text_begin(struct decoding *k)
{
    json_out_init(&k->o, &k->text, 0);
    if (!k->json)
        return;
    json_obj_begin(&k->o, NULL);
    json_put_text(&k->o, "schema", "reel.decoded/1");
    json_arr_begin(&k->o, "samples");
}

static int text_end(struct decoding *k, struct str *out, struct err *err)
{
    double mean_db = k->sum / (double)k->n;
    int rc;
    if (k->json) {
        json_arr_end(&k->o);
        json_put_num(&k->o, "mean_psnr_db", mean_db);
        json_obj_end(&k->o);
        str_addc(&k->text, '\n');
    } else {
        str_addf(&k->text, "mean    psnr %6.2f dB\n", mean_db);
    }
    if ((rc = str_check(&k->text, err)) < 0)
        return rc;
    str_add(out, k->text.p);
    return 0;
}

int decode_run(const struct opt_values *v, struct str *out, struct err *err)
{
    const char *const *operands;
    opt_operands(v, &operands);
    struct decoding k = {.root = opt_text(v, "data"),
                         .out = opt_text(v, "output") ? opt_text(v, "output") : operands[0],
                         .json = opt_bool(v, "json"), .force = opt_bool(v, "force")};
    int rc;
    if ((rc = dataset_load(k.root, &k.data, err)) < 0)
        return rc;
    text_begin(&k);
    if ((rc = folder_decode(&k, operands[0], err)) < 0)
        goto out;
    rc = text_end(&k, out, err);
out:
    str_release(&k.text);
    dataset_release(&k.data);
    return rc;
}
