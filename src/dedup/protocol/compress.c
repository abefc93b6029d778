/*
 * Blocks of messages are packed here: by one Zstandard stream, but for those
 * that it would not make shorter, which cost it the most time of all. In a
 * thread of its own where the caller wants that: to pack is half of the work
 * of an end that sends what is new.
 */
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEVEL = 3,
    /* Blocks in a row that did not shrink, after which one is only tried, if
     * it looks no better, every so many. */
    STIFF_FROM = 2,
    STIFF_FOR = 15,
    STIFF_LEAST = 1 << 14, /* bytes of a block that is looked at */
    /* Of which so many parts of so many bytes. */
    SAMPLES = 16,
    SAMPLE_BYTES = 256,
    JOBS = 4, /* blocks that wait for a thread */
    ASIDE_LEAST = 1 << 15,
};

static int failed(const char *doing, size_t code)
{
    return poise_error_set(EIO, doing, "Zstandard", "%s",
                           ZSTD_getErrorName(code));
}

/* ---- one block ---------------------------------------------------------- */

int wire_pack_init(struct wire_pack *pack, int level)
{
    size_t rc;

    pack->ctx = ZSTD_createCCtx();
    if (!pack->ctx) {
        return poise_error_set(ENOMEM, "use", "Zstandard", NULL);
    }
    rc = ZSTD_CCtx_setParameter(pack->ctx, ZSTD_c_compressionLevel,
                                level ? level : LEVEL);
    if (!ZSTD_isError(rc)) {
        rc = ZSTD_CCtx_setParameter(pack->ctx, ZSTD_c_windowLog,
                                    WIRE_WINDOW_LOG);
    }
    return ZSTD_isError(rc) ? failed("set up", rc) : 0;
}

void wire_pack_free(struct wire_pack *pack)
{
    ZSTD_freeCCtx(pack->ctx);
    poise_buf_free(&pack->packed);
}

/* Whether all bytes are about as frequent in it: a sample's sum of squares is
 * then what chance makes it, within a quarter. */
static bool looks_random(const unsigned char *data, size_t len)
{
    uint32_t counts[256] = {0};
    uint64_t squares = 0;
    const uint64_t most = UINT64_C(5) * (SAMPLES * SAMPLE_BYTES / 4) *
                          (SAMPLES * SAMPLE_BYTES) / 256;

    for (size_t i = 0; i < SAMPLES; i++) {
        const unsigned char *at = data + (len - SAMPLE_BYTES) / SAMPLES * i;
        for (size_t j = 0; j < SAMPLE_BYTES; j++) {
            counts[at[j]]++;
        }
    }
    for (size_t i = 0; i < 256; i++) {
        squares += (uint64_t)counts[i] * counts[i];
    }
    return squares < most;
}

/* Whether not to pack this one. */
static bool is_stiff(struct wire_pack *pack, const struct poise_buf *raw)
{
    if (pack->incompressible < STIFF_FROM || pack->skipped == STIFF_FOR ||
        raw->len < STIFF_LEAST ||
        !looks_random((const unsigned char *)raw->data, raw->len)) {
        pack->skipped = 0;
        return false;
    }
    pack->skipped++;
    return true;
}

static int compress(struct wire_pack *pack, const struct poise_buf *raw)
{
    ZSTD_inBuffer in = {raw->data, raw->len, 0};
    size_t bound = ZSTD_compressBound(in.size) + 64, rc;

    poise_buf_reset(&pack->packed);
    do {
        ZSTD_outBuffer out = {poise_buf_reserve(&pack->packed, bound), bound,
                              0};
        if (!out.dst) {
            return -ENOMEM;
        }
        rc = ZSTD_compressStream2(pack->ctx, &out, &in, ZSTD_e_flush);
        pack->packed.len += out.pos;
    } while (!ZSTD_isError(rc) && rc > 0);
    return ZSTD_isError(rc) ? failed("compress with", rc) : 0;
}

int wire_pack_block(struct wire_pack *pack, const struct poise_buf *raw,
                    struct poise_buf *out)
{
    int code;

    if (is_stiff(pack, raw)) {
        poise_buf_varint(out, raw->len);
        poise_buf_varint(out, 0);
        return poise_buf_append(out, raw->data, raw->len);
    }
    code = compress(pack, raw);
    if (code < 0) {
        return code;
    }
    if (raw->len >= STIFF_LEAST) {
        bool shrank = pack->packed.len < raw->len - raw->len / 64;
        pack->incompressible = shrank ? 0 : pack->incompressible + 1;
    }
    poise_buf_varint(out, raw->len);
    poise_buf_varint(out, pack->packed.len);
    return poise_buf_append(out, pack->packed.data, pack->packed.len);
}

/* ---- aside -------------------------------------------------------------- */

struct wire_packer {
    struct wire_pack *pack; /* the thread's alone while it runs */
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct poise_buf jobs[JOBS]; /* `count` of them, from `first` on */
    size_t first, count;
    struct poise_buf ready; /* packed */
    int failed;             /* a negative errno: it packs no more */
    bool stops;
};

static void *pack_jobs(void *arg)
{
    struct wire_packer *aside = arg;
    struct poise_buf out = {0};

    pthread_mutex_lock(&aside->lock);
    while (!aside->stops) {
        int code;
        if (aside->count == 0 || aside->failed) {
            pthread_cond_wait(&aside->changed, &aside->lock);
            continue;
        }
        /* No other thread touches a job before it is counted off. */
        pthread_mutex_unlock(&aside->lock);
        code = wire_pack_block(aside->pack, &aside->jobs[aside->first], &out);
        pthread_mutex_lock(&aside->lock);
        if (code == 0) {
            code = poise_buf_append(&aside->ready, out.data, out.len);
        }
        poise_buf_reset(&out);
        aside->failed = code;
        aside->first = (aside->first + 1) % JOBS;
        aside->count--;
        pthread_cond_broadcast(&aside->changed);
    }
    pthread_mutex_unlock(&aside->lock);
    poise_buf_free(&out);
    return NULL;
}

struct wire_packer *wire_packer_start(struct wire_pack *pack)
{
    struct wire_packer *made = poise_alloc(1, sizeof *made);

    if (!made) {
        return NULL;
    }
    made->pack = pack;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    if (pthread_create(&made->thread, NULL, pack_jobs, made) != 0) {
        pthread_cond_destroy(&made->changed);
        pthread_mutex_destroy(&made->lock);
        free(made);
        return NULL;
    }
    return made;
}

void wire_packer_stop(struct wire_packer *aside)
{
    if (!aside) {
        return;
    }
    pthread_mutex_lock(&aside->lock);
    aside->stops = true;
    pthread_cond_broadcast(&aside->changed);
    pthread_mutex_unlock(&aside->lock);
    pthread_join(aside->thread, NULL);
    pthread_cond_destroy(&aside->changed);
    pthread_mutex_destroy(&aside->lock);
    for (size_t i = 0; i < JOBS; i++) {
        poise_buf_free(&aside->jobs[i]);
    }
    poise_buf_free(&aside->ready);
    free(aside);
}

/* What is packed goes out; the lock is held. */
static int collect(struct wire_packer *aside, struct poise_buf *out)
{
    int code = 0;

    if (out->len == 0 && out->error == 0) {
        struct poise_buf empty = *out;
        *out = aside->ready;
        aside->ready = empty;
    } else {
        code = poise_buf_append(out, aside->ready.data, aside->ready.len);
    }
    if (code == 0) {
        poise_buf_reset(&aside->ready);
    }
    /* The thread set an error of its own. */
    return aside->failed
               ? poise_error_set(-aside->failed, "pack", "Zstandard", NULL)
               : code;
}

int wire_packer_put(struct wire_packer *aside, struct poise_buf *raw,
                    struct poise_buf *out)
{
    int code;

    pthread_mutex_lock(&aside->lock);
    while (aside->count == JOBS && !aside->failed) {
        pthread_cond_wait(&aside->changed, &aside->lock);
    }
    if (!aside->failed) {
        struct poise_buf *job =
            &aside->jobs[(aside->first + aside->count) % JOBS];
        struct poise_buf done = *job;
        *job = *raw;
        *raw = done;
        aside->count++;
        pthread_cond_broadcast(&aside->changed);
    }
    code = collect(aside, out);
    pthread_mutex_unlock(&aside->lock);
    poise_buf_reset(raw);
    return code;
}

int wire_packer_take(struct wire_packer *aside, bool all, struct poise_buf *out)
{
    int code;

    pthread_mutex_lock(&aside->lock);
    while (all && aside->count > 0 && !aside->failed) {
        pthread_cond_wait(&aside->changed, &aside->lock);
    }
    code = collect(aside, out);
    pthread_mutex_unlock(&aside->lock);
    return code;
}

bool wire_packer_is_for(size_t len)
{
    return len >= ASIDE_LEAST;
}
