package video

// Limits bounds the resources of an index. A zero field selects the default.
type Limits struct {
	MaxMoov      int64 // bytes of the moov box; default 256 MiB
	MaxSamples   int   // samples of the track; default 1<<24 (six days at 30 Hz)
	MaxPixels    int64 // width × height; default 256 Mi
	MaxExtradata int   // bytes of codec configuration; default 1 MiB
	// AllowTruncated accepts a file that ends before its samples do. Index.Whole returns the number
	// of frames that can be read.
	AllowTruncated bool
}

func (l Limits) orDefaults() Limits {
	orDefault(&l.MaxMoov, 256<<20)
	orDefault(&l.MaxSamples, 1<<24)
	orDefault(&l.MaxPixels, 256<<20)
	orDefault(&l.MaxExtradata, 1<<20)
	return l
}

// orDefault sets *v to value if it is not positive.
func orDefault[T int | int64](v *T, value T) {
	if *v <= 0 {
		*v = value
	}
}
