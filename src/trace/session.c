/*
 * Sessions: the rings of all files, each sorted by time, merged by a heap. A
 * ring whose next record is the end of a message that was not yet handed out
 * waits for that; what it says after that comes no earlier.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session.h"

/* A ring's records, and how far the stream is in them. */
struct session_ring {
    unsigned file, ring;
    struct poise_trace_event *events;
    uint32_t *order; /* of `events`, by time */
    size_t count, at;
    int64_t key;         /* when the next one comes */
    int64_t floor;       /* it comes no earlier */
    struct cause *waits; /* for this; NULL */
    bool has_one_owner;
    char name[32];
};

struct session_file {
    struct poise_trace_file file;
    size_t line; /* its clock */
    char *path;  /* owned */
};

struct poise_trace_session {
    struct session_file *files;
    unsigned file_count, missing;
    struct session_ring *rings;
    size_t ring_count;
    struct timelines lines;
    struct causes causes;
    int64_t start_ns;
    size_t *heap; /* of rings that have more and wait for nothing */
    size_t heap_count;
    int64_t last_ns;
    uint64_t contradictions;
};

/* ---- files -------------------------------------------------------------- */

static int open_file(struct poise_trace_session *session, const char *path)
{
    struct session_file *files = poise_realloc(
        session->files, session->file_count + 1, sizeof *session->files);
    if (!files) {
        return -ENOMEM;
    }
    session->files = files;
    struct session_file *file = &files[session->file_count];
    *file = (struct session_file){.path = strdup(path)};
    if (!file->path) {
        return poise_error_set(ENOMEM, "read trace", path, NULL);
    }
    int code = poise_trace_open(path, &file->file.view);
    if (code < 0) {
        free(file->path);
        return code;
    }
    poise_trace_info(file->file.view, &file->file.info);
    session->file_count++;
    return 0;
}

/* PATH.1, PATH.2, ... that are there and belong to the same session. */
static int open_others(struct poise_trace_session *session)
{
    struct poise_trace_info info = session->files[0].file.info;
    struct poise_buf name = {0};
    int code = 0;
    for (int rank = 1; info.rank == 0 && rank < info.size && code == 0;
         rank++) {
        poise_buf_reset(&name);
        poise_buf_printf(&name, "%s.%d", session->files[0].path, rank);
        const char *path = poise_buf_str(&name);
        code = name.error;
        if (code == 0 && access(path, F_OK) == 0) {
            code = open_file(session, path);
        }
    }
    poise_buf_free(&name);
    return code;
}

static int compare_files(const void *left, const void *right)
{
    const struct session_file *a = left, *b = right;
    return (a->file.info.rank > b->file.info.rank) -
           (a->file.info.rank < b->file.info.rank);
}

static int check_files(struct poise_trace_session *session)
{
    const struct poise_trace_info *first = &session->files[0].file.info;
    for (unsigned i = 1; i < session->file_count; i++) {
        const struct session_file *file = &session->files[i];
        if (memcmp(file->file.info.session, first->session,
                   sizeof first->session) != 0) {
            return poise_error_set(EINVAL, "read trace", file->path,
                                   "it is of another session than '%s'",
                                   session->files[0].path);
        }
    }
    qsort(session->files, session->file_count, sizeof *session->files,
          compare_files);
    for (unsigned i = 1; i < session->file_count; i++) {
        if (session->files[i].file.info.rank ==
            session->files[i - 1].file.info.rank) {
            return poise_error_set(EINVAL, "read trace", session->files[i].path,
                                   "it has the same rank, %d, as '%s'",
                                   session->files[i].file.info.rank,
                                   session->files[i - 1].path);
        }
    }
    /* Each rank is there once, and is below the size of some file's. */
    int size = 0;
    for (unsigned i = 0; i < session->file_count; i++) {
        const struct poise_trace_info *info = &session->files[i].file.info;
        size = info->size > size ? info->size : size;
    }
    session->missing = (unsigned)size - session->file_count;
    return 0;
}

/* ---- rings -------------------------------------------------------------- */

/* What qsort has no argument for: records are sorted by copies of their times.
 */
struct timed {
    uint64_t ticks;
    uint32_t index;
};

static int compare_timed(const void *left, const void *right)
{
    const struct timed *a = left, *b = right;
    int order = (a->ticks > b->ticks) - (a->ticks < b->ticks);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

static int sort_ring(struct session_ring *ring)
{
    struct timed *timed = poise_alloc(ring->count + 1, sizeof *timed);
    ring->order = poise_alloc(ring->count + 1, sizeof *ring->order);
    if (!timed || !ring->order) {
        free(timed);
        return -ENOMEM;
    }
    for (size_t i = 0; i < ring->count; i++) {
        timed[i] = (struct timed){ring->events[i].values[0], (uint32_t)i};
    }
    qsort(timed, ring->count, sizeof *timed, compare_timed);
    for (size_t i = 0; i < ring->count; i++) {
        ring->order[i] = timed[i].index;
    }
    free(timed);
    return 0;
}

static int read_ring(struct poise_trace_file *file, struct session_ring *ring)
{
    struct poise_trace_ring_info info;
    struct poise_trace_cursor cursor;
    int code = poise_trace_ring_info(file->view, ring->ring, &info);
    if (code == 0) {
        code = poise_trace_cursor(file->view, ring->ring, &cursor);
    }
    if (code < 0) {
        return code;
    }
    ring->has_one_owner = info.owners <= 1;
    memcpy(ring->name, info.name, sizeof ring->name);
    /* What is written while this looks is left for another time. */
    size_t most = (size_t)(info.written - info.overwritten);
    ring->events = poise_alloc(most + 1, sizeof *ring->events);
    if (!ring->events) {
        return -ENOMEM;
    }
    cursor.final = true;
    size_t got;
    do {
        got = poise_trace_read(&cursor, most - ring->count,
                               ring->events + ring->count);
        ring->count += got;
    } while (got > 0 && ring->count < most);
    file->records += ring->count;
    file->lost += cursor.lost;
    file->unfinished += cursor.unfinished;
    return sort_ring(ring);
}

static int read_file(struct poise_trace_session *session, unsigned number)
{
    struct session_file *file = &session->files[number];
    unsigned count = poise_trace_rings(file->file.view);
    struct session_ring *rings = poise_realloc(
        session->rings, session->ring_count + count + 1, sizeof *rings);
    if (!rings) {
        return -ENOMEM;
    }
    session->rings = rings;
    int code = 0;
    for (unsigned i = 0; i < count && code == 0; i++) {
        struct session_ring *ring = &rings[session->ring_count++];
        *ring = (struct session_ring){.file = number, .ring = i};
        code = read_ring(&file->file, ring);
    }
    return code;
}

/* ---- messages ----------------------------------------------------------- */

/* 1: the record is of sending a message, -1: of receiving one, 0: neither. */
static int direction(const struct poise_trace_event *event)
{
    return event->collector == POISE_TRACE_SEND      ? 1
           : event->collector == POISE_TRACE_RECEIVE ? -1
                                                     : 0;
}

static struct cause *cause_of(const struct poise_trace_session *session,
                              const struct session_ring *ring,
                              const struct poise_trace_event *event, bool add)
{
    int32_t self = session->files[ring->file].file.info.rank;
    int32_t other = (int32_t)event->values[1];
    return direction(event) > 0 ? causes_find(&session->causes, event->sequence,
                                              self, other, add)
                                : causes_find(&session->causes, event->sequence,
                                              other, self, add);
}

static int find_causes(struct poise_trace_session *session)
{
    size_t count = 0;
    for (size_t i = 0; i < session->ring_count; i++) {
        for (size_t k = 0; k < session->rings[i].count; k++) {
            count += direction(&session->rings[i].events[k]) > 0;
        }
    }
    int code = causes_make(&session->causes, count);
    for (size_t i = 0; i < session->ring_count && code == 0; i++) {
        const struct session_ring *ring = &session->rings[i];
        for (size_t k = 0; k < ring->count; k++) {
            if (direction(&ring->events[k]) > 0) {
                cause_of(session, ring, &ring->events[k], true);
            }
        }
    }
    return code;
}

/* ---- opening ------------------------------------------------------------ */

static int add_clocks(struct poise_trace_session *session)
{
    for (unsigned i = 0; i < session->file_count; i++) {
        int code = timelines_add(&session->lines, session->files[i].file.view,
                                 &session->files[i].line);
        if (code < 0) {
            return code;
        }
    }
    timelines_finish(&session->lines);
    return 0;
}

static const struct timeline *line_of(const struct poise_trace_session *session,
                                      unsigned file)
{
    return &session->lines.all[session->files[file].line];
}

/* What a file's records say of its clock, at worst. */
static void describe(struct poise_trace_session *session, unsigned number)
{
    struct poise_trace_file *file = &session->files[number].file;
    const struct timeline *line = line_of(session, number);
    uint64_t first = file->info.start_ticks, last = first, error;
    for (size_t i = 0; i < session->ring_count; i++) {
        const struct session_ring *ring = &session->rings[i];
        if (ring->file == number && ring->count > 0) {
            uint64_t ticks =
                ring->events[ring->order[ring->count - 1]].values[0];
            last = ticks > last ? ticks : last;
        }
    }
    file->way = line->way;
    file->offset_ns = timeline_offset(line, last);
    file->drift_ppm = timeline_drift_ppm(line, &file->drift_error_ppm);
    timeline_ns(line, first, &file->error_ns);
    for (int part = 1; part <= 2; part++) {
        timeline_ns(line, first + (last - first) / 2 * (unsigned)part, &error);
        file->error_ns = error > file->error_ns ? error : file->error_ns;
    }
    file->measurements = (unsigned)line->offset_count;
    file->snapshots = (unsigned)line->count;
    file->rate_ppm = timeline_rate_ppm(line);
    file->path = session->files[number].path;
    int64_t start = timeline_ns(line, first, &error);
    if (number == 0 || start < session->start_ns) {
        session->start_ns = start;
    }
}

static int read_all(struct poise_trace_session *session)
{
    int code = add_clocks(session);
    for (unsigned i = 0; i < session->file_count && code == 0; i++) {
        code = read_file(session, i);
    }
    if (code == 0) {
        code = find_causes(session);
    }
    if (code < 0) {
        return code;
    }
    for (unsigned i = 0; i < session->file_count; i++) {
        describe(session, i);
    }
    session->heap = poise_alloc(session->ring_count + 1, sizeof *session->heap);
    if (!session->heap) {
        return -ENOMEM;
    }
    poise_trace_session_rewind(session);
    return 0;
}

int poise_trace_session_open(const char *const *paths, size_t count,
                             struct poise_trace_session **out)
{
    if (count == 0) {
        return poise_error_set(EINVAL, "read trace", NULL, "no file is named");
    }
    struct poise_trace_session *session = poise_alloc(1, sizeof *session);
    if (!session) {
        return -ENOMEM;
    }
    int code = 0;
    for (size_t i = 0; i < count && code == 0; i++) {
        code = open_file(session, paths[i]);
    }
    if (code == 0 && count == 1) {
        code = open_others(session);
    }
    if (code == 0) {
        code = check_files(session);
    }
    if (code == 0) {
        code = read_all(session);
    }
    if (code < 0) {
        poise_trace_session_close(session);
        return code;
    }
    *out = session;
    return 0;
}

void poise_trace_session_close(struct poise_trace_session *session)
{
    if (!session) {
        return;
    }
    for (size_t i = 0; i < session->ring_count; i++) {
        free(session->rings[i].events);
        free(session->rings[i].order);
    }
    for (unsigned i = 0; i < session->file_count; i++) {
        poise_trace_close(session->files[i].file.view);
        free(session->files[i].path);
    }
    timelines_free(&session->lines);
    causes_free(&session->causes);
    free(session->heap);
    free(session->rings);
    free(session->files);
    free(session);
}

/* ---- asking ------------------------------------------------------------- */

unsigned poise_trace_session_files(const struct poise_trace_session *session)
{
    return session->file_count;
}

int poise_trace_session_file(const struct poise_trace_session *session,
                             unsigned file, struct poise_trace_file *out)
{
    if (file >= session->file_count) {
        return poise_error_set(EINVAL, "read trace", NULL,
                               "the session has no file %u", file);
    }
    *out = session->files[file].file;
    return 0;
}

unsigned poise_trace_session_missing(const struct poise_trace_session *session)
{
    return session->missing;
}

int poise_trace_session_time(const struct poise_trace_session *session,
                             unsigned file, uint64_t ticks, int64_t *ns,
                             uint64_t *error_ns)
{
    if (file >= session->file_count) {
        return poise_error_set(EINVAL, "read trace", NULL,
                               "the session has no file %u", file);
    }
    *ns = timeline_ns(line_of(session, file), ticks, error_ns) -
          session->start_ns;
    return 0;
}

uint64_t
poise_trace_session_contradictions(const struct poise_trace_session *session)
{
    return session->contradictions;
}

/* ---- the stream --------------------------------------------------------- */

static const struct poise_trace_event *next_of(const struct session_ring *ring)
{
    return &ring->events[ring->order[ring->at]];
}

static bool is_before(const struct poise_trace_session *session, size_t a,
                      size_t b)
{
    const struct session_ring *x = &session->rings[a], *y = &session->rings[b];
    return x->key != y->key ? x->key < y->key : a < b;
}

static void sift_up(struct poise_trace_session *session, size_t at)
{
    size_t *heap = session->heap, ring = heap[at];
    while (at > 0 && is_before(session, ring, heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = ring;
}

static void sift_down(struct poise_trace_session *session)
{
    size_t *heap = session->heap, ring = heap[0], at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child + 1 < session->heap_count &&
            is_before(session, heap[child + 1], heap[child])) {
            child++;
        }
        if (child >= session->heap_count ||
            !is_before(session, heap[child], ring)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = ring;
}

/* Put a ring that has more where it belongs: into the heap, or to those that
 * wait for a message. */
static void enter(struct poise_trace_session *session, size_t number)
{
    struct session_ring *ring = &session->rings[number];
    uint64_t error;
    if (ring->at == ring->count) {
        return;
    }
    const struct poise_trace_event *event = next_of(ring);
    int64_t ns;
    poise_trace_session_time(session, ring->file, event->values[0], &ns,
                             &error);
    ring->key = ns > ring->floor ? ns : ring->floor;
    struct cause *cause =
        direction(event) < 0 ? cause_of(session, ring, event, false) : NULL;
    if (cause && !cause->sent) {
        ring->waits = cause;
        cause->waiting++;
        return;
    }
    session->heap[session->heap_count] = number;
    sift_up(session, session->heap_count++);
}

/* Those that waited for this message go on, no earlier than it; NULL: for any,
 * since what they wait for will not come (it waits for them). */
static void release(struct poise_trace_session *session,
                    const struct cause *cause)
{
    for (size_t i = 0; i < session->ring_count; i++) {
        struct session_ring *ring = &session->rings[i];
        if (ring->waits && (!cause || ring->waits == cause)) {
            ring->waits->waiting--;
            ring->waits = NULL;
            ring->key =
                ring->key > session->last_ns ? ring->key : session->last_ns;
            session->heap[session->heap_count] = i;
            sift_up(session, session->heap_count++);
        }
    }
}

void poise_trace_session_rewind(struct poise_trace_session *session)
{
    session->heap_count = 0;
    session->last_ns = INT64_MIN;
    session->contradictions = 0;
    causes_reset(&session->causes);
    for (size_t i = 0; i < session->ring_count; i++) {
        session->rings[i].at = 0;
        session->rings[i].floor = INT64_MIN;
        session->rings[i].waits = NULL;
        enter(session, i);
    }
}

/* The sender's side is the cause; the receiver's comes after it. */
static void link_message(struct poise_trace_session *session,
                         const struct session_ring *ring, int64_t clock_ns,
                         struct poise_trace_moment *moment)
{
    int way = direction(moment->event);
    struct cause *cause =
        way == 0 ? NULL : cause_of(session, ring, moment->event, false);
    if (!cause) {
        return;
    }
    if (way > 0) {
        cause->sent = true;
        cause->ns = moment->ns;
        cause->clock_ns = clock_ns;
        cause->error_ns = moment->error_ns;
        cause->file = ring->file;
        return;
    }
    if (!cause->sent) {
        return;
    }
    bool same =
        session->files[cause->file].line == session->files[ring->file].line;
    uint64_t error = same ? 0
                     : cause->error_ns > UINT64_MAX - moment->error_ns
                         ? POISE_TRACE_UNKNOWN
                         : cause->error_ns + moment->error_ns;
    moment->has_cause = true;
    moment->latency_ns =
        moment->ns > cause->ns ? (uint64_t)(moment->ns - cause->ns) : 0;
    moment->latency_error_ns = error;
    if (clock_ns < cause->clock_ns &&
        (uint64_t)(cause->clock_ns - clock_ns) > error) {
        session->contradictions++;
    }
}

/* Whose the records are from here on. */
static void follow_owner(struct session_ring *ring,
                         const struct poise_trace_event *event)
{
    if (event->collector == POISE_TRACE_THREAD && !ring->has_one_owner) {
        memset(ring->name, 0, sizeof ring->name);
        for (int i = 0; i < 16; i++) {
            ring->name[i] =
                (char)(event->values[1 + i / 8] >> (8 * (i % 8)) & 0xff);
        }
    }
}

int poise_trace_session_next(struct poise_trace_session *session,
                             struct poise_trace_moment *out)
{
    if (session->heap_count == 0) {
        release(session, NULL);
    }
    if (session->heap_count == 0) {
        return 0;
    }
    size_t number = session->heap[0];
    struct session_ring *ring = &session->rings[number];
    session->heap[0] = session->heap[--session->heap_count];
    if (session->heap_count > 0) {
        sift_down(session);
    }
    const struct poise_trace_event *event = next_of(ring);
    int64_t clock_ns;
    follow_owner(ring, event);
    *out = (struct poise_trace_moment){.file = ring->file,
                                       .ring = ring->ring,
                                       .name = ring->name,
                                       .event = event};
    poise_trace_session_time(session, ring->file, event->values[0], &clock_ns,
                             &out->error_ns);
    out->ns = ring->key;
    out->held_ns = (uint64_t)(ring->key - clock_ns);
    link_message(session, ring, clock_ns, out);
    session->last_ns = ring->key;
    ring->floor = ring->key;
    ring->at++;
    if (direction(event) > 0) {
        struct cause *cause = cause_of(session, ring, event, false);
        if (cause->waiting > 0) {
            release(session, cause);
        }
    }
    enter(session, number);
    return 1;
}
