/*
 * Contexts on disk: the memory of virtual ranks of which only some are in
 * memory at a time.
 *
 *   heap.c      the heap of a rank, in a range of addresses of its own
 *   context.c   a run's contexts, and what their ranks do with them
 *   swap.c      how much of which contexts is in memory, and what changes that
 *   extent.c    the parts that come and go by themselves: their states
 *   frame.c     memory that goes from one of these to another
 *   phase.c     what a rank will touch next
 *   quick.c     switches that move nothing
 *   site.c      where it calls MPI, by which phase.c knows
 *   prefetch.c  what comes before it is needed
 *   access.c    access to contexts from outside
 *   transfer.c  many such accesses at a time
 *   dirty.c     which pages are there, and which have to be written
 *   budget.c    how much may be in memory, by what is free
 *   disk.c      the scratch files
 *   plan.c      how much each may have
 *
 * A context is what its rank has allocated; stack, globals, and what other
 * libraries allocate stay in memory. A rank runs without its context: of that,
 * what it touched last time between the same two calls that wait comes in bulk
 * before it goes on; what it touches beside comes page by page from the scratch
 * file, which is mapped in its place, in system calls, too. A call that waits
 * and touches nothing moves nothing.
 *
 * Code that copies data for another rank does so by context_copy, which goes to
 * memory or to disk, or pins what it wants to touch. So nothing outside of this
 * room has to know what is in memory, and no pointer into a context is given to
 * the kernel, but by its own rank.
 *
 * With several workers the memory holds at least two contexts for each: that of
 * the rank that runs and one that it pins. With one a rank may have nearly all.
 * Of a rank that allocates more the rest is the kernel's to page.
 *
 * Source: pems 4.2-4.5.
 */
#ifndef POISE_VRANK_CONTEXT_H
#define POISE_VRANK_CONTEXT_H

#include "heap.h"
#include "vrank/thread/thread.h"

#include <string.h>

struct context;

/** What a run has for its contexts. */
struct context_options {
    uint64_t memory_bytes; /**< of the whole process */
    uint64_t base_bytes;   /**< of that, what is in use without contexts */
    uint64_t file_bytes;   /**< beside that, of files that it runs from */
    const char *scratch;   /**< folders, separated by commas */
    uint64_t most_bytes;   /**< that a rank may allocate; 0: what fits */
    int count;             /**< ranks of this process */
    int threads;
    int sharers; /**< processes that use the same folders; 0: 1 */
    bool always; /**< swap at each call that waits: for tests */
    bool whole;  /**< bring all of a context whenever its rank goes on: the
                      paper's way */
    enum poise_vrank_tracking tracking;
    struct poise_disk_options disk; /**< of the scratch files */
};

/** How the memory is divided. */
struct context_plan {
    uint64_t budget_bytes; /**< of all contexts in memory */
    uint64_t
        message_bytes; /**< for pending writes, and messages on their way */
    uint64_t context_bytes; /**< of one, that may be in memory */
    uint64_t heap_bytes;    /**< that a rank may allocate: what is more than
                                 context_bytes the kernel pages */
    uint64_t slot_bytes;    /**< addresses of one, and space on disk */
};
/** Divide. -ENOMEM, -ENOSPC with the arithmetic. */
int context_plan(const struct context_options *options, uint64_t free_bytes,
                 struct context_plan *out);

/** Of the memory, what stays free for pages of files that it runs from. */
uint64_t context_plan_files(const struct context_options *options);

/** Before the ranks are made, and after they have gone. */
int context_begin(const struct context_options *options);
void context_end(void);

/** What has moved. */
struct context_sums {
    uint64_t swapped_in, swapped_out;   /**< bytes */
    uint64_t read_parts, written_parts; /**< bytes of messages, on disk */
    uint64_t swaps;                     /**< contexts that came in */
    uint64_t most_bytes; /**< of contexts in memory, and what may be touched of
                              those whose ranks run, at a time */
    uint64_t faulted;    /**< of swapped_in, bytes that came page by page, when
                              they were touched */
    uint64_t looks;      /**< how often what one had touched was looked for */
    uint64_t wait_ns;    /**< workers waited for all this */
    enum poise_vrank_tracking tracking; /**< what is in use; not AUTO */
};
void context_sums(struct context_sums *out);
/** The same of one, which is in memory; zero where it is NULL. */
void context_moved(const struct context *context,
                   uint64_t out[static POISE_VRANK_MOVES]);

/** The context of rank number `index` of this process, of the rank that runs;
 * it is in memory from now on. */
void context_adopt(struct vrank *rank, int index);
/** Where the private image of a rank's program lies: by how far they are from
 * there the same places are known in all ranks. */
void context_origin(const struct vrank *rank, uintptr_t address);
/** What the scheduler calls where ranks have contexts. */
extern const struct vrank_swap_ops context_swap_ops;
/** It is never swapped out again: threads of the program use it. By its own
 * rank. */
void context_keep_resident(struct context *context);
/** The heap of the rank that runs, to be given back with context_unlock; NULL:
 * it has none. */
struct heap *context_lock(void);
void context_unlock(struct heap *heap);
/** A heap had not so many bytes: say so, the first time. */
void context_refused(const struct heap *heap, size_t bytes);
/** The heap in which `ptr` lies, whose context must be in memory: that of the
 * rank that runs, or one with threads. NULL: it lies in no heap that may be
 * changed now. */
struct heap *context_lock_of(const void *ptr);

/** Where in the program the function of MPI was called that runs; 0: not known,
 * or the context knows it. */
extern _Thread_local uintptr_t context_site
    __attribute__((tls_model("initial-exec")));
/** What stands for a function of MPI in a program with contexts: it notes where
 * it was called, and goes on. The function itself where there is no room. */
void *context_site_wrap(void *function);

/** The addresses of all contexts; no bytes while there are none. */
extern uintptr_t context_base;
extern size_t context_span;
static inline bool context_covers(const void *ptr)
{
    return (uintptr_t)ptr - context_base < context_span;
}

/** As memcpy, but either side may lie in a context, be it resident or not. */
void context_copy(void *to, const void *from, size_t bytes);
/** The same, but it need not be over before context_copy_wait; until then the
 * memory of both sides must not be freed or touched. */
void context_copy_async(void *to, const void *from, size_t bytes);
/** Wait for all that this worker copies. */
void context_copy_wait(void);
static inline void context_move(void *to, const void *from, size_t bytes)
{
    if (__builtin_expect(context_covers(to) || context_covers(from), 0)) {
        context_copy(to, from, bytes);
    } else {
        memcpy(to, from, bytes);
    }
}
/** Reserve room for a message on its way, where contexts are swapped; it is
 * released later. False: there is none, or there are no contexts. */
bool context_buffer_reserve(size_t bytes);
void context_buffer_release(size_t bytes);
/** Contexts go, as far as they can, for memory that is large and not theirs:
 * before it is allocated, and when it is freed. Nothing where there are no
 * contexts. */
void context_memory_take(size_t bytes);
void context_memory_give(size_t bytes);
/** Any of the context in which `ptr` lies may be touched until it is unpinned.
 * NULL, which can be unpinned: it lies in none, or in that of the rank that
 * runs. */
struct context *context_pin(const void *ptr);
void context_unpin(struct context *context);

/* ---- disk.c -------------------------------------------------------------- */

struct context_disk;

/** Scratch files in all `folders` for `count` slots of `slot_bytes`. */
int context_disk_create(const char *folders, int count, uint64_t slot_bytes,
                        const struct poise_disk_options *options,
                        struct context_disk **out);
void context_disk_destroy(struct context_disk *disk);
/** Bytes free in all `folders`; those of one file system count once. */
int context_disk_free_bytes(const char *folders, uint64_t *out);

/** A slot is dealt out over the files in pieces of this many bytes. */
#define CONTEXT_STRIPE ((size_t)1 << 20)
/** Read or write part of a slot, within a stripe; everything is a multiple of a
 * page. The transfer is then waited for by poise_disk_wait. */
void context_disk_start(struct context_disk *disk,
                        struct poise_disk_transfer *transfer, int slot,
                        uint64_t offset, void *data, size_t bytes,
                        bool is_write);

/** Map part of a slot, whole pages, at `place`: MAP_PRIVATE, or MAP_SHARED. */
int context_disk_map(const struct context_disk *disk, int slot, uint64_t offset,
                     char *place, size_t bytes, int kind);
/** Take space for part of a slot, whole pages: whether there is so much. */
bool context_disk_reserve(const struct context_disk *disk, int slot,
                          uint64_t offset, size_t bytes);
/** What the page cache holds of part of a slot is not needed. */
void context_disk_forget(const struct context_disk *disk, int slot,
                         uint64_t offset, size_t bytes);

/** Transfers that are under way together. Zero is none. */
enum { CONTEXT_BATCH = 32 };
struct context_batch {
    struct poise_disk_transfer transfers[CONTEXT_BATCH];
    unsigned first, count;
    int code;
};
/** Read or write part of a slot, in whole pages. */
void context_disk_add(struct context_disk *disk, struct context_batch *batch,
                      int slot, uint64_t offset, void *data, size_t bytes,
                      bool is_write);
/** Wait for all: 0, or the first error. */
int context_disk_finish(struct context_batch *batch);

#endif
