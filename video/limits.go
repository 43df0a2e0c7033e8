package video

// Limits bound what an index may cost. A zero field means the default.
type Limits struct {
	MaxMoov      int64 // bytes of the moov box; default 256 MiB
	MaxSamples   int   // samples of the track; default 1<<24 (six days at 30 Hz)
	MaxPixels    int64 // width × height; default 256 Mi
	MaxExtradata int   // bytes of codec configuration; default 1 MiB
	// AllowTruncated accepts a file that ends before its samples do: Index.Whole says how many frames are still there.
	AllowTruncated bool
}

func (l Limits) orDefaults() Limits {
	if l.MaxMoov <= 0 {
		l.MaxMoov = 256 << 20
	}
	if l.MaxSamples <= 0 {
		l.MaxSamples = 1 << 24
	}
	if l.MaxPixels <= 0 {
		l.MaxPixels = 256 << 20
	}
	if l.MaxExtradata <= 0 {
		l.MaxExtradata = 1 << 20
	}
	return l
}
