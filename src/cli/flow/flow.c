/* What solve and desync run share: options of a job, and what it was like. */
#include "flow.h"

#include <poise/launcher.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** Set by the command that a map has run on other hosts. */
#define AGENT_VARIABLE "POISE_FLOW_AGENT"
/** Of its time, by which one node waits more than another one. */
#define UNBALANCED_SHARE 0.25

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

static void notice(const char *words, void *arg)
{
    (void)arg;
    cli_say(NULL, "%s", words);
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
                                       .etcd = flow->etcd,
                                       .lost_ns = flow->lost_ns,
                                       .notice = notice,
                                       .policy =
                                           (enum poise_flow_policy)flow->policy,
                                       .check = flow->check ? 0.1 : 0};
}

/* ---- other hosts ------------------------------------------------------- */

static void put_quoted(struct poise_buf *out, const char *word)
{
    poise_buf_putc(out, '\'');
    for (; *word; word++) {
        if (*word == '\'') {
            poise_buf_puts(out, "'\\''");
        } else {
            poise_buf_putc(out, *word);
        }
    }
    poise_buf_putc(out, '\'');
}

/* This command once more, in the same folder, for a shell elsewhere. */
static int own_command(struct poise_buf *out)
{
    char folder[PATH_MAX], self[PATH_MAX], *word = NULL;
    size_t cap = 0;
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    FILE *words = fopen("/proc/self/cmdline", "re");
    if (len < 0 || !words || !getcwd(folder, sizeof folder)) {
        int code = poise_error_set(errno, "find out", "this command", NULL);
        if (words) {
            fclose(words);
        }
        return code;
    }
    self[len] = '\0';
    poise_buf_puts(out, "cd ");
    put_quoted(out, folder);
    poise_buf_puts(out, " && exec env " AGENT_VARIABLE "=1 POISE_MPI=none ");
    put_quoted(out, self);
    for (bool first = true; getdelim(&word, &cap, 0, words) >= 0;
         first = false) {
        if (!first) {
            poise_buf_putc(out, ' ');
            put_quoted(out, word);
        }
    }
    free(word);
    fclose(words);
    return out->error;
}

int cli_cluster_open(const char *name, const struct cli_flow *flow,
                     struct cli_cluster *out)
{
    int64_t launched = poise_comm_launched();
    int code = launched < 0 ? (int)launched : 0;
    *out = (struct cli_cluster){.cluster.agent = -1};
    if (code == 0 && getenv(AGENT_VARIABLE)) {
        unsetenv(AGENT_VARIABLE);
        out->cluster.agent = STDIN_FILENO;
        out->used = out->agent = true;
        return CLI_DONE;
    }
    if (code == 0 && launched > 1 && flow->hosts) {
        cli_say(name,
                "a launcher started %lld of it: --hosts is for one "
                "that is started without",
                (long long)launched);
        return CLI_WRONG_USE;
    }
    if (code == 0 && launched > 1) {
        code = poise_world_create(&(struct poise_world_options){.trace = NULL},
                                  &out->world);
        out->cluster.world = out->world;
        out->used = code == 0;
        out->agent = code == 0 && poise_world_rank(out->world) > 0;
    } else if (code == 0 && flow->hosts) {
        code = poise_flow_hosts_read(flow->hosts, &out->hosts);
        code = code == 0 ? own_command(&out->command) : code;
        out->cluster.hosts = &out->hosts;
        out->cluster.rsh = flow->rsh;
        out->cluster.command = poise_buf_str(&out->command);
        out->used = true;
    }
    if (code < 0) {
        cli_cluster_close(out);
        return cli_fail(name, code);
    }
    return CLI_DONE;
}

void cli_cluster_close(struct cli_cluster *cluster)
{
    poise_flow_hosts_free(&cluster->hosts);
    poise_buf_free(&cluster->command);
    if (cluster->world) {
        poise_world_destroy(cluster->world);
    }
    *cluster = (struct cli_cluster){.cluster.agent = -1};
}

/** How much of their time nodes waited for blocks: 0 to 1. */
struct waiting {
    double least, most;
    unsigned least_node, most_node;
    unsigned nodes; /**< that had anything to do */
};

static double waited_share(const struct poise_flow_node_stats *node)
{
    double all = (double)node->compute_ns + (double)node->wait_ns;
    return all > 0 ? (double)node->wait_ns / all : 0;
}

static struct waiting waiting_of(const struct poise_flow_stats *stats)
{
    struct waiting found = {.least = 1};
    for (unsigned n = 0; n < stats->node_count; n++) {
        double share = waited_share(&stats->nodes[n]);
        if (stats->nodes[n].compute_ns + stats->nodes[n].wait_ns == 0) {
            continue;
        }
        if (found.nodes == 0 || share < found.least) {
            found.least = share;
            found.least_node = n;
        }
        if (found.nodes == 0 || share > found.most) {
            found.most = share;
            found.most_node = n;
        }
        found.nodes++;
    }
    return found;
}

/* Some wait while others do not: there is something to be shared out anew. */
static bool is_balanced(const struct waiting *waiting)
{
    return waiting->nodes < 2 ||
           waiting->most - waiting->least < UNBALANCED_SHARE;
}

static void put_balance(const struct poise_flow_stats *stats,
                        struct poise_buf *out)
{
    const struct waiting waiting = waiting_of(stats);
    if (waiting.nodes < 2) {
        return;
    }
    if (is_balanced(&waiting)) {
        poise_buf_printf(out,
                         "  balanced: nodes waited %.0f to %.0f %% of their "
                         "time\n",
                         100 * waiting.least, 100 * waiting.most);
        return;
    }
    poise_buf_printf(out,
                     "  not balanced: node %u waited %.0f %% of its time, "
                     "node %u %.0f %%; see --adapt, or take smaller blocks\n",
                     waiting.most_node, 100 * waiting.most, waiting.least_node,
                     100 * waiting.least);
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
    put_balance(stats, out);
}

void cli_flow_json(struct poise_json *json,
                   const struct poise_flow_stats *stats)
{
    const struct waiting waiting = waiting_of(stats);
    poise_json_double(json, "seconds", (double)stats->wall_ns / 1e9);
    poise_json_double(json, "start_seconds", (double)stats->start_ns / 1e9);
    poise_json_u64(json, "blocks", stats->blocks);
    poise_json_u64(json, "rechunkings", stats->rechunkings);
    poise_json_u64(json, "deaths", stats->deaths);
    poise_json_u64(json, "joins", stats->joins);
    poise_json_u64(json, "lines", stats->lines);
    poise_json_u64(json, "reports", stats->reports);
    poise_json_u64(json, "report_bytes", stats->report_bytes);
    poise_json_u64(json, "plan_bytes", stats->plan_bytes);
    poise_json_bool(json, "balanced", is_balanced(&waiting));
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
        poise_json_double(json, "waited_share", waited_share(node));
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
