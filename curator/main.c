/* reel-curate: makes a dataset of latents from raw video.
 *
 * Sources are processed in parallel, each in a process of its own, and merged in the order of their
 * names, so the dataset's bytes do not depend on --jobs. OUT is the folder that --out names.
 * Everything is built in <OUT>.partial. The sources that a killed curation had finished stay there,
 * and the next one uses them, even if it is given other sources (curator/source.h); other leftovers
 * are removed. curator/publish.h says how the folder becomes <OUT>, or is added to it.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/lease.h"
#include "base/log.h"
#include "base/program.h"
#include "curator/decode.h"
#include "curator/publish.h"
#include "curator/tell.h"

static const double LOCK_WAIT_S = 30; /* the workers of a killed curation end within this time */

static const struct opt opts[] = {
    {"out", 'o', OPT_TEXT, "DIR", "folder of the dataset to make", .flags = OPT_REQUIRED},
    {"update", 'u', OPT_BOOL, NULL, "add what is new among the sources to the dataset in DIR"},
    {"size", 0, OPT_TEXT, "HxW", "height and width of clips, multiples of 16",
     .fallback = "128x128"},
    {"frames", 0, OPT_INT, "N", "frames of a clip, 1 + 8k", .fallback = "17", .min = 1,
     .max = 4097},
    {"fps", 0, OPT_NUM, "F",
     "resample to F frames a second by their times (0: each frame as it comes)",
     .fallback = "0", .min = 0, .max = 1000},
    {"jobs", 'j', OPT_INT, "N", "sources worked on at a time", .fallback = "2", .min = 1,
     .max = 1024},
    {"threshold", 0, OPT_NUM, "X", "least difference of a cut, 8-bit units", .fallback = "2.5",
     .min = 0.1, .max = 255},
    {"min-shot", 0, OPT_INT, "N", "least frames of a shot", .fallback = "6", .min = 1, .max = 1e6},
    {"shard-bytes", 0, OPT_BYTES, "SIZE", "a shard is closed once it is this large",
     .fallback = "64M", .min = 1, .max = 1e12},
    {"text-width", 0, OPT_INT, "N", "width of a text embedding", .fallback = "64", .min = 8,
     .max = 65536},
    {"text-len", 0, OPT_INT, "N", "most text tokens of a caption", .fallback = "16", .min = 0,
     .max = 4096},
    {"max-bad", 0, OPT_NUM, "PCT",
     "most sources, in percent, rounded up, that may be bad and left out",
     .fallback = "5", .min = 0, .max = 100},
    {"strict", 0, OPT_BOOL, NULL,
     "stop at the first bad source and at a caption file with other keys or none, and publish "
     "nothing"},
    {"json", 0, OPT_BOOL, NULL, "print the summary as one JSON object on standard output"},
    {"quiet", 'q', OPT_BOOL, NULL, "no progress"},
    {"dry-run", 0, OPT_BOOL, NULL, "list the sources and change nothing"},
};
static const struct opt_cmd command = {
    "reel-curate", "make a dataset of latents from videos", "SRC...", opts, ARRAY_LEN(opts), 1, -1,
    "SRC is a video, or a folder searched, each folder and file once, for names that end, in "
    "small letters or capitals, in mp4, mkv, mov, webm, avi, m4v, mpg, mpeg, m2ts, mts, flv, "
    "wmv, 3gp, 3g2, gif, ogv, mxf or vob; files ending in ts, or in nothing, are taken when they "
    "hold a video. Others are counted and left out, and so are playlists, whatever their names. "
    "A caption is taken from NAME.txt or NAME.json ({\"caption\": \"...\"}, other keys, and "
    "files without that one, are counted) beside NAME.mp4. In names that are shown or kept a "
    "byte that is not UTF-8 or is a control character stands as \\xHH, a backslash as two. A bad "
    "source (unreadable, named like a video and none, a link to nothing, a bad caption, a decoder "
    "that crashes on it twice, content that changes while it is read) is reported and left out, "
    "and tried again by --update; with more of them than --max-bad, and with --strict at the "
    "first, nothing is published, status 3; and so when none gave a clip. A "
    "worker that was killed, had no memory or could not read is tried three times, the last time "
    "alone; then nothing is published, status 75. Pictures are what a player shows: the matrix "
    "and range the frames are marked with (unmarked: BT.709 from 1280 columns or 577 lines on, "
    "else BT.601; narrow range, grey full), pixel aspect and turned upright; HDR is not "
    "tone-mapped, transparency and interlacing stay, and this is said. Of several video streams "
    "the one is taken, and named, that moves, is marked as the default, has the most pixels, "
    "comes first, in this order; an attached picture never is. --update takes the options DIR was "
    "made with. It adds what is new as further shards and a new index; shards that are there are "
    "never written again, and the older indexes stay in .reel/generations. Clips of a source "
    "that is gone or has changed stay, what a changed one holds now is added, a caption stays as "
    "it was; all this is said. Exit status: 0 the dataset is there, 2 usage, 3 invalid input or "
    "too many bad sources, 5 it could not be made or put in its place, 75 temporary: run it "
    "again."};

/* ---- options ---- */

/* Follows links to OUT, and sets the folders in which it is built. */
static int places_set(struct curation *k, struct err *err)
{
    int rc;
    if ((rc = publish_place(k->out, err)) < 0)
        return rc;
    snprintf(k->partial, sizeof k->partial, "%.3950s.partial", k->out);
    snprintf(k->work, sizeof k->work, "%.3950s/work", k->partial);
    return 0;
}

static int options_hash(struct curation *k, struct err *err)
{
    struct str text = STR_INIT;
    int rc;
    record_options(k, false, &text);
    if ((rc = str_check(&text, err)) < 0)
        goto out;
    k->conf.options = hash_128(text.p, text.len);
out:
    str_release(&text);
    return rc;
}

static int conf_read(struct curation *k, const struct opt_values *v, struct err *err)
{
    int height, width, n = 0, rc;
    const char *size = opt_text(v, "size");
    if (sscanf(size, "%dx%d%n", &height, &width, &n) != 2 || size[n] || height < 16 || width < 16 ||
        height % 16 || width % 16 || height > 8192 || width > 8192)
        return err_set(err, ERR_USAGE, "--size is '%s': give HEIGHTxWIDTH, both multiples of 16 up "
                                       "to 8192, for example 128x128", size);
    if (!*opt_text(v, "out"))
        return err_set(err, ERR_USAGE, "--out is empty: give the folder of the dataset to make");
    int64_t frames = opt_int(v, "frames");
    if (frames % 8 != 1)
        return err_set(err, ERR_USAGE, "--frames is %lld: give 1 + 8k, for example %lld",
                       (long long)frames, (long long)(frames / 8 * 8 + 1));
    k->conf = (struct source_conf){.height = height, .width = width,
                                   .frames = frames, .fps = opt_num(v, "fps"),
                                   .shots = SHOTS_CONF_DEFAULT,
                                   .text_width = opt_int(v, "text-width"),
                                   .text_len = opt_int(v, "text-len"),
                                   .tokenizer = &tokenizer_wavelet,
                                   .encoder = &text_encoder_hashed,
                                   .work_dir = k->work};
    k->conf.shots.threshold = opt_num(v, "threshold");
    k->conf.shots.min_frames = opt_int(v, "min-shot");
    k->jobs = opt_int(v, "jobs");
    k->shard_bytes = opt_int(v, "shard-bytes");
    k->max_bad = opt_num(v, "max-bad");
    k->strict = opt_bool(v, "strict");
    k->quiet = opt_bool(v, "quiet");
    snprintf(k->out, sizeof k->out, "%.3900s", opt_text(v, "out"));
    while (strlen(k->out) > 1 && k->out[strlen(k->out) - 1] == '/')
        k->out[strlen(k->out) - 1] = 0;
    if ((rc = places_set(k, err)) < 0)
        return rc;
    return options_hash(k, err);
}

/* ---- the folder where it is built ---- */

/* Takes the lease on OUT, because two curations of one OUT would write to the same files. */
static int work_lock(const struct curation *k, struct lease **lock, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    int rc;
    snprintf(path, sizeof path, "%.3980s.lock", k->partial);
    if ((rc = file_mkdirs(k->partial, err)) < 0)
        return rc;
    rc = lease_take(path, LOCK_WAIT_S, lock, err);
    return rc == ERR_BUSY ? err_set(err, rc, "another curation is at work on '%s': wait for its "
                                             "end, or give another --out", k->out) : rc;
}

/* Removes everything that a killed curation left in the partial folder, except its finished
 * sources. */
static int partial_clear(const struct curation *k, struct err *err)
{
    int rc = 0;
    DIR *d = opendir(k->partial);
    if (!d)
        return err_set_errno(err, ERR_IO, "cannot read folder '%s'", k->partial);
    for (struct dirent *e; (e = readdir(d));) {
        char path[LIMIT_PATH_BYTES + sizeof e->d_name + 1];
        snprintf(path, sizeof path, "%s/%s", k->partial, e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strcmp(path, k->work) == 0)
            continue;
        if ((rc = file_remove_tree(path, err)) < 0)
            goto out;
    }
out:
    closedir(d);
    return rc;
}

/* Prepares the partial folder. Finished sources of a killed curation stay; shards and events are
 * written anew, and half-written files are removed. */
static int partial_make(const struct curation *k, struct err *err)
{
    char events[LIMIT_PATH_BYTES + 32];
    int rc;
    if ((rc = publish_work_back(k->partial, k->work, err)) < 0)
        return rc;
    if ((rc = partial_clear(k, err)) < 0)
        return rc;
    if ((rc = file_mkdirs(k->work, err)) < 0)
        return rc;
    snprintf(events, sizeof events, "%s/.reel/events", k->partial);
    return file_mkdirs(events, err);
}

/* ---- the whole ---- */

/* Checks that enough of all given sources are good; `known` of them are already in the dataset. */
static int results_check(const struct curation *k, int64_t known, struct err *err)
{
    struct tell_totals t;
    tell_sum(k, &t);
    int rc = curation_bad_check(k, t.bad, t.used + t.bad + known, t.first_bad, err);
    if (rc < 0 || known || t.sum.clips)
        return rc;
    return err_set(err, ERR_INPUT, "none of %lld sources gave a clip (first: %s: %s)",
                   (long long)k->n, k->sources[0].name, k->results[0].reason);
}

static int work_do(struct curation *k, int64_t known, struct err *err)
{
    int rc;
    if (!(k->results = calloc((size_t)k->n + 1, sizeof *k->results)))
        return err_set(err, ERR_NOMEM, "out of memory");
    if ((rc = partial_make(k, err)) < 0)
        return rc;
    if ((rc = sources_work(k, err)) < 0)
        return rc;
    return results_check(k, known, err);
}

static void told_count(struct told *t, const struct dataset *d, double started_s)
{
    t->shards = d->n_shards;
    t->clips = d->n_samples;
    for (int64_t i = 0; i < d->n_shards; i++)
        t->bytes += d->shards[i].bytes;
    t->seconds = clock_mono_s() - started_s;
    t->fingerprint = d->fingerprint;
}

static int make(struct curation *k, const struct lease *lock, struct record *now,
                struct told *told, struct err *err)
{
    char events[LIMIT_PATH_BYTES + 32];
    double started_s = clock_mono_s();
    struct dataset d = {0};
    int rc;
    told->outcome = OUTCOME_MADE;
    if ((rc = work_do(k, 0, err)) < 0)
        return rc;
    if ((rc = record_mark(now, k, err)) < 0)
        return rc;
    if ((rc = shards_write(k->partial, &k->conf, k->sources, k->results, k->n, k->shard_bytes,
                           NULL, &d, err)) < 0)
        return rc;
    /* The events name the fingerprint, which d has only after its index is written. */
    if ((rc = dataset_save(k->partial, &d, err)) < 0)
        goto out;
    told_count(told, &d, started_s);
    snprintf(events, sizeof events, "%s/.reel/events", k->partial);
    if ((rc = tell_events(k, told, events, err)) < 0)
        goto out;
    /* The work took long, so another process may have broken our lease. */
    if ((rc = lease_check(lock, err)) < 0)
        goto out;
    rc = publish_new(k->partial, k->work, k->out, &d, now, err);
out:
    dataset_release(&d);
    return rc;
}

/* Removes from the work the sources that the dataset already has, and warns if their captions have
 * changed. */
static void known_drop(struct curation *k, const struct record *was, const struct record *now,
                       struct told *told)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < k->n; i++) {
        const struct record_source *old = record_find(was, now->sources[i].hash);
        if (!old || record_is_open(old, k->sources[i].maybe)) {
            k->sources[kept++] = k->sources[i];
            continue;
        }
        if (strcmp(old->caption, now->sources[i].caption) != 0) {
            told->captions_changed++;
            log_msg(LOG_WARN, "%s: its caption has changed, its clips keep the one they were made "
                              "with: curate anew to take it", k->sources[i].name);
        }
        told->known++;
        source_release(&k->sources[i]);
    }
    k->n = kept;
}

/* Says whether a source of this name is bad: it is there, and may be what it was. */
static bool is_bad_name(const struct curation *k, const char *name)
{
    for (int64_t i = 0; i < k->n_bad; i++)
        if (strcmp(k->bad[i].name, name) == 0)
            return true;
    return false;
}

static void gone_say(const struct curation *k, const struct record *was, const struct record *now,
                     struct told *told)
{
    for (int64_t i = 0; i < was->n; i++) {
        const struct record_source *old = &was->sources[i];
        bool named = record_has_name(now, old->name);
        if (old->left_out || old->no_video || record_find(now, old->hash) ||
            is_bad_name(k, old->name))
            continue;
        told->changed += named;
        told->gone += !named;
        log_msg(LOG_WARN, named ? "%s: its content has changed: what it holds now is added, the "
                                  "clips of what it held stay" :
                                  "%s: is no longer among the sources: its clips stay", old->name);
    }
}

/* Publishes the new shards and a new index. If there is no new clip it saves only the record, so
 * that later updates know the new sources. */
static int grown_publish(struct curation *k, const struct lease *lock, struct set *set,
                         struct record *now, struct dataset *d, struct err *err)
{
    struct tell_totals t;
    int rc;
    tell_sum(k, &t);
    if ((rc = shards_write(k->partial, &k->conf, k->sources, k->results, k->n, k->shard_bytes,
                           &set->data, d, err)) < 0)
        return rc;
    if ((rc = record_mark(now, k, err)) < 0)
        return rc;
    if ((rc = record_merge(&set->record, now, err)) < 0)
        return rc;
    if ((rc = lease_check(lock, err)) < 0)
        return rc;
    if (t.sum.clips == 0)
        return record_save(k->out, set->data.fingerprint, &set->record, err);
    return publish_grown(k->partial, k->out, &set->data, d, &set->record, err);
}

static int grow(struct curation *k, const struct lease *lock, struct set *set, struct record *now,
                struct told *told, struct err *err)
{
    char events[LIMIT_PATH_BYTES + 32];
    double started_s = clock_mono_s();
    struct dataset d = {0};
    int rc;
    if ((rc = record_options_check(&set->record, now, k->out, err)) < 0)
        return rc;
    if ((rc = publish_mend(k->out, &set->data, err)) < 0)
        return rc;
    gone_say(k, &set->record, now, told);
    known_drop(k, &set->record, now, told);
    told->outcome = k->n ? OUTCOME_GREW : OUTCOME_SAME;
    if (k->n == 0)
        return file_remove_tree(k->partial, err);
    if ((rc = work_do(k, told->known, err)) < 0)
        return rc;
    if ((rc = grown_publish(k, lock, set, now, &d, err)) < 0)
        goto out;
    told_count(told, &d, started_s);
    snprintf(events, sizeof events, "%s/.reel/events", k->out);
    if ((rc = tell_events(k, told, events, err)) < 0)
        goto out;
    rc = file_remove_tree(k->partial, err);
out:
    dataset_release(&d);
    return rc;
}

/* Counts the sources without which the dataset was made. ERR_INPUT: --strict refuses them. */
static int left_out_check(const struct curation *k, const struct record *r, struct told *told,
                          struct err *err)
{
    char why[ERR_TEXT_BYTES];
    const struct record_source *first;
    told->left_out = record_left_out(r, &first);
    if (told->left_out == 0)
        return 0;
    snprintf(why, sizeof why, "%.400s: %s", first->name, first->left_out);
    return curation_strict_check(k, why, err);
}

/* Looks at OUT to decide what must be done. Returns 1 when everything is done already and 0 when
 * there is work. Without an update, 0 for an OUT that holds a dataset means that the dataset must
 * be mended. */
static int out_look(const struct curation *k, const struct record *now, bool update,
                    struct set *set, struct told *told, struct err *err)
{
    int rc, there = set_open(k->out, set, err);
    if (there <= 0)
        return there;
    told->outcome = OUTCOME_SAME;
    if (record_equal(&set->record, now) && !update) {
        if ((rc = left_out_check(k, &set->record, told, err)) < 0)
            return rc;
        return publish_is_told(k->out, &set->data, err);
    }
    return update ? 0
                  : err_set(err, ERR_EXISTS,
                            "'%s' exists and holds something else: give another --out, remove it, "
                            "or add to it with --update", k->out);
}

/* Warns about sources that were left out, whatever else was done. Those that were bad before the
 * work had warnings of their own. */
static void left_out_say(const struct curation *k, const struct record *r)
{
    const struct record_source *first = NULL;
    int64_t n = k->n_bad + record_left_out(r, &first);
    if (n == 0)
        return;
    bool early = k->n_bad > 0;
    log_msg(LOG_WARN, "%lld of %lld sources are left out (first: %s%s%s): --update tries them "
                      "again; the records in '%s/.reel/generations' say why of each that "
                      "was worked on",
            (long long)n, (long long)(r->n + k->n_bad), early ? "" : first->name,
            early ? "" : ": ", early ? k->bad[0].why : first->left_out, k->out);
}

/* Completes an update that was killed after the dataset had grown, and removes its folder. */
static int mend(const struct curation *k, const struct set *set, struct err *err)
{
    int rc;
    if ((rc = publish_mend(k->out, &set->data, err)) < 0)
        return rc;
    return file_remove_tree(k->partial, err);
}

/* Removes what a killed curation left beside OUT, when OUT already is as wanted, unless it has
 * finished sources that an update can use. Errors are ignored: another process may be at work
 * there, and leftovers do no harm. */
static void leftovers_clear(const struct curation *k)
{
    char path[LIMIT_PATH_BYTES];
    struct lease *lock = NULL;
    snprintf(path, sizeof path, "%.3980s.lock", k->partial);
    if ((!file_exists(k->partial) && !file_exists(path)) || lease_take(path, 0, &lock, NULL) < 0)
        return;
    if (file_exists(k->work))
        log_msg(LOG_WARN, "'%s' is left of a curation that was killed: --update takes up what it "
                          "had done, and removes it", k->partial);
    else
        file_remove_tree(k->partial, NULL);
    publish_work_drop(k->out, NULL);
    lease_drop(lock);
}

/* Makes OUT, adds to it or mends it. The caller holds the lease, and OUT is not yet as wanted. */
static int out_work(struct curation *k, bool update, const struct lease *lock, struct set *set,
                    struct record *now, struct told *told, struct err *err)
{
    if (set->data.n_shards == 0)
        return make(k, lock, now, told, err);
    return update ? grow(k, lock, set, now, told, err) : mend(k, set, err);
}

/* Takes the lease and does the work, unless another curation has done it meanwhile. */
static int locked_work(struct curation *k, bool update, struct set *set, struct record *now,
                       struct told *told, struct err *err)
{
    struct lease *lock = NULL;
    int rc;
    if ((rc = work_lock(k, &lock, err)) < 0)
        return rc;
    set_release(set);
    if ((rc = out_look(k, now, update, set, told, err)) != 0)
        goto out;
    /* Another curation that ended meanwhile may have removed this folder. */
    if ((rc = file_mkdirs(k->partial, err)) < 0)
        goto out;
    if ((rc = publish_place_check(k->partial, k->out, err)) < 0)
        goto out;
    rc = out_work(k, update, lock, set, now, told, err);
out:
    /* The folder exists, and is empty, if another curation made the dataset meanwhile. */
    rmdir(k->partial);
    lease_drop(lock);
    return rc;
}

static int curate(struct curation *k, bool update, struct told *told, struct err *err)
{
    struct record now = {0};
    struct set set = {0};
    int rc;
    if ((rc = record_make(k, &now, err)) < 0)
        goto out;
    if ((rc = out_look(k, &now, update, &set, told, err)) < 0)
        goto out;
    if (rc == 1)
        leftovers_clear(k);
    else if ((rc = locked_work(k, update, &set, &now, told, err)) < 0)
        goto out;
    left_out_say(k, set.data.n_shards ? &set.record : &now);
    rc = 0;
out:
    record_release(&now);
    set_release(&set);
    return rc;
}

static int summary_print(const struct curation *k, const struct told *told, bool json,
                         struct err *err)
{
    struct str table = STR_INIT, object = STR_INIT;
    int rc;
    if (!k->quiet && told->outcome == OUTCOME_SAME)
        str_addf(&table, "%s holds this very curation: nothing to do\n", k->out);
    else if (!k->quiet)
        tell_table(k, told, &table);
    if (json)
        tell_json(k, told, &object);
    fputs(table.p, stderr);
    if ((rc = str_check(&object, err)) < 0)
        goto out;
    if (fwrite(object.p, 1, object.len, stdout) != object.len || fflush(stdout) != 0)
        rc = err_set_errno(err, ERR_IO, "cannot write to standard output");
out:
    str_release(&table);
    str_release(&object);
    return rc;
}

/* Prints the names of the sources, for --dry-run. */
static int sources_print(const struct curation *k, bool json, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    json_out_init(&o, &text, 2);
    if (json) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "schema", "reel.curate/1");
        json_put_bool(&o, "dry_run", true);
        json_put_text(&o, "out", k->out);
        json_arr_begin(&o, "sources");
    }
    for (int64_t i = 0; i < k->n; i++)
        if (json)
            json_put_text(&o, NULL, k->sources[i].name);
        else
            str_addf(&text, "%s\n", k->sources[i].name);
    if (json) {
        json_arr_end(&o);
        json_obj_end(&o);
        str_addc(&text, '\n');
    }
    int rc = program_print(&text, err);
    str_release(&text);
    return rc;
}

static int run(const struct opt_values *v, struct err *err)
{
    static struct curation k;
    struct told told = {0};
    const char *const *operands;
    size_t n = opt_operands(v, &operands);
    int rc;
    if ((rc = conf_read(&k, v, err)) < 0)
        goto out;
    if ((rc = sources_find(&k, operands, n, err)) < 0)
        goto out;
    if (opt_bool(v, "dry-run")) {
        rc = sources_print(&k, opt_bool(v, "json"), err);
        goto out;
    }
    if ((rc = curate(&k, opt_bool(v, "update"), &told, err)) < 0)
        goto out;
    rc = summary_print(&k, &told, opt_bool(v, "json"), err);
out:
    curation_release(&k);
    return rc;
}

/* ---- the program ---- */

static const struct opt_note examples[] = {
    {"reel-curate videos -o data --size 256x256 --frames 17", "a dataset of 17 frames a clip",
     "reel-curate"},
    {"reel-curate videos -o data --size 256x256 --frames 17 --update", "add what has come since",
     "reel-curate"},
    {"reel-curate videos -o data --text-width 1024",
     "for a model that takes embeddings of width 1024", "reel-curate"},
    {"reel-curate decode latents --data data", "pictures of what 'reel-train generate' made",
     "decode"},
    {NULL, NULL, NULL},
};
static const struct opt_note files[] = {
    {"OUT/*.tar", "the shards: latents and captions, as webdataset has them", NULL},
    {"OUT/.reel/index", "what each shard holds, and its checksum; see reel-dataset(5)", NULL},
    {"OUT/.reel/", "index, record, events, and the indexes of before each update", "reel-curate"},
    {"OUT.partial/", "a curation that is at work or was killed; the next one takes it over",
     "reel-curate"},
    {"NAME.txt, NAME.json", "the caption of NAME.mp4, beside it", "reel-curate"},
    {"<number>.npy, <number>.png", "a latent, and its picture", "decode"},
    {NULL, NULL, NULL},
};
static const struct opt_cmd *const commands[] = {&decode_command};
static int command_run(const struct program_call *call, struct err *err)
{
    struct str text = STR_INIT;
    int rc;
    if (call->cmd != &decode_command)
        return run(call->values, err);
    if ((rc = decode_run(call->values, &text, err)) < 0)
        goto out;
    if (text.len)
        rc = program_print(&text, err);
out:
    str_release(&text);
    return rc;
}

static const struct program program = {
    .page = {.program = "reel-curate", .examples = examples, .files = files},
    .summary = "make a dataset of latents from videos",
    .commands = commands,
    .n_commands = ARRAY_LEN(commands),
    .alone = &command,
    .run = command_run,
};

int main(int argc, char **argv)
{
    return program_main(&program, &build, argc, argv);
}
