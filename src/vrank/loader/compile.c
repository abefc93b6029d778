/*
 * `poise cc`: the compiler's command line for a program whose ranks are
 * virtual.
 *
 * The program becomes a shared object that can also be run (see start.c).
 * -Bsymbolic: its names are its own, also those that the C library has. -z
 * defs: what the MPI of virtual ranks lacks is missed when linking. -fPIC
 * after everything else: a PIE, with its thread-local variables at fixed
 * places, would give private images wrong initial values. -fno-gnu-unique:
 * statics of C++ templates and inline functions would be shared among them.
 * -fstack-clash-protection: a frame larger than the guard below a rank's stack,
 * alloca and arrays of variable length among them, is touched page by page, and
 * so found by the guard.
 */
#include "loader.h"

#include <poise/compiler.h>
#include <poise/vrank.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** What the words of a command line ask for. */
struct compile_wish {
    bool links;        /**< no -c, -S, -E, ... */
    bool has_input;    /**< something to compile or link */
    bool is_shared;    /**< a library of the user's */
    bool has_language; /**< -x: files that follow are taken for its sources */
    const char *bad;
};

/* Options whose argument is the next word, so that it is no input. */
static const char *const compile_takes_word[] = {"-o",
                                                 "-x",
                                                 "-I",
                                                 "-L",
                                                 "-l",
                                                 "-D",
                                                 "-U",
                                                 "-include",
                                                 "-imacros",
                                                 "-isystem",
                                                 "-iquote",
                                                 "-idirafter",
                                                 "-iprefix",
                                                 "-MF",
                                                 "-MT",
                                                 "-MQ",
                                                 "-Xlinker",
                                                 "-Xassembler",
                                                 "-Xpreprocessor",
                                                 "-T",
                                                 "-u",
                                                 "-z",
                                                 "-e",
                                                 "-G",
                                                 "-aux-info",
                                                 "--param",
                                                 "-B",
                                                 "-arch",
                                                 "-wrapper",
                                                 NULL};

/* Options after which nothing is linked. */
static const char *const compile_stops[] = {
    "-c", "-S", "-E", "-M", "-MM", "-fsyntax-only", NULL};

/* How a program cannot be linked for virtual ranks. */
static const char *const compile_refused[] = {"-static", "-static-pie", "-r",
                                              NULL};

/* Of no meaning for a shared object, or opposed to it. */
static const char *const compile_dropped[] = {
    "-pie",     "-no-pie",  "-fPIE",    "-fpie", "-fno-PIE",
    "-fno-pie", "-fno-PIC", "-fno-pic", NULL};

static bool compile_is_one_of(const char *word, const char *const *words)
{
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strcmp(word, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

static struct compile_wish compile_read(char *const *args)
{
    struct compile_wish wish = {.links = true};
    for (size_t i = 0; args[i] != NULL; i++) {
        const char *word = args[i];
        if (word[0] != '-' || word[1] == '\0' || word[0] == '@') {
            wish.has_input = true;
        } else if (compile_is_one_of(word, compile_stops)) {
            wish.links = false;
        } else if (strcmp(word, "-shared") == 0) {
            wish.is_shared = true;
        } else if (compile_is_one_of(word, compile_refused)) {
            wish.bad = word;
        } else if (strncmp(word, "-l", 2) == 0) {
            wish.has_input = true;
        } else if (strncmp(word, "-x", 2) == 0) {
            wish.has_language = true;
        }
        if (compile_is_one_of(word, compile_takes_word) &&
            args[i + 1] != NULL) {
            i++;
        }
    }
    return wish;
}

/* ---- where we are ------------------------------------------------------- */

/* The folder of libpoise into `out`; false where that cannot be known. */
static bool compile_library_folder(struct poise_buf *out)
{
    Dl_info info;
    if (dladdr((void *)(uintptr_t)poise_version, &info) == 0) {
        return false;
    }
    char *real = realpath(info.dli_fname, NULL);
    char *slash = real != NULL ? strrchr(real, '/') : NULL;
    if (slash != NULL) {
        poise_buf_append(out, real, (size_t)(slash - real));
    }
    free(real);
    return slash != NULL && out->error == 0;
}

/* The first of LIBRARY/CANDIDATE/FILE that is there, without FILE. */
static int compile_find(const char *library, const char *const *candidates,
                        const char *file, struct poise_buf *out)
{
    struct poise_buf path = {0};
    for (size_t i = 0; candidates[i] != NULL; i++) {
        poise_buf_reset(&path);
        poise_buf_printf(&path, "%s%s/%s", library, candidates[i], file);
        if (access(poise_buf_str(&path), R_OK) == 0) {
            poise_buf_free(&path);
            return poise_buf_printf(out, "%s%s", library, candidates[i]);
        }
    }
    poise_buf_free(&path);
    return poise_error_set(ENOENT, "find a file of Poise", file,
                           "it is neither in nor beside %s", library);
}

int vrank_folders(struct vrank_folders *out)
{
    /* As installed, and as built. */
    static const char *const include[] = {"/../include/poise/vmpi",
                                          "/../../include/poise/vmpi",
                                          "/include/poise/vmpi", NULL};
    static const char *const start[] = {"", "/poise", NULL};
    struct poise_buf library = {0}, paths[2] = {{0}};
    int code = 0;
    if (!compile_library_folder(&library)) {
        code =
            poise_error_set(ENOENT, "find the folder of libpoise", NULL, NULL);
    }
    const char *at = poise_buf_str(&library);
    if (code == 0) {
        code = compile_find(at, include, "mpi.h", &paths[0]);
    }
    if (code == 0) {
        code = compile_find(at, start, "libpoise-start.a", &paths[1]);
    }
    if (code == 0) {
        *out =
            (struct vrank_folders){.library = strdup(at),
                                   .include = strdup(poise_buf_str(&paths[0])),
                                   .start = strdup(poise_buf_str(&paths[1]))};
        if (out->library == NULL || out->include == NULL ||
            out->start == NULL) {
            vrank_folders_free(out);
            code =
                poise_error_set(ENOMEM, "find the files of Poise", NULL, NULL);
        }
    }
    poise_buf_free(&library);
    for (int i = 0; i < 2; i++) {
        poise_buf_free(&paths[i]);
    }
    return code;
}

void vrank_folders_free(struct vrank_folders *folders)
{
    free(folders->library);
    free(folders->include);
    free(folders->start);
    *folders = (struct vrank_folders){0};
}

/* ---- the command line --------------------------------------------------- */

/** A command line that grows; its words are owned. */
struct compile_line {
    char **words;
    size_t count, cap;
    int error;
};

static void compile_add(struct compile_line *line, const char *fmt, ...)
    POISE_PRINTF(2, 3);
static void compile_add(struct compile_line *line, const char *fmt, ...)
{
    if (line->error != 0) {
        return;
    }
    if (line->count + 1 >= line->cap) {
        size_t cap = line->cap * 2 + 16;
        char **words = poise_realloc(line->words, cap, sizeof *words);
        if (words == NULL) {
            line->error = -ENOMEM;
            return;
        }
        line->words = words;
        line->cap = cap;
    }
    va_list args;
    va_start(args, fmt);
    char *word = NULL;
    int code = poise_fault_check(POISE_FAULT_ALLOC);
    if (code != 0 || vasprintf(&word, fmt, args) < 0) {
        line->error = poise_error_set(ENOMEM, "allocate memory", NULL, NULL);
        word = NULL;
    }
    va_end(args);
    line->words[line->count] = word;
    line->count += word != NULL;
    line->words[line->count] = NULL;
}

static void compile_add_compile(struct compile_line *line,
                                const struct vrank_folders *folders,
                                const char *compiler)
{
    compile_add(line, "-I%s", folders->include);
    compile_add(line, "-fPIC");
    compile_add(line, "-fstack-clash-protection");
    /* What is sent is of any type, which gfortran takes for a mistake. */
    if (strstr(compiler, "gfortran") != NULL) {
        compile_add(line, "-fallow-argument-mismatch");
    }
    /* Clang makes no such symbols, and does not know the option. */
    if (strstr(compiler, "clang") == NULL) {
        compile_add(line, "-fno-gnu-unique");
    }
}

static void compile_add_libraries(struct compile_line *line,
                                  const struct vrank_folders *folders)
{
    compile_add(line, "%s/libpoise-fort.a", folders->start);
    compile_add(line, "-L%s", folders->library);
    compile_add(line, "-Wl,-rpath,%s", folders->library);
    compile_add(line, "-lpoise-vmpi");
    compile_add(line, "-lpoise");
}

static void compile_add_link(struct compile_line *line,
                             const struct vrank_folders *folders)
{
    compile_add(line, "-shared");
    compile_add(line, "-Wl,-Bsymbolic");
    compile_add(line, "-Wl,-z,defs");
    compile_add(line, "-Wl,-e,poise_start");
    compile_add(line, "-Wl,-u,poise_vrank_program");
    /* Also out of a library, as for other programs. */
    compile_add(line, "-Wl,-u,main");
    compile_add(line, "%s/libpoise-start.a", folders->start);
    compile_add_libraries(line, folders);
}

static bool compile_is_show(const char *word)
{
    return strcmp(word, "-show") == 0 || strcmp(word, "-showme") == 0 ||
           strcmp(word, "--showme") == 0;
}

/* -showme:compile and the like, for CMake and others that take the flags and
 * leave the compiler. MPICH's print the compiler, too. */
static bool compile_show_part(const char *word,
                              const struct vrank_folders *folders,
                              const char *compiler, struct compile_line *line)
{
    const char *part = word + strspn(word, "-");
    if (strcmp(part, "showme:compile") == 0) {
        compile_add_compile(line, folders, compiler);
    } else if (strcmp(part, "showme:link") == 0) {
        compile_add_link(line, folders);
    } else if (strcmp(word, "-compile_info") == 0) {
        compile_add(line, "%s", compiler);
        compile_add_compile(line, folders, compiler);
    } else if (strcmp(word, "-link_info") == 0) {
        compile_add(line, "%s", compiler);
        compile_add_link(line, folders);
    } else if (strcmp(part, "showme:command") == 0) {
        compile_add(line, "%s", compiler);
    } else if (strcmp(part, "showme:incdirs") == 0) {
        compile_add(line, "%s", folders->include);
    } else if (strcmp(part, "showme:libdirs") == 0) {
        compile_add(line, "%s", folders->library);
    } else if (strcmp(part, "showme:libs") == 0) {
        compile_add(line, "poise-vmpi");
        compile_add(line, "poise");
    } else if (strcmp(part, "showme:version") == 0) {
        compile_add(line, "Poise %s", poise_version());
    } else {
        return false;
    }
    return true;
}

static void compile_build(struct compile_line *line, char *const *args,
                          const struct compile_wish *wish,
                          const struct vrank_folders *folders,
                          const char *compiler)
{
    bool for_show = false;
    compile_add(line, "%s", compiler);
    for (size_t i = 0; args[i] != NULL; i++) {
        for_show |= compile_is_show(args[i]);
        if (!compile_is_show(args[i]) &&
            !compile_is_one_of(args[i], compile_dropped)) {
            compile_add(line, "%s", args[i]);
        }
    }
    /* Alone, --version and the like are for the compiler. */
    if (!wish->has_input && !for_show) {
        return;
    }
    compile_add_compile(line, folders, compiler);
    if (wish->links && wish->is_shared) {
        compile_add_libraries(line, folders);
    } else if (wish->links) {
        if (wish->has_language) {
            compile_add(line, "-xnone");
        }
        compile_add_link(line, folders);
    }
}

int poise_vrank_compiler_line(const char *compiler, char *const *args,
                              bool *only_show, char ***out)
{
    struct compile_wish wish = compile_read(args);
    struct vrank_folders folders;
    struct compile_line line = {0};
    if (wish.bad != NULL && wish.links) {
        return poise_error_set(EINVAL, "link a program for virtual ranks",
                               wish.bad,
                               "each rank loads a copy of the program, which "
                               "must be linked dynamically");
    }
    int code = vrank_folders(&folders);
    if (code < 0) {
        return code;
    }
    bool shows = false;
    for (size_t i = 0; args[i] != NULL && !shows; i++) {
        shows = compile_show_part(args[i], &folders, compiler, &line);
    }
    if (!shows) {
        compile_build(&line, args, &wish, &folders, compiler);
        for (size_t i = 0; args[i] != NULL && !shows; i++) {
            shows = compile_is_show(args[i]);
        }
    }
    vrank_folders_free(&folders);
    if (line.error != 0) {
        poise_vrank_line_free(line.words);
        return line.error;
    }
    *only_show = shows;
    *out = line.words;
    return 0;
}

void poise_vrank_line_free(char **line)
{
    for (size_t i = 0; line != NULL && line[i] != NULL; i++) {
        free(line[i]);
    }
    free(line);
}
