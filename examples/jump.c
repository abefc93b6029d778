/*
 * How far each node of linked lists is from the end of its list, by pointer
 * jumping: in each version a node's successor becomes its successor's
 * successor. Which blocks a block needs is written in the block before: the
 * library asks again when that is there.
 *
 *     cc -O2 -shared -fPIC -o jump.so jump.c $(pkg-config --cflags poise)
 *     poise desync run -n 4 ./jump.so 100000
 *
 * usage: poise desync run jump.so NODES
 */
#include <poise/flow.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { NODES = 4096 }; /* of a block */

/* A node: the one it points to, and how far that is. The end points to
 * itself. */
struct node {
    uint64_t next, far;
};

struct lists {
    uint64_t count;
    struct poise_flow_file file;
    uint64_t sum, wrong;
};

/* The list that it is tried with: node i of the list is at i * A modulo the
 * number of nodes, which A has no factor in common with. */
static uint64_t step_of(uint64_t count)
{
    uint64_t a = count * 5 / 8 | 1, x, y, rest;
    for (;; a += 2) {
        for (x = a, y = count; y > 0; y = rest) {
            rest = x % y;
            x = y;
        }
        if (x == 1) {
            return a;
        }
    }
}

static uint64_t size_of(const struct lists *lists, int64_t block)
{
    uint64_t left = lists->count - (uint64_t)block * NODES;
    return left < NODES ? left : NODES;
}

static int add_all(const struct poise_flow_address *block, int64_t version,
                   const struct poise_flow_chunk *file,
                   struct poise_flow_list *out)
{
    struct poise_flow_address other = *block;
    int code = 0;
    other.version = version;
    for (int64_t i = 0; code == 0 && i < file->index[0].to; i++) {
        other.index[0] = i;
        code = poise_flow_list_add(out, &other);
    }
    return code < 0 ? code : 1;
}

static int depend(struct poise_flow_task *task,
                  const struct poise_flow_address *block,
                  const struct poise_flow_chunk *file,
                  enum poise_flow_direction direction,
                  struct poise_flow_list *out, void *arg)
{
    const struct lists *lists = arg;
    struct poise_flow_address before = *block;
    struct poise_flow_view view;
    if (direction == POISE_FLOW_FORWARD) {
        /* Anybody may point here. */
        return block->version + 1 < file->versions.to
                   ? add_all(block, block->version + 1, file, out)
                   : 1;
    }
    if (block->version == 0) {
        return 1;
    }
    before.version--;
    int code = poise_flow_list_add(out, &before);
    if (code < 0 || poise_flow_read(task, &before, &view) < 0) {
        return code; /* 0: ask again when that block is there */
    }
    const struct node *nodes = view.data;
    uint64_t blocks = (uint64_t)file->index[0].to;
    bool *named = calloc(blocks, sizeof *named);
    if (!named) {
        return -ENOMEM;
    }
    named[block->index[0]] = true;
    for (uint64_t i = 0; code == 0 && i < size_of(lists, block->index[0]);
         i++) {
        uint64_t b = nodes[i].next / NODES;
        if (!named[b]) {
            named[b] = true;
            before.index[0] = (int64_t)b;
            code = poise_flow_list_add(out, &before);
        }
    }
    free(named);
    return code < 0 ? code : 1;
}

static void begin(const struct lists *lists, uint64_t first, uint64_t count,
                  struct node *out)
{
    uint64_t step = step_of(lists->count);
    uint64_t last = (lists->count - step % lists->count) % lists->count;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = first + i;
        out[i].next = at == last ? at : (at + step) % lists->count;
        out[i].far = at != last;
    }
}

static int compute(struct poise_flow_task *task,
                   const struct poise_flow_address *block,
                   const struct poise_flow_chunk *file, void *arg)
{
    const struct lists *lists = arg;
    uint64_t count = size_of(lists, block->index[0]), held = UINT64_MAX;
    struct poise_flow_address from = *block;
    struct poise_flow_view view = {0}, other = {0};
    struct node *out = poise_flow_make(task, count * sizeof *out);
    int code = out ? 0 : -ENOMEM;
    (void)file;
    if (code == 0 && block->version == 0) {
        begin(lists, (uint64_t)block->index[0] * NODES, count, out);
        return poise_flow_write(task, block, out, count * sizeof *out);
    }
    from.version--;
    code = code == 0 ? poise_flow_read(task, &from, &view) : code;
    for (uint64_t i = 0; code == 0 && i < count; i++) {
        const struct node *node = (const struct node *)view.data + i;
        uint64_t b = node->next / NODES;
        if (b != held) {
            poise_flow_free(task, &other);
            from.index[0] = (int64_t)b;
            code = poise_flow_read(task, &from, &other);
            held = b;
        }
        if (code == 0) {
            const struct node *next =
                (const struct node *)other.data + node->next % NODES;
            out[i].next = next->next;
            out[i].far = node->far + next->far;
        }
    }
    return code < 0 ? code
                    : poise_flow_write(task, block, out, count * sizeof *out);
}

static int output(const struct poise_flow_address *block, const void *data,
                  size_t len, void *arg)
{
    struct lists *lists = arg;
    const struct node *nodes = data;
    (void)block;
    for (size_t i = 0; i < len / sizeof *nodes; i++) {
        lists->sum += nodes[i].far;
        lists->wrong += nodes[i].far >= lists->count;
    }
    return 0;
}

static int finish(int code, void *arg)
{
    struct lists *lists = arg;
    if (code == 0) {
        /* 0 + 1 + ... + count - 1 */
        uint64_t sum = lists->count * (lists->count - 1) / 2;
        printf("%" PRIu64 " nodes, ranks %s\n", lists->count,
               sum == lists->sum && lists->wrong == 0 ? "right" : "wrong");
    }
    free(lists);
    return 0;
}

int poise_flow_open(int argc, char **argv, struct poise_flow_program *out)
{
    const char *end = "";
    int64_t count = argc == 2 ? strtoll(argv[1], (char **)&end, 10) : 0,
            versions = 1;
    if (count < 1 || count > INT32_MAX || *end != '\0') {
        return poise_error_set(EINVAL, "run", argv[0],
                               "it wants a number of nodes");
    }
    struct lists *lists = calloc(1, sizeof *lists);
    if (!lists) {
        return -ENOMEM;
    }
    while (INT64_C(1) << (versions - 1) < count) {
        versions++;
    }
    lists->count = (uint64_t)count;
    lists->file = (struct poise_flow_file){
        .name = "nodes",
        .shape = {.dims = 1,
                  .versions = {0, versions},
                  .index = {{0, (count - 1) / NODES + 1}}}};
    *out = (struct poise_flow_program){
        .job = {.files = &lists->file,
                .file_count = 1,
                .app = {.depend = depend, .compute = compute, .arg = lists}},
        .output = output,
        .finish = finish,
        .arg = lists};
    return 0;
}
