/* The folders of a walk as tiles: what fills the disk, how old, and whose. */
#include "internal.h"

#include <poise/survey.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    OWNERS = 8, /* that have colours of their own; others share one */
    AGES = POISE_WALK_FOLDER_AGES,
    UNKNOWN = AGES, /* of files with several names, which lie nowhere */
    SMALLEST = 2000 /* no tile is smaller than this part of all: some 10 by 15
                       pixels of the drawing */
};

struct folder {
    const struct poise_walk_folder *first; /* its root and path */
    int parent, tile;   /* among folders; among tiles, -1: none */
    double bytes, rest; /* with all below; without what has tiles below */
    double ages[AGES], owners[OWNERS + 1];
    bool has_tiles; /* below it */
};

struct drawing {
    const struct cli_walk_outcome *walk;
    struct folder *folders;
    size_t folder_count;
    const char **labels;
    int *parents;
    double *values;
    unsigned char *age, *owner;
    size_t count;
};

static int compare(uint32_t root, const char *path, size_t len,
                   const struct poise_walk_folder *to)
{
    if (root != to->root) {
        return root < to->root ? -1 : 1;
    }
    size_t least = len < to->path_len ? len : to->path_len;
    int order = memcmp(path, to->path, least);
    return order ? order : (len > to->path_len) - (len < to->path_len);
}

static int find(const struct drawing *d, size_t below, uint32_t root,
                const char *path, size_t len)
{
    size_t low = 0, high = below;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = compare(root, path, len, d->folders[middle].first);
        if (order == 0) {
            return (int)middle;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return -1;
}

/* The nearest folder above that there is. */
static int parent_of(const struct drawing *d, size_t index)
{
    const struct poise_walk_folder *of = d->folders[index].first;
    size_t len = of->path_len;
    int found = -1;
    while (len > 0 && found < 0) {
        const char *slash = memrchr(of->path, '/', len);
        len = slash ? (size_t)(slash - of->path) : 0;
        found = find(d, index, of->root, of->path, len);
    }
    return found;
}

static unsigned owner_class(const struct poise_walk_summary *s, uint32_t uid)
{
    for (unsigned i = 0; i < OWNERS && i < s->owner_count; i++) {
        if (s->owners[i].uid == uid) {
            return i;
        }
    }
    return OWNERS;
}

static void collect(struct drawing *d)
{
    const struct poise_walk_summary *s = d->walk->summary;
    for (size_t i = 0; i < s->folder_count; i++) {
        const struct poise_walk_folder *row = &s->folders[i];
        struct folder *f =
            d->folder_count ? &d->folders[d->folder_count - 1] : NULL;
        if (!f || compare(row->root, row->path, row->path_len, f->first) != 0) {
            f = &d->folders[d->folder_count++];
            *f = (struct folder){.first = row, .tile = -1};
            f->parent = parent_of(d, d->folder_count - 1);
        }
        f->bytes += (double)row->allocated_bytes;
        f->owners[owner_class(s, row->uid)] += (double)row->allocated_bytes;
        for (unsigned k = 0; k < AGES; k++) {
            f->ages[k] += (double)row->age_bytes[k];
        }
    }
    /* Parents come before their children. */
    for (size_t i = d->folder_count; i-- > 0;) {
        struct folder *f = &d->folders[i];
        if (f->parent < 0) {
            continue;
        }
        struct folder *up = &d->folders[f->parent];
        up->bytes += f->bytes;
        for (unsigned k = 0; k < AGES; k++) {
            up->ages[k] += f->ages[k];
        }
        for (unsigned k = 0; k <= OWNERS; k++) {
            up->owners[k] += f->owners[k];
        }
    }
}

static unsigned char greatest(const double *values, unsigned count)
{
    unsigned best = 0;
    for (unsigned i = 1; i < count; i++) {
        best = values[i] > values[best] ? i : best;
    }
    return (unsigned char)best;
}

static int add_tile(struct drawing *d, const char *label, int parent,
                    double value, unsigned char age, unsigned char owner)
{
    d->labels[d->count] = label;
    d->parents[d->count] = parent;
    d->values[d->count] = value;
    d->age[d->count] = age;
    d->owner[d->count] = owner;
    return (int)d->count++;
}

static void add_tiles(struct drawing *d, double total)
{
    double least = total / SMALLEST;
    size_t roots = 0;
    for (size_t i = 0; i < d->folder_count; i++) {
        struct folder *f = &d->folders[i];
        struct folder *up = f->parent >= 0 ? &d->folders[f->parent] : NULL;
        roots += up == NULL;
        if (f->bytes < least || (up && up->tile < 0)) {
            continue;
        }
        const char *slash = strrchr(f->first->path, '/');
        const char *name = slash ? slash + 1 : f->first->path;
        f->tile = add_tile(
            d, up ? name : d->walk->roots[f->first->root], up ? up->tile : -1,
            f->bytes, greatest(f->ages, AGES), greatest(f->owners, OWNERS + 1));
        if (up) {
            up->has_tiles = true;
            up->rest -= f->bytes;
        }
        f->rest = f->bytes;
    }
    /* What is left of each that has tiles in it. */
    for (size_t i = 0; i < d->folder_count; i++) {
        struct folder *f = &d->folders[i];
        if (f->has_tiles && f->rest >= least) {
            add_tile(d, "files and small folders", f->tile, f->rest,
                     greatest(f->ages, AGES), greatest(f->owners, OWNERS + 1));
        }
    }
    double linked = (double)d->walk->summary->allocated_bytes;
    for (size_t i = 0; i < d->folder_count; i++) {
        linked -= d->folders[i].parent < 0 ? d->folders[i].bytes : 0;
    }
    if (linked >= least && d->count > 0) {
        add_tile(d, "files with several names", roots == 1 ? 0 : -1, linked,
                 UNKNOWN, OWNERS);
        d->values[0] += roots == 1 ? linked : 0;
    }
}

static int draw(struct drawing *d, struct poise_page *page)
{
    static const char *const ages[] = {"under a month", "under a year",
                                       "under three years", "older",
                                       "not looked at"};
    const struct poise_walk_summary *s = d->walk->summary;
    struct poise_buf names[OWNERS + 1] = {{0}};
    const char *owners[OWNERS + 1];
    int code = 0;
    for (unsigned i = 0; i <= OWNERS; i++) {
        if (i < OWNERS && i < s->owner_count) {
            cli_owner_name(s->owners[i].uid, &names[i]);
        } else {
            poise_buf_puts(&names[i], i < OWNERS ? "-" : "others");
        }
        code = code < 0 ? code : names[i].error;
        owners[i] = poise_buf_str(&names[i]);
    }
    const struct poise_tiles_colouring colourings[] = {
        {"age", ages, AGES + 1, d->age},
        {"owner", owners, OWNERS + 1, d->owner}};
    code = code < 0
               ? code
               : poise_page_tiles(page, &(struct poise_tiles){
                                            "Disk usage by folder", d->labels,
                                            d->parents, d->values, d->count,
                                            colourings, 2, POISE_UNIT_BYTES});
    for (unsigned i = 0; i <= OWNERS; i++) {
        poise_buf_free(&names[i]);
    }
    return code;
}

int cli_walk_tiles(const struct cli_walk_outcome *walk, struct poise_page *page)
{
    const struct poise_walk_summary *s = walk->summary;
    struct drawing d = {.walk = walk};
    size_t most = 2 * s->folder_count + 1;
    if (!s->with_metadata || s->folder_count == 0 || s->without_folders) {
        return 0;
    }
    d.folders = poise_alloc(s->folder_count, sizeof *d.folders);
    d.labels = poise_alloc(most, sizeof *d.labels);
    d.parents = poise_alloc(most, sizeof *d.parents);
    d.values = poise_alloc(most, sizeof *d.values);
    d.age = poise_alloc(most, 1);
    d.owner = poise_alloc(most, 1);
    int code = -ENOMEM;
    if (d.folders && d.labels && d.parents && d.values && d.age && d.owner) {
        collect(&d);
        add_tiles(&d, (double)s->allocated_bytes);
        code =
            poise_page_section(page, "What fills the disk",
                               "Each tile is a folder; its area is what it "
                               "takes on the disk. Click one to go into it, "
                               "or take the arrow keys, Enter and Escape. Its "
                               "colour is the age, or the owner, of most of "
                               "its bytes.");
        code = code < 0 ? code : draw(&d, page);
    }
    free(d.folders);
    free(d.labels);
    free(d.parents);
    free(d.values);
    free(d.age);
    free(d.owner);
    return code;
}
