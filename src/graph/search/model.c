/*
 * What a search would take on a machine that is not here: what each process
 * computes is taken from a search that was measured, what they exchange from
 * the volumes of numa-bfs (1) and (2) and the machine's rates.
 *
 * Each process of the machine has as large a share of its graph as each of the
 * measured ones had of theirs: the graph grows with the processes. Nothing
 * overlaps.
 */
#include "internal.h"

#include <errno.h>

#define MODEL_COPY_BYTES_PER_S 8e9
#define MODEL_BARRIER_S 1e-6
/** Blocks up to this length go straight to all nodes, in one latency; longer
 * ones round a ring: as in room coll. */
#define MODEL_DIRECT_BYTES 4096

struct model {
    struct poise_graph_machine machine;
    double nodes, sockets, ranks;
    double bits_bytes; /* of the frontier of all ranks */
};

static double model_min(double a, double b)
{
    return a < b ? a : b;
}

/* Seconds for `bytes` that leave a node by so many of its processes. */
static double model_send(const struct model *model, double bytes,
                         double senders)
{
    const struct poise_graph_machine *machine = &model->machine;
    return bytes / model_min(machine->node_bytes_per_s,
                             senders * machine->stream_bytes_per_s);
}

static double model_copy(const struct model *model, double bytes)
{
    return bytes / model->machine.copy_bytes_per_s;
}

/* Leaders, or all of a node, with as many of other nodes: (2). */
static double model_between(const struct model *model, double senders)
{
    double others = model->nodes - 1;
    double block = model->bits_bytes / model->nodes / senders;
    double hops = block <= MODEL_DIRECT_BYTES ? (others > 0) : others;
    return hops * model->machine.latency_s +
           model_send(model, model->bits_bytes * others / model->nodes,
                      senders);
}

/* One exchange of bitmaps. A node writes what it receives into its memory once,
 * or once for each private copy. */
static double model_bits_s(const struct model *model)
{
    double bits = model->bits_bytes, nodes = model->nodes;
    double barriers = 2 * model->machine.barrier_s;
    switch (model->machine.exchange) {
    case POISE_GRAPH_EXCHANGE_PRIVATE: /* a ring over all: (1) */
        return (model->ranks - 1) * (nodes > 1 ? model->machine.latency_s
                                               : model->machine.barrier_s) +
               model_send(model, nodes > 1 ? bits : 0, 1) +
               model_copy(model, bits * model->sockets);
    case POISE_GRAPH_EXCHANGE_LEADER:
        return barriers + model_copy(model, bits / nodes) +
               model_between(model, 1) +
               model_copy(model, bits * model->sockets);
    case POISE_GRAPH_EXCHANGE_SHARED_IN:
        return barriers + model_copy(model, bits / nodes) +
               model_between(model, 1) + model_copy(model, bits);
    case POISE_GRAPH_EXCHANGE_SHARED_ALL:
        return barriers + model_between(model, 1) +
               model_copy(model, bits * (nodes - 1) / nodes);
    default:
        return barriers + model_between(model, model->sockets) +
               model_copy(model, bits * (nodes - 1) / nodes / model->sockets);
    }
}

/* Bytes in messages of one exchange, of all ranks. */
static double model_bits_bytes(const struct model *model)
{
    double bits = model->bits_bytes, nodes = model->nodes;
    switch (model->machine.exchange) {
    case POISE_GRAPH_EXCHANGE_PRIVATE:
        return bits * (model->ranks - 1);
    case POISE_GRAPH_EXCHANGE_LEADER:
        return bits * (model->sockets - 1) / model->sockets +
               bits * (nodes - 1) + bits * nodes * (model->sockets - 1);
    default:
        return bits * (nodes - 1);
    }
}

static int model_make(const struct poise_graph_machine *machine,
                      uint64_t connected, int ranks, struct model *out)
{
    if (machine->nodes == 0 || machine->sockets == 0 ||
        machine->node_bytes_per_s <= 0 || machine->latency_s < 0) {
        return poise_error_set(EINVAL, "model a machine", NULL,
                               "it needs nodes, processes on each, and a "
                               "network");
    }
    *out = (struct model){.machine = *machine,
                          .nodes = machine->nodes,
                          .sockets = machine->sockets};
    out->ranks = out->nodes * out->sockets;
    uint64_t rows = (connected + (uint64_t)ranks - 1) / (uint64_t)ranks;
    out->bits_bytes = (double)graph_stride(rows) / 8 * out->ranks;
    if (machine->stream_bytes_per_s <= 0) {
        out->machine.stream_bytes_per_s = machine->node_bytes_per_s;
    }
    if (machine->copy_bytes_per_s <= 0) {
        out->machine.copy_bytes_per_s = MODEL_COPY_BYTES_PER_S;
    }
    if (machine->barrier_s <= 0) {
        out->machine.barrier_s = MODEL_BARRIER_S;
    }
    return 0;
}

int poise_graph_forecast(const struct poise_graph *graph,
                         const struct poise_graph_bfs_result *measured,
                         const struct poise_graph_machine *machine,
                         struct poise_graph_forecast *out)
{
    struct poise_graph_forecast sum = {0};
    struct model model = {.ranks = 1};
    int code = model_make(machine, graph->count, graph->ranks, &model);
    bool up = false;
    if (code < 0) {
        return code;
    }
    double ranks = graph->ranks, others = (model.ranks - 1) / model.ranks;
    double synchronise_s = 2 * model.machine.barrier_s +
                           (model.nodes > 1 ? model.machine.latency_s : 0);
    for (size_t i = 0; i < measured->level_count; i++) {
        const struct poise_graph_level *level = &measured->levels[i];
        double waits = (double)(level->exchange_ns + level->stall_ns);
        double compute = ((double)level->ns - waits) / 1e9;
        sum.compute_s += compute > 0 ? compute : 0;
        sum.exchange_s += synchronise_s * level->levels; /* sums of counts */
        if (level->bottom_up) {
            unsigned times = 1 + !up;
            sum.bottom_up_s += times * model_bits_s(&model);
            sum.bottom_up_bytes += times * model_bits_bytes(&model);
            sum.bottom_up_exchanges += times;
        } else {
            /* A pair of ids for each arc to another rank, at most. */
            double bytes = 8 * (double)level->edges / ranks * others;
            double leave = model.nodes > 1 ? bytes * model.sockets : 0;
            sum.exchange_s += model_send(&model, leave, model.sockets) +
                              model_copy(&model, bytes) +
                              (model.nodes > 1 ? model.machine.latency_s : 0);
            sum.top_down_bytes += bytes * model.ranks;
        }
        up = level->bottom_up;
    }
    sum.exchange_s += sum.bottom_up_s;
    sum.seconds = sum.compute_s + sum.exchange_s;
    sum.edges = (double)measured->edges / ranks * model.ranks;
    *out = sum;
    return 0;
}
