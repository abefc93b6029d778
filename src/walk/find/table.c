/*
 * The flat table of primaries, and the options of find.
 *
 * Sorted by name. One line of the table is all that lookup, help, completion
 * and suggestions know of a primary.
 */
#include "internal.h"

#include <string.h>

/* ---- options ----------------------------------------------------------------
 * They are true wherever they stand, and all but -daystart and -regextype
 * hold for the whole expression.
 */

static int parse_depth_limit(struct find_parser *parser, uint32_t *out)
{
    const char *text = find_parser_argument(parser);
    if (!text) {
        return -EINVAL;
    }
    uint64_t value = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 9 || text[digits]) {
        return find_parser_wrong(parser, text, "not a number of levels");
    }
    for (size_t i = 0; i < digits; i++) {
        value = value * 10 + (uint64_t)(text[i] - '0');
    }
    *out = (uint32_t)value;
    return 0;
}

static int parse_maxdepth(struct find_parser *parser, struct find_node *node)
{
    (void)node;
    parser->find->has_max_depth = true;
    return parse_depth_limit(parser, &parser->find->max_depth);
}

static int parse_mindepth(struct find_parser *parser, struct find_node *node)
{
    (void)node;
    return parse_depth_limit(parser, &parser->find->min_depth);
}

static int parse_depth(struct find_parser *parser, struct find_node *node)
{
    (void)node;
    parser->find->depth = parser->explicit_depth = true;
    return 0;
}

static int parse_xdev(struct find_parser *parser, struct find_node *node)
{
    (void)node;
    parser->find->one_file_system = true;
    return 0;
}

static int parse_follow(struct find_parser *parser, struct find_node *node)
{
    (void)node;
    parser->find->follow = POISE_WALK_FOLLOW_ALL;
    return 0;
}

static int parse_files0_from(struct find_parser *parser, struct find_node *node)
{
    (void)node;
    parser->find->roots_file = find_parser_argument(parser);
    return parser->find->roots_file ? 0 : -EINVAL;
}

static int parse_daystart(struct find_parser *parser, struct find_node *node)
{
    (void)node;
    parser->daystart = true;
    return 0;
}

static int parse_race(struct find_parser *parser, struct find_node *node)
{
    (void)node;
    parser->find->ignore_race = parser->word[1] == 'i';
    return 0;
}

static int parse_true(struct find_parser *parser, struct find_node *node)
{
    (void)parser;
    node->kind = FIND_CONST;
    node->truth = true;
    return 0;
}

static int parse_false(struct find_parser *parser, struct find_node *node)
{
    (void)parser;
    node->kind = FIND_CONST;
    node->truth = false;
    return 0;
}

static int parse_delete(struct find_parser *parser, struct find_node *node)
{
    (void)node;
    parser->find->depth = parser->find->has_delete = true;
    return 0;
}

static int parse_quit(struct find_parser *parser, struct find_node *node)
{
    (void)node;
    parser->find->has_quit = true;
    return 0;
}

static int parse_prune(struct find_parser *parser, struct find_node *node)
{
    (void)node;
    parser->find->has_prune = true;
    return 0;
}

/* ---- the table ---------------------------------------------------------- */

enum {
    FREE = FIND_COST_FREE,
    NAME = FIND_COST_NAME,
    PATH = FIND_COST_PATH,
    REGEX = FIND_COST_REGEX,
    STAT = FIND_COST_STAT,
    CALL = FIND_COST_CALL,
};

/* name, argument, parse, eval, release, metadata, cost, flags, variant, help
 */
#define PRIMARIES(X)                                                           \
    X("-amin", "N", find_parse_minutes, find_age, NULL, STATX_ATIME, STAT, 0,  \
      'a', "read N minutes ago (-N less, +N more)")                            \
    X("-anewer", "FILE", find_parse_newer, find_newer, NULL, STATX_ATIME,      \
      STAT, 0, 'a', "read later than FILE was modified")                       \
    X("-atime", "N", find_parse_days, find_age, NULL, STATX_ATIME, STAT, 0,    \
      'a', "read N days ago")                                                  \
    X("-cmin", "N", find_parse_minutes, find_age, NULL, STATX_CTIME, STAT,     \
      FIND_SHAKY, 'c', "status changed N minutes ago")                         \
    X("-cnewer", "FILE", find_parse_newer, find_newer, NULL, STATX_CTIME,      \
      STAT, FIND_SHAKY, 'c', "status changed later than FILE was modified")    \
    X("-ctime", "N", find_parse_days, find_age, NULL, STATX_CTIME, STAT,       \
      FIND_SHAKY, 'c', "its inode changed N days ago")                         \
    X("-d", NULL, parse_depth, NULL, NULL, 0, FREE, FIND_WALKS, 0,             \
      "the same as -depth")                                                    \
    X("-daystart", NULL, parse_daystart, NULL, NULL, 0, FREE, 0, 0,            \
      "times in tests that follow count from midnight")                        \
    X("-delete", NULL, parse_delete, find_delete, NULL, 0, FREE, FIND_EFFECT,  \
      0, "remove it; turns on -depth")                                         \
    X("-depth", NULL, parse_depth, NULL, NULL, 0, FREE, FIND_WALKS, 0,         \
      "what is in a directory before the directory itself")                    \
    X("-empty", NULL, NULL, find_empty, NULL, STATX_SIZE, CALL, FIND_FUSSY, 0, \
      "an empty file or directory")                                            \
    X("-exec", "COMMAND ;", find_parse_exec, find_exec, find_exec_release, 0,  \
      FREE, FIND_EFFECT, 'e',                                                  \
      "run COMMAND, {} is the path; '{} +': many paths at once")               \
    X("-execdir", "COMMAND ;", find_parse_exec, find_exec, find_exec_release,  \
      0, FREE, FIND_EFFECT, 'd',                                               \
      "the same, in the directory that holds the entry")                       \
    X("-executable", NULL, NULL, find_access, NULL, 0, CALL, 0, 'x',           \
      "may be executed, or searched")                                          \
    X("-false", NULL, parse_false, NULL, NULL, 0, FREE, 0, 0, "never")         \
    X("-files0-from", "FILE", parse_files0_from, NULL, NULL, 0, FREE,          \
      FIND_WALKS, 0, "start at the NUL-terminated names in FILE (-: stdin)")   \
    X("-fls", "FILE", find_parse_fprint, find_ls, NULL, STATX_BASIC_STATS,     \
      FREE, FIND_EFFECT, 0, "-ls into FILE")                                   \
    X("-follow", NULL, parse_follow, NULL, NULL, 0, FREE, FIND_WALKS, 0,       \
      "follow symbolic links, as -L")                                          \
    X("-fprint", "FILE", find_parse_fprint, find_print, NULL, 0, FREE,         \
      FIND_EFFECT, 0, "-print into FILE")                                      \
    X("-fprint0", "FILE", find_parse_fprint, find_print0, NULL, 0, FREE,       \
      FIND_EFFECT, 0, "-print0 into FILE")                                     \
    X("-fprintf", "FILE FORMAT", find_parse_fprintf, find_printf,              \
      find_format_release, 0, FREE, FIND_EFFECT, 0, "-printf into FILE")       \
    X("-fstype", "TYPE", find_parse_fstype, find_fstype, NULL, STATX_TYPE,     \
      STAT, 0, 0, "on a file system of this type")                             \
    X("-gid", "N", find_parse_number, find_gid, NULL, STATX_GID, STAT, 0, 0,   \
      "its group is number N")                                                 \
    X("-group", "NAME", find_parse_group, find_gid, NULL, STATX_GID, STAT, 0,  \
      0, "belongs to this group")                                              \
    X("-ignore_readdir_race", NULL, parse_race, NULL, NULL, 0, FREE,           \
      FIND_WALKS, 0, "do not report entries that vanish meanwhile")            \
    X("-ilname", "PATTERN", find_parse_glob, find_lname, NULL, 0, CALL, 0,     \
      'i', "-lname, ignoring case")                                            \
    X("-iname", "PATTERN", find_parse_glob, find_name, NULL, 0, NAME, 0, 'i',  \
      "-name, ignoring case")                                                  \
    X("-inum", "N", find_parse_number, find_inum, NULL, STATX_INO, STAT, 0, 0, \
      "inode number N")                                                        \
    X("-ipath", "PATTERN", find_parse_glob, find_whole, NULL, 0, PATH, 0, 'i', \
      "-path, ignoring case")                                                  \
    X("-iregex", "REGEX", find_parse_regex, find_regex, find_regex_release, 0, \
      REGEX, 0, 'i', "-regex, ignoring case")                                  \
    X("-iwholename", "PATTERN", find_parse_glob, find_whole, NULL, 0, PATH, 0, \
      'i', "the same as -ipath")                                               \
    X("-links", "N", find_parse_number, find_links, NULL, STATX_NLINK, STAT,   \
      FIND_SHAKY, 0, "has N names")                                            \
    X("-lname", "PATTERN", find_parse_glob, find_lname, NULL, 0, CALL, 0, 0,   \
      "a symbolic link whose target matches the shell pattern")                \
    X("-ls", NULL, NULL, find_ls, NULL, STATX_BASIC_STATS, FREE, FIND_EFFECT,  \
      0, "print a line as ls -dils does")                                      \
    X("-maxdepth", "N", parse_maxdepth, NULL, NULL, 0, FREE, 0, 0,             \
      "at most N levels below the start paths")                                \
    X("-mindepth", "N", parse_mindepth, NULL, NULL, 0, FREE, 0, 0,             \
      "do nothing above N levels below the start paths")                       \
    X("-mmin", "N", find_parse_minutes, find_age, NULL, STATX_MTIME, STAT, 0,  \
      'm', "modified N minutes ago")                                           \
    X("-mount", NULL, parse_xdev, NULL, NULL, 0, FREE, FIND_WALKS, 0,          \
      "the same as -xdev")                                                     \
    X("-mtime", "N", find_parse_days, find_age, NULL, STATX_MTIME, STAT, 0,    \
      'm', "modified N days ago; +N: more, -N: less")                          \
    X("-name", "PATTERN", find_parse_glob, find_name, NULL, 0, NAME, 0, 0,     \
      "its name matches the shell pattern")                                    \
    X("-newer", "FILE", find_parse_newer, find_newer, NULL, STATX_MTIME, STAT, \
      0, 'm', "modified later than FILE")                                      \
    X("-newerXY", "FILE", find_parse_newer, find_newer, NULL,                  \
      STATX_ATIME | STATX_MTIME | STATX_CTIME | STATX_BTIME, STAT, FIND_SHAKY, \
      'm', "time X (a B c m) is later than Y of FILE; Y = t: a date")          \
    X("-nogroup", NULL, NULL, find_nogroup, NULL, STATX_GID, STAT, 0, 0,       \
      "its group has no name")                                                 \
    X("-noignore_readdir_race", NULL, parse_race, NULL, NULL, 0, FREE,         \
      FIND_WALKS, 0, "report entries that vanish meanwhile (default)")         \
    X("-noleaf", NULL, NULL, NULL, NULL, 0, FREE, 0, 0, "ignored")             \
    X("-nouser", NULL, NULL, find_nouser, NULL, STATX_UID, STAT, 0, 0,         \
      "its owner has no name")                                                 \
    X("-nowarn", NULL, NULL, NULL, NULL, 0, FREE, 0, 0, "ignored")             \
    X("-ok", "COMMAND ;", find_parse_exec, find_exec, find_exec_release, 0,    \
      FREE, FIND_EFFECT, 'o', "-exec, after asking")                           \
    X("-okdir", "COMMAND ;", find_parse_exec, find_exec, find_exec_release, 0, \
      FREE, FIND_EFFECT, 'k', "-execdir, after asking")                        \
    X("-path", "PATTERN", find_parse_glob, find_whole, NULL, 0, PATH, 0, 0,    \
      "its path matches the shell pattern")                                    \
    X("-perm", "MODE", find_parse_perm, find_perm, NULL,                       \
      STATX_TYPE | STATX_MODE, STAT, 0, 0,                                     \
      "permissions are MODE (-MODE all of them, /MODE any)")                   \
    X("-print", NULL, NULL, find_print, NULL, 0, FREE, FIND_EFFECT, 0,         \
      "print the path and a newline")                                          \
    X("-print0", NULL, NULL, find_print0, NULL, 0, FREE, FIND_EFFECT, 0,       \
      "print the path and a NUL byte")                                         \
    X("-printf", "FORMAT", find_parse_printf, find_printf,                     \
      find_format_release, 0, FREE, FIND_EFFECT, 0, "print what FORMAT says")  \
    X("-prune", NULL, parse_prune, find_prune, NULL, 0, 0,                     \
      FIND_EFFECT | FIND_SILENT, 0, "do not descend into this directory")      \
    X("-quit", NULL, parse_quit, find_quit, NULL, 0, 0,                        \
      FIND_EFFECT | FIND_SILENT, 0, "stop")                                    \
    X("-readable", NULL, NULL, find_access, NULL, 0, CALL, 0, 'r',             \
      "may be read")                                                           \
    X("-regex", "REGEX", find_parse_regex, find_regex, find_regex_release, 0,  \
      REGEX, 0, 0, "its whole path matches the regular expression")            \
    X("-regextype", "TYPE", find_parse_regextype, NULL, NULL, 0, FREE, 0, 0,   \
      "syntax of later -regex (emacs, posix-extended, ...)")                   \
    X("-samefile", "FILE", find_parse_samefile, find_samefile, NULL,           \
      STATX_INO, STAT, 0, 0, "a link to the same inode as FILE")               \
    X("-size", "N[bcwkMG]", find_parse_size, find_size, NULL, STATX_SIZE,      \
      STAT, 0, 0, "size in b (512 bytes, default), c (1), w (2), k, M or G")   \
    X("-true", NULL, parse_true, NULL, NULL, 0, FREE, 0, 0, "always")          \
    X("-type", "TYPES", find_parse_type, find_type, NULL, 0, FREE, 0, 0,       \
      "one of the types b c d p f l s, separated by commas")                   \
    X("-uid", "N", find_parse_number, find_uid, NULL, STATX_UID, STAT, 0, 0,   \
      "its owner is number N")                                                 \
    X("-used", "N", find_parse_used, find_used, NULL,                          \
      STATX_ATIME | STATX_CTIME, STAT, FIND_SHAKY, 0,                          \
      "read N days after its status changed")                                  \
    X("-user", "NAME", find_parse_user, find_uid, NULL, STATX_UID, STAT, 0, 0, \
      "belongs to this user")                                                  \
    X("-warn", NULL, NULL, NULL, NULL, 0, FREE, 0, 0, "ignored")               \
    X("-wholename", "PATTERN", find_parse_glob, find_whole, NULL, 0, PATH, 0,  \
      0, "the same as -path")                                                  \
    X("-writable", NULL, NULL, find_access, NULL, 0, CALL, 0, 'w',             \
      "may be written")                                                        \
    X("-xdev", NULL, parse_xdev, NULL, NULL, 0, FREE, FIND_WALKS, 0,           \
      "do not enter other file systems")                                       \
    X("-xtype", "TYPES", find_parse_type, find_xtype, NULL, 0, CALL,           \
      FIND_FUSSY | FIND_SHAKY, 0, "-type, of what a symbolic link points to")

const struct find_primary find_primaries[] = {
#define ROW(name, arg, parse, eval, release, mask, cost, flags, which, help)   \
    {name, arg, parse, eval, release, mask, cost, flags, which},
    PRIMARIES(ROW)
#undef ROW
};

enum { PRIMARY_COUNT = sizeof find_primaries / sizeof *find_primaries };

static const char *const help_pairs[] = {
    "(",
    "begin a group",
    ")",
    "end a group",
    "!",
    "not: true if what follows is false; also -not",
    "-a",
    "and (default between two tests); also -and",
    "-o",
    "or; also -or",
    ",",
    "evaluate both; the value is that of the second",
#define ROW(name, arg, parse, eval, release, mask, cost, flags, which, help)   \
    name, help,
    PRIMARIES(ROW)
#undef ROW
        NULL,
};

const char *const *poise_walk_find_primaries(void)
{
    return help_pairs;
}

static bool is_newer_xy(const char *word)
{
    return strncmp(word, "-newer", 6) == 0 && word[6] && word[7] && !word[8] &&
           strchr("aBcm", word[6]) && strchr("aBcmt", word[7]);
}

const struct find_primary *find_primary_lookup(const char *word)
{
    if (is_newer_xy(word)) {
        word = "-newerXY";
    } else if (strcmp(word, "-newerXY") == 0) {
        return NULL;
    }
    for (int i = 0; i < PRIMARY_COUNT; i++) {
        if (strcmp(find_primaries[i].name, word) == 0) {
            return &find_primaries[i];
        }
    }
    return NULL;
}

const char *find_primary_nearest(const char *word)
{
    const char *names[PRIMARY_COUNT + 3];
    size_t count = 0;
    for (; count < PRIMARY_COUNT; count++) {
        names[count] = find_primaries[count].name;
    }
    names[count++] = "-and";
    names[count++] = "-or";
    names[count++] = "-not";
    return poise_nearest(word, names, count);
}
