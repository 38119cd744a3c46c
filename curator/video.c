#include "curator/video.h"

#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/imgutils.h>
#include <libswscale/swscale.h>
#include <stdlib.h>
#include <string.h>

struct decoder {
    AVFormatContext *format;
    AVCodecContext *codec;
    int stream;
    AVPacket *packet;
    AVFrame *frame;
    struct SwsContext *to_rgb, *to_planes;
    int height, width;
    uint8_t *rgb, *planes;
    double first_s;
    video_fn *fn;
    void *ctx;
    struct video_info *info;
};

static int open_stream(struct decoder *d, const char *path, struct err *err)
{
    const AVCodec *codec = NULL;
    char text[AV_ERROR_MAX_STRING_SIZE];
    int rc = avformat_open_input(&d->format, path, NULL, NULL);
    if (rc < 0)
        return err_set(err, ERR_INPUT, "cannot open as video: %s", av_make_error_string(text, sizeof text, rc));
    if ((rc = avformat_find_stream_info(d->format, NULL)) < 0)
        return err_set(err, ERR_INPUT, "cannot read its streams: %s", av_make_error_string(text, sizeof text, rc));
    d->stream = av_find_best_stream(d->format, AVMEDIA_TYPE_VIDEO, -1, -1, &codec, 0);
    if (d->stream < 0 || !codec)
        return err_set(err, ERR_INPUT, "holds no video stream that can be decoded");
    d->codec = avcodec_alloc_context3(codec);
    if (!d->codec || avcodec_parameters_to_context(d->codec, d->format->streams[d->stream]->codecpar) < 0)
        return err_set(err, ERR_NOMEM, "out of memory opening the decoder");
    d->codec->thread_count = 1; /* sources are worked on side by side; and one thread gives one result */
    if ((rc = avcodec_open2(d->codec, codec, NULL)) < 0)
        return err_set(err, ERR_INPUT, "its decoder does not start: %s", av_make_error_string(text, sizeof text, rc));
    return 0;
}

/* The largest centred window of the frame with the aspect of width x height, on even pixels. */
static void crop_centre(AVFrame *f, int height, int width)
{
    int64_t w = f->width, h = f->height;
    if (w * height > h * width)
        w = h * width / height;
    else
        h = w * height / width;
    f->crop_left = (size_t)((f->width - w) / 2) & ~(size_t)1;
    f->crop_top = (size_t)((f->height - h) / 2) & ~(size_t)1;
    f->crop_right = (size_t)(f->width - w) - f->crop_left;
    f->crop_bottom = (size_t)(f->height - h) - f->crop_top;
    av_frame_apply_cropping(f, AV_FRAME_CROP_UNALIGNED);
}

static int convert(struct decoder *d, struct err *err)
{
    AVFrame *f = d->frame;
    uint8_t *rgb[] = {d->rgb}, *planes[] = {d->planes, d->planes + SHOTS_PLANE, d->planes + 2 * SHOTS_PLANE};
    int rgb_stride[] = {3 * d->width}, plane_stride[] = {SHOTS_W, SHOTS_W, SHOTS_W};
    d->to_planes = sws_getCachedContext(d->to_planes, f->width, f->height, f->format, SHOTS_W, SHOTS_H, AV_PIX_FMT_YUV444P,
                                        SWS_AREA | SWS_BITEXACT, NULL, NULL, NULL);
    if (!d->to_planes || sws_scale(d->to_planes, (const uint8_t *const *)f->data, f->linesize, 0, f->height, planes, plane_stride) < 0)
        return err_set(err, ERR_INPUT, "frame %lld cannot be scaled", (long long)d->info->frames);
    crop_centre(f, d->height, d->width);
    d->to_rgb = sws_getCachedContext(d->to_rgb, f->width, f->height, f->format, d->width, d->height, AV_PIX_FMT_RGB24,
                                     SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_BITEXACT, NULL, NULL, NULL);
    if (!d->to_rgb || sws_scale(d->to_rgb, (const uint8_t *const *)f->data, f->linesize, 0, f->height, rgb, rgb_stride) < 0)
        return err_set(err, ERR_INPUT, "frame %lld cannot be scaled", (long long)d->info->frames);
    return 0;
}

static int frame_out(struct decoder *d, struct err *err)
{
    const AVStream *s = d->format->streams[d->stream];
    int64_t pts = d->frame->best_effort_timestamp;
    double time = pts == AV_NOPTS_VALUE ? (double)d->info->frames / 25 : (double)pts * av_q2d(s->time_base);
    if (d->info->frames == 0)
        d->first_s = time;
    if (d->frame->decode_error_flags && !d->info->damaged) {
        d->info->damaged = true;
        snprintf(d->info->damage, sizeof d->info->damage, "damaged from frame %lld on", (long long)d->info->frames);
    }
    int rc = convert(d, err);
    if (rc < 0)
        return rc;
    struct video_frame out = {d->info->frames++, time - d->first_s, d->rgb, d->planes};
    d->info->seconds = out.time_s;
    return d->fn(d->ctx, &out, err);
}

static void damage_note(struct decoder *d, const char *what)
{
    if (!d->info->damaged)
        snprintf(d->info->damage, sizeof d->info->damage, "%s after frame %lld", what, (long long)d->info->frames - 1);
    d->info->damaged = true;
}

/* Everything the decoder has ready. packet NULL: drain. */
static int drain(struct decoder *d, const AVPacket *packet, struct err *err)
{
    if (avcodec_send_packet(d->codec, packet) < 0 && packet)
        damage_note(d, "undecodable data");
    for (int rc; (rc = avcodec_receive_frame(d->codec, d->frame)) != AVERROR(EAGAIN) && rc != AVERROR_EOF;) {
        if (rc < 0) {
            damage_note(d, "undecodable data");
            return 0;
        }
        rc = frame_out(d, err);
        av_frame_unref(d->frame);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int decode_all(struct decoder *d, struct err *err)
{
    int rc = 0, read;
    while (rc == 0 && (read = av_read_frame(d->format, d->packet)) >= 0) {
        if (d->packet->stream_index == d->stream)
            rc = drain(d, d->packet, err);
        if (d->packet->flags & AV_PKT_FLAG_CORRUPT)
            damage_note(d, "damaged packet");
        av_packet_unref(d->packet);
    }
    if (rc == 0 && read != AVERROR_EOF)
        damage_note(d, "breaks off");
    if (rc == 0)
        rc = drain(d, NULL, err);
    int64_t promised = d->format->streams[d->stream]->nb_frames;
    if (rc == 0 && promised > d->info->frames)
        damage_note(d, "breaks off");
    return rc;
}

static int buffers_take(struct decoder *d, struct err *err)
{
    d->packet = av_packet_alloc();
    d->frame = av_frame_alloc();
    d->rgb = av_malloc((size_t)(d->width * d->height * 3 + 64));
    d->planes = av_malloc(SHOTS_BYTES + 64);
    return d->packet && d->frame && d->rgb && d->planes ? 0 : err_set(err, ERR_NOMEM, "out of memory for frames");
}

int video_decode(const char *path, int height, int width, video_fn *fn, void *ctx, struct video_info *out, struct err *err)
{
    struct decoder d = {.height = height, .width = width, .fn = fn, .ctx = ctx, .info = out};
    *out = (struct video_info){0};
    av_log_set_level(AV_LOG_QUIET); /* what is wrong comes back as a sentence */
    int rc = open_stream(&d, path, err);
    if (rc == 0)
        rc = buffers_take(&d, err);
    if (rc == 0) {
        out->width = d.codec->width;
        out->height = d.codec->height;
        rc = decode_all(&d, err);
    }
    if (rc == 0 && out->frames == 0)
        rc = err_set(err, ERR_INPUT, "not one frame could be decoded");
    if (rc == 0) {
        AVRational rate = av_guess_frame_rate(d.format, d.format->streams[d.stream], NULL);
        out->fps = out->seconds > 0 && out->frames > 1 ? (double)(out->frames - 1) / out->seconds : rate.num ? av_q2d(rate) : 25;
    }
    sws_freeContext(d.to_rgb);
    sws_freeContext(d.to_planes);
    av_free(d.rgb);
    av_free(d.planes);
    av_frame_free(&d.frame);
    av_packet_free(&d.packet);
    avcodec_free_context(&d.codec);
    avformat_close_input(&d.format);
    return rc;
}
