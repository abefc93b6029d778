/* poise desync run: other people's programs of DesyncFS, shared objects. */
#include "cli/flow/flow.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    struct cli_flow flow;
    struct cli_cluster cluster;
    const char *report;
};

static const struct poise_option options[] = {
    {POISE_OPTION_HEADING, .help = "How it runs"},
    CLI_FLOW_OPTIONS(struct values, flow),
    CLI_FLOW_SHARES(struct values, flow),
    {POISE_OPTION_HEADING, .help = "Output"},
    {POISE_OPTION_STRING, .name = "report", .arg = "FILE",
     .help = "write a page (HTML): what each process did and when, who "
             "computed which blocks",
     .offset = offsetof(struct values, report)},
    CLI_FLOW_WORDS(struct values, flow),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_desync_run_command = {
    .name = "desync run",
    .operands = "JOB [ARGUMENT]...",
    .summary = "run a program of versioned blocks on unequal nodes",
    .description =
        "JOB is a shared object that defines poise_flow_open (see "
        "<poise/flow.h>): it says which blocks there are, what each "
        "needs, and how to compute it. Put options of poise before "
        "JOB; ARGUMENTs are for the job. 'man poise_flow.h' describes "
        "the interface.\n\n"
        "Nodes are processes of this host, of the hosts in --hosts, or "
        "of a launcher (srun, mpirun). When a node dies the others "
        "compute its part again, from copies that nodes keep for each "
        "other (see --replicate-every). A node that gets SIGTERM hands "
        "its blocks over before it ends. With --log, you can restart "
        "the command itself if it dies.\n\n"
        "With --json, standard output has the statistics alone: what the "
        "job prints there goes to standard error.",
    .options = options,
    .examples = "cc -O2 -shared -fPIC -o jump.so jump.c\tcompile jump.c, one "
                "of Poise's examples, which are in share/doc/poise/examples\n"
                "poise desync run -n 4 ./jump.so 100000\trun it on four "
                "processes\n",
    .exits = "0\tdone\n"
             "1\tit failed\n"
             "2\twrong use\n"
             "3\tthis machine lacks something that is needed\n",
    .see = "poise-solve(1) docs/flow.md",
};

/* A word without a slash names a file of the working folder, unless there is
 * none: then the loader looks in its own folders. */
static void *load_object(const char *path)
{
    char here[PATH_MAX];
    int len = snprintf(here, sizeof here, "./%s", path);
    bool is_here =
        !strchr(path, '/') && len < (int)sizeof here && access(here, F_OK) == 0;
    return dlopen(is_here ? here : path, RTLD_NOW | RTLD_LOCAL);
}

static int load(const char *path,
                int (**begin)(int, char **, struct poise_flow_program *))
{
    void *object = load_object(path), *symbol;
    if (!object) {
        const char *why = dlerror();
        return poise_error_set(
            EINVAL, "load", path, "%s%s", why,
            strstr(why, "invalid ELF header") || strstr(why, "file too short")
                ? "; JOB is a shared object: cc -shared -fPIC -o JOB.so JOB.c"
                : "");
    }
    symbol = dlsym(object, "poise_flow_open");
    if (!symbol) {
        return poise_error_set(EINVAL, "load", path,
                               "it defines no poise_flow_open");
    }
    memcpy(begin, &symbol, sizeof symbol);
    return 0;
}

/* What a function of the program returned; the error is set, if it was not. */
static int returned(int code, const char *function, const char *path)
{
    if (code < 0 && poise_error_last()->code != -code) {
        const char *why = strerrordesc_np(-code);
        return poise_error_set(-code, function, path, "it returned %d (%s)",
                               code, why ? why : "which is no errno");
    }
    return code;
}

/* ---- the page ----------------------------------------------------------- */

/** A run to be shown. */
struct outcome {
    int argc;
    char **argv;
    const struct poise_flow_job *job;
    const struct poise_flow_stats *stats;
    const struct cli_live *live;
};

static int add_figures(struct poise_page *page,
                       const struct poise_flow_stats *stats)
{
    static const char *const labels[] = {"time", "blocks", "computed again",
                                         "new shares", "nodes given up"};
    enum { COUNT = sizeof labels / sizeof *labels };
    struct poise_buf cells[COUNT] = {0};
    const char *values[COUNT];
    uint64_t redone = 0;
    for (unsigned n = 0; n < stats->node_count; n++) {
        redone += stats->nodes[n].redone;
    }
    poise_human_ns(&cells[0], stats->wall_ns);
    poise_human_count(&cells[1], stats->blocks);
    poise_human_count(&cells[2], redone);
    poise_buf_decimal(&cells[3], stats->rechunkings);
    poise_buf_decimal(&cells[4], stats->deaths);
    for (int i = 0; i < COUNT; i++) {
        values[i] = poise_buf_str(&cells[i]);
    }
    int code = poise_page_figures(page, labels, values, COUNT);
    for (int i = 0; i < COUNT; i++) {
        poise_buf_free(&cells[i]);
    }
    return code;
}

/* The plans of a job that is cut into stages are of these, not of its file. */
static bool has_stages(const struct poise_flow_job *job)
{
    const struct poise_flow_file *file = job->files;
    return job->file_count == 1 &&
           file->shape.versions.to - file->shape.versions.from <= 1 &&
           (file->stages > 0 || file->adapt > 0);
}

static int make_page(const struct outcome *run, struct poise_buf *out)
{
    struct poise_page *page;
    struct poise_buf subtitle = {0};
    for (int i = 0; i < run->argc; i++) {
        poise_buf_puts(&subtitle, i > 0 ? " " : "");
        poise_buf_escape(&subtitle, run->argv[i], strlen(run->argv[i]));
    }
    int code =
        poise_page_create("poise desync run", poise_buf_str(&subtitle), &page);
    poise_buf_free(&subtitle);
    if (code < 0) {
        return code;
    }
    code = add_figures(page, run->stats);
    code = code < 0 ? code : cli_flow_page(run->stats, page);
    code = code < 0 ? code : cli_live_page(run->live, page);
    for (uint32_t f = 0; code == 0 && f < run->job->file_count; f++) {
        if (!has_stages(run->job)) {
            code = cli_flow_page_chunks(&run->job->files[f].shape, f,
                                        run->stats, page);
        }
    }
    code = code < 0 ? code
                    : poise_page_html(page, &(struct poise_page_run){0}, out);
    poise_page_destroy(page);
    return code;
}

static int save_page(const struct outcome *run, const char *path)
{
    struct poise_buf out = {0};
    int code = make_page(run, &out);
    code = code < 0 ? code : poise_file_save(path, &out);
    poise_buf_free(&out);
    return code;
}

/* ---- the run ------------------------------------------------------------ */

static int tell(const struct cli_flow *flow,
                const struct poise_flow_stats *stats)
{
    struct poise_buf out = {0};
    int status = CLI_DONE;
    if (flow->verbose) {
        cli_flow_verbose("desync run", stats, &out);
        cli_write_verbose(&out);
    }
    if (flow->json) {
        struct poise_json json = poise_json_to(&out, false);
        cli_json_begin(&json, "poise-desync-run-1");
        cli_flow_json(&json, stats);
        poise_json_end_object(&json);
        poise_buf_putc(&out, '\n');
        status = cli_write("desync run", &out);
    }
    poise_buf_free(&out);
    return status;
}

/* What tells this job from others: the program itself, and its words. Added to
 * what the program says of its input. */
static int digest(int argc, char **argv, uint64_t *out)
{
    char part[65536];
    uint64_t hash = *out;
    ssize_t got;
    int fd = poise_file_open(AT_FDCWD, argv[0], O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) {
        return fd;
    }
    while ((got = poise_file_read(fd, part, sizeof part, argv[0])) > 0) {
        hash = poise_hash_bytes(part, (size_t)got, hash);
    }
    for (int i = 1; i < argc; i++) {
        hash = poise_hash_bytes(argv[i], strlen(argv[i]) + 1, hash);
    }
    *out = hash;
    close(fd);
    return got < 0 ? (int)got : 0;
}

/* The program's files, with shares as options say: those of --chunks are of the
 * first one. `files` is [program's file_count]; `parts` are owned by the
 * caller.
 */
static int share(const struct cli_flow *flow, struct poise_flow_job *job,
                 struct poise_flow_file *files, struct poise_buf *parts)
{
    int code = 0;
    for (uint32_t f = 0; f < job->file_count; f++) {
        files[f] = job->files[f];
        files[f].adapt = flow->adapt > 0 ? flow->adapt : files[f].adapt;
    }
    if (flow->chunks && job->file_count > 0) {
        code = cli_chunks_read(flow->chunks, &files[0].shape, parts);
        files[0].parts = (struct poise_flow_part *)parts->data;
        files[0].part_count = parts->len / sizeof *files[0].parts;
    }
    job->files = files;
    return code;
}

/* Run what a program opened, and write the page of it. */
static int run_job(struct values *values, int argc, char **argv,
                   struct poise_flow_program *program,
                   struct poise_flow_stats *stats)
{
    const struct cli_flow *flow = &values->flow;
    const struct cli_cluster *cluster = &values->cluster;
    struct poise_flow_options run_options = cli_flow_options(flow);
    struct poise_flow_job job = program->job;
    struct poise_flow_file *files =
        poise_alloc((size_t)job.file_count + 1, sizeof *files);
    struct poise_buf parts = {0};
    struct cli_live *live = NULL;
    int code = files ? share(flow, &job, files, &parts) : -ENOMEM;
    run_options.cluster = cluster->used ? &cluster->cluster : NULL;
    run_options.output = program->output;
    run_options.output_arg = program->arg;
    if (code == 0 && !cluster->agent) {
        code = cli_live_open(flow, values->report != NULL, &run_options, &live);
    }
    if (code == 0) {
        code = poise_flow_run(&job, &run_options, stats);
    }
    if (code == 0 && values->report) {
        const struct outcome outcome = {argc, argv, &job, stats, live};
        code = save_page(&outcome, values->report);
    }
    cli_live_close(live);
    poise_buf_free(&parts);
    free(files);
    return code;
}

/* With --json standard output is for the object alone: what the program, here
 * and in nodes, has to say goes to standard error. What is to be handed to
 * put_back, or negative with the error set. */
static int set_aside(bool json)
{
    int fd = json ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)
                  : STDOUT_FILENO;
    if (fd < 0 || (json && dup2(STDERR_FILENO, STDOUT_FILENO) < 0)) {
        return poise_error_set(errno, "write to", "standard output", NULL);
    }
    return fd;
}

static void put_back(int fd)
{
    if (fd != STDOUT_FILENO) {
        fflush(stdout);
        dup2(fd, STDOUT_FILENO);
        close(fd);
    }
}

/* The program's last words, of a run that ended with `code`; an exit code. */
static int finish(const struct poise_flow_program *program, const char *path,
                  int code)
{
    poise_error_clear();
    int finished = program->finish ? program->finish(code, program->arg) : 0;
    if (finished < 0 && (finished != code || poise_error_last()->code)) {
        returned(finished, "call finish of", path);
        return cli_fail("desync run", finished);
    }
    return code < 0 ? CLI_PARTLY : CLI_DONE;
}

static int run(struct values *values, int argc, char **argv)
{
    const struct cli_cluster *cluster = &values->cluster;
    struct poise_flow_program program = {0};
    struct poise_flow_stats stats = {0};
    int (*begin)(int, char **, struct poise_flow_program *) = NULL;
    int traced = cluster->agent ? CLI_DONE
                                : cli_trace_begin("desync run",
                                                  (int)values->flow.nodes + 1);
    if (traced != CLI_DONE) {
        return traced;
    }
    int output = set_aside(values->flow.json);
    int code = output < 0 ? output : load(argv[0], &begin);
    if (code == 0) {
        poise_error_clear();
        code = returned(begin(argc, argv, &program), "call poise_flow_open of",
                        argv[0]);
    }
    if (code == 0 && cluster->used) {
        code = digest(argc, argv, &program.job.digest);
    }
    if (code < 0) {
        return cli_fail("desync run", code);
    }
    code = run_job(values, argc, argv, &program, &stats);
    if (code < 0) {
        cli_say_error("desync run");
    }
    if (cluster->agent) {
        return code < 0 ? CLI_PARTLY : CLI_DONE;
    }
    int status = finish(&program, argv[0], code);
    put_back(output);
    if (code == 0) {
        int told = tell(&values->flow, &stats);
        status = status == CLI_DONE ? told : status;
    }
    poise_flow_stats_free(&stats);
    cli_trace_end();
    return status;
}

static int run_on(struct values *values, int argc, char **argv)
{
    struct cli_standard standard;
    int status =
        cli_cluster_open("desync run", &values->flow, &values->cluster);
    if (status == CLI_DONE && !values->cluster.agent) {
        status = cli_standard_output("desync run", values->flow.json,
                                     &values->report, NULL, &standard);
    }
    if (status == CLI_DONE) {
        status = run(values, argc, argv);
    }
    cli_cluster_close(&values->cluster);
    return status;
}

int cli_desync_run(int argc, char **argv)
{
    struct values values = {.flow.replicate = CLI_FLOW_REPLICATE,
                            .flow.live = cli_is_terminal(STDERR_FILENO)};
    int status = CLI_DONE;
    int end = cli_options_end(options, argc, argv);
    int first = cli_parse(&cli_desync_run_command, end, argv, &values,
                          &values.common, &status);
    if (first >= 0 &&
        cli_flow_ablate(&cli_desync_run_command, &values.flow, &status)) {
        end += end < argc && strcmp(argv[end], "--") == 0;
        status = end < argc ? run_on(&values, argc - end, argv + end)
                            : cli_needs("desync run", "a JOB");
    }
    poise_strings_free(&values.flow.ablation);
    return status;
}
