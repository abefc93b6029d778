/*
 * Filters: what they let through of a walk is what GNU find prints; what they
 * refuse; a test that cannot be answered; metadata that changed meanwhile.
 */
#include "../temporary.h"
#include "oracle.h"

#include <poise/find.h>

static char where[256];
static int top_fd;

static int set_up(void **state)
{
    (void)state;
    setenv("LC_ALL", "C", 1);
    top_fd = tree_temporary(where);
    if (top_fd < 0 || mkdirat(top_fd, "tree", 0755) != 0 ||
        fchdir(top_fd) != 0 || chdir("tree") != 0) {
        return -1;
    }
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tree_nasty(fd);
    close(fd);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tree_empty(top_fd);
    close(top_fd);
    return rmdir(where);
}

struct job {
    struct oracle_shape shape;
    const char *const *words;
    size_t count;
    struct tree_list found;
    uint64_t errors, failed; /* failed: __atomic */
    bool again;
};

struct rank {
    struct job *job;
    struct poise_walk_filter *filter; /* each process has its own */
};

static int on_visit(struct poise_walk_entry *entry, void *arg)
{
    struct rank *rank = arg;
    struct job *job = rank->job;
    int code = job->again ? poise_walk_filter_match_now(rank->filter, entry)
                          : poise_walk_filter_match(rank->filter, entry);
    if (code < 0) {
        assert_int_equal(poise_error_last()->code, -code);
        __atomic_fetch_add(&job->failed, 1, __ATOMIC_RELAXED);
    } else if (code > 0) {
        struct poise_buf path = {0};
        assert_int_equal(poise_walk_path(entry, &path), 0);
        tree_list_add(&job->found, path.data, path.len);
        poise_buf_free(&path);
    }
    return code == -ENOMEM ? code : POISE_WALK_ON;
}

static int filter_rank(struct poise_world *world, void *arg)
{
    struct job *job = arg;
    static const char *const roots[] = {"."};
    struct rank rank = {.job = job};
    assert_int_equal(
        poise_walk_filter_parse(job->words, job->count, &rank.filter), 0);
    assert_int_equal(poise_walk_filter_agree(rank.filter, world), 0);
    struct poise_walk_options options = {
        .roots = roots,
        .root_count = 1,
        .statx_mask = poise_walk_filter_mask(rank.filter)};
    oracle_shape_set(&options, &job->shape);
    struct poise_walk_hooks hooks = {.visit = on_visit, .arg = &rank};
    struct poise_walk_result result;
    int code = poise_walk_run(world, &options, &hooks, &result);
    poise_walk_filter_free(rank.filter);
    if (!world || poise_world_rank(world) == 0) {
        job->errors = result.errors;
    }
    poise_walk_result_free(&result);
    return code;
}

static int run(struct job *job)
{
    pthread_mutex_init(&job->found.lock, NULL);
    int code = oracle_world(job->shape.ranks, filter_rank, job);
    tree_list_sort(&job->found);
    return code;
}

static const char *const expressions[] = {
    "-type f",
    "! -name *5",
    "-name sub00? -o -size +1k",
    "( -type d -o -type l ) ! -name wide",
    "-empty",
    "-mtime -1 -links 1",
    "-daystart -mtime 0 -perm /022",
    "-mindepth 1 -maxdepth 2 -type d",
    "-regextype posix-extended -regex .*/(sub|file)[0-9]{1,2}",
    "-newermt 2001-01-01 -user 0 , -xtype d",
    "-true",
    "-false",
};

/* What -print0 printed. */
static void read_names(const struct poise_buf *text, struct tree_list *out)
{
    for (size_t at = 0; at < text->len; at += strlen(text->data + at) + 1) {
        tree_list_add(out, text->data + at, strlen(text->data + at));
    }
    tree_list_sort(out);
}

static void test_as_find(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
        char line[256];
        const char *argv[ORACLE_WORDS] = {"find", "."};
        snprintf(line, sizeof line, "%s", expressions[i]);
        int argc = oracle_split(line, argv + 2);
        struct poise_buf text = {0};
        struct tree_list want = {.lock = PTHREAD_MUTEX_INITIALIZER};
        struct job job = {.shape = oracle_shapes[i % ORACLE_SHAPES],
                          .words = argv + 2,
                          .count = (size_t)argc,
                          .again = i % 5 == 3};
        /* The action must be said of the whole, "-o" or not. */
        const char *whole[ORACLE_WORDS] = {"find", ".", "("};
        memcpy(whole + 3, argv + 2, (size_t)argc * sizeof *argv);
        whole[3 + argc] = ")";
        whole[4 + argc] = "-print0";
        oracle_run(whole, &text);
        read_names(&text, &want);
        assert_int_equal(run(&job), 0);
        if (!tree_list_equal(&job.found, &want)) {
            fail_msg("%s: %zu entries, GNU find %zu", expressions[i],
                     job.found.count, want.count);
        }
        assert_int_equal(job.failed, 0);
        tree_list_free(&job.found);
        tree_list_free(&want);
        poise_buf_free(&text);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *words, *hint;
    } refused[] = {
        {"", "no test"},           {"-name x -print", "-print"},
        {"-delete", "-delete"},    {"-name x -prune -o -true", "-prune"},
        {"-exec true ;", "-exec"}, {"-quit", "-quit"},
        {"-fprint x", "-fprint"},  {"-xdev", "-xdev"},
        {"-depth", "-depth"},      {"-nam x", "-name"},
        {"-name", "-name"},        {"somewhere", "somewhere"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char line[64];
        const char *argv[ORACLE_WORDS];
        snprintf(line, sizeof line, "%s", refused[i].words);
        int argc = oracle_split(line, argv);
        struct poise_walk_filter *filter = NULL;
        struct poise_buf text = {0};
        assert_int_equal(poise_walk_filter_parse(argv, (size_t)argc, &filter),
                         -EINVAL);
        assert_null(filter);
        poise_error_format(poise_error_last(), &text);
        if (!strstr(poise_buf_str(&text), refused[i].hint)) {
            fail_msg("%s: %s", refused[i].words, poise_buf_str(&text));
        }
        poise_buf_free(&text);
    }
}

/* An entry of which nothing is known is neither meant nor not meant: "not
 * newer" must not delete it. */
static void test_unknown(void **state)
{
    (void)state;
    static const char *const words[] = {"!", "-newermt", "now"};
    struct job job = {.shape = oracle_shapes[0],
                      .words = words,
                      .count = 3,
                      .again = true /* reads metadata of its own */};
    assert_int_equal(run(&job), 0);
    size_t all = job.found.count;
    assert_true(all > 10 && job.failed == 0 && job.errors == 0);
    tree_list_free(&job.found);
    /* Two calls for each entry; one of the second ones fails. */
    memset(&job.found, 0, sizeof job.found);
    poise_fault_arm(POISE_FAULT_STAT, 10, EIO, false);
    assert_int_equal(run(&job), 0);
    poise_fault_arm(POISE_FAULT_STAT, 0, 0, false);
    assert_int_equal(job.failed, 1);
    assert_int_equal(job.errors, 1);
    assert_int_equal(job.found.count, all - 1);
    tree_list_free(&job.found);
}

/* Between the look and the deed somebody writes to the file. */
static int on_visit_touch(struct poise_walk_entry *entry, void *arg)
{
    struct rank *rank = arg;
    struct job *job = rank->job;
    if (strcmp(entry->name, "aged") == 0) {
        static const struct timespec now[2] = {{.tv_nsec = UTIME_NOW},
                                               {.tv_nsec = UTIME_NOW}};
        job->failed += poise_walk_filter_match(rank->filter, entry) == 1;
        utimensat(AT_FDCWD, "aged", now, 0);
        job->failed += poise_walk_filter_match(rank->filter, entry) == 1;
        job->errors += poise_walk_filter_match_now(rank->filter, entry) == 0;
    }
    return POISE_WALK_ON;
}

static void test_changed_meanwhile(void **state)
{
    (void)state;
    static const char *const words[] = {"-mtime", "+30"};
    static const char *const roots[] = {"."};
    static const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
    struct job job = {0};
    struct rank rank = {.job = &job};
    close(open("aged", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    utimensat(AT_FDCWD, "aged", old, 0);
    assert_int_equal(poise_walk_filter_parse(words, 2, &rank.filter), 0);
    struct poise_walk_options options = {
        .roots = roots,
        .root_count = 1,
        .statx_mask = poise_walk_filter_mask(rank.filter)};
    struct poise_walk_hooks hooks = {.visit = on_visit_touch, .arg = &rank};
    assert_true(options.statx_mask & STATX_MTIME);
    assert_int_equal(poise_walk_run(NULL, &options, &hooks, NULL), 0);
    assert_int_equal(job.failed, 2);
    assert_int_equal(job.errors, 1);
    poise_walk_filter_free(rank.filter);
    unlink("aged");
}

int main(void)
{
    /* Ranks are threads here, and without TZ the C library looks for the zone
     * again in each mktime, under a lock that the thread sanitizer cannot see.
     */
    setenv("TZ", "UTC", 0);
    tzset();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_find),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_changed_meanwhile),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
