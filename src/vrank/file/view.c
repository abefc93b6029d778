/*
 * Where the data of a view lies in the file: a walk over the plan of its file
 * type, of which each block is a piece to read or write. Consecutive pieces
 * are joined.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- pieces ------------------------------------------------------------- */

/* Something done to each piece, at `at` from where the tile begins; anything
 * but 0 ends the walk. */
typedef int file_piece_fn(void *arg, ptrdiff_t at, size_t bytes);

struct file_walk {
    file_piece_fn *piece;
    void *arg;
};

static int walk_node(const struct file_walk *walk, const struct type_node *node,
                     ptrdiff_t at, size_t from, size_t bytes);

static int walk_loop(const struct file_walk *walk, const struct type_node *node,
                     ptrdiff_t at, size_t from, size_t bytes)
{
    size_t each = node->size / node->count;
    int code = 0;
    while (bytes > 0 && code == 0) {
        size_t index = from / each, within = from % each;
        size_t part = bytes < each - within ? bytes : each - within;
        code = walk_node(walk, node->child,
                         at + (ptrdiff_t)index * node->stride, within, part);
        from += part;
        bytes -= part;
    }
    return code;
}

static int walk_list(const struct file_walk *walk, const struct type_node *node,
                     ptrdiff_t at, size_t from, size_t bytes)
{
    size_t low = 0, high = node->count;
    int code = 0;
    /* The last entry that begins at or before `from`. */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (node->child[middle].before <= from) {
            low = middle;
        } else {
            high = middle;
        }
    }
    for (; bytes > 0 && code == 0; low++) {
        const struct type_node *entry = &node->child[low];
        size_t within = from - entry->before;
        size_t left = entry->size - within;
        size_t part = bytes < left ? bytes : left;
        if (part > 0) {
            code = walk_node(walk, entry, at, within, part);
        }
        from += part;
        bytes -= part;
    }
    return code;
}

/* Bytes [from, from + bytes) of the node's data; `at` is what its offset adds
 * to. */
static int walk_node(const struct file_walk *walk, const struct type_node *node,
                     ptrdiff_t at, size_t from, size_t bytes)
{
    at += node->offset;
    switch (node->kind) {
    case TYPE_BLOCK:
        return walk->piece(walk->arg, at + (ptrdiff_t)from, bytes);
    case TYPE_LOOP:
        return walk_loop(walk, node, at, from, bytes);
    case TYPE_LIST:
        return walk_list(walk, node, at, from, bytes);
    case TYPE_EMPTY:
        break;
    }
    return 0;
}

/* The pieces of bytes [at, at + bytes) of the view's data, at places in the
 * file. */
static int walk_view(const struct poise_mpi_file *file, MPI_Offset at,
                     size_t bytes, const struct file_walk *walk)
{
    const struct poise_mpi_datatype *type = file->filetype;
    size_t size = type->size;
    int code = 0;
    if (type->dense) {
        return walk->piece(walk->arg, (ptrdiff_t)(file->disp + at), bytes);
    }
    while (bytes > 0 && code == 0) {
        size_t tile = (size_t)at / size, within = (size_t)at % size;
        size_t part = bytes < size - within ? bytes : size - within;
        ptrdiff_t begin =
            (ptrdiff_t)file->disp + (ptrdiff_t)tile * type_extent(type);
        code = walk_node(walk, &type->root, begin, within, part);
        at += (MPI_Offset)part;
        bytes -= part;
    }
    return code;
}

static int note_first(void *arg, ptrdiff_t at, size_t bytes)
{
    (void)bytes;
    *(ptrdiff_t *)arg = at;
    return 1;
}

MPI_Offset file_place(const struct poise_mpi_file *file, MPI_Offset at)
{
    ptrdiff_t place = (ptrdiff_t)file->disp;
    walk_view(file, at, 1, &(struct file_walk){note_first, &place});
    return place;
}

struct file_limit {
    ptrdiff_t end;
    MPI_Offset count;
};

static int count_below(void *arg, ptrdiff_t at, size_t bytes)
{
    struct file_limit *limit = arg;
    ptrdiff_t room = limit->end - at;
    if (room > 0) {
        limit->count += room < (ptrdiff_t)bytes ? room : (ptrdiff_t)bytes;
    }
    return 0;
}

MPI_Offset file_before(const struct poise_mpi_file *file, MPI_Offset end)
{
    const struct poise_mpi_datatype *type = file->filetype;
    MPI_Offset left = end - file->disp;
    if (left <= 0) {
        return 0;
    }
    if (type->dense) {
        return left;
    }
    MPI_Offset tile = left / type_extent(type);
    struct file_limit limit = {.end = (ptrdiff_t)(left % type_extent(type))};
    struct file_walk walk = {count_below, &limit};
    walk_node(&walk, &type->root, 0, 0, type->size);
    return tile * (MPI_Offset)type->size + limit.count;
}

/* ---- what a view may be made of ----------------------------------------- */

/* Where data lies, in the order of the type. */
struct file_layout {
    ptrdiff_t first, last, end; /* beginning of the first and of the last piece,
                                   end of the furthest */
    bool decreases, overlaps;
};

/* What follows `layout`, moved by `at`. */
static void layout_add(struct file_layout *layout,
                       const struct file_layout *next, ptrdiff_t at)
{
    layout->decreases |= next->decreases || next->first + at < layout->last;
    layout->overlaps |= next->overlaps || next->first + at < layout->end;
    layout->last = next->last + at;
    layout->end = next->end + at > layout->end ? next->end + at : layout->end;
}

static struct file_layout layout_of(const struct type_node *node)
{
    struct file_layout layout = {.end = (ptrdiff_t)node->size};
    if (node->kind == TYPE_LOOP || node->kind == TYPE_LIST) {
        layout = layout_of(node->child);
    }
    if (node->kind == TYPE_LOOP && node->count > 1) {
        /* All follow each other as the first two do. */
        struct file_layout one = layout;
        layout_add(&layout, &one, node->stride);
        layout_add(&layout, &one, (ptrdiff_t)(node->count - 1) * node->stride);
    }
    for (size_t i = 1; node->kind == TYPE_LIST && i < node->count; i++) {
        struct file_layout next = layout_of(&node->child[i]);
        layout_add(&layout, &next, 0);
    }
    layout.first += node->offset;
    layout.last += node->offset;
    layout.end += node->offset;
    return layout;
}

bool file_type_fits(MPI_Datatype type, bool writes)
{
    if (type->size == 0) {
        return true;
    }
    struct file_layout layout = layout_of(&type->root);
    return layout.first >= 0 && !layout.decreases &&
           (!writes || !layout.overlaps);
}

/* ---- moving data -------------------------------------------------------- */

struct file_mover {
    struct poise_mpi_file *file;
    char *data;
    bool writes;
    size_t done;
    /* A piece that may still grow. */
    ptrdiff_t at;
    size_t bytes;
};

/* 1: the file ends here; a negative errno. */
static int move_now(struct file_mover *mover)
{
    const struct poise_mpi_file *file = mover->file;
    size_t bytes = mover->bytes;
    mover->bytes = 0;
    if (bytes == 0) {
        return 0;
    }
    if (mover->at < 0) {
        return -EINVAL;
    }
    if (mover->writes) {
        int code = poise_file_pwrite(file->fd, mover->data + mover->done, bytes,
                                     (uint64_t)mover->at, file->path);
        mover->done += code == 0 ? bytes : 0;
        return code;
    }
    ssize_t received = poise_file_pread(file->fd, mover->data + mover->done,
                                        bytes, (uint64_t)mover->at, file->path);
    if (received < 0) {
        return (int)received;
    }
    mover->done += (size_t)received;
    return (size_t)received < bytes ? 1 : 0;
}

static int move_piece(void *arg, ptrdiff_t at, size_t bytes)
{
    struct file_mover *mover = arg;
    if (mover->bytes > 0 && mover->at + (ptrdiff_t)mover->bytes == at) {
        mover->bytes += bytes;
        return 0;
    }
    int code = move_now(mover);
    mover->at = at;
    mover->bytes = bytes;
    return code;
}

/* Ranks have the file open for themselves: such locks hold between any two of
 * them. Nothing else runs on this kernel thread while one is held. */
static int file_lock(int fd, int kind)
{
    struct flock lock = {.l_type = (short)kind, .l_whence = SEEK_SET};
    while (fcntl(fd, F_OFD_SETLKW, &lock) != 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    return 0;
}

static int move_all(struct file_mover *mover, MPI_Offset at, size_t bytes)
{
    struct poise_mpi_file *file = mover->file;
    struct file_walk walk = {move_piece, mover};
    int code = 0;
    if (file->atomic) {
        code = file_lock(file->fd, mover->writes ? F_WRLCK : F_RDLCK);
    }
    if (code == 0) {
        code = walk_view(file, at, bytes, &walk);
        code = code == 0 ? move_now(mover) : code;
    }
    if (file->atomic) {
        file_lock(file->fd, F_UNLCK);
    }
    return code < 0 ? file_class(code) : MPI_SUCCESS;
}

int file_move(struct poise_mpi_file *file, MPI_Offset at,
              const struct mpi_data *data, bool writes, size_t *done)
{
    struct file_mover mover = {.file = file, .writes = writes};
    char *copy = NULL;
    *done = 0;
    if (data->bytes == 0) {
        return MPI_SUCCESS;
    }
    mover.data = data->base;
    if (data->type != NULL) {
        copy = poise_alloc(data->bytes, 1);
        if (copy == NULL) {
            return MPI_ERR_NO_MEM;
        }
        mover.data = copy;
    }
    if (copy != NULL && writes) {
        type_pack(data->type, (size_t)data->count, data->base, 0, data->bytes,
                  copy);
    }
    if (file->external && writes) {
        type_to_external(data->type, (size_t)data->count, copy, copy);
    }
    int code = move_all(&mover, at, data->bytes);
    if (file->external && !writes) {
        type_from_external(data->type, (size_t)data->count, copy, copy);
    }
    if (copy != NULL && !writes) {
        type_unpack(data->type, (size_t)data->count, data->base, 0, mover.done,
                    copy);
    }
    free(copy);
    *done = mover.done;
    return code;
}

/* ---- the shared pointer ------------------------------------------------- */

static int shared_open(struct poise_mpi_file *file)
{
    if (file->shared_fd < 0) {
        file->shared_fd = poise_file_open(AT_FDCWD, file->shared_path,
                                          O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    }
    return file->shared_fd < 0 ? file->shared_fd : 0;
}

int file_shared_take(struct poise_mpi_file *file, MPI_Offset count,
                     MPI_Offset *was)
{
    MPI_Offset now = 0;
    int code = shared_open(file);
    if (code == 0) {
        code = file_lock(file->shared_fd, F_WRLCK);
    }
    if (code < 0) {
        return file_class(code);
    }
    ssize_t received = poise_file_pread(file->shared_fd, &now, sizeof now, 0,
                                        file->shared_path);
    if (received == 0) {
        now = file->shared_start;
    }
    *was = now;
    now += count;
    code = received < 0 ? (int)received
                        : poise_file_pwrite(file->shared_fd, &now, sizeof now,
                                            0, file->shared_path);
    file_lock(file->shared_fd, F_UNLCK);
    return code < 0 ? file_class(code) : MPI_SUCCESS;
}

int file_shared_set(struct poise_mpi_file *file, MPI_Offset to)
{
    int code = shared_open(file);
    if (code == 0) {
        code = poise_file_pwrite(file->shared_fd, &to, sizeof to, 0,
                                 file->shared_path);
    }
    return code < 0 ? file_class(code) : MPI_SUCCESS;
}
