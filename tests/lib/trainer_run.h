/* trainer_run: makes a world of one rank or of mpirun's ranks, a small model and run, and a
 * generated dataset, for the tests of training.
 *
 * If mpirun starts the program, it runs its tests on all ranks together: they share the scratch
 * folder, and only rank 0 prints.
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

/* Closes the world and returns the exit status, which is the same on all ranks: 1 if any rank
 * failed. */
int world_close(int failures);
int shared_setup(void **state);
int shared_teardown(void **state);

/* Tells whether item i of a list is tested today. With RANKS=all every item is, else one of n, a
 * different one each day; DRAW=K chooses the items of day K. The first call is collective over the
 * world, since ranks may start before and after midnight. */
bool dealt(int64_t i, int64_t n);

/* Returns a group of the first n ranks of the world; NULL on the others. It is collective over the
 * world. */
struct comm *first_ranks(int n);

/* ---- model and run ---- */

enum { RUN_CHANNELS = 3, RUN_TEXT_WIDTH = 5, RUN_TEXT_LEN = 6 };

struct model run_model(void);

/* Makes a run. Its learning rate is so large that a few steps change every number in which an error
 * could hide. `data` is borrowed. */
void run_make(struct run *r, const char *data, int64_t gbs, int64_t steps);
struct plan plan_make_text(const struct run *r, const char *layout);

/* ---- a dataset: shards of samples with known numbers ---- */

/* Returns <scratch>/data. The text is static. */
const char *data_dir(void);

static const double made_mean = 0.25, made_std = 1.5;

/* Writes a header of NPY version 1.0, padded to 64 bytes. */
void npy_header(struct str *out, const char *descr, const char *shape);

/* Returns element j of sample s's latent, before normalisation. It is exact in float32. */
float made_latent(int64_t s, int64_t j);
float made_text(int64_t s, int64_t j);
/* Return the extents of sample s. They vary so that images and videos alternate. */
int32_t made_t(int64_t s);
enum { MADE_H = 2 };
int32_t made_w(int64_t s);
int64_t made_cells(int64_t s);
/* Returns the frames per second; 0 means that they are not known. */
float made_fps(int64_t s);
int32_t made_text_len(int64_t s);
void made_parts(int64_t s, struct str *latent, struct str *text);
void made_shard(const char *path, int64_t first, int64_t n);
void made_index(struct wds_reader *r, int64_t s, uint32_t shard, uint32_t i,
                struct dataset_sample *out);

/* These are the bounds of dataset_make, which writes `shards` shards of `each` samples to
 * <scratch>/data. Only one rank calls it. */
enum { MADE_SHARDS_MAX = 8, MADE_SAMPLES_MAX = 64 };
void dataset_make(int64_t shards, int64_t each);

/* Flips one bit of a byte of a file. */
void file_flip(const char *path, int64_t at);
int64_t file_bytes(const char *path);

#endif
