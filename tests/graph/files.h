/* Files of edges for the tests, in a folder of their own. */
#ifndef TEST_GRAPH_FILES_H
#define TEST_GRAPH_FILES_H

#include "../temporary.h"

#include <poise/graph.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[TEMPORARY_BYTES];

static inline const char *path_of(const char *name)
{
    static char path[2][TEMPORARY_MORE];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static inline void write_file(const char *name, const void *data, size_t len)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static inline char *read_file(const char *name, size_t *len)
{
    FILE *file = fopen(path_of(name), "rb");
    assert_non_null(file);
    char *data = malloc(1 << 20);
    assert_non_null(data);
    *len = fread(data, 1, 1 << 20, file);
    assert_true(*len < 1 << 20);
    data[*len] = '\0';
    fclose(file);
    return data;
}

static inline struct poise_graph_edges
load_with(const char *name, struct poise_graph_load_options options)
{
    struct poise_graph_edges edges = {0};
    int code = poise_graph_load(NULL, path_of(name), &options, &edges);
    if (code < 0) {
        struct poise_buf buf = {0};
        poise_error_format(poise_error_last(), &buf);
        print_error("%s\n", poise_buf_str(&buf));
        poise_buf_free(&buf);
    }
    assert_int_equal(code, 0);
    return edges;
}

static inline struct poise_graph_edges load(const char *name)
{
    return load_with(name, (struct poise_graph_load_options){0});
}

/* The edges as "0-1 1-2". */
static inline const char *text_of(const struct poise_graph_edges *edges)
{
    static char text[1024];
    size_t len = 0;
    text[0] = '\0';
    for (uint64_t i = 0; i < edges->count && len < sizeof text - 30; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%u-%u",
                                i > 0 ? " " : "", edges->ends[2 * i],
                                edges->ends[2 * i + 1]);
    }
    return text;
}

static inline void expect(const char *name, const char *content,
                          uint64_t vertices, bool directed,
                          const char *edges_text)
{
    write_file(name, content, strlen(content));
    struct poise_graph_edges edges = load(name);
    assert_string_equal(text_of(&edges), edges_text);
    assert_int_equal(edges.vertex_count, vertices);
    assert_int_equal(edges.directed, directed);
    poise_graph_edges_free(&edges);
}

static inline void expect_bad_with(const char *name, const void *content,
                                   size_t len,
                                   struct poise_graph_load_options options,
                                   int code, const char *why)
{
    struct poise_graph_edges edges = {0};
    write_file(name, content, len);
    for (options.threads = 1; options.threads <= 3; options.threads++) {
        assert_int_equal(
            poise_graph_load(NULL, path_of(name), &options, &edges), code);
        const struct poise_error *err = poise_error_last();
        if (!strstr(err->why, why)) {
            fail_msg("'%s' is not in '%s'", why, err->why);
        }
        assert_true(code == -ENOMEM || strstr(err->what, name));
        assert_null(edges.ends);
    }
}

static inline void expect_bad(const char *name, const char *content,
                              const char *why)
{
    expect_bad_with(name, content, strlen(content),
                    (struct poise_graph_load_options){0}, -EBADMSG, why);
}

static inline void expect_name(const struct poise_graph_edges *edges,
                               uint32_t label, const char *name)
{
    size_t len;
    const char *received = poise_graph_names_of(edges->names, label, &len);
    assert_non_null(received);
    assert_int_equal(len, strlen(name));
    assert_memory_equal(received, name, len);
    assert_int_equal(poise_graph_names_find(edges->names, name, len), label);
}

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(temporary_name(folder, "graph-io")) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    char command[TEMPORARY_MORE];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

#endif
