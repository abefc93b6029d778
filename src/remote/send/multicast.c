/*
 * One sender, several receivers. It lists, reads and sends once, through the
 * leader, a channel without descriptors, and all receivers get the same. That
 * is only right while they want the same: a receiver that wants other files
 * than most, or is much slower, is postponed: its connection ends, and sending
 * to it starts again when the others are done. As all that arrived is there or
 * in its cache, little is sent twice.
 *
 * A part of the list is answered when all active members have answered it;
 * until then answers are kept in `wants`, in order, so that members may be
 * ahead of each other.
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
    TIMEOUT_S = 3,
};
static const uint64_t second = UINT64_C(1000000000);

struct multicast_member {
    struct multicast *multicast;
    struct remote_transfer transfer;
    struct poise_remote_outcome *outcome;
    const char *target; /* as the user wrote it */
    int fd;
    pid_t pid;
    int end; /* why it was left */
    bool is_active, is_done, is_late;
    struct poise_buf wants; /* answers: u64 length and bytes each */
    uint64_t silent_ns;     /* since when others wait for its answer, or 0 */
    uint64_t slow_ns;       /* since when they wait for it to read, or 0 */
};

struct multicast {
    struct remote_transfer leader;
    struct multicast_member *members;
    size_t count;
};

/* ---- coming and going --------------------------------------------------- */

static void leave(struct multicast_member *member, int code)
{
    struct poise_remote_outcome *outcome = member->outcome;
    struct poise_remote_stats *stats = &outcome->stats;
    const struct poise_remote_stats *own = &member->transfer.stats;
    struct poise_buf why = {0};

    if (!member->is_active) {
        return;
    }
    member->is_active = false;
    outcome->code = code;
    if (code < 0) {
        poise_error_format(poise_error_last(), &why);
        snprintf(outcome->why, sizeof outcome->why, "%s", poise_buf_str(&why));
        poise_buf_free(&why);
    }
    *stats = member->multicast->leader.stats;
    stats->problems += own->problems;
    memcpy(stats->actions, own->actions, sizeof stats->actions);
    if (member->transfer.channel.peer) {
        struct poise_dedup_peer_stats peer =
            poise_dedup_peer_stats(member->transfer.channel.peer);
        stats->peer =
            poise_dedup_peer_stats(member->multicast->leader.channel.peer);
        stats->peer.wire_in = peer.wire_in;
        stats->peer.wire_out = peer.wire_out;
        stats->peer.requests = peer.requests;
        stats->peer.repairs = peer.repairs;
        stats->wire_bytes = peer.wire_in + peer.wire_out;
    }
    remote_channel_close(&member->transfer.channel);
    poise_buf_free(&member->wants);
    if (member->fd >= 0) {
        close(member->fd);
    }
    /* Do not wait here until the process that was started has ended. */
    member->end = member->is_late ? -ETIMEDOUT : code;
    if (member->pid > 0 && member->is_late) {
        kill(member->pid, SIGTERM);
    }
}

/* For later: it is no failure. */
static void postpone(struct multicast_member *member)
{
    member->is_late = true;
    member->outcome->postponed++;
    leave(member, 0);
}

static size_t count_active(const struct multicast *multicast)
{
    size_t count = 0;

    for (size_t i = 0; i < multicast->count; i++) {
        count += multicast->members[i].is_active;
    }
    return count;
}

/* ---- what they say ------------------------------------------------------ */

static int handle_message(enum remote_message kind, struct poise_reader *body,
                          void *arg)
{
    struct multicast_member *member = arg;
    int code = remote_handle_common(&member->transfer, kind, body);

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
        sender_read_done(&member->transfer.stats, body);
        member->is_done = true;
        return 0;
    case REMOTE_ALIVE:
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

static bool has_answered(const struct multicast_member *member)
{
    return member->wants.len > 0;
}

static struct poise_reader answer_of(const struct multicast_member *member)
{
    return poise_reader_of(member->wants.data + sizeof(uint64_t),
                           (size_t)poise_get_u64(member->wants.data));
}

static bool want_the_same(const struct multicast_member *a,
                          const struct multicast_member *b)
{
    struct poise_reader one = answer_of(a), two = answer_of(b);
    size_t len = poise_reader_left(&one);

    return len == poise_reader_left(&two) && memcmp(one.pos, two.pos, len) == 0;
}

/* Whose answer most of them gave; all have. */
static const struct multicast_member *
find_most(const struct multicast *multicast)
{
    const struct multicast_member *most = NULL;
    size_t most_alike = 0;

    for (size_t i = 0; i < multicast->count; i++) {
        const struct multicast_member *member = &multicast->members[i];
        size_t alike = 0;
        for (size_t j = 0; j < multicast->count && member->is_active; j++) {
            alike += multicast->members[j].is_active &&
                     want_the_same(member, &multicast->members[j]);
        }
        if (alike > most_alike) {
            most = member;
            most_alike = alike;
        }
    }
    return most;
}

/* Others wait for this one, or not: it is put off if that takes long. */
static void wait_for(struct multicast_member *member, uint64_t *since_ns,
                     bool waits)
{
    uint64_t now = poise_clock_ns();

    if (!waits) {
        *since_ns = 0;
    } else if (*since_ns == 0) {
        *since_ns = now;
    } else if (now - *since_ns > TIMEOUT_S * second) {
        postpone(member);
    }
}

/* Whether every receiver has said what it wants of the oldest part. `waits`:
 * there is nothing else to do. */
static bool have_all_answered(struct multicast *multicast, bool waits)
{
    size_t answered = 0, all = 0;

    for (size_t i = 0; i < multicast->count; i++) {
        const struct multicast_member *member = &multicast->members[i];
        all += member->is_active;
        answered += member->is_active && has_answered(member);
    }
    for (size_t i = 0; i < multicast->count; i++) {
        struct multicast_member *member = &multicast->members[i];
        if (member->is_active && answered < all) {
            wait_for(member, &member->silent_ns,
                     waits && answered > 0 && !has_answered(member));
        }
    }
    return all > 0 && answered == all;
}

/* Take answers that all have given. */
static int handle_wants(struct multicast *multicast, struct sender *sender,
                        bool waits)
{
    int code = 0;

    while (code == 0 && have_all_answered(multicast, waits)) {
        const struct multicast_member *most = find_most(multicast);
        struct poise_reader body = answer_of(most);
        size_t used = sizeof(uint64_t) + poise_reader_left(&body);

        for (size_t i = 0; i < multicast->count; i++) {
            struct multicast_member *member = &multicast->members[i];
            if (member->is_active && !want_the_same(member, most)) {
                postpone(member);
            }
        }
        code = sender_handle_want(sender, &body);
        if (code == 0 && body.error) {
            code = remote_bad("a message is cut short");
        }
        for (size_t i = 0; i < multicast->count; i++) {
            struct multicast_member *member = &multicast->members[i];
            if (member->is_active) {
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

bool multicast_has_room(struct multicast *multicast)
{
    size_t room = 0;
    bool must_wait = false;

    if (!multicast->leader.channel.met) {
        return false;
    }
    for (size_t i = 0; i < multicast->count; i++) {
        const struct multicast_member *member = &multicast->members[i];
        room += member->is_active &&
                remote_channel_has_room(&member->transfer.channel);
    }
    for (size_t i = 0; i < multicast->count; i++) {
        struct multicast_member *member = &multicast->members[i];
        const struct remote_channel *channel = &member->transfer.channel;
        const void *data;
        bool is_behind =
            member->is_active &&
            poise_dedup_peer_in_flight(channel->peer) +
                    poise_dedup_peer_output(channel->peer, &data) >=
                BEHIND_MOST;
        must_wait = must_wait || is_behind;
        if (member->is_active) {
            wait_for(member, &member->slow_ns, is_behind && room > 0);
        }
    }
    return room > 0 && !must_wait;
}

static void prepare(struct multicast *multicast, struct pollfd *fds)
{
    for (size_t i = 0; i < multicast->count; i++) {
        struct multicast_member *member = &multicast->members[i];
        fds[2 * i] = fds[2 * i + 1] = (struct pollfd){.fd = -1};
        if (member->is_active) {
            int code =
                remote_channel_prepare(&member->transfer.channel, &fds[2 * i]);
            if (code < 0) {
                fds[2 * i].fd = fds[2 * i + 1].fd = -1;
            }
            if (code < 0 && !member->is_done) {
                leave(member, code);
            }
        }
    }
}

static void handle(struct multicast *multicast, const struct pollfd *fds,
                   bool wait)
{
    for (size_t i = 0; i < multicast->count; i++) {
        struct multicast_member *member = &multicast->members[i];
        int code = 0;
        if (!member->is_active) {
            continue;
        }
        code =
            remote_channel_handle(&member->transfer.channel, &fds[2 * i], wait);
        /* One that has said all there is to say may hang up. */
        if (code < 0 && !member->is_done) {
            leave(member, code);
        }
    }
}

/* Dismiss the receivers whose answers were taken and which are done. */
static void dismiss(struct multicast *multicast, const struct sender *sender)
{
    for (size_t i = 0; i < multicast->count; i++) {
        struct multicast_member *member = &multicast->members[i];
        if (member->is_active && member->is_done && !has_answered(member)) {
            leave(member, sender_check_done(sender));
        }
    }
}

int multicast_turn(struct multicast *multicast, struct sender *sender,
                   bool wait)
{
    struct pollfd fds[2 * TARGETS_MOST];
    int code = remote_channel_hand_over(&multicast->leader.channel);

    if (code == 0) {
        prepare(multicast, fds);
        code = remote_channel_wait(&multicast->leader.channel, fds,
                                   2 * multicast->count, wait);
    }
    if (code == 0) {
        handle(multicast, fds, wait);
        code = handle_wants(multicast, sender, wait);
        dismiss(multicast, sender);
    }
    sender->done = count_active(multicast) == 0;
    return code;
}

int multicast_write(struct multicast *multicast)
{
    struct pollfd fds[2 * TARGETS_MOST];
    int code = remote_channel_flush(&multicast->leader.channel);

    if (code == 0) {
        prepare(multicast, fds);
    }
    for (size_t i = 0; i < multicast->count; i++) {
        multicast->members[i].transfer.channel.heard_ns = poise_clock_ns();
    }
    return code;
}

static void tick(void *arg)
{
    struct multicast *multicast = arg;
    const struct poise_remote_options *options = &multicast->leader.options;
    struct poise_remote_stats stats = multicast->leader.stats;

    for (size_t i = 0; i < multicast->count; i++) {
        const struct multicast_member *member = &multicast->members[i];
        if (member->is_active && member->transfer.channel.peer) {
            struct poise_dedup_peer_stats peer =
                poise_dedup_peer_stats(member->transfer.channel.peer);
            stats.wire_bytes += peer.wire_in + peer.wire_out;
        }
    }
    if (options->progress) {
        options->progress(&stats, options->arg);
    }
}

/* ---- a pass ------------------------------------------------------------- */

/* Reach one of them. */
static int begin(struct multicast_member *member)
{
    struct remote_transfer *transfer = &member->transfer;
    struct multicast *multicast = member->multicast;
    size_t len = remote_host(member->target);
    int code;

    transfer->is_sender = true;
    transfer->options = multicast->leader.options;
    transfer->options.target = member->target + (len ? len + 1 : 0);
    if (len == 0 && !transfer->options.remote_cache) {
        transfer->options.remote_cache = "";
    }
    transfer->prefix = member->target;
    transfer->prefix_len = len ? len + 1 : 0;
    code = remote_start(&transfer->options, member->target, len, true,
                        &member->fd, &member->pid);
    if (code == 0) {
        code =
            remote_await_welcome(&transfer->options, member->fd, member->pid);
    }
    if (code < 0) {
        member->fd = -1;
        member->pid = 0;
        return code;
    }
    transfer->channel = (struct remote_channel){
        .in = member->fd,
        .out = member->fd,
        .store = multicast->leader.channel.store,
        .leader = &multicast->leader.channel,
        .met = true, /* the leader's channel knows better */
        .silence_ns = transfer->options.silence_ns,
        .pad_bytes = transfer->options.pad_bytes,
        .stop = transfer->options.stop,
        .on_message = handle_message,
        .on_data = no_data,
        .arg = member,
    };
    /* What comes through the leader is compressed already. */
    return remote_channel_open(&transfer->channel, 1, NULL);
}

/* All that are to be sent to now. */
static int pass(struct multicast *multicast)
{
    struct remote_channel *channel = &multicast->leader.channel;
    int err;

    multicast->leader.is_sender = true;
    channel->is_leader = true;
    channel->in = channel->out = -1;
    channel->pad_bytes = multicast->leader.options.pad_bytes;
    channel->stop = multicast->leader.options.stop;
    channel->tick = tick;
    channel->tick_arg = multicast;
    err = remote_channel_open(channel, multicast->leader.options.level,
                              multicast->leader.options.segmenter);
    for (size_t i = 0; i < multicast->count && err == 0; i++) {
        struct multicast_member *member = &multicast->members[i];
        int code;
        member->is_active = true;
        code = begin(member);
        if (code < 0) {
            leave(member, code);
        }
        if (multicast->leader.options.stop && *multicast->leader.options.stop) {
            err = poise_error_set(EINTR, "go on", NULL, "it was interrupted");
        }
    }
    if (err == 0 && count_active(multicast) > 0) {
        err = remote_sender_run(&multicast->leader);
    }
    for (size_t i = 0; i < multicast->count; i++) {
        leave(&multicast->members[i], err);
    }
    remote_channel_close(channel);
    for (size_t i = 0; i < multicast->count; i++) {
        if (multicast->members[i].pid > 0) {
            remote_finish(multicast->members[i].pid, multicast->members[i].end);
        }
    }
    return err;
}

static int check(const struct poise_remote_options *options,
                 const char *const *targets, size_t count)
{
    if (count == 0 || count > TARGETS_MOST) {
        return poise_error_set(EINVAL, "send", NULL, "to 1 to %d targets",
                               TARGETS_MOST);
    }
    for (size_t i = 0; i < count; i++) {
        int code = remote_check_host(targets[i], remote_host(targets[i]));
        if (code < 0) {
            return code;
        }
    }
    for (size_t i = 0; i < options->source_count; i++) {
        if (remote_host(options->sources[i]) > 0) {
            return poise_error_set(EINVAL, "send", options->sources[i],
                                   "to several targets only from here");
        }
    }
    return 0;
}

/* Choose the targets to send to: all at first, then those that were
 * postponed. */
static size_t choose(struct multicast *multicast, const char *const *targets,
                     size_t count, struct poise_remote_outcome *outcomes,
                     bool is_first)
{
    bool late[TARGETS_MOST] = {false};
    size_t chosen = 0;

    for (size_t i = 0; i < multicast->count; i++) {
        late[multicast->members[i].outcome - outcomes] =
            multicast->members[i].is_late;
    }
    for (size_t i = 0; i < count; i++) {
        if (is_first || late[i]) {
            multicast->members[chosen++] =
                (struct multicast_member){.multicast = multicast,
                                          .outcome = &outcomes[i],
                                          .target = targets[i],
                                          .fd = -1};
        }
    }
    multicast->count = chosen;
    return chosen;
}

int poise_remote_send_multicast(const struct poise_remote_options *options,
                                const char *const *targets, size_t count,
                                struct poise_remote_outcome *outcomes)
{
    struct multicast multicast = {.leader = {.options = *options}};
    struct poise_dedup_store *store;
    const char **unique = NULL;
    int code = check(options, targets, count);

    if (code < 0) {
        return code;
    }
    memset(outcomes, 0, count * sizeof *outcomes);
    multicast.members = poise_alloc(count, sizeof *multicast.members);
    if (!multicast.members) {
        return -ENOMEM;
    }
    code = remote_drop_repeated(&multicast.leader.options, &unique);
    code = code < 0 ? code : remote_set_part(&multicast.leader, targets, count);
    if (code == 0) {
        code = remote_open_store(&multicast.leader);
    }
    store = multicast.leader.channel.store;
    for (bool is_first = true; code == 0 && choose(&multicast, targets, count,
                                                   outcomes, is_first) > 0;
         is_first = false) {
        multicast.leader.channel = (struct remote_channel){.store = store};
        multicast.leader.stats = (struct poise_remote_stats){0};
        multicast.leader.multicast = &multicast;
        code = pass(&multicast);
    }
    for (size_t i = 0; i < count && code == 0; i++) {
        code = outcomes[i].code;
    }
    poise_dedup_store_close(store);
    free(unique);
    free(multicast.members);
    return code;
}
