package mapping

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
)

// maxBytes is the largest accepted size of a mapping file.
const maxBytes = 4 << 20

// Read reads a mapping file.
func Read(path string) (_ *robocache.Mapping, err error) {
	f, err := os.Open(path)
	if err := robocache.At(err, robocache.Where{"file": path}); err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err := robocache.At(err, robocache.Where{"file": path}); err != nil {
		return nil, err
	}
	m, err := Parse(b)
	if err := robocache.At(err, robocache.Where{"file": path}); err != nil {
		return nil, err
	}
	return m, nil
}

// Parse parses a mapping in YAML or JSON.
func Parse(b []byte) (*robocache.Mapping, error) {
	bad := func(err error) error {
		e, known := err.(*robocache.Error)
		if !known {
			e = robocache.Misuse("map", nil, "the mapping cannot be read").WithCause(err)
		} else if e.Msg == "" {
			e.Msg = "the mapping"
		}
		return e.WithHint(
			"docs/mapping.md; %s writes a first one",
			robocache.Command("inspect --suggest-map"),
		)
	}
	if len(b) > maxBytes {
		return nil, robocache.ResourceLimit("map", nil, "the mapping").
			Expected("at most "+strconv.Itoa(maxBytes)+" bytes", "")
	}
	var tree any
	dec := yaml.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&tree); err != nil && !errors.Is(err, io.EOF) {
		return nil, bad(err)
	}
	if err := dec.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, bad(errors.New("more than one document"))
	}
	if tree == nil {
		return &robocache.Mapping{}, nil
	}
	plain, err := json.Marshal(tree)
	if err != nil {
		return nil, bad(errors.New("a key is not a text, or a number is not finite"))
	}
	m := &robocache.Mapping{}
	if err := jsonmeta.Option("map", "", plain, m); err != nil {
		return nil, bad(err)
	}
	return m, checkMapping(m)
}

// checkMapping returns an error if the mapping is wrong for every dataset.
func checkMapping(m *robocache.Mapping) (err error) {
	bad := func(key, msg, want, got string) error {
		return robocache.Misuse("map", robocache.Where{"stream": key}, "%s", msg).
			Expected(want, got)
	}
	switch m.Rest {
	case "", "keep", "drop":
	default:
		return bad("", "rest", "keep or drop", strconv.Quote(m.Rest))
	}
	for key, s := range m.Streams {
		switch {
		case key == "":
			return bad(key, "streams", "a key", "an empty one")
		case len(s.From) == 0:
			return bad(key, "from", "at least one key of the dataset", "none")
		case s.Slice != nil && (len(s.Slice) != 2 || s.Slice[0] < 0 || s.Slice[1] <= s.Slice[0]):
			return bad(key, "slice", "[from, to] with 0 <= from < to", jsonText(s.Slice))
		case math.IsNaN(s.Scale) || math.IsInf(s.Scale, 0):
			return bad(key, "scale", "a finite number", strconv.FormatFloat(s.Scale, 'g', -1, 64))
		case s.TimestampUnit != "" && unitNanos[s.TimestampUnit] == 0:
			return bad(key, "timestamp_unit", "s, ms, us or ns", strconv.Quote(s.TimestampUnit))
		case s.ChannelOrder != "" && s.ChannelOrder != "rgb" && s.ChannelOrder != "bgr":
			return bad(key, "channel_order", "rgb or bgr", strconv.Quote(s.ChannelOrder))
		case s.Offset <= -1<<62 || s.Offset >= 1<<62:
			return bad(key, "offset_ns", "less than 2^62", strconv.FormatInt(s.Offset, 10))
		}
		if err := robocache.At(s.Drift.Check(), robocache.Where{"stream": key}); err != nil {
			return err
		}
		switch s.Interpolation {
		case "", "linear", "nearest", "previous", "next", "slerp", "angle", "mean", "sum":
		default:
			if (robocache.Rotation{Form: s.Interpolation}).Width() == 0 {
				return bad(
					key,
					"interpolation",
					"linear, nearest, previous, next, slerp, angle, mean, sum, or the form of a "+
						"rotation: rotvec, xyz, XYZ …",
					strconv.Quote(s.Interpolation),
				)
			}
		}
		if err := robocache.At(robocache.CheckRotations(s.Rotations, math.MaxInt32),
			robocache.Where{"stream": key}); err != nil {
			return err
		}
		if _, ok := timestampKey(s.Clock); !ok {
			switch s.Clock {
			case "", "header", "publish", "log":
			default:
				return bad(
					key,
					"clock",
					"header, publish, log or timestamps:<key>",
					strconv.Quote(s.Clock),
				)
			}
		}
	}
	return nil
}

func jsonText(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

var unitNanos = map[string]int64{"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1}

// Open opens a dataset as robocache.Open does, and applies the mapping in opt.Map.
func Open(
	ctx context.Context,
	uri string,
	opt robocache.OpenOptions,
) (_ robocache.Dataset, err error) {
	m := opt.Map
	if m == nil {
		return robocache.Open(ctx, uri, opt)
	}
	if err := checkMapping(m); err != nil {
		return nil, err
	}
	if opt.HZ.Zero() {
		opt.HZ = m.HZ
	}
	if len(m.Options) > 0 {
		all := maps.Clone(m.Options)
		maps.Copy(all, opt.Options) // explicit options override the mapping file
		opt.Options = all
	}
	ds, err := robocache.Open(ctx, uri, opt)
	if err != nil {
		return nil, err
	}
	over, err := Over(ctx, ds, m)
	if err != nil {
		_ = ds.Close()
		return nil, robocache.At(err, robocache.Where{"dataset": robocache.Redact(uri)})
	}
	return over, nil
}
