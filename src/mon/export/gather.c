/*
 * A session as tracks: records in the order of the stream, those that begin and
 * end something put together, then by ring and time; what overlaps without
 * lying in each other is moved to further lanes.
 */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lanes of a ring, so that a step takes few comparisons: what finds no place in
 * them is an instant. Of packets that wait in a link, say, there may be any
 * number at a time. */
enum { LANES_MOST = 32 };

/* Records that make a slice of two. */
static const struct {
    uint32_t begin, end;
    bool has_sequence; /* alike in both */
} pairs[] = {
    {POISE_TRACE_PHASE_BEGIN, POISE_TRACE_PHASE_END, true},
    {POISE_TRACE_TASK_BEGIN, POISE_TRACE_TASK_END, true},
    {POISE_TRACE_IDLE_BEGIN, POISE_TRACE_IDLE_END, false},
    {POISE_TRACE_COLL_ENTER, POISE_TRACE_COLL_LEAVE, true},
};
enum { PAIRS = sizeof pairs / sizeof *pairs };

/* A ring while it is gathered. */
struct ring {
    uint32_t file, ring;
    int64_t open[PAIRS]; /* the newest item that waits for its end; -1 */
};

struct gathering {
    struct export_model *model;
    struct ring *rings;
    size_t ring_count;
    int64_t *outer; /* [item]: the one that waited before it; -1 */
    size_t capacity, names_before;
    size_t cached; /* the collector of the record before */
};

/* ---- names -------------------------------------------------------------- */

static int64_t keep_name(struct export_names *names, const char *text)
{
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->text[i], text) == 0) {
            return (int64_t)i;
        }
    }
    char **more = poise_realloc(names->text, names->count + 1, sizeof *more);
    if (!more) {
        return -ENOMEM;
    }
    names->text = more;
    more[names->count] = strdup(text);
    if (!more[names->count]) {
        return poise_error_set(ENOMEM, "export", text, NULL);
    }
    return (int64_t)names->count++;
}

/* A file may say anything; formats want text. */
int64_t export_name(struct export_names *names, const char *text)
{
    struct poise_buf clean = {0};
    poise_buf_escape(&clean, text, strlen(text));
    int64_t number =
        clean.error ? clean.error : keep_name(names, poise_buf_str(&clean));
    poise_buf_free(&clean);
    return number;
}

void export_names_free(struct export_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        free(names->text[i]);
    }
    free(names->text);
}

/* ---- collectors --------------------------------------------------------- */

static int name_arguments(struct export_model *model,
                          struct export_collector *collector)
{
    for (int i = 0; i <= POISE_TRACE_VALUES; i++) {
        const char *name = i == 0 ? collector->type.sequence
                                  : collector->type.values[i - 1].name;
        int64_t number =
            export_name(&model->arguments, name[0] ? name : "number");
        if (number < 0) {
            return (int)number;
        }
        collector->arguments[i] = (uint32_t)number;
    }
    return 0;
}

/* Of a call its own name; of what begins something its type's without that. */
static int name_items(struct export_model *model,
                      struct export_collector *collector)
{
    char name[sizeof collector->place.name];
    bool is_call = collector->place.type == POISE_TRACE_CALL;
    snprintf(name, sizeof name, "%s",
             is_call && collector->place.name[0] ? collector->place.name
                                                 : collector->type.name);
    for (int i = 0; i < PAIRS; i++) {
        if (collector->id == pairs[i].begin) {
            *strrchr(name, '-') = '\0';
        }
    }
    int64_t number = export_name(&model->names, name);
    collector->name = (uint32_t)number;
    return number < 0 ? (int)number : 0;
}

/* The collector's number in the model; -ENOMEM. */
static int64_t collector_of(struct gathering *to,
                            const struct poise_trace_moment *moment)
{
    struct export_model *model = to->model;
    uint32_t id = moment->event->collector;
    for (size_t k = 0; k < model->collector_count; k++) {
        size_t i = (to->cached + k) % model->collector_count;
        if (model->collectors[i].id == id &&
            model->collectors[i].file == moment->file) {
            to->cached = i;
            return (int64_t)i;
        }
    }
    struct export_collector *more = poise_realloc(
        model->collectors, model->collector_count + 1, sizeof *more);
    if (!more) {
        return -ENOMEM;
    }
    model->collectors = more;
    struct export_collector *collector = &more[model->collector_count];
    const struct poise_trace_view *view = model->files[moment->file].view;
    *collector = (struct export_collector){.file = moment->file, .id = id};
    if (!poise_trace_type(view, id, &collector->type)) {
        snprintf(collector->type.name, sizeof collector->type.name, "record %u",
                 id);
    }
    if (!poise_trace_place(view, id, &collector->place)) {
        collector->place = (struct poise_trace_place){.type = id};
    }
    int code = name_items(model, collector);
    code = code < 0 ? code : name_arguments(model, collector);
    return code < 0 ? code : (int64_t)model->collector_count++;
}

/* ---- items -------------------------------------------------------------- */

static struct ring *ring_of(struct gathering *to,
                            const struct poise_trace_moment *moment)
{
    for (size_t i = 0; i < to->ring_count; i++) {
        if (to->rings[i].file == moment->file &&
            to->rings[i].ring == moment->ring) {
            return &to->rings[i];
        }
    }
    struct ring *more =
        poise_realloc(to->rings, to->ring_count + 1, sizeof *more);
    if (!more) {
        return NULL;
    }
    to->rings = more;
    struct ring *ring = &more[to->ring_count++];
    *ring = (struct ring){.file = moment->file, .ring = moment->ring};
    memset(ring->open, -1, sizeof ring->open);
    return ring;
}

static int make_room(struct gathering *to)
{
    struct export_model *model = to->model;
    if (model->item_count < to->capacity) {
        return 0;
    }
    size_t capacity = to->capacity ? 2 * to->capacity : 4096;
    struct export_item *items =
        poise_realloc(model->items, capacity, sizeof *items);
    if (!items) {
        return -ENOMEM;
    }
    model->items = items;
    int64_t *outer = poise_realloc(to->outer, capacity, sizeof *outer);
    if (!outer) {
        return -ENOMEM;
    }
    to->outer = outer;
    to->capacity = capacity;
    return 0;
}

/* Its begin is there: true. */
static bool end_pair(struct gathering *to, struct ring *ring, int pair,
                     const struct poise_trace_moment *moment)
{
    int64_t at = ring->open[pair];
    if (at < 0) {
        return false;
    }
    struct export_item *item = &to->model->items[at];
    if (pairs[pair].has_sequence &&
        item->event->sequence != moment->event->sequence) {
        return false;
    }
    item->left_ns = moment->ns > item->enter_ns ? moment->ns : item->enter_ns;
    item->is_instant = false;
    item->is_pair = true;
    ring->open[pair] = to->outer[at];
    return true;
}

/* The last time of a record, if it has two. */
static bool end_of(const struct export_model *model,
                   const struct export_collector *collector,
                   const struct poise_trace_moment *moment, int64_t *ns)
{
    uint64_t error;
    int64_t first = 0;
    int last = 0;
    for (int i = 1; i < POISE_TRACE_VALUES; i++) {
        last = collector->type.values[i].unit == POISE_TRACE_TIME ? i : last;
    }
    if (last == 0) {
        return false;
    }
    poise_trace_session_time(model->session, moment->file,
                             moment->event->values[0], &first, &error);
    poise_trace_session_time(model->session, moment->file,
                             moment->event->values[last], ns, &error);
    /* What the record was moved by, so is its end. */
    *ns = *ns > first ? moment->ns + (*ns - first) : moment->ns;
    return true;
}

static int add(struct gathering *to, const struct poise_trace_moment *moment)
{
    struct export_model *model = to->model;
    int64_t collector = collector_of(to, moment);
    struct ring *ring = ring_of(to, moment);
    if (collector < 0 || !ring || make_room(to) < 0) {
        return -ENOMEM;
    }
    int begins = -1;
    for (int i = 0; i < PAIRS; i++) {
        if (moment->event->collector == pairs[i].end &&
            end_pair(to, ring, i, moment)) {
            return 0;
        }
        begins = moment->event->collector == pairs[i].begin ? i : begins;
    }
    struct export_item *item = &model->items[model->item_count];
    *item = (struct export_item){
        .enter_ns = moment->ns,
        .left_ns = moment->ns,
        .event = moment->event,
        .name = model->collectors[collector].name,
        .file = moment->file,
        .ring = moment->ring,
        .collector = (uint32_t)collector,
        .order = model->item_count,
    };
    item->is_instant =
        !end_of(model, &model->collectors[collector], moment, &item->left_ns);
    if (begins == 0) {
        /* A phase has its own name, of eight characters. */
        char text[9] = {0};
        export_text(model, item, 1, text);
        int64_t name = export_name(&model->names, text[0] ? text : "phase");
        if (name < 0) {
            return (int)name;
        }
        item->name = (uint32_t)name;
    }
    if (begins >= 0) {
        to->outer[model->item_count] = ring->open[begins];
        ring->open[begins] = (int64_t)model->item_count;
    }
    model->item_count++;
    return 0;
}

/* ---- tracks ------------------------------------------------------------- */

static int compare(const void *left, const void *right)
{
    const struct export_item *a = left, *b = right;
    int order = (a->file > b->file) - (a->file < b->file);
    order = order ? order : (a->ring > b->ring) - (a->ring < b->ring);
    order = order ? order : (a->lane > b->lane) - (a->lane < b->lane);
    order = order ? order
                  : (a->enter_ns > b->enter_ns) - (a->enter_ns < b->enter_ns);
    /* The longer one is around the shorter one. */
    order =
        order ? order : (a->left_ns < b->left_ns) - (a->left_ns > b->left_ns);
    return order ? order : (a->order > b->order) - (a->order < b->order);
}

/* The slices that are open in a lane, the innermost last. */
struct lane {
    int64_t *ends;
    size_t depth, capacity;
};

static int push(struct lane *lane, int64_t end)
{
    if (lane->depth == lane->capacity) {
        size_t capacity = lane->capacity ? 2 * lane->capacity : 16;
        int64_t *ends = poise_realloc(lane->ends, capacity, sizeof *ends);
        if (!ends) {
            return -ENOMEM;
        }
        lane->ends = ends;
        lane->capacity = capacity;
    }
    lane->ends[lane->depth++] = end;
    return 0;
}

static int place(struct lane *lanes, struct export_item *item)
{
    for (uint32_t i = 0; i < LANES_MOST && !item->is_instant; i++) {
        struct lane *lane = &lanes[i];
        while (lane->depth > 0 &&
               lane->ends[lane->depth - 1] <= item->enter_ns) {
            lane->depth--;
        }
        if (lane->depth == 0 || lane->ends[lane->depth - 1] >= item->left_ns) {
            item->lane = i;
            return push(lane, item->left_ns);
        }
    }
    item->is_instant = true;
    item->left_ns = item->enter_ns;
    return 0;
}

static int place_all(struct export_model *model)
{
    struct lane lanes[LANES_MOST] = {0};
    int code = 0;
    for (size_t i = 0; i < model->item_count && code == 0; i++) {
        struct export_item *item = &model->items[i];
        if (i == 0 || item->file != item[-1].file ||
            item->ring != item[-1].ring) {
            for (int k = 0; k < LANES_MOST; k++) {
                lanes[k].depth = 0;
            }
        }
        code = place(lanes, item);
    }
    for (int k = 0; k < LANES_MOST; k++) {
        free(lanes[k].ends);
    }
    return code;
}

static int make_tracks(struct export_model *model)
{
    for (size_t i = 0; i < model->item_count; i++) {
        const struct export_item *item = &model->items[i];
        if (i > 0 && item->file == item[-1].file &&
            item->ring == item[-1].ring && item->lane == item[-1].lane) {
            model->tracks[model->track_count - 1].count++;
            continue;
        }
        struct export_track *more =
            poise_realloc(model->tracks, model->track_count + 1, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        model->tracks = more;
        more[model->track_count++] = (struct export_track){
            .file = item->file,
            .ring = item->ring,
            .lane = item->lane,
            .first = i,
            .count = 1,
        };
    }
    return 0;
}

static void count(struct export_model *model)
{
    struct poise_monitor_exported *counts = &model->counts;
    for (size_t i = 0; i < model->item_count; i++) {
        const struct export_item *item = &model->items[i];
        counts->records += item->is_pair ? 2 : 1;
        counts->paired += item->is_pair && !item->is_instant;
        *(item->is_instant ? &counts->instants : &counts->slices) += 1;
        model->last_ns =
            item->left_ns > model->last_ns ? item->left_ns : model->last_ns;
    }
    counts->tracks = model->track_count;
    for (unsigned i = 0; i < model->file_count; i++) {
        counts->left_out += model->files[i].lost + model->files[i].unfinished;
    }
}

/* ---- all of it ---------------------------------------------------------- */

static int gather(struct gathering *to)
{
    struct export_model *model = to->model;
    struct poise_trace_moment moment;
    model->file_count = poise_trace_session_files(model->session);
    model->files = poise_alloc(model->file_count + 1, sizeof *model->files);
    int code = model->files ? 0 : -ENOMEM;
    for (unsigned i = 0; i < model->file_count && code == 0; i++) {
        code = poise_trace_session_file(model->session, i, &model->files[i]);
    }
    poise_trace_session_rewind(model->session);
    while (code == 0 && poise_trace_session_next(model->session, &moment) > 0) {
        code = add(to, &moment);
    }
    if (code < 0) {
        return code;
    }
    if (model->item_count > 0) {
        qsort(model->items, model->item_count, sizeof *model->items, compare);
        code = place_all(model);
        qsort(model->items, model->item_count, sizeof *model->items, compare);
    }
    code = code < 0 ? code : make_tracks(model);
    if (code == 0) {
        count(model);
    }
    return code;
}

int export_gather(struct poise_trace_session *session, struct export_model *out)
{
    struct gathering to = {.model = out};
    *out = (struct export_model){.session = session};
    int code = gather(&to);
    free(to.rings);
    free(to.outer);
    if (code < 0) {
        export_free(out);
    }
    return code;
}

void export_free(struct export_model *model)
{
    export_names_free(&model->names);
    export_names_free(&model->arguments);
    free(model->files);
    free(model->items);
    free(model->tracks);
    free(model->collectors);
    *model = (struct export_model){0};
}

/* ---- looking ------------------------------------------------------------ */

int export_track_name(const struct export_model *model,
                      const struct export_track *track, struct poise_buf *out)
{
    struct poise_trace_ring_info info;
    int code = poise_trace_ring_info(model->files[track->file].view,
                                     track->ring, &info);
    if (code < 0) {
        return code;
    }
    poise_buf_reset(out);
    if (info.name[0]) {
        poise_buf_escape(out, info.name, strlen(info.name));
    } else {
        poise_buf_printf(out, "thread %u", track->ring);
    }
    if (track->lane > 0) {
        poise_buf_printf(out, " (%u)", track->lane + 1);
    }
    return out->error;
}

int export_walk(const struct export_model *model,
                const struct export_track *track, export_step_fn *step,
                void *arg)
{
    const struct export_item *items = &model->items[track->first];
    size_t *open = poise_alloc(track->count + 1, sizeof *open), depth = 0;
    int code = open ? 0 : -ENOMEM;
    for (size_t i = 0; i < track->count && code == 0; i++) {
        while (code == 0 && depth > 0 &&
               items[open[depth - 1]].left_ns <= items[i].enter_ns) {
            const struct export_item *item = &items[open[--depth]];
            code = step(item, EXPORT_LEFT, item->left_ns, arg);
        }
        if (code == 0) {
            code = step(&items[i],
                        items[i].is_instant ? EXPORT_INSTANT : EXPORT_ENTER,
                        items[i].enter_ns, arg);
        }
        if (!items[i].is_instant) {
            open[depth++] = i;
        }
    }
    while (code == 0 && depth > 0) {
        const struct export_item *item = &items[open[--depth]];
        code = step(item, EXPORT_LEFT, item->left_ns, arg);
    }
    free(open);
    return code;
}

bool export_value(const struct export_model *model,
                  const struct export_item *item, int at, int64_t *value,
                  bool *is_signed)
{
    const struct export_collector *collector =
        &model->collectors[item->collector];
    uint32_t unit = collector->type.values[at].unit;
    uint64_t error;
    int64_t first = 0, then = 0;
    *is_signed = unit == POISE_TRACE_RANK;
    *value = (int64_t)item->event->values[at];
    if (unit == POISE_TRACE_TIME && at > 0) {
        poise_trace_session_time(model->session, item->file,
                                 item->event->values[0], &first, &error);
        poise_trace_session_time(model->session, item->file,
                                 item->event->values[at], &then, &error);
        *value = then > first ? then - first : 0;
    }
    return unit != POISE_TRACE_UNUSED && unit != POISE_TRACE_TEXT && at > 0;
}

bool export_text(const struct export_model *model,
                 const struct export_item *item, int at, char out[9])
{
    for (int i = 0; i < 8; i++) {
        out[i] = (char)(item->event->values[at] >> (8 * i) & 0xff);
    }
    out[8] = '\0';
    return model->collectors[item->collector].type.values[at].unit ==
           POISE_TRACE_TEXT;
}
