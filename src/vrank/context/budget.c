/*
 * How much of the memory contexts may have, by what the rest of the process
 * really takes.
 *
 * Before the run all else is guessed, so that it fits whatever ranks do: data
 * and stacks of each, an eighth for messages (plan.c). Most of that is not
 * used. So from time to time, when a rank waits, the kernel is asked what the
 * process holds, page tables included: what neither contexts nor that use is
 * lent to contexts. Messages count when they are there, and contexts go for
 * them.
 *
 * What it maps of files the kernel can take back, and does where a control
 * group is full; but code that has to come from disk again and again stops the
 * whole process. So what was mapped before the run stays free for that
 * (context_plan_files), and is not asked for. If all else needs more than was
 * guessed, contexts have less, as far as others than the running one can go.
 *
 * Pages that extents count for and that nobody has touched yet are not lent:
 * what the process holds beside contexts is never less than it was before
 * there were any.
 */
#include "internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How often to ask; it takes some 20 us. */
#define BUDGET_NS 5000000
/* What is never lent: one in so many bytes, and what the kernel needs of a
 * control group's memory and does not tell, for the process (its kernel stacks,
 * portions of the group's count that processors hold), and for each rank (its
 * mappings). */
#define BUDGET_KEPT 32
#define BUDGET_KERNEL ((uint64_t)2 << 20)
#define BUDGET_RANK ((uint64_t)2 << 10)

/* A sanitizer holds memory of its own for what the program touches, several
 * times as much: nothing can be told of the program's own then. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BUDGET_SHADOWED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BUDGET_SHADOWED 1
#endif
#endif
#ifndef BUDGET_SHADOWED
#define BUDGET_SHADOWED 0
#endif

/* Bytes of a line of /proc/self/status, which has KiB; 0: there is none. */
static uint64_t status_bytes(const char *text, const char *name)
{
    const char *line = strstr(text, name);

    return line != NULL ? strtoull(line + strlen(name), NULL, 10) << 10 : 0;
}

/* What the process holds; 0: not known. */
static uint64_t budget_held(const struct contexts *all)
{
    char text[4096];
    ssize_t bytes = pread(all->status, text, sizeof text - 1, 0);

    if (bytes <= 0 || BUDGET_SHADOWED) {
        return 0;
    }
    text[bytes] = '\0';
    uint64_t anonymous = status_bytes(text, "RssAnon:");
    return anonymous > 0 ? anonymous + status_bytes(text, "RssShmem:") +
                               status_bytes(text, "VmPTE:") + all->file_bytes
                         : 0;
}

void budget_begin(struct contexts *all)
{
    all->status = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    all->base_bytes = budget_held(all);
    all->look_ticks = poise_clock_ns_to_ticks(BUDGET_NS);
}

void budget_end(struct contexts *all)
{
    if (all->status >= 0) {
        close(all->status);
    }
}

void budget_look(struct contexts *all)
{
    uint64_t now = poise_clock_ticks(), held, counted, rest, least, planned;

    if (now < all->look_due || all->base_bytes == 0) {
        return;
    }
    all->look_due = now + all->look_ticks;
    held = budget_held(all);
    counted = all->used_bytes - all->leased_bytes +
              (uint64_t)all->frames.warm_count * all->frames.bytes;
    rest = held > counted ? held - counted : 0;
    least = all->memory_bytes / BUDGET_KEPT + BUDGET_KERNEL +
            (uint64_t)all->count * BUDGET_RANK;
    rest = least + (rest > all->base_bytes ? rest : all->base_bytes);
    least += all->base_bytes;
    planned = all->memory_bytes - all->plan.budget_bytes;
    all->lent_bytes = held > 0 && planned > rest ? planned - rest : 0;
    planned = planned > least ? planned : least;
    all->owed_bytes = held > 0 && rest > planned ? rest - planned : 0;
}

uint64_t budget_most(const struct contexts *all, bool helpless, uint64_t slack)
{
    uint64_t kept = all->pending_bytes + slack;
    uint64_t most = all->plan.budget_bytes +
                    (all->lent_bytes > kept ? all->lent_bytes : kept);
    uint64_t owed = helpless ? 0 : all->owed_bytes;

    return most > owed ? most - owed : 0;
}
