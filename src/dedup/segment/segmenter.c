/*
 * A stream being cut: holds back what a method cannot decide yet, takes out
 * constant and periodic data first, and keeps count.
 *
 * The buffer is the history (what methods may look back on), then what was
 * not emitted yet.
 */
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    HISTORY = POISE_DEDUP_HISTORY,
    /* Several segments of the greatest length. */
    CAPACITY = HISTORY + 4 * POISE_DEDUP_SEGMENT_MOST,
    /* Shorter runs cost more in broken sequences of segments than they save
     * (headers of tar archives are full of them). */
    RUN_LEAST = 1024,
    RUN_LOOK = 16, /* compared before a run is measured */
};

struct poise_dedup_segmenter {
    const struct poise_dedup_method *method;
    void *state;
    int (*emit)(const struct poise_dedup_piece *piece, void *arg);
    void *arg;
    struct poise_dedup_cut_options options; /* as given */
    size_t run_least;                       /* 0: runs are no special case */
    uint64_t at; /* offset in the stream of buffer[start] */
    size_t start, end;
    struct poise_dedup_cut_stats stats;
    /* Pieces that are not emitted yet, if they are emitted many at a time. */
    int (*emit_many)(const struct poise_dedup_piece *pieces, size_t count,
                     void *arg);
    size_t batched;
    struct poise_dedup_piece batch[DEDUP_BATCH];
    unsigned char buffer[CAPACITY];
};

static const struct poise_dedup_method *const methods[] = {
    &dedup_fixed,       &dedup_overlapping, &dedup_manber, &dedup_spring,
    &dedup_spring_fifo, &dedup_lbfs,        &dedup_gear,   &dedup_multi,
    &dedup_floats,      &dedup_auto,        NULL,
};

const struct poise_dedup_method *const *poise_dedup_methods(void)
{
    return methods;
}

/* The method in a shared object. */
static const struct poise_dedup_method *load(const char *path)
{
    const struct poise_dedup_method *method;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (!object) {
        poise_error_set(ENOENT, "load segmenter", path, "%s", dlerror());
        return NULL;
    }
    method = dlsym(object, "poise_dedup_user_method");
    if (!method || method->version != POISE_DEDUP_METHOD_VERSION ||
        !method->name || !method->create || !method->destroy || !method->next) {
        poise_error_set(EPROTO, "load segmenter", path,
                        method ? "made for another version"
                               : "it has no poise_dedup_user_method");
        dlclose(object);
        return NULL;
    }
    return method;
}

const struct poise_dedup_method *poise_dedup_method_find(const char *name)
{
    const char *names[sizeof methods / sizeof *methods];
    const char *near;
    size_t count = 0;

    if (strchr(name, '/')) {
        return load(name);
    }
    for (; methods[count]; count++) {
        names[count] = methods[count]->name;
        if (strcmp(names[count], name) == 0) {
            return methods[count];
        }
    }
    near = poise_nearest(name, names, count);
    poise_error_set(EINVAL, "use segmenter", name, "unknown; %s '%s'?",
                    near ? "did you mean" : "perhaps", near ? near : "gear");
    return NULL;
}

unsigned dedup_log2(uint32_t average)
{
    return average > 1 ? 31 - (unsigned)__builtin_clz(average) : 0;
}

struct poise_dedup_cut_options
dedup_cut_defaults(const struct poise_dedup_cut_options *options,
                   uint32_t window)
{
    struct poise_dedup_cut_options all = {0};

    if (options) {
        all = *options;
    }
    all.average = all.average ? all.average : 256;
    if (all.average > POISE_DEDUP_SEGMENT_MOST / 2) {
        all.average = POISE_DEDUP_SEGMENT_MOST / 2;
    }
    all.max = all.max ? all.max : 8 * all.average;
    if (all.max > POISE_DEDUP_SEGMENT_MOST) {
        all.max = POISE_DEDUP_SEGMENT_MOST;
    }
    all.min = all.min ? all.min : all.average / 4;
    all.min = all.min ? all.min : 1;
    if (all.min > all.max) {
        all.min = all.max;
    }
    all.window = all.window ? all.window : window;
    if (all.window > POISE_DEDUP_HISTORY) {
        all.window = POISE_DEDUP_HISTORY;
    }
    return all;
}

int poise_dedup_segmenter_create(
    const struct poise_dedup_method *method,
    const struct poise_dedup_cut_options *options,
    int (*emit)(const struct poise_dedup_piece *piece, void *arg), void *arg,
    struct poise_dedup_segmenter **out)
{
    struct poise_dedup_cut_options all = dedup_cut_defaults(options, 0);
    struct poise_dedup_segmenter *made = poise_alloc(1, sizeof *made);
    int code;

    if (!made) {
        return -ENOMEM;
    }
    made->method = method;
    made->emit = emit;
    made->arg = arg;
    if (options) {
        made->options = *options;
    }
    made->start = made->end = HISTORY;
    if (!all.plain_runs) {
        made->run_least =
            2 * all.average > RUN_LEAST ? 2 * all.average : RUN_LEAST;
    }
    code = method->create(options, &made->state);
    if (code < 0) {
        free(made);
        return code;
    }
    *out = made;
    return 0;
}

int dedup_segmenter_restart(struct poise_dedup_segmenter *segmenter, void *arg)
{
    void *state;
    int code = segmenter->method->create(&segmenter->options, &state);

    if (code < 0) {
        return code;
    }
    segmenter->method->destroy(segmenter->state);
    segmenter->state = state;
    segmenter->arg = arg;
    segmenter->batched = 0;
    segmenter->at = 0;
    segmenter->start = segmenter->end = HISTORY;
    memset(segmenter->buffer, 0, HISTORY);
    return 0;
}

void dedup_segmenter_batch(struct poise_dedup_segmenter *segmenter,
                           int (*emit)(const struct poise_dedup_piece *pieces,
                                       size_t count, void *arg))
{
    segmenter->emit_many = emit;
}

void poise_dedup_segmenter_destroy(struct poise_dedup_segmenter *segmenter)
{
    if (segmenter) {
        segmenter->method->destroy(segmenter->state);
        free(segmenter);
    }
}

/* How far data repeat their first `period` bytes. */
static size_t run_length(const unsigned char *data, size_t len, size_t period)
{
    enum { STEP = 256 };
    size_t n = period;

    while (n + STEP <= len && memcmp(data + n, data + n - period, STEP) == 0) {
        n += STEP;
    }
    while (n < len && data[n] == data[n - period]) {
        n++;
    }
    return n;
}

/* A run at the beginning: 1, 0 (more data are needed), or -1: none. */
static int find_run(const struct poise_dedup_segmenter *segmenter, bool final,
                    size_t *run, uint32_t *period)
{
    /* They cover 1, 2, 3, 4, 6, 8, 12 and 16. */
    static const uint32_t periods[] = {8, 12, 16};
    const unsigned char *data = segmenter->buffer + segmenter->start;
    size_t len = segmenter->end - segmenter->start;
    size_t most = len < POISE_DEDUP_FILL_MOST ? len : POISE_DEDUP_FILL_MOST;

    if (segmenter->run_least == 0) {
        return -1;
    }
    if (len < RUN_LOOK + 16) {
        return final ? -1 : 0;
    }
    for (size_t i = 0; i < sizeof periods / sizeof *periods; i++) {
        if (memcmp(data, data + periods[i], RUN_LOOK) != 0) {
            continue;
        }
        size_t n = run_length(data, most, periods[i]);
        if (n == len && n < POISE_DEDUP_FILL_MOST && !final) {
            return 0;
        }
        if (segmenter->options.element) {
            /* No element is cut apart. */
            n -= (size_t)((segmenter->at + n) % segmenter->options.element);
        }
        if (n >= segmenter->run_least) {
            *run = n;
            *period = periods[i];
            return 1;
        }
    }
    return -1;
}

/* What was held back to be emitted with others. */
static int emit_batch(struct poise_dedup_segmenter *segmenter)
{
    size_t count = segmenter->batched;

    segmenter->batched = 0;
    return count ? segmenter->emit_many(segmenter->batch, count, segmenter->arg)
                 : 0;
}

static int emit(struct poise_dedup_segmenter *segmenter,
                const struct poise_dedup_cut *cut, uint32_t period)
{
    struct poise_dedup_cut_stats *stats = &segmenter->stats;
    size_t ahead = cut->len - cut->back;
    uint32_t element = segmenter->options.element;
    bool whole = element > 0 && (segmenter->at - cut->back) % element == 0;
    struct poise_dedup_piece piece = {
        .kind = cut->kind,
        .data = segmenter->buffer + segmenter->start - cut->back,
        .len = cut->len,
        .period = period,
        .range = cut->range,
        .place = {segmenter->at - cut->back, 0, (uint32_t)cut->len, 1},
        .array = whole ? &segmenter->options : NULL,
    };
    bool is_segment =
        cut->kind == POISE_DEDUP_SEGMENT || cut->kind == POISE_DEDUP_RANGE;

    stats->bytes += ahead;
    stats->pieces++;
    if (is_segment) {
        stats->segments++;
        stats->segment_bytes += ahead;
        stats->overlap_bytes += cut->back;
        stats->meta_bytes += segmenter->method->meta_bytes;
    } else if (cut->kind == POISE_DEDUP_LITERAL) {
        stats->literal_bytes += ahead;
    } else {
        stats->fill_bytes += ahead;
    }
    segmenter->start += ahead;
    segmenter->at += ahead;
    if (!segmenter->emit_many) {
        return segmenter->emit(&piece, segmenter->arg);
    }
    segmenter->batch[segmenter->batched++] = piece;
    /* What a range is of the method may forget in its next step. */
    return segmenter->batched == DEDUP_BATCH || cut->kind == POISE_DEDUP_RANGE
               ? emit_batch(segmenter)
               : 0;
}

/* A user's method may be wrong. */
static int check(const struct poise_dedup_segmenter *segmenter,
                 const struct poise_dedup_cut *cut)
{
    if (cut->len == 0 || cut->back >= cut->len || cut->back > HISTORY ||
        cut->back > segmenter->at ||
        cut->len - cut->back > segmenter->end - segmenter->start ||
        cut->len > POISE_DEDUP_SEGMENT_MOST || cut->kind == POISE_DEDUP_FILL) {
        return poise_error_set(EPROTO, "use segmenter", segmenter->method->name,
                               "it cuts %zu bytes where %zu are left", cut->len,
                               segmenter->end - segmenter->start);
    }
    return 0;
}

/* Cut off whatever can be decided. */
static int cut_all(struct poise_dedup_segmenter *segmenter, bool final)
{
    while (segmenter->start < segmenter->end) {
        struct poise_dedup_cut cut = {.kind = POISE_DEDUP_SEGMENT};
        uint32_t period = 0;
        int found = find_run(segmenter, final, &cut.len, &period);

        if (found > 0) {
            cut.kind = POISE_DEDUP_FILL;
            if (segmenter->method->skip) {
                segmenter->method->skip(segmenter->state, cut.len);
            }
        } else if (found == 0) {
            return 0;
        } else {
            size_t len = segmenter->end - segmenter->start;
            found = segmenter->method->next(
                segmenter->state, segmenter->buffer + segmenter->start, len,
                final, &cut);
            if (found == 0 && !final && len < POISE_DEDUP_SEGMENT_MOST) {
                return 0;
            }
            if (found == 0) {
                return poise_error_set(EPROTO, "use segmenter",
                                       segmenter->method->name,
                                       "it finds no end of %zu bytes", len);
            }
            found = found < 0 ? found : check(segmenter, &cut);
        }
        if (found >= 0) {
            found = emit(segmenter, &cut, period);
        }
        if (found < 0) {
            return found;
        }
    }
    return 0;
}

/* Emit it: no piece is held back when this returns, as the buffer moves. */
static int advance(struct poise_dedup_segmenter *segmenter, bool final)
{
    int code = cut_all(segmenter, final);

    return code < 0 ? code : emit_batch(segmenter);
}

int poise_dedup_segmenter_feed(struct poise_dedup_segmenter *segmenter,
                               const void *data, size_t len)
{
    const unsigned char *from = data;

    while (len > 0) {
        if (CAPACITY - segmenter->end < len &&
            segmenter->start > CAPACITY / 2) {
            size_t keep = segmenter->start - HISTORY;
            memmove(segmenter->buffer, segmenter->buffer + keep,
                    segmenter->end - keep);
            segmenter->start -= keep;
            segmenter->end -= keep;
        }
        size_t room = CAPACITY - segmenter->end;
        size_t n = len < room ? len : room;
        memcpy(segmenter->buffer + segmenter->end, from, n);
        segmenter->end += n;
        from += n;
        len -= n;
        int code = advance(segmenter, false);
        if (code < 0) {
            return code;
        }
    }
    return 0;
}

int poise_dedup_segmenter_flush(struct poise_dedup_segmenter *segmenter)
{
    return advance(segmenter, true);
}

struct poise_dedup_cut_stats
poise_dedup_segmenter_stats(const struct poise_dedup_segmenter *segmenter)
{
    return segmenter->stats;
}

double poise_dedup_coverage(const struct poise_dedup_cut_stats *stats)
{
    return stats->bytes == 0
               ? 0
               : (double)(stats->segment_bytes + stats->fill_bytes) /
                     (double)stats->bytes;
}

int poise_dedup_join(struct poise_dedup_joiner *joiner,
                     const struct poise_dedup_piece *piece,
                     struct poise_buf *out)
{
    uint64_t back;

    if (piece->place.x > joiner->at ||
        joiner->at - piece->place.x > piece->len || piece->place.y != 0 ||
        piece->place.height != 1 || piece->place.width != piece->len) {
        return poise_error_set(
            EBADMSG, "join segments", NULL, "a piece lies at %llu, behind %llu",
            (unsigned long long)piece->place.x, (unsigned long long)joiner->at);
    }
    back = joiner->at - piece->place.x;
    joiner->at += piece->len - back;
    return out ? poise_buf_append(out, piece->data + back, piece->len - back)
               : 0;
}
