/* Lists of edges. */
#include "memory.h"

#include <errno.h>
#include <string.h>

#define EDGES_FIRST 1024

static uint64_t edges_bytes(uint64_t capacity)
{
    return capacity * 2 * sizeof(uint32_t);
}

int poise_graph_edges_reserve(struct poise_graph_edges *edges,
                              uint64_t capacity)
{
    if (capacity <= edges->capacity) {
        return 0;
    }
    if (capacity > UINT64_MAX / (2 * sizeof(uint32_t))) {
        return poise_error_set(ENOMEM, "hold edges", NULL,
                               "%llu edges are more than an address can count",
                               (unsigned long long)capacity);
    }
    uint32_t *ends = graph_pages_remap(
        edges->ends, edges_bytes(edges->capacity), edges_bytes(capacity));
    if (!ends) {
        return -ENOMEM;
    }
    edges->ends = ends;
    edges->capacity = capacity;
    return 0;
}

int graph_edges_alloc(struct poise_graph_edges *edges, uint64_t count)
{
    const uint64_t each = 2 * sizeof *edges->ends;
    if (count > UINT64_MAX / each) {
        return graph_memory_check("hold edges", NULL, count, "edges", each, 0);
    }
    edges->ends = graph_pages_map(count * each, true);
    edges->capacity = edges->ends ? count : 0;
    return edges->ends ? 0 : -ENOMEM;
}

int poise_graph_edges_add(struct poise_graph_edges *edges, uint64_t from,
                          uint64_t to)
{
    uint64_t most = from > to ? from : to;
    if (most >= POISE_GRAPH_MAX_VERTICES) {
        return poise_error_set(
            EOVERFLOW, "add an edge", NULL,
            "label %llu is above the greatest, %llu", (unsigned long long)most,
            (unsigned long long)POISE_GRAPH_MAX_VERTICES - 1);
    }
    if (edges->count == edges->capacity) {
        int code = poise_graph_edges_reserve(
            edges, edges->capacity > 0 ? 2 * edges->capacity : EDGES_FIRST);
        if (code < 0) {
            return code;
        }
    }
    edges->ends[2 * edges->count] = (uint32_t)from;
    edges->ends[2 * edges->count + 1] = (uint32_t)to;
    edges->count++;
    if (edges->vertex_count <= most) {
        edges->vertex_count = most + 1;
    }
    return 0;
}

void poise_graph_edges_free(struct poise_graph_edges *edges)
{
    graph_pages_unmap(edges->ends, edges_bytes(edges->capacity));
    poise_graph_names_free(edges->names);
    memset(edges, 0, sizeof *edges);
}
