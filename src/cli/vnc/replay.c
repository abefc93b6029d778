/* poise vnc replay: what is in a recorded session, and what it costs to send.
 */
#include "cli/common/common.h"

#include <poise/screen.h>

#include <errno.h>
#include <stdio.h>

struct values {
    struct cli_common common;
    const char *picture;
    bool json;
};

static const struct poise_option options[] = {
    {POISE_OPTION_STRING, .name = "picture", .arg = "FILE",
     .help = "write the last picture there, as PPM; '-' is standard output",
     .offset = offsetof(struct values, picture)},
    {POISE_OPTION_FLAG, .name = "json", .help = "print JSON",
     .offset = offsetof(struct values, json)},
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_vnc_replay_command = {
    .name = "vnc replay",
    .operands = "FILE",
    .summary = "say what a recorded session of a screen holds and costs",
    .description =
        "Reads a session that poise vnc record wrote, checks that its last "
        "picture is the one that was recorded, and prints its size and what "
        "its updates cost: as the server sent them, as plain pixels, and by "
        "zstd (level 3, a window of 128 MiB, one stream for the session, "
        "flushed after each update) over the pixels of each update and over "
        "the whole picture after each. Milliseconds are processor time for "
        "each update.",
    .options = options,
    .examples = "poise vnc replay session.screen\tthe table\n"
                "poise vnc replay --picture last.ppm session.screen\tand the "
                "last picture\n",
    .exits = "0\tdone\n1\tthe session cannot be read, is cut off or damaged\n"
             "2\twrong use\n",
};

/* What was found. */
struct found {
    struct poise_screen_costs costs;
    uint64_t end_us, hash;
    uint32_t width, height;
};

static int save_picture(const struct poise_screen_picture *picture,
                        const char *path)
{
    struct poise_buf out = {0};
    size_t count = (size_t)picture->width * picture->height;
    poise_buf_printf(&out, "P6\n%u %u\n255\n", picture->width, picture->height);
    uint8_t *at = (uint8_t *)poise_buf_reserve(&out, count * 3);
    for (size_t i = 0; at && i < count; i++) {
        at[3 * i] = (uint8_t)(picture->pixels[i] >> 16);
        at[3 * i + 1] = (uint8_t)(picture->pixels[i] >> 8);
        at[3 * i + 2] = (uint8_t)picture->pixels[i];
    }
    out.len += at ? count * 3 : 0;
    int code = poise_file_save(path, &out);
    poise_buf_free(&out);
    return code;
}

static int read_all(struct poise_screen_reader *reader,
                    struct poise_screen_meter *meter, struct found *found)
{
    const struct poise_screen_picture *picture =
        poise_screen_reader_picture(reader);
    struct poise_screen_step step;
    int code;
    while ((code = poise_screen_reader_next(reader, &step)) > 0 &&
           (code = poise_screen_meter_add(meter, picture, &step)) == 0) {
        found->end_us = step.at_us;
    }
    found->costs = poise_screen_meter_costs(meter);
    found->width = picture->width;
    found->height = picture->height;
    found->hash = picture->pixels ? poise_screen_hash(picture) : 0;
    return code;
}

/* ---- what is said -------------------------------------------------------- */

static void row(struct poise_buf *out, const char *what, uint64_t bytes,
                const struct found *found, const uint64_t *ns)
{
    const struct poise_screen_costs *costs = &found->costs;
    size_t at = out->len;
    poise_buf_printf(out, "%-24s", what);
    poise_human_bytes(out, bytes);
    while (out->len - at < 36) {
        poise_buf_putc(out, ' ');
    }
    poise_buf_printf(out, "%8.1f",
                     bytes ? (double)costs->raw / (double)bytes : 0.0);
    if (ns && costs->steps) {
        poise_buf_printf(out, "%10.2f",
                         (double)*ns / 1e6 / (double)costs->steps);
    }
    poise_buf_putc(out, '\n');
}

static void print_text(const struct found *found, struct poise_buf *out)
{
    const struct poise_screen_costs *costs = &found->costs;
    poise_buf_printf(
        out, "%u x %u pixels, %llu updates of %llu rectangles in %.1f s\n",
        found->width, found->height, (unsigned long long)costs->steps,
        (unsigned long long)costs->rects, (double)found->end_us / 1e6);
    poise_human_count(out, costs->pixels);
    poise_buf_puts(out, " pixels, of which ");
    poise_human_count(out, costs->changed);
    poise_buf_puts(out, " changed\n\nsent                    bytes       "
                        "of plain        ms\n");
    row(out, "plain pixels", costs->raw, found, NULL);
    row(out, "by the server", costs->server, found, NULL);
    row(out, "zstd of updates", costs->zstd, found, &costs->zstd_ns);
    row(out, "zstd of pictures", costs->frames, found, &costs->frames_ns);
}

static void print_json(const struct found *found, struct poise_buf *out)
{
    const struct poise_screen_costs *costs = &found->costs;
    struct poise_json json = poise_json_to(out, false);
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)found->hash);
    poise_json_object(&json, NULL);
    poise_json_u64(&json, "width", found->width);
    poise_json_u64(&json, "height", found->height);
    poise_json_u64(&json, "updates", costs->steps);
    poise_json_u64(&json, "rectangles", costs->rects);
    poise_json_u64(&json, "us", found->end_us);
    poise_json_u64(&json, "pixels", costs->pixels);
    poise_json_u64(&json, "changed_pixels", costs->changed);
    poise_json_u64(&json, "raw_bytes", costs->raw);
    poise_json_u64(&json, "server_bytes", costs->server);
    poise_json_u64(&json, "zstd_bytes", costs->zstd);
    poise_json_u64(&json, "zstd_ns", costs->zstd_ns);
    poise_json_u64(&json, "frames_bytes", costs->frames);
    poise_json_u64(&json, "frames_ns", costs->frames_ns);
    poise_json_string(&json, "hash", hash);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

static int replay(const char *path, const struct values *values,
                  struct found *found)
{
    struct poise_screen_reader *reader = NULL;
    struct poise_screen_meter *meter = NULL;
    int code = poise_screen_reader_open(path, &reader);
    code = code == 0 ? poise_screen_meter_create(&meter) : code;
    code = code == 0 ? read_all(reader, meter, found) : code;
    if (code == 0 && values->picture) {
        code =
            save_picture(poise_screen_reader_picture(reader), values->picture);
    }
    poise_screen_meter_destroy(meter);
    poise_screen_reader_close(reader);
    return code;
}

int cli_vnc_replay(int argc, char **argv)
{
    const char *name = cli_vnc_replay_command.name;
    struct values values = {0};
    struct found found = {0};
    struct poise_buf out = {0};
    struct cli_standard to;
    int end = CLI_DONE;
    int first = cli_parse(&cli_vnc_replay_command, argc, argv, &values,
                          &values.common, &end);
    if (first < 0) {
        return end;
    }
    if (argc - first != 1) {
        cli_say(name, "which session?");
        return CLI_WRONG_USE;
    }
    end = cli_standard_output(name, values.json, &values.picture, NULL, &to);
    if (end != CLI_DONE) {
        return end;
    }
    int code = replay(cli_standard_input(argv[first]), &values, &found);
    if (code < 0) {
        return cli_fail(name, code);
    }
    if (values.json) {
        print_json(&found, &out);
    } else {
        print_text(&found, &out);
    }
    end = cli_write(name, &out);
    poise_buf_free(&out);
    return end;
}
