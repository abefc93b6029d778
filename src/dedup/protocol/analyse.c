/* Both ends of a connection in one process, to find out what would be sent. */
#include <poise/core.h>
#include <poise/dedup.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { PORTION = 1 << 18 };
static const uint64_t memory_default = UINT64_C(1) << 30;

struct end {
    struct poise_dedup_store *store;
    struct poise_dedup_peer *peer;
    uint64_t received; /* bytes delivered */
};

static int deliver(uint32_t stream, const struct poise_dedup_piece *piece,
                   void *arg)
{
    struct end *end = arg;
    struct poise_dedup_joiner joiner = {end->received};
    int code = poise_dedup_join(&joiner, piece, NULL);

    (void)stream;
    end->received = joiner.at;
    return code;
}

static int ended(uint32_t stream, void *arg)
{
    struct end *end = arg;

    (void)stream;
    end->received = 0;
    return 0;
}

static int begin(struct end *end, const struct poise_dedup_trial *trial,
                 bool keeps_store)
{
    struct poise_dedup_store_options options = {
        .memory_bytes =
            trial->memory_bytes ? trial->memory_bytes : memory_default,
        .bits = trial->bits,
    };
    struct poise_dedup_peer_options peer = {.method = trial->method,
                                            .cut = trial->cut,
                                            .deliver = deliver,
                                            .ended = ended,
                                            .arg = end};
    int code = 0;

    poise_dedup_peer_destroy(end->peer);
    end->peer = NULL;
    end->received = 0;
    if (!keeps_store || !end->store) {
        poise_dedup_store_close(end->store);
        end->store = NULL;
        code = poise_dedup_store_open(NULL, &options, &end->store);
    }
    peer.store = end->store;
    return code < 0 ? code : poise_dedup_peer_create(&peer, &end->peer);
}

static int carry(struct end *from, struct end *to)
{
    const void *data;
    size_t len = poise_dedup_peer_output(from->peer, &data);
    int code = len ? poise_dedup_peer_feed(to->peer, data, len) : 0;

    poise_dedup_peer_took(from->peer, len);
    return code;
}

/* Until neither end has anything to send. */
static int carry_all(struct end *from, struct end *to)
{
    const void *data;
    int code;

    do {
        code = carry(from, to);
        if (code == 0) {
            code = carry(to, from);
        }
    } while (code == 0 && (poise_dedup_peer_output(from->peer, &data) > 0 ||
                           poise_dedup_peer_output(to->peer, &data) > 0));
    return code;
}

static uint64_t on_the_wire(const struct end *from, const struct end *to)
{
    return poise_dedup_peer_stats(from->peer).wire_out +
           poise_dedup_peer_stats(to->peer).wire_out;
}

static int send_file(const struct poise_dedup_trial *trial, struct end *from,
                     struct end *to, const char *path, unsigned char *buffer,
                     uint64_t *bytes)
{
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    ssize_t received = 1;
    int code = 0;

    if (fd < 0) {
        return fd;
    }
    *bytes = 0;
    while (code == 0 && received > 0) {
        received = poise_file_read(fd, buffer, PORTION, path);
        code = received < 0 ? (int)received : 0;
        if (received > 0) {
            *bytes += (uint64_t)received;
            code =
                poise_dedup_peer_send(from->peer, 0, buffer, (size_t)received);
        }
        if (code == 0) {
            code = carry(from, to);
        }
        if (code == 0) {
            code = carry(to, from);
        }
        if (received > 0 && trial->passed) {
            trial->passed((uint64_t)received, trial->arg);
        }
    }
    close(fd);
    if (code == 0) {
        code = poise_dedup_peer_end(from->peer, 0);
    }
    if (code == 0) {
        code = poise_dedup_peer_flush(from->peer);
    }
    return code < 0 ? code : carry_all(from, to);
}

int poise_dedup_try(const struct poise_dedup_trial *trial,
                    const char *const *paths, size_t count,
                    struct poise_dedup_outcome *out)
{
    struct end from = {0}, to = {0};
    struct poise_dedup_outcome sum = {0};
    unsigned char *buffer = poise_alloc(PORTION, 1);
    int code = buffer ? 0 : -ENOMEM;

    for (size_t i = 0; i < count && code == 0; i++) {
        uint64_t before = 0;
        if (i == 0 || trial->forgets) {
            code = begin(&from, trial, false);
            code = code < 0 ? code : begin(&to, trial, true);
            code = code < 0 ? code : carry_all(&from, &to);
        }
        if (code < 0) {
            break;
        }
        /* A connection's first words are counted, too. */
        before = i == 0 || trial->forgets ? 0 : on_the_wire(&from, &to);
        code = send_file(trial, &from, &to, paths[i], buffer, &sum.last_bytes);
        sum.last_sent_bytes = on_the_wire(&from, &to) - before;
        sum.bytes += sum.last_bytes;
        sum.sent_bytes += sum.last_sent_bytes;
    }
    if (code == 0 && count > 0) {
        sum.stats = poise_dedup_peer_stats(from.peer);
        sum.choice = poise_dedup_peer_choice(from.peer);
        sum.segments = poise_dedup_store_info(to.store).segments;
        *out = sum;
    }
    poise_dedup_peer_destroy(from.peer);
    poise_dedup_peer_destroy(to.peer);
    poise_dedup_store_close(from.store);
    poise_dedup_store_close(to.store);
    free(buffer);
    return code;
}
