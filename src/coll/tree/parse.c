/*
 * Tree files. One line for each rank, range of ranks, or host:
 *
 *     poise-tree 1
 *     rank A[-B] root
 *     rank A[-B] joins rank P [fanin K] [over shm|mpi]
 *     host H root
 *     host H joins rank P|host I [fanin K] [over shm|mpi]
 *
 * The lowest rank of a host stands for it; its others, unless lines of their
 * own name them, join that one. With a fan-in of K, only the first K of a line
 * join P, the next K the first of these, and so on.
 */
#include "internal.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DOING "read a tree"
#define MOST_WORDS 10

struct parse {
    const char *name; /* of the file */
    const char *const *hosts;
    int line;
    struct poise_coll_tree *tree;
    int *lines;   /* [size]: where a rank's line is; 0: none yet */
    int *by_host; /* [size]: line of the rank's host, 0: none */
    char *words[MOST_WORDS];
    int count;
};

static int wrong(const struct parse *parse, const char *what, const char *word)
{
    return poise_error_set(EINVAL, DOING, parse->name, "line %d: %s '%s'",
                           parse->line, what, word);
}

/* ---- words -------------------------------------------------------------- */

static int split_words(struct parse *parse, char *line)
{
    char *rest;
    parse->count = 0;
    line[strcspn(line, "#")] = '\0';
    for (char *word = strtok_r(line, " \t\r", &rest); word;
         word = strtok_r(NULL, " \t\r", &rest)) {
        if (parse->count == MOST_WORDS) {
            return wrong(parse, "too many words from", word);
        }
        parse->words[parse->count++] = word;
    }
    return 0;
}

static bool word_is(const struct parse *parse, int i, const char *text)
{
    return i < parse->count && strcmp(parse->words[i], text) == 0;
}

/* "7" or "3-9"; digits only. */
static int parse_ranks(const struct parse *parse, char *word, int *from,
                       int *to)
{
    int64_t ends[2];
    char *dash = strchr(word, '-');
    char *second = dash ? dash + 1 : word;
    if (dash) {
        *dash = '\0';
    }
    if (!isdigit((unsigned char)*word) || !isdigit((unsigned char)*second) ||
        poise_parse_int(word, 0, INT_MAX, &ends[0]) < 0 ||
        poise_parse_int(second, 0, INT_MAX, &ends[1]) < 0 ||
        ends[0] > ends[1]) {
        return wrong(parse, "no rank or range of ranks:", word);
    }
    if (ends[1] >= parse->tree->size) {
        return poise_error_set(EINVAL, DOING, parse->name,
                               "line %d: there is no rank %lld, only %d",
                               parse->line, (long long)ends[1],
                               parse->tree->size);
    }
    *from = (int)ends[0];
    *to = (int)ends[1];
    return 0;
}

/* The lowest rank on a host. */
static int find_host(const struct parse *parse, const char *host, int *out)
{
    for (int rank = 0; parse->hosts && rank < parse->tree->size; rank++) {
        if (strcmp(parse->hosts[rank], host) == 0) {
            *out = rank;
            return 0;
        }
    }
    return wrong(parse, "no rank runs on host", host);
}

/* ---- lines -------------------------------------------------------------- */

struct edge {
    int parent; /* -1: a root */
    int fanin;
    enum coll_over over;
};

static int parse_target(struct parse *parse, struct edge *edge)
{
    int last;
    if (parse->count < 5) {
        return wrong(parse, "expected 'rank N' or 'host NAME' behind",
                     parse->words[2]);
    }
    if (word_is(parse, 3, "rank")) {
        int code = parse_ranks(parse, parse->words[4], &edge->parent, &last);
        return code == 0 && edge->parent != last
                   ? wrong(parse, "expected one rank, not", parse->words[4])
                   : code;
    }
    if (word_is(parse, 3, "host")) {
        return find_host(parse, parse->words[4], &edge->parent);
    }
    return wrong(parse, "expected 'rank' or 'host', not", parse->words[3]);
}

static int parse_edge(struct parse *parse, struct edge *edge)
{
    int64_t fanin;
    if (word_is(parse, 2, "root")) {
        return parse->count == 3
                   ? 0
                   : wrong(parse, "a root takes no", parse->words[3]);
    }
    if (!word_is(parse, 2, "joins")) {
        return wrong(parse, "expected 'root' or 'joins' behind",
                     parse->words[parse->count > 1]);
    }
    int code = parse_target(parse, edge);
    for (int i = 5; i < parse->count && code == 0; i += 2) {
        if (word_is(parse, i, "over") && word_is(parse, i + 1, "shm")) {
            edge->over = COLL_OVER_SHM;
        } else if (word_is(parse, i, "over") && word_is(parse, i + 1, "mpi")) {
            edge->over = COLL_OVER_MPI;
        } else if (word_is(parse, i, "fanin") && i + 1 < parse->count &&
                   poise_parse_int(parse->words[i + 1], 1, INT_MAX, &fanin) ==
                       0) {
            edge->fanin = (int)fanin;
        } else {
            code = wrong(parse,
                         "expected 'fanin K', 'over shm' or 'over mpi', "
                         "not",
                         parse->words[i]);
        }
    }
    return code;
}

static int set_edge(struct parse *parse, int rank, int parent,
                    enum coll_over over)
{
    if (parse->lines[rank] != 0) {
        return poise_error_set(EINVAL, DOING, parse->name,
                               "line %d: rank %d has a line already, line %d",
                               parse->line, rank, parse->lines[rank]);
    }
    parse->lines[rank] = parse->line;
    parse->tree->parent[rank] = parent;
    parse->tree->over[rank] = (uint8_t)over;
    return 0;
}

static int parse_host(struct parse *parse, const struct edge *edge)
{
    const char *host = parse->words[1];
    int lowest;
    int code = find_host(parse, host, &lowest);
    if (code == 0) {
        code = set_edge(parse, lowest, edge->parent, edge->over);
    }
    for (int rank = lowest; rank < parse->tree->size && code == 0; rank++) {
        if (strcmp(parse->hosts[rank], host) == 0) {
            parse->by_host[rank] = parse->line;
        }
    }
    return code;
}

static int parse_line(struct parse *parse, char *line)
{
    int code = split_words(parse, line);
    if (code < 0 || parse->count == 0) {
        return code;
    }
    struct edge edge = {.parent = -1, .fanin = INT_MAX};
    bool host = word_is(parse, 0, "host");
    if (!host && !word_is(parse, 0, "rank")) {
        return wrong(parse, "expected 'rank' or 'host', not", parse->words[0]);
    }
    code = parse_edge(parse, &edge);
    if (code < 0 || host) {
        return code < 0 ? code : parse_host(parse, &edge);
    }
    int from, to;
    code = parse_ranks(parse, parse->words[1], &from, &to);
    for (int rank = from; rank <= to && code == 0; rank++) {
        int i = rank - from;
        int parent = edge.parent < 0 || i < edge.fanin
                         ? edge.parent
                         : from + i / edge.fanin - 1;
        code = set_edge(parse, rank, parent, edge.over);
    }
    return code;
}

/* ---- files -------------------------------------------------------------- */

/* Those that only a line of their host speaks of. */
static int complete(struct parse *parse)
{
    for (int rank = 0; rank < parse->tree->size; rank++) {
        int lowest = 0;
        if (parse->lines[rank] != 0) {
            continue;
        }
        if (parse->by_host[rank] == 0) {
            return poise_error_set(EINVAL, DOING, parse->name,
                                   "rank %d joins nobody", rank);
        }
        find_host(parse, parse->hosts[rank], &lowest);
        parse->lines[rank] = parse->by_host[rank];
        parse->tree->parent[rank] = lowest;
    }
    return coll_tree_check(parse->tree, parse->name, parse->lines);
}

static int parse_text(struct parse *parse, char *text)
{
    bool begun = false;
    for (char *line = text; line; parse->line++) {
        char *next = strchr(line, '\n');
        if (next) {
            *next++ = '\0';
        }
        int code;
        if (begun) {
            code = parse_line(parse, line);
        } else {
            code = split_words(parse, line);
            if (code == 0 && parse->count > 0) {
                begun = parse->count == 2 && word_is(parse, 0, "poise-tree") &&
                        word_is(parse, 1, "1");
                code = begun ? 0
                             : wrong(parse, "expected 'poise-tree 1', not",
                                     parse->words[0]);
            }
        }
        if (code < 0) {
            return code;
        }
        line = next;
    }
    return complete(parse);
}

int coll_tree_parse(const char *text, size_t len, const char *name,
                    const char *const *hosts, int size,
                    struct poise_coll_tree **out)
{
    struct parse parse = {.name = name, .hosts = hosts, .line = 1};
    char *copy = poise_alloc(len + 1, 1);
    parse.tree = coll_tree_alloc(size);
    parse.lines = poise_alloc((size_t)size, sizeof *parse.lines);
    parse.by_host = poise_alloc((size_t)size, sizeof *parse.by_host);
    int code = -ENOMEM;
    if (copy && parse.tree && parse.lines && parse.by_host) {
        if (len > 0) {
            memcpy(copy, text, len);
        }
        code = parse_text(&parse, copy);
    }
    free(copy);
    free(parse.lines);
    free(parse.by_host);
    if (code < 0) {
        poise_coll_tree_free(parse.tree);
        return code;
    }
    *out = parse.tree;
    return 0;
}

/* ---- reading, together -------------------------------------------------- */

static int read_text(const char *path, struct poise_buf *out)
{
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    ssize_t got;
    do {
        char *to = poise_buf_reserve(out, 65536);
        got = to ? poise_file_read(fd, to, 65536, path) : -ENOMEM;
        out->len += got > 0 ? (size_t)got : 0;
    } while (got > 0);
    int code = poise_file_close(fd, path);
    return got < 0 ? (int)got : code;
}

int poise_coll_tree_load(const char *path, int size,
                         struct poise_coll_tree **out)
{
    struct poise_buf text = {0};
    const char **hosts = poise_alloc((size_t)size, sizeof *hosts);
    int code = hosts ? read_text(path, &text) : -ENOMEM;
    for (int rank = 0; rank < size && code == 0; rank++) {
        hosts[rank] = ""; /* no line can name it */
    }
    if (code == 0) {
        code = coll_tree_parse(text.data, text.len, path, hosts, size, out);
    }
    poise_buf_free(&text);
    free(hosts);
    return code;
}

/* Everybody's host name: a blob each in `all`; `names` point into it. */
static int gather_hosts(struct poise_world *world, struct poise_buf *all,
                        const char **names)
{
    char host[HOST_NAME_MAX + 1] = "";
    gethostname(host, sizeof host - 1);
    int code = poise_world_gather(world, 0, host, strlen(host) + 1, all);
    code = poise_world_agree(world, code);
    if (code == 0) {
        code = poise_world_agree(world, poise_world_broadcast(world, 0, all));
    }
    struct poise_reader reader = poise_reader_of(all->data, all->len);
    for (int rank = 0; rank < poise_world_size(world) && code == 0; rank++) {
        size_t len;
        names[rank] = poise_reader_blob(&reader, &len);
        code = reader.error;
    }
    return code;
}

int poise_coll_tree_read(struct poise_world *world, const char *path,
                         struct poise_coll_tree **out)
{
    struct poise_buf text = {0}, all = {0};
    struct poise_coll_tree *tree = NULL;
    int size = poise_world_size(world);
    const char **hosts = poise_alloc((size_t)size, sizeof *hosts);
    int code = hosts ? 0 : -ENOMEM;
    if (code == 0 && poise_world_rank(world) == 0) {
        code = read_text(path, &text);
    }
    code = poise_world_agree(world, code);
    if (code == 0) {
        code = poise_world_agree(world, poise_world_broadcast(world, 0, &text));
    }
    if (code == 0) {
        code = gather_hosts(world, &all, hosts);
    }
    if (code == 0) {
        code =
            poise_world_agree(world, coll_tree_parse(text.data, text.len, path,
                                                     hosts, size, &tree));
    }
    poise_buf_free(&text);
    poise_buf_free(&all);
    free(hosts);
    if (code < 0) {
        poise_coll_tree_free(tree);
        return code;
    }
    *out = tree;
    return 0;
}
