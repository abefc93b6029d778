/* A cache that processes share: what one adds the others find, whoever dies. */
#include "dedup/cache/sharing.h"
#include "folder.h"

#include <poise/store.h>

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>

static const struct poise_dedup_store_options small = {
    .container_bytes = 1 << 16, .memory_bytes = 4 << 20, .shared = true};
static const struct poise_dedup_store_options alone = {
    .container_bytes = 1 << 16, .memory_bytes = 4 << 20};

/* Another process that uses the cache. */
struct other {
    pid_t pid;
    int to, from;
};

/* It adds those that it is told, flushes, and says so; an empty range ends
 * it. It is made before this process has any thread. */
static struct other start_other(void)
{
    int down[2], up[2];
    struct other other;

    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    other.pid = fork();
    assert_true(other.pid >= 0);
    if (other.pid == 0) {
        struct poise_dedup_store *store = NULL;
        uint64_t range[2], at;
        close(down[1]);
        close(up[0]);
        while (read(down[0], range, sizeof range) == sizeof range &&
               range[0] < range[1]) {
            int code =
                store ? 0 : poise_dedup_store_open(folder, &small, &store);
            for (uint64_t i = range[0]; i < range[1] && code == 0; i++) {
                code = add(store, i, &at);
            }
            code = code < 0 ? code : poise_dedup_store_flush(store);
            if (write(up[1], &code, sizeof code) != sizeof code) {
                _exit(1);
            }
        }
        _exit(poise_dedup_store_close(store) < 0);
    }
    close(down[0]);
    close(up[1]);
    other.to = down[1];
    other.from = up[0];
    return other;
}

static void let_add(const struct other *other, uint64_t from, uint64_t to)
{
    uint64_t range[2] = {from, to};
    int code = -1;

    assert_int_equal(write(other->to, range, sizeof range), sizeof range);
    assert_int_equal(read(other->from, &code, sizeof code), sizeof code);
    assert_int_equal(code, 0);
}

static void end_other(struct other *other, bool kills)
{
    uint64_t end[2] = {0, 0};
    int status = 0;

    if (kills) {
        assert_int_equal(kill(other->pid, SIGKILL), 0);
    } else {
        assert_int_equal(write(other->to, end, sizeof end), sizeof end);
    }
    assert_int_equal(waitpid(other->pid, &status, 0), other->pid);
    assert_true(kills ? WIFSIGNALED(status) : status == 0);
    close(other->to);
    close(other->from);
}

/* All are there for who has the cache alone, too. */
static void check_all(uint64_t to)
{
    struct poise_dedup_store *store = open_store(folder, &alone);

    assert_int_equal(poise_dedup_store_info(store).damaged, 0);
    assert_int_equal(count_found(store, to), to);
    assert_int_equal(poise_dedup_store_close(store), 0);
}

static int mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4400];
    int count = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        count += strstr(line, "memfd:poise-cache") != NULL;
    }
    fclose(maps);
    return count;
}

/* Who serves itself has the index in memory once. */
static void test_once(void **state)
{
    struct poise_dedup_store *one = open_store(folder, &small), *two;

    (void)state;
    assert_int_equal(mappings(), 1);
    two = open_store(folder, &small);
    assert_int_equal(mappings(), 2);
    fill(one, 0, 100);
    assert_int_equal(poise_dedup_store_flush(one), 0);
    assert_int_equal(count_found(two, 100), 100);
    assert_int_equal(poise_dedup_store_close(two), 0);
    assert_int_equal(count_found(one, 100), 100);
    assert_int_equal(poise_dedup_store_close(one), 0);
    assert_int_equal(mappings(), 0);
    empty_folder();
}

/* Two handles; the one that serves goes first, then the other one goes on. */
static void test_shared(void **state)
{
    struct poise_dedup_store *one = open_store(folder, &small);
    struct poise_dedup_store *two = open_store(folder, &small), *three = NULL;
    struct poise_dedup_store_info info = poise_dedup_store_info(one);
    uint64_t at, next, again;

    (void)state;
    assert_true(info.id == poise_dedup_store_info(two).id);
    assert_memory_equal(&info.key, &two->info.key, sizeof info.key);
    fill(one, 0, 300);
    assert_int_equal(count_found(one, 300), 300);
    assert_int_equal(poise_dedup_store_flush(one), 0);
    assert_int_equal(count_found(two, 300), 300);
    /* What is there is not added again, and keeps its order. */
    assert_true(has(one, 7, &at));
    assert_int_equal(add(two, 7, &again), 0);
    assert_true(again == at);
    assert_int_equal(poise_dedup_store_step(two, at, 290, &next), 1);
    assert_true(has(two, 297, &again) && again == next);
    /* Both write at once, each into its own. */
    for (uint64_t i = 300; i < 900; i++) {
        assert_int_equal(add(i % 2 ? one : two, i, &at), 0);
    }
    assert_int_equal(poise_dedup_store_flush(one), 0);
    assert_int_equal(poise_dedup_store_flush(two), 0);
    assert_int_equal(count_found(one, 900), 900);
    assert_int_equal(count_found(two, 900), 900);
    assert_true(poise_dedup_store_info(two).containers > 5);
    /* Who wants it alone is told that it is not. */
    assert_int_equal(poise_dedup_store_open(folder, &alone, &three), -EBUSY);
    assert_int_equal(poise_dedup_store_close(one), 0);
    assert_int_equal(count_found(two, 900), 900);
    fill(two, 900, 1300);
    assert_int_equal(count_found(two, 1300), 1300);
    assert_int_equal(poise_dedup_store_close(two), 0);
    check_all(1300);
    /* And the other way round. */
    one = open_store(folder, &alone);
    assert_int_equal(poise_dedup_store_open(folder, &small, &two), -EBUSY);
    assert_int_equal(poise_dedup_store_close(one), 0);
    empty_folder();
}

/* A small cache does not get a container for each who opens it. */
static void test_continued(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 20; i++) {
        struct poise_dedup_store *store = open_store(folder, &small);
        fill(store, 10 * i, 10 * i + 10);
        assert_int_equal(poise_dedup_store_close(store), 0);
    }
    struct poise_dedup_store *store = open_store(folder, &alone);
    assert_true(poise_dedup_store_info(store).containers <= 4);
    assert_int_equal(poise_dedup_store_close(store), 0);
    check_all(200);
    empty_folder();
}

/* Who serves is stopped, before another one opens the cache or while that uses
 * it: which finds all, its own, too, and when the server goes on that and
 * others find what was added. */
static void test_stopped(void **state)
{
    struct poise_dedup_store_options hasty = small;

    (void)state;
    hasty.wait_ms = 40;
    for (int later = 0; later < 2; later++) {
        struct other first = start_other();
        struct poise_dedup_store *store = NULL, *two;
        uint64_t at;
        let_add(&first, 0, 200);
        if (later) {
            store = open_store(folder, &small);
            store->options.wait_ms = hasty.wait_ms;
            assert_int_equal(count_found(store, 200), 200);
        }
        assert_int_equal(kill(first.pid, SIGSTOP), 0);
        store = store ? store : open_store(folder, &hasty);
        assert_int_equal(count_found(store, 200), 200);
        fill(store, 200, 800);
        assert_int_equal(count_found(store, 800), 800);
        assert_int_equal(poise_dedup_store_flush(store), 0);
        /* What is known is not added again. */
        assert_true(poise_dedup_store_info(store).segments == 600);
        assert_int_equal(add(store, 300, &at), 0);
        assert_true(poise_dedup_store_info(store).segments == 600);
        /* Another one without server: each writes its own. */
        two = open_store(folder, &hasty);
        assert_int_equal(count_found(two, 800), 800);
        fill(two, 800, 1000);
        assert_int_equal(kill(first.pid, SIGCONT), 0);
        store->options.wait_ms = two->options.wait_ms = 1000000;
        assert_int_equal(poise_dedup_store_close(two), 0);
        assert_int_equal(poise_dedup_store_close(store), 0);
        store = open_store(folder, &small);
        assert_int_equal(count_found(store, 1000), 1000);
        fill(store, 1000, 1100);
        let_add(&first, 1100, 1200);
        assert_int_equal(count_found(store, 1200), 1200);
        assert_int_equal(poise_dedup_store_close(store), 0);
        end_other(&first, false);
        check_all(1200);
        empty_folder();
    }
}

/* Who serves is killed, or who is served, or goes; the others find all that
 * was flushed, and add more. */
static void test_killed(void **state)
{
    (void)state;
    for (int round = 0; round < 6; round++) {
        struct other first = start_other(), second = start_other();
        struct poise_dedup_store *store;
        let_add(&first, 0, 200);
        let_add(&second, 200, 400);
        store = open_store(folder, &small);
        assert_int_equal(count_found(store, 400), 400);
        end_other(round % 2 ? &first : &second, round < 4);
        assert_int_equal(count_found(store, 400), 400);
        fill(store, 400, 800);
        assert_int_equal(poise_dedup_store_flush(store), 0);
        let_add(round % 2 ? &second : &first, 800, 1200);
        assert_int_equal(poise_dedup_store_flush(store), 0);
        end_other(round % 2 ? &second : &first, false);
        assert_int_equal(poise_dedup_store_close(store), 0);
        check_all(1200);
        empty_folder();
    }
}

/* All others die, and nobody closes anything. */
static void test_all_killed(void **state)
{
    struct other others[3];

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        others[i] = start_other();
    }
    for (size_t i = 0; i < 3; i++) {
        let_add(&others[i], 300 * i, 300 * i + 300);
    }
    for (size_t i = 0; i < 3; i++) {
        end_other(&others[i], true);
    }
    check_all(900);
    empty_folder();
}

/* ---- without sockets ---------------------------------------------------- */

struct asked {
    int err, pass;
    struct poise_buf answer;
    struct poise_reader reader; /* behind the op */
};

/* Say words to a server that has no thread. */
static struct asked ask(struct poise_dedup_server *server,
                        struct cache_client *client, const uint64_t *words,
                        size_t count)
{
    struct asked asked = {0};
    struct poise_buf question = {0};

    for (size_t i = 0; i < count; i++) {
        poise_buf_u64(&question, words[i]);
    }
    asked.err = cache_server_answer(server, client, question.data, question.len,
                                    &asked.answer, &asked.pass);
    asked.reader = poise_reader_of(asked.answer.data, asked.answer.len);
    if (asked.err == 0) {
        assert_true(poise_reader_u64(&asked.reader) == words[0]);
    }
    poise_buf_free(&question);
    return asked;
}

#define ASK(server, client, ...)                                               \
    ask(server, client, (const uint64_t[]){__VA_ARGS__},                       \
        sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))
#define TELL(server, client, ...) forget(ASK(server, client, __VA_ARGS__))

static int forget(struct asked asked)
{
    poise_buf_free(&asked.answer);
    return asked.err;
}

/* A container with some bytes, as a client would have written it. */
static uint64_t write_container(struct poise_dedup_server *server,
                                struct cache_client *client, uint64_t bytes)
{
    struct asked asked = ASK(server, client, CACHE_NEW, CACHE_FRESH);
    uint64_t id = poise_reader_u64(&asked.reader);

    assert_int_equal(forget(asked), 0);
    assert_int_equal(
        TELL(server, client, CACHE_LEARN, id, bytes, 0, 1, id * 77, 3), 0);
    assert_int_equal(TELL(server, client, CACHE_CLOSE, id), 0);
    return id;
}

static uint64_t listed(struct poise_dedup_server *server,
                       struct cache_client *client, uint64_t ids[64])
{
    struct asked asked = ASK(server, client, CACHE_LIST, 0, 0);
    uint64_t count;

    assert_int_equal(asked.err, 0);
    poise_reader_u64(&asked.reader);
    assert_true(poise_reader_u64(&asked.reader) == CACHE_FULL);
    poise_reader_u64(&asked.reader);
    count = poise_reader_u64(&asked.reader);
    assert_true(count <= 64);
    for (uint64_t i = 0; i < count; i++) {
        ids[i] = poise_reader_u64(&asked.reader);
        poise_reader_u64(&asked.reader);
        poise_reader_u64(&asked.reader);
        assert_true(poise_reader_u64(&asked.reader) == 1);
    }
    assert_int_equal(poise_reader_left(&asked.reader), 0);
    forget(asked);
    return count;
}

/* What is held goes last; who dies holds nothing. */
static void test_leases(void **state)
{
    enum { BYTES = 60000 };
    struct poise_dedup_store_options options = small;
    struct cache_client one = {.fd = -1, .number = 1},
                        two = {.fd = -1, .number = 2};
    struct poise_dedup_server *server;
    uint64_t ids[64], first, second, third;

    (void)state;
    options.limit_bytes = 3 * BYTES;
    assert_int_equal(cache_server_make(folder, &options, &server), 0);
    assert_int_equal(TELL(server, &one, CACHE_LIST, 0, 0), -EBADMSG);
    assert_int_equal(TELL(server, &one, CACHE_HELLO, 7), -EPROTO);
    assert_int_equal(TELL(server, &one, CACHE_HELLO, CACHE_VERSION), 0);
    assert_int_equal(TELL(server, &one, CACHE_HELLO, CACHE_VERSION), -EBADMSG);
    assert_int_equal(TELL(server, &two, CACHE_HELLO, CACHE_VERSION), 0);
    first = write_container(server, &one, BYTES);
    second = write_container(server, &one, BYTES);
    third = write_container(server, &one, BYTES);
    assert_int_equal(listed(server, &two, ids), 3);
    /* The first is the oldest, and held. */
    assert_int_equal(TELL(server, &two, CACHE_LEASE, 1, 0, first), 0);
    assert_int_equal(TELL(server, &two, CACHE_LEASE, 1, 0, second), 0);
    assert_int_equal(TELL(server, &two, CACHE_LEASE, 0, 1, second), 0);
    write_container(server, &one, BYTES);
    assert_int_equal(listed(server, &two, ids), 3);
    assert_true(ids[0] == first && ids[1] == second && third != ids[2]);
    write_container(server, &one, BYTES);
    assert_int_equal(listed(server, &two, ids), 3);
    assert_true(ids[0] == first && ids[1] != second);
    /* Who holds all cannot make the cache grow. */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(TELL(server, &two, CACHE_LEASE, 1, 0, ids[i]), 0);
    }
    write_container(server, &one, BYTES);
    assert_int_equal(listed(server, &two, ids), 3);
    /* Whoever dies lets go. */
    assert_int_equal(cache_server_disconnect(server, &two), 0);
    assert_int_equal(two.held.len, 0);
    write_container(server, &one, BYTES);
    assert_int_equal(cache_server_disconnect(server, &one), 0);
    cache_server_free(server);
    empty_folder();
}

/* Where others write nobody else may; a list tells what changed. */
static void test_changes(void **state)
{
    struct cache_client one = {.fd = -1, .number = 1},
                        two = {.fd = -1, .number = 2};
    struct poise_dedup_server *server;
    struct asked asked;
    uint64_t id, changes;

    (void)state;
    assert_int_equal(cache_server_make(folder, &small, &server), 0);
    assert_int_equal(TELL(server, &one, CACHE_HELLO, CACHE_VERSION), 0);
    assert_int_equal(TELL(server, &two, CACHE_HELLO, CACHE_VERSION), 0);
    asked = ASK(server, &one, CACHE_NEW, 0);
    id = poise_reader_u64(&asked.reader);
    assert_int_equal(forget(asked), 0);
    assert_int_equal(TELL(server, &two, CACHE_LEARN, id, 99, 0, 1, 5, 5),
                     -EBADMSG);
    asked = ASK(server, &two, CACHE_NEW, 0);
    assert_true(poise_reader_u64(&asked.reader) > id);
    forget(asked);
    asked = ASK(server, &two, CACHE_LIST, 0, 0);
    changes = poise_reader_u64(&asked.reader);
    forget(asked);
    assert_int_equal(TELL(server, &one, CACHE_LEARN, id, 99, 0, 2, 5, 5, 6, 6),
                     0);
    asked = ASK(server, &two, CACHE_LIST, changes, 0);
    assert_true(poise_reader_u64(&asked.reader) == changes + 1);
    assert_true(poise_reader_u64(&asked.reader) == 0);
    poise_reader_u64(&asked.reader);
    assert_true(poise_reader_u64(&asked.reader) == 1);
    assert_true(poise_reader_u64(&asked.reader) == id);
    assert_true(poise_reader_u64(&asked.reader) == 99);
    assert_true(poise_reader_u64(&asked.reader) == 2);
    assert_true(poise_reader_u64(&asked.reader) == 1);
    forget(asked);
    /* Nonsense. */
    assert_int_equal(TELL(server, &one, 0), -EBADMSG);
    assert_int_equal(TELL(server, &one, CACHE_OPS), -EBADMSG);
    assert_int_equal(TELL(server, &one, CACHE_LEARN, id, 99, 65535, 1, 5, 5),
                     -EBADMSG);
    assert_int_equal(TELL(server, &one, CACHE_LEARN, id, 99, 0, 2, 5, 5),
                     -EBADMSG);
    assert_int_equal(
        TELL(server, &one, CACHE_LEARN, UINT64_C(1) << 40, 99, 0, 0), -EBADMSG);
    assert_int_equal(TELL(server, &one, CACHE_CLOSE, id, 4), -EBADMSG);
    /* There was never such a file: what it told is forgotten. */
    assert_int_equal(cache_server_disconnect(server, &one), 0);
    assert_int_equal(cache_server_disconnect(server, &two), 0);
    assert_int_equal(server != NULL, 1);
    cache_server_free(server);
    empty_folder();
}

/* A lot of containers, many of which change while nobody looks. */
static void test_many(void **state)
{
    enum { COUNT = 5000 };
    struct poise_dedup_server *server;
    struct cache_client client = {.fd = -1, .number = UINT64_MAX};
    struct poise_dedup_store *store;
    uint64_t at;

    (void)state;
    assert_int_equal(poise_dedup_server_open(folder, &small, &server), 0);
    store = open_store(folder, &small);
    fill(store, 0, 10);
    /* No thread takes anything meanwhile: nobody asks. */
    assert_int_equal(TELL(server, &client, CACHE_HELLO, CACHE_VERSION), 0);
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_int_equal(
            TELL(server, &client, CACHE_LEARN, 100 + i, 1, 0, 1, i, 0), 0);
        assert_int_equal(TELL(server, &client, CACHE_CLOSE, 100 + i), 0);
    }
    assert_true(has(store, 0, &at));
    assert_int_equal(poise_dedup_store_step(store, at, 9, &at), 1);
    assert_int_equal(count_found(store, 10), 10);
    assert_int_equal(poise_dedup_store_info(store).containers, COUNT + 1);
    assert_int_equal(poise_dedup_server_stats(server).containers, COUNT + 1);
    assert_int_equal(poise_dedup_server_stats(server).clients, 1);
    assert_int_equal(cache_server_disconnect(server, &client), 0);
    assert_int_equal(poise_dedup_store_close(store), 0);
    assert_int_equal(poise_dedup_server_close(server), 0);
    empty_folder();
}

/* Whoever answers nonsense, or nothing, is not believed. */
static void test_liar(void **state)
{
    int dirfd = open(folder, O_RDONLY | O_DIRECTORY), listener;
    struct poise_dedup_store *store = NULL;
    pid_t pid;
    int status;

    (void)state;
    assert_true(dirfd >= 0);
    for (int what = 0; what < 4; what++) {
        assert_int_equal(cache_listen(dirfd, &listener), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            static const uint64_t answers[4][3] = {
                {CACHE_LIST, 0, 0}, {CACHE_HELLO, 5, 5}, {CACHE_HELLO}, {0}};
            char heard[64];
            int fd = -1;
            if (fcntl(listener, F_SETFL, 0) == 0) { /* it may be here first */
                fd = accept(listener, NULL, NULL);
            }
            if (fd < 0) {
                _exit(1);
            }
            if (read(fd, heard, sizeof heard) <= 0 ||
                send(fd, answers[what], 24, MSG_NOSIGNAL) != 24) {
                _exit(0); /* this process was so slow that it was given up */
            }
            _exit(read(fd, heard, sizeof heard) > 0);
        }
        assert_true(poise_dedup_store_open(folder, &small, &store) < 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        close(listener);
    }
    close(dirfd);
    empty_folder();
}

/* ---- whatever fails ----------------------------------------------------- */

static void test_faults(void **state)
{
    static const struct {
        enum poise_fault kind;
        int code;
    } faults[] = {{POISE_FAULT_ALLOC, ENOMEM}, {POISE_FAULT_WRITE, ENOSPC},
                  {POISE_FAULT_OPEN, EMFILE},  {POISE_FAULT_READ, EIO},
                  {POISE_FAULT_SEND, EPIPE},   {POISE_FAULT_SYNC, EIO},
                  {POISE_FAULT_RENAME, EIO}};
    enum { COUNT = 200 };

    (void)state;
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        for (uint64_t k = 1;; k++) {
            struct poise_dedup_store *store = NULL;
            int code;
            poise_fault_arm(faults[f].kind, k, faults[f].code, false);
            code = poise_dedup_store_open(folder, &small, &store);
            for (uint64_t i = 0; i < COUNT && code == 0; i++) {
                uint64_t at;
                add(store, i, &at);
                has(store, i, NULL);
            }
            poise_dedup_store_close(store);
            bool struck = poise_fault_calls(faults[f].kind) >= k;
            poise_fault_arm(faults[f].kind, 0, 0, false);
            if (!struck) {
                assert_int_equal(code, 0);
                break;
            }
            if (code < 0) {
                assert_string_not_equal(poise_error_last()->doing, "");
            }
            store = open_store(folder, &alone);
            count_found(store, COUNT);
            fill(store, 0, COUNT);
            assert_int_equal(count_found(store, COUNT), COUNT);
            assert_int_equal(poise_dedup_store_close(store), 0);
            if (k % 2 == 0) {
                empty_folder();
            }
        }
        empty_folder();
    }
}

/* The clock is years ahead, then years behind: nothing is older for it. */
static void test_clock(void **state)
{
    static const time_t times[] = {0, 1, INT32_MAX, INT64_C(4102444800)};

    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct poise_dedup_store *store = open_store(folder, &small);
        struct timeval both[2] = {{.tv_sec = times[i]}, {.tv_sec = times[i]}};
        DIR *dir;
        struct dirent *entry;
        fill(store, 100 * i, 100 * i + 100);
        assert_int_equal(poise_dedup_store_flush(store), 0);
        dir = opendir(folder);
        assert_non_null(dir);
        while ((entry = readdir(dir)) != NULL) {
            char path[4400];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            utimes(path, both);
        }
        closedir(dir);
        assert_int_equal(count_found(store, 100 * i + 100), 100 * i + 100);
        assert_int_equal(poise_dedup_store_close(store), 0);
        check_all(100 * i + 100);
    }
    empty_folder();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* Those that fork come first: there are no threads yet. */
        cmocka_unit_test(test_stopped),    cmocka_unit_test(test_killed),
        cmocka_unit_test(test_all_killed), cmocka_unit_test(test_liar),
        cmocka_unit_test(test_shared),     cmocka_unit_test(test_continued),
        cmocka_unit_test(test_leases),     cmocka_unit_test(test_changes),
        cmocka_unit_test(test_many),       cmocka_unit_test(test_faults),
        cmocka_unit_test(test_clock),      cmocka_unit_test(test_once),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
