/* trainer_ckpt: makes a rig whose state identifies its step, and saves, loads and inspects it, for
 * the tests of checkpoints. */
#ifndef TESTS_TRAINER_CKPT_H
#define TESTS_TRAINER_CKPT_H

#include "tests/lib/trainer_rig.h"

#include "trainer/ckpt/ckpt_priv.h"
#include "tests/lib/trainer_state.h"

extern enum run_moments moments;
extern bool some_frozen;

/* Opens a rig with this layout. `group` has as many ranks as the layout. */
void rig_open_as(struct rig *r, const char *layout, struct comm *group,
                 enum dtype dtype, double ema);
void ckpt_rig_open(struct rig *r, const char *layout, struct comm *group);

enum { STATE_MOST = 1 << 18 };

int64_t buffer_bytes(const struct rig *r, int buffer);

/* Returns the state in f64 in host memory, which is valid until the next call. It allocates
 * nothing, because tests make allocations fail here. */
struct ckpt_state state_get(const struct rig *r);
void state_set(struct rig *r, int64_t salt);
void state_check(const struct rig *r, int64_t salt);

static const struct hash128 config = {0x1234, 0x5678}, other_config = {0x1234, 0x5679};

extern struct ckpt_writer here; /* of the scratch folder; no other process writes there */

int try_save(struct rig *r, int64_t step, int64_t keep, struct err *err);
void save(struct rig *r, int64_t step, int64_t keep);

struct told { int n; char dir[LIMIT_PATH_BYTES], reason[ERR_TEXT_BYTES]; };

void on_damage(void *ctx, const char *dir, const char *reason);

/* Loads a checkpoint and checks that it is the state of `step`; with -1 it checks that none is
 * found. */
void load_expect(struct rig *r, int64_t step, struct told *told);
const char *step_file(int64_t step, const char *file);
bool exists(int64_t step, const char *suffix);

#endif
