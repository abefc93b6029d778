/* What send and tunnel, which deduplicate by a cache, have in common. */
#ifndef POISE_CLI_CACHE_H
#define POISE_CLI_CACHE_H

#include "common.h"
#include "series.h"

#include <poise/dedup.h>

/** The cache of this end. */
struct cli_cache {
    const char *folder;
    uint64_t bytes, pad;
    int64_t bits, level;
    bool shared;
};

/** What users have to know who let others send through the same cache. */
#define CLI_CACHE_TELLS                                                        \
    "A cache gives away what it knows: someone who can send a "                \
    "guess through it, and sees how many bytes or how much time "              \
    "that takes, learns whether the same data went through before. "           \
    "TLS and ssh do not hide this. "

/** Whether what users want of it can be had: it is said, if not. */
static inline bool cli_cache_check(const char *command,
                                   const struct cli_cache *cache)
{
    if (cache->pad != 0 && (cache->pad < POISE_DEDUP_PAD_LEAST ||
                            cache->pad > POISE_DEDUP_PAD_MOST)) {
        cli_say(command, "--pad is from %d to %d bytes", POISE_DEDUP_PAD_LEAST,
                POISE_DEDUP_PAD_MOST);
        return false;
    }
    return true;
}

/** On a page: in which way the data went out. */
int cli_cache_ways(struct poise_page *page,
                   const struct poise_dedup_peer_stats *stats);
/** How fast data went, and what of them was on the link: of moments with bytes
 * of data and bytes on the link. Nothing where there are too few. */
int cli_cache_course(struct poise_page *page, const struct cli_series *series);
/** "1.2 MiB for 34 MiB (28.3:1)" */
void cli_cache_ratio(struct poise_buf *out, uint64_t link, uint64_t data);

#define CLI_CACHE_OPTIONS(type, member, remembered, without)                   \
    {POISE_OPTION_STRING, .name = "cache", .arg = "DIR",                       \
     .help =                                                                   \
         "cache of this end (default: " remembered " in $XDG_CACHE_HOME or "   \
         "~/.cache); empty: " without,                                         \
     .offset = offsetof(type, member.folder)},                                 \
        {POISE_OPTION_BYTES, .name = "cache-size", .arg = "SIZE",              \
         .help = "limit each cache to SIZE (default: 10G)",                    \
         .offset = offsetof(type, member.bytes)},                              \
        {POISE_OPTION_FLAG, .name = "shared-cache",                            \
         .help = "use one cache for all other ends; by default each has its "  \
                 "own, so that no end can test what others were sent",         \
         .offset = offsetof(type, member.shared)},                             \
        {POISE_OPTION_BYTES, .name = "pad", .arg = "SIZE",                     \
         .help =                                                               \
             "pad what goes over the link to multiples of SIZE, both ways, "   \
             "so that an observer cannot tell which shorter data were known "  \
             "(64 to 256K, such as 4K; default: no padding)",                  \
         .offset = offsetof(type, member.pad)},                                \
        {POISE_OPTION_INT,                                                     \
         .name = "bits",                                                       \
         .arg = "N",                                                           \
         .help = "width of fingerprints in a new cache (default: 40)",         \
         .offset = offsetof(type, member.bits),                                \
         .min = 8,                                                             \
         .max = 64},                                                           \
    {                                                                          \
        POISE_OPTION_INT,                                                      \
            .name = "level", .arg = "N",                                       \
            .help = "compress new data at this Zstandard level (default: 3)",  \
            .offset = offsetof(type, member.level), .min = 1, .max = 19        \
    }

#endif
