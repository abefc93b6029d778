/* A tree for the tests of the survey, and what a survey of it must say. */
#include "survey_common.h"

#include "../ranks.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char survey_place[TEMPORARY_BYTES];
char survey_tree[TEMPORARY_MORE];
struct truth survey_truth;

static void put_file(const char *dir, const char *name, off_t size, int age_s)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0640);
    assert_true(fd >= 0);
    if (size > 0 && size <= 5000) {
        char data[5000] = {1};
        assert_int_equal(write(fd, data, (size_t)size), size);
    } else {
        assert_int_equal(ftruncate(fd, size), 0); /* a hole */
    }
    struct timespec times[2] = {{.tv_nsec = UTIME_NOW},
                                {.tv_sec = time(NULL) - age_s, .tv_nsec = 7}};
    futimens(fd, times);
    close(fd);
}

static void make_dir(char *out, size_t room, const char *dir, const char *name)
{
    snprintf(out, room, "%s/%s", dir, name);
    assert_int_equal(mkdir(out, 0755), 0);
}

static void build_tree(void)
{
    char dir[TEMPORARY_MORE + 64], sub[TEMPORARY_MORE + 128], name[40];
    char to[TEMPORARY_MORE + 96];
    assert_int_equal(mkdir(survey_tree, 0755), 0);
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof name, "dir%d", i);
        make_dir(dir, sizeof dir, survey_tree, name);
        for (int k = 0; k < i % 13; k++) {
            snprintf(name, sizeof name, "f%d", k);
            put_file(dir, name, (off_t)i * k * 7, i * k * 100000);
        }
        make_dir(sub, sizeof sub, dir, "sub");
        put_file(sub, "x", 1, 0);
    }
    make_dir(dir, sizeof dir, survey_tree, "wide");
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof name, "w%d", i);
        put_file(dir, name, i % 50, 40 * 86400);
    }
    make_dir(dir, sizeof dir, survey_tree, "links");
    put_file(dir, "original", 4000, 10);
    /* More of equal size and width than a list has lines. */
    for (int i = 0; i < 3 * SURVEY_TOP; i++) {
        snprintf(name, sizeof name, "same%d", i * 37 % 100);
        make_dir(sub, sizeof sub, survey_tree, name);
        put_file(sub, "large", (off_t)3 << 32, i);
        for (int k = 0; k < 98; k++) {
            snprintf(name, sizeof name, "e%d", k);
            put_file(sub, name, 0, 0);
        }
    }
    for (int i = 0; i < 60; i++) {
        char from[TEMPORARY_MORE + 96];
        snprintf(from, sizeof from, "%s/wide/w%d", survey_tree, i);
        snprintf(to, sizeof to, "%s/dir%d/again", survey_tree, i);
        assert_int_equal(link(from, to), 0);
        snprintf(from, sizeof from, "%s/original", dir);
        snprintf(to, sizeof to, "%s/dir%d/sub/l%d", survey_tree, i, i);
        assert_int_equal(link(from, to), 0);
    }
    make_dir(dir, sizeof dir, survey_tree, "od,d \"na\nme\r");
    put_file(dir, "\xff\xfe,\"", 33, -100000); /* not UTF-8, of the future */
    put_file(dir, "-rf", (off_t)5 << 32, INT32_MAX);
    put_file(dir, " \xc3\xa4\xe2\x82\xac", 12, 86400);
    make_dir(sub, sizeof sub, dir, "empty");
    snprintf(to, sizeof to, "%s/pipe", dir);
    assert_int_equal(mkfifo(to, 0600), 0);
    snprintf(to, sizeof to, "%s/symlink", dir);
    assert_int_equal(symlink("../nowhere", to), 0);
}

static struct item *add_item(struct truth *all, const char *path,
                             uint32_t depth)
{
    if (all->count == all->cap) {
        all->cap = all->cap ? 2 * all->cap : 1024;
        all->items = realloc(all->items, all->cap * sizeof *all->items);
    }
    struct item *item = &all->items[all->count++];
    *item = (struct item){.path = strdup(path), .depth = depth};
    assert_int_equal(lstat(path, &item->st), 0);
    return item;
}

static void collect(struct truth *all, const char *path, uint32_t depth)
{
    size_t self = all->count;
    if (!S_ISDIR(add_item(all, path, depth)->st.st_mode)) {
        return;
    }
    DIR *dir = opendir(path);
    uint64_t width = 0;
    for (struct dirent *d; (d = readdir(dir));) {
        if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0) {
            char below[2048];
            snprintf(below, sizeof below, "%s/%s", path, d->d_name);
            collect(all, below, depth + 1);
            width++;
        }
    }
    closedir(dir);
    all->items[self].width = width;
}

int survey_set_up(void **state)
{
    (void)state;
    if (!mkdtemp(temporary_name(survey_place, "survey"))) {
        return -1;
    }
    snprintf(survey_tree, sizeof survey_tree, "%s/tree", survey_place);
    build_tree();
    collect(&survey_truth, survey_tree, 0);
    return 0;
}

int survey_tear_down(void **state)
{
    char command[TEMPORARY_MORE];
    (void)state;
    for (size_t i = 0; i < survey_truth.count; i++) {
        free(survey_truth.items[i].path);
    }
    free(survey_truth.items);
    snprintf(command, sizeof command, "rm -rf %s", survey_place);
    return system(command);
}

/* ---- running ------------------------------------------------------------ */

struct call {
    const struct poise_walk_survey_options *options;
    struct poise_walk_summary *out;
};

static int survey_rank(struct poise_world *world, void *arg)
{
    const struct call *call = arg;
    struct poise_walk_summary summary = {0};
    struct poise_walk_result result = {0};
    bool first = !world || poise_world_rank(world) == 0;
    int code = poise_walk_survey(world, call->options,
                                 first ? call->out : &summary, &result);
    poise_walk_result_free(&result);
    return code;
}

/* On `ranks` ranks; 0: without a world. Rank 0's summary. */
int survey_run(int ranks, const struct poise_walk_survey_options *options,
               struct poise_walk_summary *out)
{
    struct call call = {.options = options, .out = out};
    int codes[MOST_RANKS];
    *out = (struct poise_walk_summary){0};
    if (ranks == 0) {
        return survey_rank(NULL, &call);
    }
    assert_int_equal(run_all(ranks, NULL, survey_rank, &call, codes), 0);
    for (int i = 1; i < ranks; i++) {
        assert_int_equal(codes[i], codes[0]);
    }
    return codes[0];
}

struct poise_walk_survey_options survey_options(unsigned threads)
{
    static const char *const roots[] = {survey_tree};
    return (struct poise_walk_survey_options){
        .walk = {.roots = roots,
                 .root_count = 1,
                 .pool = {.policy = POISE_POLICY_HYBRID, .threads = threads}},
        .top = SURVEY_TOP,
    };
}

/* ---- the summary -------------------------------------------------------- */

static bool seen_before(size_t at)
{
    const struct stat *st = &survey_truth.items[at].st;
    for (size_t i = 0; i < at && st->st_nlink > 1; i++) {
        const struct stat *other = &survey_truth.items[i].st;
        if (!S_ISDIR(st->st_mode) && other->st_ino == st->st_ino &&
            other->st_dev == st->st_dev) {
            return true;
        }
    }
    return false;
}

/* Largest first, of equal ones the bytewise smallest path first. */
static int in_order(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    if (x->value != y->value) {
        return x->value > y->value ? -1 : 1;
    }
    return strcmp(x->path, y->path);
}

static void rename_line(struct expected *e, const struct item *item)
{
    for (size_t i = 0; i < e->size_count; i++) {
        struct line *line = &e->sizes[i];
        if (line->ino == item->st.st_ino &&
            strcmp(item->path, line->path) < 0) {
            line->path = item->path;
        }
    }
}

static unsigned bin_of_age(int64_t age_s)
{
    unsigned bin = 0;
    while (bin < POISE_WALK_AGE_BINS - 1 &&
           age_s >= (int64_t)poise_walk_age_limits[bin]) {
        bin++;
    }
    return bin;
}

static unsigned bin_of_size(uint64_t size)
{
    unsigned bin = 0;
    for (; size; size >>= 1) {
        bin++;
    }
    return bin;
}

static void expect_entry(struct expected *e, const struct item *item,
                         bool again, int64_t now_ns)
{
    struct poise_walk_summary *s = &e->sums;
    mode_t type = item->st.st_mode & S_IFMT;
    s->entries++;
    s->depths[item->depth]++;
    s->deepest = item->depth > s->deepest ? item->depth : s->deepest;
    s->types[type == S_IFDIR   ? POISE_WALK_DIRECTORIES
             : type == S_IFLNK ? POISE_WALK_LINKS
             : type == S_IFIFO ? POISE_WALK_PIPES
                               : POISE_WALK_FILES]++;
    s->linked_entries += again;
    if (type == S_IFDIR) {
        s->widths[bin_of_size(item->width)]++;
        s->widest = item->width > s->widest ? item->width : s->widest;
        e->widths[e->width_count++] =
            (struct line){item->width, item->path, item->st.st_ino};
    }
    if (again) {
        rename_line(e, item);
        return;
    }
    uint64_t size = (uint64_t)item->st.st_size;
    s->apparent_bytes += size;
    s->allocated_bytes += (uint64_t)item->st.st_blocks * 512;
    if (type == S_IFREG) {
        int64_t age = now_ns / 1000000000 - item->st.st_mtim.tv_sec;
        age -= now_ns % 1000000000 < item->st.st_mtim.tv_nsec;
        s->sizes[bin_of_size(size)]++;
        s->size_bytes[bin_of_size(size)] += size;
        s->ages[bin_of_age(age)]++;
        s->age_bytes[bin_of_age(age)] += size;
        /* Among the largest holes do not count. */
        uint64_t data = (uint64_t)item->st.st_blocks * 512;
        data = size > 4096 && data < size ? data : size;
        e->sizes[e->size_count++] =
            (struct line){data, item->path, item->st.st_ino};
    }
}

struct expected survey_expect(int64_t now_ns)
{
    struct expected e = {0};
    e.sizes = calloc(survey_truth.count, sizeof *e.sizes);
    e.widths = calloc(survey_truth.count, sizeof *e.widths);
    for (size_t i = 0; i < survey_truth.count; i++) {
        expect_entry(&e, &survey_truth.items[i], seen_before(i), now_ns);
    }
    qsort(e.sizes, e.size_count, sizeof *e.sizes, in_order);
    qsort(e.widths, e.width_count, sizeof *e.widths, in_order);
    return e;
}

static void check_list(const struct poise_walk_named *list, size_t count,
                       const struct line *expected)
{
    assert_int_equal(count, SURVEY_TOP);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(list[i].value, expected[i].value);
        assert_int_equal(list[i].path_len, strlen(expected[i].path));
        assert_memory_equal(list[i].path, expected[i].path, list[i].path_len);
    }
}

void survey_check(const struct poise_walk_summary *got, int64_t now_ns)
{
    struct expected e = survey_expect(now_ns);
    const struct poise_walk_summary *s = &e.sums;
    assert_int_equal(got->entries, s->entries);
    assert_memory_equal(got->types, s->types, sizeof s->types);
    assert_true(got->with_metadata);
    assert_int_equal(got->linked_entries, s->linked_entries);
    assert_int_equal(got->apparent_bytes, s->apparent_bytes);
    assert_int_equal(got->allocated_bytes, s->allocated_bytes);
    assert_memory_equal(got->sizes, s->sizes, sizeof s->sizes);
    assert_memory_equal(got->size_bytes, s->size_bytes, sizeof s->size_bytes);
    assert_memory_equal(got->ages, s->ages, sizeof s->ages);
    assert_memory_equal(got->age_bytes, s->age_bytes, sizeof s->age_bytes);
    assert_memory_equal(got->depths, s->depths, sizeof s->depths);
    assert_int_equal(got->deepest, s->deepest);
    assert_int_equal(got->widest, s->widest);
    assert_memory_equal(got->widths, s->widths, sizeof s->widths);
    check_list(got->files, got->file_count, e.sizes);
    check_list(got->directories, got->directory_count, e.widths);
    assert_int_equal(got->owner_count, 1);
    assert_int_equal(got->owners[0].uid, getuid());
    assert_int_equal(got->owners[0].entries, s->entries);
    assert_int_equal(got->owners[0].allocated_bytes, s->allocated_bytes);
    free(e.sizes);
    free(e.widths);
}
