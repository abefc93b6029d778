/*
 * Where the build has no SQLite: nothing is compared with an inventory, no
 * table is written, and files that are one file are not compared as such.
 */
#include "internal.h"

#include <poise/parts.h>

static int missing(const char *what)
{
    return poise_part_missing(POISE_PART_SQLITE, "compare", what);
}

int compare_links_create(struct compare_links **out)
{
    (void)out;
    return missing("links (--metadata mode,owner,times,xattrs leaves them "
                   "out)");
}

void compare_links_destroy(struct compare_links *links)
{
    (void)links;
}

int compare_links_add(struct compare_links *links, const uint64_t inodes[4],
                      const char *path, size_t len)
{
    (void)links;
    (void)inodes;
    (void)path;
    (void)len;
    return 0;
}

int compare_links_check(struct compare_links *links, struct compare_run *run)
{
    (void)links;
    (void)run;
    return 0;
}

int compare_inventory_put(struct compare_inventory *inventory, const char *path,
                          size_t len, const struct poise_compare_side *s)
{
    (void)inventory;
    (void)path;
    (void)len;
    (void)s;
    return 0;
}

int compare_inventory_open(const char *path, struct compare_inventory **out)
{
    (void)out;
    return missing(path);
}

void compare_inventory_close(struct compare_inventory *inventory)
{
    (void)inventory;
}

int compare_inventory_add(struct compare_inventory *inventory, const char *path,
                          size_t len, const struct poise_compare_side *s)
{
    (void)inventory;
    (void)path;
    (void)len;
    (void)s;
    return 0;
}

int compare_inventory_check(struct compare_run *run)
{
    (void)run;
    return 0;
}

int poise_compare_table_open(const char *path, struct poise_compare_table **out)
{
    (void)out;
    return poise_part_missing(POISE_PART_SQLITE, "write", path);
}

int poise_compare_table_add(struct poise_compare_table *table,
                            const struct poise_difference *d)
{
    (void)table;
    (void)d;
    return 0;
}

int poise_compare_table_commit(struct poise_compare_table *table)
{
    (void)table;
    return 0;
}

void poise_compare_table_abort(struct poise_compare_table *table)
{
    (void)table;
}
