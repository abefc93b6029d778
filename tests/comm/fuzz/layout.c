/*
 * What says where ranks sit: a synthetic topology, a file of sites, and the
 * bytes in which rank 0 sends a layout. The first byte chooses, the second is
 * the number of ranks.
 */
#include "../../fuzz/fuzz.h"

#include "comm/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

/* Units are numbered from 0 in the order in which they first appear, and an
 * inner unit lies in one outer unit. */
static void check_synthetic(const char *text, int size)
{
    struct comm_layout layout;
    int code = comm_layout_synthetic(text, size, &layout);
    check(code == 0 || code == -EINVAL);
    if (code < 0) {
        return;
    }
    struct poise_placement top = {0};
    for (int rank = 0; rank < size; rank++) {
        struct poise_placement placement = layout.placements[rank];
        /* Consecutive ranks share a unit or begin the next one. */
        check(placement.site == top.site || placement.site == top.site + 1);
        check(placement.node == top.node || placement.node == top.node + 1);
        check(placement.numa == top.numa || placement.numa == top.numa + 1);
        check(placement.site == top.site || placement.node != top.node);
        check(placement.node == top.node || placement.numa != top.numa);
        top = placement;
    }
    struct comm_placements placements;
    check(comm_placements_create(&layout, size / 2, size, &placements) == 0);
    check(placements.first[POISE_LEVELS] == size - 1);
    check(placements.group_sizes[POISE_LEVEL_WORLD] == size);
    comm_placements_free(&placements);
}

static void check_sites(char *text)
{
    size_t len = strlen(text);
    const char *site = comm_site_of(text, "node17.cluster.org");
    check(!site || (site > text && site < text + len && *site));
}

static void check_packed(const void *data, size_t len, int size)
{
    struct poise_reader reader = poise_reader_of(data, len);
    struct comm_layout layout;
    int code = comm_layout_unpack(&reader, size, &layout);
    check(code == 0 || code == -EBADMSG);
    if (code < 0) {
        return;
    }
    /* Good enough to be taken apart again. */
    struct comm_layout part;
    int ranks[] = {size - 1, 0};
    check(comm_layout_part(&layout, size, ranks, 2, &part) == 0);
    check(part.placements[0].site == 0);
    free(part.placements);
    free(layout.placements);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 2) {
        return 0;
    }
    int size = data[1] % 64 + 1;
    char *text = malloc(len);
    check(text != NULL);
    memcpy(text, data + 2, len - 2);
    text[len - 2] = '\0';
    switch (data[0] % 3) {
    case 0:
        check_synthetic(text, size);
        break;
    case 1:
        check_sites(text);
        break;
    default:
        check_packed(data + 2, len - 2, size);
    }
    free(text);
    return 0;
}
