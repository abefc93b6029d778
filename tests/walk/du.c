/*
 * du against GNU du: the same lines once sorted, over threads, ranks and
 * policies; hard links; the order of lines; faults.
 */
#include "../share.h"
#include "oracle.h"

#include "walk/du/internal.h"

static char where[256];
static int top_fd,
    where_fd; /* of the directory that holds the tree; the tree */

static void make_file(const char *name, size_t size)
{
    int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    char *data = malloc(size + 1);
    assert_true(fd >= 0 && data);
    memset(data, 'x', size);
    assert_int_equal(write(fd, data, size), size);
    free(data);
    close(fd);
}

static int set_up(void **state)
{
    (void)state;
    setenv("LC_ALL", "C", 1);
    where_fd = tree_temporary(where);
    if (where_fd < 0 || mkdirat(where_fd, "tree", 0755) != 0 ||
        fchdir(where_fd) != 0 || chdir("tree") != 0) {
        return -1;
    }
    top_fd = where_fd;
    where_fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tree_nasty(where_fd);
    make_file("wide/sub000/big", 100000);
    make_file("lopsided/level0/medium", 20000);
    make_file("a.o", 5000);
    assert_int_equal(truncate("pi|pe", 5 << 20), 0); /* sparse */
    int deep = tree_dir(top_fd, "deep");
    tree_chain(deep, 1500);
    close(deep);
    oracle_documents(top_fd, "doc");
    /* Two operands share inodes; within one, one directory holds them all. */
    mkdir("../left", 0755);
    mkdir("../right", 0755);
    make_file("../left/shared", 30000);
    assert_int_equal(link("../left/shared", "../right/other"), 0);
    assert_int_equal(link("../left/shared", "../left/again"), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    close(where_fd);
    tree_remove(top_fd, "deep");
    tree_empty(top_fd);
    close(top_fd);
    return rmdir(where);
}

/* ---- one du ------------------------------------------------------------- */

struct job {
    struct oracle_shape shape;
    struct poise_walk_du_options options; /* without shape and hooks */
    const char *operands[ORACLE_WORDS], *excluded[ORACLE_WORDS];
    uint64_t block;
    struct poise_buf out;
    uint64_t errors, messages;
};

static int on_line(const struct poise_walk_du_line *line, void *arg)
{
    struct job *job = arg;
    const char *path = line->path;
    size_t len = line->path_len;
    uint64_t blocks = (line->amount + job->block - 1) / job->block;
    poise_buf_printf(&job->out, "%llu\t", (unsigned long long)blocks);
    if (path) {
        poise_buf_append(&job->out, path, len);
    } else {
        poise_buf_puts(&job->out, "total");
    }
    return poise_buf_putc(&job->out, '\n');
}

static int on_error(struct poise_worker *worker, const struct poise_error *err,
                    void *arg)
{
    (void)worker;
    struct job *job = arg;
    assert_true(err->code > 0);
    __atomic_fetch_add(&job->messages, 1, __ATOMIC_RELAXED);
    return 0;
}

static int du_rank(struct poise_world *world, void *arg)
{
    struct job *job = arg;
    struct poise_walk_du_options options = job->options;
    struct poise_walk_result result = {0};
    options.line = on_line;
    options.error = on_error;
    options.arg = job;
    oracle_shape_set(&options.walk, &job->shape);
    int code = poise_walk_du(world, &options, &result);
    if (!world || poise_world_rank(world) == 0) {
        job->errors = result.errors;
    }
    poise_walk_result_free(&result);
    return code;
}

static void set_letter(struct job *job, char letter)
{
    struct poise_walk_du_options *o = &job->options;
    switch (letter) {
    case 'a':
        o->all = true;
        break;
    case 'b':
        o->apparent = true;
        job->block = 1;
        break;
    case 'c':
        o->total = true;
        break;
    case 'i':
        o->inodes = true;
        job->block = 1;
        break;
    case 'l':
        o->count_links = true;
        break;
    case 'D':
        o->dereference_roots = true;
        break;
    case 'L':
        o->dereference = true;
        break;
    case 's':
        o->has_max_depth = true;
        break;
    case 'S':
        o->separate = true;
        break;
    case 'x':
        o->walk.one_file_system = true;
        break;
    default:
        o->has_max_depth = true;
        o->max_depth = (uint32_t)(letter - '0');
        break;
    }
}

/* One word per option, as GNU du has them. */
static void set_words(struct job *job, int argc, const char *const *argv)
{
    struct poise_walk_du_options *o = &job->options;
    job->block = 1024;
    o->walk.roots = job->operands;
    o->exclude = job->excluded;
    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "--exclude=", 10) == 0) {
            job->excluded[o->exclude_count++] = argv[i] + 10;
        } else if (strcmp(argv[i], "--inodes") == 0) {
            set_letter(job, 'i');
        } else if (argv[i][0] == '-' && argv[i][1] == 'd') {
            set_letter(job, argv[i][2]);
        } else if (argv[i][0] == '-') {
            set_letter(job, argv[i][1]);
        } else {
            job->operands[o->walk.root_count++] = argv[i];
        }
    }
    if (o->walk.root_count == 0) {
        job->operands[o->walk.root_count++] = ".";
    }
}

static void du_ours(const struct oracle_shape *shape, int argc,
                    const char *const *argv, struct oracle_answer *answer)
{
    struct job job = {.shape = *shape};
    set_words(&job, argc, argv);
    answer->code = oracle_world(shape->ranks, du_rank, &job);
    answer->errors = job.errors;
    answer->out = job.out;
}

static void compare(const char *words, const struct oracle_shape *shape)
{
    oracle_compare("du", words, shape, du_ours);
}

/* -a is compared where no line depends on which of two links is read first.
 */
static const char *const cases[] = {
    "",
    "-c",
    "-s",
    "-s -c",
    "-S",
    "-S -c",
    "-b",
    "--inodes",
    "-l",
    "-l -c -S",
    "-l --inodes",
    "-x",
    "-d0",
    "-d1",
    "-d3",
    "-d1 -S -c",
    "-d2 -b",
    "-a wide lopsided",
    "-a wide -d1",
    "-a -S lopsided -c",
    "-a -l",
    "-a -l -b -d2",
    "-a --inodes wide",
    "-s ../deep wide",
    "../deep",
    "-b -a ../deep -d5",
    "wide/",
    "wide//",
    "./wide lopsided/.. -c",
    "wide wide",
    "-l wide wide",
    ". wide",
    "wide . -c",
    "-s wide .",
    "-S wide . -c",
    "wide/. wide ./wide",
    "lopsided/level0/level1 lopsided lopsided/level0",
    "lopsided lopsided/level0 lopsided/level0/level1 -c",
    "a.o",
    "a.o . -c",
    ". a.o",
    "-b to-dir pipe dangling",
    "../left",
    "../left ../right -c",
    "../right ../left -c",
    "-a ../left/shared ../right",
    "../right/other ../left/shared",
    "-s ../left ../right ../left",
    "-l ../left ../right",
    "--inodes ../left ../right -c",
    "--exclude=wide",
    "--exclude=sub0* wide",
    "--exclude=su*0 --exclude=*/f*3 --exclude=l*/beside wide lopsided",
    "--exclude=*.o --exclude=level1* -c wide lopsided a.o",
    "--exclude=./wide",
    "--exclude=left/* -c ../left/shared ../right",
    "--exclude=wide/sub000",
    "--exclude=ide",
    "--exclude=wide . wide",
    "--exclude=sub000 -a wide",
    "nosuch",
    "nosuch wide -c",
    "../doc -s",
    "-l ../doc",
    "-l -a -d2 ../doc",
    "-s -b ../doc wide",
    "-L",
    "-L -l -a -d3",
    "-L ../deep to-dir wide -c",
    "-D to-dir dangling loop",
    "-D to-dir wide -S -c",
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        /* Shapes change at another pace than the share. */
        if (in_share(i)) {
            compare(cases[i], &oracle_shapes[i / 3 % ORACLE_SHAPES]);
        }
    }
}

static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ORACLE_SHAPES; i++) {
        if (!in_share(i + i / 6)) {
            continue;
        }
        compare("-c", &oracle_shapes[i]);
        compare("-S -d2", &oracle_shapes[i]);
        compare("-a wide . -d3 --exclude=hard", &oracle_shapes[i]);
        compare("../right ../left -c", &oracle_shapes[i]);
    }
}

/* ---- what GNU du leaves to the order of reading ------------------------- */

static const char *lines_of(struct job *job, int ranks)
{
    assert_int_equal(oracle_world(ranks, du_rank, job), 0);
    return poise_buf_str(&job->out);
}

/* An inode is charged to the bytewise smallest of its paths: "b-c/x" comes
 * before "b/y", since '-' is before '/'. */
static void test_smallest_path(void **state)
{
    (void)state;
    assert_int_equal(mkdir("links", 0755), 0);
    assert_int_equal(mkdir("links/b", 0755), 0);
    assert_int_equal(mkdir("links/b-c", 0755), 0);
    assert_int_equal(mkdir("links/b-c/deeper", 0755), 0);
    make_file("links/b/y", 40000);
    assert_int_equal(link("links/b/y", "links/b-c/x"), 0);
    assert_int_equal(link("links/b/y", "links/b-c/deeper/w"), 0);
    assert_int_equal(link("links/b/y", "links/z"), 0);
    static const struct {
        const char *words, *lines;
    } expected[] = {
        {"--inodes -a links",
         "1\tlinks/b\n1\tlinks/b-c/deeper/w\n2\tlinks/b-c/deeper\n"
         "3\tlinks/b-c\n5\tlinks\n"},
        {"--inodes links -S",
         "1\tlinks/b\n2\tlinks/b-c/deeper\n1\tlinks/b-c\n1\tlinks\n"},
        {"--inodes links -S -d1 -c",
         "1\tlinks/b\n1\tlinks/b-c\n1\tlinks\n5\ttotal\n"},
        {"--inodes links -d1", "1\tlinks/b\n3\tlinks/b-c\n5\tlinks\n"},
        {"--inodes links/z links -d1",
         "1\tlinks/z\n1\tlinks/b\n2\tlinks/b-c\n4\tlinks\n"},
        {"--inodes links -s", "5\tlinks\n"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        for (size_t k = 0; k < ORACLE_SHAPES; k++) {
            if (!in_share(i + k)) {
                continue;
            }
            char line[256];
            const char *argv[ORACLE_WORDS];
            snprintf(line, sizeof line, "%s", expected[i].words);
            struct job job = {.shape = oracle_shapes[k]};
            set_words(&job, oracle_split(line, argv), argv);
            assert_string_equal(lines_of(&job, job.shape.ranks),
                                expected[i].lines);
            poise_buf_free(&job.out);
        }
    }
    tree_remove(where_fd, "links");
}

/* Charges to lines of other workers take memory by the number of lines. */
static void test_charges(void **state)
{
    (void)state;
    enum { LINES = 700, CHARGES = 200000 };
    static uint64_t sums[LINES];
    const struct du_sum one = {.amount = 1};
    struct du_space *space = du_spaces_create(1, 1);
    assert_non_null(space);
    for (uint64_t i = 0; i < CHARGES; i++) {
        uint64_t line = i * 7919 % LINES;
        assert_int_equal(du_add_charge(space, du_tag(1, 2, line),
                                       &(struct du_sum){.amount = i}),
                         0);
        sums[line] += i;
    }
    assert_true(space->charge_cap < 4 * LINES);
    for (size_t i = 0; i < space->charge_count; i++) {
        sums[du_tag_index(space->charges[i].tag)] -=
            space->charges[i].sum.amount;
    }
    for (size_t i = 0; i < LINES; i++) {
        assert_int_equal(sums[i], 0);
    }
    /* With a line for each charge nothing is gained, and nothing lost. */
    for (uint64_t i = 0; i < CHARGES; i++) {
        assert_int_equal(du_add_charge(space, du_tag(0, 1, i), &one), 0);
    }
    assert_true(space->charge_count >= CHARGES);
    du_spaces_free(space, 1);
}

/* Children before parents, siblings by their bytes, operands in their order.
 */
static void test_order(void **state)
{
    (void)state;
    assert_int_equal(mkdir("order", 0755), 0);
    assert_int_equal(mkdir("order/b", 0755), 0);
    assert_int_equal(mkdir("order/b/c", 0755), 0);
    assert_int_equal(mkdir("order/b.a", 0755), 0);
    assert_int_equal(mkdir("order/\xff", 0755), 0);
    struct job job = {.shape = oracle_shapes[3]};
    static const char *const argv[] = {"--inodes", "order/\xff", "order"};
    set_words(&job, 3, argv);
    assert_string_equal(lines_of(&job, 8),
                        "1\torder/\xff\n1\torder/b/c\n2\torder/b\n"
                        "1\torder/b.a\n4\torder\n");
    poise_buf_free(&job.out);
    tree_remove(where_fd, "order");
}

/* With links followed one thread goes down a chain and up again, with few of
 * its directories open: not each step begins at the top. Something is read
 * after each directory, whatever the order. */
static void test_deep_followed(void **state)
{
    enum { DEPTH = 400 };
    (void)state;
    int fd = tree_dir(where_fd, "chain");
    for (int i = 0; i < DEPTH; i++) {
        tree_file(fd, "before");
        int below = tree_dir(fd, "d");
        tree_file(fd, "behind");
        close(fd);
        fd = below;
    }
    close(fd);
    struct job job = {.shape = oracle_shapes[0]};
    static const char *const argv[] = {"--inodes", "-s", "chain"};
    set_words(&job, 3, argv);
    job.options.dereference = true;
    poise_fault_arm(POISE_FAULT_OPEN, UINT64_MAX, EIO, false);
    assert_string_equal(lines_of(&job, 0), "1201\tchain\n");
    assert_in_range(poise_fault_calls(POISE_FAULT_OPEN), DEPTH, 6 * DEPTH);
    poise_fault_arm(POISE_FAULT_OPEN, 0, 0, false);
    poise_buf_free(&job.out);
    tree_remove(where_fd, "chain");
}

static void test_checkpoint_refused(void **state)
{
    (void)state;
    struct job job = {.shape = oracle_shapes[0]};
    static const char *const argv[] = {"wide"};
    set_words(&job, 1, argv);
    job.options.walk.pool.checkpoint = "nowhere";
    assert_int_equal(du_rank(NULL, &job), -EINVAL);
    assert_int_equal(access("nowhere", F_OK), -1);
}

static bool run_with_fault(enum poise_fault kind, uint64_t k, int code,
                           bool follow)
{
    static const char *const argv[] = {"lopsided/level0/level1", "../left",
                                       "../right", "-a", "-c"};
    struct job job = {.shape = oracle_shapes[0]};
    set_words(&job, 5, argv);
    job.options.charge_as_read = true;
    job.options.dereference = follow;
    poise_error_clear();
    poise_fault_arm(kind, k, code, false);
    int rc = du_rank(NULL, &job);
    bool hit = poise_fault_calls(kind) >= k;
    poise_fault_arm(kind, 0, 0, false);
    if (rc < 0) {
        assert_true(hit);
        if (poise_error_last()->code != -rc) {
            fail_msg("fault %d, call %d, follow %d: code %d, error %d", kind,
                     (int)k, follow, rc, poise_error_last()->code);
        }
    }
    poise_buf_free(&job.out);
    return hit;
}

/* The order in which a directory was read, known by many numbers: names of a
 * few bytes below small numbers are kept apart. */
static void test_positions(void **state)
{
    (void)state;
    struct du_order order = {0};
    struct poise_buf names = {0};
    char name[] = "names/fa0";
    mkdir("names", 0755);
    for (name[7] = 'a'; name[7] < 'm'; name[7]++) {
        for (name[8] = '0'; name[8] <= '9'; name[8]++) {
            make_file(name, 0);
        }
    }
    int fd = open("names", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(du_order_names(fd, &names), 0);
    close(fd);
    assert_int_equal(names.len, 12 * 10 * 4);
    for (uint64_t id = 0; id < 64; id++) {
        assert_int_equal(du_order_read(&order, id, "names"), 0);
    }
    unsigned wrong = 0;
    for (uint64_t id = 0; id < 64; id++) {
        for (uint64_t at = 0; at < 120; at++) {
            wrong += du_order_of(&order, id, names.data + 4 * at) != at;
        }
        assert_true(du_order_of(&order, id, "none") == UINT64_MAX);
    }
    assert_int_equal(wrong, 0);
    poise_buf_free(&names);
    du_order_free(&order);
    tree_remove(where_fd, "names");
}

/* The first ones, and a share of those that are the same call for another
 * entry. */
static bool is_tried(uint64_t k)
{
    return k <= 60 || in_share(k);
}

static void test_faults(void **state)
{
    (void)state;
    static const struct {
        enum poise_fault kind;
        int code;
    } faults[] = {{POISE_FAULT_ALLOC, ENOMEM},
                  {POISE_FAULT_STAT, EIO},
                  {POISE_FAULT_GETDENTS, EACCES}};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        uint64_t k = 1;
        while (k < 3000 &&
               (!is_tried(k) ||
                run_with_fault(faults[i].kind, k, faults[i].code, false))) {
            k++;
        }
        assert_true(k > 1 && k < 3000);
        for (k = 1;
             k < 3000 && (!is_tried(k) || run_with_fault(faults[i].kind, k,
                                                         faults[i].code, true));
             k++) {
        }
        assert_true(k > 1 && k < 3000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_smallest_path),
        cmocka_unit_test(test_charges),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_deep_followed),
        cmocka_unit_test(test_checkpoint_refused),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
