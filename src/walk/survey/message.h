/* The letter of a type of file, as find -type and the inventories write it. */
#ifndef POISE_WALK_LETTER_H
#define POISE_WALK_LETTER_H

#include <sys/stat.h>

/** 'f', 'd', ... of a mode; '?' for what there is no letter for. */
static inline char walk_type_letter(unsigned mode)
{
    static const char letters[] = "?pc?d?b?f?l?s???"; /* by S_IFMT >> 12 */
    return letters[(mode & S_IFMT) >> 12];
}

#endif
