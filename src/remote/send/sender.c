/* The giving end: what it does next, and what it hears. */
#include "sender.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { AHEAD_MOST = 4096 /* entries that are told and not done with */ };

/* ---- what the other end says -------------------------------------------- */

static void pop_batch(struct give *give)
{
    struct give_batch *batch = give->oldest;

    give->oldest = batch->next;
    give->newest = give->oldest ? give->newest : NULL;
    give_dir_drop(batch->dir);
    poise_buf_free(&batch->names);
    free(batch);
}

static int add_want(struct give *give, struct give_dir *dir, const char *name)
{
    size_t len = strlen(name) + 1;
    struct give_want *want = poise_alloc(1, sizeof *want + len);

    if (!want) {
        return -ENOMEM;
    }
    memcpy(want->name, name, len);
    want->dir = dir;
    if (dir) {
        dir->refs++;
    }
    *(give->last ? &give->last->next : &give->first) = want;
    give->last = want;
    give->unresolved++;
    return 0;
}

/* Which entries of the oldest part it wants. */
int give_take_want(struct give *give, struct poise_reader *body)
{
    struct give_batch *batch = give->oldest;
    uint64_t count = poise_reader_varint(body), at = 0;
    const char *name;
    int code = 0;

    if (!batch || body->error || count > batch->count) {
        return remote_bad("it wants what was not offered");
    }
    name = batch->names.data;
    for (uint64_t i = 0, seen = 0; i < count && code == 0; i++) {
        at += poise_reader_varint(body) + 1;
        if (body->error || at > batch->count) {
            return remote_bad("it wants what was not offered");
        }
        while (seen + 1 < at) {
            name += strlen(name) + 1;
            seen++;
        }
        code = add_want(give, batch->dir, name);
    }
    give->unresolved -= batch->count;
    pop_batch(give);
    return code;
}

void give_read_done(struct poise_remote_stats *stats, struct poise_reader *body)
{
    for (int i = 0; i < POISE_REMOTE_DEEDS; i++) {
        stats->deeds[i] = poise_reader_varint(body);
    }
}

int give_check_done(const struct give *give)
{
    return !give->list_told || give->oldest || give->first || give->file.open
               ? remote_bad("it is done before all was sent")
               : 0;
}

static int take_done(struct give *give, struct poise_reader *body)
{
    int code = give_check_done(give);

    give_read_done(&give->transfer->stats, body);
    give->done = code == 0;
    return code;
}

static int take(enum remote_message kind, struct poise_reader *body, void *arg)
{
    struct give *give = arg;
    int code = remote_take_common(give->transfer, kind, body);

    if (code != -ENOMSG) {
        return code;
    }
    switch (kind) {
    case REMOTE_WANT:
        return give_take_want(give, body);
    case REMOTE_DONE:
        return take_done(give, body);
    default:
        return remote_bad("a message of unknown kind");
    }
}

static int no_data(const void *data, size_t len, void *arg)
{
    (void)data;
    (void)len;
    (void)arg;
    return remote_bad("data of no file");
}

/* ---- what to do next ---------------------------------------------------- */

/* Whether one source is all, and is no directory: the target may then be its
 * new name. */
static int say_begin(struct give *give)
{
    const struct poise_remote_options *options = &give->transfer->options;
    const char *source = options->sources[0];
    size_t len = strlen(source);
    struct poise_buf body = {0};
    struct stat st;
    int code;

    poise_buf_varint(&body, options->source_count == 1 && len > 0 &&
                                    source[len - 1] != '/' &&
                                    lstat(source, &st) == 0 &&
                                    !S_ISDIR(st.st_mode)
                                ? 1
                                : 0);
    poise_buf_varint(&body, options->source_count);
    code = remote_link_say(&give->transfer->link, REMOTE_BEGIN, &body);
    poise_buf_free(&body);
    return code;
}

/* One thing, or nothing in *more. Lists go ahead of data, not far. */
static int step(struct give *give, bool *more)
{
    bool is_dry = give->transfer->options.dry;
    int code = 0;

    *more = false;
    if (give->transfer->several
            ? !several_has_room(give->transfer->several)
            : !remote_link_has_room(&give->transfer->link)) {
        return 0;
    }
    if (give->unresolved < AHEAD_MOST && !give->file.open) {
        code = give_list(give, more);
    }
    if (code == 0 && !*more && !is_dry) {
        code = give_files(give, more);
    }
    return code;
}

static int run(struct give *give)
{
    struct remote_link *link = &give->transfer->link;
    int code = say_begin(give);

    while (code == 0 && !give->done) {
        bool more = false;

        code = step(give, &more);
        if (code == 0 && !more && !give->file.open) {
            code = remote_link_flush(link);
        }
        if (code == 0 && !give->done) {
            code = give->transfer->several
                       ? several_turn(give->transfer->several, give, !more)
                       : remote_link_turn(link, !more);
        }
    }
    return code;
}

int remote_give(struct remote_transfer *transfer)
{
    struct give give = {.transfer = transfer};
    int code;

    transfer->link.take = take;
    transfer->link.data = no_data;
    transfer->link.arg = &give;
    code = run(&give);
    give_files_free(&give);
    give_list_free(&give);
    while (give.oldest) {
        pop_batch(&give);
    }
    return code;
}
