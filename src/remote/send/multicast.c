/*
 * One end that gives to several. It lists, reads and sends once, through a link
 * that has no descriptors, and all receivers get the same. That is only right
 * while they want the same: whoever wants other files, or is much slower, is
 * left, and begun with again when the others are done; as all that arrived is
 * there or in its cache, little is sent twice.
 */
#include "sender.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    TARGETS_MOST = 32,
    BEHIND_MOST = 32 << 20, /* bytes, while others have room */
    PATIENCE_S = 3,
};
static const uint64_t second = UINT64_C(1000000000);

struct several_member {
    struct several *several;
    struct remote_transfer transfer;
    struct poise_remote_outcome *outcome;
    const char *target; /* as the user wrote it */
    int fd;
    pid_t pid;
    int end; /* why it was left */
    bool lives, is_done, is_late;
    struct poise_buf wants; /* answers: u64 length and bytes each */
    uint64_t silent_ns;     /* since when others wait for its answer, or 0 */
    uint64_t slow_ns;       /* since when they wait for it to read, or 0 */
};

struct several {
    struct remote_transfer lead;
    struct several_member *members;
    size_t count;
};

/* ---- coming and going --------------------------------------------------- */

static void leave(struct several_member *member, int code)
{
    struct poise_remote_outcome *outcome = member->outcome;
    struct poise_remote_stats *stats = &outcome->stats;
    const struct poise_remote_stats *own = &member->transfer.stats;
    struct poise_buf why = {0};

    if (!member->lives) {
        return;
    }
    member->lives = false;
    outcome->err = code;
    if (code < 0) {
        poise_error_format(poise_error_last(), &why);
        snprintf(outcome->why, sizeof outcome->why, "%s", poise_buf_str(&why));
        poise_buf_free(&why);
    }
    *stats = member->several->lead.stats;
    stats->problems += own->problems;
    memcpy(stats->deeds, own->deeds, sizeof stats->deeds);
    if (member->transfer.link.peer) {
        struct poise_dedup_peer_stats peer =
            poise_dedup_peer_stats(member->transfer.link.peer);
        stats->peer = poise_dedup_peer_stats(member->several->lead.link.peer);
        stats->peer.wire_in = peer.wire_in;
        stats->peer.wire_out = peer.wire_out;
        stats->peer.requests = peer.requests;
        stats->peer.repairs = peer.repairs;
        stats->wire_bytes = peer.wire_in + peer.wire_out;
    }
    remote_link_close(&member->transfer.link);
    poise_buf_free(&member->wants);
    if (member->fd >= 0) {
        close(member->fd);
    }
    /* Nobody waits here for what was started to end. */
    member->end = member->is_late ? -ETIMEDOUT : code;
    if (member->pid > 0 && member->is_late) {
        kill(member->pid, SIGTERM);
    }
}

/* For later: it is no failure. */
static void put_off(struct several_member *member)
{
    member->is_late = true;
    member->outcome->put_off++;
    leave(member, 0);
}

static size_t living(const struct several *several)
{
    size_t count = 0;

    for (size_t i = 0; i < several->count; i++) {
        count += several->members[i].lives;
    }
    return count;
}

/* ---- what they say ------------------------------------------------------ */

static int take(enum remote_message kind, struct poise_reader *body, void *arg)
{
    struct several_member *member = arg;
    int code = remote_take_common(&member->transfer, kind, body);

    if (code != -ENOMSG) {
        return code;
    }
    switch (kind) {
    case REMOTE_WANT:
        if (member->wants.len > REMOTE_MESSAGE_MOST) {
            return remote_bad("it wants what was not offered");
        }
        poise_buf_u64(&member->wants, poise_reader_left(body));
        code = poise_buf_append(&member->wants, body->pos,
                                poise_reader_left(body));
        return code;
    case REMOTE_DONE:
        /* It may be ahead of others, whose answers are waited for. */
        give_read_done(&member->transfer.stats, body);
        member->is_done = true;
        return 0;
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

static bool has_answered(const struct several_member *member)
{
    return member->wants.len > 0;
}

static struct poise_reader answer_of(const struct several_member *member)
{
    return poise_reader_of(member->wants.data + sizeof(uint64_t),
                           (size_t)poise_get_u64(member->wants.data));
}

static bool want_the_same(const struct several_member *a,
                          const struct several_member *b)
{
    struct poise_reader one = answer_of(a), two = answer_of(b);
    size_t len = poise_reader_left(&one);

    return len == poise_reader_left(&two) && memcmp(one.pos, two.pos, len) == 0;
}

/* Whose answer most of them gave; all have. */
static const struct several_member *find_most(const struct several *several)
{
    const struct several_member *most = NULL;
    size_t most_alike = 0;

    for (size_t i = 0; i < several->count; i++) {
        const struct several_member *member = &several->members[i];
        size_t alike = 0;
        for (size_t j = 0; j < several->count && member->lives; j++) {
            alike += several->members[j].lives &&
                     want_the_same(member, &several->members[j]);
        }
        if (alike > most_alike) {
            most = member;
            most_alike = alike;
        }
    }
    return most;
}

/* Others wait for this one, or not: it is put off if that takes long. */
static void wait_for(struct several_member *member, uint64_t *since_ns,
                     bool waits)
{
    uint64_t now = poise_clock_ns();

    if (!waits) {
        *since_ns = 0;
    } else if (*since_ns == 0) {
        *since_ns = now;
    } else if (now - *since_ns > PATIENCE_S * second) {
        put_off(member);
    }
}

/* Whether everybody has said what it wants of the oldest part. `waits`: there
 * is nothing else to do. */
static bool have_all_answered(struct several *several, bool waits)
{
    size_t answered = 0, all = 0;

    for (size_t i = 0; i < several->count; i++) {
        const struct several_member *member = &several->members[i];
        all += member->lives;
        answered += member->lives && has_answered(member);
    }
    for (size_t i = 0; i < several->count; i++) {
        struct several_member *member = &several->members[i];
        if (member->lives && answered < all) {
            wait_for(member, &member->silent_ns,
                     waits && answered > 0 && !has_answered(member));
        }
    }
    return all > 0 && answered == all;
}

/* Take answers that all have given. */
static int heed_wants(struct several *several, struct give *give, bool waits)
{
    int code = 0;

    while (code == 0 && have_all_answered(several, waits)) {
        const struct several_member *most = find_most(several);
        struct poise_reader body = answer_of(most);
        size_t used = sizeof(uint64_t) + poise_reader_left(&body);

        for (size_t i = 0; i < several->count; i++) {
            struct several_member *member = &several->members[i];
            if (member->lives && !want_the_same(member, most)) {
                put_off(member);
            }
        }
        code = give_take_want(give, &body);
        if (code == 0 && body.error) {
            code = remote_bad("a message is cut short");
        }
        for (size_t i = 0; i < several->count; i++) {
            struct several_member *member = &several->members[i];
            if (member->lives) {
                member->silent_ns = 0;
                memmove(member->wants.data, member->wants.data + used,
                        member->wants.len - used);
                member->wants.len -= used;
            }
        }
    }
    return code;
}

/* ---- the parts of a turn ------------------------------------------------ */

bool several_has_room(struct several *several)
{
    size_t room = 0;
    bool must_wait = false;

    if (!several->lead.link.met) {
        return false;
    }
    for (size_t i = 0; i < several->count; i++) {
        const struct several_member *member = &several->members[i];
        room += member->lives && remote_link_has_room(&member->transfer.link);
    }
    for (size_t i = 0; i < several->count; i++) {
        struct several_member *member = &several->members[i];
        const struct remote_link *link = &member->transfer.link;
        const void *data;
        bool is_behind = member->lives &&
                         poise_dedup_peer_in_flight(link->peer) +
                                 poise_dedup_peer_output(link->peer, &data) >=
                             BEHIND_MOST;
        must_wait = must_wait || is_behind;
        if (member->lives) {
            wait_for(member, &member->slow_ns, is_behind && room > 0);
        }
    }
    return room > 0 && !must_wait;
}

static void prepare(struct several *several, struct pollfd *fds)
{
    for (size_t i = 0; i < several->count; i++) {
        struct several_member *member = &several->members[i];
        fds[2 * i] = fds[2 * i + 1] = (struct pollfd){.fd = -1};
        if (member->lives) {
            int code = remote_link_ready(&member->transfer.link, &fds[2 * i]);
            if (code < 0) {
                fds[2 * i].fd = fds[2 * i + 1].fd = -1;
            }
            if (code < 0 && !member->is_done) {
                leave(member, code);
            }
        }
    }
}

static void heed(struct several *several, const struct pollfd *fds, bool wait)
{
    for (size_t i = 0; i < several->count; i++) {
        struct several_member *member = &several->members[i];
        int code = 0;
        if (!member->lives) {
            continue;
        }
        code = remote_link_heed(&member->transfer.link, &fds[2 * i], wait);
        /* One that has said all there is to say may hang up. */
        if (code < 0 && !member->is_done) {
            leave(member, code);
        }
    }
}

/* Those whose answers were taken, and who are done. */
static void dismiss(struct several *several, const struct give *give)
{
    for (size_t i = 0; i < several->count; i++) {
        struct several_member *member = &several->members[i];
        if (member->lives && member->is_done && !has_answered(member)) {
            leave(member, give_check_done(give));
        }
    }
}

int several_turn(struct several *several, struct give *give, bool wait)
{
    struct pollfd fds[2 * TARGETS_MOST];
    int code = remote_link_settle(&several->lead.link);

    if (code == 0) {
        prepare(several, fds);
        code = remote_link_await(&several->lead.link, fds, 2 * several->count,
                                 wait);
    }
    if (code == 0) {
        heed(several, fds, wait);
        code = heed_wants(several, give, wait);
        dismiss(several, give);
    }
    give->done = living(several) == 0;
    return code;
}

static void tick(void *arg)
{
    struct several *several = arg;
    const struct poise_remote_options *options = &several->lead.options;
    struct poise_remote_stats stats = several->lead.stats;

    for (size_t i = 0; i < several->count; i++) {
        const struct several_member *member = &several->members[i];
        if (member->lives && member->transfer.link.peer) {
            struct poise_dedup_peer_stats peer =
                poise_dedup_peer_stats(member->transfer.link.peer);
            stats.wire_bytes += peer.wire_in + peer.wire_out;
        }
    }
    if (options->progress) {
        options->progress(&stats, options->arg);
    }
}

/* ---- a pass ------------------------------------------------------------- */

/* Reach one of them. */
static int begin(struct several_member *member)
{
    struct remote_transfer *transfer = &member->transfer;
    struct several *several = member->several;
    size_t len = remote_host(member->target);
    int code;

    transfer->options = several->lead.options;
    transfer->options.target = member->target + (len ? len + 1 : 0);
    if (len == 0 && !transfer->options.remote_cache) {
        transfer->options.remote_cache = "";
    }
    transfer->prefix = member->target;
    transfer->prefix_len = len ? len + 1 : 0;
    code = remote_start(&transfer->options, member->target, len, true,
                        &member->fd, &member->pid);
    if (code == 0) {
        code = remote_meet(&transfer->options, member->fd, member->pid);
    }
    if (code < 0) {
        member->fd = -1;
        member->pid = 0;
        return code;
    }
    transfer->link = (struct remote_link){
        .in = member->fd,
        .out = member->fd,
        .store = several->lead.link.store,
        .follows = &several->lead.link,
        .met = true, /* or not: the lead's link knows */
        .silence_ns = transfer->options.silence_ns,
        .stop = transfer->options.stop,
        .take = take,
        .data = no_data,
        .arg = member,
    };
    /* What comes through the lead is compressed already. */
    return remote_link_open(&transfer->link, 1, NULL);
}

/* All that are to be sent to now. */
static int pass(struct several *several)
{
    struct remote_link *link = &several->lead.link;
    int err;

    link->leads = true;
    link->in = link->out = -1;
    link->stop = several->lead.options.stop;
    link->tick = tick;
    link->tick_arg = several;
    err = remote_link_open(link, several->lead.options.level,
                           several->lead.options.segmenter);
    for (size_t i = 0; i < several->count && err == 0; i++) {
        struct several_member *member = &several->members[i];
        int code;
        member->lives = true;
        code = begin(member);
        if (code < 0) {
            leave(member, code);
        }
        if (several->lead.options.stop && *several->lead.options.stop) {
            err = poise_error_set(EINTR, "go on", NULL, "it was interrupted");
        }
    }
    if (err == 0 && living(several) > 0) {
        err = remote_give(&several->lead);
    }
    for (size_t i = 0; i < several->count; i++) {
        leave(&several->members[i], err);
    }
    remote_link_close(link);
    for (size_t i = 0; i < several->count; i++) {
        if (several->members[i].pid > 0) {
            remote_finish(several->members[i].pid, several->members[i].end);
        }
    }
    return err;
}

static int check(const struct poise_remote_options *options, size_t count)
{
    if (count == 0 || count > TARGETS_MOST) {
        return poise_error_set(EINVAL, "send", NULL, "to 1 to %d targets",
                               TARGETS_MOST);
    }
    for (size_t i = 0; i < options->source_count; i++) {
        if (remote_host(options->sources[i]) > 0) {
            return poise_error_set(EINVAL, "send", options->sources[i],
                                   "to several targets only from here");
        }
    }
    return 0;
}

/* Those that are to be sent to: all at first, then who was put off. */
static size_t choose(struct several *several, const char *const *targets,
                     size_t count, struct poise_remote_outcome *outcomes,
                     bool is_first)
{
    bool late[TARGETS_MOST] = {false};
    size_t chosen = 0;

    for (size_t i = 0; i < several->count; i++) {
        late[several->members[i].outcome - outcomes] =
            several->members[i].is_late;
    }
    for (size_t i = 0; i < count; i++) {
        if (is_first || late[i]) {
            several->members[chosen++] =
                (struct several_member){.several = several,
                                        .outcome = &outcomes[i],
                                        .target = targets[i],
                                        .fd = -1};
        }
    }
    several->count = chosen;
    return chosen;
}

int poise_remote_send_several(const struct poise_remote_options *options,
                              const char *const *targets, size_t count,
                              struct poise_remote_outcome *outcomes)
{
    struct several several = {.lead = {.options = *options}};
    struct poise_dedup_store *store;
    int code = check(options, count);

    if (code < 0) {
        return code;
    }
    memset(outcomes, 0, count * sizeof *outcomes);
    several.members = poise_alloc(count, sizeof *several.members);
    if (!several.members) {
        return -ENOMEM;
    }
    code = remote_open_store(&several.lead);
    store = several.lead.link.store;
    for (bool is_first = true;
         code == 0 && choose(&several, targets, count, outcomes, is_first) > 0;
         is_first = false) {
        several.lead.link = (struct remote_link){.store = store};
        several.lead.stats = (struct poise_remote_stats){0};
        several.lead.several = &several;
        code = pass(&several);
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        code = outcomes[i].err;
    }
    poise_dedup_store_close(store);
    free(several.members);
    return code;
}
