/*
 * The tree by which the map hears of many nodes, and they of it.
 *
 * Members are in the order of their numbers; the first FLOW_FAN talk to the map
 * themselves, each of the others to the one that flow_tree_parent names, which
 * adds what its children said to its own next report as it came: entries, one
 * behind the other. The map's state goes the same way down. All else, plans,
 * deaths, probes, results, goes between the map and each node as ever, over a
 * connection which also tells the map at once when a process ends.
 *
 * The tree is for speed. Nobody is taken for dead because another one is
 * silent, nor for alive because another one speaks: each node reports to the
 * map itself, too, FLOW_ITSELF_PARTS times in the time after which it would be
 * declared dead, and is answered. So that is also how often it is heard where a
 * node between is stopped.
 *
 * So reports of a node go different ways, and the newest may come first, before
 * older ones, results and counts that were sent before it, or the only one of
 * them, if the other was lost with a node between. Therefore they are numbered,
 * and say how many results there were and the sum of all counts: the map
 * believes that a node is done, or stuck, or has reached a line, when it has
 * those (map_has_results, map_has_tallies). All counts are said anew after each
 * change of the way, and with each ANEWth report.
 *
 * The map's state may come by other nodes before or after what the map itself
 * said: it is heard only in the same epoch and of the same map, and without its
 * probe (map/termination.c), which has to come behind all that was said before.
 */
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define LOST_NS UINT64_C(5000000000)
/** All is said anew with each such report. */
#define ANEW 64

static uint64_t lost_ns(const struct flow_server *server)
{
    uint64_t lost = server->node->options->lost_ns;
    return lost ? lost : LOST_NS;
}

void flow_server_tell_anew(struct flow_server *server)
{
    memset(server->told, 0, server->count * sizeof *server->told);
}

void flow_server_tree(struct flow_server *server)
{
    uint16_t parent = FLOW_NOBODY;
    uint64_t own = 0, position = 0;
    for (unsigned n = 0; n < server->node->id; n++) {
        own += server->member[n];
    }
    server->child_count = 0;
    for (unsigned n = 0; n < server->count; n++) {
        if (!server->member[n]) {
            continue;
        }
        if (flow_tree_parent(own) == (int64_t)position) {
            parent = (uint16_t)n;
        }
        if (flow_tree_parent(position) == (int64_t)own) {
            server->children[server->child_count++] = (uint16_t)n;
        }
        position++;
    }
    server->parent = parent;
    flow_server_tell_anew(server);
}

static int say(struct flow_server *server, bool itself)
{
    struct poise_buf *all = &server->relayed;
    struct flow_item *item = flow_item_create(FLOW_REPORT, all->data, all->len);
    poise_buf_reset(all);
    return flow_server_post(server, itself ? FLOW_NOBODY : server->parent,
                            item);
}

int flow_server_relay(struct flow_server *server)
{
    return say(server, false);
}

int flow_server_say(struct flow_server *server, const struct poise_buf *report)
{
    uint64_t now = poise_clock_ns();
    bool itself = now - server->itself_ns > lost_ns(server) / FLOW_ITSELF_PARTS;
    server->itself_ns = itself ? now : server->itself_ns;
    if (++server->report_turn % ANEW == 0) {
        flow_server_tell_anew(server);
    }
    int code = report->error
                   ? report->error
                   : flow_entry_put(&server->relayed, server->node->id,
                                    report->data, report->len);
    return code < 0 ? code : say(server, itself);
}

int flow_server_relay_ms(const struct flow_server *server)
{
    uint64_t now = poise_clock_ns();
    uint64_t at = server->relayed_ns + flow_server_least_ns(server);
    return server->relayed.len == 0 || server->orphan_ns ? INT_MAX
           : at <= now                                   ? 0
                       : (int)((at - now + 999999) / 1000000);
}

int flow_server_relay_report(struct flow_server *server,
                             const struct flow_link *link)
{
    if (server->orphan_ns || !link->in) {
        return 0; /* they will talk themselves */
    }
    if (server->relayed.len == 0) {
        server->relayed_ns = poise_clock_ns();
    }
    return poise_buf_append(&server->relayed, flow_made_data(link->in),
                            link->head.len);
}

int flow_server_pass_state(struct flow_server *server,
                           const struct flow_head *head)
{
    int code = 0;
    for (unsigned i = 0; code == 0 && i < server->child_count; i++) {
        struct flow_item *item = flow_item_create(FLOW_STATE, NULL, 0);
        if (item) {
            item->head = *head;
            item->head.digest = 0;
        }
        code = flow_server_post(server, server->children[i], item);
    }
    return code;
}

int flow_server_relay_state(struct flow_server *server,
                            const struct flow_link *link)
{
    struct flow_head head = link->head;
    if (link->peer != server->parent || head.len != 0 ||
        head.epoch != (uint16_t)server->epoch ||
        head.file != (uint32_t)server->self.turn || server->orphan_ns) {
        return 0;
    }
    head.extra = server->probe;
    int code = flow_server_state(server, &head);
    return code == 0 ? flow_server_pass_state(server, &head) : code;
}
