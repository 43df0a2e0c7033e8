package tartanair

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/natural"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/store"
)

// op is the name of the format in errors.
const op = reader.Op("tartanair")

const (
	defaultBudget  = 256 << 20
	smallestBudget = 1 << 20
	maxNoted       = 20 // findings of one code
	camTimes       = "cam_time"
	imuTimes       = "imu_time"
	imuClock       = "imu"
)

// usualRate is the rate at which TartanAir V2 is sampled. V1 states none.
var usualRate = robocache.Rate{Num: 10, Den: 1}

var options = map[string]string{}

func init() {
	robocache.Register(robocache.Format{
		Name:    "tartanair",
		Options: options,
		Detect: func(_ context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
			return detectLocal(uri, opt), nil
		},
		Open: reader.Opener(Open),
	})
}

// Limits of detectLocal: datasets of other formats may have many folders.
const (
	foldersPeeked = 64
	entriesPeeked = 512
	depthPeeked   = 4 // of a trajectory below the root: ENV/Data_easy/P000
)

// detectLocal reports whether one of the first folders of a local store is a trajectory.
func detectLocal(uri string, opt robocache.OpenOptions) bool {
	s, err := store.OpenFor(uri, opt)
	if err != nil {
		return false
	}
	defer store.Close(s)
	local, ok := s.(*store.Local)
	if !ok {
		return false
	}
	type folder struct {
		path  string
		depth int
	}
	queue := []folder{{local.URI(), 0}}
	for i := 0; i < len(queue) && i < foldersPeeked; i++ {
		entries := firstEntries(queue[i].path)
		var below []folder
		for _, e := range entries {
			name := e.Name()
			switch {
			case !e.IsDir() && poseName.MatchString(name):
				return true
			case e.IsDir() && folderName.MatchString(name):
				for _, frame := range firstEntries(path.Join(queue[i].path, name)) {
					if _, ok := parseName(path.Join("t", name, frame.Name())); ok {
						return true
					}
				}
			case e.IsDir() && queue[i].depth < depthPeeked:
				below = append(below, folder{path.Join(queue[i].path, name), queue[i].depth + 1})
			}
		}
		// The first folders of each level, so that many environments do not hide trajectories.
		queue = append(queue, below[:min(len(below), 8)]...)
	}
	return false
}

func firstEntries(dir string) []os.DirEntry {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close()
	list, _ := f.ReadDir(entriesPeeked)
	return list
}

// trajectory is an episode.
type trajectory struct {
	path    string
	numbers []int64             // of the rows
	frames  map[string][]string // key of a camera → file of each row; "" if there is none
	files   map[string]string   // key of a pose or an array → its file
}

// has reports whether a trajectory has a stream.
func (t *trajectory) has(key string) bool { return t.frames[key] != nil || t.files[key] != "" }

// Dataset is an open folder of trajectories.
type Dataset struct {
	reader.Base
	episodes []trajectory
	kinds    map[string]kind
	byKey    map[string]int // position in Info.Features
	budget   int64
	rate     robocache.Rate
	isStated bool // the caller sets the rate
	cache    *lru.Cache[string, *table]
}

var _ robocache.Dataset = (*Dataset)(nil)

// Open opens the folder at uri: one trajectory, or folders of them.
func Open(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
	return reader.Open(uri, opt, func(s store.Store) (*Dataset, error) {
		return OpenStore(ctx, s, opt)
	})
}

// OpenStore opens the folder at the root of a store. Close of the dataset closes the store.
func OpenStore(
	ctx context.Context, s store.Store, opt robocache.OpenOptions,
) (d *Dataset, err error) {
	defer crash.Recover("tartanair open", &err)
	if err := op.Settle(opt.Options, options, nil); err != nil {
		return nil, err
	}
	d = &Dataset{
		Base: reader.Base{Bytes: s}, rate: cmp.Or(opt.HZ, usualRate), isStated: !opt.HZ.Zero(),
		kinds: map[string]kind{}, byKey: map[string]int{},
		budget: reader.Budget(opt, defaultBudget, smallestBudget),
	}
	d.cache = lru.New[string, *table](d.budget / 2)
	d.Offered = robocache.Capabilities{
		Diagnose:    d.Diagnose,
		Lacks:       d.Lacks,
		LimitMemory: d.LimitMemory,
		Recording:   d.Recording,
		Rows:        d.Rows,
	}
	d.About = &robocache.Info{
		URI: s.URI(), Format: "tartanair", Version: "1", FPS: d.rate, Splits: map[string]string{},
	}
	if err := d.listTrajectories(ctx); err != nil {
		return nil, err
	}
	if err := d.describeStreams(ctx); err != nil {
		return nil, err
	}
	d.noteTimes()
	return d, nil
}

// listTrajectories finds the trajectories and their files.
func (d *Dataset) listTrajectories(ctx context.Context) error {
	unread := map[string]int64{} // folders of trajectories that no stream reads
	files, links, err := store.Files(ctx, d.Bytes, "", func(name string) bool {
		return name != ""
	})
	if err != nil {
		return err
	}
	d.About.Findings = append(d.About.Findings, store.Findings(links, "link-not-followed")...)
	type frame struct {
		number int64
		file   string
	}
	frames, byPath := map[string]map[string][]frame{}, map[string]*trajectory{}
	for i := range files {
		f := &files[i]
		m, ok := parseName(f.Name)
		if !ok {
			unread[path.Dir(f.Name)]++
			continue
		}
		if f.Err != nil {
			d.note(maxNoted, store.Findings(files[i:i+1], "unreadable-file")[0])
			continue
		}
		t := byPath[m.trajectory]
		if t == nil {
			t = &trajectory{
				path: m.trajectory, frames: map[string][]string{}, files: map[string]string{},
			}
			byPath[m.trajectory], frames[m.trajectory] = t, map[string][]frame{}
		}
		key := m.key()
		d.kinds[key] = m.kind
		if m.kind == poseKind || m.kind == inertialKind {
			t.files[key] = f.Name
			continue
		}
		frames[m.trajectory][key] = append(frames[m.trajectory][key], frame{m.number, f.Name})
	}
	var paths []string
	for name := range byPath {
		if len(frames[name]) > 0 {
			paths = append(paths, name)
		}
	}
	slices.SortFunc(paths, natural.Compare)
	for _, name := range paths {
		t := byPath[name]
		for _, list := range frames[name] {
			for _, f := range list {
				t.numbers = append(t.numbers, f.number)
			}
		}
		slices.Sort(t.numbers)
		t.numbers = slices.Compact(t.numbers)
		for key, list := range frames[name] {
			t.frames[key] = make([]string, len(t.numbers))
			n := 0
			for _, f := range list {
				row, _ := slices.BinarySearch(t.numbers, f.number)
				if t.frames[key][row] == "" {
					n++
				}
				t.frames[key][row] = f.file
			}
			if missing := len(t.numbers) - n; missing > 0 {
				d.note(maxNoted, robocache.Finding{
					Severity: robocache.SeverityWarning, Code: "missing-frames",
					Where: robocache.Where{"episode": len(d.episodes), "stream": key},
					Count: int64(missing),
					Message: fmt.Sprintf("%d of %d frames have no file in this camera",
						missing, len(t.numbers)),
					Hint: "Fetch the folder again. The frames are masked.",
				})
			}
		}
		d.episodes = append(d.episodes, *t)
		d.About.Frames += int64(len(t.numbers))
		for folder, n := range unread {
			if rest, ok := strings.CutPrefix(folder, name+"/"); ok && name != "." {
				d.noteUnread(len(d.episodes)-1, rest, n)
			}
		}
	}
	if len(d.episodes) == 0 {
		if len(links) > 0 {
			return links[0].Err
		}
		return robocache.NotFound("tartanair open", nil,
			"no trajectories here: folders such as image_left or image_lcam_front with frames")
	}
	d.About.Episodes = len(d.episodes)
	d.nameSplits()
	return nil
}

// noteUnread reports a folder of a trajectory whose files no stream reads, such as flow and lidar.
func (d *Dataset) noteUnread(episode int, folder string, n int64) {
	d.note(maxNoted, robocache.Finding{
		Severity: robocache.SeverityInfo, Code: "not-read",
		Where: robocache.Where{
			"episode": episode, "file": path.Join(d.episodes[episode].path, folder),
		},
		Count: n, Message: fmt.Sprintf("%d files of %s are not read", n, folder),
	})
}

// note adds a finding. If there are already most with its code, the last of them counts it.
func (d *Dataset) note(most int, f robocache.Finding) {
	found, last := 0, -1
	for i := range d.About.Findings {
		if d.About.Findings[i].Code == f.Code {
			found, last = found+1, i
		}
	}
	if found < most {
		d.About.Findings = append(d.About.Findings, f)
		return
	}
	d.About.Findings[last].Count += max(1, f.Count)
}

// nameSplits makes splits of the levels easy and hard.
func (d *Dataset) nameSplits() {
	levels := map[string][]int{}
	for i := range d.episodes {
		for part := range strings.SplitSeq(strings.ToLower(d.episodes[i].path), "/") {
			if level := strings.TrimPrefix(part, "data_"); level == "easy" || level == "hard" {
				levels[level] = append(levels[level], i)
				break
			}
		}
	}
	for level, positions := range levels {
		d.About.Splits[level] = robocache.Spans(positions)
	}
}

// describeStreams describes the union of the streams by the first file of each, and reports what
// trajectories lack.
func (d *Dataset) describeStreams(ctx context.Context) error {
	keys := make([]string, 0, len(d.kinds))
	for key := range d.kinds {
		if key != prefixes[inertialKind]+camTimes && key != prefixes[inertialKind]+imuTimes {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(d.kinds[a], d.kinds[b]), strings.Compare(a, b))
	})
	var lacking reader.LackingFindings
	for _, key := range keys {
		f := robocache.Feature{Key: key, FPS: d.rate}
		if err := d.describeStream(ctx, &f); err != nil {
			if robocache.IsFatal(err) || !robocache.Bad(err) {
				return err
			}
			d.note(maxNoted, robocache.Finding{
				Severity: robocache.SeverityWarning, Code: "unsupported-stream",
				Where:   robocache.Where{"stream": key},
				Message: "the stream cannot be read: " + err.Error(), NotDelivered: key,
			})
			continue
		}
		d.byKey[key] = len(d.About.Features)
		d.About.Features = append(d.About.Features, f)
		for i := range d.episodes {
			if !d.episodes[i].has(key) {
				where := robocache.Where{"episode": i, "stream": key}
				lacking.Add(&f, where, strings.TrimPrefix(key, "observation."))
			}
		}
	}
	d.About.Findings = append(d.About.Findings, lacking.List()...)
	return nil
}

// describeStream sets the type and shape of a stream from its first file that can be read.
func (d *Dataset) describeStream(ctx context.Context, f *robocache.Feature) (err error) {
	for i := range d.episodes {
		t := &d.episodes[i]
		if !t.has(f.Key) {
			continue
		}
		switch d.kinds[f.Key] {
		case poseKind:
			f.Kind, f.DType, f.Shape = robocache.KindNumeric, robocache.Float64, []int{poseWidth}
			f.Names = json.RawMessage(`["x","y","z","qx","qy","qz","qw"]`)
			f.Interpolation = "slerp"
			f.Rotations = []robocache.Rotation{{At: 3, Form: robocache.FormQuat}}
			return nil
		case inertialKind:
			err = d.describeArray(ctx, t, f)
		default:
			row := slices.IndexFunc(t.frames[f.Key], func(name string) bool { return name != "" })
			err = d.describeImage(ctx, t.frames[f.Key][row], f)
		}
		if err == nil || robocache.IsFatal(err) {
			return err
		}
	}
	return err
}

// noteTimes reports trajectories without times.
func (d *Dataset) noteTimes() {
	if d.isStated {
		return
	}
	missing := 0
	for i := range d.episodes {
		if !d.episodes[i].has(prefixes[inertialKind] + camTimes) {
			missing++
		}
	}
	if missing > 0 {
		d.note(maxNoted, robocache.Finding{
			Severity: robocache.SeverityInfo, Code: "no-timestamps", Count: int64(missing),
			Message: fmt.Sprintf("%d trajectories have no imu/cam_time.npy: their rows are given "+
				"at %s Hz", missing, d.rate),
			Hint: "Set another rate with " + robocache.Option("rows_hz"),
		})
	}
}

// Lacks reports whether a trajectory lacks a stream that others have.
func (d *Dataset) Lacks(episode int, key string) bool {
	_, known := d.byKey[key]
	return known && episode >= 0 && episode < len(d.episodes) && !d.episodes[episode].has(key)
}

// Recording returns the folder of a trajectory.
func (d *Dataset) Recording(episode int) string {
	if episode < 0 || episode >= len(d.episodes) || d.episodes[episode].path == "." {
		return ""
	}
	return d.episodes[episode].path
}

// LimitMemory lowers the budget.
func (d *Dataset) LimitMemory(bytes int64) {
	d.cache.Limit(max(bytes, smallestBudget) / 2)
}
