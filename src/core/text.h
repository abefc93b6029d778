/*
 * poise/text.h - text for people (numbers with units) and for programs (JSON).
 */
#ifndef POISE_TEXT_H
#define POISE_TEXT_H

#include <poise/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** "1.5 GiB" (powers of 1024); "12,345,678"; "1 h 02 min", "3.2 s", "85 ms".
 */
POISE_API int poise_human_bytes(struct poise_buf *buf, uint64_t bytes);
POISE_API int poise_human_count(struct poise_buf *buf, uint64_t count);
POISE_API int poise_human_ns(struct poise_buf *buf, uint64_t ns);

/** Writes one JSON value into a buffer. Keys are literals of the program;
 * pass NULL inside arrays and at the top. Commas and indentation are kept
 * here; `compact` leaves out all white space. */
struct poise_json {
    struct poise_buf *out; /**< borrowed */
    bool compact;
    unsigned depth;
    bool first; /**< nothing written yet at this depth */
};
POISE_API struct poise_json poise_json_to(struct poise_buf *out, bool compact);
POISE_API void poise_json_object(struct poise_json *json, const char *key);
POISE_API void poise_json_end_object(struct poise_json *json);
POISE_API void poise_json_array(struct poise_json *json, const char *key);
POISE_API void poise_json_end_array(struct poise_json *json);
POISE_API void poise_json_u64(struct poise_json *json, const char *key,
                              uint64_t value);
POISE_API void poise_json_i64(struct poise_json *json, const char *key,
                              int64_t value);
/** Not-a-number and infinities are written as null. */
POISE_API void poise_json_double(struct poise_json *json, const char *key,
                                 double value);
POISE_API void poise_json_bool(struct poise_json *json, const char *key,
                               bool value);
POISE_API void poise_json_string(struct poise_json *json, const char *key,
                                 const char *text);
/** Any bytes. Where they are not UTF-8, the invalid ones become U+FFFD and,
 * inside an object, a second member KEY_base64 holds them exactly. */
POISE_API void poise_json_bytes(struct poise_json *json, const char *key,
                                const void *bytes, size_t len);

#ifdef __cplusplus
}
#endif

#endif
