/*
 * Edge lists. Whether the words are numbers or names shows in the first pair.
 * Numbers serve as labels where they are dense enough; else they become names
 * too, in ascending order.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Labels may be that many times the ends of edges, and this many more, before
 * room for vertices that do not exist costs more than names. */
enum { SNAP_SPARSE = 8, SNAP_SPARSE_MORE = 1 << 20 };

/* Skip comments; look at the first pair: whether it is made of names. */
static int snap_begin(struct graph_text *text, bool *names)
{
    const char *line;
    size_t len;
    int code;
    *names = false;
    while ((code = graph_text_line(text, true, &line, &len)) > 0) {
        const char *at = line, *end = line + len;
        bool quoted = false;
        while (at < end && (*at == ' ' || *at == '\t' ||
                            (text->quotes && !quoted && *at == '"'))) {
            quoted = quoted || *at == '"';
            at++;
        }
        if (at < end && (quoted || (*at != '#' && *at != '%'))) {
            /* "-5" and "5x" are numbers gone wrong, not names. */
            *names = !((*at >= '0' && *at <= '9') || *at == '-' || *at == '+');
            return 0;
        }
        code = graph_text_line(text, false, &line, &len);
        if (code < 0) {
            return code;
        }
    }
    return code;
}

/* ---- names -------------------------------------------------------------- */

/* The names of a block become those of the graph. */
static int snap_merge_segment(struct poise_graph_names *names,
                              struct graph_segment *segment)
{
    uint64_t count = graph_names_count(segment->names);
    uint32_t *labels = poise_alloc(count, sizeof *labels);
    int code = labels ? 0 : -ENOMEM;
    for (uint64_t i = 0; i < count && code == 0; i++) {
        size_t len;
        const char *name =
            poise_graph_names_of(segment->names, (uint32_t)i, &len);
        code = graph_names_add(names, name, len, &labels[i]);
    }
    uint32_t *ends = segment->pairs;
    for (uint64_t i = 0; i < 2 * segment->count && code == 0; i++) {
        ends[i] = labels[ends[i]];
    }
    free(labels);
    poise_graph_names_free(segment->names);
    segment->names = NULL;
    return code;
}

static int snap_names(struct graph_load *load, struct graph_text *text)
{
    text->parse = graph_parse_names;
    text->size = 1; /* labels are given in the order of the whole file */
    text->rank = 0;
    int code = graph_text_run(text);
    struct poise_graph_names *names = NULL;
    if (code == 0) {
        names = graph_names_create();
        code = names ? 0 : -ENOMEM;
    }
    for (struct graph_segment *s = text->first; s && code == 0; s = s->next) {
        code = snap_merge_segment(names, s);
    }
    if (code == 0) {
        code = graph_text_collect(text, load->out);
    }
    load->out->names = names;
    load->out->vertex_count = graph_names_count(names);
    if (code == 0) {
        graph_load_keep_share(load);
    }
    return code;
}

/* ---- numbers too far apart ---------------------------------------------- */

/** A set of ids, then their labels. */
struct snap_ids {
    uint64_t *slots; /* id + 1, or 0 */
    uint32_t *labels;
    uint64_t *sorted;
    uint64_t size, count; /* size is a power of two */
};

static uint64_t snap_slot(const struct snap_ids *ids, uint64_t id)
{
    uint64_t slot = poise_hash_u64(id) & (ids->size - 1);
    while (ids->slots[slot] != 0 && ids->slots[slot] != id + 1) {
        slot = (slot + 1) & (ids->size - 1);
    }
    return slot;
}

static int snap_grow(struct snap_ids *ids)
{
    struct snap_ids larger = {.size = ids->size > 0 ? 2 * ids->size : 1024,
                              .count = ids->count};
    larger.slots = poise_alloc(larger.size, sizeof *larger.slots);
    if (!larger.slots) {
        return -ENOMEM;
    }
    for (uint64_t i = 0; i < ids->size; i++) {
        if (ids->slots[i] != 0) {
            larger.slots[snap_slot(&larger, ids->slots[i] - 1)] = ids->slots[i];
        }
    }
    free(ids->slots);
    *ids = larger;
    return 0;
}

static uint64_t snap_end(const struct graph_segment *segment, uint64_t i)
{
    return segment->wide ? ((const uint64_t *)segment->pairs)[i]
                         : ((const uint32_t *)segment->pairs)[i];
}

static int snap_add_ids(struct snap_ids *ids,
                        const struct graph_segment *segment)
{
    for (uint64_t i = 0; i < 2 * segment->count; i++) {
        if (2 * ids->count >= ids->size) {
            int code = snap_grow(ids);
            if (code < 0) {
                return code;
            }
        }
        uint64_t id = snap_end(segment, i), slot = snap_slot(ids, id);
        ids->count += ids->slots[slot] == 0;
        ids->slots[slot] = id + 1;
    }
    return 0;
}

static int snap_compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Number the ids in ascending order. */
static int snap_sort_ids(struct snap_ids *ids, struct poise_graph_names *names)
{
    ids->sorted = poise_alloc(ids->count, sizeof *ids->sorted);
    ids->labels = poise_alloc(ids->size, sizeof *ids->labels);
    if (!ids->sorted || !ids->labels) {
        return -ENOMEM;
    }
    uint64_t n = 0;
    for (uint64_t i = 0; i < ids->size; i++) {
        if (ids->slots[i] != 0) {
            ids->sorted[n++] = ids->slots[i] - 1;
        }
    }
    qsort(ids->sorted, n, sizeof *ids->sorted, snap_compare);
    struct poise_buf digits = {0};
    int code = 0;
    for (uint64_t i = 0; i < n && code == 0; i++) {
        poise_buf_reset(&digits);
        if (poise_buf_decimal(&digits, ids->sorted[i]) < 0) {
            code = poise_error_set(ENOMEM, "name vertices", NULL, NULL);
        } else {
            code =
                graph_names_add(names, digits.data, digits.len,
                                &ids->labels[snap_slot(ids, ids->sorted[i])]);
        }
    }
    poise_buf_free(&digits);
    return code;
}

/* Labels instead of ids; the narrow ones are written where the wide ones were
 * read before. */
static void snap_relabel(const struct snap_ids *ids,
                         struct graph_segment *segment)
{
    uint32_t *ends = segment->pairs;
    for (uint64_t i = 0; i < 2 * segment->count; i++) {
        uint32_t label = ids->labels[snap_slot(ids, snap_end(segment, i))];
        memcpy(&ends[i], &label, sizeof label);
    }
    segment->wide = false;
}

static int snap_sparse(struct graph_load *load, struct graph_text *text)
{
    struct snap_ids ids = {0};
    struct poise_graph_names *names = graph_names_create();
    int code = names ? 0 : -ENOMEM;
    for (struct graph_segment *s = text->first; s && code == 0; s = s->next) {
        code = snap_add_ids(&ids, s);
    }
    if (code == 0) {
        code = snap_sort_ids(&ids, names);
    }
    for (struct graph_segment *s = text->first; s && code == 0; s = s->next) {
        snap_relabel(&ids, s);
    }
    free(ids.slots);
    free(ids.labels);
    free(ids.sorted);
    load->out->names = names;
    if (code == 0) {
        code = graph_text_collect(text, load->out);
        load->out->vertex_count = graph_names_count(names);
    }
    if (code == 0) {
        graph_load_keep_share(load);
    }
    return code;
}

/* ---- numbers ------------------------------------------------------------ */

/* Over all ranks: the largest id, and whether it is too large for a label. */
static int snap_survey(struct graph_load *load, const struct graph_text *text,
                       int code, uint64_t *vertices, bool *sparse)
{
    uint64_t count = 0, most = 0;
    for (struct graph_segment *s = text->first; s; s = s->next) {
        if (s->count > 0 && s->most + 1 > most) {
            most = s->most + 1;
        }
        count += s->count;
    }
    code = graph_load_sum(load, code, &count);
    code = graph_load_max(load, code, &most);
    *vertices = most;
    *sparse = most > POISE_GRAPH_MAX_VERTICES ||
              most / SNAP_SPARSE > 2 * count + SNAP_SPARSE_MORE / SNAP_SPARSE;
    return code;
}

/** How the fields of a line are told apart. */
struct snap_form {
    char separator; /* NUL: blanks, or one comma */
    bool quotes;
};

static int snap_open(struct graph_load *load, const struct snap_form *form,
                     struct graph_text *text)
{
    int code = graph_load_text(load, text);
    text->comments = "#%";
    text->separator = form->separator;
    text->commas = form->separator == '\0';
    text->quotes = form->quotes;
    return code;
}

static int snap_numbers(struct graph_load *load, const struct snap_form *form,
                        struct graph_text *text)
{
    bool sparse, all = text->size == 1;
    text->parse = graph_parse_pairs;
    text->limit = UINT64_MAX;
    int code = graph_text_run(text);
    code = snap_survey(load, text, code, &load->out->vertex_count, &sparse);
    if (code < 0) {
        return code;
    }
    if (!sparse) {
        return graph_text_collect(text, load->out);
    }
    if (!all) {
        /* Names need all ids: read once more, every rank everything. */
        graph_text_close(text);
        code = snap_open(load, form, text);
        text->parse = graph_parse_pairs;
        text->limit = UINT64_MAX;
        text->size = 1;
        text->rank = 0;
        if (code == 0) {
            code = graph_text_run(text);
        }
    }
    return code == 0 ? snap_sparse(load, text) : code;
}

static int snap_read(struct graph_load *load, const struct snap_form *form)
{
    struct graph_text text;
    bool names = false;
    int code = snap_open(load, form, &text);
    load->out->directed = load->options->directed;
    if (code == 0) {
        code = snap_begin(&text, &names);
    }
    code = graph_agree(load->world, code);
    if (code == 0) {
        code = names || load->options->names ? snap_names(load, &text)
                                             : snap_numbers(load, form, &text);
    }
    graph_text_close(&text);
    return code;
}

int graph_read_snap(struct graph_load *load)
{
    return snap_read(load, &(struct snap_form){.quotes = true});
}

int graph_read_csv(struct graph_load *load)
{
    return snap_read(load,
                     &(struct snap_form){.separator = ',', .quotes = true});
}

int graph_read_tsv(struct graph_load *load)
{
    return snap_read(load, &(struct snap_form){.separator = '\t'});
}
