/* Runs the threads of a block as fibers.
 *
 * A fiber is a stack. It runs a thread to its end and then takes the next thread that has not
 * begun, so a kernel without barriers needs one stack and no switch. A thread that waits keeps its
 * stack until it continues. Switches use the compiler's built-in setjmp and longjmp. Only a fiber's
 * first step uses ucontext, because its functions make a system call for the signal mask.
 *
 * Before each jump the address sanitizer would clear its state of the present stack, with a system
 * call. This is not needed, because a jump leaves only frames of the functions in this file. So
 * these functions are compiled without the sanitizer (JUMPS). */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ucontext.h>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#ifdef __SANITIZE_ADDRESS__
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

dim3 gridDim, blockDim, blockIdx, threadIdx;
alignas(256) unsigned char block_memory[SHIM_SHARED];

namespace {

enum {
    STACK_BYTES = 128 << 10, TAKES_OF_FAVOURITE = 256,
    LINE_BYTES = 64, PLACES = 64 /* of the first-level cache */
};

#define JUMPS __attribute__((noinline, no_sanitize("address")))
typedef void *place[5]; /* the type that __builtin_setjmp needs */

/* A switch touches one cache line of each fiber. */
struct alignas(LINE_BYTES) fiber {
    place at;
    /* not cleared, because a thread touches only the upper end */
    std::unique_ptr<char[]> stack{new char[STACK_BYTES]};
    int thread; /* the thread that runs on it, or runs next */
    bool begun;
};
static_assert(sizeof(fiber) == LINE_BYTES, "of one line");

struct thread {
    fiber *on; /* NULL: the thread has not begun */
    enum { RUNS, AT_BLOCK, AT_WARP, ENDED } state;
    unsigned shows; /* how many values it has shown to its warp */
};

struct warp {
    int n, ready[SHIM_WARP]; /* its threads that can continue */
};

struct block {
    void (*body)(void *);
    void *args;
    int threads, current, ended, at_block;
    std::vector<thread> all;
    std::vector<warp> warps;
    int n_ready;
    std::vector<int> at_warp;
    std::vector<fiber *> idle;
    fiber *starting;
    place out;
    uint64_t seed, state; /* of the random choices */
    size_t favourite; /* the warp that is preferred when threads are chosen at random */
};
block b;
/* Lanes show values in turns, which alternate between two slots. A lane that reads turn n has
 * reached it, and a lane that shows turn n+2 has passed turn n+1, after all lanes have read turn n.
 * So no value is overwritten before it was read. */
enum { TURNS = 2 };
unsigned char slots[TURNS][SHIM_THREADS][SHIM_SHOWN];

[[noreturn]] void broken(const char *what)
{
    std::fprintf(stderr, "shim: block %u of %u: %s (%d of %d threads have ended)\n", blockIdx.x,
                 gridDim.x, what, b.ended, b.threads);
    std::abort();
}

/* Returns the next random number: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). */
uint64_t draw()
{
    uint64_t x = b.state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void ready_add(int t)
{
    warp &w = b.warps[(size_t)t / SHIM_WARP];
    w.ready[w.n++] = t;
    b.n_ready++;
}

/* Returns the warp whose thread continues. Without a seed it is the first one with a ready thread.
 * With a seed it is the favourite if one of its threads is ready, and now and then another one,
 * chosen at random. So one warp runs far ahead of the others, which would not happen if each thread
 * had the same chance. */
warp &warp_choose(uint64_t drawn)
{
    size_t n = b.warps.size(), w = 0;
    if (b.seed && drawn % TAKES_OF_FAVOURITE && b.warps[b.favourite].n)
        return b.warps[b.favourite];
    for (w = b.seed ? draw() % n : 0; !b.warps[w % n].n; w++)
        ;
    return b.warps[b.favourite = w % n];
}

/* Takes a thread that can continue: the first in order, or a random one with a seed. This takes
 * half the time of a switch, so one random number makes both choices, by its lower and its upper
 * bits. */
int ready_take()
{
    uint64_t drawn = b.seed ? draw() : 0;
    warp &w = warp_choose(drawn);
    if (b.seed)
        std::swap(w.ready[(drawn >> 32) * (uint64_t)w.n >> 32], w.ready[w.n - 1]);
    b.n_ready--;
    return w.ready[--w.n];
}

/* Takes the next thread; returns -1 if all have ended. */
int ready_next()
{
    if (b.n_ready > 0)
        return ready_take();
    if (b.ended < b.threads)
        broken("threads wait at a barrier that others never reach");
    return -1;
}

/* ---- switches ---- */

void fiber_main();

/* Tells the address sanitizer to which stack we switch. */
void leave_for(const fiber *to)
{
#ifdef __SANITIZE_ADDRESS__
    static const void *own_bottom;
    static size_t own_size;
    if (!own_bottom) {
        pthread_attr_t attr;
        void *at;
        pthread_getattr_np(pthread_self(), &attr);
        pthread_attr_getstack(&attr, &at, &own_size);
        pthread_attr_destroy(&attr);
        own_bottom = at;
    }
    __sanitizer_start_switch_fiber(nullptr, to ? to->stack.get() : own_bottom,
                                   to ? (size_t)STACK_BYTES : own_size);
#else
    (void)to;
#endif
}

void arrived()
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

[[noreturn]] JUMPS void fiber_begin(fiber *f)
{
    leave_for(f);
    static ucontext_t start;
    static size_t made;
    f->begun = true;
    b.starting = f;
    getcontext(&start);
    start.uc_stack.ss_sp = f->stack.get();
    /* Stacks that ended at the same offset in a page would share a few sets of the cache. */
    start.uc_stack.ss_size = STACK_BYTES - made++ % PLACES * LINE_BYTES;
    start.uc_link = nullptr;
    makecontext(&start, fiber_main, 0);
    setcontext(&start);
    std::abort();
}

fiber *idle_take()
{
    if (b.idle.empty())
        return new fiber(); /* fibers are reused by later launches */
    fiber *f = b.idle.back();
    b.idle.pop_back();
    return f;
}

/* Continues with a thread on its own stack, or leaves the block if t < 0. */
[[noreturn]] JUMPS void go_on(int t)
{
    if (t < 0) {
        leave_for(nullptr);
        __builtin_longjmp(b.out, 1);
    }
    fiber *f = b.all[t].on ? b.all[t].on : idle_take();
    f->thread = t;
    if (!f->begun)
        fiber_begin(f);
    leave_for(f);
    __builtin_longjmp(f->at, 1);
}

void thread_enter(int t)
{
    b.current = t;
    threadIdx = dim3((unsigned)t);
}

/* Runs threads that have not begun, one after another. */
JUMPS void fiber_main()
{
    fiber *const self = b.starting;
    arrived();
    for (;;) {
        int t = self->thread;
        b.all[t].on = self;
        thread_enter(t);
        b.body(b.args);
        b.all[b.current].state = thread::ENDED;
        b.ended++;
        int next = ready_next();
        if (next >= 0 && !b.all[next].on) {
            self->thread = next;
            continue;
        }
        b.idle.push_back(self);
        if (__builtin_setjmp(self->at) == 0)
            go_on(next);
        arrived();
    }
}

/* Suspends the running thread until it is ready again. It jumps to a thread that waits by itself: the
 * processor predicts where functions return to by the calls before, so that a call of go_on, from
 * which nothing returns, would make it mistake all returns of that thread. */
JUMPS void wait()
{
    int t = b.current;
    fiber *self = b.all[t].on;
    if (__builtin_setjmp(self->at) == 0) {
        int next = ready_next();
        fiber *to = next < 0 ? nullptr : b.all[next].on;
        if (!to)
            go_on(next);
        to->thread = next;
        leave_for(to);
        __builtin_longjmp(to->at, 1);
    }
    arrived();
    thread_enter(t);
}

/* ---- a block ---- */

void block_begin()
{
    b.ended = b.at_block = 0;
    b.n_ready = 0;
    for (warp &w : b.warps)
        w.n = 0;
    for (int t = b.threads; t-- > 0;) {
        b.all[t] = {nullptr, thread::RUNS, 0};
        ready_add(t);
    }
    std::fill(b.at_warp.begin(), b.at_warp.end(), 0);
}

void memory_begin(size_t bytes)
{
#ifdef __SANITIZE_ADDRESS__
    ASAN_UNPOISON_MEMORY_REGION(block_memory, bytes);
    ASAN_POISON_MEMORY_REGION(block_memory + bytes, sizeof block_memory - bytes);
#endif
    std::memset(block_memory, 0xff, bytes);
}

} // namespace

void shim_wait_block()
{
    b.all[b.current].state = thread::AT_BLOCK;
    if (++b.at_block == b.threads) {
        b.at_block = 0;
        for (int t = b.threads; t-- > 0;)
            ready_add(t);
    }
    wait();
}

void shim_wait_warp()
{
    int w = b.current / SHIM_WARP, first = w * SHIM_WARP;
    int lanes = b.threads - first < SHIM_WARP ? b.threads - first : SHIM_WARP;
    b.all[b.current].state = thread::AT_WARP;
    if (++b.at_warp[w] == lanes) {
        b.at_warp[w] = 0;
        for (int t = first + lanes; t-- > first;)
            ready_add(t);
    }
    wait();
}

unsigned shim_lane() { return (unsigned)b.current % SHIM_WARP; }

void shim_show(const void *value, size_t bytes)
{
    std::memcpy(slots[++b.all[b.current].shows % TURNS][b.current], value, bytes);
    shim_wait_warp();
}

const void *shim_shown(unsigned lane)
{
    unsigned first = (unsigned)b.current / SHIM_WARP * SHIM_WARP;
    return slots[b.all[b.current].shows % TURNS][first + lane];
}

JUMPS void shim_run(const shim_grid *g, void (*body)(void *), void *args)
{
    b.body = body;
    b.args = args;
    b.threads = (int)g->threads;
    if (b.seed != shim_seed())
        b.seed = b.state = shim_seed();
    b.all.resize(g->threads);
    b.at_warp.resize((g->threads + SHIM_WARP - 1) / SHIM_WARP);
    b.warps.resize(b.at_warp.size());
    b.favourite = 0;
    gridDim = dim3(g->blocks);
    blockDim = dim3(g->threads);
    for (volatile unsigned i = 0; i < g->blocks; i = i + 1) {
        blockIdx = dim3(i);
        memory_begin(g->shared_bytes);
        block_begin();
        if (__builtin_setjmp(b.out) == 0)
            go_on(ready_next());
        arrived();
    }
}
