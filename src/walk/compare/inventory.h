/*
 * An inventory and a tree as rows of one database, on rank 0: inventory.c reads
 * the inventory, folders.c numbers the directories of both, merge.c finds out
 * what changed.
 */
#ifndef WALK_COMPARE_INVENTORY_H
#define WALK_COMPARE_INVENTORY_H

#include "internal.h"

#include <sqlite3.h>

/* Numbers of directories. That of a directory is greater than those of the
 * directories above it. */
enum { FOLDER_NONE = 0, FOLDER_ROOT = 1 };

/* A directory of the path in hand. */
struct folder_step {
    int64_t number;
    size_t end; /* of its path */
};

/* A path in hand, and what its directories are. */
struct folder_way {
    struct poise_buf path;
    struct folder_step *steps; /* [count], the root first */
    size_t count, cap;
};

enum folder_statement {
    FOLDER_FIND,
    FOLDER_ADD,
    FOLDER_ABOVE,
    FOLDER_PASS,
    FOLDER_INHERIT,
    FOLDER_IS_PASSED,
    FOLDER_STATEMENTS
};

struct compare_inventory {
    const char *path;
    sqlite3 *db;
    sqlite3_stmt *insert; /* a row */
    sqlite3_stmt *folders[FOLDER_STATEMENTS];
    struct folder_way in, out; /* of rows that come, and of reports */
    int64_t settled; /* directories up to this one are passed over where those
                        above them are */
};

/* What SQLite says, as an error: recorded. */
int inventory_failed(const struct compare_inventory *inventory);
/* Run SQL that returns nothing. */
int inventory_execute(struct compare_inventory *inventory, const char *sql);
int inventory_prepare(struct compare_inventory *inventory, const char *sql,
                      sqlite3_stmt **out);
/* Run a statement that returns nothing. */
int inventory_step(struct compare_inventory *inventory, sqlite3_stmt *to);
/* What a row says of an entry, from the column `first` on. */
struct poise_compare_side inventory_side(sqlite3_stmt *row, int first);

/* ---- folders.c ---------------------------------------------------------- */

/* Make the table of directories: the root is in it. */
int folders_begin(struct compare_inventory *inventory);
void folders_end(struct compare_inventory *inventory);
/* The directory that holds what is at `path`, and the last component; of the
 * root itself FOLDER_NONE and "". It is given a number if it has none. */
int folders_number(struct compare_inventory *inventory, const char *path,
                   size_t len, int64_t *number, const char **name,
                   size_t *name_len);
/* Append its path, with a slash behind unless it is the root's. */
int folders_path(struct compare_inventory *inventory, int64_t number,
                 struct poise_buf *out);
/* What is below a name of a directory is passed over. */
int folders_pass(struct compare_inventory *inventory, int64_t number,
                 const void *name, size_t len);
/* Whether it is such a directory, or below one: 1, 0, or an error. Asked in the
 * order of the numbers. */
int folders_is_passed(struct compare_inventory *inventory, int64_t number);

#endif
