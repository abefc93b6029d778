/*
 * Reading traces, also while they are written and after their writer died.
 *
 * A reader trusts only the head, which it checked when it opened the trace.
 * Record n is whole when its slot bears its stamp, and cannot have been touched
 * while it was copied: the slot is taken again by record n + capacity, and a
 * reader that sees a word of that one also sees reserved > n + capacity, since
 * all of the writer's stores are releases.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "view.h"

/* How often a reader that was lapped looks again. */
#define VIEW_ATTEMPTS 8

/* ---- opening ------------------------------------------------------------ */

bool trace_is_head(const struct trace_head *head)
{
    struct trace_layout layout;
    return trace_layout(head->rings_max, head->capacity, &layout) &&
           head->head_bytes == layout.head_bytes &&
           head->event_bytes == sizeof(struct poise_trace_event) &&
           head->ring_head_bytes == sizeof(struct poise_trace_ring) &&
           head->ring_bytes == layout.ring_bytes && head->tick_hz != 0 &&
           head->rings <= head->rings_max && head->size > 0 &&
           head->rank >= 0 && head->rank < head->size &&
           head->types_at == layout.types_at &&
           head->types_max == TRACE_TYPES &&
           head->places_at == layout.places_at &&
           head->places_max == TRACE_PLACES &&
           head->snapshots_at == layout.snapshots_at &&
           head->snapshots_max == TRACE_SNAPSHOTS &&
           head->offsets_at == layout.offsets_at &&
           head->offsets_max == TRACE_OFFSETS && head->has_tsc <= 1 &&
           memchr(head->host, '\0', sizeof head->host) &&
           memchr(head->program, '\0', sizeof head->program);
}

/* 0, or why the first `bytes` bytes of a file are no head of a trace. */
static int check(const struct trace_head *head, size_t bytes, const char *path)
{
    const char *doing = "read trace";
    if (bytes < sizeof head->magic) {
        return poise_error_set(EBADMSG, doing, path, "cut short in its head");
    }
    if (__atomic_load_n(&head->magic, __ATOMIC_ACQUIRE) != TRACE_MAGIC) {
        return poise_error_set(EPROTO, doing, path, "not a trace");
    }
    if (bytes < sizeof *head) {
        return poise_error_set(EBADMSG, doing, path, "cut short in its head");
    }
    if (head->version != TRACE_VERSION) {
        return poise_error_set(
            EPROTO, doing, path, "version %u; this program reads version %d%s",
            head->version, TRACE_VERSION,
            head->version < TRACE_VERSION ? " (read it with the program that "
                                            "wrote it)"
                                          : "");
    }
    if (!trace_is_head(head)) {
        return poise_error_set(EBADMSG, doing, path, "damaged head");
    }
    if (bytes < head->head_bytes) {
        return poise_error_set(EBADMSG, doing, path,
                               "cut short: %zu of %u bytes of its head", bytes,
                               head->head_bytes);
    }
    return 0;
}

/* Map the head, and keep the descriptor for rings to come. */
static int map_head(struct poise_trace_view *view, const char *path)
{
    struct stat status;
    if (fstat(view->fd, &status)) {
        return poise_error_set(errno, "read trace", path, NULL);
    }
    if (!S_ISREG(status.st_mode)) {
        return poise_error_set(EPROTO, "read trace", path, "not a file");
    }
    if (status.st_size == 0) {
        return poise_error_set(EBADMSG, "read trace", path, "it is empty");
    }
    size_t bytes = (size_t)status.st_size;
    void *map = mmap(NULL, bytes < TRACE_ALIGN * 8 ? bytes : TRACE_ALIGN * 8,
                     PROT_READ, MAP_SHARED, view->fd, 0);
    if (map == MAP_FAILED) {
        return poise_error_set(errno, "map", path, NULL);
    }
    int code = check(map, bytes, path);
    view->head = map;
    view->head_bytes = bytes < TRACE_ALIGN * 8 ? bytes : TRACE_ALIGN * 8;
    return code;
}

/* A file in order has all rings that it speaks of. */
static int check_rings(struct poise_trace_view *view, const char *path)
{
    struct stat status;
    const struct trace_head *head = view->head;
    uint64_t needed = head->head_bytes + view->named * head->ring_bytes;
    if (fstat(view->fd, &status)) {
        return poise_error_set(errno, "read trace", path, NULL);
    }
    if ((uint64_t)status.st_size < needed) {
        return poise_error_set(
            EBADMSG, "read trace", path, "cut short: %llu of %llu bytes",
            (unsigned long long)status.st_size, (unsigned long long)needed);
    }
    return 0;
}

int poise_trace_open(const char *path, struct poise_trace_view **out)
{
    struct poise_trace_view *view = poise_alloc(1, sizeof *view);
    if (!view) {
        return -ENOMEM;
    }
    /* Not to hang on a FIFO. */
    view->fd =
        poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    int code = view->fd;
    if (code >= 0) {
        code = map_head(view, path);
    }
    if (code == 0) {
        view->named = __atomic_load_n(&view->head->rings, __ATOMIC_ACQUIRE);
        code = check_rings(view, path);
    }
    if (code < 0) {
        poise_trace_close(view);
        return code;
    }
    *out = view;
    return 0;
}

int poise_trace_view_of(struct poise_trace *trace,
                        struct poise_trace_view **out)
{
    struct poise_trace_view *view = poise_alloc(1, sizeof *view);
    if (!view) {
        return -ENOMEM;
    }
    view->head = trace->head;
    view->trace = trace;
    view->fd = -1;
    *out = view;
    return 0;
}

void poise_trace_close(struct poise_trace_view *view)
{
    if (!view) {
        return;
    }
    for (uint32_t i = 0; i < view->mapped; i++) {
        if (view->rings[i]) {
            munmap(view->rings[i], view->head->ring_bytes);
        }
    }
    if (!view->trace && view->head) {
        munmap(view->head, view->head_bytes);
    }
    if (view->fd >= 0) {
        close(view->fd);
    }
    free(view->rings);
    free(view);
}

/* ---- what it says of itself --------------------------------------------- */

void poise_trace_info(const struct poise_trace_view *view,
                      struct poise_trace_info *out)
{
    struct trace_head *head = view->head;
    *out = (struct poise_trace_info){
        .session = {head->session[0], head->session[1]},
        .rank = head->rank,
        .size = head->size,
        .pid = head->pid,
        .host = head->host,
        .program = head->program,
        .clock = {head->clock[0], head->clock[1]},
        .has_tsc = head->has_tsc,
        .tick_hz = head->tick_hz,
        .start_ticks = head->start_ticks,
        .capacity = head->capacity,
        .refused = __atomic_load_n(&head->refused, __ATOMIC_RELAXED),
        .unplaced = __atomic_load_n(&head->unplaced, __ATOMIC_RELAXED),
        .ended = __atomic_load_n(&head->ended, __ATOMIC_ACQUIRE) == 1,
        .paused = __atomic_load_n(&head->paused, __ATOMIC_RELAXED) != 0,
        .rate = head->rate,
    };
}

/* The head, writable: of a file that was seen to be a trace. */
static int map_writable(const char *path, struct trace_head **out)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return poise_error_set(errno, "open", path, NULL);
    }
    void *map =
        mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int why = errno;
    close(fd);
    if (map == MAP_FAILED) {
        return poise_error_set(why, "map", path, NULL);
    }
    *out = map;
    return 0;
}

int poise_trace_pause(const char *path, bool paused)
{
    struct poise_trace_view *view;
    struct poise_trace_info info;
    struct trace_head *head = NULL;
    int code = poise_trace_open(path, &view);
    if (code < 0) {
        return code;
    }
    poise_trace_info(view, &info);
    poise_trace_close(view);
    if (info.ended) {
        return poise_error_set(ESRCH, "pause or resume", path,
                               "its program has ended");
    }
    code = map_writable(path, &head);
    if (code < 0) {
        return code;
    }
    uint32_t before =
        __atomic_exchange_n(&head->paused, (uint32_t)paused, __ATOMIC_ACQ_REL);
    munmap(head, sizeof *head);
    return before != 0;
}

static bool type_of(const struct trace_head *head, uint32_t id,
                    struct poise_trace_type *out)
{
    const struct poise_trace_type *types = trace_table(head, head->types_at);
    uint32_t slot =
        id < POISE_TRACE_USER ? id : id - POISE_TRACE_USER + TRACE_USER_FIRST;
    if (id == 0 || slot >= TRACE_TYPES ||
        (id < POISE_TRACE_USER && id >= TRACE_USER_FIRST) ||
        __atomic_load_n(&types[slot].id, __ATOMIC_ACQUIRE) != id) {
        return false;
    }
    *out = types[slot];
    out->name[sizeof out->name - 1] = '\0';
    out->sequence[sizeof out->sequence - 1] = '\0';
    for (int i = 0; i < POISE_TRACE_VALUES; i++) {
        if (out->values[i].unit >= POISE_TRACE_UNITS) {
            out->values[i].unit = POISE_TRACE_ID;
        }
        out->values[i].name[sizeof out->values[i].name - 1] = '\0';
    }
    return true;
}

bool poise_trace_place(const struct poise_trace_view *view, uint32_t collector,
                       struct poise_trace_place *out)
{
    const struct trace_place *places =
        trace_table(view->head, view->head->places_at);
    const struct trace_place *slot =
        &places[(collector - POISE_TRACE_COLLECTOR) % TRACE_PLACES];
    struct poise_trace_type type;
    if (collector < POISE_TRACE_COLLECTOR) {
        if (!type_of(view->head, collector, &type)) {
            return false;
        }
        *out = (struct poise_trace_place){
            .id = collector, .type = collector, .rank = -1, .peer = -1};
        memcpy(out->name, type.name, sizeof type.name);
        return true;
    }
    if (__atomic_load_n(&slot->place.id, __ATOMIC_ACQUIRE) != collector) {
        return false;
    }
    struct poise_trace_place place = {.id = collector};
    trace_word *to = (trace_word *)&place;
    const trace_word *from = (const trace_word *)&slot->place;
    for (int i = 1; i < TRACE_PLACE_WORDS; i++) {
        to[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    }
    if (__atomic_load_n(&slot->place.id, __ATOMIC_RELAXED) != collector) {
        return false;
    }
    place.name[sizeof place.name - 1] = '\0';
    place.group_name[sizeof place.group_name - 1] = '\0';
    *out = place;
    return true;
}

bool poise_trace_type(const struct poise_trace_view *view, uint32_t collector,
                      struct poise_trace_type *out)
{
    struct poise_trace_place place;
    return poise_trace_place(view, collector, &place) &&
           type_of(view->head, place.type, out);
}

/* ---- its rings ---------------------------------------------------------- */

/* Room for `count` rings, as yet unmapped. */
static bool make_room(struct poise_trace_view *view, uint32_t count)
{
    if (count <= view->mapped) {
        return true;
    }
    struct poise_trace_ring **rings =
        poise_realloc(view->rings, count, sizeof(struct poise_trace_ring *));
    if (!rings) {
        return false;
    }
    for (uint32_t i = view->mapped; i < count; i++) {
        rings[i] = NULL;
    }
    view->rings = rings;
    view->mapped = count;
    return true;
}

unsigned poise_trace_rings(struct poise_trace_view *view)
{
    uint32_t rings = __atomic_load_n(&view->head->rings, __ATOMIC_ACQUIRE);
    struct stat status;
    if (view->trace || rings <= view->named) {
        view->named = view->trace ? rings : view->named;
        return view->named;
    }
    /* More than when it was opened: those that are in the file. */
    if (rings <= view->head->rings_max && fstat(view->fd, &status) == 0) {
        uint64_t most = ((uint64_t)status.st_size - view->head->head_bytes) /
                        view->head->ring_bytes;
        view->named = rings < most ? rings : (uint32_t)most;
    }
    return view->named;
}

/* The ring; NULL if it is not there, or not yet. */
static struct poise_trace_ring *ring_at(struct poise_trace_view *view,
                                        unsigned ring)
{
    if (view->trace) {
        return ring < view->head->rings_max
                   ? __atomic_load_n(&view->trace->rings[ring],
                                     __ATOMIC_ACQUIRE)
                   : NULL;
    }
    if (!make_room(view, view->named)) {
        return NULL;
    }
    if (!view->rings[ring]) {
        off_t at =
            (off_t)(view->head->head_bytes + ring * view->head->ring_bytes);
        void *map = mmap(NULL, view->head->ring_bytes, PROT_READ, MAP_SHARED,
                         view->fd, at);
        if (map == MAP_FAILED) {
            poise_error_set(errno, "map a ring of a trace", NULL, NULL);
            return NULL;
        }
        view->rings[ring] = map;
    }
    return view->rings[ring];
}

/* The ring, 0 or negative. A ring whose claim did not end is empty. */
static int find_ring(struct poise_trace_view *view, unsigned ring,
                     const struct poise_trace_ring **out)
{
    static const struct poise_trace_ring empty;
    if (ring >= poise_trace_rings(view)) {
        return poise_error_set(EINVAL, "read trace", NULL, "it has no ring %u",
                               ring);
    }
    *out = ring_at(view, ring);
    if (!*out && !view->trace) {
        return -poise_error_last()->code;
    }
    *out = *out ? *out : &empty;
    return 0;
}

int poise_trace_ring_info(struct poise_trace_view *view, unsigned ring,
                          struct poise_trace_ring_info *out)
{
    const struct poise_trace_ring *from;
    uint64_t capacity = view->head->capacity;
    int code = find_ring(view, ring, &from);
    if (code < 0) {
        return code;
    }
    out->written = __atomic_load_n(&from->reserved, __ATOMIC_ACQUIRE);
    out->overwritten = out->written > capacity ? out->written - capacity : 0;
    out->owned = __atomic_load_n(&from->owner, __ATOMIC_ACQUIRE) != 0;
    out->owners = __atomic_load_n(&from->owners, __ATOMIC_ACQUIRE);
    out->skipped = __atomic_load_n(&from->skipped, __ATOMIC_RELAXED);
    out->tid = __atomic_load_n(&from->tid, __ATOMIC_RELAXED);
    for (size_t i = 0; i < sizeof out->name - 1; i++) {
        out->name[i] = __atomic_load_n(&from->name[i], __ATOMIC_RELAXED);
    }
    out->name[sizeof out->name - 1] = '\0';
    return 0;
}

int poise_trace_cursor(struct poise_trace_view *view, unsigned ring,
                       struct poise_trace_cursor *out)
{
    const struct poise_trace_ring *from;
    int code = find_ring(view, ring, &from);
    if (code < 0) {
        return code;
    }
    *out = (struct poise_trace_cursor){.ring = from,
                                       .capacity = view->head->capacity};
    return 0;
}

/* ---- reading records ---------------------------------------------------- */

/* A record as it lies there: acquiring loads. On x86 all are, and those of 16
 * bytes see each word whole. */
static inline void copy_record(const struct poise_trace_event *slot,
                               struct poise_trace_event *event)
{
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    __extension__ typedef long long pair __attribute__((vector_size(16)));
    pair a, b, c;
    __asm__ volatile("movdqu (%3), %0\n\tmovdqu 16(%3), %1\n\t"
                     "movdqu 32(%3), %2"
                     : "=x"(a), "=x"(b), "=x"(c)
                     : "r"(slot)
                     : "memory");
    memcpy((char *)event, &a, sizeof a);
    memcpy((char *)event + 16, &b, sizeof b);
    memcpy((char *)event + 32, &c, sizeof c);
#else
    event->stamp = __atomic_load_n(&slot->stamp, __ATOMIC_ACQUIRE);
    event->collector = __atomic_load_n(&slot->collector, __ATOMIC_ACQUIRE);
    event->sequence = __atomic_load_n(&slot->sequence, __ATOMIC_ACQUIRE);
    for (int i = 0; i < POISE_TRACE_VALUES; i++) {
        event->values[i] = __atomic_load_n(&slot->values[i], __ATOMIC_ACQUIRE);
    }
#endif
}

/* Copy whole records from number `first` on, at most `max`, in slots that lie
 * behind each other; how many. */
static size_t copy_run(const struct poise_trace_event *slots, uint64_t first,
                       size_t max, struct poise_trace_event *events)
{
    for (size_t i = 0; i < max; i++) {
        /* The stamp, which is stored last, is looked at first. */
        uint32_t stamp = (uint32_t)(first + i) + 1;
        if (__atomic_load_n(&slots[i].stamp, __ATOMIC_ACQUIRE) != stamp) {
            return i;
        }
        copy_record(&slots[i], &events[i]);
        events[i].stamp = stamp;
    }
    return max;
}

/* The same, also where the ring begins anew. They may have been torn meanwhile.
 */
static size_t copy(const struct poise_trace_cursor *cursor, uint64_t first,
                   size_t max, struct poise_trace_event *events)
{
    uint64_t at = first & (cursor->capacity - 1);
    const struct poise_trace_event *slots =
        (const struct poise_trace_event *)(cursor->ring + 1);
    size_t run =
        max < cursor->capacity - at ? max : (size_t)(cursor->capacity - at);
    size_t count = copy_run(slots + at, first, run, events);
    return count < run || count == max
               ? count
               : count + copy_run(slots, first + count, max - count,
                                  events + count);
}

/* Records that `reserved` says are overwritten are lost. */
static void pass_lost(struct poise_trace_cursor *cursor, uint64_t reserved)
{
    if (reserved > cursor->capacity &&
        reserved - cursor->capacity > cursor->next) {
        cursor->lost += reserved - cursor->capacity - cursor->next;
        cursor->next = reserved - cursor->capacity;
    }
}

size_t poise_trace_read(struct poise_trace_cursor *cursor, size_t max,
                        struct poise_trace_event *events)
{
    const uint64_t *reserved = &cursor->ring->reserved;
    uint64_t end = __atomic_load_n(reserved, __ATOMIC_ACQUIRE);
    for (int attempt = 0; attempt < VIEW_ATTEMPTS; attempt++) {
        pass_lost(cursor, end);
        uint64_t first = cursor->next;
        if (max == 0 || first >= end) {
            return 0;
        }
        size_t most = end - first < max ? (size_t)(end - first) : max;
        size_t count = copy(cursor, first, most, events);
        uint64_t now = __atomic_load_n(reserved, __ATOMIC_ACQUIRE);
        pass_lost(cursor, now);
        if (count > 0 && cursor->next < first + count) {
            size_t lost = (size_t)(cursor->next - first);
            memmove(events, events + lost, (count - lost) * sizeof *events);
            cursor->next = first + count;
            cursor->read += count - lost;
            return count - lost;
        }
        if (cursor->next == first && count == 0) {
            /* Begun, and neither finished nor overwritten. */
            if (!cursor->final) {
                return 0;
            }
            cursor->next++;
            cursor->unfinished++;
            attempt = -1;
        }
        end = now;
    }
    return 0;
}
