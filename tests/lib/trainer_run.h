/* Tests of running share a world of one or of mpirun's ranks, a small model and run, and a dataset
 * made on the spot.
 *
 * Started by mpirun, a program runs its tests on all ranks together: the scratch folder is shared,
 * and rank 0 alone speaks.
 */
#ifndef TESTS_TRAINER_RUN_H
#define TESTS_TRAINER_RUN_H

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/scratch.h"
#include "tests/lib/trainer_fixture.h"

#include "base/hash.h"
#include "base/wds.h"
#include "profiles/dataset.h"
#include "profiles/plan.h"
#include "profiles/run.h"
#include "trainer/comm/comm.h"

extern struct comm *world;

void must(int rc, const struct err *err);
void must_fail(int rc, int code, const struct err *err, const char *wanted);
void world_open(int argc, char **argv);

/* Closes the world and returns the exit status of all ranks: a failure anywhere is one. */
int world_close(int failures);
int shared_setup(void **state);
int shared_teardown(void **state);

/* Is item i of a list tried today? With RANKS=all each is, else one of n, beginning with another one
 * on each day; DRAW=K is day K's choice. It is collective over the world the first time, for ranks
 * may start on both sides of midnight. */
bool dealt(int64_t i, int64_t n);

/* Returns a group of the first n ranks of the world; NULL on the others. It is collective over the
 * world. */
struct comm *first_ranks(int n);

/* ---- model and run ---- */

enum { RUN_CHANNELS = 3, RUN_TEXT_WIDTH = 5, RUN_TEXT_LEN = 6 };

struct model run_model(void);

/* Makes a run. Its lr is so large that a few steps change every number that a mistake would have to
 * hide in. `data` is kept. */
void run_make(struct run *r, const char *data, int64_t gbs, int64_t steps);
struct plan plan_make_text(const struct run *r, const char *layout);

/* ---- a dataset: shards of samples with known numbers ---- */

/* Returns <scratch>/data, as a text that stays. */
const char *data_dir(void);

static const double made_mean = 0.25, made_std = 1.5;

/* Writes a header of NPY version 1.0, padded to 64 bytes. */
void npy_header(struct str *out, const char *descr, const char *shape);

/* Returns element j of sample s's latent, before normalisation. It is exact in float32. */
float made_latent(int64_t s, int64_t j);
float made_text(int64_t s, int64_t j);
/* Return the extents of sample s, so that images and videos stand beside each other. */
int32_t made_t(int64_t s);
enum { MADE_H = 2 };
int32_t made_w(int64_t s);
int64_t made_cells(int64_t s);
/* Returns the frames a second; 0 means that they are not known. */
float made_fps(int64_t s);
int32_t made_text_len(int64_t s);
void made_parts(int64_t s, struct str *latent, struct str *text);
void made_shard(const char *path, int64_t first, int64_t n);
void made_index(struct wds_reader *r, int64_t s, uint32_t shard, uint32_t i,
                struct dataset_sample *out);

/* These bound what dataset_make can write to <scratch>/data: `shards` shards of `each` samples. One
 * rank calls it. */
enum { MADE_SHARDS_MAX = 8, MADE_SAMPLES_MAX = 64 };
void dataset_make(int64_t shards, int64_t each);

/* Turns over one bit of a byte of a file. */
void file_flip(const char *path, int64_t at);
int64_t file_bytes(const char *path);

#endif
