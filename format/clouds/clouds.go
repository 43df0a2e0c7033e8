package clouds

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

const (
	defaultBudget = 512 << 20
	keyPoints     = "observation.points"
	entriesPeeked = 512 // entries of a folder that are checked by detect
	foldersPeeked = 16  // subfolders that are checked by detect
)

// op is the name of the formats in errors.
const op = reader.Op("clouds")

var options = map[string]string{
	"columns": "names of a point's columns, with commas, in the file's order (kitti: " +
		"x,y,z,intensity; nuscenes: x,y,z,intensity,ring)",
	"not_finite": "drop (default): points with a NaN or infinite coordinate are left out; keep",
	"timestamp_unit": "of numbers in timestamps.txt or times.txt: s, ms, us or ns (default: by " +
		"their magnitude)",
}

// source describes the differences between the formats.
type source struct {
	name    string
	suffix  string
	columns []string
	hz      robocache.Rate // rate of a format whose rate is fixed
}

var sources = []source{
	{
		name:    "kitti",
		suffix:  ".bin",
		columns: []string{"x", "y", "z", "intensity"},
		hz:      robocache.Rate{Num: 10, Den: 1},
	},
	{name: "nuscenes", suffix: ".pcd.bin", columns: []string{"x", "y", "z", "intensity", "ring"}},
	{name: "clouds", suffix: ".npy"},
}

func init() {
	for _, s := range sources {
		robocache.Register(robocache.Format{
			Name:    s.name,
			Options: options,
			Detect: func(ctx context.Context, uri string, opt robocache.OpenOptions) (bool, error) {
				return detectLocal(uri, opt, s), nil
			},
			Open: reader.Opener(
				func(ctx context.Context, uri string, opt robocache.OpenOptions) (*Dataset, error) {
					return Open(ctx, uri, s.name, opt)
				},
			),
		})
	}
}

// detectLocal checks a few entries of the usual folders of such scans, if the store is local.
// Listing all files could be slow for datasets of other formats.
func detectLocal(uri string, opt robocache.OpenOptions, s source) bool {
	if s.name == "clouds" {
		return false // an npy file can be anything
	}
	st, err := store.OpenFor(uri, opt)
	if err != nil {
		return false
	}
	defer store.Close(st)
	local, ok := st.(*store.Local)
	if !ok {
		return false
	}
	for _, dir := range []string{
		"",
		"velodyne",
		"velodyne_points/data",
		"data",
		"training/velodyne",
		"testing/velodyne",
		"samples/LIDAR_TOP",
		"sweeps/LIDAR_TOP",
	} {
		if s.scansIn(path.Join(local.URI(), dir)) {
			return true
		}
	}
	// KITTI's odometry sets and raw recordings. The names of drives are arbitrary, so the first few
	// folders are checked.
	for _, tree := range [][2]string{
		{"", "velodyne"},
		{"sequences", "velodyne"},
		{"dataset/sequences", "velodyne"},
		{"", "velodyne_points/data"},
		{"*", "velodyne_points/data"},
	} {
		for _, dir := range firstFolders(path.Join(local.URI(), strings.TrimSuffix(tree[0], "*")),
			tree[0] == "*") {
			if s.scansIn(path.Join(dir, tree[1])) {
				return true
			}
		}
	}
	return false
}

// scansIn reports whether one of the first entries of a folder is a scan.
func (s source) scansIn(dir string) bool {
	for _, e := range firstEntries(dir) {
		if _, ok := s.scanNumber(e.Name()); ok && !e.IsDir() {
			return true
		}
	}
	return false
}

// firstFolders returns the first subfolders of dir, or their subfolders if deeper is set.
func firstFolders(dir string, deeper bool) []string {
	var out []string
	for _, e := range firstEntries(dir) {
		switch p := path.Join(dir, e.Name()); {
		case !e.IsDir():
		case deeper:
			out = append(out, firstFolders(p, false)...)
		default:
			out = append(out, p)
		}
	}
	return out[:min(len(out), foldersPeeked)]
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

// scanNumber returns the number or timestamp in the name of a scan. It returns false if the file is
// not a scan.
func (s source) scanNumber(base string) (int64, bool) {
	stem, ok := strings.CutSuffix(base, s.suffix)
	if !ok || s.suffix == ".bin" && strings.HasSuffix(stem, ".pcd") {
		return 0, false
	}
	if s.name == "nuscenes" {
		i := strings.LastIndex(stem, "__")
		if i < 0 {
			return 0, false
		}
		stem = stem[i+2:]
	}
	if s.name == "kitti" && len(stem) < 6 {
		return 0, false // KITTI writes six or ten digits; other .bin files are not scans
	}
	// The digits at the end are the number: scan_0003.npy is number 3.
	k := len(stem)
	for k > 0 && stem[k-1] >= '0' && stem[k-1] <= '9' {
		k--
	}
	if s.name != "clouds" && k > 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(stem[k:], 10, 64)
	return n, err == nil
}

// Dataset is an open folder of scans.
type Dataset struct {
	reader.Base
	parent        string // local parent folder of the root, or ""
	src           source
	episodes      []episode
	dtype         robocache.DType
	width         int // number of columns
	keepNotFinite bool
	followLinks   bool // follow links that leave the root
	budget        int64
	rate          robocache.Rate
	unit          string // unit of the numbers in lists of timestamps; "" means inferred
}

var _ robocache.Dataset = (*Dataset)(nil)

// Open opens the folder at uri as "kitti", "nuscenes" or "clouds".
func Open(ctx context.Context, uri, format string, opt robocache.OpenOptions) (*Dataset, error) {
	return reader.Open(
		uri,
		opt,
		func(s store.Store) (*Dataset, error) {
			return openStore(ctx, s, format, opt, parentOf(s))
		},
	)
}

// parentOf returns the parent of a local folder, which may contain the timestamps of the scans. It
// returns "" if there is none, or if the store is not local.
func parentOf(s store.Store) string {
	local, ok := s.(*store.Local)
	if !ok {
		return ""
	}
	dir, err := filepath.Abs(local.URI())
	if err != nil || filepath.Dir(dir) == dir {
		return ""
	}
	return filepath.Dir(dir)
}

// openStore opens the folder at the root of a store. Close of the dataset closes the store.
func openStore(
	ctx context.Context,
	s store.Store,
	format string,
	opt robocache.OpenOptions,
	parent string,
) (d *Dataset, err error) {
	defer crash.Recover("clouds open", &err)
	d = &Dataset{
		Base:        reader.Base{Bytes: s},
		parent:      parent,
		dtype:       robocache.Float32,
		rate:        opt.HZ,
		budget:      reader.Budget(opt, defaultBudget, 0),
		followLinks: opt.FollowLinks,
	}
	d.Offered = robocache.Capabilities{
		Diagnose:     d.Diagnose,
		GatherRagged: d.GatherRagged,
	}
	for _, src := range sources {
		if src.name == format {
			d.src = src
		}
	}
	if d.src.name == "" {
		return nil, robocache.Misuse("clouds open", nil, "no format %s", format)
	}
	notFinite := "drop"
	if err := op.Settle(opt.Options, options, map[string]reader.Set{
		"not_finite":     reader.Text(&notFinite, "drop", "keep"),
		"timestamp_unit": reader.Text(&d.unit, "", "s", "ms", "us", "ns"),
	}); err != nil {
		return d, err
	}
	d.keepNotFinite = notFinite == "keep"
	columns := d.src.columns
	if c := opt.Options["columns"]; c != "" {
		columns = strings.Split(c, ",")
		if len(columns) < 3 || len(columns) > 64 {
			return nil, robocache.Misuse("clouds open", nil, "option columns").
				Expected("3 to 64 names", fmt.Sprint(len(columns)))
		}
	}
	d.About = &robocache.Info{URI: s.URI(), Format: d.src.name, Version: "1"}
	if err := d.listScans(ctx); err != nil {
		return d, err
	}
	if d.src.name == "clouds" {
		if columns, err = d.describeArrays(ctx, columns); err != nil {
			return d, err
		}
	}
	d.width = len(columns)
	if err := d.findTimestamps(ctx); err != nil {
		return d, err
	}
	names, err := json.Marshal(columns)
	if err != nil {
		return d, err
	}
	d.About.FPS = d.rate
	d.About.Features = []robocache.Feature{
		{
			Key:           keyPoints,
			Kind:          robocache.KindPointCloud,
			DType:         d.dtype,
			Shape:         []int{-1, d.width},
			Names:         names,
			FPS:           d.rate,
			Unit:          "m",
			Interpolation: "nearest",
		},
	}
	d.About.Episodes = len(d.episodes)
	for _, e := range d.episodes {
		d.About.Frames += int64(len(e.scans))
	}
	return d, nil
}

func malformed(format string, args ...any) error {
	return robocache.Malformed("clouds", nil, format, args...)
}

// bad returns an error for malformed data.
func bad(format string, args ...any) error { return malformed(format, args...) }
