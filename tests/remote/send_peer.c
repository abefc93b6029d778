/* poise send before another end that lies: whatever that says, nothing comes
 * that was not asked for, nothing goes that was not offered, nothing outside
 * is touched, and it ends, with a word that says why. */
#include "../slowness.h"
#include "../temporary.h"
#include "send_liar.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poise/remove.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A stack that is gone is to be found by the address sanitizer. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_stack_use_after_return=1";
}

static const char *program; /* this one */

enum { FEW = 12 /* storms in make test */, SOAK_S = 600 };

/* ---- a place ------------------------------------------------------------ */

struct place {
    char root[TEMPORARY_BYTES];
    char before[4096]; /* what lay there */
    char word[600];    /* the last problem that was reported */
};

static void path_in(const struct place *place, const char *name,
                    char out[TEMPORARY_MORE])
{
    snprintf(out, TEMPORARY_MORE, "%s/%s", place->root, name);
}

static void put(const struct place *place, const char *name, const char *text)
{
    char path[TEMPORARY_MORE];
    int fd;

    path_in(place, name, path);
    if (!text) {
        assert_int_equal(mkdir(path, 0755), 0);
        return;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

/* All that lies there, but for what a pull may make: names, kinds, sizes. */
static struct {
    char *out;
    size_t root, len;
    const char *but;
} listing;

static int list_one(const char *path, const struct stat *st, int kind,
                    struct FTW *at)
{
    const char *name = path + listing.root;
    size_t but = listing.but ? strlen(listing.but) : 0;

    (void)at;
    if (listing.but && strncmp(name, "/target/", 8) == 0 &&
        strncmp(name + 8, listing.but, but) == 0) {
        return 0;
    }
    listing.len += (size_t)snprintf(
        listing.out + listing.len, 4096 - listing.len, "%s %d %o %ld %ld\n",
        name, kind, st->st_mode, S_ISREG(st->st_mode) ? (long)st->st_size : 0,
        S_ISREG(st->st_mode) ? (long)st->st_nlink : 0);
    return listing.len < 4096 ? 0 : 1;
}

static void look(const struct place *place, const char *but, char out[4096])
{
    listing.out = out;
    listing.len = 0;
    listing.root = strlen(place->root);
    listing.but = but;
    assert_int_equal(nftw(place->root, list_one, 20, FTW_PHYS), 0);
}

static int begin(void **state)
{
    static const char *const things[][2] = {
        {"beside", NULL},
        {"beside/secret", "nobody's business"},
        {"target", NULL},
        {"target/private", NULL},
        {"target/private/secret", "mine"},
        {"source", NULL},
        {"source/dir", NULL},
        {"source/dir/file2", "second"},
        {"source/file", "first"},
    };
    struct place *place = calloc(1, sizeof *place);
    char from[TEMPORARY_MORE], to[TEMPORARY_MORE];

    assert_non_null(place);
    assert_non_null(mkdtemp(temporary_name(place->root, "send-peer")));
    for (size_t i = 0; i < sizeof things / sizeof *things; i++) {
        put(place, things[i][0], things[i][1]);
    }
    path_in(place, "target/way", to);
    assert_int_equal(symlink("../beside", to), 0);
    path_in(place, "source/link", to);
    assert_int_equal(symlink("../beside/secret", to), 0);
    path_in(place, "source/file", from);
    path_in(place, "source/hard", to);
    assert_int_equal(link(from, to), 0);
    *state = place;
    return 0;
}

static int end(void **state)
{
    struct place *place = *state;

    assert_int_equal(poise_walk_remove(AT_FDCWD, place->root), 0);
    free(place);
    return 0;
}

/* ---- one case ------------------------------------------------------------ */

static void keep_word(const struct poise_error *err, void *arg)
{
    struct place *place = arg;
    struct poise_buf text = {0};

    poise_error_format(err, &text);
    snprintf(place->word, sizeof place->word, "%s", poise_buf_str(&text));
    poise_buf_free(&text);
}

static int run(struct place *place, const struct liar_case *it,
               struct poise_remote_stats *stats)
{
    char shell[2 * TEMPORARY_MORE], target[TEMPORARY_MORE];
    char source[TEMPORARY_MORE];
    const char *own = source;
    bool pulls = it->sources[0];
    struct poise_remote_options options = {
        .sources = pulls ? (const char *const *)it->sources : &own,
        .source_count = it->sources[0] && it->sources[1] ? 2 : 1,
        .target = pulls ? target : "host:/x",
        .shell = shell,
        .keep = POISE_WALK_KEEP_ALL,
        .cache = "",
        .remote_cache = "",
        .problem = keep_word,
        .arg = place,
    };
    int code;

    if (it->code == -ETIMEDOUT) {
        options.silence_ns = slowness_s(1) * UINT64_C(50000000);
    }
    snprintf(shell, sizeof shell, "%s --liar %s %s", program, it->name,
             place->root);
    snprintf(target, sizeof target, "%s/target", place->root);
    snprintf(source, sizeof source, "%s/source/", place->root);
    poise_error_clear();
    code = poise_remote_send(&options, stats);
    if (code < 0) {
        keep_word(poise_error_last(), place);
    }
    return code;
}

static void try_case(const struct liar_case *it)
{
    struct place *place;
    void *state = NULL;
    struct poise_remote_stats stats = {0};
    char after[4096];
    int code;

    begin(&state);
    place = state;
    look(place, it->made, place->before);
    code = run(place, it, &stats);
    if (strncmp(it->name, "race_", 5) != 0) {
        look(place, it->made, after);
        if (strcmp(place->before, after) != 0) {
            fail_msg("%s: before:\n%safter:\n%s", it->name, place->before,
                     after);
        }
    }
    if (code != it->code || (it->word && !strstr(place->word, it->word))) {
        fail_msg("%s: %d (%d was expected), '%s' ('%s' was expected)", it->name,
                 code, it->code, place->word, it->word ? it->word : "");
    }
    if (!it->word && stats.problems > 0) {
        fail_msg("%s: a problem: '%s'", it->name, place->word);
    }
    end(&state);
}

static void try_all(const struct liar_case *all)
{
    const char *only = getenv("POISE_TEST_CASE");

    for (; all->name; all++) {
        if (!only || strcmp(only, all->name) == 0) {
            try_case(all);
        }
    }
}

static void test_pull(void **state)
{
    (void)state;
    try_all(liar_pulls);
}

static void test_push(void **state)
{
    (void)state;
    try_all(liar_pushes);
}

/* ---- storms -------------------------------------------------------------- */

static uint64_t first_seed = 1;
static unsigned seconds; /* 0: a few storms */

/* What may not be is that something outside is touched, or that it does not
 * end. */
static void check_outside(const struct place *place, const char *but,
                          const char *what, uint64_t seed)
{
    char after[4096];

    look(place, but, after);
    if (strcmp(place->before, after) != 0) {
        fail_msg("%s, seed %llu: before:\n%safter:\n%s", what,
                 (unsigned long long)seed, place->before, after);
    }
}

static void storm_client(uint64_t seed, bool gives)
{
    char name[40];
    struct liar_case it = {.name = name};
    struct poise_remote_stats stats = {0};
    struct place *place;
    void *state = NULL;

    snprintf(name, sizeof name, "%s=%llu", gives ? "gives" : "takes",
             (unsigned long long)seed);
    it.sources[0] = gives ? "host:/x/aaaa" : NULL;
    begin(&state);
    place = state;
    look(place, gives ? "aaaa" : NULL, place->before);
    run(place, &it, &stats);
    check_outside(place, gives ? "aaaa" : NULL, name, seed);
    end(&state);
}

struct served {
    struct poise_remote_service service;
    pthread_t thread;
};

static void *serve(void *arg)
{
    struct served *served = arg;

    poise_remote_serve(&served->service);
    close(served->service.in);
    return NULL;
}

/* A client of a server that is restricted to ROOT/target: what comes of it is
 * never of outside, nor does anything get there. */
static void storm_server(uint64_t seed, bool gives)
{
    struct liar liar = {0};
    struct poise_buf greeting = {0};
    char target[TEMPORARY_MORE];
    struct served served = {.service = {.restricted_to = target}};
    struct place *place;
    void *state = NULL;
    int fds[2];

    begin(&state);
    place = state;
    path_in(place, "target", target);
    look(place, gives ? "" : NULL, place->before);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    served.service.in = served.service.out = fds[1];
    assert_int_equal(pthread_create(&served.thread, NULL, serve, &served), 0);
    liar_storm_greeting(seed, gives, &greeting);
    (void)!write(fds[0], greeting.data, greeting.len);
    liar.root = place->root;
    if (liar_skip_welcome(fds[0]) == 0 &&
        liar_open(&liar, fds[0], fds[0]) == 0) {
        liar_storm(&liar, seed, gives);
        poise_buf_str(&liar.heard);
        if (liar.heard.data && strstr(liar.heard.data, "nobody's business")) {
            fail_msg("seed %llu: a secret went out", (unsigned long long)seed);
        }
        liar_close(&liar);
    }
    close(fds[0]);
    pthread_join(served.thread, NULL);
    poise_buf_free(&greeting);
    check_outside(place, gives ? "" : NULL, "a server", seed);
    end(&state);
}

static void test_storm(void **state)
{
    uint64_t until = poise_clock_ns() + seconds * UINT64_C(1000000000);
    uint64_t seed = first_seed;

    (void)state;
    do {
        alarm(slowness_s(60)); /* for an end that never comes */
        storm_client(seed, seed & 1);
        storm_server(seed, !(seed & 1));
        seed++;
    } while (seconds ? poise_clock_ns() < until : seed < first_seed + FEW);
    alarm(0);
    if (seconds) {
        print_message("%llu storms\n", (unsigned long long)(seed - first_seed));
    }
}

/* ---- greetings ----------------------------------------------------------- */

/* Start a server and send it a greeting with these; the length of its answer.
 * This end is fds[0]. */
static uint64_t greet(struct served *served, int fds[2], unsigned flags,
                      uint64_t bits, const char *segmenter, const char *target)
{
    struct poise_buf body = {0}, all = {0};
    unsigned char head[16] = {0};

    poise_buf_varint(&body, flags);
    poise_buf_varint(&body, POISE_WALK_KEEP_ALL);
    poise_buf_varint(&body, 99); /* level */
    poise_buf_varint(&body, UINT64_MAX);
    poise_buf_varint(&body, bits);
    poise_buf_varint(&body, 0);
    poise_buf_putc(&body, 1);
    poise_buf_blob(&body, segmenter, strlen(segmenter));
    poise_buf_puts(&body, "\1");
    poise_buf_blob(&body, "", 0); /* no cache */
    poise_buf_varint(&body, 1);
    poise_buf_blob(&body, target, strlen(target));
    poise_buf_append(&all, "POISESND", 8);
    poise_buf_u64(&all, REMOTE_VERSION | (uint64_t)body.len << 32);
    poise_buf_append(&all, body.data, body.len);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    served->service.in = served->service.out = fds[1];
    assert_int_equal(pthread_create(&served->thread, NULL, serve, served), 0);
    assert_int_equal(write(fds[0], all.data, all.len), (ssize_t)all.len);
    assert_int_equal(poise_file_read(fds[0], head, 16, ""), 16);
    poise_buf_free(&body);
    poise_buf_free(&all);
    return poise_get_u64(head + 8) >> 32;
}

static bool is_refused(uint64_t bits, const char *segmenter)
{
    struct served served = {.service = {.write_only = true}};
    int fds[2];
    uint64_t len = greet(&served, fds, 4 /* dry */, bits, segmenter, "/tmp");

    close(fds[0]);
    pthread_join(served.thread, NULL);
    return len > 0;
}

static void test_greeting(void **state)
{
    (void)state;
    assert_false(is_refused(0, "gear"));
    assert_false(is_refused(64, "gear"));
    assert_true(is_refused(65, "gear"));
    assert_true(is_refused(7, "gear"));
    assert_true(is_refused(UINT32_MAX, "gear"));
    /* The next is loaded by whoever believes it. */
    assert_true(is_refused(0, "./libdedup_user.so"));
    assert_true(is_refused(0, "/"));
}

/* What comes after an error reaches nobody: whoever handled it is gone. */
static void test_after_error(void **state)
{
    enum { LARGE = 100000 };
    struct served served = {.service = {.write_only = true}};
    struct remote_entry entries[2];
    struct liar liar = {0};
    struct place *place;
    struct poise_rng rng;
    char target[TEMPORARY_MORE];
    unsigned char *large = malloc(LARGE);
    void *own = NULL;
    int fds[2];

    (void)state;
    begin(&own);
    place = own;
    path_in(place, "target", target);
    poise_rng_seed(&rng, 1);
    assert_non_null(large);
    for (size_t i = 0; i < LARGE; i++) {
        large[i] = (unsigned char)poise_rng_next(&rng);
    }
    assert_int_equal(
        greet(&served, fds, 32 /* by content */, 0, "gear", target), 0);
    assert_int_equal(liar_open(&liar, fds[0], fds[0]), 0);
    entries[0] = liar_entry("aaaa", S_IFDIR | 0755);
    liar_begin(&liar, 0, 1);
    liar_batch(&liar, 1, entries, 1);
    entries[0] = liar_entry("c", S_IFDIR | 0755);
    entries[1] = liar_entry("b", S_IFDIR | 0755);
    liar_batch(&liar, 1, entries, 2);
    remote_channel_flush(&liar.channel);
    for (int i = 0; i < 4; i++) {
        liar_say(&liar, REMOTE_ACTION, large, LARGE);
    }
    liar_hear(&liar, &liar.problems, 1);
    assert_int_equal(liar.problems, 1);
    liar_close(&liar);
    close(fds[0]);
    pthread_join(served.thread, NULL);
    free(large);
    end(&own);
}

/* ---- floods -------------------------------------------------------------- */

/* Links to a file that is never sent, each with a long way to it. */
static void test_link_flood(void **state)
{
    struct place *place;
    void *own = NULL;
    struct poise_remote_stats stats = {0};
    struct liar_case it = {
        .name = "flood=1", .sources = {"host:/x/aaaa"}, .code = -EBADMSG};

    (void)state;
    if (!seconds) {
        skip();
    }
    begin(&own);
    place = own;
    assert_int_equal(run(place, &it, &stats), -EBADMSG);
    assert_non_null(strstr(place->word, "512 MiB"));
    end(&own);
}

/* Options: --seed N, --seconds N. */
static void read_options(int argc, char **argv)
{
    seconds = getenv("POISE_TEST_SOAK") ? SOAK_S : 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--seed") == 0) {
            first_seed = strtoull(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--seconds") == 0) {
            seconds = (unsigned)strtoul(argv[i + 1], NULL, 10);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pull),     cmocka_unit_test(test_push),
        cmocka_unit_test(test_greeting), cmocka_unit_test(test_after_error),
        cmocka_unit_test(test_storm),    cmocka_unit_test(test_link_flood),
    };
    static char own[600];

    if (argc > 1 && strcmp(argv[1], "--liar") == 0) {
        return liar_main(argc, argv);
    }
    if (readlink("/proc/self/exe", own, sizeof own - 1) < 0) {
        return 1;
    }
    program = own;
    read_options(argc, argv);
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
