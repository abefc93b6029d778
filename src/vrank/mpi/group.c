/*
 * Groups: ordered sets of ranks. A row of ranks at equal distances, as most
 * groups are, takes no list.
 */
#include "comm.h"

#include <stdlib.h>
#include <string.h>

const struct poise_mpi_group poise_mpi_group_empty = {
    .refs = 1, .rank = MPI_UNDEFINED, .stride = 1};

int group_find(const struct poise_mpi_group *group, int number)
{
    if (!group->members) {
        int away = number - group->first;
        int place = group->size > 0 ? away / group->stride : -1;
        return place >= 0 && place < group->size &&
                       place * group->stride == away
                   ? place
                   : MPI_UNDEFINED;
    }
    for (int i = 0; i < group->size; i++) {
        if (group->members[i] == number) {
            return i;
        }
    }
    return MPI_UNDEFINED;
}

int group_range(struct vrank_mpi *mpi, int first, int stride, int size,
                MPI_Group *out)
{
    struct poise_mpi_group *group = poise_alloc(1, sizeof *group);
    if (!group) {
        return MPI_ERR_NO_MEM;
    }
    group->refs = 1;
    group->size = size;
    group->first = first;
    group->stride = stride;
    group->rank = group_find(group, mpi->number);
    *out = group;
    return MPI_SUCCESS;
}

static bool is_row(const int *members, int size)
{
    for (int i = 2; i < size; i++) {
        if (members[i] - members[i - 1] != members[1] - members[0]) {
            return false;
        }
    }
    return true;
}

int group_make(struct vrank_mpi *mpi, const int *members, int size,
               MPI_Group *out)
{
    MPI_Group group;
    bool row = is_row(members, size);
    int code = group_range(mpi, size > 0 ? members[0] : 0,
                           row && size > 1 ? members[1] - members[0] : 1, size,
                           &group);
    if (code != MPI_SUCCESS || row) {
        if (code == MPI_SUCCESS) {
            *out = group;
        }
        return code;
    }
    group->members = poise_alloc((size_t)size, sizeof *members);
    if (!group->members) {
        free(group);
        return MPI_ERR_NO_MEM;
    }
    memcpy(group->members, members, (size_t)size * sizeof *members);
    group->rank = group_find(group, mpi->number);
    *out = group;
    return MPI_SUCCESS;
}

MPI_Group group_hold(MPI_Group group)
{
    if (group != MPI_GROUP_EMPTY) {
        group->refs++;
    }
    return group;
}

void group_release(MPI_Group group)
{
    if (group && group != MPI_GROUP_EMPTY && --group->refs == 0) {
        free(group->members);
        free(group);
    }
}

int group_compare(const struct poise_mpi_group *a,
                  const struct poise_mpi_group *b)
{
    int result = MPI_IDENT;
    if (a->size != b->size) {
        return MPI_UNEQUAL;
    }
    for (int i = 0; i < a->size; i++) {
        if (group_at(a, i) != group_at(b, i)) {
            result = MPI_SIMILAR;
            if (group_find(b, group_at(a, i)) == MPI_UNDEFINED) {
                return MPI_UNEQUAL;
            }
        }
    }
    return result;
}
