/*
 * poise/entry.h - what of an entry of a directory is kept when it is made anew,
 * and how safe what was made is: words of copy, archive and send.
 */
#ifndef POISE_ENTRY_H
#define POISE_ENTRY_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    POISE_WALK_KEEP_MODE = 1,
    POISE_WALK_KEEP_OWNER = 2,  /**< user (by root only) and group (where the
                                     process is allowed to give it away);
                                     who cannot be given gets no set-user or
                                     set-group bit either */
    POISE_WALK_KEEP_TIMES = 4,  /**< of modification */
    POISE_WALK_KEEP_XATTRS = 8, /**< user.*, access lists; for root also
                                     trusted.*, also on symbolic links, and file
                                     capabilities */
    POISE_WALK_KEEP_ALL = 15,
    POISE_WALK_KEEP_ATIME = 16, /**< with KEEP_TIMES: of access, too */
};

/** How safe against a loss of power what is written shall be. */
enum poise_sync {
    POISE_SYNC_NONE, /**< the system writes it when it likes */
    POISE_SYNC_FILE, /**< each file is on the disk before it has its name, and
                          each directory once all is in it */
    POISE_SYNC_TREE, /**< all of it is on the disk in the end: one sync of the
                          file system */
};
/** "none", "file", "tree"; NULL-terminated, indexed by the enum. */
POISE_API extern const char *const poise_sync_names[];

#ifdef __cplusplus
}
#endif

#endif
