/*
 * What records mean: Poise's own types in words, types of users, and
 * collectors. All of it lies in tables of the file, so that a reader needs
 * nothing else.
 */
#include <errno.h>
#include <string.h>

#include "internal.h"

#define TIME(name)                                                             \
    {                                                                          \
        POISE_TRACE_TIME, name                                                 \
    }
#define BYTES                                                                  \
    {                                                                          \
        POISE_TRACE_BYTES, "bytes"                                             \
    }
#define CODE                                                                   \
    {                                                                          \
        POISE_TRACE_CODE, "code"                                               \
    }
#define TYPE(kind, name_, sequence_, ...)                                      \
    [kind] = {.name = name_, .sequence = sequence_, .values = {__VA_ARGS__}}

const struct poise_trace_type trace_types[POISE_TRACE_KINDS] = {
    TYPE(POISE_TRACE_THREAD, "thread", "thread", TIME("at"),
         {POISE_TRACE_TEXT, "name"}, {POISE_TRACE_TEXT, "name"}),
    TYPE(POISE_TRACE_PHASE_BEGIN, "phase-begin", "number", TIME("at"),
         {POISE_TRACE_TEXT, "phase"}, {POISE_TRACE_COUNT, "value"}),
    TYPE(POISE_TRACE_PHASE_END, "phase-end", "number", TIME("at"),
         {POISE_TRACE_TEXT, "phase"}, {POISE_TRACE_COUNT, "value"}, CODE),
    TYPE(POISE_TRACE_TASK_BEGIN, "task-begin", "task", TIME("at"), BYTES),
    TYPE(POISE_TRACE_TASK_END, "task-end", "task", TIME("at")),
    TYPE(POISE_TRACE_STEAL_ASK, "steal-ask", "", TIME("at"),
         {POISE_TRACE_RANK, "victim"}),
    TYPE(POISE_TRACE_STEAL_GOT, "steal-got", "", TIME("at"),
         {POISE_TRACE_RANK, "victim"}, {POISE_TRACE_COUNT, "tasks"}),
    TYPE(POISE_TRACE_STEAL_REFUSED, "steal-refused", "", TIME("at"),
         {POISE_TRACE_RANK, "victim"}),
    TYPE(POISE_TRACE_STEAL_GAVE, "steal-gave", "", TIME("at"),
         {POISE_TRACE_RANK, "thief"}, {POISE_TRACE_COUNT, "tasks"}),
    TYPE(POISE_TRACE_IDLE_BEGIN, "idle-begin", "", TIME("at")),
    TYPE(POISE_TRACE_IDLE_END, "idle-end", "", TIME("at")),
    TYPE(POISE_TRACE_TOKEN, "token", "", TIME("at"), {POISE_TRACE_RANK, "next"},
         {POISE_TRACE_COUNT, "colour"}),
    TYPE(POISE_TRACE_CHECKPOINT, "checkpoint", "number", TIME("at"), BYTES),
    TYPE(POISE_TRACE_SEND, "send", "message", TIME("at"),
         {POISE_TRACE_RANK, "to"}, BYTES, {POISE_TRACE_ID, "tag"}),
    TYPE(POISE_TRACE_RECEIVE, "receive", "message", TIME("at"),
         {POISE_TRACE_RANK, "from"}, BYTES, {POISE_TRACE_ID, "tag"}),
    TYPE(POISE_TRACE_COLL_ENTER, "coll-enter", "call", TIME("at"), BYTES,
         {POISE_TRACE_ID, "operation"}),
    TYPE(POISE_TRACE_COLL_LAST, "coll-last", "call", TIME("at"),
         {POISE_TRACE_RANK, "top"}),
    TYPE(POISE_TRACE_COLL_LEAVE, "coll-leave", "call", TIME("at"), CODE),
    TYPE(POISE_TRACE_HOP, "hop", "call", TIME("enter"), TIME("arrived"),
         TIME("released"), TIME("left")),
    TYPE(POISE_TRACE_CALL, "call", "call", TIME("enter"), TIME("left"), BYTES,
         CODE),
    TYPE(POISE_TRACE_MESSAGE, "message", "number", TIME("enter"), TIME("left"),
         {POISE_TRACE_RANK, "peer"}, BYTES),
    TYPE(POISE_TRACE_RUN, "run", "rank", TIME("from"), TIME("to"),
         {POISE_TRACE_ID, "then"}),
    TYPE(POISE_TRACE_SWAP, "swap", "rank", TIME("from"), TIME("to"), BYTES,
         {POISE_TRACE_ID, "in"}),
    TYPE(POISE_TRACE_LEVEL, "level", "level", TIME("from"), TIME("to"),
         {POISE_TRACE_COUNT, "vertices"}, {POISE_TRACE_COUNT, "edges"}),
    TYPE(POISE_TRACE_BLOCK, "block", "version", TIME("from"), TIME("to"),
         {POISE_TRACE_ID, "block"}, CODE),
    TYPE(POISE_TRACE_PASS, "pass", "pass", TIME("from"), TIME("to"),
         {POISE_TRACE_COUNT, "items"}, BYTES),
    TYPE(POISE_TRACE_FILE, "file", "number", TIME("from"), TIME("to"), BYTES,
         CODE),
};

/* ---- types of users ----------------------------------------------------- */

static void cut(char *out, const char *text, size_t bytes)
{
    memcpy(out, text, strnlen(text, bytes - 1));
}

/* The type as it stands in a file: cut, zero behind the ends of names. */
static void normalise(const struct poise_trace_type *type,
                      struct poise_trace_type *out)
{
    *out = (struct poise_trace_type){0};
    cut(out->name, type->name, sizeof out->name);
    cut(out->sequence, type->sequence, sizeof out->sequence);
    for (int i = 0; i < POISE_TRACE_VALUES; i++) {
        out->values[i].unit = type->values[i].unit;
        cut(out->values[i].name, type->values[i].name,
            sizeof out->values[i].name);
    }
}

static bool is_type(const struct poise_trace_type *type)
{
    bool valid = type->values[0].unit == POISE_TRACE_TIME;
    for (int i = 0; i < POISE_TRACE_VALUES; i++) {
        valid = valid && type->values[i].unit < POISE_TRACE_UNITS;
    }
    return valid;
}

int64_t poise_trace_define(struct poise_trace *trace,
                           const struct poise_trace_type *type)
{
    struct poise_trace_type *types =
        trace_table(trace->head, trace->head->types_at);
    struct poise_trace_type mine;
    if (!is_type(type)) {
        return poise_error_set(EINVAL, "define a type of records", type->name,
                               "its first value is no time, or a unit is "
                               "unknown");
    }
    normalise(type, &mine);
    for (uint32_t slot = TRACE_USER_FIRST; slot < TRACE_TYPES; slot++) {
        uint32_t id = __atomic_load_n(&types[slot].id, __ATOMIC_ACQUIRE);
        if (id == TRACE_FREE &&
            __atomic_compare_exchange_n(&types[slot].id, &id,
                                        (uint32_t)TRACE_BUSY, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            id = POISE_TRACE_USER + slot - TRACE_USER_FIRST;
            memcpy((char *)&types[slot] + sizeof id, (char *)&mine + sizeof id,
                   sizeof mine - sizeof id);
            __atomic_store_n(&types[slot].id, id, __ATOMIC_RELEASE);
            return id;
        }
        if (id != (uint32_t)TRACE_BUSY &&
            memcmp((char *)&types[slot] + sizeof id, (char *)&mine + sizeof id,
                   sizeof mine - sizeof id) == 0) {
            return id;
        }
    }
    return poise_error_set(ENOSPC, "define a type of records", type->name,
                           "%d are there already",
                           TRACE_TYPES - TRACE_USER_FIRST);
}

/* ---- collectors --------------------------------------------------------- */

static void fill_place(struct trace_place *slot, uint32_t id,
                       const struct poise_trace_place *place)
{
    struct poise_trace_place mine = *place;
    memset(mine.name, 0, sizeof mine.name);
    memset(mine.group_name, 0, sizeof mine.group_name);
    cut(mine.name, place->name, sizeof mine.name);
    cut(mine.group_name, place->group_name, sizeof mine.group_name);
    trace_word *to = (trace_word *)&slot->place;
    const trace_word *from = (const trace_word *)&mine;
    for (int i = 1; i < TRACE_PLACE_WORDS; i++) {
        __atomic_store_n(&to[i], from[i], __ATOMIC_RELEASE);
    }
    __atomic_store_n(&slot->place.id, id, __ATOMIC_RELEASE);
}

uint32_t poise_trace_collector(struct poise_trace *trace,
                               const struct poise_trace_place *place)
{
    if (!trace) {
        return place->type;
    }
    struct trace_place *slots =
        trace_table(trace->head, trace->head->places_at);
    /* The search goes on behind the last one given out, so that what stands in
     * the place of one that has ended stays as long as it can. */
    for (uint32_t i = 0; i < TRACE_PLACES; i++) {
        uint32_t at =
            __atomic_fetch_add(&trace->next_place, 1, __ATOMIC_RELAXED) %
            TRACE_PLACES;
        uint32_t taken = __atomic_load_n(&slots[at].taken, __ATOMIC_RELAXED);
        if (taken == 0 &&
            __atomic_compare_exchange_n(&slots[at].taken, &taken, 1, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            uint32_t generations =
                (UINT32_MAX - POISE_TRACE_COLLECTOR) / TRACE_PLACES;
            uint32_t generation = slots[at].generation++ % generations;
            uint32_t id =
                POISE_TRACE_COLLECTOR + generation * TRACE_PLACES + at;
            __atomic_store_n(&slots[at].place.id, (uint32_t)TRACE_BUSY,
                             __ATOMIC_RELEASE);
            fill_place(&slots[at], id, place);
            return id;
        }
    }
    __atomic_fetch_add(&trace->head->unplaced, 1, __ATOMIC_RELAXED);
    return place->type;
}

void poise_trace_collector_end(struct poise_trace *trace, uint32_t collector)
{
    if (!trace || collector < POISE_TRACE_COLLECTOR) {
        return;
    }
    struct trace_place *slots =
        trace_table(trace->head, trace->head->places_at);
    struct trace_place *slot =
        &slots[(collector - POISE_TRACE_COLLECTOR) % TRACE_PLACES];
    if (__atomic_load_n(&slot->place.id, __ATOMIC_RELAXED) == collector) {
        __atomic_store_n(&slot->taken, 0, __ATOMIC_RELEASE);
    }
}
