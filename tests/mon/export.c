/*
 * Wing mon, exports: each record is in exactly one slice or instant, slices
 * nest whatever their times, ends find their begins, parts of a call and both
 * ends of a message are linked. A reader of messages that knows nothing of the
 * writer looks at what was written; that other tools read it tests/mon/late_run
 * shows.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <poise/core.h>
#include <poise/monitor_export.h>

#include "../temporary.h"

static char scratch[TEMPORARY_BYTES];

/* ---- reading ------------------------------------------------------------ */

struct message {
    const unsigned char *at, *end;
};

struct field {
    unsigned number;
    uint64_t value;
    struct message message;
};

static uint64_t varint(struct message *from)
{
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
        assert_true(from->at < from->end);
        value |= (uint64_t)(*from->at & 0x7f) << shift;
        if (*from->at++ < 0x80) {
            return value;
        }
    }
}

static bool next_field(struct message *from, struct field *out)
{
    if (from->at == from->end) {
        return false;
    }
    uint64_t key = varint(from);
    out->number = (unsigned)(key >> 3);
    if ((key & 7) == 0) {
        out->value = varint(from);
    } else if ((key & 7) == 1) {
        assert_true(from->end - from->at >= 8);
        memcpy(&out->value, from->at, 8);
        from->at += 8;
    } else {
        assert_int_equal(key & 7, 2);
        uint64_t size = varint(from);
        assert_true(size <= (uint64_t)(from->end - from->at));
        out->message = (struct message){from->at, from->at + size};
        from->at += size;
    }
    return true;
}

/* The only field of that number; false: there is none. */
static bool find(struct message in, unsigned number, struct field *out)
{
    while (next_field(&in, out)) {
        if (out->number == number) {
            return true;
        }
    }
    return false;
}

enum { TRACKS = 40, DEPTH = 64 };

/* What was found. */
struct found {
    unsigned begins, ends, instants, tracks, flows, correlations;
    uint64_t flow[2], correlation[4];
    int depth[TRACKS];
    uint64_t clock[TRACKS];
};

static void look_at_event(struct message event, uint64_t time,
                          struct found *found)
{
    struct field field;
    assert_true(find(event, 11, &field));
    uint64_t track = field.value;
    assert_true(track < TRACKS && found->clock[track] <= time);
    found->clock[track] = time;
    assert_true(find(event, 9, &field));
    found->begins += field.value == 1;
    found->ends += field.value == 2;
    found->instants += field.value == 3;
    found->depth[track] += field.value == 1 ? 1 : field.value == 2 ? -1 : 0;
    assert_in_range(found->depth[track], 0, DEPTH);
    if (find(event, 47, &field)) {
        found->flow[found->flows++ % 2] = field.value;
    }
    if (find(event, 52, &field)) {
        found->correlation[found->correlations++ % 4] = field.value;
    }
}

static struct found look(int fd)
{
    struct found found = {0};
    size_t size = (size_t)lseek(fd, 0, SEEK_END);
    unsigned char *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_ptr_not_equal(data, MAP_FAILED);
    struct message trace = {data, data + size};
    struct field packet, field;
    while (next_field(&trace, &packet)) {
        assert_int_equal(packet.number, 1);
        found.tracks += find(packet.message, 60, &field);
        if (find(packet.message, 11, &field)) {
            struct field time;
            assert_true(find(packet.message, 8, &time));
            look_at_event(field.message, time.value, &found);
        }
    }
    for (int i = 0; i < TRACKS; i++) {
        assert_int_equal(found.depth[i], 0);
    }
    munmap(data, size);
    return found;
}

/* ---- sessions ----------------------------------------------------------- */

struct rank {
    struct poise_trace *trace;
    struct poise_trace_ring *ring;
    uint64_t start;
    char path[600];
};

/* The record of a ring's owner, an instant in each ring. */
enum { OWNER = 1 };

static struct rank make(const char *name, int rank, int size, uint64_t session)
{
    struct rank made = {0};
    struct poise_trace_options options = {
        .session = {session, 1}, .rank = rank, .size = size, .capacity = 256};
    snprintf(made.path, sizeof made.path, rank ? "%s/%s.%d" : "%s/%s", scratch,
             name, rank);
    assert_int_equal(poise_trace_create(made.path, &options, &made.trace), 0);
    made.ring = poise_trace_claim(made.trace, "main");
    assert_non_null(made.ring);
    made.start = poise_clock_ticks();
    return made;
}

/* A slice from `from` to `to`, ticks after the start. */
static void put_slice(struct rank *rank, uint64_t from, uint64_t to)
{
    poise_trace_put(rank->ring, POISE_TRACE_FILE, 1, rank->start + from,
                    rank->start + to, 10, 0);
}

static void put_now(struct rank *rank, uint32_t kind, uint64_t sequence,
                    uint64_t at, uint64_t value)
{
    poise_trace_put(rank->ring, kind, sequence, rank->start + at, value, 0, 0);
}

static void end(struct rank *rank)
{
    poise_trace_destroy(rank->trace);
}

static struct found exported(const char *path,
                             struct poise_monitor_exported *counts)
{
    struct poise_trace_session *session;
    int fd = memfd_create("export", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(poise_trace_session_open(&path, 1, &session), 0);
    /* Also when somebody has read it. */
    struct poise_trace_moment moment;
    poise_trace_session_next(session, &moment);
    assert_int_equal(poise_monitor_export_perfetto(session, fd, "it", counts),
                     0);
    poise_trace_session_close(session);
    struct found found = look(fd);
    close(fd);
    assert_int_equal(found.begins, counts->slices);
    assert_int_equal(found.ends, counts->slices);
    assert_int_equal(found.instants, counts->instants);
    assert_int_equal(counts->records,
                     counts->slices + counts->paired + counts->instants);
    return found;
}

static void test_nesting(void **state)
{
    (void)state;
    struct rank rank = make("nesting", 0, 1, 2);
    put_slice(&rank, 1000, 9000);
    put_slice(&rank, 2000, 3000);  /* in it */
    put_slice(&rank, 3000, 4000);  /* behind that one */
    put_slice(&rank, 8000, 12000); /* across its end: a lane of its own */
    put_slice(&rank, 2000, 2000);  /* as short as can be */
    put_slice(&rank, 5000, 4000);  /* backwards: nothing is negative */
    end(&rank);
    struct poise_monitor_exported counts;
    struct found found = exported(rank.path, &counts);
    assert_int_equal(counts.slices, 6);
    assert_int_equal(counts.instants, OWNER);
    assert_int_equal(counts.tracks, 2);
    assert_int_equal(found.tracks, 3); /* and a process */
}

/* More at a time than there are lanes: none is lost. */
static void test_crowd(void **state)
{
    (void)state;
    struct rank rank = make("crowd", 0, 1, 3);
    for (uint64_t i = 0; i < 100; i++) {
        put_slice(&rank, 1000 + 10 * i, 100000 + 10 * i);
    }
    end(&rank);
    struct poise_monitor_exported counts;
    exported(rank.path, &counts);
    assert_int_equal(counts.records, OWNER + 100);
    assert_int_equal(counts.slices + counts.instants, OWNER + 100);
    assert_true(counts.tracks <= 32 && counts.instants > OWNER);
}

static void test_pairs(void **state)
{
    (void)state;
    struct rank rank = make("pairs", 0, 1, 4);
    put_now(&rank, POISE_TRACE_TASK_BEGIN, 1, 1000, 0);
    put_now(&rank, POISE_TRACE_TASK_BEGIN, 2, 2000, 0); /* in it */
    put_now(&rank, POISE_TRACE_TASK_END, 2, 3000, 0);
    put_now(&rank, POISE_TRACE_TASK_END, 1, 4000, 0);
    put_now(&rank, POISE_TRACE_IDLE_BEGIN, 0, 5000, 0);
    put_now(&rank, POISE_TRACE_IDLE_END, 0, 6000, 0);
    put_now(&rank, POISE_TRACE_TASK_END, 9, 7000, 0);   /* of nothing */
    put_now(&rank, POISE_TRACE_TASK_BEGIN, 3, 8000, 0); /* never ends */
    end(&rank);
    struct poise_monitor_exported counts;
    exported(rank.path, &counts);
    assert_int_equal(counts.records, OWNER + 8);
    assert_int_equal(counts.paired, 3);
    assert_int_equal(counts.slices, 3);
    assert_int_equal(counts.instants, OWNER + 2);
}

/* A message's ends have one flow, a call's parts one correlation. */
static void test_links(void **state)
{
    (void)state;
    struct rank ranks[2] = {make("links", 0, 2, 5), make("links", 1, 2, 5)};
    put_now(&ranks[0], POISE_TRACE_SEND, 7, 1000, 1);
    put_now(&ranks[1], POISE_TRACE_RECEIVE, 7, 2000, 0);
    for (int i = 0; i < 2; i++) {
        struct poise_trace_place place = {.type = POISE_TRACE_CALL,
                                          .rank = i,
                                          .peer = -1,
                                          .group = 77,
                                          .size = 2,
                                          .name = "MPI_Allreduce",
                                          .group_name = "world"};
        uint32_t call = poise_trace_collector(ranks[i].trace, &place);
        for (uint64_t k = 1; k <= 2; k++) {
            poise_trace_put(ranks[i].ring, call, k, ranks[i].start + 5000 * k,
                            ranks[i].start + 5000 * k + 1000, 8, 0);
        }
    }
    end(&ranks[0]);
    end(&ranks[1]);
    struct poise_monitor_exported counts;
    struct found found = exported(ranks[0].path, &counts);
    assert_int_equal(counts.slices, 4);
    assert_int_equal(found.flows, 2);
    assert_true(found.flow[0] == found.flow[1]);
    assert_int_equal(found.correlations, 4);
    assert_true(found.correlation[0] == found.correlation[2]);
    assert_true(found.correlation[1] == found.correlation[3]);
    assert_true(found.correlation[0] != found.correlation[1]);
}

/* What was overwritten is counted; what nobody can name is there. */
static void test_missing(void **state)
{
    (void)state;
    struct rank rank = make("missing", 0, 1, 6);
    for (uint64_t i = 0; i < 300; i++) {
        put_now(&rank, 5000, 0, 1000 + i, 0);
    }
    end(&rank);
    struct poise_monitor_exported counts;
    exported(rank.path, &counts);
    assert_int_equal(counts.records, 256);
    assert_int_equal(counts.instants, 256);
    assert_int_equal(counts.left_out, OWNER + 44);
}

/* ---- faults ------------------------------------------------------------- */

static int export_to(const char *path, int fd, const char *folder)
{
    struct poise_trace_session *session;
    struct poise_monitor_exported counts;
    int code = poise_trace_session_open(&path, 1, &session);
    if (code == 0) {
        code = folder
                   ? poise_monitor_export_otf2(session, folder, &counts)
                   : poise_monitor_export_perfetto(session, fd, "it", &counts);
        poise_trace_session_close(session);
    }
    return code;
}

static void test_faults(void **state)
{
    (void)state;
    struct rank rank = make("faults", 0, 1, 7);
    char folder[600];
    put_slice(&rank, 1000, 9000);
    put_now(&rank, POISE_TRACE_TASK_BEGIN, 1, 10000, 0);
    end(&rank);
    int fd = memfd_create("export", MFD_CLOEXEC);
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0 && full >= 0);
    assert_int_equal(export_to(rank.path, full, NULL), -ENOSPC);
    /* Memory for the k-th time, until it is enough. */
    int code = -ENOMEM;
    for (long k = 1; code < 0; k++) {
        assert_true(k < 1000);
        poise_fault_arm(POISE_FAULT_ALLOC, (uint64_t)k, -ENOMEM, false);
        code = export_to(rank.path, fd, NULL);
        poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
        assert_true(code == 0 || code == -ENOMEM);
    }
    snprintf(folder, sizeof folder, "%s/archive", scratch);
    code = export_to(rank.path, -1, folder);
    if (code == -ENOTSUP || code == -ENOENT) {
        /* The reason names what is missing. */
        assert_non_null(strstr(poise_error_last()->why, "package"));
    } else {
        assert_int_equal(code, 0);
        assert_int_equal(export_to(rank.path, -1, folder), -EEXIST);
        assert_int_equal(export_to(rank.path, -1, "/proc/none/x"), -ENOENT);
    }
    close(fd);
    close(full);
}

static int begin_all(void **state)
{
    (void)state;
    return mkdtemp(temporary_name(scratch, "export")) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *status, int type,
                      struct FTW *where)
{
    (void)status, (void)type, (void)where;
    return remove(path);
}

static int end_all(void **state)
{
    (void)state;
    return nftw(scratch, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nesting), cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_pairs),   cmocka_unit_test(test_links),
        cmocka_unit_test(test_missing), cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, begin_all, end_all);
}
