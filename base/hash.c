#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct hash_stream {
    XXH3_state_t *state;
};

uint64_t hash_64(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}

static struct hash128 from_xxh(XXH128_hash_t h)
{
    return (struct hash128){.hi = h.high64, .lo = h.low64};
}

struct hash128 hash_128(const void *bytes, size_t n)
{
    return from_xxh(XXH3_128bits(bytes, n));
}

char *hash_format(struct hash128 h, char buf[HASH_TEXT_BYTES])
{
    snprintf(buf, HASH_TEXT_BYTES, "%016llx%016llx", (unsigned long long)h.hi,
             (unsigned long long)h.lo);
    return buf;
}

struct hash_stream *hash_stream_new(void)
{
    struct hash_stream *h = malloc(sizeof *h);

    if (!h)
        return NULL;
    /* The state needs an alignment of 64 bytes, which malloc does not guarantee. */
    h->state = XXH3_createState();
    if (!h->state) {
        free(h);
        return NULL;
    }
    XXH3_128bits_reset(h->state);
    return h;
}

void hash_stream_free(struct hash_stream *h)
{
    if (h)
        XXH3_freeState(h->state);
    free(h);
}

void hash_stream_add(struct hash_stream *h, const void *bytes, size_t n)
{
    XXH3_128bits_update(h->state, bytes, n);
}

struct hash128 hash_stream_128(const struct hash_stream *h)
{
    return from_xxh(XXH3_128bits_digest(h->state));
}

/* Hashes the file up to its present size. Without this bound, reading a file that grows as fast as
 * it is read would never end. */
static int hash_fd(int fd, const char *path, struct hash_stream *h, struct err *err)
{
    char block[32 << 10];
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_set_errno(err, ERR_IO, "cannot look at '%s'", path);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return err_set(err, ERR_INPUT, "'%s' is a pipe or a device: give a file", path);
    /* reading a folder fails, whatever its size */
    for (int64_t left = S_ISREG(st.st_mode) ? st.st_size : INT64_MAX; left > 0;) {
        ssize_t n = read(fd, block, left < (int64_t)sizeof block ? (size_t)left : sizeof block);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set_errno(err, ERR_IO, "cannot read '%s'", path);
        if (n == 0)
            return 0;
        hash_stream_add(h, block, (size_t)n);
        left -= n;
    }
    return 0;
}

int hash_file(const char *path, struct hash128 *out, struct err *err)
{
    /* O_NONBLOCK: open must not wait for a pipe's writer */
    int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct hash_stream *h;

    if (fd < 0)
        return err_set_errno(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "cannot open '%s'",
                             path);
    if (!(h = hash_stream_new())) {
        rc = err_set(err, ERR_NOMEM, "out of memory while hashing '%s'", path);
        goto out;
    }
    if ((rc = hash_fd(fd, path, h, err)) < 0)
        goto out;
    *out = hash_stream_128(h);
out:
    hash_stream_free(h);
    close(fd);
    return rc;
}
