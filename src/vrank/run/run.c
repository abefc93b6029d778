/*
 * A run of a program: one private image for each rank of this process, or, for
 * a program that was started by itself, the program in place.
 */
#include "setup.h"
#include "signals.h"
#include "vrank/context/context.h"
#include "vrank/job/job.h"
#include "vrank/loader/loader.h"
#include "vrank/loader/start.h"
#include "vrank/profile/profile.h"
#include "vrank/thread/rank.h"

#include <poise/comm.h>

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/** A signal handler's stack: enough to format a line. */
#define RUN_SIGNAL_STACK ((size_t)64 << 10)

struct run {
    const struct poise_vrank_options *options;
    struct vrank_job job;
    struct poise_world *world;
    struct load_program program;
    const struct poise_vrank_program *in_place; /* NULL: private images */
    int argc;
    char **argv, **envp;
    struct load_rank *ranks; /* [count]; NULL: in place */
    int count;
    char *signal_stacks; /* [threads], mapped */
    struct vrank_setup setup;
    struct profile profile; /* if options->profiled */
    bool has_mpi;
};

/* ---- a rank ------------------------------------------------------------- */

static int run_body(struct vrank *self, void *arg)
{
    struct run *run = arg;
    struct vrank *const *locals;
    int index = 0;
    for (vrank_locals(&locals); locals[index] != self; index++) {
    }
    context_adopt(self, index);
    if (run->in_place != NULL) {
        return run->in_place->main(run->argc, run->argv, run->envp) & 0xff;
    }
    self->program = &run->ranks[index];
    context_origin(self, (uintptr_t)self->program->main);
    return load_rank_run(self->program) & 0xff;
}

/* Ranks of this process. */
static int run_local_count(const struct run *run)
{
    int count = 0;
    for (int i = 0; i < run->job.count; i++) {
        count += vrank_placed(&run->job, i) == run->job.process;
    }
    return count;
}

static int run_make_ranks(struct run *run)
{
    run->ranks =
        poise_alloc((size_t)run_local_count(run) + 1, sizeof *run->ranks);
    if (run->ranks == NULL) {
        return -ENOMEM;
    }
    int code = 0;
    for (int i = 0; i < run->job.count && code == 0; i++) {
        if (vrank_placed(&run->job, i) == run->job.process) {
            struct load_rank *rank = &run->ranks[run->count];
            code = load_rank_create(&run->program, run->count, i, run->argc,
                                    run->argv, rank);
            run->count++;
        }
    }
    return code;
}

/* ---- whether they fit --------------------------------------------------- */

/* The number that stands in a file of /proc or /sys behind `label`; -1 if
 * there is none. */
static int64_t run_number_in(const char *path, const char *label)
{
    char text[4096];
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return -1;
    }
    size_t len = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[len] = '\0';
    const char *at = strstr(text, label);
    long long number = -1;
    if (at == NULL || sscanf(at + strlen(label), "%lld", &number) != 1) {
        return -1;
    }
    return number;
}

static int64_t run_count_lines(const char *path)
{
    FILE *file = fopen(path, "re");
    int64_t lines = 0;
    int c;
    while (file != NULL && (c = getc(file)) != EOF) {
        lines += c == '\n';
    }
    if (file != NULL) {
        fclose(file);
    }
    return lines;
}

/* Memory that is free, as far as one can say: of the machine, and of the
 * control group of a container. */
static int64_t run_free_bytes(void)
{
    int64_t free_bytes = run_number_in("/proc/meminfo", "MemAvailable:");
    free_bytes = free_bytes < 0 ? INT64_MAX : free_bytes * 1024;
    int64_t most = run_number_in("/sys/fs/cgroup/memory.max", "");
    int64_t used = run_number_in("/sys/fs/cgroup/memory.current", "");
    if (most >= 0 && used >= 0 && most - used < free_bytes) {
        free_bytes = most - used;
    }
    return free_bytes;
}

/* Refuse what cannot end well, with the arithmetic. */
static int run_check_room(const struct run *run)
{
    size_t data;
    int mappings;
    int count = (run->job.count + run->job.processes - 1) / run->job.processes;
    load_program_needs(&run->program, &data, &mappings);
    /* The stack and its guard; the touched part of both, and our own. */
    int64_t each = mappings + 2, each_bytes = (int64_t)data + (40 << 10);
    int64_t most = run_number_in("/proc/sys/vm/max_map_count", "");
    int64_t used = run_count_lines("/proc/self/maps");
    if (most > 0 && used + each * count > most) {
        return poise_error_set(
            ENOMEM, "run so many virtual ranks in a process", NULL,
            "%d ranks need %lld mappings each, with %lld in use: %lld, and "
            "vm.max_map_count is %lld",
            count, (long long)each, (long long)used,
            (long long)(used + each * count), (long long)most);
    }
    int64_t free_bytes = run_free_bytes();
    if (each_bytes > free_bytes / count) {
        return poise_error_set(
            ENOMEM, "run so many virtual ranks in a process", NULL,
            "%d ranks need %lld KiB each, %lld MiB in all, and %lld MiB are "
            "free",
            count, (long long)(each_bytes >> 10),
            (long long)(each_bytes * count >> 20),
            (long long)(free_bytes >> 20));
    }
    return 0;
}

/* ---- contexts on disk --------------------------------------------------- */

static bool run_swaps(const struct poise_vrank_options *options)
{
    return options->scratch != NULL || options->memory_bytes > 0;
}

/* The memory of this process now, and what it maps of files, which can be given
 * back, or is another's, but is needed to go on. */
static uint64_t run_used_bytes(uint64_t *file_bytes)
{
    long long pages = 0, shared = 0;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    FILE *file = fopen("/proc/self/statm", "re");

    if (file != NULL) {
        if (fscanf(file, "%*d %lld %lld", &pages, &shared) != 2) {
            pages = shared = 0;
        }
        fclose(file);
    }
    *file_bytes = (uint64_t)shared * page;
    return (uint64_t)(pages - shared) * page;
}

/* What ranks will have besides their contexts: data, and the touched part of
 * stacks. */
static uint64_t run_rank_bytes(const struct run *run, int count)
{
    size_t data = 0;
    int mappings;

    load_program_needs(&run->program, &data, &mappings);
    return (uint64_t)count * (data + (64 << 10));
}

static int run_begin_contexts(struct run *run)
{
    const struct poise_vrank_options *options = run->options;
    const char *scratch = options->scratch;
    int count = run_local_count(run);

    if (!run_swaps(options) || count == 0) {
        return 0;
    }
    if (scratch == NULL) {
        scratch = getenv("TMPDIR");
    }
    uint64_t file_bytes;
    uint64_t used = run_used_bytes(&file_bytes);
    struct context_options contexts = {
        .memory_bytes = options->memory_bytes,
        .base_bytes = used + run_rank_bytes(run, count),
        .file_bytes = file_bytes,
        .scratch = scratch != NULL ? scratch : "/var/tmp",
        .most_bytes = options->context_bytes,
        .count = count,
        .threads = run->job.threads < count ? run->job.threads : count,
        .sharers = run->job.processes,
        .always = options->swap_always,
        .whole = options->swap_whole,
        .tracking = options->tracking,
        .disk = options->disk};
    if (contexts.memory_bytes == 0) {
        /* What a control group counts comes late, and in portions. */
        uint64_t free_bytes =
            poise_memory_available() / (uint64_t)run->job.processes;
        contexts.memory_bytes = used + free_bytes - free_bytes / 128;
    }
    run->job.swap = &context_swap_ops;
    return context_begin(&contexts);
}

/* ---- the whole ---------------------------------------------------------- */

static void run_thread_start(int worker, void *arg)
{
    const struct run *run = arg;
    stack_t stack = {.ss_sp =
                         run->signal_stacks + (size_t)worker * RUN_SIGNAL_STACK,
                     .ss_size = RUN_SIGNAL_STACK};
    sigaltstack(&stack, NULL);
}

static void run_say(const char *line, void *arg)
{
    const struct run *run = arg;
    if (run->options->say != NULL) {
        run->options->say(line, run->options->arg);
    }
}

static void run_ending(int status, void *arg)
{
    const struct run *run = arg;
    if (run->options->ending != NULL) {
        run->options->ending(status, run->options->arg);
    }
}

/* What ranks have printed is not lost. */
static void run_die(int status, void *arg)
{
    struct run *run = arg;
    fflush(NULL);
    if (run->options->die != NULL) {
        run->options->die(status, run->options->arg);
    }
}

static int run_join_world(struct run *run)
{
    const struct poise_vrank_options *options = run->options;
    int code = poise_world_create(NULL, &run->world);
    if (code < 0) {
        return code;
    }
    run->job = (struct vrank_job){
        .processes = poise_world_size(run->world),
        .process = poise_world_rank(run->world),
        .count = options->count,
        .threads = options->threads > 0 ? options->threads : 1,
        .placement = options->placement,
        .policy = options->policy,
        .serial = options->serial,
        .stack_bytes = options->stack_bytes,
        .profile_ops = options->profiled != NULL ? &profile_ops : NULL,
        .profile = &run->profile,
        .body = run_body,
        .thread_start = run_thread_start,
        .say = run_say,
        .ending = run_ending,
        .die = options->die != NULL ? run_die : NULL,
        .arg = run};
    if (run->job.count == 0) {
        run->job.count = run->job.processes;
    }
    code = setup_job(options, run->world, &run->job, &run->setup);
    if (code < 0) {
        return code;
    }
    const struct mpi_options mpi = {
        .world = run->job.processes > 1 ? run->world : NULL,
        .delay_ns = options->delay_ns,
        .delay_bytes_per_s = options->delay_bytes_per_s,
        .checks = options->checks};
    code = mpi_job_begin(&mpi, &run->job.mpi);
    run->has_mpi = code == 0;
    return code;
}

/* Collective. */
static int run_report_profile(struct run *run)
{
    struct poise_vrank_profile *profile = NULL;
    int code = profile_gather(&run->profile, run->world, &profile);
    if (code == 0 && profile != NULL) {
        run->options->profiled(profile, run->options->arg);
    }
    poise_vrank_profile_free(profile);
    return code;
}

/* What was swapped, beside the profile. */
static void run_report_contexts(const struct run *run)
{
    struct context_sums sums;
    char line[240];

    if (context_span == 0) {
        return;
    }
    context_sums(&sums);
    snprintf(line, sizeof line,
             "process %d swapped %llu contexts in, %llu MiB, and %llu MiB out; "
             "%llu MiB of messages read from disk, %llu written; threads "
             "waited %.2f s for that; tracking: %s",
             run->job.process, (unsigned long long)sums.swaps,
             (unsigned long long)sums.swapped_in >> 20,
             (unsigned long long)sums.swapped_out >> 20,
             (unsigned long long)sums.read_parts >> 20,
             (unsigned long long)sums.written_parts >> 20,
             (double)sums.wait_ns / 1e9,
             poise_vrank_tracking_names[sums.tracking]);
    run_say(line, (void *)(uintptr_t)run);
}

static int run_ranks(struct run *run, int *status)
{
    struct vrank_outcome outcome;
    size_t bytes = (size_t)run->job.threads * RUN_SIGNAL_STACK;
    void *stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stacks == MAP_FAILED) {
        return poise_error_set(errno, "run virtual ranks", NULL, NULL);
    }
    run->signal_stacks = stacks;
    signals_catch(run->options);
    int code = vrank_run_job(&run->job, &outcome);
    signals_release();
    stack_t none = {.ss_flags = SS_DISABLE};
    sigaltstack(&none, NULL);
    munmap(stacks, bytes);
    if (code == 0) {
        *status = outcome.status;
    }
    if (code == 0 && run->job.profile_ops != NULL && !outcome.aborted) {
        run_report_contexts(run);
        code = run_report_profile(run);
    }
    return code;
}

static void run_free(struct run *run)
{
    for (int i = 0; i < run->count; i++) {
        load_rank_free(&run->ranks[i]);
    }
    free(run->ranks);
    context_end();
    load_program_close(&run->program);
    profile_free(&run->profile);
    setup_free(&run->setup);
    if (run->has_mpi) {
        mpi_job_end();
    }
    poise_world_destroy(run->world);
}

/* Where argv[0] is, as the shell would find it; the caller's. */
static int run_find(const char *name, char **out)
{
    struct poise_buf path = {0};
    int code = -ENOENT;
    const char *folders = getenv("PATH");
    if (strchr(name, '/') != NULL || folders == NULL) {
        folders = "";
    }
    while (code != 0 && folders != NULL) {
        size_t len = strcspn(folders, ":");
        struct stat status;
        poise_buf_reset(&path);
        poise_buf_append(&path, folders, len);
        poise_buf_printf(&path, "%s%s", len > 0 ? "/" : "", name);
        if (stat(poise_buf_str(&path), &status) == 0 &&
            S_ISREG(status.st_mode)) {
            code = access(path.data, X_OK) == 0 ? 0 : -EACCES;
        }
        folders = folders[len] == ':' ? folders + len + 1 : NULL;
    }
    if (code == 0) {
        *out = strdup(poise_buf_str(&path));
        code = *out != NULL ? 0 : -ENOMEM;
    }
    poise_buf_free(&path);
    return code < 0 ? poise_error_set(-code, "run", name, NULL) : 0;
}

/* What stands for a function in private images: those of libc_wrap.h, and
 * MPI's, which are ours whatever else is loaded and called poise_MPI_... in
 * libpoise. */
static void *run_function(const char *name, void *arg)
{
    const char *plain = strncmp(name, "PMPI_", 5) == 0 ? name + 1 : name;
    struct run *run = arg;
    char own[128];
    if (strncmp(plain, "MPI_", 4) != 0) {
        return wrap_find(name, run_swaps(run->options));
    }
    snprintf(own, sizeof own, "poise_%s", plain);
    void *function = dlsym(RTLD_DEFAULT, own);
    if (run->options->profiled != NULL) {
        function = profile_wrap(&run->profile, plain, function);
    }
    return run_swaps(run->options) && profile_wraps(plain)
               ? context_site_wrap(function)
               : function;
}

/* All that can fail before ranks run. */
static int run_prepare(struct run *run)
{
    int code = run_check_room(run);
    if (code == 0) {
        code = load_program_frame(&run->program, &run->job.guard_bytes);
    }
    if (code == 0) {
        code = run_begin_contexts(run);
    }
    return code == 0 ? run_make_ranks(run) : code;
}

int poise_vrank_preload(const char *program, const char *preload,
                        struct poise_buf *first, struct poise_buf *tools)
{
    char *path = NULL;
    /* What is not there is missed when it is to run. */
    if (run_find(program, &path) < 0) {
        return poise_buf_puts(first, preload != NULL ? preload : "");
    }
    int code = load_preload(path, preload, first, tools);
    free(path);
    return code;
}

int poise_vrank_run(const struct poise_vrank_options *options, char **argv,
                    int *status)
{
    struct run run = {.options = options, .argv = argv};
    const struct load_names names = {
        .data = libc_data_names, .function = run_function, .arg = &run};
    char *path = NULL;
    while (argv[run.argc] != NULL) {
        run.argc++;
    }
    int code = run_find(argv[0], &path);
    if (code == 0) {
        code = load_program_open(path, options->tools, &names, &run.program);
    }
    free(path);
    if (code == 0) {
        code = run_join_world(&run);
    }
    if (code == 0) {
        code = poise_world_agree(run.world, run_prepare(&run));
        /* These codes would mean the program. */
        code = code == -ENOENT || code == -EACCES ? -EINVAL : code;
    }
    if (code == 0) {
        code = run_ranks(&run, status);
    }
    run_free(&run);
    return code;
}

/* As deep as the process's own. */
static size_t run_stack_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0) {
        return 0;
    }
    return limit.rlim_cur == RLIM_INFINITY ? (size_t)1 << 30
                                           : (size_t)limit.rlim_cur;
}

int poise_vrank_main(const struct poise_vrank_program *program,
                     const struct poise_vrank_start *start, int *status)
{
    struct poise_vrank_options options = {
        .stack_bytes = run_stack_limit(), .say = start->say, .die = start->die};
    struct run run = {.options = &options,
                      .in_place = program,
                      .argc = start->argc,
                      .argv = start->argv,
                      .envp = start->envp};
    int code = run_join_world(&run);
    if (code == 0) {
        code = load_frame_in_place(&run.job.guard_bytes);
    }
    if (code == 0) {
        code = run_ranks(&run, status);
    }
    if (code < 0) {
        struct poise_buf line = {0};
        poise_error_format(poise_error_last(), &line);
        start->say(poise_buf_str(&line), NULL);
        poise_buf_free(&line);
        *status = POISE_VRANK_FAILED;
    }
    run_free(&run);
    return code;
}
