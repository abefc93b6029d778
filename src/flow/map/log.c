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
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAGIC UINT32_C(0x356c6f70)
/** FILE.map is looked at so often: an older map may have written it late. */
#define CALL_NS UINT64_C(1000000000)

/** Before each record; `len` bytes of payload follow the head. */
struct record {
    uint32_t magic, check;
    uint64_t turn; /**< of the map that wrote it: an older one counts no more */
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

static uint32_t check_of(const struct record *record, const void *data)
{
    const struct flow_head *head = &record->head;
    return (uint32_t)mix(mix(MAGIC ^ record->turn, head, sizeof *head), data,
                         head->len);
}

/* ---- writing ------------------------------------------------------------ */

int map_log_add(struct map *map, enum flow_kind kind,
                const struct flow_head *head, const void *data, size_t len)
{
    struct record record = {
        .magic = MAGIC, .turn = map->self.turn, .head = *head};
    struct poise_buf whole = {0};
    if (map->log < 0) {
        return 0;
    }
    record.head.kind = kind;
    record.head.len = len;
    record.check = check_of(&record, data);
    poise_buf_append(&whole, &record, sizeof record);
    poise_buf_append(&whole, data, len);
    int code = whole.error ? whole.error
                           : poise_file_write(map->log, whole.data, whole.len,
                                              poise_buf_str(&map->log_path));
    map->unsynced = true;
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

int map_log_end(struct map *map)
{
    struct poise_buf other = {0};
    glob_t older = {0};
    int code = map_election_done(map->election, map->options->notice,
                                 map->options->notice_arg);
    if (map->log < 0 || code < 0) {
        return code;
    }
    flow_contact_remove(map->options->log);
    unlink(poise_buf_str(&map->log_path));
    poise_buf_printf(&other, "%s.[0-9]*", map->options->log);
    if (map->election && !other.error &&
        glob(poise_buf_str(&other), GLOB_NOSORT, NULL, &older) == 0) {
        for (size_t i = 0; i < older.gl_pathc; i++) {
            unlink(older.gl_pathv[i]);
        }
    }
    globfree(&older);
    poise_buf_free(&other);
    return 0;
}

int map_log_hold(struct map *map)
{
    struct flow_contact call;
    if (!map->election) {
        return 0;
    }
    if (map->unsynced && map->log >= 0 && fdatasync(map->log) < 0) {
        return poise_error_set(errno, "keep log", poise_buf_str(&map->log_path),
                               NULL);
    }
    map->unsynced = false;
    int code = map_election_holds(map->election)
                   ? 0
                   : map_election_wait(map->election, map->options->notice,
                                       map->options->notice_arg);
    uint64_t now = poise_clock_ns();
    if (code == 0 && now - map->called_ns > CALL_NS) {
        map->called_ns = now;
        if (flow_contact_read(map->options->log, &call) < 0 ||
            call.turn != map->self.turn) {
            call = map_contact(map);
            code = flow_contact_write(map->options->log, &call);
        }
    }
    return code;
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
    if (got < (ssize_t)len || check_of(record, room) != record->check) {
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
    const uint16_t *before =
        head->place > 0 ? map_plan_at(map, head->file, (int64_t)head->place - 1)
                        : NULL;
    uint16_t *owner = poise_alloc(places, sizeof *owner);
    if (!owner) {
        return -ENOMEM;
    }
    if ((head->place > 0 && !before) ||
        flow_plan_decode(before, data->data, data->len, places, owner) < 0) {
        free(owner);
        return bad_log(map, "a plan in it makes no sense");
    }
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
        if (data->len > map->cap * sizeof *map->line_kept) {
            return bad_log(map, "a line in it is of other members");
        }
        map->line = head->version;
        memset(map->line_kept, 0, sizeof map->line_kept);
        memcpy(map->line_kept, data->data, data->len);
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
        if (record.turn < map->log_turn) {
            before = at; /* of a map that had been replaced */
            continue;
        }
        map->log_turn = record.turn;
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
    for (unsigned n = 0; n < map->count; n++) {
        map->nodes[n].host = map_host_for(map, n);
    }
    unsigned more = map->count - map->options->nodes;
    unsigned planned = more > 0 ? map->options->join : 0;
    map->grown = more > 0;
    more -= more > planned ? planned : more;
    more = more < map->deaths ? more : map->deaths; /* others had come back */
    map->spares -= more < map->spares ? more : map->spares;
    return code;
}

/* ---- which map it is ---------------------------------------------------- */

/* By the lock of the log: on one machine, or one file system. */
static int open_by_lock(struct map *map)
{
    const char *path = map->options->log;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct flow_contact call = {0};
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
    map->self.turn++;
    return poise_buf_puts(&map->log_path, path);
}

/* The log of the newest map before this one; empty: none. */
static int newest_before(const struct map *map, struct poise_buf *out)
{
    struct poise_buf pattern = {0};
    glob_t found = {0};
    uint64_t best = 0;
    size_t len = strlen(map->options->log);
    poise_buf_printf(&pattern, "%s.[0-9]*", map->options->log);
    if (!pattern.error &&
        glob(poise_buf_str(&pattern), GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            char *end;
            uint64_t turn = strtoull(found.gl_pathv[i] + len + 1, &end, 10);
            if (*end == '\0' && turn > best && turn < map->self.turn) {
                best = turn;
                poise_buf_reset(out);
                poise_buf_puts(out, found.gl_pathv[i]);
            }
        }
    }
    globfree(&found);
    int code = pattern.error;
    poise_buf_free(&pattern);
    return code < 0 ? code : out->error;
}

static int copy_log(const char *from, int to, const char *path)
{
    char part[16384];
    int in = poise_file_open(AT_FDCWD, from, O_RDONLY | O_CLOEXEC, 0);
    ssize_t got = 0;
    int code = in < 0 ? in : 0;
    while (code == 0 &&
           (got = poise_file_read(in, part, sizeof part, from)) > 0) {
        code = poise_file_write(to, part, (size_t)got, path);
    }
    if (in >= 0) {
        close(in);
    }
    return code == 0 && got < 0 ? (int)got : code;
}

/* A file of its own, which begins as a copy of the one before, and has its name
 * when that is whole. */
static int open_by_turn(struct map *map)
{
    struct poise_buf from = {0}, made = {0};
    poise_buf_printf(&map->log_path, "%s.%llu", map->options->log,
                     (unsigned long long)map->self.turn);
    poise_buf_printf(&made, "%s.%llu.new", map->options->log,
                     (unsigned long long)map->self.turn);
    int code = map->log_path.error ? map->log_path.error : made.error;
    code = code == 0 ? newest_before(map, &from) : code;
    if (code == 0) {
        map->log =
            poise_file_open(AT_FDCWD, poise_buf_str(&made),
                            O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        code = map->log < 0 ? map->log : 0;
    }
    if (code == 0 && from.len > 0) {
        code = copy_log(poise_buf_str(&from), map->log, poise_buf_str(&made));
    }
    if (code == 0 &&
        (fdatasync(map->log) < 0 ||
         rename(poise_buf_str(&made), poise_buf_str(&map->log_path)) < 0)) {
        code = poise_error_set(errno, "begin log",
                               poise_buf_str(&map->log_path), NULL);
    }
    poise_buf_free(&from);
    poise_buf_free(&made);
    return code;
}

static int open_by_election(struct map *map)
{
    const struct poise_flow_options *options = map->options;
    char folder[PATH_MAX];
    struct poise_buf name = {0};
    /* The same job for all who call its log so: from the root on. */
    if (options->log[0] != '/' && getcwd(folder, sizeof folder)) {
        poise_buf_printf(&name, "%s/", folder);
    }
    poise_buf_puts(&name, options->log);
    int code = name.error;
    if (code == 0) {
        code = map_election_open(options->etcd, poise_buf_str(&name),
                                 map_lost_ns(map), options->notice,
                                 options->notice_arg, &map->self.turn,
                                 &map->election);
    }
    poise_buf_free(&name);
    return code == 0 ? open_by_turn(map) : code;
}

int map_log_open(struct map *map)
{
    const char *path = map->options->log;
    struct flow_contact call;
    if (!path) {
        return map->options->etcd
                   ? poise_error_set(
                         EINVAL, "run job", NULL,
                         "maps are elected for a log: none is named")
                   : 0;
    }
    int code = map->options->etcd ? open_by_election(map) : open_by_lock(map);
    if (code < 0) {
        return code;
    }
    if (map->self.turn > UINT32_MAX) {
        /* Nodes follow higher numbers only; probes have 32 bits more. */
        return poise_error_set(EOVERFLOW, "take over by log", path,
                               "too many maps did so before");
    }
    map->probe = map->self.turn << 32; /* none of another map's */
    unsigned char secret[FLOW_SECRET_BYTES];
    memcpy(secret, map->self.secret, sizeof secret);
    code = replay(map);
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
    uint64_t turn = 0;
    while ((code = record_read(map, &at, &record, &data)) > 0) {
        const struct flow_head *head = &record.head;
        if (record.turn < turn) {
            continue;
        }
        turn = record.turn;
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
