/*
 * The foot of a page: which command, of which version, made it on which machine
 * and when, and what is known of its result. So that a page which is found
 * years later can be made again.
 */
#include "internal.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

static void put_row(struct poise_buf *out, const char *label, const char *text)
{
    poise_buf_printf(out, "<div><dt>%s</dt><dd>", label);
    report_escape(out, text);
    poise_buf_puts(out, "</dd></div>\n");
}

/* The same with text that is done with then. */
static void put_made(struct poise_buf *out, const char *label,
                     struct poise_buf *text)
{
    put_row(out, label, poise_buf_str(text));
    out->error = out->error ? out->error : text->error;
    poise_buf_free(text);
}

/* The arguments that this process was started with. Nothing where the system
 * does not tell. */
static void put_command(struct poise_buf *out)
{
    struct poise_buf words = {0}, text = {0};
    FILE *file = fopen("/proc/self/cmdline", "re");
    char some[4096];
    size_t got;

    while (file && (got = fread(some, 1, sizeof some, file)) > 0) {
        poise_buf_append(&words, some, got);
    }
    if (file) {
        fclose(file);
    }
    poise_buf_putc(&words, '\0');
    if (words.error) {
        out->error = words.error;
    } else if (words.len > 1) {
        char *first = words.data, *slash = strrchr(first, '/');
        size_t skip = slash ? (size_t)(slash + 1 - first) : 0;

        report_command(&text, first + skip, words.len - 1 - skip);
        put_made(out, "Command", &text);
    }
    poise_buf_free(&words);
}

/* What the processor is called, or its kind. */
static void put_processor(struct poise_buf *out)
{
    static const char *const keys[] = {"model name", "Model", "cpu\t", "uarch"};
    FILE *file = fopen("/proc/cpuinfo", "re");
    struct utsname kernel;
    char line[512];

    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');

        for (size_t i = 0; value && i < sizeof keys / sizeof *keys; i++) {
            if (strncmp(line, keys[i], strlen(keys[i])) == 0) {
                value += strspn(value, ": \t");
                value[strcspn(value, "\n")] = '\0';
                poise_buf_puts(out, value);
                fclose(file);
                return;
            }
        }
    }
    if (file) {
        fclose(file);
    }
    poise_buf_puts(out, uname(&kernel) == 0 ? kernel.machine : "unknown");
}

static void put_machine(struct poise_buf *out)
{
    struct poise_buf text = {0};
    long all = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
    cpu_set_t set;

    put_processor(&text);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < all) {
        poise_buf_printf(&text, ", %d of %ld cores", CPU_COUNT(&set), all);
    } else {
        poise_buf_printf(&text, ", %ld core%s", all, all == 1 ? "" : "s");
    }
    if (pages > 0) {
        poise_buf_puts(&text, ", ");
        poise_human_bytes(&text,
                          (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE));
        poise_buf_puts(&text, " of memory");
    }
    put_made(out, "Machine", &text);
}

/* Now, or what SOURCE_DATE_EPOCH says, in UTC. */
static void put_date(struct poise_buf *out)
{
    const char *asked = getenv("SOURCE_DATE_EPOCH");
    time_t now = time(NULL);
    struct tm parts;
    char text[64] = "";

    if (asked && *asked) {
        char *end;
        long long epoch = strtoll(asked, &end, 10);

        now = *end == '\0' ? (time_t)epoch : now;
    }
    if (gmtime_r(&now, &parts)) {
        strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
    }
    put_row(out, "Date", text);
}

void report_foot(struct poise_buf *out, const struct poise_page_run *run)
{
    struct poise_buf text = {0};

    poise_buf_puts(out, "<footer>\n<dl>\n");
    put_command(out);
    poise_buf_printf(&text, "poise %s", poise_version());
    put_made(out, "Version", &text);
    put_machine(out);
    put_date(out);
    if (run->seed > 0) {
        poise_buf_printf(&text, "%" PRIu64, run->seed);
    } else {
        poise_buf_puts(&text, run->is_random ? "drawn by the system"
                                             : "none: nothing is random");
    }
    put_made(out, "Seed", &text);
    put_row(out, "Result checked", run->checked ? run->checked : "no");
    poise_buf_puts(out, "</dl>\n</footer>\n");
}
