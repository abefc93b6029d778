/* What other rooms may know of the survey: how a binary inventory is read. */
#ifndef WALK_SURVEY_H
#define WALK_SURVEY_H

#include <stddef.h>
#include <stdint.h>

/** A row of an inventory. */
struct walk_row {
    uint64_t dir; /**< id of the directory that holds it; 0: an operand */
    uint64_t id;  /**< a directory's own id; else 0 */
    uint64_t ino, dev, size_bytes, blocks, nlink; /**< blocks of 512 bytes */
    uint32_t mode, uid, gid;                      /**< mode with the type */
    uint32_t mtime_ns, ctime_ns, atime_ns;
    int64_t mtime, ctime, atime; /**< seconds; atime is mtime where an
                                      inventory of version 1 has none */
    const char *name;            /**< borrowed, any bytes */
    size_t name_len;
};

/** Read a binary inventory: every row, in no particular order. The file is
 * checked whole: -EBADMSG for a truncated or altered one, possibly after some
 * rows; -EPROTO for another kind of file. */
int walk_inventory_read(const char *path,
                        int (*each)(const struct walk_row *row, void *arg),
                        void *arg);

#endif
