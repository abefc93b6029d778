/* What the map says of callbacks that crash, or do not return. */
#include "internal.h"

#include <errno.h>
#include <string.h>

static void tell(const struct map *map, struct poise_buf *words)
{
    if (map->options->notice && poise_buf_str(words)) {
        map->options->notice(poise_buf_str(words), map->options->notice_arg);
    }
    poise_buf_free(words);
}

/* "node 3", "node 3 on host 'b0'" */
static void put_node(const struct map *map, unsigned id, struct poise_buf *out)
{
    poise_buf_printf(out, "node %u", id);
    if (map->hosts) {
        poise_buf_printf(out, " on host '%s'",
                         map->hosts[map->nodes[id].host].name);
    }
}

static bool same(const struct poise_flow_address *a,
                 const struct poise_flow_address *b, unsigned dims)
{
    return a->file == b->file && a->version == b->version &&
           memcmp(a->index, b->index, dims * sizeof *a->index) == 0;
}

int map_crashed(struct map *map, unsigned id, struct flow_crash *given)
{
    const struct flow_crash own = *given, *crash = &own;
    struct poise_buf words = {0};
    const struct poise_flow_address *at = &crash->at;
    unsigned others = 0;
    given->number = 0; /* told once */
    if (crash->number == 0) {
        return 0;
    }
    bool known = crash->computed && at->file < map->job->file_count &&
                 flow_shape_holds(&map->job->files[at->file].shape, at);
    for (unsigned n = 0; n < map->count; n++) {
        others += n != id && map->nodes[n].alive;
    }
    put_node(map, id, &words);
    if (known &&
        (others == 0 ||
         (map->crash.number &&
          same(at, &map->crash.at, map->job->files[at->file].shape.dims)))) {
        int code = flow_error(map->job, EFAULT, "compute block", at,
                              "the program crashes%s: %s was ended by signal "
                              "%d (%s)",
                              map->crash.number ? " there each time" : "",
                              words.data ? words.data : "a node", crash->number,
                              strsignal(crash->number));
        poise_buf_free(&words);
        return code;
    }
    poise_buf_printf(&words, " was ended by signal %d (%s)", crash->number,
                     strsignal(crash->number));
    if (known) {
        map->crash = *crash;
        poise_buf_puts(&words, " while it computed ");
        poise_flow_address_text(map->job, at, &words);
    }
    poise_buf_puts(&words, others > 0 ? ": others compute its part" : "");
    tell(map, &words);
    return 0;
}

void map_lost_told(const struct map *map, unsigned id)
{
    struct poise_buf words = {0};
    put_node(map, id, &words);
    poise_buf_puts(&words, " was silent for too long: others compute its part");
    tell(map, &words);
}

void map_long(const struct map *map, unsigned id, const struct flow_head *head)
{
    struct poise_buf words = {0};
    struct poise_flow_address at;
    const struct flow_key key = {head->file, head->version, head->place};
    if (head->file >= map->job->file_count) {
        return;
    }
    const struct poise_flow_chunk *shape = &map->job->files[head->file].shape;
    if (head->place >= flow_shape_places(shape)) {
        return;
    }
    flow_shape_address(shape, &key, &at);
    put_node(map, id, &words);
    poise_buf_puts(&words, " has been computing ");
    poise_flow_address_text(map->job, &at, &words);
    poise_buf_printf(&words, " for %llu s: it may never return",
                     (unsigned long long)(head->extra / 1000000000));
    tell(map, &words);
}
