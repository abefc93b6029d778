/*
 * Hostile peers: of the server of a shared cache, of its clients, of an end of
 * the wire; and what lies in a cache's folder. Whatever they say, and wherever
 * they stop: nobody hangs or dies, no memory is taken because they say so, what
 * is found is what was added, and who is honest goes on.
 *
 * POISE_TEST_SECONDS makes it go on for so long, with another seed each time
 * (the soak); the seed is printed when something is wrong.
 */
#include "dedup/cache/sharing.h"
#include "folder.h"

#include "../share.h"

#include "dedup/protocol/internal.h"

#include <poise/store.h>

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

enum { KNOWN = 300, CLIENTS = 70, WORDS = 40 };

static const struct poise_dedup_store_options hasty = {.container_bytes = 1
                                                                          << 16,
                                                       .memory_bytes = 4 << 20,
                                                       .shared = true,
                                                       .wait_ms = 20};

/* Numbers that somebody may have forgotten. */
static uint64_t number(struct poise_rng *rng)
{
    static const uint64_t many[] = {0,          1,
                                    2,          255,
                                    65535,      65536,
                                    1 << 20,    INT32_MAX,
                                    UINT32_MAX, UINT64_C(1) << 32,
                                    INT64_MAX,  UINT64_C(1) << 63,
                                    UINT64_MAX};

    return poise_rng_below(rng, 3)
               ? many[poise_rng_below(rng, sizeof many / sizeof *many)]
               : poise_rng_below(rng, 1000);
}

/* A message of some kind, whose words are anything. */
static void put_words(struct poise_buf *out, uint64_t op, struct poise_rng *rng)
{
    uint64_t words = poise_rng_below(rng, WORDS);

    poise_buf_u64(out, op);
    for (uint64_t i = 0; i < words; i++) {
        poise_buf_u64(out, number(rng));
    }
    if (poise_rng_below(rng, 9) == 0) {
        poise_buf_putc(out, 7);
    }
}

/* What was there is there or not, and right; new things can be added. */
static void check_honest(const char *said, uint64_t seed, bool all)
{
    struct poise_dedup_store *store = NULL;
    int code = poise_dedup_store_open(folder, &hasty, &store);

    if (code < 0 || (all && count_found(store, KNOWN) < KNOWN)) {
        print_message("%s, seed %llu: code %d: %s\n", said,
                      (unsigned long long)seed, code,
                      code < 0 ? poise_error_last()->why : "");
    }
    assert_int_equal(code, 0);
    count_found(store, KNOWN);
    fill(store, 0, KNOWN);
    assert_int_equal(count_found(store, KNOWN), KNOWN);
    assert_int_equal(poise_dedup_store_close(store), 0);
}

static void make_cache(void)
{
    struct poise_dedup_store *store = open_store(folder, &hasty);

    fill(store, 0, KNOWN);
    assert_int_equal(poise_dedup_store_close(store), 0);
}

/* ---- clients of a server ------------------------------------------------ */

static int connect_to(int dirfd)
{
    int fd = -1;

    return cache_connect(dirfd, &fd) == 0 ? fd : -1;
}

static void flood(int dirfd, struct poise_rng *rng)
{
    int fds[CLIENTS];

    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = connect_to(dirfd);
    }
    for (int round = 0; round < 300; round++) {
        int fd = fds[poise_rng_below(rng, CLIENTS)];
        struct poise_buf out = {0};
        if (poise_rng_below(rng, 4) == 0) {
            poise_buf_u64(&out, CACHE_HELLO);
            poise_buf_u64(&out, CACHE_VERSION);
        } else {
            put_words(&out, poise_rng_below(rng, CACHE_OPS + 1), rng);
        }
        /* Nobody reads the answers. */
        if (fd >= 0) {
            cache_send(fd, out.data, out.len,
                       poise_rng_below(rng, 9) ? -1 : dirfd);
        }
        poise_buf_free(&out);
    }
    poise_error_clear();
    for (int i = 0; i < CLIENTS; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
}

/* More connections than there may be, which say nothing; messages of all
 * kinds. */
static void check_clients(uint64_t seed)
{
    struct poise_dedup_server *server = NULL;
    struct poise_rng rng;
    int fds[CLIENTS], dirfd;

    poise_rng_seed(&rng, seed);
    make_cache();
    dirfd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dirfd >= 0);
    assert_int_equal(poise_dedup_server_open(folder, &hasty, &server), 0);
    for (int i = 0; i < CLIENTS; i++) {
        fds[i] = connect_to(dirfd);
    }
    check_honest("silent clients", seed, true);
    for (int i = 0; i < CLIENTS; i++) {
        if (fds[i] >= 0) {
            close(fds[i]);
        }
    }
    flood(dirfd, &rng);
    check_honest("a flood", seed, false);
    assert_int_equal(poise_dedup_server_close(server), 0);
    close(dirfd);
    check_honest("after a flood", seed, false);
    empty_folder();
}

static void test_clients(void **state)
{
    (void)state;
    check_clients(1);
}

/* ---- who says that it serves -------------------------------------------- */

/* Answer as a server would, until some message from which on: nothing, or
 * anything. */
static void pretend(int listener, uint64_t seed)
{
    static unsigned char message[CACHE_MESSAGE_MOST];
    struct poise_rng rng;

    poise_rng_seed(&rng, seed);
    for (;;) {
        int fd = accept(listener, NULL, NULL), passed;
        uint64_t right = poise_rng_below(&rng, 3);
        bool is_silent = poise_rng_below(&rng, 2) == 0;
        for (;;) {
            ssize_t len = cache_receive(fd, message, sizeof message,
                                        UINT64_C(1000000000), &passed);
            struct poise_buf answer = {0};
            if (len < 8 || (is_silent && right == 0)) {
                if (len >= 8) {
                    sleep(1);
                }
                break;
            }
            right -= right > 0;
            put_words(&answer,
                      poise_rng_below(&rng, 5) ? poise_get_u64(message)
                                               : number(&rng),
                      &rng);
            cache_send(fd, answer.data, answer.len,
                       poise_rng_below(&rng, 2) ? listener : -1);
            poise_buf_free(&answer);
        }
        close(fd);
    }
}

static pid_t start_pretender(uint64_t seed, uid_t uid)
{
    int ready[2];
    char byte = 0;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int dirfd, listener = -1;
        struct poise_dedup_store *store = NULL;
        if (uid != 0 && setuid(uid) != 0) {
            _exit(1);
        }
        dirfd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* It has the lock, and a byte in it. */
        if (dedup_store_make(&hasty, true, &store) < 0) {
            _exit(1);
        }
        store->serves = true;
        if (dedup_store_enter(store, folder) < 0 ||
            dedup_store_lock(store) < 0 || cache_listen(dirfd, &listener) < 0 ||
            fcntl(listener, F_SETFL, 0) < 0 || write(ready[1], "", 1) != 1) {
            _exit(1);
        }
        pretend(listener, seed);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void end_pretender(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void check_server(uint64_t seed)
{
    struct poise_dedup_store *store = NULL;
    pid_t pid;
    int code;

    make_cache();
    pid = start_pretender(seed, 0);
    code = poise_dedup_store_open(folder, &hasty, &store);
    /* What makes no sense is an error, what does not come is done without. */
    assert_true(code == 0 || code == -EBADMSG || code == -ECONNRESET ||
                code == -EBUSY || code == -EPROTO || code == -EPIPE);
    if (code == 0) {
        count_found(store, KNOWN);
        fill(store, 0, KNOWN + 200);
        poise_dedup_store_flush(store);
        assert_int_equal(count_found(store, KNOWN + 200), KNOWN + 200);
        poise_dedup_store_close(store);
    }
    poise_error_clear();
    end_pretender(pid);
    check_honest("after one that did not serve", seed, true);
    empty_folder();
}

static void test_server(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        if (in_share(seed)) {
            check_server(seed);
        }
    }
}

/* Another user's process serves in this user's folder: it is not spoken to. */
static void test_other_user(void **state)
{
    struct poise_dedup_store *store = NULL;
    pid_t pid;

    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    make_cache();
    assert_int_equal(chmod(folder, 0777), 0);
    unlinkat(AT_FDCWD, "lock", 0);
    empty_folder();
    pid = start_pretender(1, 65534);
    assert_int_equal(poise_dedup_store_open(folder, &hasty, &store), -EPERM);
    assert_non_null(strstr(poise_error_last()->why, "somebody else"));
    end_pretender(pid);
    empty_folder();
    assert_int_equal(chmod(folder, 0700), 0);
}

/* ---- files -------------------------------------------------------------- */

static const char others_words[] = "another one's words";

static void write_theirs(void)
{
    char path[4400];
    FILE *file;

    snprintf(path, sizeof path, "%s/theirs", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(others_words, 1, sizeof others_words, file),
                     sizeof others_words);
    assert_int_equal(fclose(file), 0);
}

static void check_theirs(void)
{
    char path[4400], found[sizeof others_words + 1];
    FILE *file;

    snprintf(path, sizeof path, "%s/theirs", folder);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fread(found, 1, sizeof found, file), sizeof others_words);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(found, others_words);
}

static void link_to_theirs(const char *name)
{
    char path[4400];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("theirs", path), 0);
}

/* Whether it was made a link. */
static bool spoil(const char *name, struct poise_rng *rng)
{
    char path[4400];
    struct stat st;
    bool links = false;
    int fd;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &st) == 0);
    switch (poise_rng_below(rng, 5)) {
    case 0:
        assert_int_equal(ftruncate(fd, (off_t)poise_rng_below(
                                           rng, (uint64_t)st.st_size + 1)),
                         0);
        break;
    case 1: /* endless */
        assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
        break;
    case 2:
        link_to_theirs(name);
        links = true;
        break;
    default:
        for (uint64_t i = 0; i <= poise_rng_below(rng, 20); i++) {
            uint64_t word = number(rng);
            off_t at = (off_t)poise_rng_below(rng, (uint64_t)st.st_size + 1);
            assert_true(pwrite(fd, &word, 8, at & ~(off_t)7) == 8);
        }
        break;
    }
    close(fd);
    return links;
}

/* The cache is not opened, and what its link leads to is as it was. Without the
 * links it is. */
static void check_refused(const struct poise_dedup_store_options *options)
{
    struct poise_dedup_store *store = NULL;
    struct dirent **entries;
    int count;

    assert_int_equal(poise_dedup_store_open(folder, options, &store), -ELOOP);
    assert_non_null(strstr(poise_error_last()->why, "is a symbolic link"));
    check_theirs();
    count = scandir(folder, &entries, NULL, alphasort);
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        char path[4400], to[sizeof others_words];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (readlink(path, to, sizeof to) > 0) {
            assert_int_equal(unlink(path), 0);
        }
        free(entries[i]);
    }
    free(entries);
}

/* The order of the folder is the file system's; that of names is not. */
static void check_files(uint64_t seed)
{
    struct poise_dedup_store *store = NULL;
    struct poise_rng rng;
    struct dirent **entries;
    bool links = false;
    int count;

    poise_rng_seed(&rng, seed);
    make_cache();
    count = scandir(folder, &entries, NULL, alphasort);
    assert_true(count > 0);
    write_theirs();
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        if (name[0] != '.' && strcmp(name, "socket") != 0 &&
            poise_rng_below(&rng, 2) == 0) {
            links |= spoil(name, &rng);
        }
        free(entries[i]);
    }
    free(entries);
    if (links) {
        check_refused(&hasty);
    } else {
        assert_int_equal(poise_dedup_store_open(folder, &hasty, &store), 0);
        assert_int_equal(poise_dedup_store_close(store), 0);
    }
    check_honest("spoilt files", seed, false);
    empty_folder();
}

/* Each file of a cache, a link. */
static void test_links(void **state)
{
    static const char *const names[] = {"lock", "store", "index",
                                        "000000000001.seg"};
    struct poise_dedup_store_options alone = hasty;

    (void)state;
    alone.shared = false;
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        make_cache();
        write_theirs();
        link_to_theirs(names[i / 2]);
        check_refused(i % 2 ? &hasty : &alone);
        check_honest("without the link", i, false);
        empty_folder();
    }
}

/* Made while the cache is open. */
static void test_later_links(void **state)
{
    static const char *const names[] = {"index", "000000000001.seg"};
    struct poise_dedup_store_options alone = hasty;

    (void)state;
    alone.shared = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct poise_dedup_store *store = open_store(folder, &alone);
        add(store, 0, &(uint64_t){0});
        assert_int_equal(poise_dedup_store_close(store), 0);
        write_theirs();
        store = open_store(folder, &alone);
        link_to_theirs(names[i]);
        add(store, 1, &(uint64_t){0});
        assert_int_equal(poise_dedup_store_close(store), -ELOOP);
        assert_non_null(strstr(poise_error_last()->why, "is a symbolic link"));
        check_theirs();
        empty_folder();
    }
}

static void test_files(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        if (in_share(seed)) {
            check_files(seed);
        }
    }
}

/* ---- an end of the wire ------------------------------------------------- */

static int take(uint32_t stream, const struct poise_dedup_piece *piece,
                void *arg)
{
    uint64_t *bytes = arg;

    (void)stream;
    *bytes += piece->len;
    return 0;
}

/* A block of messages of all kinds, with lengths of all sizes, as it is. */
static void put_block(struct poise_buf *out, struct poise_rng *rng)
{
    struct poise_buf raw = {0};
    uint64_t messages = 1 + poise_rng_below(rng, 6);

    for (uint64_t i = 0; i < messages; i++) {
        uint64_t words = poise_rng_below(rng, 6);
        poise_buf_putc(&raw, (char)poise_rng_below(rng, WIRE_OPS + 1));
        for (uint64_t k = 0; k < words; k++) {
            poise_buf_varint(&raw, number(rng));
        }
    }
    poise_buf_varint(out, poise_rng_below(rng, 20) ? raw.len : number(rng));
    poise_buf_varint(out, poise_rng_below(rng, 20) ? 0 : number(rng));
    poise_buf_append(out, raw.data, raw.len);
    poise_buf_free(&raw);
}

/* It greets like anybody; then it says anything, in any portions, while this
 * end sends, too. */
static void check_wire(uint64_t seed)
{
    struct poise_dedup_store *stores[2];
    struct poise_dedup_peer *peers[2];
    uint64_t bytes = 0;
    struct poise_buf said = {0};
    struct poise_rng rng;
    unsigned char data[1024];
    const void *out;
    size_t len;
    int code = 0;

    poise_rng_seed(&rng, seed);
    for (int i = 0; i < 2; i++) {
        struct poise_dedup_peer_options options = {.deliver = take,
                                                   .arg = &bytes};
        stores[i] = open_store(NULL, NULL);
        options.store = stores[i];
        assert_int_equal(poise_dedup_peer_create(&options, &peers[i]), 0);
    }
    /* What an honest one said, once, and again. */
    len = poise_dedup_peer_output(peers[1], &out);
    assert_int_equal(poise_dedup_peer_feed(peers[0], out, len), 0);
    poise_buf_append(&said, out, poise_rng_below(&rng, 30) == 0 ? len : 0);
    for (int i = 0; i < 40 && code == 0; i++) {
        put_block(&said, &rng);
        if (poise_rng_below(&rng, 2)) {
            len = segment(poise_rng_below(&rng, 50), data);
            code = poise_dedup_peer_send(peers[0], 1, data, len);
            code = code < 0 ? code : poise_dedup_peer_flush(peers[0]);
        }
        code = code < 0 ? code
                        : poise_dedup_peer_feed(peers[0], said.data, said.len);
        poise_buf_reset(&said);
        assert_true(peers[0]->receiver.bytes <=
                    WIRE_PENDING_MOST + 4 * WIRE_GROUP_MOST);
        poise_dedup_peer_took(peers[0],
                              poise_dedup_peer_output(peers[0], &out));
    }
    assert_true(code == 0 || code == -EBADMSG || code == -EPROTO);
    /* After an error it does nothing. */
    assert_true(code == 0 || poise_dedup_peer_feed(peers[0], "x", 1) == code);
    poise_error_clear();
    for (int i = 0; i < 2; i++) {
        poise_dedup_peer_destroy(peers[i]);
        poise_dedup_store_close(stores[i]);
    }
    poise_buf_free(&said);
}

static void test_wire(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        if (in_share(seed)) {
            check_wire(seed);
        }
    }
}

/* ---- for long ----------------------------------------------------------- */

static void test_long(void **state)
{
    const char *text = getenv("POISE_TEST_SECONDS");
    uint64_t end, seed = (uint64_t)time(NULL) << 20;

    (void)state;
    if (!text) {
        skip();
    }
    end = poise_clock_ns() + strtoull(text, NULL, 10) * UINT64_C(1000000000);
    print_message("seeds from %llu on\n", (unsigned long long)seed);
    for (; poise_clock_ns() < end; seed++) {
        check_server(seed);
        check_clients(seed);
        check_files(seed);
        for (uint64_t i = 0; i < 50; i++) {
            check_wire(seed * 50 + i);
        }
    }
    print_message("to %llu\n", (unsigned long long)seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* Those that fork come first: there are no threads yet. */
        cmocka_unit_test(test_server),  cmocka_unit_test(test_other_user),
        cmocka_unit_test(test_clients), cmocka_unit_test(test_files),
        cmocka_unit_test(test_links),   cmocka_unit_test(test_later_links),
        cmocka_unit_test(test_wire),    cmocka_unit_test(test_long),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
