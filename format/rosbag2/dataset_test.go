package rosbag2

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/bag"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
)

// TestDecodedOracle checks that every stream of the real db3 recording equals the values that
// rosbags decodes, and that rows are in the order of their header timestamps.
func TestDecodedOracle(t *testing.T) {
	dir := realdata.Path(t, "mcap_robot/recording_db3")
	text, err := os.ReadFile(realdata.Path(t, "mcap_robot/oracle/decoded.json"))
	if err != nil {
		t.Fatal(err)
	}
	var o struct {
		Topics map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	want := func(topic, column string) (sum string, rows int) {
		var c struct {
			Sha   string `json:"sha256"`
			U32   string `json:"sha256_u32len"`
			Shape []int
			Count int
		}
		if err := json.Unmarshal(o.Topics[topic][column], &c); err != nil {
			t.Fatalf("%s %s: %v", topic, column, err)
		}
		if c.U32 != "" {
			return c.U32, c.Count
		}
		return c.Sha, c.Shape[0]
	}
	ds, err := robocache.Open(t.Context(), dir, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	if ds.Info().Format != Name || ds.Info().Episodes != 1 {
		t.Fatalf("%+v", ds.Info())
	}
	rowsOf := func(key string) []robocache.Row {
		times, err := ds.Times(t.Context(), 0, key)
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		rows := make([]robocache.Row, len(times))
		for k := range rows {
			rows[k].Index = k
		}
		return rows
	}
	check := func(what string, data []byte, sum string) {
		t.Helper()
		if h := sha256.Sum256(data); hex.EncodeToString(h[:]) != sum {
			t.Errorf("%s differs from the oracle", what)
		}
	}
	for key, at := range map[string][2]string{
		"joint_states.position":        {"/joint_states", "position"},
		"joint_states.velocity":        {"/joint_states", "velocity"},
		"imu.data.orientation":         {"/imu/data", "orientation_xyzw"},
		"imu.data.angular_velocity":    {"/imu/data", "angular_velocity"},
		"imu.data.linear_acceleration": {"/imu/data", "linear_acceleration"},
	} {
		sum, n := want(at[0], at[1])
		f := ds.Info().Feature(key)
		rows := rowsOf(key)
		if f == nil || len(rows) != n {
			t.Fatalf("%s: %d rows, not %d", key, len(rows), n)
		}
		dst := make([]byte, n*f.RowBytes())
		if err := ds.Gather(t.Context(), key, rows, dst); err != nil {
			t.Fatal(err)
		}
		check(key, dst, sum)
		times, _ := ds.Times(t.Context(), 0, key)
		var b bytes.Buffer
		_ = binary.Write(&b, binary.LittleEndian, times)
		timestamps, _ := want(at[0], "header.stamp_ns")
		check(key+" timestamps", b.Bytes(), timestamps)
	}
	sum, n := want("/points", "xyzi")
	data, counts, err := robocache.GatherRagged(t.Context(), ds, "points", rowsOf("points"))
	if err != nil || len(counts) != n || counts[0] != 2000 {
		t.Fatalf("%d clouds, %v", len(counts), err)
	}
	check("points", data, sum)

	const camera = "camera.color.image_raw.compressed"
	sum, n = want("/camera/color/image_raw/compressed", "data")
	refs := make([]robocache.FrameRef, n)
	if err := ds.Frames(t.Context(), camera, rowsOf(camera), refs); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, r := range refs {
		_ = binary.Write(&b, binary.LittleEndian, uint32(len(r.Encoded)))
		b.Write(r.Encoded)
	}
	check(camera, b.Bytes(), sum)
	if f := ds.Info().Feature(camera); f.Height != 240 || f.Width != 320 || f.Channels != 3 {
		t.Errorf("%+v", f)
	}
	task, err := ds.Text(t.Context(), "task", []robocache.Row{{}})
	if err != nil || task[0] != "Pick up the yellow bottle on the table." {
		t.Errorf("%q, %v", task, err)
	}
	for _, key := range []string{
		"tf.torso.left_wrist.translation",
		"tf.torso.right_wrist.rotation",
		"tf_static.torso.velodyne.translation",
	} {
		if ds.Info().Feature(key) == nil {
			t.Errorf("no stream %s", key)
		}
	}
}

type farFile struct{ robocache.Ranged }

func (farFile) Remote() bool { return true }

// TestRemote checks that video packets of a remote bag are read ahead of decoding, for every kind
// of split and compression.
func TestRemote(t *testing.T) {
	for want, file := range map[bool]robocache.Ranged{true: farFile{}, false: nil} {
		var s bag.Storage = &zstdMessages{
			Storage: joinParts([]bag.Storage{&db3{}, &db3{file: file}}),
		}
		if r, ok := s.(interface{ Remote() bool }); !ok || r.Remote() != want {
			t.Errorf("remote: %v, expected %v", !want, want)
		}
	}
}
