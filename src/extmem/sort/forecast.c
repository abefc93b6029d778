/* What a run will do, said before it does anything. */
#include "internal.h"

#include <poise/file.h>

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

void sort_forecast_of(const struct sort_run *run,
                      struct poise_sort_forecast *forecast)
{
    const struct sort_plan *plan = &run->plan;
    double bytes = (double)run->in_bytes, all = plan->processes;
    /* A look, wherever it begins, is of two pages. */
    double sample = (double)plan->sample_reads * 2 * EXTMEM_PAGE;

    *forecast = (struct poise_sort_forecast){
        .bytes_in = run->in_bytes,
        .read_bytes = (uint64_t)(bytes + sample + all * plan->scratch_read),
        .written_bytes = (uint64_t)(bytes + all * plan->scratch_written),
        .scratch_bytes = plan->scratch_bytes * plan->processes,
        .memory_bytes = plan->memory,
        .block_bytes = plan->block,
        .buckets = plan->buckets,
        .rounds = plan->rounds,
        .threads = plan->lanes,
        .processes = plan->processes,
    };
}

/* ---- how fast the disk is ----------------------------------------------- */

enum { PROBE = 1 << 20, PROBES = 16 };

/* Nanoseconds a byte of as many transfers as `bytes` has room for, spread over
 * it; 0 if there is none. */
static int probe(struct poise_disk *disk, bool is_write, uint64_t bytes,
                 char *memory, double *out)
{
    struct poise_disk_transfer transfers[PROBES];
    uint64_t count = bytes / PROBE < PROBES ? bytes / PROBE : PROBES;
    uint64_t begin = poise_clock_ns();
    int code = 0;

    for (uint64_t i = 0; i < count; i++) {
        transfers[i] = (struct poise_disk_transfer){
            .data = memory + i * PROBE,
            .len = PROBE,
            .offset = bytes / count * i / EXTMEM_PAGE * EXTMEM_PAGE,
            .is_write = is_write,
        };
        poise_disk_start(disk, &transfers[i]);
    }
    for (uint64_t i = 0; i < count; i++) {
        ssize_t n = poise_disk_wait(&transfers[i]);

        code = code < 0 ? code : n < 0 ? (int)n : 0;
    }
    *out = count > 0
               ? (double)(poise_clock_ns() - begin) / ((double)count * PROBE)
               : 0;
    return code;
}

/* A folder for scratch, or that of the output. */
static int open_scratch(const struct poise_sort_options *options,
                        const char *out, struct poise_disk **disk)
{
    const char *slash = out ? strrchr(out, '/') : NULL;
    struct poise_buf folder = {0};
    bool is_beside = false;
    int code = 0;

    if (options->scratch_count > 0) {
        poise_buf_puts(&folder, options->scratch[0]);
    } else if (out) {
        code = poise_output_check(out, &is_beside);
    }
    if (is_beside && slash) {
        poise_buf_append(&folder, out, (size_t)(slash - out) + 1);
    } else if (is_beside) {
        poise_buf_puts(&folder, ".");
    } else if (folder.len == 0) {
        poise_buf_puts(&folder, poise_file_temporary_folder());
    }
    if (code == 0) {
        code = folder.error ? folder.error
                            : poise_disk_scratch(poise_buf_str(&folder),
                                                 &options->disk, disk);
    }
    poise_buf_free(&folder);
    return code;
}

static int measure(const struct sort_run *run, const char *out,
                   struct poise_sort_forecast *forecast)
{
    char *memory = poise_huge_alloc((size_t)PROBE * PROBES);
    struct poise_disk *scratch = NULL;
    double in = 0, to = 0;
    int code = memory ? 0 : -ENOMEM;

    if (code == 0 && run->in.count > 0) {
        uint64_t first = run->in.begins[1] - run->in.begins[0];

        code = probe(run->in.disks[0], false, first, memory, &in);
    }
    if (code == 0 && in > 0) {
        code = open_scratch(run->options, out, &scratch);
    }
    if (code == 0 && in > 0) {
        code = probe(scratch, true, (uint64_t)PROBE * PROBES, memory, &to);
    }
    poise_disk_close(scratch);
    poise_huge_free(memory, (size_t)PROBE * PROBES);
    forecast->disk_seconds = (in * (double)forecast->read_bytes +
                              to * (double)forecast->written_bytes) /
                             1e9;
    return code;
}

/* ---- all ---------------------------------------------------------------- */

/* What is read once only would be gone. */
static int refuse_streams(const char *path)
{
    int fd = poise_file_named_descriptor(path);
    struct stat st;

    if ((fd < 0 ? stat(path, &st) : fstat(fd, &st)) != 0) {
        return poise_error_set(errno, "look at", path, NULL);
    }
    return S_ISREG(st.st_mode)
               ? 0
               : poise_error_set(ESPIPE, "plan", path,
                                 "it is no file: how much there is of it shows "
                                 "when it is read");
}

int poise_sort_plan(const char *in, const char *out,
                    const struct poise_sort_options *options,
                    struct poise_sort_forecast *forecast)
{
    struct poise_world *world = extmem_world(options->world);
    struct poise_sort_options alone = *options;
    struct sort_run run = {
        .options = &alone,
        .type = options->type,
        .shape = sort_shape_of(&options->type),
        .item_bytes = sort_item_bytes(&options->type),
        .processes = world ? (unsigned)poise_world_size(world) : 1,
    };
    int code = refuse_streams(in);

    alone.world = NULL;
    for (size_t i = 0; i < options->more_count && code == 0; i++) {
        code = refuse_streams(options->more[i]);
    }
    if (code == 0) {
        code = sort_input_open(&run, in, out);
    }
    if (code == 0) {
        code = sort_search_plan(
            &run,
            extmem_share_memory(NULL, options->memory_bytes) / run.processes,
            extmem_share_threads(NULL, options->threads));
    }
    if (code == 0) {
        sort_forecast_of(&run, forecast);
        code = measure(&run, out, forecast);
    }
    extmem_inputs_close(&run.in);
    return code;
}
