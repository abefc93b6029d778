/* A tree of nodes from left to right, its edges as thick as what they carry. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>

enum { LABEL_MOST = 14, PITCH = 15, WIDE = 30, FEW = 12, TOP = 10 };

/* Where a node lies; depth -1: no root is above it. */
struct place {
    int depth;
    double x, y;
    size_t children;
};

struct layout {
    const struct poise_nodes *nodes;
    struct place *places;
    double most, leaves, pitch;
    int deepest;
};

/* Steps to a root; -1: there is none, but a circle. */
static int depth_of(const struct poise_nodes *nodes, size_t node)
{
    size_t steps = 0;
    long at = (long)node;

    for (; steps <= nodes->count; steps++) {
        long above = nodes->parents[at];

        if (above < 0) {
            return (int)steps;
        }
        if ((size_t)above >= nodes->count) {
            return -1;
        }
        at = above;
    }
    return -1;
}

/* Rows from the top in the order of the tree: what is below a node first, which
 * lies in the middle of it. Each call looks at all nodes for its children: the
 * trees that are drawn have some hundred. */
static void place_below(struct layout *layout, size_t node)
{
    struct place *place = &layout->places[node];
    double first = 0, last = 0;
    bool any = false;

    for (size_t i = 0; i < layout->nodes->count; i++) {
        if (layout->nodes->parents[i] == (int)node &&
            layout->places[i].depth == place->depth + 1) {
            place_below(layout, i);
            first = any ? first : layout->places[i].y;
            last = layout->places[i].y;
            any = true;
        }
    }
    place->y =
        any ? (first + last) / 2 : TOP + layout->pitch * (layout->leaves + 0.5);
    layout->leaves += any ? 0 : 1;
}

static void lay_out(struct layout *layout)
{
    const struct poise_nodes *nodes = layout->nodes;
    double left = 14 + REPORT_CHAR * LABEL_MOST, right = REPORT_WIDTH - left;

    for (size_t i = 0; i < nodes->count; i++) {
        struct place *place = &layout->places[i];

        place->depth = depth_of(nodes, i);
        layout->deepest =
            place->depth > layout->deepest ? place->depth : layout->deepest;
        layout->most = nodes->weights[i] > layout->most && place->depth > 0
                           ? nodes->weights[i]
                           : layout->most;
        if (nodes->parents[i] >= 0 && place->depth > 0) {
            layout->places[nodes->parents[i]].children++;
        }
    }
    layout->pitch = nodes->count > FEW ? PITCH : WIDE;
    for (size_t i = 0; i < nodes->count; i++) {
        struct place *place = &layout->places[i];

        place->x = left + (layout->deepest > 0
                               ? place->depth * (right - left) / layout->deepest
                               : 0);
        if (place->depth == 0) {
            place_below(layout, i);
        }
    }
}

static void draw_edge(struct poise_buf *out, const struct layout *layout,
                      size_t node)
{
    const struct poise_nodes *nodes = layout->nodes;
    const struct place *to = &layout->places[node];
    const struct place *from = &layout->places[nodes->parents[node]];
    double weight = nodes->weights[node];
    double middle = (from->x + to->x) / 2;

    poise_buf_printf(out,
                     "<path class=\"l\" d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f "
                     "%.1f %.1f\" style=\"stroke-width:%.2f;stroke:",
                     from->x, from->y, middle, from->y, middle, to->y, to->x,
                     to->y,
                     0.75 + (layout->most > 0 ? 6 * weight / layout->most : 0));
    if (nodes->is_marked && nodes->is_marked[node]) {
        report_series_colour(out, 1);
    } else {
        poise_buf_puts(out, weight > 0 ? "var(--bar)" : "var(--line)");
    }
    poise_buf_puts(out, "\"><title>");
    report_escape(out, nodes->labels[node]);
    poise_buf_puts(out, " to ");
    report_escape(out, nodes->labels[nodes->parents[node]]);
    poise_buf_puts(out, ": ");
    report_value(out, weight, nodes->unit);
    poise_buf_puts(out, "</title></path>\n");
}

static void draw_node(struct poise_buf *out, const struct layout *layout,
                      size_t node)
{
    const struct place *place = &layout->places[node];
    bool is_leaf = place->children == 0;

    poise_buf_printf(out,
                     "<circle class=\"b\" cx=\"%.1f\" cy=\"%.1f\" "
                     "r=\"3.5\"/>\n",
                     place->x, place->y);
    /* Inner ones stand above their edges, and left of what joins them. */
    report_text(out, is_leaf && place->depth > 0 ? place->x + 8 : place->x - 6,
                is_leaf || place->depth == 0 ? place->y + 4 : place->y - 5,
                is_leaf && place->depth > 0 ? "start" : "end",
                layout->nodes->labels[node], LABEL_MOST);
}

static void node_numbers(struct poise_page *page,
                         const struct poise_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++) {
        int above = nodes->parents[i];

        poise_buf_puts(&page->body, "<tr><td>");
        report_escape(&page->body, nodes->labels[i]);
        poise_buf_puts(&page->body, "</td><td class=\"r\">");
        report_escape(&page->body, above >= 0 && (size_t)above < nodes->count
                                       ? nodes->labels[above]
                                       : "-");
        poise_buf_puts(&page->body, "</td><td class=\"r\">");
        report_value(&page->body, nodes->weights[i], nodes->unit);
        poise_buf_puts(&page->body, "</td></tr>\n");
    }
}

int poise_page_nodes(struct poise_page *page, const struct poise_nodes *nodes)
{
    const char *heads[] = {"", "joins", nodes->weight_label};
    struct layout layout = {.nodes = nodes};
    size_t start;
    int code;

    layout.places = poise_alloc(nodes->count + 1, sizeof *layout.places);
    if (!layout.places) {
        return -ENOMEM;
    }
    lay_out(&layout);
    start = report_begin(page, nodes->title, nodes->weight_label,
                         2 * TOP + layout.pitch * layout.leaves);
    for (size_t i = 0; i < nodes->count; i++) {
        if (layout.places[i].depth > 0) {
            draw_edge(&page->body, &layout, i);
        }
    }
    for (size_t i = 0; i < nodes->count; i++) {
        if (layout.places[i].depth >= 0) {
            draw_node(&page->body, &layout, i);
        }
    }
    report_numbers(page, heads, 3);
    node_numbers(page, nodes);
    code = report_end(page, start);
    free(layout.places);
    return code;
}
