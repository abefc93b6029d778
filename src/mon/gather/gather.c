/*
 * The upper end: children are asked, one after the other or each by a helper
 * thread of its own, and what they answer goes into copies. Helpers wait for
 * rounds at a barrier of theirs; each has its child for itself.
 */
#include "internal.h"

#include <poise/trace_mirror.h>

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_NS UINT64_C(10000000000)

struct copy {
    uint32_t rank;
    struct poise_trace_mirror *mirror;
};

struct child {
    struct poise_gather *gather;
    struct poise_gather_child shown;
    char *name;
    int in, out;
    struct copy *copies;
    size_t copy_count;
    bool more;
    pthread_t thread;
    bool has_thread;
    uint64_t round; /* that it has done */
};

struct poise_gather {
    char *path;
    struct poise_gather_options options;
    struct child **children;
    unsigned child_count;
    pthread_mutex_t lock; /* rounds, and what helpers are to do */
    pthread_cond_t begun, done;
    uint64_t round;
    bool final, ending;
};

int poise_gather_create(const char *path,
                        const struct poise_gather_options *options,
                        struct poise_gather **out)
{
    struct poise_gather *gather = poise_alloc(1, sizeof *gather);
    char *copy = gather ? strdup(path) : NULL;
    if (!copy) {
        free(gather);
        return poise_error_set(ENOMEM, "gather", path, NULL);
    }
    gather->path = copy;
    if (options) {
        gather->options = *options;
    }
    if (gather->options.timeout_ns == 0) {
        gather->options.timeout_ns = TIMEOUT_NS;
    }
    pthread_mutex_init(&gather->lock, NULL);
    pthread_cond_init(&gather->begun, NULL);
    pthread_cond_init(&gather->done, NULL);
    *out = gather;
    return 0;
}

static void close_child(struct child *child)
{
    if (child->in >= 0) {
        close(child->in);
    }
    if (child->out >= 0 && child->out != child->in) {
        close(child->out);
    }
    child->in = child->out = -1;
}

static void free_child(struct child *child)
{
    for (size_t i = 0; i < child->copy_count; i++) {
        poise_trace_mirror_close(child->copies[i].mirror);
    }
    close_child(child);
    free(child->copies);
    free(child->name);
    free(child);
}

void poise_gather_destroy(struct poise_gather *gather)
{
    if (!gather) {
        return;
    }
    pthread_mutex_lock(&gather->lock);
    gather->ending = true;
    pthread_cond_broadcast(&gather->begun);
    pthread_mutex_unlock(&gather->lock);
    for (unsigned i = 0; i < gather->child_count; i++) {
        if (gather->children[i]->has_thread) {
            pthread_join(gather->children[i]->thread, NULL);
        }
        free_child(gather->children[i]);
    }
    pthread_mutex_destroy(&gather->lock);
    pthread_cond_destroy(&gather->begun);
    pthread_cond_destroy(&gather->done);
    free(gather->children);
    free(gather->path);
    free(gather);
}

/* ---- one child ---------------------------------------------------------- */

static int copy_of(struct child *child, uint32_t rank,
                   struct poise_trace_mirror **out)
{
    struct poise_buf path = {0};
    for (size_t i = 0; i < child->copy_count; i++) {
        if (child->copies[i].rank == rank) {
            *out = child->copies[i].mirror;
            return 0;
        }
    }
    struct copy *copies =
        poise_realloc(child->copies, child->copy_count + 1, sizeof *copies);
    if (!copies) {
        return -ENOMEM;
    }
    child->copies = copies;
    poise_buf_printf(&path, rank ? "%s.%u" : "%s", child->gather->path, rank);
    int code =
        path.error
            ? path.error
            : poise_trace_mirror_open(poise_buf_str(&path),
                                      child->gather->options.most_bytes, out);
    poise_buf_free(&path);
    if (code == 0) {
        copies[child->copy_count++] = (struct copy){rank, *out};
        child->shown.files++;
    }
    return code;
}

static int take_piece(struct child *child, const struct gather_piece *piece)
{
    struct poise_trace_mirror *mirror = NULL;
    if (piece->rank >= INT32_MAX || piece->bytes > GATHER_MOST) {
        return poise_error_set(EPROTO, "gather from", child->name,
                               "its answer is none");
    }
    void *bytes = malloc(piece->bytes + 1);
    int code =
        bytes ? 0 : poise_error_set(ENOMEM, "gather from", child->name, NULL);
    if (code == 0) {
        code = gather_read(child->in, bytes, piece->bytes,
                           child->gather->options.timeout_ns);
        code = code > 0    ? 0
               : code == 0 ? poise_error_set(EPROTO, "gather from", child->name,
                                             "it is cut short")
                           : code;
    }
    code = code == 0 ? copy_of(child, piece->rank, &mirror) : code;
    code =
        code == 0 ? poise_trace_mirror_put(mirror, bytes, piece->bytes) : code;
    child->shown.bytes += piece->bytes;
    free(bytes);
    return code;
}

/* 1; 0: it closed. */
static int ask(struct child *child, bool final)
{
    struct gather_question question = {GATHER_MAGIC, final, GATHER_ASK};
    struct gather_piece piece = {0};
    uint64_t timeout = child->gather->options.timeout_ns;
    int code = gather_write(child->out, &question, sizeof question, timeout);
    while (code > 0) {
        code = gather_read(child->in, &piece, sizeof piece, timeout);
        if (code <= 0 || piece.rank == GATHER_END) {
            break;
        }
        code = take_piece(child, &piece);
        code = code == 0 ? 1 : code;
    }
    child->more = code > 0 && piece.bytes > 0;
    return code;
}

static void count(struct child *child)
{
    child->shown.records = child->shown.lost = 0;
    child->shown.ended = 0;
    for (size_t i = 0; i < child->copy_count; i++) {
        uint64_t records, lost;
        poise_trace_mirror_counts(child->copies[i].mirror, &records, &lost);
        child->shown.records += records;
        child->shown.lost += lost;
        child->shown.ended += poise_trace_mirror_ended(child->copies[i].mirror);
    }
}

static void ask_once(struct child *child, bool final)
{
    child->more = false;
    if (child->shown.gone) {
        return;
    }
    int code = ask(child, final);
    if (code <= 0) {
        /* One that closed while it was being told has gone in order. */
        child->shown.code = code == -EPIPE || code == -ECONNRESET ? 0 : code;
        child->shown.gone = true;
        close_child(child);
    }
    count(child);
}

/* ---- helpers ------------------------------------------------------------ */

static void *help(void *arg)
{
    struct child *child = arg;
    struct poise_gather *gather = child->gather;
    pthread_mutex_lock(&gather->lock);
    for (;;) {
        while (!gather->ending && child->round == gather->round) {
            pthread_cond_wait(&gather->begun, &gather->lock);
        }
        if (gather->ending) {
            break;
        }
        bool final = gather->final;
        pthread_mutex_unlock(&gather->lock);
        ask_once(child, final);
        pthread_mutex_lock(&gather->lock);
        child->round++;
        pthread_cond_signal(&gather->done);
    }
    pthread_mutex_unlock(&gather->lock);
    return NULL;
}

int poise_gather_add(struct poise_gather *gather, int in, int out,
                     const char *name)
{
    struct child *child = poise_alloc(1, sizeof *child);
    struct child **children =
        child ? poise_realloc(gather->children, gather->child_count + 1,
                              sizeof(struct child *))
              : NULL;
    if (children) {
        gather->children = children;
    }
    if (child) {
        *child = (struct child){.gather = gather,
                                .in = in,
                                .out = out,
                                .round = gather->round,
                                .name = strdup(name)};
    }
    if (!children || !child->name) {
        if (child) {
            free_child(child);
        }
        return poise_error_set(ENOMEM, "gather from", name, NULL);
    }
    child->shown.name = child->name;
    gather_behind(in);
    gather_behind(out);
    int error = gather->options.parallel
                    ? pthread_create(&child->thread, NULL, help, child)
                    : 0;
    if (error) {
        free_child(child);
        return poise_error_set(error, "gather from", name,
                               "no thread can be started");
    }
    child->has_thread = gather->options.parallel;
    children[gather->child_count++] = child;
    return 0;
}

static void ask_all(struct poise_gather *gather, bool final)
{
    pthread_mutex_lock(&gather->lock);
    gather->final = final;
    gather->round++;
    pthread_cond_broadcast(&gather->begun);
    for (unsigned i = 0; i < gather->child_count; i++) {
        while (gather->children[i]->round < gather->round) {
            pthread_cond_wait(&gather->done, &gather->lock);
        }
    }
    pthread_mutex_unlock(&gather->lock);
}

int poise_gather_poll(struct poise_gather *gather, bool final)
{
    bool more = false;
    if (gather->options.parallel) {
        ask_all(gather, final);
    }
    for (unsigned i = 0; i < gather->child_count; i++) {
        if (!gather->options.parallel) {
            ask_once(gather->children[i], final);
        }
        more = more || gather->children[i]->more;
    }
    return more;
}

unsigned poise_gather_children(const struct poise_gather *gather)
{
    return gather->child_count;
}

int poise_gather_child(const struct poise_gather *gather, unsigned child,
                       struct poise_gather_child *out)
{
    if (child >= gather->child_count) {
        return poise_error_set(EINVAL, "gather", gather->path,
                               "there is no child %u", child);
    }
    *out = gather->children[child]->shown;
    return 0;
}
