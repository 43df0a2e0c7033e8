package rlds

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/store/tests/storetest"
)

// clockHand is a dataset made by hand with a stream observation.timestamp of one feature.
func clockHand(
	t *testing.T,
	name, feature string,
	add func(x *exampleWriter, episode int),
) *storetest.Mem {
	t.Helper()
	h := newHand()
	const state = `"observation": {"featuresDict": {"features": {`
	h.features = strings.Replace(h.features, state, state+`"timestamp": `+feature+`, `, 1)
	h.info = handInfo("toy", "train", 3)
	var shard []byte
	for e := range 3 {
		x := handExample(e, 9)
		add(x, e)
		b, err := x.bytes()
		if err != nil {
			t.Fatal(err)
		}
		shard = appendRecord(shard, b)
	}
	h.shards["toy-train.tfrecord-00000-of-00001"] = shard
	s := storetest.NewMem("rlds-clock-" + name)
	t.Cleanup(s.Drop)
	h.put(s)
	return s
}

// TestUnusedClock checks the finding about a time stream that cannot be used. It names the stream,
// the episode and the reason, and errors about rows without a clock name the stream.
func TestUnusedClock(t *testing.T) {
	const key = "steps/observation/timestamp"
	floats := func(change func(e int, v []float32) []float32) func(*exampleWriter, int) {
		return func(x *exampleWriter, e int) {
			v := make([]float32, 9)
			for k := range v {
				v[k] = float32(k) / 8
			}
			x.floats(key, f32s(change(e, v)...))
		}
	}
	last := func(value float32) func(*exampleWriter, int) {
		return floats(func(e int, v []float32) []float32 {
			if e == 2 {
				v[5] = value
			}
			return v
		})
	}
	for name, c := range map[string]struct {
		feature string
		add     func(*exampleWriter, int)
		want    string
	}{
		"strings": {`{"text": {}}`, func(x *exampleWriter, _ int) {
			texts := make([][]byte, 9)
			for k := range texts {
				texts[k] = fmt.Appendf(nil, "10:00:%02d", k)
			}
			x.strings(key, texts)
		}, "holds text and no numbers"},
		"nan": {scalar("float32"), last(float32(math.NaN())), "is NaN at row 5 in episode 2"},
		"backwards": {
			scalar("float32"),
			last(0.25),
			"steps back from 0.5 to 0.25 at row 5 in episode 2",
		},
		"constant": {
			scalar("float32"), floats(func(int, []float32) []float32 { return make([]float32, 9) }),
			"is 0 in all 9 rows in episode 0, and cannot be used in 3 episodes",
		},
		"twodim": {
			`{"tensor": {"shape": {"dimensions": ["2"]}, "dtype": "float32", "encoding": "none"}}`,
			floats(func(_ int, v []float32) []float32 { return append(v, v...) }),
			"has 2 values for each row",
		},
		"short": {scalar("float32"), floats(func(e int, v []float32) []float32 {
			if e == 2 {
				return v[:8]
			}
			return v
		}), "has 8 values for 9 rows in episode 2"},
		"sound": {
			scalar("float32"), floats(func(_ int, v []float32) []float32 { return v }),
			"is not taken as the clock of the rows",
		},
	} {
		s := clockHand(t, name, c.feature, c.add)
		open := func(opt robocache.OpenOptions) *Dataset {
			d, err := OpenStore(t.Context(), s, opt)
			if err != nil {
				t.Fatal(name, err)
			}
			return d
		}
		d := open(robocache.OpenOptions{})
		message := "observation.timestamp " + c.want
		at := slices.IndexFunc(
			d.About.Findings,
			func(f robocache.Finding) bool { return f.Code == robocache.ClockUnusable },
		)
		if at < 0 || d.About.Findings[at].Message != message {
			t.Errorf("%s: %+v, want %q", name, d.About.Findings, message)
		}
		state, hint := "cannot be used", "Write observation.timestamp again with one number"
		if name == "sound" {
			state, hint = "is not used", `Name it: Options: {"timestamps": "observation.timestamp"}`
		}
		_, err := d.Times(t.Context(), 0, "")
		if !errors.Is(err, robocache.ErrNoClock) || !strings.Contains(err.Error(), message+
			" (the clock of the rows "+state+", and nothing says their rate); hint: "+hint) {
			t.Errorf("%s: %v", name, err)
		}
		if stated := open(handOptions); stated.About.UnusedClocks != nil {
			t.Errorf("%s with a stated rate: %v", name, stated.About.UnusedClocks)
		}
	}
}
