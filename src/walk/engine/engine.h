/*
 * What the rooms on top of the engine share, besides <poise/walk.h>: the letter
 * of a type of file, as find -type and the inventories write it.
 */
#ifndef WALK_ENGINE_H
#define WALK_ENGINE_H

#include <sys/stat.h>

/** 'f', 'd', ... of a mode; '?' for a type that has none. */
static inline char walk_type_letter(unsigned mode)
{
    static const char letters[] = "?pc?d?b?f?l?s???"; /* by S_IFMT >> 12 */
    return letters[(mode & S_IFMT) >> 12];
}

#endif
