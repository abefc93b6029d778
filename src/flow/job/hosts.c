/* Files of hosts, as launchers have them: names, and how many nodes on each. */
#include "flow/job/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad_line(const char *path, unsigned line, const char *why)
{
    return poise_error_set(EINVAL, "read hosts from", path, "line %u: %s", line,
                           why);
}

static bool parse_slots(const char *text, unsigned *out)
{
    char *end;
    unsigned long slots = strtoul(text, &end, 10);
    *out = (unsigned)slots;
    return end != text && *end == '\0' && slots > 0 &&
           slots <= POISE_FLOW_NODES_MOST && *text != '-' && *text != '+';
}

/* `name` with ":N" behind it, or in brackets; NULL if that makes no sense. */
static char *parse_name(char *name, unsigned *slots)
{
    char *colon;
    if (*name == '[') {
        char *end = strchr(++name, ']');
        if (!end) {
            return NULL;
        }
        *end = '\0';
        colon = end[1] == ':' ? end + 1 : NULL;
        if (end[1] != '\0' && !colon) {
            return NULL;
        }
    } else {
        colon = strchr(name, ':');
    }
    if (colon && !parse_slots(colon + 1, slots)) {
        return NULL;
    }
    if (colon) {
        *colon = '\0';
    }
    /* What begins with '-' a remote shell would take for an option. */
    return *name && *name != '-' ? name : NULL;
}

static char *copy_of(const char *text)
{
    char *copy = poise_alloc(strlen(text) + 1, 1);
    return copy ? strcpy(copy, text) : NULL;
}

/* Behind the last one of its site. */
static void put_to_site(struct poise_flow_hosts *hosts)
{
    size_t last = hosts->count - 1, at = last;
    const struct poise_flow_host host = hosts->items[last];
    for (size_t h = 0; h < last; h++) {
        const char *site = hosts->items[h].site;
        if (strcmp(site ? site : "", host.site ? host.site : "") == 0) {
            at = h + 1;
        }
    }
    memmove(&hosts->items[at + 1], &hosts->items[at],
            (last - at) * sizeof host);
    hosts->items[at] = host;
}

static int add(struct poise_flow_hosts *hosts, const char *name,
               const char *site, unsigned slots)
{
    for (size_t h = 0; h < hosts->count; h++) {
        if (strcmp(hosts->items[h].name, name) == 0) {
            hosts->items[h].slots += slots;
            return 0;
        }
    }
    struct poise_flow_host *items =
        poise_realloc(hosts->items, hosts->count + 1, sizeof *items);
    if (!items) {
        return -ENOMEM;
    }
    hosts->items = items;
    struct poise_flow_host host = {copy_of(name), site ? copy_of(site) : NULL,
                                   slots};
    if (!host.name || (site && !host.site)) {
        free(host.name);
        free(host.site);
        return -ENOMEM;
    }
    items[hosts->count++] = host;
    put_to_site(hosts);
    return 0;
}

static int parse_line(const char *path, unsigned number, char *line,
                      struct poise_flow_hosts *hosts)
{
    static const char blanks[] = " \t\r";
    char *at = NULL, *word, *name, *site = NULL;
    unsigned slots = 1;
    line[strcspn(line, "#")] = '\0';
    word = strtok_r(line, blanks, &at);
    if (!word) {
        return 0;
    }
    name = parse_name(word, &slots);
    if (!name) {
        return bad_line(path, number, "a host is NAME, NAME:N or NAME slots=N");
    }
    while ((word = strtok_r(NULL, blanks, &at))) {
        if (strncmp(word, "site=", 5) == 0 && word[5]) {
            site = word + 5;
        } else if (strncmp(word, "slots=", 6) != 0 ||
                   !parse_slots(word + 6, &slots)) {
            return bad_line(path, number,
                            "behind a name only slots=N and site=NAME may "
                            "stand");
        }
    }
    return add(hosts, name, site, slots);
}

int poise_flow_hosts_read(const char *path, struct poise_flow_hosts *out)
{
    char *line = NULL;
    size_t cap = 0;
    unsigned number = 0;
    int code = 0;
    *out = (struct poise_flow_hosts){0};
    FILE *file = fopen(path, "re");
    while (file && code == 0 && getline(&line, &cap, file) >= 0) {
        line[strcspn(line, "\n")] = '\0';
        code = parse_line(path, ++number, line, out);
    }
    if (!file || (code == 0 && ferror(file))) {
        code = poise_error_set(errno, "read hosts from", path, NULL);
    }
    free(line);
    if (file) {
        fclose(file);
    }
    if (code == 0 && out->count == 0) {
        code =
            poise_error_set(EINVAL, "read hosts from", path, "it names none");
    }
    return code;
}

void poise_flow_hosts_free(struct poise_flow_hosts *hosts)
{
    for (size_t h = 0; h < hosts->count; h++) {
        free(hosts->items[h].name);
        free(hosts->items[h].site);
    }
    free(hosts->items);
    *hosts = (struct poise_flow_hosts){0};
}
