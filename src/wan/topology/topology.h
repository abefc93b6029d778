/*
 * What a topology's text says, and the files that it names: for the rooms of
 * wing wan.
 *
 *   topology.c  the text, the ways that packets take
 *   place.c     hosts: numbers, names, addresses
 *   tracefile.c latency and bandwidth over time
 *   mahimahi.c  opportunities to deliver a packet
 *   lines.c     files of lines
 */
#ifndef POISE_WAN_TOPOLOGY_H
#define POISE_WAN_TOPOLOGY_H

#include <poise/core.h>
#include <poise/wan.h>

/** The same as poise_wan_topology_parse; no_files: none are opened for it. */
int wan_topology_parse(const char *text, size_t len, const char *path,
                       bool no_files, struct poise_wan_topology *out);
/** Change a link by a line "link ...", which is written into. -EINVAL: what is
 * wrong, and nothing has changed, but for the first of two directions. */
int wan_topology_change(struct poise_wan_topology *topology, char *line);

/** The number of the host of an address, or UINT_MAX. */
unsigned wan_host_of(const struct poise_wan_topology *topology,
                     uint32_t address);
/** IPv6 addresses are fd77::SITE:HOST. */
#define WAN_NETWORK_SIX 0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
unsigned wan_host_of_six(const struct poise_wan_topology *topology,
                         const unsigned char address[16]);
/** That of the host of an IPv4 address. */
void wan_address_six(uint32_t address, unsigned char out[16]);

/** When a packet of `bytes` that wants to go at `begin_ns`, in nanoseconds from
 * the start, has gone. A line keeps *taken, opportunities that were begun, and
 * *left, bytes that the last one still has room for; both begin with 0. */
uint64_t wan_deliveries_next(const struct poise_wan_deliveries *deliveries,
                             uint64_t *taken, uint64_t *left, uint64_t begin_ns,
                             uint64_t bytes);

/* ---- text --------------------------------------------------------------- */

/** -EINVAL with "PATH:LINE" as what is wrong. */
int wan_line_error(const char *path, unsigned line, const char *fmt, ...)
    POISE_PRINTF(3, 4);
/** Give each line of a file to `take`, without its end, to be written into,
 * until it returns an error. -EINVAL also where a line has a NUL or over 4 KiB,
 * or the file over 256 MiB: with "PATH:LINE". */
int wan_lines_read(const char *path,
                   int (*take)(void *arg, char *text, const char *path,
                               unsigned line),
                   void *arg);
/** The next word of *text, NUL-terminated in place, or NULL. */
char *wan_word(char **text);

#endif
