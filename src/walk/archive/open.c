/* Which parts an archive has; listing what is in them. */
#include "extract.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- errors ------------------------------------------------------------- */

int extract_report(struct extract *x, struct poise_worker *worker, int code)
{
    if (code == -ENOMEM) {
        return code;
    }
    __atomic_fetch_add(&x->errors, 1, __ATOMIC_RELAXED);
    return x->options->error
               ? x->options->error(worker, poise_error_last(), x->options->arg)
               : 0;
}

/* ---- opening ------------------------------------------------------------ */

static int file_open(const char *path, struct stat *st)
{
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0), code = 0;
    if (fd >= 0 && fstat(fd, st) != 0) {
        code = poise_error_set(errno, "look at", path, NULL);
    } else if (fd >= 0 && !S_ISREG(st->st_mode)) {
        code = poise_error_set(EINVAL, "read archive", path,
                               "only a regular file can be read here");
    }
    if (code < 0) {
        close(fd);
    }
    return code < 0 ? code : fd;
}

/* What it is. It is not kept open. */
static int part_open(const char *path, struct extract_part *part)
{
    struct stat st;
    *part = (struct extract_part){.path = strdup(path)};
    int fd = part->path ? file_open(path, &st) : -ENOMEM, code = 0;
    if (fd < 0) {
        return fd;
    }
    part->dev = st.st_dev;
    part->ino = st.st_ino;
    part->file_size = part->size = (uint64_t)st.st_size;
    part->packed = tar_is_packed(fd, path);
    if (part->packed) {
        code = tar_frames_read(fd, part->file_size, path, &part->frames,
                               &part->size);
        part->size = code > 0 ? part->size : UINT64_MAX;
    }
    close(fd);
    part->is_there = code >= 0;
    return code < 0 ? code : 0;
}

/* Open a part again. The window is the caller's, of which nothing is known
 * then. */
static int source_open(const struct extract_part *part,
                       struct tar_window *window, struct tar_source *source)
{
    struct stat st;
    int fd = file_open(part->path, &st);
    if (fd < 0) {
        return fd;
    }
    if (st.st_dev != part->dev || st.st_ino != part->ino ||
        (uint64_t)st.st_size != part->file_size) {
        close(fd);
        return poise_error_set(EBUSY, "read archive", part->path,
                               "it was replaced, or written to, meanwhile");
    }
    tar_window_reset(window);
    *source = (struct tar_source){.fd = fd,
                                  .size = part->size,
                                  .path = part->path,
                                  .packed = part->packed,
                                  .frames = part->frames,
                                  .window = window};
    return 0;
}

int extract_source(struct extract *x, struct extract_worker *w, uint64_t part,
                   struct tar_source **out)
{
    struct tar_source *source = &w->source;
    if (!source->path || w->source_part != part) {
        int code = 0;
        if (source->path && source->fd >= 0) {
            close(source->fd);
        }
        *source = (struct tar_source){.fd = -1};
        if (part < x->part_count) {
            code = source_open(&x->parts[part], &w->window, source);
        } else {
            source->fd = fcntl(x->headers.fd, F_DUPFD_CLOEXEC, 0);
            code = source->fd < 0
                       ? poise_error_set(errno, "read", "temporary file", NULL)
                       : 0;
            source->size = x->headers.size;
            source->path = "temporary file";
            source->window = &w->window;
            tar_window_reset(&w->window);
        }
        if (code < 0) {
            source->path = NULL;
            return code;
        }
        w->source_part = part;
    }
    *out = source;
    return 0;
}

/* What a part says that it is. */
static int identity_of(const struct extract_part *part,
                       struct tar_identity *out)
{
    struct tar_window window = {0};
    struct tar_source source = {.fd = -1};
    int code = source_open(part, &window, &source);
    if (code == 0) {
        code = tar_read_identity(&source, out);
        close(source.fd);
    }
    tar_window_free(&window);
    return code;
}

static bool exists(const char *archive, unsigned part, unsigned parts)
{
    struct poise_buf name = {0};
    bool is = tar_part_name(&name, archive, part, parts) == 0 &&
              access(name.data, F_OK) == 0;
    poise_buf_free(&name);
    return is;
}

/* How many parts there are: by the index, by what the first says, or by their
 * names. */
static int count_parts(const struct extract *x, unsigned *out)
{
    const char *archive = x->options->archive;
    struct poise_buf name = {0};
    struct extract_part first = {0};
    struct tar_identity identity = {0};
    unsigned count = 0;
    *out = 1;
    if (x->index.parts > 0 || exists(archive, 0, 1)) {
        *out = x->index.parts > 0 ? x->index.parts : 1;
        return 0;
    }
    while (exists(archive, count, 2)) {
        count++;
    }
    int code = count > 0 ? tar_part_name(&name, archive, 0, 2) : 0;
    if (count > 0 && code == 0) {
        code = part_open(name.data, &first);
        code = code < 0 ? code : identity_of(&first, &identity);
        tar_frames_free(first.frames);
        free(first.path);
    }
    poise_buf_free(&name);
    *out = identity.parts ? identity.parts : count > 0 ? count : 1;
    return code;
}

/* Whether a part of several is what its name says, of the archive `id`, which
 * is 0 as long as none is known. Others are refused: they are what is left
 * where an archive was being replaced; but with an index each member is known
 * by its hash. */
static int check_identity(struct extract *x, unsigned part, uint64_t *id)
{
    const struct extract_part *source = &x->parts[part];
    struct tar_identity is = {0};
    int code = identity_of(source, &is);
    if (code == -EBADMSG && source->packed) {
        code = 0; /* damaged: whoever reads it says so */
    }
    if (code < 0 || (is.id == 0 && *id == 0)) {
        return code;
    }
    if (*id == 0 && part == 0) {
        *id = is.id;
    }
    if (is.id == 0 || x->index.parts) { /* hashes tell */
        code = is.id == *id
                   ? 0
                   : poise_error_set(EBADMSG, "read archive", source->path,
                                     "its first header is damaged, or it is of "
                                     "another archive");
        return code < 0 && x->rank == 0 ? extract_report(x, NULL, code) : 0;
    }
    if (is.id != *id) {
        return poise_error_set(EBADMSG, "read archive", source->path,
                               "it is of another archive than %s: the "
                               "replacing of one was interrupted",
                               x->parts[0].path);
    }
    if (is.part != part || is.parts != x->part_count) {
        return poise_error_set(EBADMSG, "read archive", source->path,
                               "it says that it is part %u of %u", is.part,
                               is.parts);
    }
    return 0;
}

static int check_size(struct extract *x, unsigned part)
{
    const struct extract_part *source = &x->parts[part];
    if (x->index.parts == 0 || !source->is_there ||
        x->index.sizes[part] == source->file_size) {
        return 0;
    }
    poise_error_set(EBADMSG, "read archive", source->path,
                    "it has %llu bytes, the index says %llu",
                    (unsigned long long)source->file_size,
                    (unsigned long long)x->index.sizes[part]);
    return x->rank == 0 ? extract_report(x, NULL, -EBADMSG) : 0;
}

/* Names of parts carry numbers where there are several. */
static int open_parts(struct extract *x, bool numbered)
{
    struct poise_buf name = {0};
    uint64_t id = x->index.id;
    int code = 0;
    for (unsigned i = 0; i < x->part_count && code == 0; i++) {
        code = tar_part_name(&name, x->options->archive, i, numbered ? 2 : 1);
        if (code < 0) {
            break;
        }
        code = part_open(name.data, &x->parts[i]);
        if (code < 0 && code != -ENOMEM && x->part_count > 1) {
            /* The others are read. */
            code = x->rank == 0 ? extract_report(x, NULL, code) : 0;
        }
    }
    for (unsigned i = 0; i < x->part_count && code == 0; i++) {
        if (x->parts[i].is_there && (numbered || x->index.parts)) {
            code = check_identity(x, i, &id);
        }
        code = code < 0 ? code : check_size(x, i);
    }
    poise_buf_free(&name);
    return code;
}

int extract_open(struct extract *x)
{
    struct poise_buf name = {0};
    const char *archive = x->options->archive;
    unsigned count = 0;
    int code = tar_name(&name, archive, ".index");
    if (code == 0) {
        code = tar_index_read(name.data, &x->index);
        if (code == -EBADMSG) {
            tar_index_free(&x->index);
            code = x->rank == 0 ? extract_report(x, NULL, code) : 0;
        }
    }
    poise_buf_free(&name);
    code = code < 0 ? code : count_parts(x, &count);
    if (code < 0) {
        return code;
    }
    x->parts = poise_alloc(count, sizeof *x->parts);
    if (!x->parts) {
        return -ENOMEM;
    }
    x->part_count = count;
    code = open_parts(x, count > 1 ||
                             (x->index.parts == 0 && !exists(archive, 0, 1) &&
                              exists(archive, 0, 2)));
    for (unsigned i = 0; i < count; i++) {
        if (x->parts[i].packed && !x->parts[i].frames) {
            tar_index_free(&x->index); /* its offsets are of no use */
        }
    }
    return code;
}

/* ---- listing ------------------------------------------------------------ */

static int list_part(struct extract *x, unsigned part, uint64_t *entries)
{
    struct tar_memory memory = {0};
    struct tar_window window = {0};
    struct tar_source own, *source = &own;
    int code = source_open(&x->parts[part], &window, source);
    if (code < 0) {
        return code;
    }
    for (uint64_t at = 0; at < source->size && code >= 0;) {
        struct tar_member m;
        code = tar_next(source, at, &m, &memory);
        if (code == 0) {
            break;
        }
        if (code < 0) {
            code = extract_report(x, NULL, code);
            at = tar_resync(source, m.start + TAR_BLOCK);
            continue;
        }
        at = m.end;
        if (!extract_is_useless(&m)) {
            ++*entries;
            code = x->options->member(m.name, strlen(m.name), x->options->arg);
        }
        if (at >= source->size && code >= 0) {
            poise_error_set(EBADMSG, "read archive", source->path,
                            "its end is missing: it may be cut short");
            code = extract_report(x, NULL, -EBADMSG);
        }
    }
    tar_memory_free(&memory);
    tar_window_free(&window);
    close(source->fd);
    return code < 0 ? code : 0;
}

int poise_archive_list(const struct poise_archive_options *options,
                       struct poise_archive_result *result)
{
    struct extract x = {.options = options, .size = 1, .root = -1};
    uint64_t entries = 0, start = poise_clock_ns();
    tar_spool_init(&x.links);
    tar_spool_init(&x.dirs);
    tar_spool_init(&x.headers);
    tar_jobs_init(&x.jobs);
    int code = extract_open(&x);
    for (unsigned i = 0; i < x.part_count && code == 0; i++) {
        if (x.parts[i].is_there) {
            code = list_part(&x, i, &entries);
        }
    }
    *result =
        (struct poise_archive_result){.entries = entries,
                                      .errors = x.errors,
                                      .wall_ns = poise_clock_ns() - start};
    extract_free(&x);
    return code;
}
