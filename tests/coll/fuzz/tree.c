/*
 * Tree files: whatever they hold, either an error or a tree, which is written
 * and read again as the same. The first byte is the number of ranks.
 */
#include "../../fuzz/fuzz.h"

#include "coll/tree/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void check(bool holds)
{
    if (!holds) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const char *const names[] = {"a", "b", "c", "b"};
    const char *hosts[16];
    struct poise_coll_tree *tree, *again;
    struct poise_buf text = {0};
    if (len == 0) {
        return 0;
    }
    int size = data[0] % 16 + 1;
    for (int rank = 0; rank < size; rank++) {
        hosts[rank] = names[rank % 4];
    }
    int code = coll_tree_parse((const char *)data + 1, len - 1, "fuzz", hosts,
                               size, &tree);
    check(code == 0 || code == -EINVAL);
    if (code < 0) {
        return 0;
    }
    check(poise_coll_tree_write(tree, &text) == 0);
    check(coll_tree_parse(text.data, text.len, "again", NULL, size, &again) ==
          0);
    check(memcmp(tree->parent, again->parent,
                 (size_t)size * sizeof *tree->parent) == 0);
    check(memcmp(tree->over, again->over, (size_t)size) == 0);
    for (int rank = 0; rank < size; rank++) {
        int steps = 0;
        for (int at = rank; at >= 0; at = tree->parent[at]) {
            check(at < size && steps++ < size);
        }
    }
    poise_buf_free(&text);
    poise_coll_tree_free(tree);
    poise_coll_tree_free(again);
    return 0;
}
