package align

import (
	"context"
	"encoding/binary"
	"math"
	"testing"

	"github.com/goatnote-inc/robocache"
)

// spinning is a dataset whose "force" is a rotation vector and a width. The vector turns about one
// axis at 5 rad/s and is wrapped between -π and π.
type spinning struct{ *fake }

var spindle = [3]float64{0.48, -0.6, 0.64}

func spin(t int64) float64 { return math.Remainder(5*float64(t)*1e-9, 2*math.Pi) }

func newSpinning() *spinning {
	s := &spinning{newFake()}
	f := s.info.Feature("force")
	f.Shape, f.Rotations, f.Interpolation = []int{
		4,
	}, []robocache.Rotation{
		{At: 0, Form: "rotvec"},
	}, "slerp"
	return s
}

func (s *spinning) Gather(ctx context.Context, key string, rows []robocache.Row, dst []byte) error {
	if key != "force" {
		return s.fake.Gather(ctx, key, rows, dst)
	}
	for i, r := range rows {
		t := s.clocks["force"][r.Index]
		for k := range 4 {
			v := float64(t) * 1e-9
			if k < 3 {
				v = spindle[k] * spin(t)
			}
			binary.LittleEndian.PutUint64(dst[8*(4*i+k):], math.Float64bits(v))
		}
	}
	return nil
}

// TestRotations covers align.A19 in Episode and in View. A stream that names its rotations uses
// slerp by default, also at jumps from π to -π.
func TestRotations(t *testing.T) {
	ds := newSpinning()
	if m := DefaultMode(ds.info.Feature("force")); m != Slerp {
		t.Fatalf("default mode %v", m)
	}
	cfg := Config{HZ: robocache.Rate{Num: 1000, Den: 1}, Keys: []string{"force"}}
	worst := func(cfg Config) (turned, width float64) {
		got, err := Episode(context.Background(), ds, 0, cfg)
		if err != nil {
			t.Fatal(err)
		}
		data := got.Streams[0].Data
		at := func(i int) float64 {
			return math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
		}
		for i, when := range got.Times {
			along := at(4*i)*spindle[0] + at(4*i+1)*spindle[1] + at(4*i+2)*spindle[2]
			turned = max(turned, math.Abs(math.Remainder(along-spin(when), 2*math.Pi)))
			width = max(width, math.Abs(at(4*i+3)-float64(when)*1e-9))
		}
		return turned, width
	}
	if turned, width := worst(cfg); turned > 1e-9 || width > 1e-9 {
		t.Errorf("off by %g rad, and the width by %g", turned, width)
	}
	other := cfg
	other.Modes = map[string]Mode{"force": Linear}
	if turned, _ := worst(other); turned < 1 {
		t.Errorf("linear is off by %g rad: the test has no jump", turned)
	}
	// Named rotations override those of the feature.
	f := ds.info.Feature("force")
	f.Rotations, f.Interpolation = nil, ""
	if turned, _ := worst(cfg); turned < 1 {
		t.Errorf("a stream that says nothing is off by %g rad", turned)
	}
	named, err := ParseConfig(
		[]byte(
			`{"hz": 1000, "keys": ["force"], "rotations": {"force": [{"at": 0, "form": "rotvec"}]}}`,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	if turned, width := worst(named); turned > 1e-9 || width > 1e-9 {
		t.Errorf("named: off by %g rad, and the width by %g", turned, width)
	}
	v, err := View(context.Background(), ds, named, ViewOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := Episode(context.Background(), ds, 0, named)
	if err != nil {
		t.Fatal(err)
	}
	rows, raw := make([]robocache.Row, len(want.Times)), make([]byte, len(want.Times)*32)
	for i := range rows {
		rows[i].Index = i
	}
	if err := v.Gather(context.Background(), "force", rows, raw); err != nil ||
		string(raw) != string(want.Streams[0].Data) {
		t.Errorf("the view differs from the episode: %v", err)
	}
	named.Rotations["force"][0].At = 2
	if _, err := Episode(context.Background(), ds, 0, named); err == nil {
		t.Error("a rotation beyond the row was accepted")
	}
}
