/* GNU find and GNU du as oracles. */
#include "oracle.h"

#include <sys/wait.h>

const struct oracle_shape oracle_shapes[ORACLE_SHAPES] = {
    {0, 1, POISE_POLICY_HYBRID, POISE_SPLIT_RANDOM},
    {0, 4, POISE_POLICY_HYBRID, POISE_SPLIT_HALF},
    {2, 1, POISE_POLICY_RANDOM, POISE_SPLIT_HALF},
    {8, 1, POISE_POLICY_NEAR, POISE_SPLIT_RANDOM},
    {1, 3, POISE_POLICY_HYBRID, POISE_SPLIT_HALF},
    {3, 1, POISE_POLICY_CENTRAL, POISE_SPLIT_RANDOM},
    {4, 2, POISE_POLICY_HYBRID, POISE_SPLIT_RANDOM},
    {5, 1, POISE_POLICY_CENTRAL_KEEP, POISE_SPLIT_HALF},
    {0, 2, POISE_POLICY_HYBRID, POISE_SPLIT_RANDOM},
    {6, 1, POISE_POLICY_NEAR, POISE_SPLIT_HALF},
    {7, 1, POISE_POLICY_RANDOM, POISE_SPLIT_RANDOM},
    {2, 4, POISE_POLICY_HYBRID, POISE_SPLIT_HALF},
};

int oracle_split(char *line, const char **words)
{
    int count = 0;
    char *save;
    for (char *word = strtok_r(line, " ", &save);
         word && count < ORACLE_WORDS - 1; word = strtok_r(NULL, " ", &save)) {
        words[count++] = word;
    }
    words[count] = NULL;
    return count;
}

void oracle_records(const struct poise_buf *text, struct tree_list *out)
{
    size_t start = 0;
    for (size_t i = 0; i < text->len; i++) {
        if (text->data[i] == '\n' || text->data[i] == '\0') {
            tree_list_add(out, text->data + start, i - start);
            start = i + 1;
        }
    }
    if (start < text->len) {
        tree_list_add(out, text->data + start, text->len - start);
    }
    tree_list_sort(out);
}

int oracle_run(const char *const *argv, struct poise_buf *out)
{
    int ends[2];
    if (pipe(ends) != 0) {
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(ends[1], STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(ends[1]);
    char buf[65536];
    ssize_t got;
    while ((got = read(ends[0], buf, sizeof buf)) > 0) {
        poise_buf_append(out, buf, (size_t)got);
    }
    close(ends[0]);
    int status;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void oracle_shape_set(struct poise_walk_options *walk,
                      const struct oracle_shape *shape)
{
    walk->pool.threads = shape->threads;
    walk->pool.policy = shape->policy;
    walk->pool.split = shape->split;
    walk->pool.seed = 7;
}

int oracle_world(int ranks, rank_fn one, void *arg)
{
    struct poise_local_options options = {.reorder = true, .seed = 3};
    int codes[MOST_RANKS];
    if (ranks == 0) {
        return one(NULL, arg);
    }
    assert_int_equal(run_all(ranks, &options, one, arg, codes), 0);
    for (int r = 1; r < ranks; r++) {
        assert_int_equal(codes[r], codes[0]);
    }
    return codes[0];
}

void oracle_compare(const char *program, const char *words,
                    const struct oracle_shape *shape,
                    void (*ours)(const struct oracle_shape *shape, int argc,
                                 const char *const *argv,
                                 struct oracle_answer *answer))
{
    char line[512];
    const char *argv[ORACLE_WORDS] = {program};
    snprintf(line, sizeof line, "%s", words);
    int argc = oracle_split(line, argv + 1);
    struct poise_buf text = {0};
    struct oracle_answer answer = {.code = 0};
    int code = oracle_run(argv, &text);
    ours(shape, argc, argv + 1, &answer);
    struct tree_list want = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct tree_list got = {.lock = PTHREAD_MUTEX_INITIALIZER};
    oracle_records(&text, &want);
    oracle_records(&answer.out, &got);
    bool failed = answer.code < 0 || answer.errors > 0;
    if (!tree_list_equal(&got, &want) || failed != (code != 0)) {
        fail_msg("%s %s: %zu records, GNU %zu; code %d with %llu errors, "
                 "GNU %d",
                 program, words, got.count, want.count, answer.code,
                 (unsigned long long)answer.errors, code);
    }
    tree_list_free(&want);
    tree_list_free(&got);
    poise_buf_free(&text);
    poise_buf_free(&answer.out);
}

void oracle_documents(int dirfd, const char *name)
{
    enum { FOLDERS = 150 };
    int doc = tree_dir(dirfd, name), before = -1;
    struct poise_rng rng;
    char text[64];
    poise_rng_seed(&rng, 5);
    for (int i = 0; i < FOLDERS; i++) {
        snprintf(text, sizeof text, "lib%d-%d", i * 37 % FOLDERS, i);
        int folder = tree_dir(doc, text);
        for (int k = i % 5; k > 0; k--) {
            snprintf(text, sizeof text, k == 1 ? "copyright" : "changelog%d.gz",
                     k);
            int fd = openat(folder, text, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
            size_t len = poise_rng_below(&rng, UINT64_C(1) << (k * 4));
            char *bytes = calloc(1, len + 1);
            assert_true(fd >= 0 && bytes && write(fd, bytes, len) >= 0);
            free(bytes);
            close(fd);
        }
        if (before >= 0 && i % 4 == 0) {
            linkat(before, "copyright", folder, "copyright-too", 0);
            snprintf(text, sizeof text, "../lib%d-%d", i * 37 % FOLDERS, i - 1);
            symlinkat(text, folder, "see");
        }
        if (i % 10 == 0) {
            close(tree_dir(folder, "examples"));
        }
        if (before >= 0) {
            close(before);
        }
        before = folder;
    }
    close(before);
    close(doc);
}
