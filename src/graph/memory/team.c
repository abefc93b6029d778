/*
 * Teams: chunks of work are claimed one by one with a single atomic add on a
 * word that also says which work they belong to and how many there are. The
 * work is over when all chunks are *done*, not when all threads have come: a
 * helper that the system does not run at the moment (other processes want the
 * processor) costs its share, and the others do not wait for it.
 *
 * Each thread has a share of the chunks, the same from work to work, so that
 * what it wrote is still in its cache; only when that is done it goes through
 * the shares of the others.
 */
#include "memory.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/** How long a thread looks for more before it sleeps. The steps of a search
 * follow each other within microseconds. */
#define TEAM_SPIN_NS 20000
#define TEAM_LOOKS 32

/* The word: number of the work, chunks in all, chunks claimed. Each thread
 * claims at most once too often, so the last field does not overflow.
 *
 * Why a claim is safe: who claims chunk i < count by the atomic add has read in
 * the same step to which work it belongs. That work cannot be over before the
 * chunk is done, and the caller publishes no other before: so `work`, `arg` and
 * `first` are those that were written before the word (release, acquire) and
 * stay until `done` is raised. A helper that comes too late finds the word of
 * its last work used up, or the next one.
 *
 * Why no wake-up is lost: a helper reads the event `published`, looks at its
 * word, and sleeps only if the event is still what it read; the caller changes
 * the words first and signals then. The same for `finished`, which is signalled
 * by who raises `done` to the number of chunks. */
#define WORD_COUNT_BITS 23
#define WORD_INDEX_BITS 24
#define WORD_INDEX(word) ((uint32_t)((word) & ((UINT64_C(1) << 24) - 1)))
#define WORD_COUNT(word)                                                       \
    ((uint32_t)((word) >> WORD_INDEX_BITS &                                    \
                ((UINT64_C(1) << WORD_COUNT_BITS) - 1)))
#define WORD_NUMBER(word) ((word) >> (WORD_INDEX_BITS + WORD_COUNT_BITS))
#define WORD_OF(number, count)                                                 \
    ((uint64_t)(number) << (WORD_INDEX_BITS + WORD_COUNT_BITS) |               \
     (uint64_t)(count) << WORD_INDEX_BITS)

struct team_helper {
    struct graph_team *team;
    pthread_t thread;
    unsigned number, team_size;
};

/** The chunks of one thread; a cache line of its own. */
struct team_share {
    _Alignas(GRAPH_CACHE_LINE) uint64_t word; /**< __atomic */
    uint32_t first;                           /**< number of its first chunk */
};

struct graph_team {
    _Alignas(GRAPH_CACHE_LINE) uint32_t done; /**< __atomic */
    /* Written by the caller before it publishes the word. */
    _Alignas(GRAPH_CACHE_LINE) graph_work *work;
    void *arg;
    uint64_t spin_ticks;
    struct poise_event published, finished;
    uint32_t chunks;
    uint32_t stop; /**< __atomic */
    unsigned size, planned;
    struct team_share *shares;
    struct team_helper *helpers;
};

/* Run what can be claimed of one share; returns the word that had nothing
 * left. What is read here besides the word was written before it, and stays
 * until all that can be claimed is done. */
static uint64_t team_work_share(struct graph_team *team, unsigned thread,
                                struct team_share *share)
{
    for (;;) {
        uint64_t word = __atomic_fetch_add(&share->word, 1, __ATOMIC_ACQUIRE);
        if (WORD_INDEX(word) >= WORD_COUNT(word)) {
            return word;
        }
        team->work(team->arg, thread, share->first + WORD_INDEX(word));
        uint32_t chunks = team->chunks;
        uint32_t done = __atomic_add_fetch(&team->done, 1, __ATOMIC_ACQ_REL);
        if (done == chunks) {
            poise_event_signal(&team->finished);
        }
    }
}

/* One's own share, then those of the others that have something left. */
static uint64_t team_work(struct graph_team *team, unsigned thread,
                          unsigned size)
{
    uint64_t word = team_work_share(team, thread, &team->shares[thread]);
    for (unsigned i = 1; i < size; i++) {
        struct team_share *share = &team->shares[(thread + i) % size];
        uint64_t other = __atomic_load_n(&share->word, __ATOMIC_RELAXED);
        if (WORD_INDEX(other) < WORD_COUNT(other)) {
            team_work_share(team, thread, share);
        }
    }
    return word;
}

static bool team_is_new(struct graph_team *team, unsigned thread, uint64_t word)
{
    uint64_t now =
        __atomic_load_n(&team->shares[thread].word, __ATOMIC_RELAXED);
    return WORD_NUMBER(now) != WORD_NUMBER(word) ||
           __atomic_load_n(&team->stop, __ATOMIC_RELAXED);
}

static void team_wait_new(struct graph_team *team, unsigned thread,
                          uint64_t word)
{
    uint64_t from = poise_clock_ticks();
    do {
        for (int i = 0; i < TEAM_LOOKS; i++) {
            if (team_is_new(team, thread, word)) {
                return;
            }
            poise_pause();
        }
    } while (poise_clock_ticks() - from < team->spin_ticks);
    for (;;) {
        uint32_t seen = poise_event_seen(&team->published);
        if (team_is_new(team, thread, word)) {
            return;
        }
        poise_event_wait(&team->published, seen, UINT64_MAX);
    }
}

static void *team_helper_main(void *arg)
{
    struct team_helper *helper = arg;
    struct graph_team *team = helper->team;
    uint64_t word = 0;
    for (;;) {
        team_wait_new(team, helper->number, word);
        if (__atomic_load_n(&team->stop, __ATOMIC_ACQUIRE)) {
            return NULL;
        }
        word = team_work(team, helper->number, helper->team_size);
    }
}

static void team_wait_done(struct graph_team *team, uint32_t chunks)
{
    uint64_t from = poise_clock_ticks();
    do {
        for (int i = 0; i < TEAM_LOOKS; i++) {
            if (__atomic_load_n(&team->done, __ATOMIC_ACQUIRE) == chunks) {
                return;
            }
            poise_pause();
        }
    } while (poise_clock_ticks() - from < team->spin_ticks);
    for (;;) {
        uint32_t seen = poise_event_seen(&team->finished);
        if (__atomic_load_n(&team->done, __ATOMIC_ACQUIRE) == chunks) {
            return;
        }
        poise_event_wait(&team->finished, seen, UINT64_MAX);
    }
}

void graph_team_run(struct graph_team *team, graph_work *work, void *arg,
                    uint32_t chunks)
{
    if (chunks <= 1 || team->size == 1) {
        for (uint32_t i = 0; i < chunks; i++) {
            work(arg, 0, i);
        }
        return;
    }
    team->work = work;
    team->arg = arg;
    team->chunks = chunks;
    __atomic_store_n(&team->done, 0, __ATOMIC_RELAXED);
    for (unsigned t = 0; t < team->size; t++) {
        struct team_share *share = &team->shares[t];
        struct graph_range range = graph_range_of(chunks, t, team->size, 1);
        uint64_t word = __atomic_load_n(&share->word, __ATOMIC_RELAXED);
        share->first = (uint32_t)range.from;
        word = WORD_OF(WORD_NUMBER(word) + 1, range.to - range.from);
        __atomic_store_n(&share->word, word, __ATOMIC_RELEASE);
    }
    poise_event_signal(&team->published);
    team_work(team, 0, team->size);
    team_wait_done(team, chunks);
}

unsigned graph_team_size(const struct graph_team *team)
{
    return team->size;
}

static struct graph_team *team_alloc(unsigned threads)
{
    struct graph_team *team = graph_pages_map(sizeof *team, false);
    struct team_share *shares =
        graph_pages_map(threads * sizeof *shares, false);
    struct team_helper *helpers = poise_alloc(threads, sizeof *helpers);
    if (!team || !shares || !helpers) {
        graph_pages_unmap(team, sizeof *team);
        graph_pages_unmap(shares, threads * sizeof *shares);
        free(helpers);
        return NULL;
    }
    team->shares = shares;
    team->helpers = helpers;
    team->planned = threads;
    team->size = 1;
    return team;
}

int graph_team_create(unsigned threads, struct graph_team **out)
{
    struct graph_team *team = team_alloc(threads);
    if (!team) {
        return -ENOMEM;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    if (online > 0 && threads <= (unsigned long)online) {
        team->spin_ticks = poise_clock_ns_to_ticks(TEAM_SPIN_NS);
    }
    for (unsigned i = 1; i < threads; i++) {
        struct team_helper *helper = &team->helpers[i - 1];
        *helper = (struct team_helper){
            .team = team, .number = i, .team_size = threads};
        int code = poise_fault_check(POISE_FAULT_ALLOC);
        if (code == 0) {
            code =
                pthread_create(&helper->thread, NULL, team_helper_main, helper);
        }
        if (code != 0) {
            graph_team_destroy(team);
            return poise_error_set(code, "start a thread", NULL, NULL);
        }
        team->size = i + 1;
    }
    *out = team;
    return 0;
}

void graph_team_destroy(struct graph_team *team)
{
    if (!team) {
        return;
    }
    __atomic_store_n(&team->stop, 1, __ATOMIC_RELEASE);
    poise_event_signal(&team->published);
    for (unsigned i = 0; i + 1 < team->size; i++) {
        pthread_join(team->helpers[i].thread, NULL);
    }
    free(team->helpers);
    graph_pages_unmap(team->shares, team->planned * sizeof *team->shares);
    graph_pages_unmap(team, sizeof *team);
}

unsigned graph_team_threads(struct poise_world *world, unsigned requested)
{
    if (world && !poise_world_threads_allowed(world)) {
        return 1;
    }
    if (requested > 0) {
        return requested;
    }
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned cores = online > 0 ? (unsigned)online : 1;
    const int *ranks;
    int here = world ? poise_world_group(world, POISE_LEVEL_NODE, &ranks) : 1;
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        unsigned bound = (unsigned)CPU_COUNT(&set);
        /* A launcher that binds its ranks has divided the cores already. */
        if (bound < cores) {
            return bound > 0 ? bound : 1;
        }
    }
    cores /= here > 0 ? (unsigned)here : 1;
    return cores > 0 ? cores : 1;
}

struct graph_range graph_range_of(uint64_t count, uint32_t chunk,
                                  uint32_t chunks, uint64_t align)
{
    uint64_t units = (count + align - 1) / align;
    uint64_t share = units / chunks, rest = units % chunks;
    uint64_t from = chunk * share + (chunk < rest ? chunk : rest);
    uint64_t to = from + share + (chunk < rest ? 1 : 0);
    from *= align;
    to *= align;
    return (struct graph_range){from < count ? from : count,
                                to < count ? to : count};
}
