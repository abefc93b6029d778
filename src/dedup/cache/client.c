/*
 * A process that shares a cache: its copy of the server's list of containers,
 * the server's index as it is, and one container to write into. If the server
 * is gone, all goes on with what is there; when something is to be written, one
 * of the clients becomes the server.
 *
 * A server that does not answer in time is done without (go_alone): how long
 * that is makes no difference but to how long it takes.
 *
 * Which one is decided by the lock in the folder: each client without a server
 * tries to connect, then to take the lock and serve, again and again, for the
 * time that it may wait. A process that holds the lock and serves, or is about
 * to, has a byte in the lock file (is_server_starting), so that a client can
 * distinguish it from one that has the cache for itself alone.
 */
#include "sharing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const uint64_t ms = UINT64_C(1000000);
enum {
    /* Of how long it is waited when a cache is opened: */
    AGAIN_SHARE = 20, /* while a transfer waits */
    ANSWER_SHARE = 2,
    RETRY_MS = 1000, /* doubles up to: */
    RETRY_MOST_MS = 64000,
    ALONE_STEP = 4096, /* between the numbers of a server and those of who is
                          alone */
    ALONE_TRIES = 256,
    NAP_MS = 10,
    ALONE_NAPS = 20, /* until a lock without a server is believed */
    OPEN_TRIES = 4,
};

static uint64_t wait_ns(const struct poise_dedup_store *store, unsigned share)
{
    return store->options.wait_ms * ms / share;
}

/* ---- questions ---------------------------------------------------------- */

/* Where the other end is gone, not only slow or strange, another one may be
 * found at once. */
static void disconnect(struct dedup_client *client, int code)
{
    if (client->fd >= 0) {
        close(client->fd);
        client->fd = -1;
    }
    client->retry_ns = code == -EPIPE || code == -ECONNRESET
                           ? 0
                           : poise_clock_ns() + RETRY_MS * ms;
}

static int bad(void)
{
    return poise_error_set(EBADMSG, "share a cache", NULL,
                           "an answer makes no sense");
}

/* One question, whose answer, behind its op, is in *answer and lies in `memory`
 * (CACHE_MESSAGE_MOST bytes). After a failure the client has no server any
 * more. */
static int ask(struct dedup_client *client, const struct poise_buf *question,
               uint64_t most_ns, unsigned char *memory,
               struct poise_reader *answer, int *passed)
{
    int fd = -1, code = question->error;
    ssize_t bytes_read;

    if (code == 0) {
        code = cache_send(client->fd, question->data, question->len, -1);
    }
    if (code == 0) {
        bytes_read =
            cache_receive(client->fd, memory, CACHE_MESSAGE_MOST, most_ns, &fd);
        code = bytes_read < 0    ? (int)bytes_read
               : bytes_read == 0 ? poise_error_set(ECONNRESET, "share a cache",
                                                   NULL, "the server is gone")
                                 : 0;
    }
    if (code == 0) {
        *answer = poise_reader_of(memory, (size_t)bytes_read);
        if (poise_reader_u64(answer) != poise_get_u64(question->data)) {
            code = bad();
        }
    }
    if (code == 0 && passed) {
        *passed = fd;
    } else if (fd >= 0) {
        close(fd);
    }
    if (code < 0) {
        disconnect(client, code);
    }
    return code;
}

/* The same where the answer has nothing but its op. */
static int say(struct poise_dedup_store *store,
               const struct poise_buf *question)
{
    unsigned char *memory = poise_alloc(CACHE_MESSAGE_MOST, 1);
    struct poise_reader answer;
    int code = memory ? ask(store->client, question,
                            wait_ns(store, ANSWER_SHARE), memory, &answer, NULL)
                      : -ENOMEM;

    free(memory);
    return code;
}

/* ---- the list ----------------------------------------------------------- */

static int take_container(struct poise_dedup_store *store,
                          struct poise_reader *answer, uint64_t *id)
{
    uint64_t bytes, which = poise_reader_u64(answer);
    uint32_t count, there;
    struct dedup_container *container = dedup_store_container(store, which);

    bytes = poise_reader_u64(answer);
    count = cache_u32(answer);
    there = cache_u32(answer);
    *id = which;
    if (answer->error || which >> CACHE_ID_BITS != 0 ||
        count > DEDUP_SLOTS_MOST) {
        return bad();
    }
    if (container && container == store->open) {
        return 0;
    }
    if (!there) {
        if (container) {
            dedup_store_remove(store, container);
        }
        return 0;
    }
    if (!container) {
        container = dedup_store_insert(store, which);
        if (!container) {
            return -ENOMEM;
        }
    }
    store->info.bytes += bytes - container->bytes;
    container->bytes = bytes;
    container->is_listed = true;
    if (count > container->count || !container->body) {
        container->count = count;
    }
    return 0;
}

/* A part of the list: what follows it begins at *from. */
static int take_list(struct poise_dedup_store *store,
                     struct poise_reader *answer, uint32_t flags,
                     uint64_t *from)
{
    uint32_t count;
    int code = 0;

    store->index.sampling = cache_u32(answer);
    count = cache_u32(answer);
    if (answer->error || store->index.sampling > DEDUP_RANK_BITS ||
        ((flags & CACHE_MORE) && count == 0)) {
        return bad();
    }
    for (uint32_t i = 0; i < count && code == 0; i++) {
        uint64_t id = 0;
        code = take_container(store, answer, &id);
        if (code == 0 && (flags & CACHE_FULL) && id < *from) {
            code = bad();
        }
        *from = id + 1;
    }
    return code;
}

static void mark(struct poise_dedup_store *store)
{
    for (size_t i = 0; i < store->count; i++) {
        store->containers[i]->is_listed = false;
    }
}

static void remove_unlisted(struct poise_dedup_store *store)
{
    for (size_t i = store->count; i-- > 0;) {
        struct dedup_container *container = store->containers[i];
        if (!container->is_listed && container != store->open) {
            dedup_store_remove(store, container);
        }
    }
}

static int read_list(struct poise_dedup_store *store)
{
    struct dedup_client *client = store->client;
    unsigned char *memory = poise_alloc(CACHE_MESSAGE_MOST, 1);
    uint64_t since = client->seen, from = 0, changes = 0;
    uint32_t flags = CACHE_MORE;
    int code = memory ? 0 : -ENOMEM;

    for (bool is_first = true; code == 0 && (flags & CACHE_MORE);
         is_first = false) {
        struct poise_buf question = {0};
        struct poise_reader answer;
        uint64_t now;
        poise_buf_u64(&question, CACHE_LIST);
        poise_buf_u64(&question, since);
        poise_buf_u64(&question, from);
        code = ask(client, &question, wait_ns(store, ANSWER_SHARE), memory,
                   &answer, NULL);
        poise_buf_free(&question);
        if (code < 0) {
            break;
        }
        now = poise_reader_u64(&answer);
        flags = cache_u32(&answer);
        if (is_first) {
            changes = now;
            if (flags & CACHE_FULL) {
                mark(store);
            }
        }
        since = 0;
        code = take_list(store, &answer, flags, &from);
    }
    free(memory);
    if (code == 0) {
        if (flags & CACHE_FULL) {
            remove_unlisted(store);
        }
        client->seen = changes;
    }
    return code;
}

void dedup_client_sync(struct poise_dedup_store *store)
{
    struct dedup_client *client = store->client;

    int code = client->fd >= 0 ? read_list(store) : 0;

    if (code < 0) {
        /* What it knows will do. */
        disconnect(client, code);
        poise_error_clear();
    }
}

/* ---- the server --------------------------------------------------------- */

/* The same cache as before, or the first. */
static int take_identity(struct poise_dedup_store *store,
                         struct poise_reader *answer)
{
    struct poise_dedup_store_info *info = &store->info;
    struct poise_dedup_key key;
    uint64_t id = poise_reader_u64(answer), bits;

    if (poise_reader_left(answer) < sizeof key.bytes) {
        return bad();
    }
    memcpy(key.bytes, answer->pos, sizeof key.bytes);
    answer->pos += sizeof key.bytes;
    bits = poise_reader_u64(answer);
    if (answer->error || bits < 8 || bits > 64) {
        return bad();
    }
    if (info->bits != 0 &&
        (info->id != id || info->bits != bits ||
         memcmp(info->key.bytes, key.bytes, sizeof key.bytes) != 0)) {
        return poise_error_set(ESTALE, "share a cache", store->path,
                               "it is another one now");
    }
    info->id = id;
    info->key = key;
    info->bits = (uint32_t)bits;
    return 0;
}

/* The descriptor is then the index's, unless this fails. */
static int take_index(const struct dedup_client *client, int fd,
                      struct dedup_index *index)
{
    if (client->own && cache_server_lend(client->own, fd, index)) {
        close(fd);
        return 0;
    }
    return dedup_index_attach(index, fd);
}

static int handshake(struct poise_dedup_store *store, uint64_t most_ns)
{
    struct dedup_client *client = store->client;
    unsigned char *memory = poise_alloc(CACHE_MESSAGE_MOST, 1);
    struct poise_buf question = {0};
    struct poise_reader answer;
    struct dedup_index index;
    int fd = -1, code = memory ? 0 : -ENOMEM;

    poise_buf_u64(&question, CACHE_HELLO);
    poise_buf_u64(&question, CACHE_VERSION);
    if (code == 0) {
        code = ask(client, &question, most_ns, memory, &answer, &fd);
    }
    if (code == 0) {
        code = take_identity(store, &answer);
    }
    if (code == 0) {
        code = fd < 0 ? bad() : take_index(client, fd, &index);
    }
    if (code == 0) {
        dedup_index_free(&store->index);
        store->index = index;
        client->seen = 0;
        client->reported = 0;
        code = read_list(store);
    } else if (fd >= 0) {
        close(fd);
    }
    poise_buf_free(&question);
    free(memory);
    return code;
}

static int connect_server(struct poise_dedup_store *store, uint64_t most_ns)
{
    struct dedup_client *client = store->client;
    int code = cache_connect(store->dirfd, &client->fd);

    if (code < 0) {
        client->fd = -1;
        return code;
    }
    code = cache_is_same_user(client->fd)
               ? handshake(store, most_ns)
               : poise_error_set(EPERM, "share a cache", store->path,
                                 "somebody else's process serves it");
    if (code < 0) {
        disconnect(client, code);
    }
    return code;
}

/* Whether the process that holds the lock serves, or will. */
static bool is_server_starting(const struct poise_dedup_store *store)
{
    struct stat st;

    return fstat(store->lockfd, &st) == 0 && st.st_size > 0;
}

/* Connect to the server; where there is none, become it. */
static int attach(struct poise_dedup_store *store, uint64_t most_ns)
{
    struct dedup_client *client = store->client;
    uint64_t begun = poise_clock_ns();
    const struct timespec nap = {.tv_nsec = NAP_MS * (long)1000000};

    for (int naps = 0;; naps++) {
        int code = connect_server(store, most_ns);
        if (code == 0 ||
            (code != -ECONNREFUSED && code != -ENOENT && code != -ECONNRESET &&
             code != -EAGAIN && code != -EPIPE)) {
            return code;
        }
        if (!client->own) {
            code = poise_dedup_server_open(store->path, &store->options,
                                           &client->own);
            if (code == 0) {
                continue;
            }
        }
        if (code != -EBUSY || poise_clock_ns() - begun > most_ns ||
            (naps >= ALONE_NAPS && !is_server_starting(store))) {
            return code;
        }
        nanosleep(&nap, NULL);
    }
}

/* Do without a server, with an index of the own. */
static int go_alone(struct poise_dedup_store *store)
{
    struct dedup_client *client = store->client;
    int code = dedup_store_read_alone(store);
    uint64_t last = store->count ? store->containers[store->count - 1]->id : 0;

    client->next_alone = (last / ALONE_STEP + 1) * ALONE_STEP;
    client->backoff_ns = RETRY_MS * ms;
    client->retry_ns = poise_clock_ns() + client->backoff_ns;
    return code;
}

/* What was written without the server, which it reads. */
static void report_alone(struct poise_dedup_store *store)
{
    struct dedup_client *client = store->client;
    const uint64_t *ids = (const uint64_t *)(const void *)client->alone.data;

    for (size_t i = 0; i < client->alone.len / sizeof *ids; i++) {
        struct poise_buf question = {0};
        int code;
        if (store->open && store->open->id == ids[i]) {
            continue; /* it will be reported */
        }
        poise_buf_u64(&question, CACHE_CLOSE);
        poise_buf_u64(&question, ids[i]);
        code = say(store, &question);
        poise_buf_free(&question);
        if (code < 0) {
            return;
        }
    }
    poise_buf_reset(&client->alone);
}

/* Whether there is a server; looked for now and then. */
static bool has_server(struct poise_dedup_store *store)
{
    struct dedup_client *client = store->client;
    int code;

    if (client->fd >= 0) {
        return true;
    }
    if (poise_clock_ns() >= client->retry_ns) {
        code = attach(store, wait_ns(store, AGAIN_SHARE));
        if (code == 0) {
            report_alone(store);
            return client->fd >= 0;
        }
        disconnect(client, -ETIMEDOUT);
        client->backoff_ns = 2 * client->backoff_ns < RETRY_MOST_MS * ms
                                 ? 2 * client->backoff_ns
                                 : RETRY_MOST_MS * ms;
        client->retry_ns = poise_clock_ns() + client->backoff_ns;
        poise_error_clear();
    }
    if (store->index.shared && go_alone(store) < 0) {
        poise_error_clear(); /* what was found of it is used */
    }
    return false;
}

int dedup_client_start(struct poise_dedup_store *store)
{
    int code;

    store->client = poise_alloc(1, sizeof *store->client);
    if (!store->client) {
        return -ENOMEM;
    }
    store->client->fd = store->client->writefd = -1;
    code = attach(store, wait_ns(store, 1));
    if (code == -ETIMEDOUT || (code == -EBUSY && is_server_starting(store))) {
        poise_error_clear();
        code = go_alone(store);
    }
    if (code < 0) {
        dedup_client_end(store);
    }
    return code;
}

int dedup_client_end(struct poise_dedup_store *store)
{
    struct dedup_client *client = store->client;
    int code;

    if (client->alone.len > 0) {
        client->retry_ns = 0;
        if (has_server(store) && store->open) {
            dedup_client_report(store);
        }
    }
    disconnect(client, 0);
    if (client->writefd >= 0) {
        close(client->writefd);
    }
    code = poise_dedup_server_close(client->own);
    poise_buf_free(&client->dropped);
    poise_buf_free(&client->alone);
    free(client);
    store->client = NULL;
    return code;
}

/* ---- leases ------------------------------------------------------------- */

void dedup_client_send_lease(struct poise_dedup_store *store, uint64_t id)
{
    struct dedup_client *client = store->client;
    struct poise_buf question = {0};
    size_t drops = client->dropped.len / sizeof id;
    const uint64_t *dropped =
        (const uint64_t *)(const void *)client->dropped.data;

    if (client->fd < 0) {
        return;
    }
    drops = drops < CACHE_LEASES_MOST ? drops : CACHE_LEASES_MOST;
    poise_buf_u64(&question, CACHE_LEASE);
    poise_buf_u64(&question, 1);
    poise_buf_u64(&question, (uint32_t)drops);
    poise_buf_u64(&question, id);
    for (size_t i = 0; i < drops; i++) {
        poise_buf_u64(&question, dropped[i]);
    }
    if (say(store, &question) < 0) {
        poise_error_clear(); /* then it may be gone sooner */
    }
    poise_buf_reset(&client->dropped);
    poise_buf_free(&question);
}

void dedup_client_queue_release(struct poise_dedup_store *store, uint64_t id)
{
    struct poise_buf *dropped = &store->client->dropped;

    if (dropped->len / sizeof id < CACHE_LEASES_MOST &&
        poise_buf_append(dropped, &id, sizeof id) < 0) {
        poise_error_clear(); /* it is held for longer */
    }
}

/* ---- writing ------------------------------------------------------------ */

void dedup_client_report(struct poise_dedup_store *store)
{
    struct dedup_client *client = store->client;
    const struct dedup_container *open = store->open;
    int code = 0, failures = 0;

    while (failures < OPEN_TRIES && client->reported < open->body->written &&
           has_server(store)) {
        struct poise_buf question = {0};
        uint32_t first = client->reported, count = open->body->written - first;
        count = count < CACHE_LEARN_MOST ? count : CACHE_LEARN_MOST;
        poise_buf_u64(&question, CACHE_LEARN);
        poise_buf_u64(&question, open->id);
        poise_buf_u64(&question, open->body->file_bytes);
        poise_buf_u64(&question, first);
        poise_buf_u64(&question, count);
        for (uint32_t i = first; i < first + count; i++) {
            const struct dedup_entry *entry = &open->body->entries[i];
            poise_buf_u64(&question, entry->fingerprint);
            poise_buf_u64(&question, (uint32_t)dedup_rank(entry->digest));
        }
        code = say(store, &question);
        client->reported = code == 0 ? first + count : client->reported;
        failures += code < 0;
        poise_buf_free(&question);
    }
    if (code < 0) {
        poise_error_clear(); /* the next server finds it in the folder */
    }
}

/* A container that the server gives. */
static int request_container(struct poise_dedup_store *store, bool fresh,
                             uint64_t *id, uint32_t *count)
{
    struct dedup_client *client = store->client;
    unsigned char *memory = poise_alloc(CACHE_MESSAGE_MOST, 1);
    struct poise_buf question = {0};
    struct poise_reader answer;
    int code = memory ? 0 : -ENOMEM;

    poise_buf_u64(&question, CACHE_NEW);
    poise_buf_u64(&question, fresh ? CACHE_FRESH : 0u);
    if (code == 0) {
        code = ask(client, &question, wait_ns(store, ANSWER_SHARE), memory,
                   &answer, NULL);
    }
    if (code == 0) {
        *id = poise_reader_u64(&answer);
        *count = cache_u32(&answer);
        code = answer.error || *id >> CACHE_ID_BITS != 0 ? bad() : 0;
    }
    poise_buf_free(&question);
    free(memory);
    return code;
}

static void close_open(struct poise_dedup_store *store)
{
    struct dedup_client *client = store->client;
    struct poise_buf question = {0};

    if (!store->open) {
        return;
    }
    if (client->fd >= 0) {
        poise_buf_u64(&question, CACHE_CLOSE);
        poise_buf_u64(&question, store->open->id);
        if (say(store, &question) < 0) {
            poise_error_clear();
        }
        poise_buf_free(&question);
    }
    close(client->writefd);
    client->writefd = -1;
    store->open = NULL;
}

/* Go on with what a container holds, or begin it: 1; 0 if it is not fit. */
static int begin(struct poise_dedup_store *store, uint64_t id, uint32_t count,
                 size_t len)
{
    struct dedup_container *container = dedup_store_container(store, id);
    struct dedup_body *body;
    struct stat st;

    if (!container) {
        container = dedup_store_insert(store, id);
        if (!container) {
            return -ENOMEM;
        }
    }
    if (count > 0) {
        int code = dedup_store_load(store, container);
        if (code <= 0 || container->body->count < count ||
            container->body->count >= DEDUP_SLOTS_MOST ||
            container->body->data_len + len > store->options.container_bytes) {
            return code < 0 ? code : 0;
        }
        store->open = container;
        return 1;
    }
    if (container->body || container->count > 0 ||
        fstat(store->client->writefd, &st) < 0 || st.st_size > 0) {
        return 0; /* another client's, which was not reported */
    }
    body = dedup_body_create();
    if (!body) {
        return -ENOMEM;
    }
    store->open = container;
    dedup_store_add_body(store, container, body);
    dedup_client_lease(store, id);
    return 1;
}

/* Take a container that is locked: 0; 1: it is not fit. */
static int take(struct poise_dedup_store *store, int fd, uint64_t id,
                uint32_t count, size_t len)
{
    struct dedup_client *client = store->client;
    int code;

    close_open(store);
    client->writefd = fd;
    client->reported = 0;
    code = begin(store, id, count, len);
    if (code > 0) {
        client->reported = store->open->body->written;
        return 0;
    }
    close(fd);
    client->writefd = -1;
    return code < 0 ? code : 1;
}

/* One that no server gave. */
static int open_alone(struct poise_dedup_store *store, size_t len)
{
    struct dedup_client *client = store->client;

    for (int tries = 0; tries < ALONE_TRIES; tries++) {
        uint64_t id = client->next_alone++;
        int fd = -1,
            code = id >> CACHE_ID_BITS != 0
                       ? poise_error_set(ENOSPC, "write into the cache",
                                         store->path, NULL)
                       : dedup_container_lock(store->dirfd, id, true, &fd);
        if (code == -EBUSY) {
            poise_error_clear();
            continue;
        }
        code = code < 0 ? code : take(store, fd, id, 0, len);
        if (code == 0) {
            return poise_buf_append(&client->alone, &id, sizeof id);
        }
        if (code < 0) {
            return code;
        }
    }
    return poise_error_set(EBUSY, "write into the cache", store->path,
                           "others write into all that could be taken");
}

int dedup_client_open(struct poise_dedup_store *store, size_t len)
{
    if (!has_server(store)) {
        return open_alone(store, len);
    }
    for (int tries = 0; tries < OPEN_TRIES; tries++) {
        struct dedup_container *before = store->open;
        uint64_t id = 0;
        uint32_t count = 0;
        int fd = -1, code = request_container(store, tries > 0, &id, &count);
        if (code < 0 && has_server(store)) {
            continue; /* by another one */
        }
        if (code < 0) {
            poise_error_clear();
            return open_alone(store, len);
        }
        code = before && before->id == id
                   ? -EBUSY
                   : dedup_container_lock(store->dirfd, id, true, &fd);
        if (code == -EBUSY) {
            poise_error_clear();
            continue; /* another writer's, which the server does not know */
        }
        code = code < 0 ? code : take(store, fd, id, count, len);
        if (code <= 0) {
            return code;
        }
    }
    return poise_error_set(EBUSY, "write into the cache", store->path,
                           "others write into all that are assigned");
}
