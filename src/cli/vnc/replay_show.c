/* What a replay found: as a table, as JSON, as a picture. */
#include "replay.h"

#include <stdio.h>
#include <stdlib.h>

enum { CELL = 32, COLUMNS = 8 };

/* ---- times --------------------------------------------------------------- */

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

double *replay_times(const struct replay_method *method,
                     const struct replay_link *link)
{
    size_t count = method->result.count;
    double *times = poise_alloc(count + 1, sizeof *times);
    uint64_t *us = link ? poise_alloc(count + 1, sizeof *us) : NULL;
    if (!times || (link && !us)) {
        free(times);
        free(us);
        return NULL;
    }
    if (link) {
        poise_screen_link_model(&link->link, method->result.steps, count, us);
    }
    for (size_t i = 0; i < count; i++) {
        times[i] = link ? (double)us[i] / 1e3
                        : (double)method->result.steps[i].encode_ns / 1e6;
    }
    free(us);
    qsort(times, count, sizeof *times, by_value);
    return times;
}

/* The value that a share of them stays at or below. */
static double at_share(const double *times, size_t count, double share)
{
    size_t at = (size_t)(share * (double)count);
    return count == 0 ? 0 : times[at < count ? at : count - 1];
}

/* ---- tables -------------------------------------------------------------- */

static void print_bytes(char *cell, uint64_t bytes)
{
    struct poise_buf text = {0};
    poise_human_bytes(&text, bytes);
    snprintf(cell, CELL, "%s", poise_buf_str(&text));
    poise_buf_free(&text);
}

/* Bytes to the viewer and back, and the ratio. */
static int add_row(struct poise_table *table, const char *what, uint64_t there,
                   uint64_t back, uint64_t raw, const double *ms)
{
    char cells[COLUMNS][CELL] = {{0}};
    const char *row[COLUMNS] = {what};
    uint64_t bytes = there + back;
    print_bytes(cells[1], there);
    if (back > 0) {
        print_bytes(cells[2], back);
    }
    snprintf(cells[3], CELL, "%.1f", bytes ? (double)raw / (double)bytes : 0.0);
    for (int i = 4; ms && i < COLUMNS; i++) {
        if (ms[i - 4] >= 0) {
            snprintf(cells[i], CELL, "%.2f", ms[i - 4]);
        }
    }
    for (int i = 1; i < COLUMNS; i++) {
        row[i] = cells[i];
    }
    return poise_table_row(table, row);
}

int replay_table(const struct replay_found *found, struct poise_table **out)
{
    static const struct poise_column columns[COLUMNS] = {
        {"sent", POISE_ALIGN_LEFT},     {"bytes", POISE_ALIGN_RIGHT},
        {"back", POISE_ALIGN_RIGHT},    {"of plain", POISE_ALIGN_RIGHT},
        {"ms", POISE_ALIGN_RIGHT},      {"differ", POISE_ALIGN_RIGHT},
        {"segment", POISE_ALIGN_RIGHT}, {"95 %", POISE_ALIGN_RIGHT}};
    const struct poise_screen_costs *costs = &found->costs;
    double n = costs->steps ? (double)costs->steps * 1e6 : 1;
    const double zstd[] = {(double)costs->zstd_ns / n, -1, -1, -1};
    const double frames[] = {(double)costs->frames_ns / n, -1, -1, -1};
    struct poise_table *table;
    int code = poise_table_create(columns, COLUMNS, &table);
    if (code < 0) {
        return code;
    }
    add_row(table, "plain pixels", costs->raw, 0, costs->raw, NULL);
    add_row(table, "by the server", costs->server, 0, costs->raw, NULL);
    add_row(table, "zstd of updates", costs->zstd, 0, costs->raw, zstd);
    code = add_row(table, "zstd of pictures", costs->frames, 0, costs->raw,
                   frames);
    for (size_t i = 0; i < found->method_count && code == 0; i++) {
        struct replay_method *method = &found->methods[i];
        const struct poise_screen_codec_stats *stats = &method->result.stats;
        double *times = replay_times(method, NULL), sum = 0;
        for (size_t k = 0; times && k < method->result.count; k++) {
            sum += times[k];
        }
        double ms[] = {sum * 1e6 / n, (double)stats->difference_ns / n,
                       (double)stats->segment_ns / n,
                       times ? at_share(times, method->result.count, 0.95) : 0};
        code = add_row(table, poise_buf_str(&method->label), stats->sent_bytes,
                       stats->reply_bytes, costs->raw, ms);
        free(times);
    }
    if (code < 0) {
        poise_table_destroy(table);
        return code;
    }
    *out = table;
    return 0;
}

int replay_links_table(const struct replay_found *found,
                       struct poise_table **out)
{
    enum { SOON_MS = 200, LINK_COLUMNS = 7 };
    static const struct poise_column columns[LINK_COLUMNS] = {
        {"link", POISE_ALIGN_LEFT},       {"sent", POISE_ALIGN_LEFT},
        {"median ms", POISE_ALIGN_RIGHT}, {"90 %", POISE_ALIGN_RIGHT},
        {"95 %", POISE_ALIGN_RIGHT},      {"most", POISE_ALIGN_RIGHT},
        {"in 200 ms", POISE_ALIGN_RIGHT}};
    static const double shares[] = {0.5, 0.9, 0.95, 1};
    struct poise_table *table;
    int code = poise_table_create(columns, LINK_COLUMNS, &table);
    for (size_t i = 0; code == 0 && i < found->link_count; i++) {
        for (size_t k = 0; code == 0 && k < found->method_count; k++) {
            struct replay_method *method = &found->methods[k];
            size_t count = method->result.count, soon = 0;
            double *times = replay_times(method, &found->links[i]);
            char cells[5][CELL];
            for (size_t s = 0; times && s < 4; s++) {
                snprintf(cells[s], CELL, "%.1f",
                         at_share(times, count, shares[s]));
            }
            while (times && soon < count && times[soon] <= SOON_MS) {
                soon++;
            }
            snprintf(cells[4], CELL, "%.1f %%",
                     count ? 100.0 * (double)soon / (double)count : 0.0);
            const char *row[] = {found->links[i].text,
                                 poise_buf_str(&method->label),
                                 cells[0],
                                 cells[1],
                                 cells[2],
                                 cells[3],
                                 cells[4]};
            code = times ? poise_table_row(table, row) : -1;
            free(times);
        }
    }
    if (code < 0) {
        poise_table_destroy(table);
        return code;
    }
    *out = table;
    return 0;
}

typedef int make_table(const struct replay_found *, struct poise_table **);

static void print_table(const struct replay_found *found, make_table *make,
                        struct poise_buf *out)
{
    struct poise_table *table;
    if (make(found, &table) == 0) {
        poise_buf_putc(out, '\n');
        poise_table_text(table, out);
        poise_table_destroy(table);
    }
}

void replay_print_text(const struct replay_found *found, struct poise_buf *out)
{
    const struct poise_screen_costs *costs = &found->costs;
    poise_buf_printf(
        out, "%u x %u pixels, %llu updates of %llu rectangles in %.1f s\n",
        found->width, found->height, (unsigned long long)costs->steps,
        (unsigned long long)costs->rects, (double)found->end_us / 1e6);
    poise_human_count(out, costs->pixels);
    poise_buf_puts(out, " pixels, of which ");
    poise_human_count(out, costs->changed);
    poise_buf_puts(out, " changed\n");
    print_table(found, replay_table, out);
    if (found->link_count > 0) {
        print_table(found, replay_links_table, out);
    }
}

/* ---- JSON ---------------------------------------------------------------- */

static void put_step(struct poise_json *json,
                     const struct poise_screen_trial_step *step)
{
    poise_json_object(json, NULL);
    poise_json_u64(json, "at_us", step->at_us);
    poise_json_u64(json, "pixels", step->pixels);
    poise_json_u64(json, "bytes", step->bytes);
    poise_json_u64(json, "reply_bytes", step->reply_bytes);
    poise_json_u64(json, "rounds", step->rounds);
    poise_json_u64(json, "encode_ns", step->encode_ns);
    poise_json_u64(json, "decode_ns", step->decode_ns);
    poise_json_end_object(json);
}

static void put_method(struct poise_json *json, struct replay_method *method,
                       const struct replay_found *found)
{
    const struct poise_screen_codec_stats *stats = &method->result.stats;
    poise_json_object(json, NULL);
    poise_json_string(json, "method", poise_buf_str(&method->label));
    poise_json_u64(json, "sent_bytes", stats->sent_bytes);
    poise_json_u64(json, "reply_bytes", stats->reply_bytes);
    poise_json_u64(json, "plain_bytes", stats->plain_bytes);
    poise_json_u64(json, "looked_pixels", stats->looked);
    poise_json_u64(json, "changed_pixels", stats->changed);
    poise_json_u64(json, "copied_pixels", stats->copied);
    poise_json_u64(json, "recalled_pixels", stats->recalled);
    poise_json_u64(json, "coded_pixels", stats->coded);
    poise_json_u64(json, "difference_ns", stats->difference_ns);
    poise_json_u64(json, "segment_ns", stats->segment_ns);
    poise_json_u64(json, "compress_ns", stats->compress_ns);
    poise_json_array(json, "segment_heights");
    for (size_t i = 0; i < 16; i++) {
        poise_json_u64(json, NULL, method->result.heights[i]);
    }
    poise_json_end_array(json);
    poise_json_array(json, "links");
    for (size_t i = 0; i < found->link_count; i++) {
        double *times = replay_times(method, &found->links[i]);
        size_t count = method->result.count;
        poise_json_object(json, NULL);
        poise_json_string(json, "delay", found->links[i].text);
        poise_json_double(json, "median_ms",
                          times ? at_share(times, count, 0.5) : 0);
        poise_json_double(json, "p90_ms",
                          times ? at_share(times, count, 0.9) : 0);
        poise_json_end_object(json);
        free(times);
    }
    poise_json_end_array(json);
    poise_json_array(json, "updates");
    for (size_t i = 0; i < method->result.count; i++) {
        put_step(json, &method->result.steps[i]);
    }
    poise_json_end_array(json);
    poise_json_end_object(json);
}

void replay_print_json(const struct replay_found *found, struct poise_buf *out)
{
    const struct poise_screen_costs *costs = &found->costs;
    struct poise_json json = poise_json_to(out, false);
    char hash[17];
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)found->hash);
    cli_json_begin(&json, "poise-vnc-replay-1");
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
    poise_json_array(&json, "methods");
    for (size_t i = 0; i < found->method_count; i++) {
        put_method(&json, &found->methods[i], found);
    }
    poise_json_end_array(&json);
    poise_json_end_object(&json);
    poise_buf_putc(out, '\n');
}

/* ---- pictures ------------------------------------------------------------ */

/* The left and the upper edge of a piece. */
static void outline(uint8_t *pixels, uint32_t width,
                    const struct poise_screen_piece *piece)
{
    static const uint8_t colours[][3] = {
        [POISE_SCREEN_COPIED] = {0, 200, 0},
        [POISE_SCREEN_RECALLED] = {0, 80, 255},
        [POISE_SCREEN_CODED] = {255, 0, 0},
        [POISE_SCREEN_SEGMENT] = {255, 220, 0}};
    const struct poise_screen_rect *rect = &piece->rect;
    for (uint32_t x = 0; x < rect->width; x++) {
        memcpy(pixels + 3 * ((size_t)rect->y * width + rect->x + x),
               colours[piece->kind], 3);
    }
    for (uint32_t y = 0; y < rect->height; y++) {
        memcpy(pixels + 3 * ((size_t)(rect->y + y) * width + rect->x),
               colours[piece->kind], 3);
    }
}

int replay_save_picture(const struct poise_screen_picture *picture,
                        const struct poise_screen_piece *pieces, size_t count,
                        const char *path)
{
    struct poise_buf out = {0};
    size_t pixels = (size_t)picture->width * picture->height;
    poise_buf_printf(&out, "P6\n%u %u\n255\n", picture->width, picture->height);
    uint8_t *at = (uint8_t *)poise_buf_reserve(&out, pixels * 3);
    for (size_t i = 0; at && i < pixels; i++) {
        at[3 * i] = (uint8_t)(picture->pixels[i] >> 16);
        at[3 * i + 1] = (uint8_t)(picture->pixels[i] >> 8);
        at[3 * i + 2] = (uint8_t)picture->pixels[i];
    }
    for (size_t i = 0; at && i < count; i++) {
        outline(at, picture->width, &pieces[i]);
    }
    out.len += at ? pixels * 3 : 0;
    int code = poise_file_save(path, &out);
    poise_buf_free(&out);
    return code;
}
