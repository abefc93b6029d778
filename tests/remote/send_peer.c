/* poise send before another end that lies: whatever that says, nothing comes
 * that was not asked for, nothing goes that was not offered, nothing outside
 * is touched, and it ends, with a word that says why. */
#include "../slowness.h"
#include "../temporary.h"
#include "send_liar.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char *program; /* this one */

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pull),
        cmocka_unit_test(test_push),
    };
    static char own[600];

    if (argc > 1 && strcmp(argv[1], "--liar") == 0) {
        return liar_main(argc, argv);
    }
    if (readlink("/proc/self/exe", own, sizeof own - 1) < 0) {
        return 1;
    }
    program = own;
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
