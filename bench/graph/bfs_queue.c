/* The plain search of a graph in GAP's format (.sg): one queue, one thread, no
 * trick. Prints the mean seconds of a search over some roots, which are drawn
 * from the vertices that have neighbours.
 *
 * usage: bfs_queue GRAPH.sg ROOTS */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct graph {
    size_t vertices, arcs;
    int64_t *start;
    int32_t *to;
};

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* The layout of the file: directed (1 byte), arcs, vertices, where rows start,
 * neighbours of 32 bits. */
static int read_graph(FILE *file, struct graph *graph)
{
    char directed;
    int64_t sizes[2];
    if (fread(&directed, 1, 1, file) != 1 ||
        fread(sizes, sizeof *sizes, 2, file) != 2 || sizes[0] < 0 ||
        sizes[1] < 1) {
        return -1;
    }
    graph->arcs = (size_t)sizes[0];
    graph->vertices = (size_t)sizes[1];
    graph->start = calloc(graph->vertices + 1, sizeof *graph->start);
    graph->to = calloc(graph->arcs + 1, sizeof *graph->to);
    if (!graph->start || !graph->to) {
        return -1;
    }
    return fread(graph->start, sizeof *graph->start, graph->vertices + 1,
                 file) == graph->vertices + 1 &&
                   fread(graph->to, sizeof *graph->to, graph->arcs, file) ==
                       graph->arcs
               ? 0
               : -1;
}

static void search(const struct graph *graph, int32_t root, int32_t *parent,
                   int32_t *queue)
{
    size_t begin = 0, end = 1;
    memset(parent, 0xff, graph->vertices * sizeof *parent);
    parent[root] = root;
    queue[0] = root;
    while (begin < end) {
        int32_t u = queue[begin++];
        for (int64_t a = graph->start[u]; a < graph->start[u + 1]; a++) {
            int32_t v = graph->to[a];
            if (parent[v] < 0) {
                parent[v] = u;
                queue[end++] = v;
            }
        }
    }
}

int main(int argc, char **argv)
{
    struct graph graph = {0};
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    int roots = argc == 3 ? atoi(argv[2]) : 0, code = 1;
    int32_t *parent = NULL, *queue = NULL;
    double sum = 0;
    if (!file || roots < 1 || read_graph(file, &graph) < 0) {
        fputs("usage: bfs_queue GRAPH.sg ROOTS\n", stderr);
        goto end;
    }
    parent = calloc(graph.vertices, sizeof *parent);
    queue = calloc(graph.vertices, sizeof *queue);
    if (!parent || !queue || graph.arcs == 0) {
        goto end;
    }
    srandom(1);
    for (int i = 0; i < roots;) {
        size_t root = (size_t)random() % graph.vertices;
        if (graph.start[root] == graph.start[root + 1]) {
            continue;
        }
        double from = now();
        search(&graph, (int32_t)root, parent, queue);
        sum += now() - from;
        i++;
    }
    printf("%.9f\n", sum / roots);
    code = 0;
end:
    if (file) {
        fclose(file);
    }
    free(queue);
    free(parent);
    free(graph.to);
    free(graph.start);
    return code;
}
