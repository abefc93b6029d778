/*
 * Make trees of files to measure and to test with; the same seed makes the
 * same tree.
 *
 * usage: mktree [-s SEED] [-t THREADS] [-n N] SHAPE DIR
 *
 *   balanced  fan-out 10, depth 4, N files in each leaf (100): 1,011,111
 *             entries
 *   flat      N files in one directory (500,000)
 *   uneven    N files (500,000) over 49,413 directories; how many each gets
 *             follows Zipf's law, the largest some 190,000
 *   deep      a chain of N directories (20,000), each with a file
 *   twolinks  N files (500,000), each with a link in two directories
 *   nasty     a few of everything that is difficult
 *
 * DIR must not exist or be empty. Prints the number of entries, DIR included.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_THREADS 64
#define UNEVEN_DIRS 49413
#define ZIPF_EXPONENT 1.5
/* Files that one thread makes at a time in one directory. */
#define SLICE 5000

/* Files [first, first + count) are to be made in the directory `path`. */
struct job {
    char *path;
    uint64_t first, count;
};

static struct {
    int root;
    uint64_t seed, number;
    int threads;
    struct job *jobs;
    size_t count, space;
    size_t next;      /* job; __atomic */
    uint64_t entries; /* __atomic */
    bool twice;       /* each file gets a second link, in "b" for "a" */
} tree = {.threads = 2, .seed = 1, .entries = 1};

static _Noreturn void fail(const char *doing, const char *what)
{
    fprintf(stderr, "mktree: cannot %s '%s': %s\n", doing, what,
            strerror(errno));
    exit(1);
}

static void *need(void *memory)
{
    if (!memory) {
        fail("get", "memory");
    }
    return memory;
}

/* splitmix64 */
static uint64_t next_random(void)
{
    uint64_t x = tree.seed += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static void count_entries(uint64_t n)
{
    __atomic_add_fetch(&tree.entries, n, __ATOMIC_RELAXED);
}

/* ---- many files, by many threads ---------------------------------------- */

static char *join(const char *path, const char *format, uint64_t number)
{
    char name[32];
    snprintf(name, sizeof name, format, (unsigned long long)number);
    if (!*path) {
        return need(strdup(name));
    }
    char *whole = need(malloc(strlen(path) + strlen(name) + 2));
    sprintf(whole, "%s/%s", path, name);
    return whole;
}

static void add_job(const char *path, uint64_t first, uint64_t count)
{
    if (tree.count == tree.space) {
        tree.space = tree.space ? 2 * tree.space : 1024;
        tree.jobs =
            need(reallocarray(tree.jobs, tree.space, sizeof *tree.jobs));
    }
    tree.jobs[tree.count++] = (struct job){need(strdup(path)), first, count};
}

static void add_files(const char *path, uint64_t count)
{
    for (uint64_t first = 0; first < count; first += SLICE) {
        uint64_t left = count - first;
        add_job(path, first, left < SLICE ? left : SLICE);
    }
}

static void make_dir(const char *path)
{
    if (mkdirat(tree.root, path, 0755)) {
        fail("make directory", path);
    }
    count_entries(1);
}

static int open_dir(int at, const char *path)
{
    int fd = openat(at, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        fail("open directory", path);
    }
    return fd;
}

static void do_job(const struct job *job)
{
    int fd = open_dir(tree.root, job->path);
    int second = -1;
    if (tree.twice) {
        char *path = need(strdup(job->path));
        path[0] = 'b';
        second = open_dir(tree.root, path);
        free(path);
    }
    for (uint64_t i = job->first; i < job->first + job->count; i++) {
        char name[32];
        snprintf(name, sizeof name, "f%07llu", (unsigned long long)i);
        if (mknodat(fd, name, S_IFREG | 0644, 0)) {
            fail("make file", name);
        }
        if (second >= 0 && linkat(fd, name, second, name, 0)) {
            fail("link", name);
        }
    }
    count_entries(job->count * (second >= 0 ? 2 : 1));
    if (second >= 0) {
        close(second);
    }
    close(fd);
}

static void *work(void *arg)
{
    (void)arg;
    for (;;) {
        size_t mine = __atomic_fetch_add(&tree.next, 1, __ATOMIC_RELAXED);
        if (mine >= tree.count) {
            return NULL;
        }
        do_job(&tree.jobs[mine]);
    }
}

static void do_jobs(void)
{
    pthread_t threads[MAX_THREADS];
    for (int i = 0; i < tree.threads; i++) {
        errno = pthread_create(&threads[i], NULL, work, NULL);
        if (errno) {
            fail("start", "a thread");
        }
    }
    for (int i = 0; i < tree.threads; i++) {
        pthread_join(threads[i], NULL);
    }
    for (size_t i = 0; i < tree.count; i++) {
        free(tree.jobs[i].path);
    }
    free(tree.jobs);
}

/* ---- the shapes --------------------------------------------------------- */

static void balanced_below(const char *path, int depth)
{
    if (depth == 0) {
        add_files(path, tree.number);
        return;
    }
    for (uint64_t i = 0; i < 10; i++) {
        char *child = join(path, "d%llu", i);
        make_dir(child);
        balanced_below(child, depth - 1);
        free(child);
    }
}

static void make_balanced(void)
{
    balanced_below("", 4);
    do_jobs();
}

static void make_flat(void)
{
    add_files("", tree.number);
    do_jobs();
}

static void make_uneven(void)
{
    char **paths = need(calloc(UNEVEN_DIRS, sizeof *paths));
    paths[0] = need(strdup(""));
    for (uint64_t i = 1; i < UNEVEN_DIRS; i++) {
        paths[i] = join(paths[next_random() % i], "d%llu", i);
        make_dir(paths[i]);
    }
    /* Which directory is the r-th largest is left to chance. */
    for (uint64_t i = UNEVEN_DIRS - 1; i > 0; i--) {
        uint64_t j = next_random() % (i + 1);
        char *swap = paths[i];
        paths[i] = paths[j];
        paths[j] = swap;
    }
    double sum = 0;
    for (uint64_t r = 1; r <= UNEVEN_DIRS; r++) {
        sum += pow((double)r, -ZIPF_EXPONENT);
    }
    uint64_t left = tree.number;
    for (uint64_t r = UNEVEN_DIRS; r > 1; r--) {
        double share = pow((double)r, -ZIPF_EXPONENT) / sum;
        uint64_t files = (uint64_t)(share * (double)tree.number);
        left -= files;
        add_files(paths[r - 1], files);
    }
    add_files(paths[0], left);
    for (uint64_t i = 0; i < UNEVEN_DIRS; i++) {
        free(paths[i]);
    }
    free(paths);
    do_jobs();
}

/* A chain of directories, each with a file, below the open `fd`. */
static void make_chain(int fd, const char *name, uint64_t depth)
{
    fd = dup(fd);
    for (uint64_t i = 0; i < depth && fd >= 0; i++) {
        if (mkdirat(fd, name, 0755)) {
            fail("make directory", name);
        }
        int below = open_dir(fd, name);
        close(fd);
        fd = below;
        if (mknodat(fd, "file", S_IFREG | 0644, 0)) {
            fail("make file", "file");
        }
        count_entries(2);
    }
    close(fd);
}

static void make_deep(void)
{
    make_chain(tree.root, "d", tree.number);
}

static void make_twolinks(void)
{
    make_dir("a");
    make_dir("b");
    for (uint64_t first = 0; first < tree.number; first += 1000) {
        char *path = join("a", "%llu", first / 1000);
        make_dir(path);
        uint64_t left = tree.number - first;
        add_job(path, first, left < 1000 ? left : 1000);
        path[0] = 'b';
        make_dir(path);
        free(path);
    }
    tree.twice = true;
    do_jobs();
}

/* ---- the nasty one ------------------------------------------------------ */

static void make_file(const char *name, off_t size, mode_t mode)
{
    int fd =
        openat(tree.root, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || (size && ftruncate(fd, size)) || fchmod(fd, mode)) {
        fail("make file", name);
    }
    close(fd);
    count_entries(1);
}

static void make_node(const char *name, mode_t mode)
{
    if (mknodat(tree.root, name, mode, 0)) {
        fail("make", name);
    }
    count_entries(1);
}

static void make_symlink(const char *target, const char *name)
{
    if (symlinkat(target, tree.root, name)) {
        fail("make link", name);
    }
    count_entries(1);
}

static void make_link(const char *old, const char *name)
{
    if (linkat(tree.root, old, tree.root, name, 0)) {
        fail("make link", name);
    }
    count_entries(1);
}

static void set_time(const char *name, int64_t seconds)
{
    struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    if (utimensat(tree.root, name, times, AT_SYMLINK_NOFOLLOW)) {
        fail("set the time of", name);
    }
}

static void make_odd_names(void)
{
    static const char *const names[] = {
        "new\nline",
        "pi|pe",
        "\xff\xfe",
        "half\xc3",
        "-rf",
        "--help",
        "  leading blanks",
        "trailing blanks  ",
        "ta\tb",
        "back\\slash",
        "'quote\"s'",
        "*",
        "?[a]",
        "$(date)",
        "`x`",
        "#hash",
        "~",
        "...",
        ".hidden",
        "{brace}",
        "a=b",
        "per%cent %s",
        "\x1b[31mred",
        "\x7f",
        "\xe2\x82\xac uro",
        "com,ma",
        "semi;colon",
        "\n",
        " ",
    };
    make_dir("odd");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        snprintf(path, sizeof path, "odd/%s", names[i]);
        make_file(path, (off_t)i, 0644);
        snprintf(path, sizeof path, "odd/%s.d", names[i]);
        make_dir(path);
    }
    char longest[4 + 255 + 1] = "odd/";
    memset(longest + 4, 'x', 255);
    make_file(longest, 1, 0644);
    longest[4] = 'd';
    make_dir(longest);
}

static void make_links(void)
{
    make_dir("links");
    make_dir("links/other");
    make_file("links/file", 10 << 20, 0644);
    make_link("links/file", "links/second");
    make_link("links/file", "links/other/third");
    make_symlink("file", "links/to-file");
    make_symlink("nowhere", "links/dangling");
    make_symlink("self", "links/self");
    make_symlink("pong", "links/ping");
    make_symlink("ping", "links/pong");
    make_symlink("..", "links/up");
    make_symlink("../..", "links/other/up");
    make_symlink("/", "links/root");
    make_link("links/dangling", "links/dangling-again");
}

static void make_sizes(void)
{
    make_dir("sizes");
    make_file("sizes/empty", 0, 0644);
    make_file("sizes/one", 1, 0644);
    make_file("sizes/511", 511, 0644);
    make_file("sizes/512", 512, 0644);
    make_file("sizes/513", 513, 0644);
    make_file("sizes/sparse", (off_t)5 << 30, 0644);
    int fd = openat(tree.root, "sizes/sparse", O_WRONLY | O_CLOEXEC);
    char block[5000];
    memset(block, 'x', sizeof block);
    if (fd < 0 || pwrite(fd, block, sizeof block, 123456789) < 0) {
        fail("write", "sizes/sparse");
    }
    close(fd);
    make_file("sizes/before-1970", 3, 0644);
    set_time("sizes/before-1970", -86400 * 365);
    make_file("sizes/in-2400", 3, 0644);
    set_time("sizes/in-2400", INT64_C(13569465600));
}

static void make_modes(void)
{
    make_dir("modes");
    make_file("modes/setuid", 1, 04755);
    make_file("modes/none", 1, 0000);
    make_file("modes/all", 1, 0777);
    make_node("modes/fifo", S_IFIFO | 0644);
    make_node("modes/socket", S_IFSOCK | 0644);
    make_dir("modes/empty");
    make_dir("modes/sticky");
    if (fchmodat(tree.root, "modes/sticky", 01777, 0)) {
        fail("change", "modes/sticky");
    }
    make_dir("modes/unreadable");
    make_file("modes/unreadable/file", 1, 0644);
    make_dir("modes/unsearchable");
    make_file("modes/unsearchable/file", 1, 0644);
    make_dir("modes/unsearchable/dir");
    if (fchmodat(tree.root, "modes/unreadable", 0000, 0) ||
        fchmodat(tree.root, "modes/unsearchable", 0444, 0)) {
        fail("change", "modes/unreadable");
    }
    if (geteuid() == 0) {
        make_file("modes/somebody's", 1, 0644);
        if (fchownat(tree.root, "modes/somebody's", 4000000001U, 4000000002U,
                     0)) {
            fail("give away", "modes/somebody's");
        }
    }
}

static void make_nasty(void)
{
    make_odd_names();
    make_links();
    make_sizes();
    make_modes();
    /* Together longer than PATH_MAX, and than any stack of descriptors. */
    make_dir("deep");
    int deep = open_dir(tree.root, "deep");
    char name[201];
    memset(name, 'n', 200);
    name[200] = '\0';
    make_chain(deep, name, 60);
    make_chain(deep, "d", tree.number);
    close(deep);
}

static const struct shape {
    const char *name;
    void (*make)(void);
    uint64_t number; /* unless -n says otherwise */
} shapes[] = {
    {"balanced", make_balanced, 100},    {"flat", make_flat, 500000},
    {"uneven", make_uneven, 500000},     {"deep", make_deep, 20000},
    {"twolinks", make_twolinks, 500000}, {"nasty", make_nasty, 1500},
};

static const struct shape *find_shape(const char *name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (!strcmp(name, shapes[i].name)) {
            return &shapes[i];
        }
    }
    return NULL;
}

static void open_root(const char *path)
{
    if (mkdir(path, 0755) && errno != EEXIST) {
        fail("make directory", path);
    }
    tree.root = open_dir(AT_FDCWD, path);
    DIR *dir = fdopendir(dup(tree.root));
    int names = 0;
    while (dir && readdir(dir)) {
        names++;
    }
    if (!dir || names > 2) {
        errno = ENOTEMPTY;
        fail("make a tree in", path);
    }
    closedir(dir);
}

int main(int argc, char **argv)
{
    int letter;
    uint64_t number = 0;
    bool is_good = true;
    while ((letter = getopt(argc, argv, "s:t:n:")) != -1) {
        if (letter == 's') {
            tree.seed = strtoull(optarg, NULL, 10);
        } else if (letter == 't') {
            tree.threads = atoi(optarg);
        } else if (letter == 'n') {
            number = strtoull(optarg, NULL, 10);
        } else {
            is_good = false;
        }
    }
    const struct shape *shape =
        optind == argc - 2 ? find_shape(argv[optind]) : NULL;
    if (!is_good || !shape || tree.threads < 1 || tree.threads > MAX_THREADS) {
        fprintf(stderr, "usage: mktree [-s SEED] [-t THREADS] [-n N] "
                        "balanced|flat|uneven|deep|twolinks|nasty DIR\n");
        return 2;
    }
    tree.number = number ? number : shape->number;
    umask(0);
    open_root(argv[optind + 1]);
    shape->make();
    close(tree.root);
    printf("%llu\n", (unsigned long long)tree.entries);
    return 0;
}
