/*
 * How memory and disk are divided among contexts.
 */
#include "context.h"

#include <errno.h>

#define PLAN_PAGE ((uint64_t)4096)
#define PLAN_HUGE ((uint64_t)2 << 20)
/** A context that is smaller is no use. */
#define PLAN_LEAST ((uint64_t)256 << 10)
/** What part of the memory is for messages on their way. */
#define PLAN_MESSAGES 8
/** What part of it at most is for code: where that has to be read again and
 * again nothing gets on. */
#define PLAN_FILES 8
/** What part of the memory of contexts a rank leaves to others, where it is the
 * only one that runs. */
#define PLAN_OTHERS 8
/** How much larger than the memory for it a rank may be, unless the user says
 * more: what is in memory of it is then worth least. */
#define PLAN_LARGER 16
/** Addresses of all together, and the size of a scratch file, which has holes:
 * of ext4's 16 TiB half. */
#define PLAN_ADDRESSES ((uint64_t)1 << 43)
/** A heap may need so much more space than it holds, as one in PLAN_SLACK. */
#define PLAN_SLACK 4

static const char plan_doing[] = "swap the contexts of virtual ranks";

static unsigned long long mib(uint64_t bytes)
{
    return (unsigned long long)(bytes >> 20);
}

static uint64_t round_down(uint64_t bytes)
{
    return bytes & ~((bytes >= 4 * PLAN_HUGE ? PLAN_HUGE : PLAN_LEAST) - 1);
}

static uint64_t slot_for(uint64_t context)
{
    uint64_t slot = context + context / PLAN_SLACK + PLAN_PAGE;
    return (slot + PLAN_HUGE - 1) & ~(PLAN_HUGE - 1);
}

/* Never promise what the disks have not: *most, of each of so many ranks, is
 * less then, unless the user wants just so much. */
static int plan_disks(const struct context_options *options,
                      uint64_t free_bytes, uint64_t ranks, uint64_t *most)
{
    if (options->most_bytes == 0 && slot_for(*most) > free_bytes / ranks) {
        uint64_t share = free_bytes / ranks;
        *most = share > PLAN_HUGE ? round_down((share - PLAN_HUGE) /
                                               (PLAN_SLACK + 1) * PLAN_SLACK)
                                  : 0;
    }
    if (*most < PLAN_LEAST || slot_for(*most) > free_bytes / ranks) {
        uint64_t each = slot_for(*most < PLAN_LEAST ? PLAN_LEAST : *most);
        return poise_error_set(
            ENOSPC, plan_doing, NULL,
            "%llu contexts need %llu MiB each on the scratch disks, %llu MiB "
            "in all, and %llu MiB are free",
            (unsigned long long)ranks, mib(each), mib(each * ranks),
            mib(free_bytes));
    }
    return 0;
}

/* What a rank may have if the disk has it when it asks: addresses cost nothing.
 */
static uint64_t plan_larger(uint64_t kept, uint64_t budget, uint64_t addresses)
{
    uint64_t larger = PLAN_LARGER * round_down(budget);

    if (slot_for(larger) > addresses) {
        larger = round_down(addresses / (PLAN_SLACK + 1) * PLAN_SLACK);
    }
    return larger > kept ? larger : kept;
}

uint64_t context_plan_files(const struct context_options *options)
{
    uint64_t most = options->memory_bytes / PLAN_FILES;

    return options->file_bytes < most ? options->file_bytes : most;
}

int context_plan(const struct context_options *options, uint64_t free_bytes,
                 struct context_plan *out)
{
    uint64_t slices = 2 * (uint64_t)options->threads;
    bool alone = options->threads == 1;
    uint64_t messages = options->memory_bytes / PLAN_MESSAGES;
    uint64_t taken =
        options->base_bytes + context_plan_files(options) + messages;
    uint64_t budget =
        options->memory_bytes > taken ? options->memory_bytes - taken : 0;
    /* Of several workers each has room for two at any time, and waits for no
     * other's; of one, those that it needs at a time share. */
    uint64_t most =
        round_down(alone ? budget - budget / PLAN_OTHERS : budget / slices);
    uint64_t ranks = (uint64_t)options->count *
                     (uint64_t)(options->sharers > 0 ? options->sharers : 1);

    if (budget / slices < PLAN_LEAST) {
        return poise_error_set(
            ENOMEM, plan_doing, NULL,
            "%llu MiB of memory are too little, at least %llu are needed: %llu "
            "MiB are in use without contexts, %llu MiB are for messages, and "
            "two contexts for each of %d thread%s take %llu MiB",
            mib(options->memory_bytes),
            mib((taken - messages + slices * PLAN_LEAST) / (PLAN_MESSAGES - 1) *
                    PLAN_MESSAGES +
                (2 << 20)),
            mib(taken - messages), mib(messages), options->threads, &"s"[alone],
            mib(slices * PLAN_LEAST + (1 << 20) - 1));
    }
    /* So much each disk keeps for each rank. */
    uint64_t kept = options->most_bytes > 0 ? options->most_bytes : most;
    kept = kept < PLAN_LEAST ? PLAN_LEAST : round_down(kept);
    int code = plan_disks(options, free_bytes, ranks, &kept);
    if (code < 0) {
        return code;
    }
    uint64_t heap = options->most_bytes > 0
                        ? kept
                        : plan_larger(kept, budget, PLAN_ADDRESSES / ranks);
    *out = (struct context_plan){.budget_bytes = budget,
                                 .message_bytes = messages / 2,
                                 .context_bytes = most < kept ? most : kept,
                                 .heap_bytes = heap,
                                 .slot_bytes = slot_for(heap)};
    return 0;
}
