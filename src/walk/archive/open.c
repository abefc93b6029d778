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

static bool exists(const char *archive, unsigned part, unsigned parts)
{
    struct poise_buf name = {0};
    bool is = tar_part_name(&name, archive, part, parts) == 0 &&
              access(name.data, F_OK) == 0;
    poise_buf_free(&name);
    return is;
}

/* How many parts there are: by the index, or by their names. */
static unsigned count_parts(const struct extract *x)
{
    const char *archive = x->options->archive;
    unsigned count = 0;
    if (x->index.parts > 0) {
        return x->index.parts;
    }
    if (exists(archive, 0, 1)) {
        return 1;
    }
    while (exists(archive, count, 2)) {
        count++;
    }
    return count > 0 ? count : 1;
}

/* Names of parts carry numbers where there are several, or the index says that
 * there is one and it has none. */
int extract_open(struct extract *x)
{
    struct poise_buf name = {0};
    const char *archive = x->options->archive;
    int code = tar_name(&name, archive, ".index");
    if (code == 0) {
        code = tar_index_read(name.data, &x->index);
        if (code == -EBADMSG) {
            tar_index_free(&x->index);
            code = x->rank == 0 ? extract_report(x, NULL, code) : 0;
        }
    }
    bool numbered =
        x->index.parts ? x->index.parts > 1 : !exists(archive, 0, 1);
    unsigned count = count_parts(x);
    x->parts = code < 0 ? NULL : poise_alloc(count, sizeof *x->parts);
    code = code < 0 ? code : x->parts ? 0 : -ENOMEM;
    for (unsigned i = 0; i < count && code == 0; i++) {
        x->part_count = i + 1;
        code = tar_part_name(&name, archive, i,
                             numbered && exists(archive, i, 2) ? 2 : 1);
        if (code == 0 && numbered && x->index.parts) {
            code = tar_part_name(&name, archive, i, 2);
        }
        code = code < 0 ? code : source_open(name.data, &x->parts[i]);
        if (code < 0 && code != -ENOMEM && count > 1) {
            code = x->rank == 0 ? extract_report(x, NULL, code)
                                : 0; /* the others */
        } else if (code == 0 && x->index.parts &&
                   x->index.sizes[i] != x->parts[i].size) {
            poise_error_set(EBADMSG, "read archive", name.data,
                            "it has %llu bytes, the index says %llu",
                            (unsigned long long)x->parts[i].size,
                            (unsigned long long)x->index.sizes[i]);
            code = x->rank == 0 ? extract_report(x, NULL, -EBADMSG) : 0;
        }
    }
    poise_buf_free(&name);
    return code;
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
