/*
 * MPI's functions on groups. Those that make a group first list its members in
 * order.
 */
#include "vrank/mpi/comm.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Results of the functions below, before they become a group: at most `cap`
 * members. */
struct list {
    int *members;
    int count;
};

static int list_begin(struct list *list, size_t cap)
{
    list->count = 0;
    list->members = poise_alloc(cap ? cap : 1, sizeof *list->members);
    return list->members ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

/* Make the group, unless `code` says that something failed. */
static int list_end(struct vrank_mpi *mpi, struct list *list, int code,
                    MPI_Group *out)
{
    if (code == MPI_SUCCESS && list->count == 0) {
        *out = MPI_GROUP_EMPTY;
    } else if (code == MPI_SUCCESS) {
        code = group_make(mpi, list->members, list->count, out);
    }
    free(list->members);
    return code == MPI_SUCCESS ? code : mpi_fail(mpi, NULL, code, NULL);
}

static int bad_group(struct vrank_mpi *mpi)
{
    return mpi_fail(mpi, NULL, MPI_ERR_GROUP, "it is MPI_GROUP_NULL");
}

static int no_place(struct vrank_mpi *mpi)
{
    return mpi_fail(mpi, NULL, MPI_ERR_ARG, "the answer goes to NULL");
}

int MPI_Group_size(MPI_Group group, int *size)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Group_size");
    if (!group) {
        return bad_group(mpi);
    }
    if (!size) {
        return no_place(mpi);
    }
    *size = group->size;
    return MPI_SUCCESS;
}

int MPI_Group_rank(MPI_Group group, int *rank)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Group_rank");
    if (!group) {
        return bad_group(mpi);
    }
    if (!rank) {
        return no_place(mpi);
    }
    *rank = group->rank;
    return MPI_SUCCESS;
}

int MPI_Group_free(MPI_Group *group)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Group_free");
    if (!group || !*group) {
        return bad_group(mpi);
    }
    group_release(*group);
    *group = MPI_GROUP_NULL;
    return MPI_SUCCESS;
}

int MPI_Group_compare(MPI_Group a, MPI_Group b, int *result)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Group_compare");
    if (!a || !b) {
        return bad_group(mpi);
    }
    *result = group_compare(a, b);
    return MPI_SUCCESS;
}

int MPI_Group_translate_ranks(MPI_Group a, int count, const int *ranks,
                              MPI_Group b, int *result)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Group_translate_ranks");
    if (!a || !b) {
        return bad_group(mpi);
    }
    for (int i = 0; i < count; i++) {
        if (ranks[i] == MPI_PROC_NULL) {
            result[i] = MPI_PROC_NULL;
        } else if (ranks[i] < 0 || ranks[i] >= a->size) {
            return mpi_fail(mpi, NULL, MPI_ERR_RANK, "there is no rank %d",
                            ranks[i]);
        } else {
            result[i] = group_find(b, group_at(a, ranks[i]));
        }
    }
    return MPI_SUCCESS;
}

static int take_listed(MPI_Group group, int count, const int *ranks,
                       struct list *list)
{
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= group->size) {
            return MPI_ERR_RANK;
        }
        list->members[list->count++] = group_at(group, ranks[i]);
    }
    return MPI_SUCCESS;
}

int MPI_Group_incl(MPI_Group group, int count, const int *ranks, MPI_Group *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Group_incl");
    struct list list;
    if (!group) {
        return bad_group(mpi);
    }
    if (count < 0) {
        return mpi_fail(mpi, NULL, MPI_ERR_ARG, NULL);
    }
    int code = list_begin(&list, (size_t)count);
    if (code == MPI_SUCCESS) {
        code = take_listed(group, count, ranks, &list);
    }
    return list_end(mpi, &list, code, out);
}

/* The members of `group` whose `marks` are `wanted`, in order. */
static void take_marked(MPI_Group group, const char *marks, char wanted,
                        struct list *list)
{
    for (int i = 0; i < group->size; i++) {
        if (marks[i] == wanted) {
            list->members[list->count++] = group_at(group, i);
        }
    }
}

int MPI_Group_excl(MPI_Group group, int count, const int *ranks, MPI_Group *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Group_excl");
    struct list list = {0};
    if (!group) {
        return bad_group(mpi);
    }
    char *marks = poise_alloc((size_t)group->size + 1, 1);
    int code = marks ? list_begin(&list, (size_t)group->size) : MPI_ERR_NO_MEM;
    for (int i = 0; i < count && code == MPI_SUCCESS; i++) {
        if (ranks[i] < 0 || ranks[i] >= group->size) {
            code = MPI_ERR_RANK;
        } else {
            marks[ranks[i]] = 1;
        }
    }
    if (code == MPI_SUCCESS) {
        take_marked(group, marks, 0, &list);
    }
    free(marks);
    return list_end(mpi, &list, code, out);
}

/* Step through (first, last, stride) triplets. 0 at the end. */
static int check_range(const struct poise_mpi_group *group, const int *range)
{
    if (range[2] == 0) {
        return MPI_ERR_ARG;
    }
    for (int i = 0; i < 2; i++) {
        if (range[i] < 0 || range[i] >= group->size) {
            return MPI_ERR_RANK;
        }
    }
    return MPI_SUCCESS;
}

static int range_length(const int *range)
{
    int away = (range[1] - range[0]) / range[2];
    bool empty = range[2] > 0 ? range[1] < range[0] : range[1] > range[0];
    return empty ? 0 : away + 1;
}

/* The ranks of the triplets, in order. */
static int expand(MPI_Group group, int count, int ranges[][3],
                  struct list *list)
{
    size_t total = 0;
    for (int i = 0; i < count; i++) {
        int code = check_range(group, ranges[i]);
        if (code != MPI_SUCCESS) {
            list->members = NULL;
            return code;
        }
        total += (size_t)range_length(ranges[i]);
    }
    int code = list_begin(list, total);
    if (code != MPI_SUCCESS) {
        return code;
    }
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < range_length(ranges[i]); j++) {
            list->members[list->count++] = ranges[i][0] + j * ranges[i][2];
        }
    }
    return MPI_SUCCESS;
}

int MPI_Group_range_incl(MPI_Group group, int count, int ranges[][3],
                         MPI_Group *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Group_range_incl");
    struct list list = {0};
    if (!group) {
        return bad_group(mpi);
    }
    int code = expand(group, count, ranges, &list);
    for (int i = 0; i < list.count && code == MPI_SUCCESS; i++) {
        list.members[i] = group_at(group, list.members[i]);
    }
    return list_end(mpi, &list, code, out);
}

int MPI_Group_range_excl(MPI_Group group, int count, int ranges[][3],
                         MPI_Group *out)
{
    struct vrank_mpi *mpi = mpi_enter("MPI_Group_range_excl");
    struct list listed = {0};
    if (!group) {
        return bad_group(mpi);
    }
    int code = expand(group, count, ranges, &listed);
    if (code != MPI_SUCCESS) {
        free(listed.members);
        return mpi_fail(mpi, NULL, code, NULL);
    }
    code = MPI_Group_excl(group, listed.count, listed.members, out);
    free(listed.members);
    return code;
}

/* Mark which members of `a` are in `b`. NULL: no memory. */
static char *mark_common(MPI_Group a, MPI_Group b)
{
    char *marks = poise_alloc((size_t)a->size + 1, 1);
    char *in_b = poise_alloc((size_t)vrank_count(), 1);
    if (!marks || !in_b) {
        free(marks);
        free(in_b);
        return NULL;
    }
    for (int i = 0; i < b->size; i++) {
        in_b[group_at(b, i)] = 1;
    }
    for (int i = 0; i < a->size; i++) {
        marks[i] = in_b[group_at(a, i)];
    }
    free(in_b);
    return marks;
}

enum set_operation { SET_UNION, SET_INTERSECTION, SET_DIFFERENCE };

static int combine(struct vrank_mpi *mpi, enum set_operation operation,
                   MPI_Group a, MPI_Group b, MPI_Group *out)
{
    struct list list = {0};
    if (!a || !b) {
        return bad_group(mpi);
    }
    char *common = mark_common(a, b), *twice = mark_common(b, a);
    int code = common && twice
                   ? list_begin(&list, (size_t)a->size + (size_t)b->size)
                   : MPI_ERR_NO_MEM;
    if (code == MPI_SUCCESS) {
        if (operation != SET_DIFFERENCE) {
            take_marked(a, common, 1, &list);
        }
        if (operation == SET_UNION) {
            /* In a's order, not those in both first. */
            list.count = 0;
            for (int i = 0; i < a->size; i++) {
                list.members[list.count++] = group_at(a, i);
            }
            take_marked(b, twice, 0, &list);
        } else if (operation == SET_DIFFERENCE) {
            take_marked(a, common, 0, &list);
        }
    }
    free(common);
    free(twice);
    return list_end(mpi, &list, code, out);
}

int MPI_Group_union(MPI_Group a, MPI_Group b, MPI_Group *out)
{
    return combine(mpi_enter("MPI_Group_union"), SET_UNION, a, b, out);
}

int MPI_Group_intersection(MPI_Group a, MPI_Group b, MPI_Group *out)
{
    return combine(mpi_enter("MPI_Group_intersection"), SET_INTERSECTION, a, b,
                   out);
}

int MPI_Group_difference(MPI_Group a, MPI_Group b, MPI_Group *out)
{
    return combine(mpi_enter("MPI_Group_difference"), SET_DIFFERENCE, a, b,
                   out);
}
