/* poise cc, poise c++, poise fort: compile for virtual ranks, as mpicc, mpicxx
 * and mpifort do. */
#include "cli/common/common.h"

#include <poise/compiler.h>
#include <poise/vrank.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char examples_cc[] =
    "poise cc -O2 -o prog prog.c\tcompile and link a program\n"
    "./configure CC='poise cc'\ta project with a configure script\n"
    "poise run -V 64 ./prog\trun it with 64 ranks\n";
static const char examples_cxx[] =
    "poise c++ -O2 -o prog prog.cc\tcompile and link a program\n"
    "cmake -DCMAKE_CXX_COMPILER=poise-c++ .\ta project that is built by "
    "CMake\n";
static const char examples_fort[] =
    "poise fort -O2 -o prog prog.f90\tcompile and link a program\n"
    "cmake -DCMAKE_Fortran_COMPILER=poise-fort .\ta project that is built by "
    "CMake\n";
static const char exits[] = "N\twhat the compiler exits with\n"
                            "125\tPoise itself failed\n"
                            "127\tthere is no such compiler\n";

static const struct poise_option options[] = {{POISE_OPTION_END}};

#define ABOUT                                                                  \
    "Takes the compiler's own words and adds what a program of "               \
    "virtual ranks needs. -show (or -showme) prints the command "              \
    "line instead of running it; -showme:compile and -showme:link "            \
    "print what is added. The program also runs by itself, as one "            \
    "rank.\n\n"                                                                \
    "It adds -fstack-clash-protection, so that a stack that "                  \
    "overflows is noticed. Compile libraries with it, too: without "           \
    "it their large frames are found when the program starts, but "            \
    "not what alloca and variable-length arrays take.\n\n"

const struct poise_command cli_cc_command = {
    .name = "cc",
    .operands = "WORD...",
    .summary = "compile a C program of MPI for virtual ranks",
    .description =
        ABOUT "The compiler is gcc, or what the environment variable "
              "POISE_CC names. Also called poise-cc, for build systems that "
              "want a compiler of one word.",
    .options = options,
    .examples = examples_cc,
    .exits = exits,
    .see = "poise-c++(1) poise-fort(1) poise-run(1) docs/vrank.md",
};

const struct poise_command cli_cxx_command = {
    .name = "c++",
    .operands = "WORD...",
    .summary = "compile a C++ program of MPI for virtual ranks",
    .description =
        ABOUT "The compiler is g++, or what the environment variable "
              "POISE_CXX names. Also called poise-c++, for build systems "
              "that want a compiler of one word.",
    .options = options,
    .examples = examples_cxx,
    .exits = exits,
    .see = "poise-cc(1) poise-fort(1) poise-run(1) docs/vrank.md",
};

const struct poise_command cli_fort_command = {
    .name = "fort",
    .operands = "WORD...",
    .summary = "compile a Fortran program of MPI for virtual ranks",
    .description =
        ABOUT "The compiler is gfortran, or what the environment variable "
              "POISE_FC names. Also called poise-fort, for build systems "
              "that want a compiler of one word. Programs may include "
              "'mpif.h' or use mpi; COMMON, SAVE and module data are private "
              "to each rank. mpi_f08, files and the program's own error "
              "handlers are not supported: such a program fails to link.",
    .options = options,
    .examples = examples_fort,
    .exits = exits,
    .see = "poise-c++(1) poise-cc(1) poise-run(1) docs/vrank.md",
};

static int show(const char *name, char *const *line)
{
    struct poise_buf out = {0};

    for (size_t i = 0; line[i]; i++) {
        poise_buf_printf(&out, "%s%s", i > 0 ? " " : "", line[i]);
    }
    poise_buf_putc(&out, '\n');
    int status = cli_write(name, &out);
    poise_buf_free(&out);
    return status == CLI_DONE ? CLI_DONE : POISE_VRANK_FAILED;
}

static int compile(const char *name, const char *compiler, char **args)
{
    bool only_show = false;
    char **line = NULL;

    if (poise_vrank_compiler_line(compiler, args, &only_show, &line) < 0) {
        cli_say_error(name);
        return POISE_VRANK_FAILED;
    }
    int status = POISE_VRANK_FAILED;
    if (only_show) {
        status = show(name, line);
    } else {
        execvp(line[0], line);
        status =
            errno == ENOENT ? POISE_VRANK_NOT_FOUND : POISE_VRANK_CANNOT_RUN;
        poise_error_set(errno, "run the compiler", line[0], NULL);
        cli_say_error(name);
    }
    poise_vrank_line_free(line);
    return status;
}

static const char *chosen(const char *variable, const char *otherwise)
{
    const char *value = getenv(variable);

    return value && *value ? value : otherwise;
}

int cli_cc(int argc, char **argv)
{
    (void)argc;
    return compile("cc", chosen("POISE_CC", "gcc"), argv + 1);
}

int cli_cxx(int argc, char **argv)
{
    (void)argc;
    return compile("c++", chosen("POISE_CXX", "g++"), argv + 1);
}

int cli_fort(int argc, char **argv)
{
    (void)argc;
    return compile("fort", chosen("POISE_FC", "gfortran"), argv + 1);
}
