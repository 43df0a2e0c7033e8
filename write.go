package robocache

import "slices"

// WriteOptions are the choices that hold for every writer.
type WriteOptions struct {
	Episodes []int    // positions in the source, in the order wanted; nil = all
	Keys     []string // features to keep; nil = all but bookkeeping columns
	Threads  int      // 0 = the number of CPUs
	SkipBad  bool     // leave out episodes that cannot be read, with a finding
	FPS      Rate     // in place of the source's, where the format states one; rows are not resampled
	// View says how the source was made of another dataset, as JSON; "" = it is as it was opened. A run is resumed with the same one alone.
	View string
	// DryRun says what would be done; Resume goes on where a killed run with the same options stopped, and keeps what another can go on from.
	// Both are for formats that know them (Format.Resumes).
	DryRun, Resume bool
	Options        map[string]string // Format.WriteOptions
	Progress       func(done, total int)
}

// WriteReport says what a writer did.
type WriteReport struct {
	Episodes int       `json:"num_episodes"`
	Frames   int64     `json:"num_frames"`
	Bytes    int64     `json:"bytes"`
	Dropped  []string  `json:"dropped_features"` // what the format cannot hold
	Findings []Finding `json:"findings"`
	LeftOut  int       `json:"-"` // episodes of the source that are not in the result
	// Own is the format's own report, where it has a larger one: its JSON stands for this one's. It holds what the source found, too.
	Own OwnReport `json:"-"`
}

// OwnReport is what a format says of a conversion beside WriteReport.
type OwnReport interface {
	// Summary is its text, without findings.
	Summary(dst string) string
}

// Wants says that a feature is asked for: by its key, or as all but bookkeeping columns are.
func (o *WriteOptions) Wants(f *Feature) bool {
	return o.Keys == nil && !f.Default || slices.Contains(o.Keys, f.Key)
}

// Check refuses episodes and keys that a source does not have.
func (o *WriteOptions) Check(info *Info) error {
	for _, e := range o.Episodes {
		if e < 0 || e >= info.Episodes {
			return &Error{Class: ErrMisuse, Op: "convert", Where: Where{"episode": e}, Msg: "no such episode"}
		}
	}
	for _, k := range o.Keys {
		if info.Feature(k) == nil {
			return &Error{Class: ErrMisuse, Op: "convert", Where: Where{"dataset": info.URI}, Msg: "no feature " + k + " to keep", Hint: Nearest(k, info.Keys())}
		}
	}
	return nil
}
