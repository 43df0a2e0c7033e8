package query_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/query"
)

// table is a dataset in memory. Streams hold float64 rows by episode.
type table struct {
	robocache.Dataset // methods that queries do not call are nil
	info              robocache.Info
	lengths           []int
	tasks             [][]string
	streams           map[string][][]float64 // by episode, row-major
	texts             map[string][][]string
	stamps            map[string][][]int64 // "" and streams with own clocks
	capabilities      robocache.Capabilities
}

func (d *table) Info() *robocache.Info                 { return &d.info }
func (d *table) Len(e int) int                         { return d.lengths[e] }
func (d *table) Close() error                          { return nil }
func (d *table) Capabilities() *robocache.Capabilities { return &d.capabilities }

func (d *table) Episode(_ context.Context, e int) (robocache.Episode, error) {
	return robocache.Episode{
		Position: e, Index: d.info.EpisodeIndex(e), Length: d.lengths[e], Tasks: d.tasks[e],
	}, nil
}

func (d *table) Times(_ context.Context, e int, key string) ([]int64, error) {
	if times := d.stamps[key]; times != nil {
		return times[e], nil
	}
	times := make([]int64, d.lengths[e])
	for i := range times {
		times[i] = d.info.FPS.Nanos(int64(i))
	}
	return times, nil
}

func (d *table) Gather(_ context.Context, key string, rows []robocache.Row, dst []byte) error {
	f := d.info.Feature(key)
	width := f.Elements()
	at := 0
	for _, r := range rows {
		for _, v := range d.streams[key][r.Episode][r.Index*width:][:width] {
			switch f.DType {
			case robocache.Float64:
				binary.LittleEndian.PutUint64(dst[at:], math.Float64bits(v))
			case robocache.Float32:
				binary.LittleEndian.PutUint32(dst[at:], math.Float32bits(float32(v)))
			default:
				dst[at] = uint8(v)
			}
			at += f.DType.Size()
		}
	}
	return nil
}

func (d *table) Text(_ context.Context, key string, rows []robocache.Row) (out []string, _ error) {
	for _, r := range rows {
		out = append(out, d.texts[key][r.Episode][r.Index])
	}
	return out, nil
}

// newTable returns a dataset at 10 Hz whose episodes have the lengths.
func newTable(lengths ...int) *table {
	d := &table{
		lengths: lengths, streams: map[string][][]float64{}, texts: map[string][][]string{},
		stamps: map[string][][]int64{},
	}
	d.info = robocache.Info{
		URI: "memory", FPS: robocache.Rate{Num: 10, Den: 1}, Episodes: len(lengths),
	}
	d.tasks = make([][]string, len(lengths))
	return d
}

// add adds a stream of numbers. names are those of its channels, if there are several.
func (d *table) add(key string, t robocache.DType, names []string, values ...[]float64) {
	f := robocache.Feature{Key: key, Kind: robocache.KindNumeric, DType: t, Shape: []int{1}}
	if names != nil {
		f.Shape = []int{len(names)}
		f.Names, _ = json.Marshal(names)
	}
	d.info.Features = append(d.info.Features, f)
	d.streams[key] = values
}

// find returns the ranges of an expression as {episode, from, to}.
func find(t *testing.T, ds robocache.Dataset, text string, opt query.Options) [][3]int {
	t.Helper()
	e, err := query.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	b, err := e.Bind(t.Context(), ds, opt)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	ranges, err := b.Find(t.Context(), nil, 0)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var out [][3]int
	for _, r := range ranges {
		out = append(out, [3]int{int(r.Episode), r.From, r.To})
	}
	matching, err := query.Episodes(t.Context(), ds, text, opt)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var episodes []int
	for _, r := range out {
		if !slices.Contains(episodes, r[0]) {
			episodes = append(episodes, r[0])
		}
	}
	if !slices.Equal(episodes, matching) {
		t.Errorf("%s: episodes %v, ranges in %v", text, matching, episodes)
	}
	return out
}
