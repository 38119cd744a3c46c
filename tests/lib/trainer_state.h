/* trainer_state: fills a rank's state with numbers that identify their place: every element of a
 * model's weights and moments has its own number, the same in every layout. */
#ifndef TESTS_TRAINER_STATE_H
#define TESTS_TRAINER_STATE_H

#include "tests/lib/trainer_run.h"

#include "trainer/ckpt/ckpt.h"

/* Returns a whole number below 2^52, which f64 represents exactly. States with different `salt`
 * have different numbers. */
double state_number(int64_t salt, int buffer, int64_t tensor, int64_t global);

/* Returns the index in a buffer of element `local` of tensor t of unit u; -1 if it is in the piece
 * of another rank. It computes the formula independently of the trainer, as a check. */
int64_t state_place(const struct ckpt_state *s, int buffer,
                    const struct shard_unit *u, const struct shard_tensor *t,
                    int64_t local);

typedef void state_fn(double *element, double number);
void state_put(double *element, double number);
void state_compare(double *element, double number);

/* Visits all elements that a rank holds, which are f64, and returns their number. */
int64_t state_visit(const struct ckpt_state *s, int64_t salt, state_fn *fn);

/* ---- ranks without a group ---- */

/* Holds one rank of a layout with its state, in memory of its own. */
struct holder {
    struct shards sh;
    struct ckpt_state s;
    int64_t bytes[CKPT_BUFFERS];
};

void holder_open(struct holder *h, const struct model *m,
                 const struct param_list *params, const struct layout *l,
                 int64_t rank);
void holder_close(struct holder *h);

/* Returns a model of eight small heads, which fits many layouts. It has two k/v heads, which are
 * copied from tp 4 on. */
struct model wide_model(enum model_family family, enum model_adaln adaln);
struct layout layout_of_text(const char *text);

/* Writes a checkpoint as the ranks of l would. The salt of its state is its step. */
void folder_write(const char *dir, const struct model *m,
                  const struct finetune *finetune, const struct param_list *params,
                  const struct layout *l, int64_t step, state_fn *put);

#endif
