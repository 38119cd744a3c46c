#include "trainer/run/gemm_pin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

enum { TABLE_BYTES_MAX = 1 << 26 };

/* Returns the file that the environment names, or NULL. */
static const char *given(void)
{
    const char *path = getenv("REEL_GEMM_TABLE");
    return path && *path ? path : NULL;
}

/* Tells whether a file holds exactly this text. */
static bool holds(const char *path, const struct str *text)
{
    struct str other = STR_INIT;
    bool same = file_read(path, TABLE_BYTES_MAX, &other, NULL) == 0 && other.len == text->len &&
                (text->len == 0 || memcmp(other.p, text->p, text->len) == 0);
    str_release(&other);
    return same;
}

/* Reads the table that an earlier attempt has written into the run's folder. */
static int own_take(struct gemm_pin *pin, struct err *err)
{
    struct str own = STR_INIT;
    int rc;
    if ((rc = file_read(pin->kept, TABLE_BYTES_MAX, &own, err)) < 0)
        goto out;
    if (own.len > 0)
        snprintf(pin->path, sizeof pin->path, "%s", pin->kept);
    if (given() && !holds(given(), &own))
        log_msg(LOG_WARN,
                "REEL_GEMM_TABLE: '%s' is not used: this run keeps to the table that it began "
                "with, %s '%s'; remove that to take another one, with which results differ in "
                "their last digits", given(), own.len > 0 ? "which is" : "none, says", pin->kept);
out:
    str_release(&own);
    return rc;
}

static int table_find(struct gemm_pin *pin, struct err *err)
{
    pin->missing = !file_exists(pin->kept);
    if (!pin->missing)
        return own_take(pin, err);
    if (!given())
        return 0;
    if (strlen(given()) >= sizeof pin->path)
        return err_set(err, ERR_LIMIT, "REEL_GEMM_TABLE: the path is too long");
    snprintf(pin->path, sizeof pin->path, "%s", given());
    return file_read(pin->path, TABLE_BYTES_MAX, &pin->text, err);
}

int gemm_pin_find(struct comm *world, const char *run_dir, struct gemm_pin *out, struct err *err)
{
    struct gemm_pin pin = {.text = STR_INIT};
    int rc;
    snprintf(pin.kept, sizeof pin.kept, "%.4000s/gemm.table", run_dir);
    if ((rc = comm_agree(world, world->rank == 0 ? table_find(&pin, err) : 0, err)) < 0)
        goto out;
    if ((rc = comm_broadcast_bytes(world, pin.path, sizeof pin.path, 0, err)) < 0)
        goto out;
    *out = pin;
    return 0;
out:
    gemm_pin_release(&pin);
    return rc;
}

int gemm_pin_keep(struct gemm_pin *pin, struct err *err)
{
    int rc;
    if (!pin->missing)
        return 0;
    if ((rc = file_publish(pin->kept, pin->text.len ? pin->text.p : "", pin->text.len, err)) < 0)
        return rc;
    pin->missing = false;
    return 0;
}

void gemm_pin_release(struct gemm_pin *pin) { str_release(&pin->text); }
