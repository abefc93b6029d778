/*
 * Samples of the ranks on this host: how long each was ready while others ran
 * (schedstat), and whether it is stopped (stat). Files of /proc stay open: that
 * takes two microseconds a rank.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Ranks of a host that are sampled: two descriptors each, of 1,024 that a
 * process has by default. */
enum { RANKS_MOST = 256 };

/* Never more often, however few ranks there are: a time slice of the kernel is
 * three milliseconds at least. And at most this share of the time. */
#define WAIT_LEAST_NS 2000000
#define SHARE 50

int poise_monitor_system_create(struct poise_monitor *monitor, const char *path,
                                struct poise_monitor_system **out)
{
    struct poise_monitor_system *system = poise_alloc(1, sizeof *system);
    if (!system) {
        return -ENOMEM;
    }
    system->monitor = monitor;
    system->path = strdup(path);
    int code = system->path ? system_charge_begin(system)
                            : poise_error_set(ENOMEM, "sample", path, NULL);
    if (code < 0) {
        free(system->path);
        free(system);
        return code;
    }
    *out = system;
    return 0;
}

static void forget(struct system_rank *rank)
{
    if (rank->schedstat >= 0) {
        close(rank->schedstat);
    }
    if (rank->stat >= 0) {
        close(rank->stat);
    }
    rank->schedstat = rank->stat = -1;
}

void poise_monitor_system_destroy(struct poise_monitor_system *system)
{
    if (!system) {
        return;
    }
    system_charge_end(system);
    system_network_end(system);
    for (int i = 0; i < system->size; i++) {
        forget(&system->ranks[i]);
        free(system->ranks[i].samples);
    }
    free(system->ranks);
    free(system->left_ns);
    free(system->path);
    free(system);
}

/* ---- finding ranks ------------------------------------------------------ */

static bool is_here(const struct poise_trace_info *info)
{
    char here[HOST_NAME_MAX + 1] = "";
    uint64_t clock[2];
    gethostname(here, sizeof here - 1);
    poise_trace_clock_id(clock);
    return strcmp(here, info->host) == 0 && clock[0] == info->clock[0] &&
           clock[1] == info->clock[1];
}

static int open_proc(const struct poise_trace_info *info, int tid,
                     const char *name)
{
    char path[80];
    snprintf(path, sizeof path, "/proc/%d/task/%d/%s", info->pid,
             tid > 0 ? tid : info->pid, name);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* The thread that records first is the one that calls MPI. */
static void find(struct system_rank *rank, const char *path)
{
    struct poise_trace_view *view;
    struct poise_trace_info info;
    struct poise_trace_ring_info ring = {0};
    if (access(path, F_OK) != 0 || poise_trace_open(path, &view) < 0) {
        return;
    }
    poise_trace_info(view, &info);
    if (poise_trace_rings(view) > 0 && !info.ended) {
        rank->is_asked = true;
        if (is_here(&info) && poise_trace_ring_info(view, 0, &ring) == 0) {
            rank->schedstat = open_proc(&info, ring.tid, "schedstat");
            rank->stat = open_proc(&info, ring.tid, "stat");
            rank->samples = calloc(SYSTEM_SAMPLES, sizeof *rank->samples);
        }
        if (!rank->samples || rank->schedstat < 0 || rank->stat < 0) {
            forget(rank);
        }
    }
    poise_trace_close(view);
}

static void begin(struct poise_monitor_system *system)
{
    struct poise_trace_view *view;
    struct poise_trace_info info;
    if (access(system->path, F_OK) != 0 ||
        poise_trace_open(system->path, &view) < 0) {
        return;
    }
    poise_trace_info(view, &info);
    int size = info.size < RANKS_MOST ? info.size : RANKS_MOST;
    system->start_ticks = info.start_ticks;
    system->tick_hz = info.tick_hz;
    system->ranks = poise_alloc((size_t)size, sizeof *system->ranks);
    system->left_ns = poise_alloc((size_t)size, sizeof *system->left_ns);
    if (system->ranks && system->left_ns) {
        system->size = size;
    }
    for (int i = 0; i < system->size; i++) {
        system->ranks[i].schedstat = system->ranks[i].stat = -1;
        system->left_ns[i] = INT64_MIN;
    }
    poise_trace_close(view);
}

static void find_all(struct poise_monitor_system *system)
{
    struct poise_buf path = {0};
    for (int i = 0; i < system->size; i++) {
        if (!system->ranks[i].is_asked) {
            poise_buf_reset(&path);
            poise_buf_printf(&path, i ? "%s.%d" : "%s", system->path, i);
            find(&system->ranks[i], poise_buf_str(&path));
        }
    }
    poise_buf_free(&path);
}

/* ---- sampling ----------------------------------------------------------- */

static int64_t session_ns(const struct poise_monitor_system *system)
{
    return (int64_t)((double)(poise_clock_ticks() - system->start_ticks) * 1e9 /
                     (double)system->tick_hz);
}

/* The third word of stat, behind a name that may hold anything. */
static bool is_stopped(const char *text)
{
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' && (end[2] == 'T' || end[2] == 't');
}

static void sample(struct system_rank *rank, int64_t ns)
{
    char text[512];
    unsigned long long run, queue;
    ssize_t count = pread(rank->schedstat, text, sizeof text - 1, 0);
    text[count > 0 ? count : 0] = '\0';
    if (sscanf(text, "%llu %llu", &run, &queue) != 2) {
        forget(rank);
        return;
    }
    count = pread(rank->stat, text, sizeof text - 1, 0);
    text[count > 0 ? count : 0] = '\0';
    rank->samples[rank->count++ % SYSTEM_SAMPLES] = (struct system_sample){
        .ns = ns, .queue_ns = (int64_t)queue, .is_stopped = is_stopped(text)};
}

/* Of the processor, which is what it must not cost: a loaded machine, where one
 * waits for it, is where samples are wanted. */
static uint64_t spent_ns(void)
{
    struct timespec spent;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * 1000000000 + (uint64_t)spent.tv_nsec;
}

void poise_monitor_system_look(struct poise_monitor_system *system)
{
    uint64_t now = poise_clock_ns(), before = spent_ns();
    if (now - system->looked_ns < system->wait_ns) {
        return;
    }
    if (system->size == 0) {
        begin(system);
    }
    find_all(system);
    for (int i = 0; i < system->size; i++) {
        if (system->ranks[i].schedstat >= 0) {
            sample(&system->ranks[i], session_ns(system));
        }
    }
    uint64_t took = spent_ns() - before;
    system->looked_ns = now;
    system->wait_ns =
        SHARE * took > WAIT_LEAST_NS ? SHARE * took : WAIT_LEAST_NS;
}

/* ---- what they say ------------------------------------------------------ */

static int64_t overlap(int64_t a, int64_t b, int64_t from, int64_t to)
{
    a = a > from ? a : from;
    b = b < to ? b : to;
    return b > a ? b - a : 0;
}

/* Between two samples. Of a time that is only partly asked for it may have
 * waited in that part: as much is counted as fits. */
static void add(const struct system_sample *a, const struct system_sample *b,
                int64_t from, int64_t to, struct poise_monitor_kept *out)
{
    int64_t shared = overlap(a->ns, b->ns, from, to);
    int64_t queue = b->queue_ns - a->queue_ns;
    if (a->is_stopped) {
        out->stopped_ns += shared;
    } else if (queue > 0) {
        out->queue_ns += queue < shared ? queue : shared;
    }
}

bool poise_monitor_system_kept(const struct poise_monitor_system *system,
                               int rank, int64_t from_ns, int64_t to_ns,
                               struct poise_monitor_kept *out)
{
    *out = (struct poise_monitor_kept){0};
    if (rank < 0 || rank >= system->size || !system->ranks[rank].samples) {
        return false;
    }
    const struct system_rank *from = &system->ranks[rank];
    uint64_t first =
        from->count > SYSTEM_SAMPLES ? from->count - SYSTEM_SAMPLES : 0;
    if (from->count < first + 2 ||
        from->samples[first % SYSTEM_SAMPLES].ns > to_ns) {
        return false;
    }
    for (uint64_t i = from->count - 1; i > first; i--) {
        const struct system_sample *b = &from->samples[i % SYSTEM_SAMPLES];
        if (b->ns <= from_ns) {
            break;
        }
        add(&from->samples[(i - 1) % SYSTEM_SAMPLES], b, from_ns, to_ns, out);
    }
    return true;
}
