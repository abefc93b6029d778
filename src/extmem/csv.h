/*
 * poise/csv.h - rows of CSV, as RFC 4180 describes them: fields parted by a
 * character, those in quotes with separators, ends of lines and doubled quotes
 * in them, a first row with the names of the columns.
 *
 * To be sorted rows end with NUL instead of the newline, which their fields may
 * have: struct poise_csv does that to what is read. Source: RFC 4180, 2.
 */
#ifndef POISE_CSV_H
#define POISE_CSV_H

#include <poise/base.h>

#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A reader of rows. Zeros but for `separator` and `path`. */
struct poise_csv {
    char separator;
    const char *path; /**< of the file, for messages; borrowed */
    /** Fields that every row has to have; 0: as many as the first. */
    uint64_t columns;
    uint64_t line;   /**< newlines that were read */
    uint64_t fields; /**< of this row, that have ended */
    uint64_t quoted; /**< the line, from 1 on, where quotes began */
    enum {
        POISE_CSV_BEGIN, /**< of a field */
        POISE_CSV_PLAIN,
        POISE_CSV_QUOTED,
        POISE_CSV_BEHIND, /**< a quote within quotes, or their end */
        POISE_CSV_RETURN, /**< a CR behind quotes */
    } state;
    bool any;      /**< the row has begun */
    unsigned mark; /**< bytes that were seen of the mark of UTF-8, with which a
                      file may begin: it is of no field */
};
/** That mark. */
#define POISE_CSV_MARK "\xef\xbb\xbf"

/**
 * Read on: newlines that end rows become NULs. Returns how many bytes were read
 * until `rows` rows had ended (0: all). -EBADMSG, with the number of the line:
 * something stands behind quotes, a NUL, a row has more or fewer fields.
 */
POISE_API ssize_t poise_csv_read(struct poise_csv *csv, char *data, size_t len,
                                 uint64_t rows);
/** The file is over: ends a row that no newline ended. -EBADMSG: quotes are
 * open, too few fields. */
POISE_API int poise_csv_end(struct poise_csv *csv);

/** Field `i`, from 0 on, of a row without its end: [*from, *to), quotes
 * included; both `len` if there is none. */
POISE_API void poise_csv_field(const char *row, size_t len, char separator,
                               size_t i, size_t *from, size_t *to);
/** What stands in the quotes of a field, or the field itself, into `to`, which
 * has `len` bytes of room (or is `field`); how many. */
POISE_API size_t poise_csv_unquote(const char *field, size_t len, char *to);

#ifdef __cplusplus
}
#endif

#endif
