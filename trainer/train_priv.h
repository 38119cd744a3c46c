/* train_priv: what setting up (train_open.c) and running (train.c) share. */
#ifndef TRAINER_TRAIN_PRIV_H
#define TRAINER_TRAIN_PRIV_H

#include "trainer/ckpt.h"
#include "trainer/loader.h"
#include "trainer/pipe.h"
#include "trainer/record.h"
#include "trainer/train.h"

struct train {
    const struct train_conf *conf;
    const struct run *run;
    const struct layout *layout;
    struct comm_grid grid;
    struct param_list params;
    struct shards sh;
    struct dev *dev;
    struct dev_stream *stream;
    struct ops *ops;
    struct optim optim;
    struct units units;
    struct dit *dit;
    struct pipe pipe;
    struct loader *loaders[LIMIT_STAGES];
    int64_t most_micros; /* micro-batches of a step, over all stages of the run */
    struct record record;
    struct buffer_list plan;
    int64_t process_bytes; /* resident before any of the plan was taken, and some growth */
    double peak_flops; /* of the world, 0 unknown */
    int64_t next_step, skips;
    double *times;     /* step_s of this attempt, up to TRAIN_TIMES_MAX */
    int64_t n_times;
    struct train_phases phases; /* sums */
    struct hash128 config_hash;
    char layout_text[256];
};

/* train_open.c. Each rank's own failures are agreed on before the next collective call. */
int train_open(struct train *t, struct err *err);
void train_close(struct train *t);
void train_say(const struct train *t, const char *line); /* rank 0 */
int64_t train_resident_peak_bytes(void);
double train_waited_s(const struct train *t); /* in communication, all groups, since opening */

#endif
