/* poise vnc serve, poise vnc view: the two proxies between a VNC server and its
 * viewers. */
#include "cli/common/common.h"

#include <poise/vnc.h>

#include <signal.h>
#include <string.h>

struct values {
    struct cli_common common;
    const char *secret, *cert, *key, *ca, *peer_name;
    uint64_t pad, timeout;
    const char *encodings, *method;
    int64_t level;
    const char *listen, *websocket;
    bool two_phase, quiet, stats, json;
};

#define KEYS                                                                   \
    {POISE_OPTION_HEADING, .help = "Encryption"},                              \
        {POISE_OPTION_STRING, .name = "secret", .arg = "FILE",                 \
         .help = "encrypt with the secret in FILE, which both ends have",      \
         .offset = offsetof(struct values, secret)},                           \
        {POISE_OPTION_STRING, .name = "cert", .arg = "FILE",                   \
         .help = "or: encrypt with this end's certificate (PEM)",              \
         .offset = offsetof(struct values, cert)},                             \
        {POISE_OPTION_STRING, .name = "key", .arg = "FILE",                    \
         .help = "private key of that certificate",                            \
         .offset = offsetof(struct values, key)},                              \
        {POISE_OPTION_STRING, .name = "ca", .arg = "FILE",                     \
         .help = "certificate of the authority that signed the other end's",   \
         .offset = offsetof(struct values, ca)},                               \
        {POISE_OPTION_STRING, .name = "peer-name", .arg = "NAME",              \
         .help = "the name in the other end's certificate (default: its host " \
                 "name; any name where it connects to this end)",              \
         .offset = offsetof(struct values, peer_name)},                        \
        {POISE_OPTION_BYTES, .name = "pad", .arg = "SIZE",                     \
         .help =                                                               \
             "pad what goes over the link to multiples of SIZE, 64 to 64K",    \
         .offset = offsetof(struct values, pad)},                              \
        {POISE_OPTION_HEADING, .help = "The link"},                            \
    {                                                                          \
        POISE_OPTION_DURATION,                                                 \
            .name = "timeout", .arg = "TIME",                                  \
            .help = "give up a session when its link has been gone this long " \
                    "(default: 5m)",                                           \
            .offset = offsetof(struct values, timeout)                         \
    }

#define SAYS                                                                   \
    {POISE_OPTION_HEADING, .help = "Output"},                                  \
        {POISE_OPTION_FLAG,                                                    \
         'q',                                                                  \
         "quiet",                                                              \
         NULL,                                                                 \
         "do not report events on stderr",                                     \
         .offset = offsetof(struct values, quiet)},                            \
        {POISE_OPTION_FLAG, .name = "stats",                                   \
         .help = "print statistics at the end",                                \
         .offset = offsetof(struct values, stats)},                            \
        {POISE_OPTION_FLAG, .name = "json",                                    \
         .help = "print statistics as JSON",                                   \
         .offset = offsetof(struct values, json)},                             \
        CLI_COMMON_OPTIONS(struct values, common),                             \
    {                                                                          \
        POISE_OPTION_END                                                       \
    }

static const struct poise_option serve_options[] = {
    KEYS,
    {POISE_OPTION_HEADING, .help = "The screen"},
    {POISE_OPTION_STRING, .name = "encodings", .arg = "LIST",
     .help = "encodings to ask the server for, best first: tight, zrle, "
             "hextile, rre, copyrect, raw (default: copyrect,raw if the "
             "server is on this machine, otherwise all)",
     .offset = offsetof(struct values, encodings)},
    {POISE_OPTION_STRING, .name = "method", .arg = "NAME",
     .help = "how to send pictures over the link (default: auto, by content)",
     .offset = offsetof(struct values, method)},
    {POISE_OPTION_INT, .name = "level", .arg = "N",
     .help = "compress new data at this Zstandard level (default: 9)",
     .offset = offsetof(struct values, level), .min = 1, .max = 19},
    SAYS,
};

static const struct poise_option view_options[] = {
    {POISE_OPTION_STRING, .name = "listen", .arg = "[ADDRESS:]PORT",
     .help = "wait for viewers here (default: 5950, unless you give "
             "--websocket)",
     .offset = offsetof(struct values, listen)},
    {POISE_OPTION_STRING, .name = "websocket", .arg = "[ADDRESS:]PORT",
     .help = "wait for viewers in browsers here, such as noVNC",
     .offset = offsetof(struct values, websocket)},
    KEYS,
    {POISE_OPTION_FLAG, .name = "two-phase",
     .help = "show pictures before long fingerprints have confirmed them; "
             "errors are corrected",
     .offset = offsetof(struct values, two_phase)},
    SAYS,
};

const struct poise_command cli_vnc_serve_command = {
    .name = "vnc serve",
    .operands = "[ADDRESS:]PORT SERVER",
    .summary = "carry a VNC server's screen over a thin link",
    .description =
        "Run it on the far host. It waits at PORT for 'poise vnc "
        "view', and connects each viewer to the VNC server SERVER "
        "(HOST:PORT or HOST:DISPLAY). It sends what changed as soon as "
        "the link has room; what was on the screen before, or is "
        "elsewhere on it, costs a few bytes. Pictures arrive without "
        "loss.\n\n"
        "The VNC server decides who may use it: viewers can log in "
        "without a password or with a VNC password, if the server "
        "allows it. Each viewer has its own connection to the server, "
        "and what different viewers see and type is never compressed "
        "together.\n\n"
        "A session survives a broken link: 'poise vnc view' links "
        "again and goes on. Between machines both ends use TLS 1.3 "
        "with a shared secret ('poise tunnel --make-secret FILE' makes "
        "one) or certificates; without these they listen and connect "
        "on this machine only.",
    .options = serve_options,
    .examples = "poise tunnel --make-secret vnc.key\tmake a secret; copy it to "
                "both hosts\n"
                "poise vnc serve --secret vnc.key 0.0.0.0:7070 localhost:1\ton "
                "the far host\n"
                "poise vnc view --secret vnc.key far:7070\ton the near host\n"
                "vncviewer localhost:50\tshow display 1 of far\n",
    .exits = "0\tended by a signal, as asked\n"
             "1\tit could not start, or go on\n"
             "2\twrong use\n",
    .see = "poise-tunnel(1) poise-vnc-record(1) poise-vnc-view(1) docs/vnc.md",
};

const struct poise_command cli_vnc_view_command = {
    .name = "vnc view",
    .operands = "HOST:PORT",
    .summary = "let VNC viewers see a screen over a thin link",
    .description =
        "Run it on the near host. It waits for VNC viewers and shows "
        "them the screen that 'poise vnc serve' sends from HOST:PORT. "
        "Viewers are answered at once from the picture kept here, in "
        "the encoding (tight, zrle, hextile or raw) and pixel format "
        "that they want; keys, pointer and clipboard go to the server. "
        "Several viewers can connect.\n\n"
        "With --websocket, viewers in browsers can connect, too: pages "
        "from the same address, or from this machine.\n\n"
        "When the link breaks, viewers keep what they see, typing "
        "waits, and the link is made again. Without a secret or "
        "certificates only this machine can connect.",
    .options = view_options,
    .examples = "poise vnc view --secret vnc.key far:7070\tthen: vncviewer "
                "localhost:50\n"
                "poise vnc view --secret vnc.key --listen 5951 --websocket "
                "6080 far:7070\tserve browsers, too\n",
    .exits = "0\tended by a signal, as asked\n"
             "1\tit could not start, or go on\n"
             "2\twrong use\n",
    .see = "poise-tunnel(1) poise-vnc-serve(1) docs/vnc.md",
};

/* ---- what is said ------------------------------------------------------- */

static void print_line(const char *line, void *arg)
{
    (void)arg;
    cli_say("vnc", "%s", line);
}

static void print_problem(const struct poise_error *err, void *arg)
{
    (void)arg;
    cli_print_error("vnc", err);
}

static void put_json(const struct poise_remote_vnc_stats *stats,
                     struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    cli_json_begin(&json, "poise-vnc-proxy-1");
    poise_json_u64(&json, "sessions", stats->sessions);
    poise_json_u64(&json, "links_lost", stats->links_lost);
    poise_json_u64(&json, "updates", stats->updates);
    poise_json_u64(&json, "link_out_bytes", stats->link_out_bytes);
    poise_json_u64(&json, "link_in_bytes", stats->link_in_bytes);
    poise_json_u64(&json, "viewer_out_bytes", stats->viewer_out_bytes);
    poise_json_u64(&json, "pixels", stats->pixels);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

static void put_text(const struct poise_remote_vnc_stats *stats,
                     struct poise_buf *out)
{
    poise_human_count(out, stats->sessions);
    poise_buf_puts(out, " sessions, ");
    poise_human_count(out, stats->updates);
    poise_buf_puts(out, " updates; out on the link: ");
    poise_human_bytes(out, stats->link_out_bytes);
    poise_buf_puts(out, ", in: ");
    poise_human_bytes(out, stats->link_in_bytes);
    if (stats->viewer_out_bytes > 0) {
        poise_buf_puts(out, ", to viewers: ");
        poise_human_bytes(out, stats->viewer_out_bytes);
    }
    poise_buf_putc(out, '\n');
}

/* ---- the run ------------------------------------------------------------ */

static bool check_values(const char *name, const struct values *values)
{
    enum { PAD_LEAST = 64, PAD_MOST = 1 << 16 };

    if (values->pad > 0 &&
        (values->pad < PAD_LEAST || values->pad > PAD_MOST)) {
        cli_say(name, "--pad takes 64 to 64K");
        return false;
    }
    return true;
}

static struct poise_remote_vnc_options read_values(const struct values *values)
{
    uint64_t keep = (values->timeout + 999999) / 1000000;

    return (struct poise_remote_vnc_options){
        .secret = values->secret,
        .cert = values->cert,
        .key = values->key,
        .ca = values->ca,
        .peer_name = values->peer_name,
        .pad_bytes = (uint32_t)values->pad,
        .keep_ms = keep < UINT32_MAX ? (uint32_t)keep : UINT32_MAX,
        .encodings = values->encodings,
        .method = values->method,
        .level = (int)values->level,
        .listen = values->listen,
        .websocket = values->websocket,
        .two_phase = values->two_phase,
        .log = values->quiet ? NULL : print_line,
        .problem = print_problem,
        .stop = &cli_interrupted,
    };
}

static int finish(const char *name, const struct values *values, int err,
                  const struct poise_remote_vnc_stats *stats)
{
    struct poise_buf out = {0};
    int code = err < 0 ? cli_fail(name, err) : CLI_DONE;

    if (err == 0 && values->json) {
        put_json(stats, &out);
    } else if (err == 0 && values->stats) {
        put_text(stats, &out);
    }
    if (cli_write(name, &out) != CLI_DONE && code == CLI_DONE) {
        code = CLI_PARTLY;
    }
    poise_buf_free(&out);
    return code;
}

int cli_vnc_serve(int argc, char **argv)
{
    const char *name = cli_vnc_serve_command.name;
    struct values values = {0};
    struct poise_remote_vnc_stats stats;
    struct poise_remote_vnc_options how;
    int end = CLI_DONE, first = cli_parse(&cli_vnc_serve_command, argc, argv,
                                          &values, &values.common, &end);

    if (first < 0) {
        return end;
    }
    if (argc - first != 2) {
        cli_say(name, "where to wait, and which server?");
        return CLI_WRONG_USE;
    }
    if (!check_values(name, &values)) {
        return CLI_WRONG_USE;
    }
    signal(SIGPIPE, SIG_IGN);
    cli_catch_signals();
    how = read_values(&values);
    how.serve = argv[first];
    how.server = argv[first + 1];
    return finish(name, &values, poise_remote_vnc_serve(&how, &stats), &stats);
}

int cli_vnc_view(int argc, char **argv)
{
    const char *name = cli_vnc_view_command.name;
    struct values values = {0};
    struct poise_remote_vnc_stats stats;
    struct poise_remote_vnc_options how;
    int end = CLI_DONE, first = cli_parse(&cli_vnc_view_command, argc, argv,
                                          &values, &values.common, &end);

    if (first < 0) {
        return end;
    }
    if (argc - first != 1) {
        cli_say(name, "where is the other end?");
        return CLI_WRONG_USE;
    }
    if (!check_values(name, &values)) {
        return CLI_WRONG_USE;
    }
    signal(SIGPIPE, SIG_IGN);
    cli_catch_signals();
    how = read_values(&values);
    how.via = argv[first];
    if (!how.listen && !how.websocket) {
        how.listen = "5950";
    }
    return finish(name, &values, poise_remote_vnc_view(&how, &stats), &stats);
}
