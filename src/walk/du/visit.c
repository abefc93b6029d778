/*
 * Disk usage: what is done for each entry. A directory that has a line gets a
 * node and its tag; what is found in a directory is charged to the tag that the
 * directory carries; names of inodes with several are kept as links, to be
 * charged once when all are known.
 */
#include "internal.h"

#include <dirent.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what counts -------------------------------------------------------- */

/* Whether a pattern matches the path, or what follows any slash. Most are
 * refused by their literal parts: fnmatch sees few. */
static bool pattern_matches(const char *pattern, const char *path, size_t len)
{
    static const char special[] = "*?[]\\";
    size_t head = strcspn(pattern, special), size = strlen(pattern);
    if (head == size) {
        const char *end = path + len - head;
        return len >= head && memcmp(end, pattern, head) == 0 &&
               (end == path || (end[-1] == '/' && pattern[0] != '/'));
    }
    size_t tail = 0;
    while (!strchr(special, pattern[size - tail - 1])) {
        tail++;
    }
    if (len < tail || memcmp(path + len - tail, pattern + size - tail, tail)) {
        return false;
    }
    for (const char *at = path; *at;) {
        if (strncmp(at, pattern, head) == 0 && fnmatch(pattern, at, 0) == 0) {
            return true;
        }
        at = strchrnul(at, '/');
        at += strspn(at, "/");
    }
    return false;
}

bool du_excluded(const struct poise_walk_du_options *options, const char *path,
                 size_t len)
{
    for (size_t i = 0; i < options->exclude_count; i++) {
        if (pattern_matches(options->exclude[i], path, len)) {
            return true;
        }
    }
    return false;
}

/* Negative: no memory. */
static int is_excluded(const struct du_run *run,
                       const struct poise_walk_entry *entry)
{
    const struct poise_walk_du_options *options = run->options;
    if (options->exclude_count == 0) {
        return 0;
    }
    if (entry->depth == 0) { /* as it was given */
        const char *name = options->walk.roots[entry->root];
        return du_excluded(options, name, strlen(name));
    }
    struct poise_buf path = {0};
    int code = poise_walk_path(entry, &path);
    const char *text = poise_buf_str(&path);
    code = code < 0 ? code : path.error;
    if (code == 0) {
        code = du_excluded(options, text, path.len);
    }
    poise_buf_free(&path);
    return code;
}

uint64_t du_dev(const struct statx *st)
{
    return (uint64_t)st->stx_dev_major << 32 | st->stx_dev_minor;
}

/* Whether an earlier operand has counted this entry; notes later ones that
 * this entry is. */
static bool counted_before(const struct du_run *run, struct du_space *space,
                           const struct poise_walk_entry *entry,
                           const struct statx *st)
{
    uint64_t dev = du_dev(st);
    for (size_t i = 0; i < run->options->walk.root_count; i++) {
        const struct du_root *root = &run->roots[i];
        if (!root->known || root->ino != st->stx_ino || root->dev != dev) {
            continue;
        }
        if (i < entry->root) {
            space->covered[entry->root] |= entry->depth == 0;
            return true;
        }
        if (i > entry->root) {
            space->covered[i] = true;
        }
    }
    return false;
}

static struct du_sum sum_of(const struct du_run *run, const struct statx *st)
{
    const struct poise_walk_du_options *options = run->options;
    struct du_sum sum = {.timed = options->time != POISE_DU_NO_TIME};
    const struct statx_timestamp *time =
        options->time == POISE_DU_ATIME   ? &st->stx_atime
        : options->time == POISE_DU_CTIME ? &st->stx_ctime
                                          : &st->stx_mtime;
    if (sum.timed) {
        sum.seconds = time->tv_sec;
        sum.ns = time->tv_nsec;
    }
    if (options->inodes) {
        sum.amount = 1;
    } else if (options->apparent) {
        sum.amount = st->stx_size <= INT64_MAX ? st->stx_size : 0;
    } else {
        sum.amount = st->stx_blocks * 512;
    }
    return sum;
}

static int charge(const struct du_run *run, struct du_space *space,
                  const struct du_item *item, uint64_t tag,
                  const struct du_sum *sum)
{
    if (tag & DU_SUNK) {
        du_sum_add(&space->sunk[item->root], sum);
        return 0;
    }
    if (du_tag_rank(tag) == run->rank && du_tag_worker(tag) == item->worker) {
        du_sum_add(&space->nodes[du_tag_index(tag)].sum, sum);
        return 0;
    }
    return sum->amount > 0 || sum->timed ? du_add_charge(space, tag, sum) : 0;
}

/* A line for this entry; its tag, or 0 without memory. */
static uint64_t add_line(const struct du_run *run, struct du_space *space,
                         const struct du_item *item, bool is_dir,
                         const struct du_sum *sum)
{
    bool root = item->depth == 0;
    uint64_t name = du_name(space, item->name, root ? 0 : item->name_len);
    if (name == UINT64_MAX) {
        return 0;
    }
    struct du_node node = {
        .parent = root ? item->root : item->tag,
        .sum = *sum,
        .name = name << 2 | (is_dir ? DU_DIR : 0) | (root ? DU_ROOT : 0),
    };
    if (du_add_node(space, node) < 0) {
        return 0;
    }
    return du_tag(run->rank, item->worker, space->node_count - 1);
}

/* One of several names of an inode: charged at the end, once. */
static int add_link(const struct du_run *run, struct du_space *space,
                    const struct poise_walk_entry *entry,
                    const struct statx *st, uint64_t tag, uint64_t node)
{
    const char *below = entry->name;
    bool is_dir = false;
    if (tag & DU_SUNK) {
        const struct poise_walk_dir *dir = entry->dir;
        while (poise_walk_dir_depth(dir) > run->depth_most + 1) {
            dir = poise_walk_dir_parent(dir);
        }
        below = poise_walk_dir_name(dir);
        is_dir = true;
    }
    uint64_t name = du_name(space, below, strlen(below));
    if (name == UINT64_MAX) {
        return -ENOMEM;
    }
    return du_add_link(space, (struct du_link){.dev = du_dev(st),
                                               .ino = st->stx_ino,
                                               .sum = sum_of(run, st),
                                               .tag = tag,
                                               .node = node,
                                               .name = name << 1 | is_dir,
                                               .root = entry->root});
}

int du_visit_directory(const struct du_run *run, struct du_space *space,
                       const struct du_item *item, const struct statx *st,
                       uint64_t *tag)
{
    struct du_sum sum = sum_of(run, st);
    if (item->depth <= run->depth_most) {
        *tag = add_line(run, space, item, true, &sum);
        return *tag ? 0 : -ENOMEM;
    }
    *tag = item->tag | (run->options->separate ? DU_SUNK : 0);
    return charge(run, space, item, *tag, &sum);
}

/* A line for a file, if it gets one; `sum` may be nothing. */
static int add_file_line(const struct du_run *run, struct du_space *space,
                         const struct du_item *item, const struct du_sum *sum,
                         uint64_t *node)
{
    *node = 0;
    if (item->depth == 0 ||
        (run->options->all && item->depth <= run->depth_most)) {
        *node = add_line(run, space, item, false, sum);
        return *node ? 0 : -ENOMEM;
    }
    return 0;
}

int du_visit_file(const struct du_run *run, struct du_space *space,
                  const struct du_item *item, const struct statx *st)
{
    struct du_sum sum = sum_of(run, st);
    uint64_t node;
    int code = add_file_line(run, space, item, &sum, &node);
    return code < 0 || node ? code : charge(run, space, item, item->tag, &sum);
}

/* A file with several names, of which this is one. */
static int visit_link(const struct du_run *run, struct du_space *space,
                      const struct poise_walk_entry *entry,
                      const struct du_item *item, const struct statx *st)
{
    struct du_sum nothing = {0};
    uint64_t node;
    int code = add_file_line(run, space, item, &nothing, &node);
    return code < 0 ? code
                    : add_link(run, space, entry, st,
                               item->tag ? item->tag : node, node);
}

int du_on_visit(struct poise_walk_entry *entry, void *arg)
{
    struct du_run *run = arg;
    struct du_item item = {
        .name = entry->name,
        .name_len = entry->name_len,
        .root = entry->root,
        .depth = entry->depth,
        .tag = entry->depth > 0 ? poise_walk_dir_tag(entry->dir) : 0,
        .worker = poise_worker_index(entry->worker),
    };
    struct du_space *space = du_space_of(
        run, item.worker, poise_pool_workers(poise_worker_pool(entry->worker)));
    if (!space) {
        return -ENOMEM;
    }
    int code = is_excluded(run, entry);
    if (code != 0) {
        return code < 0 ? code : POISE_WALK_SKIP;
    }
    const struct statx *st;
    if (poise_walk_stat(entry, run->mask, &st) < 0) {
        return POISE_WALK_SKIP; /* counted and reported by the walk */
    }
    if (run->options->walk.one_file_system && entry->depth > 0 &&
        du_dev(st) != run->roots[entry->root].dev) {
        return POISE_WALK_SKIP;
    }
    if (run->match_roots && counted_before(run, space, entry, st)) {
        return POISE_WALK_SKIP;
    }
    if (entry->type == DT_DIR) {
        uint64_t tag;
        code = du_visit_directory(run, space, &item, st, &tag);
        poise_walk_tag_set(entry, tag);
    } else if (st->stx_nlink > 1 && !run->options->count_links) {
        code = visit_link(run, space, entry, &item, st);
    } else {
        code = du_visit_file(run, space, &item, st);
    }
    return code < 0 ? code : POISE_WALK_ON;
}
