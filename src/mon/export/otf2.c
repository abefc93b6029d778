/*
 * OTF2 archives, written by the format's own library, which is opened when it
 * is asked for: nothing else of Poise should wait for it, or need it. Its
 * headers are a matter of the build (POISE_HAVE_OTF2).
 *
 * The archive is made in a folder beside, and gets its name when it is whole.
 */
#include "internal.h"

#include <poise/parts.h>

#include <errno.h>

#if POISE_HAVE_OTF2

#include <dlfcn.h>
#include <ftw.h>
#include <otf2/otf2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Debian calls the library so; its makers the second. */
static const char *const libraries[] = {"libopen-trace-format2.so.10",
                                        "libotf2.so.10", "libotf2.so.11"};

/* What is used of it. */
#define FUNCTIONS(F)                                                           \
    F(Archive_Open)                                                            \
    F(Archive_Close)                                                           \
    F(Archive_SetFlushCallbacks)                                               \
    F(Archive_SetSerialCollectiveCallbacks)                                    \
    F(Archive_SetCreator)                                                      \
    F(Archive_OpenEvtFiles)                                                    \
    F(Archive_CloseEvtFiles)                                                   \
    F(Archive_OpenDefFiles)                                                    \
    F(Archive_CloseDefFiles)                                                   \
    F(Archive_GetEvtWriter)                                                    \
    F(Archive_CloseEvtWriter)                                                  \
    F(Archive_GetDefWriter)                                                    \
    F(Archive_CloseDefWriter)                                                  \
    F(Archive_GetGlobalDefWriter)                                              \
    F(AttributeList_New)                                                       \
    F(AttributeList_Delete)                                                    \
    F(AttributeList_AddUint64)                                                 \
    F(Error_RegisterCallback)                                                  \
    F(Error_GetDescription)                                                    \
    F(EvtWriter_Enter)                                                         \
    F(EvtWriter_Leave)                                                         \
    F(EvtWriter_MpiCollectiveBegin)                                            \
    F(EvtWriter_MpiCollectiveEnd)                                              \
    F(EvtWriter_GetNumberOfEvents)                                             \
    F(GlobalDefWriter_WriteClockProperties)                                    \
    F(GlobalDefWriter_WriteString)                                             \
    F(GlobalDefWriter_WriteAttribute)                                          \
    F(GlobalDefWriter_WriteSystemTreeNode)                                     \
    F(GlobalDefWriter_WriteLocationGroup)                                      \
    F(GlobalDefWriter_WriteLocation)                                           \
    F(GlobalDefWriter_WriteRegion)                                             \
    F(GlobalDefWriter_WriteGroup)                                              \
    F(GlobalDefWriter_WriteComm)

#define MEMBER(name) __typeof__(&OTF2_##name) name;
#define LOOK_UP(name)                                                          \
    *(void **)&otf2->name = dlsym(otf2->library, "OTF2_" #name);               \
    missing = otf2->name ? missing : "OTF2_" #name;

struct otf2 {
    FUNCTIONS(MEMBER)
    void *library;
};

/* A communicator. */
struct comm {
    uint64_t group;
    uint32_t name; /* a string */
    uint64_t *members;
    uint32_t size;
};

struct writer {
    const struct export_model *model;
    struct otf2 otf2;
    OTF2_Archive *archive;
    OTF2_GlobalDefWriter *definitions;
    OTF2_EvtWriter *events;
    struct export_names strings;
    struct comm *comms;
    size_t comm_count;
    uint64_t *counts;     /* events of each track */
    OTF2_ErrorCode first; /* that the library told of */
    const char *path;
};

/* ---- the library -------------------------------------------------------- */

static int load(struct otf2 *otf2)
{
    *otf2 = (struct otf2){0};
    for (size_t i = 0;
         !otf2->library && i < sizeof libraries / sizeof *libraries; i++) {
        otf2->library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (!otf2->library) {
        return poise_error_set(ENOENT, "export to OTF2", libraries[0],
                               "the library is not installed (Debian's package "
                               "libopen-trace-format2-10)");
    }
    const char *missing = NULL;
    FUNCTIONS(LOOK_UP)
    if (missing) {
        dlclose(otf2->library);
        return poise_error_set(ENOTSUP, "export to OTF2", missing,
                               "the installed library has no such function");
    }
    return 0;
}

/* Its reasons are told with ours, not on stderr: the first one, which is
 * closest to what happened. */
static OTF2_ErrorCode be_quiet(void *arg, const char *file, uint64_t line,
                               const char *function, OTF2_ErrorCode code,
                               const char *format, va_list words)
{
    OTF2_ErrorCode *first = arg;
    (void)file, (void)line, (void)function, (void)format, (void)words;
    *first = *first == OTF2_SUCCESS ? code : *first;
    return code;
}

static int check(struct writer *to, OTF2_ErrorCode code)
{
    return code == OTF2_SUCCESS
               ? 0
               : poise_error_set(EIO, "export to OTF2", to->path, "%s",
                                 to->otf2.Error_GetDescription(
                                     to->first ? to->first : code));
}

/* ---- names -------------------------------------------------------------- */

/* A string's number, defined when it is new. */
static int string_of(struct writer *to, const char *text, uint32_t *out)
{
    size_t before = to->strings.count;
    int64_t number = export_name(&to->strings, text);
    *out = (uint32_t)number;
    if (number < 0 || (size_t)number < before) {
        return number < 0 ? (int)number : 0;
    }
    return check(
        to, to->otf2.GlobalDefWriter_WriteString(
                to->definitions, (uint32_t)number, to->strings.text[number]));
}

static int define_regions(struct writer *to)
{
    const struct export_names *names = &to->model->names;
    uint32_t name, none;
    int code = string_of(to, "", &none);
    for (size_t i = 0; i < names->count && code == 0; i++) {
        bool is_mpi = strncmp(names->text[i], "MPI_", 4) == 0;
        code = string_of(to, names->text[i], &name);
        if (code == 0) {
            code =
                check(to, to->otf2.GlobalDefWriter_WriteRegion(
                              to->definitions, (uint32_t)i, name, name, none,
                              is_mpi ? OTF2_REGION_ROLE_COLL_OTHER
                                     : OTF2_REGION_ROLE_CODE,
                              is_mpi ? OTF2_PARADIGM_MPI : OTF2_PARADIGM_USER,
                              OTF2_REGION_FLAG_NONE, none, 0, 0));
        }
    }
    for (size_t i = 0; i < to->model->arguments.count && code == 0; i++) {
        code = string_of(to, to->model->arguments.text[i], &name);
        if (code == 0) {
            code = check(to, to->otf2.GlobalDefWriter_WriteAttribute(
                                 to->definitions, (uint32_t)i, name, none,
                                 OTF2_TYPE_UINT64));
        }
    }
    return code;
}

/* ---- communicators ------------------------------------------------------ */

/* Where a rank's calls are: its track with the first of them. */
static uint64_t location_of(const struct export_model *model, uint32_t file)
{
    uint64_t found = UINT64_MAX;
    for (size_t i = 0; i < model->track_count; i++) {
        const struct export_track *track = &model->tracks[i];
        for (size_t k = 0; track->file == file && k < track->count; k++) {
            const struct export_item *item = &model->items[track->first + k];
            if (model->collectors[item->collector].place.type ==
                POISE_TRACE_CALL) {
                return i;
            }
        }
        found = track->file == file && found == UINT64_MAX ? i : found;
    }
    return found;
}

static struct comm *comm_of(struct writer *to, uint64_t group)
{
    for (size_t i = 0; i < to->comm_count; i++) {
        if (to->comms[i].group == group) {
            return &to->comms[i];
        }
    }
    return NULL;
}

/* A member of a communicator: the rank of the session. */
static int add_member(struct writer *to,
                      const struct export_collector *collector)
{
    const struct poise_trace_place *place = &collector->place;
    struct comm *comm = comm_of(to, place->group);
    uint32_t size = place->size > 0 && place->size <= to->model->file_count
                        ? place->size
                        : to->model->file_count;
    if (!comm) {
        struct comm *more =
            poise_realloc(to->comms, to->comm_count + 1, sizeof *more);
        if (!more) {
            return -ENOMEM;
        }
        to->comms = more;
        comm = &more[to->comm_count];
        *comm = (struct comm){.group = place->group, .size = size};
        comm->members = poise_alloc(size, sizeof *comm->members);
        if (!comm->members) {
            return -ENOMEM;
        }
        memset(comm->members, 0xff, size * sizeof *comm->members);
        to->comm_count++;
        int code = string_of(
            to, place->group_name[0] ? place->group_name : "communicator",
            &comm->name);
        if (code < 0) {
            return code;
        }
    }
    if (place->rank >= 0 && (uint32_t)place->rank < comm->size) {
        comm->members[place->rank] = collector->file;
    }
    return 0;
}

static int gather_comms(struct writer *to)
{
    const struct export_model *model = to->model;
    int code = 0;
    for (size_t i = 0; i < model->collector_count && code == 0; i++) {
        if (model->collectors[i].place.type == POISE_TRACE_CALL) {
            code = add_member(to, &model->collectors[i]);
        }
    }
    return code;
}

static int define_comm(struct writer *to, uint32_t number)
{
    struct comm *comm = &to->comms[number];
    uint32_t known = 0;
    for (uint32_t k = 0; k < comm->size; k++) {
        if (comm->members[k] != UINT64_MAX) {
            comm->members[known++] = comm->members[k];
        }
    }
    int code = check(to, to->otf2.GlobalDefWriter_WriteGroup(
                             to->definitions, number + 1, comm->name,
                             OTF2_GROUP_TYPE_COMM_GROUP, OTF2_PARADIGM_MPI,
                             OTF2_GROUP_FLAG_NONE, known, comm->members));
    return code < 0
               ? code
               : check(to, to->otf2.GlobalDefWriter_WriteComm(
                               to->definitions, number, comm->name, number + 1,
                               OTF2_UNDEFINED_COMM, OTF2_COMM_FLAG_NONE));
}

/* Group 0: where ranks are; group i+1 is that of communicator i. */
static int define_comms(struct writer *to)
{
    const struct export_model *model = to->model;
    uint64_t *places = poise_alloc(model->file_count + 1, sizeof *places);
    uint32_t none, known = 0;
    int code = places ? string_of(to, "", &none) : -ENOMEM;
    for (uint32_t i = 0; i < model->file_count && code == 0; i++) {
        places[known] = location_of(model, i);
        known += places[known] != UINT64_MAX;
    }
    if (code == 0) {
        code = check(to, to->otf2.GlobalDefWriter_WriteGroup(
                             to->definitions, 0, none,
                             OTF2_GROUP_TYPE_COMM_LOCATIONS, OTF2_PARADIGM_MPI,
                             OTF2_GROUP_FLAG_NONE, known, places));
    }
    free(places);
    for (uint32_t i = 0; i < to->comm_count && code == 0; i++) {
        code = define_comm(to, i);
    }
    return code;
}

/* ---- where it ran ------------------------------------------------------- */

/* The first file of the same host: its number is the node's. */
static uint32_t node_of(const struct export_model *model, uint32_t file)
{
    uint32_t node = 0;
    while (strcmp(model->files[node].info.host, model->files[file].info.host)) {
        node++;
    }
    return node;
}

static int define_rank(struct writer *to, uint32_t number)
{
    const struct poise_trace_file *file = &to->model->files[number];
    uint32_t node = node_of(to->model, number), host, kind, name;
    char text[24];
    snprintf(text, sizeof text, "rank %d", file->info.rank);
    int code = string_of(to, text, &name);
    code = code < 0 ? code : string_of(to, file->info.host, &host);
    code = code < 0 ? code : string_of(to, "node", &kind);
    if (code == 0 && node == number) {
        code = check(to, to->otf2.GlobalDefWriter_WriteSystemTreeNode(
                             to->definitions, node, host, kind,
                             OTF2_UNDEFINED_SYSTEM_TREE_NODE));
    }
    return code < 0 ? code
                    : check(to, to->otf2.GlobalDefWriter_WriteLocationGroup(
                                    to->definitions, number, name,
                                    OTF2_LOCATION_GROUP_TYPE_PROCESS, node,
                                    OTF2_UNDEFINED_LOCATION_GROUP));
}

static int define_places(struct writer *to)
{
    const struct export_model *model = to->model;
    struct poise_buf text = {0};
    int code =
        check(to, to->otf2.GlobalDefWriter_WriteClockProperties(
                      to->definitions, 1000000000, 0,
                      (uint64_t)model->last_ns + 1, OTF2_UNDEFINED_TIMESTAMP));
    for (uint32_t i = 0; i < model->file_count && code == 0; i++) {
        code = define_rank(to, i);
    }
    for (size_t i = 0; i < model->track_count && code == 0; i++) {
        uint32_t name;
        code = export_track_name(model, &model->tracks[i], &text);
        code = code < 0 ? code : string_of(to, poise_buf_str(&text), &name);
        if (code == 0) {
            code = check(to, to->otf2.GlobalDefWriter_WriteLocation(
                                 to->definitions, i, name,
                                 OTF2_LOCATION_TYPE_CPU_THREAD, to->counts[i],
                                 model->tracks[i].file));
        }
    }
    poise_buf_free(&text);
    return code;
}

/* ---- events ------------------------------------------------------------- */

static OTF2_CollectiveOp operation_of(const char *name)
{
    static const struct {
        const char *name;
        OTF2_CollectiveOp operation;
    } known[] = {
        {"Barrier", OTF2_COLLECTIVE_OP_BARRIER},
        {"Bcast", OTF2_COLLECTIVE_OP_BCAST},
        {"Gather", OTF2_COLLECTIVE_OP_GATHER},
        {"Gatherv", OTF2_COLLECTIVE_OP_GATHERV},
        {"Scatter", OTF2_COLLECTIVE_OP_SCATTER},
        {"Scatterv", OTF2_COLLECTIVE_OP_SCATTERV},
        {"Allgather", OTF2_COLLECTIVE_OP_ALLGATHER},
        {"Allgatherv", OTF2_COLLECTIVE_OP_ALLGATHERV},
        {"Alltoall", OTF2_COLLECTIVE_OP_ALLTOALL},
        {"Alltoallv", OTF2_COLLECTIVE_OP_ALLTOALLV},
        {"Alltoallw", OTF2_COLLECTIVE_OP_ALLTOALLW},
        {"Allreduce", OTF2_COLLECTIVE_OP_ALLREDUCE},
        {"Reduce", OTF2_COLLECTIVE_OP_REDUCE},
        {"Reduce_scatter", OTF2_COLLECTIVE_OP_REDUCE_SCATTER},
        {"Reduce_scatter_block", OTF2_COLLECTIVE_OP_REDUCE_SCATTER_BLOCK},
        {"Scan", OTF2_COLLECTIVE_OP_SCAN},
        {"Exscan", OTF2_COLLECTIVE_OP_EXSCAN}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name + strlen("MPI_"), known[i].name) == 0) {
            return known[i].operation;
        }
    }
    /* MPI_Comm_dup and its kin make something on all ranks. */
    return OTF2_COLLECTIVE_OP_CREATE_HANDLE;
}

/* The communicator of an MPI call that ranks waited in; NULL: it is none. */
static const struct comm *collective(struct writer *to,
                                     const struct export_item *item)
{
    const struct export_collector *collector =
        &to->model->collectors[item->collector];
    return collector->place.type == POISE_TRACE_CALL && !item->is_instant &&
                   strncmp(to->model->names.text[item->name], "MPI_", 4) == 0
               ? comm_of(to, collector->place.group)
               : NULL;
}

static int enter(struct writer *to, const struct export_item *item,
                 uint64_t time)
{
    const struct export_collector *collector =
        &to->model->collectors[item->collector];
    OTF2_AttributeList *list = to->otf2.AttributeList_New();
    if (!list) {
        return poise_error_set(ENOMEM, "export to OTF2", to->path, NULL);
    }
    OTF2_ErrorCode code = OTF2_SUCCESS;
    for (int i = 0; i <= POISE_TRACE_VALUES && code == OTF2_SUCCESS; i++) {
        int64_t value = (int64_t)item->event->sequence;
        bool is_signed;
        if (i == 0 ? collector->type.sequence[0] != '\0'
                   : export_value(to->model, item, i - 1, &value, &is_signed)) {
            /* Two values of one name: the first is kept. */
            to->otf2.AttributeList_AddUint64(list, collector->arguments[i],
                                             (uint64_t)value);
        }
    }
    code = to->otf2.EvtWriter_Enter(to->events, list, time, item->name);
    if (code == OTF2_SUCCESS && collective(to, item)) {
        code = to->otf2.EvtWriter_MpiCollectiveBegin(to->events, NULL, time);
    }
    to->otf2.AttributeList_Delete(list);
    return check(to, code);
}

static int leave(struct writer *to, const struct export_item *item,
                 uint64_t time)
{
    const struct comm *comm = collective(to, item);
    OTF2_ErrorCode code = OTF2_SUCCESS;
    if (comm) {
        code = to->otf2.EvtWriter_MpiCollectiveEnd(
            to->events, NULL, time,
            operation_of(to->model->names.text[item->name]),
            (OTF2_CommRef)(comm - to->comms), OTF2_UNDEFINED_UINT32,
            item->event->values[2], 0);
    }
    if (code == OTF2_SUCCESS) {
        code = to->otf2.EvtWriter_Leave(to->events, NULL, time, item->name);
    }
    return check(to, code);
}

static int put_step(const struct export_item *item, enum export_what what,
                    int64_t ns, void *arg)
{
    struct writer *to = arg;
    uint64_t time = ns > 0 ? (uint64_t)ns : 0;
    int code = what == EXPORT_LEFT ? 0 : enter(to, item, time);
    return code < 0 || what == EXPORT_ENTER ? code : leave(to, item, time);
}

static int put_events(struct writer *to, size_t number)
{
    const struct export_model *model = to->model;
    to->events = to->otf2.Archive_GetEvtWriter(to->archive, number);
    if (!to->events) {
        return poise_error_set(EIO, "export to OTF2", to->path,
                               "no file of events could be begun");
    }
    int code = export_walk(model, &model->tracks[number], put_step, to);
    if (code == 0) {
        code = check(to, to->otf2.EvtWriter_GetNumberOfEvents(
                             to->events, &to->counts[number]));
    }
    int closed =
        check(to, to->otf2.Archive_CloseEvtWriter(to->archive, to->events));
    return code < 0 ? code : closed;
}

/* Readers want a file of local definitions, if an empty one, per location. */
static int put_locals(struct writer *to)
{
    int code = check(to, to->otf2.Archive_OpenDefFiles(to->archive));
    for (size_t i = 0; i < to->model->track_count && code == 0; i++) {
        OTF2_DefWriter *local = to->otf2.Archive_GetDefWriter(to->archive, i);
        code =
            local
                ? check(to, to->otf2.Archive_CloseDefWriter(to->archive, local))
                : poise_error_set(EIO, "export to OTF2", to->path,
                                  "no file of definitions could be begun");
    }
    return code < 0 ? code
                    : check(to, to->otf2.Archive_CloseDefFiles(to->archive));
}

/* ---- the archive -------------------------------------------------------- */

static OTF2_FlushType may_flush(void *arg, OTF2_FileType type,
                                OTF2_LocationRef location, void *caller,
                                bool final)
{
    (void)arg, (void)type, (void)location, (void)caller, (void) final;
    return OTF2_FLUSH;
}

static int put_all(struct writer *to)
{
    static const OTF2_FlushCallbacks flush = {.otf2_pre_flush = may_flush};
    int code = check(
        to, to->otf2.Archive_SetFlushCallbacks(to->archive, &flush, NULL));
    code = code < 0 ? code
                    : check(to, to->otf2.Archive_SetSerialCollectiveCallbacks(
                                    to->archive));
    code = code < 0
               ? code
               : check(to, to->otf2.Archive_SetCreator(to->archive, "Poise"));
    code =
        code < 0 ? code : check(to, to->otf2.Archive_OpenEvtFiles(to->archive));
    to->definitions = NULL;
    /* Events name communicators, so those are known first. */
    if (code == 0) {
        to->definitions = to->otf2.Archive_GetGlobalDefWriter(to->archive);
        code = to->definitions
                   ? gather_comms(to)
                   : poise_error_set(EIO, "export to OTF2", to->path,
                                     "no file of definitions "
                                     "could be begun");
    }
    for (size_t i = 0; i < to->model->track_count && code == 0; i++) {
        code = put_events(to, i);
    }
    code = code < 0 ? code
                    : check(to, to->otf2.Archive_CloseEvtFiles(to->archive));
    code = code < 0 ? code : put_locals(to);
    /* Readers want what is named before what names it. */
    code = code < 0 ? code : define_places(to);
    code = code < 0 ? code : define_regions(to);
    return code < 0 ? code : define_comms(to);
}

static int remove_one(const char *path, const struct stat *status, int type,
                      struct FTW *where)
{
    (void)status, (void)type, (void)where;
    return remove(path);
}

/* Write into `folder`, which is there and empty. */
static int put_archive(struct writer *to, const char *folder)
{
    OTF2_ErrorCallback before =
        to->otf2.Error_RegisterCallback(be_quiet, &to->first);
    /* 1 MiB for events, 4 MiB for definitions: what its manual advises. */
    to->archive = to->otf2.Archive_Open(folder, "traces", OTF2_FILEMODE_WRITE,
                                        1 << 20, 4 << 20, OTF2_SUBSTRATE_POSIX,
                                        OTF2_COMPRESSION_NONE);
    int code =
        to->archive ? put_all(to) : check(to, OTF2_ERROR_FILE_INTERACTION);
    if (to->archive) {
        int closed = check(to, to->otf2.Archive_Close(to->archive));
        code = code < 0 ? code : closed;
    }
    to->otf2.Error_RegisterCallback(before, NULL);
    return code;
}

/* A new folder beside `path`. */
static int make_folder(const char *path, struct poise_buf *out)
{
    poise_buf_printf(out, "%s.part-%d-%08x", path, (int)getpid(),
                     (unsigned)poise_rng_next(poise_rng_current()));
    if (out->error) {
        return out->error;
    }
    return mkdir(poise_buf_str(out), 0777) == 0
               ? 0
               : poise_error_set(errno, "export to OTF2", path, NULL);
}

/* It gets its name when it is whole. */
static int put_folder(struct writer *to)
{
    struct poise_buf folder = {0};
    struct stat status;
    if (lstat(to->path, &status) == 0) {
        return poise_error_set(EEXIST, "export to OTF2", to->path, NULL);
    }
    int code = make_folder(to->path, &folder);
    if (code == 0) {
        code = put_archive(to, poise_buf_str(&folder));
        if (code == 0 && rename(poise_buf_str(&folder), to->path) != 0) {
            code = poise_error_set(errno, "export to OTF2", to->path, NULL);
        }
        if (code < 0) {
            nftw(poise_buf_str(&folder), remove_one, 8, FTW_DEPTH | FTW_PHYS);
        }
    }
    poise_buf_free(&folder);
    return code;
}

int poise_monitor_export_otf2(struct poise_trace_session *session,
                              const char *path,
                              struct poise_monitor_exported *out)
{
    struct export_model model;
    struct writer to = {.model = &model, .path = path};
    int code = load(&to.otf2);
    if (code < 0) {
        return code;
    }
    code = export_gather(session, &model);
    if (code == 0) {
        to.counts = poise_alloc(model.track_count + 1, sizeof *to.counts);
        code = to.counts ? put_folder(&to) : -ENOMEM;
        *out = code == 0 ? model.counts : *out;
        export_free(&model);
    }
    for (size_t i = 0; i < to.comm_count; i++) {
        free(to.comms[i].members);
    }
    free(to.comms);
    free(to.counts);
    export_names_free(&to.strings);
    dlclose(to.otf2.library);
    return code;
}

#else

int poise_monitor_export_otf2(struct poise_trace_session *session,
                              const char *path,
                              struct poise_monitor_exported *out)
{
    (void)session, (void)out;
    return poise_part_missing(POISE_PART_OTF2, "export to OTF2", path);
}

#endif
