/* poise tunnel: connections of other programs over a thin link. */
#include "cli/common/cache.h"

#include <poise/tunnel.h>

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

struct values {
    struct cli_common common;
    struct poise_strings forwards, allow, segmenters;
    const char *serve, *secret, *make_secret, *cert, *key, *ca, *peer_name;
    const char *metrics, *report;
    struct cli_cache cache;
    bool quiet, stats, json;
};

static const struct poise_option options[] = {
    {POISE_OPTION_LIST, 'L', "forward", "[ADDRESS:]PORT:HOST:PORT",
     "accept connections at the first PORT, and have the far end "
     "connect them to HOST:PORT; can be repeated",
     .offset = offsetof(struct values, forwards)},
    {POISE_OPTION_STRING, .name = "serve", .arg = "[ADDRESS:]PORT",
     .help = "be the far end: wait here for the near one",
     .offset = offsetof(struct values, serve)},
    {POISE_OPTION_LIST, .name = "allow", .arg = "HOST:PORT",
     .help = "let the near end connect to HOST:PORT, as it writes it; can "
             "be repeated",
     .offset = offsetof(struct values, allow)},
    {POISE_OPTION_HEADING, .help = "Encryption"},
    {POISE_OPTION_STRING, .name = "secret", .arg = "FILE",
     .help = "encrypt with the secret in FILE, which both ends have",
     .offset = offsetof(struct values, secret)},
    {POISE_OPTION_STRING, .name = "make-secret", .arg = "FILE",
     .help = "write a new secret to FILE and exit",
     .offset = offsetof(struct values, make_secret)},
    {POISE_OPTION_STRING, .name = "cert", .arg = "FILE",
     .help = "or: encrypt with this end's certificate (PEM)",
     .offset = offsetof(struct values, cert)},
    {POISE_OPTION_STRING, .name = "key", .arg = "FILE",
     .help = "private key of that certificate",
     .offset = offsetof(struct values, key)},
    {POISE_OPTION_STRING, .name = "ca", .arg = "FILE",
     .help = "certificate of the authority that signed the other end's",
     .offset = offsetof(struct values, ca)},
    {POISE_OPTION_STRING, .name = "peer-name", .arg = "NAME",
     .help = "the name in the other end's certificate (default: its host "
             "name; any name where it connects to this end)",
     .offset = offsetof(struct values, peer_name)},
    {POISE_OPTION_LIST, .name = "segmenter",
     .arg = "[HOST:PORT=]NAME[,OPTION...]",
     .help = "how to cut what this end sends on connections to HOST:PORT, "
             "or on all others (see 'poise help wire analyse'; default: "
             "gear); options: size=SIZE and, for floats, shape=200x300x4 "
             "and element=8; can be repeated",
     .offset = offsetof(struct values, segmenters)},
    {POISE_OPTION_HEADING, .help = "The cache"},
    CLI_CACHE_OPTIONS(struct values, cache,
                      "poise/tunnel/to-HOST:PORT, or with --serve "
                      "poise/tunnel/from-... for each near end,",
                      "in memory only"),
    {POISE_OPTION_HEADING, .help = "Output"},
    {POISE_OPTION_STRING, .name = "metrics", .arg = "[ADDRESS:]PORT",
     .help = "serve figures to browsers on this machine; /metrics for "
             "Prometheus, /json for programs",
     .offset = offsetof(struct values, metrics)},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page of plots and tables (HTML) at the end",
     .offset = offsetof(struct values, report)},
    {POISE_OPTION_FLAG, 'q', "quiet", NULL, "do not report events on stderr",
     .offset = offsetof(struct values, quiet)},
    {POISE_OPTION_FLAG, .name = "stats", .help = "print statistics at the end",
     .offset = offsetof(struct values, stats)},
    {POISE_OPTION_FLAG, .name = "json", .help = "print statistics as JSON",
     .offset = offsetof(struct values, json)},
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_tunnel_command = {
    .name = "tunnel",
    .operands = "[HOST:PORT]",
    .summary = "carry TCP connections over a thin link, each byte once",
    .description =
        "The near end accepts connections and carries all of them over "
        "one link to HOST:PORT; there the far end (--serve) "
        "connects them to their target. Both ends remember what went "
        "through in a cache that all connections share: known data "
        "cost a few bytes, whatever the protocol, unless the data are "
        "encrypted or compressed themselves.\n\n" CLI_CACHE_TELLS
        "All who connect through one tunnel share its cache. An end "
        "that serves keeps one cache for each other end: for each "
        "certificate's key, or with a secret for each address (of "
        "IPv6: each /64 network); without either, one for this "
        "machine. With --shared-cache or --cache it keeps one for all. "
        "Users who must not learn about each other need a tunnel each, "
        "with certificates of their own. --pad hides short data from "
        "observers of the link.\n\n"
        "A key that someone presses goes at once, and where "
        "the link is full connections that send little go first. "
        "Connections end as without a tunnel, one direction at a time; "
        "an error at one end becomes an error at the other. When the "
        "link breaks so do its connections, and the tunnel links again.\n\n"
        "Between machines both ends use TLS 1.3 with a shared secret "
        "or certificates; without these they listen and connect on "
        "this machine only. Without ADDRESS, ports are on this machine "
        "only; put IPv6 addresses into brackets.",
    .options = options,
    .examples = "poise tunnel --make-secret tunnel.key\tmake a secret; copy it "
                "to both hosts\n"
                "poise tunnel --secret tunnel.key --serve 0.0.0.0:7070 --allow "
                "web:80\ton the far host\n"
                "poise tunnel --secret tunnel.key -L 8080:web:80 far:7070\ton "
                "the near host\n"
                "curl http://localhost:8080/\tfetch a page of web through the "
                "tunnel\n",
    .exits = "0\tended by a signal, as asked\n"
             "1\tit could not start, or go on\n"
             "2\twrong use\n",
    .see = "poise-send(1) poise-vnc-serve(1) docs/tunnel.md",
};

static void print_line(const char *line, void *arg)
{
    (void)arg;
    cli_say("tunnel", "%s", line);
}

static void print_problem(const struct poise_error *err, void *arg)
{
    (void)arg;
    cli_print_error("tunnel", err);
}

/* ---- figures ------------------------------------------------------------ */

/* What the tunnel calls back with. */
struct run {
    struct cli_series series;
};

static void keep(const struct poise_remote_tunnel_stats *stats, void *arg)
{
    struct run *run = arg;
    const uint64_t values[CLI_SERIES_VALUES] = {
        stats->peer.data_out + stats->peer.data_in,
        stats->link_out_bytes + stats->link_in_bytes};

    cli_series_add(&run->series, stats->up_ns, values);
}

struct figure {
    const char *name, *help;
    bool rises; /* never falls while the tunnel is there */
    size_t offset;
};
#define FIGURE(rises, name, member, help)                                      \
    {                                                                          \
        name, help, rises, offsetof(struct poise_remote_tunnel_stats, member)  \
    }
/* All of type uint64_t. */
static const struct figure figures[] = {
    FIGURE(true, "links_made", links_made, "Links that were made"),
    FIGURE(true, "links_lost", links_lost, "Links that broke"),
    FIGURE(true, "carried", carried, "Connections carried"),
    FIGURE(true, "refused", refused, "Connections that could not be made"),
    FIGURE(true, "resets", resets, "Connections that ended by an error"),
    FIGURE(true, "data_out_bytes", peer.data_out, "Bytes to the other end"),
    FIGURE(true, "data_in_bytes", peer.data_in, "Bytes from the other end"),
    FIGURE(true, "link_out_bytes", link_out_bytes, "Bytes sent for them"),
    FIGURE(true, "link_in_bytes", link_in_bytes, "Bytes received for them"),
    FIGURE(true, "by_run_bytes", peer.by_run,
           "Bytes that went as references to what is known there"),
    FIGURE(true, "by_fingerprint_bytes", peer.by_fingerprint,
           "Bytes that went as fingerprints"),
    FIGURE(true, "by_delta_bytes", peer.by_delta,
           "Bytes that went as changes of what is known there"),
    FIGURE(true, "by_residual_bytes", peer.by_residual,
           "Bytes that went as floats by what they differ from others"),
    FIGURE(true, "by_data_bytes", peer.by_data, "Bytes that went as they are"),
    FIGURE(true, "by_fill_bytes", peer.by_fill,
           "Bytes that went as repetitions"),
    FIGURE(true, "requests", peer.requests,
           "Items that the other end asked for"),
    FIGURE(true, "repairs", peer.repairs, "Groups that were sent again"),
    FIGURE(true, "cache_errors", peer.cache_errors,
           "Segments that the cache could not keep"),
    FIGURE(false, "cache_bytes", cache_bytes, "Bytes in the cache"),
    FIGURE(true, "cache_finds", cache_finds, "Segments looked for"),
    FIGURE(true, "cache_hits", cache_hits, "Segments found"),
};
enum { FIGURES = sizeof figures / sizeof *figures };

static uint64_t value_of(const struct figure *figure,
                         const struct poise_remote_tunnel_stats *stats)
{
    uint64_t value;

    memcpy(&value, (const char *)stats + figure->offset, sizeof value);
    return value;
}

static void put_json(const struct poise_remote_tunnel_stats *stats,
                     struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    cli_json_begin(&json, "poise-tunnel-1");
    poise_json_double(&json, "up_seconds", (double)stats->up_ns / 1e9);
    poise_json_u64(&json, "links", stats->links);
    poise_json_u64(&json, "connections", stats->connections);
    for (size_t i = 0; i < FIGURES; i++) {
        poise_json_u64(&json, figures[i].name, value_of(&figures[i], stats));
    }
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

static void put_metric(struct poise_buf *out, const char *name, bool rises,
                       const char *help, double value)
{
    const char *ending = rises ? "_total" : "";

    poise_buf_printf(out,
                     "# HELP poise_tunnel_%s%s %s.\n"
                     "# TYPE poise_tunnel_%s%s %s\n"
                     "poise_tunnel_%s%s %.17g\n",
                     name, ending, help, name, ending,
                     rises ? "counter" : "gauge", name, ending, value);
}

static void put_metrics(const struct poise_remote_tunnel_stats *stats,
                        struct poise_buf *out)
{
    put_metric(out, "up_seconds", false, "How long it has been there",
               (double)stats->up_ns / 1e9);
    put_metric(out, "links", false, "Links that are there", stats->links);
    put_metric(out, "connections", false, "Connections that are open",
               stats->connections);
    for (size_t i = 0; i < FIGURES; i++) {
        put_metric(out, figures[i].name, figures[i].rises, figures[i].help,
                   (double)value_of(&figures[i], stats));
    }
}

static int put_head(struct poise_page *page,
                    const struct poise_remote_tunnel_stats *stats)
{
    enum { HEAD = 4 };
    static const char *const labels[HEAD] = {
        "there for", "connections now", "out on the link", "in from the link"};
    struct poise_buf texts[HEAD] = {{0}};
    const char *values[HEAD];
    int code;

    poise_human_ns(&texts[0], stats->up_ns);
    poise_buf_decimal(&texts[1], stats->connections);
    cli_cache_ratio(&texts[2], stats->link_out_bytes, stats->peer.data_out);
    cli_cache_ratio(&texts[3], stats->link_in_bytes, stats->peer.data_in);
    for (int i = 0; i < HEAD; i++) {
        values[i] = poise_buf_str(&texts[i]);
    }
    code = poise_page_figures(page, labels, values, HEAD);
    for (int i = 0; i < HEAD; i++) {
        poise_buf_free(&texts[i]);
    }
    return code;
}

static int put_table(struct poise_page *page,
                     const struct poise_remote_tunnel_stats *stats)
{
    static const struct poise_column columns[] = {
        {"what", POISE_ALIGN_LEFT}, {"how many", POISE_ALIGN_RIGHT}};
    struct poise_table *table;
    int code = poise_table_create(columns, 2, &table);

    if (code < 0) {
        return code;
    }
    for (size_t i = 0; i < FIGURES && code == 0; i++) {
        struct poise_buf text = {0};
        poise_human_count(&text, value_of(&figures[i], stats));
        code = poise_table_row(
            table, (const char *[]){figures[i].help, poise_buf_str(&text)});
        poise_buf_free(&text);
    }
    code = code < 0 ? code : poise_page_table(page, table);
    poise_table_destroy(table);
    return code;
}

/* In which way what users sent went. */
static int put_ways(struct poise_page *page,
                    const struct poise_remote_tunnel_stats *stats)
{
    int code = poise_page_section(
        page, "In which way data went out",
        "References, fingerprints and changes stand for what the other end "
        "knows already.");

    return code ? code : cli_cache_ways(page, &stats->peer);
}

static int put_page(const struct poise_remote_tunnel_stats *stats,
                    const struct cli_series *series, struct poise_buf *out)
{
    struct poise_page *page;
    int code = poise_page_create(
        "poise tunnel",
        stats->links ? "The link is there." : "There is no link now.", &page);

    if (code < 0) {
        return code;
    }
    code = put_head(page, stats);
    code = code ? code : cli_cache_course(page, series);
    code = code ? code : put_ways(page, stats);
    if (code == 0) {
        code = poise_page_section(page, "Since it began", NULL);
    }
    if (code == 0) {
        code = put_table(page, stats);
    }
    if (code == 0) {
        code = poise_page_html(page, &(struct poise_page_run){0}, out);
    }
    poise_page_destroy(page);
    return code;
}

static const char *show(const struct poise_remote_tunnel_stats *stats,
                        const char *path, struct poise_buf *out, void *arg)
{
    const struct run *run = arg;

    if (strcmp(path, "/metrics") == 0) {
        put_metrics(stats, out);
        return "text/plain; version=0.0.4; charset=utf-8";
    }
    if (strcmp(path, "/json") == 0) {
        put_json(stats, out);
        return "application/json";
    }
    return strcmp(path, "/") == 0 && put_page(stats, &run->series, out) == 0
               ? "text/html; charset=utf-8"
               : NULL;
}

static void put_text(const struct poise_remote_tunnel_stats *stats,
                     struct poise_buf *out)
{
    poise_human_count(out, stats->carried);
    poise_buf_puts(out, " connections; out on the link: ");
    cli_cache_ratio(out, stats->link_out_bytes, stats->peer.data_out);
    poise_buf_puts(out, ", in: ");
    cli_cache_ratio(out, stats->link_in_bytes, stats->peer.data_in);
    poise_buf_putc(out, '\n');
}

/* ---- the run ------------------------------------------------------------ */

/* Each connection takes a descriptor: as many as the system lets us have. */
static void allow_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
        limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int run(struct values *values, const char *via)
{
    struct run run = {.series = {.every_ns = 200 * 1000 * 1000, .count = 1}};
    struct poise_remote_tunnel_options how = {
        .forwards = values->forwards.items,
        .forward_count = values->forwards.count,
        .via = via,
        .serve = values->serve,
        .allow = values->allow.items,
        .allow_count = values->allow.count,
        .segmenters = values->segmenters.items,
        .segmenter_count = values->segmenters.count,
        .secret = values->secret,
        .cert = values->cert,
        .key = values->key,
        .ca = values->ca,
        .peer_name = values->peer_name,
        .cache = values->cache.folder,
        .cache_bytes = values->cache.bytes,
        .cache_bits = (uint32_t)values->cache.bits,
        .shared_cache = values->cache.shared,
        .pad_bytes = (uint32_t)values->cache.pad,
        .level = (int)values->cache.level,
        .metrics = values->metrics,
        .page = show,
        .log = values->quiet ? NULL : print_line,
        .problem = print_problem,
        .progress = keep,
        .arg = &run,
        .stop = &cli_interrupted,
    };
    struct poise_remote_tunnel_stats stats = {0};
    struct poise_buf out = {0};
    struct cli_standard standard;
    int err, code = cli_standard_output("tunnel", values->json, NULL,
                                        &values->report, &standard);

    code = code == CLI_DONE ? cli_page_check("tunnel", values->report) : code;
    if (code != CLI_DONE) {
        return code;
    }
    cli_catch_signals();
    allow_descriptors();
    err = poise_remote_tunnel(&how, &stats);
    code = err < 0 ? cli_fail("tunnel", err) : CLI_DONE;
    if (err == 0 && values->report) {
        err = put_page(&stats, &run.series, &out);
        err = err ? err : poise_file_save(values->report, &out);
        code = err < 0 ? cli_fail("tunnel", err) : code;
        poise_buf_reset(&out);
    }
    if (err == 0 && values->json) {
        put_json(&stats, &out);
    } else if (err == 0 && values->stats) {
        put_text(&stats, &out);
    }
    if (cli_write("tunnel", &out) != CLI_DONE && code == CLI_DONE) {
        code = CLI_PARTLY;
    }
    poise_buf_free(&out);
    return code;
}

int cli_tunnel(int argc, char **argv)
{
    struct values values = {0};
    int code = CLI_DONE;
    int first = cli_parse(&cli_tunnel_command, argc, argv, &values,
                          &values.common, &code);

    if (first >= 0 && argc - first > 1) {
        cli_say("tunnel", "one other end, not %d", argc - first);
        code = CLI_WRONG_USE;
    } else if (first >= 0 && !cli_cache_check("tunnel", &values.cache)) {
        code = CLI_WRONG_USE;
    } else if (first >= 0 && values.make_secret) {
        int err = poise_remote_tunnel_secret(values.make_secret);
        code = err < 0 ? cli_fail("tunnel", err) : CLI_DONE;
    } else if (first >= 0) {
        code = run(&values, argc > first ? argv[first] : NULL);
    }
    poise_strings_free(&values.forwards);
    poise_strings_free(&values.allow);
    poise_strings_free(&values.segmenters);
    return code;
}
