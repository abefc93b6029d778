/*
 * Where ranks are. A layout gives every rank its site, node and NUMA domain,
 * measured or synthetic, numbered over the whole world in order of the lowest
 * rank; each rank derives from it its groups and its list of peers.
 *
 * Source: tree-walk IV.C (PA-DRQS). The paper sorts network numbers and splits
 * by them; here a place is site, node and domain, one gather and one broadcast
 * for all three levels, and the list is rotated, since in the paper's order
 * early ranks are asked more often.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbering ---------------------------------------------------------- */

/* A rank and where it is, as sorted to find equal places. */
struct placed_rank {
    const struct comm_place *place;
    int rank;
};

static int compare_numa(const struct placed_rank *a,
                        const struct placed_rank *b)
{
    int order = strcmp(a->place->site, b->place->site);
    if (order == 0) {
        order = strcmp(a->place->node, b->place->node);
    }
    if (order == 0) {
        order = (a->place->numa > b->place->numa) -
                (a->place->numa < b->place->numa);
    }
    return order;
}

static int compare_placed(const void *left, const void *right)
{
    const struct placed_rank *a = left, *b = right;
    int order = compare_numa(a, b);
    return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

/* The outermost level at which two places differ. */
static enum poise_level apart(const struct comm_place *a,
                              const struct comm_place *b)
{
    if (strcmp(a->site, b->site) != 0) {
        return POISE_LEVEL_WORLD;
    }
    if (strcmp(a->node, b->node) != 0) {
        return POISE_LEVEL_SITE;
    }
    return a->numa != b->numa ? POISE_LEVEL_NODE : POISE_LEVEL_NUMA;
}

/* Replace labels by numbers in order of first appearance. `seen` is work
 * space for labels in [0, limit). */
static void renumber(struct poise_placement *placements, int size,
                     size_t offset, int *seen, int limit)
{
    int next = 0;
    for (int i = 0; i < limit; i++) {
        seen[i] = -1;
    }
    for (int rank = 0; rank < size; rank++) {
        int *label = (int *)((char *)&placements[rank] + offset);
        if (seen[*label] < 0) {
            seen[*label] = next++;
        }
        *label = seen[*label];
    }
}

/* Seats whose members are labels in [0, limit) to placements with numbers. */
static int number_placements(struct poise_placement *placements, int size,
                             int limit)
{
    int *seen = poise_alloc((size_t)limit, sizeof *seen);
    if (!seen) {
        return -ENOMEM;
    }
    renumber(placements, size, offsetof(struct poise_placement, site), seen,
             limit);
    renumber(placements, size, offsetof(struct poise_placement, node), seen,
             limit);
    renumber(placements, size, offsetof(struct poise_placement, numa), seen,
             limit);
    free(seen);
    return 0;
}

int comm_layout_measured(const struct comm_place *places, int size,
                         struct comm_layout *out)
{
    struct comm_layout layout = {0};
    struct placed_rank *placed = poise_alloc((size_t)size, sizeof *placed);
    layout.placements = poise_alloc((size_t)size, sizeof *layout.placements);
    if (!placed || !layout.placements) {
        goto free_layout;
    }
    for (int rank = 0; rank < size; rank++) {
        placed[rank] =
            (struct placed_rank){.place = &places[rank], .rank = rank};
    }
    qsort(placed, (size_t)size, sizeof *placed, compare_placed);
    /* Label units by their position in the sorted list. */
    struct poise_placement label = {0};
    for (int i = 0; i < size; i++) {
        enum poise_level level =
            i == 0 ? POISE_LEVEL_NUMA
                   : apart(placed[i - 1].place, placed[i].place);
        label.site = level >= POISE_LEVEL_WORLD ? i : label.site;
        label.node = level >= POISE_LEVEL_SITE ? i : label.node;
        label.numa = level >= POISE_LEVEL_NODE ? i : label.numa;
        layout.placements[placed[i].rank] = label;
    }
    if (number_placements(layout.placements, size, size) < 0) {
        goto free_layout;
    }
    free(placed);
    *out = layout;
    return 0;

free_layout:
    free(layout.placements);
    free(placed);
    return -ENOMEM;
}

/* ---- synthetic ---------------------------------------------------------- */

struct shape {
    int64_t counts[3]; /* sites, nodes of each, domains of each */
    uint64_t cost_ns[POISE_LEVELS];
};

/* Copy the text up to a character of `ends`; the rest, or NULL at the end.
 * What is too long for `out` becomes "". */
static const char *word(const char *text, const char *ends, char *out,
                        size_t cap)
{
    size_t len = strcspn(text, ends);
    size_t kept = len < cap ? len : 0;
    memcpy(out, text, kept);
    out[kept] = '\0';
    return text[len] ? text + len + 1 : NULL;
}

static int parse_shape(const char *text, struct shape *out)
{
    static const char *const ends[] = {"x", "x", ":"};
    char part[32];
    const char *rest = text;
    for (int i = 0; i < 3; i++) {
        if (!rest) {
            return -EINVAL;
        }
        rest = word(rest, ends[i], part, sizeof part);
        if (poise_parse_int(part, 1, 65536, &out->counts[i]) < 0) {
            return -EINVAL;
        }
    }
    for (int level = 0; rest && level < POISE_LEVELS; level++) {
        rest = word(rest, ",", part, sizeof part);
        bool last = level == POISE_LEVELS - 1;
        if (poise_parse_duration(part, &out->cost_ns[level]) < 0 ||
            last != !rest) {
            return -EINVAL;
        }
    }
    return 0;
}

/* Cut the ranks [from, to) as evenly as it goes into counts[depth] units, and
 * those further. A unit is labelled with its lowest rank. */
static void lay_out(struct poise_placement *placements, int from, int to,
                    const int64_t *counts, int depth)
{
    static const size_t members[] = {offsetof(struct poise_placement, site),
                                     offsetof(struct poise_placement, node),
                                     offsetof(struct poise_placement, numa)};
    if (depth == 3) {
        return;
    }
    int64_t units = counts[depth] < to - from ? counts[depth] : to - from;
    int first = from;
    for (int64_t unit = 0; unit < units; unit++) {
        int end = from + (int)(((to - from) * (unit + 1) + units - 1) / units);
        for (int rank = first; rank < end; rank++) {
            *(int *)((char *)&placements[rank] + members[depth]) = first;
        }
        lay_out(placements, first, end, counts, depth + 1);
        first = end;
    }
}

int comm_layout_synthetic(const char *text, int size, struct comm_layout *out)
{
    struct shape shape = {0};
    if (parse_shape(text, &shape) < 0) {
        return poise_error_set(EINVAL, "read the synthetic topology", text,
                               "expected SITESxNODESxDOMAINS, then perhaps "
                               "':' and four costs, such as "
                               "2x2x1:0,1us,20us,10ms");
    }
    struct comm_layout layout = {0};
    layout.placements = poise_alloc((size_t)size, sizeof *layout.placements);
    if (!layout.placements) {
        return -ENOMEM;
    }
    memcpy(layout.cost_ns, shape.cost_ns, sizeof layout.cost_ns);
    lay_out(layout.placements, 0, size, shape.counts, 0);
    if (number_placements(layout.placements, size, size) < 0) {
        free(layout.placements);
        return -ENOMEM;
    }
    *out = layout;
    return 0;
}

int comm_layout_part(const struct comm_layout *layout, int size,
                     const int *ranks, int count, struct comm_layout *out)
{
    struct comm_layout part = {0};
    part.placements = poise_alloc((size_t)count, sizeof *part.placements);
    if (!part.placements) {
        return -ENOMEM;
    }
    memcpy(part.cost_ns, layout->cost_ns, sizeof part.cost_ns);
    for (int i = 0; i < count; i++) {
        part.placements[i] = layout->placements[ranks[i]];
    }
    if (number_placements(part.placements, count, size) < 0) {
        free(part.placements);
        return -ENOMEM;
    }
    *out = part;
    return 0;
}

/* ---- layouts as bytes --------------------------------------------------- */

int comm_layout_pack(const struct comm_layout *layout, int size,
                     struct poise_buf *out)
{
    for (int level = 0; level < POISE_LEVELS; level++) {
        poise_buf_u64(out, layout->cost_ns[level]);
    }
    return poise_buf_append(out, layout->placements,
                            (size_t)size * sizeof *layout->placements);
}

static bool is_number(int unit, int size)
{
    return unit >= 0 && unit < size;
}

int comm_layout_unpack(struct poise_reader *reader, int size,
                       struct comm_layout *out)
{
    struct comm_layout layout = {0};
    for (int level = 0; level < POISE_LEVELS; level++) {
        layout.cost_ns[level] = poise_reader_u64(reader);
    }
    size_t len = (size_t)size * sizeof *layout.placements;
    if (reader->error || poise_reader_left(reader) != len) {
        return poise_error_set(EBADMSG, "read who sits where", NULL,
                               "the message is cut short");
    }
    layout.placements = poise_alloc((size_t)size, sizeof *layout.placements);
    if (!layout.placements) {
        return -ENOMEM;
    }
    memcpy(layout.placements, reader->pos, len);
    for (int rank = 0; rank < size; rank++) {
        const struct poise_placement *placement = &layout.placements[rank];
        if (!is_number(placement->site, size) ||
            !is_number(placement->node, size) ||
            !is_number(placement->numa, size)) {
            free(layout.placements);
            return poise_error_set(EBADMSG, "read who sits where", NULL,
                                   "rank %d sits nowhere", rank);
        }
    }
    *out = layout;
    return 0;
}

/* ---- what one rank derives ---------------------------------------------- */

enum poise_level
comm_placements_distance(const struct poise_placement *placements, int a, int b)
{
    if (placements[a].site != placements[b].site) {
        return POISE_LEVEL_WORLD;
    }
    if (placements[a].node != placements[b].node) {
        return POISE_LEVEL_SITE;
    }
    return placements[a].numa != placements[b].numa ? POISE_LEVEL_NODE
                                                    : POISE_LEVEL_NUMA;
}

static int find_groups(struct comm_placements *out, int rank, int size)
{
    for (int level = 0; level < POISE_LEVELS; level++) {
        int count = 0;
        for (int r = 0; r < size; r++) {
            count += (int)comm_placements_distance(out->layout.placements, rank,
                                                   r) <= level;
        }
        int *group = poise_alloc((size_t)count, sizeof *group);
        if (!group) {
            return -ENOMEM;
        }
        out->groups[level] = group;
        out->group_sizes[level] = count;
        for (int r = 0; r < size; r++) {
            if ((int)comm_placements_distance(out->layout.placements, rank,
                                              r) <= level) {
                *group++ = r;
            }
        }
    }
    return 0;
}

static int find_peers(struct comm_placements *out, int rank, int size)
{
    out->peers = poise_alloc((size_t)size, sizeof *out->peers);
    if (!out->peers) {
        return -ENOMEM;
    }
    int at[POISE_LEVELS] = {0};
    int before = 0;
    for (int level = 0; level < POISE_LEVELS; level++) {
        /* Those of smaller groups are in all larger ones; I am in all. */
        at[level] = out->first[level] = before;
        before = out->group_sizes[level] - 1;
    }
    out->first[POISE_LEVELS] = before;
    for (int i = 1; i < size; i++) {
        int peer = (int)(((int64_t)rank + i) % size);
        out->peers[at[comm_placements_distance(out->layout.placements, rank,
                                               peer)]++] = peer;
    }
    return 0;
}

int comm_placements_create(struct comm_layout *layout, int rank, int size,
                           struct comm_placements *out)
{
    struct comm_placements placements = {.layout = *layout};
    *layout = (struct comm_layout){0};
    for (int level = 0; level < POISE_LEVELS; level++) {
        placements.timed =
            placements.timed || placements.layout.cost_ns[level] > 0;
    }
    int code = find_groups(&placements, rank, size);
    if (code == 0) {
        code = find_peers(&placements, rank, size);
    }
    if (code < 0) {
        comm_placements_free(&placements);
        return code;
    }
    *out = placements;
    return 0;
}

void comm_placements_free(struct comm_placements *placements)
{
    for (int level = 0; level < POISE_LEVELS; level++) {
        free(placements->groups[level]);
    }
    free(placements->peers);
    free(placements->layout.placements);
    *placements = (struct comm_placements){0};
}
