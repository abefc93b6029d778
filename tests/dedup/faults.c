/* The wire between two processes to which something happens: the connection
 * is cut at some byte or slow, either end is killed or a call of its fails, its
 * cache is damaged or has tiny fingerprints. What is delivered is right, a
 * failure is said, nobody waits for ever, and the next transfer completes.
 *
 * POISE_TEST_MINUTES=N goes on for so long, POISE_TEST_SEED=N elsewhere. */
#include "../slowness.h"
#include "../temporary.h"
#include "data.h"
#include <poise/dedup.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    ENDS = 2,
    STREAMS = 3,
    DATA_MOST = 300000,
    FLIGHT_MOST = 2 << 20,
    OUTPUT_MOST = 1 << 17,
    ROUNDS = 12,
    SAID_BYTES = 500,
    LIMIT_SECONDS = 80, /* after which an end is taken to hang */
    /* How an end exits. */
    EXIT_RIGHT = 0,
    EXIT_ERROR = 1,
    EXIT_SILENT = 8,
    EXIT_WRONG = 9,
};
static const uint64_t never = UINT64_MAX;

/* What an end has to send. */
struct side {
    unsigned char *data;
    size_t len;
    char folder[TEMPORARY_MORE];
};

/* What is to happen, and by what the ends cut. */
struct plan {
    uint64_t seed;
    const struct poise_dedup_method *method;
    uint32_t average, bits;
    uint64_t cache_bytes;
    /* Of what end A says, then of what B says: the byte after which. */
    uint64_t cut_at[ENDS], kill_at[ENDS];
    char fault[ENDS][64];
    bool slow;
};

/* Global: what ends say when they fail, in memory that they share. */
static char (*why)[SAID_BYTES];

/* ---- an end ------------------------------------------------------------- */

struct end {
    const struct side *mine, *theirs;
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    struct poise_dedup_joiner joined[STREAMS];
    bool ended[STREAMS];
    size_t sent[STREAMS];
    bool all_sent, silent; /* silent: the own direction is closed */
    struct poise_rng rng;
};

/* The part of a side's data that a stream carries. */
static const unsigned char *part(const struct side *side, uint32_t stream,
                                 size_t *len)
{
    size_t from = side->len * stream / STREAMS;

    *len = side->len * (stream + 1) / STREAMS - from;
    return side->data + from;
}

static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    struct end *end = arg;
    const unsigned char *right;
    size_t len;

    if (stream >= STREAMS || end->ended[stream]) {
        _exit(EXIT_WRONG);
    }
    right = part(end->theirs, stream, &len);
    if (piece->place.x > len || piece->len > len - piece->place.x ||
        memcmp(right + piece->place.x, piece->data, piece->len) != 0 ||
        poise_dedup_join(&end->joined[stream], piece, NULL) < 0) {
        _exit(EXIT_WRONG);
    }
    return 0;
}

static int ended(uint32_t stream, void *arg)
{
    struct end *end = arg;
    size_t len;

    if (stream >= STREAMS || end->ended[stream]) {
        _exit(EXIT_WRONG);
    }
    part(end->theirs, stream, &len);
    if (end->joined[stream].at != len) {
        _exit(EXIT_WRONG);
    }
    end->ended[stream] = true;
    return 0;
}

static bool heard_all(const struct end *end)
{
    for (int i = 0; i < STREAMS; i++) {
        if (!end->ended[i]) {
            return false;
        }
    }
    return true;
}

/* Send some more, of any stream. */
static int push(struct end *end)
{
    uint32_t stream = (uint32_t)poise_rng_below(&end->rng, STREAMS);
    size_t len, some, left = STREAMS;
    const unsigned char *data;
    int code;

    while (end->sent[stream] == SIZE_MAX && left-- > 0) {
        stream = (stream + 1) % STREAMS;
    }
    if (end->sent[stream] == SIZE_MAX) {
        code = poise_dedup_peer_flush(end->peer);
        end->all_sent = code == 0;
        return code;
    }
    data = part(end->mine, stream, &len);
    some = 1 + poise_rng_below(&end->rng, 50000);
    some = some < len - end->sent[stream] ? some : len - end->sent[stream];
    code = some > 0 ? poise_dedup_peer_send(end->peer, stream,
                                            data + end->sent[stream], some)
                    : 0;
    if (code == -EAGAIN) {
        return 0; /* the other end did not say hello yet */
    }
    end->sent[stream] += some;
    if (code == 0 && end->sent[stream] == len) {
        code = poise_dedup_peer_end(end->peer, stream);
        end->sent[stream] = code == -EAGAIN ? len : SIZE_MAX;
        code = code == -EAGAIN ? 0 : code;
    }
    return code;
}

static int write_some(struct end *end, int fd)
{
    const void *data;
    size_t len = poise_dedup_peer_output(end->peer, &data);
    ssize_t done = len > 0 ? write(fd, data, len) : 0;

    if (done < 0 && errno != EAGAIN && errno != EINTR) {
        return poise_error_set(errno, "write to the other end", NULL, NULL);
    }
    poise_dedup_peer_took(end->peer, done > 0 ? (size_t)done : 0);
    return 0;
}

/* 1: the other end says nothing more. */
static int read_some(struct end *end, int fd)
{
    char buffer[1 << 14];
    ssize_t received = read(fd, buffer, sizeof buffer);

    if (received < 0) {
        return errno == EAGAIN || errno == EINTR
                   ? 0
                   : poise_error_set(errno, "read from the other end", NULL,
                                     NULL);
    }
    return received == 0
               ? 1
               : poise_dedup_peer_feed(end->peer, buffer, (size_t)received);
}

/* Once all is said and heard, as the other end can be, too. */
static bool is_done(const struct end *end)
{
    const void *data;

    return end->all_sent && heard_all(end) &&
           poise_dedup_peer_in_flight(end->peer) == 0 &&
           poise_dedup_peer_output(end->peer, &data) == 0;
}

static int speak(struct end *end, int fd)
{
    for (;;) {
        const void *data;
        struct pollfd poller = {.fd = fd, .events = POLLIN};
        int code = 0;

        if (!end->all_sent &&
            poise_dedup_peer_in_flight(end->peer) < FLIGHT_MOST &&
            poise_dedup_peer_output(end->peer, &data) < OUTPUT_MOST) {
            code = push(end);
        }
        if (code == 0) {
            code = write_some(end, fd);
        }
        if (code < 0) {
            return code;
        }
        if (is_done(end) && !end->silent) {
            end->silent = true;
            shutdown(fd, SHUT_WR);
        }
        if (poise_dedup_peer_output(end->peer, &data) > 0) {
            poller.events |= POLLOUT;
        }
        poll(&poller, 1, end->all_sent || poller.events & POLLOUT ? 1000 : 1);
        code = read_some(end, fd);
        if (code != 0) {
            return code < 0      ? code
                   : end->silent ? 0
                                 : poise_error_set(ECONNRESET, "go on", NULL,
                                                   "the other end is gone");
        }
    }
}

/* The life of a process that is one end. */
static int live(const struct plan *plan, const struct side *sides, int which,
                int fd)
{
    struct end end = {.mine = &sides[which], .theirs = &sides[!which]};
    struct poise_dedup_store_options store = {.bits = plan->bits,
                                              .memory_bytes = 1 << 21,
                                              .limit_bytes = plan->cache_bytes};
    struct poise_dedup_peer_options peer = {
        .method = plan->method,
        .cut = {.average = plan->average},
        .deliver = deliver,
        .ended = ended,
        .arg = &end,
    };
    int code, closed;

    alarm(slowness_s(LIMIT_SECONDS));
    poise_rng_seed(&end.rng, plan->seed + (uint64_t)which);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    poise_error_clear();
    poise_fault_parse(plan->fault[which]);
    code = poise_dedup_store_open(end.mine->folder, &store, &end.store);
    if (code == 0) {
        peer.store = end.store;
        code = poise_dedup_peer_create(&peer, &end.peer);
    }
    if (code == 0) {
        code = speak(&end, fd);
    }
    poise_dedup_peer_destroy(end.peer);
    closed = poise_dedup_store_close(end.store);
    if (code == 0 && closed < 0) {
        code = closed;
    }
    if (code < 0) {
        const struct poise_error *error = poise_error_last();
        snprintf(why[which], SAID_BYTES, "%s %s: %s", error->doing, error->what,
                 error->why);
        return error->code != 0 ? EXIT_ERROR : EXIT_SILENT;
    }
    return EXIT_RIGHT;
}

/* ---- between them ------------------------------------------------------- */

/* Carries what one end says to the other. */
struct carrier {
    int from, to;
    uint64_t count, cut_at, kill_at;
    pid_t speaker;
    bool over;
};

static void send_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t done = send(fd, data, len, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return; /* it is gone, which its exit code tells */
        }
        data += done;
        len -= (size_t)done;
    }
}

static void carry(struct carrier *carrier, bool slow, struct poise_rng *rng)
{
    char buffer[1 << 14];
    size_t most = sizeof buffer;
    ssize_t received;

    if (slow) {
        most = 1 + poise_rng_below(rng, poise_rng_below(rng, 2) ? 20 : 5000);
        if (poise_rng_below(rng, 16) == 0) {
            usleep((useconds_t)poise_rng_below(rng, 3000));
        }
    }
    if (most > carrier->cut_at - carrier->count) {
        most = (size_t)(carrier->cut_at - carrier->count);
    }
    received = most > 0 ? read(carrier->from, buffer, most) : 0;
    if (received <= 0) {
        carrier->over = true;
        shutdown(carrier->to, SHUT_WR);
        return;
    }
    carrier->count += (uint64_t)received;
    if (carrier->count >= carrier->kill_at) {
        carrier->kill_at = never;
        kill(carrier->speaker, SIGKILL);
    }
    send_all(carrier->to, buffer, (size_t)received);
}

/* Both ends' exits. What both have to say at once always fits: an end reads
 * whatever else it does. */
static void run(const struct plan *plan, const struct side *sides,
                int status[ENDS])
{
    int fds[ENDS][2];
    struct carrier carriers[ENDS];
    struct poise_rng rng;

    poise_rng_seed(&rng, plan->seed);
    memset(why, 0, ENDS * sizeof *why);
    fflush(stdout);
    fflush(stderr);
    for (int i = 0; i < ENDS; i++) {
        assert_int_equal(
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds[i]), 0);
    }
    for (int i = 0; i < ENDS; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(fds[0][0]);
            close(fds[1][0]);
            close(fds[!i][1]);
            _exit(live(plan, sides, i, fds[i][1]));
        }
        carriers[i] = (struct carrier){.from = fds[i][0],
                                       .to = fds[!i][0],
                                       .cut_at = plan->cut_at[i],
                                       .kill_at = plan->kill_at[i],
                                       .speaker = pid};
    }
    close(fds[0][1]);
    close(fds[1][1]);
    while (!carriers[0].over || !carriers[1].over) {
        struct pollfd pollers[ENDS];
        for (int i = 0; i < ENDS; i++) {
            pollers[i] =
                (struct pollfd){.fd = carriers[i].over ? -1 : carriers[i].from,
                                .events = POLLIN};
        }
        poll(pollers, ENDS, -1);
        for (int i = 0; i < ENDS; i++) {
            if (pollers[i].revents) {
                carry(&carriers[i], plan->slow, &rng);
            }
        }
        if (carriers[0].over && plan->cut_at[0] != never) {
            break; /* a cut takes both directions */
        }
        if (carriers[1].over && plan->cut_at[1] != never) {
            break;
        }
    }
    close(fds[0][0]);
    close(fds[1][0]);
    for (int i = 0; i < ENDS; i++) {
        assert_int_equal(waitpid(carriers[i].speaker, &status[i], 0),
                         carriers[i].speaker);
    }
}

/* ---- caches and data ---------------------------------------------------- */

/* The names in a cache but its lock; how many. */
static size_t list(const char *folder, char names[][64], size_t most)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    size_t count = 0;

    while (dir && count < most && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "lock") != 0) {
            snprintf(names[count++], 64, "%.63s", entry->d_name);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return count;
}

static void flip(const char *path, off_t size, struct poise_rng *rng)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint64_t noise = poise_rng_next(rng);
    off_t at = (off_t)poise_rng_below(rng, (uint64_t)size);

    if (fd >= 0) {
        assert_true(pwrite(fd, &noise, 1 + poise_rng_below(rng, 8), at) > 0);
        close(fd);
    }
}

static void remove_cache(const char *folder)
{
    char names[256][64], path[TEMPORARY_MORE + 80];
    size_t count;

    while ((count = list(folder, names, 256)) > 0) {
        for (size_t i = 0; i < count; i++) {
            snprintf(path, sizeof path, "%s/%s", folder, names[i]);
            assert_int_equal(unlink(path), 0);
        }
    }
}

/* Cut, flip, lengthen, remove, exchange or bring in something. */
static void damage(const struct side *side, const struct side *other,
                   struct poise_rng *rng)
{
    char names[256][64], path[TEMPORARY_MORE + 80], from[TEMPORARY_MORE + 80];
    size_t count = list(side->folder, names, 256), i, k;
    struct stat st;

    if (count == 0) {
        return;
    }
    i = poise_rng_below(rng, count);
    k = poise_rng_below(rng, count);
    snprintf(path, sizeof path, "%s/%s", side->folder, names[i]);
    snprintf(from, sizeof from, "%s/%s", side->folder, names[k]);
    assert_int_equal(stat(path, &st), 0);
    switch (poise_rng_below(rng, 7)) {
    case 0:
        unlink(path);
        break;
    case 1:
        assert_int_equal(truncate(path, (off_t)poise_rng_below(
                                            rng, (uint64_t)st.st_size + 1)),
                         0);
        break;
    case 2:
        assert_int_equal(truncate(path, st.st_size + 1000), 0);
        break;
    case 3:                                   /* one in the place of another */
        if (strcmp(names[i], "store") != 0) { /* its kind would be told */
            rename(from, path);
        }
        break;
    case 4: /* that of another cache, if it has the like */
        snprintf(from, sizeof from, "%s/%s", other->folder, names[i]);
        rename(from, path);
        break;
    case 5:
        remove_cache(side->folder);
        break;
    default:
        if (st.st_size > 0) {
            flip(path, st.st_size, rng);
        }
    }
}

/* What there is to send becomes a later version of itself, or of what the
 * other end sends. */
static void change(struct side *side, const struct side *other,
                   struct poise_rng *rng)
{
    const struct side *of = poise_rng_below(rng, 4) == 0 ? other : side;
    unsigned char *made = malloc(DATA_MOST);
    size_t len = 0, from = 0;

    assert_non_null(made);
    while (len < DATA_MOST && from < of->len) {
        size_t n = 1 + poise_rng_below(rng, 40000);
        n = n < of->len - from ? n : of->len - from;
        n = n < DATA_MOST - len ? n : DATA_MOST - len;
        memcpy(made + len, of->data + from, n);
        len += n;
        from += n;
        if (poise_rng_below(rng, 3) == 0) {
            n = poise_rng_below(rng, poise_rng_below(rng, 2) ? 30 : 20000);
            n = n < DATA_MOST - len ? n : DATA_MOST - len;
            data_fill(made + len, n,
                      (enum dedup_data)poise_rng_below(rng, DATA_KINDS), rng);
            len += n;
        }
        from += poise_rng_below(rng, 3) ? 0 : poise_rng_below(rng, 9000);
    }
    free(side->data);
    side->data = made;
    side->len = len;
}

/* ---- rounds ------------------------------------------------------------- */

static uint64_t some_byte(struct poise_rng *rng)
{
    /* Early ones as likely as late ones. */
    return poise_rng_below(rng, UINT64_C(1) << (4 + poise_rng_below(rng, 14)));
}

static void some_fault(char out[64], struct poise_rng *rng)
{
    static const struct {
        const char *kind;
        unsigned most;
    } kinds[] = {{"alloc", 600}, {"open", 12},  {"read", 40}, {"write", 40},
                 {"sync", 6},    {"rename", 6}, {"stat", 20}};
    static const char *const codes[] = {"", ":EIO", ":ENOSPC", ":KILL"};
    size_t i = poise_rng_below(rng, sizeof kinds / sizeof *kinds);

    snprintf(out, 64, "%s:%u%s%s", kinds[i].kind,
             1 + (unsigned)poise_rng_below(
                     rng, 1 + poise_rng_below(rng, kinds[i].most)),
             poise_rng_below(rng, 3) == 0 ? "+" : "",
             codes[poise_rng_below(rng, 4)]);
}

static struct plan plain(uint64_t seed, struct poise_rng *rng)
{
    static const uint32_t widths[] = {0, 0, 0, 8, 12, 16, 40, 64};
    struct plan plan = {
        .seed = seed,
        .average = 32U << poise_rng_below(rng, 7),
        .bits = widths[poise_rng_below(rng, 8)],
        .cache_bytes = poise_rng_below(rng, 4) == 0 ? 400000 : 0,
        .cut_at = {never, never},
        .kill_at = {never, never},
    };
    size_t count = 0;

    while (poise_dedup_methods()[count]) {
        count++;
    }
    plan.method = poise_dedup_methods()[poise_rng_below(rng, count)];
    return plan;
}

/* Choose what happens; whether an end may fail of it. */
static bool choose(struct plan *plan, const struct side *sides,
                   struct poise_rng *rng, char said[SAID_BYTES])
{
    int which = (int)poise_rng_below(rng, ENDS);
    uint64_t deed = poise_rng_below(rng, 7);
    bool may_fail = true;

    plan->slow = poise_rng_below(rng, 4) == 0;
    if (deed == 0) {
        plan->cut_at[which] = some_byte(rng);
    } else if (deed == 1) {
        plan->kill_at[which] = 1 + some_byte(rng);
    } else if (deed < 5) {
        some_fault(plan->fault[which], rng);
    } else {
        may_fail = false;
    }
    if (deed == 6 || poise_rng_below(rng, 4) == 0) {
        for (unsigned i = (unsigned)poise_rng_below(rng, 4); i < 4; i++) {
            int end = (int)poise_rng_below(rng, ENDS);
            damage(&sides[end], &sides[!end], rng);
        }
    }
    snprintf(said, SAID_BYTES,
             "seed %llu: deed %llu at end %d, cut %lld %lld, kill %lld %lld, "
             "fault '%s' '%s', %s of %u bytes, %u bits%s",
             (unsigned long long)plan->seed, (unsigned long long)deed, which,
             (long long)plan->cut_at[0], (long long)plan->cut_at[1],
             (long long)plan->kill_at[0], (long long)plan->kill_at[1],
             plan->fault[0], plan->fault[1], plan->method->name, plan->average,
             plan->bits, plan->slow ? ", slow" : "");
    return may_fail;
}

static bool is_killed(const struct plan *plan, int which, int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL &&
           (plan->kill_at[which] != never ||
            strstr(plan->fault[which], "KILL"));
}

static void check(const struct plan *plan, const int status[ENDS],
                  bool may_fail, const char *said)
{
    for (int i = 0; i < ENDS; i++) {
        bool good = WIFEXITED(status[i]) &&
                    (WEXITSTATUS(status[i]) == EXIT_RIGHT ||
                     (may_fail && WEXITSTATUS(status[i]) == EXIT_ERROR));
        if (!good && !is_killed(plan, i, status[i])) {
            fail_msg("end %d: statuses %#x, '%s'; %#x, '%s' (%s)", i,
                     (unsigned)status[0], why[0], (unsigned)status[1], why[1],
                     said);
        }
    }
}

static void one_round(struct side sides[ENDS], uint64_t seed)
{
    struct poise_rng rng;
    struct plan plan, again;
    char said[SAID_BYTES];
    int status[ENDS];
    bool may_fail;

    poise_rng_seed(&rng, seed);
    for (int i = 0; i < ENDS; i++) {
        change(&sides[i], &sides[!i], &rng);
    }
    plan = plain(seed, &rng);
    may_fail = choose(&plan, sides, &rng, said);
    run(&plan, sides, status);
    check(&plan, status, may_fail, said);
    again = plain(seed, &rng);
    again.bits = plan.bits;
    again.method = plan.method;
    again.average = plan.average;
    run(&again, sides, status);
    check(&again, status, false, said);
}

static void test_faults(void **state)
{
    const char *minutes = getenv("POISE_TEST_MINUTES");
    const char *seed = getenv("POISE_TEST_SEED");
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 1, rounds = 0;
    uint64_t begun = poise_clock_ns(), ns = 0;
    struct side sides[ENDS] = {0};

    (void)state;
    why = mmap(NULL, ENDS * sizeof *why, PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(why, MAP_FAILED);
    if (getenv("POISE_TEST_SOAK") || minutes) {
        ns = (minutes ? strtoull(minutes, NULL, 10) : 10) * 60 *
             UINT64_C(1000000000);
    }
    for (int i = 0; i < ENDS; i++) {
        temporary_name(sides[i].folder, "wire");
        assert_non_null(mkdtemp(sides[i].folder));
        sides[i].data = data_make(DATA_MOST / 2, DATA_MIXED, first);
        sides[i].len = DATA_MOST / 2;
        assert_non_null(sides[i].data);
    }
    while (rounds < ROUNDS || poise_clock_ns() - begun < ns) {
        one_round(sides, first + rounds++);
        for (int i = 0; i < ENDS; i++) {
            if (sides[i].len < 1000) {
                free(sides[i].data);
                sides[i].data = data_make(DATA_MOST, DATA_MIXED, rounds);
                sides[i].len = DATA_MOST;
                assert_non_null(sides[i].data);
            }
        }
    }
    munmap(why, ENDS * sizeof *why);
    if (ns > 0) {
        print_message("%llu rounds\n", (unsigned long long)rounds);
    }
    for (int i = 0; i < ENDS; i++) {
        char lock[TEMPORARY_MORE + 80];
        remove_cache(sides[i].folder);
        snprintf(lock, sizeof lock, "%s/lock", sides[i].folder);
        unlink(lock);
        assert_int_equal(rmdir(sides[i].folder), 0);
        free(sides[i].data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
