package column

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
)

// Timebase states which times the samples of a source have: the rows of one clock, or a grid.
// Streams on that clock are read by row. All others are resampled at the samples' times by their
// align rules (Column.Time).
type Timebase struct {
	IsGrid bool // samples are a uniform timeline (hz)
	// the stream whose rows are samples, without a grid; "" for the episode's rows
	Key          string
	Clock        string // the clock of those rows
	DatasetClock string // Info.Clock: the name of the clock "", if it has one
	// windows are offsets in time, not in rows: there is a grid or more than one clock
	IsTimed bool
	Shift   int64 // ns added to the anchor's timestamps
}

// Timing states how the values of a column are found by time: by which timestamps and by which
// rule.
type Timing struct {
	IsNative bool // values are not interpolated unless a mode is configured
	// stream whose timestamps apply; "" for the task text; its key if drift is corrected
	Clock     string
	ClockName string // name of the clock, if the stream has several
	Offset    int64
	Options   align.Options
	Rule      kernel.Rule // how values are computed
	Length    int64       // for sums: time that a row covers; 0: up to the next sample
	Arrivals  ArrivalRule // for causal streams
}

// ArrivalRule states when the samples of a causal stream count as arrived.
type ArrivalRule struct {
	IsRecorded bool // the dataset has arrival times; otherwise timestamps are taken
	// a row of a window counts what had arrived at the sample's tick, not at the row's own time
	AtSample bool
	// distribution of the age of the newest usable sample, in place of arrivals; zero: none
	Draw   align.AgeDraw
	DrawID uint32 // separates the draws of clocks; streams of a clock share them
}

// ClockOf returns the clock of a feature, and "" for the episode's own clock under any name.
func (b *Timebase) ClockOf(f *robocache.Feature) string {
	if f.Clock == b.DatasetClock {
		return ""
	}
	return f.Clock
}
