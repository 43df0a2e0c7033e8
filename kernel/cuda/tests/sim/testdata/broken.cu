extern "C" __global__ void broken(int p) { no such thing; }
