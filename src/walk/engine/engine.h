/*
 * What the rooms on top of the engine share, besides <poise/walk.h>: the letter
 * of a type of file, as find -type and the inventories write it; and the way of
 * their errors.
 */
#ifndef WALK_ENGINE_H
#define WALK_ENGINE_H

#include <poise/walk.h>

#include <sys/stat.h>

/** 'f', 'd', ... of a mode; '?' for a type that has none. */
static inline char walk_type_letter(unsigned mode)
{
    static const char letters[] = "?pc?d?b?f?l?s???"; /* by S_IFMT >> 12 */
    return letters[(mode & S_IFMT) >> 12];
}

/** The last error was met at the entry of a running callback: count it and call
 * the hook error, as for what the walk itself cannot read. */
void walk_entry_failed(const struct poise_walk_entry *entry);

/** Paths that do not begin with a slash mean the same on all ranks: `relative`
 * is one of them, or NULL: there is none. -EINVAL: the ranks have different
 * working directories. Collective; returns on all alike. */
int walk_agree_where(struct poise_world *world, const char *relative);

#endif
