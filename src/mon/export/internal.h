/* What exports have in common: a session as tracks of items. */
#ifndef POISE_MON_EXPORT_INTERNAL_H
#define POISE_MON_EXPORT_INTERNAL_H

#include <poise/core.h>
#include <poise/monitor_export.h>

/* Strings by number, each once. */
struct export_names {
    char **text;
    size_t count;
};

/* A slice, or an instant (left_ns == enter_ns). */
struct export_item {
    int64_t enter_ns, left_ns;
    const struct poise_trace_event *event; /* as long as the session */
    uint32_t name;                         /* of the model's names */
    uint32_t file, ring, lane;
    uint32_t collector; /* of the model's collectors */
    bool is_instant, is_pair;
    uint64_t order; /* in the stream */
};

/* What a collector's records are. */
struct export_collector {
    uint32_t file, id;
    struct poise_trace_place place;
    struct poise_trace_type type;
    uint32_t name;                              /* of items */
    uint32_t arguments[POISE_TRACE_VALUES + 1]; /* of the sequence, of values:
                                                   of the argument names */
};

struct export_track {
    uint32_t file, ring, lane;
    size_t first, count; /* of the items */
};

/* Owned by whoever gathered it. */
struct export_model {
    struct poise_trace_session *session;
    struct poise_trace_file *files; /* [file_count], by rank */
    unsigned file_count;
    struct export_item *items; /* of each track in the order of their times */
    size_t item_count;
    struct export_track *tracks;
    size_t track_count;
    struct export_collector *collectors;
    size_t collector_count;
    struct export_names names, arguments;
    int64_t last_ns;
    struct poise_monitor_exported counts;
};

int export_gather(struct poise_trace_session *session,
                  struct export_model *out);
void export_free(struct export_model *model);

/* The number of a string, without bytes that are no text; -ENOMEM. */
int64_t export_name(struct export_names *names, const char *text);
void export_names_free(struct export_names *names);

/* The name of a track: its ring's, with the lane's number. */
int export_track_name(const struct export_model *model,
                      const struct export_track *track, struct poise_buf *out);

enum export_what { EXPORT_ENTER, EXPORT_LEFT, EXPORT_INSTANT };
typedef int export_step_fn(const struct export_item *item,
                           enum export_what what, int64_t ns, void *arg);
/* A track's steps, in the order of their times, those of slices nested. */
int export_walk(const struct export_model *model,
                const struct export_track *track, export_step_fn *step,
                void *arg);

/* The value `at` of an item for a machine: text is not one, nor is a time but
 * the first, which is after that then. False: there is none. */
bool export_value(const struct export_model *model,
                  const struct export_item *item, int at, int64_t *value,
                  bool *is_signed);
/* Text values as text, in `out` of 9 bytes; false: it is none. */
bool export_text(const struct export_model *model,
                 const struct export_item *item, int at, char out[9]);

#endif
