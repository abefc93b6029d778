/*
 * Disk usage: what is done for each entry. A directory that has a line gets a
 * node and its tag; what is found in a directory is charged to the tag that the
 * directory carries; names of inodes with several are kept as links, to be
 * charged once when all are known.
 */
#include "internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHARGES_LEAST = 1024 }; /* fewer are not merged */

/* ---- what a worker keeps ------------------------------------------------ */

/* Room for one more of `size` bytes behind `count`. */
static int grow(void **items, size_t *cap, size_t count, size_t size)
{
    if (count < *cap) {
        return 0;
    }
    size_t more = *cap ? *cap + *cap / 2 : 64;
    void *moved = poise_realloc(*items, more, size);
    if (!moved) {
        return -ENOMEM;
    }
    *items = moved;
    *cap = more;
    return 0;
}

uint64_t du_name(struct du_space *space, const char *name, size_t len)
{
    size_t at = space->names.len;
    poise_buf_append(&space->names, name, len);
    return poise_buf_putc(&space->names, '\0') < 0 ? UINT64_MAX : at;
}

int du_add_node(struct du_space *space, struct du_node node)
{
    if (space->node_count >= UINT32_MAX - 1) {
        return poise_error_set(EOVERFLOW, "count directories", NULL,
                               "more than 2^32 lines of one worker");
    }
    void *nodes = space->nodes;
    int code = grow(&nodes, &space->node_cap, space->node_count, sizeof node);
    space->nodes = nodes;
    if (code == 0) {
        space->nodes[space->node_count++] = node;
    }
    return code;
}

static int by_tag(const void *a, const void *b)
{
    const struct du_charge *x = a, *y = b;
    return (x->tag > y->tag) - (x->tag < y->tag);
}

/* One charge for each tag. */
static void merge_charges(struct du_space *space)
{
    struct du_charge *all = space->charges;
    size_t kept = 0;
    qsort(all, space->charge_count, sizeof *all, by_tag);
    for (size_t i = 1; i < space->charge_count; i++) {
        if (all[i].tag == all[kept].tag) {
            all[kept].amount += all[i].amount;
        } else {
            all[++kept] = all[i];
        }
    }
    space->charge_count = kept + 1;
}

int du_add_charge(struct du_space *space, uint64_t tag, uint64_t amount)
{
    /* Entries of one directory come in a row. */
    if (space->charge_count > 0 &&
        space->charges[space->charge_count - 1].tag == tag) {
        space->charges[space->charge_count - 1].amount += amount;
        return 0;
    }
    /* They shall take memory by the lines that are printed, not by the
     * directories that are read; merging pays if it gives half of it back. */
    if (space->charge_count == space->charge_cap &&
        space->charge_count >= CHARGES_LEAST &&
        space->charge_count >= 2 * space->charge_merged) {
        merge_charges(space);
        space->charge_merged = space->charge_count;
    }
    void *charges = space->charges;
    int code = grow(&charges, &space->charge_cap, space->charge_count,
                    sizeof *space->charges);
    space->charges = charges;
    if (code == 0) {
        space->charges[space->charge_count++] =
            (struct du_charge){.tag = tag, .amount = amount};
    }
    return code;
}

int du_add_link(struct du_space *space, struct du_link link)
{
    void *links = space->links;
    int code = grow(&links, &space->link_cap, space->link_count, sizeof link);
    space->links = links;
    if (code == 0) {
        space->links[space->link_count++] = link;
    }
    return code;
}

struct du_space *du_spaces_create(unsigned count, size_t roots)
{
    struct du_space *spaces = poise_alloc(count, sizeof *spaces);
    for (unsigned i = 0; spaces && i < count; i++) {
        spaces[i].sunk = poise_alloc(roots, sizeof *spaces[i].sunk);
        spaces[i].covered = poise_alloc(roots, sizeof *spaces[i].covered);
        if (!spaces[i].sunk || !spaces[i].covered) {
            du_spaces_free(spaces, count);
            return NULL;
        }
    }
    return spaces;
}

void du_spaces_free(struct du_space *spaces, unsigned count)
{
    for (unsigned i = 0; spaces && i < count; i++) {
        free(spaces[i].nodes);
        free(spaces[i].charges);
        free(spaces[i].links);
        free(spaces[i].sunk);
        free(spaces[i].covered);
        poise_buf_free(&spaces[i].names);
    }
    free(spaces);
}

/* This worker's; NULL: no memory. */
static struct du_space *space_of(struct du_run *run,
                                 const struct poise_walk_entry *entry)
{
    struct du_space **mine = &run->spaces[run->rank];
    struct du_space *spaces = __atomic_load_n(mine, __ATOMIC_ACQUIRE);
    if (!spaces) {
        pthread_mutex_lock(&run->lock);
        spaces = *mine;
        if (!spaces) {
            unsigned count =
                poise_pool_workers(poise_worker_pool(entry->worker));
            spaces = du_spaces_create(count, run->options->walk.root_count);
            run->space_counts[run->rank] = spaces ? count : 0;
            __atomic_store_n(mine, spaces, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&run->lock);
    }
    return spaces ? &spaces[poise_worker_index(entry->worker)] : NULL;
}

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

/* As du --exclude. Negative: no memory. */
static int excluded(const struct du_run *run,
                    const struct poise_walk_entry *entry)
{
    const struct poise_walk_du_options *options = run->options;
    if (options->exclude_count == 0) {
        return 0;
    }
    struct poise_buf path = {0};
    int code = poise_walk_path(entry, &path);
    const char *text = poise_buf_str(&path);
    code = code < 0 ? code : path.error;
    for (size_t i = 0; i < options->exclude_count && code == 0; i++) {
        code = pattern_matches(options->exclude[i], text, path.len);
    }
    poise_buf_free(&path);
    return code;
}

static uint64_t dev_of(const struct statx *st)
{
    return (uint64_t)st->stx_dev_major << 32 | st->stx_dev_minor;
}

/* Whether an earlier operand has counted this entry; notes later ones that
 * this entry is. */
static bool counted_before(const struct du_run *run, struct du_space *space,
                           const struct poise_walk_entry *entry,
                           const struct statx *st)
{
    uint64_t dev = dev_of(st);
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

static uint64_t amount_of(const struct du_run *run, const struct statx *st)
{
    if (run->options->inodes) {
        return 1;
    }
    if (run->options->apparent) {
        return st->stx_size <= INT64_MAX ? st->stx_size : 0;
    }
    return st->stx_blocks * 512;
}

static int charge(const struct du_run *run, struct du_space *space,
                  const struct poise_walk_entry *entry, uint64_t tag,
                  uint64_t amount)
{
    if (tag & DU_SUNK) {
        space->sunk[entry->root] += amount;
        return 0;
    }
    unsigned worker = poise_worker_index(entry->worker);
    if (du_tag_rank(tag) == run->rank && du_tag_worker(tag) == worker) {
        space->nodes[du_tag_index(tag)].amount += amount;
        return 0;
    }
    return amount > 0 ? du_add_charge(space, tag, amount) : 0;
}

/* A line for this entry; its tag, or 0 without memory. */
static uint64_t add_line(const struct du_run *run, struct du_space *space,
                         const struct poise_walk_entry *entry, uint64_t amount)
{
    bool root = entry->depth == 0;
    uint64_t name = du_name(space, entry->name, root ? 0 : entry->name_len);
    if (name == UINT64_MAX) {
        return 0;
    }
    struct du_node node = {
        .parent = root ? entry->root : poise_walk_dir_tag(entry->dir),
        .amount = amount,
        .name = name << 2 | (entry->type == DT_DIR ? DU_DIR : 0) |
                (root ? DU_ROOT : 0),
    };
    if (du_add_node(space, node) < 0) {
        return 0;
    }
    return du_tag(run->rank, poise_worker_index(entry->worker),
                  space->node_count - 1);
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
    return du_add_link(space, (struct du_link){.dev = dev_of(st),
                                               .ino = st->stx_ino,
                                               .amount = amount_of(run, st),
                                               .tag = tag,
                                               .node = node,
                                               .name = name << 1 | is_dir,
                                               .root = entry->root});
}

static int visit_directory(const struct du_run *run, struct du_space *space,
                           struct poise_walk_entry *entry,
                           const struct statx *st)
{
    uint64_t amount = amount_of(run, st);
    if (entry->depth <= run->depth_most) {
        uint64_t tag = add_line(run, space, entry, amount);
        poise_walk_tag_set(entry, tag);
        return tag ? 0 : -ENOMEM;
    }
    uint64_t tag = poise_walk_dir_tag(entry->dir);
    tag |= run->options->separate ? DU_SUNK : 0;
    poise_walk_tag_set(entry, tag);
    return charge(run, space, entry, tag, amount);
}

static int visit_file(const struct du_run *run, struct du_space *space,
                      const struct poise_walk_entry *entry,
                      const struct statx *st)
{
    const struct poise_walk_du_options *options = run->options;
    uint64_t amount = amount_of(run, st);
    bool linked = st->stx_nlink > 1 && !options->count_links;
    uint64_t tag = entry->depth > 0 ? poise_walk_dir_tag(entry->dir) : 0;
    uint64_t node = 0;
    if (entry->depth == 0 ||
        (options->all && entry->depth <= run->depth_most)) {
        node = add_line(run, space, entry, linked ? 0 : amount);
        if (!node) {
            return -ENOMEM;
        }
    }
    if (linked) {
        return add_link(run, space, entry, st, tag ? tag : node, node);
    }
    return node ? 0 : charge(run, space, entry, tag, amount);
}

static int on_visit(struct poise_walk_entry *entry, void *arg)
{
    struct du_run *run = arg;
    struct du_space *space = space_of(run, entry);
    if (!space) {
        return -ENOMEM;
    }
    int code = excluded(run, entry);
    if (code != 0) {
        return code < 0 ? code : POISE_WALK_SKIP;
    }
    const struct statx *st;
    if (poise_walk_stat(entry, run->mask, &st) < 0) {
        return POISE_WALK_SKIP; /* counted and reported by the walk */
    }
    if (run->options->walk.one_file_system && entry->depth > 0 &&
        dev_of(st) != run->roots[entry->root].dev) {
        return POISE_WALK_SKIP;
    }
    if (run->match_roots && counted_before(run, space, entry, st)) {
        return POISE_WALK_SKIP;
    }
    code = entry->type == DT_DIR ? visit_directory(run, space, entry, st)
                                 : visit_file(run, space, entry, st);
    return code < 0 ? code : POISE_WALK_ON;
}

static int on_error(struct poise_worker *worker, const struct poise_error *err,
                    void *arg)
{
    const struct poise_walk_du_options *options =
        ((struct du_run *)arg)->options;
    return options->error ? options->error(worker, err, options->arg) : 0;
}

static void on_progress(const struct poise_pool_stats *stats, void *arg)
{
    const struct poise_walk_du_options *options =
        ((struct du_run *)arg)->options;
    options->progress(stats, options->arg);
}

/* ---- the frame ---------------------------------------------------------- */

/* Rank 0 looks at the operands, and sends all ranks what it saw. */
static int look_at_roots(struct du_run *run)
{
    const struct poise_walk_options *walk = &run->options->walk;
    size_t bytes = walk->root_count * sizeof *run->roots;
    for (size_t i = 0; run->rank == 0 && i < walk->root_count; i++) {
        struct statx st;
        if (poise_file_statx(AT_FDCWD, walk->roots[i], AT_SYMLINK_NOFOLLOW,
                             STATX_INO, &st) == 0) {
            run->roots[i] = (struct du_root){
                .dev = dev_of(&st), .ino = st.stx_ino, .known = 1};
        }
    }
    if (!run->world) {
        return 0;
    }
    struct poise_buf buf = {0};
    poise_buf_append(&buf, run->roots, bytes);
    int code = poise_world_agree(run->world, buf.error);
    if (code == 0) {
        code = poise_world_broadcast(run->world, 0, &buf);
    }
    if (code == 0 && buf.len == bytes) {
        memcpy(run->roots, buf.data, bytes);
    }
    poise_buf_free(&buf);
    return code;
}

static int run_check(const struct du_run *run)
{
    const struct poise_pool_options *pool = &run->options->walk.pool;
    if (pool->checkpoint || pool->resume) {
        return poise_error_set(EINVAL, "count disk usage", NULL,
                               "du does not go together with checkpoints");
    }
    if (run->size > DU_RANKS_MOST) {
        return poise_error_set(EINVAL, "count disk usage", NULL,
                               "more than %d ranks", DU_RANKS_MOST);
    }
    return run->roots && run->spaces && run->space_counts ? 0 : -ENOMEM;
}

static int do_walk(struct du_run *run, struct poise_walk_result *result)
{
    struct poise_walk_options walk = run->options->walk;
    walk.statx_mask |= run->mask;
    walk.post = false;
    struct poise_walk_hooks hooks = {
        .visit = on_visit, .error = on_error, .arg = run};
    if (run->options->progress) {
        hooks.progress = on_progress;
    }
    return poise_walk_run(run->world, &walk, &hooks, result);
}

static void run_free(struct du_run *run)
{
    for (int r = 0; run->spaces && run->space_counts && r < run->size; r++) {
        du_spaces_free(run->spaces[r], run->space_counts[r]);
    }
    free(run->spaces);
    free(run->space_counts);
    free(run->roots);
    pthread_mutex_destroy(&run->lock);
}

int poise_walk_du(struct poise_world *world,
                  const struct poise_walk_du_options *options,
                  struct poise_walk_result *result)
{
    struct du_run run = {
        .options = options,
        .world = world,
        .rank = world ? poise_world_rank(world) : 0,
        .size = world ? poise_world_size(world) : 1,
        .depth_most = options->has_max_depth ? options->max_depth : UINT32_MAX,
        .match_roots = options->walk.root_count > 1 && !options->count_links,
        .mask = STATX_TYPE | STATX_NLINK | STATX_INO |
                (options->inodes     ? 0
                 : options->apparent ? STATX_SIZE
                                     : STATX_BLOCKS),
    };
    size_t roots = options->walk.root_count;
    pthread_mutex_init(&run.lock, NULL);
    run.roots = poise_alloc(roots ? roots : 1, sizeof *run.roots);
    run.spaces = poise_alloc((size_t)run.size, sizeof(struct du_space *));
    run.space_counts = poise_alloc((size_t)run.size, sizeof(unsigned));
    int code = run_check(&run);
    code = world ? poise_world_agree(world, code) : code;
    if (code == 0) {
        code = look_at_roots(&run);
    }
    if (code == 0) {
        code = do_walk(&run, result);
    }
    if (code == 0) {
        code = du_gather(&run);
    }
    if (code == 0) {
        code = run.rank == 0 ? du_report(&run) : 0;
        code = world ? poise_world_agree(world, code) : code;
    }
    run_free(&run);
    return code;
}
