package kernel

// Augment is a seeded augmentation: Philox4x32-10 keyed by (Seed, Epoch, sample, Op), so that a
// sample gets the same values in any batch, on any back end (K16). A row becomes zeros with
// probability Dropout; else x·scale, one factor a sample, uniform between ScaleLo and ScaleHi; +
// Noise·gaussian, a draw an element. In an ApplyOp, T rows are Len(Samples) samples in turn, T/Len
// rows each; nil = all are sample 0.
type Augment struct {
	Seed, Epoch      uint64
	Op               uint32
	Samples          *Tensor // int64 [B]: the sample of each entry; nil = 0, 1, 2 …
	Noise            float32 // standard deviation
	Dropout          float32
	ScaleLo, ScaleHi float32 // both 0: no scale
}
