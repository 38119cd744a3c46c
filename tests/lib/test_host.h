/* test_host: makes a machine of round rates, and prices layouts of a small model on it, for tests of
 * autotune/.
 *
 *     struct model m = host_model();                  // dit-tiny
 *     struct host *h = host_of(&m);                   // steps of eight samples of 64 tokens
 *     host_terms(h, &host_rates, 2, "dp=2", terms);   // on two cores
 */
#ifndef TESTS_TEST_HOST_H
#define TESTS_TEST_HOST_H

#include "autotune/host.h"

/* 5e10 and 3e10 FLOP/s, 1e10 bytes/s, ranks that lose 5 % for each further core, messages of 1 us
 * at 1e9 bytes/s, a step of 1 ms in which nothing computes. */
extern const struct speed host_rates;

struct model host_model(void);
struct layout host_layout(const char *text);
/* Opens a host. There is one at a time. */
struct host *host_of(const struct model *m);
struct price_step host_step(struct host *h, const struct speed *r, int64_t cores,
                            const struct layout *l);
void host_terms(struct host *h, const struct speed *r, int64_t cores, const char *layout,
                double terms[PRICE_TERMS]);

#endif
