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

static int source_open(const char *path, struct tar_source *source)
{
    struct stat st;
    *source = (struct tar_source){.fd = -1, .path = strdup(path)};
    if (!source->path) {
        return -ENOMEM;
    }
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    source->fd = fd;
    if (fstat(fd, &st) != 0) {
        return poise_error_set(errno, "look at", path, NULL);
    }
    if (!S_ISREG(st.st_mode)) {
        return poise_error_set(EINVAL, "read archive", path,
                               "only a regular file can be read here");
    }
    source->size = (uint64_t)st.st_size;
    return 0;
}

static void source_close(struct tar_source *source)
{
    if (source->fd >= 0) {
        close(source->fd);
    }
    free((char *)(uintptr_t)source->path);
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
    struct tar_source first = {.fd = -1};
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
        code = source_open(name.data, &first);
        code = code < 0 ? code : tar_read_identity(&first, &identity);
    }
    source_close(&first);
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
    const struct tar_source *source = &x->parts[part];
    struct tar_identity is;
    int code = tar_read_identity(source, &is);
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
    const struct tar_source *source = &x->parts[part];
    if (x->index.parts == 0 || source->fd < 0 ||
        x->index.sizes[part] == source->size) {
        return 0;
    }
    poise_error_set(EBADMSG, "read archive", source->path,
                    "it has %llu bytes, the index says %llu",
                    (unsigned long long)source->size,
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
        code = source_open(name.data, &x->parts[i]);
        if (code < 0 && code != -ENOMEM && x->part_count > 1) {
            /* The others are read. */
            code = x->rank == 0 ? extract_report(x, NULL, code) : 0;
        }
    }
    for (unsigned i = 0; i < x->part_count && code == 0; i++) {
        if (x->parts[i].fd >= 0 && (numbered || x->index.parts)) {
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
    for (unsigned i = 0; i < count; i++) {
        x->parts[i].fd = -1;
    }
    x->part_count = count;
    return open_parts(x, count > 1 ||
                             (x->index.parts == 0 && !exists(archive, 0, 1) &&
                              exists(archive, 0, 2)));
}

/* ---- listing ------------------------------------------------------------ */

static int list_part(struct extract *x, unsigned part, uint64_t *entries)
{
    const struct tar_source *source = &x->parts[part];
    struct tar_memory memory = {0};
    int code = 0;
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
    return code < 0 ? code : 0;
}

int poise_archive_list(const struct poise_archive_options *options,
                       struct poise_archive_result *result)
{
    struct extract x = {.options = options, .size = 1, .root = -1};
    uint64_t entries = 0, start = poise_clock_ns();
    tar_spool_init(&x.links);
    tar_spool_init(&x.dirs);
    int code = extract_open(&x);
    for (unsigned i = 0; i < x.part_count && code == 0; i++) {
        if (x.parts[i].fd >= 0) {
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
