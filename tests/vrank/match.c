/*
 * Matching against the plainest model there is: lists that are searched from
 * the front.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "vrank/match/match.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 3000 };

struct receive {
    struct vrank_entry entry;
    struct vrank_envelope wanted;
};

struct message {
    struct vrank_arrival arrival;
    struct vrank_envelope envelope;
};

/* Everything that waits, oldest first. */
struct model {
    struct receive *receives[MOST];
    struct message *messages[MOST];
    size_t receive_count, message_count;
};

static bool takes(const struct vrank_envelope *wanted,
                  const struct vrank_envelope *envelope)
{
    return wanted->context == envelope->context &&
           (wanted->source < 0 || wanted->source == envelope->source) &&
           (wanted->tag < 0 || wanted->tag == envelope->tag);
}

static struct receive *model_receive(struct model *model,
                                     const struct vrank_envelope *envelope)
{
    for (size_t i = 0; i < model->receive_count; i++) {
        struct receive *receive = model->receives[i];
        if (takes(&receive->wanted, envelope)) {
            memmove(&model->receives[i], &model->receives[i + 1],
                    (--model->receive_count - i) * sizeof receive);
            return receive;
        }
    }
    return NULL;
}

static struct message *model_message(struct model *model,
                                     const struct vrank_envelope *wanted)
{
    for (size_t i = 0; i < model->message_count; i++) {
        if (takes(wanted, &model->messages[i]->envelope)) {
            return model->messages[i];
        }
    }
    return NULL;
}

static void model_remove(struct model *model, struct message *message)
{
    size_t at = 0;
    while (model->messages[at] != message) {
        at++;
    }
    memmove(&model->messages[at], &model->messages[at + 1],
            (--model->message_count - at) * sizeof message);
}

/* Few names so that much matches, or many so that tables grow. */
static struct vrank_envelope draw(struct poise_rng *rng, int names)
{
    return (struct vrank_envelope){
        .context = poise_rng_below(rng, 2),
        .source = (int)poise_rng_below(rng, (uint64_t)names),
        .tag = (int)poise_rng_below(rng, (uint64_t)names)};
}

static void send_one(struct vrank_mailbox *box, struct model *model,
                     struct poise_rng *rng, int names)
{
    struct vrank_envelope envelope = draw(rng, names);
    struct receive *expected = model_receive(model, &envelope);
    struct vrank_entry *received = vrank_match_arrive(box, &envelope);
    assert_ptr_equal(received, expected);
    if (expected) {
        free(expected);
        return;
    }
    struct message *message = calloc(1, sizeof *message);
    message->envelope = envelope;
    vrank_match_keep(box, &message->arrival, &envelope);
    model->messages[model->message_count++] = message;
}

static void receive_one(struct vrank_mailbox *box, struct model *model,
                        struct poise_rng *rng, int names)
{
    struct vrank_envelope wanted = draw(rng, names);
    uint64_t wild = poise_rng_below(rng, 12);
    wanted.source = wild & 1 && wild < 6 ? VRANK_MATCH_ANY : wanted.source;
    wanted.tag = wild & 2 && wild < 6 ? VRANK_MATCH_ANY : wanted.tag;
    struct message *expected = model_message(model, &wanted);
    struct vrank_arrival *received = vrank_match_find(box, &wanted);
    assert_ptr_equal(received, expected);
    if (expected) {
        vrank_match_remove(box, received);
        model_remove(model, expected);
        free(expected);
        return;
    }
    struct receive *receive = calloc(1, sizeof *receive);
    receive->wanted = wanted;
    vrank_match_post(box, &receive->entry, &wanted);
    model->receives[model->receive_count++] = receive;
}

static void cancel_one(struct vrank_mailbox *box, struct model *model,
                       struct poise_rng *rng)
{
    if (model->receive_count == 0) {
        return;
    }
    size_t at = poise_rng_below(rng, model->receive_count);
    struct receive *receive = model->receives[at];
    memmove(&model->receives[at], &model->receives[at + 1],
            (--model->receive_count - at) * sizeof receive);
    assert_true(vrank_match_cancel(box, &receive->entry));
    assert_false(vrank_match_cancel(box, &receive->entry));
    free(receive);
}

static void play(int names, int steps, uint64_t seed)
{
    static struct model model;
    struct vrank_mailbox box;
    struct poise_rng rng;
    poise_rng_seed(&rng, seed);
    vrank_mailbox_init(&box);
    model = (struct model){0};
    for (int step = 0; step < steps; step++) {
        /* The weather changes, so that both sides pile up by turns. */
        uint64_t sends = step / 500 % 2 ? 12 : 7;
        uint64_t what = poise_rng_below(&rng, 20);
        if (what == 19) {
            cancel_one(&box, &model, &rng);
        } else if (what < sends) {
            send_one(&box, &model, &rng, names);
        } else {
            receive_one(&box, &model, &rng, names);
        }
        assert_int_equal(box.posted.count + (box.alone != NULL),
                         model.receive_count);
        assert_int_equal(box.arrived.count, model.message_count);
    }
    for (size_t i = 0; i < model.receive_count; i++) {
        free(model.receives[i]);
    }
    for (size_t i = 0; i < model.message_count; i++) {
        free(model.messages[i]);
    }
    vrank_mailbox_free(&box);
}

static void test_model(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        play(2, 3000, seed);
        play(20, 3000, seed);
        play(1000, 3000, seed);
    }
}

/* Where tables cannot grow, chains do. */
static void test_no_memory(void **state)
{
    (void)state;
    poise_fault_arm(POISE_FAULT_ALLOC, 1, ENOMEM, true);
    play(1000, 3000, 9);
    assert_true(poise_fault_calls(POISE_FAULT_ALLOC) > 0);
    poise_fault_arm(POISE_FAULT_ALLOC, 0, 0, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
