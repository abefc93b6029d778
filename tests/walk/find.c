/*
 * find against GNU find: the same words, the same answers once sorted, over
 * threads, ranks and policies; -delete, -quit, -ok, faults, and a checkpoint.
 */
#include "../share.h"
#include "../temporary.h"
#include "oracle.h"

#include <poise/checkpoint.h>
#include <poise/find.h>

#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

static char where[256];
static int top_fd, where_fd; /* `where`; the tree below it */

static void make_file(const char *name, off_t size, mode_t mode)
{
    int fd = open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    fchmod(fd, mode);
    close(fd);
}

static void make_times(void)
{
    static const struct {
        const char *name;
        double days;
    } files[] = {{"new", 0.01}, {"day", 1.3}, {"week", 7.5}, {"future", -3}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        make_file(files[i].name, (off_t)i, 0640);
        struct timespec now, times[2];
        clock_gettime(CLOCK_REALTIME, &now);
        now.tv_sec -= (time_t)(files[i].days * 86400);
        now.tv_nsec = 123456789;
        times[0] = times[1] = now;
        times[0].tv_sec -= 3 * 86400;
        assert_int_equal(utimensat(AT_FDCWD, files[i].name, times, 0), 0);
    }
}

static int set_up(void **state)
{
    (void)state;
    setenv("LC_ALL", "C", 1);
    top_fd = tree_temporary(where);
    if (top_fd < 0 || mkdirat(top_fd, "tree", 0755) != 0 ||
        fchdir(top_fd) != 0 || chdir("tree") != 0) {
        return -1;
    }
    where_fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    oracle_documents(top_fd, "doc");
    tree_nasty(where_fd);
    make_file("sparse", 3 << 20, 0644);
    make_file("one.c", 1, 0755);
    make_file("two.C", 1024, 0600);
    make_file("set", 1025, 04711);
    make_file("none", 512, 0);
    make_file("aab", 513, 0444);
    make_file("a+b", 0, 0777);
    make_times();
    mkdir("sticky", 01777);
    chmod("empty", 02750);
    assert_int_equal(symlink("selfish", "selfish"), 0);
    assert_int_equal(symlink("one.c", "to-file"), 0);
    assert_int_equal(symlink("../..", "lopsided/level0/up"), 0);
    assert_int_equal(symlink("lopsided/level0", "inside"), 0);
    assert_int_equal(symlink("one.c/x", "not-in-a-file"), 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "socket"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (void *)&address, sizeof address), 0);
    return close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    close(where_fd);
    tree_empty(top_fd);
    close(top_fd);
    return rmdir(where);
}

/* ---- one find ----------------------------------------------------------- */

struct job {
    struct oracle_shape shape;
    int argc;
    const char *const *argv; /* start paths and expression */
    int leading, paths;
    struct poise_walk_find *find;
    struct poise_buf out;
    uint64_t messages; /* __atomic: calls of the error hook */
    uint64_t errors;
    bool (*ask)(const char *question, size_t len, void *arg);
    const char *checkpoint, *resume;
    enum poise_fault fault; /* disarmed when the run is over */
    uint64_t fault_calls;
    size_t interrupt_bytes;
    int interrupt;
};

static int on_output(const void *data, size_t len, void *arg)
{
    struct job *job = arg;
    int code = poise_buf_append(&job->out, data, len);
    if (job->interrupt_bytes && job->out.len >= job->interrupt_bytes) {
        __atomic_store_n(&job->interrupt, SIGINT, __ATOMIC_RELAXED);
    }
    return code;
}

static int on_error(struct poise_worker *worker, const struct poise_error *err,
                    void *arg)
{
    (void)worker;
    struct job *job = arg;
    assert_true(err->code > 0);
    __atomic_fetch_add(&job->messages, 1, __ATOMIC_RELAXED);
    return 0;
}

static int find_rank(struct poise_world *world, void *arg)
{
    struct job *job = arg;
    static const char *const dot[] = {"."};
    struct poise_walk_find_options options = {
        .walk = {.roots = job->paths ? job->argv + job->leading : dot,
                 .root_count = job->paths ? (size_t)job->paths : 1},
        .find = job->find,
        .output = on_output,
        .error = on_error,
        .ask = job->ask,
        .arg = job,
    };
    oracle_shape_set(&options.walk, &job->shape);
    options.walk.pool.checkpoint = job->checkpoint;
    options.walk.pool.resume = job->resume;
    options.walk.pool.interrupt = &job->interrupt;
    struct poise_walk_result result;
    int code = poise_walk_find_run(world, &options, &result);
    if (!world || poise_world_rank(world) == 0) {
        job->errors = result.errors;
    }
    poise_walk_result_free(&result);
    return code;
}

/* Start paths are the words before the expression. */
static int count_paths(int argc, const char *const *argv)
{
    int paths = 0;
    while (paths < argc && argv[paths][0] != '-' && argv[paths][0] != '!' &&
           argv[paths][0] != '(') {
        paths++;
    }
    return paths;
}

/* What commands print goes to the same place as our own output. */
static int find_run(struct job *job)
{
    const char *words[ORACLE_WORDS];
    while (poise_walk_find_leads(job->argv[job->leading])) {
        words[job->leading] = job->argv[job->leading];
        job->leading++;
    }
    job->paths =
        count_paths(job->argc - job->leading, job->argv + job->leading);
    int skip = job->leading + job->paths, rest = job->argc - skip;
    memcpy(words + job->leading, job->argv + skip,
           (size_t)rest * sizeof *words);
    int code = poise_walk_find_compile(job->leading + rest, words, &job->find);
    if (code < 0) {
        return code;
    }
    char name[TEMPORARY_BYTES];
    int file = mkstemp(temporary_name(name, "find")), out = dup(STDOUT_FILENO);
    unlink(name);
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    code = oracle_world(job->shape.ranks, find_rank, job);
    job->fault_calls = poise_fault_calls(job->fault);
    poise_fault_arm(job->fault, 0, 0, false);
    dup2(out, STDOUT_FILENO);
    close(out);
    off_t size = lseek(file, 0, SEEK_END);
    char *to = poise_buf_reserve(&job->out, (size_t)size + 1);
    if (to) { /* not after an injected fault */
        assert_int_equal(pread(file, to, (size_t)size, 0), size);
        job->out.len += (size_t)size;
    }
    close(file);
    poise_walk_find_destroy(job->find);
    return code;
}

static void find_ours(const struct oracle_shape *shape, int argc,
                      const char *const *argv, struct oracle_answer *answer)
{
    struct job job = {.shape = *shape, .argc = argc, .argv = argv};
    answer->code = find_run(&job);
    answer->errors = job.errors;
    answer->out = job.out;
}

static void compare(const char *words, const struct oracle_shape *shape)
{
    oracle_compare("find", words, shape, find_ours);
}

#define ALL                                                                    \
    "%p|%f|%h|%P|%H|%d|%y|%Y|%l|%s|%b|%k|%m|%#m|%M|%n|%i|%u|%U|%g|%G|%D|%F|"   \
    "%S\\n"

static const char *const expressions[] = {
    ". -printf " ALL,
    "wide/ ./lopsided empty// one.c to-dir . -maxdepth 1 -printf " ALL,
    "/ // -maxdepth 0 -printf %p|%f|%h|%P|%H|%d|%y\\n",
    "-name *.c",
    "-name one.c -o -name *o*",
    "-iname *.c",
    "-name sub00?",
    "-name [a-c]*",
    "-name \\*",
    "-name *",
    ". -name .",
    "./ wide// -name wide",
    "-path ./wide/sub0*",
    "-path */file1",
    "-ipath ./WIDE/*9",
    "-wholename ./empty",
    "-regex ./a+b",
    "-regex .*sub\\(1\\|2\\)[0-9]*",
    "-regex ./a.newline",
    "-regextype findutils-default -regex ./a.newline",
    "-regextype posix-extended -regex .*/(sub|file)[0-9]{1,2}",
    "-regextype posix-basic -regex .*sub\\(1\\|2\\)[0-9]*",
    "-regextype egrep -iregex .*/(SUB|level).+",
    "-regextype grep -regex ./a+b",
    "-regextype sed -regex .*\\(1\\|2\\)",
    "-regextype awk -regex ./a+b",
    "-type f",
    "-type d,l",
    "-type p,s,b,c",
    "! -type d",
    "-xtype d",
    "-xtype l",
    "-xtype f,p",
    "-lname w*",
    "-ilname *ERE",
    "-size 1",
    "-size 0",
    "-size -1k",
    "-size 1k",
    "-size +1k",
    "-size 1024c",
    "-size -513c",
    "-size 2w",
    "-size +2M",
    "-size -1M -type f",
    "-size 3M",
    "-size 1G",
    "-empty",
    "-empty -type d",
    "-empty -name e*",
    "-links 1",
    "-links +1 -type f",
    "-links -3 -type d",
    "-inum +0",
    "-inum 1",
    "-samefile hard",
    "-samefile to-file",
    "-perm 644",
    "-perm -444",
    "-perm /022",
    "-perm /000",
    "-perm -000",
    "-perm u=rwx,go=rx",
    "-perm -u+s",
    "-perm /u+s,g+s,o+t",
    "-perm -o+t",
    "-perm -g=X",
    "-perm -a+X",
    "-perm u=rwx,g=u",
    "-perm =r",
    "-perm 0",
    "-perm ug=rw,o= -o -perm go-w",
    "-user 0",
    "-uid 0",
    "-uid +0",
    "-gid -1",
    "-gid 0",
    "-nouser",
    "-nogroup",
    "! -nouser",
    "-readable -name none",
    "-writable -type f",
    "-executable -type f",
    "-mtime 0",
    "-mtime 1",
    "-mtime -1",
    "-mtime +1",
    "-mtime -8 -mtime +6",
    "-mtime 7",
    "-mtime 1.2",
    "-atime 4",
    "-atime +9",
    "-ctime 0",
    "-ctime +0",
    "-mmin -30",
    "-mmin +30",
    "-mmin +1000 -mmin -3000",
    "-mmin -0",
    "-amin +5000",
    "-cmin -60",
    "-daystart -mtime 0",
    "-daystart -mtime -2",
    "-daystart -mtime +1",
    "-daystart -mmin +5000",
    "-newer day",
    "! -newer week",
    "-anewer week",
    "-cnewer future",
    "-newermm new",
    "-neweram week",
    "-newermc new",
    "-newermt 2020-01-01",
    "-newermt @1000000000.5",
    "-newermt 2038-01-01T10:00:00Z",
    "-fstype ext4",
    "-fstype proc",
    "-maxdepth 0",
    "-maxdepth 1",
    "-maxdepth 2 -mindepth 2",
    "-mindepth 1 -name wide -prune -o -print",
    "-mindepth 3 -type d",
    "-depth",
    "-depth -maxdepth 1",
    "-depth -mindepth 1 -type d",
    "-depth -name wide -prune -o -print",
    "-d -name sub01*",
    "-xdev -type d",
    "-mount -noleaf -nowarn -warn -name e*",
    "-ignore_readdir_race -name e*",
    "-name wide -prune -o -print",
    "-path ./lopsided/* -prune -o -type f -print",
    "-prune",
    "-true",
    "-false",
    "-false -o -print",
    "-true -o -print",
    "-print -false",
    "! -false",
    "-not -type d -not -name *.c",
    "! ! -name one.c",
    "( -name one.c -o -name two.C ) -print",
    "( ( -type f -o -type l ) -a ! -name *i* )",
    "-name one.c -o -name two.C -print",
    "-type f -size +1 -print -o -type d -empty -print0",
    "-name one.c , -name two.C",
    "-print , -name one.c -print",
    "-type f -false , -print",
    "-print -print",
    "-type d -or -name one.c -and -type f",
    "-print0",
    "-name one.c -ls",
    "-maxdepth 0 -fls /dev/stdout",
    "-type l -fprint /dev/stdout",
    "-type l -fprintf /dev/stdout %l\\n",
    "-type p -fprint0 /dev/stdout",
    "-printf [%10f][%-10f][%010s][%5d][%05d][%+d][%.2f][%3m][%06m][%#6m]\\n",
    "-printf [%-6mx][%10T@][%.3T@][%10M][%-7y][%5Y]\\n",
    "-printf a\\tb\\\\\\101\\1012\\a\\b\\f\\v\\r\\e\\q\\n",
    "-printf x\\cy",
    "-printf %q%Tq%5%%%|%-5%\\n",
    "-printf %a|%c|%t\\n",
    "-printf "
    "%T@|%TA|%Ta|%TB|%Tb|%TC|%Tc|%TD|%Td|%Te|%TF|%TG|%Tg|%TH|%Th|%TI|%Tj\\n",
    "-printf "
    "%Tk|%Tl|%TM|%Tm|%Tp|%Tr|%TR|%TS|%Ts|%TT|%TU|%Tu|%TV|%TW|%Tw|%Tx\\n",
    "-printf %A@|%C+|%T+|%TX|%TY|%Ty|%TZ|%Tz\\n",
    "nosuch",
    "nosuch empty -print",
    "lopsided -exec echo {} ;",
    /* A write for each line: those of two commands at once may mix. */
    "wide -exec stdbuf -oL printf %s\\n {} +",
    "lopsided wide empty -execdir printf %s\\n {} +",
    "wide -type f -name file5 -exec echo x{}y{} z ;",
    "-maxdepth 1 -exec false {} ; -print",
    "-maxdepth 1 -exec test -f {} ; -print",
    "-maxdepth 1 -exec false {} +",
    "-maxdepth 1 -exec nosuchcommand {} ;",
    "-maxdepth 1 -exec nosuchcommand {} +",
    "wide lopsided -name *5 -execdir echo {} ;",
    "wide lopsided -name *5 -execdir echo {} ; -exec echo {} ;",
    "lopsided/level0 / . -maxdepth 0 -execdir pwd ;",
    "-L . -printf " ALL,
    "-H to-dir . selfish to-file -printf " ALL,
    "-L to-dir inside -type f -o -type l",
    "-H inside -type d -links +1",
    "-P inside to-dir -ls",
    "-L -depth -type d",
    "-L -xtype l",
    "-L -xtype d -empty",
    "-L -lname *",
    "-H inside to-file -xtype l",
    "-L -samefile to-file",
    "-H . -samefile to-file",
    "-samefile to-file -follow",
    "-follow -samefile to-file",
    "-L -newer to-dir",
    "-L -maxdepth 2 -size -2 -printf %p|%Y|%y|%l\\n",
    "-L -xdev -name sub1*",
    "-L -O3 inside -name x -prune -o -print",
    "-used 3",
    "-used -1",
    "-used +0",
    "-uid -+1",
    "-gid ++0",
    "nosuch . -ignore_readdir_race -name e*",
    "../doc -type f -name c*",
    "../doc -size +8k -printf %p|%s|%T@\\n",
    "../doc -type l -printf %p|%l|%Y\\n",
    "../doc -depth -type d -empty",
};

static void test_expressions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof expressions / sizeof *expressions; i++) {
        if (!in_share(i)) {
            continue;
        }
        compare(expressions[i], &oracle_shapes[i % ORACLE_SHAPES]);
    }
}

/* Some over every shape. */
static void test_shapes(void **state)
{
    (void)state;
    for (size_t i = 0; i < ORACLE_SHAPES; i++) {
        compare("-printf %p|%s|%n\\n", &oracle_shapes[i]);
        compare("-depth -type d -print0", &oracle_shapes[i]);
        compare("wide -name file5 -exec echo {} ;", &oracle_shapes[i]);
        compare("-maxdepth 2 -name sub1* -prune -o -print", &oracle_shapes[i]);
    }
}

/* ---- actions with consequences ------------------------------------------ */

static void list_tree(const char *root, struct tree_list *out)
{
    memset(out, 0, sizeof *out);
    pthread_mutex_init(&out->lock, NULL);
    if (access(root, F_OK) == 0) {
        tree_truth(root, out);
    }
}

/* The same deletion in two copies; the same must be left. */
static void compare_delete(const char *words, const struct oracle_shape *shape)
{
    static const char *const copy[] = {
        "sh", "-c",
        "mkdir box box/wide && cp -a lopsided empty box && "
        "cp -a wide/sub00* wide/sub27* box/wide",
        NULL};
    struct tree_list left[2];
    int codes[2];
    for (int i = 0; i < 2; i++) {
        struct poise_buf text = {0};
        char line[512];
        const char *argv[ORACLE_WORDS] = {"find"};
        assert_int_equal(oracle_run(copy, &text), 0);
        snprintf(line, sizeof line, "%s", words);
        int argc = oracle_split(line, argv + 1);
        if (i == 0) {
            codes[0] = oracle_run(argv, &text);
        } else {
            struct job job = {.shape = *shape, .argc = argc, .argv = argv + 1};
            int rc = find_run(&job);
            codes[1] = rc < 0 || job.errors > 0;
            poise_buf_free(&job.out);
        }
        list_tree("box", &left[i]);
        tree_remove(where_fd, "box");
        poise_buf_free(&text);
    }
    if (!tree_list_equal(&left[1], &left[0]) || codes[0] != codes[1]) {
        fail_msg("find %s: code %d, GNU %d", words, codes[1], codes[0]);
    }
    tree_list_free(&left[0]);
    tree_list_free(&left[1]);
}

static void test_delete(void **state)
{
    (void)state;
    static const char *const deletions[] = {
        "box -delete",
        "box/ -delete",
        "box/. -delete",
        "box -mindepth 1 -delete",
        "box -type f -delete",
        "box -type d -empty -delete",
        "box -name sub00* -delete",
        "box -name file1 -delete -o -name file2 -delete",
        "box -depth -prune -delete",
    };
    for (size_t i = 0; i < sizeof deletions / sizeof *deletions; i++) {
        compare_delete(deletions[i], &oracle_shapes[i]);
    }
}

/* Exactly one, whoever is first. */
static void test_quit(void **state)
{
    (void)state;
    static const char *const argv[] = {"wide", "-name", "file*", "-print",
                                       "-quit"};
    for (size_t i = 0; i < ORACLE_SHAPES; i++) {
        struct job job = {.shape = oracle_shapes[i], .argc = 5, .argv = argv};
        assert_int_equal(find_run(&job), 0);
        assert_true(job.out.len > 0);
        const char *text = poise_buf_str(&job.out);
        assert_ptr_equal(strchr(text, '\n'), text + job.out.len - 1);
        assert_non_null(strstr(text, "/file"));
        poise_buf_free(&job.out);
    }
}

static bool agree_to_some(const char *question, size_t len, void *arg)
{
    (void)arg;
    return memmem(question, len, "one.c", 5) != NULL;
}

static void test_ok(void **state)
{
    (void)state;
    static const char *const argv[] = {".",    "-type", "f", "-ok",
                                       "echo", "{}",    ";"};
    struct job job = {.shape = oracle_shapes[1],
                      .argc = 7,
                      .argv = argv,
                      .ask = agree_to_some};
    assert_int_equal(find_run(&job), 0);
    assert_string_equal(poise_buf_str(&job.out), "./one.c\n");
    poise_buf_free(&job.out);
    job = (struct job){.shape = oracle_shapes[2], /* two ranks */
                       .argc = 7,
                       .argv = argv,
                       .ask = agree_to_some};
    assert_int_equal(find_run(&job), 0);
    assert_string_equal(poise_buf_str(&job.out), "./one.c\n");
    poise_buf_free(&job.out);
    job = (struct job){.shape = oracle_shapes[1], .argc = 7, .argv = argv};
    assert_int_equal(find_run(&job), -ENOTSUP);
    poise_buf_free(&job.out);
}

/* -fprint: one file, written by rank 0 for all. */
static void test_output_file(void **state)
{
    (void)state;
    static const char *const argv[] = {"wide",  "-fprint", "../listing",
                                       "-name", "file3",   "-print"};
    mkdir("box", 0755);
    for (size_t i = 0; i < ORACLE_SHAPES; i++) {
        const char *words[6];
        memcpy(words, argv, sizeof words);
        words[2] = "box/listing";
        struct job job = {.shape = oracle_shapes[i], .argc = 6, .argv = words};
        assert_int_equal(find_run(&job), 0);
        poise_buf_free(&job.out);
        struct poise_buf text = {0};
        static const char *const cat[] = {"cat", "box/listing", NULL};
        assert_int_equal(oracle_run(cat, &text), 0);
        struct tree_list ours = {.lock = PTHREAD_MUTEX_INITIALIZER}, truth;
        oracle_records(&text, &ours);
        list_tree("wide", &truth);
        assert_true(tree_list_equal(&ours, &truth));
        tree_list_free(&ours);
        tree_list_free(&truth);
        poise_buf_free(&text);
    }
    tree_remove(where_fd, "box");
}

/* ---- faults and checkpoints --------------------------------------------- */

static void run_with_fault(enum poise_fault kind, uint64_t k, int code,
                           bool *hit)
{
    static const char *const argv[] = {
        "lopsided/level0/level1/level2",
        "-type",
        "f",
        "-size",
        "-2",
        "-printf",
        "%p %s %u %-5f %T+ %l\\n",
        "-o",
        "-name",
        "level5*",
        "-exec",
        "true",
        "{}",
        "+",
    };
    struct job job = {.shape = oracle_shapes[0],
                      .argc = sizeof argv / sizeof *argv,
                      .argv = argv,
                      .fault = kind};
    poise_error_clear();
    poise_fault_arm(kind, k, code, false);
    int rc = find_run(&job);
    poise_fault_arm(kind, 0, 0, false);
    *hit = job.fault_calls >= k || rc < 0;
    if (rc < 0) {
        assert_int_equal(poise_error_last()->code, -rc);
    } else if (*hit && kind != POISE_FAULT_ALLOC) {
        assert_true(job.errors > 0 && job.messages > 0);
    }
    poise_buf_free(&job.out);
}

static void test_faults(void **state)
{
    (void)state;
    bool hit = true;
    for (uint64_t k = 1; hit && k < 2000; k++) {
        run_with_fault(POISE_FAULT_ALLOC, k, ENOMEM, &hit);
    }
    assert_false(hit);
    hit = true;
    for (uint64_t k = 1; hit && k < 2000; k++) {
        run_with_fault(POISE_FAULT_STAT, k, EIO, &hit);
    }
    assert_false(hit);
    hit = true;
    for (uint64_t k = 1; hit && k < 2000; k++) {
        run_with_fault(POISE_FAULT_GETDENTS, k, EACCES, &hit);
    }
    assert_false(hit);
}

/* Stopped and resumed, on another number of ranks: everything at least once. */
static void test_resume(void **state)
{
    (void)state;
    char record[300];
    snprintf(record, sizeof record, "%s.checkpoint", where);
    static const char *const argv[] = {"wide", "-print"};
    struct job job = {.shape = oracle_shapes[2],
                      .argc = 2,
                      .argv = argv,
                      .checkpoint = record,
                      .interrupt_bytes = 1};
    int code = find_run(&job);
    assert_true(code == -EINTR || code == 0);
    if (code == -EINTR) {
        job.shape = oracle_shapes[5];
        job.interrupt = 0;
        job.interrupt_bytes = 0;
        job.checkpoint = NULL;
        job.resume = record;
        assert_int_equal(find_run(&job), 0);
    }
    poise_pool_checkpoint_remove(record);
    struct tree_list ours = {.lock = PTHREAD_MUTEX_INITIALIZER}, truth, once;
    oracle_records(&job.out, &ours);
    list_tree("wide", &truth);
    memset(&once, 0, sizeof once);
    pthread_mutex_init(&once.lock, NULL);
    for (size_t i = 0; i < ours.count; i++) {
        if (i == 0 || strcmp(ours.items[i], ours.items[i - 1]) != 0) {
            tree_list_add(&once, ours.items[i], strlen(ours.items[i]));
        }
    }
    assert_true(tree_list_equal(&once, &truth));
    tree_list_free(&ours);
    tree_list_free(&once);
    tree_list_free(&truth);
    poise_buf_free(&job.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expressions), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_delete),      cmocka_unit_test(test_quit),
        cmocka_unit_test(test_ok),          cmocka_unit_test(test_output_file),
        cmocka_unit_test(test_faults),      cmocka_unit_test(test_resume),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
