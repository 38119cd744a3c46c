#include "base/id.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/limits.h"

int id_random(struct id *out, struct err *err)
{
    struct id id;
    ssize_t n;
    do
        n = getrandom(&id, sizeof id, 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof id)
        return err_set_errno(err, ERR_ENV, "the kernel gave no random bytes for a new id");
    *out = id;
    return 0;
}

char *id_format(struct id id, char buf[ID_TEXT_BYTES])
{
    snprintf(buf, ID_TEXT_BYTES, "%016" PRIx64 "%016" PRIx64, id.hi, id.lo);
    return buf;
}

static uint64_t parse_half(const char *hex)
{
    uint64_t v = 0;
    for (int i = 0; i < 16; i++)
        v = v << 4 | (uint64_t)(hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10);
    return v;
}

int id_parse(const char *text, struct id *out, struct err *err)
{
    if (strlen(text) != ID_TEXT_BYTES - 1 || strspn(text, "0123456789abcdef") != ID_TEXT_BYTES - 1)
        return err_set(err, ERR_INPUT, "'%.64s' is not an id: give 32 lower-case hex digits", text);
    *out = (struct id){parse_half(text), parse_half(text + 16)};
    return 0;
}

int id_name_check(const char *name, const char *what, struct err *err)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t len = strlen(name);
    if (len > 0 && len < LIMIT_NAME_BYTES && strspn(name, allowed) == len)
        return 0;
    return err_set(err, ERR_INPUT,
                   "%s is '%.200s': give a name of 1 to %d letters, digits, '-' and '_'", what,
                   name, LIMIT_NAME_BYTES - 1);
}
