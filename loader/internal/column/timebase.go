package column

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/kernel"
)

// Timebase is what the samples of a source lie on: the rows of one clock, or a uniform grid. Streams on that clock are read by row; all
// others are brought to the samples' times by their align rules (column.time).
type Timebase struct {
	IsGrid       bool   // a uniform timeline (hz)
	Key          string // else: the stream whose rows are samples; "" for the episode's own
	Clock        string // the clock of those rows
	DatasetClock string // Info.Clock: the name of "", where it has one
	IsTimed      bool   // windows lie in time and not in rows: there are several clocks, or a grid
	Shift        int64  // of the anchor's timestamps
}

// Timing is how a column goes by time: by which timestamps, and by what rule its values are found or made.
type Timing struct {
	IsNative  bool   // nothing is computed unless a mode is chosen
	Clock     string // the stream whose timestamps count: "" for the task text (its key where its drift is taken off)
	ClockName string // which of its clocks
	Offset    int64
	Options   align.Options
	Rule      kernel.Rule // of values
	Length    int64       // sum: the time that a row covers; 0 = up to the next sample
}

// ClockOf is the clock of a feature; "" is the episode's own, under whichever name.
func (b *Timebase) ClockOf(f *robocache.Feature) string {
	if f.Clock == b.DatasetClock {
		return ""
	}
	return f.Clock
}
