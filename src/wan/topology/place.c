/* Hosts of a topology: their numbers, names and addresses, the ranks they get.
 */
#include "wan/topology/topology.h"

#include <limits.h>
#include <string.h>

#define NETWORK ((uint32_t)10 << 24 | 77u << 16)

/* The site of a host, and its number there. */
static unsigned place_of(const struct poise_wan_topology *topology,
                         unsigned host, unsigned *number)
{
    unsigned site = 0;
    while (site + 1 < topology->count && host >= topology->sites[site].hosts) {
        host -= topology->sites[site++].hosts;
    }
    *number = host;
    return site;
}

unsigned poise_wan_site_of(const struct poise_wan_topology *topology,
                           unsigned host)
{
    unsigned number;
    return place_of(topology, host, &number);
}

int poise_wan_host_name(const struct poise_wan_topology *topology,
                        unsigned host, struct poise_buf *out)
{
    unsigned number;
    unsigned site = place_of(topology, host, &number);
    return poise_buf_printf(out, "%s%u", topology->sites[site].name, number);
}

void poise_wan_deal(const struct poise_wan_topology *topology, uint64_t ranks,
                    uint64_t *slots)
{
    uint64_t left = ranks % topology->hosts;
    for (unsigned i = 0; i < topology->hosts; i++) {
        slots[i] = ranks / topology->hosts;
    }
    for (unsigned turn = 0; left > 0; turn++) {
        unsigned first = 0;
        for (unsigned site = 0; site < topology->count && left > 0; site++) {
            if (turn < topology->sites[site].hosts) {
                slots[first + turn]++;
                left--;
            }
            first += topology->sites[site].hosts;
        }
    }
}

uint32_t poise_wan_host_address(const struct poise_wan_topology *topology,
                                unsigned host)
{
    unsigned number;
    unsigned site = place_of(topology, host, &number);
    return NETWORK | (site + 1) << 8 | (number + 1);
}

unsigned wan_host_of(const struct poise_wan_topology *topology,
                     uint32_t address)
{
    unsigned site = (address >> 8 & 0xff) - 1, number = (address & 0xff) - 1;
    unsigned host = number;
    if ((address & 0xffff0000) != NETWORK || site >= topology->count ||
        number >= topology->sites[site].hosts) {
        return UINT_MAX;
    }
    for (unsigned i = 0; i < site; i++) {
        host += topology->sites[i].hosts;
    }
    return host;
}

unsigned wan_host_of_six(const struct poise_wan_topology *topology,
                         const unsigned char address[16])
{
    static const unsigned char network[12] = {WAN_NETWORK_SIX};
    if (memcmp(address, network, sizeof network) != 0 || address[12] ||
        address[14]) {
        return UINT_MAX;
    }
    return wan_host_of(topology,
                       NETWORK | (unsigned)address[13] << 8 | address[15]);
}

void wan_address_six(uint32_t address, unsigned char out[16])
{
    static const unsigned char network[16] = {WAN_NETWORK_SIX};
    memcpy(out, network, sizeof network);
    out[13] = (unsigned char)(address >> 8);
    out[15] = (unsigned char)address;
}

const struct poise_wan_link *
poise_wan_link_of(const struct poise_wan_topology *topology, unsigned from,
                  unsigned to)
{
    unsigned a = poise_wan_site_of(topology, from);
    unsigned b = poise_wan_site_of(topology, to);
    const struct poise_wan_link *link =
        &topology->links[a * topology->count + b];
    return a == b ? &topology->sites[a].lan : link->set ? link : NULL;
}
