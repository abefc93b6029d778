/* The text of a topology, and the ways that packets take. */
#include "wan/topology/topology.h"

#include <ctype.h>
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
    struct poise_wan_link fallback;       /* of "default" */
    unsigned lines[POISE_WAN_SITES_MOST]; /* of sites and routers */
    bool no_files;                        /* none are opened */
    bool no_new; /* links that are there are changed, and nothing else */
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

/* A rate, or none: "unlimited". */
static int parse_limit(const char *text, uint64_t *out)
{
    if (strcmp(text, "unlimited") == 0) {
        *out = 0;
        return 0;
    }
    return poise_wan_parse_rate(text, out);
}

static int parse_percent(const char *text, double *out)
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

/* P,R[,H[,K]]: the words of netem, but H and K are what is lost. */
static int parse_bursts(const char *text, struct poise_wan_link *link)
{
    double values[] = {0, 0, 1, 0};
    size_t count = 0;
    int code = 0;
    while (code == 0 && count < 4) {
        char word[32];
        size_t len = strcspn(text, ",");
        if (len >= sizeof word) {
            len = sizeof word - 1;
        }
        memcpy(word, text, len);
        word[len] = '\0';
        code = parse_percent(word, &values[count++]);
        text += len;
        if (*text != ',') {
            break;
        }
        text++;
    }
    if (code == 0 && (count < 2 || *text || values[0] == 0 || values[1] == 0)) {
        code = poise_error_set(EINVAL, "use", text,
                               "not two to four percentages such as 1%%,25%%, "
                               "the first two more than 0");
    }
    if (code == 0) {
        link->bad = values[0];
        link->good = values[1];
        link->bad_loss = values[2];
        link->good_loss = values[3];
    }
    return code;
}

/* One of some words, as its number. */
static int parse_word(const char *text, const char *const *words,
                      const char *all)
{
    for (int i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) == 0) {
            return i;
        }
    }
    return poise_error_set(EINVAL, "use", text, "not %s", all);
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

/* A number alone would be seconds, and in tc's words microseconds: refused. */
static int read_time(const char *text, uint64_t *out_ns)
{
    uint64_t ns;
    int code = poise_parse_duration(text, &ns);
    if (code == 0 && ns > 0 && isdigit((unsigned char)text[strlen(text) - 1])) {
        code = poise_error_set(EINVAL, "use", text,
                               "not a time with its unit, such as 10ms");
    }
    if (code == 0) {
        *out_ns = ns;
    }
    return code;
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
    if (read_time(time, &link->latency_ns) < 0 ||
        parse_limit(rate, &link->bits_per_second) < 0) {
        return value_error(r);
    }
    link->set = true;
    return 0;
}

/* A file beside the topology. */
static int read_file(const struct reading *r, const char *name, bool mahimahi,
                     struct poise_wan_link *link)
{
    struct poise_buf path = {0};
    const char *slash = strrchr(r->path, '/');
    if (r->no_files) {
        return wan_line_error(r->path, r->line, "'%s' is a file", name);
    }
    if (mahimahi ? link->deliveries != NULL : link->trace != NULL) {
        return wan_line_error(r->path, r->line, "a second file, '%s'", name);
    }
    if (slash && name[0] != '/') {
        poise_buf_append(&path, r->path, (size_t)(slash - r->path) + 1);
    }
    poise_buf_puts(&path, name);
    const char *whole = poise_buf_str(&path);
    int code = path.error;
    if (code == 0) {
        code = mahimahi ? poise_wan_deliveries_read(whole, &link->deliveries)
                        : poise_wan_trace_read(whole, &link->trace);
    }
    /* What is wrong inside has its own line. */
    if (code < 0 && code != -EINVAL && code != -ENOMEM) {
        struct poise_buf why = {0};
        poise_buf_printf(&why, "cannot read '%s': %s", whole, strerror(-code));
        wan_line_error(r->path, r->line, "%s", poise_buf_str(&why));
        poise_buf_free(&why);
    }
    poise_buf_free(&path);
    return code;
}

static const char *const orders[] = {"kept", "any", NULL};
static const char *const distributions[] = {"uniform", "normal", "pareto",
                                            "paretonormal", NULL};
static const char *const qdiscs[] = {"fifo", "codel", "fq_codel", NULL};

/* One of the words behind latency and rate; 1: there is no such word. */
static int read_extra(const char *key, const char *value,
                      struct poise_wan_link *link)
{
    const struct {
        const char *key;
        double *out;
    } shares[] = {{"loss", &link->loss},
                  {"reorder", &link->reorder},
                  {"duplicate", &link->duplicate},
                  {"corrupt", &link->corrupt}};
    int word = 0;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        if (strcmp(key, shares[i].key) == 0) {
            return parse_percent(value, shares[i].out);
        }
    }
    if (strcmp(key, "jitter") == 0) {
        return read_time(value, &link->jitter_ns);
    }
    if (strcmp(key, "queue") == 0) {
        return poise_parse_bytes(value, &link->queue_bytes);
    }
    if (strcmp(key, "gemodel") == 0) {
        return parse_bursts(value, link);
    }
    if (strcmp(key, "order") == 0) {
        word = parse_word(value, orders, "'kept' or 'any'");
        link->any_order = word == 1;
    } else if (strcmp(key, "distribution") == 0) {
        word = parse_word(value, distributions,
                          "uniform, normal, pareto or paretonormal");
        link->distribution = word < 0 ? POISE_WAN_UNIFORM : (unsigned)word;
    } else if (strcmp(key, "qdisc") == 0) {
        word = parse_word(value, qdiscs, "fifo, codel or fq_codel");
        link->qdisc = word < 0 ? POISE_WAN_FIFO : (unsigned)word;
    } else {
        return 1;
    }
    return word < 0 ? word : 0;
}

/* All of them. */
static int read_extras(const struct reading *r, char **rest,
                       struct poise_wan_link *link)
{
    for (char *key; (key = wan_word(rest));) {
        const char *value = wan_word(rest);
        bool mahimahi = strcmp(key, "mahimahi") == 0;
        int code;
        if (!value) {
            return wan_line_error(r->path, r->line, "'%s' lacks its value",
                                  key);
        }
        if (mahimahi || strcmp(key, "trace") == 0) {
            code = read_file(r, value, mahimahi, link);
            if (code < 0) {
                return code;
            }
            continue;
        }
        code = read_extra(key, value, link);
        if (code == 1) {
            return wan_line_error(r->path, r->line,
                                  "'%s' is not jitter, distribution, order, "
                                  "reorder, loss, gemodel, duplicate, corrupt, "
                                  "queue, qdisc, trace or mahimahi",
                                  key);
        }
        if (code < 0) {
            return value_error(r);
        }
    }
    return 0;
}

static void link_free(struct poise_wan_link *link)
{
    poise_wan_trace_free(link->trace);
    poise_wan_deliveries_free(link->deliveries);
    link->trace = NULL;
    link->deliveries = NULL;
}

/* A site or router of that name, not yet counted, or NULL. */
static struct poise_wan_site *site_add(struct reading *r, const char *name,
                                       int *code)
{
    struct poise_wan_topology *t = &r->topology;
    if (!name_ok(name)) {
        *code = wan_line_error(r->path, r->line,
                               "'%s' is no name for a site: letters, digits "
                               "and '-', the last no digit",
                               name);
        return NULL;
    }
    if (t->count == POISE_WAN_SITES_MOST || site_find(t, name) >= 0) {
        *code = wan_line_error(r->path, r->line,
                               site_find(t, name) >= 0
                                   ? "site '%s' is there already"
                                   : "'%s' is one site too many",
                               name);
        return NULL;
    }
    if (t->links) {
        *code = wan_line_error(r->path, r->line, "sites come before links");
        return NULL;
    }
    void *sites = poise_realloc(t->sites, t->count + 1, sizeof *t->sites);
    if (!sites) {
        *code = -ENOMEM;
        return NULL;
    }
    t->sites = sites;
    struct poise_wan_site *site = &t->sites[t->count];
    memset(site, 0, sizeof *site);
    site->name = strdup(name);
    if (!site->name) {
        *code = poise_error_set(ENOMEM, "read", r->path, NULL);
        return NULL;
    }
    r->lines[t->count++] = r->line;
    *code = 0;
    return site;
}

static int read_router(struct reading *r, char **rest)
{
    const char *name = wan_word(rest);
    int code = 0;
    if (!name || wan_word(rest)) {
        return wan_line_error(r->path, r->line, "a router is 'router NAME'");
    }
    site_add(r, name, &code);
    return code;
}

static int read_seed(struct reading *r, char **rest)
{
    const char *number = wan_word(rest);
    int64_t seed;
    if (!number || wan_word(rest)) {
        return wan_line_error(r->path, r->line, "a seed is 'seed NUMBER'");
    }
    if (poise_parse_int(number, 1, INT64_MAX, &seed) < 0) {
        return value_error(r);
    }
    r->topology.seed = (uint64_t)seed;
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
    if (poise_parse_int(hosts, 1, POISE_WAN_HOSTS_MOST, &count) < 0) {
        return value_error(r);
    }
    int code = 0;
    struct poise_wan_site *site = site_add(r, name, &code);
    if (!site) {
        return code;
    }
    site->hosts = (unsigned)count;
    t->hosts += site->hosts;
    const char *lan = wan_word(rest);
    if (lan && strcmp(lan, "lan") != 0) {
        return wan_line_error(r->path, r->line, "'%s' is not 'lan'", lan);
    }
    if (lan) {
        code = read_delay(r, rest, &site->lan);
    }
    if (code == 0 && (code = read_extras(r, rest, &site->lan)) == 0 &&
        site->lan.deliveries) {
        code = wan_line_error(r->path, r->line,
                              "'mahimahi' belongs to a link, not to a LAN");
    }
    return code;
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
                       struct poise_wan_link *link)
{
    struct poise_wan_link *at =
        &t->links[(unsigned)from * t->count + (unsigned)to];
    link_free(at);
    *at = *link;
    link->trace = NULL;
    link->deliveries = NULL;
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
    for (int i = 0; r->no_new && i < 2 - one_way; i++) {
        if (!t->links[(unsigned)sites[i] * t->count + (unsigned)sites[!i]]
                 .set) {
            return wan_line_error(r->path, r->line,
                                  "no link leads from '%s' to '%s'", names[i],
                                  names[!i]);
        }
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
    }
    if (code == 0 && extras) {
        char *words = extras;
        code = read_extras(r, &words, &link);
        if (code == 0) {
            link_store(t, sites[1], sites[0], &link);
        }
    }
    link_free(&link);
    free(extras);
    return code;
}

static int read_default(struct reading *r, char **rest)
{
    int code = read_delay(r, rest, &r->fallback);
    if (code == 0) {
        code = read_extras(r, rest, &r->fallback);
    }
    if (code == 0 && (r->fallback.trace || r->fallback.deliveries)) {
        code = wan_line_error(r->path, r->line,
                              "a file belongs to a link, not to 'default'");
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
    if (strcmp(word, "link") == 0) {
        return read_link(r, &rest);
    }
    if (r->no_new) {
        return wan_line_error(r->path, r->line, "'%s' is not 'link'", word);
    }
    if (strcmp(word, "site") == 0) {
        return read_site(r, &rest);
    }
    if (strcmp(word, "default") == 0) {
        return read_default(r, &rest);
    }
    if (strcmp(word, "router") == 0) {
        return read_router(r, &rest);
    }
    if (strcmp(word, "seed") == 0) {
        return read_seed(r, &rest);
    }
    if (strcmp(word, "outside") == 0) {
        r->topology.outside = true;
        return wan_word(&rest)
                   ? wan_line_error(r->path, r->line, "'outside' stands alone")
                   : 0;
    }
    return wan_line_error(r->path, r->line,
                          "'%s' is not site, router, link, default, seed or "
                          "outside",
                          word);
}

/* ---- the whole ---------------------------------------------------------- */

/* No way leads there. */
#define NOWHERE UCHAR_MAX
_Static_assert(POISE_WAN_SITES_MOST <= NOWHERE, "sites and routers as bytes");

/* The shortest ways over routers only (Floyd and Warshall); a link that a line
 * names is always taken. */
static int find_ways(struct poise_wan_topology *t)
{
    size_t n = t->count, pairs = n * n;
    uint64_t *far = poise_alloc(pairs, sizeof *far);
    t->next = poise_alloc(pairs, 1);
    if (!far || !t->next) {
        free(far);
        return -ENOMEM;
    }
    for (size_t i = 0; i < pairs; i++) {
        bool set = t->links[i].set;
        /* One more for each link: of equal ways that of fewer. */
        far[i] = set ? t->links[i].latency_ns / 2 + 1 : UINT64_MAX / 2;
        t->next[i] = (unsigned char)(set ? i % n : NOWHERE);
    }
    for (size_t over = 0; over < n; over++) {
        for (size_t i = 0; t->sites[over].hosts == 0 && i < pairs; i++) {
            size_t from = i / n, to = i % n;
            uint64_t way = far[from * n + over] + far[over * n + to];
            if (!t->links[i].set && from != to && way < far[i]) {
                far[i] = way;
                t->next[i] = t->next[from * n + over];
            }
        }
    }
    free(far);
    return 0;
}

/* Whether a packet that starts there comes to its end. */
static bool way_ends(const struct poise_wan_topology *t, unsigned from,
                     unsigned to)
{
    unsigned steps = 0;
    for (; from != to && steps <= t->count; steps++) {
        from = t->next[from * t->count + to];
        if (from == NOWHERE) {
            return false;
        }
    }
    return from == to;
}

/* Fill in what no line said, and look whether all is there. */
static int finish(struct reading *r)
{
    struct poise_wan_topology *t = &r->topology;
    if (t->hosts == 0) {
        return poise_error_set(EINVAL, "read", r->path, "it has no site");
    }
    int code = links_reserve(r);
    if (code == 0) {
        code = find_ways(t);
    }
    for (unsigned i = 0; code == 0 && i < t->count * t->count; i++) {
        unsigned from = i / t->count, to = i % t->count;
        if (from == to || t->sites[from].hosts == 0 ||
            t->sites[to].hosts == 0 || way_ends(t, from, to)) {
            continue;
        }
        if (!r->fallback.set) {
            return wan_line_error(r->path, r->lines[from > to ? from : to],
                                  "no link leads from '%s' to '%s', and there "
                                  "is no 'default'",
                                  t->sites[from].name, t->sites[to].name);
        }
        t->links[i] = r->fallback;
        t->next[i] = (unsigned char)to;
    }
    return code;
}

int wan_topology_change(struct poise_wan_topology *topology, char *line)
{
    struct reading r = {.path = "change",
                        .line = 1,
                        .topology = *topology,
                        .no_files = true,
                        .no_new = true};
    return read_line(&r, line);
}

int wan_topology_parse(const char *text, size_t len, const char *path,
                       bool no_files, struct poise_wan_topology *out)
{
    struct reading r = {.path = path, .no_files = no_files};
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
    link_free(&r.fallback);
    if (code < 0) {
        poise_wan_topology_free(&r.topology);
        return code;
    }
    *out = r.topology;
    return 0;
}

int poise_wan_topology_parse(const char *text, size_t len, const char *path,
                             struct poise_wan_topology *out)
{
    return wan_topology_parse(text, len, path, false, out);
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
        /* No text: what follows does not matter. */
        if (got > 0 && memchr(room, '\0', (size_t)got)) {
            break;
        }
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
        link_free(&topology->sites[i].lan);
    }
    for (unsigned i = 0;
         topology->links && i < topology->count * topology->count; i++) {
        link_free(&topology->links[i]);
    }
    free(topology->next);
    free(topology->sites);
    free(topology->links);
    memset(topology, 0, sizeof *topology);
}
