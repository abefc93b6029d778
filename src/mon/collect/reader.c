/*
 * The rings of all ranks, read in place while they are written, merged by time
 * as far as they go: of each ring some records are kept, and the one that is
 * behind most comes next. A ring that has nothing new is not waited for; the
 * monitor's window makes up for that.
 *
 * On one clock, which is that of all ranks of a machine, ticks are times at
 * once. Else the session's measurements of clocks are read, which takes all
 * files.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 64, POLL_MOST = 100000 };

/* More ranks than this are no job, but a damaged file. */
enum { RANKS_MOST = 1 << 20 };

/* A ring, and what was copied of it but not yet taken. */
struct ring {
    unsigned file;
    struct poise_trace_cursor cursor;
    struct poise_trace_event events[BATCH];
    size_t count, at;
    struct collect_join join;
};

/* A rank's file; view NULL: not there yet. */
struct file {
    char *path;
    struct poise_trace_view *view;
    struct poise_trace_info info;
    struct collect_places *places;
    struct collect_clock clock;
    unsigned rings; /* known */
    bool foreign;   /* not the clock of the first file */
};

struct poise_monitor_reader {
    struct poise_monitor *monitor;
    char *path;
    struct file *files; /* [size] */
    int size;           /* 0: the file of rank 0 is not there yet */
    struct ring **rings;
    size_t ring_count;
    struct poise_trace_session *session; /* if clocks differ */
    bool has_final;                      /* it was read after the end */
    uint64_t records, nameless, lost_told;
    int64_t first_ns, last_ns;
};

int poise_monitor_reader_create(struct poise_monitor *monitor, const char *path,
                                struct poise_monitor_reader **out)
{
    struct poise_monitor_reader *reader = poise_alloc(1, sizeof *reader);
    if (!reader) {
        return -ENOMEM;
    }
    reader->monitor = monitor;
    reader->first_ns = INT64_MAX;
    reader->last_ns = INT64_MIN;
    reader->path = strdup(path);
    if (!reader->path) {
        free(reader);
        return poise_error_set(ENOMEM, "read trace", path, NULL);
    }
    *out = reader;
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
    for (int i = 0; i < reader->size; i++) {
        poise_trace_close(reader->files[i].view);
        free(reader->files[i].places);
        free(reader->files[i].path);
    }
    poise_trace_session_close(reader->session);
    free(reader->files);
    free(reader->rings);
    free(reader->path);
    free(reader);
}

/* ---- files -------------------------------------------------------------- */

static bool is_same(const uint64_t a[2], const uint64_t b[2])
{
    return a[0] == b[0] && a[1] == b[1];
}

/* 1: it is open; 0: not there, or not yet whole. */
static int open_view(const char *path, bool final,
                     struct poise_trace_view **view)
{
    if (access(path, F_OK) != 0) {
        return 0;
    }
    int code = poise_trace_open(path, view);
    if (code < 0 && !final && (code == -EPROTO || code == -EBADMSG)) {
        return 0;
    }
    return code < 0 ? code : 1;
}

static int make_files(struct poise_monitor_reader *reader, int size)
{
    struct poise_buf path = {0};
    reader->files = poise_alloc((size_t)size, sizeof *reader->files);
    if (!reader->files) {
        return -ENOMEM;
    }
    reader->size = size;
    for (int i = 0; i < size; i++) {
        poise_buf_reset(&path);
        poise_buf_printf(&path, i == 0 ? "%s" : "%s.%d", reader->path, i);
        reader->files[i].path = strdup(poise_buf_str(&path));
        if (path.error || !reader->files[i].path) {
            poise_buf_free(&path);
            return poise_error_set(ENOMEM, "read trace", reader->path, NULL);
        }
    }
    poise_buf_free(&path);
    return 0;
}

/* Use an open view as the file of its rank. */
static int use_view(struct poise_monitor_reader *reader, int rank,
                    struct poise_trace_view *view)
{
    struct file *file = &reader->files[rank];
    const struct file *first = &reader->files[0];
    struct poise_trace_info info;
    poise_trace_info(view, &info);
    if (rank > 0 && !is_same(info.session, first->info.session)) {
        poise_trace_close(view);
        return poise_error_set(EINVAL, "read trace", file->path,
                               "it is of another session than '%s'",
                               reader->path);
    }
    file->places = poise_alloc(1, sizeof *file->places);
    if (!file->places) {
        poise_trace_close(view);
        return -ENOMEM;
    }
    file->view = view;
    file->info = info;
    file->foreign = rank > 0 && !is_same(info.clock, first->info.clock);
    file->clock = (struct collect_clock){
        .start_ticks = first->info.start_ticks,
        .tick_hz = first->info.tick_hz,
        .scale = collect_scale(first->info.tick_hz),
    };
    *file->places = (struct collect_places){
        .monitor = reader->monitor,
        .view = view,
        .ranks = reader->size,
        .nameless = &reader->nameless,
    };
    return 0;
}

static int open_first(struct poise_monitor_reader *reader, bool final)
{
    struct poise_trace_view *view = NULL;
    struct poise_trace_info info;
    int code = open_view(reader->path, final, &view);
    if (code <= 0) {
        poise_trace_close(view);
        return code == 0 && final
                   ? poise_error_set(ENOENT, "read trace", reader->path,
                                     "the program recorded nothing")
                   : code;
    }
    poise_trace_info(view, &info);
    if (info.rank != 0 || info.size < 1) {
        poise_trace_close(view);
        return poise_error_set(EINVAL, "read trace", reader->path,
                               "it is not that of rank 0");
    }
    if (info.size > RANKS_MOST) {
        int size = info.size;
        poise_trace_close(view);
        return poise_error_set(EINVAL, "read trace", reader->path,
                               "it says that there are %d ranks", size);
    }
    code = make_files(reader, info.size);
    if (code < 0) {
        poise_trace_close(view);
        return code;
    }
    return use_view(reader, 0, view);
}

/* Those that have come since. */
static int open_files(struct poise_monitor_reader *reader, bool final)
{
    int code = reader->size == 0 ? open_first(reader, final) : 0;
    for (int i = 1; i < reader->size && code >= 0; i++) {
        struct poise_trace_view *view = NULL;
        if (reader->files[i].view) {
            continue;
        }
        code = open_view(reader->files[i].path, final, &view);
        if (code > 0) {
            code = use_view(reader, i, view);
        } else {
            poise_trace_close(view);
        }
    }
    return code < 0 ? code : 0;
}

/* ---- clocks ------------------------------------------------------------- */

static int count_files(const struct poise_monitor_reader *reader, bool *foreign)
{
    int count = 0;
    *foreign = false;
    for (int i = 0; i < reader->size; i++) {
        count += reader->files[i].view != NULL;
        *foreign = *foreign || reader->files[i].foreign;
    }
    return count;
}

/* The file of the session's that is this rank's; its number says its clock. */
static void use_session(struct poise_monitor_reader *reader, int rank)
{
    struct file *file = &reader->files[rank];
    for (unsigned i = 0; i < poise_trace_session_files(reader->session); i++) {
        struct poise_trace_file other;
        if (poise_trace_session_file(reader->session, i, &other) == 0 &&
            other.info.rank == rank) {
            file->clock.session = reader->session;
            file->clock.file = i;
        }
    }
    file->clock.number = 0;
    for (int k = 0; k < rank; k++) {
        if (reader->files[k].view &&
            is_same(reader->files[k].info.clock, file->info.clock)) {
            file->clock.number = reader->files[k].clock.number;
            return;
        }
    }
    file->clock.number = (uint32_t)rank;
}

/* Read what is known of the clocks, anew when the program has ended: offsets
 * are measured then, too. */
static int read_clocks(struct poise_monitor_reader *reader)
{
    const char **paths = poise_alloc((size_t)reader->size, sizeof *paths);
    size_t count = 0;
    if (!paths) {
        return -ENOMEM;
    }
    for (int i = 0; i < reader->size; i++) {
        if (reader->files[i].view) {
            paths[count++] = reader->files[i].path;
        }
    }
    poise_trace_session_close(reader->session);
    reader->session = NULL;
    int code = poise_trace_session_open(paths, count, &reader->session);
    free(paths);
    for (int i = 0; i < reader->size; i++) {
        reader->files[i].clock.session = NULL;
        if (code == 0 && reader->files[i].view) {
            use_session(reader, i);
        }
    }
    return code;
}

/* ---- rings -------------------------------------------------------------- */

static int add_rings(struct poise_monitor_reader *reader, unsigned number)
{
    struct file *file = &reader->files[number];
    unsigned count = poise_trace_rings(file->view);
    for (; file->rings < count; file->rings++) {
        struct poise_trace_cursor cursor;
        int code = poise_trace_cursor(file->view, file->rings, &cursor);
        if (code < 0) {
            return code;
        }
        if (cursor.ring->mask == 0) {
            break; /* not there yet */
        }
        struct ring **rings = poise_realloc(
            reader->rings, reader->ring_count + 1, sizeof(struct ring *));
        if (!rings) {
            return -ENOMEM;
        }
        reader->rings = rings;
        struct ring *ring = poise_alloc(1, sizeof *ring);
        if (!ring) {
            return -ENOMEM;
        }
        ring->file = number;
        ring->cursor = cursor;
        rings[reader->ring_count++] = ring;
    }
    return 0;
}

/* Whether the ring has a record to take. */
static bool fill(struct ring *ring, bool final)
{
    if (ring->at == ring->count) {
        ring->cursor.final = final;
        ring->count = poise_trace_read(&ring->cursor, BATCH, ring->events);
        ring->at = 0;
    }
    return ring->at < ring->count;
}

static void take(struct poise_monitor_reader *reader, struct ring *ring,
                 int64_t ns)
{
    struct file *file = &reader->files[ring->file];
    collect_join_add(&ring->join, file->places, &file->clock,
                     &ring->events[ring->at++]);
    reader->records++;
    reader->first_ns = ns < reader->first_ns ? ns : reader->first_ns;
    reader->last_ns = ns > reader->last_ns ? ns : reader->last_ns;
}

/* The ring whose next record is the oldest, and the time of the next one
 * behind it: until then nobody else is asked. */
static struct ring *behind_most(struct poise_monitor_reader *reader, bool final,
                                int64_t *ns, int64_t *until)
{
    struct ring *found = NULL;
    *until = INT64_MAX;
    for (size_t i = 0; i < reader->ring_count; i++) {
        struct ring *ring = reader->rings[i];
        uint64_t error;
        if (!fill(ring, final)) {
            continue;
        }
        int64_t time = collect_ns(&reader->files[ring->file].clock,
                                  ring->events[ring->at].values[0], &error);
        if (!found || time < *ns) {
            *until = found ? *ns : INT64_MAX;
            *ns = time;
            found = ring;
        } else if (time < *until) {
            *until = time;
        }
    }
    return found;
}

static int take_all(struct poise_monitor_reader *reader, bool final)
{
    for (uint64_t taken = 0; taken < POLL_MOST;) {
        int64_t ns = 0, until;
        uint64_t error;
        struct ring *ring = behind_most(reader, final, &ns, &until);
        if (!ring) {
            return 0;
        }
        do {
            take(reader, ring, ns);
            taken++;
            if (ring->at < ring->count) {
                ns = collect_ns(&reader->files[ring->file].clock,
                                ring->events[ring->at].values[0], &error);
            }
        } while (ring->at < ring->count && ns <= until);
    }
    return 1;
}

static void end_rings(struct poise_monitor_reader *reader)
{
    for (size_t i = 0; i < reader->ring_count; i++) {
        struct ring *ring = reader->rings[i];
        struct file *file = &reader->files[ring->file];
        collect_join_end(&ring->join, file->places, &file->clock);
    }
}

/* ---- polling ------------------------------------------------------------ */

static uint64_t lost_of(const struct poise_monitor_reader *reader)
{
    uint64_t lost = 0;
    for (size_t i = 0; i < reader->ring_count; i++) {
        lost +=
            reader->rings[i]->cursor.lost + reader->rings[i]->cursor.unfinished;
    }
    return lost;
}

int poise_monitor_reader_poll(struct poise_monitor_reader *reader, bool final)
{
    bool foreign;
    int code = open_files(reader, final);
    int count = count_files(reader, &foreign);
    if (code < 0 || count == 0) {
        return code;
    }
    if (foreign && count < reader->size && !final) {
        return 0;
    }
    if (foreign && (!reader->session || (final && !reader->has_final))) {
        code = read_clocks(reader);
        reader->has_final = final;
    }
    for (int i = 0; i < reader->size && code == 0; i++) {
        code = reader->files[i].view ? add_rings(reader, (unsigned)i) : 0;
    }
    if (code < 0) {
        return code;
    }
    code = take_all(reader, final);
    if (code == 0 && final) {
        end_rings(reader);
    }
    uint64_t lost = lost_of(reader);
    poise_monitor_lost(reader->monitor, lost - reader->lost_told);
    reader->lost_told = lost;
    return code;
}

void poise_monitor_reader_source(const struct poise_monitor_reader *reader,
                                 struct poise_monitor_source *out)
{
    bool foreign;
    *out = (struct poise_monitor_source){
        .size = reader->size,
        .records = reader->records,
        .lost = lost_of(reader),
        .nameless = reader->nameless,
    };
    out->files = count_files(reader, &foreign);
    out->one_clock = !foreign;
    if (reader->last_ns > reader->first_ns &&
        __builtin_sub_overflow(reader->last_ns, reader->first_ns,
                               &out->span_ns)) {
        out->span_ns = INT64_MAX;
    }
    for (int i = 0; i < reader->size; i++) {
        const struct file *file = &reader->files[i];
        struct poise_trace_info info;
        if (!file->view) {
            continue;
        }
        poise_trace_info(file->view, &info);
        out->running += !info.ended;
        struct poise_trace_file known;
        if (file->clock.session &&
            poise_trace_session_file(file->clock.session, file->clock.file,
                                     &known) == 0 &&
            known.error_ns > out->error_ns) {
            out->error_ns = known.error_ns;
        }
    }
}
