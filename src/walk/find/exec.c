/*
 * Actions of find that start commands: -exec, -execdir, -ok.
 *
 * A command starts in the directory in which the run was started and gets
 * paths as find prints them; -execdir and -okdir start in the directory that
 * holds the entry and get "./NAME". Each worker waits for its own commands.
 */
#include "internal.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* As GNU find: names and NULs of so many bytes, however much the system would
 * take; and what it leaves beside the environment. */
enum { LIST_BYTES_MOST = 128 << 10, LIST_RESERVE = 2048 };

struct find_exec {
    const char *const *words; /* borrowed from the expression */
    size_t count;             /* of words, without "{}" of a batch */
    unsigned id;              /* index of the batch */
    bool batch, in_dir, ask;
    size_t list_bytes; /* of the words */
    size_t list_most, count_most;
};

/* ---- compiling ---------------------------------------------------------- */

/* A relative or empty part of $PATH would run what lies in the directory. */
static bool path_is_safe(void)
{
    const char *path = getenv("PATH");
    while (path) {
        if (*path != '/') {
            return false;
        }
        path = strchr(path, ':');
        path = path ? path + 1 : NULL;
    }
    return true;
}

static int check_words(struct find_parser *parser, const struct find_exec *exec)
{
    if (exec->count == 0) {
        return find_parser_wrong(parser, exec->batch ? "+" : ";",
                                 "a command is missing");
    }
    for (size_t i = 0; exec->batch && i < exec->count; i++) {
        if (strcmp(exec->words[i], "{}") == 0) {
            return find_parser_wrong(parser, "{}", "only one goes with '+'");
        }
        if (strstr(exec->words[i], "{}")) {
            return find_parser_wrong(parser, exec->words[i],
                                     "'{}' must stand alone before '+'");
        }
    }
    return 0;
}

static void set_limits(struct find_exec *exec)
{
    long system = sysconf(_SC_ARG_MAX);
    size_t most = system > 0 ? (size_t)system : LIST_BYTES_MOST;
    size_t taken = LIST_RESERVE;
    for (char **at = environ; *at; at++) {
        taken += strlen(*at) + 1;
    }
    most = most > taken + 2 * LIST_RESERVE ? most - taken : LIST_RESERVE;
    exec->count_most = most / sizeof(char *) - 2;
    exec->list_most = most < LIST_BYTES_MOST ? most : LIST_BYTES_MOST;
}

int find_parse_exec(struct find_parser *parser, struct find_node *node)
{
    struct find_exec *exec = poise_alloc(1, sizeof *exec);
    if (!exec) {
        return -ENOMEM;
    }
    node->arg.exec = exec;
    exec->in_dir = node->which == 'd' || node->which == 'k';
    exec->ask = node->which == 'o' || node->which == 'k';
    exec->words = parser->words + parser->pos;
    const char *word, *before = "";
    do {
        word = find_parser_argument(parser);
        if (!word) {
            return -EINVAL;
        }
        exec->batch =
            !exec->ask && strcmp(word, "+") == 0 && strcmp(before, "{}") == 0;
        before = word;
        exec->count++;
    } while (strcmp(word, ";") != 0 && !exec->batch);
    exec->count -= exec->batch ? 2 : 1;
    int code = check_words(parser, exec);
    if (code < 0) {
        return code;
    }
    if (exec->in_dir && !path_is_safe()) {
        return find_parser_wrong(parser, exec->words[0],
                                 "$PATH holds a relative directory");
    }
    for (size_t i = 0; i < exec->count; i++) {
        exec->list_bytes += strlen(exec->words[i]) + 1;
    }
    set_limits(exec);
    parser->find->has_ask |= exec->ask;
    exec->id = parser->find->exec_count++;
    return 0;
}

void find_exec_release(struct find_node *node)
{
    free(node->arg.exec);
}

/* ---- running ------------------------------------------------------------ */

/* "cannot run 'COMMAND': ..." goes to the hook; not counted, as GNU find's
 * exit status does not show it. */
static void complain_command(struct find_state *state, const char *command,
                             int code, const char *why)
{
    if (why) {
        poise_error_set(code, "run", command, "%s", why);
    } else {
        poise_error_set(code, "run", command, NULL);
    }
    find_warn(state);
}

/* Start the command in state->run's directory, or in `dirfd` if that is not -1;
 * `out`: its standard output, if not -1; `asked`: its standard input is where
 * the answers are. 0 or an errno. */
static int spawn(const struct find_state *state, char **argv, int dirfd,
                 int out, bool asked, pid_t *pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attr, &state->run->signals);
    if (dirfd >= 0) {
        posix_spawn_file_actions_addfchdir_np(&files, dirfd);
    }
    if (asked) {
        posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null",
                                         O_RDONLY, 0);
    }
    if (out >= 0) {
        posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    }
    int code = posix_spawnp(pid, argv[0], &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return code;
}

/* Whether the command ended with 0. */
static bool await(struct find_state *state, const char *command, pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            complain_command(state, command, errno, NULL);
            return false;
        }
    }
    if (WIFSIGNALED(status)) {
        char why[64];
        snprintf(why, sizeof why, "ended by signal %d", WTERMSIG(status));
        complain_command(state, command, EINTR, why);
        return false;
    }
    return WEXITSTATUS(status) == 0;
}

/* All that comes out of the pipe, behind what the entry printed. */
static void gather(struct find_state *state, int pipe)
{
    enum { CHUNK = 64 << 10 };
    struct poise_buf *out = find_out(state, 0);
    for (;;) {
        char *to = poise_buf_reserve(out, CHUNK);
        ssize_t got = to ? read(pipe, to, CHUNK) : 0;
        if (got == 0 || (got < 0 && errno != EINTR)) {
            state->error = out->error ? out->error : state->error;
            return;
        }
        out->len += got > 0 ? (size_t)got : 0;
    }
}

/* Run it and wait for its end; true if that is 0. One at a time it writes where
 * this process does, behind all that was printed so far. */
static bool run_command(struct find_state *state, char **argv, int dirfd,
                        bool asked)
{
    int ends[2] = {-1, -1};
    int code = state->run->alone ? find_flush(state) : 0;
    if (code < 0) {
        state->error = code;
        return false;
    }
    pid_t pid;
    code = !state->run->alone && pipe2(ends, O_CLOEXEC) != 0
               ? errno
               : spawn(state, argv, dirfd, ends[1], asked, &pid);
    if (ends[1] >= 0) {
        close(ends[1]);
    }
    if (code != 0) {
        complain_command(state, argv[0], code, NULL);
    } else if (ends[0] >= 0) {
        gather(state, ends[0]);
    }
    if (ends[0] >= 0) {
        close(ends[0]);
    }
    state->changed |= code == 0;
    return code == 0 && await(state, argv[0], pid);
}

/* How the command calls the entry. Returns the length. */
static size_t put_operand(struct find_state *state, bool in_dir,
                          struct poise_buf *out)
{
    size_t before = out->len;
    if (!in_dir) {
        size_t len;
        const char *path = find_path(state, &len);
        if (path) {
            poise_buf_append(out, path, len);
        }
        return out->len - before;
    }
    const char *base = find_base(state);
    if (*base != '/') {
        poise_buf_puts(out, "./");
        poise_buf_puts(out, base);
    } else {
        poise_buf_putc(out, '/'); /* "///" */
    }
    return out->len - before;
}

/* A descriptor of the directory that holds the entry, for the caller to
 * close; negative after an error, which is reported. */
static int open_parent(struct find_state *state)
{
    const struct poise_walk_entry *entry = state->entry;
    int fd;
    if (entry->depth > 0) {
        int dirfd;
        if (!find_dirfd(state, &dirfd)) {
            return -ENOENT;
        }
        fd = fcntl(dirfd, F_DUPFD_CLOEXEC, 0);
    } else {
        size_t len = (size_t)(find_base(state) - entry->name);
        poise_buf_reset(&state->scratch);
        poise_buf_append(&state->scratch, entry->name, len);
        if (len == 0) {
            poise_buf_putc(&state->scratch, entry->name[0] == '/' ? '/' : '.');
        }
        fd = open(poise_buf_str(&state->scratch),
                  O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0) {
        fd = -errno;
        find_complain(state, fd, "open the directory of");
    }
    return fd;
}

/* All words with each "{}" replaced, NUL-ended, and pointers to them. */
static char **build_list(struct find_state *state, const struct find_exec *exec,
                         struct poise_buf *text)
{
    char **argv = poise_alloc(exec->count + 1, sizeof *argv);
    if (!argv) {
        return NULL;
    }
    for (size_t i = 0; i < exec->count; i++) {
        const char *word = exec->words[i], *hole;
        while ((hole = strstr(word, "{}"))) {
            poise_buf_append(text, word, (size_t)(hole - word));
            put_operand(state, exec->in_dir, text);
            word = hole + 2;
        }
        poise_buf_puts(text, word);
        poise_buf_putc(text, '\0');
    }
    if (text->error) {
        free(argv);
        return NULL;
    }
    char *at = text->data;
    for (size_t i = 0; i < exec->count; i++) {
        argv[i] = at;
        at += strlen(at) + 1;
    }
    return argv;
}

/* -ok: whether the user agrees. */
static bool agreed(struct find_state *state, char **argv)
{
    struct find_run *run = state->run;
    struct poise_buf *question = &state->scratch;
    poise_buf_reset(question);
    poise_buf_puts(question, "< ");
    for (char **word = argv; *word; word++) {
        poise_buf_printf(question, "%s ", *word);
    }
    size_t len;
    const char *path = find_path(state, &len);
    poise_buf_printf(question, "... %s > ? ", path ? path : "");
    int code = question->error ? question->error : find_flush(state);
    if (code < 0) {
        state->error = code;
        return false;
    }
    pthread_mutex_lock(&run->lock);
    bool yes =
        run->options->ask(question->data, question->len, run->options->arg);
    pthread_mutex_unlock(&run->lock);
    return yes;
}

static bool exec_one(struct find_state *state, const struct find_exec *exec)
{
    struct poise_buf text = {0};
    char **argv = build_list(state, exec, &text);
    bool done = false;
    if (!argv) {
        state->error = -ENOMEM;
    } else if (!exec->ask || agreed(state, argv)) {
        int dirfd = exec->in_dir ? open_parent(state) : -1;
        if (dirfd >= 0 || !exec->in_dir) {
            done = run_command(state, argv, dirfd, exec->ask);
        }
        if (dirfd >= 0) {
            close(dirfd);
        }
    }
    free(argv);
    poise_buf_free(&text);
    return done;
}

/* ---- -exec ... {} + ----------------------------------------------------- */

static void run_batch(struct find_state *state, const struct find_exec *exec)
{
    struct find_batch *batch = &state->batches[exec->id];
    if (batch->count == 0) {
        return;
    }
    char **argv = poise_alloc(exec->count + batch->count + 1, sizeof *argv);
    if (!argv) {
        state->error = -ENOMEM;
        return;
    }
    for (size_t i = 0; i < exec->count; i++) {
        argv[i] = (char *)(uintptr_t)exec->words[i];
    }
    char *at = batch->paths.data;
    for (size_t i = 0; i < batch->count; i++) {
        argv[exec->count + i] = at;
        at += strlen(at) + 1;
    }
    if (!run_command(state, argv, batch->dirfd, false)) {
        __atomic_fetch_add(&state->run->errors, 1, __ATOMIC_RELAXED);
    }
    free(argv);
    poise_buf_reset(&batch->paths);
    batch->count = batch->bytes = 0;
    if (batch->dirfd >= 0) {
        close(batch->dirfd);
        batch->dirfd = -1;
    }
}

/* Whether the batch's directory holds the entry too. */
static bool same_directory(struct find_state *state,
                           const struct find_batch *batch)
{
    size_t len;
    const char *path = find_path(state, &len);
    if (!path) {
        return false;
    }
    size_t head = len - strlen(find_base(state));
    return state->entry->depth > 0 && batch->head.len == head &&
           memcmp(batch->head.data, path, head) == 0;
}

/* Before the first path of a batch. */
static bool begin_batch(struct find_state *state, struct find_batch *batch)
{
    batch->dirfd = open_parent(state);
    if (batch->dirfd < 0) {
        batch->dirfd = -1;
        return false;
    }
    size_t len;
    const char *path = find_path(state, &len);
    poise_buf_reset(&batch->head);
    if (path) {
        poise_buf_append(&batch->head, path, len - strlen(find_base(state)));
    }
    state->error = batch->head.error ? batch->head.error : state->error;
    return path != NULL;
}

static void add_to_batch(struct find_state *state, const struct find_exec *exec)
{
    struct find_batch *batch = &state->batches[exec->id];
    if (batch->count > 0 && exec->in_dir && !same_directory(state, batch)) {
        run_batch(state, exec);
    }
    size_t before = batch->paths.len;
    size_t len = put_operand(state, exec->in_dir, &batch->paths);
    poise_buf_putc(&batch->paths, '\0');
    size_t bytes = len + 1;
    if (batch->paths.error) {
        state->error = batch->paths.error;
        return;
    }
    if (batch->count > 0 &&
        (exec->list_bytes + batch->bytes + bytes > exec->list_most ||
         exec->count + batch->count == exec->count_most)) {
        struct poise_buf kept = {0};
        poise_buf_append(&kept, batch->paths.data + before, len + 1);
        run_batch(state, exec);
        poise_buf_append(&batch->paths, kept.data, kept.len);
        state->error = kept.error ? kept.error : state->error;
        poise_buf_free(&kept);
    }
    if (exec->in_dir && batch->count == 0 && !begin_batch(state, batch)) {
        poise_buf_reset(&batch->paths);
        return;
    }
    batch->count++;
    batch->bytes += bytes;
    state->dirs_wait |= exec->in_dir;
    if (state->run->keep_done) {
        run_batch(state, exec); /* a checkpoint does not know it otherwise */
    }
}

bool find_exec(struct find_state *state, const struct find_node *node)
{
    const struct find_exec *exec = node->arg.exec;
    if (!exec->batch) {
        return exec_one(state, exec);
    }
    add_to_batch(state, exec);
    return true;
}

void find_exec_finish(struct find_state *state, bool dirs_only)
{
    state->dirs_wait = false;
    for (const struct find_node *n = state->find->all; n; n = n->all) {
        if (n->kind == FIND_TEST && n->primary->eval == find_exec &&
            n->arg.exec->batch && (n->arg.exec->in_dir || !dirs_only) &&
            state->error == 0) {
            run_batch(state, n->arg.exec);
        }
    }
}

void find_batches_free(struct find_state *state)
{
    for (unsigned i = 0; i < state->find->exec_count; i++) {
        if (state->batches[i].dirfd >= 0) {
            close(state->batches[i].dirfd);
        }
        poise_buf_free(&state->batches[i].paths);
        poise_buf_free(&state->batches[i].head);
    }
    free(state->batches);
}
