/*
 * Messages, put together from the records of their two ends: one end waits in a
 * table of fixed size for the other one, and gives way to a newer one that
 * needs its place.
 */
#include <poise/monitor_messages.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Pairs of ranks, of 80 bytes, and ends that wait, of 56: five megabytes. A
 * rank may be ahead of another one by a ring of records (16,384) in messages
 * that are received late. */
enum { PAIRS = 1 << 15, OPEN = 1 << 16, PROBES = 32 };
enum side { FROM, TO };

struct open_end {
    uint64_t group, number;
    int32_t ranks[2]; /* from, to */
    enum side side;
    bool is_there;
    int64_t enter_ns, left_ns;
    uint64_t error_ns;
};

struct poise_monitor_messages {
    struct poise_monitor_pair
        *pairs;            /* [PAIRS]; messages and matched 0: free */
    struct open_end *open; /* [OPEN] */
    struct poise_monitor_unpaired unpaired;
};

static struct poise_monitor_pair *
pair_of(struct poise_monitor_messages *messages, const int32_t ranks[2])
{
    uint64_t at = poise_hash_bytes(ranks, 2 * sizeof *ranks, 0);
    for (int probe = 0; probe < PROBES; probe++, at++) {
        struct poise_monitor_pair *pair = &messages->pairs[at % PAIRS];
        if (pair->messages == 0 && pair->matched == 0) {
            pair->from = ranks[FROM];
            pair->to = ranks[TO];
            return pair;
        }
        if (pair->from == ranks[FROM] && pair->to == ranks[TO]) {
            return pair;
        }
    }
    messages->unpaired.unplaced++;
    return NULL;
}

/* How long one end waited for the other; 0: it did not, or the clocks leave it
 * open. */
static int64_t waited(struct poise_monitor_messages *messages,
                      const struct open_end *who, const struct open_end *other)
{
    int64_t until =
        other->enter_ns < who->left_ns ? other->enter_ns : who->left_ns;
    int64_t ns = until - who->enter_ns;
    uint64_t error = who->error_ns + other->error_ns;
    if (ns > 0 && (error < who->error_ns || (uint64_t)ns <= error)) {
        messages->unpaired.doubtful++;
        return 0;
    }
    return ns > 0 ? ns : 0;
}

static void match(struct poise_monitor_messages *messages,
                  const struct open_end *a, const struct open_end *b)
{
    const struct open_end *sent = a->side == FROM ? a : b;
    const struct open_end *received = a->side == FROM ? b : a;
    struct poise_monitor_pair *pair = pair_of(messages, sent->ranks);
    if (!pair) {
        return;
    }
    int64_t receiver = waited(messages, received, sent);
    int64_t sender = waited(messages, sent, received);
    pair->matched++;
    pair->receiver_ns += receiver;
    pair->sender_ns += sender;
    pair->receiver_waits += receiver > 0;
    pair->sender_waits += sender > 0;
}

static bool is_other_end(const struct open_end *a, const struct open_end *b)
{
    return a->is_there && a->side != b->side && a->group == b->group &&
           a->number == b->number && a->ranks[FROM] == b->ranks[FROM] &&
           a->ranks[TO] == b->ranks[TO];
}

static void take_end(struct poise_monitor_messages *messages,
                     const struct open_end *end, uint64_t bytes)
{
    const uint64_t key[] = {end->group, end->number,
                            (uint64_t)(uint32_t)end->ranks[FROM] << 32 |
                                (uint32_t)end->ranks[TO]};
    uint64_t at = poise_hash_bytes(key, sizeof key, 0);
    struct open_end *place = &messages->open[at % OPEN];
    if (end->side == FROM) {
        struct poise_monitor_pair *pair = pair_of(messages, end->ranks);
        if (pair) {
            pair->messages++;
            pair->bytes += bytes;
        }
    }
    for (uint64_t probe = 0; probe < PROBES; probe++) {
        struct open_end *open = &messages->open[(at + probe) % OPEN];
        if (is_other_end(open, end)) {
            match(messages, open, end);
            open->is_there = false;
            return;
        }
        place = place->is_there ? open : place;
    }
    messages->unpaired.alone += place->is_there;
    *place = *end;
}

static size_t stage(const struct poise_scope_from *from,
                    struct poise_trace_event *tuples, size_t count, void *arg)
{
    struct poise_monitor_messages *messages = arg;
    struct poise_trace_place place = {0};
    uint32_t known = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *values = tuples[i].values;
        if (tuples[i].collector < POISE_TRACE_COLLECTOR) {
            continue;
        }
        if (tuples[i].collector != known) {
            known = poise_trace_place(from->view, tuples[i].collector, &place)
                        ? tuples[i].collector
                        : 0;
        }
        if (known == 0 || place.type != POISE_TRACE_MESSAGE || place.rank < 0 ||
            values[2] > INT32_MAX) {
            continue;
        }
        struct open_end end = {.group = place.group,
                               .number = tuples[i].sequence,
                               .is_there = true};
        end.side = strstr(place.name, "Recv") ? TO : FROM;
        end.ranks[end.side] = place.rank;
        end.ranks[!end.side] = (int32_t)values[2];
        end.enter_ns = poise_scope_ns(from, values[0], &end.error_ns);
        end.left_ns = poise_scope_ns(from, values[1], &end.error_ns);
        take_end(messages, &end, values[3]);
    }
    return count;
}

int poise_monitor_messages_create(struct poise_scope *scope,
                                  struct poise_monitor_messages **out)
{
    struct poise_monitor_messages *messages = poise_alloc(1, sizeof *messages);
    int code = messages ? 0 : -ENOMEM;
    if (code == 0) {
        messages->pairs = poise_alloc(PAIRS, sizeof *messages->pairs);
        messages->open = poise_alloc(OPEN, sizeof *messages->open);
        code = messages->pairs && messages->open
                   ? poise_scope_stage(scope, stage, messages)
                   : -ENOMEM;
    }
    if (code < 0) {
        poise_monitor_messages_destroy(messages);
        return code;
    }
    *out = messages;
    return 0;
}

void poise_monitor_messages_destroy(struct poise_monitor_messages *messages)
{
    if (messages) {
        free(messages->pairs);
        free(messages->open);
    }
    free(messages);
}

static int by_waits(const void *left, const void *right)
{
    const struct poise_monitor_pair *a = left, *b = right;
    int64_t x = a->receiver_ns + a->sender_ns,
            y = b->receiver_ns + b->sender_ns;
    return x != y               ? (x < y) - (x > y)
           : a->from != b->from ? (a->from > b->from) - (a->from < b->from)
                                : (a->to > b->to) - (a->to < b->to);
}

size_t
poise_monitor_messages_pairs(const struct poise_monitor_messages *messages,
                             struct poise_monitor_pair *out, size_t max)
{
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < PAIRS; i++) {
        const struct poise_monitor_pair *pair = &messages->pairs[i];
        if (pair->messages == 0 && pair->matched == 0) {
            continue;
        }
        count++;
        if (kept < max) {
            out[kept++] = *pair;
            if (kept == max) {
                qsort(out, kept, sizeof *out, by_waits);
            }
        } else if (max > 0 && by_waits(pair, &out[max - 1]) < 0) {
            size_t at = max - 1;
            for (; at > 0 && by_waits(pair, &out[at - 1]) < 0; at--) {
                out[at] = out[at - 1];
            }
            out[at] = *pair;
        }
    }
    qsort(out, kept, sizeof *out, by_waits);
    return count;
}

struct poise_monitor_unpaired
poise_monitor_messages_unpaired(const struct poise_monitor_messages *messages)
{
    struct poise_monitor_unpaired unpaired = messages->unpaired;
    for (size_t i = 0; i < OPEN; i++) {
        unpaired.alone += messages->open[i].is_there;
    }
    return unpaired;
}
