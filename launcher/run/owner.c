#include "launcher/run/owner.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/limits.h"

enum { LOOKS = 12 }; /* after a change, four a second: two changes of a folder within 2 s may have one time */

enum run_wish owner_look(struct owner_watch *w, const char *run_dir)
{
    char path[LIMIT_PATH_BYTES];
    struct stat st;
    struct run_state now;
    snprintf(path, sizeof path, "%s/events", run_dir);
    if (stat(path, &st) < 0)
        return WISH_RUN;
    if (memcmp(&st.st_mtim, &w->mtime, sizeof st.st_mtim) != 0)
        w->looks = LOOKS;
    w->mtime = st.st_mtim;
    if (w->looks == 0)
        return WISH_RUN;
    w->looks--;
    run_state_init(&now);
    enum run_wish wish = run_state_load(run_dir, &now, NULL) == 0 ? now.wish : WISH_RUN;
    run_state_release(&now);
    return wish;
}
