/* This file finds the sources, which are the given files and the videos in the given folders, and
 * their captions. It lists each device and inode once, and then each content once. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/num.h"
#include "base/progress.h"
#include "curator/curation.h"

enum { PROGRESS_FROM = 100 /* with fewer sources no progress is shown */ };

struct place { dev_t dev; ino_t ino; };
struct walk {
    struct curation *k;
    struct place *folders; /* already searched; a second link to one is not followed */
    int64_t n, room;
};

void curation_release(struct curation *k)
{
    for (int64_t i = 0; i < k->n; i++)
        source_release(&k->sources[i]);
    for (int64_t i = 0; i < k->n_bad; i++) {
        free(k->bad[i].name);
        free(k->bad[i].why);
    }
    free(k->sources);
    free(k->results);
    free(k->bad);
}

/* Returns the items, grown if needed to have room for one more than n; NULL: out of memory, and the
 * old items stay valid. */
static void *with_room(void *items, int64_t n, int64_t *room, size_t size)
{
    if (n < *room)
        return items;
    int64_t more = *room ? 2 * *room : 64;
    void *grown = realloc(items, (size_t)more * size);
    *room = grown ? more : *room;
    return grown;
}

/* ---- names as they are shown ---- */

/* Returns the text as a new string: a byte that is not UTF-8 or that is a control character becomes
 * \xHH and, with `twice`, a backslash becomes two. */
static char *shown(const char *text, bool twice)
{
    struct str out = STR_INIT;
    for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
        n = json_utf8_len(text, left);
        if (n == 0 || iscntrl((unsigned char)*text))
            str_addf(&out, "\\x%02x", (unsigned char)*text), n = 1;
        else
            str_addf(&out, "%s%.*s", twice && *text == '\\' ? "\\" : "", (int)n, text);
    }
    return str_detach(&out);
}

/* Returns a file's name as records and messages show it, as a new string. Each name has one text,
 * and each text one name. */
static char *name_text(const char *name)
{
    return shown(name, true);
}

/* Replaces a message in which some names are as messages show them, and some are raw. */
static void message_clean(struct err *e)
{
    char *text = shown(e->text, false);
    if (text)
        snprintf(e->text, sizeof e->text, "%s", text);
    free(text);
}

/* ---- what is left out ---- */

static int bad_add(struct curation *k, const char *name, const char *why, struct err *err)
{
    int rc = curation_strict_check(k, why, err);
    if (rc < 0)
        return rc;
    log_msg(LOG_WARN, "%s: left out", why);
    struct bad *grown = with_room(k->bad, k->n_bad, &k->bad_room, sizeof *grown);
    if (!grown)
        return err_set(err, ERR_NOMEM, "out of memory for %lld bad sources",
                       (long long)k->n_bad + 1);
    k->bad = grown;
    k->bad[k->n_bad] = (struct bad){strdup(name), strdup(why)};
    k->n_bad++;
    return k->bad[k->n_bad - 1].name && k->bad[k->n_bad - 1].why
               ? 0
               : err_set(err, ERR_NOMEM, "out of memory");
}

bool curation_is_bad(const struct curation *k, int64_t i)
{
    return !k->results[i].ok && !k->sources[i].maybe;
}

int curation_strict_check(const struct curation *k, const char *why, struct err *err)
{
    if (!k->strict)
        return 0;
    return err_set(err, ERR_INPUT, "%.700s: refused by --strict, nothing was published: mend or "
                                   "remove it, or curate without --strict", why);
}

int curation_bad_check(const struct curation *k, int64_t bad, int64_t all, const char *first,
                       struct err *err)
{
    if ((double)bad <= ceil(k->max_bad * (double)all / 100))
        return 0;
    return err_set(err, ERR_INPUT, "%lld of %lld sources are bad (first: %s), more than --max-bad "
                                   "%g percent: nothing was published; mend or remove "
                   "them, or raise --max-bad", (long long)bad, (long long)all, first, k->max_bad);
}

static void skipped_count(struct curation *k, const char *name)
{
    const char *dot = strrchr(name, '.');
    char *text = dot ? name_text(dot) : NULL;
    int i = 0;
    char ending[sizeof k->skipped[0].ending];
    snprintf(ending, sizeof ending, "%s", text && strlen(text) < sizeof ending ? text : "others");
    free(text);
    for (char *p = ending; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    while (i < SKIPPED_ENDINGS - 1 && k->skipped[i].n && strcmp(k->skipped[i].ending, ending) != 0)
        i++;
    if (!k->skipped[i].n)
        snprintf(k->skipped[i].ending, sizeof k->skipped[i].ending, "%s",
                 i < SKIPPED_ENDINGS - 1 ? ending : "others");
    k->skipped[i].n++;
    k->found++;
}

static void skipped_say(const struct curation *k)
{
    struct str text = STR_INIT;
    int64_t n = 0;
    for (int i = 0; i < SKIPPED_ENDINGS && k->skipped[i].n; i++) {
        str_addf(&text, "%s%lld %s", i ? ", " : "", (long long)k->skipped[i].n,
                 k->skipped[i].ending);
        n += k->skipped[i].n;
    }
    if (n && !text.failed)
        log_msg(LOG_INFO, "%lld files are left out, their endings are not those of videos: %s (a "
                          "file is taken in any case when it is named itself)", (long long)n,
                text.p);
    str_release(&text);
}

/* ---- walking ---- */

/* Warns that the file or folder of this name is left out. */
static int left_out_say(const char *name, const char *why, struct err *err)
{
    char *said = name_text(name);
    if (!said)
        return err_set(err, ERR_NOMEM, "out of memory for the name '%s'", name);
    log_msg(LOG_WARN, "%s: %s, left out", said, why);
    free(said);
    return 0;
}

enum kind { KIND_OTHER, KIND_CAPTION, KIND_VIDEO, KIND_MAYBE };

/* Returns the kind of a file by its name. A file without an ending, or with an ending that other
 * kinds of files share, is KIND_MAYBE: its content decides later. */
static enum kind kind_of(const char *path)
{
    static const struct { const char *ending; enum kind kind; } kinds[] = {
        {".mp4", KIND_VIDEO}, {".mkv", KIND_VIDEO}, {".mov", KIND_VIDEO}, {".webm", KIND_VIDEO},
        {".avi", KIND_VIDEO}, {".m4v", KIND_VIDEO},
        {".mpg", KIND_VIDEO}, {".mpeg", KIND_VIDEO}, {".m2ts", KIND_VIDEO}, {".mts", KIND_VIDEO},
        {".flv", KIND_VIDEO}, {".wmv", KIND_VIDEO},
        {".3gp", KIND_VIDEO}, {".3g2", KIND_VIDEO}, {".gif", KIND_VIDEO}, {".ogv", KIND_VIDEO},
        {".mxf", KIND_VIDEO}, {".vob", KIND_VIDEO},
        {".ts", KIND_MAYBE}, {".txt", KIND_CAPTION}, {".json", KIND_CAPTION}};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
               *dot = strrchr(name, '.');
    if (!dot || dot == name)
        return KIND_MAYBE;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (strcasecmp(dot, kinds[i].ending) == 0)
            return kinds[i].kind;
    return KIND_OTHER;
}

static int source_add(struct curation *k, const char *path, const char *name, const struct stat *st,
                      bool maybe, struct err *err)
{
    struct source *grown = with_room(k->sources, k->n, &k->room, sizeof *grown);
    if (!grown)
        return err_set(err, ERR_NOMEM, "out of memory for %lld sources", (long long)k->n + 1);
    k->sources = grown;
    k->sources[k->n] = (struct source){.path = strdup(path), .name = name_text(name),
                                       .dev = st->st_dev, .ino = st->st_ino, .maybe = maybe};
    struct source *s = &k->sources[k->n++];
    k->found++;
    return s->path && s->name ? 0 : err_set(err, ERR_NOMEM, "out of memory for source '%s'", name);
}

/* Returns 1 when this folder was searched before, under this name or another. */
static int folder_seen(struct walk *w, const struct stat *st, struct err *err)
{
    for (int64_t i = 0; i < w->n; i++)
        if (w->folders[i].dev == st->st_dev && w->folders[i].ino == st->st_ino)
            return 1;
    struct place *grown = with_room(w->folders, w->n, &w->room, sizeof *grown);
    if (!grown)
        return err_set(err, ERR_NOMEM, "out of memory for %lld folders", (long long)w->n + 1);
    w->folders = grown;
    w->folders[w->n++] = (struct place){st->st_dev, st->st_ino};
    return 0;
}

static int folder_add(struct walk *w, const char *path, const char *name, const struct stat *st,
                      struct err *err);

/* Counts an entry as bad that is named like a video, or may be one, and cannot be read as a
 * file. */
static int entry_bad(struct walk *w, const char *name, const char *what, struct err *err)
{
    struct err why = {0};
    char *said = name_text(name);
    if (!said)
        return err_set(err, ERR_NOMEM, "out of memory for the name '%s'", name);
    err_set(&why, ERR_INPUT, "%.600s: %s", said, what);
    w->k->found++;
    int rc = bad_add(w->k, said, why.text, err);
    free(said);
    return rc;
}

/* Reports an entry on which stat() failed. A dangling link is bad if it is named like a video, and
 * without an ending it is warned of. Anything else may be a video or a folder of videos, unless
 * its name says otherwise. */
static int entry_hidden(struct walk *w, const char *path, const char *name, enum kind kind,
                        bool folder, struct err *err)
{
    struct stat st;
    char what[160];
    int number = errno;
    bool link = (number == ENOENT || number == ELOOP) && lstat(path, &st) == 0 &&
        S_ISLNK(st.st_mode);
    const char *to = number == ELOOP ? "a link to itself" : "a link to nothing";
    if (!folder && kind != KIND_VIDEO && kind != KIND_MAYBE)
        return 0;
    if (link)
        return kind == KIND_VIDEO ? entry_bad(w, name, to, err) : left_out_say(name, to, err);
    snprintf(what, sizeof what, "cannot look at it%s: %.80s",
             number == EACCES ? " (its folder needs the permission x)" : "", strerror(number));
    return entry_bad(w, name, what, err);
}

static int entry_add(struct walk *w, const char *path, const char *name, bool folder,
                     struct err *err)
{
    struct stat st;
    enum kind kind = kind_of(name);
    if (stat(path, &st) < 0)
        return entry_hidden(w, path, name, kind, folder, err);
    if (S_ISDIR(st.st_mode))
        return folder_add(w, path, name, &st, err);
    if (S_ISREG(st.st_mode) && kind == KIND_OTHER)
        skipped_count(w->k, name);
    if (S_ISREG(st.st_mode))
        return kind == KIND_VIDEO || kind == KIND_MAYBE
            ? source_add(w->k, path, name, &st, kind == KIND_MAYBE, err) : 0;
    return kind == KIND_VIDEO ? entry_bad(w, name, "neither a file nor a folder", err) : 0;
}

/* Reports a folder that cannot be listed. A folder without read permission counts as bad; any other
 * error may be temporary. */
static int folder_hidden(struct walk *w, const char *path, struct err *err)
{
    struct err why = {0};
    int number = errno;
    char *text = name_text(path);
    const char *said = text ? text : path;
    errno = number;
    int rc = err_set_errno(&why, number == EACCES || number == EPERM ? ERR_INPUT : ERR_TEMP,
                           "cannot list folder '%.600s'", said);
    w->k->found++;
    if (rc == ERR_INPUT)
        rc = bad_add(w->k, said, why.text, err);
    else
        rc = err_set(err, rc, "%s: run it again", why.text);
    free(text);
    return rc;
}

/* Adds one entry of a folder. Hidden entries, whose names begin with a dot, are skipped. */
static int listed_add(struct walk *w, const char *path, const char *name,
                      const struct dirent *entry, struct err *err)
{
    if (entry->d_name[0] == '.')
        return 0;
    char *sub = file_join(path, entry->d_name);
    char *sub_name = *name ? file_join(name, entry->d_name) : strdup(entry->d_name);
    int rc = sub && sub_name ? entry_add(w, sub, sub_name, entry->d_type == DT_DIR, err)
        : err_set(err, ERR_NOMEM, "out of memory for the names in '%s'", path);
    free(sub);
    free(sub_name);
    return rc;
}

static int folder_add(struct walk *w, const char *path, const char *name, const struct stat *st,
                      struct err *err)
{
    struct dirent **entries = NULL;
    int rc = folder_seen(w, st, err);
    if (rc == 1)
        return left_out_say(*name ? name : path,
                            "a folder that is searched already under another name", err);
    if (rc < 0)
        return rc;
    int n = scandir(path, &entries, NULL, alphasort);
    if (n < 0)
        return folder_hidden(w, path, err);
    for (int i = 0; i < n; i++)
        if ((rc = listed_add(w, path, name, entries[i], err)) < 0)
            goto out;
out:
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    return rc;
}

static int operand_add(struct walk *w, const char *operand, struct err *err)
{
    struct stat st;
    const char *slash = strrchr(operand, '/');
    if (stat(operand, &st) < 0)
        return err_set_errno(err, ERR_INPUT, "source '%s'", operand);
    if (S_ISDIR(st.st_mode))
        return folder_add(w, operand, "", &st, err);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INPUT, "source '%s' is neither a file nor a folder", operand);
    return source_add(w->k, operand, slash ? slash + 1 : operand, &st, false, err);
}

static int operands_walk(struct curation *k, const char *const *operands, size_t n,
                         struct err *err)
{
    struct walk w = {.k = k};
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        if ((rc = operand_add(&w, operands[i], err)) < 0)
            goto out;
out:
    free(w.folders);
    return rc;
}

/* ---- contents ---- */

static int hash_order(const struct source *x, const struct source *y)
{
    if (x->hash.hi != y->hash.hi)
        return x->hash.hi < y->hash.hi ? -1 : 1;
    return (x->hash.lo > y->hash.lo) - (x->hash.lo < y->hash.lo);
}

static int by_name(const void *a, const void *b)
{
    const struct source *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    /* files below two given folders may have the same name */
    return order ? order : hash_order(x, y);
}

/* Orders names of the same content. The first is kept, which is one that has a caption; if none
 * has, one whose caption is bad, so that this is said. */
static int by_caption(const struct source *x, const struct source *y)
{
    int order = (int)y->captioned - (int)x->captioned;
    order = order ? order : strcmp(x->name, y->name);
    return order ? order : strcmp(x->path, y->path); /* of two given folders */
}

static int by_place(const void *a, const void *b)
{
    const struct source *x = a, *y = b;
    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    if (x->ino != y->ino)
        return x->ino < y->ino ? -1 : 1;
    return by_caption(x, y);
}

static int by_hash(const void *a, const void *b)
{
    const struct source *x = a, *y = b;
    int order = hash_order(x, y);
    return order ? order : by_caption(x, y);
}

static bool same_place(const struct source *a, const struct source *b)
{
    return a->dev == b->dev && a->ino == b->ino;
}

static bool same_hash(const struct source *a, const struct source *b)
{
    return hash_order(a, b) == 0;
}

/* Looks which of the sources that are the same as a neighbour have a caption. */
static void captions_look(struct curation *k,
                          bool (*same)(const struct source *, const struct source *))
{
    for (int64_t i = 0; i < k->n; i++) {
        struct source *s = &k->sources[i];
        if ((i > 0 && same(s, s - 1)) || (i + 1 < k->n && same(s, s + 1)))
            s->captioned = source_captioned(s);
    }
}

/* Drops all sources that are the same as another one, except the first by by_caption, which is
 * called a video if any of their names says so. The keys of samples are made from the content, so
 * each content may have only one source. The remaining sources are sorted by name, so that messages
 * do not depend on places on the disk. */
static void duplicates_drop(struct curation *k, int (*order)(const void *, const void *),
                            bool (*same)(const struct source *, const struct source *))
{
    int64_t kept = 0;
    qsort(k->sources, (size_t)k->n, sizeof *k->sources, order);
    captions_look(k, same);
    qsort(k->sources, (size_t)k->n, sizeof *k->sources, order);
    for (int64_t i = 0; i < k->n; i++) {
        if (kept > 0 && same(&k->sources[kept - 1], &k->sources[i])) {
            k->duplicates++;
            log_msg(LOG_WARN, "%s: same content as %s, left out%s", k->sources[i].name,
                    k->sources[kept - 1].name,
                    k->sources[i].captioned ? " with its caption" : "");
            k->sources[kept - 1].maybe &= k->sources[i].maybe;
            source_release(&k->sources[i]);
        } else {
            k->sources[kept++] = k->sources[i];
        }
    }
    k->n = kept;
    qsort(k->sources, (size_t)k->n, sizeof *k->sources, by_name);
}

/* Keeps the sources for which fn returns 0, and counts those for which it returns ERR_INPUT as bad.
 * Another error of fn ends the loop. */
static int sources_keep(struct curation *k, const char *doing,
                        int (*fn)(struct curation *k, struct source *s, struct err *why),
                        struct err *err)
{
    int64_t kept = 0;
    int rc = 0;
    struct progress progress;
    progress_start(&progress, doing, k->n, k->quiet || k->n < PROGRESS_FROM);
    for (int64_t i = 0; i < k->n; i++) {
        struct err why = {0};
        int found = rc < 0 ? 0 : fn(k, &k->sources[i], &why);
        if (found < 0)
            message_clean(&why);
        if (found == ERR_INPUT)
            rc = bad_add(k, k->sources[i].name, why.text, err);
        else if (found < 0)
            rc = err_set(err, found, "%s", why.text);
        progress_step(&progress, i + 1, k->sources[i].name);
        if (found < 0)
            source_release(&k->sources[i]);
        else
            k->sources[kept++] = k->sources[i];
    }
    progress_end(&progress, NULL);
    k->n = kept;
    return rc;
}

static int hash_take(struct curation *k, struct source *s, struct err *why)
{
    int rc;
    (void)k;
    if (s->hashed)
        return 0;
    if ((rc = content_hash(s->path, s->name, &s->hash, &s->stamp, why)) < 0)
        return rc;
    s->hashed = true;
    return 0;
}

/* Hashes a source. If it cannot be read now, or changes meanwhile, it is left for the next try. */
static int hash_try(struct curation *k, struct source *s, struct err *why)
{
    int rc = hash_take(k, s, why);
    return rc == ERR_TEMP || rc == ERR_BUSY ? 0 : rc;
}

static int hash_last(struct curation *k, struct source *s, struct err *why)
{
    struct err last = {0};
    int rc = hash_take(k, s, &last);
    if (rc == ERR_BUSY)
        return err_set(why, ERR_INPUT, "%s, %d times: leave it out until it is whole", last.text,
                       TRIES);
    if (rc == ERR_TEMP)
        return err_set(why, rc, "%s: tried %d times, nothing was published: run it again",
                       last.text, TRIES);
    return rc < 0 ? err_set(why, rc, "%s", last.text) : 0;
}

static bool all_hashed(const struct curation *k)
{
    for (int64_t i = 0; i < k->n; i++)
        if (!k->sources[i].hashed)
            return false;
    return true;
}

/* Hashes all sources. Those that could not be read, or changed meanwhile, are tried again once the
 * others are done. */
static int hashes_take(struct curation *k, struct err *err)
{
    int rc;
    if ((rc = sources_keep(k, "read", hash_try, err)) < 0)
        return rc;
    for (int tried = 1; tried < TRIES && !all_hashed(k); tried++) {
        clock_sleep_s(try_pause_s(tried));
        if ((rc = sources_keep(k, "read again", tried + 1 < TRIES ? hash_try : hash_last, err)) < 0)
            return rc;
    }
    return 0;
}

/* Reads a caption. Hours may have passed since the first source was hashed: if another file has
 * this name by now, the caption is that one's. */
static int caption_take(struct curation *k, struct source *s, struct err *why)
{
    int64_t unused = 0;
    bool missing = false;
    int rc = source_caption_read(s, k->strict, &unused, &missing, why);
    k->unused_keys += unused;
    k->captions_missing += missing;
    if (rc < 0)
        return rc == ERR_NOMEM ? rc : ERR_INPUT;
    if ((rc = content_stays(s->path, s->hash, &s->stamp, why)) < 0)
        return rc;
    return rc ? 0 : err_set(why, ERR_INPUT, "source '%.600s' changed while the others were read",
                            s->name);
}

int sources_find(struct curation *k, const char *const *operands, size_t n, struct err *err)
{
    int rc;
    if ((rc = operands_walk(k, operands, n, err)) < 0)
        return rc;
    duplicates_drop(k, by_place, same_place);
    if ((rc = hashes_take(k, err)) < 0)
        return rc;
    duplicates_drop(k, by_hash, same_hash);
    if ((rc = sources_keep(k, "captions", caption_take, err)) < 0)
        return rc;
    skipped_say(k);
    if (k->unused_keys)
        log_msg(LOG_INFO, "caption files have %lld keys that are not used, only \"caption\" is",
                (long long)k->unused_keys);
    if (k->captions_missing)
        log_msg(LOG_WARN, "%lld caption files have no \"caption\": their videos are taken without "
                          "one", (long long)k->captions_missing);
    if (k->n == 0)
        return k->n_bad ? err_set(err, ERR_INPUT, "no usable source: %s", k->bad[0].why)
            : err_set(err, ERR_INPUT, "no video found in '%s'", operands[0]);
    return curation_bad_check(k, k->n_bad, k->n + k->n_bad, k->n_bad ? k->bad[0].why : "", err);
}
