package live_test

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/align"
	_ "github.com/goatnote-inc/robocache/format/all"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/live"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/loader/contract"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// openData opens a dataset of the test data.
func openData(t testing.TB, name string) robocache.Dataset {
	t.Helper()
	ds, err := robocache.Open(t.Context(), realdata.Path(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

// contractOf returns the contract of a loader with the options in text. It goes through JSON.
func contractOf(t testing.TB, ds robocache.Dataset, text string) *contract.Contract {
	t.Helper()
	cfg, err := options.ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l, err := loader.New(t.Context(), ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	made, err := l.Contract()
	if err != nil {
		t.Fatal(err)
	}
	b, err := made.MarshalIndent()
	if err != nil {
		t.Fatal(err)
	}
	c, err := contract.Parse(b)
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	again, err := c.MarshalIndent()
	if err != nil || string(again) != string(b) {
		t.Fatalf("the bytes of a contract change when it is read (%v):\n%s\n%s", err, b, again)
	}
	return c
}

// TestReplay compares live observations with the samples of a Loader, bit by bit, for formats with
// and without arrival times and for each group of options.
func TestReplay(t *testing.T) {
	for _, x := range []struct{ name, data, options string }{
		{"hold", "mcap_robot", `{"hz": 30, "align": {"causal": true}}`},
		{"db3", "mcap_robot/recording_db3", `{"hz": 20, "align": {"causal": true}}`},
		{"delay", "mcap_robot", `{"hz": 50, "align": {"causal": true, "delay": {"*": 0.06}}}`},
		{"windows", "mcap_robot", `{"hz": 25, "align": {"causal": true, "edge": "mask"},
			"delta_timestamps": {"joint_states.position": [-0.2, -0.08, 0], "camera.color.image_raw.compressed": [-0.04, 0]},
			"windows": {"joint_states.velocity": {"span": [-0.1, 0]}}}`},
		{"images", "mcap_robot", `{"hz": 15, "align": {"causal": true, "max_age": 0.05},
			"image_size": [48, 64], "image_resize": "letterbox", "image_dtype": "float32"}`},
		{"rows", "g1_v30_exact", `{"normalize": "mean_std"}`},
		{"row windows", "g1_v30_exact", `{"delta_indices": {"observation.state": [-2, -1, 0]},
			"image_size": [60, 80]}`},
		{"vectors", "g1_v30_exact", `{"keys": ["observation.state"], "vectors": {
			"state": {"parts": [
				{"key": "observation.state", "stop": 3, "norm": {"mode": "mean_std"}, "beyond": "zero"},
				{"key": "observation.state", "start": 3, "relative": "difference",
				 "norm": {"mode": "min_max"}}],
				"rows": [-2, -1, 0], "length": 4, "width": 32, "mask": "state_mask", "dropout": 0.5},
			"chunk": {"parts": [{"key": "action"}], "rows": [0, 1]}}}`},
		{"causal vectors", "mcap_robot", `{"hz": 25, "align": {"causal": true, "max_age": 0.05},
			"keys": ["points"], "vectors": {"joints": {"separate": true, "rows": [-3, 0], "parts": [
				{"key": "joint_states.position", "name": "q", "norm": {"mode": "mean_std"}},
				{"key": "joint_states.velocity", "name": "dq"}]}}}`},
		{"drawn", "mcap_robot", `{"hz": 25, "align": {"causal": true}, "keys": ["points"], "choose": {
			"joints": ["joint_states.velocity", "joint_states.position"],
			"view": ["camera.color.image_raw.compressed"]},
			"goal": {"later": "joint_states.position"},
			"delta_timestamps": {"joints": [-0.2, 0]}}`},
		{"h264", "g1_h264_v30", `{"hz": 10, "align": {"causal": true}, "normalize": "min_max"}`},
	} {
		t.Run(x.name, func(t *testing.T) {
			ds := openData(t, x.data)
			skipWithoutDecoder(t, ds)
			c := contractOf(t, ds, x.options)
			r, err := live.Replay(t.Context(), ds, c, live.ReplayConfig{MaxTicks: 300})
			if err != nil {
				t.Fatal(err)
			}
			if r.Ticks == 0 || r.DifferentBits != 0 || r.Masked == r.Values && r.Values > 0 {
				t.Errorf("%+v", *r)
			}
			t.Logf("%+v", *r)
		})
	}
}

// skipWithoutDecoder skips a test of a dataset with video in a build that decodes none.
func skipWithoutDecoder(t testing.TB, ds robocache.Dataset) {
	t.Helper()
	for _, f := range ds.Info().Features {
		if f.Kind == robocache.KindVideo {
			if _, err := video.ActiveBackend(); err != nil {
				t.Skip("no video decoder: ", err)
			}
		}
	}
}

// TestReplayArrivalDelay checks that samples of a recording without arrival times count from their
// assumed arrival.
func TestReplayArrivalDelay(t *testing.T) {
	ds := openData(t, "g1_v30_exact")
	skipWithoutDecoder(t, ds)
	c := contractOf(t, ds, `{"align": {"causal": true, "arrival_delay": {"*": 0.05}}}`)
	if !c.Options.Align.ArrivalDelay.IsZero() {
		t.Error("a contract assumes arrivals, which a robot has")
	}
	delay := align.PerKey[align.Nanos]{All: 5e7}
	r, err := live.Replay(context.Background(), ds, c,
		live.ReplayConfig{MaxTicks: 100, ArrivalDelay: delay})
	if err != nil || r.DifferentBits != 0 || r.Ticks != 100 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestContractRefusals checks the errors of contracts that a robot cannot satisfy.
func TestContractRefusals(t *testing.T) {
	ds := openData(t, "mcap_robot")
	for text, hint := range map[string]string{
		`{"hz": 30}`: "causal",
		`{"hz": 30, "align": {"causal": true, "drift": {"points": {"ppm": 20}}}}`: "drift",
	} {
		cfg, err := options.ParseConfig([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		l, err := loader.New(t.Context(), ds, cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Contract(); err == nil {
			t.Errorf("%s is accepted, although of %s", text, hint)
		} else {
			t.Log(err)
		}
		l.Close()
	}
	c := contractOf(t, ds, `{"hz": 30, "align": {"causal": true}}`)
	for name, change := range map[string]func(m map[string]any){
		"newer":     func(m map[string]any) { m["robocache_contract"] = 99 },
		"unknown":   func(m map[string]any) { m["surprise"] = 1 },
		"no rate":   func(m map[string]any) { delete(m["options"].(map[string]any)["align"].(map[string]any), "hz") },
		"numerics":  func(m map[string]any) { m["numerics"] = 7 },
		"no stream": func(m map[string]any) { m["streams"] = []any{} },
		"statistics": func(m map[string]any) {
			m["options"].(map[string]any)["normalize"] = map[string]any{
				"points": map[string]any{"mode": "mean_std", "mean": []any{1}, "std": []any{2}},
			}
		},
	} {
		b, _ := c.MarshalIndent()
		var m map[string]any
		if err := json.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		change(m)
		b, _ = json.Marshal(m)
		if _, err := contract.Parse(b); err == nil {
			t.Errorf("%s is accepted", name)
		} else {
			t.Log(name, err)
		}
	}
}

// TestVectorsOfContractsAreThoseOfTraining compares the vectors that a loader of rows gives with those
// of the options of its contract, which are causal and on a timeline.
func TestVectorsOfContractsAreThoseOfTraining(t *testing.T) {
	const text = `{"keys": ["observation.state"], "batch_size": 64, "vectors": {"state": {"parts": [
		{"key": "observation.state", "norm": {"mode": "mean_std"}},
		{"key": "observation.state", "stop": 4, "relative": "difference", "beyond": "neutral"}],
		"rows": [-2, 0]}}}`
	ds := openData(t, "g1_v30_exact")
	cfg, err := options.ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	l, err := loader.New(t.Context(), ds, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := contractOf(t, ds, text)
	if len(c.Streams) != 1 || len(c.Outputs) != 2 || c.Outputs[1].Key != "state" {
		t.Errorf("streams %v, outputs %v", c.Streams, c.Outputs)
	}
	m, err := loader.NewMap(t.Context(), ds, c.Options)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	trained, err := l.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer trained.Release()
	deployed, err := m.Items(t.Context(), trained.Indices)
	if err != nil {
		t.Fatal(err)
	}
	defer deployed.Release()
	for _, key := range []string{"state", "state_is_pad", "observation.state"} {
		if !bytes.Equal(trained.Tensor(key).Data, deployed.Tensor(key).Data) {
			t.Errorf("%s of training is not that of the contract", key)
		}
	}
	c.Options.Vectors[0].Parts[0].Norm.Mean[0][0]++
	if err := c.Validate(); err == nil {
		t.Error("a contract is valid, although a number of a vector was changed")
	}
}
