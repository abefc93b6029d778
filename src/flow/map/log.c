/*
 * The map's log: what must outlive the map.
 *
 * Only the process that holds the write lock of the file writes to it, and that
 * is the map; the kernel drops the lock when the process dies. A record is in
 * the file before what it says has an effect elsewhere: members, plans and
 * epochs before nodes hear of them (map_broadcast), a result before it is
 * handed out, and before its node may forget it (map_output, then
 * FLOW_RESULT_KEPT).
 *
 * So a death leaves a prefix of the records, the last perhaps cut short: magic,
 * length and check tell, and the next map truncates there. What stands in the
 * prefix and did not reach a node is sent to it when it comes back; nodes skip
 * what they know. What does not stand there had no effect, but for results that
 * nodes still keep and send again. Nothing is synced: a death of the machine
 * ends its processes as well. FLOW_BEGUN begins anew: what stands before it
 * counts no more.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC UINT32_C(0x336c6f70)

/** Before each record; `len` bytes of payload follow the head. */
struct record {
    uint32_t magic, check;
    struct flow_head head;
};

static uint64_t mix(uint64_t hash, const void *data, size_t len)
{
    const unsigned char *bytes = data;
    while (len > 0) {
        uint64_t word = 0;
        size_t some = len < sizeof word ? len : sizeof word;
        memcpy(&word, bytes, some);
        hash = poise_hash_u64(hash ^ word);
        bytes += some;
        len -= some;
    }
    return hash;
}

static uint32_t check_of(const struct flow_head *head, const void *data)
{
    return (uint32_t)mix(mix(MAGIC, head, sizeof *head), data, head->len);
}

/* ---- writing ------------------------------------------------------------ */

int map_log_add(struct map *map, enum flow_kind kind,
                const struct flow_head *head, const void *data, size_t len)
{
    struct record record = {.magic = MAGIC, .head = *head};
    struct poise_buf whole = {0};
    if (map->log < 0) {
        return 0;
    }
    record.head.kind = kind;
    record.head.len = len;
    record.check = check_of(&record.head, data);
    poise_buf_append(&whole, &record, sizeof record);
    poise_buf_append(&whole, data, len);
    int code = whole.error ? whole.error
                           : poise_file_write(map->log, whole.data, whole.len,
                                              map->options->log);
    poise_buf_free(&whole);
    return code;
}

struct flow_contact map_contact(const struct map *map)
{
    struct flow_contact call = {.turn = map->self.turn, .at = map->self.at};
    memcpy(call.secret, map->self.secret, sizeof call.secret);
    return call;
}

int map_log_begin(struct map *map)
{
    const struct flow_contact call = map_contact(map);
    struct flow_head head = {.extra = map->self.job};
    if (map->log < 0) {
        return 0;
    }
    map->log_at = (uint64_t)lseek(map->log, 0, SEEK_END);
    int code =
        map_log_add(map, FLOW_BEGUN, &head, call.secret, sizeof call.secret);
    return code == 0 ? flow_contact_write(map->options->log, &call) : code;
}

void map_log_end(struct map *map)
{
    if (map->log < 0) {
        return;
    }
    flow_contact_remove(map->options->log);
    unlink(map->options->log);
}

/* ---- reading ------------------------------------------------------------ */

/* The record at *at, and where the next one is: 1; 0 at the end, which a death
 * may have left in the middle of one. `data` is freed by the caller. */
static int record_read(const struct map *map, uint64_t *at,
                       struct record *record, struct poise_buf *data)
{
    const char *path = map->options->log;
    ssize_t got = poise_file_pread(map->log, record, sizeof *record, *at, path);
    if (got < (ssize_t)sizeof *record || record->magic != MAGIC ||
        record->head.len > (uint64_t)lseek(map->log, 0, SEEK_END)) {
        return got < 0 ? (int)got : 0;
    }
    size_t len = record->head.len;
    poise_buf_reset(data);
    char *room = poise_buf_reserve(data, len + 1);
    if (!room) {
        return -ENOMEM;
    }
    got = poise_file_pread(map->log, room, len, *at + sizeof *record, path);
    if (got < (ssize_t)len || check_of(&record->head, room) != record->check) {
        return got < 0 ? (int)got : 0;
    }
    data->len = len;
    *at += sizeof *record + len;
    return 1;
}

static int bad_log(const struct map *map, const char *why)
{
    return poise_error_set(EINVAL, "take over by log", map->options->log, "%s",
                           why);
}

/* The nodes at the beginning, or one that came later. */
static void apply_member(struct map *map, unsigned id,
                         const struct flow_endpoint *at)
{
    map->nodes[id].alive = at->port != 0;
    map->nodes[id].joined = true;
    map->nodes[id].at = *at;
    map->count = id >= map->count ? id + 1 : map->count;
    map->started = true;
}

static int apply_plan(struct map *map, const struct flow_head *head,
                      const struct poise_buf *data)
{
    uint64_t places = flow_shape_places(&map->job->files[head->file].shape);
    if (data->len != places * sizeof(uint16_t)) {
        return bad_log(map, "a plan in it is of another shape");
    }
    uint16_t *owner = poise_alloc(places, sizeof *owner);
    if (!owner) {
        return -ENOMEM;
    }
    memcpy(owner, data->data, data->len);
    return map_plan_keep(map, head->file, head->version, (int64_t)head->extra,
                         owner);
}

static int apply(struct map *map, const struct flow_head *head,
                 const struct poise_buf *data, uint64_t begins)
{
    const struct flow_member *list = (const void *)data->data;
    struct flow_endpoint at;
    bool of_node = head->kind == FLOW_JOIN || head->kind == FLOW_EPOCH ||
                   head->kind == FLOW_PROCESS;
    if ((of_node && head->place >= map->cap) ||
        data->len / sizeof(uint16_t) > UINT32_MAX ||
        head->file >= map->job->file_count) {
        return bad_log(map, "it is of a job with other nodes or files");
    }
    switch ((enum flow_kind)head->kind) {
    case FLOW_BEGUN:
        map_forget(map);
        if (data->len != sizeof map->self.secret) {
            return bad_log(map, "its beginning is of another form");
        }
        memcpy(map->self.secret, data->data, data->len);
        map->log_at = begins;
        return head->extra == map->self.job
                   ? 0
                   : bad_log(map, "it is of another job");
    case FLOW_PROCESS:
        map->nodes[head->place].of_log = true;
        if ((uint64_t)head->version == map_machine()) {
            map->nodes[head->place].logged = (pid_t)head->extra;
        }
        return 0;
    case FLOW_START:
        for (unsigned n = 0; n < data->len / sizeof *list && n < map->cap;
             n++) {
            apply_member(map, n, &list[n].at);
        }
        return 0;
    case FLOW_JOIN:
        if (data->len != sizeof at) {
            return bad_log(map, "a newcomer in it is of another form");
        }
        memcpy(&at, data->data, sizeof at);
        apply_member(map, (unsigned)head->place, &at);
        return 0;
    case FLOW_EPOCH:
        map->epoch = head->extra;
        map->line = head->version;
        map->deaths++;
        map->nodes[head->place].alive = false;
        return map_inherit(map, (unsigned)head->place);
    case FLOW_LINE:
        if (data->len != sizeof map->line_members) {
            return bad_log(map, "a line in it is of other members");
        }
        map->line = head->version;
        memcpy(map->line_members, data->data, data->len);
        return 0;
    case FLOW_PLAN:
        return apply_plan(map, head, data);
    case FLOW_OUTPUT:
        return map_output(map, head, data->len > 0 ? data->data : "");
    default:
        return bad_log(map, "it has records of an unknown kind");
    }
}

static int replay(struct map *map)
{
    struct poise_buf data = {0};
    struct record record;
    uint64_t at = 0, before = 0;
    int log = map->log, code;
    while ((code = record_read(map, &at, &record, &data)) > 0) {
        map->log = -1; /* what is read is not written once more */
        code = apply(map, &record.head, &data, before);
        map->log = log;
        if (code < 0) {
            break;
        }
        before = at;
    }
    poise_buf_free(&data);
    if (code == 0 && (ftruncate(log, (off_t)at) < 0 ||
                      lseek(log, (off_t)at, SEEK_SET) < 0)) {
        code =
            poise_error_set(errno, "take over by log", map->options->log, NULL);
    }
    map->took_over = map->inherited = map->started;
    unsigned more = map->count - map->options->nodes;
    unsigned planned = more > 0 ? map->options->join : 0;
    map->grown = more > 0;
    more -= more > planned ? planned : more;
    map->spares -= more < map->spares ? more : map->spares;
    return code;
}

int map_log_open(struct map *map)
{
    const char *path = map->options->log;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct flow_contact call = {0};
    if (!path) {
        return 0;
    }
    map->log =
        poise_file_open(AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (map->log < 0) {
        return map->log;
    }
    if (fcntl(map->log, F_SETLK, &lock) < 0) {
        return errno == EAGAIN || errno == EACCES
                   ? poise_error_set(EBUSY, "take over by log", path,
                                     "another map holds it")
                   : poise_error_set(errno, "lock", path, NULL);
    }
    if (flow_contact_read(path, &call) == 0) {
        map->self.turn = call.turn;
    }
    if (map->self.turn >= UINT32_MAX) {
        /* Nodes follow higher numbers only; probes have 32 bits more. */
        return poise_error_set(EOVERFLOW, "take over by log", path,
                               "too many maps did so before, says its .map");
    }
    map->self.turn++;
    map->probe = map->self.turn << 32; /* none of another map's */
    unsigned char secret[FLOW_SECRET_BYTES];
    memcpy(secret, map->self.secret, sizeof secret);
    int code = replay(map);
    if (code == 0 && map->took_over) {
        /* That map may have died before it announced all first plans. */
        code = map_begin(map);
        map_watch_logged(map);
        call = map_contact(map);
        return code == 0 ? flow_contact_write(path, &call) : code;
    }
    map_forget(map); /* it had not begun */
    memcpy(map->self.secret, secret, sizeof secret);
    return code == 0 ? map_log_begin(map) : code;
}

int map_log_resend(struct map *map, struct flow_link *link)
{
    struct poise_buf data = {0};
    struct record record;
    uint64_t at = map->log_at;
    int code;
    while ((code = record_read(map, &at, &record, &data)) > 0) {
        const struct flow_head *head = &record.head;
        if (head->kind == FLOW_START || head->kind == FLOW_PLAN ||
            head->kind == FLOW_EPOCH || head->kind == FLOW_JOIN) {
            code = map_send(link, (enum flow_kind)head->kind, head, data.data,
                            data.len);
            if (code < 0) {
                break;
            }
        }
    }
    poise_buf_free(&data);
    return code;
}
