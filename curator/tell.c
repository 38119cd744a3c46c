#include "curator/tell.h"

#include <stdio.h>
#include <string.h>

#include "base/events.h"
#include "base/id.h"
#include "base/json.h"
#include "base/num.h"

/* Sources that lose this share of the picture are pointed out. */
static const double CROP_SAID = 0.2;

void tell_sum(const struct curation *k, struct tell_totals *out)
{
    struct tell_totals t = {.bad = k->n_bad};
    if (k->n_bad)
        snprintf(t.first_bad, sizeof t.first_bad, "%s", k->bad[0].why);
    for (int64_t i = 0; i < k->n; i++) {
        const struct source_result *r = &k->results[i];
        t.used += r->ok;
        t.no_video += !r->ok && k->sources[i].maybe;
        if (curation_is_bad(k, i) && t.bad++ == 0)
            snprintf(t.first_bad, sizeof t.first_bad, "%.200s: %s", k->sources[i].name, r->reason);
        if (!r->ok)
            continue;
        t.hdr += r->hdr;
        t.noted += *r->note != 0;
        t.cropped += r->cropped >= CROP_SAID;
        t.sum.frames += r->frames, t.sum.shots += r->shots,
            t.sum.clips += r->clips, t.sum.rejected += r->rejected;
        t.sum.unused_frames += r->unused_frames,
            t.sum.seconds += r->seconds, t.sum.psnr_sum += r->psnr_sum;
    }
    *out = t;
}

enum { NAME_COLUMNS = 28 };

/* Appends the first characters of a name, as many as there are columns, and fills the rest. */
static void name_add(const char *name, struct str *out)
{
    size_t n = 0, step, left = strlen(name);
    int columns = 0;
    for (; columns < NAME_COLUMNS && n < left; n += step, columns++)
        if ((step = json_utf8_len(name + n, left - n)) == 0)
            break;
    str_addf(out, "  %.*s%*s", (int)n, name, NAME_COLUMNS - columns, "");
}

static void row_add(const struct source *s, const struct source_result *r, struct str *out)
{
    char psnr[16] = "-";
    if (r->clips)
        snprintf(psnr, sizeof psnr, "%.1f", r->psnr_sum / (double)r->clips);
    name_add(s->name, out);
    str_addf(out, " %7lld %6lld %6lld %9lld %9lld %8s", (long long)r->frames,
             (long long)r->shots, (long long)r->clips, (long long)r->rejected,
             (long long)r->unused_frames, psnr);
    if (r->cropped >= CROP_SAID)
        str_addf(out, "  %.0f %% of the picture is cropped away;", 100 * r->cropped);
    str_addf(out, "%s%s%s%s\n", *r->reason ? "  " : "", r->reason, *r->note ? "  " : "", r->note);
}

static void found_add(const struct curation *k, const struct told *told,
                      const struct tell_totals *t, struct str *out)
{
    int64_t skipped = t->no_video;
    for (int i = 0; i < SKIPPED_ENDINGS; i++)
        skipped += k->skipped[i].n;
    str_addf(out, "  %lld files found: %lld used, %lld bad and left out, %lld in the dataset "
                  "before, %lld of another's content, %lld no videos\n",
             (long long)k->found, (long long)t->used, (long long)t->bad, (long long)told->known,
             (long long)k->duplicates, (long long)skipped);
}

void tell_table(const struct curation *k, const struct told *told, struct str *out)
{
    char bytes[32];
    struct tell_totals t;
    tell_sum(k, &t);
    str_addf(out, "  %-28s %7s %6s %6s %9s %9s %8s\n", "source", "frames", "shots", "clips",
             "too short", "unused", "PSNR dB");
    for (int64_t i = 0; i < k->n; i++)
        if (k->results[i].ok || curation_is_bad(k, i))
            row_add(&k->sources[i], &k->results[i], out);
    str_addf(out, "  %lld clips of %lldx%dx%d in %lld shards (%s)", (long long)told->clips,
             (long long)k->conf.frames, k->conf.height, k->conf.width, (long long)told->shards,
             num_format_bytes(told->bytes, bytes, sizeof bytes));
    if (told->outcome == OUTCOME_GREW)
        str_addf(out, ", %lld of them new", (long long)t.sum.clips);
    if (t.sum.clips)
        str_addf(out, "; mean PSNR %.1f dB%s", t.sum.psnr_sum / (double)t.sum.clips,
                 told->outcome == OUTCOME_GREW ? " of the new ones" : "");
    str_addf(out, ", %lld frames unused; %.1f s\n", (long long)t.sum.unused_frames, told->seconds);
    found_add(k, told, &t, out);
    if (t.hdr)
        str_addf(out,
                 "  %lld sources are HDR: their values are taken as they are, and are no SDR\n",
                 (long long)t.hdr);
    if (t.no_video)
        str_addf(out, "  %lld files without a video's ending were looked into and are none\n",
                 (long long)t.no_video);
}

static void made_put(const struct told *told, const struct tell_totals *t, struct json_out *o)
{
    json_put_int(o, "frames", t->sum.frames);
    json_put_int(o, "shots", t->sum.shots);
    json_put_int(o, "clips", t->sum.clips);
    json_put_int(o, "shots_too_short", t->sum.rejected);
    json_put_int(o, "unused_frames", t->sum.unused_frames);
    json_put_num(o, "psnr_db", t->sum.clips ? t->sum.psnr_sum / (double)t->sum.clips : 0);
    json_put_int(o, "shards", told->shards);
    json_put_int(o, "bytes", told->bytes);
    json_put_int(o, "sources_hdr", t->hdr);
    json_put_int(o, "sources_noted", t->noted);
    json_put_int(o, "sources_cropped", t->cropped);
}

/* Writes how many files were found, and what has become of them. */
static void found_put(const struct curation *k, const struct told *told,
                      const struct tell_totals *t, struct json_out *o)
{
    json_put_int(o, "found", k->found);
    json_put_int(o, "sources", t->used + t->bad);
    json_put_int(o, "sources_used", t->used);
    json_put_int(o, "sources_unreadable", t->bad);
    json_put_int(o, "known", told->known);
    json_put_int(o, "duplicates", k->duplicates);
    json_obj_begin(o, "skipped");
    for (int i = 0; i < SKIPPED_ENDINGS && k->skipped[i].n; i++)
        json_put_int(o, k->skipped[i].ending, k->skipped[i].n);
    if (t->no_video)
        json_put_int(o, "no_video", t->no_video);
    json_obj_end(o);
}

void tell_json(const struct curation *k, const struct told *told, struct str *out)
{
    struct json_out o;
    struct tell_totals t = {.used = k->n - told->left_out, .bad = k->n_bad + told->left_out};
    if (told->outcome != OUTCOME_SAME)
        tell_sum(k, &t);
    json_out_init(&o, out, 2);
    json_obj_begin(&o, NULL);
    json_put_text(&o, "schema", "reel.curate/1");
    json_put_text(&o, "out", k->out);
    json_put_bool(&o, "existed", told->outcome == OUTCOME_SAME);
    json_put_bool(&o, "updated", told->outcome == OUTCOME_GREW);
    found_put(k, told, &t, &o);
    json_put_int(&o, "caption_keys_unused", k->unused_keys);
    json_put_int(&o, "captions_missing", k->captions_missing);
    json_put_int(&o, "gone", told->gone);
    json_put_int(&o, "changed", told->changed);
    json_put_int(&o, "captions_changed", told->captions_changed);
    if (told->outcome != OUTCOME_SAME)
        made_put(told, &t, &o);
    json_obj_end(&o);
    str_addc(out, '\n');
}

static void source_event(struct evlog *log, const struct source *s, const struct source_result *r)
{
    struct evlog_event e;
    event_begin(log, &e, curate_source);
    event_text(&e, curate_source, source, s->name);
    event_int(&e, curate_source, frames, r->frames);
    event_int(&e, curate_source, shots, r->shots);
    event_int(&e, curate_source, clips, r->clips);
    event_int(&e, curate_source, rejected, r->rejected);
    event_int(&e, curate_source, unused_frames, r->unused_frames);
    event_text(&e, curate_source, reason, r->reason);
    event_text(&e, curate_source, note, r->note);
    event_num(&e, curate_source, seconds, r->seconds);
    evlog_commit(log, &e, false, NULL);
}

static void bad_event(struct evlog *log, const struct bad *b)
{
    struct evlog_event e;
    event_begin(log, &e, curate_source);
    event_text(&e, curate_source, source, b->name);
    event_int(&e, curate_source, clips, 0);
    event_text(&e, curate_source, reason, b->why);
    evlog_commit(log, &e, false, NULL);
}

int tell_events(const struct curation *k, const struct told *t, const char *dir, struct err *err)
{
    char text[ID_TEXT_BYTES], hash[HASH_TEXT_BYTES];
    struct id id;
    struct tell_totals totals;
    struct evlog *log = NULL;
    struct evlog_event e;
    int rc = id_random(&id, err);
    struct evlog_ids ids = {id_format(id, text), 0, "curate", NULL};
    if (rc < 0 || (rc = evlog_open(dir, &ids, &log, err)) < 0)
        return rc;
    tell_sum(k, &totals);
    event_begin(log, &e, curate_started);
    event_int(&e, curate_started, sources, totals.used + totals.bad);
    event_bool(&e, curate_started, update, t->outcome == OUTCOME_GREW);
    evlog_commit(log, &e, false, NULL);
    for (int64_t i = 0; i < k->n_bad; i++)
        bad_event(log, &k->bad[i]);
    for (int64_t i = 0; i < k->n; i++)
        if (k->results[i].ok || curation_is_bad(k, i))
            source_event(log, &k->sources[i], &k->results[i]);
    event_begin(log, &e, curate_ended);
    event_int(&e, curate_ended, clips, t->clips);
    event_int(&e, curate_ended, shards, t->shards);
    event_int(&e, curate_ended, bytes, t->bytes);
    event_num(&e, curate_ended, seconds, t->seconds);
    event_text(&e, curate_ended, fingerprint, hash_format(t->fingerprint, hash));
    rc = evlog_commit(log, &e, true, err);
    evlog_close(log);
    return rc;
}
