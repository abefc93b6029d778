/*
 * The monitor's reader: a scope whose stage makes calls of records. Of each
 * ring it keeps the last hop, of each file what its collectors are.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

struct poise_monitor_reader {
    struct poise_monitor *monitor;
    struct poise_scope *scope; /* owned if it was made here */
    bool owns;
    struct ring {
        struct poise_scope_from from;
        struct collect_join join;
    } * *rings; /* by number; NULL: nothing came of it */
    size_t ring_count;
    struct collect_places **files; /* by number; the same */
    size_t file_count;
    uint64_t nameless, lost_told, left_out_told;
    int failed; /* no memory in a stage */
};

/* Entry `number` of a table of pointers, made with `bytes` if need be; NULL: no
 * memory. */
static void *entry_of(void ***table, size_t *count, size_t number, size_t bytes)
{
    if (number >= *count) {
        void **more = poise_realloc(*table, number + 1, sizeof *more);
        if (!more) {
            return NULL;
        }
        for (size_t i = *count; i <= number; i++) {
            more[i] = NULL;
        }
        *table = more;
        *count = number + 1;
    }
    if (!(*table)[number]) {
        (*table)[number] = poise_alloc(1, bytes);
    }
    return (*table)[number];
}

static struct collect_places *places_of(struct poise_monitor_reader *reader,
                                        const struct poise_scope_from *from)
{
    struct collect_places *places =
        entry_of((void ***)&reader->files, &reader->file_count, from->file,
                 sizeof *places);
    if (places && !places->view) {
        struct poise_trace_info info;
        poise_trace_info(from->view, &info);
        places->monitor = reader->monitor;
        places->view = from->view;
        places->ranks = info.size;
        places->nameless = &reader->nameless;
    }
    return places;
}

static size_t join(const struct poise_scope_from *from,
                   struct poise_trace_event *tuples, size_t count, void *arg)
{
    struct poise_monitor_reader *reader = arg;
    struct ring *ring = entry_of((void ***)&reader->rings, &reader->ring_count,
                                 from->ring, sizeof *ring);
    struct collect_places *places = places_of(reader, from);
    if (!ring || !places) {
        reader->failed = -ENOMEM;
        return 0;
    }
    ring->from = *from;
    collect_join_add(&ring->join, places, scope_clock(from), tuples, count);
    return count;
}

int poise_monitor_reader_over(struct poise_monitor *monitor,
                              struct poise_scope *scope,
                              struct poise_monitor_reader **out)
{
    struct poise_monitor_reader *reader = poise_alloc(1, sizeof *reader);
    if (!reader) {
        return -ENOMEM;
    }
    reader->monitor = monitor;
    reader->scope = scope;
    int code = poise_scope_stage(scope, join, reader);
    if (code < 0) {
        free(reader);
        return code;
    }
    *out = reader;
    return 0;
}

int poise_monitor_reader_create(struct poise_monitor *monitor, const char *path,
                                struct poise_monitor_reader **out)
{
    struct poise_scope *scope = NULL;
    int code = poise_scope_create(path, NULL, &scope);
    if (code < 0) {
        return code;
    }
    code = poise_monitor_reader_over(monitor, scope, out);
    if (code < 0) {
        poise_scope_destroy(scope);
        return code;
    }
    (*out)->owns = true;
    return 0;
}

void poise_monitor_reader_destroy(struct poise_monitor_reader *reader)
{
    if (!reader) {
        return;
    }
    for (size_t i = 0; i < reader->ring_count; i++) {
        free(reader->rings[i]);
    }
    for (size_t i = 0; i < reader->file_count; i++) {
        free(reader->files[i]);
    }
    if (reader->owns) {
        poise_scope_destroy(reader->scope);
    }
    free(reader->rings);
    free(reader->files);
    free(reader);
}

struct poise_scope *
poise_monitor_reader_scope(const struct poise_monitor_reader *reader)
{
    return reader->scope;
}

static void end_rings(struct poise_monitor_reader *reader)
{
    for (size_t i = 0; i < reader->ring_count; i++) {
        struct ring *ring = reader->rings[i];
        if (ring) {
            collect_join_end(&ring->join, reader->files[ring->from.file],
                             scope_clock(&ring->from));
        }
    }
}

int poise_monitor_reader_poll(struct poise_monitor_reader *reader, bool final)
{
    struct poise_scope_source source;
    int code = poise_scope_poll(reader->scope, final);
    if (code < 0 || reader->failed) {
        return code < 0 ? code : reader->failed;
    }
    if (code == 0 && final) {
        end_rings(reader);
    }
    poise_scope_source(reader->scope, &source);
    poise_monitor_lost(reader->monitor, source.lost - reader->lost_told);
    poise_monitor_left_out(reader->monitor,
                           source.left_out - reader->left_out_told);
    reader->lost_told = source.lost;
    reader->left_out_told = source.left_out;
    return code;
}

void poise_monitor_reader_source(const struct poise_monitor_reader *reader,
                                 struct poise_monitor_source *out)
{
    struct poise_scope_source source;
    poise_scope_source(reader->scope, &source);
    *out = (struct poise_monitor_source){
        .size = source.size,
        .files = source.files,
        .records = source.records,
        .lost = source.lost,
        .left_out = source.left_out,
        .skipped = source.skipped,
        .nameless = reader->nameless,
        .running = source.running,
        .one_clock = source.one_clock,
        .error_ns = source.error_ns,
        .span_ns = source.span_ns,
    };
}
