/* Pictures of made clips against the `ffmpeg` command, to which each filter is written out: matrix,
 * range, depth, sampling, pixel aspect, turns; and which of them is shown when. */
// SLOW
// LINK: -Wl,--wrap=avformat_open_input,--wrap=avio_open2
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <libavformat/avformat.h>

#include "base/file.h"
#include "base/limits.h"
#include "curator/video.h"

enum { WIDE = 96, HIGH = 64, PARTS = 4 /* rows and columns of means */, TEXT = 16384 };
static const double NEAR = 2; /* 8-bit units */
static char scratch[] = "/tmp/reel-video.XXXXXX";

static void shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void shell(const char *fmt, ...)
{
    char command[TEXT + 64];
    va_list ap;
    int n = snprintf(command, sizeof command, "cd %s && ", scratch);
    va_start(ap, fmt);
    vsnprintf(command + n, sizeof command - (size_t)n, fmt, ap);
    va_end(ap);
    if (system(command) != 0)
        fail_msg("failed: %s", command);
}

static const char *in_scratch(const char *name)
{
    static char path[LIMIT_PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

struct means { double of[PARTS][PARTS][3]; };

static void means_add(const uint8_t *rgb, int height, int width, struct means *m)
{
    *m = (struct means){0};
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < 3; c++)
                m->of[y * PARTS / height][x * PARTS / width][c] +=
                    rgb[(y * width + x) * 3 + c] / ((double)height * width / PARTS / PARTS);
}

static int first_frame(void *ctx, const struct video_frame *f, struct err *err)
{
    (void)err;
    if (f->index == 0)
        means_add(f->rgb, HIGH, WIDE, ctx);
    return 0;
}

/* What the last one leaves is that of a later frame than the first. */
static int each_frame(void *ctx, const struct video_frame *f, struct err *err)
{
    (void)err;
    means_add(f->rgb, HIGH, WIDE, ctx);
    return 0;
}

static struct video_info ours(const char *name, struct means *m)
{
    struct video_info info;
    struct err err = {0};
    if (video_decode(in_scratch(name), HIGH, WIDE, first_frame, m, &info, &err) < 0)
        fail_msg("%s: %s", name, err.text);
    return info;
}

/* One file of many that are compared: what makes it of a source that all share, its name, and the
 * filters by which the command's first frame is to be ours. */
struct look { char make[256], name[16], filters[256]; };

/* Makes the files, and raw.0, raw.1 ... of their first frames: by two calls of the command for all of
 * them, because each takes a tenth of a second to begin. */
static void looks_make(const struct look *looks, int n, const char *source)
{
    struct str make = STR_INIT, inputs = STR_INIT, outputs = STR_INIT;
    for (int i = 0; i < n; i++) {
        str_addf(&make, " %s %s", looks[i].make, looks[i].name);
        str_addf(&inputs, " -noautorotate -i %s", looks[i].name);
        str_addf(&outputs,
                " -map %d:v -vf '%s' -frames:v 1 -f rawvideo -pix_fmt rgb24 raw.%d", i,
                looks[i].filters, i);
    }
    shell("ffmpeg -nostdin -v error -y %s%s", source, make.p);
    shell("ffmpeg -nostdin -v error -y%s%s", inputs.p, outputs.p);
    str_release(&make), str_release(&inputs), str_release(&outputs);
}

/* Returns the means of the command's first frame. */
static struct means theirs(const char *raw)
{
    struct str text = STR_INIT;
    struct err err = {0};
    struct means m;
    assert_int_equal(file_read(in_scratch(raw), 1 << 20, &text, &err), 0);
    assert_int_equal(text.len, HIGH * WIDE * 3);
    means_add((const uint8_t *)text.p, HIGH, WIDE, &m);
    str_release(&text);
    return m;
}

static void assert_near(const char *what, const struct means *a, const struct means *b)
{
    for (int y = 0; y < PARTS; y++)
        for (int x = 0; x < PARTS; x++)
            for (int c = 0; c < 3; c++)
                if (fabs(a->of[y][x][c] - b->of[y][x][c]) > NEAR)
                    fail_msg("%s: part %d,%d, channel %d: %.2f, ffmpeg's filters give %.2f", what,
                             y, x, c, a->of[y][x][c], b->of[y][x][c]);
}

static void looks_compare(const struct look *looks, int n, const char *source)
{
    looks_make(looks, n, source);
    for (int i = 0; i < n; i++) {
        struct means a, b;
        char raw[16];
        snprintf(raw, sizeof raw, "raw.%d", i);
        ours(looks[i].name, &a);
        b = theirs(raw);
        assert_near(looks[i].make, &a, &b);
    }
}

/* One of each matrix, range and format, marked as it is; scaled by the filter with matrix and range
 * named. */
static void test_colours(void **state)
{
    static const char *const matrices[] = {"bt470bg", "bt709", "bt2020nc"}, *const names[] = {
                                                                                "bt601", "bt709",
                                                                                "bt2020"};
    static const char *const ranges[] = {"tv", "pc"}, *const formats[] = {"yuv420p", "yuv422p",
                                                                          "yuv444p", "yuv420p10le",
                                                                          "yuv422p10le"};
    enum { LOOKS = 3 * 2 * 5 };
    struct look looks[LOOKS];
    (void)state;
    for (int i = 0; i < LOOKS; i++) {
        int m = i / 10, r = i / 5 % 2, f = i % 5;
        snprintf(looks[i].name, sizeof looks[i].name, "c%d.mkv", i);
        snprintf(looks[i].make, sizeof looks[i].make,
                 "-vf format=gbrp,scale=out_color_matrix=%s:out_range=%s,format=%s -c:v ffv1 "
                 "-colorspace %s -color_range %s",
                 names[m], ranges[r], formats[f], matrices[m], ranges[r]);
        snprintf(looks[i].filters, sizeof looks[i].filters,
                 "scale=%d:%d:in_color_matrix=%s:in_range=%s:flags=bicubic+accurate_rnd+"
                 "full_chroma_int",
                 WIDE, HIGH, names[m], ranges[r]);
    }
    looks_compare(looks, LOOKS, "-f lavfi -i testsrc2=s=288x192:r=10:d=0.2");
}

/* One colour through encoder and back: the numbers themselves. Unmarked, the size decides. */
static void test_numbers(void **state)
{
    static const struct { const char *size, *matrix, *range, *mark, *format; } rows[] = {
        {"1280x720", "bt709", "tv", "-colorspace bt709 -color_range tv", "yuv420p"},
        {"1280x720", "bt709", "tv", "", "yuv420p"},
        {"640x480", "bt601", "tv", "", "yuv420p"},
        {"640x480", "bt709", "pc", "-colorspace bt709 -color_range pc", "yuv420p"},
        {"640x480", "bt709", "pc", "-colorspace bt709 -color_range pc", "yuvj420p"},
        {"640x480", "bt2020", "pc", "-colorspace bt2020nc -color_range pc", "yuvj444p"},
        {"640x480", "bt601", "pc", "-colorspace smpte170m -color_range pc", "yuvj420p"}};
    static const double want[3] = {192, 48, 32};
    struct str inputs = STR_INIT, outputs = STR_INIT;
    (void)state;
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
        str_addf(&inputs, " -f lavfi -i color=c=0xC03020:s=%s:r=10:d=0.2", rows[i].size);
        str_addf(&outputs, " -map %d:v -vf format=gbrp,scale=out_color_matrix=%s:out_range=%s,"
                 "format=%s -c:v libx264 -qp 0 %s n%d.mp4",
                 i, rows[i].matrix, rows[i].range, rows[i].format, rows[i].mark, i);
    }
    shell("ffmpeg -nostdin -v error -y%s%s", inputs.p, outputs.p);
    str_release(&inputs), str_release(&outputs);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct video_info info;
        struct err err = {0};
        struct means a;
        char name[16];
        snprintf(name, sizeof name, "n%zu.mp4", i);
        assert_int_equal(video_decode(in_scratch(name), HIGH, WIDE, each_frame, &a, &info, &err),
                         0);
        assert_int_equal(info.frames, 2);
        for (int c = 0; c < 3; c++)
            if (fabs(a.of[1][1][c] - want[c]) > NEAR)
                fail_msg("row %zu: channel %d is %.1f, encoded was %.0f", i, c, a.of[1][1][c],
                         want[c]);
    }
}

/* The display matrix and the pixels' aspect: crop and turn are written out. */
static void test_shape(void **state)
{
    static const struct { const char *input, *options, *filters; } rows[] = {
        {"testsrc2=s=288x192", "-metadata:s:v rotate=90", "transpose=cclock,crop=192:128,"},
        {"testsrc2=s=288x192", "-metadata:s:v rotate=180", "hflip,vflip,"},
        {"testsrc2=s=288x192", "-metadata:s:v rotate=270", "transpose=clock,crop=192:128,"},
        /* pixels of 64/27: 121 of them are 1.5 times as wide as 192 lines are high */
        {"testsrc2=s=180x192", "-aspect 1125/506", "crop=121:192:28:0:0:1,"},
        {"testsrc2=s=288x192", "-aspect 3/4", "crop=288:96,"},      /* pixels of 1/2 */
        {"testsrc2=s=400x192", "", "crop=288:192,"},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    struct look looks[ROWS];
    struct str inputs = STR_INIT, outputs = STR_INIT, flats = STR_INIT;
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        str_addf(&inputs, " -f lavfi -i %s:r=10:d=0.2", rows[i].input);
        str_addf(&outputs, " -map %d:v -pix_fmt yuv420p -c:v libx264 -qp 0 flat%d.mp4", i, i);
        str_addf(&flats, " -i flat%d.mp4", i);
        snprintf(looks[i].name, sizeof looks[i].name, "s%d.mp4", i);
        snprintf(looks[i].make, sizeof looks[i].make, "-map %d:v -c copy %s", i, rows[i].options);
        snprintf(looks[i].filters, sizeof looks[i].filters,
                 "%sscale=%d:%d:in_color_matrix=bt601:flags=bicubic+accurate_rnd+full_chroma_int",
                 rows[i].filters, WIDE, HIGH);
    }
    shell("ffmpeg -nostdin -v error -y%s%s", inputs.p, outputs.p);
    looks_compare(looks, ROWS, flats.p);
    str_release(&inputs), str_release(&outputs), str_release(&flats);
}

/* Formats of which a plain crop or the plain range would make another picture: grey that nobody
 * marked is full, a crop of 4:1:1 has to keep luma and chroma together, eight pixels of black and
 * white lie in one byte. */
static void test_formats(void **state)
{
    static const struct { const char *size, *format, *filters; } rows[] = {
        {"288x192", "gray", ""},
        {"288x192", "gray10le", ""},
        {"288x192", "ya8", ""},
        {"412x192", "yuv411p", "format=yuv444p,crop=288:192:60:0:exact=1,"},
        {"412x192", "yuv420p", "format=yuv444p,crop=288:192:62:0:exact=1,"},
        {"192x292", "yuv410p", "format=yuv444p,crop=192:128:0:80:exact=1,"},
        {"400x192", "monob", "format=yuv444p,crop=288:192:56:0:exact=1,"},
        {"400x192", "monow", "format=yuv444p,crop=288:192:56:0:exact=1,"},
        {"192x292", "monob", "format=yuv444p,crop=192:128:0:82:exact=1,"},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    struct look looks[ROWS];
    struct str sources = STR_INIT;
    (void)state;
    for (int i = 0; i < ROWS; i++) {
        str_addf(&sources, " -f lavfi -i testsrc2=s=%s:r=10:d=0.2", rows[i].size);
        snprintf(looks[i].name, sizeof looks[i].name, "f%d.nut", i);
        snprintf(looks[i].make, sizeof looks[i].make, "-map %d:v -c:v rawvideo -pix_fmt %s", i,
                 rows[i].format);
        snprintf(looks[i].filters, sizeof looks[i].filters,
                 "%sscale=%d:%d:flags=bicubic+accurate_rnd+full_chroma_int", rows[i].filters, WIDE,
                 HIGH);
    }
    looks_compare(looks, ROWS, sources.p);
    str_release(&sources);
}

static int planes_same(void *ctx, const struct video_frame *f, struct err *err)
{
    uint8_t *first = ctx;
    (void)err;
    if (f->index == 0)
        memcpy(first, f->planes, SHOTS_BYTES);
    assert_memory_equal(first, f->planes, SHOTS_BYTES);
    return 0;
}

/* Shot detection sees no difference between frames that are alike, in any format: those of 32 bits
 * without alpha are renamed by the scaler. */
static void test_still(void **state)
{
    static const char *const formats[] = {"bgr0", "0rgb",     "rgb24", "gbrp",
                                          "pal8", "yuvj420p", "gray"};
    static uint8_t first[SHOTS_BYTES];
    (void)state;
    struct str outputs = STR_INIT;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        str_addf(&outputs, " -c:v rawvideo -pix_fmt %s still.%s.nut", formats[i], formats[i]);
    shell("ffmpeg -nostdin -v error -y -f lavfi -i color=c=0xC03020:s=1280x720:r=10:d=0.3%s",
          outputs.p);
    str_release(&outputs);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct video_info info;
        struct err err = {0};
        char name[32];
        snprintf(name, sizeof name, "still.%s.nut", formats[i]);
        assert_int_equal(
            video_decode(in_scratch(name), HIGH, WIDE, planes_same, first, &info, &err), 0);
        assert_int_equal(info.frames, 3);
    }
}

/* The picture on a record's cover is no video, and beside one it is not taken for it. */
static void test_covers(void **state)
{
    static const struct {
        const char *make;
        int64_t frames;
    } rows[] = {
        {"-i sound.m4a -i cover.png -map 0 -map 1 -c copy -disposition:v:0 attached_pic c.mp4", 0},
        {"-i sound.m4a -attach cover.png -metadata:s:t mimetype=image/png -c copy -f matroska "
         "c.mp4", 0},
        {"-i cover.png -i film.mp4 -map 0 -map 1 -c copy -disposition:v:0 attached_pic c.mp4", 2},
    };
    (void)state;
    shell("ffmpeg -nostdin -v error -y -f lavfi -i testsrc2=s=128x96:r=10:d=0.2 -pix_fmt yuv420p "
          "film.mp4 && "
          "ffmpeg -nostdin -v error -y -i film.mp4 -frames:v 1 cover.png && ffmpeg -nostdin -v "
          "error -y -f lavfi -i sine=d=1 sound.m4a");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct video_info info;
        struct means m;
        struct err err = {0};
        shell("ffmpeg -nostdin -v error -y %s", rows[i].make);
        int rc = video_decode(in_scratch("c.mp4"), HIGH, WIDE, first_frame, &m, &info, &err);
        if (rc != (rows[i].frames ? 0 : ERR_INPUT) || info.frames != rows[i].frames ||
            (rc < 0 && !strstr(err.text, "cover")))
            fail_msg("row %zu: %d, %lld frames: %s", i, rc, (long long)info.frames, err.text);
    }
}

/* The rules of video.h name which of several streams is taken, and it is said. The right one
 * is red, all others are blue. */
static void test_streams(void **state)
{
    static const struct { const char *name, *make, *says; } rows[] = {
        {"a still first, larger, and marked as the default",
         "-i still.png -i red.mp4 -map 0 -map 1 -c:v:0 mjpeg -pix_fmt:v:0 yuvj420p -c:v:1 copy "
         "-disposition:v:0 default -disposition:v:1 0 s.mp4", "stream 1 (128x96) of 2 video"},
        {"a cover",
         "-i still.png -i red.mp4 -map 0 -map 1 -c copy -disposition:v:0 attached_pic s.mp4", ""},
        {"two cameras, the second and smaller one the default",
         "-i wide.mp4 -i red.mp4 -map 0 -map 1 -c copy -disposition:v:0 0 "
         "-disposition:v:1 default s.mkv", "stream 1 (128x96) of 2 video"},
        {"two cameras, both the default: the larger one",
         "-i blue.mp4 -i large.mp4 -map 0 -map 1 -c copy -disposition:v default s.mkv",
         "stream 1 (256x192) of 2 video"},
        {"two cameras, neither the default: the larger one",
         "-i blue.mp4 -i large.mp4 -map 0 -map 1 -c copy -disposition:v 0 s.mkv",
         "stream 1 (256x192) of 2 video"},
        {"two cameras of one size: the first one",
         "-i red.mp4 -i blue.mp4 -map 0 -map 1 -c copy -disposition:v 0 s.mkv",
         "stream 0 (128x96) of 2 video"},
        {"the same in a stream of packets",
         "-i red.mp4 -i blue.mp4 -map 0 -map 1 -c copy s.ts", "stream 0 (128x96) of 2 video"},
        {"a stream of an unknown codec, the default",
         "-i wide.mp4 -i red.mp4 -map 0 -map 1 -c copy -disposition:v:0 default "
         "-disposition:v:1 0 s.mkv && "
         "LC_ALL=C sed -i '0,/V_MPEG4/s/V_MPEG4.ISO.AVC/V_MPEG4\\/ISO\\/XXX/' s.mkv",
         ""},
    };
    (void)state;
    shell("make() { ffmpeg -nostdin -v error -y -f lavfi -i color=c=$1:s=$2:r=10:d=1 -pix_fmt "
          "yuv420p $3; } && make red 128x96 red.mp4 && make blue 128x96 blue.mp4 && "
          "make blue 256x192 wide.mp4 && make red 256x192 large.mp4 && "
          "ffmpeg -nostdin -v error -y -f lavfi -i color=c=blue:s=512x384 -frames:v 1 still.png");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct means m = {0};
        shell("rm -f s.* && ffmpeg -nostdin -v error -y %s && mv s.* streams", rows[i].make);
        struct video_info info = ours("streams", &m);
        if (m.of[0][0][0] < 128 || m.of[0][0][2] > 128 || info.frames != 10)
            fail_msg("%s: %lld frames of the wrong stream", rows[i].name, (long long)info.frames);
        if (*rows[i].says ? !strstr(info.note, rows[i].says) : *info.note)
            fail_msg("%s: the note is '%s'", rows[i].name, info.note);
    }
}

/* What is not undone is said. */
static void test_notes(void **state)
{
    static const struct {
        const char *make, *says;
        bool hdr;
    } rows[] = {
        {"-pix_fmt yuv420p10le -c:v ffv1 -color_trc smpte2084 -colorspace bt2020nc", "HDR (PQ)",
         true},
        {"-pix_fmt yuv420p10le -c:v ffv1 -color_trc arib-std-b67 -colorspace bt2020nc", "HDR (HLG)",
         true},
        {"-pix_fmt yuva420p -c:v ffv1", "transparent, taken as opaque", false},
        {"-vf format=yuv420p,setfield=tff -c:v libx264 -flags +ildct+ilme",
         "interlaced, taken as it is", false},
        {"-pix_fmt yuv420p -c:v ffv1", "", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct means m;
        shell("ffmpeg -nostdin -v error -y -f lavfi -i testsrc2=s=128x96:r=10:d=0.5 %s h.mkv",
              rows[i].make);
        struct video_info info = ours("h.mkv", &m);
        assert_int_equal(info.hdr, rows[i].hdr);
        if (*rows[i].says ? !strstr(info.note, rows[i].says) : *info.note)
            fail_msg("row %zu: the note is '%s', not '%s'", i, info.note, rows[i].says);
    }
}

/* ---- times ---- */

enum { FRAMES_MAX = 256 };
/* ticks: a picture that is shown within this of a tick may stand for it */
static const double ROUNDING = 0.56;
struct film { double time_s[FRAMES_MAX + 1], rgb[FRAMES_MAX][3]; int64_t n; };

static void rgb_mean(const uint8_t *rgb, double out[3])
{
    double sum[3] = {0};
    for (int i = 0; i < 3 * WIDE * HIGH; i++)
        sum[i % 3] += rgb[i];
    for (int c = 0; c < 3; c++)
        out[c] = sum[c] / (WIDE * HIGH);
}

static int film_add(void *ctx, const struct video_frame *f, struct err *err)
{
    struct film *film = ctx;
    (void)err;
    assert_true(film->n < FRAMES_MAX);
    film->time_s[film->n] = f->time_s;
    rgb_mean(f->rgb, film->rgb[film->n++]);
    return 0;
}

/* Does the film show this colour at the tick? */
static bool film_shows(const struct film *film, double tick, double fps, const double rgb[3])
{
    for (int64_t i = 0; i < film->n; i++)
        if (film->time_s[i] * fps <= tick + ROUNDING &&
            film->time_s[i + 1] * fps >= tick - ROUNDING &&
            fabs(film->rgb[i][0] - rgb[0]) <= NEAR && fabs(film->rgb[i][1] - rgb[1]) <= NEAR &&
            fabs(film->rgb[i][2] - rgb[2]) <= NEAR)
            return true;
    return false;
}

/* Each picture that the command shows at a rate is one that the film shows at that time. */
static void assert_film(const char *name, const struct film *film, double fps,
                        const struct str *raw)
{
    for (int64_t i = 0; i < (int64_t)raw->len / (3 * WIDE * HIGH); i++) {
        double rgb[3];
        rgb_mean((const uint8_t *)raw->p + i * 3 * WIDE * HIGH, rgb);
        if (!film_shows(film, (double)i, fps, rgb))
            fail_msg("%s: ffmpeg's picture %lld at %g a second is not what we show there", name,
                     (long long)i, fps);
    }
}

/* 50 pictures, each of a colour of its own. */
#define COLOURS                                                                                    \
    "nullsrc=s=96x64:r=25:d=2,geq=r=mod(N*37\\,200)+30:g=mod(N*91\\,200)+30:b=mod(N*153\\,200)+30"
#define FFMPEG "ffmpeg -nostdin -v error -y "
#define MAKE "-c:v libx264 -qp 0 -pix_fmt yuv444p "

/* Makes the films of test_times: starting the command takes longer than any of them. */
static void films_make(void)
{
    shell(FFMPEG "-f lavfi -i '" COLOURS "' -vsync passthrough " MAKE "even.mp4 "
          MAKE "-vf 'setpts=if(lt(N\\,25)\\,N/25\\,1+(N-25)/8)/TB' rates.mkv "
          MAKE "-vf 'setpts=if(lt(N\\,25)\\,N/25\\,30+N/25)/TB' held.mp4 "
          MAKE "-g 5 cut.mp4 "
          MAKE "-vf 'setpts=if(lt(N\\,25)\\,N/25\\,N/25+1)/TB' -c:v ffv1 gap.avi "
          MAKE "-vf 'setpts=N/25/TB*(1+eq(N\\,49)/5),select=1-eq(n\\,49)' -c:v ffv1 ends.avi");
    shell(FFMPEG "-i even.mp4 -vsync passthrough "
          "-c copy -bsf:v 'setts=duration=if(eq(N\\,49)\\,30/TB\\,DURATION)' last.mp4 "
          "-c copy -bsf:v 'setts=pts=PTS+7200*gte(N\\,25)/TB:dts=DTS+7200*gte(N\\,25)/TB' "
          "far.mkv "
          "-c copy even.ts -c copy even.h264 "
          "-vf 'setpts=if(lt(N\\,25)\\,N/25\\,13+N/25)/TB' still.gif && "
          "cat even.ts even.ts even.ts > joined.ts");
    shell(FFMPEG "-i held.mp4 -c copy held.mkv -c copy ahead.ts");
    shell(FFMPEG "-itsoffset -3 -i rates.mkv -c copy -copyts before.mkv");
    shell(FFMPEG "-ss 0.6 -i even.mp4 -c copy part.mp4");
    /* an edit list that shows 0.4 s from second 1 on, and cuts whole groups of pictures away on
     * either side */
    shell("printf '\\000\\000\\001\\220\\000\\000\\066\\000' | "
          "dd of=cut.mp4 bs=1 seek=$(($(grep -abo elst cut.mp4 | head -n 1 | cut -d: -f1) + "
          "12)) conv=notrunc status=none");
}

static const struct timed {
    const char *name;
    double fps;
    int64_t want; /* pictures; 0: as many as `ffmpeg -vf fps=` makes, which agrees on each of them */
    bool torn;    /* its packets do not count on, which is said */
} timed[] = {
    {"even.mp4", 24, 0}, {"even.mp4", 60, 0}, {"even.mp4", 7, 0}, {"rates.mkv", 24, 0},
    {"held.mp4", 24, 0}, {"held.mkv", 24, 0}, {"last.mp4", 24, 0}, {"far.mkv", 24, 48},
    {"joined.ts", 24, 0, .torn = true}, {"ahead.ts", 24, 0}, {"even.h264", 24, 0},
    {"still.gif", 24, 0}, {"before.mkv", 24, 0}, {"part.mp4", 24, 0}, {"cut.mp4", 24, 0},
    /* AVI has an empty chunk for each frame that was dropped; these films go on, and end, so */
    {"gap.avi", 24, 0}, {"ends.avi", 24, 0},
};
enum { TIMED = sizeof timed / sizeof *timed };

/* Makes rawN of film N, as the command shows it at the rate. */
static void pictures_make(void)
{
    struct str inputs = STR_INIT, outputs = STR_INIT;
    for (int i = 0, input = 0; i < TIMED; i++) {
        if (timed[i].want)
            continue;
        str_addf(&inputs, " -i %s", timed[i].name);
        str_addf(&outputs, " -map %d:v -vf fps=%g -f rawvideo -pix_fmt rgb24 raw%d", input++,
                 timed[i].fps, i);
    }
    shell(FFMPEG "-vsync passthrough %s%s", inputs.p, outputs.p);
    str_release(&inputs), str_release(&outputs);
}

static void test_times(void **state)
{
    (void)state;
    films_make();
    pictures_make();
    for (int i = 0; i < TIMED; i++) {
        struct film film = {0};
        struct video_info info;
        struct str raw = STR_INIT;
        struct err err = {0};
        char shown[16];
        assert_int_equal(
            video_decode(in_scratch(timed[i].name), HIGH, WIDE, film_add, &film, &info, &err), 0);
        film.time_s[film.n] = info.seconds;
        if (info.damaged && !timed[i].torn)
            fail_msg("%s is whole, and is said to be damaged: %s", timed[i].name, info.damage);
        int64_t n = video_ticks(info.seconds, timed[i].fps), want = timed[i].want;
        if (!want) {
            snprintf(shown, sizeof shown, "raw%d", i);
            assert_int_equal(file_read(in_scratch(shown), 1 << 28, &raw, &err), 0);
            assert_film(timed[i].name, &film, timed[i].fps, &raw);
            want = (int64_t)raw.len / (3 * WIDE * HIGH);
        }
        if (n != want)
            fail_msg("%s at %g: %lld pictures, not %lld", timed[i].name, timed[i].fps, (long long)n,
                     (long long)want);
        str_release(&raw);
    }
}

#define TORN                                                                                       \
    "ffmpeg -nostdin -v error -y -f lavfi -i testsrc2=s=320x240:r=25:d=2 -vsync passthrough "      \
    "-pix_fmt yuv420p "

/* A file that breaks off says so, wherever it is cut. */
static void test_torn(void **state)
{
    static const struct { const char *make, *name; } rows[] = {
        {TORN "-c:v libx264 -g 5 -movflags +faststart torn.mp4", "torn.mp4"},
        {TORN "-c:v ffv1 torn.avi", "torn.avi"},
        {TORN "-vf 'setpts=if(lt(N\\,5)\\,N/25\\,N/25+1)/TB' -c:v ffv1 torn.avi", "torn.avi"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        shell("%s && cp %s whole", rows[i].make, rows[i].name);
        for (int percent = 50; percent < 80; percent += 3) {
            struct video_info info;
            struct means m;
            shell("head -c $(($(stat -c %%s whole) * %d / 100)) whole > %s", percent, rows[i].name);
            info = ours(rows[i].name, &m);
            if (!info.damaged)
                fail_msg("%d percent of %s are said to be whole", percent, rows[i].name);
        }
    }
}

/* Lists of other files are not opened, whatever they are called. */
static void test_playlists(void **state)
{
    static const struct {
        const char *text, *format;
    } rows[] = {{"ffconcat version 1.0\\nfile base.mp4\\n", "'concat'"},
                {"#EXTM3U\\n#EXT-X-VERSION:3\\n#EXT-X-TARGETDURATION:10\\n#EXTINF:1,\\nbase.mp4\\n#"
                 "EXT-X-ENDLIST\\n", "'hls'"},
                {"<?xml version=\"1.0\"?>\\n<MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" "
                 "type=\"static\" profiles=\"urn:mpeg:dash:profile:isoff-main:2011\">\\n"
                 "<Period/></MPD>\\n",
                 ""}};
    struct means m;
    struct video_info info;
    (void)state;
    shell("ffmpeg -nostdin -v error -y -f lavfi -i testsrc2=s=128x96:r=10:d=0.5 -c:v libx264 "
          "-pix_fmt yuv420p base.mp4");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        shell("printf '%s' > list.mp4", rows[i].text);
        assert_int_equal(
            video_decode(in_scratch("list.mp4"), HIGH, WIDE, first_frame, &m, &info, &err),
            ERR_INPUT);
        if (!strstr(err.text, rows[i].format))
            fail_msg("row %zu: '%s' does not name %s", i, err.text, rows[i].format);
    }
}

/* ---- what may be opened ---- */

/* wrong: that may reach further than files */
static struct { int files, containers, wrong; } opened;

static void look(const char *protocols)
{
    opened.wrong += !protocols || strcmp(protocols, "file") != 0;
}

int __real_avio_open2(AVIOContext **io, const char *url, int flags, const AVIOInterruptCB *cb,
                      AVDictionary **options);
int __wrap_avio_open2(AVIOContext **io, const char *url, int flags, const AVIOInterruptCB *cb,
                      AVDictionary **options);
int __wrap_avio_open2(AVIOContext **io, const char *url, int flags, const AVIOInterruptCB *cb,
                      AVDictionary **options)
{
    const AVDictionaryEntry *e = options ? av_dict_get(*options, "protocol_whitelist", NULL, 0)
                                         : NULL;
    opened.files++;
    look(e ? e->value : NULL);
    return __real_avio_open2(io, url, flags, cb, options);
}

int __real_avformat_open_input(AVFormatContext **format, const char *url, const AVInputFormat *kind,
                               AVDictionary **options);
int __wrap_avformat_open_input(AVFormatContext **format, const char *url, const AVInputFormat *kind,
                               AVDictionary **options);
int __wrap_avformat_open_input(AVFormatContext **format, const char *url, const AVInputFormat *kind,
                               AVDictionary **options)
{
    int rc = __real_avformat_open_input(format, url, kind, options);
    opened.containers++;
    look(rc < 0 ? NULL : (*format)->protocol_whitelist);
    return rc;
}

/* Whatever a demuxer of the list would open besides the file, only files can be: the whitelist that
 * FFmpeg goes by says so. */
static void test_protocols(void **state)
{
    struct means m;
    (void)state;
    memset(&opened, 0, sizeof opened);
    shell("ffmpeg -nostdin -v error -y -f lavfi -i testsrc2=s=128x96:r=10:d=0.5 -c:v libx264 "
          "-pix_fmt yuv420p one.mp4");
    ours("one.mp4", &m);
    assert_true(opened.files > 0 && opened.containers > 0);
    assert_int_equal(opened.wrong, 0);
}

static int begin(void **state)
{
    (void)state;
    return mkdtemp(scratch) ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return file_remove_tree(scratch, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_colours),  cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_shape),    cmocka_unit_test(test_formats),
        cmocka_unit_test(test_still),    cmocka_unit_test(test_covers),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_notes),    cmocka_unit_test(test_times),
        cmocka_unit_test(test_torn),     cmocka_unit_test(test_playlists),
        cmocka_unit_test(test_protocols)};
    return cmocka_run_group_tests(tests, begin, end);
}
