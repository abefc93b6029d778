/*
 * The figures of all workers and ranks become one summary on rank 0: sums are
 * added, top lists merged, and the sets of linked inodes and of directories
 * that were read in pieces are exchanged, so that each record is counted once.
 */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { TAG_LINKS = 320, TAG_PIECES = 321 };

const char *const poise_walk_type_names[] = {
    "files",   "directories",       "links",         "pipes",
    "sockets", "character_devices", "block_devices", NULL};

static int agree(struct poise_world *world, int code)
{
    return world ? poise_world_agree(world, code) : code;
}

static bool is_root(struct poise_world *world)
{
    return !world || poise_world_rank(world) == 0;
}

/* ---- within one rank ---------------------------------------------------- */

static int add_figures(struct walk_figures *to, struct walk_figures *from)
{
    for (unsigned i = 0; i < WALK_COUNTS; i++) {
        to->counts[i] += from->counts[i];
    }
    to->deepest = from->deepest > to->deepest ? from->deepest : to->deepest;
    to->widest = from->widest > to->widest ? from->widest : to->widest;
    int code = walk_owners_move(&to->owners, &from->owners);
    int next = walk_top_move(&to->files, &from->files);
    code = code < 0 ? code : next;
    next = walk_top_move(&to->directories, &from->directories);
    code = code < 0 ? code : next;
    next = walk_folders_move(&to->folders, &from->folders);
    return code < 0 ? code : next;
}

static int add_tallies(struct walk_count *count)
{
    int code = 0;
    for (unsigned i = 0; i < count->tally_count; i++) {
        struct walk_tally *tally = count->tallies[i];
        if (tally) {
            code = code < 0 ? code : tally->error;
            int next = add_figures(&count->loaded, &tally->committed);
            code = code < 0 ? code : next;
        }
    }
    return code;
}

/* ---- sets --------------------------------------------------------------- */

static int count_link(const uint64_t *record, void *arg)
{
    return walk_figures_link(arg, record);
}

struct merge {
    struct walk_figures *figures;
    struct walk_widths widths; /* of directories read in pieces */
    struct walk_top named;     /* the same with paths */
};

static int count_width(const uint64_t *record, void *arg)
{
    struct merge *merge = arg;
    struct walk_figures *figures = merge->figures;
    unsigned bin = walk_bin(record[1], POISE_WALK_WIDTH_BINS);
    figures->counts[WALK_C_WIDTHS + bin]++;
    if (record[1] > figures->widest) {
        figures->widest = record[1];
    }
    return walk_widths_add(&merge->widths, record[0], record[1]);
}

/* ---- to rank 0 ---------------------------------------------------------- */

static int reduce(struct poise_world *world, struct walk_figures *figures)
{
    uint64_t most[2] = {figures->deepest, figures->widest};
    int code = 0;
    if (world) {
        code =
            poise_world_reduce(world, POISE_SUM, figures->counts, WALK_COUNTS);
        code = code < 0 ? code : poise_world_reduce(world, POISE_MAX, most, 2);
    }
    figures->deepest = most[0];
    figures->widest = most[1];
    return code;
}

/* Every rank's bytes to `take` on rank 0, also our own if alone. */
static int gather(struct poise_world *world, const struct poise_buf *mine,
                  int (*take)(struct poise_reader *in, void *arg), void *arg)
{
    struct poise_buf all = {0};
    int size = world ? poise_world_size(world) : 1;
    int code = agree(world, mine->error);
    if (code < 0) {
        return code;
    }
    code = world ? poise_world_gather(world, 0, mine->data, mine->len, &all)
                 : poise_buf_blob(&all, mine->data, mine->len);
    if (code == 0 && is_root(world)) {
        struct poise_reader in = poise_reader_of(all.data, all.len);
        for (int i = 0; i < size && code == 0; i++) {
            size_t len = 0;
            const void *bytes = poise_reader_blob(&in, &len);
            struct poise_reader one = poise_reader_of(bytes, len);
            code = in.error ? in.error : take(&one, arg);
        }
    }
    poise_buf_free(&all);
    return agree(world, code);
}

static int take_lists(struct poise_reader *in, void *arg)
{
    struct walk_figures *figures = arg;
    int code = walk_owners_load(&figures->owners, in);
    code = code < 0 ? code : walk_top_load(&figures->files, in);
    code = code < 0 ? code : walk_top_load(&figures->directories, in);
    return code < 0 ? code : walk_folders_load(&figures->folders, in);
}

static int gather_lists(struct poise_world *world, struct walk_figures *figures)
{
    struct poise_buf mine = {0};
    walk_owners_save(&figures->owners, &mine);
    walk_top_save(&figures->files, &mine);
    walk_top_save(&figures->directories, &mine);
    walk_folders_save(&figures->folders, &mine);
    walk_owners_free(&figures->owners);
    walk_top_free(&figures->files);
    walk_top_free(&figures->directories);
    walk_folders_free(&figures->folders);
    int code = gather(world, &mine, take_lists, figures);
    poise_buf_free(&mine);
    return code;
}

/* ---- the names of directories read in pieces ---------------------------- */

static int take_widths(struct poise_reader *in, void *arg)
{
    return walk_widths_load(arg, in);
}

static int take_named(struct poise_reader *in, void *arg)
{
    return walk_top_load(arg, in);
}

/* All ranks get the ids that are wide enough of all. */
static int share_widths(struct poise_world *world, struct walk_widths *widths)
{
    struct poise_buf bytes = {0};
    int code = agree(world, walk_widths_bound(world, widths));
    if (code < 0 || !world) {
        return code;
    }
    walk_widths_save(widths, &bytes);
    widths->count = 0;
    code = gather(world, &bytes, take_widths, widths);
    poise_buf_reset(&bytes);
    if (code == 0 && is_root(world)) {
        walk_widths_bound(NULL, widths);
        walk_widths_save(widths, &bytes);
    }
    code = code < 0 ? code : agree(world, bytes.error);
    code =
        code < 0 ? code : agree(world, poise_world_broadcast(world, 0, &bytes));
    if (code == 0 && !is_root(world)) {
        struct poise_reader in = poise_reader_of(bytes.data, bytes.len);
        code = walk_widths_load(widths, &in);
    }
    poise_buf_free(&bytes);
    return agree(world, code);
}

static int name_widest(struct poise_world *world, struct walk_count *count,
                       struct merge *merge)
{
    struct poise_buf mine = {0};
    int code = share_widths(world, &merge->widths);
    if (code < 0) {
        return code;
    }
    code = walk_widths_name(&merge->widths, &count->piece_paths, &merge->named);
    walk_top_save(&merge->named, &mine);
    walk_top_free(&merge->named);
    code = agree(world, code);
    code = code < 0 ? code : gather(world, &mine, take_named, &merge->named);
    poise_buf_free(&mine);
    return code < 0
               ? code
               : walk_top_move(&merge->figures->directories, &merge->named);
}

/* ---- the summary -------------------------------------------------------- */

static int fill_top(struct walk_top *top, struct poise_walk_named **out,
                    size_t *count)
{
    walk_top_sort(top);
    struct poise_walk_named *named = poise_alloc(top->count + 1, sizeof *named);
    if (!named) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < top->count; i++) {
        struct walk_top_item *item = &top->items[i];
        named[i] = (struct poise_walk_named){.path = item->path,
                                             .path_len = item->path_len,
                                             .value = item->value};
        item->path = NULL;
    }
    *out = named;
    *count = top->count;
    return 0;
}

static int more_allocated(const void *a, const void *b)
{
    const struct poise_walk_owner *x = a, *y = b;
    if (x->allocated_bytes != y->allocated_bytes) {
        return x->allocated_bytes > y->allocated_bytes ? -1 : 1;
    }
    return (x->uid > y->uid) - (x->uid < y->uid);
}

static void fill_counts(const struct walk_figures *figures,
                        struct poise_walk_summary *out)
{
    const uint64_t *c = figures->counts;
    memcpy(out->types, c + WALK_C_TYPES, sizeof out->types);
    for (unsigned i = 0; i < POISE_WALK_TYPES; i++) {
        out->entries += out->types[i];
    }
    out->apparent_bytes = c[WALK_C_APPARENT];
    out->allocated_bytes = c[WALK_C_ALLOCATED];
    out->linked_entries = c[WALK_C_LINKED];
    memcpy(out->sizes, c + WALK_C_SIZES, sizeof out->sizes);
    memcpy(out->size_bytes, c + WALK_C_SIZE_BYTES, sizeof out->size_bytes);
    memcpy(out->ages, c + WALK_C_AGES, sizeof out->ages);
    memcpy(out->age_bytes, c + WALK_C_AGE_BYTES, sizeof out->age_bytes);
    memcpy(out->depths, c + WALK_C_DEPTHS, sizeof out->depths);
    memcpy(out->widths, c + WALK_C_WIDTHS, sizeof out->widths);
    out->deepest = figures->deepest;
    out->widest = figures->widest;
}

static int fill(struct walk_count *count, struct poise_walk_summary *out)
{
    struct walk_figures *figures = &count->loaded;
    *out =
        (struct poise_walk_summary){.with_metadata = !count->names_only,
                                    .without_folders = count->without_folders};
    fill_counts(figures, out);
    int code = fill_top(&figures->files, &out->files, &out->file_count);
    code = code < 0 ? code
                    : fill_top(&figures->directories, &out->directories,
                               &out->directory_count);
    if (code == 0 && figures->owners.count) {
        qsort(figures->owners.items, figures->owners.count,
              sizeof *figures->owners.items, more_allocated);
    }
    if (code < 0) {
        poise_walk_summary_free(out);
        return code;
    }
    out->owners = figures->owners.items;
    out->owner_count = figures->owners.count;
    figures->owners.items = NULL;
    figures->owners.count = 0;
    walk_folders_take(&figures->folders, &out->folders, &out->folder_count);
    return 0;
}

int walk_count_merge(struct poise_world *world, struct walk_count *count,
                     struct poise_walk_summary *out)
{
    struct merge merge = {.figures = &count->loaded,
                          .widths = {.top = count->top},
                          .named = {.most = count->top}};
    int code = agree(world, add_tallies(count));
    code = code < 0 ? code
                    : walk_set_exchange(world, &count->links, TAG_LINKS,
                                        count_link, &count->loaded);
    code = code < 0 ? code
                    : walk_set_exchange(world, &count->pieces, TAG_PIECES,
                                        count_width, &merge);
    code = code < 0 ? code : reduce(world, &count->loaded);
    code = code < 0 ? code : gather_lists(world, &count->loaded);
    code = code < 0 ? code : agree(world, name_widest(world, count, &merge));
    if (code == 0 && is_root(world)) {
        code = fill(count, out);
    }
    walk_widths_free(&merge.widths);
    walk_top_free(&merge.named);
    return agree(world, code);
}

void poise_walk_summary_free(struct poise_walk_summary *summary)
{
    for (size_t i = 0; i < summary->file_count; i++) {
        free(summary->files[i].path);
    }
    for (size_t i = 0; i < summary->directory_count; i++) {
        free(summary->directories[i].path);
    }
    for (size_t i = 0; i < summary->folder_count; i++) {
        free(summary->folders[i].path);
    }
    free(summary->folders);
    free(summary->files);
    free(summary->directories);
    free(summary->owners);
    *summary = (struct poise_walk_summary){0};
}
