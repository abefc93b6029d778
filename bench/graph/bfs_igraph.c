/* igraph's search of a graph in GAP's format (undirected, .sg): prints the mean
 * seconds of a search over some roots.
 *
 * usage: bfs_igraph GRAPH.sg ROOTS */
#include <igraph/igraph.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Each edge once. The layout of the file: directed (1 byte), arcs, vertices,
 * where rows start, neighbours of 32 bits. */
static int read_graph(FILE *file, igraph_t *graph)
{
    int64_t sizes[2];
    char directed;
    if (fread(&directed, 1, 1, file) != 1 ||
        fread(sizes, sizeof *sizes, 2, file) != 2 || directed) {
        return 1;
    }
    size_t arcs = (size_t)sizes[0], vertices = (size_t)sizes[1];
    int64_t *start = malloc((vertices + 1) * sizeof *start);
    int32_t *to = malloc(arcs * sizeof *to);
    igraph_vector_int_t edges;
    igraph_vector_int_init(&edges, 0);
    int code =
        !start || !to ||
        fread(start, sizeof *start, vertices + 1, file) != vertices + 1 ||
        fread(to, sizeof *to, arcs, file) != arcs;
    for (size_t u = 0; code == 0 && u < vertices; u++) {
        for (int64_t a = start[u]; a < start[u + 1]; a++) {
            if ((int32_t)u <= to[a]) {
                igraph_vector_int_push_back(&edges, (igraph_integer_t)u);
                igraph_vector_int_push_back(&edges, to[a]);
            }
        }
    }
    free(start);
    free(to);
    if (code == 0) {
        igraph_create(graph, &edges, (igraph_integer_t)vertices, false);
    }
    igraph_vector_int_destroy(&edges);
    return code;
}

int main(int argc, char **argv)
{
    igraph_t graph;
    igraph_vector_int_t order, layers, parents;
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!file || read_graph(file, &graph) != 0) {
        fprintf(stderr, "usage: bfs_igraph GRAPH.sg ROOTS\n");
        return 2;
    }
    fclose(file);
    igraph_vector_int_init(&order, 0);
    igraph_vector_int_init(&layers, 0);
    igraph_vector_int_init(&parents, 0);
    int roots = atoi(argv[2]), done = 0;
    double spent = 0;
    srand(1);
    while (done < roots) {
        igraph_integer_t root = rand() % igraph_vcount(&graph), degree;
        igraph_degree_1(&graph, &degree, root, IGRAPH_ALL, false);
        if (degree == 0) {
            continue;
        }
        double from = now();
        igraph_bfs_simple(&graph, root, IGRAPH_ALL, &order, &layers, &parents);
        spent += now() - from;
        done++;
    }
    printf("%.6f\n", spent / (done > 0 ? done : 1));
    igraph_vector_int_destroy(&order);
    igraph_vector_int_destroy(&layers);
    igraph_vector_int_destroy(&parents);
    igraph_destroy(&graph);
    return 0;
}
