#include "launcher/run/owner.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/limits.h"

/* Counts the looks after a change, of which there are four a second. Two changes of a
 * folder within 2 s may leave the same modification time. */
enum { LOOKS = 12 };

enum run_wish owner_look(struct owner_watch *w, const char *run_dir, struct run_fold *fold)
{
    char path[LIMIT_PATH_BYTES];
    struct stat st;
    snprintf(path, sizeof path, "%s/events", run_dir);
    if (stat(path, &st) < 0)
        return WISH_RUN;
    if (memcmp(&st.st_mtim, &w->mtime, sizeof st.st_mtim) != 0)
        w->looks = LOOKS;
    w->mtime = st.st_mtim;
    if (w->looks == 0)
        return WISH_RUN;
    w->looks--;
    return run_fold_renew(fold, NULL) == 0 ? run_fold_state(fold)->wish : WISH_RUN;
}
