// Kernels with and without mistakes, for the simulator's own tests.
typedef unsigned int u32;

struct Sum { const float *in; float *out; long long n; u32 fault; };

// sum adds 256 values per block. Fault 1: missing barrier; 2: read beyond the end; 3: divergent
// barrier; 4: read of shared memory that was never written.
extern "C" __global__ void __launch_bounds__(256) sum(const __grid_constant__ Sum p) {
	__shared__ float part[256];
	long long i = (long long)blockIdx.x * 256 + threadIdx.x;
	if (p.fault != 4 || threadIdx.x != 7) part[threadIdx.x] = i < p.n || p.fault == 2 ? p.in[i] : 0;
	if (p.fault == 3 && threadIdx.x == 200) return;
	if (p.fault != 1) __syncthreads();
	for (u32 half = 128; half > 0; half /= 2) {
		if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
		__syncthreads();
	}
	if (threadIdx.x == 0) p.out[blockIdx.x] = part[0];
}

struct Warp { u32 *out; const u32 *in; u32 fault; };

// warp runs each warp operation; the test knows the results.
extern "C" __global__ void warp(const __grid_constant__ Warp p) {
	extern __shared__ __align__(16) u32 words[];
	u32 t = threadIdx.x, v = p.in[t], lane = t & 31, *o = p.out + t * 16;
	o[0] = __shfl_sync(0xffffffffu, v, 3);
	o[1] = __shfl_up_sync(0xffffffffu, v, 1);
	o[2] = __shfl_down_sync(0xffffffffu, v, 2);
	o[3] = __shfl_xor_sync(0xffffffffu, v, 16);
	o[4] = __ballot_sync(0xffffffffu, v & 1);
	o[5] = __any_sync(0xffffffffu, v == 5) | __all_sync(0xffffffffu, v < 1000) << 1;
	o[6] = __match_any_sync(0xffffffffu, v & 3);
	o[7] = __reduce_add_sync(0xffffffffu, v);
	o[8] = __reduce_max_sync(0xffffffffu, v);
	o[9] = __reduce_min_sync(0xffffffffu, v);
	if (lane < 8) o[10] = __reduce_or_sync(0xffu, v);
	else o[10] = __reduce_add_sync(0xffffff00u, v);
	words[t] = v;
	__syncwarp();
	o[11] = words[t ^ 1];
	o[12] = (u32)__syncthreads_count(v & 1);
	o[13] = (u32)__shfl_sync(0xffffffffu, v, 1, 8);
	o[14] = (u32)__clz(v) | (u32)__ffs(v) << 8 | (u32)__popc(v) << 16;
	o[15] = __brev(v);
	if (p.fault == 1 && lane == 9) return;
	if (p.fault) __shfl_sync(0xffffffffu, v, 0);
}

struct Race { u32 *out; u32 kind; };

// races has accesses of several blocks, and of several threads, to a buffer.
//
//  - 0: atomics, no race. 1: plain additions. 2: the same value from all. 3: different values.
//  - 4: another thread's word without a barrier. 5: an unaligned address.
//  - 6: a division by zero. 7: an overrun of dynamic shared memory.
//  - 9: asynchronous copies without a wait. 10: an unaligned address in an emulated instruction.
extern "C" __global__ void races(const __grid_constant__ Race p) {
	extern __shared__ u32 words[];
	u32 *o = p.out, t = threadIdx.x;
	if (p.kind == 0) atomicAdd(o, 1u), atomicMax(o + 1, t), atomicCAS(o + 2, 0u, t + 1);
	if (p.kind == 1) o[0]++;
	if (p.kind == 2) o[0] = 7;
	if (p.kind == 3) o[0] = blockIdx.x;
	if (p.kind == 4) {
		o[blockIdx.x * blockDim.x + t] = t;
		o[blockIdx.x * blockDim.x + t] = o[blockIdx.x * blockDim.x + (t ^ 1)];
	}
	if (p.kind == 5) *(u32 *)((char *)o + 1) = 3;
	if (p.kind == 6) o[0] = 5 / (p.kind - 6 + (o[1] & 0));
	if (p.kind == 7) words[t] = t;
	if (p.kind == 8 || p.kind == 9) {
		sim_copy_async(words + t % 16, o + t % 16, 4);
		if (p.kind == 8) sim_copy_wait();
		__syncthreads();
		if (blockIdx.x) o[blockIdx.x * blockDim.x + t] = words[t % 16];
	}
	if (p.kind == 10) sim_aligned((char *)o + 2, 4);
}
