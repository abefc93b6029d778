/*
 * A program that compresses, as of GNU sort --compress-program: it reads a
 * block from a file without a name, and what it writes is read from a pipe. So
 * neither waits for the other for ever.
 */
#include "pack.h"

#include <poise/file.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int fail(const char *program, int code)
{
    return poise_error_set(code, "run", program, NULL);
}

/* The block as a file, from its begin. */
static int put_input(const char *program, const char *from, size_t len,
                     int *file)
{
    size_t at = 0;

    if (*file < 0) {
        *file = memfd_create("poise-block", MFD_CLOEXEC);
    }
    if (*file < 0 || ftruncate(*file, 0) != 0) {
        return fail(program, errno);
    }
    while (at < len) {
        ssize_t n = pwrite(*file, from + at, len - at, (off_t)at);

        if (n < 0 && errno != EINTR) {
            return fail(program, errno);
        }
        at += n > 0 ? (size_t)n : 0;
    }
    return lseek(*file, 0, SEEK_SET) == 0 ? 0 : fail(program, errno);
}

/* With signals as a program expects them: threads of ours hold them back. */
static int start(const char *program, const char *word, int in, int out,
                 pid_t *pid)
{
    char *argv[] = {(char *)program, (char *)word, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, pipe;
    int code;

    sigemptyset(&none);
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &pipe);
    posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    code = posix_spawnp(pid, program, &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return code == 0 ? 0 : fail(program, code);
}

/* To its end, so that the program comes to its own. */
static int take_output(const char *program, int pipe, char *to, size_t room,
                       size_t *got)
{
    char rest[4096];

    *got = 0;
    for (;;) {
        bool fits = *got < room;
        ssize_t n = read(pipe, fits ? to + *got : rest,
                         fits ? room - *got : sizeof rest);

        if (n == 0) {
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return fail(program, errno);
        }
        *got += n > 0 ? (size_t)n : 0;
    }
}

static int end(const char *program, const char *word, pid_t pid)
{
    int status = 0;

    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return fail(program, errno);
        }
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    return poise_error_set(EIO, "compress scratch files by", program,
                           WIFEXITED(status) ? "%s%sit ended with exit code %d"
                                             : "%s%sit was ended by signal %d",
                           word ? word : "", word ? ": " : "",
                           WIFEXITED(status) ? WEXITSTATUS(status)
                                             : WTERMSIG(status));
}

int extmem_filter(const char *program, const char *word, const void *from,
                  size_t len, int *file, void *to, size_t room, size_t *got)
{
    int ends[2] = {-1, -1}, ended;
    pid_t pid = 0;
    int code = put_input(program, from, len, file);

    if (code == 0 && pipe2(ends, O_CLOEXEC) != 0) {
        code = fail(program, errno);
    }
    if (code == 0) {
        code = start(program, word, *file, ends[1], &pid);
    }
    if (ends[1] >= 0) {
        close(ends[1]);
    }
    if (code == 0) {
        code = take_output(program, ends[0], to, room, got);
    }
    if (ends[0] >= 0) {
        close(ends[0]);
    }
    if (pid > 0) {
        ended = end(program, word, pid);
        code = code == 0 ? ended : code;
    }
    return code;
}
