/*
 * Run a command and write what it took to FILE: wall seconds, CPU seconds,
 * the peak resident bytes of its largest process, and its exit code.
 *
 * usage: peak FILE COMMAND [ARGUMENT...]
 *
 * A process inherits the peak of whoever it was forked from until it execs;
 * this parent is small, a benchmark driver's interpreter is not.
 */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: peak FILE COMMAND [ARGUMENT...]\n");
        return 2;
    }
    FILE *out = fopen(argv[1], "we");
    if (!out) {
        perror(argv[1]);
        return 2;
    }
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    pid_t child = fork();
    if (child == 0) {
        execvp(argv[2], argv + 2);
        perror(argv[2]);
        _exit(127);
    }
    int status = 0;
    struct rusage usage;
    if (child < 0 || wait4(child, &status, 0, &usage) < 0) {
        perror("peak");
        return 2;
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    fprintf(out, "%.6f %.6f %lld %d\n",
            (double)(ended.tv_sec - began.tv_sec) +
                (double)(ended.tv_nsec - began.tv_nsec) / 1e9,
            seconds(usage.ru_utime) + seconds(usage.ru_stime),
            (long long)usage.ru_maxrss * 1024, code);
    return fclose(out) ? 2 : 0;
}
