/*
 * The survey against a plain recursion over the same tree: totals, lists and
 * inventories; sets that spill; kills, faults and damaged files.
 */
#include "walk/survey.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS_MOST = 8, TOP = 7 };

/* ---- a tree, and what is in it ---------------------------------------------
 */

struct item {
    char *path;
    struct stat st;
    uint32_t depth;
    uint64_t width; /* of directories */
};
struct truth {
    struct item *items;
    size_t count, cap;
};

static char place[64]; /* a directory of our own; the tree is below it */
static char tree[96];
static struct truth truth;

static void put_file(const char *dir, const char *name, off_t size, int age_s)
{
    char path[600];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
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
    char dir[200], sub[300], name[40], to[400];
    assert_int_equal(mkdir(tree, 0755), 0);
    for (int i = 0; i < 60; i++) {
        snprintf(name, sizeof(name), "dir%d", i);
        make_dir(dir, sizeof(dir), tree, name);
        for (int k = 0; k < i % 13; k++) {
            snprintf(name, sizeof(name), "f%d", k);
            put_file(dir, name, (off_t)i * k * 7, i * k * 100000);
        }
        make_dir(sub, sizeof(sub), dir, "sub");
        put_file(sub, "x", 1, 0);
    }
    make_dir(dir, sizeof(dir), tree, "wide");
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "w%d", i);
        put_file(dir, name, i % 50, 40 * 86400);
    }
    make_dir(dir, sizeof(dir), tree, "links");
    put_file(dir, "original", 4000, 10);
    /* More of equal size and width than a list has lines. */
    for (int i = 0; i < 3 * TOP; i++) {
        snprintf(name, sizeof(name), "same%d", i * 37 % 100);
        make_dir(sub, sizeof(sub), tree, name);
        put_file(sub, "large", (off_t)3 << 32, i);
        for (int k = 0; k < 98; k++) {
            snprintf(name, sizeof(name), "e%d", k);
            put_file(sub, name, 0, 0);
        }
    }
    for (int i = 0; i < 60; i++) {
        char from[300];
        snprintf(from, sizeof(from), "%s/wide/w%d", tree, i);
        snprintf(to, sizeof(to), "%s/dir%d/again", tree, i);
        assert_int_equal(link(from, to), 0);
        snprintf(from, sizeof(from), "%s/original", dir);
        snprintf(to, sizeof(to), "%s/dir%d/sub/l%d", tree, i, i);
        assert_int_equal(link(from, to), 0);
    }
    make_dir(dir, sizeof(dir), tree, "od,d \"na\nme\r");
    put_file(dir, "\xff\xfe,\"", 33, -100000); /* not UTF-8, of the future */
    put_file(dir, "-rf", (off_t)5 << 32, INT32_MAX);
    put_file(dir, " \xc3\xa4\xe2\x82\xac", 12, 86400);
    make_dir(sub, sizeof(sub), dir, "empty");
    snprintf(to, sizeof(to), "%s/pipe", dir);
    assert_int_equal(mkfifo(to, 0600), 0);
    snprintf(to, sizeof(to), "%s/symlink", dir);
    assert_int_equal(symlink("../nowhere", to), 0);
}

static struct item *add_item(struct truth *all, const char *path,
                             uint32_t depth)
{
    if (all->count == all->cap) {
        all->cap = all->cap ? 2 * all->cap : 1024;
        all->items = realloc(all->items, all->cap * sizeof(*all->items));
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
            snprintf(below, sizeof(below), "%s/%s", path, d->d_name);
            collect(all, below, depth + 1);
            width++;
        }
    }
    closedir(dir);
    all->items[self].width = width;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(place, sizeof(place), "/tmp/poise-survey-XXXXXX");
    if (!mkdtemp(place)) {
        return -1;
    }
    snprintf(tree, sizeof(tree), "%s/tree", place);
    build_tree();
    collect(&truth, tree, 0);
    return 0;
}

static int tear_down(void **state)
{
    char command[200];
    (void)state;
    for (size_t i = 0; i < truth.count; i++) {
        free(truth.items[i].path);
    }
    free(truth.items);
    snprintf(command, sizeof(command), "rm -rf %s", place);
    return system(command);
}

/* ---- running ----------------------------------------------------------------
 */

struct call {
    struct poise_world *world;
    const struct poise_walk_survey_options *options;
    struct poise_walk_summary summary;
    struct poise_walk_result result;
    int code;
};

static void *run_rank(void *arg)
{
    struct call *call = arg;
    call->code = poise_walk_survey(call->world, call->options, &call->summary,
                                   &call->result);
    poise_walk_result_free(&call->result);
    poise_world_destroy(call->world);
    return NULL;
}

/* On `ranks` ranks; 0: without a world. Rank 0's summary. */
static int survey(int ranks, const struct poise_walk_survey_options *options,
                  struct poise_walk_summary *out)
{
    struct poise_world *worlds[RANKS_MOST];
    struct call calls[RANKS_MOST] = {{.options = options}};
    pthread_t threads[RANKS_MOST];
    if (!ranks) {
        run_rank(&calls[0]);
    } else {
        assert_int_equal(poise_world_create_local(ranks, NULL, worlds), 0);
        for (int i = 0; i < ranks; i++) {
            calls[i] = (struct call){.options = options, .world = worlds[i]};
            pthread_create(&threads[i], NULL, run_rank, &calls[i]);
        }
        for (int i = 0; i < ranks; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(calls[i].code, calls[0].code);
        }
    }
    *out = calls[0].summary;
    return calls[0].code;
}

static struct poise_walk_survey_options options_of(unsigned threads)
{
    static const char *const roots[] = {tree};
    return (struct poise_walk_survey_options){
        .walk = {.roots = roots,
                 .root_count = 1,
                 .pool = {.policy = POISE_POLICY_HYBRID, .threads = threads}},
        .top = TOP,
    };
}

/* ---- the summary ------------------------------------------------------------
 */

static bool seen_before(size_t at)
{
    const struct stat *st = &truth.items[at].st;
    for (size_t i = 0; i < at && st->st_nlink > 1; i++) {
        const struct stat *other = &truth.items[i].st;
        if (!S_ISDIR(st->st_mode) && other->st_ino == st->st_ino &&
            other->st_dev == st->st_dev) {
            return true;
        }
    }
    return false;
}

/* A line of a top list; of an inode with several names the smallest. */
struct line {
    uint64_t value;
    const char *path;
    ino_t ino;
};

/* Largest first, of equal ones the bytewise smallest path first. */
static int in_order(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    if (x->value != y->value) {
        return x->value > y->value ? -1 : 1;
    }
    return strcmp(x->path, y->path);
}

struct expected {
    struct poise_walk_summary sums;
    struct line *sizes, *widths; /* of inodes and directories, in order */
    size_t size_count, width_count;
};

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
        e->sizes[e->size_count++] =
            (struct line){size, item->path, item->st.st_ino};
    }
}

static struct expected expect(int64_t now_ns)
{
    struct expected e = {0};
    e.sizes = calloc(truth.count, sizeof(*e.sizes));
    e.widths = calloc(truth.count, sizeof(*e.widths));
    for (size_t i = 0; i < truth.count; i++) {
        expect_entry(&e, &truth.items[i], seen_before(i), now_ns);
    }
    qsort(e.sizes, e.size_count, sizeof(*e.sizes), in_order);
    qsort(e.widths, e.width_count, sizeof(*e.widths), in_order);
    return e;
}

static void check_list(const struct poise_walk_named *list, size_t count,
                       const struct line *expected)
{
    assert_int_equal(count, TOP);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(list[i].value, expected[i].value);
        assert_int_equal(list[i].path_len, strlen(expected[i].path));
        assert_memory_equal(list[i].path, expected[i].path, list[i].path_len);
    }
}

static void check_summary(const struct poise_walk_summary *got, int64_t now_ns)
{
    struct expected e = expect(now_ns);
    const struct poise_walk_summary *s = &e.sums;
    assert_int_equal(got->entries, s->entries);
    assert_memory_equal(got->types, s->types, sizeof(s->types));
    assert_true(got->with_metadata);
    assert_int_equal(got->linked_entries, s->linked_entries);
    assert_int_equal(got->apparent_bytes, s->apparent_bytes);
    assert_int_equal(got->allocated_bytes, s->allocated_bytes);
    assert_memory_equal(got->sizes, s->sizes, sizeof(s->sizes));
    assert_memory_equal(got->size_bytes, s->size_bytes, sizeof(s->size_bytes));
    assert_memory_equal(got->ages, s->ages, sizeof(s->ages));
    assert_memory_equal(got->age_bytes, s->age_bytes, sizeof(s->age_bytes));
    assert_memory_equal(got->depths, s->depths, sizeof(s->depths));
    assert_int_equal(got->deepest, s->deepest);
    assert_int_equal(got->widest, s->widest);
    assert_memory_equal(got->widths, s->widths, sizeof(s->widths));
    check_list(got->files, got->file_count, e.sizes);
    check_list(got->directories, got->directory_count, e.widths);
    assert_int_equal(got->owner_count, 1);
    assert_int_equal(got->owners[0].uid, getuid());
    assert_int_equal(got->owners[0].entries, s->entries);
    assert_int_equal(got->owners[0].allocated_bytes, s->allocated_bytes);
    free(e.sizes);
    free(e.widths);
}

static void test_summary(void **state)
{
    (void)state;
    static const int ranks[] = {0, 0, 1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof(ranks) / sizeof(*ranks); i++) {
        struct poise_walk_survey_options options = options_of(1 + i % 3);
        struct poise_walk_summary summary;
        options.now_ns = poise_clock_wall_ns();
        options.links_bytes = i % 2 ? 2560 : 0; /* the smallest set: spills */
        assert_int_equal(survey(ranks[i], &options, &summary), 0);
        check_summary(&summary, options.now_ns);
        poise_walk_summary_free(&summary);
    }
}

static void test_names_only(void **state)
{
    (void)state;
    struct expected e = expect(0);
    for (int ranks = 0; ranks <= 3; ranks += 3) {
        struct poise_walk_survey_options options = options_of(2);
        struct poise_walk_summary summary;
        options.names_only = true;
        assert_int_equal(survey(ranks, &options, &summary), 0);
        assert_int_equal(summary.entries, truth.count);
        assert_memory_equal(summary.types, e.sums.types, sizeof(summary.types));
        assert_false(summary.with_metadata);
        poise_walk_summary_free(&summary);
    }
    free(e.sizes);
    free(e.widths);
}

/* ---- inventories ------------------------------------------------------------
 */

static struct {
    char **items;
    size_t count, cap;
} lines;

static void lines_clear(void)
{
    for (size_t i = 0; i < lines.count; i++) {
        free(lines.items[i]);
    }
    free(lines.items);
    memset(&lines, 0, sizeof(lines));
}

static void lines_add(const char *path, size_t path_len,
                      const struct walk_row *row)
{
    if (lines.count == lines.cap) {
        lines.cap = lines.cap ? 2 * lines.cap : 1024;
        lines.items = realloc(lines.items, lines.cap * sizeof(char *));
    }
    struct poise_buf line = {0};
    poise_buf_append(&line, path, path_len);
    poise_buf_printf(
        &line, "|%c|%o|%u|%u|%llu|%llu|%llu|%llu|%llu|%lld.%u|%lld",
        walk_row_type(row->mode), row->mode & 07777, row->uid, row->gid,
        (unsigned long long)row->size_bytes, (unsigned long long)row->blocks,
        (unsigned long long)row->nlink, (unsigned long long)row->ino,
        (unsigned long long)row->dev, (long long)row->mtime, row->mtime_ns,
        (long long)row->ctime);
    poise_buf_str(&line);
    lines.items[lines.count++] = line.data;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void lines_check(void)
{
    char **got = lines.items;
    size_t count = lines.count;
    memset(&lines, 0, sizeof(lines));
    for (size_t i = 0; i < truth.count; i++) {
        const struct stat *st = &truth.items[i].st;
        struct walk_row row = {.mode = st->st_mode,
                               .uid = st->st_uid,
                               .gid = st->st_gid,
                               .size_bytes = (uint64_t)st->st_size,
                               .blocks = (uint64_t)st->st_blocks,
                               .nlink = st->st_nlink,
                               .ino = st->st_ino,
                               .dev = st->st_dev,
                               .mtime = st->st_mtim.tv_sec,
                               .mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
                               .ctime = st->st_ctim.tv_sec};
        lines_add(truth.items[i].path, strlen(truth.items[i].path), &row);
    }
    assert_int_equal(count, lines.count);
    qsort(got, count, sizeof(char *), by_text);
    qsort(lines.items, count, sizeof(char *), by_text);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(got[i], lines.items[i]);
        free(got[i]);
    }
    free(got);
    lines_clear();
}

static void read_sql(const char *sql, const char *path)
{
    sqlite3 *db;
    sqlite3_stmt *rows;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &rows, NULL), SQLITE_OK);
    while (sqlite3_step(rows) == SQLITE_ROW) {
        static const char types[] = "fdlp";
        static const mode_t modes[] = {S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO};
        int64_t n[12];
        for (int i = 2; i < 12; i++) {
            n[i] = sqlite3_column_int64(rows, i);
        }
        const char *type = (const char *)sqlite3_column_text(rows, 1);
        struct walk_row row = {
            .mode = (uint32_t)n[2] | modes[strchr(types, *type) - types],
            .uid = (uint32_t)n[3],
            .gid = (uint32_t)n[4],
            .size_bytes = (uint64_t)n[5],
            .blocks = (uint64_t)n[6],
            .nlink = (uint64_t)n[7],
            .ino = (uint64_t)n[8],
            .dev = (uint64_t)n[9],
            .mtime = n[10],
            .ctime = n[11],
            .mtime_ns = (uint32_t)sqlite3_column_int64(rows, 12)};
        lines_add(sqlite3_column_blob(rows, 0),
                  (size_t)sqlite3_column_bytes(rows, 0), &row);
    }
    sqlite3_finalize(rows);
    assert_int_equal(
        sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &rows, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(rows), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(rows, 0), "ok");
    sqlite3_finalize(rows);
    sqlite3_close(db);
}

static char *slurp(const char *path, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    *len = (size_t)lseek(fd, 0, SEEK_END);
    char *data = malloc(*len + 1);
    assert_int_equal(pread(fd, data, *len, 0), *len);
    data[*len] = '\0';
    close(fd);
    return data;
}

static uint32_t mode_of(char type)
{
    return type == 'f'   ? S_IFREG
           : type == 'd' ? S_IFDIR
           : type == 'l' ? S_IFLNK
                         : S_IFIFO;
}

/* The fields behind the path, of CSV. */
static void read_fields(const char *text, const char *path, size_t path_len)
{
    struct walk_row row = {0};
    char type;
    unsigned long long n[5];
    long long mtime, ctime;
    unsigned mtime_ns, ctime_ns;
    assert_int_equal(sscanf(text,
                            ",%c,%o,%u,%u,%llu,%llu,%llu,%llu,%llu,%lld.%u,"
                            "%lld.%u\r\n",
                            &type, &row.mode, &row.uid, &row.gid, &n[0], &n[1],
                            &n[2], &n[3], &n[4], &mtime, &mtime_ns, &ctime,
                            &ctime_ns),
                     13);
    row.mode |= mode_of(type);
    row.size_bytes = n[0];
    row.blocks = n[1];
    row.nlink = n[2];
    row.ino = n[3];
    row.dev = n[4];
    row.mtime = mtime;
    row.mtime_ns = mtime_ns;
    if (mtime < 0) { /* decimals count away from zero there */
        row.mtime = mtime - (mtime_ns > 0);
        row.mtime_ns = mtime_ns ? 1000000000 - mtime_ns : 0;
    }
    row.ctime = ctime;
    lines_add(path, path_len, &row);
}

static void read_csv(const char *path)
{
    size_t len;
    char *data = slurp(path, &len), *at = data + strlen(walk_csv_header);
    assert_memory_equal(data, walk_csv_header, strlen(walk_csv_header));
    while (at < data + len) {
        struct poise_buf name = {0};
        if (*at == '"') {
            for (at++; *at != '"' || at[1] == '"'; at++) {
                at += *at == '"';
                poise_buf_putc(&name, *at);
            }
            at++;
        } else {
            for (; *at != ','; at++) {
                poise_buf_putc(&name, *at);
            }
        }
        read_fields(at, name.data, name.len);
        poise_buf_free(&name);
        at = strstr(at, "\r\n") + 2;
    }
    free(data);
}

static size_t decode_base64(char *text)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t len = 0;
    unsigned bits = 0, value = 0;
    for (char *p = text; *p && *p != '=' && *p != '"'; p++) {
        value = value << 6 | (unsigned)(strchr(digits, *p) - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            text[len++] = (char)(value >> bits);
        }
    }
    return len;
}

/* SQLite's own JSON functions take the lines apart. */
static void read_json(const char *path)
{
    size_t len;
    char *data = slurp(path, &len);
    sqlite3 *db;
    sqlite3_stmt *get;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(
            db,
            "SELECT json_extract(?1,'$.path'),json_extract(?1,'$.path_base64'),"
            "',' || json_extract(?1,'$.type') || ',' || "
            "json_extract(?1,'$.mode') || ',' || json_extract(?1,'$.uid') || "
            "',' || json_extract(?1,'$.gid') || ',' || "
            "json_extract(?1,'$.size') || ',' || json_extract(?1,'$.blocks') "
            "|| ',' || json_extract(?1,'$.nlink') || ',' || "
            "json_extract(?1,'$.ino') || ',' || json_extract(?1,'$.dev') || "
            "','",
            -1, &get, NULL),
        SQLITE_OK);
    for (char *at = data; at < data + len;) {
        char *end = strchr(at, '\n');
        sqlite3_bind_text(get, 1, at, (int)(end - at), SQLITE_STATIC);
        assert_int_equal(sqlite3_step(get), SQLITE_ROW);
        char text[500];
        const char *mtime = strstr(at, "\"mtime\":") + 8;
        const char *ctime = strstr(at, "\"ctime\":") + 8;
        snprintf(text, sizeof(text), "%s%.*s,%.*s\r\n",
                 (const char *)sqlite3_column_text(get, 2),
                 (int)strcspn(mtime, ","), mtime, (int)strcspn(ctime, "}"),
                 ctime);
        bool odd = sqlite3_column_type(get, 1) != SQLITE_NULL;
        char *name =
            strdup((const char *)sqlite3_column_text(get, odd ? 1 : 0));
        read_fields(text, name, odd ? decode_base64(name) : strlen(name));
        free(name);
        sqlite3_reset(get);
        at = end + 1;
    }
    sqlite3_finalize(get);
    sqlite3_close(db);
    free(data);
}

/* Rows of a binary inventory are gathered in a database, whose view of paths
 * was tested before. */
static struct {
    struct walk_row *rows;
    size_t count;
} binary;

static int keep_row(const struct walk_row *row, void *arg)
{
    (void)arg;
    binary.rows =
        realloc(binary.rows, (binary.count + 1) * sizeof(struct walk_row));
    binary.rows[binary.count] = *row;
    binary.rows[binary.count++].name = strndup(row->name, row->name_len);
    return 0;
}

static void path_of_row(const struct walk_row *row, struct poise_buf *out)
{
    for (size_t i = 0; row->dir && i < binary.count; i++) {
        if (binary.rows[i].id == row->dir) {
            path_of_row(&binary.rows[i], out);
            poise_buf_putc(out, '/');
            break;
        }
    }
    poise_buf_append(out, row->name, row->name_len);
}

static void read_binary(const char *path)
{
    assert_int_equal(walk_inventory_read(path, keep_row, NULL), 0);
    for (size_t i = 0; i < binary.count; i++) {
        struct poise_buf full = {0};
        path_of_row(&binary.rows[i], &full);
        lines_add(full.data, full.len, &binary.rows[i]);
        poise_buf_free(&full);
    }
    for (size_t i = 0; i < binary.count; i++) {
        free((char *)binary.rows[i].name);
    }
    free(binary.rows);
    memset(&binary, 0, sizeof(binary));
}

static void check_inventory(enum poise_walk_format format, const char *path)
{
    switch (format) {
    case POISE_WALK_SQLITE:
        read_sql("SELECT path,type,mode,uid,gid,size,blocks,nlink,ino,dev,"
                 "mtime,ctime,mtime_ns FROM files",
                 path);
        break;
    case POISE_WALK_CSV:
        read_csv(path);
        break;
    case POISE_WALK_JSONL:
        read_json(path);
        break;
    case POISE_WALK_BINARY:
        read_binary(path);
        break;
    }
    lines_check();
}

/* Whether the survey made the file: NAME.TOKEN.REST. */
static bool is_ours(const char *name)
{
    const char *dot = strchr(name, '.');
    return !dot || strspn(dot + 1, "0123456789abcdef") == 16;
}

/* Nothing of ours may be left beside the tree but `name`. */
static void check_litter(const char *name)
{
    DIR *dir = opendir(place);
    for (struct dirent *d; (d = readdir(dir));) {
        if (d->d_name[0] != '.' && strcmp(d->d_name, "tree") != 0 &&
            is_ours(d->d_name) && (!name || strcmp(d->d_name, name) != 0)) {
            fail_msg("left behind: %s", d->d_name);
        }
    }
    closedir(dir);
}

static void test_inventory(void **state)
{
    (void)state;
    char output[128];
    static const int ranks[] = {0, 1, 3, 4};
    snprintf(output, sizeof(output), "%s/inventory", place);
    for (int format = POISE_WALK_SQLITE; format <= POISE_WALK_BINARY;
         format++) {
        for (size_t i = 0; i < sizeof(ranks) / sizeof(*ranks); i++) {
            struct poise_walk_survey_options options = options_of(1 + i % 2);
            struct poise_walk_summary summary;
            options.output = output;
            options.format = (enum poise_walk_format)format;
            options.now_ns = poise_clock_wall_ns();
            assert_int_equal(survey(ranks[i], &options, &summary), 0);
            check_summary(&summary, options.now_ns);
            poise_walk_summary_free(&summary);
            check_inventory(options.format, output);
            check_litter("inventory");
        }
    }
    unlink(output);
}

static int drop_row(const struct walk_row *row, void *arg)
{
    (void)row;
    ++*(size_t *)arg;
    return 0;
}

static void test_damage(void **state)
{
    (void)state;
    char output[128];
    static const char *roots[1];
    char root[128];
    size_t len, rows = 0;
    snprintf(output, sizeof(output), "%s/inventory", place);
    snprintf(root, sizeof(root), "%s/dir7", tree);
    struct poise_walk_survey_options options = options_of(1);
    struct poise_walk_summary summary;
    roots[0] = root;
    options.walk.roots = roots;
    options.output = output;
    options.format = POISE_WALK_BINARY;
    assert_int_equal(survey(0, &options, &summary), 0);
    poise_walk_summary_free(&summary);
    assert_int_equal(walk_inventory_read(output, drop_row, &rows), 0);
    assert_true(rows > 5);
    char *data = slurp(output, &len);
    for (size_t i = 0; i < len; i++) {
        int fd = open(output, O_WRONLY | O_CLOEXEC);
        char bad = data[i] ^ (char)(1 << i % 8);
        assert_int_equal(pwrite(fd, &bad, 1, (off_t)i), 1);
        assert_true(walk_inventory_read(output, drop_row, &rows) < 0);
        assert_int_equal(pwrite(fd, &data[i], 1, (off_t)i), 1);
        close(fd);
    }
    for (size_t i = len; i-- > 0;) {
        assert_int_equal(truncate(output, (off_t)i), 0);
        assert_true(walk_inventory_read(output, drop_row, &rows) < 0);
    }
    free(data);
    unlink(output);
}

/* Rows at the limits of their fields. */
static void test_rows(void **state)
{
    (void)state;
    struct walk_row_state in = {0}, out = {0};
    struct poise_buf coded = {0};
    const struct walk_row rows[] = {
        {.name = "", .mode = S_IFREG, .size_bytes = UINT64_MAX},
        {.dir = UINT64_MAX,
         .ino = UINT64_MAX,
         .dev = UINT64_MAX,
         .uid = UINT32_MAX - 1,
         .mtime = INT64_MIN,
         .ctime = INT64_MAX,
         .mtime_ns = 999999999,
         .name = "a",
         .name_len = 1},
        {.id = 1, .mtime = INT64_MAX, .ctime = INT64_MIN, .nlink = UINT64_MAX},
        {.mtime = INT64_C(16725225600), .blocks = UINT64_MAX, .name = "ab"},
    };
    size_t count = sizeof(rows) / sizeof(*rows);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(walk_row_encode(&out, &rows[i], &coded), 0);
    }
    struct poise_reader reader = poise_reader_of(coded.data, coded.len);
    for (size_t i = 0; i < count; i++) {
        struct walk_row row;
        assert_int_equal(walk_row_decode(&in, &reader, &row), 0);
        assert_memory_equal(row.name, rows[i].name, row.name_len);
        row.name = rows[i].name;
        assert_int_equal(row.name_len, rows[i].name_len);
        assert_memory_equal(&row, &rows[i], sizeof(row));
    }
    assert_int_equal(poise_reader_left(&reader), 0);
    poise_buf_free(&coded);
    walk_row_state_free(&in);
    walk_row_state_free(&out);
}

/* ---- sets ------------------------------------------------------------------
 */

struct sums {
    uint64_t seen[5000];
    uint64_t last;
};

static int count_record(const uint64_t *record, void *arg)
{
    struct sums *sums = arg;
    assert_true(record[0] > sums->last || record[0] == 0);
    sums->last = record[0];
    sums->seen[record[0]] += record[1];
    return 0;
}

static void test_set(void **state)
{
    (void)state;
    char path[128], other[128];
    struct poise_rng rng;
    struct walk_set set, loaded;
    struct sums expected = {0}, got = {0};
    struct poise_buf saved = {0};
    snprintf(path, sizeof(path), "%s/set", place);
    snprintf(other, sizeof(other), "%s/set2", place);
    poise_rng_seed(&rng, 5);
    walk_set_init(&set, 2, 1, true, 2048, path);
    for (int i = 0; i < 40000; i++) {
        uint64_t record[2] = {poise_rng_below(&rng, 5000),
                              1 + poise_rng_below(&rng, 9)};
        assert_int_equal(walk_set_add(&set, record, NULL), 0);
        expected.seen[record[0]] += record[1];
    }
    assert_true(set.run_count > 32); /* more than are merged at once */
    assert_int_equal(walk_set_save(&set, &saved), 0);
    walk_set_init(&loaded, 2, 1, true, 4096, other);
    struct poise_reader in = poise_reader_of(saved.data, saved.len);
    assert_int_equal(walk_set_load(&loaded, &in), 0);
    assert_int_equal(walk_set_each(&set, count_record, &got), 0);
    assert_memory_equal(got.seen, expected.seen, sizeof(got.seen));
    memset(&got, 0, sizeof(got));
    assert_int_equal(walk_set_each(&loaded, count_record, &got), 0);
    assert_memory_equal(got.seen, expected.seen, sizeof(got.seen));
    walk_set_free(&set);
    walk_set_free(&loaded);
    /* A damaged run is noticed. */
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "?", 1, 100), 1);
    close(fd);
    in = poise_reader_of(saved.data, saved.len);
    unlink(other);
    walk_set_init(&loaded, 2, 1, true, 4096, other);
    assert_int_equal(walk_set_load(&loaded, &in), 0);
    assert_int_equal(walk_set_each(&loaded, count_record, &got), -EBADMSG);
    walk_set_free(&loaded);
    poise_buf_free(&saved);
    unlink(path);
    unlink(other);
}

/* ---- kills
 * ------------------------------------------------------------------- */

static void first_run(const char *checkpoint, const char *output,
                      enum poise_walk_format format, int64_t now_ns, int ranks)
{
    struct poise_walk_survey_options options = options_of(2);
    struct poise_walk_summary summary;
    options.output = output;
    options.format = format;
    options.now_ns = now_ns;
    options.links_bytes = 2560;
    options.walk.pool.checkpoint = checkpoint;
    options.walk.pool.checkpoint_ns = 200 * 1000;
    _exit(survey(ranks, &options, &summary) == 0 ? 0 : 1);
}

/* What is told of as left is all that is left, and can be removed; none of it
 * is of the job that is resumed. */
static void check_leftovers(const char *checkpoint, const char *output,
                            bool resumed)
{
    struct poise_walk_survey_options options = {.output = output};
    struct poise_buf names = {0};
    options.walk.pool.checkpoint = checkpoint;
    options.walk.pool.resume = resumed ? checkpoint : NULL;
    ssize_t count = poise_walk_survey_leftovers(&options, &names);
    const char *name = names.data;
    assert_true(count >= 0 && (count == 0 || !resumed));
    for (ssize_t i = 0; i < count; i++, name += strlen(name) + 1) {
        assert_int_equal(unlink(name), 0);
    }
    assert_int_equal(name - names.data, names.len);
    if (resumed) {
        options.walk.pool.resume = NULL;
        assert_true(poise_walk_survey_leftovers(&options, &names) > 0);
    } else {
        poise_pool_checkpoint_remove(checkpoint); /* no record: what is left */
        check_litter("inventory");
    }
    poise_buf_free(&names);
}

/* Go on from the checkpoint if there is one; else there is nothing but
 * litter to be removed by the user. */
static bool second_run(const char *checkpoint, const char *output,
                       enum poise_walk_format format, int64_t now_ns, int ranks)
{
    struct poise_walk_survey_options options = options_of(1);
    struct poise_walk_summary summary;
    struct poise_buf memory = {0};
    char command[200];
    bool resumed = access(checkpoint, F_OK) == 0;
    options.links_bytes = 2560;
    check_leftovers(checkpoint, output, resumed);
    if (resumed) {
        options.walk.root_count = 0;
        assert_int_equal(
            poise_walk_survey_resume(checkpoint, &options, &memory), 0);
        assert_string_equal(options.output, output);
        assert_int_equal(options.format, format);
        assert_int_equal(survey(ranks, &options, &summary), 0);
        check_summary(&summary, now_ns);
        poise_walk_summary_free(&summary);
        check_inventory(format, output);
        check_litter("inventory");
    }
    poise_buf_free(&memory);
    snprintf(command, sizeof(command), "rm -rf %s/inventory* %s/state*", place,
             place);
    assert_int_equal(system(command), 0);
    return resumed;
}

/* The process dies at the k-th call of a kind. */
static void test_crash(void **state)
{
    (void)state;
    static const char *const kinds[] = {"write", "sync", "rename"};
    char checkpoint[128], output[128];
    int resumed = 0;
    const char *soak = getenv("POISE_SOAK");
    uint64_t most = soak ? 400 : 18;
    snprintf(checkpoint, sizeof(checkpoint), "%s/state", place);
    snprintf(output, sizeof(output), "%s/inventory", place);
    for (uint64_t k = 1; k <= most; k++) {
        int64_t now_ns = poise_clock_wall_ns();
        enum poise_walk_format format = (enum poise_walk_format)(k / 3 % 4);
        pid_t child = fork();
        if (child == 0) {
            char fault[40];
            snprintf(fault, sizeof(fault), "%s:%d:KILL", kinds[k % 3],
                     (int)(1 + k * 2 / 3));
            if (poise_fault_parse(fault) < 0) {
                _exit(2);
            }
            first_run(checkpoint, output, format, now_ns, (int)(k % 2 * 2));
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
        }
        resumed += second_run(checkpoint, output, format, now_ns, (int)(k % 4));
    }
    assert_true(resumed > 0);
    print_message("%d of %d resumed\n", resumed, (int)most);
}

/* The process is killed from outside, at any moment. */
static void test_kill(void **state)
{
    (void)state;
    char checkpoint[128], output[128];
    struct poise_rng rng;
    int rounds = getenv("POISE_SOAK") ? 300 : 6;
    snprintf(checkpoint, sizeof(checkpoint), "%s/state", place);
    snprintf(output, sizeof(output), "%s/inventory", place);
    poise_rng_seed(&rng, poise_clock_ns());
    for (int i = 0; i < rounds; i++) {
        int64_t now_ns = poise_clock_wall_ns();
        enum poise_walk_format format = (enum poise_walk_format)(i % 4);
        pid_t child = fork();
        if (child == 0) {
            first_run(checkpoint, output, format, now_ns, i % 3);
        }
        poise_sleep_ns(poise_rng_below(&rng, 60 * 1000 * 1000));
        kill(child, SIGKILL);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        second_run(checkpoint, output, format, now_ns, (i + 1) % 5);
    }
}

/* Interrupted with a last checkpoint, on some ranks; resumed on others. */
static void test_interrupt(void **state)
{
    (void)state;
    static const int ranks[][2] = {{0, 0}, {2, 3}, {3, 0}};
    char checkpoint[128], output[128];
    snprintf(checkpoint, sizeof(checkpoint), "%s/state", place);
    snprintf(output, sizeof(output), "%s/inventory", place);
    for (size_t i = 0; i < sizeof(ranks) / sizeof(*ranks); i++) {
        static const volatile int interrupt = SIGTERM;
        struct poise_walk_survey_options options = options_of(1);
        struct poise_walk_summary summary;
        options.output = output;
        options.format = POISE_WALK_SQLITE;
        options.now_ns = poise_clock_wall_ns();
        options.walk.pool.checkpoint = checkpoint;
        options.walk.pool.interrupt = &interrupt;
        /* It may all be done before anybody looks at the flag. */
        int code = survey(ranks[i][0], &options, &summary);
        assert_true(code == -EINTR || code == 0);
        assert_true(summary.entries <= truth.count);
        poise_walk_summary_free(&summary);
        if (code == 0) {
            check_inventory(options.format, output);
            unlink(output);
            continue;
        }
        assert_int_equal(access(output, F_OK), -1);
        assert_true(second_run(checkpoint, output, options.format,
                               options.now_ns, ranks[i][1]));
    }
}

/* ---- faults
 * ------------------------------------------------------------------ */

static bool fails(enum poise_fault kind, uint64_t k, int code,
                  enum poise_walk_format format, const char *output)
{
    struct poise_walk_survey_options options = options_of(1);
    struct poise_walk_summary summary;
    options.output = output;
    options.format = format;
    options.links_bytes = 2560;
    poise_fault_arm(kind, k, code, false);
    int got = survey(0, &options, &summary);
    bool reached = poise_fault_calls(kind) >= k;
    poise_fault_arm(kind, 0, 0, false);
    if (reached && got != 0) {
        assert_int_equal(got, -code);
        assert_int_equal(access(output, F_OK), -1);
    } else {
        assert_int_equal(got, 0);
        unlink(output);
    }
    poise_walk_summary_free(&summary);
    check_litter(NULL);
    return reached;
}

static void test_faults(void **state)
{
    (void)state;
    char output[128];
    uint64_t most = getenv("POISE_SOAK") ? 60 : 12;
    snprintf(output, sizeof(output), "%s/inventory", place);
    for (int format = POISE_WALK_SQLITE; format <= POISE_WALK_BINARY;
         format++) {
        enum poise_walk_format f = (enum poise_walk_format)format;
        for (uint64_t k = 1; k < most; k++) {
            fails(POISE_FAULT_WRITE, k, ENOSPC, f, output);
            fails(POISE_FAULT_ALLOC, k * k, ENOMEM, f, output);
        }
        assert_true(fails(POISE_FAULT_WRITE, 1, ENOSPC, f, output));
        assert_true(fails(POISE_FAULT_SYNC, 1, EIO, f, output));
        assert_true(fails(POISE_FAULT_RENAME, 1, EIO, f, output));
    }
}

/* An entry that is gone when it is looked at is an error, not the end. */
static void test_vanished(void **state)
{
    (void)state;
    for (uint64_t k = 2; k < 18; k++) {
        struct poise_walk_survey_options options = options_of(1);
        struct poise_walk_summary summary;
        struct poise_walk_result result;
        options.walk.single_entries = k % 2;
        poise_fault_arm(POISE_FAULT_STAT, k, ENOENT, false);
        int code = poise_walk_survey(NULL, &options, &summary, &result);
        poise_fault_arm(POISE_FAULT_STAT, 0, 0, false);
        assert_int_equal(code, 0);
        assert_int_equal(result.errors, 1);
        assert_int_equal(summary.entries, result.entries);
        assert_true(summary.entries > 0 && summary.entries < truth.count);
        poise_walk_result_free(&result);
        poise_walk_summary_free(&summary);
    }
}

static void test_wrong_use(void **state)
{
    (void)state;
    char file[128];
    struct poise_walk_survey_options options = options_of(1);
    struct poise_walk_summary summary;
    options.names_only = true;
    options.output = "nowhere";
    assert_int_equal(survey(0, &options, &summary), -EINVAL);
    options = options_of(1);
    options.output = "/nonexistent/inventory";
    assert_int_equal(survey(2, &options, &summary), -ENOENT);
    assert_int_equal(survey(0, &options, &summary), -ENOENT);
    assert_non_null(strstr(poise_error_last()->what, "/nonexistent/"));
    snprintf(file, sizeof(file), "%s/state", place);
    int fd = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "rubbish", 7), 7);
    close(fd);
    struct poise_buf memory = {0};
    assert_true(poise_walk_survey_resume(file, &options, &memory) < 0);
    poise_buf_free(&memory);
    unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),       cmocka_unit_test(test_rows),
        cmocka_unit_test(test_summary),   cmocka_unit_test(test_names_only),
        cmocka_unit_test(test_inventory), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_faults),    cmocka_unit_test(test_crash),
        cmocka_unit_test(test_vanished),  cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_kill),      cmocka_unit_test(test_interrupt),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
