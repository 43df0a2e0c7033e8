// Kernels that check launches and measure their cost, for tests and benchmarks of the host code.

struct ProbeParams {
  unsigned int *out;
  long long n;
  unsigned int add;
  unsigned int repeat; // rounds of arithmetic, to use time
};

// probe_add adds a number to each word.
extern "C" __global__ void probe_add(const __grid_constant__ ProbeParams p) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.n) return;
  unsigned int v = p.out[i] + p.add;
  for (unsigned int r = 0; r < p.repeat; r++) v = v * 1664525u + 1013904223u;
  p.out[i] = v;
}

// probe_early is probe_add, but it may start before the previous launch has ended.
extern "C" __global__ void probe_early(const __grid_constant__ ProbeParams p) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  if (i >= p.n) return;
  p.out[i] += p.add;
}

// probe_empty does nothing.
extern "C" __global__ void probe_empty(const __grid_constant__ ProbeParams p) {}

// probe_shared writes the size of its shared memory and uses the last word of it.
extern "C" __global__ void probe_shared(const __grid_constant__ ProbeParams p) {
  extern __shared__ unsigned int words[];
  long long last = p.n - 1;
  if (threadIdx.x == 0) words[last] = p.add;
  __syncthreads();
  if (threadIdx.x == blockDim.x - 1) p.out[blockIdx.x] = words[last] + blockIdx.x;
}
