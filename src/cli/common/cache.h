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
    "A cache tells by how much a transfer takes what it knew: whoever can "    \
    "have a guess sent through it, and sees how many bytes that took, or how " \
    "long, learns whether the same was sent before. TLS and ssh do not hide "  \
    "it. "

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
     .help = "remember here what " remembered " in $XDG_CACHE_HOME or "        \
             "~/.cache); empty: " without,                                     \
     .offset = offsetof(type, member.folder)},                                 \
        {POISE_OPTION_BYTES, .name = "cache-size", .arg = "SIZE",              \
         .help = "let a cache grow up to SIZE (default: 10G)",                 \
         .offset = offsetof(type, member.bytes)},                              \
        {POISE_OPTION_FLAG, .name = "shared-cache",                            \
         .help = "use one cache for all other ends; by default each has its "  \
                 "own, so that what one is sent does not show what others "    \
                 "were",                                                       \
         .offset = offsetof(type, member.shared)},                             \
        {POISE_OPTION_BYTES, .name = "pad", .arg = "SIZE",                     \
         .help = "make what goes over the link at a time a multiple of SIZE, " \
                 "both ways, so that it does not show what shorter data were " \
                 "known (64 to 256K, such as 4K; default: no)",                \
         .offset = offsetof(type, member.pad)},                                \
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
