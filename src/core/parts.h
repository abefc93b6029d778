/*
 * poise/parts.h - libraries of others that this build has, or lacks.
 */
#ifndef POISE_PARTS_H
#define POISE_PARTS_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum poise_part {
    POISE_PART_HWLOC,
    POISE_PART_SQLITE,
    POISE_PART_ZLIB,
    POISE_PART_OPENSSL,
    POISE_PART_IO_URING,
    POISE_PART_CURL,
    POISE_PART_OTF2,
    POISE_PARTS
};

struct poise_part_about {
    bool is_built;       /**< this build has it */
    const char *name;    /**< "SQLite" */
    const char *package; /**< Debian's, by which a build has it */
    const char *without; /**< what there is not without it */
};
/** Indexed by the enum. */
POISE_API extern const struct poise_part_about poise_parts[POISE_PARTS];

/** Record that something cannot be done because this build lacks a part, and
 * how the part is called. Returns -ENOTSUP. */
int poise_part_missing(enum poise_part part, const char *doing,
                       const char *what);

#ifdef __cplusplus
}
#endif

#endif
