/*
 * What the files of find share.
 *
 * A compiled expression (struct poise_walk_find) is a tree of nodes that is
 * never written after compilation. What changes while it is evaluated belongs
 * to a worker (struct find_state) or, once per rank, to struct find_run.
 */
#ifndef WALK_FIND_INTERNAL_H
#define WALK_FIND_INTERNAL_H

#include "walk/engine/engine.h"

#include <poise/core.h>
#include <poise/find.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <time.h>

struct find_state;
struct find_node;
struct find_parser;

/* ---- the tree ----------------------------------------------------------- */

enum find_kind {
    FIND_TEST,  /* a primary: test or action */
    FIND_AND,   /* all children, until one is false */
    FIND_OR,    /* all children, until one is true */
    FIND_LIST,  /* all children, the value is the last one's */
    FIND_NOT,   /* one child */
    FIND_CONST, /* `truth` */
};

/* What evaluating a primary may do besides answering. */
enum {
    FIND_EFFECT = 1, /* it acts: never left out, never moved */
    FIND_FUSSY = 2,  /* it may report an error: only names pass it */
    FIND_SILENT = 4, /* an effect that does not replace the implied -print */
    FIND_WALKS = 8,  /* an option that says how to walk */
    FIND_SHAKY = 16, /* a deletion elsewhere may change the answer */
};

/* Relative costs: what a test has to look at. */
enum {
    FIND_COST_FREE = 0, /* the entry as the directory has it */
    FIND_COST_NAME = 1,
    FIND_COST_PATH = 2,
    FIND_COST_REGEX = 3,
    FIND_COST_STAT = 10,
    FIND_COST_CALL = 20, /* a system call of its own */
};

/* "+N", "N", "-N". */
enum find_order { FIND_LESS = -1, FIND_EQUAL = 0, FIND_MORE = 1 };

struct find_number {
    enum find_order order;
    uint64_t value;
    uint64_t unit; /* -size: bytes per block */
};

enum find_glob_kind { FIND_GLOB_PLAIN, FIND_GLOB_SUFFIX, FIND_GLOB_ANY };
struct find_glob {
    enum find_glob_kind kind; /* the common ones do without fnmatch */
    const char *pattern;      /* borrowed from the expression */
    size_t len;
    int flags; /* of fnmatch */
};

enum find_origin { FIND_NOW, FIND_YESTERDAY, FIND_TODAY, FIND_TONIGHT };
struct find_age {
    enum find_order order;   /* of the age */
    enum find_origin origin; /* counted back from here */
    int64_t sec;
    long nsec;
    int64_t window; /* seconds, for FIND_EQUAL */
};

struct find_permission {
    enum { FIND_PERM_EXACT, FIND_PERM_ALL, FIND_PERM_ANY } how;
    mode_t file, dir; /* X means other bits for directories */
};

/* A set of addresses of one inode. */
struct find_identity {
    uint32_t major, minor;
    uint64_t ino;
};

/* A regular expression. glibc matches with one compiled form only in one
 * thread at a time: each worker compiles its own. */
struct find_regex {
    struct re_pattern_buffer shared; /* for who has no memory for its own */
    const char *text;                /* borrowed from the expression */
    reg_syntax_t syntax;
    unsigned index; /* among those of the expression */
};

struct find_format; /* printf.c */
struct find_exec;   /* exec.c */

struct find_node {
    enum find_kind kind;
    const struct find_primary *primary; /* FIND_TEST */
    bool truth;                         /* FIND_CONST */
    struct find_node *child, *next;     /* first child; next sibling */
    struct find_node *all;              /* chain of all, for destroy */
    unsigned stream;                    /* output stream of an action */
    unsigned mask;                      /* STATX_* fields it looks at */
    char which;                         /* time: 'a' 'B' 'c' 'm' */
    union {
        struct find_number number;
        struct find_glob glob;
        struct find_regex *regex; /* owned */
        uint32_t types;           /* bit set of DT_* */
        struct find_age age;
        struct timespec time;
        struct find_permission perm;
        struct find_identity identity;
        struct find_format *format; /* owned */
        struct find_exec *exec;     /* owned */
        const char *text;           /* borrowed from the expression */
    } arg;
};

/* One line of the table of primaries. */
struct find_primary {
    const char *name;
    const char *arg; /* as help shows it; NULL: none */
    /* Takes its arguments from the parser; negative errno with error set. */
    int (*parse)(struct find_parser *parser, struct find_node *node);
    /* NULL: an option, always true. */
    bool (*eval)(struct find_state *state, const struct find_node *node);
    void (*release)(struct find_node *node);
    unsigned mask; /* STATX_* fields it looks at */
    unsigned char cost, flags;
    char which; /* variant of parse or eval */
};

extern const struct find_primary find_primaries[];

enum { FIND_STREAMS = 64 };

struct poise_walk_find {
    struct find_node *root, *all;
    char **words; /* owned copies of the arguments */
    size_t word_count;
    bool depth, one_file_system, ignore_race;
    enum poise_walk_follow follow;
    const char *roots_file; /* -files0-from; NULL: none */
    bool has_max_depth, has_delete, has_prune, has_ask, has_quit;
    bool in_order; /* effects that are seen elsewhere: one entry at a time */
    uint32_t min_depth, max_depth;
    unsigned mask;       /* fields that anything may look at */
    unsigned fetch_mask; /* the same if every entry needs them, else 0 */
    unsigned exec_count, regex_count;
    unsigned stream_count; /* stream 0 is the standard output */
    const char *streams[FIND_STREAMS];
};

/* ---- compiling ---------------------------------------------------------- */

/* Words into a tree; `filter`: tests only, no implied -print. */
int find_compile(size_t count, const char *const *words, bool filter,
                 struct poise_walk_find **out);

struct find_parser {
    struct poise_walk_find *find;
    const char *const *words;
    size_t count, pos;
    const char *word; /* the primary that is being parsed */
    unsigned nesting;
    bool acts; /* an action was seen: no implied -print */
    bool daystart, explicit_depth;
    bool tests_only;     /* of a filter */
    reg_syntax_t syntax; /* -regextype in force */
};

/* The next word, or NULL with the error "missing argument". */
const char *find_parser_argument(struct find_parser *parser);
/* Record that `argument` of the current primary is wrong; -EINVAL. */
int find_parser_wrong(const struct find_parser *parser, const char *argument,
                      const char *why);
struct find_node *find_node_create(struct find_parser *parser,
                                   enum find_kind kind);
/* The stream that writes to `path`; negative errno. */
int find_parser_stream(struct find_parser *parser, const char *path);
/* Fold constants and put cheap tests first; returns the new root. */
struct find_node *find_simplify(struct find_node *node);

const struct find_primary *find_primary_lookup(const char *word);
/* The nearest known word to an unknown one, or NULL. */
const char *find_primary_nearest(const char *word);

/* Parse functions of several files. */
int find_parse_type(struct find_parser *parser, struct find_node *node);
int find_parse_glob(struct find_parser *parser, struct find_node *node);
int find_parse_regex(struct find_parser *parser, struct find_node *node);
int find_parse_regextype(struct find_parser *parser, struct find_node *node);
int find_parse_number(struct find_parser *parser, struct find_node *node);
int find_parse_size(struct find_parser *parser, struct find_node *node);
int find_parse_user(struct find_parser *parser, struct find_node *node);
int find_parse_group(struct find_parser *parser, struct find_node *node);
int find_parse_fstype(struct find_parser *parser, struct find_node *node);
int find_parse_samefile(struct find_parser *parser, struct find_node *node);
int find_parse_perm(struct find_parser *parser, struct find_node *node);
int find_parse_days(struct find_parser *parser, struct find_node *node);
int find_parse_minutes(struct find_parser *parser, struct find_node *node);
int find_parse_newer(struct find_parser *parser, struct find_node *node);
int find_parse_printf(struct find_parser *parser, struct find_node *node);
int find_parse_fprint(struct find_parser *parser, struct find_node *node);
int find_parse_fprintf(struct find_parser *parser, struct find_node *node);
int find_parse_exec(struct find_parser *parser, struct find_node *node);
int find_parse_used(struct find_parser *parser, struct find_node *node);

int find_parse_order(const char **text); /* takes the sign off */
/* Metadata of a file named in the expression, following links as is in force
 * there. Negative errno, recorded. */
int find_parser_stat(const struct find_parser *parser, const char *path,
                     unsigned mask, struct statx *out);
int find_parse_mode(const char *text, struct find_permission *out);
int find_parse_date(const char *text, struct timespec *out);

/* NULL, or what is wrong. */
const char *find_regex_compile(const struct find_regex *regex,
                               struct re_pattern_buffer *out);
void find_regex_release(struct find_node *node);
void find_format_release(struct find_node *node);
void find_exec_release(struct find_node *node);

/* ---- evaluating --------------------------------------------------------- */

/* Names of users or groups, by number. */
struct find_names {
    struct find_name {
        uint32_t id;
        bool used;
        char *name; /* owned; NULL: the system knows none */
    } * slots;
    size_t cap, count; /* cap is a power of two */
};

struct find_batch { /* of an -exec ... {} + */
    struct poise_buf paths;
    size_t count;
    size_t bytes;          /* of the argument list, pointers included */
    int dirfd;             /* -execdir: where it runs, a duplicate; else -1 */
    struct poise_buf head; /* -execdir: path of that directory */
};

/* A worker's own state; used by that worker only, but for `lock`. */
struct find_state {
    struct find_run *run;
    const struct poise_walk_find *find;
    struct poise_worker *worker; /* NULL while the run is being ended */
    const struct poise_walk_entry *entry;
    bool prune, quit;
    bool dirs_wait; /* batches of -execdir hold paths */
    bool changed;   /* the tree, perhaps: the walk was not told yet */
    uint32_t depth; /* of the entry before */
    int error;      /* negative errno: the run must end */
    int failed;     /* negative errno: something of this entry is not known */
    bool has_path, stat_failed;
    const struct statx *stat;
    struct poise_buf path, scratch, link;
    /* Output: a stream byte, then the bytes of whole records. `done` is what
     * is committed but not yet handed over; others read it under `lock`. */
    struct poise_buf out[FIND_STREAMS];
    size_t mark[FIND_STREAMS]; /* where the current entry's output starts */
    struct poise_buf done;     /* frames: blobs */
    pthread_mutex_t lock;
    uint64_t out_ticks; /* when the oldest waiting byte was put there */
    struct find_names users, groups;
    struct find_batch *batches;         /* [exec_count] */
    struct re_pattern_buffer **regexes; /* [regex_count], at first use */
};

/* One rank's run. */
struct find_run {
    const struct poise_walk_find_options *options;
    const struct poise_walk_find *find;
    struct timespec now; /* alike on all ranks */
    struct timespec midnight;
    struct find_state **states; /* [state_count], made at first use */
    size_t state_count;
    pthread_mutex_t lock;  /* of states, mounts, questions, loaded */
    bool keep_done;        /* checkpoints are wanted */
    bool alone;            /* rank 0's one worker evaluates all, in order */
    uint32_t quit;         /* the first -quit of this rank won; __atomic */
    uint64_t errors;       /* not counted by the engine; __atomic */
    uint64_t flush_ticks;  /* output waits at most so long */
    struct poise_buf last; /* output of the entry that quit: frames */
    struct poise_buf loaded;
    int fds[FIND_STREAMS]; /* rank 0 */
    uint64_t terminals;    /* bit i: stream i goes to one */
    struct find_mount {
        uint32_t major, minor;
        char *type;
    } * mounts; /* read at first use */
    size_t mount_count;
    bool mounts_read;
    sigset_t signals; /* that commands start with */
};

/* run.c */
struct find_state *find_state_create(struct find_run *run);
void find_state_free(struct find_state *state);
/* Make it ready for an entry. */
void find_state_begin(struct find_state *state,
                      const struct poise_walk_entry *entry);
/* All ranks take rank 0's time. Collective. */
int find_agree_on_now(struct find_run *run, struct poise_world *world);

/** Whether what `node` prints goes to a terminal. */
static inline bool find_is_terminal(const struct find_state *state,
                                    const struct find_node *node)
{
    return (state->run->terminals >> node->stream & 1) != 0;
}

bool find_eval(struct find_state *state, const struct find_node *node);

/* The entry's path, NUL-terminated; NULL after an error. */
const char *find_path(struct find_state *state, size_t *len);
/* Its base name: a root's without the directories before it. */
const char *find_base(const struct find_state *state);
/* For *at() calls with entry->name; false: the walk has reported why not. */
bool find_dirfd(struct find_state *state, int *out);
/* Metadata, or NULL (reported by the walk). */
const struct statx *find_stat(struct find_state *state);
/* The last error, `code` negative, was met at the current entry: call
 * the hook error, count it. Passes on what must end the run. */
void find_report(struct find_state *state, int code);
/* Call the hook error with the last error, without counting it. */
void find_warn(struct find_state *state);
/* Record and report: cannot DOING the entry. */
void find_complain(struct find_state *state, int code, const char *doing);
/* Where the entry's output for a stream goes. */
struct poise_buf *find_out(struct find_state *state, unsigned stream);
/* Hand all waiting output over. */
int find_flush(struct find_state *state);

/* NULL: unknown. */
const char *find_user_name(struct find_state *state, uint32_t id);
const char *find_group_name(struct find_state *state, uint32_t id);
void find_names_free(struct find_names *names);
const char *find_fs_type(struct find_state *state, const struct statx *st);
void find_mounts_free(struct find_run *run);
/* Whether the current entry, if a symbolic link, counts as what that leads to.
 */
bool find_follows(const struct find_state *state);
/* Type of the current entry, which its name is, or leads to if `follow`;
 * negative errno, -EBADF: reported already. */
int find_type_by(struct find_state *state, bool follow);
/* The target of a symbolic link, NUL-terminated, in state->link. */
const char *find_link(struct find_state *state);
/* Type letter of a mode ('f', 'd', ...); "rwx" text of 10 letters. */
char find_type_letter(unsigned mode);
void find_mode_text(unsigned mode, char out[11]);
/* 'f', 'l' for dangling... of what a link points to; N L ? for -printf %Y. */
char find_target_letter(struct find_state *state);

bool find_compare(const struct find_number *number, uint64_t value);
struct timespec find_time_of(const struct statx *st, char which);
struct timespec find_time_origin(const struct find_run *run,
                                 enum find_origin origin);
int find_time_compare(struct timespec a, struct timespec b);

/* Run what the batches of `state` hold, or those of -execdir alone. */
void find_exec_finish(struct find_state *state, bool dirs_only);
void find_batches_free(struct find_state *state);

/* Eval functions of several files. */
#define FIND_EVAL(name)                                                        \
    bool find_##name(struct find_state *state, const struct find_node *node)
FIND_EVAL(name);
FIND_EVAL(whole);
FIND_EVAL(lname);
FIND_EVAL(regex);
FIND_EVAL(type);
FIND_EVAL(xtype);
FIND_EVAL(size);
FIND_EVAL(empty);
FIND_EVAL(links);
FIND_EVAL(inum);
FIND_EVAL(uid);
FIND_EVAL(gid);
FIND_EVAL(nouser);
FIND_EVAL(nogroup);
FIND_EVAL(perm);
FIND_EVAL(access);
FIND_EVAL(samefile);
FIND_EVAL(fstype);
FIND_EVAL(age);
FIND_EVAL(newer);
FIND_EVAL(used);
FIND_EVAL(print);
FIND_EVAL(print0);
FIND_EVAL(printf);
FIND_EVAL(ls);
FIND_EVAL(delete);
FIND_EVAL(prune);
FIND_EVAL(quit);
FIND_EVAL(exec);

#endif
