/*
 * On rank 0: nodes become a tree of lines, links are charged once, and lines
 * come out children first.
 *
 * Of an inode with several names the first counts: by operand, then by path,
 * byte by byte, so that figures do not depend on which worker read what first.
 * GNU du charges the name that it reads first. Where that is asked for, the
 * directories in which two such paths part are read again, here: their order
 * tells which one comes first.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

#define NOBODY UINT32_MAX

struct line {
    const char *name;  /* borrowed from a space; "" for a root */
    struct du_sum sum; /* own at first, then with what is below */
    uint32_t parent;   /* NOBODY: a root */
    bool is_dir, dropped;
};

struct report {
    struct du_run *run;
    struct line *lines;
    uint32_t count;
    uint32_t **bases;    /* [rank][worker]: index of a space's first line */
    uint32_t *roots;     /* [root_count]: line, or NOBODY */
    struct du_sum *sunk; /* [root_count] */
    bool *covered;       /* [root_count] */
    uint32_t *first;     /* [count + 1]: where a line's children start */
    uint32_t *children;  /* [count] */
    struct link *links;
    size_t link_count;
    struct du_order order; /* of directories, known by their lines */
    struct poise_buf path;
    int code; /* what stopped a comparison */
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
    line->sum = node->sum;
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
        du_sum_add(&report->sunk[i], &space->sunk[i]);
        report->covered[i] |= space->covered[i];
    }
    report->link_count += space->link_count;
}

static void take_charges(struct report *report, const struct du_space *space)
{
    for (size_t i = 0; i < space->charge_count; i++) {
        uint32_t line = line_of(report, space->charges[i].tag);
        if (line != NOBODY) {
            du_sum_add(&report->lines[line].sum, &space->charges[i].sum);
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

/* Append the path of a directory's line. */
static int put_path(const struct report *report, size_t root, uint32_t line,
                    struct poise_buf *out)
{
    size_t len = 0;
    for (uint32_t at = line; report->lines[at].parent != NOBODY;
         at = report->lines[at].parent) {
        len += 1 + strlen(report->lines[at].name);
    }
    poise_buf_puts(out, report->run->names[root]);
    char *end = poise_buf_reserve(out, len);
    if (!end) {
        return -ENOMEM;
    }
    out->len += len;
    end += len;
    for (uint32_t at = line; report->lines[at].parent != NOBODY;
         at = report->lines[at].parent) {
        size_t n = strlen(report->lines[at].name);
        end -= n;
        memcpy(end, report->lines[at].name, n);
        *--end = '/';
    }
    return out->error;
}

/* Which of two entries of a directory's line is read first: negative, a's; 0
 * if that cannot be told. */
static int compare_read(struct report *report, size_t root, uint32_t line,
                        const char *a, const char *b)
{
    if (du_order_of(&report->order, line, "") == UINT64_MAX) {
        poise_buf_reset(&report->path);
        int code = put_path(report, root, line, &report->path);
        if (code == 0) {
            code = du_order_read(&report->order, line,
                                 poise_buf_str(&report->path));
        }
        report->code = code < 0 ? code : report->code;
    }
    uint64_t x = du_order_of(&report->order, line, a);
    uint64_t y = du_order_of(&report->order, line, b);
    return x == UINT64_MAX || y == UINT64_MAX ? 0 : (x > y) - (x < y);
}

/* Paths below the same operand: up to where they part. */
static int compare_paths(struct report *report, const struct link *a,
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
    int order = 0;
    if (report->run->options->charge_as_read) {
        order = compare_read(report, a->link->root, x, p.name, q.name);
    }
    return order != 0 ? order : compare_parts(p, q);
}

static int by_inode(const void *va, const void *vb)
{
    const struct du_link *x = ((const struct link *)va)->link;
    const struct du_link *y = ((const struct link *)vb)->link;
    if (x->dev != y->dev) {
        return x->dev < y->dev ? -1 : 1;
    }
    return (x->ino > y->ino) - (x->ino < y->ino);
}

/* Whether `a` counts rather than `b`, both names of one inode. */
static bool is_earlier(struct report *report, const struct link *a,
                       const struct link *b)
{
    if (a->link->root != b->link->root) {
        return a->link->root < b->link->root;
    }
    return compare_paths(report, a, b) < 0;
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

/* Charge one name of an inode. */
static void charge_link(struct report *report, const struct link *one)
{
    const struct du_link *link = one->link;
    uint32_t own = link->node ? line_of(report, link->node) : NOBODY;
    if (link->tag & DU_SUNK) {
        du_sum_add(&report->sunk[link->root], &link->sum);
    } else {
        uint32_t line = own != NOBODY ? own : one->line;
        du_sum_add(&report->lines[line].sum, &link->sum);
    }
}

/* The first of each inode counts; the others' lines vanish. */
static int charge_links(struct report *report)
{
    struct link *links = report->links;
    qsort(links, report->link_count, sizeof *links, by_inode);
    for (size_t i = 0, end; i < report->link_count; i = end) {
        size_t first = i;
        for (end = i + 1;
             end < report->link_count && by_inode(&links[i], &links[end]) == 0;
             end++) {
            if (is_earlier(report, &links[end], &links[first])) {
                first = end;
            }
        }
        for (size_t k = i; k < end; k++) {
            uint64_t node = links[k].link->node;
            if (k != first && node && line_of(report, node) != NOBODY) {
                report->lines[line_of(report, node)].dropped = true;
            }
        }
        charge_link(report, &links[first]);
    }
    return report->code;
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

static bool below_threshold(const struct poise_walk_du_options *options,
                            uint64_t amount)
{
    int64_t limit = options->threshold;
    return limit < 0 ? amount > -(uint64_t)limit : amount < (uint64_t)limit;
}

static int print_line(const struct report *report, const struct du_sum *sum,
                      const struct poise_buf *path)
{
    const struct poise_walk_du_options *options = report->run->options;
    struct poise_walk_du_line line = {
        .amount = sum->amount,
        .newest = {.tv_sec = sum->seconds, .tv_nsec = sum->ns},
        .timed = sum->timed,
        .path = path ? path->data : NULL,
        .path_len = path ? path->len : 0,
    };
    return options->line(&line, options->arg);
}

/* Everything below one operand, children first, without recursion: `next`
 * (indexed by line) is the child to go on with. */
static int print_root(struct report *report, size_t root, uint32_t *next,
                      struct poise_buf *path, struct du_sum *total)
{
    const struct poise_walk_du_options *options = report->run->options;
    const char *name = options->walk.roots[root];
    size_t root_len = root_length(name);
    bool slash = root_len > 0 && name[root_len - 1] == '/';
    uint32_t at = report->roots[root];
    uint64_t depth = 0;
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
            du_sum_add(total, &report->lines[at].sum);
            continue;
        }
        if (!line->dropped && !below_threshold(options, line->sum.amount)) {
            code = print_line(report, &line->sum, path);
        }
        if (depth-- == 0 || code < 0) {
            break;
        }
        if (!options->separate || !line->is_dir) {
            du_sum_add(&report->lines[line->parent].sum, &line->sum);
        }
        path->len = head_length(report, at, path->len, root_len, slash);
        at = line->parent;
    }
    du_sum_add(total, &report->sunk[root]);
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
    struct du_sum total = {0};
    int code = 0;
    for (size_t i = 0; i < options->walk.root_count && code >= 0; i++) {
        uint32_t line = report->roots[i];
        if (line != NOBODY && !report->covered[i]) {
            du_sum_add(&total, &report->lines[line].sum);
            code = print_root(report, i, next, &path, &total);
        }
    }
    if (code >= 0 && options->total) {
        code = print_line(report, &total, NULL);
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
    du_order_free(&report->order);
    poise_buf_free(&report->path);
}

int du_report(struct du_run *run)
{
    struct report report = {.run = run};
    int code = report_begin(&report);
    if (code == 0) {
        code = take_links(&report);
    }
    if (code == 0) {
        code = charge_links(&report);
    }
    if (code == 0) {
        code = sort_children(&report);
    }
    if (code == 0) {
        code = print_lines(&report);
    }
    report_free(&report);
    return code;
}
