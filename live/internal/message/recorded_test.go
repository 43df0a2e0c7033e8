package message_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/mcap"
	_ "github.com/goatnote-inc/robocache/format/rosbag2"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/live/internal/message"
	"github.com/goatnote-inc/robocache/mapping"
	"github.com/goatnote-inc/robocache/video"
)

// replayer is a dataset of recordings.
type replayer interface {
	EachMessage(
		ctx context.Context, episode int, fn func(topic string, log int64, data []byte) error,
	) error
}

// liveRow is a copy of a decoded row.
type liveRow struct {
	message.Row
	number int // number of the frame in the video
}

func copyRow(r message.Row) liveRow {
	r.Data, r.Packet = bytes.Clone(r.Data), bytes.Clone(r.Packet)
	r.Frame.Encoded = bytes.Clone(r.Frame.Encoded)
	if raw := r.Frame.Raw; raw != nil {
		c := *raw
		c.Pix = bytes.Clone(c.Pix)
		r.Frame.Raw = &c
	}
	return liveRow{Row: r}
}

// sourcesOf returns the sources of all streams of a dataset, as a contract stores them.
func sourcesOf(t *testing.T, ds robocache.Dataset) (out []message.KeyedSource) {
	t.Helper()
	for _, f := range ds.Info().Features {
		source := robocache.MessageOf(ds, f.Key)
		if source == nil {
			continue
		}
		text, err := json.Marshal(source)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(robocache.MessageOf(ds, f.Key)); !bytes.Equal(text, again) {
			t.Errorf("%s: the source is not deterministic", f.Key)
		}
		stored := &robocache.MessageSource{}
		if err := json.Unmarshal(text, stored); err != nil {
			t.Fatal(err)
		}
		out = append(out, message.KeyedSource{Key: f.Key, Source: stored})
	}
	return out
}

// compared counts the rows that were equal, by kind of stream.
type compared map[robocache.Kind]int

// compareRecording decodes all messages of a dataset and compares the rows with those of the
// dataset (message.M1). All messages must be readable.
func compareRecording(t *testing.T, ds robocache.Dataset, counts compared) {
	t.Helper()
	for _, err := range compareReadable(t, ds, counts) {
		t.Error(err)
	}
}

// compareReadable is compareRecording for the topics whose messages can all be decoded. It returns
// the first errors of the others.
func compareReadable(
	t *testing.T, ds robocache.Dataset, counts compared,
) (failed map[string]error) {
	t.Helper()
	failed = map[string]error{}
	ctx := t.Context()
	rec, ok := robocache.As[replayer](ds)
	if !ok {
		t.Fatal("the dataset has no recordings")
	}
	sources := sourcesOf(t, ds)
	for e := range ds.Info().Episodes {
		dec, err := message.New(sources)
		if err != nil {
			t.Fatal(err)
		}
		topics := map[string]bool{}
		for _, s := range sources {
			topics[s.Source.Topic] = true
		}
		rows := make([][]liveRow, len(sources))
		if err := rec.EachMessage(ctx, e, func(topic string, log int64, data []byte) error {
			if !topics[topic] {
				return nil
			}
			err := dec.Decode(topic, data, log, func(r message.Row) {
				rows[r.Stream] = append(rows[r.Stream], copyRow(r))
			})
			if err != nil && failed[topic] == nil {
				failed[topic] = err
			}
			return nil
		}); err != nil {
			t.Fatalf("episode %d: %v", e, err)
		}
		for i, s := range sources {
			if failed[s.Source.Topic] != nil {
				continue
			}
			f := ds.Info().Feature(s.Key)
			if f.Kind == robocache.KindVideo {
				numberFrames(t, dec, i, rows[i])
			}
			slices.SortStableFunc(rows[i], func(a, b liveRow) int { return int(a.Time - b.Time) })
			t.Run(fmt.Sprint(e, " ", s.Key), func(t *testing.T) {
				compareStream(t, ds, e, f, rows[i], dec.Feature(i))
			})
			counts[f.Kind] += len(rows[i])
		}
	}
	return failed
}

// numberFrames sets the numbers of the frames as in the virtual file of a recording.
func numberFrames(t *testing.T, dec *message.Decoder, stream int, rows []liveRow) {
	t.Helper()
	s, err := video.NewStream(video.Codec(dec.Feature(stream).Codec), video.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if rows[i].number = -1; len(rows[i].Packet) > 0 {
			if rows[i].number, err = s.Add(rows[i].Packet); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.SetColour(dec.Colour(stream))
	if file, err := s.MP4(robocache.Rate{Num: 30, Den: 1}); err == nil && len(rows) > 0 {
		rows[0].Text = string(file.Head())
	}
}

// compareStream compares the rows of one stream of an episode.
func compareStream(
	t *testing.T,
	ds robocache.Dataset,
	e int,
	f *robocache.Feature,
	got []liveRow,
	described *robocache.Feature,
) {
	t.Helper()
	ctx := t.Context()
	times, err := ds.Times(ctx, e, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	if len(times) != len(got) {
		t.Fatalf("%d rows, want %d", len(got), len(times))
	}
	if described.Kind != f.Kind || described.DType != f.DType ||
		described.RowBytes() != f.RowBytes() || described.Masked != f.Masked {
		t.Errorf("described as %+v, want %+v", described, f)
	}
	for i := range got {
		if got[i].Time != times[i] || got[i].Key != f.Key {
			t.Fatalf("row %d of %s at %d, want %d", i, got[i].Key, got[i].Time, times[i])
		}
	}
	rows := robocache.RowsOf(e, 0, len(got))
	switch {
	case f.Kind == robocache.KindVideo:
		compareVideo(t, ds, f, rows, got)
	case f.Kind == robocache.KindImage:
		want := make([]robocache.FrameRef, len(rows))
		if err := ds.Frames(ctx, f.Key, rows, want); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if !reflect.DeepEqual(got[i].Frame, want[i]) {
				t.Fatalf("image %d differs", i)
			}
		}
	case f.Kind == robocache.KindText || f.Kind == robocache.KindEvent:
		want, err := ds.Text(ctx, f.Key, rows)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if got[i].Text != want[i] {
				t.Fatalf("text %d: %q, want %q", i, got[i].Text, want[i])
			}
		}
	case f.Ragged():
		data, counts, err := robocache.GatherRagged(ctx, ds, f.Key, rows)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			n := counts[i] * f.Elements() * f.DType.Size()
			if got[i].Count != counts[i] || !bytes.Equal(got[i].Data, data[:n]) {
				t.Fatalf("row %d: %d entries, want %d", i, got[i].Count, counts[i])
			}
			data = data[n:]
		}
	default:
		size := f.RowBytes()
		want, valid := make([]byte, size*len(rows)), make([]uint8, len(rows))
		if err := ds.Gather(ctx, f.Key, rows, want); err != nil {
			t.Fatal(err)
		}
		if err := robocache.Valid(ctx, ds, f.Key, rows, valid); err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if !bytes.Equal(got[i].Data, want[i*size:(i+1)*size]) ||
				got[i].Valid != (valid[i] != 0) {
				t.Fatalf("row %d: %x, valid %v; want %x, %d", i, got[i].Data, got[i].Valid,
					want[i*size:(i+1)*size], valid[i])
			}
		}
	}
}

// compareVideo compares the packets with the virtual file of the recording: the number of each
// row's frame, and the head of the file, which holds the sizes of all frames and the parameter
// sets.
func compareVideo(
	t *testing.T,
	ds robocache.Dataset,
	f *robocache.Feature,
	rows []robocache.Row,
	got []liveRow,
) {
	t.Helper()
	want := make([]robocache.FrameRef, len(rows))
	if err := ds.Frames(t.Context(), f.Key, rows, want); err != nil {
		t.Fatal(err)
	}
	head, path := "", ""
	for i := range got {
		head += got[i].Text
		if want[i].Missing != (got[i].number < 0) ||
			!want[i].Missing && want[i].Ordinal != got[i].number {
			t.Fatalf("row %d: frame %d, want %+v", i, got[i].number, want[i])
		}
		if !want[i].Missing {
			path = want[i].Path
		}
	}
	if path == "" {
		return
	}
	file, err := video.LibraryOf(ds).Acquire(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Release()
	own := make([]byte, len(head))
	if err := file.Ranged.ReadAt(t.Context(), own, 0); err != nil || string(own) != head {
		t.Errorf("the head of the file differs: %v", err)
	}
}

// mappingOf returns a mapping that uses all that a mapping may change on the streams of a dataset:
// names, parts of joined rows, a scale, an offset, a drift, and timestamps from values.
func mappingOf(ds robocache.Dataset) *robocache.Mapping {
	m := &robocache.Mapping{Streams: map[string]robocache.StreamMapping{}}
	features := ds.Info().Features
	plain := func(f *robocache.Feature) bool {
		return f.Kind == robocache.KindNumeric && f.RowBytes() > 0
	}
	for i := range features {
		f := &features[i]
		switch i % 3 {
		case 0:
			m.Streams["moved."+f.Key] = robocache.StreamMapping{
				From:   []string{f.Key},
				Offset: -12345,
				Drift:  robocache.Drift{PPM: 40, At: 1_770_113_730_000_000_000, Fixed: true},
			}
		case 1:
			m.Streams["renamed."+f.Key] = robocache.StreamMapping{From: []string{f.Key}}
		}
		if !plain(f) {
			continue
		}
		for k := range features {
			o := &features[k]
			if k == i || !plain(o) || o.DType != f.DType || o.Clock != f.Clock {
				continue
			}
			joined := robocache.StreamMapping{From: []string{o.Key, f.Key}}
			if n := o.Elements() + f.Elements(); n > 2 {
				joined.Slice = []int{1, n - 1}
			}
			if f.DType.Float() {
				joined.Scale = 0.1
			}
			m.Streams["joined."+f.Key] = joined
		}
		if f.DType.Float() {
			m.Streams["scaled."+f.Key] = robocache.StreamMapping{
				From: []string{f.Key}, Scale: -2.5,
			}
		}
	}
	return m
}

// compareAll compares a dataset with each clock, with few messages read, and with a mapping.
func compareAll(t *testing.T, uri string, options map[string]string, counts compared) {
	t.Helper()
	for _, o := range []map[string]string{
		nil, {"clock": "header"}, {"clock": "log"}, {"scan": "sample"},
	} {
		all := map[string]string{}
		maps.Copy(all, o)
		maps.Copy(all, options)
		opt := robocache.OpenOptions{Options: all}
		ds, err := robocache.Open(t.Context(), uri, opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprint(o), func(t *testing.T) { compareRecording(t, ds, counts) })
		opt.Map = mappingOf(ds)
		if err := ds.Close(); err != nil {
			t.Fatal(err)
		}
		mapped, err := mapping.Open(t.Context(), uri, opt)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprint(o, " mapped"), func(t *testing.T) {
			compareRecording(t, mapped, counts)
			described := 0
			for _, f := range mapped.Info().Features {
				if source := robocache.MessageOf(mapped, f.Key); source != nil &&
					source.Mapping != nil {
					described++
				}
			}
			if described == 0 && len(mapped.Info().Features) > 1 {
				t.Error("no stream has a mapping")
			}
		})
		if err := mapped.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecordings compares every topic of the shared recordings (message.M1).
func TestRecordings(t *testing.T) {
	counts := compared{}
	var uris []string
	for _, pattern := range []string{
		"mcap_robot/*.mcap",
		"mcap_robot/recording_db3",
		"rosbag2/cpp/*.mcap",
		"rosbag2/cpp/*.db3",
		"rosbag2/*/*/*/*.mcap",
		"rosbag2/*/*/*/*.db3",
		"rosbag2/py/*/reindex_test_bags/multiple_files/*",
	} {
		found, err := filepath.Glob(filepath.Join(realdata.Dir(t), pattern))
		if err != nil {
			t.Fatal(err)
		}
		uris = append(uris, found...)
	}
	for _, uri := range uris {
		if strings.HasSuffix(uri, ".yaml") {
			continue
		}
		t.Run(filepath.Base(uri), func(t *testing.T) { compareAll(t, uri, nil, counts) })
	}
	t.Log(counts)
	if _, shared := realdata.Find(t, "mcap_robot"); shared {
		for _, kind := range []robocache.Kind{
			robocache.KindNumeric, robocache.KindImage, robocache.KindPointCloud, robocache.KindText,
		} {
			if counts[kind] == 0 {
				t.Errorf("no row of kind %s was compared", kind)
			}
		}
	}
}

// compareMapped compares a recording with a mapping in YAML. Every stream must come from messages.
func compareMapped(t *testing.T, uri, yaml string) {
	t.Helper()
	m, err := mapping.Parse([]byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	ds, err := mapping.Open(t.Context(), uri, robocache.OpenOptions{Map: m})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	for _, f := range ds.Info().Features {
		if robocache.MessageOf(ds, f.Key) == nil {
			t.Errorf("%s comes from no message", f.Key)
		}
	}
	compareRecording(t, ds, compared{})
}
