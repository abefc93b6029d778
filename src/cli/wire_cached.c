/* poise wire cached: serve a cache to the processes that share it. */
#include "cli/common/cache.h"

#include <signal.h>

struct values {
    struct cli_common common;
    uint64_t limit, memory;
    int64_t bits;
    bool json;
};

static const struct poise_option options[] = {
    {POISE_OPTION_BYTES, .name = "cache-size", .arg = "SIZE",
     .help = "let the cache grow up to SIZE (default: 10G)",
     .offset = offsetof(struct values, limit)},
    {POISE_OPTION_BYTES, .name = "memory", .arg = "SIZE",
     .help = "memory to use, half of it for the index (default: 64M)",
     .offset = offsetof(struct values, memory)},
    {POISE_OPTION_INT, .name = "bits", .arg = "N",
     .help = "width of fingerprints (default: that of the cache; 40 for a "
             "new one)",
     .offset = offsetof(struct values, bits), .min = 8, .max = 64},
    {POISE_OPTION_FLAG, .name = "json",
     .help = "print statistics as JSON at the end",
     .offset = offsetof(struct values, json)},
    CLI_RENAMED(POISE_OPTION_BYTES, 0, "limit", "SIZE", "--cache-size",
                struct values, limit),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_wire_cached_command = {
    .name = "wire cached",
    .operands = "FOLDER",
    .summary = "serve a cache to all who share it, until you interrupt it",
    .description =
        "Transfers and tunnels that use the same cache at the same "
        "time share it: one of them serves the others. This command "
        "serves the cache in FOLDER without transferring anything, so "
        "that the index is read once and one limit holds. It serves "
        "only processes of the same user, and prints at the end what "
        "it did.\n\n" CLI_CACHE_TELLS
        "Everyone who shares a cache can test each other's data: keep "
        "one for each group.",
    .options = options,
    .examples = "poise wire cached ~/.cache/poise/wire\tserve the cache of "
                "'poise send'\n"
                "poise wire cached --cache-size 200G /fast/cache\tserve a "
                "large one\n",
    .exits = "0\tdone\n1\tthe cache could not be served, or saved\n"
             "2\twrong use\n",
    .see = "poise-send(1) poise-wire-analyse(1) docs/wire.md",
};

/* For sigsuspend to return. */
static void on_signal(int number)
{
    (void)number;
}

/* Until somebody says that it is enough. */
static int serve(const char *path, const struct poise_dedup_store_options *how,
                 struct poise_dedup_server_stats *stats)
{
    struct sigaction action = {.sa_handler = on_signal};
    struct poise_dedup_server *server;
    sigset_t blocked, before;
    int code;

    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGHUP);
    /* One that comes early waits until it is waited for. */
    sigprocmask(SIG_BLOCK, &blocked, &before);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    code = poise_dedup_server_open(path, how, &server);
    if (code == 0) {
        sigdelset(&before, SIGINT);
        sigdelset(&before, SIGTERM);
        sigdelset(&before, SIGHUP);
        sigsuspend(&before);
        *stats = poise_dedup_server_stats(server);
        code = poise_dedup_server_close(server);
    }
    return code;
}

static void print_json(const struct poise_dedup_server_stats *stats,
                       struct poise_buf *out)
{
    struct poise_json json = poise_json_to(out, false);

    cli_json_begin(&json, "poise-wire-cached-1");
    poise_json_u64(&json, "clients", stats->served);
    poise_json_u64(&json, "refused", stats->refused);
    poise_json_u64(&json, "requests", stats->requests);
    poise_json_u64(&json, "segments", stats->segments);
    poise_json_u64(&json, "containers", stats->containers);
    poise_json_u64(&json, "bytes", stats->bytes);
    poise_json_u64(&json, "evicted", stats->evicted);
    poise_json_u64(&json, "damaged", stats->damaged);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

static void print_text(const struct poise_dedup_server_stats *stats,
                       struct poise_buf *out)
{
    poise_human_count(out, stats->served);
    poise_buf_puts(out, " clients, ");
    poise_human_count(out, stats->segments);
    poise_buf_puts(out, " segments added, ");
    poise_human_count(out, stats->evicted);
    poise_buf_puts(out, " containers removed, ");
    poise_human_count(out, stats->damaged);
    poise_buf_puts(out, " damaged\nthe cache: ");
    poise_human_count(out, stats->containers);
    poise_buf_puts(out, " containers, ");
    poise_human_bytes(out, stats->bytes);
    poise_buf_putc(out, '\n');
}

int cli_wire_cached(int argc, char **argv)
{
    const char *name = cli_wire_cached_command.name;
    struct values values = {0};
    struct poise_dedup_server_stats stats = {0};
    struct poise_buf out = {0};
    int exit_code = CLI_DONE, code;
    int first = cli_parse(&cli_wire_cached_command, argc, argv, &values,
                          &values.common, &exit_code);
    struct poise_dedup_store_options how = {.limit_bytes = values.limit,
                                            .memory_bytes = values.memory,
                                            .bits = (uint32_t)values.bits};

    if (first < 0) {
        return exit_code;
    }
    if (argc - first != 1) {
        cli_say(name, "which folder?");
        return CLI_WRONG_USE;
    }
    code = serve(argv[first], &how, &stats);
    if (code < 0) {
        return cli_fail(name, code);
    }
    if (values.json) {
        print_json(&stats, &out);
    } else {
        print_text(&stats, &out);
    }
    exit_code = cli_write(name, &out);
    poise_buf_free(&out);
    return exit_code;
}
