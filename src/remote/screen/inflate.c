/* Streams of zlib that last as long as a connection and come in parts. */
#include "internal.h"

#include <poise/parts.h>

#include <errno.h>

int screen_part_begin(struct screen_part *part, struct screen_source *source,
                      struct screen_inflate *inflate, uint64_t len)
{
    part->source = source;
    part->inflate = inflate;
    part->left = len;
    if (!poise_parts[POISE_PART_ZLIB].is_built) {
        source->error =
            poise_part_missing(POISE_PART_ZLIB, "unpack", "the screen");
        return source->error;
    }
    if (!inflate->begun) {
        inflate->stream = (z_stream){0};
        if (inflateInit(&inflate->stream) != Z_OK) {
            source->error = poise_error_set(ENOMEM, "inflate", NULL, NULL);
            return source->error;
        }
        inflate->begun = true;
    }
    inflate->stream.avail_in = 0;
    return source->error;
}

/* More of the part for the stream. */
static int feed(struct screen_part *part)
{
    size_t step =
        part->left < sizeof part->in ? (size_t)part->left : sizeof part->in;
    if (step == 0) {
        return screen_bad(part->source, "compressed pixels are too few");
    }
    screen_read(part->source, part->in, step);
    part->left -= step;
    part->inflate->stream.next_in = part->in;
    part->inflate->stream.avail_in = (uInt)step;
    return part->source->error;
}

int screen_part_read(struct screen_part *part, void *to, size_t len)
{
    z_stream *stream = &part->inflate->stream;
    stream->next_out = to;
    stream->avail_out = (uInt)len;
    while (stream->avail_out > 0 && part->source->error == 0) {
        if (stream->avail_in == 0 && feed(part) < 0) {
            break;
        }
        int status = inflate(stream, Z_SYNC_FLUSH);
        if (status != Z_OK && status != Z_BUF_ERROR) {
            screen_bad(part->source, "compressed pixels are damaged");
        }
    }
    if (part->source->error != 0) {
        memset((uint8_t *)to + (len - stream->avail_out), 0, stream->avail_out);
    }
    return part->source->error;
}

int screen_part_end(struct screen_part *part)
{
    z_stream *stream = &part->inflate->stream;
    uint8_t more[16];
    /* What is left is the end of a block; the stream has to see it. */
    while ((stream->avail_in > 0 || part->left > 0) &&
           part->source->error == 0) {
        if (stream->avail_in == 0 && feed(part) < 0) {
            break;
        }
        stream->next_out = more;
        stream->avail_out = sizeof more;
        int status = inflate(stream, Z_SYNC_FLUSH);
        if (stream->avail_out < sizeof more) {
            screen_bad(part->source, "compressed pixels are too many");
        } else if (status != Z_OK && status != Z_BUF_ERROR) {
            screen_bad(part->source, "compressed pixels are damaged");
        }
    }
    return part->source->error;
}

void screen_inflate_free(struct screen_inflate *inflate)
{
    if (inflate->begun) {
        inflateEnd(&inflate->stream);
        inflate->begun = false;
    }
}
