/* named: what a file's name tells of an attempt, for whose events the disk had no room
 * (launcher/state/end_name.h says when the file is named, and how). The state of a run and the
 * database both read it; an event of the same attempt's end counts rather than it. */
#ifndef FOLD_NAMED_H
#define FOLD_NAMED_H

#include <stdbool.h>
#include <stdint.h>

/* Says what had become of the attempt: it went on; its job was given back; it ended, or its agent
 * did. */
enum named_end { NAMED_OPEN, NAMED_GIVEN_BACK, NAMED_ENDED, NAMED_AGENT_DIED };

struct fold_named {
    int64_t attempt;
    int signo;        /* of the first stop notice; 0: there was none */
    bool at_node;     /* that notice came to a node agent */
    double notice_at; /* UTC s */
    enum named_end end;
    char cause[16];   /* as in the event attempt_ended */
    int exit_code, exit_signal;
    double at;        /* when this was recorded, UTC s; of NAMED_ENDED: when the attempt ended */
};
/* Reads the record from the file's name. Returns false for a name without one. */
bool fold_named_parse(const char *name, struct fold_named *out);
/* Returns the word for it in such a name. */
const char *fold_named_word(enum named_end end);

#endif
