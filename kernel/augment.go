package kernel

// Augment is a seeded augmentation. It draws from Philox4x32-10 keyed by (Seed, Epoch, sample, Op).
// A sample therefore gets the same values in any batch and on any back end (kernel.K16).
//
// With probability Dropout, a row becomes zeros. Otherwise it is multiplied by a scale, drawn once
// per sample uniformly between ScaleLo and ScaleHi. Then Noise times a normal number is added,
// drawn once per element.
//
// In an ApplyOp with T rows, each of the Len(Samples) samples has T/Len(Samples) consecutive rows.
// With nil Samples, all rows belong to sample 0.
type Augment struct {
	Seed, Epoch      uint64
	Op               uint32
	Samples          *Tensor // int64 [B]: sample number of each entry; nil = 0, 1, 2 …
	Noise            float32 // standard deviation
	Dropout          float32
	ScaleLo, ScaleHi float32 // both 0: no scaling
}
