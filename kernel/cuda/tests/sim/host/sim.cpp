// The scheduler of the simulator. It runs one block at a time. The block's threads are fibers with
// their own stacks. After every barrier, a seed shuffles the order of the fibers again. The
// scheduler is linked with a source of kernels (sim_linux.go).
//
// With -fsanitize=thread the kernels call __tsan_… functions. They are defined below, and no
// sanitizer is linked. They check every load and store. They detect accesses outside buffers, reads
// of shared memory that was never written, and unordered accesses of two threads.
#include "sim.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

// The static memory of the kernels is their static shared memory: all of .bss. The scheduler must
// therefore keep its own data elsewhere.
#define KEPT __attribute__((section(".data.sim")))
extern char __bss_start[] __attribute__((visibility("hidden")));
extern char _end[] __attribute__((visibility("hidden")));

extern "C" {
KEPT sim_index threadIdx = {}, blockIdx = {}, blockDim = {}, gridDim = {};
}

namespace {

enum State : unsigned char { ready, at_barrier, at_warp, done };

const size_t stack_bytes = 128 << 10;
const unsigned max_threads = 1024;
const size_t shared_area = 256 << 10;

struct Fiber {
  char *stack;
#if defined(__x86_64__)
  void *sp;
#else
  ucontext_t context;
#endif
  State state;
  int line, kind, value, result;  // set while waiting at a barrier
  int warp_kind, argument, width; // set while waiting at a warp operation
  unsigned mask, answer_mask;
  uint64_t word, answer;
  struct Copy *copies; // asynchronous copies that are not waited for yet
  int copy_count, copy_room;
};
struct Copy {
  void *to;
  const void *from;
  unsigned n;
};

// Access is the last write, or read, of a byte.
struct Access {
  // time of the access: block counts all blocks of all launches from 1; 0 = never
  uint32_t block, phase, warp_phase;
  uint16_t thread;      // many: several threads
  uint8_t warp, atomic; // warp 255: several warps
};
const uint16_t many = 0xffff;
struct Shadow {
  Access write, read;
};

// Buffer is device memory, registered by sim_buffer.
struct Buffer {
  char *p;
  size_t n;
  Shadow *shadow;
};

struct Simulator {
  Fiber *fibers;
  unsigned threads, current, alive, waiting;
  void (*kernel)(const void *);
  const void *params;
  // the area ends at a page that cannot be touched; dynamic memory is at its end
  char *area, *dynamic;
  unsigned shared;
  uint64_t random;
  uint32_t block, phase;
  uint32_t warp_phase[32];
  bool checked, ordered, shuffled;
  Shadow *shared_shadow, *static_shadow;
  Buffer *buffers;
  int count, room;
  // a write over another thread's value, which is not a race if the value stays the same
  char *pending;
  unsigned pending_size;
  uint64_t pending_value[2];
  char pending_text[160];
  char error[512];
  bool failed;
  sigjmp_buf top;
#if defined(__x86_64__)
  void *sp;
#else
  ucontext_t context;
#endif
};
KEPT Simulator S = {};
KEPT uint32_t launch_first = 0; // first block of this launch
__thread bool inside = false;

uint64_t next_random() {
  S.random += 0x9e3779b97f4a7c15ull;
  uint64_t z = S.random;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

} // namespace

#if defined(__x86_64__)
extern "C" void sim_switch(void **save, void *load) __attribute__((visibility("hidden")));
asm(R"(
.text
.globl sim_switch
.hidden sim_switch
.type sim_switch,@function
sim_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
.size sim_switch,.-sim_switch
)");
#endif

namespace {

void to_scheduler() {
  Fiber &f = S.fibers[S.current];
#if defined(__x86_64__)
  sim_switch(&f.sp, S.sp);
#else
  swapcontext(&f.context, &S.context);
#endif
}

void settle(); // resolves the pending write

void fiber_main() {
  S.kernel(S.params);
  if (S.checked) settle();
  Fiber &f = S.fibers[S.current];
  if (f.copy_count)
    sim_fail("thread %u ends with %d asynchronous copies that it did not wait for", S.current,
        f.copy_count);
  f.state = done;
  S.alive--;
  to_scheduler();
  abort();
}

void begin(Fiber &f) {
  if (!f.stack) {
    f.stack = (char *)mmap(
        0, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mprotect(f.stack, 4096, PROT_NONE);
  }
  f.state = ready;
  f.copy_count = 0;
#if defined(__x86_64__)
  // The stacks start at different offsets. Otherwise they would all use the same few sets of the
  // caches.
  void **sp = (void **)(f.stack + stack_bytes - ((&f - S.fibers) * 448 & 0x7fff)) - 2;
  *sp = (void *)fiber_main; // sp+8 is 16-aligned after the return into fiber_main
  sp -= 6;
  memset(sp, 0, 48);
  f.sp = sp;
#else
  getcontext(&f.context);
  f.context.uc_stack.ss_sp = f.stack + 4096;
  f.context.uc_stack.ss_size = stack_bytes - 4096;
  f.context.uc_link = 0;
  makecontext(&f.context, fiber_main, 0);
#endif
}

void run(unsigned i) {
  S.current = i;
  threadIdx.x = i;
#if defined(__x86_64__)
  sim_switch(&S.sp, S.fibers[i].sp);
#else
  swapcontext(&S.context, &S.fibers[i].context);
#endif
}

// meet completes a warp operation when all its lanes have arrived. It answers each lane and makes
// it ready.
bool meet(unsigned warp) {
  unsigned base = warp * 32, n = S.threads - base < 32 ? S.threads - base : 32;
  bool any = false;
  for (unsigned l = 0; l < n; l++) {
    Fiber &f = S.fibers[base + l];
    if (f.state != at_warp) continue;
    unsigned there = n == 32 ? f.mask : f.mask & ((1u << n) - 1);
    bool all = true;
    for (unsigned o = 0; o < n && all; o++) {
      if (!(there >> o & 1)) continue;
      Fiber &g = S.fibers[base + o];
      if (g.state == done)
        sim_fail("lane %u of warp %u waits for lane %u, which has ended", l, warp, o);
      if (g.state == at_warp && g.mask == f.mask && g.warp_kind != f.warp_kind)
        sim_fail("lanes %u and %u of warp %u meet in different operations", l, o, warp);
      all = g.state == at_warp && g.mask == f.mask;
    }
    if (!all) continue;
    any = true;
    uint64_t sum = 0, low = ~0ull, high = 0, andall = ~0ull, orall = 0, xorall = 0;
    int64_t ilow = INT64_MAX, ihigh = INT64_MIN;
    unsigned ballot = 0;
    bool same = true;
    for (unsigned o = 0; o < n; o++) {
      if (!(there >> o & 1)) continue;
      uint64_t w = S.fibers[base + o].word;
      sum += w, xorall ^= w, andall &= w, orall |= w;
      low = w < low ? w : low, high = w > high ? w : high;
      int64_t v = (int32_t)w;
      ilow = v < ilow ? v : ilow, ihigh = v > ihigh ? v : ihigh;
      ballot |= (unsigned)(w != 0) << o;
      same = same && w == f.word;
    }
    uint64_t answers[32];
    for (unsigned o = 0; o < n; o++) {
      if (!(there >> o & 1)) continue;
      Fiber &g = S.fibers[base + o];
      int width = g.width, first = (int)o & ~(width - 1), from = (int)o;
      uint64_t answer = 0;
      switch (g.warp_kind) {
        case sim_shfl: from = first + (g.argument & (width - 1)); break;
        case sim_up: from = (int)o - g.argument < first ? (int)o : (int)o - g.argument; break;
        case sim_down:
          from = (int)o + g.argument >= first + width ? (int)o : (int)o + g.argument;
          break;
        case sim_xor:
          from = ((int)o ^ g.argument) >= first + width ? (int)o : (int)o ^ g.argument;
          break;
        case sim_ballot: answer = ballot; break;
        case sim_add: answer = sum; break;
        case sim_min: answer = low; break;
        case sim_max: answer = high; break;
        case sim_imin: answer = (uint64_t)ilow; break;
        case sim_imax: answer = (uint64_t)ihigh; break;
        case sim_and: answer = andall; break;
        case sim_or: answer = orall; break;
        case sim_xor_all: answer = xorall; break;
        case sim_match_all: answer = same ? f.mask : 0; break;
        case sim_match:
          for (unsigned q = 0; q < n; q++)
            if ((there >> q & 1) && S.fibers[base + q].word == g.word) answer |= 1u << q;
          break;
      }
      if (g.warp_kind >= sim_shfl && g.warp_kind <= sim_xor) {
        // A lane that does not take part has no value, and the hardware's answer is undefined.
        answer = (there >> from & 1) ? S.fibers[base + from].word : next_random();
      }
      answers[o] = answer;
    }
    for (unsigned o = 0; o < n; o++)
      if (there >> o & 1) S.fibers[base + o].answer = answers[o], S.fibers[base + o].state = ready;
    S.warp_phase[warp]++;
  }
  return any;
}

void fill(char *p, size_t n) {
  for (size_t i = 0; i < n; i += 8) {
    uint64_t r = next_random();
    memcpy(p + i, &r, n - i < 8 ? n - i : 8);
  }
}

void block(unsigned *order) {
  fill(S.dynamic, S.shared);
  fill(__bss_start, _end - __bss_start);
  S.block++;
  S.phase = 0;
  memset(S.warp_phase, 0, sizeof S.warp_phase);
  S.alive = S.threads;
  for (unsigned i = 0; i < S.threads; i++) begin(S.fibers[i]), order[i] = i;
  while (S.alive) {
    if (S.shuffled)
      for (unsigned i = S.threads - 1; i > 0; i--) {
        unsigned j = (unsigned)(next_random() % (i + 1)), t = order[i];
        order[i] = order[j], order[j] = t;
      }
    bool progress = false;
    for (unsigned i = 0; i < S.threads; i++)
      if (S.fibers[order[i]].state == ready) progress = true, run(order[i]);
    for (unsigned w = 0; w * 32 < S.threads; w++) progress |= meet(w);
    if (progress || !S.alive) continue;
    // No fiber can run: all wait at the same barrier, or there is an error.
    int first = -1, count = 0, conjunction = 1;
    for (unsigned i = 0; i < S.threads; i++) {
      Fiber &f = S.fibers[i];
      if (f.state == done) {
        for (unsigned k = 0; k < S.threads; k++) {
          Fiber &g = S.fibers[k];
          if (g.state == at_barrier)
            sim_fail(
                "divergent barrier: thread %u waits in line %d, thread %u has ended", k, g.line, i);
        }
        continue;
      }
      if (f.state == at_warp)
        sim_fail("thread %u waits for lanes %08x of its warp, which do not come", i, f.mask);
      if (first < 0) first = i;
      if (f.line != S.fibers[first].line)
        sim_fail("divergent barrier: thread %d waits in line %d, thread %u in line %d", first,
            S.fibers[first].line, i, f.line);
      count += f.value, conjunction &= f.value;
    }
    for (unsigned i = 0; i < S.threads; i++) {
      Fiber &f = S.fibers[i];
      f.result = f.kind == 1 ? count : f.kind == 2 ? conjunction : count != 0;
      f.state = ready;
    }
    S.phase++;
  }
}

KEPT struct sigaction old_segv = {}, old_bus = {}, old_fpe = {}, old_ill = {};

void on_signal(int sig, siginfo_t *info, void *context) {
  struct sigaction *old = sig == SIGSEGV  ? &old_segv
                          : sig == SIGBUS ? &old_bus
                          : sig == SIGILL ? &old_ill
                                          : &old_fpe;
  if (!inside) {
    if (old->sa_flags & SA_SIGINFO) old->sa_sigaction(sig, info, context);
    else if (old->sa_handler == SIG_DFL) signal(sig, SIG_DFL);
    else if (old->sa_handler != SIG_IGN) old->sa_handler(sig);
    return;
  }
  char *p = (char *)info->si_addr;
  const char *what = "an access outside of all memory";
  if (sig == SIGILL) what = "an access that is not aligned";
  if (sig == SIGFPE) what = "an integer division by zero";
  int n = snprintf(S.error, sizeof S.error, "%s", what);
  if (sig == SIGSEGV || sig == SIGBUS) {
    n += snprintf(S.error + n, sizeof S.error - n, " at %p", p);
    for (int i = 0; i < S.count; i++) {
      Buffer &b = S.buffers[i];
      if (p >= b.p - 65536 && p < b.p)
        n += snprintf(S.error + n, sizeof S.error - n, ", %ld bytes before a buffer of %zu",
            (long)(b.p - p), b.n);
      else if (p >= b.p + b.n && p < b.p + b.n + 65536)
        n += snprintf(S.error + n, sizeof S.error - n,
            ", %ld bytes after the end of a buffer of %zu", (long)(p - b.p - b.n), b.n);
    }
    if (p >= S.area + shared_area && p < S.area + shared_area + 65536)
      snprintf(S.error + n, sizeof S.error - n,
          ", %ld bytes after the end of %u bytes of shared memory",
          (long)(p - S.area - shared_area), S.shared);
  }
  S.failed = true;
  siglongjmp(S.top, 1);
}

} // namespace

extern "C" void sim_fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(S.error, sizeof S.error, format, list);
  va_end(list);
  S.failed = true;
  siglongjmp(S.top, 1);
}

extern "C" void *sim_dynamic() { return S.dynamic; }

extern "C" int sim_barrier(int line, int kind, int value) {
  if (S.checked) settle();
  Fiber &f = S.fibers[S.current];
  f.state = at_barrier, f.line = line, f.kind = kind, f.value = value;
  to_scheduler();
  return f.result;
}

extern "C" uint64_t sim_warp(
    int kind, unsigned mask, uint64_t value, int argument, int width, unsigned *) {
  if (S.checked) settle();
  Fiber &f = S.fibers[S.current];
  if (!(mask >> (S.current & 31) & 1))
    sim_fail(
        "thread %u calls a warp operation for lanes %08x, of which it is none", S.current, mask);
  f.state = at_warp, f.warp_kind = kind, f.mask = mask, f.word = value, f.argument = argument,
  f.width = width;
  to_scheduler();
  return f.answer;
}

// sim_buffer registers device memory; n = 0 removes it.
extern "C" void sim_buffer(char *p, size_t n) {
  for (int i = 0; i < S.count; i++)
    if (S.buffers[i].p == p) {
      if (S.buffers[i].shadow) munmap(S.buffers[i].shadow, S.buffers[i].n * sizeof(Shadow));
      S.buffers[i] = S.buffers[--S.count];
      break;
    }
  if (!n) return;
  if (S.count == S.room)
    S.buffers = (Buffer *)realloc(S.buffers, (S.room = S.room * 2 + 64) * sizeof(Buffer));
  S.buffers[S.count++] = {p, n, 0};
}

// sim_launch runs a grid. Flags: 1 checked (the kernels call __tsan_…), 2 the kernel itself orders
// its blocks. It returns 0 or an error text.
extern "C" const char *sim_launch(void (*kernel)(const void *), unsigned grid, unsigned threads,
    unsigned shared, const void *params, uint64_t seed, unsigned flags) {
  if (threads == 0 || threads > max_threads || shared > shared_area)
    return "block or shared memory beyond what a chip has";
  if (!S.fibers) {
    S.fibers = (Fiber *)calloc(max_threads, sizeof(Fiber));
    S.area = (char *)mmap(
        0, shared_area + 65536, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mprotect(S.area, shared_area, PROT_READ | PROT_WRITE);
    size_t entries = shared_area + (_end - __bss_start);
    S.shared_shadow = (Shadow *)mmap(0, entries * sizeof(Shadow), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    S.static_shadow = S.shared_shadow + shared_area;
  }
  S.kernel = kernel, S.params = params, S.threads = threads, S.shared = shared, S.random = seed,
  S.shuffled = seed != 0;
  S.dynamic = S.area + shared_area - (shared + 15 & ~15u);
  S.checked = flags & 1, S.ordered = flags & 2, S.failed = false, S.pending = 0;
  blockDim = {threads, 1, 1}, gridDim = {grid, 1, 1}, threadIdx = {0, 0, 0}, blockIdx = {0, 0, 0};
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &old_segv), sigaction(SIGBUS, &action, &old_bus),
      sigaction(SIGFPE, &action, &old_fpe), sigaction(SIGILL, &action, &old_ill);
  launch_first = S.block + 1;
  inside = true;
  unsigned *order = (unsigned *)malloc(threads * sizeof(unsigned));
  if (sigsetjmp(S.top, 1) == 0)
    for (unsigned b = 0; b < grid; b++) blockIdx.x = b, block(order);
  inside = false;
  sigaction(SIGSEGV, &old_segv, 0), sigaction(SIGBUS, &old_bus, 0), sigaction(SIGFPE, &old_fpe, 0),
      sigaction(SIGILL, &old_ill, 0);
  free(order);
  if (!S.failed) return 0;
  size_t n = strlen(S.error);
  snprintf(S.error + n, sizeof S.error - n, " (block %u, thread %u)", blockIdx.x, S.current);
  return S.error;
}

// ---- accesses ----

namespace {

void settle() {
  if (!S.pending) return;
  uint64_t now[2] = {};
  memcpy(now, S.pending, S.pending_size);
  S.pending = 0;
  if (memcmp(now, S.pending_value, S.pending_size)) sim_fail("%s", S.pending_text);
}

// over reports whether another access happened before this thread's current access.
bool over(const Access &a, bool shared) {
  if (!a.block || a.block != S.block)
    return !a.block || shared || a.block < launch_first || S.ordered;
  if (a.phase != S.phase || a.thread == S.current) return true;
  unsigned warp = S.current / 32;
  return a.warp == warp && a.warp_phase != S.warp_phase[warp];
}

Access now(bool atomic) {
  return {S.block, S.phase, S.warp_phase[S.current / 32], (uint16_t)S.current,
      (uint8_t)(S.current / 32), atomic};
}

void race(const char *what, const Access &a, char *p, unsigned n, const char *where, bool write) {
  char text[160];
  if (a.block == S.block)
    snprintf(text, sizeof text,
        "race: %s %u bytes of %s at %p, which %s %d %s with nothing between",
        write ? "writes" : "reads", n, where, p, a.thread == many ? "threads," : "thread",
        a.thread == many ? -1 : a.thread, what);
  else
    snprintf(text, sizeof text, "race: %s %u bytes of %s at %p, which another block %s",
        write ? "writes" : "reads", n, where, p, what);
  if (!write || strcmp(what, "writes")) sim_fail("%s", text);
  // Two writes of the same value are not a race.
  if (n > 16) n = 16;
  S.pending = p, S.pending_size = n;
  memcpy(S.pending_value, p, n);
  memcpy(S.pending_text, text, sizeof text);
}

void touch(char *p, unsigned n, bool write, bool atomic) {
  if (!inside) return;
  settle();
  Shadow *s = 0;
  bool shared = true;
  const char *where = "shared memory";
  if (p >= S.dynamic && p < S.area + shared_area) {
    if (p + n > S.dynamic + S.shared)
      sim_fail("an access of %u bytes, %ld bytes after the start of %u bytes of shared memory", n,
          (long)(p - S.dynamic), S.shared);
    s = S.shared_shadow + (p - S.area);
  } else if (p >= __bss_start && p < _end) {
    s = S.static_shadow + (p - __bss_start);
  } else {
    for (int i = 0; i < S.count; i++) {
      Buffer &b = S.buffers[i];
      if (p + n <= b.p || p >= b.p + b.n) continue;
      // there are no smaller atomics; the other bytes of a word can be outside and keep their
      // values
      if (atomic && n <= 4) {
        if (p < b.p) n -= (unsigned)(b.p - p), p = b.p;
        if (p + n > b.p + b.n) n = (unsigned)(b.p + b.n - p);
      }
      if (p < b.p || p + n > b.p + b.n)
        sim_fail("an access of %u bytes, %ld bytes after the start of a buffer of %zu", n,
            (long)(p - b.p), b.n);
      if (!b.shadow)
        b.shadow = (Shadow *)mmap(0, b.n * sizeof(Shadow), PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      s = b.shadow + (p - b.p);
      if (i) { // the buffer of the last access is moved to the front
        Buffer t = S.buffers[0];
        S.buffers[0] = b, S.buffers[i] = t;
      }
      break;
    }
    if (!s) return; // the thread's own stack, parameters or constants
    shared = false;
    where = "a buffer";
  }
  Access mine = now(atomic);
  for (unsigned i = 0; i < n; i++) {
    Shadow &b = s[i];
    if (shared && !write && !atomic && b.write.block != S.block)
      sim_fail("reads %u bytes of shared memory at %p that nobody wrote", n, p);
    if (!(atomic && b.write.atomic) && !over(b.write, shared)) {
      race("writes", b.write, p, n, where, write || atomic);
      if (S.pending) { // once for the whole access
        for (unsigned k = 0; k < n; k++) s[k].write = mine;
        return;
      }
    }
    if (write || atomic) {
      if (!(atomic && b.read.atomic) && !over(b.read, shared))
        race("reads", b.read, p, n, where, true);
      b.write = mine;
      if (atomic) b.read = mine;
    } else {
      Access &r = b.read;
      if (r.block == mine.block && r.phase == mine.phase && r.thread != mine.thread) {
        r.thread = many;
        r.atomic = 0;
        if (r.warp != mine.warp) r.warp = 255;
        r.warp_phase = mine.warp_phase;
      } else {
        r = mine;
      }
    }
  }
}

} // namespace

extern "C" void sim_copy_async(void *to, const void *from, unsigned n) {
  if ((n != 4 && n != 8 && n != 16) || (uintptr_t)to % n || (uintptr_t)from % n)
    sim_fail("an asynchronous copy of %u bytes from %p to %p, which are not aligned to as many", n,
        from, to);
  Fiber &f = S.fibers[S.current];
  if (f.copy_count == f.copy_room)
    f.copies = (Copy *)realloc(f.copies, (f.copy_room = f.copy_room * 2 + 16) * sizeof(Copy));
  f.copies[f.copy_count++] = {to, from, n};
}

extern "C" void sim_copy_wait() {
  Fiber &f = S.fibers[S.current];
  for (int i = 0; i < f.copy_count; i++) {
    Copy &c = f.copies[i];
    if (S.checked) touch((char *)c.from, c.n, false, false), touch((char *)c.to, c.n, true, false);
    memcpy(c.to, c.from, c.n);
  }
  f.copy_count = 0;
}

extern "C" {
void sim_atomic(const void *p, unsigned size) {
  if ((uintptr_t)p % size)
    sim_fail("an atomic access of %u bytes at %p, which is not aligned to as many", size, p);
  if (S.checked) touch((char *)p, size, true, true);
}
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
#define ACCESS(n)                                                             \
  void __tsan_read##n(void *p) { touch((char *)p, n, false, false); }         \
  void __tsan_write##n(void *p) { touch((char *)p, n, true, false); }         \
  void __tsan_volatile_read##n(void *p) { touch((char *)p, n, false, true); } \
  void __tsan_volatile_write##n(void *p) { touch((char *)p, n, true, true); }
ACCESS(1)
ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
#define UNALIGNED(n)                                                            \
  void __tsan_unaligned_read##n(void *p) { touch((char *)p, n, false, false); } \
  void __tsan_unaligned_write##n(void *p) { touch((char *)p, n, true, false); }
    UNALIGNED(2) UNALIGNED(4) UNALIGNED(8)
        UNALIGNED(16) void __tsan_read_range(void *p, unsigned long n) {
  touch((char *)p, (unsigned)n, false, false);
}
void __tsan_write_range(void *p, unsigned long n) { touch((char *)p, (unsigned)n, true, false); }
}
