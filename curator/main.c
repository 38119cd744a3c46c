/* reel-curate: raw video to a dataset of latents.
 *
 * Sources are worked on side by side, one process each, and merged in the order of their names: the dataset's bytes do not depend on
 * --jobs. Everything is built in <OUT>.partial and renamed to <OUT> at the end. What a killed curation had finished is kept there and
 * used by the next one with the same options; other leftovers are removed.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/evlog.h"
#include "base/file.h"
#include "base/id.h"
#include "base/json.h"
#include "base/lease.h"
#include "base/log.h"
#include "base/num.h"
#include "base/opt.h"
#include "base/progress.h"
#include "curator/decode.h"
#include "curator/shard.h"

static const double LOCK_WAIT_S = 30; /* the workers of a killed curation are gone by then */

static const struct opt opts[] = {
    {"out", 'o', OPT_TEXT, "DIR", "folder of the dataset to make", .flags = OPT_REQUIRED},
    {"size", 0, OPT_TEXT, "HxW", "height and width of clips, multiples of 16", .fallback = "128x128"},
    {"frames", 0, OPT_INT, "N", "frames of a clip, 1 + 8k", .fallback = "17", .min = 1, .max = 4097},
    {"fps", 0, OPT_NUM, "F", "frames a second to keep (0: all)", .fallback = "0", .min = 0, .max = 1000},
    {"jobs", 'j', OPT_INT, "N", "sources worked on at a time", .fallback = "2", .min = 1, .max = 1024},
    {"threshold", 0, OPT_NUM, "X", "least difference of a cut, 8-bit units", .fallback = "2.5", .min = 0.1, .max = 255},
    {"min-shot", 0, OPT_INT, "N", "least frames of a shot", .fallback = "6", .min = 1, .max = 1e6},
    {"shard-bytes", 0, OPT_BYTES, "SIZE", "a shard is closed once it is this large", .fallback = "64M", .min = 1, .max = 1e12},
    {"text-width", 0, OPT_INT, "N", "width of a text embedding", .fallback = "64", .min = 8, .max = 65536},
    {"text-len", 0, OPT_INT, "N", "most text tokens of a caption", .fallback = "16", .min = 0, .max = 4096},
    {"json", 0, OPT_BOOL, NULL, "print the summary as one JSON object on standard output"},
    {"quiet", 'q', OPT_BOOL, NULL, "no progress"},
    {"dry-run", 0, OPT_BOOL, NULL, "list the sources and change nothing"},
};
static const struct opt_cmd command = {
    "reel-curate", "make a dataset of latents from videos", "SRC...", opts, ARRAY_LEN(opts), 1, -1,
    "SRC is a video, or a folder searched for files ending in mp4, mkv, mov, webm, avi, m4v or mpg. A caption is taken from NAME.txt or "
    "NAME.json ({\"caption\": \"...\"}) beside NAME.mp4. A source that cannot be decoded is reported and left out; status 3 when none gave a clip."};

struct curation {
    struct source_conf conf;
    struct source *sources;
    struct source_result *results;
    int64_t n, room, jobs, shard_bytes, duplicates;
    bool quiet;
    char out[LIMIT_PATH_BYTES], partial[LIMIT_PATH_BYTES], work[LIMIT_PATH_BYTES];
    struct hash128 identity; /* of options and sources */
};

/* ---- sources ---- */

static int source_add(struct curation *k, const char *path, const char *name, struct err *err)
{
    if (k->n == k->room) {
        int64_t room = k->room ? 2 * k->room : 64;
        struct source *grown = realloc(k->sources, (size_t)room * sizeof *grown);
        if (!grown)
            return err_set(err, ERR_NOMEM, "out of memory for %lld sources", (long long)room);
        k->sources = grown;
        k->room = room;
    }
    struct source *s = &k->sources[k->n];
    snprintf(s->path, sizeof s->path, "%s", path);
    snprintf(s->name, sizeof s->name, "%s", name);
    struct err why = {0};
    s->caption = NULL;
    k->n++;
    if (hash_file(path, &s->hash, &why) < 0)
        return err_set(err, ERR_INPUT, "source '%s': %s: make it readable, or leave it out", name, why.text);
    return source_caption_read(s, err);
}

static bool is_video_name(const char *name)
{
    static const char *const endings[] = {".mp4", ".mkv", ".mov", ".webm", ".avi", ".m4v", ".mpg", NULL};
    for (int i = 0; endings[i]; i++)
        if (str_ends(name, endings[i]))
            return true;
    return false;
}

static int folder_add(struct curation *k, const char *path, const char *name, struct err *err)
{
    struct dirent **entries = NULL;
    int n = scandir(path, &entries, NULL, alphasort), rc = 0;
    if (n < 0)
        return err_set_errno(err, ERR_INPUT, "cannot list '%s'", path);
    for (int i = 0; i < n; i++) {
        char sub[LIMIT_PATH_BYTES], sub_name[LIMIT_PATH_BYTES];
        struct stat st;
        snprintf(sub, sizeof sub, "%s/%s", path, entries[i]->d_name);
        snprintf(sub_name, sizeof sub_name, "%s%s%s", name, *name ? "/" : "", entries[i]->d_name);
        bool hidden = entries[i]->d_name[0] == '.', there = rc == 0 && !hidden && stat(sub, &st) == 0;
        if (there && S_ISDIR(st.st_mode))
            rc = folder_add(k, sub, sub_name, err);
        else if (there && S_ISREG(st.st_mode) && is_video_name(sub))
            rc = source_add(k, sub, sub_name, err);
        else if (rc == 0 && !hidden && is_video_name(sub))
            log_msg(LOG_WARN, "%s: %s, left out", sub_name, there ? "neither a file nor a folder" : "a link to nothing");
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    const struct source *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : memcmp(&x->hash, &y->hash, sizeof x->hash); /* two files may have one name, below two folders given */
}

static int by_hash(const void *a, const void *b)
{
    const struct source *x = a, *y = b;
    int order = memcmp(&x->hash, &y->hash, sizeof x->hash);
    return order ? order : strcmp(x->name, y->name);
}

/* The same bytes under two names are one source, the first by name: keys come from the content. */
static void duplicates_drop(struct curation *k)
{
    int64_t kept = 0;
    qsort(k->sources, (size_t)k->n, sizeof *k->sources, by_hash);
    for (int64_t i = 0; i < k->n; i++) {
        if (kept > 0 && memcmp(&k->sources[kept - 1].hash, &k->sources[i].hash, sizeof k->sources[i].hash) == 0) {
            k->duplicates++;
            log_msg(LOG_WARN, "%s: same content as %s, left out", k->sources[i].name, k->sources[kept - 1].name);
            free(k->sources[i].caption);
        } else {
            k->sources[kept++] = k->sources[i];
        }
    }
    k->n = kept;
}

static int sources_find(struct curation *k, const struct opt_values *v, struct err *err)
{
    const char *const *operands;
    size_t n = opt_operands(v, &operands);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct stat st;
        const char *slash = strrchr(operands[i], '/');
        if (stat(operands[i], &st) < 0)
            rc = err_set_errno(err, ERR_INPUT, "source '%s'", operands[i]);
        else if (S_ISDIR(st.st_mode))
            rc = folder_add(k, operands[i], "", err);
        else if (!S_ISREG(st.st_mode))
            rc = err_set(err, ERR_INPUT, "source '%s' is neither a file nor a folder", operands[i]);
        else
            rc = source_add(k, operands[i], slash ? slash + 1 : operands[i], err);
    }
    if (rc == 0 && k->n == 0)
        rc = err_set(err, ERR_INPUT, "no video found in '%s'", operands[0]);
    if (rc == 0) {
        duplicates_drop(k);
        qsort(k->sources, (size_t)k->n, sizeof *k->sources, by_name);
    }
    return rc;
}

/* ---- options ---- */

static int conf_read(struct curation *k, const struct opt_values *v, struct err *err)
{
    int height, width, n = 0;
    const char *size = opt_text(v, "size");
    if (sscanf(size, "%dx%d%n", &height, &width, &n) != 2 || size[n] || height < 16 || width < 16 || height % 16 || width % 16 ||
        height > 8192 || width > 8192)
        return err_set(err, ERR_USAGE, "--size is '%s': give HEIGHTxWIDTH, both multiples of 16 up to 8192, for example 128x128", size);
    int64_t frames = opt_int(v, "frames");
    if (frames % 8 != 1)
        return err_set(err, ERR_USAGE, "--frames is %lld: give 1 + 8k, for example %lld", (long long)frames, (long long)(frames / 8 * 8 + 1));
    k->conf = (struct source_conf){.height = height, .width = width, .frames = frames, .fps = opt_num(v, "fps"),
                                   .shots = SHOTS_CONF_DEFAULT, .text_width = opt_int(v, "text-width"), .text_len = opt_int(v, "text-len"),
                                   .tokenizer = &tokenizer_wavelet, .encoder = &text_encoder_hashed, .work_dir = k->work};
    k->conf.shots.threshold = opt_num(v, "threshold");
    k->conf.shots.min_frames = opt_int(v, "min-shot");
    k->jobs = opt_int(v, "jobs");
    k->shard_bytes = opt_int(v, "shard-bytes");
    k->quiet = opt_bool(v, "quiet");
    snprintf(k->out, sizeof k->out, "%.3900s", opt_text(v, "out"));
    while (strlen(k->out) > 1 && k->out[strlen(k->out) - 1] == '/')
        k->out[strlen(k->out) - 1] = 0;
    snprintf(k->partial, sizeof k->partial, "%.3950s.partial", k->out);
    snprintf(k->work, sizeof k->work, "%.3950s/work", k->partial);
    return 0;
}

/* Options that decide the bytes, and the sources with names and hashes of content and caption: the same text, the same dataset. */
static void identity_text(const struct curation *k, struct str *out)
{
    struct json_out o;
    char hash[HASH_TEXT_BYTES];
    json_out_init(&o, out, 1);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.curation/1");
    json_put_int(&o, "height", k->conf.height);
    json_put_int(&o, "width", k->conf.width);
    json_put_int(&o, "frames", k->conf.frames);
    json_put_num(&o, "fps", k->conf.fps);
    json_put_text(&o, "detector", SHOTS_NAME);
    json_put_num(&o, "threshold", k->conf.shots.threshold);
    json_put_int(&o, "min_shot", k->conf.shots.min_frames);
    json_put_int(&o, "shard_bytes", k->shard_bytes);
    json_put_int(&o, "text_width", k->conf.text_width);
    json_put_int(&o, "text_len", k->conf.text_len);
    json_put_text(&o, "tokenizer", k->conf.tokenizer->name);
    json_put_text(&o, "text_encoder", k->conf.encoder->name);
    json_arr_begin(&o, "sources");
    for (int64_t i = 0; i < k->n; i++) {
        json_obj_begin(&o, NULL);
        json_put_text(&o, "name", k->sources[i].name);
        json_put_text(&o, "hash", hash_format(k->sources[i].hash, hash));
        json_put_text(&o, "caption", hash_format(hash_128(k->sources[i].caption, strlen(k->sources[i].caption)), hash));
        json_obj_end(&o);
    }
    json_arr_end(&o);
    json_obj_end(&o);
    str_addc(out, '\n');
}

/* 1: OUT holds this very curation. 0: it can be made. */
static int out_check(const struct curation *k, const struct str *identity, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct str old = STR_INIT;
    struct stat st;
    if (stat(k->out, &st) < 0)
        return errno == ENOENT ? 0 : err_set_errno(err, ERR_IO, "cannot look at '%s'", k->out);
    snprintf(path, sizeof path, "%s/.reel/curation.json", k->out);
    bool same = file_read(path, LIMIT_JSON_BYTES, &old, NULL) == 0 && old.len == identity->len && memcmp(old.p, identity->p, old.len) == 0;
    str_release(&old);
    if (same)
        return 1;
    if (S_ISDIR(st.st_mode) && rmdir(k->out) == 0)
        return 0; /* an empty folder makes room */
    return err_set(err, ERR_EXISTS, "'%s' exists and holds something else: give another --out, or remove it", k->out);
}

/* Two at work on one OUT would write into the same files. */
static int work_lock(const struct curation *k, struct lease **lock, struct err *err)
{
    char path[LIMIT_PATH_BYTES];
    snprintf(path, sizeof path, "%.3980s.lock", k->partial);
    int rc = file_mkdirs(k->partial, err);
    if (rc == 0)
        rc = lease_take(path, LOCK_WAIT_S, lock, err);
    return rc == ERR_BUSY ? err_set(err, rc, "another curation is at work on '%s': wait for its end, or give another --out", k->out) : rc;
}

/* Of a killed curation the finished sources stay; shards and events are written anew, and what lay half written goes. */
static int partial_keep_work(const struct curation *k, struct err *err)
{
    DIR *d = opendir(k->partial);
    int rc = d ? 0 : err_set_errno(err, ERR_IO, "cannot read folder '%s'", k->partial);
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        char path[LIMIT_PATH_BYTES + sizeof e->d_name + 1];
        snprintf(path, sizeof path, "%s/%s", k->partial, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && strcmp(path, k->work) != 0)
            rc = file_remove_tree(path, err);
    }
    if (d)
        closedir(d);
    return rc;
}

/* The partial folder: its work is kept when it was begun with the same options and sources, else it is made anew. */
static int partial_make(const struct curation *k, const struct str *identity, struct err *err)
{
    char path[LIMIT_PATH_BYTES + 32];
    struct str old = STR_INIT;
    snprintf(path, sizeof path, "%s/.reel/curation.json", k->partial);
    bool same = file_read(path, LIMIT_JSON_BYTES, &old, NULL) == 0 && old.len == identity->len && memcmp(old.p, identity->p, old.len) == 0;
    str_release(&old);
    int rc = same ? partial_keep_work(k, err) : file_remove_tree(k->partial, err);
    if (rc == 0)
        rc = file_mkdirs(k->work, err);
    snprintf(path, sizeof path, "%s/.reel/events", k->partial);
    if (rc == 0)
        rc = file_mkdirs(path, err);
    snprintf(path, sizeof path, "%s/.reel/curation.json", k->partial);
    return rc < 0 ? rc : file_publish(path, identity->p, identity->len, err);
}

/* ---- working ---- */

/* In a child: the result lies in the work folder, an error in <hash>.err. */
static void child_run(const struct curation *k, int64_t i)
{
    struct err err = {0};
    struct source_result r;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int rc = source_process(&k->conf, &k->sources[i], &r, &err);
    if (rc < 0) {
        char path[LIMIT_PATH_BYTES + 64], hash[HASH_TEXT_BYTES];
        snprintf(path, sizeof path, "%s/%s.err", k->work, hash_format(k->sources[i].hash, hash));
        file_publish(path, err.text, strlen(err.text), NULL);
        fprintf(stderr, "reel-curate: %s: %s\n", k->sources[i].name, err.text);
    }
    _exit(err_exit_code(rc));
}

static int child_ended(struct curation *k, int64_t i, int status, struct err *err)
{
    const struct source *s = &k->sources[i];
    if (WIFSIGNALED(status)) /* a decoder that crashes on a hostile file takes only its own source with it */
        return snprintf(k->results[i].reason, sizeof k->results[i].reason, "its decoder died of signal %d", WTERMSIG(status)) < 0;
    if (WEXITSTATUS(status) != 0) {
        int code = WEXITSTATUS(status) == 3 ? ERR_INPUT : ERR_IO;
        return err_set(err, code, "source '%s' failed: see its message above; nothing was published", s->name);
    }
    return source_result_load(&k->conf, s, &k->results[i], err);
}

static int all_run(struct curation *k, struct err *err)
{
    pid_t *pids = calloc((size_t)k->n, sizeof *pids);
    int64_t started = 0, running = 0, done = 0;
    struct progress progress;
    int rc = pids ? 0 : err_set(err, ERR_NOMEM, "out of memory");
    progress_start(&progress, "curate", k->n, k->quiet);
    while (running > 0 || (rc == 0 && started < k->n)) {
        if (rc == 0 && started < k->n && running < k->jobs) {
            pid_t pid = fork();
            if (pid == 0)
                child_run(k, started);
            if (pid < 0) {
                rc = err_set_errno(err, ERR_IO, "cannot start a worker");
                continue;
            }
            pids[started++] = pid;
            running++;
            continue;
        }
        int status;
        pid_t pid = wait(&status);
        for (int64_t i = 0; i < started; i++)
            if (pids[i] == pid) {
                int ended = child_ended(k, i, status, rc == 0 ? err : NULL);
                rc = rc < 0 ? rc : ended;
                progress_step(&progress, ++done, k->sources[i].name);
            }
        running--;
    }
    progress_end(&progress, NULL);
    free(pids);
    return rc;
}

/* ---- telling ---- */

static struct source_result totals_of(const struct curation *k, int64_t *bad)
{
    struct source_result t = {0};
    for (int64_t i = 0; i < k->n; i++) {
        const struct source_result *r = &k->results[i];
        *bad += !r->ok;
        t.frames += r->frames, t.shots += r->shots, t.clips += r->clips, t.rejected += r->rejected;
        t.unused_frames += r->unused_frames, t.seconds += r->seconds, t.psnr_sum += r->psnr_sum;
    }
    return t;
}

static void table_say(const struct curation *k, const struct shard_summary *s, double seconds)
{
    int64_t bad = 0;
    char bytes[32];
    struct source_result t = totals_of(k, &bad);
    fprintf(stderr, "  %-28s %7s %6s %6s %9s %9s %8s\n", "source", "frames", "shots", "clips", "too short", "unused", "PSNR dB");
    for (int64_t i = 0; i < k->n; i++) {
        const struct source_result *r = &k->results[i];
        fprintf(stderr, "  %-28.28s %7lld %6lld %6lld %9lld %9lld %8.1f%s%s\n", k->sources[i].name, (long long)r->frames, (long long)r->shots,
                (long long)r->clips, (long long)r->rejected, (long long)r->unused_frames, r->clips ? r->psnr_sum / (double)r->clips : 0,
                *r->reason ? "  " : "", r->reason);
    }
    fprintf(stderr, "  %lld clips of %lldx%dx%d in %lld shards (%s), mean PSNR %.1f dB, %lld frames unused, %lld sources unreadable; %.1f s\n",
            (long long)t.clips, (long long)k->conf.frames, k->conf.height, k->conf.width, (long long)s->shards,
            num_format_bytes(s->bytes, bytes, sizeof bytes), t.psnr_sum / (double)t.clips, (long long)t.unused_frames, (long long)bad, seconds);
}

static void source_event(struct evlog *log, const struct source *s, const struct source_result *r)
{
    struct evlog_event e;
    evlog_begin(log, &e, "curate_source");
    json_put_text(&e.out, "source", s->name);
    json_put_int(&e.out, "frames", r->frames);
    json_put_int(&e.out, "shots", r->shots);
    json_put_int(&e.out, "clips", r->clips);
    json_put_int(&e.out, "rejected", r->rejected);
    json_put_int(&e.out, "unused_frames", r->unused_frames);
    json_put_text(&e.out, "reason", r->reason);
    json_put_num(&e.out, "seconds", r->seconds);
    evlog_commit(log, &e, false, NULL);
}

static int events_write(const struct curation *k, const struct shard_summary *s, double seconds, struct err *err)
{
    char dir[LIMIT_PATH_BYTES + 32], text[ID_TEXT_BYTES];
    struct id id;
    struct evlog *log = NULL;
    struct evlog_event e;
    int rc = id_random(&id, err);
    snprintf(dir, sizeof dir, "%s/.reel/events", k->partial);
    struct evlog_ids ids = {id_format(id, text), 0, "curate", NULL};
    if (rc < 0 || (rc = evlog_open(dir, &ids, &log, err)) < 0)
        return rc;
    evlog_begin(log, &e, "curate_started");
    json_put_int(&e.out, "sources", k->n);
    evlog_commit(log, &e, false, NULL);
    for (int64_t i = 0; i < k->n; i++)
        source_event(log, &k->sources[i], &k->results[i]);
    evlog_begin(log, &e, "curate_ended");
    json_put_int(&e.out, "clips", s->clips);
    json_put_int(&e.out, "shards", s->shards);
    json_put_int(&e.out, "bytes", s->bytes);
    json_put_num(&e.out, "seconds", seconds);
    rc = evlog_commit(log, &e, true, err);
    evlog_close(log);
    return rc;
}

static int json_print(const struct curation *k, const struct shard_summary *s, bool existed, struct err *err)
{
    struct str text = STR_INIT;
    struct json_out o;
    int64_t bad = 0;
    struct source_result t = totals_of(k, &bad);
    json_out_init(&o, &text, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.curate/1");
    json_put_text(&o, "out", k->out);
    json_put_bool(&o, "existed", existed);
    json_put_int(&o, "sources", k->n);
    json_put_int(&o, "sources_unreadable", bad);
    json_put_int(&o, "duplicates", k->duplicates);
    if (!existed) {
        json_put_int(&o, "frames", t.frames);
        json_put_int(&o, "shots", t.shots);
        json_put_int(&o, "clips", t.clips);
        json_put_int(&o, "shots_too_short", t.rejected);
        json_put_int(&o, "unused_frames", t.unused_frames);
        json_put_num(&o, "psnr_db", t.clips ? t.psnr_sum / (double)t.clips : 0);
        json_put_int(&o, "shards", s->shards);
        json_put_int(&o, "bytes", s->bytes);
    }
    json_obj_end(&o);
    str_addc(&text, '\n');
    int rc = str_check(&text, err);
    if (rc == 0 && (fwrite(text.p, 1, text.len, stdout) != text.len || fflush(stdout) != 0))
        rc = err_set_errno(err, ERR_IO, "cannot write to standard output");
    str_release(&text);
    return rc;
}

/* ---- the whole ---- */

static int curate(struct curation *k, const struct lease *lock, const struct str *identity, struct shard_summary *summary, struct err *err)
{
    double started = clock_mono_s();
    int64_t bad = 0;
    k->results = calloc((size_t)k->n, sizeof *k->results);
    int rc = k->results ? partial_make(k, identity, err) : err_set(err, ERR_NOMEM, "out of memory");
    if (rc == 0)
        rc = all_run(k, err);
    if (rc == 0 && totals_of(k, &bad).clips == 0)
        rc = err_set(err, ERR_INPUT, "none of %lld sources gave a clip (first: %s: %s)", (long long)k->n, k->sources[0].name,
                     k->results[0].reason);
    if (rc == 0)
        rc = shards_write(k->partial, &k->conf, k->sources, k->results, k->n, k->shard_bytes, summary, err);
    double seconds = clock_mono_s() - started;
    if (rc == 0)
        rc = events_write(k, summary, seconds, err);
    if (rc == 0)
        rc = lease_check(lock, err); /* work takes long: we may have been taken for dead */
    if (rc == 0)
        rc = file_remove_tree(k->work, err);
    if (rc == 0)
        rc = file_publish_dir(k->partial, k->out, err);
    if (rc == 0 && !k->quiet)
        table_say(k, summary, seconds);
    return rc;
}

static int run(const struct opt_values *v, struct err *err)
{
    static struct curation k;
    struct shard_summary summary = {0};
    struct str identity = STR_INIT;
    bool existed = false;
    struct lease *lock = NULL;
    int rc = conf_read(&k, v, err);
    if (rc == 0)
        rc = sources_find(&k, v, err);
    for (int64_t i = 0; rc == 0 && opt_bool(v, "dry-run") && i < k.n; i++)
        fprintf(stderr, "  %s\n", k.sources[i].name);
    if (rc < 0 || opt_bool(v, "dry-run"))
        goto out;
    identity_text(&k, &identity);
    if ((rc = str_check(&identity, err)) < 0 || (rc = out_check(&k, &identity, err)) < 0)
        goto out;
    if (rc == 0 && ((rc = work_lock(&k, &lock, err)) < 0 || (rc = out_check(&k, &identity, err)) < 0)) /* it may have come meanwhile */
        goto out;
    existed = rc == 1;
    rc = existed ? 0 : curate(&k, lock, &identity, &summary, err);
    if (existed && !k.quiet)
        fprintf(stderr, "%s holds this very curation: nothing to do\n", k.out);
    if (rc == 0 && opt_bool(v, "json"))
        rc = json_print(&k, &summary, existed, err);
out:
    if (lock)
        rmdir(k.partial); /* is there, empty, if the dataset had come meanwhile */
    lease_drop(lock);
    str_release(&identity);
    for (int64_t i = 0; i < k.n; i++)
        free(k.sources[i].caption);
    free(k.sources);
    free(k.results);
    return rc;
}

int main(int argc, char **argv)
{
    static char program[] = "reel-curate", name[] = "reel-curate";
    struct err err = {0};
    struct opt_values *v = NULL;
    struct str text = STR_INIT;
    bool help = false;
    log_set_sink(log_to_stderr, program);
    log_set_level(LOG_INFO);
    signal(SIGXFSZ, SIG_IGN); /* a file limit comes back as EFBIG, a sentence */
    bool decodes = argc > 1 && strcmp(argv[1], "decode") == 0;
    const struct opt_cmd *table = decodes ? &decode_command : &command;
    argc -= decodes, argv += decodes;
    argv[0] = name;
    int rc = opt_parse(table, argc, argv, NULL, &v, &help, &err);
    if (rc == 0 && help) {
        opt_help(table, decodes ? "reel-curate" : NULL, &text);
        fputs(text.p, stdout);
    } else if (rc == 0) {
        rc = decodes ? decode_run(v, &text, &err) : run(v, &err);
        if (rc == 0 && text.len)
            fputs(text.p, stdout);
    }
    if (rc < 0 && err.text[0]) /* what opt_parse says begins with the program's name */
        fprintf(stderr, "%s%s\n", v ? "reel-curate: " : "", err.text);
    str_release(&text);
    opt_free(v);
    return err_exit_code(rc);
}
