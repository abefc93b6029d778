/* What send and tunnel, which deduplicate by a cache, have in common. */
#ifndef POISE_CLI_CACHE_H
#define POISE_CLI_CACHE_H

#include "common.h"

/** The cache of this end. */
struct cli_cache {
    const char *folder;
    uint64_t bytes;
    int64_t bits, level;
};

#define CLI_CACHE_OPTIONS(type, member, remembered, without)                   \
    {POISE_OPTION_STRING, .name = "cache", .arg = "DIR",                       \
     .help = "remember here what " remembered " in $XDG_CACHE_HOME or "        \
             "~/.cache); empty: " without,                                     \
     .offset = offsetof(type, member.folder)},                                 \
        {POISE_OPTION_BYTES, .name = "cache-size", .arg = "SIZE",              \
         .help = "let a cache grow up to SIZE (default: 10G)",                 \
         .offset = offsetof(type, member.bytes)},                              \
        {POISE_OPTION_INT,                                                     \
         .name = "bits",                                                       \
         .arg = "N",                                                           \
         .help = "width of the fingerprints of a new cache (default: 40)",     \
         .offset = offsetof(type, member.bits),                                \
         .min = 8,                                                             \
         .max = 64},                                                           \
    {                                                                          \
        POISE_OPTION_INT,                                                      \
            .name = "level", .arg = "N",                                       \
            .help =                                                            \
                "compress what is new at this level of Zstandard (default: "   \
                "3)",                                                          \
            .offset = offsetof(type, member.level), .min = 1, .max = 19        \
    }

#endif
