/*
 * The files of a session, as they come, and their clocks. On one clock, which
 * is that of all ranks of a machine, ticks are times at once. Else the
 * session's measurements of clocks are read, which takes all files.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More ranks than this are no job, but a damaged file. */
enum { RANKS_MOST = 1 << 20 };

/* ---- hosts and clusters ------------------------------------------------- */

/* The number of a name among those so far, or -ENOMEM. */
static int number_of(char ***names, int *count, const char *name)
{
    for (int i = 0; i < *count; i++) {
        if (strcmp((*names)[i], name) == 0) {
            return i;
        }
    }
    char **more = poise_realloc(*names, (size_t)*count + 1, sizeof *more);
    if (!more) {
        return -ENOMEM;
    }
    *names = more;
    more[*count] = strdup(name);
    return more[*count] ? (*count)++
                        : poise_error_set(ENOMEM, "read trace", name, NULL);
}

static int set_units(struct poise_scope *scope, struct scope_file *file)
{
    const char *dot = strchr(file->info.host, '.');
    const char *cluster = dot ? dot + 1 : "";
    file->host = number_of(&scope->hosts, &scope->host_count, file->info.host);
    file->cluster = number_of(&scope->clusters, &scope->cluster_count, cluster);
    file->outside =
        (scope->host && strcmp(scope->host, file->info.host) != 0) ||
        (scope->cluster && strcmp(scope->cluster, cluster) != 0);
    return file->host < 0 ? file->host : file->cluster < 0 ? file->cluster : 0;
}

int poise_scope_unit(const struct poise_scope *scope,
                     enum poise_scope_level level, int rank)
{
    if (rank < 0 || rank >= scope->size || !scope->files[rank].view) {
        return -1;
    }
    return level == POISE_SCOPE_RANK      ? rank
           : level == POISE_SCOPE_HOST    ? scope->files[rank].host
           : level == POISE_SCOPE_CLUSTER ? scope->files[rank].cluster
                                          : 0;
}

const char *poise_scope_unit_name(const struct poise_scope *scope,
                                  enum poise_scope_level level, int unit)
{
    if (level == POISE_SCOPE_HOST && unit >= 0 && unit < scope->host_count) {
        return scope->hosts[unit];
    }
    return level == POISE_SCOPE_CLUSTER && unit >= 0 &&
                   unit < scope->cluster_count
               ? scope->clusters[unit]
               : NULL;
}

/* ---- files -------------------------------------------------------------- */

static bool is_same(const uint64_t a[2], const uint64_t b[2])
{
    return a[0] == b[0] && a[1] == b[1];
}

/* 1: it is open; 0: not there, or not yet whole. */
static int open_view(const char *path, bool final,
                     struct poise_trace_view **view)
{
    if (access(path, F_OK) != 0) {
        return 0;
    }
    int code = poise_trace_open(path, view);
    if (code < 0 && !final && (code == -EPROTO || code == -EBADMSG)) {
        return 0;
    }
    return code < 0 ? code : 1;
}

static int make_files(struct poise_scope *scope, int size)
{
    struct poise_buf path = {0};
    scope->files = poise_alloc((size_t)size, sizeof *scope->files);
    if (!scope->files) {
        return -ENOMEM;
    }
    scope->size = size;
    for (int i = 0; i < size; i++) {
        poise_buf_reset(&path);
        poise_buf_printf(&path, i == 0 ? "%s" : "%s.%d", scope->path, i);
        scope->files[i].path = strdup(poise_buf_str(&path));
        if (path.error || !scope->files[i].path) {
            poise_buf_free(&path);
            return poise_error_set(ENOMEM, "read trace", scope->path, NULL);
        }
    }
    poise_buf_free(&path);
    return 0;
}

static void set_near(struct scope_clock *clock)
{
    bool linear = !clock->session && clock->scale != 0 &&
                  clock->scale >> SCOPE_SHIFT == 0;
    clock->near_ticks = linear ? (uint64_t)1 << 61 : 0;
}

/* Use an open view as the file of its rank. */
static int use_view(struct poise_scope *scope, int rank,
                    struct poise_trace_view *view)
{
    struct scope_file *file = &scope->files[rank];
    const struct scope_file *first = &scope->files[0];
    struct poise_trace_info info;
    poise_trace_info(view, &info);
    if (rank > 0 && !is_same(info.session, first->info.session)) {
        poise_trace_close(view);
        return poise_error_set(EINVAL, "read trace", file->path,
                               "it is of another session than '%s'",
                               scope->path);
    }
    file->view = view;
    file->info = info;
    file->foreign = rank > 0 && !is_same(info.clock, first->info.clock);
    file->clock = (struct scope_clock){
        .start_ticks = first->info.start_ticks,
        .tick_hz = first->info.tick_hz,
        .scale = scope_scale(first->info.tick_hz),
    };
    set_near(&file->clock);
    return set_units(scope, file);
}

static int open_first(struct poise_scope *scope, bool final)
{
    struct poise_trace_view *view = NULL;
    struct poise_trace_info info;
    int code = open_view(scope->path, final, &view);
    if (code <= 0) {
        poise_trace_close(view);
        return code == 0 && final
                   ? poise_error_set(ENOENT, "read trace", scope->path,
                                     "the program recorded nothing")
                   : code;
    }
    poise_trace_info(view, &info);
    if (info.rank != 0 || info.size < 1) {
        poise_trace_close(view);
        return poise_error_set(EINVAL, "read trace", scope->path,
                               "it is not that of rank 0");
    }
    if (info.size > RANKS_MOST) {
        int size = info.size;
        poise_trace_close(view);
        return poise_error_set(EINVAL, "read trace", scope->path,
                               "it says that there are %d ranks", size);
    }
    code = make_files(scope, info.size);
    if (code < 0) {
        poise_trace_close(view);
        return code;
    }
    return use_view(scope, 0, view);
}

/* Those that have come since. */
static int open_files(struct poise_scope *scope, bool final)
{
    int code = scope->size == 0 ? open_first(scope, final) : 0;
    for (int i = 1; i < scope->size && code >= 0; i++) {
        struct poise_trace_view *view = NULL;
        if (scope->files[i].view) {
            continue;
        }
        code = open_view(scope->files[i].path, final, &view);
        if (code > 0) {
            code = use_view(scope, i, view);
        } else {
            poise_trace_close(view);
        }
    }
    return code < 0 ? code : 0;
}

/* ---- clocks ------------------------------------------------------------- */

int scope_files(const struct poise_scope *scope, bool *foreign)
{
    int count = 0;
    *foreign = false;
    for (int i = 0; i < scope->size; i++) {
        const struct scope_file *file = &scope->files[i];
        count += file->view != NULL;
        *foreign = *foreign || (file->foreign && !file->outside);
    }
    return count;
}

/* The file of the session's that is this rank's; its number says its clock. */
static void use_session(struct poise_scope *scope, int rank)
{
    struct scope_file *file = &scope->files[rank];
    for (unsigned i = 0; i < poise_trace_session_files(scope->session); i++) {
        struct poise_trace_file other;
        if (poise_trace_session_file(scope->session, i, &other) == 0 &&
            other.info.rank == rank) {
            file->clock.session = scope->session;
            file->clock.file = i;
            set_near(&file->clock);
        }
    }
    file->clock.number = 0;
    for (int k = 0; k < rank; k++) {
        if (scope->files[k].view &&
            is_same(scope->files[k].info.clock, file->info.clock)) {
            file->clock.number = scope->files[k].clock.number;
            return;
        }
    }
    file->clock.number = (uint32_t)rank;
}

/* Read what is known of the clocks, anew when the program has ended: offsets
 * are measured then, too. */
static int read_clocks(struct poise_scope *scope)
{
    const char **paths = poise_alloc((size_t)scope->size, sizeof *paths);
    size_t count = 0;
    if (!paths) {
        return -ENOMEM;
    }
    for (int i = 0; i < scope->size; i++) {
        if (scope->files[i].view) {
            paths[count++] = scope->files[i].path;
        }
    }
    poise_trace_session_close(scope->session);
    scope->session = NULL;
    int code = poise_trace_session_open(paths, count, &scope->session);
    free(paths);
    for (int i = 0; i < scope->size; i++) {
        scope->files[i].clock.session = NULL;
        set_near(&scope->files[i].clock);
        if (code == 0 && scope->files[i].view) {
            use_session(scope, i);
        }
    }
    return code;
}

int scope_open(struct poise_scope *scope, bool final)
{
    bool foreign;
    int code = open_files(scope, final);
    int count = scope_files(scope, &foreign);
    if (code < 0 || count == 0 || (foreign && count < scope->size && !final)) {
        return code < 0 ? code : 0;
    }
    if (foreign && (!scope->session || (final && !scope->has_final))) {
        code = read_clocks(scope);
        scope->has_final = final;
    }
    return code < 0 ? code : count;
}

void scope_close(struct poise_scope *scope)
{
    for (int i = 0; i < scope->size; i++) {
        poise_trace_close(scope->files[i].view);
        free(scope->files[i].names);
        free(scope->files[i].path);
    }
    poise_trace_session_close(scope->session);
    free(scope->files);
    for (int i = 0; i < scope->host_count; i++) {
        free(scope->hosts[i]);
    }
    for (int i = 0; i < scope->cluster_count; i++) {
        free(scope->clusters[i]);
    }
    free(scope->hosts);
    free(scope->clusters);
}

/* ---- times -------------------------------------------------------------- */

__extension__ typedef __int128 wide;

/* A division of 128 bits takes longer than all else that is done to a time. */
uint64_t scope_scale(uint64_t tick_hz)
{
    wide scale = ((wide)1000000000 << SCOPE_SHIFT) / (wide)tick_hz;
    return scale <= INT64_MAX ? (uint64_t)scale : 0;
}

int64_t scope_far_ns(const struct scope_clock *clock, uint64_t ticks,
                     uint64_t *error_ns)
{
    int64_t ns = 0;
    if (clock->session) {
        poise_trace_session_time(clock->session, clock->file, ticks, &ns,
                                 error_ns);
        return ns;
    }
    *error_ns = 0;
    wide since = (wide)ticks - (wide)clock->start_ticks;
    since = clock->scale ? since * (wide)clock->scale >> SCOPE_SHIFT
                         : since * 1000000000 / (wide)clock->tick_hz;
    return since > INT64_MAX   ? INT64_MAX
           : since < INT64_MIN ? INT64_MIN
                               : (int64_t)since;
}

const struct scope_clock *scope_clock(const struct poise_scope_from *from)
{
    return &from->scope->files[from->file].clock;
}

int64_t poise_scope_ns(const struct poise_scope_from *from, uint64_t ticks,
                       uint64_t *error_ns)
{
    return scope_ns(&from->scope->files[from->file].clock, ticks, error_ns);
}

uint32_t poise_scope_clock(const struct poise_scope_from *from)
{
    return from->scope->files[from->file].clock.number;
}
