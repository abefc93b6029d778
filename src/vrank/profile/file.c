/*
 * Profiles as JSON, written and read by the same tables. Reading takes any JSON
 * of two levels of arrays and objects, and passes over what it does not know.
 */
#include "profile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_FORMAT "poise vrank profile"
#define FILE_VERSION 1
/** What poise_vrank_profile_json writes is neither deeper nor larger. */
#define FILE_DEPTH 16
#define FILE_MOST ((off_t)1 << 30)

/* ---- what there is ------------------------------------------------------ */

enum field_type { FIELD_INT, FIELD_NUMBER, FIELD_BOOL, FIELD_TEXT };

struct field {
    const char *name;
    enum field_type type;
    size_t offset, bytes;
};

#define FIELD(section, kind, member)                                           \
    {                                                                          \
#member, FIELD_##kind, offsetof(struct section, member),               \
            sizeof(((struct section *)0)->member)                              \
    }
#define ITEM(section, name, array, index)                                      \
    {                                                                          \
        name, FIELD_NUMBER,                                                    \
            offsetof(struct section, array) + (index) * sizeof(uint64_t),      \
            sizeof(uint64_t)                                                   \
    }
#define TIMES(section)                                                         \
    ITEM(section, "computing_ns", ns, POISE_VRANK_COMPUTING),                  \
        ITEM(section, "mpi_ns", ns, POISE_VRANK_CALLING),                      \
        ITEM(section, "ready_ns", ns, POISE_VRANK_READY),                      \
        ITEM(section, "network_ns", ns, POISE_VRANK_NETWORK),                  \
        ITEM(section, "synchronisation_ns", ns, POISE_VRANK_SYNC),             \
        ITEM(section, "sleeping_ns", ns, POISE_VRANK_SLEEPING),                \
        ITEM(section, "disk_ns", ns, POISE_VRANK_DISK)

#define MOVES(section)                                                         \
    ITEM(section, "swapped_in", moved, POISE_VRANK_SWAPPED_IN),                \
        ITEM(section, "swapped_out", moved, POISE_VRANK_SWAPPED_OUT),          \
        ITEM(section, "parts", moved, POISE_VRANK_PARTS),                      \
        ITEM(section, "moving_ns", moved, POISE_VRANK_MOVING)

static const struct field head_fields[] = {
    FIELD(poise_vrank_profile, INT, count),
    FIELD(poise_vrank_profile, INT, processes),
    FIELD(poise_vrank_profile, INT, threads),
    FIELD(poise_vrank_profile, NUMBER, wall_ns),
    FIELD(poise_vrank_profile, INT, counter_error),
    ITEM(poise_vrank_profile, "small_messages", sizes, POISE_VRANK_SMALL),
    ITEM(poise_vrank_profile, "medium_messages", sizes, POISE_VRANK_MEDIUM),
    ITEM(poise_vrank_profile, "large_messages", sizes, POISE_VRANK_LARGE),
    {NULL, FIELD_INT, 0, 0},
};

static const struct field rank_fields[] = {
    FIELD(poise_vrank_profile_rank, INT, rank),
    FIELD(poise_vrank_profile_rank, INT, process),
    FIELD(poise_vrank_profile_rank, INT, worker),
    TIMES(poise_vrank_profile_rank),
    FIELD(poise_vrank_profile_rank, NUMBER, switches),
    MOVES(poise_vrank_profile_rank),
    {NULL, FIELD_INT, 0, 0},
};

static const struct field worker_fields[] = {
    FIELD(poise_vrank_profile_worker, INT, process),
    FIELD(poise_vrank_profile_worker, INT, worker),
    FIELD(poise_vrank_profile_worker, NUMBER, wall_ns),
    FIELD(poise_vrank_profile_worker, NUMBER, idle_ns),
    FIELD(poise_vrank_profile_worker, NUMBER, idle_network_ns),
    FIELD(poise_vrank_profile_worker, NUMBER, idle_sync_ns),
    FIELD(poise_vrank_profile_worker, NUMBER, idle_sleep_ns),
    FIELD(poise_vrank_profile_worker, NUMBER, idle_queued_ns),
    FIELD(poise_vrank_profile_worker, NUMBER, busy_ns),
    FIELD(poise_vrank_profile_worker, NUMBER, disk_ns),
    FIELD(poise_vrank_profile_worker, NUMBER, switches),
    ITEM(poise_vrank_profile_worker, "user_ns", kernel, POISE_VRANK_USER_NS),
    ITEM(poise_vrank_profile_worker, "system_ns", kernel,
         POISE_VRANK_SYSTEM_NS),
    ITEM(poise_vrank_profile_worker, "voluntary_switches", kernel,
         POISE_VRANK_VOLUNTARY),
    ITEM(poise_vrank_profile_worker, "involuntary_switches", kernel,
         POISE_VRANK_INVOLUNTARY),
    ITEM(poise_vrank_profile_worker, "page_faults", kernel, POISE_VRANK_FAULTS),
    ITEM(poise_vrank_profile_worker, "run_queue_ns", kernel,
         POISE_VRANK_QUEUED_NS),
    ITEM(poise_vrank_profile_worker, "cycles", counters, POISE_VRANK_CYCLES),
    ITEM(poise_vrank_profile_worker, "instructions", counters,
         POISE_VRANK_INSTRUCTIONS),
    ITEM(poise_vrank_profile_worker, "l1_misses", counters,
         POISE_VRANK_L1_MISSES),
    ITEM(poise_vrank_profile_worker, "cache_misses", counters,
         POISE_VRANK_CACHE_MISSES),
    ITEM(poise_vrank_profile_worker, "tlb_misses", counters,
         POISE_VRANK_TLB_MISSES),
    {NULL, FIELD_INT, 0, 0},
};

static const struct field call_fields[] = {
    FIELD(poise_vrank_profile_call, TEXT, name),
    FIELD(poise_vrank_profile_call, BOOL, collective),
    FIELD(poise_vrank_profile_call, NUMBER, calls),
    TIMES(poise_vrank_profile_call),
    {NULL, FIELD_INT, 0, 0},
};

static const struct field phase_fields[] = {
    FIELD(poise_vrank_profile_phase, TEXT, from),
    FIELD(poise_vrank_profile_phase, TEXT, to),
    FIELD(poise_vrank_profile_phase, NUMBER, count),
    TIMES(poise_vrank_profile_phase),
    MOVES(poise_vrank_profile_phase),
    {NULL, FIELD_INT, 0, 0},
};

static const struct field edge_fields[] = {
    FIELD(poise_vrank_profile_edge, INT, from),
    FIELD(poise_vrank_profile_edge, INT, to),
    FIELD(poise_vrank_profile_edge, NUMBER, messages),
    FIELD(poise_vrank_profile_edge, NUMBER, bytes),
    {NULL, FIELD_INT, 0, 0},
};

/* An array of objects: where its pointer and count are. */
struct section {
    const char *name;
    const struct field *fields;
    size_t item_bytes, items, count;
};

#define SECTION(name, array, number, kind)                                     \
    {                                                                          \
        name, kind##_fields, sizeof(struct poise_vrank_profile_##kind),        \
            offsetof(struct poise_vrank_profile, array),                       \
            offsetof(struct poise_vrank_profile, number)                       \
    }

static const struct section sections[] = {
    SECTION("ranks", ranks, count, rank),
    SECTION("workers", workers, worker_count, worker),
    SECTION("calls", calls, call_count, call),
    SECTION("phases", phases, phase_count, phase),
    SECTION("edges", edges, edge_count, edge),
};
enum { SECTIONS = sizeof sections / sizeof *sections };

/* Pointers to different types in one place: by their bytes. */
static char *section_items(const struct poise_vrank_profile *profile,
                           const struct section *section)
{
    char *items;
    memcpy(&items, (const char *)profile + section->items, sizeof items);
    return items;
}

static int section_count(const struct poise_vrank_profile *profile,
                         const struct section *section)
{
    int count;
    memcpy(&count, (const char *)profile + section->count, sizeof count);
    return count;
}

/* ---- writing ------------------------------------------------------------ */

static void write_fields(struct poise_json *json, const struct field *fields,
                         const void *item)
{
    for (const struct field *field = fields; field->name != NULL; field++) {
        const char *at = (const char *)item + field->offset;
        int number;
        int64_t large;
        switch (field->type) {
        case FIELD_INT:
            memcpy(&number, at, sizeof number);
            poise_json_i64(json, field->name, number);
            break;
        case FIELD_NUMBER:
            memcpy(&large, at, sizeof large);
            poise_json_i64(json, field->name, large);
            break;
        case FIELD_BOOL:
            poise_json_bool(json, field->name, *(const bool *)at);
            break;
        case FIELD_TEXT:
            poise_json_string(json, field->name, at);
            break;
        }
    }
}

int poise_vrank_profile_json(const struct poise_vrank_profile *profile,
                             struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);
    poise_json_object(&json, NULL);
    poise_json_string(&json, "format", FILE_FORMAT);
    poise_json_u64(&json, "version", FILE_VERSION);
    poise_json_string(&json, "policy", profile->policy);
    poise_json_string(&json, "placement", profile->placement);
    write_fields(&json, head_fields, profile);
    poise_json_array(&json, "runnable_ns");
    for (int i = 0; i <= profile->ranks_most; i++) {
        poise_json_u64(&json, NULL, profile->runnable_ns[i]);
    }
    poise_json_end_array(&json);
    for (int s = 0; s < SECTIONS; s++) {
        const char *items = section_items(profile, &sections[s]);
        poise_json_array(&json, sections[s].name);
        for (int i = 0; i < section_count(profile, &sections[s]); i++) {
            poise_json_object(&json, NULL);
            write_fields(&json, sections[s].fields,
                         items + (size_t)i * sections[s].item_bytes);
            poise_json_end_object(&json);
        }
        poise_json_end_array(&json);
    }
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
    return out->error;
}

/* ---- reading ------------------------------------------------------------ */

struct reader {
    const char *begin, *pos, *end;
    struct poise_vrank_profile *out;
    int error;
    bool has_format;
};

static int read_fail(struct reader *reader, int code)
{
    if (reader->error == 0) {
        reader->error = -code;
    }
    return -code;
}

static void read_blank(struct reader *reader)
{
    while (reader->pos < reader->end &&
           strchr(" \t\r\n", *reader->pos) != NULL && *reader->pos != '\0') {
        reader->pos++;
    }
}

/* Whether the next character is `c`, which is then passed. */
static bool read_is(struct reader *reader, char c)
{
    read_blank(reader);
    if (reader->pos < reader->end && *reader->pos == c) {
        reader->pos++;
        return true;
    }
    return false;
}

/* A string, cut to what fits; escapes but \" and \\ are kept as they are. */
static void read_string(struct reader *reader, char *out, size_t bytes)
{
    size_t len = 0;
    if (!read_is(reader, '"')) {
        read_fail(reader, EBADMSG);
    }
    while (reader->error == 0 && reader->pos < reader->end &&
           *reader->pos != '"') {
        if (*reader->pos == '\\' && reader->pos + 1 < reader->end) {
            reader->pos++;
        }
        if (len + 1 < bytes) {
            out[len++] = *reader->pos;
        }
        reader->pos++;
    }
    out[len] = '\0';
    if (!read_is(reader, '"')) {
        read_fail(reader, EBADMSG);
    }
}

/* A number, true, false or null. */
static int64_t read_number(struct reader *reader)
{
    char text[32];
    size_t len = 0;
    read_blank(reader);
    while (reader->pos < reader->end &&
           strchr(",]} \t\r\n", *reader->pos) == 0 && len + 1 < sizeof text) {
        text[len++] = *reader->pos++;
    }
    text[len] = '\0';
    char *end = text;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (strcmp(text, "true") == 0) {
        return 1;
    }
    if (strcmp(text, "false") == 0 || strcmp(text, "null") == 0) {
        return 0;
    }
    if (len == 0 || *end != '\0' || errno != 0) {
        read_fail(reader, EBADMSG);
    }
    return number;
}

/* Pass over a value of any kind. */
static void read_over(struct reader *reader, int depth)
{
    char text[8];
    read_blank(reader);
    char first = reader->pos < reader->end ? *reader->pos : '\0';
    if (first == '"') {
        read_string(reader, text, sizeof text);
        return;
    }
    if (first != '{' && first != '[') {
        read_number(reader);
        return;
    }
    char last = first == '{' ? '}' : ']';
    reader->pos++;
    if (depth == FILE_DEPTH) {
        read_fail(reader, EBADMSG);
    }
    for (bool more = !read_is(reader, last); more && reader->error == 0;) {
        if (first == '{') {
            read_string(reader, text, sizeof text);
            if (!read_is(reader, ':')) {
                read_fail(reader, EBADMSG);
            }
        }
        read_over(reader, depth + 1);
        more = read_is(reader, ',');
        if (!more && !read_is(reader, last)) {
            read_fail(reader, EBADMSG);
        }
    }
}

static void read_field(struct reader *reader, const struct field *fields,
                       const char *name, void *item)
{
    const struct field *field = fields;
    while (field->name != NULL && strcmp(field->name, name) != 0) {
        field++;
    }
    if (field->name == NULL) {
        read_over(reader, 0);
        return;
    }
    char *at = (char *)item + field->offset;
    if (field->type == FIELD_TEXT) {
        read_string(reader, at, field->bytes);
        return;
    }
    int64_t number = read_number(reader);
    int small = (int)number;
    if (field->type == FIELD_BOOL) {
        *(bool *)at = number != 0;
    } else if (field->type == FIELD_NUMBER) {
        memcpy(at, &number, sizeof number);
    } else if (number < INT_MIN || number > INT_MAX) {
        read_fail(reader, EBADMSG);
    } else {
        memcpy(at, &small, sizeof small);
    }
}

/* The members of an object, each handed to `member` behind its colon. */
static void read_object(struct reader *reader,
                        void (*member)(struct reader *reader, const char *name,
                                       void *arg),
                        void *arg)
{
    char name[64];
    if (!read_is(reader, '{')) {
        read_fail(reader, EBADMSG);
    }
    for (bool more = !read_is(reader, '}'); more && reader->error == 0;) {
        read_string(reader, name, sizeof name);
        if (!read_is(reader, ':')) {
            read_fail(reader, EBADMSG);
            return;
        }
        member(reader, name, arg);
        more = read_is(reader, ',');
        if (!more && !read_is(reader, '}')) {
            read_fail(reader, EBADMSG);
        }
    }
}

struct item {
    const struct section *section;
    char *at;
};

static void read_item_member(struct reader *reader, const char *name, void *arg)
{
    const struct item *item = arg;
    read_field(reader, item->section->fields, name, item->at);
}

/* Put one more object of zeros behind the `count` that there are. */
static char *section_grow(struct reader *reader, const struct section *section,
                          int count)
{
    char *items = section_items(reader->out, section);
    if ((count & (count - 1)) == 0) {
        items = poise_realloc(items, count > 0 ? 2 * (size_t)count : 1,
                              section->item_bytes);
        if (items == NULL) {
            read_fail(reader, ENOMEM);
            return NULL;
        }
        memcpy((char *)reader->out + section->items, &items, sizeof items);
    }
    char *item = items + (size_t)count * section->item_bytes;
    memset(item, 0, section->item_bytes);
    return item;
}

static void read_section(struct reader *reader, const struct section *section)
{
    int count = 0;
    if (section_items(reader->out, section) != NULL || !read_is(reader, '[')) {
        read_fail(reader, EBADMSG);
    }
    for (bool more = reader->error == 0 && !read_is(reader, ']');
         more && reader->error == 0;) {
        struct item item = {.section = section,
                            .at = section_grow(reader, section, count)};
        if (item.at == NULL) {
            return;
        }
        count++;
        read_object(reader, read_item_member, &item);
        more = read_is(reader, ',');
        if (!more && !read_is(reader, ']')) {
            read_fail(reader, EBADMSG);
        }
    }
    if (section->fields != rank_fields) {
        memcpy((char *)reader->out + section->count, &count, sizeof count);
    } else if (count != reader->out->count) {
        read_fail(reader, EBADMSG);
    }
}

static void read_runnable(struct reader *reader)
{
    uint64_t *ns = NULL;
    int count = 0;
    if (reader->out->runnable_ns != NULL || !read_is(reader, '[')) {
        read_fail(reader, EBADMSG);
    }
    for (bool more = reader->error == 0 && !read_is(reader, ']');
         more && reader->error == 0;) {
        if ((count & (count - 1)) == 0) {
            ns = poise_realloc(reader->out->runnable_ns,
                               count > 0 ? 2 * (size_t)count : 1, sizeof *ns);
            if (ns == NULL) {
                read_fail(reader, ENOMEM);
                return;
            }
            reader->out->runnable_ns = ns;
        }
        ns[count++] = (uint64_t)read_number(reader);
        more = read_is(reader, ',');
        if (!more && !read_is(reader, ']')) {
            read_fail(reader, EBADMSG);
        }
    }
    reader->out->ranks_most = count - 1;
}

static void read_member(struct reader *reader, const char *name, void *arg)
{
    char text[64];
    (void)arg;
    for (int s = 0; s < SECTIONS; s++) {
        if (strcmp(name, sections[s].name) == 0) {
            read_section(reader, &sections[s]);
            return;
        }
    }
    bool is_policy = strcmp(name, "policy") == 0;
    if (strcmp(name, "runnable_ns") == 0) {
        read_runnable(reader);
    } else if (strcmp(name, "format") == 0) {
        read_string(reader, text, sizeof text);
        reader->has_format = strcmp(text, FILE_FORMAT) == 0;
    } else if (strcmp(name, "version") == 0) {
        if (read_number(reader) > FILE_VERSION) {
            read_fail(reader, EPROTO);
        }
    } else if (is_policy || strcmp(name, "placement") == 0) {
        /* Two names of less than 64 characters. */
        char *at = reader->out->text + (is_policy ? 0 : 64);
        read_string(reader, at, 64);
        *(is_policy ? &reader->out->policy : &reader->out->placement) = at;
    } else {
        read_field(reader, head_fields, name, reader->out);
    }
}

/* Whether all numbers of ranks are in range. */
static bool is_sound(const struct poise_vrank_profile *profile)
{
    bool sound = profile->count > 0 && profile->ranks != NULL &&
                 profile->ranks_most >= 0 && profile->runnable_ns != NULL;
    for (int i = 0; sound && i < profile->count; i++) {
        sound = profile->ranks[i].rank == i;
    }
    for (int i = 0; sound && i < profile->edge_count; i++) {
        const struct poise_vrank_profile_edge *edge = &profile->edges[i];
        sound = edge->from >= 0 && edge->from < profile->count &&
                edge->to >= 0 && edge->to < profile->count;
    }
    return sound;
}

static int parse(struct poise_buf *text, const char *path,
                 struct poise_vrank_profile *out)
{
    struct reader reader = {.begin = text->data, .pos = text->data, .out = out};
    reader.end = text->data + text->len;
    out->text = poise_alloc(2, 64);
    if (out->text == NULL) {
        return -ENOMEM;
    }
    out->policy = out->placement = out->text + 63;
    read_object(&reader, read_member, NULL);
    if (reader.error == -ENOMEM) {
        return -ENOMEM;
    }
    if (reader.error != 0 || !reader.has_format || !is_sound(out)) {
        return poise_error_set(
            reader.error == -EPROTO ? EPROTO : EBADMSG, "read the profile",
            path,
            reader.error == -EPROTO ? "a newer Poise wrote it"
            : reader.error != 0     ? "damaged at byte %zu"
                                    : "this is no profile of 'poise run'",
            (size_t)(reader.pos - reader.begin));
    }
    return 0;
}

static int read_text(const char *path, struct poise_buf *out)
{
    struct stat status;
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    int code = 0;
    if (fstat(fd, &status) != 0 || status.st_size > FILE_MOST) {
        code = poise_error_set(EFBIG, "read the profile", path, NULL);
    }
    char *room =
        code == 0 ? poise_buf_reserve(out, (size_t)status.st_size + 1) : NULL;
    if (code == 0 && room == NULL) {
        code = -ENOMEM;
    }
    if (code == 0) {
        ssize_t length =
            poise_file_read(fd, room, (size_t)status.st_size, path);
        out->len = length > 0 ? (size_t)length : 0;
        code = length < 0 ? (int)length : 0;
    }
    poise_file_close(fd, path);
    return code;
}

int poise_vrank_profile_read(const char *path, struct poise_vrank_profile **out)
{
    struct poise_buf text = {0};
    struct poise_vrank_profile *profile = poise_alloc(1, sizeof *profile);
    int code = profile != NULL ? read_text(path, &text) : -ENOMEM;
    if (code == 0) {
        code = parse(&text, path, profile);
    }
    poise_buf_free(&text);
    if (code < 0) {
        poise_vrank_profile_free(profile);
        return code;
    }
    *out = profile;
    return 0;
}
