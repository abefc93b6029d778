/* poise vnc record: what a server shows, update by update, in a file. */
#include "cli/common/common.h"
#include "cli/common/redraw.h"

#include <poise/screen.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    const char *encodings, *password_file;
    uint64_t time, timeout;
    int64_t updates, level;
    bool verbose, progress;
};

static const struct poise_option options[] = {
    {POISE_OPTION_DURATION, .name = "time", .arg = "TIME",
     .help = "stop after TIME (default: when you interrupt it, or the "
             "server ends)",
     .offset = offsetof(struct values, time)},
    {POISE_OPTION_INT, .name = "updates", .arg = "N",
     .help = "stop after N updates", .offset = offsetof(struct values, updates),
     .min = 1, .max = INT64_MAX},
    {POISE_OPTION_STRING, .name = "encodings", .arg = "LIST",
     .help = "encodings to ask the server for, best first (default: "
             "tight,zrle,hextile,rre,copyrect,raw)",
     .offset = offsetof(struct values, encodings)},
    {POISE_OPTION_INT, .name = "level", .arg = "N",
     .help = "ask the server to compress at level N, 1 to 9 (default: the "
             "server's choice)",
     .offset = offsetof(struct values, level), .min = 1, .max = 9},
    {POISE_OPTION_DURATION, .name = "timeout", .arg = "TIME",
     .help = "give up when the server is silent for TIME (default: 10s)",
     .offset = offsetof(struct values, timeout)},
    {POISE_OPTION_STRING, .name = "password-file", .arg = "FILE",
     .help = "read the server's password from the first line of FILE",
     .offset = offsetof(struct values, password_file)},
    CLI_VERBOSE_OPTION(struct values, verbose),
    CLI_PROGRESS_OPTION(struct values, progress),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_vnc_record_command = {
    .name = "vnc record",
    .operands = "HOST:DISPLAY|HOST:PORT FILE",
    .summary = "record what a VNC server shows, update by update",
    .description =
        "Connects to a VNC server as a viewer that only looks, and "
        "writes every update to FILE: its pixels, its time, and how "
        "many bytes the server sent. 'poise vnc replay' then compares "
        "ways to send the same session.\n\n"
        "A number below 100 is a display (port 5900 + DISPLAY); a "
        "larger one, or one behind '::', is a port. It can log in "
        "without a password or with a VNC password. Nothing is "
        "encrypted: reach a server on another machine through 'poise "
        "tunnel' or ssh. FILE holds what was on the screen, and only "
        "its owner can read it.\n\n"
        "FILE appears when the recording ends, even if you interrupt "
        "it or the server goes away (then with exit status 1).",
    .options = options,
    .examples = "poise vnc record localhost:1 session.screen\trecord until "
                "Ctrl-C\n"
                "poise vnc record --time 30s localhost:5901 s\trecord half a "
                "minute\n",
    .exits = "0\tdone\n"
             "1\tthe server refused, went away or sent nonsense, or FILE "
             "could not be written\n"
             "2\twrong use\n",
    .see = "poise-vnc-replay(1) poise-vnc-serve(1) docs/vnc.md",
};

/* The first line of a file, which is no longer than a password can be. */
static int read_password(const char *path, char *password, size_t room)
{
    FILE *file = fopen(path, "re");
    if (!file) {
        return poise_error_set(errno, "open", path, NULL);
    }
    bool found = fgets(password, (int)room, file);
    fclose(file);
    password[found ? strcspn(password, "\r\n") : 0] = '\0';
    return *password ? 0
                     : poise_error_set(EINVAL, "use the password of", path,
                                       "its first line is empty");
}

struct recording {
    struct poise_screen_client *client;
    struct poise_screen_writer *writer;
    const struct values *values;
    uint64_t begun, steps, bytes;
    struct cli_meter meter;
};

/* "recorded 12 updates, 3.4 updates/s, 120 KiB, 6.5 s left" */
static void show_steps(struct recording *recording)
{
    struct cli_meter *meter = &recording->meter;
    uint64_t now = poise_clock_ns(), ns = now - recording->begun;
    uint64_t time = recording->values->time;
    if (cli_meter_due(meter, now)) {
        struct poise_buf out = {0};
        poise_buf_puts(&out, "\r\033[K");
        cli_meter_put(&out, "recorded", "updates", 0, recording->steps,
                      (uint64_t)recording->values->updates, ns);
        poise_buf_puts(&out, ", ");
        poise_human_bytes(&out, recording->bytes);
        poise_buf_puts(&out, ", ");
        poise_human_ns(&out, time > ns ? time - ns : ns);
        poise_buf_puts(&out, time > ns ? " left" : "");
        cli_meter_line(meter, &out);
    }
}

static bool is_over(const struct recording *recording)
{
    const struct values *values = recording->values;
    return cli_interrupted ||
           (values->updates > 0 &&
            recording->steps >= (uint64_t)values->updates) ||
           (values->time > 0 &&
            poise_clock_ns() - recording->begun >= values->time);
}

static int add(struct recording *recording,
               const struct poise_screen_update *update)
{
    struct poise_screen_step step = {
        .at_us = (poise_clock_ns() - recording->begun) / 1000,
        .bytes = update->bytes,
        .resized = update->resized,
        .rects = update->rects,
        .rect_count = update->rect_count,
    };
    recording->steps++;
    recording->bytes += update->bytes;
    return poise_screen_writer_add(
        recording->writer, poise_screen_picture(recording->client), &step);
}

/* Until it is over; an error of the server is told, and what came until then
 * stays. CLI_DONE, CLI_PARTLY; or negative: it cannot be written. */
static int follow(struct recording *recording)
{
    enum { LOOK_MS = 100 };
    int code = poise_screen_ask(recording->client, false);
    while (code >= 0 && !is_over(recording)) {
        struct poise_screen_update update;
        show_steps(recording);
        code = poise_screen_next(recording->client, LOOK_MS, &update);
        if (code > 0) {
            int added = add(recording, &update);
            if (added < 0) {
                return added;
            }
            code = poise_screen_ask(recording->client, !update.resized);
        }
    }
    cli_meter_wipe(&recording->meter);
    if (code < 0) {
        cli_say_error("vnc record");
    }
    return code < 0 ? CLI_PARTLY : CLI_DONE;
}

static int record(struct recording *recording, const char *path)
{
    struct poise_output *output;
    int code = poise_output_open(path, NULL, &output), end = CLI_PARTLY;
    if (code < 0) {
        return cli_fail("vnc record", code);
    }
    code = poise_screen_writer_create(poise_output_fd(output), path,
                                      &recording->writer);
    if (code == 0) {
        recording->begun = poise_clock_ns();
        code = end = follow(recording);
    }
    if (code >= 0) {
        code = poise_screen_writer_end(
            recording->writer, recording->steps > 0
                                   ? poise_screen_picture(recording->client)
                                   : NULL);
        recording->writer = NULL;
    }
    if (code < 0) {
        poise_screen_writer_abort(recording->writer);
        poise_output_abort(output);
        return cli_fail("vnc record", code);
    }
    code = poise_output_commit(output, false);
    return code < 0 ? cli_fail("vnc record", code) : end;
}

/* At least one; 0 is the default. */
static uint32_t timeout_ms(uint64_t ns)
{
    uint64_t ms = ns / 1000000 + (ns % 1000000 > 0);
    return ms < INT32_MAX ? (uint32_t)ms : INT32_MAX;
}

int cli_vnc_record(int argc, char **argv)
{
    const char *name = cli_vnc_record_command.name;
    struct values values = {.progress = cli_is_terminal(STDERR_FILENO)};
    struct recording recording = {.values = &values};
    char password[64];
    int end = CLI_DONE;
    int first = cli_parse(&cli_vnc_record_command, argc, argv, &values,
                          &values.common, &end);
    if (first < 0) {
        return end;
    }
    if (argc - first != 2) {
        cli_say(name, "which server, and into which file?");
        return CLI_WRONG_USE;
    }
    int code = values.password_file ? read_password(values.password_file,
                                                    password, sizeof password)
                                    : 0;
    struct poise_screen_options how = {
        .encodings = values.encodings,
        .password = values.password_file ? password : NULL,
        .level = (unsigned)values.level,
        .timeout_ms = timeout_ms(values.timeout),
    };
    recording.meter.wanted = values.progress;
    umask(077);
    cli_catch_signals();
    code = code == 0
               ? poise_screen_connect(argv[first], &how, &recording.client)
               : code;
    if (code < 0) {
        return cli_fail(name, code);
    }
    end = record(&recording, argv[first + 1]);
    if (values.verbose) {
        const struct poise_screen_picture *picture =
            poise_screen_picture(recording.client);
        cli_say(name, "'%s', %u x %u pixels: %llu updates, %llu bytes in all",
                poise_screen_name(recording.client), picture->width,
                picture->height, (unsigned long long)recording.steps,
                (unsigned long long)recording.bytes);
    }
    poise_screen_close(recording.client);
    return end;
}
