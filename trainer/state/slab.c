#include "trainer/state/slab.h"

#include <stdlib.h>

enum { SLAB_BYTES = 1 << 20, PLACE_ALIGN = 16 };

struct slab {
    struct dev *dev;
    struct dev_stream *stream;
    void *host;   /* [SLAB_BYTES] pinned */
    int64_t used; /* bytes that queued copies may still read */
};

int slab_new(struct dev *dev, struct dev_stream *stream, struct slab **out, struct err *err)
{
    struct slab *s = NULL;
    int rc = 0;
    if (!dev->host_memory && !(s = calloc(1, sizeof *s)))
        return err_set(err, ERR_NOMEM, "out of memory for the slab of a device");
    if (s) {
        *s = (struct slab){.dev = dev, .stream = stream};
        rc = dev->alloc_host(dev, "slab of files", SLAB_BYTES, &s->host, err);
    }
    if (rc < 0)
        free(s);
    else
        *out = s;
    return rc;
}

void slab_free(struct slab *s)
{
    if (s)
        s->dev->free_host(s->dev, s->host);
    free(s);
}

int64_t slab_bytes(const struct dev *dev) { return dev->host_memory ? 0 : SLAB_BYTES; }

int64_t slab_most_bytes(const struct slab *s) { return s ? SLAB_BYTES : INT64_MAX; }

int slab_flush(struct slab *s, struct err *err)
{
    if (!s)
        return 0;
    s->used = 0;
    return s->dev->stream_sync(s->dev, s->stream, err);
}

int slab_place(struct slab *s, void *to, int64_t bytes, void **out, struct err *err)
{
    int rc;
    if (!s) {
        *out = to;
        return 0;
    }
    BUG_ON(bytes > SLAB_BYTES);
    if (s->used + bytes > SLAB_BYTES && (rc = slab_flush(s, err)) < 0)
        return rc;
    *out = (char *)s->host + s->used;
    s->used = (s->used + bytes + PLACE_ALIGN - 1) / PLACE_ALIGN * PLACE_ALIGN;
    return 0;
}

void slab_send(struct slab *s, void *to, const void *from, int64_t bytes)
{
    if (s)
        s->dev->copy(s->dev, to, from, bytes, DEV_H2D, s->stream);
}

void slab_take(struct slab *s, void *to, const void *from, int64_t bytes)
{
    s->dev->copy(s->dev, to, from, bytes, DEV_D2H, s->stream);
}

int slab_fetch(struct slab *s, const void *from, int64_t bytes, const void **out, struct err *err)
{
    int rc;
    if (s) {
        BUG_ON(bytes > SLAB_BYTES || s->used > 0);
        s->dev->copy(s->dev, s->host, from, bytes, DEV_D2H, s->stream);
        if ((rc = slab_flush(s, err)) < 0)
            return rc;
    }
    *out = s ? s->host : from;
    return 0;
}
