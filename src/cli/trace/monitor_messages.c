/* What poise trace run --messages shows: who sent how much to whom, and who
 * waited. */
#include "monitor.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Rows of the text, and ranks of a side of the page's matrices. */
enum { ROWS_MOST = 10, SIDE_MOST = 256, ALL_MOST = 1 << 15 };

static struct poise_monitor_pair *
take_pairs(const struct poise_monitor_messages *messages, size_t *count)
{
    struct poise_monitor_pair *pairs = poise_alloc(ALL_MOST, sizeof *pairs);
    if (pairs) {
        *count = poise_monitor_messages_pairs(messages, pairs, ALL_MOST);
    }
    return pairs;
}

static int add_pair(struct poise_table *table,
                    const struct poise_monitor_pair *pair)
{
    enum { CELLS = 6 };
    struct poise_buf cells[CELLS] = {0};
    const char *text[CELLS];
    poise_buf_printf(&cells[0], "%d", pair->from);
    poise_buf_printf(&cells[1], "%d", pair->to);
    poise_human_count(&cells[2], pair->messages);
    poise_human_bytes(&cells[3], pair->bytes);
    poise_human_ns(&cells[4], (uint64_t)pair->receiver_ns);
    poise_human_ns(&cells[5], (uint64_t)pair->sender_ns);
    for (int i = 0; i < CELLS; i++) {
        text[i] = poise_buf_str(&cells[i]);
    }
    int code = poise_table_row(table, text);
    for (int i = 0; i < CELLS; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

static int put_pairs(const struct poise_monitor_pair *pairs, size_t count,
                     struct poise_buf *out)
{
    static const struct poise_column columns[] = {
        {"from", POISE_ALIGN_RIGHT},
        {"to", POISE_ALIGN_RIGHT},
        {"messages", POISE_ALIGN_RIGHT},
        {"bytes", POISE_ALIGN_RIGHT},
        {"receiver waited", POISE_ALIGN_RIGHT},
        {"sender waited", POISE_ALIGN_RIGHT}};
    struct poise_table *table;
    int code =
        poise_table_create(columns, sizeof columns / sizeof *columns, &table);
    for (size_t i = 0; code == 0 && i < count && i < ROWS_MOST; i++) {
        code = add_pair(table, &pairs[i]);
    }
    if (code == 0) {
        code = poise_table_text(table, out);
        poise_table_destroy(table);
    }
    return code;
}

int monitor_messages_text(const struct poise_monitor_messages *messages,
                          struct poise_buf *out)
{
    struct poise_monitor_unpaired unpaired =
        poise_monitor_messages_unpaired(messages);
    size_t count = 0;
    struct poise_monitor_pair *pairs = take_pairs(messages, &count);
    if (!pairs) {
        return -ENOMEM;
    }
    if (count == 0) {
        poise_buf_puts(out, "\nno point-to-point messages\n");
        free(pairs);
        return out->error;
    }
    poise_buf_puts(out, "\npoint-to-point messages, most waiting first\n\n");
    int code = put_pairs(pairs, count, out);
    if (count > ROWS_MOST) {
        poise_buf_printf(out, "and %zu pairs of ranks more: --json has all\n",
                         count - ROWS_MOST);
    }
    if (unpaired.alone > 0) {
        poise_buf_printf(out, "note: of %llu messages only one end is there\n",
                         (unsigned long long)unpaired.alone);
    }
    free(pairs);
    return code < 0 ? code : out->error;
}

/* What of a rank's lateness, in percent, is worth a hint. */
enum { HINT_SHARE = 5 };

/* Whom it waited for most, and how long for all. */
static int64_t waits_of_rank(const struct poise_monitor_messages *messages,
                             int rank, int *peer)
{
    size_t count = 0;
    int64_t all = 0, most = 0;
    struct poise_monitor_pair *pairs = take_pairs(messages, &count);
    for (size_t i = 0; pairs && i < count && i < ALL_MOST; i++) {
        int64_t ns = pairs[i].to == rank     ? pairs[i].receiver_ns
                     : pairs[i].from == rank ? pairs[i].sender_ns
                                             : 0;
        all += ns;
        if (ns > most) {
            most = ns;
            *peer = pairs[i].to == rank ? pairs[i].from : pairs[i].to;
        }
    }
    free(pairs);
    return all;
}

void monitor_messages_hint(const struct monitor_run *run,
                           const struct poise_monitor_operation *operation,
                           int rank, struct poise_buf *out)
{
    int peer = -1;
    int64_t late = operation->ranks[rank].program_ns;
    if (late * 100 < run->source.span_ns * HINT_SHARE) {
        return;
    }
    if (!run->messages) {
        poise_buf_puts(out, " Whether it computed then, or waited for a "
                            "message, --messages tells.");
        return;
    }
    /* Pairs are of MPI_COMM_WORLD's ranks. */
    int64_t waited = operation->size == run->source.size
                         ? waits_of_rank(run->messages, rank, &peer)
                         : 0;
    if (waited * 100 >= late * HINT_SHARE) {
        poise_buf_puts(out, " In point-to-point messages it waited for ");
        poise_human_ns(out, (uint64_t)waited);
        poise_buf_printf(out, ", for rank %d most.", peer);
    }
}

int monitor_messages_json(const struct poise_monitor_messages *messages,
                          struct poise_json *json)
{
    struct poise_monitor_unpaired unpaired =
        poise_monitor_messages_unpaired(messages);
    size_t count = 0;
    struct poise_monitor_pair *pairs = take_pairs(messages, &count);
    if (!pairs) {
        return -ENOMEM;
    }
    poise_json_object(json, "messages");
    poise_json_u64(json, "alone", unpaired.alone);
    poise_json_u64(json, "doubtful", unpaired.doubtful);
    poise_json_u64(json, "unplaced", unpaired.unplaced);
    poise_json_array(json, "pairs");
    for (size_t i = 0; i < count; i++) {
        poise_json_object(json, NULL);
        poise_json_i64(json, "from", pairs[i].from);
        poise_json_i64(json, "to", pairs[i].to);
        poise_json_u64(json, "messages", pairs[i].messages);
        poise_json_u64(json, "bytes", pairs[i].bytes);
        poise_json_u64(json, "matched", pairs[i].matched);
        poise_json_i64(json, "receiver_waited_ns", pairs[i].receiver_ns);
        poise_json_u64(json, "receiver_waits", pairs[i].receiver_waits);
        poise_json_i64(json, "sender_waited_ns", pairs[i].sender_ns);
        poise_json_u64(json, "sender_waits", pairs[i].sender_waits);
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
    poise_json_end_object(json);
    free(pairs);
    return 0;
}

/* What is drawn of a pair. */
static double bytes_of(const struct poise_monitor_pair *pair)
{
    return (double)pair->bytes;
}

static double waits_of(const struct poise_monitor_pair *pair)
{
    return (double)pair->receiver_ns;
}

static int draw(struct poise_page *page, const struct poise_heatmap *map,
                const struct poise_monitor_pair *pairs, size_t count,
                double (*value)(const struct poise_monitor_pair *))
{
    struct poise_heatmap drawn = *map;
    double *values =
        poise_alloc(map->row_count * map->column_count, sizeof *values);
    if (!values) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        if ((size_t)pairs[i].from < map->row_count &&
            (size_t)pairs[i].to < map->column_count) {
            values[(size_t)pairs[i].from * map->column_count +
                   (size_t)pairs[i].to] += value(&pairs[i]);
        }
    }
    drawn.values = values;
    int code = poise_page_heatmap(page, &drawn);
    free(values);
    return code;
}

int monitor_messages_draw(const struct poise_monitor_messages *messages,
                          int size, struct poise_page *page)
{
    size_t count = 0, side = size > SIDE_MOST ? SIDE_MOST : (size_t)size;
    struct poise_monitor_pair *pairs = take_pairs(messages, &count);
    if (!pairs || count == 0) {
        int code = pairs ? 0 : -ENOMEM;
        free(pairs);
        return code;
    }
    struct poise_heatmap map = {.title = "Communication matrix: bytes",
                                .row_label = "from rank",
                                .column_label = "to rank",
                                .row_count = side,
                                .column_count = side,
                                .unit = POISE_UNIT_BYTES,
                                .kind = POISE_HEATMAP_AMOUNTS};
    int code = poise_page_section(
        page, "Point-to-point messages",
        size > SIDE_MOST ? "Of the first 256 ranks. A receiver waited if it "
                           "came before the sender."
                         : "A receiver waited if it came before the sender.");
    code = code < 0 ? code : draw(page, &map, pairs, count, bytes_of);
    map.title = "Receivers waited for senders";
    map.unit = POISE_UNIT_NS;
    code = code < 0 ? code : draw(page, &map, pairs, count, waits_of);
    free(pairs);
    return code;
}
