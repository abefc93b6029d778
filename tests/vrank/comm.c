/*
 * Communicators of virtual ranks: groups, making them, intercommunicators,
 * attributes, error handlers, hints, and what can be asked of MPI itself.
 */
#include "run.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>

/* ---- groups ------------------------------------------------------------- */

static bool holds(MPI_Group group, const int *members, int count)
{
    int size = -1, world[64], places[64];
    MPI_Group all;
    MPI_Group_size(group, &size);
    if (size != count) {
        return false;
    }
    for (int i = 0; i < count; i++) {
        places[i] = i;
    }
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_translate_ranks(group, count, places, all, world);
    MPI_Group_free(&all);
    return count == 0 || memcmp(world, members, (size_t)count * 4) == 0;
}

#define HOLDS(group, ...)                                                      \
    holds(group, (const int[]){__VA_ARGS__},                                   \
          (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))

static int groups(int rank, int size)
{
    MPI_Group all, odd, low, made;
    int place = -1, result = -1;
    CHECK(size == 8);
    CHECK(MPI_Comm_group(MPI_COMM_WORLD, &all) == MPI_SUCCESS);
    CHECK(MPI_Group_rank(all, &place) == MPI_SUCCESS && place == rank);
    CHECK(MPI_Group_incl(all, 4, (int[]){1, 3, 5, 7}, &odd) == MPI_SUCCESS);
    CHECK(HOLDS(odd, 1, 3, 5, 7));
    CHECK(MPI_Group_rank(odd, &place) == MPI_SUCCESS);
    CHECK(place == (rank % 2 ? rank / 2 : MPI_UNDEFINED));
    CHECK(MPI_Group_incl(all, 4, (int[]){2, 0, 3, 1}, &low) == MPI_SUCCESS);
    CHECK(HOLDS(low, 2, 0, 3, 1));
    CHECK(MPI_Group_union(low, odd, &made) == MPI_SUCCESS);
    CHECK(HOLDS(made, 2, 0, 3, 1, 5, 7));
    MPI_Group_free(&made);
    CHECK(MPI_Group_intersection(low, odd, &made) == MPI_SUCCESS);
    CHECK(HOLDS(made, 3, 1));
    MPI_Group_free(&made);
    CHECK(MPI_Group_difference(low, odd, &made) == MPI_SUCCESS);
    CHECK(HOLDS(made, 2, 0));
    MPI_Group_free(&made);
    CHECK(MPI_Group_difference(low, all, &made) == MPI_SUCCESS);
    CHECK(made == MPI_GROUP_EMPTY);
    MPI_Group_free(&made);
    CHECK(MPI_Group_excl(all, 3, (int[]){0, 4, 7}, &made) == MPI_SUCCESS);
    CHECK(HOLDS(made, 1, 2, 3, 5, 6));
    MPI_Group_free(&made);
    int ranges[2][3] = {{6, 0, -3}, {1, 2, 1}};
    CHECK(MPI_Group_range_incl(all, 2, ranges, &made) == MPI_SUCCESS);
    CHECK(HOLDS(made, 6, 3, 0, 1, 2));
    MPI_Group_free(&made);
    CHECK(MPI_Group_range_excl(all, 2, ranges, &made) == MPI_SUCCESS);
    CHECK(HOLDS(made, 4, 5, 7));
    CHECK(MPI_Group_compare(made, odd, &result) == MPI_SUCCESS);
    CHECK(result == MPI_UNEQUAL);
    MPI_Group_free(&made);
    CHECK(made == MPI_GROUP_NULL);
    CHECK(MPI_Group_incl(all, 4, (int[]){7, 3, 5, 1}, &made) == MPI_SUCCESS);
    CHECK(MPI_Group_compare(made, odd, &result) == MPI_SUCCESS);
    CHECK(result == MPI_SIMILAR);
    CHECK(MPI_Group_compare(odd, odd, &result) == MPI_SUCCESS);
    CHECK(result == MPI_IDENT);
    int there[3];
    CHECK(MPI_Group_translate_ranks(all, 3, (int[]){3, 4, MPI_PROC_NULL}, odd,
                                    there) == MPI_SUCCESS);
    CHECK(there[0] == 1 && there[1] == MPI_UNDEFINED);
    CHECK(there[2] == MPI_PROC_NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Group bad;
    CHECK(MPI_Group_incl(all, 1, (int[]){8}, &bad) == MPI_ERR_RANK);
    CHECK(MPI_Group_excl(all, 1, (int[]){-1}, &bad) == MPI_ERR_RANK);
    CHECK(MPI_Group_size(MPI_GROUP_NULL, &place) == MPI_ERR_GROUP);
    MPI_Group_free(&made);
    MPI_Group_free(&odd);
    MPI_Group_free(&low);
    MPI_Group_free(&all);
    return 0;
}

static void test_groups(void **state)
{
    (void)state;
    run_well(8, groups);
}

/* ---- making communicators ----------------------------------------------- */

/* Whether messages go around in a communicator, and only in it. */
static bool goes_round(MPI_Comm comm)
{
    int rank, size, in = -1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 0, &in, 1, MPI_INT,
                 MPI_ANY_SOURCE, MPI_ANY_TAG, comm, MPI_STATUS_IGNORE);
    return in == (rank + size - 1) % size;
}

static int dup(int rank, int size)
{
    MPI_Comm comm, again, later;
    MPI_Request request;
    int out = rank, in = -1, result;
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
    CHECK(MPI_Comm_dup(comm, &again) == MPI_SUCCESS);
    CHECK(MPI_Comm_compare(comm, again, &result) == MPI_SUCCESS);
    CHECK(result == MPI_CONGRUENT);
    CHECK(MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &result) ==
          MPI_SUCCESS);
    CHECK(result == MPI_IDENT);
    /* The same message in three of them, received in another order. */
    MPI_Comm comms[3] = {MPI_COMM_WORLD, comm, again};
    for (int i = 0; i < 3; i++) {
        out = 100 * i + rank;
        CHECK(MPI_Send(&out, 1, MPI_INT, (rank + 1) % size, 0, comms[i]) ==
              MPI_SUCCESS);
    }
    for (int i = 2; i >= 0; i--) {
        CHECK(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, comms[i],
                       MPI_STATUS_IGNORE) == MPI_SUCCESS);
        CHECK(in == 100 * i + (rank + size - 1) % size);
    }
    /* In the background, with messages and another dup in between. */
    CHECK(MPI_Comm_idup(comm, &later, &request) == MPI_SUCCESS);
    CHECK(goes_round(comm));
    MPI_Comm third;
    CHECK(MPI_Comm_dup(comm, &third) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(goes_round(third) && goes_round(later));
    CHECK(MPI_Comm_free(&third) == MPI_SUCCESS && third == MPI_COMM_NULL);
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    CHECK(goes_round(again));
    CHECK(MPI_Comm_free(&again) == MPI_SUCCESS);
    CHECK(MPI_Comm_disconnect(&later) == MPI_SUCCESS);
    return 0;
}

static void test_dup(void **state)
{
    (void)state;
    run_well(1, dup);
    run_well(7, dup);
}

static int split(int rank, int size)
{
    MPI_Comm comm, part;
    int place = -1, count = -1, result;
    /* Three colours, in the opposite order, and one rank without. */
    int colour = rank == 5 ? MPI_UNDEFINED : rank % 3;
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, colour, -rank, &comm) == MPI_SUCCESS);
    if (rank == 5) {
        CHECK(comm == MPI_COMM_NULL);
    } else {
        int members = 0, before = 0;
        for (int i = 0; i < size; i++) {
            members += i != 5 && i % 3 == colour;
            before += i != 5 && i % 3 == colour && i > rank;
        }
        CHECK(MPI_Comm_rank(comm, &place) == MPI_SUCCESS && place == before);
        CHECK(MPI_Comm_size(comm, &count) == MPI_SUCCESS && count == members);
        CHECK(goes_round(comm));
        CHECK(MPI_Comm_split(comm, place / 2, 0, &part) == MPI_SUCCESS);
        CHECK(goes_round(part));
        CHECK(MPI_Comm_compare(comm, part, &result) == MPI_SUCCESS);
        CHECK(result == (members <= 2 ? MPI_CONGRUENT : MPI_UNEQUAL));
        CHECK(MPI_Comm_free(&part) == MPI_SUCCESS);
        CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    }
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm) == MPI_SUCCESS);
    CHECK(MPI_Comm_compare(comm, MPI_COMM_WORLD, &result) == MPI_SUCCESS);
    CHECK(result == (size == 1 ? MPI_CONGRUENT : MPI_SIMILAR));
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0,
                              MPI_INFO_NULL, &comm) == MPI_SUCCESS);
    CHECK(MPI_Comm_size(comm, &count) == MPI_SUCCESS && count == size);
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, -5, 0, &comm) == MPI_ERR_ARG);
    CHECK(MPI_Comm_split(MPI_COMM_NULL, 0, 0, &comm) == MPI_ERR_COMM);
    return 0;
}

static void test_split(void **state)
{
    (void)state;
    run_well(1, split);
    run_well(9, split);
    run_well(64, split);
}

static int create(int rank, int size)
{
    MPI_Group all, some;
    MPI_Comm comm;
    CHECK(size >= 4);
    CHECK(MPI_Comm_group(MPI_COMM_WORLD, &all) == MPI_SUCCESS);
    CHECK(MPI_Group_incl(all, 3, (int[]){3, 0, 2}, &some) == MPI_SUCCESS);
    CHECK(MPI_Comm_create(MPI_COMM_WORLD, some, &comm) == MPI_SUCCESS);
    bool member = rank == 0 || rank == 2 || rank == 3;
    CHECK((comm != MPI_COMM_NULL) == member);
    if (member) {
        CHECK(goes_round(comm));
        CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
        /* Only they call it; the others are elsewhere. */
        CHECK(MPI_Comm_create_group(MPI_COMM_WORLD, some, 17, &comm) ==
              MPI_SUCCESS);
        CHECK(goes_round(comm));
        CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    }
    CHECK(MPI_Group_free(&some) == MPI_SUCCESS);
    CHECK(MPI_Group_free(&all) == MPI_SUCCESS);
    return 0;
}

static void test_create(void **state)
{
    (void)state;
    run_well(4, create);
    run_well(6, create);
}

/* Freed while something is under way: it is finished all the same. */
static int freed_early(int rank, int size)
{
    MPI_Comm comm;
    MPI_Request requests[2];
    int *out = calloc(50000, sizeof(int)), *in = calloc(50000, sizeof(int));
    int left = (rank + size - 1) % size;
    for (int i = 0; i < 50000; i++) {
        out[i] = rank + i;
    }
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
    CHECK(MPI_Irecv(in, 50000, MPI_INT, left, 0, comm, &requests[0]) ==
          MPI_SUCCESS);
    CHECK(MPI_Isend(out, 50000, MPI_INT, (rank + 1) % size, 0, comm,
                    &requests[1]) == MPI_SUCCESS);
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    CHECK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    CHECK(in[0] == left && in[49999] == left + 49999);
    free(in);
    free(out);
    return 0;
}

static void test_freed_early(void **state)
{
    (void)state;
    run_well(3, freed_early);
}

/* ---- intercommunicators ------------------------------------------------- */

/* Everybody sends to everybody of the other side. */
static bool crosses(MPI_Comm inter, int offset)
{
    int rank, size, remote, ok = 1;
    MPI_Comm_rank(inter, &rank);
    MPI_Comm_size(inter, &size);
    MPI_Comm_remote_size(inter, &remote);
    for (int i = 0; i < remote; i++) {
        int out = rank + offset;
        MPI_Send(&out, 1, MPI_INT, i, 3, inter);
    }
    for (int i = 0; i < remote; i++) {
        int in = -1;
        MPI_Status status;
        MPI_Recv(&in, 1, MPI_INT, i, 3, inter, &status);
        ok &= status.MPI_SOURCE == i && in % 100 == i && in / 100 == !offset;
    }
    return ok;
}

static int intercomm(int rank, int size)
{
    MPI_Comm half, inter, again, merged;
    int flag = 0, count = -1, place = -1;
    bool low = rank < size / 3;
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, low, 0, &half) == MPI_SUCCESS);
    CHECK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? size / 3 : 0, 9,
                               &inter) == MPI_SUCCESS);
    CHECK(MPI_Comm_test_inter(inter, &flag) == MPI_SUCCESS && flag);
    CHECK(MPI_Comm_test_inter(half, &flag) == MPI_SUCCESS && !flag);
    CHECK(MPI_Comm_remote_size(inter, &count) == MPI_SUCCESS);
    CHECK(count == (low ? size - size / 3 : size / 3));
    CHECK(crosses(inter, low ? 100 : 0));
    CHECK(MPI_Comm_dup(inter, &again) == MPI_SUCCESS);
    CHECK(crosses(again, low ? 100 : 0));
    int result;
    CHECK(MPI_Comm_compare(inter, again, &result) == MPI_SUCCESS);
    CHECK(result == MPI_CONGRUENT);
    MPI_Group remote;
    CHECK(MPI_Comm_remote_group(inter, &remote) == MPI_SUCCESS);
    CHECK(MPI_Group_size(remote, &flag) == MPI_SUCCESS && flag == count);
    CHECK(MPI_Group_free(&remote) == MPI_SUCCESS);
    /* The high side last: here the ranks that were first. */
    CHECK(MPI_Intercomm_merge(inter, low, &merged) == MPI_SUCCESS);
    CHECK(MPI_Comm_rank(merged, &place) == MPI_SUCCESS);
    CHECK(place == (low ? rank + size - size / 3 : rank - size / 3));
    CHECK(goes_round(merged));
    CHECK(MPI_Comm_free(&merged) == MPI_SUCCESS);
    CHECK(MPI_Intercomm_merge(inter, 0, &merged) == MPI_SUCCESS);
    CHECK(MPI_Comm_rank(merged, &place) == MPI_SUCCESS && place == rank);
    CHECK(MPI_Comm_free(&merged) == MPI_SUCCESS);
    CHECK(MPI_Comm_free(&again) == MPI_SUCCESS);
    CHECK(MPI_Comm_free(&inter) == MPI_SUCCESS);
    CHECK(MPI_Comm_free(&half) == MPI_SUCCESS);
    MPI_Comm parent = MPI_COMM_WORLD;
    CHECK(MPI_Comm_get_parent(&parent) == MPI_SUCCESS);
    CHECK(parent == MPI_COMM_NULL);
    return 0;
}

static void test_intercomm(void **state)
{
    (void)state;
    run_well(3, intercomm);
    run_well(8, intercomm);
}

/* ---- attributes --------------------------------------------------------- */

static int copy_plus_one(MPI_Comm comm, int keyval, void *extra, void *in,
                         void *out, int *flag)
{
    CHECK(comm != MPI_COMM_NULL && keyval > 0);
    ++*(int *)extra;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int count_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    CHECK(comm != MPI_COMM_NULL && keyval > 0 && value);
    *(int *)extra += 100;
    return MPI_SUCCESS;
}

static int refuse_delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm;
    (void)keyval;
    (void)value;
    return --*(int *)extra >= 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int attributes(int rank, int size)
{
    (void)rank;
    int calls = 0, refusals = 1, flag = 0, key, plain, stubborn;
    char data[4], *value = NULL;
    int *limit = NULL;
    MPI_Comm comm;
    CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &flag) ==
          MPI_SUCCESS);
    CHECK(flag && *limit >= 32767);
    CHECK(MPI_Attr_get(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &limit, &flag) ==
          MPI_SUCCESS);
    CHECK(flag && *limit == size);
    CHECK(MPI_Comm_create_keyval(copy_plus_one, count_delete, &key, &calls) ==
          MPI_SUCCESS);
    CHECK(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN,
                                 &plain, NULL) == MPI_SUCCESS);
    CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, key, &value, &flag) == MPI_SUCCESS);
    CHECK(!flag);
    CHECK(MPI_Comm_set_attr(MPI_COMM_WORLD, key, data) == MPI_SUCCESS);
    CHECK(MPI_Attr_put(MPI_COMM_WORLD, plain, data + 3) == MPI_SUCCESS);
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
    CHECK(calls == 1);
    CHECK(MPI_Comm_get_attr(comm, key, &value, &flag) == MPI_SUCCESS);
    CHECK(flag && value == data + 1);
    CHECK(MPI_Comm_get_attr(comm, plain, &value, &flag) == MPI_SUCCESS);
    CHECK(!flag);
    CHECK(MPI_Comm_set_attr(comm, key, data + 2) == MPI_SUCCESS);
    CHECK(calls == 101);
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    CHECK(calls == 201);
    CHECK(MPI_Comm_delete_attr(MPI_COMM_WORLD, key) == MPI_SUCCESS);
    CHECK(calls == 301);
    /* Freed while it is in use; the attribute stays until it is deleted. */
    CHECK(MPI_Comm_set_attr(MPI_COMM_SELF, key, data) == MPI_SUCCESS);
    int gone = key;
    CHECK(MPI_Comm_free_keyval(&key) == MPI_SUCCESS);
    CHECK(key == MPI_KEYVAL_INVALID);
    CHECK(MPI_Comm_get_attr(MPI_COMM_SELF, gone, &value, &flag) == MPI_SUCCESS);
    CHECK(flag && value == data);
    CHECK(MPI_Attr_delete(MPI_COMM_SELF, gone) == MPI_SUCCESS);
    CHECK(calls == 401);
    /* A delete function that fails keeps the communicator. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Keyval_create(MPI_NULL_COPY_FN, refuse_delete, &stubborn,
                            &refusals) == MPI_SUCCESS);
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
    CHECK(MPI_Comm_set_attr(comm, stubborn, data) == MPI_SUCCESS);
    CHECK(MPI_Comm_free(&comm) == MPI_ERR_OTHER && comm != MPI_COMM_NULL);
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    CHECK(MPI_Comm_set_attr(MPI_COMM_WORLD, gone, data) == MPI_ERR_KEYVAL);
    return 0;
}

static void test_attributes(void **state)
{
    (void)state;
    run_well(3, attributes);
}

/* ---- error handlers ----------------------------------------------------- */

static _Thread_local int handled_code; /* one worker, hence one at a time */

static void handler(MPI_Comm *comm, int *code, ...)
{
    CHECK(*comm != MPI_COMM_NULL);
    handled_code = *code;
}

static int error_handlers(int rank, int size)
{
    (void)rank;
    MPI_Errhandler own, received;
    MPI_Comm comm;
    int class, code, length, data = 0;
    char text[MPI_MAX_ERROR_STRING];
    CHECK(MPI_Comm_get_errhandler(MPI_COMM_WORLD, &received) == MPI_SUCCESS);
    CHECK(received == MPI_ERRORS_ARE_FATAL);
    CHECK(MPI_Errhandler_free(&received) == MPI_SUCCESS);
    CHECK(MPI_Comm_create_errhandler(handler, &own) == MPI_SUCCESS);
    CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, own) == MPI_SUCCESS);
    CHECK(MPI_Errhandler_free(&own) == MPI_SUCCESS);
    CHECK(MPI_Send(&data, 1, MPI_INT, size, 0, MPI_COMM_WORLD) == MPI_ERR_RANK);
    CHECK(handled_code == MPI_ERR_RANK);
    /* It is inherited. */
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
    CHECK(MPI_Send(&data, -1, MPI_INT, 0, 0, comm) == MPI_ERR_COUNT);
    CHECK(handled_code == MPI_ERR_COUNT);
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    CHECK(MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_OTHER) ==
          MPI_SUCCESS);
    CHECK(handled_code == MPI_ERR_OTHER);
    CHECK(MPI_Add_error_class(&class) == MPI_SUCCESS);
    CHECK(class > MPI_ERR_LASTCODE);
    CHECK(MPI_Add_error_code(class, &code) == MPI_SUCCESS && code > class);
    CHECK(MPI_Add_error_string(code, "out of coffee") == MPI_SUCCESS);
    CHECK(MPI_Error_string(code, text, &length) == MPI_SUCCESS);
    CHECK(strcmp(text, "out of coffee") == 0 && length == 13);
    int found_class = 0;
    CHECK(MPI_Error_class(code, &found_class) == MPI_SUCCESS);
    CHECK(found_class == class);
    CHECK(MPI_Error_class(MPI_ERR_TAG, &found_class) == MPI_SUCCESS);
    CHECK(found_class == MPI_ERR_TAG);
    CHECK(MPI_Error_string(MPI_ERR_TRUNCATE, text, &length) == MPI_SUCCESS);
    CHECK(length > 0 && (int)strlen(text) == length);
    return 0;
}

static void test_error_handlers(void **state)
{
    (void)state;
    run_well(2, error_handlers);
}

/* ---- hints, names, surroundings ----------------------------------------- */

static int infos(int rank, int size)
{
    (void)rank;
    (void)size;
    MPI_Info info, copy;
    char value[MPI_MAX_INFO_VAL + 1], key[MPI_MAX_INFO_KEY + 1];
    int flag, count, length;
    CHECK(MPI_Info_create(&info) == MPI_SUCCESS);
    CHECK(MPI_Info_set(info, "a", "one") == MPI_SUCCESS);
    CHECK(MPI_Info_set(info, "b", "two") == MPI_SUCCESS);
    CHECK(MPI_Info_set(info, "a", "three") == MPI_SUCCESS);
    CHECK(MPI_Info_dup(info, &copy) == MPI_SUCCESS);
    CHECK(MPI_Info_delete(info, "a") == MPI_SUCCESS);
    CHECK(MPI_Info_get(info, "a", 10, value, &flag) == MPI_SUCCESS && !flag);
    CHECK(MPI_Info_get(copy, "a", 10, value, &flag) == MPI_SUCCESS && flag);
    CHECK(strcmp(value, "three") == 0);
    CHECK(MPI_Info_get(copy, "a", 2, value, &flag) == MPI_SUCCESS && flag);
    CHECK(strcmp(value, "th") == 0);
    CHECK(MPI_Info_get_valuelen(copy, "a", &length, &flag) == MPI_SUCCESS);
    CHECK(flag && length == 5);
    CHECK(MPI_Info_get_nkeys(copy, &count) == MPI_SUCCESS && count == 2);
    CHECK(MPI_Info_get_nthkey(copy, 1, key) == MPI_SUCCESS);
    CHECK(strcmp(key, "b") == 0);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Info_delete(info, "a") == MPI_ERR_INFO_NOKEY);
    CHECK(MPI_Info_set(info, "", "x") == MPI_ERR_INFO_KEY);
    CHECK(MPI_Info_get_nkeys(MPI_INFO_NULL, &count) == MPI_ERR_INFO);
    CHECK(MPI_Info_free(&info) == MPI_SUCCESS && info == MPI_INFO_NULL);
    CHECK(MPI_Info_free(&copy) == MPI_SUCCESS);
    CHECK(MPI_Comm_get_info(MPI_COMM_WORLD, &info) == MPI_SUCCESS);
    CHECK(MPI_Info_free(&info) == MPI_SUCCESS);
    return 0;
}

static int surroundings(int rank, int size)
{
    (void)rank;
    (void)size;
    char name[MPI_MAX_OBJECT_NAME], host[MPI_MAX_PROCESSOR_NAME];
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length, flag, major, minor;
    CHECK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length) == MPI_SUCCESS);
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0 && length == 14);
    CHECK(MPI_Comm_set_name(MPI_COMM_WORLD, "everybody") == MPI_SUCCESS);
    CHECK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length) == MPI_SUCCESS);
    CHECK(strcmp(name, "everybody") == 0);
    CHECK(MPI_Get_processor_name(host, &length) == MPI_SUCCESS);
    CHECK(length > 0 && (int)strlen(host) == length);
    CHECK(MPI_Get_version(&major, &minor) == MPI_SUCCESS && major == 3);
    CHECK(MPI_Get_library_version(version, &length) == MPI_SUCCESS);
    CHECK(strstr(version, "Poise") == version);
    double before = MPI_Wtime();
    CHECK(MPI_Wtime() >= before && MPI_Wtick() > 0);
    CHECK(MPI_Initialized(&flag) == MPI_SUCCESS && flag);
    CHECK(MPI_Finalized(&flag) == MPI_SUCCESS && !flag);
    CHECK(MPI_Is_thread_main(&flag) == MPI_SUCCESS && flag);
    CHECK(MPI_Query_thread(&flag) == MPI_SUCCESS);
    CHECK(flag == MPI_THREAD_SINGLE);
    void *memory = NULL;
    CHECK(MPI_Alloc_mem(100, MPI_INFO_NULL, &memory) == MPI_SUCCESS);
    memset(memory, 1, 100);
    CHECK(MPI_Free_mem(memory) == MPI_SUCCESS);
    return 0;
}

/* Numbers lead back to what they stand for, and are different. */
static int numbers(int rank, int size)
{
    (void)rank;
    (void)size;
    MPI_Comm comm;
    MPI_Group group;
    MPI_Info info;
    MPI_Request request;
    int data;
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm) == MPI_SUCCESS);
    CHECK(MPI_Comm_group(comm, &group) == MPI_SUCCESS);
    CHECK(MPI_Info_create(&info) == MPI_SUCCESS);
    CHECK(MPI_Recv_init(&data, 1, MPI_INT, 0, 0, comm, &request) ==
          MPI_SUCCESS);
    for (int i = 0; i < 2; i++) {
        CHECK(MPI_Comm_f2c(MPI_Comm_c2f(comm)) == comm);
        CHECK(MPI_Group_f2c(MPI_Group_c2f(group)) == group);
        CHECK(MPI_Info_f2c(MPI_Info_c2f(info)) == info);
        CHECK(MPI_Request_f2c(MPI_Request_c2f(request)) == request);
    }
    CHECK(MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
    CHECK(MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_SELF)) == MPI_COMM_SELF);
    CHECK(MPI_Comm_c2f(MPI_COMM_SELF) != MPI_Comm_c2f(MPI_COMM_WORLD));
    CHECK(MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_NULL)) == MPI_COMM_NULL);
    CHECK(MPI_Comm_f2c(12345) == MPI_COMM_NULL);
    CHECK(MPI_Type_f2c(MPI_Type_c2f(MPI_DOUBLE)) == MPI_DOUBLE);
    CHECK(MPI_Type_c2f(MPI_DOUBLE) != MPI_Type_c2f(MPI_INT));
    CHECK(MPI_Op_f2c(MPI_Op_c2f(MPI_SUM)) == MPI_SUM);
    CHECK(MPI_Errhandler_f2c(MPI_Errhandler_c2f(MPI_ERRORS_RETURN)) ==
          MPI_ERRORS_RETURN);
    CHECK(MPI_Message_f2c(MPI_Message_c2f(MPI_MESSAGE_NO_PROC)) ==
          MPI_MESSAGE_NO_PROC);
    CHECK(MPI_Request_free(&request) == MPI_SUCCESS);
    CHECK(MPI_Info_free(&info) == MPI_SUCCESS);
    CHECK(MPI_Group_free(&group) == MPI_SUCCESS);
    CHECK(MPI_Comm_free(&comm) == MPI_SUCCESS);
    return 0;
}

static void test_surroundings(void **state)
{
    (void)state;
    run_well(2, infos);
    run_well(2, surroundings);
    run_well(2, numbers);
}

static int thread_levels(int rank, int size)
{
    static const int asked[] = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED,
                                MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
    int flag, received = -1;
    CHECK(size == 4);
    CHECK(MPI_Initialized(&flag) == MPI_SUCCESS && !flag);
    CHECK(MPI_Init_thread(NULL, NULL, asked[rank], &received) == MPI_SUCCESS);
    CHECK(received == (rank ? MPI_THREAD_FUNNELED : MPI_THREAD_SINGLE));
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    CHECK(MPI_Finalized(&flag) == MPI_SUCCESS && flag);
    return 0;
}

static void test_thread_levels(void **state)
{
    (void)state;
    struct vrank_outcome out = run_ranks(4, 1, true, thread_levels);
    assert_int_equal(out.status, 0);
    assert_false(out.aborted);
}

static void *foreign_main(void *arg)
{
    int size;
    (void)arg;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return NULL;
}

static int foreign(int rank, int size)
{
    pthread_t thread;
    CHECK(rank < size);
    CHECK(pthread_create(&thread, NULL, foreign_main, NULL) == 0);
    pthread_join(thread, NULL);
    return 0;
}

static void test_foreign_thread(void **state)
{
    (void)state;
    run_badly(1, "MPI_Comm_size was called by a thread", foreign);
}

static int aborts(int rank, int size)
{
    int data;
    if (rank == size - 1) {
        MPI_Abort(MPI_COMM_WORLD, 42);
        CHECK(false);
    }
    MPI_Recv(&data, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    CHECK(false);
    return 0;
}

static void test_abort(void **state)
{
    (void)state;
    struct vrank_outcome out = run_ranks(3, 1, false, aborts);
    assert_true(out.aborted);
    assert_int_equal(out.status, 42);
    assert_non_null(strstr(poise_buf_str(&run.said),
                           "virtual rank 2 called MPI_Abort with code 42"));
    poise_buf_free(&run.said);
}

/* ---- no memory ---------------------------------------------------------- */

static int make_many(int rank, int size)
{
    MPI_Comm comm, half;
    MPI_Info info;
    int key;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, size - rank, &half);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &key,
                           NULL);
    MPI_Comm_set_attr(half, key, &comm);
    MPI_Comm_dup(half, &comm);
    MPI_Info_create(&info);
    MPI_Info_free(&info);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&half);
    return 0;
}

static void test_no_memory(void **state)
{
    (void)state;
    run_starved(3, 300, make_many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_dup),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_freed_early),
        cmocka_unit_test(test_intercomm),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_error_handlers),
        cmocka_unit_test(test_surroundings),
        cmocka_unit_test(test_thread_levels),
        cmocka_unit_test(test_foreign_thread),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
