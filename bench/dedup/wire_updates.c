/*
 * What it gains a screen to be drawn out of order and unproved: updates of
 * small tiles over a link that exists in this process only, by a clock that
 * counts the link's time and nothing else (see bench/run for real ones).
 *
 *   bench/wire_updates [UPDATES]
 *
 * 60 ms one way, 1.6 Mbit/s, packets of 1,500 bytes; an update of 1 to 8 tiles
 * every 20 ms, of which one in 20 is new, the others are in the receiver's
 * cache. A line for each way, as a table.
 */
#include <poise/dedup.h>
#include <poise/store.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TILE = 16 * 16 * 4,
    MOST = 8,
    POOL = 4000, /* tiles that the receiver has */
    PACKET = 1500,
    EVERY_US = 20000,
    DELAY_US = 60000,
    BYTES_PER_MS = 200,
};

/* One way: packets in their order, and when each is there. */
struct link {
    struct poise_buf bytes;
    struct packet {
        size_t len;
        double at_us;
    } * packets;
    size_t head, count, cap, taken;
    double free_us;
};

struct update {
    double sent_us, first_us, right_us;
    size_t pieces;
    unsigned char tiles[MOST * TILE];
    bool is_wrong;
};

struct run {
    struct poise_dedup_store *stores[2];
    struct poise_dedup_peer *peers[2];
    struct link links[2]; /* from that one */
    struct update *updates;
    size_t count, sent, drawn, pieces; /* drawn in order */
    double now_us;
    unsigned wrong;
};

static void die(const char *what)
{
    const struct poise_error *error = poise_error_last();

    fprintf(stderr, "bench/wire_updates: %s: %s: %s\n", what, error->doing,
            error->why);
    exit(1);
}

static void good(int code, const char *what)
{
    if (code < 0) {
        die(what);
    }
}

/* ---- what arrives ------------------------------------------------------- */

static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    struct run *run = arg;
    struct update *update = &run->updates[run->drawn];

    (void)stream;
    if (memcmp(piece->data, update->tiles + run->pieces * TILE, TILE) != 0) {
        die("wrong bytes");
    }
    if (++run->pieces == update->pieces) {
        update->first_us = update->right_us = run->now_us;
        run->drawn++;
        run->pieces = 0;
    }
    return 0;
}

static int take(uint32_t stream, const struct poise_dedup_update *told,
                void *arg)
{
    struct run *run = arg;
    struct update *update = &run->updates[told->sequence];

    (void)stream;
    update->right_us = run->now_us;
    if (told->standing == POISE_DEDUP_CORRECTED) {
        return 0;
    }
    update->first_us = run->now_us;
    for (size_t i = 0; i < told->count; i++) {
        update->is_wrong |=
            memcmp(told->pieces[i].data, update->tiles + i * TILE, TILE) != 0;
    }
    run->wrong += update->is_wrong;
    return 0;
}

/* ---- the link ----------------------------------------------------------- */

static void put(struct link *link, struct poise_dedup_peer *from, double now_us)
{
    const void *data;
    size_t len = poise_dedup_peer_output(from, &data);

    good(poise_buf_append(&link->bytes, data, len), "carry");
    for (size_t at = 0; at < len; at += PACKET) {
        size_t part = len - at < PACKET ? len - at : PACKET;
        double start_us = link->free_us > now_us ? link->free_us : now_us;
        link->free_us = start_us + (double)part * 1000 / BYTES_PER_MS;
        if (link->count == link->cap) {
            link->cap = link->cap ? 2 * link->cap : 1024;
            link->packets =
                realloc(link->packets, link->cap * sizeof *link->packets);
            if (!link->packets) {
                abort();
            }
        }
        link->packets[link->count++] =
            (struct packet){part, link->free_us + DELAY_US};
    }
    poise_dedup_peer_took(from, len);
}

static double next_of(const struct link *link)
{
    return link->head < link->count ? link->packets[link->head].at_us : 1e18;
}

/* The next packet arrives at the other end. */
static void arrive(struct run *run, int from)
{
    struct link *link = &run->links[from];
    struct packet *packet = &link->packets[link->head++];

    run->now_us = packet->at_us;
    good(poise_dedup_peer_feed(run->peers[!from],
                               link->bytes.data + link->taken, packet->len),
         "arrive");
    link->taken += packet->len;
    put(&run->links[!from], run->peers[!from], run->now_us);
}

static void settle(struct run *run, double until_us)
{
    for (;;) {
        double a = next_of(&run->links[0]), b = next_of(&run->links[1]);
        if ((a < b ? a : b) > until_us) {
            return;
        }
        arrive(run, a < b ? 0 : 1);
    }
}

/* ---- a run -------------------------------------------------------------- */

static void tile(unsigned char *to, uint64_t id)
{
    struct poise_rng rng;

    poise_rng_seed(&rng, id);
    for (int i = 0; i < TILE; i += 8) {
        uint64_t word = poise_rng_next(&rng);
        memcpy(to + i, &word, 8);
    }
}

static void open_end(struct run *run, int end, uint32_t bits, bool knows)
{
    struct poise_dedup_store_options store = {.bits = bits};
    struct poise_dedup_peer_options peer = {
        .deliver = deliver, .update = take, .arg = run};

    good(poise_dedup_store_open(NULL, &store, &run->stores[end]), "open");
    for (uint64_t id = 0; knows && id < POOL; id++) {
        unsigned char data[TILE];
        uint64_t at;
        tile(data, id);
        good(poise_dedup_store_add(run->stores[end], data, TILE, &at), "add");
    }
    peer.store = run->stores[end];
    good(poise_dedup_peer_create(&peer, &run->peers[end]), "create");
    put(&run->links[end], run->peers[end], 0);
}

static void send_one(struct run *run, struct poise_rng *rng)
{
    struct update *update = &run->updates[run->sent];
    struct poise_dedup_piece pieces[MOST] = {0};
    struct poise_dedup_update told = {.pieces = pieces, .element_bytes = 4};
    uint64_t at = poise_rng_below(rng, POOL - MOST);

    update->sent_us = run->now_us;
    update->pieces = 1 + poise_rng_below(rng, MOST);
    for (size_t i = 0; i < update->pieces; i++) {
        bool is_new = poise_rng_below(rng, 20) == 0;
        tile(update->tiles + i * TILE,
             is_new ? 2 * POOL + run->sent * MOST + i : at + i);
        pieces[i].data = update->tiles + i * TILE;
        pieces[i].len = TILE;
        pieces[i].place = (struct poise_dedup_place){
            16 * (at % 80 + i), (uint32_t)(16 * (at / 80)), 16, 16};
    }
    told.count = update->pieces;
    run->sent++;
    good(poise_dedup_peer_update(run->peers[0], 1, &told, NULL), "send");
    good(poise_dedup_peer_flush(run->peers[0]), "flush");
    put(&run->links[0], run->peers[0], run->now_us);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void print(const struct run *run, const char *what)
{
    double *first = calloc(run->count, sizeof *first);
    double *right = calloc(run->count, sizeof *right), mean = 0;
    struct poise_dedup_peer_stats stats[2] = {
        poise_dedup_peer_stats(run->peers[0]),
        poise_dedup_peer_stats(run->peers[1])};
    size_t n = run->count;

    for (size_t i = 0; first && right && i < n; i++) {
        const struct update *update = &run->updates[i];
        first[i] = (update->first_us - update->sent_us) / 1000;
        right[i] = (update->right_us - update->sent_us) / 1000;
        mean += first[i] / (double)n;
    }
    if (first && right) {
        qsort(first, n, sizeof *first, by_value);
        qsort(right, n, sizeof *right, by_value);
        printf("| %s | %.0f | %.0f | %.0f | %.0f | %.0f | %llu | %u | %llu |\n",
               what, mean, first[n / 2], first[n * 95 / 100], first[n - 1],
               right[n * 95 / 100], (unsigned long long)stats[1].late,
               run->wrong,
               (unsigned long long)(stats[0].wire_out + stats[1].wire_out));
    }
    free(first);
    free(right);
}

static void measure(size_t count, uint32_t bits, bool knows, bool unordered)
{
    struct run run = {.count = count};
    struct poise_rng rng;
    char what[80];

    poise_rng_seed(&rng, 1);
    run.updates = calloc(count, sizeof *run.updates);
    if (!run.updates) {
        abort();
    }
    open_end(&run, 0, 40, knows);
    open_end(&run, 1, bits, true);
    settle(&run, 1e17);
    if (unordered) {
        good(poise_dedup_peer_allow_unordered(run.peers[1], 1),
             "allow updates out of order");
        put(&run.links[1], run.peers[1], run.now_us);
    }
    settle(&run, 1e17);
    double start_us = run.now_us;
    for (size_t i = 0; i < count; i++) {
        settle(&run, start_us + (double)i * EVERY_US);
        run.now_us = start_us + (double)i * EVERY_US;
        send_one(&run, &rng);
    }
    settle(&run, 1e17);
    if (unordered ? poise_dedup_peer_final(run.peers[1], 1) != count
                  : run.drawn != count) {
        die("not all arrived");
    }
    snprintf(what, sizeof what, "%u bits, sender %s, %s", bits,
             knows ? "knows the cache" : "knows nothing",
             unordered ? "as it comes" : "in order");
    print(&run, what);
    for (int end = 0; end < 2; end++) {
        poise_dedup_peer_destroy(run.peers[end]);
        good(poise_dedup_store_close(run.stores[end]), "close");
        poise_buf_free(&run.links[end].bytes);
        free(run.links[end].packets);
    }
    free(run.updates);
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 3000;

    printf(
        "| | mean ms | median | 95 %% | most | right, 95 %% | late | wrong "
        "at first | bytes |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
    for (int bits = 40; bits >= 16; bits -= 24) {
        for (int way = 0; way < 4; way++) {
            measure(count ? count : 1, (uint32_t)bits, way < 2, way % 2);
        }
    }
    return 0;
}
