/*
 * The wire measured: files from one process to another, each with its cache.
 *
 *   bench/wire ends [-m METHOD] [-s SIZE] [-b BITS] [-l LEVEL] [-M MEMORY]
 *                   [-C CONTAINER] [-f] [-S FOLDER] [-R FOLDER] FILE...
 *
 * For each file two processes are started, which open the caches in FOLDERs
 * (without: in memory) after the system has forgotten their pages; -f gives
 * the sender an empty one. What arrives is compared. A line of JSON a file.
 *
 *   bench/wire cut -m METHOD -s SIZE FILE...
 *
 * The segmenter alone, and what one and two levels of fingerprints would send
 * of the last file to who has those before it.
 */
#include "wire.h"

#include <poise/core.h>
#include <poise/store.h>

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

enum {
    PORTION = 1 << 18,
    FLIGHT_MOST = 8 << 20,
    OUTPUT_MOST = 1 << 18,
};

int bench_fail(const char *what)
{
    const struct poise_error *error = poise_error_last();

    fprintf(stderr, "bench/wire: %s: %s %s: %s\n", what, error->doing,
            error->what, error->why);
    return 1;
}

/* ---- one end ------------------------------------------------------------ */

struct end {
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    struct poise_dedup_joiner joined;
    int file; /* to send, or to compare with */
    unsigned char *window;
    uint64_t window_at;
    size_t window_len;
    bool ended;
};

/* What is shared with the parent: how it went. */
struct outcome {
    struct poise_dedup_peer_stats peer;
    struct poise_dedup_store_info store;
    uint64_t opened_ns; /* to open the cache */
};

/* `len` bytes of the file at `at`; NULL past its end. */
static const unsigned char *look(struct end *end, uint64_t at, size_t len)
{
    if (at < end->window_at || at + len > end->window_at + end->window_len) {
        ssize_t received = pread(end->file, end->window, PORTION, (off_t)at);
        end->window_at = at;
        end->window_len = received > 0 ? (size_t)received : 0;
    }
    return len <= end->window_len ? end->window + (at - end->window_at) : NULL;
}

static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    struct end *end = arg;
    const unsigned char *right = look(end, piece->place.x, piece->len);

    (void)stream;
    if (!right || memcmp(right, piece->data, piece->len) != 0) {
        return poise_error_set(EBADMSG, "receive", NULL, "wrong bytes");
    }
    return poise_dedup_join(&end->joined, piece, NULL);
}

static int ended(uint32_t stream, void *arg)
{
    (void)stream;
    ((struct end *)arg)->ended = true;
    return 0;
}

static int write_some(struct end *end, int fd)
{
    const void *data;
    size_t len = poise_dedup_peer_output(end->peer, &data);
    ssize_t done = len ? write(fd, data, len) : 0;

    if (done < 0 && errno != EAGAIN) {
        return poise_error_set(errno, "write", NULL, NULL);
    }
    poise_dedup_peer_took(end->peer, done > 0 ? (size_t)done : 0);
    return 0;
}

/* 1: nothing more comes. */
static int read_some(struct end *end, int fd, unsigned char *buffer)
{
    ssize_t received = read(fd, buffer, PORTION);

    if (received < 0) {
        return errno == EAGAIN ? 0 : poise_error_set(errno, "read", NULL, NULL);
    }
    return received == 0
               ? 1
               : poise_dedup_peer_feed(end->peer, buffer, (size_t)received);
}

/* The next portion; 1 when all was sent. */
static int push(struct end *end, unsigned char *buffer)
{
    ssize_t received = read(end->file, buffer, PORTION);
    int code;

    if (received < 0) {
        return poise_error_set(errno, "read", NULL, NULL);
    }
    if (received > 0) {
        return poise_dedup_peer_send(end->peer, 0, buffer, (size_t)received);
    }
    code = poise_dedup_peer_end(end->peer, 0);
    code = code < 0 ? code : poise_dedup_peer_flush(end->peer);
    return code < 0 ? code : 1;
}

static int speak(struct end *end, int fd, bool sends)
{
    unsigned char *buffer = malloc(PORTION);
    bool met = false, is_sender = sends;
    int code = 0;

    while (code == 0) {
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        const void *data;
        bool busy = false;

        if (sends && met &&
            poise_dedup_peer_in_flight(end->peer) < FLIGHT_MOST &&
            poise_dedup_peer_output(end->peer, &data) < OUTPUT_MOST) {
            code = push(end, buffer);
            busy = code == 0;
            sends = busy;
            code = code > 0 ? 0 : code;
        }
        if (code == 0 && !busy) {
            code = poise_dedup_peer_wait(end->peer);
        }
        code = code < 0 ? code : write_some(end, fd);
        if (code < 0) {
            break;
        }
        if (poise_dedup_peer_output(end->peer, &data) > 0) {
            poller.events |= POLLOUT;
        } else if (sends && met &&
                   poise_dedup_peer_in_flight(end->peer) < FLIGHT_MOST) {
            /* All that was in the way is written, and no answer is owed. */
            busy = true;
        } else if (is_sender && !sends &&
                   poise_dedup_peer_in_flight(end->peer) == 0) {
            /* The receiver is done when it is told that the sender is. */
            shutdown(fd, SHUT_WR);
        }
        poll(&poller, 1, busy ? 0 : -1);
        if (poller.revents & (POLLIN | POLLHUP)) {
            met = true;
            code = read_some(end, fd, buffer);
        }
    }
    free(buffer);
    return code;
}

/* ---- two of them -------------------------------------------------------- */

/* Let the system forget what it holds of a cache. */
void bench_chill(const char *folder)
{
    char command[4200];

    if (folder && access(folder, F_OK) == 0) {
        snprintf(command, sizeof command,
                 "sync -f '%s' && find '%s' -type f -exec dd if={} "
                 "iflag=nocache count=0 status=none \\;",
                 folder, folder);
        if (system(command) != 0) {
            fprintf(stderr, "bench/wire: %s: not cold\n", folder);
        }
    }
}

static int live(const struct bench_how *how, const char *folder, int file,
                int fd, bool sends, struct outcome *out)
{
    struct poise_dedup_store_options store = {.bits = how->bits,
                                              .memory_bytes = how->memory,
                                              .container_bytes =
                                                  how->container};
    struct end end = {.file = file, .window = malloc(PORTION)};
    struct poise_dedup_peer_options peer = {.method = how->method,
                                            .cut = how->cut,
                                            .level = how->level,
                                            .packs_in_thread = sends,
                                            .deliver = deliver,
                                            .ended = ended,
                                            .arg = &end};
    uint64_t begun = poise_clock_ns();

    if (poise_dedup_store_open(folder, &store, &end.store) < 0) {
        return bench_fail("cache");
    }
    out->opened_ns = poise_clock_ns() - begun;
    peer.store = end.store;
    if (poise_dedup_peer_create(&peer, &end.peer) < 0 ||
        speak(&end, fd, sends) < 0 || (!sends && !end.ended)) {
        return bench_fail(sends ? "send" : "receive");
    }
    out->peer = poise_dedup_peer_stats(end.peer);
    poise_dedup_peer_destroy(end.peer);
    out->store = poise_dedup_store_info(end.store);
    free(end.window);
    return poise_dedup_store_close(end.store) < 0 ? bench_fail("close") : 0;
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

/* Words of one end's line, common to both. */
static void say_end(const char *name, const struct outcome *out,
                    const struct rusage *usage)
{
    printf("\"%s\": {\"cpu\": %.3f, \"rss\": %llu, \"opened\": %.3f, "
           "\"cache_bytes\": %llu, \"containers\": %llu, \"segments\": %llu, "
           "\"finds\": %llu, \"hits\": %llu, \"loads\": %llu, "
           "\"sampling\": %u}",
           name, seconds(usage->ru_utime) + seconds(usage->ru_stime),
           (unsigned long long)usage->ru_maxrss * 1024,
           (double)out->opened_ns / 1e9, (unsigned long long)out->store.bytes,
           (unsigned long long)out->store.containers,
           (unsigned long long)out->store.segments,
           (unsigned long long)out->store.finds,
           (unsigned long long)out->store.hits,
           (unsigned long long)out->store.loads, out->store.sampling);
}

static void say(const char *path, uint64_t bytes, double took,
                const struct outcome *outs, const struct rusage *usages)
{
    const struct poise_dedup_peer_stats *stats = &outs[0].peer;

    printf(
        "{\"file\": \"%s\", \"bytes\": %llu, \"wire\": %llu, \"seconds\": "
        "%.3f, \"run\": %llu, \"fingerprint\": %llu, \"delta\": %llu, "
        "\"data\": %llu, \"fill\": %llu, \"groups\": %llu, \"requests\": "
        "%llu, \"repairs\": %llu, ",
        path, (unsigned long long)bytes,
        (unsigned long long)(stats->wire_out + stats->wire_in), took,
        (unsigned long long)stats->by_run,
        (unsigned long long)stats->by_fingerprint,
        (unsigned long long)stats->by_delta, (unsigned long long)stats->by_data,
        (unsigned long long)stats->by_fill, (unsigned long long)stats->groups,
        (unsigned long long)stats->requests,
        (unsigned long long)stats->repairs);
    say_end("sender", &outs[0], &usages[0]);
    printf(", ");
    say_end("receiver", &outs[1], &usages[1]);
    printf("}\n");
    fflush(stdout);
}

static int send_file(const struct bench_how *how, const char *path)
{
    const char *folders[2] = {how->forgets ? NULL : how->sender, how->receiver};
    struct outcome *outs = mmap(NULL, 2 * sizeof *outs, PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct rusage usages[2];
    struct stat st;
    pid_t pids[2];
    uint64_t begun;
    int fds[2], failed = 0;

    bench_chill(how->sender);
    bench_chill(how->receiver);
    if (outs == MAP_FAILED || stat(path, &st) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) < 0) {
        perror(path);
        return 1;
    }
    begun = poise_clock_ns();
    for (int i = 0; i < 2; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            int file = open(path, O_RDONLY);
            close(fds[!i]);
            _exit(live(how, folders[i], file, fds[i], i == 0, &outs[i]));
        }
    }
    close(fds[0]);
    close(fds[1]);
    for (int i = 0; i < 2; i++) {
        int status;
        wait4(pids[i], &status, 0, &usages[i]);
        failed |= status;
    }
    if (!failed) {
        say(path, (uint64_t)st.st_size,
            (double)(poise_clock_ns() - begun) / 1e9, outs, usages);
    }
    munmap(outs, 2 * sizeof *outs);
    return failed != 0;
}

/* ---- the segmenter alone ------------------------------------------------ */

struct cut {
    struct poise_dedup_store *store; /* NULL: only count */
    bool counts;
    uint64_t segments, hits, hit_bytes, plain_bytes;
    ZSTD_CCtx *packer;
    uint64_t packed;
};

/* What no cache has, in one compressed stream. */
static int pack(struct cut *cut, const void *data, size_t len,
                ZSTD_EndDirective how)
{
    static unsigned char out[1 << 17]; /* what it holds is not wanted */
    ZSTD_inBuffer in = {data, len, 0};
    size_t left;

    do {
        ZSTD_outBuffer to = {out, sizeof out, 0};
        left = ZSTD_compressStream2(cut->packer, &to, &in, how);
        cut->packed += to.pos;
    } while (!ZSTD_isError(left) &&
             (in.pos < in.size || (how == ZSTD_e_end && left > 0)));
    return 0;
}

static int no_piece(const struct poise_dedup_piece *piece, void *arg)
{
    (void)piece;
    (void)arg;
    return 0;
}

static int count_piece(const struct poise_dedup_piece *piece, void *arg)
{
    struct cut *cut = arg;
    const void *data = piece->data;
    size_t len = piece->len;
    uint64_t at;
    int known = 0, code = 0;

    if (piece->kind == POISE_DEDUP_FILL) {
        return cut->counts ? pack(cut, data, piece->period, ZSTD_e_continue)
                           : 0;
    }
    if (piece->kind == POISE_DEDUP_RANGE) {
        /* It is in the cache as a whole, and so may be known. */
        data = piece->range.of;
        len = piece->range.of_len;
    }
    if (piece->kind != POISE_DEDUP_LITERAL) {
        known = poise_dedup_store_find(
            cut->store, poise_dedup_store_fingerprint(cut->store, data, len),
            &at);
        if (known == 0) {
            code = poise_dedup_store_add(cut->store, data, len, &at);
        }
    }
    if (known < 0 || code < 0 || !cut->counts) {
        return known < 0 ? known : code;
    }
    cut->segments += piece->kind != POISE_DEDUP_LITERAL;
    cut->hits += known > 0;
    cut->hit_bytes += known > 0 ? piece->len : 0;
    return known > 0 ? 0 : pack(cut, piece->data, piece->len, ZSTD_e_continue);
}

static int cut_file(const struct bench_how *how, const struct bench_bytes *file,
                    int (*emit)(const struct poise_dedup_piece *, void *),
                    struct cut *cut, struct poise_dedup_cut_stats *stats)
{
    struct poise_dedup_cut_options options = how->cut;
    struct poise_dedup_segmenter *segmenter;
    int code = poise_dedup_segmenter_create(how->method, &options, emit, cut,
                                            &segmenter);

    if (code == 0) {
        code = poise_dedup_segmenter_feed(segmenter, file->data, file->len);
        code = code < 0 ? code : poise_dedup_segmenter_flush(segmenter);
        *stats = poise_dedup_segmenter_stats(segmenter);
        poise_dedup_segmenter_destroy(segmenter);
    }
    return code;
}

int bench_read(const char *path, struct bench_bytes *out)
{
    int fd = open(path, O_RDONLY);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0) {
        perror(path);
        return -1;
    }
    out->len = (size_t)st.st_size;
    out->data =
        mmap(NULL, out->len, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    close(fd);
    return out->data == MAP_FAILED ? -1 : 0;
}

static int cut_files(const struct bench_how *how, char **paths, int count)
{
    struct poise_dedup_store_options options = {.bits = 64, .memory_bytes = 0};
    struct cut cut = {.packer = ZSTD_createCCtx()};
    struct poise_dedup_cut_stats stats;
    struct bench_bytes file = {0};
    uint64_t begun, took = 0, all = 0, two, one;

    for (int i = 0; i < count; i++) {
        if (bench_read(paths[i], &file) < 0) {
            return 1;
        }
        options.memory_bytes += 6 * file.len + (64 << 20);
        munmap(file.data, file.len);
    }
    if (poise_dedup_store_open(NULL, &options, &cut.store) < 0) {
        return bench_fail("cache");
    }
    ZSTD_CCtx_setParameter(cut.packer, ZSTD_c_compressionLevel, 3);
    for (int i = 0; i < count; i++) {
        if (bench_read(paths[i], &file) < 0) {
            return 1;
        }
        begun = poise_clock_ns();
        if (cut_file(how, &file, no_piece, NULL, &stats) < 0) {
            return bench_fail("cut");
        }
        took += poise_clock_ns() - begun;
        all += file.len;
        cut.counts = i + 1 == count;
        if (cut_file(how, &file, count_piece, &cut, &stats) < 0) {
            return bench_fail("cut");
        }
        if (i + 1 < count) {
            munmap(file.data, file.len);
        }
    }
    pack(&cut, NULL, 0, ZSTD_e_end);
    one = cut.segments * 20 + cut.packed + stats.meta_bytes;
    two = cut.segments * 5 + (cut.segments + 19) / 20 * 20 + cut.packed +
          stats.meta_bytes;
    printf("{\"bytes\": %zu, \"cut_mb_s\": %.1f, \"segments\": %llu, "
           "\"mean\": %.1f, \"coverage\": %.4f, \"overlap\": %llu, \"meta\": "
           "%llu, \"hit_share\": %.5f, \"packed\": %llu, \"one\": %llu, "
           "\"two\": %llu}\n",
           file.len, (double)all * 1e3 / (double)took,
           (unsigned long long)stats.segments,
           (double)stats.segment_bytes /
               (double)(stats.segments ? stats.segments : 1),
           poise_dedup_coverage(&stats),
           (unsigned long long)stats.overlap_bytes,
           (unsigned long long)stats.meta_bytes,
           (double)(cut.hit_bytes + stats.fill_bytes) / (double)file.len,
           (unsigned long long)cut.packed, (unsigned long long)one,
           (unsigned long long)two);
    ZSTD_freeCCtx(cut.packer);
    poise_dedup_store_close(cut.store);
    munmap(file.data, file.len);
    return 0;
}

/* ---- the command -------------------------------------------------------- */

static uint64_t size_of(const char *text)
{
    uint64_t bytes = 0;

    if (poise_parse_bytes(text, &bytes) < 0) {
        exit(bench_fail(text));
    }
    return bytes;
}

int main(int argc, char **argv)
{
    struct bench_how how = {.level = 3};
    uint32_t size = 256;
    const char *what = argc > 1 ? argv[1] : "";
    int option, failed = 0;

    signal(SIGPIPE, SIG_IGN);
    how.method = poise_dedup_method_find("gear");
    optind = 2;
    while ((option = getopt(argc, argv, "m:s:b:l:M:C:L:S:R:f")) != -1) {
        switch (option) {
        case 'm':
            if (poise_dedup_cut_parse(optarg, &how.method, &how.cut) < 0) {
                return bench_fail("method");
            }
            break;
        case 's':
            size = (uint32_t)size_of(optarg);
            break;
        case 'b':
            how.bits = (uint32_t)atoi(optarg);
            break;
        case 'l':
            how.level = atoi(optarg);
            break;
        case 'M':
            how.memory = size_of(optarg);
            break;
        case 'C':
            how.container = (uint32_t)size_of(optarg);
            break;
        case 'S':
            how.sender = optarg;
            break;
        case 'R':
            how.receiver = optarg;
            break;
        case 'f':
            how.forgets = true;
            break;
        default:
            return 2;
        }
    }
    if (optind >= argc) {
        return 2;
    }
    how.cut.average = how.cut.average ? how.cut.average : size;
    if (strcmp(what, "cut") == 0) {
        return cut_files(&how, argv + optind, argc - optind);
    }
    if (strcmp(what, "cache") == 0) {
        return bench_cache(&how, argv + optind, argc - optind);
    }
    for (int i = optind; i < argc && !failed; i++) {
        failed = send_file(&how, argv[i]);
    }
    return failed;
}
