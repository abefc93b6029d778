/*
 * Counting: what a worker saw since its last commit, what is committed, and
 * what goes into a checkpoint.
 *
 * Most counters are sums in one array with a bit per counter that was
 * touched, so that a commit costs as much as was counted, not as much as
 * could be. Inodes with several names count nothing here but their names:
 * each is a record in a set, counted once when all sets are merged.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

/* The last number of a link's record: never 0, and small, so that it takes
 * few bytes where it is spilled. */
enum {
    LINK_USED = 1,
    LINK_REGULAR = 2,
    LINK_AGE_SHIFT = 2,
    LINK_AGE_MASK = 15,
    LINK_UID_SHIFT = 6,
};

/* The bin of an age is found by halving. */
_Static_assert((POISE_WALK_AGE_BINS & (POISE_WALK_AGE_BINS - 1)) == 0,
               "a power of two");

const uint64_t poise_walk_age_limits[POISE_WALK_AGE_BINS - 1] = {
    3600,         86400,        7 * 86400,      30 * 86400,     90 * 86400,
    180 * 86400,  365 * 86400,  730 * 86400,    1095 * 86400,   1460 * 86400,
    1825 * 86400, 2555 * 86400, 3650 * 86400UL, 5475UL * 86400, 7300UL * 86400,
};

static void top_init(const struct walk_count *count,
                     struct walk_figures *figures)
{
    figures->files.most = count->top;
    figures->directories.most = count->top;
}

int walk_count_init(struct walk_count *count, unsigned top, size_t links_bytes,
                    const char *links_path, const char *pieces_path)
{
    *count = (struct walk_count){.top = top, .size = 1};
    pthread_mutex_init(&count->lock, NULL);
    pthread_mutex_init(&count->inventory.lock, NULL);
    count->inventory.fd = -1;
    top_init(count, &count->loaded);
    walk_set_init(&count->links, WALK_LINK_WORDS, WALK_LINK_KEYS, false,
                  links_bytes, links_path);
    walk_set_init(&count->pieces, WALK_PIECE_WORDS, 1, true, links_bytes / 4,
                  pieces_path);
    return 0;
}

void walk_figures_free(struct walk_figures *figures)
{
    walk_owners_free(&figures->owners);
    walk_top_free(&figures->files);
    walk_top_free(&figures->directories);
    walk_folders_free(&figures->folders);
}

static void tally_free(struct walk_tally *tally)
{
    if (!tally) {
        return;
    }
    walk_figures_free(&tally->delta);
    walk_figures_free(&tally->committed);
    poise_buf_free(&tally->links);
    poise_buf_free(&tally->path);
    poise_buf_free(&tally->run.path);
    for (size_t i = 0; i < tally->piece_count; i++) {
        free(tally->pieces[i].path);
    }
    free(tally->pieces);
    walk_rows_free(&tally->rows);
    free(tally);
}

void walk_count_free(struct walk_count *count)
{
    for (unsigned i = 0; i < count->tally_count; i++) {
        tally_free(count->tallies[i]);
    }
    free(count->tallies);
    walk_figures_free(&count->loaded);
    walk_set_free(&count->links);
    walk_set_free(&count->pieces);
    walk_paths_free(&count->piece_paths);
    walk_inventory_close(&count->inventory);
    pthread_mutex_destroy(&count->lock);
    pthread_mutex_destroy(&count->inventory.lock);
}

/* The table of tallies is made by the first worker that comes: how many workers
 * there are is known only once the pool exists. */
static struct walk_tally **tallies_of(struct walk_count *count,
                                      unsigned workers)
{
    struct walk_tally **all =
        __atomic_load_n(&count->tallies, __ATOMIC_ACQUIRE);
    if (all) {
        return all;
    }
    struct walk_tally **fresh =
        poise_alloc(workers, sizeof(struct walk_tally *));
    if (!fresh) {
        return NULL;
    }
    pthread_mutex_lock(&count->lock);
    if (!count->tallies) {
        __atomic_store_n(&count->tally_count, workers, __ATOMIC_RELEASE);
        __atomic_store_n(&count->tallies, fresh, __ATOMIC_RELEASE);
        fresh = NULL;
    }
    pthread_mutex_unlock(&count->lock);
    free(fresh);
    return __atomic_load_n(&count->tallies, __ATOMIC_ACQUIRE);
}

struct walk_tally *walk_count_tally(struct walk_count *count, unsigned index,
                                    unsigned workers)
{
    struct walk_tally **all = tallies_of(count, workers);
    if (!all) {
        return NULL;
    }
    struct walk_tally *tally = __atomic_load_n(&all[index], __ATOMIC_ACQUIRE);
    if (!tally) {
        tally = poise_alloc(1, sizeof *tally);
        if (tally) {
            top_init(count, &tally->delta);
            top_init(count, &tally->committed);
            __atomic_store_n(&all[index], tally, __ATOMIC_RELEASE);
        }
    }
    return tally;
}

/* ---- one entry ---------------------------------------------------------- */

static inline void bump(struct walk_tally *tally, unsigned which,
                        uint64_t amount)
{
    tally->delta.counts[which] += amount;
    tally->dirty[which / 64] |= UINT64_C(1) << which % 64;
}

/* Types by d_type; whatever else there is counts as a file. */
static const unsigned char types[16] = {
    [DT_DIR] = POISE_WALK_DIRECTORIES,
    [DT_LNK] = POISE_WALK_LINKS,
    [DT_FIFO] = POISE_WALK_PIPES,
    [DT_SOCK] = POISE_WALK_SOCKETS,
    [DT_CHR] = POISE_WALK_CHARACTER_DEVICES,
    [DT_BLK] = POISE_WALK_BLOCK_DEVICES,
};

/* What is younger than now is in bin 0 too. */
static unsigned age_bin(int64_t now_ns, const struct statx *st)
{
    int64_t second = 1000 * 1000 * 1000;
    int64_t now = now_ns / second, age;
    int64_t now_rest = now_ns % second;
    if (__builtin_sub_overflow(now, st->stx_mtime.tv_sec, &age)) {
        age = st->stx_mtime.tv_sec < 0 ? INT64_MAX : 0;
    }
    age -= age > 0 && now_rest < (int64_t)st->stx_mtime.tv_nsec;
    unsigned bin = 0;
    for (unsigned step = POISE_WALK_AGE_BINS / 2; step > 0; step /= 2) {
        bin += age >= (int64_t)poise_walk_age_limits[bin + step - 1] ? step : 0;
    }
    return bin;
}

static uint64_t dev_of(const struct statx *st)
{
    return makedev(st->stx_dev_major, st->stx_dev_minor);
}

/* Put what tally->path names into a list of the delta, if it is large enough
 * for both. */
static int offer_to(struct walk_tally *tally, const struct walk_top *committed,
                    struct walk_top *delta, struct walk_top_item item)
{
    const struct poise_buf *path = &tally->path;
    if (!walk_top_admits_path(committed, item.value, path->data, path->len) ||
        !walk_top_admits_path(delta, item.value, path->data, path->len)) {
        return 0;
    }
    item.path = poise_alloc(path->len + 1, 1);
    if (!item.path) {
        return -ENOMEM;
    }
    memcpy(item.path, path->data, path->len);
    item.path_len = path->len;
    return walk_top_put(delta, item);
}

/* Whether no file with so much data can get in from below this directory, whose
 * own path is smaller than theirs. In trees of files of one size nearly every
 * entry ties with the last of the list: once for a directory is often enough.
 */
static bool is_beaten(struct walk_tally *tally,
                      const struct poise_walk_dir *dir, uint64_t size)
{
    struct poise_buf *path = &tally->path;
    if (!dir || (tally->tied_dir == dir && tally->tied_size == size)) {
        return dir && tally->tied_is_beaten;
    }
    poise_buf_reset(path);
    bool known = poise_walk_dir_path(dir, path) == 0;
    tally->tied_dir = dir;
    tally->tied_size = size;
    tally->tied_is_beaten =
        known && (!walk_top_admits_path(&tally->committed.files, size,
                                        path->data, path->len) ||
                  !walk_top_admits_path(&tally->delta.files, size, path->data,
                                        path->len));
    return tally->tied_is_beaten;
}

/* What a file counts for among the largest: its holes fill no disk. Small ones
 * may lie in their inode, with no block of their own. */
static uint64_t data_bytes(const struct statx *st)
{
    enum { SMALL = 4096 };
    uint64_t allocated = st->stx_blocks * 512;
    return allocated < st->stx_size && st->stx_size > SMALL ? allocated
                                                            : st->stx_size;
}

static int offer(struct walk_tally *tally, const struct poise_walk_entry *entry,
                 const struct statx *st)
{
    struct walk_top_item item = {.value = data_bytes(st)};
    if (is_beaten(tally, entry->dir, item.value)) {
        return 0;
    }
    poise_buf_reset(&tally->path);
    int code = poise_walk_path(entry, &tally->path);
    if (code < 0) {
        return code;
    }
    if (st->stx_nlink > 1) {
        item.key[0] = dev_of(st) + 1;
        item.key[1] = st->stx_ino;
    }
    return offer_to(tally, &tally->committed.files, &tally->delta.files, item);
}

static const unsigned folder_ages[POISE_WALK_AGE_BINS] = {
    0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3};

static int count_metadata(struct walk_count *count, struct walk_tally *tally,
                          const struct poise_walk_entry *entry,
                          const struct statx *st)
{
    bool regular = entry->type == DT_REG;
    uint64_t bytes = st->stx_blocks * 512;
    unsigned age = regular || count->folders ? age_bin(count->now_ns, st) : 0;
    unsigned depth = entry->depth < POISE_WALK_DEPTH_BINS
                         ? entry->depth
                         : POISE_WALK_DEPTH_BINS - 1;
    bump(tally, WALK_C_DEPTHS + depth, 1);
    if (entry->depth > tally->delta.deepest) {
        tally->delta.deepest = entry->depth;
    }
    if (regular && walk_top_admits(&tally->committed.files, data_bytes(st)) &&
        walk_top_admits(&tally->delta.files, data_bytes(st))) {
        int code = offer(tally, entry, st);
        if (code < 0) {
            return code;
        }
    }
    if (st->stx_nlink > 1 && entry->type != DT_DIR) {
        uint64_t record[WALK_LINK_WORDS] = {
            dev_of(st), st->stx_ino, st->stx_size, st->stx_blocks,
            LINK_USED | (regular ? LINK_REGULAR : 0) |
                (uint64_t)age << LINK_AGE_SHIFT |
                (uint64_t)st->stx_uid << LINK_UID_SHIFT};
        bump(tally, WALK_C_LINKED, 1);
        poise_buf_append(&tally->links, record, sizeof record);
        return walk_owners_add(&tally->delta.owners, st->stx_uid, 1, 0);
    }
    bump(tally, WALK_C_APPARENT, st->stx_size);
    bump(tally, WALK_C_ALLOCATED, bytes);
    if (regular) {
        unsigned bin = walk_bin(st->stx_size, POISE_WALK_SIZE_BINS);
        bump(tally, WALK_C_SIZES + bin, 1);
        bump(tally, WALK_C_SIZE_BYTES + bin, st->stx_size);
        bump(tally, WALK_C_AGES + age, 1);
        bump(tally, WALK_C_AGE_BYTES + age, st->stx_size);
    }
    if (count->folders) {
        int code = walk_folders_count(&tally->delta.folders, &tally->run, entry,
                                      st->stx_uid, bytes, folder_ages[age]);
        if (code < 0) {
            return code;
        }
    }
    return walk_owners_add(&tally->delta.owners, st->stx_uid, 1, bytes);
}

int walk_figures_link(struct walk_figures *figures, const uint64_t *record)
{
    uint64_t size = record[2], bytes = record[3] * 512, rest = record[4];
    figures->counts[WALK_C_APPARENT] += size;
    figures->counts[WALK_C_ALLOCATED] += bytes;
    figures->counts[WALK_C_LINKED]--; /* what is left are further names */
    if (rest & LINK_REGULAR) {
        unsigned bin = walk_bin(size, POISE_WALK_SIZE_BINS);
        unsigned age = rest >> LINK_AGE_SHIFT & LINK_AGE_MASK;
        figures->counts[WALK_C_SIZES + bin]++;
        figures->counts[WALK_C_SIZE_BYTES + bin] += size;
        figures->counts[WALK_C_AGES + age]++;
        figures->counts[WALK_C_AGE_BYTES + age] += size;
    }
    return walk_owners_add(&figures->owners, (uint32_t)(rest >> LINK_UID_SHIFT),
                           0, bytes);
}

/* Work that may block, outside the pool's locks. */
static int tidy(struct walk_count *count, struct walk_tally *tally)
{
    int code = __atomic_load_n(&tally->error, __ATOMIC_RELAXED);
    if (code < 0) {
        return code;
    }
    if (count->inventory.output) {
        code = walk_rows_flush(&count->inventory, &tally->rows, false);
    }
    if (code == 0 && tally->links.len == 0) {
        pthread_mutex_lock(&count->lock);
        if (walk_set_full(&count->links)) {
            code = walk_set_spill(&count->links);
        }
        pthread_mutex_unlock(&count->lock);
    }
    return code;
}

static int add_row(struct walk_count *count, struct walk_tally *tally,
                   const struct poise_walk_entry *entry, uint64_t id,
                   const struct statx *st)
{
    struct walk_row row = {
        .id = id, .name = entry->name, .name_len = entry->name_len};
    row.dir = entry->dir ? poise_walk_dir_tag(entry->dir) : 0;
    walk_row_fill(&row, st);
    return walk_rows_add(&count->inventory, &tally->rows, &row, entry);
}

int walk_count_entry(struct walk_count *count, struct walk_tally *tally,
                     struct poise_walk_entry *entry, const struct statx *st)
{
    uint64_t id = 0;
    int code = 0;
    bump(tally, WALK_C_TYPES + types[entry->type % sizeof types], 1);
    if (!st) {
        return 0;
    }
    /* Right behind a commit: nothing is pending. */
    if (!tally->delta.owners.count) {
        code = tidy(count, tally);
        if (code < 0) {
            return code;
        }
    }
    if (entry->type == DT_DIR) {
        uint64_t n = __atomic_fetch_add(&count->id_next, 1, __ATOMIC_RELAXED);
        id = count->id_base + n * (uint64_t)count->size +
             (uint64_t)count->rank + 1;
        poise_walk_tag_set(entry, id);
    }
    code = count_metadata(count, tally, entry, st);
    if (code == 0 && count->inventory.output) {
        code = add_row(count, tally, entry, id, st);
    }
    return code < 0 ? code : tally->links.error;
}

/* ---- directories -------------------------------------------------------- */

static int offer_directory(struct walk_tally *tally,
                           const struct poise_walk_dir *dir, uint64_t entries)
{
    struct walk_top_item item = {.value = entries};
    poise_buf_reset(&tally->path);
    int code = poise_walk_dir_path(dir, &tally->path);
    return code < 0 ? code
                    : offer_to(tally, &tally->committed.directories,
                               &tally->delta.directories, item);
}

static int add_piece(struct walk_tally *tally, const struct poise_walk_dir *dir,
                     uint64_t entries)
{
    if (tally->piece_count == tally->piece_cap) {
        size_t cap = tally->piece_cap ? 2 * tally->piece_cap : 8;
        struct walk_piece *pieces =
            poise_realloc(tally->pieces, cap, sizeof *pieces);
        if (!pieces) {
            return -ENOMEM;
        }
        tally->pieces = pieces;
        tally->piece_cap = cap;
    }
    struct poise_buf path = {0};
    int code = poise_walk_dir_path(dir, &path);
    if (code < 0) {
        poise_buf_free(&path);
        return code;
    }
    tally->pieces[tally->piece_count++] =
        (struct walk_piece){.id = poise_walk_dir_tag(dir),
                            .entries = entries,
                            .path = path.data,
                            .path_len = path.len};
    return 0;
}

int walk_count_piece(struct walk_count *count, struct walk_tally *tally,
                     const struct poise_walk_dir *dir, uint64_t entries,
                     bool whole)
{
    if (count->names_only) {
        return 0;
    }
    if (!whole) {
        return entries ? add_piece(tally, dir, entries) : 0;
    }
    bump(tally, WALK_C_WIDTHS + walk_bin(entries, POISE_WALK_WIDTH_BINS), 1);
    if (entries > tally->delta.widest) {
        tally->delta.widest = entries;
    }
    if (walk_top_admits(&tally->committed.directories, entries) &&
        walk_top_admits(&tally->delta.directories, entries)) {
        return offer_directory(tally, dir, entries);
    }
    return 0;
}

/* ---- commits ------------------------------------------------------------ */

static int commit_sets(struct walk_count *count, struct walk_tally *tally)
{
    int code = 0;
    size_t bytes = WALK_LINK_WORDS * sizeof(uint64_t);
    pthread_mutex_lock(&count->lock);
    for (size_t at = 0; at < tally->links.len && code == 0; at += bytes) {
        uint64_t record[WALK_LINK_WORDS];
        memcpy(record, tally->links.data + at, bytes);
        code = walk_set_add(&count->links, record);
    }
    for (size_t i = 0; i < tally->piece_count; i++) {
        struct walk_piece *piece = &tally->pieces[i];
        uint64_t record[WALK_PIECE_WORDS] = {piece->id, piece->entries};
        int put = walk_set_add(&count->pieces, record);
        code = code < 0 ? code : put;
        put = walk_paths_put(&count->piece_paths, piece->id, piece->path,
                             piece->path_len);
        code = code < 0 ? code : put;
    }
    pthread_mutex_unlock(&count->lock);
    poise_buf_reset(&tally->links);
    tally->piece_count = 0;
    return code;
}

static void commit_counts(struct walk_tally *tally)
{
    struct walk_figures *delta = &tally->delta, *to = &tally->committed;
    for (unsigned word = 0; word < WALK_DIRTY; word++) {
        for (uint64_t bits = tally->dirty[word]; bits; bits &= bits - 1) {
            unsigned i = 64 * word + (unsigned)__builtin_ctzll(bits);
            to->counts[i] += delta->counts[i];
            delta->counts[i] = 0;
        }
        tally->dirty[word] = 0;
    }
    to->deepest = delta->deepest > to->deepest ? delta->deepest : to->deepest;
    to->widest = delta->widest > to->widest ? delta->widest : to->widest;
}

void walk_count_commit(struct walk_count *count, struct walk_tally *tally)
{
    struct walk_figures *delta = &tally->delta, *to = &tally->committed;
    int code = 0, failed = 0;
    tally->tied_dir = NULL;
    commit_counts(tally);
    if (delta->owners.count) {
        failed = walk_owners_move(&to->owners, &delta->owners);
    }
    if (delta->files.count) {
        code = walk_top_move(&to->files, &delta->files);
        failed = failed ? failed : code;
    }
    if (delta->directories.count) {
        code = walk_top_move(&to->directories, &delta->directories);
        failed = failed ? failed : code;
    }
    if (count->folders) {
        code = walk_folders_flush(&delta->folders, &tally->run);
        failed = failed ? failed : code;
        code = walk_folders_move(&to->folders, &delta->folders);
        failed = failed ? failed : code;
    }
    if (tally->links.len || tally->piece_count) {
        code = commit_sets(count, tally);
        failed = failed ? failed : code;
    }
    if (count->inventory.output) {
        code = walk_rows_commit(&tally->rows);
        failed = failed ? failed : code;
    }
    if (failed) {
        __atomic_store_n(&tally->error, failed, __ATOMIC_RELAXED);
    }
}

/* ---- checkpoints -------------------------------------------------------- */

static void save_figures(const struct walk_figures *figures,
                         struct poise_buf *out)
{
    for (unsigned i = 0; i < WALK_COUNTS; i++) {
        poise_buf_varint(out, figures->counts[i]);
    }
    poise_buf_varint(out, figures->deepest);
    poise_buf_varint(out, figures->widest);
    walk_owners_save(&figures->owners, out);
    walk_top_save(&figures->files, out);
    walk_top_save(&figures->directories, out);
}

static int load_figures(struct walk_figures *figures, struct poise_reader *in)
{
    for (unsigned i = 0; i < WALK_COUNTS; i++) {
        figures->counts[i] += poise_reader_varint(in);
    }
    uint64_t deepest = poise_reader_varint(in);
    uint64_t widest = poise_reader_varint(in);
    figures->deepest = deepest > figures->deepest ? deepest : figures->deepest;
    figures->widest = widest > figures->widest ? widest : figures->widest;
    int code = walk_owners_load(&figures->owners, in);
    code = code < 0 ? code : walk_top_load(&figures->files, in);
    return code < 0 ? code : walk_top_load(&figures->directories, in);
}

static int save_sets(struct walk_count *count, struct poise_buf *out)
{
    pthread_mutex_lock(&count->lock);
    int code = walk_set_save(&count->links, out);
    code = code < 0 ? code : walk_set_save(&count->pieces, out);
    code = code < 0 ? code : walk_paths_save(&count->piece_paths, out);
    pthread_mutex_unlock(&count->lock);
    return code;
}

/* Behind all else, where those who do not know of them find nothing. */
static int save_folders(struct walk_count *count, struct poise_buf *out)
{
    struct walk_tally **all =
        __atomic_load_n(&count->tallies, __ATOMIC_ACQUIRE);
    unsigned workers =
        all ? __atomic_load_n(&count->tally_count, __ATOMIC_ACQUIRE) : 0;
    unsigned tallies = 0;
    for (unsigned i = 0; i < workers; i++) {
        tallies += __atomic_load_n(&all[i], __ATOMIC_ACQUIRE) != NULL;
    }
    poise_buf_varint(out, tallies + 1);
    walk_folders_save(&count->loaded.folders, out);
    for (unsigned i = 0; i < workers && tallies > 0; i++) {
        struct walk_tally *tally = __atomic_load_n(&all[i], __ATOMIC_ACQUIRE);
        if (tally) {
            walk_folders_save(&tally->committed.folders, out);
            tallies--;
        }
    }
    return out->error;
}

static int load_folders(struct walk_count *count, struct poise_reader *in)
{
    uint64_t parts = poise_reader_left(in) ? poise_reader_varint(in) : 0;
    int code = in->error;
    count->without_folders |= parts == 0;
    for (uint64_t i = 0; i < parts && code == 0; i++) {
        code = walk_folders_load(&count->loaded.folders, in);
    }
    return code;
}

int walk_count_save(struct walk_count *count, struct poise_buf *out)
{
    unsigned workers = 0, tallies = 0;
    struct walk_tally **all =
        __atomic_load_n(&count->tallies, __ATOMIC_ACQUIRE);
    if (all) {
        workers = __atomic_load_n(&count->tally_count, __ATOMIC_ACQUIRE);
    }
    struct walk_tally **some =
        poise_alloc(workers + 1, sizeof(struct walk_tally *));
    if (!some) {
        return -ENOMEM;
    }
    int code = 0;
    for (unsigned i = 0; i < workers; i++) {
        some[tallies] = __atomic_load_n(&all[i], __ATOMIC_ACQUIRE);
        if (some[tallies]) {
            int error = some[tallies++]->error;
            code = code < 0 ? code : error;
        }
    }
    poise_buf_varint(out, tallies + 1);
    save_figures(&count->loaded, out);
    for (unsigned i = 0; i < tallies; i++) {
        save_figures(&some[i]->committed, out);
    }
    code = code < 0 ? code : save_sets(count, out);
    if (code == 0 && count->inventory.output) {
        struct walk_rows **rows = (struct walk_rows **)some;
        for (unsigned i = 0; i < tallies; i++) {
            rows[i] = &some[i]->rows;
        }
        code = walk_inventory_save(&count->inventory, rows, tallies, out);
    }
    free(some);
    code = code < 0 || !count->folders ? code : save_folders(count, out);
    return code < 0 ? code : out->error;
}

int walk_count_settle(struct walk_count *count)
{
    int fds[2] = {-1, -1};
    struct walk_set *sets[2] = {&count->links, &count->pieces};
    pthread_mutex_lock(&count->lock);
    for (int i = 0; i < 2; i++) {
        if (sets[i]->own_file >= 0) {
            fds[i] = sets[i]->files[sets[i]->own_file].fd;
        }
    }
    pthread_mutex_unlock(&count->lock);
    int code = 0;
    for (int i = 0; i < 2 && code == 0; i++) {
        code = fds[i] < 0 ? 0 : poise_file_sync(fds[i], sets[i]->path);
    }
    return code < 0 || !count->inventory.output
               ? code
               : walk_inventory_settle(&count->inventory);
}

int walk_count_load(struct walk_count *count, const void *saved, size_t len)
{
    struct poise_reader in = poise_reader_of(saved, len);
    uint64_t figures = poise_reader_varint(&in);
    int code = 0;
    for (uint64_t i = 0; i < figures && code == 0; i++) {
        code = load_figures(&count->loaded, &in);
    }
    code = code < 0 ? code : walk_set_load(&count->links, &in);
    code = code < 0 ? code : walk_set_load(&count->pieces, &in);
    code = code < 0 ? code : walk_paths_load(&count->piece_paths, &in);
    if (code == 0 && count->inventory.output) {
        code = walk_inventory_load(&count->inventory, &in);
    }
    code = code < 0 ? code : load_folders(count, &in);
    if (code == 0 && poise_reader_left(&in)) {
        code = -EBADMSG;
    }
    return code == -EBADMSG
               ? poise_error_set(EBADMSG, "resume", "checkpoint of a survey",
                                 "its bytes make no sense")
               : code;
}
