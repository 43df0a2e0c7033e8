// Package cpu is the back end for the processor's cores: AVX2 where the processor has it, plain Go elsewhere, equal to kernel.Reference to the bit.
package cpu
