/* poise coll: another program's collectives over Poise's trees. */
#include "cli/common/common.h"

#include <poise/comm.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct values {
    struct cli_common common;
    const char *mpi, *tree, *rules, *record;
    bool stats;
};

static const struct poise_option options[] = {
    {POISE_OPTION_STRING, .name = "mpi", .arg = "NAME",
     .help = "ompi or mpich (default: that of the launcher)",
     .offset = offsetof(struct values, mpi)},
    {POISE_OPTION_STRING, .name = "tree", .arg = "TREE",
     .help = "the tree to use: a shape (flat, binary, kary:K, binomial, "
             "node:SHAPE, site:SHAPE, magpie:SHAPE), or a tree file "
             "(POISE_TREE)",
     .offset = offsetof(struct values, tree)},
    {POISE_OPTION_STRING, .name = "rules", .arg = "FILE",
     .help = "make calls of MPI_Allreduce conditional by these rules "
             "(POISE_COLL_RULES)",
     .offset = offsetof(struct values, rules)},
    {POISE_OPTION_STRING, .name = "record", .arg = "FILE",
     .help = "write suggestions for rules to FILE (POISE_COLL_RECORD)",
     .offset = offsetof(struct values, record)},
    {POISE_OPTION_FLAG, .name = "stats",
     .help = "print how many collectives there were at MPI_Finalize "
             "(POISE_COLL_REPORT)",
     .offset = offsetof(struct values, stats)},
    CLI_RENAMED(POISE_OPTION_FLAG, 0, "report", NULL, "--stats", struct values,
                stats),
    CLI_COMMON_OPTIONS(struct values, common),
    {POISE_OPTION_END},
};

const struct poise_command cli_coll_command = {
    .name = "coll",
    .operands = "PROGRAM [ARGUMENT...]",
    .summary = "run a rank of an MPI program with Poise's collectives",
    .description =
        "Put it before the program in the launcher's command line: it "
        "preloads Poise's collectives for the launcher's MPI. The "
        "program is not changed, but must be dynamically linked.\n\n"
        "A rules file has a line for each call whose result is only "
        "compared with a constant:\n\n"
        "  allreduce MODULE+0xOFFSET OP TYPE TEST CONSTANT [SIGN]\n\n"
        "OP is sum, min or max, TYPE double or int64, TEST one of > >= "
        "< <= ==, SIGN not-negative or not-positive, if all "
        "contributed values are. With several sites (POISE_SITES) a "
        "site then does not wait for the others when its own values "
        "decide. Such a call is no barrier; what it returns early is "
        "not the result, but compares like it. '#' begins a comment. "
        "--record writes a file of suggestions.",
    .options = options,
    .examples =
        "mpirun -n 8 poise coll ./prog\tuse Poise's collectives\n"
        "mpirun -n 8 poise coll --record r.txt ./prog\tfind candidates\n"
        "mpirun -n 8 poise coll --rules r.txt ./prog\tuse these rules\n",
    .exits = "N\tthe program's own status\n"
             "2\ta tree, sites, topology, rules or limit cannot be used; "
             "the whole job ends\n"
             "125\tPoise itself failed: no MPI launcher, or no preload\n"
             "126\tthe program cannot be run, or is statically linked\n"
             "127\tthere is no such program\n",
    .see = "poise-trace-run(1) poise-tune(1) docs/coll.md",
};

enum { CANNOT_RUN = 126, NOT_FOUND = 127 };

/* ---- the program -------------------------------------------------------- */

/* Whether it is a program of this machine's kind without a dynamic linker:
 * preloads are what that one loads. */
static bool is_static(const char *path)
{
    Elf64_Ehdr head;
    bool is = false, has_linker = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    if (pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
        memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 &&
        head.e_ident[EI_CLASS] == ELFCLASS64) {
        is = true;
        for (unsigned i = 0; i < head.e_phnum; i++) {
            Elf64_Phdr part;
            off_t at = (off_t)(head.e_phoff + i * sizeof part);
            if (pread(fd, &part, sizeof part, at) == (ssize_t)sizeof part) {
                has_linker = has_linker || part.p_type == PT_INTERP;
            }
        }
    }
    close(fd);
    return is && !has_linker;
}

/* ---- the preload -------------------------------------------------------- */

/* Whose launcher started this process. */
static const char *launched_by(void)
{
    return getenv("OMPI_COMM_WORLD_RANK") ? "ompi"
           : getenv("PMI_RANK")           ? "mpich"
                                          : NULL;
}

static int find_preload(const char *mpi, struct poise_buf *path)
{
    char name[64];
    snprintf(name, sizeof name, "libpoise-coll-%s.so", mpi);
    return cli_preload_find(name, path);
}

static int set_all(const struct values *values, struct poise_buf *preload)
{
    const struct {
        const char *name, *value;
    } rows[] = {{"POISE_TREE", values->tree},
                {"POISE_COLL_RULES", values->rules},
                {"POISE_COLL_RECORD", values->record},
                {"POISE_COLL_REPORT", values->stats ? "1" : NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].value && setenv(rows[i].name, rows[i].value, 1) < 0) {
            return -errno;
        }
    }
    /* In front of those that are there. */
    cli_preload_others(preload);
    const char *list = poise_buf_str(preload);
    return preload->error                      ? preload->error
           : setenv("LD_PRELOAD", list, 1) < 0 ? -errno
                                               : 0;
}

/* ---- the command -------------------------------------------------------- */

static int run(const struct values *values, char **argv)
{
    char program[PATH_MAX];
    struct poise_buf preload = {0};
    const char *mpi = values->mpi ? values->mpi : launched_by();
    if (!cli_find_program(argv[0], program)) {
        cli_say("coll", "there is no program '%s'", argv[0]);
        return NOT_FOUND;
    }
    if (is_static(program)) {
        cli_say("coll",
                "'%s' is statically linked: it loads no preload; link it "
                "dynamically",
                argv[0]);
        return CANNOT_RUN;
    }
    if (!mpi) {
        cli_say("coll", "no MPI's launcher started this: write mpirun -n N "
                        "poise coll PROGRAM, or say --mpi");
        return CLI_WRAPPER_FAILED;
    }
    if (find_preload(mpi, &preload) < 0) {
        cli_say_error("coll");
        poise_buf_free(&preload);
        return CLI_WRAPPER_FAILED;
    }
    int code = set_all(values, &preload);
    poise_buf_free(&preload);
    if (code < 0) {
        cli_say("coll", "cannot set the environment: %s", strerror(-code));
        return CLI_WRAPPER_FAILED;
    }
    execv(program, argv);
    cli_say("coll", "cannot run '%s': %s", argv[0], strerror(errno));
    return CANNOT_RUN;
}

int cli_coll(int argc, char **argv)
{
    struct values values = {0};
    int status = CLI_DONE;
    int end = cli_options_end(options, argc, argv);
    int first = cli_parse(&cli_coll_command, end, argv, &values, &values.common,
                          &status);
    if (first < 0) {
        return status == CLI_WRONG_USE ? CLI_WRAPPER_FAILED : status;
    }
    end += end < argc && strcmp(argv[end], "--") == 0;
    if (end >= argc) {
        cli_needs("coll", "a program");
        return CLI_WRAPPER_FAILED;
    }
    return run(&values, argv + end);
}
