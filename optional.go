package robocache

import (
	"context"
	"slices"
)

// What a Dataset may offer beside Dataset: all of it, and who calls it. A reader implements what it has; a wrapper passes on what it did not change
// (As, Wrapper). Two more are declared where their types are: video.Source, a dataset with video files, and store.Source, one that gives its bytes.

// RaggedDataset is a Dataset with ragged features: point clouds, and numeric rows of varying length.
// Called by loader (batches of point clouds), align.View, stats, inspect and the writers of formats that keep such rows.
type RaggedDataset interface {
	// GatherRagged gives the rows of a ragged feature, one after the other in the order asked: counts[i] entries of row i, each of
	// Elements() × DType.Size() bytes, in data. Both are the caller's.
	GatherRagged(ctx context.Context, key string, rows []Row) (data []byte, counts []int, err error)
}

// FrameLeaser is a Dataset that can give images for a while, in memory that it uses again: what Frames gives is the caller's for good.
// Called by loader, for still images that are converted into a batch at once.
type FrameLeaser interface {
	// LeaseFrames is Frames; what out shows may be other bytes once done was called. done may be nil. An error leases nothing.
	LeaseFrames(ctx context.Context, key string, rows []Row, out []FrameRef) (done func(), err error)
}

// Masker is a Dataset some of whose rows hold no value (Feature.Masked): what Gather gives for them is zeros.
// Called by loader (valid masks), align.View, export of LeRobot and the other writers.
type Masker interface {
	// Valid writes for each row 1 where it holds a value, else 0. len(valid) = len(rows).
	Valid(ctx context.Context, key string, rows []Row, valid []uint8) error
}

// GatherRagged is the dataset's; of one without, unsupported.
func GatherRagged(ctx context.Context, ds Dataset, key string, rows []Row) (data []byte, counts []int, err error) {
	if r, ok := As[RaggedDataset](ds); ok {
		return r.GatherRagged(ctx, key, rows)
	}
	return nil, nil, Unsupported("gather", Where{"stream": key}, "the dataset gives no rows of varying length")
}

// Valid is the dataset's; of one without, all rows hold a value.
func Valid(ctx context.Context, ds Dataset, key string, rows []Row, valid []uint8) error {
	if m, ok := As[Masker](ds); ok {
		return m.Valid(ctx, key, rows, valid)
	}
	for i := range valid {
		valid[i] = 1
	}
	return nil
}

// Validity asks a dataset which of some rows of a stream hold a value; nil where all do.
func Validity(ctx context.Context, ds Dataset, f *Feature, rows []Row) ([]uint8, error) {
	if f == nil || !f.Masked || len(rows) == 0 {
		return nil, nil
	}
	valid := make([]uint8, len(rows))
	if err := Valid(ctx, ds, f.Key, rows, valid); err != nil || !slices.Contains(valid, 0) {
		return nil, err
	}
	return valid, nil
}

// ValidSuffix ends the key of a mask that stands beside a stream: bool, one value a row.
const ValidSuffix = ".valid"

// Clocked is a Dataset whose streams were timestamped by several clocks: of a ROS 2 message its header's, its publisher's and its recorder's.
// Called by diagnose (clocks of one recording against each other) and mapping.
type Clocked interface {
	// Clocks lists the clocks of a stream, the one that Times gives first.
	Clocks(key string) []string
	// TimesBy gives the timestamps of a stream by one of them, in the order of its rows: they may go backwards.
	TimesBy(ctx context.Context, episode int, key, clock string) ([]int64, error)
}

// Counted is a Dataset that says how many rows a stream on a clock of its own has in an episode, where nothing says their timestamps too.
// Called by RowsIn.
type Counted interface {
	Rows(ctx context.Context, episode int, key string) (int, error)
}

// VideoStarter is a Dataset that says at which time of its video file an episode begins; ok is false where nothing is declared.
// Called by loader, for the check of timestamps that LeRobot's class makes.
type VideoStarter interface {
	VideoStart(ctx context.Context, episode int, key string) (ns int64, ok bool, err error)
}

// MemoryLimiter is a Dataset whose budget can be lowered after it was opened; it is never raised.
// Called by loader, which shares one budget among its parts.
type MemoryLimiter interface{ LimitMemory(bytes int64) }

// SideRecorded is a Dataset with more samples than rows: files under recordings/ hold streams at native rates.
// Called by convert, which reports that they are left out, and by edit, which keeps them.
type SideRecorded interface {
	// SideStreams returns the streams with such samples, and their nominal rates in Hz.
	SideStreams() map[string]float64
}

// Recorded is a Dataset of recordings: an episode lies in one file, or in the files of one folder, which may hold others too.
// Called by edit, which copies recordings that stay as they are.
type Recorded interface {
	// Recording names the file or the folder of an episode, relative to the dataset; "" = there is no such episode.
	Recording(episode int) string
}

// Wrapper is a Dataset put over another one: a mapping, a view on one grid.
// Called by As.
type Wrapper interface{ Unwrap() Dataset }

// As finds what a dataset offers beside Dataset, in it or in what it was put over: its video files, its store. It is for what does not
// depend on rows or keys: those the wrapper may have changed.
func As[T any](ds Dataset) (T, bool) {
	for {
		if t, ok := ds.(T); ok {
			return t, true
		}
		w, ok := ds.(Wrapper)
		if !ok {
			var none T
			return none, false
		}
		ds = w.Unwrap()
	}
}

// Diagnoser is a Dataset with checks of its own format.
// Called by diagnose.Run.
type Diagnoser interface {
	Diagnose(ctx context.Context, opt DiagnoseOptions) ([]Finding, error)
}

// Noticer is a Dataset that notices more while it is read. Noticed may repeat what Info.Findings says.
// Called by Findings.
type Noticer interface{ Noticed() []Finding }

// Remoter is a file (Ranged) or a recording whose reads may wait for a network. Called by IsRemote.
type Remoter interface{ Remote() bool }

// IsRemote says that it pays to read ahead of need. Decorators answer for what they wrap.
func IsRemote(v any) bool {
	r, ok := v.(Remoter)
	return ok && r.Remote()
}
