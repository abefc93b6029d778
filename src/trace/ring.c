/*
 * Giving out rings, to threads of any origin and any number of them, also in
 * signal handlers: by system calls that may be made there and atomic
 * operations only, without memory of malloc, locks or keys of threads. A ring
 * comes back when its owner says so, or when it is found that no such thread
 * is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"

/* How many rings are looked at for one whose thread has ended before a new one
 * is made: few, lest starting a thread be slow where there are many; enough
 * that at most one ring in so many lies idle. */
#define RING_LOOKS 16

#if defined(__clang__)
#define RING_OPAQUE __attribute__((noinline))
#else
#define RING_OPAQUE __attribute__((noipa))
#endif

struct poise_trace *poise_trace_in_force;

/* The calling thread's ring, and the number of the trace that it is of. */
static __attribute__((tls_model("initial-exec"))) _Thread_local struct {
    struct poise_trace_ring *ring;
    uint64_t number;
} ring_mine;

/* ---- who has a ring ----------------------------------------------------- */

/* Whether whoever has a ring is still there. (A later thread may have got the
 * number of one that has ended; then the ring comes back when that one ends.)
 */
static bool is_alive(const struct poise_trace *trace, int32_t owner)
{
    return owner < 0 || syscall(SYS_tgkill, trace->pid, owner, 0) == 0 ||
           errno != ESRCH;
}

/* Make it `owner_new`'s, if nobody has it. */
static bool take_over(struct poise_trace *trace, struct poise_trace_ring *ring,
                      int32_t owner_new)
{
    int32_t owner = __atomic_load_n(&ring->owner, __ATOMIC_ACQUIRE);
    return (owner == 0 || !is_alive(trace, owner)) &&
           __atomic_compare_exchange_n(&ring->owner, &owner, owner_new, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* One of `count` rings that nobody has, from where the last search ended. */
static struct poise_trace_ring *find_idle(struct poise_trace *trace,
                                          uint32_t count, int32_t owner)
{
    uint32_t made = __atomic_load_n(&trace->made, __ATOMIC_ACQUIRE);
    made = made < trace->head->rings_max ? made : trace->head->rings_max;
    count = count < made ? count : made;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t look =
            __atomic_fetch_add(&trace->next_look, 1, __ATOMIC_RELAXED) % made;
        struct poise_trace_ring *ring =
            __atomic_load_n(&trace->rings[look], __ATOMIC_ACQUIRE);
        if (ring && take_over(trace, ring, owner)) {
            return ring;
        }
    }
    return NULL;
}

/* ---- a new ring --------------------------------------------------------- */

static bool is_own_file(const struct poise_trace *trace)
{
    struct stat status;
    return fstat(trace->fd, &status) == 0 && status.st_dev == trace->device &&
           status.st_ino == trace->inode;
}

/* 0, or why ring `index` has no place in the file or in memory. */
static int map_ring(struct poise_trace *trace, uint32_t index,
                    struct poise_trace_ring **out)
{
    struct trace_head *head = trace->head;
    off_t at = (off_t)(head->head_bytes + index * head->ring_bytes);
    int code = poise_fault_check(POISE_FAULT_WRITE);
    if (code == 0 && !is_own_file(trace)) {
        code = EBADF;
    }
    while (code == 0) {
        code = posix_fallocate(trace->fd, at, (off_t)head->ring_bytes);
        if (code != EINTR) {
            break;
        }
        code = 0;
    }
    if (code) {
        return -code;
    }
    /* Its pages now, not one after the other while others wait for a rank. */
    void *map = mmap(NULL, head->ring_bytes, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_POPULATE, trace->fd, at);
    if (map == MAP_FAILED) {
        return -errno;
    }
    *out = map;
    return 0;
}

static int make_ring(struct poise_trace *trace, int32_t owner,
                     struct poise_trace_ring **out)
{
    struct trace_head *head = trace->head;
    uint32_t index = __atomic_load_n(&trace->made, __ATOMIC_RELAXED);
    struct poise_trace_ring *ring = NULL;
    do {
        if (index >= head->rings_max) {
            return -EAGAIN;
        }
    } while (!__atomic_compare_exchange_n(&trace->made, &index, index + 1, true,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    int code = map_ring(trace, index, &ring);
    if (code < 0) {
        return code;
    }
    ring->trace = trace;
    ring->index = index;
    __atomic_store_n(&ring->owner, owner, __ATOMIC_RELAXED);
    __atomic_store_n(&ring->mask, head->capacity - 1, __ATOMIC_RELEASE);
    __atomic_store_n(&trace->rings[index], ring, __ATOMIC_RELEASE);
    uint32_t rings = __atomic_load_n(&head->rings, __ATOMIC_RELAXED);
    while (rings <= index &&
           !__atomic_compare_exchange_n(&head->rings, &rings, index + 1, true,
                                        __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
    *out = ring;
    return 0;
}

/* ---- claiming ----------------------------------------------------------- */

/* A reader may look meanwhile: byte by byte, so that it sees some name. */
static void set_name(struct poise_trace_ring *ring, const char *name)
{
    size_t len = strnlen(name, sizeof ring->name - 1);
    for (size_t i = 0; i < sizeof ring->name; i++) {
        __atomic_store_n(&ring->name[i], i < len ? name[i] : '\0',
                         __ATOMIC_RELAXED);
    }
}

/* Say in the ring itself whose the records from here on are. */
static void record_owner(struct poise_trace_ring *ring, const char *name)
{
    char text[17] = {0};
    memcpy(text, name, strnlen(name, sizeof text - 1));
    poise_trace_put(ring, POISE_TRACE_THREAD, (uint64_t)gettid(),
                    poise_clock_ticks(), poise_trace_text(text),
                    poise_trace_text(text + 8), 0);
}

static int claim(struct poise_trace *trace, int32_t owner, const char *name,
                 struct poise_trace_ring **out)
{
    char own[16] = {0};
    struct poise_trace_ring *ring = find_idle(trace, RING_LOOKS, owner);
    int code = ring ? 0 : make_ring(trace, owner, &ring);
    if (code < 0) {
        ring = find_idle(trace, UINT32_MAX, owner);
    }
    if (!ring) {
        __atomic_fetch_add(&trace->head->refused, 1, __ATOMIC_RELAXED);
        return code;
    }
    if (!name) {
        prctl(PR_GET_NAME, own);
        name = own;
    }
    set_name(ring, name);
    __atomic_store_n(&ring->tid, gettid(), __ATOMIC_RELAXED);
    __atomic_fetch_add(&ring->owners, 1, __ATOMIC_RELEASE);
    record_owner(ring, name);
    *out = ring;
    return 0;
}

struct poise_trace_ring *poise_trace_claim(struct poise_trace *trace,
                                           const char *name)
{
    struct poise_trace_ring *ring;
    int code = claim(trace, -1, name, &ring);
    if (code == -EAGAIN) {
        poise_error_set(EAGAIN, "claim a trace ring", name,
                        "all %u have writers", trace->head->rings_max);
    } else if (code < 0) {
        poise_error_set(-code, "claim a trace ring", name, NULL);
    }
    return code < 0 ? NULL : ring;
}

void poise_trace_return(struct poise_trace_ring *ring)
{
    __atomic_store_n(&ring->owner, 0, __ATOMIC_RELEASE);
}

/* ---- the calling thread's ----------------------------------------------- */

/* Whatever the answer, it is asked for once: a thread without a ring stays
 * without. A signal handler that came in between may have got one already. Not
 * inline: whoever has a ring need not save registers for it. */
__attribute__((noinline)) static struct poise_trace_ring *
claim_mine(struct poise_trace *trace)
{
    int before = errno;
    struct poise_trace_ring *ring = NULL;
    claim(trace, gettid(), NULL, &ring);
    if (ring_mine.number == trace->number) {
        if (ring) {
            poise_trace_return(ring);
        }
    } else {
        ring_mine.ring = ring;
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        ring_mine.number = trace->number;
    }
    errno = before;
    return ring_mine.ring;
}

RING_OPAQUE struct poise_trace_ring *poise_trace_ring_slow(void)
{
    struct poise_trace *trace =
        __atomic_load_n(&poise_trace_in_force, __ATOMIC_ACQUIRE);
    if (!trace ||
        __builtin_expect(
            __atomic_load_n(&trace->head->paused, __ATOMIC_RELAXED) != 0, 0)) {
        return NULL;
    }
    return __builtin_expect(ring_mine.number == trace->number, 1)
               ? ring_mine.ring
               : claim_mine(trace);
}

void poise_trace_name(const char *name)
{
    struct poise_trace_ring *ring = poise_trace_ring();
    if (ring) {
        set_name(ring, name);
        record_owner(ring, name);
    }
}

/* ---- the process -------------------------------------------------------- */

/* In a child of fork: what was in force when it was made. */
static struct poise_trace *ring_before_fork;

static void in_child(void)
{
    ring_before_fork =
        __atomic_exchange_n(&poise_trace_in_force, NULL, __ATOMIC_RELAXED);
}

int poise_trace_child(int rank)
{
    struct poise_trace *parent = ring_before_fork, *mine = NULL;
    struct poise_buf name = {0};
    if (!parent || !parent->path) {
        return 0;
    }
    const struct trace_head *head = parent->head;
    struct poise_trace_options options = {
        .session = {head->session[0], head->session[1]},
        .rank = rank,
        .size = rank < head->size ? head->size : rank + 1,
        .capacity = (unsigned)head->capacity,
        .rings_max = head->rings_max,
        .program = head->program,
    };
    poise_buf_printf(&name, "%s.%d", parent->path, rank);
    int code = name.error;
    if (code == 0) {
        code = poise_trace_create(poise_buf_str(&name), &options, &mine);
    }
    poise_buf_free(&name);
    if (code == 0) {
        ring_before_fork = NULL;
        poise_trace_use(mine);
    }
    return code;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

struct poise_trace *poise_trace_use(struct poise_trace *trace)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    return __atomic_exchange_n(&poise_trace_in_force, trace, __ATOMIC_ACQ_REL);
}
