package robocache

import (
	"context"
	"slices"
)

// Capabilities are the operations that some datasets have and others lack. A field is nil if the
// dataset lacks the operation. Callers use the functions GatherRagged, Valid, Validity, RowsIn,
// Lacks, Findings and OriginOf where there is one: they also answer for datasets without the
// capability.
//
// A reader fills in the struct once, when it opens the dataset. A wrapper copies the struct of the
// dataset that it wraps and overrides the fields that it changes. A wrapper therefore passes on a
// new capability by default. A wrapper that changes rows, keys or positions of episodes overrides
// or clears every function that takes them.
//
// All functions are safe for concurrent use. None may be called after Close. The caller owns what
// they return, and they keep no argument after they return, unless a field says otherwise.
//
// Two capabilities are interfaces that As finds, because their types are in packages that import
// this one: video.Source is a dataset with video files, and store.Source is a dataset that gives
// its bytes.
type Capabilities struct {
	// GatherRagged returns rows of a ragged feature (a point cloud, or numeric rows of varying
	// length), one after the other in the order asked. counts[i] is the number of entries of row i;
	// each entry has Elements() × DType.Size() bytes in data. An unknown key is ErrNotFound, a row
	// beyond the episode is ErrMisuse. Called by loader, align.View, stats, inspect, diagnose and
	// the writers.
	GatherRagged func(
		ctx context.Context, key string, rows []Row,
	) (data []byte, counts []int, err error)

	// LeaseFrames is Frames with images in memory that the dataset uses again. The dataset owns the
	// bytes of out; they are valid until done is called. The caller must call done once, unless it
	// is nil. An error leases nothing. Called by loader, for still images that are converted into a
	// batch at once.
	LeaseFrames func(
		ctx context.Context, key string, rows []Row, out []FrameRef,
	) (done func(), err error)

	// Valid writes for each row 1 if it holds a value, else 0; Gather returns zeros for rows
	// without a value (Feature.Masked). len(valid) must be len(rows). Errors are those of Gather.
	// If it is nil, all rows hold a value. Called by loader (valid masks), align.View and the
	// writers.
	Valid func(ctx context.Context, key string, rows []Row, valid []uint8) error

	// Clocks returns the names of the clocks that timestamped a stream: of a ROS 2 message its
	// header's, its publisher's and its recorder's. The clock of Times is the first. It returns nil
	// for a stream with one clock. It is set together with TimesBy. Called by diagnose, align and
	// mapping.
	Clocks func(key string) []string

	// TimesBy returns the timestamps of a stream by one of its clocks, in int64 ns and in the order
	// of the rows: they may decrease. A clock that the stream does not have is ErrUnsupported.
	TimesBy func(ctx context.Context, episode int, key, clock string) ([]int64, error)

	// Message returns the ROS 2 messages from which a stream is read; nil if the stream is unknown,
	// or if no description of messages gives its rows. The caller owns the result. Called by
	// MessageOf.
	Message func(key string) *MessageSource

	// Rows returns the number of rows of a stream with its own clock in an episode, without reading
	// its timestamps. Errors are those of Times. Called by RowsIn.
	Rows func(ctx context.Context, episode int, key string) (int, error)

	// VideoStart returns the time in ns at which an episode begins in its video file. ok is false
	// if the dataset declares none. Called by loader, for the check of timestamps that LeRobot's
	// class makes.
	VideoStart func(ctx context.Context, episode int, key string) (ns int64, ok bool, err error)

	// LimitMemory lowers the dataset's memory budget; a higher budget than the present one has no
	// effect. Called by loader before it reads, which shares one budget among its parts.
	LimitMemory func(bytes int64)

	// SideStreams returns the streams with samples at native rates in files under recordings/, and
	// their nominal rates in Hz. It is empty if there are none. The dataset owns the map. Called by
	// convert, which reports that the samples are left out, and by edit, which keeps them.
	SideStreams func() map[string]float64

	// Recording returns the file, or the folder, of a recording that holds an episode, relative to
	// the dataset; "" if there is no such episode. The file has the rows and keys that the dataset
	// shows, so a wrapper that changes them clears the field. Called by OriginOf, and by edit,
	// which copies recordings that stay as they are.
	Recording func(episode int) string

	// Origin returns the recording that became an episode; nil if the dataset does not know. An
	// Origin without Dataset names a file of the dataset itself. Called by OriginOf.
	Origin func(ctx context.Context, episode int) (*Origin, error)

	// Lacks reports whether an episode, by position, lacks a stream that other episodes have.
	// Reading such rows is ErrMalformed. It is nil if all episodes have the same streams. Called by
	// loader, PadLacking and the writers.
	Lacks func(episode int, key string) bool

	// Diagnose runs the checks of the dataset's own format. It returns an error only if the checks
	// cannot run. Called by diagnose.Run, and by edit to verify a result.
	Diagnose func(ctx context.Context, opt DiagnoseOptions) ([]Finding, error)

	// Noticed returns what was found while the dataset was read. It may repeat Info.Findings.
	// Called by Findings.
	Noticed func() []Finding
}

// GatherRagged returns rows of a ragged feature: see Capabilities. A dataset without such rows is
// ErrUnsupported.
func GatherRagged(
	ctx context.Context, ds Dataset, key string, rows []Row,
) (data []byte, counts []int, err error) {
	if gather := ds.Capabilities().GatherRagged; gather != nil {
		return gather(ctx, key, rows)
	}
	return nil, nil, Unsupported("gather", Where{"stream": key},
		"the dataset gives no rows of varying length")
}

// LeaseFrames returns images in memory that the dataset owns and uses again after done is called:
// see Capabilities. If the dataset leases none, the caller owns the images and done is nil.
func LeaseFrames(
	ctx context.Context, ds Dataset, key string, rows []Row, out []FrameRef,
) (done func(), err error) {
	if lease := ds.Capabilities().LeaseFrames; lease != nil {
		return lease(ctx, key, rows, out)
	}
	return nil, ds.Frames(ctx, key, rows, out)
}

// Valid writes for each row 1 if it holds a value, else 0. All rows of a dataset without masks hold
// a value.
func Valid(ctx context.Context, ds Dataset, key string, rows []Row, valid []uint8) error {
	if own := ds.Capabilities().Valid; own != nil {
		return own(ctx, key, rows, valid)
	}
	for i := range valid {
		valid[i] = 1
	}
	return nil
}

// Validity returns which rows of a stream hold a value; nil if all do.
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

// ValidSuffix ends the key of a mask of a stream: bool, one value a row.
const ValidSuffix = ".valid"

// ClocksOf returns the clocks of a stream: see Capabilities. It is nil if the dataset has one
// clock.
func ClocksOf(ds Dataset, key string) []string {
	if clocks := ds.Capabilities().Clocks; clocks != nil {
		return clocks(key)
	}
	return nil
}

// Wrapper is a Dataset over another one, such as a mapping or a view on a grid. Called by As.
type Wrapper interface {
	// Unwrap returns the dataset that is wrapped; nil ends the search of As.
	Unwrap() Dataset
}

// As returns the first dataset of type T among ds and the datasets that it wraps. It is for types
// that do not depend on rows or keys, because wrappers change those: video.Source, store.Source, or
// the type of a reader. Other operations are Capabilities.
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
