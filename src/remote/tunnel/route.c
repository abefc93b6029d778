/* How connections are cut into segments: as the user chose for the address that
 * they go to. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "[HOST:PORT=]NAME[,OPTION...]" */
static int parse(const char *text, struct tunnel_route *out)
{
    const char *equals = strchr(text, '='), *comma = strchr(text, ',');
    struct poise_buf copy = {0}, target = {0};
    struct remote_name name;
    int code = 0;

    if (equals && (!comma || equals < comma)) {
        code = poise_buf_append(&copy, text, (size_t)(equals - text));
        code = code < 0 ? code : remote_name_parse(poise_buf_str(&copy), &name);
        text = equals + 1;
        if (code == 0 && !name.host[0]) {
            code = poise_error_set(EINVAL, "use segmenter", text,
                                   "it is for HOST:PORT");
        }
        if (code == 0) {
            remote_name_put(&name, &target);
            out->target = strdup(poise_buf_str(&target));
            code =
                out->target ? 0 : poise_error_set(ENOMEM, "keep", text, NULL);
        }
    }
    code =
        code < 0 ? code : poise_dedup_cut_parse(text, &out->method, &out->cut);
    out->samples = code == 0 && strcmp(out->method->name, "auto") == 0;
    poise_buf_free(&copy);
    poise_buf_free(&target);
    return code;
}

int tunnel_routes_create(struct tunnel *tunnel)
{
    const struct poise_remote_tunnel_options *options = &tunnel->options;
    int code = 0;

    tunnel->default_route.method = poise_dedup_method_find("gear");
    if (options->segmenter_count == 0) {
        return 0;
    }
    tunnel->routes =
        poise_alloc(options->segmenter_count, sizeof *tunnel->routes);
    if (!tunnel->routes) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < options->segmenter_count && code == 0; i++) {
        code = parse(options->segmenters[i],
                     &tunnel->routes[tunnel->route_count++]);
    }
    return code;
}

void tunnel_routes_free(struct tunnel *tunnel)
{
    for (size_t i = 0; i < tunnel->route_count; i++) {
        free(tunnel->routes[i].target);
        poise_buf_free(&tunnel->routes[i].sample);
    }
    free(tunnel->routes);
}

struct tunnel_route *tunnel_route_of(struct tunnel *tunnel, const char *target,
                                     size_t len)
{
    struct tunnel_route *found = &tunnel->default_route;

    for (size_t i = 0; i < tunnel->route_count; i++) {
        struct tunnel_route *route = &tunnel->routes[i];
        if (!route->target) {
            found = route;
        } else if (strlen(route->target) == len &&
                   memcmp(route->target, target, len) == 0) {
            return route;
        }
    }
    return found;
}

int tunnel_route_sample(struct tunnel_route *route, const void *data,
                        size_t len)
{
    struct poise_dedup_choice choice;
    int code;

    if (!route->samples) {
        return 0;
    }
    code = poise_buf_append(&route->sample, data, len);
    if (code == 0 && route->sample.len >= POISE_DEDUP_SAMPLE) {
        /* The cache has the sample itself by now, as gear cut it. */
        code = poise_dedup_choose(NULL, route->sample.data, route->sample.len,
                                  &route->cut, &choice);
        if (code == 0) {
            route->method = choice.method;
            route->cut = choice.cut;
            route->samples = false;
            poise_buf_free(&route->sample);
        }
    }
    return code;
}
