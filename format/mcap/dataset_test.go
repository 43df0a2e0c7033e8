package mcap

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

type fieldOracle struct {
	Shape  []int  `json:"shape"`
	Count  int    `json:"count"`
	SHA    string `json:"sha256"`
	SHALen string `json:"sha256_u32len"`
}

func sum(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:]) }

func allRows(ep, n int) []robocache.Row {
	out := make([]robocache.Row, n)
	for i := range out {
		out[i] = robocache.Row{Episode: ep, Index: i}
	}
	return out
}

func int64s(v []int64) []byte {
	b := make([]byte, 0, 8*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, uint64(x))
	}
	return b
}

// TestDecoded checks that every stream of the robot recording equals the values that rosbags
// decoded, in both files.
func TestDecoded(t *testing.T) {
	ctx := context.Background()
	root := realdata.Path(t, "mcap_robot")
	b, err := os.ReadFile(filepath.Join(root, "oracle", "decoded.json"))
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		Topics map[string]map[string]json.RawMessage `json:"topics"`
	}
	if err := json.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	want := func(topic, field string) (f fieldOracle) {
		if err := json.Unmarshal(o.Topics[topic][field], &f); err != nil {
			t.Fatal(topic, field, err)
		}
		return f
	}
	ds, err := Open(ctx, root, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	if info := ds.Info(); info.Episodes != 2 || info.Clock != "camera.color.image_raw.compressed" ||
		info.Robot != "Unitree_G1_Inspire" ||
		len(info.Tasks) != 1 ||
		info.Frames != 160 {
		t.Errorf("%+v", info)
	}
	for _, f := range ds.Info().Findings {
		t.Errorf("a finding about a good recording: %+v", f)
	}
	for ep := range 2 {
		numeric := func(topic, field, key string) {
			t.Helper()
			w := want(topic, field)
			f := ds.Info().Feature(key)
			if f == nil {
				t.Fatalf("no stream %s", key)
			}
			at, err := ds.Times(ctx, ep, key)
			if err != nil {
				t.Fatal(err)
			}
			if len(at) != w.Shape[0] {
				t.Fatalf("%s: %d rows of %d", key, len(at), w.Shape[0])
			}
			dst := make([]byte, len(at)*f.RowBytes())
			if err := ds.Gather(ctx, key, allRows(ep, len(at)), dst); err != nil {
				t.Fatal(err)
			}
			if sum(dst) != w.SHA {
				t.Errorf("%s: values differ", key)
			}
		}
		times := func(topic, key string) {
			t.Helper()
			for clock, field := range map[string]string{
				"":        "header.stamp_ns",
				"header":  "header.stamp_ns",
				"publish": "publish_time",
				"log":     "log_time",
			} {
				at, err := ds.Times(ctx, ep, key)
				if clock != "" {
					at, err = ds.TimesBy(ctx, ep, key, clock)
				}
				if err != nil {
					t.Fatal(err)
				}
				if sum(int64s(at)) != want(topic, field).SHA {
					t.Errorf("%s: times by %q differ", key, clock)
				}
			}
		}
		numeric("/joint_states", "position", "joint_states.position")
		numeric("/joint_states", "velocity", "joint_states.velocity")
		numeric("/imu/data", "orientation_xyzw", "imu.data.orientation")
		numeric("/imu/data", "angular_velocity", "imu.data.angular_velocity")
		numeric("/imu/data", "linear_acceleration", "imu.data.linear_acceleration")
		times("/joint_states", "joint_states.position")
		times("/imu/data", "imu.data.orientation")
		times("/camera/color/image_raw/compressed", "camera.color.image_raw.compressed")
		times("/camera/color/image_raw/compressed", "")
		times("/points", "points")

		refs := make([]robocache.FrameRef, ds.Len(ep))
		if err := ds.Frames(ctx, "camera.color.image_raw.compressed", allRows(ep, len(refs)),
			refs); err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		for i := range refs {
			h.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(refs[i].Encoded))))
			h.Write(refs[i].Encoded)
		}
		if w := want("/camera/color/image_raw/compressed",
			"data"); hex.EncodeToString(h.Sum(nil)) != w.SHALen || w.Count != len(refs) {
			t.Error("images differ")
		}
		at, _ := ds.Times(ctx, ep, "points")
		data, counts, err := ds.GatherRagged(ctx, "points", allRows(ep, len(at)))
		if err != nil {
			t.Fatal(err)
		}
		if w := want("/points", "xyzi"); sum(data) != w.SHA || len(counts) != w.Shape[0] ||
			counts[0] != w.Shape[1] {
			t.Error("clouds differ")
		}
		// rows in another order are the same rows
		data2, _, err := ds.GatherRagged(
			ctx,
			"points",
			[]robocache.Row{
				{Episode: ep, Index: 5},
				{Episode: ep, Index: 2},
				{Episode: ep, Index: 5},
			},
		)
		if n := 2000 * 16; err != nil ||
			string(data2) != string(data[5*n:6*n])+string(data[2*n:3*n])+string(data[5*n:6*n]) {
			t.Error("clouds in another order differ", err)
		}
		e, err := ds.Episode(ctx, ep)
		if err != nil || e.Length != 80 || len(e.Tasks) != 1 ||
			e.Tasks[0] != "Pick up the yellow bottle on the table." {
			t.Errorf("%+v %v", e, err)
		}
		task, err := ds.Text(ctx, "task", []robocache.Row{{Episode: ep, Index: 79}})
		if err != nil || task[0] != e.Tasks[0] {
			t.Error(task, err)
		}
		// The two transforms of /tf_static, once for the whole recording.
		if at, err := ds.Times(ctx, ep, "tf_static.torso.velodyne.translation"); err != nil ||
			len(at) != 1 {
			t.Error(at, err)
		}
	}
}
