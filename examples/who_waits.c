/*
 * A monitor of one's own: who waits for whom in point-to-point messages.
 *
 *     who_waits FILE        a session that POISE_TRACE=FILE made, or makes
 *
 * Records of type `message` (enter, left, peer, bytes) of collectors that are
 * called ...Send and ...Recv, read while the program runs. A receiver that came
 * before the sender waited for it, and a sender that was still inside when the
 * receiver came, too. The two ends are put together by the message's number.
 */
#include <poise/scope.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST_RANKS = 1024, MOST_OPEN = 1 << 16, FROM = 0, TO = 1 };

struct end { /* of a message, whose other end is not there yet */
    struct {
        uint64_t group, number;
        int32_t ranks[2]; /* from, to */
    } key;
    bool is_there, side; /* side: FROM or TO */
    int64_t enter_ns, left_ns;
    uint64_t error_ns;
};

struct waits {
    int64_t ns[MOST_RANKS][MOST_RANKS]; /* that a rank waited for another */
    uint64_t times[MOST_RANKS][MOST_RANKS], pairs, doubtful;
    struct end open[MOST_OPEN];
};

/* How long one end of a message waited for the other. */
static void add(struct waits *waits, const struct end *who,
                const struct end *other)
{
    int rank = who->key.ranks[who->side], peer = who->key.ranks[other->side];
    int64_t ns =
        (other->enter_ns < who->left_ns ? other->enter_ns : who->left_ns) -
        who->enter_ns;
    if (ns > 0 && (uint64_t)ns <= who->error_ns + other->error_ns) {
        waits->doubtful++; /* as far as the clocks of two hosts can tell */
    } else if (ns > 0) {
        waits->ns[rank][peer] += ns;
        waits->times[rank][peer]++;
    }
}

/* The stage: drops all that is no message, and pairs the others. */
static size_t pair(const struct poise_scope_from *from,
                   struct poise_trace_event *tuples, size_t count, void *arg)
{
    struct waits *waits = arg;
    struct poise_trace_place place;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *values = tuples[i].values;
        struct end mine = {.is_there = true};
        if (!poise_trace_place(from->view, tuples[i].collector, &place) ||
            place.type != POISE_TRACE_MESSAGE ||
            (uint32_t)place.rank >= MOST_RANKS || values[2] >= MOST_RANKS) {
            continue;
        }
        mine.side = strstr(place.name, "Recv") ? TO : FROM;
        mine.key.group = place.group;
        mine.key.number = tuples[i].sequence;
        mine.key.ranks[mine.side] = place.rank;
        mine.key.ranks[!mine.side] = (int32_t)values[2];
        mine.enter_ns = poise_scope_ns(from, values[0], &mine.error_ns);
        mine.left_ns = poise_scope_ns(from, values[1], &mine.error_ns);
        struct end *open =
            &waits->open[poise_hash_bytes(&mine.key, sizeof mine.key, 0) %
                         MOST_OPEN];
        if (open->is_there && open->side != mine.side &&
            memcmp(&open->key, &mine.key, sizeof mine.key) == 0) {
            add(waits, &mine, open);
            add(waits, open, &mine);
            waits->pairs++;
            open->is_there = false;
        } else {
            *open = mine; /* what is there gives way */
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct waits waits;
    struct poise_scope *scope = NULL;
    struct poise_scope_source source;
    bool final = false;
    int code = argc == 2 ? poise_scope_create(argv[1], NULL, &scope) : -1;
    code = code ? code : poise_scope_stage(scope, pair, &waits);
    while (code >= 0 && !(final && code == 0)) {
        poise_scope_source(scope, &source);
        final = source.files > 0 && source.running == 0;
        code = poise_scope_poll(scope, final);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    for (int i = 0; code == 0 && i < MOST_RANKS * MOST_RANKS; i++) {
        int a = i / MOST_RANKS, b = i % MOST_RANKS;
        if (waits.times[a][b] > 0) {
            printf("rank %d waited %.3f ms for rank %d, in %d messages\n", a,
                   (double)waits.ns[a][b] / 1e6, b, (int)waits.times[a][b]);
        }
    }
    if (code == 0) {
        printf("%d messages, %d too close to say, %d records lost\n",
               (int)waits.pairs, (int)waits.doubtful, (int)source.lost);
    }
    poise_scope_destroy(scope);
    return code < 0;
}
