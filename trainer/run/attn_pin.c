#include "trainer/run/attn_pin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

/* Returns REEL_ATTN of the environment, or "". */
static const char *given(void)
{
    const char *word = getenv("REEL_ATTN");
    return word ? word : "";
}

static const char *named(const char *word) { return *word ? word : "none"; }

/* Reads the value that an earlier attempt has written into the run's folder. */
static int own_take(struct attn_pin *pin, struct err *err)
{
    struct str own = STR_INIT;
    int rc;
    if ((rc = file_read(pin->kept, ATTN_WORD_BYTES - 1, &own, err)) < 0)
        goto out;
    snprintf(pin->word, sizeof pin->word, "%.*s", (int)own.len, own.len ? own.p : "");
    if (*given() && strcmp(given(), pin->word) != 0)
        log_msg(LOG_WARN,
                "REEL_ATTN: '%s' is not used: this run keeps to what it began with, %s, says '%s'; "
                "remove that to take another engine, with which results differ in their last "
                "digits", given(), named(pin->word), pin->kept);
out:
    str_release(&own);
    return rc;
}

static int word_find(struct attn_pin *pin, struct err *err)
{
    pin->missing = !file_exists(pin->kept);
    if (!pin->missing)
        return own_take(pin, err);
    if (strlen(given()) >= sizeof pin->word)
        return err_set(err, ERR_LIMIT, "REEL_ATTN: '%s' is too long: give plain, or a number",
                       given());
    snprintf(pin->word, sizeof pin->word, "%s", given());
    return 0;
}

int attn_pin_find(struct comm *world, const char *run_dir, struct attn_pin *out, struct err *err)
{
    struct attn_pin pin = {0};
    int rc;
    snprintf(pin.kept, sizeof pin.kept, "%.4000s/attn.engine", run_dir);
    if ((rc = comm_agree(world, world->rank == 0 ? word_find(&pin, err) : 0, err)) < 0)
        return rc;
    if ((rc = comm_broadcast_bytes(world, pin.word, sizeof pin.word, 0, err)) < 0)
        return rc;
    *out = pin;
    return 0;
}

int attn_pin_keep(struct attn_pin *pin, struct err *err)
{
    int rc;
    if (!pin->missing)
        return 0;
    if ((rc = file_publish(pin->kept, pin->word, strlen(pin->word), err)) < 0)
        return rc;
    pin->missing = false;
    return 0;
}
