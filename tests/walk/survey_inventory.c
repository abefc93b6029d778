/*
 * Readers of inventories, each written without the library where it can be,
 * against the tree.
 */
#include "survey_common.h"

#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- inventories -------------------------------------------------------- */

static struct {
    char **items;
    size_t count, cap;
} lines;

static void lines_clear(void)
{
    for (size_t i = 0; i < lines.count; i++) {
        free(lines.items[i]);
    }
    free(lines.items);
    memset(&lines, 0, sizeof lines);
}

static void lines_add(const char *path, size_t path_len,
                      const struct walk_row *row)
{
    if (lines.count == lines.cap) {
        lines.cap = lines.cap ? 2 * lines.cap : 1024;
        lines.items = realloc(lines.items, lines.cap * sizeof(char *));
    }
    struct poise_buf line = {0};
    poise_buf_append(&line, path, path_len);
    poise_buf_printf(
        &line, "|%c|%o|%u|%u|%llu|%llu|%llu|%llu|%llu|%lld.%u|%lld|%lld",
        walk_type_letter(row->mode), row->mode & 07777, row->uid, row->gid,
        (unsigned long long)row->size_bytes, (unsigned long long)row->blocks,
        (unsigned long long)row->nlink, (unsigned long long)row->ino,
        (unsigned long long)row->dev, (long long)row->mtime, row->mtime_ns,
        (long long)row->ctime,
        /* Reading a directory sets its time of access. */
        S_ISREG(row->mode) ? (long long)row->atime : 0);
    poise_buf_str(&line);
    lines.items[lines.count++] = line.data;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void lines_check(void)
{
    char **got = lines.items;
    size_t count = lines.count;
    memset(&lines, 0, sizeof lines);
    for (size_t i = 0; i < survey_truth.count; i++) {
        const struct stat *st = &survey_truth.items[i].st;
        struct walk_row row = {.mode = st->st_mode,
                               .uid = st->st_uid,
                               .gid = st->st_gid,
                               .size_bytes = (uint64_t)st->st_size,
                               .blocks = (uint64_t)st->st_blocks,
                               .nlink = st->st_nlink,
                               .ino = st->st_ino,
                               .dev = st->st_dev,
                               .mtime = st->st_mtim.tv_sec,
                               .mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
                               .ctime = st->st_ctim.tv_sec,
                               .atime = st->st_atim.tv_sec};
        lines_add(survey_truth.items[i].path,
                  strlen(survey_truth.items[i].path), &row);
    }
    assert_int_equal(count, lines.count);
    qsort(got, count, sizeof(char *), by_text);
    qsort(lines.items, count, sizeof(char *), by_text);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(got[i], lines.items[i]);
        free(got[i]);
    }
    free(got);
    lines_clear();
}

static void read_sql(const char *sql, const char *path)
{
    sqlite3 *db;
    sqlite3_stmt *rows;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &rows, NULL), SQLITE_OK);
    while (sqlite3_step(rows) == SQLITE_ROW) {
        static const char types[] = "fdlp";
        static const mode_t modes[] = {S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO};
        int64_t n[12];
        for (int i = 2; i < 12; i++) {
            n[i] = sqlite3_column_int64(rows, i);
        }
        const char *type = (const char *)sqlite3_column_text(rows, 1);
        struct walk_row row = {
            .mode = (uint32_t)n[2] | modes[strchr(types, *type) - types],
            .uid = (uint32_t)n[3],
            .gid = (uint32_t)n[4],
            .size_bytes = (uint64_t)n[5],
            .blocks = (uint64_t)n[6],
            .nlink = (uint64_t)n[7],
            .ino = (uint64_t)n[8],
            .dev = (uint64_t)n[9],
            .mtime = n[10],
            .ctime = n[11],
            .mtime_ns = (uint32_t)sqlite3_column_int64(rows, 12),
            .atime = sqlite3_column_int64(rows, 13)};
        lines_add(sqlite3_column_blob(rows, 0),
                  (size_t)sqlite3_column_bytes(rows, 0), &row);
    }
    sqlite3_finalize(rows);
    assert_int_equal(
        sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &rows, NULL),
        SQLITE_OK);
    assert_int_equal(sqlite3_step(rows), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(rows, 0), "ok");
    sqlite3_finalize(rows);
    sqlite3_close(db);
}

char *survey_slurp(const char *path, size_t *len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    *len = (size_t)lseek(fd, 0, SEEK_END);
    char *data = malloc(*len + 1);
    assert_int_equal(pread(fd, data, *len, 0), *len);
    data[*len] = '\0';
    close(fd);
    return data;
}

static uint32_t mode_of(char type)
{
    return type == 'f'   ? S_IFREG
           : type == 'd' ? S_IFDIR
           : type == 'l' ? S_IFLNK
                         : S_IFIFO;
}

/* The fields behind the path, of CSV. */
static void read_fields(const char *text, const char *path, size_t path_len)
{
    struct walk_row row = {0};
    char type;
    unsigned long long n[5];
    long long mtime, ctime, atime;
    unsigned mtime_ns, ctime_ns, atime_ns;
    assert_int_equal(sscanf(text,
                            ",%c,%o,%u,%u,%llu,%llu,%llu,%llu,%llu,%lld.%u,"
                            "%lld.%u,%lld.%u\r\n",
                            &type, &row.mode, &row.uid, &row.gid, &n[0], &n[1],
                            &n[2], &n[3], &n[4], &mtime, &mtime_ns, &ctime,
                            &ctime_ns, &atime, &atime_ns),
                     15);
    row.mode |= mode_of(type);
    row.size_bytes = n[0];
    row.blocks = n[1];
    row.nlink = n[2];
    row.ino = n[3];
    row.dev = n[4];
    row.mtime = mtime;
    row.mtime_ns = mtime_ns;
    if (mtime < 0) { /* decimals count away from zero there */
        row.mtime = mtime - (mtime_ns > 0);
        row.mtime_ns = mtime_ns ? 1000000000 - mtime_ns : 0;
    }
    row.ctime = ctime;
    row.atime = atime;
    lines_add(path, path_len, &row);
}

static void read_csv(const char *path)
{
    size_t len;
    char *data = survey_slurp(path, &len), *at = data + strlen(walk_csv_header);
    assert_memory_equal(data, walk_csv_header, strlen(walk_csv_header));
    while (at < data + len) {
        struct poise_buf name = {0};
        if (*at == '"') {
            for (at++; *at != '"' || at[1] == '"'; at++) {
                at += *at == '"';
                poise_buf_putc(&name, *at);
            }
            at++;
        } else {
            for (; *at != ','; at++) {
                poise_buf_putc(&name, *at);
            }
        }
        /* A line by itself: sscanf, and sanitizers in strstr, read up to the
         * end of the text each time. */
        char *end = strchr(at, '\n');
        assert_true(end && end[-1] == '\r');
        *end = '\0';
        read_fields(at, name.data, name.len);
        poise_buf_free(&name);
        at = end + 1;
    }
    free(data);
}

static size_t decode_base64(char *text)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t len = 0;
    unsigned bits = 0, value = 0;
    for (char *p = text; *p && *p != '=' && *p != '"'; p++) {
        value = value << 6 | (unsigned)(strchr(digits, *p) - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            text[len++] = (char)(value >> bits);
        }
    }
    return len;
}

/* SQLite's own JSON functions take the lines apart. */
static void read_json(const char *path)
{
    size_t len;
    char *data = survey_slurp(path, &len);
    sqlite3 *db;
    sqlite3_stmt *get;
    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(
            db,
            "SELECT json_extract(?1,'$.path'),json_extract(?1,'$.path_base64'),"
            "',' || json_extract(?1,'$.type') || ',' || "
            "json_extract(?1,'$.mode') || ',' || json_extract(?1,'$.uid') || "
            "',' || json_extract(?1,'$.gid') || ',' || "
            "json_extract(?1,'$.size') || ',' || json_extract(?1,'$.blocks') "
            "|| ',' || json_extract(?1,'$.nlink') || ',' || "
            "json_extract(?1,'$.ino') || ',' || json_extract(?1,'$.dev') || "
            "','",
            -1, &get, NULL),
        SQLITE_OK);
    for (char *at = data; at < data + len;) {
        char *end = strchr(at, '\n');
        assert_non_null(end);
        *end = '\0';
        sqlite3_bind_text(get, 1, at, (int)(end - at), SQLITE_STATIC);
        assert_int_equal(sqlite3_step(get), SQLITE_ROW);
        char text[500];
        const char *mtime = strstr(at, "\"mtime\":") + 8;
        const char *ctime = strstr(at, "\"ctime\":") + 8;
        const char *atime = strstr(at, "\"atime\":") + 8;
        snprintf(text, sizeof text, "%s%.*s,%.*s,%.*s\r\n",
                 (const char *)sqlite3_column_text(get, 2),
                 (int)strcspn(mtime, ","), mtime, (int)strcspn(ctime, ","),
                 ctime, (int)strcspn(atime, "}"), atime);
        bool odd = sqlite3_column_type(get, 1) != SQLITE_NULL;
        char *name =
            strdup((const char *)sqlite3_column_text(get, odd ? 1 : 0));
        read_fields(text, name, odd ? decode_base64(name) : strlen(name));
        free(name);
        sqlite3_reset(get);
        at = end + 1;
    }
    sqlite3_finalize(get);
    sqlite3_close(db);
    free(data);
}

/* Rows of a binary inventory are gathered in a database, whose view of paths
 * was tested before. */
static struct {
    struct walk_row *rows;
    size_t count;
} binary;

static int keep_row(const struct walk_row *row, void *arg)
{
    (void)arg;
    binary.rows =
        realloc(binary.rows, (binary.count + 1) * sizeof(struct walk_row));
    binary.rows[binary.count] = *row;
    binary.rows[binary.count++].name = strndup(row->name, row->name_len);
    return 0;
}

static void path_of_row(const struct walk_row *row, struct poise_buf *out)
{
    for (size_t i = 0; row->dir && i < binary.count; i++) {
        if (binary.rows[i].id == row->dir) {
            path_of_row(&binary.rows[i], out);
            poise_buf_putc(out, '/');
            break;
        }
    }
    poise_buf_append(out, row->name, row->name_len);
}

static void read_binary(const char *path)
{
    assert_int_equal(walk_inventory_read(path, keep_row, NULL), 0);
    for (size_t i = 0; i < binary.count; i++) {
        struct poise_buf full = {0};
        path_of_row(&binary.rows[i], &full);
        lines_add(full.data, full.len, &binary.rows[i]);
        poise_buf_free(&full);
    }
    for (size_t i = 0; i < binary.count; i++) {
        free((char *)binary.rows[i].name);
    }
    free(binary.rows);
    memset(&binary, 0, sizeof binary);
}

void survey_check_inventory(enum poise_walk_format format, const char *path)
{
    switch (format) {
    case POISE_WALK_SQLITE:
        read_sql("SELECT path,type,mode,uid,gid,size,blocks,nlink,ino,dev,"
                 "mtime,ctime,mtime_ns,atime FROM files",
                 path);
        break;
    case POISE_WALK_CSV:
        read_csv(path);
        break;
    case POISE_WALK_JSONL:
        read_json(path);
        break;
    case POISE_WALK_BINARY:
        read_binary(path);
        break;
    }
    lines_check();
}

/* Whether the survey made the file: NAME.TOKEN.REST. */
static bool is_ours(const char *name)
{
    const char *dot = strchr(name, '.');
    return !dot || strspn(dot + 1, "0123456789abcdef") == 16;
}

/* Nothing of ours may be left beside the tree but `name`. */
void survey_check_litter(const char *name)
{
    DIR *dir = opendir(survey_place);
    for (struct dirent *d; (d = readdir(dir));) {
        if (d->d_name[0] != '.' && strcmp(d->d_name, "tree") != 0 &&
            is_ours(d->d_name) && (!name || strcmp(d->d_name, name) != 0)) {
            fail_msg("left behind: %s", d->d_name);
        }
    }
    closedir(dir);
}
