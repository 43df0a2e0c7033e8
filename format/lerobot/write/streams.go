package write

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sort"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/crash"
)

const (
	// RecordingsFolder is the folder with one file per episode, which holds the samples of streams
	// with native clocks.
	RecordingsFolder = "recordings"
	// RecordingsFormat is the format of these files.
	RecordingsFormat = "mcap"
	// StreamsKey is the key of info.json that lists the streams with native clocks.
	StreamsKey = "robocache_streams"
	// RowClock is the stream of a recording that holds the number and the measured time of each
	// row.
	RowClock = "frame_index"
)

// streamInfo describes a stream with a native clock in info.json.
type streamInfo struct {
	HZ         float64 `json:"hz"` // nominal rate
	Recordings string  `json:"recordings"`
}

// samples holds the values of one native stream of the current episode, in order of time.
type samples struct {
	times []int64
	data  []byte
}

// RecordingName returns the name of the file that holds the samples of an episode.
func RecordingName(episode int64) string {
	return fmt.Sprintf("%s/episode_%06d.%s", RecordingsFolder, episode, RecordingsFormat)
}

// ParseStreams returns the nominal rates of the streams that StreamsKey of info.json lists, by key.
func ParseStreams(text json.RawMessage) (map[string]float64, error) {
	var have map[string]streamInfo
	if len(text) > 0 {
		if err := json.Unmarshal(text, &have); err != nil {
			return nil, err
		}
	}
	out := map[string]float64{}
	for key, s := range have {
		out[key] = s.HZ
	}
	return out, nil
}

// StreamsText returns the value of StreamsKey of info.json.
func StreamsText(streams map[string]float64) (json.RawMessage, error) {
	all := map[string]streamInfo{}
	for key, hz := range streams {
		all[key] = streamInfo{
			hz,
			RecordingsFolder + "/episode_{episode_index:06d}." + RecordingsFormat,
		}
	}
	return json.Marshal(all)
}

// Streams returns the nominal rates of the streams with native clocks, by key.
func (r *Recorder) Streams() map[string]float64 { return r.options.Streams }

// resumeStreams reads the native streams from info.json and rejects different ones.
func (r *Recorder) resumeStreams(info []byte) error {
	var have map[string]json.RawMessage
	var old map[string]float64
	err := json.Unmarshal(info, &have)
	if err == nil {
		old, err = ParseStreams(have[StreamsKey])
	}
	if err != nil {
		return robocache.Malformed(opRecord, robocache.Where{"file": infoName}, "").WithCause(err)
	}
	if len(r.options.Streams) > 0 && !maps.Equal(old, r.options.Streams) {
		return robocache.Misuse(
			opRecord,
			nil,
			"the existing dataset has other streams with their own rates",
		).Expected(fmt.Sprint(old), fmt.Sprint(r.options.Streams)).
			WithHint(
				"Leave out features to keep those of the dataset, or record into another folder.",
			)
	}
	r.options.Streams = old
	return nil
}

// checkStreams rejects streams that cannot have a native clock.
func (r *Recorder) checkStreams() error {
	for _, key := range slices.Sorted(maps.Keys(r.options.Streams)) {
		i := slices.IndexFunc(
			r.cfg.Features,
			func(f robocache.Feature) bool { return f.Key == key },
		)
		if i < 0 || r.cfg.Features[i].Kind != robocache.KindNumeric || key == RowClock {
			return robocache.Unsupported(
				opRecord,
				robocache.Where{"stream": key},
				"only streams of numbers can have their own rate",
			).WithHint("Leave out hz: cameras and texts have a value in each row.")
		}
	}
	return nil
}

// AddSample adds a sample of a stream with a native clock, at time t in nanoseconds. The times of a
// stream must increase.
func (r *Recorder) AddSample(key string, t int64, value []byte) (err error) {
	defer crash.Recover(opRecord, &err)
	if err := r.errIfClosed(); err != nil {
		return err
	}
	defer robocache.Locate(&err, robocache.Where{"episode": r.nextEpisode(), "stream": key})
	f := r.featureNamed(key)
	if _, ok := r.options.Streams[key]; !ok || f == nil {
		return robocache.Misuse(opRecord, nil, "the stream was declared without a rate").
			WithHint(`Declare it with "hz", or give its value to add_frame.`)
	}
	if len(value) != f.RowBytes() {
		return misuse(nil, "", fmt.Sprintf("%d bytes", f.RowBytes()), fmt.Sprint(len(value)), "")
	}
	if err := checkSign(t); err != nil {
		return err
	}
	if err := r.checkFinite(f, value); err != nil {
		return err
	}
	if r.current == nil {
		r.beginEpisode()
	}
	e := r.current
	if e.ended {
		return robocache.Misuse(opRecord, nil, "the episode is being saved").
			WithHint("save_episode() again, or discard_episode()")
	}
	if err := e.checkHeld(); err != nil {
		return err
	}
	s := e.native[key]
	if s == nil {
		s = &samples{}
		e.native[key] = s
	}
	if n := len(s.times); n > 0 && t <= s.times[n-1] {
		return misuse(
			nil,
			"time",
			fmt.Sprintf("a time after the last sample, %d ns", s.times[n-1]),
			fmt.Sprintf("%d ns", t),
			"Add the samples of a stream in the order of their times.",
		)
	}
	s.times = append(s.times, t)
	s.data = append(s.data, value...)
	e.heldBytes.Add(int64(len(value)) + 8)
	return nil
}

// featureNamed returns the feature with a key, or nil.
func (r *Recorder) featureNamed(key string) *robocache.Feature {
	for i := range r.cfg.Features {
		if r.cfg.Features[i].Key == key {
			return &r.cfg.Features[i]
		}
	}
	return nil
}

// checkTime rejects a row whose time is before the last row, or before the first sample of a
// stream.
func (r *Recorder) checkTime(t int64) error {
	if len(r.options.Streams) == 0 {
		return nil
	}
	if err := checkSign(t); err != nil {
		return err
	}
	e := r.current
	if e != nil && len(e.rowTimes) > 0 && t <= e.rowTimes[len(e.rowTimes)-1] {
		return misuse(
			nil,
			"time",
			fmt.Sprintf("a time after the last row, %d ns", e.rowTimes[len(e.rowTimes)-1]),
			fmt.Sprintf("%d ns", t),
			"Pass the time at which the row was measured, on the clock of add().",
		)
	}
	for _, key := range slices.Sorted(maps.Keys(r.options.Streams)) {
		if e == nil || e.native[key] == nil || e.native[key].times[0] > t {
			return robocache.Misuse(
				opRecord,
				robocache.Where{"stream": key},
				"the stream has no sample at or before the row's time",
			).WithHint(
				"Call add(%q, value, time) before add_frame, with times of the same clock.",
				key,
			)
		}
	}
	return nil
}

// checkSign rejects a time before 0, which a recording cannot hold.
func checkSign(t int64) error {
	if t >= 0 {
		return nil
	}
	return misuse(
		nil,
		"time",
		"a time of at least 0 ns",
		fmt.Sprintf("%d ns", t),
		"Pass times of a clock that is not negative, such as time.monotonic_ns().",
	)
}

// alignRows fills the columns of native streams: each row holds the last sample at or before its
// time.
func (e *recording) alignRows(features []robocache.Feature) {
	for i := range features {
		s := e.native[features[i].Key]
		size := features[i].RowBytes()
		if s == nil {
			continue
		}
		column := make([]byte, 0, size*e.rows)
		for _, t := range e.rowTimes {
			isAfter := func(k int) bool { return s.times[k] > t }
			last := sort.Search(len(s.times), isAfter) - 1 // checkTime ensures that it exists
			column = append(column, s.data[last*size:(last+1)*size]...)
		}
		e.columns[features[i].Key] = column
	}
}

// writeRecording writes the samples of an episode into the staging directory.
func (r *Recorder) writeRecording(ctx context.Context, stage string, ep tailEpisode) (err error) {
	if ep.recording == nil {
		return nil
	}
	defer robocache.LocateIn(&err, "file", ep.recording.name)
	format, err := robocache.FormatNamed(RecordingsFormat)
	if err != nil {
		return err
	}
	report, err := format.Write(
		ctx,
		ep.recording,
		filepath.Join(stage, filepath.FromSlash(ep.recording.name)),
		robocache.WriteOptions{Threads: 1},
	)
	if err != nil {
		return err
	}
	if len(report.Dropped) > 0 {
		return robocache.Unsupported(
			opRecord,
			nil,
			"streams %v cannot be kept in %s",
			report.Dropped,
			RecordingsFormat,
		)
	}
	return nil
}

// recordingInfo returns the entry of info.json for native streams, or nil if there are none.
func (r *Recorder) recordingInfo() (map[string]json.RawMessage, error) {
	if len(r.options.Streams) == 0 {
		return nil, nil
	}
	streamsText, err := StreamsText(r.options.Streams)
	if err != nil {
		return nil, err
	}
	return map[string]json.RawMessage{StreamsKey: streamsText}, nil
}

// nativeEpisode presents the samples of one episode as a dataset. Each stream has its own clock,
// and so have the rows.
type nativeEpisode struct {
	name   string
	info   robocache.Info
	index  int
	native map[string]*samples
	tasks  []string
}

// nativeOf returns the current episode as a dataset, or nil without native streams.
func (r *Recorder) nativeOf(e *recording) *nativeEpisode {
	if len(r.options.Streams) == 0 {
		return nil
	}
	index := r.nextEpisode()
	d := &nativeEpisode{
		name:   RecordingName(int64(index)),
		index:  index,
		native: maps.Clone(e.native),
		tasks:  e.tasks,
	}
	rows := &samples{times: e.rowTimes}
	for k := range e.rowTimes {
		rows.data = binary.LittleEndian.AppendUint64(rows.data, uint64(k))
	}
	d.native[RowClock] = rows
	d.info = robocache.Info{
		URI:      d.name,
		Format:   "lerobot",
		Robot:    r.cfg.Robot,
		FPS:      r.cfg.FPS,
		Clock:    RowClock,
		Episodes: 1,
		Frames:   int64(e.rows),
	}
	for i := range r.cfg.Features {
		if f := r.cfg.Features[i]; d.native[f.Key] != nil {
			f.Clock = f.Key
			d.info.Features = append(d.info.Features, f)
		}
	}
	d.info.Features = append(d.info.Features, robocache.Feature{
		Key:   RowClock,
		Kind:  robocache.KindNumeric,
		DType: robocache.Int64,
		Shape: []int{1},
		Clock: RowClock,
	})
	return d
}

// Info returns the description of the recording.
func (d *nativeEpisode) Info() *robocache.Info { return &d.info }

// Len returns the number of rows of the episode.
func (d *nativeEpisode) Len(int) int { return len(d.native[RowClock].times) }

// Episode returns the metadata of the episode, with each task once.
func (d *nativeEpisode) Episode(context.Context, int) (robocache.Episode, error) {
	ep := robocache.Episode{Index: int64(d.index), Length: d.Len(0)}
	for _, text := range d.tasks {
		if !slices.Contains(ep.Tasks, text) {
			ep.Tasks = append(ep.Tasks, text)
		}
	}
	return ep, nil
}

// Times returns the timestamps of a stream, or those of the rows.
func (d *nativeEpisode) Times(_ context.Context, _ int, key string) ([]int64, error) {
	if s := d.native[key]; s != nil {
		return s.times, nil
	}
	return d.native[RowClock].times, nil
}

// Gather copies samples of a stream into dst.
func (d *nativeEpisode) Gather(
	_ context.Context,
	key string,
	rows []robocache.Row,
	dst []byte,
) error {
	s := d.native[key]
	size := d.info.Feature(key).RowBytes()
	for i, row := range rows {
		copy(dst[i*size:(i+1)*size], s.data[row.Index*size:])
	}
	return nil
}

// Text returns the task of each row.
func (d *nativeEpisode) Text(_ context.Context, _ string, rows []robocache.Row) ([]string, error) {
	out := make([]string, len(rows))
	for i, row := range rows {
		out[i] = d.tasks[row.Index]
	}
	return out, nil
}

// Frames returns an error, because a recording has no images.
func (d *nativeEpisode) Frames(
	context.Context,
	string,
	[]robocache.Row,
	[]robocache.FrameRef,
) error {
	return errors.ErrUnsupported
}

// Capabilities returns an empty set.
func (d *nativeEpisode) Capabilities() *robocache.Capabilities { return &robocache.Capabilities{} }

// Stats returns nil, because a recording has no statistics.
func (d *nativeEpisode) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

// Close does nothing: the samples are in memory.
func (d *nativeEpisode) Close() error { return nil }
