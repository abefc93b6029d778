/* Tunnels: whether one end learns, by what its own data take, what passed for
 * another. */
#include "tunnel_files.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LEN = 3000 };

/* Who connects, and what its guess may take. */
struct visitor {
    const char *cert, *key;  /* NULL: the secret */
    unsigned char elsewhere; /* it seems to come from another address */
};

/* Turns until the ends know each other; the address that the far one sees is
 * another one from the first. */
static void link_from(struct side *side, unsigned char elsewhere)
{
    struct side_timeout timeout = side_timeout();
    const struct tunnel_link *seen = NULL;

    while (!side->near->via_link || side->near->via_link->window == 0) {
        struct tunnel_link *link;
        assert_int_equal(side_turn(side), 0);
        link = side->far->links;
        if (link && link != seen && !link->opens) {
            assert_null(link->cache);
            link->from[REMOTE_SOURCE_BYTES - 1] ^= elsewhere;
            seen = link;
        }
        side_wait(&timeout);
    }
}

/* Bytes over the link that it takes to say something. */
static uint64_t say(struct side *side, const struct visitor *visitor,
                    const unsigned char *data)
{
    struct side_client *client;
    uint64_t before, bytes;

    if (visitor->cert) {
        files_set_cert(&side->near_options, visitor->cert, visitor->key,
                       "ca.pem");
    }
    before = tunnel_stats(side->far).link_in_bytes;
    assert_int_equal(side_start_near(side), 0);
    link_from(side, visitor->elsewhere);
    client = side_client(side, data, LEN);
    side_finish(side);
    assert_int_equal(client->error, 0);
    assert_int_equal(client->received, LEN);
    tunnel_destroy(side->near);
    side->near = NULL;
    while (side->far->links) {
        assert_int_equal(side_turn(side), 0);
    }
    bytes = tunnel_stats(side->far).link_in_bytes - before;
    print_message("%s, %s: %llu bytes\n",
                  visitor->cert ? visitor->cert : "the secret",
                  visitor->elsewhere ? "from elsewhere" : "from here",
                  (unsigned long long)bytes);
    return bytes;
}

/* The same is said by one visitor, then by the other. */
static void check(const struct visitor *one, const struct visitor *other,
                  bool shared, bool shows)
{
    unsigned char *data = malloc(LEN);
    struct poise_rng rng;
    struct side side;

    assert_non_null(data);
    poise_rng_seed(&rng, 5);
    for (size_t i = 0; i < LEN; i++) {
        data[i] = (unsigned char)poise_rng_below(&rng, 256);
    }
    side_init(&side);
    side.far_options.shared_cache = shared;
    if (one->cert) {
        files_set_cert(&side.far_options, "far.pem", "far.key", "ca.pem");
    } else {
        files_set_secret(&side);
    }
    assert_int_equal(side_start_far(&side), 0);
    assert_true(say(&side, one, data) > LEN);
    if (shows) {
        assert_true(say(&side, other, data) < LEN);
    } else {
        assert_true(say(&side, other, data) > LEN);
    }
    side_free(&side);
    free(data);
}

static void test_certificates(void **state)
{
    static const struct visitor near = {"near.pem", "near.key", 0};
    static const struct visitor moved = {"near.pem", "near.key", 1};
    static const struct visitor twin = {"twin.pem", "twin.key", 0};

    (void)state;
    files_make_certs();
    check(&near, &twin, false, false);
    /* The same one, wherever it is. */
    check(&near, &moved, false, true);
    check(&near, &twin, true, true);
}

static void test_secret(void **state)
{
    static const struct visitor here = {NULL, NULL, 0}, there = {NULL, NULL, 1};

    (void)state;
    check(&here, &there, false, false);
    check(&here, &here, false, true);
    check(&here, &there, true, true);
}

/* More other ends than caches stay open: those whose links run all have theirs,
 * and none is left in the end. */
static void test_many(void **state)
{
    enum { MANY = 20 };
    struct side side;
    unsigned open = 0;
    unsigned char data[LEN] = {1, 2, 3};

    (void)state;
    side_init(&side);
    files_set_secret(&side);
    assert_int_equal(side_start_far(&side), 0);
    for (unsigned char i = 1; i <= MANY; i++) {
        say(&side, &(struct visitor){.elsewhere = i}, data);
    }
    for (struct tunnel_cache *at = side.far->caches; at; at = at->next) {
        assert_int_equal(at->links, 0);
        open++;
    }
    assert_in_range(open, 1, MANY / 2);
    side_free(&side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_certificates),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_many),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, files_make_folder,
                                  files_remove_folder);
}
