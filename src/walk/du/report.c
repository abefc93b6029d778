/*
 * On rank 0: nodes become a tree of lines, links are charged once, and lines
 * come out children first.
 *
 * Of an inode with several names the first counts: by operand, then by path,
 * byte by byte. GNU du charges the name that it reads first; here figures must
 * not depend on which worker read what first.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX

struct line {
    const char *name; /* borrowed from a space; "" for a root */
    uint64_t amount;  /* own at first, then with what is below */
    uint32_t parent;  /* NOBODY: a root */
    bool is_dir, dropped;
};

struct report {
    struct du_run *run;
    struct line *lines;
    uint32_t count;
    uint32_t **bases;   /* [rank][worker]: index of a space's first line */
    uint32_t *roots;    /* [root_count]: line, or NOBODY */
    uint64_t *sunk;     /* [root_count] */
    bool *covered;      /* [root_count] */
    uint32_t *first;    /* [count + 1]: where a line's children start */
    uint32_t *children; /* [count] */
    struct link *links;
    size_t link_count;
};

struct link {
    const struct du_link *link;
    const char *name;
    uint32_t line; /* that it is charged to, or that lies above (sunk) */
};

/* NOBODY for tags that no node has. */
static uint32_t line_of(const struct report *report, uint64_t tag)
{
    const struct du_run *run = report->run;
    tag &= ~DU_SUNK;
    int rank = du_tag_rank(tag);
    unsigned worker = du_tag_worker(tag);
    if (rank >= run->size || worker >= run->space_counts[rank] ||
        du_tag_index(tag) >= run->spaces[rank][worker].node_count) {
        return NOBODY;
    }
    return report->bases[rank][worker] + du_tag_index(tag);
}

/* ---- the tree ----------------------------------------------------------- */

static int number_lines(struct report *report)
{
    struct du_run *run = report->run;
    uint64_t total = 0;
    report->bases = poise_alloc((size_t)run->size, sizeof(uint32_t *));
    if (!report->bases) {
        return -ENOMEM;
    }
    for (int r = 0; r < run->size; r++) {
        unsigned count = run->space_counts[r];
        report->bases[r] = poise_alloc(count ? count : 1, sizeof(uint32_t));
        if (!report->bases[r]) {
            return -ENOMEM;
        }
        for (unsigned w = 0; w < count; w++) {
            report->bases[r][w] = (uint32_t)total;
            total += run->spaces[r][w].node_count;
            if (total >= NOBODY) {
                return poise_error_set(EOVERFLOW, "count disk usage", NULL,
                                       "more than 2^32 lines");
            }
        }
    }
    report->count = (uint32_t)total;
    report->lines = poise_alloc(total ? total : 1, sizeof *report->lines);
    return report->lines ? 0 : -ENOMEM;
}

static void take_node(struct report *report, const struct du_space *space,
                      const struct du_node *node, uint32_t index)
{
    struct line *line = &report->lines[index];
    line->name = space->names.data + (node->name >> 2);
    line->amount = node->amount;
    line->is_dir = node->name & DU_DIR;
    if (!(node->name & DU_ROOT)) {
        line->parent = line_of(report, node->parent);
        return;
    }
    line->parent = NOBODY;
    if (node->parent < report->run->options->walk.root_count) {
        report->roots[node->parent] = index;
    }
}

static void take_space(struct report *report, int rank, unsigned worker)
{
    const struct du_space *space = &report->run->spaces[rank][worker];
    for (size_t i = 0; i < space->node_count; i++) {
        take_node(report, space, &space->nodes[i],
                  report->bases[rank][worker] + (uint32_t)i);
    }
    for (size_t i = 0; i < report->run->options->walk.root_count; i++) {
        report->sunk[i] += space->sunk[i];
        report->covered[i] |= space->covered[i];
    }
    report->link_count += space->link_count;
}

static void take_charges(struct report *report, const struct du_space *space)
{
    for (size_t i = 0; i < space->charge_count; i++) {
        uint32_t line = line_of(report, space->charges[i].tag);
        if (line != NOBODY) {
            report->lines[line].amount += space->charges[i].amount;
        }
    }
}

/* ---- links -------------------------------------------------------------- */

static uint32_t depth_of(const struct report *report, uint32_t line)
{
    uint32_t depth = 0;
    for (; report->lines[line].parent != NOBODY; depth++) {
        line = report->lines[line].parent;
    }
    return depth;
}

/* A component of a path: more may follow it. */
struct part {
    const char *name;
    bool more;
};

static int compare_parts(struct part a, struct part b)
{
    size_t i = 0;
    while (a.name[i] && a.name[i] == b.name[i]) {
        i++;
    }
    int x = a.name[i] ? (unsigned char)a.name[i] : a.more ? '/' : 0;
    int y = b.name[i] ? (unsigned char)b.name[i] : b.more ? '/' : 0;
    return x - y;
}

static void climb(const struct report *report, uint32_t *line,
                  struct part *part)
{
    *part = (struct part){.name = report->lines[*line].name, .more = true};
    *line = report->lines[*line].parent;
}

/* Paths below the same operand, byte by byte: up to where they part. */
static int compare_paths(const struct report *report, const struct link *a,
                         const struct link *b)
{
    uint32_t x = a->line, y = b->line;
    struct part p = {.name = a->name, .more = a->link->name & 1};
    struct part q = {.name = b->name, .more = b->link->name & 1};
    uint32_t dx = depth_of(report, x), dy = depth_of(report, y);
    for (; dx > dy; dx--) {
        climb(report, &x, &p);
    }
    for (; dy > dx; dy--) {
        climb(report, &y, &q);
    }
    while (x != y) {
        climb(report, &x, &p);
        climb(report, &y, &q);
    }
    return compare_parts(p, q);
}

static int compare_links(const void *va, const void *vb, void *arg)
{
    const struct link *a = va, *b = vb;
    const struct du_link *x = a->link, *y = b->link;
    if (x->dev != y->dev) {
        return x->dev < y->dev ? -1 : 1;
    }
    if (x->ino != y->ino) {
        return x->ino < y->ino ? -1 : 1;
    }
    if (x->root != y->root) {
        return x->root < y->root ? -1 : 1;
    }
    return compare_paths(arg, a, b);
}

static int take_links(struct report *report)
{
    struct du_run *run = report->run;
    size_t count = 0;
    report->links = poise_alloc(report->link_count ? report->link_count : 1,
                                sizeof *report->links);
    if (!report->links) {
        return -ENOMEM;
    }
    for (int r = 0; r < run->size; r++) {
        for (unsigned w = 0; w < run->space_counts[r]; w++) {
            const struct du_space *space = &run->spaces[r][w];
            for (size_t i = 0; i < space->link_count; i++) {
                const struct du_link *link = &space->links[i];
                struct link one = {.link = link,
                                   .name =
                                       space->names.data + (link->name >> 1),
                                   .line = line_of(report, link->tag)};
                if (one.line != NOBODY && !report->covered[link->root]) {
                    report->links[count++] = one;
                }
            }
        }
    }
    report->link_count = count;
    return 0;
}

/* The first of each inode counts; the others' lines vanish. */
static void charge_links(struct report *report)
{
    qsort_r(report->links, report->link_count, sizeof *report->links,
            compare_links, report);
    const struct du_link *before = NULL;
    for (size_t i = 0; i < report->link_count; i++) {
        const struct du_link *link = report->links[i].link;
        uint32_t own = link->node ? line_of(report, link->node) : NOBODY;
        bool again =
            before && before->dev == link->dev && before->ino == link->ino;
        before = link;
        if (again) {
            if (own != NOBODY) {
                report->lines[own].dropped = true;
            }
        } else if (link->tag & DU_SUNK) {
            report->sunk[link->root] += link->amount;
        } else {
            uint32_t line = own != NOBODY ? own : report->links[i].line;
            report->lines[line].amount += link->amount;
        }
    }
}

/* ---- lines -------------------------------------------------------------- */

static int compare_names(const void *va, const void *vb, void *arg)
{
    const struct line *lines = arg;
    return strcmp(lines[*(const uint32_t *)va].name,
                  lines[*(const uint32_t *)vb].name);
}

/* Children of each line in a row, by name. */
static int sort_children(struct report *report)
{
    report->first = poise_alloc((size_t)report->count + 2, sizeof(uint32_t));
    report->children = poise_alloc((size_t)report->count + 1, sizeof(uint32_t));
    if (!report->first || !report->children) {
        return -ENOMEM;
    }
    uint32_t *first = report->first;
    for (uint32_t i = 0; i < report->count; i++) {
        if (report->lines[i].parent != NOBODY) {
            first[report->lines[i].parent + 2]++;
        }
    }
    for (uint32_t i = 2; i < report->count + 2; i++) {
        first[i] += first[i - 1];
    }
    /* first[p + 1] is where p's children start, and moves to their end: then
     * first[p] is where they start. */
    for (uint32_t i = 0; i < report->count; i++) {
        if (report->lines[i].parent != NOBODY) {
            report->children[first[report->lines[i].parent + 1]++] = i;
        }
    }
    for (uint32_t i = 0; i < report->count; i++) {
        qsort_r(report->children + first[i], first[i + 1] - first[i],
                sizeof(uint32_t), compare_names, report->lines);
    }
    return 0;
}

/* The operand as du writes it: of several slashes at the end one stays. */
static size_t root_length(const char *root)
{
    size_t len = strlen(root);
    if (len == 2) {
        return len; /* "//" may be special */
    }
    while (len > 1 && root[len - 1] == '/' && root[len - 2] == '/') {
        len--;
    }
    return len;
}

/* What stays of a path when its last component, `name`, is left. */
static size_t head_length(const struct report *report, uint32_t line,
                          size_t len, size_t root_len, bool root_slash)
{
    len -= strlen(report->lines[line].name);
    return len > root_len || !root_slash ? len - 1 : len;
}

/* Everything below one operand, children first, without recursion: `next`
 * (indexed by line) is the child to go on with. */
static int print_root(struct report *report, size_t root, uint32_t *next,
                      struct poise_buf *path, uint64_t *total)
{
    const struct poise_walk_du_options *options = report->run->options;
    const char *name = options->walk.roots[root];
    size_t root_len = root_length(name);
    bool slash = root_len > 0 && name[root_len - 1] == '/';
    uint32_t at = report->roots[root];
    uint64_t depth = 0, all = 0;
    poise_buf_reset(path);
    poise_buf_append(path, name, root_len);
    int code = 0;
    while (code == 0) {
        struct line *line = &report->lines[at];
        if (next[at] < report->first[at + 1]) {
            at = report->children[next[at]++];
            if (depth++ > 0 || !slash) {
                poise_buf_putc(path, '/');
            }
            code = poise_buf_puts(path, report->lines[at].name);
            all += report->lines[at].amount;
            continue;
        }
        if (!line->dropped) {
            code = options->line(line->amount, path->data, path->len,
                                 options->arg);
        }
        if (depth-- == 0 || code < 0) {
            break;
        }
        if (!options->separate || !line->is_dir) {
            report->lines[line->parent].amount += line->amount;
        }
        path->len = head_length(report, at, path->len, root_len, slash);
        at = line->parent;
    }
    *total += all + report->sunk[root];
    return code;
}

static int print_lines(struct report *report)
{
    const struct poise_walk_du_options *options = report->run->options;
    uint32_t *next = poise_alloc((size_t)report->count + 1, sizeof *next);
    if (!next) {
        return -ENOMEM;
    }
    if (report->count > 0) {
        memcpy(next, report->first, report->count * sizeof *next);
    }
    struct poise_buf path = {0};
    uint64_t total = 0;
    int code = 0;
    for (size_t i = 0; i < options->walk.root_count && code >= 0; i++) {
        uint32_t line = report->roots[i];
        if (line != NOBODY && !report->covered[i]) {
            total += report->lines[line].amount;
            code = print_root(report, i, next, &path, &total);
        }
    }
    if (code >= 0 && options->total) {
        code = options->line(total, NULL, 0, options->arg);
    }
    code = code < 0 ? code : path.error;
    poise_buf_free(&path);
    free(next);
    return code;
}

/* ---- the whole ---------------------------------------------------------- */

static int report_begin(struct report *report)
{
    struct du_run *run = report->run;
    size_t roots = run->options->walk.root_count;
    size_t some = roots ? roots : 1;
    report->roots = poise_alloc(some, sizeof *report->roots);
    report->sunk = poise_alloc(some, sizeof *report->sunk);
    report->covered = poise_alloc(some, sizeof *report->covered);
    if (!report->roots || !report->sunk || !report->covered) {
        return -ENOMEM;
    }
    memset(report->roots, 0xff, some * sizeof *report->roots);
    int code = number_lines(report);
    for (int r = 0; code == 0 && r < run->size; r++) {
        for (unsigned w = 0; w < run->space_counts[r]; w++) {
            take_space(report, r, w);
        }
    }
    for (int r = 0; code == 0 && r < run->size; r++) {
        for (unsigned w = 0; w < run->space_counts[r]; w++) {
            take_charges(report, &run->spaces[r][w]);
        }
    }
    return code;
}

static void report_free(struct report *report)
{
    for (int r = 0; report->bases && r < report->run->size; r++) {
        free(report->bases[r]);
    }
    free(report->bases);
    free(report->lines);
    free(report->roots);
    free(report->sunk);
    free(report->covered);
    free(report->first);
    free(report->children);
    free(report->links);
}

int du_report(struct du_run *run)
{
    struct report report = {.run = run};
    int code = report_begin(&report);
    if (code == 0) {
        code = take_links(&report);
    }
    if (code == 0) {
        charge_links(&report);
        code = sort_children(&report);
    }
    if (code == 0) {
        code = print_lines(&report);
    }
    report_free(&report);
    return code;
}
