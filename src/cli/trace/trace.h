/* What poise trace shows, gathered from one session. */
#ifndef POISE_CLI_TRACE_H
#define POISE_CLI_TRACE_H

#include "cli/common/common.h"

#include <poise/trace_session.h>

/** What one ring's records come to. */
struct trace_ring {
    struct poise_trace_ring_info info;
    unsigned file, ring;
    uint64_t lost, tasks, sent, sent_bytes, received;
    int64_t idle_ns, idle_since; /**< since: INT64_MIN if it is not */
    uint64_t kinds[POISE_TRACE_KINDS], others;
};

/** What the records of one collector, or of those alike of all ranks, come to:
 * durations from their first time to their last one. */
struct trace_span {
    char type[24], name[60], group[24];
    uint64_t count, timed, sum_ns, most_ns;
};

struct trace_show {
    struct poise_trace_session *session;
    struct poise_trace_file *files;
    unsigned file_count;
    struct trace_ring *rings;
    unsigned ring_count;
    struct trace_span *spans;
    size_t span_count;
    bool one_clock; /**< all times are of the same clock */
    uint64_t messages, latency_sum_ns;
};

/** The ring of a moment. */
struct trace_ring *trace_ring_of(const struct trace_show *show, unsigned file,
                                 unsigned ring);
/** The time between the first and the last time of a record in ns; false: it
 * has but one. */
bool trace_duration(const struct trace_show *show,
                    const struct poise_trace_moment *moment,
                    const struct poise_trace_type *type, uint64_t *ns);
/** A value as words: "1,024 bytes" is not for machines, so plain numbers; text
 * as it is. */
void trace_value(const struct trace_show *show,
                 const struct poise_trace_moment *moment, uint32_t unit,
                 uint64_t value, struct poise_buf *out);
/** The name of what a record is of: its type's, "kind-N" if the file does not
 * say. */
void trace_type_name(const struct trace_show *show,
                     const struct poise_trace_moment *moment, char out[24]);

int trace_text(const struct trace_show *show, struct poise_buf *out);
int trace_text_events(struct trace_show *show, struct poise_buf *out);
int trace_json(struct trace_show *show, bool events, struct poise_buf *out);

/** Where a session goes for other people's tools; NULL: nowhere. */
struct trace_exports {
    const char *perfetto, *otf2;
};
/** Its options, of a struct of values that has such a member. */
#define TRACE_EXPORT_OPTIONS(type, member)                                     \
    {POISE_OPTION_STRING, .name = "perfetto", .arg = "FILE",                   \
     .help = "write the records as a Perfetto trace",                          \
     .offset = offsetof(type, member.perfetto)},                               \
    {                                                                          \
        POISE_OPTION_STRING, .name = "otf2", .arg = "DIR",                     \
                             .help = "write the records as an OTF2 archive",   \
                             .offset = offsetof(type, member.otf2)             \
    }
/** Write them; CLI_DONE, or the reason is printed. */
int trace_export(const char *command, struct poise_trace_session *session,
                 const struct trace_exports *to);

#endif
