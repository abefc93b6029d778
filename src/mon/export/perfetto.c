/*
 * Perfetto's binary trace: messages of protocol buffers, of which this writes
 * only the fields that it needs (perfetto_trace.proto of its repository). Names
 * are interned in the first packet of the one sequence that there is.
 *
 * A message is a row of fields: a key (number << 3 | kind), then a number of 7
 * bits a byte, 8 bytes, or a length and that many bytes.
 */
#include "internal.h"

#include <errno.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2 };

/* Numbers of fields, by message. */
enum {
    TRACE_PACKET = 1,
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE_ID = 10,
    PACKET_EVENT = 11,
    PACKET_INTERNED = 12,
    PACKET_SEQUENCE_FLAGS = 13,
    PACKET_TRACK = 60,
    TRACK_UUID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_PARENT = 5,
    TRACK_ORDERING = 11,
    TRACK_ORDER = 12,
    TRACK_DESCRIPTION = 14,
    PROCESS_PID = 1,
    PROCESS_ORDER = 3,
    PROCESS_NAME = 6,
    INTERNED_EVENT = 2,
    INTERNED_ARGUMENT = 3,
    INTERNED_ID = 1,
    INTERNED_NAME = 2,
    EVENT_ARGUMENT = 4,
    EVENT_TYPE = 9,
    EVENT_NAME_ID = 10,
    EVENT_TRACK = 11,
    EVENT_CATEGORY = 22,
    EVENT_FLOW = 47,
    EVENT_CORRELATION = 52,
    ARGUMENT_ID = 1,
    ARGUMENT_UINT = 3,
    ARGUMENT_INT = 4,
    ARGUMENT_TEXT = 6,
    ARGUMENT_NAME = 10,
};
enum { STATE_CLEARED = 1, NEEDS_STATE = 2, ORDER_EXPLICIT = 3 };
enum { SLICE_BEGIN = 1, SLICE_END = 2, INSTANT = 3 };

/* Written when so many bytes are there. */
enum { FLUSH_BYTES = 1 << 20 };

struct writer {
    const struct export_model *model;
    struct poise_buf out, packet, message, part;
    uint64_t track; /* the uuid of the current one */
    int fd;
    const char *path;
};

/* ---- protocol buffers --------------------------------------------------- */

static void put_varint(struct poise_buf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        poise_buf_putc(out, (char)((value & 0x7f) | 0x80));
    }
    poise_buf_putc(out, (char)value);
}

static void put_number(struct poise_buf *out, unsigned field, uint64_t value)
{
    put_varint(out, (uint64_t)field << 3 | VARINT);
    put_varint(out, value);
}

static void put_fixed(struct poise_buf *out, unsigned field, uint64_t value)
{
    put_varint(out, (uint64_t)field << 3 | FIXED64);
    for (int i = 0; i < 8; i++) {
        poise_buf_putc(out, (char)(value >> (8 * i) & 0xff));
    }
}

static void put_bytes(struct poise_buf *out, unsigned field, const char *bytes,
                      size_t count)
{
    put_varint(out, (uint64_t)field << 3 | BYTES);
    put_varint(out, count);
    poise_buf_append(out, bytes, count);
}

static void put_text(struct poise_buf *out, unsigned field, const char *text)
{
    put_bytes(out, field, text, strlen(text));
}

/* A message as a field of another one; it is empty then. */
static void put_message(struct poise_buf *out, unsigned field,
                        struct poise_buf *message)
{
    put_bytes(out, field, message->data, message->len);
    if (message->error) {
        out->error = message->error;
    }
    poise_buf_reset(message);
}

static int flush(struct writer *to)
{
    int code = to->out.error;
    if (code == 0 && to->out.len > 0) {
        code = poise_file_write(to->fd, to->out.data, to->out.len, to->path);
    }
    poise_buf_reset(&to->out);
    return code;
}

static int end_packet(struct writer *to, uint64_t flags)
{
    put_number(&to->packet, PACKET_SEQUENCE_ID, 1);
    put_number(&to->packet, PACKET_SEQUENCE_FLAGS, flags);
    put_message(&to->out, TRACE_PACKET, &to->packet);
    return to->out.len >= FLUSH_BYTES ? flush(to) : to->out.error;
}

/* ---- names -------------------------------------------------------------- */

static void intern(struct writer *to, unsigned field,
                   const struct export_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        put_number(&to->part, INTERNED_ID, i + 1);
        put_text(&to->part, INTERNED_NAME, names->text[i]);
        put_message(&to->message, field, &to->part);
    }
}

static int put_names(struct writer *to)
{
    intern(to, INTERNED_EVENT, &to->model->names);
    intern(to, INTERNED_ARGUMENT, &to->model->arguments);
    put_message(&to->packet, PACKET_INTERNED, &to->message);
    return end_packet(to, STATE_CLEARED);
}

/* ---- tracks ------------------------------------------------------------- */

/* Processes first, then tracks; 0 is Perfetto's own. */
static uint64_t process_uuid(uint32_t file)
{
    return (uint64_t)file + 1;
}

static uint64_t track_uuid(const struct export_model *model, size_t number)
{
    return (uint64_t)model->file_count + 1 + number;
}

static int put_process(struct writer *to, uint32_t number)
{
    const struct poise_trace_file *file = &to->model->files[number];
    struct poise_buf text = {0};
    /* Process numbers may be alike on two hosts; ranks are not. */
    put_number(&to->part, PROCESS_PID, (uint64_t)file->info.rank + 1);
    put_number(&to->part, PROCESS_ORDER, (uint64_t)file->info.rank);
    poise_buf_printf(&text, "rank %d", file->info.rank);
    put_text(&to->part, PROCESS_NAME, poise_buf_str(&text));
    put_number(&to->message, TRACK_UUID, process_uuid(number));
    put_message(&to->message, TRACK_PROCESS, &to->part);
    put_number(&to->message, TRACK_ORDERING, ORDER_EXPLICIT);
    poise_buf_reset(&text);
    poise_buf_printf(&text, "%s, process %d of host %s; ", file->info.program,
                     file->info.pid, file->info.host);
    poise_human_count(&text, file->lost + file->unfinished);
    poise_buf_puts(&text, " older records are left out");
    put_text(&to->message, TRACK_DESCRIPTION, poise_buf_str(&text));
    if (text.error) {
        to->message.error = text.error;
    }
    poise_buf_free(&text);
    put_message(&to->packet, PACKET_TRACK, &to->message);
    return end_packet(to, NEEDS_STATE);
}

static int put_track(struct writer *to, size_t number)
{
    const struct export_track *track = &to->model->tracks[number];
    struct poise_buf name = {0};
    int code = export_track_name(to->model, track, &name);
    if (code == 0) {
        put_number(&to->message, TRACK_UUID, to->track);
        put_number(&to->message, TRACK_PARENT, process_uuid(track->file));
        put_text(&to->message, TRACK_NAME, poise_buf_str(&name));
        put_number(&to->message, TRACK_ORDER, number);
        put_message(&to->packet, PACKET_TRACK, &to->message);
        code = end_packet(to, NEEDS_STATE);
    }
    poise_buf_free(&name);
    return code;
}

/* ---- events ------------------------------------------------------------- */

static void put_arguments(struct writer *to, const struct export_item *item)
{
    const struct export_collector *collector =
        &to->model->collectors[item->collector];
    for (int i = 0; i <= POISE_TRACE_VALUES; i++) {
        int64_t value = (int64_t)item->event->sequence;
        bool is_signed = false;
        char text[9];
        put_number(&to->part, ARGUMENT_ID, collector->arguments[i] + 1);
        if (i == 0 ? collector->type.sequence[0] != '\0'
                   : export_value(to->model, item, i - 1, &value, &is_signed)) {
            put_number(&to->part, is_signed ? ARGUMENT_INT : ARGUMENT_UINT,
                       (uint64_t)value);
        } else if (i > 0 && export_text(to->model, item, i - 1, text) &&
                   text[0]) {
            /* Text of any bytes would be no text of a message. */
            struct poise_buf whole = {0};
            poise_buf_escape(&whole, text, strlen(text));
            put_text(&to->part, ARGUMENT_TEXT, poise_buf_str(&whole));
            poise_buf_free(&whole);
        } else {
            poise_buf_reset(&to->part);
            continue;
        }
        put_message(&to->message, EVENT_ARGUMENT, &to->part);
    }
    if (collector->place.group_name[0]) {
        struct poise_buf whole = {0};
        poise_buf_escape(&whole, collector->place.group_name,
                         strlen(collector->place.group_name));
        put_text(&to->part, ARGUMENT_NAME, "group");
        put_text(&to->part, ARGUMENT_TEXT, poise_buf_str(&whole));
        put_message(&to->message, EVENT_ARGUMENT, &to->part);
        poise_buf_free(&whole);
    }
}

/* What it belongs to: the other parts of its call, its message's other end. */
static void put_links(struct writer *to, const struct export_item *item)
{
    const struct export_collector *collector =
        &to->model->collectors[item->collector];
    const struct poise_trace_event *event = item->event;
    uint64_t rank = (uint64_t)to->model->files[item->file].info.rank;
    if (collector->place.type == POISE_TRACE_CALL && collector->place.group) {
        put_number(&to->message, EVENT_CORRELATION,
                   poise_hash_u64(collector->place.group + event->sequence));
    }
    if (collector->id == POISE_TRACE_SEND ||
        collector->id == POISE_TRACE_RECEIVE) {
        bool sends = collector->id == POISE_TRACE_SEND;
        uint64_t pair = sends ? rank << 32 | (event->values[1] & UINT32_MAX)
                              : event->values[1] << 32 | rank;
        put_fixed(&to->message, EVENT_FLOW,
                  poise_hash_u64(poise_hash_u64(pair) ^ event->sequence));
    }
}

static int put_step(const struct export_item *item, enum export_what what,
                    int64_t ns, void *arg)
{
    static const unsigned types[] = {[EXPORT_ENTER] = SLICE_BEGIN,
                                     [EXPORT_LEFT] = SLICE_END,
                                     [EXPORT_INSTANT] = INSTANT};
    struct writer *to = arg;
    put_number(&to->packet, PACKET_TIMESTAMP, ns > 0 ? (uint64_t)ns : 0);
    put_number(&to->message, EVENT_TYPE, types[what]);
    put_number(&to->message, EVENT_TRACK, to->track);
    if (what != EXPORT_LEFT) {
        put_number(&to->message, EVENT_NAME_ID, (uint64_t)item->name + 1);
        put_text(&to->message, EVENT_CATEGORY,
                 to->model->collectors[item->collector].type.name);
        put_arguments(to, item);
        put_links(to, item);
    }
    put_message(&to->packet, PACKET_EVENT, &to->message);
    return end_packet(to, NEEDS_STATE);
}

static int put_all(struct writer *to)
{
    const struct export_model *model = to->model;
    int code = put_names(to);
    for (uint32_t i = 0; i < model->file_count && code == 0; i++) {
        code = put_process(to, i);
    }
    for (size_t i = 0; i < model->track_count && code == 0; i++) {
        to->track = track_uuid(model, i);
        code = put_track(to, i);
        if (code == 0) {
            code = export_walk(model, &model->tracks[i], put_step, to);
        }
    }
    return code < 0 ? code : flush(to);
}

int poise_monitor_export_perfetto(struct poise_trace_session *session, int fd,
                                  const char *path,
                                  struct poise_monitor_exported *out)
{
    struct export_model model;
    int code = export_gather(session, &model);
    if (code < 0) {
        return code;
    }
    struct writer to = {.model = &model, .fd = fd, .path = path};
    code = put_all(&to);
    if (code == 0) {
        *out = model.counts;
    }
    poise_buf_free(&to.out);
    poise_buf_free(&to.packet);
    poise_buf_free(&to.message);
    poise_buf_free(&to.part);
    export_free(&model);
    return code;
}
