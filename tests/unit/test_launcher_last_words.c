/* What is taken from the end of a foreign trainer's log to say why it ended. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/str.h"
#include "launcher/wrap/last_words.h"

static void test_last_words_full(void **state)
{
    static const struct {
        const char *text;
        bool full;
    } table[] = {
        {"", false},
        {"step 1\nOSError: [Errno 28] No space left on device: '/lustre/ck/step-40'\n", true},
        {"dd: error writing 'x': Disk quota exceeded\nsrun: error: n0: task 0: Exited with exit "
         "code 1\n", true},
        {"RuntimeError: unable to write to file </torch_71_2>: No space left on device (28)\n",
         false},
        {"OSError: [Errno 28] No space left on device: '/dev/shm/pymp-1'\n", false},
        {"OSError: [Errno 28] No space left on device: '/dev/shm/x'\nOSError: [Errno 28] No space "
         "left on device\n", true},
        {"no space between words\n", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (last_words_find_full(table[i].text) != table[i].full)
            fail_msg("'%s'", table[i].text);
}

static void test_last_words(void **state)
{
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"step 1\nTraceback (most recent call last):\n  File \"t.py\", line 3\nRuntimeError: CUDA "
         "error: an illegal memory access\nsrun: error: n3: task 5: Exited with exit code 1\n"
         "srun: error: n1: task 1: Exited with exit code 1\n",
         "RuntimeError: CUDA error: an illegal memory access; srun: error: n3: task 5: Exited with "
         "exit code 1"},
        {"RuntimeError: CUDA out of memory\nsrun: error: n1: task 1: Exited with exit code "
         "3\nsrun: launch/slurm: _step_signal: Terminating StepId=1.0\n"
         "slurmstepd-n0: error: *** STEP 1.0 ON n0 CANCELLED AT 2026-11-22T18:20:29 "
         "***\nConnectionError: rank 1 is gone\nsrun: error: n0: task 0: Terminated\n",
         "RuntimeError: CUDA out of memory; srun: error: n1: task 1: Exited with exit code 3"},
        {"ConnectionError: rank 1 is gone\nsrun: error: n1: task 1: Exited with exit code "
         "3\nRuntimeError: CUDA out of memory\n",
         "RuntimeError: CUDA out of memory; srun: error: n1: task 1: Exited with exit code 3"},
        {"reel-train: error: step 5: rank 1 of the world is gone: its process 6389 has ended "
         "(killed, or crashed) without a word; rank 3 waited "
         "for reduce-scatter 'gradients of a unit' in group shard of 4 ranks: run it again from "
         "what was saved\n"
         "reel-train: error: step 5: rank 3 of the world is gone: its process 6395 has ended "
         "(killed, or crashed) without a word\n"
         "srun: error: n1: task 3: Exited with exit code 75\nsrun: error: n0: task 1: Killed\n",
         "reel-train: error: step 5: rank 1 of the world is gone: its process 6389 has ended "
         "(killed, or crashed) without a word; rank 3 waited "
         "for reduce-scatter 'gradients of a unit' in group shard of 4 ranks: run it again from "
         "what was saved; "
         "srun: error: n1: task 3: Exited with exit code 75"},
        {"slurmstepd: error: Detected 1 oom-kill event\nsrun: error: n0: task 0: Out Of Memory\n",
         "srun: error: n0: task 0: Out Of Memory"},
        {"OSError: [Errno 28] No space left on device\r\n\x1b[31mbye\x1b[0m\n",
         "OSError: [Errno 28] No space left on device"},
        {"ValueError: caf\xe9 \xff\n", "ValueError: caf? ?"},
        {"OSError: '/data/gr\xc3\xb6\xc3\x9f" "e/\xe6\x98\xa0' is gone\xc2\x9b\x37m\x7f\n",
         "OSError: '/data/gr\xc3\xb6\xc3\x9f" "e/\xe6\x98\xa0' is gone??7m?"},
        {"step 1\nstep 2\n", ""},
        {"", ""},
    };
    char out[LAST_WORDS_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s", rows[i].text);
        last_words_find(text, strlen(text), out, sizeof out);
        assert_string_equal(out, rows[i].words);
    }
    last_words_exit(137, 0, out, sizeof out);
    assert_string_equal(out, "exited with 137 (128 + SIGKILL)");
    last_words_exit(-1, 9, out, sizeof out);
    assert_string_equal(out, "died of SIGKILL (signal 9)");
    last_words_exit(-1, 0, out, sizeof out);
    assert_string_equal(out, "ended, and how is not known");
    last_words_exit(7, 0, out, sizeof out);
    assert_string_equal(out, "exited with 7");
}

/* What is said of a rank of reel-train that was killed: by another rank, or by its launcher. */
static void test_last_words_gone(void **state)
{
    static const char noticed[] =
        "mpirun noticed that process rank 0 with PID 0 on node h7 exited on signal 9 (Killed).\n";
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"reel-train: error: step 5: rank 0 of the world is gone: its process 7 has ended; rank 1 "
         "waited\nmpirun noticed that process rank 1 with PID 0 on node h7 exited on signal 9 "
         "(Killed).\n", "rank 0 of the world is gone: its process 7 has ended; rank 1 waited"},
        {noticed, "rank 0 of the world is gone: it died of SIGKILL (signal 9), says mpirun"},
        {"reel-train: error: step 9: MPI Isend failed on rank 1 of 2: MPI_ERR_OTHER\nmpirun noticed "
         "that process rank 0 with PID 0 on node h7 exited on signal 11 (Segmentation fault).\n",
         "rank 0 of the world is gone: it died of SIGSEGV (signal 11), says mpirun"},
        {"srun: error: n1: task 3: Exited with exit code 75\nsrun: error: n0: task 0: Killed\n"
         "srun: error: n0: tasks 1-2: Killed\n",
         "rank 0 of the world is gone: it died of SIGKILL (signal 9), says srun"},
        {"srun: error: n0: tasks 0,2: Aborted (core dumped)\n",
         "ranks 0,2 of the world are gone: they died of SIGABRT (signal 6), says srun"},
        {"srun: error: n0: task 0: Out Of Memory\n",
         "rank 0 of the world is gone: Out Of Memory, says srun"},
        {"srun: error: n1: task 3: Exited with exit code 1\nsrun: error: n0: task 0: Killed\n", ""},
        {"reel-train: error: out of memory\nsrun: error: n0: task 0: Killed\n", ""},
        {"reel-train: step 5\n", ""}, {"", ""},
    };
    char out[LAST_WORDS_BYTES];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[1024];
        snprintf(text, sizeof text, "%s", rows[i].text);
        last_words_gone_find(text, out, sizeof out);
        assert_string_equal(out, rows[i].words);
    }
    assert_true(last_words_blame_mpi("step 9: MPI Isend failed on rank 1 of 2: known error"));
    assert_false(last_words_blame_mpi("rank 1 of the world is gone: its process 7 has ended; MPI "
                                      "Isend failed on rank 0 of 2: known error"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_last_words),
                                       cmocka_unit_test(test_last_words_gone),
                                       cmocka_unit_test(test_last_words_full)};
    return cmocka_run_group_tests_name("last words", tests, NULL, NULL);
}
