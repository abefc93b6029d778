/* Streams of messages over a peer, and what is wrong with them. */
#include "common.h"

#include <errno.h>

int remote_bad(const char *why)
{
    return poise_error_set(EBADMSG, "understand the other end", NULL, "%s",
                           why);
}

int remote_messages_send(struct poise_dedup_peer *peer, struct poise_buf *data,
                         uint64_t *at)
{
    for (size_t done = 0; done < data->len;) {
        size_t len = data->len - done;
        struct poise_dedup_piece piece = {
            .kind = POISE_DEDUP_LITERAL,
            .data = (const unsigned char *)data->data + done,
        };
        int code;

        len = len < POISE_DEDUP_SEGMENT_MOST ? len : POISE_DEDUP_SEGMENT_MOST;
        piece.len = len;
        piece.place = (struct poise_dedup_place){
            .x = *at, .width = (uint32_t)len, .height = 1};
        code = poise_dedup_peer_send_piece(peer, 0, &piece);
        if (code < 0) {
            return code;
        }
        done += len;
        *at += len;
    }
    poise_buf_reset(data);
    return 0;
}
