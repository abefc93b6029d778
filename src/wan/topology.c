/* The text of a topology, and the numbers and names that follow from it. */
#include "internal.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <fcntl.h>
#include <sys/stat.h>

/* What is being read. */
struct reading {
    const char *path;
    unsigned line;
    struct poise_wan_topology topology;
    struct poise_wan_link fallback; /* of "default" */
};

int wan_line_error(const char *path, unsigned line, const char *fmt, ...)
{
    char where[PATH_MAX + 16], why[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    snprintf(where, sizeof where, "%s:%u", path, line);
    return poise_error_set(EINVAL, "read", where, "%s", why);
}

char *wan_word(char **text)
{
    char *word = *text + strspn(*text, " \t\r");
    size_t len = strcspn(word, " \t\r");
    if (len == 0) {
        return NULL;
    }
    *text = word + len + (word[len] != '\0');
    word[len] = '\0';
    return word;
}

/* ---- values ------------------------------------------------------------- */

int poise_wan_parse_rate(const char *text, uint64_t *out)
{
    static const struct {
        const char *unit;
        double factor;
    } units[] = {{"", 1},         {"bit", 1},     {"kbit", 1e3},
                 {"Mbit", 1e6},   {"Gbit", 1e9},  {"kbit/s", 1e3},
                 {"Mbit/s", 1e6}, {"Gbit/s", 1e9}};
    char *end = NULL;
    double value = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof *units; i++) {
        double bits = value * units[i].factor;
        /* Plain digits only: no infinity, no hexadecimal. */
        if (strcmp(end, units[i].unit) == 0 &&
            strspn(text, "0123456789.") == (size_t)(end - text) && bits >= 1 &&
            bits < 1e15) {
            *out = (uint64_t)llround(bits);
            return 0;
        }
    }
    return poise_error_set(EINVAL, "use", text,
                           "not a rate, such as 10Mbit or 1.5Gbit");
}

static int parse_loss(const char *text, double *out)
{
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || strcmp(end, "%") != 0 ||
        strspn(text, "0123456789.") != (size_t)(end - text) || value > 100) {
        return poise_error_set(EINVAL, "use", text,
                               "not a percentage, such as 0.1%%");
    }
    *out = value / 100;
    return 0;
}

static bool name_ok(const char *name)
{
    size_t len = strlen(name);
    return len > 0 && len < 32 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789-") == len &&
           name[0] != '-' && (name[len - 1] < '0' || name[len - 1] > '9');
}

/* An error of a value, with the line in front. */
static int value_error(const struct reading *r)
{
    struct poise_buf why = {0};
    const struct poise_error *last = poise_error_last();
    bool is_rule = strncmp(last->why, "must ", 5) == 0;
    poise_buf_printf(&why, "'%s' %s%s", last->what, is_rule ? "" : "is ",
                     last->why);
    int code = wan_line_error(r->path, r->line, "%s", poise_buf_str(&why));
    poise_buf_free(&why);
    return code;
}

/* ---- lines -------------------------------------------------------------- */

static int site_find(const struct poise_wan_topology *topology,
                     const char *name)
{
    for (unsigned i = 0; i < topology->count; i++) {
        if (strcmp(topology->sites[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* TIME RATE, in place at *rest. */
static int read_delay(const struct reading *r, char **rest,
                      struct poise_wan_link *link)
{
    const char *time = wan_word(rest), *rate = wan_word(rest);
    if (!time || !rate) {
        return wan_line_error(r->path, r->line,
                              "a latency and a rate are missing, such as "
                              "'10ms 100Mbit'");
    }
    if (poise_parse_duration(time, &link->latency_ns) < 0 ||
        poise_wan_parse_rate(rate, &link->bits_per_second) < 0) {
        return value_error(r);
    }
    link->set = true;
    return 0;
}

static int read_trace(const struct reading *r, const char *name,
                      struct poise_wan_link *link)
{
    struct poise_buf path = {0};
    const char *slash = strrchr(r->path, '/');
    if (slash && name[0] != '/') {
        poise_buf_append(&path, r->path, (size_t)(slash - r->path) + 1);
    }
    poise_buf_puts(&path, name);
    const char *whole = poise_buf_str(&path);
    int code = path.error;
    if (code == 0) {
        code = poise_wan_trace_read(whole, &link->trace);
    }
    poise_buf_free(&path);
    return code;
}

/* The words behind latency and rate. */
static int read_extras(const struct reading *r, char **rest,
                       struct poise_wan_link *link)
{
    for (char *key; (key = wan_word(rest));) {
        const char *value = wan_word(rest);
        int code;
        if (!value) {
            return wan_line_error(r->path, r->line, "'%s' lacks its value",
                                  key);
        }
        if (strcmp(key, "trace") == 0) {
            code = read_trace(r, value, link);
            if (code < 0) {
                return code;
            }
            continue;
        }
        if (strcmp(key, "jitter") == 0) {
            code = poise_parse_duration(value, &link->jitter_ns);
        } else if (strcmp(key, "loss") == 0) {
            code = parse_loss(value, &link->loss);
        } else if (strcmp(key, "queue") == 0) {
            code = poise_parse_bytes(value, &link->queue_bytes);
        } else {
            return wan_line_error(r->path, r->line,
                                  "'%s' is not jitter, loss, queue or trace",
                                  key);
        }
        if (code < 0) {
            return value_error(r);
        }
    }
    return 0;
}

static int read_site(struct reading *r, char **rest)
{
    struct poise_wan_topology *t = &r->topology;
    const char *name = wan_word(rest), *hosts = wan_word(rest);
    int64_t count;
    if (!name || !hosts) {
        return wan_line_error(r->path, r->line,
                              "a site is 'site NAME HOSTS [lan TIME RATE]'");
    }
    if (!name_ok(name)) {
        return wan_line_error(r->path, r->line,
                              "'%s' is no name for a site: letters, digits "
                              "and '-', the last no digit",
                              name);
    }
    if (t->count == POISE_WAN_SITES_MOST || site_find(t, name) >= 0) {
        return wan_line_error(r->path, r->line,
                              site_find(t, name) >= 0
                                  ? "site '%s' is there already"
                                  : "'%s' is one site too many",
                              name);
    }
    if (poise_parse_int(hosts, 1, POISE_WAN_HOSTS_MOST, &count) < 0) {
        return value_error(r);
    }
    if (t->links) {
        return wan_line_error(r->path, r->line, "sites come before links");
    }
    void *sites = poise_realloc(t->sites, t->count + 1, sizeof *t->sites);
    if (!sites) {
        return -ENOMEM;
    }
    t->sites = sites;
    struct poise_wan_site *site = &t->sites[t->count];
    memset(site, 0, sizeof *site);
    site->name = strdup(name);
    if (!site->name) {
        return poise_error_set(ENOMEM, "read", r->path, NULL);
    }
    site->hosts = (unsigned)count;
    t->count++;
    t->hosts += site->hosts;
    const char *lan = wan_word(rest);
    if (lan && strcmp(lan, "lan") != 0) {
        return wan_line_error(r->path, r->line, "'%s' is not 'lan'", lan);
    }
    int code = lan ? read_delay(r, rest, &site->lan) : 0;
    return code < 0 ? code : read_extras(r, rest, &site->lan);
}

static int links_reserve(struct reading *r)
{
    struct poise_wan_topology *t = &r->topology;
    if (!t->links) {
        t->links =
            poise_alloc((size_t)t->count * t->count + 1, sizeof *t->links);
    }
    return t->links ? 0 : -ENOMEM;
}

/* Give `link` to one direction; its trace goes along. */
static void link_store(struct poise_wan_topology *t, int from, int to,
                       const struct poise_wan_link *link)
{
    struct poise_wan_link *at =
        &t->links[(unsigned)from * t->count + (unsigned)to];
    poise_wan_trace_free(at->trace);
    *at = *link;
}

static int read_link(struct reading *r, char **rest)
{
    struct poise_wan_topology *t = &r->topology;
    struct poise_wan_link link = {0};
    const char *names[2] = {wan_word(rest), wan_word(rest)};
    bool one_way = names[1] && strcmp(names[1], "->") == 0;
    int sites[2];
    if (one_way) {
        names[1] = wan_word(rest);
    }
    if (!names[0] || !names[1]) {
        return wan_line_error(r->path, r->line,
                              "a link is 'link SITE SITE TIME RATE ...' or "
                              "'link SITE -> SITE TIME RATE ...'");
    }
    for (int i = 0; i < 2; i++) {
        sites[i] = site_find(t, names[i]);
        if (sites[i] < 0) {
            return wan_line_error(r->path, r->line, "no site '%s' above",
                                  names[i]);
        }
    }
    if (sites[0] == sites[1]) {
        return wan_line_error(r->path, r->line,
                              "a link from '%s' to itself: say 'lan' with "
                              "the site",
                              names[0]);
    }
    int code = links_reserve(r);
    char *extras = NULL;
    if (code == 0 && (code = read_delay(r, rest, &link)) == 0) {
        /* Each direction owns its trace: the words are read twice. */
        extras = one_way ? NULL : strdup(*rest);
        code = read_extras(r, rest, &link);
    }
    if (code == 0) {
        link_store(t, sites[0], sites[1], &link);
        link.trace = NULL;
    }
    if (code == 0 && extras) {
        char *words = extras;
        code = read_extras(r, &words, &link);
        if (code == 0) {
            link_store(t, sites[1], sites[0], &link);
            link.trace = NULL;
        }
    }
    poise_wan_trace_free(link.trace);
    free(extras);
    return code;
}

static int read_default(struct reading *r, char **rest)
{
    int code = read_delay(r, rest, &r->fallback);
    if (code == 0) {
        code = read_extras(r, rest, &r->fallback);
    }
    if (code == 0 && r->fallback.trace) {
        code = wan_line_error(r->path, r->line,
                              "a trace belongs to a link, not to 'default'");
    }
    return code;
}

static int read_line(struct reading *r, char *text)
{
    text[strcspn(text, "#")] = '\0';
    char *rest = text;
    const char *word = wan_word(&rest);
    if (!word) {
        return 0;
    }
    if (strcmp(word, "site") == 0) {
        return read_site(r, &rest);
    }
    if (strcmp(word, "link") == 0) {
        return read_link(r, &rest);
    }
    if (strcmp(word, "default") == 0) {
        return read_default(r, &rest);
    }
    return wan_line_error(r->path, r->line, "'%s' is not site, link or default",
                          word);
}

/* ---- the whole ---------------------------------------------------------- */

/* Fill in what no line said, and look whether all is there. */
static int finish(struct reading *r)
{
    struct poise_wan_topology *t = &r->topology;
    if (t->count == 0) {
        return poise_error_set(EINVAL, "read", r->path, "it has no site");
    }
    int code = links_reserve(r);
    for (unsigned i = 0; code == 0 && i < t->count * t->count; i++) {
        unsigned from = i / t->count, to = i % t->count;
        if (from == to || t->links[i].set) {
            continue;
        }
        if (!r->fallback.set) {
            return poise_error_set(EINVAL, "read", r->path,
                                   "no link leads from '%s' to '%s', and "
                                   "there is no 'default'",
                                   t->sites[from].name, t->sites[to].name);
        }
        t->links[i] = r->fallback;
    }
    return code;
}

int poise_wan_topology_parse(const char *text, size_t len, const char *path,
                             struct poise_wan_topology *out)
{
    struct reading r = {.path = path};
    char *copy = poise_alloc(len + 1, 1);
    int code = copy ? 0 : -ENOMEM;
    if (copy) {
        memcpy(copy, text, len);
    }
    for (char *at = copy; code == 0 && at && at <= copy + len;) {
        char *end = memchr(at, '\n', (size_t)(copy + len - at));
        if (!end) {
            end = copy + len;
        }
        *end = '\0';
        r.line++;
        if (strlen(at) != (size_t)(end - at)) {
            code = wan_line_error(path, r.line, "a NUL byte");
        } else {
            code = read_line(&r, at);
        }
        at = end + 1;
    }
    if (code == 0) {
        code = finish(&r);
    }
    free(copy);
    poise_wan_trace_free(r.fallback.trace);
    if (code < 0) {
        poise_wan_topology_free(&r.topology);
        return code;
    }
    *out = r.topology;
    return 0;
}

int poise_wan_topology_read(const char *path, struct poise_wan_topology *out)
{
    struct poise_buf text = {0};
    int fd = poise_file_open(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    int code = fd < 0 ? fd : 0;
    ssize_t got = 1;
    while (code == 0 && got > 0) {
        char *room = poise_buf_reserve(&text, 65536);
        got = room ? poise_file_read(fd, room, 65536, path) : -ENOMEM;
        text.len += got > 0 ? (size_t)got : 0;
        code = got < 0 ? (int)got : 0;
        if (code == 0 && text.len > (16 << 20)) {
            code = poise_error_set(EFBIG, "read", path, "it is no topology");
        }
    }
    if (fd >= 0) {
        poise_file_close(fd, path);
    }
    if (code == 0) {
        code = poise_wan_topology_parse(text.data ? text.data : "", text.len,
                                        path, out);
    }
    poise_buf_free(&text);
    return code;
}

void poise_wan_topology_free(struct poise_wan_topology *topology)
{
    for (unsigned i = 0; i < topology->count; i++) {
        free(topology->sites[i].name);
        poise_wan_trace_free(topology->sites[i].lan.trace);
    }
    for (unsigned i = 0;
         topology->links && i < topology->count * topology->count; i++) {
        poise_wan_trace_free(topology->links[i].trace);
    }
    free(topology->sites);
    free(topology->links);
    memset(topology, 0, sizeof *topology);
}

/* ---- hosts -------------------------------------------------------------- */

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

const struct poise_wan_link *
poise_wan_link_of(const struct poise_wan_topology *topology, unsigned from,
                  unsigned to)
{
    unsigned a = poise_wan_site_of(topology, from);
    unsigned b = poise_wan_site_of(topology, to);
    return a == b ? &topology->sites[a].lan
                  : &topology->links[a * topology->count + b];
}
