/* What poise trace run says of TCP: connections on which segments were sent
 * again, and the calls that had to wait for them. */
#include "monitor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Connections of the JSON, and of the text. */
enum { ALL_MOST = 4096, SHOWN_MOST = 3 };

static void put_ends(const struct poise_monitor_connection *connection,
                     struct poise_buf *out)
{
    int more = connection->again[1] > connection->again[0];
    poise_buf_printf(out, "%llu from rank %d",
                     (unsigned long long)connection->again[more],
                     connection->ranks[more]);
    if (connection->ranks[!more] >= 0) {
        poise_buf_printf(out, " to rank %d", connection->ranks[!more]);
    }
    poise_buf_puts(out, " (a round trip takes ");
    poise_human_ns(out, (uint64_t)connection->rtt_ns);
    poise_buf_puts(out, ", at best ");
    poise_human_ns(out, (uint64_t)connection->least_rtt_ns);
    poise_buf_puts(out, ")");
}

static void put_connections(const struct monitor_run *run,
                            struct poise_buf *out)
{
    struct poise_monitor_connection worst[SHOWN_MOST] = {0};
    size_t count =
        poise_monitor_system_connections(run->system, worst, SHOWN_MOST);
    for (size_t i = 0; i < count && i < SHOWN_MOST &&
                       worst[i].again[0] + worst[i].again[1] > 0;
         i++) {
        poise_buf_puts(out, i ? ", " : " ");
        put_ends(&worst[i], out);
    }
    poise_buf_puts(out, ".\n");
}

void monitor_network_text(const struct monitor_run *run, struct poise_buf *out)
{
    const struct poise_monitor_operation *most = NULL;
    struct poise_monitor_resent resent = {0};
    for (unsigned i = 0; i < run->count; i++) {
        struct poise_monitor_resent here =
            poise_monitor_system_resent(run->system, run->operations[i]);
        if (here.inside_ns > resent.inside_ns) {
            resent = here;
            most = run->operations[i];
        }
    }
    if (!most) {
        return;
    }
    poise_buf_puts(out, "The network lost or held up what ");
    poise_human_count(out, resent.calls);
    poise_buf_puts(out, " calls of ");
    poise_buf_escape(out, most->name, strlen(most->name));
    poise_buf_puts(out, " waited for, in which a rank spent ");
    poise_human_ns(out, (uint64_t)(resent.inside_ns / most->size));
    poise_buf_puts(out, ": TCP sent ");
    poise_human_count(out, resent.segments);
    poise_buf_puts(out, resent.segments == 1 ? " segment again. In all,"
                                             : " segments again. In all,");
    put_connections(run, out);
}

static void put_connection(struct poise_json *json,
                           const struct poise_monitor_connection *connection)
{
    poise_json_object(json, NULL);
    poise_json_array(json, "ends");
    for (int end = 0; end < 2; end++) {
        if (connection->ranks[end] >= 0) {
            poise_json_object(json, NULL);
            poise_json_i64(json, "rank", connection->ranks[end]);
            poise_json_u64(json, "sent_again", connection->again[end]);
            poise_json_end_object(json);
        }
    }
    poise_json_end_array(json);
    poise_json_i64(json, "round_trip_ns", connection->rtt_ns);
    poise_json_i64(json, "least_round_trip_ns", connection->least_rtt_ns);
    poise_json_end_object(json);
}

int monitor_network_json(const struct monitor_run *run, struct poise_json *json)
{
    struct poise_monitor_connection *all = poise_alloc(ALL_MOST, sizeof *all);
    if (!all) {
        return -ENOMEM;
    }
    size_t count = poise_monitor_system_connections(run->system, all, ALL_MOST);
    poise_json_array(json, "connections");
    for (size_t i = 0; i < count && i < ALL_MOST; i++) {
        put_connection(json, &all[i]);
    }
    poise_json_end_array(json);
    free(all);
    return 0;
}
