/* Tests of checkpoints share a rig whose state tells which step it is of, and ways to save it, to
 * load it and to look. */
#ifndef TESTS_TRAINER_CKPT_H
#define TESTS_TRAINER_CKPT_H

#include "tests/lib/trainer_rig.h"

#include "trainer/ckpt/ckpt_priv.h"
#include "tests/lib/trainer_state.h"

extern enum run_moments moments;
extern bool some_frozen;

/* Opens a rig under this layout. `group` has all ranks of the layout. */
void rig_open_as(struct rig *r, const char *layout, struct comm *group,
                 enum dtype dtype, double ema);
void ckpt_rig_open(struct rig *r, const char *layout, struct comm *group);

enum { STATE_MOST = 1 << 18 };

int64_t buffer_bytes(const struct rig *r, int buffer);

/* Returns a state of f64 in memory of the host, which lasts until the next call. It takes none, as
 * allocations may fail here by intention. */
struct ckpt_state state_get(const struct rig *r);
void state_set(struct rig *r, int64_t salt);
void state_check(const struct rig *r, int64_t salt);

static const struct hash128 config = {0x1234, 0x5678}, other_config = {0x1234, 0x5679};

static const struct ckpt_writer here = {.run_dir = scratch}; /* with nobody else */

int try_save(struct rig *r, int64_t step, int64_t keep, struct err *err);
void save(struct rig *r, int64_t step, int64_t keep);

struct told { int n; char dir[LIMIT_PATH_BYTES], reason[ERR_TEXT_BYTES]; };

void on_damage(void *ctx, const char *dir, const char *reason);

/* Loads, and expects the state of `step`; with -1 it expects that nothing is found. */
void load_expect(struct rig *r, int64_t step, struct told *told);
const char *step_file(int64_t step, const char *file);
bool exists(int64_t step, const char *suffix);

#endif
