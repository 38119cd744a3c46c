#include "curator/video.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/avstring.h>
#include <libavutil/imgutils.h>
#include <libavutil/pixdesc.h>
#include <libswscale/swscale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

/* Lists the containers that are opened, all of which hold pictures and sound. None of them names
 * other files that FFmpeg would open. */
static const char demuxers[] =
    "mov,mp4,matroska,webm,avi,mpeg,mpegts,flv,live_flv,asf,gif,apng,"
    "ogg,mxf,nut,rm,dv,ivf,wtv,h264,hevc,av1,obu,mpegvideo,m4v,mjpeg,vc1,dirac,yuv4mpegpipe";

/* Says how a decoded picture is rotated upright: rows and columns are swapped, then either may be
 * reversed. */
struct turn { bool swap, flip_x, flip_y; };
/* Says for which input a scaler was set up. It is set up again only when this changes. */
struct colours { int matrix, full, width, height, format; };

struct decoder {
    AVIOContext *io;
    AVFormatContext *format;
    AVCodecContext *codec;
    int stream;
    int64_t *promised;   /* [n_promised] frames of each stream that the container says it has */
    unsigned n_promised;
    AVPacket *packet;
    AVFrame *frame;
    struct SwsContext *to_rgb, *to_planes;
    struct colours rgb_set, planes_set;
    int height, width;
    struct turn turn;
    uint8_t *rgb, *lying, *planes; /* lying: the picture before it is rotated */
    struct video_wants wants;
    /* of the newest frame: its time in the file, what is subtracted from it, its duration */
    double file_s, skip_s, lasts_s;
    video_fn *fn;
    void *ctx;
    struct video_info *info;
};

/* ---- opening ---- */

/* Returns ERR_NOMEM or ERR_TEMP for a failure that may be temporary, and else ERR_INPUT: the file
 * is no video. */
static int refuse(struct decoder *d, int rc, const char *what, struct err *err)
{
    char text[AV_ERROR_MAX_STRING_SIZE];
    int failed = d->io && d->io->error < 0 ? d->io->error : rc;
    av_make_error_string(text, sizeof text, failed);
    if (rc == AVERROR(ENOMEM))
        return err_set(err, ERR_NOMEM, "%s: out of memory", what);
    return err_set(err, d->io && d->io->error < 0 ? ERR_TEMP : ERR_INPUT, "%s: %s", what, text);
}

/* Opens the file. It was read a moment ago, so a failure here says nothing about the video. */
static int open_file(struct decoder *d, const char *path, struct err *err)
{
    char url[LIMIT_PATH_BYTES + 8], text[AV_ERROR_MAX_STRING_SIZE];
    AVDictionary *options = NULL;
    snprintf(url, sizeof url, "file:%s", path);
    av_dict_set(&options, "protocol_whitelist", "file", 0);
    int rc = avio_open2(&d->io, url, AVIO_FLAG_READ, NULL, &options);
    av_dict_free(&options);
    if (rc < 0)
        return err_set(err, rc == AVERROR(ENOMEM) ? ERR_NOMEM : ERR_TEMP,
                       "cannot open the file: %s", av_make_error_string(text, sizeof text, rc));
    return 0;
}

/* Opens the container, whose format is recognised only by its content, not by the file's name. */
static int open_container(struct decoder *d, struct err *err)
{
    const AVInputFormat *format = NULL;
    AVDictionary *options = NULL;
    int rc = av_probe_input_buffer2(d->io, &format, NULL, NULL, 0, 0);
    if (rc < 0 || !format)
        return refuse(d, rc, "cannot open as video", err);
    if (!av_match_list(format->name, demuxers, ','))
        return err_set(err, ERR_INPUT, "its content is of format '%s', which is not opened: it is "
                                       "no video, or a list that names other files; give the "
                       "files themselves", format->name);
    if (!(d->format = avformat_alloc_context()))
        return err_set(err, ERR_NOMEM, "out of memory opening the file");
    d->format->pb = d->io;
    /* The container's own list of protocols is that of d->io. */
    av_dict_set(&options, "format_whitelist", demuxers, 0);
    /* avformat_open_input frees d->format when it fails. */
    rc = avformat_open_input(&d->format, NULL, format, &options);
    av_dict_free(&options);
    return rc < 0 ? refuse(d, rc, "cannot open as video", err) : 0;
}

/* Returns how many frames a stream has according to its container; 0: it does not say. The number
 * in the header may be too large: it counts frames that an edit list removes, and in AVI the empty
 * chunks of dropped frames. The index, if there is one, has only real frames. */
static int64_t frames_promised(AVStream *s)
{
    int entries = avformat_index_get_entries_count(s);
    int64_t filled = 0;
    for (int i = 0; i < entries; i++)
        filled += avformat_index_get_entry(s, i)->size > 0;
    return entries > 0 && filled < s->nb_frames ? filled : s->nb_frames;
}

/* Stores the frame counts of the streams. This must come before packets are read, which some
 * demuxers add to the index. */
static int promises_note(struct decoder *d, struct err *err)
{
    d->n_promised = d->format->nb_streams;
    d->promised = av_calloc(d->n_promised + 1, sizeof *d->promised);
    if (!d->promised)
        return err_set(err, ERR_NOMEM, "out of memory opening the file");
    for (unsigned i = 0; i < d->n_promised; i++)
        d->promised[i] = frames_promised(d->format->streams[i]);
    return 0;
}

static void note_add(struct video_info *info, const char *what)
{
    size_t n = strlen(info->note);
    if (!strstr(info->note, what))
        snprintf(info->note + n, sizeof info->note - n, "%s%s", n ? "; " : "", what);
}

/* Holds the criteria by which a player would prefer a stream: the first one in which two streams
 * differ decides. */
struct claim { bool moves, is_default; int64_t pixels; };

static bool is_picture(const AVStream *s)
{
    return s->disposition & (AV_DISPOSITION_ATTACHED_PIC | AV_DISPOSITION_TIMED_THUMBNAILS);
}

static bool is_video(const AVStream *s)
{
    return s->codecpar->codec_type == AVMEDIA_TYPE_VIDEO && !is_picture(s) &&
           avcodec_find_decoder(s->codecpar->codec_id);
}

/* Returns the stored frame count of a stream; 0: not known. */
static int64_t promise_of(const struct decoder *d, unsigned i)
{
    return i < d->n_promised ? d->promised[i] : 0;
}

/* Returns the claim of stream i. `most` is the greatest number of frames that any stream has: if
 * one has several, a stream with one frame or none does not move. */
static struct claim claim_of(const struct decoder *d, unsigned i, int64_t most)
{
    const AVStream *s = d->format->streams[i];
    return (struct claim){.moves = most < 2 || promise_of(d, i) > 1,
                          .is_default = s->disposition & AV_DISPOSITION_DEFAULT,
                          .pixels = (int64_t)s->codecpar->width * s->codecpar->height};
}

static bool is_stronger(const struct claim *a, const struct claim *b)
{
    if (a->moves != b->moves)
        return a->moves;
    if (a->is_default != b->is_default)
        return a->is_default;
    return a->pixels > b->pixels;
}

/* Returns the number of the chosen stream, -1: there is none; writes the number of video streams to
 * *n. */
static int stream_choose(const struct decoder *d, int *n)
{
    struct claim best = {0};
    int64_t most = 0;
    int chosen = -1;
    *n = 0;
    for (unsigned i = 0; i < d->format->nb_streams; i++)
        if (is_video(d->format->streams[i]) && promise_of(d, i) > most)
            most = promise_of(d, i);
    for (unsigned i = 0; i < d->format->nb_streams; i++) {
        struct claim own = claim_of(d, i, most);
        if (!is_video(d->format->streams[i]))
            continue;
        if (++*n == 1 || is_stronger(&own, &best))
            best = own, chosen = (int)i;
    }
    return chosen;
}

static int stream_refuse(const struct decoder *d, struct err *err)
{
    for (unsigned i = 0; i < d->format->nb_streams; i++)
        if (is_picture(d->format->streams[i]))
            return err_set(err, ERR_INPUT, "holds no video, only a picture such as a record's "
                                           "cover");
    return err_set(err, ERR_INPUT, "holds no video stream that can be decoded");
}

static int stream_find(struct decoder *d, struct err *err)
{
    char what[96];
    int n, rc = promises_note(d, err);
    if (rc < 0)
        return rc;
    if ((rc = avformat_find_stream_info(d->format, NULL)) < 0)
        return refuse(d, rc, "cannot read its streams", err);
    if ((d->stream = stream_choose(d, &n)) < 0)
        return d->io->error < 0 ? refuse(d, d->io->error, "cannot read its streams", err)
                                : stream_refuse(d, err);
    const AVCodecParameters *p = d->format->streams[d->stream]->codecpar;
    snprintf(what, sizeof what, "stream %d (%dx%d) of %d video streams", d->stream, p->width,
             p->height, n);
    if (n > 1)
        note_add(d->info, what);
    return 0;
}

static int open_stream(struct decoder *d, struct err *err)
{
    int rc = stream_find(d, err);
    if (rc < 0)
        return rc;
    const AVCodecParameters *p = d->format->streams[d->stream]->codecpar;
    const AVCodec *codec = avcodec_find_decoder(p->codec_id);
    d->codec = avcodec_alloc_context3(codec);
    if (!d->codec || avcodec_parameters_to_context(d->codec, p) < 0)
        return err_set(err, ERR_NOMEM, "out of memory opening the decoder");
    /* Sources are processed in parallel anyway, and one thread always gives the same result. */
    d->codec->thread_count = 1;
    return (rc = avcodec_open2(d->codec, codec, NULL)) < 0
               ? refuse(d, rc, "its decoder does not start", err)
               : 0;
}

static const int32_t *display_matrix(const AVStream *s)
{
#if LIBAVFORMAT_VERSION_MAJOR >= 61
    const AVPacketSideData *found = av_packet_side_data_get(
        s->codecpar->coded_side_data, s->codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    return found && found->size >= 9 * sizeof(int32_t) ? (const int32_t *)(const void *)found->data
                                                       : NULL;
#else
    size_t size = 0;
    const uint8_t *found = av_stream_get_side_data(s, AV_PKT_DATA_DISPLAYMATRIX, &size);
    return found && size >= 9 * sizeof(int32_t) ? (const int32_t *)(const void *)found : NULL;
#endif
}

/* Reads the display matrix (libavutil/display.h), which takes (x, y) to (x·m[0] + y·m[3], x·m[1] +
 * y·m[4]). Angles other than quarter turns are left as they are. */
static void turn_read(struct decoder *d)
{
    const int32_t *m = display_matrix(d->format->streams[d->stream]);
    if (!m)
        return;
    int64_t straight = llabs((int64_t)m[0]) + llabs((int64_t)m[4]),
        crossed = llabs((int64_t)m[1]) + llabs((int64_t)m[3]);
    if (100 * straight > crossed && 100 * crossed > straight)
        note_add(d->info, "turned by no quarter turn, taken as it lies");
    else if (crossed > straight)
        d->turn = (struct turn){true, m[3] < 0, m[1] < 0};
    else
        d->turn = (struct turn){false, m[0] < 0, m[4] < 0};
}

/* ---- colours ---- */

static int matrix_of(const AVFrame *f, struct video_info *info)
{
    switch (f->colorspace) {
    case AVCOL_SPC_BT709:
        return SWS_CS_ITU709;
    case AVCOL_SPC_FCC:
        return SWS_CS_FCC;
    case AVCOL_SPC_BT470BG:
    case AVCOL_SPC_SMPTE170M:
        return SWS_CS_ITU601;
    case AVCOL_SPC_SMPTE240M:
        return SWS_CS_SMPTE240M;
    case AVCOL_SPC_BT2020_NCL:
        return SWS_CS_BT2020;
    case AVCOL_SPC_UNSPECIFIED:
    case AVCOL_SPC_RESERVED:
    case AVCOL_SPC_RGB:
        break;
    default:
        note_add(info, "a colour matrix that is not known, taken by its size");
        break;
    }
    return f->width >= 1280 || f->height > 576 ? SWS_CS_ITU709 : SWS_CS_ITU601;
}

/* Returns the pixel format without its range, which the scaler gets separately. */
static enum AVPixelFormat layout_of(const AVFrame *f)
{
    switch (f->format) {
    case AV_PIX_FMT_YUVJ420P: return AV_PIX_FMT_YUV420P;
    case AV_PIX_FMT_YUVJ422P: return AV_PIX_FMT_YUV422P;
    case AV_PIX_FMT_YUVJ444P: return AV_PIX_FMT_YUV444P;
    case AV_PIX_FMT_YUVJ440P: return AV_PIX_FMT_YUV440P;
    case AV_PIX_FMT_YUVJ411P: return AV_PIX_FMT_YUV411P;
    default: return f->format;
    }
}

/* Says whether this is grey of up to 16 bits, with or without alpha: FFmpeg treats it as full range
 * if its metadata has none. */
static bool is_grey(const AVFrame *f)
{
    const AVPixFmtDescriptor *desc = av_pix_fmt_desc_get(f->format);
    const uint64_t others = AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL | AV_PIX_FMT_FLAG_BITSTREAM |
        AV_PIX_FMT_FLAG_FLOAT;
    return desc && desc->nb_components <= 2 && desc->comp[0].depth <= 16 && !(desc->flags & others);
}

static bool is_full_range(const AVFrame *f)
{
    return f->color_range == AVCOL_RANGE_JPEG || (int)layout_of(f) != f->format ||
        (f->color_range == AVCOL_RANGE_UNSPECIFIED && is_grey(f));
}

/* Describes the output of a scaler: its size, its format and SWS flags. */
struct scaled { int width, height, flags; enum AVPixelFormat format; };

/* Sets up a scaler with the given colours, unless it is set up for just these.
 * sws_getCachedContext() is of no use here: for some formats it does not recognise its own
 * settings, makes the scaler anew for each frame, and forgets the colours. */
static int scaler_make(struct SwsContext **to, const AVFrame *f, const struct colours *wanted,
                       const struct scaled *out, struct colours *set)
{
    const int *table = sws_getCoefficients(wanted->matrix);
    if (*to && memcmp(set, wanted, sizeof *set) == 0)
        return 0;
    sws_freeContext(*to);
    *to = sws_getContext(f->width, f->height, layout_of(f), out->width, out->height, out->format,
                         out->flags | SWS_BITEXACT, NULL, NULL, NULL);
    if (!*to)
        return ERR_INPUT;
    /* The output is RGB, or narrow-range planes of the same matrix. */
    sws_setColorspaceDetails(*to, table, wanted->full, table, 0, 0, 1 << 16, 1 << 16);
    *set = *wanted;
    return 0;
}

static bool is_interlaced(const AVFrame *f)
{
#ifdef AV_FRAME_FLAG_INTERLACED
    return f->flags & AV_FRAME_FLAG_INTERLACED;
#else
    return f->interlaced_frame;
#endif
}

static void notes_take(struct video_info *info, const AVFrame *f)
{
    const AVPixFmtDescriptor *desc = av_pix_fmt_desc_get(f->format);
    if (f->color_trc == AVCOL_TRC_SMPTE2084 || f->color_trc == AVCOL_TRC_ARIB_STD_B67) {
        info->hdr = true;
        note_add(info, f->color_trc == AVCOL_TRC_SMPTE2084 ? "HDR (PQ), not tone-mapped"
                 : "HDR (HLG), not tone-mapped");
    }
    if (desc && desc->flags & AV_PIX_FMT_FLAG_ALPHA)
        note_add(info, "transparent, taken as opaque");
    if (is_interlaced(f))
        note_add(info, "interlaced, taken as it is");
}

/* ---- shape ---- */

/* Cuts the frame down to its window. FFmpeg does not cut the left and upper edges of formats
 * with several pixels in a byte; the scaler supports those with one bit a pixel, so they are cut
 * here. */
static void window_cut(AVFrame *f, bool packed)
{
    if (packed) {
        f->data[0] += (ptrdiff_t)f->crop_top * f->linesize[0] + (ptrdiff_t)f->crop_left / 8;
        f->width -= (int)f->crop_left;
        f->height -= (int)f->crop_top;
        f->crop_left = f->crop_top = 0;
    }
    av_frame_apply_cropping(f, AV_FRAME_CROP_UNALIGNED);
}

/* Returns where a window that leaves out this much begins: in the middle, or a little before, where
 * a chroma sample begins too, so that luma and chroma stay aligned. */
static size_t window_begin(int64_t left_out, int log2_chroma)
{
    size_t step = (size_t)1 << (log2_chroma > 1 ? log2_chroma : 1);
    return (size_t)(left_out / 2) & ~(step - 1);
}

/* Finds the largest centred window of the frame that has the aspect of width x height, counting the
 * pixels' own aspect ratio. Its edges are at pixels at which all planes can be cut. */
static void crop_centre(struct decoder *d, int height, int width)
{
    AVFrame *f = d->frame;
    AVRational pixel = av_guess_sample_aspect_ratio(d->format, d->format->streams[d->stream], f);
    if (pixel.num < 1 || pixel.den < 1 || pixel.num > 64 * (int64_t)pixel.den ||
        pixel.den > 64 * (int64_t)pixel.num)
        pixel = (AVRational){1, 1};
    double aspect = (double)width / height * pixel.den / pixel.num; /* of the window, in pixels */
    int64_t w = f->width, h = f->height, whole = w * h;
    if ((double)w > (double)h * aspect)
        w = (int64_t)((double)h * aspect + 1e-6);
    else
        h = (int64_t)((double)w / aspect + 1e-6);
    w = w < 1 ? 1 : w;
    h = h < 1 ? 1 : h;
    const AVPixFmtDescriptor *desc = av_pix_fmt_desc_get(f->format);
    bool packed = desc->flags & AV_PIX_FMT_FLAG_BITSTREAM;
    f->crop_left = window_begin(f->width - w, packed ? 3 : desc->log2_chroma_w);
    f->crop_top = window_begin(f->height - h, desc->log2_chroma_h);
    f->crop_right = (size_t)(f->width - w) - f->crop_left;
    f->crop_bottom = (size_t)(f->height - h) - f->crop_top;
    window_cut(f, packed);
    if (d->info->frames == 0)
        d->info->cropped = 1 - (double)(w * h) / (double)whole;
}

/* Rotates the picture from `lying`, with rows and columns as coded, upright into `rgb`. */
static void turn_upright(struct decoder *d)
{
    int rows = d->turn.swap ? d->width : d->height, columns = d->turn.swap ? d->height : d->width;
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++) {
            int to_x = d->turn.swap ? y : x, to_y = d->turn.swap ? x : y;
            to_x = d->turn.flip_x ? d->width - 1 - to_x : to_x;
            to_y = d->turn.flip_y ? d->height - 1 - to_y : to_y;
            memcpy(d->rgb + 3 * (to_y * d->width + to_x), d->lying + 3 * (y * columns + x), 3);
        }
}

static int scale_failed(const struct decoder *d, struct err *err)
{
    return err_set(err, ERR_INPUT, "frame %lld cannot be scaled", (long long)d->info->frames);
}

static struct colours colours_of(const AVFrame *f, int matrix)
{
    return (struct colours){matrix, is_full_range(f), f->width, f->height, f->format};
}

static int planes_make(struct decoder *d, int matrix, struct err *err)
{
    static const struct scaled small = {SHOTS_W, SHOTS_H, SWS_AREA, AV_PIX_FMT_YUV444P};
    const AVFrame *f = d->frame;
    uint8_t *planes[] = {d->planes, d->planes + SHOTS_PLANE, d->planes + 2 * SHOTS_PLANE};
    int stride[] = {SHOTS_W, SHOTS_W, SHOTS_W};
    struct colours wanted = colours_of(f, matrix);
    if (scaler_make(&d->to_planes, f, &wanted, &small, &d->planes_set) < 0)
        return scale_failed(d, err);
    return sws_scale(d->to_planes, (const uint8_t *const *)f->data, f->linesize, 0, f->height,
                     planes, stride) < 0 ? scale_failed(d, err) : 0;
}

static int convert(struct decoder *d, struct err *err)
{
    AVFrame *f = d->frame;
    bool turns = d->turn.swap || d->turn.flip_x || d->turn.flip_y;
    struct scaled lying = {d->turn.swap ? d->height : d->width, d->turn.swap ? d->width : d->height,
                           SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT, AV_PIX_FMT_RGB24};
    uint8_t *rgb[] = {turns ? d->lying : d->rgb};
    int stride[] = {3 * lying.width}, matrix = matrix_of(f, d->info);
    int rc;
    if (d->wants.planes && (rc = planes_make(d, matrix, err)) < 0)
        return rc;
    crop_centre(d, lying.height, lying.width);
    if (!d->wants.rgb)
        return 0;
    struct colours wanted = colours_of(f, matrix);
    if (scaler_make(&d->to_rgb, f, &wanted, &lying, &d->rgb_set) < 0 ||
        sws_scale(d->to_rgb, (const uint8_t *const *)f->data, f->linesize, 0, f->height, rgb,
                  stride) < 0)
        return scale_failed(d, err);
    if (turns)
        turn_upright(d);
    return 0;
}

/* ---- the clock ---- */

/* A clock jumps when it goes back by more than BACK_S or forward by more than AHEAD_S, or by more
 * than AHEAD_DISCONT_S in a container whose clock may jump. FFmpeg's command does the same. */
static const double BACK_S = 0.1, AHEAD_S = 3600, AHEAD_DISCONT_S = 10;

static double ahead_most_s(const struct decoder *d)
{
    return d->format->iformat->flags & AVFMT_TS_DISCONT ? AHEAD_DISCONT_S : AHEAD_S;
}

/* Returns the duration of the frame from its metadata, or from the frame rate if the metadata has
 * none or nonsense. */
static double frame_lasts(const struct decoder *d)
{
    AVStream *s = d->format->streams[d->stream];
    AVRational rate = av_guess_frame_rate(d->format, s, NULL);
#if LIBAVUTIL_VERSION_MAJOR >= 58
    double lasts = (double)d->frame->duration * av_q2d(s->time_base);
#else
    double lasts = (double)d->frame->pkt_duration * av_q2d(s->time_base);
#endif
    if (lasts > 0 && lasts <= ahead_most_s(d))
        return lasts;
    return rate.num > 0 && rate.den > 0 ? 1 / av_q2d(rate) : 1.0 / 25;
}

/* Advances the clock to the frame and returns its time. A frame without a timestamp directly
 * follows the frame before it. */
static double clock_step(struct decoder *d)
{
    int64_t pts = d->frame->best_effort_timestamp;
    double due = d->file_s + d->lasts_s;
    double time = pts == AV_NOPTS_VALUE
                      ? due
                      : (double)pts * av_q2d(d->format->streams[d->stream]->time_base);
    if (d->info->frames == 0)
        d->skip_s = time;
    else if (time < d->file_s - BACK_S || time > d->file_s + ahead_most_s(d))
        d->skip_s += time - due;
    d->file_s = time;
    d->lasts_s = frame_lasts(d);
    d->info->seconds = time - d->skip_s + d->lasts_s;
    return time - d->skip_s;
}

int64_t video_ticks(double time_s, double fps)
{
    return (int64_t)floor(time_s * fps + 0.55);
}

/* ---- the pass ---- */

static int frame_out(struct decoder *d, struct err *err)
{
    double time = clock_step(d);
    if (d->frame->decode_error_flags && !d->info->damaged) {
        d->info->damaged = true;
        snprintf(d->info->damage, sizeof d->info->damage, "damaged from frame %lld on",
                 (long long)d->info->frames);
    }
    notes_take(d->info, d->frame);
    int rc = convert(d, err);
    if (rc < 0)
        return rc;
    struct video_frame out = {d->info->frames++, time, d->wants.rgb ? d->rgb : NULL,
                              d->wants.planes ? d->planes : NULL, &d->wants};
    return d->fn(d->ctx, &out, err);
}

static void damage_note(struct decoder *d, const char *what)
{
    if (!d->info->damaged)
        snprintf(d->info->damage, sizeof d->info->damage, "%s after frame %lld", what,
                 (long long)d->info->frames - 1);
    d->info->damaged = true;
}

/* Gives the decoder a packet, and passes on all frames that it then has ready. With packet NULL,
 * after the last packet, these are its last frames. */
static int drain(struct decoder *d, const AVPacket *packet, struct err *err)
{
    int rc = avcodec_send_packet(d->codec, packet);
    if (rc < 0 && rc != AVERROR(ENOMEM) && packet)
        damage_note(d, "undecodable data");
    while (rc != AVERROR(ENOMEM) &&
           (rc = avcodec_receive_frame(d->codec, d->frame)) != AVERROR(EAGAIN) &&
           rc != AVERROR_EOF) {
        if (rc < 0 && rc != AVERROR(ENOMEM)) {
            damage_note(d, "undecodable data");
            return 0;
        }
        if (rc >= 0 && (rc = frame_out(d, err)) < 0)
            return rc;
        av_frame_unref(d->frame);
    }
    return rc == AVERROR(ENOMEM) ? err_set(err, ERR_NOMEM, "out of memory decoding frame %lld",
                                           (long long)d->info->frames) : 0;
}

static int decode_all(struct decoder *d, struct err *err)
{
    bool told = d->stream < (int)d->n_promised;
    int64_t packets = 0, promised = told ? d->promised[d->stream] : 0;
    int rc, read;
    while ((read = av_read_frame(d->format, d->packet)) >= 0) {
        bool ours = d->packet->stream_index == d->stream;
        packets += ours;
        rc = ours ? drain(d, d->packet, err) : 0;
        if (d->packet->flags & AV_PKT_FLAG_CORRUPT)
            damage_note(d, "damaged packet");
        av_packet_unref(d->packet);
        if (rc < 0)
            return rc;
    }
    if (d->io->error < 0 || read == AVERROR(ENOMEM))
        return refuse(d, read, "cannot be read to its end", err);
    if (read != AVERROR_EOF)
        damage_note(d, "breaks off");
    if ((rc = drain(d, NULL, err)) < 0)
        return rc;
    if (promised > packets)
        damage_note(d, "breaks off");
    return 0;
}

static int buffers_take(struct decoder *d, struct err *err)
{
    d->packet = av_packet_alloc();
    d->frame = av_frame_alloc();
    d->rgb = av_malloc((size_t)(d->width * d->height * 3 + 64));
    d->lying = av_malloc((size_t)(d->width * d->height * 3 + 64));
    d->planes = av_malloc(SHOTS_BYTES + 64);
    return d->packet && d->frame && d->rgb && d->lying && d->planes ? 0
        : err_set(err, ERR_NOMEM, "out of memory for frames");
}

static void decoder_close(struct decoder *d)
{
    sws_freeContext(d->to_rgb);
    sws_freeContext(d->to_planes);
    av_free(d->promised);
    av_free(d->rgb);
    av_free(d->lying);
    av_free(d->planes);
    av_frame_free(&d->frame);
    av_packet_free(&d->packet);
    avcodec_free_context(&d->codec);
    avformat_close_input(&d->format);
    avio_closep(&d->io);
}

int video_decode(const char *path, int height, int width, video_fn *fn, void *ctx,
                 struct video_info *out, struct err *err)
{
    struct decoder d = {.height = height, .width = width, .fn = fn, .ctx = ctx, .info = out,
                        .wants = {.rgb = true, .planes = true}};
    int rc;
    *out = (struct video_info){0};
    av_log_set_level(AV_LOG_QUIET); /* errors come back as sentences */
    if ((rc = open_file(&d, path, err)) < 0)
        goto out;
    if ((rc = open_container(&d, err)) < 0)
        goto out;
    if ((rc = open_stream(&d, err)) < 0)
        goto out;
    if ((rc = buffers_take(&d, err)) < 0)
        goto out;
    out->width = d.codec->width;
    out->height = d.codec->height;
    turn_read(&d);
    if ((rc = decode_all(&d, err)) < 0)
        goto out;
    if (out->frames == 0)
        rc = err_set(err, ERR_INPUT, "not one frame could be decoded");
out:
    decoder_close(&d);
    return rc;
}
