// Package toy is a format in a single folder: a reader and a writer of one numeric stream, in one
// JSON file. It shows what a format needs. The tests of the parent folder check that all other
// packages work with it.
package toy

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store"
)

const ending = ".toy"

func init() {
	robocache.Register(
		robocache.Format{
			Name:       "toy",
			Extensions: []string{ending},
			Stamped:    true,
			Detect:     detect,
			Open:       open,
			Write:      write,
		},
	)
}

// file is the content of the file on disk.
type file struct {
	FPS   float64       `json:"fps"`
	Key   string        `json:"key"`
	Width int           `json:"width"`
	Rows  [][][]float64 `json:"rows"` // by episode
	// Gather of episode Fault dereferences nil, to simulate a defect of a reader.
	Fault *int `json:"fault,omitempty"`
}

func detect(_ context.Context, uri string, _ robocache.OpenOptions) (bool, error) {
	return strings.HasSuffix(uri, ending), nil
}

type dataset struct {
	file
	info    robocache.Info
	offered robocache.Capabilities
}

func open(_ context.Context, uri string, _ robocache.OpenOptions) (robocache.Dataset, error) {
	b, err := os.ReadFile(uri)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"dataset": uri})
	}
	d := &dataset{}
	if err := json.Unmarshal(b, &d.file); err != nil {
		return nil, robocache.Malformed("toy", robocache.Where{"dataset": uri}, "").WithCause(err)
	}
	d.info = robocache.Info{
		URI:      uri,
		Format:   "toy",
		Version:  "1",
		FPS:      robocache.Rate{Num: int64(d.FPS), Den: 1},
		Episodes: len(d.Rows),
		Features: []robocache.Feature{
			{
				Key:   d.Key,
				Kind:  robocache.KindNumeric,
				DType: robocache.Float64,
				Shape: []int{d.Width},
			},
		},
	}
	for _, rows := range d.Rows {
		d.info.Frames += int64(len(rows))
	}
	return d, nil
}

func (d *dataset) Info() *robocache.Info { return &d.info }
func (d *dataset) Len(e int) int         { return len(d.Rows[e]) }
func (d *dataset) Close() error          { return nil }

// Capabilities returns none: the format has no optional operations.
func (d *dataset) Capabilities() *robocache.Capabilities { return &d.offered }

func (d *dataset) Episode(_ context.Context, e int) (robocache.Episode, error) {
	return robocache.Episode{
		Position: e,
		Index:    int64(e),
		Length:   d.Len(e),
		Tasks:    []string{"play"},
	}, nil
}

func (d *dataset) Times(_ context.Context, e int, _ string) ([]int64, error) {
	out := make([]int64, d.Len(e))
	for i := range out {
		out[i] = d.info.FPS.Nanos(int64(i))
	}
	return out, nil
}

func (d *dataset) Gather(_ context.Context, _ string, rows []robocache.Row, dst []byte) error {
	dst = dst[:0]
	for _, r := range rows {
		if d.Fault != nil && r.Episode == *d.Fault {
			var broken *file
			_ = broken.Rows[r.Index]
		}
		for _, v := range d.Rows[r.Episode][r.Index] {
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
		}
	}
	return nil
}

func (d *dataset) Text(_ context.Context, key string, rows []robocache.Row) ([]string, error) {
	if key != "task" {
		return nil, robocache.NotFound("toy", robocache.Where{"stream": key}, "no such stream")
	}
	out := make([]string, len(rows))
	for i := range out {
		out[i] = "play"
	}
	return out, nil
}

func (d *dataset) Frames(context.Context, string, []robocache.Row, []robocache.FrameRef) error {
	return robocache.Misuse("toy", nil, "no images")
}

func (d *dataset) Stats(context.Context) (robocache.Stats, error) { return nil, nil }

// write writes the first of the wanted numeric streams.
func write(
	ctx context.Context,
	src robocache.Dataset,
	dst string,
	opt robocache.WriteOptions,
) (*robocache.WriteReport, error) {
	info := src.Info()
	out := file{FPS: info.FPS.Float()}
	var kept *robocache.Feature
	rep := &robocache.WriteReport{}
	for i := range info.Features {
		f := &info.Features[i]
		switch {
		case f.Default, opt.Keys != nil && !slices.Contains(opt.Keys, f.Key):
		case kept == nil && f.Kind == robocache.KindNumeric && !f.Ragged():
			kept, out.Key, out.Width = f, f.Key, f.Elements()
		default:
			rep.Dropped = append(rep.Dropped, f.Key)
		}
	}
	if kept == nil {
		return nil, robocache.Unsupported("write toy", nil, "no numeric stream")
	}
	if opt.Episodes == nil {
		for e := range info.Episodes {
			opt.Episodes = append(opt.Episodes, e)
		}
	}
	counter := robocache.NewRowCounter(src, opt.Episodes, opt.Progress)
	for _, e := range opt.Episodes {
		rows := make([]robocache.Row, src.Len(e))
		for i := range rows {
			rows[i] = robocache.Row{Episode: e, Index: i}
		}
		raw := make([]byte, len(rows)*kept.RowBytes())
		if err := src.Gather(ctx, kept.Key, rows, raw); err != nil {
			return nil, err
		}
		values := robocache.Float64s(nil, kept.DType, raw)
		ep := make([][]float64, len(rows))
		for i := range ep {
			ep[i] = values[i*out.Width : (i+1)*out.Width]
		}
		out.Rows = append(out.Rows, ep)
		rep.Episodes, rep.Frames = rep.Episodes+1, rep.Frames+int64(len(rows))
		counter.Finish(e)
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"dataset": dst})
	}
	path, ok := store.LocalPath(dst)
	if _, there := os.Stat(path); !ok || there == nil {
		return nil, robocache.Misuse(
			"write toy",
			robocache.Where{"dataset": dst},
			"a new local file is wanted",
		)
	}
	rep.Bytes = int64(len(b))
	return rep, robocache.At(os.WriteFile(path, b, 0o644), robocache.Where{"dataset": dst})
}
