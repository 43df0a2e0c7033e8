package loader_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	"github.com/goatnote-inc/robocache/loader"
)

// framesOf returns the frames of all rows of a camera in the dataset's order.
func framesOf(t *testing.T, ds robocache.Dataset, camera string) (frames []byte, size int) {
	t.Helper()
	cfg := loader.Config{Windows: loader.Windows{Keys: []string{camera}}}
	if ds.Info().Feature(camera).Clock != "" {
		cfg.Anchor = camera
	}
	m, err := loader.NewMap(context.Background(), ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b := itemsOf(t, m, 0, m.Len())
	defer b.Release()
	return slices.Clone(b.Tensor(camera).Data), len(b.Tensor(camera).Data) / b.Rows
}

func itemsOf(t *testing.T, m *loader.Map, from, to int64) *loader.Batch {
	t.Helper()
	var samples []int64
	for i := from; i < to; i++ {
		samples = append(samples, i)
	}
	b, err := m.Items(context.Background(), samples)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestCausalRealRecordings compares causal batches of real recordings with align.Episode: header
// clocks with the recorder's arrival times, streams from 10 to 333 Hz, images and video.
func TestCausalRealRecordings(t *testing.T) {
	ctx := context.Background()
	robot := []string{
		"joint_states.position", "imu.data.angular_velocity", "imu.data.orientation",
		"tf.torso.left_wrist.rotation", "camera.color.image_raw.compressed",
	}
	for _, c := range []struct {
		set    string
		keys   []string
		camera string
		aligns []string
	}{
		{
			"mcap_robot/recording_zstd.mcap", robot, robot[4],
			[]string{
				`{"hz": 50, "causal": true}`,
				`{"hz": 333, "causal": true, "max_age": 0.04, "edge": "mask"}`,
				`{"hz": 30, "causal": true, "arrival_delay": {"imu.data.orientation": 0.1},
					"delay": {"*": 0.06, "tf.torso.left_wrist.rotation": 0.2}, "max_gap": 0.05}`,
				`{"hz": 100, "causal": true, "modes": {"joint_states.position": "linear"},
					"delay": {"joint_states.position": 0.004}, "extent": "points"}`,
				`{"hz": 50, "causal": true, "targets": ["joint_states.position"],
					"latency": {"imu.data.orientation": 0.01}, "extent": "union"}`,
				`{"hz": 50, "causal": true, "clock": {"joint_states.position": "log"}}`,
			},
		},
		{
			"mcap_robot/recording_db3", robot, robot[4],
			[]string{`{"hz": 60, "causal": true, "delay": {"joint_states.position": 0.02}}`},
		},
		{
			"g1_h264_v30",
			[]string{"observation.state", "action"},
			"",
			[]string{`{"hz": 50, "causal": true, "arrival_delay": 0.05, "max_age": 0.07}`},
		},
	} {
		ds := testdata(t, c.set)
		if c.camera == "" { // of video
			for _, f := range ds.Info().Features {
				if f.Kind == robocache.KindVideo {
					c.camera = f.Key
				}
			}
			c.keys = append(c.keys, c.camera)
		}
		frames, size := framesOf(t, ds, c.camera)
		for _, text := range c.aligns {
			cfg, err := align.ParseConfig([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			options := loader.Config{Align: &cfg, Windows: loader.Windows{Keys: c.keys}}
			m, err := loader.NewMap(ctx, ds, options)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			sample, row, masked := int64(0), 0, 0
			for e := range min(ds.Info().Episodes, 2) {
				one := cfg
				one.Keys = c.keys
				want, err := align.Episode(ctx, ds, e, one)
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				n := int64(len(want.Times))
				if m.Len() < sample+n {
					t.Fatalf("%s %s: %d samples, want %d", c.set, text, m.Len(), n)
				}
				b := itemsOf(t, m, sample, sample+n)
				for _, s := range want.Streams {
					got := b.Tensor(s.Key).Data
					if s.Rows == nil && !bytes.Equal(got, s.Data) {
						t.Errorf("%s %s: other values of %s", c.set, text, s.Key)
					}
					for i, r := range s.Rows {
						frame := make([]byte, size)
						if r >= 0 {
							copy(frame, frames[(row+int(r))*size:])
						}
						if !bytes.Equal(got[i*size:(i+1)*size], frame) {
							t.Fatalf(
								"%s %s: row %d of %s is not frame %d",
								c.set,
								text,
								i,
								s.Key,
								r,
							)
						}
					}
					for i, pad := range b.Tensor(s.Key + "_is_pad").Data {
						if masked += int(pad); pad == s.Valid[i] {
							t.Fatalf("%s %s: mask of row %d of %s", c.set, text, i, s.Key)
						}
					}
				}
				b.Release()
				sample, row = sample+n, row+ds.Len(e)
			}
			if ds.Info().Episodes <= 2 && m.Len() != sample {
				t.Errorf("%s %s: %d samples, want %d", c.set, text, m.Len(), sample)
			}
			if cfg.MaxAge.All > 0 && masked == 0 {
				t.Errorf("%s %s: no row is stale", c.set, text)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCausalRealWindows compares each step of delta_timestamps with align.Episode at the step's
// time, or at the first tick.
func TestCausalRealWindows(t *testing.T) {
	ctx, ds := context.Background(), testdata(t, "mcap_robot/recording_zstd.mcap")
	keys := []string{"joint_states.position", "imu.data.orientation"}
	const text = `"causal": true, "delay": {"imu.data.orientation": 0.02}`
	offsets := []float64{-0.3, -0.1, 0}
	b, err := json.Marshal(offsets)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := loader.ParseConfig(fmt.Appendf(nil, `{"align": {"hz": 50, %s}, "keys": [%q, %q],
		"delta_timestamps": {%q: %s, %q: %s}}`, text, keys[0], keys[1], keys[0], b, keys[1], b))
	if err != nil {
		t.Fatal(err)
	}
	m, err := loader.NewMap(ctx, ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	batch := itemsOf(t, m, 0, m.Len())
	defer batch.Release()
	grid, err := align.ParseConfig([]byte(`{"hz": 50, ` + text + `}`))
	if err != nil {
		t.Fatal(err)
	}
	grid.Keys = keys
	whole, err := align.Episode(ctx, ds, 0, grid)
	if err != nil {
		t.Fatal(err)
	}
	for step, offset := range offsets {
		one := grid
		one.HZ = robocache.Rate{}
		for _, tick := range whole.Times {
			one.Times = append(one.Times, max(tick+int64(offset*1e9), whole.Times[0]))
		}
		want, err := align.Episode(ctx, ds, 0, one)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range want.Streams {
			size := len(s.Data) / len(s.Valid)
			for i, valid := range s.Valid {
				at := i*len(offsets) + step
				if whole.Times[i]+int64(offset*1e9) < whole.Times[0] {
					valid = 0 // the first tick's row, as padding
				}
				if !bytes.Equal(batch.Tensor(s.Key).Data[at*size:(at+1)*size],
					s.Data[i*size:(i+1)*size]) ||
					batch.Tensor(s.Key + "_is_pad").Data[at] == valid {
					t.Fatalf("%s, tick %d, step %d: another value or mask", s.Key, i, step)
				}
			}
		}
	}
}
