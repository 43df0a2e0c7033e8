package loader_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/tests/realdata"
	"github.com/goatnote-inc/robocache/loader"
	"github.com/goatnote-inc/robocache/video"
)

// Golden hashes freeze the fields, batches, order and state of many configurations. A change of
// structure must not change any of them. After an intended change of behavior, update them:
//
//	go test -run TestGolden ./loader -update
var updateGolden = flag.Bool("update", false, "write the golden hashes of TestGolden anew")

const goldenFile = "testdata/golden.json"

// goldenSet is a dataset of the test data and the keys that configurations name: $A, $S and $C.
type goldenSet struct {
	path                  string
	action, state, camera string
}

var goldenSets = map[string]goldenSet{
	"h264": {"g1_h264_v30", "action", "observation.state", "observation.images.cam_high"},
	"drift": {
		"g1_h264_v30_bigdrift",
		"action",
		"observation.state",
		"observation.images.cam_high",
	},
	"av1": {"g1_v21", "action", "observation.state", "observation.images.cam_high"},
	"gr00t": {
		"gr00t_picknplace_v20",
		"action",
		"observation.state",
		"observation.images.ego_view",
	},
	"rlds": {
		"bridge_rlds/bridge_dataset",
		"action",
		"observation.state",
		"observation.image_0",
	},
	"robomimic": {
		"robomimic_like/latest_gzip_shuffle.hdf5",
		"action",
		"observation.state",
		"observation.image",
	},
	"aloha": {"aloha_like", "action", "observation.qpos", "observation.images.cam_low"},
	"calvin": {
		"calvin_like/training",
		"action",
		"observation.robot_obs",
		"observation.depth_static",
	},
	"zarr": {
		"diffusion_policy_zarr/replay_buffer.zarr",
		"action",
		"observation.state",
		"observation.img",
	},
	"mcap": {
		"mcap_robot/recording_zstd.mcap", "joint_states.position", "imu.data.angular_velocity",
		"camera.color.image_raw.compressed",
	},
	"kitti": {
		"pointclouds/kitti",
		"observation.points",
		"observation.points",
		"observation.points",
	},
}

// goldenConfigs are configurations by name, with the sets that they are tried on.
var goldenConfigs = []struct{ name, sets, config string }{
	{"default", "h264 drift av1 gr00t rlds robomimic aloha calvin zarr kitti", `{}`},
	{"in order", "h264 drift rlds calvin", `{"shuffle":""}`},
	{"pool", "h264 drift rlds", `{"shuffle":"pool","pool_episodes":2}`},
	{
		"pool shards",
		"h264 drift",
		`{"shuffle":"pool","pool_episodes":3,"pool_shards":2,"world_size":2,"rank":1}`,
	},
	{"ranks wrap", "h264 rlds", `{"world_size":3,"rank":2}`},
	{"ranks short", "h264 rlds", `{"world_size":3,"rank":1,"uneven":"short"}`},
	{"drop last", "h264 zarr", `{"drop_last":true,"world_size":2}`},
	{"episodes", "h264 drift robomimic", `{"episodes":[2,0]}`},
	{"drop frames", "h264 gr00t", `{"drop_n_first_frames":5,"drop_n_last_frames":9}`},
	{"numbers", "h264 gr00t rlds robomimic calvin zarr", `{"keys":["$A","$S"]}`},
	{"float32", "gr00t robomimic calvin zarr", `{"keys":["$A","$S"],"dtype":"float32"}`},
	{"lerobot", "h264 drift gr00t", `{"compat":"lerobot"}`},
	{
		"windows",
		"h264 rlds",
		`{"delta_timestamps":{"$A":[0,0.2,0.4],"$S":[-0.4,-0.2,0],"$C":[-0.2,0]}}`,
	},
	{"indices", "h264 robomimic calvin zarr", `{"delta_indices":{"$A":[0,1,2,3],"$C":[-1,0]}}`},
	{"native", "h264 rlds", `{"windows":{"$A":[0,0.2,0.4],"$S":{"span":[-0.5,0.0]}}}`},
	{
		"places",
		"h264 mcap",
		`{"hz":10,"keys":["$A","$S"],"windows":{"$S":{"span":[-0.5,0.0],"count":64}}}`,
	},
	{"hz", "h264 rlds aloha", `{"hz":20,"keys":["$A","$S","$C"]}`},
	{
		"hz union",
		"h264 mcap",
		`{"hz":20,"keys":["$A","$S","$C"],"align":{"extent":"union","edge":"mask"}}`,
	},
	{
		"hz modes",
		"h264 mcap",
		`{"hz":25,"keys":["$A","$S"],"align":{"modes":{"$A":"previous","$S":"mean"}}}`,
	},
	{
		"hz windows",
		"h264 mcap",
		`{"hz":20,"keys":["$A","$S"],"delta_timestamps":{"$A":[0,0.1],"$S":[-0.2,0.0]}}`,
	},
	{
		"hz ahead",
		"mcap",
		`{"hz":12.5,"keys":["$A","$S"],"align":{"offset":{"$A":0.01},"latency":{"$S":0.02}}}`,
	},
	{"sum", "rlds calvin", `{"hz":10,"keys":["$A","$S"],"align":{"relative":{"$A":true}}}`},
	{"anchor", "mcap", `{"anchor":"$C","keys":["$A","$S","$C"]}`},
	{"anchor numbers", "mcap", `{"anchor":"$A","keys":["$A","$S"],"windows":{"$S":[-0.1,0]}}`},
	{"clouds", "mcap", `{"hz":5,"keys":["points","$A"]}`},
	{"image float", "h264 rlds", `{"image_dtype":"float32"}`},
	{"image size", "h264 rlds aloha", `{"image_size":[48,64]}`},
	{"letterbox", "h264 rlds", `{"image_size":[48,48],"image_resize":"letterbox"}`},
	{"depth metres", "calvin", `{"depth_unit":"m"}`},
	{"mean std", "h264 drift rlds", `{"normalize":"mean_std","compute_stats":true}`},
	{
		"per key",
		"h264 gr00t",
		`{"normalize":{"$A":{"mode":"min_max","clip":true},"$S":"mean_std"},"compute_stats":true,"image_dtype":"float32"}`,
	},
	{
		"raw",
		"h264 rlds",
		`{"raw":true,"normalize":"mean_std","compute_stats":true,"image_dtype":"float32"}`,
	},
	{
		"augment",
		"h264 rlds",
		`{"augment":{"random_crop":{"size":[40,48]},"hflip":{"p":0.5,"keep":["$A"]},"color_jitter":{"brightness":[0.2]}},"keys":["$C","$A"]}`,
	},
	{
		"augment raw",
		"h264",
		`{"raw":true,"augment":{"random_crop":{"size":[40,48]}},"keys":["$C","$A"]}`,
	},
	{
		"flip of numbers",
		"h264 rlds",
		`{"augment":{"hflip":{"p":0.5,"negate":{"$A":[0,2]},"swap":{"$S":[[0,1]]}}},"keys":["$C","$A","$S"]}`,
	},
	{
		"counts", "h264 rlds robomimic calvin zarr",
		`{"keys":["index","episode_index","frame_index","episode_id","$A"]}`,
	},
	{"counts hz", "rlds robomimic", `{"hz":7,"keys":["index","episode_index","frame_index","$A"]}`},
	{"noise", "h264", `{"augment":{"noise":{"std":{"$S":0.1}}},"keys":["$S","$A"]}`},
	{"cache ram", "h264", `{"cache":"ram","shuffle":""}`},
	{"tolerance", "h264 drift", `{"tolerance_s":0.02,"delta_timestamps":{"$A":[0,0.1]}}`},
	{"skip", "h264 rlds", `{"on_bad_episode":"skip"}`},
	{"mask nan", "h264 robomimic", `{"on_nan":"mask"}`},
}

// goldenMixes are mixtures: the sets, and the configuration. Each source has another weight.
var goldenMixes = []struct{ name, sets, config string }{
	{
		"mix",
		"h264 drift",
		`{"keys":["action","observation.images.cam_high","task"],"image_size":[60,80],"stop":"all"}`,
	},
	{
		"mix exact",
		"h264 drift",
		`{"keys":["action","observation.state"],"stratified":true,"temperature":2}`,
	},
	{
		"mix counts",
		"rlds robomimic",
		`{"keys":["index","episode_index","frame_index","episode_id"]}`,
	},
	{"mix padded", "h264 rlds", `{"missing":"pad","image_size":[60,80],"epoch_size":500}`},
	{
		"mix numbers padded",
		"h264 rlds robomimic",
		`{"keys":["action","observation.state"],"missing":"pad","dtype":"float32"}`,
	},
}

func openGolden(t *testing.T, set goldenSet) robocache.Dataset {
	t.Helper()
	path, found := realdata.Find(t, set.path)
	if !found {
		return nil
	}
	ds, err := robocache.Open(context.Background(), path, robocache.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ds.Close() })
	return ds
}

func goldenConfig(t *testing.T, text string, set goldenSet) loader.Config {
	t.Helper()
	text = strings.NewReplacer("$A", set.action, "$S", set.state, "$C", set.camera).Replace(text)
	cfg, err := loader.ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Seed = 7
	if cfg.BatchSize == 0 {
		cfg.BatchSize = 16
	}
	return cfg
}

// hashBatch adds everything that a batch says to h.
func hashBatch(h hash.Hash, b *loader.Batch) {
	fmt.Fprintln(h, b.Rows, b.Position, b.Indices)
	for i := range b.Tensors {
		x := &b.Tensors[i]
		fmt.Fprintln(h, x.Key, x.DType, x.Shape, len(x.Data))
		h.Write(x.Data)
	}
	for i := range b.Texts {
		fmt.Fprintf(h, "%s %v %q\n", b.Texts[i].Key, b.Texts[i].DType, b.Texts[i].Values)
	}
}

// goldenOf runs a loader through its first three batches, a resume behind the second, and the last
// batches of the epoch, and returns a hash of each.
func goldenOf(mix []loader.Mix, cfg loader.Config) (map[string]string, error) {
	ctx := context.Background()
	open := func() (*loader.Loader, error) { return loader.NewMix(ctx, slices.Clone(mix), cfg) }
	l, err := open()
	if err != nil {
		return nil, err
	}
	defer l.Close()
	sums := map[string]hash.Hash{
		"fields":  sha256.New(),
		"batches": sha256.New(),
		"order":   sha256.New(),
		"state":   sha256.New(),
	}
	fmt.Fprintf(sums["fields"], "%+v %d %d\n", l.Fields(), l.Samples(), l.Len())
	for epoch := range int64(2) {
		order, err := l.RankOrder(epoch, cfg.Rank)
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(sums["order"], order)
	}
	take := func(l *loader.Loader) ([]byte, error) {
		b, err := l.Next(ctx)
		if err != nil {
			return nil, err
		}
		defer b.Release()
		h := sha256.New()
		hashBatch(h, b)
		return h.Sum(nil), nil
	}
	var third []byte
	for i := range 3 {
		if i == 2 {
			state := l.State()
			text, err := json.Marshal(state)
			if err != nil {
				return nil, err
			}
			sums["state"].Write(text)
			resumed, err := open()
			if err != nil {
				return nil, err
			}
			defer resumed.Close()
			if err := resumed.Restore(state, false); err != nil {
				return nil, err
			}
			if third, err = take(resumed); err != nil && err != io.EOF {
				return nil, err
			}
		}
		sum, err := take(l)
		if err == io.EOF {
			continue
		}
		if err != nil {
			return nil, err
		}
		if i == 2 && !slices.Equal(sum, third) {
			return nil, errors.New("a resumed loader gives another batch")
		}
		sums["batches"].Write(sum)
	}
	out := map[string]string{}
	for part, h := range sums {
		out[part] = hex.EncodeToString(h.Sum(nil))[:16]
	}
	return out, nil
}

func TestGolden(t *testing.T) {
	if _, err := video.ActiveBackend(); err != nil {
		t.Skip(err)
	}
	want := map[string]map[string]string{}
	if text, err := os.ReadFile(goldenFile); err != nil && !*updateGolden {
		t.Fatal(err)
	} else if err == nil {
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
	}
	got := maps.Clone(want)
	check := func(name, config string, sets ...string) {
		t.Run(name, func(t *testing.T) {
			var mix []loader.Mix
			for i, id := range sets {
				ds := openGolden(t, goldenSets[id])
				if ds == nil {
					t.Skipf("no shared data for %s (set ROBOCACHE_TESTDATA)", id)
				}
				mix = append(mix, loader.Mix{Dataset: ds, Weight: new(float64(i + 1))})
			}
			if len(mix) == 1 {
				mix[0].Weight = nil
			}
			sums, err := goldenOf(mix, goldenConfig(t, config, goldenSets[sets[0]]))
			if err != nil {
				t.Fatal(err) // all configurations are valid
			}
			if *updateGolden {
				got[name] = sums
			} else if !maps.Equal(sums, want[name]) {
				t.Errorf("got %v, want %v", sums, want[name])
			}
		})
	}
	for _, c := range goldenConfigs {
		for set := range strings.FieldsSeq(c.sets) {
			check(c.name+"/"+set, c.config, set)
		}
	}
	for _, c := range goldenMixes {
		check(c.name, c.config, strings.Fields(c.sets)...)
	}
	if *updateGolden {
		text, err := json.MarshalIndent(got, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(goldenFile, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
