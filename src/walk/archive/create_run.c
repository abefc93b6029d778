/* One archive from its operands to its name: parts, the walk, what ranks have
 * for each other, the index. */
#include "create.h"
#include "walk/engine/engine.h"

#include <poise/output.h>

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- parts -------------------------------------------------------------- */

/* Rank 0's, for all of them. */
static int identify(struct create *c)
{
    uint64_t id = 0;
    if (c->rank == 0) {
        struct timespec now = {0};
        clock_gettime(CLOCK_REALTIME, &now);
        id = poise_hash_u64((uint64_t)now.tv_sec * 1000000000 +
                            (uint64_t)now.tv_nsec) ^
             poise_hash_u64((uint64_t)getpid());
        id += id == 0;
    }
    c->id = id;
    return c->world ? poise_world_reduce(c->world, POISE_SUM, &c->id, 1) : 0;
}

/* What would be taken for this archive, or a part of it, where the index is
 * lost. */
static int check_place(const struct create *c)
{
    struct poise_buf name = {0};
    unsigned all = c->all_parts;
    int code = 0;
    for (int i = 0; i < 2 && all > 1 && code == 0; i++) {
        code = tar_part_name(&name, c->options->archive, all, i == 0 ? 2 : 1);
        if (code == 0 && access(name.data, F_OK) == 0) {
            code = poise_error_set(EEXIST, "archive", name.data,
                                   "it would be taken for a part of the new "
                                   "archive: remove it");
        }
    }
    poise_buf_free(&name);
    return code;
}

static int part_open(struct create *c, struct create_part *part)
{
    struct poise_buf head = {0};
    /* What an archive that was killed in the moment of its renaming left
     * behind is found again by this name. */
    struct poise_output_options options = {
        .tag = poise_hash_bytes(part->name, strlen(part->name), 1) | 1};
    int code = poise_output_open(part->name, &options, &part->output);
    if (code < 0) {
        return code;
    }
    part->fd = poise_output_fd(part->output);
    code = tar_encode_identity(
        &(struct tar_identity){c->id, part->number, c->all_parts}, &head);
    code = code < 0 ? code : create_part_begin(c, part, &head);
    poise_buf_free(&head);
    return code;
}

static int parts_open(struct create *c)
{
    const struct poise_archive_options *options = c->options;
    struct poise_buf name = {0};
    unsigned size = (unsigned)c->size, all = options->parts;
    int code = 0;
    all = all < size ? size : all; /* also 0 */
    c->all_parts = all;
    c->part_count = all / size + ((unsigned)c->rank < all % size);
    c->parts = poise_alloc(c->part_count, sizeof *c->parts);
    if (!c->parts) {
        return -ENOMEM;
    }
    for (unsigned i = 0; i < c->part_count; i++) {
        pthread_mutex_init(&c->parts[i].lock, NULL);
        pthread_cond_init(&c->parts[i].free, NULL);
        tar_spool_init(&c->parts[i].table);
    }
    code = check_place(c);
    for (unsigned i = 0; i < c->part_count && code == 0; i++) {
        struct create_part *part = &c->parts[i];
        part->number = i * size + (unsigned)c->rank;
        code = tar_part_name(&name, options->archive, part->number, all);
        part->name = code == 0 ? strdup(name.data) : NULL;
        code = code == 0 && !part->name ? -ENOMEM : code;
        code = code < 0 ? code : part_open(c, part);
    }
    poise_buf_free(&name);
    return code;
}

static struct create_space *space_at(const struct create *c, unsigned index)
{
    return (struct create_space *)c->spaces.all + index;
}

/* What workers gathered, and what ends each part. */
static int parts_end(struct create *c)
{
    int code = 0;
    for (unsigned i = 0; i < c->spaces.count && code == 0; i++) {
        code = create_flush(c, space_at(c, i));
    }
    for (unsigned i = 0; i < c->part_count && code == 0; i++) {
        code = create_part_end(c, &c->parts[i]);
    }
    return code;
}

static int parts_commit(struct create *c)
{
    int code = 0;
    for (unsigned i = 0; i < c->part_count && code == 0; i++) {
        struct poise_output *output = c->parts[i].output;
        c->parts[i].output = NULL;
        code = poise_output_commit(output, c->options->sync == POISE_SYNC_FILE);
    }
    return code;
}

static void part_free(struct create_part *part)
{
    poise_output_abort(part->output);
    free(part->name);
    poise_buf_free(&part->rows);
    tar_spool_free(&part->table);
    pthread_mutex_destroy(&part->lock);
    pthread_cond_destroy(&part->free);
}

static void create_free(struct create *c)
{
    create_jobs_free(c);
    for (unsigned i = 0; c->parts && i < c->part_count; i++) {
        part_free(&c->parts[i]);
    }
    free(c->parts);
    for (unsigned i = 0; i < c->spaces.count; i++) {
        struct create_space *space = space_at(c, i);
        poise_buf_free(&space->memory);
        poise_buf_free(&space->out);
        poise_buf_free(&space->pending);
        poise_buf_free(&space->chunk);
        tar_packer_free(&space->packer);
        tar_packer_free(&space->chunk_packer);
        poise_buf_free(&space->index);
        poise_buf_free(&space->path);
        poise_buf_free(&space->later);
        poise_buf_free(&space->first);
        free(space->extents);
    }
    walk_spaces_free(&c->spaces);
    tar_names_free(&c->names);
    tar_spool_free(&c->index);
    tar_spool_free(&c->later);
    pthread_mutex_destroy(&c->lock);
}

/* ---- the walk ----------------------------------------------------------- */

static void begin_space(void *space, unsigned index, void *arg)
{
    const struct create *c = arg;
    ((struct create_space *)space)->part = index % c->part_count;
}

/* This worker's; NULL: no memory. */
static struct create_space *space_of(struct create *c,
                                     struct poise_worker *worker)
{
    return walk_worker_space(&c->spaces, sizeof(struct create_space), worker,
                             begin_space, c);
}

static int owner_of(const struct create *c, const struct statx *st)
{
    uint64_t dev = (uint64_t)st->stx_dev_major << 32 | st->stx_dev_minor;
    return (int)(poise_hash_u64(st->stx_ino ^ dev << 20) % (uint64_t)c->size);
}

/* One of several names of an inode, which another rank archives: kept. */
static int keep_for_later(struct create *c, struct create_space *space,
                          int owner, const char *path)
{
    poise_buf_varint(&space->later, (uint64_t)owner);
    poise_buf_blob(&space->later, path, strlen(path));
    return space->later.len < TAR_SPOOL_BYTES
               ? space->later.error
               : tar_spool_put(&c->later, &space->later);
}

static int on_visit(struct poise_walk_entry *entry, void *arg)
{
    struct create *c = arg;
    struct create_space *space = space_of(c, entry->worker);
    if (!space) {
        return -ENOMEM;
    }
    int match = c->options->filter
                    ? poise_walk_filter_match(c->options->filter, entry)
                    : 1;
    if (match <= 0) {
        return match == -ENOMEM ? match : POISE_WALK_ON;
    }
    int dirfd = poise_walk_dirfd(entry);
    if (dirfd < 0 && dirfd != AT_FDCWD) {
        return POISE_WALK_ON;
    }
    poise_buf_reset(&space->path);
    int code = poise_walk_path(entry, &space->path);
    const char *path = poise_buf_str(&space->path);
    code = code < 0 ? code : space->path.error;
    if (code < 0) {
        return code;
    }
    if (c->size > 1 && entry->type != DT_DIR) {
        const struct statx *st;
        if (poise_walk_stat(entry, STATX_NLINK | STATX_INO, &st) < 0) {
            return POISE_WALK_ON;
        }
        if (st->stx_nlink > 1 && owner_of(c, st) != c->rank) {
            code = keep_for_later(c, space, owner_of(c, st), path);
            return code < 0 ? code : POISE_WALK_ON;
        }
    }
    /* Only this process can write to its parts. */
    code = create_put(c, space, dirfd, entry->name, create_name(path),
                      entry->type, entry->worker, c->size == 1 ? entry : NULL);
    return code < 0 ? code : POISE_WALK_ON;
}

/* The next chunk of a large file, whichever was meant. */
static int on_chunk(struct poise_walk_entry *entry, uint64_t offset,
                    uint64_t length, void *arg)
{
    struct create *c = arg;
    struct create_space *space = space_of(c, entry->worker);
    (void)offset;
    (void)length;
    int code = space ? create_job_chunk(
                           c, space, poise_walk_dir_tag(poise_walk_self(entry)),
                           entry->worker)
                     : -ENOMEM;
    return code < 0 ? code : POISE_WALK_ON;
}

static int on_error(struct poise_worker *worker, const struct poise_error *err,
                    void *arg)
{
    const struct poise_archive_options *options =
        ((struct create *)arg)->options;
    return options->error ? options->error(worker, err, options->arg) : 0;
}

static void on_progress(const struct poise_pool_stats *stats, void *arg)
{
    const struct poise_archive_options *options =
        ((struct create *)arg)->options;
    options->progress(stats, options->arg);
}

static int walk(struct create *c, uint64_t *errors)
{
    struct poise_walk_options walk = c->options->walk;
    struct poise_walk_result result = {0};
    struct poise_walk_hooks hooks = {
        .visit = on_visit, .chunk = on_chunk, .error = on_error, .arg = c};
    if (c->options->progress) {
        hooks.progress = on_progress;
    }
    if (c->options->filter) {
        walk.statx_mask |= poise_walk_filter_mask(c->options->filter);
    }
    walk.post = true; /* for chunks */
    walk.chunk_bytes = 1;
    int code = poise_walk_run(c->world, &walk, &hooks, &result);
    *errors = c->rank == 0 ? result.errors : 0;
    poise_walk_result_free(&result);
    return code;
}

/* ---- names that other ranks met ----------------------------------------- */

/* A path of any length: the directory is opened piece by piece. */
static int put_path(struct create *c, struct create_space *space, char *path)
{
    enum { PIECE = 2048 };
    char *rest = path;
    int dir = AT_FDCWD, code = 0;
    struct poise_buf whole = {0};
    poise_buf_puts(&whole, path);
    while (strlen(rest) > PIECE && code == 0) {
        char *cut = rest + PIECE;
        while (cut > rest && *cut != '/') {
            cut--;
        }
        *cut = '\0';
        int fd = cut > rest
                     ? openat(dir, rest, O_PATH | O_DIRECTORY | O_CLOEXEC)
                     : -1;
        code = fd < 0 ? poise_error_set(cut > rest ? errno : ENAMETOOLONG,
                                        "open directory", whole.data, NULL)
                      : 0;
        if (dir >= 0) {
            close(dir);
        }
        dir = fd;
        rest = cut + 1;
    }
    if (code < 0) {
        code = create_report(c, NULL);
    } else {
        code =
            create_put(c, space, dir, rest, create_name(poise_buf_str(&whole)),
                       DT_UNKNOWN, NULL, NULL);
    }
    if (dir >= 0) {
        close(dir);
    }
    poise_buf_free(&whole);
    return code;
}

static int put_list(struct create *c, struct create_space *space,
                    const void *data, size_t len)
{
    struct poise_reader in = poise_reader_of(data, len);
    int code = 0;
    while (poise_reader_left(&in) > 0 && code == 0) {
        uint64_t owner = poise_reader_varint(&in);
        size_t path_len;
        const char *text = poise_reader_blob(&in, &path_len);
        if (in.error || owner != (uint64_t)c->rank) {
            code = in.error;
            continue;
        }
        char *path = strndup(text, path_len);
        code = path ? put_path(c, space, path) : -ENOMEM;
        free(path);
    }
    return code;
}

/* Each rank in turn tells the others what it has for them, block by block.
 * Collective. */
static int exchange(struct create *c)
{
    struct create_space *mine = walk_space(
        &c->spaces, sizeof(struct create_space), 0, 1, begin_space, c);
    uint64_t *blocks = poise_alloc((size_t)c->size, sizeof *blocks);
    struct poise_buf list = {0};
    int code = mine && blocks ? 0 : -ENOMEM;
    for (unsigned i = 0; i < c->spaces.count && code == 0; i++) {
        code = tar_spool_put(&c->later, &space_at(c, i)->later);
    }
    code = poise_world_agree(c->world, code);
    if (code == 0) {
        blocks[c->rank] = c->later.blocks;
        code = poise_world_reduce(c->world, POISE_SUM, blocks, (size_t)c->size);
    }
    for (int rank = 0; rank < c->size && code == 0; rank++) {
        uint64_t at = 0;
        for (uint64_t i = 0; i < blocks[rank]; i++) {
            if (rank == c->rank && code == 0) {
                code = tar_spool_next(&c->later, &at, &list);
                code = code < 0 ? code : 0;
            }
            code = poise_world_agree(c->world, code);
            if (code < 0) {
                break; /* all of them */
            }
            code = poise_world_broadcast(c->world, rank, &list);
            code = code < 0 ? code : put_list(c, mine, list.data, list.len);
        }
        code = poise_world_agree(c->world, code);
    }
    poise_buf_free(&list);
    free(blocks);
    return code;
}

/* ---- the index ---------------------------------------------------------- */

static int gather_sizes(struct create *c, uint64_t **out)
{
    uint64_t *sizes = poise_alloc(c->all_parts, sizeof *sizes);
    for (unsigned i = 0; sizes && i < c->part_count; i++) {
        sizes[c->parts[i].number] = c->parts[i].size;
    }
    int code = sizes ? 0 : -ENOMEM;
    if (c->world) {
        code = poise_world_agree(c->world, code);
        if (code == 0) {
            code = poise_world_reduce(c->world, POISE_SUM, sizes, c->all_parts);
        }
    }
    *out = sizes;
    return code;
}

/* This rank's lines, alone. */
static int put_own_lines(const struct create *c, struct tar_index_file *file)
{
    struct poise_buf block = {0};
    uint64_t at = 0;
    int code = 1;
    while (code > 0) {
        code = tar_spool_next(&c->index, &at, &block);
        if (code > 0) {
            int put = tar_index_piece(file, block.data, block.len);
            code = put < 0 ? put : code;
        }
    }
    poise_buf_free(&block);
    return code;
}

/* What ranks from `first` on have, to rank 0: a block of each. Collective. */
static int put_round(const struct create *c, struct tar_index_file *file,
                     bool mine, uint64_t *at)
{
    struct poise_buf block = {0}, all = {0};
    int code = mine ? tar_spool_next(&c->index, at, &block) : 0;
    code = poise_world_agree(c->world, code < 0 ? code : 0);
    if (code == 0) {
        code = poise_world_gather(c->world, 0, block.data, block.len, &all);
    }
    struct poise_reader in = poise_reader_of(all.data, all.len);
    for (int i = 0; c->rank == 0 && i < c->size && code == 0; i++) {
        size_t len;
        const void *piece = poise_reader_blob(&in, &len);
        code = len > 0 && piece ? tar_index_piece(file, piece, len) : in.error;
    }
    poise_buf_free(&block);
    poise_buf_free(&all);
    return poise_world_agree(c->world, code);
}

/* All ranks' lines: some ranks at a time, so that rank 0 has room for what they
 * send. Collective. */
static int put_all_lines(const struct create *c, struct tar_index_file *file)
{
    enum { AT_ONCE = 32 };
    int code = 0;
    for (int first = 0; first < c->size && code == 0; first += AT_ONCE) {
        bool mine = c->rank >= first && c->rank < first + AT_ONCE;
        uint64_t rounds = mine ? c->index.blocks : 0, at = 0;
        code = poise_world_reduce(c->world, POISE_MAX, &rounds, 1);
        for (uint64_t i = 0; i < rounds && code == 0; i++) {
            code = put_round(c, file, mine, &at);
        }
    }
    return code;
}

static int flush_lines(struct create *c)
{
    int code = 0;
    for (unsigned i = 0; i < c->spaces.count && code == 0; i++) {
        code = tar_spool_put(&c->index, &space_at(c, i)->index);
    }
    return code;
}

/* Collective. */
static int put_index(struct create *c, const char *path, const uint64_t *sizes)
{
    struct tar_index_file file = {0};
    int code = c->rank == 0
                   ? tar_index_begin(&file, path, c->id, sizes, c->all_parts)
                   : 0;
    code = c->world ? poise_world_agree(c->world, code) : code;
    if (code == 0) {
        code = c->world ? put_all_lines(c, &file) : put_own_lines(c, &file);
    }
    if (file.output) {
        code = tar_index_end(&file, c->options->sync == POISE_SYNC_FILE, code);
    }
    return c->world ? poise_world_agree(c->world, code) : code;
}

/* The file system in which a part of this rank lies. */
static int sync_end(const struct create *c)
{
    const char *path = c->parts[0].name;
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    int code = poise_walk_sync(POISE_SYNC_TREE, POISE_SYNC_AT_END, fd, path);
    close(fd);
    return code;
}

/* Parts, then the index. Collective. */
static int finish(struct create *c)
{
    struct poise_buf name = {0};
    uint64_t *sizes = NULL;
    int code = parts_end(c);
    code = code < 0 ? code : flush_lines(c);
    code = code < 0 ? code : tar_name(&name, c->options->archive, ".index");
    code = c->world ? poise_world_agree(c->world, code) : code;
    code = code < 0 ? code : gather_sizes(c, &sizes);
    if (code == 0 && c->rank == 0) { /* an old one would not fit the parts */
        (void)unlink(name.data);
    }
    code = c->world ? poise_world_agree(c->world, code) : code;
    code = code < 0 ? code : parts_commit(c);
    code = c->world ? poise_world_agree(c->world, code) : code;
    code = code < 0 ? code : put_index(c, name.data, sizes);
    if (code == 0 && c->options->sync == POISE_SYNC_TREE) {
        code = sync_end(c);
        code = c->world ? poise_world_agree(c->world, code) : code;
    }
    free(sizes);
    poise_buf_free(&name);
    return code;
}

/* ---- the whole ---------------------------------------------------------- */

static int check(const struct poise_archive_options *options)
{
    const struct poise_pool_options *pool = &options->walk.pool;
    if (pool->checkpoint || pool->resume) {
        return poise_error_set(EINVAL, "archive", options->archive,
                               "archives do not go together with checkpoints");
    }
    return 0;
}

static bool ends(const char *name, const char *with)
{
    size_t len = strlen(name), end = strlen(with);
    return len > end && strcmp(name + len - end, with) == 0;
}

/* 0: as the name says. */
static int level_of(const struct poise_archive_options *options)
{
    if (options->compression != 0) {
        return options->compression < 0 ? 0 : options->compression;
    }
    return ends(options->archive, ".zst") || ends(options->archive, ".tzst")
               ? POISE_ARCHIVE_LEVEL
               : 0;
}

int poise_archive_create(struct poise_world *world,
                         const struct poise_archive_options *options,
                         struct poise_archive_result *result)
{
    struct create c = {
        .options = options,
        .world = world,
        .rank = world ? poise_world_rank(world) : 0,
        .size = world ? poise_world_size(world) : 1,
        .keep = options->keep ? options->keep : POISE_WALK_KEEP_ALL,
        .level = level_of(options),
    };
    uint64_t start = poise_clock_ns(), walk_errors = 0;
    pthread_mutex_init(&c.lock, NULL);
    walk_spaces_init(&c.spaces);
    tar_jobs_init(&c.jobs);
    tar_names_init(&c.names);
    tar_spool_init(&c.index);
    tar_spool_init(&c.later);
    int code = check(options);
    code = world ? poise_world_agree(world, code) : code;
    code = code < 0 ? code
                    : walk_agree_where(world, options->archive[0] != '/'
                                                  ? options->archive
                                                  : NULL);
    code = code < 0 ? code : identify(&c);
    code = code < 0 ? code : parts_open(&c);
    code = world ? poise_world_agree(world, code) : code;
    if (code == 0) {
        code = walk(&c, &walk_errors);
    }
    if (code == 0 && c.size > 1) {
        code = exchange(&c);
    }
    if (code == 0) {
        code = finish(&c);
    }
    uint64_t sums[4] = {0, 0, 0, c.errors + walk_errors};
    for (unsigned i = 0; i < c.spaces.count; i++) {
        const struct create_space *space = space_at(&c, i);
        sums[0] += space->entries;
        sums[1] += space->data_bytes;
        sums[2] += space->skipped;
    }
    if (world) {
        (void)poise_world_reduce(world, POISE_SUM, sums, 4);
    }
    *result =
        (struct poise_archive_result){.entries = sums[0],
                                      .data_bytes = sums[1],
                                      .skipped = sums[2],
                                      .errors = sums[3],
                                      .wall_ns = poise_clock_ns() - start};
    create_free(&c);
    return code;
}
