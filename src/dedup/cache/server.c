/*
 * The process that serves a cache: it owns the list of containers and the index
 * over them, assigns containers to writers, and removes what is too much. It
 * answers one message after the other, and keeps nothing for a client but its
 * leases and which containers it writes.
 *
 * `changes` counts changes of the list, and `changed` is a ring of the last
 * containers that changed: a client that is further behind than the ring is
 * long gets the whole list. The count is in the index's first page, too, stored
 * after the list was changed, so that a client learns from one load, without a
 * question, that it has to ask.
 *
 * Nothing here has to outlive the server: the files say all of it. The next
 * server reads the containers that the snapshot does not know. Those that are
 * being written stay with their writers: an empty one is kept while its writer
 * holds the lock on it, and a report of one that is not in the list puts it
 * there.
 */
#include "sharing.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

struct poise_dedup_server {
    struct poise_dedup_store *store;
    struct poise_dedup_server_stats stats;
    uint64_t changes, changed[CACHE_CHANGES_MOST];
    uint64_t numbers; /* of clients */
    uint64_t next_id;
    struct cache_client clients[CACHE_CLIENTS_MOST];
    size_t count;
    int listener, stop;
    pthread_t thread;
    bool runs, ends;
    pthread_mutex_t mutex; /* of all above, while the thread runs */
    unsigned char message[CACHE_MESSAGE_MOST];
};

/* ---- the list ----------------------------------------------------------- */

static void note_change(struct poise_dedup_server *server, uint64_t id)
{
    server->changes++;
    server->changed[server->changes % CACHE_CHANGES_MOST] = id;
    __atomic_store_n(&server->store->index.shared->changes, server->changes,
                     __ATOMIC_RELEASE);
}

static void put_container(struct poise_buf *out, uint64_t id,
                          const struct dedup_container *container)
{
    poise_buf_u64(out, id);
    poise_buf_u64(out, container ? container->bytes : 0);
    poise_buf_u64(out, container ? container->count : 0);
    poise_buf_u64(out, container ? 1 : 0);
}

/* Those that no client uses go first; one that is being written never goes. */
static struct dedup_container *
find_victim(const struct poise_dedup_store *store)
{
    struct dedup_container *victim = NULL;

    for (size_t i = 0; i < store->count; i++) {
        struct dedup_container *container = store->containers[i];
        if (container->writer != 0) {
            continue;
        }
        if (!victim || (container->leases > 0) < (victim->leases > 0) ||
            ((container->leases > 0) == (victim->leases > 0) &&
             container->used < victim->used)) {
            victim = container;
        }
    }
    return victim;
}

static void evict(struct poise_dedup_server *server)
{
    struct poise_dedup_store *store = server->store;

    while (store->count > 1 && store->info.bytes > store->options.limit_bytes) {
        struct dedup_container *victim = find_victim(store);
        uint64_t id;
        if (!victim) {
            return;
        }
        id = victim->id;
        dedup_store_remove(store, victim);
        store->info.evicted++;
        note_change(server, id);
    }
}

/* Its writer may not have reported all of it: read it again. */
static int read_again(struct poise_dedup_server *server,
                      struct dedup_container *container)
{
    struct poise_dedup_store *store = server->store;
    uint64_t id = container->id, before = container->bytes;
    bool damaged = false;
    struct dedup_body *body = dedup_body_create();
    int code = body ? dedup_body_load(body, store->dirfd, store->info.id, id,
                                      &store->file, &damaged)
                    : -ENOMEM;

    if (code < 0) {
        dedup_body_destroy(body);
        poise_error_clear();
        if (code != -ENOMEM) {
            dedup_store_remove(store, container);
            note_change(server, id);
        }
        return 0;
    }
    if (body->count >= container->count) {
        container->count = body->count;
        container->bytes = body->file_bytes;
        store->info.bytes += body->file_bytes - before;
        dedup_store_learn(store, container, body);
    }
    dedup_body_destroy(body);
    if (container->count == 0) {
        dedup_store_remove(store, container);
    }
    note_change(server, id);
    return code;
}

/* ---- answers ------------------------------------------------------------ */

static int answer_hello(struct poise_dedup_server *server,
                        struct cache_client *client,
                        struct poise_reader *message, struct poise_buf *answer,
                        int *pass)
{
    const struct poise_dedup_store_info *info = &server->store->info;

    if (cache_u32(message) != CACHE_VERSION) {
        return -EPROTO;
    }
    client->met = true;
    poise_buf_u64(answer, info->id);
    poise_buf_append(answer, info->key.bytes, sizeof info->key.bytes);
    poise_buf_u64(answer, info->bits);
    *pass = server->store->index.fd;
    return 0;
}

/* What changed since, or everything from a container on. */
static int answer_list(struct poise_dedup_server *server,
                       struct poise_reader *message, struct poise_buf *answer)
{
    struct poise_dedup_store *store = server->store;
    uint64_t since = poise_reader_u64(message),
             from = poise_reader_u64(message);
    bool full = since == 0 || since > server->changes ||
                server->changes - since >= CACHE_CHANGES_MOST;
    size_t i = 0, count, n;

    poise_buf_u64(answer, server->changes);
    if (!full) {
        n = (size_t)(server->changes - since);
        poise_buf_u64(answer, 0);
        poise_buf_u64(answer, store->index.sampling);
        poise_buf_u64(answer, (uint32_t)n);
        for (uint64_t at = since + 1; at <= server->changes; at++) {
            uint64_t id = server->changed[at % CACHE_CHANGES_MOST];
            put_container(answer, id, dedup_store_container(store, id));
        }
        return 0;
    }
    while (i < store->count && store->containers[i]->id < from) {
        i++;
    }
    count = store->count - i;
    n = count < CACHE_LIST_MOST ? count : CACHE_LIST_MOST;
    poise_buf_u64(answer, CACHE_FULL | (n < count ? CACHE_MORE : 0u));
    poise_buf_u64(answer, store->index.sampling);
    poise_buf_u64(answer, (uint32_t)n);
    for (; n > 0; n--, i++) {
        put_container(answer, store->containers[i]->id, store->containers[i]);
    }
    return 0;
}

/* A container to write into: the last one, if it is small and no client writes
 * into it. */
static int answer_new(struct poise_dedup_server *server,
                      struct cache_client *client, struct poise_reader *message,
                      struct poise_buf *answer)
{
    struct poise_dedup_store *store = server->store;
    uint32_t flags = cache_u32(message);
    struct dedup_container *given =
        store->count ? store->containers[store->count - 1] : NULL;

    if ((flags & CACHE_FRESH) || !given || given->writer != 0 ||
        given->bytes > store->options.container_bytes / 2 ||
        given->count > DEDUP_SLOTS_MOST / 2) {
        if (server->next_id >> CACHE_ID_BITS != 0) {
            return poise_error_set(ENOSPC, "write into the cache", store->path,
                                   NULL);
        }
        given = dedup_store_insert(store, server->next_id++);
        if (!given) {
            return -ENOMEM;
        }
        if (given->id % DEDUP_SAVE_EVERY == 0 &&
            dedup_snapshot_save(store) < 0) {
            poise_error_clear(); /* it is made again */
        }
    }
    given->writer = client->number;
    given->used = ++store->clock;
    poise_buf_u64(answer, given->id);
    poise_buf_u64(answer, given->count);
    note_change(server, given->id);
    return 0;
}

/* A client wrote: what there is now, and its new segments. */
static int answer_learn(struct poise_dedup_server *server,
                        struct cache_client *client,
                        struct poise_reader *message)
{
    struct poise_dedup_store *store = server->store;
    uint64_t id = poise_reader_u64(message), bytes = poise_reader_u64(message);
    uint32_t first = cache_u32(message);
    uint32_t count = cache_u32(message);
    struct dedup_container *container = dedup_store_container(store, id);

    if (message->error || count > CACHE_LEARN_MOST ||
        first > DEDUP_SLOTS_MOST - count || id >> CACHE_ID_BITS != 0 ||
        bytes > 2 * (uint64_t)DEDUP_DATA_MOST) {
        return -EBADMSG;
    }
    if (!container) {
        /* Assigned by a server before this one. */
        container = dedup_store_insert(store, id);
        if (!container) {
            return -ENOMEM;
        }
        server->next_id = id < server->next_id ? server->next_id : id + 1;
    }
    if (container->writer == 0) {
        container->writer = client->number;
    }
    if (container->writer != client->number) {
        return -EBADMSG;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t fingerprint = poise_reader_u64(message);
        uint64_t rank = cache_u32(message);
        if (message->error || rank >> DEDUP_RANK_BITS != 0) {
            return -EBADMSG;
        }
        dedup_store_put(store, fingerprint,
                        rank << DEDUP_RANK_SHIFT | id << DEDUP_SLOT_BITS |
                            (first + i));
    }
    container->count =
        first + count > container->count ? first + count : container->count;
    store->info.bytes += bytes - container->bytes;
    container->bytes = bytes;
    container->used = ++store->clock;
    server->stats.segments += count;
    note_change(server, id);
    evict(server);
    return 0;
}

static void drop_lease(struct poise_dedup_server *server,
                       struct cache_client *client, size_t i)
{
    uint64_t *held = (uint64_t *)(void *)client->held.data;
    size_t last = client->held.len / sizeof *held - 1;
    struct dedup_container *container =
        dedup_store_container(server->store, held[i]);

    if (container && container->leases > 0) {
        container->leases--;
    }
    memmove(&held[i], &held[i + 1], (last - i) * sizeof *held);
    client->held.len -= sizeof *held;
}

/* Containers that a client uses, and those that it uses no more. */
static int answer_lease(struct poise_dedup_server *server,
                        struct cache_client *client,
                        struct poise_reader *message)
{
    uint32_t takes = cache_u32(message);
    uint32_t gives = cache_u32(message);

    for (uint32_t i = 0; i < takes && !message->error; i++) {
        uint64_t id = poise_reader_u64(message);
        struct dedup_container *container =
            dedup_store_container(server->store, id);
        if (!container) {
            continue;
        }
        if (client->held.len / sizeof id == CACHE_LEASES_MOST) {
            drop_lease(server, client, 0);
        }
        if (poise_buf_append(&client->held, &id, sizeof id) < 0) {
            return -ENOMEM;
        }
        container->leases++;
        container->used = ++server->store->clock;
    }
    for (uint32_t i = 0; i < gives && !message->error; i++) {
        uint64_t id = poise_reader_u64(message);
        const uint64_t *held = (const uint64_t *)(void *)client->held.data;
        size_t at = 0;
        while (at < client->held.len / sizeof id && held[at] != id) {
            at++;
        }
        if (at < client->held.len / sizeof id) {
            drop_lease(server, client, at);
        }
    }
    return message->error;
}

/* One that is not in the list was written without this server. */
static int answer_close(struct poise_dedup_server *server,
                        const struct cache_client *client,
                        struct poise_reader *message)
{
    uint64_t id = poise_reader_u64(message);
    struct dedup_container *container =
        dedup_store_container(server->store, id);

    if (message->error || id >> CACHE_ID_BITS != 0) {
        return -EBADMSG;
    }
    if (container && container->writer == client->number) {
        container->writer = 0;
    }
    if (!container) {
        container = dedup_store_insert(server->store, id);
        server->next_id = id < server->next_id ? server->next_id : id + 1;
        return container ? read_again(server, container) : -ENOMEM;
    }
    return 0;
}

int cache_server_answer(struct poise_dedup_server *server,
                        struct cache_client *client, const void *data,
                        size_t len, struct poise_buf *answer, int *pass)
{
    struct poise_reader message = poise_reader_of(data, len);
    uint32_t op = cache_u32(&message);
    int code = -EBADMSG;

    *pass = -1;
    server->stats.requests++;
    poise_buf_u64(answer, op);
    if (!message.error && (op == CACHE_HELLO) != client->met) {
        switch (op) {
        case CACHE_HELLO:
            code = answer_hello(server, client, &message, answer, pass);
            break;
        case CACHE_LIST:
            code = answer_list(server, &message, answer);
            break;
        case CACHE_NEW:
            code = answer_new(server, client, &message, answer);
            break;
        case CACHE_LEARN:
            code = answer_learn(server, client, &message);
            break;
        case CACHE_LEASE:
            code = answer_lease(server, client, &message);
            break;
        case CACHE_CLOSE:
            code = answer_close(server, client, &message);
            break;
        default:
            break;
        }
    }
    if (code == 0 && (message.error || poise_reader_left(&message) > 0)) {
        code = -EBADMSG;
    }
    return code < 0 ? code : answer->error;
}

int cache_server_disconnect(struct poise_dedup_server *server,
                            struct cache_client *client)
{
    struct poise_dedup_store *store = server->store;
    int code = 0;

    while (client->held.len > 0) {
        drop_lease(server, client, client->held.len / sizeof(uint64_t) - 1);
    }
    poise_buf_free(&client->held);
    for (size_t i = store->count; i-- > 0 && code == 0;) {
        struct dedup_container *container = store->containers[i];
        if (container->writer != client->number) {
            continue;
        }
        container->writer = 0;
        if (!server->ends) {
            code = read_again(server, container);
        }
    }
    return code;
}

/* ---- the thread --------------------------------------------------------- */

static void disconnect(struct poise_dedup_server *server, size_t i)
{
    if (cache_server_disconnect(server, &server->clients[i]) < 0) {
        poise_error_clear(); /* what it did not report is not found */
    }
    close(server->clients[i].fd);
    server->clients[i] = server->clients[--server->count];
}

static void accept_client(struct poise_dedup_server *server)
{
    int fd =
        accept4(server->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0) {
        return;
    }
    if (server->count == CACHE_CLIENTS_MOST || !cache_is_same_user(fd)) {
        server->stats.refused++;
        close(fd);
        return;
    }
    server->clients[server->count++] =
        (struct cache_client){.fd = fd, .number = ++server->numbers};
    server->stats.served++;
}

static void receive(struct poise_dedup_server *server, size_t i)
{
    struct cache_client *client = &server->clients[i];
    struct poise_buf answer = {0};
    int passed, pass = -1;
    ssize_t bytes_read = cache_receive(client->fd, server->message,
                                       sizeof server->message, 0, &passed);

    if (passed >= 0) {
        close(passed);
    }
    if (bytes_read == -EAGAIN) {
        return;
    }
    if (bytes_read > 0) {
        bytes_read = cache_server_answer(server, client, server->message,
                                         (size_t)bytes_read, &answer, &pass);
        if (bytes_read == 0) {
            /* A client that does not read its answers is not waited for. */
            bytes_read = cache_send(client->fd, answer.data, answer.len, pass);
        }
    } else {
        bytes_read = -ECONNRESET;
    }
    poise_buf_free(&answer);
    if (bytes_read < 0) {
        poise_error_clear();
        disconnect(server, i);
    }
}

static void *serve(void *arg)
{
    struct poise_dedup_server *server = arg;
    struct pollfd fds[CACHE_CLIENTS_MOST + 2];

    for (;;) {
        size_t count = server->count;
        fds[0] = (struct pollfd){.fd = server->stop, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = server->listener, .events = POLLIN};
        for (size_t i = 0; i < count; i++) {
            fds[2 + i] =
                (struct pollfd){.fd = server->clients[i].fd, .events = POLLIN};
        }
        if (poll(fds, count + 2, -1) < 0 && errno != EINTR) {
            return NULL;
        }
        if (fds[0].revents) {
            return NULL;
        }
        pthread_mutex_lock(&server->mutex);
        /* From the last: one that is gone is replaced by one that had its turn.
         */
        for (size_t i = count; i-- > 0;) {
            if (fds[2 + i].revents) {
                receive(server, i);
            }
        }
        if (fds[1].revents) {
            accept_client(server);
        }
        pthread_mutex_unlock(&server->mutex);
    }
}

/* Signals are for the process's other threads. */
static int start(struct poise_dedup_server *server)
{
    sigset_t all, before;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    code = pthread_create(&server->thread, NULL, serve, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    server->runs = code == 0;
    return code ? poise_error_set(code, "serve the cache", server->store->path,
                                  NULL)
                : 0;
}

/* ---- opening and closing ------------------------------------------------ */

static void forget_bodies(struct poise_dedup_store *store)
{
    for (size_t i = 0; i < store->count; i++) {
        dedup_body_destroy(store->containers[i]->body);
        store->containers[i]->body = NULL;
        store->containers[i]->newer = store->containers[i]->older = NULL;
    }
    store->newest = store->oldest = NULL;
    store->body_bytes = 0;
}

static int enter(struct poise_dedup_server *server, const char *path)
{
    struct poise_dedup_store *store = server->store;
    int code;

    store->serves = true;
    code = dedup_store_enter(store, path);
    if (code == 0) {
        code = dedup_store_lock(store);
    }
    if (code == 0 && cache_listen(store->dirfd, &server->listener) < 0) {
        /* The lock is not for servers only. */
        code = -EOPNOTSUPP;
    }
    if (code == 0) {
        code = dedup_store_read_folder(store);
    }
    if (code < 0) {
        return code;
    }
    forget_bodies(store);
    server->changes = 1;
    store->index.shared->changes = 1;
    server->next_id =
        store->count ? store->containers[store->count - 1]->id + 1 : 1;
    if (server->next_id <= store->clock) {
        server->next_id = store->clock + 1;
    }
    evict(server);
    return 0;
}

bool cache_server_lend(const struct poise_dedup_server *server, int fd,
                       struct dedup_index *out)
{
    struct stat its, ours;

    if (fstat(fd, &its) != 0 || fstat(server->store->index.fd, &ours) != 0 ||
        its.st_dev != ours.st_dev || its.st_ino != ours.st_ino) {
        return false;
    }
    dedup_index_lend(&server->store->index, out);
    return true;
}

int cache_server_make(const char *path,
                      const struct poise_dedup_store_options *options,
                      struct poise_dedup_server **out)
{
    struct poise_dedup_server *made = poise_alloc(1, sizeof *made);
    int code;

    if (!made) {
        return -ENOMEM;
    }
    made->listener = made->stop = -1;
    pthread_mutex_init(&made->mutex, NULL);
    code = dedup_store_make(options, true, &made->store);
    if (code == 0) {
        code = dedup_index_share(&made->store->index, made->store->index_bytes);
    }
    if (code == 0) {
        code = enter(made, path);
    }
    if (code < 0) {
        cache_server_free(made);
        return code;
    }
    *out = made;
    return 0;
}

void cache_server_free(struct poise_dedup_server *server)
{
    while (server->count > 0) {
        disconnect(server, server->count - 1);
    }
    if (server->listener >= 0) {
        unlinkat(server->store->dirfd, "socket", 0);
        close(server->listener);
    }
    if (server->stop >= 0) {
        close(server->stop);
    }
    if (server->store) {
        dedup_store_destroy(server->store);
    }
    pthread_mutex_destroy(&server->mutex);
    free(server);
}

int poise_dedup_server_open(const char *path,
                            const struct poise_dedup_store_options *options,
                            struct poise_dedup_server **out)
{
    struct poise_dedup_server *made;
    int code = cache_server_make(path, options, &made);

    if (code < 0) {
        return code;
    }
    made->stop = eventfd(0, EFD_CLOEXEC);
    code = made->stop < 0
               ? poise_error_set(errno, "serve the cache", path, NULL)
               : start(made);
    if (code < 0) {
        cache_server_free(made);
        return code;
    }
    *out = made;
    return 0;
}

int poise_dedup_server_close(struct poise_dedup_server *server)
{
    uint64_t one = 1;
    int code;

    if (!server) {
        return 0;
    }
    if (server->runs) {
        (void)!write(server->stop, &one, sizeof one);
        pthread_join(server->thread, NULL);
    }
    /* They live, and go on writing. */
    server->ends = true;
    while (server->count > 0) {
        disconnect(server, server->count - 1);
    }
    code = dedup_snapshot_save(server->store);
    cache_server_free(server);
    return code;
}

struct poise_dedup_server_stats
poise_dedup_server_stats(struct poise_dedup_server *server)
{
    struct poise_dedup_server_stats stats;

    pthread_mutex_lock(&server->mutex);
    stats = server->stats;
    stats.clients = (uint32_t)server->count;
    stats.containers = server->store->count;
    stats.bytes = server->store->info.bytes;
    stats.evicted = server->store->info.evicted;
    stats.damaged = server->store->info.damaged;
    pthread_mutex_unlock(&server->mutex);
    return stats;
}
