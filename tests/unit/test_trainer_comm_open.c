/* A world that cannot be opened in full is none: MPI has ended, and nothing is handed out. */
// LINK: -Wl,--wrap=comm_peers_open
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <mpi.h>

#include "trainer/comm/comm.h"
#include "trainer/comm/comm_mpi_peers.h"

int __wrap_comm_peers_open(struct comm *world, struct comm_peers **out, struct err *err);

int __wrap_comm_peers_open(struct comm *world, struct comm_peers **out, struct err *err)
{
    (void)world, (void)out;
    return err_set(err, ERR_NOMEM, "no memory for the peers");
}

static void a_world_without_its_peers_is_closed(void **state)
{
    char name[] = "test", *words[] = {name, NULL}, **argv = words;
    struct comm *world = NULL;
    struct err err = {0};
    int argc = 1, over = 0;
    (void)state;
    assert_int_equal(comm_mpi_open(&argc, &argv, &world, &err), ERR_NOMEM);
    MPI_Finalized(&over);
    assert_true(over && !world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_world_without_its_peers_is_closed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
