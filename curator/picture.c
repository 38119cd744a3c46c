#include "curator/picture.h"

#include <libavcodec/avcodec.h>
#include <libavutil/frame.h>
#include <string.h>

#include "base/file.h"

struct encoding {
    AVCodecContext *codec;
    AVFrame *frame;
    AVPacket *packet;
};

static int encoding_open(struct encoding *e, int height, int width, struct err *err)
{
    const AVCodec *png = avcodec_find_encoder(AV_CODEC_ID_PNG);
    if (!png)
        return err_set(err, ERR_ENV, "this FFmpeg has no PNG encoder: install one built with zlib");
    e->codec = avcodec_alloc_context3(png);
    e->frame = av_frame_alloc();
    e->packet = av_packet_alloc();
    if (!e->codec || !e->frame || !e->packet)
        return err_set(err, ERR_NOMEM, "out of memory for a picture");
    e->codec->width = e->frame->width = width;
    e->codec->height = e->frame->height = height;
    e->codec->pix_fmt = AV_PIX_FMT_RGB24;
    e->frame->format = AV_PIX_FMT_RGB24;
    e->codec->time_base = (AVRational){1, 1};
    if (avcodec_open2(e->codec, png, NULL) < 0 || av_frame_get_buffer(e->frame, 0) < 0)
        return err_set(err, ERR_IO, "the PNG encoder does not start for %d x %d", width, height);
    return 0;
}

static int encode(struct encoding *e, const uint8_t *rgb, struct err *err)
{
    for (int y = 0; y < e->frame->height; y++)
        memcpy(e->frame->data[0] + y * e->frame->linesize[0],
               rgb + (size_t)y * (size_t)e->frame->width * 3, (size_t)e->frame->width * 3);
    if (avcodec_send_frame(e->codec, e->frame) < 0 ||
        avcodec_receive_packet(e->codec, e->packet) < 0)
        return err_set(err, ERR_IO, "the PNG encoder gave nothing");
    return 0;
}

int picture_png_save(const char *path, const uint8_t *rgb, int height, int width, struct err *err)
{
    struct encoding e = {0};
    int rc;
    if ((rc = encoding_open(&e, height, width, err)) < 0)
        goto out;
    if ((rc = encode(&e, rgb, err)) < 0)
        goto out;
    rc = file_publish(path, (const char *)e.packet->data, (size_t)e.packet->size, err);
out:
    av_packet_free(&e.packet);
    av_frame_free(&e.frame);
    avcodec_free_context(&e.codec);
    return rc;
}
