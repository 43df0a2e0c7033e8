package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache/bench/report"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/ros2"
)

// formatBar is a bar on ours against a peer of the same case, in CPU seconds.
func formatBar(times float64, than string) Bar {
	return Bar{Text: fmt.Sprintf("≥ %g× %s", times, than), Ours: "robocache", Than: than, Metric: CPU, AtLeast: times}
}

// FormatRows are the cases of `bench formats`: each a family of its own. runners/formats.py has the peers; a case's data is made before.
func FormatRows() []PeerRow {
	row := func(name, title string, runners []string, bars ...Bar) PeerRow {
		return PeerRow{Name: name, Title: title, Family: name, Runners: append([]string{"robocache"}, runners...), Bars: bars}
	}
	rows := []PeerRow{
		row("hdf5-raw", "robomimic HDF5, two cameras 84×84, windows of 16: raw", []string{"robomimic"}, formatBar(5, "robomimic"), rightBar("robocache")),
		row("hdf5-cached", "the same, all cached", []string{"robomimic"}, formatBar(5, "robomimic"), rightBar("robocache")),
		row("hdf5-gzip", "the same, gzip, a frame a chunk", []string{"robomimic"}, formatBar(5, "robomimic"), rightBar("robocache")),
		row("hdf5-low16", "no frames, peer all cached without workers (its best), batches of 16", []string{"robomimic"}, formatBar(6, "robomimic"), rightBar("robocache")),
		row("hdf5-low100", "the same, batches of 100", []string{"robomimic"}, formatBar(6, "robomimic"), rightBar("robocache")),
		row("calvin", "CALVIN, all arrays of a frame (599 kB), one at a time, and in batches of 32", []string{"robocache-batch", "numpy", "bytes"}, formatBar(8, "numpy")),
		row("windows", "MCAP, 0.5 s of the joints at random, decoded", []string{"mcap"}, formatBar(20, "mcap")),
		row("messages-joint", "messages in memory to columns: JointState", []string{"mcap-ros2-support", "rosbags"}, formatBar(50, "mcap-ros2-support"), formatBar(10, "rosbags")),
		row("messages-imu", "messages in memory to columns: Imu", []string{"mcap-ros2-support", "rosbags"}, formatBar(50, "mcap-ros2-support"), formatBar(10, "rosbags")),
		row("recordings", "whole recordings to columns, opening included", []string{"mcap-ros2-support", "rosbags", "decompression"}, formatBar(50, "mcap-ros2-support"), formatBar(10, "rosbags")),
		row("rlds", "RLDS whole steps, four JPEG cameras", []string{"tfds"}, formatBar(1.3, "tfds")),
		row("multirate", "four streams of a recording to 50 Hz, windows of 1 s, batches of 64", []string{"pandas"}, formatBar(50, "pandas")),
	}
	for _, codec := range []string{"lz4", "zstd"} {
		for _, shuffle := range []string{"none", "byte", "bit"} {
			for _, key := range []string{"img", "state", "state32"} {
				rows = append(rows, row("zarr-"+codec+"-"+shuffle+"-"+key, "Zarr chunks, blosc "+codec+", shuffle "+shuffle+": "+key, []string{"zarr-python", "numcodecs"}, formatBar(1, "zarr-python"), formatBar(0.8, "numcodecs")))
			}
		}
	}
	return rows
}

// formatRunner is a runner of a case of `bench formats`.
func (w *PeerWork) formatRunner(ctx context.Context, name, runner string) (Runner, error) {
	a := Runner{Name: runner, Env: w.Tools.Env()}
	kind, rest, _ := strings.Cut(name, "-")
	dir, err := w.Sets.formatData(ctx, kind)
	if err != nil {
		return failing(a, err), nil
	}
	seconds := []string{"--seconds", fmt.Sprint(w.Seconds)}
	switch kind {
	case "hdf5":
		return w.hdf5(ctx, a, rest, dir)
	case "zarr":
		dir = filepath.Join(dir, rest+".zarr")
	case "messages":
		dir = filepath.Join(dir, rest)
	case "windows":
		if runner == "robocache" {
			if files, _ := filepath.Glob(filepath.Join(dir, "*.mcap")); len(files) > 0 {
				dir = files[0]
			}
		}
	case "multirate":
		dir = filepath.Join(os.Getenv("ROBOCACHE_TESTDATA"), "mcap_robot", "recording_zstd.mcap")
	}
	a.Setting = "one process"
	a.Argv = w.Tools.Script("formats.py", append([]string{name, runner, dir}, seconds...)...)
	if runner == "tfds" {
		a.Argv[0], a.Setting = ".venv-tfds/bin/python", "two threads, scripts/venv-tfds.sh"
	}
	if !strings.HasPrefix(runner, "robocache") {
		return a, nil
	}
	read := func(more ...string) {
		a.Argv = w.Tools.Own("read", append(append([]string{dir}, seconds...), more...)...)
	}
	switch kind {
	case "calvin":
		a.Setting = "one frame at a time"
		if read("--batch", "1"); runner == "robocache-batch" {
			a.Setting = "batches of 32 on all cores"
			read("--batch", "32")
		}
	case "zarr":
		a.Setting, a.Env = "chunk by chunk, one core", append(a.Env, "GOMAXPROCS=1")
		chunk := "4096"
		if strings.HasSuffix(rest, "-img") {
			chunk = "32"
		}
		read("--rows-hz", "10", "--batch", chunk)
	case "windows":
		read("--windows", "40", "--key", "joint_states.position")
	case "messages":
		a.Env = append(a.Env, "GOMAXPROCS=1")
		a.Argv = w.Tools.Own("messages", append([]string{dir, map[string]string{"joint": "sensor_msgs/msg/JointState", "imu": "sensor_msgs/msg/Imu"}[rest]}, seconds...)...)
	}
	return a, nil
}

// hdf5 is a runner on a file of robomimic's layout: whole epochs, windows of 16 of every stream.
func (w *PeerWork) hdf5(ctx context.Context, a Runner, which, dir string) (Runner, error) {
	file := map[string]string{"raw": "raw.hdf5", "cached": "raw.hdf5", "gzip": "gzip.hdf5", "low16": "low.hdf5", "low100": "low.hdf5"}[which]
	work := Workload{URI: filepath.Join(dir, file), BatchSize: 16, Workers: 2, Epochs: 1, Seconds: w.Seconds, Seed: w.Seed, Window: 16, Video: "none"}
	if which == "low100" {
		work.BatchSize = 100
	}
	ref, err := w.reference(ctx, work.URI)
	if err != nil {
		return a, err
	}
	a.job, a.Checked = job{ref: ref, batch: work.BatchSize, whole: true}, true
	low := file == "low.hdf5"
	if a.Name == "robomimic" {
		mode := "none"
		if low || which == "cached" {
			mode = "all"
		}
		if low {
			work.Workers = 0
		}
		a.Setting = fmt.Sprintf("SequenceDataset, hdf5_cache_mode=%s, %d workers", mode, work.Workers)
		a.Argv = w.Tools.Script("load_robomimic.py", append(work.args(), "--cache-mode", mode)...)
		return a, nil
	}
	if which == "cached" {
		work.Cache = "ram"
	}
	a.Setting = "global shuffle, 2 threads"
	a.Argv = w.Tools.Script("load_robocache.py", append(work.args(), "--truth", work.URI, "--windowed", "all")...)
	return a, nil
}

// formatData makes the data of cases once, and says where it lies.
func (s *PeerSets) formatData(ctx context.Context, kind string) (string, error) {
	if kind == "windows" {
		kind = "recordings"
	}
	dir := filepath.Join(s.Work, "formats", kind)
	if kind == "multirate" || exists(dir+".made") {
		return dir, nil
	}
	if err := os.RemoveAll(dir); err != nil { // what a killed run left
		return "", robocache.At(err, robocache.Where{"file": dir})
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", robocache.At(err, robocache.Where{"file": dir})
	}
	args := []string{"formats.py", kind, "make", dir}
	if kind == "hdf5" {
		args = []string{"hdf5_set.py", dir}
	}
	if err := s.python(ctx, args[0], args[1:]...); err != nil {
		return "", err
	}
	s.Log("made %s", dir)
	return dir, report.WriteFile(dir+".made", nil)
}

// ReadJob is a pass over a dataset as a reader of it goes: rows in order, or windows at random.
type ReadJob struct {
	URI, RowsHZ, Key string
	Batch, Windows   int
	Seconds          float64
}

// ReadRun reads whole passes: every row in order, in batches, from a dataset that was opened anew; or windows of half a second at random, over and over.
func ReadRun(ctx context.Context, j ReadJob, marks io.Writer) (Outcome, error) {
	w := Workload{URI: j.URI, RowsHZ: j.RowsHZ}
	pass := func(ds robocache.Dataset) (n int64, err error) {
		if j.Windows == 0 {
			return readRows(ctx, ds, j.Batch)
		}
		rng := rand.New(rand.NewPCG(2, 0))
		for range j.Windows {
			times, err := ds.Times(ctx, 0, j.Key)
			if err != nil {
				return n, err
			}
			from := times[0] + rng.Int64N(times[len(times)-1]-times[0]-5e8)
			lo := sort.Search(len(times), func(i int) bool { return times[i] >= from })
			var rows []robocache.Row
			for i := lo; i < len(times) && times[i] < from+5e8; i++ {
				rows = append(rows, robocache.Row{Index: i})
			}
			if err := ds.Gather(ctx, j.Key, rows, make([]byte, len(rows)*ds.Info().Feature(j.Key).RowBytes())); err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	held := make([]byte, 128<<20) // a training process holds batches: with an empty heap the collector would run every few frames
	ds, err := w.open(ctx)
	if err == nil {
		_, err = pass(ds)
	}
	var o Outcome
	fmt.Fprintln(marks, lineOpen)
	for begin := time.Now(); err == nil && (o.Samples == 0 || time.Since(begin).Seconds() < j.Seconds); {
		if j.Windows == 0 {
			ds.Close()
			if ds, err = w.open(ctx); err != nil {
				break
			}
		}
		cpu, start := selfCPU(), time.Now()
		var n int64
		n, err = pass(ds)
		o.Samples, o.Seconds, o.CPUSeconds = o.Samples+n, o.Seconds+time.Since(start).Seconds(), o.CPUSeconds+selfCPU()-cpu
	}
	fmt.Fprintln(marks, lineClose)
	if ds != nil {
		ds.Close()
	}
	_ = held[len(held)-1]
	return o, err
}

// readRows reads every stream of every row once.
func readRows(ctx context.Context, ds robocache.Dataset, batch int) (int64, error) {
	var rows []robocache.Row
	for e := range ds.Info().Episodes {
		for i := range ds.Len(e) {
			rows = append(rows, robocache.Row{Episode: e, Index: i})
		}
	}
	leaser, _ := ds.(robocache.FrameLeaser)
	refs, n := make([]robocache.FrameRef, batch), int64(0)
	for lo := 0; lo+batch <= len(rows) || lo == 0; lo += batch {
		part := rows[lo:min(lo+batch, len(rows))]
		for i := range ds.Info().Features {
			f := &ds.Info().Features[i]
			switch {
			case f.Kind == robocache.KindImage && leaser != nil:
				done, err := leaser.LeaseFrames(ctx, f.Key, part, refs[:len(part)])
				if err != nil {
					return n, err
				}
				if done != nil {
					done()
				}
			case f.Kind == robocache.KindImage:
				if err := ds.Frames(ctx, f.Key, part, refs[:len(part)]); err != nil {
					return n, err
				}
			case f.Kind == robocache.KindNumeric && !f.Default:
				if err := ds.Gather(ctx, f.Key, part, make([]byte, len(part)*f.RowBytes())); err != nil {
					return n, err
				}
			}
		}
		n += int64(len(part))
	}
	return n, nil
}

// MessagesRun decodes ROS 2 payloads of a file, which lie in memory, to columns.
func MessagesRun(file, kind string, seconds float64, marks io.Writer) (Outcome, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Outcome{}, robocache.At(err, robocache.Where{"file": file})
	}
	var messages [][]byte
	for len(data) > 4 {
		n := binary.LittleEndian.Uint32(data)
		messages, data = append(messages, data[4:4+n]), data[4+n:]
	}
	schema, _ := ros2.KnownSchema(kind)
	topic, err := ros2.NewTopic("/t", schema, messages[:1])
	if err != nil {
		return Outcome{}, err
	}
	var fields []int
	var columns [][]byte
	var valid [][]uint8
	for k, f := range topic.Fields() {
		if b := f.Feature.RowBytes(); b > 0 {
			fields, columns, valid = append(fields, k), append(columns, make([]byte, len(messages)*b)), append(valid, make([]uint8, len(messages)))
		}
	}
	timestamps := make([]int64, len(messages))
	once := func() error {
		for k, m := range messages {
			var err error
			if timestamps[k], _, err = topic.Timestamp(m); err != nil {
				return err
			}
		}
		_, err := topic.Columns(messages, nil, fields, columns, valid)
		return err
	}
	if err := once(); err != nil {
		return Outcome{}, err
	}
	values := sha256.New()
	_ = binary.Write(values, binary.LittleEndian, timestamps)
	values.Write(bytes.Join(columns, nil))
	o := Outcome{Values: hex.EncodeToString(values.Sum(nil))}
	fmt.Fprintln(marks, lineOpen)
	cpu, start := selfCPU(), time.Now()
	for o.Samples == 0 || time.Since(start).Seconds() < seconds {
		if err := once(); err != nil {
			return o, err
		}
		o.Samples += int64(len(messages))
	}
	o.Seconds, o.CPUSeconds = time.Since(start).Seconds(), selfCPU()-cpu
	fmt.Fprintln(marks, lineClose)
	return o, nil
}
