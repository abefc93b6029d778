/* Lines of CSV and JSON inventories: names may be any bytes. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const char walk_csv_header[] =
    "path,type,mode,uid,gid,size,blocks,nlink,ino,dev,mtime,ctime,atime\r\n";

/* Seconds with nine decimals; those count upwards also before 1970. */
static size_t format_time(char *text, size_t room, int64_t s, uint32_t ns)
{
    bool less = s < 0 && ns > 0;
    const char *sign = less && s == -1 ? "-" : "";
    return (size_t)snprintf(text, room, "%s%lld.%09u", sign,
                            (long long)(less ? s + 1 : s),
                            less ? 1000000000u - ns : ns);
}

static void csv_number(struct poise_buf *out, uint64_t value)
{
    poise_buf_putc(out, ',');
    poise_buf_decimal(out, value);
}

static void csv_path(struct poise_buf *out, const char *path, size_t len)
{
    bool quote = false;
    for (size_t i = 0; i < len && !quote; i++) {
        quote = path[i] == ',' || path[i] == '"' || path[i] == '\n' ||
                path[i] == '\r';
    }
    if (!quote) {
        poise_buf_append(out, path, len);
        return;
    }
    poise_buf_putc(out, '"');
    for (size_t i = 0; i < len; i++) {
        if (path[i] == '"') {
            poise_buf_putc(out, '"');
        }
        poise_buf_putc(out, path[i]);
    }
    poise_buf_putc(out, '"');
}

int walk_csv_line(struct poise_buf *out, const struct walk_row *row,
                  const char *path, size_t path_len)
{
    char text[48];
    csv_path(out, path, path_len);
    poise_buf_putc(out, ',');
    poise_buf_putc(out, walk_type_letter(row->mode));
    int len = snprintf(text, sizeof text, ",%04o", row->mode & 07777);
    poise_buf_append(out, text, (size_t)len);
    csv_number(out, row->uid);
    csv_number(out, row->gid);
    csv_number(out, row->size_bytes);
    csv_number(out, row->blocks);
    csv_number(out, row->nlink);
    csv_number(out, row->ino);
    csv_number(out, row->dev);
    poise_buf_putc(out, ',');
    poise_buf_append(out, text,
                     format_time(text, sizeof text, row->mtime, row->mtime_ns));
    poise_buf_putc(out, ',');
    poise_buf_append(out, text,
                     format_time(text, sizeof text, row->ctime, row->ctime_ns));
    poise_buf_putc(out, ',');
    poise_buf_append(out, text,
                     format_time(text, sizeof text, row->atime, row->atime_ns));
    return poise_buf_append(out, "\r\n", 2);
}

static void json_time(struct poise_buf *out, const char *key, int64_t s,
                      uint32_t ns)
{
    char text[48];
    poise_buf_puts(out, key);
    poise_buf_append(out, text, format_time(text, sizeof text, s, ns));
}

int walk_json_line(struct poise_buf *out, const struct walk_row *row,
                   const char *path, size_t path_len)
{
    char type[2] = {walk_type_letter(row->mode), 0}, mode[8];
    struct poise_json json = poise_json_to(out, true);
    snprintf(mode, sizeof mode, "%04o", row->mode & 07777);
    poise_json_object(&json, NULL);
    poise_json_bytes(&json, "path", path, path_len);
    poise_json_string(&json, "type", type);
    poise_json_string(&json, "mode", mode);
    poise_json_u64(&json, "uid", row->uid);
    poise_json_u64(&json, "gid", row->gid);
    poise_json_u64(&json, "size", row->size_bytes);
    poise_json_u64(&json, "blocks", row->blocks);
    poise_json_u64(&json, "nlink", row->nlink);
    poise_json_u64(&json, "ino", row->ino);
    poise_json_u64(&json, "dev", row->dev);
    /* All digits: a double would lose the last of them. */
    json_time(out, ",\"mtime\":", row->mtime, row->mtime_ns);
    json_time(out, ",\"ctime\":", row->ctime, row->ctime_ns);
    json_time(out, ",\"atime\":", row->atime, row->atime_ns);
    poise_json_end_object(&json);
    return !out->error && out->data[out->len - 1] != '\n'
               ? poise_buf_putc(out, '\n')
               : out->error;
}
