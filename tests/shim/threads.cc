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
    STACK_BYTES = 128 << 10,
    CHOICE_BITS = 16, TAKES_OF_FAVOURITE = 256, /* of half the bits */
    LINE_BYTES = 64, PLACES = 64 /* of the first-level cache */
};

#define JUMPS __attribute__((noinline, no_sanitize("address")))
typedef void *place[5]; /* the type that __builtin_setjmp needs */

struct fiber {
    place at; /* while it has no thread */
    /* not cleared, because a thread touches only the upper end */
    std::unique_ptr<char[]> stack{new char[STACK_BYTES]};
    int thread; /* the thread that it begins next */
    bool begun;
};

/* A switch touches one cache line of each thread, and one of its warp. */
struct alignas(LINE_BYTES) thread {
    place at;       /* while it waits */
    fiber *on;      /* NULL: the thread has not begun, or has ended */
    unsigned shows; /* how many values it has shown to its warp */
};
struct alignas(LINE_BYTES) warp {
    int first, lanes; /* its first thread, and how many it has */
    int waiting;      /* lanes that wait for the others */
    int n;            /* lanes that can continue, which are in `ready` */
    uint8_t ready[SHIM_WARP];
};
static_assert(sizeof(thread) == LINE_BYTES && sizeof(warp) == LINE_BYTES, "of one line");

struct block {
    void (*body)(void *);
    void *args;
    int threads, current, ended, at_block;
    thread all[SHIM_THREADS];
    int n_warps;
    warp warps[SHIM_THREADS / SHIM_WARP];
    int n_ready;
    /* Without a seed no warp before this one has a lane that can continue. With a seed this is the
     * warp that is preferred when threads are chosen at random. */
    int favourite;
    std::vector<fiber *> idle;
    fiber *starting;
    place out;
    uint64_t seed, state; /* of the random choices */
    uint64_t drawn;       /* random bits for n_drawn choices */
    int n_drawn;
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

/* Returns the next CHOICE_BITS random bits. */
unsigned draw_bits()
{
    if (b.n_drawn == 0) {
        b.drawn = draw();
        b.n_drawn = 64 / CHOICE_BITS;
    }
    unsigned bits = b.drawn % (1u << CHOICE_BITS);
    b.drawn >>= CHOICE_BITS;
    b.n_drawn--;
    return bits;
}

/* Lets all lanes of a warp continue. */
void ready_all(int w)
{
    warp *a = &b.warps[w];
    for (int i = 0; i < SHIM_WARP; i++)
        a->ready[i] = (uint8_t)(a->lanes - 1 - i);
    a->n = a->lanes;
    b.n_ready += a->lanes;
    if (!b.seed && w < b.favourite)
        b.favourite = w;
}

/* Returns the warp whose thread continues. Without a seed it is the first one with a lane that can
 * continue. With a seed it is the favourite if it has one, and now and then another warp, chosen at
 * random. So one warp runs far ahead of the others, which would not happen if each thread had the
 * same chance. */
warp *warp_choose(unsigned bits)
{
    int w = b.favourite;
    if (b.warps[w].n == 0 || (b.seed && bits % TAKES_OF_FAVOURITE == 0)) {
        w = b.seed ? (int)(draw() % (unsigned)b.n_warps) : w;
        while (b.warps[w].n == 0)
            w = w + 1 < b.n_warps ? w + 1 : 0;
        b.favourite = w;
    }
    return &b.warps[w];
}

/* Takes a thread that can continue: the first in order, or a random one with a seed. This takes
 * half the time of a switch, so a few bits make both choices. */
int ready_take()
{
    unsigned bits = b.seed ? draw_bits() : ~0u;
    warp *w = warp_choose(bits);
    int last = --w->n, lane = last;
    b.n_ready--;
    if (b.seed) {
        lane = (int)((bits / TAKES_OF_FAVOURITE) * (unsigned)(last + 1) / TAKES_OF_FAVOURITE);
        std::swap(w->ready[lane], w->ready[last]);
    }
    return w->first + w->ready[last];
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

void thread_enter(int t)
{
    b.current = t;
    threadIdx.x = (unsigned)t;
}

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
    fiber *f = b.all[t].on;
    thread_enter(t);
    if (f) {
        leave_for(f);
        __builtin_longjmp(b.all[t].at, 1);
    }
    f = idle_take();
    f->thread = t;
    if (!f->begun)
        fiber_begin(f);
    leave_for(f);
    __builtin_longjmp(f->at, 1);
}

/* Runs threads that have not begun, one after another. */
JUMPS void fiber_main()
{
    fiber *const self = b.starting;
    arrived();
    for (;;) {
        int t = self->thread;
        b.all[t].on = self;
        b.all[t].shows = 0;
        thread_enter(t);
        b.body(b.args);
        b.all[b.current].on = nullptr;
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
    thread *self = &b.all[b.current];
    if (__builtin_setjmp(self->at) == 0) {
        int next = ready_next();
        if (next < 0 || !b.all[next].on)
            go_on(next);
        thread_enter(next);
        leave_for(b.all[next].on);
        __builtin_longjmp(b.all[next].at, 1);
    }
    arrived();
}

/* ---- a block ---- */

/* Lays out the warps of blocks of b.threads. */
void warps_begin()
{
    b.n_warps = (b.threads + SHIM_WARP - 1) / SHIM_WARP;
    for (int w = 0; w < b.n_warps; w++) {
        int first = w * SHIM_WARP, left = b.threads - first;
        b.warps[w].first = first;
        b.warps[w].lanes = left < SHIM_WARP ? left : SHIM_WARP;
    }
}

void ready_every()
{
    for (int w = 0; w < b.n_warps; w++)
        ready_all(w);
}

void block_begin()
{
    b.ended = b.at_block = b.n_ready = 0;
    for (int w = 0; w < b.n_warps; w++)
        b.warps[w].waiting = 0;
    ready_every();
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
    if (++b.at_block == b.threads) {
        b.at_block = 0;
        ready_every();
    }
    wait();
}

void shim_wait_warp()
{
    int w = b.current / SHIM_WARP;
    if (++b.warps[w].waiting == b.warps[w].lanes) {
        b.warps[w].waiting = 0;
        ready_all(w);
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
    b.favourite = 0;
    warps_begin();
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
