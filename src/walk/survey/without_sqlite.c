/* Where the build has no SQLite: inventories have another format. */
#include "internal.h"

#include <poise/parts.h>

int walk_sqlite_write(const char *path, const struct walk_part *parts,
                      size_t count)
{
    (void)parts;
    (void)count;
    return poise_part_missing(POISE_PART_SQLITE, "write inventory", path);
}
