/* What solve and desync run share: options of a job, and what it was like. */
#include "flow.h"

static const struct poise_option ablations[] = {
    {POISE_OPTION_ENUM, .name = "policy", .arg = "NAME",
     .help = "by what the map shares blocks out again: how fast nodes are "
             "(rate), or how often they lacked a block that they needed "
             "(misses)",
     .offset = offsetof(struct cli_flow, policy),
     .choices = poise_flow_policy_names},
    {POISE_OPTION_END},
};

bool cli_flow_ablate(const struct poise_command *command, struct cli_flow *flow,
                     int *exit_code)
{
    return cli_ablate(command, ablations, &flow->ablation, flow, exit_code);
}

static unsigned replicate_of(const struct cli_flow *flow)
{
    return flow->replicate < 0    ? 0
           : flow->replicate == 0 ? POISE_FLOW_REPLICATE_NEVER
                                  : (unsigned)flow->replicate;
}

struct poise_flow_options cli_flow_options(const struct cli_flow *flow)
{
    return (struct poise_flow_options){.nodes = (unsigned)flow->nodes,
                                       .threads = (unsigned)flow->threads,
                                       .window = (unsigned)flow->window,
                                       .memory_bytes = flow->memory,
                                       .replicate = replicate_of(flow),
                                       .spares = (unsigned)flow->spares,
                                       .log = flow->log,
                                       .policy =
                                           (enum poise_flow_policy)flow->policy,
                                       .check = flow->check ? 0.1 : 0};
}

void cli_flow_verbose(const char *name, const struct poise_flow_stats *stats,
                      struct poise_buf *out)
{
    poise_buf_printf(out, "poise %s: ", name);
    poise_human_count(out, stats->blocks);
    poise_buf_printf(out, " blocks in %.3f s\n", (double)stats->wall_ns / 1e9);
    poise_buf_printf(
        out,
        "  partitions changed: %u, nodes declared dead: %u, joined: %u, "
        "lines of copies: %u\n",
        stats->rechunkings, stats->deaths, stats->joins, stats->lines);
    for (unsigned n = 0; n < stats->node_count; n++) {
        const struct poise_flow_node_stats *node = &stats->nodes[n];
        poise_buf_printf(out, "  node %u: %llu blocks (%llu again), fetched ",
                         n, (unsigned long long)node->blocks,
                         (unsigned long long)node->redone);
        poise_human_bytes(out, node->fetched_bytes);
        poise_buf_puts(out, ", at most ");
        poise_human_bytes(out, node->peak_bytes);
        poise_buf_printf(out, " at once, waited %.3f s\n",
                         (double)node->wait_ns / 1e9);
    }
}

void cli_flow_json(struct poise_json *json,
                   const struct poise_flow_stats *stats)
{
    poise_json_double(json, "seconds", (double)stats->wall_ns / 1e9);
    poise_json_double(json, "start_seconds", (double)stats->start_ns / 1e9);
    poise_json_u64(json, "blocks", stats->blocks);
    poise_json_u64(json, "rechunkings", stats->rechunkings);
    poise_json_u64(json, "deaths", stats->deaths);
    poise_json_u64(json, "joins", stats->joins);
    poise_json_u64(json, "lines", stats->lines);
    poise_json_array(json, "nodes");
    for (unsigned n = 0; n < stats->node_count; n++) {
        const struct poise_flow_node_stats *node = &stats->nodes[n];
        poise_json_object(json, NULL);
        poise_json_u64(json, "blocks", node->blocks);
        poise_json_u64(json, "redone", node->redone);
        poise_json_u64(json, "peak_bytes", node->peak_bytes);
        poise_json_u64(json, "fetched", node->fetched);
        poise_json_u64(json, "fetched_bytes", node->fetched_bytes);
        poise_json_u64(json, "hits", node->hits);
        poise_json_u64(json, "misses", node->misses);
        poise_json_double(json, "compute_seconds",
                          (double)node->compute_ns / 1e9);
        poise_json_double(json, "wait_seconds", (double)node->wait_ns / 1e9);
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
    poise_json_array(json, "progress");
    for (size_t m = 0; m < stats->mark_count; m++) {
        poise_json_object(json, NULL);
        poise_json_double(json, "seconds", (double)stats->marks[m].ns / 1e9);
        poise_json_i64(json, "versions", stats->marks[m].version);
        poise_json_end_object(json);
    }
    poise_json_end_array(json);
}
