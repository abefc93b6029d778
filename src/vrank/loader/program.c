/*
 * A program and the libraries it brings; a rank's private images of them.
 *
 * Every library has private images, but for a few that are known to be safe: it
 * cannot be seen from outside whether a library holds data that change. In each
 * image the library's name, and the name by which others want it, are replaced
 * by one of the same length that is this image's own, and so the dynamic linker
 * finds for each image of the program its own libraries.
 */
#include "internal.h"
#include "start.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM_LINKER "/lib64/ld-linux-x86-64.so.2"
/** Digits that distinguish private images in a name. */
#define PROGRAM_DIGITS 4

/* Made for sharing, or shared for good reason: the C library keeps what is a
 * rank's own behind our wrappers, see libc_wrap.h. */
static const char *const program_shared[] = {
    "ld-linux-x86-64.so.2", "libc.so.6",    "libm.so.6",      "libpthread.so.0",
    "libdl.so.2",           "librt.so.1",   "libgcc_s.so.1",  "libpoise.so.0",
    "libpoise-vmpi.so.0",   "libutil.so.1", "libresolv.so.2", NULL};

/* ---- where libraries are ------------------------------------------------ */

/* The environment without what is preloaded here, which the dynamic linker
 * would list in another form. The array is the caller's; NULL: no memory. */
static char **program_environment(void)
{
    size_t count = 0, kept = 0;
    while (environ != NULL && environ[count] != NULL) {
        count++;
    }
    char **out = poise_alloc(count + 1, sizeof *out);
    for (size_t i = 0; i < count && out != NULL; i++) {
        if (strncmp(environ[i], "LD_PRELOAD=", 11) != 0) {
            out[kept++] = environ[i];
        }
    }
    return out;
}

/* What the dynamic linker would load for `path`: lines "NAME => PATH (...)". It
 * knows the rules; nothing of the program runs. */
static int program_ask_linker(const char *path, struct poise_buf *out)
{
    int ends[2], status = 0;
    const char *argv[] = {"ld.so", "--list", path, NULL};
    pid_t child = -1;
    posix_spawn_file_actions_t actions;
    char **environment = program_environment();
    if (environment == NULL) {
        return -ENOMEM;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        free(environment);
        return poise_error_set(errno, "find the libraries of", path, NULL);
    }
    int code = posix_spawn_file_actions_init(&actions);
    if (code == 0) {
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        code = posix_spawn(&child, PROGRAM_LINKER, &actions, NULL,
                           (char **)(uintptr_t)argv, environment);
        posix_spawn_file_actions_destroy(&actions);
    }
    free(environment);
    close(ends[1]);
    ssize_t length = 1;
    while (code == 0 && length > 0) {
        char *to = poise_buf_reserve(out, 4096);
        length =
            to != NULL ? poise_file_read(ends[0], to, 4096, path) : -ENOMEM;
        if (length < 0) {
            code = (int)-length;
        } else {
            out->len += (size_t)length;
        }
    }
    close(ends[0]);
    if (child > 0) {
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
    }
    if (code != 0 || status != 0) {
        return poise_error_set(code != 0 ? code : ENOEXEC,
                               "find the libraries of", path, NULL);
    }
    poise_buf_str(out);
    return out->error;
}

/* The path of library `name` in what the linker said; the caller's. */
static int program_path_of(const char *listing, const char *name, char **out)
{
    size_t len = strlen(name);
    for (const char *line = listing; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        const char *at = line + strspn(line, "\t ");
        const char *arrow = strstr(at, " => /");
        if (arrow == at + len && strncmp(at, name, len) == 0) {
            const char *path = arrow + 4, *stop = strstr(path, " (0x");
            if (stop != NULL) {
                *out = strndup(path, (size_t)(stop - path));
                return *out != NULL ? 0 : -ENOMEM;
            }
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return poise_error_set(ENOENT, "find the library", name,
                           "the dynamic linker does not find it");
}

/* ---- the program and its libraries -------------------------------------- */

/* A library of the closure. */
struct program_node {
    struct load_image image;
    bool is_done;
};

struct program_search {
    struct program_node *nodes; /* the program first */
    int count, cap;
    struct poise_buf listing;
};

static bool program_is_shared(const char *name)
{
    for (size_t i = 0; program_shared[i] != NULL; i++) {
        if (strcmp(name, program_shared[i]) == 0) {
            return true;
        }
    }
    /* Sanitizers' run-time, of which there can be one only. */
    return strncmp(name, "libasan.", 8) == 0 ||
           strncmp(name, "libubsan.", 9) == 0 ||
           strncmp(name, "libtsan.", 8) == 0;
}

static int program_index(const struct program_search *search, const char *name)
{
    for (int i = 0; i < search->count; i++) {
        const char *soname = search->nodes[i].image.soname;
        if (soname != NULL && strcmp(soname, name) == 0) {
            return i;
        }
    }
    return -1;
}

static int program_add(struct program_search *search, const char *path)
{
    if (search->count == search->cap) {
        int cap = search->cap * 2 + 8;
        struct program_node *nodes =
            poise_realloc(search->nodes, (size_t)cap, sizeof *nodes);
        if (nodes == NULL) {
            return -ENOMEM;
        }
        search->nodes = nodes;
        search->cap = cap;
    }
    struct program_node *node = &search->nodes[search->count];
    *node = (struct program_node){0};
    int code = load_image_open(path, &node->image);
    search->count += code == 0;
    return code;
}

/* The next library that `image` wants, from entry *at of its table on; NULL
 * at the end. */
static const char *program_next_needed(const struct load_image *image,
                                       size_t *at)
{
    while (*at < image->dynamic_count) {
        const Elf64_Dyn *entry = &image->dynamic[(*at)++];
        if (entry->d_tag == DT_NEEDED) {
            return load_image_string(image, entry->d_un.d_val);
        }
    }
    return NULL;
}

static bool program_cannot_rename(const struct load_image *image)
{
    return image->soname == NULL || strlen(image->soname) <= PROGRAM_DIGITS;
}

/* Add what node number `index` wants and is not there yet. */
static int program_add_needed(struct program_search *search, int index,
                              const char *path)
{
    const char *name;
    size_t at = 0;
    int code = 0;
    while (code == 0 && (name = program_next_needed(&search->nodes[index].image,
                                                    &at)) != NULL) {
        char *where = NULL;
        if (program_is_shared(name) || program_index(search, name) >= 0) {
            continue;
        }
        if (search->listing.len == 0) {
            code = program_ask_linker(path, &search->listing);
        }
        if (code == 0) {
            code = program_path_of(search->listing.data, name, &where);
        }
        if (code == 0) {
            code = program_add(search, where);
        }
        if (code == 0 &&
            program_cannot_rename(&search->nodes[search->count - 1].image)) {
            code = poise_error_set(ENOTSUP, "make private copies of", where,
                                   "the library's own name is missing, or too "
                                   "short to be told apart; link it with "
                                   "-Wl,-soname");
        }
        free(where);
    }
    return code;
}

/* Put node `index` behind those that it wants. */
static void program_sort(struct program_search *search, int index,
                         struct load_program *out)
{
    struct program_node *node = &search->nodes[index];
    const char *name;
    size_t at = 0;
    if (node->is_done) {
        return;
    }
    node->is_done = true;
    while ((name = program_next_needed(&node->image, &at)) != NULL) {
        int needed = program_index(search, name);
        if (needed >= 0) {
            program_sort(search, needed, out);
        }
    }
    out->images[out->count++] = node->image;
    node->image = (struct load_image){.fd = -1};
}

/* The C++ library keeps 32 bytes of a thread's in the space that is short, that
 * of OpenMP 136; `poise run` makes room for them before it starts
 * (src/cli/run/run.c). */
static int program_check(struct load_image *image)
{
    static const char *const with_room[] = {"libstdc++.so.6", "libgomp.so.1"};
    for (size_t i = 0; i < sizeof with_room / sizeof *with_room; i++) {
        if (image->soname != NULL && strcmp(image->soname, with_room[i]) == 0) {
            image->has_static_tls = false;
        }
    }
    return load_image_check(image);
}

/* What sanitizers need that cannot be had here. */
static int program_check_sanitizers(const struct load_image *image)
{
    static const struct {
        const char *library, *option;
    } known[] = {{"libtsan.", "thread"},
                 {"liblsan.", "leak"},
                 {"libhwasan.", "hwaddress"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (load_image_wants(image, known[i].library) != NULL) {
            return poise_error_set(
                ENOTSUP, "run with virtual ranks", image->path,
                "it was compiled with -fsanitize=%s, which knows nothing of "
                "ranks that share a process; compile it with mpicc and run it "
                "with mpirun, or use -fsanitize=address here",
                known[i].option);
        }
    }
    if (load_image_wants(image, "libasan.") != NULL &&
        dlsym(RTLD_DEFAULT, "__asan_init") == NULL) {
        return poise_error_set(ENOTSUP, "run with virtual ranks", image->path,
                               "it was compiled with -fsanitize=address, whose "
                               "library has to be loaded first: set "
                               "LD_PRELOAD to its %s",
                               load_image_wants(image, "libasan."));
    }
    return 0;
}

/* Those behind the program itself, as LD_PRELOAD would put them. */
static int program_add_tools(struct program_search *search, const char *tools)
{
    int code = 0;
    while (tools != NULL && *tools != '\0' && code == 0) {
        size_t len = strcspn(tools, ":");
        char *path = strndup(tools, len);
        code = path != NULL ? program_add(search, path) : -ENOMEM;
        free(path);
        if (code == 0) {
            search->nodes[search->count - 1].image.takes_over = search->count;
        }
        tools += len + (tools[len] == ':');
    }
    return code;
}

/* Libraries that the program links before Poise's MPI, as the dynamic linker
 * would take functions from them. */
static void program_find_over(struct program_search *search)
{
    const char *name;
    size_t at = 0;
    while ((name = program_next_needed(&search->nodes[0].image, &at)) != NULL &&
           strncmp(name, "libpoise-vmpi.", 14) != 0) {
        int index = program_index(search, name);
        if (index > 0 && load_image_takes_over(&search->nodes[index].image)) {
            search->nodes[index].image.takes_over = index + 1;
        }
    }
}

/* Dependencies first, the program last. */
static int program_order(struct program_search *search,
                         struct load_program *program)
{
    program->images =
        poise_alloc((size_t)search->count, sizeof *program->images);
    if (program->images == NULL) {
        return -ENOMEM;
    }
    for (int i = 1; i < search->count; i++) {
        if (search->nodes[i].image.takes_over > 0) {
            program_sort(search, i, program);
        }
    }
    program_sort(search, 0, program);
    return 0;
}

int load_program_library(const char *program, const char *name, char **out)
{
    struct poise_buf listing = {0};
    int code = program_ask_linker(program, &listing);
    if (code == 0) {
        code = program_path_of(listing.data, name, out);
    }
    poise_buf_free(&listing);
    return code;
}

int load_program_open(const char *path, const char *tools,
                      const struct load_names *names, struct load_program *out)
{
    struct program_search search = {0};
    struct load_program program = {0};
    int code = program_add(&search, path);
    if (code == 0 &&
        memmem(search.nodes[0].image.strings,
               search.nodes[0].image.strings_bytes, POISE_VRANK_PROGRAM_SYMBOL,
               sizeof POISE_VRANK_PROGRAM_SYMBOL) == NULL) {
        code = poise_error_set(ENOEXEC, "run with virtual ranks", path,
                               "it was not linked by 'poise cc'");
    }
    if (code == 0) {
        code = program_check_sanitizers(&search.nodes[0].image);
    }
    if (code == 0) {
        code = program_add_tools(&search, tools);
    }
    for (int i = 0; i < search.count && code == 0; i++) {
        code = program_add_needed(&search, i, path);
    }
    if (code == 0) {
        program_find_over(&search);
        code = program_order(&search, &program);
    }
    for (int i = 0; i < program.count && code == 0; i++) {
        code = program_check(&program.images[i]);
        if (code == 0) {
            code = load_image_fix(&program.images[i], &program, names);
        }
    }
    for (int i = 0; i < search.count; i++) {
        load_image_close(&search.nodes[i].image);
    }
    free(search.nodes);
    poise_buf_free(&search.listing);
    if (code < 0) {
        load_program_close(&program);
        return code;
    }
    *out = program;
    return 0;
}

void load_program_close(struct load_program *program)
{
    for (int i = 0; i < program->count; i++) {
        load_image_close(&program->images[i]);
    }
    free(program->images);
    *program = (struct load_program){0};
}

void load_program_needs(const struct load_program *program, size_t *bytes,
                        int *mappings)
{
    *bytes = 0;
    *mappings = 0;
    for (int i = 0; i < program->count; i++) {
        const struct load_image *image = &program->images[i];
        for (int s = 0; s < image->segment_count; s++) {
            const Elf64_Phdr *segment = &image->segments[s];
            if (segment->p_type != PT_LOAD) {
                continue;
            }
            bool is_data = (segment->p_flags & PF_W) != 0;
            /* Data: what is fixed after relocation, the rest, and zeroes. */
            *mappings += is_data ? 3 : 1;
            *bytes += is_data ? segment->p_memsz : 0;
        }
    }
}

/* ---- frames ---------------------------------------------------------------
 */

/** No guard is larger: it is address space of every rank. */
#define PROGRAM_FRAME_MOST (UINT64_C(1) << 30)

static int program_frame(const struct load_frame *frame, size_t *bytes)
{
    if (frame->bytes > PROGRAM_FRAME_MOST) {
        return poise_error_set(
            ENOTSUP, "guard the stacks of virtual ranks against",
            frame->image->path,
            "its function at 0x%llx takes %llu MiB of stack at once; compile "
            "it with -fstack-clash-protection, as 'poise cc' does",
            (unsigned long long)frame->function,
            (unsigned long long)(frame->bytes >> 20));
    }
    *bytes = (size_t)frame->bytes;
    return 0;
}

int load_program_frame(const struct load_program *program, size_t *bytes)
{
    struct load_frame frame = {0};
    for (int i = 0; i < program->count; i++) {
        load_image_frame(&program->images[i], &frame);
    }
    return program_frame(&frame, bytes);
}

/* What is loaded, as the dynamic linker lists it. */
static int program_list(struct dl_phdr_info *info, size_t size, void *arg)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (slash != NULL) {
        poise_buf_printf(arg, "%s => %s (0x0)\n", slash + 1, info->dlpi_name);
    }
    return 0;
}

int load_frame_in_place(size_t *bytes)
{
    static const char self[] = "/proc/self/exe";
    struct program_search search = {0};
    struct load_frame frame = {0};
    int code = 0;
    dl_iterate_phdr(program_list, &search.listing);
    poise_buf_puts(&search.listing, "\n");
    poise_buf_str(&search.listing);
    /* What cannot be read here is not looked at: the program runs already. */
    program_add(&search, self);
    for (int i = 0; i < search.count && search.listing.error == 0; i++) {
        program_add_needed(&search, i, self);
        load_image_frame(&search.nodes[i].image, &frame);
    }
    code = program_frame(&frame, bytes);
    for (int i = 0; i < search.count; i++) {
        load_image_close(&search.nodes[i].image);
    }
    free(search.nodes);
    poise_buf_free(&search.listing);
    return code;
}

/* ---- one rank's private images ------------------------------------------ */

/* The names of all libraries as this rank's images have them. NULL-terminated;
 * without memory NULL. */
static struct load_rename *program_rename(const struct load_program *program,
                                          int number)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    struct load_rename *renames =
        poise_alloc((size_t)program->count + 1, sizeof *renames);
    int count = 0;
    for (int i = 0; i < program->count && renames != NULL; i++) {
        const char *name = program->images[i].soname;
        if (name == NULL) {
            continue;
        }
        char *to = strdup(name);
        if (to == NULL) {
            break;
        }
        size_t len = strlen(to);
        int rest = number * program->count + i;
        for (size_t d = 1; d <= PROGRAM_DIGITS; d++, rest /= 36) {
            to[len - d] = digits[rest % 36];
        }
        renames[count++] = (struct load_rename){.from = name, .to = to};
    }
    return renames;
}

static void program_rename_free(struct load_rename *renames)
{
    for (size_t i = 0; renames != NULL && renames[i].from != NULL; i++) {
        free(renames[i].to);
    }
    free(renames);
}

/* Where the program's main is, as the descriptor in its image says. */
static int program_find_main(struct load_rank *rank)
{
    int last = rank->program->count - 1;
    const struct poise_vrank_program *descriptor =
        dlsym(rank->images[last].handle, POISE_VRANK_PROGRAM_SYMBOL);
    if (descriptor == NULL || descriptor->version != POISE_VRANK_PROGRAM) {
        return poise_error_set(ENOEXEC, "run with virtual ranks",
                               rank->program->images[last].path,
                               "it was linked by another version of 'poise "
                               "cc'");
    }
    rank->main = descriptor->main;
    return 0;
}

int load_program_images(int number, void *const *data, struct load_rank *rank)
{
    const struct load_program *program = rank->program;
    struct load_rename *renames = program_rename(program, number);
    rank->images = poise_alloc((size_t)program->count, sizeof *rank->images);
    int code = renames == NULL || rank->images == NULL ? -ENOMEM : 0;
    for (int i = 0; i < program->count && code == 0; i++) {
        code = load_private_create(&program->images[i],
                                   number * program->count + i, renames,
                                   &rank->images[i]);
    }
    for (int i = 0; i < program->count && code == 0; i++) {
        code = load_private_map(&rank->images[i], data, rank->images);
    }
    program_rename_free(renames);
    return code == 0 ? program_find_main(rank) : code;
}
