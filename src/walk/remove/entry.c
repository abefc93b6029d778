/*
 * What is done for each entry: names go in visit, directories in leave.
 *
 * A directory in which something stays cannot go. Whoever lets something stay
 * marks its directory, and each directory that stays marks its parent: one
 * error is said, not one for each directory above.
 */
#include "internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    LINES_FULL = 16 << 10,
    TAG_MEANT = 1,  /* of a directory that is to go */
    MARK_STAYS = 1, /* of one in which something stays */
};

/* ---- what a worker keeps ------------------------------------------------ */

/* This worker's; NULL: no memory. */
static struct remove_worker *worker_of(struct remove_run *run,
                                       struct poise_worker *worker)
{
    return walk_worker_space(&run->workers, sizeof(struct remove_worker),
                             worker, NULL, NULL);
}

/* Something stays in this directory. */
static void mark(struct poise_walk_dir *dir)
{
    if (dir) {
        poise_walk_mark(dir, MARK_STAYS);
    }
}

/* ---- errors ------------------------------------------------------------- */

/* The error that was recorded last is the user's to see. */
static int tell(struct remove_run *run, struct remove_worker *w,
                struct poise_worker *worker)
{
    const struct poise_remove_options *options = run->options;
    w->errors++;
    return options->error
               ? options->error(worker, poise_error_last(), options->arg)
               : 0;
}

int remove_error_keep(struct poise_buf *text, const struct poise_error *err)
{
    poise_buf_append(text, err->doing, strlen(err->doing) + 1);
    poise_buf_append(text, err->what, strlen(err->what) + 1);
    return poise_buf_append(text, err->why, strlen(err->why) + 1);
}

int remove_error_again(struct poise_buf *text, int code)
{
    if (text->error) {
        return poise_error_set(code, "remove", NULL, NULL);
    }
    const char *doing = text->data;
    const char *what = doing + strlen(doing) + 1;
    return poise_error_set(code, doing, what, "%s", what + strlen(what) + 1);
}

int remove_settle(struct remove_run *run, struct remove_worker *w,
                  struct poise_worker *worker)
{
    if (!w->holds) {
        return 0;
    }
    w->holds = false;
    remove_error_again(&w->held, w->held_code);
    return tell(run, w, worker);
}

int remove_error(struct poise_worker *worker, const struct poise_error *err,
                 void *arg)
{
    struct remove_run *run = arg;
    struct remove_worker *w = worker_of(run, worker);
    if (!w) {
        return -ENOMEM;
    }
    if (err->code == ENOENT) {
        return 0; /* gone, as it was to be */
    }
    struct poise_buf text = {0};
    int held_code = err->code;
    remove_error_keep(&text, err);
    int code = remove_settle(run, w, worker);
    poise_buf_free(&w->held);
    w->held = text;
    w->held_code = held_code;
    w->holds = true;
    return code;
}

static int failed(struct remove_run *run, struct remove_worker *w,
                  const struct poise_walk_entry *entry, int code,
                  const char *why)
{
    struct poise_buf path = {0};
    poise_walk_path(entry, &path);
    poise_error_set(-code, "remove", poise_buf_str(&path), why ? "%s" : NULL,
                    why);
    poise_buf_free(&path);
    mark(entry->dir);
    return tell(run, w, entry->worker);
}

/* ---- what was removed --------------------------------------------------- */

int remove_deliver(int source, const void *data, size_t len, void *arg)
{
    struct remove_run *run = arg;
    const struct poise_remove_options *options = run->options;
    struct poise_reader in = poise_reader_of(data, len);
    int code = 0;
    (void)source;
    while (code == 0 && poise_reader_left(&in) > 0) {
        size_t size;
        const char *line = poise_reader_blob(&in, &size);
        if (!line || size == 0) {
            return poise_error_set(EPROTO, "list what was removed", NULL, NULL);
        }
        code =
            options->removed(line + 1, size - 1, line[0] == 'd', options->arg);
    }
    return code;
}

static int flush(struct remove_worker *w, struct poise_worker *worker)
{
    int code = w->lines.error;
    if (code == 0 && w->lines.len > 0) {
        code = poise_task_emit(worker, w->lines.data, w->lines.len);
    }
    poise_buf_reset(&w->lines);
    return code;
}

int remove_piece(struct poise_worker *worker, const struct poise_walk_dir *dir,
                 uint64_t entries, bool whole, void *arg)
{
    struct remove_worker *w = worker_of(arg, worker);
    (void)dir;
    (void)entries;
    (void)whole;
    return w ? flush(w, worker) : -ENOMEM;
}

static int removed(struct remove_run *run, struct remove_worker *w,
                   const struct poise_walk_entry *entry, bool directory)
{
    uint64_t *count = directory ? &w->directories : &w->files;
    ++*count;
    if (!run->options->removed) {
        return 0;
    }
    poise_buf_reset(&w->path);
    poise_buf_putc(&w->path, directory ? 'd' : 'f');
    int code = poise_walk_path(entry, &w->path);
    poise_buf_blob(&w->lines, w->path.data, w->path.len);
    if (code == 0 && (directory || !entry->dir || w->lines.len > LINES_FULL)) {
        code = flush(w, entry->worker); /* nothing may come after it */
    }
    return code;
}

/* ---- removing ----------------------------------------------------------- */

static int unlink_fault(void)
{
    int code = poise_fault_check(POISE_FAULT_UNLINK);
    errno = code;
    return code ? -1 : 0;
}

/* Whether the entry is to go. Of a directory its tag remembers that. 1, 0, or
 * what ends the walk. */
static int is_meant(struct remove_run *run, struct remove_worker *w,
                    struct poise_walk_entry *entry)
{
    struct poise_walk_filter *filter = run->options->filter;
    int answer = filter ? poise_walk_filter_match_now(filter, entry) : 1;
    if (answer < 0) {
        mark(entry->dir); /* reported; a directory is entered all the same */
        return answer == -ENOMEM ? answer : 0;
    }
    if (answer == 0) {
        w->kept++;
        mark(entry->dir);
    } else if (entry->type == DT_DIR) {
        poise_walk_tag_set(entry, TAG_MEANT);
    }
    return answer;
}

int remove_visit(struct poise_walk_entry *entry, void *arg)
{
    struct remove_run *run = arg;
    struct remove_worker *w = worker_of(run, entry->worker);
    int code = w ? remove_settle(run, w, entry->worker) : -ENOMEM;
    code = code < 0 ? code : is_meant(run, w, entry);
    if (code <= 0 || entry->type == DT_DIR) {
        return code < 0 ? code : POISE_WALK_ON;
    }
    int dirfd = poise_walk_dirfd(entry);
    if (dirfd < 0 && dirfd != AT_FDCWD) {
        mark(entry->dir);
        return 0;
    }
    if (run->options->dry_run ||
        (unlink_fault() == 0 && unlinkat(dirfd, entry->name, 0) == 0)) {
        return removed(run, w, entry, false);
    }
    return errno == ENOENT ? 0 : failed(run, w, entry, -errno, NULL);
}

/* Something came into the directory while it was emptied, or the file system
 * did not show all of what it had while that was changed: once more. */
static int remove_rest(struct remove_run *run, struct remove_worker *w,
                       const struct poise_walk_entry *entry, int dirfd)
{
    int code = run->again ? -ENOTEMPTY : remove_one(dirfd, entry->name, true);
    if (code == 0) {
        return removed(run, w, entry, true);
    }
    return failed(run, w, entry, -ENOTEMPTY, NULL);
}

/* Why a directory that is not empty, or in use, was not emptied. */
static const char *why_busy(const struct poise_walk_entry *entry, int dirfd)
{
    struct statx own, parent;
    if (!entry->dir ||
        statx(dirfd, entry->name, AT_SYMLINK_NOFOLLOW, STATX_INO, &own) != 0 ||
        statx(dirfd, "", AT_EMPTY_PATH, STATX_INO, &parent) != 0) {
        return NULL;
    }
    return own.stx_dev_major != parent.stx_dev_major ||
                   own.stx_dev_minor != parent.stx_dev_minor
               ? "it is on another file system"
               : NULL;
}

/* The directory is empty, as far as is known. */
static int leave_empty(struct remove_run *run, struct remove_worker *w,
                       const struct poise_walk_entry *entry)
{
    int dirfd = poise_walk_dirfd(entry);
    if (dirfd < 0 && dirfd != AT_FDCWD) {
        mark(entry->dir);
        return 0;
    }
    if (run->options->dry_run ||
        (unlink_fault() == 0 &&
         unlinkat(dirfd, entry->name, AT_REMOVEDIR) == 0)) {
        w->holds = false;
        return removed(run, w, entry, true);
    }
    int code = -errno;
    if (code == -ENOENT) {
        w->holds = false;
        return 0;
    }
    if (w->holds) { /* that says more */
        mark(entry->dir);
        return remove_settle(run, w, entry->worker);
    }
    if (run->options->filter && (code == -ENOTEMPTY || code == -EEXIST)) {
        mark(entry->dir); /* of what came in nothing was asked */
        return 0;
    }
    const char *why =
        code == -EBUSY || code == -ENOTEMPTY ? why_busy(entry, dirfd) : NULL;
    if ((code == -ENOTEMPTY || code == -EEXIST) && !why) {
        return remove_rest(run, w, entry, dirfd);
    }
    return failed(run, w, entry, code, why);
}

/* Whether the error that `w` holds is about this directory. */
static bool is_held(struct remove_worker *w,
                    const struct poise_walk_entry *entry)
{
    poise_buf_reset(&w->path);
    if (w->held.error || poise_walk_path(entry, &w->path) < 0) {
        return false;
    }
    const char *path = poise_buf_str(&w->path);
    return strcmp(w->held.data + strlen(w->held.data) + 1, path) == 0;
}

int remove_leave(struct poise_walk_entry *entry, void *arg)
{
    struct remove_run *run = arg;
    struct remove_worker *w = worker_of(run, entry->worker);
    struct poise_walk_dir *self = poise_walk_self(entry);
    if (!w) {
        return -ENOMEM;
    }
    if (w->holds && (!self || run->options->dry_run || !is_held(w, entry))) {
        int code = remove_settle(run, w, entry->worker);
        if (code < 0) {
            return code;
        }
    }
    if (!self) {
        return failed(run, w, entry, -EXDEV, "it is on another file system");
    }
    if (poise_walk_marks(self) != 0 || poise_walk_dir_tag(self) != TAG_MEANT) {
        mark(entry->dir);
        return remove_settle(run, w, entry->worker);
    }
    return leave_empty(run, w, entry);
}
