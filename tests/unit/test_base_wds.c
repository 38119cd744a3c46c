/* WebDataset: index bytes, grouping rules, an index that disagrees with its shard, foreign shards,
 * Energon's sidecars. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/spawn.h"
#include "base/wds.h"
#include "tests/lib/scratch.h"

#define PART(part, text) {part, text, sizeof(text) - 1}

static void read_whole(const char *path, struct str *out)
{
    struct err err;

    str_clear(out);
    if (file_read(path, 64 << 20, out, &err) < 0)
        fail_msg("%s", err.text);
}

/* Three samples: 2, 1 and 3 files; the middle payload spans blocks. */
static void make_shard(const char *path)
{
    static char big[1300];
    struct wds_part a[] = {PART("txt", "caption a"), PART("json", "{}")};
    struct wds_part b[] = {{"latent.npy", big, sizeof big}};
    struct wds_part c[] = {PART("txt", ""), PART("cls", "7"), PART("json", "{\"c\":1}")};
    struct wds_writer *w;
    struct wds_written made;
    struct hash128 read;
    struct err err;

    memset(big, 'n', sizeof big);
    assert_int_equal(wds_writer_open(path, &w, &err), 0);
    assert_int_equal(wds_writer_add(w, "src-0001", a, 2, &err), 0);
    assert_int_equal(wds_writer_bytes(w), 4 * 512);
    assert_int_equal(wds_writer_add(w, "src-0002", b, 1, &err), 0);
    assert_int_equal(wds_writer_add(w, "dir/src-0003", c, 3, &err), 0);
    assert_int_equal(wds_writer_close(w, &made, &err), 0);
    assert_int_equal(made.samples, 3);
    assert_int_equal(made.tar.bytes, 4096 + 5 * 512 + 1024);
    assert_int_equal(hash_file(path, &read, &err), 0);
    assert_memory_equal(&made.tar.hash, &read, sizeof read);
    assert_string_equal(a[0].name, "json"); /* sorted, and each behind its header */
    assert_int_equal(a[0].data_offset, 512);
    assert_int_equal(a[1].data_offset, 1536);
    assert_int_equal(b[0].data_offset, 2048 + 512);
}

static const uint64_t shard_index[4] = {0, 2048, 4096, 4096 + 5 * 512};

static void put_index(const char *path, const uint64_t *v, size_t n, size_t extra_bytes)
{
    unsigned char bytes[256] = {0};

    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < 8; k++)
            bytes[8 * i + (size_t)k] = (unsigned char)(v[i] >> (8 * k));
    assert_int_equal(file_publish(path, bytes, 8 * n + extra_bytes, NULL), 0);
}

static void index_is_exact(void **state)
{
    struct str got = STR_INIT, expect = STR_INIT;
    struct stat st;

    (void)state;
    make_shard(in_scratch("s.tar"));
    put_index(in_scratch("expect"), shard_index, 4, 0);
    read_whole(in_scratch("s.tar.idx"), &got);
    read_whole(in_scratch("expect"), &expect);
    assert_int_equal(got.len, 32);
    assert_memory_equal(got.p, expect.p, 32);
    assert_int_equal(stat(in_scratch("s.tar"), &st), 0);
    assert_int_equal(st.st_size, shard_index[3] + 1024);
    assert_int_equal(count_entries(scratch), 3); /* no temporaries */
    str_release(&got);
    str_release(&expect);
}

static void expect_part(struct wds_reader *r, const struct wds_sample *s, const char *part,
                        const char *text)
{
    struct str got = STR_INIT;
    struct err err;

    assert_int_equal(wds_reader_part(r, s, part, &got, &err), 0);
    assert_string_equal(got.p, text);
    str_release(&got);
}

static void expect_samples(const char *path)
{
    struct wds_reader *r;
    struct wds_sample s;
    struct str got = STR_INIT;
    struct err err = {.text = ""};

    if (wds_reader_open(path, &r, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(wds_reader_count(r), 3);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(wds_reader_sample(r, 2, &s, &err), 0); /* any order */
        assert_string_equal(s.key, "dir/src-0003");
        assert_int_equal(s.offset, shard_index[2]);
        assert_int_equal(s.bytes, 5 * 512);
        assert_int_equal(s.n_parts, 3);
        assert_string_equal(s.parts[0].name, "cls"); /* sorted */
        assert_string_equal(s.parts[1].name, "json");
        assert_string_equal(s.parts[2].name, "txt");
        expect_part(r, &s, "json", "{\"c\":1}");
        expect_part(r, &s, "txt", "");
        assert_int_equal(wds_reader_part(r, &s, "mp4", &got, &err), ERR_NOT_FOUND);
        assert_non_null(strstr(err.text, "sample 'dir/src-0003' has no part 'mp4'"));
        assert_int_equal(wds_reader_sample(r, 0, &s, &err), 0);
        assert_string_equal(s.key, "src-0001");
        expect_part(r, &s, "txt", "caption a");
        assert_int_equal(wds_reader_sample(r, 1, &s, &err), 0);
        assert_int_equal(s.parts[0].bytes, 1300);
        assert_string_equal(s.parts[0].name, "latent.npy");
    }
    assert_int_equal(wds_reader_sample(r, 3, &s, &err), ERR_INPUT);
    assert_int_equal(wds_reader_sample(r, -1, &s, &err), ERR_INPUT);
    wds_reader_close(r);
}

static void reads_by_index_and_by_scan(void **state)
{
    (void)state;
    make_shard(in_scratch("s.tar"));
    expect_samples(in_scratch("s.tar"));
    assert_int_equal(unlink(in_scratch("s.tar.idx")), 0);
    expect_samples(in_scratch("s.tar"));
}

static void same_bytes_twice(void **state)
{
    struct str a = STR_INIT, b = STR_INIT;

    (void)state;
    make_shard(in_scratch("s.tar"));
    make_shard(in_scratch("t.tar"));
    read_whole(in_scratch("s.tar"), &a);
    read_whole(in_scratch("t.tar"), &b);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.p, b.p, a.len);
    str_release(&a);
    str_release(&b);
}

static void writer_refuses(void **state)
{
    static const struct { const char *key, *part; int rc; } rows[] = {
        {"good", "json", 0},
        {"good", "json", ERR_EXISTS}, /* adjacent */
        {"dir/other_key-1", "a.b.json", 0},
        {"good", "txt", ERR_EXISTS}, /* returns later */
        {"", "json", ERR_INPUT},
        {"has.dot", "json", ERR_INPUT},
        {"has blank", "json", ERR_INPUT},
        {"\xc3\xa9", "json", ERR_INPUT},
        {"tab\t", "json", ERR_INPUT},
        {"/abs", "json", ERR_INPUT},
        {"dir/", "json", ERR_INPUT},
        {"a//b", "json", ERR_INPUT},
        {"__meta__", "json", ERR_INPUT},
        {"dir/__meta__", "json", ERR_INPUT},
        {"p1", "", ERR_INPUT},
        {"p2", "JSON", ERR_INPUT},
        {"p3", ".json", ERR_INPUT},
        {"p4", "json.", ERR_INPUT},
        {"p5", "a/b", ERR_INPUT},
        {"p6", "a b", ERR_INPUT},
    };
    struct wds_part twice[] = {PART("json", "1"), PART("txt", "2"), PART("json", "3")};
    struct wds_writer *w;
    struct wds_written made;
    struct err err;

    (void)state;
    assert_int_equal(wds_writer_open(in_scratch("s.zip"), &w, &err), ERR_INPUT);
    assert_int_equal(wds_writer_open(in_scratch("s.tar"), &w, &err), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wds_part p = {rows[i].part, "x", 1};
        int rc = wds_writer_add(w, rows[i].key, &p, 1, &err);
        if (rc != rows[i].rc)
            fail_msg("row %zu: %d", i, rc);
        if (rc < 0)
            assert_non_null(strstr(err.text, "s.tar"));
    }
    assert_int_equal(wds_writer_add(w, "twice", twice, 3, &err), ERR_INPUT);
    assert_int_equal(wds_writer_add(w, "none", NULL, 0, &err), ERR_INPUT);
    assert_int_equal(wds_writer_close(w, &made, &err), 0);
    assert_int_equal(made.samples, 2); /* refusals harm nothing */
}

static void nothing_half_published(void **state)
{
    char long_part[120];
    struct wds_part parts[] = {PART("a", "1"), {long_part, "2", 1}};
    struct wds_writer *w;
    struct err err;

    (void)state;
    memset(long_part, 'b', sizeof long_part - 1);
    long_part[sizeof long_part - 1] = '\0';
    assert_int_equal(wds_writer_open(in_scratch("empty.tar"), &w, &err), 0);
    assert_int_equal(wds_writer_close(w, NULL, &err), ERR_STATE);
    assert_int_equal(wds_writer_open(in_scratch("half.tar"), &w, &err), 0);
    assert_int_equal(wds_writer_add(w, "key", parts, 1, &err), 0);
    /* its first file is in the tar */
    assert_int_equal(wds_writer_add(w, "key2", parts, 2, &err), ERR_LIMIT);
    assert_int_equal(wds_writer_close(w, NULL, &err), ERR_STATE);
    assert_int_equal(wds_writer_open(in_scratch("aborted.tar"), &w, &err), 0);
    wds_writer_abort(w);
    wds_writer_abort(NULL);
    assert_int_equal(count_entries(scratch), 0);
}

/* ---- an index that is not this shard's ---- */

static void index_disagrees(void **state)
{
    static const struct {
        size_t n, extra;
        uint64_t v[8];
        int rc_open;
        const char *says;
    } rows[] = {
        {4, 0, {0, 2048, 4096, 6656}, 0, NULL},
        {4, 0, {512, 2048, 4096, 6656}, 0, NULL}, /* entry 0 counts as 0 */
        {3, 0, {0, 4096, 6656}, 0, "files of two keys"},
        {5, 0, {0, 1024, 2048, 4096, 6656}, 0, "splits its files"},
        {4, 0, {0, 1024, 4096, 6656}, 0, "splits its files"},
        {4, 0, {0, 1536, 4096, 6656}, 0, "cuts through"},
        {4, 0, {0, 2560, 4096, 6656}, 0, "files of two keys"},
        {4, 0, {0, 2048, 4096, 7168}, 0, "ends before the index"},
        {4, 0, {0, 2048, 4096, 6144}, 0, "goes on after"},
        {3, 0, {0, 2048, 4096}, 0, "goes on after"},
        {4, 0, {0, 2048, 2560, 6656}, 0, "cuts through"},
        {4, 0, {0, 2048, 4096, 1 << 20}, ERR_CORRUPT, "does not fit"},
        {4, 0, {0, 2048, 2048, 6656}, ERR_CORRUPT, "does not fit"},
        {4, 0, {0, 4096, 2048, 6656}, ERR_CORRUPT, "does not fit"},
        {4, 0, {0, 2047, 4096, 6656}, ERR_CORRUPT, "does not fit"},
        {4, 0, {0, 2048, 4096, ~UINT64_C(511)}, ERR_CORRUPT, "does not fit"},
        {4, 3, {0, 2048, 4096, 6656}, ERR_CORRUPT, "not a whole index"},
        {1, 0, {0}, ERR_CORRUPT, "not a whole index"},
        {0, 0, {0}, ERR_CORRUPT, "not a whole index"},
    };
    (void)state;
    make_shard(in_scratch("s.tar"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct wds_reader *r = NULL;
        struct wds_sample s;
        struct err err = {.text = ""};
        put_index(in_scratch("s.tar.idx"), rows[i].v, rows[i].n, rows[i].extra);
        int rc = wds_reader_open(in_scratch("s.tar"), &r, &err);
        assert_int_equal(rc, rows[i].rc_open);
        for (int64_t k = 0; rc == 0 && k < wds_reader_count(r); k++)
            rc = wds_reader_sample(r, k, &s, &err);
        wds_reader_close(r);
        assert_int_equal(rc, rows[i].says ? ERR_CORRUPT : 0);
        if (!rows[i].says)
            continue;
        if (!strstr(err.text, rows[i].says))
            fail_msg("row %zu: %s", i, err.text);
        assert_non_null(strstr(err.text, "s.tar.idx'"));
        assert_non_null(strstr(err.text, "remove"));
    }
}

/* Every single-entry change by one block is refused at some sample, none is taken for the truth. */
static void index_off_by_a_block(void **state)
{
    (void)state;
    make_shard(in_scratch("s.tar"));
    for (int entry = 1; entry < 4; entry++)
        for (int delta = -3; delta <= 3; delta++) {
            struct wds_reader *r = NULL;
            struct wds_sample s;
            uint64_t v[4];
            memcpy(v, shard_index, sizeof v);
            v[entry] += (uint64_t)(512 * delta);
            put_index(in_scratch("s.tar.idx"), v, 4, 0);
            int rc = wds_reader_open(in_scratch("s.tar"), &r, NULL);
            for (int64_t k = 0; rc == 0 && k < 3; k++)
                rc = wds_reader_sample(r, k, &s, NULL);
            assert_int_equal(rc, delta ? ERR_CORRUPT : 0);
            wds_reader_close(r);
        }
}

static void damaged_shard(void **state)
{
    struct str bytes = STR_INIT;
    struct wds_reader *r;
    struct wds_sample s;
    struct err err;

    (void)state;
    make_shard(in_scratch("s.tar"));
    read_whole(in_scratch("s.tar"), &bytes);
    bytes.p[2048 + 20] ^= 1; /* header of sample 1 */
    assert_int_equal(file_publish(in_scratch("s.tar"), bytes.p, bytes.len, &err), 0);
    assert_int_equal(wds_reader_open(in_scratch("s.tar"), &r, &err), 0);
    assert_int_equal(wds_reader_sample(r, 0, &s, &err), 0); /* its neighbours are whole */
    assert_int_equal(wds_reader_sample(r, 2, &s, &err), 0);
    assert_int_equal(wds_reader_sample(r, 1, &s, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "sample 1 of '"));
    assert_non_null(strstr(err.text, "bad header checksum"));
    wds_reader_close(r);
    /* all files, no end */
    assert_int_equal(truncate(in_scratch("s.tar"), (off_t)shard_index[3] + 100), 0);
    assert_int_equal(wds_reader_open(in_scratch("s.tar"), &r, &err), 0);
    assert_int_equal(wds_reader_sample(r, 2, &s, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "sample 2 of '"));
    assert_non_null(strstr(err.text, "ends too early"));
    wds_reader_close(r);
    assert_int_equal(unlink(in_scratch("s.tar.idx")), 0);
    assert_int_equal(wds_reader_open(in_scratch("s.tar"), &r, &err), ERR_CORRUPT);
    assert_int_equal(wds_reader_open(in_scratch("absent.tar"), &r, &err), ERR_NOT_FOUND);
    str_release(&bytes);
}

/* ---- what others write ---- */

static void grouping_rules(void **state)
{
    static const char *const names[] = {
        "README", "__meta__/info.json", ".hidden.json",  /* ignored, before the first sample */
        "a.txt", "no-dot", "a.json",                     /* an ignored file does not separate */
        /* ignored: behind a, belongs to its range */
        "dir/.x.json",
        /* dots in folders are part of the key; the first dot counts */
        "v1.0/b.seg.0.png", "v1.0/b.txt",
        /* another key: the folder differs; case is kept */
        "b.TXT",
        "a.cls",                                         /* a key that comes back is a new sample */
    };
    static const struct {
        const char *key;
        size_t parts;
        int header;
        const char *first;
    } expect[] = {
        {"a", 2, 0, "txt"},
        {"v1.0/b", 2, 7, "seg.0.png"},
        {"b", 1, 9, "TXT"},
        {"a", 1, 10, "cls"},
    };
    struct tar_writer w;
    struct wds_reader *r;
    struct wds_sample s;
    struct err err;

    (void)state;
    assert_int_equal(tar_writer_open(&w, in_scratch("t.tar"), &err), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(tar_writer_add(&w, names[i], "", 0, &err), 0);
    assert_int_equal(tar_writer_commit(&w, NULL, &err), 0);
    for (int by_index = 0; by_index < 2; by_index++) {
        assert_int_equal(wds_reader_open(in_scratch("t.tar"), &r, &err), 0);
        assert_int_equal(wds_reader_count(r), 4);
        for (int i = 0; i < 4; i++) {
            if (wds_reader_sample(r, i, &s, &err) < 0)
                fail_msg("%s", err.text);
            assert_string_equal(s.key, expect[i].key);
            assert_int_equal(s.n_parts, expect[i].parts);
            assert_int_equal(s.offset, expect[i].header * 512);
            assert_string_equal(s.parts[0].name, expect[i].first);
        }
        wds_reader_close(r);
    }
}

static void no_sample_at_all(void **state)
{
    struct tar_writer w;
    struct wds_reader *r;
    struct err err;

    (void)state;
    assert_int_equal(tar_writer_open(&w, in_scratch("t.tar"), &err), 0);
    assert_int_equal(tar_writer_add(&w, "README", "", 0, &err), 0);
    assert_int_equal(tar_writer_commit(&w, NULL, &err), 0);
    assert_int_equal(wds_reader_open(in_scratch("t.tar"), &r, &err), ERR_INPUT);
    assert_int_equal(count_entries(scratch), 1);
}

static void part_twice(void **state)
{
    struct tar_writer w;
    struct wds_reader *r;
    struct wds_sample s;
    struct err err;

    (void)state;
    assert_int_equal(tar_writer_open(&w, in_scratch("t.tar"), &err), 0);
    assert_int_equal(tar_writer_add(&w, "a.json", "", 0, &err), 0);
    assert_int_equal(tar_writer_add(&w, "a.json", "", 0, &err), 0);
    assert_int_equal(tar_writer_commit(&w, NULL, &err), 0);
    assert_int_equal(wds_reader_open(in_scratch("t.tar"), &r, &err), 0);
    assert_int_equal(wds_reader_sample(r, 0, &s, &err), ERR_CORRUPT);
    assert_non_null(strstr(err.text, "part 'json' twice"));
    wds_reader_close(r);
}

/* GNU tar in three formats, with folders: entries stand at extension headers, the last at the first
 * zero block. */
static void foreign_shards(void **state)
{
    static const struct { const char *format; char first_type; } rows[] = {
        {"--format=pax", 'x'}, {"--format=gnu", '0'}, {"--format=ustar", '0'}};
    struct str out = STR_INIT, tar = STR_INIT;
    struct err err;

    (void)state;
    assert_int_equal(file_mkdirs(in_scratch("d"), &err), 0);
    assert_int_equal(file_publish(in_scratch("d/k1.json"), "{}", 2, &err), 0);
    assert_int_equal(file_publish(in_scratch("d/k1.txt"), "t", 1, &err), 0);
    assert_int_equal(file_publish(in_scratch("d/k2.txt"), "u", 1, &err), 0);
    for (size_t f = 0; f < 3; f++) {
        const char *argv[] = {"tar", "--sort=name", rows[f].format, "-cf", "f.tar", "d", NULL};
        struct spawn s = SPAWN_INIT;
        struct wds_reader *r;
        struct wds_sample sample;
        s.argv = argv;
        s.cwd = scratch;
        assert_int_equal(spawn_run(&s, NULL, 60, NULL, NULL, NULL, &err), 0);
        read_whole(in_scratch("f.tar"), &tar);
        assert_int_equal(wds_reader_open(in_scratch("f.tar"), &r, &err), 0);
        assert_int_equal(wds_reader_count(r), 2);
        assert_int_equal(wds_reader_sample(r, 1, &sample, &err), 0);
        int64_t end = sample.offset + sample.bytes;
        assert_int_equal(tar.p[sample.offset + 156], rows[f].first_type);
        assert_int_equal(tar.p[end], 0);
        /* the last payload, then padding to 10,240 */
        assert_true(tar.p[end - 512] == 'u' && (int64_t)tar.len > end + 1024);
        assert_string_equal(sample.key, "d/k2");
        expect_part(r, &sample, "txt", "u");
        assert_int_equal(wds_reader_sample(r, 0, &sample, &err), 0);
        assert_true(sample.offset == 0 && sample.n_parts == 2);
        wds_reader_close(r);
    }
    str_release(&out);
    str_release(&tar);
}

/* ---- sidecars ---- */

static void sidecars(void **state)
{
    const struct wds_shard shards[] = {{"b/s-1.tar", 3}, {"a \"q\".tar", 3}};
    struct str text = STR_INIT, uuid = STR_INIT;
    struct json_doc doc = {0};
    struct err err = {.text = ""};
    const cJSON *counts;

    (void)state;
    assert_int_equal(file_mkdirs(in_scratch("b"), &err), 0);
    make_shard(in_scratch("b/s-1.tar"));
    make_shard(in_scratch("a \"q\".tar"));
    if (wds_meta_save(scratch, shards, 2, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(json_load(in_scratch(".nv-meta/.info.json"), &doc, &err), 0);
    assert_int_equal(cJSON_GetArraySize(doc.root), 2); /* no key of our own: Energon refuses it */
    assert_true(json_text(doc.root, "energon_version", NULL) != NULL);
    counts = json_member(doc.root, "shard_counts");
    assert_int_equal(cJSON_GetArraySize(counts), 2);
    assert_string_equal(counts->child->string, "b/s-1.tar"); /* the caller's order */
    assert_int_equal(counts->child->valueint, 3);
    assert_string_equal(counts->child->next->string, "a \"q\".tar");
    json_release(&doc);
    read_whole(in_scratch(".nv-meta/split.yaml"), &text);
    assert_string_equal(text.p, "exclude: []\nsplit_parts:\n  train:\n  - \"b/s-1.tar\"\n  - \"a "
                                "\\\"q\\\".tar\"\n  val: []\n  test: []\n");
    read_whole(in_scratch(".nv-meta/dataset.yaml"), &text);
    assert_string_equal(text.p, "__module__: megatron.energon\n__class__: CrudeWebdataset\n");
    read_whole(in_scratch(".nv-meta/index.uuid"), &uuid);
    assert_int_equal(uuid.len, 36);
    assert_int_equal(uuid.p[14], '4');
    assert_non_null(strchr("89ab", uuid.p[19]));
    assert_int_equal(strspn(uuid.p, "0123456789abcdef-"), 36);
    for (int i = 8; i <= 23; i += 5)
        assert_int_equal(uuid.p[i], '-');
    assert_int_equal(count_entries(in_scratch(".nv-meta")), 4);
    /* again: the same; another list: another uuid */
    assert_int_equal(wds_meta_save(scratch, shards, 2, &err), 0);
    read_whole(in_scratch(".nv-meta/index.uuid"), &text);
    assert_string_equal(text.p, uuid.p);
    assert_int_equal(wds_meta_save(scratch, shards, 1, &err), 0);
    read_whole(in_scratch(".nv-meta/index.uuid"), &text);
    assert_string_not_equal(text.p, uuid.p);
    str_release(&text);
    str_release(&uuid);
}

static void sidecars_refuse(void **state)
{
    static const struct { struct wds_shard shards[2]; size_t n; int rc; } rows[] = {
        {{{NULL, 0}}, 0, ERR_STATE},
        {{{"s.tar", 0}}, 1, ERR_STATE},
        {{{"s.tar", 3}, {"s.tar", 3}}, 2, ERR_INPUT},
        {{{"/s.tar", 3}}, 1, ERR_INPUT},
        {{{"../s.tar", 3}}, 1, ERR_INPUT},
        {{{"s.tgz", 3}}, 1, ERR_INPUT},
        {{{"without-index.tar", 3}}, 1, ERR_NOT_FOUND},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct err err;
        assert_int_equal(wds_meta_save(scratch, rows[i].shards, rows[i].n, &err), rows[i].rc);
    }
    assert_int_equal(count_entries(scratch), 0);
}

int main(void)
{
#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(index_is_exact),
        IN_SCRATCH(reads_by_index_and_by_scan),
        IN_SCRATCH(same_bytes_twice),
        IN_SCRATCH(writer_refuses),
        IN_SCRATCH(nothing_half_published),
        IN_SCRATCH(index_disagrees),
        IN_SCRATCH(index_off_by_a_block),
        IN_SCRATCH(damaged_shard),
        IN_SCRATCH(grouping_rules),
        IN_SCRATCH(no_sample_at_all),
        IN_SCRATCH(part_twice),
        IN_SCRATCH(foreign_shards),
        IN_SCRATCH(sidecars),
        IN_SCRATCH(sidecars_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
